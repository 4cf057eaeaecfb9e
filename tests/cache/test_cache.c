#include "cache/cache.h"
#include "cache/index.h"
#include "util/io.h"
#include "util/lock.h"
#include "util/xxh3.h"

#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CELL   (256u << 10)
#define MIB    (1u << 20)
#define WAIT_S 20

static char *directory;

static EcfsCache *open_cache (uint64_t max_bytes, uint64_t keep_free_bytes)
{
    EcfsCacheParams params = {
        .directory = directory, .max_bytes = max_bytes, .keep_free_bytes = keep_free_bytes, .queue_bytes = 64 * MIB};
    return ecfs_cache_new (&params);
}

static int64_t soon (void)
{
    return ecfs_now_us () + WAIT_S * G_USEC_PER_SEC;
}

static EcfsCacheCell cell_of (uint64_t number)
{
    EcfsCacheCell cell = {.segment = number % 7};
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash (&digest, ecfs_xxh3_128 (&number, sizeof number));
    memcpy (cell.object.bytes, digest.digest, sizeof cell.object.bytes);
    return cell;
}

/* Bytes of a cell that begin with their own checksum. */
static uint8_t *bytes_for (uint64_t number)
{
    uint8_t *bytes = g_malloc (CELL);
    g_autoptr (GRand) random = g_rand_new_with_seed ((guint32) number + 1);
    for (size_t i = 8; i < CELL; i += 4) {
        guint32 word = g_rand_int (random);
        memcpy (bytes + i, &word, 4);
    }
    uint64_t sum = ecfs_xxh3_64_seeded (bytes + 8, CELL - 8, number);
    memcpy (bytes, &sum, sizeof sum);
    return bytes;
}

static void free_fill (EcfsCacheFill *fill)
{
    g_free (fill->ranges[0].bytes);
    g_free (fill->ranges);
    g_free (fill);
}

static void fill_in_since (EcfsCache *cache, uint64_t number, int64_t since_us)
{
    EcfsCacheFill *fill = g_new0 (EcfsCacheFill, 1);
    *fill = (EcfsCacheFill){.cell = cell_of (number), .n_ranges = 1, .since_us = since_us, .free = free_fill};
    fill->ranges = g_new (EcfsCacheRange, 1);
    fill->ranges[0] = (EcfsCacheRange){.offset = 0, .size = CELL, .bytes = bytes_for (number)};
    ecfs_cache_fill (cache, fill);
}

static void fill_in (EcfsCache *cache, uint64_t number)
{
    fill_in_since (cache, number, ecfs_now_us ());
}

typedef struct Asked {
    EcfsCacheLook look;
    EcfsCacheRange range;
    uint64_t number;
    uint8_t bytes[CELL];
    EcfsMutex lock;
    EcfsCond cond;
    bool is_done, found; /* guarded by lock */
} Asked;

static bool begin (EcfsCacheLook *look)
{
    Asked *asked = (Asked *) look;
    look->ranges[0].bytes = asked->bytes;
    return true;
}

static EcfsCacheVerdict judge (EcfsCacheLook *look, unsigned range)
{
    Asked *asked = (Asked *) look;
    uint64_t sum;
    g_assert_cmpuint (range, ==, 0);
    memcpy (&sum, asked->bytes, sizeof sum);
    if (sum == 0)
        return ECFS_CACHE_ABSENT;
    return sum == ecfs_xxh3_64_seeded (asked->bytes + 8, CELL - 8, asked->number) ? ECFS_CACHE_FITS : ECFS_CACHE_WRONG;
}

static void answered (EcfsCacheLook *look, bool found)
{
    Asked *asked = (Asked *) look;
    ecfs_mutex_lock (&asked->lock);
    asked->is_done = true;
    asked->found = found;
    ecfs_cond_signal (&asked->cond);
    ecfs_mutex_unlock (&asked->lock);
}

