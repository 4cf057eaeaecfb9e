/*
 * Logs over SFTP: a file that gets its final name at once and stays open. An append is a WRITE, behind it an fsync, and
 * behind that a STAT of the file by its name, all of them sent ahead of their replies. What was appended is durable
 * when each of the three says so: the STAT finds out a server that acknowledges what it does not keep, and a root that
 * was exchanged.
 *
 *   state    replies awaited                              moved on by
 *   OPENING  missing directories, OPEN                    the last of them → LOOKING, or CLOSING
 *   LOOKING  STATs of the file and of the marker          the last of them → OPEN, or CLOSING
 *   OPEN     WRITEs, fsyncs, STATs; none: it is parked    the source's end, once all is durable; an error or a cancel,
 *                                                         once no reply is awaited → CLOSING
 *   CLOSING  why it failed; CLOSE                         the last of them → finished
 *
 * A server keeps logs (ECFS_CAN_LOG) if it offers fsync@openssh.com. OpenSSH, ProFTPD and AsyncSSH do, and mean it.
 * rclone and whatever else is made of Go's pkg/sftp do not: what these acknowledge may be anywhere. One that shows a
 * file by its name only when it is closed (ProFTPD with HiddenStores) is found out before anything is appended.
 *
 * An fsync says nothing of WRITEs before it that were not answered, as servers may serve both side by side, and answer
 * in order all the same. So it is sent ahead of these replies only where it is known that one request is served after
 * the other. That is so for the three; they are recognised by fstatvfs@openssh.com, which they offer, too. From others
 * an append takes one more round trip. A server whose fsync overtakes a WRITE is one of these from then on.
 */
#include "endpoint/sftp/sftp_priv.h"

#include <inttypes.h>

#define WRITE_BYTES (64 * 1024)       /* of appends that are sent as one; they are copied */
#define SYNC_BYTES  (1024 * 1024)     /* that are synced although the source has more */
#define AHEAD_BYTES (4 * 1024 * 1024) /* sent behind the first byte that is not durable */
#define LEAST_SYNCS 2     /* under way: one at the server's disk, one that is there when that is done, … */
#define SYNC_US     10000 /* … and of those that take so long, what a round trip has room for */
#define MOST_SYNCS  16

typedef enum LogState { LOG_OPENING, LOG_LOOKING, LOG_OPEN, LOG_CLOSING } LogState;

typedef struct SftpLog {
    EcfsSftpOp op;
    LogState state;
    const char *name;
    EcfsSftpHandle handle; /* size 0: not open */
    bool missing;          /* OPEN said that a directory is missing */
    bool looked;           /* for the marker, before directories were made anew */
    bool retried;          /* the OPEN, after that */
    bool refused;          /* OPEN failed, perhaps since the file is there */
    bool ended;            /* the source has no more */
    EcfsSftpLook look;
    GError *error;
    EcfsSftpOperation failed; /* what gave the error, where it was a plain failure */

    const uint8_t *bytes; /* pulled, not yet gathered */
    size_t n_bytes;
    GByteArray *gathered; /* for the next WRITE */

    /* Bytes from the beginning: durable <= covered <= sent, and answered <= sent. */
    uint64_t sent;
    uint64_t answered; /* of which no WRITE is unanswered, or failed */
    uint64_t goal;     /* what the next fsync has to cover at least; covered or less: nothing new */
    uint64_t covered;  /* by the fsyncs that were sent */
    uint64_t durable;

    GQueue parts; /* of LogPart, in order */
    GQueue syncs; /* of LogSync, in order */
    GList link;   /* in logs */
} SftpLog;

/* A WRITE. */
typedef struct LogPart {
    SftpLog *log;
    uint64_t end;
    bool done;
} LogPart;

/* An fsync and the STAT behind it. */
typedef struct LogSync {
    SftpLog *log;
    uint64_t end;  /* what it covers, where requests are served one after the other */
    uint64_t sure; /* what it covers in any case: was answered when it was sent */
    bool flushed, seen;
} LogSync;

