/* The command on_event: told once of each change, whatever it does, and whatever a server said. */
#include "archive/events.h"
#include "fixture.h"

#include <string.h>
#include <unistd.h>

#define PATIENCE_US (30 * (int64_t) G_USEC_PER_SEC)

/* Notes what it is told in the archive directory. */
static const char notes[] = "sh -c 'echo \"$ECFS_EVENT|$ECFS_ENDPOINT|$ECFS_TEXT\" >> \"$ECFS_ARCHIVE/told\"; "
                            "cat >> \"$ECFS_ARCHIVE/lines\"'";

/* Reopens the archive with that command, for ecfs_events_free (). */
static EcfsEvents *events_of (Fixture *fixture, const char *key, const char *command)
{
    g_autoptr (GError) error = NULL;
    EcfsConfigChange change = {.section = (char *) "archive", .key = (char *) key, .value = (char *) command};
    ecfs_archive_free (g_steal_pointer (&fixture->archive));
    ecfs_config_rewrite (fixture->directory, &change, 1, &error);
    g_assert_no_error (error);
    reopen (fixture);
    ecfs_events_rest_us = 0;
    return ecfs_events_new (fixture->archive);
}

/* Until all is told. */
static void settle (EcfsEvents *events)
{
    int64_t deadline_us = g_get_monotonic_time () + PATIENCE_US;
    ecfs_events_await (events, deadline_us);
    g_assert_cmpint (g_get_monotonic_time (), <, deadline_us);
}

static char *content (const Fixture *fixture, const char *name)
{
    char *text = NULL;
    g_autofree char *path = g_build_filename (fixture->directory, name, NULL);
    return g_file_get_contents (path, &text, NULL, NULL) ? text : g_strdup ("");
}

static void assert_told (const Fixture *fixture, const char *expected)
{
    g_autofree char *told = content (fixture, "told");
    g_assert_cmpstr (told, ==, expected);
}

static char *failure_of (const Fixture *fixture)
{
    EcfsEventsFacts facts;
    ecfs_events_facts (fixture->archive, &facts);
    char *failure = g_steal_pointer (&facts.failure);
    ecfs_events_facts_clear (&facts);
    return failure;
}

static void test_each_change_is_told_once (Fixture *fixture, gconstpointer code)
{
    (void) code;
    EcfsEvents *events = events_of (fixture, "on_event", notes);
    g_assert_true (ecfs_events_wanted (events));
    for (unsigned i = 0; i < 3; i++) {
        ecfs_events_note (events, "down", "e0", "so", "gone");
        ecfs_events_note (events, "low-guarantee", "", NULL, "");
        settle (events);
    }
    assert_told (fixture, "down|e0|gone\n");
    ecfs_events_note (events, "low-guarantee", "", "0", "no further");
    settle (events);
    ecfs_events_note (events, "low-guarantee", "", "-1", "lost");
    settle (events);
    ecfs_events_note (events, "low-guarantee", "", NULL, "");
    ecfs_events_note (events, "down", "e0", NULL, "back");
    settle (events);
    assert_told (fixture, "down|e0|gone\nlow-guarantee||no further\nlow-guarantee||lost\nup|e0|back\n");
    g_autofree char *lines = content (fixture, "lines");
    g_autofree char *first = g_strdup_printf ("ecfs %s down e0: gone\n", fixture->directory);
    g_assert_true (g_str_has_prefix (lines, first));
    ecfs_events_free (events);
}

static void test_what_was_told_is_kept (Fixture *fixture, gconstpointer code)
{
    (void) code;
    EcfsEvents *events = events_of (fixture, "on_event", notes);
    ecfs_events_note (events, "down", "e0", "so", "gone");
    settle (events);
    ecfs_events_free (events);
    events = ecfs_events_new (fixture->archive);
    ecfs_events_note (events, "down", "e0", "so", "still gone");
    settle (events);
    assert_told (fixture, "down|e0|gone\n");
    ecfs_events_note (events, "down", "e0", NULL, "back");
    settle (events);
    assert_told (fixture, "down|e0|gone\nup|e0|back\n");
    ecfs_events_free (events);
}

static void test_what_flaps_is_told_seldom (Fixture *fixture, gconstpointer code)
{
    (void) code;
    EcfsEvents *events = events_of (fixture, "on_event", notes);
    ecfs_events_rest_us = G_USEC_PER_SEC / 5;
    int64_t end_us = g_get_monotonic_time () + 2 * G_USEC_PER_SEC;
    for (unsigned i = 0; g_get_monotonic_time () < end_us; i++) {
        ecfs_events_note (events, "down", "e0", i % 2 == 0 ? "so" : NULL, "it flaps");
        ecfs_events_step (events);
        g_usleep (10000);
    }
    g_autofree char *told = content (fixture, "told");
    g_auto (GStrv) lines = g_strsplit (told, "\n", -1);
    g_assert_cmpuint (g_strv_length (lines) - 1, >=, 2); /* … at 0, 0.2, 0.6, 1.4 s */
    g_assert_cmpuint (g_strv_length (lines) - 1, <=, 4);
    ecfs_events_free (events);
}

static void test_what_servers_say_is_no_command (Fixture *fixture, gconstpointer code)
{
    (void) code;
    EcfsEvents *events = events_of (fixture, "on_event", notes);
    g_autofree char *evil = g_strdup_printf ("\"; touch %s/evil; $(touch %s/evil) `touch %s/evil`\n\033[2Jx\xff",
                                             fixture->directory, fixture->directory, fixture->directory);
    ecfs_events_note (events, "down", "e0", "so", evil);
    settle (events);
    g_autofree char *path = g_build_filename (fixture->directory, "evil", NULL), *told = content (fixture, "told");
    g_assert_cmpint (access (path, F_OK), !=, 0);
    g_assert_nonnull (strstr (told, "$(touch "));
    g_assert_null (strchr (told, '\033'));
    g_assert_true (g_utf8_validate (told, -1, NULL));
    g_assert_true (strchr (told, '\n') == told + strlen (told) - 1);
    ecfs_events_free (events);
}

