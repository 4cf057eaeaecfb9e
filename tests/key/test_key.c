/* Deriving, sealing and sharing: against published numbers, and against whoever changes a byte. */
#include "key/cipher.h"
#include "key/mac.h"
#include "key/recipient.h"
#include "key/seal.h"
#include "key/slots.h"

#include <isa-l/erasure_code.h>

#define TEXT "what is to be kept"

static EcfsUuid archive = {{1, 2, 3}};

static void assert_bytes (const uint8_t *bytes, const char *hex)
{
    for (size_t i = 0; hex[2 * i] != '\0'; i++)
        g_assert_cmpuint (bytes[i], ==,
                          (unsigned) (g_ascii_xdigit_value (hex[2 * i]) << 4 | g_ascii_xdigit_value (hex[2 * i + 1])));
}

static void split (const uint8_t secret[ECFS_SECRET_BYTES], unsigned threshold, unsigned n, EcfsShare *shares)
{
    uint8_t any[ECFS_KEY_BYTES];
    ecfs_random (any, sizeof any);
    EcfsCipher *stream = ecfs_cipher_new (any, 0);
    ecfs_secret_split (secret, threshold, n, stream, shares);
    ecfs_cipher_free (stream);
}

static GByteArray *text_bytes (void)
{
    return g_byte_array_append (g_byte_array_new (), (const uint8_t *) TEXT, sizeof TEXT);
}

