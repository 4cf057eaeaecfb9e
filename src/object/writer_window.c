/*
 * The window of encoded segments: what lanes pull from, and what encodes ahead of them or once more behind.
 *
 * The first time, a segment is read, which counts for the SHA-256 of the content, and then coded, which counts for the
 * digest of what is stored. Both go in order, and the next segment is read while one is coded.
 */
#include "object/chain.h"
#include "object/writer_priv.h"

#define WINDOW_BYTES (48u << 20) /* encoded segments that one writer keeps, in bytes and … */
#define WINDOW_MAX   16          /* … in segments; at least m + 2, so that slow stripes do not hold up the others */

#define TRAILING_WINDOW 2 /* segments, where nobody waits for what is left */

/* Where processors are the limit, stripes wait for those behind, for whom all would be encoded again; but not for one
 * so slow that encoding for it takes no more than this part of the time. */
#define REPEATED_PART 0.05
#define PACE_SEGMENTS 8 /* over which a pause is spread: a busy machine lets some wait for long, now and then */
#define AT_ONCE_BYTES (256u << 10)   /* of content that takes less time to encode than to have somebody else do it */
#define CONNECT_US    G_USEC_PER_SEC /* one that has not begun is waited for so long */

typedef enum Step {
    STEP_READ,  /* waits for memory or a thread, or is read */
    STEP_READY, /* waits until the segment before it is coded */
    STEP_CODE,
} Step;

/* A segment that is being read and encoded, or waits for memory. */
typedef struct Encoding {
    EcfsWriter *writer;
    uint64_t segment;
    EcfsLayout layout;                        /* as it was when this began, which for this segment is what it will be */
    size_t bytes;                             /* of memory */
    bool leading;                             /* the first time: counts for the object's digests */
    Step step;                                /* of a leading one; guarded by writer lock */
    bool granted;                             /* its memory is; guarded by writer lock */
    uint8_t digest[ECFS_STRIPE_DIGEST_BYTES]; /* of the content that was read */
    EcfsSegment *filled;                      /* with content, or being filled with packets that come from elsewhere */
    int64_t began_us;                         /* the step */
    int64_t spent_us;                         /* in steps before */
} Encoding;

/* Memory that it takes to make a segment, which keeps its own part. */
static size_t grant_bytes_locked (const EcfsWriter *self, uint64_t segment) ECFS_REQUIRES (self->lock)
{
    const EcfsPacketSource *packets = self->job->packets;
    return ecfs_segment_bytes (&self->layout, self->n, segment) +
           (packets == NULL ? 0 : packets->bytes (packets->user, segment));
}

static bool is_running_locked (const EcfsWriter *self, unsigned index) ECFS_REQUIRES (self->lock)
{
    return self->lanes[index] != NULL && self->lanes[index]->state == LANE_RUNNING;
}

static bool needed_locked (const EcfsWriter *self, uint64_t segment) ECFS_REQUIRES (self->lock)
{
    for (unsigned i = 0; i < self->n; i++)
        if (is_running_locked (self, i) && self->lanes[i]->segment <= segment)
            return true;
    return false;
}

int64_t ecfs_writer_lane_pace_us (const EcfsUpload *lane, int64_t now_us)
{
    return lane->usual_us + (now_us - lane->pulled_us - lane->usual_us) / PACE_SEGMENTS;
}

bool ecfs_writer_keeps_up (const EcfsWriter *self, const EcfsUpload *lane, int64_t now_us)
{
    if (lane->segment == 0)
        return now_us - self->began_us < CONNECT_US;
    return (double) ecfs_writer_lane_pace_us (lane, now_us) * REPEATED_PART * self->n_encoded <
           (double) self->encoding_us;
}

/* How many segments the next stripe to need it, of those that keep up, is away from it; UINT64_MAX: there is none. */
static uint64_t distance_locked (const EcfsWriter *self, uint64_t segment, int64_t now_us) ECFS_REQUIRES (self->lock)
{
    uint64_t distance = UINT64_MAX;
    for (unsigned i = 0; i < self->n; i++) {
        const EcfsUpload *lane = self->lanes[i];
        if (is_running_locked (self, i) && lane->segment <= segment && ecfs_writer_keeps_up (self, lane, now_us))
            distance = MIN (distance, segment - lane->segment);
    }
    return distance;
}

static bool current_locked (const EcfsWriter *self, uint64_t segment) ECFS_REQUIRES (self->lock)
{
    for (unsigned i = 0; i < self->n; i++)
        if (is_running_locked (self, i) && self->lanes[i]->segment == segment)
            return true;
    return false;
}

