/*
 * PostgreSQL as the database of a catalog (database.h): a schema for each archive in a database that others keep. One
 * process at a time has it open for writing, or several who know of each other (pg_members.c). Built only with libpq;
 * without it every function fails and says so.
 *
 * A location is what libpq connects by (postgresql://… or service=…), '#', the archive's UUID, and, behind ':', the
 * UUID of who opens it: whoever comes again with the same one needs not wait for the end of the former.
 */
#ifndef ECFS_CATALOG_PG_H
#define ECFS_CATALOG_PG_H

#include "catalog/database.h"
#include "util/lock.h"
#include "util/uuid.h"

#include <stdatomic.h>

/** Of libpq; NULL: this was built without. g_free (). */
char *ecfs_pg_version (void);
/** Whether @path is a location and no file. */
bool ecfs_pg_is_location (const char *path);
/** Whether libpq takes @text, and nothing secret is in it: else EINVAL, with a message that does not quote it. */
bool ecfs_pg_check_location (const char *text, GError **error);
/** "postgresql://host/name" without what is secret; g_free (). */
char *ecfs_pg_display (const char *location);
/** The name of an archive's schema; g_free (). */
char *ecfs_pg_schema (const EcfsUuid *archive);

/** Connects and, unless @flags (EcfsCatalogFlags) say that it is only read, takes the archive, as one of several or
 * alone; waits while it cannot tell whether another process is alive. EBUSY: one is; ESTALE: it was moved elsewhere;
 * EAGAIN: it was not moved there to the end. */
EcfsDb *ecfs_pg_open (const char *location, unsigned flags, GError **error);
/** Makes the schema of an archive, which @fill gets to fill and to close. EEXIST: there is one. */
bool ecfs_pg_create (const char *location,
                     bool (*fill) (EcfsDb *db, const char *path, const EcfsUuid *archive, GError **error),
                     const EcfsUuid *archive, GError **error);

/* How a catalog is copied; zeros do. */
typedef struct EcfsPgCopying {
    bool set_aside;                             /* a schema that is in use is renamed */
    bool arriving;                              /* to a schema: it cannot be opened before ecfs_pg_arrived () */
    bool (*tick) (void *user, uint64_t n_rows); /* after some rows; false: ECANCELED. May be NULL */
    void *user;
    EcfsMutex *lock; /* of who uses the database meanwhile; NULL: nobody does */
} EcfsPgCopying;

/** Copies all rows of @db, in which no transaction is open, to the file of SQLite @path, which is made. They are of one
 * moment. */
bool ecfs_pg_copy_to_file (EcfsDb *db, const char *path, const EcfsPgCopying *how, GError **error);
/** Makes a schema of the catalog that is the file @path; it appears with all rows or not at all. What a move to it has
 * left that did not end is dropped, and what is there of one that was moved away is set aside. EEXIST: there is one. */
bool ecfs_pg_copy_from_file (const char *location, const char *path, const EcfsPgCopying *how, GError **error);
/** Compares all rows with those of the file @path. *@ret_n_rows: how many there are. EBADMSG: they differ. */
bool ecfs_pg_compare (const char *location, const char *path, const EcfsPgCopying *how, uint64_t *ret_n_rows,
                      GError **error);
/** Rows of the file @path. */
bool ecfs_pg_count_file (const char *path, uint64_t *ret_n_rows, GError **error);

typedef enum EcfsPgState {
    ECFS_PG_NONE,     /* there is no schema with rows */
    ECFS_PG_USED,     /* it is the archive's catalog */
    ECFS_PG_ARRIVING, /* it is about to become that */
    ECFS_PG_LEFT,     /* it was, and was moved elsewhere */
} EcfsPgState;

/** *@ret_where: where it was moved to, g_free (); or NULL. */
bool ecfs_pg_state (const char *location, EcfsPgState *ret_state, char **ret_where, GError **error);
/** One that was arriving is the archive's catalog from now on. */
bool ecfs_pg_arrived (const char *location, GError **error);
/** Nobody opens the catalog any more, which @db has open for writing: it is at @where. ESTALE: another process has
 * taken it. */
bool ecfs_pg_left (EcfsDb *db, const char *where, GError **error);
/** Whether all that is staged and not stored yet is the archive directory's that has it open; EBUSY. */
bool ecfs_pg_check_own (EcfsDb *db, GError **error);
/** Removes the archive's schema with all rows; @all: and what was set aside of it. */
bool ecfs_pg_drop (const char *location, bool all, GError **error);

/* After how long without a sign of life a process is taken for dead; for tests to change. */
extern _Atomic int64_t ecfs_pg_dead_us;

#endif
