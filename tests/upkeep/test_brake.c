/* The brake on mass deletions, on what the catalog says was lost. */
#include "archive/archive_priv.h"
#include "catalog/brake.h"
#include "fixture.h"
#include "upkeep/upkeep.h"

#include <inttypes.h>
#include <sqlite3.h>

#define HOUR_NS   INT64_C (3600000000000)
#define MINUTE_NS INT64_C (60000000000)

/* How long ago something was, in minutes, and what there was then beyond what there is now. */
static void note (Fixture *fixture, int64_t minutes_ago, uint64_t n_lost, uint64_t n_files)
{
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (fixture->archive);
    const int64_t ago_ns = minutes_ago * MINUTE_NS;
    const EcfsLosses losses = {.age_ns = ecfs_catalog_age_ns (catalog) - ago_ns,
                               .time_ns = g_get_real_time () * 1000 - ago_ns,
                               .n_lost = n_lost,
                               .n_files = n_files};
    ecfs_catalog_losses_keep (catalog, &losses, INT64_MIN, &error);
    g_assert_no_error (error);
}

/* Behind the catalog's back, while it has no transaction open. */
static void run_sql (Fixture *fixture, const char *sql)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *path = g_build_filename (fixture->directory, "catalog.sqlite", NULL);
    sqlite3 *db = NULL;
    ecfs_catalog_barrier (ecfs_archive_catalog (fixture->archive), &error);
    g_assert_no_error (error);
    g_usleep (100000); /* until what it reads from is not older */
    g_assert_cmpint (sqlite3_open (path, &db), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_busy_timeout (db, 10000), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_exec (db, sql, NULL, NULL, NULL), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_close (db), ==, SQLITE_OK);
}

/* As if so many files had lost content. */
static void lose (Fixture *fixture, uint64_t n_lost)
{
    g_autofree char *sql = g_strdup_printf ("UPDATE counters SET n_lost = %" PRIu64, n_lost);
    run_sql (fixture, sql);
}

static EcfsBrake look (Fixture *fixture, int64_t *ret_held_from_ns)
{
    g_autoptr (GError) error = NULL;
    EcfsBrake brake;
    EcfsBrakeWatch *watch = ecfs_brake_watch_new (fixture->archive);
    g_assert_true (ecfs_brake_watch_look (watch, ret_held_from_ns));
    ecfs_brake_watch_free (watch);
    ecfs_catalog_brake (ecfs_archive_catalog (fixture->archive), &brake, &error);
    g_assert_no_error (error);
    return brake;
}

/* So many files, of which some are lost within so many minutes: whether it is a mass deletion, and is waited for. */
static void check (Fixture *fixture, uint64_t n_files, uint64_t n_lost, int64_t minutes, bool is_mass, bool waits)
{
    int64_t held_from_ns;
    run_sql (fixture, "UPDATE counters SET n_lost = 0; DELETE FROM brake; DELETE FROM losses");
    note (fixture, minutes, 0, n_files);
    note (fixture, 1, n_lost / 100, n_files); /* what little there was before it is not its beginning */
    lose (fixture, n_lost);
    EcfsBrake brake = look (fixture, &held_from_ns);
    g_assert_cmpint (brake.until_age_ns > 0, ==, is_mass);
    g_assert_cmpint (held_from_ns < INT64_MAX, ==, waits);
    if (!is_mass)
        return;
    int64_t ago_ns = g_get_real_time () * 1000 - brake.from.time_ns;
    g_assert_cmpint (ago_ns, >=, MINUTE_NS);
    g_assert_cmpint (ago_ns, <, 2 * MINUTE_NS);
    g_assert_cmpint (held_from_ns, <=, brake.from.age_ns);
    int64_t left_ns = brake.until_age_ns - ecfs_catalog_age_ns (ecfs_archive_catalog (fixture->archive));
    g_assert_cmpint (left_ns, >, 47 * HOUR_NS);
}

static void test_shares (Fixture *fixture, gconstpointer code)
{
    (void) code; /* the fixture's */
    check (fixture, 10000, 2001, 30, true, true);
    check (fixture, 10000, 2000, 30, false, true);
    check (fixture, 10000, 1001, 30, false, true);
    check (fixture, 10000, 1000, 30, false, false);
    check (fixture, 100, 1000, 30, false, true);
    check (fixture, 100, 1001, 30, true, true);
}

/* Threads of the archive read it, and there is none any more. */
static EcfsConfig *stopped (Fixture *fixture)
{
    ecfs_archive_stop (fixture->archive);
    return (EcfsConfig *) ecfs_archive_config (fixture->archive);
}

static void test_off (Fixture *fixture, gconstpointer code)
{
    (void) code; /* the fixture's */
    stopped (fixture)->delete_brake = 0;
    check (fixture, 10000, 10000, 30, false, false);
}

/* Of an archive that was never looked at, what came before is nothing to measure by: what comes is. */
static void test_first (Fixture *fixture, gconstpointer code)
{
    int64_t held_from_ns;
    (void) code; /* the fixture's */
    run_sql (fixture, "UPDATE counters SET n_lost = 0, n_files = 5000; DELETE FROM brake; DELETE FROM losses");
    g_assert_cmpint (look (fixture, &held_from_ns).until_age_ns, ==, 0);
    lose (fixture, 5000); /* before the next process looks */
    g_assert_cmpint (look (fixture, &held_from_ns).until_age_ns, >, 0);
}

/* What is kept for no time needs no brake, and nothing to be said each time. */
static void test_for_no_time (Fixture *fixture, gconstpointer code)
{
    (void) code; /* the fixture's */
    stopped (fixture)->history_min_us = 0;
    check (fixture, 10000, 5000, 30, false, true);
    /* Else nothing of that type goes into the column. */
    run_sql (fixture, "UPDATE counters SET n_lost = CASE WHEN EXISTS (SELECT 1 FROM brake) THEN 'brake' ELSE 0 END");
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL); /* a mass deletion is a warning */
    g_test_add ("/brake/a-share-of-the-files-and-a-thousand", Fixture, "copies:2", set_up, test_shares, tear_down);
    g_test_add ("/brake/the-first-is-no-exception", Fixture, "copies:2", set_up, test_first, tear_down);
    g_test_add ("/brake/for-no-time", Fixture, "copies:2", set_up, test_for_no_time, tear_down);
    g_test_add ("/brake/can-be-switched-off", Fixture, "copies:2", set_up, test_off, tear_down);
    return g_test_run ();
}
