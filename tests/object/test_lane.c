/* What a reader knows of a lane, by itself: when it counts as silent, and until when it is due. */
#include "endpoint/core/estimate.h"
#include "object/lane.h"
#include "object/transfer.h"

static void test_stall_time (void)
{
    g_assert_cmpint (ecfs_stall_us (0, 0), ==, G_USEC_PER_SEC);
    g_assert_cmpint (ecfs_stall_us (1000, 1000), ==, 200000);
    g_assert_cmpint (ecfs_stall_us (300000, 1000), ==, 1200000);
    g_assert_cmpint (ecfs_stall_us (1000, 100000), ==, 800000);
}

/* An endpoint that owes a lane a packet and delivers nothing of it. */
typedef struct Silence {
    int64_t usual_us; /* its silences until now */
    int64_t rtt_us;
    bool queues;         /* the packet waits for a connection */
    bool others_deliver; /* another connection reads */
} Silence;

typedef struct Found {
    int64_t suspect_us, stalled_us, silent_us; /* since the packet was asked; 0: not within a second */
} Found;

static void note_first (int64_t *when_us, bool found, int64_t now_us)
{
    if (found && *when_us == 0)
        *when_us = now_us;
}

static Found watch (const Silence *silence)
{
    Found found = {0};
    Silences silences = {0};
    StallClock clock = {0};
    EcfsLane lane = {0};
    const int64_t asked_us = G_USEC_PER_SEC;
    for (unsigned i = 0; i < 20; i++)
        ecfs_silences_note (&silences, silence->usual_us);
    if (!silence->queues)
        (void) ecfs_clock_set (&clock, ECFS_OWES_ANSWER, asked_us);
    (void) ecfs_lane_asked (&lane, 1000, asked_us);
    for (int64_t us = ECFS_TICK_US; us <= G_USEC_PER_SEC; us += ECFS_TICK_US) {
        EcfsOwes owes;
        bool suspect = ecfs_clock_silent_us (&clock, asked_us + us, &owes) > ecfs_silences_suspect_us (&silences);
        EcfsLaneEndpoint seen = {
            .suspect = suspect, .rtt_us = silence->rtt_us, .read_bytes = silence->others_deliver ? (uint64_t) us : 0};
        (void) ecfs_lane_refresh (&lane, &seen, asked_us + us);
        (void) ecfs_lane_finds_stall (&lane, asked_us, asked_us + us);
        note_first (&found.suspect_us, lane.suspect, us);
        note_first (&found.stalled_us, lane.stalled, us);
        note_first (&found.silent_us, ecfs_lane_is_silent (&lane), us);
    }
    return found;
}

static void test_suspect_first (void)
{
    Found found = watch (&(Silence){.usual_us = 5000, .rtt_us = 5000});
    g_assert_cmpint (found.suspect_us, ==, 60000); /* the first tick behind 40 ms */
    g_assert_cmpint (found.stalled_us, ==, 200000);
    g_assert_cmpint (found.silent_us, ==, found.suspect_us);
}

static void test_suspect_alone (void)
{
    Found found = watch (&(Silence){.usual_us = 5000, .rtt_us = 5000, .others_deliver = true});
    g_assert_cmpint (found.silent_us, ==, found.suspect_us);
    g_assert_cmpint (found.suspect_us, >, 0);
    g_assert_cmpint (found.stalled_us, ==, 0);
}

static void test_stalled_first (void)
{
    Found found = watch (&(Silence){.usual_us = 100000, .rtt_us = 5000});
    g_assert_cmpint (found.stalled_us, ==, 200000);
    g_assert_cmpint (found.suspect_us, ==, 320000); /* the first tick behind 3 times 100 ms */
    g_assert_cmpint (found.silent_us, ==, found.stalled_us);
}

static void test_stalled_alone (void)
{
    Found found = watch (&(Silence){.usual_us = 5000, .rtt_us = 5000, .queues = true});
    g_assert_cmpint (found.silent_us, ==, found.stalled_us);
    g_assert_cmpint (found.stalled_us, ==, 200000);
    g_assert_cmpint (found.suspect_us, ==, 0);
}

#define STALLS_US G_USEC_PER_SEC /* after a second in which nothing came */

static EcfsLane stalled_lane (const EcfsLaneEndpoint *seen)
{
    EcfsLane lane = {0};
    (void) ecfs_lane_refresh (&lane, seen, STALLS_US);
    g_assert_true (ecfs_lane_finds_stall (&lane, 0, STALLS_US));
    g_assert_true (ecfs_lane_is_silent (&lane));
    return lane;
}

static void test_end_of_silence (void)
{
    const EcfsLaneEndpoint calm = {.rtt_us = 1000}, suspect = {.rtt_us = 1000, .suspect = true};
    EcfsLane answers = stalled_lane (&suspect);
    (void) ecfs_lane_refresh (&answers, &suspect, STALLS_US + 100000);
    g_assert_true (ecfs_lane_is_silent (&answers));
    (void) ecfs_lane_refresh (&answers, &calm, STALLS_US + 200000);
    g_assert_false (ecfs_lane_is_silent (&answers));

    EcfsLane delivers = stalled_lane (&calm);
    ecfs_lane_moved (&delivers, 0, STALLS_US + 100000);
    g_assert_false (ecfs_lane_is_silent (&delivers));

    EcfsLane queues = stalled_lane (&calm);
    (void) ecfs_lane_refresh (&queues, &calm, STALLS_US + 5 * G_USEC_PER_SEC);
    g_assert_true (ecfs_lane_is_silent (&queues));
    (void) ecfs_lane_refresh (&queues, &calm, STALLS_US + 5 * G_USEC_PER_SEC + 1);
    g_assert_false (ecfs_lane_is_silent (&queues));
}

