#include "key/key.h"

#include "util/uuid.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

#include <inttypes.h>

#define NONCE_BYTES      12
#define MAC_BYTES        16
#define SCRYPT_MAX_BYTES (512ull << 20)

static void must (int result)
{
    if (result <= 0)
        g_error ("OpenSSL cannot compute what keys need");
}

static bool derive_by (const char *algorithm, OSSL_PARAM *parameters, uint8_t ret_key[ECFS_KEY_BYTES])
{
    EVP_KDF *kdf = EVP_KDF_fetch (NULL, algorithm, NULL);
    must (kdf != NULL);
    EVP_KDF_CTX *context = EVP_KDF_CTX_new (kdf);
    must (context != NULL);
    bool derived = EVP_KDF_derive (context, ret_key, ECFS_KEY_BYTES, parameters) > 0;
    EVP_KDF_CTX_free (context);
    EVP_KDF_free (kdf);
    return derived;
}

void ecfs_key_derive (const void *secret, size_t secret_bytes, const void *salt, size_t salt_bytes, const char *label,
                      uint8_t ret_key[ECFS_KEY_BYTES])
{
    OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string (OSSL_KDF_PARAM_DIGEST, (char *) "SHA256", 0),
                               OSSL_PARAM_construct_octet_string (OSSL_KDF_PARAM_KEY, (void *) secret, secret_bytes),
                               OSSL_PARAM_construct_octet_string (OSSL_KDF_PARAM_SALT, (void *) salt, salt_bytes),
                               OSSL_PARAM_construct_octet_string (OSSL_KDF_PARAM_INFO, (void *) label, strlen (label)),
                               OSSL_PARAM_construct_end ()};
    must (derive_by ("HKDF", parameters, ret_key));
}

bool ecfs_key_from_passphrase (const char *passphrase, const uint8_t *salt, size_t salt_bytes, unsigned log2_n,
                               unsigned r, unsigned p, uint8_t ret_key[ECFS_KEY_BYTES], GError **error)
{
    uint64_t n = 1ull << MIN (log2_n, 63), r_wide = r, p_wide = p, most = 2 * SCRYPT_MAX_BYTES;
    /* RFC 7914: N is less than 2^(128 * r / 8). */
    if (log2_n < 1 || log2_n > 30 || log2_n >= 16 * r || r > 64 || p < 1 || p > 16 || n * r * 128 > SCRYPT_MAX_BYTES)
        return ecfs_fail (error, ERANGE, "scrypt with N = 2^%u, r = %u, p = %u is more than ecfs does, or no scrypt",
                          log2_n, r, p);
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_octet_string (OSSL_KDF_PARAM_PASSWORD, (void *) passphrase, strlen (passphrase)),
        OSSL_PARAM_construct_octet_string (OSSL_KDF_PARAM_SALT, (void *) salt, salt_bytes),
        OSSL_PARAM_construct_uint64 (OSSL_KDF_PARAM_SCRYPT_N, &n),
        OSSL_PARAM_construct_uint64 (OSSL_KDF_PARAM_SCRYPT_R, &r_wide),
        OSSL_PARAM_construct_uint64 (OSSL_KDF_PARAM_SCRYPT_P, &p_wide),
        OSSL_PARAM_construct_uint64 (OSSL_KDF_PARAM_SCRYPT_MAXMEM, &most),
        OSSL_PARAM_construct_end ()};
    return derive_by ("SCRYPT", parameters, ret_key) ||
           ecfs_fail (error, ENOMEM, "scrypt needs %" PRIu64 " MiB of memory", n * r * 128 >> 20);
}

GByteArray *ecfs_key_seal (const uint8_t key[ECFS_KEY_BYTES], const void *bound, size_t bound_bytes, const void *bytes,
                           size_t size)
{
    int written;
    g_assert (size <= INT_MAX && bound_bytes <= INT_MAX);
    GByteArray *sealed = g_byte_array_new ();
    g_byte_array_set_size (sealed, (guint) (NONCE_BYTES + size + MAC_BYTES));
    uint8_t *to = sealed->data + NONCE_BYTES;
    ecfs_random (sealed->data, NONCE_BYTES);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new ();
    must (context != NULL);
    must (EVP_EncryptInit_ex (context, EVP_aes_256_gcm (), NULL, key, sealed->data));
    must (EVP_EncryptUpdate (context, NULL, &written, bound, (int) bound_bytes));
    must (EVP_EncryptUpdate (context, to, &written, bytes, (int) size));
    must (EVP_EncryptFinal_ex (context, to + written, &written));
    must (EVP_CIPHER_CTX_ctrl (context, EVP_CTRL_AEAD_GET_TAG, MAC_BYTES, to + size));
    EVP_CIPHER_CTX_free (context);
    return sealed;
}

GByteArray *ecfs_key_open (const uint8_t key[ECFS_KEY_BYTES], const void *bound, size_t bound_bytes,
                           const uint8_t *sealed, size_t size, GError **error)
{
    int written;
    if (size < NONCE_BYTES + MAC_BYTES || size > INT_MAX) {
        (void) !ecfs_fail (error, EBADMSG, "too few bytes to be sealed");
        return NULL;
    }
    size_t plain = size - NONCE_BYTES - MAC_BYTES;
    const uint8_t *from = sealed + NONCE_BYTES;
    GByteArray *bytes = g_byte_array_sized_new ((guint) plain + 1); /* somewhere, also when it is nothing */
    g_byte_array_set_size (bytes, (guint) plain);
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new ();
    must (context != NULL);
    must (EVP_DecryptInit_ex (context, EVP_aes_256_gcm (), NULL, key, sealed));
    must (EVP_DecryptUpdate (context, NULL, &written, bound, (int) bound_bytes));
    must (EVP_DecryptUpdate (context, bytes->data, &written, from, (int) plain));
    must (EVP_CIPHER_CTX_ctrl (context, EVP_CTRL_AEAD_SET_TAG, MAC_BYTES, (void *) (from + plain)));
    bool authentic = EVP_DecryptFinal_ex (context, bytes->data + written, &written) == 1;
    EVP_CIPHER_CTX_free (context);
    if (authentic)
        return bytes;
    ecfs_key_forget_array (bytes);
    (void) !ecfs_fail (error, EBADMSG, "damaged, or sealed under another key");
    return NULL;
}

void ecfs_key_forget (void *bytes, size_t size)
{
    if (size > 0)
        explicit_bzero (bytes, size);
}

void ecfs_key_forget_array (GByteArray *bytes)
{
    if (bytes == NULL)
        return;
    ecfs_key_forget (bytes->data, bytes->len);
    g_byte_array_unref (bytes);
}
