/*
 * An archive opened as a whole: the archive directory with configuration, catalog, lock and staging area, and the
 * endpoints behind it. Glue between namespace, objects and endpoints; no protocol, no mathematics.
 *
 * Archive directory: ecfs.conf, catalog.sqlite, key (keys.h), lock, staging/ID (content from its first write until its
 * objects are full), interrupted/ (bytes that were never flushed when a mount died), control.sock (the door to a
 * running mount), down-since (when endpoints went down; may be deleted), journal-gaps (gaps.h; likewise), month
 * (month.h; likewise).
 *
 * Life cycle: ecfs_archive_open () (checks, no threads: it may precede a fork) → start () → stop () → free ().
 *
 * The parts: content.h reads committed files, commit.h stores staged ones, staged.h is what a file is while it is being
 * written. The namespace interface is the catalog's, handed through by ecfs_archive_catalog ().
 *
 * Lock order, outer first: a lock of fs, staged.h's lock, locks of src/object, an endpoint's lock, the catalog's lock.
 * No lock but the catalog's own is held over its calls, except staged.h's per-file lock where it says so.
 */
#ifndef ECFS_ARCHIVE_ARCHIVE_H
#define ECFS_ARCHIVE_ARCHIVE_H

#include "archive/config.h"
#include "catalog/catalog.h"
#include "key/ring.h"
#include "key/slots.h"

#include <stdatomic.h>

#include <sys/types.h>

typedef struct EcfsArchive EcfsArchive;

/* How the key is kept under which a new archive stores. */
typedef enum EcfsKeeping {
    ECFS_KEEPING_NONE, /* it has none: endpoints can read what they have */
    ECFS_KEEPING_FILE, /* in the archive directory alone */
    /* There, and in a slot of one of these kinds at each endpoint: see key_slots.h. */
    ECFS_KEEPING_SPLIT,
    ECFS_KEEPING_PASSPHRASE,
    ECFS_KEEPING_ALONE,
    ECFS_KEEPING_CODE,
    ECFS_KEEPING_RECIPIENT,
} EcfsKeeping;

/**
 * Makes an archive directory (created when absent, must be empty otherwise), its catalog and the endpoints' markers.
 * Nothing is left half-made: endpoints marked before a failure are unmarked, the directory is emptied again. EINVAL:
 * the key cannot be kept so.
 *
 * @opener: what the slot is to be opened with, but for what endpoints share; NULL: it is a split one, or there is none
 */
bool ecfs_archive_init (const char *directory, const EcfsConfig *config, EcfsKeeping keeping,
                        const EcfsKeyOpener *opener, GError **error);

typedef enum EcfsArchiveFlags {
    /* For verbs that change nothing: takes no lock, opens the catalog read-only beside a mount. */
    ECFS_ARCHIVE_READONLY = 1 << 0,
    /* To destroy it: it may have lost its keys. Then starting it only finds out whether it is the newest there is. */
    ECFS_ARCHIVE_TO_DESTROY = 1 << 1,
    /* For who gives it a key: with one that is not in use yet (archive/keys.h). */
    ECFS_ARCHIVE_GETS_KEY = 1 << 2,
    ECFS_ARCHIVE_MEMBER = 1 << 3, /* others may write, too, where ecfs.conf says so (catalog_mounts = many) */
    /* The same, but EBUSY where one of them leads and is alive: for what is done once for all of them. */
    ECFS_ARCHIVE_LEADER = 1 << 4,
    ECFS_ARCHIVE_TAKES_OVER = 1 << 5, /* whoever has it elsewhere by a copy of the directory is out from then on */
} EcfsArchiveFlags;

/** Whether the archive directory, which may not be there yet, and an endpoint on this machine are not within each
 * other: EINVAL. */
bool ecfs_archive_check_apart (const char *directory, const EcfsConfigEndpoint *endpoint, GError **error);

/** Whether @directory is an archive's, be it broken: its configuration or its catalog is there. */
bool ecfs_archive_is_one (const char *directory);