static void log_free (EcfsSftp *self, EcfsSftpOp *op)
{
    SftpLog *log = (SftpLog *) op;
    g_queue_clear_full (&log->parts, g_free);
    g_queue_clear_full (&log->syncs, g_free);
    g_byte_array_unref (log->gathered);
    g_clear_error (&log->error);
    g_free (log);
}

/* The first error counts. */
static void note_error (SftpLog *log, GError *error)
{
    if (log->error == NULL)
        log->error = error;
    else
        g_error_free (error);
}

static void note_failure (EcfsSftp *self, SftpLog *log, const EcfsSftpReply *reply, EcfsSftpOperation operation)
{
    if (ecfs_sftp_status (self, reply) == ECFS_SFTP_FAILURE && log->error == NULL)
        log->failed = operation;
    note_error (log, ecfs_sftp_error (reply, operation, log->name));
}

/* Opening */

static void on_open (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpLog *log = data;
    if (reply->type == ECFS_SFTP_HANDLE) {
        log->handle = reply->handle;
        ecfs_sftp_note_parents (self, log->name, true);
    } else if (ecfs_sftp_status (self, reply) == ECFS_SFTP_NO_SUCH_FILE && !log->retried) {
        log->missing = true;
    } else {
        note_failure (self, log, reply, ECFS_SFTP_ON_OPEN);
        log->refused = true;
    }
}

static void put_open (EcfsSftp *self, SftpLog *log)
{
    log->missing = false;
    ecfs_sftp_make_parents (self, &log->op, log->name);
    g_autofree char *path = ecfs_sftp_path (self, log->name);
    ecfs_sftp_put_create (ecfs_sftp_out (self), ecfs_sftp_expect (self, &log->op, on_open, log), path,
                          ECFS_SFTP_OPEN_WRITE | ECFS_SFTP_OPEN_CREATE | ECFS_SFTP_OPEN_EXCLUSIVE,
                          self->config->directory_mode & 0666);
}

static void put_stat (EcfsSftp *self, SftpLog *log, EcfsSftpReplyFunc func, void *data)
{
    g_autofree char *path = ecfs_sftp_path (self, log->name);
    ecfs_sftp_put_path (ecfs_sftp_out (self), ECFS_SFTP_STAT, ecfs_sftp_expect (self, &log->op, func, data), path);
}

static void on_shown (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpLog *log = data;
    if (reply->type == ECFS_SFTP_ATTRS)
        return;
    if (ecfs_sftp_status (self, reply) == ECFS_SFTP_NO_SUCH_FILE)
        note_error (log,
                    g_error_new (ECFS_ERROR, ENOTSUP, "%s: the server shows a file only once it is closed", log->name));
    else
        note_failure (self, log, reply, ECFS_SFTP_ON_OTHER);
}

static void look (EcfsSftp *self, SftpLog *log)
{
    log->state = LOG_LOOKING;
    put_stat (self, log, on_shown, log);
    (void) ecfs_sftp_look (self, &log->look); /* there need not be a marker */
}

/* A reply to OPEN came, and to all before it. */
static void open_on (EcfsSftp *self, SftpLog *log)
{
    if (!log->missing) {
        look (self, log);
    } else if (!log->looked && ecfs_sftp_look (self, &log->look)) {
        log->looked = true;
    } else {
        log->retried = true;
        ecfs_sftp_note_parents (self, log->name, false);
        put_open (self, log);
    }
}

/* Appending */

/* WRITEs are answered out of the order in which they were sent, or an fsync before them: then all that are under way
 * stand only for what was answered when they were sent. */
static void distrust_order (EcfsSftp *self)
{
    self->serial = false;
    for (GList *at = self->logs.head; at != NULL; at = at->next) {
        SftpLog *log = at->data;
        log->covered = log->durable;
        for (GList *sync_at = log->syncs.head; sync_at != NULL; sync_at = sync_at->next) {
            LogSync *sync = sync_at->data;
            sync->end = sync->sure;
            log->covered = MAX (log->covered, sync->sure);
        }
    }
}

