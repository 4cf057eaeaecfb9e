/*
 * Storing over SFTP: a temporary file, then a rename that never replaces (OpenSSH makes it of link and unlink). Packets
 * are sent ahead of their replies wherever the order in which the server serves them makes that safe:
 *
 *   state       replies awaited                                  moved on by
 *   OPENING     missing directories, OPEN (see sftp_ahead.c)     the last of them → STREAMING, or CLEANING
 *   STREAMING   WRITEs                                           the source's end → COMMITTING (once all are
 *                                                                acknowledged, unless the file is small); an error or
 *                                                                a cancel → CLEANING when the last reply is there
 *   COMMITTING  the rest of the WRITEs, fsync, CLOSE, STAT,      the last of them → finished, RENAMING, CHECKING or
 *               RENAME, STAT of the marker                       CLEANING
 *   RENAMING    directories that had vanished, RENAME, STAT      the last of them → finished, CHECKING or CLEANING
 *   CHECKING    STAT, as the first told another size             its → finished or CLEANING
 *   CLEANING    why it failed; CLOSE, REMOVE                     the last of them → finished with the error
 *
 * Servers may serve WRITEs to an open file side by side with what is asked about it (Go's do), but none closes a file
 * before they are done: so the size is asked for behind CLOSE, by path.
 *
 * The marker is looked for before directories are made that were there, and behind each RENAME: what an unmounted root
 * took is not stored.
 *
 * Where other connections help with a file (sftp_help.c), what they were given counts as WRITEs of this one.
 *
 * Markers go the same way, with their text for a source.
 *
 * Where nothing may be removed, a file is opened under its final name: nothing is renamed, and CLEANING removes
 * nothing.
 */
#include "endpoint/sftp/sftp_priv.h"

#include <inttypes.h>
#include <string.h>

#define SMALL_BYTES (256 * 1024)       /* up to here a file is committed without waiting for its WRITEs */
#define SYNC_BYTES  (64 * 1024 * 1024) /* fsync now and then, so that the last one is no stall */
#define HELP_ABOVE  (2 * 1024 * 1024)  /* sent of a file before others help with it */
#define HELP_RTT_US (20 * 1000)        /* and the round trip from which on it is worth it, as for the core */
#define AHEAD_BYTES (32 * 1024 * 1024) /* sent behind the first byte that is not stored */

typedef enum WriteState {
    WRITE_OPENING,
    WRITE_STREAMING,
    WRITE_COMMITTING,
    WRITE_RENAMING,
    WRITE_CHECKING,
    WRITE_CLEANING,
} WriteState;

typedef struct SftpWrite {
    EcfsSftpOp op;
    WriteState state;
    const char *name; /* final */
    char *temporary;
    EcfsSftpHandle handle; /* size 0: not open */
    bool replace;          /* markers */
    bool in_place;         /* temporary is the final name */
    bool retried;          /* the open or the rename, after making directories */
    bool ended;            /* the source has no more */
    bool renamed;
    bool missing;  /* a reply said that a directory is missing */
    bool looked;   /* for the marker, before directories were made anew */
    bool doubtful; /* the size told last is not what was sent */
    EcfsSftpLook look;
    GError *error;
    EcfsSftpOperation failed; /* what gave the error, where it was a plain failure */

    const uint8_t *bytes; /* pulled, not yet sent */
    size_t n_bytes;
    uint64_t sent, acknowledged, synced;
    GQueue parts; /* of SftpWritten, in order */
    GList link;   /* in writes */

    EcfsSftpHelp *help; /* NULL: not asked for */
    bool alone;         /* nobody could help */
} SftpWrite;

/* One WRITE that was sent, or waits for the connection that sends it. */
typedef struct SftpWritten {
    SftpWrite *write;
    size_t size;
    uint64_t end;
    bool done;
} SftpWritten;

static void write_free (EcfsSftp *self, EcfsSftpOp *op)
{
    SftpWrite *write = (SftpWrite *) op;
    ecfs_sftp_help_withdraw (write->help);
    g_queue_clear_full (&write->parts, g_free);
    g_clear_error (&write->error);
    g_free (write->temporary);
    g_free (write);
}

