/*
 * How a reader chooses among the stripes of an object. The default asks whatever makes a segment decodable soonest and
 * hedges what is late; the parameters of Collins and Plank (Assessing the Performance of Erasure Codes in the
 * Wide-Area, 2005) are there to be compared with it. A packet is what one stripe has of one segment.
 */
#ifndef ECFS_OBJECT_POLICY_H
#define ECFS_OBJECT_POLICY_H

#include "util/error.h"

typedef enum EcfsSelection {
    ECFS_SELECT_SOONEST,  /* by forecast, behind what is queued there */
    ECFS_SELECT_FASTEST0, /* always the fastest, whatever is queued */
    ECFS_SELECT_FASTEST1, /* the same, each transfer under way there counting like the packet itself */
} EcfsSelection;

typedef enum EcfsPreference {
    ECFS_PREFER_SOONEST, /* data while it is hardly later than parity */
    ECFS_PREFER_DATA,    /* data wherever it can be had */
    ECFS_PREFER_NONE,    /* parity as gladly */
} EcfsPreference;

typedef struct EcfsReadPolicy {
    unsigned transfers;   /* T: packets of a reader under way at once; 0: all that readahead asks for */
    unsigned replication; /* R: packets under way for each that is missing; 0: late ones are hedged by forecast */
    unsigned failover;    /* P: with R > 1: a packet is late once so many that were asked later have come */
    EcfsSelection selection;
    EcfsPreference preference;
    bool cheap;             /* what costs least, among what is fast enough */
    unsigned hedge_percent; /* of received bytes that may be beyond what was needed; where R is 0 */
} EcfsReadPolicy;

#define ECFS_HEDGE_PERCENT 5

/** The policy of decision 13. */
void ecfs_read_policy_init (EcfsReadPolicy *self);

/**
 * Parses "default", or a list such as "T=20,R=2,P=6,fastest1,data-first" of what is different; @ret_policy keeps its
 * hedge_percent and cheap. EINVAL with what is wrong.
 */
bool ecfs_read_policy_parse (const char *text, EcfsReadPolicy *ret_policy, GError **error);

/** The text that ecfs_read_policy_parse () reads back to the same; g_free (). */
char *ecfs_read_policy_format (const EcfsReadPolicy *self);

#endif
