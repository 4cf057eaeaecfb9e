/* Mounting and unmounting, as verbs and for mount(8). */
#ifndef ECFS_TOOLS_MOUNT_TOOL_H
#define ECFS_TOOLS_MOUNT_TOOL_H

#include "tool.h"

/** Of FUSE, as it runs. */
const char *tool_fuse_version (void);

/* What mount(8) and umount(8) call, by the name of the program; they return the exit status of mount(8). */
int tool_mount_helper (const char *name, int argc, char **argv);
int tool_umount_helper (const char *name, int argc, char **argv);

/** Says how many objects of an archive that was unmounted lack stripes, and what the journal on endpoints lacks. */
void tool_tell_unfinished (const char *verb, const char *directory);

#endif