/* Whether a stripe waits for a segment that waits for memory. */
static bool starving_locked (const EcfsWriter *self) ECFS_REQUIRES (self->lock)
{
    for (guint i = 0; i < self->encodings->len; i++) {
        const Encoding *encoding = g_ptr_array_index (self->encodings, i);
        if (!encoding->granted && current_locked (self, encoding->segment))
            return true;
    }
    return false;
}

/* Where memory is short, what is kept for stripes that are still behind goes too: they might be the ones that wait. */
static void drop_unneeded_locked (EcfsWriter *self) ECFS_REQUIRES (self->lock)
{
    if (self->beginning)
        return;
    bool starving = starving_locked (self);
    for (guint i = self->cached->len; i-- > 0;) {
        EcfsSegment *segment = g_ptr_array_index (self->cached, i);
        if (!needed_locked (self, segment->index) || (starving && !current_locked (self, segment->index)))
            g_ptr_array_remove_index_fast (self->cached, i);
    }
}

/* Lets go of the segment that is needed last, unless a stripe is at it; @for_leading: only of one that nobody who keeps
 * up needs. */
static bool evict_locked (EcfsWriter *self, bool for_leading) ECFS_REQUIRES (self->lock)
{
    EcfsSegment *last = NULL;
    uint64_t last_distance = for_leading ? UINT64_MAX - 1 : 0;
    int64_t now_us = ecfs_now_us ();
    for (guint i = 0; i < self->cached->len; i++) {
        EcfsSegment *segment = g_ptr_array_index (self->cached, i);
        uint64_t distance = distance_locked (self, segment->index, now_us);
        if (distance > last_distance && !current_locked (self, segment->index)) {
            last = segment;
            last_distance = distance;
        }
    }
    return last != NULL && g_ptr_array_remove_fast (self->cached, last);
}

EcfsSegment *ecfs_writer_cached_locked (const EcfsWriter *self, uint64_t index)
{
    for (guint i = 0; i < self->cached->len; i++) {
        EcfsSegment *segment = g_ptr_array_index (self->cached, i);
        if (segment->index == index)
            return segment;
    }
    return NULL;
}

static void want_locked (EcfsWriter *self, uint64_t segment) ECFS_REQUIRES (self->lock);

/* Begins what waiting stripes need, and the segment after the newest, so that encoding runs ahead of the links. */
static void kick_locked (EcfsWriter *self) ECFS_REQUIRES (self->lock)
{
    uint64_t newest = 0;
    bool awaited = false;
    for (unsigned i = 0; i < self->n; i++) {
        if (!is_running_locked (self, i))
            continue;
        const EcfsUpload *lane = self->lanes[i];
        newest = MAX (newest, lane->segment);
        if (lane->waiting && lane->segment < self->next_leading)
            want_locked (self, lane->segment);
        else if (lane->waiting)
            awaited = true;
    }
    bool ahead = self->next_leading <= newest + 1 && self->cached->len + self->encodings->len < self->window;
    if (awaited || ahead)
        want_locked (self, self->next_read);
}

static void wake_locked (EcfsWriter *self, uint64_t segment) ECFS_REQUIRES (self->lock)
{
    for (unsigned i = 0; i < self->n; i++) {
        EcfsUpload *lane = self->lanes[i];
        if (!is_running_locked (self, i) || !lane->waiting || (lane->segment != segment && !self->aborted))
            continue;
        lane->waiting = false;
        lane->pulled_us = ecfs_now_us (); /* it was not its fault that nothing was there */
        ecfs_stream_wake (lane->stream);
    }
}

typedef struct Digests {
    XXH3_state_t *segment;
    XXH3_state_t *object; /* NULL: not the first time */
} Digests;

static void take_digests (void *user, uint8_t *bytes, size_t size)
{
    const Digests *digests = user;
    ecfs_xxh3_128_update (digests->segment, bytes, size);
    if (digests->object != NULL)
        ecfs_xxh3_128_update (digests->object, bytes, size);
}

static void take_link (void *maker, uint8_t *bytes, size_t size)
{
    ecfs_chain_maker_take (maker, bytes, size);
}

