/* What answers of S3 servers mean, as an errno and a text that says what to do. */
#include "endpoint/s3/s3_priv.h"

#include <string.h>

void ecfs_s3_answer_values (const EcfsHttpCall *call, EcfsS3Values *ret_values)
{
    *ret_values = (EcfsS3Values){.root = NULL};
    if (call->words == NULL || call->words->len == 0)
        return;
    size_t blank = strspn (call->words->str, " \t\r\n"); /* sent for as long as a commit takes */
    g_autoptr (EcfsS3Parser) parser = ecfs_s3_parser_new (NULL, NULL, NULL);
    if (!ecfs_s3_parser_feed (parser, call->words->str + blank, call->words->len - blank, NULL) ||
        !ecfs_s3_parser_end (parser, NULL))
        return; /* a web page of something on the way: the status has to do */
    const EcfsS3Values *values = ecfs_s3_parser_values (parser);
    ret_values->root = g_strdup (values->root);
    ret_values->code = g_strdup (values->code);
    ret_values->message = g_strdup (values->message);
    ret_values->region = g_strdup (values->region);
    ret_values->upload_id = g_strdup (values->upload_id);
}

bool ecfs_s3_is_error (const EcfsHttpCall *call)
{
    if (call->words == NULL || strstr (call->words->str, "Error") == NULL)
        return false;
    EcfsS3Values values;
    ecfs_s3_answer_values (call, &values);
    bool is_error = g_strcmp0 (values.root, "Error") == 0;
    ecfs_s3_values_clear (&values);
    return is_error;
}

bool ecfs_s3_did (const EcfsHttpCall *call)
{
    const GString *words = call->words;
    return ecfs_http_good (call->status) && (words == NULL || strspn (words->str, " \t\r\n") == words->len);
}

/* By how much the clocks differ, from the header Date. */
static GError *clock_problem (const EcfsS3 *self, const EcfsHttpCall *call)
{
    int64_t theirs_s = call->date == NULL ? -1 : (int64_t) curl_getdate (call->date, NULL);
    int64_t late_s = theirs_s - g_get_real_time () / G_USEC_PER_SEC;
    if (theirs_s < 0)
        return ecfs_http_error (EACCES, "%s finds that this machine's clock is wrong: set it", self->own.base);
    return ecfs_http_error (EACCES, "%s finds that this machine's clock is wrong, by its own %lld s %s: set it",
                            self->own.base, (long long) ABS (late_s), late_s > 0 ? "slow" : "fast");
}

/* Who we are is not what the server wants, whatever is asked; or NULL. */
static GError *identity_problem (const EcfsS3 *self, const EcfsHttpCall *call, const EcfsS3Values *values)
{
    const char *code = values->code;
    const char *base = self->own.base;
    if (code == NULL)
        return NULL;
    if (strcmp (code, "RequestTimeTooSkewed") == 0)
        return clock_problem (self, call);
    if (strcmp (code, "InvalidAccessKeyId") == 0)
        return ecfs_http_error (EACCES, "%s does not know the access key %s: correct it, or set endpoint_url", base,
                                self->key.access);
    if (strcmp (code, "SignatureDoesNotMatch") == 0)
        return ecfs_http_error (EACCES, "%s: the secret of the access key %s is wrong", base, self->key.access);
    if (strcmp (code, "ExpiredToken") == 0 || strcmp (code, "InvalidToken") == 0 ||
        strcmp (code, "TokenRefreshRequired") == 0)
        return ecfs_http_error (EACCES, "%s: the session of the access key %s has ended (%s): renew it", base,
                                self->key.access, code);
    return NULL;
}

/* The bucket is not there, or elsewhere; or NULL. */
static GError *place_problem (const EcfsS3 *self, const EcfsHttpCall *call, const EcfsS3Values *values)
{
    const char *region = call->region != NULL ? call->region : values->region;
    const char *bucket = self->config->bucket;
    if (g_strcmp0 (values->code, "NoSuchBucket") == 0)
        return ecfs_http_error (ENOENT, "the bucket %s does not exist at %s", bucket, self->own.base);
    bool elsewhere = g_strcmp0 (values->code, "AuthorizationHeaderMalformed") == 0 ||
                     g_strcmp0 (values->code, "IllegalLocationConstraintException") == 0 ||
                     (call->status >= 300 && call->status < 400);
    if (!elsewhere)
        return NULL;
    if (region != NULL && strcmp (region, self->region) != 0)
        return ecfs_http_error (EINVAL, "the bucket %s is in the region %s, not in %s: set region to it", bucket,
                                region, self->region);
    return ecfs_http_error (EINVAL, "the bucket %s is not at %s in the region %s (%ld %s): set endpoint_url or region",
                            bucket, self->own.base, self->region, call->status,
                            values->code != NULL ? values->code : "");
}

/* The permission that @method needs; uploads in parts need that of PUT. */
static const char *permission (const char *method)
{
    return strcmp (method, "DELETE") == 0                                ? "s3:DeleteObject"
           : strcmp (method, "PUT") == 0 || strcmp (method, "POST") == 0 ? "s3:PutObject"
                                                                         : "s3:GetObject and s3:ListBucket";
}

