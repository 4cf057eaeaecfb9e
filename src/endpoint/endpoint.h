/*
 * An endpoint is one place that stores stripes: a directory, an SFTP account. It serves streams, not stop-and-wait
 * requests: reads deliver bytes into the caller's memory as they arrive and can be cancelled, writes pull bytes from
 * the caller at the endpoint's own pace. Nothing in this face blocks; results come through callbacks.
 *
 * Life cycle: ecfs_endpoint_new () (checks, no threads) → start () (threads; connects when first needed) →
 * stop () (cancels everything, joins) → free (). Requests are accepted between start and stop only.
 *
 * Callbacks are called from the endpoint's threads, with no lock of the endpoint held, and must not block; they may
 * call anything in this face except stop and free. `done` is called exactly once per request, and nothing of the
 * request is touched after it. It is never called before the function that began the request has returned its stream to
 * a caller who could not yet know it: callers that need the stream inside callbacks use their own lock around the begin
 * call.
 *
 * Names of stored files are relative to the endpoint's root: lower-case letters, digits and "-._/", no empty, "." or
 * ".." part, at most 200 bytes. Anything else is refused with EINVAL; such names in listings are skipped. The marker
 * can be read like a file, but only ecfs_endpoint_mark () writes it. "incoming/" is where unfinished uploads lie.
 *
 * Health: an endpoint whose connection could not be made, whose marker is absent or foreign, or that made no progress
 * for stall_timeout (less where it never was silent for nearly as long, unless more than the default is asked for) is
 * `down` for everybody: requests fail at once with ENOTCONN and the reason, except urgent ones, which try to connect
 * once more (at most once a second). It is probed in the background with back-off (1 s doubling to 30 s) and comes up
 * again by itself. If it failed at work it is on trial first: it is asked one thing at a time until it has proven
 * itself, and if it soon fails again, its back-off resumes where it was. An endpoint that loses three connections in a
 * row in the middle of work is down, too. The marker is looked at again whenever space is asked for, and when a write
 * finds no directory. A connection that timed out or broke in the middle of anything is closed, never reused; its other
 * requests fail, no request is retried here: the caller knows better. Long before that, after a silence that is unusual
 * for it, an endpoint is suspect: it is still asked, but nobody should wait for it who can do without it. An endpoint
 * that fails to store what it is given, because it is full or its disk is bad, says so once in the log, and in its
 * health until it takes that much again.
 *
 * Errors: ENOENT no such file, EBADMSG the file ends before the range does, ECANCELED, ENOTCONN down or lost, ETIMEDOUT
 * no progress, ENOSPC/EDQUOT full, EACCES, EEXIST (nothing is ever replaced), ENOTSUP it cannot do that, EPROTO the
 * server sends nonsense, EPERM it is retained. Texts begin with "endpoint NAME: ".
 */
#ifndef ECFS_ENDPOINT_ENDPOINT_H
#define ECFS_ENDPOINT_ENDPOINT_H

#include "endpoint/tariff.h"
#include "util/error.h"
#include "util/uuid.h"

#include <stddef.h>
#include <stdint.h>

typedef struct EcfsEndpoint EcfsEndpoint;
typedef struct EcfsStream EcfsStream; /* one request under way; reference-counted */

/* What a protocol can; flags of ecfs_endpoint_capabilities (). */
typedef enum EcfsCapability {
    ECFS_CAN_POSITION = 1 << 0, /* writes at any offset, so a broken upload can be resumed */
    ECFS_CAN_RENAME = 1 << 1,   /* commit is a rename; without: the upload itself becomes visible whole */
    ECFS_CAN_FSYNC = 1 << 2,    /* a committed file is on the disk of the endpoint */
    ECFS_CAN_SPACE = 1 << 3,    /* tells its free space */
    ECFS_CAN_LIST = 1 << 4,
    ECFS_CAN_LOG = 1 << 5, /* ecfs_endpoint_log () */
} EcfsCapability;

