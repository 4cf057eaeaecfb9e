/*
 * The inside of lineage.h: lineage.c (what endpoints are asked, and the session), lineage_judge.c (what their answers
 * amount to), lineage_mend.c (markers that are not authentic are written anew), lineage_told.c (what others want to
 * know of that).
 */
#ifndef ECFS_ARCHIVE_LINEAGE_PRIV_H
#define ECFS_ARCHIVE_LINEAGE_PRIV_H

#include "archive/archive_priv.h"
#include "archive/lineage.h"
#include "archive/marks.h"

/* Older answers are none: they allow no deletion, and deny nothing. */
#define ECFS_LINEAGE_FRESH_US (60 * G_USEC_PER_SEC)

typedef enum EcfsWitnessRound {
    ROUND_FIRST, /* what there is to ask */
    ROUND_MARK,  /* our marker is written */
    ROUND_CHECK, /* what is there behind that */
    ROUND_AGAIN, /* the marker alone */
} EcfsWitnessRound;

/* What one endpoint was asked and has told. */
typedef struct EcfsWitness {
    EcfsLineage *lineage;
    size_t position;
    EcfsWitnessRound round; /* under way or the last; guarded by the lineage's lock, as all below */
    unsigned n_asked;       /* answers of it that are due */
    bool failed;            /* one of them was none */
    bool answered;          /* the first round was, once */
    bool checked;           /* … and the second */
    unsigned n_ending;      /* threads that begin what follows from rounds that ended */
    bool told;              /* that it disagrees, or is doubtful, is in the log, … */
    bool told_back;         /* … and that its marker was set back */
    int64_t asked_us;       /* by ecfs_lineage_clock_us (), when the round was begun */
    int64_t known_us;       /* when what was answered last was asked */
    int64_t marked_us;      /* when our marker was written, or could not be; 0: never */
    EcfsMarker marker;      /* as read last, … */
    EcfsMarkerWorth worth;  /* … what it is worth, … */
    bool is_foreign;        /* … and of a session that is not the catalog's */
    bool is_forked;         /* it has a segment of the journal that the catalog contradicts; stays */
    uint32_t listed_epoch;  /* of the newest journal file of the last listing, … */
    uint64_t listed_sequence;
    bool is_newer;          /* it says something newer */
    int64_t claim_moved_us; /* when what it says of a claim was another last, … */
    int64_t claim_heard_us; /* … and when it was heard last; 0: there is none */
    uint64_t n_segments;
    GPtrArray *left; /* names of what uploads of journal files and markers left that a crash ended; owned */
} EcfsWitness;

struct EcfsLineage {
    EcfsArchive *archive;     /* immutable, as the next three */
    uint64_t opened;          /* the catalog's sequence before this process changed anything, … */
    size_t n_opened;          /* … and its endpoints: later ones are of its making */
    EcfsSnapshotRow snapshot; /* … and the last snapshot; sequence 0: there was none */
    atomic_bool announced;    /* the session is where it could be told */
    EcfsMutex lock;
    EcfsCond changed;
    EcfsWitness *witnesses; /* ECFS_ENDPOINTS_MAX; guarded by lock, as the rest */
    EcfsMarker own;         /* what markers are to say, but for the endpoint; session_number 0: not yet */
    unsigned n_due;
    bool is_stale;
    bool is_copy; /* stale, whatever endpoints say; never again false */
    bool is_held; /* something may be newer, and what would say so does not answer; or a recovery is under way */
    bool is_hold_of_claim;
    char *reason;      /* of is_stale; stays as it is until reconsidered, … */
    char *hold;        /* … and of is_held */
    bool awaited;      /* from here on nobody but the log is told */
    EcfsUuid claimant; /* the session of the recovery whose claim was heard last */
    bool stopping;
};

/* The answers of all that count. */
typedef struct EcfsWeights {
    size_t n_all, n_silent, n_newer, n_claimed;
    const EcfsWitness *newer, *claimed; /* one of them */
} EcfsWeights;

