/*
 * A file that several connections store together. OpenSSH gives a channel a window of 2 MiB: on a long line that is all
 * that one connection has under way, so where more could be, others help the one that took the request, the lead.
 *
 * All state of the request stays with the lead (sftp_write.c). It cuts what its source gives into pieces; those that it
 * has no room for wait here, and whoever has room first, the lead or a helper, sends them. A helper opens the temporary
 * file once more and only ever takes work away: the pieces it was not told are stored when it fails or its connection
 * ends wait here again, and the lead meets by itself whatever is wrong.
 *
 *   a piece   is with                   moved on by
 *   waiting   the help                  a helper → sent; the lead takes it back
 *   sent      the helper that sent it   its reply → stored; its failure → waiting
 *   stored    the help                  the lead, who collects it
 *
 *   a helper  replies awaited           moved on by
 *   opening   OPEN                      its → helping, or gone when the file cannot be opened
 *   helping   WRITEs                    the end of the pieces, or a failure → leaving
 *   leaving   the rest of these, CLOSE  the last → gone
 *
 * The bytes of a piece are lent to the lead, which gives them back when its request is finished or its connection ends.
 * So they are looked at only under the lock and before the lead has withdrawn: a helper copies what it is about to
 * send. Locks are taken in the order shared, help; the endpoint's before neither.
 */
#include "endpoint/sftp/sftp_priv.h"

#include <string.h>

#define AHEAD         4 /* pieces that wait per helper, so that none is idle until the lead's next turn */
#define REFUSED_FILES 2 /* one may have gone for a reason of its own */

struct EcfsSftpHelp {
    EcfsMutex lock;

    /* immutable */
    EcfsSftpShared *shared;
    EcfsSlot *lead;
    char *name; /* of the file, for messages */
    char *temporary;
    size_t piece_bytes; /* at most */

    /* guarded by lock */
    unsigned n_refs;
    GQueue waiting; /* EcfsSftpPiece by link, as all queues of these */
    GQueue stored;
    unsigned n_sent;
    GQueue helpers;   /* EcfsSftpHelper by link */
    unsigned n_ready; /* of these have opened the file */
    bool ended;       /* no more pieces will be put */
    bool withdrawn;
    bool refused; /* a helper could not open the file */
    GError *error;

    /* guarded by shared's lock */
    bool offered;
    GList link;

    int64_t called_us; /* the lead's thread */
};

typedef struct EcfsSftpHelper {
    EcfsSftpOp op;
    EcfsSftpHelp *help; /* counted */
    EcfsSlot *slot;
    EcfsSftpHandle handle; /* size 0: not open, or not any more */
    bool wrote;            /* something was acknowledged */
    bool closed;           /* CLOSE was answered, or there was nothing to close */
    GQueue pieces;         /* sent */
    uint8_t *buffer;       /* the piece that is being sent */
    bool hungry;           /* wants to be told of the next piece; guarded by the help's lock */
    GList link;
} EcfsSftpHelper;

static void help_unref (EcfsSftpHelp *help)
{
    ecfs_mutex_lock (&help->lock);
    unsigned n_left = --help->n_refs;
    ecfs_mutex_unlock (&help->lock);
    if (n_left > 0)
        return;
    g_assert (help->waiting.length == 0 && help->helpers.length == 0);
    EcfsSftpPiece *piece;
    while ((piece = g_queue_peek_head (&help->stored)) != NULL) {
        g_queue_unlink (&help->stored, &piece->link);
        g_free (piece);
    }
    ecfs_mutex_clear (&help->lock);
    g_clear_error (&help->error);
    g_free (help->name);
    g_free (help->temporary);
    g_free (help);
}

/* Whoever helps already goes on. */
static void end_offer (EcfsSftpHelp *help)
{
    EcfsSftpShared *shared = help->shared;
    ecfs_mutex_lock (&shared->lock);
    if (help->offered) {
        g_queue_unlink (&shared->offers, &help->link);
        atomic_fetch_sub (&shared->n_offers, 1);
    }
    help->offered = false;
    ecfs_mutex_unlock (&shared->lock);
}

static void wake_locked (EcfsSftpHelp *help, bool hungry_only) ECFS_REQUIRES (help->lock)
{
    for (GList *at = help->helpers.head; at != NULL; at = at->next) {
        EcfsSftpHelper *helper = at->data;
        if (helper->hungry || !hungry_only)
            ecfs_slot_notify (helper->slot);
        helper->hungry = false;
    }
}

/* The lead */

