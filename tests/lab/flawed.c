/*
 * Operations of the endpoint within are begun on the slot's thread; its callbacks, from its own threads, put what
 * happened into the slot's inbox, and the slot's thread tells the core. A write is pulled by the slot's thread and
 * handed on chunk by chunk.
 */
#include "flawed.h"

#include "endpoint/core/driver.h"
#include "flaws.h"

#include <string.h>

#define PREFIX "flaw+"
#define CAN    (ECFS_CAN_RENAME | ECFS_CAN_SPACE | ECFS_CAN_LIST) /* and keep logs */

typedef struct Config {
    EcfsEndpointSpec *inner;
    Flaws *flaws;
    bool keeps_logs; /* if the endpoint within can */
} Config;

typedef struct Connection {
    EcfsSlot *slot;
    Flaws *flaws;
    EcfsEndpoint *inner;
    GQueue jobs;          /* of Job; slot's thread */
    GError *lost;         /* why the endpoint within lost its own connection, which ends this; slot's thread */
    GPtrArray *last_list; /* of Event: what was listed last; slot's thread */
    EcfsMutex lock;
    GQueue inbox; /* of Event; guarded by lock */
} Connection;

typedef struct Job {
    Connection *connection;
    EcfsStream *request;
    EcfsStream *stream; /* of a read or write of the inner endpoint */
    Flaw flaw;
    int64_t begin_us; /* not before; 0: begun */
    bool begun, cancelled;
    bool asked;        /* the inner endpoint did, for bytes: a log is there */
    GPtrArray *listed; /* of Event */
    EcfsMutex lock;
    GBytes *chunk;  /* pulled and not yet handed on; guarded by lock, like all below */
    EcfsPull ahead; /* what is to be handed on when there is no chunk */
    GQueue lent;    /* of GBytes with the inner endpoint, in order */
    /* slot's thread */
    uint64_t pulled, half;
    GBytes *drawn;   /* the next chunk, … */
    int64_t feed_us; /* … which goes on no sooner */
    int failure;     /* of an append, behind which nothing goes on */
} Job;

typedef enum EventKind { EVENT_FILLED, EVENT_ACKNOWLEDGED, EVENT_HUNGRY, EVENT_LISTED, EVENT_DONE } EventKind;

typedef struct Event {
    Job *job;
    EventKind kind;
    size_t range_index;
    uint64_t value; /* bytes; of listed files their size */
    int64_t mtime_s;
    char *text;
    EcfsMarker marker;
    GError *error;
} Event;

static void post (Event event)
{
    Connection *connection = event.job->connection;
    Event *copy = g_memdup2 (&event, sizeof event);
    ecfs_mutex_lock (&connection->lock);
    g_queue_push_tail (&connection->inbox, copy);
    ecfs_mutex_unlock (&connection->lock);
    ecfs_slot_notify (connection->slot);
}

static void event_free (void *data)
{
    Event *event = data;
    g_free (event->text);
    g_clear_error (&event->error);
    g_free (event);
}

/* Callbacks of the inner endpoint */

static void on_done (void *user, const GError *error)
{
    post ((Event){.job = user, .kind = EVENT_DONE, .error = error == NULL ? NULL : g_error_copy (error)});
}

static void on_value (void *user, uint64_t value, const GError *error)
{
    post (
        (Event){.job = user, .kind = EVENT_DONE, .value = value, .error = error == NULL ? NULL : g_error_copy (error)});
}

static void on_examined (void *user, const EcfsMarker *marker, const GError *error)
{
    Event event = {.job = user, .kind = EVENT_DONE, .error = error == NULL ? NULL : g_error_copy (error)};
    if (error == NULL)
        event.marker = *marker;
    post (event);
}

static void on_listed (void *user, const EcfsListed *listed)
{
    post ((Event){.job = user,
                  .kind = EVENT_LISTED,
                  .value = listed->size,
                  .mtime_s = listed->mtime_s,
                  .text = g_strdup (listed->name)});
}

