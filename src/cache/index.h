/*
 * What a cache knows of its cells: how large, when used last, whether pinned. In index.sqlite of its directory, shared
 * by processes. One thread at a time. What a crash leaves is consistent; where the file is damaged, it is begun anew,
 * and all cells go.
 */
#ifndef ECFS_CACHE_INDEX_H
#define ECFS_CACHE_INDEX_H

#include "cache/cache.h"

typedef struct EcfsCacheIndex EcfsCacheIndex;

/** Makes what is absent. *ret_anew: it was damaged. */
EcfsCacheIndex *ecfs_cache_index_open (const char *directory, bool *ret_anew, GError **error);
/** NULL is accepted. */
void ecfs_cache_index_close (EcfsCacheIndex *self);
/** Of a cache whose index is damaged: removes it and all cells. */
void ecfs_cache_index_discard (const char *directory);

/* One transaction, before which others wait. */
bool ecfs_cache_index_begin (EcfsCacheIndex *self, GError **error);
/** Ends it; where @good is false, as if it had not been. */
bool ecfs_cache_index_end (EcfsCacheIndex *self, bool good, GError **error);

/** A cell is about to be written to, or was: it takes so much, or as much as it did if that is more and @at_least. */
bool ecfs_cache_index_set (EcfsCacheIndex *self, const EcfsCacheCell *cell, uint64_t bytes, bool at_least,
                           int64_t used_us, GError **error);
bool ecfs_cache_index_touch (EcfsCacheIndex *self, const EcfsCacheCell *cell, int64_t used_us, GError **error);
bool ecfs_cache_index_pin (EcfsCacheIndex *self, const EcfsCacheCell *cell, int64_t stamp, GError **error);
bool ecfs_cache_index_unpin (EcfsCacheIndex *self, int64_t stamp, GError **error);
bool ecfs_cache_index_remove (EcfsCacheIndex *self, const EcfsCacheCell *cell, GError **error);
/** *ret_has: whether it is in the index. */
bool ecfs_cache_index_has (EcfsCacheIndex *self, const EcfsCacheCell *cell, bool *ret_has, GError **error);

typedef struct EcfsCacheRow {
    EcfsCacheCell cell;
    uint64_t bytes;
} EcfsCacheRow;

/** Up to @max cells that were not used for longest and are not pinned; GArray of EcfsCacheRow, as the next two. */
GArray *ecfs_cache_index_oldest (EcfsCacheIndex *self, unsigned max, GError **error);
/** Those of an object. */
GArray *ecfs_cache_index_of_object (EcfsCacheIndex *self, const EcfsUuid *object, GError **error);
/** Up to @max behind *after, pinned ones too; in order. */
GArray *ecfs_cache_index_next (EcfsCacheIndex *self, const EcfsCacheCell *after, unsigned max, GError **error);

bool ecfs_cache_index_totals (EcfsCacheIndex *self, uint64_t *ret_bytes, uint64_t *ret_pinned, uint64_t *ret_n,
                              GError **error);

/** When files were last compared with the index, in µs since 1970, and in which boot of this machine. */
bool ecfs_cache_index_swept (EcfsCacheIndex *self, int64_t *ret_us, bool *ret_this_boot, GError **error);
bool ecfs_cache_index_set_swept (EcfsCacheIndex *self, int64_t us, GError **error);

#endif
