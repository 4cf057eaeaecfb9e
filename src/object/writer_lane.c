/* One stripe on its way: what its endpoint pulls. */
#include "object/writer_priv.h"

static void format_footer (EcfsUpload *lane)
{
    EcfsWriter *self = lane->writer;
    ecfs_writer_finish_digest (lane->digest, lane->area_digest);
    EcfsStripeFooter footer = {.records = self->job->records, .is_pack = self->job->is_pack};
    memcpy (footer.area_digest, lane->area_digest, ECFS_STRIPE_DIGEST_BYTES);
    ecfs_mutex_lock (&self->lock);
    footer.size = self->layout.size;
    footer.area_bytes = ecfs_layout_area_bytes (&self->layout);
    memcpy (footer.object_digest, self->object_digest, ECFS_STRIPE_DIGEST_BYTES);
    footer.chain = self->job->packets != NULL ? self->job->chain : self->chain;
    ecfs_mutex_unlock (&self->lock);
    g_clear_pointer (&lane->footer, g_byte_array_unref);
    lane->footer = ecfs_stripe_footer_format (&footer, self->layout.header_bytes + footer.area_bytes, &lane->identity,
                                              self->job->keys);
    lane->stripe_bytes = self->layout.header_bytes + footer.area_bytes + lane->footer->len;
}

/* The segment that the lane is at, with a reference, and moves it on; NULL: not there yet, or *ret_end. */
static EcfsSegment *next_segment (EcfsUpload *lane, bool *ret_end)
{
    EcfsWriter *self = lane->writer;
    EcfsSegment *segment = NULL;
    ecfs_mutex_lock (&self->lock);
    *ret_end = self->ended && lane->segment == self->n_segments;
    if (!lane->cut && !self->aborted && !*ret_end) {
        segment = ecfs_writer_cached_locked (self, lane->segment);
        lane->waiting = segment == NULL;
        if (segment != NULL) {
            lane->segment = ecfs_segment_ref (segment)->index + 1;
            int64_t now_us = ecfs_now_us ();
            lane->usual_us = lane->pulled_us == 0 ? 0 : ecfs_writer_lane_pace_us (lane, now_us);
            lane->pulled_us = now_us;
        }
        ecfs_writer_advance_locked (self);
    }
    ecfs_mutex_unlock (&self->lock);
    return segment;
}

static EcfsPull give (EcfsUpload *lane, EcfsSegment *owner, const uint8_t *bytes, size_t size,
                      const uint8_t **ret_bytes, size_t *ret_size)
{
    g_queue_push_tail (&lane->lent, owner);
    *ret_bytes = bytes;
    *ret_size = size;
    return ECFS_PULL_BYTES;
}

/* The whole stripe of a small object as one piece, so that it costs the endpoint one write. */
static EcfsPull give_small (EcfsUpload *lane, EcfsSegment *segment, const uint8_t **ret_bytes, size_t *ret_size)
{
    g_byte_array_append (lane->header, ecfs_segment_packet (segment, lane->index), segment->stored_bytes);
    ecfs_segment_unref (segment);
    format_footer (lane);
    g_byte_array_append (lane->header, lane->footer->data, lane->footer->len);
    lane->phase = PHASE_END;
    return give (lane, NULL, lane->header->data, lane->header->len, ret_bytes, ret_size);
}

static EcfsPull give_footer (EcfsUpload *lane, const uint8_t **ret_bytes, size_t *ret_size)
{
    format_footer (lane);
    lane->phase = PHASE_END;
    return give (lane, NULL, lane->footer->data, lane->footer->len, ret_bytes, ret_size);
}

static EcfsPull pull_packet (EcfsUpload *lane, const uint8_t **ret_bytes, size_t *ret_size)
{
    bool end;
    EcfsSegment *segment = next_segment (lane, &end);
    if (end)
        return give_footer (lane, ret_bytes, ret_size);
    if (segment == NULL)
        return ECFS_PULL_LATER;
    const uint8_t *packet = ecfs_segment_packet (segment, lane->index);
    ecfs_xxh3_128_update (lane->digest, packet, segment->stored_bytes);
    if (lane->writer->as_one)
        return give_small (lane, segment, ret_bytes, ret_size);
    return give (lane, segment, packet, segment->stored_bytes, ret_bytes, ret_size);
}

