/* Failure and repair over years: against closed forms where there are such, and scenarios that are none. */
#include "sim/scenario.h"

#include <math.h>

#define N_ENDPOINTS 400

static EcfsLifetime live (EcfsLifetimeModel model)
{
    g_autoptr (GError) error = NULL;
    EcfsLifetimeEndpoint endpoints[N_ENDPOINTS];
    EcfsLifetime lifetime;
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        endpoints[i] =
            (EcfsLifetimeEndpoint){.mttf_years = 4, .zone = model.n_zones > 0 ? i % (unsigned) model.n_zones : i};
    model.endpoints = endpoints;
    model.n_endpoints = N_ENDPOINTS;
    model.object_bytes = 1e6;
    model.n_objects = 20000;
    (void) ecfs_lifetime_run (&model, &lifetime, &error);
    g_assert_no_error (error);
    return lifetime;
}

/* Nobody notices: each stripe is lost with 1 - exp (-years / mttf), and an object when more than m are. */
static void test_without_repair (void)
{
    const double p = 1 - exp (-2.0 / 4);
    EcfsLifetimeModel model = {.code = "copies:2", .seed = 1, .years = 2, .repair_bytes_per_s = 1, .detect_hours = 1e6};
    EcfsLifetime copies = live (model);
    g_test_message ("copies:2 %g of %g", (double) copies.n_lost, 20000 * p * p);
    g_assert_cmpfloat (fabs ((double) copies.n_lost / 20000 - p * p), <, 0.25 * p * p);
    g_assert_cmpuint (copies.n_repairs, ==, 0);
    model.code = "rs:4+2";
    double expected = 0, choose[] = {1, 6, 15, 20, 15, 6, 1};
    for (unsigned i = 3; i <= 6; i++)
        expected += choose[i] * pow (p, i) * pow (1 - p, 6 - i);
    EcfsLifetime rs = live (model);
    g_test_message ("rs:4+2 %g of %g", (double) rs.n_lost, 20000 * expected);
    g_assert_cmpfloat (fabs ((double) rs.n_lost / 20000 - expected), <, 0.25 * expected);
}

static void test_with_repair (void)
{
    EcfsLifetimeModel model = {.code = "rs:4+2", .seed = 1, .years = 2, .repair_bytes_per_s = 1e9, .detect_hours = 1};
    EcfsLifetime done = live (model);
    g_assert_cmpuint (done.n_lost, ==, 0);
    g_assert_cmpuint (done.n_repairs, >, 0);
    g_assert_cmpuint (done.n_deaths, >, N_ENDPOINTS / 4);
    /* Objects that lack one stripe read four for it; hardly any lacks two. */
    g_assert_cmpfloat (done.repair_bytes / (double) done.n_repairs, ==, 1e6);
    EcfsLifetime again = live (model);
    g_assert_cmpuint (again.n_deaths, ==, done.n_deaths);
    g_assert_cmpuint (again.n_repairs, ==, done.n_repairs);
    g_assert_cmpfloat (again.repair_bytes, ==, done.repair_bytes);
    g_assert_cmpfloat (again.longest_repair_days, ==, done.longest_repair_days);
    model.seed = 2;
    g_assert_cmpfloat (live (model).longest_repair_days, !=, done.longest_repair_days);
}

/* A whole zone at once costs an object one stripe, as its stripes are in as many zones. */
static void test_zones (void)
{
    EcfsLifetimeModel model = {.code = "rs:4+2",
                               .seed = 1,
                               .years = 3,
                               .repair_bytes_per_s = 1e9,
                               .detect_hours = 1,
                               .disaster_every_years = 20,
                               .disaster_share = 1,
                               .n_zones = 20};
    EcfsLifetime done = live (model);
    g_assert_cmpuint (done.n_disasters, >, 0);
    g_assert_cmpuint (done.n_lost, ==, 0);
    g_assert_cmpint (done.least_guarantee, <, 2);
}

static void expect_none (const char *text)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsScenario) scenario = ecfs_scenario_parse (text, "test", &error);
    g_assert_null (scenario);
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_assert_true (g_str_has_prefix (error->message, "test: "));
}

static void test_hostile_scenarios (void)
{
    static const char *const texts[] = {
        "",
        "\n\n",
        "a=b",
        "[",
        "[servers a",
        "[servers a]\ncount=0",
        "[servers a]\ncount=1e9",
        "[servers a]\ncount=inf",
        "[servers a]\nbandwidth=-1",
        "[servers a]\nbandwidth=99999999999999999999999G",
        "[servers a]\nlatency_ms=nan",
        "[servers a]\n[objects]\npacket=0",
        "[servers a]\n[objects]\ncount=99999999\nsize=1T\npacket=512",
        "[servers a]\n[compare]\ncodes=;;",
        "[servers a]\n[compare]\nrepair_bandwidths=0",
        "[servers a]\n[compare]\nunknown=1",
        "[serversa]\n",
        "\377\376",
    };
    for (size_t i = 0; i < G_N_ELEMENTS (texts); i++)
        expect_none (texts[i]);
    ecfs_scenario_free (NULL);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/lifetime/without-repair-losses-follow-the-closed-form", test_without_repair);
    g_test_add_func ("/lifetime/repair-keeps-objects-and-reads-what-plans-say", test_with_repair);
    g_test_add_func ("/lifetime/a-zone-costs-a-stripe", test_zones);
    g_test_add_func ("/lifetime/hostile-scenarios-are-refused", test_hostile_scenarios);
    return g_test_run ();
}
