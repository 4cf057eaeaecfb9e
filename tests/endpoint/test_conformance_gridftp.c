/*
 * The conformance suite over gsiftp://, ftp:// and sshftp://, against a real globus-gridftp-server, and again on a line
 * that comes and goes.
 *
 * ECFS_GRIDFTP=all runs everything for every kind. Otherwise ftp alone has all tests, the others those that see how
 * contents are transferred, and with sanitizers there is ftp only: the handshakes of the others, one for each login or
 * transfer, are not our code and take nearly all of the time, and what differs there is in the helper, which is built
 * without sanitizers.
 */
#include "conformance.h"
#include "gridftp_fixture.h"

typedef struct Kind {
    const char *name, *scheme, *options;
    unsigned proxy;     /* the number of the one in front; 0: none */
    bool always, plain; /* it runs in every build, or in those without sanitizers */
} Kind;

#define PATIENT "stall_timeout=60,connect_timeout=60"

/* On a busy machine a handshake takes seconds of silence, since the server makes a key for each connection. */
static const Kind kinds[] = {
    {.name = "gsiftp", .scheme = "gsiftp", .options = "protection=private," PATIENT, .plain = true},
    {.name = "gsiftp-extended", .scheme = "gsiftp", .options = "protection=private,mode=extended,streams=2," PATIENT},
    {.name = "ftp", .scheme = "ftp", .options = "mode=stream," PATIENT, .always = true},
    {.name = "sshftp", .scheme = "sshftp", .options = PATIENT, .plain = true},
    {.name = "ftp-unsteady", .scheme = "ftp", .options = "connect_timeout=60", .proxy = 1, .plain = true},
    {.name = "gsiftp-unsteady",
     .scheme = "gsiftp",
     .options = "protection=private,subject=/O=ecfs lab/CN=localhost,connect_timeout=20",
     .proxy = 2},
};

static void add_plain (const Gridftp *server, const Kind *kind, ConformanceRow row)
{
    g_autofree char *login = gridftp_options (server);
    g_autofree char *address = NULL;
    row.name = g_strdup (kind->name);
    row.path = g_strdup (server->root);
    row.options =
        g_str_equal (kind->scheme, "gsiftp") ? g_strconcat (login, ",", kind->options, NULL) : g_strdup (kind->options);
    if (kind->proxy != 0)
        row.proxy = gridftp_proxy (server, kind->proxy, &address);
    row.url = gridftp_url (server, kind->scheme, kind->proxy != 0 ? address : "localhost", server->root);
    conformance_add (row);
}

static void add_over_ssh (const Sshd *sshd, const Kind *kind, ConformanceRow row)
{
    g_autofree char *options = gridftp_over_ssh (sshd);
    row.name = g_strdup (kind->name);
    row.path = g_strdup (sshd->root);
    row.options = g_strconcat (options, ",", kind->options, NULL);
    row.url = g_strdup_printf ("sshftp://127.0.0.1:%u%s", sshd->port, sshd->root);
    conformance_add (row);
}

int main (int argc, char **argv)
{
    conformance_init (&argc, &argv);
    bool all = g_strcmp0 (g_getenv ("ECFS_GRIDFTP"), "all") == 0;
    Gridftp *server = gridftp_new ();
    Sshd *sshd = NULL;
    for (size_t i = 0; server != NULL && i < G_N_ELEMENTS (kinds); i++) {
        const Kind *kind = &kinds[i];
        ConformanceRow row = {.brief = !all && !kind->always};
        if (!all && !kind->always && (!kind->plain || WITH_SANITIZER))
            continue;
        if (!g_str_equal (kind->scheme, "sshftp"))
            add_plain (server, kind, row);
        else if ((sshd = sshd_new (NULL)) != NULL)
            add_over_ssh (sshd, kind, row);
        else
            conformance_lacks (kind->name, "it has no sshd");
    }
    int result = conformance_run ("there is no globus-gridftp-server: install globus-gridftp-server-progs");
    sshd_free (sshd);
    gridftp_free (server);
    return result;
}
