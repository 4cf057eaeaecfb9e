/* REPAIR: one object whole again, from its own stripes. */
#include "commit/commit_priv.h"

#include "archive/common.h"
#include "archive/crowding.h"

#define REPAIR_ATTEMPTS 5 /* at an object whose stripes others change meanwhile */

/* What is rebuilt must be what was stored, whatever the check blocks of the others said. */
static bool check_same (const EcfsStripeRow *replaced, const EcfsStripeRow *stripe, GError **error)
{
    return replaced->instance == 0 || memcmp (replaced->digest, stripe->digest, sizeof stripe->digest) == 0 ||
           ecfs_fail (error, EBADMSG,
                      "stripe %u as it was rebuilt does not fit its digest in the catalog: left as it was",
                      stripe->index);
}

static bool set_stripe (EcfsCommitAttempt *self, const EcfsCommitObject *part, const EcfsStripeRow *stripe,
                        GError **error)
{
    const EcfsStripeRow *replaced = &self->repair.replaced[stripe->index]; /* of other kinds none */
    unsigned most = ecfs_object_most_per_endpoint (self->archive, &self->places);
    if (!check_same (replaced, stripe, error) ||
        !ecfs_catalog_stripe_set (ecfs_archive_catalog (self->archive), &part->row->uuid, stripe, replaced->instance,
                                  most, part->intent, error))
        return false;
    if (self->commit.kind == ECFS_COMMIT_REPAIR) {
        self->commit.repair.order->n_stored++;
        self->commit.repair.order->written_bytes += part->row->kind == ECFS_OBJECT_LOG ? part->row->size : stripe->size;
    }
    return true;
}

bool ecfs_attempt_set_stripes (EcfsCommitAttempt *self, const EcfsCommitObject *part, const GArray *stripes,
                               GError **error)
{
    GError *first = NULL; /* but ESTALE, after which one tries again, only where there is no other */
    for (guint i = 0; i < stripes->len; i++) {
        GError *why = NULL;
        bool fine = set_stripe (self, part, &g_array_index (stripes, EcfsStripeRow, i), &why);
        if (!fine && (first == NULL || first->code == ESTALE)) {
            g_clear_error (&first);
            first = g_steal_pointer (&why);
        }
        g_clear_error (&why);
    }
    if (first != NULL)
        g_propagate_error (error, first);
    return first == NULL;
}

/* Which stripes are to be stored: those that are missing, and those of the order that the object still has. */
static void note_replaced (EcfsCommitAttempt *self, const EcfsObjectRow *row, unsigned n, bool *ret_wanted,
                           bool *ret_left_out)
{
    const EcfsRepairOrder *order = self->commit.repair.order;
    memset (self->repair.replaced, 0, sizeof self->repair.replaced);
    for (unsigned i = 0; i < n; i++)
        ret_wanted[i] = !order->only_named;
    for (guint i = 0; i < row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (row->stripes, EcfsStripeRow, i);
        bool named = order->instance[stripe->index] == stripe->instance;
        ret_wanted[stripe->index] = named;
        ret_left_out[stripe->index] = named && order->gone[stripe->index];
        if (named)
            self->repair.replaced[stripe->index] = *stripe;
    }
}

/* Orders what brings an object's stripes where they should be; 0: nothing does now, or not any more; -1. */
static int order_moves (EcfsCommitAttempt *self, const EcfsObjectRow *row, unsigned n, GError **error)
{
    EcfsRoomy roomy;
    EcfsCrowding crowding;
    uint64_t lot;
    EcfsRepairOrder *order = self->commit.repair.order;
    ecfs_random (&lot, sizeof lot);
    int is = ecfs_roomy_init (&roomy, self->archive, error)
                 ? ecfs_object_is_crowded (&roomy, row, lot, &crowding, error)
                 : -1;
    ecfs_roomy_clear (&roomy);
    if (is != 1 || crowding.n_moves == 0)
        return MIN (is, 0);
    order->only_named = true;
    memcpy (self->repair.to, crowding.to, n * sizeof self->repair.to[0]);
    for (guint i = 0; i < row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (row->stripes, EcfsStripeRow, i);
        if (stripe->index >= n)
            continue;
        order->moved[stripe->index] = crowding.to[stripe->index] != SIZE_MAX;
        order->instance[stripe->index] = order->moved[stripe->index] ? stripe->instance : 0;
    }
    return 1;
}

/* A stripe that has another in its place may have been a lie, of which the cache may have some. Readers that are still
 * open read the old one: so it is forgotten when they are older than what they read. */
