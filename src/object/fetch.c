#include "object/reader_priv.h"

#include "util/error.h"

#include <string.h>

#define MAX_ATTEMPTS 4
#define AT_ONCE      2       /* attempts without a pause */
#define LONG_DOWN_US 3000000 /* nobody waits for an endpoint that has been down for longer */
#define RETRY_US     1100000 /* an endpoint that is down can be tried once a second */

static void slot_data (void *user, size_t range_index, size_t filled);
static void slot_done (void *user, const GError *error);

size_t ecfs_fetch_bytes (const EcfsReader *reader, uint64_t segment, bool whole, uint32_t block_lo, uint32_t block_hi)
{
    const EcfsLayout *layout = &reader->params.layout;
    uint64_t slot =
        ecfs_layout_block_offset (layout, segment, block_hi) - ecfs_layout_block_offset (layout, segment, block_lo);
    unsigned n_slots = whole ? reader->n : MIN (reader->n, layout->k + 1u);
    return (size_t) slot * n_slots;
}

static EcfsFetch *fetch_new (EcfsReader *reader, uint64_t segment, uint32_t block_lo, uint32_t block_hi)
{
    const EcfsLayout *layout = &reader->params.layout;
    EcfsFetch *self = g_new0 (EcfsFetch, 1);
    self->references = 1;
    self->state = FETCH_RUNNING;
    self->reader = reader;
    self->segment = segment;
    self->block_lo = block_lo;
    self->block_hi = block_hi;
    self->slot_bytes = (size_t) (ecfs_layout_block_offset (layout, segment, block_hi) -
                                 ecfs_layout_block_offset (layout, segment, block_lo));
    self->wanted = g_new0 (bool, reader->n);
    self->slots = g_new0 (EcfsFetchSlot, reader->n);
    for (unsigned i = 0; i < reader->n; i++) {
        self->slots[i].fetch = self;
        self->slots[i].index = i;
    }
    self->out = g_new0 (uint8_t *, reader->n);
    self->decoded = g_new0 (uint8_t *, reader->n);
    self->waiting = g_ptr_array_new ();
    ecfs_mutex_init (&self->opening);
    self->failures = g_string_new (NULL);
    self->used_us = ecfs_now_us ();
    return self;
}

EcfsFetch *ecfs_fetch_new (EcfsReader *reader, uint64_t segment, int packet, uint32_t block_lo, uint32_t block_hi)
{
    EcfsFetch *self = fetch_new (reader, segment, block_lo, block_hi);
    self->whole = packet < 0;
    self->granted_bytes = ecfs_fetch_bytes (reader, segment, self->whole, block_lo, block_hi);
    for (unsigned i = 0; i < reader->params.layout.k; i++)
        self->wanted[i] = self->whole || (int) i == packet;
    return self;
}

EcfsFetch *ecfs_fetch_new_rebuild (EcfsReader *reader, uint64_t segment, const bool *wanted)
{
    EcfsFetch *self = fetch_new (reader, segment, 0, ecfs_layout_n_blocks (&reader->params.layout, segment));
    self->patient = true;
    self->granted_bytes = ecfs_reader_rebuild_bytes (reader, segment);
    memcpy (self->wanted, wanted, reader->n * sizeof *wanted);
    return self;
}

static void fetch_free (EcfsFetch *self)
{
    ecfs_fetch_settle (self);
    EcfsTransferPool *transfer = self->reader->params.transfer;
    for (unsigned i = 0; i < self->reader->n; i++) {
        ecfs_transfer_buffer_give (transfer, self->slots[i].buffer, self->slot_bytes);
        ecfs_transfer_buffer_give (transfer, self->decoded[i], self->slot_bytes);
        ecfs_stream_unref (self->slots[i].stream);
    }
    ecfs_transfer_release (transfer, self->granted_bytes);
    g_free (self->wanted);
    g_free (self->slots);
    g_free (self->out);
    g_free (self->decoded);
    g_ptr_array_unref (self->waiting);
    ecfs_mutex_clear (&self->opening);
    g_string_free (self->failures, TRUE);
    g_clear_error (&self->error);
    g_free (self);
}

