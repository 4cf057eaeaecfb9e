/* One object of an attempt: its places, what its stripes tell of the file, and storing it. */
#include "commit/commit_priv.h"

#include "archive/common.h"
#include "catalog/past.h"
#include "object/writer.h"

#define PLACE_ATTEMPTS 3
#define TAGS_SHARE     1000 /* a stripe is larger than its packets by less than one in so many, … */
#define MACS_SHARE     500  /* … and with a key in so many */

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

GPtrArray *ecfs_attempt_parts (void)
{
    return g_ptr_array_new_with_free_func (part_free);
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
    if (self->own_code != NULL)
        return ecfs_archive_codec (archive, self->own_code, error);
    g_autofree char *code = g_strdup (self->commit.code);
    if (code == NULL && !ecfs_catalog_get_code (ecfs_archive_catalog (archive), self->commit.ino, &code, error))
        return NULL;
    return ecfs_archive_object_codec (archive, code != NULL ? code : ecfs_archive_config (archive)->code, bytes, error);
}

uint64_t ecfs_attempt_instance (void)
{
    uint64_t value;
    ecfs_random (&value, sizeof value);
    return value >> 1; /* SQLite's integers are signed */
}

/* Whether the stripes join others that the object has: each of them is worth storing. */
static bool joins_others (const EcfsCommitAttempt *self)
{
    return (self->commit.kind == ECFS_COMMIT_BACKFILL && !self->unreadable) ||
           self->commit.kind == ECFS_COMMIT_REPAIR || (self->commit.kind == ECFS_COMMIT_RECODE && self->in_place);
}

bool ecfs_attempt_is_backed (const EcfsCommitAttempt *self, const bool *stripes, const size_t *holder)
{
    const EcfsCodec *codec = self->places.codec;
    bool is_moved = self->commit.kind == ECFS_COMMIT_RECODE || self->commit.kind == ECFS_COMMIT_PACK;
    unsigned wanted = is_moved ? ecfs_codec_n (codec) : ecfs_archive_config (self->archive)->write_quorum;
    return ecfs_quorum_reached (codec, stripes, holder, wanted) &&
           (self->guarantee <= 0 || ecfs_holders_guarantee (codec, stripes, holder) >= self->guarantee);
}

/* Whether what was @found is enough to go on with; @n_without stripes found no place. */
static bool found_suffices (const EcfsCommitAttempt *self, const size_t *found, unsigned n_without)
{
    bool stripes[ECFS_CODEC_MAX_N];
    if (joins_others (self) || self->commit.patient)
        return n_without == 0;
    size_t holder[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < ecfs_codec_n (self->places.codec); i++) {
        holder[i] = found[i] != SIZE_MAX ? found[i] : self->places.position[i];
        stripes[i] = holder[i] != SIZE_MAX;
    }
    return ecfs_attempt_is_backed (self, stripes, holder);
}

static bool moves_crowded (const EcfsCommitAttempt *self)
{
    return self->commit.kind == ECFS_COMMIT_REPAIR && self->commit.repair.order->is_crowded;
}

void ecfs_attempt_place (EcfsCommitAttempt *self, const bool *wanted, bool doubtful_too, EcfsWriterTarget *targets)
{
    unsigned n = ecfs_codec_n (self->places.codec);
    size_t found[ECFS_CODEC_MAX_N];
    size_t n_places = self->places.n_endpoints;
    unsigned most = ecfs_object_most_per_endpoint (self->archive, &self->places);
    uint64_t lot;
    ecfs_random (&lot, sizeof lot);
    const EcfsRepairOrder *order = self->commit.kind == ECFS_COMMIT_REPAIR ? self->commit.repair.order : NULL;
    const bool *towards = order != NULL && order->n_towards == n_places ? order->towards : NULL; /* else one is new */
    const EcfsDoubts most_doubts = doubtful_too ? ECFS_DOUBTS_ALL : ECFS_DOUBTS_TRIAL;
    const bool chosen = moves_crowded (self);
    if (chosen)
        memcpy (found, self->repair.to, n * sizeof *found);
    for (EcfsDoubts doubts = ECFS_DOUBTS_NONE; doubts <= most_doubts && !chosen; doubts++) {
        g_autofree EcfsPlace *places = ecfs_object_places (self->archive, &self->places, doubts);
        unsigned n_without = ecfs_object_place (&self->places, places, wanted, most, lot, towards, found);
        /* No stripe is left out because an endpoint is on trial. */
        if (doubts == ECFS_DOUBTS_NONE ? n_without == 0 : found_suffices (self, found, n_without))
            break;
    }
    for (unsigned i = 0; i < n; i++) {
        if (!wanted[i] || found[i] == SIZE_MAX)
            continue;
        self->places.position[i] = found[i];
        targets[i] = (EcfsWriterTarget){.endpoint = ecfs_archive_endpoint (self->archive, found[i])->endpoint,
                                        .instance = ecfs_attempt_instance ()};
    }
}

