#include "catalog/locks.h"
#include "catalog/db.h"

#define AGAIN_US (5 * G_USEC_PER_SEC) /* a server restarts within seconds */
#define PAUSE_US (G_USEC_PER_SEC / 10)

static bool is_there (EcfsCatalog *self, GError **error) ECFS_REQUIRES (self->lock)
{
    ecfs_await_back (self);
    bool is_away = self->db->ops->is_away (self->db);
    return (!is_away || ecfs_connect_within (self, error)) && ecfs_step_aside (self, error);
}

/* Whether what failed with *@why is to be done once more, as only the connection was lost. */
static bool is_to_be_done_again (EcfsCatalog *self, int64_t until_us, GError **why)
{
    if (self->away != NULL || (*why)->code == ESTALE || !self->db->ops->is_away (self->db) ||
        ecfs_now_us () >= until_us)
        return false;
    g_clear_error (why);
    g_usleep (PAUSE_US);
    return true;
}

/* @call, with the catalog's lock, until it has an answer. */
#define ASK(self, error, call)                                                                                         \
    ({                                                                                                                 \
        bool done_;                                                                                                    \
        GError *why_ = NULL;                                                                                           \
        int64_t until_us_ = ecfs_now_us () + AGAIN_US;                                                                 \
        ecfs_mutex_lock (&(self)->lock);                                                                               \
        do                                                                                                             \
            done_ = is_there (self, &why_) && (call);                                                                  \
        while (!done_ && is_to_be_done_again (self, until_us_, &why_));                                                \
        ecfs_catalog_judge (self, why_);                                                                               \
        ecfs_mutex_unlock (&(self)->lock);                                                                             \
        if (why_ != NULL)                                                                                              \
            g_propagate_error (error, why_);                                                                           \
        done_;                                                                                                         \
    })

bool ecfs_catalog_lock_set (EcfsCatalog *self, const EcfsLockOwner *owner, const GArray *ranges, bool *ret_granted,
                            GError **error)
{
    return ASK (self, error, self->db->ops->lock_set (self->db, owner, ranges, ret_granted, &why_));
}

bool ecfs_catalog_lock_find (EcfsCatalog *self, const EcfsLockOwner *owner, const EcfsLockRange *wanted,
                             bool *ret_there, EcfsLockRange *ret_found, GError **error)
{
    return ASK (self, error, self->db->ops->lock_find (self->db, owner, wanted, ret_there, ret_found, &why_));
}

unsigned ecfs_catalog_lock_connections (EcfsCatalog *self)
{
    ecfs_mutex_lock (&self->lock);
    unsigned n = self->db->ops->n_connections (self->db);
    ecfs_mutex_unlock (&self->lock);
    return n;
}
