/* Multistatus documents and ranges, good and hostile. */
#include "endpoint/http/http_priv.h"
#include "endpoint/http/http_protocol.h"
#include "endpoint/web/http_range.h"

#include <string.h>

#define HEAD "<?xml version=\"1.0\"?><a:multistatus xmlns:a=\"DAV:\" xmlns:x=\"urn:x\">"
#define TAIL "</a:multistatus>"
#define FINE "<a:status>HTTP/1.1 200 OK</a:status></a:propstat>"

static void on_entry (void *user, const EcfsDavEntry *entry)
{
    g_string_append_printf (user, "%s%s %d %" G_GUINT64_FORMAT " %" G_GINT64_FORMAT " %d\n", entry->href,
                            entry->is_collection ? " dir" : "", entry->has_size, entry->size, entry->mtime_s,
                            entry->has_available);
}

/* What it says, in pieces of @piece bytes; NULL: refused. g_free (). */
static char *parse (const char *document, size_t size, size_t piece)
{
    GString *told = g_string_new (NULL);
    EcfsDavParser *parser = ecfs_dav_parser_new (on_entry, told);
    g_autoptr (GError) error = NULL;
    bool good = true;
    for (size_t at = 0; good && at < size; at += piece)
        good = ecfs_dav_parser_feed (parser, document + at, MIN (piece, size - at), &error);
    good = good && ecfs_dav_parser_end (parser, &error);
    ecfs_dav_parser_free (parser);
    g_assert_cmpint (ecfs_errno (error), ==, good ? 0 : EPROTO);
    return g_string_free (told, !good);
}

static void test_entries (void)
{
    static const char document[] =
        HEAD "<a:response><a:href> /r/ </a:href><a:propstat><a:prop><a:resourcetype><a:collection/></a:resourcetype>"
             "<a:quota-available-bytes>99</a:quota-available-bytes></a:prop>" FINE "</a:response>"
             "<a:response><a:href>/r/x%26y</a:href><a:propstat><a:prop><a:getcontentlength>12</a:getcontentlength>"
             "<x:getcontentlength>13</x:getcontentlength><a:getlastmodified>Thu, 01 Jan 1970 00:00:07 GMT"
             "</a:getlastmodified></a:prop>" FINE "<a:propstat><a:prop><a:resourcetype><a:collection/></a:resourcetype>"
             "<a:getcontentlength>14</a:getcontentlength></a:prop><a:status>HTTP/1.1 404 Not Found</a:status>"
             "</a:propstat></a:response>"
             "<a:response><a:href>/r/&amp;</a:href><a:propstat><a:prop><a:getcontentlength>-1</a:getcontentlength>"
             "</a:prop>" FINE "</a:response>"
             "<a:response><a:href>/r/gone</a:href><a:status>HTTP/1.1 404 Not Found</a:status></a:response>"
             "<a:response><a:propstat><a:prop/>" FINE "</a:response>" TAIL;
    for (size_t piece = 1; piece < sizeof document; piece += 7) {
        g_autofree char *told = parse (document, sizeof document - 1, piece);
        g_assert_cmpstr (told, ==, "/r/ dir 0 0 0 1\n/r/x%26y 1 12 7 0\n/r/& 0 0 0 0\n");
    }
}

static void test_hostile (void)
{
    g_autofree char *deep = g_strnfill (40 * 3, 'x');
    for (size_t i = 0; i < 40; i++)
        memcpy (deep + 3 * i, "<x>", 3);
    g_autofree char *nested = g_strconcat (HEAD, deep, NULL);
    g_autofree char *text = g_strnfill (5000, 'x');
    g_autofree char *wordy = g_strconcat (HEAD "<a:response><a:href>", text, "</a:href></a:response>" TAIL, NULL);
    const char *const bad[] = {"",
                               "x",
                               "<html/>",
                               HEAD,
                               HEAD "</a:x>",
                               "<multistatus/>",
                               nested,
                               wordy,
                               "<!DOCTYPE a [<!ENTITY e \"x\">]>" HEAD
                               "<a:response><a:href>&e;</a:href></a:response>" TAIL,
                               "<!DOCTYPE a SYSTEM \"file:///etc/passwd\">" HEAD TAIL,
                               HEAD "<a:response><a:href>&undefined;</a:href></a:response>" TAIL};
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++) {
        g_autofree char *told = parse (bad[i], strlen (bad[i]), 1000);
        g_assert_null (told);
    }
}