/* How an endpoint is described in ecfs.conf and on the command line. */
typedef struct EcfsEndpointSpec {
    char *name; /* unique in the archive: letters, digits, "-_." */
    char *url; /* file:///path or SCHEME://[user@]host[:port]/path, schemes as of ecfs_endpoint_schemes (); "/~/" at the
                * start of an SFTP path is the home */
    GHashTable *options; /* char * → char *: further keys, each checked by the protocol; may be NULL */
} EcfsEndpointSpec;

EcfsEndpointSpec *ecfs_endpoint_spec_new (const char *name, const char *url);
/** The text that spec_parse () makes it from, but for options with a comma in their value; g_free (). */
char *ecfs_endpoint_spec_text (const EcfsEndpointSpec *spec);
/** Parses "[NAME=]URL[,KEY=VALUE...]"; without NAME, one is made from host or last path part. NULL and EINVAL. */
EcfsEndpointSpec *ecfs_endpoint_spec_parse (const char *text, GError **error);
EcfsEndpointSpec *ecfs_endpoint_spec_copy (const EcfsEndpointSpec *spec);
void ecfs_endpoint_spec_free (EcfsEndpointSpec *spec);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsEndpointSpec, ecfs_endpoint_spec_free)

/** The option keys that the scheme of @url takes, NULL-terminated static strings; NULL for an unknown scheme. */
const char *const *ecfs_endpoint_option_keys (const char *url);

/** How many connections an endpoint with such a URL has unless its option says otherwise; 0 for an unknown scheme. */
unsigned ecfs_endpoint_default_connections (const char *url);

/**
 * Identity: the file "ecfs-endpoint" in the endpoint's root. Checked at every connect, so that an NFS path that is not
 * mounted, or someone else's archive, is unavailable rather than empty.
 */
#define ECFS_MARKER_NAME      "ecfs-endpoint"
#define ECFS_MARKER_DIRECTORY "markers" /* newer ones, each a file with a number, where nothing is replaced */
/* What `ecfs endpoint test` and `ecfs bench` write, and where they cannot remove it, leave. */
#define ECFS_SCRATCH_DIRECTORY "scratch"
#define ECFS_MARKER_MAX_SIZE   4096
#define ECFS_MARKER_HOST_SIZE  72
#define ECFS_MARKER_MAC_BYTES  32

/* Who has announced a recovery of the archive that has not ended. */
typedef struct EcfsMarkerClaim {
    uint32_t epoch;   /* that it will begin; 0: there is no claim, and the rest is empty */
    EcfsUuid session; /* random, of this recovery */
    uint64_t count;   /* raised while it lives */
    int64_t since_s;  /* when it began, by its own clock; 0: not told */
    char host[ECFS_MARKER_HOST_SIZE];
} EcfsMarkerClaim;

typedef struct EcfsMarker {
    EcfsUuid archive;
    EcfsUuid endpoint;
    uint32_t epoch;    /* of the archive, when the marker was written */
    uint64_t sequence; /* highest known then */
    /* Of the opening of the archive that wrote it. Older versions of ecfs write none of what follows. */
    uint64_t session_number;          /* 0: not told, and session is nil */
    EcfsUuid session;                 /* random */
    int64_t since_s;                  /* when it was written, by the writer's clock; 0: not told */
    char host[ECFS_MARKER_HOST_SIZE]; /* whose clock that is; empty: not told */
    uint32_t copies;                  /* at how many endpoints what counts has to be, … */
    uint32_t endpoints;               /* … of how many, as the writer knew it; 0: not told */
    EcfsMarkerClaim claim;
    /* Of an archive with a key, see archive/marks.h; key is nil without. */
    EcfsUuid key;
    uint8_t mac[ECFS_MARKER_MAC_BYTES]; /* 0 where it was none, or the text is not as ecfs writes it */
} EcfsMarker;

