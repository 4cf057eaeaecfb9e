#include "proxy_fixture.h"

#include <sys/wait.h>

/* Its answer begins with @word; the number that follows. */
static unsigned hear (LabProxy *self, const char *word)
{
    char line[128], said[16];
    unsigned number = 0;
    g_assert_nonnull (fgets (line, sizeof line, self->from));
    g_assert_cmpint (sscanf (line, "%15s %u", said, &number), >=, 1);
    g_assert_cmpstr (said, ==, word);
    return number;
}

LabProxy *lab_proxy_new (unsigned port)
{
    g_autofree char *text = g_strdup_printf ("%u", port);
    const char *argv[] = {LAB_PROXY, "127.0.0.1", text, NULL};
    g_autoptr (GError) error = NULL;
    LabProxy *self = g_new0 (LabProxy, 1);
    int to, from;
    (void) g_spawn_async_with_pipes (NULL, (char **) argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, &self->pid, &to,
                                     &from, NULL, &error);
    g_assert_no_error (error);
    self->to = fdopen (to, "w");
    self->from = fdopen (from, "r");
    self->port = hear (self, "port");
    return self;
}

void lab_proxy_tell (LabProxy *self, const char *command)
{
    g_assert_cmpint (fprintf (self->to, "%s\n", command), >, 0);
    g_assert_cmpint (fflush (self->to), ==, 0);
    (void) hear (self, "ok");
}

void lab_proxy_free (LabProxy *self)
{
    if (self == NULL)
        return;
    lab_proxy_tell (self, "quit");
    (void) fclose (self->to);
    (void) fclose (self->from);
    (void) waitpid (self->pid, NULL, 0);
    g_free (self);
}
