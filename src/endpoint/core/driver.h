/*
 * What the core of endpoints (endpoint.c, slot.c, request.c) and its drivers (file.c, sftp.c) agree on.
 *
 * An endpoint has a fixed number of slots; a slot is a thread that has at most one connection. The core decides when a
 * slot connects, keeps the queue of requests, knows who is down, checks the identity, watches for stalls, and calls
 * every callback of a request. The driver knows the protocol only. Its hooks but begin_read () run on the slot's thread
 * and may block there, and everything below marked "slot's thread" is called from inside them, which for what
 * begin_read () needs is whoever has the turn:
 *
 *   connect ()    makes a connection, within ecfs_slot_connect_timeout_us (); gives up early when ecfs_slot_check ()
 *                 fails, which ecfs_slot_fd () becoming readable announces.
 *   serve ()      is an event loop:
 *                     for (;;) {
 *                         poll { connection's socket, ecfs_slot_fd () };
 *                         if (!ecfs_slot_check (slot, error))
 *                             return false;
 *                         while (room for more && (request = ecfs_slot_take (slot)) != NULL)
 *                             begin it;
 *                         give up requests with ecfs_request_cancelled (); go on with parked writes and logs;
 *                         move bytes; tell the core: ecfs_request_filled (), _pull (), _acknowledge (), _finish ()
 *                         ecfs_slot_owed (slot, what the server owes);
 *                     }
 *                 How many requests it has under way at once is its own choice; a driver that serves one at a time
 *                 blocks in ecfs_slot_wait () instead of poll. It returns false with the error when the connection is
 *                 broken, and true when it closes an idle one. Before it returns it lets go of every request that
 *                 it has not finished (no pointer kept, nothing of its own left in driver_data): the core fails those.
 *   disconnect () closes and frees, never waiting for the other side more than a moment.
 *
 * Identity: right after connect the first thing that ecfs_slot_take () gives is an ECFS_REQUEST_EXAMINE of the core's
 * own. Until it is finished nothing else comes; when the marker is wrong, only examine and mark requests do.
 *
 * Errors that a driver gives do not name the endpoint: the core puts "endpoint NAME: " before them.
 */
#ifndef ECFS_ENDPOINT_CORE_DRIVER_H
#define ECFS_ENDPOINT_CORE_DRIVER_H

#include "endpoint/core/estimate.h"
#include "endpoint/endpoint.h"
#include "util/lock.h"

#include <poll.h>
#include <stdatomic.h>

typedef struct EcfsSlot EcfsSlot;

/* Keys that every scheme takes and the core reads; the head of every driver's option_keys. */
#define ECFS_COMMON_OPTION_KEYS "capacity", "connections", "stall_timeout", "connect_timeout", ECFS_TARIFF_OPTION_KEYS
#define ECFS_IN_PLACE_MODE      0400 /* nobody but root opens such a file for writing again, if nobody may chmod it */

typedef struct EcfsHasherTerms {
    EcfsMarker expected; /* of the root in which files are hashed */
    int64_t connect_timeout_us;
    bool (*goes_on) (void *user);
    void *user;
} EcfsHasherTerms;

typedef struct EcfsDriver {
    const char *scheme;             /* as in the URL: "sftp" */
    const char *const *option_keys; /* NULL-terminated, ECFS_COMMON_OPTION_KEYS included */
    unsigned default_connections;
    int64_t stall_timeout_us; /* unless its option says otherwise; 0: ECFS_STALL_TIMEOUT_US */
    unsigned n_pipelined; /* requests that one connection serves as fast as several would, unless the line is long */
    bool counts_sent;     /* it tells what it sends, by ecfs_slot_count_sent (); else the core counts requests */
    bool own_login;       /* takes keys or certificates of whoever runs it, without an option that names them */
    bool costly;          /* so are connections, and beginning a read: both are rather shared than made anew */

    bool lends; /* pieces from its own memory, by ecfs_request_piece (); else the core gives it a range */
    bool logs;  /* takes ECFS_REQUEST_LOG, if only to answer ENOTSUP; else the core does */

    /* Parses and checks URL and options (keys are known to be in option_keys). Pure: nothing is looked up or opened. */
    void *(*new_config) (const EcfsEndpointSpec *spec, GError **error);
    void (*free_config) (void *config);

    /* @make_root: make the root directory when it is absent and its parent exists. Calls ecfs_slot_capabilities ().
     * Returns what serve () and disconnect () get, or NULL. */
    void *(*connect) (EcfsSlot *slot, bool make_root, GError **error);
    bool (*serve) (EcfsSlot *slot, void *connection, GError **error);
    void (*disconnect) (void *connection);

    /* What ecfs_endpoint_store_requests () tells; may be NULL: one. */
    uint64_t (*store_requests) (const void *config, uint64_t bytes);
    /* Has the other side run a hash tool in its root; may be NULL: none can. */
    EcfsHasher *(*hasher) (const void *config, const EcfsHasherTerms *terms, GError **error);
    /* What ecfs_endpoint_lock_us () tells; may be NULL: nothing is locked, and ECFS_REQUEST_RENEW does not come. */
    int64_t (*lock_us) (const void *config);
    /* A read as if ecfs_slot_take () had returned it, from any thread, while the slot's thread is in ecfs_slot_poll ():
     * calls nobody back, waits for nothing. False: the slot's thread has to see to it now. May be NULL: all reads are
     * taken. */
    bool (*begin_read) (void *connection, EcfsStream *request);
} EcfsDriver;

