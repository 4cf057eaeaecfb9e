/*
 * Writing: PUT to a temporary name, MOVE to the final one that replaces nothing.
 *
 *   WAITING    the source has given nothing yet                                        → DIRECTORY, BODY
 *   DIRECTORY  MKCOL of the directory for temporary files, once per connection         → BODY
 *   BODY       PUT; paused while the source has nothing                                → MOVE, CLEAN
 *   MOVE       the commit                                                              → PARENTS, CLEAN, the end
 *   PARENTS    MKCOL of one directory after the other above the final name             → MOVE
 *   CLEAN      DELETE of the temporary file; then the end with `error`
 *
 * A body whose size is known when it begins is sent with Content-Length, others in chunks. An upload that is cut off
 * leaves nothing at servers that take files whole, as Apache and nginx do; others are asked to delete what they have.
 */
#include "endpoint/http/http_priv.h"

#include <string.h>

#define N_PIECES 2

typedef enum WriteState {
    WRITE_WAITING,
    WRITE_DIRECTORY,
    WRITE_BODY,
    WRITE_MOVE,
    WRITE_PARENTS,
    WRITE_CLEAN,
} WriteState;

/* Bytes of the source that are not yet sent. */
typedef struct Piece {
    const uint8_t *bytes;
    size_t size;
} Piece;

typedef struct WriteOp {
    EcfsHttpOp op;
    WriteState state;
    char *temporary;
    const char *name; /* the final one */
    bool replace;
    char *claimed; /* the name, from the commit on; the request may be gone before the op */
    Piece pieces[N_PIECES];
    unsigned n_pieces;
    EcfsPull last; /* what the source answered last */
    uint64_t sent; /* bytes */
    size_t parent; /* PARENTS: the length of what is asked for now */
    bool parents_made;
    GError *error;
} WriteOp;

static void clear (EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    if (write->claimed != NULL)
        ecfs_claims_release (op->http->config->committing, write->claimed);
    g_free (write->claimed);
    g_free (write->temporary);
    g_clear_error (&write->error);
}

/* The source */

static void pull (WriteOp *write)
{
    Piece piece = {.bytes = NULL};
    write->last = ecfs_request_pull (write->op.request, &piece.bytes, &piece.size);
    if (write->last == ECFS_PULL_BYTES && piece.size > 0)
        write->pieces[write->n_pieces++] = piece;
}

static size_t copy_pieces (WriteOp *write, char *to, size_t size)
{
    size_t copied = 0;
    while (copied < size && write->n_pieces > 0) {
        Piece *piece = &write->pieces[0];
        size_t n = MIN (size - copied, piece->size);
        memcpy (to + copied, piece->bytes, n);
        copied += n;
        piece->bytes += n;
        piece->size -= n;
        if (piece->size == 0)
            memmove (write->pieces, write->pieces + 1, --write->n_pieces * sizeof *write->pieces);
    }
    return copied;
}

/* libcurl copies what it sends, so nothing stays lent. */
static size_t supply (EcfsHttpOp *op, char *to, size_t size)
{
    WriteOp *write = (WriteOp *) op;
    size_t copied = 0;
    for (;;) {
        copied += copy_pieces (write, to + copied, size - copied);
        if (copied == size || write->n_pieces > 0 || write->last == ECFS_PULL_END || write->last == ECFS_PULL_ABORT)
            break;
        pull (write);
        if (write->last == ECFS_PULL_LATER)
            break;
    }
    write->sent += copied;
    op->call.sent |= write->last == ECFS_PULL_END && write->n_pieces == 0;
    if (copied > 0 && op->request->kind == ECFS_REQUEST_WRITE)
        ecfs_request_acknowledge (op->request, write->sent);
    if (write->last == ECFS_PULL_ABORT)
        return CURL_READFUNC_ABORT;
    return copied == 0 && write->last == ECFS_PULL_LATER ? CURL_READFUNC_PAUSE : copied;
}

/* The end */

static void cleaned (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    EcfsStream *request = op->request;
    if (request->kind == ECFS_REQUEST_MARK && ecfs_errno (write->error) == EEXIST) {
        ecfs_http_op_drop (op);
        ecfs_dav_examine_begin (self, request); /* tells whose it is */
        return;
    }
    ecfs_http_op_end (op, 0, g_steal_pointer (&write->error));
}

