/* The operations over SFTP that move no stripes: remove, rmdir, size, space, list, examine. */
#include "endpoint/sftp/sftp_priv.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_LISTINGS 8 /* directories read at a time */

/* Operations of one packet */

static void simple_free (EcfsSftp *self, EcfsSftpOp *op)
{
    g_free (op);
}

static void cancel (EcfsSftp *self, EcfsSftpOp *op)
{
    ecfs_sftp_op_finish (self, op, 0,
                         g_error_new (ECFS_ERROR, ECANCELED, "%s: cancelled",
                                      op->request->name != NULL ? op->request->name : "request"));
}

static EcfsSftpOp *simple_begin (EcfsSftp *self, EcfsStream *request)
{
    EcfsSftpOp *op = g_new0 (EcfsSftpOp, 1);
    op->cancel = cancel;
    op->free = simple_free;
    ecfs_sftp_op_begin (self, op, request);
    return op;
}

static void on_remove (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    EcfsSftpOp *op = data;
    bool ok = ecfs_sftp_status (self, reply) == ECFS_SFTP_OK;
    if (op->request == NULL)
        return;
    if (ok)
        ecfs_sftp_note_removed (self->config->shared, op->request->name);
    ecfs_sftp_op_finish (self, op, 0, ok ? NULL : ecfs_sftp_error (reply, ECFS_SFTP_ON_OTHER, op->request->name));
}

void ecfs_sftp_remove_begin (EcfsSftp *self, EcfsStream *request)
{
    EcfsSftpOp *op = simple_begin (self, request);
    g_autofree char *path = ecfs_sftp_path (self, request->name);
    ecfs_sftp_put_path (ecfs_sftp_out (self), ECFS_SFTP_REMOVE, ecfs_sftp_expect (self, op, on_remove, op), path);
}

static void on_rmdir (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    EcfsSftpOp *op = data;
    bool ok = ecfs_sftp_status (self, reply) == ECFS_SFTP_OK;
    const char *name = op->request != NULL ? op->request->name : "";
    ecfs_sftp_op_finish (self, op, 0, ok ? NULL : ecfs_sftp_error (reply, ECFS_SFTP_ON_OTHER, name));
}

void ecfs_sftp_rmdir_begin (EcfsSftp *self, EcfsStream *request)
{
    EcfsSftpOp *op = simple_begin (self, request);
    g_autofree char *path = ecfs_sftp_path (self, request->name);
    ecfs_sftp_put_path (ecfs_sftp_out (self), ECFS_SFTP_RMDIR, ecfs_sftp_expect (self, op, on_rmdir, op), path);
}

static void on_size (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    EcfsSftpOp *op = data;
    const char *name = op->request != NULL ? op->request->name : "";
    GError *error = NULL;
    if (reply->type != ECFS_SFTP_ATTRS)
        error = ecfs_sftp_error (reply, ECFS_SFTP_ON_OTHER, name);
    else if (!reply->attrs.has_size || (reply->attrs.has_mode && !S_ISREG (reply->attrs.mode)))
        error = g_error_new (ECFS_ERROR, EPROTO, "%s: is not a regular file", name);
    ecfs_sftp_op_finish (self, op, reply->attrs.size, error);
}

void ecfs_sftp_size_begin (EcfsSftp *self, EcfsStream *request)
{
    EcfsSftpOp *op = simple_begin (self, request);
    g_autofree char *path = ecfs_sftp_path (self, request->name);
    ecfs_sftp_put_path (ecfs_sftp_out (self), ECFS_SFTP_STAT, ecfs_sftp_expect (self, op, on_size, op), path);
}

/* Accounts on one host may share a file system; its identity and size together are rarely those of another. */
static void finish_space (EcfsSftp *self, EcfsSftpOp *op, const EcfsSftpSpace *space)
{
    EcfsStream *request = g_steal_pointer (&op->request);
    if (request == NULL)
        return;
    request->driver_data = NULL;
    g_autofree char *device = g_strdup_printf ("host %s, file system %" PRIx64 " of %" PRIu64 " bytes",
                                               self->config->host, space->fsid, space->total_bytes);
    ecfs_request_finish_space (request, space->free_bytes, space->fsid != 0 ? device : NULL);
}

