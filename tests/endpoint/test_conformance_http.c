/*
 * The conformance suite over dav:// and davs://, against a real nginx and a real Apache httpd, and again on a line that
 * comes and goes.
 *
 * ECFS_WEB=all runs everything for every row. Otherwise there is no HTTP/2, and on that line only what sees how
 * contents are transferred.
 */
#include "conformance.h"
#include "program/program.h"
#include "proxy_fixture.h"
#include "web_fixture.h"

#include <stdlib.h>

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

static void add_row (size_t i, const Web *web, bool everything, ConformanceRow *row)
{
    const char *more = servers[i].more != NULL ? servers[i].more : "";
    row->name = g_strdup (servers[i].name);
    row->path = g_strdup (web->root);
    row->options = web->ca == NULL ? NULL : g_strconcat ("ca_file=", web->ca, more, NULL);
    if (servers[i].behind == NULL) {
        row->url = web_url (web, web->port);
        conformance_add (row);
    } else {
        row->proxy = lab_proxy_new (web->port);
        row->url = web_url (web, row->proxy->port);
        row->brief = !everything;
        conformance_add_network (row);
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    unsetenv ("http_proxy");
    unsetenv ("https_proxy");
    unsetenv ("all_proxy");
    bool everything = g_strcmp0 (getenv ("ECFS_WEB"), "all") == 0;
    Web *webs[N_SERVERS] = {NULL};
    ConformanceRow rows[N_SERVERS] = {0};
    for (size_t i = 0; i < N_SERVERS; i++) {
        const char *why = "it has no server";
        if (servers[i].long_form && !everything)
            continue;
        if (servers[i].behind == NULL)
            webs[i] = web_new (servers[i].kind, servers[i].features, &why);
        const Web *web = servers[i].behind == NULL ? webs[i] : find (webs, servers[i].behind);
        if (web == NULL)
            g_print ("# SKIPPED %s: %s\n", servers[i].name, why);
        else
            add_row (i, web, everything, &rows[i]);
    }
    int result = g_test_run ();
    for (size_t i = 0; i < N_SERVERS; i++) {
        lab_proxy_free (rows[i].proxy);
        web_free (webs[i]);
        g_free (rows[i].name);
        g_free (rows[i].url);
        g_free (rows[i].options);
        g_free (rows[i].path);
    }
    return result;
}
