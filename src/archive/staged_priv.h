/*
 * What the parts of staged.h share: staged.c (table, changes, life cycle), staged_flow.c (durable, commit, backfill,
 * retry, wait), staged_open.c (opening and copying up), staged_recover.c (what an earlier mount left).
 *
 * One staged file, the fields that say where it is:
 *   opening                        being copied up; writers queue in `openers`, readers still take committed content
 *   generation                     moved by every change; the following name generations:
 *   committed_generation           what the catalog's content is; equal to `generation`: clean
 *   durable_generation             what is on the local disk with its row QUEUED
 *   attempt, attempt_generation    what a commit or backfill under way reads
 *   publishing                     the attempt was told that nothing moved: the row is about to be settled, so nobody
 *                                  else writes it until the attempt has ended
 *   row_state                      OPEN, QUEUED, STORED as in the catalog, or NONE: no row, the file equals committed
 *                                  content and is thrown away after a crash (its name is copy.INO.SERIAL, else the row)
 * step_locked () looks at these after every event and starts what is due next.
 */
#ifndef ECFS_ARCHIVE_STAGED_PRIV_H
#define ECFS_ARCHIVE_STAGED_PRIV_H

#include "archive/commit.h"
#include "archive/staged.h"
#include "util/lock.h"

#include <stdatomic.h>

#define ECFS_STAGED_COPY_PREFIX "copy."
#define ECFS_ROW_NONE           (-1) /* beside EcfsStagingState */

typedef enum EcfsAttempt {
    ECFS_ATTEMPT_NONE,
    ECFS_ATTEMPT_COMMIT,
    ECFS_ATTEMPT_BACKFILL,
} EcfsAttempt;

/* A caller to be answered: with error, or NULL. */
typedef struct EcfsAnswer {
    uint64_t want;       /* the generation it is about */
    int64_t deadline_us; /* monotonic; of flushes */
    GError *error;       /* owned */
    EcfsStagedDone done;
    void *user;
} EcfsAnswer;

/* One ecfs_staged_wait (), shared by the files that it still waits for. */
typedef struct EcfsWait {
    unsigned n_pending;
    bool full;
    EcfsAnswer *answer;
} EcfsWait;

typedef struct EcfsWaitEntry {
    EcfsWait *wait;
    uint64_t want;
} EcfsWaitEntry;

typedef struct EcfsOpener {
    bool truncate;
    void (*done) (void *user, EcfsStaged *staged, const GError *error);
    void *user;
} EcfsOpener;

struct EcfsStaged {
    EcfsMutex row_lock;     /* outer to table->lock; held over changes of row and file name, with their catalog calls */
    EcfsStagedTable *table; /* immutable */
    uint64_t ino;           /* immutable */
    atomic_uint n_refs;
    int fd; /* immutable once opening is over */

    /* Written with both locks held, read with either. */
    int64_t row; /* 0: none */
    char *name;  /* in the staging directory */
    int row_state;
    bool name_durable; /* guarded by row_lock */

    /* Guarded by table->lock. */
    bool opening;
    bool unlinked; /* has no name left: nothing is committed any more */
    bool dropped;  /* nobody can reach it any more */
    bool full;     /* the committed content is stored in full */
    bool publishing;
    bool durable_running;
    bool durable_failed; /* not tried again before the next change */
    bool finishing;
    bool gave_up; /* an attempt failed while stopping, or a writer had not flushed */
    bool in_table;
    unsigned n_writers;
    unsigned n_changing; /* changes begun and not ended */
    unsigned n_failures; /* in a row */
    uint64_t size;
    int64_t mtime_ns;
    int64_t ctime_ns; /* the latest that anybody was shown */
    uint64_t generation;
    uint64_t committed_generation;
    uint64_t durable_generation;
    uint64_t new_bytes; /* since the last commit */
    uint64_t committed_bytes;
    uint64_t charged_bytes; /* part of table->staged_bytes */
    EcfsAttempt attempt;
    uint64_t attempt_generation;
    uint64_t attempt_new_bytes;
    uint64_t attempt_size;
    int64_t attempt_mtime_ns;
    int64_t retry_us; /* monotonic; nothing behind is begun before */
    char *failure;    /* why the last attempt failed; NULL */
    GQueue openers;   /* of EcfsOpener */
    GQueue flushes;   /* of EcfsAnswer: want their generation committed */
    GQueue durables;  /* of EcfsAnswer: answered once their generation is durable */
    GSList *waits;    /* of EcfsWaitEntry */
};

struct EcfsStagedTable {
    EcfsMutex lock;
    EcfsCond timer_wake;
    EcfsCond progress;    /* something ended; for stop */
    EcfsArchive *archive; /* immutable */
    int dir_fd;           /* immutable: the staging directory */
    atomic_uint n_files;
    atomic_uint n_withdrawn; /* moves before the file can no longer be found */
    atomic_uint serial;      /* for names of copies */

    /* Guarded by lock. */
    GHashTable *files;    /* &ino → EcfsStaged, a reference each */
    EcfsWorkers *workers; /* local work only; NULL once stopped */
    EcfsWorkers *copiers; /* copying up: waits for endpoints */
    pthread_t timer;
    int64_t wake_us; /* when the timer looks next */
    bool stopping;
    bool stopped;
    uint64_t staged_bytes;
    uint64_t free_bytes; /* of the disk, at free_us, less what was begun since */
    int64_t free_us;
};

/* staged.c */
EcfsStaged *ecfs_staged_alloc (EcfsStagedTable *table, uint64_t ino);
void ecfs_staged_insert_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
void ecfs_staged_withdraw_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
void ecfs_staged_charge_locked (EcfsStagedTable *table, EcfsStaged *self, uint64_t bytes) ECFS_REQUIRES (table->lock);
char *ecfs_staged_row_name (int64_t row);
/** A change begins in a file without row or with a STORED one: a row OPEN again. */
bool ecfs_staged_reopen_row (EcfsStaged *self, GError **error) ECFS_REQUIRES (self->row_lock);
int64_t ecfs_staged_now_ns (void); /* real time */

/* staged_flow.c */
EcfsAnswer *ecfs_answer_new (EcfsStagedDone done, void *user);
/** Answers and frees all; no lock may be held. */
void ecfs_answer_all (GQueue *answers);
void ecfs_staged_step_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** Moves who waits for this file to @answers, with @error (NULL: the file has no name any more, all is well). */
void ecfs_staged_give_up_locked (EcfsStagedTable *table, EcfsStaged *self, const GError *error, GQueue *answers)
    ECFS_REQUIRES (table->lock);
/** Removes a file that nobody needs from table, staging area and catalog. */
void ecfs_staged_finish (EcfsStaged *self);
void ecfs_staged_schedule_locked (EcfsStagedTable *table, int64_t at_us) ECFS_REQUIRES (table->lock);
void *ecfs_staged_timer (void *table);

/* staged_recover.c */
/** Opens a directory of the archive, made when absent; -1 and an error. */
int ecfs_staged_open_dir (EcfsArchive *archive, const char *name, GError **error);
bool ecfs_staged_recover (EcfsStagedTable *table, GError **error);

/* staged_verify.c */
/** Whether @fd holds the committed content of the inode, byte for byte; otherwise the error says why not. */
bool ecfs_staged_verify (EcfsCatalog *catalog, uint64_t ino, int fd, GError **error);

#endif
