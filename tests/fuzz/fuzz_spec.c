/* "[NAME=]URL[,KEY=VALUE...]" as on the command line: refused with EINVAL, or a section that ecfs.conf can hold. */
#include "archive/config.h"

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

/* Whatever of it is decoded by whom. */
static void assert_no_orders (const char *url)
{
    for (; *url != '\0'; url++) {
        char byte = *url;
        if (byte == '%' && g_ascii_isxdigit (url[1]) && g_ascii_isxdigit (url[2]))
            byte = (char) (g_ascii_xdigit_value (url[1]) * 16 + g_ascii_xdigit_value (url[2]));
        g_assert_false (g_ascii_iscntrl (byte));
    }
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    g_autofree char *text = g_strndup ((const char *) bytes, size);
    g_autoptr (GError) error = NULL;
    EcfsEndpointSpec *spec = ecfs_endpoint_spec_parse (text, &error);
    g_autoptr (EcfsConfigEndpoint) endpoint = spec == NULL ? NULL : ecfs_config_endpoint_new (spec, &error);
    if (endpoint == NULL) {
        g_assert_error (error, ECFS_ERROR, EINVAL);
        return 0;
    }
    assert_no_orders (endpoint->spec->url);
    g_autofree char *section = ecfs_config_format_endpoint (endpoint);
    g_autoptr (EcfsConfig) config = ecfs_config_parse (section, "f", &error);
    g_assert_no_error (error);
    g_assert_cmpuint (config->endpoints->len, ==, 1);
    return 0;
}
