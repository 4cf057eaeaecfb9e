/*
 * What the parts of staged.h share.
 *
 * A staged file is a state machine. An event (a change, a flush, an end of something) is noted in its fields, and then
 * step.c takes a step: it finds out what is due now, and begins it, or queues it until it is its turn.
 *
 *   file.c              one staged file in memory; its name, row and descriptor; waking the timer; answers
 *   change.c, open.c    writers come, change bytes and go
 *   flush.c             close, fsync and `ecfs wait` begin to wait
 *   step.c              the step: what is due, and whose turn it is
 *   promise.c           durable on this machine; what a close promised is set aside before it changes
 *   attempt.c           an attempt to store: commit, fill up, settle; what those who wait are answered
 *   stream.c            whether an upload is worth it; storing what is still being written
 *   leave.c, sweep.c    out of staging; rows that stayed
 *   room.c              writers wait for room
 *   table.c, recover.c  begin and end of a mount, and what time brings; what an earlier mount left
 *   directory.h         the staging directory: names, identity.c, verify.c
 *
 * Generations. Every change moves `generation`; the following say which one of them something is about:
 *   committed_generation   what the catalog's content is; equal to `generation`: clean
 *   durable_generation     what is on the local disk with its row QUEUED
 *   promised_generation    what was the answer to a close(2): so many bytes are not to be lost (promise.c)
 *   attempt_generation     what the attempt under way reads
 *
 * The row in the catalog (row_state) is OPEN, QUEUED or STORED; or NONE where there is no row: the file equals
 * committed content and is thrown away after a crash. Its name is copy.INO.SERIAL then, else ROW.INO.
 */
#ifndef ECFS_STAGING_STAGED_PRIV_H
#define ECFS_STAGING_STAGED_PRIV_H

#include "commit/commit.h"
#include "staging/directory.h"
#include "staging/staged.h"
#include "util/lock.h"

#include <stdatomic.h>

#define ECFS_STAGED_PATIENCE 16   /* failures in a row until a common reason is assumed */
#define ECFS_ROW_NONE        (-1) /* beside EcfsStagingState */

/* What is going on with a staged file: one thing at a time. Making durable goes on beside it (EcfsDurability). */
typedef enum EcfsPhase {
    ECFS_PHASE_ABSENT,     /* in no table: not yet, or not any more */
    ECFS_PHASE_OPENING,    /* is copied up: writers queue, readers take committed content. To IDLE or ABSENT */
    ECFS_PHASE_IDLE,       /* nothing. To any of the following */
    ECFS_PHASE_STREAMING,  /* is read along behind its writer, with a feed. To COMMITTING, or IDLE when abandoned */
    ECFS_PHASE_COMMITTING, /* an attempt reads it. To PUBLISHING, or IDLE when it fails or is overtaken */
    ECFS_PHASE_PUBLISHING, /* the attempt was told that nothing moved: the row is its own. To IDLE, TRAILING, ENDING */
    ECFS_PHASE_TRAILING,   /* published with its quorum; the attempt goes on for the rest. To IDLE */
    ECFS_PHASE_ENDING,     /* likewise, but too many trail: the attempt ends here. To IDLE */
    ECFS_PHASE_FILLING,    /* an attempt adds the stripes that are missing. To IDLE */
    ECFS_PHASE_SETTLING,   /* asks the catalog whether what is `kept` is durable now. To IDLE */
    ECFS_PHASE_LEAVING,    /* nobody needs it: is taken out of staging. To ABSENT, or IDLE when somebody came */
} EcfsPhase;

typedef enum EcfsDurability {
    ECFS_DURABILITY_IDLE,
    ECFS_DURABILITY_RUNNING,
    ECFS_DURABILITY_FAILED, /* not tried again before the next change, unless somebody asks */
} EcfsDurability;

/* Where a file waits. The order of the first four is the order in which they get their turn. */
typedef enum EcfsTurn {
    ECFS_TURN_FLUSH,  /* somebody waits in close or fsync; by the order of asking */
    ECFS_TURN_WAITED, /* somebody waits in ecfs_staged_wait (); oldest first, as the next two */
    ECFS_TURN_COMMIT,
    ECFS_TURN_FILL,
    ECFS_TURN_LATER, /* an attempt failed: not before retry_us */
    ECFS_N_TURNS,
    ECFS_TURN_NONE = ECFS_N_TURNS,
} EcfsTurn;

