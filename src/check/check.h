/*
 * Looking at stripes: which are there, with which size, which bytes, and rebuilding those that are not. By fsck, by
 * drills, and by a mount that repairs in the background.
 *
 * Stripes are checked in batches, in the order of the UUIDs of their objects, which is that of the directories on the
 * endpoints. presence.c lists what endpoints have, confirm.c asks for what they lack (both wait in
 * pending.c), packets.c reads, remote.c asks endpoints what changed, strangers.c looks at stripes
 * of no object. The catalog is asked before the endpoints, and again before something is reported: what was replaced or
 * moved meanwhile is no damage.
 */
#ifndef ECFS_CHECK_CHECK_H
#define ECFS_CHECK_CHECK_H

#include "archive/common.h"
#include "archive/sightings.h"
#include "catalog/spool.h"
#include "commit/commit.h"
#include "util/lock.h"

#include <stdatomic.h>

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
    int64_t asked_us;     /* which took so long, with those of batches before */
    EcfsUuid after;
    EcfsUuid last; /* up to which */
    bool is_first;
    bool is_last; /* there is no object behind `after` */
    /* Calls the progress function; false: it is to end. The caller's thread only. */
    bool (*tick) (void *user);
    void *user;
    /* Set by a tick: no further stripe is to be read, but those that were begun to their end. NULL: none sets it. */
    const bool *is_late;
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
typedef struct EcfsPending {
    EcfsMutex lock;
    EcfsCond answered;
    unsigned n_pending; /* guarded by lock */
} EcfsPending;

void ecfs_pending_init (EcfsPending *self);
void ecfs_pending_clear (EcfsPending *self);
/** Before the requests are made. */
void ecfs_pending_expect (EcfsPending *self, unsigned n);
void ecfs_pending_note_locked (EcfsPending *self) ECFS_REQUIRES (self->lock);
/** Until all have come: endpoints have their own deadlines, and whoever cancels waits for these, too. False: cancelled.
 */
bool ecfs_pending_await (EcfsPending *self, const EcfsCheckBatch *batch);

/** How many bytes of it the catalog knows: all, but of a copy of a log that grows. */
uint64_t ecfs_checked_bytes (const EcfsCheckedStripe *checked);
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

/**
 * Asks the endpoints for those that are gone, and who they are, and takes out of @sightings what is not proven. @tick
 * is asked now and then whether to go on; false: it was not, and @sightings is as it was. Blocks.
 */
bool ecfs_sightings_confirm (EcfsArchive *archive, GArray *sightings, bool (*tick) (void *user), void *user);

/**
 * Asks the endpoints for stripes that are queued as gone (@rows of EcfsRepairRow). Those that are there with their
 * size, to be taken out of the queue: GArray of EcfsSighting with clear function. @tick as above; what was not answered
 * by then does not count. Blocks.
 */
GArray *ecfs_repairs_find_back (EcfsArchive *archive, const GArray *rows, bool (*tick) (void *user), void *user);

/** Takes out those of @strangers (of EcfsStranger) that the catalog knows after all, or that are gone. False without
 * @error: cancelled. */
bool ecfs_check_strangers (EcfsCheckBatch *batch, GArray *strangers, GError **error);

/** How fast stripes are read. */
typedef struct EcfsReadPace {
    EcfsMutex lock;
    uint64_t bytes_per_s; /* 0: no limit; immutable */
    int64_t next_us;      /* when the next piece may be read; guarded by lock */
    uint64_t bytes;       /* read so far; guarded by lock */
} EcfsReadPace;

/** Reads the stripes that are there and not left out. False: cancelled or late, and not all are settled. */
bool ecfs_check_packets (EcfsCheckBatch *batch, EcfsReadPace *pace);
/** As if these bytes were read: waits until they may be. False: *cancelled was set. */
bool ecfs_pace_wait (EcfsReadPace *self, uint64_t bytes, const atomic_bool *cancelled);

/* The content of one object, whose stripes are read side by side (content.c). */
typedef struct EcfsContentCheckup EcfsContentCheckup;

/** For the stripes batch->stripes[first] on, which are all of one object; NULL: nothing is compared. */
EcfsContentCheckup *ecfs_checkup_new (EcfsCheckBatch *batch, guint first, guint n, EcfsReadPace *pace,
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
/** Gives the object those of its spares that are what it lost or lacks, and takes the stripes that they replace out of
 * the order. True: nothing of the order is left. */
bool ecfs_repair_adopt (EcfsArchive *archive, EcfsRepairTask *task, const EcfsRepairs *repairs);
void ecfs_repair_here (EcfsArchive *archive, const EcfsRepairs *repairs);

#endif
