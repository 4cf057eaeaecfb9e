/*
 * The inside of the sftp:// driver: sftp.c (options, the event loop), sftp_connect.c, sftp_engine.c (packets in and
 * out), sftp_root.c (what files need in the root), sftp_read.c, sftp_write.c, sftp_ops.c (operations), sftp_ahead.c
 * (files that are opened before they are needed), sftp_help.c (files that several connections store together),
 * sftp_log.c.
 *
 * A connection belongs to its slot's thread, but while that waits for events: then who has a read begins it. An
 * operation serves one request of the core and waits for any number of replies at once; each reply finds its function
 * through the packet's id. An operation lives until its request is finished and the last of its replies has come: a
 * request that is given up is finished at once and its operation lives on without it, to throw away what still comes.
 */
#ifndef ECFS_ENDPOINT_SFTP_SFTP_PRIV_H
#define ECFS_ENDPOINT_SFTP_SFTP_PRIV_H

#include "endpoint/core/driver.h"
#include "endpoint/sftp/sftp_protocol.h"
#include "endpoint/ssh/ssh_transport.h"

#define ECFS_SFTP_MAX_REMEMBERED_DIRS 100000
#define ECFS_SFTP_N_REMOVED           64

/* What the connections of an endpoint know together. */
typedef struct EcfsSftpShared {
    EcfsMutex lock;
    GHashTable *directories;            /* names known to exist; guarded by lock */
    char *removed[ECFS_SFTP_N_REMOVED]; /* the latest, by number modulo the size; guarded by lock */
    uint64_t n_removed;                 /* guarded by lock */
    bool libssh2_is_better;             /* was found out while connecting; guarded by lock */
    GQueue offers;                      /* EcfsSftpHelp by link, where help is wanted; guarded by lock */
    unsigned n_helping;                 /* connections; guarded by lock */
    unsigned n_refused;                 /* files that the server let nobody else open; guarded by lock */
    atomic_uint n_offers;               /* length of offers, for a look without the lock */
} EcfsSftpShared;

/* What carries SFTP: the option "transport". */
typedef enum EcfsSftpCarrier { ECFS_SFTP_OVER_EITHER, ECFS_SFTP_OVER_OPENSSH, ECFS_SFTP_OVER_LIBSSH2 } EcfsSftpCarrier;

typedef struct EcfsSftpConfig {
    EcfsSshRequest request; /* points into the strings below */
    char *host, *user, *identity_file, *known_hosts, *password_file, *proxy_jump, *ssh_config;
    unsigned directory_mode; /* of what is made there; files have the same without x */
    EcfsSftpCarrier carrier;
    char *root; /* for the server: absolute, or relative to the login directory; no slash at the end but in "/" */
    EcfsSftpShared *shared;
} EcfsSftpConfig;

typedef struct EcfsSftp EcfsSftp;

typedef struct EcfsSftpOp {
    EcfsStream *request; /* NULL once it is finished */
    unsigned n_pending;  /* replies that are still to come */
    GList link;          /* in the connection's ops */
    /* No reply is owed and nothing of it is being sent, but its request is not finished; may be NULL. */
    void (*idle) (EcfsSftp *self, struct EcfsSftpOp *op);
    /* The request was cancelled; called once, with the request there. */
    void (*cancel) (EcfsSftp *self, struct EcfsSftpOp *op);
    /* Frees it; the connection may have ended. */
    void (*free) (EcfsSftp *self, struct EcfsSftpOp *op);
    bool cancelled;
    bool stays; /* serves no request of its own, but has work: as if it had one */
} EcfsSftpOp;

/* Called with the reply to a request packet; DATA replies have been read into the part before. */
typedef void (*EcfsSftpReplyFunc) (EcfsSftp *self, void *data, const EcfsSftpReply *reply);

#define ECFS_SFTP_LOOK_US G_USEC_PER_SEC /* at requests that others have overtaken */

/* Where the data of a READ goes. */
typedef struct EcfsSftpPart {
    uint8_t *to; /* NULL: thrown away */
    size_t size; /* asked for */
    size_t got;
    void (*filled) (EcfsSftp *self, struct EcfsSftpPart *part); /* some arrived; may be NULL */
} EcfsSftpPart;

/* How many bytes to keep outstanding: 1.5 × rate × round trip (with a little for the turns of the programs), within
 * bounds. */
typedef struct EcfsSftpWindow {
    size_t least;
    size_t limit;
    size_t outstanding;
    uint64_t moved; /* since since_us */
    int64_t since_us;
    int64_t empty_us; /* when nothing was outstanding last */
    bool full;        /* more would have been asked for since since_us */
    bool slack;       /* and there was a time when nothing more was */
} EcfsSftpWindow;