static void on_data (void *user, size_t range_index, size_t filled)
{
    post ((Event){.job = user, .kind = EVENT_FILLED, .range_index = range_index, .value = filled});
}

static EcfsPull on_pull (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    Job *job = user;
    ecfs_mutex_lock (&job->lock);
    GBytes *chunk = g_steal_pointer (&job->chunk);
    EcfsPull answer = chunk != NULL ? ECFS_PULL_BYTES : job->ahead;
    if (chunk != NULL) {
        *ret_bytes = g_bytes_get_data (chunk, ret_size);
        g_queue_push_tail (&job->lent, chunk);
    }
    ecfs_mutex_unlock (&job->lock);
    if (answer == ECFS_PULL_BYTES || answer == ECFS_PULL_LATER)
        post ((Event){.job = job, .kind = EVENT_HUNGRY});
    return answer;
}

static void on_release (void *user, const uint8_t *bytes, size_t size)
{
    Job *job = user;
    ecfs_mutex_lock (&job->lock);
    GBytes *chunk = g_queue_pop_head (&job->lent);
    ecfs_mutex_unlock (&job->lock);
    g_assert (g_bytes_get_data (chunk, NULL) == bytes && g_bytes_get_size (chunk) == size);
    g_bytes_unref (chunk);
}

static void on_progress (void *user, uint64_t acknowledged)
{
    post ((Event){.job = user, .kind = EVENT_ACKNOWLEDGED, .value = acknowledged});
}

/* Jobs: the slot's thread */

static const char *operation_of (EcfsRequestKind kind)
{
    static const char *const words[] = {
        [ECFS_REQUEST_READ] = "read", [ECFS_REQUEST_WRITE] = "write",     [ECFS_REQUEST_REMOVE] = "remove",
        [ECFS_REQUEST_SIZE] = "size", [ECFS_REQUEST_SPACE] = "space",     [ECFS_REQUEST_LIST] = "list",
        [ECFS_REQUEST_MARK] = "mark", [ECFS_REQUEST_EXAMINE] = "examine", [ECFS_REQUEST_RMDIR] = "rmdir",
        [ECFS_REQUEST_LOG] = "log",
    };
    return words[kind];
}

static void job_free (Job *job)
{
    g_queue_remove (&job->connection->jobs, job);
    ecfs_stream_unref (job->stream);
    g_ptr_array_unref (job->listed);
    g_clear_pointer (&job->chunk, g_bytes_unref);
    g_clear_pointer (&job->drawn, g_bytes_unref);
    g_queue_clear_full (&job->lent, (GDestroyNotify) g_bytes_unref);
    ecfs_mutex_clear (&job->lock);
    g_free (job);
}

static EcfsStream *give_up_request (Job *job)
{
    EcfsStream *request = g_steal_pointer (&job->request);
    request->driver_data = NULL;
    return request;
}

static void begin_inner (Job *job)
{
    EcfsEndpoint *inner = job->connection->inner;
    EcfsStream *request = job->request;
    EcfsSink sink = {.data = on_data, .done = on_done, .user = job};
    EcfsSource source = {.pull = on_pull,
                         .release = on_release,
                         .progress = on_progress,
                         .done = on_done,
                         .user = job,
                         .size = request->source.size};
    job->begun = true;
    switch (request->kind) {
    case ECFS_REQUEST_READ:
        job->stream = ecfs_endpoint_read (inner, request->name, request->ranges, request->n_ranges, 0, &sink);
        break;
    case ECFS_REQUEST_WRITE:
        job->stream = ecfs_endpoint_write (inner, request->name, &source);
        break;
    case ECFS_REQUEST_LOG:
        job->stream = ecfs_endpoint_log (inner, request->name, &source);
        break;
    case ECFS_REQUEST_REMOVE:
        ecfs_endpoint_remove (inner, request->name, on_value, job);
        break;
    case ECFS_REQUEST_RMDIR:
        ecfs_endpoint_remove_directory (inner, request->name, on_value, job);
        break;
    case ECFS_REQUEST_SIZE:
        ecfs_endpoint_size (inner, request->name, on_value, job);
        break;
    case ECFS_REQUEST_SPACE:
        ecfs_endpoint_space (inner, on_value, job);
        break;
    case ECFS_REQUEST_LIST:
        ecfs_endpoint_list (inner, request->name, on_listed, on_value, job);
        break;
    case ECFS_REQUEST_MARK:
        ecfs_endpoint_mark (inner, &request->marker, request->create, on_value, job);
        break;
    case ECFS_REQUEST_EXAMINE:
        ecfs_endpoint_examine (inner, on_examined, job);
        break;
    case ECFS_REQUEST_RENEW:
        g_assert_not_reached (); /* it takes none */
    }
}

