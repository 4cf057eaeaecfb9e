/*
 * Writing. S3 wants to know the size of what is uploaded before its first byte, and an answer may say that the same has
 * to be sent again: so bytes are collected first, up to part_size. What ends before that is one PUT; what goes on is an
 * upload in parts of that size.
 *
 *   FILLING     bytes come from the source                                    → CREATING, PART, the commit
 *   CREATING    POST ?uploads, with the first part that is full               → PART
 *   PART        PUT of a part                                                 → FILLING, the commit
 *
 * The commit makes the name, which must not be there:
 *
 *   PROBING     once per endpoint: does the store keep to If-None-Match?      → LOOKING, STORING, the end
 *               And with a list of parts, which some stores do not?
 *   LOOKING     HEAD of the name, where it does not, or that is not known     → STORING, the end
 *   STORING     PUT of all, or POST ?uploadId of the list of parts            → CHECKING, the end
 *   CHECKING    HEAD: is what is there ours, from an attempt whose answer was another one?   → STORING, the end
 *
 * Each upload leaves a random number with its object, so that it knows its own. When an upload in parts fails, it is
 * given up in the background.
 */
#include "endpoint/s3/s3_priv.h"

#include <inttypes.h>
#include <string.h>

#define PROBE           ECFS_INCOMING "/" /* an empty object */
#define STRIPES         "stripes/"        /* have storage_class; the rest is small and soon read again */
#define N_PROBES        2
#define FIRST_BYTES     (64 * 1024)
#define MAX_PARTS       10000
#define COMPLETE_OPENED "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define COMPLETE_CLOSED "</CompleteMultipartUpload>"

typedef enum WriteState {
    WRITE_FILLING,
    WRITE_CREATING,
    WRITE_PART,
    WRITE_PROBING,
    WRITE_LOOKING,
    WRITE_STORING,
    WRITE_CHECKING,
} WriteState;

typedef struct WriteOp {
    EcfsHttpOp op;
    WriteState state;
    const char *name;
    bool replace;
    char *claimed;         /* the name, from the commit on; the request may be gone before the op */
    GByteArray *buffer;    /* what is to be sent next, … */
    size_t sent;           /* … and how much of it libcurl has */
    uint64_t taken;        /* bytes of the source, in all */
    uint64_t acknowledged; /* of these */
    const uint8_t *rest;   /* lent, and not yet in the buffer */
    size_t rest_size;
    EcfsPull last;      /* what the source answered last */
    char *upload_id;    /* NULL: it has no parts, so far */
    char *probe_id;     /* of an upload that is to come to nothing; NULL: there is none */
    GPtrArray *etags;   /* of parts that are stored */
    char *document;     /* the list of parts */
    char token[17];     /* of this upload */
    unsigned n_probes;  /* of the store */
    bool conditional;   /* STORING: only if the name is not there */
    bool refused;       /* CHECKING: the server said that the name is there */
    bool awaited;       /* CHECKING: it may be at it still */
    bool unconditional; /* conditions do not work for this one */
    bool has_probed;    /* the store, for conditions with the list of parts, or … */
    bool probes;        /* … is at it */
} WriteOp;

/* EcfsS3Conditions with the list of parts. */
static atomic_int *with_parts (const WriteOp *write)
{
    return ecfs_s3 (write->op.http)->config->conditions_with_parts;
}

static void clear (EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    if (write->claimed != NULL)
        ecfs_claims_release (op->http->config->committing, write->claimed);
    if (write->probes) /* it was cut off: another one finds out */
        atomic_store (with_parts (write), ECFS_S3_CONDITIONS_UNKNOWN);
    g_free (write->claimed);
    g_byte_array_unref (write->buffer);
    g_ptr_array_unref (write->etags);
    g_free (write->upload_id);
    g_free (write->probe_id);
    g_free (write->document);
}

static EcfsS3Conditions conditions (const WriteOp *write)
{
    return (EcfsS3Conditions) atomic_load (ecfs_s3 (write->op.http)->config->conditions);
}

static void set_conditions (const WriteOp *write, EcfsS3Conditions found)
{
    const EcfsS3 *self = ecfs_s3 (write->op.http);
    if (found == ECFS_S3_CONDITIONS_IGNORED && conditions (write) != found)
        g_message (
            "endpoint %s: %s does not keep to If-None-Match, so each upload looks first whether its name is there",
            ecfs_slot_endpoint_name (self->http.slot), self->own.base);
    atomic_store (self->config->conditions, (int) found);
}

