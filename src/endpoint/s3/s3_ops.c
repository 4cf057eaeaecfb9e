/* Requests of one or two calls: remove, rmdir, size, space, locks; and the marker. */
#include "endpoint/s3/s3_priv.h"

#include <string.h>

typedef struct SmallOp {
    EcfsHttpOp op;
    EcfsS3Parser *parser;
    char *key;   /* rmdir: of the directory, with "/" at its end */
    bool itself; /* … is an object … */
    bool other;  /* … and so is something below it */
    char *body;  /* renew */
    GError *error;
} SmallOp;

static void clear (EcfsHttpOp *op)
{
    SmallOp *small = (SmallOp *) op;
    ecfs_s3_parser_free (small->parser);
    g_free (small->key);
    g_free (small->body);
    g_clear_error (&small->error);
}

static SmallOp *new_op (EcfsHttp *self, EcfsStream *request)
{
    SmallOp *small = (SmallOp *) ecfs_http_op_new (self, request, sizeof *small);
    small->op.clear = clear;
    small->op.cancel = ecfs_http_cancel;
    return small;
}

/* Removing: S3 says of what was not there that it has removed it, so it is looked for first. */

static void removed (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    ecfs_http_op_end (op, 0, ecfs_s3_did (&op->call) ? NULL : ecfs_http_refusal (op, op->request->name));
}

static void found (EcfsHttp *self, EcfsHttpOp *op)
{
    EcfsStream *request = op->request;
    if (op->call.status == 404 && g_str_has_prefix (request->name, ECFS_INCOMING "/")) {
        ecfs_http_op_drop (op);
        ecfs_s3_remove_unfinished_begin (self, request);
    } else if (!ecfs_http_good (op->call.status)) {
        ecfs_http_op_end (op, 0, ecfs_http_refusal (op, request->name));
    } else {
        EcfsHttpAsk ask = {.method = "DELETE", .name = request->name, .done = removed};
        ecfs_http_ask (op, &ask);
    }
}

void ecfs_s3_remove_begin (EcfsHttp *self, EcfsStream *request)
{
    EcfsHttpAsk ask = {.method = "HEAD", .name = request->name, .done = found};
    ecfs_http_ask (&new_op (self, request)->op, &ask);
}

/* Locks: what was asked for when it was stored is asked for again. */

#define SHARE_LEFT 3 /* of its time: a lock that lasts for less than this part is renewed */

char *ecfs_s3_moment (int64_t time_us)
{
    g_autoptr (GDateTime) moment = g_date_time_new_from_unix_utc (time_us / G_USEC_PER_SEC + 1);
    return g_date_time_format (moment, "%Y-%m-%dT%H:%M:%SZ");
}

static GError *renewal_refused (EcfsS3 *self, EcfsHttpOp *op)
{
    EcfsS3Values values;
    const char *name = op->request->name;
    ecfs_s3_answer_values (&op->call, &values);
    GError *error = g_strcmp0 (values.code, "AccessDenied") != 0
                        ? ecfs_http_refusal (op, name)
                        : ecfs_http_error (EACCES,
                                           "%s: the bucket %s does not let its lock be renewed (AccessDenied): allow "
                                           "s3:PutObjectRetention for this access key",
                                           name, self->config->bucket);
    ecfs_s3_values_clear (&values);
    return error;
}

static void renewed (EcfsHttp *self, EcfsHttpOp *op)
{
    const bool did = ecfs_s3_did (&op->call);
    ecfs_http_op_end (op, did, did ? NULL : renewal_refused (ecfs_s3 (self), op));
}

