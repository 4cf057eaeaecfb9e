/*
 * The conformance suite over dav:// and davs://, against a real nginx and a real Apache httpd, and again on a line that
 * comes and goes.
 *
 * ECFS_WEB=all runs everything for every row. Otherwise there is no HTTP/2, and on that line only what sees how
 * contents are transferred.
 */
#include "conformance.h"
#include "web_fixture.h"

static const struct {
    const char *name;
    const char *kind, *features; /* of the server */
    const char *more;            /* options */
    const char *behind;          /* instead: a proxy in front of the server of this row */
    bool long_form;
} servers[] = {
    {.name = "dav-nginx", .kind = "nginx", .features = ""},
    {.name = "dav-apache", .kind = "apache", .features = ""},
    {.name = "davs-nginx", .kind = "nginx", .features = "tls http2"},
    {.name = "davs-apache", .kind = "apache", .features = "tls"},
    {.name = "davs-nginx-http2", .kind = "nginx", .features = "tls http2", .more = ",http2=yes", .long_form = true},
    {.name = "dav-nginx-unsteady", .behind = "dav-nginx"},
    {.name = "davs-apache-unsteady", .behind = "davs-apache"},
    {.name = "davs-nginx-unsteady", .behind = "davs-nginx", .long_form = true},
    {.name = "dav-apache-unsteady", .behind = "dav-apache", .long_form = true},
};

#define N_SERVERS G_N_ELEMENTS (servers)

/* The server of the row @name. */
static const Web *find (Web *const *webs, const char *name)
{
    for (size_t i = 0; i < N_SERVERS; i++)
        if (g_str_equal (servers[i].name, name))
            return webs[i];
    return NULL;
}

static void add_row (size_t i, const Web *web, bool everything)
{
    const char *more = servers[i].more != NULL ? servers[i].more : "";
    LabProxy *proxy = servers[i].behind == NULL ? NULL : lab_proxy_new (web->port);
    conformance_add ((ConformanceRow){.name = g_strdup (servers[i].name),
                                      .url = web_url (web, proxy == NULL ? web->port : proxy->port),
                                      .options = web->ca == NULL ? NULL : g_strconcat ("ca_file=", web->ca, more, NULL),
                                      .path = g_strdup (web->root),
                                      .brief = proxy != NULL && !everything,
                                      .proxy = proxy});
}

int main (int argc, char **argv)
{
    conformance_init (&argc, &argv);
    bool everything = g_strcmp0 (g_getenv ("ECFS_WEB"), "all") == 0;
    Web *webs[N_SERVERS] = {NULL};
    for (size_t i = 0; i < N_SERVERS; i++) {
        const char *why = "it has no server";
        if (servers[i].long_form && !everything)
            continue;
        if (servers[i].behind == NULL)
            webs[i] = web_new (servers[i].kind, servers[i].features, &why);
        const Web *web = servers[i].behind == NULL ? webs[i] : find (webs, servers[i].behind);
        if (web == NULL)
            conformance_lacks (servers[i].name, why);
        else
            add_row (i, web, everything);
    }
    int result = conformance_run ("there is neither nginx nor Apache httpd with WebDAV: see above");
    for (size_t i = 0; i < N_SERVERS; i++)
        web_free (webs[i]);
    return result;
}
