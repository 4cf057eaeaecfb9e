#include "check_db.h"
#include "fixture.h"
#include "util/lock.h"

#include <grp.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define TIMEOUT_US (60 * G_USEC_PER_SEC)

static int open_code (const char *path, unsigned flags)
{
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_catalog_open (path, flags, &error);
    g_assert_true ((catalog == NULL) == (error != NULL));
    g_assert_true (ecfs_catalog_close (catalog, NULL));
    return ecfs_errno (error);
}

static void test_create (void)
{
    Fixture f;
    fixture_init (&f);
    if (fixture_skips (&f)) {
        fixture_clear (&f);
        return;
    }
    g_assert_cmpint (CODE (e, ecfs_catalog_create (f.path, &f.archive, &e)), ==, EEXIST);
    g_autofree char *nowhere = g_build_filename (f.dir, "none", "catalog.db", NULL);
    g_assert_cmpint (CODE (e, ecfs_catalog_create (nowhere, &f.archive, &e)), ==, ENOENT);
    g_assert_cmpint (open_code (nowhere, 0), ==, ENOENT);
    struct stat st;
    g_assert_cmpint (stat (f.path, &st), ==, 0);
    g_assert_cmphex (st.st_mode & 077, ==, 0);
    g_assert_true (ecfs_catalog_close (NULL, NULL));
    fixture_clear (&f);
}

static void test_odd_path (void)
{
    Fixture f;
    fixture_init (&f);
    if (fixture_skips (&f)) {
        fixture_clear (&f);
        return;
    }
    g_autofree char *path = g_build_filename (f.dir, "a ?b#c%41.db", NULL);
    OK (e, ecfs_catalog_create (path, &f.archive, &e));
    g_assert_cmpint (open_code (path, ECFS_CATALOG_READONLY), ==, 0);
    g_assert_cmpint (open_code (path, 0), ==, 0); /* the last: it takes the log away */
    g_assert_cmpint (unlink (path), ==, 0);
    fixture_clear (&f);
}

static void test_other_versions (void)
{
    Fixture f;
    fixture_init (&f);
    if (fixture_skips (&f)) {
        fixture_clear (&f);
        return;
    }
    fixture_close (&f);
    static const struct {
        const char *sql;
        int code;
    } cases[] = {{"PRAGMA user_version = 1000", ENOTSUP},
                 {"PRAGMA user_version = 0", EBADMSG},
                 {"PRAGMA user_version = -1", EBADMSG},
                 {"PRAGMA user_version = 21; PRAGMA application_id = 7", EBADMSG}};
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        run_sql (f.path, cases[i].sql);
        g_assert_cmpint (open_code (f.path, 0), ==, cases[i].code);
        g_assert_cmpint (open_code (f.path, ECFS_CATALOG_READONLY), ==, cases[i].code);
    }
    run_sql (f.path, "PRAGMA application_id = 0x65636673");
    g_assert_cmpint (open_code (f.path, 0), ==, 0);
    fixture_open (&f, 0);
    fixture_clear (&f);
}

static void test_garbage (void)
{
    Fixture f;
    fixture_init (&f);
    if (fixture_skips (&f)) {
        fixture_clear (&f);
        return;
    }
    fixture_close (&f);
    g_autofree char *garbage = g_strnfill (20000, 'G');
    g_assert_true (g_file_set_contents (f.path, garbage, 20000, NULL));
    g_assert_cmpint (open_code (f.path, 0), ==, EBADMSG);
    g_assert_cmpint (open_code (f.path, ECFS_CATALOG_READONLY), ==, EBADMSG);
    g_assert_true (g_file_set_contents (f.path, "", 0, NULL));
    g_assert_cmpint (open_code (f.path, 0), ==, EBADMSG);
    g_assert_cmpint (unlink (f.path), ==, 0);
    OK (e, ecfs_catalog_create (f.path, &f.archive, &e));
    fixture_open (&f, 0);
    fixture_clear (&f);
}

typedef struct Rewriting {
    Fixture *f;
    uint64_t ino;
    atomic_bool stop;
} Rewriting;

static void *rewrite (void *data)
{
    Rewriting *self = data;
    for (uint64_t i = 0; !atomic_load (&self->stop); i++) {
        g_autoptr (EcfsObjectRow) object = new_object (self->f, "rs:4+2", 1000 + i % 7, 6);
        publish_one (self->f, self->ino, object);
    }
    return NULL;
}