static bool possible (void *user, const bool *stripes)
{
    EcfsCommitAttempt *self = user;
    return joins_others (self) || ecfs_attempt_is_backed (self, stripes, self->places.position);
}

/* Gives stripe @index, which has no place now, one at an endpoint that was not tried yet, and announces it. */
static bool find_spare (EcfsCommitAttempt *self, unsigned index, bool doubtful, EcfsWriterTarget *ret_target)
{
    EcfsArchive *archive = self->archive;
    bool wanted[ECFS_CODEC_MAX_N] = {0};
    EcfsWriterTarget targets[ECFS_CODEC_MAX_N] = {0};
    wanted[index] = true;
    if (self->spare_error == NULL && !moves_crowded (self))
        ecfs_attempt_place (self, wanted, doubtful, targets);
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

GArray *ecfs_attempt_intended_stripes (const EcfsCommitAttempt *self, const EcfsWriterTarget *targets)
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

EcfsStripeRow ecfs_attempt_stored_stripe (const EcfsCommitAttempt *self, unsigned index,
                                          const EcfsWriterTarget *targets, const EcfsWriterResult *result)
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
    g_autofree char *rule = ecfs_ruled_describe (self->archive, &self->ruled);
    bool room = ecfs_only_room_is_missing (self->archive, &self->places);
    bool past = room && ecfs_archive_config (self->archive)->history_us > 0;
    return ecfs_fail (error, room ? ENOSPC : EIO, "%s%s%s%s%s", text, unusable, rule,
                      room ? "; make room there or add endpoints" : "",
                      past ? ", as what was removed within history_min makes none" : "");
}

