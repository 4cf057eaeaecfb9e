#include "plot.h"

#include "tool.h"

#include <gio/gio.h>
#include <string.h>

gboolean tool_plot_check (const char *path, GError **error)
{
    return g_str_has_suffix (path, ".svg") || g_str_has_suffix (path, ".png") ||
           tool_error (error, EINVAL, "--plot %s: name a file that ends in .svg or .png", path);
}

char *tool_plot_quote (const char *text)
{
    g_auto (GStrv) parts = g_strsplit (text, "'", -1);
    g_autofree char *doubled = g_strjoinv ("''", parts);
    g_strdelimit (doubled, "\n\r", ' ');
    return g_strdup_printf ("'%s'", doubled);
}

/* The drawing; NULL where gnuplot makes none. It is not told the file's name, which it might take for a command. */
static GBytes *draw (const char *program, const char *script, GError **error)
{
    g_autoptr (GError) failed = NULL;
    g_autoptr (GBytes) input = g_bytes_new (script, strlen (script)), drawing = NULL, said = NULL;
    g_autoptr (GSubprocess) process = g_subprocess_new (G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_PIPE |
                                                            G_SUBPROCESS_FLAGS_STDERR_PIPE,
                                                        &failed, program, "-d", NULL);
    if (process == NULL || !g_subprocess_communicate (process, input, NULL, &drawing, &said, &failed)) {
        g_set_error (error, ECFS_ERROR, EIO, "%s: %s", program, failed->message);
        return NULL;
    }
    if (g_subprocess_get_successful (process) && g_bytes_get_size (drawing) > 0)
        return g_steal_pointer (&drawing);
    g_set_error (error, ECFS_ERROR, EIO, "gnuplot could not draw: %.*s", (int) MIN (g_bytes_get_size (said), 1000),
                 (const char *) g_bytes_get_data (said, NULL));
    return NULL;
}

gboolean tool_plot (const char *path, const char *commands, GError **error)
{
    if (!tool_plot_check (path, error))
        return FALSE;
    g_autofree char *program = g_find_program_in_path ("gnuplot");
    if (program == NULL)
        return tool_error (error, ENOENT,
                           "--plot needs the program gnuplot, which is not here: apt install gnuplot-nox");
    g_autofree char *script =
        g_strdup_printf ("set terminal %s size 960,600\nset grid\n%s",
                         g_str_has_suffix (path, ".svg") ? "svg dynamic font 'sans,14'" : "png", commands);
    g_autoptr (GBytes) drawing = draw (program, script, error);
    g_autoptr (GError) failed = NULL;
    if (drawing == NULL)
        return FALSE;
    return g_file_set_contents (path, g_bytes_get_data (drawing, NULL), (gssize) g_bytes_get_size (drawing), &failed) ||
           tool_error (error, EIO, "--plot: %s", failed->message);
}
