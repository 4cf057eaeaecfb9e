/* A value of user.ecfs.places: refused with EINVAL, or a rule whose text is the same rule. */
#include "archive/places_rule.h"
#include "util/error.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsPlacesRule) rule = ecfs_places_rule_parse ((const char *) bytes, size, &error);
    if (rule == NULL) {
        g_assert_error (error, ECFS_ERROR, EINVAL);
        return 0;
    }
    g_autofree char *text = ecfs_places_rule_format (rule);
    g_autoptr (EcfsPlacesRule) again = ecfs_places_rule_parse (text, strlen (text), &error);
    g_assert_no_error (error);
    g_assert_cmpuint (again->words->len, ==, rule->words->len);
    for (guint i = 0; i < rule->words->len; i++) {
        const EcfsPlacesWord *word = &g_array_index (rule->words, EcfsPlacesWord, i);
        const EcfsPlacesWord *other = &g_array_index (again->words, EcfsPlacesWord, i);
        g_assert_true (word->verb == other->verb && word->is_zone == other->is_zone);
        g_assert_cmpstr (word->name, ==, other->name);
        g_assert_cmpint (ecfs_places_rule_mark (rule, word->name, word->name), ==,
                         ecfs_places_rule_mark (again, word->name, word->name));
    }
    return 0;
}
