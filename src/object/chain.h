/*
 * What the writer fixed of each segment of an object, by which a reader knows a segment that comes from who has the
 * key, and so could make its tags: the states of the SHA-256 of the content, as it is behind each segment, and at the
 * end the SHA-256 itself. A segment is right if it leads from the state before it to the one behind it. As the SHA-256
 * is made anyway, the chain costs the writer nothing.
 *
 * It is in the footer of each stripe, sealed: who knows a state could tell by it what a segment is. A reader takes it
 * from an endpoint. Who has the key and a stripe can forge it, but could as well forge the stripe.
 *
 * A chain is a GByteArray of links. Pure functions, but for ecfs_chain_seek ().
 */
#ifndef ECFS_OBJECT_CHAIN_H
#define ECFS_OBJECT_CHAIN_H

#include "object/reader.h"
#include "util/sha256.h"

#define ECFS_CHAIN_LINK_BYTES ECFS_SHA256_SIZE
#define ECFS_CHAIN_LINKS_MAX  16384 /* an object with more segments has none, nor has one with a single segment */

/** Behind a whole segment, of which @sha256 has taken the last byte. One that does not end with a block of SHA-256
 * leaves the chain too short. */
void ecfs_chain_add (GByteArray *self, const EcfsSha256 *sha256);
/** At the end of content of @n_segments. False: there is no chain, as of a single one: its SHA-256 is known. */
bool ecfs_chain_end (GByteArray *self, uint64_t n_segments, const uint8_t sha256[ECFS_SHA256_SIZE]);

/* A segment that is compared with it. Of one thread at a time. */
typedef struct EcfsChainCheck EcfsChainCheck;

/** @chain has a link for each segment of @layout. @keys: of the object. All is borrowed. */
EcfsChainCheck *ecfs_chain_check_new (const GByteArray *chain, const EcfsLayout *layout, const EcfsSealKeys *keys,
                                      uint64_t segment);
/** The next bytes of the data packets as they are stored, without tags. What fills the last packets up is passed over.
 */
void ecfs_chain_check_take (EcfsChainCheck *self, const uint8_t *bytes, size_t size);
/** Whether it was the segment that the writer stored. */
bool ecfs_chain_check_fits (EcfsChainCheck *self);
/** NULL is accepted. */
void ecfs_chain_check_free (EcfsChainCheck *self);

/**
 * Looks for the chain in the footers of the object's stripes, at two endpoints at once. @params: of a reader, with
 * keys; what they point to must stay until @found was called: once, from any thread, with a chain for
 * g_byte_array_unref () or with NULL; it must not block. False: there is nobody to ask, and nothing is called.
 */
bool ecfs_chain_seek (const EcfsReaderParams *params, void (*found) (void *user, GByteArray *chain), void *user);
/** The same, and waits. NULL: it was not found. Not from callbacks. */
GByteArray *ecfs_chain_seek_wait (const EcfsReaderParams *params);

#endif