EcfsSftpHelp *ecfs_sftp_help_offer (EcfsSftp *self, const char *name, const char *temporary)
{
    EcfsSftpShared *shared = self->config->shared;
    ecfs_mutex_lock (&shared->lock);
    bool opens_once = shared->n_refused >= REFUSED_FILES;
    unsigned n_helping = shared->n_helping;
    ecfs_mutex_unlock (&shared->lock);
    if (opens_once || !ecfs_slot_call_others (self->slot, n_helping))
        return NULL;
    EcfsSftpHelp *help = g_new0 (EcfsSftpHelp, 1);
    ecfs_mutex_init (&help->lock);
    help->shared = shared;
    help->lead = self->slot;
    help->name = g_strdup (name);
    help->temporary = g_strdup (temporary);
    help->piece_bytes = self->write_bytes;
    help->n_refs = 1;
    help->offered = true;
    help->link.data = help;
    ecfs_mutex_lock (&shared->lock);
    g_queue_push_tail_link (&shared->offers, &help->link);
    atomic_fetch_add (&shared->n_offers, 1);
    ecfs_mutex_unlock (&shared->lock);
    return help;
}

void ecfs_sftp_help_call (EcfsSftp *self, EcfsSftpHelp *help)
{
    int64_t now_us = ecfs_now_us ();
    if (now_us - help->called_us < self->rtt_us)
        return;
    help->called_us = now_us;
    ecfs_mutex_lock (&help->shared->lock);
    bool offered = help->offered;
    unsigned n_helping = help->shared->n_helping;
    ecfs_mutex_unlock (&help->shared->lock);
    if (offered)
        (void) ecfs_slot_call_others (self->slot, n_helping);
}

bool ecfs_sftp_help_wants (EcfsSftpHelp *help)
{
    ecfs_mutex_lock (&help->lock);
    bool wants = help->waiting.length < help->n_ready * AHEAD;
    ecfs_mutex_unlock (&help->lock);
    return wants;
}

void ecfs_sftp_help_put (EcfsSftpHelp *help, EcfsSftpPiece *piece)
{
    piece->link = (GList){.data = piece};
    ecfs_mutex_lock (&help->lock);
    g_queue_push_tail_link (&help->waiting, &piece->link);
    wake_locked (help, true);
    ecfs_mutex_unlock (&help->lock);
}

static EcfsSftpPiece *pop (EcfsSftpHelp *help, GQueue *queue)
{
    ecfs_mutex_lock (&help->lock);
    EcfsSftpPiece *piece = g_queue_peek_head (queue);
    if (piece != NULL)
        g_queue_unlink (queue, &piece->link);
    ecfs_mutex_unlock (&help->lock);
    return piece;
}

EcfsSftpPiece *ecfs_sftp_help_reclaim (EcfsSftpHelp *help)
{
    return pop (help, &help->waiting);
}

EcfsSftpPiece *ecfs_sftp_help_collect (EcfsSftpHelp *help)
{
    return pop (help, &help->stored);
}

void ecfs_sftp_help_end (EcfsSftpHelp *help)
{
    end_offer (help);
    ecfs_mutex_lock (&help->lock);
    if (!help->ended)
        wake_locked (help, false);
    help->ended = true;
    ecfs_mutex_unlock (&help->lock);
}

bool ecfs_sftp_help_is_over (EcfsSftpHelp *help, GError **ret_error)
{
    ecfs_mutex_lock (&help->lock);
    bool over = help->ended && help->waiting.length + help->stored.length + help->n_sent + help->helpers.length == 0;
    if (over)
        *ret_error = g_steal_pointer (&help->error);
    ecfs_mutex_unlock (&help->lock);
    return over;
}

void ecfs_sftp_help_withdraw (EcfsSftpHelp *help)
{
    if (help == NULL)
        return;
    EcfsSftpPiece *piece;
    ecfs_sftp_help_end (help);
    ecfs_mutex_lock (&help->lock);
    help->withdrawn = true;
    ecfs_mutex_unlock (&help->lock);
    while ((piece = ecfs_sftp_help_reclaim (help)) != NULL)
        g_free (piece);
    help_unref (help);
}

/* Helpers */

/* What was sent has an end: it is stored, or waits again. */
static void settle_piece (EcfsSftpHelper *helper, EcfsSftpPiece *piece, bool stored)
{
    EcfsSftpHelp *help = helper->help;
    g_queue_unlink (&helper->pieces, &piece->link);
    ecfs_mutex_lock (&help->lock);
    help->n_sent--;
    bool dropped = help->withdrawn;
    if (!dropped && stored)
        g_queue_push_tail_link (&help->stored, &piece->link);
    else if (!dropped)
        g_queue_push_head_link (&help->waiting, &piece->link);
    if (!dropped)
        ecfs_slot_notify (help->lead);
    ecfs_mutex_unlock (&help->lock);
    if (dropped)
        g_free (piece);
}

