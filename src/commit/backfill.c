/*
 * BACKFILL: objects that are there get the stripes that they lack; one under a key that cannot be read is stored anew.
 * RECODE and REPAIR do the same with another code, and with bytes that were rebuilt.
 */
#include "commit/commit_priv.h"

#include "archive/common.h"
#include "catalog/past.h"

#define FILL_ATTEMPTS 3

/* NULL: it is gone meanwhile. */
static const EcfsUuid *uuid_of (EcfsCommitAttempt *self, int64_t object)
{
    if (self->uuids == NULL)
        self->uuids = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, g_free);
    const EcfsUuid *uuid = g_hash_table_lookup (self->uuids, &object);
    if (uuid != NULL)
        return uuid;
    g_autoptr (EcfsObjectRow) row = ecfs_catalog_object (ecfs_archive_catalog (self->archive), object, NULL);
    if (row != NULL)
        g_hash_table_insert (self->uuids, g_memdup2 (&object, sizeof object), g_memdup2 (&row->uuid, sizeof row->uuid));
    return row == NULL ? NULL : g_hash_table_lookup (self->uuids, &object);
}

/* Notes what else the file consists of, so that the object's stripes tell it. */
static void note_elsewhere (EcfsCommitAttempt *self, EcfsCommitObject *part, const GArray *extents, int64_t object)
{
    g_autoptr (GArray) elsewhere = g_array_new (FALSE, FALSE, sizeof (EcfsElsewhere));
    part->is_apart = true;
    for (guint i = 0; i < extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, i);
        const EcfsUuid *uuid = extent->object == object ? NULL : uuid_of (self, extent->object);
        if (extent->object != object && (uuid == NULL || elsewhere->len == ECFS_ELSEWHERE_MAX))
            return;
        EcfsElsewhere there = {
            .file_offset = extent->offset, .length = extent->length, .object_offset = extent->object_offset};
        if (uuid == NULL)
            continue;
        there.object = *uuid;
        g_array_append_val (elsewhere, there);
    }
    part->n_objects = 1;
    part->elsewhere = g_steal_pointer (&elsewhere);
}

/* The object of an extent run, as a part whose ranges say where the staged file has its content. */
static EcfsCommitObject *committed_part (EcfsCommitAttempt *self, const GArray *extents, guint *next, GError **error)
{
    int64_t object = g_array_index (extents, EcfsExtent, *next).object;
    EcfsObjectRow *row = ecfs_catalog_object (ecfs_archive_catalog (self->archive), object, error);
    if (row == NULL)
        return NULL;
    EcfsCommitObject *part = ecfs_attempt_part (self);
    ecfs_object_row_free (part->row);
    part->row = row;
    note_elsewhere (self, part, extents, object);
    for (; *next < extents->len; (*next)++) {
        const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, *next);
        if (extent->object != object)
            break;
        EcfsFileRange range = {
            .file_offset = extent->offset, .length = extent->length, .object_offset = extent->object_offset};
        g_array_append_val (part->ranges, range);
    }
    return part;
}

static bool stores_only_named (const EcfsCommitAttempt *self)
{
    return self->commit.kind == ECFS_COMMIT_REPAIR && self->commit.repair.order->only_named;
}

static size_t position_of (const EcfsCommitAttempt *self, int64_t endpoint)
{
    for (size_t i = 0; i < self->places.n_endpoints; i++)
        if (ecfs_archive_endpoint (self->archive, i)->id == endpoint)
            return i;
    return SIZE_MAX;
}

static void note_stored_stripes (EcfsCommitAttempt *self, const EcfsObjectRow *row)
{
    for (guint i = 0; i < row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (row->stripes, EcfsStripeRow, i);
        if (self->repair.replaced[stripe->index].instance != 0)
            continue;
        self->stored_before[stripe->index] = true;
        self->places.position[stripe->index] = position_of (self, stripe->endpoint);
    }
}

/* Stripes that a REPAIR stores once more stay where they are, if their endpoints take some, as @marks allow; these are
 * not @wanted then. */
