/* Which lanes are asked: stories on a simulated clock, and invariants over random states. */
#include "object/lane.h"
#include "object/scheduler.h"

#include <string.h>

static EcfsCodec *codec_of (const char *code)
{
    g_autoptr (GError) error = NULL;
    EcfsCodec *codec = ecfs_codec_new (code, &error);
    g_assert_no_error (error);
    return codec;
}

static const EcfsReadPolicy default_policy = {.hedge_percent = ECFS_HEDGE_PERCENT};

static EcfsSchedule schedule_with (const EcfsCodec *codec, const bool *packets, const EcfsCandidate *lanes, bool *ask)
{
    EcfsDecision decision;
    EcfsWanted wanted = {.packets = packets, .n_hedges = ECFS_CODEC_MAX_N, .n_transfers = UINT_MAX};
    EcfsSchedule schedule = ecfs_schedule (codec, &default_policy, &wanted, lanes, &decision);
    memcpy (ask, decision.ask, sizeof decision.ask);
    return schedule;
}

static bool suffices (const EcfsCodec *codec, const bool *wanted, const bool *set)
{
    return ecfs_codec_determines (codec, set, wanted);
}

/* A fetch whose lanes answer, or do not, as a story tells it. */
typedef struct Sim {
    EcfsCodec *codec;
    unsigned n;
    bool wanted[ECFS_CODEC_MAX_N];
    EcfsCandidate lanes[ECFS_CODEC_MAX_N];
    int64_t takes_us[ECFS_CODEC_MAX_N]; /* from being asked to the answer; INT64_MAX: none comes */
    bool lies[ECFS_CODEC_MAX_N];        /* the answer fails its checksum */
    int64_t asked_us[ECFS_CODEC_MAX_N]; /* when */
    unsigned n_asked[ECFS_CODEC_MAX_N]; /* how often */
    int64_t now_us;
} Sim;

static void sim_init (Sim *self, const char *code)
{
    *self = (Sim){.codec = codec_of (code)};
    self->n = ecfs_codec_n (self->codec);
    for (unsigned i = 0; i < self->n; i++) {
        self->wanted[i] = i < ecfs_codec_k (self->codec);
        self->lanes[i] = (EcfsCandidate){.stored = true, .forecast_us = 1000};
        self->takes_us[i] = 10000;
    }
}

static EcfsSchedule sim_schedule (Sim *self)
{
    bool ask[ECFS_CODEC_MAX_N];
    EcfsSchedule schedule = schedule_with (self->codec, self->wanted, self->lanes, ask);
    for (unsigned i = 0; i < self->n && schedule == ECFS_SCHEDULE_WAIT; i++) {
        if (!ask[i])
            continue;
        g_assert_false (self->lanes[i].asked);
        self->lanes[i].asked = true;
        self->asked_us[i] = self->now_us;
        self->n_asked[i]++;
    }
    return schedule;
}

/* Runs until the fetch ends or @until_us; lanes that say nothing for 200 ms are late. */
static EcfsSchedule sim_run (Sim *self, int64_t until_us)
{
    EcfsSchedule schedule = sim_schedule (self);
    for (; schedule == ECFS_SCHEDULE_WAIT && self->now_us < until_us; self->now_us += 1000) {
        for (unsigned i = 0; i < self->n; i++) {
            EcfsCandidate *lane = &self->lanes[i];
            int64_t waited_us = self->now_us - self->asked_us[i];
            if (!lane->asked)
                continue;
            lane->stalled = waited_us >= ecfs_stall_us (1000, 1000);
            if (waited_us < self->takes_us[i])
                continue;
            lane->asked = lane->stalled = false;
            lane->arrived = !self->lies[i];
            lane->failed = self->lies[i];
        }
        schedule = sim_schedule (self);
    }
    return schedule;
}

