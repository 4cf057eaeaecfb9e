/*
 * The conformance suite against servers that people have besides those that have a suite of their own: ProFTPD (SFTP
 * and FTP), AsyncSSH, lighttpd, WsgiDAV. rclone is refused, and has to be found out where it is not.
 *
 * ECFS_SERVERS=all runs everything for each. Otherwise it is what sees how contents are transferred, and with
 * sanitizers nothing: the drivers have run under them with other servers, and these are slow.
 */
#include "conformance.h"
#include "other_fixture.h"

static const struct {
    const char *kind;
    const char *protocol;
    bool is_sure, logs, only_logs;
} kinds[] = {
    {.kind = "proftpd-sftp", .protocol = "sftp://", .is_sure = true, .logs = true},
    {.kind = "asyncssh", .protocol = "sftp://", .is_sure = true, .logs = true},
    {.kind = "rclone-sftp", .protocol = "sftp://", .only_logs = true}, /* which it must not be believed to keep */
    {.kind = "proftpd-ftp", .protocol = "ftp://"},
    {.kind = "lighttpd", .protocol = "dav://"},
    {.kind = "wsgidav", .protocol = "dav://"},
};

#define N_KINDS G_N_ELEMENTS (kinds)

static Other *add_row (size_t i)
{
    bool everything = g_strcmp0 (g_getenv ("ECFS_SERVERS"), "all") == 0;
    g_autofree char *why = NULL;
    bool built = ecfs_endpoint_option_keys (kinds[i].protocol) != NULL;
    if (!built || (WITH_SANITIZER && !everything))
        return NULL;
    Other *server = other_new (kinds[i].kind, &why);
    if (server == NULL)
        conformance_lacks (kinds[i].kind, why);
    else
        conformance_add ((ConformanceRow){.name = g_strdup (kinds[i].kind),
                                          .url = other_url (server),
                                          .options = other_options (server),
                                          .path = g_strdup (server->root),
                                          .is_sure = kinds[i].is_sure,
                                          .logs = kinds[i].logs,
                                          .only_logs = kinds[i].only_logs,
                                          .brief = !everything});
    return server;
}

int main (int argc, char **argv)
{
    conformance_init (&argc, &argv);
    Other *servers[N_KINDS] = {NULL};
    for (size_t i = 0; i < N_KINDS; i++)
        servers[i] = add_row (i);
    int result =
        conformance_run ("there is none of these servers here, or there are sanitizers: see tests/lab/other-server");
    for (size_t i = 0; i < N_KINDS; i++)
        other_free (servers[i]);
    return result;
}
