/* Connections: the threads that make and serve them, and the keeper that watches them. core.h has the states. */
#include "endpoint/core/core.h"

#include <unistd.h>

/* Waits without a deadline of their own look again after this. */
#define LONG_WAIT_US (INT64_C (3600) * G_USEC_PER_SEC)
#define LONG_LINE_US (20 * 1000)          /* above this round trip several connections have several windows */
#define MAX_ATTEMPTS 3                    /* to connect on such a line, at a time */
#define ENDING_US    (2 * G_USEC_PER_SEC) /* for threads to end their connections, before they count as stuck */
/* A thread that wakes up so much too late was kept from running, and what it missed may be waiting to be read. */
#define OVERSLEPT_US (G_USEC_PER_SEC / 2)

bool ecfs_core_suspect_locked (EcfsEndpoint *self)
{
    int64_t now_us = ecfs_now_us ();
    bool connected = ecfs_core_connected_locked (self);
    for (unsigned i = 0; i < self->n_slots; i++) {
        EcfsOwes owes;
        int64_t silent_us = ecfs_clock_silent_us (&self->slots[i].clock, now_us, &owes);
        /* One more connection that is slow to come is nobody's concern. */
        if (silent_us > 0 && !(owes == ECFS_OWES_CONNECT && connected) &&
            silent_us > ecfs_silences_suspect_us (&self->silences[owes]))
            return true;
    }
    return false;
}

static bool is_for_markers (const EcfsStream *request)
{
    return request->kind == ECFS_REQUEST_EXAMINE || (request->kind == ECFS_REQUEST_MARK && request->create);
}

/* The first queued request that may be served where the marker is wrong. */
static EcfsStream *first_for_markers_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    for (GList *at = self->queue.head; at != NULL; at = at->next)
        if (is_for_markers (at->data))
            return at->data;
    return NULL;
}

static bool must_end_locked (EcfsEndpoint *self, const EcfsSlot *slot) ECFS_REQUIRES (self->lock)
{
    if (slot->broken == NULL)
        return false;
    if (slot->trust != TRUST_MARKERS || slot->stalled)
        return true;
    return slot->active.length == 0 && first_for_markers_locked (self) == NULL;
}

bool ecfs_slot_check (EcfsSlot *slot, GError **error)
{
    EcfsEndpoint *self = slot->endpoint;
    uint64_t count;
    /* Not blocking; nothing to read is fine. */
    (void) !read (slot->event_fd, &count, sizeof count);
    ecfs_mutex_lock (&self->lock);
    bool ok = true;
    if (self->stopping)
        ok = ecfs_fail (error, ECANCELED, "is being closed");
    else if (must_end_locked (self, slot))
        ok = ecfs_fail (error, slot->broken->code, "%s", slot->broken->message);
    ecfs_mutex_unlock (&self->lock);
    return ok;
}

/* Requests that it serves. Logs without anything to do are in nobody's way. */
static unsigned load_of (const EcfsSlot *slot)
{
    return slot->active.length - slot->n_idle_logs;
}

/* Whether nothing that it has could move. */
static bool is_at_rest (const EcfsSlot *slot)
{
    for (GList *at = slot->active.head; at != NULL; at = at->next)
        if (!((const EcfsStream *) at->data)->idle)
            return false;
    return true;
}

/* A slot that could begin @request; which of two is better. */
static bool can_serve (const EcfsSlot *slot, const EcfsStream *request)
{
    if (slot->state != SLOT_SERVING || slot->stalled)
        return false;
    if (slot->trust == TRUST_MARKERS)
        return is_for_markers (request);
    return slot->trust == TRUST_FULL && slot->broken == NULL &&
           (slot->endpoint->breaker.state != BREAKER_TRIAL || is_at_rest (slot));
}

static bool has_file_open (const EcfsSlot *slot, const EcfsStream *request)
{
    return request->kind == ECFS_REQUEST_READ && g_strcmp0 (slot->last_read, request->name) == 0;
}

