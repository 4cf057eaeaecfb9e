#include "endpoint/core/claims.h"

#include "util/lock.h"

#include <glib.h>

struct EcfsClaims {
    EcfsMutex lock;
    GHashTable *names; /* guarded by lock */
};

EcfsClaims *ecfs_claims_new (void)
{
    EcfsClaims *self = g_new0 (EcfsClaims, 1);
    ecfs_mutex_init (&self->lock);
    self->names = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    return self;
}

void ecfs_claims_free (EcfsClaims *self)
{
    if (self == NULL)
        return;
    g_hash_table_unref (self->names);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

bool ecfs_claims_take (EcfsClaims *self, const char *name)
{
    ecfs_mutex_lock (&self->lock);
    bool ours = g_hash_table_add (self->names, g_strdup (name));
    ecfs_mutex_unlock (&self->lock);
    return ours;
}

void ecfs_claims_release (EcfsClaims *self, const char *name)
{
    ecfs_mutex_lock (&self->lock);
    (void) g_hash_table_remove (self->names, name);
    ecfs_mutex_unlock (&self->lock);
}
