#include "key/slots.h"

#include "util/bytes.h"
#include "util/xxh3.h"

#include <openssl/evp.h>

#define VERSION          2 /* 1: without revision, MAC and notes */
#define CHECKSUM_BYTES   8
#define SCRYPT_LOG2_N    17
#define SCRYPT_R         8
#define SCRYPT_P         1
#define SLOT_BOUND_BYTES (16 + 16 + 1 + ECFS_KEY_BYTES + 3)
#define CODE_GROUP       4

static const uint8_t magic[8] = {0x89, 'e', 'c', 'f', 's', 'k', 'e', 'y'};
static const char base32[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/* Slots */

const char *ecfs_key_slot_kind_text (EcfsKeySlotKind kind)
{
    static const char *const texts[] = {NULL, "split", "passphrase", "alone", "code", "recipient"};
    return kind >= ECFS_KEY_SLOT_SPLIT && kind <= ECFS_KEY_SLOT_RECIPIENT ? texts[kind] : "unknown";
}

static bool has_passphrase (EcfsKeySlotKind kind)
{
    return kind == ECFS_KEY_SLOT_PASSPHRASE || kind == ECFS_KEY_SLOT_ALONE;
}

/* What two X25519 keys agree on. EBADMSG: one of them is none. */
static bool agree (EVP_PKEY *mine, const uint8_t public_key[ECFS_KEY_BYTES], uint8_t ret_secret[ECFS_KEY_BYTES],
                   GError **error)
{
    size_t size = ECFS_KEY_BYTES;
    EVP_PKEY *theirs = EVP_PKEY_new_raw_public_key (EVP_PKEY_X25519, NULL, public_key, ECFS_KEY_BYTES);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new (mine, NULL);
    bool agreed = theirs != NULL && context != NULL && EVP_PKEY_derive_init (context) == 1 &&
                  EVP_PKEY_derive_set_peer (context, theirs) == 1 && EVP_PKEY_derive (context, ret_secret, &size) == 1;
    EVP_PKEY_CTX_free (context);
    EVP_PKEY_free (theirs);
    return agreed || ecfs_fail (error, EBADMSG, "this is no X25519 key that can be used");
}

/* The key of a recipient's slot: bound to both public keys, of which the slot's own is in its salt. */
static bool recipient_key (const EcfsKeySlot *self, EVP_PKEY *mine, const uint8_t *theirs, const uint8_t *recipient,
                           uint8_t ret_key[ECFS_KEY_BYTES], GError **error)
{
    uint8_t agreed[ECFS_KEY_BYTES], salt[2 * ECFS_KEY_BYTES];
    if (!agree (mine, theirs, agreed, error))
        return false;
    memcpy (salt, self->salt, ECFS_KEY_BYTES);
    memcpy (salt + ECFS_KEY_BYTES, recipient, ECFS_KEY_BYTES);
    ecfs_key_derive (agreed, sizeof agreed, salt, sizeof salt, "ecfs slot recipient", ret_key);
    ecfs_key_forget (agreed, sizeof agreed);
    return true;
}

static void public_half (EVP_PKEY *key, uint8_t ret_public[ECFS_KEY_BYTES])
{
    size_t size = ECFS_KEY_BYTES;
    if (EVP_PKEY_get_raw_public_key (key, ret_public, &size) != 1)
        g_error ("OpenSSL cannot tell the public half of a key");
}

static bool private_key (const uint8_t *bytes, EVP_PKEY **ret_key, GError **error)
{
    *ret_key = EVP_PKEY_new_raw_private_key (EVP_PKEY_X25519, NULL, bytes, ECFS_KEY_BYTES);
    return *ret_key != NULL || ecfs_fail (error, EINVAL, "this is no private X25519 key");
}

/* As who opens the slot knows it; as who makes it knows it, see seal_for_recipient (). */
static bool open_for_recipient (const EcfsKeySlot *self, const EcfsKeyOpener *opener, uint8_t ret_key[ECFS_KEY_BYTES],
                                GError **error)
{
    EVP_PKEY *mine;
    uint8_t recipient[ECFS_KEY_BYTES];
    if (!private_key (opener->private_key, &mine, error))
        return false;
    public_half (mine, recipient);
    bool done = recipient_key (self, mine, self->salt, recipient, ret_key, error);
    EVP_PKEY_free (mine);
    return done;
}

static bool seal_for_recipient (EcfsKeySlot *self, const EcfsKeyOpener *opener, uint8_t ret_key[ECFS_KEY_BYTES],
                                GError **error)
{
    EVP_PKEY *once = EVP_PKEY_Q_keygen (NULL, NULL, "X25519");
    if (once == NULL)
        g_error ("OpenSSL cannot make a key");
    public_half (once, self->salt);
    bool done = recipient_key (self, once, opener->public_key, opener->public_key, ret_key, error);
    EVP_PKEY_free (once);
    return done;
}

static bool passphrase_key (const EcfsKeySlot *self, const EcfsKeyOpener *opener, uint8_t ret_key[ECFS_KEY_BYTES],
                            GError **error)
{
    uint8_t both[ECFS_KEY_BYTES + ECFS_SECRET_BYTES] = {0};
    if (!ecfs_key_from_passphrase (opener->passphrase, self->salt, sizeof self->salt, self->log2_n, self->r, self->p,
                                   both, error))
        return false;
    bool shared = self->kind == ECFS_KEY_SLOT_PASSPHRASE;
    if (shared)
        memcpy (both + ECFS_KEY_BYTES, opener->secret, ECFS_SECRET_BYTES);
    ecfs_key_derive (both, sizeof both, self->salt, sizeof self->salt,
                     shared ? "ecfs slot passphrase" : "ecfs slot alone", ret_key);
    ecfs_key_forget (both, sizeof both);
    return true;
}

static const char *lacks (EcfsKeySlotKind kind, const EcfsKeyOpener *opener, bool to_open)
{
    if ((kind == ECFS_KEY_SLOT_SPLIT || kind == ECFS_KEY_SLOT_PASSPHRASE) && opener->secret == NULL)
        return "the shares of enough endpoints";
    if (has_passphrase (kind) && opener->passphrase == NULL)
        return "a passphrase";
    if (kind == ECFS_KEY_SLOT_CODE && opener->code == NULL)
        return "a code";
    if (kind == ECFS_KEY_SLOT_RECIPIENT && (to_open ? opener->private_key : opener->public_key) == NULL)
        return to_open ? "a private key" : "a public key";
    return NULL;
}

static bool slot_key (const EcfsKeySlot *self, const EcfsKeyOpener *opener, uint8_t ret_key[ECFS_KEY_BYTES],
                      GError **error)
{
    const uint8_t *salt = self->salt;
    switch (self->kind) {
    case ECFS_KEY_SLOT_SPLIT:
        ecfs_key_derive (opener->secret, ECFS_SECRET_BYTES, salt, sizeof self->salt, "ecfs slot split", ret_key);
        return true;
    case ECFS_KEY_SLOT_CODE:
        ecfs_key_derive (opener->code, ECFS_CODE_BYTES, salt, sizeof self->salt, "ecfs slot code", ret_key);
        return true;
    case ECFS_KEY_SLOT_PASSPHRASE:
    case ECFS_KEY_SLOT_ALONE:
        return passphrase_key (self, opener, ret_key, error);
    case ECFS_KEY_SLOT_RECIPIENT:
        return open_for_recipient (self, opener, ret_key, error);
    }
    return ecfs_fail (error, ENOTSUP, "a later ecfs made this key slot");
}

/* What a slot's bytes are bound to: all else that it says, and the archive. */
static void slot_bound (const EcfsKeySlot *self, const EcfsUuid *archive, uint8_t ret_bound[SLOT_BOUND_BYTES])
{
    memcpy (ret_bound, archive->bytes, 16);
    memcpy (ret_bound + 16, self->id.bytes, 16);
    ret_bound[32] = (uint8_t) self->kind;
    memcpy (ret_bound + 33, self->salt, ECFS_KEY_BYTES);
    const uint8_t scrypt[3] = {self->log2_n, self->r, self->p};
    memcpy (ret_bound + 33 + ECFS_KEY_BYTES, scrypt, sizeof scrypt);
}

EcfsKeySlot *ecfs_key_slot_new (EcfsKeySlotKind kind, const EcfsUuid *archive, const EcfsKeyOpener *opener,
                                const GByteArray *bytes, GError **error)
{
    uint8_t key[ECFS_KEY_BYTES], bound[SLOT_BOUND_BYTES];
    const char *missing = lacks (kind, opener, false);
    if (missing != NULL || bytes->len > ECFS_KEY_SLOT_SEALED_MAX - ECFS_KEY_SEALED_BYTES) {
        (void) !ecfs_fail (error, EINVAL, "a key slot of the kind %s needs %s", ecfs_key_slot_kind_text (kind),
                           missing != NULL ? missing : "less to be sealed in it");
        return NULL;
    }
    g_autoptr (EcfsKeySlot) self = g_new0 (EcfsKeySlot, 1);
    self->id = ecfs_uuid_new ();
    self->kind = kind;
    ecfs_random (self->salt, sizeof self->salt);
    if (has_passphrase (kind)) {
        self->log2_n = SCRYPT_LOG2_N;
        self->r = SCRYPT_R;
        self->p = SCRYPT_P;
    }
    bool known = kind == ECFS_KEY_SLOT_RECIPIENT ? seal_for_recipient (self, opener, key, error)
                                                 : slot_key (self, opener, key, error);
    if (!known)
        return NULL;
    slot_bound (self, archive, bound);
    if (kind == ECFS_KEY_SLOT_RECIPIENT) {
        self->note_bytes = ECFS_KEY_BYTES;
        memcpy (self->note, opener->public_key, ECFS_KEY_BYTES);
    }
    self->sealed = ecfs_key_seal (key, bound, sizeof bound, bytes->data, bytes->len);
    ecfs_key_forget (key, sizeof key);
    return g_steal_pointer (&self);
}

GByteArray *ecfs_key_slot_open (const EcfsKeySlot *self, const EcfsUuid *archive, const EcfsKeyOpener *opener,
                                GError **error)
{
    uint8_t key[ECFS_KEY_BYTES], bound[SLOT_BOUND_BYTES];
    const char *missing = lacks (self->kind, opener, true);
    if (missing != NULL) {
        (void) !ecfs_fail (error, EINVAL, "a key slot of the kind %s needs %s", ecfs_key_slot_kind_text (self->kind),
                           missing);
        return NULL;
    }
    if (!slot_key (self, opener, key, error))
        return NULL;
    slot_bound (self, archive, bound);
    GByteArray *bytes = ecfs_key_open (key, bound, sizeof bound, self->sealed->data, self->sealed->len, error);
    ecfs_key_forget (key, sizeof key);
    return bytes;
}

void ecfs_key_slot_free (EcfsKeySlot *self)
{
    if (self == NULL)
        return;
    if (self->sealed != NULL)
        g_byte_array_unref (self->sealed);
    g_free (self);
}

EcfsKeySlot *ecfs_key_slot_copy (const EcfsKeySlot *self)
{
    EcfsKeySlot *copy = g_memdup2 (self, sizeof *self);
    copy->sealed = g_byte_array_append (g_byte_array_new (), self->sealed->data, self->sealed->len);
    return copy;
}

static void append_slot (GByteArray *to, const EcfsKeySlot *slot, bool with_note)
{
    g_byte_array_append (to, slot->id.bytes, 16);
    ecfs_append_le (to, slot->kind, 2);
    g_byte_array_append (to, slot->salt, sizeof slot->salt);
    ecfs_append_le (to, slot->log2_n, 1);
    ecfs_append_le (to, slot->r, 1);
    ecfs_append_le (to, slot->p, 1);
    if (with_note) {
        ecfs_append_le (to, slot->note_bytes, 1);
        g_byte_array_append (to, slot->note, slot->note_bytes);
    }
    ecfs_append_le (to, slot->sealed->len, 4);
    g_byte_array_append (to, slot->sealed->data, slot->sealed->len);
}

GByteArray *ecfs_key_slot_format (const EcfsKeySlot *self)
{
    GByteArray *to = g_byte_array_new ();
    append_slot (to, self, true);
    return to;
}

/* Codes */

void ecfs_code_text (const uint8_t code[ECFS_CODE_BYTES], char text[ECFS_CODE_TEXT_SIZE])
{
    char *to = text;
    for (unsigned i = 0; i < ECFS_CODE_BYTES * 8 / 5; i++) {
        unsigned bit = i * 5,
                 two = (unsigned) code[bit / 8] << 8 | (bit / 8 + 1 < ECFS_CODE_BYTES ? code[bit / 8 + 1] : 0);
        if (i > 0 && i % CODE_GROUP == 0)
            *to++ = '-';
        *to++ = base32[two >> (11 - bit % 8) & 31];
    }
    *to = '\0';
}

bool ecfs_code_parse (const char *text, uint8_t ret_code[ECFS_CODE_BYTES])
{
    uint8_t code[ECFS_CODE_BYTES] = {0};
    unsigned n = 0;
    for (; *text != '\0'; text++) {
        if (*text == '-' || g_ascii_isspace (*text))
            continue;
        const char *at = strchr (base32, g_ascii_toupper (*text));
        if (at == NULL || n == ECFS_CODE_BYTES * 8 / 5)
            return false;
        unsigned bits = (unsigned) (at - base32) << (11 - n * 5 % 8), byte = n * 5 / 8;
        code[byte] |= (uint8_t) (bits >> 8);
        if (byte + 1 < ECFS_CODE_BYTES)
            code[byte + 1] |= (uint8_t) bits;
        n++;
    }
    if (n < ECFS_CODE_BYTES * 8 / 5)
        return false;
    memcpy (ret_code, code, sizeof code);
    return true;
}

/* Files */

/* More than it has. */
static guint file_bytes (const EcfsKeyFile *file)
{
    guint bytes = 256 + file->n_shares * ECFS_KEY_BYTES;
    for (guint i = 0; i < file->slots->len; i++)
        bytes += 64 + UINT8_MAX + ((const EcfsKeySlot *) g_ptr_array_index (file->slots, i))->sealed->len;
    return bytes;
}

/* All before the MAC. */
static GByteArray *append_file (const EcfsKeyFile *file, const EcfsShare *share)
{
    GByteArray *to = g_byte_array_sized_new (file_bytes (file)); /* so that no part of it is left behind */
    g_assert (file->slots->len <= ECFS_KEY_SLOTS_MAX);
    g_byte_array_append (to, magic, sizeof magic);
    ecfs_append_le (to, file->revision > 0 ? VERSION : 1, 2);
    g_byte_array_append (to, file->archive.bytes, 16);
    g_byte_array_append (to, file->generation.bytes, 16);
    ecfs_append_le (to, file->threshold, 1);
    ecfs_append_le (to, file->n_shares, 1);
    for (unsigned i = 0; i < file->n_shares; i++)
        g_byte_array_append (to, file->digests[i], ECFS_KEY_BYTES);
    ecfs_append_le (to, share->x, 1);
    g_byte_array_append (to, share->y, ECFS_SECRET_BYTES);
    ecfs_append_le (to, file->slots->len, 2);
    for (guint i = 0; i < file->slots->len; i++)
        append_slot (to, g_ptr_array_index (file->slots, i), file->revision > 0);
    if (file->revision > 0) {
        ecfs_append_le (to, file->revision, 8);
        g_byte_array_append (to, file->key.bytes, sizeof file->key.bytes);
    }
    return to;
}

GByteArray *ecfs_key_file_format (const EcfsKeyFile *file)
{
    GByteArray *to = append_file (file, &file->share);
    if (file->revision > 0)
        g_byte_array_append (to, file->mac, sizeof file->mac);
    ecfs_append_le (to, ecfs_xxh3_64 (to->data, to->len), CHECKSUM_BYTES);
    return to;
}

void ecfs_key_file_mac (const EcfsKeyFile *file, const uint8_t key[ECFS_KEY_BYTES], uint8_t ret_mac[ECFS_KEY_BYTES])
{
    const EcfsShare none = {.x = 0};
    g_autoptr (GByteArray) bytes = append_file (file, &none);
    ecfs_key_derive (bytes->data, bytes->len, key, ECFS_KEY_BYTES, "ecfs key file", ret_mac);
}

static bool parse_slot (EcfsCursor *from, EcfsKeyFile *file)
{
    EcfsKeySlot *slot = g_new0 (EcfsKeySlot, 1);
    g_ptr_array_add (file->slots, slot);
    ecfs_cursor_copy (from, slot->id.bytes, 16);
    slot->kind = (EcfsKeySlotKind) ecfs_cursor_le (from, 2); /* of a later ecfs it is kept, and cannot be opened */
    ecfs_cursor_copy (from, slot->salt, sizeof slot->salt);
    slot->log2_n = (uint8_t) ecfs_cursor_le (from, 1);
    slot->r = (uint8_t) ecfs_cursor_le (from, 1);
    slot->p = (uint8_t) ecfs_cursor_le (from, 1);
    slot->note_bytes = file->revision > 0 ? (uint8_t) ecfs_cursor_le (from, 1) : 0;
    ecfs_cursor_copy (from, slot->note, slot->note_bytes);
    uint64_t size = ecfs_cursor_le (from, 4);
    const uint8_t *sealed = size <= ECFS_KEY_SLOT_SEALED_MAX ? ecfs_cursor_bytes (from, size) : NULL;
    slot->sealed = g_byte_array_new ();
    if (sealed != NULL)
        g_byte_array_append (slot->sealed, sealed, (guint) size);
    return sealed != NULL;
}

static bool parse_shares (EcfsCursor *from, EcfsKeyFile *file)
{
    file->threshold = (uint8_t) ecfs_cursor_le (from, 1);
    file->n_shares = (uint8_t) ecfs_cursor_le (from, 1);
    file->digests = g_malloc0_n (MAX (file->n_shares, 1), sizeof *file->digests);
    for (unsigned i = 0; i < file->n_shares; i++)
        ecfs_cursor_copy (from, file->digests[i], ECFS_KEY_BYTES);
    file->share.x = (uint8_t) ecfs_cursor_le (from, 1);
    ecfs_cursor_copy (from, file->share.y, ECFS_SECRET_BYTES);
    return !from->bad && file->threshold <= file->n_shares && file->share.x <= file->n_shares &&
           (file->threshold > 0) == (file->n_shares > 0);
}

static bool parse (EcfsCursor *from, EcfsKeyFile *file)
{
    ecfs_cursor_copy (from, file->archive.bytes, 16);
    ecfs_cursor_copy (from, file->generation.bytes, 16);
    if (!parse_shares (from, file))
        return false;
    uint64_t n_slots = ecfs_cursor_le (from, 2);
    if (n_slots > ECFS_KEY_SLOTS_MAX)
        return false;
    for (uint64_t i = 0; i < n_slots; i++) {
        if (!parse_slot (from, file))
            return false;
    }
    if (file->revision > 0) {
        file->revision = ecfs_cursor_le (from, 8);
        ecfs_cursor_copy (from, file->key.bytes, sizeof file->key.bytes);
        ecfs_cursor_copy (from, file->mac, sizeof file->mac);
        if (file->revision == 0)
            return false;
    }
    return !from->bad && from->left == 0;
}

bool ecfs_key_file_parse (const uint8_t *bytes, size_t size, EcfsKeyFile *ret_file, GError **error)
{
    EcfsKeyFile file = {.slots = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_key_slot_free)};
    bool whole =
        size >= sizeof magic + 2 + CHECKSUM_BYTES && size <= ECFS_KEY_FILE_MAX_BYTES &&
        memcmp (bytes, magic, sizeof magic) == 0 &&
        ecfs_get_le (bytes + size - CHECKSUM_BYTES, CHECKSUM_BYTES) == ecfs_xxh3_64 (bytes, size - CHECKSUM_BYTES);
    EcfsCursor from = {.at = bytes, .left = whole ? size - CHECKSUM_BYTES : 0};
    (void) ecfs_cursor_bytes (&from, sizeof magic);
    uint64_t version = ecfs_cursor_le (&from, 2);
    file.revision = version > 1; /* any, until it is read */
    if (whole && (version == 1 || version == VERSION) && parse (&from, &file)) {
        *ret_file = file;
        return true;
    }
    ecfs_key_file_clear (&file);
    if (whole && version > VERSION)
        return ecfs_fail (error, ENOTSUP, "a later ecfs made this key file");
    return ecfs_fail (error, EBADMSG, "no key file, or a damaged one");
}

void ecfs_key_file_clear (EcfsKeyFile *file)
{
    if (file->slots != NULL)
        g_ptr_array_unref (file->slots);
    g_free (file->digests);
    ecfs_key_forget (file, sizeof *file);
}
