#include "commit/log_priv.h"

#include "archive/common.h"
#include "key/cipher.h"
#include "util/io.h"

#include <unistd.h>

#define LOOK_US       20000 /* how often copies that are awaited are looked at */
#define LATE_LOOKS    2     /* in a row, as of a writer */
#define LATE_US       (10 * G_USEC_PER_SEC)
#define STUCK_US      200000
#define AVOIDED_US    (60 * G_USEC_PER_SEC) /* an endpoint whose copy was cut */
#define SEGMENT_BYTES (1u << 20)

EcfsLog *ecfs_log_ref (EcfsLog *self)
{
    atomic_fetch_add (&self->references, 1);
    return self;
}

void ecfs_log_unref (EcfsLog *self)
{
    if (self == NULL || atomic_fetch_sub (&self->references, 1) > 1)
        return;
    for (unsigned i = 0; i < self->n; i++) {
        g_queue_clear_full (&self->copies[i].chunks, (GDestroyNotify) g_byte_array_unref);
        ecfs_stream_unref (self->copies[i].stream);
    }
    if (self->content_fd >= 0)
        (void) close (self->content_fd);
    g_free (self->copies);
    g_array_unref (self->given_up);
    ecfs_object_row_free (self->row);
    ecfs_seal_keys_unref (self->keys);
    ecfs_cond_clear (&self->moved);
    ecfs_mutex_clear (&self->lock);
    ecfs_mutex_clear (&self->sending);
    ecfs_mutex_clear (&self->closing);
    g_free (self);
}

/* Copies */

static uint64_t stripe_bytes (const EcfsLog *self, uint64_t content_bytes)
{
    return ecfs_log_stripe_bytes (self->row->header_bytes, &self->row->seal, content_bytes);
}

/* Content that is in the first @bytes of a stripe. */
static uint64_t content_in (const EcfsLog *self, uint64_t bytes)
{
    uint64_t step = stripe_bytes (self, ECFS_LOG_BLOCK_BYTES) - self->row->header_bytes;
    return bytes < self->row->header_bytes ? 0 : (bytes - self->row->header_bytes) / step * ECFS_LOG_BLOCK_BYTES;
}

void ecfs_log_end_locked (EcfsLog *self) ECFS_REQUIRES (self->lock)
{
    self->has_ended = true;
    ecfs_cond_broadcast (&self->moved);
    for (unsigned i = 0; i < self->n; i++) {
        const LogCopy *copy = &self->copies[i];
        if (copy->stream != NULL && !copy->is_done && !copy->is_cut) /* a first may fail before others are begun */
            ecfs_stream_wake (copy->stream);
    }
}

/* It has what it had at that moment: whatever its endpoint says later comes too late. */
static void cut_locked (EcfsLog *self, LogCopy *copy) ECFS_REQUIRES (self->lock)
{
    if (copy->is_cut)
        return;
    copy->is_cut = true;
    copy->good = content_in (self, copy->durable);
    if (!copy->is_done)
        ecfs_stream_cancel (copy->stream);
    ecfs_log_end_locked (self);
}

static EcfsPull pull (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    LogCopy *copy = user;
    EcfsLog *log = copy->log;
    EcfsPull answer = ECFS_PULL_BYTES;
    ecfs_mutex_lock (&log->lock);
    if (copy->is_cut) {
        answer = ECFS_PULL_ABORT;
    } else if (copy->unsent == NULL) {
        answer = log->has_ended ? ECFS_PULL_END : ECFS_PULL_LATER;
    } else {
        const GByteArray *chunk = copy->unsent->data;
        *ret_bytes = chunk->data;
        *ret_size = chunk->len;
        copy->unsent = copy->unsent->next;
    }
    ecfs_mutex_unlock (&log->lock);
    return answer;
}

static void release (void *user, const uint8_t *bytes, size_t size)
{
    LogCopy *copy = user;
    (void) bytes; /* the first that are lent, as a whole */
    (void) size;
    ecfs_mutex_lock (&copy->log->lock);
    g_byte_array_unref (g_queue_pop_head (&copy->chunks));
    ecfs_mutex_unlock (&copy->log->lock);
}

static void progress (void *user, uint64_t acknowledged)
{
    LogCopy *copy = user;
    ecfs_mutex_lock (&copy->log->lock);
    copy->durable = acknowledged;
    ecfs_cond_broadcast (&copy->log->moved);
    ecfs_mutex_unlock (&copy->log->lock);
}

