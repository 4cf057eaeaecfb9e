/* Requests of one or two calls: remove, rmdir, size, space; and the marker. */
#include "endpoint/http/http_priv.h"

typedef struct SmallOp {
    EcfsHttpOp op;
    EcfsDavParser *parser;
    EcfsDavEntry entry; /* the last that was told; its href is not kept */
    bool found;
    GError *error;
} SmallOp;

static void clear (EcfsHttpOp *op)
{
    SmallOp *small = (SmallOp *) op;
    ecfs_dav_parser_free (small->parser);
    g_clear_error (&small->error);
}

static SmallOp *new_op (EcfsHttp *self, EcfsStream *request)
{
    SmallOp *small = (SmallOp *) ecfs_http_op_new (self, request, sizeof *small);
    small->op.clear = clear;
    small->op.cancel = ecfs_http_cancel;
    return small;
}

static void removed (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    bool good = ecfs_dav_did (op->call.status);
    ecfs_http_op_end (op, 0, good ? NULL : ecfs_http_refusal (op, op->request->name));
}

void ecfs_dav_remove_begin (EcfsHttp *self, EcfsStream *request)
{
    if (!ecfs_dav (self)->dav) {
        ecfs_request_fail (request, EROFS, "%s: the server has no WebDAV, and can only be read", request->name);
        return;
    }
    SmallOp *small = new_op (self, request);
    EcfsHttpAsk ask = {.method = "DELETE", .name = request->name, .done = removed};
    ecfs_http_ask (&small->op, &ask);
}

/* DELETE of a collection takes all that is in it along, so it is looked into before. */

typedef struct RmdirOp {
    EcfsHttpOp op;
    EcfsDavParser *parser;
    char *path; /* of the server, decoded */
    bool known; /* the answer is of this directory */
    bool empty; /* … and names nothing else */
    GError *error;
} RmdirOp;

static void rmdir_clear (EcfsHttpOp *op)
{
    RmdirOp *rmdir = (RmdirOp *) op;
    ecfs_dav_parser_free (rmdir->parser);
    g_free (rmdir->path);
    g_clear_error (&rmdir->error);
}

static void on_member (void *user, const EcfsDavEntry *entry)
{
    RmdirOp *rmdir = user;
    bool itself = ecfs_dav_is_itself (entry->href, rmdir->path) && entry->is_collection;
    rmdir->known |= itself;
    rmdir->empty &= itself;
}

static bool take_members (EcfsHttpOp *op, const uint8_t *bytes, size_t size)
{
    RmdirOp *rmdir = (RmdirOp *) op;
    return op->call.status != 207 || ecfs_dav_parser_feed (rmdir->parser, bytes, size, &rmdir->error);
}

static void members_told (EcfsHttp *self, EcfsHttpOp *op)
{
    RmdirOp *rmdir = (RmdirOp *) op;
    const char *name = op->request->name;
    (void) self;
    if (rmdir->error == NULL && op->call.status == 207)
        (void) !ecfs_dav_parser_end (rmdir->parser, &rmdir->error);
    if (rmdir->error == NULL && op->call.status != 207)
        rmdir->error = ecfs_http_refusal (op, name);
    if (rmdir->error == NULL && !(rmdir->known && rmdir->empty))
        rmdir->error = g_error_new (ECFS_ERROR, ENOTEMPTY, "%s: is not an empty directory", name);
    if (rmdir->error != NULL) {
        ecfs_http_op_end (op, 0, g_steal_pointer (&rmdir->error));
        return;
    }
    EcfsHttpAsk ask = {.method = "DELETE", .name = name, .directory = true, .done = removed};
    ecfs_http_ask (op, &ask);
}

void ecfs_dav_rmdir_begin (EcfsHttp *self, EcfsStream *request)
{
    if (!ecfs_dav (self)->dav) {
        ecfs_request_fail (request, EROFS, "%s: the server has no WebDAV, and can only be read", request->name);
        return;
    }
    RmdirOp *rmdir = (RmdirOp *) ecfs_http_op_new (self, request, sizeof *rmdir);
    rmdir->op.clear = rmdir_clear;
    rmdir->op.cancel = ecfs_http_cancel;
    rmdir->empty = true;
    rmdir->path = g_strconcat (self->config->plain, "/", request->name, NULL);
    rmdir->parser = ecfs_dav_parser_new (on_member, rmdir);
    EcfsHttpAsk ask = {.method = "PROPFIND",
                       .name = request->name,
                       .directory = true,
                       .depth = "1",
                       .body = ecfs_dav_ask_properties,
                       .take = take_members,
                       .done = members_told};
    ecfs_http_ask (&rmdir->op, &ask);
}

