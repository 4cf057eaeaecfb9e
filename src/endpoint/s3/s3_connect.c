/* Whether a bucket is there, lets us in, and where. */
#include "endpoint/s3/s3_priv.h"

#include <string.h>

/* Looking at the root: does any key begin with its prefix? */
typedef struct Look {
    EcfsHttpOp op;
    EcfsS3Parser *parser;
    bool any;
    bool make_root;
    bool moved; /* to the region that the server has told */
    bool over;
    GError *error;
} Look;

static void clear (EcfsHttpOp *op)
{
    Look *look = (Look *) op;
    ecfs_s3_parser_free (look->parser);
    g_clear_error (&look->error);
}

/* Where the bucket is: the server's name and the paths of region and style. */
static void set_place (EcfsS3 *self)
{
    const EcfsS3Config *config = self->config;
    bool dotted = strchr (config->bucket, '.') != NULL; /* no certificate has that name */
    bool by_host = config->style == ECFS_S3_STYLE_HOST ||
                   (config->style == ECFS_S3_STYLE_ANY && config->http.base == NULL && !dotted);
    g_autofree char *server = NULL;
    if (config->http.base != NULL)
        server = g_strdup (strstr (config->http.base, "://") + strlen ("://"));
    else
        server = g_strdup_printf ("s3.%s.amazonaws.com%s", self->region,
                                  g_str_has_prefix (self->region, "cn-") ? ".cn" : "");
    g_free (self->host);
    g_free (self->own.base);
    g_free (self->own.root);
    g_free (self->bucket_path);
    self->host = by_host ? g_strconcat (config->bucket, ".", server, NULL) : g_strdup (server);
    self->own.base = g_strconcat (config->http.tls ? "https://" : "http://", self->host, NULL);
    self->bucket_path = by_host ? g_strdup ("/") : g_strconcat ("/", config->bucket, NULL);
    g_autofree char *prefix = g_strndup (config->prefix, MAX (strlen (config->prefix), 1) - 1);
    g_autofree char *escaped = ecfs_s3_escape (prefix, true);
    self->own.root = g_strconcat (by_host ? "" : self->bucket_path, *escaped == '\0' ? "" : "/", escaped, NULL);
}

static void on_entry (void *user, const EcfsS3Entry *entry)
{
    (void) entry;
    ((Look *) user)->any = true;
}

static bool take (EcfsHttpOp *op, const uint8_t *bytes, size_t size)
{
    Look *look = (Look *) op;
    return look->error == NULL && ecfs_s3_parser_feed (look->parser, bytes, size, &look->error);
}

static void looked (EcfsHttp *self, EcfsHttpOp *op);

static void ask_root (Look *look)
{
    EcfsS3 *self = ecfs_s3 (look->op.http);
    const char *prefix = *self->config->prefix == '\0' ? NULL : self->config->prefix;
    g_autofree char *query = ecfs_s3_query ("list-type", "2", "max-keys", "1", "prefix", prefix, NULL);
    ecfs_s3_parser_free (look->parser);
    look->parser = ecfs_s3_parser_new (ECFS_S3_OBJECTS, on_entry, look);
    EcfsHttpAsk ask = {.method = "GET", .path = self->bucket_path, .query = query, .take = take, .done = looked};
    ecfs_http_ask (&look->op, &ask);
}

static void made (EcfsHttp *http, EcfsHttpOp *op)
{
    Look *look = (Look *) op;
    const EcfsHttpCall *call = &op->call;
    bool is_bucket = *ecfs_s3 (http)->config->prefix == '\0'; /* some servers describe a bucket that they made */
    if (!(is_bucket ? ecfs_http_good (call->status) && !ecfs_s3_is_error (call) : ecfs_s3_did (call))) {
        GError *why = ecfs_http_refusal (op, "");
        look->error =
            g_error_new (ECFS_ERROR, why->code, "cannot make %s%s", ecfs_s3 (http)->config->http.plain, why->message);
        g_error_free (why);
    }
    look->over = true;
}

/* An empty object stands for a prefix, and a bucket for itself. */
static void make_root (Look *look)
{
    EcfsS3 *self = ecfs_s3 (look->op.http);
    bool is_bucket = *self->config->prefix == '\0';
    bool is_default = strcmp (self->region, "us-east-1") == 0; /* which must not be named */
    g_autofree char *body = NULL;
    if (is_bucket && !is_default)
        body = g_strdup_printf ("<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                                "<LocationConstraint>%s</LocationConstraint></CreateBucketConfiguration>",
                                self->region);
    EcfsHttpAsk ask = {.method = "PUT",
                       .path = is_bucket ? self->bucket_path : NULL,
                       .name = "",
                       .body = body != NULL ? body : "",
                       .done = made};
    look->make_root = false;
    ecfs_http_ask (&look->op, &ask);
}