static void job_begin (Connection *self, EcfsStream *request)
{
    Job *job = g_new0 (Job, 1);
    *job = (Job){.connection = self,
                 .request = request,
                 .flaw = flaws_next (self->flaws, operation_of (request->kind)),
                 .listed = g_ptr_array_new_with_free_func (event_free),
                 .ahead = ECFS_PULL_LATER};
    ecfs_mutex_init (&job->lock);
    g_queue_init (&job->lent);
    request->driver_data = job;
    g_queue_push_tail (&self->jobs, job);
    bool absent = request->kind == ECFS_REQUEST_READ || request->kind == ECFS_REQUEST_SIZE;
    if (job->flaw.kind == FLAW_FAIL || (job->flaw.kind == FLAW_STALE && absent)) {
        int code = job->flaw.kind == FLAW_FAIL ? (int) job->flaw.number : ENOENT;
        ecfs_request_fail (give_up_request (job), code, "%s: %s, as the rules say", operation_of (request->kind),
                           g_strerror (code));
        job_free (job);
    } else if (job->flaw.kind == FLAW_DELAY) {
        job->begin_us = ecfs_now_us () + job->flaw.number * 1000;
    } else if (job->flaw.kind != FLAW_HANG) {
        begin_inner (job);
    }
}

/* What of a write goes on: nothing behind half of it where it is to be truncated. */
static GBytes *spoil (Job *job, const uint8_t *bytes, size_t size)
{
    uint64_t from = job->pulled, half = job->half;
    if (from == 0) /* where the size is not known, of the first chunk */
        half = job->half = (job->request->source.size > 0 ? job->request->source.size : size) / 2;
    job->pulled += size;
    if (job->flaw.kind == FLAW_TRUNCATE)
        size = from >= half ? 0 : (size_t) MIN (size, half - from);
    uint8_t *copy = g_memdup2 (bytes, size);
    if (job->flaw.kind == FLAW_FLIP && half >= from && half < from + size)
        copy[half - from] ^= 1;
    return g_bytes_new_take (copy, size);
}

/* What of an append goes on, and when. */
static GBytes *spoil_append (Job *job, const uint8_t *bytes, size_t size)
{
    Flaw flaw = flaws_next (job->connection->flaws, "append");
    uint8_t *copy = g_memdup2 (bytes, size);
    if (flaw.kind == FLAW_FAIL || flaw.kind == FLAW_TRUNCATE) {
        job->failure = flaw.kind == FLAW_FAIL ? (int) flaw.number : EIO;
        size = flaw.kind == FLAW_FAIL ? 0 : size / 2;
    } else if (flaw.kind == FLAW_FLIP) {
        copy[size / 2] ^= 1;
    } else if (flaw.kind == FLAW_DELAY) {
        job->feed_us = ecfs_now_us () + flaw.number * 1000;
    } else if (flaw.kind == FLAW_HANG) {
        job->feed_us = INT64_MAX;
    }
    return g_bytes_new_take (copy, size);
}