/** Goes on while the machine is suspended. */
int64_t ecfs_lineage_clock_us (void);

static inline bool ecfs_lineage_is_asked (const EcfsArchiveEndpoint *endpoint)
{
    return ecfs_archive_endpoint_counts (endpoint);
}

/** Whether it has answered what was asked at @since_us or later, by a marker that is authentic. */
static inline bool ecfs_lineage_has_answered (const EcfsWitness *self, int64_t since_us)
{
    return self->answered && self->known_us >= since_us && self->worth == ECFS_MARKER_AUTHENTIC;
}

/* lineage.c */

/** Asks what was not asked since @since_us: all that there is to the first questions, and later the marker alone. */
void ecfs_lineage_ask_since (EcfsLineage *self, int64_t since_us);
/** Takes what a marker says. ENOTCONN: it is of another archive; EBADMSG: it is not authentic. */
bool ecfs_lineage_hear (EcfsWitness *self, const EcfsMarker *marker, GError **error);
/** A marker could not be read: what there is in its place may be none. */
void ecfs_lineage_hear_broken (EcfsWitness *self, const GError *error);

/* lineage_judge.c */

bool ecfs_lineage_is_claimed_locked (const EcfsLineage *lineage, const EcfsWitness *self, int64_t now_us)
    ECFS_REQUIRES (lineage->lock);
/** What is wrong with the endpoint's marker; NULL: nothing. g_free () */
char *ecfs_lineage_doubt_locked (const EcfsLineage *lineage, const EcfsWitness *self) ECFS_REQUIRES (lineage->lock);
/** Whether our marker is to take the place of one without a MAC. */
bool ecfs_lineage_replaces_locked (EcfsLineage *self, const EcfsWitness *witness) ECFS_REQUIRES (self->lock);
/** Whether so many have denied what was asked at @since_us or later that anything newer were known to more of them than
 * may lie. True where the archive has no key. */
bool ecfs_lineage_is_denied_locked (EcfsLineage *self, int64_t since_us) ECFS_REQUIRES (self->lock);
/** What an endpoint says that is newer; g_free () */
char *ecfs_lineage_describe_locked (const EcfsLineage *lineage, const EcfsWitness *self) ECFS_REQUIRES (lineage->lock);
/** Answers to what was asked before @since_us are none. */
EcfsWeights ecfs_lineage_weigh_locked (EcfsLineage *self, int64_t since_us) ECFS_REQUIRES (self->lock);
/** Whether a statement of so many stands while so many others are silent. */
bool ecfs_lineage_counts (const EcfsLineage *self, size_t n_say, size_t n_silent);
bool ecfs_lineage_is_any_asked_locked (EcfsLineage *self) ECFS_REQUIRES (self->lock);
/** Whether the catalog's database has become an older one: then the archive is an old copy. */
void ecfs_lineage_look_at_catalog_locked (EcfsLineage *self) ECFS_REQUIRES (self->lock);
/** What all that is known amounts to. */
void ecfs_lineage_judge_locked (EcfsLineage *self) ECFS_REQUIRES (self->lock);
/** The first answers are in: what may be newer is, unless enough deny it. */
void ecfs_lineage_judge_first_locked (EcfsLineage *self) ECFS_REQUIRES (self->lock);
/** Whether what the endpoint says is newer than the catalog, which ends at @now. */
void ecfs_lineage_look_locked (const EcfsLineage *lineage, EcfsWitness *self, uint64_t now)
    ECFS_REQUIRES (lineage->lock);
/** Whether so many have answered what was asked at @since_us or later that one of them knows what `ecfs wait` has
 * promised. */
bool ecfs_lineage_is_sure_locked (EcfsLineage *self, int64_t since_us) ECFS_REQUIRES (self->lock);
bool ecfs_lineage_is_trusted_locked (EcfsLineage *self, size_t position) ECFS_REQUIRES (self->lock);
bool ecfs_lineage_may_write_locked (EcfsLineage *self, size_t position) ECFS_REQUIRES (self->lock);

#endif
