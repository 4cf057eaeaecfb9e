/*
 * Whether two catalogs tell of the same archive: one that the journal made, record by record, and one that was made of
 * a snapshot.
 */
#ifndef ECFS_CATALOG_COMPARE_H
#define ECFS_CATALOG_COMPARE_H

#include "util/error.h"

#include <stdbool.h>

/**
 * Compares two catalogs, both closed: names, attributes, what files consist of, objects and where their stripes are,
 * marks, settings. Not what is to be done, or was. *ret_difference: what differs, in words, borrowed for ever; NULL:
 * nothing does. What @path has more of endpoints and of what was deleted is no difference. Blocks.
 */
bool ecfs_catalogs_compare (const char *path, const char *other, const char **ret_difference, GError **error);

#endif