static bool is_better (const EcfsSlot *slot, const EcfsSlot *than, const EcfsStream *request)
{
    bool open = has_file_open (slot, request), than_open = has_file_open (than, request);
    if (open != than_open)
        return open;
    return load_of (slot) != load_of (than) ? load_of (slot) < load_of (than) : slot->n_idle_logs < than->n_idle_logs;
}

/* Whether the slot is at the file of @request, and its driver goes on with that for less than another would begin. */
static bool reads_on (const EcfsSlot *slot, const EcfsStream *request, const EcfsSlot *asking)
{
    const EcfsStream *first = slot->active.head != NULL ? slot->active.head->data : NULL;
    return slot->endpoint->driver->costly && has_file_open (slot, request) && can_serve (slot, request) &&
           (first == NULL ? slot->hungry || slot == asking : first->kind == ECFS_REQUEST_READ);
}

/* The slot that should take @request: hungry, or @asking, which is about to. NULL when all are busy. */
static EcfsSlot *best_slot_locked (EcfsEndpoint *self, const EcfsStream *request, EcfsSlot *asking)
    ECFS_REQUIRES (self->lock)
{
    EcfsSlot *best = asking;
    for (unsigned i = 0; i < self->n_slots; i++) {
        EcfsSlot *slot = &self->slots[i];
        if (reads_on (slot, request, asking))
            return slot == asking || slot->hungry ? slot : NULL;
        if (slot != asking && slot->hungry && can_serve (slot, request) &&
            (best == NULL || is_better (slot, best, request)))
            best = slot;
    }
    return best;
}

static unsigned n_attempts_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    unsigned n = 0;
    for (unsigned i = 0; i < self->n_slots; i++) {
        const EcfsSlot *slot = &self->slots[i];
        bool trying = slot->state == SLOT_WANTED || slot->state == SLOT_CONNECTING ||
                      (slot->state == SLOT_SERVING && slot->trust == TRUST_NONE);
        n += trying && slot->broken == NULL;
    }
    return n;
}

bool ecfs_core_connected_locked (EcfsEndpoint *self)
{
    for (unsigned i = 0; i < self->n_slots; i++) {
        const EcfsSlot *slot = &self->slots[i];
        if (slot->state == SLOT_SERVING && slot->trust == TRUST_FULL && slot->broken == NULL)
            return true;
    }
    return false;
}

/* By the least of what answers took: the others may have waited for a processor that was busy, not for the line. */
static bool is_long_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    return self->latency.quantiles.p5 > LONG_LINE_US;
}

/* False: every slot is in use. One connection is made at a time, as servers limit unauthenticated ones, and the first
 * tells whether more make sense; but several once that is so and each takes seconds. */
static bool want_slot_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    bool first = !ecfs_core_connected_locked (self);
    if (n_attempts_locked (self) >= (!first && is_long_locked (self) ? MAX_ATTEMPTS : 1))
        return true;
    int64_t now_us = ecfs_now_us ();
    for (unsigned i = 0; i < self->n_slots; i++) {
        EcfsSlot *slot = &self->slots[i];
        if (slot->state == SLOT_IDLE && (first || slot->retry_us <= now_us)) {
            slot->state = SLOT_WANTED;
            g_clear_error (&slot->broken);
            ecfs_cond_broadcast (&self->slots_cond);
            ecfs_cond_signal (&self->keeper_cond);
            return true;
        }
    }
    return false;
}

bool ecfs_slot_call_others (EcfsSlot *slot, unsigned n_helping)
{
    EcfsEndpoint *self = slot->endpoint;
    unsigned n_free = 0;
    ecfs_mutex_lock (&self->lock);
    for (unsigned i = 0; i < self->n_slots; i++) {
        EcfsSlot *other = &self->slots[i];
        if (other == slot || other->state != SLOT_SERVING || load_of (other) > 0)
            continue;
        n_free++;
        ecfs_slot_notify (other);
    }
    if (n_free <= n_helping && self->breaker.state == BREAKER_UP && !self->stopping)
        (void) want_slot_locked (self);
    ecfs_mutex_unlock (&self->lock);
    return self->n_slots > 1;
}

