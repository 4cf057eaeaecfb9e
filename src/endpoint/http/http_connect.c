/* Whether an HTTP server is there, lets us in, and what it can. */
#include "endpoint/http/http_priv.h"

#include <string.h>

const char ecfs_dav_ask_properties[] =
    "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n"
    "<D:propfind xmlns:D=\"DAV:\"><D:prop><D:resourcetype/><D:getcontentlength/><D:getlastmodified/>"
    "<D:quota-available-bytes/></D:prop></D:propfind>\n";

/* Looking at the root. */
typedef struct Look {
    EcfsHttpOp op;
    EcfsDavParser *parser;
    bool collection; /* the root is a directory */
    bool told_space;
    bool over;
    GError *error;
    bool make_root;
} Look;

static void clear (EcfsHttpOp *op)
{
    Look *look = (Look *) op;
    ecfs_dav_parser_free (look->parser);
    g_clear_error (&look->error);
}

static void on_entry (void *user, const EcfsDavEntry *entry)
{
    Look *look = user;
    look->collection |= entry->is_collection;
    look->told_space |= entry->has_available;
}

static bool take (EcfsHttpOp *op, const uint8_t *bytes, size_t size)
{
    Look *look = (Look *) op;
    if (op->call.status != 207)
        return true;
    return look->error == NULL && ecfs_dav_parser_feed (look->parser, bytes, size, &look->error);
}

static void ask_root (Look *look, void (*done) (EcfsHttp *, EcfsHttpOp *))
{
    ecfs_dav_parser_free (look->parser);
    look->parser = ecfs_dav_parser_new (on_entry, look);
    EcfsHttpAsk ask = {.method = "PROPFIND",
                       .name = "",
                       .directory = true,
                       .depth = "0",
                       .body = ecfs_dav_ask_properties,
                       .take = take,
                       .done = done};
    ecfs_http_ask (&look->op, &ask);
}

/* Whether the answer says that the root is a directory of a WebDAV server. */
static bool is_root (Look *look)
{
    if (look->error == NULL && look->op.call.status == 207)
        (void) !ecfs_dav_parser_end (look->parser, &look->error);
    if (look->error == NULL && look->op.call.status != 207)
        look->error = ecfs_dav_root_refusal (look->op.http, &look->op.call);
    else if (look->error == NULL && !look->collection)
        look->error = g_error_new (ECFS_ERROR, ENOTDIR, "%s%s is not a directory", look->op.http->config->base,
                                   look->op.http->config->root);
    return look->error == NULL;
}

static void looked (EcfsHttp *self, EcfsHttpOp *op);

static void root_made (EcfsHttp *self, EcfsHttpOp *op)
{
    Look *look = (Look *) op;
    if (ecfs_dav_did (op->call.status)) {
        ask_root (look, looked);
        return;
    }
    GError *why = ecfs_dav_root_refusal (self, &op->call);
    look->error = g_error_new (ECFS_ERROR, why->code, "cannot make the directory: %s", why->message);
    g_error_free (why);
    look->over = true;
}

static void make_root (Look *look)
{
    look->make_root = false;
    EcfsHttpAsk ask = {.method = "MKCOL", .name = "", .directory = true, .done = root_made};
    ecfs_http_ask (&look->op, &ask);
}

/* Answers to PROPFIND of servers that only serve files; what is wrong for the moment is none. */
static bool is_plain (const EcfsHttp *self, const EcfsHttpCall *call)
{
    long status = call->status;
    return !self->config->dav && call->result == CURLE_OK &&
           ((status >= 400 && status < 500 && status != 401 && status != 407 && status != 408 && status != 429) ||
            status == 501);
}

