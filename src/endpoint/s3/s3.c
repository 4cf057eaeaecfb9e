/* The driver s3://. s3_priv.h tells what is where. */
#include "endpoint/s3/s3_priv.h"

#include <string.h>

#define REPEAT_US   (100 * 1000) /* the first pause; each is twice the one before … */
#define MD5_BYTES   16
#define MAX_REPEATS 6 /* … and the last 3.2 s */

static void begin (EcfsHttp *self, EcfsStream *request)
{
    static void (*const begin_kind[]) (EcfsHttp *, EcfsStream *) = {
        [ECFS_REQUEST_READ] = ecfs_http_read_begin, [ECFS_REQUEST_WRITE] = ecfs_s3_write_begin,
        [ECFS_REQUEST_RMDIR] = ecfs_s3_rmdir_begin, [ECFS_REQUEST_REMOVE] = ecfs_s3_remove_begin,
        [ECFS_REQUEST_SIZE] = ecfs_s3_size_begin,   [ECFS_REQUEST_SPACE] = ecfs_s3_space_begin,
        [ECFS_REQUEST_LIST] = ecfs_s3_list_begin,   [ECFS_REQUEST_EXAMINE] = ecfs_s3_examine_begin,
        [ECFS_REQUEST_MARK] = ecfs_s3_mark_begin,   [ECFS_REQUEST_RENEW] = ecfs_s3_renew_begin,
    };
    begin_kind[request->kind](self, request);
}

/* The value of a header in @list, or NULL. */
static const char *find_header (const struct curl_slist *list, const char *name)
{
    size_t size = strlen (name);
    for (; list != NULL; list = list->next)
        if (strncmp (list->data, name, size) == 0 && list->data[size] == ':')
            return list->data + size + strspn (list->data + size, ": ");
    return NULL;
}

static struct curl_slist *add_signature (EcfsS3 *self, const EcfsHttpAsk *ask, struct curl_slist *list,
                                         const char *stamp)
{
    g_autoptr (GPtrArray) lines = g_ptr_array_new ();
    for (struct curl_slist *at = list; at != NULL; at = at->next)
        g_ptr_array_add (lines, at->data);
    g_ptr_array_add (lines, NULL);
    g_autofree char *path =
        ask->path != NULL ? g_strdup (ask->path) : g_strconcat (self->own.root, "/", ask->name, NULL);
    EcfsS3Signing what = {.key = &self->key,
                          .region = self->region,
                          .stamp = stamp,
                          .method = ask->method,
                          .host = self->host,
                          .path = path,
                          .query = ask->query,
                          .headers = (const char *const *) lines->pdata,
                          .content = find_header (list, "x-amz-content-sha256")};
    g_autofree char *authorization = ecfs_s3_sign (&what);
    return ecfs_http_add_header (list, "Authorization: %s", authorization);
}

struct curl_slist *ecfs_s3_add_md5 (struct curl_slist *list, const void *bytes, size_t size)
{
    g_autoptr (GChecksum) md5 = g_checksum_new (G_CHECKSUM_MD5);
    uint8_t digest[MD5_BYTES];
    gsize digest_size = sizeof digest;
    g_checksum_update (md5, bytes, (gssize) size);
    g_checksum_get_digest (md5, digest, &digest_size);
    g_autofree char *text = g_base64_encode (digest, digest_size);
    return ecfs_http_add_header (list, "Content-MD5: %s", text);
}

static struct curl_slist *make_headers (EcfsHttpOp *op, const EcfsHttpAsk *ask, GError **error)
{
    EcfsS3 *self = ecfs_s3 (op->http);
    struct curl_slist *list = ask->headers;
    char hash[ECFS_S3_HASH_SIZE], stamp[ECFS_S3_STAMP_SIZE];
    (void) error;
    ecfs_s3_stamp (g_get_real_time () / G_USEC_PER_SEC, stamp);
    if (find_header (list, "x-amz-content-sha256") == NULL) {
        ecfs_s3_hash (ask->body, ask->body == NULL ? 0 : strlen (ask->body), hash);
        list = ecfs_http_add_header (list, "x-amz-content-sha256: %s", hash);
    }
    list = ecfs_http_add_header (list, "x-amz-date: %s", stamp);
    if (self->key.token != NULL)
        list = ecfs_http_add_header (list, "x-amz-security-token: %s", self->key.token);
    list = add_signature (self, ask, list, stamp);
    if (ask->body != NULL)
        list = ecfs_http_add_header (list, "Content-Type: application/xml");
    if (ask->body != NULL && strcmp (ask->method, "PUT") == 0)
        list = ecfs_s3_add_md5 (list, ask->body, strlen (ask->body));
    if (ask->upload)
        list = ecfs_http_add_header (list, "Content-Type: application/octet-stream");
    return ecfs_http_add_header (list, "Expect:");
}

/* Whether the server wants the same to be asked again: it is busy, or failed at it for no reason of ours. */
static bool wants_patience (const EcfsHttpCall *call)
{
    static const char *const codes[] = {"SlowDown",       "InternalError",    "ServiceUnavailable",
                                        "RequestTimeout", "OperationAborted", "ConditionalRequestConflict",
                                        "TooManyRequests"};
    if (ecfs_http_good (call->status) && !ecfs_s3_is_error (call))
        return false;
    if (call->awaited && call->status == 404)
        return true;
    if (call->status == 429 || call->status == 500 || (call->status >= 502 && call->status <= 504))
        return true;
    EcfsS3Values values;
    bool wants = false;
    ecfs_s3_answer_values (call, &values);
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++)
        wants |= g_strcmp0 (values.code, codes[i]) == 0;
    ecfs_s3_values_clear (&values);
    return wants;
}

static int64_t again_us (EcfsHttpOp *op)
{
    if (op->call.n_repeats >= MAX_REPEATS || (op->supply != NULL && op->rewind == NULL) || !wants_patience (&op->call))
        return 0;
    int64_t pause_us = REPEAT_US << op->call.n_repeats;
    return pause_us / 2 + g_random_int_range (0, (int) pause_us / 2 + 1); /* not all at the same time */
}

const EcfsHttpDialect ecfs_s3_dialect = {
    .keeps_words = true, .begin = begin, .headers = make_headers, .refusal = ecfs_s3_refusal, .again_us = again_us};

static const char *const option_keys[] = {
    ECFS_COMMON_OPTION_KEYS,
    ECFS_HTTP_OPTION_KEYS,
    ECFS_RETAIN_OPTION_KEY,
    "endpoint_url",
    "key_file",
    "object_lock",
    "part_size",
    "profile",
    "region",
    "storage_class",
    "style",
    NULL,
};

static int64_t lock_us (const void *config)
{
    return ((const EcfsS3Config *) config)->lock_us;
}

/* The parts, and what begins and ends them. */
static uint64_t store_requests (const void *config, uint64_t bytes)
{
    uint64_t part_bytes = ((const EcfsS3Config *) config)->part_bytes;
    return bytes <= part_bytes ? 1 : (bytes - 1) / part_bytes + 1 + 2;
}

const EcfsDriver ecfs_driver_s3 = {
    .scheme = "s3",
    .option_keys = option_keys,
    .default_connections = 2,
    .n_pipelined = ECFS_HTTP_MAX_ACTIVE,
    .counts_sent = true,
    .own_login = true,
    .new_config = ecfs_s3_new_config,
    .free_config = ecfs_s3_free_config,
    .lock_us = lock_us,
    .store_requests = store_requests,
    .connect = ecfs_s3_connect,
    .serve = ecfs_http_serve,
    .disconnect = ecfs_s3_disconnect,
};