/* The temporary file of the next small write. */
typedef struct EcfsSftpAhead {
    char *temporary;       /* NULL: none */
    uint32_t id;           /* of the packet that opens it; 0: it is answered */
    EcfsSftpHandle handle; /* size 0: not open yet */
    int64_t noted_us;      /* when a file was stored last */
    unsigned n_small;      /* stored in a row */
} EcfsSftpAhead;

struct EcfsSftp {
    EcfsSlot *slot;
    const EcfsSftpConfig *config;
    EcfsSshTransport *transport;
    unsigned extensions;
    size_t read_bytes;  /* of one READ at most */
    size_t write_bytes; /* of one WRITE at most */
    bool root_refused;  /* the root could not be made for lack of permission */
    bool serial;        /* the server serves one request after the other */
    GError *broken;     /* why the connection cannot be used any more */

    uint32_t next_id;
    GHashTable *pending; /* id → Pending */
    unsigned n_syncs;    /* of these: fsync */
    int64_t answered_us; /* when the last of those was asked that are answered */
    int64_t looked_us;   /* … for those that are not */

    GByteArray *out; /* packets to send, before the payload */
    size_t out_at;
    const uint8_t *payload; /* data of the WRITE whose header ends @out; lent by its operation */
    size_t payload_left;
    uint32_t payload_id;
    EcfsSftpOp *payload_op;
    GByteArray *behind; /* packets to send after the payload */

    uint8_t head[ECFS_SFTP_DATA_BYTES];
    size_t n_head;
    GByteArray *packet; /* a reply other than DATA, as far as it has come */
    size_t packet_bytes;
    struct EcfsSftpPending *data; /* the READ whose DATA is coming */
    size_t data_left;
    size_t moved_bytes; /* of a reply, since … */
    bool arrived;       /* … enough came to set the stall clock again */
    EcfsOwes owed;      /* what it was set for */
    int64_t busy_us;    /* when there was an operation last */

    GQueue ops;
    GQueue reads;  /* those with a request, in the order in which they came */
    GQueue writes; /* those with a request */
    GQueue logs;   /* those with a request */
    GQueue files;  /* open for reading, latest first */
    EcfsSftpAhead ahead;
    struct EcfsSftpHelper *helper; /* NULL: it helps nobody */
    uint64_t n_removed_seen;

    int64_t rtt_us; /* the least that was seen */
    int64_t rtt_sent_us;
    uint32_t rtt_id; /* measured by this reply; 0: none */
    EcfsSftpWindow read_window, write_window;
};

/* sftp_connect.c */
void *ecfs_sftp_connect (EcfsSlot *slot, bool with_root, GError **error);
void ecfs_sftp_disconnect (void *connection);

/* sftp_engine.c */

void ecfs_sftp_engine_init (EcfsSftp *self);
void ecfs_sftp_engine_clear (EcfsSftp *self);

/** The connection cannot go on: @code and a text. The first one counts. */
void ecfs_sftp_break (EcfsSftp *self, int code, const char *format, ...) G_GNUC_PRINTF (3, 4);

/** The id for a request packet whose reply goes to @func; @op (may be NULL) waits for it. */
uint32_t ecfs_sftp_expect (EcfsSftp *self, EcfsSftpOp *op, EcfsSftpReplyFunc func, void *data);
/** The same for a READ whose data goes to @part. */
uint32_t ecfs_sftp_expect_data (EcfsSftp *self, EcfsSftpOp *op, EcfsSftpReplyFunc func, EcfsSftpPart *part);
/** Has the reply to packet @id, which no operation waited for, wait for @op. */
void ecfs_sftp_redirect (EcfsSftp *self, uint32_t id, EcfsSftpOp *op, EcfsSftpReplyFunc func, void *data);
/** For replies that tell nothing. */
void ecfs_sftp_ignore (EcfsSftp *self, void *data, const EcfsSftpReply *reply);

/** Where packets are put: behind a payload that is being sent. */
GByteArray *ecfs_sftp_out (EcfsSftp *self);
/** Whether a WRITE can be begun now. */
bool ecfs_sftp_payload_free (const EcfsSftp *self);
/** Sends @bytes, which stay the caller's, right behind the header just put of WRITE @id. */
void ecfs_sftp_payload (EcfsSftp *self, EcfsSftpOp *op, uint32_t id, const uint8_t *bytes, size_t size);

