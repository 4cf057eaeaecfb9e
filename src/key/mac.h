/*
 * A keyed hash: HMAC-SHA-256 (RFC 2104), by OpenSSL's libcrypto. The same key and bytes give the same hash, so that
 * what is stored twice compares equal; without the key nobody can make it.
 *
 * Immutable and reference-counted: any number of threads may use one at once.
 */
#ifndef ECFS_KEY_MAC_H
#define ECFS_KEY_MAC_H

#include "key/key.h"

#define ECFS_MAC_BYTES 32

typedef struct EcfsMac EcfsMac;

/** For ecfs_mac_unref (). */
EcfsMac *ecfs_mac_new (const uint8_t key[ECFS_KEY_BYTES]);
EcfsMac *ecfs_mac_ref (const EcfsMac *self);
/** The last reference forgets the key; NULL is accepted. */
void ecfs_mac_unref (const EcfsMac *self);

/** The hash of @head and, behind it, @bytes. */
void ecfs_mac_compute (const EcfsMac *self, const void *head, size_t head_bytes, const void *bytes, size_t size,
                       uint8_t ret_mac[ECFS_MAC_BYTES]);

#endif