static EcfsPull pull_next (EcfsUpload *lane, const uint8_t **ret_bytes, size_t *ret_size)
{
    switch (lane->phase) {
    case PHASE_HEADER:
        lane->phase = PHASE_PACKETS;
        if (lane->writer->as_one)
            return pull_packet (lane, ret_bytes, ret_size);
        return give (lane, NULL, lane->header->data, lane->header->len, ret_bytes, ret_size);
    case PHASE_PACKETS:
        return pull_packet (lane, ret_bytes, ret_size);
    case PHASE_END:
        break;
    }
    return ECFS_PULL_END;
}

/* The run does not end, and its job with it, while a lane of it is in here. */
static EcfsPull pull (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    EcfsUpload *lane = user;
    EcfsWriter *self = lane->writer;
    ecfs_mutex_lock (&self->lock);
    bool over = lane->cut || self->aborted;
    self->n_pulling += !over;
    ecfs_mutex_unlock (&self->lock);
    if (over)
        return ECFS_PULL_ABORT;
    EcfsPull answer = pull_next (lane, ret_bytes, ret_size);
    ecfs_mutex_lock (&self->lock);
    self->n_pulling--;
    ecfs_writer_idle_locked (self);
    ecfs_mutex_unlock (&self->lock);
    return answer;
}

static void released (void *user, const uint8_t *bytes, size_t size)
{
    EcfsUpload *lane = user;
    (void) bytes;
    (void) atomic_fetch_add (&lane->sent_bytes, size);
    ecfs_segment_unref (g_queue_pop_head (&lane->lent));
}

static void lane_done (void *user, const GError *error)
{
    EcfsUpload *lane = user;
    EcfsWriter *self = lane->writer;
    ecfs_mutex_lock (&self->lock);
    lane->state = error == NULL ? LANE_STORED : LANE_FAILED;
    lane->waiting = false;
    if (!lane->cut) {
        lane->error = error == NULL ? NULL : g_error_copy (error);
        bool first = self->settled_us == 0;
        if (error == NULL)
            self->settled_us = ecfs_now_us ();
        ecfs_writer_advance_locked (self);
        /* From the first on, the run looks for late ones. */
        if (error != NULL || first || self->job->at_quorum)
            ecfs_cond_broadcast (&self->changed);
        else
            ecfs_writer_idle_locked (self);
    }
    ecfs_mutex_unlock (&self->lock);
    ecfs_writer_lane_unref (lane);
}

static EcfsUpload *lane_new (EcfsWriter *self, unsigned index, const EcfsStripeHeader *header)
{
    EcfsUpload *lane = g_new0 (EcfsUpload, 1);
    atomic_init (&lane->references, 2);
    atomic_init (&lane->sent_bytes, 0);
    lane->writer = ecfs_writer_ref (self);
    lane->index = index;
    lane->state = LANE_RUNNING;
    lane->began_us = ecfs_now_us ();
    lane->identity = *header;
    lane->header = ecfs_stripe_header_format (&lane->identity, self->job->keys);
    lane->digest = XXH3_createState ();
    XXH3_128bits_reset (lane->digest);
    g_queue_init (&lane->lent);
    return lane;
}

void ecfs_writer_lane_start (EcfsWriter *self, unsigned index)
{
    const EcfsWriterTarget *target = &self->job->targets[index];
    EcfsStripeHeader header = self->job->header;
    header.index = (uint16_t) index;
    header.instance = target->instance;
    EcfsUpload *lane = lane_new (self, index, &header);
    char name[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (&header.object, header.index, header.instance, name);
    EcfsSource source = {.pull = pull,
                         .release = released,
                         .done = lane_done,
                         .user = lane,
                         .size = self->layout.header_bytes + ecfs_layout_area_bytes (&self->layout)};
    if (!self->ended)
        source.size = 0;
    ecfs_mutex_lock (&self->lock);
    self->lanes[index] = lane;
    lane->stream = ecfs_endpoint_write (target->endpoint, name, &source);
    ecfs_mutex_unlock (&self->lock);
}

EcfsUpload *ecfs_writer_lane_cut_locked (EcfsWriter *self, unsigned index)
{
    EcfsUpload *lane = g_steal_pointer (&self->lanes[index]);
    lane->cut = true;
    if (lane->state == LANE_RUNNING)
        ecfs_stream_cancel (lane->stream);
    return lane;
}

void ecfs_writer_lane_unref (EcfsUpload *lane)
{
    if (lane == NULL || atomic_fetch_sub (&lane->references, 1) > 1)
        return;
    ecfs_stream_unref (lane->stream);
    g_clear_error (&lane->error);
    g_byte_array_unref (lane->header);
    g_clear_pointer (&lane->footer, g_byte_array_unref);
    XXH3_freeState (lane->digest);
    ecfs_writer_unref (lane->writer);
    g_free (lane);
}
