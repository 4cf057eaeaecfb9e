/*
 * Checking an archive and making it whole: fsck.c checks the catalog and goes over the objects, fsck_presence.c lists
 * what endpoints have, fsck_confirm.c asks for what these lack (both wait in fsck_answers.c), fsck_deep.c chooses what
 * is read, in which order, and keeps what was verified, fsck_packets.c reads it, fsck_remote.c asks endpoints what
 * changed, fsck_prune.c removes what nothing knows (prune.c, or control_prune.c in the mount), fsck_damage.c tells what
 * is wrong and has it repaired: by repair.c in the archive that this process has opened for writing, by
 * control_repair.c in the mount that has; adopt.c takes a good stripe that nothing knows; fsck_crowded.c then has those
 * moved apart whose stripes share more than they need to (crowding.h).
 *
 * Objects are checked in batches, in the order of their UUIDs, which is that of the directories on the endpoints, and
 * what is wrong is spooled; so memory does not grow with the archive. The catalog is asked before the endpoints, and
 * once more before something is told: what was replaced or moved meanwhile is no damage.
 */
#ifndef ECFS_ARCHIVE_FSCK_PRIV_H
#define ECFS_ARCHIVE_FSCK_PRIV_H

#include "verbs/api_priv.h"
#include "archive/archive_priv.h"
#include "commit/commit.h"
#include "archive/crowding.h"
#include "catalog/scrub.h"
#include "catalog/spool.h"

typedef enum EcfsStripeFault {
    ECFS_STRIPE_FINE,
    ECFS_STRIPE_ABSENT,   /* the catalog has none: it never was stored */
    ECFS_STRIPE_GONE,     /* its endpoint has no such file, … */
    ECFS_STRIPE_GIVEN_UP, /* … or is failed, or not in the configuration any more */
    ECFS_STRIPE_SIZE,     /* it has another size */
    ECFS_STRIPE_DAMAGED,  /* it has other bytes */
    ECFS_STRIPE_UNKNOWN,  /* its endpoint does not answer */
    ECFS_STRIPE_FORGED,   /* it has other bytes, with checksums that fit them: nothing of it is to be used */
} EcfsStripeFault;

/* A stripe at an endpoint that is not one of a batch; there may be any number, so they are in the spool but for some.
 */
typedef struct EcfsStranger {
    size_t position; /* of the endpoint */
    EcfsUuid object;
    uint16_t index;
    uint64_t instance;
    uint64_t size;
    int64_t mtime_s; /* 0: the endpoint tells none */
} EcfsStranger;

/* One stripe of a batch. */
typedef struct EcfsCheckedStripe {
    const EcfsObjectRow *object;
    const EcfsStripeRow *stripe;
    size_t position; /* of its endpoint; SIZE_MAX: it has none */
    EcfsStripeFault fault;
    char *text;             /* what was seen; NULL: the fault says it; owned */
    bool is_left_out;       /* it is not to be read */
    char *digest;           /* what its endpoint said of it before it was read; NULL: nothing; owned */
    bool is_unchanged;      /* that was said before, when its packets were verified: they are not read */
    bool is_concluded;      /* it was read; its object is compared before it is settled; its reader's until then */
    atomic_bool is_settled; /* it was read, and what it was found to be stays; fault and text are those of its reader's
                             * until then */
} EcfsCheckedStripe;

typedef struct EcfsCheckBatch {
    EcfsArchive *archive;
    GPtrArray *objects; /* of EcfsObjectRow, by UUID; owned */
    GArray *stripes;    /* of EcfsCheckedStripe, in the order of the objects and their stripes */
    /* Where all objects are checked: for what else there is of objects behind `after` and, but for the last batch, up
     * to those of this one. NULL: just the directories of the objects are listed. */
    EcfsSpool *strangers;
    unsigned n_confirmed; /* strangers that were asked for once more */
    EcfsUuid after;
    EcfsUuid last; /* up to which */
    bool is_first;
    bool is_last; /* there is no object behind `after` */
    /* Calls the progress function; false: it is to end. The caller's thread only. */
    bool (*tick) (void *user);
    void *user;
    const bool *is_late; /* set by a tick: no further stripe is to be read, but those that were begun to their end */
    /* Stripes that are read are compared with what coding the content gives, and this with its SHA-256. */
    bool by_content;
    bool by_parts;    /* also where those that are read do not determine it: then it is read besides */
    GArray *contents; /* of EcfsCheckedContent: what came of it; NULL: the caller does not want to know; owned */
} EcfsCheckBatch;

