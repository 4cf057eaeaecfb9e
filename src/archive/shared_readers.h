/*
 * Readers of objects that many small files share, kept for a moment beyond the file: a directory that is read in order
 * is sequential reading of a log or pack, which its reader notices and reads ahead, if it is the same for all of them.
 */
#ifndef ECFS_ARCHIVE_SHARED_READERS_H
#define ECFS_ARCHIVE_SHARED_READERS_H

#include "catalog/content.h"
#include "object/reader.h"

typedef struct EcfsSharedReaders EcfsSharedReaders;
typedef struct EcfsSharedReader EcfsSharedReader;

/* What makes them; called from any thread, until the last is gone. */
typedef struct EcfsSharedReadersOps {
    /* A reader of all stripes of the object as it is in this row; NULL: error. Must not block. */
    EcfsReader *(*make) (void *user, const EcfsObjectRow *object, GError **error);
    /* Between these two the object's stripes stay. */
    void (*pin) (void *user, const EcfsUuid *object);
    void (*unpin) (void *user, const EcfsUuid *object);
    void *user;
} EcfsSharedReadersOps;

/** @transfer must outlive it. */
EcfsSharedReaders *ecfs_shared_readers_new (EcfsTransferPool *transfer);
/** Before the transfers end. Lets go of all that are kept, and keeps none from then on; whoever uses one may go on.
 * Idempotent. NULL is accepted. */
void ecfs_shared_readers_stop (EcfsSharedReaders *self);
/** NULL is accepted. All must have been given back. */
void ecfs_shared_readers_free (EcfsSharedReaders *self);

/**
 * The reader of @object as it is in this row, with all stripes: one that is kept, or a new one, which is kept until
 * nobody has used it for some seconds, a minute at most. The object is pinned until then. @ops is copied. Thread-safe;
 * does not block. Returns a reference; NULL: none could be made.
 */
EcfsSharedReader *ecfs_shared_readers_get (EcfsSharedReaders *self, const EcfsSharedReadersOps *ops,
                                           const EcfsObjectRow *object, GError **error);
/** Borrowed from the reference. */
EcfsReader *ecfs_shared_reader (const EcfsSharedReader *self);
/** NULL is accepted. */
void ecfs_shared_reader_unref (EcfsSharedReader *self);

#endif
