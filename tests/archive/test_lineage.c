#include "../lab/flawed.h"
#include "archive/archive_priv.h"
#include "archive/lineage_priv.h"
#include "catalog/journal_file.h"
#include "fixture.h"
#include "journal/journal_watch.h"

#include <inttypes.h>
#include <unistd.h>

#define PATIENCE_US (60 * G_USEC_PER_SEC)
#define N_COPIES    3 /* of copies:3, which two losses leave one of */

/* Markers */

static char *marker_path (const Fixture *fixture, unsigned i)
{
    g_autofree char *root = endpoint_path (fixture, i);
    return g_build_filename (root, ECFS_MARKER_NAME, NULL);
}

static EcfsMarker read_marker (const Fixture *fixture, unsigned i)
{
    g_autofree char *path = marker_path (fixture, i), *text = NULL;
    g_autoptr (GError) error = NULL;
    gsize size;
    EcfsMarker marker;
    g_file_get_contents (path, &text, &size, &error);
    g_assert_no_error (error);
    ecfs_marker_parse (text, size, &marker, &error);
    g_assert_no_error (error);
    return marker;
}

static void write_marker (const Fixture *fixture, unsigned i, const EcfsMarker *marker)
{
    g_autofree char *path = marker_path (fixture, i), *text = ecfs_marker_format (marker);
    g_autoptr (GError) error = NULL;
    g_file_set_contents (path, text, -1, &error);
    g_assert_no_error (error);
}

/* Lies, of one endpoint each */

static void lie_epoch (const Fixture *fixture, unsigned i)
{
    EcfsMarker marker = read_marker (fixture, i);
    marker.epoch = UINT32_MAX;
    write_marker (fixture, i, &marker);
}

static void lie_sequence (const Fixture *fixture, unsigned i)
{
    EcfsMarker marker = read_marker (fixture, i);
    marker.sequence = UINT64_MAX;
    write_marker (fixture, i, &marker);
}

static void lie_session (const Fixture *fixture, unsigned i)
{
    EcfsMarker marker = read_marker (fixture, i);
    marker.session = ecfs_uuid_new ();
    marker.session_number = MAX (marker.session_number, 1);
    write_marker (fixture, i, &marker);
}

static void lie_journal (const Fixture *fixture, unsigned i)
{
    char name[ECFS_JOURNAL_NAME_SIZE];
    const EcfsJournalFile file = {.kind = ECFS_JOURNAL_SEGMENT, .epoch = 1, .first = 1, .last = 1u << 31};
    g_autofree char *root = endpoint_path (fixture, i);
    ecfs_journal_file_name (&file, name);
    g_autofree char *path = g_build_filename (root, name, NULL), *directory = g_path_get_dirname (path);
    g_assert_cmpint (g_mkdir_with_parents (directory, 0700), ==, 0);
    g_file_set_contents (path, "x", 1, NULL);
}

static void claim (const Fixture *fixture, unsigned i, const EcfsUuid *session, uint64_t count)
{
    EcfsMarker marker = read_marker (fixture, i);
    marker.claim = (EcfsMarkerClaim){
        .epoch = marker.epoch + 1, .session = *session, .count = count, .since_s = 1700000000, .host = "elsewhere"};
    write_marker (fixture, i, &marker);
}

static void lie_claim (const Fixture *fixture, unsigned i)
{
    EcfsUuid session = ecfs_uuid_new ();
    claim (fixture, i, &session, 1);
}

static void (*const lies[]) (const Fixture *fixture, unsigned i) = {lie_epoch, lie_sequence, lie_session, lie_journal,
                                                                    lie_claim};

/* What an archive has to do */

static void make_name (Fixture *fixture, const char *name)
{
    (void) make_file (fixture, name);
}

static bool store_journal (EcfsArchive *archive, GError **error)
{
    return ecfs_archive_store_journal (archive, NULL, NULL, error);
}

static void assert_stores (Fixture *fixture, const char *name)
{
    g_autoptr (GError) error = NULL;
    make_name (fixture, name);
    store_journal (fixture->archive, &error);
    g_assert_no_error (error);
}

