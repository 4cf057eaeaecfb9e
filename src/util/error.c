#include "util/error.h"

#include "ecfs/ecfs.h" /* which exports the domain */

#include <stdatomic.h>

/* G_DEFINE_QUARK () without its race: the first two errors may come from two threads. */
GQuark ecfs_error_quark (void)
{
    static _Atomic GQuark quark;
    GQuark known = atomic_load_explicit (&quark, memory_order_relaxed);
    if (known == 0) {
        known = g_quark_from_static_string ("ecfs-error-quark");
        atomic_store_explicit (&quark, known, memory_order_relaxed);
    }
    return known;
}

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
