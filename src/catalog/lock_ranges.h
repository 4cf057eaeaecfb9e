/*
 * What one owner has locked of one file: ranges of bytes, each shared or exclusive, as fcntl(2) splits and joins them.
 * A GArray of EcfsLockRange in ascending order; ranges do not overlap, and those side by side differ in kind. Pure: the
 * caller serialises.
 */
#ifndef ECFS_CATALOG_LOCK_RANGES_H
#define ECFS_CATALOG_LOCK_RANGES_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define ECFS_LOCK_END INT64_MAX /* the last byte that a file may have */

typedef enum EcfsLockType { ECFS_LOCK_NONE, ECFS_LOCK_SHARED, ECFS_LOCK_EXCLUSIVE } EcfsLockType;

typedef struct EcfsLockRange {
    int64_t first;
    int64_t last; /* is in it; at least first */
    bool exclusive;
} EcfsLockRange;

GArray *ecfs_lock_ranges_new (void);
GArray *ecfs_lock_ranges_copy (const GArray *self);

/** From @first to @last it is @type now, whatever it was. */
void ecfs_lock_ranges_set (GArray *self, int64_t first, int64_t last, EcfsLockType type);
/** From @first to @last it is @type at least: what was exclusive stays so. */
void ecfs_lock_ranges_raise (GArray *self, int64_t first, int64_t last, EcfsLockType type);

bool ecfs_lock_ranges_equal (const GArray *a, const GArray *b);
/** The first range that keeps another owner from locking @first to @last; NULL: none does. Lent until the next change.
 */
const EcfsLockRange *ecfs_lock_ranges_find (const GArray *self, int64_t first, int64_t last, bool exclusive);
/** Whether a byte that is exclusive in @self is not in @other. */
bool ecfs_lock_ranges_loses (const GArray *self, const GArray *other);

#endif