static void expect_asked (Sim *self, const char *lanes)
{
    for (unsigned i = 0; i < self->n; i++)
        g_assert_cmpuint (self->n_asked[i], ==, lanes[i] - '0');
    ecfs_codec_free (self->codec);
}

static void test_data_first (void)
{
    Sim sim;
    sim_init (&sim, "rs:4+2");
    sim.lanes[4].forecast_us = sim.lanes[5].forecast_us = 1;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_READY);
    g_assert_cmpint (sim.now_us, <=, 11000);
    expect_asked (&sim, "111100");
}

/* Segment after segment is asked, each lane answering one packet a turn: all n links come to carry about the same. */
static void test_all_links (void)
{
    Sim sim;
    sim_init (&sim, "rs:8+3");
    unsigned total[ECFS_CODEC_MAX_N] = {0};
    int64_t queued_us[ECFS_CODEC_MAX_N] = {0};
    for (unsigned segment = 0; segment < 110; segment++) {
        bool ask[ECFS_CODEC_MAX_N];
        for (unsigned i = 0; i < sim.n; i++)
            sim.lanes[i] = (EcfsCandidate){.stored = true, .forecast_us = queued_us[i] + 26000};
        g_assert_cmpint (schedule_with (sim.codec, sim.wanted, sim.lanes, ask), ==, ECFS_SCHEDULE_WAIT);
        for (unsigned i = 0; i < sim.n; i++) {
            total[i] += ask[i];
            queued_us[i] += ask[i] ? 26000 : 0;
        }
    }
    for (unsigned i = 0; i < sim.n; i++) {
        g_assert_cmpuint (total[i], >=, 79);
        g_assert_cmpuint (total[i], <=, 82);
    }
    ecfs_codec_free (sim.codec);
}

static void test_crawling_lane (void)
{
    Sim sim;
    sim_init (&sim, "rs:4+2");
    sim.lanes[3].forecast_us = G_USEC_PER_SEC;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_READY);
    expect_asked (&sim, "111010");
}

static void test_part_of_a_crawling_lane (void)
{
    Sim sim;
    sim_init (&sim, "rs:4+2");
    memset (sim.wanted, 0, sizeof sim.wanted);
    sim.wanted[3] = true;
    sim.lanes[3].forecast_us = 20000; /* four others would come sooner, and cost more */
    g_assert_cmpint (sim_run (&sim, 1000), ==, ECFS_SCHEDULE_WAIT);
    g_assert_true (sim.lanes[3].asked);
    sim.lanes[3].asked = false;
    sim.n_asked[3] = 0;
    sim.lanes[3].forecast_us = G_USEC_PER_SEC;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_READY);
    expect_asked (&sim, "111010");
}

static void test_part (void)
{
    Sim sim;
    sim_init (&sim, "rs:4+2");
    memset (sim.wanted, 0, sizeof sim.wanted);
    sim.wanted[2] = true;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_READY);
    expect_asked (&sim, "001000");
}

static void test_part_with_its_stripe_lost (void)
{
    Sim sim;
    sim_init (&sim, "rs:4+2");
    memset (sim.wanted, 0, sizeof sim.wanted);
    sim.wanted[2] = true;
    sim.lanes[2].stored = false;
    sim.lanes[5].forecast_us = 500;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_READY);
    expect_asked (&sim, "110101");
}

static void test_dead (void)
{
    Sim sim;
    sim_init (&sim, "rs:4+2");
    sim.takes_us[1] = sim.takes_us[3] = INT64_MAX;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_READY);
    g_assert_cmpint (sim.now_us, <, 230000);
    expect_asked (&sim, "111111");
}

static void test_late (void)
{
    Sim sim;
    sim_init (&sim, "rs:4+2");
    sim.takes_us[0] = sim.takes_us[1] = sim.takes_us[2] = 400000;
    sim.takes_us[4] = sim.takes_us[5] = INT64_MAX;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_READY);
    g_assert_cmpint (sim.now_us, <=, 401000);
    expect_asked (&sim, "111111");
}

