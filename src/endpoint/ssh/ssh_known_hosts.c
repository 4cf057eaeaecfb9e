#include "endpoint/ssh/ssh_known_hosts.h"

#include <string.h>

#define DEFAULT_PORT  22
#define MAX_KEY_BYTES 16384
#define SHA1_BYTES    20

static void free_key (gpointer data)
{
    EcfsKnownKey *key = data;
    g_free (key->type);
    g_free (key->blob);
    g_free (key->file);
    g_free (key);
}

GPtrArray *ecfs_known_hosts_new (void)
{
    return g_ptr_array_new_with_free_func (free_key);
}

char *ecfs_known_hosts_name (const char *host, unsigned port)
{
    return port == DEFAULT_PORT ? g_strdup (host) : g_strdup_printf ("[%s]:%u", host, port);
}

/* "|1|salt|hash": both base64, hash = HMAC-SHA1 (salt, name). */
static bool matches_hashed (const char *field, const char *name)
{
    g_auto (GStrv) parts = g_strsplit (field, "|", 5);
    if (g_strv_length (parts) != 4 || strcmp (parts[1], "1") != 0 || parts[2][0] == '\0' || parts[3][0] == '\0')
        return false;
    gsize salt_bytes;
    gsize hash_bytes;
    g_autofree guchar *salt = g_base64_decode (parts[2], &salt_bytes);
    g_autofree guchar *hash = g_base64_decode (parts[3], &hash_bytes);
    if (salt_bytes != SHA1_BYTES || hash_bytes != SHA1_BYTES)
        return false;
    GHmac *hmac = g_hmac_new (G_CHECKSUM_SHA1, salt, salt_bytes);
    guint8 digest[SHA1_BYTES];
    gsize digest_bytes = sizeof digest;
    g_hmac_update (hmac, (const guchar *) name, (gssize) strlen (name));
    g_hmac_get_digest (hmac, digest, &digest_bytes);
    g_hmac_unref (hmac);
    return memcmp (digest, hash, sizeof digest) == 0;
}

/* "*" and "?" are special; "[" is not, unlike for fnmatch (), and any bytes will do, unlike for GPatternSpec. */
static bool matches_pattern (const char *pattern, const char *name)
{
    const char *star = NULL; /* behind the last one */
    const char *retry = NULL;
    while (*name != '\0') {
        if (*pattern == '*') {
            star = ++pattern;
            retry = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

/* One comma-separated list of patterns; a negated one that matches decides. */
static bool matches_list (const char *field, const char *name)
{
    bool found = false;
    g_auto (GStrv) patterns = g_strsplit (field, ",", -1);
    for (char **pattern = patterns; *pattern != NULL; pattern++) {
        bool negated = (*pattern)[0] == '!';
        g_autofree char *lower = g_ascii_strdown (*pattern + (negated ? 1 : 0), -1);
        if (lower[0] == '\0' || !matches_pattern (lower, name))
            continue;
        if (negated)
            return false;
        found = true;
    }
    return found;
}

static bool matches (const char *field, const char *name)
{
    return field[0] == '|' ? matches_hashed (field, name) : matches_list (field, name);
}

char *ecfs_key_type (const void *blob, size_t blob_bytes)
{
    uint32_t size;
    if (blob == NULL || blob_bytes < sizeof size)
        return NULL;
    memcpy (&size, blob, sizeof size);
    size = GUINT32_FROM_BE (size);
    const char *type = (const char *) blob + sizeof size;
    if (size == 0 || size > 64 || size > blob_bytes - sizeof size || !g_utf8_validate (type, size, NULL))
        return NULL;
    return g_strndup (type, size);
}

char *ecfs_key_fingerprint (const void *blob, size_t blob_bytes)
{
    guint8 digest[32];
    gsize digest_bytes = sizeof digest;
    GChecksum *sum = g_checksum_new (G_CHECKSUM_SHA256);
    g_checksum_update (sum, blob, (gssize) blob_bytes);
    g_checksum_get_digest (sum, digest, &digest_bytes);
    g_checksum_free (sum);
    g_autofree char *text = g_base64_encode (digest, digest_bytes);
    text[strcspn (text, "=")] = '\0';
    return g_strconcat ("SHA256:", text, NULL);
}

/* The key of a line whose host fields match, or NULL when the line makes no sense. */
static EcfsKnownKey *parse_key (const char *type, const char *base64)
{
    if (strlen (base64) > MAX_KEY_BYTES || base64[0] == '\0')
        return NULL;
    gsize blob_bytes;
    g_autofree guchar *blob = g_base64_decode (base64, &blob_bytes);
    g_autofree char *inside = ecfs_key_type (blob, blob_bytes);
    if (inside == NULL || strcmp (inside, type) != 0)
        return NULL;
    EcfsKnownKey *key = g_new0 (EcfsKnownKey, 1);
    key->type = g_steal_pointer (&inside);
    key->blob = g_steal_pointer (&blob);
    key->blob_bytes = blob_bytes;
    return key;
}

static void take_line (char *line, const char *file, unsigned n, const char *name, GPtrArray *keys)
{
    g_strdelimit (line, "\t\r", ' ');
    g_auto (GStrv) words = g_strsplit (g_strstrip (line), " ", -1);
    const char *fields[4] = {NULL};
    size_t n_fields = 0;
    for (char **word = words; *word != NULL && n_fields < G_N_ELEMENTS (fields); word++)
        if ((*word)[0] != '\0')
            fields[n_fields++] = *word;
    if (n_fields == 0 || fields[0][0] == '#')
        return;
    bool marked = fields[0][0] == '@';
    bool revoked = strcmp (fields[0], "@revoked") == 0;
    size_t first = marked ? 1 : 0;
    if ((marked && !revoked) || n_fields < first + 3 || !matches (fields[first], name))
        return;
    EcfsKnownKey *key = parse_key (fields[first + 1], fields[first + 2]);
    if (key == NULL)
        return;
    key->revoked = revoked;
    key->line = n;
    key->file = g_strdup (file);
    g_ptr_array_add (keys, key);
}

void ecfs_known_hosts_find (const char *text, const char *file, const char *host, unsigned port, GPtrArray *keys)
{
    g_autofree char *lower = g_ascii_strdown (host, -1);
    g_autofree char *name = ecfs_known_hosts_name (lower, port);
    g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
    for (unsigned i = 0; lines[i] != NULL; i++)
        take_line (lines[i], file, i + 1, name, keys);
}

EcfsKnownVerdict ecfs_known_hosts_judge (const GPtrArray *keys, const void *blob, size_t blob_bytes,
                                         const EcfsKnownKey **ret_key)
{
    EcfsKnownVerdict verdict = ECFS_HOST_UNKNOWN;
    *ret_key = NULL;
    for (guint i = 0; i < keys->len; i++) {
        const EcfsKnownKey *key = keys->pdata[i];
        bool same = key->blob_bytes == blob_bytes && memcmp (key->blob, blob, blob_bytes) == 0;
        if (key->revoked && !same)
            continue;
        if (key->revoked) {
            *ret_key = key;
            return ECFS_HOST_REVOKED;
        }
        if (same) {
            *ret_key = key;
            verdict = ECFS_HOST_KNOWN;
        } else if (verdict == ECFS_HOST_UNKNOWN) {
            *ret_key = key;
            verdict = ECFS_HOST_CHANGED;
        }
    }
    return verdict;
}