void ecfs_fetch_ref_locked (EcfsFetch *self)
{
    self->references++;
}

void ecfs_fetch_unref_locked (EcfsFetch *self)
{
    if (--self->references == 0)
        fetch_free (self);
}

void ecfs_fetch_unlist_locked (EcfsFetch *self)
{
    if (!self->listed)
        return;
    self->listed = false;
    g_ptr_array_remove_fast (self->reader->fetches, self);
    ecfs_fetch_unref_locked (self);
}

static void cancel_slots_locked (EcfsFetch *self) ECFS_REQUIRES (self->reader->lock)
{
    unsigned n_cancelled = 0;
    for (unsigned i = 0; i < self->reader->n; i++)
        if (self->slots[i].asked) {
            ecfs_stream_cancel (self->slots[i].stream);
            n_cancelled++;
        }
    ecfs_read_log_count (self->reader->params.log, &(EcfsReadCounts){.cancelled = n_cancelled});
}

uint8_t *ecfs_fetch_bytes_at (const EcfsFetch *self, unsigned packet, uint32_t at, uint32_t *ret_bytes)
{
    const EcfsLayout *layout = &self->reader->params.layout;
    uint32_t block = at / layout->block_bytes;
    uint32_t within = at % layout->block_bytes;
    *ret_bytes = ecfs_layout_block_bytes (layout, self->segment, block) - within;
    return self->out[packet] + (size_t) (block - self->block_lo) * (layout->block_bytes + layout->tag_bytes) + within;
}

/* The wanted packets follow one another in the content: there is one of them, or all. */
static void decipher (const EcfsFetch *self)
{
    const EcfsReader *reader = self->reader;
    const EcfsLayout *layout = &reader->params.layout;
    uint32_t content_bytes = ecfs_layout_content_bytes (layout, self->segment);
    uint32_t packet_bytes = ecfs_layout_packet_bytes (layout, self->segment);
    EcfsCipher *cipher = NULL;
    for (unsigned packet = 0; packet < layout->k; packet++) {
        for (uint32_t block = self->block_lo; self->wanted[packet] && block < self->block_hi; block++) {
            uint32_t bytes, within = block * layout->block_bytes, at = packet * packet_bytes + within;
            uint8_t *to = ecfs_fetch_bytes_at (self, packet, within, &bytes);
            if (at >= content_bytes)
                break;
            if (cipher == NULL)
                cipher = ecfs_cipher_new (reader->params.keys->content, self->segment * layout->segment_bytes + at);
            ecfs_cipher_next (cipher, to, MIN (bytes, content_bytes - at));
        }
    }
    ecfs_cipher_free (cipher);
}

void ecfs_fetch_open (EcfsFetch *self)
{
    const EcfsReaderParams *params = &self->reader->params;
    if (params->keys == NULL && params->cache == NULL)
        return;
    ecfs_mutex_lock (&self->opening);
    if (!self->is_open)
        ecfs_fetch_offer (self);
    if (!self->is_open && params->keys != NULL)
        decipher (self);
    self->is_open = true;
    ecfs_mutex_unlock (&self->opening);
}

/* Every waiting request has one fetch less to wait for; the complete ones go to @finished. */
static void settle_locked (EcfsFetch *self, GPtrArray *finished) ECFS_REQUIRES (self->reader->lock)
{
    for (guint i = 0; i < self->waiting->len; i++) {
        Request *request = g_ptr_array_index (self->waiting, i);
        if (self->error != NULL && request->error == NULL)
            request->error = g_error_copy (self->error);
        if (--request->n_waiting == 0)
            g_ptr_array_add (finished, request);
    }
    g_ptr_array_set_size (self->waiting, 0);
    ecfs_fetch_leave_peers_locked (self);
    cancel_slots_locked (self);
}

static void count_extra_locked (EcfsReader *reader, size_t bytes) ECFS_REQUIRES (reader->lock)
{
    reader->extra_bytes += bytes;
    ecfs_read_log_count (reader->params.log, &(EcfsReadCounts){.hedged_bytes = bytes});
}

