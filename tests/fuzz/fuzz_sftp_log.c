/* What a hostile SFTP server can do to logs, and when: tests/endpoint/sftp_model.h follows any bytes. */
#include "../endpoint/sftp_model.h"

#include <glib.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

static void say_nothing (const char *domain, GLogLevelFlags level, const char *message, void *user)
{
    (void) domain;
    (void) user;
    if ((level & G_LOG_FLAG_FATAL) != 0)
        g_printerr ("%s\n", message);
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    g_log_set_default_handler (say_nothing, NULL); /* endpoints that go down say so */
    (void) sftp_model_run (bytes, size);           /* what it breaks ends the program */
    return 0;
}
