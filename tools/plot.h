/* Drawings: what gnuplot(1) is told, as a program of its own that need not be there. */
#ifndef ECFS_TOOLS_PLOT_H
#define ECFS_TOOLS_PLOT_H

#include <glib.h>

/** Whether @path ends in .svg or .png; EINVAL otherwise. */
gboolean tool_plot_check (const char *path, GError **error);

/** @text within quotes that gnuplot takes as it is; g_free (). */
char *tool_plot_quote (const char *text);

/**
 * Draws with gnuplot what @commands say, which set neither terminal nor output, into @path: as SVG or PNG by its name.
 * Errors: EINVAL another name; ENOENT there is no gnuplot; EIO it failed, with what it said.
 */
gboolean tool_plot (const char *path, const char *commands, GError **error);

#endif
