#include "object/writer.h"

#include "object/segment.h"
#include "util/io.h"
#include "util/lock.h"

#include <xxhash.h>

#define WINDOW_BYTES       (48u << 20) /* encoded segments that one writer keeps, in bytes and … */
#define WINDOW_MAX         16    /* … in segments; at least m + 2, so that slow stripes do not hold up the others */
#define SMALL_STRIPE_BYTES 65536 /* up to here a stripe is sent as one piece */

typedef enum LaneState { LANE_IDLE, LANE_RUNNING, LANE_STORED, LANE_FAILED, LANE_LEFT } LaneState;

typedef enum LanePhase { PHASE_HEADER, PHASE_PACKETS, PHASE_FOOTER, PHASE_END } LanePhase;

typedef struct Writer Writer;

typedef struct Lane {
    Writer *writer;
    unsigned index;
    LaneState state;    /* guarded by writer lock */
    bool waiting;       /* was told LATER; guarded by writer lock */
    uint64_t segment;   /* the next it pulls; guarded by writer lock */
    EcfsStream *stream; /* guarded by writer lock */
    GError *error;      /* guarded by writer lock */
    /* The rest is touched by the endpoint's thread only while running. */
    LanePhase phase;
    GByteArray *header;
    GByteArray *footer;
    GQueue lent; /* of EcfsSegment, NULL for header and footer; in the order of pulling */
    XXH3_state_t *digest;
    uint8_t area_digest[ECFS_STRIPE_DIGEST_BYTES];
    uint64_t stripe_bytes;
} Lane;

/* A segment that is being read and encoded, or waits for memory. */
typedef struct Encoding {
    Writer *writer;
    uint64_t segment;
    bool leading; /* the first time: counts for the object's digest */
    bool granted; /* its memory is; guarded by writer lock */
} Encoding;

struct Writer {
    EcfsMutex lock;
    EcfsCond changed;      /* guarded by lock */
    EcfsWriterJob *job;    /* immutable */
    EcfsLayout layout;     /* immutable */
    unsigned n;            /* immutable */
    uint64_t n_segments;   /* immutable */
    guint window;          /* segments; immutable */
    GPtrArray *cached;     /* of EcfsSegment; guarded by lock */
    GPtrArray *encodings;  /* of Encoding, under way; guarded by lock */
    uint64_t next_leading; /* first segment never encoded; guarded by lock */
    bool aborted;          /* guarded by lock */
    GError *error;         /* first reason for that; guarded by lock */
    XXH3_state_t *digest;  /* of the content; used by the leading encoding, of which there is one at a time */
    uint8_t object_digest[ECFS_STRIPE_DIGEST_BYTES]; /* guarded by lock; valid when next_leading is n_segments */
    Lane *lanes;                                     /* n */
};

static void finish_digest (XXH3_state_t *state, uint8_t digest[ECFS_STRIPE_DIGEST_BYTES])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash (&canonical, XXH3_128bits_digest (state));
    memcpy (digest, canonical.digest, ECFS_STRIPE_DIGEST_BYTES);
}

static void abort_locked (Writer *self, GError *error) ECFS_REQUIRES (self->lock)
{
    if (self->error == NULL)
        self->error = error;
    else
        g_error_free (error);
    self->aborted = true;
    for (unsigned i = 0; i < self->n; i++)
        if (self->lanes[i].state == LANE_RUNNING && self->lanes[i].stream != NULL)
            ecfs_stream_cancel (self->lanes[i].stream);
    ecfs_cond_broadcast (&self->changed);
}

static bool needed_locked (const Writer *self, uint64_t segment) ECFS_REQUIRES (self->lock)
{
    for (unsigned i = 0; i < self->n; i++)
        if (self->lanes[i].state == LANE_RUNNING && self->lanes[i].segment <= segment)
            return true;
    return false;
}

static bool current_locked (const Writer *self, uint64_t segment) ECFS_REQUIRES (self->lock)
{
    for (unsigned i = 0; i < self->n; i++)
        if (self->lanes[i].state == LANE_RUNNING && self->lanes[i].segment == segment)
            return true;
    return false;
}

