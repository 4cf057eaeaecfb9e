/*
 * The catalog is the database of the namespace (inodes, names, extended attributes, extents), of the objects and where
 * their stripes are, and of work that must survive a crash (intents, staging, deletions). This implementation is
 * SQLite: WAL, synchronous=FULL, foreign keys, STRICT tables, names as BLOBs, migrations by user_version.
 *
 * This header has what opens and closes a catalog, and includes the others, of which each reads alone:
 *
 *   namespace.h      inodes, names, attributes and extended attributes
 *   codes.h          the codes of inodes, and their parameters
 *   content.h        extents, objects and their stripes; publishing
 *   work.h           intents, staging rows, deletions, repairs
 *   endpoints.h      endpoints, the stripes that are there, estimates
 *   journal_rows.h   records of the journal, places that have them, snapshots, settings
 *   sessions.h       openings of the archive
 *   check.h          what cannot be in a catalog, and whether it knows what was found
 *
 * Durability: namespace operations are visible to every later call at once and share a transaction that is committed
 * at most ECFS_CATALOG_GROUP_MS later (group commit). Functions marked *durable* return when their change, and so all
 * changes before it, are on disk; ecfs_catalog_barrier () waits for that alone. A crash leaves a prefix of the
 * operations. When COMMIT fails the changes stay in memory and visible, it is retried each second, and until it
 * succeeds further changes get EROFS with the reason, or ENOSPC where that is a full disk. A durable call whose COMMIT
 * fails returns the same; its change is then among those kept, and may become durable later: what it announced or
 * published must not be undone behind its back. EIO means that even keeping them failed: a critical message said so,
 * and only reopening helps.
 *
 * Journal: every change of the namespace appends one record with the next sequence number to the journal table in the
 * same transaction (journal.h); its segments travel to the endpoints.
 *
 * Threads: all functions may be called from any thread; the catalog serialises them on its own lock, held over SQLite
 * only. Readers in other processes open the same file with ECFS_CATALOG_READONLY and see what is committed. A writer
 * has a thread: open it after fork (2).
 *
 * Errors: ENOENT, EEXIST, ENOTDIR, EISDIR, ENOTEMPTY, EMLINK, ENAMETOOLONG, ENODATA (no such xattr), EINVAL, EROFS as
 * POSIX has them; EBADMSG: the database is damaged (the text says what to do); ENOTSUP: it was made
 * by a later ecfs; ESTALE: a compare-and-set found another state. Bytes in rows are not trusted: sizes, codes and
 * digests are checked.
 */
#ifndef ECFS_CATALOG_CATALOG_H
#define ECFS_CATALOG_CATALOG_H

#include "catalog/check.h"
#include "catalog/codes.h"
#include "catalog/content.h"
#include "catalog/endpoints.h"
#include "catalog/journal_rows.h"
#include "catalog/namespace.h"
#include "catalog/sessions.h"
#include "catalog/work.h"
#include "util/error.h"
#include "util/uuid.h"

#include <stdatomic.h>
#include <stdint.h>

#define ECFS_CATALOG_GROUP_MS 20

/* What to do about a catalog that is damaged: an older copy of it would be taken for what the archive is. */
#define ECFS_CATALOG_ADVICE                                                                                            \
    "'ecfs recover' makes a new one from the endpoints; a backup of it lacks all that was stored since"

typedef struct EcfsCatalog EcfsCatalog;

typedef enum EcfsCatalogFlags {
    ECFS_CATALOG_READONLY = 1 << 0,
    ECFS_CATALOG_ARRIVING = 1 << 1, /* also one in PostgreSQL that nobody may use yet */
    ECFS_CATALOG_MEMBER = 1 << 2,   /* others who say so may have it open for writing, too; of PostgreSQL only */
    ECFS_CATALOG_LEADER = 1 << 3,   /* with MEMBER: EBUSY where another leads, and is alive */
    ECFS_CATALOG_COPY = 1 << 4,     /* by a copy of the directory that has it open: EBUSY as long as that has */
} EcfsCatalogFlags;

