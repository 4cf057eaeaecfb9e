#include "util/helper.h"

#include <glib.h>
#include <unistd.h>

char *ecfs_helper_path (const char *program, const char *variable)
{
    const char *named = g_getenv (variable);
    if (named != NULL)
        return g_strdup (named);
    g_autofree char *running = g_file_read_link ("/proc/self/exe", NULL);
    g_autofree char *directory = running == NULL ? NULL : g_path_get_dirname (running);
    char *beside = directory == NULL ? NULL : g_build_filename (directory, program, NULL);
    if (beside != NULL && access (beside, X_OK) == 0)
        return beside;
    g_free (beside);
    return g_build_filename (ECFS_LIBEXECDIR, program, NULL);
}