/** Sends what can be sent without waiting. False: broken. */
bool ecfs_sftp_output (EcfsSftp *self);
/** Sends the same for a thread that is not the slot's: calls nobody back. False: not all went, or it is broken. */
bool ecfs_sftp_output_some (EcfsSftp *self);
/** Takes what has come. False: broken. *ret_any: something had. */
bool ecfs_sftp_input (EcfsSftp *self, bool *ret_any);
/** Breaks the connection where a request is not answered while later ones are. The stall clock is for all. */
void ecfs_sftp_check_overtaken (EcfsSftp *self);
/** Blocks until no reply is owed any more, for connecting. False: broken, too late or given up. */
bool ecfs_sftp_drain (EcfsSftp *self, const EcfsSshWait *wait, GError **error);
/** Sends INIT and waits for VERSION. */
bool ecfs_sftp_greet (EcfsSftp *self, const EcfsSshWait *wait, GError **error);

/** Sets the windows for a line of which only the round trip is known. */
void ecfs_sftp_window_start (EcfsSftp *self);
/** Whether @size more bytes may be asked for. */
bool ecfs_sftp_window_room (EcfsSftpWindow *window, size_t size);
void ecfs_sftp_window_add (EcfsSftpWindow *window, size_t size);
/** @size bytes of those outstanding came (or never will: then @moved is 0). */
void ecfs_sftp_window_take (EcfsSftpWindow *window, size_t size, size_t moved, int64_t rtt_us);

/** Path of the stored file @name for the server; g_free (). */
char *ecfs_sftp_path (const EcfsSftp *self, const char *name);
/** The status of a reply, or breaks the connection and returns FAILURE when the reply is no STATUS. */
uint32_t ecfs_sftp_status (EcfsSftp *self, const EcfsSftpReply *reply);
/** An error of a reply that is not success: the errno of its status, @name, and the server's words. */
GError *ecfs_sftp_error (const EcfsSftpReply *reply, EcfsSftpOperation operation, const char *name);

/** Adds an operation for @request (its driver_data) to the connection. */
void ecfs_sftp_op_begin (EcfsSftp *self, EcfsSftpOp *op, EcfsStream *request);
/** Finishes its request, if it still has one; @error is taken. */
void ecfs_sftp_op_finish (EcfsSftp *self, EcfsSftpOp *op, uint64_t value, GError *error);
/** Calls idle (), or frees it, when nothing is under way for it. It may be gone afterwards. */
void ecfs_sftp_op_settle (EcfsSftp *self, EcfsSftpOp *op);

/* sftp_read.c */
void ecfs_sftp_read_begin (EcfsSftp *self, EcfsStream *request);
/** Asks for as much as the window has room for. */
void ecfs_sftp_read_issue (EcfsSftp *self);
/** Closes files that were removed or have not been used for a while. */
void ecfs_sftp_read_tidy (EcfsSftp *self);
void ecfs_sftp_files_clear (EcfsSftp *self);
/** Tells all connections that @name is gone. */
void ecfs_sftp_note_removed (EcfsSftpShared *shared, const char *name);

/* sftp_write.c: also stores markers */
void ecfs_sftp_write_begin (EcfsSftp *self, EcfsStream *request);
/** Begins a WRITE where a source has bytes. True: it did. */
bool ecfs_sftp_write_issue (EcfsSftp *self);
/** Whether there is a file for which a RENAME may be on its way, or which is being taken back. */
bool ecfs_sftp_is_committing (const EcfsSftp *self);
/** Once per turn: gives away what this connection cannot send now, and counts what others did with it. */
void ecfs_sftp_write_share (EcfsSftp *self);

/* sftp_root.c */

/** Puts a MKDIR for each directory on the way to @name that is not known to exist. */
void ecfs_sftp_make_parents (EcfsSftp *self, EcfsSftpOp *op, const char *name);
/** Notes for all connections whether they exist. */
void ecfs_sftp_note_parents (EcfsSftp *self, const char *name, bool exist);

/* A look for the marker. */
typedef struct EcfsSftpLook {
    EcfsSftpOp *op;
    GError **error; /* becomes ENOTCONN where there is none, whatever it was */
    bool absent;    /* it was not there once, where it may be replaced just now */
} EcfsSftpLook;

/** Puts what asks for the marker. False: there need not be one. */
bool ecfs_sftp_look (EcfsSftp *self, EcfsSftpLook *look);
/** Puts what asks why a write failed; the reply goes to @func. False: the server cannot tell. */
bool ecfs_sftp_ask_room (EcfsSftp *self, EcfsSftpOp *op, EcfsSftpReplyFunc func, void *data);
/** Whether that is for lack of room. */
bool ecfs_sftp_says_full (const EcfsSftpReply *reply);

