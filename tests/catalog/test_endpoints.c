/* How endpoints were the last time. */
#include "check_db.h"
#include "fixture.h"

static void assert_estimate (Fixture *f, const EcfsEstimateRow *expected)
{
    EcfsEstimateRow row;
    OK (e, ecfs_catalog_estimate (f->catalog, expected->endpoint, &row, &e));
    g_assert_cmpmem (&row, sizeof row, expected, sizeof *expected);
}

static void test_kept (void)
{
    Fixture f;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    EcfsEstimateRow row = {.endpoint = f.endpoints[1],
                           .latency_us = {100, 200, 30000},
                           .read_bytes_per_s = {1000000, 2000000, INT64_MAX},
                           .write_bytes_per_s = {0, 0, 0}};
    assert_estimate (&f, &(EcfsEstimateRow){.endpoint = f.endpoints[1]});
    uint64_t sequence = ecfs_catalog_sequence (f.catalog);
    OK (e, ecfs_catalog_estimate_set (f.catalog, &row, &e));
    assert_estimate (&f, &row);
    row.write_bytes_per_s[1] = 77;
    OK (e, ecfs_catalog_estimate_set (f.catalog, &row, &e));
    fixture_reopen (&f);
    assert_estimate (&f, &row);
    assert_estimate (&f, &(EcfsEstimateRow){.endpoint = f.endpoints[0]});
    g_assert_cmpuint (ecfs_catalog_sequence (f.catalog), ==, sequence); /* nothing that a journal would have */
    check_integrity (f.path);
    fixture_clear (&f);
}

/* A row that no ecfs wrote keeps no catalog from being opened. */
static void test_hostile (void)
{
    Fixture f;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    fixture_close (&f);
    g_autofree char *sql = g_strdup_printf ("INSERT INTO estimates VALUES (%" PRId64
                                            ", -1, 5, -9223372036854775808, 9223372036854775807, 1, 0, 7, 8, -9)",
                                            f.endpoints[0]);
    run_sql (f.path, sql);
    fixture_open (&f, 0);
    assert_estimate (&f, &(EcfsEstimateRow){.endpoint = f.endpoints[0],
                                            .latency_us = {0, 5, 0},
                                            .read_bytes_per_s = {INT64_MAX, 1, 0},
                                            .write_bytes_per_s = {7, 8, 0}});
    fixture_clear (&f);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/estimates/are-kept", test_kept);
    g_test_add_func ("/estimates/may-be-impossible", test_hostile);
    return g_test_run ();
}