/* The first error counts. */
static void note_error (SftpWrite *write, GError *error)
{
    if (write->error == NULL)
        write->error = error;
    else
        g_error_free (error);
}

static void note_failure (EcfsSftp *self, SftpWrite *write, const EcfsSftpReply *reply, EcfsSftpOperation operation)
{
    if (ecfs_sftp_status (self, reply) == ECFS_SFTP_FAILURE && write->error == NULL)
        write->failed = operation;
    note_error (write, ecfs_sftp_error (reply, operation, write->name));
}

/* Only files of the archive are worth nothing without the marker. False: there is none to look for. */
static bool put_look (EcfsSftp *self, SftpWrite *write)
{
    return write->op.request->kind == ECFS_REQUEST_WRITE && ecfs_sftp_look (self, &write->look);
}

/* Steps */

static void on_open (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpWrite *write = data;
    if (reply->type == ECFS_SFTP_HANDLE) {
        write->handle = reply->handle;
        ecfs_sftp_note_parents (self, write->temporary, true);
    } else if (ecfs_sftp_status (self, reply) == ECFS_SFTP_NO_SUCH_FILE && !write->retried) {
        write->missing = true;
    } else {
        note_failure (self, write, reply, ECFS_SFTP_ON_OPEN);
    }
}

static void put_open (EcfsSftp *self, SftpWrite *write)
{
    write->state = WRITE_OPENING;
    write->missing = false;
    ecfs_sftp_make_parents (self, &write->op, write->temporary);
    ecfs_sftp_make_parents (self, &write->op, write->name);
    g_autofree char *path = ecfs_sftp_path (self, write->temporary);
    ecfs_sftp_put_create (ecfs_sftp_out (self), ecfs_sftp_expect (self, &write->op, on_open, write), path,
                          ECFS_SFTP_OPEN_WRITE | ECFS_SFTP_OPEN_CREATE | ECFS_SFTP_OPEN_EXCLUSIVE,
                          write->in_place ? ECFS_IN_PLACE_MODE | (self->config->directory_mode & 0044)
                                          : self->config->directory_mode & 0666);
}

static void on_commit (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpWrite *write = data;
    if (ecfs_sftp_status (self, reply) != ECFS_SFTP_OK)
        note_failure (self, write, reply, ECFS_SFTP_ON_COMMIT);
}

static void on_sync (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    self->n_syncs--;
    on_commit (self, data, reply);
}

static void on_rename (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpWrite *write = data;
    uint32_t status = ecfs_sftp_status (self, reply);
    write->renamed = status == ECFS_SFTP_OK;
    if (status == ECFS_SFTP_NO_SUCH_FILE && !write->retried)
        write->missing = true;
    else if (status != ECFS_SFTP_OK)
        note_failure (self, write, reply, ECFS_SFTP_ON_RENAME);
}

static void put_remove (EcfsSftp *self, SftpWrite *write, const char *name)
{
    g_autofree char *path = ecfs_sftp_path (self, name);
    ecfs_sftp_put_path (ecfs_sftp_out (self), ECFS_SFTP_REMOVE,
                        ecfs_sftp_expect (self, &write->op, ecfs_sftp_ignore, NULL), path);
}

static void put_rename (EcfsSftp *self, SftpWrite *write)
{
    bool replace = write->replace && (self->extensions & ECFS_SFTP_HAS_POSIX_RENAME) != 0;
    if (write->replace && !replace)
        put_remove (self, write, write->name);
    g_autofree char *from = ecfs_sftp_path (self, write->temporary);
    g_autofree char *to = ecfs_sftp_path (self, write->name);
    write->missing = false;
    ecfs_sftp_put_rename (ecfs_sftp_out (self), ecfs_sftp_expect (self, &write->op, on_rename, write), from, to,
                          replace);
    (void) put_look (self, write);
}

static void put_sync (EcfsSftp *self, SftpWrite *write)
{
    if ((self->extensions & ECFS_SFTP_HAS_FSYNC) != 0) {
        self->n_syncs++;
        ecfs_sftp_put_fsync (ecfs_sftp_out (self), ecfs_sftp_expect (self, &write->op, on_sync, write), &write->handle);
    }
    write->synced = write->sent;
}

