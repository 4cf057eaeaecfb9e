#include "measure/measure.h"

#include "util/lock.h"

#include <inttypes.h>
#include <string.h>

#define N_ROUND_TRIPS 5
#define CHUNK         (64 << 10)

/* Transfers under way together. */
typedef struct Batch {
    const MeasureFiles *files; /* immutable */
    EcfsMutex lock;
    EcfsCond ended;
    /* guarded by lock */
    unsigned n_left;
    GError *error; /* the first */
} Batch;

typedef struct Flow {
    Batch *batch;
    EcfsStream *stream;
    EcfsRange range;
    size_t pulled; /* the endpoint's thread */
} Flow;

double measure_seconds_since (int64_t begin_us)
{
    return (double) MAX (ecfs_now_us () - begin_us, 1) / 1e6;
}

static uint8_t *make_bytes (size_t size)
{
    uint8_t *bytes = g_malloc (size);
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i + sizeof state <= size; i += sizeof state) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy (bytes + i, &state, sizeof state);
    }
    return bytes;
}

MeasureFiles *measure_files_new (unsigned n, size_t size)
{
    MeasureFiles *files = g_new0 (MeasureFiles, 1);
    files->n = MIN (n, MEASURE_MAX_FILES);
    files->size = size / sizeof (uint64_t) * sizeof (uint64_t);
    files->bytes = make_bytes (files->size);
    for (unsigned i = 0; i < files->n; i++) {
        EcfsUuid uuid = ecfs_uuid_new ();
        char text[ECFS_UUID_TEXT_SIZE];
        ecfs_uuid_text (&uuid, text);
        files->names[i] = g_strdup_printf (ECFS_SCRATCH_DIRECTORY "/test-%s", text);
    }
    return files;
}

void measure_files_free (MeasureFiles *files)
{
    if (files == NULL)
        return;
    for (unsigned i = 0; i < files->n; i++)
        g_free (files->names[i]);
    g_free (files->bytes);
    g_free (files);
}

static void on_done (void *user, const GError *error)
{
    Flow *flow = user;
    Batch *batch = flow->batch;
    ecfs_mutex_lock (&batch->lock);
    if (error != NULL && batch->error == NULL)
        batch->error = g_error_copy (error);
    batch->n_left--;
    ecfs_cond_signal (&batch->ended);
    ecfs_mutex_unlock (&batch->lock);
}

static EcfsPull on_pull (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    Flow *flow = user;
    const MeasureFiles *files = flow->batch->files;
    if (flow->pulled == files->size)
        return ECFS_PULL_END;
    *ret_bytes = files->bytes + flow->pulled;
    *ret_size = MIN (CHUNK, files->size - flow->pulled);
    flow->pulled += *ret_size;
    return ECFS_PULL_BYTES;
}

static void on_release (void *user, const uint8_t *bytes, size_t size)
{
    (void) user;
    (void) bytes; /* they stay until all is over */
    (void) size;
}

static EcfsStream *begin (EcfsEndpoint *endpoint, Flow *flow, const char *name)
{
    if (flow->range.to != NULL) {
        EcfsSink sink = {.done = on_done, .user = flow};
        return ecfs_endpoint_read (endpoint, name, &flow->range, 1, 0, &sink);
    }
    EcfsSource source = {
        .pull = on_pull, .release = on_release, .done = on_done, .user = flow, .size = flow->batch->files->size};
    return ecfs_endpoint_write (endpoint, name, &source);
}

/* False: not all have ended by the deadline. */
static bool wait_for_all (Batch *batch, int64_t deadline_us)
{
    ecfs_mutex_lock (&batch->lock);
    while (batch->n_left > 0 && ecfs_cond_wait_until (&batch->ended, &batch->lock, deadline_us))
        ;
    bool all = batch->n_left == 0;
    ecfs_mutex_unlock (&batch->lock);
    return all;
}

static void cancel_all (Batch *batch, const Flow *flows)
{
    for (unsigned i = 0; i < batch->files->n; i++)
        ecfs_stream_cancel (flows[i].stream);
    while (!wait_for_all (batch, ecfs_now_us () + G_USEC_PER_SEC))
        ;
}