/* What one call tells is of one moment, also where another process writes. */
static void test_reader_sees_one_moment (void)
{
    Fixture f;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    Rewriting rewriting = {.f = &f, .ino = make_file (&f, ECFS_ROOT_INO, "file")};
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    g_autoptr (GError) error = NULL;
    EcfsCatalog *reader = ecfs_catalog_open (f.path, ECFS_CATALOG_READONLY, &error);
    g_assert_no_error (error);
    pthread_t writer;
    g_assert_cmpint (pthread_create (&writer, NULL, rewrite, &rewriting), ==, 0);
    int64_t until_us = ecfs_now_us () + 2 * G_USEC_PER_SEC;
    uint64_t size, last = 0, n_seen = 0;
    while (ecfs_now_us () < until_us) {
        g_autoptr (GArray) extents = ecfs_catalog_content (reader, rewriting.ino, &size, &error);
        g_assert_no_error (error);
        g_assert_nonnull (extents);
        n_seen += size != last; /* each call sees what is committed by then */
        last = size;
    }
    atomic_store (&rewriting.stop, true);
    g_assert_cmpint (pthread_join (writer, NULL), ==, 0);
    g_assert_cmpuint (n_seen, >, 10);
    OK (e, ecfs_catalog_close (reader, &e));
    fixture_clear (&f);
}

/* Damage is no reason to go back to a backup: that would hide what was stored since. */
static void test_advice (void)
{
    Fixture f;
    fixture_init (&f);
    fixture_close (&f);
    run_sql (f.path, "UPDATE inodes SET mode = 0 WHERE ino = 1");
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_catalog_open (f.path, 0, &error));
    g_assert_error (error, ECFS_ERROR, EBADMSG);
    g_assert_nonnull (strstr (error->message, "ecfs recover"));
    g_assert_null (strstr (error->message, "restore it"));
    run_sql (f.path, "UPDATE inodes SET mode = 16877 WHERE ino = 1");
    fixture_open (&f, 0);
    fixture_clear (&f);
}

/* Bytes overwritten in the middle: an answer or EBADMSG, at once or when the page is met. */
static void test_damaged_pages (void)
{
    Fixture f;
    fixture_init (&f);
    if (fixture_skips (&f)) {
        fixture_clear (&f);
        return;
    }
    for (int i = 0; i < 300; i++) {
        g_autofree char *name = g_strdup_printf ("file%d", i);
        make_file (&f, ECFS_ROOT_INO, name);
    }
    fixture_close (&f);
    g_autofree char *whole = NULL;
    gsize size;
    g_assert_true (g_file_get_contents (f.path, &whole, &size, NULL));
    guint n_refused = 0;
    for (gsize page = 0; page < size / 4096; page++) {
        g_autofree char *copy = g_memdup2 (whole, size);
        memset (copy + page * 4096, 0x5a, 4096);
        g_assert_true (g_file_set_contents (f.path, copy, (gssize) size, NULL));
        g_autoptr (GError) error = NULL;
        EcfsCatalog *catalog = ecfs_catalog_open (f.path, 0, &error);
        g_autoptr (GPtrArray) entries =
            catalog == NULL ? NULL : ecfs_catalog_readdir (catalog, ECFS_ROOT_INO, 0, 1000, &error);
        g_assert_true ((entries == NULL) == (error != NULL));
        if (error != NULL)
            g_assert_error (error, ECFS_ERROR, EBADMSG);
        n_refused += error != NULL;
        g_assert_true (ecfs_catalog_close (catalog, NULL));
    }
    g_assert_cmpuint (n_refused, >, 5);
    g_assert_true (g_file_set_contents (f.path, whole, (gssize) size, NULL));
    fixture_open (&f, 0);
    fixture_clear (&f);
}

#define NO_KEY "0000000000000000000000000000000000000000000000000000000000000000"