/* The end */

static void forget (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    ecfs_http_op_drop (op);
}

/* What is stored of an upload in parts goes in the background. */
static void give_up_parts (WriteOp *write)
{
    if (write->upload_id == NULL || write->op.http->broken != NULL)
        return;
    EcfsHttpOp *behind = ecfs_http_op_new (write->op.http, NULL, sizeof *behind);
    g_autofree char *query = ecfs_s3_query ("uploadId", write->upload_id, NULL);
    EcfsHttpAsk ask = {.method = "DELETE", .name = write->name, .query = query, .done = forget};
    ecfs_http_ask (behind, &ask);
}

/* @error is taken; NULL is success. */
static void end (WriteOp *write, GError *error)
{
    EcfsHttp *self = write->op.http;
    EcfsStream *request = write->op.request;
    ecfs_http_hang_up (&write->op);
    if (error != NULL)
        give_up_parts (write);
    if (request->kind == ECFS_REQUEST_MARK && ecfs_errno (error) == EEXIST) {
        g_error_free (error);
        ecfs_http_op_drop (&write->op);
        ecfs_s3_examine_begin (self, request); /* tells whose it is */
        return;
    }
    ecfs_http_op_end (&write->op, 0, error);
}

static GError *cancelled (const WriteOp *write)
{
    return g_error_new (ECFS_ERROR, ECANCELED, "%s: cancelled", write->name);
}

static GError *exists (const WriteOp *write)
{
    return g_error_new (ECFS_ERROR, EEXIST, "%s: %s", write->name, g_strerror (EEXIST));
}

/* Sending the buffer */

/* What is sent again was acknowledged before. */
static void acknowledge (WriteOp *write)
{
    uint64_t all = write->taken - write->buffer->len + write->sent;
    if (write->op.request->kind == ECFS_REQUEST_WRITE && all > write->acknowledged)
        ecfs_request_acknowledge (write->op.request, write->acknowledged = all);
}

static size_t supply (EcfsHttpOp *op, char *to, size_t size)
{
    WriteOp *write = (WriteOp *) op;
    size_t n = MIN (size, write->buffer->len - write->sent);
    if (n > 0)
        memcpy (to, write->buffer->data + write->sent, n);
    write->sent += n;
    op->call.sent |= write->sent == write->buffer->len;
    acknowledge (write);
    return n;
}

static void rewind_buffer (EcfsHttpOp *op)
{
    ((WriteOp *) op)->sent = 0;
}

/* Over TLS the line keeps the body whole; in clear the signature has to. */
static struct curl_slist *body_headers (const WriteOp *write)
{
    const EcfsS3 *self = ecfs_s3 (write->op.http);
    const GByteArray *buffer = write->buffer;
    char hash[ECFS_S3_HASH_SIZE] = ECFS_S3_UNSIGNED;
    if (!self->own.tls)
        ecfs_s3_hash (buffer->data, buffer->len, hash);
    struct curl_slist *list = ecfs_http_add_header (NULL, "x-amz-content-sha256: %s", hash);
    return ecfs_s3_add_md5 (list, buffer->data, buffer->len);
}

/* What goes with a new object, whether it comes in parts or not. */
static struct curl_slist *object_headers (const WriteOp *write, struct curl_slist *list)
{
    const EcfsS3Config *config = ecfs_s3 (write->op.http)->config;
    list = ecfs_http_add_header (list, "x-amz-meta-ecfs-upload: %s", write->token);
    if (config->storage_class != NULL && g_str_has_prefix (write->name, STRIPES))
        list = ecfs_http_add_header (list, "x-amz-storage-class: %s", config->storage_class);
    if (config->lock_mode == NULL)
        return list;
    g_autofree char *text = ecfs_s3_moment (g_get_real_time () + config->lock_us);
    list = ecfs_http_add_header (list, "x-amz-object-lock-mode: %s", config->lock_mode);
    return ecfs_http_add_header (list, "x-amz-object-lock-retain-until-date: %s", text);
}

