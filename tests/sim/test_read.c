/* What the scheduler makes of good and bad links: whole reads on a simulated clock. Seeds are fixed, so every run is
 * the same. */
#include "sim/events.h"
#include "sim/sim.h"

#include <string.h>

#define MIB     (1 << 20)
#define N_LANES 11

typedef struct Model {
    EcfsReadPolicy policy;
    uint64_t n_segments, packet_bytes;
    unsigned window;
    double reader_segments_per_s;
    uint32_t seed;
    EcfsSimServer lanes[N_LANES];
} Model;

typedef struct Simulated {
    int64_t us, longest_wait_us;
    uint64_t received_bytes, extra_bytes;
    unsigned n_hedges, most_running;
    unsigned n_asked[N_LANES];
    bool impossible;
} Simulated;

static void model_init (Model *self)
{
    *self = (Model){.n_segments = 200, .packet_bytes = 256 << 10, .window = 16, .seed = 1};
    ecfs_read_policy_init (&self->policy);
    for (unsigned i = 0; i < N_LANES; i++)
        self->lanes[i] = ecfs_sim_server ();
}

static Simulated simulate (const Model *model)
{
    g_autoptr (GError) error = NULL;
    EcfsSimModel sim;
    EcfsSimResult result;
    Simulated done;
    memset (&done, 0, sizeof done); /* it is compared as bytes */
    EcfsSimServer servers[N_LANES];
    memcpy (servers, model->lanes, sizeof servers);
    ecfs_sim_model_init (&sim);
    sim.policy = model->policy;
    sim.n_segments = model->n_segments;
    sim.packet_bytes = model->packet_bytes;
    sim.window = model->window;
    sim.reader_segments_per_s = model->reader_segments_per_s;
    sim.seed = model->seed;
    sim.servers = servers;
    sim.n_servers = N_LANES;
    sim.ret_asked = done.n_asked;
    (void) ecfs_sim_run (&sim, &result, &error);
    g_assert_no_error (error);
    g_assert_false (result.timed_out);
    done.us = result.us;
    done.longest_wait_us = result.longest_wait_us;
    done.received_bytes = result.received_bytes;
    done.extra_bytes = result.extra_bytes;
    done.n_hedges = result.n_hedges;
    done.most_running = result.most_running;
    done.impossible = result.n_failed > 0;
    return done;
}

/* The least that a read can take over so many lanes of the model's first rate. */
static int64_t least_us (const Model *model, unsigned n_lanes)
{
    return (int64_t) (1e6 * 8 * (double) (model->n_segments * model->packet_bytes) /
                      (n_lanes * model->lanes[0].bytes_per_s));
}

static Simulated without_last_three (Model model)
{
    for (unsigned i = 8; i < 11; i++)
        model.lanes[i].removed = true;
    return simulate (&model);
}

static void expect_at_most (int64_t us, int64_t base_us, unsigned percent)
{
    g_test_message ("%" G_GINT64_FORMAT " us, that is %.3f of %" G_GINT64_FORMAT, us, (double) us / (double) base_us,
                    base_us);
    g_assert_cmpint (us * 100, <=, base_us * percent);
}

static void test_all_links (void)
{
    Model model;
    model_init (&model);
    Simulated done = simulate (&model);
    expect_at_most (done.us, least_us (&model, 11), 104);
    g_assert_cmpuint (done.extra_bytes, ==, 0);
    g_assert_cmpuint (done.n_hedges, ==, 0);
}

static void test_replay (void)
{
    Model model;
    model_init (&model);
    for (unsigned i = 0; i < 11; i++)
        model.lanes[i].jitter_us = 30000;
    Simulated one = simulate (&model), two = simulate (&model);
    g_assert_cmpmem (&one, sizeof one, &two, sizeof two);
    model.seed++;
    g_assert_cmpint (simulate (&model).us, !=, one.us);
}

static void test_stalled (void)
{
    Model model;
    model_init (&model);
    Simulated removed = without_last_three (model);
    for (unsigned i = 8; i < 11; i++)
        model.lanes[i].changes_us = removed.us / 3;
    Simulated done = simulate (&model);
    expect_at_most (done.us, removed.us, 105);
    expect_at_most (done.longest_wait_us, 600000, 100);
}

static void test_throttled (void)
{
    Model model;
    model_init (&model);
    Simulated removed = without_last_three (model);
    for (unsigned i = 8; i < 11; i++) {
        model.lanes[i].changes_us = removed.us / 3;
        model.lanes[i].later_bytes_per_s = 1e5;
    }
    expect_at_most (simulate (&model).us, removed.us, 105);
    for (unsigned i = 8; i < 11; i++)
        model.lanes[i].changes_us = 0; /* from the beginning */
    expect_at_most (simulate (&model).us, removed.us, 110);
}