static void test_lying (void)
{
    Sim sim;
    sim_init (&sim, "rs:4+2");
    sim.lies[0] = sim.lies[4] = true;
    sim.lanes[4].forecast_us = 1;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_READY);
    g_assert_cmpint (sim.now_us, <=, 32000);
    expect_asked (&sim, "111111");
}

static void test_too_many_lie (void)
{
    Sim sim;
    sim_init (&sim, "rs:4+2");
    sim.lies[0] = sim.lies[2] = sim.lies[5] = true;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_IMPOSSIBLE);
    expect_asked (&sim, "111111");
}

/* A lane that was cancelled, and may be asked again, is: here as the last there is. */
static void test_resumed (void)
{
    Sim sim;
    sim_init (&sim, "rs:2+1");
    sim.takes_us[0] = sim.takes_us[1] = INT64_MAX;
    g_assert_cmpint (sim_run (&sim, 100000), ==, ECFS_SCHEDULE_WAIT);
    sim.lanes[0].asked = sim.lanes[1].asked = false;
    sim.lanes[0].down = sim.lanes[1].down = true;
    sim.takes_us[1] = 10000;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_READY);
    g_assert_cmpuint (sim.n_asked[2], ==, 1);
    g_assert_cmpuint (sim.n_asked[1], ==, 2);
    ecfs_codec_free (sim.codec);
}

static void test_resting (void)
{
    Sim sim;
    sim_init (&sim, "rs:4+2");
    for (unsigned i = 0; i < 3; i++)
        sim.lanes[i].resting = true;
    g_assert_cmpint (sim_run (&sim, 50000), ==, ECFS_SCHEDULE_WAIT); /* one of them may still come back */
    sim.lanes[0].resting = false;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_READY);
    expect_asked (&sim, "100111");
}

static void test_down_is_last (void)
{
    Sim sim;
    sim_init (&sim, "rs:4+2");
    sim.lanes[0].down = true;
    sim.lanes[1].avoided = true;
    sim.lanes[4].forecast_us = sim.lanes[5].forecast_us = G_USEC_PER_SEC;
    g_assert_cmpint (sim_run (&sim, 1000), ==, ECFS_SCHEDULE_WAIT);
    for (unsigned i = 0; i < 6; i++)
        g_assert_cmpuint (sim.n_asked[i], ==, i >= 2);
    sim.lies[4] = true;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_READY);
    expect_asked (&sim, "011111");
}

static EcfsCandidate random_lane (void)
{
    guint32 bits = (guint32) g_test_rand_int ();
    EcfsCandidate lane = {.stored = bits & 7, .forecast_us = bits >> 16};
    if (!lane.stored)
        return lane;
    lane.arrived = (bits >> 3 & 3) == 0;
    lane.asked = !lane.arrived && (bits >> 5 & 3) == 0;
    lane.failed = !lane.arrived && !lane.asked && (bits >> 7 & 3) == 0;
    lane.stalled = lane.asked && (bits >> 9 & 1);
    lane.down = (bits >> 10 & 3) == 0;
    lane.avoided = (bits >> 12 & 3) == 0;
    return lane;
}

