#include "fs/fs_priv.h"

#include <stdio.h>

static GArray *extents_of (const uint64_t *pairs, size_t n_pairs)
{
    GArray *extents = g_array_new (FALSE, FALSE, sizeof (EcfsExtent));
    for (size_t i = 0; i < n_pairs; i++) {
        EcfsExtent extent = {.offset = pairs[2 * i], .length = pairs[2 * i + 1]};
        g_array_append_val (extents, extent);
    }
    return extents;
}

/* Two extents side by side, a hole, one more, a hole to the end at 100. */
static void test_seek (void)
{
    static const uint64_t pairs[] = {10, 10, 20, 5, 50, 10};
    static const struct {
        uint64_t offset, data, hole;
    } cases[] = {{0, 10, 0},
                 {9, 10, 9},
                 {10, 10, 25},
                 {19, 19, 25},
                 {20, 20, 25},
                 {24, 24, 25},
                 {25, 50, 25},
                 {49, 50, 49},
                 {50, 50, 60},
                 {59, 59, 60},
                 {60, UINT64_MAX, 60},
                 {99, UINT64_MAX, 99},
                 {100, UINT64_MAX, UINT64_MAX},
                 {200, UINT64_MAX, UINT64_MAX}};
    g_autoptr (GArray) extents = extents_of (pairs, 3);
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        g_assert_cmpuint (ecfs_fs_seek (extents, 100, cases[i].offset, SEEK_DATA), ==, cases[i].data);
        g_assert_cmpuint (ecfs_fs_seek (extents, 100, cases[i].offset, SEEK_HOLE), ==, cases[i].hole);
    }
}

static void test_ends (void)
{
    static const uint64_t whole[] = {0, 100};
    g_autoptr (GArray) extents = extents_of (whole, 1);
    g_autoptr (GArray) nothing = extents_of (NULL, 0);
    g_assert_cmpuint (ecfs_fs_seek (extents, 100, 0, SEEK_HOLE), ==, 100); /* the end counts as a hole */
    g_assert_cmpuint (ecfs_fs_seek (extents, 100, 99, SEEK_DATA), ==, 99);
    g_assert_cmpuint (ecfs_fs_seek (nothing, 100, 5, SEEK_HOLE), ==, 5);
    g_assert_cmpuint (ecfs_fs_seek (nothing, 100, 5, SEEK_DATA), ==, UINT64_MAX);
    g_assert_cmpuint (ecfs_fs_seek (nothing, 0, 0, SEEK_HOLE), ==, UINT64_MAX);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/file/data-and-holes-are-found-between-extents", test_seek);
    g_test_add_func ("/file/data-and-holes-are-found-at-the-ends", test_ends);
    return g_test_run ();
}
