/* What drivers ask and tell of the slot that they serve, but for its requests. */
#include "endpoint/core/core.h"

#include <poll.h>
#include <unistd.h>

void ecfs_slot_notify (EcfsSlot *slot)
{
    uint64_t one = 1;
    /* Fails only when the counter is full, and then the descriptor is readable anyway. */
    if (write (slot->event_fd, &one, sizeof one) < 0)
        return;
}

const void *ecfs_slot_config (const EcfsSlot *slot)
{
    return slot->endpoint->config;
}

const char *ecfs_slot_endpoint_name (const EcfsSlot *slot)
{
    return slot->endpoint->name;
}

int64_t ecfs_slot_connect_timeout_us (const EcfsSlot *slot)
{
    return slot->endpoint->connect_timeout_us;
}

int64_t ecfs_slot_stall_timeout_us (const EcfsSlot *slot)
{
    return slot->endpoint->stall_timeout_us;
}

bool ecfs_slot_may_have_others (const EcfsSlot *slot)
{
    return slot->endpoint->n_slots > 1;
}

void ecfs_slot_count_sent (EcfsSlot *slot)
{
    EcfsEndpoint *self = slot->endpoint;
    ecfs_mutex_lock (&self->lock);
    self->counts.sent++;
    ecfs_mutex_unlock (&self->lock);
}

int ecfs_slot_fd (const EcfsSlot *slot)
{
    return slot->event_fd;
}

void ecfs_slot_capabilities (EcfsSlot *slot, unsigned capabilities)
{
    EcfsEndpoint *self = slot->endpoint;
    ecfs_mutex_lock (&self->lock);
    self->capabilities = capabilities;
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_slot_describe (EcfsSlot *slot, const char *text)
{
    EcfsEndpoint *self = slot->endpoint;
    ecfs_mutex_lock (&self->lock);
    g_free (self->description);
    self->description = ecfs_text_clean (text, ECFS_WORDS_MAX);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_slot_owed (EcfsSlot *slot, EcfsOwes owes)
{
    EcfsEndpoint *self = slot->endpoint;
    int64_t now_us = ecfs_now_us ();
    if (ecfs_clock_set (&slot->clock, owes, now_us)) {
        ecfs_mutex_lock (&self->lock);
        if (slot->broken == NULL)
            ecfs_clock_note (&slot->clock, self->silences, now_us);
        ecfs_mutex_unlock (&self->lock);
    }
    int64_t least_us = MIN (self->stall_timeout_us, ECFS_GONE_MIN_US);
    if (owes != ECFS_OWES_NOTHING && atomic_load (&self->keeper_wakes_us) > now_us + least_us) {
        ecfs_mutex_lock (&self->lock);
        ecfs_cond_signal (&self->keeper_cond);
        ecfs_mutex_unlock (&self->lock);
    }
}

void ecfs_slot_poll (EcfsSlot *slot, struct pollfd *fds, unsigned n_fds, int timeout_ms)
    ECFS_TSA (no_thread_safety_analysis)
{
    ecfs_mutex_unlock (&slot->turn);
    (void) poll (fds, n_fds, timeout_ms);
    ecfs_mutex_lock (&slot->turn);
}

bool ecfs_slot_wait (EcfsSlot *slot, int64_t deadline_us)
{
    for (;;) {
        int64_t left_us = MAX (deadline_us - ecfs_now_us (), 0);
        struct pollfd poll_fd = {.fd = slot->event_fd, .events = POLLIN};
        int n = poll (&poll_fd, 1, (int) MIN ((left_us + 999) / 1000, G_MAXINT));
        if (n > 0)
            return true;
        if (left_us == 0)
            return false;
    }
}

bool ecfs_slot_is_last (const EcfsSlot *slot)
{
    EcfsEndpoint *self = slot->endpoint;
    bool last = true;
    ecfs_mutex_lock (&self->lock);
    for (unsigned i = 0; i < self->n_slots; i++)
        last = last && (&self->slots[i] == slot || self->slots[i].state != SLOT_SERVING);
    ecfs_mutex_unlock (&self->lock);
    return last;
}

bool ecfs_slot_has_marker (EcfsSlot *slot)
{
    EcfsEndpoint *self = slot->endpoint;
    ecfs_mutex_lock (&self->lock);
    bool has_marker = !ecfs_uuid_is_nil (&self->expected.archive);
    ecfs_mutex_unlock (&self->lock);
    return has_marker;
}

void ecfs_slot_doubt (EcfsSlot *slot)
{
    ecfs_mutex_lock (&slot->endpoint->lock);
    ecfs_core_doubt_locked (slot->endpoint, slot);
    ecfs_mutex_unlock (&slot->endpoint->lock);
}

bool ecfs_slot_is_trusted (EcfsSlot *slot)
{
    EcfsEndpoint *self = slot->endpoint;
    ecfs_mutex_lock (&self->lock);
    bool trusted = slot->trust == TRUST_FULL && slot->broken == NULL && !self->stopping;
    ecfs_mutex_unlock (&self->lock);
    return trusted;
}
