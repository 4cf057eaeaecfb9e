/*
 * Whether endpoints still have their shares of an archive's key, which count as copies of the journal do: what too few
 * have is lost with this machine. Each endpoint is asked for its share, one small file, in its own time; what was seen
 * is remembered as long as the archive is open, and what is lost also in the catalog.
 *
 * A mount looks by itself: when it begins, hourly, when an endpoint comes up, and when ways to open the key came or
 * went. It stores shares again that are gone or damaged, and removes files of older revisions. A file that makes sense
 * and is not what was stored stays as it is: somebody made it, and that is told.
 *
 * Life cycle: new () → look (), await (), sight () and so on, by any thread → free (), after the endpoints were
 * stopped.
 */
#ifndef ECFS_ARCHIVE_KEY_WATCH_H
#define ECFS_ARCHIVE_KEY_WATCH_H

#include "archive/common.h"
#include "archive/key_losses.h"

typedef struct EcfsKeyWatch EcfsKeyWatch;

/* How often the share of an endpoint that has it is looked at again; for tests to change. */
extern _Atomic int64_t ecfs_key_watch_again_us;

/** NULL where the archive has no key. */
EcfsKeyWatch *ecfs_key_watch_new (EcfsArchive *archive);
/** That of an archive that is started; NULL also where endpoints have nothing of the key. */
EcfsKeyWatch *ecfs_archive_key_watch (const EcfsArchive *archive);
/** NULL is accepted. */
void ecfs_key_watch_free (EcfsKeyWatch *self);

/** From now on looks by itself and stores again what is lost; for a mount that writes. NULL is accepted, as by all
 * that follow. */
void ecfs_key_watch_begin (EcfsKeyWatch *self);
/** No more; before endpoints are stopped. */
void ecfs_key_watch_end (EcfsKeyWatch *self);

/** Looks at all endpoints that are not down; returns at once. */
void ecfs_key_watch_look (EcfsKeyWatch *self);
/** Waits until no endpoint owes an answer, or until @deadline_us. */
void ecfs_key_watch_await (EcfsKeyWatch *self, int64_t deadline_us);

typedef enum EcfsKeySight {
    ECFS_KEY_UNSEEN, /* it was not asked, or has not answered */
    ECFS_KEY_THERE,
    ECFS_KEY_LOST,  /* it is missing or damaged */
    ECFS_KEY_OTHER, /* what is there is not what was stored, or cannot be read */
} EcfsKeySight;

typedef struct EcfsKeySeen {
    EcfsKeySight sight;
    unsigned x;   /* which share it has as far as is known; 0: none. One that is UNSEEN has what its zone was given. */
    char *reason; /* why it is not, as a sentence about the endpoint; NULL: it is, or nothing is known; g_free () */
} EcfsKeySeen;

/** What was seen last at the endpoint at @position. */
EcfsKeySeen ecfs_key_watch_sight (EcfsKeyWatch *self, size_t position);

/** How many zones bring the key back, those that only need something beside it too: at least 1, by the slots that are
 * left. */
unsigned ecfs_key_needed (const EcfsArchive *archive);
/** What may be lost: as much as the codes in use do without, but fewer zones than bring the key back.
 * @without: an endpoint that is about to go; may be NULL. */
void ecfs_key_losses (EcfsArchive *archive, const EcfsArchiveEndpoint *without, EcfsKeyLosses *ret_losses);

/**
 * Whether the key comes back without this machine and as many zones as may be lost, from what is known of the shares:
 * only where that is too little, endpoints are asked anew, for some seconds at most. EIO with what to do: it does not;
 * ECANCELED: @goes_on (may be NULL) said so. An archive whose key is not shared has nothing to confirm.
 */
bool ecfs_archive_confirm_key (EcfsArchive *self, bool (*goes_on) (void *user), void *user, GError **error);

/**
 * Before an endpoint gets the share of @zone: where the catalog knows of none because the zone was made of others in
 * ecfs.conf, one that its endpoints have is the zone's from now on, so that it does not get one more. @except: one that
 * does not count; may be NULL. ENOTCONN: which they have cannot be told now.
 */
bool ecfs_archive_settle_share (EcfsArchive *self, const char *zone, const EcfsArchiveEndpoint *except, GError **error);
/** The same before the endpoint @name is begun anew; one that there is not is left to whoever does that. */
bool ecfs_archive_settle_renewed (EcfsArchive *self, const char *name, GError **error);

#endif
