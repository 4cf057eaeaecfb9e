/* When a snapshot of the catalog is due, and that nobody waits while it is stored. */
#include "archive/archive_priv.h"
#include "archive/lineage.h"
#include "archive/snapshot.h"
#include "catalog/journal_file.h"
#include "fixture.h"

#include "../endpoint/script.h"

#include <sqlite3.h>

#define N_FILES     60
#define N_SEGMENTS  900 /* not due yet */
#define N_DUE       1000
#define PATIENCE_US (60 * G_USEC_PER_SEC)
#define LOOK_US     5000

static void make_files (Fixture *fixture)
{
    for (unsigned i = 0; i < N_FILES; i++) {
        g_autofree char *name = g_strdup_printf ("file %u", i);
        (void) make_file (fixture, name);
    }
}

/* As endpoints have them after many mounts: nobody reads more than their names until there is a recovery. */
static void make_segments (const Fixture *fixture, unsigned n_segments)
{
    g_autofree char *root = endpoint_path (fixture, 3);
    g_autofree char *directory = g_build_filename (root, ECFS_JOURNAL_DIRECTORY, NULL);
    EcfsJournalFile file = {.kind = ECFS_JOURNAL_SEGMENT, .epoch = 1, .first = 1, .last = 1};
    g_assert_cmpint (g_mkdir_with_parents (directory, 0700), ==, 0);
    for (unsigned i = 0; i < n_segments; i++) {
        char name[ECFS_JOURNAL_NAME_SIZE];
        ecfs_journal_file_name (&file, name);
        g_autofree char *path = g_build_filename (root, name, NULL);
        g_assert_true (g_file_set_contents (path, "", 0, NULL));
        if (++file.first > file.last)
            file = (EcfsJournalFile){.kind = ECFS_JOURNAL_SEGMENT, .epoch = 1, .first = 1, .last = file.last + 1};
    }
    g_assert_cmpuint (file.last, <=, N_FILES);
}

static void add_snapshot (Fixture *fixture, uint64_t sequence)
{
    g_autoptr (GError) error = NULL;
    const EcfsSnapshotRow row = {.epoch = 1, .sequence = sequence, .time_ns = 1, .bytes = 1, .n_copies = 6};
    g_assert_true (ecfs_catalog_snapshot_add (fixture->archive->catalog, &row, 2, &error));
    g_assert_no_error (error);
}

static uint64_t n_segments (const Fixture *fixture)
{
    return ecfs_lineage_n_segments (fixture->archive->lineage);
}

static void test_segments_are_counted (Fixture *fixture, gconstpointer data)
{
    make_files (fixture);
    make_segments (fixture, N_SEGMENTS);
    g_assert_cmpuint (n_segments (fixture), <, N_SEGMENTS);
    reopen (fixture);
    g_assert_cmpuint (n_segments (fixture), >=, N_SEGMENTS);
    add_snapshot (fixture, 40); /* and 1 + 2 + … + 40 end at it or before */
    uint64_t before = n_segments (fixture);
    reopen (fixture);
    g_assert_cmpuint (n_segments (fixture), >=, N_SEGMENTS - 820);
    g_assert_cmpuint (n_segments (fixture), <, before - 800);
    add_snapshot (fixture, ecfs_catalog_sequence (fixture->archive->catalog));
    reopen (fixture);
    g_assert_cmpuint (n_segments (fixture), <, 10);
}

static void test_many_are_due (void)
{
    g_assert_false (ecfs_snapshot_due (999, 0));
    g_assert_true (ecfs_snapshot_due (1000, 0));
    g_assert_true (ecfs_snapshot_due (1000, UINT64_C (200) << 20));
    g_assert_false (ecfs_snapshot_due (1000, UINT64_C (1) << 30)); /* which takes longer than those */
    g_assert_true (ecfs_snapshot_due (4096, UINT64_C (1) << 30));
}

static guint count_snapshots (Fixture *fixture)
{
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (fixture->archive->catalog, NULL);
    g_assert_nonnull (rows);
    return rows->len;
}

static void test_last_look (Fixture *fixture, gconstpointer data)
{
    make_files (fixture);
    reopen (fixture);
    g_assert_cmpuint (count_snapshots (fixture), ==, 0);
    make_segments (fixture, N_DUE);
    reopen (fixture); /* which counts them */
    g_assert_cmpuint (count_snapshots (fixture), ==, 0);
    reopen (fixture);
    g_assert_cmpuint (count_snapshots (fixture), ==, 1);
    reopen (fixture);
    g_assert_cmpuint (count_snapshots (fixture), ==, 1);
}

