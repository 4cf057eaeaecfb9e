/* A database whose connection was lost: connected anew, with what was changed since BEGIN. */
#include "catalog/db.h"

#define REVIVE_US (5 * G_USEC_PER_SEC) /* a server restarts within seconds; then changes are refused */
#define PAUSE_US  (G_USEC_PER_SEC / 10)

bool ecfs_fail_detached (const EcfsCatalog *self, GError **error)
{
    return ecfs_fail (error, EIO, "%s; until then nothing can be read, as changes are not in it yet",
                      self->failure == NULL ? "the database is away" : self->failure);
}

static bool connect_within (EcfsCatalog *self, int64_t us, GError **error)
{
    const DbOps *ops = self->db->ops;
    int64_t until_us = ecfs_now_us () + us;
    for (;;) {
        g_autoptr (GError) why = NULL;
        if (ops->reconnect (self->db, &why))
            return true;
        if (ecfs_now_us () >= until_us || !ops->is_away (self->db)) {
            g_propagate_error (error, g_steal_pointer (&why));
            return false;
        }
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
    if (ops->is_away == NULL || !ops->is_away (self->db) || self->detached || (self->readonly && self->reading))
        return false;
    g_info ("catalog %s: the connection is lost; connecting anew", self->path);
    if (!connect_within (self, REVIVE_US, &why) || (self->in_txn && !begin_again (self, &why)) ||
        (self->reading && !ops->control (self->db, STMT_BEGIN_READ, "reading it", &why)))
        return false; /* the first error is the one to tell */
    g_clear_error (error);
    return true;
}