static void run_opening (void *data)
{
    EcfsFetch *fetch = data;
    EcfsReader *reader = fetch->reader;
    ecfs_fetch_open (fetch);
    ecfs_mutex_lock (&reader->lock);
    ecfs_mutex_is_held (&fetch->reader->lock);
    ecfs_fetch_unref_locked (fetch);
    ecfs_mutex_unlock (&reader->lock);
    ecfs_reader_unref_priv (reader);
}

/* Peers get it from the cache, whenever it is read here. */
static void open_soon_locked (EcfsFetch *self) ECFS_REQUIRES (self->reader->lock)
{
    if (!self->is_claimed)
        return;
    ecfs_fetch_ref_locked (self);
    (void) ecfs_reader_ref_priv (self->reader);
    ecfs_transfer_run (self->reader->params.transfer, run_opening, self);
}

static void get_ready_locked (EcfsFetch *self, GPtrArray *finished) ECFS_REQUIRES (self->reader->lock)
{
    self->state = FETCH_READY;
    self->used_us = ecfs_now_us ();
    settle_locked (self, finished);
    open_soon_locked (self);
    if (self->reader->closed)
        ecfs_fetch_unlist_locked (self);
}

void ecfs_fetch_came_cached_locked (EcfsFetch *self, GPtrArray *finished)
{
    for (unsigned i = 0; i < self->reader->n; i++)
        self->out[i] = self->wanted[i] ? self->slots[i].buffer : NULL;
    self->is_cached = true;
    get_ready_locked (self, finished);
}

void ecfs_fetch_came_from_peer_locked (EcfsFetch *self, GPtrArray *finished)
{
    for (unsigned i = 0; i < self->reader->n; i++)
        self->out[i] = self->decoded[i];
    self->is_from_peer = true;
    get_ready_locked (self, finished);
}

static void ready_locked (EcfsFetch *self, GPtrArray *finished) ECFS_REQUIRES (self->reader->lock)
{
    bool decoded = false;
    for (unsigned i = 0; i < self->reader->n; i++) {
        self->out[i] = self->slots[i].arrived ? self->slots[i].buffer : self->decoded[i];
        decoded |= self->decoded[i] != NULL;
    }
    for (unsigned i = 0; i < self->reader->n && !decoded; i++)
        if (self->slots[i].arrived && !self->wanted[i])
            count_extra_locked (self->reader, self->slot_bytes);
    ecfs_fetch_explain_locked (self, decoded);
    if (self->is_claimed)
        ecfs_reader_note_given_locked (self->reader, ecfs_own_us () - self->looked_us);
    get_ready_locked (self, finished);
}

static void fail_locked (EcfsFetch *self, GPtrArray *finished) ECFS_REQUIRES (self->reader->lock)
{
    self->state = FETCH_FAILED;
    self->error = g_error_new (ECFS_ERROR, EIO, "too few stripes can be read: %s",
                               self->failures->len > 0 ? self->failures->str : "no endpoint holds them");
    settle_locked (self, finished);
    ecfs_fetch_unlist_locked (self);
}

void ecfs_fetch_abandon_locked (EcfsFetch *self)
{
    self->state = FETCH_FAILED;
    ecfs_fetch_leave_look_locked (self);
    ecfs_fetch_leave_peers_locked (self);
    cancel_slots_locked (self);
    ecfs_fetch_unlist_locked (self);
}

/* The plan for what has arrived; made once per loss pattern. NULL never: the scheduler found the set decodable. */
static const EcfsPlan *plan_locked (EcfsFetch *self, const bool *present, const bool *missing)
    ECFS_REQUIRES (self->reader->lock)
{
    EcfsReader *reader = self->reader;
    g_autofree char *key = g_malloc (2 * reader->n + 1);
    for (unsigned i = 0; i < reader->n; i++) {
        key[i] = present[i] ? '1' : '0';
        key[reader->n + i] = missing[i] ? '1' : '0';
    }
    key[2 * reader->n] = '\0';
    EcfsPlan *plan = g_hash_table_lookup (reader->plans, key);
    if (plan == NULL) {
        g_autoptr (GError) error = NULL;
        plan = ecfs_codec_plan (reader->params.codec, present, missing, &error);
        if (plan == NULL)
            g_error ("a decodable set has no plan: %s", error->message);
        g_hash_table_insert (reader->plans, g_steal_pointer (&key), plan);
    }
    return plan;
}

