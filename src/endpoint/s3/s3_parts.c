/*
 * Uploads in parts. Up to four of one upload are under way at once, each with a buffer that it is sent from, as a store
 * answers one when it has all of it. They may end in any order. An upload always may have one buffer; what all of them
 * have beyond that is bounded for the process.
 *
 * When an upload fails or is cancelled, its parts of which the server does not have all are cut off. The rest it may
 * still store: the upload is given up when that has been answered, or what is stored then would stay.
 */
#include "endpoint/s3/s3_write.h"

#define MAX_PARTS       10000
#define AT_ONCE         4
#define AT_ONCE_BYTES   (UINT64_C (32) << 20)  /* of one upload */
#define SECOND_BYTES    (UINT64_C (128) << 20) /* of all, beyond a part each; … */
#define EXTRA_BYTES     (UINT64_C (64) << 20)  /* … from here on nobody has a third: links rest that have but one */
#define COMPLETE_OPENED "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define COMPLETE_CLOSED "</CompleteMultipartUpload>"

static atomic_uint_least64_t extra_bytes;

typedef struct PartOp {
    EcfsS3Send send;
    unsigned index;
    struct GiveUpOp *given_up; /* waits for it */
} PartOp;

typedef struct GiveUpOp {
    EcfsHttpOp op;
    char *name;
    char *query;
    unsigned n_parts; /* that are to be answered before */
} GiveUpOp;

