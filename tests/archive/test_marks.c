/* Markers of an archive with a key: which are authentic, and what those that are not can do to it. */
#include "archive/archive_priv.h"
#include "archive/key_slots.h"
#include "archive/marks.h"
#include "fixture.h"
#include "journal/journal_watch.h"

#include <string.h>

#define PATIENCE_US (60 * G_USEC_PER_SEC)
#define N_TOLERATED 2 /* by copies:3 */

/* Markers alone */

static EcfsMarker make_marker (const EcfsKeyRing *keys)
{
    EcfsMarker marker = {.archive = *ecfs_key_ring_archive (keys),
                         .endpoint = ecfs_uuid_new (),
                         .epoch = 3,
                         .sequence = 12345,
                         .session_number = 7,
                         .session = ecfs_uuid_new (),
                         .since_s = 1700000000,
                         .host = "somewhere",
                         .copies = 3,
                         .endpoints = 6,
                         .claim = {.epoch = 4, .session = ecfs_uuid_new (), .count = 9, .since_s = 5, .host = "else"}};
    ecfs_marker_sign (&marker, keys);
    return marker;
}

static EcfsKeyRing *make_keys (void)
{
    EcfsUuid archive = ecfs_uuid_new ();
    return ecfs_key_ring_new (&archive);
}

static EcfsMarkerWorth judge_text (const char *text, size_t size, const EcfsKeyRing *keys, const EcfsUuid *endpoint)
{
    EcfsMarker marker;
    return ecfs_marker_parse (text, size, &marker, NULL) ? ecfs_marker_judge (&marker, keys, endpoint)
                                                         : ECFS_MARKER_BROKEN;
}

static void test_round_trip (void)
{
    g_autoptr (EcfsKeyRing) keys = make_keys ();
    EcfsMarker marker = make_marker (keys), again = {.epoch = 0};
    g_autofree char *text = ecfs_marker_format (&marker);
    g_autoptr (GError) error = NULL;
    ecfs_marker_parse (text, strlen (text), &again, &error);
    g_assert_no_error (error);
    g_autofree char *same = ecfs_marker_format (&again);
    g_assert_cmpstr (text, ==, same);
    g_assert_cmpint (ecfs_marker_judge (&again, keys, &marker.endpoint), ==, ECFS_MARKER_AUTHENTIC);
    g_assert_cmpint (ecfs_marker_judge (&again, keys, NULL), ==, ECFS_MARKER_AUTHENTIC);
}

