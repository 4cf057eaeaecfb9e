/*
 * How an archive's keys come back when this machine is lost: they are sealed under a secret, and each zone of endpoints
 * has a share of that (key/slots.h). As many zones as the threshold says bring it back, fewer learn nothing. An
 * endpoint has its share in the file "keys/GENERATION"; the archive directory has all but the shares in the file
 * "key-slots", and the catalog's settings say which share each zone has.
 *
 * Shares are derived from the archive's key, so that a zone that comes later gets one that goes with the others.
 */
#ifndef ECFS_ARCHIVE_KEY_SHARES_H
#define ECFS_ARCHIVE_KEY_SHARES_H

#include "catalog/catalog.h"
#include "codec/codec.h"
#include "endpoint/endpoint.h"
#include "key/ring.h"
#include "key/slots.h"

#define ECFS_KEY_SLOTS_NAME      "key-slots"
#define ECFS_KEY_SLOTS_NEXT_NAME "key-slots-next" /* of keys that are about to be in use */
#define ECFS_KEYS_DIRECTORY      "keys"           /* of an endpoint */

#define ECFS_KEY_SHARE_NAME_SIZE 64 /* of the name of an endpoint's file, with its NUL */

/* Immutable; any number of threads may use one at once. */
typedef struct EcfsKeyShares EcfsKeyShares;

/** Shares of @keys anew. For ecfs_key_shares_free (). */
EcfsKeyShares *ecfs_key_shares_new (const EcfsKeyRing *keys, unsigned threshold);
/** Those that an endpoint's file tells of, with the slots that open to these keys. EBADMSG: they are not of them. */
EcfsKeyShares *ecfs_key_shares_of (const EcfsKeyRing *keys, const EcfsKeyFile *file, GError **error);
/** Those of an archive directory; *ret_shares is NULL where its keys are not shared. ENOKEY: they are, and the file is
 * gone. */
bool ecfs_key_shares_load (const char *directory, EcfsCatalog *catalog, const EcfsKeyRing *keys,
                           EcfsKeyShares **ret_shares, GError **error);

/* What a catalog knows of how its archive's keys are kept. */
typedef struct EcfsKeySlotsTold {
    unsigned threshold; /* 0: no secret is shared */
    unsigned stripes;   /* that codes may survive the loss of where one is; 0: that was not told */
    bool has_kinds;     /* they were told */
    char kinds[64];     /* of slots, in words; empty: endpoints have no key files */
} EcfsKeySlotsTold;

/** Has the catalog know how keys are kept; and what it knows. */
bool ecfs_key_shares_tell (const EcfsKeyShares *self, EcfsCatalog *catalog, GError **error);
bool ecfs_key_shares_tell_none (EcfsCatalog *catalog, GError **error);
bool ecfs_key_slots_told (EcfsCatalog *catalog, EcfsKeySlotsTold *ret_told, GError **error);
/** Has the catalog know which key file is the newest; NULL: there is none. Part of ecfs_key_shares_tell (). */
bool ecfs_key_shares_tell_newest (const EcfsKeyShares *self, EcfsCatalog *catalog, GError **error);
/** ESTALE, with what to do: the catalog knows of a newer one, so these are not to be stored anywhere. */
bool ecfs_key_shares_check_newest (const EcfsKeyShares *self, EcfsCatalog *catalog, GError **error);
/** From now on codes may survive the loss of so many stripes. */
bool ecfs_key_shares_note_stripes (EcfsCatalog *catalog, unsigned stripes, GError **error);
/** The threshold of that alone; 0: no secret is shared. */
bool ecfs_key_shares_told (EcfsCatalog *catalog, unsigned *ret_threshold, GError **error);
/** Into an archive directory, durably. */
bool ecfs_key_shares_write (const EcfsKeyShares *self, const char *directory, GError **error);
/** The same, of keys that are about to be in use; and those that were written so, NULL where there are none of them. */
EcfsKeyShares *ecfs_key_shares_load_next (const char *directory, const EcfsKeyRing *keys);
bool ecfs_key_shares_write_next (const EcfsKeyShares *self, const char *directory, GError **error);

/** The catalog is told that key files of this generation are superfluous: they open to keys that are retired. */
bool ecfs_key_shares_note_former (EcfsCatalog *catalog, const EcfsUuid *generation, GError **error);
/** What the catalog was told of that counts for @self, which nobody else uses yet. */
bool ecfs_key_shares_recall_former (EcfsKeyShares *self, EcfsCatalog *catalog, GError **error);
void ecfs_key_shares_free (EcfsKeyShares *self); /* NULL is accepted */
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsKeyShares, ecfs_key_shares_free)

