/*
 * The conformance suite against servers that people have besides those that have a suite of their own: ProFTPD (SFTP
 * and FTP), AsyncSSH, lighttpd, WsgiDAV.
 *
 * ECFS_SERVERS=all runs everything for each. Otherwise it is what sees how contents are transferred, and with
 * sanitizers nothing: the drivers have run under them with other servers, and these are slow.
 */
#include "conformance.h"
#include "other_fixture.h"
#include "util/log.h"

static const struct {
    const char *kind;
    const char *protocol;
    bool is_sure;
} kinds[] = {
    {.kind = "proftpd-sftp", .protocol = "sftp://", .is_sure = true},
    {.kind = "asyncssh", .protocol = "sftp://", .is_sure = true},
    {.kind = "proftpd-ftp", .protocol = "ftp://"},
    {.kind = "lighttpd", .protocol = "dav://"},
    {.kind = "wsgidav", .protocol = "dav://"},
};

#define N_KINDS G_N_ELEMENTS (kinds)

static Other *add_row (size_t i, ConformanceRow *row)
{
    bool everything = g_strcmp0 (g_getenv ("ECFS_SERVERS"), "all") == 0;
    g_autofree char *why = NULL;
    bool built = ecfs_endpoint_option_keys (kinds[i].protocol) != NULL;
    if (!built || (WITH_SANITIZER && !everything))
        return NULL;
    Other *server = other_new (kinds[i].kind, &why);
    if (server == NULL) {
        g_print ("# SKIPPED %s: %s\n", kinds[i].kind, why);
        return NULL;
    }
    row->name = g_strdup (kinds[i].kind);
    row->url = other_url (server);
    row->options = other_options (server);
    row->path = g_strdup (server->root);
    row->is_sure = kinds[i].is_sure;
    row->brief = !everything;
    conformance_add (row);
    return server;
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_unsetenv ("http_proxy");
    g_unsetenv ("https_proxy");
    g_unsetenv ("all_proxy");
    Other *servers[N_KINDS] = {NULL};
    ConformanceRow rows[N_KINDS] = {0};
    size_t n_servers = 0;
    for (size_t i = 0; i < N_KINDS; i++)
        n_servers += (servers[i] = add_row (i, &rows[i])) != NULL;
    if (n_servers == 0)
        g_print (
            "1..0 # SKIP there is none of these servers here, or there are sanitizers: see tests/lab/other-server\n");
    int result = n_servers == 0 ? 0 : g_test_run ();
    for (size_t i = 0; i < N_KINDS; i++) {
        other_free (servers[i]);
        g_free (rows[i].name);
        g_free (rows[i].url);
        g_free (rows[i].options);
        g_free (rows[i].path);
    }
    return result;
}
