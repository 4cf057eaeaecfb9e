#include "commit/commit_priv.h"

#include "archive/common.h"
#include "object/writer.h"

#define FILL_ATTEMPTS  3
#define PLACE_ATTEMPTS 3
#define TAGS_SHARE     1000 /* a stripe is larger than its packets by less than one in so many */

static void part_free (gpointer data)
{
    EcfsCommitObject *part = data;
    ecfs_object_row_free (part->row);
    if (part->ranges != NULL)
        g_array_unref (part->ranges);
    if (part->whole != NULL)
        g_array_unref (part->whole);
    if (part->elsewhere != NULL)
        g_array_unref (part->elsewhere);
    g_free (part);
}

EcfsCommitObject *ecfs_attempt_part (EcfsCommitAttempt *self)
{
    EcfsCommitObject *part = g_new0 (EcfsCommitObject, 1);
    part->row = ecfs_object_row_new ();
    part->row->uuid = ecfs_archive_object_uuid (self->archive);
    part->ranges = g_array_new (FALSE, FALSE, sizeof (EcfsFileRange));
    g_ptr_array_add (self->parts, part);
    return part;
}

const EcfsCodec *ecfs_attempt_codec (EcfsCommitAttempt *self, uint64_t bytes, GError **error)
{
    EcfsArchive *archive = self->archive;
    g_autofree char *code = g_strdup (self->commit.code);
    if (code == NULL && !ecfs_catalog_get_code (ecfs_archive_catalog (archive), self->commit.ino, &code, error))
        return NULL;
    return ecfs_archive_object_codec (archive, code != NULL ? code : ecfs_archive_config (archive)->code, bytes, error);
}

static uint64_t random_u64 (void)
{
    uint64_t value;
    ecfs_random (&value, sizeof value);
    return value >> 1; /* SQLite's integers are signed */
}

/* Whether what was @found is enough to go on with; @n_without stripes found no place. */
static bool found_suffices (const EcfsCommitAttempt *self, const size_t *found, unsigned n_without)
{
    bool stripes[ECFS_CODEC_MAX_N];
    if (self->backfill || self->commit.patient)
        return n_without == 0;
    size_t holder[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < ecfs_codec_n (self->places.codec); i++) {
        holder[i] = found[i] != SIZE_MAX ? found[i] : self->places.position[i];
        stripes[i] = holder[i] != SIZE_MAX;
    }
    return ecfs_quorum_reached (self->places.codec, stripes, holder, ecfs_archive_config (self->archive)->write_quorum);
}

/* Finds endpoints for the wanted stripes, and gives each a fresh instance. Doubtful endpoints are used only where the
 * others do not suffice. */
static void place (EcfsCommitAttempt *self, const bool *wanted, bool doubtful_too, EcfsWriterTarget *targets)
{
    unsigned n = ecfs_codec_n (self->places.codec);
    size_t found[ECFS_CODEC_MAX_N];
    size_t n_places = self->places.n_endpoints;
    unsigned most = ecfs_archive_most_per_endpoint (self->archive, n_places, n);
    uint64_t lot = random_u64 ();
    const EcfsRepairOrder *order = self->commit.order;
    const bool *towards = order != NULL && order->n_towards == n_places ? order->towards : NULL; /* else one is new */
    const EcfsDoubts most_doubts = doubtful_too ? ECFS_DOUBTS_ALL : ECFS_DOUBTS_TRIAL;
    const bool chosen = order != NULL && order->is_crowded;
    if (chosen)
        memcpy (found, self->to, n * sizeof *found);
    for (EcfsDoubts doubts = ECFS_DOUBTS_NONE; doubts <= most_doubts && !chosen; doubts++) {
        g_autofree EcfsPlace *places = ecfs_object_places (self->archive, &self->places, doubts);
        unsigned n_without = towards == NULL
                                 ? ecfs_place (places, n_places, wanted, n, most, lot, found)
                                 : ecfs_place_towards (places, n_places, wanted, n, most, lot, towards, found);
        /* No stripe is left out because an endpoint is on trial. */
        if (doubts == ECFS_DOUBTS_NONE ? n_without == 0 : found_suffices (self, found, n_without))
            break;
    }
    for (unsigned i = 0; i < n; i++) {
        if (!wanted[i] || found[i] == SIZE_MAX)
            continue;
        self->places.position[i] = found[i];
        targets[i] = (EcfsWriterTarget){.endpoint = ecfs_archive_endpoint (self->archive, found[i])->endpoint,
                                        .instance = random_u64 ()};
    }
}

