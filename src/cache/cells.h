/*
 * The files of a cache, below DIRECTORY/cells/XX, XX the last byte of the object: OBJECT-SEGMENT, hexadecimal. Any
 * thread.
 */
#ifndef ECFS_CACHE_CELLS_H
#define ECFS_CACHE_CELLS_H

#include "cache/cache.h"

#define ECFS_CACHE_FOLDERS 256

/** DIRECTORY and DIRECTORY/cells. EPERM as below. */
bool ecfs_cells_make (const char *directory, GError **error);
/** Returns 0, or -EPERM where somebody else made one of them, could change what is in it, or put a link there: nothing
 * below is then read, written or removed. Or -errno. */
int ecfs_cells_check (const char *directory);

/** Opens a cell for reading. -errno. */
int ecfs_cell_open (const char *directory, const EcfsCacheCell *cell);
/** Writes ranges into a cell, which is made when it is absent. *ret_bytes: what all of it takes on the disk. Returns 0
 * or -errno. */
int ecfs_cell_write (const char *directory, const EcfsCacheCell *cell, const EcfsCacheRange *ranges, unsigned n_ranges,
                     uint64_t *ret_bytes);
/** Removes it; one that is absent is removed. Returns 0 or -errno. */
int ecfs_cell_remove (const char *directory, const EcfsCacheCell *cell);

/** Calls @each for the cells in one of the ECFS_CACHE_FOLDERS folders, and removes what is none. */
void ecfs_cells_walk (const char *directory, unsigned folder, void (*each) (void *user, const EcfsCacheCell *cell),
                      void *user);
/** Removes all of them. Not where ecfs_cells_check () objects. */
void ecfs_cells_remove_all (const char *directory);

#endif