static void on_write (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    LogPart *part = data;
    SftpLog *log = part->log;
    part->done = ecfs_sftp_status (self, reply) == ECFS_SFTP_OK;
    if (self->broken != NULL)
        return;
    if (!part->done)
        note_failure (self, log, reply, ECFS_SFTP_ON_WRITE);
    while ((part = g_queue_peek_head (&log->parts)) != NULL && part->done) {
        log->answered = part->end;
        g_free (g_queue_pop_head (&log->parts));
    }
}

/* Tells what became durable. */
static void count_syncs (SftpLog *log)
{
    LogSync *sync;
    uint64_t before = log->durable;
    while ((sync = g_queue_peek_head (&log->syncs)) != NULL && sync->flushed && sync->seen) {
        log->durable = MAX (log->durable, sync->end);
        g_free (g_queue_pop_head (&log->syncs));
    }
    if (log->durable > before)
        ecfs_request_acknowledge (log->op.request, log->durable);
}

static void on_flush (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    LogSync *sync = data;
    SftpLog *log = sync->log;
    self->n_syncs--;
    sync->flushed = ecfs_sftp_status (self, reply) == ECFS_SFTP_OK;
    if (self->broken != NULL)
        return;
    if (!sync->flushed)
        note_failure (self, log, reply, ECFS_SFTP_ON_COMMIT);
    if (log->answered < sync->end && log->error == NULL)
        distrust_order (self);
    sync->end = MIN (sync->end, MAX (log->answered, sync->sure));
    count_syncs (log);
}

/* The file by its name, behind an fsync. More than was synced is no wonder: what follows is being written. */
static void on_seen (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    LogSync *sync = data;
    SftpLog *log = sync->log;
    const EcfsSftpAttrs *attrs = &reply->attrs;
    if (reply->type == ECFS_SFTP_ATTRS && (!attrs->has_size || attrs->size >= sync->end)) {
        sync->seen = true;
        count_syncs (log);
    } else if (reply->type == ECFS_SFTP_ATTRS) {
        note_error (log, g_error_new (ECFS_ERROR, EIO,
                                      "%s: the server keeps %" PRIu64 " of the %" PRIu64
                                      " bytes that it acknowledged: check its disk",
                                      log->name, attrs->size, sync->end));
    } else if (ecfs_sftp_status (self, reply) == ECFS_SFTP_NO_SUCH_FILE) {
        note_error (log, g_error_new (ECFS_ERROR, EIO, "%s: was removed while it was written", log->name));
        (void) ecfs_sftp_look (self, &log->look); /* or all of the root was */
    } else {
        note_failure (self, log, reply, ECFS_SFTP_ON_OTHER);
    }
}

static void put_sync (EcfsSftp *self, SftpLog *log)
{
    LogSync *sync = g_new0 (LogSync, 1);
    *sync = (LogSync){.log = log, .end = self->serial ? log->sent : log->answered, .sure = log->answered};
    log->covered = sync->end;
    g_queue_push_tail (&log->syncs, sync);
    self->n_syncs++;
    ecfs_sftp_put_fsync (ecfs_sftp_out (self), ecfs_sftp_expect (self, &log->op, on_flush, sync), &log->handle);
    put_stat (self, log, on_seen, sync);
}

/* Each fsync serves all that waits for one, so few are under way: as many as the server's disk is kept busy by. */
static unsigned most_syncs (const EcfsSftp *self)
{
    return (unsigned) MIN (LEAST_SYNCS + self->rtt_us / SYNC_US, MOST_SYNCS);
}