/* Who may not see a lock is told of none: the server shortens none all the same. */
static void lock_told (EcfsHttp *self, EcfsHttpOp *op)
{
    const EcfsS3Config *config = ecfs_s3 (self)->config;
    const int64_t now_us = g_get_real_time ();
    g_autoptr (GDateTime) until = op->call.until == NULL ? NULL : g_date_time_new_from_iso8601 (op->call.until, NULL);
    if (!ecfs_http_good (op->call.status)) {
        ecfs_http_op_end (op, 0, ecfs_http_refusal (op, op->request->name));
        return;
    }
    if (until != NULL && g_date_time_to_unix (until) >= (now_us + config->lock_us / SHARE_LEFT) / G_USEC_PER_SEC) {
        ecfs_http_op_end (op, 0, NULL);
        return;
    }
    const bool is_strict = g_strcmp0 (op->call.lock, "COMPLIANCE") == 0 || g_strcmp0 (op->call.lock, "GOVERNANCE") == 0;
    g_autofree char *moment = ecfs_s3_moment (now_us + config->lock_us);
    SmallOp *small = (SmallOp *) op;
    g_free (small->body);
    small->body = g_strdup_printf ("<Retention xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Mode>%s</Mode>"
                                   "<RetainUntilDate>%s</RetainUntilDate></Retention>",
                                   is_strict ? op->call.lock : config->lock_mode, moment);
    EcfsHttpAsk ask = {
        .method = "PUT", .name = op->request->name, .query = "retention=", .body = small->body, .done = renewed};
    ecfs_http_ask (op, &ask);
}

void ecfs_s3_renew_begin (EcfsHttp *self, EcfsStream *request)
{
    EcfsHttpAsk ask = {.method = "HEAD", .name = request->name, .done = lock_told};
    ecfs_http_ask (&new_op (self, request)->op, &ask);
}

/* Directories are there as long as something is in them. Some servers, and people, store one as an empty object. */

static void on_member (void *user, const EcfsS3Entry *entry)
{
    SmallOp *small = user;
    bool itself = strcmp (entry->key, small->key) == 0;
    small->itself |= itself;
    small->other |= !itself;
}

static bool take_members (EcfsHttpOp *op, const uint8_t *bytes, size_t size)
{
    SmallOp *small = (SmallOp *) op;
    return small->error == NULL && ecfs_s3_parser_feed (small->parser, bytes, size, &small->error);
}

static void members_told (EcfsHttp *self, EcfsHttpOp *op)
{
    SmallOp *small = (SmallOp *) op;
    const char *name = op->request->name;
    (void) self;
    if (small->error == NULL && op->call.status == 200)
        (void) !ecfs_s3_parser_end (small->parser, &small->error);
    if (small->error == NULL && op->call.status != 200)
        small->error = ecfs_http_refusal (op, name);
    else if (small->error == NULL && small->other)
        small->error = g_error_new (ECFS_ERROR, ENOTEMPTY, "%s: %s", name, g_strerror (ENOTEMPTY));
    else if (small->error == NULL && !small->itself)
        small->error = g_error_new (ECFS_ERROR, ENOENT, "%s: %s", name, g_strerror (ENOENT));
    if (small->error != NULL) {
        ecfs_http_op_end (op, 0, g_steal_pointer (&small->error));
        return;
    }
    g_autofree char *directory = g_strconcat (name, "/", NULL);
    EcfsHttpAsk ask = {.method = "DELETE", .name = directory, .done = removed};
    ecfs_http_ask (op, &ask);
}

void ecfs_s3_rmdir_begin (EcfsHttp *self, EcfsStream *request)
{
    SmallOp *small = new_op (self, request);
    small->key = g_strconcat (ecfs_s3 (self)->config->prefix, request->name, "/", NULL);
    small->parser = ecfs_s3_parser_new (ECFS_S3_OBJECTS, on_member, small);
    g_autofree char *query =
        ecfs_s3_query ("list-type", "2", "encoding-type", "url", "max-keys", "2", "prefix", small->key, NULL);
    EcfsHttpAsk ask = {.method = "GET",
                       .path = ecfs_s3 (self)->bucket_path,
                       .query = query,
                       .take = take_members,
                       .done = members_told};
    ecfs_http_ask (&small->op, &ask);
}

void ecfs_s3_size_begin (EcfsHttp *self, EcfsStream *request)
{
    EcfsHttpAsk ask = {.method = "HEAD", .name = request->name, .done = ecfs_http_size_told};
    ecfs_http_ask (&new_op (self, request)->op, &ask);
}

void ecfs_s3_space_begin (EcfsHttp *self, EcfsStream *request)
{
    (void) self;
    ecfs_request_fail (request, ENOTSUP, "a bucket does not tell its space");
}

void ecfs_s3_examine_begin (EcfsHttp *self, EcfsStream *request)
{
    ecfs_http_examine_begin (self, request, g_strconcat (self->config->plain, "/" ECFS_MARKER_NAME, NULL));
}
