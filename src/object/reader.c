#include "object/reader.h"

#include "object/reader_priv.h"
#include "util/error.h"

#include <assert.h>
#include <string.h>

#define SEQUENTIAL_SLACK (4u << 20)   /* the kernel's own readahead asks a little out of order */
#define RUN_BYTES        (256u << 10) /* in the middle of a file: one read of a program may come as several */
#define RUN_OF_SMALL     (48u << 10)  /* of many files: what is read beyond is a segment, so a few are not enough */
#define IDLE_DROP_US     3000000
#define PRESSURE_DROP_US 100000
#define OFFERS           6 /* that are asked of peers at once, or they would keep what is wanted waiting */

static bool try_ref (void *user)
{
    EcfsReader *self = user;
    unsigned references = atomic_load (&self->references);
    while (references > 0)
        if (atomic_compare_exchange_weak (&self->references, &references, references + 1))
            return true;
    return false;
}

static void unref (void *user)
{
    ecfs_reader_unref_priv (user);
}

/* Whether a lane that failed has rested long enough to be asked again. */
static bool end_rests_locked (EcfsFetch *fetch, int64_t now) ECFS_REQUIRES (fetch->reader->lock)
{
    bool ended = false;
    for (unsigned i = 0; i < fetch->reader->n; i++) {
        EcfsFetchSlot *slot = &fetch->slots[i];
        if (slot->retry_us == 0 || slot->retry_us > now)
            continue;
        slot->retry_us = 0;
        ended = true;
    }
    return ended;
}

/* Whether somebody reads, or waits for what reading has come to. */
static bool is_read_locked (const EcfsReader *self, int64_t now_us) ECFS_REQUIRES (self->lock)
{
    bool is_read = now_us - self->asked_us <= IDLE_DROP_US;
    for (guint i = 0; i < self->fetches->len && !is_read; i++) {
        const EcfsFetch *fetch = g_ptr_array_index (self->fetches, i);
        is_read = fetch->waiting->len > 0;
    }
    return is_read;
}

/* What was read ahead is not idle while those wait who will come to it. */
static bool droppable_locked (const EcfsReader *self, const EcfsFetch *fetch, int64_t now_us, bool pressure,
                              bool is_read) ECFS_REQUIRES (self->lock)
{
    uint64_t next = self->next_offset / self->params.layout.segment_bytes;
    bool is_ahead = fetch->segment >= next && fetch->segment - next <= self->window;
    if (fetch->state != FETCH_READY || (is_ahead && is_read && !pressure))
        return false;
    return now_us - fetch->used_us > (pressure || fetch->wish == ECFS_PEER_SHARE ? PRESSURE_DROP_US : IDLE_DROP_US);
}

static void tick (void *user, int64_t now_us, bool pressure)
{
    EcfsReader *self = user;
    GPtrArray *finished = g_ptr_array_new ();
    ecfs_mutex_lock (&self->lock);
    bool active = false, is_read = is_read_locked (self, now_us);
    for (guint i = self->fetches->len; i-- > 0;) {
        EcfsFetch *fetch = g_ptr_array_index (self->fetches, i);
        ecfs_mutex_is_held (&fetch->reader->lock);
        active |= fetch->state == FETCH_RUNNING || fetch->state == FETCH_LOOKING;
        if (droppable_locked (self, fetch, now_us, pressure, is_read))
            ecfs_fetch_unlist_locked (fetch);
    }
    bool moved = active && ecfs_lanes_refresh_locked (self, now_us);
    for (guint i = 0; i < self->fetches->len; i++) {
        EcfsFetch *fetch = g_ptr_array_index (self->fetches, i);
        ecfs_mutex_is_held (&fetch->reader->lock);
        moved |= ecfs_lanes_find_stalls_locked (fetch, now_us);
        moved |= end_rests_locked (fetch, now_us);
        moved |= ecfs_fetch_give_up_locked (fetch, now_us);
        moved |= ecfs_fetch_is_late_locked (fetch, now_us);
    }
    if (moved)
        ecfs_reader_schedule_locked (self, finished);
    if (is_read && !pressure)
        ecfs_reader_share_locked (self, now_us, finished);
    ecfs_mutex_unlock (&self->lock);
    ecfs_requests_finish (finished);
}

