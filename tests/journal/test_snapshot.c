/* When a snapshot of the catalog is due, and that nobody waits while it is stored. */
#include "archive/archive_priv.h"
#include "archive/lineage.h"
#include "catalog/journal_file.h"
#include "catalog/marks.h"
#include "fixture.h"
#include "journal/journal_watch.h"
#include "journal/snapshot.h"

#include "../endpoint/script.h"

#include <glib/gstdio.h>
#include <sqlite3.h>

#define N_FILES     60
#define N_SEGMENTS  900 /* not due yet */
#define N_DUE       1000
#define PATIENCE_US (60 * G_USEC_PER_SEC)
#define LOOK_US     5000
#define OFTEN_US    50000

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
    g_assert_true (ecfs_catalog_snapshot_add (fixture->archive->catalog, &row, 2, INT64_MAX, &error));
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

/* Files of the journal that an endpoint has: all of its segments, and the last parts of snapshots. */
static guint count_kept (const Fixture *fixture, const char *folder)
{
    guint n_files = 0;
    const char *name;
    g_autofree char *root = endpoint_path (fixture, 0), *path = g_build_filename (root, folder, NULL);
    g_autoptr (GDir) directory = g_dir_open (path, 0, NULL);
    while (directory != NULL && (name = g_dir_read_name (directory)) != NULL)
        n_files += strcmp (folder, ECFS_JOURNAL_DIRECTORY) == 0 || g_str_has_suffix (name, "-end");
    return n_files;
}

static void take_and_tidy (Fixture *fixture, const char *name)
{
    g_autoptr (GError) error = NULL;
    EcfsArchive *archive = fixture->archive;
    (void) make_file (fixture, name);
    g_assert_true (ecfs_archive_store_journal (archive, NULL, NULL, &error));
    g_assert_true (ecfs_journal_renew (archive, &error));
    g_assert_true (ecfs_journal_tidy (archive, &error));
}

/* The thread that takes snapshots may look at it. */
static void set_history (Fixture *fixture, int64_t history_us)
{
    EcfsMutex *lock = ecfs_archive_snapshot_lock (fixture->archive);
    ecfs_mutex_lock (lock);
    ((EcfsConfig *) ecfs_archive_config (fixture->archive))->history_us = history_us;
    ecfs_mutex_unlock (lock);
}

/* What tells of the past stays at the endpoints for as long as that is to be shown, and no longer. */
static void test_history_is_kept (Fixture *fixture, gconstpointer data)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    set_history (fixture, INT64_C (3600) * G_USEC_PER_SEC);
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        take_and_tidy (fixture, names[i]);
        g_assert_cmpuint (count_kept (fixture, ECFS_JOURNAL_DIRECTORY), >=, i + 1);
        g_assert_cmpuint (count_kept (fixture, ECFS_SNAPSHOT_DIRECTORY), ==, i + 1);
        g_assert_cmpuint (count_snapshots (fixture), ==, i + 1);
    }
    g_usleep (2 * G_USEC_PER_SEC);
    set_history (fixture, G_USEC_PER_SEC); /* what is needed is the newest before that, and what came since */
    take_and_tidy (fixture, "f");
    take_and_tidy (fixture, "g");
    g_assert_cmpuint (count_snapshots (fixture), ==, 3);
    g_assert_cmpuint (count_kept (fixture, ECFS_SNAPSHOT_DIRECTORY), ==, 3);
    set_history (fixture, 0);
    take_and_tidy (fixture, "h");
    g_assert_cmpuint (count_snapshots (fixture), ==, 2);
    g_assert_cmpuint (count_kept (fixture, ECFS_SNAPSHOT_DIRECTORY), ==, 2);
}

static void run_sql (const Fixture *fixture, const char *sql)
{
    sqlite3 *db;
    g_autofree char *path = g_build_filename (fixture->directory, ECFS_CATALOG_NAME, NULL);
    g_assert_cmpint (sqlite3_open_v2 (path, &db, SQLITE_OPEN_READWRITE, NULL), ==, SQLITE_OK);
    (void) sqlite3_busy_timeout (db, 5000);
    g_assert_cmpint (sqlite3_exec (db, sql, NULL, NULL, NULL), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_close (db), ==, SQLITE_OK);
}

static bool has_shrunk (Fixture *fixture, int64_t since_ns)
{
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (ecfs_archive_catalog (fixture->archive), NULL);
    return ecfs_snapshots_shrunk (rows, since_ns) != NULL;
}

