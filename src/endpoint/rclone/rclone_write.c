/*
 * Writing: one POST under the final name. rclone wants to know the size of what it uploads, as many remotes do, so
 * bytes are collected first, up to COLLECT_BYTES. What ends before that is sent with its size, and once more if the
 * remote was not reached. What goes on is sent as it comes.
 *
 *   FILLING    bytes come from the source                                          → LOOKING, the end
 *   LOOKING    HEAD of the name, which must not be there, and of the marker, which must: rclone makes directories
 *              wherever they are missing, and would make the root where it is not mounted      → STORING, the end
 *   STORING    POST                                                                → CHECKING, CLEANING
 *   CHECKING   HEAD: it is there, and has the size                                 → the end, CLEANING
 *   CLEANING   DELETE: a remote may show a part of what broke off                  → the end
 *
 * If the connection is lost from STORING on, the next one sees to what is there: rclone_ops.c.
 */
#include "endpoint/rclone/rclone_priv.h"

#include <inttypes.h>
#include <string.h>

#define FIRST_BYTES   (64 * 1024)
#define COLLECT_BYTES ((size_t) 8 << 20)

typedef enum WriteState { WRITE_FILLING, WRITE_LOOKING, WRITE_STORING, WRITE_CHECKING, WRITE_CLEANING } WriteState;

typedef struct WriteOp WriteOp;

/* The look at the marker, beside that at the name. */
typedef struct Guard {
    EcfsHttpOp op;
    WriteOp *write;
} Guard;

struct WriteOp {
    EcfsHttpOp op;
    WriteState state;
    char *claimed;         /* the name, from LOOKING on */
    GByteArray *buffer;    /* the first bytes, … */
    size_t sent;           /* … and how much of them libcurl has */
    uint64_t taken;        /* bytes of the source, in all */
    uint64_t acknowledged; /* of these */
    const uint8_t *rest;   /* lent, and behind the buffer */
    size_t rest_size;
    EcfsPull last; /* what the source answered last */
    Guard *guard;  /* LOOKING: under way */
    bool looked;   /* LOOKING: the name was, … */
    bool settled;  /* nothing is left to be seen to */
    GError *error;
};

static const char *name_of (const WriteOp *write)
{
    return write->op.request->name;
}

static void clear (EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    const EcfsRcloneConfig *config = ecfs_rclone (op->http)->config;
    if (write->guard != NULL)
        write->guard->write = NULL; /* it ends by itself: the loop may be about to look at it */
    if (write->state >= WRITE_STORING && !write->settled)
        ecfs_rclone_note_broken (config, write->claimed, write->last == ECFS_PULL_END ? (int64_t) write->taken : -1);
    if (write->claimed != NULL)
        ecfs_claims_release (config->http.committing, write->claimed);
    g_free (write->claimed);
    if (write->buffer != NULL)
        g_byte_array_unref (write->buffer);
    g_clear_error (&write->error);
}

/* The end */

static void end (WriteOp *write, GError *error)
{
    write->settled = true;
    ecfs_rclone_note_written (ecfs_rclone (write->op.http)->config, error == NULL ? write->taken : 0);
    ecfs_http_op_end (&write->op, 0, error);
}

static GError *cancelled (const WriteOp *write)
{
    return ecfs_http_error (ECANCELED, "%s: cancelled", name_of (write));
}

static void cleaned (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    if (!ecfs_http_good (op->call.status) && !ecfs_rclone_is_absent (op, name_of (write))) {
        GError *why = ecfs_http_refusal (op, name_of (write));
        g_message ("endpoint %s: what is left of an upload that broke off stays: %s",
                   ecfs_slot_endpoint_name (self->slot), why->message);
        g_error_free (why);
    }
    end (write, g_steal_pointer (&write->error));
}

/* @error is taken. */
static void give_up (WriteOp *write, GError *error)
{
    ecfs_http_hang_up (&write->op);
    write->error = error;
    write->state = WRITE_CLEANING;
    EcfsHttpAsk ask = {.method = "DELETE", .name = name_of (write), .done = cleaned};
    ecfs_http_ask (&write->op, &ask);
}

/* Checking */

