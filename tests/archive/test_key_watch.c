#include "archive/key_watch.h"

#include "archive/key_slots.h"
#include "archive/watch.h"
#include "fixture.h"

#include <glib/gstdio.h>

#define N_NEEDED    3 /* of copies:3, which two losses leave one of */
#define PATIENCE_US (60 * (int64_t) G_USEC_PER_SEC)

/* The file with the share of an endpoint, or where it was; g_free () */
static char *share_path (const Fixture *fixture, unsigned i)
{
    char name[ECFS_KEY_SHARE_NAME_SIZE];
    g_autofree char *root = endpoint_path (fixture, i);
    ecfs_key_shares_file_name (ecfs_archive_key_shares (fixture->archive), name);
    return g_build_filename (root, name, NULL);
}

static void lose (const Fixture *fixture, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        g_autofree char *path = share_path (fixture, i);
        g_assert_cmpint (g_unlink (path), ==, 0);
    }
}

static unsigned count_shares (const Fixture *fixture)
{
    unsigned n = 0;
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        g_autofree char *path = share_path (fixture, i);
        n += g_file_test (path, G_FILE_TEST_EXISTS);
    }
    return n;
}

static int confirm (const Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    return ecfs_archive_confirm_key (fixture->archive, NULL, NULL, &error) ? 0 : ecfs_errno (error);
}

static EcfsKeySight sight_of (const Fixture *fixture, size_t i)
{
    EcfsKeySeen seen = ecfs_key_watch_sight (ecfs_archive_key_watch (fixture->archive), i);
    g_free (seen.reason);
    return seen.sight;
}

static void look (const Fixture *fixture)
{
    EcfsKeyWatch *watch = ecfs_archive_key_watch (fixture->archive);
    ecfs_key_watch_look (watch);
    ecfs_key_watch_await (watch, ecfs_now_us () + PATIENCE_US);
}

static void test_what_is_known_to_be_enough_is_not_asked_again (Fixture *fixture, gconstpointer code)
{
    (void) code;
    lose (fixture, 1);
    g_assert_cmpint (confirm (fixture), ==, 0);
    look (fixture);
    g_assert_cmpint (sight_of (fixture, 0), ==, ECFS_KEY_LOST);
    g_assert_cmpint (sight_of (fixture, 1), ==, ECFS_KEY_THERE);
    for (unsigned i = 1; i < N_ENDPOINTS; i++) {
        g_autofree char *path = share_path (fixture, i);
        g_assert_cmpint (g_unlink (path), ==, 0);
    }
    g_assert_cmpint (confirm (fixture), ==, 0); /* as the others were when they were seen */
    look (fixture);
    g_assert_cmpint (confirm (fixture), ==, EIO);
}

static void test_too_few_are_an_error_and_only_a_mount_restores (Fixture *fixture, gconstpointer code)
{
    (void) code;
    lose (fixture, N_ENDPOINTS - N_NEEDED - 1); /* of 6 zones, of which two may be lost as well */
    g_assert_cmpint (confirm (fixture), ==, EIO);
    g_assert_cmpuint (count_shares (fixture), ==, N_NEEDED + 1);
}

static void test_it_looks_now_and_then_and_restores (Fixture *fixture, gconstpointer code)
{
    (void) code;
    EcfsKeyWatch *watch = ecfs_archive_key_watch (fixture->archive);
    ecfs_key_watch_again_us = G_USEC_PER_SEC / 10;
    ecfs_key_watch_begin (watch);
    while (sight_of (fixture, 0) != ECFS_KEY_THERE)
        g_usleep (1000);
    lose (fixture, 4);
    for (int64_t until_us = ecfs_now_us () + PATIENCE_US; count_shares (fixture) < N_ENDPOINTS;) {
        g_assert_cmpint (ecfs_now_us (), <, until_us);
        g_usleep (10000);
    }
    ecfs_key_watch_end (watch);
    g_assert_cmpint (confirm (fixture), ==, 0);
}

/* One more way to open the key. */
static void add_slot (const Fixture *fixture, EcfsKeySlotKind kind)
{
    const uint8_t code[ECFS_CODE_BYTES] = {1};
    const EcfsKeyOpener opener = {.code = code};
    const EcfsKeyRing *keys = ecfs_archive_keys (fixture->archive);
    const EcfsKeyShares *now = ecfs_archive_key_shares (fixture->archive);
    g_autoptr (EcfsKeyShares) before = now == NULL ? ecfs_key_shares_empty (keys, N_NEEDED)
                                                   : ecfs_key_shares_of (keys, ecfs_key_shares_file (now), NULL);
    EcfsKeySlot *slot = ecfs_key_shares_make_slot (before, keys, kind, &opener, NULL);
    EcfsKeyStored stored;
    g_autoptr (GError) error = NULL;
    ecfs_archive_change_key_file_take (fixture->archive, ecfs_key_shares_with (before, keys, slot, NULL), &stored,
                                       &error);
    g_assert_no_error (error);
    g_ptr_array_unref (stored.behind);
}