/* Compares with what the content is expected to be, once all of it went by. With packets it is believed. */
static void finish_content_locked (EcfsWriter *self) ECFS_REQUIRES (self->lock)
{
    if (!self->ended || self->next_leading < self->n_segments || self->job->packets != NULL)
        return;
    ecfs_writer_finish_digest (self->digest, self->object_digest);
    self->chain = ecfs_chain_maker_end (self->chain_maker, self->object_sha256);
    const uint8_t *expected = self->job->expected_digest;
    const uint8_t *sha256 = self->job->expected_sha256;
    if ((expected != NULL && memcmp (expected, self->object_digest, sizeof self->object_digest) != 0) ||
        (sha256 != NULL && memcmp (sha256, self->object_sha256, sizeof self->object_sha256) != 0))
        ecfs_writer_abort_locked (self,
                                  g_error_new (ECFS_ERROR, ESTALE, "the content has changed since it was committed"));
}

static EcfsSegment *read_content (const Encoding *encoding, GError **error)
{
    EcfsWriter *self = encoding->writer;
    EcfsSegment *segment = ecfs_segment_new (self->job->transfer, &encoding->layout, self->n, encoding->segment);
    if (!ecfs_segment_load (segment, &encoding->layout, self->job->fd, self->job->ranges, error)) {
        ecfs_segment_unref (segment);
        return NULL;
    }
    if (encoding->leading)
        ecfs_segment_each_content (segment, &encoding->layout, take_link, self->chain_maker);
    return segment;
}

static void code (Encoding *encoding, EcfsSegment *segment)
{
    EcfsWriter *self = encoding->writer;
    const EcfsTagger tagger = {.object = self->job->header.object, .mac = ecfs_seal_tag_mac (self->job->keys)};
    ecfs_segment_encode (segment, &encoding->layout, self->job->codec, &tagger, self->job->keys);
    Digests digests = {.segment = XXH3_createState (), .object = encoding->leading ? self->digest : NULL};
    XXH3_128bits_reset_withSeed (digests.segment, self->digest_seed);
    ecfs_segment_each_content (segment, &encoding->layout, take_digests, &digests);
    ecfs_writer_finish_digest (digests.segment, encoding->digest);
    XXH3_freeState (digests.segment);
}

/* Stripes that are behind, or begin anew, have content read again: with other bytes they would not fit the others, and
 * under a key would tell what they differ in. The seed is not known to who could choose such bytes. */
static void compare_content_locked (EcfsWriter *self, const Encoding *encoding) ECFS_REQUIRES (self->lock)
{
    if (self->job->packets != NULL)
        return;
    if (encoding->leading)
        g_array_append_vals (self->segment_digests, encoding->digest, 1);
    else if (memcmp (encoding->digest, self->segment_digests->data + encoding->segment * sizeof encoding->digest,
                     sizeof encoding->digest) != 0)
        ecfs_writer_abort_locked (
            self, g_error_new_literal (ECFS_ERROR, ECANCELED, "the content changed while it was stored"));
}

/* Of the segments that are encoded the first time the one at this step; NULL: there is none. */
static Encoding *leading_locked (const EcfsWriter *self, Step step) ECFS_REQUIRES (self->lock)
{
    for (guint i = 0; i < self->encodings->len; i++) {
        Encoding *encoding = g_ptr_array_index (self->encodings, i);
        if (encoding->leading && encoding->step == step)
            return encoding;
    }
    return NULL;
}

/* Lets the next be read, and returns whether it is the turn of this one to be coded; if not, it is another thread's. */
static bool end_reading (Encoding *encoding)
{
    EcfsWriter *self = encoding->writer;
    ecfs_mutex_lock (&self->lock);
    bool is_turn = leading_locked (self, STEP_CODE) == NULL;
    encoding->step = is_turn ? STEP_CODE : STEP_READY;
    self->next_read++;
    ecfs_writer_advance_locked (self);
    ecfs_mutex_unlock (&self->lock);
    return is_turn;
}

/* Puts what came of it into the window; @error is taken, with it @segment is NULL. Returns whose turn it is to be coded
 * by this thread, or NULL. */
