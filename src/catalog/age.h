/* How old the catalog is, whatever clocks are set to. */
#ifndef ECFS_CATALOG_AGE_H
#define ECFS_CATALOG_AGE_H

#include "catalog/db.h"

/** How old the catalog is @now, whose own age is not looked at; never less than @noted. */
int64_t ecfs_age_since (const CatalogAge *noted, const CatalogAge *now);
/** Sets self->age from the database and the clocks. */
bool ecfs_age_load (EcfsCatalog *self, GError **error);
int64_t ecfs_age_ns (const EcfsCatalog *self);
/** Within an operation: writes down how old the catalog is, once a minute. */
bool ecfs_age_note (EcfsCatalog *self, GError **error);
/** Within an operation of a member that does not lead: how old it is at most. */
bool ecfs_age_follow (EcfsCatalog *self, GError **error);
/** Whether that would ask. */
bool ecfs_age_is_due (const EcfsCatalog *self);
/** Of a member that is about to lead. */
bool ecfs_age_inherit (EcfsCatalog *self, GError **error);

#endif
