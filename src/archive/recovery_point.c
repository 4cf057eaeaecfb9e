/* How much of the journal is safe without this machine, and how much may be lost of what brings the key back. */
#include "archive/archive_priv.h"
#include "archive/key_losses.h"
#include "util/lock.h"

#define FIRST_US (3 * G_USEC_PER_SEC) /* for endpoints to tell what they know, … */
#define SURE_US  300000               /* … when enough have */

bool ecfs_archive_look_for_codes (EcfsArchive *self, GError **error)
{
    g_autoptr (GPtrArray) codes = ecfs_catalog_codes_in_use (self->catalog, error);
    if (codes == NULL)
        return false;
    for (guint i = 0; i < codes->len; i++) {
        g_autoptr (GError) reason = NULL;
        const char *code = g_ptr_array_index (codes, i);
        if (ecfs_archive_codec (self, code, &reason) == NULL)
            g_warning ("%s: the code %s cannot be used: %s", self->directory, code, reason->message);
    }
    atomic_store (&self->knows_codes, true);
    return true;
}

bool ecfs_archive_load_codes (EcfsArchive *self, GError **error)
{
    return atomic_load (&self->knows_codes) || ecfs_archive_look_for_codes (self, error);
}

unsigned ecfs_archive_journal_copies (EcfsArchive *self)
{
    GHashTableIter iter;
    gpointer codec;
    unsigned tolerance = 0, n_active = 0;
    ecfs_mutex_lock (&self->lock);
    g_hash_table_iter_init (&iter, self->codecs);
    while (g_hash_table_iter_next (&iter, NULL, &codec))
        tolerance = MAX (tolerance, ecfs_codec_tolerance (codec));
    ecfs_mutex_unlock (&self->lock);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self); i++)
        n_active += ecfs_archive_has_journal (&self->endpoints[i]);
    return CLAMP (tolerance + 1, 1, MAX (n_active, 1));
}

bool ecfs_archive_has_journal (const EcfsArchiveEndpoint *endpoint)
{
    return endpoint->endpoint != NULL && endpoint->state == ECFS_ENDPOINT_ACTIVE;
}

bool ecfs_archive_confirm_journal (EcfsArchive *self, GError **error)
{
    int64_t now_us = ecfs_now_us ();
    size_t n_endpoints = ecfs_archive_n_endpoints (self);
    uint64_t sequence = ecfs_catalog_sequence (self->catalog);
    g_autofree bool *stored = g_new0 (bool, n_endpoints + 1);
    g_autoptr (GArray) places = ecfs_catalog_journal_places (self->catalog, error);
    if (places == NULL || !ecfs_archive_load_codes (self, error))
        return false;
    for (guint i = 0; i < places->len; i++) {
        const EcfsJournalPlace *place = &g_array_index (places, EcfsJournalPlace, i);
        for (size_t j = 0; j < n_endpoints; j++)
            if (self->endpoints[j].id == place->endpoint && place->sequence >= sequence)
                stored[j] =
                    ecfs_archive_has_journal (&self->endpoints[j]) && !atomic_load (&self->endpoints[j].lacks_journal);
    }
    if (self->lineage == NULL)
        self->lineage = ecfs_lineage_new (self);
    ecfs_lineage_ask (self->lineage);
    return ecfs_lineage_await (self->lineage, now_us + FIRST_US, now_us + SURE_US, error) &&
           ecfs_lineage_confirm_stored (self->lineage, stored, n_endpoints, NULL, NULL, error);
}

bool ecfs_archive_confirm_newest (EcfsArchive *self, bool (*goes_on) (void *user), void *user, GError **error)
{
    return self->lineage == NULL || ecfs_lineage_confirm_newest (self->lineage, goes_on, user, error);
}

void ecfs_archive_reconsider_hold (EcfsArchive *self, bool (*goes_on) (void *user), void *user)
{
    if (self->lineage != NULL)
        ecfs_lineage_reconsider_hold (self->lineage, goes_on, user);
}

static int newest_first (const void *a, const void *b)
{
    const EcfsJournalPlace *left = a, *right = b;
    return (left->sequence < right->sequence) - (left->sequence > right->sequence);
}