static void check_state (const EcfsCodec *codec, const bool *wanted, const EcfsCandidate *lanes)
{
    unsigned n = ecfs_codec_n (codec);
    bool ask[ECFS_CODEC_MAX_N], arrived[ECFS_CODEC_MAX_N], set[ECFS_CODEC_MAX_N], hoped[ECFS_CODEC_MAX_N];
    bool possible[ECFS_CODEC_MAX_N], sound[ECFS_CODEC_MAX_N];
    EcfsSchedule schedule = schedule_with (codec, wanted, lanes, ask);
    bool any_desperate = false, any_asked = false;
    for (unsigned i = 0; i < n; i++) {
        bool may_ask = lanes[i].stored && !lanes[i].arrived && !lanes[i].asked && !lanes[i].failed;
        arrived[i] = lanes[i].arrived;
        hoped[i] = lanes[i].arrived || (lanes[i].asked && !lanes[i].stalled);
        set[i] = hoped[i] || ask[i];
        possible[i] = lanes[i].arrived || lanes[i].asked || may_ask;
        sound[i] = hoped[i] || (may_ask && !lanes[i].down && !lanes[i].avoided);
        g_assert_true (may_ask || !ask[i]);
        any_asked |= ask[i];
        any_desperate |= ask[i] && (lanes[i].down || lanes[i].avoided);
    }
    g_assert_true ((schedule == ECFS_SCHEDULE_READY) == suffices (codec, wanted, arrived));
    g_assert_true ((schedule == ECFS_SCHEDULE_IMPOSSIBLE) == !suffices (codec, wanted, possible));
    if (schedule == ECFS_SCHEDULE_READY)
        g_assert_false (any_asked);
    if (schedule != ECFS_SCHEDULE_WAIT)
        return;
    g_assert_true (!any_asked || !suffices (codec, wanted, hoped));
    bool late_counts = !suffices (codec, wanted, set);
    for (unsigned i = 0; i < n; i++) {
        /* Only where nothing else is left do late lanes have to count, and then all others are asked. */
        if (late_counts)
            g_assert_true (set[i] || lanes[i].asked || lanes[i].failed || !lanes[i].stored);
        if (!late_counts && ask[i]) { /* none is asked for nothing */
            set[i] = false;
            g_assert_false (suffices (codec, wanted, set));
            set[i] = true;
        }
    }
    /* Down and avoided lanes only where all the others are not enough. */
    g_assert_false (any_desperate && suffices (codec, wanted, sound));
}

static void test_random (gconstpointer code)
{
    g_autoptr (EcfsCodec) codec = codec_of (code);
    unsigned n = ecfs_codec_n (codec), k = ecfs_codec_k (codec);
    unsigned n_rounds = n <= 32 ? 50000 : 2000;
    for (unsigned round = 0; round < n_rounds; round++) {
        EcfsCandidate lanes[ECFS_CODEC_MAX_N];
        bool wanted[ECFS_CODEC_MAX_N] = {false};
        unsigned only = round % (k + 1);
        for (unsigned i = 0; i < n; i++) {
            lanes[i] = random_lane ();
            wanted[i] = i < k && (only == k || i == only);
        }
        check_state (codec, wanted, lanes);
    }
}

static const EcfsReadPolicy cheap_policy = {.cheap = true, .hedge_percent = ECFS_HEDGE_PERCENT};

static void expect_cheap (const Sim *sim, const char *lanes)
{
    EcfsDecision decision;
    EcfsWanted wanted = {.packets = sim->wanted, .n_hedges = ECFS_CODEC_MAX_N, .n_transfers = UINT_MAX};
    g_assert_cmpint (ecfs_schedule (sim->codec, &cheap_policy, &wanted, sim->lanes, &decision), ==, ECFS_SCHEDULE_WAIT);
    for (unsigned i = 0; i < sim->n; i++)
        g_assert_cmpint (decision.ask[i], ==, lanes[i] == '1');
}