/** This machine's name as markers tell it: letters, digits, "-_." and "?" for the rest. */
void ecfs_marker_host (char ret_host[ECFS_MARKER_HOST_SIZE]);
/** The marker as text (GKeyFile), g_free (). */
char *ecfs_marker_format (const EcfsMarker *marker);
/** The same without the line of its MAC, which is what the MAC is of. */
char *ecfs_marker_format_content (const EcfsMarker *marker);
/** Parses a hostile marker. EPROTO when it is none, ENOTSUP when it is of a later format. */
bool ecfs_marker_parse (const char *text, size_t size, EcfsMarker *ret_marker, GError **error);
/** Above 0: @a tells of something later than @b, by epochs, sessions and claims; below 0: the reverse. */
int ecfs_marker_order (const EcfsMarker *a, const EcfsMarker *b);

#define ECFS_MARKER_FILE_MAX (ECFS_MARKER_MAX_SIZE + 16) /* bytes of a file in ECFS_MARKER_DIRECTORY */

/** Whether @name is one's there, and its number. */
bool ecfs_marker_file_number (const char *name, uint64_t *ret_number);
/** Parses such a hostile file. EPROTO, also when it is not whole; ENOTSUP. */
bool ecfs_marker_file_parse (const char *text, size_t size, EcfsMarker *ret_marker, GError **error);

/**
 * Makes an endpoint. @expected is what its marker must say; its nil archive UUID switches the check off, which is for
 * making and examining markers only. EINVAL with the key's name for options that are wrong.
 */
EcfsEndpoint *ecfs_endpoint_new (const EcfsEndpointSpec *spec, const EcfsMarker *expected, GError **error);
void ecfs_endpoint_start (EcfsEndpoint *self);
/** Ends all connections and requests, and never connects again: every request is answered with ENOTCONN and
 * @reason. Health says that it is down. Returns at once. */
void ecfs_endpoint_retire (EcfsEndpoint *self, const char *reason);
/** Begins to cancel what is queued and under way and to end connections, and returns at once. stop () has to follow:
 * so several end side by side. */
void ecfs_endpoint_begin_stop (EcfsEndpoint *self);
/** Cancels what is queued and under way, waits for callbacks to have returned, ends the threads. Idempotent. */
void ecfs_endpoint_stop (EcfsEndpoint *self);
/** Stops when still running. NULL is accepted. */
void ecfs_endpoint_free (EcfsEndpoint *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsEndpoint, ecfs_endpoint_free)

/*
 * An endpoint may retain: its option "delete" says so. Then what is to be deleted stays, for some time or always:
 * nothing is removed, replaced, renamed or appended to. Files have their final names from their first byte on, so one
 * may be there that is not whole. Each marker is a file of its own.
 */
#define ECFS_RETAIN_OPTION_KEY "delete" /* of drivers that can store in place, beside their own */
#define ECFS_RETAIN_NOT        0
#define ECFS_RETAIN_ALWAYS     INT64_MAX

/** How long, in microseconds, or one of these. */
int64_t ecfs_endpoint_retain_us (EcfsEndpoint *self);
/** For how long, in microseconds, the server locks what is stored: nobody deletes it until then. 0: it does not. */
int64_t ecfs_endpoint_lock_us (const EcfsEndpoint *self);
/** @vouch says whether a marker is authentic: where there are several, the newest of these counts. Before start. Any of
 * the endpoint's threads calls it, with no lock of the endpoint held. */
void ecfs_endpoint_set_vouch (EcfsEndpoint *self, bool (*vouch) (void *user, const EcfsMarker *marker), void *user);

