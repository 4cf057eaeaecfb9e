/*
 * What only the past has, as far as it is looked after (catalog/past.h): what history keeps, what a mass deletion took,
 * and what marks need. Thread-safe.
 */
#ifndef ECFS_ARCHIVE_PAST_H
#define ECFS_ARCHIVE_PAST_H

#include "archive/archive.h"
#include "catalog/past.h"

/** Up to when, by the catalog's age, what was removed is not looked after any more, unless a mark needs it. */
bool ecfs_archive_past_until (EcfsArchive *self, int64_t *ret_age_ns, GError **error);
/** Up to @max objects behind @after (0: the first; else the id of the last). GPtrArray of EcfsObjectRow with free
 * function. */
GPtrArray *ecfs_archive_past_objects (EcfsArchive *self, int64_t after, size_t max, GError **error);
/** Whether an object goes with an endpoint (row id) that cannot be read: what others have does not suffice, and nothing
 * can be rebuilt from it. */
bool ecfs_archive_past_is_lost (EcfsArchive *self, const EcfsObjectRow *object, int64_t endpoint);

#endif