static int try_open (const char *directory, EcfsArchive **ret_archive)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, 0, &error);
    g_assert_no_error (error);
    if (!ecfs_archive_start (archive, &error))
        return ecfs_errno (error);
    ecfs_archive_await_session (archive);
    *ret_archive = g_steal_pointer (&archive);
    return 0;
}

static void close_archive (Fixture *fixture)
{
    ecfs_archive_free (g_steal_pointer (&fixture->archive));
}

static void open_archive (Fixture *fixture)
{
    g_assert_cmpint (try_open (fixture->directory, &fixture->archive), ==, 0);
}

/* As a backup would hold it. */
static char *copy_directory (const Fixture *fixture)
{
    char *copy = g_strconcat (fixture->directory, "-copy", NULL);
    const char *argv[] = {"cp", "-a", fixture->directory, copy, NULL};
    int status = -1;
    g_assert_true (
        g_spawn_sync (NULL, (char **) argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, &status, NULL));
    g_assert_cmpint (status, ==, 0);
    return copy;
}

/* Up to two of six may say anything: the archive opens, stores and deletes as if they did not, and names them. */
static void test_liars (Fixture *fixture, gconstpointer user)
{
    unsigned n_liars = GPOINTER_TO_UINT (user);
    g_log_set_always_fatal (G_LOG_LEVEL_ERROR);
    set_up (fixture, "copies:3");
    for (size_t lie = 0; lie < G_N_ELEMENTS (lies); lie++) {
        g_autofree char *name = g_strdup_printf ("file%zu", lie);
        g_autofree char *other = g_strdup_printf ("other%zu", lie);
        close_archive (fixture);
        for (unsigned i = 0; i < n_liars; i++)
            lies[lie](fixture, i);
        open_archive (fixture);
        assert_stores (fixture, name);
        for (unsigned i = 0; i < N_ENDPOINTS; i++) {
            g_autofree char *said = ecfs_lineage_disagreement (fixture->archive->lineage, i);
            g_assert_true ((said != NULL) == (i < n_liars && lies[lie] != lie_claim));
            g_assert_true (ecfs_lineage_confirm (fixture->archive->lineage, i) == (i >= n_liars));
        }
        for (unsigned i = 0; i < n_liars; i++) /* and while it is open */
            lies[lie](fixture, i);
        assert_stores (fixture, other);
        for (unsigned i = 0; i < n_liars; i++) {
            g_autofree char *root = endpoint_path (fixture, i);
            g_autofree char *journal = g_build_filename (root, "journal", NULL);
            EcfsMarker honest = read_marker (fixture, n_liars);
            honest.endpoint = read_marker (fixture, i).endpoint;
            write_marker (fixture, i, &honest);
            if (lies[lie] == lie_journal)
                remove_tree (journal);
        }
    }
    tear_down (fixture, NULL);
}

static void test_too_many (Fixture *fixture, gconstpointer user)
{
    (void) user;
    close_archive (fixture);
    for (unsigned i = 0; i < N_COPIES; i++)
        lie_epoch (fixture, i);
    g_assert_cmpint (try_open (fixture->directory, &fixture->archive), ==, ESTALE);
}

/* Who cannot be asked may say the same: two that lie and one that is away stop the archive, and distrust lets it go on.
 */
static void test_distrust (Fixture *fixture, gconstpointer user)
{
    g_autoptr (GError) error = NULL;
    (void) user;
    close_archive (fixture);
    lie_epoch (fixture, 0);
    lie_sequence (fixture, 1);
    hide_endpoint (fixture, 5, true);
    g_assert_cmpint (try_open (fixture->directory, &fixture->archive), ==, ESTALE);
    fixture->archive = ecfs_archive_open (fixture->directory, 0, &error);
    g_assert_no_error (error);
    const char *name = ecfs_archive_endpoint (fixture->archive, 0)->name;
    ecfs_archive_set_endpoint_state (fixture->archive, name, ECFS_ENDPOINT_DISTRUSTED, &error);
    g_assert_no_error (error);
    close_archive (fixture);
    open_archive (fixture);
    assert_stores (fixture, "file");
    hide_endpoint (fixture, 5, false);
}