/** The key file but for the share of an endpoint; borrowed. */
const EcfsKeyFile *ecfs_key_shares_file (const EcfsKeyShares *self);
/** Zones that bring the keys back together. */
unsigned ecfs_key_shares_threshold (const EcfsKeyShares *self);

/** Gives an endpoint the key file with the share of its zone, which gets one where it has none, reads it back, and
 * removes older revisions. ESTALE as ecfs_key_shares_check_newest (). Blocks. */
bool ecfs_key_shares_put (const EcfsKeyShares *self, EcfsCatalog *catalog, EcfsEndpoint *endpoint, const char *zone,
                          GError **error);

/** Which of the shares an endpoint has, 0 where none is needed. ENOENT: it has not the file; or why that cannot be
 * told. Blocks. */
bool ecfs_key_shares_look (const EcfsKeyShares *self, EcfsEndpoint *endpoint, unsigned *ret_x, GError **error);

/* What a file is that was found in the place of an endpoint's. */
typedef enum EcfsShareVerdict {
    ECFS_SHARE_OURS,    /* just what some endpoint of the archive was given */
    ECFS_SHARE_DAMAGED, /* it makes no sense: what was there is lost */
    ECFS_SHARE_OTHER,   /* it makes sense, and is not what was stored */
} EcfsShareVerdict;

/** The name of the file at each endpoint. */
void ecfs_key_shares_file_name (const EcfsKeyShares *self, char ret_name[ECFS_KEY_SHARE_NAME_SIZE]);
/** That file with share @x, 0 for none, for ecfs_key_forget_array (). */
GByteArray *ecfs_key_shares_file_of (const EcfsKeyShares *self, unsigned x);
/** Judges such a file; *ret_x is which of the shares it has, 0 unless it is OURS. */
EcfsShareVerdict ecfs_key_shares_judge (const EcfsKeyShares *self, const GByteArray *bytes, unsigned *ret_x);
/** The file that an endpoint has, for ecfs_key_forget_array (); NULL: ENOENT, or why it cannot be read. Blocks. */
GByteArray *ecfs_key_shares_read (const EcfsKeyShares *self, EcfsEndpoint *endpoint, GError **error);
/** The keys that a slot of @file opens to with the shared @secret, for ecfs_key_ring_unref (); NULL: to none. */
EcfsKeyRing *ecfs_key_file_open (const EcfsKeyFile *file, const uint8_t secret[ECFS_SECRET_BYTES]);

/** Whether there can be files of older revisions or generations. */
bool ecfs_key_shares_may_have_older (const EcfsKeyShares *self);
/** Whether a file of that name is an older revision or of a generation before, which is not needed where this one is.
 */
bool ecfs_key_shares_is_older (const EcfsKeyShares *self, const char *name);
/** The names of older revisions that an endpoint still has, owned; g_ptr_array_unref (). Blocks. */
bool ecfs_key_shares_older (const EcfsKeyShares *self, EcfsEndpoint *endpoint, GPtrArray **ret_names, GError **error);
/** Takes what is left of shares away from an endpoint, as far as that goes. Blocks. */
void ecfs_key_shares_take_away (EcfsEndpoint *endpoint);

/** Whether the share in @file is one of these. */
bool ecfs_key_shares_has (const EcfsKeyShares *self, const EcfsKeyFile *file);
/** The catalog is told that share @x was found in a zone, unless it knows of another there, or of it elsewhere. */
bool ecfs_key_shares_note_found (EcfsCatalog *catalog, const char *zone, unsigned x, GError **error);

/** Which share the endpoints of a zone have by the catalog; *ret_x 0: it knows of none. */
bool ecfs_key_shares_of_zone (EcfsCatalog *catalog, const char *zone, unsigned *ret_x, GError **error);
/** The same, and where it knows of none, one that no zone had is the zone's from now on. ENOSPC: none is left. */
bool ecfs_key_shares_choose (EcfsCatalog *catalog, const char *zone, unsigned *ret_x, GError **error);
/** Share @x is the zone's from now on. */
bool ecfs_key_shares_give_zone (EcfsCatalog *catalog, const char *zone, unsigned x, GError **error);

/** Whether the name of a file at an endpoint is that of one with shares. */
bool ecfs_key_shares_is_name (const char *name);

#endif