/* Of a catalog that has lost most of its names what was before stays, although no history is kept; for a while. */
static void test_what_shrank_is_kept (Fixture *fixture, gconstpointer data)
{
    static const char *const names[] = {"b", "c", "d"};
    set_history (fixture, 0);
    take_and_tidy (fixture, "a");
    run_sql (fixture, "UPDATE snapshots SET bytes = 1000000");
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        take_and_tidy (fixture, names[i]);
        g_assert_true (has_shrunk (fixture, 0));
        g_assert_cmpuint (count_kept (fixture, ECFS_SNAPSHOT_DIRECTORY), ==, i + 2);
    }
    g_assert_false (has_shrunk (fixture, g_get_real_time () * 1000));
    run_sql (fixture, "UPDATE snapshots SET bytes = 300000 WHERE bytes = 1000000"); /* as packing makes of it */
    run_sql (fixture, "UPDATE snapshots SET bytes = 80000 WHERE bytes <> 300000");
    int64_t end_us = ecfs_now_us () + PATIENCE_US;
    while (has_shrunk (fixture, 0) && ecfs_now_us () < end_us)
        g_usleep (LOOK_US); /* the archive reads for a moment what there was */
    g_assert_false (has_shrunk (fixture, 0));
    take_and_tidy (fixture, "e"); /* which is smaller than that, and too small to be told of */
    run_sql (fixture, "UPDATE snapshots SET bytes = 80000");
    take_and_tidy (fixture, "f");
    g_assert_cmpuint (count_kept (fixture, ECFS_SNAPSHOT_DIRECTORY), ==, 2);
}

/* What somebody took out of the catalog stays at the endpoints. */
static void test_taken_away (Fixture *fixture, gconstpointer data)
{
    g_autoptr (GError) error = NULL;
    set_history (fixture, 0);
    take_and_tidy (fixture, "a");
    take_and_tidy (fixture, "b");
    run_sql (fixture, "CREATE TABLE kept AS SELECT * FROM entries");
    run_sql (fixture, "DELETE FROM entries");
    for (unsigned i = 0; i < 3; i++) {
        g_clear_error (&error);
        g_assert_false (ecfs_journal_renew (fixture->archive, &error));
        g_assert_error (error, ECFS_ERROR, EBADMSG);
    }
    g_assert_cmpuint (count_snapshots (fixture), ==, 2);
    g_assert_cmpuint (count_kept (fixture, ECFS_SNAPSHOT_DIRECTORY), ==, 2);
    run_sql (fixture, "INSERT INTO entries SELECT * FROM kept");
    run_sql (fixture, "DROP TABLE kept");
    take_and_tidy (fixture, "c");
}

/* What tells of a mark's moment stays until it is removed, whatever the clock said when it was set. */
static void test_marks_keep (Fixture *fixture, gconstpointer data)
{
    static const char *const names[] = {"b", "c", "d"};
    EcfsCatalog *catalog = ecfs_archive_catalog (fixture->archive);
    (void) make_file (fixture, "a"); /* that the journal alone tells of */
    g_assert_true (ecfs_archive_store_journal (fixture->archive, NULL, NULL, NULL));
    g_assert_true (ecfs_catalog_mark_add (catalog, "marked", NULL) && ecfs_catalog_barrier (catalog, NULL));
    run_sql (fixture, "UPDATE marks SET time_ns = time_ns + 3600000000000");
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        take_and_tidy (fixture, names[i]);
        g_assert_cmpuint (count_kept (fixture, ECFS_JOURNAL_DIRECTORY), >=, i + 2);
    }
    g_assert_true (ecfs_catalog_mark_remove (catalog, "marked", NULL));
    take_and_tidy (fixture, "e");
    take_and_tidy (fixture, "f");
    g_assert_cmpuint (count_kept (fixture, ECFS_JOURNAL_DIRECTORY), <=, 2);
    g_assert_cmpuint (count_kept (fixture, ECFS_SNAPSHOT_DIRECTORY), ==, 2);
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

/* A large catalog is copied first, in the place of what a crash has left there, and no copy stays. */
static void test_large_is_copied (Fixture *fixture, gconstpointer data)
{
    g_autoptr (GError) error = NULL;
    uint64_t before = atomic_load (&ecfs_snapshot_copy_bytes);
    make_files (fixture);
    unsigned n_files = count_files (fixture->directory);
    g_autofree char *copy = g_build_filename (fixture->directory, ECFS_CATALOG_COPY_NAME, NULL);
    g_assert_true (g_file_set_contents (copy, "left", 4, NULL));
    atomic_store (&ecfs_snapshot_copy_bytes, 1);
    g_assert_true (ecfs_archive_store_journal (fixture->archive, NULL, NULL, &error));
    g_assert_true (ecfs_journal_renew (fixture->archive, &error));
    atomic_store (&ecfs_snapshot_copy_bytes, before);
    g_assert_no_error (error);
    g_assert_cmpuint (count_files (fixture->directory), ==, n_files);
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (ecfs_archive_catalog (fixture->archive), NULL);
    g_assert_cmpuint (rows->len, ==, 1);
    g_assert_cmpuint (g_array_index (rows, EcfsSnapshotRow, 0).bytes, >, N_FILES * 100);
}