static void place_back (EcfsCommitAttempt *self, const char *marks, bool *wanted, EcfsWriterTarget *targets)
{
    unsigned n = ecfs_codec_n (self->places.codec);
    unsigned most = ecfs_object_most_per_endpoint (self->archive, &self->places);
    EcfsObjectPlaces of_object = self->places;
    of_object.marks = marks;
    g_autofree EcfsPlace *places = ecfs_object_places (self->archive, &of_object, ECFS_DOUBTS_ALL);
    for (unsigned i = 0; i < n; i++) {
        const EcfsStripeRow *replaced = &self->repair.replaced[i];
        size_t at = replaced->instance == 0 ? SIZE_MAX : position_of (self, replaced->endpoint);
        if (!wanted[i] || at == SIZE_MAX || self->commit.repair.order->moved[i] || !places[at].usable ||
            places[at].room == 0 || places[at].n_held >= most)
            continue;
        places[at].n_held++;
        wanted[i] = false;
        self->places.position[i] = at;
        targets[i] = (EcfsWriterTarget){.endpoint = ecfs_archive_endpoint (self->archive, at)->endpoint,
                                        .instance = ecfs_attempt_instance ()};
    }
}

static void note_missing (EcfsCommitAttempt *self, const char *reason)
{
    if (self->missing == NULL)
        self->missing = g_string_new (reason);
    else if (strstr (self->missing->str, reason) == NULL) /* most objects of a file lack the same */
        g_string_append_printf (self->missing, "; %s", reason);
}

static void note_unusable (EcfsCommitAttempt *self)
{
    g_autofree char *unusable = ecfs_unusable_endpoints (self->archive, &self->places);
    if (stores_only_named (self))
        note_missing (self, "no other endpoint can take the stripes that are to be moved");
    note_missing (self, unusable[0] != '\0' ? unusable + strlen ("; ") : "there is no endpoint left for them");
    g_autofree char *rule = ecfs_ruled_describe (self->archive, &self->ruled);
    if (rule[0] != '\0')
        note_missing (self, rule + strlen ("; "));
}

/* Those of the wanted stripes that were stored; what was not is noted as missing. */
static GArray *stored_stripes (EcfsCommitAttempt *self, const EcfsWriterTarget *targets, const EcfsWriterResult *result)
{
    bool lacks_some = false;
    GArray *stripes = g_array_new (FALSE, TRUE, sizeof (EcfsStripeRow));
    for (unsigned i = 0; i < ecfs_codec_n (self->places.codec); i++) {
        lacks_some = lacks_some || (targets[i].endpoint != NULL && !result->stored[i]);
        if (!result->stored[i])
            continue;
        EcfsStripeRow stripe = ecfs_attempt_stored_stripe (self, i, targets, result);
        g_array_append_val (stripes, stripe);
    }
    if (lacks_some && result->failures->len > 0) /* others of the failures may have been made good by spares */
        note_missing (self, result->failures->str);
    else if (lacks_some) /* it was late */
        note_unusable (self);
    g_string_free (result->failures, TRUE);
    return stripes;
}

/*
 * What is stored under a key is made from stored stripes, whatever there is of the content: if that were another by
 * now, one key would have seen two (decision 15).
 */
static bool rebuild_sealed (EcfsCommitAttempt *self, const EcfsObjectRow *row, const EcfsCodec *codec,
                            const bool *wanted, GError **error)
{
    if (row->seal.kind == ECFS_SEAL_NONE || row->kind == ECFS_OBJECT_LOG || self->repair.packets != NULL)
        return true;
    g_autoptr (EcfsObjectRow) coded = ecfs_object_row_copy (row);
    g_free (coded->code);
    coded->code = g_strdup (ecfs_codec_identity (codec));
    EcfsReader *reader = ecfs_archive_reader (self->archive, coded, NULL, error);
    if (reader != NULL)
        self->repair.packets = ecfs_repair_new (reader, wanted, NULL);
    return reader != NULL;
}

