/*
 * Which zone an endpoint is in, as the journal tells it: a setting that ecfs.conf has for each endpoint, so that an
 * archive that is recovered spreads stripes, and keeps rules, as before.
 */
#ifndef ECFS_ARCHIVE_ZONES_H
#define ECFS_ARCHIVE_ZONES_H

#include "catalog/catalog.h"

/** Has the journal tell the zone of an endpoint; nothing where it is a zone of its own and never was in another. */
bool ecfs_zone_keep (EcfsCatalog *catalog, const EcfsUuid *endpoint, const char *name, const char *zone,
                     GError **error);

/** *ret_zone is what the journal tells, g_free (); NULL: nothing, or that it is a zone of its own. */
bool ecfs_zone_kept (EcfsCatalog *catalog, const EcfsUuid *endpoint, char **ret_zone, GError **error);

#endif