/* What is to be done about an object whose stripes were compared. */
typedef struct EcfsCheckedContent {
    const EcfsObjectRow *object;
    bool is_new; /* it had no SHA-256, and all of its stripes agree that this is it */
    uint8_t sha256[ECFS_SHA256_SIZE];
    char *problem; /* something is wrong, and no stripe is to blame for certain; NULL: nothing; owned */
    bool *lies;    /* ECFS_CODEC_MAX_N: stripes that are not what was stored, and are not of those that were read; NULL:
                    * there are none; owned */
} EcfsCheckedContent;

/* Requests of a batch that are under way. Each answer is noted with what it says, under the lock. */
typedef struct EcfsAnswers {
    EcfsMutex lock;
    EcfsCond answered;
    unsigned n_pending; /* guarded by lock */
} EcfsAnswers;

void ecfs_answers_init (EcfsAnswers *self);
void ecfs_answers_clear (EcfsAnswers *self);
/** Before the requests are made. */
void ecfs_answers_expect (EcfsAnswers *self, unsigned n);
void ecfs_answers_note_locked (EcfsAnswers *self) ECFS_REQUIRES (self->lock);
/** Until all have come: endpoints have their own deadlines, and who cancels waits for these, too. False: cancelled. */
bool ecfs_answers_await (EcfsAnswers *self, const EcfsCheckBatch *batch);

/** A stripe is there, with so many bytes: as many as it should have? */
void ecfs_checked_size (EcfsCheckedStripe *checked, uint64_t size);
/** All of it was read and fits its checksums, and it is not what was stored. */
void ecfs_checked_forged (EcfsCheckedStripe *checked);
/** Whether it is there cannot be told. */
void ecfs_checked_unknown (EcfsCheckedStripe *checked, const char *why);

/** Finds out which stripes are there, with their size, and spools strangers. False without @error: cancelled. */
bool ecfs_check_presence (EcfsCheckBatch *batch, GError **error);

/** Asks endpoints once more for what is GONE, and for who they are: what is only unreadable is no loss. False:
 * cancelled. */
bool ecfs_check_gone (EcfsCheckBatch *batch);

/** Takes out those of @strangers (of EcfsStranger) that the catalog knows after all, or that are gone. False without
 * @error: cancelled. */
bool ecfs_check_strangers (EcfsCheckBatch *batch, GArray *strangers, GError **error);

/** How fast stripes are read. */
typedef struct EcfsPace {
    EcfsMutex lock;
    uint64_t bytes_per_s; /* 0: no limit; immutable */
    int64_t next_us;      /* when the next piece may be read; guarded by lock */
    uint64_t bytes;       /* read so far; guarded by lock */
} EcfsPace;

/** Reads the stripes that are there and not left out. False: cancelled or late, and not all are settled. */
bool ecfs_check_packets (EcfsCheckBatch *batch, EcfsPace *pace);
/** As if these bytes were read: waits until they may be. False: *cancelled was set. */
bool ecfs_pace_wait (EcfsPace *self, uint64_t bytes, const atomic_bool *cancelled);

/* The content of one object, whose stripes are read side by side (fsck_content.c). */
typedef struct EcfsContentCheckup EcfsContentCheckup;

/** For the stripes batch->stripes[first] on, which are all of one object; NULL: nothing is compared. */
EcfsContentCheckup *ecfs_checkup_new (EcfsCheckBatch *batch, guint first, guint n, EcfsPace *pace,
                                      const atomic_bool *cancelled);
void ecfs_checkup_free (EcfsContentCheckup *self);
size_t ecfs_checkup_bytes (const EcfsContentCheckup *self);
/** Before parts of a stripe of @segment are read: before which segment it has to end, see codeword.h. */
uint64_t ecfs_checkup_await (EcfsContentCheckup *self, const EcfsCheckedStripe *checked, uint64_t segment);
/** A check block, with its tag behind it. */
void ecfs_checkup_take (EcfsContentCheckup *self, const EcfsCheckedStripe *checked, uint64_t segment, uint32_t block,
                        const uint8_t *bytes, uint32_t size);
/** A stripe is read no further; @fine: all of it was, and it was fine. */
void ecfs_checkup_leave (EcfsContentCheckup *self, const EcfsCheckedStripe *checked, bool fine);
/** When all are left: those that are not what was stored become FORGED. May read the object. On error nothing is known.
 */
void ecfs_checkup_end (EcfsContentCheckup *self, EcfsCheckedContent *ret_content);