static void fail (WriteOp *write, GError *error)
{
    write->error = error;
    write->state = WRITE_CLEAN;
    EcfsHttpAsk ask = {.method = "DELETE", .name = write->temporary, .done = cleaned};
    ecfs_http_ask (&write->op, &ask);
}

static GError *cancelled (const WriteOp *write)
{
    return g_error_new (ECFS_ERROR, ECANCELED, "%s: cancelled", write->name);
}

static void forget (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    ecfs_http_op_drop (op);
}

/* Ends a write whose body was not sent whole. What the server has of it goes behind. */
static void give_up (WriteOp *write, GError *error)
{
    EcfsHttp *self = write->op.http;
    ecfs_http_hang_up (&write->op);
    EcfsHttpOp *behind = ecfs_http_op_new (self, NULL, sizeof *behind);
    EcfsHttpAsk ask = {.method = "DELETE", .name = write->temporary, .done = forget};
    ecfs_http_ask (behind, &ask);
    ecfs_http_op_end (&write->op, 0, error);
}

/* The commit */

static void moved (EcfsHttp *self, EcfsHttpOp *op);

static void move (WriteOp *write)
{
    bool claims = !write->replace && write->claimed == NULL;
    if (claims && ecfs_claims_take (write->op.http->config->committing, write->name)) {
        write->claimed = g_strdup (write->name);
    } else if (claims) {
        fail (write, g_error_new (ECFS_ERROR, EEXIST, "%s: another connection makes it", write->name));
        return;
    }
    write->state = WRITE_MOVE;
    EcfsHttpAsk ask = {.method = "MOVE",
                       .name = write->temporary,
                       .destination = write->name,
                       .replace = write->replace,
                       .done = moved};
    ecfs_http_ask (&write->op, &ask);
}

/* Makes the next directory above the final name, or moves when all are there. */
static void make_parent (WriteOp *write, void (*done) (EcfsHttp *, EcfsHttpOp *))
{
    const char *slash = strchr (write->name + write->parent + (write->parent > 0), '/');
    write->parents_made = slash == NULL;
    if (slash == NULL) {
        move (write);
        return;
    }
    write->state = WRITE_PARENTS;
    write->parent = (size_t) (slash - write->name);
    g_autofree char *directory = g_strndup (write->name, write->parent);
    EcfsHttpAsk ask = {.method = "MKCOL", .name = directory, .directory = true, .done = done};
    ecfs_http_ask (&write->op, &ask);
}

/* It is there: made now, or, where the method is not allowed, before. Apache says 403 where another made it in the same
 * moment; where that means what it says, so does what comes next. */
static bool is_made (const EcfsHttpCall *call)
{
    return call->result == CURLE_OK && (ecfs_dav_did (call->status) || call->status == 405 || call->status == 403);
}

static void parent_made (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    (void) self;
    if (is_made (&op->call))
        make_parent (write, parent_made);
    else
        fail (write, ecfs_http_refusal (op, write->name));
}

/* The RFC has 409 for it; Apache says 500. */
static bool lacks_parent (const WriteOp *write)
{
    long status = write->op.call.status;
    return (status == 404 || status == 409 || status == 500) && !write->parents_made &&
           strchr (write->name, '/') != NULL;
}

static void moved (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    const EcfsHttpCall *call = &op->call;
    (void) self;
    if (ecfs_dav_did (call->status))
        ecfs_http_op_end (op, 0, NULL);
    else if (lacks_parent (write))
        make_parent (write, parent_made);
    else
        fail (write, ecfs_http_refusal (op, write->name));
}

/* The body */

/* Whether the body went out to its end: a server can say that it has a file before it has. */
static bool sent_whole (const WriteOp *write)
{
    return write->last == ECFS_PULL_END && write->n_pieces == 0 && write->op.call.uploaded >= (int64_t) write->sent;
}

static void stored (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    const EcfsHttpCall *call = &op->call;
    if (call->result != CURLE_OK)
        give_up (write, write->last == ECFS_PULL_ABORT ? cancelled (write) : ecfs_http_problem (self, call));
    else if (!ecfs_dav_did (call->status)) {
        ecfs_dav (self)->incoming = false; /* it may be gone */
        ecfs_http_op_end (op, 0, ecfs_http_refusal (op, write->name));
    } else if (op->cancelled) {
        fail (write, cancelled (write));
    } else if (!sent_whole (write)) {
        fail (write, g_error_new (ECFS_ERROR, EPROTO, "%s: the server says that it is stored (%ld) before it was sent",
                                  write->name, call->status));
    } else {
        move (write);
    }
}

