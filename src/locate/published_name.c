/* Capabilities, and the heads of what is published: pure, on bytes from anybody. */
#include "locate/published.h"
#include "peer/peer_text.h"
#include "util/bytes.h"

#include <openssl/evp.h>
#include <string.h>

#define MAGIC           "ecfs published 1"
#define SIGNATURE_BYTES 64
#define KEY_TEXT        43 /* characters of base64 without the padding */

bool ecfs_published_is_name (const char *name)
{
    size_t size = strlen (name);
    for (const char *c = name; *c != '\0'; c++)
        if (!g_ascii_isalnum (*c) && strchr ("-_.", *c) == NULL)
            return false;
    return size > 0 && size <= ECFS_PUBLISHED_NAME_MAX && name[0] != '.';
}

static void swap (char *text, const char *from, const char *to)
{
    for (char *c = text; *c != '\0'; c++)
        for (unsigned i = 0; i < 2; i++)
            if (*c == from[i]) {
                *c = to[i];
                break;
            }
}

static char *key_text (const uint8_t key[ECFS_KEY_BYTES])
{
    char *text = g_base64_encode (key, ECFS_KEY_BYTES);
    swap (text, "+/", "-_");
    text[KEY_TEXT] = '\0';
    return text;
}

static bool parse_key (const char *text, uint8_t ret_key[ECFS_KEY_BYTES])
{
    size_t size;
    if (strlen (text) != KEY_TEXT)
        return false;
    g_autofree char *padded = g_strconcat (text, "=", NULL);
    swap (padded, "-_", "+/");
    g_autofree uint8_t *bytes = g_base64_decode (padded, &size);
    if (bytes == NULL || size != ECFS_KEY_BYTES)
        return false;
    g_autofree char *again = key_text (bytes);
    memcpy (ret_key, bytes, ECFS_KEY_BYTES);
    return strcmp (again, text) == 0; /* GLib passes over what it does not know */
}

static bool is_list (const char *text)
{
    g_auto (GStrv) parts = g_strsplit (text, ",", ECFS_DHT_NODES_MAX + 1);
    for (guint i = 0; parts[i] != NULL; i++) {
        unsigned port;
        g_autofree char *host = NULL;
        if (i >= ECFS_DHT_NODES_MAX || !ecfs_peer_address_parse (parts[i], &host, &port))
            return false;
    }
    return true;
}

bool ecfs_published_name_parse (const char *text, EcfsPublishedName *ret_name, GError **error)
{
    uint64_t network = 0;
    EcfsPublishedName name = {.name = NULL};
    g_auto (GStrv) parts = g_str_has_prefix (text, "dht:") ? g_strsplit (text + 4, "/", 5) : NULL;
    if (parts == NULL || g_strv_length (parts) != 4 || !ecfs_published_is_name (parts[0]) ||
        !parse_key (parts[1], name.public_key) || strlen (parts[2]) != 8 ||
        !g_ascii_string_to_unsigned (parts[2], 16, 0, UINT32_MAX, &network, NULL) ||
        (parts[3][0] != '\0' && !is_list (parts[3])))
        return ecfs_fail (error, EINVAL,
                          "this is not dht:NAME/KEY/NETWORK/NODES, as 'ecfs export --publish' prints it");
    name.name = g_strdup (parts[0]);
    name.network = (uint32_t) network;
    name.nodes = parts[3][0] == '\0' ? NULL : g_strdup (parts[3]);
    *ret_name = name;
    return true;
}

char *ecfs_published_name_format (const EcfsPublishedName *name)
{
    g_autofree char *key = key_text (name->public_key);
    return g_strdup_printf ("dht:%s/%s/%08x/%s", name->name, key, name->network,
                            name->nodes == NULL ? "" : name->nodes);
}

void ecfs_published_name_clear (EcfsPublishedName *name)
{
    g_clear_pointer (&name->name, g_free);
    g_clear_pointer (&name->nodes, g_free);
}

/* Heads */

unsigned ecfs_published_n_pieces (const EcfsPublishedHead *head)
{
    return (head->packed_bytes + ECFS_PUBLISHED_PIECE - 1) / ECFS_PUBLISHED_PIECE;
}

/* What is signed, but for the name, which who looks for it knows. */
static GByteArray *body_of (const EcfsPublishedHead *head)
{
    GByteArray *body = g_byte_array_new ();
    g_byte_array_append (body, (const uint8_t *) MAGIC, strlen (MAGIC));
    ecfs_append_le (body, head->counter, 8);
    ecfs_append_le (body, head->text_bytes, 4);
    ecfs_append_le (body, head->packed_bytes, 4);
    g_byte_array_append (body, head->hashes[0], ecfs_published_n_pieces (head) * ECFS_PUBLISHED_HASH_BYTES);
    return body;
}