/* Parity that costs less is read before data that costs more, unless it is slow; what is spent is the last but one. */
static void test_cheap (void)
{
    Sim sim;
    sim_init (&sim, "rs:4+2");
    for (unsigned i = 0; i < sim.n; i++)
        sim.lanes[i].alone_us = sim.lanes[i].forecast_us = 10000;
    expect_cheap (&sim, "111100"); /* prices are all the same */
    sim.lanes[0].price = 90;
    sim.lanes[1].price = 89;
    expect_cheap (&sim, "001111");
    sim.lanes[5].alone_us = sim.lanes[5].forecast_us = 119000; /* twice as long, and 100 ms */
    expect_cheap (&sim, "001111");
    sim.lanes[5].alone_us = sim.lanes[5].forecast_us = 121000;
    expect_cheap (&sim, "011110");
    sim.lanes[5].spent = true;
    sim.lanes[4].down = true;
    expect_cheap (&sim, "111100");
    sim.lanes[3].spent = true; /* one of those that are left has to be read all the same, and it is not the one down */
    expect_cheap (&sim, "111100");
    for (unsigned i = 0; i < sim.n; i++)
        sim.wanted[i] = i == 0;
    expect_cheap (&sim, "100000"); /* three others would be cheap, and the fourth is not to be had */
    sim.lanes[3].spent = sim.lanes[4].down = sim.lanes[5].spent = false;
    sim.lanes[5].alone_us = 10000;
    expect_cheap (&sim, "001111");
    ecfs_codec_free (sim.codec);
}

/* Also where time counts, what is used up is not asked as long as others suffice. */
static void test_spent (void)
{
    Sim sim;
    sim_init (&sim, "rs:4+2");
    sim.lanes[0].spent = sim.lanes[1].spent = true;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_READY);
    expect_asked (&sim, "001111");
    sim_init (&sim, "rs:4+2");
    sim.lanes[0].spent = sim.lanes[1].spent = sim.lanes[5].spent = true;
    sim.lanes[5].forecast_us = 1;
    sim.lanes[4].down = true;
    g_assert_cmpint (sim_run (&sim, G_USEC_PER_SEC), ==, ECFS_SCHEDULE_READY);
    g_assert_cmpuint (sim.n_asked[2] + sim.n_asked[3], ==, 2);
    g_assert_cmpuint (sim.n_asked[4], ==, 0);
    g_assert_cmpuint (sim.n_asked[0] + sim.n_asked[1] + sim.n_asked[5], ==, 2);
    ecfs_codec_free (sim.codec);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/scheduler/data-comes-first", test_data_first);
    g_test_add_func ("/scheduler/all-links-are-used-alike", test_all_links);
    g_test_add_func ("/scheduler/a-crawling-lane-is-not-asked", test_crawling_lane);
    g_test_add_func ("/scheduler/a-part-of-a-crawling-lane-comes-from-others", test_part_of_a_crawling_lane);
    g_test_add_func ("/scheduler/a-part-is-asked-from-its-own-stripe", test_part);
    g_test_add_func ("/scheduler/a-part-whose-stripe-is-lost-needs-k-others", test_part_with_its_stripe_lost);
    g_test_add_func ("/scheduler/dead-lanes-are-replaced", test_dead);
    g_test_add_func ("/scheduler/late-is-not-lost", test_late);
    g_test_add_func ("/scheduler/lying-lanes-are-replaced", test_lying);
    g_test_add_func ("/scheduler/too-many-lying-lanes-are-impossible", test_too_many_lie);
    g_test_add_func ("/scheduler/a-cancelled-lane-is-asked-again-as-the-last", test_resumed);
    g_test_add_func ("/scheduler/a-resting-lane-is-waited-for", test_resting);
    g_test_add_func ("/scheduler/down-and-avoided-lanes-are-asked-last", test_down_is_last);
    g_test_add_func ("/scheduler/what-is-cheap-and-fast-enough-is-asked", test_cheap);
    g_test_add_func ("/scheduler/what-is-used-up-is-asked-last", test_spent);
    static const char *const codes[] = {"copies:3",   "rs:2+1",      "rs:4+2",    "rs:8+3",    "ldpc:8+6",
                                        "ldpc:20+20", "ldpc:100+28", "basic:4+4", "basic:8+8", "basic:20+20"};
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++) {
        g_autofree char *path = g_strdup_printf ("/scheduler/%s/random-states-keep-the-rules", codes[i]);
        g_test_add_data_func (path, codes[i], test_random);
    }
    return g_test_run ();
}