bool ecfs_attempt_is_cancelled (void *attempt)
{
    const EcfsCommitAttempt *self = attempt;
    return ecfs_archive_is_stopping (self->archive) ||
           (self->commit.cancelled != NULL && atomic_load (self->commit.cancelled));
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

/* What the stripes tell of files: of EcfsFileRecord. */
static GPtrArray *describe (EcfsCommitAttempt *self, GError **error)
{
    if (ecfs_object_is_past (self->part->row->id)) /* no file has it: the journal of then tells of those that had */
        return g_ptr_array_new ();
    if (self->part->row->kind == ECFS_OBJECT_PACK)
        return ecfs_attempt_pack_records (self, error);
    ecfs_attempt_describe (self);
    GPtrArray *records = g_ptr_array_new ();
    g_ptr_array_add (records, &self->record);
    return records;
}

bool ecfs_attempt_run_writer (EcfsCommitAttempt *self, EcfsWriterTarget *targets, const EcfsObjectRow *expected,
                              EcfsWriterResult *result, GError **error)
{
    g_autoptr (GPtrArray) records = describe (self, error);
    g_autoptr (EcfsSealKeys) keys = NULL;
    if (records == NULL || !ecfs_archive_seal_keys (self->archive, self->part->row, &keys, error))
        return false;
    g_autoptr (GByteArray) chain = self->repair.packets == NULL ? NULL : ecfs_repair_chain (self->repair.packets);
    EcfsWriterJob job = {.transfer = ecfs_archive_transfer (self->archive),
                         .codec = self->places.codec,
                         .header = ecfs_attempt_header (self->archive, self->part->row, self->places.codec),
                         .keys = keys,
                         .size = self->part->row->size,
                         .fd = self->commit.fd,
                         .ranges = self->part->whole != NULL ? self->part->whole : self->part->ranges,
                         .records = records,
                         .is_pack = self->part->row->kind == ECFS_OBJECT_PACK,
                         .feed = self->commit.stream.feed,
                         .feed_offset = self->part->feed_offset,
                         .most = ecfs_archive_config (self->archive)->object_max,
                         .ended = ecfs_attempt_content_ended,
                         .packets = self->repair.packets == NULL ? NULL : ecfs_repair_packets (self->repair.packets),
                         .chain = chain,
                         .expected_digest = expected == NULL ? NULL : expected->digest,
                         .expected_sha256 = expected != NULL && expected->has_sha256 ? expected->sha256 : NULL,
                         .targets = targets,
                         .replace = replace,
                         .possible = possible,
                         .patient = self->commit.patient,
                         .enough = self->commit.publish.published != NULL ? ecfs_attempt_publish_early : NULL,
                         .at_quorum = self->commit.publish.at_quorum,
                         .cancelled = ecfs_attempt_is_cancelled,
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

bool ecfs_attempt_file_rules (const EcfsCommitAttempt *self, EcfsRuled *ret_ruled, GError **error)
{
    const EcfsCommit *commit = &self->commit;
    return ecfs_archive_file_ruled (self->archive, commit->parent != 0 ? commit->parent : commit->ino, ret_ruled,
                                    error);
}

/* The rules of all files that have, or are to have, something of it. */
static bool find_rules (EcfsCommitAttempt *self, const EcfsCommitObject *part, GError **error)
{
    const EcfsCommit *commit = &self->commit;
    const int64_t object = part->row->id != 0 ? part->row->id : part->stands_for;
    ecfs_ruled_clear (&self->ruled);
    if (commit->kind == ECFS_COMMIT_PACK) {
        self->ruled.marks = g_strdup (commit->marks);
        return true;
    }
    return commit->kind == ECFS_COMMIT_STORE || commit->kind == ECFS_COMMIT_STREAM
               ? ecfs_attempt_file_rules (self, &self->ruled, error)
               : ecfs_archive_object_ruled (self->archive, object, &self->ruled, error);
}

bool ecfs_attempt_begin_object (EcfsCommitAttempt *self, EcfsCommitObject *part, const EcfsCodec *codec, GError **error)
{
    if (!find_rules (self, part, error))
        return false;
    self->part = part;
    uint64_t packet_bytes = part->row->size / ecfs_codec_k (codec);
    unsigned share = part->row->seal.kind == ECFS_SEAL_NONE ? TAGS_SHARE : MACS_SHARE;
    self->places = (EcfsObjectPlaces){.codec = codec,
                                      .stripe_bytes = packet_bytes + packet_bytes / share,
                                      .n_endpoints = ecfs_archive_n_endpoints (self->archive),
                                      .marks = self->ruled.marks};
    memset (self->stored_before, 0, sizeof self->stored_before);
    for (size_t i = 0; i < G_N_ELEMENTS (self->places.position); i++)
        self->places.position[i] = SIZE_MAX;
    return true;
}

/* Endpoints for all stripes of a new object; false where those that are up cannot be enough. */
static bool place_all (EcfsCommitAttempt *self, EcfsWriterTarget *targets, GError **error)
{
    bool wanted[ECFS_CODEC_MAX_N] = {0}, placed[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < ecfs_codec_n (self->places.codec); i++)
        wanted[i] = true;
    ecfs_attempt_place (self, wanted, true, targets);
    for (unsigned i = 0; i < ecfs_codec_n (self->places.codec); i++)
        placed[i] = targets[i].endpoint != NULL;
    return ecfs_attempt_is_backed (self, placed, self->places.position) ||
           fail_too_few (self, "too few endpoints take its stripes", error);
}

void ecfs_attempt_note_stored (EcfsCommitAttempt *self, const EcfsWriterResult *result)
{
    EcfsCommitObject *part = self->part;
    EcfsObjectRow *row = part->row;
    g_array_set_size (row->stripes, 0);
    for (unsigned i = 0; i < ecfs_codec_n (self->places.codec); i++) {
        EcfsStripeRow stripe =
            result->stored[i] ? ecfs_attempt_stored_stripe (self, i, self->targets, result) : (EcfsStripeRow){0};
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
    if (!ecfs_attempt_is_backed (self, result->stored, self->places.position)) {
        g_string_prepend (result->failures, "too few endpoints took its stripes: ");
        return fail_too_few (self, result->failures->str, error);
    }
    if (!part->full)
        g_info ("%s: stored with %u of %u stripes, the others follow; %s", self->path, part->row->stripes->len,
                ecfs_codec_n (self->places.codec), result->failures->str);
    return true;
}

/* Another mount may have taken an endpoint out a moment ago. */
static void follow_endpoints (EcfsArchive *archive)
{
    g_autoptr (GError) error = NULL;
    const bool is_beside = ecfs_catalog_is_shared (ecfs_archive_catalog (archive)) && !ecfs_archive_leads (archive);
    if (is_beside && !ecfs_archive_follow_endpoints (archive, &error))
        g_info ("%s", error->message); /* what is announced next says it */
}

/* Places the stripes of a new object and announces them; once more, where an endpoint was to take none meanwhile. */
static bool announce (EcfsCommitAttempt *self, EcfsCommitObject *part, const EcfsCodec *codec,
                      EcfsWriterTarget *targets, GError **error)
{
    for (unsigned attempt = 1;; attempt++) {
        GError *why = NULL;
        memset (targets, 0, ECFS_CODEC_MAX_N * sizeof *targets);
        if (!ecfs_attempt_begin_object (self, part, codec, error) || !place_all (self, targets, error))
            return false;
        g_array_unref (part->row->stripes);
        part->row->stripes = ecfs_attempt_intended_stripes (self, targets);
        if (ecfs_catalog_intent_begin (ecfs_archive_catalog (self->archive), part->row, self->commit.ino, &part->intent,
                                       &why))
            return true;
        if (why->code != EAGAIN || attempt == PLACE_ATTEMPTS) {
            g_propagate_error (error, why);
            return false;
        }
        g_error_free (why);
        follow_endpoints (self->archive);
    }
}

bool ecfs_attempt_store_object (EcfsCommitAttempt *self, EcfsCommitObject *part, const EcfsCodec *codec, GError **error)
{
    EcfsArchive *archive = self->archive;
    size_t parameters_bytes;
    const uint8_t *parameters = ecfs_codec_parameters (codec, &parameters_bytes);
    /* Objects name their code by its identity; what that takes is in the catalog before them. */
    if (parameters != NULL && !ecfs_catalog_keep_code (ecfs_archive_catalog (archive), ecfs_codec_identity (codec),
                                                       parameters, parameters_bytes, error))
        return false;
    EcfsObjectRow *row = part->row;
    row->code = g_strdup (ecfs_codec_identity (codec));
    row->segment_bytes = ecfs_layout_segment_bytes (ecfs_archive_config (archive)->segment_size, ecfs_codec_k (codec),
                                                    ecfs_codec_granule (codec));
    row->block_bytes = ecfs_layout_written_block_bytes (ecfs_codec_granule (codec));
    row->seal = ecfs_seal_new (ecfs_archive_keys (archive));
    EcfsWriterTarget targets[ECFS_CODEC_MAX_N];
    if (!announce (self, part, codec, targets, error))
        return false;
    EcfsWriterResult result;
    self->targets = targets;
    if (!ecfs_attempt_run_writer (self, targets, NULL, &result, error))
        return false;
    bool fine = self->early ? ecfs_attempt_add_rest (self, &result, error) : judge (self, &result, error);
    g_string_free (result.failures, TRUE);
    return fine;
}
