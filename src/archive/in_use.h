/*
 * Whether an archive directory is a copy of one that was in use, or has older files than it had when it was in use
 * last. What was acknowledged since the copy was made may be at the endpoints without their saying so, for as long as
 * no journal that tells of it is there; a catalog of before would take it for what came to nothing, and delete it.
 *
 * A file that is there while the archive is in use says which file it is (its inode, and when that was made), up to
 * which change the catalog is on disk, and when it was written last. One that was left by a process that died is still
 * the same file, and the catalog is not behind it; in a copy it is another, or it was written when it does not say so.
 * Only within one boot of the machine its time counts: a power cut may leave an older text than the inode's time.
 */
#ifndef ECFS_ARCHIVE_IN_USE_H
#define ECFS_ARCHIVE_IN_USE_H

#include "catalog/catalog.h"

#define ECFS_IN_USE_NAME "in-use"

typedef struct EcfsInUse EcfsInUse;

/** False, with ESTALE and what to do: it is such a copy; with another code: nobody can tell. Changes nothing. */
bool ecfs_in_use_check (const char *directory, EcfsCatalog *catalog, GError **error);
/** Whether the file is one that was copied, as far as can be told without a catalog. */
bool ecfs_in_use_is_copy (const char *directory);
/** After the check, and with the archive's lock: it is in use from now on, durably, until ecfs_in_use_end (). NULL. */
EcfsInUse *ecfs_in_use_begin (const char *directory, GError **error);
/** @user is an EcfsInUse: the catalog is on disk up to this change. One thread at a time; does not wait for a disk. */
void ecfs_in_use_note (void *user, uint64_t sequence);
/** It stays there as it is: the catalog lacks what it says. NULL is accepted. */
void ecfs_in_use_leave (EcfsInUse *self);
/** All is where it belongs. Where the file cannot be removed it stays, and does no harm. NULL is accepted. */
void ecfs_in_use_end (EcfsInUse *self);

#endif
