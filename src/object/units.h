/*
 * Digests of an object that is stored under a key, for who reads it without the key of its tags: with them he checks
 * what he reads, and as they are no key he can make nothing that passes. Who stored the object, or can verify its tags,
 * makes them.
 *
 * The object is cut into units of some whole segments, the last may be shorter. A unit has n + 1 digests, SHA-256 all:
 * of its content as it was coded, that is enciphered; then of its packets in each of the n stripes, without tags. The
 * first tells whether what was decoded is what was stored, and the others tell who returned something else.
 *
 * Not thread-safe while digests are added; what only reads may be called by several threads.
 */
#ifndef ECFS_OBJECT_UNITS_H
#define ECFS_OBJECT_UNITS_H

#include "object/reader.h"
#include "util/sha256.h"

typedef struct EcfsUnits {
    const EcfsCodec *codec; /* borrowed */
    EcfsLayout layout;
    uint32_t n_segments; /* in each unit but the last */
    GByteArray *digests; /* of one unit after the other */
} EcfsUnits;

/**
 * Segments in each unit of an object of a file of @file_bytes: 16 MiB of content, and more, up to ECFS_SEGMENT_MAX,
 * where the digests of the file would take more than 4 MiB.
 */
uint32_t ecfs_units_segments (const EcfsCodec *codec, const EcfsLayout *layout, uint64_t file_bytes);

/** Without digests yet. EBADMSG: a unit of so many segments is none, or takes more than ECFS_SEGMENT_MAX, or
 * blocks are smaller than their tags. */
EcfsUnits *ecfs_units_new (const EcfsCodec *codec, const EcfsLayout *layout, uint32_t n_segments, GError **error);
void ecfs_units_free (EcfsUnits *self); /* NULL is accepted */
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsUnits, ecfs_units_free)

/** How many the object has, whether or not their digests are there. */
uint64_t ecfs_units_count (const EcfsUnits *self);
/** Which has the byte of content at @offset. */
uint64_t ecfs_units_at (const EcfsUnits *self, uint64_t offset);
/** Where the content of a unit begins, and how much it is. */
uint64_t ecfs_units_offset (const EcfsUnits *self, uint64_t unit);
uint32_t ecfs_units_bytes (const EcfsUnits *self, uint64_t unit);

/** Bytes of the digests of one unit. */
size_t ecfs_units_digest_bytes (const EcfsUnits *self);
/** Those of a unit that has them; borrowed until more are added. */
const uint8_t *ecfs_units_digests (const EcfsUnits *self, uint64_t unit);
/** Those of the next unit, copied. */
void ecfs_units_add (EcfsUnits *self, const uint8_t *digests);

/* Fills @to with content from byte @offset of the object on, in the clear. Blocks. */
typedef bool (*EcfsUnitsRead) (void *user, uint64_t offset, size_t size, uint8_t *to, GError **error);

/**
 * Makes the digests of all units, in memory of a segment's packets: reads the content, enciphers it under @key as it
 * was, and codes it. What @read gives is taken for true. Blocks.
 */
bool ecfs_units_make (EcfsUnits *self, const uint8_t key[ECFS_KEY_BYTES], EcfsUnitsRead read, void *user,
                      GError **error);

/** Whether @bytes, the enciphered content of a unit, are what was stored. */
bool ecfs_units_fits (const EcfsUnits *self, uint64_t unit, const uint8_t *bytes);

/**
 * Reads the content of a unit, enciphered, into @to (ecfs_units_bytes ()), from stripes of @params that are compared
 * with their digests first. All at endpoints that answer are, and those that differ are flagged in @ret_lies (n flags,
 * which stay where they are set), also where it fails. EIO: with what is left the unit cannot be decoded, and whose
 * fault that is; EBADMSG: the digests contradict each other. Blocks.
 */
bool ecfs_units_read (const EcfsUnits *self, const EcfsReaderParams *params, uint64_t unit, uint8_t *to, bool *ret_lies,
                      GError **error);

#endif