/* Whether a stripe waits for a segment that waits for memory. */
static bool starving_locked (const Writer *self) ECFS_REQUIRES (self->lock)
{
    for (guint i = 0; i < self->encodings->len; i++) {
        const Encoding *encoding = g_ptr_array_index (self->encodings, i);
        if (!encoding->granted && current_locked (self, encoding->segment))
            return true;
    }
    return false;
}

/* Where memory is short, what is kept for stripes that are still behind goes too: they might be the ones that wait. */
static void drop_unneeded_locked (Writer *self) ECFS_REQUIRES (self->lock)
{
    bool starving = starving_locked (self);
    for (guint i = self->cached->len; i-- > 0;) {
        EcfsSegment *segment = g_ptr_array_index (self->cached, i);
        if (!needed_locked (self, segment->index) || (starving && !current_locked (self, segment->index)))
            g_ptr_array_remove_index_fast (self->cached, i);
    }
}

/* Lets go of the oldest cached segment that no stripe is at; those behind will have it encoded again. */
static bool evict_locked (Writer *self) ECFS_REQUIRES (self->lock)
{
    EcfsSegment *oldest = NULL;
    for (guint i = 0; i < self->cached->len; i++) {
        EcfsSegment *segment = g_ptr_array_index (self->cached, i);
        if (!current_locked (self, segment->index) && (oldest == NULL || segment->index < oldest->index))
            oldest = segment;
    }
    return oldest != NULL && g_ptr_array_remove_fast (self->cached, oldest);
}

static EcfsSegment *cached_locked (const Writer *self, uint64_t index) ECFS_REQUIRES (self->lock)
{
    for (guint i = 0; i < self->cached->len; i++) {
        EcfsSegment *segment = g_ptr_array_index (self->cached, i);
        if (segment->index == index)
            return segment;
    }
    return NULL;
}

static void want_locked (Writer *self, uint64_t segment) ECFS_REQUIRES (self->lock);

/* Begins what waiting stripes need, and the segment after the newest, so that encoding runs ahead of the links. */
static void kick_locked (Writer *self) ECFS_REQUIRES (self->lock)
{
    uint64_t newest = 0;
    for (unsigned i = 0; i < self->n; i++) {
        Lane *lane = &self->lanes[i];
        if (lane->state != LANE_RUNNING)
            continue;
        newest = MAX (newest, lane->segment);
        if (lane->waiting && lane->segment < self->n_segments)
            want_locked (self, lane->segment);
    }
    if (self->next_leading <= newest + 1 && self->cached->len + self->encodings->len < self->window)
        want_locked (self, self->next_leading);
}

static void wake_locked (Writer *self, uint64_t segment) ECFS_REQUIRES (self->lock)
{
    for (unsigned i = 0; i < self->n; i++) {
        Lane *lane = &self->lanes[i];
        if (lane->state != LANE_RUNNING || !lane->waiting || (lane->segment != segment && !self->aborted))
            continue;
        lane->waiting = false;
        if (lane->stream != NULL)
            ecfs_stream_wake (lane->stream);
    }
}

static void hash_content (Writer *self, const EcfsSegment *segment)
{
    uint32_t left = ecfs_layout_content_bytes (&self->layout, segment->index);
    for (unsigned packet = 0; packet < self->layout.k && left > 0; packet++) {
        for (uint32_t block = 0; block < segment->n_blocks && left > 0; block++) {
            uint32_t bytes = MIN (left, ecfs_layout_block_bytes (&self->layout, segment->index, block));
            XXH3_128bits_update (self->digest, ecfs_segment_block (segment, packet, block), bytes);
            left -= bytes;
        }
    }
}