static void put_close (EcfsSftp *self, SftpWrite *write, EcfsSftpReplyFunc func)
{
    ecfs_sftp_put_handle (ecfs_sftp_out (self), ECFS_SFTP_CLOSE, ecfs_sftp_expect (self, &write->op, func, write),
                          &write->handle);
    write->handle.size = 0;
}

/* A server that acknowledges what it does not keep is found out before anybody relies on the file. One that told the
 * size too early, before it had served what was sent before, is asked again when nothing is under way. */
static void on_size (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpWrite *write = data;
    bool gone = reply->type == ECFS_SFTP_STATUS && reply->status == ECFS_SFTP_NO_SUCH_FILE;
    bool differs = reply->type == ECFS_SFTP_ATTRS && reply->attrs.has_size && reply->attrs.size != write->sent;
    write->doubtful = gone || differs;
    if (write->doubtful && write->state == WRITE_CHECKING)
        note_error (write, g_error_new (ECFS_ERROR, EIO,
                                        "%s: the server keeps %" PRIu64 " of the %" PRIu64
                                        " bytes that it acknowledged: check its disk",
                                        write->name, gone ? 0 : reply->attrs.size, write->sent));
}

static void put_size (EcfsSftp *self, SftpWrite *write, const char *name)
{
    g_autofree char *path = ecfs_sftp_path (self, name);
    ecfs_sftp_put_path (ecfs_sftp_out (self), ECFS_SFTP_STAT, ecfs_sftp_expect (self, &write->op, on_size, write),
                        path);
}

static void commit (EcfsSftp *self, SftpWrite *write)
{
    write->state = WRITE_COMMITTING;
    put_sync (self, write);
    put_close (self, write, on_commit);
    put_size (self, write, write->temporary);
    if (write->in_place)
        (void) put_look (self, write);
    else
        put_rename (self, write);
    if (write->op.request->kind == ECFS_REQUEST_WRITE && !write->in_place)
        ecfs_sftp_ahead_note (self, write->sent <= SMALL_BYTES);
}

/* Failing */

static void on_target (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpWrite *write = data;
    g_clear_error (&write->error);
    if (reply->type == ECFS_SFTP_ATTRS)
        g_set_error (&write->error, ECFS_ERROR, EEXIST, "%s: exists already", write->name);
    else
        g_set_error (&write->error, ECFS_ERROR, EIO, "%s: the server could not %s it there (does its disk work?)",
                     write->name, write->in_place ? "make" : "rename");
}

static void is_not_full (SftpWrite *write)
{
    g_clear_error (&write->error);
    g_set_error (&write->error, ECFS_ERROR, EIO,
                 "%s: the server could not write (is there a quota, does its disk work?)", write->name);
}

static void on_space (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpWrite *write = data;
    if (ecfs_sftp_says_full (reply))
        write->error->code = ENOSPC;
    else if (write->failed != ECFS_SFTP_ON_OPEN)
        is_not_full (write);
}

/* The reason of a plain failure is asked for before the cleaning changes it. */
static void clean (EcfsSftp *self, SftpWrite *write)
{
    write->state = WRITE_CLEANING;
    write->n_bytes = 0;
    ecfs_sftp_help_withdraw (g_steal_pointer (&write->help));
    if (write->failed == ECFS_SFTP_ON_RENAME || (write->in_place && write->failed == ECFS_SFTP_ON_OPEN)) {
        g_autofree char *path = ecfs_sftp_path (self, write->name);
        ecfs_sftp_put_path (ecfs_sftp_out (self), ECFS_SFTP_STAT, ecfs_sftp_expect (self, &write->op, on_target, write),
                            path);
    } else if (write->failed != ECFS_SFTP_ON_OTHER) {
        if (!ecfs_sftp_ask_room (self, &write->op, on_space, write) && write->failed != ECFS_SFTP_ON_OPEN)
            is_not_full (write);
    }
    if (write->handle.size > 0)
        put_close (self, write, ecfs_sftp_ignore);
    if (!write->in_place)
        put_remove (self, write, write->renamed ? write->name : write->temporary);
}