static void test_stalled_and_back (void)
{
    Model model;
    model_init (&model);
    Simulated healthy = simulate (&model);
    model.lanes[2].changes_us = G_USEC_PER_SEC;
    model.lanes[2].until_us = G_USEC_PER_SEC * 3 / 2;
    Simulated done = simulate (&model);
    expect_at_most (done.us, healthy.us, 110);
    g_assert_cmpuint (done.n_asked[2], >, done.n_asked[1] / 2); /* it is used again */
}

static void test_delayed (void)
{
    Model model;
    model_init (&model);
    Simulated healthy = simulate (&model);
    for (unsigned i = 0; i < 11; i++) {
        model.lanes[i].delayed_share = 0.1;
        model.lanes[i].delay_us = 100000;
    }
    Simulated done = simulate (&model);
    expect_at_most (done.us, healthy.us, 110);
    g_assert_cmpuint (done.extra_bytes, <=, done.received_bytes / 20 + 2 * MIB);
}

/* One lane gets slow, but never silent: what it owes is hedged, and the reader waits less. */
static void test_slow_lane (void)
{
    Model model;
    model_init (&model);
    model.lanes[4].changes_us = G_USEC_PER_SEC;
    model.lanes[4].later_bytes_per_s = 2e5;
    Simulated hedged = simulate (&model);
    g_assert_cmpuint (hedged.n_hedges, >, 0);
    model.policy.hedge_percent = 0;
    Simulated unhedged = simulate (&model);
    g_assert_cmpuint (unhedged.n_hedges, ==, 0);
    g_assert_cmpint (hedged.longest_wait_us * 2, <, unhedged.longest_wait_us);
}

static void test_budget (void)
{
    Model model;
    model_init (&model);
    for (unsigned i = 0; i < 11; i++) {
        model.lanes[i].delayed_share = 0.04; /* rarer than what nearly all cases cover */
        model.lanes[i].delay_us = 150000;
    }
    model.window = 2; /* nothing hides a delay */
    Simulated some = simulate (&model);
    g_assert_cmpuint (some.n_hedges, >, 0);
    g_assert_cmpuint (some.extra_bytes, <=, some.received_bytes / 20 + 2 * MIB);
    model.policy.hedge_percent = 1;
    Simulated few = simulate (&model);
    g_assert_cmpuint (few.extra_bytes, <=, few.received_bytes / 100 + 2 * MIB);
    model.policy.hedge_percent = 0;
    Simulated none = simulate (&model);
    g_assert_cmpuint (none.n_hedges, ==, 0);
    g_assert_cmpint (some.us, <, none.us);
}

/* What is late and not needed for long may still come by itself. */
static void test_unhurried (void)
{
    Model model;
    model_init (&model);
    model.reader_segments_per_s = 5;
    model.n_segments = 60;
    model.lanes[4].changes_us = G_USEC_PER_SEC;
    model.lanes[4].later_bytes_per_s = 4e6;
    Simulated done = simulate (&model);
    g_assert_cmpuint (done.n_hedges, <=, 2); /* of 480 */
    g_assert_cmpint (done.longest_wait_us, <, 100000);
}

/* Everything slows down at once: nothing is gained by asking others, but for what is out of the usual everywhere. */
static void test_common_cause (void)
{
    Model model;
    model_init (&model);
    for (unsigned i = 0; i < 11; i++) {
        model.lanes[i].changes_us = G_USEC_PER_SEC;
        model.lanes[i].until_us = G_USEC_PER_SEC * 11 / 10;
    }
    Simulated done = simulate (&model);
    g_assert_cmpuint (done.n_hedges, ==, 0);
    g_assert_cmpuint (done.extra_bytes, <=, done.received_bytes / 100);
}

/* What links that differ allow is nearly reached from the first segment on: of a segment any four packets serve, and
 * each link carries one of them. A file of 96 MiB, for a reader that knows the links. */
static void test_unequal_links (void)
{
    static const struct {
        double mb_per_s[6], bound;
    } cases[] = {{{2, 5, 10, 10, 20, 50}, 54},
                 {{10, 10, 10, 10, 10, 10}, 60},
                 {{1, 10, 10, 10, 10, 10}, 51},
                 {{5, 5, 10, 20, 40, 80}, 80},
                 {{50, 20, 10, 10, 5, 2}, 54}};
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        g_autoptr (GError) error = NULL;
        EcfsSimServer servers[6];
        EcfsSimModel sim;
        EcfsSimResult result;
        ecfs_sim_model_init (&sim);
        for (unsigned j = 0; j < G_N_ELEMENTS (servers); j++) {
            servers[j] = ecfs_sim_server ();
            servers[j].bytes_per_s = cases[i].mb_per_s[j] * 1e6;
        }
        sim.code = "rs:4+2";
        sim.n_segments = 48;
        sim.packet_bytes = 512 << 10;
        sim.memory_bytes = 256 << 20;
        sim.known = true;
        sim.servers = servers;
        sim.n_servers = G_N_ELEMENTS (servers);
        (void) ecfs_sim_run (&sim, &result, &error);
        g_assert_no_error (error);
        double mb_per_s = 48.0 * (2 << 20) / (double) result.us;
        g_test_message ("%zu: %.1f of %.0f MB/s", i, mb_per_s, cases[i].bound);
        g_assert_cmpfloat (mb_per_s, >=, 0.95 * cases[i].bound);
        g_assert_cmpfloat (mb_per_s, <=, 1.001 * cases[i].bound);
    }
}

