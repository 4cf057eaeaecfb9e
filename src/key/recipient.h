/*
 * X25519 keys as people have them: files of `openssl genpkey -algorithm X25519`, in PEM (RFC 8410). The parsers take
 * bytes from anywhere.
 */
#ifndef ECFS_KEY_RECIPIENT_H
#define ECFS_KEY_RECIPIENT_H

#include "key/key.h"

/** The public key in a PEM text, or one as 44 characters of base 64. EBADMSG with what to do: there is none. */
bool ecfs_recipient_parse (const char *text, uint8_t ret_public[ECFS_KEY_BYTES], GError **error);

/** The private key in a PEM text, to be forgotten. EBADMSG with what to do: there is none that can be read. */
bool ecfs_identity_parse (const char *text, uint8_t ret_private[ECFS_KEY_BYTES], GError **error);

/** A public key in base 64; g_free (). */
char *ecfs_recipient_text (const uint8_t public_key[ECFS_KEY_BYTES]);

#endif