EcfsReader *ecfs_reader_new (const EcfsReaderParams *params)
{
    EcfsReader *self = g_new0 (EcfsReader, 1);
    atomic_init (&self->references, 1);
    ecfs_mutex_init (&self->lock);
    self->params = *params;
    self->made_us = ecfs_now_us ();
    self->params.keys = ecfs_seal_keys_ref (params->keys);
    assert (params->unchecked ||
            params->layout.tag_bytes == ecfs_tag_bytes (&(EcfsTagger){.mac = ecfs_seal_tag_mac (params->keys)}));
    self->n = ecfs_codec_n (params->codec);
    self->stripes = g_memdup2 (params->stripes, self->n * sizeof self->stripes[0]);
    self->lanes = g_new0 (EcfsLane, self->n);
    self->fetches = g_ptr_array_new ();
    self->plans = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, (GDestroyNotify) ecfs_plan_free);
    self->claims = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    self->n_at_once = 2;
    self->awaiting = g_ptr_array_new ();
    self->next_offset = UINT64_MAX;
    self->run_enough = RUN_BYTES;
    self->params.stripes = self->stripes;
    ecfs_mutex_lock (&self->lock);
    (void) ecfs_lanes_refresh_locked (self, ecfs_now_us ()); /* nothing is asked yet */
    ecfs_mutex_unlock (&self->lock);
    EcfsTicking ticking = {.tick = tick, .try_ref = try_ref, .unref = unref, .user = self};
    ecfs_transfer_add_ticking (params->transfer, &ticking);
    return self;
}

EcfsReader *ecfs_reader_ref_priv (EcfsReader *self)
{
    atomic_fetch_add (&self->references, 1);
    return self;
}