static void checked (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    GError *error = NULL;
    (void) self;
    if (ecfs_rclone_is_absent (op, name_of (write)))
        error = ecfs_http_error (EIO, "%s: rclone says that it is stored, and it is not there", name_of (write));
    else if (!ecfs_http_good (op->call.status))
        error = ecfs_http_refusal (op, name_of (write));
    else if (op->call.length < 0 || (uint64_t) op->call.length != write->taken)
        error = ecfs_http_error (EIO, "%s: rclone says that it is stored, but it has %" PRId64 " bytes of %" PRIu64,
                                 name_of (write), op->call.length, write->taken);
    if (error == NULL)
        end (write, NULL);
    else
        give_up (write, error);
}

/* Storing */

static void acknowledge (WriteOp *write, uint64_t sent)
{
    if (sent > write->acknowledged)
        ecfs_request_acknowledge (write->op.request, write->acknowledged = sent);
}

static size_t supply_collected (EcfsHttpOp *op, char *to, size_t size)
{
    WriteOp *write = (WriteOp *) op;
    size_t n = MIN (size, write->buffer->len - write->sent);
    if (n > 0)
        memcpy (to, write->buffer->data + write->sent, n);
    write->sent += n;
    op->call.sent |= write->last == ECFS_PULL_END && write->sent == write->taken;
    acknowledge (write, write->sent);
    return n;
}

static void rewind_collected (EcfsHttpOp *op)
{
    ((WriteOp *) op)->sent = 0;
}

static void pull (WriteOp *write)
{
    write->last = ecfs_request_pull (write->op.request, &write->rest, &write->rest_size);
    if (write->last != ECFS_PULL_BYTES)
        write->rest_size = 0;
}

/* libcurl copies what it sends, so nothing stays lent. */
static size_t supply_streamed (EcfsHttpOp *op, char *to, size_t size)
{
    WriteOp *write = (WriteOp *) op;
    size_t copied = supply_collected (op, to, size);
    while (copied < size && write->last != ECFS_PULL_END && write->last != ECFS_PULL_ABORT) {
        size_t n = MIN (size - copied, write->rest_size);
        if (n > 0)
            memcpy (to + copied, write->rest, n);
        copied += n;
        write->taken += n;
        write->rest += n;
        write->rest_size -= n;
        if (write->rest_size > 0)
            break;
        pull (write);
        if (write->last == ECFS_PULL_LATER)
            break;
    }
    acknowledge (write, write->taken - (write->buffer->len - write->sent));
    op->call.sent |= write->last == ECFS_PULL_END && write->rest_size == 0;
    if (write->last == ECFS_PULL_ABORT)
        return CURL_READFUNC_ABORT;
    return copied == 0 && write->last == ECFS_PULL_LATER ? CURL_READFUNC_PAUSE : copied;
}

static void stored (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    const EcfsHttpCall *call = &op->call;
    (void) self;
    if (write->last == ECFS_PULL_ABORT || (op->cancelled && !ecfs_http_good (call->status))) {
        give_up (write, cancelled (write));
    } else if (call->result != CURLE_OK || !ecfs_http_good (call->status)) {
        give_up (write, ecfs_http_refusal (op, name_of (write)));
    } else if (!call->sent && write->taken > 0) {
        give_up (write,
                 ecfs_http_error (EPROTO, "%s: rclone says that it is stored before it was sent", name_of (write)));
    } else {
        write->state = WRITE_CHECKING;
        EcfsHttpAsk ask = {.method = "HEAD", .name = name_of (write), .awaited = true, .done = checked};
        ecfs_http_ask (op, &ask);
    }
}

static void store (WriteOp *write)
{
    bool whole = write->last == ECFS_PULL_END;
    write->state = WRITE_STORING;
    EcfsHttpAsk ask = {.method = "POST",
                       .name = name_of (write),
                       .upload = true,
                       .upload_bytes = whole ? (int64_t) write->taken : -1,
                       .supply = whole ? supply_collected : supply_streamed,
                       .rewind = whole ? rewind_collected : NULL,
                       .done = stored};
    ecfs_http_ask (&write->op, &ask);
}

/* Looking */

static void go_on (WriteOp *write)
{
    if (!write->looked || write->guard != NULL)
        return;
    if (write->error != NULL)
        end (write, g_steal_pointer (&write->error));
    else
        store (write);
}