/* Whether it has something that goes on for long. */
static bool writes (const EcfsSlot *slot)
{
    for (const GList *at = slot->active.head; at != NULL; at = at->next)
        if (((const EcfsStream *) at->data)->kind == ECFS_REQUEST_WRITE)
            return true;
    return false;
}

/* Whether another connection would serve @request sooner than those there are, of which @best could begin it now. It
 * costs both sides a handshake, so what one connection can have under way at once does not call for a second. */
static bool wants_another_locked (EcfsEndpoint *self, const EcfsSlot *best, const EcfsStream *request)
    ECFS_REQUIRES (self->lock)
{
    if (best != NULL && (load_of (best) == 0 || has_file_open (best, request)))
        return false;
    if (self->breaker.state == BREAKER_TRIAL && ecfs_core_connected_locked (self))
        return false;
    unsigned n_serving = 0;
    unsigned n_requests = self->queue.length;
    for (unsigned i = 0; i < self->n_slots; i++) {
        if (reads_on (&self->slots[i], request, NULL))
            return false;
        if (!can_serve (&self->slots[i], request))
            continue;
        n_serving++;
        n_requests +=
            self->driver->costly && writes (&self->slots[i]) ? self->driver->n_pipelined : load_of (&self->slots[i]);
    }
    bool is_long = !self->driver->costly && is_long_locked (self);
    return is_long || n_requests > n_serving * self->driver->n_pipelined;
}

void ecfs_core_kick_locked (EcfsEndpoint *self)
{
    EcfsStream *request = ecfs_core_down (self) ? first_for_markers_locked (self) : g_queue_peek_head (&self->queue);
    if (request == NULL || self->stopping)
        return;
    EcfsSlot *best = best_slot_locked (self, request, NULL);
    if (best != NULL) {
        best->hungry = false;
        ecfs_slot_notify (best);
    }
    if (!ecfs_core_down (self) && wants_another_locked (self, best, request))
        (void) want_slot_locked (self);
}

EcfsSlot *ecfs_core_idle_slot_locked (EcfsEndpoint *self, const EcfsStream *request)
{
    if (self->driver->begin_read == NULL || request->kind != ECFS_REQUEST_READ || !g_queue_is_empty (&self->queue))
        return NULL;
    EcfsSlot *slot = best_slot_locked (self, request, NULL);
    return slot != NULL && load_of (slot) == 0 ? slot : NULL;
}

bool ecfs_core_attempt_locked (EcfsEndpoint *self)
{
    if (n_attempts_locked (self) > 0)
        return true;
    return ecfs_now_us () - self->last_attempt_us >= URGENT_INTERVAL_US && want_slot_locked (self);
}

/* Ends what is queued; requests about markers can stay where somebody is about to serve them. */
static void fail_queue_locked (EcfsEndpoint *self, int code, const char *text, bool keep_markers)
    ECFS_REQUIRES (self->lock)
{
    for (GList *at = self->queue.head, *next; at != NULL; at = next) {
        next = at->next;
        EcfsStream *request = at->data;
        if (!keep_markers || !is_for_markers (request))
            ecfs_request_end_locked (self, request, g_error_new_literal (ECFS_ERROR, code, text));
    }
}

static bool serves_markers_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    for (unsigned i = 0; i < self->n_slots; i++)
        if (self->slots[i].state == SLOT_SERVING && self->slots[i].trust == TRUST_MARKERS && !self->slots[i].stalled)
            return true;
    return false;
}

