#include "transfer.h"

uint8_t *test_bytes (size_t size, unsigned seed)
{
    uint8_t *bytes = g_malloc (size + 1);
    uint32_t state = seed * 2654435761u + 1;
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (uint8_t) (state >> 24);
    }
    return bytes;
}

void transfer_init (Transfer *self, EcfsEndpoint *endpoint)
{
    *self = (Transfer){.endpoint = endpoint, .chunk = 50000};
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->cond);
}

static void rule_locked (Transfer *self, bool kept, const char *rule) ECFS_REQUIRES (self->lock)
{
    if (!kept)
        self->broken_rule = rule;
}

static void moved_locked (Transfer *self, size_t moved) ECFS_REQUIRES (self->lock)
{
    rule_locked (self, self->n_done == 0, "nothing comes after done");
    self->moved = moved;
    if (self->cancel_at_bytes != 0 && moved >= self->cancel_at_bytes)
        ecfs_stream_cancel (self->stream);
    ecfs_cond_broadcast (&self->cond);
}

static void on_done (void *user, const GError *error)
{
    Transfer *self = user;
    ecfs_mutex_lock (&self->lock);
    rule_locked (self, self->n_done++ == 0, "done comes once");
    rule_locked (self, self->bytes == NULL || self->released == self->moved, "all lent bytes come back before done");
    rule_locked (self, error == NULL || (error->domain == ECFS_ERROR && g_str_has_prefix (error->message, "endpoint ")),
                 "errors are errnos and name the endpoint");
    if (error == NULL && self->bytes != NULL)
        rule_locked (self, self->acknowledged == self->size, "all bytes of a stored file were acknowledged");
    if (error != NULL)
        g_test_message ("%s", error->message);
    self->code = ecfs_errno (error);
    ecfs_cond_broadcast (&self->cond);
    ecfs_mutex_unlock (&self->lock);
}

static void wake (void *user)
{
    EcfsStream *stream = user;
    ecfs_stream_wake (stream);
    ecfs_stream_unref (stream);
}

static EcfsPull next_locked (Transfer *self, const uint8_t **ret_bytes, size_t *ret_size) ECFS_REQUIRES (self->lock)
{
    if (self->hold && self->n_pulls > 1)
        return ECFS_PULL_LATER;
    self->was_later = !self->was_later;
    if (self->wakers != NULL && self->was_later) {
        ecfs_workers_push (self->wakers, wake, ecfs_stream_ref (self->stream));
        return ECFS_PULL_LATER;
    }
    if (self->moved == self->size)
        return self->abort ? ECFS_PULL_ABORT : ECFS_PULL_END;
    *ret_bytes = self->bytes + self->moved;
    *ret_size = MIN (self->chunk, self->size - self->moved);
    moved_locked (self, self->moved + *ret_size);
    return ECFS_PULL_BYTES;
}

static EcfsPull on_pull (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    Transfer *self = user;
    ecfs_mutex_lock (&self->lock);
    self->n_pulls++;
    EcfsPull answer = next_locked (self, ret_bytes, ret_size);
    ecfs_mutex_unlock (&self->lock);
    return answer;
}

static void on_release (void *user, const uint8_t *bytes, size_t size)
{
    Transfer *self = user;
    ecfs_mutex_lock (&self->lock);
    rule_locked (self, self->n_done == 0, "nothing comes after done");
    rule_locked (self, bytes == self->bytes + self->released, "bytes come back in the order of their lending");
    self->released += size;
    ecfs_mutex_unlock (&self->lock);
}

static void on_progress (void *user, uint64_t acknowledged)
{
    Transfer *self = user;
    ecfs_mutex_lock (&self->lock);
    rule_locked (self, acknowledged >= self->acknowledged && acknowledged <= self->moved,
                 "acknowledgements grow, up to what was pulled");
    self->acknowledged = acknowledged;
    ecfs_mutex_unlock (&self->lock);
}

void transfer_write (Transfer *self, const char *name, const uint8_t *bytes, size_t size)
{
    self->bytes = bytes;
    self->size = size;
    EcfsSource source = {
        .pull = on_pull, .release = on_release, .progress = on_progress, .done = on_done, .user = self};
    ecfs_mutex_lock (&self->lock);
    self->stream = ecfs_endpoint_write (self->endpoint, name, &source);
    ecfs_mutex_unlock (&self->lock);
}

static void on_data (void *user, size_t range_index, size_t filled)
{
    Transfer *self = user;
    ecfs_mutex_lock (&self->lock);
    bool next = range_index == self->range_index + 1 && self->filled == self->ranges[self->range_index].size;
    rule_locked (self, range_index == self->range_index || next, "ranges are filled in order, each wholly");
    if (next)
        self->filled = 0;
    self->range_index = range_index;
    rule_locked (self, filled > self->filled && filled - self->filled <= 64 * 1024, "told per 64 KiB, going up");
    rule_locked (self, filled <= self->ranges[range_index].size, "no range is filled beyond its end");
    moved_locked (self, self->moved + filled - self->filled);
    self->filled = filled;
    ecfs_mutex_unlock (&self->lock);
}

void transfer_read (Transfer *self, const char *name, unsigned flags)
{
    EcfsSink sink = {.data = on_data, .done = on_done, .user = self};
    ecfs_mutex_lock (&self->lock);
    self->stream = ecfs_endpoint_read (self->endpoint, name, self->ranges, self->n_ranges, flags, &sink);
    ecfs_mutex_unlock (&self->lock);
}

void transfer_let_go (Transfer *self)
{
    ecfs_mutex_lock (&self->lock);
    self->hold = false;
    ecfs_stream_wake (self->stream);
    ecfs_mutex_unlock (&self->lock);
}

void transfer_wait_moved (Transfer *self, size_t n)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    ecfs_mutex_lock (&self->lock);
    while (self->moved < n && self->n_done == 0)
        if (!ecfs_cond_wait_until (&self->cond, &self->lock, deadline_us))
            g_error ("only %zu of %zu bytes moved in time", self->moved, n);
    ecfs_mutex_unlock (&self->lock);
}

int transfer_finish (Transfer *self)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    ecfs_mutex_lock (&self->lock);
    while (self->n_done == 0)
        if (!ecfs_cond_wait_until (&self->cond, &self->lock, deadline_us))
            g_error ("a transfer was not done in time");
    ecfs_mutex_unlock (&self->lock);
    g_assert_cmpstr (self->broken_rule, ==, NULL);
    ecfs_stream_unref (self->stream);
    ecfs_cond_clear (&self->cond);
    ecfs_mutex_clear (&self->lock);
    return self->code;
}