char *ecfs_s3_parts_list (char *const *etags, guint n)
{
    GString *text = g_string_new (COMPLETE_OPENED);
    for (guint i = 0; i < n; i++) {
        g_autofree char *etag = g_markup_escape_text (etags[i], -1);
        g_string_append_printf (text, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", i + 1, etag);
    }
    return g_string_free (g_string_append (text, COMPLETE_CLOSED), FALSE);
}

/* Buffers */

static uint64_t part_bytes (const EcfsS3Write *self)
{
    return ecfs_s3 (self->send.op.http)->config->part_bytes;
}

/* Has no more of what all share than it needs. */
static void return_extra (EcfsS3Write *self)
{
    unsigned n_buffers = self->parts->len + (self->send.buffer != NULL ? 1 : 0);
    while (self->n_extra > 0 && self->n_extra + 1 > n_buffers) {
        atomic_fetch_sub (&extra_bytes, part_bytes (self));
        self->n_extra--;
    }
}

static bool take_extra (EcfsS3Write *self)
{
    uint64_t most = self->n_extra == 0 ? SECOND_BYTES : EXTRA_BYTES;
    if (atomic_fetch_add (&extra_bytes, part_bytes (self)) + part_bytes (self) > most) {
        atomic_fetch_sub (&extra_bytes, part_bytes (self));
        return false;
    }
    self->n_extra++;
    return true;
}

/* What is under way beside leaves room for other requests, and a server that is busy is not asked for more. */
static bool may_send_another (const EcfsS3Write *self)
{
    const EcfsHttp *http = self->send.op.http;
    return self->parts->len < MIN (AT_ONCE, AT_ONCE_BYTES / part_bytes (self)) && http->n_waiting == 0 &&
           http->n_calls < ECFS_HTTP_MAX_ACTIVE / 2;
}

bool ecfs_s3_parts_have_room (EcfsS3Write *self)
{
    if (self->send.buffer != NULL)
        return true;
    if (self->parts->len > 0 && (!may_send_another (self) || !take_extra (self)))
        return false;
    self->send.buffer = g_byte_array_sized_new ((guint) part_bytes (self));
    return true;
}

/* Parts */

static void clear_part (EcfsHttpOp *op)
{
    PartOp *part = (PartOp *) op;
    EcfsS3Write *write = part->send.write;
    if (write != NULL)
        (void) g_ptr_array_remove_fast (write->parts, part);
    if (part->send.buffer != NULL)
        g_byte_array_unref (part->send.buffer);
}

static void ask_give_up (GiveUpOp *self);

static void part_stored (EcfsHttp *self, EcfsHttpOp *op)
{
    PartOp *part = (PartOp *) op;
    EcfsS3Write *write = part->send.write;
    GiveUpOp *given_up = part->given_up;
    GError *error = NULL;
    (void) self;
    if (given_up != NULL) {
        ecfs_http_op_drop (op);
        if (--given_up->n_parts == 0)
            ask_give_up (given_up);
        return;
    }
    if (ecfs_s3_is_put (&part->send, write->name, &error))
        write->etags->pdata[part->index] = g_strdup (op->call.etag);
    if (write->send.buffer == NULL) { /* its memory serves the next */
        write->send.buffer = g_steal_pointer (&part->send.buffer);
        g_byte_array_set_size (write->send.buffer, 0);
    }
    ecfs_http_op_drop (op);
    return_extra (write);
    if (error != NULL)
        ecfs_s3_write_end (write, error);
    else
        ecfs_s3_write_fill (write);
}

void ecfs_s3_parts_send (EcfsS3Write *self)
{
    EcfsHttp *http = self->send.op.http;
    if (self->etags->len == MAX_PARTS) {
        ecfs_s3_write_end (self, g_error_new (ECFS_ERROR, EFBIG, "%s: has more than %d parts: set a larger part_size",
                                              self->name, MAX_PARTS));
        return;
    }
    PartOp *part = (PartOp *) ecfs_http_op_new (http, NULL, sizeof *part);
    part->send.op.clear = clear_part;
    part->send.write = self;
    part->send.buffer = g_steal_pointer (&self->send.buffer);
    part->index = self->etags->len;
    g_ptr_array_add (self->etags, NULL);
    g_ptr_array_add (self->parts, part);
    g_autofree char *number = g_strdup_printf ("%u", part->index + 1);
    g_autofree char *query = ecfs_s3_query ("partNumber", number, "uploadId", self->upload_id, NULL);
    ecfs_s3_send (&part->send, query, ecfs_s3_body_headers (&part->send), part_stored);
}

static void created (EcfsHttp *self, EcfsHttpOp *op)
{
    EcfsS3Write *write = (EcfsS3Write *) op;
    EcfsS3Values values;
    (void) self;
    ecfs_s3_answer_values (&op->call, &values);
    if (ecfs_http_good (op->call.status))
        write->upload_id = g_steal_pointer (&values.upload_id);
    ecfs_s3_values_clear (&values);
    if (write->upload_id == NULL)
        ecfs_s3_write_end (write, ecfs_http_refusal (op, write->name));
    else if (op->cancelled)
        ecfs_s3_write_end (write, ecfs_s3_write_cancelled (write));
    else {
        write->state = ECFS_S3_WRITE_FILLING;
        ecfs_s3_write_fill (write);
    }
}

void ecfs_s3_parts_create (EcfsS3Write *self)
{
    self->state = ECFS_S3_WRITE_CREATING;
    EcfsHttpAsk ask = {.method = "POST",
                       .name = self->name,
                       .query = "uploads=",
                       .headers = ecfs_s3_object_headers (self, NULL),
                       .body = "",
                       .done = created};
    ecfs_http_ask (&self->send.op, &ask);
}

/* The end */

static void clear_give_up (EcfsHttpOp *op)
{
    GiveUpOp *self = (GiveUpOp *) op;
    g_free (self->name);
    g_free (self->query);
}

static void forget (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    ecfs_http_op_drop (op);
}

static void ask_give_up (GiveUpOp *self)
{
    EcfsHttpAsk ask = {.method = "DELETE", .name = self->name, .query = self->query, .done = forget};
    ecfs_http_ask (&self->op, &ask);
}

void ecfs_s3_parts_clear (EcfsS3Write *self)
{
    while (self->parts->len > 0)
        ecfs_http_op_drop (self->parts->pdata[0]);
    return_extra (self);
}

void ecfs_s3_parts_give_up (EcfsS3Write *self)
{
    EcfsHttp *http = self->send.op.http;
    if (self->upload_id == NULL || http->broken != NULL)
        return;
    GiveUpOp *behind = (GiveUpOp *) ecfs_http_op_new (http, NULL, sizeof *behind);
    behind->op.clear = clear_give_up;
    behind->name = g_strdup (self->name);
    behind->query = ecfs_s3_query ("uploadId", self->upload_id, NULL);
    for (guint i = self->parts->len; i-- > 0;) {
        PartOp *part = self->parts->pdata[i];
        if (!part->send.op.call.sent || part->send.op.call.again_us != 0)
            continue;
        (void) g_ptr_array_remove_index_fast (self->parts, i);
        part->send.write = NULL;
        part->send.op.rewind = NULL; /* is not sent again */
        part->given_up = behind;
        behind->n_parts++;
    }
    if (behind->n_parts == 0)
        ask_give_up (behind);
}