/** Makes a new catalog (EEXIST when there is one) with a root directory owned by the caller, mode 0755. @path is a
 * file, or a location in PostgreSQL (pg.h) with the UUID @archive in it. */
bool ecfs_catalog_create (const char *path, const EcfsUuid *archive, GError **error);

/** Opens it, migrating older versions unless read-only. Refuses files on NFS (SQLite's WAL does not work there). In
 * PostgreSQL one process at a time may have it open for writing, unless all are members: EBUSY. */
EcfsCatalog *ecfs_catalog_open (const char *path, unsigned flags, GError **error);

/** Whether others may change it, too, while it is open here. */
bool ecfs_catalog_is_shared (const EcfsCatalog *self);
/** Whether what is done once for the archive, and not in each process that has it open, is for this one to do. One that
 * does not lead may come to do so, in ecfs_catalog_look_around (), and then leads for as long as it is alive. */
bool ecfs_catalog_leads (EcfsCatalog *self);
/** Of one that leads a shared catalog, and cannot do what that asks: another may, and this one not for a minute. */
bool ecfs_catalog_resign (EcfsCatalog *self, GError **error);
/** Whether a shared catalog is in another database than the one that was opened, as after a failover: it may lack what
 * other members have committed. Changes wait until end_doubt (). */
bool ecfs_catalog_is_doubtful (EcfsCatalog *self);
/** @why: what shows that it lacks something, with ESTALE: it is behind; else it is as good as the former. */
void ecfs_catalog_end_doubt (EcfsCatalog *self, const GError *why);
/** To be called every few seconds for a shared catalog: finds out which members are dead, and whether any leads. */
bool ecfs_catalog_look_around (EcfsCatalog *self, GError **error);

/* What who leads says of the journal. */
typedef struct EcfsLeaderAnswer {
    uint64_t stored; /* it is where it has to be up to this record */
    uint64_t tries;  /* to store it */
    char *trouble;   /* why the last came to nothing, g_free (); NULL: it did not */
} EcfsLeaderAnswer;

/** Of a member that does not lead: it wants the journal stored up to @sequence. To be asked again and again. */
bool ecfs_catalog_ask_leader (EcfsCatalog *self, uint64_t sequence, EcfsLeaderAnswer *ret_answer, GError **error);
/** Up to where others want it stored that it is not; 0: all is. */
bool ecfs_catalog_wanted (EcfsCatalog *self, uint64_t *ret_sequence, GError **error);
/** It is stored up to @sequence, or, with @trouble, a try to do that came to nothing. */
bool ecfs_catalog_answer (EcfsCatalog *self, uint64_t sequence, const char *trouble, GError **error);
/** Who else leads, for people; NULL: nobody does, or nobody can tell. g_free () */
char *ecfs_catalog_leader (EcfsCatalog *self);

/** Others find where this process serves peers, "HOST:PORT", until it closes the catalog or is dead; NULL: nowhere.
 * EROFS: it only reads; ENOTSUP: no other process has this catalog. */
bool ecfs_catalog_tell_peer (EcfsCatalog *self, const char *address, GError **error);
/** What those said who are alive as far as is known, this process among them; char *. ENOTSUP likewise. */
GPtrArray *ecfs_catalog_peers (EcfsCatalog *self, GError **error);
/** By which address of this machine the database is reached; NULL: by none. g_free () */
char *ecfs_catalog_own_host (EcfsCatalog *self);

/** From now on every change that would go into the journal fails with EROFS and @reason; the first call counts. */
void ecfs_catalog_refuse (EcfsCatalog *self, const char *reason);