static void on_space (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    EcfsSftpOp *op = data;
    EcfsSftpSpace space;
    if (reply->type == ECFS_SFTP_EXTENDED_REPLY && ecfs_sftp_parse_statvfs (reply, &space) == 0) {
        finish_space (self, op, &space);
    } else if (reply->type == ECFS_SFTP_EXTENDED_REPLY) {
        ecfs_sftp_break (self, EPROTO, "the server's answer to statvfs makes no sense");
    } else if (op->request != NULL && reply->type == ECFS_SFTP_STATUS && reply->status == ECFS_SFTP_OP_UNSUPPORTED) {
        EcfsStream *request = g_steal_pointer (&op->request);
        request->driver_data = NULL;
        ecfs_request_fail (request, ENOTSUP, "%s: the server does not report its free space", self->config->root);
    } else {
        ecfs_sftp_op_finish (self, op, 0, ecfs_sftp_error (reply, ECFS_SFTP_ON_OTHER, self->config->root));
    }
}

void ecfs_sftp_space_begin (EcfsSftp *self, EcfsStream *request)
{
    if ((self->extensions & ECFS_SFTP_HAS_STATVFS) == 0) {
        ecfs_request_fail (request, ENOTSUP, "the server does not report its free space");
        return;
    }
    EcfsSftpOp *op = simple_begin (self, request);
    ecfs_sftp_put_statvfs (ecfs_sftp_out (self), ecfs_sftp_expect (self, op, on_space, op), self->config->root);
}

/* Lists: directories wait in todo, a few are read at a time */

typedef struct SftpList {
    EcfsSftpOp op;
    GQueue todo;   /* names, owned */
    GQueue active; /* of SftpListing */
    size_t n_names;
    GError *error;
} SftpList;

typedef struct SftpListing {
    SftpList *list;
    char *name;
    EcfsSftpHandle handle;
    GList link;
} SftpListing;

static void on_directory (EcfsSftp *self, void *data, const EcfsSftpReply *reply);
static void on_names (EcfsSftp *self, void *data, const EcfsSftpReply *reply);

static void listing_free (SftpListing *listing)
{
    g_queue_unlink (&listing->list->active, &listing->link);
    g_free (listing->name);
    g_free (listing);
}

static void list_free (EcfsSftp *self, EcfsSftpOp *op)
{
    SftpList *list = (SftpList *) op;
    while (list->active.head != NULL)
        listing_free (list->active.head->data);
    g_queue_clear_full (&list->todo, g_free);
    g_clear_error (&list->error);
    g_free (list);
}

/* Begins further directories, or ends the list. */
static void list_go_on (EcfsSftp *self, SftpList *list)
{
    while (list->op.request != NULL && list->error == NULL && list->active.length < MAX_LISTINGS &&
           !g_queue_is_empty (&list->todo)) {
        SftpListing *listing = g_new0 (SftpListing, 1);
        listing->list = list;
        listing->name = g_queue_pop_head (&list->todo);
        listing->link.data = listing;
        g_queue_push_tail_link (&list->active, &listing->link);
        g_autofree char *path = ecfs_sftp_path (self, listing->name);
        uint32_t id = ecfs_sftp_expect (self, &list->op, on_directory, listing);
        ecfs_sftp_put_path (ecfs_sftp_out (self), ECFS_SFTP_OPENDIR, id, path);
    }
    if (list->active.length == 0)
        ecfs_sftp_op_finish (self, &list->op, 0, g_steal_pointer (&list->error));
}