/* Goes to the region that the server names, unless the user has named one. */
static bool follow (Look *look)
{
    EcfsS3 *self = ecfs_s3 (look->op.http);
    const EcfsHttpCall *call = &look->op.call;
    EcfsS3Values values;
    ecfs_s3_answer_values (call, &values);
    const char *region = call->region != NULL ? call->region : values.region;
    bool plausible = region != NULL && strspn (region, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen (region);
    bool follows = !look->moved && self->config->region == NULL && plausible && *region != '\0' &&
                   strcmp (region, self->region) != 0;
    if (follows) {
        g_free (self->region);
        self->region = g_strdup (region);
        look->moved = true;
        set_place (self);
        ask_root (look);
    }
    ecfs_s3_values_clear (&values);
    return follows;
}

static void looked (EcfsHttp *http, EcfsHttpOp *op)
{
    Look *look = (Look *) op;
    EcfsS3 *self = ecfs_s3 (http);
    const char *plain = self->config->http.plain;
    bool is_bucket = *self->config->prefix == '\0';
    if (op->call.status == 200) {
        if (look->error == NULL)
            (void) !ecfs_s3_parser_end (look->parser, &look->error);
        if (look->error != NULL)
            (void) !ecfs_prefix (&look->error, "%s", self->own.base);
        if (look->error == NULL && !is_bucket && !look->any && look->make_root) {
            make_root (look);
            return;
        }
        if (look->error == NULL && !is_bucket && !look->any)
            look->error =
                g_error_new (ECFS_ERROR, ENOENT,
                             "%s does not exist at %s: no key begins with it (ecfs init and ecfs endpoint add "
                             "make it; the bucket alone is tested as s3://%s)",
                             plain, self->own.base, self->config->bucket);
    } else if (op->call.status == 404 && is_bucket && look->make_root) {
        make_root (look);
        return;
    } else if (op->call.status != 404 && follow (look)) {
        return;
    } else {
        look->error = ecfs_http_refusal (op, plain);
    }
    look->over = true;
}

static void describe (EcfsS3 *self, const EcfsHttpCall *call)
{
    g_autofree char *text =
        g_strdup_printf ("S3%s, region %s, bucket by %s, access key %s%s%s", self->own.tls ? " over TLS" : " in clear",
                         self->region, strcmp (self->bucket_path, "/") == 0 ? "host" : "path", self->key.access,
                         call->server != NULL ? ", server " : "", call->server != NULL ? call->server : "");
    ecfs_slot_describe (self->http.slot, text);
}

void ecfs_s3_disconnect (void *connection)
{
    EcfsS3 *self = connection;
    ecfs_http_clear (&self->http);
    ecfs_s3_key_clear (&self->key);
    g_free (self->region);
    g_free (self->host);
    g_free (self->bucket_path);
    g_free (self->own.base);
    g_free (self->own.root);
    g_free (self);
}

static bool connect_root (EcfsS3 *self, bool make, GError **error)
{
    if (!ecfs_s3_login (self, error) || !ecfs_http_auth_load (&self->http, error))
        return false;
    set_place (self);
    Look *look = (Look *) ecfs_http_op_new (&self->http, NULL, sizeof *look);
    look->op.clear = clear;
    look->make_root = make;
    ask_root (look);
    if (!ecfs_http_drive (&self->http, &look->over, error))
        return false;
    if (look->error != NULL) {
        g_propagate_error (error, g_steal_pointer (&look->error));
        return false;
    }
    describe (self, &look->op.call);
    ecfs_http_op_drop (&look->op);
    return true;
}

void *ecfs_s3_connect (EcfsSlot *slot, bool make, GError **error)
{
    EcfsS3 *self = g_new0 (EcfsS3, 1);
    self->config = ecfs_slot_config (slot);
    self->own = self->config->http; /* what it points to is the config's, but for these two */
    self->own.base = self->own.root = NULL;
    if (!ecfs_http_init (&self->http, slot, &self->own, &ecfs_s3_dialect, error) || !connect_root (self, make, error)) {
        ecfs_s3_disconnect (self);
        return NULL;
    }
    ecfs_slot_capabilities (slot, ECFS_CAN_LIST);
    return self;
}
