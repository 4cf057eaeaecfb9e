/*
 * What a process that talks with strangers gives up for ever: another user's rights, files, other programs and
 * processes, and all sockets but those for datagrams. It may start threads, send datagrams and look up names of hosts.
 */
#ifndef ECFS_TOOLS_LOCATE_CAGE_H
#define ECFS_TOOLS_LOCATE_CAGE_H

#include <stdbool.h>

typedef struct EcfsCage {
    bool calls; /* system calls that are not on the list are answered with ENOSYS, where the kernel has seccomp */
    bool files; /* none can be opened but below /etc and where libraries are, where it has Landlock (Linux 5.13) */
} EcfsCage;

/**
 * To be called before there is a second thread; cannot be undone. Root becomes nobody, where the system allows it.
 * Whatever cannot be given up here is kept, and the rest is given up. Returns what came into force.
 */
EcfsCage ecfs_cage_enter (void);

#endif
