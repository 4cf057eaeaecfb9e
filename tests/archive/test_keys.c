/* How far an archive is on its way to a key, by its catalog and its directory. */
#include "archive/keys.h"
#include "catalog/journal_rows.h"

#include <glib/gstdio.h>

typedef struct KeysFixture {
    char *directory;
    EcfsCatalog *catalog;
    EcfsKeyRing *keys;
} KeysFixture;

static void set_up (KeysFixture *fixture, gconstpointer data)
{
    (void) data;
    EcfsUuid archive = ecfs_uuid_new ();
    GError *error = NULL;
    fixture->directory = g_dir_make_tmp ("ecfs-keys-XXXXXX", &error);
    g_assert_no_error (error);
    g_autofree char *path = g_build_filename (fixture->directory, "catalog.sqlite", NULL);
    (void) ecfs_catalog_create (path, &archive, &error);
    g_assert_no_error (error);
    fixture->catalog = ecfs_catalog_open (path, 0, &error);
    g_assert_no_error (error);
    fixture->keys = ecfs_key_ring_new (&archive);
    (void) ecfs_keys_write (fixture->directory, fixture->keys, &error);
    g_assert_no_error (error);
}

static void tear_down (KeysFixture *fixture, gconstpointer data)
{
    (void) data;
    GError *error = NULL;
    (void) ecfs_catalog_close (fixture->catalog, &error);
    g_assert_no_error (error);
    ecfs_key_ring_unref (fixture->keys);
    g_autoptr (GDir) listing = g_dir_open (fixture->directory, 0, NULL);
    for (const char *name; (name = g_dir_read_name (listing)) != NULL;) {
        g_autofree char *path = g_build_filename (fixture->directory, name, NULL);
        (void) g_remove (path);
    }
    (void) g_rmdir (fixture->directory);
    g_free (fixture->directory);
}

/* What one gets who opens it for this: the keys (1), none (0), or an error. */
static int loaded (KeysFixture *fixture, EcfsKeysFor what)
{
    g_autoptr (EcfsKeyRing) keys = NULL;
    g_autoptr (GError) error = NULL;
    if (!ecfs_keys_load (fixture->directory, fixture->catalog, what, &keys, &error))
        return -error->code;
    return keys != NULL;
}

static EcfsKeysState state (KeysFixture *fixture)
{
    EcfsKeysState state;
    GError *error = NULL;
    (void) ecfs_keys_state (fixture->catalog, &state, &error);
    g_assert_no_error (error);
    return state;
}

static void test_steps (KeysFixture *fixture, gconstpointer data)
{
    (void) data;
    GError *error = NULL;
    g_assert_cmpint (state (fixture), ==, ECFS_KEYS_NONE);
    g_assert_cmpint (loaded (fixture, ECFS_KEYS_FOR_READING), ==, 0);
    g_assert_cmpint (loaded (fixture, ECFS_KEYS_FOR_WRITING), ==, 0);
    g_assert_cmpint (loaded (fixture, ECFS_KEYS_FOR_INIT), ==, 1);
    (void) ecfs_keys_begin (fixture->catalog, fixture->keys, &error);
    g_assert_no_error (error);
    g_assert_cmpint (state (fixture), ==, ECFS_KEYS_BEGUN);
    g_assert_cmpint (loaded (fixture, ECFS_KEYS_FOR_READING), ==, 0);
    g_assert_cmpint (loaded (fixture, ECFS_KEYS_FOR_WRITING), ==, -EBUSY);
    g_assert_cmpint (loaded (fixture, ECFS_KEYS_FOR_INIT), ==, 1);
    (void) ecfs_keys_keep_id (fixture->catalog, fixture->keys, &error);
    g_assert_no_error (error);
    g_assert_cmpint (state (fixture), ==, ECFS_KEYS_ACTIVE);
    g_assert_cmpint (loaded (fixture, ECFS_KEYS_FOR_READING), ==, 1);
    g_assert_cmpint (loaded (fixture, ECFS_KEYS_FOR_WRITING), ==, 1);
}

