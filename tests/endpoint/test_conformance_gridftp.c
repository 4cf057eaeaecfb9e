/*
 * The conformance suite over gsiftp:// and ftp://, against a real globus-gridftp-server.
 *
 * ECFS_GRIDFTP=all runs everything for every kind. Otherwise ftp alone has all tests, gsiftp those that see how
 * contents are transferred, and with sanitizers none: its handshakes, one for each transfer, are not our code and take
 * nearly all of the time, and what differs there is in the helper, which is built without sanitizers.
 */
#include "conformance.h"
#include "gridftp_fixture.h"
#include "util/log.h"

typedef struct Kind {
    const char *name, *scheme, *options;
    bool always, plain; /* it runs in every build, or in those without sanitizers */
} Kind;

/* On a busy machine a handshake takes seconds of silence, since the server makes a key for each connection. */
static const Kind kinds[] = {
    {.name = "gsiftp",
     .scheme = "gsiftp",
     .options = "protection=private,connections=2,stall_timeout=60,connect_timeout=60",
     .plain = true},
    {.name = "gsiftp-extended",
     .scheme = "gsiftp",
     .options = "protection=private,mode=extended,streams=2,stall_timeout=60,connect_timeout=60"},
    {.name = "ftp", .scheme = "ftp", .options = "mode=stream,stall_timeout=60,connect_timeout=60", .always = true},
};

static void fill_row (const Gridftp *server, const Kind *kind, ConformanceRow *row)
{
    row->name = g_strdup (kind->name);
    row->url = gridftp_url (server, kind->scheme, server->root);
    row->path = g_strdup (server->root);
    g_autofree char *login = gridftp_options (server);
    row->options =
        g_str_equal (kind->scheme, "gsiftp") ? g_strconcat (login, ",", kind->options, NULL) : g_strdup (kind->options);
    bool all = g_strcmp0 (g_getenv ("ECFS_GRIDFTP"), "all") == 0;
    row->brief = !all && !kind->always;
    if (all || kind->always || (kind->plain && !WITH_SANITIZER))
        conformance_add (row);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    Gridftp *server = gridftp_new ();
    if (server == NULL) {
        g_print ("1..0 # SKIP there is no globus-gridftp-server: install globus-gridftp-server-progs\n");
        return 0;
    }
    ConformanceRow rows[G_N_ELEMENTS (kinds)] = {0};
    for (size_t i = 0; i < G_N_ELEMENTS (kinds); i++)
        fill_row (server, &kinds[i], &rows[i]);
    int result = g_test_run ();
    gridftp_free (server);
    for (size_t i = 0; i < G_N_ELEMENTS (rows); i++) {
        g_free (rows[i].name);
        g_free (rows[i].url);
        g_free (rows[i].options);
        g_free (rows[i].path);
    }
    return result;
}
