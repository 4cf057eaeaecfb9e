/*
 * What a check finds, on disk while it runs: memory does not grow with what is wrong, or with what is named. The file
 * is SQLite's own temporary one (below $SQLITE_TMPDIR, $TMPDIR, /var/tmp or /tmp), gone with the process.
 *
 * One thread at a time.
 */
#ifndef ECFS_CATALOG_SPOOL_H
#define ECFS_CATALOG_SPOOL_H

#include "catalog/catalog.h"

typedef struct EcfsSpool EcfsSpool;

/* A stripe that is not as it should be. */
typedef struct EcfsSpoolFault {
    unsigned index;
    int fault;         /* the caller's kind */
    uint64_t instance; /* 0: the catalog has none */
    int64_t endpoint;  /* row id; 0: none */
    char *text;        /* may be NULL; owned */
} EcfsSpoolFault;

/* An object that is to be told, and its urgency: the lowest first. */
typedef struct EcfsSpoolDamage {
    int64_t object;
    int urgency;
    bool is_lost; /* something is to be stored once more */
    EcfsUuid uuid;
} EcfsSpoolDamage;

EcfsSpool *ecfs_spool_new (GError **error);
/** NULL is accepted. */
void ecfs_spool_free (EcfsSpool *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsSpool, ecfs_spool_free)

/** One more fault; of two about one stripe the first stays. @fault->text is borrowed. */
bool ecfs_spool_add_fault (EcfsSpool *self, const EcfsUuid *uuid, int64_t object, const EcfsSpoolFault *fault,
                           GError **error);
/** Those of an object by index: GArray of EcfsSpoolFault with clear function. */
GArray *ecfs_spool_faults (EcfsSpool *self, const EcfsUuid *uuid, GError **error);
/** The next object that has faults, by UUID. 1; 0: there is none; -1. */
int ecfs_spool_next_faulty (EcfsSpool *self, EcfsUuid *uuid, int64_t *ret_object, GError **error);

bool ecfs_spool_add_damage (EcfsSpool *self, const EcfsSpoolDamage *damage, GError **error);
/** The most urgent behind @damage, which it becomes; before the first call that is zeroed with urgency INT_MIN. 1; 0:
 * there is none; -1. */
int ecfs_spool_next_damage (EcfsSpool *self, EcfsSpoolDamage *damage, GError **error);

typedef enum EcfsSpoolKind {
    ECFS_SPOOL_STRANGER,    /* of a batch, until the catalog was asked about it */
    ECFS_SPOOL_ORPHAN,      /* that is old enough to go, … */
    ECFS_SPOOL_UNRECOVERED, /* … and stayed for having been stored before a recovery */
    ECFS_SPOOL_SPARE,       /* of an object that the catalog has: it may be good where that one's is damaged */
} EcfsSpoolKind;

/* A stripe that nothing knows, perhaps. */
typedef struct EcfsSpoolOrphan {
    EcfsSpoolKind kind;
    int64_t endpoint; /* row id, or of strangers the position */
    EcfsUuid uuid;    /* of its object */
    unsigned index;
    uint64_t instance;
    uint64_t size;
    int64_t mtime_s; /* 0: its endpoint tells none */
} EcfsSpoolOrphan;

/** Of two of a kind about one stripe the first stays. */
bool ecfs_spool_add_orphan (EcfsSpool *self, const EcfsSpoolOrphan *orphan, GError **error);
/** The next of its kind by endpoint and UUID behind @orphan, which it becomes; zeroed but for that before the first
 * call, and endpoint -1 where they are positions. 1; 0: there is none; -1. */
int ecfs_spool_next_orphan (EcfsSpool *self, EcfsSpoolOrphan *orphan, GError **error);
/* What there is of an object. */
typedef struct EcfsSpoolObject {
    EcfsUuid uuid;
    uint64_t n_stripes, bytes;
} EcfsSpoolObject;

/** The next object of a kind by UUID behind @object, which it becomes; zeroed before the first call. 1; 0: there is
 * none; -1. Looks at all of the kind each time. */
int ecfs_spool_next_object (EcfsSpool *self, EcfsSpoolKind kind, EcfsSpoolObject *object, GError **error);
/** Forgets all of a kind. */
bool ecfs_spool_clear_orphans (EcfsSpool *self, EcfsSpoolKind kind, GError **error);

/** An object that is to be looked at; once, however often it is named. */
bool ecfs_spool_name (EcfsSpool *self, const EcfsUuid *uuid, int64_t object, GError **error);
/** Row ids of up to @max named objects by UUID, behind *after, which moves on: GArray of int64_t. */
GArray *ecfs_spool_named (EcfsSpool *self, EcfsUuid *after, size_t max, GError **error);
/** How many are named. */
bool ecfs_spool_count_named (EcfsSpool *self, uint64_t *ret_n, GError **error);

#endif
