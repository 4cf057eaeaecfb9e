/*
 * Checking an archive and making it whole: fsck.c checks the catalog and goes over the objects (run.c), presence.c
 * lists what endpoints have, confirm.c asks for what these lack (both wait in pending.c), deep.c chooses what is
 * read, in which order, and keeps what was verified, packets.c reads it, remote.c asks endpoints what changed,
 * prune.c removes what nothing knows (prune.c, or control/prune.c in the mount), damage.c tells what is wrong
 * and has it repaired: by repair.c in the archive that this process has opened for writing, by control/repair.c in the
 * mount that has; adopt.c takes a good stripe that nothing knows; crowded.c then has those moved apart whose
 * stripes share more than they need to (crowding.h).
 *
 * Objects are checked in batches, in the order of their UUIDs, which is that of the directories on the endpoints, and
 * what is wrong is spooled; so memory does not grow with the archive. The catalog is asked before the endpoints, and
 * once more before something is told: what was replaced or moved meanwhile is no damage.
 */
#ifndef ECFS_FSCK_FSCK_PRIV_H
#define ECFS_FSCK_FSCK_PRIV_H

#include "archive/common.h"
#include "archive/crowding.h"
#include "archive/past.h"
#include "catalog/scrub.h"
#include "check/check.h"
#include "upkeep/prune.h"
#include "verbs/verbs.h"

#define ECFS_FSCK_PATIENCE_US 5000000 /* until endpoints have said whether they are there */

/** Repairs as ecfs_repair_here () does, through the control socket. False: the mount does not answer; what has not been
 * told is left. */
bool ecfs_repair_mounted (const char *archive_dir, const EcfsRepairs *repairs, GError **error);

/** Prunes as ecfs_prune_here () does, by the mount of an archive, through its control socket. */
bool ecfs_prune_mounted (const char *archive_dir, int64_t endpoint, EcfsPruneStripe *stripes, size_t n_stripes,
                         bool unrecovered, GError **error);

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
    EcfsUuid uuid;
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
    /* Likewise of what only the past has; missing: that are not there as they were stored. */
    uint64_t n_past_objects, n_past_stripes, n_past_missing, n_past_rebuilt;
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
    uint64_t n_rebuilt, n_rebuilt_objects;         /* stripes, and the objects that they are of */
    uint64_t n_journals_repaired, n_journals_left; /* endpoints that lacked something of the journal */
    uint64_t n_movable; /* objects that would be safer, and moves can be made, when they were met */
    uint64_t crowded[ECFS_CROWDED_WAITS + 1];
    uint64_t misplaced[ECFS_CROWDED_WAITS + 1]; /* likewise, but for a rule */
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
    EcfsReadPace pace;
    EcfsFsckProgress progress;
    int64_t next_us;     /* when progress is to be told again */
    int64_t deadline_us; /* when no more is checked; 0: none, or that is over */
    int64_t begun_ns;    /* time of day */
    bool cancelled;
    bool is_late;          /* the deadline has passed, or … */
    bool is_done;          /* … the share that was wanted is verified */
    bool is_led_elsewhere; /* so it repairs nothing itself (catalog_mounts = many) */
    bool is_sound;         /* the catalog can be written */
    EcfsFsckSums sums;
    EcfsFsckDeep deep;
    EcfsFsckEndpoint *endpoints; /* n_endpoints, and one for all that this process does not know */
    char **silences;             /* likewise: what those said that do not answer, or NULL */
    size_t n_endpoints;
    int64_t asked_us;      /* how long endpoints were asked for stripes that nothing knows */
    int64_t past_until_ns; /* what was removed since is looked at, by the catalog's age */
    bool is_walked;        /* all objects were gone over once: what is wrong with their rows was told */
    bool is_named;         /* only objects of the paths, which are in the spool */
    GArray *back;          /* of EcfsSighting: stripes that are queued as gone, and are there */
    GArray *left; /* of EcfsSighting: stripes of objects that could not be repaired, ECFS_REPAIRS_MAX at most */
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
/** Tells what damaged pages of the catalog hide (@why, taken), where the rest can be checked all the same. */
bool ecfs_fsck_survives (EcfsFsckRun *self, GError *why, GError **error);
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
/** Opens what changes the archive, once; what is done for all that have it open, so EBUSY where another leads. */
bool ecfs_fsck_open_writer (EcfsFsckRun *self, GError **error);
/** The same for what each of them may note in the catalog. */
bool ecfs_fsck_open_noter (EcfsFsckRun *self, GError **error);

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

/* Telling: report.c */

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
