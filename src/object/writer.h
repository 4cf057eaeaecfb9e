/*
 * Stores one object: reads its content segment by segment, encodes in memory and streams the stripes to their
 * endpoints.
 *
 * Every stripe pulls packets at its own pace from a small window of encoded segments. A stripe that falls behind the
 * window, begins late on a spare, or is filled in after the commit has its segments read and encoded again: one code
 * path. Nothing the size of the object is held anywhere. Content may grow while it is read (see feed.h): whole segments
 * are encoded as soon as they are there, the last one when it is known to be the last.
 *
 * A lane is one stripe on its way to one endpoint:
 *
 *   state    meaning                                           moved on by
 *   running  the endpoint pulls                                endpoint: done → stored or failed
 *   stored   committed on the endpoint                         -
 *   failed   its endpoint gave up; error is set                ecfs_writer_run: gone, another begins at a spare or none
 *
 * A running lane is late when its endpoint is silent for longer than is usual there, or so slow that it takes as long
 * again as the others took together. Once nothing but late lanes is left to wait for, they are cut: their stripes go to
 * spares, or are left out where what is stored suffices. So an endpoint that hangs costs some tens of milliseconds.
 * Those that move, but are certain to be late, may continue in the background instead: `enough` decides.
 */
#ifndef ECFS_OBJECT_WRITER_H
#define ECFS_OBJECT_WRITER_H

#include "codec/codec.h"
#include "endpoint/endpoint.h"
#include "object/feed.h"
#include "object/format.h"
#include "object/segment.h"
#include "util/sha256.h"

#include <stdatomic.h>

typedef struct EcfsWriterTarget {
    EcfsEndpoint *endpoint; /* NULL: this stripe is not wanted, or has no endpoint */
    uint64_t instance;
} EcfsWriterTarget;

/* Where packets come from that are not encoded from content: stripes that are rebuilt from others. */
typedef struct EcfsPacketSource {
    /* Memory that loading takes beside the segment: granted with that, and taken over by `load`. */
    size_t (*bytes) (void *user, uint64_t segment);
    /* Fills those packets of a segment that are wanted, with their tags; then calls done once, from any thread. Must
     * not block. */
    void (*load) (void *user, EcfsSegment *segment, void (*done) (void *data, const GError *error), void *data);
    /* Whether no segment is to be begun for now; asked again every 100 ms at the latest. Must not block, nor call the
     * writer. May be NULL: never. */
    bool (*held) (void *user);
    uint64_t most_bytes; /* of memory for segments; one is always possible. 0: as for content */
    void *user;
} EcfsPacketSource;

/* What becomes of stripes that are on their way when those that are stored suffice. */
typedef enum EcfsRest {
    ECFS_REST_AWAITED, /* late ones are left out, as usual */
    ECFS_REST_TRAILS,  /* nobody waits for them: they have all the time until their endpoints are down */
    ECFS_REST_LEFT,    /* they are cut */
} EcfsRest;

typedef struct EcfsWriterResult {
    bool stored[ECFS_CODEC_MAX_N];
    uint64_t stripe_bytes[ECFS_CODEC_MAX_N]; /* size of the stripe file, of those stored */
    uint8_t stripe_digest[ECFS_CODEC_MAX_N][ECFS_STRIPE_DIGEST_BYTES];
    uint8_t object_digest[ECFS_STRIPE_DIGEST_BYTES];
    uint8_t object_sha256[ECFS_SHA256_SIZE]; /* zero where packets were loaded */
    uint32_t header_bytes;
    GString *failures; /* "endpoint a: why; endpoint b: why", empty when all were stored; g_string_free () */
} EcfsWriterResult;

/* All pointers are borrowed until ecfs_writer_run () returns. */
typedef struct EcfsWriterJob {
    EcfsTransferPool *transfer;
    const EcfsCodec *codec;
    EcfsStripeHeader header;  /* index, instance and header_bytes are filled in */
    const EcfsSealKeys *keys; /* of the object, as header.seal says; NULL: it is stored without */
    uint64_t size;            /* bytes of content, > 0; ignored with a feed */
    int fd;                   /* content; read with preadv at any time, some ranges more than once: ECANCELED if they
                               * are not the same each time */
    const GArray *ranges;     /* of EcfsFileRange: where in fd the content is; object offsets without gaps from 0 */
    GPtrArray *records;       /* of EcfsFileRecord, for the footers */
    bool is_pack;             /* likewise */
    /* Content that is still being written: the object begins at its byte feed_offset and has all that follows, up to
     * @most bytes, of which there is one byte at least. A full one ends when more or no more is known to follow, so
     * that `ended` knows whether it is the last. Abandoned, it ends the run with ECANCELED. NULL: all is there. */
    EcfsFeed *feed;
    uint64_t feed_offset;
    uint64_t most; /* at most ECFS_OBJECT_MAX_BYTES */
    /* With a feed: the object has @size bytes. Called once by the caller's own thread, before footers are made: what is
     * in `records` may still change, and may not afterwards. May block. */
    void (*ended) (void *user, uint64_t size);
    const EcfsPacketSource *packets; /* of the wanted stripes, in place of fd and ranges; NULL: they are encoded */
    /* Of the content, ECFS_STRIPE_DIGEST_BYTES, as EcfsStripeFooter has it; NULL: not known yet. With packets it is
     * believed, and must be given. */
    const uint8_t *expected_digest;
    const uint8_t *expected_sha256; /* likewise, ECFS_SHA256_SIZE; NULL: not known. Not asked for with packets */
    GByteArray *chain;              /* of the content (chain.h), with packets; NULL: not known */
    EcfsWriterTarget *targets;      /* n; replaced ones are updated */

    /* A stripe failed with @error, or is only late (NULL): puts another endpoint and a fresh instance into *target and
     * returns true, or returns false: there is none. Called by the caller's own thread; may block. */
    bool (*replace) (void *user, unsigned index, const GError *error, EcfsWriterTarget *target);
    /* Whether the stripes flagged could be committed. Asked of those that are stored or still possible, where false
     * ends the attempt at once, and of those that are stored, where true leaves late ones out. */
    bool (*possible) (void *user, const bool *stripes);
    bool patient; /* late stripes that no spare takes are waited for all the same, until their endpoints are down */
    /* What is stored suffices, while others are on their way, which will take as long again as these did, and two
     * seconds at least: called once, by the caller's own thread, with the result so far, without failures; may block.
     * NULL: nobody wants to know. */
    EcfsRest (*enough) (void *user, const EcfsWriterResult *result);
    bool at_quorum;                 /* `enough` is called however soon the others come */
    bool (*cancelled) (void *user); /* asked every 100 ms, by the caller's own thread */
    void *user;
} EcfsWriterJob;

/**
 * Runs until every wanted stripe is stored or left. Blocks; several writers may run in threads of their own.
 *
 * True: *ret_result says what is stored; whether that is enough is the caller's decision. False: nothing can come of it
 * (reading the content failed, ESTALE: it is not what expected_digest says, ECANCELED, not possible: the first reason);
 * stripes that were stored before that are on their endpoints all the same and must be queued for deletion. So must
 * those that were tried and are not in the result: a stripe that was given up may still turn up at its endpoint.
 */
bool ecfs_writer_run (EcfsWriterJob *job, EcfsWriterResult *ret_result, GError **error);

#endif