/* Puts an fsync where there is something to cover. True: it did. */
static bool sync_if_due (EcfsSftp *self, SftpLog *log)
{
    bool rests = log->ended || log->op.request->parked;
    if (log->goal <= log->covered && (rests || log->sent - log->covered >= SYNC_BYTES))
        log->goal = log->sent;
    bool due = log->goal > log->covered && (self->serial || log->answered >= log->goal);
    if (!due || log->syncs.length >= most_syncs (self))
        return false;
    put_sync (self, log);
    return true;
}

/* The next bytes of the source. False: none now. */
static bool pull (SftpLog *log)
{
    if (log->ended)
        return false;
    EcfsPull answer;
    do
        answer = ecfs_request_pull (log->op.request, &log->bytes, &log->n_bytes);
    while (answer == ECFS_PULL_BYTES && log->n_bytes == 0);
    log->ended = answer == ECFS_PULL_END;
    if (answer == ECFS_PULL_ABORT && log->error == NULL)
        g_set_error (&log->error, ECFS_ERROR, ECANCELED, "%s: cancelled", log->name);
    return answer == ECFS_PULL_BYTES;
}

/* Puts a WRITE of what the source has. True: it did. */
static bool write_if_any (EcfsSftp *self, SftpLog *log)
{
    size_t most = MIN (self->write_bytes, WRITE_BYTES);
    if (log->sent - log->durable >= AHEAD_BYTES)
        return false;
    while (log->gathered->len < most && (log->n_bytes > 0 || pull (log))) {
        size_t size = MIN (log->n_bytes, most - log->gathered->len);
        g_byte_array_append (log->gathered, log->bytes, (guint) size);
        log->bytes += size;
        log->n_bytes -= size;
    }
    uint32_t size = log->gathered->len;
    if (size == 0)
        return false;
    LogPart *part = g_new0 (LogPart, 1);
    *part = (LogPart){.log = log, .end = log->sent + size};
    g_queue_push_tail (&log->parts, part);
    ecfs_sftp_put_write (ecfs_sftp_out (self), ecfs_sftp_expect (self, &log->op, on_write, part), &log->handle,
                         log->sent, size);
    g_byte_array_append (ecfs_sftp_out (self), log->gathered->data, size);
    g_byte_array_set_size (log->gathered, 0);
    log->sent = part->end;
    return true;
}

bool ecfs_sftp_log_issue (EcfsSftp *self)
{
    bool any = false;
    for (GList *at = self->logs.head, *next; at != NULL && ecfs_sftp_payload_free (self); at = next) {
        next = at->next;
        SftpLog *log = at->data;
        if (log->state != LOG_OPEN || log->error != NULL)
            continue;
        any = write_if_any (self, log) || any;
        any = sync_if_due (self, log) || any;
        ecfs_sftp_op_settle (self, &log->op); /* its end may have come */
    }
    return any;
}

/* Closing */

static void is_not_full (SftpLog *log)
{
    g_clear_error (&log->error);
    g_set_error (&log->error, ECFS_ERROR, EIO, "%s: the server could not write (is there a quota, does its disk work?)",
                 log->name);
}

static void on_room (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpLog *log = data;
    if (ecfs_sftp_says_full (reply))
        log->error->code = ENOSPC;
    else if (log->failed != ECFS_SFTP_ON_OPEN)
        is_not_full (log);
}

static void on_there (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpLog *log = data;
    if (reply->type != ECFS_SFTP_ATTRS)
        return;
    g_clear_error (&log->error);
    g_set_error (&log->error, ECFS_ERROR, EEXIST, "%s: exists already", log->name);
}

static void on_close (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    if (ecfs_sftp_status (self, reply) != ECFS_SFTP_OK)
        note_failure (self, data, reply, ECFS_SFTP_ON_OTHER);
}

static void log_finish (EcfsSftp *self, SftpLog *log)
{
    g_queue_unlink (&self->logs, &log->link);
    ecfs_sftp_op_finish (self, &log->op, 0, g_steal_pointer (&log->error));
}

