/*
 * Segments from the cache, or a peer's, and into it: as stripes have them, enciphered where the object is, each check
 * block with its tag. So the cache is believed no more than an endpoint. A peer, who could make the tags, is believed
 * less: what it gives is compared with the object's chain as well (chain.h), and until that is there it is not asked.
 */
#include "object/chain.h"
#include "object/reader_priv.h"

#include <string.h>

#define LOOK_US       150000  /* endpoints are asked then, if there is no answer of the cache */
#define LONG_LOOK_US  600000  /* … or then, where peers read from the same endpoints */
#define CHAIN_LOOK_US 2500000 /* … while what these give cannot be judged yet: it is less than a segment */
#define PEER_SPARE_US 500000  /* that peers may take beyond … */
#define PEER_TIMES    2       /* … so many times what endpoints would */
#define OUTLOOK_US    250000  /* how often that is looked at */
#define CHAIN_REST_US 10000000

/* A look that is under way. Holds a reference to the reader, and one to its fetch, which may be given up before the
 * look's turn comes: then it keeps nothing from others while the disk hangs. */
struct EcfsFetchLook {
    EcfsCacheLook look; /* first */
    EcfsReader *reader;
    EcfsFetch *fetch;     /* NULL: nobody wants it any more; guarded by reader lock, and stays once it has begun */
    bool has_begun;       /* guarded by reader lock */
    unsigned *packets;    /* which each range is of */
    bool has_memory;      /* all ranges have; the thread's that is asked */
    bool awaits_chain;    /* guarded by reader lock */
    bool asks_peers;      /* the cache had it not; guarded by reader lock, like the next */
    size_t granted_bytes; /* for the memory of all ranges, while peers are asked */
    int64_t outlook_us;   /* when what endpoints would take was looked at */
    int64_t missed_us;    /* the processor, when it was made */
    EcfsPeerLook peers;
    const GByteArray *chain; /* the reader's, where peers are asked for bytes */
};
typedef struct EcfsFetchLook Look;

static unsigned n_wanted (const EcfsFetch *self)
{
    unsigned n = 0;
    for (unsigned i = 0; i < self->reader->params.layout.k; i++)
        n += self->wanted[i];
    return n;
}

static EcfsCacheCell cell_of (const EcfsFetch *self)
{
    return (EcfsCacheCell){.object = self->reader->params.object, .segment = self->segment};
}

/* In a cell the packets of a segment follow one another. */
static EcfsCacheRange range_of (const EcfsFetch *self, unsigned packet)
{
    const EcfsLayout *layout = &self->reader->params.layout;
    uint64_t within = ecfs_layout_block_offset (layout, self->segment, self->block_lo) -
                      ecfs_layout_block_offset (layout, self->segment, 0);
    return (EcfsCacheRange){.offset = (uint64_t) packet * ecfs_layout_stored_bytes (layout, self->segment) + within,
                            .size = self->slot_bytes};
}

/* Looking */

static bool begin (EcfsCacheLook *cache_look)
{
    Look *look = (Look *) cache_look;
    EcfsReader *reader = look->reader;
    ecfs_mutex_lock (&reader->lock);
    bool has_memory = look->has_memory; /* of the cache, which was asked before */
    look->has_memory = look->has_begun = look->fetch != NULL;
    ecfs_mutex_unlock (&reader->lock);
    if (has_memory)
        return true;
    for (unsigned i = 0; i < look->look.n_ranges && look->has_memory; i++)
        look->look.ranges[i].bytes = ecfs_transfer_buffer_take (reader->params.transfer, look->look.ranges[i].size);
    return look->has_memory;
}

static bool is_zero (const uint8_t *bytes, size_t size)
{
    return bytes[0] == 0 && memcmp (bytes, bytes + 1, size - 1) == 0;
}

