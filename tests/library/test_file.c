/* Files without a mount, by the shared library and its header alone. */
#include "library_fixture.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGE (5 * 1024 * 1024 + 77) /* several segments */
#define PIECE 70001

static uint8_t *pattern (size_t size, uint8_t seed)
{
    uint8_t *bytes = g_malloc (size + 1);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t) (i * 31 + i / 251 + seed);
    return bytes;
}

static EcfsFile *create (Ecfs *ecfs, const char *path)
{
    g_autoptr (GError) error = NULL;
    EcfsFile *file = ecfs_file_open (ecfs, path, ECFS_FILE_WRITE, NULL, &error);
    g_assert_no_error (error);
    return file;
}

static EcfsFile *open_file (Ecfs *ecfs, const char *path)
{
    g_autoptr (GError) error = NULL;
    EcfsFile *file = ecfs_file_open (ecfs, path, 0, NULL, &error);
    g_assert_no_error (error);
    return file;
}

static void fill (EcfsFile *file, const uint8_t *bytes, size_t size)
{
    g_autoptr (GError) error = NULL;
    for (size_t at = 0; at < size; at += PIECE) {
        ecfs_file_write (file, bytes + at, MIN (PIECE, size - at), &error);
        g_assert_no_error (error);
    }
    g_assert_cmpuint (ecfs_file_size (file), ==, size);
}

/* Whether all stripes are stored. */
static bool store (Ecfs *ecfs, const char *path, const uint8_t *bytes, size_t size)
{
    g_autoptr (GError) error = NULL;
    bool full = false;
    EcfsFile *file = create (ecfs, path);
    fill (file, bytes, size);
    ecfs_file_close (file, &full, &error);
    g_assert_no_error (error);
    return full;
}

