/* Names of WebDAV; http_propfind.c has the documents. */
#include "endpoint/http/http_protocol.h"

#include <string.h>

/* The decoded path of @href, g_free (), or NULL. */
static char *path_of (const char *href)
{
    const char *scheme_end = strstr (href, "://");
    const char *path = href;
    if (*href != '/' && (scheme_end == NULL || (path = strchr (scheme_end + 3, '/')) == NULL))
        return NULL;
    return g_uri_unescape_string (path, NULL);
}

bool ecfs_dav_is_itself (const char *href, const char *directory)
{
    g_autofree char *decoded = path_of (href);
    size_t size = strlen (directory);
    return decoded != NULL && strncmp (decoded, directory, size) == 0 &&
           (decoded[size] == '\0' || strcmp (decoded + size, "/") == 0);
}

char *ecfs_dav_child (const char *href, const char *directory)
{
    g_autofree char *decoded = path_of (href);
    size_t size = strlen (directory);
    if (decoded == NULL || strncmp (decoded, directory, size) != 0 || decoded[size] != '/')
        return NULL;
    g_autofree char *child = g_strdup (decoded + size + 1);
    size_t length = strlen (child);
    if (length > 0 && child[length - 1] == '/')
        child[--length] = '\0';
    if (length == 0 || strchr (child, '/') != NULL || strcmp (child, ".") == 0 || strcmp (child, "..") == 0)
        return NULL;
    return g_steal_pointer (&child);
}
