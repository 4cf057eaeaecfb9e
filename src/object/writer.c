#include "object/writer_priv.h"

#include "util/io.h"

#define LOOK_US        20000  /* how often lanes that others wait for are looked at */
#define CANCEL_LOOK_US 100000 /* and whether the job is cancelled */
#define LATE_LOOKS     2      /* in a row: on a busy machine it may be ourselves who were late */
#define STUCK_US       200000 /* a lane of an endpoint that is down fails sooner, unless its thread is stuck */
#define LAG_MIN_US     (10 * G_USEC_PER_SEC)
#define LATE_MIN_US    (2 * G_USEC_PER_SEC) /* that is waited for after the others for one that goes on behind else */
#define SPARE_BYTES    (4u << 20)           /* a late stripe up to this size is worth being sent again at once */
#define SILENT_US      300000               /* of an endpoint to which little was sent */
#define LITTLE_US      (2 * G_USEC_PER_SEC) /* of sending: that is sent again before it would be found to be down */
#define AS_ONE_BYTES   65536                /* up to here a stripe is sent as one piece */

/* What the run sees when it looks at its lanes. */
typedef struct Survey {
    unsigned n_running;
    int failed; /* the first that failed; -1: none */
    bool stored[ECFS_CODEC_MAX_N];
    bool running[ECFS_CODEC_MAX_N];
    int64_t settled_us;
    bool aborted;
    bool idle; /* nothing is being encoded, and no lane is about to be */
} Survey;

void ecfs_writer_finish_digest (XXH3_state_t *state, uint8_t digest[ECFS_STRIPE_DIGEST_BYTES])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash (&canonical, XXH3_128bits_digest (state));
    memcpy (digest, canonical.digest, ECFS_STRIPE_DIGEST_BYTES);
}

/* Life */

static EcfsWriter *writer_new (EcfsWriterJob *job, GError **error)
{
    EcfsLayout layout;
    g_byte_array_unref (ecfs_stripe_header_format (&job->header, NULL)); /* for header_bytes */
    if (!ecfs_stripe_layout (&job->header, job->feed != NULL ? job->most : job->size, &layout, error))
        return NULL;
    EcfsWriter *self = g_new0 (EcfsWriter, 1);
    atomic_init (&self->references, 1);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->changed);
    self->job = job;
    self->layout = layout;
    self->n = ecfs_codec_n (job->codec);
    self->n_segments = ecfs_layout_n_segments (&layout);
    self->lanes = g_new0 (EcfsUpload *, self->n);
    self->ended = job->feed == NULL;
    self->as_one = self->ended && self->n_segments == 1 && ecfs_layout_stored_bytes (&layout, 0) <= AS_ONE_BYTES;
    self->began_us = self->ended_us = ecfs_now_us ();
    self->beginning = true;
    if (job->packets != NULL)
        memcpy (self->object_digest, job->expected_digest, sizeof self->object_digest);
    ecfs_writer_window_init (self);
    return self;
}

EcfsWriter *ecfs_writer_ref (EcfsWriter *self)
{
    atomic_fetch_add (&self->references, 1);
    return self;
}

void ecfs_writer_unref (EcfsWriter *self)
{
    if (atomic_fetch_sub (&self->references, 1) > 1)
        return;
    ecfs_writer_window_clear (self);
    g_free (self->lanes);
    g_clear_error (&self->error);
    ecfs_cond_clear (&self->changed);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

void ecfs_writer_abort_locked (EcfsWriter *self, GError *error)
{
    if (self->error == NULL)
        self->error = error;
    else
        g_error_free (error);
    self->aborted = true;
    for (unsigned i = 0; i < self->n; i++)
        if (self->lanes[i] != NULL && self->lanes[i]->state == LANE_RUNNING)
            ecfs_stream_cancel (self->lanes[i]->stream);
    ecfs_cond_broadcast (&self->changed);
}

void ecfs_writer_idle_locked (EcfsWriter *self)
{
    if (self->n_pulling > 0 || self->encodings->len > 0)
        return;
    for (unsigned i = 0; i < self->n; i++)
        if (self->lanes[i] != NULL && self->lanes[i]->state == LANE_RUNNING)
            return;
    ecfs_cond_broadcast (&self->changed);
}

/* Lanes that fail or are late */

static void cut_lane (EcfsWriter *self, unsigned index)
{
    ecfs_mutex_lock (&self->lock);
    EcfsUpload *lane = ecfs_writer_lane_cut_locked (self, index);
    ecfs_writer_advance_locked (self);
    ecfs_mutex_unlock (&self->lock);
    ecfs_writer_lane_unref (lane);
}

/* Called without the lock: finding a spare blocks. */
static bool send_to_spare (EcfsWriter *self, unsigned index, const GError *error)
{
    EcfsWriterJob *job = self->job;
    EcfsWriterTarget target = job->targets[index];
    if (!job->replace (job->user, index, error, &target))
        return false;
    cut_lane (self, index);
    job->targets[index] = target;
    ecfs_writer_lane_start (self, index);
    return true;
}

static void settle_failed (EcfsWriter *self, const Survey *survey, GString *failures)
{
    unsigned index = (unsigned) survey->failed;
    const GError *error = self->lanes[index]->error; /* a lane that has failed does not change any more */
    if (!survey->aborted)
        g_string_append_printf (failures, "%s%s", failures->len > 0 ? "; " : "", error->message);
    if (survey->aborted || !send_to_spare (self, index, error))
        cut_lane (self, index);
}

static bool hangs (const EcfsWriter *self, unsigned index)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (self->job->targets[index].endpoint, &health);
    bool stuck = health.suspect || (health.down && ecfs_now_us () - health.down_since_us > STUCK_US);
    ecfs_endpoint_health_clear (&health);
    return stuck;
}