void ecfs_core_down_locked (EcfsEndpoint *self, const char *reason)
{
    int64_t now_us = ecfs_now_us ();
    bool news = !ecfs_core_down (self) && !self->stopping && !self->retired;
    /* A write that waits for its source keeps no meter busy, and may have sent what is not acknowledged. */
    bool at_work = self->read_meter.n_busy + self->write_meter.n_busy > 0 ||
                   self->lent_bytes + self->logged_bytes > 0 || self->breaker.n_losses > 0;
    if (!ecfs_core_down (self))
        self->down_since_s = g_get_real_time () / G_USEC_PER_SEC;
    ecfs_breaker_fail (&self->breaker, at_work, now_us);
    g_free (self->reason);
    self->reason = g_strdup_printf ("endpoint %s: %s", self->name, reason);
    if (news)
        g_message ("endpoint %s is down: %s", self->name, reason);
    fail_queue_locked (self, ENOTCONN, self->reason, !self->retired && serves_markers_locked (self));
    for (unsigned i = 0; i < self->n_slots; i++) {
        EcfsSlot *slot = &self->slots[i];
        if ((slot->state == SLOT_SERVING || slot->state == SLOT_CONNECTING) && slot->broken == NULL) {
            slot->broken = g_error_new_literal (ECFS_ERROR, ENOTCONN, reason);
            ecfs_slot_notify (slot);
        }
    }
    ecfs_cond_signal (&self->keeper_cond);
}

void ecfs_core_up_locked (EcfsEndpoint *self)
{
    if (!ecfs_core_down (self) || self->retired)
        return;
    int64_t now_us = ecfs_now_us ();
    ecfs_breaker_pass (&self->breaker, now_us);
    g_message ("endpoint %s is up again after %.0f s%s", self->name,
               (double) (now_us - self->breaker.down_since_us) / G_USEC_PER_SEC,
               self->breaker.state == BREAKER_TRIAL ? ", on trial" : "");
    g_clear_pointer (&self->reason, g_free);
}

void ecfs_core_prove_locked (EcfsEndpoint *self, unsigned credit, int64_t now_us)
{
    if (ecfs_breaker_prove (&self->breaker, credit, now_us)) {
        g_info ("endpoint %s has proven itself", self->name);
        ecfs_core_kick_locked (self);
    }
}

static bool is_expected (const EcfsMarker *marker, const EcfsMarker *expected, GError **error)
{
    char text[ECFS_UUID_TEXT_SIZE];
    if (!ecfs_uuid_equal (&marker->archive, &expected->archive)) {
        ecfs_uuid_text (&marker->archive, text);
        return ecfs_fail (error, EPERM, "belongs to another archive (%s): correct its URL", text);
    }
    if (!ecfs_uuid_equal (&marker->endpoint, &expected->endpoint)) {
        ecfs_uuid_text (&marker->endpoint, text);
        return ecfs_fail (error, EPERM, "is another endpoint of this archive (%s): correct its URL", text);
    }
    return true;
}

/* The marker is not there, or another's: nothing but markers is asked for there until that has changed. */
static void distrust_locked (EcfsEndpoint *self, EcfsSlot *slot, const char *text, bool was_read)
    ECFS_REQUIRES (self->lock)
{
    slot->trust = was_read ? TRUST_MARKERS : TRUST_NONE;
    slot->broken = g_error_new_literal (ECFS_ERROR, ENOTCONN, text);
    ecfs_core_down_locked (self, text);
}