static void listing_end (EcfsSftp *self, SftpListing *listing, GError *error)
{
    SftpList *list = listing->list;
    if (error != NULL && list->error == NULL)
        list->error = g_steal_pointer (&error);
    g_clear_error (&error);
    if (listing->handle.size > 0)
        ecfs_sftp_put_handle (ecfs_sftp_out (self), ECFS_SFTP_CLOSE,
                              ecfs_sftp_expect (self, NULL, ecfs_sftp_ignore, NULL), &listing->handle);
    listing_free (listing);
    list_go_on (self, list);
}

static void ask_names (EcfsSftp *self, SftpListing *listing)
{
    uint32_t id = ecfs_sftp_expect (self, &listing->list->op, on_names, listing);
    ecfs_sftp_put_handle (ecfs_sftp_out (self), ECFS_SFTP_READDIR, id, &listing->handle);
}

/* A directory that went away, or never was, is an empty one. */
static void on_directory (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpListing *listing = data;
    if (reply->type == ECFS_SFTP_HANDLE) {
        listing->handle = reply->handle;
        if (listing->list->op.request == NULL)
            listing_end (self, listing, NULL);
        else
            ask_names (self, listing);
        return;
    }
    uint32_t status = ecfs_sftp_status (self, reply);
    listing_end (self, listing,
                 status == ECFS_SFTP_NO_SUCH_FILE ? NULL : ecfs_sftp_error (reply, ECFS_SFTP_ON_OTHER, listing->name));
}

/* The server's names are hostile: what cannot be ours is skipped, which also bounds the depth. */
static void take_name (SftpListing *listing, const EcfsSftpName *entry)
{
    if (entry->name_bytes == 0 || memchr (entry->name, '/', entry->name_bytes) != NULL ||
        memchr (entry->name, '\0', entry->name_bytes) != NULL || !entry->attrs.has_mode)
        return;
    g_autofree char *leaf = g_strndup (entry->name, entry->name_bytes);
    g_autofree char *name = listing->name[0] == '\0' ? g_strdup (leaf) : g_strconcat (listing->name, "/", leaf, NULL);
    if (!ecfs_stored_name_valid (name))
        return;
    if (S_ISREG (entry->attrs.mode))
        ecfs_request_listed (listing->list->op.request, name, entry->attrs.size, entry->attrs.mtime_s);
    else if (S_ISDIR (entry->attrs.mode))
        g_queue_push_tail (&listing->list->todo, g_steal_pointer (&name));
}

static void on_names (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpListing *listing = data;
    if (reply->type != ECFS_SFTP_NAME) {
        uint32_t status = ecfs_sftp_status (self, reply);
        listing_end (self, listing,
                     status == ECFS_SFTP_EOF ? NULL : ecfs_sftp_error (reply, ECFS_SFTP_ON_OTHER, listing->name));
        return;
    }
    EcfsSftpReply rest = *reply;
    EcfsSftpName name;
    int result = rest.n_names == 0 ? -EPROTO : 0; /* none, for ever, would never end */
    while (result == 0 && listing->list->op.request != NULL && (result = ecfs_sftp_next_name (&rest, &name)) == 0) {
        listing->list->n_names++;
        take_name (listing, &name);
    }
    if (result == -EPROTO)
        ecfs_sftp_break (self, EPROTO, "the server's list of names makes no sense");
    else if (listing->list->n_names > ECFS_LIST_MAX_NAMES || listing->list->todo.length > ECFS_LIST_MAX_DIRECTORIES)
        ecfs_sftp_break (self, EPROTO, "the server lists more names than are possible: its list has no end");
    if (self->broken != NULL || listing->list->op.request == NULL)
        listing_end (self, listing, NULL);
    else
        ask_names (self, listing);
}

void ecfs_sftp_list_begin (EcfsSftp *self, EcfsStream *request)
{
    SftpList *list = g_new0 (SftpList, 1);
    list->op.cancel = cancel;
    list->op.free = list_free;
    g_queue_init (&list->todo);
    g_queue_init (&list->active);
    g_queue_push_tail (&list->todo, g_strdup (request->name));
    ecfs_sftp_op_begin (self, &list->op, request);
    list_go_on (self, list);
}