static void test_waiting_looks (Fixture *fixture, gconstpointer data)
{
    g_autoptr (GError) error = NULL;
    make_files (fixture);
    make_segments (fixture, N_DUE);
    reopen (fixture);
    (void) make_file (fixture, "another");
    g_assert_true (ecfs_archive_store_journal (fixture->archive, NULL, NULL, &error));
    int64_t end_us = ecfs_now_us () + PATIENCE_US;
    while (count_snapshots (fixture) == 0 && ecfs_now_us () < end_us)
        g_usleep (LOOK_US);
    g_assert_cmpuint (count_snapshots (fixture), ==, 1);
}

static void *take_one (void *order)
{
    g_autoptr (GError) error = NULL;
    EcfsSnapshotRow row;
    g_assert_true (ecfs_snapshot_store (order, &row, NULL, &error));
    g_assert_cmpuint (row.bytes, >, 0);
    return NULL;
}

/* Whether SQLite can empty the log: not while anybody reads. */
static bool empties_log (const char *catalog)
{
    sqlite3 *db;
    sqlite3_stmt *checkpoint;
    g_assert_cmpint (sqlite3_open_v2 (catalog, &db, SQLITE_OPEN_READWRITE, NULL), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_prepare_v2 (db, "PRAGMA wal_checkpoint (TRUNCATE)", -1, &checkpoint, NULL), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_step (checkpoint), ==, SQLITE_ROW);
    bool emptied = sqlite3_column_int (checkpoint, 0) == 0;
    g_assert_cmpint (sqlite3_finalize (checkpoint), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_close (db), ==, SQLITE_OK);
    return emptied;
}

static void test_catalog_is_free (Fixture *fixture, gconstpointer data)
{
    EcfsEndpoint *endpoint = script_start ("");
    g_autofree char *path = g_build_filename (fixture->directory, ECFS_CATALOG_NAME, NULL);
    EcfsSnapshotOrder order = {.catalog = path, .endpoints = &endpoint, .n_endpoints = 1};
    pthread_t thread;
    script_set (&script.hold_writes, true);
    (void) make_file (fixture, "in the log");
    g_assert_true (ecfs_catalog_barrier (fixture->archive->catalog, NULL));
    g_assert_cmpint (pthread_create (&thread, NULL, take_one, &order), ==, 0);
    script_wait (&script.n_stuck, 1);
    int64_t end_us = ecfs_now_us () + PATIENCE_US;
    bool emptied;
    while (!(emptied = empties_log (path)) && ecfs_now_us () < end_us)
        g_usleep (LOOK_US); /* the archive reads now and then */
    script_set (&script.released, true);
    g_assert_cmpint (pthread_join (thread, NULL), ==, 0);
    g_assert_true (emptied);
    ecfs_endpoint_stop (endpoint);
    ecfs_endpoint_free (endpoint);
}

static void test_disk_is_left (Fixture *fixture, gconstpointer data)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *path = g_build_filename (fixture->directory, ECFS_CATALOG_NAME, NULL);
    const EcfsSnapshotOrder order = {.catalog = path,
                                     .reserve_bytes = UINT64_MAX / 2,
                                     .endpoints = &fixture->archive->endpoints[0].endpoint,
                                     .n_endpoints = 1};
    EcfsSnapshotRow row;
    size_t failed;
    unsigned before = count_files (fixture->directory);
    g_assert_false (ecfs_snapshot_store (&order, &row, &failed, &error));
    g_assert_error (error, ECFS_ERROR, ENOSPC);
    g_assert_cmpuint (failed, ==, 1);
    g_assert_cmpuint (count_files (fixture->directory), ==, before);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    script_register ();
    g_test_add ("/snapshot/segments-behind-the-last-are-counted", Fixture, "rs:4+2", set_up, test_segments_are_counted,
                tear_down);
    g_test_add_func ("/snapshot/many-segments-make-one-due", test_many_are_due);
    g_test_add ("/snapshot/catalog-is-free-while-it-is-sent", Fixture, "rs:4+2", set_up, test_catalog_is_free,
                tear_down);
    g_test_add ("/snapshot/disk-is-left-to-others", Fixture, "rs:4+2", set_up, test_disk_is_left, tear_down);
    g_test_add ("/snapshot/one-that-is-due-is-taken-when-the-archive-is-closed", Fixture, "rs:4+2", set_up,
                test_last_look, tear_down);
    g_test_add ("/snapshot/one-that-is-due-is-taken-when-somebody-waits", Fixture, "rs:4+2", set_up, test_waiting_looks,
                tear_down);
    return g_test_run ();
}
