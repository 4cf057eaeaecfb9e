/* Requests: what the face asks, the way into the queue, what drivers tell about them, and their callbacks. */
#include "endpoint/core/core.h"

#include "util/xxh3.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

/* Bytes lent by a source. */
typedef struct Chunk {
    const uint8_t *bytes;
    size_t size;
    uint64_t end; /* offset in the file behind it */
} Chunk;

/* Making, queueing, cancelling */

EcfsStream *ecfs_request_new (EcfsEndpoint *self, EcfsRequestKind kind, const char *name)
{
    EcfsStream *request = g_new0 (EcfsStream, 1);
    request->kind = kind;
    request->name = g_strdup (name);
    request->endpoint = ecfs_endpoint_ref (self);
    request->link.data = request;
    g_queue_init (&request->lent);
    atomic_init (&request->n_refs, 1);
    atomic_init (&request->cancelled, false);
    atomic_init (&request->woken, false);
    request->in_place = atomic_load (&self->retains);
    return request;
}

EcfsStream *ecfs_stream_ref (EcfsStream *stream)
{
    atomic_fetch_add (&stream->n_refs, 1);
    return stream;
}

void ecfs_stream_unref (EcfsStream *stream)
{
    if (stream == NULL || atomic_fetch_sub (&stream->n_refs, 1) != 1)
        return;
    g_assert (g_queue_is_empty (&stream->lent));
    g_free (stream->name);
    g_free (stream->ranges);
    g_free (stream->piece_sizes);
    g_free (stream->memory);
    g_free (stream->text);
    g_clear_error (&stream->error);
    ecfs_endpoint_unref (stream->endpoint);
    g_free (stream);
}

static uint64_t range_bytes (const EcfsStream *request)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < request->n_ranges; i++)
        bytes += request->ranges[i].size;
    return bytes;
}

/* Something may be owed no longer without having come. */
static void note_dropped_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    if (self->queued_bytes == 0)
        ecfs_meter_dry (&self->read_meter, self->latency.quantiles.p5);
    if (self->n_feeding == 0 && self->lent_bytes == 0)
        ecfs_meter_dry (&self->write_meter, self->latency.quantiles.p5);
}

void ecfs_request_end_locked (EcfsEndpoint *self, EcfsStream *request, GError *error)
{
    if (request->holder != NULL) {
        g_queue_unlink (request->holder, &request->link);
        self->queued_bytes -= range_bytes (request);
        note_dropped_locked (self);
    }
    request->error = error;
    request->holder = &self->ended;
    g_queue_push_tail_link (&self->ended, &request->link);
    ecfs_cond_signal (&self->keeper_cond);
}

/* Only a read may be urgent by flag; looking at markers is how one finds out what is wrong with an endpoint. */
static bool admit_down_locked (EcfsEndpoint *self, const EcfsStream *request) ECFS_REQUIRES (self->lock)
{
    if (self->retired)
        return false;
    if (request->kind == ECFS_REQUEST_EXAMINE || request->kind == ECFS_REQUEST_MARK) {
        /* A mark is rare, and may be what makes the endpoint: it need not wait for the second to pass. */
        int64_t pause_us = request->kind == ECFS_REQUEST_MARK ? 0 : URGENT_INTERVAL_US;
        self->breaker.next_probe_us = MIN (self->breaker.next_probe_us, self->last_attempt_us + pause_us);
        ecfs_cond_signal (&self->keeper_cond);
        return true;
    }
    return request->kind == ECFS_REQUEST_READ && (request->flags & ECFS_READ_URGENT) != 0 &&
           ecfs_core_attempt_locked (self);
}

static bool stores (const EcfsStream *request)
{
    return request->kind == ECFS_REQUEST_WRITE || request->kind == ECFS_REQUEST_LOG;
}

/* Whether it would take away what stays for now, or for good. */
static bool is_forbidden (EcfsEndpoint *self, const EcfsStream *request)
{
    bool removes = request->kind == ECFS_REQUEST_REMOVE || request->kind == ECFS_REQUEST_RMDIR;
    return removes && atomic_load (&self->retains) && (self->retain_us == ECFS_RETAIN_ALWAYS || !request->aged);
}