/* The machine was lost before its journal had gone anywhere: only the session tells that there was another. */
static void test_restored (Fixture *fixture, gconstpointer user)
{
    (void) user;
    assert_stores (fixture, "before");
    close_archive (fixture);
    g_autofree char *copy = copy_directory (fixture);
    open_archive (fixture);
    close_archive (fixture);
    EcfsArchive *old = NULL;
    g_assert_cmpint (try_open (copy, &old), ==, ESTALE);
    open_archive (fixture); /* which the old copy has not told a lie about */
    assert_stores (fixture, "behind");
}

static void test_equal_copies (Fixture *fixture, gconstpointer user)
{
    (void) user;
    assert_stores (fixture, "before");
    close_archive (fixture);
    g_autofree char *copy = copy_directory (fixture);
    open_archive (fixture);
    EcfsArchive *old = NULL;
    g_assert_cmpint (try_open (copy, &old), ==, ESTALE);
    assert_stores (fixture, "behind");
}

/* Both have read the markers before either wrote its own. */
static void test_equal_at_once (Fixture *fixture, gconstpointer user)
{
    EcfsMarker before[N_ENDPOINTS];
    g_autoptr (GError) error = NULL;
    (void) user;
    g_log_set_always_fatal (G_LOG_LEVEL_ERROR);
    assert_stores (fixture, "before");
    close_archive (fixture);
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        before[i] = read_marker (fixture, i);
    g_autofree char *copy = copy_directory (fixture);
    open_archive (fixture);
    make_name (fixture, "of-the-first");
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        write_marker (fixture, i, &before[i]);
    EcfsArchive *second = NULL;
    g_assert_cmpint (try_open (copy, &second), ==, 0);
    g_assert_false (store_journal (fixture->archive, &error));
    g_assert_error (error, ECFS_ERROR, ESTALE);
    ecfs_archive_free (second);
    close_archive (fixture);
}

/* The same, but the first has its journal stored: what it was promised for is there, so the second stops. */
static void test_equal_behind_journal (Fixture *fixture, gconstpointer user)
{
    EcfsMarker before[N_ENDPOINTS];
    (void) user;
    g_log_set_always_fatal (G_LOG_LEVEL_ERROR);
    assert_stores (fixture, "before");
    close_archive (fixture);
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        before[i] = read_marker (fixture, i);
    g_autofree char *copy = copy_directory (fixture);
    open_archive (fixture);
    assert_stores (fixture, "of-the-first");
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        write_marker (fixture, i, &before[i]);
    EcfsArchive *second = NULL;
    g_assert_cmpint (try_open (copy, &second), ==, ESTALE);
    close_archive (fixture);
}

static void test_recovered_elsewhere (Fixture *fixture, gconstpointer user)
{
    g_autoptr (GError) error = NULL;
    (void) user;
    g_log_set_always_fatal (G_LOG_LEVEL_ERROR);
    assert_stores (fixture, "before");
    for (unsigned i = 0; i < N_ENDPOINTS - N_COPIES + 1; i++) {
        EcfsMarker marker = read_marker (fixture, i);
        marker.epoch++;
        marker.session_number = 0;
        write_marker (fixture, i, &marker);
    }
    int64_t begun_us = ecfs_now_us ();
    g_assert_false (store_journal (fixture->archive, &error)); /* though there is nothing to be stored */
    g_assert_error (error, ECFS_ERROR, ESTALE);
    g_assert_cmpint (ecfs_now_us () - begun_us, <, 5 * G_USEC_PER_SEC);
    close_archive (fixture);
}

