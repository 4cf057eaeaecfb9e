/*
 * The inside of the drivers of gsiftp://, ftp:// and sshftp://: gridftp.c (options, the event loop), gridftp_child.c
 * (the helper process), gridftp_read.c, gridftp_write.c (requests), gridftp_text.c (what servers say).
 *
 * Each connection is a process, ecfs-gridftp-helper, that holds one control connection and does one operation at a time
 * (see gridftp_wire.h). A process, since the Globus libraries take the user's proxy and the trusted authorities from
 * the environment, which endpoints do not share; since it can be killed whatever the libraries are at; and since the
 * program then needs none of their libraries. File contents pass through memory that both map.
 *
 * The slot's thread does what is asked step by step and waits in ecfs_gridftp_hear (), so connections are cheap there
 * and states are few. Writes are the exception: one may have its PUT open while its source has nothing, and gives way
 * to other requests by ending that PUT; it goes on at the same offset with another.
 */
#ifndef ECFS_ENDPOINT_GRIDFTP_GRIDFTP_PRIV_H
#define ECFS_ENDPOINT_GRIDFTP_GRIDFTP_PRIV_H

#include "endpoint/core/claims.h"
#include "endpoint/core/driver.h"
#include "endpoint/gridftp/gridftp_text.h"
#include "endpoint/gridftp/gridftp_wire.h"
#include "endpoint/ssh/ssh_config.h"

#include <sys/types.h>

/* What the connections of an endpoint know together. */
typedef struct EcfsGridftpShared {
    EcfsClaims *committing;
    atomic_bool has_incoming; /* the directory was there once */
} EcfsGridftpShared;

typedef struct EcfsGridftpConfig {
    bool gsi;   /* with certificates */
    bool ssh;   /* what is said goes over ssh */
    char *host; /* as in the URL, without brackets */
    char *user; /* NULL: whom the gridmap says, or anonymous */
    char *base; /* URL of the root, without a slash at its end */
    char *protection, *subject, *password_file;
    char *user_proxy, *user_certificate, *user_key, *certificates; /* NULL: the usual places */
    bool trusts_data;                                              /* data connections are not authenticated */
    char *identity_file, *known_hosts, *ssh_config, *proxy_jump;
    EcfsSshRequest request; /* of these */
    char *server_program;
    bool extended;
    guint64 streams, tcp_buffer;
    EcfsGridftpShared *shared;
} EcfsGridftpConfig;

/* What reading tells of the line and of those who read. */
typedef struct EcfsGridftpPace {
    char *name;          /* of the file that was read last */
    uint64_t read_to;    /* end of what was wanted of it */
    uint64_t run_bytes;  /* of it in a row, up to there */
    int64_t begun_us;    /* when the GET under way brought something first; 0: it has not */
    uint64_t came_bytes; /* of it, later */
    uint64_t gap_bytes;  /* what comes while a GET begins */
} EcfsGridftpPace;

typedef struct EcfsGridftp {
    EcfsSlot *slot;
    const EcfsGridftpConfig *config;
    GError *broken; /* why the connection cannot be used any more; what the slot said when it has to end */

    pid_t pid;
    int fd;
    uint8_t *memory;
    EcfsGridftpMessage message; /* the last one heard, or as far as it has come */
    char *text;                 /* of it, terminated; ECFS_GRIDFTP_TEXT_MAX + 1 bytes */
    size_t n_heard;             /* bytes of both */

    /* A connection may be lost while nothing is asked, which only the next operation finds out: it is asked again. */
    EcfsGridftpMessage asked;
    char *asked_text;
    EcfsGridftpMessage sent[ECFS_GRIDFTP_N_BLOCKS]; /* blocks, in order */
    unsigned n_sent;
    bool has_served; /* the connection has answered something */
    bool may_redo;   /* nothing came of what was asked */

    bool is_new; /* the next operation has to log in, or to shake hands otherwise, first */

    EcfsGridftpPace pace;
    EcfsStream *next;    /* taken, not begun */
    EcfsStream *storing; /* the write whose PUT is open */
    GQueue writes;       /* EcfsStream, storing included, whose driver_data is an EcfsGridftpWrite */
    bool with_helper[ECFS_GRIDFTP_N_BLOCKS];
    unsigned n_with_helper;
    int64_t stored_since_us; /* when the PUT was opened */
    int64_t parked_us;       /* since when its source has nothing; 0: it has */
    int64_t asked_us;        /* when the server was asked something last */
} EcfsGridftp;

