/* The conformance suite over sftp://, against a real sshd, and what it has about logs on a line that comes and goes. */
#include "conformance.h"
#include "sshd_fixture.h"

#include <stdio.h>

static ConformanceRow row (const Sshd *sshd, const char *transport)
{
    g_autofree char *options = sshd_options (sshd);
    return (ConformanceRow){.name = g_strconcat ("sftp-", transport, NULL),
                            .url = sshd_url (sshd, sshd->root),
                            .options = g_strconcat (options, ",transport=", transport, NULL),
                            .path = g_strdup (sshd->root),
                            .is_sure = true,
                            .logs = true};
}

/* Through a proxy, which the server's key is known for, too. */
static ConformanceRow unsteady (const Sshd *sshd)
{
    ConformanceRow unsteady = row (sshd, "openssh");
    unsteady.proxy = lab_proxy_new (sshd->port);
    FILE *known = fopen (sshd->known_hosts, "a");
    g_assert_nonnull (known);
    fprintf (known, "[127.0.0.1]:%u %s", unsteady.proxy->port, sshd->host_public);
    g_assert_cmpint (fclose (known), ==, 0);
    g_free (unsteady.name);
    g_free (unsteady.url);
    unsteady.name = g_strdup ("sftp-unsteady");
    unsteady.url = g_strdup_printf ("sftp://127.0.0.1:%u%s", unsteady.proxy->port, sshd->root);
    unsteady.only_logs = true;
    return unsteady;
}

int main (int argc, char **argv)
{
    conformance_init (&argc, &argv);
    Sshd *sshd = sshd_new (NULL);
    if (sshd != NULL) {
        conformance_add (row (sshd, "openssh"));
        conformance_add (row (sshd, "libssh2"));
        conformance_add (unsteady (sshd));
    }
    int result = conformance_run ("there is no sshd: install openssh-server to test sftp://");
    sshd_free (sshd);
    return result;
}