/* Another key than the one that was begun with would open nothing of what is at the endpoints. */
static void test_other_key (KeysFixture *fixture, gconstpointer data)
{
    (void) data;
    GError *error = NULL;
    (void) ecfs_keys_begin (fixture->catalog, fixture->keys, &error);
    g_assert_no_error (error);
    g_autoptr (EcfsKeyRing) other = ecfs_key_ring_new (ecfs_catalog_archive (fixture->catalog));
    (void) ecfs_keys_write (fixture->directory, other, &error);
    g_assert_no_error (error);
    g_assert_cmpint (loaded (fixture, ECFS_KEYS_FOR_INIT), ==, -ENOKEY);
    g_autofree char *path = g_build_filename (fixture->directory, ECFS_KEYS_NAME, NULL);
    (void) g_remove (path);
    g_assert_cmpint (loaded (fixture, ECFS_KEYS_FOR_INIT), ==, -ENOKEY);
    g_assert_cmpint (loaded (fixture, ECFS_KEYS_FOR_READING), ==, 0);
}

static void test_end (KeysFixture *fixture, gconstpointer data)
{
    (void) data;
    GError *error = NULL;
    EcfsOpenEnd end;
    g_assert_true (ecfs_keys_end (fixture->catalog, &end, &error));
    g_assert_cmpuint (end.epoch, ==, 0);
    g_assert_true (ecfs_keys_note_end (fixture->catalog, &(EcfsOpenEnd){.epoch = 3, .sequence = INT64_MAX}, &error));
    g_assert_true (ecfs_keys_end (fixture->catalog, &end, &error));
    g_assert_cmpuint (end.epoch, ==, 3);
    g_assert_cmpuint (end.sequence, ==, INT64_MAX);
    static const char *const wrong[] = {"", "3", "0 1", "3 -1", "3 1 2", "x y", "4294967296 1"};
    for (size_t i = 0; i < G_N_ELEMENTS (wrong); i++) {
        g_assert_true (ecfs_catalog_keep_setting (fixture->catalog, "open_journal_end", wrong[i], NULL));
        g_assert_false (ecfs_keys_end (fixture->catalog, &end, &error));
        g_assert_error (error, ECFS_ERROR, EBADMSG);
        g_clear_error (&error);
    }
}

static void test_open_files (KeysFixture *fixture, gconstpointer data)
{
    (void) data;
    EcfsUuid one = ecfs_uuid_new (), other = ecfs_uuid_new ();
    uint64_t n;
    g_assert_true (ecfs_keys_open (fixture->catalog, &one, &n, NULL));
    g_assert_cmpuint (n, ==, 0);
    static const uint64_t counts[] = {G_MAXUINT64, 7, 0};
    for (size_t i = 0; i < G_N_ELEMENTS (counts); i++) {
        g_assert_true (ecfs_keys_note_open (fixture->catalog, &one, counts[i], NULL));
        g_assert_true (ecfs_keys_open (fixture->catalog, &one, &n, NULL));
        g_assert_cmpuint (n, ==, counts[i]);
    }
    g_assert_true (ecfs_keys_open (fixture->catalog, &other, &n, NULL));
    g_assert_cmpuint (n, ==, 0);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add ("/keys/an-archive-gets-one-in-steps", KeysFixture, NULL, set_up, test_steps, tear_down);
    g_test_add ("/keys/what-was-begun-goes-on-with-the-same", KeysFixture, NULL, set_up, test_other_key, tear_down);
    g_test_add ("/keys/where-the-open-journal-ends", KeysFixture, NULL, set_up, test_end, tear_down);
    g_test_add ("/keys/how-many-files-lie-open", KeysFixture, NULL, set_up, test_open_files, tear_down);
    return g_test_run ();
}
