/* A stored file's descriptor, from the catalog. */
#include "archive/common.h"
#include "archive/content_check.h"
#include "util/sha256.h"
#include "verbs/descriptor.h"

#include <string.h>
#include <sys/stat.h>

static int64_t endpoint_position (EcfsDescriptor *self, const EcfsArchiveEndpoint *endpoint)
{
    for (guint i = 0; i < self->endpoints->len; i++)
        if (ecfs_uuid_equal (&((EcfsDescriptorEndpoint *) self->endpoints->pdata[i])->uuid, &endpoint->uuid))
            return i;
    return ecfs_descriptor_add_endpoint (self, endpoint->name, ecfs_endpoint_url (endpoint->endpoint), &endpoint->uuid);
}

/* The content of an object under a key, while its units are made. */
typedef struct Sealed {
    EcfsContent *content;
    EcfsContentCheck *check;
    const EcfsDescriptorExport *how;
} Sealed;

static bool read_sealed (void *user, uint64_t offset, size_t size, uint8_t *to, GError **error)
{
    Sealed *self = user;
    size_t got;
    if (self->how->tick != NULL && !self->how->tick (self->how->user, size))
        return ecfs_fail (error, ECANCELED, "cancelled");
    if (!ecfs_content_read_wait (self->content, offset, size, to, &got, error))
        return false;
    const struct iovec iov = {.iov_base = to, .iov_len = got};
    return (got == size || ecfs_fail (error, EIO, "it ends before its size")) &&
           ecfs_content_check_take (self->check, offset, &iov, 1, error);
}

/* The digests are of what the tags, and the catalog's SHA-256, say that it is. */
static bool make_units (EcfsArchive *archive, int64_t id, EcfsUnits *units, const uint8_t *key,
                        const EcfsDescriptorExport *how, GError **error)
{
    Sealed sealed = {.content = ecfs_content_open_object (archive, id, error), .how = how};
    if (sealed.content == NULL)
        return false;
    ecfs_content_expect_all (sealed.content);
    sealed.check = ecfs_content_check_new (sealed.content);
    bool good =
        ecfs_units_make (units, key, read_sealed, &sealed, error) && ecfs_content_check_end (sealed.check, error);
    ecfs_content_check_free (sealed.check);
    ecfs_content_unref (sealed.content);
    return good;
}

static bool add_units (const EcfsDescriptor *self, EcfsArchive *archive, const EcfsDescriptorExport *how,
                       GError **error)
{
    EcfsDescriptorObject *object = self->objects->pdata[self->objects->len - 1];
    EcfsSealKeys *keys;
    if (object->row->seal.kind == ECFS_SEAL_NONE)
        return true;
    object->units = ecfs_units_new (object->codec, &object->layout,
                                    ecfs_units_segments (object->codec, &object->layout, self->size), error);
    if (object->units == NULL || !ecfs_archive_seal_keys (archive, object->row, &keys, error))
        return false;
    bool good = make_units (archive, object->row->id, object->units, keys->content, how, error);
    if (!how->without_keys)
        memcpy (object->key, keys->content, sizeof object->key);
    object->has_key = !how->without_keys;
    object->row->has_sha256 = object->row->has_sha256 && !how->without_keys; /* it confirms who guesses the content */
    ecfs_seal_keys_unref (keys);
    return good;
}

static bool export_object (EcfsDescriptor *self, EcfsArchive *archive, const EcfsObjectRow *object,
                           const EcfsDescriptorExport *how, GError **error)
{
    if (how->clear_only && object->seal.kind != ECFS_SEAL_NONE)
        return ecfs_fail (error, ENOTSUP,
                          "it is stored under a key, of which a fec descriptor can say nothing: use the format ecfs");
    const EcfsCodec *known = ecfs_archive_codec (archive, object->code, error);
    if (known == NULL)
        return false;
    size_t n_parameters;
    const uint8_t *parameters = ecfs_codec_parameters (known, &n_parameters);
    EcfsCodec *codec = n_parameters > 0 ? ecfs_codec_new_with (object->code, parameters, n_parameters, error)
                                        : ecfs_codec_new (object->code, error);
    if (codec == NULL)
        return false;
    EcfsObjectRow *row = ecfs_object_row_copy (object);
    g_array_set_size (row->stripes, 0);
    for (guint i = 0; i < object->stripes->len; i++) {
        EcfsStripeRow stripe = g_array_index (object->stripes, EcfsStripeRow, i);
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, stripe.endpoint);
        if (endpoint == NULL || endpoint->endpoint == NULL)
            continue; /* it is not in ecfs.conf any more */
        stripe.endpoint = endpoint_position (self, endpoint);
        g_array_append_val (row->stripes, stripe);
    }
    return ecfs_descriptor_add_object (self, row, codec, error) && add_units (self, archive, how, error);
}