/* BYTES: the next chunk is drawn, and may go on. */
static EcfsPull draw (Job *job)
{
    while (job->drawn == NULL) {
        const uint8_t *bytes;
        size_t size;
        EcfsPull answer = job->failure != 0 ? ECFS_PULL_ABORT : ecfs_request_pull (job->request, &bytes, &size);
        if (answer != ECFS_PULL_BYTES)
            return answer;
        bool logs = job->request->kind == ECFS_REQUEST_LOG;
        job->drawn = logs ? spoil_append (job, bytes, size) : spoil (job, bytes, size);
        if (g_bytes_get_size (job->drawn) == 0)
            g_clear_pointer (&job->drawn, g_bytes_unref);
    }
    return job->feed_us > ecfs_now_us () ? ECFS_PULL_LATER : ECFS_PULL_BYTES;
}

/* Gets the inner endpoint the next chunk; it is a copy, so what the core lent goes back at once. */
static void feed (Job *job)
{
    ecfs_mutex_lock (&job->lock);
    bool fed = job->chunk != NULL || job->ahead != ECFS_PULL_LATER;
    ecfs_mutex_unlock (&job->lock);
    EcfsPull answer = fed ? ECFS_PULL_LATER : draw (job);
    if (answer == ECFS_PULL_LATER)
        return;
    ecfs_mutex_lock (&job->lock);
    if (answer == ECFS_PULL_BYTES)
        job->chunk = g_steal_pointer (&job->drawn);
    else
        job->ahead = answer;
    ecfs_mutex_unlock (&job->lock);
    ecfs_stream_wake (job->stream);
}

static void take_filled (Job *job, const Event *event)
{
    EcfsStream *request = job->request;
    const EcfsRange *last = &request->ranges[request->n_ranges - 1];
    size_t filled = (size_t) event->value;
    if (event->range_index + 1 == request->n_ranges) {
        if (job->flaw.kind == FLAW_TRUNCATE && filled >= last->size / 2)
            return; /* its end tells */
        if (job->flaw.kind == FLAW_FLIP && filled > last->size / 2) {
            last->to[last->size / 2] ^= 1;
            job->flaw.kind = FLAW_NONE;
        }
    }
    ecfs_request_filled (request, event->range_index, filled);
}

/* Of a stale one, what was told the last time. */
static void tell_list (Job *job)
{
    Connection *self = job->connection;
    if (job->flaw.kind != FLAW_STALE) {
        GPtrArray *before = self->last_list;
        self->last_list = g_steal_pointer (&job->listed);
        job->listed = before;
    }
    for (guint i = 0; i < self->last_list->len; i++) {
        const Event *event = g_ptr_array_index (self->last_list, i);
        ecfs_request_listed (job->request, event->text, event->value, event->mtime_s);
    }
}

static void finish (Job *job, Event *event)
{
    Flaw flaw = job->flaw;
    Connection *self = job->connection;
    const Config *config = ecfs_slot_config (self->slot);
    const unsigned keeps = config->keeps_logs ? ecfs_endpoint_capabilities (self->inner) & ECFS_CAN_LOG : 0;
    ecfs_slot_capabilities (self->slot, CAN | keeps);
    if (event->error != NULL && event->error->code == ENOTCONN && self->lost == NULL)
        self->lost = g_error_copy (event->error);
    if (event->error == NULL && job->request->kind == ECFS_REQUEST_LIST)
        tell_list (job);
    EcfsStream *request = give_up_request (job);
    if (job->failure != 0)
        ecfs_request_fail (request, job->failure, "append: %s, as the rules say", g_strerror (job->failure));
    else if (event->error != NULL)
        ecfs_request_finish (request, 0, g_steal_pointer (&event->error));
    else if (request->kind == ECFS_REQUEST_READ && ecfs_request_cancelled (request))
        ecfs_request_fail (request, ECANCELED, "%s: cancelled", request->name);
    else if (request->kind == ECFS_REQUEST_READ && flaw.kind == FLAW_TRUNCATE)
        ecfs_request_fail (request, EBADMSG, "%s: ends earlier, as the rules say", request->name);
    else if (request->kind == ECFS_REQUEST_SPACE)
        ecfs_request_finish_space (request, event->value, NULL);
    else if (request->kind == ECFS_REQUEST_EXAMINE) {
        g_autofree char *text = ecfs_marker_format (&event->marker);
        ecfs_request_finish_marker (request, text, strlen (text));
    } else
        ecfs_request_finish (request, event->value, NULL);
}