typedef struct Decoding {
    EcfsFetch *fetch;
    const EcfsPlan *plan;
    bool missing[ECFS_CODEC_MAX_N];
    bool present[ECFS_CODEC_MAX_N];
} Decoding;

static void decode_blocks (Decoding *decoding)
{
    EcfsFetch *fetch = decoding->fetch;
    EcfsReader *reader = fetch->reader;
    const EcfsLayout *layout = &reader->params.layout;
    uint8_t *packets[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < reader->n; i++)
        if (decoding->missing[i])
            fetch->decoded[i] = ecfs_transfer_buffer_take (reader->params.transfer, fetch->slot_bytes);
    uint32_t end = MIN (fetch->block_hi, ecfs_layout_n_blocks (layout, fetch->segment));
    for (uint32_t block = fetch->block_lo; block < end; block++) {
        size_t at = (size_t) (block - fetch->block_lo) * (layout->block_bytes + layout->tag_bytes);
        for (unsigned i = 0; i < reader->n; i++) {
            uint8_t *base = decoding->missing[i]   ? fetch->decoded[i]
                            : decoding->present[i] ? fetch->slots[i].buffer
                                                   : NULL;
            packets[i] = base == NULL ? NULL : base + at;
        }
        ecfs_plan_run (decoding->plan, packets, ecfs_layout_block_bytes (layout, fetch->segment, block));
    }
}

static void run_decoding (void *data)
{
    Decoding *decoding = data;
    EcfsFetch *fetch = decoding->fetch;
    EcfsReader *reader = fetch->reader;
    decode_blocks (decoding);
    GPtrArray *finished = g_ptr_array_new ();
    ecfs_mutex_lock (&reader->lock);
    ecfs_mutex_is_held (&fetch->reader->lock);
    ready_locked (fetch, finished);
    ecfs_fetch_unref_locked (fetch);
    ecfs_mutex_unlock (&reader->lock);
    g_free (decoding);
    ecfs_requests_finish (finished);
    ecfs_reader_unref_priv (reader);
}

static void complete_locked (EcfsFetch *self, GPtrArray *finished) ECFS_REQUIRES (self->reader->lock)
{
    EcfsReader *reader = self->reader;
    Decoding *decoding = g_new0 (Decoding, 1);
    bool any_missing = false;
    for (unsigned i = 0; i < reader->n; i++) {
        decoding->present[i] = self->slots[i].arrived;
        decoding->missing[i] = self->wanted[i] && !self->slots[i].arrived;
        any_missing |= decoding->missing[i];
    }
    if (!any_missing) {
        g_free (decoding);
        ready_locked (self, finished);
        return;
    }
    self->state = FETCH_DECODING;
    decoding->fetch = self;
    decoding->plan = plan_locked (self, decoding->present, decoding->missing);
    ecfs_fetch_ref_locked (self);
    (void) ecfs_reader_ref_priv (reader);
    ecfs_transfer_run (reader->params.transfer, run_decoding, decoding);
}

static void note_asked_locked (EcfsFetchSlot *slot) ECFS_REQUIRES (slot->fetch->reader->lock)
{
    EcfsReader *reader = slot->fetch->reader;
    EcfsLane *lane = &reader->lanes[slot->index];
    slot->asked = true;
    slot->asked_us = ecfs_now_us ();
    slot->promise_us = slot->asked_us + slot->foretold_us;
    slot->filled = 0;
    slot->n_overtook = 0;
    slot->hedged = false;
    slot->number = ++reader->n_asked;
    slot->mark = ecfs_lane_asked (lane, slot->fetch->slot_bytes, slot->asked_us);
    reader->hedging_bytes += slot->extra ? slot->fetch->slot_bytes : 0;
    reader->n_running++;
}

