/* Moving a catalog to PostgreSQL and back, killed before each step: it is there once, and whole. */
#include "fixture.h"

#include "archive/catalog_place.h"
#include "archive/common.h"
#include "catalog/move.h"
#include "ecfs/ecfs.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_FILES 1500 /* more than are read at once */

static bool add_record (void *user, const GByteArray *record, GError **error)
{
    (void) error;
    g_checksum_update (user, record->data, record->len);
    return true;
}

/* Of all that a recovery would need to know, wherever it is; g_free (). */
static char *digest (const Fixture *f)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GChecksum) sum = g_checksum_new (G_CHECKSUM_SHA256);
    uint64_t sequence;
    g_autofree char *place = ecfs_catalog_place_in (f->directory, &error);
    EcfsCatalog *catalog = place == NULL ? NULL : ecfs_catalog_open (place, ECFS_CATALOG_READONLY, &error);
    g_assert_no_error (error);
    (void) ecfs_catalog_dump (catalog, add_record, sum, &sequence, &error);
    g_assert_no_error (error);
    g_assert_true (ecfs_catalog_close (catalog, NULL));
    return g_strdup (g_checksum_get_string (sum));
}

static void fill (Fixture *f)
{
    for (unsigned i = 0; i < N_FILES; i++) {
        g_autofree char *name = g_strdup_printf ("file-%u-\303\244-\377", i);
        (void) make_file (f, name);
    }
    ecfs_archive_free (g_steal_pointer (&f->archive));
}

static const char *server (void)
{
    return g_getenv ("ECFS_TEST_POSTGRESQL");
}

static int move (const Fixture *f, const char *to)
{
    const EcfsMoving how = {.dry_run = false};
    g_autoptr (GError) error = NULL;
    g_autofree char *report = ecfs_move_catalog (f->directory, to, &how, &error);
    g_assert_true ((report == NULL) == (error != NULL));
    return error == NULL ? 0 : error->code;
}

#define OFTEN 40 /* of steps that are many, one in so many counts */

static unsigned n_steps_left, n_many;

static void die_at (const char *step)
{
    if (g_str_has_suffix (step, " rows") && n_many++ % OFTEN != 0)
        return;
    if (n_steps_left-- == 0)
        (void) raise (SIGKILL);
}

/* Whether it came to its end before it was killed. */
static bool move_killed (const Fixture *f, const char *to, unsigned n_steps)
{
    int status;
    pid_t child = fork ();
    g_assert_cmpint (child, >=, 0);
    if (child == 0) {
        n_steps_left = n_steps;
        ecfs_catalog_move_step = die_at;
        _exit (move (f, to));
    }
    g_assert_cmpint (waitpid (child, &status, 0), ==, child);
    g_assert_true (WIFEXITED (status) ? WEXITSTATUS (status) == 0 : WTERMSIG (status) == SIGKILL);
    return WIFEXITED (status);
}

static EcfsPgState state_of (const Fixture *f)
{
    g_autofree char *path = g_build_filename (f->directory, ECFS_CATALOG_PLACE_NAME, NULL);
    g_autofree char *uuids = NULL, *where = NULL;
    EcfsPgState state;
    g_autoptr (GError) error = NULL;
    if (!g_file_get_contents (path, &uuids, NULL, NULL))
        return ECFS_PG_NONE;
    g_autofree char *location = g_strconcat (server (), "#", g_strchomp (uuids), NULL);
    (void) ecfs_pg_state (location, &state, &where, &error);
    g_assert_no_error (error);
    return state;
}

/* What may be written: one of both at most, and by those alone who know where it is. */
static void assert_one (const Fixture *f)
{
    g_autofree char *file = g_build_filename (f->directory, ECFS_CATALOG_NAME, NULL);
    g_autoptr (GError) error = NULL;
    EcfsArchive *archive = ecfs_archive_open (f->directory, 0, &error);
    bool uses_file = archive != NULL && ecfs_archive_config (archive)->catalog == NULL;
    if (archive == NULL)
        g_assert_true (error->code == EAGAIN || error->code == ESTALE);
    if (archive != NULL && uses_file)
        g_assert_cmpint (state_of (f), !=, ECFS_PG_USED);
    if (archive != NULL && !uses_file)
        g_assert_cmpint (access (file, F_OK), !=, 0);
    ecfs_archive_free (archive);
}

static void kill_at_each_step (const Fixture *f, const char *to, const char *back, const char *expected)
{
    unsigned n_steps = 0;
    for (bool ended = false; !ended; n_steps++) {
        ended = move_killed (f, to, n_steps);
        assert_one (f);
        g_assert_cmpint (move (f, to), ==, 0);
        g_autofree char *found = digest (f);
        g_assert_cmpstr (found, ==, expected);
        assert_one (f);
        if (!ended)
            g_assert_cmpint (move (f, back), ==, 0);
    }
    g_assert_cmpuint (n_steps, >, 5);
}

