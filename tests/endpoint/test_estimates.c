/* How long and how fast an endpoint usually is: distributions and meters, on a clock of the test's. */
#include "endpoint/core/core.h"

#include <math.h>

#define MS     INT64_C (1000)
#define SECOND G_USEC_PER_SEC
#define HOUR   INT64_C (3600000000)
#define KIB    INT64_C (1024)
#define MB     1e6
#define ERROR  0.05 /* of a bucket */

#define ASSERT_ABOUT(value, expected) g_assert_cmpfloat_with_epsilon (value, expected, ERROR *(expected))

static void test_quantiles (void)
{
    g_autofree Distribution *self = g_new0 (Distribution, 1);
    g_assert_cmpfloat (self->quantiles.p50, ==, 0);
    ecfs_distribution_note (self, 700, 1, 0);
    ASSERT_ABOUT (self->quantiles.p5, 700);
    ASSERT_ABOUT (self->quantiles.p95, 700);
    *self = (Distribution){.sum = 0};
    for (unsigned i = 1; i <= 1000; i++) /* in an order that is none */
        ecfs_distribution_note (self, 1000 + 7 * (i * 617 % 1000), 1, i);
    ASSERT_ABOUT (self->quantiles.p5, 1000 + 7 * 50);
    ASSERT_ABOUT (self->quantiles.p50, 1000 + 7 * 500);
    ASSERT_ABOUT (self->quantiles.p95, 1000 + 7 * 950);
}

/* Whatever comes is somewhere in it, and nothing is impossible afterwards. */
static void test_extremes (void)
{
    g_autofree Distribution *self = g_new0 (Distribution, 1);
    ecfs_distribution_note (self, 0, 1, 0);
    ASSERT_ABOUT (self->quantiles.p50, 1);
    for (unsigned i = 0; i < 100; i++)
        ecfs_distribution_note (self, 1e300, 1, INT64_MAX - 1);
    g_assert_cmpfloat (self->quantiles.p50, >, 1e8);
    ecfs_distribution_note (self, 5, 1, 0); /* a clock that went back */
    g_assert_true (isfinite (self->sum) && self->sum > 0);
}

/* One that is out of the usual is none of the usual, however long nothing came before; many are. */
static void test_outlier (void)
{
    g_autofree Distribution *self = g_new0 (Distribution, 1);
    int64_t now_us = 0;
    for (unsigned i = 0; i < 200; i++)
        ecfs_distribution_note (self, 100, 1, now_us += SECOND / 5);
    ecfs_distribution_note (self, 9000, 1, now_us += HOUR);
    ASSERT_ABOUT (self->quantiles.p95, 100);
    for (unsigned i = 0; i < 9; i++)
        ecfs_distribution_note (self, 9000, 1, now_us += HOUR);
    ASSERT_ABOUT (self->quantiles.p50, 100);
    ASSERT_ABOUT (self->quantiles.p95, 9000);
    for (unsigned i = 0; i < 80; i++)
        ecfs_distribution_note (self, 9000, 1, now_us += HOUR);
    ASSERT_ABOUT (self->quantiles.p50, 9000);
}

/* What was long ago fades by time where there is much: after a few half-lives the present is the median. */
static void test_fades (void)
{
    g_autofree Distribution *self = g_new0 (Distribution, 1);
    int64_t now_us = 0;
    for (unsigned i = 0; i < 60000; i++)
        ecfs_distribution_note (self, 100, 1, now_us += MS);
    for (unsigned i = 0; i < 15000; i++)
        ecfs_distribution_note (self, 800, 1, now_us += MS);
    ASSERT_ABOUT (self->quantiles.p50, 100);
    for (unsigned i = 0; i < 15000; i++)
        ecfs_distribution_note (self, 800, 1, now_us += MS);
    ASSERT_ABOUT (self->quantiles.p50, 800);
    for (unsigned i = 0; i < 2000000; i++) /* past the largest gain */
        ecfs_distribution_note (self, 50, 1, now_us += MS);
    ASSERT_ABOUT (self->quantiles.p5, 50);
    ASSERT_ABOUT (self->quantiles.p95, 50);
}