/* The first case of RFC 5869, appendix A, as far as a key goes. */
static void test_derive (void)
{
    uint8_t secret[22], salt[13], key[ECFS_KEY_BYTES];
    memset (secret, 0x0b, sizeof secret);
    for (unsigned i = 0; i < sizeof salt; i++)
        salt[i] = (uint8_t) i;
    ecfs_key_derive (secret, sizeof secret, salt, sizeof salt, "\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9", key);
    assert_bytes (key, "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
}

/* The first case of RFC 4231: its key is shorter, which zeros make good. */
static void test_mac (void)
{
    uint8_t key[ECFS_KEY_BYTES] = {0}, hash[ECFS_MAC_BYTES];
    memset (key, 0x0b, 20);
    EcfsMac *mac = ecfs_mac_new (key), *same = ecfs_mac_ref (mac);
    ecfs_mac_unref (mac);
    for (unsigned i = 0; i <= 8; i++) { /* whatever is the head, and again */
        ecfs_mac_compute (same, "Hi There", i, &"Hi There"[i], 8 - i, hash);
        assert_bytes (hash, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }
    ecfs_mac_unref (same);
    ecfs_mac_unref (NULL);
}

/* The third case of RFC 7914, section 12. */
static void test_passphrase (void)
{
    uint8_t key[ECFS_KEY_BYTES];
    g_autoptr (GError) error = NULL;
    const uint8_t salt[] = "SodiumChloride";
    g_assert_true (ecfs_key_from_passphrase ("pleaseletmein", salt, sizeof salt - 1, 14, 8, 1, key, &error));
    g_assert_no_error (error);
    assert_bytes (key, "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2");
    static const unsigned impossible[][3] = {{0, 8, 1},   {17, 0, 1},   {17, 8, 0},      {31, 1, 1},
                                             {24, 64, 1}, {17, 8, 255}, {255, 255, 255}, {16, 1, 1}};
    for (size_t i = 0; i < G_N_ELEMENTS (impossible); i++) {
        const unsigned *n = impossible[i];
        g_assert_false (ecfs_key_from_passphrase ("x", salt, sizeof salt, n[0], n[1], n[2], key, &error));
        g_assert_error (error, ECFS_ERROR, ERANGE);
        g_clear_error (&error);
    }
}

static void test_sealed (void)
{
    uint8_t key[ECFS_KEY_BYTES] = {7};
    g_autoptr (GError) error = NULL;
    g_autoptr (GByteArray) sealed = ecfs_key_seal (key, "here", 4, TEXT, sizeof TEXT);
    g_autoptr (GByteArray) again = ecfs_key_seal (key, "here", 4, TEXT, sizeof TEXT);
    g_assert_cmpuint (sealed->len, ==, sizeof TEXT + ECFS_KEY_SEALED_BYTES);
    g_assert_cmpint (memcmp (sealed->data, again->data, sealed->len), !=, 0);
    g_autoptr (GByteArray) opened = ecfs_key_open (key, "here", 4, sealed->data, sealed->len, &error);
    g_assert_no_error (error);
    g_assert_cmpmem (opened->data, opened->len, TEXT, sizeof TEXT);
    for (guint bit = 0; bit < 8 * sealed->len; bit++) {
        sealed->data[bit / 8] ^= (uint8_t) (1 << bit % 8);
        g_assert_null (ecfs_key_open (key, "here", 4, sealed->data, sealed->len, &error));
        g_assert_error (error, ECFS_ERROR, EBADMSG);
        g_clear_error (&error);
        sealed->data[bit / 8] ^= (uint8_t) (1 << bit % 8);
    }
    for (guint size = 0; size < sealed->len; size++)
        g_assert_null (ecfs_key_open (key, "here", 4, sealed->data, size, NULL));
    g_assert_null (ecfs_key_open (key, "her", 3, sealed->data, sealed->len, NULL));
    key[31] ^= 1;
    g_assert_null (ecfs_key_open (key, "here", 4, sealed->data, sealed->len, NULL));
}

static void test_nothing_sealed (void)
{
    uint8_t key[ECFS_KEY_BYTES] = {7};
    g_autoptr (GError) error = NULL;
    g_autoptr (GByteArray) nothing = g_byte_array_new (), sealed = ecfs_key_seal (key, NULL, 0, nothing->data, 0);
    g_autoptr (GByteArray) opened = ecfs_key_open (key, NULL, 0, sealed->data, sealed->len, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (opened->len, ==, 0);
    g_assert_null (ecfs_key_open (key, "x", 1, sealed->data, sealed->len, NULL));
    ecfs_key_forget_array (NULL);
    ecfs_key_forget_array (g_steal_pointer (&nothing));
}

/* Shares are points of polynomials over the field of ISA-L: with threshold 2 they lie on a line through the secret. */
static void test_shares_lie_on_a_line (void)
{
    uint8_t secret[ECFS_SECRET_BYTES];
    EcfsShare shares[ECFS_SHARES_MAX];
    ecfs_random (secret, sizeof secret);
    split (secret, 2, ECFS_SHARES_MAX, shares);
    for (unsigned byte = 0; byte < ECFS_SECRET_BYTES; byte++) {
        uint8_t slope = shares[0].y[byte] ^ secret[byte];
        for (unsigned i = 0; i < ECFS_SHARES_MAX; i++)
            g_assert_cmpuint (shares[i].y[byte], ==, secret[byte] ^ gf_mul (slope, shares[i].x));
    }
}

/* Every choice of as many as the threshold, in any order, for every threshold up to 6. */
static void test_any_shares_make_the_secret (void)
{
    uint8_t secret[ECFS_SECRET_BYTES], found[ECFS_SECRET_BYTES];
    EcfsShare shares[6], chosen[6];
    ecfs_random (secret, sizeof secret);
    for (unsigned threshold = 1; threshold <= 6; threshold++) {
        split (secret, threshold, 6, shares);
        for (unsigned mask = 1; mask < 64; mask++) {
            unsigned n = 0;
            for (unsigned i = 6; i > 0; i--) {
                if (mask >> (i - 1) & 1)
                    chosen[n++] = shares[i - 1];
            }
            g_assert_true (ecfs_secret_join (chosen, n, found));
            g_assert_true ((memcmp (found, secret, sizeof secret) == 0) == (n >= threshold));
        }
    }
    chosen[0] = chosen[1] = shares[0];
    g_assert_false (ecfs_secret_join (chosen, 2, found));
    chosen[1].x = 0;
    g_assert_false (ecfs_secret_join (chosen, 2, found));
}

static void test_codes (void)
{
    uint8_t code[ECFS_CODE_BYTES], found[ECFS_CODE_BYTES];
    char text[ECFS_CODE_TEXT_SIZE];
    for (unsigned i = 0; i < 100; i++) {
        ecfs_random (code, sizeof code);
        ecfs_code_text (code, text);
        g_assert_cmpuint (strlen (text), ==, sizeof text - 1);
        g_assert_true (ecfs_code_parse (text, found));
        g_assert_cmpmem (found, sizeof found, code, sizeof code);
        g_autofree char *lower = g_ascii_strdown (text, -1);
        g_autofree char *spaced = g_strdelimit (g_strdup_printf (" %s\n", lower), "-", ' ');
        g_assert_true (ecfs_code_parse (spaced, found));
        g_assert_cmpmem (found, sizeof found, code, sizeof code);
        text[strlen (text) - 1] = '\0';
        g_assert_false (ecfs_code_parse (text, found));
    }
    /* RFC 4648: of the bytes of "foobarfoobarfoobarfo" */
    ecfs_code_text ((const uint8_t *) "foobarfoobarfoobarfo", text);
    g_assert_cmpstr (text, ==, "MZXW-6YTB-OJTG-633C-MFZG-M33P-MJQX-EZTP");
    g_assert_false (ecfs_code_parse ("MZXW-6YTB-OJTG-633C-MFZG-M33P-MJQX-EZT1", found));
    g_assert_false (ecfs_code_parse ("MZXW-6YTB-OJTG-633C-MFZG-M33P-MJQX-EZTPA", found));
    g_assert_false (ecfs_code_parse ("", found));
}

/* Slots */

static const uint8_t secret_bytes[ECFS_SECRET_BYTES] = {1}, code_bytes[ECFS_CODE_BYTES] = {2};
/* Alice's keys of RFC 7748, section 6.1 */
static const uint8_t alice_private[] = {0x77, 0x07, 0x6d, 0x0a, 0x73, 0x18, 0xa5, 0x7d, 0x3c, 0x16, 0xc1,
                                        0x72, 0x51, 0xb2, 0x66, 0x45, 0xdf, 0x4c, 0x2f, 0x87, 0xeb, 0xc0,
                                        0x99, 0x2a, 0xb1, 0x77, 0xfb, 0xa5, 0x1d, 0xb9, 0x2c, 0x2a};
static const uint8_t alice_public[] = {0x85, 0x20, 0xf0, 0x09, 0x89, 0x30, 0xa7, 0x54, 0x74, 0x8b, 0x7d,
                                       0xdc, 0xb4, 0x3e, 0xf7, 0x5a, 0x0d, 0xbf, 0x3a, 0x0d, 0x26, 0x38,
                                       0x1a, 0xf4, 0xeb, 0xa4, 0xa9, 0x8e, 0xaa, 0x9b, 0x4e, 0x6a};

static EcfsKeyOpener right_opener (void)
{
    return (EcfsKeyOpener){.secret = secret_bytes,
                           .passphrase = "open, sesame",
                           .code = code_bytes,
                           .private_key = alice_private,
                           .public_key = alice_public};
}

/* One of the things that open is another one. */
static bool opens_with (const EcfsKeySlot *slot, unsigned wrong)
{
    static const uint8_t other[ECFS_KEY_BYTES] = {9};
    EcfsKeyOpener opener = right_opener ();
    opener.secret = wrong == 0 ? other : opener.secret;
    opener.passphrase = wrong == 1 ? "open, sesame!" : opener.passphrase;
    opener.code = wrong == 2 ? other : opener.code;
    opener.private_key = wrong == 3 ? other : opener.private_key;
    g_autoptr (GError) error = NULL;
    GByteArray *bytes = ecfs_key_slot_open (slot, &archive, &opener, &error);
    if (bytes == NULL) {
        g_assert_error (error, ECFS_ERROR, EBADMSG);
        return false;
    }
    g_assert_cmpmem (bytes->data, bytes->len, TEXT, sizeof TEXT);
    ecfs_key_forget_array (bytes);
    return true;
}

static void test_slot (gconstpointer data)
{
    EcfsKeySlotKind kind = GPOINTER_TO_UINT (data);
    static const bool needs[][4] = {[ECFS_KEY_SLOT_SPLIT] = {true},
                                    [ECFS_KEY_SLOT_PASSPHRASE] = {true, true},
                                    [ECFS_KEY_SLOT_ALONE] = {false, true},
                                    [ECFS_KEY_SLOT_CODE] = {false, false, true},
                                    [ECFS_KEY_SLOT_RECIPIENT] = {false, false, false, true}};
    g_autoptr (GByteArray) bytes = text_bytes ();
    g_autoptr (GError) error = NULL;
    EcfsKeyOpener opener = right_opener (), nothing = {0};
    g_autoptr (EcfsKeySlot) slot = ecfs_key_slot_new (kind, &archive, &opener, bytes, &error);
    g_assert_no_error (error);
    for (unsigned wrong = 0; wrong < 4; wrong++)
        g_assert_true (opens_with (slot, wrong) != needs[kind][wrong]);
    g_assert_null (ecfs_key_slot_new (kind, &archive, &nothing, bytes, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_clear_error (&error);
    g_assert_null (ecfs_key_slot_open (slot, &archive, &nothing, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_clear_error (&error);
    EcfsUuid other = {{9}};
    g_assert_null (ecfs_key_slot_open (slot, &other, &opener, &error));
    g_assert_error (error, ECFS_ERROR, EBADMSG);
    slot->salt[5] ^= 1;
    g_assert_false (opens_with (slot, 4));
}

static void test_weak_recipient (void)
{
    static const uint8_t zero[ECFS_KEY_BYTES]; /* a point of small order: what is agreed on with it is known to all */
    g_autoptr (GByteArray) bytes = text_bytes ();
    g_autoptr (GError) error = NULL;
    EcfsKeyOpener opener = {.public_key = zero};
    g_assert_null (ecfs_key_slot_new (ECFS_KEY_SLOT_RECIPIENT, &archive, &opener, bytes, &error));
    g_assert_error (error, ECFS_ERROR, EBADMSG);
}

/* Files */

static EcfsKeyFile *new_file (const uint8_t *secret, unsigned threshold, unsigned n, unsigned x,
                              const EcfsUuid *generation, const EcfsShare *shares)
{
    EcfsKeyFile *file = g_new0 (EcfsKeyFile, 1);
    g_autoptr (GByteArray) bytes = text_bytes ();
    const EcfsKeyOpener opener = {.secret = secret};
    *file = (EcfsKeyFile){.archive = archive,
                          .generation = *generation,
                          .threshold = (uint8_t) threshold,
                          .n_shares = (uint8_t) n,
                          .share = shares[x - 1],
                          .slots = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_key_slot_free)};
    file->digests = g_malloc0_n (n, sizeof *file->digests);
    for (unsigned i = 0; i < n; i++)
        ecfs_share_digest (&archive, generation, &shares[i], file->digests[i]);
    g_ptr_array_add (file->slots, ecfs_key_slot_new (ECFS_KEY_SLOT_SPLIT, &archive, &opener, bytes, NULL));
    return file;
}

static void free_file (EcfsKeyFile *file)
{
    ecfs_key_file_clear (file);
    g_free (file);
}

static void test_file (void)
{
    EcfsShare shares[6];
    EcfsUuid generation = ecfs_uuid_new ();
    g_autoptr (GError) error = NULL;
    split (secret_bytes, 3, 6, shares);
    EcfsKeyFile *file = new_file (secret_bytes, 3, 6, 2, &generation, shares), again;
    g_autoptr (GByteArray) bytes = ecfs_key_file_format (file);
    g_assert_true (ecfs_key_file_parse (bytes->data, bytes->len, &again, &error));
    g_assert_no_error (error);
    g_autoptr (GByteArray) same = ecfs_key_file_format (&again);
    g_assert_cmpmem (bytes->data, bytes->len, same->data, same->len);
    const EcfsKeyOpener opener = {.secret = secret_bytes};
    GByteArray *opened = ecfs_key_slot_open (g_ptr_array_index (again.slots, 0), &archive, &opener, &error);
    g_assert_cmpmem (opened->data, opened->len, TEXT, sizeof TEXT);
    ecfs_key_forget_array (opened);
    ecfs_key_file_clear (&again);
    g_autoptr (GByteArray) large = g_byte_array_new ();
    g_byte_array_set_size (large, ECFS_KEY_SLOT_SEALED_MAX - ECFS_KEY_SEALED_BYTES);
    memset (large->data, 0, large->len);
    while (file->slots->len < ECFS_KEY_SLOTS_MAX)
        g_ptr_array_add (file->slots, ecfs_key_slot_new (ECFS_KEY_SLOT_SPLIT, &archive, &opener, large, NULL));
    g_autoptr (GByteArray) largest = ecfs_key_file_format (file);
    g_assert_true (ecfs_key_file_parse (largest->data, largest->len, &again, &error));
    g_assert_no_error (error);
    ecfs_key_file_clear (&again);
    g_byte_array_set_size (large, large->len + 1);
    g_assert_null (ecfs_key_slot_new (ECFS_KEY_SLOT_SPLIT, &archive, &opener, large, NULL));
    for (guint size = 0; size < bytes->len; size++)
        g_assert_false (ecfs_key_file_parse (bytes->data, size, &again, NULL));
    for (guint at = 0; at < bytes->len; at++) {
        bytes->data[at] ^= 0x10;
        g_assert_false (ecfs_key_file_parse (bytes->data, bytes->len, &again, &error));
        g_assert_error (error, ECFS_ERROR, EBADMSG);
        g_clear_error (&error);
        bytes->data[at] ^= 0x10;
    }
    free_file (file);
}

/* With a recipient's slot, which notes for whom it is. */
static void test_revision (void)
{
    EcfsShare shares[6];
    EcfsUuid generation = ecfs_uuid_new ();
    uint8_t key[ECFS_KEY_BYTES] = {7}, mac[ECFS_KEY_BYTES], other[ECFS_KEY_BYTES];
    g_autoptr (GError) error = NULL;
    g_autoptr (GByteArray) text = text_bytes ();
    EcfsKeyOpener opener = right_opener ();
    split (secret_bytes, 3, 6, shares);
    EcfsKeyFile *file = new_file (secret_bytes, 3, 6, 2, &generation, shares), again;
    g_ptr_array_add (file->slots, ecfs_key_slot_new (ECFS_KEY_SLOT_RECIPIENT, &archive, &opener, text, NULL));
    file->revision = 3;
    ecfs_key_file_mac (file, key, file->mac);
    g_autoptr (GByteArray) bytes = ecfs_key_file_format (file);
    g_assert_true (ecfs_key_file_parse (bytes->data, bytes->len, &again, &error));
    g_assert_no_error (error);
    const EcfsKeySlot *slot = g_ptr_array_index (again.slots, 1);
    g_assert_cmpuint (again.revision, ==, 3);
    g_assert_cmpmem (slot->note, slot->note_bytes, opener.public_key, ECFS_KEY_BYTES);
    again.share = shares[4]; /* each endpoint has another */
    ecfs_key_file_mac (&again, key, mac);
    g_assert_cmpmem (mac, sizeof mac, file->mac, sizeof mac);
    again.revision++;
    ecfs_key_file_mac (&again, key, other);
    g_assert_cmpint (memcmp (mac, other, sizeof mac), !=, 0);
    again.revision--;
    g_ptr_array_remove_index (again.slots, 1);
    ecfs_key_file_mac (&again, key, other);
    g_assert_cmpint (memcmp (mac, other, sizeof mac), !=, 0);
    ecfs_key_file_clear (&again);
    free_file (file);
}

/* Of RFC 8410, 10.3, the form; of RFC 7748, 6.1, the key: Alice's. */
static void test_recipients (void)
{
    static const char private_pem[] = "-----BEGIN PRIVATE KEY-----\n"
                                      "MC4CAQAwBQYDK2VuBCIEIHcHbQpzGKV9PBbBclGyZkXfTC+H68CZKrF3+6UduSwq\n"
                                      "-----END PRIVATE KEY-----\n";
    static const char base64[] = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
    uint8_t key[ECFS_KEY_BYTES];
    g_autoptr (GError) error = NULL;
    g_assert_true (ecfs_identity_parse (private_pem, key, &error));
    g_assert_no_error (error);
    assert_bytes (key, "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
    g_assert_false (ecfs_recipient_parse (private_pem, key, &error));
    g_assert_error (error, ECFS_ERROR, EBADMSG);
    g_clear_error (&error);
    g_assert_true (ecfs_recipient_parse (base64, key, &error));
    g_autofree char *again = ecfs_recipient_text (key);
    g_assert_cmpstr (again, ==, base64);
    g_assert_false (ecfs_identity_parse (base64, key, &error));
    g_assert_error (error, ECFS_ERROR, EBADMSG);
}

/* Who lies */

#define MOST_WITNESSES 10

typedef struct Court {
    EcfsShareWitness witnesses[MOST_WITNESSES];
    unsigned n;
    uint8_t secret[ECFS_SECRET_BYTES];
    EcfsUuid generation;
    GError *error;
} Court;

/* Endpoints of zones from @first to @last, which have the shares of @secret; of these shares @n in all. */
static void add_zones (Court *self, char first, char last, const uint8_t *secret, unsigned threshold, unsigned n)
{
    static char names[26][2];
    EcfsShare shares[ECFS_SHARES_MAX];
    EcfsUuid generation = ecfs_uuid_new ();
    split (secret, threshold, n, shares);
    for (char zone = first; zone <= last; zone++) {
        names[zone - 'a'][0] = zone;
        self->witnesses[self->n++] = (EcfsShareWitness){
            .zone = names[zone - 'a'],
            .file = new_file (secret, threshold, n, (unsigned) (zone - first + 1), &generation, shares)};
    }
}

static EcfsKeyFile *file_of (Court *self, unsigned witness)
{
    return (EcfsKeyFile *) self->witnesses[witness].file;
}

/* The code of the error, 0 for none; the secret is then asserted to be @secret. */
static int judge (Court *self, const uint8_t *secret)
{
    g_clear_error (&self->error);
    if (!ecfs_secret_gather (&archive, self->witnesses, self->n, self->secret, &self->generation, &self->error))
        return ecfs_errno (self->error);
    g_assert_cmpmem (self->secret, ECFS_SECRET_BYTES, secret, ECFS_SECRET_BYTES);
    return 0;
}

/* A letter for each witness that contradicts. */
static const char *contradicting (const Court *self)
{
    static char names[MOST_WITNESSES + 1];
    unsigned n = 0;
    for (unsigned i = 0; i < self->n; i++) {
        if (self->witnesses[i].contradicts)
            names[n++] = self->witnesses[i].zone[0];
    }
    names[n] = '\0';
    return names;
}

static void court_clear (Court *self)
{
    for (unsigned i = 0; i < self->n; i++) {
        if (self->witnesses[i].file != NULL)
            free_file (file_of (self, i));
    }
    g_clear_error (&self->error);
}

static void test_forged_shares (void)
{
    Court court = {0};
    add_zones (&court, 'a', 'f', secret_bytes, 3, 6);
    g_assert_cmpint (judge (&court, secret_bytes), ==, 0);
    g_assert_cmpstr (contradicting (&court), ==, "");
    file_of (&court, 0)->share.y[7] ^= 1;
    file_of (&court, 4)->share.x = 2;
    g_assert_cmpint (judge (&court, secret_bytes), ==, 0);
    g_assert_cmpstr (contradicting (&court), ==, "ae");
    file_of (&court, 1)->share.x = 0;
    g_assert_cmpint (judge (&court, secret_bytes), ==, 0);
    file_of (&court, 2)->digests[5][0] ^= 1;
    g_assert_cmpint (judge (&court, secret_bytes), ==, ENODATA);
    court_clear (&court);
}

/* Two of six offer a whole other secret, for which they alone are enough. */
static void test_another_secret (void)
{
    static const uint8_t other[ECFS_SECRET_BYTES] = {3};
    Court court = {0};
    add_zones (&court, 'a', 'b', other, 1, 2);
    add_zones (&court, 'c', 'f', secret_bytes, 3, 6);
    g_assert_cmpint (judge (&court, secret_bytes), ==, 0);
    g_assert_cmpstr (contradicting (&court), ==, "ab");
    /* as many endpoints of one zone are one voice */
    for (unsigned i = 0; i < 2; i++) {
        EcfsShareWitness again = court.witnesses[i];
        g_autoptr (GByteArray) bytes = ecfs_key_file_format (again.file);
        EcfsKeyFile *copy = g_new0 (EcfsKeyFile, 1);
        g_assert_true (ecfs_key_file_parse (bytes->data, bytes->len, copy, NULL));
        again.file = copy;
        court.witnesses[court.n++] = again;
    }
    g_assert_cmpint (judge (&court, secret_bytes), ==, 0);
    court_clear (&court);
    /* where most zones are away, two that lie do not outvote the one that is here of those that need three */
    Court few = {0};
    add_zones (&few, 'a', 'b', other, 2, 2);
    add_zones (&few, 'c', 'c', secret_bytes, 3, 6);
    g_assert_cmpint (judge (&few, secret_bytes), ==, ENOTUNIQ);
    court_clear (&few);
}

/* Who asks for the shares of more zones than there are keeps nobody from the key. */
static void test_asks_for_many (void)
{
    static const uint8_t other[ECFS_SECRET_BYTES] = {3};
    for (unsigned n = 1; n <= 2; n++) {
        Court court = {0};
        add_zones (&court, 'a', (char) ('a' + n - 1), other, 200, 255);
        add_zones (&court, (char) ('a' + n), 'f', secret_bytes, 3, 255);
        g_assert_cmpint (judge (&court, secret_bytes), ==, 0);
        g_assert_cmpstr (contradicting (&court), ==, n == 1 ? "a" : "ab");
        court_clear (&court);
    }
    /* each with a list of its own, and one of those that know better has another */
    Court court = {0};
    add_zones (&court, 'a', 'a', other, 7, 255);
    add_zones (&court, 'b', 'b', other, 6, 255);
    add_zones (&court, 'c', 'f', secret_bytes, 3, 255);
    g_assert_cmpint (judge (&court, secret_bytes), ==, 0);
    /* but as few as have to agree by what they say themselves may all lie, where one asks for more */
    file_of (&court, 5)->share.y[0] ^= 1;
    g_assert_cmpint (judge (&court, secret_bytes), ==, ENOTUNIQ);
    g_assert_cmpstr (contradicting (&court), ==, "abf");
    court_clear (&court);
}

static void test_as_many_voices (void)
{
    static const uint8_t other[ECFS_SECRET_BYTES] = {3};
    Court court = {0};
    add_zones (&court, 'a', 'b', other, 2, 2);
    add_zones (&court, 'c', 'd', secret_bytes, 2, 2);
    g_assert_cmpint (judge (&court, secret_bytes), ==, ENOTUNIQ);
    court_clear (&court);
}

static void test_nobody_has_a_share (void)
{
    Court court = {.n = 2, .witnesses = {{.zone = "a"}, {.zone = "b"}}};
    g_assert_cmpint (judge (&court, secret_bytes), ==, ENODATA);
    add_zones (&court, 'c', 'd', secret_bytes, 3, 6);
    g_assert_cmpint (judge (&court, secret_bytes), ==, ENODATA);
    EcfsUuid other = {{9}};
    g_clear_error (&court.error);
    g_assert_false (
        ecfs_secret_gather (&other, court.witnesses, court.n, court.secret, &court.generation, &court.error));
    g_assert_error (court.error, ECFS_ERROR, ENODATA);
    court_clear (&court);
}

/* Counter 0 under a key of zeros: AES-256 of a block of zeros, as NIST's known answer tests have it. */
static void test_cipher (void)
{
    uint8_t key[ECFS_KEY_BYTES] = {0}, text[200] = {0};
    EcfsCipher *cipher = ecfs_cipher_new (key, 0);
    ecfs_cipher_next (cipher, text, sizeof text);
    ecfs_cipher_free (cipher);
    ecfs_cipher_free (NULL);
    assert_bytes (text, "dc95c078a2408989ad48a21492842087");
    for (unsigned from = 0; from < 50; from++) {
        uint8_t part[150] = {0};
        cipher = ecfs_cipher_new (key, from);
        ecfs_cipher_next (cipher, part, from);
        ecfs_cipher_next (cipher, part + from, sizeof part - from);
        ecfs_cipher_free (cipher);
        g_assert_cmpmem (part, sizeof part, text + from, sizeof part);
    }
}

static void test_ring (void)
{
    g_autoptr (EcfsKeyRing) ring = ecfs_key_ring_new (&archive), another = ecfs_key_ring_new (&archive);
    GByteArray *bytes = ecfs_key_ring_format (ring);
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsKeyRing) same = ecfs_key_ring_parse (bytes->data, bytes->len, &error);
    g_assert_no_error (error);
    g_assert_true (ecfs_uuid_equal (ecfs_key_ring_active (ring), ecfs_key_ring_active (same)));
    g_assert_false (ecfs_uuid_equal (ecfs_key_ring_active (ring), ecfs_key_ring_active (another)));
    g_assert_true (ecfs_uuid_equal (ecfs_key_ring_archive (same), &archive));
    uint8_t keys[ECFS_N_KEY_USES][ECFS_KEY_BYTES], key[ECFS_KEY_BYTES];
    const EcfsUuid *id = ecfs_key_ring_active (ring);
    for (unsigned use = 0; use < ECFS_N_KEY_USES; use++) {
        g_assert_true (ecfs_key_ring_derive (ring, id, use, NULL, 0, keys[use], NULL));
        g_assert_true (ecfs_key_ring_derive (same, id, use, NULL, 0, key, NULL));
        g_assert_cmpmem (keys[use], sizeof key, key, sizeof key);
        g_assert_true (ecfs_key_ring_derive (ring, id, use, "salt", 4, key, NULL));
        g_assert_cmpint (memcmp (keys[use], key, sizeof key), !=, 0);
        for (unsigned other = 0; other < use; other++)
            g_assert_cmpint (memcmp (keys[use], keys[other], sizeof key), !=, 0);
    }
    g_assert_false (ecfs_key_ring_derive (another, id, ECFS_KEY_USE_TAG, NULL, 0, key, &error));
    g_assert_error (error, ECFS_ERROR, ENOKEY);
    for (guint size = 0; size < bytes->len; size++)
        g_assert_null (ecfs_key_ring_parse (bytes->data, size, NULL));
    for (guint bit = 0; bit < 8 * bytes->len; bit++) {
        bytes->data[bit / 8] ^= (uint8_t) (1 << bit % 8);
        g_assert_null (ecfs_key_ring_parse (bytes->data, bytes->len, NULL));
        bytes->data[bit / 8] ^= (uint8_t) (1 << bit % 8);
    }
    ecfs_key_forget_array (bytes);
}

/* One key takes the place of another, and what was before it stays until its end. */
static void test_ring_rotates (void)
{
    const EcfsKeyEnd end = {.epoch = 3, .sequence = 70}, later = {.epoch = 4, .sequence = 9};
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsKeyRing) first = ecfs_key_ring_new (&archive);
    g_autoptr (EcfsKeyRing) second = ecfs_key_ring_rotate (first, &end, NULL);
    g_autoptr (EcfsKeyRing) third = ecfs_key_ring_rotate (second, &later, NULL);
    GByteArray *bytes = ecfs_key_ring_format (third);
    g_autoptr (EcfsKeyRing) same = ecfs_key_ring_parse (bytes->data, bytes->len, &error);
    g_assert_no_error (error);
    const EcfsUuid *one = ecfs_key_ring_active (first), *two = ecfs_key_ring_active (second);
    g_assert_cmpuint (ecfs_key_ring_n_retired (first), ==, 0);
    g_assert_cmpuint (ecfs_key_ring_n_retired (same), ==, 2);
    g_assert_true (ecfs_uuid_equal (ecfs_key_ring_active (same), ecfs_key_ring_active (third)));
    g_assert_true (ecfs_uuid_equal (ecfs_key_ring_retired (same, 0), two));
    g_assert_true (ecfs_uuid_equal (ecfs_key_ring_retired (same, 1), one));
    g_assert_true (ecfs_key_ring_has (same, one) && ecfs_key_ring_has (same, two));
    g_assert_false (ecfs_key_ring_has (first, two));
    g_assert_true (ecfs_key_ring_covers (same, one, 3, 70) && ecfs_key_ring_covers (same, one, 2, 500));
    g_assert_false (ecfs_key_ring_covers (same, one, 3, 71) || ecfs_key_ring_covers (same, one, 4, 0));
    g_assert_true (ecfs_key_ring_covers (same, two, 4, 9) && ecfs_key_ring_covers (first, one, UINT32_MAX, UINT64_MAX));
    g_assert_true (ecfs_key_ring_covers (same, ecfs_key_ring_active (same), UINT32_MAX, UINT64_MAX));
    g_assert_false (ecfs_key_ring_covers (first, two, 0, 0));
    for (guint bit = 0; bit < 8 * bytes->len; bit++) {
        bytes->data[bit / 8] ^= (uint8_t) (1 << bit % 8);
        g_assert_null (ecfs_key_ring_parse (bytes->data, bytes->len, NULL));
        bytes->data[bit / 8] ^= (uint8_t) (1 << bit % 8);
    }
    ecfs_key_forget_array (bytes);
    for (unsigned n = 3; n < ECFS_KEY_RING_MAX; n++) {
        EcfsKeyRing *next = ecfs_key_ring_rotate (third, &later, NULL);
        ecfs_key_ring_unref (third);
        third = next;
    }
    g_assert_null (ecfs_key_ring_rotate (third, &later, &error));
    g_assert_error (error, ECFS_ERROR, ENOSPC);
}

static void test_seal (void)
{
    uint8_t bytes[ECFS_SEAL_BYTES + 1] = {0};
    g_autoptr (EcfsKeyRing) ring = ecfs_key_ring_new (&archive);
    const EcfsSeal seal = ecfs_seal_new (ring), another = ecfs_seal_new (ring), none = ecfs_seal_new (NULL);
    EcfsSeal parsed;
    g_assert_false (ecfs_seal_equal (&seal, &another));
    g_assert_cmpint (none.kind, ==, ECFS_SEAL_NONE);
    ecfs_seal_put (&seal, bytes);
    g_assert_true (ecfs_seal_parse (bytes, ECFS_SEAL_BYTES, &parsed, NULL));
    g_assert_true (ecfs_seal_equal (&seal, &parsed));
    g_autoptr (GError) error = NULL;
    g_assert_false (ecfs_seal_parse (bytes, ECFS_SEAL_BYTES + 1, &parsed, NULL));
    g_assert_false (ecfs_seal_parse (bytes, ECFS_SEAL_BYTES - 1, &parsed, NULL));
    bytes[0] = 3;
    g_assert_false (ecfs_seal_parse (bytes, ECFS_SEAL_BYTES, &parsed, &error));
    g_assert_error (error, ECFS_ERROR, ENOTSUP);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/key/is-derived-as-rfc-5869-says", test_derive);
    g_test_add_func ("/key/hmac-is-as-rfc-4231-says", test_mac);
    g_test_add_func ("/key/of-a-passphrase-is-as-rfc-7914-says", test_passphrase);
    g_test_add_func ("/key/what-is-sealed-cannot-be-changed", test_sealed);
    g_test_add_func ("/key/nothing-can-be-sealed-too", test_nothing_sealed);
    g_test_add_func ("/key/the-cipher-begins-anywhere", test_cipher);
    g_test_add_func ("/key/ring/says-the-same-when-read-or-nothing", test_ring);
    g_test_add_func ("/key/ring/one-key-takes-the-place-of-another", test_ring_rotates);
    g_test_add_func ("/key/seal/says-the-same-when-read-or-nothing", test_seal);
    g_test_add_func ("/key/shares-lie-on-a-line", test_shares_lie_on_a_line);
    g_test_add_func ("/key/any-shares-make-the-secret", test_any_shares_make_the_secret);
    g_test_add_func ("/key/codes-are-typed-as-people-do", test_codes);
    for (unsigned kind = ECFS_KEY_SLOT_SPLIT; kind <= ECFS_KEY_SLOT_RECIPIENT; kind++) {
        g_autofree char *path =
            g_strdup_printf ("/key/slot/%s-opens-with-what-it-needs-alone", ecfs_key_slot_kind_text (kind));
        g_test_add_data_func (path, GUINT_TO_POINTER (kind), test_slot);
    }
    g_test_add_func ("/key/slot/a-weak-recipient-is-refused", test_weak_recipient);
    g_test_add_func ("/key/file/says-the-same-when-read-or-nothing", test_file);
    g_test_add_func ("/key/file/a-revision-has-a-mac", test_revision);
    g_test_add_func ("/key/recipients-are-read-as-openssl-writes-them", test_recipients);
    g_test_add_func ("/key/gather/forged-shares-are-left-out-and-named", test_forged_shares);
    g_test_add_func ("/key/gather/few-cannot-offer-another-secret", test_another_secret);
    g_test_add_func ("/key/gather/who-asks-for-many-keeps-nobody-from-it", test_asks_for_many);
    g_test_add_func ("/key/gather/as-many-voices-are-no-verdict", test_as_many_voices);
    g_test_add_func ("/key/gather/too-few-are-counted", test_nobody_has_a_share);
    return g_test_run ();
}
