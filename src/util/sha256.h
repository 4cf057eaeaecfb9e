/*
 * SHA-256 by OpenSSL, with the instructions that the processor has for it: about 0.6 s of a processor for each GiB, and
 * 2 to 4 s where it has none. Not thread-safe: one state is one caller's at a time.
 *
 * It can be stopped and gone on with elsewhere: what it is after whole blocks is eight words (FIPS 180-4, the
 * intermediate hash value). Only OpenSSL's old interface gives them away.
 */
#ifndef ECFS_UTIL_SHA256_H
#define ECFS_UTIL_SHA256_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECFS_SHA256_SIZE        32
#define ECFS_SHA256_BLOCK_BYTES 64

typedef struct EcfsSha256 EcfsSha256;

EcfsSha256 *ecfs_sha256_new (void);
void ecfs_sha256_update (EcfsSha256 *self, const void *bytes, size_t size);
/** The digest of all so far, and the state is as if it were new. */
void ecfs_sha256_end (EcfsSha256 *self, uint8_t ret_digest[ECFS_SHA256_SIZE]);
/** What it is between blocks, each word with its highest byte first. False: so far there were no whole ones. */
bool ecfs_sha256_state (const EcfsSha256 *self, uint8_t ret_state[ECFS_SHA256_SIZE]);
/** As if it had taken @size bytes, whole blocks, after which it was @state. */
void ecfs_sha256_resume (EcfsSha256 *self, const uint8_t state[ECFS_SHA256_SIZE], uint64_t size);
/** NULL is accepted. */
void ecfs_sha256_free (EcfsSha256 *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsSha256, ecfs_sha256_free)

#endif
