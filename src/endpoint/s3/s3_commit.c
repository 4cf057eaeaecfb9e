/*
 * The commit of an upload makes the name, which must not be there:
 *
 *   PROBING     once per endpoint: does the store keep to If-None-Match?      → LOOKING, STORING, the end
 *               And with a list of parts, which some stores do not?
 *   LOOKING     HEAD of the name, where it does not, or that is not known     → STORING, the end
 *   STORING     PUT of all, or POST ?uploadId of the list of parts            → CHECKING, the end
 *   CHECKING    HEAD: is what is there ours, from an attempt whose answer was another one?   → STORING, the end
 *
 * Each upload leaves a random number with its object, so that it knows its own.
 */
#include "endpoint/s3/s3_write.h"

#define PROBE    ECFS_INCOMING "/" /* an empty object */
#define N_PROBES 2

/* EcfsS3Conditions with the list of parts. */
static atomic_int *with_parts (const EcfsS3Write *write)
{
    return ecfs_s3 (write->send.op.http)->config->conditions_with_parts;
}

static EcfsS3Conditions conditions (const EcfsS3Write *write)
{
    return (EcfsS3Conditions) atomic_load (ecfs_s3 (write->send.op.http)->config->conditions);
}

static void set_conditions (const EcfsS3Write *write, EcfsS3Conditions found)
{
    const EcfsS3 *self = ecfs_s3 (write->send.op.http);
    if (found == ECFS_S3_CONDITIONS_IGNORED && conditions (write) != found)
        g_message (
            "endpoint %s: %s does not keep to If-None-Match, so each upload looks first whether its name is there",
            ecfs_slot_endpoint_name (self->http.slot), self->own.base);
    atomic_store (self->config->conditions, (int) found);
}

static GError *exists (const EcfsS3Write *write)
{
    return g_error_new (ECFS_ERROR, EEXIST, "%s: %s", write->name, g_strerror (EEXIST));
}

static bool has_code (const EcfsHttpCall *call, const char *code)
{
    EcfsS3Values values;
    ecfs_s3_answer_values (call, &values);
    bool has = g_strcmp0 (values.code, code) == 0;
    ecfs_s3_values_clear (&values);
    return has;
}

/* Whether the store has no conditions, and says so. */
static bool lacks_conditions (const EcfsHttpCall *call)
{
    return call->status == 501 ||
           (call->status == 400 && (has_code (call, "NotImplemented") || has_code (call, "InvalidArgument")));
}

static void store (EcfsS3Write *write);

static void look (EcfsS3Write *write, EcfsS3WriteState state, void (*done) (EcfsHttp *, EcfsHttpOp *))
{
    write->state = state;
    EcfsHttpAsk ask = {.method = "HEAD", .name = write->name, .awaited = write->awaited, .done = done};
    ecfs_http_ask (&write->send.op, &ask);
}

static bool is_ours (const EcfsS3Write *write)
{
    return g_strcmp0 (write->send.op.call.upload, write->token) == 0;
}

static void looked (EcfsHttp *self, EcfsHttpOp *op)
{
    EcfsS3Write *write = (EcfsS3Write *) op;
    (void) self;
    write->unconditional |=
        conditions (write) != ECFS_S3_CONDITIONS_KEPT ||
        (write->upload_id != NULL && atomic_load (with_parts (write)) == ECFS_S3_CONDITIONS_IGNORED);
    if (op->cancelled)
        ecfs_s3_write_end (write, ecfs_s3_write_cancelled (write));
    else if (op->call.status == 404)
        store (write);
    else if (ecfs_http_good (op->call.status))
        ecfs_s3_write_end (write, is_ours (write) ? NULL : exists (write));
    else
        ecfs_s3_write_end (write, ecfs_http_refusal (op, write->name));
}