/* Asks for the reason of a plain failure, and closes the file. */
static void close_log (EcfsSftp *self, SftpLog *log)
{
    /* Nothing was appended to what is in the wrong place; but who gives up a log leaves it as it is. */
    bool removes = log->state == LOG_LOOKING && log->error->code != ECANCELED;
    log->state = LOG_CLOSING;
    log->n_bytes = 0;
    if (ecfs_errno (log->error) == ENOTCONN) { /* which says it all */
        log->failed = ECFS_SFTP_ON_OTHER;
        log->refused = false;
    }
    if (log->failed != ECFS_SFTP_ON_OTHER && !ecfs_sftp_ask_room (self, &log->op, on_room, log) &&
        log->failed != ECFS_SFTP_ON_OPEN)
        is_not_full (log);
    if (log->refused)
        put_stat (self, log, on_there, log);
    if (log->handle.size > 0)
        ecfs_sftp_put_handle (ecfs_sftp_out (self), ECFS_SFTP_CLOSE, ecfs_sftp_expect (self, &log->op, on_close, log),
                              &log->handle);
    g_autofree char *path = ecfs_sftp_path (self, log->name);
    if (removes)
        ecfs_sftp_put_path (ecfs_sftp_out (self), ECFS_SFTP_REMOVE,
                            ecfs_sftp_expect (self, &log->op, ecfs_sftp_ignore, NULL), path);
    if (log->op.n_pending == 0)
        log_finish (self, log);
}

/* All replies are there: the next state. */
static void log_idle (EcfsSftp *self, EcfsSftpOp *op)
{
    SftpLog *log = (SftpLog *) op;
    if (self->broken != NULL)
        return;
    if (log->state == LOG_CLOSING)
        log_finish (self, log);
    else if (log->error != NULL)
        close_log (self, log);
    else if (log->state == LOG_OPENING)
        open_on (self, log);
    else if (log->state == LOG_LOOKING)
        log->state = LOG_OPEN;
    else if (log->ended && log->durable == log->sent)
        close_log (self, log);
}

/* Goes on in log_idle (), which is called when this returns or the last reply has come. */
static void log_cancel (EcfsSftp *self, EcfsSftpOp *op)
{
    SftpLog *log = (SftpLog *) op;
    if (log->error == NULL && log->state != LOG_CLOSING)
        g_set_error (&log->error, ECFS_ERROR, ECANCELED, "%s: cancelled", log->name);
}

bool ecfs_sftp_is_making_log (const EcfsSftp *self)
{
    for (const GList *at = self->logs.head; at != NULL; at = at->next)
        if (((const SftpLog *) at->data)->state != LOG_OPEN)
            return true;
    return false;
}

bool ecfs_sftp_is_at_rest (const EcfsSftp *self)
{
    for (const GList *at = self->logs.head; at != NULL; at = at->next)
        if (((const SftpLog *) at->data)->op.n_pending > 0)
            return false;
    return self->ops.length == self->logs.length;
}

void ecfs_sftp_log_begin (EcfsSftp *self, EcfsStream *request)
{
    if ((self->extensions & ECFS_SFTP_HAS_FSYNC) == 0) {
        ecfs_request_fail (request, ENOTSUP,
                           "%s: the server does not say when an append is on its disk: it offers no "
                           "fsync@openssh.com",
                           request->name);
        return;
    }
    SftpLog *log = g_new0 (SftpLog, 1);
    log->op.idle = log_idle;
    log->op.cancel = log_cancel;
    log->op.free = log_free;
    log->failed = ECFS_SFTP_ON_OTHER;
    log->name = request->name;
    log->look = (EcfsSftpLook){.op = &log->op, .error = &log->error};
    log->gathered = g_byte_array_new ();
    log->link.data = log;
    g_queue_init (&log->parts);
    g_queue_init (&log->syncs);
    ecfs_sftp_op_begin (self, &log->op, request);
    g_queue_push_tail_link (&self->logs, &log->link);
    put_open (self, log);
}