static bool is_backed_by_quorum (EcfsCommitAttempt *self, const bool *stripes)
{
    const EcfsCodec *codec = self->places.codec;
    unsigned wanted =
        self->commit.object == 0 ? ecfs_archive_config (self->archive)->write_quorum : ecfs_codec_n (codec);
    return ecfs_quorum_reached (codec, stripes, self->places.position, wanted);
}

static bool possible (void *user, const bool *stripes)
{
    EcfsCommitAttempt *self = user;
    return self->backfill || is_backed_by_quorum (self, stripes);
}

/* Gives stripe @index, which has no place now, one at an endpoint that was not tried yet, and announces it. */
static bool find_spare (EcfsCommitAttempt *self, unsigned index, bool doubtful, EcfsWriterTarget *ret_target)
{
    EcfsArchive *archive = self->archive;
    bool wanted[ECFS_CODEC_MAX_N] = {0};
    EcfsWriterTarget targets[ECFS_CODEC_MAX_N] = {0};
    wanted[index] = true;
    if (self->spare_error == NULL && (self->commit.order == NULL || !self->commit.order->is_crowded))
        place (self, wanted, doubtful, targets);
    if (self->places.position[index] == SIZE_MAX)
        return false;
    EcfsStripeRow stripe = {.index = (uint16_t) index,
                            .instance = targets[index].instance,
                            .endpoint = ecfs_archive_endpoint (archive, self->places.position[index])->id};
    *ret_target = targets[index];
    if (ecfs_catalog_intent_add (ecfs_archive_catalog (archive), self->part->intent, &stripe, &self->spare_error))
        return true;
    if (self->spare_error->code == EAGAIN) /* it takes none any more, others may */
        g_clear_error (&self->spare_error);
    return false;
}

static bool replace (void *user, unsigned index, const GError *error, EcfsWriterTarget *target)
{
    EcfsCommitAttempt *self = user;
    size_t before = self->places.position[index];
    if (before < ECFS_CODEC_MAX_N)
        self->places.tried[before] = true;
    self->places.position[index] = SIZE_MAX;
    if (find_spare (self, index, error != NULL, target)) {
        g_info ("%s: stripe %u: %s", self->path, index, error != NULL ? error->message : "its endpoint is silent");
        return true;
    }
    self->places.position[index] = error == NULL ? before : SIZE_MAX;
    if (before < ECFS_CODEC_MAX_N)
        self->places.tried[before] = error != NULL; /* what is only late may still come */
    return false;
}

static GArray *intended_stripes (const EcfsCommitAttempt *self, const EcfsWriterTarget *targets)
{
    GArray *stripes = g_array_new (FALSE, TRUE, sizeof (EcfsStripeRow));
    for (unsigned i = 0; i < ecfs_codec_n (self->places.codec); i++) {
        if (targets[i].endpoint == NULL)
            continue;
        EcfsStripeRow stripe = {.index = (uint16_t) i,
                                .instance = targets[i].instance,
                                .endpoint = ecfs_archive_endpoint (self->archive, self->places.position[i])->id};
        g_array_append_val (stripes, stripe);
    }
    return stripes;
}

static EcfsStripeRow stored_stripe (const EcfsCommitAttempt *self, unsigned index, const EcfsWriterTarget *targets,
                                    const EcfsWriterResult *result)
{
    EcfsStripeRow stripe = {.index = (uint16_t) index,
                            .instance = targets[index].instance,
                            .endpoint = ecfs_archive_endpoint (self->archive, self->places.position[index])->id,
                            .size = result->stripe_bytes[index]};
    memcpy (stripe.digest, result->stripe_digest[index], ECFS_DIGEST_SIZE);
    return stripe;
}