/** Opens it; without READONLY, takes the archive's lock: EBUSY naming who holds it. */
EcfsArchive *ecfs_archive_open (const char *directory, unsigned flags, GError **error);

/**
 * Starts endpoints and workers. Without READONLY also aborts old intents and begins to work off deletions, but not
 * where the archive directory is an old copy: ESTALE with what to do, and nothing has changed.
 */
bool ecfs_archive_start (EcfsArchive *self, GError **error);

/**
 * Whether enough endpoints have the journal up to now for a recovery to find it, and none has that of a newer copy of
 * the archive; by their markers, which are read now. For an archive that is open for reading: one that is changed
 * stores the journal. ESTALE, EAGAIN as ecfs_lineage_confirm_stored ().
 */
bool ecfs_archive_confirm_journal (EcfsArchive *self, GError **error);

/** Waits, for a few seconds at most, until endpoints that are up know that this process changes the archive: before
 * anything is acknowledged. Thread-safe. */
void ecfs_archive_await_session (EcfsArchive *self);

/** Ends transfers (what is not committed fails with ECANCELED) and threads. Staging must have been stopped before. */
void ecfs_archive_stop (EcfsArchive *self);

/**
 * From now on objects that are known to be damaged, or that lack stripes which nothing in staging gives them, are
 * repaired in the background, as `repair` in ecfs.conf says. For mounts; after start, and when the staging area is
 * there.
 */
void ecfs_archive_repair_behind (EcfsArchive *self);
/** From now on it may come to lead, if it has a shared catalog (catalog_mounts = many), and does what leading brings.
 * For mounts; after those. */
void ecfs_archive_lead_behind (EcfsArchive *self);
/** The same for a verb without a mount: nothing is repaired or packed behind it. After start. */
void ecfs_archive_lead_meanwhile (EcfsArchive *self);
/** Something was queued for repair. Thread-safe. */
void ecfs_archive_hurry_repairs (EcfsArchive *self);
/** Waits until the catalog has what readers met damaged up to now, where repairs run behind; false: it has not at
 * @deadline_us. Thread-safe. */
bool ecfs_archive_await_damage (EcfsArchive *self, int64_t deadline_us);
/** From now on small files are packed in the background. Likewise. */
void ecfs_archive_pack_behind (EcfsArchive *self);
/** From now on what is pinned is kept in the cache, if there is one. Likewise; also for READONLY. */
void ecfs_archive_pin_behind (EcfsArchive *self);
/** Something was pinned, or is not any more. Thread-safe. */
void ecfs_archive_hurry_pins (EcfsArchive *self);
/** Cancels repairs, packs and pins that are under way, and begins no others. To be called before what is staged is
 * stored at the end. */
void ecfs_archive_end_repairs (EcfsArchive *self);

/** Stops, closes the catalog, releases the lock. NULL is accepted. */
void ecfs_archive_free (EcfsArchive *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsArchive, ecfs_archive_free)

/* Who has an archive open for changes. */
typedef struct EcfsHolder {
    pid_t pid;
    char *mountpoint; /* NULL: it is not mounted; owned */
} EcfsHolder;

/** Tells whoever meets the lock from now on where the archive is mounted. */
void ecfs_archive_mounted_on (EcfsArchive *self, const char *mountpoint);
/** Who took the lock of the archive in @directory last; may be gone since. False: it is not known. */
bool ecfs_archive_holder (const char *directory, EcfsHolder *ret_holder);
void ecfs_holder_clear (EcfsHolder *holder);

const char *ecfs_archive_directory (const EcfsArchive *self); /* absolute */
const EcfsConfig *ecfs_archive_config (const EcfsArchive *self);
EcfsCatalog *ecfs_archive_catalog (const EcfsArchive *self);
/** The archive's keys, as long as it is open; NULL: it has none, and what it stores is open to its endpoints. */
const EcfsKeyRing *ecfs_archive_keys (const EcfsArchive *self);
/** Those that its markers are authentic by: the same, but NULL also where the archive is only about to get its keys. */
const EcfsKeyRing *ecfs_archive_marker_keys (const EcfsArchive *self);

