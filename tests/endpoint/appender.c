#include "appender.h"

#include "transfer.h"

#include <string.h>

uint8_t appender_byte (uint64_t offset)
{
    return (uint8_t) ((offset * 2654435761u >> 13) + offset / 251 + 1);
}

void appender_init (Appender *self)
{
    *self = (Appender){.chunk = 100000, .then = ECFS_PULL_LATER};
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->cond);
}

static void rule_locked (Appender *self, bool kept, const char *rule) ECFS_REQUIRES (self->lock)
{
    if (!kept)
        self->broken_rule = rule;
}

static EcfsPull on_pull (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    Appender *self = user;
    ecfs_mutex_lock (&self->lock);
    rule_locked (self, self->n_done == 0, "nothing comes after done");
    size_t size = (size_t) MIN (self->given - self->pulled, self->chunk);
    EcfsPull answer = size > 0 ? ECFS_PULL_BYTES : self->then;
    /* In memory of its own, so that a sanitizer sees who looks at it later. */
    uint8_t *bytes = size > 0 ? g_malloc (size) : NULL;
    for (size_t i = 0; i < size; i++)
        bytes[i] = appender_byte (self->pulled + i);
    self->pulled += size;
    self->waits = answer == ECFS_PULL_LATER;
    ecfs_cond_broadcast (&self->cond);
    ecfs_mutex_unlock (&self->lock);
    *ret_bytes = bytes;
    *ret_size = size;
    return answer;
}

static void on_release (void *user, const uint8_t *bytes, size_t size)
{
    Appender *self = user;
    ecfs_mutex_lock (&self->lock);
    rule_locked (self, self->n_done == 0, "nothing comes after done");
    rule_locked (self, bytes[0] == appender_byte (self->released), "bytes come back in the order of their lending");
    self->released += size;
    ecfs_mutex_unlock (&self->lock);
    g_free ((uint8_t *) bytes);
}

static void on_progress (void *user, uint64_t acknowledged)
{
    Appender *self = user;
    ecfs_mutex_lock (&self->lock);
    rule_locked (self, acknowledged > self->acknowledged && acknowledged <= self->pulled && self->n_done == 0,
                 "acknowledgements grow, up to what was pulled");
    self->acknowledged = acknowledged;
    self->n_flows++;
    ecfs_cond_broadcast (&self->cond);
    ecfs_mutex_unlock (&self->lock);
}

static void on_done (void *user, const GError *error)
{
    Appender *self = user;
    ecfs_mutex_lock (&self->lock);
    rule_locked (self, self->n_done++ == 0, "done comes once");
    rule_locked (self, self->released == self->pulled, "all lent bytes come back before done");
    rule_locked (self, error == NULL || (error->domain == ECFS_ERROR && g_str_has_prefix (error->message, "endpoint ")),
                 "errors are errnos and name the endpoint");
    rule_locked (self, error != NULL || self->acknowledged == self->given, "all bytes of a whole log are durable");
    self->code = ecfs_errno (error);
    self->text = error != NULL ? g_strdup (error->message) : NULL;
    if (error != NULL)
        g_test_message ("%s", error->message);
    ecfs_cond_broadcast (&self->cond);
    ecfs_mutex_unlock (&self->lock);
}

void appender_begin (Appender *self, EcfsEndpoint *endpoint, const char *name)
{
    EcfsSource source = {
        .pull = on_pull, .release = on_release, .progress = on_progress, .done = on_done, .user = self};
    ecfs_mutex_lock (&self->lock);
    self->stream = ecfs_endpoint_log (endpoint, name, &source);
    ecfs_mutex_unlock (&self->lock);
}

void appender_give (Appender *self, uint64_t size)
{
    ecfs_mutex_lock (&self->lock);
    self->given += size;
    self->waits = false;
    ecfs_mutex_unlock (&self->lock);
    ecfs_stream_wake (self->stream);
}

/* Waits until *@which is at least @n. False: the log has ended. */
static bool wait_for (Appender *self, const uint64_t *which, uint64_t n)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    ecfs_mutex_lock (&self->lock);
    while (*which < n && self->n_done == 0)
        if (!ecfs_cond_wait_until (&self->cond, &self->lock, deadline_us))
            g_error ("only %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT " bytes in time", *which, n);
    bool reached = *which >= n;
    ecfs_mutex_unlock (&self->lock);
    return reached;
}

bool appender_wait (Appender *self, uint64_t n)
{
    return wait_for (self, &self->acknowledged, n);
}

bool appender_append (Appender *self, uint64_t size)
{
    appender_give (self, size);
    return appender_wait (self, self->given);
}

bool appender_wait_begun (Appender *self)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    ecfs_mutex_lock (&self->lock);
    while (!self->waits && self->n_done == 0)
        if (!ecfs_cond_wait_until (&self->cond, &self->lock, deadline_us))
            g_error ("a source was not asked in time");
    bool begun = self->waits;
    ecfs_mutex_unlock (&self->lock);
    return begun;
}

uint64_t appender_durable (Appender *self)
{
    ecfs_mutex_lock (&self->lock);
    uint64_t durable = self->acknowledged;
    ecfs_mutex_unlock (&self->lock);
    return durable;
}

bool appender_is_done (Appender *self)
{
    ecfs_mutex_lock (&self->lock);
    bool done = self->n_done > 0;
    ecfs_mutex_unlock (&self->lock);
    return done;
}

void appender_end (Appender *self, EcfsPull then)
{
    ecfs_mutex_lock (&self->lock);
    self->then = then;
    ecfs_mutex_unlock (&self->lock);
    ecfs_stream_wake (self->stream);
}

int appender_finish (Appender *self)
{
    uint64_t never = 0;
    (void) wait_for (self, &never, 1);
    g_assert_cmpstr (self->broken_rule, ==, NULL);
    ecfs_stream_unref (self->stream);
    ecfs_cond_clear (&self->cond);
    ecfs_mutex_clear (&self->lock);
    g_free (self->text);
    return self->code;
}

uint64_t appender_check_file (Appender *self, const char *path, bool torn)
{
    g_autofree char *bytes = NULL;
    g_autoptr (GError) error = NULL;
    gsize size;
    uint64_t durable = self->acknowledged;
    (void) g_file_get_contents (path, &bytes, &size, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (size, >=, durable);
    g_assert_cmpuint (size, <=, self->given);
    for (uint64_t i = 0; i < size; i++)
        if ((uint8_t) bytes[i] != appender_byte (i) && !(torn && i >= durable && bytes[i] == 0))
            g_error ("%s: byte %" G_GUINT64_FORMAT " is wrong", path, i);
    return size;
}