static void note_came_locked (EcfsFetchSlot *slot, size_t filled) ECFS_REQUIRES (slot->fetch->reader->lock)
{
    ecfs_lane_came (&slot->fetch->reader->lanes[slot->index], filled - slot->filled);
    slot->filled = filled;
}

/* One that was asked earlier has been overtaken by this one; counted for the policies that look at it. */
static void overtake_locked (const EcfsFetchSlot *slot) ECFS_REQUIRES (slot->fetch->reader->lock)
{
    const EcfsReader *reader = slot->fetch->reader;
    for (guint i = 0; i < reader->fetches->len; i++) {
        EcfsFetch *fetch = g_ptr_array_index (reader->fetches, i);
        for (unsigned j = 0; j < reader->n; j++)
            fetch->slots[j].n_overtook += fetch->slots[j].asked && fetch->slots[j].number < slot->number;
    }
}

static void note_done_locked (EcfsFetchSlot *slot, bool arrived) ECFS_REQUIRES (slot->fetch->reader->lock)
{
    const EcfsFetch *fetch = slot->fetch;
    EcfsReader *reader = fetch->reader;
    slot->asked = false;
    ecfs_lane_done (&reader->lanes[slot->index], fetch->slot_bytes - slot->filled);
    reader->n_running--;
    reader->hedging_bytes -= slot->extra ? fetch->slot_bytes : 0;
    slot->extra = false;
    ecfs_mutex_is_held (&reader->lock);
    if (fetch->state != FETCH_RUNNING)
        count_extra_locked (reader, slot->filled);
    if (arrived && reader->params.policy.replication > 1)
        overtake_locked (slot);
}

