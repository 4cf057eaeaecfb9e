/* What only a catalog in PostgreSQL has: who may write, connections that are lost, and copies between it and files. */
#include "catalog/catalog.h"
#include "catalog/marks.h"
#include "catalog/pg.h"
#include "check_db.h"
#include "fixture.h"

#include <pthread.h>

/* The fixture's, opened by another holder. */
static int open_as (const Fixture *f, const EcfsUuid *holder, unsigned flags)
{
    g_autofree char *location = fixture_place_for (f, holder);
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_catalog_open (location, flags, &error);
    g_assert_true ((catalog == NULL) == (error != NULL));
    g_assert_true (ecfs_catalog_close (catalog, NULL));
    return ecfs_errno (error);
}

static void cut_connections (const Fixture *f)
{
    run_pg_sql (f->path, "SELECT pg_terminate_backend (pid) FROM pg_stat_activity "
                         "WHERE pid <> pg_backend_pid () AND application_name = 'ecfs'");
}

/* While it gives signs of life nobody else may write, and whoever only reads may read. */
static void test_one_writer (void)
{
    Fixture f;
    EcfsUuid other = ecfs_uuid_new ();
    fixture_init (&f);
    g_assert_cmpint (open_as (&f, &other, 0), ==, EBUSY);
    g_assert_cmpint (open_as (&f, &other, ECFS_CATALOG_READONLY), ==, 0);
    fixture_close (&f);
    g_assert_cmpint (open_as (&f, &other, 0), ==, 0);
    fixture_open (&f, 0);
    fixture_clear (&f);
}

/* One that is silent for too long loses the archive, and can change nothing when it wakes. */
static void test_fenced (void)
{
    Fixture f;
    fixture_init (&f);
    (void) make_file (&f, ECFS_ROOT_INO, "before");
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    run_pg_sql (f.path, "UPDATE members SET session = 'another'");
    EcfsNewInode new = {.mode = S_IFREG | 0644};
    EcfsAttr attr;
    g_autoptr (GError) error = NULL;
    g_assert_false (ecfs_catalog_make (f.catalog, ECFS_ROOT_INO, "after", &new, &attr, NULL, &error));
    g_assert_error (error, ECFS_ERROR, ESTALE);
    g_assert_nonnull (strstr (error->message, "another process has taken over"));
    g_assert_nonnull (ecfs_catalog_behind (f.catalog));
    fixture_close (&f); /* nothing of it is lost */
    run_pg_sql (f.path, "UPDATE members SET session = NULL");
    fixture_open (&f, 0);
    g_assert_cmpint (CODE (e, ecfs_catalog_lookup (f.catalog, ECFS_ROOT_INO, "after", &attr, &e)), ==, ENOENT);
    OK (e, ecfs_catalog_lookup (f.catalog, ECFS_ROOT_INO, "before", &attr, &e));
    fixture_clear (&f);
}

/* Connections are lost within transactions, and between them: nothing is lost and nothing is there twice. */
static void test_lost_connections (void)
{
    Fixture f;
    EcfsAttr attr;
    fixture_init (&f);
    for (unsigned i = 0; i < 30; i++) {
        g_autofree char *first = g_strdup_printf ("first%u", i), *second = g_strdup_printf ("second%u", i);
        uint64_t ino = make_file (&f, ECFS_ROOT_INO, first);
        if (i % 3 == 0)
            OK (e, ecfs_catalog_barrier (f.catalog, &e));
        cut_connections (&f);
        g_assert_cmpuint (make_file (&f, ECFS_ROOT_INO, second), ==, ino + 1);
        if (i % 5 == 0) {
            cut_connections (&f);
            OK (e, ecfs_catalog_barrier (f.catalog, &e));
        }
    }
    fixture_reopen (&f);
    for (unsigned i = 0; i < 30; i++) {
        g_autofree char *first = g_strdup_printf ("first%u", i), *second = g_strdup_printf ("second%u", i);
        OK (e, ecfs_catalog_lookup (f.catalog, ECFS_ROOT_INO, first, &attr, &e));
        OK (e, ecfs_catalog_lookup (f.catalog, ECFS_ROOT_INO, second, &attr, &e));
    }
    g_assert_cmpuint (get_totals (&f).n_inodes, ==, 61);
    fixture_clear (&f);
}