static GError *denied (const EcfsS3 *self, const EcfsHttpCall *call, const char *name, const char *code)
{
    const char *bucket = self->config->bucket;
    if (strcmp (call->method, "DELETE") == 0 && self->config->retains)
        return ecfs_http_error (EPERM, "%s: is retained there: the bucket %s does not let it be deleted (%s)", name,
                                bucket, code);
    if (strcmp (call->method, "DELETE") == 0)
        return ecfs_http_error (
            EACCES,
            "%s: the bucket %s does not let it be deleted (%s): allow s3:DeleteObject for this access "
            "key, or say delete = never if that is meant",
            name, bucket, code);
    return ecfs_http_error (EACCES, "%s: the bucket %s refuses %s (%s): allow %s for this access key", name, bucket,
                            call->method, code, permission (call->method));
}

/* What codes say that come with one status here and with another there; or NULL. */
static GError *known_error (const EcfsS3 *self, const char *name, const EcfsS3Values *values)
{
    static const struct {
        const char *code;
        int number;
        const char *words;
    } known[] = {
        {"QuotaExceeded", EDQUOT, "the account's quota is used up"},
        {"XMinioStorageFull", ENOSPC, "the server has no space left"},
        {"InsufficientCapacity", ENOSPC, "the server has no space left"},
        {"EntityTooLarge", EFBIG, "is larger than the server takes"},
        {"InvalidObjectState", EIO, "lies in a storage class that must be asked to bring it back first: restore it"},
        {"InvalidStorageClass", EINVAL, "the server has no such class: correct storage_class"},
        {"NoSuchUpload", EIO, "its upload in parts was given up by somebody, or by a rule of the bucket"},
        {"AccountProblem", EACCES, "something is wrong with the account: its operator knows"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (known); i++)
        if (g_strcmp0 (values->code, known[i].code) == 0)
            return ecfs_http_error (known[i].number, "%s: %s (%s of the bucket %s)", name, known[i].words,
                                    known[i].code, self->config->bucket);
    return NULL;
}

static GError *other_error (const EcfsS3 *self, const EcfsHttpCall *call, const char *name, const EcfsS3Values *values)
{
    if (ecfs_http_good (call->status) && values->code == NULL)
        return ecfs_http_error (
            EPROTO,
            "%s: %s is answered by %ld and a page that is none of S3's: see what stands between here and "
            "%s",
            name, call->method, call->status, self->own.base);
    return ecfs_http_error (call->status >= 500 ? EIO : EPROTO, "%s: %s is answered by %ld %s of the bucket %s%s%s",
                            name, call->method, call->status, values->code != NULL ? values->code : "without a reason",
                            self->config->bucket, values->message != NULL ? ": " : "",
                            values->message != NULL ? values->message : "");
}

static GError *status_error (const EcfsS3 *self, const EcfsHttpCall *call, const char *name, const EcfsS3Values *values)
{
    const char *code = values->code != NULL ? values->code : "no code";
    switch (call->status) {
    case 403:
        return denied (self, call, name, code);
    case 404:
        return ecfs_http_error (ENOENT, "%s: %s", name, g_strerror (ENOENT));
    case 405:
    case 501:
        return ecfs_http_error (ENOTSUP, "%s: the server does not do %s there (%ld %s)", name, call->method,
                                call->status, code);
    case 412:
        return ecfs_http_error (EEXIST, "%s: %s", name, g_strerror (EEXIST));
    case 416:
        return ecfs_http_error (EBADMSG, "%s: ends before the range that was asked for", name);
    case 429:
    case 503:
        return ecfs_http_error (
            EBUSY,
            "%s: the bucket %s asks for fewer requests (%ld %s), %u times in a row: set connections to 1, "
            "or spread files over more endpoints",
            name, self->config->bucket, call->status, code, call->n_repeats + 1);
    case 507:
        return ecfs_http_error (ENOSPC, "%s: the server has no space left (507)", name);
    default:
        return other_error (self, call, name, values);
    }
}

/* An answer to HEAD has no document, and 400 may be a session that has ended: what is listed when a connection begins,
 * by keys that are read again, says why. NULL: it is something else. */
static GError *unexplained (const EcfsS3 *self, const EcfsHttpCall *call)
{
    if (call->status != 400 || strcmp (call->method, "HEAD") != 0)
        return NULL;
    return ecfs_http_error (ENOTCONN, "%s answers HEAD by 400, without a reason: the next connection finds it out",
                            self->own.base);
}

GError *ecfs_s3_refusal (EcfsHttpOp *op, const char *name)
{
    const EcfsS3 *self = ecfs_s3 (op->http);
    const EcfsHttpCall *call = &op->call;
    EcfsS3Values values;
    ecfs_s3_answer_values (call, &values);
    GError *error = identity_problem (self, call, &values);
    if (error == NULL)
        error = place_problem (self, call, &values);
    if (error == NULL)
        error = unexplained (self, call);
    if (error != NULL) /* nothing else would be answered either */
        ecfs_http_break (op->http, g_error_copy (error));
    else
        error = known_error (self, name, &values);
    if (error == NULL)
        error = status_error (self, call, name, &values);
    ecfs_s3_values_clear (&values);
    return error;
}
