/* The conformance suite over dav:// and davs://, against a real nginx and a real Apache httpd. */
#include "conformance.h"
#include "util/log.h"
#include "web_fixture.h"

#include <stdlib.h>

static const struct {
    const char *name;
    const char *kind;
    const char *features;
    const char *more; /* options */
} servers[] = {
    {"dav-nginx", "nginx", "", ""},
    {"dav-apache", "apache", "", ""},
    {"davs-nginx", "nginx", "tls http2", ""},
    {"davs-apache", "apache", "tls", ""},
    {"davs-nginx-http2", "nginx", "tls http2", ",http2=yes"}, /* with ECFS_WEB=all */
};

#define N_SERVERS G_N_ELEMENTS (servers)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    unsetenv ("http_proxy");
    unsetenv ("https_proxy");
    unsetenv ("all_proxy");
    size_t n_rows = g_strcmp0 (getenv ("ECFS_WEB"), "all") == 0 ? N_SERVERS : N_SERVERS - 1;
    Web *webs[N_SERVERS] = {NULL};
    ConformanceRow rows[N_SERVERS] = {0};
    for (size_t i = 0; i < n_rows; i++) {
        const char *why = NULL;
        webs[i] = web_new (servers[i].kind, servers[i].features, &why);
        if (webs[i] == NULL) {
            g_print ("# SKIPPED %s: %s\n", servers[i].name, why);
            continue;
        }
        rows[i].name = g_strdup (servers[i].name);
        rows[i].url = web_url (webs[i], webs[i]->port);
        rows[i].path = g_strdup (webs[i]->root);
        rows[i].options = webs[i]->ca == NULL ? NULL : g_strconcat ("ca_file=", webs[i]->ca, servers[i].more, NULL);
        conformance_add (&rows[i]);
    }
    int result = g_test_run ();
    for (size_t i = 0; i < N_SERVERS; i++) {
        web_free (webs[i]);
        g_free (rows[i].name);
        g_free (rows[i].url);
        g_free (rows[i].options);
        g_free (rows[i].path);
    }
    return result;
}
