/*
 * Work that must survive a crash: intents (stripes that may be on their way to endpoints), staging rows (files whose
 * bytes are in the staging area), deletions (stripes that are to vanish) and repairs (stripes that were met damaged).
 * Durability, threads and errors are as in catalog.h.
 */
#ifndef ECFS_CATALOG_WORK_H
#define ECFS_CATALOG_WORK_H

#include "catalog/content.h"

#include <stdint.h>

/* Intents */

/**
 * Durable: writes down which stripes are about to be stored, before their first byte leaves. Gives the object its epoch
 * and sequence (in @object). @object->stripes need index, instance and endpoint only. EAGAIN: one of the endpoints is
 * not active any more; so none has a stripe that was placed there before it was drained and announced after.
 */
bool ecfs_catalog_intent_begin (EcfsCatalog *self, EcfsObjectRow *object, uint64_t ino, int64_t *ret_intent,
                                GError **error);
/** Durable: one more stripe of an intent, for a spare endpoint. */
bool ecfs_catalog_intent_add (EcfsCatalog *self, int64_t intent, const EcfsStripeRow *stripe, GError **error);
/** Gives up: every stripe of the intent goes to the deletion queue, due at once. Nothing happens when it has ended. */
bool ecfs_catalog_intent_abort (EcfsCatalog *self, int64_t intent, GError **error);
/** Aborts all intents of this archive directory: at mount, when nothing is in flight. */
bool ecfs_catalog_intents_abort_all (EcfsCatalog *self, GError **error);
/** Aborts those of other members that are gone (catalog.h); by who leads. */
bool ecfs_catalog_intents_abort_dead (EcfsCatalog *self, GError **error);

/** Durable intent to add stripes to an object that exists already. EAGAIN: it is a log that is open. */
bool ecfs_catalog_intent_more (EcfsCatalog *self, const EcfsObjectRow *object, const EcfsStripeRow *stripes,
                               size_t n_stripes, int64_t *ret_intent, GError **error);

/* Staging */

typedef enum EcfsStagingState {
    ECFS_STAGING_OPEN = 0,   /* being written; not flushed since */
    ECFS_STAGING_QUEUED = 1, /* flushed: is to be committed */
    ECFS_STAGING_STORED = 2, /* committed, kept until its objects are full */
} EcfsStagingState;

typedef struct EcfsStagingRow {
    int64_t id; /* names the file in the staging area */
    uint64_t ino;
    EcfsStagingState state;
    bool fresh; /* the inode never had committed content */
    uint64_t size;
    int64_t since_ns; /* real time of the last change of state */
    char *error;      /* why the last commit failed, or NULL */
} EcfsStagingRow;

void ecfs_staging_row_free (EcfsStagingRow *row);

/** A staging row for an inode that has content already. EBUSY: another member has a row of it. What one that is gone
 * had loses its row; its bytes stay where they are. */
bool ecfs_catalog_staging_add (EcfsCatalog *self, uint64_t ino, int64_t *ret_staging, GError **error);
/**
 * While the state is OPEN or QUEUED the inode shows @size, from QUEUED on also @mtime_ns. What is QUEUED takes the
 * place of older rows of the inode, which go. ENOENT when the row is gone.
 */
bool ecfs_catalog_staging_set (EcfsCatalog *self, int64_t staging, EcfsStagingState state, uint64_t size,
                               int64_t mtime_ns, const char *failure, GError **error);
/** The inode shows its committed size again, unless other bytes of it are staged. Nothing happens when it is gone. */
bool ecfs_catalog_staging_remove (EcfsCatalog *self, int64_t staging, GError **error);
/** The same of @n rows, in few transactions; those that are gone are passed over. */
bool ecfs_catalog_staging_remove_all (EcfsCatalog *self, const int64_t *stagings, size_t n, GError **error);
/** All rows of this archive directory, oldest first; GPtrArray of EcfsStagingRow with free function. */
GPtrArray *ecfs_catalog_staging_list (EcfsCatalog *self, GError **error);
/** Whether content of the inode is staged that is not stored. */
bool ecfs_catalog_is_staged (EcfsCatalog *self, uint64_t ino, bool *ret_staged, GError **error);

/* Deletions */

/* Why a stripe waits, as the database has it. */
typedef enum EcfsDeletionKind {
    ECFS_DELETION_REMOVED = 0,     /* nothing has its object any more: that may be taken back */
    ECFS_DELETION_UNCOMMITTED = 1, /* announced by an intent, and never in an object: its upload may be half done */
    ECFS_DELETION_EXCHANGED = 2,   /* something else has the same content now */
    ECFS_DELETION_DOOMED = 3,      /* its removal may have begun: it counts as gone, and never comes back */
    ECFS_DELETION_MARKED = 4,      /* as REMOVED, and a mark needs it: it is not due */
} EcfsDeletionKind;