static void assert_range (EcfsFile *file, const uint8_t *bytes, size_t size, size_t offset, size_t length)
{
    g_autoptr (GError) error = NULL;
    g_autofree uint8_t *got = g_malloc (length + 1);
    size_t n_got = SIZE_MAX, expected = offset >= size ? 0 : MIN (length, size - offset);
    ecfs_file_pread (file, got, length, offset, &n_got, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (n_got, ==, expected);
    g_assert_true (expected == 0 || memcmp (got, bytes + offset, expected) == 0);
}

static void assert_file (Ecfs *ecfs, const char *path, const uint8_t *bytes, size_t size)
{
    g_autoptr (EcfsFile) file = open_file (ecfs, path);
    g_assert_cmpuint (ecfs_file_size (file), ==, size);
    assert_range (file, bytes, size, 0, size + 10);
}

static void test_ranges (Fixture *fixture, gconstpointer code)
{
    static const size_t sizes[] = {0, 1, 16 * 1024, 16 * 1024 + 1, LARGE};
    g_autoptr (Ecfs) ecfs = open_archive (fixture, ECFS_OPEN_WRITE);
    for (size_t i = 0; i < G_N_ELEMENTS (sizes); i++) {
        size_t size = sizes[i];
        g_autofree char *path = g_strdup_printf ("/deep/er/%zu", size);
        g_autofree uint8_t *bytes = pattern (size, (uint8_t) i);
        g_assert_true (store (ecfs, path, bytes, size));
        g_autoptr (EcfsFile) file = open_file (ecfs, path);
        g_assert_cmpuint (ecfs_file_size (file), ==, size);
        assert_range (file, bytes, size, 0, size);
        assert_range (file, bytes, size, size / 3, size / 2);
        assert_range (file, bytes, size, size - MIN (size, 5), 100);
        assert_range (file, bytes, size, size + 1, 100);
    }
}

static void test_attributes (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (Ecfs) ecfs = open_archive (fixture, ECFS_OPEN_WRITE);
    const EcfsFileOptions options = {.code = "copies:3", .mode = 0600};
    EcfsFile *file = ecfs_file_open (ecfs, "a/b", ECFS_FILE_WRITE, &options, &error);
    g_assert_no_error (error);
    ecfs_file_write (file, "hello", 5, &error);
    g_assert_no_error (error);
    ecfs_file_close (file, NULL, &error);
    g_assert_no_error (error);
    EcfsEntry entry;
    ecfs_stat (ecfs, "a/b", &entry, &error);
    g_assert_no_error (error);
    g_assert_cmpstr (entry.path, ==, "/a/b");
    g_assert_cmpstr (entry.name, ==, "b");
    g_assert_cmpuint (entry.mode, ==, S_IFREG | 0600);
    g_assert_cmpuint (entry.size, ==, 5);
    g_assert_cmpint (g_get_real_time () - entry.mtime_ns / 1000, <, 600 * G_USEC_PER_SEC);
    g_autofree char *info = ecfs_info (ecfs, "/a/b", &error);
    g_assert_no_error (error);
    g_assert_nonnull (strstr (info, "copies:3"));
    ecfs_stat (ecfs, "/", &entry, &error);
    g_assert_no_error (error);
    g_assert_cmpstr (entry.path, ==, "/");
    g_assert_cmpstr (entry.name, ==, "");
    g_assert_true (S_ISDIR (entry.mode));
    g_assert_false (ecfs_stat (ecfs, "/absent", &entry, &error));
    g_assert_error (error, ECFS_ERROR, ENOENT);
}

static void test_replacing (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (Ecfs) ecfs = open_archive (fixture, ECFS_OPEN_WRITE);
    g_autofree uint8_t *before = pattern (LARGE, 1), *after = pattern (PIECE, 2);
    store (ecfs, "/file", before, LARGE);
    g_autoptr (EcfsFile) reading = open_file (ecfs, "/file");
    EcfsFile *writing = create (ecfs, "/file");
    fill (writing, after, PIECE);
    assert_file (ecfs, "/file", before, LARGE);
    ecfs_file_close (writing, NULL, &error);
    g_assert_no_error (error);
    assert_file (ecfs, "/file", after, PIECE);
    assert_range (reading, before, LARGE, 0, LARGE);
}

static unsigned n_staged (const Fixture *fixture)
{
    unsigned n_files = 0;
    g_autofree char *path = g_build_filename (fixture->directory, "staging", NULL);
    g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
    while (g_dir_read_name (dir) != NULL)
        n_files++;
    return n_files;
}

static void test_discarding (Fixture *fixture, gconstpointer code)
{
    EcfsEntry entry;
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = open_archive (fixture, ECFS_OPEN_WRITE);
    EcfsFile *file = create (ecfs, "/file");
    fill (file, (const uint8_t *) "abc", 3);
    ecfs_file_discard (file);
    ecfs_file_discard (NULL);
    g_assert_false (ecfs_stat (ecfs, "/file", &entry, &error));
    g_assert_cmpint (code_of (error), ==, ENOENT);
    g_assert_cmpuint (n_staged (fixture), ==, 0);
}

static int fails_to_open (Ecfs *ecfs, const char *path, unsigned flags, const EcfsFileOptions *options)
{
    GError *error = NULL;
    g_assert_null (ecfs_file_open (ecfs, path, flags, options, &error));
    return code_of (error);
}

static void test_refusals (Fixture *fixture, gconstpointer code)
{
    GError *error = NULL;
    uint8_t byte = 0;
    size_t n_got;
    Ecfs *ecfs = open_archive (fixture, ECFS_OPEN_WRITE);
    ecfs_make_directory (ecfs, "/dir", 0755, false, &error);
    store (ecfs, "/file", &byte, 1);
    const EcfsFileOptions impossible = {.code = "rs:20+2"};
    g_assert_cmpint (fails_to_open (ecfs, "/dir", 0, NULL), ==, EISDIR);
    g_assert_cmpint (fails_to_open (ecfs, "/", 0, NULL), ==, EISDIR);
    g_assert_cmpint (fails_to_open (ecfs, "/absent", 0, NULL), ==, ENOENT);
    g_assert_cmpint (fails_to_open (ecfs, "/dir", ECFS_FILE_WRITE, NULL), ==, EISDIR);
    g_assert_cmpint (fails_to_open (ecfs, "/", ECFS_FILE_WRITE, NULL), ==, EISDIR);
    g_assert_cmpint (fails_to_open (ecfs, "/new/", ECFS_FILE_WRITE, NULL), ==, EISDIR);
    g_assert_cmpint (fails_to_open (ecfs, "/dir/../new", ECFS_FILE_WRITE, NULL), ==, EINVAL);
    g_assert_cmpint (fails_to_open (ecfs, "/new", ECFS_FILE_WRITE, &impossible), ==, EINVAL);
    EcfsFile *below = create (ecfs, "/file/below");
    g_assert_false (ecfs_file_close (below, NULL, &error));
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, ENOTDIR);
    EcfsFile *file = create (ecfs, "/file");
    g_assert_false (ecfs_file_pread (file, &byte, 1, 0, &n_got, &error));
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, EBADF);
    ecfs_file_discard (file);
    file = open_file (ecfs, "/file");
    g_assert_false (ecfs_file_write (file, &byte, 1, &error));
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, EBADF);
    g_assert_true (ecfs_file_close (file, NULL, NULL));
    ecfs_close (ecfs);
    ecfs = open_archive (fixture, 0);
    g_assert_cmpint (fails_to_open (ecfs, "/file", ECFS_FILE_WRITE, NULL), ==, EROFS);
    assert_file (ecfs, "/file", &byte, 1);
    ecfs_close (ecfs);
}

