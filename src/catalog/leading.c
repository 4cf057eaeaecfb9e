/* A catalog that several processes have open: who leads, what the others want of it, and where they serve peers. */
#include "catalog/age.h"

bool ecfs_catalog_is_shared (const EcfsCatalog *self)
{
    return self->is_member;
}

bool ecfs_catalog_leads (EcfsCatalog *self)
{
    ecfs_mutex_lock (&self->lock);
    bool leads = ecfs_leads (self) && !self->inherits;
    ecfs_mutex_unlock (&self->lock);
    return leads;
}

static bool look_around (EcfsCatalog *self, GError **error)
{
    bool led = ecfs_leads (self), leads = led;
    bool looked = self->db->ops->look_around (self->db, &leads, error);
    self->inherits = leads && (self->inherits || !led);
    if (!looked || !self->inherits)
        return looked;
    self->inherits = !ecfs_age_inherit (self, error);
    return !self->inherits;
}

static bool is_doubtful (EcfsCatalog *self)
{
    return self->is_member && self->db->ops->is_doubtful (self->db);
}

bool ecfs_catalog_is_doubtful (EcfsCatalog *self)
{
    ecfs_mutex_lock (&self->lock);
    bool doubtful = is_doubtful (self);
    ecfs_mutex_unlock (&self->lock);
    return doubtful;
}

void ecfs_catalog_end_doubt (EcfsCatalog *self, const GError *why)
{
    ecfs_mutex_lock (&self->lock);
    ecfs_catalog_judge (self, why);
    self->db->ops->end_doubt (self->db);
    ecfs_cond_broadcast (&self->committed);
    ecfs_mutex_unlock (&self->lock);
}

/* While that is found out, as ecfs_await_back (). */
ECFS_TSA (no_thread_safety_analysis) bool ecfs_await_no_doubt (EcfsCatalog *self, int64_t until_us)
{
    while (is_doubtful (self) && !self->stopping && ecfs_now_us () < until_us)
        (void) ecfs_cond_wait_until (&self->committed, &self->lock, until_us); /* the loop looks */
    return !is_doubtful (self);
}

bool ecfs_step_aside (EcfsCatalog *self, GError **error)
{
    if (self->broken || self->failure != NULL)
        return ecfs_fail_state (self, error);
    g_autoptr (GError) why = NULL;
    if (!ecfs_commit (self, &why) &&
        (self->broken || self->failure != NULL)) { /* what is given up its callers are told */
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    ecfs_reading_end (self);
    return true;
}

/* @call is asked of the database outside of transactions. */
#define ASIDE(self, error, call)                                                                                       \
    ({                                                                                                                 \
        ecfs_mutex_lock (&(self)->lock);                                                                               \
        bool ok_ = ecfs_step_aside (self, error) && (call);                                                            \
        ecfs_mutex_unlock (&(self)->lock);                                                                             \
        ok_;                                                                                                           \
    })

bool ecfs_catalog_ask_leader (EcfsCatalog *self, uint64_t sequence, EcfsLeaderAnswer *ret_answer, GError **error)
{
    return ASIDE (self, error, self->db->ops->ask_leader (self->db, sequence, ret_answer, error));
}

bool ecfs_catalog_wanted (EcfsCatalog *self, uint64_t *ret_sequence, GError **error)
{
    return ASIDE (self, error, self->db->ops->wanted (self->db, ret_sequence, error));
}

bool ecfs_catalog_answer (EcfsCatalog *self, uint64_t sequence, const char *trouble, GError **error)
{
    return ASIDE (self, error, self->db->ops->answer (self->db, sequence, trouble, error));
}

bool ecfs_catalog_resign (EcfsCatalog *self, GError **error)
{
    return ASIDE (self, error, self->db->ops->resign (self->db, error));
}

bool ecfs_catalog_look_around (EcfsCatalog *self, GError **error)
{
    return !self->is_member || ASIDE (self, error, look_around (self, error));
}

char *ecfs_catalog_leader (EcfsCatalog *self)
{
    char *leader = NULL;
    if ((self->is_member || self->readonly) && self->db->ops->leader != NULL)
        (void) ASIDE (self, NULL, (leader = self->db->ops->leader (self->db)) != NULL); /* NULL says it */
    return leader;
}

static bool check_shared (const EcfsCatalog *self, GError **error)
{
    return self->db->ops->peers != NULL ||
           ecfs_fail (error, ENOTSUP, "catalog %s is a file of this machine, where no other is found", self->path);
}

bool ecfs_catalog_tell_peer (EcfsCatalog *self, const char *address, GError **error)
{
    return check_shared (self, error) && ASIDE (self, error, self->db->ops->tell_peer (self->db, address, error));
}

GPtrArray *ecfs_catalog_peers (EcfsCatalog *self, GError **error)
{
    GPtrArray *found = NULL;
    if (check_shared (self, error))
        (void) ASIDE (self, error, (found = self->db->ops->peers (self->db, error)) != NULL); /* NULL says it */
    return found;
}

char *ecfs_catalog_own_host (EcfsCatalog *self)
{
    char *host = NULL;
    if (check_shared (self, NULL))
        (void) ASIDE (self, NULL, (host = self->db->ops->own_host (self->db)) != NULL); /* likewise */
    return host;
}