static void send_buffer (WriteOp *write, const char *query, struct curl_slist *headers,
                         void (*done) (EcfsHttp *, EcfsHttpOp *))
{
    write->sent = 0;
    EcfsHttpAsk ask = {.method = "PUT",
                       .name = write->name,
                       .query = query,
                       .headers = headers,
                       .upload = true,
                       .upload_bytes = write->buffer->len,
                       .supply = supply,
                       .rewind = rewind_buffer,
                       .done = done};
    ecfs_http_ask (&write->op, &ask);
}

static bool has_code (const EcfsHttpCall *call, const char *code)
{
    EcfsS3Values values;
    ecfs_s3_answer_values (call, &values);
    bool has = g_strcmp0 (values.code, code) == 0;
    ecfs_s3_values_clear (&values);
    return has;
}

/* Whether the answer is the one to a PUT that was done, and all was sent before it. */
static bool is_put (const WriteOp *write, GError **error)
{
    const EcfsHttpCall *call = &write->op.call;
    if (!ecfs_s3_did (call)) {
        g_propagate_error (error, ecfs_http_refusal ((EcfsHttpOp *) &write->op, write->name));
        return false;
    }
    if (call->etag == NULL)
        return ecfs_fail (error, EPROTO, "%s: the server answers %ld without an ETag: it has not stored it",
                          write->name, call->status);
    return write->sent == write->buffer->len ||
           ecfs_fail (error, EPROTO, "%s: the server says that it is stored (%ld) before it was sent", write->name,
                      call->status);
}

/* The commit */

static void store (WriteOp *write);
static void commit (WriteOp *write);

static void look (WriteOp *write, WriteState state, void (*done) (EcfsHttp *, EcfsHttpOp *))
{
    write->state = state;
    EcfsHttpAsk ask = {.method = "HEAD", .name = write->name, .awaited = write->awaited, .done = done};
    ecfs_http_ask (&write->op, &ask);
}

static bool is_ours (const WriteOp *write)
{
    return g_strcmp0 (write->op.call.upload, write->token) == 0;
}

static void looked (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    (void) self;
    write->unconditional |= conditions (write) != ECFS_S3_CONDITIONS_KEPT;
    if (op->cancelled)
        end (write, cancelled (write));
    else if (op->call.status == 404)
        store (write);
    else if (ecfs_http_good (op->call.status))
        end (write, is_ours (write) ? NULL : exists (write));
    else
        end (write, ecfs_http_refusal (op, write->name));
}

/* The server said that the name is there, or that the upload is not. */
static void checked (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    (void) self;
    if (ecfs_http_good (op->call.status)) {
        bool ours = is_ours (write);
        if (ours) /* its parts are what it is made of */
            g_clear_pointer (&write->upload_id, g_free);
        end (write, ours ? NULL : exists (write));
    } else if (op->call.status == 404 && write->refused) {
        write->unconditional = true; /* it was removed meanwhile, or the condition means something else */
        store (write);
    } else if (op->call.status == 404) {
        end (write,
             g_error_new (ECFS_ERROR, EIO,
                          "%s: its upload in parts is gone: the server has lost it, or it was given up by somebody, "
                          "or by a rule of the bucket",
                          write->name));
    } else {
        end (write, ecfs_http_refusal (op, write->name));
    }
}

/* Whether the answer to the list of parts is neither a success nor an error. */
static bool says_nothing (const WriteOp *write)
{
    const EcfsHttpCall *call = &write->op.call;
    if (write->upload_id == NULL || !ecfs_http_good (call->status) || ecfs_s3_is_error (call))
        return false;
    EcfsS3Values values;
    ecfs_s3_answer_values (call, &values);
    bool nothing = g_strcmp0 (values.root, "CompleteMultipartUploadResult") != 0;
    ecfs_s3_values_clear (&values);
    return nothing;
}

/* Whether the upload may be gone because it has become the object: libcurl sends again by itself where a connection
 * that it kept turns out to be dead. */
static bool may_be_stored (const WriteOp *write)
{
    const EcfsHttpCall *call = &write->op.call;
    return call->status == 404 && (write->upload_id != NULL || call->n_repeats > 0) && !has_code (call, "NoSuchBucket");
}