/* Whatever bit is another, it is not what the archive wrote; and the same for any bytes less or more. */
static void test_every_bit (void)
{
    g_autoptr (EcfsKeyRing) keys = make_keys ();
    EcfsMarker marker = make_marker (keys);
    g_autofree char *text = ecfs_marker_format (&marker);
    size_t size = strlen (text);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        text[bit / 8] = (char) (text[bit / 8] ^ 1 << bit % 8);
        g_assert_cmpint (judge_text (text, size, keys, &marker.endpoint), !=, ECFS_MARKER_AUTHENTIC);
        text[bit / 8] = (char) (text[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t shorter = 0; shorter < size; shorter++)
        g_assert_cmpint (judge_text (text, shorter, keys, &marker.endpoint), !=, ECFS_MARKER_AUTHENTIC);
    g_autofree char *longer = g_strconcat (text, "\n", NULL), *more = g_strconcat (text, "epoch=9\n", NULL);
    g_assert_cmpint (judge_text (longer, strlen (longer), keys, NULL), ==, ECFS_MARKER_FORGED);
    g_assert_cmpint (judge_text (more, strlen (more), keys, NULL), ==, ECFS_MARKER_FORGED);
    g_assert_cmpint (judge_text (text, size, keys, &marker.endpoint), ==, ECFS_MARKER_AUTHENTIC);
}

static void test_swapped (void)
{
    g_autoptr (EcfsKeyRing) keys = make_keys (), others = make_keys ();
    EcfsMarker marker = make_marker (keys), other = make_marker (keys), foreign = make_marker (others);
    g_assert_cmpint (ecfs_marker_judge (&marker, keys, &other.endpoint), ==, ECFS_MARKER_MISPLACED);
    g_assert_cmpint (ecfs_marker_judge (&foreign, keys, &marker.endpoint), ==, ECFS_MARKER_MISPLACED);
    other.endpoint = marker.endpoint; /* with the other's MAC */
    g_assert_cmpint (ecfs_marker_judge (&other, keys, &marker.endpoint), ==, ECFS_MARKER_FORGED);
    foreign.archive = marker.archive;
    foreign.endpoint = marker.endpoint;
    g_assert_cmpint (ecfs_marker_judge (&foreign, keys, &marker.endpoint), ==, ECFS_MARKER_UNKNOWN_KEY);
    foreign.key = marker.key;
    g_assert_cmpint (ecfs_marker_judge (&foreign, keys, &marker.endpoint), ==, ECFS_MARKER_FORGED);
    marker.key = (EcfsUuid){.bytes = {0}};
    g_assert_cmpint (ecfs_marker_judge (&marker, keys, &marker.endpoint), ==, ECFS_MARKER_UNSIGNED);
}

/* As they were before there were keys. */
static void test_without_key (void)
{
    g_autoptr (EcfsKeyRing) keys = make_keys ();
    EcfsMarker marker = make_marker (keys);
    g_assert_cmpint (ecfs_marker_judge (&marker, NULL, NULL), ==, ECFS_MARKER_UNKNOWN_KEY);
    ecfs_marker_sign (&marker, NULL);
    g_autofree char *text = ecfs_marker_format (&marker);
    g_assert_null (strstr (text, "key="));
    g_assert_null (strstr (text, "mac="));
    g_assert_cmpint (ecfs_marker_judge (&marker, NULL, NULL), ==, ECFS_MARKER_AUTHENTIC);
}

/* At endpoints */

static char *marker_path (const Fixture *fixture, unsigned i)
{
    g_autofree char *root = endpoint_path (fixture, i);
    return g_build_filename (root, ECFS_MARKER_NAME, NULL);
}

static char *read_text (const Fixture *fixture, unsigned i)
{
    g_autofree char *path = marker_path (fixture, i);
    char *text = NULL;
    g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
    return text;
}

static EcfsMarker read_marker (const Fixture *fixture, unsigned i)
{
    EcfsMarker marker;
    g_autofree char *text = read_text (fixture, i);
    g_assert_true (ecfs_marker_parse (text, strlen (text), &marker, NULL));
    return marker;
}

static void write_text (const Fixture *fixture, unsigned i, const char *text)
{
    g_autofree char *path = marker_path (fixture, i);
    g_assert_true (g_file_set_contents (path, text, -1, NULL));
}

static void write_marker (const Fixture *fixture, unsigned i, const EcfsMarker *marker)
{
    g_autofree char *text = ecfs_marker_format (marker);
    write_text (fixture, i, text);
}

/* Lies, of one endpoint each */

static void forge_epoch (const Fixture *fixture, unsigned i)
{
    EcfsMarker marker = read_marker (fixture, i);
    marker.epoch = UINT32_MAX;
    write_marker (fixture, i, &marker);
}

static void forge_claim (const Fixture *fixture, unsigned i)
{
    EcfsMarker marker = read_marker (fixture, i);
    marker.claim = (EcfsMarkerClaim){.epoch = marker.epoch + 1, .session = ecfs_uuid_new (), .count = 1};
    write_marker (fixture, i, &marker);
}

static void forge_unsigned_epoch (const Fixture *fixture, unsigned i)
{
    EcfsMarker marker = read_marker (fixture, i);
    ecfs_marker_sign (&marker, NULL);
    marker.epoch++;
    write_marker (fixture, i, &marker);
}

static void name_unknown_key (const Fixture *fixture, unsigned i)
{
    EcfsMarker marker = read_marker (fixture, i);
    marker.key = ecfs_uuid_new ();
    write_marker (fixture, i, &marker);
}

static void (*const lies[]) (const Fixture *fixture, unsigned i) = {forge_epoch, forge_claim, forge_unsigned_epoch,
                                                                    name_unknown_key};

static bool store (Fixture *fixture, const char *name, GError **error)
{
    (void) make_file (fixture, name);
    return ecfs_archive_store_journal (fixture->archive, NULL, NULL, error);
}

static void assert_stores (Fixture *fixture, const char *name)
{
    g_autoptr (GError) error = NULL;
    store (fixture, name, &error);
    g_assert_no_error (error);
}

static void close_archive (Fixture *fixture)
{
    ecfs_archive_free (g_steal_pointer (&fixture->archive));
}

static int try_open (Fixture *fixture, const char *directory)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, 0, &error);
    g_assert_no_error (error);
    if (!ecfs_archive_start (archive, &error))
        return ecfs_errno (error);
    ecfs_archive_await_session (archive);
    fixture->archive = g_steal_pointer (&archive);
    return 0;
}