/* Without enough endpoints the file is what it was; with a few less than all it is stored, and known to lack some. */
static void test_losses (Fixture *fixture, gconstpointer code)
{
    GError *error = NULL;
    g_autofree uint8_t *before = pattern (LARGE, 1), *after = pattern (LARGE, 2);
    Ecfs *ecfs = open_archive (fixture, ECFS_OPEN_WRITE);
    g_assert_true (store (ecfs, "/file", before, LARGE));
    ecfs_close (ecfs);
    for (unsigned i = 0; i < 3; i++)
        hide_endpoint (fixture, i, true);
    ecfs = open_archive (fixture, ECFS_OPEN_WRITE);
    EcfsFile *file = create (ecfs, "/file");
    fill (file, after, LARGE);
    g_assert_false (ecfs_file_close (file, NULL, &error));
    g_assert_cmpint (code_of (error), ==, EIO);
    ecfs_close (ecfs);
    hide_endpoint (fixture, 1, false);
    hide_endpoint (fixture, 2, false);
    ecfs = open_archive (fixture, ECFS_OPEN_WRITE);
    assert_file (ecfs, "/file", before, LARGE);
    g_assert_false (store (ecfs, "/file", after, LARGE));
    assert_file (ecfs, "/file", after, LARGE);
    ecfs_close (ecfs);
    hide_endpoint (fixture, 0, false);
}

static void set_state (Ecfs *ecfs, unsigned first, const char *state)
{
    g_autoptr (GError) error = NULL;
    for (unsigned i = first; i < first + 3; i++) {
        g_autofree char *name = g_strdup_printf ("e%u", i);
        ecfs_set_endpoint_state (ecfs, name, state, &error);
        g_assert_no_error (error);
    }
}

/* What is open stays readable where whoever writes has moved all of its stripes elsewhere since. */
static void test_moved_stripes (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    g_autofree uint8_t *bytes = pattern (LARGE, 1);
    Ecfs *writer = open_archive (fixture, ECFS_OPEN_WRITE);
    set_state (writer, 3, "readonly");
    store (writer, "/file", bytes, LARGE);
    set_state (writer, 3, "active");
    Ecfs *reader = open_archive (fixture, 0);
    EcfsFile *file = open_file (reader, "/file");
    for (unsigned i = 0; i < 3; i++) {
        g_autofree char *name = g_strdup_printf ("e%u", i);
        ecfs_drain (writer, name, NULL, NULL, &error);
        g_assert_no_error (error);
    }
    ecfs_close (writer);
    for (unsigned i = 0; i < 3; i++)
        hide_endpoint (fixture, i, true);
    assert_range (file, bytes, LARGE, 0, LARGE);
    g_assert_true (ecfs_file_close (file, NULL, NULL));
    ecfs_close (reader);
    for (unsigned i = 0; i < 3; i++)
        hide_endpoint (fixture, i, false);
}

typedef struct Reading {
    EcfsFile *file;
    const uint8_t *bytes;
    unsigned seed;
} Reading;

static void *read_ranges (void *data)
{
    const Reading *self = data;
    g_autoptr (GRand) chance = g_rand_new_with_seed (self->seed);
    for (unsigned i = 0; i < 30; i++)
        assert_range (self->file, self->bytes, LARGE, (size_t) g_rand_int_range (chance, 0, LARGE),
                      (size_t) g_rand_int_range (chance, 1, 300000));
    return NULL;
}

