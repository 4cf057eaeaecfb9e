/*
 * PostgreSQL as the database of a catalog (database.h): a schema for each archive in a database that others keep. One
 * process at a time has it open for writing. Built only with libpq; without it every function fails and says so.
 *
 * A location is what libpq connects by (postgresql://… or service=…), '#', the archive's UUID, and, behind ':', the
 * UUID of who opens it: whoever comes again with the same one needs not wait for the end of the former.
 */
#ifndef ECFS_CATALOG_PG_H
#define ECFS_CATALOG_PG_H

#include "catalog/database.h"
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

/** Connects and, unless @readonly, takes the archive; waits while it cannot tell whether another process is alive.
 * EBUSY: one is. */
EcfsDb *ecfs_pg_open (const char *location, bool readonly, GError **error);
/** Makes the schema of an archive, which @fill gets to fill and to close. EEXIST: there is one. */
bool ecfs_pg_create (const char *location,
                     bool (*fill) (EcfsDb *db, const char *path, const EcfsUuid *archive, GError **error),
                     const EcfsUuid *archive, GError **error);
/** Copies all rows of @db, in which no transaction is open, to the file of SQLite @path, which is made. They are of one
 * moment. ECANCELED: *@stop became true; NULL: never. */
bool ecfs_pg_copy_to_file (EcfsDb *db, const char *path, const atomic_bool *stop, GError **error);
/** Makes a schema of the catalog that is the file @path; it appears with all rows or not at all. EEXIST: there is one
 * already. */
bool ecfs_pg_copy_from_file (const char *location, const char *path, GError **error);
/** Whether there is no schema with rows; EEXIST. */
bool ecfs_pg_check_free (const char *location, GError **error);
/** Removes the archive's schema with all rows. */
bool ecfs_pg_drop (const char *location, GError **error);

/* After how long without a sign of life a process is taken for dead; for tests to change. */
extern _Atomic int64_t ecfs_pg_dead_us;

#endif
