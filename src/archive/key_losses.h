/*
 * How much may vanish of an archive whose files can still be read then, so that its key has to come back then, too. It
 * is counted in zones, whose endpoints have one share of the key between them, and in endpoints, as a share that only
 * one endpoint of its zone still has is lost with that one.
 */
#ifndef ECFS_ARCHIVE_KEY_LOSSES_H
#define ECFS_ARCHIVE_KEY_LOSSES_H

#include "archive/common.h"
#include "archive/key_count.h"
#include "archive/key_shares.h"

/**
 * How many holders of stripes may vanish at most so that no object lacks more than @tolerance of its @n stripes then,
 * wherever placement has put them.
 *
 * @rooms: how many stripes of one object each of the @n_holders takes at most; placement fills them evenly
 */
unsigned ecfs_key_most_losses (const unsigned *rooms, size_t n_holders, unsigned n, unsigned tolerance);

/** Raises @losses to what files of this code survive. @zones: that of each endpoint; borrowed. */
void ecfs_key_losses_add (EcfsKeyLosses *losses, const char *const *zones, size_t n_endpoints, bool allow_double,
                          const EcfsCodec *codec);

/**
 * That of all codes in use, once ecfs_archive_load_codes () has loaded them; less than all zones and all endpoints.
 * Small files are stored as copies, which may survive the loss of more zones than the code in whose place they are:
 * what counts is that code.
 *
 * @without: an endpoint that is about to go; may be NULL
 */
void ecfs_archive_losses (EcfsArchive *self, const EcfsArchiveEndpoint *without, EcfsKeyLosses *ret_losses);

/**
 * Whether files may be stored with @codec where @threshold zones bring the key back: as many as they could do without
 * must not. @told: what the catalog knows of it, for which codes it was shared before all; else by the @zones of the
 * endpoints. EINVAL with what to do.
 */
bool ecfs_key_allows (const EcfsKeySlotsTold *told, unsigned threshold, const char *const *zones, size_t n_endpoints,
                      bool allow_double, const EcfsCodec *codec, GError **error);

/**
 * How many zones are to bring the key back: more than may be lost or lie together, and no more than are left then.
 * Among these as many that the endpoints that may vanish could not either, if each were in another zone. EDOM: no
 * number is both.
 */
bool ecfs_key_threshold (unsigned n_zones, const EcfsKeyLosses *losses, unsigned *ret_threshold, GError **error);

/** Adds to @stored, of EcfsZoneShare, what the endpoint at @position has of @shares now. */
void ecfs_key_note_stored (const EcfsArchive *self, const EcfsKeyShares *shares, size_t position, GArray *stored);

/** Tells the catalog how the key is kept (ecfs_key_shares_tell ()), and which codes are allowed with that from now on:
 * those that survive the loss of as many stripes as the codes in use. */
bool ecfs_archive_tell_key (EcfsArchive *self, const EcfsKeyShares *shares, GError **error);
/** Takes over key slots that another machine has added or removed, from the endpoints; into the archive directory,
 * too, where that is open for writing. ESTALE, with what to do: no endpoint has them to show. Blocks. */
bool ecfs_archive_renew_key_slots (EcfsArchive *self, GError **error);
/** Where the catalog does not know which are, as when an earlier ecfs or a recovery without the journal has made it:
 * the code of ecfs.conf is, too. */
bool ecfs_archive_settle_codes (EcfsArchive *self, GError **error);
/** ecfs_key_allows () of an archive; true where its key is not shared. */
bool ecfs_archive_allows (EcfsArchive *self, const EcfsCodec *codec, GError **error);

#endif