/* A caller to be answered: with error, or NULL. */
typedef struct EcfsWaiter {
    uint64_t want;       /* the generation it is about */
    uint64_t order;      /* of asking */
    int64_t deadline_us; /* monotonic; of flushes */
    bool insists;        /* on `want` being committed: a change that overtakes the attempt is no answer */
    bool forgives;       /* that it is not committed: durable is enough */
    bool closes;         /* what is durable when it is answered is promised */
    GError *error;       /* owned */
    EcfsStagedDone done;
    void *user;
} EcfsWaiter;

/* One ecfs_staged_wait (), shared by the files that it still waits for. */
typedef struct EcfsWait {
    unsigned n_pending;
    unsigned n_failed;
    int64_t begun_us;
    bool full;
    int code;          /* of the first failure */
    GString *failures; /* a line for each of the first; NULL: none yet */
    EcfsWaiter *answer;
} EcfsWait;

typedef struct EcfsWaitEntry {
    EcfsWait *wait;
    uint64_t want;
    bool during; /* an attempt was under way when the wait began: its failure does not count */
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

    /* Written with both locks held, read with either. */
    int64_t row; /* 0: none */
    char *name;  /* in the staging directory */
    int row_state;
    int64_t aside_row; /* of what was promised before, and is being replaced; 0: nothing is set aside */
    char *aside_name;
    bool name_durable;     /* guarded by row_lock */
    atomic_bool cut_short; /* the attempt is to end: nobody needs it any more */
    atomic_bool time_told; /* what is published: its time is the catalog's business */

    /* Guarded by table->lock. */
    EcfsPhase phase;
    EcfsDurability durability;
    int fd;             /* -1: closed; stays while n_fd_uses > 0 */
    unsigned n_fd_uses; /* writers, readers, attempts */
    GList idle;         /* in table->idle while it is open and nobody uses it */
    bool unlinked;      /* has no name left: nothing is committed any more */
    bool dropped;       /* nobody can reach it any more */
    bool full;          /* the committed content is stored in full */
    bool kept;          /* published, but the catalog could not write it down: SETTLING asks until it can */
    bool kept_full;     /* what `full` becomes then */
    bool setting_apart; /* the file is being exchanged: changes wait */
    bool comes_packed;  /* what the last attempt found missing, and no attempt brings */
    bool lingers;       /* it is one of table->lingering */
    bool gave_up;       /* an attempt failed while stopping, or a writer had not flushed */
    bool busy;          /* counted in table->n_busy */
    bool held;          /* an attempt that somebody insists on was overtaken: writers wait for the next one */
    unsigned n_writers;
    unsigned n_changing; /* changes begun and not ended */
    unsigned n_failures; /* in a row */
    uint64_t size;
    int64_t mtime_ns;
    int64_t ctime_ns; /* the latest that anybody was shown */
    uint64_t generation;
    uint64_t committed_generation;
    uint64_t durable_generation;
    uint64_t promised_generation; /* 0: the row promises nothing */
    uint64_t promised_size;
    uint64_t written_bytes;  /* since it was opened or last empty; see stream.c */
    uint64_t uploaded_bytes; /* likewise */
    int64_t rests_since_us;  /* when a last writer left what no attempt has begun to upload; 0: none did */
    uint64_t charged_bytes;  /* part of table->staged_bytes, as the next */
    uint64_t aside_bytes;
    bool attempt_paced;
    bool attempt_joined; /* others: counted in n_joined, not in n_attempts */
    uint64_t attempt_generation;
    uint64_t attempt_bytes;
    int64_t attempt_began_us;
    int64_t attempt_took_us; /* the last one that uploaded */
    int64_t attempt_mtime_ns, attempt_ctime_ns;
    uint64_t attempt_size;
    uint64_t run_bytes;         /* from the beginning on, each written after the one before */
    uint64_t run_ceiling;       /* the lowest byte that changes under way may change; UINT64_MAX: none */
    uint64_t stream_from_bytes; /* no attempt reads along before there are so many */
    int64_t moved_us;           /* when a change ended last */
    EcfsFeed *feed;
    GList stream_link; /* in table->streaming while there is a feed */
    EcfsTurn turn;
    uint64_t turn_key;    /* its place there, ascending */
    GSequenceIter *place; /* NULL: ECFS_TURN_NONE */
    uint64_t order;       /* when it came to be waiting behind; 0: not yet */
    int64_t retry_us;     /* monotonic; nothing behind is begun before */
    char *failure;        /* why the last attempt failed; NULL */
    GQueue openers;       /* of EcfsOpener */
    GQueue flushes;       /* of EcfsWaiter: want their generation committed */
    GQueue durables;      /* of EcfsWaiter: answered once their generation is durable */
    GSList *waits;        /* of EcfsWaitEntry */
};

