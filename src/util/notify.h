/*
 * What a service manager is told: the protocol of sd_notify(3), one datagram to $NOTIFY_SOCKET. libsystemd is not
 * linked for it: the protocol is documented as stable and meant to be spoken without the library.
 */
#ifndef ECFS_UTIL_NOTIFY_H
#define ECFS_UTIL_NOTIFY_H

#include <stdbool.h>

/** Whether there is anybody to be told anything. */
bool ecfs_notify_wanted (void);

/** Sends @state: lines such as "READY=1", "STATUS=text", "STOPPING=1". Without a service manager, nothing happens. */
void ecfs_notify (const char *state);

#endif
