#include "key/recipient.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <string.h>

#define TEXT_MAX 65536 /* bytes of a file that are looked at */

/* Nobody is asked: OpenSSL would do so at the terminal. */
static int no_passphrase (char *to, int size, int writes, void *user)
{
    (void) to;
    (void) size;
    (void) writes;
    (void) user;
    return -1;
}

static EVP_PKEY *read_pem (const char *text, bool is_private)
{
    size_t size = strnlen (text, TEXT_MAX);
    BIO *bio = BIO_new_mem_buf (text, (int) size);
    if (bio == NULL)
        g_error ("OpenSSL cannot read what is in memory");
    EVP_PKEY *key = is_private ? PEM_read_bio_PrivateKey (bio, NULL, no_passphrase, NULL)
                               : PEM_read_bio_PUBKEY (bio, NULL, no_passphrase, NULL);
    BIO_free (bio);
    ERR_clear_error ();
    return key;
}

/* Takes @key, which may be NULL. */
static bool take (EVP_PKEY *key, bool is_private, uint8_t ret_bytes[ECFS_KEY_BYTES])
{
    size_t size = ECFS_KEY_BYTES;
    uint8_t bytes[ECFS_KEY_BYTES];
    bool good = key != NULL && EVP_PKEY_get_id (key) == EVP_PKEY_X25519 &&
                (is_private ? EVP_PKEY_get_raw_private_key (key, bytes, &size)
                            : EVP_PKEY_get_raw_public_key (key, bytes, &size)) == 1 &&
                size == ECFS_KEY_BYTES;
    if (good)
        memcpy (ret_bytes, bytes, ECFS_KEY_BYTES);
    ecfs_key_forget (bytes, sizeof bytes);
    EVP_PKEY_free (key);
    return good;
}

static bool read_base64 (const char *text, uint8_t ret_public[ECFS_KEY_BYTES])
{
    gsize size = 0;
    g_autofree char *word = g_strstrip (g_strndup (text, 64));
    g_autofree guchar *bytes = strlen (word) == 44 ? g_base64_decode (word, &size) : NULL;
    if (size != ECFS_KEY_BYTES)
        return false;
    memcpy (ret_public, bytes, size);
    return true;
}

bool ecfs_recipient_parse (const char *text, uint8_t ret_public[ECFS_KEY_BYTES], GError **error)
{
    if (take (read_pem (text, false), false, ret_public) || read_base64 (text, ret_public))
        return true;
    if (strstr (text, "PRIVATE KEY") != NULL)
        return ecfs_fail (error, EBADMSG,
                          "this is a private key, which is not needed here: 'openssl pkey -pubout' makes the public "
                          "one of it");
    return ecfs_fail (error, EBADMSG,
                      "this is no public X25519 key: 'openssl genpkey -algorithm X25519' makes a private one, and "
                      "'openssl pkey -pubout' the public one of it");
}

bool ecfs_identity_parse (const char *text, uint8_t ret_private[ECFS_KEY_BYTES], GError **error)
{
    return take (read_pem (text, true), true, ret_private) ||
           ecfs_fail (error, EBADMSG,
                      "this is no private X25519 key in PEM, or it is under a passphrase: 'openssl pkey' takes that "
                      "off");
}

char *ecfs_recipient_text (const uint8_t public_key[ECFS_KEY_BYTES])
{
    return g_base64_encode (public_key, ECFS_KEY_BYTES);
}