/* Why @request cannot be queued now, or NULL. */
static GError *refusal_locked (EcfsEndpoint *self, const EcfsStream *request) ECFS_REQUIRES (self->lock)
{
    bool checked = request->name == NULL || (request->kind == ECFS_REQUEST_LIST && request->name[0] == '\0');
    bool changes =
        stores (request) || (request->kind == ECFS_REQUEST_REMOVE && !ecfs_uuid_is_nil (&self->expected.archive));
    if (!checked &&
        (!ecfs_stored_name_valid (request->name) || (changes && g_str_equal (request->name, ECFS_MARKER_NAME))))
        return g_error_new (ECFS_ERROR, EINVAL, "endpoint %s: \"%s\" cannot be the name of a stored file", self->name,
                            request->name);
    if (is_forbidden (self, request))
        return g_error_new (ECFS_ERROR, EPERM, "endpoint %s: %s: is retained there: \"delete\" in ecfs.conf says so",
                            self->name, request->name);
    if (request->kind == ECFS_REQUEST_LOG && request->in_place)
        return g_error_new (ECFS_ERROR, ENOTSUP, "endpoint %s: %s: nothing is appended to where nothing is deleted",
                            self->name, request->name);
    if (request->kind == ECFS_REQUEST_READ && request->n_ranges == 0)
        return g_error_new (ECFS_ERROR, EINVAL, "endpoint %s: %s: a read needs a range", self->name, request->name);
    if (request->kind == ECFS_REQUEST_LOG && !self->driver->logs)
        return g_error_new (ECFS_ERROR, ENOTSUP, "endpoint %s: %s: %s:// cannot append to files", self->name,
                            request->name, self->driver->scheme);
    if (request->kind == ECFS_REQUEST_RENEW &&
        (self->driver->lock_us == NULL || self->driver->lock_us (self->config) == 0))
        return g_error_new (ECFS_ERROR, ENOTSUP, "endpoint %s: %s: nothing is locked there", self->name, request->name);
    if (self->stopping)
        return g_error_new (ECFS_ERROR, ECANCELED, "endpoint %s: is being closed", self->name);
    if (ecfs_core_down (self) && !admit_down_locked (self, request))
        return g_error_new_literal (ECFS_ERROR, ENOTCONN, self->reason);
    return NULL;
}

static void enqueue_locked (EcfsEndpoint *self, EcfsStream *request) ECFS_REQUIRES (self->lock)
{
    request->holder = &self->queue;
    g_queue_push_tail_link (&self->queue, &request->link);
    ecfs_core_kick_locked (self);
}

/* Hands a request to the endpoint, which takes the caller's reference. */
static void submit (EcfsStream *request)
{
    EcfsEndpoint *self = request->endpoint;
    ecfs_mutex_lock (&self->lock);
    g_assert (self->started && !self->slots_joined);
    GError *error = refusal_locked (self, request);
    if (error != NULL) {
        ecfs_request_end_locked (self, request, error);
        ecfs_mutex_unlock (&self->lock);
        return;
    }
    request->written_before = self->write_meter.total;
    self->queued_bytes += range_bytes (request);
    EcfsSlot *slot = ecfs_core_idle_slot_locked (self, request);
    if (slot == NULL || !ecfs_mutex_try_lock (&slot->turn)) {
        enqueue_locked (self, request);
        ecfs_mutex_unlock (&self->lock);
        return;
    }
    ecfs_core_give_locked (self, slot, request);
    ecfs_mutex_unlock (&self->lock);
    if (!self->driver->begin_read (slot->connection, request))
        ecfs_slot_notify (slot);
    ecfs_mutex_unlock (&slot->turn);
}

