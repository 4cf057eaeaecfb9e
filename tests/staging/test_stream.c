/* Storing files while they are being written. */
#include "archive/archive_priv.h"
#include "program/program.h"
#include "staged_fixture.h"
#include "staging/staged_priv.h"
#include "util/io.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGMENT 65536
#define LEAST   (4 * SEGMENT) /* bytes that a file has before it is read along */
#define SIZE    (16 * SEGMENT + 12345)
#define STEP    10000

static void small_segments (EcfsConfig *config)
{
    config->segment_size = SEGMENT;
    config->small_file = 0;
}

static void small_segments_async (EcfsConfig *config)
{
    small_segments (config);
    async (config);
}

/* What lies on the endpoints */

static uint64_t n_bytes;
static unsigned n_stripes;

static int add (const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void) where;
    if (type != FTW_F || (strstr (path, "/stripes/") == NULL && strstr (path, "/incoming/") == NULL))
        return 0;
    n_bytes += (uint64_t) status->st_size;
    n_stripes += strstr (path, "/stripes/") != NULL;
    return 0;
}

static uint64_t bytes_at_endpoints (const Fixture *fixture)
{
    n_bytes = n_stripes = 0;
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        g_autofree char *path = endpoint_path (fixture, i);
        (void) nftw (path, add, 16, FTW_PHYS); /* files that go meanwhile are not counted */
    }
    return n_bytes;
}

static void wait_for_bytes (const Fixture *fixture, uint64_t least)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (bytes_at_endpoints (fixture) < least) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (1000);
    }
}

/* Nothing is left of what was abandoned: six stripes of each of @n_files, and nothing unfinished. */
static void wait_for_stripes_of (const Fixture *fixture, unsigned n_files, uint64_t bytes)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    uint64_t expected = bytes * N_ENDPOINTS / 4;
    uint64_t there;
    while ((there = bytes_at_endpoints (fixture)) < expected || there > expected + expected / 20 + 40000 * n_files ||
           n_stripes != n_files * N_ENDPOINTS) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (1000);
    }
}

static bool is_streaming (EcfsStaged *staged)
{
    ecfs_mutex_lock (&staged->table->lock);
    bool streaming = staged->phase == ECFS_PHASE_STREAMING;
    ecfs_mutex_unlock (&staged->table->lock);
    return streaming;
}

static void wait_until_abandoned (EcfsStaged *staged)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (is_streaming (staged)) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (1000);
    }
}

static void put_range (EcfsStaged *staged, const uint8_t *bytes, size_t from, size_t to)
{
    for (size_t at = from; at < to; at += STEP)
        put (staged, bytes + at, MIN (STEP, to - at), at);
}

static void wait_until_taken (EcfsStaged *staged, uint64_t bytes)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    EcfsFeedState state;
    do {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (1000);
        ecfs_mutex_lock (&staged->table->lock);
        ecfs_feed_look (staged->feed, &state);
        ecfs_mutex_unlock (&staged->table->lock);
    } while (state.taken < bytes);
}

/* A new file whose first @size bytes are written, and read along as far as segments are whole. */
static EcfsStaged *begin (Fixture *fixture, const char *name, const uint8_t *bytes, size_t size, uint64_t *ret_ino)
{
    EcfsStaged *staged = create (fixture, name, ret_ino);
    put_range (staged, bytes, 0, LEAST - 1);
    g_assert_false (is_streaming (staged));
    put_range (staged, bytes, LEAST - 1, size);
    g_assert_true (is_streaming (staged));
    wait_until_taken (staged, size / SEGMENT * SEGMENT);
    return staged;
}

static void close_and_check (Fixture *fixture, EcfsStaged *staged, uint64_t ino, const uint8_t *bytes, size_t size)
{
    g_assert_cmpint (flush (staged), ==, 0);
    assert_content (fixture, ino, bytes, size);
    ecfs_staged_release (staged);
    wait_until_staging_is_empty (fixture);
    g_assert_cmpuint (count_rows (fixture), ==, 0);
    wait_for_stripes_of (fixture, 1, size);
    assert_content (fixture, ino, bytes, size);
}

/* Cases */

