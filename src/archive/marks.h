/*
 * Whether a marker is what the archive wrote there. Where the archive has a key, a marker has the key's id and a MAC
 * (HMAC-SHA-256, under the key for ECFS_KEY_USE_MARKER) of all that it says, so nobody makes one without the key, and
 * none counts at another endpoint or for another archive. An older one that was authentic stays so: it lags, as one of
 * an endpoint that was away does.
 *
 * Pure functions: any thread.
 */
#ifndef ECFS_ARCHIVE_MARKS_H
#define ECFS_ARCHIVE_MARKS_H

#include "endpoint/endpoint.h"
#include "key/ring.h"

typedef enum EcfsMarkerWorth {
    ECFS_MARKER_AUTHENTIC,   /* or neither the archive nor the marker has a key */
    ECFS_MARKER_UNKNOWN_KEY, /* no forgery: there is a key that is not here. Whoever has this one leaves it alone */
    ECFS_MARKER_UNSIGNED,    /* it has no MAC, and the archive has a key */
    ECFS_MARKER_FORGED,      /* its MAC does not fit */
    ECFS_MARKER_MISPLACED,   /* it is another endpoint's */
    ECFS_MARKER_BROKEN,      /* what is there is no marker */
} EcfsMarkerWorth;

/** The marker becomes one under the active key, of all that it says now; without @keys, one without a key. */
void ecfs_marker_sign (EcfsMarker *marker, const EcfsKeyRing *keys);

/**
 * What a marker that was read is worth. @keys: NULL where the archive has no key; @endpoint: whose it is to be, or NULL
 * where any will do. Without a key whose it is was judged already, when the endpoint was connected to.
 */
EcfsMarkerWorth ecfs_marker_judge (const EcfsMarker *marker, const EcfsKeyRing *keys, const EcfsUuid *endpoint);

/** Whether what a marker of that worth says is not to be believed, whoever else says it. */
static inline bool ecfs_marker_is_doubtful (EcfsMarkerWorth worth)
{
    return worth >= ECFS_MARKER_UNSIGNED;
}

/** What is wrong with a marker, "its marker …"; NULL: nothing. g_free () */
char *ecfs_marker_fault (const EcfsMarker *marker, EcfsMarkerWorth worth);

#endif