static bool run_writer (EcfsCommitAttempt *self, EcfsWriterTarget *targets, const EcfsObjectRow *row,
                        EcfsWriterResult *result, GError **error)
{
    GError *why = NULL;
    if (ecfs_attempt_run_writer (self, targets, row, result, &why))
        return true;
    /* Endpoints that take no stripe do not end a run that adds stripes: what it was to read did. */
    self->unreadable = self->repair.packets != NULL && (why->code == EIO || why->code == ENOSPC);
    g_propagate_error (error, why);
    return false;
}

static GArray *copy_log (EcfsCommitAttempt *self, const EcfsObjectRow *log, const GArray *stripes, GError **error)
{
    g_autoptr (GString) failures = g_string_new (NULL);
    GArray *copied = ecfs_attempt_copy_log (self, log, stripes, failures, error);
    if (failures->len > 0)
        note_missing (self, failures->str);
    return copied;
}

static GArray *store_missing (EcfsCommitAttempt *self, EcfsCommitObject *part, const EcfsCodec *codec, GError **error)
{
    unsigned n_wanted = 0;
    bool wanted[ECFS_CODEC_MAX_N];
    EcfsWriterTarget targets[ECFS_CODEC_MAX_N] = {0};
    if (!ecfs_attempt_begin_object (self, part, codec, error))
        return NULL;
    note_stored_stripes (self, part->row);
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++) {
        bool left_to_others = stores_only_named (self) && self->repair.replaced[i].instance == 0;
        wanted[i] = !self->stored_before[i] && !left_to_others;
        n_wanted += wanted[i];
    }
    bool repairs = self->commit.kind == ECFS_COMMIT_REPAIR;
    if (repairs)
        place_back (self, self->places.marks, wanted, targets);
    ecfs_attempt_place (self, wanted, self->commit.patient, targets);
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++)
        wanted[i] = wanted[i] && targets[i].endpoint == NULL;
    if (repairs && self->places.marks != NULL) /* where it was it may be once more, rather than nowhere */
        place_back (self, NULL, wanted, targets);
    g_autoptr (GArray) stripes = ecfs_attempt_intended_stripes (self, targets);
    if (stripes->len < n_wanted)
        note_unusable (self);
    if (stripes->len < n_wanted && self->commit.kind == ECFS_COMMIT_RECODE)
        g_array_set_size (stripes, 0);
    if (stripes->len == 0)
        return g_steal_pointer (&stripes);
    bool made[ECFS_CODEC_MAX_N] = {false};
    for (guint i = 0; i < stripes->len; i++)
        made[g_array_index (stripes, EcfsStripeRow, i).index] = true;
    EcfsWriterResult result;
    if (!rebuild_sealed (self, part->row, codec, made, error) ||
        !ecfs_catalog_intent_more (ecfs_archive_catalog (self->archive), part->row,
                                   (const EcfsStripeRow *) (void *) stripes->data, stripes->len, &part->intent, error))
        return NULL;
    if (part->row->kind == ECFS_OBJECT_LOG)
        return copy_log (self, part->row, stripes, error);
    if (!run_writer (self, targets, part->row, &result, error))
        return NULL;
    return stored_stripes (self, targets, &result);
}

GArray *ecfs_attempt_store_missing (EcfsCommitAttempt *self, EcfsCommitObject *part, const EcfsCodec *codec,
                                    GError **error)
{
    EcfsRepair *before = self->repair.packets;
    ecfs_archive_pin (self->archive, &part->row->uuid); /* its stripes may be read */
    GArray *stripes = store_missing (self, part, codec, error);
    ecfs_archive_unpin (self->archive, &part->row->uuid);
    if (self->repair.packets != before)
        ecfs_repair_free (g_steal_pointer (&self->repair.packets));
    return stripes;
}