/* Rows that SQLite takes and that cannot be. */
static void test_impossible_rows (void)
{
    static const char *const changes[] = {"UPDATE inodes SET mode = 0 WHERE ino = 2",
                                          "UPDATE inodes SET mode = -1 WHERE ino = 2",
                                          "UPDATE inodes SET size = -1 WHERE ino = 2",
                                          "UPDATE inodes SET nlink = 5000000000 WHERE ino = 2",
                                          "UPDATE inodes SET code = 'rs:00000000000000000000000000004+2' WHERE ino = 2",
                                          "UPDATE objects SET digest = x'00'",
                                          "UPDATE objects SET sha256 = x'00'",
                                          "UPDATE objects SET seal = x''",
                                          "UPDATE objects SET seal = x'0100'",
                                          "UPDATE objects SET seal = zeroblob (34)",
                                          "UPDATE objects SET seal = zeroblob (35)",
                                          "UPDATE objects SET seal = x'0900" NO_KEY "'",
                                          "UPDATE objects SET uuid = x'00'",
                                          "UPDATE objects SET code = ''",
                                          "UPDATE objects SET size = -1",
                                          "UPDATE stripes SET idx = 256 WHERE idx = 3",
                                          "UPDATE stripes SET digest = x'0011' WHERE idx = 2",
                                          "UPDATE stripes SET size = -5 WHERE idx = 2",
                                          "UPDATE extents SET length = -1",
                                          "UPDATE extents SET length = 0",
                                          "UPDATE extents SET start = -7",
                                          "UPDATE extents SET object_start = 9223372036854775807",
                                          "UPDATE entries SET name = x'2e2e' WHERE ino = 2",
                                          "UPDATE entries SET name = x'612f62' WHERE ino = 2",
                                          "UPDATE meta SET archive = x'00'",
                                          "DELETE FROM meta",
                                          "DELETE FROM counters",
                                          "UPDATE counters SET next_ino = 2",
                                          "UPDATE counters SET sequence = -3",
                                          "UPDATE inodes SET mode = 33188 WHERE ino = 1"};
    for (size_t i = 0; i < G_N_ELEMENTS (changes); i++) {
        Fixture f;
        fixture_init (&f);
        if (fixture_skips (&f)) { /* these are written for SQLite */
            fixture_clear (&f);
            return;
        }
        fixture_add_endpoints (&f);
        uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
        g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 100, 6);
        publish_one (&f, ino, object);
        fixture_close (&f);
        run_sql (f.path, changes[i]);
        g_autoptr (GError) error = NULL;
        g_autoptr (GPtrArray) entries = NULL, objects = NULL;
        g_autoptr (GArray) extents = NULL;
        EcfsCatalog *catalog = ecfs_catalog_open (f.path, 0, &error);
        if (catalog != NULL)
            entries = ecfs_catalog_readdir (catalog, ECFS_ROOT_INO, 0, 10, &error);
        if (entries != NULL)
            objects = ecfs_catalog_objects (catalog, 0, 10, &error);
        if (objects != NULL)
            extents = ecfs_catalog_extents (catalog, ino, &error);
        g_test_message ("%s: %s", changes[i], error == NULL ? "not seen" : error->message);
        g_assert_error (error, ECFS_ERROR, EBADMSG);
        g_assert_true (ecfs_catalog_close (catalog, NULL));
        fixture_clear (&f);
    }
}

static bool sees (EcfsCatalog *catalog, const char *name)
{
    EcfsAttr attr;
    int code = CODE (e, ecfs_catalog_lookup (catalog, ECFS_ROOT_INO, name, &attr, &e));
    g_assert_true (code == 0 || code == ENOENT);
    return code == 0;
}

static void test_readonly_beside_writer (void)
{
    Fixture f;
    fixture_init (&f);
    g_autoptr (GError) error = NULL;
    EcfsCatalog *reader = ecfs_catalog_open (f.path, ECFS_CATALOG_READONLY, &error);
    g_assert_no_error (error);
    make_file (&f, ECFS_ROOT_INO, "file");
    g_assert_true (sees (f.catalog, "file"));
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    g_assert_true (sees (reader, "file"));
    g_assert_cmpuint (ecfs_catalog_sequence (reader), ==, ecfs_catalog_sequence (f.catalog));
    EcfsNewInode new = {.mode = S_IFREG};
    g_assert_cmpint (CODE (e, ecfs_catalog_make (reader, 1, "x", &new, NULL, NULL, &e)), ==, EROFS);
    OK (e, ecfs_catalog_barrier (reader, &e));
    OK (e, ecfs_catalog_close (reader, &e));
    fixture_clear (&f);
}