static Encoding *end_encoding (Encoding *encoding, EcfsSegment *segment, GError *error)
{
    EcfsWriter *self = encoding->writer;
    ecfs_mutex_lock (&self->lock);
    if (error != NULL)
        ecfs_writer_abort_locked (self, error);
    if (segment != NULL)
        compare_content_locked (self, encoding);
    if (segment != NULL && encoding->leading) {
        self->next_leading++;
        self->next_read = MAX (self->next_read, self->next_leading); /* packets are not read before */
        finish_content_locked (self);
    }
    if (segment != NULL) {
        g_ptr_array_add (self->cached, segment);
        self->encoding_us += encoding->spent_us + ecfs_now_us () - encoding->began_us;
        self->n_encoded++;
    }
    uint64_t index = encoding->segment;
    g_ptr_array_remove_fast (self->encodings, encoding);
    Encoding *next = leading_locked (self, STEP_CODE) == NULL ? leading_locked (self, STEP_READY) : NULL;
    if (next != NULL)
        next->step = STEP_CODE;
    wake_locked (self, index);
    ecfs_writer_advance_locked (self);
    ecfs_writer_idle_locked (self);
    ecfs_mutex_unlock (&self->lock);
    return next;
}

/* Codes what was read, and what was read behind it meanwhile. */
static void run_coding (Encoding *encoding)
{
    EcfsWriter *self = encoding->writer;
    while (encoding != NULL) {
        EcfsSegment *segment = g_steal_pointer (&encoding->filled);
        ecfs_mutex_lock (&self->lock);
        bool aborted = self->aborted;
        ecfs_mutex_unlock (&self->lock);
        encoding->began_us = ecfs_now_us ();
        if (aborted)
            g_clear_pointer (&segment, ecfs_segment_unref);
        else
            code (encoding, segment);
        encoding = end_encoding (encoding, segment, NULL);
    }
}

static void loaded (void *data, const GError *error)
{
    Encoding *encoding = data;
    EcfsSegment *segment = g_steal_pointer (&encoding->filled);
    if (error != NULL)
        g_clear_pointer (&segment, ecfs_segment_unref);
    (void) end_encoding (encoding, segment, error == NULL ? NULL : g_error_copy (error)); /* none is ready */
}

static void run_encoding (void *data)
{
    Encoding *encoding = data;
    EcfsWriter *self = encoding->writer;
    const EcfsPacketSource *packets = self->job->packets;
    GError *error = NULL;
    ecfs_mutex_lock (&self->lock);
    encoding->granted = true;
    bool wanted = !self->aborted && (encoding->leading || needed_locked (self, encoding->segment));
    ecfs_mutex_unlock (&self->lock);
    encoding->began_us = ecfs_now_us ();
    if (wanted && packets != NULL) {
        encoding->filled = ecfs_segment_new (self->job->transfer, &encoding->layout, self->n, encoding->segment);
        packets->load (packets->user, encoding->filled, loaded, encoding);
        return;
    }
    encoding->filled = wanted ? read_content (encoding, &error) : NULL;
    encoding->spent_us = ecfs_now_us () - encoding->began_us;
    if (!wanted) /* otherwise a segment had the grant, and gave it back with itself */
        ecfs_transfer_release (self->job->transfer, encoding->bytes);
    if (encoding->filled == NULL)
        (void) end_encoding (encoding, NULL, error); /* none can be ready behind one that was not read */
    else if (!encoding->leading || end_reading (encoding))
        run_coding (encoding);
}

static bool under_way_locked (const EcfsWriter *self, uint64_t segment, bool leading) ECFS_REQUIRES (self->lock)
{
    for (guint i = 0; i < self->encodings->len; i++) {
        const Encoding *encoding = g_ptr_array_index (self->encodings, i);
        if (encoding->segment == segment || (leading && encoding->leading && encoding->step != STEP_CODE))
            return true;
    }
    return false;
}

/* Whether what is kept is kept for a stripe that is behind and keeps up. */
static bool waits_locked (const EcfsWriter *self) ECFS_REQUIRES (self->lock)
{
    int64_t now_us = ecfs_now_us ();
    for (guint i = 0; i < self->cached->len; i++) {
        const EcfsSegment *segment = g_ptr_array_index (self->cached, i);
        if (distance_locked (self, segment->index, now_us) != UINT64_MAX)
            return true;
    }
    return false;
}

/* Whether the content of the next segment is there, which must not change then. */
static bool take_content_locked (const EcfsWriter *self, uint64_t segment) ECFS_REQUIRES (self->lock)
{
    const EcfsWriterJob *job = self->job;
    uint64_t end = segment * self->layout.segment_bytes + ecfs_layout_content_bytes (&self->layout, segment);
    return job->feed == NULL || ecfs_feed_take (job->feed, job->feed_offset + end);
}

static bool is_held (const EcfsWriter *self)
{
    const EcfsPacketSource *packets = self->job->packets;
    return packets != NULL && packets->held != NULL && packets->held (packets->user);
}

