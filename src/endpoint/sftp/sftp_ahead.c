/*
 * Where small files follow each other on a connection, the temporary file of the next is opened behind the commit of
 * the one before, so that each takes one round trip instead of two. Its name cannot tell whose it will be and tells the
 * process instead: what other processes left is removed with unfinished uploads once it is a day old, as they may be
 * alive.
 */
#include "endpoint/sftp/sftp_priv.h"

#define SMALL_IN_A_ROW 2                    /* before a third is expected */
#define PAUSE_US       (1 * G_USEC_PER_SEC) /* ends a row, where round trips are not longer than usual, … */
#define PAUSE_RTTS     16                   /* … else so many of these */
#define IDLE_US        (5 * G_USEC_PER_SEC) /* nobody came for it */
#define LEAVE_US       (G_USEC_PER_SEC / 2) /* for removing it at the end */

static void forget (EcfsSftp *self)
{
    g_clear_pointer (&self->ahead.temporary, g_free);
    self->ahead.handle.size = 0;
    self->ahead.id = 0;
}

/* A refusal is not told: who needs a file next opens it and tells. */
static void on_ahead (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    self->ahead.id = 0;
    if (reply->type == ECFS_SFTP_HANDLE)
        self->ahead.handle = reply->handle;
    else
        forget (self);
}

void ecfs_sftp_ahead_note (EcfsSftp *self, bool small)
{
    int64_t now_us = ecfs_now_us ();
    bool in_a_row = now_us - self->ahead.noted_us < CLAMP (PAUSE_RTTS * self->rtt_us, PAUSE_US, IDLE_US);
    self->ahead.n_small = !small ? 0 : in_a_row ? self->ahead.n_small + 1 : 1;
    self->ahead.noted_us = now_us;
    if (self->ahead.n_small < SMALL_IN_A_ROW || self->ahead.temporary != NULL)
        return;
    self->ahead.temporary = ecfs_ahead_name ();
    self->ahead.id = ecfs_sftp_expect (self, NULL, on_ahead, NULL);
    g_autofree char *path = ecfs_sftp_path (self, self->ahead.temporary);
    ecfs_sftp_put_create (ecfs_sftp_out (self), self->ahead.id, path,
                          ECFS_SFTP_OPEN_WRITE | ECFS_SFTP_OPEN_CREATE | ECFS_SFTP_OPEN_EXCLUSIVE,
                          self->config->directory_mode & 0666);
}

char *ecfs_sftp_ahead_take (EcfsSftp *self, EcfsSftpOp *op, EcfsSftpReplyFunc func, EcfsSftpHandle *ret_handle)
{
    char *temporary = g_steal_pointer (&self->ahead.temporary);
    *ret_handle = self->ahead.handle;
    if (temporary != NULL && self->ahead.id != 0)
        ecfs_sftp_redirect (self, self->ahead.id, op, func, op);
    forget (self);
    return temporary;
}

static void give_back (EcfsSftp *self)
{
    g_autofree char *path = ecfs_sftp_path (self, self->ahead.temporary);
    ecfs_sftp_put_handle (ecfs_sftp_out (self), ECFS_SFTP_CLOSE, ecfs_sftp_expect (self, NULL, ecfs_sftp_ignore, NULL),
                          &self->ahead.handle);
    ecfs_sftp_put_path (ecfs_sftp_out (self), ECFS_SFTP_REMOVE, ecfs_sftp_expect (self, NULL, ecfs_sftp_ignore, NULL),
                        path);
    forget (self);
}

void ecfs_sftp_ahead_tidy (EcfsSftp *self)
{
    if (self->ahead.handle.size > 0 && ecfs_now_us () - self->ahead.noted_us > IDLE_US)
        give_back (self);
}

void ecfs_sftp_ahead_end (EcfsSftp *self)
{
    EcfsSshWait wait = {.deadline_us = ecfs_now_us () + LEAVE_US, .fd = -1};
    if (self->broken == NULL && self->ahead.temporary != NULL && ecfs_sftp_is_at_rest (self) &&
        ecfs_sftp_drain (self, &wait, NULL) && self->ahead.handle.size > 0) {
        give_back (self);
        (void) ecfs_sftp_drain (self, &wait, NULL); /* what is left is removed with unfinished uploads */
    }
    forget (self);
}