typedef struct EcfsRemoteHash EcfsRemoteHash;

/* Digests of stripes, made where these are, for endpoints that have a hash tool. */
EcfsRemoteHash *ecfs_remote_hash_new (EcfsArchive *archive);
/** NULL is accepted. */
void ecfs_remote_hash_free (EcfsRemoteHash *self);
/** Asks for the digests of stripes that are to be read. What cannot be told stays NULL. */
void ecfs_remote_hash_ask (EcfsRemoteHash *self, EcfsCheckBatch *batch);
/** Once more, of those that were read and fine: leaves digests only where they are as before. */
void ecfs_remote_hash_ask_again (EcfsRemoteHash *self, EcfsCheckBatch *batch);

/* An object that is to be repaired. */
typedef struct EcfsRepairTask {
    int64_t object;
    EcfsRepairOrder order;
    GArray *spares;             /* of EcfsStripeRow without digests: others that nothing knows; NULL: none; owned */
    const EcfsRepairPace *pace; /* lent until done; NULL: as fast as it goes. Not told to a mount */
    GError *error;              /* why not all of it is whole; owned */
    void *data;                 /* the caller's */
} EcfsRepairTask;

/* All is called on the caller's thread. */
typedef struct EcfsRepairs {
    /* Lent until done. NULL: there is none more, which is asked anew while others are under way. */
    EcfsRepairTask *(*next) (void *user);
    void (*done) (void *user, EcfsRepairTask *task); /* takes it back */
    bool (*tick) (void *user);                       /* false: what is under way is to end */
    unsigned (*most) (void *user);                   /* objects at a time; may be NULL: as many as are good for speed */
    void *user;
} EcfsRepairs;

/** Ends what a task owns. */
void ecfs_repair_task_clear (EcfsRepairTask *task);
/** Gives the object those of its spares that are what it lost, and takes the stripes that they replace out of the
 * order. True: nothing of the order is left. */
bool ecfs_repair_adopt (EcfsArchive *archive, EcfsRepairTask *task, const EcfsRepairs *repairs);
void ecfs_repair_here (EcfsArchive *archive, const EcfsRepairs *repairs);
/** The same through the control socket. False: the mount does not answer; what has not been told is left. */
bool ecfs_repair_mounted (const char *archive_dir, const EcfsRepairs *repairs, GError **error);

/* A stripe of a damaged object. */
typedef struct EcfsFaultyStripe {
    unsigned index;
    EcfsStripeFault fault;
    uint64_t instance; /* 0: the catalog has none */
    size_t position;   /* of its endpoint; SIZE_MAX: it has none */
    bool helps;        /* with it, what is fine would determine the content, and does not without */
    char *text;        /* may be NULL; owned */
} EcfsFaultyStripe;

typedef struct EcfsDamage {
    int64_t object;
    int guarantee;   /* of the stripes that are fine, in endpoints; -1: they do not determine the content */
    unsigned n_lost; /* stripes that are to be stored once more: all that are not UNKNOWN */
    unsigned n_stripes;
    EcfsFaultyStripe stripes[ECFS_CODEC_MAX_N];
} EcfsDamage;

/* What became of it. */
typedef enum EcfsDamageResult {
    ECFS_DAMAGE_FOUND,    /* nothing was tried */
    ECFS_DAMAGE_REPAIRED, /* it has all of its stripes, but for those that are unknown */
    ECFS_DAMAGE_LEFT,
    ECFS_DAMAGE_UNKNOWN, /* there was nothing to try before endpoints answer */
    ECFS_DAMAGE_CHANGED, /* the content was replaced or deleted meanwhile */
} EcfsDamageResult;

/* What became of an object that would be safer with its stripes elsewhere. */
typedef enum EcfsCrowdedResult {
    ECFS_CROWDED_FOUND, /* nothing was tried */
    ECFS_CROWDED_MOVED,
    ECFS_CROWDED_LEFT,
    ECFS_CROWDED_WAITS, /* no better place takes it now */
} EcfsCrowdedResult;

typedef struct EcfsFsckEndpoint {
    uint64_t n_stripes;
    uint64_t n_gone; /* also those of an endpoint that is given up */
    uint64_t n_damaged;
    uint64_t n_unknown;
    uint64_t n_orphans; /* stripes that the catalog does not know, and … */
    uint64_t orphan_bytes;
} EcfsFsckEndpoint;