/** Adds a scheme; before any endpoint is made. The driver is borrowed permanently. */
void ecfs_endpoint_register_for_tests (const EcfsDriver *driver);

/* What the slot is for; any of these from the slot's thread. */
const void *ecfs_slot_config (const EcfsSlot *slot);
const char *ecfs_slot_endpoint_name (const EcfsSlot *slot);
int64_t ecfs_slot_connect_timeout_us (const EcfsSlot *slot);
int64_t ecfs_slot_stall_timeout_us (const EcfsSlot *slot);
/** Whether the endpoint may have other connections beside this one. */
bool ecfs_slot_may_have_others (const EcfsSlot *slot);
void ecfs_slot_capabilities (EcfsSlot *slot, unsigned capabilities);
/** What the other side is, in words: protocol, features, how we are known to it. No secrets. */
void ecfs_slot_describe (EcfsSlot *slot, const char *text);

/** One more request is about to be sent to the other side. Slot's thread. */
void ecfs_slot_count_sent (EcfsSlot *slot);

/** Readable when there is something new: a request to take, a cancel, a wake, a stop. ecfs_slot_check () resets it. */
int ecfs_slot_fd (const EcfsSlot *slot);

/** Resets ecfs_slot_fd (). False with the reason when connect () or serve () has to return it. Slot's thread. */
bool ecfs_slot_check (EcfsSlot *slot, GError **error);

/**
 * As poll(2), for a driver that looks at everything after that whatever it says. Meanwhile begin_read () may be called:
 * it saves waking the slot's thread, which costs as much as all else that is done here for a short read.
 */
void ecfs_slot_poll (EcfsSlot *slot, struct pollfd *fds, unsigned n_fds, int timeout_ms);

/** Blocks until ecfs_slot_fd () is readable or @deadline_us (monotonic) has passed, which returns false. */
bool ecfs_slot_wait (EcfsSlot *slot, int64_t deadline_us);

/** Whether no other connection of the endpoint serves: one that is kept finds out about the line before it is needed.
 */
bool ecfs_slot_is_last (const EcfsSlot *slot);

/** Makes ecfs_slot_fd () readable. Any thread, while the endpoint is there. */
void ecfs_slot_notify (EcfsSlot *slot);

/** Whether there is a marker that must be there while anything is stored. */
bool ecfs_slot_has_marker (EcfsSlot *slot);
/** It was not: the core examines it next, and takes the endpoint down where that is so. Slot's thread. */
void ecfs_slot_doubt (EcfsSlot *slot);

/** Whether the slot may serve anything: its marker was checked, and it need not end. Slot's thread. */
bool ecfs_slot_is_trusted (EcfsSlot *slot);

/**
 * The slot has more to move than one connection can: wakes those that serve nothing, and where there are not more than
 * @n_helping of them has another made, if the endpoint may have more. False: it may have this one only. Slot's thread.
 */
bool ecfs_slot_call_others (EcfsSlot *slot, unsigned n_helping);

/**
 * The next request, or NULL when there is none for this slot now: then the fd becomes readable once there is. The
 * request is the driver's until it calls ecfs_request_finish () on it or returns from serve (). Slot's thread.
 */
EcfsStream *ecfs_slot_take (EcfsSlot *slot);

