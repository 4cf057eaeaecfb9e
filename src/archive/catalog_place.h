/*
 * Where the catalog of an archive directory is: a file in it, or a schema of a database of PostgreSQL that ecfs.conf
 * names (key `catalog`). Then the directory has a small file that says which schema, and who this directory is to
 * those that open it elsewhere.
 */
#ifndef ECFS_ARCHIVE_CATALOG_PLACE_H
#define ECFS_ARCHIVE_CATALOG_PLACE_H

#include "archive/config.h"
#include "util/uuid.h"

#define ECFS_CATALOG_PLACE_NAME "catalog-place"

/** What the catalog is opened by; NULL with @error. g_free (). */
char *ecfs_catalog_place (const char *directory, const EcfsConfig *config, GError **error);
/** Like ecfs_catalog_place () with the ecfs.conf that is there. */
char *ecfs_catalog_place_in (const char *directory, GError **error);
/** Whether the directory has a catalog, or says where in a database it is; nothing is asked there. */
bool ecfs_catalog_place_is_there (const char *directory);
/** Says in a new directory that its catalog is that of @archive, where @config has it in a database; nothing where it
 * has it in a file. One that an interrupted program began stays as it is. */
bool ecfs_catalog_place_make (const char *directory, const EcfsConfig *config, const EcfsUuid *archive, GError **error);
/** Says in a directory with files of another's that it is one of its own. */
bool ecfs_catalog_place_join (const char *directory, const EcfsUuid *archive, GError **error);

#endif