/* Moves all files, to @to when it is not NULL, else from their bytes. */
static bool move (EcfsEndpoint *endpoint, const MeasureFiles *files, uint8_t *to, int64_t patience_us,
                  double *ret_bytes_per_s, GError **error)
{
    Batch batch = {.files = files, .n_left = files->n};
    Flow flows[MEASURE_MAX_FILES] = {{0}};
    ecfs_mutex_init (&batch.lock);
    ecfs_cond_init (&batch.ended);
    int64_t begin_us = ecfs_now_us ();
    for (unsigned i = 0; i < files->n; i++) {
        flows[i].batch = &batch;
        if (to != NULL)
            flows[i].range = (EcfsRange){.offset = 0, .size = files->size, .to = to + i * files->size};
        flows[i].stream = begin (endpoint, &flows[i], files->names[i]);
    }
    bool in_time = wait_for_all (&batch, begin_us + patience_us);
    double seconds = measure_seconds_since (begin_us);
    if (!in_time)
        cancel_all (&batch, flows);
    for (unsigned i = 0; i < files->n; i++)
        ecfs_stream_unref (flows[i].stream);
    ecfs_cond_clear (&batch.ended);
    ecfs_mutex_clear (&batch.lock);
    *ret_bytes_per_s = (double) files->n * (double) files->size / seconds;
    if (in_time && batch.error == NULL)
        return true;
    if (in_time) {
        g_propagate_error (error, batch.error);
        return false;
    }
    g_clear_error (&batch.error);
    return ecfs_fail (error, ETIMEDOUT, "endpoint %s: %u files of %zu bytes took more than %.0f s to %s",
                      ecfs_endpoint_name (endpoint), files->n, files->size, seconds, to != NULL ? "read" : "write");
}

bool measure_write (EcfsEndpoint *endpoint, const MeasureFiles *files, int64_t patience_us, double *ret_bytes_per_s,
                    GError **error)
{
    if (move (endpoint, files, NULL, patience_us, ret_bytes_per_s, error))
        return true;
    (void) measure_remove (endpoint, files, NULL); /* the error that there is tells more */
    return false;
}

bool measure_read (EcfsEndpoint *endpoint, const MeasureFiles *files, int64_t patience_us, double *ret_bytes_per_s,
                   GError **error)
{
    g_autofree uint8_t *to = g_malloc0 (files->n * files->size);
    if (!move (endpoint, files, to, patience_us, ret_bytes_per_s, error))
        return false;
    for (unsigned i = 0; i < files->n; i++)
        if (memcmp (to + i * files->size, files->bytes, files->size) != 0)
            return ecfs_fail (error, EIO, "endpoint %s: a file was read with other bytes than were written",
                              ecfs_endpoint_name (endpoint));
    return true;
}

bool measure_round_trip (EcfsEndpoint *endpoint, const MeasureFiles *files, double *ret_seconds, GError **error)
{
    double best = G_MAXDOUBLE;
    for (unsigned i = 0; i < N_ROUND_TRIPS; i++) {
        uint64_t size = 0;
        int64_t begin_us = ecfs_now_us ();
        if (!ecfs_endpoint_size_wait (endpoint, files->names[0], &size, error))
            return false;
        if (size != files->size)
            return ecfs_fail (error, EIO, "endpoint %s: a file of %zu bytes has %" PRIu64 " bytes there",
                              ecfs_endpoint_name (endpoint), files->size, size);
        best = MIN (best, measure_seconds_since (begin_us));
    }
    *ret_seconds = best;
    return true;
}

bool measure_remove (EcfsEndpoint *endpoint, const MeasureFiles *files, GError **error)
{
    for (unsigned i = 0; i < files->n; i++) {
        g_autoptr (GError) reason = NULL;
        if (!ecfs_endpoint_remove_wait (endpoint, files->names[i], &reason) && reason->code != ENOENT)
            return ecfs_fail (error, reason->code, "%s; remove what is left in its directory scratch", reason->message);
    }
    (void) !ecfs_endpoint_remove_directory_wait (endpoint, ECFS_SCRATCH_DIRECTORY, NULL); /* others may be using it */
    return true;
}