/* Whether a cell is there; what is there is right. */
static bool has (EcfsCache *cache, uint64_t number)
{
    g_autofree Asked *asked = g_new0 (Asked, 1);
    g_autofree uint8_t *right = bytes_for (number);
    asked->number = number;
    asked->look = (EcfsCacheLook){.cell = cell_of (number),
                                  .ranges = &asked->range,
                                  .n_ranges = 1,
                                  .begin = begin,
                                  .judge = judge,
                                  .done = answered};
    asked->range.size = CELL;
    ecfs_mutex_init (&asked->lock);
    ecfs_cond_init (&asked->cond);
    g_assert_true (ecfs_cache_look (cache, &asked->look));
    ecfs_mutex_lock (&asked->lock);
    while (!asked->is_done)
        g_assert_true (ecfs_cond_wait_until (&asked->cond, &asked->lock, soon ()));
    ecfs_mutex_unlock (&asked->lock);
    g_assert_true (!asked->found || memcmp (asked->bytes, right, CELL) == 0);
    ecfs_cond_clear (&asked->cond);
    ecfs_mutex_clear (&asked->lock);
    return asked->found;
}

static void fill_and_wait (EcfsCache *cache, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        fill_in (cache, i);
        g_assert_true (ecfs_cache_await_written (cache, soon ()));
    }
}

static EcfsCacheState state_of (EcfsCache *cache)
{
    EcfsCacheState state;
    g_autoptr (GError) error = NULL;
    g_assert_true (ecfs_cache_state (cache, &state, &error));
    g_assert_no_error (error);
    ecfs_cache_state_clear (&state);
    return state;
}

static char *path_of (uint64_t number)
{
    EcfsCacheCell cell = cell_of (number);
    GString *path = g_string_new (NULL);
    g_string_printf (path, "%s/cells/%02x/", directory, cell.object.bytes[15]);
    for (size_t i = 0; i < 16; i++)
        g_string_append_printf (path, "%02x", cell.object.bytes[i]);
    g_string_append_printf (path, "-%016" G_GINT64_MODIFIER "x", cell.segment);
    return g_string_free (path, FALSE);
}

static void set_up (void)
{
    directory = g_dir_make_tmp ("ecfs-cache-XXXXXX", NULL);
    g_assert_nonnull (directory);
}

static void tear_down (void)
{
    g_autofree char *command = g_strdup_printf ("rm -rf '%s'", directory);
    g_assert_cmpint (system (command), ==, 0);
    g_clear_pointer (&directory, g_free);
}

static void test_gives_back (void)
{
    set_up ();
    EcfsCache *cache = open_cache (64 * MIB, 0);
    g_assert_false (has (cache, 1));
    fill_and_wait (cache, 1, 3);
    g_assert_true (has (cache, 1));
    g_assert_true (has (cache, 2));
    g_assert_false (has (cache, 3));
    ecfs_cache_free (cache);
    cache = open_cache (64 * MIB, 0);
    g_assert_true (has (cache, 1));
    g_assert_cmpuint (state_of (cache).n_cells, ==, 2);
    g_assert_cmpuint (state_of (cache).bytes, >=, 2 * CELL);
    ecfs_cache_free (cache);
    ecfs_cache_stop (NULL);
    ecfs_cache_free (NULL);
    tear_down ();
}

static void test_queue_is_written_at_stop (void)
{
    set_up ();
    EcfsCache *cache = open_cache (64 * MIB, 0);
    for (unsigned i = 0; i < 20; i++)
        fill_in (cache, i);
    ecfs_cache_free (cache);
    cache = open_cache (64 * MIB, 0);
    for (unsigned i = 0; i < 20; i++)
        g_assert_true (has (cache, i));
    ecfs_cache_free (cache);
    tear_down ();
}

static void test_least_recently_used_goes (void)
{
    set_up ();
    EcfsCache *cache = open_cache (10 * (CELL + 8192) + 4096, 0);
    fill_and_wait (cache, 0, 10);
    g_assert_true (has (cache, 0)); /* used now: the index is told at the end */
    ecfs_cache_free (cache);
    cache = open_cache (10 * (CELL + 8192) + 4096, 0);
    fill_and_wait (cache, 10, 14);
    g_assert_true (has (cache, 0));
    g_assert_false (has (cache, 1));
    g_assert_false (has (cache, 2));
    g_assert_true (has (cache, 13));
    g_assert_cmpuint (state_of (cache).bytes, <=, 10 * (CELL + 8192) + 4096);
    ecfs_cache_free (cache);
    tear_down ();
}

