/* Small segments become few larger ones, which say what these said. */
#include "archive/archive_priv.h"
#include "catalog/journal_file.h"
#include "catalog/journal_rows.h"
#include "fixture.h"
#include "journal/journal_watch.h"
#include "journal/merge.h"
#include "recover/recover.h"

#include <glib/gstdio.h>

#define CODE        "rs:4+2"
#define N_SEGMENTS  130
#define N_NEWEST    64 /* which stay */
#define ENDPOINT    2
#define PATIENCE_US (60 * G_USEC_PER_SEC)

static const EcfsSnapshotRow no_snapshot = {.sequence = 0};

static char *journal_path (const Fixture *fixture)
{
    g_autofree char *root = endpoint_path (fixture, ENDPOINT);
    return g_build_filename (root, ECFS_JOURNAL_DIRECTORY, NULL);
}

static guint count_segments (const Fixture *fixture)
{
    g_autofree char *path = journal_path (fixture);
    return count_files (path);
}

/* The last record that a segment at the endpoint has. */
static uint64_t newest_stored (const Fixture *fixture)
{
    const char *name;
    uint64_t newest = 0;
    g_autofree char *directory = journal_path (fixture);
    g_autoptr (GDir) dir = g_dir_open (directory, 0, NULL);
    while ((name = g_dir_read_name (dir)) != NULL) {
        EcfsJournalFile file;
        g_autofree char *path = g_build_filename (ECFS_JOURNAL_DIRECTORY, name, NULL);
        if (ecfs_journal_file_name_parse (path, &file))
            newest = MAX (newest, file.last);
    }
    return newest;
}

/* Of a change or two each. This endpoint may be later than as many as are needed, and has all in the end. */
static void make_segments (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    for (unsigned i = 0; count_segments (fixture) < N_SEGMENTS; i++) {
        g_autofree char *name = g_strdup_printf ("file %u", i);
        g_assert_cmpuint (i, <, 10 * N_SEGMENTS);
        (void) make_file (fixture, name);
        g_assert_true (ecfs_archive_store_journal (fixture->archive, NULL, NULL, &error));
        g_assert_no_error (error);
    }
    const int64_t end_us = g_get_monotonic_time () + PATIENCE_US;
    while (newest_stored (fixture) < ecfs_catalog_sequence (ecfs_archive_catalog (fixture->archive))) {
        g_assert_cmpint (g_get_monotonic_time (), <, end_us);
        g_usleep (10000);
    }
}

/* "SEQUENCE" → GByteArray of the record, of all segments at the endpoint; they have to agree, but for *ret_n_damaged.
 */
static GHashTable *read_records (const Fixture *fixture, unsigned *ret_n_damaged)
{
    const char *name;
    g_autofree char *directory = journal_path (fixture);
    g_autoptr (GDir) dir = g_dir_open (directory, 0, NULL);
    GHashTable *records = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, (GDestroyNotify) g_byte_array_unref);
    *ret_n_damaged = 0;
    while ((name = g_dir_read_name (dir)) != NULL) {
        g_autofree char *path = g_build_filename (directory, name, NULL), *bytes = NULL;
        size_t size;
        EcfsJournalFile file;
        g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
        g_autoptr (GPtrArray) rows =
            ecfs_journal_file_parse ((const uint8_t *) bytes, size, ecfs_archive_keys (fixture->archive), &file, NULL);
        *ret_n_damaged += rows == NULL;
        for (guint i = 0; rows != NULL && i < rows->len; i++) {
            const EcfsJournalRow *row = g_ptr_array_index (rows, i);
            char *key = g_strdup_printf ("%" G_GUINT64_FORMAT, row->sequence);
            const GByteArray *known = g_hash_table_lookup (records, key);
            if (known != NULL) {
                g_assert_cmpmem (known->data, known->len, row->record->data, row->record->len);
                g_free (key);
            } else {
                g_hash_table_insert (records, key, g_byte_array_ref (row->record));
            }
        }
    }
    return records;
}

static void assert_same_records (GHashTable *a, GHashTable *b)
{
    GHashTableIter iter;
    gpointer key, value;
    g_assert_cmpuint (g_hash_table_size (a), ==, g_hash_table_size (b));
    g_hash_table_iter_init (&iter, a);
    while (g_hash_table_iter_next (&iter, &key, &value)) {
        const GByteArray *left = value, *right = g_hash_table_lookup (b, key);
        g_assert_nonnull (right);
        g_assert_cmpmem (left->data, left->len, right->data, right->len);
    }
}

static EcfsMerged merge_once (Fixture *fixture, unsigned endpoint, int64_t for_us)
{
    EcfsMerged merged;
    g_autoptr (GError) error = NULL;
    EcfsMutex *lock = ecfs_archive_snapshot_lock (fixture->archive); /* the archive does it by itself, too */
    ecfs_mutex_lock (lock);
    atomic_store (&ecfs_merge_least, 16);
    g_assert_true (ecfs_journal_merge (fixture->archive, ecfs_archive_endpoint (fixture->archive, endpoint)->endpoint,
                                       &no_snapshot, ecfs_now_us () + for_us, NULL, &merged, &error));
    g_assert_no_error (error);
    atomic_store (&ecfs_merge_least, UINT_MAX);
    ecfs_mutex_unlock (lock);
    return merged;
}