typedef struct EcfsFsckSums {
    uint64_t n_objects, n_stripes, n_absent, n_gone, n_damaged, n_unknown;
    bool is_cut;           /* time was over before all objects were looked at */
    uint64_t n_problems;   /* of the catalog */
    uint64_t n_sha256;     /* objects that had no SHA-256, and have one now */
    uint64_t n_damages;    /* objects that are told, and … */
    uint64_t n_repairable; /* … of these, that something of is to be stored once more */
    uint64_t n_orphans, orphan_bytes;
    uint64_t n_old_orphans, old_orphan_bytes; /* that are old enough to be removed */
    uint64_t n_pruned, pruned_bytes;
    uint64_t n_unrecovered; /* that were stored before the archive was recovered, without their objects */
    uint64_t results[ECFS_DAMAGE_CHANGED + 1];
    uint64_t n_rebuilt;                            /* stripes */
    uint64_t n_journals_repaired, n_journals_left; /* endpoints that lacked something of the journal */
    uint64_t n_movable; /* objects that would be safer, and moves can be made, when they were met */
    uint64_t crowded[ECFS_CROWDED_WAITS + 1];
    uint64_t n_moved_stripes, moved_bytes;
    uint64_t checked_bytes;
    uint64_t read_bytes; /* for repairs, as are the next */
    uint64_t written_bytes;
} EcfsFsckSums;

/* What a deep check has done. */
typedef struct EcfsFsckDeep {
    uint64_t n_stripes;   /* that were verified */
    uint64_t n_unchanged; /* of these, by a digest of the endpoint's */
    bool is_whole;        /* all was verified that was to be */
    bool keeps;           /* what was verified is kept */
    uint64_t left_bytes;  /* about, that were not verified by this pass */
    EcfsScrubState state; /* of the pass */
    uint64_t n_sampled;   /* of the sample that were read, at endpoints that answered for all of theirs */
    uint64_t n_bad;       /* of these */
    uint64_t n_population;
} EcfsFsckDeep;

/* A run of ecfs_fsck (); the caller's thread only. */
typedef struct EcfsFsckRun {
    Ecfs *ecfs;
    Ecfs *writer; /* what repairs, once something is to be repaired; ecfs itself where that can; owned where not */
    EcfsArchive *archive;
    const EcfsFsck *what;
    EcfsPace pace;
    EcfsFsckProgress progress;
    int64_t next_us;     /* when progress is to be told again */
    int64_t deadline_us; /* when no more is checked; 0: none, or that is over */
    int64_t begun_ns;    /* time of day */
    bool cancelled;
    bool is_late;  /* the deadline has passed */
    bool is_sound; /* the catalog can be written */
    EcfsFsckSums sums;
    EcfsFsckDeep deep;
    EcfsFsckEndpoint *endpoints; /* n_endpoints, and one for all that this process does not know */
    char **silences;             /* likewise: what those said that do not answer, or NULL */
    size_t n_endpoints;
    bool is_walked; /* all objects were gone over once: what is wrong with their rows was told */
    bool is_named;  /* only objects of the paths, which are in the spool */
    EcfsSpool *spool;
    EcfsSpool *crowded; /* another: objects that would be safer with stripes elsewhere, as damages */
    EcfsScrub *seen;    /* orphans, since when; NULL: they are not to be removed, or it cannot be noted */
} EcfsFsckRun;

/** Tells progress when it is time. False: it is to end. @user is the run. */
bool ecfs_fsck_tick (void *user);
/** Ticks as well; false with ECANCELED: it is to end. That it is late does not matter. */
bool ecfs_fsck_goes_on (EcfsFsckRun *self, GError **error);
void ecfs_fsck_enter (EcfsFsckRun *self, const char *phase, uint64_t n_all);
/** The position of an endpoint's row; SIZE_MAX: this process does not know it. */
size_t ecfs_fsck_position (const EcfsFsckRun *self, int64_t endpoint);
/** Gives a finding to the caller; takes @json. */
void ecfs_fsck_tell (const EcfsFsckRun *self, char *json);
/** One about the catalog. @user is the run. */
void ecfs_fsck_tell_problem (void *user, uint64_t ino, const char *text);
/** Up to @max of the objects that are to be checked, by UUID behind *after, which moves on; *ret_more: there may be
 * more. */
GPtrArray *ecfs_fsck_objects (EcfsFsckRun *self, EcfsUuid *after, size_t max, bool *ret_more, GError **error);
/** Their stripes, as a batch has them. */
GArray *ecfs_fsck_stripes (const EcfsFsckRun *self, const GPtrArray *objects);
/** Spools those that are not fine. */
bool ecfs_fsck_spool (EcfsFsckRun *self, const GArray *stripes, GError **error);