static void test_before_close (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    EcfsStaged *staged = begin (fixture, "file", bytes, 12 * SEGMENT + 5, &ino);
    put_range (staged, bytes, 12 * SEGMENT + 5, SIZE);
    wait_for_bytes (fixture, (SIZE / SEGMENT) * SEGMENT * 6 / 4);
    ecfs_mutex_lock (&staged->table->lock);
    EcfsFeed *feed = ecfs_feed_ref (staged->feed);
    ecfs_mutex_unlock (&staged->table->lock);
    close_and_check (fixture, staged, ino, bytes, SIZE);
    EcfsFeedState state;
    ecfs_feed_look (feed, &state);
    g_assert_true (state.final && !state.abandoned); /* what was sent before is what was committed */
    ecfs_feed_unref (feed);
}

static void test_last_release (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    EcfsStaged *staged = begin (fixture, "file", bytes, SIZE, &ino);
    ecfs_staged_release (staged);
    wait_until_stored (fixture);
    assert_content (fixture, ino, bytes, SIZE);
    wait_for_stripes_of (fixture, 1, SIZE);
}

/* The size ends with a segment, so nothing is left to encode at close. */
static void test_whole_segments (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    g_autofree uint8_t *bytes = random_bytes (8 * SEGMENT);
    EcfsStaged *staged = begin (fixture, "file", bytes, 8 * SEGMENT, &ino);
    wait_for_bytes (fixture, 8 * SEGMENT * 6 / 4);
    close_and_check (fixture, staged, ino, bytes, 8 * SEGMENT);
}

/* Changes under way */

static void punch (EcfsStaged *staged, uint64_t offset, uint64_t size)
{
    g_assert_true (ecfs_staged_change_begin (staged, offset, 0, NULL));
    g_assert_cmpint (
        fallocate (ecfs_staged_fd (staged), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t) offset, (off_t) size),
        ==, 0);
    (void) ecfs_staged_change_end (staged, 0, 0, 1);
}

static void truncate_to (EcfsStaged *staged, uint64_t size)
{
    g_assert_true (ecfs_staged_truncate (staged, size, 1, NULL));
}

/* A file, read along up to its 12th segment, that a change makes @size bytes long. */
typedef struct Change {
    const char *name;
    size_t size;
    void (*make) (EcfsStaged *staged, uint8_t *bytes);
    bool survives;
} Change;

#define BEFORE (12 * SEGMENT + 5)

static void write_at (EcfsStaged *staged, uint8_t *bytes, size_t offset)
{
    memset (bytes + offset, 'x', 1000);
    put (staged, bytes + offset, 1000, offset);
}

static void at_start (EcfsStaged *staged, uint8_t *bytes)
{
    write_at (staged, bytes, 0);
}

static void in_middle (EcfsStaged *staged, uint8_t *bytes)
{
    write_at (staged, bytes, 3 * SEGMENT + 7);
}

static void behind_gap (EcfsStaged *staged, uint8_t *bytes)
{
    memset (bytes + BEFORE, 0, SEGMENT);
    write_at (staged, bytes, BEFORE + SEGMENT);
}

static void at_end (EcfsStaged *staged, uint8_t *bytes)
{
    write_at (staged, bytes, BEFORE);
}

static void over_end (EcfsStaged *staged, uint8_t *bytes)
{
    write_at (staged, bytes, BEFORE - 3); /* of the last segment, which is not whole */
}

static void shorter (EcfsStaged *staged, uint8_t *bytes)
{
    truncate_to (staged, 5 * SEGMENT);
}

static void longer (EcfsStaged *staged, uint8_t *bytes)
{
    memset (bytes + BEFORE, 0, SEGMENT);
    truncate_to (staged, BEFORE + SEGMENT);
}

static void emptied (EcfsStaged *staged, uint8_t *bytes)
{
    truncate_to (staged, 0);
    put_range (staged, bytes + 1, 0, 7 * SEGMENT);
    memmove (bytes, bytes + 1, 7 * SEGMENT);
}

static void punched (EcfsStaged *staged, uint8_t *bytes)
{
    punch (staged, 2 * SEGMENT, SEGMENT);
    memset (bytes + 2 * SEGMENT, 0, SEGMENT);
}

static void nothing (EcfsStaged *staged, uint8_t *bytes)
{
    truncate_to (staged, BEFORE);
}

static const Change changes[] = {
    {"at the start", BEFORE, at_start, false},
    {"in the middle", BEFORE, in_middle, false},
    {"behind a gap", BEFORE + SEGMENT + 1000, behind_gap, false},
    {"at the end", BEFORE + 1000, at_end, true},
    {"over the end", BEFORE - 3 + 1000, over_end, true},
    {"shorter", 5 * SEGMENT, shorter, false},
    {"longer", BEFORE + SEGMENT, longer, false},
    {"emptied", 7 * SEGMENT, emptied, false},
    {"punched", BEFORE, punched, false},
    {"not changed", BEFORE, nothing, true},
};