static GByteArray *to_sign (const EcfsPublishedName *name, const uint8_t *body, size_t size)
{
    GByteArray *all = g_byte_array_new ();
    g_byte_array_append (all, (const uint8_t *) name->name, (guint) strlen (name->name) + 1);
    g_byte_array_append (all, body, (guint) size);
    return all;
}

static void seal_key (const EcfsPublishedName *name, uint8_t ret_key[ECFS_KEY_BYTES])
{
    ecfs_key_derive (name->public_key, ECFS_KEY_BYTES, name->name, strlen (name->name), "ecfs published seal", ret_key);
}

static bool sign (const uint8_t key[ECFS_KEY_BYTES], const GByteArray *bytes, uint8_t ret_signature[SIGNATURE_BYTES])
{
    size_t size = SIGNATURE_BYTES;
    EVP_PKEY *private_key = EVP_PKEY_new_raw_private_key (EVP_PKEY_ED25519, NULL, key, ECFS_KEY_BYTES);
    EVP_MD_CTX *context = EVP_MD_CTX_new ();
    bool good = private_key != NULL && context != NULL &&
                EVP_DigestSignInit (context, NULL, NULL, NULL, private_key) == 1 &&
                EVP_DigestSign (context, ret_signature, &size, bytes->data, bytes->len) == 1;
    EVP_MD_CTX_free (context);
    EVP_PKEY_free (private_key);
    return good;
}

static bool verify (const uint8_t key[ECFS_KEY_BYTES], const GByteArray *bytes, const uint8_t *signature)
{
    EVP_PKEY *public_key = EVP_PKEY_new_raw_public_key (EVP_PKEY_ED25519, NULL, key, ECFS_KEY_BYTES);
    EVP_MD_CTX *context = EVP_MD_CTX_new ();
    bool good = public_key != NULL && context != NULL &&
                EVP_DigestVerifyInit (context, NULL, NULL, NULL, public_key) == 1 &&
                EVP_DigestVerify (context, signature, SIGNATURE_BYTES, bytes->data, bytes->len) == 1;
    EVP_MD_CTX_free (context);
    EVP_PKEY_free (public_key);
    return good;
}

GByteArray *ecfs_published_head_seal (const EcfsPublishedName *name, const uint8_t key[ECFS_KEY_BYTES],
                                      const EcfsPublishedHead *head)
{
    uint8_t signature[SIGNATURE_BYTES], seal[ECFS_KEY_BYTES];
    g_autoptr (GByteArray) body = body_of (head);
    g_autoptr (GByteArray) all = to_sign (name, body->data, body->len);
    if (!sign (key, all, signature))
        g_error ("OpenSSL has no Ed25519");
    g_byte_array_append (body, signature, sizeof signature);
    seal_key (name, seal);
    return ecfs_key_seal (seal, MAGIC, strlen (MAGIC), body->data, body->len);
}

static bool parse_body (const uint8_t *bytes, size_t size, EcfsPublishedHead *head)
{
    EcfsCursor cursor = {.at = bytes, .left = size};
    const uint8_t *magic = ecfs_cursor_bytes (&cursor, strlen (MAGIC));
    head->counter = ecfs_cursor_le (&cursor, 8);
    head->text_bytes = (uint32_t) ecfs_cursor_le (&cursor, 4);
    head->packed_bytes = (uint32_t) ecfs_cursor_le (&cursor, 4);
    if (cursor.bad || memcmp (magic, MAGIC, strlen (MAGIC)) != 0 || head->text_bytes > ECFS_PUBLISHED_TEXT_MAX ||
        head->packed_bytes > ECFS_PUBLISHED_PIECES_MAX * ECFS_PUBLISHED_PIECE ||
        (head->text_bytes == 0) != (head->packed_bytes == 0))
        return false;
    size_t hashes = (size_t) ecfs_published_n_pieces (head) * ECFS_PUBLISHED_HASH_BYTES;
    if (cursor.left != hashes)
        return false;
    memcpy (head->hashes, cursor.at, hashes);
    return true;
}

bool ecfs_published_head_open (const EcfsPublishedName *name, const uint8_t *bytes, size_t size,
                               EcfsPublishedHead *ret_head)
{
    uint8_t seal[ECFS_KEY_BYTES];
    seal_key (name, seal);
    g_autoptr (GByteArray) body = ecfs_key_open (seal, MAGIC, strlen (MAGIC), bytes, size, NULL);
    if (body == NULL || body->len < SIGNATURE_BYTES)
        return false;
    size_t signed_bytes = body->len - SIGNATURE_BYTES;
    g_autoptr (GByteArray) all = to_sign (name, body->data, signed_bytes);
    return verify (name->public_key, all, body->data + signed_bytes) && parse_body (body->data, signed_bytes, ret_head);
}