/* An extent of an object that others share: its key would open theirs, and it goes when the file is packed anew. */
static bool contain (EcfsDescriptor *self, EcfsContent *content, const EcfsExtent *extent,
                     const EcfsDescriptorExport *how, GError **error)
{
    size_t got = 0;
    uint8_t sha256[ECFS_SHA256_SIZE];
    if (how->clear_only || how->without_keys)
        return ecfs_fail (error, ENOTSUP,
                          "it shares an object with other small files, so that its descriptor has its content: %s",
                          how->clear_only ? "use the format ecfs" : "it cannot be without what opens it");
    g_autofree uint8_t *bytes = g_malloc (extent->length);
    if (!ecfs_content_read_wait (content, extent->offset, extent->length, bytes, &got, error))
        return false;
    g_autoptr (EcfsSha256) sum = ecfs_sha256_new ();
    ecfs_sha256_update (sum, bytes, got);
    ecfs_sha256_end (sum, sha256);
    if (got != extent->length || (extent->has_sha256 && memcmp (sha256, extent->sha256, sizeof sha256) != 0))
        return ecfs_fail (error, EBADMSG, "what is read of it is not what was stored: its SHA-256 differs");
    EcfsDescriptorBytes one = {.offset = extent->offset, .bytes = g_bytes_new (bytes, got)};
    g_array_append_val (self->contained, one);
    return true;
}

static bool export_extents (EcfsDescriptor *self, EcfsArchive *archive, EcfsContent *content,
                            const EcfsDescriptorExport *how, GError **error)
{
    const GArray *extents = ecfs_content_extents (content);
    int64_t last = -1;
    for (guint i = 0; i < extents->len; i++) {
        EcfsExtent extent = g_array_index (extents, EcfsExtent, i);
        const EcfsObjectRow *object = ecfs_content_object (content, (size_t) extent.object);
        if (object->kind != ECFS_OBJECT_WHOLE) {
            if (!contain (self, content, &extent, how, error))
                return false;
            continue;
        }
        if (extent.object != last && !export_object (self, archive, object, how, error))
            return false;
        last = extent.object; /* an object's extents follow one another */
        extent.object = self->objects->len - 1;
        g_array_append_val (self->extents, extent);
    }
    return true;
}

EcfsDescriptor *ecfs_descriptor_export (EcfsArchive *archive, const char *path, const EcfsDescriptorExport *how,
                                        GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    EcfsAttr attr;
    if (!ecfs_catalog_resolve (catalog, path, &attr, error))
        return NULL;
    if (!S_ISREG (attr.mode)) {
        (void) !ecfs_fail (error, EINVAL, "%s: is not a regular file, and has no descriptor", path);
        return NULL;
    }
    EcfsContent *content = ecfs_content_open (archive, attr.ino, error);
    if (content == NULL)
        return NULL;
    g_autoptr (EcfsDescriptor) self = ecfs_descriptor_new ();
    self->archive = *ecfs_catalog_archive (catalog);
    self->path = g_strdup (path);
    self->size = ecfs_content_size (content);
    bool good = export_extents (self, archive, content, how, error);
    ecfs_content_unref (content);
    if (how->without_keys && ecfs_descriptor_is_sealed (self)) {
        g_free (self->path); /* endpoints do not know it, either */
        self->path = g_strdup ("");
    }
    return good ? g_steal_pointer (&self) : NULL;
}