/* A peer gives the packets from the first to the last: all of them are there with that one. */
static bool fits_chain (const Look *look, unsigned range)
{
    const EcfsReaderParams *params = &look->reader->params;
    const uint8_t *packets[ECFS_CODEC_MAX_N];
    if (look->chain == NULL || range + 1 < look->look.n_ranges)
        return true;
    for (unsigned i = 0; i < look->look.n_ranges; i++)
        packets[i] = look->look.ranges[i].bytes;
    return ecfs_chain_fits (look->chain, &params->layout, params->keys, look->look.cell.segment, packets);
}

/* A block that was never filled in is zeros with its tag, which no block that was stored is. */
static EcfsCacheVerdict judge (EcfsCacheLook *cache_look, unsigned range)
{
    Look *look = (Look *) cache_look;
    const EcfsFetch *fetch = look->fetch;
    const EcfsLayout *layout = &fetch->reader->params.layout;
    const EcfsTagger tagger = ecfs_reader_tagger (&fetch->reader->params);
    const uint8_t *at = look->look.ranges[range].bytes;
    uint32_t end = MIN (fetch->block_hi, ecfs_layout_n_blocks (layout, fetch->segment));
    for (uint32_t block = fetch->block_lo; block < end; block++) {
        uint32_t bytes = ecfs_layout_block_bytes (layout, fetch->segment, block);
        uint64_t number = ecfs_layout_block_number (layout, fetch->segment, block);
        if (!ecfs_tag_fits (&tagger, look->packets[range], number, at, bytes, at + bytes))
            return is_zero (at, bytes + layout->tag_bytes) ? ECFS_CACHE_ABSENT : ECFS_CACHE_WRONG;
        at += bytes + layout->tag_bytes;
    }
    return fits_chain (look, range) ? ECFS_CACHE_FITS : ECFS_CACHE_WRONG;
}

/* What was read, or only the memory for it, becomes that of the fetch's slots. */
static void give_memory_locked (Look *look, bool found) ECFS_REQUIRES (look->fetch->reader->lock)
{
    for (unsigned i = 0; i < look->look.n_ranges; i++) {
        EcfsFetchSlot *slot = &look->fetch->slots[look->packets[i]];
        slot->buffer = g_steal_pointer (&look->look.ranges[i].bytes);
        slot->arrived = found;
    }
    look->has_memory = false;
}

static void look_free (Look *look)
{
    EcfsTransferPool *transfer = look->reader->params.transfer;
    for (unsigned i = 0; i < look->look.n_ranges && look->has_memory; i++)
        ecfs_transfer_buffer_give (transfer, look->look.ranges[i].bytes, look->look.ranges[i].size);
    ecfs_transfer_release (transfer, look->granted_bytes);
    g_free (look->look.ranges);
    g_free (look->packets);
    g_free (look);
}

/* What is found, or not, becomes of the fetch what it becomes. */
static void answer_locked (Look *look, bool found, GPtrArray *finished) ECFS_REQUIRES (look->fetch->reader->lock)
{
    EcfsFetch *fetch = look->fetch;
    EcfsReader *reader = fetch->reader;
    ecfs_mutex_is_held (&fetch->reader->lock);
    bool waits = fetch->state == FETCH_LOOKING;
    fetch->look = NULL;
    if (waits && look->has_memory)
        give_memory_locked (look, found);
    if (waits && found) {
        ecfs_read_log_count (reader->params.log,
                             &(EcfsReadCounts){.cached = 1, .cached_bytes = fetch->slot_bytes * n_wanted (fetch)});
        ecfs_fetch_came_cached_locked (fetch, finished);
    } else if (waits && fetch->wish != ECFS_PEER_WANTED) { /* peers could not be asked */
        ecfs_fetch_abandon_locked (fetch);
    } else if (waits) {
        fetch->state = FETCH_RUNNING;
        ecfs_fetch_schedule_locked (fetch, finished);
    }
    ecfs_fetch_unref_locked (fetch);
}