static void test_prior (void)
{
    const EcfsQuantiles prior = {.p5 = 1000, .p50 = 4000, .p95 = 9000};
    g_autofree Distribution *self = g_new0 (Distribution, 1);
    g_assert_true (ecfs_distribution_expect (self, &prior));
    ASSERT_ABOUT (self->quantiles.p5, 1000);
    ASSERT_ABOUT (self->quantiles.p50, 4000);
    ASSERT_ABOUT (self->quantiles.p95, 9000);
    g_assert_false (ecfs_distribution_expect (self, &(EcfsQuantiles){.p5 = 1, .p50 = 1, .p95 = 1}));
    ecfs_distribution_note (self, 20, 1, SECOND);
    ASSERT_ABOUT (self->quantiles.p50, 4000);
    for (unsigned i = 0; i < 12; i++)
        ecfs_distribution_note (self, 20, 1, SECOND);
    ASSERT_ABOUT (self->quantiles.p50, 20);
}

static void test_hostile_prior (void)
{
    static const EcfsQuantiles impossible[] = {
        {0, 0, 0},
        {-1, 5, 6},
        {NAN, 5, 6},
        {1, NAN, 6},
        {1, 2, NAN},
        {5, 4, 6},
        {1, 5, 4},
        {1, 2, INFINITY},
        {1, 2, 1e300},
        {-INFINITY, 0, 1e10},
        {INFINITY, INFINITY, INFINITY},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (impossible); i++) {
        g_autofree Distribution *self = g_new0 (Distribution, 1);
        g_autofree EcfsMeter *meter = g_new0 (EcfsMeter, 1);
        g_assert_false (ecfs_distribution_expect (self, &impossible[i]));
        g_assert_cmpfloat (self->sum, ==, 0);
        ecfs_meter_expect (meter, &impossible[i]);
        g_assert_false (meter->proven);
        g_assert_cmpfloat (ecfs_meter_rate (meter).p50, ==, 0);
    }
}

/* A line of @bytes_per_s with a delay, and someone who keeps @outstanding bytes asked for. */
typedef struct Line {
    EcfsMeter meter;
    double bytes_per_s;
    int64_t delay_us;
    bool shared;
    int64_t now_us;
} Line;

static Line *line_new (double bytes_per_s, int64_t delay_us)
{
    Line *line = g_new0 (Line, 1);
    line->bytes_per_s = bytes_per_s;
    line->delay_us = delay_us;
    return line;
}

static void arrive (Line *line, int64_t bytes, int64_t owed, int64_t at_us)
{
    line->now_us = at_us;
    Progress progress = {
        .owed = (double) owed, .delay_us = (double) line->delay_us, .shared = line->shared, .now_us = at_us};
    ecfs_meter_add (&line->meter, (uint64_t) bytes, &progress);
}

/* Reads @bytes in chunks of 64 KiB, as fast as the line and what is asked for allow. */
static void run (Line *line, int64_t bytes, int64_t outstanding)
{
    const int64_t chunk = 64 * KIB;
    int64_t line_us = (int64_t) ((double) chunk / line->bytes_per_s * 1e6);
    int64_t loop_us =
        (line->delay_us + line_us) * chunk / MIN (outstanding, bytes); /* a chunk per turn of the window */
    int64_t at_us = line->now_us + line->delay_us + line_us;
    ecfs_meter_begin (&line->meter, line->now_us);
    for (int64_t left = bytes; left > 0; left -= chunk) {
        arrive (line, chunk, MIN (left - chunk, outstanding), at_us);
        at_us += outstanding < bytes ? MAX (line_us, loop_us) : line_us;
    }
    ecfs_meter_end (&line->meter, (double) line->delay_us, line->now_us);
}

/* The time to the first byte is none of the rate, nor are pauses in which nothing is asked for. */
static void test_rate (void)
{
    g_autofree Line *line = line_new (10 * MB, 20 * MS);
    for (unsigned i = 0; i < 10; i++) {
        run (line, 4096 * KIB, 4096 * KIB);
        line->now_us += 7 * SECOND;
    }
    ASSERT_ABOUT (ecfs_meter_rate (&line->meter).p50, 10 * MB);
    ASSERT_ABOUT (ecfs_meter_rate (&line->meter).p5, 10 * MB);
    g_assert_true (line->meter.proven);
    g_assert_cmpuint (line->meter.total, ==, 40960 * KIB);
}