static void assert_authentic (const Fixture *fixture, unsigned i)
{
    EcfsMarker marker = read_marker (fixture, i);
    g_assert_cmpint (ecfs_marker_judge (&marker, ecfs_archive_keys (fixture->archive), NULL), ==,
                     ECFS_MARKER_AUTHENTIC);
}

static void set_up_quiet (Fixture *fixture, gconstpointer code)
{
    g_log_set_always_fatal (G_LOG_LEVEL_ERROR);
    set_up_keyed (fixture, code);
}

/* As many may lie as may be lost: the archive opens, stores, names them, and deletes nothing as it could be a liar that
 * denies. With one more honest endpoint it deletes. */
static void test_liars (Fixture *fixture, gconstpointer user)
{
    (void) user;
    for (size_t lie = 0; lie < G_N_ELEMENTS (lies); lie++)
        for (unsigned n_liars = 1; n_liars <= N_TOLERATED; n_liars++) {
            g_autofree char *name = g_strdup_printf ("file%zu-%u", lie, n_liars);
            g_autofree char *other = g_strdup_printf ("other%zu-%u", lie, n_liars);
            char *honest[N_TOLERATED];
            close_archive (fixture);
            for (unsigned i = 0; i < n_liars; i++) {
                honest[i] = read_text (fixture, i);
                lies[lie](fixture, i);
            }
            g_assert_cmpint (try_open (fixture, fixture->directory), ==, 0);
            assert_stores (fixture, name);
            EcfsLineage *lineage = fixture->archive->lineage;
            for (unsigned i = 0; i < N_ENDPOINTS; i++) {
                g_autofree char *said = ecfs_lineage_disagreement (lineage, i);
                g_autofree char *doubt = ecfs_lineage_false_marker (lineage, i);
                g_assert_true ((said != NULL) == (i < n_liars && lies[lie] == name_unknown_key));
                g_assert_true ((doubt != NULL) == (i < n_liars && lies[lie] != name_unknown_key));
                g_assert_true (ecfs_lineage_may_write (lineage, i) == (i >= n_liars));
                g_assert_true (ecfs_lineage_confirm (lineage, i) == (i >= n_liars && n_liars == 1));
            }
            g_autofree char *wait = ecfs_lineage_deletions_wait (lineage);
            g_assert_true ((wait != NULL) == (n_liars > 1));
            assert_stores (fixture, other);
            for (unsigned i = 0; i < n_liars; i++) {
                write_text (fixture, i, honest[i]);
                g_free (honest[i]);
            }
        }
}

/* While it is open, too. */
static void test_liars_later (Fixture *fixture, gconstpointer user)
{
    (void) user;
    for (size_t lie = 0; lie < G_N_ELEMENTS (lies); lie++) {
        g_autofree char *name = g_strdup_printf ("file%zu", lie);
        char *honest[N_TOLERATED];
        for (unsigned i = 0; i < N_TOLERATED; i++) {
            honest[i] = read_text (fixture, i);
            lies[lie](fixture, i);
        }
        assert_stores (fixture, name);
        for (unsigned i = 0; i < N_TOLERATED; i++) /* what was stored may have been enough without a look at each */
            g_assert_false (ecfs_lineage_confirm (fixture->archive->lineage, i));
        g_assert_false (ecfs_lineage_confirm (fixture->archive->lineage, N_ENDPOINTS - 1));
        for (unsigned i = 0; i < N_TOLERATED; i++) {
            write_text (fixture, i, honest[i]);
            g_free (honest[i]);
            (void) ecfs_lineage_confirm (fixture->archive->lineage, i);
        }
        g_assert_true (ecfs_lineage_confirm (fixture->archive->lineage, 0));
    }
}

/* A key that is not here, at one more than may lie: this directory is old. */
static void test_unknown_key (Fixture *fixture, gconstpointer user)
{
    char *before[N_ENDPOINTS];
    (void) user;
    close_archive (fixture);
    for (unsigned i = 0; i <= N_TOLERATED; i++)
        name_unknown_key (fixture, i);
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        before[i] = read_text (fixture, i);
    g_assert_cmpint (try_open (fixture, fixture->directory), ==, ESTALE);
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        g_autofree char *now = read_text (fixture, i);
        g_assert_cmpstr (now, ==, before[i]);
        g_free (before[i]);
    }
}