/* A writer that waits for room, or for an attempt. */
typedef struct EcfsPaused {
    EcfsStaged *staged; /* a reference */
    bool ended;         /* whatever the reason for it was */
    EcfsWaiter *answer;
} EcfsPaused;

/* ecfs_archive_commit (), or what a test puts in its place. */
typedef void (*EcfsStagedStore) (EcfsArchive *archive, const EcfsCommit *commit);

/* Attempts behind of one kind. Failures in a row, of different files, are taken for a common reason. */
typedef struct EcfsRetryPace {
    unsigned n_running;
    unsigned n_failures;
    int64_t not_before_us;
} EcfsRetryPace;

#define ECFS_STAGED_FILL_TRIES 2 /* that may fail while the end of the mount waits for full files */

struct EcfsStagedTable {
    EcfsMutex lock;
    EcfsCond timer_wake;
    EcfsCond progress;     /* something ended; for stop */
    EcfsArchive *archive;  /* immutable */
    int dir_fd;            /* immutable: the staging directory */
    EcfsStagedStore store; /* immutable */
    bool shares_disk;      /* immutable: that of the archive's cache, which can make room */
    atomic_uint n_files;
    atomic_uint n_withdrawn; /* moves before the file can no longer be found */
    atomic_uint serial;      /* for names of copies */
    atomic_uint n_too_large; /* times that a file was not changed in place since it is above rewrite_max */

    /* Guarded by lock. */
    GHashTable *files;              /* &ino → EcfsStaged, a reference each */
    GSequence *turns[ECFS_N_TURNS]; /* of EcfsStaged by turn_key; borrowed */
    GHashTable *flushing;           /* set of EcfsStaged whose flushes have deadlines; borrowed */
    EcfsRetryPace commit_pace, fill_pace;
    unsigned n_attempts;        /* under way, but for those with a feed and … */
    unsigned n_joined;          /* … those that wait for others, without a thread */
    GQueue streaming;           /* of EcfsStaged with a feed; borrowed */
    int64_t stream_patience_us; /* how long a stream waits for its writer; tests change it */
    unsigned n_trailing;        /* attempts */
    unsigned n_busy;            /* files that stop waits for */
    uint64_t last_order;
    GQueue idle;          /* of EcfsStaged: open and not in use, oldest first; borrowed */
    GByteArray *was_out;  /* endpoints by position, when the timer looked last */
    EcfsWorkers *workers; /* local work only; NULL once stopped */
    EcfsWorkers *copiers; /* copying up: waits for endpoints */
    pthread_t timer;
    int64_t wake_us; /* when the timer looks next */
    bool stopping;
    bool filling; /* while stopping: what has its quorum is still brought to full */
    bool stopped;
    uint64_t staged_bytes;
    uint64_t free_bytes; /* of the disk, at free_us, less what was begun since */
    int64_t free_us;
    GQueue paused;         /* of EcfsPaused: writers that wait */
    int64_t room_until_us; /* they wait for room until then; moved by everything that leaves */
    bool out_of_room;      /* nothing left until then: writers fail until something does */
    GPtrArray *lingering;  /* of EcfsStaged, a reference each, that leave together … */
    int64_t leave_us;      /* … then; 0: there are none */
};

/* file.c */
EcfsStaged *ecfs_staged_alloc (EcfsStagedTable *table, uint64_t ino);
void ecfs_staged_insert_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
void ecfs_staged_charge_locked (EcfsStagedTable *table, EcfsStaged *self, uint64_t bytes) ECFS_REQUIRES (table->lock);
/** The timer looks at @at_us, or before. */
void ecfs_staged_schedule_locked (EcfsStagedTable *table, int64_t at_us) ECFS_REQUIRES (table->lock);
int64_t ecfs_staged_now_ns (void); /* real time */
bool ecfs_staged_is_clean (const EcfsStaged *self);
bool ecfs_staged_is_committing (const EcfsStaged *self);
/** Its content is committed, and an attempt stores more stripes of it. */
bool ecfs_staged_is_filling (const EcfsStaged *self);
/** An attempt is under way that somebody relies on. */
bool ecfs_staged_is_storing (const EcfsStaged *self);
/** The row is about to be settled by an attempt: nobody else writes it until that has ended. */
bool ecfs_staged_owns_row_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock);

char *ecfs_staged_copy_name (EcfsStagedTable *table, uint64_t ino);