/* What was stored is the object's content, so ESTALE would say too much as long as it is there: EAGAIN. */
static bool make_known (EcfsCommitAttempt *self, const EcfsCommitObject *part, const GArray *stripes, GError **error)
{
    bool known = false;
    GError *why = NULL;
    if (ecfs_attempt_set_stripes (self, part, stripes, &why))
        return true;
    if (why->code == ESTALE &&
        ecfs_catalog_object_known (ecfs_archive_catalog (self->archive), &part->row->uuid, &known, NULL) && known)
        why->code = EAGAIN;
    g_propagate_error (error, why);
    return false;
}

bool ecfs_attempt_fill_object (EcfsCommitAttempt *self, EcfsCommitObject *part, GError **error)
{
    const EcfsCodec *codec = ecfs_archive_codec (self->archive, part->row->code, error);
    g_autoptr (GArray) stripes = codec == NULL ? NULL : ecfs_attempt_store_missing (self, part, codec, error);
    /* The digest stands for the first reading only: a stripe that began anew or lagged was read again. */
    return stripes != NULL && (stripes->len == 0 || ecfs_attempt_check_unchanged (self, error)) &&
           make_known (self, part, stripes, error);
}

bool ecfs_attempt_fail_missing (const EcfsCommitAttempt *self, GError **error)
{
    return ecfs_fail (error, EIO, "not all of its stripes are stored: %s", self->missing->str);
}

/* How many endpoints the object could lose if all that count had its stripes: some may only be away. */
static int guarantee_of (const EcfsCommitAttempt *self, const EcfsObjectRow *row, const EcfsCodec *codec)
{
    bool present[ECFS_CODEC_MAX_N] = {0};
    size_t holder[ECFS_CODEC_MAX_N] = {0};
    for (guint i = 0; i < row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (row->stripes, EcfsStripeRow, i);
        size_t at = position_of (self, stripe->endpoint);
        if (at == SIZE_MAX || stripe->index >= ecfs_codec_n (codec))
            continue;
        holder[stripe->index] = at;
        present[stripe->index] = ecfs_archive_endpoint_counts (ecfs_archive_endpoint (self->archive, at));
    }
    return ecfs_holders_guarantee (codec, present, holder);
}

/*
 * Stores an object with too few stripes to read once more, from the staged content, if that is surely what was stored.
 * Whatever is staged, the old key is not used for it (decision 15): the new object has another one, so nothing need
 * be kept about the old one but its digest. @why says why it could not be filled up.
 */
static bool refill (EcfsCommitAttempt *self, const EcfsCommitObject *old, const GError *why, GError **error)
{
    if (!old->row->has_sha256) /* nothing else tells that the staged content is what was stored */
        return ecfs_fail (error, why->code, "%s", why->message);
    const EcfsCodec *codec = ecfs_archive_codec (self->archive, old->row->code, error);
    if (codec == NULL)
        return false;
    self->guarantee = guarantee_of (self, old->row, codec);
    const EcfsCommitObject *part = ecfs_attempt_store_anew (
        self, old, codec, "what is staged of it is not what was stored: the staged file is damaged", error);
    self->guarantee = 0;
    if (part == NULL)
        return ecfs_prefix (error, "%s; it is to be stored anew from staging", why->message);
    if (self->uuids != NULL) /* the stripes of others tell of this one then */
        g_hash_table_insert (self->uuids, g_memdup2 (&old->row->id, sizeof old->row->id),
                             g_memdup2 (&part->row->uuid, sizeof part->row->uuid));
    g_message ("%s: too few of its stripes could be read; it was stored anew from staging", self->path);
    if (!part->full)
        note_unusable (self);
    return true;
}

/* What others share is filled up by who packs and who repairs. */
static bool check_shared (EcfsCommitAttempt *self, const EcfsCommitObject *part, GError **error)
{
    const EcfsFileRange *range = &g_array_index (part->ranges, EcfsFileRange, 0);
    const EcfsCodec *codec = ecfs_archive_codec (self->archive, part->row->code, error);
    bool lacks = codec == NULL || part->row->stripes->len < ecfs_codec_n (codec);
    for (guint i = 0; i < part->row->stripes->len; i++)
        lacks = lacks || ecfs_stripe_lacks (part->row, &g_array_index (part->row->stripes, EcfsStripeRow, i),
                                            range->object_offset + range->length);
    self->comes_packed = self->comes_packed || lacks;
    return codec != NULL;
}

