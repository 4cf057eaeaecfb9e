/* The conformance suite over sftp://, against a real sshd. */
#include "conformance.h"
#include "program/program.h"
#include "sshd_fixture.h"

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    Sshd *sshd = sshd_new (NULL);
    if (sshd == NULL) {
        g_print ("1..0 # SKIP there is no sshd: install openssh-server to test sftp://\n");
        return 0;
    }
    static const char *const transports[] = {"openssh", "libssh2"};
    ConformanceRow rows[G_N_ELEMENTS (transports)] = {0};
    for (size_t i = 0; i < G_N_ELEMENTS (transports); i++) {
        g_autofree char *options = sshd_options (sshd);
        rows[i].name = g_strconcat ("sftp-", transports[i], NULL);
        rows[i].url = sshd_url (sshd, sshd->root);
        rows[i].options = g_strconcat (options, ",transport=", transports[i], NULL);
        rows[i].path = g_strdup (sshd->root);
        rows[i].is_sure = true;
        conformance_add (&rows[i]);
    }
    int result = g_test_run ();
    sshd_free (sshd);
    for (size_t i = 0; i < G_N_ELEMENTS (rows); i++) {
        g_free (rows[i].name);
        g_free (rows[i].url);
        g_free (rows[i].options);
        g_free (rows[i].path);
    }
    return result;
}