static void test_group_commit (void)
{
    Fixture f;
    fixture_init (&f);
    g_autoptr (GError) error = NULL;
    EcfsCatalog *reader = ecfs_catalog_open (f.path, ECFS_CATALOG_READONLY, &error);
    g_assert_no_error (error);
    /* A later durable call takes earlier operations with it. */
    make_file (&f, ECFS_ROOT_INO, "first");
    EcfsUuid uuid = ecfs_uuid_new ();
    int64_t id;
    OK (e, ecfs_catalog_endpoint_add (f.catalog, &uuid, "endpoint", &id, &e));
    g_assert_true (sees (reader, "first"));
    /* And without one the flusher commits. */
    make_file (&f, ECFS_ROOT_INO, "second");
    int64_t deadline_us = ecfs_now_us () + TIMEOUT_US;
    while (!sees (reader, "second") && ecfs_now_us () < deadline_us)
        g_thread_yield ();
    g_assert_true (sees (reader, "second"));
    OK (e, ecfs_catalog_close (reader, &e));
    fixture_clear (&f);
}

/* A directory that cannot be written, as a backup on a read-only disk: read by a process without rights. */
static void test_readonly_directory (void)
{
    Fixture f;
    fixture_init (&f);
    if (fixture_skips (&f)) {
        fixture_clear (&f);
        return;
    }
    make_file (&f, ECFS_ROOT_INO, "file");
    fixture_close (&f);
    g_assert_cmpint (chmod (f.path, 0444) | chmod (f.dir, 0555), ==, 0);
    pid_t child = fork ();
    if (child == 0) {
        if (geteuid () == 0 && (setgroups (0, NULL) != 0 || setgid (65534) != 0 || setuid (65534) != 0))
            _exit (2);
        EcfsAttr attr;
        EcfsCatalog *catalog = ecfs_catalog_open (f.path, ECFS_CATALOG_READONLY, NULL);
        _exit (catalog != NULL && ecfs_catalog_lookup (catalog, ECFS_ROOT_INO, "file", &attr, NULL) ? 0 : 1);
    }
    int status;
    g_assert_cmpint (waitpid (child, &status, 0), ==, child);
    g_assert_cmpint (chmod (f.dir, 0755) | chmod (f.path, 0600), ==, 0);
    g_assert_cmpint (status, ==, 0);
    fixture_open (&f, 0);
    fixture_clear (&f);
}

#define N_THREADS 8
#define N_ROUNDS  60

typedef struct Client {
    Fixture *f;
    unsigned number;
} Client;

static void run_client (void *data)
{
    const Client *self = data;
    g_autofree char *dir_name = g_strdup_printf ("dir%u", self->number);
    uint64_t dir = make_dir (self->f, ECFS_ROOT_INO, dir_name);
    for (unsigned i = 0; i < N_ROUNDS; i++) {
        g_autofree char *name = g_strdup_printf ("file%u", i);
        uint64_t ino = make_file (self->f, dir, name);
        g_autoptr (EcfsObjectRow) object = new_object (self->f, "rs:4+2", 1000 + i, 6);
        if (i % 4 == 0)
            publish_one (self->f, ino, object);
        g_autofree char *path = ecfs_catalog_path (self->f->catalog, ino);
        EcfsAttr attr;
        OK (e, ecfs_catalog_resolve (self->f->catalog, path, &attr, &e));
        g_assert_cmpuint (attr.ino, ==, ino);
        if (i % 10 == 9)
            OK (e, ecfs_catalog_barrier (self->f->catalog, &e));
        if (i % 3 == 0) {
            OK (e, ecfs_catalog_unlink (self->f->catalog, dir, name, NULL, &e));
            OK (e, ecfs_catalog_drop (self->f->catalog, ino, &e));
        }
    }
}