/* sftp_help.c */

typedef struct EcfsSftpHelp EcfsSftpHelp;

/* Bytes of a file that any connection may send. */
typedef struct EcfsSftpPiece {
    const uint8_t *bytes; /* lent to the lead */
    size_t size;
    uint64_t offset;
    void *part; /* the lead's own */
    GList link;
} EcfsSftpPiece;

/** Offers others to store @name, as yet @temporary, with self, the lead. NULL: nobody would. */
EcfsSftpHelp *ecfs_sftp_help_offer (EcfsSftp *self, const char *name, const char *temporary);
/** The lead could use (more) help now: has others look, now and then. */
void ecfs_sftp_help_call (EcfsSftp *self, EcfsSftpHelp *help);
/** Whether helpers should have more pieces. */
bool ecfs_sftp_help_wants (EcfsSftpHelp *help);
/** Adds @piece, which is taken, to those that whoever comes first sends. */
void ecfs_sftp_help_put (EcfsSftpHelp *help, EcfsSftpPiece *piece);
/** The next piece that nobody has begun to send, for the lead to send it. NULL: none. g_free () */
EcfsSftpPiece *ecfs_sftp_help_reclaim (EcfsSftpHelp *help);
/** A piece that the server acknowledged to a helper. NULL: none. g_free () */
EcfsSftpPiece *ecfs_sftp_help_collect (EcfsSftpHelp *help);
/** No more will be put; helpers leave once there is none left. */
void ecfs_sftp_help_end (EcfsSftpHelp *help);
/** Whether all was stored and all have left; *ret_error when what they stored cannot be relied on. */
bool ecfs_sftp_help_is_over (EcfsSftpHelp *help, GError **ret_error);
/** The lead leaves: lent bytes are not looked at any more. NULL is accepted. */
void ecfs_sftp_help_withdraw (EcfsSftpHelp *help);

/**
 * Once per turn: begins to help another connection, where that is wanted and this one has nothing to do, and leaves one
 * that needs no more.
 */
void ecfs_sftp_help_turn (EcfsSftp *self);
/** Puts the next packet for the connection that self helps. True: it did. */
bool ecfs_sftp_help_issue (EcfsSftp *self);

/* sftp_ahead.c */

/** The packets that commit a file were put; @small ones in a row have the file of the next opened. */
void ecfs_sftp_ahead_note (EcfsSftp *self, bool small);
/**
 * The name of the file that was opened, or NULL; g_free (). It is @op's: *ret_handle of size 0 says that the reply is
 * still to come, and goes to @func with @op as its data.
 */
char *ecfs_sftp_ahead_take (EcfsSftp *self, EcfsSftpOp *op, EcfsSftpReplyFunc func, EcfsSftpHandle *ret_handle);
/** Removes a file that nobody came for. */
void ecfs_sftp_ahead_tidy (EcfsSftp *self);
/** Removes it before the connection ends, where the server is quick to answer. */
void ecfs_sftp_ahead_end (EcfsSftp *self);

/* sftp_log.c */
void ecfs_sftp_log_begin (EcfsSftp *self, EcfsStream *request);
/** Puts what logs have to send. True: there was something. */
bool ecfs_sftp_log_issue (EcfsSftp *self);
/** Whether there is a log that may be in the wrong place, or that is being taken back. */
bool ecfs_sftp_is_making_log (const EcfsSftp *self);
/** Whether there is nothing but logs that wait for their sources. */
bool ecfs_sftp_is_at_rest (const EcfsSftp *self);

/* sftp_hash.c */
EcfsHasher *ecfs_sftp_hasher (const void *config, const EcfsHasherTerms *terms, GError **error);

/* sftp_ops.c */
void ecfs_sftp_remove_begin (EcfsSftp *self, EcfsStream *request);
void ecfs_sftp_rmdir_begin (EcfsSftp *self, EcfsStream *request);
void ecfs_sftp_size_begin (EcfsSftp *self, EcfsStream *request);
void ecfs_sftp_space_begin (EcfsSftp *self, EcfsStream *request);
void ecfs_sftp_list_begin (EcfsSftp *self, EcfsStream *request);
/** Serves an examine request; or ends a mark request by telling whose marker is there. */
void ecfs_sftp_examine_begin (EcfsSftp *self, EcfsStream *request);

#endif