static bool fill_or_refill (EcfsCommitAttempt *self, EcfsCommitObject *part, GError **error)
{
    GError *why = NULL;
    self->unreadable = false;
    if (part->row->kind != ECFS_OBJECT_WHOLE)
        return check_shared (self, part, error);
    bool filled = ecfs_attempt_fill_object (self, part, &why);
    if (!filled && self->unreadable)
        filled = refill (self, part, why, error);
    else if (!filled)
        g_propagate_error (error, g_steal_pointer (&why));
    g_clear_error (&why);
    return filled;
}

static bool fill_objects (EcfsCommitAttempt *self, GError **error)
{
    g_autoptr (GArray) extents = ecfs_catalog_extents (ecfs_archive_catalog (self->archive), self->commit.ino, error);
    if (extents == NULL)
        return false;
    for (guint next = 0; next < extents->len;) {
        EcfsCommitObject *part = committed_part (self, extents, &next, error);
        if (part == NULL || !fill_or_refill (self, part, error))
            return false;
    }
    return true;
}

/* An object that is another meanwhile may have been recoded; then the others still need what they lack. */
bool ecfs_attempt_backfill (EcfsCommitAttempt *self, GError **error)
{
    for (unsigned attempt = 1;; attempt++) {
        g_autoptr (GError) why = NULL;
        if (self->missing != NULL) /* of the attempt before */
            g_string_free (g_steal_pointer (&self->missing), TRUE);
        self->comes_packed = false;
        bool filled = fill_objects (self, &why);
        ecfs_archive_stripes_changed (self->archive);
        if (filled)
            break;
        bool again = why->code == ESTALE || why->code == EAGAIN || why->code == ENOENT;
        if (!again || attempt == FILL_ATTEMPTS) {
            g_propagate_error (error, g_steal_pointer (&why));
            return false;
        }
    }
    if (self->missing != NULL)
        return ecfs_attempt_fail_missing (self, error);
    if (self->comes_packed)
        return ecfs_fail (error, EINPROGRESS,
                          "not all of its stripes are stored: it is among other small files, which get them together");
    self->outcome.full = true;
    return true;
}

/* Of the past: what an object consists of, and no file. */
static EcfsCommitObject *past_part (EcfsCommitAttempt *self, GError **error)
{
    EcfsObjectRow *row = ecfs_catalog_object (ecfs_archive_catalog (self->archive), self->commit.object, error);
    if (row == NULL)
        return NULL;
    EcfsCommitObject *part = ecfs_attempt_part (self);
    ecfs_object_row_free (part->row);
    part->row = row;
    return part;
}

static EcfsCommitObject *present_part (EcfsCommitAttempt *self, GError **error)
{
    GError *why = NULL;
    g_autoptr (GArray) extents = ecfs_catalog_extents (ecfs_archive_catalog (self->archive), self->commit.ino, &why);
    guint next = 0;
    while (extents != NULL && next < extents->len &&
           g_array_index (extents, EcfsExtent, next).object != self->commit.object)
        next++;
    if (extents != NULL && next == extents->len)
        why = g_error_new_literal (ECFS_ERROR, ESTALE, "it was replaced meanwhile");
    if (why == NULL)
        return committed_part (self, extents, &next, error);
    g_propagate_error (error, why);
    return NULL;
}

EcfsCommitObject *ecfs_attempt_named_part (EcfsCommitAttempt *self, GError **error)
{
    GError *why = NULL;
    EcfsCommitObject *part =
        ecfs_object_is_past (self->commit.object) ? past_part (self, &why) : present_part (self, &why);
    if (part == NULL) {
        why->code = why->code == ENOENT ? ESTALE : why->code; /* deleted since */
        g_propagate_error (error, why);
    }
    return part;
}