static void test_disk_is_left (Fixture *fixture, gconstpointer data)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *path = g_build_filename (fixture->directory, ECFS_CATALOG_NAME, NULL);
    EcfsEndpoint *endpoint = fixture->archive->endpoints[0].endpoint;
    const EcfsSnapshotOrder order = {
        .catalog = path, .reserve_bytes = UINT64_MAX / 2, .endpoints = &endpoint, .n_endpoints = 1};
    EcfsSnapshotRow row;
    size_t failed;
    unsigned before = count_files (fixture->directory);
    g_assert_false (ecfs_snapshot_store (&order, &row, &failed, &error));
    g_assert_error (error, ECFS_ERROR, ENOSPC);
    g_assert_cmpuint (failed, ==, 1);
    g_assert_cmpuint (count_files (fixture->directory), ==, before);
}

/* What an endpoint has lost */

static char *kind_path (const Fixture *fixture, unsigned endpoint, const char *kind)
{
    g_autofree char *root = endpoint_path (fixture, endpoint);
    return g_build_filename (root, kind, NULL);
}

static unsigned count_journal (const Fixture *fixture, unsigned endpoint)
{
    g_autofree char *segments = kind_path (fixture, endpoint, ECFS_JOURNAL_DIRECTORY);
    g_autofree char *parts = kind_path (fixture, endpoint, ECFS_SNAPSHOT_DIRECTORY);
    return count_files (segments) + count_files (parts);
}

/* Removes it; where nothing is to come back, a file takes the place of the directory in which all begins. */
static void lose_journal (const Fixture *fixture, unsigned endpoint, bool for_good)
{
    static const char *const kinds[] = {"incoming", ECFS_JOURNAL_DIRECTORY, ECFS_SNAPSHOT_DIRECTORY};
    for (size_t i = for_good ? 0 : 1; i < G_N_ELEMENTS (kinds); i++) {
        g_autofree char *path = kind_path (fixture, endpoint, kinds[i]);
        remove_tree (path);
        g_assert_true (i == 0 ? g_file_set_contents (path, "", 0, NULL) : g_mkdir_with_parents (path, 0700) == 0);
    }
}

static void store_journal (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    make_files (fixture);
    g_assert_true (ecfs_archive_store_journal (fixture->archive, NULL, NULL, &error));
    g_assert_no_error (error);
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        while (count_journal (fixture, i) == 0) /* some are later than as many as are needed */
            g_usleep (LOOK_US);
}

/* Often, or as it is. */
static void look_often (bool often)
{
    static int64_t look_us, retry_us, watch_us, again_us;
    if (often) {
        look_us = atomic_load (&ecfs_snapshot_look_us);
        watch_us = atomic_load (&ecfs_snapshot_watch_us);
        retry_us = atomic_load (&ecfs_snapshot_retry_us); /* one may be under way when the journal is lost */
        again_us = atomic_load (&ecfs_lineage_again_us);  /* for what the keeper sleeps at most */
    }
    atomic_store (&ecfs_snapshot_look_us, often ? OFTEN_US : look_us);
    atomic_store (&ecfs_snapshot_retry_us, often ? OFTEN_US : retry_us);
    atomic_store (&ecfs_snapshot_watch_us, often ? OFTEN_US : watch_us);
    atomic_store (&ecfs_lineage_again_us, often ? OFTEN_US : again_us);
}

static void test_lost_is_stored_anew (Fixture *fixture, gconstpointer data)
{
    look_often (true);
    reopen (fixture); /* what looks takes its times when it begins */
    store_journal (fixture);
    for (unsigned i = 0; i < 3; i++) {
        int64_t end_us = ecfs_now_us () + PATIENCE_US;
        lose_journal (fixture, i, false);
        while (count_journal (fixture, i) == 0 && ecfs_now_us () < end_us)
            g_usleep (LOOK_US);
        g_assert_cmpuint (count_journal (fixture, i), >, 0);
    }
    look_often (false);
}