/* Whether it is still on its way at @at_us, at its pace so far. */
static bool will_run (const EcfsWriter *self, unsigned index, int64_t at_us)
{
    const EcfsUpload *lane = self->lanes[index];
    int64_t now_us = ecfs_now_us ();
    double sent = (double) atomic_load (&lane->sent_bytes);
    double left = (double) self->layout.header_bytes + (double) ecfs_layout_area_bytes (&self->layout) - sent;
    return left * (double) (now_us - lane->began_us) > sent * (double) (at_us - now_us);
}

static bool is_late (const EcfsWriter *self, unsigned index, const Survey *survey)
{
    int64_t patience_us = MAX (LAG_MIN_US, survey->settled_us - self->ended_us);
    return hangs (self, index) || (survey->settled_us != 0 && ecfs_now_us () - survey->settled_us > patience_us);
}

static bool is_suspect (const EcfsWriter *self, unsigned index)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (self->job->targets[index].endpoint, &health);
    bool suspect = health.suspect;
    ecfs_endpoint_health_clear (&health);
    return suspect;
}

/* Stripes of which little was sent begin anew elsewhere as soon as their endpoints are silent: by the time these are
 * found to be down as much is sent again. Where more than could be lost are silent it is ourselves who were. */
static void leave_silent (EcfsWriter *self, const Survey *survey)
{
    unsigned n_silent = 0;
    int64_t now_us = ecfs_now_us ();
    for (unsigned i = 0; i < self->n; i++) {
        if (!survey->running[i])
            continue;
        EcfsUpload *lane = self->lanes[i];
        bool silent = now_us - lane->began_us < LITTLE_US + SILENT_US && is_suspect (self, i);
        lane->silent_us = !silent ? 0 : lane->silent_us != 0 ? lane->silent_us : now_us;
        n_silent += silent;
    }
    for (unsigned i = 0; i < self->n && n_silent <= self->n - self->layout.k; i++) {
        bool leaves =
            survey->running[i] && self->lanes[i]->silent_us != 0 && now_us - self->lanes[i]->silent_us >= SILENT_US;
        if (leaves && !send_to_spare (self, i, NULL))
            self->lanes[i]->silent_us = now_us; /* not asked again at once */
    }
}

/* Whether all that is still running is late. */
static bool only_late_left (const EcfsWriter *self, const Survey *survey)
{
    for (unsigned i = 0; i < self->n; i++)
        if (survey->running[i] && !is_late (self, i, survey))
            return false;
    return survey->n_running > 0;
}

/* Whether those that are still running will take as long again as the others took together, so that it is not worth
 * while to wait for them where they may go on behind. One that hangs does not go on. */
static bool only_slow_left (const EcfsWriter *self, const Survey *survey)
{
    unsigned n_moving = 0;
    int64_t patience_us = MAX (LATE_MIN_US, survey->settled_us - self->ended_us);
    for (unsigned i = 0; i < self->n; i++) {
        if (!survey->running[i] || hangs (self, i))
            continue;
        n_moving++;
        if (!will_run (self, i, survey->settled_us + patience_us))
            return false;
    }
    return n_moving > 0;
}