/* Too few endpoints took stripes: with @text, and what is known of each; ENOSPC where room is all that is missing. */
static bool fail_too_few (const EcfsCommitAttempt *self, const char *text, GError **error)
{
    g_autofree char *unusable = ecfs_unusable_endpoints (self->archive, &self->places);
    bool room = ecfs_only_room_is_missing (self->archive, &self->places);
    return ecfs_fail (error, room ? ENOSPC : EIO, "%s%s%s", text, unusable,
                      room ? "; make room there or add endpoints" : "");
}

static EcfsStripeHeader make_header (const EcfsCommitAttempt *self)
{
    const EcfsObjectRow *row = self->part->row;
    EcfsStripeHeader header = {.archive = *ecfs_catalog_archive (ecfs_archive_catalog (self->archive)),
                               .object = row->uuid,
                               .sequence = row->sequence,
                               .epoch = row->epoch,
                               .segment_bytes = row->segment_bytes,
                               .block_bytes = row->block_bytes};
    ecfs_stripe_header_set_code (&header, self->places.codec);
    return header;
}

bool ecfs_attempt_is_cancelled (const EcfsCommitAttempt *self)
{
    return ecfs_archive_is_stopping (self->archive) ||
           (self->commit.cancelled != NULL && atomic_load (self->commit.cancelled));
}

static bool is_cancelled (void *attempt)
{
    return ecfs_attempt_is_cancelled (attempt);
}

void ecfs_attempt_describe (EcfsCommitAttempt *self)
{
    self->record = (EcfsFileRecord){.ino = self->commit.ino,
                                    .generation = self->part->row->sequence,
                                    .file_size = self->commit.size,
                                    .mode = self->attr.mode,
                                    .uid = self->attr.uid,
                                    .gid = self->attr.gid,
                                    .mtime_ns = self->commit.mtime_ns,
                                    .path = self->path,
                                    .ranges = self->part->ranges,
                                    .content = self->part->is_apart ? self->part->row->uuid : self->content,
                                    .number = self->part->number,
                                    .n_objects = self->part->n_objects,
                                    .elsewhere = self->part->elsewhere};
}

/* @expected: whose content it is to be; NULL: new. */
static bool run_writer (EcfsCommitAttempt *self, EcfsWriterTarget *targets, const EcfsObjectRow *expected,
                        EcfsWriterResult *result, GError **error)
{
    ecfs_attempt_describe (self);
    g_autoptr (GPtrArray) records = g_ptr_array_new ();
    g_ptr_array_add (records, &self->record);
    EcfsWriterJob job = {.transfer = ecfs_archive_transfer (self->archive),
                         .codec = self->places.codec,
                         .header = make_header (self),
                         .size = self->part->row->size,
                         .fd = self->commit.fd,
                         .ranges = self->part->whole != NULL ? self->part->whole : self->part->ranges,
                         .records = records,
                         .feed = self->commit.feed,
                         .feed_offset = self->part->feed_offset,
                         .most = ecfs_archive_config (self->archive)->object_max,
                         .ended = ecfs_attempt_content_ended,
                         .packets = self->repair == NULL ? NULL : ecfs_repair_packets (self->repair),
                         .expected_digest = expected == NULL ? NULL : expected->digest,
                         .expected_sha256 = expected != NULL && expected->has_sha256 ? expected->sha256 : NULL,
                         .targets = targets,
                         .replace = replace,
                         .possible = possible,
                         .patient = self->commit.patient,
                         .enough = self->commit.published != NULL ? ecfs_attempt_publish_early : NULL,
                         .at_quorum = self->commit.at_quorum,
                         .cancelled = is_cancelled,
                         .user = self};
    if (ecfs_writer_run (&job, result, error))
        return true;
    if (error != NULL && *error != NULL && (*error)->code == EIO) {
        g_autofree char *text = g_strdup ((*error)->message);
        g_clear_error (error);
        return fail_too_few (self, text, error);
    }
    return false;
}