/* Compares with what the content is expected to be, once all of it went by. */
static void finish_content (Writer *self)
{
    uint8_t digest[ECFS_STRIPE_DIGEST_BYTES];
    finish_digest (self->digest, digest);
    const uint8_t *expected = self->job->expected_digest;
    ecfs_mutex_lock (&self->lock);
    memcpy (self->object_digest, digest, sizeof digest);
    if (expected != NULL && memcmp (expected, digest, sizeof digest) != 0)
        abort_locked (self, g_error_new (ECFS_ERROR, ESTALE, "the content has changed since it was committed"));
    ecfs_mutex_unlock (&self->lock);
}

static EcfsSegment *encode (Encoding *encoding, GError **error)
{
    Writer *self = encoding->writer;
    EcfsSegment *segment = ecfs_segment_new (self->job->transfer, &self->layout, self->n, encoding->segment);
    if (!ecfs_segment_load (segment, &self->layout, self->job->fd, self->job->ranges, error)) {
        ecfs_segment_unref (segment);
        return NULL;
    }
    ecfs_segment_encode (segment, &self->layout, self->job->codec, &self->job->header.object);
    if (encoding->leading)
        hash_content (self, segment);
    return segment;
}

static void run_encoding (void *data)
{
    Encoding *encoding = data;
    Writer *self = encoding->writer;
    GError *error = NULL;
    ecfs_mutex_lock (&self->lock);
    encoding->granted = true;
    bool wanted = !self->aborted && (encoding->leading || needed_locked (self, encoding->segment));
    ecfs_mutex_unlock (&self->lock);
    EcfsSegment *segment = wanted ? encode (encoding, &error) : NULL;
    if (!wanted) /* otherwise a segment had the grant, and gave it back with itself */
        ecfs_transfer_release (self->job->transfer, ecfs_segment_bytes (&self->layout, self->n, encoding->segment));
    if (segment != NULL && encoding->leading && encoding->segment + 1 == self->n_segments)
        finish_content (self);

    ecfs_mutex_lock (&self->lock);
    if (error != NULL)
        abort_locked (self, error);
    if (segment != NULL && encoding->leading)
        self->next_leading++;
    if (segment != NULL)
        g_ptr_array_add (self->cached, segment);
    uint64_t index = encoding->segment;
    g_ptr_array_remove_fast (self->encodings, encoding);
    wake_locked (self, index);
    drop_unneeded_locked (self);
    kick_locked (self);
    ecfs_cond_broadcast (&self->changed);
    ecfs_mutex_unlock (&self->lock);
}

static bool under_way_locked (const Writer *self, uint64_t segment, bool leading) ECFS_REQUIRES (self->lock)
{
    for (guint i = 0; i < self->encodings->len; i++) {
        const Encoding *encoding = g_ptr_array_index (self->encodings, i);
        if (encoding->segment == segment || (leading && encoding->leading))
            return true;
    }
    return false;
}

static void want_locked (Writer *self, uint64_t segment)
{
    bool leading = segment == self->next_leading;
    if (self->aborted || segment >= self->n_segments || segment > self->next_leading ||
        under_way_locked (self, segment, leading) || cached_locked (self, segment) != NULL)
        return;
    if (self->cached->len + self->encodings->len >= self->window && !evict_locked (self))
        return;
    /* Nobody waits in the queue for memory that no stripe waits for. */
    EcfsTransfer *transfer = self->job->transfer;
    size_t bytes = ecfs_segment_bytes (&self->layout, self->n, segment);
    bool awaited = current_locked (self, segment);
    if (!awaited && !ecfs_transfer_try_acquire (transfer, bytes))
        return;
    Encoding *encoding = g_new (Encoding, 1);
    *encoding = (Encoding){.writer = self, .segment = segment, .leading = leading};
    g_ptr_array_add (self->encodings, encoding);
    if (!awaited || ecfs_transfer_acquire (transfer, bytes, run_encoding, encoding)) {
        encoding->granted = true;
        ecfs_transfer_run (transfer, run_encoding, encoding);
    } else {
        drop_unneeded_locked (self);
    }
}