static void overtake_late (EcfsWriter *self, const Survey *survey)
{
    const EcfsWriterJob *job = self->job;
    bool enough = survey->aborted || job->possible (job->user, survey->stored);
    bool small = ecfs_layout_area_bytes (&self->layout) <= SPARE_BYTES;
    for (unsigned i = 0; i < self->n; i++) {
        if (!survey->running[i])
            continue;
        bool sent = !survey->aborted && (small || !enough) && send_to_spare (self, i, NULL);
        if (!sent && enough && (survey->aborted || !(job->patient || self->trailing)))
            cut_lane (self, i);
    }
}

static void check_possible (EcfsWriter *self, const Survey *survey, const GString *failures)
{
    bool possible[ECFS_CODEC_MAX_N] = {false};
    for (unsigned i = 0; i < self->n; i++)
        possible[i] = survey->stored[i] || survey->running[i];
    if (survey->aborted || self->job->possible (self->job->user, possible))
        return;
    ecfs_mutex_lock (&self->lock);
    ecfs_writer_abort_locked (self, g_error_new (ECFS_ERROR, EIO, "too few endpoints take its stripes%s%s",
                                                 failures->len > 0 ? ": " : "", failures->str));
    ecfs_mutex_unlock (&self->lock);
}

/* Content that grows */

static void feed_changed (void *user)
{
    EcfsWriter *self = user;
    EcfsFeedState state;
    ecfs_mutex_lock (&self->lock);
    ecfs_feed_look (self->job->feed, &state);
    ecfs_writer_advance_locked (self);
    self->feed_moved = state.final || state.abandoned;
    if (self->feed_moved)
        ecfs_cond_broadcast (&self->changed);
    ecfs_mutex_unlock (&self->lock);
}

static void cancel (EcfsWriter *self, const char *reason)
{
    ecfs_mutex_lock (&self->lock);
    if (!self->aborted)
        ecfs_writer_abort_locked (self, g_error_new_literal (ECFS_ERROR, ECANCELED, reason));
    ecfs_mutex_unlock (&self->lock);
}