static void test_pinned_stays (void)
{
    set_up ();
    EcfsCache *cache = open_cache (4 * MIB, 0);
    EcfsCacheCell first = cell_of (0), second = cell_of (59);
    fill_and_wait (cache, 0, 1);
    ecfs_cache_pin (cache, &first, 5);
    fill_and_wait (cache, 1, 60);
    ecfs_cache_pin (cache, &second, 6);
    fill_and_wait (cache, 60, 100);
    g_assert_true (has (cache, 0));
    g_assert_true (has (cache, 59));
    g_assert_cmpuint (state_of (cache).pinned_bytes, >=, 2 * CELL);
    ecfs_cache_pin (cache, &second, 4); /* somebody else, who began earlier */
    ecfs_cache_unpin (cache, 6);        /* not what was pinned with 6 */
    fill_and_wait (cache, 100, 140);
    g_assert_false (has (cache, 0));
    g_assert_true (has (cache, 59));
    ecfs_cache_free (cache);
    tear_down ();
}

static bool has_at_most (EcfsCache *cache, uint64_t bytes)
{
    int64_t end_us = soon ();
    while (state_of (cache).bytes > bytes && ecfs_now_us () < end_us)
        g_usleep (1000);
    return state_of (cache).bytes <= bytes;
}

/* With a smaller limit than before, but for what is pinned; without any, it can be emptied. */
static void test_shrinks (void)
{
    uint64_t bytes;
    set_up ();
    EcfsCache *cache = open_cache (64 * MIB, 0);
    EcfsCacheCell cell = cell_of (0);
    fill_and_wait (cache, 0, 20);
    ecfs_cache_pin (cache, &cell, 1);
    ecfs_cache_free (cache);
    cache = open_cache (2 * MIB, 0);
    g_assert_true (has (cache, 19));
    g_assert_true (has_at_most (cache, 2 * MIB));
    g_assert_true (has (cache, 0));
    ecfs_cache_free (cache);
    cache = open_cache (0, 0);
    g_assert_true (has (cache, 0));
    g_assert_true (ecfs_cache_drop (cache, &bytes, NULL));
    g_assert_false (has (cache, 0));
    ecfs_cache_free (cache);
    tear_down ();
}

/* Where all is pinned nothing more is taken, and nothing is lost. */
static void test_all_pinned (void)
{
    set_up ();
    EcfsCache *cache = open_cache (2 * MIB, 0);
    for (unsigned i = 0; i < 6; i++) {
        EcfsCacheCell cell = cell_of (i);
        fill_and_wait (cache, i, i + 1);
        ecfs_cache_pin (cache, &cell, 1);
    }
    fill_in (cache, 6);
    fill_in (cache, 7);
    g_assert_true (ecfs_cache_await_written (cache, soon ()));
    for (unsigned i = 0; i < 6; i++)
        g_assert_true (has (cache, i));
    g_assert_cmpuint (state_of (cache).bytes, <=, 2 * MIB);
    ecfs_cache_free (cache);
    tear_down ();
}

