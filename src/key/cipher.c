#include "key/cipher.h"

#include <openssl/evp.h>

#define BLOCK_BYTES 16

struct EcfsCipher {
    EVP_CIPHER_CTX *context;
};

static void must (int result)
{
    if (result <= 0)
        g_error ("OpenSSL cannot compute AES-256-CTR");
}

EcfsCipher *ecfs_cipher_new (const uint8_t key[ECFS_KEY_BYTES], uint64_t offset)
{
    EcfsCipher *self = g_new (EcfsCipher, 1);
    uint8_t counter[BLOCK_BYTES] = {0}, skipped[BLOCK_BYTES] = {0};
    uint64_t block = GUINT64_TO_BE (offset / BLOCK_BYTES);
    memcpy (counter + BLOCK_BYTES - sizeof block, &block, sizeof block);
    self->context = EVP_CIPHER_CTX_new ();
    must (self->context != NULL);
    must (EVP_EncryptInit_ex (self->context, EVP_aes_256_ctr (), NULL, key, counter));
    ecfs_cipher_next (self, skipped, offset % BLOCK_BYTES);
    ecfs_key_forget (skipped, sizeof skipped);
    return self;
}

void ecfs_cipher_next (EcfsCipher *self, uint8_t *bytes, size_t size)
{
    while (size > 0) {
        int some = (int) MIN (size, 1u << 30), written;
        must (EVP_EncryptUpdate (self->context, bytes, &written, bytes, some));
        bytes += some;
        size -= (size_t) some;
    }
}

void ecfs_cipher_free (EcfsCipher *self)
{
    if (self == NULL)
        return;
    EVP_CIPHER_CTX_free (self->context);
    g_free (self);
}
