/*
 * Which of several instances of a stripe is the object's. A repair stores a damaged stripe once more, and the damaged
 * one stays for a while: where the journal ends before it tells of that, it still names the damaged one. So what it
 * names is read where another lies beside it, and where it is not what was stored, one that is takes its place. What
 * was stored after all others needs no look: it is what the last of these repairs or moves made.
 */
#include "object/log.h"
#include "recover/recover_priv.h"

#define CLOCKS_S 3600 /* that clocks of endpoints may differ */

/* A stripe of which there are several, or another than the catalog names. */
typedef struct Doubt {
    EcfsRecovering *recovering;
    const EcfsObjectRow *object;
    EcfsStripeRow *stripe;         /* as the catalog names it */
    const EcfsRecoverPiece *named; /* NULL: it is not there */
    const EcfsRecoverPieces *all;
    size_t from, end;              /* … of which these are of the object */
    const EcfsRecoverPiece *found; /* what takes its place; NULL: nothing does */
} Doubt;

/* A log may have grown since. */
static bool has_size (const EcfsRecoverPiece *piece, const EcfsObjectRow *object, const EcfsStripeRow *stripe)
{
    uint64_t end = stripe->size == 0 ? object->size : MIN (stripe->size, object->size);
    return object->kind == ECFS_OBJECT_LOG
               ? piece->size >= ecfs_log_stripe_bytes (object->header_bytes, &object->seal, end)
               : piece->size == stripe->size;
}

static bool is_named (const EcfsRecovering *self, const EcfsRecoverPiece *piece, const EcfsObjectRow *object,
                      const EcfsStripeRow *stripe)
{
    return piece->index == stripe->index && piece->instance == stripe->instance && has_size (piece, object, stripe) &&
           self->places[piece->position].id == stripe->endpoint;
}

/* The piece that is this stripe of an object; NULL: it is not there. */
static const EcfsRecoverPiece *find_named (const EcfsRecovering *self, const EcfsRecoverPieces *all,
                                           const EcfsObjectRow *object, const EcfsStripeRow *stripe)
{
    size_t from = ecfs_recover_find_pieces (all, &object->uuid);
    for (size_t i = from; i < all->len; i++) {
        const EcfsRecoverPiece *piece = &all->at[i];
        if (!ecfs_uuid_equal (&piece->object, &object->uuid))
            break;
        if (is_named (self, piece, object, stripe))
            return piece;
    }
    return NULL;
}

/* Whether it was stored after the other, as far as clocks tell. */
static bool is_newer (const EcfsRecoverPiece *piece, const EcfsRecoverPiece *other)
{
    int64_t apart_s = piece->position == other->position ? 0 : CLOCKS_S;
    return piece->mtime_s != 0 && other->mtime_s != 0 && piece->mtime_s - apart_s > other->mtime_s;
}

static bool is_doubted (const Doubt *self)
{
    for (size_t i = self->from; i < self->end; i++) {
        const EcfsRecoverPiece *piece = &self->all->at[i];
        if (piece->index == self->stripe->index && piece != self->named &&
            (self->named == NULL || !is_newer (self->named, piece)))
            return true;
    }
    return false;
}

/* Whether it is the stripe as it was stored, whatever endpoint it is at. */
static bool is_intact (const Doubt *self, const EcfsRecoverPiece *piece)
{
    const EcfsObjectRow *object = self->object;
    EcfsRecoverTold told = {
        .piece = piece, .recovering = self->recovering, .may_be_open = object->seal.kind == ECFS_SEAL_NONE};
    ecfs_recover_told_read (&told);
    bool intact = told.good && told.header.header_bytes == object->header_bytes &&
                  told.header.segment_bytes == object->segment_bytes &&
                  told.header.block_bytes == object->block_bytes &&
                  ecfs_seal_equal (&told.header.seal, &object->seal) &&
                  (object->kind == ECFS_OBJECT_LOG
                       ? told.header.is_log && told.footer.size >= object->size /* its records have checksums */
                       : told.footer.size == object->size &&
                             memcmp (told.footer.object_digest, object->digest, ECFS_DIGEST_SIZE) == 0 &&
                             ecfs_recover_told_fits (&told, self->stripe->digest));
    ecfs_recover_told_clear (&told);
    return intact;
}

static void settle (void *data)
{
    Doubt *self = data;
    if (self->named != NULL && is_intact (self, self->named))
        return;
    for (size_t i = self->from; i < self->end && self->found == NULL; i++) {
        const EcfsRecoverPiece *piece = &self->all->at[i];
        if (piece->index == self->stripe->index && piece != self->named && piece->instance > 0 &&
            piece->instance <= INT64_MAX && is_intact (self, piece))
            self->found = piece;
    }
}