static void write_finish (EcfsSftp *self, SftpWrite *write)
{
    EcfsStream *request = write->op.request;
    if (g_queue_find (&self->writes, write) != NULL)
        g_queue_unlink (&self->writes, &write->link);
    if (request->kind == ECFS_REQUEST_MARK && request->create && write->error != NULL && write->error->code == EEXIST) {
        write->op.request = NULL;
        request->driver_data = NULL;
        ecfs_sftp_examine_begin (self, request);
        return;
    }
    ecfs_sftp_op_finish (self, &write->op, 0, g_steal_pointer (&write->error));
}

static void end_badly (EcfsSftp *self, SftpWrite *write)
{
    clean (self, write);
    if (write->op.n_pending == 0) /* there was nothing to clean */
        write_finish (self, write);
}

/* Whether the connection was told to give this up. */
static bool given_up (SftpWrite *write)
{
    if (write->error == NULL && ecfs_request_cancelled (write->op.request))
        g_set_error (&write->error, ECFS_ERROR, ECANCELED, "%s: cancelled", write->name);
    return write->error != NULL;
}

/* All bytes are with the server, wherever they went. */
static bool is_streamed (SftpWrite *write)
{
    GError *error = NULL;
    if (!write->ended || (write->help != NULL && !ecfs_sftp_help_is_over (write->help, &error)))
        return false;
    if (error == NULL)
        return true;
    if (error->code == ENOSPC) /* as after a plain failure: on_space () finds out */
        write->failed = ECFS_SFTP_ON_COMMIT;
    note_error (write, error);
    return true;
}

/* All replies are there: the next state. */
static void write_idle (EcfsSftp *self, EcfsSftpOp *op)
{
    SftpWrite *write = (SftpWrite *) op;
    if (self->broken != NULL)
        return;
    if (write->state == WRITE_CLEANING) {
        write_finish (self, write);
        return;
    }
    if (write->error != NULL || (write->state <= WRITE_STREAMING && given_up (write))) {
        end_badly (self, write);
        return;
    }
    switch (write->state) {
    case WRITE_OPENING:
        if (write->missing && !write->looked && put_look (self, write)) {
            write->looked = true;
        } else if (write->missing) {
            write->retried = true;
            ecfs_sftp_note_parents (self, write->temporary, false);
            put_open (self, write);
        } else {
            write->retried = false;
            write->state = WRITE_STREAMING;
        }
        break;
    case WRITE_STREAMING:
        if (is_streamed (write) && write->error == NULL)
            commit (self, write);
        else if (write->error != NULL)
            end_badly (self, write);
        break;
    case WRITE_COMMITTING:
    case WRITE_RENAMING:
    case WRITE_CHECKING:
        if (write->missing) {
            write->retried = true;
            write->state = WRITE_RENAMING;
            ecfs_sftp_note_parents (self, write->name, false);
            ecfs_sftp_make_parents (self, &write->op, write->name);
            put_rename (self, write);
        } else if (write->doubtful) {
            write->state = WRITE_CHECKING;
            put_size (self, write, write->name);
        } else {
            ecfs_sftp_note_parents (self, write->name, true);
            write_finish (self, write);
        }
        break;
    case WRITE_CLEANING:
        break;
    }
}

static void write_cancel (EcfsSftp *self, EcfsSftpOp *op)
{
    SftpWrite *write = (SftpWrite *) op;
    if (write->state <= WRITE_STREAMING)
        (void) given_up (write); /* goes on in write_idle () */
}

/* Streaming */

static void acknowledge (SftpWrite *write)
{
    SftpWritten *part;
    uint64_t before = write->acknowledged;
    while ((part = g_queue_peek_head (&write->parts)) != NULL && part->done) {
        write->acknowledged = part->end;
        g_free (g_queue_pop_head (&write->parts));
    }
    /* What helpers store does not make up for a connection that stalls: the clock of that one goes on. */
    if (write->acknowledged > before && write->error == NULL && write->op.request->kind == ECFS_REQUEST_WRITE)
        ecfs_request_acknowledge (write->op.request, write->acknowledged);
}

