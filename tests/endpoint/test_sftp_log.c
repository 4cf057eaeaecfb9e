/* Logs at modelled servers, which do at random whatever servers may do. GLib prints the seed; give it with --seed. */
#include "program/program.h"
#include "sftp_model.h"

#include <glib.h>
#include <string.h>

#define N_RUNS      3000
#define SCRIPT_SIZE 400

static void test_honest (void)
{
    for (unsigned mode = 0; mode < 8; mode++) {
        uint8_t script[SCRIPT_SIZE] = {(uint8_t) mode};
        for (size_t i = 1; i < sizeof script; i++)
            script[i] = (uint8_t) (i * 37 % 30); /* nothing fails, and there are no cancels */
        SftpModelResult result = sftp_model_run (script, sizeof script);
        g_assert_cmpint (result.codes[0], ==, 0);
        g_assert_cmpint (result.codes[1], ==, 0);
        g_assert_cmpuint (result.n_connections, ==, 1);
    }
}

static void test_any (void)
{
    uint64_t durable = 0;
    unsigned n_whole = 0;
    for (unsigned i = 0; i < N_RUNS; i++) {
        uint8_t script[SCRIPT_SIZE];
        size_t size = (size_t) g_test_rand_int_range (0, SCRIPT_SIZE);
        bool mild = i % 4 != 0; /* most go on for a while before anything fails */
        for (size_t at = 0; at < size; at++)
            script[at] = (uint8_t) g_test_rand_int_range (0, mild && g_test_rand_int () % 40 != 0 ? 190 : 256);
        SftpModelResult result = sftp_model_run (script, size);
        n_whole += (result.codes[0] == 0) + (result.codes[1] == 0);
        durable += result.durable[0] + result.durable[1];
    }
    g_test_message ("%u of %u logs were whole, %" G_GUINT64_FORMAT " bytes", n_whole, 2 * N_RUNS, durable);
    g_assert_cmpuint (n_whole, >, N_RUNS / 10);
    g_assert_cmpuint (durable, >, 1000 * N_RUNS);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_test_add_func ("/sftp-log/is-whole-at-servers-of-every-kind", test_honest);
    g_test_add_func ("/sftp-log/never-says-durable-what-is-not", test_any);
    return g_test_run ();
}