/* While a recovery lives nothing is promised; what it leaves when it is killed is taken back. */
static void test_claim (Fixture *fixture, gconstpointer user)
{
    EcfsUuid session = ecfs_uuid_new ();
    (void) user;
    g_log_set_always_fatal (G_LOG_LEVEL_ERROR);
    ecfs_lineage_again_us = G_USEC_PER_SEC / 5;
    ecfs_lineage_claim_us = 3 * G_USEC_PER_SEC;
    assert_stores (fixture, "before");
    int64_t begun_us = ecfs_now_us ();
    for (uint64_t count = 1; ecfs_now_us () - begun_us < 5 * G_USEC_PER_SEC; count++) {
        g_autoptr (GError) error = NULL;
        g_autofree char *name = g_strdup_printf ("file%" PRIu64, count);
        for (unsigned i = 0; i < N_ENDPOINTS; i++)
            claim (fixture, i, &session, count);
        (void) make_file (fixture, name);
        g_assert_false (store_journal (fixture->archive, &error));
        g_assert_error (error, ECFS_ERROR, ESTALE);
        g_assert_false (ecfs_lineage_may_delete (fixture->archive->lineage, 0));
        g_assert_false (ecfs_lineage_is_stale (fixture->archive->lineage));
        g_usleep (G_USEC_PER_SEC / 2);
    }
    bool stored = false;
    for (int64_t end_us = ecfs_now_us () + PATIENCE_US; !stored && ecfs_now_us () < end_us; g_usleep (100000))
        stored = store_journal (fixture->archive, NULL);
    g_assert_true (stored);
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        g_assert_cmpuint (read_marker (fixture, i).claim.epoch, ==, 0);
    ecfs_lineage_again_us = 20 * G_USEC_PER_SEC;
    ecfs_lineage_claim_us = 120 * G_USEC_PER_SEC;
}

/* A recovery was killed when it had written two markers of its own: they are taken back with its claim. */
static void test_half_marked (Fixture *fixture, gconstpointer user)
{
    EcfsUuid session = ecfs_uuid_new ();
    (void) user;
    g_log_set_always_fatal (G_LOG_LEVEL_ERROR);
    assert_stores (fixture, "before");
    close_archive (fixture);
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        claim (fixture, i, &session, 1);
    uint64_t number = 0;
    for (unsigned i = 0; i < N_COPIES - 1; i++) {
        EcfsMarker marker = read_marker (fixture, i);
        marker.epoch = marker.claim.epoch;
        marker.session = session;
        number = ++marker.session_number;
        marker.claim.epoch = 0;
        write_marker (fixture, i, &marker);
    }
    ecfs_lineage_again_us = G_USEC_PER_SEC / 5;
    ecfs_lineage_claim_us = G_USEC_PER_SEC;
    open_archive (fixture);
    bool good = false;
    for (int64_t end_us = ecfs_now_us () + PATIENCE_US; !good && ecfs_now_us () < end_us; g_usleep (20000)) {
        good = store_journal (fixture->archive, NULL);
        for (unsigned i = 0; i < N_ENDPOINTS; i++)
            good = good && ecfs_lineage_confirm (fixture->archive->lineage, i);
        for (unsigned i = 0; i < N_ENDPOINTS && good; i++) {
            EcfsMarker marker = read_marker (fixture, i);
            /* So it tells that this copy went on behind that; the later session comes with the next change. */
            good = marker.epoch == 1 && marker.session_number > number;
        }
    }
    g_assert_true (good);
    ecfs_lineage_again_us = 20 * G_USEC_PER_SEC;
    ecfs_lineage_claim_us = 120 * G_USEC_PER_SEC;
}

/* What a crash leaves of a marker or of a journal file that was on its way goes; a stripe's is the intents' to end. */
static void test_unfinished (Fixture *fixture, gconstpointer user)
{
    static const char *const names[] = {ECFS_MARKER_NAME ".0123456789abcdef", "journal-x.0123456789abcdef",
                                        "stripes-x.0123456789abcdef"};
    g_autofree char *root = endpoint_path (fixture, 2), *incoming = g_build_filename (root, "incoming", NULL);
    int64_t end_us = ecfs_now_us () + PATIENCE_US;
    close_archive (fixture);
    g_assert_cmpint (g_mkdir_with_parents (incoming, 0700), ==, 0);
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        g_autofree char *path = g_build_filename (incoming, names[i], NULL);
        g_assert_true (g_file_set_contents (path, "half", 4, NULL));
    }
    open_archive (fixture);
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        g_autofree char *path = g_build_filename (incoming, names[i], NULL);
        while (i < 2 && access (path, F_OK) == 0 && ecfs_now_us () < end_us)
            g_usleep (1000);
        g_assert_cmpint (access (path, F_OK), ==, i < 2 ? -1 : 0);
    }
}