static void test_a_command_that_reads_nothing_does_no_harm (Fixture *fixture, gconstpointer code)
{
    (void) code;
    EcfsEvents *events = events_of (fixture, "on_event", "true");
    g_autofree char *text = g_strnfill (1 << 20, 'x');
    ecfs_events_note (events, "down", "e0", "so", text);
    settle (events);
    g_autofree char *failure = failure_of (fixture);
    g_assert_null (failure);
    ecfs_events_free (events);
}

static void test_failures_are_kept_until_it_succeeds (Fixture *fixture, gconstpointer code)
{
    (void) code;
    EcfsEvents *events = events_of (fixture, "on_event", "sh -c 'test \"$ECFS_ENDPOINT\" != e0 || exit 3'");
    ecfs_events_note (events, "down", "e0", "so", "gone");
    settle (events);
    g_autofree char *failure = failure_of (fixture);
    g_assert_cmpstr (failure, ==, "the command ended with status 3");
    ecfs_events_note (events, "down", "e1", "so", "gone");
    settle (events);
    g_autofree char *none = failure_of (fixture);
    g_assert_null (none);
    ecfs_events_free (events);

    events = events_of (fixture, "on_event", "/no/such/program");
    ecfs_events_note (events, "down", "e2", "so", "gone");
    settle (events);
    g_autofree char *absent = failure_of (fixture);
    g_assert_nonnull (absent);
    ecfs_events_free (events);
}

/* Also what it has begun and waits for. */
static void test_a_command_that_takes_too_long_is_killed (Fixture *fixture, gconstpointer code)
{
    (void) code;
    EcfsEvents *events = events_of (fixture, "on_event",
                                    "sh -c '(sleep 60; echo late >> \"$ECFS_ARCHIVE/told\") & "
                                    "echo $! > \"$ECFS_ARCHIVE/child\"; wait'");
    ecfs_events_run_us = G_USEC_PER_SEC;
    ecfs_events_note (events, "down", "e0", "so", "gone");
    settle (events);
    ecfs_events_run_us = PATIENCE_US;
    g_autofree char *failure = failure_of (fixture), *child = content (fixture, "child");
    g_assert_nonnull (strstr (failure, "was killed"));
    g_autofree char *path = g_strdup_printf ("/proc/%s/cmdline", g_strchomp (child)), *command = NULL;
    int64_t end_us = g_get_monotonic_time () + PATIENCE_US; /* the kernel ends it soon, and init takes it */
    gsize size = 1;
    while (g_file_get_contents (path, &command, &size, NULL) && size > 0 && g_get_monotonic_time () < end_us)
        g_clear_pointer (&command, g_free);
    g_assert_cmpint (g_get_monotonic_time (), <, end_us);
    ecfs_events_free (events);
}

static void test_the_form_before_has_arguments (Fixture *fixture, gconstpointer code)
{
    (void) code;
    EcfsEvents *events = events_of (fixture, "hook", "sh -c 'echo \"$1|$3|$ECFS_REASON\" >> \"$2/told\"' hook");
    ecfs_events_note (events, "low-guarantee", "", "0", "not told");
    ecfs_events_note (events, "down", "e0", "so", "gone");
    settle (events);
    ecfs_events_note (events, "down", "e0", NULL, "back");
    settle (events);
    assert_told (fixture, "down|e0|gone\nup|e0|back\n");
    ecfs_events_free (events);
    events = events_of (fixture, "on_event", "true"); /* comes first */
    ecfs_events_note (events, "damaged", "", "so", "x");
    settle (events);
    assert_told (fixture, "down|e0|gone\nup|e0|back\n");
    ecfs_events_free (events);
}

static void test_without_a_command_nothing_is_kept (Fixture *fixture, gconstpointer code)
{
    (void) code;
    EcfsEvents *events = ecfs_events_new (fixture->archive);
    g_assert_false (ecfs_events_wanted (events));
    ecfs_events_note (events, "down", "e0", "so", "gone");
    ecfs_events_step (events);
    settle (events);
    g_autofree char *path = g_build_filename (fixture->directory, ECFS_EVENTS_NAME, NULL);
    g_assert_cmpint (access (path, F_OK), !=, 0);
    ecfs_events_free (events);
    ecfs_events_free (NULL);
}

#define TEST(name, function) g_test_add (name, Fixture, "copies:3", set_up, function, tear_down)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_log_set_always_fatal (G_LOG_FATAL_MASK); /* commands that fail are warned of */
    TEST ("/events/each-change-is-told-once", test_each_change_is_told_once);
    TEST ("/events/what-was-told-is-kept", test_what_was_told_is_kept);
    TEST ("/events/what-flaps-is-told-seldom", test_what_flaps_is_told_seldom);
    TEST ("/events/what-servers-say-is-no-command", test_what_servers_say_is_no_command);
    TEST ("/events/a-command-that-reads-nothing-does-no-harm", test_a_command_that_reads_nothing_does_no_harm);
    TEST ("/events/failures-are-kept-until-it-succeeds", test_failures_are_kept_until_it_succeeds);
    TEST ("/events/a-command-that-takes-too-long-is-killed", test_a_command_that_takes_too_long_is_killed);
    TEST ("/events/the-form-before-has-arguments", test_the_form_before_has_arguments);
    TEST ("/events/without-a-command-nothing-is-kept", test_without_a_command_nothing_is_kept);
    return g_test_run ();
}