static void note_error (EcfsSftpHelp *help, GError *error)
{
    ecfs_mutex_lock (&help->lock);
    if (help->error == NULL)
        help->error = g_steal_pointer (&error);
    ecfs_mutex_unlock (&help->lock);
    g_clear_error (&error);
}

/* Its connection ended in the middle: it is not asked for help again. What was acknowledged to it the lead's fsync
 * makes safe; where there is none, only an answer to CLOSE would have told that. */
static void note_lost (EcfsSftp *self, EcfsSftpHelper *helper)
{
    end_offer (helper->help);
    while (helper->pieces.length > 0)
        settle_piece (helper, g_queue_peek_tail (&helper->pieces), false);
    if (helper->wrote && (self->extensions & ECFS_SFTP_HAS_FSYNC) == 0)
        note_error (helper->help, g_error_new (ECFS_ERROR, ENOTCONN, "%s: a connection that stored a part was lost",
                                               helper->help->name));
}

static void helper_free (EcfsSftp *self, EcfsSftpOp *op)
{
    EcfsSftpHelper *helper = (EcfsSftpHelper *) op;
    EcfsSftpHelp *help = helper->help;
    if (!helper->closed || helper->pieces.length > 0)
        note_lost (self, helper);
    ecfs_mutex_lock (&help->shared->lock);
    help->shared->n_helping--;
    ecfs_mutex_unlock (&help->shared->lock);
    ecfs_mutex_lock (&help->lock);
    g_queue_unlink (&help->helpers, &helper->link);
    help->n_ready -= helper->handle.size > 0;
    if (!help->withdrawn)
        ecfs_slot_notify (help->lead);
    ecfs_mutex_unlock (&help->lock);
    help_unref (help);
    self->helper = NULL;
    g_free (helper->buffer);
    g_free (helper);
}

static void on_close (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    EcfsSftpHelper *helper = data;
    if (ecfs_sftp_status (self, reply) != ECFS_SFTP_OK && helper->wrote)
        note_error (helper->help, ecfs_sftp_error (reply, ECFS_SFTP_ON_COMMIT, helper->help->name));
    helper->closed = true;
    helper->op.stays = false;
}

static void leave (EcfsSftp *self, EcfsSftpHelper *helper)
{
    ecfs_sftp_put_handle (ecfs_sftp_out (self), ECFS_SFTP_CLOSE, ecfs_sftp_expect (self, &helper->op, on_close, helper),
                          &helper->handle);
    helper->handle.size = 0;
    ecfs_mutex_lock (&helper->help->lock);
    helper->help->n_ready--;
    ecfs_mutex_unlock (&helper->help->lock);
}

/* Own writes come before the pieces of others, but must not keep the lead waiting that has no more. */
static void leave_if_over (EcfsSftp *self)
{
    EcfsSftpHelper *helper = self->helper;
    EcfsSftpHelp *help = helper->help;
    if (helper->handle.size == 0)
        return;
    ecfs_mutex_lock (&help->lock);
    bool over = help->ended && help->waiting.length == 0;
    ecfs_mutex_unlock (&help->lock);
    if (over)
        leave (self, helper);
}

static void on_open (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    EcfsSftpHelper *helper = data;
    EcfsSftpHelp *help = helper->help;
    bool open = reply->type == ECFS_SFTP_HANDLE;
    if (!open)
        (void) ecfs_sftp_status (self, reply); /* anything but a status breaks the connection */
    ecfs_mutex_lock (&help->lock);
    bool needless = help->ended;
    bool first = !help->refused;
    help->refused |= !open;
    help->n_ready += open;
    ecfs_slot_notify (help->lead);
    ecfs_mutex_unlock (&help->lock);
    if (open) {
        helper->handle = reply->handle;
        return;
    }
    end_offer (help);
    ecfs_mutex_lock (&help->shared->lock);
    help->shared->n_refused += first && !needless;
    ecfs_mutex_unlock (&help->shared->lock);
    helper->closed = true;
    helper->op.stays = false;
}

