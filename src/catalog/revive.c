/* A database whose connection was lost: connected anew, with what was changed since BEGIN. */
#include "catalog/db.h"
#include "catalog/lost.h"

#define TURNS     16                   /* that are waited for after others were in the way of a transaction */
#define REVIVE_US (5 * G_USEC_PER_SEC) /* a server restarts within seconds; then changes are refused */
#define PAUSE_US  (G_USEC_PER_SEC / 10)
#define RETRY_US  G_USEC_PER_SEC

bool ecfs_fail_detached (const EcfsCatalog *self, GError **error)
{
    return ecfs_fail (error, EIO, "%s; until then nothing can be read, as changes are not in it yet",
                      self->failure == NULL ? "the database is away" : self->failure);
}

void ecfs_catalog_judge (EcfsCatalog *self, const GError *why)
{
    if (!self->readonly && why != NULL && why->code == ESTALE && atomic_load (&self->behind) == NULL)
        atomic_store (&self->behind, g_strdup (why->message));
}

const char *ecfs_catalog_behind (const EcfsCatalog *self)
{
    return atomic_load (&self->behind);
}

bool ecfs_catalog_is_taken_over (const EcfsCatalog *self)
{
    return self->db->ops->is_taken_over != NULL && self->db->ops->is_taken_over (self->db);
}

static _Thread_local bool hurried;

void ecfs_catalog_hurry (bool hurries)
{
    hurried = hurries;
}

void ecfs_catalog_set_timeout (EcfsCatalog *self, int64_t us)
{
    ecfs_mutex_lock (&self->lock);
    self->timeout_us = us;
    ecfs_mutex_unlock (&self->lock);
}

int64_t ecfs_catalog_away_us (EcfsCatalog *self)
{
    ecfs_mutex_lock (&self->lock);
    int64_t since_us = self->away == NULL ? 0 : self->away_us;
    ecfs_mutex_unlock (&self->lock);
    return since_us;
}

/* The flusher tries it again. */
ECFS_TSA (no_thread_safety_analysis) void ecfs_await_back (EcfsCatalog *self)
{
    int64_t until_us = self->away == NULL ? 0 : self->away_us + self->timeout_us;
    while (self->away != NULL && !self->readonly && !hurried && !self->stopping &&
           atomic_load (&self->behind) == NULL && ecfs_now_us () < until_us)
        (void) ecfs_cond_wait_until (&self->committed, &self->lock, until_us); /* the loop looks */
}

static void set_away (EcfsCatalog *self, const GError *why, int64_t since_us)
{
    if (self->away == NULL)
        self->away_us = since_us;
    if (self->away == NULL)
        g_warning ("%s; tried again each second, until then names cannot be read and changes are refused",
                   why->message);
    g_free (self->away);
    self->away = g_strdup (why->message);
    self->connect_at_us = ecfs_now_us () + RETRY_US;
}

void ecfs_tell_back (EcfsCatalog *self)
{
    if (self->away != NULL)
        g_message ("catalog %s: the database is there again", self->path);
    g_clear_pointer (&self->away, g_free);
    ecfs_cond_broadcast (&self->committed);
}

bool ecfs_connect_within (EcfsCatalog *self, GError **error)
{
    const DbOps *ops = self->db->ops;
    int64_t begun_us = ecfs_now_us (), until_us = begun_us + (self->away == NULL ? REVIVE_US : 0);
    if (self->away != NULL &&
        (hurried || begun_us < self->connect_at_us)) /* whoever waits for the lock need not wait again */
        return ecfs_fail (error, EIO, "%s", self->away);
    for (;;) {
        GError *why = NULL;
        if (ops->reconnect (self->db, &why)) {
            ecfs_tell_back (self);
            return true;
        }
        ecfs_catalog_judge (self, why);
        if (ecfs_now_us () >= until_us || !ops->is_away (self->db) || why->code == ESTALE) {
            if (why->code != ESTALE) /* that was told, and it is there */
                set_away (self, why, begun_us);
            g_propagate_error (error, why);
            return false;
        }
        g_error_free (why);
        g_usleep (PAUSE_US);
    }
}

void ecfs_give_up (EcfsCatalog *self)
{
    if (!self->db->ops->is_away (self->db))
        (void) self->db->ops->control (self->db, STMT_ROLLBACK, "ROLLBACK", NULL); /* it is undone in any case */
    if (self->in_txn && self->is_optimistic && self->db->ops->was_changed (self->db))
        self->n_turns = TURNS;
    if (self->in_txn && self->is_optimistic)
        self->counters = self->guessed;
    ecfs_lost_forget (self, 0);
    for (Op *op = self->waiting; op != NULL; op = op->next)
        op->is_lost = op->is_lost || op->txn == self->txn;
    g_byte_array_set_size (self->redo, 0);
    g_clear_pointer (&self->failure, g_free);
    self->in_txn = self->detached = false;
    self->durable_txn = self->txn; /* nothing is open: who waits for all there is waits for none */
    self->summed = 0;
    self->touched_us = 0;
    ecfs_cond_broadcast (&self->committed);
}

/* With a savepoint where the operation that runs began. */
static bool begin_again (EcfsCatalog *self, GError **error)
{
    const DbOps *ops = self->db->ops;
    guint at = MIN (self->op_at, self->redo->len);
    return ops->control (self->db, STMT_BEGIN, "beginning again", error) && ecfs_replay (self, 0, at, error) &&
           (self->op_at == NO_OP || (ops->control (self->db, STMT_SAVEPOINT, "SAVEPOINT", error) &&
                                     ecfs_replay (self, at, self->redo->len, error)));
}

/* Whoever only looks, and has seen nothing of a transaction of others that is given up, looks without it. */
static bool goes_on_reading (EcfsCatalog *self, GError **error)
{
    if (self->op_at != NO_OP || self->has_read)
        return false;
    self->reading = self->db->ops->control (self->db, STMT_BEGIN_READ, "reading it", NULL); /* else each has its own */
    g_clear_error (error);
    return true;
}

bool ecfs_revive (EcfsCatalog *self, GError **error)
{
    const DbOps *ops = self->db->ops;
    g_autoptr (GError) why = NULL;
    /* What a reader beside a writer has read would be of another moment than what it is about to read. */
    if (ops->is_away == NULL || !ops->is_away (self->db) || self->detached ||
        (self->readonly && self->reading && self->has_read))
        return false;
    g_info ("catalog %s: the connection is lost; connecting anew", self->path);
    const bool begins = !self->in_txn && self->reading && !self->has_read;
    bool back = ecfs_connect_within (self, &why);
    if (self->is_member && self->in_txn) { /* or given up by the next that asks, where it is away for longer */
        if (back)
            ecfs_give_up (self);
        return back && goes_on_reading (self, error);
    }
    if (!back && begins) { /* others may go on from here, but not with anything that this has read */
        ecfs_await_back (self);
        if (self->away != NULL || ops->is_away (self->db))
            return false; /* the first error is the one to tell */
        if (self->in_txn || ops->in_transaction (self->db)) {
            g_clear_error (error);
            return !self->detached;
        }
    } else if (!back) {
        return false;
    }
    if ((self->in_txn && !begin_again (self, &why)) ||
        (self->reading && !ops->control (self->db, STMT_BEGIN_READ, "reading it", &why))) {
        (void) ops->control (self->db, STMT_ROLLBACK, "ROLLBACK", NULL); /* half of it; whoever undoes makes it again */
        return false;
    }
    g_clear_error (error);
    return true;
}