static void format_footer (Lane *lane)
{
    Writer *self = lane->writer;
    finish_digest (lane->digest, lane->area_digest);
    EcfsStripeFooter footer = {
        .size = self->layout.size, .area_bytes = ecfs_layout_area_bytes (&self->layout), .records = self->job->records};
    memcpy (footer.area_digest, lane->area_digest, ECFS_STRIPE_DIGEST_BYTES);
    ecfs_mutex_lock (&self->lock);
    memcpy (footer.object_digest, self->object_digest, ECFS_STRIPE_DIGEST_BYTES);
    ecfs_mutex_unlock (&self->lock);
    g_clear_pointer (&lane->footer, g_byte_array_unref);
    lane->footer = ecfs_stripe_footer_format (&footer, self->layout.header_bytes + footer.area_bytes);
    lane->stripe_bytes = self->layout.header_bytes + footer.area_bytes + lane->footer->len;
}

/* The segment that the lane is at, with a reference, and moves it on; NULL: not there yet. */
static EcfsSegment *next_segment (Lane *lane, bool *ret_aborted)
{
    Writer *self = lane->writer;
    ecfs_mutex_lock (&self->lock);
    *ret_aborted = self->aborted;
    EcfsSegment *segment = self->aborted ? NULL : cached_locked (self, lane->segment);
    if (segment != NULL) {
        ecfs_segment_ref (segment);
        lane->segment++;
        drop_unneeded_locked (self);
    } else {
        lane->waiting = !self->aborted;
    }
    kick_locked (self);
    ecfs_mutex_unlock (&self->lock);
    return segment;
}

static EcfsPull give (Lane *lane, EcfsSegment *owner, const uint8_t *bytes, size_t size, const uint8_t **ret_bytes,
                      size_t *ret_size)
{
    g_queue_push_tail (&lane->lent, owner);
    *ret_bytes = bytes;
    *ret_size = size;
    return ECFS_PULL_BYTES;
}

/* The whole stripe of a small object as one piece, so that it costs the endpoint one write. */
static EcfsPull give_small (Lane *lane, EcfsSegment *segment, const uint8_t **ret_bytes, size_t *ret_size)
{
    g_byte_array_append (lane->header, ecfs_segment_packet (segment, lane->index), segment->stored_bytes);
    ecfs_segment_unref (segment);
    format_footer (lane);
    g_byte_array_append (lane->header, lane->footer->data, lane->footer->len);
    lane->phase = PHASE_END;
    return give (lane, NULL, lane->header->data, lane->header->len, ret_bytes, ret_size);
}

static EcfsPull pull_packet (Lane *lane, const uint8_t **ret_bytes, size_t *ret_size)
{
    Writer *self = lane->writer;
    bool aborted;
    EcfsSegment *segment = next_segment (lane, &aborted);
    if (segment == NULL)
        return aborted ? ECFS_PULL_ABORT : ECFS_PULL_LATER;
    const uint8_t *packet = ecfs_segment_packet (segment, lane->index);
    XXH3_128bits_update (lane->digest, packet, segment->stored_bytes);
    if (segment->index + 1 == self->n_segments)
        lane->phase = PHASE_FOOTER;
    if (self->n_segments == 1 && segment->stored_bytes <= SMALL_STRIPE_BYTES)
        return give_small (lane, segment, ret_bytes, ret_size);
    return give (lane, segment, packet, segment->stored_bytes, ret_bytes, ret_size);
}

static bool sent_as_one (const Writer *self)
{
    return self->n_segments == 1 && ecfs_layout_stored_bytes (&self->layout, 0) <= SMALL_STRIPE_BYTES;
}

static EcfsPull pull (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    Lane *lane = user;
    switch (lane->phase) {
    case PHASE_HEADER:
        lane->phase = PHASE_PACKETS;
        if (sent_as_one (lane->writer))
            return pull_packet (lane, ret_bytes, ret_size);
        return give (lane, NULL, lane->header->data, lane->header->len, ret_bytes, ret_size);
    case PHASE_PACKETS:
        return pull_packet (lane, ret_bytes, ret_size);
    case PHASE_FOOTER:
        format_footer (lane);
        lane->phase = PHASE_END;
        return give (lane, NULL, lane->footer->data, lane->footer->len, ret_bytes, ret_size);
    case PHASE_END:
        break;
    }
    return ECFS_PULL_END;
}

