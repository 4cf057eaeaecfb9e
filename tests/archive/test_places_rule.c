/* Rules for places: what is parsed, and what they say of endpoints. */
#include "archive/places_rule.h"
#include "util/error.h"

#include <string.h>

static EcfsPlacesRule *parse (const char *text)
{
    g_autoptr (GError) error = NULL;
    EcfsPlacesRule *rule = ecfs_places_rule_parse (text, strlen (text), &error);
    g_assert_no_error (error);
    return rule;
}

static void says (const char *text, const char *expected)
{
    static const struct {
        const char *name, *zone;
    } endpoints[] = {{"a", "de"}, {"b", "de"}, {"c", "us"}, {"de", "fr"}};
    char marks[G_N_ELEMENTS (endpoints) + 1] = {0};
    g_autoptr (EcfsPlacesRule) rule = parse (text);
    for (size_t i = 0; i < G_N_ELEMENTS (endpoints); i++)
        marks[i] = (char) ecfs_places_rule_mark (rule, endpoints[i].name, endpoints[i].zone);
    g_assert_cmpstr (marks, ==, expected);
}

static void test_says_what_is_allowed (void)
{
    says ("none", "....");
    says ("only:zone=de", "..--");
    says ("only:de", "---.");
    says ("only:zone=de only:c", "...-");
    says ("never:c", "..-.");
    says ("never:zone=us never:a", "-.-.");
    says ("only:zone=de never:a", "-.--");
    says ("prefer:zone=de", "++..");
    says ("prefer:zone=de never:b prefer:c", "+-+.");
    says ("only:zone=us prefer:a", "--.-");
    says ("only:nobody", "----");
}

static void test_formats_what_it_parses (void)
{
    static const char *const texts[][2] = {
        {"none", "none"},
        {"  none\n", "none"},
        {"only:a", "only:a"},
        {" only:zone=de\tnever:a.b-c_d \n prefer:x ", "only:zone=de never:a.b-c_d prefer:x"}};
    for (size_t i = 0; i < G_N_ELEMENTS (texts); i++) {
        g_autoptr (EcfsPlacesRule) rule = parse (texts[i][0]);
        g_autofree char *text = ecfs_places_rule_format (rule);
        g_assert_cmpstr (text, ==, texts[i][1]);
    }
}

static void test_refuses_what_says_nothing (void)
{
    g_autofree char *large = g_strnfill (ECFS_PLACES_MAX_BYTES + 1, ' ');
    const char *const texts[] = {"",          "   ",     "de",      "only:",          "only:zone=",  "zone=de",
                                 "only:a,b",  "ONLY:a",  "never",   "none only:a",    "only:a none", "prefer:zone=a=b",
                                 "only:\xff", "only:a/", "only: a", "forbid:zone=de", large};
    for (size_t i = 0; i < G_N_ELEMENTS (texts); i++) {
        g_autoptr (GError) error = NULL;
        g_assert_null (ecfs_places_rule_parse (texts[i], strlen (texts[i]), &error));
        g_assert_error (error, ECFS_ERROR, EINVAL);
    }
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_places_rule_parse ("only:a\0b", 8, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    ecfs_places_rule_free (NULL);
}

static void replaced (const char *text, const char *expected)
{
    const char *const by[] = {"x", "y", NULL};
    g_autoptr (EcfsPlacesRule) rule = parse (text);
    g_autoptr (EcfsPlacesRule) then = ecfs_places_rule_replace (rule, "a", by);
    g_autofree char *found = then == NULL ? NULL : ecfs_places_rule_format (then);
    g_assert_cmpstr (found, ==, expected);
}

static void test_replaces_an_endpoint_by_others (void)
{
    replaced ("only:a only:b", "only:x only:y only:b");
    replaced ("never:a prefer:a prefer:x", "never:x never:y prefer:x prefer:y");
    replaced ("only:zone=a", NULL);
    replaced ("only:ab", NULL);
    replaced ("none", NULL);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/places-rule/says-what-is-allowed", test_says_what_is_allowed);
    g_test_add_func ("/places-rule/formats-what-it-parses", test_formats_what_it_parses);
    g_test_add_func ("/places-rule/refuses-what-says-nothing", test_refuses_what_says_nothing);
    g_test_add_func ("/places-rule/replaces-an-endpoint-by-others", test_replaces_an_endpoint_by_others);
    return g_test_run ();
}