/* Twice: what is merged goes when that is looked at again. */
static uint64_t merge (Fixture *fixture)
{
    EcfsMerged merged = merge_once (fixture, ENDPOINT, PATIENCE_US);
    g_assert_true (merged.is_done);
    g_assert_cmpuint (merge_once (fixture, ENDPOINT, PATIENCE_US).n_behind, ==, merged.n_behind);
    return merged.n_behind;
}

static void test_few_say_the_same (Fixture *fixture, gconstpointer data)
{
    unsigned n_damaged;
    make_segments (fixture);
    g_autoptr (GHashTable) before = read_records (fixture, &n_damaged);
    guint n_before = count_segments (fixture);
    g_assert_cmpuint (n_before, >=, N_SEGMENTS);
    EcfsMerged merged = merge_once (fixture, ENDPOINT, PATIENCE_US);
    g_assert_true (merged.is_done);
    g_assert_cmpuint (merged.n_behind, ==, N_NEWEST + 1);
    g_assert_cmpuint (count_segments (fixture), ==, n_before + 1); /* nobody who has listed them misses one yet */
    merged = merge_once (fixture, ENDPOINT, PATIENCE_US);
    g_assert_cmpuint (merged.n_behind, ==, N_NEWEST + 1);
    g_assert_cmpuint (count_segments (fixture), ==, N_NEWEST + 1);
    g_autoptr (GHashTable) after = read_records (fixture, &n_damaged);
    assert_same_records (before, after);
    g_assert_cmpuint (merge (fixture), ==, N_NEWEST + 1); /* nothing is left to do */
    g_assert_cmpuint (count_segments (fixture), ==, N_NEWEST + 1);
}

typedef struct Race {
    Fixture *fixture;
    bool merged;
} Race;

/* When the segments were listed, and none was read yet. */
static bool merge_now (void *user, const char *phase, uint64_t n_done, uint64_t n_all)
{
    Race *self = user;
    (void) n_done;
    (void) n_all;
    for (unsigned i = 0; strcmp (phase, "snapshot") == 0 && !self->merged && i < 2 * N_ENDPOINTS; i++)
        (void) merge_once (self->fixture, i / 2, PATIENCE_US);
    self->merged = self->merged || strcmp (phase, "snapshot") == 0;
    return true;
}

static void assert_same_names (Fixture *fixture, const char *directory)
{
    EcfsAttr attr;
    EcfsTotals totals, again;
    g_autoptr (GError) error = NULL;
    g_autofree char *path = g_build_filename (directory, ECFS_CATALOG_NAME, NULL);
    EcfsCatalog *catalog = ecfs_catalog_open (path, ECFS_CATALOG_READONLY, &error);
    g_assert_no_error (error);
    g_assert_true (ecfs_catalog_totals (ecfs_archive_catalog (fixture->archive), &totals, &error));
    g_assert_true (ecfs_catalog_totals (catalog, &again, &error));
    g_assert_cmpuint (again.n_inodes, ==, totals.n_inodes);
    g_assert_true (ecfs_catalog_lookup (catalog, ECFS_ROOT_INO, "first", &attr, &error));
    g_assert_true (ecfs_catalog_lookup (catalog, ECFS_ROOT_INO, "file 100", &attr, &error));
    g_assert_true (ecfs_catalog_close (catalog, &error));
}

/* The names are those that the archive has, although what was listed vanishes before it is read. */
static void test_recovers (Fixture *fixture, gconstpointer data)
{
    static const char *const nothing[] = {NULL};
    g_autoptr (GError) error = NULL;
    EcfsRecovered sums;
    Race race = {.fixture = fixture};
    (void) make_file (fixture, "first");
    g_assert_true (ecfs_archive_store_journal (fixture->archive, NULL, NULL, &error));
    g_assert_true (ecfs_journal_renew (fixture->archive, &error));
    make_segments (fixture);
    g_autofree char *directory = g_build_filename (fixture->base, "recovered", NULL);
    const EcfsRecover what = {.directory = directory,
                              .config = ecfs_archive_config (fixture->archive),
                              .given = nothing,
                              .read_only = true,
                              .at_ns = g_get_real_time () * 1000,
                              .tick = merge_now,
                              .user = &race};
    g_assert_true (ecfs_archive_recover (&what, &sums, &error));
    g_assert_no_error (error);
    g_assert_true (race.merged);
    g_assert_cmpuint (sums.n_refused, ==, 0);
    g_assert_false (sums.is_older);
    ecfs_recovered_clear (&sums);
    assert_same_names (fixture, directory);
}

static char *saved_path (const Fixture *fixture)
{
    return g_build_filename (fixture->base, "saved", NULL);
}