static void test_killed (Fixture *f, gconstpointer code)
{
    fill (f);
    g_autofree char *expected = digest (f);
    kill_at_each_step (f, server (), "file", expected);
    kill_at_each_step (f, "file", server (), expected);
    reopen (f);
    (void) make_file (f, "later");
    ecfs_archive_free (g_steal_pointer (&f->archive));
}

/* Who has the database's address and nothing newer is told where the catalog went, and writes nothing. */
static void test_left (Fixture *f, gconstpointer code)
{
    fill (f);
    g_assert_cmpint (move (f, server ()), ==, 0);
    g_autofree char *place = ecfs_catalog_place_in (f->directory, NULL);
    g_assert_cmpint (move (f, "file"), ==, 0);
    for (unsigned flags = 0; flags <= ECFS_CATALOG_READONLY; flags++) {
        g_autoptr (GError) error = NULL;
        g_assert_null (ecfs_catalog_open (place, flags, &error));
        g_assert_error (error, ECFS_ERROR, ESTALE);
        g_assert_nonnull (strstr (error->message, f->directory));
    }
}

/* A copy that is not what was copied is found before anything changes. */
static void die_late (const char *step)
{
    if (strcmp (step, "naming the file in ecfs.conf") == 0)
        (void) raise (SIGKILL);
}

/* The way back is not open before the move has ended: what is to be typed is said, by whoever is asked. */
static void test_under_way (Fixture *f, gconstpointer code)
{
    int status;
    fill (f);
    g_assert_cmpint (move (f, server ()), ==, 0);
    pid_t child = fork ();
    g_assert_cmpint (child, >=, 0);
    if (child == 0) {
        ecfs_catalog_move_step = die_late;
        _exit (move (f, "file"));
    }
    g_assert_cmpint (waitpid (child, &status, 0), ==, child);
    g_assert_true (WIFSIGNALED (status));
    const EcfsMoving how = {.tell = NULL};
    g_autofree char *command = g_strdup_printf ("'ecfs catalog move %s file'", f->directory);
    g_autoptr (GError) refused = NULL, closed = NULL;
    g_autofree char *report = ecfs_move_catalog (f->directory, server (), &how, &refused);
    g_assert_null (report);
    g_assert_error (refused, ECFS_ERROR, ESTALE);
    g_assert_nonnull (strstr (refused->message, command));
    g_assert_null (ecfs_archive_open (f->directory, 0, &closed));
    g_assert_nonnull (strstr (closed->message, "'ecfs catalog move ARCHIVE file'"));
    g_assert_cmpint (move (f, "file"), ==, 0);
    g_assert_cmpint (move (f, server ()), ==, 0);
}

static void damage (const char *step)
{
    g_autofree char *sql = g_strdup_printf (
        "psql -X -q -d '%s' -c \"DO \\$\\$ DECLARE one text; BEGIN FOR one IN SELECT nspname FROM pg_namespace WHERE "
        "nspname LIKE 'ecfs!_%%' ESCAPE '!' LOOP EXECUTE format ('UPDATE %%I.inodes SET mtime_ns = mtime_ns + 1 WHERE "
        "ino = 9', one); END LOOP; END \\$\\$\"",
        server ());
    int status;
    if (strcmp (step, "copied") != 0)
        return;
    g_assert_true (g_spawn_command_line_sync (sql, NULL, NULL, &status, NULL));
    g_assert_cmpint (status, ==, 0);
}

static void test_damaged (Fixture *f, gconstpointer code)
{
    fill (f);
    g_autofree char *expected = digest (f);
    ecfs_catalog_move_step = damage;
    g_assert_cmpint (move (f, server ()), ==, EBADMSG);
    ecfs_catalog_move_step = NULL;
    g_autofree char *found = digest (f);
    g_assert_cmpstr (found, ==, expected);
    g_assert_cmpint (state_of (f), ==, ECFS_PG_ARRIVING);
    g_assert_cmpint (move (f, server ()), ==, 0);
    g_autofree char *moved = digest (f);
    g_assert_cmpstr (moved, ==, expected);
}

static void test_in_use (Fixture *f, gconstpointer code)
{
    g_assert_cmpint (move (f, server ()), ==, EBUSY);
    ecfs_archive_free (g_steal_pointer (&f->archive));
    g_assert_cmpint (move (f, "service"), ==, EINVAL);
    g_assert_cmpint (move (f, "file"), ==, 0);
    reopen (f);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    if (server () == NULL)
        return 77; /* on_postgresql.py runs it with one */
    g_test_add ("/catalog-move/killed-at-each-step", Fixture, "copies:2", set_up, test_killed, tear_down);
    g_test_add ("/catalog-move/what-was-left-says-where", Fixture, "copies:2", set_up, test_left, tear_down);
    g_test_add ("/catalog-move/what-is-under-way-is-ended-first", Fixture, "copies:2", set_up, test_under_way,
                tear_down);
    g_test_add ("/catalog-move/a-wrong-copy-changes-nothing", Fixture, "copies:2", set_up, test_damaged, tear_down);
    g_test_add ("/catalog-move/not-while-it-is-used", Fixture, "copies:2", set_up, test_in_use, tear_down);
    return g_test_run ();
}
