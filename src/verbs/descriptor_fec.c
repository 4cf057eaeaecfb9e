/*
 * Descriptors as Java properties, after Pitkänen et al. 2006: k, n, packetSize, fileLength, and a line for each stripe,
 * which says where it is. What our stripes need beyond that has keys that begin with "ecfs.", which others skip.
 */
#include "verbs/descriptor_priv.h"

#include <inttypes.h>
#include <string.h>

static void add_line (GString *text, const char *key, const char *value)
{
    g_autoptr (GString) escaped = g_string_new (value);
    g_string_replace (escaped, "\\", "\\\\", 0);
    g_string_append_printf (text, "%s=%s\n", key, escaped->str);
}

static void add_number (GString *text, const char *key, uint64_t number)
{
    g_string_append_printf (text, "%s=%" PRIu64 "\n", key, number);
}

static void add_stripe (GString *text, const EcfsDescriptor *self, const EcfsObjectRow *row,
                        const EcfsStripeRow *stripe)
{
    const EcfsDescriptorEndpoint *endpoint = self->endpoints->pdata[stripe->endpoint];
    char name[ECFS_STRIPE_NAME_SIZE], uuid[ECFS_UUID_TEXT_SIZE];
    ecfs_stripe_name (&row->uuid, stripe->index, stripe->instance, name);
    ecfs_uuid_text (&endpoint->uuid, uuid);
    g_autofree char *digest = ecfs_descriptor_hex (stripe->digest, sizeof stripe->digest);
    g_autofree char *facts = g_strdup_printf ("%s %s %" PRIu64, endpoint->name, uuid, stripe->size);
    g_autofree char *checksum_key = g_strconcat (name, ".checksum", NULL);
    g_autofree char *facts_key = g_strconcat ("ecfs.", name, NULL);
    add_line (text, name, endpoint->url);
    add_line (text, checksum_key, digest);
    add_line (text, facts_key, facts);
}

char *ecfs_descriptor_format_fec (const EcfsDescriptor *self, GError **error)
{
    const EcfsDescriptorObject *object = self->objects->len == 1 ? self->objects->pdata[0] : NULL;
    const EcfsExtent *extent = self->extents->len == 1 ? &g_array_index (self->extents, EcfsExtent, 0) : NULL;
    if (object == NULL || extent == NULL || extent->length != self->size || object->row->size != self->size) {
        (void) !ecfs_fail (error, ENOTSUP,
                           "a fec descriptor describes one whole object, which this file is not: use the format ecfs");
        return NULL;
    }
    const EcfsObjectRow *row = object->row;
    if (row->seal.kind != ECFS_SEAL_NONE) {
        (void) !ecfs_fail (error, ENOTSUP, "a fec descriptor can say nothing of keys: use the format ecfs");
        return NULL;
    }
    char uuid[ECFS_UUID_TEXT_SIZE];
    size_t n_parameters;
    const uint8_t *parameters = ecfs_codec_parameters (object->codec, &n_parameters);
    g_autofree char *hex = ecfs_descriptor_hex (parameters, n_parameters);
    g_autofree char *digest = ecfs_descriptor_hex (row->digest, sizeof row->digest);
    g_autofree char *path = g_uri_escape_string (self->path, "/", FALSE);
    GString *text = g_string_new ("# ecfs-descriptor(5)\n");
    add_number (text, "k", ecfs_codec_k (object->codec));
    add_number (text, "n", ecfs_codec_n (object->codec));
    add_number (text, "packetSize", row->segment_bytes / ecfs_codec_k (object->codec));
    add_number (text, "fileLength", self->size);
    add_line (text, "fileName", path);
    add_line (text, "checksum", digest);
    ecfs_uuid_text (&self->archive, uuid);
    add_line (text, "ecfs.archive", uuid);
    ecfs_uuid_text (&row->uuid, uuid);
    add_line (text, "ecfs.object", uuid);
    add_line (text, "ecfs.code", row->code);
    if (row->has_sha256) {
        g_autofree char *sha256 = ecfs_descriptor_hex (row->sha256, sizeof row->sha256);
        add_line (text, "ecfs.sha256", sha256);
    }
    if (n_parameters > 0)
        add_line (text, "ecfs.parameters", hex);
    add_number (text, "ecfs.segmentBytes", row->segment_bytes);
    add_number (text, "ecfs.blockBytes", row->block_bytes);
    add_number (text, "ecfs.headerBytes", row->header_bytes);
    for (guint i = 0; i < row->stripes->len; i++)
        add_stripe (text, self, row, &g_array_index (row->stripes, EcfsStripeRow, i));
    return g_string_free (text, FALSE);
}

