/* A database whose connection was lost: connected anew, with what was changed since BEGIN. */
#include "catalog/db.h"

#define REVIVE_US (5 * G_USEC_PER_SEC) /* a server restarts within seconds; then changes are refused */
#define PAUSE_US  (G_USEC_PER_SEC / 10)
#define RETRY_US  G_USEC_PER_SEC

bool ecfs_fail_detached (const EcfsCatalog *self, GError **error)
{
    return ecfs_fail (error, EIO, "%s; until then nothing can be read, as changes are not in it yet",
                      self->failure == NULL ? "the database is away" : self->failure);
}

static void set_away (EcfsCatalog *self, const GError *why)
{
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
}

bool ecfs_connect_within (EcfsCatalog *self, GError **error)
{
    const DbOps *ops = self->db->ops;
    int64_t until_us = ecfs_now_us () + (self->away == NULL ? REVIVE_US : 0);
    if (self->away != NULL && ecfs_now_us () < self->connect_at_us) /* whoever waits for the lock need not wait again */
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
                set_away (self, why);
            g_propagate_error (error, why);
            return false;
        }
        g_error_free (why);
        g_usleep (PAUSE_US);
    }
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

bool ecfs_revive (EcfsCatalog *self, GError **error)
{
    const DbOps *ops = self->db->ops;
    g_autoptr (GError) why = NULL;
    /* What a reader beside a writer has read would be of another moment than what it is about to read. */
    if (ops->is_away == NULL || !ops->is_away (self->db) || self->detached ||
        (self->readonly && self->reading && self->has_read))
        return false;
    g_info ("catalog %s: the connection is lost; connecting anew", self->path);
    if (!ecfs_connect_within (self, &why))
        return false; /* the first error is the one to tell */
    if ((self->in_txn && !begin_again (self, &why)) ||
        (self->reading && !ops->control (self->db, STMT_BEGIN_READ, "reading it", &why))) {
        (void) ops->control (self->db, STMT_ROLLBACK, "ROLLBACK", NULL); /* half of it; whoever undoes makes it again */
        return false;
    }
    g_clear_error (error);
    return true;
}