static void begin_object (EcfsCommitAttempt *self, EcfsCommitObject *part, const EcfsCodec *codec)
{
    self->part = part;
    uint64_t packet_bytes = part->row->size / ecfs_codec_k (codec);
    self->places = (EcfsObjectPlaces){.codec = codec,
                                      .stripe_bytes = packet_bytes + packet_bytes / TAGS_SHARE,
                                      .n_endpoints = ecfs_archive_n_endpoints (self->archive)};
    memset (self->stored_before, 0, sizeof self->stored_before);
    for (size_t i = 0; i < G_N_ELEMENTS (self->places.position); i++)
        self->places.position[i] = SIZE_MAX;
}

/* Endpoints for all stripes of a new object; false where those that are up cannot be enough. */
static bool place_all (EcfsCommitAttempt *self, EcfsWriterTarget *targets, GError **error)
{
    bool wanted[ECFS_CODEC_MAX_N] = {0}, placed[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < ecfs_codec_n (self->places.codec); i++)
        wanted[i] = true;
    place (self, wanted, true, targets);
    for (unsigned i = 0; i < ecfs_codec_n (self->places.codec); i++)
        placed[i] = targets[i].endpoint != NULL;
    return is_backed_by_quorum (self, placed) || fail_too_few (self, "too few endpoints take its stripes", error);
}

/* Objects name their code by its identity; what that takes is in the catalog before them. */
static bool keep_parameters (EcfsArchive *archive, const EcfsCodec *codec, GError **error)
{
    size_t size;
    const uint8_t *parameters = ecfs_codec_parameters (codec, &size);
    return parameters == NULL || ecfs_catalog_keep_code (ecfs_archive_catalog (archive), ecfs_codec_identity (codec),
                                                         parameters, size, error);
}

void ecfs_attempt_note_stored (EcfsCommitAttempt *self, const EcfsWriterResult *result)
{
    EcfsCommitObject *part = self->part;
    EcfsObjectRow *row = part->row;
    g_array_set_size (row->stripes, 0);
    for (unsigned i = 0; i < ecfs_codec_n (self->places.codec); i++) {
        EcfsStripeRow stripe = result->stored[i] ? stored_stripe (self, i, self->targets, result) : (EcfsStripeRow){0};
        if (result->stored[i])
            g_array_append_val (row->stripes, stripe);
    }
    part->full = row->stripes->len == ecfs_codec_n (self->places.codec);
    row->header_bytes = result->header_bytes;
    memcpy (row->digest, result->object_digest, ECFS_DIGEST_SIZE);
    memcpy (row->sha256, result->object_sha256, ECFS_SHA256_SIZE);
    row->has_sha256 = true;
}

/* Whether what was stored of a new object is enough. */
static bool judge (EcfsCommitAttempt *self, const EcfsWriterResult *result, GError **error)
{
    const EcfsCommitObject *part = self->part;
    ecfs_attempt_note_stored (self, result);
    if (!is_backed_by_quorum (self, result->stored)) {
        g_string_prepend (result->failures, "too few endpoints took its stripes: ");
        return fail_too_few (self, result->failures->str, error);
    }
    if (!part->full)
        g_info ("%s: stored with %u of %u stripes, the others follow; %s", self->path, part->row->stripes->len,
                ecfs_codec_n (self->places.codec), result->failures->str);
    return true;
}

/* Places the stripes of a new object and announces them; once more, where an endpoint was to take none meanwhile. */
static bool announce (EcfsCommitAttempt *self, EcfsCommitObject *part, const EcfsCodec *codec,
                      EcfsWriterTarget *targets, GError **error)
{
    for (unsigned attempt = 1;; attempt++) {
        GError *why = NULL;
        begin_object (self, part, codec);
        memset (targets, 0, ECFS_CODEC_MAX_N * sizeof *targets);
        if (!place_all (self, targets, error))
            return false;
        g_array_unref (part->row->stripes);
        part->row->stripes = intended_stripes (self, targets);
        if (ecfs_catalog_intent_begin (ecfs_archive_catalog (self->archive), part->row, self->commit.ino, &part->intent,
                                       &why))
            return true;
        if (why->code != EAGAIN || attempt == PLACE_ATTEMPTS) {
            g_propagate_error (error, why);
            return false;
        }
        g_error_free (why);
    }
}

