/*
 * What the parts of status.h share: status.c (an archive), status_objects.c (how safe what is stored is), info.c (a
 * file), probe.c (asking endpoints), status_past.c (history), status_follow.c (who follows), status_repairs.c (damage),
 * status_events.c (the command that is told), and status_key.c (shares of the key).
 */
#ifndef ECFS_VERBS_STATUS_PRIV_H
#define ECFS_VERBS_STATUS_PRIV_H

#include "archive/common.h"
#include "verbs/status.h"
#include "verbs/survey.h"

void ecfs_status_add_uuid (JsonObject *object, const char *member, const EcfsUuid *uuid);

/* A question to all endpoints. Lives until the last answer is in, which may be after whoever asked went on. */
typedef struct EcfsProbe EcfsProbe;

/* What asking has found out about one endpoint, beyond what its health tells. */
typedef struct EcfsFound {
    bool space_known;
    uint64_t free_bytes;
    const char *word; /* its state for now; NULL: as its health tells it */
    char *reason;     /* owned */
} EcfsFound;

/** Asks; for ecfs_probe_end (). */
EcfsProbe *ecfs_probe_new (EcfsArchive *archive);
/** Waits until @deadline_us at most. EcfsFound of all endpoints, by position; g_array_unref (). */
GArray *ecfs_probe_end (EcfsProbe *self, EcfsArchive *archive, int64_t begun_us, int64_t deadline_us);

/** The word for an endpoint's state, with the connection seen from this process. */
const char *ecfs_status_state_word (const EcfsArchiveEndpoint *endpoint, const EcfsEndpointHealth *health);
/** How many requests of each class ended there. */
void ecfs_status_add_counts (JsonObject *facts, EcfsEndpoint *endpoint);
/** Whether it is connected, how fast it is, and what moved. */
void ecfs_status_add_health (JsonObject *facts, const EcfsEndpointHealth *health);

/** What became of the command on_event, as "events"; nothing where it never ran. */
void ecfs_status_add_events (JsonObject *status, EcfsArchive *archive);

/** What endpoints retain, a row for each that does, and how many stripes that is in all. */
bool ecfs_status_add_retained (JsonObject *status, EcfsArchive *archive, uint64_t *ret_n_stripes, GError **error);

/** The queue of repairs, of which @rows (EcfsRepairRow) is all, and what became of it behind this mount. */
void ecfs_status_add_repairs (JsonObject *status, EcfsArchive *archive, const GArray *rows);

/** How safe what is stored is, where the facts of the endpoints, of which asking has @found something, are told
 * already; and what @survey (may be NULL) adds to that. */
bool ecfs_status_add_objects (JsonObject *status, EcfsArchive *archive, const GArray *found, EcfsSurvey *survey,
                              GError **error);

/** How far a mount is that follows, which may be gone since; nothing where there was none. */
void ecfs_status_add_follow (JsonObject *status, EcfsArchive *archive);

/** What only the past has, and since when it is kept. */
bool ecfs_status_add_past (JsonObject *status, EcfsArchive *archive, GError **error);

/** What policies would move now, as "policy" with "files" and "content_bytes", neither where there are very many files,
 * or "error"; nothing where there are no policies. */
bool ecfs_status_add_policy (JsonObject *status, EcfsArchive *archive, GError **error);

/** The archive's key, and how many zones have their shares of it; also with each of the endpoints that are there. */
bool ecfs_status_add_key (JsonObject *status, EcfsArchive *archive, const GArray *found, GError **error);

/** The state of a stripe at an endpoint: what readers met of it, which @repairs tells, comes before whether the
 * endpoint can be reached. */
void ecfs_status_add_stripe (JsonObject *facts, const EcfsArchiveEndpoint *endpoint, const GArray *repairs,
                             unsigned index);

#endif
