/* A stored file's descriptor, from the catalog. */
#include "archive/common.h"
#include "archive/content.h"
#include "verbs/descriptor.h"

#include <sys/stat.h>

static int64_t endpoint_position (EcfsDescriptor *self, const EcfsArchiveEndpoint *endpoint)
{
    for (guint i = 0; i < self->endpoints->len; i++)
        if (ecfs_uuid_equal (&((EcfsDescriptorEndpoint *) self->endpoints->pdata[i])->uuid, &endpoint->uuid))
            return i;
    return ecfs_descriptor_add_endpoint (self, endpoint->name, ecfs_endpoint_url (endpoint->endpoint), &endpoint->uuid);
}

static bool export_object (EcfsDescriptor *self, EcfsArchive *archive, const EcfsObjectRow *object, GError **error)
{
    if (object->seal.kind != ECFS_SEAL_NONE)
        return ecfs_fail (error, ENOTSUP,
                          "it is stored under the archive's key, which no descriptor may give away: copy the file "
                          "itself with 'ecfs get'");
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
    return ecfs_descriptor_add_object (self, row, codec, error);
}

EcfsDescriptor *ecfs_descriptor_export (EcfsArchive *archive, const char *path, GError **error)
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
    const GArray *extents = ecfs_content_extents (content);
    g_array_append_vals (self->extents, extents->data, extents->len);
    bool good = true;
    const EcfsObjectRow *object;
    for (size_t i = 0; good && (object = ecfs_content_object (content, i)) != NULL; i++)
        good = export_object (self, archive, object, error);
    ecfs_content_unref (content);
    return good ? g_steal_pointer (&self) : NULL;
}
