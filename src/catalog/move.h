/*
 * A catalog from a file to PostgreSQL and back, in steps of which each can be done again. Nobody else uses the archive
 * directory meanwhile. What was copied is compared row by row and checked before anything of the source changes, and at
 * no moment can both be written.
 */
#ifndef ECFS_CATALOG_MOVE_H
#define ECFS_CATALOG_MOVE_H

#include "catalog/catalog.h"
#include "catalog/pg.h"

typedef struct EcfsCatalogMove {
    const char *file;     /* the catalog, when it is a file */
    const char *location; /* in PostgreSQL */
    const char *where;    /* what the schema says of where the file is, when that takes its place */
    /* Called now and then; false ends it with ECANCELED. May be NULL. */
    bool (*tick) (void *user, const char *phase, uint64_t n_done, uint64_t n_all);
    void *user;
} EcfsCatalogMove;

/** From the file, of which nobody has anything open, to a schema that nobody may open before ecfs_pg_arrived ().
 * *@ret_n_rows: how many were copied. EEXIST: the schema is in use; EBADMSG: something is wrong with the catalog. */
bool ecfs_catalog_move_in (const EcfsCatalogMove *self, uint64_t *ret_n_rows, GError **error);
/** From the schema to the file ecfs_catalog_move_name (@self), durably. Then nobody opens the schema any more.
 * EBUSY: who else wrote the archive has not stored everything. */
bool ecfs_catalog_move_out (const EcfsCatalogMove *self, uint64_t *ret_n_rows, GError **error);
/** Whether that file has all that the schema has which was moved away. EBADMSG: it does not. */
bool ecfs_catalog_move_is_whole (const EcfsCatalogMove *self, uint64_t *ret_n_rows, GError **error);
/** Where the file is before it is the catalog; g_free (). */
char *ecfs_catalog_move_name (const EcfsCatalogMove *self);

/* For tests: called before each step, which has a name. */
extern void (*ecfs_catalog_move_step) (const char *step);
void ecfs_catalog_moving (const char *step);

#endif
