/*
 * The slots in an archive's key file: the ways in which its keys come back (key/slots.h), any one of which suffices.
 * Each change makes a new revision of the file, which is in its MAC and in its name at endpoints: keys/GENERATION, then
 * keys/GENERATION-2 and so on. The shares stay as they are, so that endpoints with different revisions bring the keys
 * back together, and slots that need a passphrase need not be made anew.
 *
 * The order of a change: the file in the archive directory, then each endpoint's, written and read back, then the older
 * one there is removed. So a crash leaves at each endpoint at least one that was whole.
 */
#ifndef ECFS_ARCHIVE_KEY_SLOTS_H
#define ECFS_ARCHIVE_KEY_SLOTS_H

#include "archive/key_shares.h"

/** Whether slots of this kind need the secret that endpoints share. */
bool ecfs_key_slot_is_shared (EcfsKeySlotKind kind);

/** Shares of @keys anew, or none where @threshold is 0; without a slot, and of no revision yet. */
EcfsKeyShares *ecfs_key_shares_empty (const EcfsKeyRing *keys, unsigned threshold);

/** A new slot for these; @opener has what its kind needs but for the shared secret. EINVAL. ecfs_key_slot_free () */
EcfsKeySlot *ecfs_key_shares_make_slot (const EcfsKeyShares *self, const EcfsKeyRing *keys, EcfsKeySlotKind kind,
                                        const EcfsKeyOpener *opener, GError **error);

/** The next revision, with one more slot, which is taken in any case; ENOSPC. ecfs_key_shares_free () */
EcfsKeyShares *ecfs_key_shares_with (const EcfsKeyShares *self, const EcfsKeyRing *keys, EcfsKeySlot *slot,
                                     GError **error);
/** The next revision, without a slot; ENOENT. ecfs_key_shares_free () */
EcfsKeyShares *ecfs_key_shares_without (const EcfsKeyShares *self, const EcfsKeyRing *keys, const EcfsUuid *slot,
                                        GError **error);
/** The same slots, and now also a secret that endpoints share, for ecfs_key_shares_with (); only where there was none.
 */
EcfsKeyShares *ecfs_key_shares_shared (const EcfsKeyShares *self, const EcfsKeyRing *keys, unsigned threshold);

/** Whether a retired one of these keys has signed @file: it opens to less than all of them. */
bool ecfs_key_file_is_former (const EcfsKeyFile *file, const EcfsKeyRing *keys);

bool ecfs_key_shares_has_kind (const EcfsKeyShares *self, EcfsKeySlotKind kind);
/** Whether what the endpoints share opens the keys, alone or with a passphrase: the threshold says nothing otherwise.
 */
bool ecfs_key_shares_are_needed (const EcfsKeyShares *self);
/** Whether no slot is left, as when the last one was removed: then nothing that endpoints have opens the keys. */
bool ecfs_key_shares_open_nothing (const EcfsKeyShares *self);

/** The kinds of slots that there are, in words, each once; g_free (). */
char *ecfs_key_shares_kinds (const EcfsKeyShares *self);

#endif
