/* Reading objects with a cache: what was read once comes from there, whatever became of the stripes, and is right. */
#include "key/ring.h"
#include "store.h"
#include "util/lock.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB     ((uint64_t) 1024)
#define MIB     (1024 * KIB)
#define SIZE    (5 * MIB + 4321)
#define SEGMENT (512 * KIB)
#define WAIT_US (20 * G_USEC_PER_SEC)

typedef struct Fixture {
    Store store;
    Object object;
    EcfsKeyRing *ring; /* NULL: it is not sealed */
    char *directory;
} Fixture;

static EcfsCache *open_cache (const Fixture *self)
{
    EcfsCacheParams params = {.directory = self->directory, .max_bytes = 256 * MIB, .queue_bytes = 64 * MIB};
    return ecfs_cache_new (&params);
}

static void begin (Fixture *self, const char *code, bool sealed)
{
    EcfsUuid archive = ecfs_uuid_new ();
    *self = (Fixture){.directory = g_dir_make_tmp ("ecfs-cached-XXXXXX", NULL)};
    store_init (&self->store, "file", code, 0, 256 * MIB);
    object_init (&self->object, &self->store, SIZE, SEGMENT);
    self->ring = sealed ? ecfs_key_ring_new (&archive) : NULL;
    if (sealed)
        object_seal (&self->object, self->ring, ECFS_SEAL_CTR_GHASH);
    g_assert_cmpint (object_write (&self->object, NULL), ==, 0);
    self->store.cache = open_cache (self);
}

static void end (Fixture *self)
{
    g_autofree char *command = g_strdup_printf ("rm -rf '%s'", self->directory);
    ecfs_cache_free (self->store.cache);
    object_clear (&self->object);
    store_clear (&self->store);
    ecfs_key_ring_unref (self->ring);
    g_assert_cmpint (system (command), ==, 0);
    g_free (self->directory);
}

static void remove_stripes (const Fixture *self, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        g_autofree char *path = object_stripe_path (&self->object, i);
        g_assert_cmpint (remove (path), ==, 0);
    }
}

static int read_with (const Fixture *self, EcfsReader *reader, uint64_t offset, uint64_t size)
{
    return object_read (&self->object, reader, offset, size, NULL);
}

static int read_all (const Fixture *self)
{
    int result = 0;
    EcfsReader *reader = object_reader (&self->object);
    for (uint64_t at = 0; at < SIZE && result == 0; at += MIB)
        result = read_with (self, reader, at, MIN (MIB, SIZE - at));
    ecfs_reader_close (reader);
    g_assert_true (ecfs_cache_await_written (self->store.cache, ecfs_now_us () + WAIT_US));
    return result;
}

/* Where data stripes are missing, what is cached was decoded, and gets its tags here. */
static void check_whole (const char *code, bool sealed, unsigned n_missing)
{
    Fixture self;
    begin (&self, code, sealed);
    remove_stripes (&self, 0, n_missing);
    g_assert_cmpint (read_all (&self), ==, 0);
    remove_stripes (&self, n_missing, self.store.n);
    uint64_t before = store_bytes_read (&self.store);
    g_assert_cmpint (read_all (&self), ==, 0);
    g_assert_cmpuint (store_bytes_read (&self.store), ==, before);
    ecfs_cache_forget (self.store.cache, &self.object.job.header.object);
    g_assert_cmpint (read_all (&self), ==, EIO);
    end (&self);
}

static void test_whole (gconstpointer code)
{
    check_whole (code, false, 0);
    check_whole (code, false, 1);
    check_whole (code, true, 0);
    check_whole (code, true, 1);
}

/* Pieces of segments, as they are read in the middle of files. */
static void test_pieces (void)
{
    Fixture self;
    uint64_t offsets[40], sizes[40];
    begin (&self, "rs:4+2", true);
    for (unsigned i = 0; i < G_N_ELEMENTS (offsets); i++) {
        offsets[i] = (uint64_t) g_test_rand_int_range (0, (gint32) (SIZE - 70000));
        sizes[i] = (uint64_t) g_test_rand_int_range (1, 70000);
    }
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < G_N_ELEMENTS (offsets); i++) {
            EcfsReader *reader = object_reader (&self.object); /* each read is the first of its reader */
            g_assert_cmpint (read_with (&self, reader, offsets[i], sizes[i]), ==, 0);
            ecfs_reader_close (reader);
        }
        g_assert_true (ecfs_cache_await_written (self.store.cache, ecfs_now_us () + WAIT_US));
        if (round == 0)
            remove_stripes (&self, 0, self.store.n);
    }
    end (&self);
}