static void on_write (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpWritten *part = data;
    SftpWrite *write = part->write;
    bool ok = ecfs_sftp_status (self, reply) == ECFS_SFTP_OK;
    if (self->broken != NULL)
        return;
    ecfs_sftp_window_take (&self->write_window, part->size, part->size, self->rtt_us);
    part->done = true;
    if (!ok)
        note_failure (self, write, reply, ECFS_SFTP_ON_WRITE);
    acknowledge (write);
}

/* The next part of what was pulled, whose bytes go to @ret_bytes. */
static SftpWritten *cut_part (EcfsSftp *self, SftpWrite *write, const uint8_t **ret_bytes)
{
    SftpWritten *part = g_new0 (SftpWritten, 1);
    part->write = write;
    part->size = MIN (write->n_bytes, self->write_bytes);
    part->end = write->sent + part->size;
    g_queue_push_tail (&write->parts, part);
    *ret_bytes = write->bytes;
    write->bytes += part->size;
    write->n_bytes -= part->size;
    write->sent = part->end;
    return part;
}

static void send_part (EcfsSftp *self, SftpWrite *write, SftpWritten *part, const uint8_t *bytes)
{
    ecfs_sftp_window_add (&self->write_window, part->size);
    uint32_t id = ecfs_sftp_expect (self, &write->op, on_write, part);
    ecfs_sftp_put_write (self->out, id, &write->handle, part->end - part->size, (uint32_t) part->size);
    ecfs_sftp_payload (self, &write->op, id, bytes, part->size);
    if (write->sent - write->synced >= SYNC_BYTES)
        put_sync (self, write);
}

/* The next bytes to send. False: none now. */
static bool pull (SftpWrite *write)
{
    if (write->n_bytes > 0)
        return true;
    if (write->op.request->kind == ECFS_REQUEST_MARK) {
        write->ended = true;
        return false;
    }
    EcfsPull answer;
    do
        answer = ecfs_request_pull (write->op.request, &write->bytes, &write->n_bytes);
    while (answer == ECFS_PULL_BYTES && write->n_bytes == 0);
    if (answer == ECFS_PULL_BYTES)
        return true;
    if (answer == ECFS_PULL_END)
        write->ended = true;
    else if (answer == ECFS_PULL_ABORT && write->error == NULL)
        g_set_error (&write->error, ECFS_ERROR, ECANCELED, "%s: cancelled", write->name);
    return false;
}

/* The window has no room for another WRITE, or its bytes were not all taken by the line. */
static bool is_full (EcfsSftp *self)
{
    return !ecfs_sftp_payload_free (self) ||
           !ecfs_sftp_window_room (&self->write_window, MIN (SMALL_BYTES, self->write_bytes));
}

/* Where one connection stalls the others do not take the source's bytes, and the memory they are in, without end. */
static bool is_far_ahead (const SftpWrite *write)
{
    return write->sent - write->acknowledged >= AHEAD_BYTES;
}

/* Takes a write on where its source lets it. True: a WRITE was begun. */
static bool stream (EcfsSftp *self, SftpWrite *write)
{
    if (write->state != WRITE_STREAMING || write->error != NULL || is_full (self))
        return false;
    g_autofree EcfsSftpPiece *piece = write->help != NULL ? ecfs_sftp_help_reclaim (write->help) : NULL;
    if (piece != NULL) {
        send_part (self, write, piece->part, piece->bytes);
        return true;
    }
    if (write->ended || is_far_ahead (write))
        return false;
    if (pull (write)) {
        const uint8_t *bytes;
        SftpWritten *part = cut_part (self, write, &bytes);
        send_part (self, write, part, bytes);
        return true;
    }
    if (write->ended && write->sent <= SMALL_BYTES)
        commit (self, write);
    ecfs_sftp_op_settle (self, &write->op);
    return false;
}

bool ecfs_sftp_write_issue (EcfsSftp *self)
{
    if (!ecfs_sftp_payload_free (self))
        return false;
    for (GList *at = self->writes.head, *next; at != NULL; at = next) {
        next = at->next;
        SftpWrite *write = at->data;
        if (stream (self, write)) {
            /* Turns are taken: the next WRITE is the next one's. */
            g_queue_unlink (&self->writes, &write->link);
            g_queue_push_tail_link (&self->writes, &write->link);
            return true;
        }
        if (!ecfs_sftp_payload_free (self))
            return true;
    }
    return ecfs_sftp_help_issue (self);
}