static void test_changes (Fixture *fixture, gconstpointer data)
{
    for (size_t i = 0; i < G_N_ELEMENTS (changes); i++) {
        const Change *change = &changes[i];
        uint64_t ino;
        g_autofree uint8_t *bytes = random_bytes (SIZE);
        g_test_message ("%s", change->name);
        EcfsStaged *staged = begin (fixture, change->name, bytes, BEFORE, &ino);
        change->make (staged, bytes);
        if (change->survives)
            g_assert_true (is_streaming (staged));
        g_assert_cmpint (flush (staged), ==, 0);
        assert_content (fixture, ino, bytes, change->size);
        ecfs_staged_release (staged);
        wait_until_staging_is_empty (fixture);
        assert_content (fixture, ino, bytes, change->size);
        EcfsAttr attr;
        g_assert_true (
            ecfs_catalog_unlink (ecfs_archive_catalog (fixture->archive), ECFS_ROOT_INO, change->name, &attr, NULL));
        g_assert_true (ecfs_catalog_drop (ecfs_archive_catalog (fixture->archive), ino, NULL));
    }
    wait_for_stripes_of (fixture, 0, 0);
}

static void test_pause (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    EcfsStagedTable *table = ecfs_archive_service (fixture->archive, ECFS_SERVICE_STAGING);
    ecfs_mutex_lock (&table->lock);
    table->stream_patience_us = G_USEC_PER_SEC / 5;
    ecfs_mutex_unlock (&table->lock);
    EcfsStaged *staged = create (fixture, "file", &ino);
    put_range (staged, bytes, 0, 6 * SEGMENT);
    wait_until_abandoned (staged);
    wait_for_stripes_of (fixture, 0, 0);
    put_range (staged, bytes, 6 * SEGMENT, 7 * SEGMENT);
    g_assert_false (is_streaming (staged));
    put_range (staged, bytes, 7 * SEGMENT, SIZE); /* twice as much as was given up */
    close_and_check (fixture, staged, ino, bytes, SIZE);
}

/* A change that began before it is read along, and whose bytes come after: as of an mmap beside write(2). */
static void test_change_before (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    EcfsStaged *staged = create (fixture, "file", &ino);
    put_range (staged, bytes, 0, LEAST - 1);
    g_assert_true (ecfs_staged_change_begin (staged, 50, 0, NULL));
    put_range (staged, bytes, LEAST - 1, 8 * SEGMENT);
    g_assert_false (is_streaming (staged));
    memset (bytes + 50, 'x', 1000);
    g_assert_cmpint (ecfs_pwrite_all (ecfs_staged_fd (staged), bytes + 50, 1000, 50), ==, 0);
    (void) ecfs_staged_change_end (staged, 0, 0, 1);
    put_range (staged, bytes, 8 * SEGMENT, SIZE);
    close_and_check (fixture, staged, ino, bytes, SIZE);
}

/* Attempts that read along end while their writers go on. */
static void test_abandoned_often (Fixture *fixture, gconstpointer data)
{
    enum { N_FILES = 40, PIECE = 512 };
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    for (unsigned i = 0; i < N_FILES; i++) {
        uint64_t ino;
        g_autofree char *name = g_strdup_printf ("file%u", i);
        EcfsStaged *staged = begin (fixture, name, bytes, 6 * SEGMENT, &ino);
        put (staged, bytes + i, 1, i);
        for (size_t at = 6 * SEGMENT; at < SIZE; at += PIECE)
            put_range (staged, bytes, at, MIN (at + PIECE, SIZE));
        g_assert_cmpint (flush (staged), ==, 0);
        assert_content (fixture, ino, bytes, SIZE);
        ecfs_staged_release (staged);
    }
    wait_until_staging_is_empty (fixture);
}

