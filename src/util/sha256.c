#define OPENSSL_SUPPRESS_DEPRECATED /* what is deprecated has no other way to its state */
#include "util/sha256.h"

#include <openssl/sha.h>

#include <string.h>

#define N_WORDS (ECFS_SHA256_SIZE / sizeof (uint32_t))

struct EcfsSha256 {
    SHA256_CTX context;
};

/* It has no way to fail: as with g_malloc (), there is no going on. */
static void must (int result)
{
    if (result != 1)
        g_error ("OpenSSL cannot compute SHA-256");
}

EcfsSha256 *ecfs_sha256_new (void)
{
    EcfsSha256 *self = g_new (EcfsSha256, 1);
    must (SHA256_Init (&self->context));
    return self;
}

void ecfs_sha256_update (EcfsSha256 *self, const void *bytes, size_t size)
{
    must (SHA256_Update (&self->context, bytes, size));
}

void ecfs_sha256_end (EcfsSha256 *self, uint8_t ret_digest[ECFS_SHA256_SIZE])
{
    must (SHA256_Final (ret_digest, &self->context));
    must (SHA256_Init (&self->context));
}

bool ecfs_sha256_state (const EcfsSha256 *self, uint8_t ret_state[ECFS_SHA256_SIZE])
{
    uint32_t words[N_WORDS];
    for (size_t i = 0; i < N_WORDS; i++)
        words[i] = GUINT32_TO_BE (self->context.h[i]);
    memcpy (ret_state, words, sizeof words);
    return self->context.num == 0;
}

void ecfs_sha256_resume (EcfsSha256 *self, const uint8_t state[ECFS_SHA256_SIZE], uint64_t size)
{
    uint32_t words[N_WORDS];
    memcpy (words, state, sizeof words);
    must (SHA256_Init (&self->context));
    for (size_t i = 0; i < N_WORDS; i++)
        self->context.h[i] = GUINT32_FROM_BE (words[i]);
    self->context.Nl = (SHA_LONG) (size << 3);
    self->context.Nh = (SHA_LONG) (size >> 29);
}

void ecfs_sha256_free (EcfsSha256 *self)
{
    g_free (self);
}