/** Operations wait so long for a database that is away, since it went, and then fail. */
void ecfs_catalog_set_timeout (EcfsCatalog *self, int64_t us);
/** Since when (ecfs_now_us ()) the database is away; 0: it is not. May wait for seconds. */
int64_t ecfs_catalog_away_us (EcfsCatalog *self);
/** Whether this thread does not wait for a database that is away: its operations fail at once. */
void ecfs_catalog_hurry (bool hurries);

/** Why the database is not the one that it was when the catalog was opened: it lacks changes that it had committed, or
 * another process has taken it. Nothing may be deleted or stored elsewhere by what it says. NULL: it is. Lent until
 * close; does not wait. */
const char *ecfs_catalog_behind (const EcfsCatalog *self);
/** Whether that is since another process has taken over what this one had open: nothing more can be done here. */
bool ecfs_catalog_is_taken_over (const EcfsCatalog *self);

/** Changes are taken again after ecfs_catalog_refuse (). */
void ecfs_catalog_allow (EcfsCatalog *self);

/** Puts the content of the catalog @by in the place of that at @path. Nobody has either open but for reading @path, and
 * sees one of the two, whole. */
bool ecfs_catalog_replace (const char *path, const char *by, GError **error);

/* How much of it is copied at once; for tests to change. */
extern _Atomic int ecfs_copy_step_pages;

/** A copy of the catalog as it is at a moment of the call, as the file @path of SQLite, while others go on to use it:
 * they wait for some milliseconds at a time, and no transaction of a file stays open. The copy is not durable. Takes as
 * much room as the catalog. ECANCELED soon after *@stop became true; NULL: it is never given up. Blocks; thread-safe.
 */
bool ecfs_catalog_copy (EcfsCatalog *self, const char *path, const atomic_bool *stop, GError **error);

/** Commits and closes; false when the last COMMIT failed. NULL is accepted. */
bool ecfs_catalog_close (EcfsCatalog *self, GError **error);

/** Durable: everything that this process did before this call is on disk when it returns true. After a failed COMMIT it
 * tries at once. */
bool ecfs_catalog_barrier (EcfsCatalog *self, GError **error);
/**
 * The same of all that can be read now, which in a shared catalog may be what others did a moment ago: before anything
 * is done outside that a crash of the database must not contradict. *ret_sequence (may be NULL): up to which record of
 * the journal that is.
 */
bool ecfs_catalog_harden (EcfsCatalog *self, uint64_t *ret_sequence, GError **error);

const EcfsUuid *ecfs_catalog_archive (const EcfsCatalog *self);
uint32_t ecfs_catalog_epoch (const EcfsCatalog *self);
/** From now on @committed is told, with the catalog's lock, up to which sequence number all is on disk; until the
 * catalog is closed. NULL: nobody is. */
void ecfs_catalog_watch_commits (EcfsCatalog *self, void (*committed) (void *user, uint64_t sequence), void *user);

/** The last sequence number given out; 0 with a warning where it cannot be read. */
uint64_t ecfs_catalog_sequence (EcfsCatalog *self);
/** The same, for who must not take that for one. */
bool ecfs_catalog_sequence_read (EcfsCatalog *self, uint64_t *ret_sequence, GError **error);

/** Why changes are refused now: COMMIT fails, or changes were lost; NULL: they are not. g_free (). */
char *ecfs_catalog_trouble (EcfsCatalog *self);

typedef struct EcfsTotals {
    uint64_t n_inodes;
    uint64_t n_files;
    uint64_t n_objects;
    uint64_t content_bytes; /* sum of object sizes */
    uint64_t stripe_bytes;  /* sum of stripe sizes */
    uint64_t n_staged;      /* staging rows */
    uint64_t n_not_full;    /* objects with fewer stripes than their code has */
    uint64_t n_deletions;   /* stripes waiting for deletion */
    uint64_t journal_records;
    uint64_t n_lost; /* files whose content was deleted or overwritten, one as often as that happened */
} EcfsTotals;

bool ecfs_catalog_totals (EcfsCatalog *self, EcfsTotals *ret_totals, GError **error);

#endif