/* From when it is opened next, an endpoint does as @rules say; see flaws.h. */
static void give_flaws (Fixture *fixture, unsigned i, const char *rules)
{
    g_autofree char *config = g_build_filename (fixture->directory, "ecfs.conf", NULL), *text = NULL;
    g_autofree char *flaws = g_build_filename (fixture->directory, "flaws", NULL);
    g_autofree char *root = endpoint_path (fixture, i);
    g_autofree char *before = g_strconcat ("url = file://", root, "\n", NULL);
    g_autofree char *behind = g_strconcat ("url = flaw+file://", root, "\nflaws = ", flaws, "\n", NULL);
    g_assert_true (g_file_set_contents (flaws, rules, -1, NULL));
    g_assert_true (g_file_get_contents (config, &text, NULL, NULL));
    g_autoptr (GString) changed = g_string_new (text);
    g_assert_cmpuint (g_string_replace (changed, before, behind, 0), ==, 1);
    g_assert_true (g_file_set_contents (config, changed->str, -1, NULL));
}

/* Who asks right after the beginning of a session is not told that an endpoint disagrees which is only slow. */
static void slow_down (Fixture *fixture, unsigned i)
{
    close_archive (fixture);
    give_flaws (fixture, i, "mark 1+ delay 1000\n");
    open_archive (fixture);
}

static void test_slow (Fixture *fixture, gconstpointer user)
{
    (void) user;
    slow_down (fixture, N_ENDPOINTS - 1);
    ecfs_lineage_await_told (fixture->archive->lineage, N_ENDPOINTS - 1, ecfs_now_us () + PATIENCE_US);
    g_assert_true (ecfs_lineage_confirm (fixture->archive->lineage, N_ENDPOINTS - 1));
}

/* Nor is it passed over by a snapshot that makes up for what endpoints lost: of equal ones the first gets it. */
static void test_slow_renewed (Fixture *fixture, gconstpointer user)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *root = endpoint_path (fixture, 0), *snapshots = g_build_filename (root, "snapshots", NULL);
    (void) user;
    slow_down (fixture, 0);
    ecfs_journal_renew (fixture->archive, &error);
    g_assert_no_error (error);
    g_autoptr (GDir) directory = g_dir_open (snapshots, 0, &error);
    g_assert_no_error (error);
    g_assert_nonnull (g_dir_read_name (directory));
}

/* However many never take it, that costs the snapshot the time of one. */
static void test_hung_renewed (Fixture *fixture, gconstpointer user)
{
    g_autoptr (GError) error = NULL;
    (void) user;
    g_log_set_always_fatal (G_LOG_LEVEL_ERROR);
    close_archive (fixture);
    for (unsigned i = 0; i < N_ENDPOINTS - N_COPIES; i++)
        give_flaws (fixture, i, "mark 1+ hang\n");
    ecfs_lineage_told_us = 3 * G_USEC_PER_SEC;
    open_archive (fixture);
    int64_t begun_us = ecfs_now_us ();
    ecfs_journal_renew (fixture->archive, &error);
    int64_t took_us = ecfs_now_us () - begun_us;
    g_assert_no_error (error);
    g_assert_cmpint (took_us, >=, ecfs_lineage_told_us);
    g_assert_cmpint (took_us, <, 2 * ecfs_lineage_told_us);
    ecfs_lineage_told_us = 10 * G_USEC_PER_SEC;
}