/* Whoever only reads connects anew as well. */
static void test_lost_reader (void)
{
    Fixture f;
    EcfsAttr attr;
    g_autoptr (GError) error = NULL;
    fixture_init (&f);
    (void) make_file (&f, ECFS_ROOT_INO, "file");
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    EcfsCatalog *reader = ecfs_catalog_open (f.path, ECFS_CATALOG_READONLY, &error);
    g_assert_no_error (error);
    OK (e, ecfs_catalog_lookup (reader, ECFS_ROOT_INO, "file", &attr, &e));
    cut_connections (&f);
    OK (e, ecfs_catalog_lookup (reader, ECFS_ROOT_INO, "file", &attr, &e));
    OK (e, ecfs_catalog_close (reader, &e));
    fixture_clear (&f);
}

static bool makes (Fixture *f, const char *name)
{
    EcfsNewInode new = {.mode = S_IFREG | 0644};
    EcfsAttr attr;
    return ecfs_catalog_make (f->catalog, ECFS_ROOT_INO, name, &new, &attr, NULL, NULL);
}

static void await_commit (Fixture *f)
{
    for (unsigned i = 0; i < 300 && !ecfs_catalog_barrier (f->catalog, NULL); i++)
        g_usleep (G_USEC_PER_SEC / 20);
    OK (e, ecfs_catalog_barrier (f->catalog, &e));
}

/* What the server refuses fails alone: what was done before in the same transaction stays, and one that could not
 * begin is not in the way of the next. */
static void test_refused (void)
{
    static const char function[] =
        "CREATE SEQUENCE asked; CREATE FUNCTION refuse () RETURNS trigger LANGUAGE plpgsql SET search_path FROM "
        "CURRENT "
        "AS $$ BEGIN IF nextval ('asked') IN (2, 3, 4) THEN RAISE EXCEPTION 'no room'; END IF; RETURN NEW; END $$";
    Fixture f;
    EcfsAttr attr;
    fixture_init (&f);
    run_pg_sql (f.path, function);
    run_pg_sql (f.path, "CREATE TRIGGER refuse BEFORE UPDATE ON members FOR EACH ROW WHEN (NEW.txn <> OLD.txn) "
                        "EXECUTE FUNCTION refuse ()");
    g_assert_true (makes (&f, "first"));
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    for (unsigned i = 0; i < 3; i++)
        g_assert_false (makes (&f, "none"));
    g_assert_true (makes (&f, "second"));
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    run_pg_sql (f.path, "DROP TRIGGER refuse ON members");
    run_pg_sql (f.path, "CREATE TRIGGER refuse BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION refuse ()");
    run_pg_sql (f.path, "SELECT setval ('asked', 1, false)");
    g_assert_true (makes (&f, "third"));
    g_assert_false (makes (&f, "none")); /* and making the third again is refused twice, unless it is committed */
    await_commit (&f);
    for (unsigned i = 0; i < 300 && !makes (&f, "fourth"); i++)
        g_usleep (G_USEC_PER_SEC / 20);
    fixture_reopen (&f);
    for (unsigned i = 0; i < 4; i++) {
        static const char *const names[] = {"first", "second", "third", "fourth"};
        OK (e, ecfs_catalog_lookup (f.catalog, ECFS_ROOT_INO, names[i], &attr, &e));
    }
    g_assert_cmpuint (get_totals (&f).n_inodes, ==, 5);
    fixture_clear (&f);
}