static void released (void *user, const uint8_t *bytes, size_t size)
{
    Lane *lane = user;
    (void) bytes;
    (void) size;
    ecfs_segment_unref (g_queue_pop_head (&lane->lent));
}

static void lane_done (void *user, const GError *error)
{
    Lane *lane = user;
    Writer *self = lane->writer;
    ecfs_mutex_lock (&self->lock);
    lane->state = error == NULL ? LANE_STORED : LANE_FAILED;
    lane->waiting = false;
    if (error != NULL)
        lane->error = g_error_copy (error);
    drop_unneeded_locked (self);
    kick_locked (self);
    ecfs_cond_broadcast (&self->changed);
    ecfs_mutex_unlock (&self->lock);
}

static void start_lane (Writer *self, unsigned index)
{
    Lane *lane = &self->lanes[index];
    EcfsWriterTarget *target = &self->job->targets[index];
    EcfsStripeHeader header = self->job->header;
    header.index = (uint16_t) index;
    header.instance = target->instance;
    g_clear_pointer (&lane->header, g_byte_array_unref);
    lane->header = ecfs_stripe_header_format (&header);
    lane->phase = PHASE_HEADER;
    XXH3_128bits_reset (lane->digest);
    char name[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (&header.object, header.index, header.instance, name);
    EcfsSource source = {.pull = pull, .release = released, .done = lane_done, .user = lane};
    ecfs_mutex_lock (&self->lock);
    ecfs_stream_unref (lane->stream);
    g_clear_error (&lane->error);
    lane->segment = 0;
    lane->state = LANE_RUNNING;
    lane->stream = ecfs_endpoint_write (target->endpoint, name, &source);
    ecfs_mutex_unlock (&self->lock);
}

/* A failed lane goes to a spare or is left out. Called without the lock: finding a spare blocks. */
static void replace_lane (Writer *self, unsigned index, GString *failures)
{
    Lane *lane = &self->lanes[index];
    EcfsWriterJob *job = self->job;
    EcfsWriterTarget target = job->targets[index];
    g_string_append_printf (failures, "%s%s", failures->len > 0 ? "; " : "", lane->error->message);
    if (job->replace (job->user, index, lane->error, &target)) {
        job->targets[index] = target;
        start_lane (self, index);
        return;
    }
    ecfs_mutex_lock (&self->lock);
    lane->state = LANE_LEFT;
    ecfs_mutex_unlock (&self->lock);
}

/* The first lane that failed and was not looked at, or -1; sets what is still possible and how many run. */
static int survey_locked (Writer *self, bool *possible, unsigned *ret_n_running) ECFS_REQUIRES (self->lock)
{
    int failed = -1;
    *ret_n_running = 0;
    for (unsigned i = 0; i < self->n; i++) {
        LaneState state = self->lanes[i].state;
        possible[i] = state == LANE_RUNNING || state == LANE_STORED;
        *ret_n_running += state == LANE_RUNNING;
        if (state == LANE_FAILED && failed < 0)
            failed = (int) i;
    }
    return failed;
}

static void check_possible (Writer *self, const bool *possible, const GString *failures)
{
    if (self->job->possible (self->job->user, possible))
        return;
    ecfs_mutex_lock (&self->lock);
    if (!self->aborted)
        abort_locked (self, g_error_new (ECFS_ERROR, EIO, "too few endpoints take its stripes: %s",
                                         failures->len > 0 ? failures->str : "no endpoint has room for them"));
    ecfs_mutex_unlock (&self->lock);
}

static void run_lanes (Writer *self, GString *failures)
{
    bool possible[ECFS_CODEC_MAX_N];
    for (;;) {
        unsigned n_running;
        ecfs_mutex_lock (&self->lock);
        int failed = survey_locked (self, possible, &n_running);
        bool aborted = self->aborted;
        bool idle = self->encodings->len == 0;
        if (failed < 0 && (n_running > 0 || !idle))
            (void) ecfs_cond_wait_until (&self->changed, &self->lock, ecfs_now_us () + 100000);
        if (!aborted && self->job->cancelled != NULL && atomic_load (self->job->cancelled))
            abort_locked (self, g_error_new (ECFS_ERROR, ECANCELED, "storing was cancelled"));
        ecfs_mutex_unlock (&self->lock);
        if (failed >= 0 && aborted) {
            ecfs_mutex_lock (&self->lock);
            self->lanes[failed].state = LANE_LEFT;
            ecfs_mutex_unlock (&self->lock);
        } else if (failed >= 0) {
            replace_lane (self, (unsigned) failed, failures);
        } else {
            check_possible (self, possible, failures);
            if (n_running == 0 && idle)
                return;
        }
    }
}

static bool writer_init (Writer *self, EcfsWriterJob *job, GError **error)
{
    g_byte_array_unref (ecfs_stripe_header_format (&job->header)); /* for header_bytes */
    if (!ecfs_stripe_layout (&job->header, job->size, &self->layout, error))
        return false;
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->changed);
    self->job = job;
    self->n = ecfs_codec_n (job->codec);
    self->n_segments = ecfs_layout_n_segments (&self->layout);
    size_t bytes = ecfs_segment_bytes (&self->layout, self->n, 0);
    guint least = self->n - self->layout.k + 2;
    self->window = (guint) MAX (least, MIN (WINDOW_MAX, WINDOW_BYTES / bytes));
    self->cached = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_segment_unref);
    self->encodings = g_ptr_array_new_with_free_func (g_free);
    self->digest = XXH3_createState ();
    XXH3_128bits_reset (self->digest);
    self->lanes = g_new0 (Lane, self->n);
    for (unsigned i = 0; i < self->n; i++) {
        self->lanes[i].writer = self;
        self->lanes[i].index = i;
        self->lanes[i].digest = XXH3_createState ();
        g_queue_init (&self->lanes[i].lent);
    }
    return true;
}

