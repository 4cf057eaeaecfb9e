/*
 * Making a catalog from the records of a journal: those of a snapshot, then those of the segments behind it. The
 * records may be from anybody: what makes no sense is refused record by record, and the rest is taken.
 *
 * Life cycle: new () on a catalog that was just created → records (), any number of times → finish (), or no more →
 * free
 * (). One thread.
 */
#ifndef ECFS_CATALOG_RESTORE_H
#define ECFS_CATALOG_RESTORE_H

#include "catalog/catalog.h"

typedef struct EcfsRestore EcfsRestore;

EcfsRestore *ecfs_restore_new (EcfsCatalog *catalog);
void ecfs_restore_free (EcfsRestore *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsRestore, ecfs_restore_free)

/**
 * Applies records (EcfsJournalRow), in order. Those that cannot be are left out as a whole and added to *n_refused.
 * False when the catalog cannot be written.
 */
bool ecfs_restore_records (EcfsRestore *self, const GPtrArray *rows, uint64_t *n_refused, GError **error);

/**
 * Whether an object was on its way when the journal ended: it may have been committed afterwards. Others that the
 * catalog does not have were deleted, or never committed.
 */
bool ecfs_restore_was_open (EcfsRestore *self, const EcfsUuid *object, bool *ret_open, GError **error);

/** An object of a file's footer becomes the content of a new file, with ids of the catalog's endpoint rows. */
typedef struct EcfsFoundFile {
    uint64_t parent;
    const char *name;
    EcfsAttr attr; /* mode, uid, gid, size, mtime_ns */
    const EcfsObjectRow *const *objects;
    size_t n_objects;
    const EcfsExtent *extents; /* their object field indexes @objects */
    size_t n_extents;
} EcfsFoundFile;

/** After finish (): as an operation like others, with its record. EEXIST when the name is taken. */
bool ecfs_restore_found (EcfsRestore *self, const EcfsFoundFile *file, GError **error);

/**
 * Ends what was restored: files that never had content go (*ret_n_unfinished), and the catalog begins epoch @epoch
 * behind the record @sequence. Durable.
 */
bool ecfs_restore_finish (EcfsRestore *self, uint32_t epoch, uint64_t sequence, uint64_t *ret_n_unfinished,
                          GError **error);

/** The row of an endpoint with the name that it has from now on; made when it is not known. What has the name already
 * gets another. */
bool ecfs_restore_endpoint (EcfsRestore *self, const EcfsUuid *uuid, const char *name, int64_t *ret_id, GError **error);

#endif