/* One who asks for little at a time measures himself. */
static void test_limited (void)
{
    g_autofree Line *line = line_new (50 * MB, 100 * MS);
    run (line, 8192 * KIB, 128 * KIB);
    g_assert_false (line->meter.proven);
    g_assert_cmpfloat (ecfs_meter_rate (&line->meter).p50, <, 2 * MB); /* nothing better is known */
    run (line, 32768 * KIB, 16384 * KIB);
    ASSERT_ABOUT (ecfs_meter_rate (&line->meter).p5, 50 * MB);
    for (unsigned i = 0; i < 20; i++)
        run (line, 8192 * KIB, 128 * KIB);
    ASSERT_ABOUT (ecfs_meter_rate (&line->meter).p5, 50 * MB);
    line->bytes_per_s = 10 * MB; /* a line that gets slower is seen all the same */
    for (unsigned i = 0; i < 10; i++)
        run (line, 32768 * KIB, 16384 * KIB);
    ASSERT_ABOUT (ecfs_meter_rate (&line->meter).p50, 10 * MB);
}

/* While the other direction moves bytes a slow window says nothing, and a fast one does. */
static void test_shared (void)
{
    g_autofree Line *line = line_new (40 * MB, 1 * MS);
    run (line, 65536 * KIB, 65536 * KIB);
    line->shared = true;
    line->bytes_per_s = 20 * MB;
    run (line, 65536 * KIB, 65536 * KIB);
    ASSERT_ABOUT (ecfs_meter_rate (&line->meter).p5, 40 * MB);
    line->bytes_per_s = 80 * MB;
    for (unsigned i = 0; i < 10; i++)
        run (line, 65536 * KIB, 65536 * KIB);
    ASSERT_ABOUT (ecfs_meter_rate (&line->meter).p95, 80 * MB);
}

/* What is given up in a stall ends the window where the last bytes came. */
static void test_stall (void)
{
    g_autofree Line *line = line_new (10 * MB, 1 * MS);
    ecfs_meter_begin (&line->meter, 0);
    for (unsigned i = 0; i < 16; i++)
        arrive (line, 64 * KIB, 1024 * KIB, line->now_us + 6554);
    ecfs_meter_dry (&line->meter, 1000);
    ecfs_meter_end (&line->meter, 1000, line->now_us + 10 * SECOND);
    ASSERT_ABOUT (ecfs_meter_rate (&line->meter).p5, 10 * MB);
}

/* A small answer gives a first figure, and bytes that were here already give none that is better. */
static void test_first_figure (void)
{
    g_autofree Line *line = line_new (10 * MB, 1 * MS);
    ecfs_meter_begin (&line->meter, 0);
    arrive (line, 100 * KIB, 0, 20 * MS);
    g_assert_cmpfloat (ecfs_meter_rate (&line->meter).p50, ==, 0);
    ecfs_meter_end (&line->meter, 1000, 20 * MS);
    ASSERT_ABOUT (ecfs_meter_rate (&line->meter).p50, 100 * KIB / 0.020);
    ecfs_meter_begin (&line->meter, 0);
    for (unsigned i = 0; i < 4; i++)
        arrive (line, 64 * KIB, (3 - i) * 64 * KIB, line->now_us + 100);
    ecfs_meter_end (&line->meter, 1000, line->now_us);
    g_assert_false (line->meter.proven);
    ASSERT_ABOUT (ecfs_meter_rate (&line->meter).p50, 100 * KIB / 0.020);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/distribution/knows-its-quantiles", test_quantiles);
    g_test_add_func ("/distribution/takes-any-value", test_extremes);
    g_test_add_func ("/distribution/is-not-moved-by-one-outlier", test_outlier);
    g_test_add_func ("/distribution/forgets-with-time", test_fades);
    g_test_add_func ("/distribution/begins-with-what-was-known", test_prior);
    g_test_add_func ("/distribution/ignores-an-impossible-prior", test_hostile_prior);
    g_test_add_func ("/meter/knows-the-line", test_rate);
    g_test_add_func ("/meter/knows-when-too-little-is-asked-for", test_limited);
    g_test_add_func ("/meter/knows-when-the-line-is-shared", test_shared);
    g_test_add_func ("/meter/counts-no-stall", test_stall);
    g_test_add_func ("/meter/has-a-first-figure", test_first_figure);
    return g_test_run ();
}
