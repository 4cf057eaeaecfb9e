/*
 * Marks: moments with a name, of which all that the archive had is kept until the mark is removed. What is removed
 * behind one waits as ECFS_DELETION_MARKED. Durability, threads and errors are as in catalog.h.
 */
#ifndef ECFS_CATALOG_MARKS_H
#define ECFS_CATALOG_MARKS_H

#include "catalog/work.h"

#define ECFS_MARK_MAX 64 /* bytes of a name */

typedef struct EcfsMark {
    char name[ECFS_MARK_MAX + 1];
    uint32_t epoch;
    uint64_t sequence; /* the archive was as this record and all before it tell */
    int64_t time_ns;   /* since 1970 */
} EcfsMark;

/** Whether it may be one's name: letters, digits and "._-", not beginning with one of these or being a moment; EINVAL.
 */
bool ecfs_mark_check (const char *name, GError **error);
/** Durable: as of now. EEXIST. */
bool ecfs_catalog_mark_add (EcfsCatalog *self, const char *name, GError **error);
/** Durable. ENOENT. */
bool ecfs_catalog_mark_remove (EcfsCatalog *self, const char *name, GError **error);
/** All, the oldest first. GArray of EcfsMark. */
GArray *ecfs_catalog_marks (EcfsCatalog *self, GError **error);
/** ENOENT. */
bool ecfs_catalog_mark_find (EcfsCatalog *self, const char *name, EcfsMark *ret_mark, GError **error);
/** Of stripes that only what is kept for it has, maybe with other marks. */
bool ecfs_catalog_mark_bytes (EcfsCatalog *self, const EcfsMark *mark, uint64_t *ret_bytes, GError **error);
/** How many were removed since it was opened. Thread-safe. */
unsigned ecfs_catalog_marks_removed (EcfsCatalog *self);
/** Some of the stripes behind *after, which moves on from 0, wait as others do if no mark needs them any more.
 * *ret_more: it is to be called again. */
bool ecfs_catalog_marks_settle (EcfsCatalog *self, int64_t *after, bool *ret_more, GError **error);

#endif