/** Renames the file; the caller stores the new name, which is taken. */
bool ecfs_staged_rename (EcfsStaged *self, char *name, GError **error) ECFS_REQUIRES (self->row_lock);
/** A change begins in a file without row or with a STORED one: a row OPEN again. */
bool ecfs_staged_reopen_row (EcfsStaged *self, GError **error) ECFS_REQUIRES (self->row_lock);
/** One more user of the open file; -1 and an error (ENOENT: it has left staging). */
int ecfs_staged_hold_fd (EcfsStaged *self, GError **error);
void ecfs_staged_release_fd (EcfsStaged *self);
/** Gives a file that just was created to its first users. */
void ecfs_staged_take_fd_locked (EcfsStagedTable *table, EcfsStaged *self, int fd, unsigned n_uses)
    ECFS_REQUIRES (table->lock);
/** Takes it off the open files that nobody uses, and closes it when it was one. */
void ecfs_staged_close_idle_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** The bytes that the file takes in staging, into *bytes; untouched when it has left. */
void ecfs_staged_count_data (EcfsStaged *self, uint64_t *bytes);
EcfsWaiter *ecfs_answer_new (EcfsStagedDone done, void *user);
/** Answers and frees all; no lock may be held. */
void ecfs_answer_all (GQueue *answers);
void ecfs_answers_move (GQueue *from, GQueue *to, const GError *error);
/** The first error stays. */
void ecfs_answer_take_error (EcfsWaiter *answer, const GError *error);

/* flush.c */
/** Flushes past their deadline are answered once staging is durable. Returns the next deadline. */
int64_t ecfs_staged_expire_flushes_locked (EcfsStagedTable *table, int64_t now_us) ECFS_REQUIRES (table->lock);

/* step.c */
/** Whether nothing more is to be done for stored content: it is full, or who leads sees to what it lacks, as a mount of
 * a shared catalog does not keep for long what others may store anew. */
bool ecfs_staged_is_cared_for_locked (const EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock);
bool ecfs_staged_may_leave_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** Begins or queues what is due of a file; both in one, or first all files and then whose turn it is. */
void ecfs_staged_step_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
void ecfs_staged_line_up_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
void ecfs_staged_dispatch_locked (EcfsStagedTable *table) ECFS_REQUIRES (table->lock);

typedef enum EcfsVerdict {
    ECFS_VERDICT_GOOD,
    ECFS_VERDICT_BAD,  /* it failed for a reason that others may have too */
    ECFS_VERDICT_NONE, /* it was overtaken or cancelled */
} EcfsVerdict;

void ecfs_staged_queues_init (EcfsStagedTable *table);
void ecfs_staged_queues_clear (EcfsStagedTable *table);
/** The first of those that wait for @turn; NULL: none. */
EcfsStaged *ecfs_staged_first_locked (EcfsStagedTable *table, EcfsTurn turn) ECFS_REQUIRES (table->lock);
/** It leaves the table: nothing of it is due any more. */
void ecfs_staged_forget_turn_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** Its commit is published with its quorum. Returns whether it may go on as TRAILING. */
bool ecfs_staged_note_published_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** Its attempt waits for others without a thread, which the next may have. */
void ecfs_staged_note_joined_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** Its attempt, which the phase still names, has ended; it had a feed, or counts in n_attempts or n_joined. */
void ecfs_staged_note_end_locked (EcfsStagedTable *table, EcfsStaged *self, bool streamed, EcfsVerdict verdict)
    ECFS_REQUIRES (table->lock);

/* promise.c */
void ecfs_staged_start_durable_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** Whether a change of the bytes from @offset on, which keeps the first @keep bytes, has to wait for set_apart (). */
bool ecfs_staged_is_promised_locked (EcfsStagedTable *table, const EcfsStaged *self, uint64_t offset, uint64_t keep)
    ECFS_REQUIRES (table->lock);
/** Sets what was promised aside, or waits until others have; whether that is enough is to be asked again. Blocks for a
 * copy of at most rewrite_max bytes on this disk. */
bool ecfs_staged_set_apart (EcfsStaged *self, uint64_t offset, uint64_t keep, GError **error);
/** Something newer is durable, and the row of what is aside is gone for good. */
void ecfs_staged_drop_aside (EcfsStaged *self) ECFS_REQUIRES (self->row_lock);

/* attempt.c */
/** Begins the attempt that the phase names. */
void ecfs_staged_start_attempt_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** Queues it, for the content as it is now; @commit has its kind, and what of a stream is its own. */
void ecfs_staged_queue_commit_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsCommit *commit)
    ECFS_REQUIRES (table->lock);
