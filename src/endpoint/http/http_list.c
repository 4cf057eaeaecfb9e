/* Listing: PROPFIND of depth 1, directory after directory. */
#include "endpoint/http/http_priv.h"

#include <string.h>

typedef struct ListOp {
    EcfsHttpOp op;
    EcfsDavParser *parser;
    char *directory; /* below the root; "" is the root */
    char *path;      /* of the server, decoded */
    GQueue left;     /* directories still to list */
    size_t n_names;
    bool known;  /* the answer is of this directory: it, or something in it, was named */
    bool absent; /* what was asked for is not there, and the root is looked at: is it? */
    GError *error;
} ListOp;

static void clear (EcfsHttpOp *op)
{
    ListOp *list = (ListOp *) op;
    ecfs_dav_parser_free (list->parser);
    g_free (list->directory);
    g_free (list->path);
    g_queue_clear_full (&list->left, g_free);
    g_clear_error (&list->error);
}

/* Valid names bound the depth too: nothing above the greatest length is followed. */
static void on_entry (void *user, const EcfsDavEntry *entry)
{
    ListOp *list = user;
    g_autofree char *leaf = ecfs_dav_child (entry->href, list->path);
    list->n_names++;
    list->known |= leaf != NULL || ecfs_dav_is_itself (entry->href, list->path);
    if (leaf == NULL || list->absent)
        return;
    char *name = *list->directory == '\0' ? g_strdup (leaf) : g_strconcat (list->directory, "/", leaf, NULL);
    if (ecfs_stored_name_valid (name) && entry->is_collection)
        g_queue_push_tail (&list->left, g_steal_pointer (&name));
    else if (ecfs_stored_name_valid (name) && entry->has_size)
        ecfs_request_listed (list->op.request, name, entry->size, entry->mtime_s);
    g_free (name);
}

static bool take (EcfsHttpOp *op, const uint8_t *bytes, size_t size)
{
    ListOp *list = (ListOp *) op;
    if (op->call.status != 207)
        return true;
    if (ecfs_request_cancelled (op->request) || !ecfs_dav_parser_feed (list->parser, bytes, size, &list->error))
        return false;
    return (list->left.length <= ECFS_LIST_MAX_DIRECTORIES && list->n_names <= ECFS_LIST_MAX_NAMES) ||
           ecfs_fail (&list->error, EPROTO, "the server lists more names than are possible: its list has no end");
}

static void done (EcfsHttp *self, EcfsHttpOp *op);

/* Takes @directory. */
static void ask (ListOp *list, char *directory)
{
    EcfsHttp *self = list->op.http;
    g_free (list->directory);
    g_free (list->path);
    ecfs_dav_parser_free (list->parser);
    list->directory = directory;
    list->known = false;
    list->path = g_strconcat (self->config->plain, *directory == '\0' ? "" : "/", directory, NULL);
    list->parser = ecfs_dav_parser_new (on_entry, list);
    EcfsHttpAsk ask_children = {.method = "PROPFIND",
                                .name = directory,
                                .directory = true,
                                .depth = list->absent ? "0" : "1",
                                .body = ecfs_dav_ask_properties,
                                .take = take,
                                .done = done};
    ecfs_http_ask (&list->op, &ask_children);
}

/* What is wrong with an answer, or NULL. A directory that is not there, or not any more, is empty; a root that is not
 * there is none, and neither is a server that answers about other places, such as one behind a proxy that maps paths.
 */
static GError *verdict (ListOp *list)
{
    EcfsHttpOp *op = &list->op;
    if (ecfs_request_cancelled (op->request))
        return g_error_new (ECFS_ERROR, ECANCELED, "%s: cancelled", op->request->name);
    if (list->error == NULL && op->call.status == 207)
        (void) !ecfs_dav_parser_end (list->parser, &list->error);
    if (list->error != NULL)
        return g_steal_pointer (&list->error);
    if (op->call.status == 207)
        return list->known ? NULL
                           : g_error_new (ECFS_ERROR, EPROTO,
                                          "asked to list %s/, the server lists another place: write the URL that it "
                                          "knows that place by",
                                          list->path);
    if (op->call.status == 404 && op->call.result == CURLE_OK && *list->directory != '\0')
        return NULL;
    if (op->call.status == 404)
        ecfs_dav_check (op->http);
    return ecfs_http_refusal (op, *list->directory == '\0' ? "the root" : list->directory);
}

static void done (EcfsHttp *self, EcfsHttpOp *op)
{
    ListOp *list = (ListOp *) op;
    (void) self;
    GError *error = verdict (list);
    if (error == NULL && op->call.status == 404 && strcmp (list->directory, op->request->name) == 0) {
        list->absent = true;
        ask (list, g_strdup (""));
    } else if (error == NULL && !g_queue_is_empty (&list->left))
        ask (list, g_queue_pop_head (&list->left));
    else
        ecfs_http_op_end (op, 0, error);
}

static void cancel (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    ecfs_http_op_end (op, 0, g_error_new (ECFS_ERROR, ECANCELED, "%s: cancelled", op->request->name));
}

void ecfs_dav_list_begin (EcfsHttp *self, EcfsStream *request)
{
    if (!ecfs_dav (self)->dav) {
        ecfs_request_fail (request, ENOTSUP, "the server has no WebDAV, and lists nothing");
        return;
    }
    ListOp *list = (ListOp *) ecfs_http_op_new (self, request, sizeof *list);
    list->op.clear = clear;
    list->op.cancel = cancel;
    g_queue_init (&list->left);
    ask (list, g_strdup (request->name));
}