/* What is wanted here meanwhile is asked for as anything else is. */
static void refused_locked (const Look *look, GPtrArray *finished) ECFS_REQUIRES (look->fetch->reader->lock)
{
    EcfsFetch *fetch = look->fetch;
    ecfs_mutex_is_held (&fetch->reader->lock);
    fetch->look = NULL;
    ecfs_peers_settle (fetch->reader->params.peers, &look->look.cell);
    ecfs_reader_refused_locked (fetch->reader, look->peers.wish);
    if (fetch->state == FETCH_LOOKING && fetch->wish != ECFS_PEER_WANTED) {
        ecfs_fetch_abandon_locked (fetch);
    } else if (fetch->state == FETCH_LOOKING) {
        fetch->state = FETCH_RUNNING;
        ecfs_fetch_look_locked (fetch);
    }
    ecfs_fetch_schedule_locked (fetch, finished); /* endpoints were asked meanwhile, and may have failed */
    ecfs_fetch_unref_locked (fetch);
}

/* The memory becomes the fetch's, with its grant. */
static void answer_of_peers_locked (Look *look, bool found, GPtrArray *finished)
    ECFS_REQUIRES (look->fetch->reader->lock)
{
    EcfsFetch *fetch = look->fetch;
    ecfs_mutex_is_held (&fetch->reader->lock);
    bool waits = fetch->state == FETCH_LOOKING;
    bool is_over = fetch->state == FETCH_READY || fetch->state == FETCH_FAILED;
    fetch->look = NULL;
    if (atomic_load (&look->peers.is_shared))
        ecfs_reader_note_sign_locked (fetch->reader, ecfs_now_us ());
    if (is_over)
        ecfs_peers_settle (fetch->reader->params.peers, &look->look.cell);
    else
        fetch->is_claimed = true;
    if (found && (waits || fetch->state == FETCH_RUNNING)) {
        for (unsigned i = 0; i < look->look.n_ranges; i++)
            fetch->decoded[look->packets[i]] = g_steal_pointer (&look->look.ranges[i].bytes);
        look->has_memory = false;
        fetch->granted_bytes += look->granted_bytes;
        look->granted_bytes = 0;
        ecfs_fetch_came_from_peer_locked (fetch, finished);
    } else if (!is_over) { /* endpoints were asked meanwhile, and may have failed */
        fetch->state = waits ? FETCH_RUNNING : fetch->state;
        ecfs_fetch_schedule_locked (fetch, finished);
    }
    ecfs_fetch_unref_locked (fetch);
}

bool ecfs_reader_has_peers (const EcfsReader *self)
{
    const EcfsReaderParams *params = &self->params;
    return params->peers != NULL && params->keys != NULL && params->cache != NULL && params->fills_cache &&
           !params->unchecked;
}

/* All of a segment, with a tag that nobody can make who has not the key. */
static bool is_for_peers_locked (EcfsReader *reader, const Look *look) ECFS_REQUIRES (reader->lock)
{
    const EcfsFetch *fetch = look->fetch;
    const EcfsReaderParams *params = &reader->params;
    return ecfs_reader_has_peers (reader) && fetch != NULL && fetch->whole && fetch->state == FETCH_LOOKING &&
           look->has_memory == look->has_begun &&
           fetch->slot_bytes == ecfs_layout_stored_bytes (&params->layout, fetch->segment);
}

/* Whether peers are asked for what the cache has not; the look may have ended then. */
static bool ask_peers_locked (EcfsReader *reader, Look *look) ECFS_REQUIRES (reader->lock)
{
    if (!is_for_peers_locked (reader, look))
        return false;
    EcfsPeerWish wish = look->fetch->wish;
    size_t bytes = wish == ECFS_PEER_SHARE ? 0 : look->fetch->slot_bytes * look->look.n_ranges;
    if (bytes > 0 && (reader->chain == NULL || !ecfs_transfer_try_acquire (reader->params.transfer, bytes)))
        return false;
    look->granted_bytes = bytes;
    look->chain = bytes > 0 ? reader->chain : NULL;
    look->peers.look = &look->look;
    look->peers.wish = wish;
    look->peers.asks_all = look->fetch->asks_all;
    look->asks_peers = ecfs_peers_look (reader->params.peers, &look->peers);
    return look->asks_peers;
}

