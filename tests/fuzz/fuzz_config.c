/* ecfs.conf: any text is refused with EINVAL or read, and what is read is formatted to something that reads the same.
 */
#include "archive/config.h"

#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    g_autofree char *text = g_strndup ((const char *) bytes, size);
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsConfig) config = ecfs_config_parse (text, "f", &error);
    if (config == NULL) {
        g_assert_error (error, ECFS_ERROR, EINVAL);
        return 0;
    }
    g_autofree char *first = ecfs_config_format (config);
    g_autoptr (EcfsConfig) again = ecfs_config_parse (first, "f", &error);
    g_assert_no_error (error);
    g_autofree char *second = ecfs_config_format (again);
    g_assert_cmpstr (first, ==, second);
    return 0;
}