static void handle (Event *event)
{
    Job *job = event->job;
    switch (event->kind) {
    case EVENT_FILLED:
        take_filled (job, event);
        break;
    case EVENT_ACKNOWLEDGED:
        if (job->flaw.kind != FLAW_TRUNCATE) /* what it lacks was acknowledged with the rest */
            ecfs_request_acknowledge (job->request, event->value);
        break;
    case EVENT_HUNGRY:
        job->asked = true; /* all that wait are fed after every round */
        break;
    case EVENT_LISTED:
        g_ptr_array_add (job->listed, g_memdup2 (event, sizeof *event));
        event->text = NULL;
        break;
    case EVENT_DONE:
        finish (job, event);
        job_free (job);
        break;
    }
}

static void handle_all (Connection *self)
{
    for (;;) {
        ecfs_mutex_lock (&self->lock);
        Event *event = g_queue_pop_head (&self->inbox);
        ecfs_mutex_unlock (&self->lock);
        if (event == NULL)
            return;
        handle (event);
        event_free (event);
    }
}

static void cancel (Job *job)
{
    if (!job->begun) {
        ecfs_request_fail (give_up_request (job), ECANCELED, "cancelled");
        job_free (job);
    } else if (!job->cancelled && job->stream != NULL) {
        job->cancelled = true;
        ecfs_stream_cancel (job->stream);
        ecfs_stream_wake (job->stream);
    }
}

/* Begins what was delayed, cancels, feeds; returns when to look again. */
static int64_t step_jobs (Connection *self)
{
    int64_t now_us = ecfs_now_us (), next_us = now_us + G_USEC_PER_SEC;
    for (GList *at = self->jobs.head, *after; at != NULL; at = after) {
        after = at->next;
        Job *job = at->data;
        if (ecfs_request_cancelled (job->request)) {
            cancel (job);
            continue;
        }
        if (!job->begun && job->begin_us != 0 && job->begin_us <= now_us)
            begin_inner (job);
        else if (!job->begun && job->begin_us != 0)
            next_us = MIN (next_us, job->begin_us);
        if (job->begun &&
            (job->request->kind == ECFS_REQUEST_WRITE || (job->request->kind == ECFS_REQUEST_LOG && job->asked)))
            feed (job);
        if (job->drawn != NULL)
            next_us = MIN (next_us, job->feed_us);
    }
    return next_us;
}

/* No callback of the inner endpoint may come any more, since the memory of the requests is not lent any more. */
static void abandon_all (Connection *self)
{
    ecfs_endpoint_stop (self->inner);
    ecfs_mutex_lock (&self->lock);
    Event *event;
    while ((event = g_queue_pop_head (&self->inbox)) != NULL)
        event_free (event);
    ecfs_mutex_unlock (&self->lock);
    while (self->jobs.head != NULL) {
        Job *job = self->jobs.head->data;
        (void) give_up_request (job);
        job_free (job);
    }
}

static bool owes (const Connection *self)
{
    for (GList *at = self->jobs.head; at != NULL; at = at->next)
        if (!((Job *) at->data)->request->idle)
            return true;
    return false;
}

