#include "verbs/kinds.h"

#include <string.h>

GHashTable *ecfs_kinds_new (void)
{
    return g_hash_table_new_full (g_bytes_hash, g_bytes_equal, (GDestroyNotify) g_bytes_unref, g_free);
}

void ecfs_kinds_add (GHashTable *kinds, const EcfsKind *kind)
{
    size_t key[1 + ECFS_CODEC_MAX_N] = {(size_t) kind->codec}; /* the archive has one of each */
    unsigned n = ecfs_codec_n (kind->codec);
    for (unsigned i = 0; i < n; i++)
        key[1 + i] = kind->present[i] ? kind->holder[i] : SIZE_MAX;
    g_autoptr (GBytes) bytes = g_bytes_new_static (key, (1 + n) * sizeof *key);
    EcfsKind *known = g_hash_table_lookup (kinds, bytes);
    if (known != NULL)
        known->n_objects += kind->n_objects;
    else
        g_hash_table_insert (kinds, g_bytes_new (key, (1 + n) * sizeof *key), g_memdup2 (kind, sizeof *kind));
}

bool ecfs_kind_survives (const EcfsKind *kind, const size_t *set, unsigned size)
{
    bool present[ECFS_CODEC_MAX_N];
    memcpy (present, kind->present, sizeof present);
    for (unsigned i = 0; i < ecfs_codec_n (kind->codec); i++)
        for (unsigned j = 0; j < size; j++)
            present[i] = present[i] && kind->holder[i] != set[j];
    return ecfs_codec_decodable (kind->codec, present);
}
