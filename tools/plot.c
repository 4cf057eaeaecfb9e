#include "plot.h"

#include "util/error.h"

#include <gio/gio.h>
#include <string.h>

gboolean tool_plot_check (const char *path, GError **error)
{
    if (!g_str_has_suffix (path, ".svg") && !g_str_has_suffix (path, ".png"))
        return ecfs_fail (error, EINVAL, "--plot %s: name a file that ends in .svg or .png", path);
    return strpbrk (path, "\n\r") == NULL ||
           ecfs_fail (error, EINVAL, "--plot: gnuplot takes no file names of several lines");
}

char *tool_plot_quote (const char *text)
{
    g_auto (GStrv) parts = g_strsplit (text, "'", -1);
    g_autofree char *doubled = g_strjoinv ("''", parts);
    g_strdelimit (doubled, "\n\r", ' ');
    return g_strdup_printf ("'%s'", doubled);
}

gboolean tool_plot (const char *path, const char *commands, GError **error)
{
    if (!tool_plot_check (path, error))
        return FALSE;
    g_autofree char *program = g_find_program_in_path ("gnuplot");
    if (program == NULL)
        return ecfs_fail (error, ENOENT,
                          "--plot needs the program gnuplot, which is not here: apt install gnuplot-nox");
    /* gnuplot takes what begins with a bar for a command. */
    g_autofree char *absolute = g_canonicalize_filename (path, NULL), *quoted = tool_plot_quote (absolute);
    g_autofree char *script =
        g_strdup_printf ("set terminal %s size 960,600\nset output %s\nset grid\n%s",
                         g_str_has_suffix (path, ".svg") ? "svg dynamic font 'sans,14'" : "png", quoted, commands);
    g_autofree char *said = NULL;
    g_autoptr (GError) failed = NULL;
    g_autoptr (GSubprocess) process = g_subprocess_new (
        G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_SILENCE | G_SUBPROCESS_FLAGS_STDERR_PIPE, &failed,
        program, "-d", NULL);
    if (process == NULL || !g_subprocess_communicate_utf8 (process, script, NULL, NULL, &said, &failed))
        return ecfs_fail (error, EIO, "%s: %s", program, failed->message);
    return g_subprocess_get_successful (process) ||
           ecfs_fail (error, EIO, "gnuplot could not draw %s: %s", path, g_strstrip (said));
}
