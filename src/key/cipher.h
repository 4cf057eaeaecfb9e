/*
 * A stream cipher that begins anywhere: AES-256-CTR, the counter a block's number from 0, by OpenSSL's libcrypto.
 * Enciphering twice gives the first bytes. A key is for one text only: two that were enciphered under one key tell what
 * they differ in.
 *
 * Of one thread at a time.
 */
#ifndef ECFS_KEY_CIPHER_H
#define ECFS_KEY_CIPHER_H

#include "key/key.h"

typedef struct EcfsCipher EcfsCipher;

/** What follows is the text from byte @offset on. For ecfs_cipher_free (). */
EcfsCipher *ecfs_cipher_new (const uint8_t key[ECFS_KEY_BYTES], uint64_t offset);
/** The next @size bytes of the text, in place. */
void ecfs_cipher_next (EcfsCipher *self, uint8_t *bytes, size_t size);
void ecfs_cipher_free (EcfsCipher *self); /* NULL is accepted */

#endif
