/* How long an append takes until it is on an endpoint's disk. */
#include "measure/measure.h"

#include "util/lock.h"

#include <string.h>

#define N_APPENDS    5
#define APPEND_BYTES ((size_t) 9 << 10)    /* a small file and what is about it */
#define SLEEP_US     (60 * G_USEC_PER_SEC) /* a stall ends sooner */

typedef struct Log {
    EcfsMutex lock;
    EcfsCond changed;
    uint8_t bytes[APPEND_BYTES]; /* the endpoint's thread, like what was pulled */
    uint64_t pulled;
    /* guarded by lock */
    uint64_t given, durable;
    bool ended, done;
    GError *error;
} Log;

static EcfsPull on_pull (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    Log *log = user;
    ecfs_mutex_lock (&log->lock);
    bool more = log->pulled < log->given, ended = log->ended;
    ecfs_mutex_unlock (&log->lock);
    if (!more)
        return ended ? ECFS_PULL_END : ECFS_PULL_LATER;
    *ret_bytes = log->bytes;
    *ret_size = APPEND_BYTES;
    log->pulled += APPEND_BYTES;
    return ECFS_PULL_BYTES;
}

static void on_release (void *user, const uint8_t *bytes, size_t size)
{
    (void) user;
    (void) bytes; /* they stay until all is over */
    (void) size;
}

static void on_progress (void *user, uint64_t durable)
{
    Log *log = user;
    ecfs_mutex_lock (&log->lock);
    log->durable = durable;
    ecfs_cond_signal (&log->changed);
    ecfs_mutex_unlock (&log->lock);
}

static void on_done (void *user, const GError *error)
{
    Log *log = user;
    ecfs_mutex_lock (&log->lock);
    log->done = true;
    log->error = error == NULL ? NULL : g_error_copy (error);
    ecfs_cond_signal (&log->changed);
    ecfs_mutex_unlock (&log->lock);
}

/* Appends once more, or ends the log, and waits until that is durable. False: the log has ended. */
static bool go_on (Log *log, EcfsStream *stream, bool ends)
{
    ecfs_mutex_lock (&log->lock);
    log->ended = ends;
    log->given += ends ? 0 : APPEND_BYTES;
    ecfs_stream_wake (stream);
    while (!log->done && (ends || log->durable < log->given))
        (void) ecfs_cond_wait_until (&log->changed, &log->lock, ecfs_now_us () + SLEEP_US);
    bool durable = log->durable == log->given;
    ecfs_mutex_unlock (&log->lock);
    return durable;
}

/* The first append waits until the log is there. */
static double shortest (Log *log, EcfsStream *stream)
{
    double best = G_MAXDOUBLE;
    bool more = go_on (log, stream, false);
    for (unsigned i = 0; i < N_APPENDS && more; i++) {
        int64_t begin_us = ecfs_now_us ();
        more = go_on (log, stream, false);
        best = MIN (best, measure_seconds_since (begin_us));
    }
    (void) go_on (log, stream, true); /* what went wrong is in the log */
    return best;
}

bool measure_append (EcfsEndpoint *endpoint, double *ret_seconds, GError **error)
{
    g_autoptr (MeasureFiles) name = measure_files_new (1, 0);
    Log log = {.bytes = {0}};
    EcfsSource source = {
        .pull = on_pull, .release = on_release, .progress = on_progress, .done = on_done, .user = &log};
    ecfs_mutex_init (&log.lock);
    ecfs_cond_init (&log.changed);
    EcfsStream *stream = ecfs_endpoint_log (endpoint, name->names[0], &source);
    double seconds = shortest (&log, stream);
    ecfs_stream_unref (stream);
    ecfs_cond_clear (&log.changed);
    ecfs_mutex_clear (&log.lock);
    if (log.error != NULL) {
        g_propagate_error (error, log.error);
        (void) measure_remove (endpoint, name, NULL); /* the error that there is tells more */
        return false;
    }
    *ret_seconds = seconds;
    return measure_remove (endpoint, name, error);
}
