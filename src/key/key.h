/*
 * Keys: what is derived from a secret, and how bytes are sealed under a key. By OpenSSL's libcrypto.
 *
 * Derived keys are HKDF-SHA-256 (RFC 5869) of a secret, with a salt and a label, so that what one of them opens tells
 * nothing of the others. Sealed bytes are AES-256-GCM with a random nonce of 96 bits: NONCE, the bytes enciphered, 16
 * bytes that authenticate these and what they are bound to. A key may seal 2^32 times; here each does a handful of
 * times.
 *
 * Memory that runs out, or an OpenSSL without these algorithms, ends the process as with g_malloc (). Thread-safe.
 */
#ifndef ECFS_KEY_KEY_H
#define ECFS_KEY_KEY_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

#define ECFS_KEY_BYTES        32
#define ECFS_KEY_SEALED_BYTES 28 /* that sealing adds */

/** Derives a key from @secret for the use that @label names; @salt sets apart what uses one label with one secret. */
void ecfs_key_derive (const void *secret, size_t secret_bytes, const void *salt, size_t salt_bytes, const char *label,
                      uint8_t ret_key[ECFS_KEY_BYTES]);

/**
 * Derives a key from a passphrase by scrypt (RFC 7914), which takes 128 × 2^log2_n × r bytes of memory.
 *
 * ERANGE when the parameters ask for more than 512 MiB, or for what scrypt cannot do: they may come from outside.
 * ENOMEM: there is not as much.
 */
bool ecfs_key_from_passphrase (const char *passphrase, const uint8_t *salt, size_t salt_bytes, unsigned log2_n,
                               unsigned r, unsigned p, uint8_t ret_key[ECFS_KEY_BYTES], GError **error);

/** @bytes sealed under @key and bound to @bound; g_byte_array_unref (). */
GByteArray *ecfs_key_seal (const uint8_t key[ECFS_KEY_BYTES], const void *bound, size_t bound_bytes, const void *bytes,
                           size_t size);

/**
 * What was sealed, for ecfs_key_forget_array (). EBADMSG: it was not sealed under this key, bound to this, or it is
 * damaged, which cannot be told apart.
 */
GByteArray *ecfs_key_open (const uint8_t key[ECFS_KEY_BYTES], const void *bound, size_t bound_bytes,
                           const uint8_t *sealed, size_t size, GError **error);

/** Overwrites a secret that is no longer needed, also where a compiler sees that nobody reads it. */
void ecfs_key_forget (void *bytes, size_t size);
/** The same, and frees it; NULL is accepted. */
void ecfs_key_forget_array (GByteArray *bytes);

#endif
