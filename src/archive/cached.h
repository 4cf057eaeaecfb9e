/*
 * The archive's cache: where it is, what of a file is in it, and how it gets there before anybody reads. Whoever has
 * the archive directory shares it: mounts, and verbs beside them.
 */
#ifndef ECFS_ARCHIVE_CACHED_H
#define ECFS_ARCHIVE_CACHED_H

#include "archive/content.h"
#include "cache/cache.h"

#define ECFS_CACHE_NAME    "cache"
#define ECFS_PIN_ATTRIBUTE "user.ecfs.pin"

/** What is kept of what was read; NULL: nothing (cache_size = 0). As long as the archive. */
EcfsCache *ecfs_archive_cache (const EcfsArchive *self);
/** That of the archive in @directory; NULL: there is none. */
EcfsCache *ecfs_cache_make (const EcfsConfig *config, const char *directory, const EcfsUuid *archive);
/** What an archive without a cache has left of an earlier one, to be dropped; ecfs_cache_free (). NULL: nothing. */
EcfsCache *ecfs_cache_make_former (const EcfsConfig *config, const char *directory, const EcfsUuid *archive);
char *ecfs_cache_place (const EcfsConfig *config, const char *directory); /* as the next */
/** The directory of all caches of archives that are kept where that of this one is; g_free (). */
char *ecfs_archive_cache_place (const EcfsArchive *self);

/** How much of a content's data (not its holes) there is, and how much of that is in the cache now. Blocks for as long
 * as the disk of the cache does. */
bool ecfs_archive_cached_bytes (EcfsArchive *self, EcfsContent *content, uint64_t *ret_data, uint64_t *ret_cached,
                                GError **error);

/** For an archive that another machine writes, and of which @next is to become the catalog. Of which objects the cache
 * may have something that came from stripes which they do not have any more; GArray of EcfsUuid, without what is
 * sealed. NULL: of all, as an endpoint is distrusted since, or that cannot be told. */
GArray *ecfs_archive_cached_replaced (EcfsArchive *self, EcfsCatalog *next);
/** When it has: forgets these. */
void ecfs_archive_forget_replaced (EcfsArchive *self, const GArray *objects);
/** The same by records (EcfsJournalRow) that were applied to the catalog. */
void ecfs_archive_forget_followed (EcfsArchive *self, const GPtrArray *rows);

typedef struct EcfsWarming {
    bool pins;     /* what is in the cache then is kept from going, … */
    int64_t stamp; /* … under this stamp of ecfs_cache_pin () */
    /* Called with what was read since; false: the user wants no more of it. May be NULL. */
    bool (*tick) (void *user, uint64_t bytes);
    void *user;
} EcfsWarming;

/**
 * Reads the committed content of a file, so that it is in the cache. Blocks. *ret_missing: bytes that are not, as there
 * is no room for them. ECANCELED: by tick. ENOTSUP: the archive has no cache.
 */
bool ecfs_archive_warm (EcfsArchive *self, uint64_t ino, const EcfsWarming *warming, uint64_t *ret_missing,
                        GError **error);

/** What a value of ECFS_PIN_ATTRIBUTE says; EINVAL: neither "yes" nor "no". */
bool ecfs_pin_parse (const char *value, size_t size, bool *ret_pins, GError **error);
/** Whether an inode is pinned: by its own attribute, or that of the nearest directory above that has one. */
bool ecfs_archive_is_pinned (EcfsArchive *self, uint64_t ino, bool *ret_pinned, GError **error);

#endif