static void stored (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    long status = op->call.status;
    GError *error = NULL;
    (void) self;
    if (write->conditional && status == 501) {
        write->unconditional = true; /* such as a store that knows conditions for PUT only */
        look (write, WRITE_LOOKING, looked);
    } else if (status == 412 || may_be_stored (write) || says_nothing (write)) {
        write->refused = status == 412;
        write->awaited = says_nothing (write);
        look (write, WRITE_CHECKING, checked);
    } else {
        if (write->upload_id == NULL)
            (void) !is_put (write, &error);
        else if (!ecfs_http_good (status) || ecfs_s3_is_error (&op->call))
            error = ecfs_http_refusal (op, write->name);
        if (error == NULL)
            g_clear_pointer (&write->upload_id, g_free);
        end (write, error);
    }
}

static char *list_parts (char *const *etags, guint n)
{
    GString *text = g_string_new (COMPLETE_OPENED);
    for (guint i = 0; i < n; i++) {
        g_autofree char *etag = g_markup_escape_text (etags[i], -1);
        g_string_append_printf (text, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", i + 1, etag);
    }
    return g_string_free (g_string_append (text, COMPLETE_CLOSED), FALSE);
}

static void store (WriteOp *write)
{
    struct curl_slist *headers = write->upload_id != NULL ? NULL : object_headers (write, body_headers (write));
    write->state = WRITE_STORING;
    write->conditional = !write->replace && !write->unconditional;
    if (write->conditional)
        headers = ecfs_http_add_header (headers, "If-None-Match: *");
    if (write->upload_id == NULL) {
        send_buffer (write, NULL, headers, stored);
        return;
    }
    g_free (write->document);
    write->document = list_parts ((char **) write->etags->pdata, write->etags->len);
    g_autofree char *query = ecfs_s3_query ("uploadId", write->upload_id, NULL);
    EcfsHttpAsk ask = {.method = "POST",
                       .name = write->name,
                       .query = query,
                       .headers = headers,
                       .body = write->document,
                       .patient = true,
                       .done = stored};
    ecfs_http_ask (&write->op, &ask);
}

static void probed (EcfsHttp *self, EcfsHttpOp *op);
static void probe_found (EcfsHttp *self, EcfsHttpOp *op);

/* Whether the store has no conditions, and says so. */
static bool lacks_conditions (const EcfsHttpCall *call)
{
    return call->status == 501 ||
           (call->status == 400 && (has_code (call, "NotImplemented") || has_code (call, "InvalidArgument")));
}

static void probe (WriteOp *write)
{
    write->state = WRITE_PROBING;
    write->n_probes++;
    EcfsHttpAsk ask = {.method = "PUT",
                       .name = PROBE,
                       .headers = ecfs_http_add_header (NULL, "If-None-Match: *"),
                       .body = "",
                       .done = probed};
    ecfs_http_ask (&write->op, &ask);
}

static void end_probe (WriteOp *write)
{
    if (write->op.cancelled)
        end (write, cancelled (write));
    else
        commit (write);
}

/* The second of two must fail; where the first does, it must be there from another time. */
static void probed (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    long status = op->call.status;
    (void) self;
    if (status == 412 && write->n_probes < N_PROBES) {
        EcfsHttpAsk ask = {.method = "HEAD", .name = PROBE, .done = probe_found};
        ecfs_http_ask (op, &ask);
        return;
    }
    if (status == 412)
        set_conditions (write, ECFS_S3_CONDITIONS_KEPT);
    else if (lacks_conditions (&op->call) || (ecfs_s3_did (&op->call) && write->n_probes == N_PROBES))
        set_conditions (write, ECFS_S3_CONDITIONS_IGNORED);
    else if (!ecfs_s3_did (&op->call)) {
        end (write, ecfs_http_refusal (op, write->name));
        return;
    }
    end_probe (write);
}

static void probe_found (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    (void) self;
    if (ecfs_http_good (op->call.status))
        set_conditions (write, ECFS_S3_CONDITIONS_KEPT);
    else if (op->call.status == 404) /* the condition means something else there */
        set_conditions (write, ECFS_S3_CONDITIONS_IGNORED);
    else {
        end (write, ecfs_http_refusal (op, write->name));
        return;
    }
    end_probe (write);
}

/* Conditions with the list of parts: an upload of a byte must not become the probe, which is there. What else comes of
 * it tells nothing, and the name is looked for as long as that is so. */

static void probe_given_up (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    end_probe ((WriteOp *) op);
}

static void end_parts_probe (WriteOp *write, EcfsS3Conditions found)
{
    write->probes = false;
    atomic_store (with_parts (write), (int) found);
    if (write->probe_id == NULL) {
        end_probe (write);
        return;
    }
    g_autofree char *query = ecfs_s3_query ("uploadId", write->probe_id, NULL);
    EcfsHttpAsk ask = {.method = "DELETE", .name = PROBE, .query = query, .done = probe_given_up};
    ecfs_http_ask (&write->op, &ask);
}

static void probe_put_together (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    EcfsS3Conditions found = ECFS_S3_CONDITIONS_UNKNOWN;
    (void) self;
    if (op->call.status == 412)
        found = ECFS_S3_CONDITIONS_KEPT;
    else if (lacks_conditions (&op->call) || (ecfs_http_good (op->call.status) && !ecfs_s3_is_error (&op->call)))
        found = ECFS_S3_CONDITIONS_IGNORED;
    end_parts_probe (write, found);
}

static void probe_part_stored (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    (void) self;
    if (!ecfs_s3_did (&op->call) || op->call.etag == NULL || op->cancelled) {
        end_parts_probe (write, ECFS_S3_CONDITIONS_UNKNOWN);
        return;
    }
    char *etag = op->call.etag;
    g_free (write->document);
    write->document = list_parts (&etag, 1);
    g_autofree char *query = ecfs_s3_query ("uploadId", write->probe_id, NULL);
    EcfsHttpAsk ask = {.method = "POST",
                       .name = PROBE,
                       .query = query,
                       .headers = ecfs_http_add_header (NULL, "If-None-Match: *"),
                       .body = write->document,
                       .patient = true,
                       .done = probe_put_together};
    ecfs_http_ask (op, &ask);
}

static void probe_created (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    EcfsS3Values values;
    (void) self;
    ecfs_s3_answer_values (&op->call, &values);
    if (ecfs_http_good (op->call.status))
        write->probe_id = g_steal_pointer (&values.upload_id);
    ecfs_s3_values_clear (&values);
    if (write->probe_id == NULL || op->cancelled) {
        end_parts_probe (write, ECFS_S3_CONDITIONS_UNKNOWN);
        return;
    }
    g_autofree char *query = ecfs_s3_query ("partNumber", "1", "uploadId", write->probe_id, NULL);
    EcfsHttpAsk ask = {.method = "PUT", .name = PROBE, .query = query, .body = "x", .done = probe_part_stored};
    ecfs_http_ask (op, &ask);
}

/* One upload at a time, and once for each; the others look for their names meanwhile. */
static bool probes_parts (WriteOp *write)
{
    int unknown = ECFS_S3_CONDITIONS_UNKNOWN;
    if (write->has_probed || !atomic_compare_exchange_strong (with_parts (write), &unknown, ECFS_S3_CONDITIONS_PROBED))
        return false;
    write->has_probed = write->probes = true;
    write->state = WRITE_PROBING;
    EcfsHttpAsk ask = {.method = "POST", .name = PROBE, .query = "uploads=", .body = "", .done = probe_created};
    ecfs_http_ask (&write->op, &ask);
    return true;
}

static void commit_parts (WriteOp *write)
{
    if (atomic_load (with_parts (write)) == ECFS_S3_CONDITIONS_KEPT)
        store (write);
    else if (!probes_parts (write))
        look (write, WRITE_LOOKING, looked);
}

static void commit (WriteOp *write)
{
    if (write->replace)
        store (write);
    else if (write->claimed == NULL && !ecfs_claims_take (write->op.http->config->committing, write->name))
        end (write, g_error_new (ECFS_ERROR, EEXIST, "%s: another connection makes it", write->name));
    else {
        if (write->claimed == NULL)
            write->claimed = g_strdup (write->name);
        if (conditions (write) == ECFS_S3_CONDITIONS_UNKNOWN)
            probe (write);
        else if (conditions (write) != ECFS_S3_CONDITIONS_KEPT)
            look (write, WRITE_LOOKING, looked);
        else if (write->upload_id == NULL)
            store (write);
        else
            commit_parts (write);
    }
}

/* Parts */

static void fill (WriteOp *write);

static void part_stored (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    GError *error = NULL;
    (void) self;
    if (is_put (write, &error) && op->cancelled)
        error = cancelled (write);
    if (error != NULL) {
        end (write, error);
        return;
    }
    g_ptr_array_add (write->etags, g_strdup (op->call.etag));
    g_byte_array_set_size (write->buffer, 0);
    write->sent = 0;
    write->state = WRITE_FILLING;
    fill (write);
}

static void send_part (WriteOp *write)
{
    if (write->etags->len == MAX_PARTS) {
        end (write, g_error_new (ECFS_ERROR, EFBIG, "%s: has more than %d parts: set a larger part_size", write->name,
                                 MAX_PARTS));
        return;
    }
    g_autofree char *number = g_strdup_printf ("%u", write->etags->len + 1);
    g_autofree char *query = ecfs_s3_query ("partNumber", number, "uploadId", write->upload_id, NULL);
    write->state = WRITE_PART;
    send_buffer (write, query, body_headers (write), part_stored);
}

static void created (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    EcfsS3Values values;
    (void) self;
    ecfs_s3_answer_values (&op->call, &values);
    if (ecfs_http_good (op->call.status))
        write->upload_id = g_steal_pointer (&values.upload_id);
    ecfs_s3_values_clear (&values);
    if (write->upload_id == NULL)
        end (write, ecfs_http_refusal (op, write->name));
    else if (op->cancelled)
        end (write, cancelled (write));
    else
        send_part (write);
}

static void create (WriteOp *write)
{
    write->state = WRITE_CREATING;
    EcfsHttpAsk ask = {.method = "POST",
                       .name = write->name,
                       .query = "uploads=",
                       .headers = object_headers (write, NULL),
                       .body = "",
                       .done = created};
    ecfs_http_ask (&write->op, &ask);
}

/* The source */

static size_t room (const WriteOp *write)
{
    return (size_t) ecfs_s3 (write->op.http)->config->part_bytes - write->buffer->len;
}

/* Bytes that are here are given back at once: they are in our memory for as long as it takes. */
static void take_rest (WriteOp *write)
{
    size_t n = MIN (write->rest_size, room (write));
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
    for (;;) {
        take_rest (write);
        if (write->rest_size > 0 || write->last == ECFS_PULL_END)
            break;
        write->last = ecfs_request_pull (write->op.request, &write->rest, &write->rest_size);
        if (write->last != ECFS_PULL_BYTES) {
            write->rest_size = 0;
            break;
        }
    }
    bool full = room (write) == 0;
    if (write->last == ECFS_PULL_ABORT)
        end (write, cancelled (write));
    else if (write->last == ECFS_PULL_END && write->rest_size == 0 &&
             (write->upload_id == NULL || write->buffer->len == 0))
        commit (write);
    else if (full && write->upload_id == NULL)
        create (write);
    else if (full || write->last == ECFS_PULL_END)
        send_part (write);
}

static void turn (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    (void) self;
    if (write->state == WRITE_FILLING)
        fill (write);
}

static void cancel (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    (void) self;
    bool whole = write->state == WRITE_STORING && (write->upload_id != NULL || op->call.sent);
    if (whole || write->state == WRITE_CREATING || write->state == WRITE_CHECKING || write->state == WRITE_PROBING)
        return; /* the server may do it: what became of it is known when it has answered */
    end (write, cancelled (write));
}

static WriteOp *new_op (EcfsHttp *self, EcfsStream *request, const char *name)
{
    WriteOp *write = (WriteOp *) ecfs_http_op_new (self, request, sizeof *write);
    uint64_t bits;
    ecfs_random (&bits, sizeof bits);
    g_snprintf (write->token, sizeof write->token, "%016" PRIx64, bits);
    write->op.clear = clear;
    write->op.cancel = cancel;
    write->op.turn = turn;
    write->name = name;
    write->buffer = g_byte_array_sized_new (FIRST_BYTES);
    write->etags = g_ptr_array_new_with_free_func (g_free);
    write->last = ECFS_PULL_LATER;
    return write;
}

void ecfs_s3_write_begin (EcfsHttp *self, EcfsStream *request)
{
    fill (new_op (self, request, request->name));
}

void ecfs_s3_mark_begin (EcfsHttp *self, EcfsStream *request)
{
    WriteOp *write = new_op (self, request, ECFS_MARKER_NAME);
    write->replace = !request->create;
    write->last = ECFS_PULL_END;
    g_byte_array_append (write->buffer, (const uint8_t *) request->text, (guint) strlen (request->text));
    fill (write);
}
