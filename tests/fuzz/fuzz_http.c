/* What web servers say: multistatus documents in pieces of any size, names in them, Content-Range. */
#include "endpoint/http/http_protocol.h"
#include "endpoint/web/http_range.h"

#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

static void on_entry (void *user, const EcfsDavEntry *entry)
{
    (void) user;
    g_autofree char *child = ecfs_dav_child (entry->href, "/srv/a b");
    if (child == NULL)
        return;
    g_assert_true (*child != '\0' && strchr (child, '/') == NULL);
    g_assert_true (strcmp (child, ".") != 0 && strcmp (child, "..") != 0);
}

static void parse_document (const uint8_t *bytes, size_t size, size_t piece)
{
    EcfsDavParser *parser = ecfs_dav_parser_new (on_entry, NULL);
    g_autoptr (GError) error = NULL;
    bool good = true;
    for (size_t at = 0; good && at < size; at += piece)
        good = ecfs_dav_parser_feed (parser, bytes + at, MIN (piece, size - at), &error);
    good = good && ecfs_dav_parser_end (parser, &error);
    g_assert_true (good || ecfs_errno (error) == EPROTO);
    ecfs_dav_parser_free (parser);
}

static void parse_range (const char *text)
{
    EcfsHttpRange range;
    if (ecfs_http_parse_range (text, &range))
        g_assert_true (range.first <= range.last && range.last < range.total);
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    if (size == 0)
        return 0;
    g_autofree char *text = g_strndup ((const char *) bytes + 1, size - 1);
    parse_range (text);
    parse_document (bytes + 1, size - 1, bytes[0] + 1u);
    return 0;
}