static void forget_replaced (EcfsCommitAttempt *self, const EcfsObjectRow *row)
{
    bool any = false;
    for (unsigned i = 0; i < ECFS_CODEC_MAX_N; i++)
        any = any || self->repair.replaced[i].instance != 0;
    if (any)
        ecfs_archive_forget_cached (self->archive, row);
}

static bool repair_part (EcfsCommitAttempt *self, EcfsCommitObject *part, GError **error)
{
    bool wanted[ECFS_CODEC_MAX_N] = {0}, left_out[ECFS_CODEC_MAX_N] = {0};
    EcfsRepairOrder *order = self->commit.repair.order;
    const EcfsCodec *codec = ecfs_archive_codec (self->archive, part->row->code, error);
    if (codec == NULL)
        return false;
    int any = order->is_crowded ? order_moves (self, part->row, ecfs_codec_n (codec), error) : 1;
    if (any != 1)
        return any == 0;
    note_replaced (self, part->row, ecfs_codec_n (codec), wanted, left_out);
    const bool is_log = part->row->kind == ECFS_OBJECT_LOG; /* which has no footer, and is copied as a whole */
    EcfsReader *reader = is_log ? NULL : ecfs_archive_reader (self->archive, part->row, left_out, error);
    if (!is_log && reader == NULL)
        return false;
    ecfs_archive_pin (self->archive, &part->row->uuid);
    if (!is_log)
        self->repair.packets = ecfs_repair_new (reader, wanted, self->commit.repair.pace);
    bool fine = ecfs_attempt_fill_object (self, part, error);
    ecfs_archive_stripes_changed (self->archive);
    if (fine)
        forget_replaced (self, part->row);
    order->read_bytes += is_log ? part->row->size : ecfs_repair_read_bytes (self->repair.packets);
    ecfs_repair_free (g_steal_pointer (&self->repair.packets));
    ecfs_archive_unpin (self->archive, &part->row->uuid);
    self->outcome.full = fine && self->missing == NULL;
    return fine && (self->missing == NULL || ecfs_attempt_fail_missing (self, error));
}

/* What of damaged stripes fits its checksums may be other than what was stored all the same: then nothing of them is
 * read. False: nothing of them was. */
static bool leave_out_damaged (EcfsRepairOrder *order)
{
    bool any = false;
    for (unsigned i = 0; i < ECFS_CODEC_MAX_N; i++) {
        bool damaged = order->instance[i] != 0 && !order->moved[i] && !order->gone[i];
        order->gone[i] = order->gone[i] || damaged;
        any = any || damaged;
    }
    return any;
}

/* What was rebuilt is not what was stored, although all checksums fit: stripes of endpoints that return other bytes
 * than they got are damaged stripes. False: nobody is found, or all that were are known already. */
static bool order_lies (EcfsCommitAttempt *self, const EcfsObjectRow *row)
{
    bool lies[ECFS_CODEC_MAX_N] = {false}, any = false;
    EcfsRepairOrder *order = self->commit.repair.order;
    if (!row->has_sha256 || !ecfs_archive_find_liars (self->archive, row, NULL, NULL, lies, NULL))
        return false;
    for (guint i = 0; i < row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (row->stripes, EcfsStripeRow, i);
        unsigned index = stripe->index;
        if (index >= ECFS_CODEC_MAX_N || !lies[index] || (order->gone[index] && order->instance[index] != 0))
            continue;
        order->instance[index] = stripe->instance;
        any = order->gone[index] = true;
        order->moved[index] = false;
    }
    return any;
}

/* Whoever else changes some of its stripes meanwhile: it needs the others as before. */
bool ecfs_attempt_repair (EcfsCommitAttempt *self, GError **error)
{
    for (unsigned attempt = 1;; attempt++) {
        GError *why = NULL;
        EcfsCommitObject *part = ecfs_attempt_named_part (self, error);
        if (part == NULL)
            return false;
        if (self->missing != NULL)
            g_string_free (g_steal_pointer (&self->missing), TRUE);
        if (repair_part (self, part, &why))
            return true;
        if (why->code == EBADMSG && (leave_out_damaged (self->commit.repair.order) || order_lies (self, part->row))) {
            g_error_free (why);
            continue;
        }
        /* EAGAIN: an endpoint that it was placed at takes none any more. */
        if ((why->code != ESTALE && why->code != EAGAIN) || attempt == REPAIR_ATTEMPTS) {
            why->code = why->code == ESTALE ? EAGAIN : why->code; /* it is there still */
            g_propagate_error (error, why);
            return false;
        }
        g_error_free (why);
    }
}
