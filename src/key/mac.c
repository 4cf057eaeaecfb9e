#include "key/mac.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>

#include <glib.h>
#include <stdatomic.h>

struct EcfsMac {
    atomic_uint references;
    EVP_MAC_CTX *keyed; /* never run itself: copies of it are */
};

static void must (bool good)
{
    if (!good)
        g_error ("OpenSSL cannot compute HMAC-SHA-256");
}

EcfsMac *ecfs_mac_new (const uint8_t key[ECFS_KEY_BYTES])
{
    OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string (OSSL_MAC_PARAM_DIGEST, (char *) "SHA256", 0),
                               OSSL_PARAM_construct_end ()};
    EcfsMac *self = g_new (EcfsMac, 1);
    EVP_MAC *algorithm = EVP_MAC_fetch (NULL, "HMAC", NULL);
    must (algorithm != NULL);
    self->keyed = EVP_MAC_CTX_new (algorithm);
    must (self->keyed != NULL && EVP_MAC_init (self->keyed, key, ECFS_KEY_BYTES, parameters) > 0);
    EVP_MAC_free (algorithm);
    atomic_init (&self->references, 1);
    return self;
}

EcfsMac *ecfs_mac_ref (const EcfsMac *self)
{
    EcfsMac *shared = (EcfsMac *) self;
    atomic_fetch_add (&shared->references, 1);
    return shared;
}

void ecfs_mac_unref (const EcfsMac *self)
{
    EcfsMac *shared = (EcfsMac *) self;
    if (shared == NULL || atomic_fetch_sub (&shared->references, 1) > 1)
        return;
    EVP_MAC_CTX_free (shared->keyed);
    g_free (shared);
}

void ecfs_mac_compute (const EcfsMac *self, const void *head, size_t head_bytes, const void *bytes, size_t size,
                       uint8_t ret_mac[ECFS_MAC_BYTES])
{
    size_t written = 0;
    EVP_MAC_CTX *context = EVP_MAC_CTX_dup (self->keyed);
    must (context != NULL && EVP_MAC_update (context, head, head_bytes) > 0 &&
          EVP_MAC_update (context, bytes, size) > 0 && EVP_MAC_final (context, ret_mac, &written, ECFS_MAC_BYTES) > 0 &&
          written == ECFS_MAC_BYTES);
    EVP_MAC_CTX_free (context);
}