static bool add_code (const Fixture *fixture, uint8_t first, GError **error)
{
    const uint8_t code[ECFS_CODE_BYTES] = {first};
    const EcfsKeyOpener opener = {.code = code};
    const EcfsKeyRing *keys = ecfs_archive_keys (fixture->archive);
    const EcfsKeyShares *now = ecfs_archive_key_shares (fixture->archive);
    g_autoptr (EcfsKeyShares) before =
        now == NULL ? ecfs_key_shares_empty (keys, 0) : ecfs_key_shares_of (keys, ecfs_key_shares_file (now), NULL);
    EcfsKeySlot *slot = ecfs_key_shares_make_slot (before, keys, ECFS_KEY_SLOT_CODE, &opener, NULL);
    EcfsKeyStored stored;
    if (!ecfs_archive_change_key_file_take (fixture->archive, ecfs_key_shares_with (before, keys, slot, NULL), &stored,
                                            error))
        return false;
    g_ptr_array_unref (stored.behind);
    return true;
}

/* A copy that became an old one while it was mounted changes nothing that is the newer one's: no key file, either. */
static void test_key_of_newer_copy (Fixture *fixture, gconstpointer user)
{
    char name[ECFS_KEY_SHARE_NAME_SIZE];
    g_autoptr (GError) error = NULL;
    (void) user;
    add_code (fixture, 1, &error);
    g_assert_no_error (error);
    const EcfsKeyShares *shares = ecfs_archive_key_shares (fixture->archive);
    for (unsigned i = 0; i <= N_TOLERATED; i++) {
        name_unknown_key (fixture, i);
        (void) ecfs_lineage_confirm (fixture->archive->lineage, i);
    }
    g_assert_true (ecfs_lineage_is_stale (fixture->archive->lineage));
    g_assert_false (add_code (fixture, 2, &error));
    g_assert_error (error, ECFS_ERROR, EROFS);
    g_assert_true (ecfs_archive_key_shares (fixture->archive) == shares);
    ecfs_key_shares_file_name (shares, name);
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        g_autofree char *root = endpoint_path (fixture, i), *path = g_build_filename (root, name, NULL),
                        *keys = g_build_filename (root, ECFS_KEYS_DIRECTORY, NULL);
        g_assert_true (g_file_test (path, G_FILE_TEST_EXISTS));
        g_assert_cmpuint (count_files (keys), ==, 1);
    }
}

/* Markers that were authentic once, at as many as may lie: an older copy stays one, and nobody is stopped. */
static void test_replayed (Fixture *fixture, gconstpointer user)
{
    char *old[N_TOLERATED];
    (void) user;
    assert_stores (fixture, "before");
    for (unsigned i = 0; i < N_TOLERATED; i++)
        old[i] = read_text (fixture, i);
    close_archive (fixture);
    g_autofree char *copy = g_strconcat (fixture->directory, "-copy", NULL);
    const char *argv[] = {"cp", "-a", fixture->directory, copy, NULL};
    g_assert_true (g_spawn_sync (NULL, (char **) argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL, NULL));
    g_assert_cmpint (try_open (fixture, fixture->directory), ==, 0);
    assert_stores (fixture, "behind");
    for (unsigned i = 0; i < N_TOLERATED; i++)
        write_text (fixture, i, old[i]);
    assert_stores (fixture, "with-replayed");
    close_archive (fixture);
    for (unsigned i = 0; i < N_TOLERATED; i++) {
        write_text (fixture, i, old[i]);
        g_free (old[i]);
    }
    g_assert_cmpint (try_open (fixture, copy), ==, ESTALE);
    g_assert_cmpint (try_open (fixture, fixture->directory), ==, 0);
    assert_stores (fixture, "again");
}

/* What needs fewer than could hide a recovery's claim: four of six answer that there is none, and two of them may lie.
 */
static void test_quorum (Fixture *fixture, gconstpointer user)
{
    (void) user;
    close_archive (fixture);
    hide_endpoint (fixture, 4, true);
    g_assert_cmpint (try_open (fixture, fixture->directory), ==, 0);
    g_assert_true (ecfs_lineage_confirm (fixture->archive->lineage, 0));
    close_archive (fixture);
    hide_endpoint (fixture, 5, true);
    g_assert_cmpint (try_open (fixture, fixture->directory), ==, 0);
    assert_stores (fixture, "stored");
    g_assert_false (ecfs_lineage_confirm (fixture->archive->lineage, 0));
    g_autofree char *wait = ecfs_lineage_deletions_wait (fixture->archive->lineage);
    g_assert_nonnull (wait);
    hide_endpoint (fixture, 4, false);
    hide_endpoint (fixture, 5, false);
}

