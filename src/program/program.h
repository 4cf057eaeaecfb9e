/* What a program does to its own process at its beginning, and a library never does to others'. */
#ifndef ECFS_PROGRAM_PROGRAM_H
#define ECFS_PROGRAM_PROGRAM_H

#include <glib.h>
#include <stdbool.h>

/**
 * Messages of g_message (), g_warning () and the like go to syslog, or to stderr, one line each; what is less severe
 * than @level is dropped. May be called again, before threads or from them.
 */
void ecfs_log_init (bool to_syslog, GLogLevelFlags level);

/**
 * From here on to the end of the file @path, which is made where it is absent; opened for each message, so it may be
 * renamed at any time. Messages that cannot be written there go where they went before. @path is absolute, and copied.
 * Before threads. False: it cannot be opened.
 */
bool ecfs_log_to_file (const char *path, GError **error);

/** Lets this process have as many open files as its hard limit allows: endpoints with many connections keep some open
 * each, and the usual soft limit is 1,024. Others in the process must not use select(2), which knows no more. */
void ecfs_allow_many_files (void);

#endif