typedef struct EcfsDeletion {
    int64_t id;
    int64_t queued_age_ns;
    EcfsUuid object;
    EcfsStripeRow stripe; /* index, instance, endpoint */
    uint64_t sequence;    /* of the journal record that no longer names it */
    EcfsDeletionKind kind;
} EcfsDeletion;

/* How long they wait at least. What is doomed or was never committed is due at once, or after least_ns. */
typedef struct EcfsDeletionWaits {
    int64_t removed_ns;
    int64_t exchanged_ns;
    int64_t released_age_ns;  /* what was removed up to then waits for exchanged_ns only (retention.h); 0: nothing */
    bool marked;              /* also what marks need, as if it were due */
    bool holds;               /* what was removed from … */
    int64_t held_from_age_ns; /* … then on, whatever else says (brake.h) */
    int64_t least_ns;         /* all that is there, however it came to be; 0: at once */
} EcfsDeletionWaits;

/* What waits for its deletion at an endpoint. */
typedef struct EcfsRetained {
    uint64_t n_stripes;
    uint64_t bytes; /* of what was in objects */
} EcfsRetained;

/** What it is at an endpoint (row id), whether its time has come or not. */
bool ecfs_catalog_retained (EcfsCatalog *self, int64_t endpoint, EcfsRetained *ret_retained, GError **error);

/**
 * Up to @max stripes of endpoint @endpoint (row id) that have waited for as long as they have to, in an order that does
 * not change; @after NULL: the first, else those after it, which may be gone itself. GArray of EcfsDeletion. Changes of
 * the time of day do not matter; time in which the machine was off may not count.
 */
GArray *ecfs_catalog_deletions (EcfsCatalog *self, int64_t endpoint, const EcfsDeletionWaits *waits,
                                const EcfsDeletion *after, size_t max, GError **error);
/**
 * Before what was in an object is removed, durably: from then on nothing takes it back. Of @n ids those that were taken
 * back meanwhile become 0.
 */
bool ecfs_catalog_deletions_doom (EcfsCatalog *self, int64_t *deletions, size_t n, GError **error);
/** How old the catalog is now, as deletions wait by it. */
int64_t ecfs_catalog_age_ns (EcfsCatalog *self);
/** To be called now and then while deletions wait: the time that has passed outlives a crash of the machine. */
bool ecfs_catalog_note_age (EcfsCatalog *self, GError **error);
/** The stripes of @n of these ids are gone (or never were): forget them. */
bool ecfs_catalog_deletions_done (EcfsCatalog *self, const int64_t *deletions, size_t n, GError **error);

/* What an archive that has a key has stored otherwise: without it, for who has an endpoint to read, or under one that
 * is retired. */
typedef struct EcfsOpenTotals {
    uint64_t n_objects;
    uint64_t content_bytes;
    uint64_t n_stripes; /* that wait for their deletion, … */
    int64_t newest_ns;  /* … the last of which came so long ago */
} EcfsOpenTotals;

/** Counts what lies open, which reads all objects. */
bool ecfs_catalog_open_totals (EcfsCatalog *self, EcfsOpenTotals *ret_totals, GError **error);
/** Counts what is sealed under another key than @key; reads all objects. */
bool ecfs_catalog_retired_totals (EcfsCatalog *self, const EcfsUuid *key, EcfsOpenTotals *ret_totals, GError **error);

/* Repairs */

#define ECFS_REPAIRS_MAX 10000 /* stripes that are queued; what is found beyond that is for a scrub to find again */

/* A stripe that was met damaged. It leaves the queue with what takes its place, with its object, or when it is back. */
typedef struct EcfsRepairRow {
    int64_t object; /* row id */
    uint16_t index;
    uint64_t instance;
    int64_t endpoint; /* row id */
    bool gone;        /* nothing of it is to be used: its endpoint has no such file, or … */
    bool lies;        /* … its checksums fit, and it is not what was stored; neither: bytes are wrong or too few */
    int64_t found_ns; /* real time */
    char *reason;     /* owned */
} EcfsRepairRow;

/**
 * Queues a stripe, once; of @row all but object, endpoint and time count. Nothing happens when the object does not have
 * this instance any more. *ret_queued: it was not there before. ENOSPC: the queue is full.
 */
bool ecfs_catalog_repair_add (EcfsCatalog *self, const EcfsUuid *object, const EcfsRepairRow *row, bool *ret_queued,
                              GError **error);
/** The stripe is as it was stored after all. Nothing happens when this instance is not queued. */
bool ecfs_catalog_repair_drop (EcfsCatalog *self, const EcfsUuid *object, unsigned index, uint64_t instance,
                               GError **error);
/** GArray of EcfsRepairRow by object and index, with clear function; of one @object, or with 0 of all. */
GArray *ecfs_catalog_repairs (EcfsCatalog *self, int64_t object, GError **error);
/** How many stripes are queued in all. */
bool ecfs_catalog_repairs_count (EcfsCatalog *self, uint64_t *ret_n, GError **error);

#endif
