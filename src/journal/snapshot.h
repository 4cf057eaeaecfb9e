/*
 * Snapshots: all that the catalog contains, as records of a journal, in parts that any program reads which can read
 * segments. Each part goes to all endpoints up to 8; with more, to 8, or to as many as may vanish and one more. One is
 * taken when the records, or the segments, that a recovery would have to read behind the last have become many, and
 * when endpoints have lost what they had of the journal. It takes the place of records in the catalog, and of older
 * segments and snapshots on the endpoints, of which the newest two stay.
 *
 * Life cycle: new () → look (), again and again → end () → free (), before the endpoints are stopped. One thread.
 */
#ifndef ECFS_JOURNAL_SNAPSHOT_H
#define ECFS_JOURNAL_SNAPSHOT_H

#include "archive/lineage.h"

#include <stdatomic.h>

typedef struct EcfsSnapshots EcfsSnapshots;

/* How often it is looked whether one is due, and what endpoints have of the journal; for tests to change. */
extern _Atomic int64_t ecfs_snapshot_look_us, ecfs_snapshot_retry_us, ecfs_snapshot_watch_us;

EcfsSnapshots *ecfs_snapshots_new (EcfsArchive *archive, EcfsLineage *lineage);
/** Gives up one that is under way. NULL is accepted. */
void ecfs_snapshots_free (EcfsSnapshots *self);

/** Begins one when it is time, and tidies up behind one that has ended. @n_stored: segments, by this process so far. */
void ecfs_snapshots_look (EcfsSnapshots *self, uint64_t n_stored);

/** Has the next look () not wait for its minute, unless the last snapshot failed. */
void ecfs_snapshots_hurry (EcfsSnapshots *self);

/**
 * The last look: archives that are mounted for moments only have no other. One that is due is stored where the catalog
 * is not large and that takes some seconds only, and said where it takes more; one that is under way gets as long.
 */
void ecfs_snapshots_end (EcfsSnapshots *self, uint64_t n_stored);

/** Whether so many segments are many behind a snapshot of @snapshot_bytes. */
bool ecfs_snapshot_due (uint64_t n_segments, uint64_t snapshot_bytes);

/* Catalogs of so many bytes are copied before they are read; for tests to change. */
extern _Atomic uint64_t ecfs_snapshot_copy_bytes;

typedef struct EcfsSnapshotOrder {
    const char *catalog;     /* its path, or where it is in a database */
    const char *directory;   /* that has room for the snapshot; NULL: the catalog's */
    EcfsCatalog *live;       /* the same, where it is open for writing; NULL: nobody writes it */
    const EcfsKeyRing *keys; /* of the archive, which it is sealed under; NULL: it has none */
    uint64_t reserve_bytes;  /* of the disk that has it: so much stays free */
    EcfsEndpoint *const *endpoints;
    size_t n_endpoints;
    int64_t end_us;          /* as of ecfs_now_us (): ETIME as soon as it turns out to take longer; 0: it may */
    const atomic_bool *stop; /* gives up soon after it became true; may be NULL: never */
} EcfsSnapshotOrder;

/**
 * Takes one of a catalog, into a nameless file beside it, and stores that at each endpoint: the catalog is not read any
 * more when the first byte is sent. One that is large, and is written meanwhile, is copied first, if there is room for
 * that: else SQLite's log of it grows until all is read. Blocks; ECANCELED, ETIME. What a failure leaves at endpoints
 * is no snapshot to anybody, and is tidied up later. *ret_failed (may be NULL) is then the index of the endpoint that
 * could not store it, or n_endpoints where that is not the reason.
 */
bool ecfs_snapshot_store (const EcfsSnapshotOrder *order, EcfsSnapshotRow *ret_row, size_t *ret_failed, GError **error);

/** To be called before one is stored: the next snapshot gets a name that no noted one has. One that is stored anew
 * under the name of another would take that away first, which accounts that only grow refuse. By who has the archive
 * open for writing, with the snapshots' lock. */
bool ecfs_snapshot_mark_moment (EcfsArchive *archive, GError **error);

/** One was stored: notes it, tells if it is far smaller than the last, and forgets those before it that nobody needs.
 * By who has the archive open for writing. */
bool ecfs_snapshot_note (EcfsArchive *archive, const EcfsSnapshotRow *row, GError **error);

/** Whether anybody wants to see moments of before: by history or a mark, or as names went in a mass. */
bool ecfs_snapshot_past_is_wanted (EcfsArchive *archive, const GArray *rows);
/** Whether nobody wants what tells the past before the last of these snapshots (newest first). */
bool ecfs_snapshot_past_may_go (EcfsArchive *archive, const GArray *rows);

#endif