/** Moves who waits for this file to @answers, with @error (NULL: the file has no name any more, all is well). */
void ecfs_staged_give_up_locked (EcfsStagedTable *table, EcfsStaged *self, const GError *error, GQueue *answers)
    ECFS_REQUIRES (table->lock);
/** The file needs nothing more for this wait, or will not get it now. */
void ecfs_staged_settle_wait (EcfsWait *wait, const GError *error, GQueue *answers);
/** The generation up to which everything was flushed; 0: nothing ever was. */
uint64_t ecfs_staged_flushed_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** The upload goes on behind; who waits in @link of `flushes` is content with what is durable here. */
void ecfs_staged_leave_behind_locked (EcfsStagedTable *table, EcfsStaged *self, GList *link)
    ECFS_REQUIRES (table->lock);

/* leave.c */
void ecfs_staged_start_leaving_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** Where the catalog is shared, has them leave together whose time has come. Returns when the next do. */
int64_t ecfs_staged_end_lingering_locked (EcfsStagedTable *table, int64_t now_us) ECFS_REQUIRES (table->lock);
/** EcfsCommit.publish: some of those leave with the publish of another file, @user. NULL: there are none. */
void *ecfs_staged_leave_along (void *user, const int64_t **ret_rows, size_t *ret_n_rows);
/** Frees what that gave; where their rows are not @gone yet, removes them, which may wait for the catalog. */
void ecfs_staged_left (void *leavers, bool gone);
/** Removes a file that nobody needs from table, staging area and catalog. */
void ecfs_staged_leave (EcfsStaged *self);
void ecfs_staged_withdraw_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);

/* stream.c */
/** Whether a flush commits what is there now, or leaves that to the last release. */
bool ecfs_staged_is_worth_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** A writer has gone: puts off what is not worth an upload yet, if it was the last one. */
void ecfs_staged_rest_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
void ecfs_staged_upload_begins_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** The attempt has read and sent all, whatever became of it. */
void ecfs_staged_uploaded_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** Its content was written and uploaded before. */
void ecfs_staged_copied_up_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** The file has no content: what comes now is all new. */
void ecfs_staged_emptied_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
void ecfs_staged_stream_init (EcfsStagedTable *table);
/** A change of bytes from @offset on begins; it is not in n_changing yet. */
void ecfs_staged_stream_hold_locked (EcfsStagedTable *table, EcfsStaged *self, uint64_t offset)
    ECFS_REQUIRES (table->lock);
/** A change has ended: @n_new_bytes were written, up to @end; 0: it was no write. May begin to read along. */
void ecfs_staged_stream_moved_locked (EcfsStagedTable *table, EcfsStaged *self, uint64_t n_new_bytes, uint64_t end)
    ECFS_REQUIRES (table->lock);
/** What is read along is not going to be committed. */
void ecfs_staged_stream_abandon_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** A commit is due: the STREAM becomes one, or is abandoned. */
void ecfs_staged_stream_finish_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock);
/** The attempt has ended. True: it read along, and came to nothing that concerns anybody. */
bool ecfs_staged_stream_ended_locked (EcfsStagedTable *table, EcfsStaged *self, const EcfsOutcome *outcome)
    ECFS_REQUIRES (table->lock);
/** Abandons those whose writers pause for long. Returns when to look again. */
int64_t ecfs_staged_stream_expire_locked (EcfsStagedTable *table, int64_t now_us) ECFS_REQUIRES (table->lock);

/* room.c */
/* Whether the cache of the archive is, or will be, on the disk of the staging directory. */
bool ecfs_staged_shares_disk (EcfsArchive *archive, int dir_fd);
bool ecfs_staged_check_room_locked (EcfsStagedTable *table, uint64_t size, GError **error) ECFS_REQUIRES (table->lock);
bool ecfs_staged_is_over_locked (EcfsStagedTable *table) ECFS_REQUIRES (table->lock);
/** Bytes have left staging. */
void ecfs_staged_room_made_locked (EcfsStagedTable *table, uint64_t bytes) ECFS_REQUIRES (table->lock);
/** Moves writers that may go on to @answers. Returns when to look again. */
int64_t ecfs_staged_resume_locked (EcfsStagedTable *table, int64_t now_us, GQueue *answers) ECFS_REQUIRES (table->lock);

/* table.c */
/** ecfs_staged_start () with another store. */
bool ecfs_staged_start_with (EcfsArchive *archive, EcfsStagedStore store, GError **error);

/* recover.c */
bool ecfs_staged_recover (EcfsStagedTable *table, GError **error);

#endif