/* Stores one new object of the file: intent, stripes, judgement. The row gets what was stored. */
bool ecfs_attempt_store_object (EcfsCommitAttempt *self, EcfsCommitObject *part, GError **error)
{
    EcfsArchive *archive = self->archive;
    const EcfsCodec *codec = ecfs_attempt_codec (self, part->row->size, error);
    if (codec == NULL)
        return false;
    if (!keep_parameters (archive, codec, error))
        return false;
    EcfsObjectRow *row = part->row;
    row->code = g_strdup (ecfs_codec_identity (codec));
    row->segment_bytes = ecfs_layout_segment_bytes (ecfs_archive_config (archive)->segment_size, ecfs_codec_k (codec),
                                                    ecfs_codec_granule (codec));
    row->block_bytes = ecfs_layout_written_block_bytes (ecfs_codec_granule (codec));
    EcfsWriterTarget targets[ECFS_CODEC_MAX_N];
    if (!announce (self, part, codec, targets, error))
        return false;
    EcfsWriterResult result;
    self->targets = targets;
    if (!run_writer (self, targets, NULL, &result, error))
        return false;
    bool fine = self->early ? ecfs_attempt_add_rest (self, &result, error) : judge (self, &result, error);
    g_string_free (result.failures, TRUE);
    return fine;
}

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
        if (self->replaced[stripe->index].instance != 0)
            continue;
        self->stored_before[stripe->index] = true;
        self->places.position[stripe->index] = position_of (self, stripe->endpoint);
    }
}

/* Stripes that are stored once more stay where they are, if their endpoints take some; these are not @wanted then. */
static void place_back (EcfsCommitAttempt *self, bool *wanted, EcfsWriterTarget *targets)
{
    unsigned n = ecfs_codec_n (self->places.codec);
    unsigned most = ecfs_archive_most_per_endpoint (self->archive, self->places.n_endpoints, n);
    g_autofree EcfsPlace *places = ecfs_object_places (self->archive, &self->places, ECFS_DOUBTS_ALL);
    for (unsigned i = 0; i < n; i++) {
        size_t at = self->replaced[i].instance == 0 ? SIZE_MAX : position_of (self, self->replaced[i].endpoint);
        if (!wanted[i] || at == SIZE_MAX || self->commit.order->moved[i] || !places[at].usable ||
            places[at].room == 0 || places[at].n_held >= most)
            continue;
        places[at].n_held++;
        wanted[i] = false;
        self->places.position[i] = at;
        targets[i] = (EcfsWriterTarget){.endpoint = ecfs_archive_endpoint (self->archive, at)->endpoint,
                                        .instance = random_u64 ()};
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
    if (self->commit.order != NULL && self->commit.order->only_named)
        note_missing (self, "no other endpoint can take the stripes that are to be moved");
    note_missing (self, unusable[0] != '\0' ? unusable + strlen ("; ") : "there is no endpoint left for them");
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
        EcfsStripeRow stripe = stored_stripe (self, i, targets, result);
        g_array_append_val (stripes, stripe);
    }
    if (lacks_some && result->failures->len > 0) /* others of the failures may have been made good by spares */
        note_missing (self, result->failures->str);
    else if (lacks_some) /* it was late */
        note_unusable (self);
    g_string_free (result->failures, TRUE);
    return stripes;
}

static bool is_left_to_others (const EcfsCommitAttempt *self, unsigned index)
{
    return self->commit.order != NULL && self->commit.order->only_named && self->replaced[index].instance == 0;
}

/* Stores the stripes that an object lacks in @codec, as far as there are places, or none where all are asked for; NULL
 * on errors only. */