/** Whether a data connection costs so much that a GET rather brings more than was asked for. */
static inline bool ecfs_gridftp_reads_ahead (const EcfsGridftpConfig *config)
{
    return config->gsi && !config->trusts_data && !config->extended;
}

/* gridftp_child.c */

/** Starts the helper, which connects when it is asked for something. */
bool ecfs_gridftp_spawn (EcfsGridftp *self, GError **error);
void ecfs_gridftp_end (EcfsGridftp *self);

/** Begins an operation, with the URLs of the stored files @name and (may be NULL) @other. */
void ecfs_gridftp_ask (EcfsGridftp *self, EcfsGridftpType type, const char *name, const char *other, uint64_t offset,
                       uint64_t length);
/** Says anything else. */
void ecfs_gridftp_say (EcfsGridftp *self, const EcfsGridftpMessage *message);

typedef enum EcfsGridftpHeard {
    ECFS_GRIDFTP_HEARD,    /* self->message is it */
    ECFS_GRIDFTP_NEWS,     /* there may be something new in the slot, as cancelled requests */
    ECFS_GRIDFTP_TOO_LATE, /* the deadline has passed */
    ECFS_GRIDFTP_BROKEN,   /* self->broken says why */
} EcfsGridftpHeard;

/** Waits for the next message, until @deadline_us at most. */
EcfsGridftpHeard ecfs_gridftp_hear (EcfsGridftp *self, int64_t deadline_us);

/** The end of an operation, whose DONE was heard: true, or false with an error about @name; some break the connection.
 */
bool ecfs_gridftp_outcome (EcfsGridftp *self, const char *name, GError **error);
/** Waits for DONE of an operation that brings no blocks: then as outcome (). Past @deadline_us the connection breaks.
 */
bool ecfs_gridftp_await (EcfsGridftp *self, const char *name, int64_t deadline_us, GError **error);
/** Asks and awaits. */
bool ecfs_gridftp_do (EcfsGridftp *self, EcfsGridftpType type, const char *name, const char *other, GError **error);
/** Ends what is under way at once; the control connection ends with it, and another is made when one is needed. */
void ecfs_gridftp_abort (EcfsGridftp *self);
/** The first reason why the connection cannot go on; @error is taken. */
void ecfs_gridftp_break (EcfsGridftp *self, GError *error);
/** Finishes @request with @error (taken; may be NULL), unless the connection is broken: then the core fails it. */
void ecfs_gridftp_finish (EcfsGridftp *self, EcfsStream *request, uint64_t value, GError *error);

/** The facts of the stored file @name: ENOENT where there is none, EPROTO where it is anything but a file. */
bool ecfs_gridftp_facts (EcfsGridftp *self, const char *name, EcfsFacts *ret_facts, GError **error);

/* gridftp_read.c */
void ecfs_gridftp_read (EcfsGridftp *self, EcfsStream *request);
void ecfs_gridftp_size (EcfsGridftp *self, EcfsStream *request);
void ecfs_gridftp_list (EcfsGridftp *self, EcfsStream *request);
void ecfs_gridftp_examine (EcfsGridftp *self, EcfsStream *request);
/** Reads at most @size bytes of the beginning of @name. */
bool ecfs_gridftp_peek (EcfsGridftp *self, const char *name, char *to, size_t size, size_t *ret_size, GError **error);

/* gridftp_write.c */
void ecfs_gridftp_write_begin (EcfsGridftp *self, EcfsStream *request);
/** Moves writes on until their sources have nothing or others may want a turn. False: none moved. */
bool ecfs_gridftp_write_step (EcfsGridftp *self);
/** Ends the PUT that is open, so that something else can be done; its write goes on later. */
void ecfs_gridftp_write_suspend (EcfsGridftp *self);
/** Whether others may be served: no PUT is open, or it may be ended for their sake. */
bool ecfs_gridftp_write_gives_way (const EcfsGridftp *self);
/** Forgets all writes; the core fails them. */
void ecfs_gridftp_write_abandon (EcfsGridftp *self);
void ecfs_gridftp_remove (EcfsGridftp *self, EcfsStream *request);
void ecfs_gridftp_rmdir (EcfsGridftp *self, EcfsStream *request);
void ecfs_gridftp_mark (EcfsGridftp *self, EcfsStream *request);

#endif
