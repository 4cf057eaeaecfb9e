#include "key/block_mac.h"

#include "key/mac.h"
#include "util/lock.h"

#include <openssl/evp.h>

#include <glib.h>
#include <string.h>

/* What one thread at a time needs to compute one. */
typedef struct Lane {
    EVP_CIPHER_CTX *sum;    /* AES-256-GCM under the first key */
    EVP_CIPHER_CTX *cipher; /* AES-256 under the second */
} Lane;

struct EcfsBlockMac {
    EcfsMutex lock;
    GPtrArray *idle; /* Lane, as many as threads were here at once; guarded by lock */

    EcfsMac *hmac; /* NULL: it is GHASH; this and what follows are immutable */
    uint8_t sum_key[ECFS_KEY_BYTES];
    uint8_t cipher_key[ECFS_KEY_BYTES];
};

static const uint8_t no_nonce[12] = {0};
static const uint8_t no_salt[ECFS_KEY_BYTES] = {0}; /* as RFC 5869 has it where there is none */

static void must (int result)
{
    if (result <= 0)
        g_error ("OpenSSL cannot compute AES-256 or GHASH");
}

static void lane_free (void *data)
{
    Lane *lane = data;
    EVP_CIPHER_CTX_free (lane->sum);
    EVP_CIPHER_CTX_free (lane->cipher);
    g_free (lane);
}

static Lane *lane_new (const EcfsBlockMac *self)
{
    Lane *lane = g_new (Lane, 1);
    *lane = (Lane){.sum = EVP_CIPHER_CTX_new (), .cipher = EVP_CIPHER_CTX_new ()};
    must (lane->sum != NULL && lane->cipher != NULL);
    must (EVP_EncryptInit_ex (lane->sum, EVP_aes_256_gcm (), NULL, self->sum_key, NULL));
    must (EVP_EncryptInit_ex (lane->cipher, EVP_aes_256_ecb (), NULL, self->cipher_key, NULL));
    must (EVP_CIPHER_CTX_set_padding (lane->cipher, 0));
    return lane;
}

static Lane *take_lane (EcfsBlockMac *self)
{
    ecfs_mutex_lock (&self->lock);
    Lane *lane = self->idle->len == 0 ? NULL : g_ptr_array_steal_index_fast (self->idle, self->idle->len - 1);
    ecfs_mutex_unlock (&self->lock);
    return lane != NULL ? lane : lane_new (self);
}

static void give_lane (EcfsBlockMac *self, Lane *lane)
{
    ecfs_mutex_lock (&self->lock);
    g_ptr_array_add (self->idle, lane);
    ecfs_mutex_unlock (&self->lock);
}

EcfsBlockMac *ecfs_block_mac_new (EcfsBlockMacKind kind, const uint8_t key[ECFS_KEY_BYTES])
{
    EcfsBlockMac *self = g_new0 (EcfsBlockMac, 1);
    ecfs_mutex_init (&self->lock);
    self->idle = g_ptr_array_new_with_free_func (lane_free);
    if (kind == ECFS_BLOCK_MAC_HMAC) {
        self->hmac = ecfs_mac_new (key);
        return self;
    }
    ecfs_key_derive (key, ECFS_KEY_BYTES, no_salt, sizeof no_salt, "ecfs tag sum", self->sum_key);
    ecfs_key_derive (key, ECFS_KEY_BYTES, no_salt, sizeof no_salt, "ecfs tag cipher", self->cipher_key);
    return self;
}

void ecfs_block_mac_free (EcfsBlockMac *self)
{
    if (self == NULL)
        return;
    ecfs_mac_unref (self->hmac);
    g_ptr_array_unref (self->idle);
    ecfs_mutex_clear (&self->lock);
    ecfs_key_forget (self, sizeof *self);
    g_free (self);
}

static void compute_hmac (const EcfsMac *hmac, const void *head, size_t head_bytes, const void *bytes, size_t size,
                          uint8_t ret_mac[ECFS_BLOCK_MAC_BYTES])
{
    uint8_t whole[ECFS_MAC_BYTES];
    ecfs_mac_compute (hmac, head, head_bytes, bytes, size, whole);
    memcpy (ret_mac, whole, ECFS_BLOCK_MAC_BYTES);
}

void ecfs_block_mac_compute (EcfsBlockMac *self, const void *head, size_t head_bytes, const void *bytes, size_t size,
                             uint8_t ret_mac[ECFS_BLOCK_MAC_BYTES])
{
    if (self->hmac != NULL) {
        compute_hmac (self->hmac, head, head_bytes, bytes, size, ret_mac);
        return;
    }
    uint8_t sum[ECFS_BLOCK_MAC_BYTES];
    int written;
    Lane *lane = take_lane (self);
    must (EVP_EncryptInit_ex (lane->sum, NULL, NULL, NULL, no_nonce));
    must (EVP_EncryptUpdate (lane->sum, NULL, &written, head, (int) head_bytes));
    must (EVP_EncryptUpdate (lane->sum, NULL, &written, bytes, (int) size));
    must (EVP_EncryptFinal_ex (lane->sum, sum, &written));
    must (EVP_CIPHER_CTX_ctrl (lane->sum, EVP_CTRL_AEAD_GET_TAG, sizeof sum, sum));
    must (EVP_EncryptUpdate (lane->cipher, ret_mac, &written, sum, sizeof sum));
    give_lane (self, lane);
    ecfs_key_forget (sum, sizeof sum);
}
