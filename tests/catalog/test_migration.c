/* Catalogs of earlier versions: all that they hold is there afterwards, and what fails leaves them as they were. */
#include "check_db.h"
#include "failing_disk.h"
#include "fixture.h"
#include "program/program.h"

#define CURRENT 21 /* a new version needs a way back below */
#define HOUR_NS INT64_C (3600000000000)

/* Step i brings a catalog of version i + 2 to version i + 1. */
static const char *const ways_back[CURRENT - 1] = {
    "ALTER TABLE inodes DROP COLUMN data_bytes; PRAGMA user_version = 1",
    "DROP TABLE codes; PRAGMA user_version = 2",
    ("DROP TABLE age; ALTER TABLE deletions RENAME COLUMN queued_age_ns TO queued_ns; "
     "UPDATE deletions SET queued_ns = 1700000000000000000; PRAGMA user_version = 3"),
    "DROP INDEX directories_with_code; PRAGMA user_version = 4",
    "DROP TABLE estimates; PRAGMA user_version = 5",
    "DROP TABLE journal_places; DROP TABLE settings; DROP TABLE snapshots; PRAGMA user_version = 6",
    "ALTER TABLE snapshots DROP COLUMN n_copies; PRAGMA user_version = 7",
    "DROP TABLE repairs; PRAGMA user_version = 8",
    "PRAGMA user_version = 9",
    "ALTER TABLE inodes DROP COLUMN content_sum; PRAGMA user_version = 10",
    "ALTER TABLE inodes DROP COLUMN committed_mtime_ns; PRAGMA user_version = 11",
    "DROP TABLE sessions; PRAGMA user_version = 12",
    "ALTER TABLE objects DROP COLUMN sha256; PRAGMA user_version = 13",
    "ALTER TABLE objects DROP COLUMN seal; PRAGMA user_version = 14",
    "ALTER TABLE deletions DROP COLUMN sealed; PRAGMA user_version = 15",
    "ALTER TABLE deletions DROP COLUMN seal_key; PRAGMA user_version = 16",
    ("DROP INDEX objects_shared; ALTER TABLE objects DROP COLUMN kind; ALTER TABLE objects DROP COLUMN dead_bytes; "
     "ALTER TABLE extents DROP COLUMN sha256; ALTER TABLE extents DROP COLUMN generation; PRAGMA user_version = 17"),
    "DROP INDEX deletions_by_object; PRAGMA user_version = 18",
    ("DROP INDEX deletions_marked; DROP TABLE released; ALTER TABLE deletions DROP COLUMN bytes; ALTER TABLE deletions "
     "DROP COLUMN queued_ns; "
     "ALTER TABLE counters DROP COLUMN n_lost; DROP TABLE losses; DROP TABLE brake; "
     "ALTER TABLE deletions DROP COLUMN born; ALTER TABLE objects DROP COLUMN since; DROP TABLE marks; PRAGMA "
     "user_version = 19"),
    "DROP TABLE past_objects; ALTER TABLE deletions DROP COLUMN digest; PRAGMA user_version = 20",
};

static void bring_back (const char *path, int version)
{
    for (int i = CURRENT - 2; i >= version - 1; i--)
        run_sql (path, ways_back[i]);
}

/* Takes out of a new catalog what one of @version cannot have had, or does not keep. */
static void leave_out (const char *path, int version)
{
    if (version < 3)
        run_sql (path, "DELETE FROM codes");
    if (version < 6)
        run_sql (path, "DELETE FROM estimates");
    if (version < 12)
        run_sql (path, "UPDATE inodes SET committed_mtime_ns = NULL");
    if (version < 14)
        run_sql (path, "UPDATE objects SET sha256 = NULL");
    if (version < 15)
        run_sql (path, "UPDATE objects SET seal = NULL");
    if (version < 16)
        run_sql (path, "UPDATE deletions SET sealed = EXISTS (SELECT 1 FROM settings WHERE key = 'archive_key')");
    if (version < 17)
        run_sql (path, "UPDATE deletions SET seal_key = NULL");
    if (version < 20)
        run_sql (path, "UPDATE counters SET n_lost = 0; UPDATE deletions SET bytes = 0, queued_ns = 0, born = 0");
    if (version < 21)
        run_sql (path, "UPDATE deletions SET digest = NULL; DELETE FROM past_objects; "
                       "DELETE FROM sqlite_sequence WHERE name = 'past_objects'");
    if (version < 4)
        run_sql (path, "UPDATE deletions SET queued_age_ns = 0");
}