const char *ecfs_endpoint_name (const EcfsEndpoint *self);
const char *ecfs_endpoint_url (const EcfsEndpoint *self);
/** Protocol features; complete only after the first connect. */
unsigned ecfs_endpoint_capabilities (EcfsEndpoint *self);
/** What the server is, in words; g_free (). NULL before the first connect, and where there is nothing to tell. */
char *ecfs_endpoint_description (EcfsEndpoint *self);
/** Schemes of URLs that this build knows, and those that it was built without; NULL-terminated static strings. */
const char *const *ecfs_endpoint_schemes (void);
const char *const *ecfs_endpoint_absent_schemes (void);
/** Whether the scheme of @url is one of them; else EINVAL, and what to do where this build lacks it. */
bool ecfs_endpoint_check_scheme (const char *url, GError **error);
/** Whether servers of the scheme of @url are shown keys or certificates of the user that no option names. */
bool ecfs_endpoint_has_own_login (const char *url);

/* What an endpoint told of the file system that it is on. */
typedef struct EcfsEndpointSpace {
    bool asked;          /* it answered ecfs_endpoint_space () since it was started, … */
    bool told;           /* … with figures; otherwise it cannot tell */
    uint64_t free_bytes; /* what may still be written: as told last, less what was written since */
    uint64_t device;     /* equal for endpoints on one file system, as far as that can be seen; 0: not known */
} EcfsEndpointSpace;

/* What a quantity is usually: 5%, half and 95% of its samples are at most this, late ones counting more; 0: unknown. */
typedef struct EcfsQuantiles {
    double p5, p50, p95;
} EcfsQuantiles;

/* How an endpoint usually is. */
typedef struct EcfsEstimates {
    EcfsQuantiles latency_us;       /* to the first byte of an answer, when nothing else is under way */
    EcfsQuantiles read_bytes_per_s; /* while busy with enough to do, over all connections */
    EcfsQuantiles write_bytes_per_s;
} EcfsEstimates;

/** How many bytes the archive may have at it; 0: as many as it takes. */
uint64_t ecfs_endpoint_capacity (const EcfsEndpoint *self);
/** What the archive has at it, when @written_bytes (as in its health) had been written; what is written since counts,
 * and the next answer of ecfs_endpoint_space () is at most what is left of the capacity. Thread-safe. */
void ecfs_endpoint_note_used (EcfsEndpoint *self, uint64_t bytes, uint64_t written_bytes);

/* This month, by UTC. */
typedef struct EcfsMonth {
    EcfsMonthUse used;
    bool requests_spent; /* all that its account allows is used, … */
    bool egress_spent;   /* … of either */
    bool is_read_anyway; /* since then, as others have too little of what is needed */
} EcfsMonth;

/** What its account allows and asks for; as long as it is there. */
const EcfsTariff *ecfs_endpoint_tariff (const EcfsEndpoint *self);
/** What this process has used since it was started, whatever the month. Thread-safe, as the next. */
void ecfs_endpoint_sent (EcfsEndpoint *self, EcfsMonthUse *ret_sent);
/** What all processes had @used this month, when this one had @sent so much in all; what it sends since counts. */
void ecfs_endpoint_note_month (EcfsEndpoint *self, const EcfsMonthUse *used, const EcfsMonthUse *sent);
/** Nothing where it has no limits and prices. */
void ecfs_endpoint_month (EcfsEndpoint *self, EcfsMonth *ret_month);
/** It is about to be read although its month is used up. */
void ecfs_endpoint_note_read_anyway (EcfsEndpoint *self);

typedef struct EcfsEndpointHealth {
    bool connected;        /* at least one connection was made and works */
    bool down;             /* requests fail at once */
    bool trial;            /* it was down at work, and is asked little until it has proven itself */
    bool suspect;          /* it owes an answer for longer than usual: what can go elsewhere should */
    bool refuses;          /* it failed to store what it was given: new files should go elsewhere for now */
    bool full;             /* something did not fit, and would not yet; see ecfs_endpoint_has_room () */
    bool spent;            /* of its month requests or egress are used up: others should be read, … */
    bool takes_none;       /* … and requests are: new files should go elsewhere */
    bool unmarked;         /* it is down since there is no marker: not mounted, or emptied */
    char *reason;          /* why it is down, what it refused last, or what is used up; NULL otherwise */
    int64_t down_since_us; /* monotonic, … */
    int64_t down_since_s;  /* … and since 1970, as it was by the system's clock then; 0: it is not down */
    EcfsEstimates estimates;
    int64_t rtt_us;         /* the median latency of the estimates; 0 unknown */
    uint64_t queued_bytes;  /* of reads begun and not yet delivered */
    unsigned n_waiting;     /* requests that no connection has yet, and … */
    unsigned n_under_way;   /* … those that one has; logs that wait for their source are none */
    uint64_t read_bytes;    /* in all since start */
    uint64_t written_bytes; /* in all since start */
    EcfsEndpointSpace space;
} EcfsEndpointHealth;

