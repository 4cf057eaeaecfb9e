/*
 * Readers of objects that many small files share, kept for a moment beyond the file: a directory that is read in order
 * is sequential reading of a log or pack, which its reader notices and reads ahead, if it is the same for all of them.
 */
#ifndef ECFS_ARCHIVE_SHARED_READERS_H
#define ECFS_ARCHIVE_SHARED_READERS_H

#include "archive/archive.h"
#include "object/reader.h"

typedef struct EcfsSharedReaders EcfsSharedReaders;
typedef struct EcfsSharedReader EcfsSharedReader;

/** @archive must outlive it, and be open when the first reader is asked for. */
EcfsSharedReaders *ecfs_shared_readers_new (EcfsArchive *archive);
/** Before the archive's transfers end. Lets go of all that are kept, and keeps none from then on; whoever uses one may
 * go on. Idempotent. */
void ecfs_shared_readers_stop (EcfsSharedReaders *self);
/** NULL is accepted. All must have been given back. */
void ecfs_shared_readers_free (EcfsSharedReaders *self);

/**
 * The reader of @object as it is in this row, with all stripes: one that is kept, or a new one, which is kept until
 * nobody has used it for some seconds. The object is pinned until then. Thread-safe; does not block.
 * Returns a reference; NULL: as ecfs_archive_reader ().
 */
EcfsSharedReader *ecfs_shared_readers_get (EcfsSharedReaders *self, const EcfsObjectRow *object, GError **error);
/** Borrowed from the reference. */
EcfsReader *ecfs_shared_reader (const EcfsSharedReader *self);
/** NULL is accepted. */
void ecfs_shared_reader_unref (EcfsSharedReader *self);

#endif