/* What follows from one's answer may be that another is told: until that is begun, nobody is passed over. */
static void test_ending (Fixture *fixture, gconstpointer user)
{
    g_autoptr (GError) error = NULL;
    (void) user;
    close_archive (fixture);
    EcfsArchive *archive = ecfs_archive_open (fixture->directory, 0, &error);
    g_assert_no_error (error);
    ecfs_archive_begin (archive, &error); /* without its services, which would tell it themselves */
    g_assert_no_error (error);
    EcfsLineage *lineage = archive->lineage;
    EcfsWitness *first = &lineage->witnesses[0], *last = &lineage->witnesses[N_ENDPOINTS - 1];
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        ecfs_lineage_await_told (lineage, i, ecfs_now_us () + PATIENCE_US);
    ecfs_mutex_lock (&lineage->lock);
    while (lineage->n_due > 0) /* a round that still ends would tell it at once */
        (void) ecfs_cond_wait_until (&lineage->changed, &lineage->lock, ecfs_now_us () + PATIENCE_US);
    g_assert_true (last->checked);
    last->checked = false;
    first->n_ending = 1;
    ecfs_mutex_unlock (&lineage->lock);
    int64_t deadline_us = ecfs_now_us () + G_USEC_PER_SEC / 5;
    ecfs_lineage_await_told (lineage, N_ENDPOINTS - 1, deadline_us);
    g_assert_cmpint (ecfs_now_us (), >=, deadline_us);
    ecfs_mutex_lock (&lineage->lock);
    first->n_ending = 0;
    ecfs_mutex_unlock (&lineage->lock);
    int64_t begun_us = ecfs_now_us ();
    ecfs_lineage_await_told (lineage, N_ENDPOINTS - 1, begun_us + PATIENCE_US); /* nothing will tell it */
    g_assert_cmpint (ecfs_now_us () - begun_us, <, PATIENCE_US);
    ecfs_archive_close (archive);
}

/* A place that says what is not so can be taken out. */
static void test_remove (Fixture *fixture, gconstpointer user)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *left = NULL;
    (void) user;
    g_log_set_always_fatal (G_LOG_LEVEL_ERROR);
    assert_stores (fixture, "before");
    close_archive (fixture);
    lie_epoch (fixture, 2);
    open_archive (fixture);
    const char *name = ecfs_archive_endpoint (fixture->archive, 2)->name;
    ecfs_archive_remove_endpoint (fixture->archive, name, &left, &error);
    g_assert_no_error (error);
    close_archive (fixture);
    open_archive (fixture);
    g_assert_cmpuint (ecfs_archive_n_left (fixture->archive), ==, N_ENDPOINTS - 1);
    assert_stores (fixture, "behind");
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    flawed_register ();
    static const char code[] = "copies:3";
    g_test_add ("/lineage/one-of-six-may-lie", Fixture, GUINT_TO_POINTER (1), NULL, test_liars, NULL);
    g_test_add ("/lineage/two-of-six-may-lie", Fixture, GUINT_TO_POINTER (2), NULL, test_liars, NULL);
    g_test_add ("/lineage/three-of-six-are-believed", Fixture, code, set_up, test_too_many, tear_down);
    g_test_add ("/lineage/who-is-distrusted-is-not-asked", Fixture, code, set_up, test_distrust, tear_down);
    g_test_add ("/lineage/a-restored-directory-is-known-by-the-session", Fixture, code, set_up, test_restored,
                tear_down);
    g_test_add ("/lineage/of-equal-copies-the-second-stops", Fixture, code, set_up, test_equal_copies, tear_down);
    g_test_add ("/lineage/of-equal-copies-at-once-one-stops", Fixture, code, set_up, test_equal_at_once, tear_down);
    g_test_add ("/lineage/what-was-promised-stops-the-second", Fixture, code, set_up, test_equal_behind_journal,
                tear_down);
    g_test_add ("/lineage/nothing-is-promised-when-recovered-elsewhere", Fixture, code, set_up,
                test_recovered_elsewhere, tear_down);
    g_test_add ("/lineage/a-claim-holds-while-it-lives", Fixture, code, set_up, test_claim, tear_down);
    g_test_add ("/lineage/markers-of-a-dead-recovery-are-taken-back", Fixture, code, set_up, test_half_marked,
                tear_down);
    g_test_add ("/lineage/what-a-crash-left-is-removed", Fixture, code, set_up, test_unfinished, tear_down);
    g_test_add ("/lineage/a-slow-marker-is-awaited", Fixture, code, set_up, test_slow, tear_down);
    g_test_add ("/lineage/a-slow-endpoint-gets-the-new-snapshot", Fixture, code, set_up, test_slow_renewed, tear_down);
    g_test_add ("/lineage/endpoints-that-hang-delay-a-snapshot-once", Fixture, code, set_up, test_hung_renewed,
                tear_down);
    g_test_add ("/lineage/what-follows-from-an-answer-is-awaited", Fixture, code, set_up, test_ending, tear_down);
    g_test_add ("/lineage/who-lies-can-be-removed", Fixture, code, set_up, test_remove, tear_down);
    return g_test_run ();
}