/* Whether peers are asked later: what they give cannot be judged yet. */
static bool awaits_chain_locked (EcfsReader *reader, Look *look) ECFS_REQUIRES (reader->lock)
{
    if (!reader->seeks_chain || !is_for_peers_locked (reader, look) || look->fetch->wish == ECFS_PEER_SHARE)
        return false;
    look->awaits_chain = ecfs_peers_any (reader->params.peers);
    g_ptr_array_add (reader->awaiting, look);
    return true;
}

static void answered (EcfsCacheLook *cache_look, bool found)
{
    Look *look = (Look *) cache_look;
    EcfsReader *reader = look->reader;
    ecfs_mutex_lock (&reader->lock);
    bool of_peers = look->asks_peers;
    bool asks = !found && !of_peers && (awaits_chain_locked (reader, look) || ask_peers_locked (reader, look));
    ecfs_mutex_unlock (&reader->lock);
    if (asks)
        return;
    GPtrArray *finished = g_ptr_array_new ();
    ecfs_mutex_lock (&reader->lock);
    if (look->fetch != NULL) {
        ecfs_mutex_is_held (&look->fetch->reader->lock);
        bool is_refused = look->peers.wish != ECFS_PEER_WANTED && !found && !atomic_load (&look->peers.is_ours);
        if (of_peers && is_refused)
            refused_locked (look, finished);
        else if (of_peers)
            answer_of_peers_locked (look, found, finished);
        else
            answer_locked (look, found, finished);
    } else if (of_peers)
        ecfs_peers_settle (reader->params.peers, &look->look.cell);
    ecfs_mutex_unlock (&reader->lock);
    look_free (look);
    ecfs_requests_finish (finished);
    ecfs_reader_unref_priv (reader);
}

static Look *look_new_locked (EcfsFetch *fetch) ECFS_REQUIRES (fetch->reader->lock)
{
    EcfsReader *reader = fetch->reader;
    Look *self = g_new0 (Look, 1);
    self->reader = ecfs_reader_ref_priv (reader);
    self->fetch = fetch;
    self->missed_us = ecfs_now_us () - ecfs_own_us ();
    self->packets = g_new (unsigned, n_wanted (fetch));
    self->look = (EcfsCacheLook){.cell = cell_of (fetch),
                                 .ranges = g_new (EcfsCacheRange, n_wanted (fetch)),
                                 .begin = begin,
                                 .judge = judge,
                                 .done = answered};
    for (unsigned i = 0; i < reader->params.layout.k; i++) {
        if (!fetch->wanted[i])
            continue;
        self->packets[self->look.n_ranges] = i;
        self->look.ranges[self->look.n_ranges++] = range_of (fetch, i);
    }
    fetch->state = FETCH_LOOKING;
    fetch->look = self;
    ecfs_fetch_ref_locked (fetch);
    return self;
}

static void forget_look_locked (EcfsFetch *self) ECFS_REQUIRES (self->reader->lock)
{
    look_free (g_steal_pointer (&self->look));
    self->state = FETCH_RUNNING;
    ecfs_reader_unref_priv (self->reader); /* the caller has one of both */
    ecfs_fetch_unref_locked (self);
}

/* Without the cache, which has no time: endpoints are what all share. */
static bool ask_peers_at_once_locked (EcfsFetch *self) ECFS_REQUIRES (self->reader->lock)
{
    if (ask_peers_locked (self->reader, look_new_locked (self)))
        return true;
    forget_look_locked (self);
    return false;
}