static void test_threads (Fixture *fixture, gconstpointer code)
{
    g_autofree uint8_t *bytes = pattern (LARGE, 1);
    g_autoptr (Ecfs) ecfs = open_archive (fixture, ECFS_OPEN_WRITE);
    store (ecfs, "/file", bytes, LARGE);
    g_autoptr (EcfsFile) file = open_file (ecfs, "/file");
    GThread *threads[4];
    Reading readings[G_N_ELEMENTS (threads)];
    for (unsigned i = 0; i < G_N_ELEMENTS (threads); i++) {
        readings[i] = (Reading){.file = file, .bytes = bytes, .seed = i};
        threads[i] = g_thread_new ("reader", read_ranges, &readings[i]);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS (threads); i++)
        g_thread_join (threads[i]);
}

static void test_init (Fixture *fixture, gconstpointer code)
{
    GError *error = NULL;
    g_autofree char *directory = g_build_filename (fixture->base, "another", NULL);
    g_autofree char *endpoint = g_strdup_printf ("one=file://%s/one", fixture->base);
    const char *const endpoints[] = {endpoint, NULL}, *const settings[] = {"nonsense", NULL};
    g_assert_false (ecfs_init (directory, "rs:2+1", endpoints, NULL, NULL, &error));
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, EINVAL);
    g_assert_false (ecfs_init (directory, "copies:1", endpoints, settings, NULL, &error));
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, EINVAL);
    g_assert_false (ecfs_init (fixture->directory, "copies:1", endpoints, NULL, "none", &error));
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, ENOTEMPTY);
    g_assert_false (ecfs_init (directory, "copies:1", endpoints, NULL, NULL, &error)); /* as "split" */
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, EDOM);
    g_assert_false (g_file_test (directory, G_FILE_TEST_EXISTS));
}

static void test_recovery (Fixture *fixture, gconstpointer code)
{
    GError *error = NULL;
    g_autofree uint8_t *bytes = pattern (LARGE, 1);
    Ecfs *ecfs = open_archive (fixture, ECFS_OPEN_WRITE);
    store (ecfs, "/file", bytes, LARGE);
    ecfs_close (ecfs);
    remove_tree (fixture->directory);
    g_auto (GStrv) endpoints = endpoints_of (fixture);
    const EcfsRecovery nothing = {.code = code}, what = {.endpoints = (const char *const *) endpoints, .force = true};
    const EcfsRecovery other = {.endpoints = (const char *const *) endpoints, .archive = "no UUID"};
    g_assert_null (ecfs_recover (fixture->directory, &nothing, &error));
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, EINVAL);
    g_assert_null (ecfs_recover (fixture->directory, &other, &error));
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, EINVAL);
    g_autofree char *report = ecfs_recover (fixture->directory, &what, &error);
    g_assert_no_error (error);
    g_assert_nonnull (strstr (report, "\"files\" : 1,"));
    ecfs = open_archive (fixture, 0);
    assert_file (ecfs, "/file", bytes, LARGE);
    ecfs_close (ecfs);
}

/* GLib asks libc for the local time of a message, whose lock ThreadSanitizer does not see. */
static void say_nothing (const char *domain, GLogLevelFlags level, const char *text, void *user)
{
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    (void) g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL); /* warnings tell of lost endpoints */
    (void) g_log_set_default_handler (say_nothing, NULL);
    g_test_add ("/library/file/comes-back-in-ranges", Fixture, "rs:4+2", set_up, test_ranges, tear_down);
    g_test_add ("/library/file/has-mode-and-code", Fixture, "rs:4+2", set_up, test_attributes, tear_down);
    g_test_add ("/library/file/is-what-it-was-until-closed", Fixture, "rs:4+2", set_up, test_replacing, tear_down);
    g_test_add ("/library/file/leaves-nothing-when-discarded", Fixture, "rs:4+2", set_up, test_discarding, tear_down);
    g_test_add ("/library/file/is-refused-with-the-errno", Fixture, "rs:4+2", set_up, test_refusals, tear_down);
    g_test_add ("/library/file/close-tells-what-was-not-stored", Fixture, "rs:4+2", set_up, test_losses, tear_down);
    g_test_add ("/library/file/follows-stripes-that-moved", Fixture, "rs:2+1", set_up, test_moved_stripes, tear_down);
    g_test_add ("/library/file/is-read-by-threads-at-once", Fixture, "rs:4+2", set_up, test_threads, tear_down);
    g_test_add ("/library/init/refuses-what-makes-no-sense", Fixture, "rs:4+2", set_up, test_init, tear_down);
    g_test_add ("/library/recover/makes-the-directory-anew", Fixture, "rs:4+2", set_up, test_recovery, tear_down);
    return g_test_run ();
}