/* Done callback of the core's own examine request. */
static void identity_done (void *user, const EcfsMarker *marker, const GError *error)
{
    EcfsSlot *slot = user;
    EcfsEndpoint *self = slot->endpoint;
    g_autoptr (GError) wrong = NULL;
    ecfs_mutex_lock (&self->lock);
    bool doubted = slot->doubted;
    slot->doubted = false;
    if (error == NULL && is_expected (marker, &self->expected, &wrong)) {
        slot->trust = TRUST_FULL;
        slot->backoff_us = 0;
        self->unmarked = false;
        ecfs_core_up_locked (self);
    } else if (!self->stopping && slot->broken == NULL) {
        int code = ecfs_errno (error);
        const char *text = wrong != NULL    ? wrong->message
                           : code == ENOENT ? "has no " ECFS_MARKER_NAME
                                              " file: not mounted? If it was emptied, 'ecfs endpoint replace' with "
                                              "its name alone begins anew there"
                                            : error->message;
        self->unmarked = wrong == NULL && code == ENOENT;
        bool was_read = wrong != NULL || code == ENOENT || code == EPROTO || code == ENOTSUP;
        /* A connection that is lost meanwhile is no news about the marker. Where another marker has taken the place of
         * the right one, what was begun before must not go on: the connection ends. */
        if (was_read || !doubted)
            distrust_locked (self, slot, text, was_read && !doubted);
    }
    ecfs_slot_notify (slot);
    ecfs_core_kick_locked (self);
    ecfs_mutex_unlock (&self->lock);
}

static EcfsStream *identity_check (EcfsSlot *slot)
{
    EcfsStream *identity = ecfs_request_new (slot->endpoint, ECFS_REQUEST_EXAMINE, NULL);
    identity->examined = identity_done;
    identity->user = slot;
    return identity;
}

void ecfs_core_doubt_locked (EcfsEndpoint *self, EcfsSlot *slot)
{
    if (ecfs_uuid_is_nil (&self->expected.archive) || slot->trust != TRUST_FULL || slot->doubted)
        return;
    slot->doubted = true;
    slot->identity = identity_check (slot);
    ecfs_slot_notify (slot);
}

static void begin_request_locked (EcfsEndpoint *self, EcfsSlot *slot, EcfsStream *request) ECFS_REQUIRES (self->lock)
{
    request->slot = slot;
    request->taken_us = ecfs_now_us ();
    self->counts.sent += !self->driver->counts_sent;
    bool quiet = self->read_meter.n_busy + self->write_meter.n_busy == 0 && self->logged_bytes == 0;
    request->alone = load_of (slot) == 0 && (quiet || self->latency.sum <= 0);
    request->holder = &slot->active;
    g_queue_push_tail_link (&slot->active, &request->link);
    if (request->kind == ECFS_REQUEST_READ) {
        ecfs_meter_begin (&self->read_meter, request->taken_us);
        if (!has_file_open (slot, request)) {
            g_free (slot->last_read);
            slot->last_read = g_strdup (request->name);
        }
    } else if (request->kind == ECFS_REQUEST_WRITE) {
        ecfs_meter_begin (&self->write_meter, request->taken_us);
    }
}

void ecfs_core_give_locked (EcfsEndpoint *self, EcfsSlot *slot, EcfsStream *request)
{
    if (wants_another_locked (self, slot, request))
        (void) want_slot_locked (self);
    begin_request_locked (self, slot, request);
}

static EcfsStream *take_locked (EcfsEndpoint *self, EcfsSlot *slot) ECFS_REQUIRES (self->lock)
{
    if (slot->identity != NULL && !self->stopping)
        return g_steal_pointer (&slot->identity);
    EcfsStream *request =
        slot->trust == TRUST_MARKERS ? first_for_markers_locked (self) : g_queue_peek_head (&self->queue);
    if (request == NULL || self->stopping || !can_serve (slot, request) ||
        best_slot_locked (self, request, slot) != slot)
        return NULL;
    g_queue_unlink (&self->queue, &request->link);
    return request;
}

EcfsStream *ecfs_slot_take (EcfsSlot *slot)
{
    EcfsEndpoint *self = slot->endpoint;
    ecfs_mutex_lock (&self->lock);
    slot->hungry = false;
    EcfsStream *request = take_locked (self, slot);
    if (request != NULL)
        begin_request_locked (self, slot, request);
    /* What is left is for others, so this one becomes hungry only after they were asked. */
    ecfs_core_kick_locked (self);
    slot->hungry = request == NULL;
    ecfs_mutex_unlock (&self->lock);
    return request;
}