static void describe (EcfsHttp *self, const EcfsHttpCall *call)
{
    static const char *const versions[] = {
        [CURL_HTTP_VERSION_1_0] = "HTTP/1.0", [CURL_HTTP_VERSION_1_1] = "HTTP/1.1", [CURL_HTTP_VERSION_2_0] = "HTTP/2"};
    GString *text = g_string_new (NULL);
    size_t version = (size_t) call->version;
    g_string_append (text, version < G_N_ELEMENTS (versions) && versions[version] != NULL ? versions[version] : "HTTP");
    g_string_append (text, self->config->tls ? " over TLS" : " in clear");
    if (ecfs_dav (self)->dav)
        g_string_append_printf (text, ", WebDAV%s%s", call->dav != NULL ? " " : "", call->dav != NULL ? call->dav : "");
    else
        g_string_append (text, ", no WebDAV: can only be read");
    const EcfsHttpConfig *config = self->config;
    g_string_append_printf (text, ", %s",
                            config->token_file != NULL      ? "bearer token"
                            : self->auth == CURLAUTH_DIGEST ? "digest password"
                            : self->auth == CURLAUTH_BASIC  ? "basic password"
                            : config->client_cert != NULL   ? "client certificate"
                                                            : "anonymous");
    if (call->server != NULL)
        g_string_append_printf (text, ", server %s", call->server);
    ecfs_slot_describe (self->slot, text->str);
    g_string_free (text, TRUE);
}

static void looked (EcfsHttp *self, EcfsHttpOp *op)
{
    Look *look = (Look *) op;
    if (op->call.status == 401 && self->password != NULL && self->auth == CURLAUTH_NONE) {
        if (ecfs_http_auth_choose (self, op->call.offered, &look->error)) {
            ask_root (look, looked);
            return;
        }
    } else if (op->call.status == 404 && look->make_root && op->call.result == CURLE_OK) {
        make_root (look);
        return;
    } else if (is_plain (self, &op->call)) {
        ecfs_dav (self)->dav = false;
    } else {
        ecfs_dav (self)->dav = is_root (look);
    }
    ecfs_dav (self)->tells_space = look->told_space;
    if (look->error == NULL)
        describe (self, &op->call);
    look->over = true;
}

void ecfs_dav_disconnect (void *connection)
{
    EcfsHttp *self = connection;
    ecfs_http_clear (self);
    g_free (ecfs_dav (self));
}

static bool connect_root (EcfsHttp *self, bool make, GError **error)
{
    if (!ecfs_http_auth_load (self, error))
        return false;
    Look *look = (Look *) ecfs_http_op_new (self, NULL, sizeof *look);
    look->op.clear = clear;
    look->make_root = make;
    ask_root (look, looked);
    if (!ecfs_http_drive (self, &look->over, error))
        return false;
    if (look->error != NULL) {
        g_propagate_error (error, g_steal_pointer (&look->error));
        return false;
    }
    ecfs_http_op_drop (&look->op);
    return true;
}

void *ecfs_dav_connect (EcfsSlot *slot, bool make_root_too, GError **error)
{
    EcfsDav *dav = g_new0 (EcfsDav, 1);
    EcfsHttp *self = &dav->http;
    if (!ecfs_http_init (self, slot, ecfs_slot_config (slot), &ecfs_dav_dialect, error) ||
        !connect_root (self, make_root_too, error)) {
        ecfs_dav_disconnect (self);
        return NULL;
    }
    unsigned can = ecfs_dav (self)->dav ? ECFS_CAN_RENAME | ECFS_CAN_LIST : 0;
    ecfs_slot_capabilities (slot, can | (ecfs_dav (self)->tells_space ? ECFS_CAN_SPACE : 0));
    return self;
}

static void checked (EcfsHttp *self, EcfsHttpOp *op)
{
    Look *look = (Look *) op;
    ecfs_dav (self)->checking = false;
    if (!is_plain (self, &op->call) && !is_root (look))
        ecfs_http_break (self, g_steal_pointer (&look->error));
    ecfs_http_op_end (op, 0, NULL);
}

void ecfs_dav_check (EcfsHttp *self)
{
    if (ecfs_dav (self)->checking)
        return;
    ecfs_dav (self)->checking = true;
    Look *look = (Look *) ecfs_http_op_new (self, NULL, sizeof *look);
    look->op.clear = clear;
    ask_root (look, checked);
}