/* Who asks again and again for a number that cannot be read is told why once. */
static void test_told_once (void)
{
    Fixture f;
    fixture_init (&f);
    run_pg_sql (f.path, "ALTER TABLE counters RENAME TO away");
    for (unsigned round = 0; round < 2; round++) {
        g_test_expect_message (G_LOG_DOMAIN, G_LOG_LEVEL_WARNING, "*counters*does not exist*"); /* one more is fatal */
        for (unsigned i = 0; i < 5; i++)
            g_assert_cmpuint (ecfs_catalog_sequence (f.catalog), ==, 0);
        g_test_assert_expected_messages ();
        run_pg_sql (f.path, "ALTER TABLE away RENAME TO counters");
        g_test_expect_message (G_LOG_DOMAIN, G_LOG_LEVEL_MESSAGE, "*can be read again");
        for (unsigned i = 0; i < 5; i++)
            (void) ecfs_catalog_sequence (f.catalog);
        g_test_assert_expected_messages ();
        run_pg_sql (f.path, "ALTER TABLE counters RENAME TO away");
    }
    run_pg_sql (f.path, "ALTER TABLE away RENAME TO counters");
    fixture_clear (&f);
}

/* What a pooler does that gives a transaction to another of its connections, with or without "DISCARD ALL" before. */
static void test_connection_of_others (void)
{
    Fixture f;
    EcfsNewInode new = {.mode = S_IFREG | 0644};
    EcfsAttr attr;
    fixture_init (&f);
    run_pg_sql (f.path, "CREATE FUNCTION swap () RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RESET ALL; RETURN NEW; "
                        "END $$");
    run_pg_sql (f.path, "CREATE TRIGGER swap BEFORE UPDATE ON members FOR EACH STATEMENT EXECUTE FUNCTION swap ()");
    g_assert_cmpint (CODE (e, ecfs_catalog_make (f.catalog, ECFS_ROOT_INO, "none", &new, &attr, NULL, &e)), ==,
                     ENOTSUP);
    g_assert_null (ecfs_catalog_behind (f.catalog)); /* it is the catalog that it was */
    run_pg_sql (f.path, "DROP TRIGGER swap ON members");
    (void) make_file (&f, ECFS_ROOT_INO, "file");
    fixture_reopen (&f);
    OK (e, ecfs_catalog_lookup (f.catalog, ECFS_ROOT_INO, "file", &attr, &e));
    g_assert_cmpint (CODE (e, ecfs_catalog_lookup (f.catalog, ECFS_ROOT_INO, "none", &attr, &e)), ==, ENOENT);
    fixture_clear (&f);
}

/* A connection that is lost by the very statement whose row is asked for next. */
static void test_lost_by_insert (void)
{
    Fixture f;
    int64_t intent = 0;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    run_pg_sql (f.path,
                "CREATE SEQUENCE asked; CREATE FUNCTION cut () RETURNS trigger LANGUAGE plpgsql SET search_path "
                "FROM CURRENT AS $$ BEGIN IF nextval ('asked') = 1 THEN PERFORM pg_terminate_backend "
                "(pg_backend_pid ()); END IF; RETURN NEW; END $$");
    run_pg_sql (f.path, "CREATE TRIGGER cut BEFORE INSERT ON intents FOR EACH ROW EXECUTE FUNCTION cut ()");
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 1000, 6);
    OK (e, ecfs_catalog_intent_begin (f.catalog, object, ino, &intent, &e));
    g_assert_cmpint (intent, >, 0);
    fixture_reopen (&f);
    OK (e, ecfs_catalog_intents_abort_all (f.catalog, &e));
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, 6);
    fixture_clear (&f);
}

/* A query that fails amid changes takes none of them along. */
static void test_failed_query (void)
{
    Fixture f;
    EcfsAttr attr;
    fixture_init (&f);
    run_pg_sql (f.path, "ALTER TABLE marks RENAME TO away");
    g_assert_true (makes (&f, "before"));
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_catalog_marks (f.catalog, &error));
    g_assert_nonnull (error);
    g_assert_true (makes (&f, "after"));
    g_assert_true (makes (&f, "later"));
    run_pg_sql (f.path, "ALTER TABLE away RENAME TO marks");
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    fixture_reopen (&f);
    OK (e, ecfs_catalog_lookup (f.catalog, ECFS_ROOT_INO, "before", &attr, &e));
    OK (e, ecfs_catalog_lookup (f.catalog, ECFS_ROOT_INO, "after", &attr, &e));
    OK (e, ecfs_catalog_lookup (f.catalog, ECFS_ROOT_INO, "later", &attr, &e));
    g_assert_cmpuint (get_totals (&f).n_inodes, ==, 4);
    fixture_clear (&f);
}