static void store (WriteOp *write)
{
    write->state = WRITE_BODY;
    int64_t size = -1;
    if (write->last == ECFS_PULL_END) {
        size = 0;
        for (unsigned i = 0; i < write->n_pieces; i++)
            size += (int64_t) write->pieces[i].size;
    }
    EcfsHttpAsk ask = {.method = "PUT",
                       .name = write->temporary,
                       .upload = true,
                       .upload_bytes = size,
                       .supply = supply,
                       .done = stored};
    ecfs_http_ask (&write->op, &ask);
}

static void incoming_made (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    if (is_made (&op->call)) {
        ecfs_dav (self)->incoming = true;
        store (write);
        return;
    }
    GError *error = ecfs_http_refusal (op, ECFS_INCOMING);
    if (ecfs_errno (error) != ENOENT) {
        ecfs_http_op_end (op, 0, error);
        return;
    }
    g_error_free (error);
    ecfs_http_break (
        self, g_error_new (ECFS_ERROR, ENOENT, "%s%s is not there any more", self->config->base, self->config->plain));
}

static void start (WriteOp *write)
{
    if (ecfs_dav (write->op.http)->incoming) {
        store (write);
        return;
    }
    write->state = WRITE_DIRECTORY;
    EcfsHttpAsk ask = {.method = "MKCOL", .name = ECFS_INCOMING, .directory = true, .done = incoming_made};
    ecfs_http_ask (&write->op, &ask);
}

/* Begins when there is something: what ends with its first bytes has a size that is known. */
static void try_start (WriteOp *write)
{
    do
        pull (write);
    while (write->last == ECFS_PULL_BYTES && write->n_pieces < N_PIECES);
    if (write->last == ECFS_PULL_ABORT)
        ecfs_http_op_end (&write->op, 0, cancelled (write));
    else if (write->last != ECFS_PULL_LATER || write->n_pieces > 0)
        start (write);
}

static void turn (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    (void) self;
    if (write->state == WRITE_WAITING) {
        try_start (write);
    } else if (op->call.paused && write->n_pieces == 0) {
        pull (write);
        if (write->last != ECFS_PULL_LATER)
            ecfs_http_resume (op);
    }
}

static void cancel (EcfsHttp *self, EcfsHttpOp *op)
{
    WriteOp *write = (WriteOp *) op;
    (void) self;
    if (write->state == WRITE_WAITING || write->state == WRITE_DIRECTORY)
        ecfs_http_op_end (op, 0, cancelled (write));
    else if (write->state == WRITE_BODY && !op->call.sent)
        give_up (write, cancelled (write));
    /* Otherwise the server has it all: what becomes of it is known when it has answered. */
}

static WriteOp *new_op (EcfsHttp *self, EcfsStream *request, const char *name)
{
    WriteOp *write = (WriteOp *) ecfs_http_op_new (self, request, sizeof *write);
    write->op.clear = clear;
    write->op.cancel = cancel;
    write->name = name;
    return write;
}

void ecfs_dav_write_begin (EcfsHttp *self, EcfsStream *request)
{
    if (!ecfs_dav (self)->dav) {
        ecfs_request_fail (request, EROFS, "%s: the server has no WebDAV, and can only be read", request->name);
        return;
    }
    WriteOp *write = new_op (self, request, request->name);
    write->op.turn = turn;
    write->temporary = ecfs_incoming_name (request->name);
    try_start (write);
}

void ecfs_dav_mark_begin (EcfsHttp *self, EcfsStream *request)
{
    if (!ecfs_dav (self)->dav) {
        ecfs_request_fail (request, EROFS, "%s%s: the server has no WebDAV, and can only be read", self->config->base,
                           self->config->plain);
        return;
    }
    WriteOp *write = new_op (self, request, ECFS_MARKER_NAME);
    write->temporary = ecfs_incoming_name (NULL);
    write->replace = !request->create;
    write->pieces[write->n_pieces++] = (Piece){(const uint8_t *) request->text, strlen (request->text)};
    write->last = ECFS_PULL_END;
    start (write);
}
