/* STORE and STREAM: new content of a file, its objects one after another, then all at once the file's. */
#include "commit/commit_priv.h"

#include "archive/common.h"
#include "commit/logs.h"
#include "util/io.h"

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

EcfsPublish ecfs_attempt_publish (const EcfsCommitAttempt *self)
{
    const atomic_bool *time_told = self->commit.publish.time_told;
    return (EcfsPublish){.ino = self->commit.ino,
                         .size = self->commit.size,
                         .mtime_ns = self->commit.mtime_ns,
                         .ctime_ns = self->commit.ctime_ns,
                         .keep_mtime = time_told != NULL && atomic_load (time_told),
                         .staging = self->commit.publish.staging};
}

static void *take_along (const EcfsCommitAttempt *self, EcfsPublish *publish)
{
    if (self->commit.publish.leave == NULL)
        return NULL;
    return self->commit.publish.leave (self->commit.user, &publish->leaving, &publish->n_leaving);
}

static void end_along (const EcfsCommitAttempt *self, void *leavers, bool gone)
{
    if (leavers != NULL)
        self->commit.publish.left (leavers, gone);
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
    EcfsPublish publish = ecfs_attempt_publish (self);
    publish.intents = intents;
    publish.objects = objects;
    publish.n_objects = self->parts->len;
    publish.extents = (const EcfsExtent *) (void *) extents->data;
    publish.n_extents = extents->len;
    publish.full = full;
    publish.last_goes_on = goes_on;
    ecfs_archive_await_session (self->archive);
    void *leavers = take_along (self, &publish);
    bool durable = ecfs_catalog_publish (ecfs_archive_catalog (self->archive), &publish, &self->outcome.kept, error);
    end_along (self, leavers, durable);
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

bool ecfs_attempt_may_publish (EcfsCommitAttempt *self, GError **error)
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
    if (!ecfs_attempt_may_publish (self, &self->early_error) || !publish (self, true, &self->early_error))
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

/* Logs */

/* Whether the content may be a record of a log: it is small, and all of it is data. */
static bool fits_log (const EcfsCommitAttempt *self)
{
    if (self->commit.size > MIN (ecfs_archive_config (self->archive)->small_file, ECFS_LOG_FILE_MAX) ||
        self->parts->len != 1 || ecfs_archive_service (self->archive, ECFS_SERVICE_LOGS) == NULL)
        return false;
    const GArray *ranges = ((const EcfsCommitObject *) g_ptr_array_index (self->parts, 0))->ranges;
    return ranges->len == 1 && g_array_index (ranges, EcfsFileRange, 0).length == self->commit.size;
}

static bool suffices (void *user, const bool *stored, const size_t *position)
{
    const EcfsCommitAttempt *self = user;
    return ecfs_attempt_is_backed (self, stored, position);
}

uint8_t *ecfs_attempt_read_all (const EcfsCommitAttempt *self, uint8_t ret_sha256[ECFS_SHA256_SIZE], GError **error)
{
    g_autofree uint8_t *content = g_malloc (self->commit.size);
    ssize_t got = ecfs_pread_all (self->commit.fd, content, self->commit.size, 0);
    if (got != (ssize_t) self->commit.size) {
        (void) !ecfs_fail_errno (error, got < 0 ? (int) -got : EIO, "reading staged content");
        return NULL;
    }
    g_autoptr (EcfsSha256) sum = ecfs_sha256_new ();
    ecfs_sha256_update (sum, content, self->commit.size);
    ecfs_sha256_end (sum, ret_sha256);
    return g_steal_pointer (&content);
}

/* As they were when the attempt began. */
static bool find_log_rules (EcfsCommitAttempt *self, GError **error)
{
    ecfs_ruled_clear (&self->ruled);
    if (self->commit.parent != 0)
        return ecfs_attempt_file_rules (self, &self->ruled, error);
    return !self->facts.is_said ||
           ecfs_archive_directories_ruled (self->archive, self->facts.directories, &self->ruled, error);
}

static const EcfsCodec *log_codec (const EcfsCommitAttempt *self, GError **error)
{
    const char *code = self->commit.code != NULL ? self->commit.code : self->facts.code;
    return ecfs_archive_object_codec (self->archive, code != NULL ? code : ecfs_archive_config (self->archive)->code,
                                      self->commit.size, error);
}

/* Stores the content as a record and publishes it. False with ENOTSUP: it is to be an object of its own. */
static bool store_in_log (EcfsCommitAttempt *self, GError **error)
{
    EcfsLogPlace place;
    EcfsLogOrder order = {.codec = log_codec (self, error),
                          .record = {.ino = self->commit.ino,
                                     .sequence = self->facts.sequence,
                                     .mode = self->attr.mode,
                                     .uid = self->attr.uid,
                                     .gid = self->attr.gid,
                                     .mtime_ns = self->commit.mtime_ns,
                                     .path = self->path,
                                     .path_bytes = strlen (self->path),
                                     .content_bytes = self->commit.size},
                          .suffices = suffices,
                          .cancelled = ecfs_attempt_is_cancelled,
                          .user = self};
    if (order.codec == NULL || !find_log_rules (self, error))
        return false;
    order.marks = self->ruled.marks;
    g_autofree uint8_t *content = ecfs_attempt_read_all (self, order.sha256, error);
    if (content == NULL)
        return false;
    order.record.content = content;
    self->places.codec = order.codec;
    if (!ecfs_logs_append (ecfs_archive_service (self->archive, ECFS_SERVICE_LOGS), &order, &place, error))
        return false;
    if (!ecfs_attempt_may_publish (self, error)) {
        ecfs_logs_give_up (&place);
        return false;
    }
    EcfsPublish publish = ecfs_attempt_publish (self);
    ecfs_archive_await_session (self->archive);
    ecfs_logs_await_turn (&place); /* who leaves is nowhere until then */
    void *leavers = take_along (self, &publish);
    GError *why = NULL;
    bool durable = ecfs_logs_publish (&place, &publish, &self->outcome.kept, &why);
    end_along (self, leavers, durable);
    if (why != NULL) {
        why->code = why->code == EAGAIN ? ENOTSUP : why->code;
        g_propagate_error (error, why);
    }
    self->outcome.full = publish.full;
    return durable;
}

/* Storing */

static bool store_objects (EcfsCommitAttempt *self, GError **error)
{
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

bool ecfs_attempt_store_apart (EcfsCommitAttempt *self, GError **error)
{
    bool stored =
        self->commit.kind == ECFS_COMMIT_STREAM ? ecfs_attempt_store_feed (self, error) : store_objects (self, error);
    return stored && (self->early || (ecfs_attempt_may_publish (self, error) && publish (self, false, error)));
}

/* Whether a moment's delay is nothing to anybody, and it has not failed with others before. */
static bool may_wait (const EcfsCommitAttempt *self)
{
    return ecfs_archive_config (self->archive)->commit_async && !self->commit.is_foreign && !self->commit.has_failed &&
           ecfs_archive_service (self->archive, ECFS_SERVICE_TOGETHER) != NULL;
}

bool ecfs_attempt_store (EcfsCommitAttempt *self, bool *ret_together, GError **error)
{
    GError *why = NULL;
    *ret_together = false;
    if (self->commit.kind == ECFS_COMMIT_STORE)
        divide (self);
    if (self->commit.kind == ECFS_COMMIT_STREAM || !fits_log (self))
        return ecfs_attempt_store_apart (self, error);
    if (store_in_log (self, &why))
        return true;
    if (why->code != ENOTSUP) {
        g_propagate_error (error, why);
        return false;
    }
    g_error_free (why);
    *ret_together = may_wait (self);
    return !*ret_together && ecfs_attempt_store_apart (self, error);
}
