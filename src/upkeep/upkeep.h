/*
 * What is done in the background for an open archive, besides the journal: maintenance.c asks for room and keeps what
 * endpoints are known to be like, deletions.c deletes stripes that nothing needs, retention.c lets go of
 * the past when it takes too much, repairer.c rebuilds, prune.c removes
 * stripes of no object.
 */
#ifndef ECFS_UPKEEP_UPKEEP_H
#define ECFS_UPKEEP_UPKEEP_H

#include "archive/archive.h"

typedef struct EcfsDeletions EcfsDeletions;
typedef struct EcfsMaintenance EcfsMaintenance;
typedef struct EcfsRetention EcfsRetention;

/** Deletes stripes that nothing needs any more. */
EcfsDeletions *ecfs_deletions_new (EcfsArchive *archive);
/** Begins what is due and not under way, at each endpoint that is up; never waits for one. By one thread. */
void ecfs_deletions_begin (EcfsDeletions *self);
/** Waits for the deletions that are under way. NULL is accepted. */
void ecfs_deletions_free (EcfsDeletions *self);

/** Keeps the past within its limits. */
EcfsRetention *ecfs_retention_new (EcfsArchive *archive);
/** When it is time, finds out whether it takes too much, and then lets go of the oldest. By one thread. */
void ecfs_retention_look (EcfsRetention *self);
/** NULL is accepted. */
void ecfs_retention_free (EcfsRetention *self);

/** Deletes what is due and keeps the figures of free space and of speed, behind. */
EcfsMaintenance *ecfs_maintenance_start (EcfsArchive *archive);
/* Returns when all endpoints have said once what room they have, or that they cannot, or at the deadline. */
void ecfs_maintenance_await_space (EcfsMaintenance *self, int64_t deadline_us);
/** NULL is accepted. */
void ecfs_maintenance_stop (EcfsMaintenance *self);

#endif
