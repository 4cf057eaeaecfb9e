/* The key file of an endpoint: refused, or it says the same when it is written and read again; so do the archive's own
 * keys, under which of them an object is, and a typed code. */
#include "key/recipient.h"
#include "key/seal.h"
#include "key/slots.h"
#include "util/bytes.h"
#include "util/xxh3.h"

#include <string.h>

#define CHECKSUM_BYTES 8

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

static void read_file (const uint8_t *bytes, size_t size)
{
    EcfsKeyFile file;
    g_autoptr (GError) error = NULL;
    if (!ecfs_key_file_parse (bytes, size, &file, &error)) {
        g_assert_true (ecfs_errno (error) == EBADMSG || ecfs_errno (error) == ENOTSUP);
        return;
    }
    g_autoptr (GByteArray) again = ecfs_key_file_format (&file);
    g_assert_cmpmem (again->data, again->len, bytes, (guint) size);
    const EcfsKeyOpener opener = {.secret = file.share.y, .code = file.share.y};
    for (guint i = 0; i < file.slots->len; i++)
        g_assert_null (ecfs_key_slot_open (g_ptr_array_index (file.slots, i), &file.archive, &opener, NULL));
    EcfsShareWitness witness = {.zone = "a", .file = &file};
    uint8_t secret[ECFS_SECRET_BYTES];
    EcfsUuid generation;
    (void) ecfs_secret_gather (&file.archive, &witness, 1, secret, &generation, NULL);
    ecfs_key_file_clear (&file);
}

static void read_ring (const uint8_t *bytes, size_t size)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsKeyRing) ring = ecfs_key_ring_parse (bytes, size, &error);
    if (ring == NULL) {
        g_assert_true (ecfs_errno (error) == EBADMSG || ecfs_errno (error) == ENOTSUP);
        return;
    }
    GByteArray *again = ecfs_key_ring_format (ring);
    g_assert_cmpmem (again->data, again->len, bytes, (guint) size);
    ecfs_key_forget_array (again);
}

static void read_seal (const uint8_t *bytes, size_t size)
{
    EcfsSeal seal;
    uint8_t again[ECFS_SEAL_BYTES];
    if (!ecfs_seal_parse (bytes, size, &seal, NULL))
        return;
    ecfs_seal_put (&seal, again);
    g_assert_cmpmem (again, sizeof again, bytes, (guint) size);
}

static void read_code (const uint8_t *bytes, size_t size)
{
    uint8_t code[ECFS_CODE_BYTES], same[ECFS_CODE_BYTES];
    char text[ECFS_CODE_TEXT_SIZE];
    g_autofree char *typed = g_strndup ((const char *) bytes, size);
    if (!ecfs_code_parse (typed, code))
        return;
    ecfs_code_text (code, text);
    g_assert_true (ecfs_code_parse (text, same));
    g_assert_cmpmem (code, sizeof code, same, sizeof same);
}

/* What OpenSSL takes for a key has a size that is known. */
static void read_pem (const uint8_t *bytes, size_t size)
{
    uint8_t key[ECFS_KEY_BYTES];
    g_autofree char *text = g_strndup ((const char *) bytes, size);
    (void) !ecfs_identity_parse (text, key, NULL);
    if (!ecfs_recipient_parse (text, key, NULL))
        return;
    uint8_t same[ECFS_KEY_BYTES];
    g_autofree char *again = ecfs_recipient_text (key);
    g_assert_true (ecfs_recipient_parse (again, same, NULL));
    g_assert_cmpmem (key, sizeof key, same, sizeof same);
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    read_pem (bytes, size);
    read_file (bytes, size);
    read_ring (bytes, size);
    read_seal (bytes, size);
    read_code (bytes, size);
    if (size < CHECKSUM_BYTES)
        return 0;
    g_autofree uint8_t *whole = g_memdup2 (bytes, size); /* few inputs have the right checksum */
    ecfs_put_le (whole + size - CHECKSUM_BYTES, ecfs_xxh3_64 (whole, size - CHECKSUM_BYTES), CHECKSUM_BYTES);
    read_file (whole, size);
    read_ring (whole, size);
    return 0;
}