bool ecfs_sftp_is_committing (const EcfsSftp *self)
{
    for (const GList *at = self->writes.head; at != NULL; at = at->next)
        if (((const SftpWrite *) at->data)->state >= WRITE_COMMITTING)
            return true;
    return false;
}

/* Sharing */

static bool may_be_helped (const EcfsSftp *self, const SftpWrite *write)
{
    return !write->alone && !write->in_place && self->rtt_us > HELP_RTT_US && write->sent >= HELP_ABOVE &&
           write->op.request->kind == ECFS_REQUEST_WRITE;
}

static void collect (SftpWrite *write)
{
    bool any = false;
    EcfsSftpPiece *piece;
    while ((piece = ecfs_sftp_help_collect (write->help)) != NULL) {
        SftpWritten *part = piece->part;
        part->done = any = true;
        g_free (piece);
    }
    if (any)
        acknowledge (write);
}

/* Gives away what the source has and this connection has no room for. */
static void give_away (EcfsSftp *self, SftpWrite *write)
{
    while (!write->ended && !is_far_ahead (write) && is_full (self) && pull (write)) {
        if (write->help == NULL)
            write->help = ecfs_sftp_help_offer (self, write->name, write->temporary);
        write->alone = write->help == NULL;
        if (write->alone)
            return;
        ecfs_sftp_help_call (self, write->help);
        if (!ecfs_sftp_help_wants (write->help))
            return;
        EcfsSftpPiece *piece = g_new0 (EcfsSftpPiece, 1);
        SftpWritten *part = cut_part (self, write, &piece->bytes);
        piece->part = part;
        piece->size = part->size;
        piece->offset = part->end - part->size;
        ecfs_sftp_help_put (write->help, piece);
    }
}

static void share (EcfsSftp *self, SftpWrite *write)
{
    if (write->help != NULL)
        collect (write);
    if (write->error == NULL && may_be_helped (self, write))
        give_away (self, write);
    if (write->error != NULL)
        ecfs_sftp_help_withdraw (g_steal_pointer (&write->help));
    else if (write->ended && write->help != NULL)
        ecfs_sftp_help_end (write->help);
    ecfs_sftp_op_settle (self, &write->op);
}

void ecfs_sftp_write_share (EcfsSftp *self)
{
    for (GList *at = self->writes.head, *next; at != NULL; at = next) {
        next = at->next;
        SftpWrite *write = at->data;
        if (write->state == WRITE_STREAMING && (write->help != NULL || may_be_helped (self, write)))
            share (self, write);
    }
}

void ecfs_sftp_write_begin (EcfsSftp *self, EcfsStream *request)
{
    bool mark = request->kind == ECFS_REQUEST_MARK;
    SftpWrite *write = g_new0 (SftpWrite, 1);
    write->op.idle = write_idle;
    write->op.cancel = write_cancel;
    write->op.free = write_free;
    write->failed = ECFS_SFTP_ON_OTHER;
    write->name = mark ? ECFS_MARKER_NAME : request->name;
    write->replace = mark && !request->create;
    write->in_place = request->in_place && !write->replace;
    write->look = (EcfsSftpLook){.op = &write->op, .error = &write->error};
    write->link.data = write;
    g_queue_init (&write->parts);
    ecfs_sftp_op_begin (self, &write->op, request);
    g_queue_push_tail_link (&self->writes, &write->link);
    if (mark) {
        write->bytes = (const uint8_t *) request->text;
        write->n_bytes = strlen (request->text);
    }
    if (write->in_place)
        write->temporary = g_strdup (write->name);
    else if (!mark)
        write->temporary = ecfs_sftp_ahead_take (self, &write->op, on_open, &write->handle);
    if (write->temporary != NULL && !write->in_place) {
        write->state = write->handle.size > 0 ? WRITE_STREAMING : WRITE_OPENING;
        ecfs_sftp_make_parents (self, &write->op, write->name);
    } else {
        if (!write->in_place)
            write->temporary = ecfs_incoming_name (mark ? NULL : request->name);
        put_open (self, write);
    }
}