/* A cell of another object is wrong here, also where both have the same layout. */
static void test_swapped (void)
{
    Fixture self;
    Object other;
    begin (&self, "rs:4+2", false);
    g_assert_cmpint (read_all (&self), ==, 0);
    object_init (&other, &self.store, SIZE, SEGMENT);
    g_assert_cmpint (object_write (&other, NULL), ==, 0);
    const uint8_t *a = self.object.job.header.object.bytes, *b = other.job.header.object.bytes;
    g_autoptr (GString) from = g_string_new (NULL), to = g_string_new (NULL);
    g_string_printf (from, "%s/cells/%02x/", self.directory, a[15]);
    g_string_printf (to, "%s/cells/%02x", self.directory, b[15]);
    g_autofree char *folder = g_strdup (to->str);
    g_string_append_c (to, '/');
    for (unsigned i = 0; i < 16; i++) {
        g_string_append_printf (from, "%02x", a[i]);
        g_string_append_printf (to, "%02x", b[i]);
    }
    g_autofree char *command = g_strdup_printf ("mkdir -p '%s' && for i in 0 1 2 3; do cp '%s-000000000000000'$i "
                                                "'%s-000000000000000'$i; done",
                                                folder, from->str, to->str);
    g_assert_cmpint (system (command), ==, 0);
    EcfsReader *reader = object_reader (&other);
    for (uint64_t at = 0; at < SIZE; at += MIB)
        g_assert_cmpint (object_read (&other, reader, at, MIN (MIB, SIZE - at), NULL), ==, 0);
    ecfs_reader_close (reader);
    object_clear (&other);
    end (&self);
}

/* Cells that nobody who opens them comes back from, until they are let go. */
static GPtrArray *make_hanging (const Fixture *self)
{
    const uint8_t *object = self->object.job.header.object.bytes;
    GPtrArray *paths = g_ptr_array_new_with_free_func (g_free);
    g_autoptr (GString) path = g_string_new (NULL);
    g_string_printf (path, "%s/cells/%02x", self->directory, object[15]);
    g_assert_cmpint (g_mkdir_with_parents (path->str, 0700), ==, 0);
    g_string_append_c (path, '/');
    for (unsigned i = 0; i < 16; i++)
        g_string_append_printf (path, "%02x", object[i]);
    for (unsigned i = 0; i * SEGMENT < SIZE; i++) {
        g_ptr_array_add (paths, g_strdup_printf ("%s-%016x", path->str, i));
        g_assert_cmpint (mkfifo (g_ptr_array_index (paths, i), 0600), ==, 0);
    }
    return paths;
}

/* A disk that hangs keeps no memory but that of what it is reading. */
static void test_hanging_disk (void)
{
    Fixture self;
    begin (&self, "rs:4+2", false);
    EcfsCacheParams params = {.directory = self.directory, .max_bytes = 1}; /* nothing is filled in */
    ecfs_cache_free (self.store.cache);
    self.store.cache = ecfs_cache_new (&params);
    g_autoptr (GPtrArray) paths = make_hanging (&self);
    EcfsReader *reader = object_reader (&self.object);
    g_assert_cmpint (read_with (&self, reader, 0, SIZE), ==, 0);
    ecfs_reader_close (reader);
    size_t most = (256 - 4) * MIB;
    bool got = false;
    for (int64_t end_us = ecfs_now_us () + WAIT_US / 4; !got && ecfs_now_us () < end_us; g_usleep (1000))
        got = ecfs_transfer_try_acquire (self.store.transfer, most);
    g_assert_true (got);
    ecfs_transfer_release (self.store.transfer, most);
    int fds[SIZE / SEGMENT + 1];
    for (guint i = 0; i < paths->len; i++) { /* whoever opened them finds now that they are no cells */
        fds[i] = open (g_ptr_array_index (paths, i), O_RDWR | O_NONBLOCK);
        g_assert_cmpint (fds[i], >=, 0);
    }
    ecfs_cache_stop (self.store.cache);
    for (guint i = 0; i < paths->len; i++)
        close (fds[i]);
    end (&self);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    static const char *const codes[] = {"rs:4+2", "ldpc:8+6", "basic:4+4", "copies:3"};
    for (unsigned i = 0; i < G_N_ELEMENTS (codes); i++) {
        g_autofree char *name = g_strconcat ("/cached/needs-no-stripe/", codes[i], NULL);
        g_test_add_data_func (name, codes[i], test_whole);
    }
    g_test_add_func ("/cached/pieces", test_pieces);
    g_test_add_func ("/cached/is-not-another-objects", test_swapped);
    g_test_add_func ("/cached/a-disk-that-hangs-keeps-no-memory", test_hanging_disk);
    return g_test_run ();
}