GArray *ecfs_attempt_store_missing (EcfsCommitAttempt *self, EcfsCommitObject *part, const EcfsCodec *codec,
                                    GError **error)
{
    unsigned n_wanted = 0;
    bool wanted[ECFS_CODEC_MAX_N];
    EcfsWriterTarget targets[ECFS_CODEC_MAX_N] = {0};
    begin_object (self, part, codec);
    note_stored_stripes (self, part->row);
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++) {
        wanted[i] = !self->stored_before[i] && !is_left_to_others (self, i);
        n_wanted += wanted[i];
    }
    place_back (self, wanted, targets);
    place (self, wanted, self->commit.patient, targets);
    g_autoptr (GArray) stripes = intended_stripes (self, targets);
    if (stripes->len < n_wanted)
        note_unusable (self);
    if (stripes->len < n_wanted && self->commit.object != 0 && self->repair == NULL)
        g_array_set_size (stripes, 0);
    if (stripes->len == 0)
        return g_steal_pointer (&stripes);
    EcfsWriterResult result;
    if (!ecfs_catalog_intent_more (ecfs_archive_catalog (self->archive), part->row,
                                   (const EcfsStripeRow *) (void *) stripes->data, stripes->len, &part->intent,
                                   error) ||
        !run_writer (self, targets, part->row, &result, error))
        return NULL;
    return stored_stripes (self, targets, &result);
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

/* Fills up an object, each stripe made known by compare-and-set. Returns false on errors only. */
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

static bool fill_objects (EcfsCommitAttempt *self, GError **error)
{
    g_autoptr (GArray) extents = ecfs_catalog_extents (ecfs_archive_catalog (self->archive), self->commit.ino, error);
    if (extents == NULL)
        return false;
    for (guint next = 0; next < extents->len;) {
        EcfsCommitObject *part = committed_part (self, extents, &next, error);
        if (part == NULL || !ecfs_attempt_fill_object (self, part, error))
            return false;
    }
    return true;
}

