/* Prices: what they may be, and what they make of bytes and requests. */
#include "endpoint/tariff.h"

static void test_money (void)
{
    static const struct {
        const char *text;
        uint64_t millionths;
    } good[] = {{"0", 0},        {"1", 1000000},     {"0.023", 23000},
                {"0.000001", 1}, {"12.5", 12500000}, {"1000000", UINT64_C (1000000000000)},
                {"007", 7000000}};
    static const char *const bad[] = {"",
                                      "-1",
                                      ".5",
                                      "1.",
                                      "1,5",
                                      "0.0000001",
                                      "1000000.1",
                                      "1e3",
                                      " 1",
                                      "1 ",
                                      "$1",
                                      "0.1.2",
                                      "99999999999999999999999"};
    for (size_t i = 0; i < G_N_ELEMENTS (good); i++) {
        uint64_t found = 42;
        g_assert_true (ecfs_parse_money (good[i].text, &found));
        g_assert_cmpuint (found, ==, good[i].millionths);
    }
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++) {
        uint64_t found;
        g_test_message ("\"%s\"", bad[i]);
        g_assert_false (ecfs_parse_money (bad[i], &found));
    }
}

static void test_costs (void)
{
    const uint64_t dearest = UINT64_C (1000000000000);
    g_assert_cmpuint (ecfs_price_of_bytes (23000, 1000000000), ==, 23000);
    g_assert_cmpuint (ecfs_price_of_bytes (90000, 1500000000), ==, 135000);
    g_assert_cmpuint (ecfs_price_of_bytes (90000, 999), ==, 0);
    g_assert_cmpuint (ecfs_price_of_bytes (dearest, 999999999), ==, UINT64_C (999999000000));
    g_assert_cmpuint (ecfs_price_of_bytes (dearest, UINT64_MAX), ==, UINT64_MAX);
    g_assert_cmpuint (ecfs_price_of_requests (5000, 1000), ==, 5000);
    g_assert_cmpuint (ecfs_price_of_requests (5000, 1), ==, 5);
    g_assert_cmpuint (ecfs_price_of_requests (400, 2500), ==, 1000);
    g_assert_cmpuint (ecfs_price_of_requests (dearest, UINT64_MAX), ==, UINT64_MAX);
    g_assert_cmpuint (ecfs_add_up (UINT64_MAX, 1), ==, UINT64_MAX);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/tariff/money", test_money);
    g_test_add_func ("/tariff/costs", test_costs);
    return g_test_run ();
}
