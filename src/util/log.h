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

#endif