/* The marker */

typedef struct SftpExamine {
    EcfsSftpOp op;
    EcfsSftpHandle handle;
    EcfsSftpPart part;
    char text[ECFS_MARKER_MAX_SIZE + 1];
} SftpExamine;

static void examine_end (EcfsSftp *self, SftpExamine *examine, GError *error)
{
    EcfsStream *request = g_steal_pointer (&examine->op.request);
    if (examine->handle.size > 0)
        ecfs_sftp_put_handle (ecfs_sftp_out (self), ECFS_SFTP_CLOSE,
                              ecfs_sftp_expect (self, NULL, ecfs_sftp_ignore, NULL), &examine->handle);
    if (request != NULL)
        request->driver_data = NULL;
    if (request != NULL && error != NULL)
        ecfs_request_finish (request, 0, g_steal_pointer (&error));
    else if (request != NULL && request->kind == ECFS_REQUEST_MARK)
        ecfs_request_fail_marked (request, examine->text, examine->part.got);
    else if (request != NULL)
        ecfs_request_finish_marker (request, examine->text, examine->part.got);
    g_clear_error (&error);
}

static void examine_cancel (EcfsSftp *self, EcfsSftpOp *op)
{
    examine_end (self, (SftpExamine *) op, g_error_new (ECFS_ERROR, ECANCELED, "cancelled"));
}

static void ask_marker (EcfsSftp *self, SftpExamine *examine);

static void on_marker (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpExamine *examine = (SftpExamine *) ((char *) data - offsetof (SftpExamine, part));
    bool data_came = reply->type == ECFS_SFTP_DATA;
    ecfs_sftp_window_take (&self->read_window, examine->part.size - examine->part.got, 0, self->rtt_us);
    if (examine->op.request == NULL)
        return;
    if (data_came && examine->part.got < examine->part.size)
        ask_marker (self, examine);
    else if (data_came || ecfs_sftp_status (self, reply) == ECFS_SFTP_EOF)
        examine_end (self, examine, NULL);
    else
        examine_end (self, examine, ecfs_sftp_error (reply, ECFS_SFTP_ON_OTHER, ECFS_MARKER_NAME));
}

static void ask_marker (EcfsSftp *self, SftpExamine *examine)
{
    size_t size = examine->part.size - examine->part.got;
    ecfs_sftp_window_add (&self->read_window, size);
    uint32_t id = ecfs_sftp_expect_data (self, &examine->op, on_marker, &examine->part);
    ecfs_sftp_put_read (ecfs_sftp_out (self), id, &examine->handle, examine->part.got, (uint32_t) size);
}

static void on_marker_open (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpExamine *examine = data;
    if (reply->type == ECFS_SFTP_HANDLE) {
        examine->handle = reply->handle;
        if (examine->op.request != NULL)
            ask_marker (self, examine);
        return;
    }
    (void) ecfs_sftp_status (self, reply); /* anything but a status breaks the connection */
    g_autofree char *path = ecfs_sftp_path (self, ECFS_MARKER_NAME);
    examine_end (self, examine, ecfs_sftp_error (reply, ECFS_SFTP_ON_OPEN, path));
}

void ecfs_sftp_examine_begin (EcfsSftp *self, EcfsStream *request)
{
    SftpExamine *examine = g_new0 (SftpExamine, 1);
    examine->op.cancel = examine_cancel;
    examine->op.free = simple_free;
    examine->part.to = (uint8_t *) examine->text;
    examine->part.size = sizeof examine->text;
    ecfs_sftp_op_begin (self, &examine->op, request);
    g_autofree char *path = ecfs_sftp_path (self, ECFS_MARKER_NAME);
    ecfs_sftp_put_open (ecfs_sftp_out (self), ecfs_sftp_expect (self, &examine->op, on_marker_open, examine), path,
                        ECFS_SFTP_OPEN_READ);
}
