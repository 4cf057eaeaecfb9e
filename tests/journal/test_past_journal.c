/* What tells the past is given back to endpoints that lack it, and what goes with one is known. */
#include "archive/archive_priv.h"
#include "catalog/journal_file.h"
#include "fixture.h"
#include "journal/journal_watch.h"
#include "journal/past_journal.h"
#include "program/program.h"

#include <glib/gstdio.h>

#define N_MOMENTS 3
#define LOOK_US   5000

static void want_history (EcfsConfig *config)
{
    config->history_us = INT64_C (3600) * G_USEC_PER_SEC;
}

static char *journal_path (const Fixture *fixture, unsigned endpoint, const char *kind)
{
    g_autofree char *root = endpoint_path (fixture, endpoint);
    return g_build_filename (root, kind, NULL);
}

/* Names of an endpoint's files that tell the past, in order. */
static GPtrArray *list_files (const Fixture *fixture, unsigned endpoint, const char *kind)
{
    GPtrArray *names = g_ptr_array_new_with_free_func (g_free);
    g_autofree char *path = journal_path (fixture, endpoint, kind);
    g_autoptr (GDir) directory = g_dir_open (path, 0, NULL);
    const char *name;
    while (directory != NULL && (name = g_dir_read_name (directory)) != NULL)
        g_ptr_array_add (names, g_build_filename (kind, name, NULL));
    return names;
}

/* Moments that segments and snapshots tell, all at each endpoint. */
static void set_up_past (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    set_up_adjusted (fixture, code, want_history);
    for (unsigned i = 0; i < N_MOMENTS; i++) {
        g_autofree char *name = g_strdup_printf ("file %u", i);
        (void) make_file (fixture, name);
        g_assert_true (ecfs_archive_store_journal (fixture->archive, NULL, NULL, &error));
        for (unsigned j = 0; j < N_ENDPOINTS; j++) /* some are later than as many as are needed */
            for (guint n = 0; n <= i; g_usleep (LOOK_US)) {
                g_autoptr (GPtrArray) names = list_files (fixture, j, ECFS_JOURNAL_DIRECTORY);
                n = names->len;
            }
        g_assert_true (ecfs_journal_renew (fixture->archive, &error));
    }
    g_assert_no_error (error);
}

static void lose_one (const Fixture *fixture, unsigned endpoint, const char *name)
{
    g_autofree char *path = journal_path (fixture, endpoint, name);
    g_assert_cmpint (g_remove (path), ==, 0);
}

static void lose_all (const Fixture *fixture, unsigned endpoint)
{
    static const char *const kinds[] = {ECFS_JOURNAL_DIRECTORY, ECFS_SNAPSHOT_DIRECTORY};
    for (size_t i = 0; i < G_N_ELEMENTS (kinds); i++) {
        g_autoptr (GPtrArray) names = list_files (fixture, endpoint, kinds[i]);
        for (guint j = 0; j < names->len; j++)
            lose_one (fixture, endpoint, names->pdata[j]);
    }
}

/* The first segment of all. */
static char *oldest (const Fixture *fixture)
{
    g_autoptr (GPtrArray) names = list_files (fixture, 0, ECFS_JOURNAL_DIRECTORY);
    const char *first = NULL;
    for (guint i = 0; i < names->len; i++)
        if (first == NULL || strcmp (names->pdata[i], first) < 0)
            first = names->pdata[i];
    return g_strdup (first);
}

static EcfsPastJournal *look (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    EcfsPastJournal *past = ecfs_past_journal_look (fixture->archive, &error);
    g_assert_no_error (error);
    return past;
}

static void give (EcfsPastJournal *past)
{
    g_autoptr (GError) error = NULL;
    g_assert_true (ecfs_past_journal_give (past, NULL, INT64_MAX, &error));
}

