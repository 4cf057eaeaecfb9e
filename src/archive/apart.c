/* That what is at endpoints and what is not to be there lie apart. */
#include "archive/common.h"

#include <stdlib.h>
#include <string.h>

/* Without links, as far as it is there; g_free (). */
static char *real_path (const char *path)
{
    g_autofree char *there = g_canonicalize_filename (path, NULL);
    g_autofree char *rest = g_strdup ("");
    for (;;) {
        char *real = realpath (there, NULL);
        if (real != NULL || strcmp (there, "/") == 0) {
            char *whole = g_strconcat (real == NULL || strcmp (real, "/") == 0 ? "" : real, rest, NULL);
            free (real);
            return whole;
        }
        g_autofree char *name = g_path_get_basename (there);
        g_autofree char *longer = g_strconcat ("/", name, rest, NULL);
        char *parent = g_path_get_dirname (there);
        g_free (there);
        there = parent;
        g_free (rest);
        rest = g_steal_pointer (&longer);
    }
}

static bool is_within (const char *path, const char *directory)
{
    size_t length = strlen (directory);
    return strncmp (path, directory, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

bool ecfs_archive_check_apart (const char *directory, const EcfsConfigEndpoint *endpoint, GError **error)
{
    g_autofree char *path = g_filename_from_uri (endpoint->spec->url, NULL, NULL);
    if (path == NULL) /* it is elsewhere */
        return true;
    g_autofree char *root = real_path (path);
    g_autofree char *own = real_path (directory);
    if (is_within (own, root) || is_within (root, own))
        return ecfs_fail (error, EINVAL,
                          "endpoint %s at %s and the archive directory %s are not apart: one is within the other, so "
                          "they would be lost together, and the endpoint would have the archive's key",
                          endpoint->spec->name, endpoint->spec->url, directory);
    return true;
}