static void append_rows (GString *text, sqlite3 *db, const char *sql)
{
    sqlite3_stmt *query = NULL;
    g_assert_cmpint (sqlite3_prepare_v2 (db, sql, -1, &query, NULL), ==, SQLITE_OK);
    while (sqlite3_step (query) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count (query); i++) {
            const char *bytes = sqlite3_column_blob (query, i);
            g_string_append_printf (text, " %d:", sqlite3_column_type (query, i));
            for (int at = 0; at < sqlite3_column_bytes (query, i); at++)
                g_string_append_printf (text, g_ascii_isprint (bytes[at]) ? "%c" : "\\%02x", (unsigned char) bytes[at]);
        }
        g_string_append_c (text, '\n');
    }
    g_assert_cmpint (sqlite3_finalize (query), ==, SQLITE_OK);
}

/* Everything in it but the age, which moves on with time: version, tables and rows. g_free () */
static char *dump (const char *path)
{
    check_integrity (path);
    sqlite3 *db = NULL;
    sqlite3_stmt *tables = NULL;
    GString *text = g_string_new (NULL);
    g_assert_cmpint (sqlite3_open (path, &db), ==, SQLITE_OK);
    append_rows (text, db, "PRAGMA user_version");
    append_rows (text, db, "PRAGMA application_id");
    append_rows (text, db, "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name");
    const char *sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'age' ORDER BY name";
    g_assert_cmpint (sqlite3_prepare_v2 (db, sql, -1, &tables, NULL), ==, SQLITE_OK);
    while (sqlite3_step (tables) == SQLITE_ROW) {
        const char *name = (const char *) sqlite3_column_text (tables, 0);
        g_autofree char *rows = g_strdup_printf ("SELECT * FROM %s ORDER BY 1, 2", name);
        g_string_append_printf (text, "%s\n", name);
        append_rows (text, db, rows);
    }
    g_assert_cmpint (sqlite3_finalize (tables), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_close (db), ==, SQLITE_OK);
    return g_string_free (text, FALSE);
}

/* Some of all that a catalog can hold: one file in another's place, links, holes, what is staged and what is begun. */
static void fill (Fixture *f)
{
    static const uint8_t graph[] = {1, 0};
    int64_t staging, intent;
    fixture_add_endpoints (f);
    uint64_t dir = make_dir (f, ECFS_ROOT_INO, "dir"), file = make_file (f, dir, "file");
    (void) make_file (f, dir, "empty");
    OK (e, ecfs_catalog_set_code (f->catalog, dir, "rs:4+2", &e));
    OK (e, ecfs_catalog_keep_code (f->catalog, "ldpc:1+1/0", graph, sizeof graph, &e));
    OK (e, ecfs_catalog_setxattr (f->catalog, file, "user.note", "text", 4, 0, &e));
    OK (e, ecfs_catalog_link (f->catalog, file, ECFS_ROOT_INO, "link", NULL, &e));
    g_autoptr (EcfsObjectRow) replaced = new_object (f, "rs:4+2", 10, 6), object = new_object (f, "rs:4+2", 1000, 6);
    g_autoptr (EcfsObjectRow) begun = new_object (f, "rs:4+2", 77, 6), cut = new_object (f, "copies:3", 500, 3);
    publish_one (f, file, replaced);
    publish_one (f, file, object);
    uint64_t short_file = make_file (f, dir, "short"), staged = make_file (f, dir, "staged");
    publish_one (f, short_file, cut);
    EcfsAttr attr = {.size = 300};
    OK (e, ecfs_catalog_setattr (f->catalog, short_file, &attr, ECFS_ATTR_SIZE, NULL, &e));
    OK (e, ecfs_catalog_staging_add (f->catalog, staged, &staging, &e));
    OK (e, ecfs_catalog_staging_set (f->catalog, staging, ECFS_STAGING_QUEUED, 1234, 4711, "endpoint down", &e));
    OK (e, ecfs_catalog_intent_begin (f->catalog, begun, staged, &intent, &e));
    EcfsEstimateRow estimate = {.endpoint = f->endpoints[1], .latency_us = {1, 2, 3}};
    OK (e, ecfs_catalog_estimate_set (f->catalog, &estimate, &e));
}

/* A closed catalog of @version, and the text of what must be there when it has been brought to this one; g_free (). */
static char *old_catalog (Fixture *f, int version)
{
    fixture_init (f);
    fill (f);
    fixture_close (f);
    leave_out (f->path, version);
    char *wanted = dump (f->path);
    bring_back (f->path, version);
    return wanted;
}

