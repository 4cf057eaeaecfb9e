/* One object whole again, from its own stripes. */
#include "archive/commit_priv.h"

#include "archive/archive_priv.h"

/* Which stripes are to be stored: those that are missing, and those of the order that the object still has. */
static void note_replaced (Attempt *self, const EcfsObjectRow *row, unsigned n, bool *ret_wanted, bool *ret_left_out)
{
    const EcfsRepairOrder *order = self->commit.order;
    for (unsigned i = 0; i < n; i++)
        ret_wanted[i] = true;
    for (guint i = 0; i < row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (row->stripes, EcfsStripeRow, i);
        bool named = order->instance[stripe->index] == stripe->instance;
        ret_wanted[stripe->index] = named;
        ret_left_out[stripe->index] = named && order->gone[stripe->index];
        if (named)
            self->replaced[stripe->index] = *stripe;
    }
}

bool ecfs_attempt_repair (Attempt *self, GError **error)
{
    bool wanted[ECFS_CODEC_MAX_N] = {0}, left_out[ECFS_CODEC_MAX_N] = {0};
    Part *part = ecfs_attempt_named_part (self, error);
    const EcfsCodec *codec = part == NULL ? NULL : ecfs_archive_codec (self->archive, part->row->code, error);
    if (codec == NULL)
        return false;
    note_replaced (self, part->row, ecfs_codec_n (codec), wanted, left_out);
    EcfsReader *reader = ecfs_archive_reader (self->archive, part->row, left_out, error);
    if (reader == NULL)
        return false;
    ecfs_archive_pin (self->archive, &part->row->uuid);
    self->repair = ecfs_repair_new (reader, wanted);
    bool fine = ecfs_attempt_fill_object (self, part, error);
    atomic_fetch_add (&self->archive->n_stripe_changes, 1);
    self->commit.order->read_bytes = ecfs_repair_read_bytes (self->repair);
    ecfs_repair_free (self->repair);
    ecfs_archive_unpin (self->archive, &part->row->uuid);
    self->outcome.full = fine && self->missing == NULL;
    return fine && (self->missing == NULL || ecfs_attempt_fail_missing (self, error));
}