/* An archive whose markers are from before they were authentic gets others at once. */
static void test_from_before (Fixture *fixture, gconstpointer user)
{
    (void) user;
    assert_stores (fixture, "before");
    close_archive (fixture);
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        EcfsMarker marker = read_marker (fixture, i);
        ecfs_marker_sign (&marker, NULL);
        write_marker (fixture, i, &marker);
    }
    g_assert_cmpint (try_open (fixture, fixture->directory), ==, 0);
    assert_stores (fixture, "behind");
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        assert_authentic (fixture, i);
    g_assert_true (ecfs_lineage_confirm (fixture->archive->lineage, 0));
}

/* Nobody gets a MAC for what was not authentic, or while too few others are sure. */
static void test_mended (Fixture *fixture, gconstpointer user)
{
    g_autoptr (GError) error = NULL;
    (void) user;
    close_archive (fixture);
    forge_epoch (fixture, 1);
    name_unknown_key (fixture, 2);
    g_autofree char *unknown = read_text (fixture, 2);
    g_assert_cmpint (try_open (fixture, fixture->directory), ==, 0);
    EcfsLineage *lineage = fixture->archive->lineage;
    ecfs_lineage_mend (lineage, 1, &error);
    g_assert_no_error (error);
    assert_authentic (fixture, 1);
    g_assert_cmpuint (read_marker (fixture, 1).epoch, ==, 1);
    g_assert_true (ecfs_lineage_confirm (lineage, 1));
    g_assert_false (ecfs_lineage_mend (lineage, 2, &error));
    g_assert_error (error, ECFS_ERROR, EPERM);
    g_clear_error (&error);
    g_autofree char *left = read_text (fixture, 2);
    g_assert_cmpstr (left, ==, unknown);
    EcfsMarker other = read_marker (fixture, 0);
    write_marker (fixture, 3, &other);
    g_assert_false (ecfs_lineage_mend (lineage, 3, &error));
    g_assert_error (error, ECFS_ERROR, EPERM);
    g_clear_error (&error);
    for (unsigned i = 4; i < N_ENDPOINTS; i++) /* one more than may be lost, with those */
        forge_epoch (fixture, i);
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        (void) ecfs_lineage_confirm (lineage, i);
    g_assert_false (ecfs_lineage_mend (lineage, 4, &error));
    g_assert_error (error, ECFS_ERROR, EAGAIN);
    g_assert_cmpuint (read_marker (fixture, 4).epoch, ==, UINT32_MAX);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/marks/say-the-same-when-they-are-read", test_round_trip);
    g_test_add_func ("/marks/are-not-authentic-with-any-bit-changed", test_every_bit);
    g_test_add_func ("/marks/are-not-authentic-in-another-place", test_swapped);
    g_test_add_func ("/marks/are-as-they-were-without-a-key", test_without_key);
    g_test_add ("/marks/that-lie-are-named-and-stop-nothing", Fixture, "copies:3", set_up_quiet, test_liars, tear_down);
    g_test_add ("/marks/that-lie-while-it-is-open-stop-nothing", Fixture, "copies:3", set_up_quiet, test_liars_later,
                tear_down);
    g_test_add ("/marks/under-an-unknown-key-make-the-directory-an-old-one", Fixture, "copies:3", set_up_quiet,
                test_unknown_key, tear_down);
    g_test_add ("/marks/of-a-newer-copy-keep-an-old-one-from-changing-its-key-files", Fixture, "copies:3", set_up_quiet,
                test_key_of_newer_copy, tear_down);
    g_test_add ("/marks/that-are-replayed-stop-nothing-and-free-no-old-copy", Fixture, "copies:3", set_up_quiet,
                test_replayed, tear_down);
    g_test_add ("/marks/of-too-few-endpoints-allow-no-deletion", Fixture, "copies:3", set_up_quiet, test_quorum,
                tear_down);
    g_test_add ("/marks/from-before-are-made-authentic", Fixture, "copies:3", set_up_quiet, test_from_before,
                tear_down);
    g_test_add ("/marks/are-mended-where-that-is-safe", Fixture, "copies:3", set_up_quiet, test_mended, tear_down);
    return g_test_run ();
}