/* An endpoint as the archive sees it: section of the configuration, row of the catalog, connection. */
typedef struct EcfsArchiveEndpoint {
    int64_t id; /* catalog row */
    EcfsUuid uuid;
    const char *_Atomic name; /* changes once at most, when another takes its place; what it was stays valid */
    char *first_name;         /* NULL: it is still that; owned */
    const char *_Atomic zone; /* likewise, when it is found again */
    char *first_zone;
    _Atomic EcfsEndpointState state; /* REMOVED: only what had it open before knows it still */
    EcfsEndpoint *_Atomic endpoint;  /* NULL: in the catalog, but not in the configuration, until it is found again */
    /* It lacks files of the journal that it had: so it was seen last, and no snapshot was stored there since. */
    atomic_bool lacks_journal;
} EcfsArchiveEndpoint;

/** Endpoints by position, 0 to n - 1; n grows when one is added, and what is there stays. */
size_t ecfs_archive_n_endpoints (const EcfsArchive *self);
const EcfsArchiveEndpoint *ecfs_archive_endpoint (const EcfsArchive *self, size_t position);
/** Whether its stripes count: it is neither given up nor removed. Whether it answers is another question. */
bool ecfs_archive_endpoint_counts (const EcfsArchiveEndpoint *endpoint);
/** By name; NULL with ENOENT when there is none. */
const EcfsArchiveEndpoint *ecfs_archive_endpoint_named (const EcfsArchive *self, const char *name, GError **error);
/** By catalog row; NULL when there is none. */
const EcfsArchiveEndpoint *ecfs_archive_endpoint_by_id (const EcfsArchive *self, int64_t id);

/**
 * Marks an endpoint, adds it to catalog and ecfs.conf, whose text stays as it is otherwise, and begins to use it. The
 * archive must be started and not READONLY. Thread-safe; blocks until the endpoint has answered.
 */
bool ecfs_archive_endpoint_add (EcfsArchive *self, const EcfsConfigEndpoint *endpoint, GError **error);

/**
 * Begins anew in the place of an endpoint that was emptied: a new marker, and a new endpoint of the same name. The old
 * one is DRAINING and called *ret_old from then on, g_free (); draining and removing it rebuilds what it had. EEXIST
 * where the place was not emptied. What ended in the middle is ended by the next call. Likewise; blocks.
 */
bool ecfs_archive_renew_endpoint (EcfsArchive *self, const char *name, char **ret_old, GError **error);

/** "active", "draining" and so on. */
const char *ecfs_endpoint_state_word (EcfsEndpointState state);

/**
 * Changes the state of an endpoint (ACTIVE, READONLY, DRAINING), durably; where stripes are placed from now on knows it
 * at once. The archive must be started and not READONLY. Thread-safe.
 */
bool ecfs_archive_set_endpoint_state (EcfsArchive *self, const char *name, EcfsEndpointState state, GError **error);

/**
 * Takes an endpoint that holds nothing any more out of catalog and ecfs.conf, and what the archive keeps beside stripes
 * away from it: journal, snapshots, salvage program, and the marker last. EBUSY with what to do where something lives
 * there. What ended in the middle is ended by the next call. *ret_left: what stays there all the same, for the user,
 * g_free (); NULL: nothing. Likewise; blocks.
 */
bool ecfs_archive_remove_endpoint (EcfsArchive *self, const char *name, char **ret_left, GError **error);

/**
 * Whether files can be stored with @code here: a known code whose stripes find enough endpoints. EINVAL with a sentence
 * for the user. Thread-safe.
 */
bool ecfs_archive_check_code (EcfsArchive *self, const char *code, GError **error);

/* How safe a file's content is. */
typedef struct EcfsFileState {
    bool staged;          /* newest content is in staging, not committed */
    bool lacks_stripes;   /* of any object */
    unsigned n_damaged;   /* stripes that are queued for repair, of all objects */
    unsigned n_given_up;  /* stripes at endpoints that do not count any more, of all objects */
    unsigned n_nowhere;   /* stripes at endpoints that ecfs.conf does not have, of all objects */
    unsigned n_stripes;   /* stripes that a full object has; of the least safe object, or of one that lacks some */
    unsigned n_stored;    /* stripes in the catalog */
    unsigned n_reachable; /* of these, on endpoints that are not down or failed (as far as known in this process) */
    unsigned tolerance;
    int guarantee; /* endpoints that may vanish now, for certain; -1: not readable now; the least of all objects */
} EcfsFileState;