/* PROPFIND of one thing: servers of Apache's kind tell no size of empty files in answers to HEAD. */

static void on_entry (void *user, const EcfsDavEntry *entry)
{
    SmallOp *small = user;
    small->found = true;
    small->entry = *entry;
    small->entry.href = NULL;
}

static bool take_properties (EcfsHttpOp *op, const uint8_t *bytes, size_t size)
{
    SmallOp *small = (SmallOp *) op;
    return op->call.status != 207 || ecfs_dav_parser_feed (small->parser, bytes, size, &small->error);
}

static void ask_properties (SmallOp *small, const char *name, bool directory, void (*done) (EcfsHttp *, EcfsHttpOp *))
{
    small->parser = ecfs_dav_parser_new (on_entry, small);
    EcfsHttpAsk ask = {.method = "PROPFIND",
                       .name = name,
                       .directory = directory,
                       .depth = "0",
                       .body = ecfs_dav_ask_properties,
                       .take = take_properties,
                       .done = done};
    ecfs_http_ask (&small->op, &ask);
}

/* What is wrong with the answer, or NULL: small->entry holds. */
static GError *properties_error (SmallOp *small, const char *name)
{
    if (small->error == NULL && small->op.call.status == 207 && ecfs_dav_parser_end (small->parser, &small->error) &&
        !small->found)
        return g_error_new (ECFS_ERROR, EPROTO, "%s: the server does not say what it is", name);
    if (small->error != NULL)
        return g_steal_pointer (&small->error);
    return small->op.call.status == 207 ? NULL : ecfs_http_refusal (&small->op, name);
}

static void size_told (EcfsHttp *self, EcfsHttpOp *op)
{
    SmallOp *small = (SmallOp *) op;
    const char *name = op->request->name;
    (void) self;
    GError *error = properties_error (small, name);
    if (error == NULL && (small->entry.is_collection || !small->entry.has_size))
        error =
            g_error_new (ECFS_ERROR, EPROTO, "%s: %s", name,
                         small->entry.is_collection ? "is not a regular file" : "the server does not report its size");
    ecfs_http_op_end (op, small->entry.size, error);
}

void ecfs_dav_size_begin (EcfsHttp *self, EcfsStream *request)
{
    SmallOp *small = new_op (self, request);
    if (ecfs_dav (self)->dav) {
        ask_properties (small, request->name, false, size_told);
        return;
    }
    EcfsHttpAsk ask = {.method = "HEAD", .name = request->name, .done = ecfs_http_size_told};
    ecfs_http_ask (&small->op, &ask);
}

static void space_told (EcfsHttp *self, EcfsHttpOp *op)
{
    SmallOp *small = (SmallOp *) op;
    (void) self;
    GError *error = properties_error (small, "the root");
    if (error == NULL && !small->entry.has_available)
        error = g_error_new (ECFS_ERROR, ENOTSUP, "the server reports no quota");
    if (error != NULL) {
        ecfs_http_op_end (op, 0, error);
        return;
    }
    EcfsStream *request = op->request;
    uint64_t available_bytes = small->entry.available_bytes;
    ecfs_http_op_drop (op);
    ecfs_request_finish_space (request, available_bytes, NULL);
}

void ecfs_dav_space_begin (EcfsHttp *self, EcfsStream *request)
{
    if (!ecfs_dav (self)->tells_space)
        ecfs_request_fail (request, ENOTSUP, "the server reports no quota");
    else
        ask_properties (new_op (self, request), "", true, space_told);
}

void ecfs_dav_examine_begin (EcfsHttp *self, EcfsStream *request)
{
    const EcfsHttpConfig *config = self->config;
    ecfs_http_examine_begin (self, request, g_strconcat (config->base, config->plain, "/" ECFS_MARKER_NAME, NULL));
}
