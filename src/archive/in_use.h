/*
 * Whether an archive directory is a copy of one that was in use. What was acknowledged since the copy was made may be
 * at the endpoints without their saying so, for as long as no journal that tells of it is there; a copy that goes on
 * would take it for what came to nothing, and delete it.
 *
 * A file that is there while the archive is in use says which file it is (its inode, and when that was made). One that
 * was left by a process that died is still the same file; in a copy it is another.
 */
#ifndef ECFS_ARCHIVE_IN_USE_H
#define ECFS_ARCHIVE_IN_USE_H

#include <glib.h>
#include <stdbool.h>

#define ECFS_IN_USE_NAME "in-use"

/** False, with ESTALE and what to do: it is such a copy; with another code: nobody can tell. Changes nothing. */
bool ecfs_in_use_check (const char *directory, GError **error);
/** After the check, and with the archive's lock: it is in use from now on, durably, until ecfs_in_use_end (). */
bool ecfs_in_use_begin (const char *directory, GError **error);
/** All is where it belongs. Where the file cannot be removed it stays, and does no harm. */
void ecfs_in_use_end (const char *directory);

#endif