/** A snapshot; ecfs_endpoint_health_clear () when done with it. Thread-safe. */
void ecfs_endpoint_health (EcfsEndpoint *self, EcfsEndpointHealth *ret_health);
void ecfs_endpoint_health_clear (EcfsEndpointHealth *health);
/** Of its health only whether it is down. Thread-safe. */
bool ecfs_endpoint_is_down (EcfsEndpoint *self);

/* What an endpoint was asked. Look: sizes, free space and markers. */
typedef enum EcfsRequestClass {
    ECFS_CLASS_READ,
    ECFS_CLASS_WRITE,
    ECFS_CLASS_APPEND,
    ECFS_CLASS_REMOVE,
    ECFS_CLASS_LIST,
    ECFS_CLASS_LOOK,
    ECFS_CLASS_MARK,
    ECFS_N_CLASSES,
} EcfsRequestClass;

/* Requests that came to an end at the other side since start, cancelled ones included; those that failed because the
 * endpoint was down already are not counted. */
typedef struct EcfsEndpointCounts {
    uint64_t ended[ECFS_N_CLASSES];
    uint64_t failed[ECFS_N_CLASSES]; /* of these; neither cancelled nor answered with "no such file" */
    uint64_t sent; /* what an account may count and charge: with HTTP each request, repeated ones and those that make a
                    * connection included; else each that a connection was given */
} EcfsEndpointCounts;

/** How many requests storing a file of @bytes takes that an account counts, where nothing is asked again; what is found
 * out once per endpoint comes on top. Thread-safe. */
uint64_t ecfs_endpoint_store_requests (const EcfsEndpoint *self, uint64_t bytes);

/** The word for a class, such as "append". */
const char *ecfs_request_class_word (EcfsRequestClass class);
/** Thread-safe. */
void ecfs_endpoint_counts (EcfsEndpoint *self, EcfsEndpointCounts *ret_counts);

/** What to take as usual before there are samples, such as what was measured last time. Impossible values are ignored.
 */
void ecfs_endpoint_expect (EcfsEndpoint *self, const EcfsEstimates *prior);
/** How it usually is, as far as enough was asked of it to tell: what is worth keeping. Thread-safe. */
void ecfs_endpoint_estimates (EcfsEndpoint *self, EcfsEstimates *ret_estimates);

/** Whether @bytes more fit, as far as is known. Where they do not, the endpoint is full until they would. Thread-safe.
 */
bool ecfs_endpoint_has_room (EcfsEndpoint *self, uint64_t bytes);

/* How long something would take. */
typedef struct EcfsForecast {
    int64_t us;      /* as expected */
    int64_t late_us; /* what nearly all (p95) are shorter than; at least us */
} EcfsForecast;

/** Until @bytes that were asked for now are here, after what is queued. Thread-safe. */
EcfsForecast ecfs_endpoint_forecast (EcfsEndpoint *self, uint64_t bytes);

/* A range of a stored file and where its bytes go. Memory is lent until done. */
typedef struct EcfsRange {
    uint64_t offset;
    size_t size; /* > 0 */
    uint8_t *to;
} EcfsRange;

