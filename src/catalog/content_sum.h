/* A sum over sizes and extents, which shows that a row was changed by nobody. */
#ifndef ECFS_CATALOG_CONTENT_SUM_H
#define ECFS_CATALOG_CONTENT_SUM_H

#include "catalog/db.h"

/** The part of an inode's content_sum that is about its sizes. */
uint64_t ecfs_content_sum_sizes (uint64_t ino, uint64_t committed_size, uint64_t data_bytes);
/** The part that is about one extent; @extent->object is a row. */
uint64_t ecfs_content_sum_extent (uint64_t ino, const EcfsExtent *extent);
struct sqlite3;
/** Makes the aggregate function ecfs_content_sum known to @db; a result code of SQLite. */
int ecfs_content_sum_register (struct sqlite3 *db);

#endif