/* What was seen to be gone is not claimed any more. */
static void test_lost_is_not_claimed (Fixture *fixture, gconstpointer data)
{
    EcfsRecoveryPoint point;
    g_autoptr (GError) error = NULL;
    int64_t end_us = ecfs_now_us () + PATIENCE_US;
    look_often (true);
    reopen (fixture);
    store_journal (fixture);
    g_assert_true (ecfs_archive_recovery_point (fixture->archive, &point, &error));
    g_assert_cmpuint (point.stored, >=, N_FILES);
    for (unsigned i = 0; i < 4; i++)
        lose_journal (fixture, i, true);
    do {
        g_usleep (LOOK_US);
        g_assert_true (ecfs_archive_recovery_point (fixture->archive, &point, &error));
    } while (point.stored > 0 && ecfs_now_us () < end_us);
    g_assert_cmpuint (point.stored, ==, 0);
    for (unsigned i = 0; i < 4; i++) { /* so that the archive is closed at once */
        g_autofree char *path = kind_path (fixture, i, "incoming");
        g_assert_cmpint (g_remove (path), ==, 0);
    }
    look_often (false);
}

/* A segment at an endpoint, whose last record is changed, with checksums that fit. */
static void forge_segment (const Fixture *fixture, unsigned endpoint)
{
    EcfsJournalFile file;
    g_autoptr (GError) error = NULL;
    g_autofree char *directory = kind_path (fixture, endpoint, ECFS_JOURNAL_DIRECTORY), *bytes = NULL;
    g_autoptr (GDir) dir = g_dir_open (directory, 0, NULL);
    g_autofree char *path = g_build_filename (directory, g_dir_read_name (dir), NULL);
    size_t size;
    g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
    g_autoptr (GPtrArray) rows = ecfs_journal_file_parse ((const uint8_t *) bytes, size, NULL, &file, &error);
    g_assert_no_error (error);
    g_autoptr (GByteArray) raw = g_byte_array_new ();
    for (guint i = 0; i < rows->len; i++) {
        const EcfsJournalRow *row = g_ptr_array_index (rows, i);
        if (i + 1 == rows->len)
            row->record->data[row->record->len - 1] ^= 1;
        ecfs_journal_file_put (raw, row->sequence, row->time_ns, row->record->data, row->record->len);
    }
    g_autoptr (GByteArray) forged = ecfs_journal_file_format (&file, raw, NULL);
    g_assert_true (g_file_set_contents (path, (const char *) forged->data, (gssize) forged->len, NULL));
}

static void test_forged_is_missing (Fixture *fixture, gconstpointer data)
{
    store_journal (fixture);
    forge_segment (fixture, 2);
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        for (unsigned deep = 0; deep < 2; deep++) {
            EcfsJournalSight sight;
            g_autoptr (GError) error = NULL;
            g_assert_true (ecfs_journal_look (fixture->archive, i, deep, &sight, &error));
            g_assert_true ((sight.missing != NULL) == (i == 2 && deep));
            g_free (sight.missing);
        }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL); /* what was lost is warned of */
    script_register ();
    g_test_add ("/snapshot/segments-behind-the-last-are-counted", Fixture, "rs:4+2", set_up, test_segments_are_counted,
                tear_down);
    g_test_add_func ("/snapshot/many-segments-make-one-due", test_many_are_due);
    g_test_add ("/snapshot/catalog-is-free-while-it-is-sent", Fixture, "rs:4+2", set_up, test_catalog_is_free,
                tear_down);
    g_test_add ("/snapshot/large-is-copied", Fixture, "rs:4+2", set_up, test_large_is_copied, tear_down);
    g_test_add ("/snapshot/disk-is-left-to-others", Fixture, "rs:4+2", set_up, test_disk_is_left, tear_down);
    g_test_add ("/snapshot/one-that-is-due-is-taken-when-the-archive-is-closed", Fixture, "rs:4+2", set_up,
                test_last_look, tear_down);
    g_test_add ("/snapshot/one-that-is-due-is-taken-when-somebody-waits", Fixture, "rs:4+2", set_up, test_waiting_looks,
                tear_down);
    g_test_add ("/snapshot/what-shrank-is-kept", Fixture, "rs:4+2", set_up, test_what_shrank_is_kept, tear_down);
    g_test_add ("/snapshot/what-was-taken-out-of-the-catalog-stays", Fixture, "rs:4+2", set_up, test_taken_away,
                tear_down);
    g_test_add ("/snapshot/marks-keep-what-tells-of-them", Fixture, "rs:4+2", set_up, test_marks_keep, tear_down);
    g_test_add ("/snapshot/what-tells-of-the-past-is-kept-for-so-long", Fixture, "rs:4+2", set_up, test_history_is_kept,
                tear_down);
    g_test_add ("/snapshot/what-an-endpoint-lost-is-stored-anew", Fixture, "rs:4+2", set_up, test_lost_is_stored_anew,
                tear_down);
    g_test_add ("/snapshot/what-endpoints-lost-is-not-claimed", Fixture, "rs:4+2", set_up, test_lost_is_not_claimed,
                tear_down);
    g_test_add ("/snapshot/records-that-are-not-ours-are-missing", Fixture, "rs:4+2", set_up, test_forged_is_missing,
                tear_down);
    return g_test_run ();
}
