#include "util/error.h"

G_DEFINE_QUARK (ecfs - error, ecfs_error)

bool ecfs_fail (GError **error, int code, const char *format, ...)
{
    va_list args;
    va_start (args, format);
    if (error != NULL) {
        g_return_val_if_fail (*error == NULL, false);
        *error = g_error_new_valist (ECFS_ERROR, code, format, args);
    }
    va_end (args);
    return false;
}

bool ecfs_fail_errno (GError **error, int code, const char *format, ...)
{
    va_list args;
    va_start (args, format);
    g_autofree char *text = g_strdup_vprintf (format, args);
    va_end (args);
    return ecfs_fail (error, code, "%s: %s", text, g_strerror (code));
}

bool ecfs_prefix (GError **error, const char *format, ...)
{
    if (error == NULL || *error == NULL)
        return false;
    va_list args;
    va_start (args, format);
    g_autofree char *text = g_strdup_vprintf (format, args);
    va_end (args);
    g_prefix_error (error, "%s: ", text);
    return false;
}

int ecfs_errno (const GError *error)
{
    if (error == NULL)
        return 0;
    return error->domain == ECFS_ERROR && error->code > 0 ? error->code : EIO;
}