static unsigned count_at (const Fixture *fixture, unsigned i)
{
    g_autofree char *root = endpoint_path (fixture, i), *keys = g_build_filename (root, "keys", NULL);
    return count_files (keys);
}

static void await_there (const Fixture *fixture)
{
    for (int64_t until_us = ecfs_now_us () + PATIENCE_US; count_shares (fixture) < N_ENDPOINTS;) {
        g_assert_cmpint (ecfs_now_us (), <, until_us);
        g_usleep (10000);
    }
}

static void test_who_missed_a_change_gets_it_and_loses_what_was_before (Fixture *fixture, gconstpointer code)
{
    (void) code;
    EcfsKeyWatch *watch = ecfs_archive_key_watch (fixture->archive);
    ecfs_key_watch_again_us = 3600 * (int64_t) G_USEC_PER_SEC;
    ecfs_key_watch_begin (watch);
    while (sight_of (fixture, 0) != ECFS_KEY_THERE)
        g_usleep (1000);
    g_autofree char *older = share_path (fixture, 0), *newer = g_strconcat (older, "-2", NULL);
    g_assert_cmpint (g_mkdir (newer, 0700), ==, 0); /* nothing is stored there */
    add_slot (fixture, ECFS_KEY_SLOT_CODE);
    g_assert_true (g_file_test (older, G_FILE_TEST_EXISTS));
    g_assert_cmpint (g_rmdir (newer), ==, 0);
    await_there (fixture);
    for (int64_t until_us = ecfs_now_us () + PATIENCE_US; g_file_test (older, G_FILE_TEST_EXISTS);) {
        g_assert_cmpint (ecfs_now_us (), <, until_us);
        g_usleep (10000);
    }
    ecfs_key_watch_end (watch);
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        g_assert_cmpuint (count_at (fixture, i), ==, 1);
}

static void test_what_is_shared_later_is_restored_too (Fixture *fixture, gconstpointer code)
{
    (void) code;
    EcfsEvents *events = ecfs_events_new (fixture->archive);
    EcfsWatch *watch = ecfs_watch_start (fixture->archive, events);
    ecfs_key_watch_again_us = G_USEC_PER_SEC / 10;
    add_slot (fixture, ECFS_KEY_SLOT_SPLIT);
    lose (fixture, 2);
    await_there (fixture);
    ecfs_watch_stop (watch);
    ecfs_events_free (events);
}

static void test_without_shares_there_is_nothing_to_confirm (Fixture *fixture, gconstpointer code)
{
    (void) code;
    g_assert_null (ecfs_archive_key_watch (fixture->archive));
    g_assert_cmpint (confirm (fixture), ==, 0);
    ecfs_key_watch_look (NULL);
    ecfs_key_watch_await (NULL, 0);
    ecfs_key_watch_begin (NULL);
    ecfs_key_watch_end (NULL);
    ecfs_key_watch_free (NULL);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_log_set_always_fatal (G_LOG_FATAL_MASK); /* what is lost is warned of */
    g_test_add ("/key_watch/what-is-known-to-be-enough-is-not-asked-again", Fixture, "copies:3", set_up_shared,
                test_what_is_known_to_be_enough_is_not_asked_again, tear_down);
    g_test_add ("/key_watch/too-few-are-an-error-and-only-a-mount-restores", Fixture, "copies:3", set_up_shared,
                test_too_few_are_an_error_and_only_a_mount_restores, tear_down);
    g_test_add ("/key_watch/it-looks-now-and-then-and-restores", Fixture, "copies:3", set_up_shared,
                test_it_looks_now_and_then_and_restores, tear_down);
    g_test_add ("/key_watch/who-missed-a-change-gets-it-and-loses-what-was-before", Fixture, "copies:3", set_up_shared,
                test_who_missed_a_change_gets_it_and_loses_what_was_before, tear_down);
    g_test_add ("/key_watch/what-is-shared-later-is-restored-too", Fixture, "copies:3", set_up_keyed,
                test_what_is_shared_later_is_restored_too, tear_down);
    g_test_add ("/key_watch/without-shares-there-is-nothing-to-confirm", Fixture, "copies:3", set_up,
                test_without_shares_there_is_nothing_to_confirm, tear_down);
    g_test_add ("/key_watch/a-key-in-a-file-has-none", Fixture, "copies:3", set_up_keyed,
                test_without_shares_there_is_nothing_to_confirm, tear_down);
    return g_test_run ();
}
