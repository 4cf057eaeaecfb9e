/* Where an archive's cache is, as ecfs.conf says. */
#include "archive/cached.h"

#define QUEUE_BYTES (32u << 20)
#define QUEUE_PART  4 /* of transfer_memory, at most: a disk that hangs keeps no more from others */
#define KEEP_FREE   2 /* times staging_reserve */

char *ecfs_cache_place (const EcfsConfig *config, const char *directory)
{
    return config->cache != NULL ? g_strdup (config->cache) : g_build_filename (directory, ECFS_CACHE_NAME, NULL);
}

static char *own_directory (const EcfsConfig *config, const char *directory, const EcfsUuid *archive)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (archive, uuid);
    g_autofree char *place = ecfs_cache_place (config, directory);
    return g_build_filename (place, uuid, NULL);
}

EcfsCache *ecfs_cache_make (const EcfsConfig *config, const char *directory, const EcfsUuid *archive)
{
    if (config->cache_size == 0)
        return NULL;
    g_autofree char *own = own_directory (config, directory, archive);
    EcfsCacheParams params = {.directory = own,
                              .max_bytes = config->cache_size,
                              .keep_free_bytes = KEEP_FREE * MIN (config->staging_reserve, UINT64_MAX / KEEP_FREE),
                              .queue_bytes = MIN (QUEUE_BYTES, config->transfer_memory / QUEUE_PART)};
    return ecfs_cache_new (&params);
}

EcfsCache *ecfs_cache_make_former (const EcfsConfig *config, const char *directory, const EcfsUuid *archive)
{
    g_autofree char *own = own_directory (config, directory, archive);
    EcfsCacheParams params = {.directory = own};
    return g_file_test (own, G_FILE_TEST_IS_DIR) ? ecfs_cache_new (&params) : NULL;
}
