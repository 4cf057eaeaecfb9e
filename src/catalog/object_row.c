/* Descriptors as values. */
#include "catalog/db.h"

EcfsObjectRow *ecfs_object_row_new (void)
{
    EcfsObjectRow *row = g_new0 (EcfsObjectRow, 1);
    row->stripes = g_array_new (false, true, sizeof (EcfsStripeRow));
    return row;
}

EcfsObjectRow *ecfs_object_row_copy (const EcfsObjectRow *row)
{
    EcfsObjectRow *copy = g_memdup2 (row, sizeof *row);
    copy->code = g_strdup (row->code);
    copy->stripes = g_array_copy (row->stripes);
    return copy;
}

bool ecfs_object_same_stripes (const EcfsObjectRow *a, const EcfsObjectRow *b)
{
    bool same = a->stripes->len == b->stripes->len && strcmp (a->code, b->code) == 0;
    for (guint i = 0; same && i < a->stripes->len; i++) {
        const EcfsStripeRow *x = &g_array_index (a->stripes, EcfsStripeRow, i);
        const EcfsStripeRow *y = &g_array_index (b->stripes, EcfsStripeRow, i);
        same = x->index == y->index && x->instance == y->instance && x->endpoint == y->endpoint;
    }
    return same;
}

bool ecfs_object_same_content (const EcfsObjectRow *a, const EcfsObjectRow *b)
{
    const bool a_clear = a->seal.kind == ECFS_SEAL_NONE, b_clear = b->seal.kind == ECFS_SEAL_NONE;
    const bool both_have = a->has_sha256 && b->has_sha256;
    if (a->size != b->size || (both_have && memcmp (a->sha256, b->sha256, ECFS_SHA256_SIZE) != 0))
        return false;
    if (a_clear && b_clear)
        return memcmp (a->digest, b->digest, ECFS_DIGEST_SIZE) == 0;
    return both_have || a_clear == b_clear; /* each block of what is under a key was verified as it was read */
}

void ecfs_object_row_free (EcfsObjectRow *row)
{
    if (row == NULL)
        return;
    g_free (row->code);
    g_clear_pointer (&row->stripes, g_array_unref);
    g_free (row);
}