/* The server said that the name is there, or that the upload is not. */
static void checked (EcfsHttp *self, EcfsHttpOp *op)
{
    EcfsS3Write *write = (EcfsS3Write *) op;
    (void) self;
    if (ecfs_http_good (op->call.status)) {
        bool ours = is_ours (write);
        if (ours) /* its parts are what it is made of */
            g_clear_pointer (&write->upload_id, g_free);
        ecfs_s3_write_end (write, ours ? NULL : exists (write));
    } else if (op->call.status == 404 && write->refused) {
        write->unconditional = true; /* it was removed meanwhile, or the condition means something else */
        store (write);
    } else if (op->call.status == 404) {
        ecfs_s3_write_end (
            write,
            g_error_new (ECFS_ERROR, EIO,
                         "%s: its upload in parts is gone: the server has lost it, or it was given up by somebody, "
                         "or by a rule of the bucket",
                         write->name));
    } else {
        ecfs_s3_write_end (write, ecfs_http_refusal (op, write->name));
    }
}

/* Whether the answer to the list of parts is neither a success nor an error. */
static bool says_nothing (const EcfsS3Write *write)
{
    const EcfsHttpCall *call = &write->send.op.call;
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
static bool may_be_stored (const EcfsS3Write *write)
{
    const EcfsHttpCall *call = &write->send.op.call;
    return call->status == 404 && (write->upload_id != NULL || call->n_repeats > 0) && !has_code (call, "NoSuchBucket");
}

static void stored (EcfsHttp *self, EcfsHttpOp *op)
{
    EcfsS3Write *write = (EcfsS3Write *) op;
    long status = op->call.status;
    GError *error = NULL;
    (void) self;
    if (write->conditional && lacks_conditions (&op->call)) {
        write->unconditional = true; /* such as a store that knows conditions for PUT only */
        look (write, ECFS_S3_WRITE_LOOKING, looked);
    } else if (status == 412 || may_be_stored (write) || says_nothing (write)) {
        write->refused = status == 412;
        write->awaited = says_nothing (write);
        look (write, ECFS_S3_WRITE_CHECKING, checked);
    } else {
        if (write->upload_id == NULL)
            (void) !ecfs_s3_is_put (&write->send, write->name, &error);
        else if (!ecfs_http_good (status) || ecfs_s3_is_error (&op->call))
            error = ecfs_http_refusal (op, write->name);
        if (error == NULL)
            g_clear_pointer (&write->upload_id, g_free);
        ecfs_s3_write_end (write, error);
    }
}

static void store (EcfsS3Write *write)
{
    struct curl_slist *headers =
        write->upload_id != NULL ? NULL : ecfs_s3_object_headers (write, ecfs_s3_body_headers (&write->send));
    write->state = ECFS_S3_WRITE_STORING;
    write->conditional = !write->replace && !write->unconditional;
    if (write->conditional)
        headers = ecfs_http_add_header (headers, "If-None-Match: *");
    if (write->upload_id == NULL) {
        ecfs_s3_send (&write->send, NULL, headers, stored);
        return;
    }
    g_free (write->document);
    write->document = ecfs_s3_parts_list ((char **) write->etags->pdata, write->etags->len);
    g_autofree char *query = ecfs_s3_query ("uploadId", write->upload_id, NULL);
    EcfsHttpAsk ask = {.method = "POST",
                       .name = write->name,
                       .query = query,
                       .headers = headers,
                       .body = write->document,
                       .patient = true,
                       .done = stored};
    ecfs_http_ask (&write->send.op, &ask);
}

static void probed (EcfsHttp *self, EcfsHttpOp *op);
static void probe_found (EcfsHttp *self, EcfsHttpOp *op);

static void probe (EcfsS3Write *write)
{
    write->state = ECFS_S3_WRITE_PROBING;
    write->n_probes++;
    EcfsHttpAsk ask = {.method = "PUT",
                       .name = PROBE,
                       .headers = ecfs_http_add_header (NULL, "If-None-Match: *"),
                       .body = "",
                       .done = probed};
    ecfs_http_ask (&write->send.op, &ask);
}

static void end_probe (EcfsS3Write *write)
{
    if (write->send.op.cancelled)
        ecfs_s3_write_end (write, ecfs_s3_write_cancelled (write));
    else
        ecfs_s3_commit (write);
}

/* The second of two must fail; where the first does, it must be there from another time. */
static void probed (EcfsHttp *self, EcfsHttpOp *op)
{
    EcfsS3Write *write = (EcfsS3Write *) op;
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
        ecfs_s3_write_end (write, ecfs_http_refusal (op, write->name));
        return;
    }
    end_probe (write);
}