/**
 * The stall clock: starts it, or starts it again because something arrived; NOTHING stops it. When it runs for much
 * longer than it ever did, stall_timeout at most, the core takes the endpoint down and ecfs_slot_check () fails with
 * ETIMEDOUT, so an event loop needs no clock of its own; long before that the endpoint is suspect. A driver stuck in a
 * system call is noticed too, but its requests can only be done when the call returns. ecfs_request_filled () and
 * _acknowledge () restart a running clock with every ECFS_PROGRESS_BYTES, and so is a driver to count what arrives of
 * an answer. One that sees that a single request is not answered, while others are, returns ETIMEDOUT from serve ():
 * the endpoint is taken down, too. Slot's thread.
 */
void ecfs_slot_owed (EcfsSlot *slot, EcfsOwes owes);

typedef enum EcfsRequestKind {
    ECFS_REQUEST_READ,    /* ranges → ecfs_request_filled () */
    ECFS_REQUEST_WRITE,   /* ecfs_request_pull () → ecfs_request_acknowledge (); commits at ECFS_PULL_END, or where it
                           * is in_place, is there at once, for its owner only to read, and stays as it is */
    ECFS_REQUEST_REMOVE,  /* a file; ENOENT when absent */
    ECFS_REQUEST_SIZE,    /* finish with the value */
    ECFS_REQUEST_SPACE,   /* ecfs_request_finish_space (); ENOTSUP: it cannot tell */
    ECFS_REQUEST_LIST,    /* ecfs_request_listed (); a directory that is absent is an empty list */
    ECFS_REQUEST_MARK,    /* store text as ECFS_MARKER_NAME in the root: replacing, or with create EEXIST */
    ECFS_REQUEST_RMDIR,   /* a directory that is empty; ENOENT when absent, and any other error when it is not empty */
    ECFS_REQUEST_EXAMINE, /* read ECFS_MARKER_NAME, at most ECFS_MARKER_MAX_SIZE → ecfs_request_finish_marker () */
    ECFS_REQUEST_RENEW,   /* a lock that ends soon: finish with 1; with 0 where it lasts */
    ECFS_REQUEST_LOG,     /* ecfs_request_pull () → ecfs_request_acknowledge () what is durable; closes at its end */
} EcfsRequestKind;

/* A request. Drivers read the first group, own driver_data, and leave the rest to the core. */
struct EcfsStream {
    /* immutable once queued */
    EcfsRequestKind kind;
    char *name;        /* checked; "" for list of all; NULL for space, mark, examine */
    EcfsRange *ranges; /* read: ascending, not overlapping, at least one */
    size_t n_ranges;
    uint32_t *piece_sizes; /* of the one range, which is lent piece by piece; NULL: it is not */
    size_t n_pieces;
    char *text; /* mark */
    bool create;
    bool in_place;     /* write, mark with create: under the final name from its first byte; nothing is removed ever */
    bool aged;         /* remove: it was retained for as long as it has to be */
    void *driver_data; /* the slot's thread; NULL when taken and when given back */

    /* core, immutable once queued */
    EcfsEndpoint *endpoint; /* counted */
    unsigned flags;
    EcfsSink sink;
    void (*piece) (void *user, size_t index, const uint8_t *bytes);
    uint8_t *memory; /* for pieces, where the driver does not lend; owned */
    EcfsSource source;
    void (*each) (void *user, const EcfsListed *listed);
    EcfsEndpointDone finished;
    void (*examined) (void *user, const EcfsMarker *marker, const GError *error);
    void *user;

    /* core, slot's thread */
    EcfsMarker marker; /* mark: what text says; examine: the result */
    GQueue lent;       /* chunks pulled and not yet released */
    uint64_t pulled;
    uint64_t acknowledged;
    uint64_t delivered;      /* bytes of ranges */
    size_t next_piece;       /* to be lent */
    uint64_t lent_pieces;    /* bytes of those before it */
    uint64_t written_before; /* space: what the endpoint had been sent when it was asked */

    /* core, atomic */
    atomic_uint n_refs;
    atomic_bool cancelled;
    atomic_bool woken;

    /* core, guarded by the endpoint's lock */
    GList link;     /* in the queue, in the slot's active requests, or in the list of the ended */
    GQueue *holder; /* which of these */
    EcfsSlot *slot; /* while active */
    GError *error;  /* while ended */
    bool parked;    /* the source answered LATER; changed by the slot's thread only, as the next two */
    bool idle;      /* nothing of it could move: it is parked, and of a log all is durable */
    bool feeding;   /* the source may have more: it is a write that is neither parked nor at its end */
    int64_t taken_us;
    bool alone; /* was the only one on its slot when taken: its first byte measures the round trip */
};

/* All from the slot's thread, for a request that was taken and not finished. */

