/*
 * What the archive has used of each endpoint in this calendar month (UTC), where ecfs.conf has limits or prices of it.
 * All processes that have the archive open add to ARCHIVE/month what they sent, every few seconds while they send
 * anything; a crash loses no more. With the first look in another month all begins at 0.
 *
 * Thread-safe.
 */
#ifndef ECFS_ARCHIVE_MONTH_H
#define ECFS_ARCHIVE_MONTH_H

#include "archive/archive.h"

#include <stdatomic.h>

#define ECFS_MONTH_NAME         "month" /* in the archive directory */
#define ECFS_MONTH_LOCK_NAME    "month.lock"
#define ECFS_MONTH_DAMAGED_NAME "month.damaged" /* what the first was when it made no sense */

typedef struct EcfsMonthBook EcfsMonthBook;

/** @endpoints: of the archive in @directory, by position, of which there may be more later; all is borrowed. */
EcfsMonthBook *ecfs_month_book_new (const char *directory, const EcfsArchiveEndpoint *endpoints,
                                    const atomic_size_t *n_endpoints);
/** Adds what is left. NULL is accepted. */
void ecfs_month_book_free (EcfsMonthBook *self);

/** Reads what was used, and adds to it from then on, where an endpoint has limits or prices; before the endpoints are
 * asked anything, and after one was added. */
void ecfs_month_book_begin (EcfsMonthBook *self);

/** Adds once, as of @now_s (since 1970). A file that makes no sense is put aside, and begun anew with what is known
 * here, which ecfs_month_trouble () tells as long as the other one is there. EBUSY: another process has the lock for
 * seconds; what was sent is kept in memory. */
bool ecfs_month_book_add (EcfsMonthBook *self, int64_t now_s, GError **error);

/** "2026-11"; g_free (). */
char *ecfs_month_text (int64_t now_s);

/** Why the last look failed; g_free (). NULL: it did not. */
char *ecfs_month_trouble (EcfsMonthBook *self);

#endif