typedef struct EcfsSink {
    /* The first @filled bytes of range @range_index are there; may be NULL. Ranges are filled in order, each front to
     * back; a call comes at least per 64 KiB. */
    void (*data) (void *user, size_t range_index, size_t filled);
    /* NULL: all ranges are filled. The error is borrowed for the call. */
    void (*done) (void *user, const GError *error);
    void *user;
} EcfsSink;

typedef enum EcfsReadFlags {
    ECFS_READ_URGENT = 1 << 0, /* try to connect although the endpoint is down */
} EcfsReadFlags;

/**
 * Reads ranges (ascending, not overlapping) of the file @name; asks the server for no byte outside them, but where a
 * driver says how much more costs it less than asking anew. Several reads
 * at once share the connections and are answered in about the order they were begun; consecutive reads of one file
 * keep it open. @ranges is copied, the memory they point to is not. Returns a reference for ecfs_stream_unref ().
 */
EcfsStream *ecfs_endpoint_read (EcfsEndpoint *self, const char *name, const EcfsRange *ranges, size_t n_ranges,
                                unsigned flags, const EcfsSink *sink);

#define ECFS_PIECE_MAX_BYTES (2u << 20)

/* Bytes of a file in a row, which nobody keeps: they are lent piece by piece. */
typedef struct EcfsPieces {
    uint64_t offset;
    const uint32_t *sizes; /* each > 0 and at most ECFS_PIECE_MAX_BYTES */
    size_t n;
    /* A piece is there as a whole, until this returns: while it still is in a processor's cache, where the protocol
     * can. In order, from an endpoint thread, which waits. */
    void (*piece) (void *user, size_t index, const uint8_t *bytes);
    void (*done) (void *user, const GError *error); /* as of a sink */
    void *user;
} EcfsPieces;

/** Reads @pieces of the file @name. Sizes are copied. Returns a reference for ecfs_stream_unref (). */
EcfsStream *ecfs_endpoint_read_pieces (EcfsEndpoint *self, const char *name, const EcfsPieces *pieces);
/** Whether no piece is kept longer than it is lent; if not, all of a read are in memory until it is done. */
bool ecfs_endpoint_lends (const EcfsEndpoint *self);

typedef enum EcfsPull {
    ECFS_PULL_BYTES, /* *ret_bytes, *ret_size hold the next bytes */
    ECFS_PULL_LATER, /* nothing yet: ecfs_stream_wake () follows */
    ECFS_PULL_END,   /* the file is complete: commit it */
    ECFS_PULL_ABORT, /* give up: remove what was written, done with ECANCELED */
} EcfsPull;

typedef struct EcfsSource {
    /* The next bytes of the file, in order, asked for when the window has room. The bytes are lent until `release`
     * is called with the same pointer, in the same order. Must not block. */
    EcfsPull (*pull) (void *user, const uint8_t **ret_bytes, size_t *ret_size);
    /* The endpoint no longer needs these bytes. Also called for what is left, before done. */
    void (*release) (void *user, const uint8_t *bytes, size_t size);
    /* The first @acknowledged bytes have been taken by the server, of a log by its disk; may be NULL. */
    void (*progress) (void *user, uint64_t acknowledged);
    /* NULL: committed under its final name, and durable where the protocol can. Otherwise nothing is left under that
     * name, unless it is a log; an incomplete temporary file may be, and is known to `list`. */
    void (*done) (void *user, const GError *error);
    void *user;
    uint64_t size; /* bytes that will come, about; 0: not known */
} EcfsSource;

/**
 * Stores a new file @name: never replaces (EEXIST), never visible incomplete where the protocol can rename. Directories
 * on the way are made as needed. Time spent waiting for ECFS_PULL_LATER is no stall.
 */
EcfsStream *ecfs_endpoint_write (EcfsEndpoint *self, const char *name, const EcfsSource *source);

/** The same for bytes that are there already, lent until done. */
EcfsStream *ecfs_endpoint_write_bytes (EcfsEndpoint *self, const char *name, const void *bytes, size_t size,
                                       void (*done) (void *user, const GError *error), void *user);

