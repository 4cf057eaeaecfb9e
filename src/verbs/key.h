/* What a user keeps of an archive's keys, as words, and as slots are made and opened with it. */
#ifndef ECFS_VERBS_KEY_H
#define ECFS_VERBS_KEY_H

#include "archive/archive.h"
#include "archive/common.h"
#include "archive/key_losses.h"
#include "archive/key_open.h"
#include "ecfs/ecfs.h"

#include <json-glib/json-glib.h>

/* How a key is to be kept; holds secrets. */
typedef struct EcfsKeepingRead {
    EcfsKeeping how;
    EcfsKeyOpener opener; /* points into what follows, and into what was read */
    uint8_t code[ECFS_CODE_BYTES];
    uint8_t public_key[ECFS_KEY_BYTES];
} EcfsKeepingRead;

/** EINVAL: these words make no sense, or the secret is not one that can be used. For ecfs_keeping_forget (); not to be
 * copied. */
bool ecfs_keeping_read (const EcfsKeyWay *way, EcfsKeepingRead *ret_keeping, GError **error);
void ecfs_keeping_forget (EcfsKeepingRead *keeping);

/** Zones of endpoints that get key files. */
unsigned ecfs_key_count_zones (const EcfsArchive *archive);
/** What the codes in use survive, and how many of the zones bring a shared key back then: ecfs_key_threshold (). */
bool ecfs_key_find_losses (EcfsArchive *archive, EcfsKeyLosses *ret_losses, GError **error);
bool ecfs_key_find_threshold (EcfsArchive *archive, unsigned *ret_threshold, GError **error);
/** Gives each endpoint its key file. ENOTCONN with the reasons: so few can take it that it would not bring the key back
 * when as much is lost as may be. @losses NULL: however few. Blocks. */
bool ecfs_key_put_shares (EcfsArchive *archive, const EcfsKeyShares *shares, const EcfsKeyLosses *losses,
                          GError **error);

/** Whether so many answer that ecfs_key_put_shares () may give them theirs, of which @threshold zones bring the key
 * back, as far as can be told without writing. Blocks. */
bool ecfs_key_check_reach (EcfsArchive *archive, unsigned threshold, const EcfsKeyLosses *losses, GError **error);

/** The kinds of slots that are left, each once, as words of ecfs-key(1). */
JsonArray *ecfs_key_slots_array (const EcfsKeyShares *shares);

/** What a user gives, as it is tried; borrowed. @secrets may be NULL. */
EcfsKeyGiven ecfs_key_given_of (const EcfsKeySecrets *secrets);

/** What the mount does where it is asked for a new key file: `behind` and `safe` in the reply. */
bool ecfs_key_change_here (EcfsArchive *archive, const uint8_t *bytes, size_t size, JsonObject *reply, GError **error);

#endif