static inline bool ecfs_request_cancelled (EcfsStream *request)
{
    return atomic_load (&request->cancelled);
}

/** The first @filled bytes of range @range_index are in its memory. In order; at least per 64 KiB. */
void ecfs_request_filled (EcfsStream *request, size_t range_index, size_t filled);

/** The next piece is at @bytes, until this returns; for drivers that lend. In order. */
void ecfs_request_piece (EcfsStream *request, const uint8_t *bytes);

/**
 * The next bytes to write. LATER: parked; ask again whenever ecfs_slot_fd () was readable (cheap: the source is asked
 * only when it was woken). END: commit, then finish. ABORT: remove what was written, finish with ECANCELED.
 * The bytes stay lent until they are acknowledged or the request is finished.
 */
EcfsPull ecfs_request_pull (EcfsStream *request, const uint8_t **ret_bytes, size_t *ret_size);

/** The first @acknowledged bytes of the file are with the server, of a log on its disk: gives lent chunks below that
 * back. Of what was kept it is as many bytes, whichever. */
void ecfs_request_acknowledge (EcfsStream *request, uint64_t acknowledged);

/** The driver has the first @kept bytes in memory of its own, for it may have to send them again: gives lent chunks
 * below that back before they are acknowledged. */
void ecfs_request_kept (EcfsStream *request, uint64_t kept);

/** One file found; names that are not of our alphabet, outside the directory asked for, or the marker are skipped. */
void ecfs_request_listed (EcfsStream *request, const char *name, uint64_t size, int64_t mtime_s);

/** Ends the request: NULL @error is success. @error is taken. The request must not be touched afterwards. */
void ecfs_request_finish (EcfsStream *request, uint64_t value, GError *error);

/**
 * Ends a space request: bytes that may still be written, and a text that is the same for endpoints on the same file
 * system and for no others (NULL: that cannot be told).
 */
void ecfs_request_finish_space (EcfsStream *request, uint64_t free_bytes, const char *device);

/** Ends an examine request with what the marker file holds; the core parses it. */
void ecfs_request_finish_marker (EcfsStream *request, const char *text, size_t size);

/** Ends a mark request with EEXIST, telling whose marker (@text, hostile) is already there. */
void ecfs_request_fail_marked (EcfsStream *request, const char *text, size_t size);

/** Ends the request with ECFS_ERROR @code and a text. */
void ecfs_request_fail (EcfsStream *request, int code, const char *format, ...) G_GNUC_PRINTF (3, 4);

/* Of one list, whatever the server says: all stripes of 10^8 files, and the directories that are still to be listed. */
#define ECFS_LIST_MAX_NAMES       200000000
#define ECFS_LIST_MAX_DIRECTORIES 200000

#define ECFS_INCOMING        "incoming"
#define ECFS_INCOMING_RANDOM 16 /* digits at the end of a temporary file's name */

/** A name for a temporary file that is not yet anybody's; it tells the process. g_free (). */
char *ecfs_ahead_name (void);
/** Whether a file below the root has such a name, from another process. */
bool ecfs_is_left_ahead (const char *file);
/** A name for a temporary file of @name (NULL for the marker) below the root: "incoming/...", g_free (). */
char *ecfs_incoming_name (const char *name);
/** What stands before the random digits in all such names; g_free (). */
char *ecfs_incoming_prefix (const char *name);

/** Whether @name may name an endpoint. */
bool ecfs_endpoint_name_valid (const char *name);

/** Whether @name may be the name of a stored file. */
bool ecfs_stored_name_valid (const char *name);

/**
 * Whether URL and options of @spec are free of control characters, as they are and after decoding %XX: servers of line
 * protocols would take what follows a line break for another command, and URLs come from strangers' descriptors too.
 */
bool ecfs_spec_check (const EcfsEndpointSpec *spec, GError **error);

/** Decodes %XX of the path of @url ("scheme://authority/path"); the path starts with "/". EINVAL otherwise. */
char *ecfs_url_path (const char *url, GError **error);

/** The mode of directories that are made at @spec by its option share: 0700, 0750 or 0755. */
bool ecfs_spec_share (const EcfsEndpointSpec *spec, unsigned *ret_directory_mode, GError **error);

/** The option @key of @spec or NULL. */
const char *ecfs_spec_option (const EcfsEndpointSpec *spec, const char *key);

/** The same of an option that names a file, which may begin with "~/"; g_free (), or NULL. */
char *ecfs_spec_file (const EcfsEndpointSpec *spec, const char *key);

#endif