/**
 * Keeps a log: a new file @name that grows by appends while it stays open, each durable by itself. It is made at once
 * under its final name, where it is seen while it grows; EEXIST if it is there. Directories on the way are made as
 * needed.
 *
 * Bytes are pulled as by a write. When the source answers ECFS_PULL_LATER, all that was pulled is brought to the
 * endpoint's disk, and one flush serves all that waits for it. More may be pulled and sent meanwhile. `progress` tells
 * what is on the disk: that many bytes from the beginning, none left out. They are released at the same time.
 *
 * ECFS_PULL_END: done (NULL) when all is durable and the file is closed. ECFS_PULL_ABORT and a cancel close the file as
 * it is: ECANCELED. The first thing that fails, or is not answered, ends the log with the error. Behind what `progress`
 * told, the file then has anything: more of the bytes, some of them behind a hole, or none. No byte is written to it
 * again.
 *
 * A log that waits for its source with all durable owes nothing, is no load, and keeps its connection open; ENOTCONN
 * when that is lost. ENOTSUP, before anything is pulled, where there is no ECFS_CAN_LOG.
 */
EcfsStream *ecfs_endpoint_log (EcfsEndpoint *self, const char *name, const EcfsSource *source);

/** The source that answered ECFS_PULL_LATER has something now. Any thread, any lock of the caller's held. */
void ecfs_stream_wake (EcfsStream *stream);

/**
 * Asks the request to end with ECANCELED soon; done still comes exactly once, possibly with another result. Bytes of a
 * cancelled read that still arrive are thrown away. Any thread, any lock of the caller's held.
 */
void ecfs_stream_cancel (EcfsStream *stream);
EcfsStream *ecfs_stream_ref (EcfsStream *stream);
void ecfs_stream_unref (EcfsStream *stream); /* does not cancel; NULL is accepted */

/* Digests that an endpoint makes of its own files. */
typedef struct EcfsHasher EcfsHasher;

typedef struct EcfsHashed {
    const char *name; /* of a stored file; borrowed */
    uint64_t size;    /* about: larger ones take longer */
    char *digest;     /* "KIND:HEX", owned; NULL: it could not be read */
} EcfsHashed;

/**
 * Has the endpoint run a hash tool for us. ENOTSUP with the reason where it does not, or its protocol has none. Blocks,
 * not from callbacks, until @goes_on, which is asked now and then, says no: ECANCELED. One thread at a time.
 */
EcfsHasher *ecfs_endpoint_hasher (EcfsEndpoint *self, bool (*goes_on) (void *user), void *user, GError **error);
/** Fills in the digests. False: the connection was lost, or was silent for too long; the hasher is of no use any more.
 */
bool ecfs_hasher_ask (EcfsHasher *self, EcfsHashed *files, size_t n, GError **error);
/** NULL is accepted. */
void ecfs_hasher_free (EcfsHasher *self);

/* @value: size in bytes for size, free bytes for space, otherwise 0. */
typedef void (*EcfsEndpointDone) (void *user, uint64_t value, const GError *error);

void ecfs_endpoint_remove (EcfsEndpoint *self, const char *name, EcfsEndpointDone done, void *user);
/** The same of what was retained for long enough, if there is such a time. */
void ecfs_endpoint_remove_aged (EcfsEndpoint *self, const char *name, EcfsEndpointDone done, void *user);
/**
 * Has a file stay locked for the time of ecfs_endpoint_lock_us () from now on, if its lock ends within a third of that.
 * No lock is shortened, or made one of another kind. The value is 1 where it was renewed, and 0 where it lasts. EPERM,
 * EACCES: the server refuses. ENOTSUP where nothing is locked.
 */
void ecfs_endpoint_renew (EcfsEndpoint *self, const char *name, EcfsEndpointDone done, void *user);
void ecfs_endpoint_size (EcfsEndpoint *self, const char *name, EcfsEndpointDone done, void *user);
void ecfs_endpoint_space (EcfsEndpoint *self, EcfsEndpointDone done, void *user);

