/*
 * What is done in the background for an open archive, besides the journal: maintenance.c asks for room and keeps what
 * endpoints are known to be like, deletions.c deletes stripes that nothing needs, retention.c lets go of
 * the past when it takes too much, repairer.c rebuilds, renewals.c has what is needed stay locked, prune.c removes
 * stripes of no object.
 */
#ifndef ECFS_UPKEEP_UPKEEP_H
#define ECFS_UPKEEP_UPKEEP_H

#include "archive/archive.h"
#include "catalog/brake.h"

typedef struct EcfsBrakeWatch EcfsBrakeWatch;
typedef struct EcfsDeletions EcfsDeletions;
typedef struct EcfsMaintenance EcfsMaintenance;
typedef struct EcfsRetention EcfsRetention;

/** Deletes stripes that nothing needs any more. */
EcfsDeletions *ecfs_deletions_new (EcfsArchive *archive);
/** Begins what is due and not under way, at each endpoint that is up; never waits for one. What was removed since
 * @held_from_ns, by the catalog's age, is not due. By one thread. */
void ecfs_deletions_begin (EcfsDeletions *self, int64_t held_from_ns);
/** Waits for the deletions that are under way. NULL is accepted. */
void ecfs_deletions_free (EcfsDeletions *self);

/** Keeps the past within its limits. */
EcfsRetention *ecfs_retention_new (EcfsArchive *archive);
/** When it is time, finds out whether it takes too much, and then lets go of the oldest, but for what was
 * removed since @held_from_ns. By one thread. */
void ecfs_retention_look (EcfsRetention *self, int64_t held_from_ns);
/** NULL is accepted. */
void ecfs_retention_free (EcfsRetention *self);

/** Watches for mass deletions. */
EcfsBrakeWatch *ecfs_brake_watch_new (EcfsArchive *archive);
/** Looks whether there was one within the last hour. *ret_held_from_ns: what was removed since, by the catalog's age,
 * is to be kept; INT64_MAX: nothing is. False: that is not known now. By one thread. */
bool ecfs_brake_watch_look (EcfsBrakeWatch *self, int64_t *ret_held_from_ns);
/** NULL is accepted. */
void ecfs_brake_watch_free (EcfsBrakeWatch *self);
/** The moment before a mass deletion, as --at takes it; g_free (). */
char *ecfs_brake_moment (const EcfsBrake *brake);
/** What undoes it; g_free (). */
char *ecfs_brake_command (const EcfsArchive *archive, const EcfsBrake *brake);

/** Deletes what is due and keeps the figures of free space and of speed, behind. */
EcfsMaintenance *ecfs_maintenance_start (EcfsArchive *archive);
/* Returns when all endpoints have said once what room they have, or that they cannot, or at the deadline. */
void ecfs_maintenance_await_space (EcfsMaintenance *self, int64_t deadline_us);
/** NULL is accepted. */
void ecfs_maintenance_stop (EcfsMaintenance *self);

#endif