static bool wants_root_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    for (GList *at = self->queue.head; at != NULL; at = at->next) {
        const EcfsStream *request = at->data;
        if (request->kind == ECFS_REQUEST_MARK && (request->create || ecfs_uuid_is_nil (&self->expected.archive)))
            return true;
    }
    return false;
}

static void connect_failed (EcfsSlot *slot, const GError *error)
{
    EcfsEndpoint *self = slot->endpoint;
    ecfs_mutex_lock (&self->lock);
    if (!self->stopping && slot->broken == NULL) {
        if (ecfs_core_connected_locked (self)) {
            slot->backoff_us = CLAMP (2 * slot->backoff_us, BACKOFF_MIN_US, BACKOFF_MAX_US);
            slot->retry_us = ecfs_now_us () + slot->backoff_us;
        } else {
            ecfs_core_down_locked (self, error->message);
        }
    }
    ecfs_mutex_unlock (&self->lock);
}

/* Nothing but the check of the marker is given to the driver first, when there is something to check. */
static void connected (EcfsSlot *slot)
{
    EcfsEndpoint *self = slot->endpoint;
    EcfsStream *identity = identity_check (slot);
    ecfs_mutex_lock (&self->lock);
    slot->state = SLOT_SERVING;
    if (ecfs_uuid_is_nil (&self->expected.archive)) {
        slot->trust = TRUST_FULL;
        if (slot->broken == NULL)
            ecfs_core_up_locked (self);
    } else {
        slot->identity = g_steal_pointer (&identity);
    }
    ecfs_cond_signal (&self->keeper_cond); /* another limit holds from here on */
    ecfs_mutex_unlock (&self->lock);
    ecfs_stream_unref (identity);
}

/* The next request that a connection left unfinished. */
static EcfsStream *unfinished (EcfsSlot *slot)
{
    EcfsEndpoint *self = slot->endpoint;
    ecfs_mutex_lock (&self->lock);
    slot->hungry = false;
    if (slot->identity != NULL)
        begin_request_locked (self, slot, g_steal_pointer (&slot->identity));
    EcfsStream *request = g_queue_peek_head (&slot->active);
    ecfs_mutex_unlock (&self->lock);
    return request;
}

static bool is_at_work (const EcfsSlot *slot)
{
    for (GList *at = slot->active.head; at != NULL; at = at->next) {
        const EcfsStream *request = at->data;
        bool logs = request->kind == ECFS_REQUEST_LOG && !request->idle;
        if (logs || request->kind == ECFS_REQUEST_READ || request->kind == ECFS_REQUEST_WRITE)
            return true;
    }
    return false;
}

/* One that is lost in the middle of work is made anew, but not for ever; and not where an answer does not come,
 * whatever else does: each that waits would wait as long again. */
static void note_loss_locked (EcfsEndpoint *self, EcfsSlot *slot, const GError *error) ECFS_REQUIRES (self->lock)
{
    if (self->stopping || slot->broken != NULL || ecfs_core_down (self))
        return;
    if (ecfs_errno (error) == ETIMEDOUT) {
        ecfs_core_down_locked (self, error->message);
    } else if (is_at_work (slot) && ecfs_breaker_lose (&self->breaker)) {
        g_autofree char *text = g_strdup_printf ("loses its connections in the middle of work: %s",
                                                 error != NULL ? error->message : "closed");
        ecfs_core_down_locked (self, text);
    }
}