/* Whatever becomes of a file, its bytes are right or absent, and it does not stay. */
static void damage (unsigned how)
{
    set_up ();
    EcfsCache *cache = open_cache (64 * MIB, 0);
    fill_and_wait (cache, 1, 3);
    g_autofree char *path = path_of (1), *other = path_of (2);
    const uint64_t n_cells = state_of (cache).n_cells; /* what is wrong goes out of the index some time later */
    int fd = open (path, O_RDWR);
    uint8_t byte;
    g_assert_cmpint (fd, >=, 0);
    switch (how) {
    case 0: /* a bit flips */
        g_assert_cmpint (pread (fd, &byte, 1, CELL / 2), ==, 1);
        byte ^= 4;
        g_assert_cmpint (pwrite (fd, &byte, 1, CELL / 2), ==, 1);
        break;
    case 1: /* it is cut */
        g_assert_cmpint (ftruncate (fd, CELL / 3), ==, 0);
        break;
    case 2: /* it is that of another cell */
        g_assert_cmpint (g_rename (other, path), ==, 0);
        break;
    default: /* a part was never written */
        g_assert_cmpint (fallocate (fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, CELL / 4, CELL / 4), ==, 0);
        break;
    }
    close (fd);
    g_assert_false (has (cache, 1));
    g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
    fill_and_wait (cache, 1, 2);
    g_assert_true (has (cache, 1));
    ecfs_cache_free (cache); /* tells the index what was wrong, and what came since */
    cache = open_cache (64 * MIB, 0);
    g_assert_cmpuint (state_of (cache).n_cells, ==, n_cells);
    g_assert_cmpuint (state_of (cache).bytes, >=, n_cells * CELL);
    ecfs_cache_free (cache);
    tear_down ();
}

static void test_damage (void)
{
    for (unsigned how = 0; how < 4; how++)
        damage (how);
}

static void test_damaged_index (void)
{
    set_up ();
    EcfsCache *cache = open_cache (64 * MIB, 0);
    fill_and_wait (cache, 0, 10);
    ecfs_cache_free (cache);
    g_autofree char *index = g_build_filename (directory, "index.sqlite", NULL);
    g_autofree char *garbage = g_strnfill (40000, 'x');
    g_assert_true (g_file_set_contents (index, garbage, 40000, NULL));
    cache = open_cache (64 * MIB, 0);
    g_test_expect_message (NULL, G_LOG_LEVEL_WARNING, "*the cache was damaged, and begins anew*");
    fill_and_wait (cache, 20, 21);
    g_test_assert_expected_messages ();
    g_assert_false (has (cache, 1));
    g_assert_true (has (cache, 20));
    g_assert_cmpuint (state_of (cache).n_cells, ==, 1);
    ecfs_cache_free (cache);
    tear_down ();
}

static void test_forget_and_drop (void)
{
    uint64_t bytes;
    set_up ();
    EcfsCache *cache = open_cache (64 * MIB, 0);
    g_assert_true (ecfs_cache_drop (cache, &bytes, NULL));
    g_assert_cmpuint (bytes, ==, 0);
    fill_and_wait (cache, 0, 10);
    EcfsCacheCell cell = cell_of (3);
    ecfs_cache_forget (cache, &cell.object);
    g_assert_false (has (cache, 3));
    g_assert_true (has (cache, 4));
    g_assert_cmpuint (ecfs_cache_present (cache, &cell, 0, CELL), ==, 0);
    cell = cell_of (4);
    g_assert_cmpuint (ecfs_cache_present (cache, &cell, 0, CELL), ==, CELL);
    g_autofree char *known = path_of (5), *unknown = path_of (4);
    g_autofree char *copy =
        g_strdup_printf ("cp '%s' '%.*s0000000000000099'", unknown, (int) strlen (unknown) - 16, unknown);
    g_assert_cmpint (system (copy), ==, 0);
    memmove (unknown + strlen (unknown) - 16, "0000000000000099", 16);
    ecfs_cache_forget (cache, &cell.object);
    g_assert_false (g_file_test (unknown, G_FILE_TEST_EXISTS));
    g_assert_true (g_file_test (known, G_FILE_TEST_EXISTS));
    g_assert_true (ecfs_cache_drop (cache, &bytes, NULL));
    g_assert_cmpuint (bytes, >=, 8 * CELL);
    g_assert_false (has (cache, 4));
    g_assert_cmpuint (state_of (cache).n_cells, ==, 0);
    ecfs_cache_free (cache);
    tear_down ();
}

