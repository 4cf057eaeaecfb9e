#include "archive/key_count.h"

#include "key/shamir.h"

#define COUNT(threshold, n_zones, ...)                                                                                 \
    count_of ((const EcfsZoneShare[]){__VA_ARGS__},                                                                    \
              sizeof ((const EcfsZoneShare[]){__VA_ARGS__}) / sizeof (EcfsZoneShare), threshold, n_zones)

static EcfsKeyCount count_of (const EcfsZoneShare *shares, size_t n, unsigned threshold, unsigned n_zones)
{
    EcfsKeyCount count;
    const EcfsKeyLosses losses = {.zones = n_zones};
    ecfs_key_count (shares, n, threshold, &losses, &count);
    g_assert_cmpuint (count.left_by_endpoints, ==, count.n_shares);
    g_assert_cmpuint (ecfs_key_count_left (&count), ==, count.left_by_zones);
    return count;
}

static void assert_count (EcfsKeyCount count, unsigned n_zones, unsigned n_shares, unsigned n_left, unsigned n_readers)
{
    g_assert_cmpuint (count.n_zones, ==, n_zones);
    g_assert_cmpuint (count.n_shares, ==, n_shares);
    g_assert_cmpuint (count.left_by_zones, ==, n_left);
    g_assert_cmpuint (count.n_readers, ==, n_readers);
}

static void test_a_share_each (void)
{
    assert_count (COUNT (3, 2, {"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}, {"e", 5}), 5, 5, 3, 3);
    assert_count (COUNT (3, 2, {"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}), 4, 4, 2, 3);
    assert_count (COUNT (3, 2, {"a", 1}, {"b", 2}), 2, 2, 0, 0);
    assert_count (COUNT (1, 0, {"a", ECFS_SHARES_MAX}), 1, 1, 1, 1);
}

static void test_several_endpoints_of_a_zone_count_once (void)
{
    assert_count (COUNT (2, 1, {"a", 1}, {"a", 1}, {"a", 1}, {"b", 2}), 2, 2, 1, 2);
}

static void test_merged_zones_lose_all_at_once_and_read_sooner (void)
{
    assert_count (COUNT (3, 2, {"ab", 1}, {"ab", 2}, {"c", 3}, {"d", 4}, {"e", 5}), 4, 5, 2, 2);
    assert_count (COUNT (3, 1, {"all", 1}, {"all", 2}, {"all", 3}), 1, 3, 0, 1);
}

static void test_split_zones_count_once (void)
{
    assert_count (COUNT (2, 1, {"a", 1}, {"b", 1}, {"c", 2}), 2, 2, 1, 2);
    /* What hangs together by a zone may be lost by that alone. */
    assert_count (COUNT (2, 1, {"a", 1}, {"b", 1}, {"b", 7}, {"c", 2}), 2, 3, 1, 1);
}

/* Three zones of two endpoints: what any one zone takes, and what two endpoints in different zones do. */
static void test_shares_that_one_endpoint_has_left_go_with_it (void)
{
    EcfsKeyCount count;
    const EcfsKeyLosses losses = {.zones = 1, .endpoints = 2};
    const EcfsZoneShare whole[] = {{"a", 1}, {"a", 1}, {"b", 2}, {"b", 2}, {"c", 3}, {"c", 3}};
    const EcfsZoneShare part[] = {{"a", 1}, {"b", 2}, {"c", 3}, {"c", 3}};
    ecfs_key_count (whole, G_N_ELEMENTS (whole), 2, &losses, &count);
    g_assert_cmpuint (count.left_by_zones, ==, 2);
    g_assert_cmpuint (count.left_by_endpoints, ==, 2);
    ecfs_key_count (part, G_N_ELEMENTS (part), 2, &losses, &count);
    g_assert_cmpuint (count.left_by_zones, ==, 2);
    g_assert_cmpuint (count.left_by_endpoints, ==, 1);
    g_assert_cmpuint (ecfs_key_count_left (&count), ==, 1);
    g_autofree char *loss = ecfs_key_describe_loss (&count, 2, &losses);
    g_assert_cmpstr (loss, ==, "2 endpoints");
    ecfs_key_count (part, 2, 2, &losses, &count);
    g_autofree char *zone = ecfs_key_describe_loss (&count, 2, &losses);
    g_assert_cmpstr (zone, ==, "1 zone");
}

static void test_none_at_all (void)
{
    EcfsKeyCount count;
    ecfs_key_count (NULL, 0, 3, &(EcfsKeyLosses){.zones = 2, .endpoints = 2}, &count);
    assert_count (count, 0, 0, 0, 0);
    g_assert_cmpuint (count.left_by_endpoints, ==, 0);
    g_autoptr (GPtrArray) merged = ecfs_key_merged_zones (NULL, 0);
    g_assert_cmpuint (merged->len, ==, 0);
}

static void test_merged_zones_are_named (void)
{
    const EcfsZoneShare shares[] = {{"a", 1}, {"b", 2}, {"b", 2}, {"c", 3}, {"a", 4}, {"d", 3}};
    g_autoptr (GPtrArray) merged = ecfs_key_merged_zones (shares, G_N_ELEMENTS (shares));
    g_assert_cmpuint (merged->len, ==, 1);
    g_assert_cmpstr (g_ptr_array_index (merged, 0), ==, "a");
}

static void test_zones_with_one_share_are_named (void)
{
    const EcfsZoneShare shares[] = {{"a", 1}, {"b", 2}, {"b", 2}, {"c", 3}, {"a", 4}, {"d", 3}};
    g_autoptr (GPtrArray) twins = ecfs_key_twin_zones (shares, G_N_ELEMENTS (shares));
    g_assert_cmpuint (twins->len, ==, 2);
    g_assert_cmpstr (g_ptr_array_index (twins, 0), ==, "c");
    g_assert_cmpstr (g_ptr_array_index (twins, 1), ==, "d");
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/key_count/zones-with-a-share-each", test_a_share_each);
    g_test_add_func ("/key_count/several-endpoints-of-a-zone-count-once", test_several_endpoints_of_a_zone_count_once);
    g_test_add_func ("/key_count/merged-zones-lose-all-at-once-and-read-sooner",
                     test_merged_zones_lose_all_at_once_and_read_sooner);
    g_test_add_func ("/key_count/split-zones-count-once", test_split_zones_count_once);
    g_test_add_func ("/key_count/shares-that-one-endpoint-has-left-go-with-it",
                     test_shares_that_one_endpoint_has_left_go_with_it);
    g_test_add_func ("/key_count/none-at-all", test_none_at_all);
    g_test_add_func ("/key_count/merged-zones-are-named", test_merged_zones_are_named);
    g_test_add_func ("/key_count/zones-with-one-share-are-named", test_zones_with_one_share_are_named);
    return g_test_run ();
}
