#include "catalog/lock_ranges.h"

#include <string.h>

#define N_BYTES 24

static const EcfsLockRange *range_at (const GArray *ranges, guint i)
{
    return &g_array_index (ranges, EcfsLockRange, i);
}

static void assert_range (const GArray *ranges, guint i, int64_t first, int64_t last, bool exclusive)
{
    g_assert_cmpuint (i, <, ranges->len);
    g_assert_cmpint (range_at (ranges, i)->first, ==, first);
    g_assert_cmpint (range_at (ranges, i)->last, ==, last);
    g_assert_true (range_at (ranges, i)->exclusive == exclusive);
}

/* A hole in the middle makes two of one, and filling it makes one of three. */
static void test_split_and_join (void)
{
    g_autoptr (GArray) ranges = ecfs_lock_ranges_new ();
    ecfs_lock_ranges_set (ranges, 0, ECFS_LOCK_END, ECFS_LOCK_EXCLUSIVE);
    ecfs_lock_ranges_set (ranges, 10, 19, ECFS_LOCK_NONE);
    g_assert_cmpuint (ranges->len, ==, 2);
    assert_range (ranges, 0, 0, 9, true);
    assert_range (ranges, 1, 20, ECFS_LOCK_END, true);
    ecfs_lock_ranges_set (ranges, 10, 19, ECFS_LOCK_SHARED);
    g_assert_cmpuint (ranges->len, ==, 3);
    ecfs_lock_ranges_set (ranges, 10, 19, ECFS_LOCK_EXCLUSIVE);
    g_assert_cmpuint (ranges->len, ==, 1);
    assert_range (ranges, 0, 0, ECFS_LOCK_END, true);
    ecfs_lock_ranges_set (ranges, ECFS_LOCK_END, ECFS_LOCK_END, ECFS_LOCK_NONE);
    assert_range (ranges, 0, 0, ECFS_LOCK_END - 1, true);
    ecfs_lock_ranges_set (ranges, 0, ECFS_LOCK_END, ECFS_LOCK_NONE);
    g_assert_cmpuint (ranges->len, ==, 0);
}

/* Bytes, of which the last stands for all up to the end. */
static int64_t end_of (unsigned i)
{
    return i == N_BYTES - 1 ? ECFS_LOCK_END : (int64_t) i;
}

static void assert_same (const GArray *ranges, const unsigned char *model)
{
    unsigned char bytes[N_BYTES] = {0};
    for (guint i = 0; i < ranges->len; i++) {
        const EcfsLockRange *range = range_at (ranges, i);
        g_assert_cmpint (range->first, <=, range->last);
        if (i > 0) { /* in order, and no two that are one */
            g_assert_cmpint (range->first, >, range_at (ranges, i - 1)->last);
            g_assert_true (range->first > range_at (ranges, i - 1)->last + 1 ||
                           range->exclusive != range_at (ranges, i - 1)->exclusive);
        }
        for (int64_t byte = range->first; byte < N_BYTES && byte <= range->last; byte++)
            bytes[byte] = range->exclusive ? ECFS_LOCK_EXCLUSIVE : ECFS_LOCK_SHARED;
        g_assert_true (range->last < N_BYTES - 1 || range->last == ECFS_LOCK_END);
    }
    g_assert_cmpmem (bytes, sizeof bytes, model, N_BYTES);
}

static bool model_conflicts (const unsigned char *model, unsigned first, unsigned last, bool exclusive)
{
    for (unsigned i = first; i <= last; i++)
        if (model[i] == ECFS_LOCK_EXCLUSIVE || (exclusive && model[i] == ECFS_LOCK_SHARED))
            return true;
    return false;
}

/* Random requests against an array with the state of each byte. */
static void test_as_bytes (void)
{
    g_autoptr (GArray) ranges = ecfs_lock_ranges_new ();
    unsigned char model[N_BYTES] = {0};
    for (unsigned round = 0; round < 200000; round++) {
        unsigned first = (unsigned) g_test_rand_int_range (0, N_BYTES);
        unsigned last = (unsigned) g_test_rand_int_range ((gint32) first, N_BYTES);
        EcfsLockType type = (EcfsLockType) g_test_rand_int_range (ECFS_LOCK_NONE, ECFS_LOCK_EXCLUSIVE + 1);
        bool raises = g_test_rand_bit () == 1, loses = false;
        unsigned char before[N_BYTES];
        g_autoptr (GArray) old = ecfs_lock_ranges_copy (ranges);
        memcpy (before, model, sizeof before);
        g_assert_true ((ecfs_lock_ranges_find (ranges, first, end_of (last), type == ECFS_LOCK_EXCLUSIVE) != NULL) ==
                       model_conflicts (model, first, last, type == ECFS_LOCK_EXCLUSIVE));
        if (raises)
            ecfs_lock_ranges_raise (ranges, first, end_of (last), type);
        else
            ecfs_lock_ranges_set (ranges, first, end_of (last), type);
        for (unsigned i = first; i <= last; i++)
            model[i] = raises ? MAX (model[i], (unsigned char) type) : (unsigned char) type;
        for (unsigned i = 0; i < N_BYTES; i++)
            loses = loses || (before[i] == ECFS_LOCK_EXCLUSIVE && model[i] != ECFS_LOCK_EXCLUSIVE);
        assert_same (ranges, model);
        g_assert_true (ecfs_lock_ranges_loses (old, ranges) == loses);
        g_assert_true (ecfs_lock_ranges_equal (old, ranges) == (memcmp (before, model, sizeof before) == 0));
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/lock-ranges/split-and-join", test_split_and_join);
    g_test_add_func ("/lock-ranges/are-what-an-array-of-bytes-is", test_as_bytes);
    return g_test_run ();
}