static void add_doubts (EcfsRecovering *self, const EcfsRecoverPieces *all, const EcfsObjectRow *object, GArray *doubts)
{
    size_t from = ecfs_recover_find_pieces (all, &object->uuid);
    if (from == all->len || !ecfs_uuid_equal (&all->at[from].object, &object->uuid))
        return;
    size_t end = ecfs_recover_end_of_object (all, from);
    if (end - from > ECFS_RECOVER_STRIPES_MOST)
        return;
    for (guint i = 0; i < object->stripes->len; i++) {
        EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        const Doubt doubt = {.recovering = self,
                             .object = object,
                             .stripe = stripe,
                             .named = find_named (self, all, object, stripe),
                             .all = all,
                             .from = from,
                             .end = end};
        if (is_doubted (&doubt))
            g_array_append_val (doubts, doubt);
    }
}

static bool replace (EcfsRecovering *self, const Doubt *doubt, GError **error)
{
    EcfsStripeRow *stripe = doubt->stripe;
    stripe->instance = doubt->found->instance;
    stripe->endpoint = self->places[doubt->found->position].id;
    stripe->size = doubt->object->kind == ECFS_OBJECT_LOG ? 0 : doubt->found->size;
    self->n_exchanged++;
    return ecfs_restore_stripe (self->restore, &doubt->object->uuid, stripe, error);
}

bool ecfs_recover_instances (EcfsRecovering *self, const EcfsRecoverPieces *all, const GPtrArray *objects,
                             GError **error)
{
    g_autoptr (GArray) doubts = g_array_new (FALSE, FALSE, sizeof (Doubt));
    for (guint i = 0; i < objects->len; i++)
        add_doubts (self, all, g_ptr_array_index (objects, i), doubts);
    const guint at_once = ecfs_recover_n_readers (self);
    for (guint at = 0; at < doubts->len; at += at_once) {
        guint end = MIN (doubts->len, at + at_once);
        EcfsWorkers *workers = ecfs_workers_new ("ecfs-recover", at_once);
        for (guint i = at; i < end; i++)
            ecfs_workers_push (workers, settle, &g_array_index (doubts, Doubt, i));
        ecfs_workers_free (workers);
        for (guint i = at; i < end; i++) {
            const Doubt *doubt = &g_array_index (doubts, Doubt, i);
            if (doubt->found != NULL && !replace (self, doubt, error))
                return false;
        }
        if (!ecfs_recover_tick (self, "reading stripes that exist twice", end, doubts->len, error))
            return false;
    }
    return true;
}

EcfsObjectRow *ecfs_recover_object (EcfsRecovering *self, const EcfsUuid *object, GError **error)
{
    EcfsUuid before = *object;
    for (size_t i = sizeof before.bytes; i-- > 0 && before.bytes[i]-- == 0;)
        ;
    g_autoptr (GPtrArray) rows = ecfs_catalog_objects_by_uuid (self->catalog, &before, 1, error);
    if (rows == NULL)
        return NULL;
    if (rows->len == 0 || !ecfs_uuid_equal (&((const EcfsObjectRow *) rows->pdata[0])->uuid, object)) {
        (void) !ecfs_fail (error, ENOENT, "the catalog does not have the object");
        return NULL;
    }
    return ecfs_catalog_object (self->catalog, ((const EcfsObjectRow *) rows->pdata[0])->id, error);
}

static EcfsCodec *codec_of (EcfsRecovering *self, const char *code, GError **error)
{
    g_autoptr (GError) reason = NULL;
    EcfsCodec *codec = ecfs_codec_new (code, &reason);
    if (codec != NULL || reason->code != ESTALE) {
        if (codec == NULL)
            g_propagate_error (error, g_steal_pointer (&reason));
        return codec;
    }
    gsize size;
    g_autoptr (GBytes) parameters = ecfs_catalog_code (self->catalog, code, error);
    const uint8_t *bytes = parameters == NULL ? NULL : g_bytes_get_data (parameters, &size);
    return bytes == NULL ? NULL : ecfs_codec_new_with (code, bytes, size, error);
}

bool ecfs_recover_is_whole (EcfsRecovering *self, const EcfsRecoverPieces *all, const EcfsObjectRow *object)
{
    bool present[ECFS_CODEC_MAX_N] = {false};
    g_autoptr (EcfsCodec) codec = codec_of (self, object->code, NULL);
    if (codec == NULL)
        return false;
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->index < ecfs_codec_n (codec))
            present[stripe->index] =
                !ecfs_stripe_lacks (object, stripe, object->size) && find_named (self, all, object, stripe) != NULL;
    }
    return ecfs_codec_decodable (codec, present);
}

bool ecfs_recover_forget_gone (EcfsRecovering *self, const EcfsRecoverPieces *all, const EcfsObjectRow *object,
                               GError **error)
{
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        bool is_asked = false;
        for (size_t j = 0; j < self->n_places; j++)
            is_asked = is_asked || self->places[j].id == stripe->endpoint;
        if (is_asked && find_named (self, all, object, stripe) == NULL &&
            !ecfs_restore_forget_stripe (self->restore, object, stripe, error))
            return false;
    }
    return true;
}