static Encoding *encoding_new_locked (EcfsWriter *self, uint64_t segment) ECFS_REQUIRES (self->lock)
{
    Encoding *encoding = g_new (Encoding, 1);
    *encoding = (Encoding){.writer = self,
                           .segment = segment,
                           .layout = self->layout,
                           .bytes = grant_bytes_locked (self, segment),
                           .leading = segment == self->next_read};
    g_ptr_array_add (self->encodings, encoding);
    return encoding;
}

static void want_locked (EcfsWriter *self, uint64_t segment)
{
    bool leading = segment == self->next_read, ahead = segment > self->next_leading;
    if (self->aborted || segment >= self->n_segments || segment > self->next_read ||
        under_way_locked (self, segment, leading) || ecfs_writer_cached_locked (self, segment) != NULL ||
        is_held (self) || (leading && !take_content_locked (self, segment)))
        return;
    if (self->cached->len + self->encodings->len >= self->window && (ahead || !evict_locked (self, leading)))
        return;
    EcfsTransferPool *transfer = self->job->transfer;
    size_t bytes = grant_bytes_locked (self, segment);
    bool granted = ecfs_transfer_try_acquire (transfer, bytes);
    /* In the queue for memory is only what a stripe waits for, and nothing for which others would lose what they need.
     */
    if (!granted && (!current_locked (self, segment) || (leading && waits_locked (self))))
        return;
    Encoding *encoding = encoding_new_locked (self, segment);
    if (granted || ecfs_transfer_acquire (transfer, bytes, run_encoding, encoding)) {
        encoding->granted = true;
        ecfs_transfer_run (transfer, run_encoding, encoding);
    } else {
        drop_unneeded_locked (self);
    }
}

void ecfs_writer_advance_locked (EcfsWriter *self)
{
    drop_unneeded_locked (self);
    kick_locked (self);
}

void ecfs_writer_window_narrow_locked (EcfsWriter *self)
{
    self->window = TRAILING_WINDOW;
    while (self->cached->len > self->window && evict_locked (self, false)) {
    }
}

void ecfs_writer_end_locked (EcfsWriter *self, uint64_t size)
{
    self->layout.size = size;
    self->n_segments = ecfs_layout_n_segments (&self->layout);
    self->ended = true;
    finish_content_locked (self);
    wake_locked (self, self->n_segments);
    ecfs_writer_advance_locked (self);
}

void ecfs_writer_encode_small (EcfsWriter *self)
{
    if (self->job->packets != NULL || !self->ended || self->n_segments != 1 ||
        ecfs_layout_content_bytes (&self->layout, 0) > AT_ONCE_BYTES ||
        !ecfs_transfer_try_acquire (self->job->transfer, ecfs_segment_bytes (&self->layout, self->n, 0)))
        return;
    ecfs_mutex_lock (&self->lock);
    Encoding *encoding = encoding_new_locked (self, 0);
    ecfs_mutex_unlock (&self->lock);
    run_encoding (encoding);
}

void ecfs_writer_window_init (EcfsWriter *self)
{
    size_t bytes = ecfs_segment_bytes (&self->layout, self->n, 0);
    guint least = self->n - self->layout.k + 2;
    self->window = (guint) MAX (least, MIN (WINDOW_MAX, WINDOW_BYTES / bytes));
    const EcfsPacketSource *packets = self->job->packets;
    if (packets != NULL && packets->most_bytes > 0)
        self->window =
            (guint) CLAMP (packets->most_bytes / (bytes + packets->bytes (packets->user, 0)), 1, self->window);
    self->cached = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_segment_unref);
    self->encodings = g_ptr_array_new_with_free_func (g_free);
    ecfs_random (&self->digest_seed, sizeof self->digest_seed);
    self->digest = XXH3_createState ();
    XXH3_128bits_reset (self->digest);
    self->segment_digests = g_array_new (FALSE, FALSE, ECFS_STRIPE_DIGEST_BYTES);
    self->chain_maker = packets == NULL ? ecfs_chain_maker_new (self->layout.segment_bytes) : NULL;
}

void ecfs_writer_window_clear (EcfsWriter *self)
{
    g_ptr_array_unref (self->cached);
    g_ptr_array_unref (self->encodings);
    XXH3_freeState (self->digest);
    g_array_unref (self->segment_digests);
    ecfs_chain_maker_free (self->chain_maker);
    if (self->chain != NULL)
        g_byte_array_unref (self->chain);
}
