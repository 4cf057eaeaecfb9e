/*
 * Stripes that readers met damaged. A reader notes one in memory and goes on; later somebody who may block looks at
 * those once more and puts them into the catalog's queue of repairs.
 *
 * Only what is proven counts: a stripe whose bytes fail their checksum or end early, or that is not there although its
 * endpoint, asked again, still has the marker of this archive. An endpoint that is late or down proves nothing.
 */
#ifndef ECFS_ARCHIVE_SIGHTINGS_H
#define ECFS_ARCHIVE_SIGHTINGS_H

#include "archive/archive.h"
#include "object/reader.h"

#define ECFS_SIGHTINGS_MAX 4096 /* what is met beyond that is met again */

typedef struct EcfsSightings EcfsSightings;

typedef struct EcfsSighting {
    EcfsUuid object;
    uint16_t index;
    uint64_t instance;
    const EcfsEndpoint *endpoint;
    bool gone;    /* there is no such file */
    bool lies;    /* its checksums fit, and it is not what was stored */
    bool back;    /* it was queued as gone, and is there with its size: it leaves the queue */
    char *reason; /* owned; NULL for what is back */
} EcfsSighting;

EcfsSightings *ecfs_sightings_new (void);
/** NULL is accepted. */
void ecfs_sightings_free (EcfsSightings *self);

/** GArray of EcfsSighting with clear function, empty. */
GArray *ecfs_sightings_array_new (void);

/** From any thread; does not block. What is noted already is not noted twice. Whether it is news, of late. */
bool ecfs_sightings_note (EcfsSightings *self, const EcfsTrouble *trouble);
/** The same for who is to change nothing: it is not noted. */
bool ecfs_sightings_pass_over (EcfsSightings *self, const EcfsTrouble *trouble);

/** Whether something is noted that was not taken. Thread-safe. */
bool ecfs_sightings_any (EcfsSightings *self);
/** All that was noted since the last call: GArray of EcfsSighting with clear function. */
GArray *ecfs_sightings_take (EcfsSightings *self);

/** Takes out of @sightings what only ecfs_sightings_confirm () would prove, where there is no time for that. */
void ecfs_sightings_drop_gone (GArray *sightings);

/** Queues them for repair in the catalog, which is open for writing, durably; what is back leaves the queue.
 * *ret_queued: how many were not queued yet. */
bool ecfs_sightings_queue (EcfsCatalog *catalog, const GArray *sightings, unsigned *ret_queued, GError **error);

#endif