/* Fails the requests of a connection that ended. */
static void fail_unfinished (EcfsSlot *slot, const GError *error)
{
    EcfsEndpoint *self = slot->endpoint;
    ecfs_mutex_lock (&self->lock);
    int code = self->stopping ? ECANCELED : slot->stalled ? ETIMEDOUT : ENOTCONN;
    note_loss_locked (self, slot, error);
    ecfs_mutex_unlock (&self->lock);
    EcfsStream *request;
    while ((request = unfinished (slot)) != NULL) {
        /* What a log had to do is done: it is not its time that ran out. */
        bool at_rest = code == ETIMEDOUT && request->kind == ECFS_REQUEST_LOG && request->idle;
        request->driver_data = NULL;
        ecfs_request_fail (request, at_rest ? ENOTCONN : code, "connection lost: %s",
                           error != NULL ? error->message : "closed when idle");
    }
}

static void run_connection (EcfsSlot *slot, bool make_root)
{
    const EcfsDriver *driver = slot->endpoint->driver;
    g_autoptr (GError) error = NULL;
    ecfs_slot_owed (slot, ECFS_OWES_CONNECT);
    slot->connection = driver->connect (slot, make_root, &error);
    if (slot->connection != NULL)
        ecfs_slot_owed (slot, ECFS_OWES_NOTHING);
    ecfs_clock_stop (&slot->clock);
    if (slot->connection == NULL) {
        ecfs_text_clean_error (error, ECFS_PROBLEM_MAX);
        connect_failed (slot, error);
        return;
    }
    connected (slot);
    (void) driver->serve (slot, slot->connection, &error); /* what an error means is in the requests that it leaves */
    ecfs_clock_stop (&slot->clock);
    ecfs_text_clean_error (error, ECFS_PROBLEM_MAX);
    fail_unfinished (slot, error);
    driver->disconnect (g_steal_pointer (&slot->connection));
}

void *ecfs_slot_main (void *data)
{
    EcfsSlot *slot = data;
    EcfsEndpoint *self = slot->endpoint;
    ecfs_mutex_lock (&self->lock);
    while (!self->stopping) {
        if (slot->state != SLOT_WANTED) {
            (void) ecfs_cond_wait_until (&self->slots_cond, &self->lock, ecfs_now_us () + LONG_WAIT_US);
            continue;
        }
        slot->state = SLOT_CONNECTING;
        slot->trust = TRUST_NONE;
        slot->stalled = slot->doubted = false;
        self->last_attempt_us = ecfs_now_us ();
        bool make_root = wants_root_locked (self);
        ecfs_mutex_unlock (&self->lock);
        ecfs_mutex_lock (&slot->turn);
        run_connection (slot, make_root);
        ecfs_mutex_unlock (&slot->turn);
        ecfs_mutex_lock (&self->lock);
        slot->state = SLOT_IDLE;
        slot->trust = TRUST_NONE;
        g_clear_pointer (&slot->last_read, g_free);
        if (ecfs_core_down (self) && first_for_markers_locked (self) != NULL)
            self->breaker.next_probe_us = MIN (self->breaker.next_probe_us, self->last_attempt_us + URGENT_INTERVAL_US);
        ecfs_core_kick_locked (self);
        ecfs_cond_signal (&self->keeper_cond);
    }
    ecfs_mutex_unlock (&self->lock);
    return NULL;
}

static void stalled_locked (EcfsEndpoint *self, EcfsSlot *slot, int64_t silent_us, EcfsOwes owes)
    ECFS_REQUIRES (self->lock)
{
    ecfs_silences_gave_up (&self->silences[owes], silent_us);
    g_autofree char *text = g_strdup_printf ("made no progress for %.3g s", (double) silent_us / G_USEC_PER_SEC);
    slot->stalled = true;
    g_clear_error (&slot->broken);
    slot->broken = g_error_new_literal (ECFS_ERROR, ETIMEDOUT, text);
    ecfs_slot_notify (slot);
    ecfs_core_down_locked (self, text);
}

