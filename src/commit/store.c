/* STORE and STREAM: new content of a file, its objects one after another, then all at once the file's. */
#include "commit/commit_priv.h"

#include "archive/common.h"

/* Divides the data of the file into objects. */
static void divide (EcfsCommitAttempt *self)
{
    const uint64_t most = ecfs_archive_config (self->archive)->object_max;
    g_autoptr (GArray) data = ecfs_data_ranges (self->commit.fd, self->commit.size);
    EcfsCommitObject *part = NULL;
    for (guint i = 0; i < data->len; i++) {
        EcfsFileRange range = g_array_index (data, EcfsFileRange, i);
        while (range.length > 0) {
            if (part == NULL || part->row->size == most)
                part = ecfs_attempt_part (self);
            EcfsFileRange cut = range;
            cut.length = MIN (range.length, most - part->row->size);
            cut.object_offset = part->row->size;
            g_array_append_val (part->ranges, cut);
            part->row->size += cut.length;
            range.file_offset += cut.length;
            range.length -= cut.length;
        }
    }
}

static GArray *all_extents (const EcfsCommitAttempt *self)
{
    GArray *extents = g_array_new (FALSE, FALSE, sizeof (EcfsExtent));
    for (guint i = 0; i < self->parts->len; i++) {
        const EcfsCommitObject *part = g_ptr_array_index (self->parts, i);
        for (guint j = 0; j < part->ranges->len; j++) {
            const EcfsFileRange *range = &g_array_index (part->ranges, EcfsFileRange, j);
            EcfsExtent extent = {.offset = range->file_offset,
                                 .length = range->length,
                                 .object = i,
                                 .object_offset = range->object_offset};
            g_array_append_val (extents, extent);
        }
    }
    return extents;
}

/* With @goes_on, stripes of the last object are on their way still. */
static bool publish (EcfsCommitAttempt *self, bool goes_on, GError **error)
{
    g_autoptr (GArray) extents = all_extents (self);
    g_autofree int64_t *intents = g_new0 (int64_t, self->parts->len + 1);
    g_autofree const EcfsObjectRow **objects = g_new0 (const EcfsObjectRow *, self->parts->len + 1);
    bool full = self->spare_error == NULL;
    for (guint i = 0; i < self->parts->len; i++) {
        const EcfsCommitObject *part = g_ptr_array_index (self->parts, i);
        intents[i] = part->intent;
        objects[i] = part->row;
        full = full && part->full;
    }
    EcfsPublish publish = {.ino = self->commit.ino,
                           .intents = intents,
                           .objects = objects,
                           .n_objects = self->parts->len,
                           .extents = (const EcfsExtent *) (void *) extents->data,
                           .n_extents = extents->len,
                           .size = self->commit.size,
                           .mtime_ns = self->commit.mtime_ns,
                           .keep_mtime =
                               self->commit.publish.time_told != NULL && atomic_load (self->commit.publish.time_told),
                           .staging = self->commit.publish.staging,
                           .full = full,
                           .last_goes_on = goes_on};
    ecfs_archive_await_session (self->archive);
    bool durable = ecfs_catalog_publish (ecfs_archive_catalog (self->archive), &publish, &self->outcome.kept, error);
    self->outcome.full = full;
    guint n_ended = self->parts->len - goes_on;
    for (guint i = 0; (durable || self->outcome.kept) && i < n_ended; i++)
        ((EcfsCommitObject *) g_ptr_array_index (self->parts, i))->intent = 0;
    return durable;
}

bool ecfs_attempt_check_unchanged (const EcfsCommitAttempt *self, GError **error)
{
    return self->commit.unchanged == NULL || self->commit.unchanged (self->commit.user) ||
           ecfs_fail (error, ECANCELED, "the content changed while it was stored");
}

/* Whether what the attempt holds may become the file's content. */
static bool check (EcfsCommitAttempt *self, GError **error)
{
    return (self->commit.kind != ECFS_COMMIT_STREAM || ecfs_attempt_check_codes (self, error)) &&
           ecfs_attempt_check_unchanged (self, error);
}

/* Quorum (close_at) */

static bool is_last (const EcfsCommitAttempt *self)
{
    if (self->commit.kind == ECFS_COMMIT_STORE)
        return self->part == g_ptr_array_index (self->parts, self->parts->len - 1);
    EcfsFeedState state;
    ecfs_feed_look (self->commit.stream.feed, &state);
    return state.final && self->part->feed_offset + self->part->row->size == state.available;
}

EcfsRest ecfs_attempt_publish_early (void *attempt, const EcfsWriterResult *result)
{
    EcfsCommitAttempt *self = attempt;
    if (!is_last (self))
        return ECFS_REST_AWAITED;
    ecfs_attempt_note_stored (self, result);
    self->early = true;
    if (!check (self, &self->early_error) || !publish (self, true, &self->early_error))
        return ECFS_REST_LEFT;
    return self->commit.publish.published (self->commit.user) ? ECFS_REST_TRAILS : ECFS_REST_LEFT;
}

bool ecfs_attempt_add_rest (EcfsCommitAttempt *self, const EcfsWriterResult *result, GError **error)
{
    EcfsCommitObject *part = self->part;
    bool known[ECFS_CODEC_MAX_N] = {0};
    if (self->early_error != NULL) {
        g_propagate_error (error, g_steal_pointer (&self->early_error));
        return false;
    }
    for (guint i = 0; i < part->row->stripes->len; i++)
        known[g_array_index (part->row->stripes, EcfsStripeRow, i).index] = true;
    ecfs_attempt_note_stored (self, result);
    g_autoptr (GArray) rest = g_array_new (FALSE, FALSE, sizeof (EcfsStripeRow));
    for (guint i = 0; i < part->row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (part->row->stripes, EcfsStripeRow, i);
        if (!known[stripe->index])
            g_array_append_val (rest, *stripe);
    }
    GError *why = NULL;
    if (rest->len > 0 &&
        (!ecfs_attempt_check_unchanged (self, &why) || !ecfs_attempt_set_stripes (self, part, rest, &why))) {
        why->code = why->code == ESTALE ? EIO : why->code; /* one stripe is another: who fills up next sees to it */
        g_propagate_error (error, why);
        return false;
    }
    ecfs_archive_stripes_changed (self->archive);
    bool full = self->spare_error == NULL;
    for (guint i = 0; i < self->parts->len; i++)
        full = full && ((const EcfsCommitObject *) g_ptr_array_index (self->parts, i))->full;
    self->outcome.full = full;
    return full || ecfs_fail (error, EIO, "not all of its stripes are stored yet%s%s",
                              result->failures->len > 0 ? ": " : "", result->failures->str);
}

/* Storing */

static bool store_objects (EcfsCommitAttempt *self, GError **error)
{
    divide (self);
    for (guint i = 0; i < self->parts->len; i++) {
        EcfsCommitObject *part = g_ptr_array_index (self->parts, i);
        part->number = i;
        part->n_objects = self->parts->len;
    }
    for (guint i = 0; i < self->parts->len; i++) {
        EcfsCommitObject *part = g_ptr_array_index (self->parts, i);
        const EcfsCodec *codec = ecfs_attempt_codec (self, part->row->size, error);
        if (codec == NULL || !ecfs_attempt_store_object (self, part, codec, error))
            return false;
    }
    return true;
}

bool ecfs_attempt_store (EcfsCommitAttempt *self, GError **error)
{
    bool stored =
        self->commit.kind == ECFS_COMMIT_STREAM ? ecfs_attempt_store_feed (self, error) : store_objects (self, error);
    return stored && (self->early || (check (self, error) && publish (self, false, error)));
}
