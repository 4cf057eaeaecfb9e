/*
 * What a disk would have after a power failure. Every change is noted with what undoes it and becomes durable by an
 * fsync: bytes and size of a file by that of the file (also fdatasync), its times by fsync, names by that of a
 * directory that they are in or were in. disk_lose () takes back the rest.
 *
 * A call that makes a change goes: disk_lock (), what it notes before, the call, disk_done () with its success,
 * disk_unlock (). So no other thread is in the middle of a change when the power fails.
 */
#ifndef ECFS_TESTS_CRASH_DISK_H
#define ECFS_TESTS_CRASH_DISK_H

#include "steps.h"

#include <sys/types.h>

void disk_init (const char *grave);
void disk_lock (void);
void disk_unlock (void);

/* Before the call */
void disk_note_bytes (int fd, off_t offset, off_t size); /* that may change; the size of the file may too */
void disk_note_times (int fd);
void disk_note_made (const char *path);
void disk_note_removed (const char *path);
void disk_note_moved (const char *from, const char *to);

/** After it: when it failed, what was noted since disk_lock () did not happen. */
void disk_done (bool happened);
void disk_synced (int fd, bool data_only);
void disk_all_synced (void);

/** Takes back what is not durable, with LOSES_SOME a part of it. */
void disk_lose (CrashLoss loss, uint64_t seed);

#endif