static void avoid (EcfsLogs *logs, size_t position)
{
    ecfs_mutex_lock (&logs->lock);
    logs->avoided_us[position] = ecfs_now_us () + AVOIDED_US;
    ecfs_mutex_unlock (&logs->lock);
}

static void copy_done (void *user, const GError *error)
{
    LogCopy *copy = user;
    EcfsLog *log = copy->log;
    if (error != NULL && !g_error_matches (error, ECFS_ERROR, ECANCELED)) {
        g_info ("a log ends: %s", error->message);
        avoid (log->logs, copy->position);
    }
    ecfs_mutex_lock (&log->lock);
    copy->is_done = true;
    if (error != NULL)
        cut_locked (log, copy);
    ecfs_mutex_unlock (&log->lock);
    ecfs_log_unref (log);
}

/* Sending */

static EcfsStripeHeader make_header (const EcfsLog *self, unsigned index)
{
    EcfsStripeHeader header = ecfs_attempt_header (self->logs->archive, self->row, self->codec);
    header.instance = self->copies[index].instance;
    header.index = (uint16_t) index;
    return header;
}

EcfsLog *ecfs_log_new (EcfsLogs *logs, const EcfsCodec *codec, const size_t *found)
{
    EcfsLog *self = g_new0 (EcfsLog, 1);
    atomic_init (&self->references, 1);
    ecfs_mutex_init (&self->closing);
    ecfs_mutex_init (&self->sending);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->moved);
    self->logs = logs;
    self->codec = codec;
    self->n = ecfs_codec_n (codec);
    self->copies = g_new0 (LogCopy, self->n);
    self->given_up = g_array_new (FALSE, FALSE, sizeof (uint64_t));
    self->begun_us = ecfs_now_us ();
    self->content_fd = -1;
    if (ecfs_archive_leads (logs->archive)) /* else another packs it, and it is read then, as where this fails */
        self->content_fd = ecfs_nameless_file (ecfs_archive_directory (logs->archive), NULL);
    self->row = ecfs_object_row_new ();
    self->row->uuid = ecfs_archive_object_uuid (logs->archive);
    self->row->code = g_strdup (ecfs_codec_identity (codec));
    self->row->segment_bytes = SEGMENT_BYTES;
    self->row->block_bytes = ECFS_LOG_BLOCK_BYTES;
    self->row->seal = ecfs_seal_new (ecfs_archive_keys (logs->archive));
    for (unsigned i = 0; i < self->n; i++) {
        uint64_t instance;
        ecfs_random (&instance, sizeof instance);
        self->copies[i] = (LogCopy){.log = self, .index = i, .position = found[i], .instance = instance >> 1};
        EcfsStripeRow stripe = {.index = (uint16_t) i,
                                .instance = instance >> 1,
                                .endpoint = ecfs_archive_endpoint (logs->archive, found[i])->id};
        g_array_append_val (self->row->stripes, stripe);
    }
    EcfsStripeHeader header = make_header (self, 0);
    g_byte_array_unref (ecfs_stripe_header_format (&header, NULL)); /* for header_bytes */
    self->row->header_bytes = header.header_bytes;
    return self;
}

static void push_locked (LogCopy *copy, GByteArray *chunk) ECFS_REQUIRES (copy->log->lock)
{
    g_queue_push_tail (&copy->chunks, chunk);
    if (copy->unsent == NULL)
        copy->unsent = copy->chunks.tail;
}

void ecfs_log_start (EcfsLog *self)
{
    for (unsigned i = 0; i < self->n; i++) {
        LogCopy *copy = &self->copies[i];
        char name[ECFS_STRIPE_NAME_SIZE];
        EcfsStripeHeader header = make_header (self, i);
        const EcfsSource source = {.pull = pull,
                                   .release = release,
                                   .progress = progress,
                                   .done = copy_done,
                                   .user = copy,
                                   .size = ECFS_LOG_MAX_BYTES};
        ecfs_stripe_name (&self->row->uuid, (uint16_t) i, copy->instance, name);
        (void) ecfs_log_ref (self);
        ecfs_mutex_lock (&copy->log->lock);
        push_locked (copy, ecfs_stripe_header_format (&header, self->keys));
        copy->stream =
            ecfs_endpoint_log (ecfs_archive_endpoint (self->logs->archive, copy->position)->endpoint, name, &source);
        ecfs_mutex_unlock (&copy->log->lock);
    }
}