static void test_concurrent (void)
{
    Fixture f;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    Client clients[N_THREADS];
    EcfsWorkers *workers = ecfs_workers_new ("client", N_THREADS);
    for (unsigned i = 0; i < N_THREADS; i++) {
        clients[i] = (Client){&f, i};
        ecfs_workers_push (workers, run_client, &clients[i]);
    }
    ecfs_workers_free (workers);
    EcfsTotals totals = get_totals (&f);
    g_assert_cmpuint (totals.n_files, ==, N_THREADS * (N_ROUNDS - N_ROUNDS / 3));
    g_assert_cmpuint (totals.n_inodes, ==, totals.n_files + N_THREADS + 1);
    g_assert_cmpuint (totals.n_objects, ==, N_THREADS * (N_ROUNDS / 4 - N_ROUNDS / 12));
    g_assert_cmpuint (totals.n_deletions, ==, N_THREADS * (N_ROUNDS / 12) * 6);
    fixture_close (&f);
    check_integrity (f.path);
    fixture_open (&f, 0);
    fixture_clear (&f);
}

typedef struct Busy {
    Fixture *fixture;
    atomic_bool stop;
} Busy;

static void make_files (void *data)
{
    Busy *self = data;
    for (unsigned i = 0; !atomic_load (&self->stop); i++) {
        g_autofree char *name = g_strdup_printf ("file%u", i);
        (void) make_file (self->fixture, ECFS_ROOT_INO, name);
        OK (e, ecfs_catalog_barrier (self->fixture->catalog, &e));
    }
}

/* What an opened catalog is looked at for first is all of one moment. */
static void test_opened_while_written (void)
{
    Fixture f;
    fixture_init (&f);
    Busy busy = {.fixture = &f};
    atomic_init (&busy.stop, false);
    EcfsWorkers *workers = ecfs_workers_new ("writer", 1);
    ecfs_workers_push (workers, make_files, &busy);
    for (unsigned i = 0; i < 400; i++)
        g_assert_cmpint (open_code (f.path, ECFS_CATALOG_READONLY), ==, 0);
    atomic_store (&busy.stop, true);
    ecfs_workers_free (workers);
    fixture_clear (&f);
}

/* An endpoint that comes back is told of it, and has everything then. */
static void test_newest_record_stays (void)
{
    Fixture f;
    fixture_init (&f);
    for (unsigned i = 0; i < 1200; i++) {
        g_autofree char *name = g_strdup_printf ("%u", i);
        (void) make_file (&f, ECFS_ROOT_INO, name);
    }
    uint64_t sequence = ecfs_catalog_sequence (f.catalog);
    for (bool more = true; more;)
        OK (e, ecfs_catalog_journal_drop (f.catalog, sequence, &more, &e));
    g_autoptr (GPtrArray) rows = ecfs_catalog_journal (f.catalog, 0, 10, NULL);
    g_assert_cmpuint (rows->len, ==, 1);
    g_assert_cmpuint (((const EcfsJournalRow *) rows->pdata[0])->sequence, ==, sequence);
    g_assert_cmpuint (get_totals (&f).journal_records, ==, 1);
    check_integrity (f.path);
    fixture_clear (&f);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/catalog/create-makes-a-private-file-and-never-replaces", test_create);
    g_test_add_func ("/catalog/any-path-is-only-a-path", test_odd_path);
    g_test_add_func ("/catalog/other-versions-and-other-databases-are-refused", test_other_versions);
    g_test_add_func ("/catalog/garbage-is-refused", test_garbage);
    g_test_add_func ("/catalog/damaged-pages-are-said-to-be-damaged", test_damaged_pages);
    g_test_add_func ("/catalog/impossible-rows-are-refused", test_impossible_rows);
    g_test_add_func ("/catalog/a-reader-works-beside-a-writer", test_readonly_beside_writer);
    g_test_add_func ("/catalog/a-reader-sees-one-moment", test_reader_sees_one_moment);
    g_test_add_func ("/catalog/damage-is-no-reason-for-an-old-copy", test_advice);
    g_test_add_func ("/catalog/a-reader-can-begin-while-a-writer-works", test_opened_while_written);
    g_test_add_func ("/catalog/a-durable-call-commits-what-came-before", test_group_commit);
    g_test_add_func ("/catalog/a-catalog-in-a-readonly-directory-can-be-read", test_readonly_directory);
    g_test_add_func ("/catalog/the-newest-record-stays", test_newest_record_stays);
    g_test_add_func ("/catalog/many-threads-share-it", test_concurrent);
    return g_test_run ();
}
