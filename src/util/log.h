/* Where messages of g_message (), g_warning () and the like go in our programs. */
#ifndef ECFS_UTIL_LOG_H
#define ECFS_UTIL_LOG_H

#include <glib.h>
#include <stdbool.h>

/**
 * To syslog, or to stderr, one line each; what is less severe than @level is dropped. May be called again, before
 * threads or from them.
 */
void ecfs_log_init (bool to_syslog, GLogLevelFlags level);

/**
 * From here on to the end of the file @path, which is made where it is absent; opened for each message, so it may be
 * renamed at any time. Messages that cannot be written there go where they went before. @path is absolute, and copied.
 * Before threads. False: it cannot be opened.
 */
bool ecfs_log_to_file (const char *path, GError **error);

#endif