bool ecfs_fetch_awaits_chain_locked (const EcfsFetch *self)
{
    return self->reader->seeks_chain && self->whole && self->wish == ECFS_PEER_WANTED && !self->patient &&
           !self->asks_all && ecfs_peers_any (self->reader->params.peers);
}

bool ecfs_fetch_ask_all_locked (EcfsFetch *self)
{
    ecfs_mutex_is_held (&self->reader->lock);
    if (self->asks_all || self->look != NULL || self->wish != ECFS_PEER_WANTED || self->patient ||
        self->reader->chain == NULL)
        return false;
    self->asks_all = true;
    ecfs_fetch_settle (self); /* of the time before */
    return ask_peers_at_once_locked (self);
}

static void chain_found (void *user, GByteArray *chain)
{
    EcfsReader *reader = user;
    ecfs_mutex_lock (&reader->lock);
    g_autoptr (GPtrArray) awaiting = g_steal_pointer (&reader->awaiting);
    reader->awaiting = g_ptr_array_new ();
    reader->chain = chain;
    reader->seeks_chain = false;
    reader->chain_rests_us = ecfs_now_us () + CHAIN_REST_US;
    ecfs_mutex_unlock (&reader->lock);
    for (guint i = 0; i < awaiting->len; i++)
        answered (g_ptr_array_index (awaiting, i), false); /* as the cache has answered */
    GPtrArray *finished = g_ptr_array_new ();
    ecfs_mutex_lock (&reader->lock);
    ecfs_reader_schedule_locked (reader, finished); /* what only waited for it */
    ecfs_mutex_unlock (&reader->lock);
    ecfs_requests_finish (finished);
    ecfs_reader_unref_priv (reader);
}

/* The SHA-256 of a single segment is all that there is to know. */
static void seek_chain_locked (EcfsReader *self) ECFS_REQUIRES (self->lock)
{
    const EcfsReaderParams *params = &self->params;
    if (!ecfs_reader_has_peers (self) || self->chain != NULL || self->seeks_chain ||
        self->chain_rests_us > ecfs_now_us ())
        return;
    if (params->has_sha256 && ecfs_layout_n_segments (&params->layout) == 1) {
        self->chain = g_byte_array_new ();
        g_byte_array_append (self->chain, params->sha256, sizeof params->sha256);
        return;
    }
    self->seeks_chain = ecfs_chain_seek (params, chain_found, ecfs_reader_ref_priv (self));
    if (self->seeks_chain)
        return;
    self->chain_rests_us = INT64_MAX;
    ecfs_reader_unref_priv (self); /* the caller has one */
}

void ecfs_fetch_look_locked (EcfsFetch *self)
{
    EcfsReader *reader = self->reader;
    if (reader->params.cache == NULL || self->patient || self->state != FETCH_RUNNING)
        return;
    ecfs_mutex_is_held (&reader->lock);
    seek_chain_locked (reader);
    Look *look = look_new_locked (self);
    self->looked_us = ecfs_own_us ();
    if (ecfs_cache_look (reader->params.cache, &look->look) || ask_peers_locked (self->reader, look))
        return;
    forget_look_locked (self);
    if (self->wish != ECFS_PEER_WANTED)
        ecfs_fetch_abandon_locked (self);
}

void ecfs_fetch_leave_look_locked (EcfsFetch *self)
{
    Look *look = self->look;
    if (look == NULL || look->has_begun)
        return;
    self->look = NULL;
    look->fetch = NULL;
    ecfs_fetch_unref_locked (self); /* as above */
}

bool ecfs_fetch_awaits_peers_locked (const EcfsFetch *self)
{
    return self->look != NULL && self->look->asks_peers;
}

bool ecfs_fetch_is_shared_locked (const EcfsFetch *self)
{
    return ecfs_fetch_awaits_peers_locked (self) && atomic_load (&self->look->peers.is_shared);
}

void ecfs_fetch_leave_peers_locked (EcfsFetch *self)
{
    if (ecfs_fetch_awaits_peers_locked (self))
        atomic_store (&self->look->peers.is_left, true);
}

