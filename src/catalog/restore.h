/*
 * Making a catalog from the records of a journal: those of a snapshot, then those of the segments behind it. The
 * records may be from anybody: what makes no sense is refused record by record, and the rest is taken.
 *
 * Life cycle: new () on a catalog that was just created → records (), any number of times → finish () → found (), any
 * number of times → end () → free (), which may come at any time. One thread.
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

/** Before and behind the records of a snapshot, which an empty catalog is filled with: what finds things in it is made
 * at its end, all at once. Records that want to find something have it made before. */
bool ecfs_restore_begin_snapshot (EcfsRestore *self, GError **error);
bool ecfs_restore_end_snapshot (EcfsRestore *self, GError **error);

/** Of records behind those that count applies what says where content is now: other stripes of an object, other codes,
 * other objects, endpoints. Likewise. */
bool ecfs_restore_exchanges (EcfsRestore *self, const GPtrArray *rows, uint64_t *n_refused, GError **error);
/** Takes out objects of which no file has anything. */
bool ecfs_restore_drop_unnamed (EcfsRestore *self, GError **error);

/** The sum of the last record that was applied, or refused, zeros before the first; NULL: it is not known. Borrowed
 * until the next records. */
const uint8_t *ecfs_restore_stands (const EcfsRestore *self);

/** Records are missing before those that come next. */
void ecfs_restore_forget_stands (EcfsRestore *self);

/**
 * Whether an object was on its way when the journal ended: it may have been committed afterwards. Others that the
 * catalog does not have were deleted, or never committed.
 */
bool ecfs_restore_was_open (EcfsRestore *self, const EcfsUuid *object, bool *ret_open, GError **error);

/** Objects of a file's footers become the content of a file, with ids of the catalog's endpoint rows. */
typedef struct EcfsFoundFile {
    uint64_t unfinished; /* the file that it is the content of; 0: a new one, with the next two */
    uint64_t parent;
    const char *name;
    EcfsAttr attr; /* mode, uid, gid, size, mtime_ns; of an unfinished file only size and mtime_ns */
    const EcfsObjectRow *const *objects;
    size_t n_objects;
    const EcfsExtent *extents; /* their object field indexes @objects */
    size_t n_extents;
} EcfsFoundFile;

/** After finish (): as an operation like others, with its record. EEXIST when the name is taken. */
bool ecfs_restore_found (EcfsRestore *self, const EcfsFoundFile *file, GError **error);

/** After finish (): another instance of a stripe that an object of the catalog has, with its record. */
bool ecfs_restore_stripe (EcfsRestore *self, const EcfsUuid *object, const EcfsStripeRow *stripe, GError **error);

/** Likewise: an object does not have a stripe of the catalog's any more. */
bool ecfs_restore_forget_stripe (EcfsRestore *self, const EcfsObjectRow *object, const EcfsStripeRow *stripe,
                                 GError **error);

/** Ends the records: the catalog begins epoch @epoch behind the record @sequence. */
bool ecfs_restore_finish (EcfsRestore *self, uint32_t epoch, uint64_t sequence, GError **error);

/** Whether the journal knows the file, and no content of it. */
bool ecfs_restore_is_unfinished (const EcfsRestore *self, uint64_t ino);
/** The number of the last record after which the file had no content; 0: there is none, or it is not known. It may have
 * some since. */
uint64_t ecfs_restore_emptied (const EcfsRestore *self, uint64_t ino);

/** Files that have no content still go: *ret_n_unfinished. No deletion is pending from then on: what a journal tells is
 * no reason to delete anything. Durable. */
bool ecfs_restore_end (EcfsRestore *self, uint64_t *ret_n_unfinished, GError **error);

/** Of a catalog that takes the place of another, before the first records: the row of an endpoint as it was there. */
bool ecfs_restore_seed (EcfsRestore *self, const EcfsEndpointRow *row, GError **error);
/** The catalog was moved, and is open as @catalog now, as it was. */
void ecfs_restore_move (EcfsRestore *self, EcfsCatalog *catalog);
/** Forgets what was to be deleted, and which files lost their content when: that is for who writes the archive, or
 * takes it over. */
bool ecfs_restore_forget_deletions (EcfsRestore *self, GError **error);

/** The row of an endpoint with the name that it has from now on; made when it is not known. What has the name already
 * gets another. *ret_state is READONLY or DISTRUSTED where that was restored of it, else ACTIVE. */
bool ecfs_restore_endpoint (EcfsRestore *self, const EcfsUuid *uuid, const char *name, int64_t *ret_id,
                            EcfsEndpointState *ret_state, GError **error);

#endif
