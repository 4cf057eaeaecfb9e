/* How long is too long: experience of silences, and the stall clock, on a clock of the test's. */
#include "endpoint/core/core.h"

#define MS      INT64_C (1000)
#define SECOND  G_USEC_PER_SEC
#define TIMEOUT (10 * SECOND)

static void note_many (Silences *silences, unsigned n, int64_t silence_us)
{
    for (unsigned i = 0; i < n; i++)
        ecfs_silences_note (silences, silence_us);
}

static void test_without_experience (void)
{
    Silences silences = {.n_noted = 0};
    g_assert_cmpint (ecfs_silences_suspect_us (&silences), ==, 200 * MS);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_ANSWER, TIMEOUT), ==, TIMEOUT);
    note_many (&silences, 1, 300 * MS);
    g_assert_cmpint (ecfs_silences_suspect_us (&silences), ==, 900 * MS);
    note_many (&silences, 1, 30 * MS);
    g_assert_cmpint (ecfs_silences_suspect_us (&silences), ==, 200 * MS);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_ANSWER, TIMEOUT), ==, TIMEOUT);
}

static void test_quick (void)
{
    Silences silences = {.n_noted = 0};
    note_many (&silences, 100, 1 * MS);
    g_assert_cmpint (ecfs_silences_suspect_us (&silences), ==, 40 * MS);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_ANSWER, TIMEOUT), ==, 2 * SECOND);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_SYNC, TIMEOUT), ==, 5 * SECOND);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_ANSWER, 500 * MS), ==, 500 * MS);
}

static void test_slow (void)
{
    Silences silences = {.n_noted = 0};
    note_many (&silences, 100, 150 * MS);
    g_assert_cmpint (ecfs_silences_suspect_us (&silences), ==, 450 * MS);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_ANSWER, TIMEOUT), ==, 3 * SECOND);
}

/* A few long silences say nothing of what is usual, but that the other side came back from them. */
static void test_outliers (void)
{
    Silences silences = {.n_noted = 0};
    note_many (&silences, 61, 1 * MS);
    note_many (&silences, 3, 2 * SECOND);
    g_assert_cmpint (ecfs_silences_suspect_us (&silences), ==, 40 * MS);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_ANSWER, TIMEOUT), ==, TIMEOUT);
    note_many (&silences, 1, 2 * SECOND);
    g_assert_cmpint (ecfs_silences_suspect_us (&silences), ==, 6 * SECOND);
    note_many (&silences, 64, 1 * MS);
    g_assert_cmpint (ecfs_silences_suspect_us (&silences), ==, 40 * MS);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_ANSWER, TIMEOUT), ==, 2 * SECOND);
}

/* More than the default is asked for where there are pauses that the last answers do not tell of. */
static void test_asked_for_more (void)
{
    Silences silences = {.n_noted = 0};
    note_many (&silences, 100, 1 * MS);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_ANSWER, TIMEOUT), ==, 2 * SECOND);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_ANSWER, TIMEOUT + 1), ==, TIMEOUT + 1);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_SYNC, 60 * SECOND), ==, 60 * SECOND);
    g_assert_cmpint (ecfs_silences_suspect_us (&silences), ==, 40 * MS); /* but nobody has to wait for it */
}

static void test_patience (void)
{
    Silences silences = {.n_noted = 0};
    note_many (&silences, 64, 1 * MS);
    ecfs_silences_gave_up (&silences, 2 * SECOND);
    g_assert_cmpint (ecfs_silences_suspect_us (&silences), ==, 40 * MS);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_ANSWER, TIMEOUT), ==, 4 * SECOND);
    ecfs_silences_gave_up (&silences, 4 * SECOND);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_ANSWER, TIMEOUT), ==, 8 * SECOND);
    ecfs_silences_gave_up (&silences, 8 * SECOND);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_ANSWER, TIMEOUT), ==, TIMEOUT);
    note_many (&silences, 64, 1 * MS);
    g_assert_cmpint (ecfs_silences_gone_us (&silences, ECFS_OWES_ANSWER, TIMEOUT), ==, 2 * SECOND);
}

/* The sample of a busy moment is its longest silence, for each kind of what was owed. */
static void test_moments (void)
{
    StallClock clock = {.since_us = 0};
    Silences silences[ECFS_N_OWES] = {{.n_noted = 0}};
    EcfsOwes owes;
    int64_t now_us = 1000 * SECOND;
    g_assert_false (ecfs_clock_set (&clock, ECFS_OWES_ANSWER, now_us));
    g_assert_cmpint (ecfs_clock_silent_us (&clock, now_us + 5 * MS, &owes), ==, 5 * MS);
    g_assert_cmpint (owes, ==, ECFS_OWES_ANSWER);
    ecfs_clock_restart (&clock, now_us + 7 * MS);
    g_assert_cmpint (ecfs_clock_silent_us (&clock, now_us + 8 * MS, &owes), ==, 1 * MS);
    g_assert_false (ecfs_clock_set (&clock, ECFS_OWES_SYNC, now_us + 9 * MS));
    g_assert_true (ecfs_clock_set (&clock, ECFS_OWES_NOTHING, now_us + 29 * MS));
    g_assert_cmpint (ecfs_clock_silent_us (&clock, now_us + SECOND, &owes), ==, 0);
    ecfs_clock_note (&clock, silences, now_us + 29 * MS);
    g_assert_cmpuint (silences[ECFS_OWES_ANSWER].n_noted, ==, 1);
    g_assert_cmpint (silences[ECFS_OWES_ANSWER].longest_us, ==, 7 * MS);
    g_assert_cmpint (silences[ECFS_OWES_SYNC].longest_us, ==, 20 * MS);
}