void ecfs_log_send (EcfsLog *self, GByteArray *bytes, uint64_t from)
{
    if (self->keys != NULL) {
        EcfsCipher *cipher = ecfs_cipher_new (self->keys->content, from);
        ecfs_cipher_next (cipher, bytes->data, bytes->len);
        ecfs_cipher_free (cipher);
    }
    for (unsigned i = 0; i < self->n; i++) {
        LogCopy *copy = &self->copies[i];
        GByteArray *chunk = ecfs_log_blocks (&self->tagger, i, from, bytes->data, bytes->len);
        ecfs_mutex_lock (&copy->log->lock);
        push_locked (copy, chunk);
        ecfs_mutex_unlock (&copy->log->lock);
        ecfs_stream_wake (copy->stream);
    }
}

/* Waiting */

static bool hangs (const EcfsLog *self, const LogCopy *copy)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (ecfs_archive_endpoint (self->logs->archive, copy->position)->endpoint, &health);
    bool stuck = health.suspect || (health.down && ecfs_now_us () - health.down_since_us > STUCK_US);
    ecfs_endpoint_health_clear (&health);
    return stuck;
}

static bool has_locked (const EcfsLog *self, const LogCopy *copy, uint64_t end) ECFS_REQUIRES (self->lock)
{
    return copy->is_cut ? copy->good >= end : copy->durable >= stripe_bytes (self, end);
}

static void look_locked (const EcfsLog *self, uint64_t end, LogSurvey *ret_survey) ECFS_REQUIRES (self->lock)
{
    *ret_survey = (LogSurvey){.n_stored = 0};
    for (unsigned i = 0; i < self->n; i++) {
        const LogCopy *copy = &self->copies[i];
        ret_survey->stored[i] = has_locked (self, copy, end);
        ret_survey->running[i] = !ret_survey->stored[i] && !copy->is_cut && !copy->is_done;
        ret_survey->n_stored += ret_survey->stored[i];
        ret_survey->n_running += ret_survey->running[i];
    }
}

static bool only_late_left (const EcfsLog *self, const LogSurvey *survey, int64_t settled_us, int64_t took_us)
{
    for (unsigned i = 0; i < self->n; i++)
        if (survey->running[i] && !hangs (self, &self->copies[i]) &&
            (settled_us == 0 || ecfs_now_us () - settled_us <= MAX (LATE_US, took_us)))
            return false;
    return survey->n_running > 0;
}

static void cut_running (EcfsLog *self, const LogSurvey *survey)
{
    ecfs_mutex_lock (&self->lock);
    for (unsigned i = 0; i < self->n; i++) {
        LogCopy *copy = &self->copies[i];
        if (survey->running[i] && !copy->is_cut) {
            g_info ("a log ends: endpoint %s is late",
                    ecfs_archive_endpoint (self->logs->archive, copy->position)->name);
            cut_locked (self, copy);
        }
    }
    ecfs_mutex_unlock (&self->lock);
    for (unsigned i = 0; i < self->n; i++)
        if (survey->running[i])
            avoid (self->logs, self->copies[i].position);
}

bool ecfs_log_await (EcfsLog *self, const EcfsLogOrder *order, uint64_t end, LogSurvey *ret_survey, GError **error)
{
    const int64_t begun_us = ecfs_now_us ();
    int64_t settled_us = 0; /* when a copy was stored last */
    unsigned n_late_looks = 0, n_stored = 0;
    for (;;) {
        ecfs_mutex_lock (&self->lock);
        look_locked (self, end, ret_survey);
        if (ret_survey->n_running > 0) {
            (void) ecfs_cond_wait_until (&self->moved, &self->lock, ecfs_now_us () + LOOK_US); /* either way it looks */
            look_locked (self, end, ret_survey);
        }
        ecfs_mutex_unlock (&self->lock);
        if (ret_survey->n_running == 0)
            return true;
        if (order->cancelled (order->user))
            return ecfs_fail (error, ECANCELED, "cancelled");
        if (ret_survey->n_stored > n_stored)
            settled_us = ecfs_now_us ();
        n_stored = ret_survey->n_stored;
        bool late = only_late_left (self, ret_survey, settled_us, settled_us - begun_us);
        n_late_looks = late ? n_late_looks + 1 : 0;
        if (n_late_looks >= LATE_LOOKS)
            cut_running (self, ret_survey);
    }
}
