#include "catalog/lock_ranges.h"

GArray *ecfs_lock_ranges_new (void)
{
    return g_array_new (FALSE, FALSE, sizeof (EcfsLockRange));
}

GArray *ecfs_lock_ranges_copy (const GArray *self)
{
    GArray *copy = ecfs_lock_ranges_new ();
    if (self->len > 0)
        g_array_append_vals (copy, self->data, self->len);
    return copy;
}

static const EcfsLockRange *at (const GArray *self, guint i)
{
    return &g_array_index (self, EcfsLockRange, i);
}

/* Behind the others; joined with the last where they are one. */
static void append (GArray *self, int64_t first, int64_t last, bool exclusive)
{
    EcfsLockRange *before = self->len == 0 ? NULL : &g_array_index (self, EcfsLockRange, self->len - 1);
    const EcfsLockRange range = {.first = first, .last = last, .exclusive = exclusive};
    if (first > last)
        return;
    if (before != NULL && before->exclusive == exclusive && before->last == first - 1) /* first is behind it, so > 0 */
        before->last = last;
    else
        g_array_append_val (self, range);
}

void ecfs_lock_ranges_set (GArray *self, int64_t first, int64_t last, EcfsLockType type)
{
    g_autoptr (GArray) before = ecfs_lock_ranges_copy (self);
    guint i = 0;
    g_array_set_size (self, 0);
    for (; i < before->len && at (before, i)->first < first; i++)
        append (self, at (before, i)->first, MIN (at (before, i)->last, first - 1), at (before, i)->exclusive);
    if (type != ECFS_LOCK_NONE)
        append (self, first, last, type == ECFS_LOCK_EXCLUSIVE);
    for (i = i > 0 ? i - 1 : 0; last < ECFS_LOCK_END && i < before->len; i++) /* that one may end behind it, too */
        append (self, MAX (at (before, i)->first, last + 1), at (before, i)->last, at (before, i)->exclusive);
}

void ecfs_lock_ranges_raise (GArray *self, int64_t first, int64_t last, EcfsLockType type)
{
    g_autoptr (GArray) before = ecfs_lock_ranges_copy (self);
    if (type == ECFS_LOCK_NONE)
        return;
    ecfs_lock_ranges_set (self, first, last, type);
    for (guint i = 0; i < before->len; i++)
        if (at (before, i)->exclusive)
            ecfs_lock_ranges_set (self, at (before, i)->first, at (before, i)->last, ECFS_LOCK_EXCLUSIVE);
}

bool ecfs_lock_ranges_equal (const GArray *a, const GArray *b)
{
    if (a->len != b->len)
        return false;
    for (guint i = 0; i < a->len; i++)
        if (at (a, i)->first != at (b, i)->first || at (a, i)->last != at (b, i)->last ||
            at (a, i)->exclusive != at (b, i)->exclusive)
            return false;
    return true;
}

const EcfsLockRange *ecfs_lock_ranges_find (const GArray *self, int64_t first, int64_t last, bool exclusive)
{
    for (guint i = 0; i < self->len; i++)
        if (at (self, i)->first <= last && at (self, i)->last >= first && (exclusive || at (self, i)->exclusive))
            return at (self, i);
    return NULL;
}

bool ecfs_lock_ranges_loses (const GArray *self, const GArray *other)
{
    for (guint i = 0; i < self->len; i++) {
        g_autoptr (GArray) with = ecfs_lock_ranges_copy (other);
        if (!at (self, i)->exclusive)
            continue;
        ecfs_lock_ranges_set (with, at (self, i)->first, at (self, i)->last, ECFS_LOCK_EXCLUSIVE);
        if (!ecfs_lock_ranges_equal (with, other))
            return true;
    }
    return false;
}
