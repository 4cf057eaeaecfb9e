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
/** Of who does not lead, while others change the archive: what endpoints know counts against what the catalog has when
 * they have told it. Nothing but ask () and await () is for it. */
EcfsLineage *ecfs_lineage_new_beside (EcfsArchive *archive);
/** NULL is accepted. */
void ecfs_lineage_free (EcfsLineage *self);

/** Asks the endpoints that are up and have not answered, or not of late; never waits. */
void ecfs_lineage_ask (EcfsLineage *self);

/* How often markers are read again, how long a claim stands that does not move, and how long to wait at most for the
 * session's marker to be taken, by however many; for tests to change. */
extern _Atomic int64_t ecfs_lineage_again_us, ecfs_lineage_claim_us, ecfs_lineage_told_us;

/** Nothing more is begun: before endpoints are stopped. NULL is accepted. */
void ecfs_lineage_end (EcfsLineage *self);

/**
 * Waits until all that were asked have answered, @sure_deadline_us when enough have, or @deadline_us. ESTALE with what
 * to do when endpoints know of something newer: so many that with those that have not answered they could be more than
 * may lie.
 */
bool ecfs_lineage_await (EcfsLineage *self, int64_t deadline_us, int64_t sure_deadline_us, GError **error);

/** Begins a session, durably in the catalog, and to tell the endpoints; after await, before anything is changed. */
bool ecfs_lineage_begin_session (EcfsLineage *self, GError **error);
/**
 * Waits until the endpoints that are up have been told of the session, and have told what was there behind that; at the
 * latest at @deadline_us, or when so many have that nobody else can miss it, @enough_deadline_us. What is acknowledged
 * before could be lost to another copy that begins at the same time.
 */
void ecfs_lineage_await_session (EcfsLineage *self, int64_t deadline_us, int64_t enough_deadline_us);

/** Whether its answer is due. */
bool ecfs_lineage_is_asking (EcfsLineage *self, size_t position);
/** Whether journal may be stored there: it has answered, and so many others that one of them would know of anything
 * newer. NULL, of who does not lead: never; so with the next. */
bool ecfs_lineage_may_write (EcfsLineage *self, size_t position);
/** Whether something may be deleted there: the same, with answers of late; and with a key, of so many that an older
 * marker that some of them show can hide nothing. */
bool ecfs_lineage_may_delete (EcfsLineage *self, size_t position);
/**
 * Waits until an endpoint that is up has been told of a session that has just begun, until @deadline_us at the latest
 * (ecfs_lineage_told_us from now on): before what is not tried again, so that one that is only slow is not taken for
 * one that disagrees.
 */
void ecfs_lineage_await_told (EcfsLineage *self, size_t position, int64_t deadline_us);
/** Reads the marker there, and then may_delete (): before deletions. Blocks as long as the endpoint does. */
bool ecfs_lineage_confirm (EcfsLineage *self, size_t position);

/**
 * Reads the markers, all at once: whether what is at the endpoints that are flagged in @stored stays the archive's, and
 * so many have it and so many others have answered that whoever recovers it finds it. ESTALE: it may not stay, and why;
 * EAGAIN: too few have answered or have it.
 */
bool ecfs_lineage_confirm_stored (EcfsLineage *self, const bool *stored, size_t n_endpoints,
                                  bool (*goes_on) (void *user), void *user, GError **error);
/**
 * While it is held, reads the markers once more: the recovery that it is held for may have ended since. Blocks for ten
 * seconds at most, or until @goes_on says no.
 */
void ecfs_lineage_reconsider_hold (EcfsLineage *self, bool (*goes_on) (void *user), void *user);
/**
 * Reads the markers: whether what this process has changed is in the newest copy, as far as the endpoints that answer
 * know. ESTALE: somebody else has a newer one, without these changes.
 */
bool ecfs_lineage_confirm_newest (EcfsLineage *self, bool (*goes_on) (void *user), void *user, GError **error);
/** Why nothing is deleted, where the archive has a key and too few endpoints have denied of late, by authentic markers,
 * that there is a newer copy; NULL: enough have, or trouble () tells why. g_free () */
char *ecfs_lineage_deletions_wait (EcfsLineage *self);
/**
 * Writes a marker anew that is damaged or not authentic, while so many others confirm that this is the newest copy that
 * nothing is lost with what it said. EPERM: it is not one to write to; EAGAIN: too few confirm that; EIO: the endpoint
 * does not keep it. Blocks, for seconds.
 */
bool ecfs_lineage_mend (EcfsLineage *self, size_t position, GError **error);
/** The clock of its times. */
int64_t ecfs_lineage_now_us (void);
/** Has the markers read now, and waits until enough have answered, or until @deadline_us. Thread-safe. */
void ecfs_lineage_look (EcfsLineage *self, int64_t deadline_us);
/** When the endpoint was asked that answered last, if it told of nothing newer then; else 0. */
int64_t ecfs_lineage_denied_us (EcfsLineage *self, size_t position);
/** Whether what the endpoint stores does not count: its marker, as it was read last, is not authentic, or tells of a
 * newer copy or of a recovery under way. */
bool ecfs_lineage_discounts (EcfsLineage *self, size_t position);
/** Segments of the journal are there that only this catalog could have made, and it did not. */
void ecfs_lineage_foreign_segments (EcfsLineage *self, const size_t *positions, size_t n);
/** With which record the newest file of the journal ends that the endpoint listed, in the catalog's epoch; 0: it has
 * none, or has not answered. */
uint64_t ecfs_lineage_listed (EcfsLineage *self, size_t position);
/** Other endpoints count than before. */
void ecfs_lineage_reconsider (EcfsLineage *self);

/** How many segments of the journal one of them had, when it was asked first, behind the last snapshot of then. */
uint64_t ecfs_lineage_n_segments (EcfsLineage *self);

/** Whether so many endpoints have answered that one of them would know. */
bool ecfs_lineage_is_sure (EcfsLineage *self);

/** Whether the archive is an old copy. */
bool ecfs_lineage_is_stale (EcfsLineage *self);
/** What an endpoint says that too few others do; NULL: nothing. g_free () */
char *ecfs_lineage_disagreement (EcfsLineage *self, size_t position);
/** Why the endpoint's marker is not believed; NULL: it is, or was not read. g_free () */
char *ecfs_lineage_false_marker (EcfsLineage *self, size_t position);

/** Somebody else who has the archive, or is about to take it over. */
typedef struct EcfsLineageOther {
    uint32_t epoch;
    int64_t since_s;                  /* seconds since 1970; 0: not told */
    char host[ECFS_MARKER_HOST_SIZE]; /* empty: not told */
    unsigned n_endpoints;             /* that say so */
} EcfsLineageOther;

/** Whose copy is newer, by the newest marker that says so. False: none does. */
bool ecfs_lineage_successor (EcfsLineage *self, EcfsLineageOther *ret_other);
/** Who recovers the archive just now, or did when it was killed less than two minutes ago, as far as this process has
 * seen. False: nobody. */
bool ecfs_lineage_claim (EcfsLineage *self, EcfsLineageOther *ret_other);

/** Why the archive is an old copy, or may be one or become one just now; NULL: nothing says so. g_free () */
char *ecfs_lineage_trouble (EcfsLineage *self);

#endif
