/* Marks: what was there keeps waiting until the last mark that needs it is gone. */
#include "catalog/marks.h"
#include "fixture.h"

static guint n_due (Fixture *f)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) due =
        ecfs_catalog_deletions (f->catalog, f->endpoints[0], &(EcfsDeletionWaits){.removed_ns = 0}, NULL, 100, &error);
    g_assert_no_error (error);
    return due->len;
}

static void settle (Fixture *f)
{
    int64_t after = 0;
    for (bool more = true; more;)
        OK (e, ecfs_catalog_marks_settle (f->catalog, &after, &more, &e));
}

static uint64_t store (Fixture *f, const char *name)
{
    uint64_t ino = make_file (f, ECFS_ROOT_INO, name);
    g_autoptr (EcfsObjectRow) object = new_object (f, "rs:4+2", 1000, 6);
    publish_one (f, ino, object);
    return ino;
}

static void overwrite (Fixture *f, uint64_t ino)
{
    g_autoptr (EcfsObjectRow) object = new_object (f, "rs:4+2", 2000, 6);
    publish_one (f, ino, object);
}

static uint64_t bytes_of (Fixture *f, const char *name)
{
    EcfsMark mark;
    uint64_t bytes;
    OK (e, ecfs_catalog_mark_find (f->catalog, name, &mark, &e));
    OK (e, ecfs_catalog_mark_bytes (f->catalog, &mark, &bytes, &e));
    return bytes;
}

static void test_keeps (void)
{
    Fixture f;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    uint64_t gone = store (&f, "gone before"), old = store (&f, "old");
    overwrite (&f, gone);
    g_assert_cmpuint (n_due (&f), ==, 1);
    OK (e, ecfs_catalog_mark_add (f.catalog, "first", &e));
    overwrite (&f, old); /* which "first" needs */
    overwrite (&f, old); /* … and this it does not */
    g_assert_cmpuint (n_due (&f), ==, 2);
    OK (e, ecfs_catalog_mark_add (f.catalog, "second", &e));
    overwrite (&f, old);
    overwrite (&f, gone); /* both need that */
    fixture_reopen (&f);
    settle (&f);
    g_assert_cmpuint (n_due (&f), ==, 2);
    g_assert_cmpuint (bytes_of (&f, "first"), ==, 6 * (350 + 600));
    g_assert_cmpuint (bytes_of (&f, "second"), ==, 6 * (600 + 600));
    OK (e, ecfs_catalog_mark_remove (f.catalog, "first", &e));
    settle (&f);
    g_assert_cmpuint (n_due (&f), ==, 3);
    g_assert_cmpuint (bytes_of (&f, "second"), ==, 6 * (600 + 600));
    OK (e, ecfs_catalog_mark_remove (f.catalog, "second", &e));
    settle (&f);
    g_assert_cmpuint (n_due (&f), ==, 5);
    fixture_clear (&f);
}

static void test_names (void)
{
    static const char *const bad[] = {"",    ".hidden", "-x",         "a/b",  "a b",     "2d",
                                      "90m", "12",      "2026-11-25", "a\nb", "\xc3\xa4"};
    Fixture f;
    EcfsMark mark;
    g_autofree char *longest = g_strnfill (ECFS_MARK_MAX, 'x'), *longer = g_strnfill (ECFS_MARK_MAX + 1, 'x');
    fixture_init (&f);
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        g_assert_cmpint (CODE (e, ecfs_catalog_mark_add (f.catalog, bad[i], &e)), ==, EINVAL);
    g_assert_cmpint (CODE (e, ecfs_catalog_mark_add (f.catalog, longer, &e)), ==, EINVAL);
    OK (e, ecfs_catalog_mark_add (f.catalog, longest, &e));
    OK (e, ecfs_catalog_mark_add (f.catalog, "2026-11-25_before", &e));
    g_assert_cmpint (CODE (e, ecfs_catalog_mark_add (f.catalog, longest, &e)), ==, EEXIST);
    g_assert_cmpint (CODE (e, ecfs_catalog_mark_remove (f.catalog, "another", &e)), ==, ENOENT);
    OK (e, ecfs_catalog_mark_find (f.catalog, "2026-11-25_before", &mark, &e));
    g_assert_cmpuint (mark.sequence, ==, ecfs_catalog_sequence (f.catalog));
    g_assert_cmpuint (mark.epoch, ==, ecfs_catalog_epoch (f.catalog));
    fixture_clear (&f);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/marks/what-was-there-is-kept", test_keeps);
    g_test_add_func ("/marks/names", test_names);
    return g_test_run ();
}
