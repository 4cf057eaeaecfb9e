/*
 * Reads one object from whichever of its stripes serve: ranges of content come from fetches (ranges of check blocks of
 * one segment), each verified block by block as it arrives and decoded around what is missing, late or corrupt.
 *
 * Sequential reading is noticed and read ahead in whole segments, with a window that grows; a random read fetches the
 * check blocks it touches. Nothing here blocks: results come by callback.
 */
#ifndef ECFS_OBJECT_READER_H
#define ECFS_OBJECT_READER_H

#include "cache/cache.h"
#include "codec/codec.h"
#include "endpoint/endpoint.h"
#include "key/seal.h"
#include "object/layout.h"
#include "object/policy.h"
#include "object/readlog.h"
#include "object/transfer.h"
#include "peer/peer.h"
#include "util/sha256.h"

#include <sys/uio.h>

typedef struct EcfsReader EcfsReader;

typedef struct EcfsReaderStripe {
    EcfsEndpoint *endpoint; /* NULL: not stored anywhere; must outlive the reader */
    uint64_t instance;
    uint64_t bytes; /* of the file; 0: they are not known, nor where its footer is */
} EcfsReaderStripe;

/* A stripe was read around. All is borrowed for the call. */
typedef struct EcfsTrouble {
    const EcfsUuid *object;
    const EcfsCodec *codec;
    const EcfsEndpoint *endpoint;
    unsigned stripe_index;
    uint64_t instance;
    const GError *error;
    /* The stripe itself is to blame: its bytes are wrong or end early (EBADMSG), or there is no such file (ENOENT).
     * Otherwise its endpoint is, and may be better later. */
    bool damage;
    bool lies; /* its checksums fit, and it is not what was stored: nothing of it is to be used; not told by readers */
} EcfsTrouble;

typedef struct EcfsReaderParams {
    EcfsTransferPool *transfer; /* must outlive the reader */
    EcfsCodec *codec;           /* must outlive the reader */
    EcfsLayout layout;
    EcfsUuid object;
    const EcfsSealKeys *keys; /* of the object, a reference; NULL: it is stored without. A reader takes its own */
    bool unchecked; /* it is stored under keys that are not here (@keys is NULL): tags are passed over, the content
                     * comes as it was coded, and whoever reads it verifies it */
    EcfsReadPolicy policy;
    EcfsCache *cache; /* is asked before endpoints are; must outlive the reader; NULL: there is none */
    bool fills_cache; /* it gets what is read from endpoints */
    EcfsPeers *peers; /* are asked for what the cache has not; likewise. Only with keys, and a cache that
                       * is filled, and for what the writer left a chain of (chain.h) */
    bool has_sha256;
    uint8_t sha256[ECFS_SHA256_SIZE]; /* of the content */
    EcfsReadLog *log;                 /* what it meets; must outlive the reader; may be NULL */
    const EcfsReaderStripe *stripes;  /* n; copied */
    /* Told once per stripe and reader, and once more where damage is met after what was none; from any thread; must not
     * block. May be NULL. */
    void (*trouble) (void *user, const EcfsTrouble *trouble);
    void *user;
} EcfsReaderParams;

static inline void ecfs_reader_params_clear (EcfsReaderParams *params)
{
    ecfs_seal_keys_unref (params->keys);
    params->keys = NULL;
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (EcfsReaderParams, ecfs_reader_params_clear)

/** How the blocks of the object are tagged. */
static inline EcfsTagger ecfs_reader_tagger (const EcfsReaderParams *params)
{
    return (EcfsTagger){.object = params->object, .mac = ecfs_seal_tag_mac (params->keys)};
}

/** @params->layout must be valid. Returns a reference for ecfs_reader_close (). */
EcfsReader *ecfs_reader_new (const EcfsReaderParams *params);

/** Before the first read: all of it is going to be read, from its first to its last byte. It is read ahead from the
 * first read on, so that more endpoints are called at once than one segment needs. */
void ecfs_reader_expect_all (EcfsReader *self);

/** Before the first read: what is read are small pieces of many files, side by side as these are likely to be read. A
 * shorter stretch counts as sequential reading then. */
void ecfs_reader_expect_neighbours (EcfsReader *self);

/** Gives the reference back and cancels what was read ahead; reads under way are still answered. NULL is accepted. */
void ecfs_reader_close (EcfsReader *self);

/**
 * Called once per read, from any thread, possibly before ecfs_reader_read () returned; must not block. @iov is lent for
 * the call. Errors: EIO naming the endpoints and what each of them said.
 */
typedef void (*EcfsReaderDone) (void *user, const struct iovec *iov, int n_iov, const GError *error);

/** Reads content bytes [offset, offset + size), which must lie within the object. */
void ecfs_reader_read (EcfsReader *self, uint64_t offset, size_t size, EcfsReaderDone done, void *user);

/* Bytes of an object that stay lent until they are given back. */
typedef struct EcfsLoan EcfsLoan;

/**
 * As ecfs_reader_read (), but what @done gets, the array included, stays lent until ecfs_loan_return (), which is due
 * once @done was called, with an error too. Who holds a loan must not wait for another read: that may wait for its
 * memory.
 */
EcfsLoan *ecfs_reader_borrow (EcfsReader *self, uint64_t offset, size_t size, EcfsReaderDone done, void *user);
/** NULL is accepted. Any thread. */
void ecfs_loan_return (EcfsLoan *loan);

/**
 * Called once per ecfs_reader_rebuild (), from any thread, possibly before that returned; must not block. @packets: n
 * pointers, valid for the wanted stripes and lent for the call: check blocks with room for their tags, which are not
 * there. Errors as EcfsReaderDone.
 */
typedef void (*EcfsReaderRebuilt) (void *user, uint8_t *const *packets, const GError *error);

/** Memory that rebuilding a segment takes. */
size_t ecfs_reader_rebuild_bytes (const EcfsReader *self, uint64_t segment);

/**
 * Gives a segment's packets of the stripes @wanted (n flags), data and parity, enciphered: each as it is stored where
 * it can be read, else from as few other packets as its code takes; nothing is read twice to save time. Takes over a
 * grant of ecfs_reader_rebuild_bytes ().
 */
void ecfs_reader_rebuild (EcfsReader *self, uint64_t segment, const bool *wanted, EcfsReaderRebuilt done, void *user);

/** Bytes of the packets that were received until now. */
uint64_t ecfs_reader_received_bytes (EcfsReader *self);

#endif