void ecfs_reader_unref_priv (EcfsReader *self)
{
    if (atomic_fetch_sub (&self->references, 1) > 1)
        return;
    ecfs_transfer_remove_ticking (self->params.transfer, self);
    ecfs_mutex_lock (&self->lock);
    while (self->fetches->len > 0) {
        EcfsFetch *fetch = g_ptr_array_index (self->fetches, 0);
        ecfs_mutex_is_held (&fetch->reader->lock);
        ecfs_fetch_unlist_locked (fetch);
    }
    ecfs_mutex_unlock (&self->lock);
    g_ptr_array_unref (self->fetches);
    g_hash_table_unref (self->plans);
    g_hash_table_unref (self->claims);
    g_ptr_array_unref (self->awaiting);
    if (self->chain != NULL)
        g_byte_array_unref (self->chain);
    g_free (self->lanes);
    g_free (self->stripes);
    ecfs_seal_keys_unref (self->params.keys);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

void ecfs_reader_expect_all (EcfsReader *self)
{
    ecfs_mutex_lock (&self->lock);
    self->expects_all = true;
    self->next_offset = 0;
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_reader_expect_neighbours (EcfsReader *self)
{
    self->run_enough = RUN_OF_SMALL;
}

void ecfs_reader_close (EcfsReader *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->closed = true;
    for (guint i = self->fetches->len; i-- > 0;) {
        EcfsFetch *fetch = g_ptr_array_index (self->fetches, i);
        ecfs_mutex_is_held (&fetch->reader->lock);
        if (fetch->state == FETCH_READY)
            ecfs_fetch_unlist_locked (fetch);
        else if ((fetch->state == FETCH_RUNNING || fetch->state == FETCH_LOOKING) && fetch->waiting->len == 0)
            ecfs_fetch_abandon_locked (fetch);
    }
    ecfs_mutex_unlock (&self->lock);
    ecfs_reader_unref_priv (self);
}

static void add_piece (GArray *iov, uint8_t *bytes, size_t size)
{
    struct iovec piece = {.iov_base = bytes, .iov_len = size};
    g_array_append_val (iov, piece);
}

/* The pieces of content bytes [from, to) of a fetch's segment that lie in packets the fetch has. */
static void add_pieces (GArray *iov, const EcfsFetch *fetch, uint32_t from, uint32_t to)
{
    uint32_t packet_bytes = ecfs_layout_packet_bytes (&fetch->reader->params.layout, fetch->segment);
    while (from < to) {
        uint32_t bytes;
        uint8_t *at = ecfs_fetch_bytes_at (fetch, from / packet_bytes, from % packet_bytes, &bytes);
        bytes = MIN (bytes, to - from);
        add_piece (iov, at, bytes);
        from += bytes;
    }
}

/* The part of a request that a fetch serves, as content bytes of its segment. */
static void request_part (const Request *request, const EcfsFetch *fetch, uint32_t *ret_from, uint32_t *ret_to)
{
    const EcfsLayout *layout = &fetch->reader->params.layout;
    uint64_t start = fetch->segment * layout->segment_bytes;
    uint64_t from = MAX (request->offset, start);
    uint64_t to = MIN (request->offset + request->size, start + ecfs_layout_content_bytes (layout, fetch->segment));
    if (!fetch->whole) {
        uint32_t packet_bytes = ecfs_layout_packet_bytes (layout, fetch->segment);
        unsigned packet = 0;
        while (!fetch->wanted[packet])
            packet++;
        from = MAX (from, start + (uint64_t) packet * packet_bytes);
        to = MIN (to, start + (uint64_t) (packet + 1) * packet_bytes);
    }
    *ret_from = (uint32_t) (from - start);
    *ret_to = (uint32_t) (to - start);
}

static void answer (Request *request)
{
    if (request->rebuilt != NULL) {
        const EcfsFetch *fetch = g_ptr_array_index (request->fetches, 0);
        request->rebuilt (request->user, fetch->out, request->error);
        return;
    }
    if (request->error != NULL) {
        request->done (request->user, NULL, 0, request->error);
        return;
    }
    GArray *iov = request->iov;
    for (guint i = 0; i < request->fetches->len; i++) {
        uint32_t from, to;
        EcfsFetch *fetch = g_ptr_array_index (request->fetches, i);
        request_part (request, fetch, &from, &to);
        ecfs_fetch_open (fetch);
        add_pieces (iov, fetch, from, to);
    }
    request->done (request->user, (struct iovec *) (void *) iov->data, (int) iov->len, NULL);
}

static void leave_fetches_locked (Request *request) ECFS_REQUIRES (request->reader->lock)
{
    int64_t now = ecfs_now_us ();
    for (guint i = 0; i < request->fetches->len; i++) {
        EcfsFetch *fetch = g_ptr_array_index (request->fetches, i);
        ecfs_mutex_is_held (&fetch->reader->lock);
        fetch->used_us = now;
        if (!fetch->whole)
            ecfs_fetch_unlist_locked (fetch); /* the kernel's page cache has it now */
        ecfs_fetch_unref_locked (fetch);
    }
    g_ptr_array_set_size (request->fetches, 0);
}

static void request_free (Request *request)
{
    EcfsReader *reader = request->reader;
    ecfs_mutex_lock (&reader->lock);
    ecfs_mutex_is_held (&request->reader->lock);
    leave_fetches_locked (request);
    ecfs_mutex_unlock (&reader->lock);
    g_ptr_array_unref (request->fetches);
    g_array_unref (request->iov);
    g_clear_error (&request->error);
    ecfs_reader_unref_priv (reader);
    g_free (request);
}

/* Whether it failed for the sake of more than was asked for: of a segment that cannot be decoded, parts may be there.
 * Who rebuilds wants all of it. */
static bool wanted_less (const Request *request)
{
    if (request->error == NULL || request->rebuilt != NULL || request->in_pieces || request->was_small)
        return false;
    for (guint i = 0; i < request->fetches->len; i++) {
        const EcfsFetch *fetch = g_ptr_array_index (request->fetches, i);
        uint32_t from, to;
        if (!fetch->whole || fetch->error == NULL)
            continue;
        request_part (request, fetch, &from, &to);
        return to - from < ecfs_layout_content_bytes (&fetch->reader->params.layout, fetch->segment);
    }
    return false;
}

/* Whether more may be there than what was asked for and failed: peers give whole segments only. */
static bool wanted_more (const Request *request)
{
    bool is_part = false;
    if (request->error == NULL || request->rebuilt != NULL || request->in_pieces || request->was_small ||
        !ecfs_reader_has_peers (request->reader) || !ecfs_peers_any (request->reader->params.peers))
        return false;
    for (guint i = 0; i < request->fetches->len; i++) {
        const EcfsFetch *fetch = g_ptr_array_index (request->fetches, i);
        is_part = is_part || (!fetch->whole && fetch->error != NULL);
    }
    return is_part;
}

static void read_again (Request *request, bool in_pieces);

void ecfs_requests_finish (GPtrArray *finished)
{
    for (guint i = 0; i < finished->len; i++) {
        Request *request = g_ptr_array_index (finished, i);
        bool less = wanted_less (request);
        if (less || wanted_more (request)) {
            read_again (request, less);
            continue;
        }
        bool borrowed = request->borrowed;
        answer (request); /* who borrowed may give it back at once */
        if (!borrowed)
            request_free (request);
    }
    g_ptr_array_unref (finished);
}

EcfsFetch *ecfs_reader_covering_locked (const EcfsReader *self, uint64_t segment, int packet, uint32_t block_lo,
                                        uint32_t block_hi)
{
    for (guint i = 0; i < self->fetches->len; i++) {
        EcfsFetch *fetch = g_ptr_array_index (self->fetches, i);
        if (!fetch->patient && fetch->segment == segment && fetch->block_lo <= block_lo &&
            fetch->block_hi >= block_hi && (fetch->whole || (packet >= 0 && fetch->wanted[packet])))
            return fetch;
    }
    return NULL;
}

static void list_locked (EcfsReader *self, EcfsFetch *fetch) ECFS_REQUIRES (self->lock)
{
    fetch->listed = true;
    g_ptr_array_add (self->fetches, fetch);
}

static EcfsFetch *list_new_locked (EcfsReader *self, uint64_t segment, int packet, uint32_t block_lo, uint32_t block_hi)
    ECFS_REQUIRES (self->lock)
{
    EcfsFetch *fetch = ecfs_fetch_new (self, segment, packet, block_lo, block_hi);
    list_locked (self, fetch);
    return fetch;
}

static void wait_for_locked (Request *request, EcfsFetch *fetch) ECFS_REQUIRES (fetch->reader->lock)
{
    ecfs_fetch_ref_locked (fetch);
    fetch->wish = ECFS_PEER_WANTED;
    g_ptr_array_add (request->fetches, fetch);
    if (fetch->state != FETCH_READY) {
        g_ptr_array_add (fetch->waiting, request);
        request->n_waiting++;
    }
}

/* Makes the request use a fetch that covers the blocks; a new one takes its part of the grant and goes to @begin. */
static void use_locked (Request *request, uint64_t segment, int packet, uint32_t block_lo, uint32_t block_hi,
                        void *begin) ECFS_REQUIRES (request->reader->lock)
{
    EcfsReader *self = request->reader;
    ecfs_mutex_is_held (&self->lock);
    EcfsFetch *fetch = ecfs_reader_covering_locked (self, segment, packet, block_lo, block_hi);
    if (fetch == NULL) {
        fetch = list_new_locked (self, segment, packet, block_lo, block_hi);
        request->granted_bytes -= fetch->granted_bytes;
        g_ptr_array_add (begin, fetch);
    }
    ecfs_mutex_is_held (&fetch->reader->lock);
    wait_for_locked (request, fetch);
}

/* Called with what one fetch is to cover; packet -1 is the whole segment. */
typedef void (*PieceFunc) (Request *request, uint64_t segment, int packet, uint32_t block_lo, uint32_t block_hi,
                           void *user);

/* Content bytes [from, to) of a segment as pieces: the whole segment, or just the blocks of each packet touched. */
static void split_segment_locked (Request *request, uint64_t segment, uint32_t from, uint32_t to, PieceFunc each,
                                  void *user) ECFS_REQUIRES (request->reader->lock)
{
    const EcfsLayout *layout = &request->reader->params.layout;
    uint32_t content = ecfs_layout_content_bytes (layout, segment);
    uint32_t packet_bytes = ecfs_layout_packet_bytes (layout, segment);
    uint32_t n_blocks = ecfs_layout_n_blocks (layout, segment);
    if (!request->in_pieces && (request->sequential || to - from >= content / 4 ||
                                ecfs_reader_covering_locked (request->reader, segment, -1, 0, n_blocks) != NULL)) {
        each (request, segment, -1, 0, n_blocks, user);
        return;
    }
    for (uint32_t packet = from / packet_bytes; packet * packet_bytes < to; packet++) {
        uint32_t start = packet * packet_bytes;
        uint32_t lo = MAX (from, start) - start;
        uint32_t hi = MIN (to, start + packet_bytes) - start;
        each (request, segment, (int) packet, lo / layout->block_bytes,
              (hi + layout->block_bytes - 1) / layout->block_bytes, user);
    }
}

/* Whether what was read since the last jump is the content's beginning, or most of a stretch that is worth more. */
static bool is_run_locked (const EcfsReader *self) ECFS_REQUIRES (self->lock)
{
    return self->run_from == 0 ||
           (self->run_bytes >= self->run_enough && self->run_bytes >= (self->next_offset - self->run_from) / 2);
}

/* Notes the read and returns whether it continues sequential reading. */
static bool note_locked (EcfsReader *self, uint64_t offset, size_t size) ECFS_REQUIRES (self->lock)
{
    uint64_t next = self->next_offset;
    self->asked_us = ecfs_now_us ();
    bool near = next != UINT64_MAX && offset <= next + SEQUENTIAL_SLACK && offset + SEQUENTIAL_SLACK >= next &&
                (offset > 0 || self->expects_all);
    if (!near) {
        self->window = 0;
        self->shared_us = self->asked_us;
        g_hash_table_remove_all (self->claims);
        self->run_from = offset;
        self->run_bytes = size;
        self->next_offset = offset + size;
        return false;
    }
    self->run_bytes += size;
    if (!is_run_locked (self)) {
        self->next_offset = MAX (next, offset + size);
        return false;
    }
    uint64_t segment_bytes = self->params.layout.segment_bytes;
    uint64_t passed = (offset + size) / segment_bytes - MIN (offset + size, next) / segment_bytes;
    uint64_t bytes = MIN (ecfs_reader_reach_locked (self), ecfs_transfer_memory (self->params.transfer) / 4);
    uint64_t most = MAX (bytes / segment_bytes, 1);
    self->window = ecfs_grow_window (self->window, passed, most);
    self->next_offset = MAX (next, offset + size);
    return true;
}

static void begin_locked (EcfsFetch *fetch, GPtrArray *finished) ECFS_REQUIRES (fetch->reader->lock)
{
    ecfs_fetch_ref_locked (fetch);
    ecfs_fetch_look_locked (fetch);
    ecfs_fetch_schedule_locked (fetch, finished);
    ecfs_fetch_unref_locked (fetch);
}

void ecfs_reader_begin_locked (EcfsReader *self, uint64_t segment, EcfsPeerWish wish, GPtrArray *finished)
{
    EcfsFetch *fetch = list_new_locked (self, segment, -1, 0, ecfs_layout_n_blocks (&self->params.layout, segment));
    ecfs_mutex_is_held (&fetch->reader->lock);
    fetch->wish = wish;
    begin_locked (fetch, finished);
}

static unsigned n_offers_locked (const EcfsReader *self) ECFS_REQUIRES (self->lock)
{
    unsigned n = 0;
    for (guint i = 0; i < self->fetches->len; i++) {
        const EcfsFetch *fetch = g_ptr_array_index (self->fetches, i);
        ecfs_mutex_is_held (&fetch->reader->lock);
        n += fetch->wish == ECFS_PEER_OFFER && fetch->state == FETCH_LOOKING;
    }
    return n;
}

/* Begins the segments in the window ahead, as long as there is memory that nobody waits for. */
static void read_ahead_locked (EcfsReader *self, GPtrArray *finished) ECFS_REQUIRES (self->lock)
{
    const EcfsLayout *layout = &self->params.layout;
    uint64_t segment = self->next_offset / layout->segment_bytes;
    uint64_t near = segment + ecfs_reader_window_locked (self);
    uint64_t end = MIN (segment + self->window + 1, ecfs_layout_n_segments (layout));
    for (unsigned n_offers = n_offers_locked (self); segment < end; segment++) {
        uint32_t n_blocks = ecfs_layout_n_blocks (layout, segment);
        EcfsPeerWish wish = segment <= near ? ECFS_PEER_WANTED : ECFS_PEER_OFFER;
        EcfsFetch *covering = ecfs_reader_covering_locked (self, segment, -1, 0, n_blocks);
        if (covering != NULL) {
            ecfs_mutex_is_held (&covering->reader->lock);
            covering->wish = segment <= near ? wish : covering->wish;
            continue;
        }
        bool is_offer = wish == ECFS_PEER_OFFER;
        n_offers += is_offer;
        if ((is_offer && (n_offers > OFFERS || ecfs_reader_is_refused_locked (self, wish))) ||
            !ecfs_transfer_try_acquire (self->params.transfer, ecfs_fetch_bytes (self, segment, true, 0, n_blocks)))
            return;
        ecfs_reader_begin_locked (self, segment, wish, finished);
    }
}

/* Lets go of segments that sequential reading has passed. */
static void drop_passed_locked (EcfsReader *self) ECFS_REQUIRES (self->lock)
{
    for (guint i = self->fetches->len; i-- > 0;) {
        EcfsFetch *fetch = g_ptr_array_index (self->fetches, i);
        uint64_t end = (fetch->segment + 1) * self->params.layout.segment_bytes;
        ecfs_mutex_is_held (&fetch->reader->lock);
        if (fetch->state == FETCH_READY && end + SEQUENTIAL_SLACK <= self->next_offset)
            ecfs_fetch_unlist_locked (fetch);
    }
}

static void split_locked (Request *request, PieceFunc each, void *user) ECFS_REQUIRES (request->reader->lock)
{
    const EcfsLayout *layout = &request->reader->params.layout;
    uint64_t at = request->offset;
    uint64_t end = request->offset + request->size;
    while (at < end) {
        uint64_t segment = at / layout->segment_bytes;
        uint64_t start = segment * layout->segment_bytes;
        uint64_t stop = MIN (end, start + layout->segment_bytes);
        split_segment_locked (request, segment, (uint32_t) (at - start), (uint32_t) (stop - start), each, user);
        at = stop;
    }
}

/* The memory of a piece in the sum at @user, of which a present fetch may save it. */
typedef struct Need {
    size_t uncovered_bytes;
    size_t all_bytes;
} Need;

static void add_need_locked (Request *request, uint64_t segment, int packet, uint32_t block_lo, uint32_t block_hi,
                             void *user) ECFS_REQUIRES (request->reader->lock)
{
    Need *need = user;
    size_t bytes = ecfs_fetch_bytes (request->reader, segment, packet < 0, block_lo, block_hi);
    need->all_bytes += bytes;
    if (ecfs_reader_covering_locked (request->reader, segment, packet, block_lo, block_hi) == NULL)
        need->uncovered_bytes += bytes;
}

/* With memory for all that no present fetch covers: begins, and gives back what was not needed after all. */
static void serve_locked (Request *request, GPtrArray *finished) ECFS_REQUIRES (request->reader->lock)
{
    EcfsReader *self = request->reader;
    ecfs_mutex_is_held (&self->lock);
    g_autoptr (GPtrArray) begin = g_ptr_array_new ();
    request->n_waiting = 1; /* this call itself */
    split_locked (request, use_locked, begin);
    if (request->granted_bytes > 0)
        ecfs_transfer_release (self->params.transfer, request->granted_bytes);
    for (guint i = 0; i < begin->len; i++) {
        EcfsFetch *fetch = g_ptr_array_index (begin, i);
        ecfs_mutex_is_held (&fetch->reader->lock);
        begin_locked (fetch, finished);
    }
    if (request->sequential) {
        drop_passed_locked (self);
        read_ahead_locked (self, finished);
    }
    if (--request->n_waiting == 0)
        g_ptr_array_add (finished, request);
}

static void request_granted (void *user)
{
    Request *request = user;
    EcfsReader *self = ecfs_reader_ref_priv (request->reader);
    GPtrArray *finished = g_ptr_array_new ();
    ecfs_mutex_lock (&self->lock);
    ecfs_mutex_is_held (&request->reader->lock);
    serve_locked (request, finished);
    ecfs_mutex_unlock (&self->lock);
    ecfs_requests_finish (finished);
    ecfs_reader_unref_priv (self);
}

/* Whether the request has the memory that it needs now; otherwise request_granted () follows. */
static bool acquire_locked (Request *request) ECFS_REQUIRES (request->reader->lock)
{
    EcfsTransferPool *transfer = request->reader->params.transfer;
    Need need = {0};
    split_locked (request, add_need_locked, &need);
    request->granted_bytes = need.uncovered_bytes;
    if (need.uncovered_bytes == 0 || ecfs_transfer_try_acquire (transfer, need.uncovered_bytes))
        return true;
    /* What covers a piece now may be gone by then. */
    request->granted_bytes = need.all_bytes;
    return ecfs_transfer_acquire (transfer, need.all_bytes, request_granted, request);
}

static Request *request_new (EcfsReader *self, void *user)
{
    Request *request = g_new0 (Request, 1);
    request->reader = ecfs_reader_ref_priv (self);
    request->user = user;
    request->fetches = g_ptr_array_new ();
    request->iov = g_array_new (FALSE, FALSE, sizeof (struct iovec));
    return request;
}

static void begin_read (Request *request)
{
    EcfsReader *self = request->reader; /* the caller's: with its answer the request may be gone */
    GPtrArray *finished = g_ptr_array_new ();
    ecfs_mutex_lock (&self->lock);
    ecfs_mutex_is_held (&request->reader->lock);
    request->sequential = note_locked (self, request->offset, request->size);
    if (acquire_locked (request))
        serve_locked (request, finished);
    ecfs_mutex_unlock (&self->lock);
    ecfs_requests_finish (finished);
}

/* Once more, without what it need not have. */
static void read_again (Request *request, bool in_pieces)
{
    EcfsReader *self = request->reader;
    GPtrArray *finished = g_ptr_array_new ();
    ecfs_mutex_lock (&self->lock);
    ecfs_mutex_is_held (&request->reader->lock);
    leave_fetches_locked (request);
    g_clear_error (&request->error);
    request->sequential = !in_pieces; /* whole segments */
    request->in_pieces = in_pieces;
    request->was_small = !in_pieces;
    if (acquire_locked (request))
        serve_locked (request, finished);
    ecfs_mutex_unlock (&self->lock);
    ecfs_requests_finish (finished);
}

static Request *read_new (EcfsReader *self, uint64_t offset, size_t size, EcfsReaderDone done, void *user)
{
    Request *request = request_new (self, user);
    request->offset = offset;
    request->size = size;
    request->done = done;
    return request;
}

void ecfs_reader_read (EcfsReader *self, uint64_t offset, size_t size, EcfsReaderDone done, void *user)
{
    begin_read (read_new (self, offset, size, done, user));
}

EcfsLoan *ecfs_reader_borrow (EcfsReader *self, uint64_t offset, size_t size, EcfsReaderDone done, void *user)
{
    Request *request = read_new (self, offset, size, done, user);
    request->borrowed = true;
    begin_read (request);
    return request;
}

void ecfs_loan_return (EcfsLoan *loan)
{
    if (loan != NULL)
        request_free (loan);
}

size_t ecfs_reader_rebuild_bytes (const EcfsReader *self, uint64_t segment)
{
    return ecfs_fetch_bytes (self, segment, true, 0, ecfs_layout_n_blocks (&self->params.layout, segment));
}

void ecfs_reader_rebuild (EcfsReader *self, uint64_t segment, const bool *wanted, EcfsReaderRebuilt done, void *user)
{
    Request *request = request_new (self, user);
    request->rebuilt = done;
    GPtrArray *finished = g_ptr_array_new ();
    ecfs_mutex_lock (&self->lock);
    EcfsFetch *fetch = ecfs_fetch_new_rebuild (self, segment, wanted);
    list_locked (self, fetch);
    ecfs_mutex_is_held (&fetch->reader->lock);
    wait_for_locked (request, fetch);
    begin_locked (fetch, finished);
    ecfs_mutex_unlock (&self->lock);
    ecfs_requests_finish (finished);
}

uint64_t ecfs_reader_received_bytes (EcfsReader *self)
{
    ecfs_mutex_lock (&self->lock);
    uint64_t bytes = self->received_bytes;
    ecfs_mutex_unlock (&self->lock);
    return bytes;
}
