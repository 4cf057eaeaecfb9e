#include "catalog/lost.h"

#define LOST_AGAIN_NS INT64_C (3600000000000)
#define LOST_MOST     1000000 /* files that are remembered */

bool ecfs_lost_add (EcfsCatalog *self, uint64_t ino, int64_t age_ns)
{
    if (self->lost == NULL) {
        self->lost = g_hash_table_new (NULL, NULL);
        self->lost_now = g_array_new (FALSE, FALSE, sizeof ino);
    }
    if (age_ns - self->lost_from_ns > LOST_AGAIN_NS || g_hash_table_size (self->lost) >= LOST_MOST) {
        g_hash_table_remove_all (self->lost);
        self->lost_from_ns = age_ns;
    }
    if (!g_hash_table_add (self->lost, GSIZE_TO_POINTER (ino)))
        return false;
    g_array_append_val (self->lost_now, ino);
    return true;
}

guint ecfs_lost_count (const EcfsCatalog *self)
{
    return self->lost_now == NULL ? 0 : self->lost_now->len;
}

void ecfs_lost_forget (EcfsCatalog *self, guint n)
{
    for (guint i = n; i < ecfs_lost_count (self); i++)
        (void) g_hash_table_remove (self->lost, /* all may have been forgotten meanwhile */
                                    GSIZE_TO_POINTER (g_array_index (self->lost_now, uint64_t, i)));
    if (n < ecfs_lost_count (self))
        g_array_set_size (self->lost_now, n);
}

void ecfs_lost_keep (EcfsCatalog *self)
{
    if (self->lost_now != NULL)
        g_array_set_size (self->lost_now, 0);
}