/* Until endpoints would have given as many packets as the content has, if they were asked now. */
static int64_t endpoints_us_locked (EcfsFetch *self, int64_t now_us) ECFS_REQUIRES (self->reader->lock)
{
    int64_t soonest[ECFS_CODEC_MAX_N];
    EcfsCandidate lanes[ECFS_CODEC_MAX_N];
    unsigned n = 0, k = self->reader->params.layout.k;
    ecfs_fetch_outlook_locked (self, now_us, lanes);
    for (unsigned i = 0; i < self->reader->n; i++) {
        unsigned place = n;
        if (!lanes[i].stored || lanes[i].failed || lanes[i].down || lanes[i].spent)
            continue;
        for (; place > 0 && soonest[place - 1] > lanes[i].forecast_us; place--)
            soonest[place] = soonest[place - 1];
        soonest[place] = lanes[i].forecast_us;
        n++;
    }
    return n < k ? INT64_MAX / 4 : soonest[k - 1];
}

/* Late is what shows nothing, and what will take longer than from endpoints; it may still be first. */
static bool give_up_peers_locked (EcfsFetch *self, int64_t now_us) ECFS_REQUIRES (self->reader->lock)
{
    if (now_us - self->look->outlook_us >= OUTLOOK_US) {
        self->look->outlook_us = now_us;
        atomic_store (&self->look->peers.endpoints_us, MIN (endpoints_us_locked (self, now_us), INT64_MAX / 8));
    }
    int64_t left_us = atomic_load (&self->look->peers.due_us) - now_us;
    int64_t endpoints_us = atomic_load (&self->look->peers.endpoints_us);
    bool is_foretold = atomic_load (&self->look->peers.is_foretold);
    int64_t missed_us = now_us - ecfs_own_us () - self->look->missed_us; /* is nobody else's fault */
    /* What should have been here will take as long again. */
    if (is_foretold ? ABS (left_us) <= PEER_SPARE_US + PEER_TIMES * endpoints_us + missed_us : left_us + missed_us >= 0)
        return false;
    atomic_store (&self->look->peers.is_late, true);
    self->state = FETCH_RUNNING;
    return true;
}

bool ecfs_fetch_give_up_locked (EcfsFetch *self, int64_t now_us)
{
    if (self->wish != ECFS_PEER_WANTED && self->state == FETCH_LOOKING)
        return false;
    if (self->state == FETCH_LOOKING && ecfs_fetch_awaits_peers_locked (self))
        return give_up_peers_locked (self, now_us);
    bool may_ask_peers = self->whole && self->reader->params.peers != NULL;
    int64_t most_us = may_ask_peers ? LONG_LOOK_US : LOOK_US;
    if (self->look != NULL && self->look->awaits_chain)
        most_us = CHAIN_LOOK_US;
    if (self->state != FETCH_LOOKING || ecfs_own_us () - self->looked_us < most_us)
        return false;
    ecfs_fetch_leave_look_locked (self);
    if (self->look == NULL && may_ask_peers && ask_peers_at_once_locked (self))
        return false;
    self->state = FETCH_RUNNING;
    return true;
}

/* Filling */

/* A copy of what came, as it is stored: what was read is deciphered in place. */
typedef struct Offer {
    EcfsCacheFill fill; /* first */
    EcfsTransferPool *transfer;
    EcfsLayout layout;
    const EcfsSealKeys *keys; /* a reference */
    uint32_t block_lo, block_hi;
    unsigned *packets;
    bool *lacks_tags; /* it was decoded */
    size_t granted_bytes;
    EcfsPeers *peers; /* that wait for it; NULL: none do */
} Offer;

