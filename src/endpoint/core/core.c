/* How long an endpoint lives: as long as somebody, a request for example, refers to it. */
#include "endpoint/core/core.h"

#include <unistd.h>

EcfsEndpoint *ecfs_endpoint_ref (EcfsEndpoint *self)
{
    atomic_fetch_add (&self->n_refs, 1);
    return self;
}

void ecfs_endpoint_unref (EcfsEndpoint *self)
{
    if (atomic_fetch_sub (&self->n_refs, 1) != 1)
        return;
    for (unsigned i = 0; self->slots != NULL && i < self->n_slots; i++) {
        if (self->slots[i].event_fd >= 0)
            close (self->slots[i].event_fd);
        ecfs_mutex_clear (&self->slots[i].turn);
        g_clear_error (&self->slots[i].broken);
    }
    g_free (self->slots);
    if (self->config != NULL)
        self->driver->free_config (self->config);
    ecfs_cond_clear (&self->slots_cond);
    ecfs_cond_clear (&self->keeper_cond);
    ecfs_mutex_clear (&self->lock);
    g_free (self->name);
    g_free (self->url);
    g_free (self->reason);
    g_free (self->description);
    g_free (self->refusal.text);
    g_free (self);
}