static void test_impossible (void)
{
    Model model;
    model_init (&model);
    for (unsigned i = 7; i < 11; i++)
        model.lanes[i].removed = true;
    g_assert_true (simulate (&model).impossible);
}

/* What a server sends in more years than the clock has never comes, rather than before it was asked. */
static void test_endless (void)
{
    g_autoptr (GError) error = NULL;
    EcfsSimServer servers[N_LANES];
    EcfsSimModel sim;
    EcfsSimResult result;
    for (unsigned i = 0; i < N_LANES; i++) {
        servers[i] = ecfs_sim_server ();
        servers[i].bytes_per_s = 1e-9;
    }
    ecfs_sim_model_init (&sim);
    sim.servers = servers;
    sim.n_servers = N_LANES;
    sim.limit_us = 10 * G_USEC_PER_SEC;
    (void) ecfs_sim_run (&sim, &result, &error);
    g_assert_no_error (error);
    g_assert_true (result.timed_out);
    g_assert_cmpuint (result.n_packets, ==, 0);
    g_assert_cmpint (ecfs_sim_span_us (1e9, 1e-9), >, G_MAXINT64 / 16);
    g_assert_cmpint (ecfs_sim_span_us (1, 3), ==, 333334);
}

static void test_too_many_packets (void)
{
    g_autoptr (GError) error = NULL;
    EcfsSimServer server = ecfs_sim_server ();
    EcfsSimModel sim;
    EcfsSimResult result;
    ecfs_sim_model_init (&sim);
    sim.n_segments = UINT64_C (1) << 40;
    sim.servers = &server;
    sim.n_servers = 1;
    g_assert_false (ecfs_sim_run (&sim, &result, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
}

/* The policies of Collins and Plank */

static void with_policy (Model *model, const char *text)
{
    g_autoptr (GError) error = NULL;
    model_init (model);
    (void) ecfs_read_policy_parse (text, &model->policy, &error);
    g_assert_no_error (error);
}

static void test_transfers (void)
{
    Model model;
    with_policy (&model, "T=20");
    Simulated done = simulate (&model);
    g_assert_cmpuint (done.most_running, ==, 20);
    with_policy (&model, "T=3");
    Simulated few = simulate (&model);
    g_assert_cmpuint (few.most_running, ==, 3);
    expect_at_most (few.us, least_us (&model, 3), 125);
    g_assert_cmpint (few.us, >, done.us);
}

static void test_fastest0 (void)
{
    Model model;
    with_policy (&model, "fastest0,no-preference");
    for (unsigned i = 0; i < 3; i++)
        model.lanes[i].bytes_per_s = 5e6;
    model.n_segments = 100;
    Simulated done = simulate (&model);
    /* Once it is known which they are, the slow three are left alone, however long the queues of the others are. */
    for (unsigned i = 0; i < 3; i++)
        g_assert_cmpuint (done.n_asked[i], <=, 2 * model.window);
    for (unsigned i = 3; i < 11; i++)
        g_assert_cmpuint (done.n_asked[i], >, 80);
}

static void test_fastest1 (void)
{
    Model model;
    with_policy (&model, "fastest1,no-preference");
    for (unsigned i = 0; i < 3; i++)
        model.lanes[i].bytes_per_s = 5e6;
    Simulated done = simulate (&model);
    /* The load spreads the work: the slow ones carry about half of what the fast ones do. */
    for (unsigned i = 0; i < 3; i++)
        g_assert_cmpuint (done.n_asked[i], >, 50);
    with_policy (&model, "fastest0,no-preference");
    for (unsigned i = 0; i < 3; i++)
        model.lanes[i].bytes_per_s = 5e6;
    g_assert_cmpint (done.us, <, simulate (&model).us);
}

static void test_data_first (void)
{
    Model model;
    with_policy (&model, "data-first");
    Simulated done = simulate (&model);
    for (unsigned i = 0; i < 11; i++)
        g_assert_cmpuint (done.n_asked[i], ==, i < 8 ? 200 : 0);
    expect_at_most (done.us, least_us (&model, 8), 104);
    with_policy (&model, "no-preference");
    Simulated any = simulate (&model);
    for (unsigned i = 0; i < 11; i++)
        g_assert_cmpuint (any.n_asked[i], >, 130);
}

/* A lane that is slow for one packet: with R = 1 it is waited for, with R = 2 overtaken by P others it is not. */
static void test_replication (void)
{
    Model model;
    with_policy (&model, "R=1");
    model.lanes[4].changes_us = G_USEC_PER_SEC;
    model.lanes[4].later_bytes_per_s = 2e5;
    Simulated alone = simulate (&model);
    g_assert_cmpuint (alone.n_hedges, ==, 0);
    int64_t us = 0;
    unsigned n_before = 0;
    static const char *const texts[] = {"R=2,P=30", "R=2,P=90"};
    for (unsigned i = 0; i < G_N_ELEMENTS (texts); i++) {
        with_policy (&model, texts[i]);
        model.lanes[4].changes_us = G_USEC_PER_SEC;
        model.lanes[4].later_bytes_per_s = 2e5;
        Simulated twice = simulate (&model);
        g_assert_cmpuint (twice.n_hedges, >, 0);
        g_assert_cmpint (twice.us, <, alone.us);
        g_test_message ("%s: %" G_GINT64_FORMAT " us, %u replicated", texts[i], twice.us, twice.n_hedges);
        if (i > 0) { /* the more patient, the less is replicated */
            g_assert_cmpuint (twice.n_hedges, <=, n_before);
            g_assert_cmpint (twice.us, >=, us * 9 / 10);
        }
        us = twice.us;
        n_before = twice.n_hedges;
    }
}

static void test_parse (void)
{
    EcfsReadPolicy policy;
    g_autoptr (GError) error = NULL;
    ecfs_read_policy_init (&policy);
    g_assert_true (ecfs_read_policy_parse ("T=20, R=2,P=6,fastest1,data-first", &policy, &error));
    g_assert_cmpuint (policy.transfers, ==, 20);
    g_assert_cmpuint (policy.replication, ==, 2);
    g_assert_cmpuint (policy.failover, ==, 6);
    g_assert_cmpint (policy.selection, ==, ECFS_SELECT_FASTEST1);
    g_assert_cmpint (policy.preference, ==, ECFS_PREFER_DATA);
    g_assert_cmpuint (policy.hedge_percent, ==, ECFS_HEDGE_PERCENT);
    g_assert_true (ecfs_read_policy_parse ("default", &policy, &error));
    g_assert_cmpuint (policy.transfers + policy.replication + policy.failover, ==, 0);
    static const char *const wrong[] = {"", "T=0", "T=", "T=x", "Q=1", "R=2", "P=3", "R=1,P=3", "fastest2", "T=1,,R=1"};
    for (unsigned i = 0; i < G_N_ELEMENTS (wrong); i++) {
        g_assert_false (ecfs_read_policy_parse (wrong[i], &policy, &error));
        g_assert_error (error, ECFS_ERROR, EINVAL);
        g_clear_error (&error);
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/simulation/all-links-are-used", test_all_links);
    g_test_add_func ("/simulation/links-that-differ-are-all-used", test_unequal_links);
    g_test_add_func ("/simulation/a-seed-replays", test_replay);
    g_test_add_func ("/simulation/stalled-lanes-cost-little-more-than-removed-ones", test_stalled);
    g_test_add_func ("/simulation/throttled-lanes-cost-little-more-than-removed-ones", test_throttled);
    g_test_add_func ("/simulation/a-lane-that-comes-back-is-used-again", test_stalled_and_back);
    g_test_add_func ("/simulation/delayed-requests-cost-little", test_delayed);
    g_test_add_func ("/simulation/a-slow-lane-is-hedged", test_slow_lane);
    g_test_add_func ("/simulation/hedging-keeps-its-budget", test_budget);
    g_test_add_func ("/simulation/what-is-not-needed-yet-is-not-hedged", test_unhurried);
    g_test_add_func ("/simulation/what-slows-all-is-not-hedged", test_common_cause);
    g_test_add_func ("/simulation/too-few-lanes-are-impossible", test_impossible);
    g_test_add_func ("/simulation/what-takes-longer-than-the-clock-never-comes", test_endless);
    g_test_add_func ("/simulation/more-packets-than-can-be-kept-are-refused", test_too_many_packets);
    g_test_add_func ("/simulation/T-limits-the-transfers", test_transfers);
    g_test_add_func ("/simulation/fastest0-asks-the-fastest", test_fastest0);
    g_test_add_func ("/simulation/fastest1-looks-at-the-load", test_fastest1);
    g_test_add_func ("/simulation/data-first-asks-no-parity", test_data_first);
    g_test_add_func ("/simulation/R-and-P-replicate-what-is-overtaken", test_replication);
    g_test_add_func ("/simulation/a-policy-is-parsed", test_parse);
    return g_test_run ();
}
