/* The conformance suite over sftp://, against a real sshd. */
#include "conformance.h"
#include "sshd_fixture.h"

static ConformanceRow row (const Sshd *sshd, const char *transport)
{
    g_autofree char *options = sshd_options (sshd);
    return (ConformanceRow){.name = g_strconcat ("sftp-", transport, NULL),
                            .url = sshd_url (sshd, sshd->root),
                            .options = g_strconcat (options, ",transport=", transport, NULL),
                            .path = g_strdup (sshd->root),
                            .is_sure = true};
}

int main (int argc, char **argv)
{
    conformance_init (&argc, &argv);
    Sshd *sshd = sshd_new (NULL);
    if (sshd != NULL) {
        conformance_add (row (sshd, "openssh"));
        conformance_add (row (sshd, "libssh2"));
    }
    int result = conformance_run ("there is no sshd: install openssh-server to test sftp://");
    sshd_free (sshd);
    return result;
}
