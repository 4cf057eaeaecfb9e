/*
 * What answers of rclone mean. Its server says 404 for whatever goes wrong when it looks for a file (rclone before 1.66
 * always, later ones when something is to be deleted or opened), and 500 for the rest, both without a reason. The
 * reason is in its log, which is written before the answer.
 */
#include "endpoint/rclone/rclone_priv.h"

#define REPEAT_US   (100 * 1000)
#define MAX_REPEATS 2

/* Since then 404 is said to mean that, when files are looked for. */
#define HONEST_MAJOR 1
#define HONEST_MINOR 66

GError *ecfs_rclone_error (const EcfsRclone *self, const char *name, const char *message)
{
    const char *remote = self->config->remote;
    switch (ecfs_rclone_meaning (message)) {
    case ECFS_RCLONE_ABSENT:
        return ecfs_http_error (ENOENT, "%s: %s", name, g_strerror (ENOENT));
    case ECFS_RCLONE_BEYOND:
        return ecfs_http_error (EBADMSG, "%s: ends before the range that was asked for", name);
    case ECFS_RCLONE_FULL:
        return ecfs_http_error (ENOSPC, "%s: the remote %s has no space left (%s)", name, remote, message);
    case ECFS_RCLONE_QUOTA:
        return ecfs_http_error (EDQUOT, "%s: the quota of the remote %s is used up (%s)", name, remote, message);
    case ECFS_RCLONE_REFUSED:
        return ecfs_http_error (EACCES,
                                "%s: the remote %s refuses it: give this login the right to, or renew it with 'rclone "
                                "config reconnect %s:' (%s)",
                                name, remote, remote, message);
    case ECFS_RCLONE_LINE:
        return ecfs_http_error (ENOTCONN, "the remote %s is not reached: %s", remote, message);
    case ECFS_RCLONE_OTHER:
    default:
        return ecfs_http_error (EIO, "%s: the remote %s: %s", name, remote, message);
    }
}

static bool is_honest (const EcfsRclone *self, const EcfsHttpCall *call)
{
    return (self->major > HONEST_MAJOR || (self->major == HONEST_MAJOR && self->minor >= HONEST_MINOR)) &&
           g_strcmp0 (call->method, "DELETE") != 0;
}

bool ecfs_rclone_is_absent (EcfsHttpOp *op, const char *name)
{
    EcfsRclone *self = ecfs_rclone (op->http);
    if (op->call.result != CURLE_OK || (op->call.status != 404 && op->call.status != 500))
        return false;
    const char *message = ecfs_rclone_told (&self->child, name);
    bool absent = message != NULL ? ecfs_rclone_meaning (message) == ECFS_RCLONE_ABSENT
                                  : op->call.status == 404 && is_honest (self, &op->call);
    if (absent)
        ecfs_rclone_forget_told (&self->child, name);
    return absent;
}

GError *ecfs_rclone_refusal (EcfsHttpOp *op, const char *name)
{
    EcfsRclone *self = ecfs_rclone (op->http);
    const EcfsHttpCall *call = &op->call;
    if (ecfs_rclone_is_absent (op, name))
        return ecfs_http_error (ENOENT, "%s: %s", name, g_strerror (ENOENT));
    const char *message = ecfs_rclone_told (&self->child, name);
    if (message == NULL)
        return ecfs_http_error (EIO, "%s: rclone answers %s by %ld, and its log does not say why", name, call->method,
                                call->status);
    GError *error = ecfs_rclone_error (self, name, message);
    ecfs_rclone_forget_told (&self->child, name);
    if (error->code == ENOTCONN) /* it would be the same for others */
        ecfs_http_break (&self->http, g_error_copy (error));
    return error;
}

/* rclone does not try uploads again, nor some of the rest, when a connection that it kept turns out to be dead. */
int64_t ecfs_rclone_again_us (EcfsHttpOp *op)
{
    EcfsHttpCall *call = &op->call;
    if (call->n_repeats >= MAX_REPEATS || (op->supply != NULL && op->rewind == NULL) || ecfs_http_good (call->status) ||
        call->name == NULL)
        return 0;
    EcfsRclone *self = ecfs_rclone (op->http);
    const char *message = ecfs_rclone_told (&self->child, call->name);
    EcfsRcloneMeaning meaning = message == NULL ? ECFS_RCLONE_OTHER : ecfs_rclone_meaning (message);
    bool again = meaning == ECFS_RCLONE_LINE || (call->awaited && meaning == ECFS_RCLONE_ABSENT);
    if (!again)
        return 0;
    ecfs_rclone_forget_told (&self->child, call->name);
    return REPEAT_US << call->n_repeats;
}
