/*
 * Writing. S3 wants to know the size of what is uploaded before its first byte, and an answer may say that the same has
 * to be sent again: so bytes are collected first, up to part_size. What ends before that is one PUT; what goes on is an
 * upload in parts of that size, several of which are under way at once.
 *
 *   FILLING     bytes come from the source, and full parts go                 → CREATING, the commit
 *   CREATING    POST ?uploads, with the first part that is full               → FILLING
 *
 * s3_commit.c has the states of the commit. When an upload in parts fails, it is given up in the background.
 */
#include "endpoint/s3/s3_write.h"

#include <inttypes.h>
#include <string.h>

#define STRIPES     "stripes/" /* have storage_class; the rest is small and soon read again */
#define FIRST_BYTES (64 * 1024)

static void clear (EcfsHttpOp *op)
{
    EcfsS3Write *write = (EcfsS3Write *) op;
    ecfs_s3_commit_clear (write);
    if (write->send.buffer != NULL)
        g_byte_array_unref (g_steal_pointer (&write->send.buffer));
    ecfs_s3_parts_clear (write);
    g_ptr_array_unref (write->parts);
    g_ptr_array_unref (write->etags);
    g_free (write->upload_id);
}

/* The end */

void ecfs_s3_write_end (EcfsS3Write *write, GError *error)
{
    EcfsHttp *self = write->send.op.http;
    EcfsStream *request = write->send.op.request;
    ecfs_http_hang_up (&write->send.op);
    if (error != NULL)
        ecfs_s3_parts_give_up (write);
    if (request->kind == ECFS_REQUEST_MARK && ecfs_errno (error) == EEXIST) {
        g_error_free (error);
        ecfs_http_op_drop (&write->send.op);
        ecfs_s3_examine_begin (self, request); /* tells whose it is */
        return;
    }
    ecfs_http_op_end (&write->send.op, 0, error);
}

GError *ecfs_s3_write_cancelled (const EcfsS3Write *write)
{
    return g_error_new (ECFS_ERROR, ECANCELED, "%s: cancelled", write->name);
}

/* Sending a buffer */

static void acknowledge (EcfsS3Send *send)
{
    EcfsS3Write *write = send->write;
    if (send->sent <= send->acknowledged)
        return;
    size_t added = send->sent - send->acknowledged;
    send->acknowledged = send->sent;
    if (write != NULL && write->send.op.request->kind == ECFS_REQUEST_WRITE)
        ecfs_request_acknowledge (write->send.op.request, write->acknowledged += added);
}

static size_t supply (EcfsHttpOp *op, char *to, size_t size)
{
    EcfsS3Send *send = (EcfsS3Send *) op;
    size_t n = MIN (size, send->buffer->len - send->sent);
    if (n > 0)
        memcpy (to, send->buffer->data + send->sent, n);
    send->sent += n;
    op->call.sent |= send->sent == send->buffer->len;
    acknowledge (send);
    return n;
}

static void rewind_buffer (EcfsHttpOp *op)
{
    ((EcfsS3Send *) op)->sent = 0;
}

/* Over TLS the line keeps the body whole; in clear the signature has to. */
struct curl_slist *ecfs_s3_body_headers (const EcfsS3Send *send)
{
    const EcfsS3 *self = ecfs_s3 (send->op.http);
    const GByteArray *buffer = send->buffer;
    char hash[ECFS_S3_HASH_SIZE] = ECFS_S3_UNSIGNED;
    if (!self->own.tls)
        ecfs_s3_hash (buffer->data, buffer->len, hash);
    struct curl_slist *list = ecfs_http_add_header (NULL, "x-amz-content-sha256: %s", hash);
    return ecfs_s3_add_md5 (list, buffer->data, buffer->len);
}

struct curl_slist *ecfs_s3_object_headers (const EcfsS3Write *write, struct curl_slist *list)
{
    const EcfsS3Config *config = ecfs_s3 (write->send.op.http)->config;
    list = ecfs_http_add_header (list, "x-amz-meta-ecfs-upload: %s", write->token);
    if (config->storage_class != NULL && g_str_has_prefix (write->name, STRIPES))
        list = ecfs_http_add_header (list, "x-amz-storage-class: %s", config->storage_class);
    if (config->lock_mode == NULL)
        return list;
    g_autofree char *text = ecfs_s3_moment (g_get_real_time () + config->lock_us);
    list = ecfs_http_add_header (list, "x-amz-object-lock-mode: %s", config->lock_mode);
    return ecfs_http_add_header (list, "x-amz-object-lock-retain-until-date: %s", text);
}

void ecfs_s3_send (EcfsS3Send *send, const char *query, struct curl_slist *headers,
                   void (*done) (EcfsHttp *, EcfsHttpOp *))
{
    send->sent = 0;
    EcfsHttpAsk ask = {.method = "PUT",
                       .name = send->write->name,
                       .query = query,
                       .headers = headers,
                       .upload = true,
                       .upload_bytes = send->buffer->len,
                       .supply = supply,
                       .rewind = rewind_buffer,
                       .done = done};
    ecfs_http_ask (&send->op, &ask);
}