static void writer_clear (Writer *self)
{
    for (unsigned i = 0; i < self->n; i++) {
        Lane *lane = &self->lanes[i];
        ecfs_stream_unref (lane->stream);
        g_clear_error (&lane->error);
        g_clear_pointer (&lane->header, g_byte_array_unref);
        g_clear_pointer (&lane->footer, g_byte_array_unref);
        XXH3_freeState (lane->digest);
    }
    g_free (self->lanes);
    XXH3_freeState (self->digest);
    g_ptr_array_unref (self->cached);
    g_ptr_array_unref (self->encodings);
    g_clear_error (&self->error);
    ecfs_cond_clear (&self->changed);
    ecfs_mutex_clear (&self->lock);
}

static void collect (Writer *self, EcfsWriterResult *result)
{
    for (unsigned i = 0; i < self->n; i++) {
        Lane *lane = &self->lanes[i];
        result->stored[i] = lane->state == LANE_STORED;
        result->stripe_bytes[i] = lane->stripe_bytes;
        memcpy (result->stripe_digest[i], lane->area_digest, ECFS_STRIPE_DIGEST_BYTES);
    }
    memcpy (result->object_digest, self->object_digest, ECFS_STRIPE_DIGEST_BYTES);
    result->header_bytes = self->layout.header_bytes;
}

bool ecfs_writer_run (EcfsWriterJob *job, EcfsWriterResult *ret_result, GError **error)
{
    Writer self = {0};
    if (!writer_init (&self, job, error))
        return false;
    GString *failures = g_string_new (NULL);
    for (unsigned i = 0; i < self.n; i++)
        if (job->targets[i].endpoint != NULL)
            start_lane (&self, i);
    run_lanes (&self, failures);
    bool fine = self.error == NULL;
    if (fine) {
        *ret_result = (EcfsWriterResult){.failures = failures};
        collect (&self, ret_result);
    } else {
        g_string_free (failures, TRUE);
        g_propagate_error (error, g_steal_pointer (&self.error));
    }
    writer_clear (&self);
    return fine;
}