/* Who read it before it was forgotten may have it from where it was wrong. */
static void test_forgotten_is_not_taken (void)
{
    set_up ();
    EcfsCache *cache = open_cache (64 * MIB, 0);
    EcfsCacheCell cell = cell_of (1);
    int64_t before_us = ecfs_now_us ();
    fill_and_wait (cache, 1, 2);
    ecfs_cache_forget (cache, &cell.object);
    fill_in_since (cache, 1, before_us);
    fill_in_since (cache, 2, before_us);
    g_assert_true (ecfs_cache_await_written (cache, soon ()));
    g_assert_false (has (cache, 1));
    g_assert_true (has (cache, 2));
    ecfs_cache_forget (cache, NULL);
    g_assert_false (has (cache, 2));
    fill_in_since (cache, 2, before_us);
    fill_and_wait (cache, 1, 2);
    g_assert_false (has (cache, 2));
    g_assert_true (has (cache, 1));
    ecfs_cache_free (cache);
    tear_down ();
}

static void test_gives_way (void)
{
    set_up ();
    EcfsCache *cache = open_cache (64 * MIB, 0);
    fill_and_wait (cache, 0, 20);
    uint64_t before = state_of (cache).bytes;
    g_assert_true (ecfs_cache_give_way (cache, 5 * CELL));
    g_assert_cmpuint (state_of (cache).bytes, <=, before - 5 * CELL);
    g_assert_cmpuint (state_of (cache).bytes, >, 0);
    g_assert_false (ecfs_cache_has_room (cache, CELL)); /* for some seconds */
    ecfs_cache_free (cache);
    tear_down ();
}

/* While much is written, too; and what it cannot give is told. */
static void test_gives_way_while_it_fills (void)
{
    set_up ();
    EcfsCache *cache = open_cache (64 * MIB, 0);
    EcfsCacheCell cell = cell_of (0);
    fill_and_wait (cache, 0, 1);
    ecfs_cache_pin (cache, &cell, 1);
    for (unsigned i = 1; i < 200; i++)
        fill_in (cache, i);
    g_assert_false (ecfs_cache_give_way (cache, 1024ull * MIB));
    g_assert_true (ecfs_cache_await_written (cache, soon ()));
    g_assert_true (has (cache, 0));
    ecfs_cache_free (cache);
    tear_down ();
}

/* Another process fills and is killed at any moment; what it leaves is right or absent, and the index is whole. */
static void test_killed (void)
{
    set_up ();
    for (unsigned round = 0; round < 4; round++) {
        pid_t pid = fork ();
        if (pid == 0) {
            EcfsCache *mine = open_cache (8 * MIB, 0);
            for (uint64_t i = 0;; i++) {
                fill_in (mine, i % 200);
                (void) ecfs_cache_await_room (mine, CELL, soon ());
            }
        }
        g_assert_cmpint (pid, >, 0);
        EcfsCache *beside = open_cache (8 * MIB, 0);
        int64_t end_us = ecfs_now_us () + 15000 + round * 40000;
        for (uint64_t i = 0; ecfs_now_us () < end_us; i++)
            (void) has (beside, i % 200);
        kill (pid, SIGKILL);
        g_assert_cmpint (waitpid (pid, NULL, 0), ==, pid);
        fill_and_wait (beside, 1000, 1002);
        unsigned n = 0;
        for (uint64_t i = 0; i < 200; i++)
            n += has (beside, i);
        g_assert_cmpuint (n, <=, 32);
        g_assert_cmpuint (state_of (beside).bytes, <=, 8 * MIB);
        ecfs_cache_free (beside);
    }
    tear_down ();
}

static void test_two_processes (void)
{
    int status;
    set_up ();
    EcfsCache *cache = open_cache (16 * MIB, 0);
    fill_and_wait (cache, 0, 1);
    pid_t pids[2];
    ecfs_cache_free (cache);
    for (unsigned j = 0; j < 2; j++) {
        pids[j] = fork ();
        if (pids[j] == 0) {
            EcfsCache *mine = open_cache (16 * MIB, 0);
            for (uint64_t i = 0; i < 150; i++) {
                fill_in (mine, i);
                (void) ecfs_cache_await_room (mine, CELL, soon ());
                (void) has (mine, (i * 7) % 150);
            }
            ecfs_cache_free (mine);
            _exit (0);
        }
    }
    for (unsigned j = 0; j < 2; j++)
        g_assert_true (waitpid (pids[j], &status, 0) == pids[j] && status == 0);
    cache = open_cache (16 * MIB, 0);
    g_assert_cmpuint (state_of (cache).bytes, <=, 16 * MIB);
    g_assert_cmpuint (state_of (cache).n_cells, >=, 40);
    ecfs_cache_free (cache);
    tear_down ();
}