/* However many are read along, others are stored. */
static void test_many_writers (Fixture *fixture, gconstpointer data)
{
    enum { N_FILES = ECFS_N_STREAMS + 2 };
    EcfsStaged *staged[N_FILES];
    uint64_t inos[N_FILES];
    g_autofree uint8_t *bytes = random_bytes (SIZE + N_FILES);
    for (unsigned i = 0; i < N_FILES; i++) {
        g_autofree char *name = g_strdup_printf ("file%u", i);
        staged[i] = create (fixture, name, &inos[i]);
        put_range (staged[i], bytes + i, 0, 8 * SEGMENT + i);
        g_assert_true (is_streaming (staged[i]) == (i < ECFS_N_STREAMS));
    }
    uint64_t ino = store (fixture, "another", bytes, SIZE);
    assert_content (fixture, ino, bytes, SIZE);
    for (unsigned i = 0; i < N_FILES; i++)
        put_range (staged[i], bytes + i, 8 * SEGMENT + i, SIZE);
    for (unsigned i = 0; i < N_FILES; i++) {
        g_assert_cmpint (flush (staged[i]), ==, 0);
        ecfs_staged_release (staged[i]);
        assert_content (fixture, inos[i], bytes + i, SIZE);
    }
    wait_until_staging_is_empty (fixture);
    wait_for_stripes_of (fixture, N_FILES + 1, (N_FILES + 1) * (uint64_t) SIZE);
}

/* Endpoints and catalog */

static void test_endpoint_lost (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    EcfsStaged *staged = begin (fixture, "file", bytes, 8 * SEGMENT, &ino);
    hide_endpoint (fixture, 0, true);
    put_range (staged, bytes, 8 * SEGMENT, SIZE);
    g_assert_cmpint (flush (staged), ==, 0);
    assert_content (fixture, ino, bytes, SIZE);
    ecfs_staged_release (staged);
    hide_endpoint (fixture, 0, false);
    wait_until_stored (fixture);
    assert_content (fixture, ino, bytes, SIZE);
}

/* What reads along may fail for itself; the commit says whether the file is stored. */
static void test_endpoints_lost_meanwhile (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    hide_three (fixture, true);
    EcfsStaged *staged = create (fixture, "file", &ino);
    put_range (staged, bytes, 0, 8 * SEGMENT);
    wait_until_abandoned (staged);
    hide_three (fixture, false);
    ecfs_archive_revive_endpoints (fixture->archive);
    put_range (staged, bytes, 8 * SEGMENT, 9 * SEGMENT);
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (flush (staged) != 0)
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
    close_and_check (fixture, staged, ino, bytes, 9 * SEGMENT);
}

static void test_another_code (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    EcfsStaged *staged = begin (fixture, "file", bytes, 8 * SEGMENT, &ino);
    EcfsCatalog *catalog = ecfs_archive_catalog (fixture->archive);
    g_assert_true (ecfs_catalog_set_code (catalog, ino, "copies:3", NULL));
    put_range (staged, bytes, 8 * SEGMENT, SIZE);
    g_assert_cmpint (flush (staged), ==, 0);
    ecfs_staged_release (staged);
    assert_content (fixture, ino, bytes, SIZE);
    g_autoptr (GArray) extents = ecfs_catalog_extents (catalog, ino, NULL);
    g_assert_cmpuint (extents->len, ==, 1);
    g_autoptr (EcfsObjectRow) object =
        ecfs_catalog_object (catalog, g_array_index (extents, EcfsExtent, 0).object, NULL);
    g_assert_cmpuint (object->stripes->len, ==, 3);
}

static void test_unlinked (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    EcfsAttr attr;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    EcfsStaged *staged = begin (fixture, "file", bytes, 8 * SEGMENT, &ino);
    g_assert_true (ecfs_catalog_unlink (ecfs_archive_catalog (fixture->archive), ECFS_ROOT_INO, "file", &attr, NULL));
    ecfs_staged_unlinked (fixture->archive, ino);
    wait_until_abandoned (staged);
    put_range (staged, bytes, 8 * SEGMENT, SIZE);
    g_assert_false (is_streaming (staged));
    g_assert_cmpint (flush (staged), ==, 0);
    wait_for_stripes_of (fixture, 0, 0);
    ecfs_staged_release (staged);
    g_assert_true (ecfs_catalog_drop (ecfs_archive_catalog (fixture->archive), ino, NULL));
    ecfs_staged_drop (fixture->archive, ino);
    wait_until_staging_is_empty (fixture);
}

static void test_stop (Fixture *fixture, gconstpointer data)
{
    uint64_t ino, closed;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    EcfsStaged *staged = begin (fixture, "half", bytes, 8 * SEGMENT, &ino);
    EcfsStaged *other = begin (fixture, "whole", bytes, SIZE, &closed);
    ecfs_staged_release (other);
    g_assert_cmpuint (stop (fixture), ==, 1); /* nobody knows whether the first is all there */
    ecfs_staged_release (staged);
    reopen (fixture);
    start (fixture);
    assert_content (fixture, closed, bytes, SIZE);
    g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 1);
    wait_for_stripes_of (fixture, 1, SIZE);
}

