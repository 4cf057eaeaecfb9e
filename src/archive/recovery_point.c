/* How much of the journal is safe without this machine. */
#include "archive/archive_priv.h"
#include "util/lock.h"

#define FIRST_US (3 * G_USEC_PER_SEC) /* for endpoints to tell what they know, … */
#define SURE_US  300000               /* … when enough have */

bool ecfs_archive_load_codes (EcfsArchive *self, GError **error)
{
    if (atomic_load (&self->knows_codes))
        return true;
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
    size_t n_good, n_endpoints = ecfs_archive_n_endpoints (self);
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
           ecfs_lineage_confirm_stored (self->lineage, stored, n_endpoints, NULL, NULL, &n_good, error);
}

bool ecfs_archive_confirm_newest (EcfsArchive *self, bool (*goes_on) (void *user), void *user, GError **error)
{
    return self->lineage == NULL || ecfs_lineage_confirm_newest (self->lineage, goes_on, user, error);
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
