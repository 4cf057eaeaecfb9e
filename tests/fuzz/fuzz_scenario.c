/* A scenario: any text is refused with EINVAL, or is one that can be run. */
#include "sim/scenario.h"

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    g_autofree char *text = g_strndup ((const char *) bytes, size);
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsScenario) scenario = ecfs_scenario_parse (text, "f", &error);
    if (scenario == NULL) {
        g_assert_error (error, ECFS_ERROR, EINVAL);
        return 0;
    }
    g_assert_cmpuint (scenario->servers->len, >, 0);
    g_assert_nonnull (scenario->codes[0]);
    return 0;
}