/** The state of the committed content of a file; a file without content has n_stripes 0. */
bool ecfs_archive_file_state (EcfsArchive *self, uint64_t ino, EcfsFileState *ret_state, GError **error);

/**
 * Whether the committed content of a file, or with @ino 0 of all files that do not wait in staging to be filled up, has
 * all of its stripes, and none is queued for repair; otherwise the error tells how much is missing.
 */
bool ecfs_archive_check_full (EcfsArchive *self, uint64_t ino, GError **error);

/** "staged", "quorum 5/6, guarantee 1", "full 6/6, guarantee 2", "degraded 4/6, guarantee 0", "lost 3/6" (not readable
 * now), "empty"; g_free (). */
char *ecfs_file_state_text (const EcfsFileState *state);

/** How things are, in one line: "degraded: 1 of 6 endpoints is down: birch; 3 files are staged"; g_free (). */
char *ecfs_archive_brief (EcfsArchive *self);

/* How much is safe without this machine. */
typedef struct EcfsRecoveryPoint {
    uint64_t sequence; /* of the last change */
    uint64_t stored;   /* of the last that enough endpoints have; 0: none */
    int64_t time_ns;   /* of that */
    unsigned n_copies; /* endpoints that are enough */
} EcfsRecoveryPoint;

bool ecfs_archive_recovery_point (EcfsArchive *self, EcfsRecoveryPoint *ret_point, GError **error);

/**
 * Stores the journal up to now on so many endpoints that it outlives them and this machine; see
 * ecfs_journal_sender_store (). The archive is started and not READONLY.
 */
bool ecfs_archive_store_journal (EcfsArchive *self, bool (*goes_on) (void *user), void *user, GError **error);

/** Whether what this process has changed is in the newest copy of the archive; see ecfs_lineage_confirm_newest (). The
 * archive is started. */
bool ecfs_archive_confirm_newest (EcfsArchive *self, bool (*goes_on) (void *user), void *user, GError **error);
/** Before it is told that a recovery is under way: whether it still is; see ecfs_lineage_reconsider_hold (). */
void ecfs_archive_reconsider_hold (EcfsArchive *self, bool (*goes_on) (void *user), void *user);

/**
 * Asks endpoints what they know of the archive, for one that is open READONLY and that nobody has open for changes, so
 * that the next call tells whether it is an old copy. Waits until @deadline_us (ecfs_now_us ()). After start.
 */
void ecfs_archive_ask_lineage (EcfsArchive *self, int64_t deadline_us);

/** Why the archive directory is an old copy, as far as it is known; NULL: nothing says so. g_free () */
char *ecfs_archive_trouble (EcfsArchive *self);

typedef struct EcfsArchiveSpace {
    bool is_known;  /* false: nothing is free, as far as endpoints were heard, and one that takes stripes was not */
    uint64_t total; /* bytes of content: what is stored and what is free */
    uint64_t free;  /* bytes of content that fit with the archive's code, as stripes are placed now */
    uint64_t n_inodes;
    uint64_t free_inodes; /* that the catalog has room for on the local disk, at least about */
} EcfsArchiveSpace;

/**
 * From figures that are asked for in the background four times a minute, less what was written since; never waits for
 * an endpoint. Nothing is free until the first are in.
 */
void ecfs_archive_space (EcfsArchive *self, EcfsArchiveSpace *ret_space);

/**
 * Has these figures kept for an archive that is open READONLY, too, and waits for the first of all endpoints, at most
 * until @deadline_us (ecfs_now_us ()). After start; stop ends it.
 */
void ecfs_archive_keep_space (EcfsArchive *self, int64_t deadline_us);

#endif
