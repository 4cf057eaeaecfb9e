#include "util/sha256.h"

#include <openssl/evp.h>

struct EcfsSha256 {
    EVP_MD_CTX *context;
};

/* Memory that runs out, or an OpenSSL that has no SHA-256: as with g_malloc (), there is no going on. */
static void must (int result)
{
    if (result != 1)
        g_error ("OpenSSL cannot compute SHA-256");
}

EcfsSha256 *ecfs_sha256_new (void)
{
    EcfsSha256 *self = g_new (EcfsSha256, 1);
    self->context = EVP_MD_CTX_new ();
    must (self->context != NULL);
    must (EVP_DigestInit_ex (self->context, EVP_sha256 (), NULL));
    return self;
}

void ecfs_sha256_update (EcfsSha256 *self, const void *bytes, size_t size)
{
    must (EVP_DigestUpdate (self->context, bytes, size));
}

void ecfs_sha256_end (EcfsSha256 *self, uint8_t ret_digest[ECFS_SHA256_SIZE])
{
    must (EVP_DigestFinal_ex (self->context, ret_digest, NULL));
    must (EVP_DigestInit_ex (self->context, EVP_sha256 (), NULL));
}

void ecfs_sha256_free (EcfsSha256 *self)
{
    if (self == NULL)
        return;
    EVP_MD_CTX_free (self->context);
    g_free (self);
}