/* A standby that lagged took the server's place: nothing is built on what is not there. */
static void test_lost_commits (void)
{
    Fixture f;
    EcfsNewInode new = {.mode = S_IFREG | 0644};
    EcfsAttr attr;
    g_autoptr (GError) error = NULL;
    fixture_init (&f);
    for (unsigned i = 0; i < 3; i++) {
        g_autofree char *name = g_strdup_printf ("file%u", i);
        g_assert_true (makes (&f, name));
        OK (e, ecfs_catalog_barrier (f.catalog, &e));
    }
    run_pg_sql (f.path, "UPDATE members SET txn = txn - 1");
    g_assert_false (ecfs_catalog_make (f.catalog, ECFS_ROOT_INO, "after", &new, &attr, NULL, &error));
    g_assert_error (error, ECFS_ERROR, ESTALE);
    g_assert_nonnull (strstr (error->message, "lacks changes that it had committed"));
    fixture_clear (&f);
}

/* Whatever the server's configuration says, also later. */
static void test_durable (void)
{
    Fixture f;
    fixture_init (&f);
    run_pg_sql (f.path, "CREATE TABLE seen (value text); CREATE FUNCTION see () RETURNS trigger LANGUAGE plpgsql "
                        "SET search_path FROM CURRENT AS $$ BEGIN INSERT INTO seen VALUES (current_setting "
                        "('synchronous_commit')); RETURN NEW; END $$; CREATE TRIGGER see BEFORE UPDATE ON members FOR "
                        "EACH ROW EXECUTE FUNCTION see ()");
    run_pg_sql (f.path, "ALTER SYSTEM SET synchronous_commit = off");
    run_pg_sql (f.path, "SELECT pg_reload_conf ()");
    run_pg_sql (f.path, "DO $$ BEGIN WHILE current_setting ('synchronous_commit') = 'on' LOOP "
                        "PERFORM pg_sleep (0.01); END LOOP; END $$");
    g_assert_true (makes (&f, "file"));
    fixture_reopen (&f);
    g_assert_true (makes (&f, "another"));
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    run_pg_sql (f.path, "ALTER SYSTEM RESET synchronous_commit");
    run_pg_sql (f.path, "SELECT pg_reload_conf ()");
    run_pg_sql (f.path, "DO $$ BEGIN IF (SELECT count (*) FROM seen) = 0 OR EXISTS (SELECT 1 FROM seen WHERE value <> "
                        "'on') THEN RAISE EXCEPTION 'commits were not durable'; END IF; END $$");
    fixture_clear (&f);
}

static void test_locations (void)
{
    static const struct {
        const char *location, *display; /* NULL: it is refused */
    } cases[] = {
        {"postgresql://me@host.example.org:5433/name?application_name=x", "postgresql://host.example.org:5433/name"},
        {"postgresql://a,b/name", "postgresql://a,b/name"},
        {"service=ecfs", "service=ecfs"},
        {"service=ecfs user=me", "service=ecfs"},
        {"postgresql://me:secret@host/name", NULL},
        {"postgresql://me:se?cret@host/name", NULL},
        {"postgresql://me:sec/ret@host/name", NULL},
        {"postgresql://me:sec#ret@host/name", NULL},
        {"postgresql://me:%zzsecret@host/name", NULL},
        {"postgresql://host/name?password=secret", NULL},
        {"postgresql://host/name?sslpassword=secret", NULL},
        {"service=ecfs password=secret", NULL},
        {"service=ecfs 'secret", NULL},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        g_autoptr (GError) error = NULL;
        g_assert_true (ecfs_pg_check_location (cases[i].location, &error) == (cases[i].display != NULL));
        g_assert_true (error == NULL ||
                       (strstr (error->message, "sec") == NULL && strstr (error->message, "ret") == NULL));
        g_autofree char *display = ecfs_pg_display (cases[i].location);
        g_assert_null (strstr (display, "secret"));
        if (cases[i].display != NULL)
            g_assert_cmpstr (display, ==, cases[i].display);
    }
}