static void set_error (WriteOp *write, GError *error)
{
    if (write->error == NULL)
        write->error = error;
    else
        g_clear_error (&error);
}

static void looked (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    (void) self;
    write->looked = true;
    if (ecfs_http_good (op->call.status))
        set_error (write, ecfs_http_error (EEXIST, "%s: %s", name_of (write), g_strerror (EEXIST)));
    else if (!ecfs_rclone_is_absent (op, name_of (write)))
        set_error (write, ecfs_http_refusal (op, name_of (write)));
    go_on (write);
}

static void guarded (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = ((Guard *) op)->write;
    const bool is_absent = ecfs_rclone_is_absent (op, ECFS_MARKER_NAME);
    if (is_absent)
        ecfs_slot_doubt (self->slot);
    if (write == NULL) {
        ecfs_http_op_drop (op);
        return;
    }
    if (is_absent)
        set_error (write, ecfs_http_error (ENOTCONN, "%s has no %s any more: not mounted, or another place?",
                                           self->config->plain, ECFS_MARKER_NAME));
    else if (!ecfs_http_good (op->call.status))
        set_error (write, ecfs_http_refusal (op, ECFS_MARKER_NAME));
    ecfs_http_op_drop (op);
    write->guard = NULL;
    go_on (write);
}

static void guard (WriteOp *write)
{
    EcfsHttp *self = write->op.http;
    if (!ecfs_slot_has_marker (self->slot))
        return;
    write->guard = (Guard *) ecfs_http_op_new (self, NULL, sizeof *write->guard);
    write->guard->write = write;
    EcfsHttpAsk ask = {.method = "HEAD", .name = ECFS_MARKER_NAME, .done = guarded};
    ecfs_http_ask (&write->guard->op, &ask);
}

static void commit (WriteOp *write)
{
    if (!ecfs_claims_take (write->op.http->config->committing, name_of (write))) {
        end (write, ecfs_http_error (EEXIST, "%s: another connection makes it", name_of (write)));
        return;
    }
    write->claimed = g_strdup (name_of (write));
    write->state = WRITE_LOOKING;
    guard (write);
    EcfsHttpAsk ask = {.method = "HEAD", .name = name_of (write), .done = looked};
    ecfs_http_ask (&write->op, &ask);
}

/* The source */

/* Bytes that are here are given back at once: they are in our memory for as long as it takes. */
static void collect (WriteOp *write)
{
    size_t n = MIN (write->rest_size, COLLECT_BYTES - write->buffer->len);
    if (n == 0)
        return;
    g_byte_array_append (write->buffer, write->rest, (guint) n);
    write->rest += n;
    write->rest_size -= n;
    write->taken += n;
    if (write->rest_size == 0)
        ecfs_request_kept (write->op.request, write->taken);
}

static void fill (WriteOp *write)
{
    do {
        collect (write);
        if (write->rest_size == 0)
            pull (write);
    } while (write->last == ECFS_PULL_BYTES && write->buffer->len < COLLECT_BYTES);
    if (write->last == ECFS_PULL_ABORT)
        end (write, cancelled (write));
    else if (write->last == ECFS_PULL_END || write->buffer->len == COLLECT_BYTES)
        commit (write);
}

static void turn (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    (void) self;
    if (write->state == WRITE_FILLING) {
        fill (write);
    } else if (write->state == WRITE_STORING && op->call.paused && write->rest_size == 0) {
        pull (write);
        if (write->last != ECFS_PULL_LATER)
            ecfs_http_resume (op);
    }
}

static void cancel (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    (void) self;
    if (write->state < WRITE_STORING)
        end (write, cancelled (write));
    else if (write->state == WRITE_STORING && !op->call.sent)
        give_up (write, cancelled (write));
    /* Otherwise the remote may have it all: what becomes of it is known when rclone has answered. */
}

void ecfs_rclone_write_begin (EcfsHttp *self, EcfsStream *request)
{
    WriteOp *write = (WriteOp *) ecfs_http_op_new (self, request, sizeof *write);
    write->op.clear = clear;
    write->op.cancel = cancel;
    write->op.turn = turn;
    write->buffer = g_byte_array_sized_new (FIRST_BYTES);
    write->last = ECFS_PULL_LATER;
    fill (write);
}
