/* What descriptors say of objects that are stored under a key. */
#include "verbs/descriptor_priv.h"

#include <string.h>

#define END "\n[end]\nsha256="

static void set_hex (GKeyFile *file, const char *group, const char *key, const uint8_t *bytes, size_t size)
{
    g_autofree char *text = ecfs_descriptor_hex (bytes, size);
    g_key_file_set_string (file, group, key, text);
    ecfs_key_forget (text, strlen (text));
}

void ecfs_descriptor_format_seal (const EcfsDescriptorObject *object, const char *group, GKeyFile *file)
{
    uint8_t seal[ECFS_SEAL_BYTES];
    ecfs_seal_put (&object->row->seal, seal);
    set_hex (file, group, "seal", seal, sizeof seal);
    if (object->has_key)
        set_hex (file, group, "key", object->key, sizeof object->key);
    g_key_file_set_uint64 (file, group, "unit_segments", object->units->n_segments);
    for (uint64_t unit = 0; unit < ecfs_units_count (object->units); unit++) {
        g_autofree char *key = g_strdup_printf ("unit-%" G_GUINT64_FORMAT, unit);
        set_hex (file, group, key, ecfs_units_digests (object->units, unit), ecfs_units_digest_bytes (object->units));
    }
}

bool ecfs_descriptor_read_seal (EcfsDescriptorLookup lookup, void *user, EcfsObjectRow *row, GError **error)
{
    g_autofree char *text = lookup (user, "seal");
    uint8_t seal[ECFS_SEAL_BYTES];
    if (text == NULL)
        return true;
    if (!ecfs_descriptor_bytes (text, seal, sizeof seal))
        return ecfs_fail (error, EBADMSG, "seal makes no sense");
    return ecfs_seal_parse (seal, sizeof seal, &row->seal, error);
}

static bool read_key (EcfsDescriptorLookup lookup, void *user, EcfsDescriptorObject *object, GError **error)
{
    g_autofree char *key = lookup (user, "key");
    if (key == NULL)
        return true;
    object->has_key = ecfs_descriptor_bytes (key, object->key, sizeof object->key);
    ecfs_key_forget (key, strlen (key));
    return object->has_key || ecfs_fail (error, EBADMSG, "its key makes no sense");
}

bool ecfs_descriptor_read_units (EcfsDescriptorLookup lookup, void *user, EcfsDescriptorObject *object, GError **error)
{
    if (object->row->seal.kind == ECFS_SEAL_NONE)
        return true;
    g_autofree char *segments = lookup (user, "unit_segments");
    uint64_t n_segments;
    if (!ecfs_descriptor_number (segments, G_MAXUINT32, &n_segments))
        return ecfs_fail (error, EBADMSG, "unit_segments is missing or not a possible number");
    object->units = ecfs_units_new (object->codec, &object->layout, (uint32_t) n_segments, error);
    if (object->units == NULL)
        return false;
    uint8_t digests[(1 + ECFS_CODEC_MAX_N) * ECFS_SHA256_SIZE];
    for (uint64_t unit = 0; unit < ecfs_units_count (object->units); unit++) {
        g_autofree char *key = g_strdup_printf ("unit-%" G_GUINT64_FORMAT, unit);
        g_autofree char *text = lookup (user, key);
        if (!ecfs_descriptor_bytes (text, digests, ecfs_units_digest_bytes (object->units)))
            return ecfs_fail (error, EBADMSG, "%s is missing or makes no sense", key);
        ecfs_units_add (object->units, digests);
    }
    return read_key (lookup, user, object, error);
}

static char *digest_of (const char *text, size_t size)
{
    uint8_t digest[ECFS_SHA256_SIZE];
    g_autoptr (EcfsSha256) state = ecfs_sha256_new ();
    ecfs_sha256_update (state, text, size);
    ecfs_sha256_end (state, digest);
    return ecfs_descriptor_hex (digest, sizeof digest);
}

char *ecfs_descriptor_end (const char *text)
{
    g_autofree char *digest = digest_of (text, strlen (text));
    return g_strconcat (text, END, digest, "\n", NULL);
}

bool ecfs_descriptor_check_end (const char *text, GError **error)
{
    const char *end = g_strrstr (text, END);
    g_autofree char *digest = end == NULL ? NULL : digest_of (text, (size_t) (end - text));
    g_autofree char *line = end == NULL ? NULL : g_strconcat (digest, "\n", NULL);
    return (end != NULL && strcmp (end + strlen (END), line) == 0) ||
           ecfs_fail (error, EBADMSG, "it was cut off, or changed, since it was made");
}

bool ecfs_descriptor_is_sealed (const EcfsDescriptor *self)
{
    for (guint i = 0; i < self->objects->len; i++)
        if (((const EcfsDescriptorObject *) self->objects->pdata[i])->row->seal.kind != ECFS_SEAL_NONE)
            return true;
    return false;
}

bool ecfs_descriptor_has_keys (const EcfsDescriptor *self)
{
    if (self->contained->len > 0)
        return true;
    for (guint i = 0; i < self->objects->len; i++)
        if (((const EcfsDescriptorObject *) self->objects->pdata[i])->has_key)
            return true;
    return false;
}

bool ecfs_descriptor_open (EcfsDescriptor *self, const EcfsKeyRing *keys, GError **error)
{
    for (guint i = 0; i < self->objects->len; i++) {
        EcfsDescriptorObject *object = self->objects->pdata[i];
        EcfsSealKeys *opened;
        if (object->has_key || object->row->seal.kind == ECFS_SEAL_NONE)
            continue;
        if (keys == NULL)
            return ecfs_fail (error, ENOKEY,
                              "the descriptor has no keys: give those of the archive, the file \"key\" of its "
                              "directory, with --key FILE");
        if (!ecfs_seal_open (&object->row->seal, keys, &object->row->uuid, &opened, error))
            return false;
        memcpy (object->key, opened->content, sizeof object->key);
        object->has_key = true;
        ecfs_seal_keys_unref (opened);
    }
    return true;
}