bool ecfs_s3_is_put (const EcfsS3Send *send, const char *name, GError **error)
{
    const EcfsHttpCall *call = &send->op.call;
    if (!ecfs_s3_did (call)) {
        g_propagate_error (error, ecfs_http_refusal ((EcfsHttpOp *) &send->op, name));
        return false;
    }
    if (call->etag == NULL)
        return ecfs_fail (error, EPROTO, "%s: the server answers %ld without an ETag: it has not stored it", name,
                          call->status);
    return send->sent == send->buffer->len ||
           ecfs_fail (error, EPROTO, "%s: the server says that it is stored (%ld) before it was sent", name,
                      call->status);
}

/* The source */

static size_t room (const EcfsS3Write *write)
{
    return (size_t) ecfs_s3 (write->send.op.http)->config->part_bytes - write->send.buffer->len;
}

/* Bytes that are here are given back at once: they are in our memory for as long as it takes. */
static void take_rest (EcfsS3Write *write)
{
    size_t n = MIN (write->rest_size, room (write));
    if (n == 0)
        return;
    g_byte_array_append (write->send.buffer, write->rest, (guint) n);
    write->rest += n;
    write->rest_size -= n;
    write->taken += n;
    if (write->rest_size == 0)
        ecfs_request_kept (write->send.op.request, write->taken);
}

/* Until the buffer is full or the source has no more, now. */
static void take (EcfsS3Write *write)
{
    for (;;) {
        take_rest (write);
        if (write->rest_size > 0 || write->last == ECFS_PULL_END)
            return;
        write->last = ecfs_request_pull (write->send.op.request, &write->rest, &write->rest_size);
        if (write->last != ECFS_PULL_BYTES) {
            write->rest_size = 0;
            return;
        }
    }
}

/* One part at a time: others are under way, and want to be sent. */
void ecfs_s3_write_fill (EcfsS3Write *write)
{
    if (!ecfs_s3_parts_have_room (write))
        return;
    take (write);
    bool full = room (write) == 0, over = write->last == ECFS_PULL_END && write->rest_size == 0;
    if (write->last == ECFS_PULL_ABORT) {
        ecfs_s3_write_end (write, ecfs_s3_write_cancelled (write));
    } else if (over && write->upload_id == NULL) {
        ecfs_s3_commit (write);
    } else if (full && write->upload_id == NULL) {
        ecfs_s3_parts_create (write);
    } else if (full || (over && write->send.buffer->len > 0)) {
        ecfs_slot_notify (write->send.op.http->slot); /* there is more to take */
        ecfs_s3_parts_send (write);
    } else if (over && write->parts->len == 0) {
        ecfs_s3_commit (write);
    }
}

static void turn (EcfsHttp *self, EcfsHttpOp *op)
{
    EcfsS3Write *write = (EcfsS3Write *) op;
    (void) self;
    if (write->state == ECFS_S3_WRITE_FILLING)
        ecfs_s3_write_fill (write);
}

static void cancel (EcfsHttp *self, EcfsHttpOp *op)
{
    EcfsS3Write *write = (EcfsS3Write *) op;
    (void) self;
    bool whole = write->state == ECFS_S3_WRITE_STORING && (write->upload_id != NULL || op->call.sent);
    if (whole || write->state == ECFS_S3_WRITE_CREATING || write->state == ECFS_S3_WRITE_CHECKING ||
        write->state == ECFS_S3_WRITE_PROBING)
        return; /* the server may do it: what became of it is known when it has answered */
    ecfs_s3_write_end (write, ecfs_s3_write_cancelled (write));
}

static EcfsS3Write *new_op (EcfsHttp *self, EcfsStream *request, const char *name)
{
    EcfsS3Write *write = (EcfsS3Write *) ecfs_http_op_new (self, request, sizeof *write);
    uint64_t bits;
    ecfs_random (&bits, sizeof bits);
    g_snprintf (write->token, sizeof write->token, "%016" PRIx64, bits);
    write->send.op.clear = clear;
    write->send.op.cancel = cancel;
    write->send.op.turn = turn;
    write->name = name;
    write->send.buffer = g_byte_array_sized_new (FIRST_BYTES);
    write->send.write = write;
    write->parts = g_ptr_array_new ();
    write->etags = g_ptr_array_new_with_free_func (g_free);
    write->last = ECFS_PULL_LATER;
    return write;
}

void ecfs_s3_write_begin (EcfsHttp *self, EcfsStream *request)
{
    ecfs_s3_write_fill (new_op (self, request, request->name));
}

void ecfs_s3_mark_begin (EcfsHttp *self, EcfsStream *request)
{
    EcfsS3Write *write = new_op (self, request, ECFS_MARKER_NAME);
    write->replace = !request->create;
    write->last = ECFS_PULL_END;
    g_byte_array_append (write->send.buffer, (const uint8_t *) request->text, (guint) strlen (request->text));
    ecfs_s3_write_fill (write);
}