static void assert_same_file (const Fixture *fixture, const char *name)
{
    g_autofree char *one = journal_path (fixture, 0, name), *other = journal_path (fixture, 1, name);
    g_autofree char *own = NULL, *theirs = NULL;
    gsize own_size, size;
    g_assert_true (g_file_get_contents (one, &own, &own_size, NULL));
    g_assert_true (g_file_get_contents (other, &theirs, &size, NULL));
    g_assert_cmpuint (own_size, ==, size);
    g_assert_cmpint (memcmp (own, theirs, size), ==, 0);
}

static void test_lost_is_given_back (Fixture *fixture, gconstpointer code)
{
    g_autofree char *name = oldest (fixture);
    ecfs_mutex_lock (ecfs_archive_snapshot_lock (fixture->archive));
    lose_all (fixture, 0);
    g_autoptr (EcfsPastJournal) past = look (fixture);
    g_assert_cmpuint (ecfs_past_journal_lacks (past, 0), >=, N_MOMENTS);
    g_assert_cmpuint (ecfs_past_journal_lacks (past, 1), ==, 0);
    give (past);
    g_assert_cmpuint (ecfs_past_journal_lacks (past, 0), ==, 0);
    ecfs_mutex_unlock (ecfs_archive_snapshot_lock (fixture->archive));
    assert_same_file (fixture, name);
}

/* Of an archive without a key nobody else says the same of it. */
static void test_nobody_alone_is_believed (Fixture *fixture, gconstpointer code)
{
    unsigned n;
    g_autofree char *name = oldest (fixture);
    ecfs_mutex_lock (ecfs_archive_snapshot_lock (fixture->archive));
    for (unsigned i = 1; i < N_ENDPOINTS; i++)
        lose_one (fixture, i, name);
    g_autoptr (EcfsPastJournal) past = look (fixture);
    g_assert_cmpuint (ecfs_past_journal_lacks (past, 1), ==, 1);
    give (past);
    g_assert_cmpuint (ecfs_past_journal_lacks (past, 1), ==, 0); /* it is not asked for again */
    g_assert_true (ecfs_past_journal_left (past, 0, &n));
    g_assert_cmpuint (n, ==, 1);
    g_assert_true (ecfs_past_journal_left (past, 1, &n));
    g_assert_cmpuint (n, ==, 0);
    ecfs_mutex_unlock (ecfs_archive_snapshot_lock (fixture->archive));
}

/* Nothing is lost with an endpoint where the others have all, and else that is not known. */
static void test_who_cannot_be_asked (Fixture *fixture, gconstpointer code)
{
    unsigned n;
    g_autofree char *name = oldest (fixture), *path = journal_path (fixture, 0, ECFS_JOURNAL_DIRECTORY);
    ecfs_mutex_lock (ecfs_archive_snapshot_lock (fixture->archive));
    g_autofree char *away = g_strconcat (path, ".away", NULL);
    g_assert_cmpint (g_rename (path, away), ==, 0);
    g_assert_true (g_file_set_contents (path, "no directory", -1, NULL));
    g_autoptr (EcfsPastJournal) whole = look (fixture);
    g_assert_true (ecfs_past_journal_left (whole, 0, &n));
    g_assert_cmpuint (n, ==, 0);
    for (unsigned i = 1; i < N_ENDPOINTS; i++)
        lose_one (fixture, i, name);
    g_autoptr (EcfsPastJournal) gapped = look (fixture);
    g_assert_false (ecfs_past_journal_left (gapped, 0, &n));
    g_assert_true (ecfs_past_journal_left (gapped, 1, &n));
    g_assert_cmpint (g_remove (path), ==, 0);
    g_assert_cmpint (g_rename (away, path), ==, 0);
    ecfs_mutex_unlock (ecfs_archive_snapshot_lock (fixture->archive));
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_test_add ("/past-journal/lost-is-given-back", Fixture, "rs:4+2", set_up_past, test_lost_is_given_back, tear_down);
    g_test_add ("/past-journal/nobody-alone-is-believed", Fixture, "rs:4+2", set_up_past, test_nobody_alone_is_believed,
                tear_down);
    g_test_add ("/past-journal/who-cannot-be-asked", Fixture, "rs:4+2", set_up_past, test_who_cannot_be_asked,
                tear_down);
    return g_test_run ();
}
