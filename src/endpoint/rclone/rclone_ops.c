/* Requests of one call: remove, size. And what uploads left that broke off. */
#include "endpoint/rclone/rclone_priv.h"

#include <string.h>

#define EMPTIED_MOST 65536 /* directories that are remembered */

static EcfsHttpOp *new_op (EcfsHttp *self, EcfsStream *request)
{
    EcfsHttpOp *op = ecfs_http_op_new (self, request, sizeof *op);
    op->cancel = ecfs_http_cancel;
    return op;
}

/* Where directories are no more than the beginnings of names, these have gone with their last file: rmdir asks. */
static void note_emptied (const EcfsRcloneConfig *config, const char *name)
{
    EcfsRcloneShared *shared = config->shared;
    ecfs_mutex_lock (&shared->lock);
    for (const char *slash = strchr (name, '/'); slash != NULL && g_hash_table_size (shared->emptied) < EMPTIED_MOST;
         slash = strchr (slash + 1, '/'))
        (void) g_hash_table_add (shared->emptied, g_strndup (name, (size_t) (slash - name)));
    ecfs_mutex_unlock (&shared->lock);
}

static void removed (EcfsHttp *self, EcfsHttpOp *op)
{
    const char *name = op->request->name;
    bool good = ecfs_http_good (op->call.status);
    if (good)
        note_emptied (ecfs_rclone (self)->config, name);
    ecfs_http_op_end (op, 0, good ? NULL : ecfs_http_refusal (op, name));
}

static void remove_file (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    EcfsHttpAsk ask = {.method = "DELETE", .name = op->request->name, .done = removed};
    ecfs_http_ask (op, &ask);
}

/* Which would count as the marker, were that alone removed. */
static void spare_removed (EcfsHttp *self, EcfsHttpOp *op)
{
    if (ecfs_http_good (op->call.status) || ecfs_rclone_is_absent (op, ECFS_RCLONE_SPARE))
        remove_file (self, op);
    else
        ecfs_http_op_end (op, 0, ecfs_http_refusal (op, ECFS_RCLONE_SPARE));
}

void ecfs_rclone_remove_begin (EcfsHttp *self, EcfsStream *request)
{
    EcfsHttpOp *op = new_op (self, request);
    EcfsHttpAsk spare = {.method = "DELETE", .name = ECFS_RCLONE_SPARE, .done = spare_removed};
    if (strcmp (request->name, ECFS_MARKER_NAME) == 0)
        ecfs_http_ask (op, &spare); /* which is mostly not there */
    else
        remove_file (self, op);
}

void ecfs_rclone_size_begin (EcfsHttp *self, EcfsStream *request)
{
    EcfsHttpAsk ask = {.method = "HEAD", .name = request->name, .done = ecfs_http_size_told};
    ecfs_http_ask (new_op (self, request), &ask);
}

/* What broke off */

typedef struct Mending {
    EcfsHttpOp op;
    char *name;
} Mending;

static void clear (EcfsHttpOp *op)
{
    Mending *mending = (Mending *) op;
    ecfs_claims_release (op->http->config->committing, mending->name);
    ecfs_rclone (op->http)->n_mending--;
    g_free (mending->name);
}

/* @error (taken): it stays, unless the remote was not reached and the next connection tries again. */
static void end_mending (Mending *mending, GError *error)
{
    EcfsRclone *self = ecfs_rclone (mending->op.http);
    if (error != NULL && self->http.broken == NULL)
        g_message ("endpoint %s: what is left of an upload that broke off stays: %s",
                   ecfs_slot_endpoint_name (self->http.slot), error->message);
    if (self->http.broken == NULL)
        ecfs_rclone_forget_broken (self->config, mending->name);
    g_clear_error (&error);
    ecfs_http_op_drop (&mending->op);
}

static void part_removed (EcfsHttp *self, EcfsHttpOp *op)
{
    Mending *mending = (Mending *) op;
    (void) self;
    bool gone = ecfs_http_good (op->call.status) || ecfs_rclone_is_absent (op, mending->name);
    end_mending (mending, gone ? NULL : ecfs_http_refusal (op, mending->name));
}

static void part_told (EcfsHttp *self, EcfsHttpOp *op)
{
    Mending *mending = (Mending *) op;
    if (ecfs_rclone_is_absent (op, mending->name)) {
        end_mending (mending, NULL);
    } else if (!ecfs_http_good (op->call.status)) {
        end_mending (mending, ecfs_http_refusal (op, mending->name));
    } else if (op->call.length < 0) {
        end_mending (mending, ecfs_http_error (EPROTO, "%s: rclone does not tell its size", mending->name));
    } else if (!ecfs_rclone_is_part (ecfs_rclone (self)->config, mending->name, (uint64_t) op->call.length)) {
        end_mending (mending, NULL); /* it is whole: only the answer was lost */
    } else {
        EcfsHttpAsk ask = {.method = "DELETE", .name = mending->name, .done = part_removed};
        ecfs_http_ask (op, &ask);
    }
}

void ecfs_rclone_mend (EcfsRclone *self)
{
    if (self->n_mending > 0 || self->http.broken != NULL || !ecfs_slot_is_trusted (self->http.slot))
        return;
    g_autofree char *name = ecfs_rclone_next_broken (self->config);
    if (name == NULL || !ecfs_claims_take (self->http.config->committing, name))
        return;
    Mending *mending = (Mending *) ecfs_http_op_new (&self->http, NULL, sizeof *mending);
    mending->op.clear = clear;
    mending->name = g_steal_pointer (&name);
    self->n_mending++;
    EcfsHttpAsk ask = {.method = "HEAD", .name = mending->name, .done = part_told};
    ecfs_http_ask (&mending->op, &ask);
}

/* A request that waits for that. */
typedef struct Waiting {
    EcfsHttpOp op;
    void (*begin) (EcfsHttp *http, EcfsStream *request);
} Waiting;

static void turn (EcfsHttp *self, EcfsHttpOp *op)
{
    EcfsStream *request = op->request;
    void (*begin) (EcfsHttp *, EcfsStream *) = ((Waiting *) op)->begin;
    if (ecfs_rclone_is_broken (ecfs_rclone (self)->config, request->name))
        return;
    ecfs_http_op_drop (op);
    begin (self, request);
}

void ecfs_rclone_begin_mended (EcfsHttp *self, EcfsStream *request, void (*begin) (EcfsHttp *, EcfsStream *))
{
    if (!ecfs_rclone_is_broken (ecfs_rclone (self)->config, request->name)) {
        begin (self, request);
        return;
    }
    Waiting *waiting = (Waiting *) ecfs_http_op_new (self, request, sizeof *waiting);
    waiting->op.cancel = ecfs_http_cancel;
    waiting->op.turn = turn;
    waiting->begin = begin;
}