/* Looks at the stall clocks; returns when to look again. */
static int64_t check_stalls_locked (EcfsEndpoint *self, int64_t now_us) ECFS_REQUIRES (self->lock)
{
    int64_t next_us = now_us + LONG_WAIT_US;
    for (unsigned i = 0; i < self->n_slots; i++) {
        EcfsSlot *slot = &self->slots[i];
        EcfsOwes owes;
        int64_t silent_us = ecfs_clock_silent_us (&slot->clock, now_us, &owes);
        if (slot->state == SLOT_IDLE || slot->stalled || silent_us == 0)
            continue;
        /* A driver keeps its own deadline when connecting; the clock is for the one that is stuck. */
        int64_t limit_us = owes == ECFS_OWES_CONNECT
                               ? self->connect_timeout_us + G_USEC_PER_SEC
                               : ecfs_silences_gone_us (&self->silences[owes], owes, self->stall_timeout_us);
        if (silent_us < limit_us)
            next_us = MIN (next_us, now_us + limit_us - silent_us);
        else
            stalled_locked (self, slot, silent_us, owes);
    }
    return MAX (next_us, now_us + 1000);
}

/* Time in which this process did not run at all is nobody's silence. */
static void excuse_all_locked (EcfsEndpoint *self, int64_t now_us) ECFS_REQUIRES (self->lock)
{
    for (unsigned i = 0; i < self->n_slots; i++)
        ecfs_clock_excuse (&self->slots[i].clock, now_us);
}

/* Starts a probe that is due; returns when to look again. A slot that ends its connection tells when it is free. */
static int64_t probe_locked (EcfsEndpoint *self, int64_t now_us) ECFS_REQUIRES (self->lock)
{
    if (!ecfs_core_down (self) || self->stopping || self->retired || n_attempts_locked (self) > 0) {
        self->all_busy_us = 0;
        return now_us + LONG_WAIT_US;
    }
    if (now_us < self->breaker.next_probe_us)
        return self->breaker.next_probe_us;
    if (want_slot_locked (self)) {
        self->all_busy_us = 0;
    } else {
        if (self->all_busy_us == 0)
            self->all_busy_us = now_us;
        if (now_us - self->all_busy_us < ENDING_US)
            return self->all_busy_us + ENDING_US;
        /* All threads are stuck: whoever waits for an attempt has his answer. */
        self->breaker.next_probe_us = now_us + self->breaker.backoff_us;
        fail_queue_locked (self, ENOTCONN, self->reason, false);
    }
    return now_us + self->breaker.backoff_us;
}

void *ecfs_slot_watchdog (void *data)
{
    EcfsEndpoint *self = data;
    int64_t next_us = INT64_MAX;
    ecfs_mutex_lock (&self->lock);
    for (;;) {
        EcfsStream *request = g_queue_peek_head (&self->ended);
        if (request != NULL) {
            g_queue_unlink (&self->ended, &request->link);
            request->holder = NULL;
            ecfs_mutex_unlock (&self->lock);
            g_autoptr (GError) error = g_steal_pointer (&request->error);
            ecfs_request_deliver (request, 0, error);
            ecfs_mutex_lock (&self->lock);
            continue;
        }
        /* What is queued ends first: a keeper that was busy may find the slots joined already. */
        if (self->stopping && !g_queue_is_empty (&self->queue)) {
            g_autofree char *text = g_strdup_printf ("endpoint %s: is being closed", self->name);
            fail_queue_locked (self, ECANCELED, text, false);
            continue;
        }
        if (self->slots_joined)
            break;
        int64_t now_us = ecfs_now_us ();
        if (now_us - next_us > OVERSLEPT_US)
            excuse_all_locked (self, now_us);
        /* A clock that starts after this was looked at wakes the keeper if that is too late for it. */
        atomic_store (&self->keeper_wakes_us, INT64_MAX);
        next_us = check_stalls_locked (self, now_us);
        atomic_store (&self->keeper_wakes_us, next_us);
        next_us = MIN (next_us, probe_locked (self, now_us));
        if (g_queue_is_empty (&self->ended))
            (void) ecfs_cond_wait_until (&self->keeper_cond, &self->lock, next_us);
    }
    ecfs_mutex_unlock (&self->lock);
    return NULL;
}
