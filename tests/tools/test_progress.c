/* Rates, time left and the line of progress, from samples that are made up. */
#include "progress.h"

#include <glib.h>
#include <string.h>

#define MIB (1u << 20)

/* One per second, of so many MiB each. */
static ToolProgress sampled (unsigned n, const unsigned *mib, uint64_t all)
{
    ToolProgress self = {.last = {.things = "files", .n_done = 3, .n_all = 10, .bytes_all = all}, .n_samples = n};
    for (unsigned i = 0; i < n; i++)
        self.samples[i] = (ToolSample){.time_us = (int64_t) i * G_USEC_PER_SEC, .done = (double) mib[i] * MIB};
    self.newest = n - 1;
    self.last.bytes_done = (uint64_t) mib[n - 1] * MIB;
    return self;
}

static void rate_is_that_of_the_samples (void)
{
    const unsigned mib[] = {100, 100, 102, 108};
    ToolProgress self = sampled (4, mib, 200 * MIB);
    g_assert_cmpfloat_with_epsilon (tool_progress_rate (&self), 8.0 * MIB / 3, 1);
    g_assert_cmpfloat_with_epsilon (tool_progress_left (&self), 92 / (8.0 / 3), 0.001);
}

static void time_left_is_not_told_before_it_means_something (void)
{
    const unsigned steady[] = {0, 10, 20}, stalled[] = {10, 10, 10, 10, 10};
    ToolProgress early = sampled (3, steady, 100 * MIB), stuck = sampled (5, stalled, 100 * MIB);
    g_assert_cmpfloat (tool_progress_left (&early), <, 0);
    g_assert_cmpfloat (tool_progress_left (&stuck), <, 0);
    const unsigned one[] = {10};
    ToolProgress single = sampled (1, one, 100 * MIB);
    g_assert_cmpfloat (tool_progress_left (&single), <, 0);
    g_assert_cmpfloat (tool_progress_rate (&single), ==, 0);
}

static void what_grows_has_no_end (void)
{
    const unsigned mib[] = {0, 1, 2, 3, 4};
    ToolProgress self = sampled (5, mib, 0);
    for (unsigned i = 0; i < 5; i++)
        self.samples[i].done = i;
    g_assert_cmpfloat_with_epsilon (tool_progress_left (&self), 7, 0.001); /* by things, of which 3 of 10 are done */
    self.last.grows = true;
    g_assert_cmpfloat (tool_progress_left (&self), <, 0);
}

static void line_fits_every_width (void)
{
    const unsigned mib[] = {10, 20, 30, 40, 50};
    ToolProgress self = sampled (5, mib, 100 * MIB);
    self.last.wire_bytes = 70 * MIB;
    g_autofree char *whole = tool_progress_text (&self, 200);
    g_assert_cmpstr (whole, ==, "3 of 10 files, 50 MiB of 100 MiB, 10 MiB/s, 5 s left, 70 MiB on the wire");
    for (unsigned columns = 0; columns < 100; columns++) {
        g_autofree char *text = tool_progress_text (&self, columns);
        g_assert_cmpuint (strlen (text), <=, columns);
    }
    g_autofree char *narrow = tool_progress_text (&self, 36);
    g_assert_cmpstr (narrow, ==, "3 of 10 files, 10 MiB/s, 5 s left");
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/progress/rate-is-that-of-the-samples", rate_is_that_of_the_samples);
    g_test_add_func ("/progress/time-left-is-not-told-before-it-means-something",
                     time_left_is_not_told_before_it_means_something);
    g_test_add_func ("/progress/what-grows-has-no-end", what_grows_has_no_end);
    g_test_add_func ("/progress/line-fits-every-width", line_fits_every_width);
    return g_test_run ();
}
