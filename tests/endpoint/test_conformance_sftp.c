/* The conformance suite over sftp://, against a real sshd. */
#include "conformance.h"
#include "sshd_fixture.h"
#include "util/log.h"

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
    ConformanceRow *row = g_new0 (ConformanceRow, 1);
    row->name = g_strdup ("sftp");
    row->url = sshd_url (sshd, sshd->root);
    row->options = sshd_options (sshd);
    row->path = g_strdup (sshd->root);
    conformance_add (row);
    int result = g_test_run ();
    sshd_free (sshd);
    g_free (row->name);
    g_free (row->url);
    g_free (row->options);
    g_free (row->path);
    g_free (row);
    return result;
}
