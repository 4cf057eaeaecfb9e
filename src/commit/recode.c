/* RECODE: one object to another code; storing an object anew, which is how that is done where the codes share nothing.
 */
#include "commit/commit_priv.h"

#include "archive/common.h"
#include "util/io.h"
#include "util/xxh3.h"

#define PIECE_BYTES (1u << 20)

static bool check_stripe (const EcfsCommitAttempt *self, const EcfsObjectRow *row, const EcfsStripeRow *stripe,
                          GError **error)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    uint64_t size;
    size_t position = self->places.position[stripe->index];
    ecfs_stripe_name (&row->uuid, stripe->index, stripe->instance, name);
    const EcfsArchiveEndpoint *endpoint = position == SIZE_MAX ? NULL : ecfs_archive_endpoint (self->archive, position);
    if (endpoint == NULL || !ecfs_archive_endpoint_counts (endpoint))
        return ecfs_fail (error, EIO, "%s is on an endpoint that was given up", name);
    return ecfs_endpoint_size_wait (endpoint->endpoint, name, &size, error) &&
           (size == stripe->size || ecfs_fail (error, EIO, "endpoint %s: %s has the wrong size", endpoint->name, name));
}

/* What would go may be all that is left: whether what stays is really there. */
static bool check_kept (const EcfsCommitAttempt *self, const EcfsObjectRow *row, unsigned n, GError **error)
{
    for (guint i = 0; i < row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (row->stripes, EcfsStripeRow, i);
        if (stripe->index < n && !check_stripe (self, row, stripe, error))
            return ecfs_prefix (error, "no stripe is dropped, because one that would stay is missing");
    }
    return true;
}

/* The stripes that both codes have stay; those behind the last of the new one go. */
static bool recode_in_place (EcfsCommitAttempt *self, EcfsCommitObject *part, const EcfsCodec *before,
                             const EcfsCodec *codec, GError **error)
{
    self->in_place = true;
    g_autoptr (GArray) stripes = ecfs_attempt_store_missing (self, part, codec, error);
    if (stripes == NULL || (self->missing != NULL && !ecfs_attempt_fail_missing (self, error)))
        return false;
    unsigned n = ecfs_codec_n (codec);
    if (n < ecfs_codec_n (before) && !check_kept (self, part->row, n, error))
        return false;
    return ecfs_catalog_set_object_code (ecfs_archive_catalog (self->archive), &part->row->uuid, part->row->code,
                                         ecfs_codec_identity (codec), stripes, part->intent, error);
}

/* Whether the content has the digest of an object that is stored in the clear. */
static bool has_digest (const EcfsCommitAttempt *self, const EcfsObjectRow *old, const char *otherwise, GError **error)
{
    XXH128_canonical_t found;
    g_autofree uint8_t *bytes = g_malloc (PIECE_BYTES);
    XXH3_state_t *state = XXH3_createState ();
    XXH3_128bits_reset (state);
    ssize_t got = 1;
    for (uint64_t at = 0; at < old->size && got > 0; at += (uint64_t) got) {
        got = ecfs_pread_all (self->commit.fd, bytes, (size_t) MIN (PIECE_BYTES, old->size - at), at);
        if (got > 0)
            ecfs_xxh3_128_update (state, bytes, (size_t) got);
    }
    XXH128_canonicalFromHash (&found, XXH3_128bits_digest (state));
    XXH3_freeState (state);
    if (got <= 0)
        return ecfs_fail_errno (error, got < 0 ? (int) -got : EIO, "the staging area");
    return memcmp (found.digest, old->digest, ECFS_DIGEST_SIZE) == 0 || ecfs_fail (error, EBADMSG, "%s", otherwise);
}

/* What was stored without a SHA-256 is compared by its digest, and has one from then on. */
static bool learn_sha256 (EcfsCommitAttempt *self, EcfsObjectRow *old, const EcfsObjectRow *row, const char *otherwise,
                          GError **error)
{
    if (old->has_sha256 || old->seal.kind != ECFS_SEAL_NONE || row->seal.kind == ECFS_SEAL_NONE)
        return true;
    if (!has_digest (self, old, otherwise, error) ||
        !ecfs_catalog_object_set_sha256 (ecfs_archive_catalog (self->archive), &old->uuid, row->sha256, error))
        return false;
    memcpy (old->sha256, row->sha256, ECFS_SHA256_SIZE);
    old->has_sha256 = true;
    return true;
}

static EcfsCommitObject *part_like (EcfsCommitAttempt *self, const EcfsCommitObject *old)
{
    EcfsCommitObject *part = ecfs_attempt_part (self);
    part->row->size = old->row->size;
    part->stands_for = old->row->id;
    part->whole = old->whole == NULL ? NULL : g_array_ref (old->whole);
    g_array_unref (part->ranges);
    part->ranges = g_array_ref (old->ranges);
    part->is_apart = true;
    part->n_objects = old->n_objects;
    part->elsewhere = old->elsewhere == NULL ? NULL : g_array_ref (old->elsewhere);
    return part;
}

EcfsCommitObject *ecfs_attempt_store_anew (EcfsCommitAttempt *self, const EcfsCommitObject *old, const EcfsCodec *codec,
                                           const char *otherwise, GError **error)
{
    EcfsCommitObject *part = part_like (self, old);
    if (!ecfs_attempt_store_object (self, part, codec, error) || !ecfs_attempt_check_unchanged (self, error))
        return NULL;
    ecfs_archive_await_session (self->archive);
    if (!learn_sha256 (self, old->row, part->row, otherwise, error))
        return NULL;
    bool fine =
        (ecfs_object_same_content (old->row, part->row) || ecfs_fail (error, EBADMSG, "%s", otherwise)) &&
        ecfs_catalog_exchange (ecfs_archive_catalog (self->archive), &old->row->uuid, part->row, part->intent, error);
    return fine ? part : NULL;
}

bool ecfs_attempt_recode (EcfsCommitAttempt *self, GError **error)
{
    EcfsCommitObject *part = ecfs_attempt_named_part (self, error);
    if (part == NULL)
        return false;
    EcfsFileRange all = {.length = part->row->size};
    part->whole = g_array_append_val (g_array_new (FALSE, FALSE, sizeof all), all);
    if (self->commit.seals)
        self->own_code = part->row->code;
    const EcfsCodec *before = ecfs_archive_codec (self->archive, part->row->code, error);
    const EcfsCodec *codec = before == NULL ? NULL : ecfs_attempt_codec (self, part->row->size, error);
    if (codec == NULL)
        return false;
    bool stays = !self->commit.seals && ecfs_codec_shares_stripes (before, codec);
    bool fine =
        stays ? recode_in_place (self, part, before, codec, error)
              : ecfs_attempt_store_anew (self, part, codec,
                                         "what was read of it does not fit its digest: repair it first", error) != NULL;
    ecfs_archive_stripes_changed (self->archive);
    return fine;
}