/** Gives those of @contents (of EcfsCheckedContent) that are new their SHA-256, where repairs are wanted. */
bool ecfs_fsck_keep_sha256 (EcfsFsckRun *self, const GArray *contents, GError **error);
/** Reads stripes, all or some: what is wrong is spooled. */
bool ecfs_fsck_deep (EcfsFsckRun *self, GError **error);
/** Tells what is spooled, and has it repaired where that is wanted. */
bool ecfs_fsck_repair (EcfsFsckRun *self, GError **error);
/** Whether all that is found may be repaired at once, without asking. */
bool ecfs_fsck_may_repair (const EcfsFsckRun *self);
/** Opens what changes the archive, once. */
bool ecfs_fsck_open_writer (EcfsFsckRun *self, GError **error);

/** Spools those of a batch that would be safer with stripes elsewhere. */
bool ecfs_fsck_note_crowded (EcfsFsckRun *self, const GPtrArray *objects, GError **error);
/** Tells them, and has them moved apart where that is wanted. */
bool ecfs_fsck_move_apart (EcfsFsckRun *self, GError **error);

/** Looks at what endpoints have of the journal, and stores anew what is missing where that is wanted. */
bool ecfs_fsck_journal (EcfsFsckRun *self, GError **error);
/** Has the journal stored that names what was rebuilt; tells where that fails. */
void ecfs_fsck_store_repairs (EcfsFsckRun *self);

/* Orphans: begin, note those of each batch, end, then prune. */
bool ecfs_fsck_begin_orphans (EcfsFsckRun *self, GError **error);
bool ecfs_fsck_note_orphans (EcfsFsckRun *self, const GArray *orphans, GError **error);
void ecfs_fsck_end_orphans (EcfsFsckRun *self);
/** Writes what of unreadable files can be read, where that is wanted. */
bool ecfs_fsck_export (EcfsFsckRun *self, GError **error);
/** Removes those that are old, where that is wanted; what stays is told. */
bool ecfs_fsck_prune (EcfsFsckRun *self, GError **error);

/* Telling: fsck_report.c */

/** A finding about one object as JSON, g_free (). @task: what was tried; may be NULL. */
char *ecfs_fsck_tell_damage (EcfsArchive *archive, const EcfsDamage *damage, EcfsDamageResult result,
                             const EcfsRepairTask *task);
/** One about an object that would be safer with stripes elsewhere; @task: what was tried. */
char *ecfs_fsck_tell_crowded (EcfsArchive *archive, int64_t object, const EcfsCrowding *crowding,
                              EcfsCrowdedResult result, const EcfsRepairTask *task);
/** One about the endpoint that @n_objects of these wait for. */
char *ecfs_fsck_tell_waiting (const EcfsArchive *archive, size_t position, uint64_t n_objects, const char *text);
/** One about the journal at an endpoint; SIZE_MAX: at all. */
char *ecfs_fsck_tell_journal (EcfsArchive *archive, size_t position, const char *text, bool repaired);
/** One about the catalog; @path may be NULL. */
char *ecfs_fsck_tell_catalog (const char *path, const char *text);
/** One about a stripe that the catalog does not know. */
char *ecfs_fsck_tell_orphan (EcfsArchive *archive, const EcfsStranger *orphan, int64_t age_s);
/* Bytes of a file. */
typedef struct EcfsUnreadable {
    uint64_t offset;
    uint64_t length;
} EcfsUnreadable;

/* A file that was exported; all borrowed. */
typedef struct EcfsExported {
    const char *path, *to; /* to: NULL where it could not be written */
    uint64_t bytes, missing_bytes;
    const EcfsUnreadable *ranges;
    size_t n_ranges;
    const char *reason;
} EcfsExported;

char *ecfs_fsck_tell_export (const EcfsExported *exported);
/** One about an object that a recovery left alone. */
char *ecfs_fsck_tell_unrecovered (const EcfsSpoolObject *object);
/** Why stripes that nothing knows stay although they are old. */
char *ecfs_fsck_tell_prune (const char *text);
/** One about an endpoint that does not answer. */
char *ecfs_fsck_tell_endpoint (EcfsArchive *archive, size_t position, const EcfsFsckEndpoint *counts, const char *text);
/** All in all. */
char *ecfs_fsck_tell_summary (const EcfsFsckRun *run);

#endif