/**
 * Removes a directory that has nothing in it; one that has fails. Nobody may store anything there meanwhile: a server
 * of WebDAV is asked what is in it, and told to remove it then. ENOENT when absent.
 */
void ecfs_endpoint_remove_directory (EcfsEndpoint *self, const char *name, EcfsEndpointDone done, void *user);

typedef struct EcfsListed {
    const char *name; /* relative to the root; borrowed for the call */
    uint64_t size;
    int64_t mtime_s;
} EcfsListed;

/** Every file at or below the directory @name ("" for all), in any order, but for directories and the marker. */
void ecfs_endpoint_list (EcfsEndpoint *self, const char *name, void (*each) (void *user, const EcfsListed *listed),
                         EcfsEndpointDone done, void *user);

/**
 * Writes or replaces the marker; makes the root directory when it is absent and its parent exists. With @create, a
 * marker that is already there is EEXIST and is told in the error. The endpoint expects the new identity from then on.
 * Without @create, an endpoint that expects an identity replaces no other one, nor writes where there is none:
 * ENOTCONN.
 */
void ecfs_endpoint_mark (EcfsEndpoint *self, const EcfsMarker *marker, bool create, EcfsEndpointDone done, void *user);

/**
 * Connects (urgently) and reads the marker whatever it says; *marker is valid in the callback when error is NULL.
 * ENOENT: the root has none.
 */
void ecfs_endpoint_examine (EcfsEndpoint *self,
                            void (*done) (void *user, const EcfsMarker *marker, const GError *error), void *user);

/* Blocking forms for verbs and tests; not from callbacks. They return when done, or with the error. */
bool ecfs_endpoint_mark_wait (EcfsEndpoint *self, const EcfsMarker *marker, bool create, GError **error);
bool ecfs_endpoint_examine_wait (EcfsEndpoint *self, EcfsMarker *ret_marker, GError **error);
bool ecfs_endpoint_read_wait (EcfsEndpoint *self, const char *name, const EcfsRange *ranges, size_t n_ranges,
                              GError **error);
/** @pieces without `done`. */
bool ecfs_endpoint_read_pieces_wait (EcfsEndpoint *self, const char *name, const EcfsPieces *pieces, GError **error);
bool ecfs_endpoint_write_wait (EcfsEndpoint *self, const char *name, const void *bytes, size_t size, GError **error);
bool ecfs_endpoint_remove_wait (EcfsEndpoint *self, const char *name, GError **error);
/** What was retained for long enough, as many at a time as the endpoint can. ret_errors[i] (n, NULL before): why
 * names[i] was not removed, which ENOENT is, too. */
void ecfs_endpoint_remove_all_wait (EcfsEndpoint *self, const char *const *names, size_t n, GError **ret_errors);
bool ecfs_endpoint_remove_directory_wait (EcfsEndpoint *self, const char *name, GError **error);
bool ecfs_endpoint_renew_wait (EcfsEndpoint *self, const char *name, bool *ret_renewed, GError **error);
/** Removes what uploads of @names have left in "incoming/" whose process or connection died; none may be under way.
 * What others opened before they knew a name for it goes when it is a day old. */
bool ecfs_endpoint_remove_unfinished_wait (EcfsEndpoint *self, const char *const *names, size_t n_names,
                                           GError **error);
/** As ecfs_endpoint_list (): @each is called from the endpoint's thread, one file after the other. */
bool ecfs_endpoint_list_wait (EcfsEndpoint *self, const char *name, void (*each) (void *user, const EcfsListed *listed),
                              void *user, GError **error);
bool ecfs_endpoint_size_wait (EcfsEndpoint *self, const char *name, uint64_t *ret_size, GError **error);
bool ecfs_endpoint_space_wait (EcfsEndpoint *self, uint64_t *ret_bytes, GError **error);

#endif