/* Looks whether the end of the content is known by now. */
static void follow_feed (EcfsWriter *self)
{
    EcfsFeedState state;
    const EcfsWriterJob *job = self->job;
    if (job->feed == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->feed_moved = false;
    ecfs_mutex_unlock (&self->lock);
    ecfs_feed_look (job->feed, &state);
    if (state.abandoned)
        cancel (self, "the content changed while it was stored");
    uint64_t bytes = state.available - MIN (state.available, job->feed_offset);
    if (self->ended || state.abandoned || (!state.final && bytes <= job->most))
        return;
    bytes = MIN (bytes, job->most);
    if (!ecfs_feed_take (job->feed, job->feed_offset + bytes)) /* it became shorter just now */
        return;
    job->ended (job->user, bytes);
    ecfs_mutex_lock (&self->lock);
    self->ended_us = ecfs_now_us ();
    ecfs_writer_end_locked (self, bytes);
    ecfs_mutex_unlock (&self->lock);
}

/* The run */

static void survey_locked (EcfsWriter *self, Survey *survey) ECFS_REQUIRES (self->lock)
{
    *survey = (Survey){.failed = -1,
                       .aborted = self->aborted,
                       .idle = self->encodings->len == 0 && self->n_pulling == 0,
                       .settled_us = self->settled_us};
    for (unsigned i = 0; i < self->n; i++) {
        if (self->lanes[i] == NULL)
            continue;
        EcfsLaneState state = self->lanes[i]->state;
        survey->stored[i] = state == LANE_STORED;
        survey->running[i] = state == LANE_RUNNING;
        survey->n_running += state == LANE_RUNNING;
        if (state == LANE_FAILED && survey->failed < 0)
            survey->failed = (int) i;
    }
}

/* Looks at the lanes, after a while when there is nothing to do at once. */
static void look (EcfsWriter *self, Survey *survey)
{
    ecfs_mutex_lock (&self->lock);
    survey_locked (self, survey);
    if (survey->failed < 0 && !self->feed_moved && (survey->n_running > 0 || !survey->idle)) {
        int64_t pause_us = survey->settled_us != 0 || survey->n_running == 1 ? LOOK_US : CANCEL_LOOK_US;
        (void) ecfs_cond_wait_until (&self->changed, &self->lock, ecfs_now_us () + pause_us);
        ecfs_writer_advance_locked (self); /* some may be waited for no longer */
        survey_locked (self, survey);
    }
    bool aborted = self->aborted;
    ecfs_mutex_unlock (&self->lock);
    if (!aborted && self->job->cancelled != NULL && self->job->cancelled (self->job->user))
        cancel (self, "storing was cancelled");
}

/* Of the stripes that are stored. */
static void collect (const EcfsWriter *self, const bool *stored, EcfsWriterResult *result)
{
    for (unsigned i = 0; i < self->n; i++) {
        const EcfsUpload *lane = self->lanes[i];
        result->stored[i] = stored[i];
        if (!stored[i])
            continue;
        result->stripe_bytes[i] = lane->stripe_bytes;
        memcpy (result->stripe_digest[i], lane->area_digest, ECFS_STRIPE_DIGEST_BYTES);
    }
    memcpy (result->object_digest, self->object_digest, ECFS_STRIPE_DIGEST_BYTES);
    memcpy (result->object_sha256, self->object_sha256, ECFS_SHA256_SIZE);
    result->header_bytes = self->layout.header_bytes;
}

/* Whether it is time to tell that what is stored suffices. */
static bool is_offer_due (EcfsWriter *self, const Survey *survey)
{
    const EcfsWriterJob *job = self->job;
    if (job->enough == NULL || self->offered || survey->aborted || survey->n_running == 0 || survey->settled_us == 0 ||
        !self->ended || !job->possible (job->user, survey->stored))
        return false;
    self->n_slow_looks = only_slow_left (self, survey) ? self->n_slow_looks + 1 : 0;
    return job->at_quorum || self->n_slow_looks >= LATE_LOOKS;
}

/* Tells once that what is stored suffices. Returns whether the rest is left: nothing is running any more. */
static bool offer (EcfsWriter *self, const Survey *survey)
{
    const EcfsWriterJob *job = self->job;
    if (!is_offer_due (self, survey))
        return false;
    EcfsWriterResult result = {.failures = NULL};
    collect (self, survey->stored, &result);
    self->offered = true;
    EcfsRest rest = job->enough (job->user, &result);
    self->trailing = rest == ECFS_REST_TRAILS;
    if (self->trailing) {
        ecfs_mutex_lock (&self->lock);
        ecfs_writer_window_narrow_locked (self);
        ecfs_mutex_unlock (&self->lock);
    }
    for (unsigned i = 0; i < self->n && rest == ECFS_REST_LEFT; i++)
        if (survey->running[i])
            cut_lane (self, i);
    return rest == ECFS_REST_LEFT;
}

static void run_lanes (EcfsWriter *self, GString *failures, EcfsWriterResult *result)
{
    unsigned n_late_looks = 0;
    for (;;) {
        Survey survey;
        follow_feed (self);
        look (self, &survey);
        if (survey.failed >= 0) {
            settle_failed (self, &survey, failures);
            continue;
        }
        check_possible (self, &survey, failures);
        if (offer (self, &survey))
            continue;
        if (!survey.aborted && survey.settled_us == 0)
            leave_silent (self, &survey);
        if (survey.n_running == 0 && survey.idle) {
            collect (self, survey.stored, result);
            return;
        }
        n_late_looks = only_late_left (self, &survey) ? n_late_looks + 1 : 0;
        if (n_late_looks >= LATE_LOOKS)
            overtake_late (self, &survey);
    }
}

static void start_lanes (EcfsWriter *self)
{
    if (self->job->feed != NULL)
        ecfs_feed_watch (self->job->feed, feed_changed, self);
    ecfs_writer_encode_small (self);
    ecfs_mutex_lock (&self->lock);
    bool aborted = self->aborted;
    ecfs_mutex_unlock (&self->lock);
    for (unsigned i = 0; i < self->n && !aborted; i++)
        if (self->job->targets[i].endpoint != NULL)
            ecfs_writer_lane_start (self, i);
    ecfs_mutex_lock (&self->lock);
    self->beginning = false;
    ecfs_writer_advance_locked (self);
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_writer_run (EcfsWriterJob *job, EcfsWriterResult *ret_result, GError **error)
{
    EcfsWriter *self = writer_new (job, error);
    if (self == NULL)
        return false;
    GString *failures = g_string_new (NULL);
    start_lanes (self);
    EcfsWriterResult result = {.failures = failures};
    run_lanes (self, failures, &result);
    if (job->feed != NULL)
        ecfs_feed_watch (job->feed, NULL, NULL);
    bool fine = self->error == NULL;
    if (fine) {
        *ret_result = result;
    } else {
        g_string_free (failures, TRUE);
        g_propagate_error (error, g_steal_pointer (&self->error));
    }
    for (unsigned i = 0; i < self->n; i++)
        ecfs_writer_lane_unref (self->lanes[i]);
    ecfs_writer_unref (self);
    return fine;
}