static GHashTable *read_lines (const char *text)
{
    GHashTable *table = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
    g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
    for (size_t i = 0; lines[i] != NULL; i++) {
        char *line = g_strstrip (lines[i]);
        char *equals = strchr (line, '=');
        if (*line == '#' || *line == '!' || equals == NULL)
            continue;
        *equals = '\0';
        g_hash_table_insert (table, g_strdup (g_strchomp (line)), g_strcompress (g_strchug (equals + 1)));
    }
    return table;
}

static char *lookup (void *user, const char *key)
{
    return g_strdup (g_hash_table_lookup (user, key));
}

/* A stripe's line; others are skipped. */
static bool parse_stripe (EcfsDescriptor *self, GHashTable *table, const char *name, const char *url,
                          EcfsObjectRow *row, GError **error)
{
    EcfsUuid object, uuid;
    EcfsStripeRow stripe = {.index = 0};
    if (!ecfs_stripe_name_parse (name, &object, &stripe.index, &stripe.instance) ||
        !ecfs_uuid_equal (&object, &row->uuid))
        return true;
    g_autofree char *facts_key = g_strconcat ("ecfs.", name, NULL),
                    *checksum_key = g_strconcat (name, ".checksum", NULL);
    const char *facts = g_hash_table_lookup (table, facts_key);
    g_auto (GStrv) words = g_strsplit (facts != NULL ? facts : "", " ", 4);
    if (g_strv_length (words) != 3 || !ecfs_uuid_parse (words[1], &uuid) ||
        !ecfs_descriptor_number (words[2], G_MAXINT64, &stripe.size) ||
        !ecfs_descriptor_bytes (g_hash_table_lookup (table, checksum_key), stripe.digest, sizeof stripe.digest))
        return ecfs_fail (error, EBADMSG, "what it says of %s makes no sense", name);
    stripe.endpoint = ecfs_descriptor_add_endpoint (self, words[0], url, &uuid);
    g_array_append_val (row->stripes, stripe);
    return true;
}

EcfsDescriptor *ecfs_descriptor_parse_fec (const char *text, GError **error)
{
    static const EcfsDescriptorKeys keys = {"ecfs.object",      "ecfs.code",         "ecfs.parameters",
                                            "fileLength",       "ecfs.segmentBytes", "ecfs.blockBytes",
                                            "ecfs.headerBytes", "checksum",          "ecfs.sha256"};
    g_autoptr (EcfsDescriptor) self = ecfs_descriptor_new ();
    g_autoptr (GHashTable) table = read_lines (text);
    EcfsObjectRow *row;
    EcfsCodec *codec;
    const char *archive = g_hash_table_lookup (table, "ecfs.archive"), *path = g_hash_table_lookup (table, "fileName");
    if (archive == NULL || !ecfs_uuid_parse (archive, &self->archive)) {
        (void) !ecfs_fail (error, EBADMSG, "it is not a descriptor, or its ecfs.archive is missing");
        return NULL;
    }
    if (!ecfs_descriptor_read_object (lookup, table, &keys, &row, &codec, error) ||
        !ecfs_descriptor_add_object (self, row, codec, error))
        return NULL;
    self->path = path == NULL ? NULL : g_uri_unescape_string (path, NULL);
    if (self->path == NULL)
        self->path = g_strdup ("");
    self->size = row->size;
    EcfsExtent all = {.length = row->size};
    if (row->size > 0)
        g_array_append_val (self->extents, all);
    GHashTableIter iter;
    gpointer name, url;
    g_hash_table_iter_init (&iter, table);
    while (g_hash_table_iter_next (&iter, &name, &url))
        if (!parse_stripe (self, table, name, url, row, error))
            return NULL;
    return g_steal_pointer (&self);
}