static guint n_due (Fixture *f, int64_t grace_ns)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) deletions = ecfs_catalog_deletions (
        f->catalog, f->endpoints[0], &(EcfsDeletionWaits){.removed_ns = grace_ns, .exchanged_ns = grace_ns}, NULL, 100,
        &error);
    g_assert_no_error (error);
    return deletions->len;
}

static void test_keeps (gconstpointer data)
{
    int version = GPOINTER_TO_INT (data);
    Fixture f;
    g_autofree char *wanted = old_catalog (&f, version), *old = dump (f.path);
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_catalog_open (f.path, ECFS_CATALOG_READONLY, &error));
    g_assert_cmpint (ecfs_errno (error), ==, ENOTSUP);
    g_autofree char *looked_at = dump (f.path); /* reading must not change it */
    g_assert_cmpstr (looked_at, ==, old);
    fixture_open (&f, 0);
    g_assert_cmpuint (n_due (&f, HOUR_NS), ==, 0); /* the time of grace has not passed, or begins anew */
    g_assert_cmpuint (n_due (&f, 0), ==, 1);
    EcfsAttr attr;
    OK (e, ecfs_catalog_resolve (f.catalog, "/dir/short", &attr, &e));
    g_assert_cmpuint (attr.data_bytes, ==, 300);
    fixture_close (&f);
    g_autofree char *brought = dump (f.path);
    g_assert_cmpstr (brought, ==, wanted);
    fixture_open (&f, ECFS_CATALOG_READONLY);
    fixture_clear (&f);
}

/* The last step but one cannot be done: nothing remains of those before it. */
static void test_step_fails (void)
{
    Fixture f;
    g_autofree char *wanted = old_catalog (&f, 1);
    run_sql (f.path, "CREATE TABLE age (in_the_way)");
    g_autofree char *old = dump (f.path);
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_catalog_open (f.path, 0, &error));
    g_assert_nonnull (error);
    g_autofree char *left = dump (f.path);
    g_assert_cmpstr (left, ==, old);
    run_sql (f.path, "DROP TABLE age");
    fixture_open (&f, 0);
    fixture_close (&f);
    g_autofree char *brought = dump (f.path);
    g_assert_cmpstr (brought, ==, wanted);
    fixture_clear (&f);
}

/* The write or sync behind @n_good others fails, and all later ones. Returns whether there were so many. */
static bool open_on_failing_disk (Fixture *f, int n_good)
{
    int n_before = failing_disk_count ();
    failing_disk_break (n_good, SQLITE_FULL, true);
    EcfsCatalog *catalog = ecfs_catalog_open (f->path, 0, NULL);
    bool failed = failing_disk_count () > n_before;
    failing_disk_heal ();
    g_assert_true (failed || catalog != NULL);
    if (catalog != NULL)
        (void) !ecfs_catalog_close (catalog, NULL); /* it may have met the failure */
    return failed;
}

/* Each write and sync in turn is the first that fails. What SQLite had written whole by then counts. */
static void test_disk_fails (gconstpointer data)
{
    Fixture f;
    g_autofree char *wanted = old_catalog (&f, GPOINTER_TO_INT (data)), *old = dump (f.path), *bytes = NULL;
    gsize n_bytes;
    g_assert_true (g_file_get_contents (f.path, &bytes, &n_bytes, NULL));
    bool failed = true;
    for (int n_good = 0; failed; n_good++) {
        g_assert_true (g_file_set_contents (f.path, bytes, (gssize) n_bytes, NULL));
        failed = open_on_failing_disk (&f, n_good);
        g_test_message ("%d good writes: %s", n_good, failed ? "fails" : "succeeds");
        g_autofree char *left = dump (f.path);
        if (g_strcmp0 (left, wanted) != 0)
            g_assert_cmpstr (left, ==, old);
        fixture_open (&f, 0);
        fixture_close (&f);
        g_autofree char *brought = dump (f.path);
        g_assert_cmpstr (brought, ==, wanted);
    }
    fixture_clear (&f);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    failing_disk_install ();
    for (int version = 1; version < CURRENT; version++) {
        g_autofree char *keeps = g_strdup_printf ("/migration/keeps-all-that-version-%d-has", version);
        g_autofree char *fails = g_strdup_printf ("/migration/leaves-version-%d-whole-on-a-disk-that-fails", version);
        g_test_add_data_func (keeps, GINT_TO_POINTER (version), test_keeps);
        if (version % 3 == 1) /* each runs through all later steps */
            g_test_add_data_func (fails, GINT_TO_POINTER (version), test_disk_fails);
    }
    g_test_add_func ("/migration/undoes-the-steps-before-one-that-fails", test_step_fails);
    return g_test_run ();
}
