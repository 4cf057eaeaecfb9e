#include "endpoint/s3/s3_sign.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <time.h>

#define DIGEST_BYTES 32

static void to_hex (const uint8_t digest[DIGEST_BYTES], char ret_hex[ECFS_S3_HASH_SIZE])
{
    for (size_t i = 0; i < DIGEST_BYTES; i++)
        g_snprintf (ret_hex + 2 * i, 3, "%02x", digest[i]);
}

void ecfs_s3_hash (const void *bytes, size_t size, char ret_hash[ECFS_S3_HASH_SIZE])
{
    uint8_t digest[DIGEST_BYTES];
    if (EVP_Digest (bytes, size, digest, NULL, EVP_sha256 (), NULL) != 1)
        g_error ("OpenSSL has no SHA-256");
    to_hex (digest, ret_hash);
}

void ecfs_s3_stamp (int64_t time_s, char ret_stamp[ECFS_S3_STAMP_SIZE])
{
    time_t time = (time_t) time_s;
    struct tm broken;
    if (gmtime_r (&time, &broken) == NULL || strftime (ret_stamp, ECFS_S3_STAMP_SIZE, "%Y%m%dT%H%M%SZ", &broken) == 0)
        g_strlcpy (ret_stamp, "19700101T000000Z", ECFS_S3_STAMP_SIZE);
}

char *ecfs_s3_escape (const char *text, bool slash)
{
    GString *escaped = g_string_new (NULL);
    for (; *text != '\0'; text++)
        if (g_ascii_isalnum (*text) || strchr ("-._~", *text) != NULL || (slash && *text == '/'))
            g_string_append_c (escaped, *text);
        else
            g_string_append_printf (escaped, "%%%02X", (uint8_t) *text);
    return g_string_free (escaped, FALSE);
}

static int compare (const void *a, const void *b)
{
    return strcmp (*(char *const *) a, *(char *const *) b);
}

char *ecfs_s3_query (const char *key, ...)
{
    g_autoptr (GPtrArray) parts = g_ptr_array_new_with_free_func (g_free);
    va_list args;
    va_start (args, key);
    for (; key != NULL; key = va_arg (args, const char *)) {
        const char *value = va_arg (args, const char *);
        if (value == NULL)
            continue;
        g_autofree char *name = ecfs_s3_escape (key, false);
        g_autofree char *escaped = ecfs_s3_escape (value, false);
        g_ptr_array_add (parts, g_strconcat (name, "=", escaped, NULL));
    }
    va_end (args);
    g_ptr_array_sort (parts, compare); /* no key is the beginning of another one with a character below "=" behind */
    g_ptr_array_add (parts, NULL);
    return g_strjoinv ("&", (char **) parts->pdata);
}

/* "name:value" of those that are signed, sorted; *ret_names: theirs, with ";" between. */
static char *canonical_headers (const EcfsS3Signing *what, char **ret_names)
{
    g_autoptr (GPtrArray) lines = g_ptr_array_new_with_free_func (g_free);
    g_ptr_array_add (lines, g_strconcat ("host:", what->host, NULL));
    for (size_t i = 0; what->headers[i] != NULL; i++) {
        const char *colon = strchr (what->headers[i], ':');
        if (colon == NULL)
            continue;
        g_autofree char *as_is = g_strndup (what->headers[i], (size_t) (colon - what->headers[i]));
        g_autofree char *name = g_ascii_strdown (as_is, -1);
        g_autofree char *value = g_strstrip (g_strdup (colon + 1));
        if (g_str_has_prefix (name, "x-amz-") || strcmp (name, "content-md5") == 0)
            g_ptr_array_add (lines, g_strconcat (name, ":", value, NULL));
    }
    g_ptr_array_sort (lines, compare);
    GString *text = g_string_new (NULL), *names = g_string_new (NULL);
    for (guint i = 0; i < lines->len; i++) {
        const char *line = lines->pdata[i];
        g_string_append_printf (text, "%s\n", line);
        g_string_append_printf (names, "%s%.*s", i > 0 ? ";" : "", (int) strcspn (line, ":"), line);
    }
    *ret_names = g_string_free (names, FALSE);
    return g_string_free (text, FALSE);
}

static void hmac (const void *key, size_t key_size, const char *text, uint8_t ret_digest[DIGEST_BYTES])
{
    unsigned size = DIGEST_BYTES;
    if (HMAC (EVP_sha256 (), key, (int) key_size, (const uint8_t *) text, strlen (text), ret_digest, &size) == NULL)
        g_error ("OpenSSL has no HMAC");
}

static void signing_key (const EcfsS3Signing *what, const char *day, uint8_t ret_key[DIGEST_BYTES])
{
    const char *parts[] = {day, what->region, "s3", "aws4_request"};
    char *secret = g_strconcat ("AWS4", what->key->secret, NULL);
    uint8_t next[DIGEST_BYTES];
    hmac (secret, strlen (secret), parts[0], ret_key);
    explicit_bzero (secret, strlen (secret));
    g_free (secret);
    for (size_t i = 1; i < G_N_ELEMENTS (parts); i++) {
        hmac (ret_key, DIGEST_BYTES, parts[i], next);
        memcpy (ret_key, next, DIGEST_BYTES);
    }
    explicit_bzero (next, sizeof next);
}

char *ecfs_s3_sign (const EcfsS3Signing *what)
{
    g_autofree char *names = NULL;
    g_autofree char *headers = canonical_headers (what, &names);
    g_autofree char *request = g_strdup_printf ("%s\n%s\n%s\n%s\n%s\n%s", what->method, what->path,
                                                what->query != NULL ? what->query : "", headers, names, what->content);
    g_autofree char *day = g_strndup (what->stamp, strlen ("20261127"));
    g_autofree char *scope = g_strdup_printf ("%s/%s/s3/aws4_request", day, what->region);
    char hash[ECFS_S3_HASH_SIZE], signature[ECFS_S3_HASH_SIZE];
    uint8_t key[DIGEST_BYTES], digest[DIGEST_BYTES];
    ecfs_s3_hash (request, strlen (request), hash);
    g_autofree char *text = g_strdup_printf ("AWS4-HMAC-SHA256\n%s\n%s\n%s", what->stamp, scope, hash);
    signing_key (what, day, key);
    hmac (key, sizeof key, text, digest);
    explicit_bzero (key, sizeof key);
    to_hex (digest, signature);
    return g_strdup_printf ("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s", what->key->access,
                            scope, names, signature);
}