static void test_long_moment (void)
{
    StallClock clock = {.since_us = 0};
    int64_t now_us = 1000 * SECOND;
    g_assert_false (ecfs_clock_set (&clock, ECFS_OWES_ANSWER, now_us));
    g_assert_false (ecfs_clock_set (&clock, ECFS_OWES_ANSWER, now_us + 50 * MS));
    g_assert_true (ecfs_clock_set (&clock, ECFS_OWES_ANSWER, now_us + 100 * MS));
}

static void test_excuse (void)
{
    StallClock clock = {.since_us = 0};
    EcfsOwes owes;
    int64_t now_us = 1000 * SECOND;
    ecfs_clock_excuse (&clock, now_us);
    g_assert_cmpint (ecfs_clock_silent_us (&clock, now_us, &owes), ==, 0);
    g_assert_false (ecfs_clock_set (&clock, ECFS_OWES_ANSWER, now_us));
    ecfs_clock_excuse (&clock, now_us + SECOND);
    g_assert_cmpint (ecfs_clock_silent_us (&clock, now_us + SECOND + MS, &owes), ==, MS);
}

/* A byte now and then would hold up for ever whoever waits for all of them. */
static void test_drip (void)
{
    StallClock clock = {.since_us = 0};
    EcfsOwes owes;
    int64_t now_us = 1000 * SECOND;
    g_assert_false (ecfs_clock_set (&clock, ECFS_OWES_ANSWER, now_us));
    for (unsigned i = 1; i < ECFS_PROGRESS_BYTES; i++)
        ecfs_clock_moved (&clock, 1, now_us + i * MS);
    g_assert_cmpint (ecfs_clock_silent_us (&clock, now_us + 2 * SECOND, &owes), ==, 2 * SECOND);
    ecfs_clock_moved (&clock, 1, now_us + SECOND);
    g_assert_cmpint (ecfs_clock_silent_us (&clock, now_us + 2 * SECOND, &owes), ==, SECOND);
    ecfs_clock_moved (&clock, ECFS_PROGRESS_BYTES - 1, now_us + 2 * SECOND);
    g_assert_true (ecfs_clock_set (&clock, ECFS_OWES_ANSWER, now_us + 2 * SECOND + MS)); /* those count no more */
    ecfs_clock_moved (&clock, ECFS_PROGRESS_BYTES - 1, now_us + 3 * SECOND);
    g_assert_cmpint (ecfs_clock_silent_us (&clock, now_us + 3 * SECOND, &owes), ==, SECOND - MS);
}

/* An answer within the same microsecond is experience too. */
static void test_no_time_at_all (void)
{
    StallClock clock = {.since_us = 0};
    Silences silences[ECFS_N_OWES] = {{.n_noted = 0}};
    int64_t now_us = 1000 * SECOND;
    g_assert_false (ecfs_clock_set (&clock, ECFS_OWES_ANSWER, now_us));
    g_assert_true (ecfs_clock_set (&clock, ECFS_OWES_NOTHING, now_us));
    ecfs_clock_note (&clock, silences, now_us);
    g_assert_cmpuint (silences[ECFS_OWES_ANSWER].n_noted, ==, 1);
    g_assert_cmpuint (silences[ECFS_OWES_SYNC].n_noted, ==, 0);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/silence/without-experience-patience-is-as-configured", test_without_experience);
    g_test_add_func ("/silence/the-quick-are-soon-suspect", test_quick);
    g_test_add_func ("/silence/the-slow-get-the-time-they-need", test_slow);
    g_test_add_func ("/silence/a-few-outliers-are-not-usual", test_outliers);
    g_test_add_func ("/silence/is-not-cut-short-where-more-is-asked-for", test_asked_for_more);
    g_test_add_func ("/silence/who-was-given-up-gets-more-time", test_patience);
    g_test_add_func ("/silence/samples-are-the-longest-silences-of-busy-moments", test_moments);
    g_test_add_func ("/silence/a-moment-that-lasts-is-several", test_long_moment);
    g_test_add_func ("/silence/answers-that-take-no-time-count", test_no_time_at_all);
    g_test_add_func ("/silence/a-byte-now-and-then-is-no-progress", test_drip);
    g_test_add_func ("/silence/our-own-absence-is-nobodys-silence", test_excuse);
    return g_test_run ();
}