static void probe_found (EcfsHttp *self, EcfsHttpOp *op)
{
    EcfsS3Write *write = (EcfsS3Write *) op;
    (void) self;
    if (ecfs_http_good (op->call.status))
        set_conditions (write, ECFS_S3_CONDITIONS_KEPT);
    else if (op->call.status == 404) /* the condition means something else there */
        set_conditions (write, ECFS_S3_CONDITIONS_IGNORED);
    else {
        ecfs_s3_write_end (write, ecfs_http_refusal (op, write->name));
        return;
    }
    end_probe (write);
}

/* Conditions with the list of parts: an upload of a byte must not become the probe, which is there. What else comes of
 * it tells nothing, and the name is looked for as long as that is so. */

static void probe_given_up (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    end_probe ((EcfsS3Write *) op);
}

static void end_parts_probe (EcfsS3Write *write, EcfsS3Conditions found)
{
    write->probes = false;
    atomic_store (with_parts (write), (int) found);
    if (write->probe_id == NULL) {
        end_probe (write);
        return;
    }
    g_autofree char *query = ecfs_s3_query ("uploadId", write->probe_id, NULL);
    EcfsHttpAsk ask = {.method = "DELETE", .name = PROBE, .query = query, .done = probe_given_up};
    ecfs_http_ask (&write->send.op, &ask);
}

static void probe_put_together (EcfsHttp *self, EcfsHttpOp *op)
{
    EcfsS3Write *write = (EcfsS3Write *) op;
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
    EcfsS3Write *write = (EcfsS3Write *) op;
    (void) self;
    if (!ecfs_s3_did (&op->call) || op->call.etag == NULL || op->cancelled) {
        end_parts_probe (write, ECFS_S3_CONDITIONS_UNKNOWN);
        return;
    }
    char *etag = op->call.etag;
    g_free (write->document);
    write->document = ecfs_s3_parts_list (&etag, 1);
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
    EcfsS3Write *write = (EcfsS3Write *) op;
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
static bool probes_parts (EcfsS3Write *write)
{
    int unknown = ECFS_S3_CONDITIONS_UNKNOWN;
    if (write->has_probed || !atomic_compare_exchange_strong (with_parts (write), &unknown, ECFS_S3_CONDITIONS_PROBED))
        return false;
    write->has_probed = write->probes = true;
    write->state = ECFS_S3_WRITE_PROBING;
    EcfsHttpAsk ask = {.method = "POST", .name = PROBE, .query = "uploads=", .body = "", .done = probe_created};
    ecfs_http_ask (&write->send.op, &ask);
    return true;
}

static void commit_parts (EcfsS3Write *write)
{
    if (atomic_load (with_parts (write)) == ECFS_S3_CONDITIONS_KEPT)
        store (write);
    else if (!probes_parts (write))
        look (write, ECFS_S3_WRITE_LOOKING, looked);
}

void ecfs_s3_commit (EcfsS3Write *write)
{
    if (write->replace)
        store (write);
    else if (write->claimed == NULL && !ecfs_claims_take (write->send.op.http->config->committing, write->name))
        ecfs_s3_write_end (write, g_error_new (ECFS_ERROR, EEXIST, "%s: another connection makes it", write->name));
    else {
        if (write->claimed == NULL)
            write->claimed = g_strdup (write->name);
        if (conditions (write) == ECFS_S3_CONDITIONS_UNKNOWN)
            probe (write);
        else if (conditions (write) != ECFS_S3_CONDITIONS_KEPT)
            look (write, ECFS_S3_WRITE_LOOKING, looked);
        else if (write->upload_id == NULL)
            store (write);
        else
            commit_parts (write);
    }
}

void ecfs_s3_commit_clear (EcfsS3Write *write)
{
    if (write->claimed != NULL)
        ecfs_claims_release (write->send.op.http->config->committing, write->claimed);
    if (write->probes) /* it was cut off: another one finds out */
        atomic_store (with_parts (write), ECFS_S3_CONDITIONS_UNKNOWN);
    g_free (write->claimed);
    g_free (write->probe_id);
    g_free (write->document);
}
