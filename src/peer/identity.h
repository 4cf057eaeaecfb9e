/*
 * Who may talk to a peer: whoever has a certificate that the archive's key has signed. Each process makes one for
 * itself, for as long as it lives; nobody else has its private key. Immutable once made, any thread.
 */
#ifndef ECFS_PEER_IDENTITY_H
#define ECFS_PEER_IDENTITY_H

#include "key/key.h"
#include "util/uuid.h"

#include <openssl/ssl.h>

typedef struct EcfsPeerIdentity {
    X509 *authority; /* the same for all that have the key */
    X509 *certificate;
    EVP_PKEY *key;
} EcfsPeerIdentity;

/** @id: of the process, the name in its certificate. NULL: OpenSSL cannot. */
EcfsPeerIdentity *ecfs_peer_identity_new (const uint8_t key[ECFS_KEY_BYTES], const EcfsUuid *id);
/** NULL is accepted. */
void ecfs_peer_identity_free (EcfsPeerIdentity *self);

/** For a connection of either end: shows the certificate, and believes the authority alone. False: OpenSSL cannot. */
bool ecfs_peer_identity_show (const EcfsPeerIdentity *self, SSL_CTX *context);
/** For the serving end, SSL_CTX_free (): who shows no certificate of the authority's gets no connection. */
SSL_CTX *ecfs_peer_identity_serve (const EcfsPeerIdentity *self);

#endif
