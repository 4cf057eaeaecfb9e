/*
 * STREAM: content that is still being written, stored behind its writer. The last objects, their sizes and what the
 * stripes tell of the file are known when the feed is final; until then an object takes all that comes, up to what
 * objects hold.
 */
#include "commit/commit_priv.h"

#include "archive/common.h"

#define LOOK_US 100000 /* whether the attempt is cancelled */

/* Code and places of an object are chosen by its size: so much of it is waited for. */
static bool await_object (EcfsCommitAttempt *self, uint64_t offset, EcfsFeedState *ret_state, GError **error)
{
    const EcfsConfig *config = ecfs_archive_config (self->archive);
    uint64_t wanted = offset + config->small_file + config->segment_size;
    do {
        if (ecfs_attempt_is_cancelled (self))
            return ecfs_fail (error, ECANCELED, "storing was cancelled");
        ecfs_feed_wait (self->commit.stream.feed, wanted, ecfs_now_us () + LOOK_US);
        ecfs_feed_look (self->commit.stream.feed, ret_state);
        if (ret_state->abandoned)
            return ecfs_fail (error, ECANCELED, "the content changed while it was stored");
    } while (ret_state->available < wanted && !ret_state->final);
    return true;
}

/* The whole of an object is what the content has from its offset on; which bytes of the file these are is known last.
 */
static EcfsCommitObject *feed_part (EcfsCommitAttempt *self, uint64_t offset, uint64_t available)
{
    EcfsCommitObject *part = ecfs_attempt_part (self);
    EcfsFileRange all = {.file_offset = offset, .length = ecfs_archive_config (self->archive)->object_max};
    part->whole = g_array_append_val (g_array_new (FALSE, FALSE, sizeof all), all);
    part->feed_offset = offset;
    part->number = self->parts->len - 1;
    part->row->size = MIN (available - offset, ecfs_archive_config (self->archive)->object_max);
    return part;
}

void ecfs_attempt_content_ended (void *attempt, uint64_t bytes)
{
    EcfsCommitAttempt *self = attempt;
    EcfsCommitObject *part = self->part;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    EcfsFeedState state;
    EcfsAttr attr;
    EcfsFileRange range = {.file_offset = part->feed_offset, .length = bytes};
    part->row->size = bytes;
    g_array_append_val (part->ranges, range);
    self->commit.size = part->feed_offset + bytes;
    ecfs_feed_look (self->commit.stream.feed, &state);
    if (state.final)
        self->commit.stream.ended (self->commit.user, &self->commit);
    if (state.final && state.available == part->feed_offset + bytes)
        part->n_objects = self->parts->len;
    /* Names and attributes are what they are at the end. */
    if (ecfs_catalog_getattr (catalog, self->commit.ino, &attr, NULL)) /* else nothing comes of it anyway */
        self->attr = attr;
    if (self->commit.path == NULL) {
        g_free (self->path);
        self->path = ecfs_catalog_path (catalog, self->commit.ino);
    }
    ecfs_attempt_describe (self);
}

/* Somebody may have asked for another code since the object began. */
bool ecfs_attempt_check_codes (EcfsCommitAttempt *self, GError **error)
{
    for (guint i = 0; i < self->parts->len; i++) {
        const EcfsObjectRow *row = ((const EcfsCommitObject *) g_ptr_array_index (self->parts, i))->row;
        const EcfsCodec *codec = ecfs_attempt_codec (self, row->size, error);
        if (codec == NULL)
            return false;
        if (strcmp (ecfs_codec_identity (codec), row->code) != 0)
            return ecfs_fail (error, ECANCELED, "its code was changed while it was stored");
    }
    return true;
}

bool ecfs_attempt_store_feed (EcfsCommitAttempt *self, GError **error)
{
    EcfsFeedState state;
    for (uint64_t offset = 0;; offset += ecfs_archive_config (self->archive)->object_max) {
        if (!await_object (self, offset, &state, error))
            return false;
        if (state.final && state.available <= offset)
            break;
        EcfsCommitObject *part = feed_part (self, offset, state.available);
        const EcfsCodec *codec = ecfs_attempt_codec (self, part->row->size, error);
        if (codec == NULL || !ecfs_attempt_store_object (self, part, codec, error))
            return false;
    }
    self->commit.stream.ended (self->commit.user, &self->commit);
    return true;
}