/* An object that is another meanwhile may have been recoded; then the others still need what they lack. */
static bool fill_up (EcfsCommitAttempt *self, GError **error)
{
    for (unsigned attempt = 1;; attempt++) {
        g_autoptr (GError) why = NULL;
        if (self->missing != NULL) /* of the attempt before */
            g_string_free (g_steal_pointer (&self->missing), TRUE);
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
    self->outcome.full = true;
    return true;
}

/* The object that the attempt is about. */
EcfsCommitObject *ecfs_attempt_named_part (EcfsCommitAttempt *self, GError **error)
{
    GError *why = NULL;
    g_autoptr (GArray) extents = ecfs_catalog_extents (ecfs_archive_catalog (self->archive), self->commit.ino, &why);
    guint next = 0;
    while (extents != NULL && next < extents->len &&
           g_array_index (extents, EcfsExtent, next).object != self->commit.object)
        next++;
    if (extents != NULL && next == extents->len)
        why = g_error_new_literal (ECFS_ERROR, ESTALE, "it was replaced meanwhile");
    EcfsCommitObject *part = why == NULL ? committed_part (self, extents, &next, &why) : NULL;
    if (part == NULL) {
        why->code = why->code == ENOENT ? ESTALE : why->code; /* deleted since */
        g_propagate_error (error, why);
    }
    return part;
}

/* Stripes of an attempt that came to nothing, or that no stripe_set took, are queued for deletion. */
static void abort_intents (EcfsCommitAttempt *self)
{
    for (guint i = 0; i < self->parts->len; i++) {
        const EcfsCommitObject *part = g_ptr_array_index (self->parts, i);
        g_autoptr (GError) error = NULL;
        if (part->intent != 0 &&
            !ecfs_catalog_intent_abort (ecfs_archive_catalog (self->archive), part->intent, &error))
            g_warning ("%s: %s; the next mount cleans up", self->path, error->message);
    }
}

/* What is told to users: full and quota errors of endpoints keep their code, the rest is EIO but for what fs expects.
 */
static int outcome_code (const GError *error)
{
    switch (error->code) {
    case ENOSPC:
    case EDQUOT:
    case ECANCELED:
    case ESTALE:
    case EROFS:
        return error->code;
    default:
        return EIO;
    }
}

static bool open_content (EcfsCommitAttempt *self, GError **error)
{
    if (ecfs_attempt_is_cancelled (self))
        return ecfs_fail (error, ECANCELED, "cancelled");
    g_autofree char *old = ecfs_archive_trouble (self->archive);
    if (old != NULL)
        return ecfs_fail (error, EROFS, "%s", old);
    if (self->commit.open != NULL)
        self->commit.fd = self->commit.open (self->commit.user, error);
    self->outcome.opened = self->commit.open != NULL && self->commit.fd >= 0;
    return self->commit.fd >= 0 || self->run == ecfs_attempt_repair;
}

static void end_attempt (EcfsCommitAttempt *self, GError *error)
{
    abort_intents (self);
    if (error != NULL) {
        error->code = outcome_code (error);
        g_prefix_error (
            &error, self->run == ecfs_attempt_store && !self->early ? "%s: cannot be stored: " : "%s: ", self->path);
    }
    self->outcome.error = error;
    self->commit.done (self->commit.user, &self->outcome);
    g_clear_error (&error);
    g_clear_error (&self->spare_error);
    g_clear_error (&self->early_error);
    if (self->missing != NULL)
        g_string_free (self->missing, TRUE);
    g_ptr_array_unref (self->parts);
    if (self->uuids != NULL)
        g_hash_table_unref (self->uuids);
    g_free (self->path);
    g_free ((char *) self->commit.code);
    g_free ((char *) self->commit.path);
    g_free (self);
}

static void run_attempt (void *data)
{
    EcfsCommitAttempt *self = data;
    GError *error = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    self->parts = g_ptr_array_new_with_free_func (part_free);
    if (!self->backfill)
        ecfs_archive_count_storing (self->archive, true);
    self->path =
        self->commit.path != NULL ? g_strdup (self->commit.path) : ecfs_catalog_path (catalog, self->commit.ino);
    if (self->commit.retry)
        ecfs_archive_revive_endpoints (self->archive);
    if (!ecfs_catalog_getattr (catalog, self->commit.ino, &self->attr, &error))
        error->code = error->code == ENOENT && self->run == ecfs_attempt_repair ? ESTALE : error->code;
    else if (open_content (self, &error))
        (void) self->run (self, &error); /* error says it */
    if (!self->backfill)
        ecfs_archive_count_storing (self->archive, false);
    end_attempt (self, error);
}

static void queue (EcfsArchive *archive, const EcfsCommit *commit,
                   bool (*run) (EcfsCommitAttempt *self, GError **error))
{
    EcfsCommitAttempt *self = g_new0 (EcfsCommitAttempt, 1);
    self->archive = archive;
    self->commit = *commit;
    self->commit.code = g_strdup (commit->code);
    self->commit.path = g_strdup (commit->path);
    self->run = run;
    self->content = ecfs_uuid_new ();
    self->backfill = run == fill_up || run == ecfs_attempt_repair;
    EcfsStoring own = commit->feed != NULL ? ECFS_STORES_STREAMED : ECFS_STORES_STAGED;
    EcfsWorkers *workers = ecfs_archive_workers (archive, commit->is_foreign ? ECFS_STORES_PUT : own);
    ecfs_workers_push (workers, run_attempt, self);
}

void ecfs_archive_commit (EcfsArchive *self, const EcfsCommit *commit)
{
    queue (self, commit, ecfs_attempt_store);
}

void ecfs_archive_backfill (EcfsArchive *self, const EcfsCommit *commit)
{
    queue (self, commit, fill_up);
}

void ecfs_archive_recode (EcfsArchive *self, const EcfsCommit *commit)
{
    queue (self, commit, ecfs_attempt_recode);
}

void ecfs_archive_repair (EcfsArchive *self, const EcfsCommit *commit)
{
    queue (self, commit, ecfs_attempt_repair);
}