static void put_tags (EcfsCacheFill *fill)
{
    const Offer *self = (const Offer *) fill;
    const EcfsLayout *layout = &self->layout;
    const EcfsTagger tagger = {.object = fill->cell.object, .mac = ecfs_seal_tag_mac (self->keys)};
    uint32_t end = MIN (self->block_hi, ecfs_layout_n_blocks (layout, fill->cell.segment));
    for (unsigned i = 0; i < fill->n_ranges; i++) {
        uint8_t *at = fill->ranges[i].bytes;
        for (uint32_t block = self->block_lo; block < end && self->lacks_tags[i]; block++) {
            uint32_t bytes = ecfs_layout_block_bytes (layout, fill->cell.segment, block);
            ecfs_tag_put (&tagger, self->packets[i], ecfs_layout_block_number (layout, fill->cell.segment, block), at,
                          bytes, at + bytes);
            at += bytes + layout->tag_bytes;
        }
    }
}

static void offer_free (EcfsCacheFill *fill)
{
    Offer *self = (Offer *) fill;
    for (unsigned i = 0; i < fill->n_ranges; i++)
        ecfs_transfer_buffer_give (self->transfer, fill->ranges[i].bytes, fill->ranges[i].size);
    ecfs_transfer_release (self->transfer, self->granted_bytes);
    if (self->peers != NULL)
        ecfs_peers_settle (self->peers, &fill->cell);
    ecfs_seal_keys_unref (self->keys);
    g_free (fill->ranges);
    g_free (self->packets);
    g_free (self->lacks_tags);
    g_free (self);
}

static Offer *offer_new (const EcfsFetch *fetch, size_t granted_bytes)
{
    const EcfsReaderParams *params = &fetch->reader->params;
    Offer *self = g_new (Offer, 1);
    *self = (Offer){.fill = {.cell = cell_of (fetch),
                             .ranges = g_new (EcfsCacheRange, params->layout.k),
                             .since_us = fetch->reader->made_us,
                             .prepare = put_tags,
                             .free = offer_free},
                    .transfer = params->transfer,
                    .layout = params->layout,
                    .keys = ecfs_seal_keys_ref (params->keys),
                    .block_lo = fetch->block_lo,
                    .block_hi = fetch->block_hi,
                    .packets = g_new (unsigned, params->layout.k),
                    .lacks_tags = g_new (bool, params->layout.k),
                    .granted_bytes = granted_bytes};
    return self;
}

void ecfs_fetch_tell_progress (const EcfsFetch *self)
{
    ecfs_peers_progress (self->reader->params.peers, &self->reader->params.object);
}

void ecfs_fetch_settle (EcfsFetch *self)
{
    EcfsCacheCell cell = cell_of (self);
    if (self->is_claimed)
        ecfs_peers_settle (self->reader->params.peers, &cell);
    self->is_claimed = false;
}

void ecfs_fetch_offer (EcfsFetch *self)
{
    const EcfsReaderParams *params = &self->reader->params;
    size_t bytes = self->slot_bytes * n_wanted (self);
    if (params->cache == NULL || !params->fills_cache || self->is_cached || self->patient ||
        !ecfs_cache_has_room (params->cache, bytes) || !ecfs_transfer_try_acquire (params->transfer, bytes)) {
        ecfs_fetch_settle (self);
        return;
    }
    Offer *offer = offer_new (self, bytes);
    offer->peers = self->is_claimed ? params->peers : NULL;
    self->is_claimed = false;
    EcfsCacheFill *fill = &offer->fill;
    for (unsigned i = 0; i < params->layout.k; i++) {
        if (!self->wanted[i])
            continue;
        offer->packets[fill->n_ranges] = i;
        offer->lacks_tags[fill->n_ranges] = self->out[i] == self->decoded[i] && !self->is_from_peer;
        fill->ranges[fill->n_ranges] = range_of (self, i);
        fill->ranges[fill->n_ranges].bytes = ecfs_transfer_buffer_take (params->transfer, self->slot_bytes);
        memcpy (fill->ranges[fill->n_ranges++].bytes, self->out[i], self->slot_bytes);
    }
    ecfs_cache_fill (params->cache, fill);
}
