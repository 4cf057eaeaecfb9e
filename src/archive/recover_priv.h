/* What the parts of recover share. */
#ifndef ECFS_ARCHIVE_RECOVER_PRIV_H
#define ECFS_ARCHIVE_RECOVER_PRIV_H

#include "archive/archive_priv.h"
#include "archive/recover.h"
#include "catalog/restore.h"

typedef struct EcfsRecoverPlace {
    const char *name;
    EcfsEndpoint *endpoint;
    EcfsMarker marker;
    int64_t id; /* catalog row */
} EcfsRecoverPlace;

typedef struct EcfsRecovering {
    const EcfsRecover *what;
    EcfsRecovered *sums;
    EcfsRecoverPlace *places;
    size_t n_places;
    EcfsUuid archive;
    uint32_t epoch;         /* the highest that anything tells of, … */
    uint64_t n_given_up;    /* objects of a copy of the archive directory that was given up */
    uint64_t sequence;      /* … and the highest sequence of any */
    uint32_t journal_epoch; /* of the last record of the journal that was read; with sums->sequence, how far it tells */
    EcfsCatalog *catalog;
    EcfsRestore *restore;
} EcfsRecovering;

/** Tells the user. */
void ecfs_recover_tell (EcfsRecovering *self, const char *format, ...) G_GNUC_PRINTF (2, 3);
bool ecfs_recover_tick (EcfsRecovering *self, const char *phase, uint64_t n_done, uint64_t n_all, GError **error);

/** A file of an endpoint, whole; NULL. */
GByteArray *ecfs_recover_read (EcfsRecoverPlace *place, const char *name, uint64_t size, GError **error);

/** Makes self->catalog at @path from the newest snapshot and the segments behind it. */
bool ecfs_recover_journal (EcfsRecovering *self, const char *path, GError **error);

/** After the new epoch began: looks for the stripes of all objects, and for objects that the catalog does not have. */
bool ecfs_recover_objects (EcfsRecovering *self, GError **error);

#endif
