/*
 * Whether the content of what only stripes tell of is what they say: their checksums are against accidents, and an
 * endpoint can make bytes that have them. So it is read once, without those that return other bytes than were stored,
 * and gets a SHA-256, by which later reads know.
 */
#include "object/liars.h"
#include "recover/recover_priv.h"

#define MEMORY_BYTES (UINT64_C (128) << 20)

typedef struct Check {
    EcfsRecovering *recovering;
    uint64_t n_read; /* bytes */
    uint64_t n_all;
} Check;

static bool on_read (void *user, uint64_t bytes)
{
    Check *self = user;
    self->n_read += bytes;
    return ecfs_recover_tick (self->recovering, "content that no journal mentions", MIN (self->n_read, self->n_all),
                              self->n_all, NULL);
}

static void note_trouble (void *user, const EcfsTrouble *trouble)
{
    (void) user;
    g_info ("%s; stripe %u is read around", trouble->error->message, trouble->stripe_index);
}

static void set_stripes (const EcfsRecovering *self, const EcfsObjectRow *row, EcfsReaderStripe *stripes)
{
    memset (stripes, 0, ECFS_CODEC_MAX_N * sizeof *stripes);
    for (guint i = 0; i < row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (row->stripes, EcfsStripeRow, i);
        for (size_t j = 0; j < self->n_places; j++)
            if (self->places[j].id == stripe->endpoint)
                stripes[stripe->index] =
                    (EcfsReaderStripe){.endpoint = self->places[j].endpoint, .instance = stripe->instance};
    }
}

/* What is not what was stored is not the object's. */
static void drop_lies (EcfsRecovering *self, const char *path, EcfsObjectRow *row, const EcfsReaderStripe *stripes,
                       const bool *lies)
{
    g_autofree char *shown = g_utf8_make_valid (path, -1);
    for (guint i = row->stripes->len; i-- > 0;) {
        unsigned index = g_array_index (row->stripes, EcfsStripeRow, i).index;
        if (!lies[index])
            continue;
        ecfs_recover_tell (
            self,
            "%s: endpoint %s returns other bytes than were stored, with checksums that fit; stripe %u is left out",
            shown, ecfs_endpoint_name (stripes[index].endpoint), index);
        g_array_remove_index (row->stripes, i);
    }
}

/* It outlives the endpoints, as readers that were closed end when their last requests do. */
static EcfsTransferPool *transfer_of (EcfsRecovering *self)
{
    if (self->transfer == NULL) {
        self->transfer = ecfs_transfer_new (MEMORY_BYTES);
        ecfs_transfer_start (self->transfer);
    }
    return self->transfer;
}

static bool check (EcfsRecovering *self, const char *path, const EcfsReaderParams *params, EcfsObjectRow *row,
                   GError **error)
{
    GError *reason = NULL;
    bool lies[ECFS_CODEC_MAX_N] = {false};
    Check state = {.recovering = self, .n_all = row->size};
    const EcfsLiars liars = {
        .params = params, .digest = row->digest, .ret_sha256 = row->sha256, .tick = on_read, .user = &state};
    row->has_sha256 = ecfs_true_stripes (&liars, NULL, NULL, &reason);
    if (row->has_sha256)
        return true;
    if (reason->code != EBADMSG) {
        g_propagate_error (error, reason);
        return false;
    }
    g_error_free (reason);
    row->has_sha256 = ecfs_liars_find (&liars, ecfs_codec_tolerance (params->codec), lies, error);
    if (row->has_sha256)
        drop_lies (self, path, row, params->stripes, lies);
    return row->has_sha256;
}

bool ecfs_recover_check_content (EcfsRecovering *self, const char *path, EcfsStray *stray, GError **error)
{
    EcfsObjectRow *row = stray->row;
    EcfsReaderStripe stripes[ECFS_CODEC_MAX_N];
    g_auto (EcfsReaderParams) params = {.transfer = transfer_of (self),
                                        .codec = stray->codec,
                                        .layout = {.size = row->size,
                                                   .segment_bytes = row->segment_bytes,
                                                   .block_bytes = row->block_bytes,
                                                   .header_bytes = row->header_bytes,
                                                   .granule = (uint32_t) ecfs_codec_granule (stray->codec),
                                                   .k = (uint16_t) ecfs_codec_k (stray->codec),
                                                   .tag_bytes = ecfs_tag_bytes_under (&row->seal)},
                                        .object = row->uuid,
                                        .stripes = stripes,
                                        .trouble = note_trouble};
    EcfsSealKeys *keys;
    if (!ecfs_seal_open (&row->seal, self->keys, &row->uuid, &keys, error))
        return false;
    params.keys = keys;
    ecfs_read_policy_init (&params.policy);
    set_stripes (self, row, stripes);
    return ecfs_layout_valid (&params.layout) ? check (self, path, &params, row, error)
                                              : ecfs_fail (error, EBADMSG, "its sizes make no sense");
}