static void on_write (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    EcfsSftpHelper *helper = self->helper;
    EcfsSftpPiece *piece = data;
    bool ok = ecfs_sftp_status (self, reply) == ECFS_SFTP_OK;
    if (self->broken != NULL)
        return;
    ecfs_sftp_window_take (&self->write_window, piece->size, piece->size, self->rtt_us);
    helper->wrote |= ok;
    settle_piece (helper, piece, ok);
    if (!ok)
        end_offer (helper->help);
    if (!ok && helper->handle.size > 0)
        leave (self, helper);
}

static EcfsSftpHelp *find_offer (EcfsSftp *self)
{
    EcfsSftpShared *shared = self->config->shared;
    EcfsSftpHelp *best = NULL;
    unsigned least = G_MAXUINT;
    ecfs_mutex_lock (&shared->lock);
    for (GList *at = shared->offers.head; at != NULL; at = at->next) {
        EcfsSftpHelp *help = at->data;
        ecfs_mutex_lock (&help->lock);
        unsigned n_helpers = help->helpers.length;
        ecfs_mutex_unlock (&help->lock);
        if (n_helpers >= least || help->piece_bytes > self->write_bytes)
            continue;
        best = help;
        least = n_helpers;
    }
    if (best != NULL) {
        shared->n_helping++;
        ecfs_mutex_lock (&best->lock);
        best->n_refs++;
        ecfs_mutex_unlock (&best->lock);
    }
    ecfs_mutex_unlock (&shared->lock);
    return best;
}

static void join (EcfsSftp *self)
{
    if (atomic_load (&self->config->shared->n_offers) == 0 || !ecfs_sftp_is_at_rest (self) ||
        !ecfs_slot_is_trusted (self->slot))
        return;
    EcfsSftpHelp *help = find_offer (self);
    if (help == NULL)
        return;
    EcfsSftpHelper *helper = g_new0 (EcfsSftpHelper, 1);
    helper->op = (EcfsSftpOp){.free = helper_free, .stays = true};
    helper->op.link.data = helper;
    helper->help = help;
    helper->slot = self->slot;
    helper->buffer = g_malloc (help->piece_bytes);
    helper->link.data = helper;
    g_queue_init (&helper->pieces);
    g_queue_push_tail_link (&self->ops, &helper->op.link);
    self->helper = helper;
    ecfs_mutex_lock (&help->lock);
    g_queue_push_tail_link (&help->helpers, &helper->link);
    ecfs_mutex_unlock (&help->lock);
    g_autofree char *path = ecfs_sftp_path (self, help->temporary);
    ecfs_sftp_put_open (ecfs_sftp_out (self), ecfs_sftp_expect (self, &helper->op, on_open, helper), path,
                        ECFS_SFTP_OPEN_WRITE);
}

void ecfs_sftp_help_turn (EcfsSftp *self)
{
    if (self->helper != NULL)
        leave_if_over (self);
    else
        join (self);
}

/* The next piece, its bytes in the buffer. NULL: none now, or for good. */
static EcfsSftpPiece *take (EcfsSftpHelper *helper, bool *ret_ended)
{
    EcfsSftpHelp *help = helper->help;
    ecfs_mutex_lock (&help->lock);
    EcfsSftpPiece *piece = help->withdrawn ? NULL : g_queue_peek_head (&help->waiting);
    helper->hungry = piece == NULL;
    *ret_ended = help->ended;
    if (piece != NULL) {
        g_queue_unlink (&help->waiting, &piece->link);
        memcpy (helper->buffer, piece->bytes, piece->size);
        help->n_sent++;
        if (help->waiting.length <= AHEAD / 2)
            ecfs_slot_notify (help->lead);
    }
    ecfs_mutex_unlock (&help->lock);
    return piece;
}

bool ecfs_sftp_help_issue (EcfsSftp *self)
{
    EcfsSftpHelper *helper = self->helper;
    if (helper == NULL || helper->handle.size == 0 || !ecfs_sftp_payload_free (self) ||
        !ecfs_sftp_window_room (&self->write_window, helper->help->piece_bytes))
        return false;
    bool ended;
    EcfsSftpPiece *piece = take (helper, &ended);
    if (piece == NULL) {
        if (ended)
            leave (self, helper);
        return ended;
    }
    g_queue_push_tail_link (&helper->pieces, &piece->link);
    ecfs_sftp_window_add (&self->write_window, piece->size);
    uint32_t id = ecfs_sftp_expect (self, &helper->op, on_write, piece);
    ecfs_sftp_put_write (self->out, id, &helper->handle, piece->offset, (uint32_t) piece->size);
    ecfs_sftp_payload (self, &helper->op, id, helper->buffer, piece->size);
    return true;
}
