/*
 * Codes: which one is chosen for an inode, the parameters of those that objects name, and which are in use. To the
 * catalog a code is a text of 1 to 31 bytes. Durability, threads and errors are as in catalog.h.
 */
#ifndef ECFS_CATALOG_CODES_H
#define ECFS_CATALOG_CODES_H

#include "util/error.h"

#include <stdint.h>

typedef struct EcfsCatalog EcfsCatalog;

/**
 * The code chosen for an inode, NULL: the archive's default. A directory has its own or that of the nearest above it
 * that has one, now; a file the one that its directory had when it was made, unless it was set since.
 */
bool ecfs_catalog_get_code (EcfsCatalog *self, uint64_t ino, char **ret_code, GError **error);
/** @code NULL: a directory has none of its own any more; a file the archive's default. Checked by the caller. */
bool ecfs_catalog_set_code (EcfsCatalog *self, uint64_t ino, const char *code, GError **error);

/**
 * Keeps the parameters (1 to 16512 bytes) of a code that objects name, under the text by which they name it; nothing
 * happens when they are kept already. To be called before the first such object is published.
 */
bool ecfs_catalog_keep_code (EcfsCatalog *self, const char *code, const uint8_t *parameters, size_t size,
                             GError **error);

/** The parameters kept for a code; NULL and ENOENT when there are none. g_bytes_unref (). */
GBytes *ecfs_catalog_code (EcfsCatalog *self, const char *code, GError **error);

/** The codes that objects and directories have, each once; it looks at all objects. */
GPtrArray *ecfs_catalog_codes_in_use (EcfsCatalog *self, GError **error);

/** For each code that directories have, one that has it: GArray of uint64_t, their inodes. */
GArray *ecfs_catalog_directories_with_codes (EcfsCatalog *self, GError **error);

#endif