static bool flawed_serve (EcfsSlot *slot, void *connection, GError **error)
{
    Connection *self = connection;
    bool owed = false;
    while (ecfs_slot_check (slot, error)) {
        EcfsStream *request;
        while ((request = ecfs_slot_take (slot)) != NULL)
            job_begin (self, request);
        handle_all (self);
        if (self->lost != NULL) {
            g_propagate_error (error, g_steal_pointer (&self->lost));
            break;
        }
        int64_t next_us = step_jobs (self);
        bool now_owed = owes (self);
        if (now_owed != owed)
            ecfs_slot_owed (slot, now_owed ? ECFS_OWES_ANSWER : ECFS_OWES_NOTHING);
        owed = now_owed;
        (void) ecfs_slot_wait (slot, next_us);
    }
    abandon_all (self);
    return false;
}

/* The driver */

static void free_config (void *data)
{
    Config *config = data;
    if (config == NULL)
        return;
    ecfs_endpoint_spec_free (config->inner);
    flaws_free (config->flaws);
    g_free (config);
}

static void *new_config (const EcfsEndpointSpec *spec, GError **error)
{
    Config *config = g_new0 (Config, 1);
    config->inner = ecfs_endpoint_spec_copy (spec);
    g_free (config->inner->url);
    config->inner->url = g_strdup (spec->url + strlen (PREFIX));
    config->flaws = flaws_new (ecfs_spec_option (spec, "flaws"));
    config->keeps_logs = g_strcmp0 (ecfs_spec_option (spec, "logs"), "no") != 0;
    (void) g_hash_table_remove (config->inner->options, "flaws");
    (void) g_hash_table_remove (config->inner->options, "logs");
    EcfsEndpoint *inner = ecfs_endpoint_new (config->inner, &(EcfsMarker){.epoch = 0}, error);
    if (inner != NULL) {
        ecfs_endpoint_free (inner);
        return config;
    }
    free_config (config);
    return NULL;
}

static void *flawed_connect (EcfsSlot *slot, bool make_root, GError **error)
{
    (void) make_root; /* a mark makes it */
    const Config *config = ecfs_slot_config (slot);
    EcfsEndpoint *inner = ecfs_endpoint_new (config->inner, &(EcfsMarker){.epoch = 0}, error);
    if (inner == NULL)
        return NULL;
    Connection *self = g_new0 (Connection, 1);
    self->slot = slot;
    self->flaws = config->flaws;
    self->inner = inner;
    ecfs_mutex_init (&self->lock);
    g_queue_init (&self->jobs);
    g_queue_init (&self->inbox);
    self->last_list = g_ptr_array_new_with_free_func (event_free);
    ecfs_endpoint_start (inner);
    ecfs_slot_capabilities (slot, CAN);
    return self;
}

static void flawed_disconnect (void *connection)
{
    Connection *self = connection;
    ecfs_endpoint_free (self->inner);
    g_clear_error (&self->lost);
    g_ptr_array_unref (self->last_list);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

static void register_scheme (EcfsDriver *driver, const char *scheme)
{
    static const char *keys[2][32];
    static unsigned n;
    g_autofree char *url = g_strdup_printf ("%s://", scheme + strlen (PREFIX));
    const char *const *inner = ecfs_endpoint_option_keys (url);
    unsigned count = 0;
    for (; inner[count] != NULL; count++)
        keys[n][count] = inner[count];
    g_assert (count + 2 < G_N_ELEMENTS (keys[0]));
    keys[n][count] = "flaws";
    keys[n][count + 1] = "logs";
    *driver = (EcfsDriver){.scheme = scheme,
                           .option_keys = keys[n++],
                           .default_connections = 1,
                           .logs = true,
                           .new_config = new_config,
                           .free_config = free_config,
                           .connect = flawed_connect,
                           .serve = flawed_serve,
                           .disconnect = flawed_disconnect};
    ecfs_endpoint_register_for_tests (driver);
}

void flawed_register (void)
{
    static EcfsDriver file, sftp;
    register_scheme (&file, PREFIX "file");
    register_scheme (&sftp, PREFIX "sftp");
}