void ecfs_stream_cancel (EcfsStream *stream)
{
    EcfsEndpoint *self = stream->endpoint;
    atomic_store (&stream->cancelled, true);
    ecfs_mutex_lock (&self->lock);
    if (stream->holder == &self->queue)
        ecfs_request_end_locked (
            self, stream, g_error_new (ECFS_ERROR, ECANCELED, "endpoint %s: %s: cancelled", self->name, stream->name));
    else if (stream->slot != NULL)
        ecfs_slot_notify (stream->slot);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_stream_wake (EcfsStream *stream)
{
    EcfsEndpoint *self = stream->endpoint;
    atomic_store (&stream->woken, true);
    ecfs_mutex_lock (&self->lock);
    if (stream->slot != NULL)
        ecfs_slot_notify (stream->slot);
    ecfs_mutex_unlock (&self->lock);
}

/* The requests of endpoint.h */

EcfsStream *ecfs_endpoint_read (EcfsEndpoint *self, const char *name, const EcfsRange *ranges, size_t n_ranges,
                                unsigned flags, const EcfsSink *sink)
{
    EcfsStream *request = ecfs_request_new (self, ECFS_REQUEST_READ, name);
    request->ranges = g_memdup2 (ranges, n_ranges * sizeof *ranges);
    request->n_ranges = n_ranges;
    request->flags = flags;
    request->sink = *sink;
    submit (ecfs_stream_ref (request));
    return request;
}

EcfsStream *ecfs_endpoint_read_pieces (EcfsEndpoint *self, const char *name, const EcfsPieces *pieces)
{
    EcfsStream *request = ecfs_request_new (self, ECFS_REQUEST_READ, name);
    EcfsRange range = {.offset = pieces->offset};
    for (size_t i = 0; i < pieces->n; i++)
        range.size += pieces->sizes[i];
    range.to = request->memory = self->driver->lends ? NULL : g_malloc (range.size);
    request->ranges = g_memdup2 (&range, sizeof range);
    request->n_ranges = pieces->n > 0 ? 1 : 0;
    request->piece_sizes = g_memdup2 (pieces->sizes, pieces->n * sizeof *pieces->sizes);
    request->n_pieces = pieces->n;
    request->piece = pieces->piece;
    request->sink = (EcfsSink){.done = pieces->done, .user = pieces->user};
    submit (ecfs_stream_ref (request));
    return request;
}

EcfsStream *ecfs_endpoint_write (EcfsEndpoint *self, const char *name, const EcfsSource *source)
{
    EcfsStream *request = ecfs_request_new (self, ECFS_REQUEST_WRITE, name);
    request->source = *source;
    submit (ecfs_stream_ref (request));
    return request;
}

EcfsStream *ecfs_endpoint_log (EcfsEndpoint *self, const char *name, const EcfsSource *source)
{
    EcfsStream *request = ecfs_request_new (self, ECFS_REQUEST_LOG, name);
    request->source = *source;
    submit (ecfs_stream_ref (request));
    return request;
}

/* A write of bytes that are there already. */
typedef struct Whole {
    const uint8_t *bytes;
    size_t size;
    bool given; /* the slot's thread */
    void (*done) (void *user, const GError *error);
    void *user;
} Whole;

static EcfsPull whole_pull (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    Whole *self = user;
    if (self->given)
        return ECFS_PULL_END;
    *ret_bytes = self->bytes;
    *ret_size = self->size;
    self->given = true;
    return ECFS_PULL_BYTES;
}

static void whole_release (void *user, const uint8_t *bytes, size_t size)
{
    (void) user; /* they are lent until done */
    (void) bytes;
    (void) size;
}

static void whole_done (void *user, const GError *error)
{
    Whole *self = user;
    self->done (self->user, error);
    g_free (self);
}

EcfsStream *ecfs_endpoint_write_bytes (EcfsEndpoint *self, const char *name, const void *bytes, size_t size,
                                       void (*done) (void *user, const GError *error), void *user)
{
    Whole *whole = g_new0 (Whole, 1);
    *whole = (Whole){.bytes = bytes, .size = size, .done = done, .user = user};
    EcfsSource source = {.pull = whole_pull, .release = whole_release, .done = whole_done, .user = whole, .size = size};
    return ecfs_endpoint_write (self, name, &source);
}

static void submit_simple (EcfsEndpoint *self, EcfsRequestKind kind, const char *name, EcfsEndpointDone done,
                           void *user)
{
    EcfsStream *request = ecfs_request_new (self, kind, name);
    request->finished = done;
    request->user = user;
    submit (request);
}

void ecfs_endpoint_remove (EcfsEndpoint *self, const char *name, EcfsEndpointDone done, void *user)
{
    submit_simple (self, ECFS_REQUEST_REMOVE, name, done, user);
}

void ecfs_endpoint_remove_aged (EcfsEndpoint *self, const char *name, EcfsEndpointDone done, void *user)
{
    EcfsStream *request = ecfs_request_new (self, ECFS_REQUEST_REMOVE, name);
    request->aged = true;
    request->finished = done;
    request->user = user;
    submit (request);
}

void ecfs_endpoint_remove_directory (EcfsEndpoint *self, const char *name, EcfsEndpointDone done, void *user)
{
    submit_simple (self, ECFS_REQUEST_RMDIR, name, done, user);
}

void ecfs_endpoint_renew (EcfsEndpoint *self, const char *name, EcfsEndpointDone done, void *user)
{
    submit_simple (self, ECFS_REQUEST_RENEW, name, done, user);
}

void ecfs_endpoint_size (EcfsEndpoint *self, const char *name, EcfsEndpointDone done, void *user)
{
    submit_simple (self, ECFS_REQUEST_SIZE, name, done, user);
}

void ecfs_endpoint_space (EcfsEndpoint *self, EcfsEndpointDone done, void *user)
{
    submit_simple (self, ECFS_REQUEST_SPACE, NULL, done, user);
}

void ecfs_endpoint_list (EcfsEndpoint *self, const char *name, void (*each) (void *user, const EcfsListed *listed),
                         EcfsEndpointDone done, void *user)
{
    EcfsStream *request = ecfs_request_new (self, ECFS_REQUEST_LIST, name);
    request->each = each;
    request->finished = done;
    request->user = user;
    submit (request);
}

void ecfs_request_mark (EcfsEndpoint *self, const EcfsMarker *marker, bool create, EcfsEndpointDone done, void *user)
{
    EcfsStream *request = ecfs_request_new (self, ECFS_REQUEST_MARK, NULL);
    request->marker = *marker;
    request->text = ecfs_marker_format (marker);
    request->create = create;
    request->finished = done;
    request->user = user;
    submit (request);
}

void ecfs_request_examine (EcfsEndpoint *self, void (*done) (void *user, const EcfsMarker *marker, const GError *error),
                           void *user)
{
    EcfsStream *request = ecfs_request_new (self, ECFS_REQUEST_EXAMINE, NULL);
    request->examined = done;
    request->user = user;
    submit (request);
}

void ecfs_endpoint_mark (EcfsEndpoint *self, const EcfsMarker *marker, bool create, EcfsEndpointDone done, void *user)
{
    if (atomic_load (&self->retains))
        ecfs_marks_add (self, marker, create, done, user);
    else
        ecfs_request_mark (self, marker, create, done, user);
}

void ecfs_endpoint_examine (EcfsEndpoint *self,
                            void (*done) (void *user, const EcfsMarker *marker, const GError *error), void *user)
{
    if (ecfs_core_has_marks (self))
        ecfs_marks_examine (self, done, user);
    else
        ecfs_request_examine (self, done, user);
}

/* What drivers tell */

static void note_round_trip_locked (EcfsEndpoint *self, EcfsStream *request, int64_t now_us) ECFS_REQUIRES (self->lock)
{
    if (!request->alone)
        return;
    request->alone = false;
    ecfs_distribution_note (&self->latency, (double) (now_us - request->taken_us), 1, now_us);
}

static void note_delivered (EcfsStream *request, uint64_t delivered)
{
    EcfsEndpoint *self = request->endpoint;
    uint64_t added = delivered - request->delivered;
    request->delivered = delivered;
    int64_t now_us = ecfs_now_us ();
    ecfs_clock_moved (&request->slot->clock, added, now_us);
    ecfs_mutex_lock (&self->lock);
    note_round_trip_locked (self, request, now_us);
    self->queued_bytes -= added;
    Progress progress = {.owed = (double) self->queued_bytes,
                         .delay_us = self->latency.quantiles.p5,
                         .shared = self->write_meter.n_busy > 0,
                         .now_us = now_us};
    ecfs_meter_add (&self->read_meter, added, &progress);
    ecfs_core_prove_locked (self, ECFS_CREDIT_MOVED, now_us);
    ecfs_mutex_unlock (&self->lock);
}

static void lend (EcfsStream *request, const uint8_t *bytes)
{
    size_t index = request->next_piece++;
    request->lent_pieces += request->piece_sizes[index];
    if (!ecfs_request_cancelled (request))
        request->piece (request->sink.user, index, bytes);
}

void ecfs_request_piece (EcfsStream *request, const uint8_t *bytes)
{
    note_delivered (request, request->delivered + request->piece_sizes[request->next_piece]);
    lend (request, bytes);
}

void ecfs_request_filled (EcfsStream *request, size_t range_index, size_t filled)
{
    uint64_t delivered = filled;
    for (size_t i = 0; i < range_index; i++)
        delivered += request->ranges[i].size;
    note_delivered (request, delivered);
    while (request->next_piece < request->n_pieces &&
           request->lent_pieces + request->piece_sizes[request->next_piece] <= delivered)
        lend (request, request->memory + request->lent_pieces);
    if (request->sink.data != NULL && !ecfs_request_cancelled (request))
        request->sink.data (request->sink.user, range_index, filled);
}

static void set_idle_locked (EcfsEndpoint *self, EcfsStream *request, bool idle) ECFS_REQUIRES (self->lock)
{
    if (request->kind == ECFS_REQUEST_LOG)
        request->slot->n_idle_logs += (unsigned) idle - (unsigned) request->idle;
    request->idle = idle;
    if (idle && self->breaker.state == BREAKER_TRIAL)
        ecfs_core_kick_locked (self); /* it is another's turn */
}

/* Time in which the source has nothing is not time in which the endpoint is slow. */
static void note_write_pull_locked (EcfsEndpoint *self, EcfsStream *request, EcfsPull answer, size_t size)
    ECFS_REQUIRES (self->lock)
{
    bool parked = answer == ECFS_PULL_LATER, feeding = answer == ECFS_PULL_BYTES;
    self->lent_bytes += size;
    self->n_feeding += (unsigned) feeding - (unsigned) request->feeding;
    if (parked && !request->parked)
        ecfs_meter_end (&self->write_meter, self->latency.quantiles.p5, ecfs_now_us ());
    else if (request->parked && !parked)
        ecfs_meter_begin (&self->write_meter, ecfs_now_us ());
    request->feeding = feeding;
}

/* What the source answered. */
static void note_pull (EcfsStream *request, EcfsPull answer, size_t size)
{
    EcfsEndpoint *self = request->endpoint;
    bool parked = answer == ECFS_PULL_LATER;
    ecfs_mutex_lock (&self->lock);
    if (request->kind == ECFS_REQUEST_LOG)
        self->logged_bytes += size;
    else
        note_write_pull_locked (self, request, answer, size);
    request->parked = parked;
    set_idle_locked (self, request,
                     parked && (request->kind != ECFS_REQUEST_LOG || request->acknowledged == request->pulled));
    ecfs_mutex_unlock (&self->lock);
}

EcfsPull ecfs_request_pull (EcfsStream *request, const uint8_t **ret_bytes, size_t *ret_size)
{
    if (ecfs_request_cancelled (request))
        return ECFS_PULL_ABORT;
    /* The flag is reset before the source is asked, so a wake in between is not lost. */
    if (!atomic_exchange (&request->woken, false) && request->parked)
        return ECFS_PULL_LATER;
    const uint8_t *bytes = NULL;
    size_t size = 0;
    EcfsPull answer = request->source.pull (request->source.user, &bytes, &size);
    note_pull (request, answer, answer == ECFS_PULL_BYTES ? size : 0);
    if (answer != ECFS_PULL_BYTES)
        return answer;
    request->pulled += size;
    Chunk *chunk = g_new (Chunk, 1);
    *chunk = (Chunk){.bytes = bytes, .size = size, .end = request->pulled};
    g_queue_push_tail (&request->lent, chunk);
    *ret_bytes = bytes;
    *ret_size = size;
    return ECFS_PULL_BYTES;
}

static void release_up_to (EcfsStream *request, uint64_t end)
{
    for (;;) {
        Chunk *chunk = g_queue_peek_head (&request->lent);
        if (chunk == NULL || chunk->end > end)
            return;
        (void) g_queue_pop_head (&request->lent);
        request->source.release (request->source.user, chunk->bytes, chunk->size);
        g_free (chunk);
    }
}

void ecfs_request_kept (EcfsStream *request, uint64_t kept)
{
    g_assert (kept <= request->pulled);
    release_up_to (request, kept);
}

static void note_taken_locked (EcfsEndpoint *self, uint64_t added, int64_t now_us) ECFS_REQUIRES (self->lock)
{
    self->lent_bytes -= added;
    Progress progress = {.owed = self->n_feeding > 0 ? ECFS_OWED_PLENTY : (double) self->lent_bytes,
                         .delay_us = self->latency.quantiles.p5,
                         .shared = self->read_meter.n_busy > 0,
                         .now_us = now_us};
    ecfs_meter_add (&self->write_meter, added, &progress);
}

/* How fast a line is does not follow from the time that a disk takes for a little. */
static void note_durable_locked (EcfsEndpoint *self, EcfsStream *request, uint64_t added) ECFS_REQUIRES (self->lock)
{
    self->logged_bytes -= added;
    self->write_meter.total += added;
    if (added > 0)
        ecfs_core_note_stored_locked (self, added);
    set_idle_locked (self, request, request->parked && request->acknowledged == request->pulled);
}

void ecfs_request_acknowledge (EcfsStream *request, uint64_t acknowledged)
{
    EcfsEndpoint *self = request->endpoint;
    g_assert (acknowledged <= request->pulled && acknowledged >= request->acknowledged);
    uint64_t added = acknowledged - request->acknowledged;
    request->acknowledged = acknowledged;
    int64_t now_us = ecfs_now_us ();
    ecfs_clock_moved (&request->slot->clock, added, now_us);
    ecfs_mutex_lock (&self->lock);
    if (request->kind == ECFS_REQUEST_LOG)
        note_durable_locked (self, request, added);
    else
        note_taken_locked (self, added, now_us);
    ecfs_core_prove_locked (self, ECFS_CREDIT_MOVED, now_us);
    ecfs_mutex_unlock (&self->lock);
    release_up_to (request, acknowledged);
    if (request->source.progress != NULL)
        request->source.progress (request->source.user, acknowledged);
}

/* Whether @name is the file or directory @parent or below it; "" is all. */
static bool is_below (const char *name, const char *parent)
{
    size_t size = strlen (parent);
    return size == 0 || (strncmp (name, parent, size) == 0 && (name[size] == '/' || name[size] == '\0'));
}

void ecfs_request_listed (EcfsStream *request, const char *name, uint64_t size, int64_t mtime_s)
{
    if (!ecfs_stored_name_valid (name) || !is_below (name, request->name) || g_str_equal (name, ECFS_MARKER_NAME))
        return;
    ecfs_clock_restart (&request->slot->clock, ecfs_now_us ());
    EcfsListed listed = {.name = name, .size = size, .mtime_s = mtime_s};
    if (request->each != NULL)
        request->each (request->user, &listed);
}

void ecfs_request_deliver (EcfsStream *request, uint64_t value, const GError *error)
{
    switch (request->kind) {
    case ECFS_REQUEST_READ:
        request->sink.done (request->sink.user, error);
        break;
    case ECFS_REQUEST_WRITE:
    case ECFS_REQUEST_LOG:
        request->source.done (request->source.user, error);
        break;
    case ECFS_REQUEST_EXAMINE:
        request->examined (request->user, &request->marker, error);
        break;
    case ECFS_REQUEST_REMOVE:
    case ECFS_REQUEST_RMDIR:
    case ECFS_REQUEST_SIZE:
    case ECFS_REQUEST_SPACE:
    case ECFS_REQUEST_LIST:
    case ECFS_REQUEST_MARK:
    case ECFS_REQUEST_RENEW:
        if (request->finished != NULL)
            request->finished (request->user, value, error);
        break;
    }
    ecfs_stream_unref (request);
}

/* A new marker is what is expected from now on, and makes a connection good that had met a wrong one. */
static void adopt_locked (EcfsEndpoint *self, EcfsSlot *slot, const EcfsMarker *marker) ECFS_REQUIRES (self->lock)
{
    self->expected = *marker;
    if (slot->trust != TRUST_MARKERS)
        return;
    slot->trust = TRUST_FULL;
    g_clear_error (&slot->broken);
    ecfs_core_up_locked (self);
}

/* What it has under way will not come any more. */
static void note_ended_locked (EcfsEndpoint *self, EcfsStream *request, int64_t now_us) ECFS_REQUIRES (self->lock)
{
    uint64_t left = request->pulled - request->acknowledged;
    self->queued_bytes -= range_bytes (request) - request->delivered;
    if (request->kind == ECFS_REQUEST_LOG) {
        self->logged_bytes -= left;
        request->slot->n_idle_logs -= (unsigned) request->idle;
        return;
    }
    self->lent_bytes -= left;
    self->n_feeding -= (unsigned) request->feeding;
    request->feeding = false;
    note_dropped_locked (self);
    if (request->kind == ECFS_REQUEST_READ)
        ecfs_meter_end (&self->read_meter, self->latency.quantiles.p5, now_us);
    if (request->kind == ECFS_REQUEST_WRITE && !request->parked)
        ecfs_meter_end (&self->write_meter, self->latency.quantiles.p5, now_us);
}

static EcfsRequestClass class_of (EcfsRequestKind kind)
{
    static const EcfsRequestClass classes[] = {
        [ECFS_REQUEST_READ] = ECFS_CLASS_READ,    [ECFS_REQUEST_WRITE] = ECFS_CLASS_WRITE,
        [ECFS_REQUEST_LOG] = ECFS_CLASS_APPEND,   [ECFS_REQUEST_REMOVE] = ECFS_CLASS_REMOVE,
        [ECFS_REQUEST_RMDIR] = ECFS_CLASS_REMOVE, [ECFS_REQUEST_LIST] = ECFS_CLASS_LIST,
        [ECFS_REQUEST_SIZE] = ECFS_CLASS_LOOK,    [ECFS_REQUEST_SPACE] = ECFS_CLASS_LOOK,
        [ECFS_REQUEST_EXAMINE] = ECFS_CLASS_LOOK, [ECFS_REQUEST_MARK] = ECFS_CLASS_MARK,
        [ECFS_REQUEST_RENEW] = ECFS_CLASS_LOOK,
    };
    return classes[kind];
}

static void count_locked (EcfsEndpoint *self, const EcfsStream *request, const GError *error) ECFS_REQUIRES (self->lock)
{
    EcfsRequestClass class = class_of (request->kind);
    int code = ecfs_errno (error);
    self->counts.ended[class]++;
    self->counts.failed[class] += error != NULL && code != ECANCELED && code != ENOENT;
}

static void detach_locked (EcfsEndpoint *self, EcfsStream *request, const GError *error) ECFS_REQUIRES (self->lock)
{
    bool success = error == NULL;
    EcfsSlot *slot = request->slot;
    int64_t now_us = ecfs_now_us ();
    count_locked (self, request, error);
    note_ended_locked (self, request, now_us);
    g_queue_unlink (&slot->active, &request->link);
    request->holder = NULL;
    request->slot = NULL;
    if (success && (request->kind == ECFS_REQUEST_SIZE || request->kind == ECFS_REQUEST_SPACE ||
                    request->kind == ECFS_REQUEST_EXAMINE))
        note_round_trip_locked (self, request, now_us);
    if (request->kind == ECFS_REQUEST_MARK && success)
        adopt_locked (self, slot, &request->marker);
    bool trial = self->breaker.state == BREAKER_TRIAL;
    if (success && request->kind != ECFS_REQUEST_EXAMINE)
        ecfs_core_prove_locked (self, ECFS_CREDIT_SERVED, now_us);
    if (trial)
        ecfs_core_kick_locked (self);
}

void ecfs_request_finish (EcfsStream *request, uint64_t value, GError *error)
{
    EcfsEndpoint *self = request->endpoint;
    g_assert (request->driver_data == NULL);
    ecfs_text_clean_error (error, ECFS_PROBLEM_MAX);
    if (error != NULL)
        g_prefix_error (&error, "endpoint %s: ", self->name);
    release_up_to (request, UINT64_MAX);
    ecfs_mutex_lock (&self->lock);
    if (request->kind == ECFS_REQUEST_WRITE || (request->kind == ECFS_REQUEST_LOG && error != NULL))
        ecfs_core_note_write_locked (self, request, error);
    if (request->kind == ECFS_REQUEST_SPACE || (stores (request) && ecfs_errno (error) == ENOENT))
        ecfs_core_doubt_locked (self, request->slot);
    detach_locked (self, request, error);
    ecfs_mutex_unlock (&self->lock);
    ecfs_request_deliver (request, value, error);
    g_clear_error (&error);
}

/* What counts of it; false: no figure. */
static bool note_space (EcfsStream *request, const EcfsEndpointSpace *space, uint64_t *ret_free)
{
    EcfsEndpoint *self = request->endpoint;
    ecfs_mutex_lock (&self->lock);
    ecfs_core_note_space_locked (self, request, space);
    *ret_free = ecfs_core_free_locked (self);
    bool told = self->space.told;
    ecfs_mutex_unlock (&self->lock);
    return told;
}

void ecfs_request_finish_space (EcfsStream *request, uint64_t free_bytes, const char *device)
{
    uint64_t counts;
    EcfsEndpointSpace space = {.asked = true, .told = true, .free_bytes = free_bytes};
    if (device != NULL)
        space.device = MAX (ecfs_xxh3_64 (device, strlen (device)), 1); /* 0 means none */
    bool told = note_space (request, &space, &counts);
    ecfs_request_finish (request, told ? counts : free_bytes, NULL);
}

void ecfs_request_finish_marker (EcfsStream *request, const char *text, size_t size)
{
    GError *error = NULL;
    (void) ecfs_marker_parse (text, size, &request->marker, &error);
    ecfs_request_finish (request, 0, error);
}

void ecfs_request_fail_marked (EcfsStream *request, const char *text, size_t size)
{
    EcfsMarker marker;
    if (!ecfs_marker_parse (text, size, &marker, NULL)) {
        ecfs_request_fail (request, EEXIST, "has a file %s already, which is not from this version of ecfs",
                           ECFS_MARKER_NAME);
        return;
    }
    char archive[ECFS_UUID_TEXT_SIZE], endpoint[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&marker.archive, archive);
    ecfs_uuid_text (&marker.endpoint, endpoint);
    ecfs_request_fail (request, EEXIST, "already belongs to archive %s as endpoint %s (epoch %" PRIu32 ")", archive,
                       endpoint, marker.epoch);
}

void ecfs_request_fail (EcfsStream *request, int code, const char *format, ...)
{
    va_list args;
    va_start (args, format);
    GError *error = g_error_new_valist (ECFS_ERROR, code, format, args);
    va_end (args);
    uint64_t free_bytes = 0;
    /* What cannot be had now stays as it was. */
    if (request->kind == ECFS_REQUEST_SPACE && code == ENOTSUP &&
        note_space (request, &(EcfsEndpointSpace){.asked = true}, &free_bytes))
        g_clear_error (&error);
    ecfs_request_finish (request, free_bytes, error);
}