/* A disk that is smaller than the cache may be, and one that others fill. */
static void test_full_disk (void)
{
    set_up ();
    if (mount ("none", directory, "tmpfs", 0, "size=16m,mode=700") != 0) {
        g_test_skip ("only root can mount a small disk");
        tear_down ();
        return;
    }
    EcfsCache *cache = open_cache (1024ull * MIB, 2 * MIB);
    fill_and_wait (cache, 0, 60);
    g_assert_cmpuint (state_of (cache).bytes, <=, 14 * MIB);
    g_assert_true (has (cache, 59));
    g_autofree char *other = g_build_filename (directory, "other", NULL), *much = g_strnfill (10 * MIB, 'x');
    bool fits = false;
    for (unsigned i = 0; i < 10 && !fits; i++) {
        (void) ecfs_cache_give_way (cache, 10 * MIB);
        fits = g_file_set_contents (other, much, 10 * MIB, NULL);
    }
    g_assert_true (fits);
    ecfs_cache_free (cache);
    cache = open_cache (1024ull * MIB, 16 * MIB); /* more than there is: nothing is taken */
    fill_in (cache, 100);
    (void) ecfs_cache_await_written (cache, soon ());
    g_assert_false (has (cache, 100));
    EcfsCacheState state = {.trouble = NULL};
    for (int64_t end_us = soon (); state.trouble == NULL && ecfs_now_us () < end_us; g_usleep (1000))
        g_assert_true (ecfs_cache_state (cache, &state, NULL));
    g_assert_nonnull (state.trouble);
    g_assert_cmpuint (state.dropped_bytes, >=, CELL);
    ecfs_cache_state_clear (&state);
    ecfs_cache_free (cache);
    g_assert_cmpint (umount (directory), ==, 0);
    tear_down ();
}

/* Without a directory that can be made there is no cache, and all goes on. */
static void test_no_directory (void)
{
    directory = g_strdup ("/proc/nothing-here");
    EcfsCache *cache = open_cache (64 * MIB, 0);
    fill_in (cache, 1);
    (void) ecfs_cache_await_written (cache, soon ());
    g_assert_false (has (cache, 1));
    ecfs_cache_free (cache);
    g_clear_pointer (&directory, g_free);
}

/* Where others could have put something, nothing is believed or taken, and what links lead to stays as it is.
 * @command is run in the cache's directory, with $ASIDE another. */
static void check_strange (const char *command, bool cells_are_own)
{
    set_up ();
    EcfsCache *cache = open_cache (64 * MIB, 0);
    fill_and_wait (cache, 1, 2);
    ecfs_cache_free (cache);
    g_autofree char *aside = g_strconcat (directory, "-aside", NULL), *text = NULL;
    g_autofree char *other = g_strconcat (aside, "/cells/00/other", NULL);
    g_autofree char *prepare =
        g_strdup_printf ("ASIDE='%s'; mkdir -p $ASIDE/cells/00 && echo theirs > $ASIDE/cells/00/other && cd '%s' && %s",
                         aside, directory, command);
    g_assert_cmpint (system (prepare), ==, 0);
    cache = open_cache (64 * MIB, 0);
    g_assert_true (has (cache, 1) == cells_are_own);
    fill_in (cache, 2);
    (void) ecfs_cache_await_written (cache, soon ());
    g_assert_false (has (cache, 2));
    EcfsCacheState state = {.trouble = NULL};
    for (int64_t end_us = soon (); state.trouble == NULL && ecfs_now_us () < end_us; g_usleep (1000))
        (void) (ecfs_cache_state (cache, &state, NULL) || (state.trouble = g_strdup ("it cannot be opened")) != NULL);
    g_assert_nonnull (state.trouble);
    ecfs_cache_state_clear (&state);
    ecfs_cache_free (cache);
    ecfs_cache_index_discard (directory);
    g_assert_true (g_file_get_contents (other, &text, NULL, NULL));
    g_assert_cmpstr (text, ==, "theirs\n");
    g_autofree char *clean = g_strdup_printf ("rm -rf '%s'", aside);
    g_assert_cmpint (system (clean), ==, 0);
    tear_down ();
}

