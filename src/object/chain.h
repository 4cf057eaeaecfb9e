/*
 * What the writer fixed of each segment of an object, by which a reader knows a segment that comes from who has the
 * key, and so could make its tags: the states of the SHA-256 of the content, as it is behind each piece of a segment,
 * and at the end the SHA-256 itself. A piece is right if it leads from the state before it to the one behind it. As the
 * SHA-256 is made anyway, the chain costs the writer nothing; and a reader may hash the pieces of a segment at once.
 *
 * It is in the footer of each stripe, sealed: who knows a state could tell by it what a piece is. A reader takes it
 * from an endpoint. Who has the key and a stripe can forge it, but could as well forge the stripe.
 *
 * A chain is a GByteArray of links. How many it has tells how long the pieces are: a sixteenth of a whole segment,
 * rounded up to whole ECFS_CHAIN_UNIT_BYTES, or 2, 4, 8 or 16 times that; the last of each segment may be shorter.
 */
#ifndef ECFS_OBJECT_CHAIN_H
#define ECFS_OBJECT_CHAIN_H

#include "object/reader.h"
#include "util/sha256.h"
#include "util/sha256_lanes.h"

#define ECFS_CHAIN_LINK_BYTES   ECFS_SHA256_SIZE
#define ECFS_CHAIN_UNIT_BYTES   2048u
#define ECFS_CHAIN_LINKS_MAX    65536 /* pieces are longer where there would be more; */
#define ECFS_CHAIN_SEGMENTS_MAX 16384 /* an object with more segments has none, nor has one with a single segment */

/* The writer's: hashes the content, and leaves links. Of one thread at a time. */
typedef struct EcfsChainMaker EcfsChainMaker;

/** @segment_bytes: of content, see EcfsLayout. */
EcfsChainMaker *ecfs_chain_maker_new (uint32_t segment_bytes);
/** The next bytes of the content. */
void ecfs_chain_maker_take (EcfsChainMaker *self, const uint8_t *bytes, size_t size);
/** All was taken. Returns the chain for g_byte_array_unref (), or NULL: of one segment the SHA-256 is all. */
GByteArray *ecfs_chain_maker_end (EcfsChainMaker *self, uint8_t ret_sha256[ECFS_SHA256_SIZE]);
/** NULL is accepted. */
void ecfs_chain_maker_free (EcfsChainMaker *self);

/** Whether it has as many links as one of such an object. Pure, like the next. */
bool ecfs_chain_is_of (const GByteArray *self, const EcfsLayout *layout);
/**
 * Whether a segment is the one that the writer stored. @self is of such an object; @keys: of it. @packets: k data
 * packets of the segment as they are stored, with tags, of which nothing is believed.
 */
bool ecfs_chain_fits (const GByteArray *self, const EcfsLayout *layout, const EcfsSealKeys *keys, uint64_t segment,
                      const uint8_t *const *packets);
/** The same, with pieces of a segment in the lanes of @run; NULL: one after the other. For tests. */
bool ecfs_chain_fits_by (const GByteArray *self, const EcfsLayout *layout, const EcfsSealKeys *keys, uint64_t segment,
                         const uint8_t *const *packets, EcfsSha256Lanes run);

/**
 * Looks for the chain in the footers of the object's stripes, at two endpoints at once. @params: of a reader, with
 * keys; what they point to must stay until @found was called: once, from any thread, with a chain for
 * g_byte_array_unref () or with NULL; it must not block. False: there is nobody to ask, and nothing is called.
 */
bool ecfs_chain_seek (const EcfsReaderParams *params, void (*found) (void *user, GByteArray *chain), void *user);
/** The same, and waits. NULL: it was not found. Not from callbacks. */
GByteArray *ecfs_chain_seek_wait (const EcfsReaderParams *params);

#endif