static void *wait_for_commit (void *data)
{
    (void) ecfs_catalog_barrier (((Fixture *) data)->catalog, NULL); /* whatever it says is looked at later */
    return NULL;
}

#define WAITS "(SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'ecfs')"

/* A file's commit, by a thread, waits for a standby that is not there. */
static pthread_t commit_without_standby (Fixture *f)
{
    pthread_t waiting;
    fixture_init (f);
    run_pg_sql (f->path, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    run_pg_sql (f->path, "SELECT pg_reload_conf ()");
    run_pg_sql (f->path, "DO $$ BEGIN WHILE current_setting ('synchronous_standby_names') = '' LOOP "
                         "PERFORM pg_sleep (0.01); END LOOP; END $$");
    (void) make_file (f, ECFS_ROOT_INO, "file");
    g_assert_cmpint (pthread_create (&waiting, NULL, wait_for_commit, f), ==, 0);
    return waiting;
}

/* No standby is wanted any more. */
static void end_waiting (const Fixture *f, pthread_t waiting)
{
    run_pg_sql (f->path, "ALTER SYSTEM RESET synchronous_standby_names");
    run_pg_sql (f->path, "SELECT pg_reload_conf ()");
    g_assert_cmpint (pthread_join (waiting, NULL), ==, 0);
}

/* A commit that waits for a standby which is not there is on the server's disk; cutting its connection hides that from
 * whoever asked for it. It is not made again, also when nothing can be asked at first. */
static void commit_unanswered (bool is_hindered)
{
    Fixture f;
    EcfsAttr attr;
    pthread_t waiting = commit_without_standby (&f);
    if (is_hindered)
        run_pg_sql (f.path, "SET synchronous_commit TO local; ALTER TABLE marks RENAME TO away");
    run_pg_sql (f.path, "DO $$ BEGIN WHILE NOT EXISTS " WAITS " LOOP PERFORM pg_sleep (0.01); END LOOP; "
                        "PERFORM pg_terminate_backend (pid) FROM " WAITS " AS one; END $$");
    end_waiting (&f, waiting);
    if (is_hindered)
        run_pg_sql (f.path, "ALTER TABLE away RENAME TO marks");
    await_commit (&f);
    OK (e, ecfs_catalog_lookup (f.catalog, ECFS_ROOT_INO, "file", &attr, &e));
    fixture_reopen (&f);
    OK (e, ecfs_catalog_lookup (f.catalog, ECFS_ROOT_INO, "file", &attr, &e));
    g_assert_cmpuint (get_totals (&f).n_inodes, ==, 2);
    fixture_clear (&f);
}

static void test_unanswered_commit (void)
{
    commit_unanswered (false);
    commit_unanswered (true);
}

#define UNTIL(what)                                                                                                    \
    "DO $$ BEGIN WHILE NOT EXISTS " what " LOOP PERFORM pg_sleep (0.01), pg_stat_clear_snapshot (); END LOOP; END $$"

/* Who cancels the wait for a standby makes nothing durable: it is waited for again. */
static void test_cancelled_wait (void)
{
    Fixture f;
    pthread_t waiting = commit_without_standby (&f);
    run_pg_sql (f.path, UNTIL (WAITS));
    g_test_expect_message (G_LOG_DOMAIN, G_LOG_LEVEL_WARNING, "*canceling wait for synchronous replication*");
    run_pg_sql (f.path, "SELECT pg_cancel_backend (pid) FROM " WAITS " AS one");
    run_pg_sql (f.path,
                UNTIL ("(SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE 'UPDATE%')"));
    end_waiting (&f, waiting);
    g_test_assert_expected_messages ();
    fixture_clear (&f);
}

static bool add_record (void *user, const GByteArray *record, GError **error)
{
    (void) error;
    g_byte_array_append (user, record->data, record->len);
    return true;
}

static GByteArray *dump (const char *path)
{
    GByteArray *all = g_byte_array_new ();
    uint64_t sequence;
    g_autoptr (GError) error = NULL;
    EcfsCatalog *reader = ecfs_catalog_open (path, ECFS_CATALOG_READONLY, &error);
    g_assert_no_error (error);
    OK (e, ecfs_catalog_dump (reader, add_record, all, &sequence, &e));
    OK (e, ecfs_catalog_close (reader, &e));
    return all;
}

/* There and back it is the same, ids that were given out included. */
static void test_copies (void)
{
    Fixture f;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    for (unsigned i = 0; i < 2500; i++) {
        g_autofree char *name = g_strdup_printf ("\377file%u", i);
        uint64_t ino = make_file (&f, ECFS_ROOT_INO, name);
        if (i % 100 == 0) {
            g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 1000 + i, 6);
            publish_one (&f, ino, object);
        }
    }
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    g_autoptr (GByteArray) before = dump (f.path);
    g_autofree char *file = g_build_filename (f.dir, "copy", NULL);
    OK (e, ecfs_catalog_copy (f.catalog, file, NULL, &e));
    check_integrity (file);
    g_autoptr (GByteArray) copied = dump (file);
    g_assert_cmpmem (before->data, before->len, copied->data, copied->len);
    fixture_close (&f);
    g_assert_cmpint (CODE (e, ecfs_pg_copy_from_file (f.path, file, NULL, &e)), ==, EEXIST);
    OK (e, ecfs_pg_drop (f.path, false, &e));
    OK (e, ecfs_pg_copy_from_file (f.path, file, NULL, &e));
    fixture_open (&f, 0);
    g_autoptr (GByteArray) back = dump (f.path);
    g_assert_cmpmem (before->data, before->len, back->data, back->len);
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 77, 6);
    publish_one (&f, make_file (&f, ECFS_ROOT_INO, "later"), object);
    g_assert_cmpint (unlink (file), ==, 0);
    fixture_clear (&f);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    if (g_getenv ("ECFS_TEST_POSTGRESQL") == NULL)
        return 77;                             /* on_postgresql.py runs it with one */
    g_log_set_always_fatal (G_LOG_FATAL_MASK); /* warnings are told of what is refused here */
    ecfs_pg_dead_us = 20 * G_USEC_PER_SEC;
    g_test_add_func ("/pg/one-process-writes", test_one_writer);
    g_test_add_func ("/pg/who-is-fenced-changes-nothing", test_fenced);
    g_test_add_func ("/pg/lost-connections-lose-nothing", test_lost_connections);
    g_test_add_func ("/pg/readers-connect-anew", test_lost_reader);
    g_test_add_func ("/pg/what-is-refused-fails-alone", test_refused);
    g_test_add_func ("/pg/what-cannot-be-read-is-told-once", test_told_once);
    g_test_add_func ("/pg/what-was-set-for-a-connection-is-missed", test_connection_of_others);
    g_test_add_func ("/pg/a-connection-is-lost-by-what-is-inserted", test_lost_by_insert);
    g_test_add_func ("/pg/a-failed-query-takes-no-change-along", test_failed_query);
    g_test_add_func ("/pg/lost-commits-are-noticed", test_lost_commits);
    g_test_add_func ("/pg/commits-are-durable", test_durable);
    g_test_add_func ("/pg/locations-have-no-secrets", test_locations);
    g_test_add_func ("/pg/an-unanswered-commit-is-not-made-again", test_unanswered_commit);
    g_test_add_func ("/pg/a-cancelled-wait-for-a-standby-is-no-commit", test_cancelled_wait);
    g_test_add_func ("/pg/copies-are-the-same", test_copies);
    return g_test_run ();
}