static void write_and_die (Fixture *fixture)
{
    uint64_t ino;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    (void) begin (fixture, "file", bytes, 10 * SEGMENT, &ino);
    wait_for_bytes (fixture, 6 * SEGMENT);
}

static void test_crash (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    crash (fixture, write_and_die);
    g_assert_false (exists (fixture, "file", &attr));
    wait_for_stripes_of (fixture, 0, 0);
}

/* Somebody goes on after a close, as after a fork. */
static void test_goes_on (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    EcfsStaged *staged = begin (fixture, "file", bytes, 8 * SEGMENT, &ino);
    Answer *answer = answer_new ();
    ecfs_staged_flush (staged, done, answer);
    put_range (staged, bytes, 8 * SEGMENT, SIZE);
    g_assert_cmpint (code_of (answer, NULL), ==, 0);
    (void) flush (staged);
    ecfs_staged_release (staged);
    wait_until_stored (fixture);
    assert_content (fixture, ino, bytes, SIZE);
    wait_until_staging_is_empty (fixture);
    wait_for_stripes_of (fixture, 1, SIZE);
}

/* Appends, with now and then something else, against what a file is to contain. */
static void test_random (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (4 * SIZE);
    for (unsigned i = 0; i < 30; i++) {
        g_autofree char *name = g_strdup_printf ("file%u", i);
        g_autofree uint8_t *model = g_malloc0 (4 * SIZE);
        size_t size = 0;
        uint64_t ino;
        EcfsStaged *staged = create (fixture, name, &ino);
        unsigned n_steps = (unsigned) g_test_rand_int_range (1, 60);
        for (unsigned step = 0; step < n_steps; step++) {
            bool odd = g_test_rand_int_range (0, 25) == 0;
            size_t from = odd ? (size_t) g_test_rand_int_range (0, 3 * SIZE) : size;
            size_t n = (size_t) g_test_rand_int_range (1, 2 * SEGMENT);
            if (from + n > 4 * SIZE)
                break;
            if (odd && g_test_rand_int_range (0, 2) == 0) {
                truncate_to (staged, from);
                memset (model + MIN (from, size), 0, 4 * SIZE - MIN (from, size));
                size = from;
                continue;
            }
            memcpy (model + from, bytes + n, n);
            put (staged, bytes + n, n, from);
            size = MAX (size, from + n);
            if (g_test_rand_int_range (0, 40) == 0)
                (void) flush (staged);
        }
        (void) flush (staged);
        ecfs_staged_release (staged);
        wait_until_stored (fixture);
        if (size > 0)
            assert_content (fixture, ino, model, size);
    }
}

#define ADD(name, adjust, function)                                                                                    \
    g_test_add ("/stream/" name, Fixture, (gconstpointer) (uintptr_t) (adjust), set_up_staged, function,               \
                tear_down_staged)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    ADD ("is-at-the-endpoints-before-close", small_segments, test_before_close);
    ADD ("is-stored-at-the-last-release", small_segments_async, test_last_release);
    ADD ("ends-with-a-segment", small_segments, test_whole_segments);
    ADD ("changes-are-in-what-is-stored", small_segments, test_changes);
    ADD ("is-not-read-along-behind-a-writer-that-pauses", small_segments, test_pause);
    ADD ("a-change-that-began-before-counts", small_segments, test_change_before);
    ADD ("many-end-under-their-writers", small_segments, test_abandoned_often);
    ADD ("many-writers-hold-up-nobody", small_segments, test_many_writers);
    ADD ("an-endpoint-may-be-lost", small_segments, test_endpoint_lost);
    ADD ("what-fails-meanwhile-fails-no-close", small_segments, test_endpoints_lost_meanwhile);
    ADD ("another-code-meanwhile-counts", small_segments, test_another_code);
    ADD ("an-unlinked-file-leaves-nothing", small_segments, test_unlinked);
    ADD ("the-end-of-the-mount", small_segments, test_stop);
    ADD ("a-crash-leaves-nothing", small_segments, test_crash);
    ADD ("who-goes-on-after-a-close-is-stored-too", small_segments, test_goes_on);
    ADD ("appends-and-other-changes", small_segments, test_random);
    return g_test_run ();
}