static void copy_all (const char *from, const char *to)
{
    const char *name;
    g_autoptr (GDir) dir = g_dir_open (from, 0, NULL);
    (void) g_mkdir_with_parents (to, 0700);
    while ((name = g_dir_read_name (dir)) != NULL) {
        g_autofree char *source = g_build_filename (from, name, NULL), *target = g_build_filename (to, name, NULL);
        g_autofree char *bytes = NULL;
        size_t size;
        g_assert_true (g_file_get_contents (source, &bytes, &size, NULL));
        g_assert_true (g_file_set_contents (target, bytes, (gssize) size, NULL));
    }
}

/* As a crash leaves them, behind the larger one and before the first small one went. */
static void merge_and_bring_back (Fixture *fixture)
{
    g_autofree char *journal = journal_path (fixture), *saved = saved_path (fixture);
    copy_all (journal, saved);
    (void) merge (fixture);
    copy_all (saved, journal);
    g_assert_cmpuint (count_segments (fixture), >, N_SEGMENTS);
}

static void test_goes_on_after_a_crash (Fixture *fixture, gconstpointer data)
{
    unsigned n_damaged;
    make_segments (fixture);
    g_autoptr (GHashTable) before = read_records (fixture, &n_damaged);
    merge_and_bring_back (fixture);
    g_assert_cmpuint (merge (fixture), ==, N_NEWEST + 1);
    g_assert_cmpuint (count_segments (fixture), ==, N_NEWEST + 1);
    g_autoptr (GHashTable) after = read_records (fixture, &n_damaged);
    assert_same_records (before, after);
}

static int by_name (const void *a, const void *b)
{
    return strcmp (*(const char *const *) a, *(const char *const *) b);
}

/* The path of the segment that comes @number-th by name. */
static char *segment_path (const Fixture *fixture, guint number)
{
    const char *name;
    g_autofree char *directory = journal_path (fixture);
    g_autoptr (GDir) dir = g_dir_open (directory, 0, NULL);
    g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);
    while ((name = g_dir_read_name (dir)) != NULL)
        g_ptr_array_add (names, g_strdup (name));
    g_ptr_array_sort (names, by_name);
    return g_build_filename (directory, (char *) g_ptr_array_index (names, number), NULL);
}

/* Another copy of the archive directory wrote one of them before it knew that it is old: which counts is not to be
 * decided here. */
static void test_contradictions_stay (Fixture *fixture, gconstpointer data)
{
    EcfsJournalFile file;
    g_autofree char *bytes = NULL;
    size_t size;
    make_segments (fixture);
    merge_and_bring_back (fixture);
    g_autofree char *path = segment_path (fixture, 12);
    g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
    const EcfsKeyRing *keys = ecfs_archive_keys (fixture->archive);
    g_autoptr (GPtrArray) rows = ecfs_journal_file_parse ((const uint8_t *) bytes, size, keys, &file, NULL);
    g_autoptr (GByteArray) raw = g_byte_array_new ();
    for (guint i = 0; i < rows->len; i++) {
        const EcfsJournalRow *row = g_ptr_array_index (rows, i);
        ecfs_journal_file_put (raw, row->sequence, row->time_ns + 1, row->record->data, row->record->len);
    }
    g_autoptr (GByteArray) other = ecfs_journal_file_format (&file, raw, keys);
    g_assert_true (g_file_set_contents (path, (const char *) other->data, other->len, NULL));
    g_assert_cmpuint (merge (fixture), ==, N_NEWEST + 2);
    g_assert_true (g_file_test (path, G_FILE_TEST_EXISTS));
}

/* What is damaged is for fsck to see. */
static void test_damaged_stay (Fixture *fixture, gconstpointer data)
{
    unsigned n_damaged;
    make_segments (fixture);
    g_autofree char *path = segment_path (fixture, 33);
    g_autofree char *bytes = NULL;
    size_t size;
    g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
    bytes[size - 1] ^= 1;
    g_assert_true (g_file_set_contents (path, bytes, (gssize) size, NULL));
    g_autoptr (GHashTable) before = read_records (fixture, &n_damaged);
    g_assert_cmpuint (n_damaged, ==, 1);
    g_assert_cmpuint (merge (fixture), ==, N_NEWEST + 3); /* before it, it, behind it */
    g_assert_true (g_file_test (path, G_FILE_TEST_EXISTS));
    g_autoptr (GHashTable) after = read_records (fixture, &n_damaged);
    g_assert_cmpuint (n_damaged, ==, 1);
    assert_same_records (before, after);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    atomic_store (&ecfs_merge_least, UINT_MAX);
    g_test_add ("/merge/few-say-the-same", Fixture, CODE, set_up_keyed, test_few_say_the_same, tear_down);
    g_test_add ("/merge/open-ones-too", Fixture, CODE, set_up, test_few_say_the_same, tear_down);
    g_test_add ("/merge/it-is-recovered-from", Fixture, CODE, set_up_shared, test_recovers, tear_down);
    g_test_add ("/merge/goes-on-after-a-crash", Fixture, CODE, set_up_keyed, test_goes_on_after_a_crash, tear_down);
    g_test_add ("/merge/contradictions-stay", Fixture, CODE, set_up_keyed, test_contradictions_stay, tear_down);
    g_test_add ("/merge/damaged-ones-stay", Fixture, CODE, set_up_keyed, test_damaged_stay, tear_down);
    return g_test_run ();
}