bool ecfs_archive_recovery_point (EcfsArchive *self, EcfsRecoveryPoint *ret_point, GError **error)
{
    uint64_t sequence = ecfs_catalog_sequence (self->catalog);
    g_autoptr (GArray) places = ecfs_catalog_journal_places (self->catalog, error);
    if (places == NULL || !ecfs_archive_load_codes (self, error))
        return false;
    for (guint i = places->len; i-- > 0;) {
        const EcfsArchiveEndpoint *endpoint =
            ecfs_archive_endpoint_by_id (self, g_array_index (places, EcfsJournalPlace, i).endpoint);
        if (endpoint == NULL || !ecfs_archive_has_journal (endpoint) || atomic_load (&endpoint->lacks_journal) ||
            (self->lineage != NULL && ecfs_lineage_discounts (self->lineage, ecfs_archive_position (self, endpoint))))
            g_array_remove_index_fast (places, i);
    }
    EcfsRecoveryPoint point = {.sequence = sequence, .n_copies = ecfs_archive_journal_copies (self)};
    g_array_sort (places, newest_first);
    if (places->len >= point.n_copies) {
        const EcfsJournalPlace *place = &g_array_index (places, EcfsJournalPlace, point.n_copies - 1);
        point.stored = place->sequence;
        point.time_ns = place->time_ns;
    }
    *ret_point = point;
    return true;
}

/* What files survive, and so the key has to */

/* The zones of endpoints that count, borrowed; g_ptr_array_unref (). */
static GPtrArray *zones_of (EcfsArchive *self, const EcfsArchiveEndpoint *without)
{
    GPtrArray *zones = g_ptr_array_new ();
    size_t n_endpoints = self->n_endpoints;
    for (size_t i = 0; i < n_endpoints; i++)
        if (&self->endpoints[i] != without && ecfs_archive_endpoint_counts (&self->endpoints[i]))
            g_ptr_array_add (zones, (char *) self->endpoints[i].zone);
    return zones;
}

static unsigned count_zones (const GPtrArray *zones)
{
    g_autoptr (GHashTable) names = g_hash_table_new (g_str_hash, g_str_equal);
    for (guint i = 0; i < zones->len; i++)
        g_hash_table_add (names, g_ptr_array_index (zones, i));
    return g_hash_table_size (names);
}

static bool is_small_code (const GPtrArray *codecs, const EcfsCodec *codec)
{
    for (guint i = 0; i < codecs->len; i++) {
        const EcfsCodec *other = g_ptr_array_index (codecs, i);
        g_autofree char *small = ecfs_codec_small_code (other);
        if (strcmp (small, ecfs_codec_code (codec)) == 0 && strcmp (small, ecfs_codec_code (other)) != 0)
            return true;
    }
    return false;
}

void ecfs_archive_losses (EcfsArchive *self, const EcfsArchiveEndpoint *without, EcfsKeyLosses *ret_losses)
{
    EcfsKeyLosses losses = {.zones = 0};
    GHashTableIter iter;
    gpointer codec;
    g_autoptr (GPtrArray) zones = zones_of (self, without);
    g_autoptr (GPtrArray) codecs = g_ptr_array_new ();
    ecfs_mutex_lock (&self->lock);
    g_hash_table_iter_init (&iter, self->codecs);
    while (g_hash_table_iter_next (&iter, NULL, &codec)) /* kept until free */
        g_ptr_array_add (codecs, codec);
    ecfs_mutex_unlock (&self->lock);
    for (guint i = 0; i < codecs->len; i++)
        if (!is_small_code (codecs, g_ptr_array_index (codecs, i)))
            ecfs_key_losses_add (&losses, (const char *const *) zones->pdata, zones->len, self->config->allow_double,
                                 g_ptr_array_index (codecs, i));
    losses.zones = MIN (losses.zones, MAX (count_zones (zones), 1) - 1);
    losses.endpoints = MIN (losses.endpoints, MAX (zones->len, 1) - 1);
    *ret_losses = losses;
}

/* Codes that are allowed where the key is shared */

bool ecfs_archive_allows (EcfsArchive *self, const EcfsCodec *codec, GError **error)
{
    EcfsKeySlotsTold told;
    unsigned threshold = self->shares == NULL ? 0 : ecfs_key_shares_threshold (self->shares);
    if (threshold == 0)
        return true;
    if (!ecfs_key_slots_told (self->catalog, &told, error))
        return false;
    g_autoptr (GPtrArray) zones = zones_of (self, NULL);
    return ecfs_key_allows (&told, threshold, (const char *const *) zones->pdata, zones->len,
                            self->config->allow_double, codec, error);
}

bool ecfs_archive_settle_codes (EcfsArchive *self, GError **error)
{
    EcfsKeySlotsTold told;
    unsigned threshold = self->shares == NULL ? 0 : ecfs_key_shares_threshold (self->shares);
    const EcfsCodec *codec = threshold == 0 ? NULL : ecfs_archive_codec (self, self->config->code, error);
    if (threshold == 0)
        return true;
    if (codec == NULL || !ecfs_key_slots_told (self->catalog, &told, error))
        return false;
    return told.stripes > 0 ||
           ecfs_key_shares_note_stripes (self->catalog, MAX (threshold - 1, ecfs_codec_tolerance (codec)), error);
}
