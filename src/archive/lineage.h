/*
 * Whether an archive directory is the newest there is, or a copy from a backup: what the endpoints know tells. An
 * endpoint is asked when it is first up, and again when that came to nothing; later its marker is read now and then, as
 * somebody may recover the archive elsewhere while this directory is in use.
 *
 * Life cycle: new () → ask (), again and again → free (), after the endpoints were stopped. Thread-safe but for free.
 */
#ifndef ECFS_ARCHIVE_LINEAGE_H
#define ECFS_ARCHIVE_LINEAGE_H

#include "archive/archive.h"

typedef struct EcfsLineage EcfsLineage;

EcfsLineage *ecfs_lineage_new (EcfsArchive *archive);
/** NULL is accepted. */
void ecfs_lineage_free (EcfsLineage *self);

/** Asks the endpoints that are up and have not answered, or not of late; never waits. */
void ecfs_lineage_ask (EcfsLineage *self);

/**
 * Waits until all that were asked have answered, @sure_deadline_us when enough have, or @deadline_us. ESTALE with what
 * to do when an endpoint knows of something newer.
 */
bool ecfs_lineage_await (EcfsLineage *self, int64_t deadline_us, int64_t sure_deadline_us, GError **error);

/** Whether its answer is due. */
bool ecfs_lineage_is_asking (EcfsLineage *self, size_t position);
/** Whether journal may be stored there: it has answered, and so many others that one of them would know of anything
 * newer. */
bool ecfs_lineage_may_write (EcfsLineage *self, size_t position);
/** Whether something may be deleted there: the same, with answers of late. */
bool ecfs_lineage_may_delete (EcfsLineage *self, size_t position);
/** Reads the marker there, and then may_delete (): before deletions. Blocks as long as the endpoint does. */
bool ecfs_lineage_confirm (EcfsLineage *self, size_t position);

/** How many segments of the journal one of them had, when it was asked first, behind the last snapshot of then. */
uint64_t ecfs_lineage_n_segments (EcfsLineage *self);

/** Whether so many endpoints have answered that one of them would know. */
bool ecfs_lineage_is_sure (EcfsLineage *self);

/** Why the archive is an old copy; NULL: nothing says so. g_free () */
char *ecfs_lineage_trouble (EcfsLineage *self);

#endif