static void test_names (void)
{
    static const struct {
        const char *href, *directory, *child;
    } cases[] = {{"/d/f", "/d", "f"},       {"/d/sub/", "/d", "sub"},    {"/d/", "/d", NULL},
                 {"/d", "/d", NULL},        {"/d/a/b", "/d", NULL},      {"/d/..", "/d", NULL},
                 {"/d/%2e%2e", "/d", NULL}, {"/d/a%2fb", "/d", NULL},    {"/other/f", "/d", NULL},
                 {"/dx/f", "/d", NULL},     {"f", "/d", NULL},           {"http://h:1/d/f", "/d", "f"},
                 {"http://h", "/d", NULL},  {"/d%20e/%66", "/d e", "f"}, {"/f", "", "f"},
                 {"/d/%zz", "/d", NULL},    {"//d/f", "/d", NULL},       {"", "", NULL},
                 {"/d/%00f", "/d", NULL},   {"/d/./", "/d", NULL},       {"/d//", "/d", NULL}};
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        g_autofree char *child = ecfs_dav_child (cases[i].href, cases[i].directory);
        g_assert_cmpstr (child, ==, cases[i].child);
    }
    static const char *const itself[] = {"/d", "/d/", "http://h:1/d/", "/%64"};
    static const char *const another[] = {"/", "", "/d/f", "/d//", "/dx", "/x/d/", "d", "http://h", "/%zz"};
    for (size_t i = 0; i < G_N_ELEMENTS (itself); i++)
        g_assert_true (ecfs_dav_is_itself (itself[i], "/d"));
    for (size_t i = 0; i < G_N_ELEMENTS (another); i++)
        g_assert_false (ecfs_dav_is_itself (another[i], "/d"));
    g_assert_true (ecfs_dav_is_itself ("/", "") && ecfs_dav_is_itself ("http://h/", ""));
    g_assert_false (ecfs_dav_is_itself ("/d", ""));
}

static void test_ranges (void)
{
    EcfsHttpRange range;
    g_assert_true (ecfs_http_parse_range ("bytes 5-9/10", &range));
    g_assert_true (range.first == 5 && range.last == 9 && range.total == 10);
    g_assert_true (ecfs_http_parse_range (" Bytes  0-0/*\r\n", &range));
    g_assert_true (range.last == 0 && range.total == G_MAXUINT64);
    static const char *const bad[] = {"",
                                      "bytes",
                                      "bytes 1-2",
                                      "bytes 2-1/9",
                                      "bytes 0-9/9",
                                      "bytes */10",
                                      "bytes -1-2/9",
                                      "bytes 1-2/9 x",
                                      "lines 1-2/9",
                                      "bytes 1- 2/9",
                                      "bytes 0-99999999999999999999/*",
                                      "bytes 0-18446744073709551615/*"};
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        g_assert_false (ecfs_http_parse_range (bad[i], &range));
}

/* Whose certificates cannot be read: those of the system, where no others are named. */
static void test_authorities (void)
{
    char base[] = "https://host", file[] = "/my/own";
    EcfsHttpConfig config = {.base = base};
    const EcfsHttpDialect plain = {.explain = NULL};
    EcfsHttp http = {.config = &config, .dialect = &plain};
    EcfsHttpCall call = {.result = CURLE_SSL_CACERT_BADFILE, .problem = "error setting certificate file: /a/file"};
    g_autoptr (GError) system = ecfs_http_problem (&http, &call);
    g_assert_null (strstr (system->message, "(null)"));
    g_assert_nonnull (strstr (system->message, "/a/file"));
    g_assert_nonnull (strstr (system->message, "ca-certificates"));
    config.ca_file = file;
    g_autoptr (GError) named = ecfs_http_problem (&http, &call);
    g_assert_nonnull (strstr (named->message, "ca_file /my/own"));
    g_assert_null (strstr (named->message, "ca-certificates"));
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/http-protocol/reads-multistatus-documents", test_entries);
    g_test_add_func ("/http-protocol/refuses-hostile-documents", test_hostile);
    g_test_add_func ("/http-protocol/names-stay-in-their-directory", test_names);
    g_test_add_func ("/http-protocol/reads-ranges", test_ranges);
    g_test_add_func ("/http-protocol/names-the-authorities-that-cannot-be-read", test_authorities);
    return g_test_run ();
}
