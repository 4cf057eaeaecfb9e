/* The tables, and how older ones become those of today. */
#ifndef ECFS_CATALOG_SCHEMA_H
#define ECFS_CATALOG_SCHEMA_H

#include "catalog/sqlite.h"

/** Makes the tables of the current version in an empty database, or brings an older one there. */
bool ecfs_schema_migrate (sqlite3 *db, const char *path, GError **error);
/** Whether @db is a catalog of a version that this program can read; sets *ret_version. */
bool ecfs_schema_check (sqlite3 *db, const char *path, int *ret_version, GError **error);

#endif
