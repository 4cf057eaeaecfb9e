/*
 * What the catalog keeps of its journal: the records that are still needed (journal.h says what is in them), how much
 * each endpoint has, the snapshots that are stored, and the settings that the journal tells. Durability, threads and
 * errors are as in catalog.h.
 */
#ifndef ECFS_CATALOG_JOURNAL_ROWS_H
#define ECFS_CATALOG_JOURNAL_ROWS_H

#include "util/error.h"

#include <stdint.h>

typedef struct EcfsCatalog EcfsCatalog;

/* Records */

/* One record of the journal, for journal.h. */
typedef struct EcfsJournalRow {
    uint64_t sequence;
    int64_t time_ns;
    GByteArray *record; /* owned */
} EcfsJournalRow;

void ecfs_journal_row_free (EcfsJournalRow *row);

/** Up to @max records with sequences above @after, in order; GPtrArray of EcfsJournalRow with free function. */
GPtrArray *ecfs_catalog_journal (EcfsCatalog *self, uint64_t after, size_t max, GError **error);

/** Bytes of the records above @after. */
bool ecfs_catalog_journal_bytes (EcfsCatalog *self, uint64_t after, uint64_t *ret_bytes, GError **error);
/**
 * Forgets records up to @sequence, which are on endpoints and in a snapshot; a few at a time: *ret_more. The newest
 * stays: an endpoint that comes back says with it that it is up to date.
 */
bool ecfs_catalog_journal_drop (EcfsCatalog *self, uint64_t sequence, bool *ret_more, GError **error);

/** A record that changes nothing, so that what is stored from now on has a number of its own. */
bool ecfs_catalog_advance (EcfsCatalog *self, GError **error);

/* Places */

/* How much of the journal an endpoint has: every record up to @sequence, or a snapshot that contains it. */
typedef struct EcfsJournalPlace {
    int64_t endpoint; /* row id */
    uint64_t sequence;
    int64_t time_ns; /* of that record */
} EcfsJournalPlace;

/** GArray of EcfsJournalPlace; endpoints that have nothing are absent. */
GArray *ecfs_catalog_journal_places (EcfsCatalog *self, GError **error);
/** Notes it; never back. */
bool ecfs_catalog_journal_stored (EcfsCatalog *self, const EcfsJournalPlace *place, GError **error);
/** The endpoint has only that much, or what it has behind that is in nobody's archive. */
bool ecfs_catalog_journal_set_back (EcfsCatalog *self, const EcfsJournalPlace *place, GError **error);

/* Snapshots */

/* A snapshot that endpoints have in full. */
typedef struct EcfsSnapshotRow {
    uint32_t epoch;
    uint64_t sequence; /* the last that it contains */
    int64_t time_ns;   /* when it was taken */
    uint64_t bytes;    /* of its records */
    uint32_t n_copies; /* endpoints that have it; 0: an earlier ecfs did not note that */
} EcfsSnapshotRow;

/** GArray of EcfsSnapshotRow, newest first. */
GArray *ecfs_catalog_snapshots (EcfsCatalog *self, GError **error);
/** The newest of @snapshots (newest first) behind @since_ns that has less than a quarter of what the one before it had:
 * most names have gone between the two. Packing alone takes less. NULL: there is none; else the one before it follows.
 */
const EcfsSnapshotRow *ecfs_snapshots_shrunk (const GArray *snapshots, int64_t since_ns);
/** Durable: one more; but for the @keep newest those are forgotten that nobody needs who wants to know how it was at
 * any time behind @since_ns, or of a mark. */
bool ecfs_catalog_snapshot_add (EcfsCatalog *self, const EcfsSnapshotRow *row, guint keep, int64_t since_ns,
                                GError **error);

/**
 * What a catalog contains, as records of a journal that make it from nothing: given to @take one after the other, in an
 * order in which they can be applied. All of one moment, whose sequence is *ret_sequence before the first. Holds the
 * catalog for as long as it takes: it is to be one that was opened READONLY for this.
 */
bool ecfs_catalog_dump (EcfsCatalog *self, bool (*take) (void *user, const GByteArray *record, GError **error),
                        void *user, uint64_t *ret_sequence, GError **error);

/* Settings */

/** Keeps a setting of the archive for whoever has only the journal; nothing happens when it is kept already. */
bool ecfs_catalog_keep_setting (EcfsCatalog *self, const char *key, const char *value, GError **error);
/** Calls @each with every setting that is kept. */
bool ecfs_catalog_settings (EcfsCatalog *self, void (*each) (void *user, const char *key, const char *value),
                            void *user, GError **error);

#endif