static void test_strange (void)
{
    check_strange ("chmod 777 .", false);
    check_strange ("chmod 770 cells", false);
    check_strange ("cp -a cells/* $ASIDE/cells/ && rm -r cells && ln -s $ASIDE/cells cells", false);
    check_strange ("cp -a * $ASIDE/ && cd / && rm -r \"$OLDPWD\" && ln -s $ASIDE \"$OLDPWD\"", false);
    check_strange ("rm index.sqlite* && ln -s $ASIDE/cells/00/other index.sqlite", true);
    if (geteuid () == 0)
        check_strange ("chown 12345 .", false);
}

/* Files that the index does not know go when the machine was started anew. */
static void test_sweep (void)
{
    set_up ();
    EcfsCache *cache = open_cache (64 * MIB, 0);
    fill_and_wait (cache, 0, 2);
    ecfs_cache_free (cache);
    g_autofree char *known = path_of (0), *unknown = path_of (77), *folder = g_path_get_dirname (unknown);
    g_autofree char *copy = g_strdup_printf ("mkdir -p '%s' && cp '%s' '%s' && touch -d '1 hour ago' '%s' && "
                                             "sqlite3 '%s/index.sqlite' \"UPDATE totals SET boot = 'another'\"",
                                             folder, known, unknown, unknown, directory);
    g_autofree char *sqlite = g_find_program_in_path ("sqlite3");
    if (sqlite == NULL) {
        g_test_skip ("there is no sqlite3");
        tear_down ();
        return;
    }
    g_assert_cmpint (system (copy), ==, 0);
    cache = open_cache (64 * MIB, 0);
    for (unsigned i = 0; i < 5000 && g_file_test (unknown, G_FILE_TEST_EXISTS); i++)
        fill_and_wait (cache, 5, 6);
    g_assert_false (g_file_test (unknown, G_FILE_TEST_EXISTS));
    g_assert_true (has (cache, 0));
    ecfs_cache_free (cache);
    tear_down ();
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/cache/gives-back-what-was-filled-in", test_gives_back);
    g_test_add_func ("/cache/writes-at-stop-what-is-queued", test_queue_is_written_at_stop);
    g_test_add_func ("/cache/lets-go-of-what-was-not-used-for-longest", test_least_recently_used_goes);
    g_test_add_func ("/cache/keeps-what-is-pinned", test_pinned_stays);
    g_test_add_func ("/cache/shrinks-to-a-smaller-limit", test_shrinks);
    g_test_add_func ("/cache/takes-nothing-when-all-is-pinned", test_all_pinned);
    g_test_add_func ("/cache/takes-damage-for-absence", test_damage);
    g_test_add_func ("/cache/begins-anew-with-a-damaged-index", test_damaged_index);
    g_test_add_func ("/cache/forgets", test_forget_and_drop);
    g_test_add_func ("/cache/takes-nothing-older-than-forgetting", test_forgotten_is_not_taken);
    g_test_add_func ("/cache/gives-way", test_gives_way);
    g_test_add_func ("/cache/gives-way-while-it-fills", test_gives_way_while_it_fills);
    g_test_add_func ("/cache/is-never-wrong-after-kill", test_killed);
    g_test_add_func ("/cache/is-shared-by-processes", test_two_processes);
    g_test_add_func ("/cache/fits-a-full-disk", test_full_disk);
    g_test_add_func ("/cache/does-without-a-directory", test_no_directory);
    g_test_add_func ("/cache/believes-nothing-where-others-write", test_strange);
    g_test_add_func ("/cache/sweeps-what-the-index-does-not-know", test_sweep);
    return g_test_run ();
}