static void ask_locked (EcfsFetchSlot *slot, bool urgent) ECFS_REQUIRES (slot->fetch->reader->lock)
{
    EcfsFetch *fetch = slot->fetch;
    EcfsReader *reader = fetch->reader;
    const EcfsReaderStripe *stripe = &reader->stripes[slot->index];
    if (slot->buffer == NULL)
        slot->buffer = ecfs_transfer_buffer_take (reader->params.transfer, fetch->slot_bytes);
    if (reader->lanes[slot->index].spent)
        ecfs_endpoint_note_read_anyway (stripe->endpoint);
    slot->attempts++;
    slot->retry_us = 0;
    slot->n_verified = 0;
    slot->damaged = false;
    note_asked_locked (slot);
    ecfs_mutex_is_held (&fetch->reader->lock);
    ecfs_fetch_ref_locked (fetch);
    (void) ecfs_reader_ref_priv (reader);
    char name[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (&reader->params.object, (uint16_t) slot->index, stripe->instance, name);
    EcfsRange range = {.offset = ecfs_layout_block_offset (&reader->params.layout, fetch->segment, fetch->block_lo),
                       .size = fetch->slot_bytes,
                       .to = slot->buffer};
    EcfsSink sink = {.data = slot_data, .done = slot_done, .user = slot};
    ecfs_stream_unref (slot->stream);
    slot->stream = ecfs_endpoint_read (stripe->endpoint, name, &range, 1, urgent ? ECFS_READ_URGENT : 0, &sink);
}

void ecfs_fetch_schedule_locked (EcfsFetch *self, GPtrArray *finished)
{
    EcfsReader *reader = self->reader;
    EcfsCandidate lanes[ECFS_CODEC_MAX_N];
    EcfsDecision decision;
    if (self->state != FETCH_RUNNING)
        return;
    EcfsWanted wanted = ecfs_fetch_wanted_locked (self);
    ecfs_fetch_outlook_locked (self, ecfs_now_us (), lanes);
    switch (ecfs_schedule (reader->params.codec, &reader->params.policy, &wanted, lanes, &decision)) {
    case ECFS_SCHEDULE_READY:
        complete_locked (self, finished);
        break;
    case ECFS_SCHEDULE_WAIT:
        for (unsigned i = 0; i < reader->n; i++) {
            EcfsFetchSlot *slot = &self->slots[i];
            ecfs_mutex_is_held (&slot->fetch->reader->lock);
            slot->hedged |= decision.late[i];
            slot->extra = decision.ask[i] ? decision.n_hedges > 0 : slot->extra;
            if (decision.ask[i])
                ask_locked (slot, lanes[i].down);
        }
        break;
    case ECFS_SCHEDULE_IMPOSSIBLE:
        if (!ecfs_fetch_awaits_peers_locked (self) && !ecfs_fetch_awaits_chain_locked (self) &&
            !ecfs_fetch_ask_all_locked (self))
            fail_locked (self, finished);
        break;
    }
}

static gint by_segment (gconstpointer a, gconstpointer b)
{
    const EcfsFetch *x = *(const EcfsFetch *const *) a, *y = *(const EcfsFetch *const *) b;
    return x->segment < y->segment ? -1 : x->segment > y->segment;
}

void ecfs_reader_schedule_locked (EcfsReader *self, GPtrArray *finished)
{
    /* Scheduling may end a fetch and take it off the list, so it runs over a copy. */
    g_autoptr (GPtrArray) running = g_ptr_array_copy (self->fetches, NULL, NULL);
    g_ptr_array_set_free_func (running, NULL);
    g_ptr_array_sort (running, by_segment);
    for (guint i = 0; i < running->len; i++) {
        EcfsFetch *fetch = g_ptr_array_index (running, i);
        ecfs_mutex_is_held (&fetch->reader->lock);
        ecfs_fetch_ref_locked (fetch);
        ecfs_fetch_schedule_locked (fetch, finished);
        ecfs_fetch_unref_locked (fetch);
    }
}

/* Verifies the blocks of a slot that are complete within its first @filled bytes. */
static bool verify (EcfsFetchSlot *slot, size_t filled)
{
    const EcfsReader *reader = slot->fetch->reader;
    const EcfsLayout *layout = &reader->params.layout;
    const EcfsFetch *fetch = slot->fetch;
    const EcfsTagger tagger = ecfs_reader_tagger (&reader->params);
    size_t step = layout->block_bytes + layout->tag_bytes;
    while (!reader->params.unchecked) {
        uint32_t block = fetch->block_lo + slot->n_verified;
        size_t start = slot->n_verified * step;
        if (block >= fetch->block_hi || start >= fetch->slot_bytes)
            return true;
        uint32_t bytes = ecfs_layout_block_bytes (layout, fetch->segment, block);
        if (start + bytes + layout->tag_bytes > filled)
            return true;
        const uint8_t *at = slot->buffer + start;
        uint64_t number = ecfs_layout_block_number (layout, fetch->segment, block);
        if (!ecfs_tag_fits (&tagger, slot->index, number, at, bytes, at + bytes))
            return false;
        slot->n_verified++;
    }
    return true;
}

static void slot_data (void *user, size_t range_index, size_t filled)
{
    EcfsFetchSlot *slot = user;
    EcfsReader *reader = slot->fetch->reader;
    (void) range_index;
    slot->damaged = slot->damaged || !verify (slot, filled);
    int64_t now = ecfs_now_us ();
    ecfs_mutex_lock (&reader->lock);
    ecfs_mutex_is_held (&slot->fetch->reader->lock);
    note_came_locked (slot, filled);
    ecfs_lane_moved (&reader->lanes[slot->index], slot->asked_us, now);
    if (slot->fetch->state == FETCH_RUNNING && slot->fetch->is_claimed)
        ecfs_fetch_tell_progress (slot->fetch);
    if (slot->damaged)
        ecfs_stream_cancel (slot->stream);
    ecfs_mutex_unlock (&reader->lock);
}

/* Whether asking the same endpoint again may help. A running fetch cancels nothing itself: the endpoint is being
 * closed.
 */
static bool passing (int code)
{
    return code != ECANCELED && code != ENOENT && code != EBADMSG && code != EACCES && code != EINVAL;
}

static void slot_failed_locked (EcfsFetchSlot *slot, const GError *error) ECFS_REQUIRES (slot->fetch->reader->lock)
{
    EcfsFetch *fetch = slot->fetch;
    int64_t now_us = ecfs_now_us ();
    int64_t down_us = fetch->reader->lanes[slot->index].down_us;
    bool long_down = down_us != 0 && now_us - down_us > LONG_DOWN_US;
    slot->failed_code = error->code;
    slot->failed = !passing (error->code) || slot->attempts >= (long_down ? AT_ONCE : MAX_ATTEMPTS);
    if (slot->failed)
        g_string_append_printf (fetch->failures, "%s%s", fetch->failures->len > 0 ? "; " : "", error->message);
    if (!slot->failed && slot->attempts >= AT_ONCE)
        slot->retry_us = now_us + RETRY_US;
    if (passing (error->code))
        fetch->reader->lanes[slot->index].down = true; /* until the next tick asks the endpoint itself */
}

/* The error that counts for a slot: a failed checksum rather than the cancellation that followed it. */
static GError *slot_error (EcfsFetchSlot *slot, const GError *error)
{
    const EcfsReader *reader = slot->fetch->reader;
    if (error == NULL && !slot->damaged)
        slot->damaged = !verify (slot, slot->fetch->slot_bytes);
    if (!slot->damaged)
        return error == NULL ? NULL : g_error_copy (error);
    const EcfsEndpoint *endpoint = reader->stripes[slot->index].endpoint;
    char name[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (&reader->params.object, (uint16_t) slot->index, reader->stripes[slot->index].instance, name);
    return g_error_new (ECFS_ERROR, EBADMSG,
                        "endpoint %s: %s: a check block of segment %" G_GUINT64_FORMAT " fails its checksum",
                        ecfs_endpoint_name (endpoint), name, slot->fetch->segment);
}

static bool is_damage (int code)
{
    return code == EBADMSG || code == ENOENT;
}

static bool tell_trouble_locked (EcfsReader *reader, unsigned index, const GError *error) ECFS_REQUIRES (reader->lock)
{
    EcfsLane *lane = &reader->lanes[index];
    bool damage = error != NULL && is_damage (error->code);
    if (error == NULL || error->code == ECANCELED || (damage ? lane->damage_told : lane->told) ||
        reader->params.trouble == NULL)
        return false;
    lane->told = true;
    lane->damage_told = lane->damage_told || damage;
    return true;
}

static void tell_trouble (const EcfsReader *reader, unsigned index, const GError *error)
{
    const EcfsTrouble trouble = {.object = &reader->params.object,
                                 .codec = reader->params.codec,
                                 .endpoint = reader->stripes[index].endpoint,
                                 .stripe_index = index,
                                 .instance = reader->stripes[index].instance,
                                 .error = error,
                                 .damage = is_damage (error->code)};
    reader->params.trouble (reader->params.user, &trouble);
}

static void slot_done (void *user, const GError *given)
{
    EcfsFetchSlot *slot = user;
    EcfsFetch *fetch = slot->fetch;
    EcfsReader *reader = fetch->reader;
    unsigned index = slot->index;
    g_autoptr (GError) error = slot_error (slot, given);
    GPtrArray *finished = g_ptr_array_new ();
    ecfs_mutex_lock (&reader->lock);
    ecfs_mutex_is_held (&fetch->reader->lock);
    ecfs_mutex_is_held (&slot->fetch->reader->lock);
    note_done_locked (slot, error == NULL);
    if (error == NULL) {
        slot->arrived = fetch->state == FETCH_RUNNING || slot->arrived;
        reader->received_bytes += fetch->slot_bytes;
        ecfs_read_log_count (reader->params.log, &(EcfsReadCounts){.received_bytes = fetch->slot_bytes});
    } else
        slot_failed_locked (slot, error);
    bool trouble = tell_trouble_locked (reader, index, error);
    ecfs_fetch_schedule_locked (fetch, finished);
    if (reader->params.policy.transfers > 0 || reader->params.policy.replication > 1)
        ecfs_reader_schedule_locked (reader, finished); /* what waits for its turn, and what was overtaken */
    ecfs_fetch_unref_locked (fetch);
    ecfs_mutex_unlock (&reader->lock);
    if (trouble)
        tell_trouble (reader, index, error);
    ecfs_requests_finish (finished);
    ecfs_reader_unref_priv (reader);
}