/* What it did before it was asked for anything is not its silence, as if it had been asked all the time. */
static void test_idle_is_not_silent (void)
{
    EcfsLane lane = {0};
    const int64_t asked_us = 60 * G_USEC_PER_SEC;
    (void) ecfs_lane_asked (&lane, 1000, G_USEC_PER_SEC);
    ecfs_lane_moved (&lane, G_USEC_PER_SEC, G_USEC_PER_SEC + 500);
    ecfs_lane_done (&lane, 0);
    (void) ecfs_lane_asked (&lane, 1000, asked_us);
    g_assert_cmpint (ecfs_lane_silent_us (&lane, 0, asked_us + 700), ==, 700);
    ecfs_lane_measure (&lane, asked_us + 800); /* nor does a tick end it */
    (void) ecfs_lane_asked (&lane, 1000, asked_us + 900);
    g_assert_cmpint (ecfs_lane_silent_us (&lane, 0, asked_us + 1000), ==, 1000);
    g_assert_cmpint (ecfs_lane_silent_us (&lane, asked_us + 900, asked_us + 1000), ==, 100);
    ecfs_lane_moved (&lane, asked_us, asked_us + 1000);
    g_assert_cmpint (ecfs_lane_silent_us (&lane, 0, asked_us + 1000), ==, 0);
}

static void test_common_silence (void)
{
    const int64_t us[] = {300, 0, 5000, 400, 200, 100};
    g_assert_cmpint (ecfs_common_us (us, 6, 0), ==, 5000);
    g_assert_cmpint (ecfs_common_us (us, 6, 2), ==, 300);
    g_assert_cmpint (ecfs_common_us (us, 6, 4), ==, 100);
    g_assert_cmpint (ecfs_common_us (us, 6, 5), ==, 0); /* one delivers, and it is enough */
    const int64_t early_us[] = {-5, -3, 7};
    g_assert_cmpint (ecfs_common_us (early_us, 3, 1), ==, 0);
}

static void test_what_is_open_grows (void)
{
    const uint32_t mib = 1u << 20;
    g_assert_cmpuint (ecfs_open_window (0, 2, mib), ==, 8);
    g_assert_cmpuint (ecfs_open_window (-1, 1, mib), ==, 8); /* another clock was looked at later */
    g_assert_cmpuint (ecfs_open_window (G_USEC_PER_SEC / 2, 2, mib), ==, 12);
    g_assert_cmpuint (ecfs_open_window (2 * G_USEC_PER_SEC, 2, mib), ==, 24);
    g_assert_cmpuint (ecfs_open_window (0, 5, mib), ==, 32);
    g_assert_cmpuint (ecfs_open_window (0, 2, 64u << 10), ==, 128);
    g_assert_cmpuint (ecfs_open_window (0, 2, 64u << 20), ==, 8);
    g_assert_cmpuint (ecfs_open_window (INT64_MAX, 255, 64u << 10), <, UINT64_C (1) << 40);
}

static void test_due_time (void)
{
    g_assert_cmpint (ecfs_due_us (3000000, 1e6, 500, 100), ==, 3000400);
    g_assert_cmpint (ecfs_due_us (3000000, 0, 500, 700), ==, 700);
    int64_t never_us = ecfs_due_us (UINT64_MAX, 1e-9, 500, 100);
    g_assert_cmpint (never_us, >, INT64_C (1000000) * 86400);
    g_assert_cmpint (never_us, <, INT64_MAX / 1000); /* sums of some have room */
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/lane/the-stall-time-follows-round-trip-and-gaps", test_stall_time);
    g_test_add_func ("/lane/silence-out-of-the-usual-is-found-before-a-stall", test_suspect_first);
    g_test_add_func ("/lane/one-silent-connection-of-several-is-no-stall", test_suspect_alone);
    g_test_add_func ("/lane/a-stall-is-found-first-where-silences-are-usually-long", test_stalled_first);
    g_test_add_func ("/lane/a-packet-in-the-queue-is-found-by-its-reader-only", test_stalled_alone);
    g_test_add_func ("/lane/silence-ends-with-a-byte-an-answer-or-after-5-s", test_end_of_silence);
    g_test_add_func ("/lane/what-was-idle-is-silent-since-it-was-asked", test_idle_is_not_silent);
    g_test_add_func ("/lane/common-is-what-the-code-cannot-do-without", test_common_silence);
    g_test_add_func ("/lane/what-is-open-to-claims-grows", test_what_is_open_grows);
    g_test_add_func ("/lane/what-hardly-moves-is-due-some-day", test_due_time);
    return g_test_run ();
}
