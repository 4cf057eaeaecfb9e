/* Ranges and names of HTTP; http_propfind.c has the documents. */
#include "endpoint/http/http_protocol.h"

#include <string.h>

static bool parse_number (const char **text, uint64_t *ret_number)
{
    char *end;
    if (!g_ascii_isdigit (**text))
        return false;
    errno = 0;
    *ret_number = g_ascii_strtoull (*text, &end, 10);
    *text = end;
    return errno == 0;
}

bool ecfs_http_parse_range (const char *text, EcfsHttpRange *ret_range)
{
    EcfsHttpRange range = {.total = UINT64_MAX};
    text += strspn (text, " \t");
    if (g_ascii_strncasecmp (text, "bytes", 5) != 0 || (text[5] != ' ' && text[5] != '\t'))
        return false;
    text += 5 + strspn (text + 5, " \t");
    if (!parse_number (&text, &range.first) || *text++ != '-' || !parse_number (&text, &range.last) || *text++ != '/')
        return false;
    if (*text == '*')
        text++;
    else if (!parse_number (&text, &range.total))
        return false;
    text += strspn (text, " \t\r\n");
    if (*text != '\0' || range.first > range.last || range.last >= range.total)
        return false;
    *ret_range = range;
    return true;
}

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
