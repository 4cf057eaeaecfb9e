/* What `ecfs info` tells of a file. */
#include "verbs/status_priv.h"
#include "verbs/verbs.h"

#include "archive/content.h"
#include "archive/places_of.h"
#include "codec/codec.h"
#include "object/log.h"

#include <inttypes.h>
#include <sys/stat.h>

static const char *type_word (uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "symlink";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    default:
        return "device";
    }
}

static char *hex (const uint8_t *bytes, size_t size)
{
    GString *text = g_string_sized_new (2 * size);
    for (size_t i = 0; i < size; i++)
        g_string_append_printf (text, "%02x", bytes[i]);
    return g_string_free (text, FALSE);
}

static void add_digest (JsonObject *facts, const uint8_t *digest)
{
    g_autofree char *text = hex (digest, ECFS_DIGEST_SIZE);
    json_object_set_string_member (facts, "digest", text);
}

static const EcfsStripeRow *find_stripe (const EcfsObjectRow *object, unsigned index)
{
    for (unsigned i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->index == index)
            return stripe;
    }
    return NULL;
}

/* Those of logs grow, and the catalog has how much of the log one has where that is not all. */
static uint64_t stripe_bytes (const EcfsObjectRow *object, const EcfsStripeRow *stripe)
{
    if (object->kind != ECFS_OBJECT_LOG)
        return stripe->size;
    return ecfs_log_stripe_bytes (object->header_bytes, &object->seal, stripe->size > 0 ? stripe->size : object->size);
}

static JsonObject *stripe_facts (EcfsArchive *archive, const EcfsObjectRow *object, const GArray *repairs,
                                 unsigned index)
{
    JsonObject *facts = json_object_new ();
    ecfs_status_add_uuid (facts, "object", &object->uuid);
    json_object_set_int_member (facts, "index", index);
    const EcfsStripeRow *stripe = find_stripe (object, index);
    if (stripe == NULL) {
        json_object_set_string_member (facts, "state", "missing");
        return facts;
    }
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, stripe->endpoint);
    ecfs_status_add_stripe (facts, endpoint, repairs, index);
    json_object_set_int_member (facts, "size", (int64_t) stripe_bytes (object, stripe));
    if (endpoint != NULL) {
        json_object_set_string_member (facts, "endpoint", endpoint->name);
        json_object_set_string_member (facts, "zone", endpoint->zone);
    }
    g_autofree char *instance = g_strdup_printf ("%016" PRIx64, stripe->instance);
    json_object_set_string_member (facts, "instance", instance);
    add_digest (facts, stripe->digest);
    return facts;
}

static uint64_t stored_bytes (const EcfsObjectRow *object)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < object->stripes->len; i++)
        bytes += stripe_bytes (object, &g_array_index (object->stripes, EcfsStripeRow, i));
    return bytes;
}

static JsonObject *object_facts (const EcfsObjectRow *object, const EcfsCodec *codec)
{
    JsonObject *facts = json_object_new ();
    ecfs_status_add_uuid (facts, "uuid", &object->uuid);
    json_object_set_string_member (facts, "code", ecfs_codec_code (codec));
    if (object->kind != ECFS_OBJECT_WHOLE)
        json_object_set_string_member (facts, "shared_as", object->kind == ECFS_OBJECT_LOG ? "log" : "pack");
    json_object_set_int_member (facts, "size", (int64_t) object->size);
    json_object_set_int_member (facts, "stripe_bytes", (int64_t) stored_bytes (object));
    json_object_set_int_member (facts, "segment_bytes", object->segment_bytes);
    add_digest (facts, object->digest);
    return facts;
}

static JsonObject *extent_facts (const EcfsExtent *extent, const EcfsObjectRow *object)
{
    JsonObject *facts = json_object_new ();
    json_object_set_int_member (facts, "offset", (int64_t) extent->offset);
    json_object_set_int_member (facts, "length", (int64_t) extent->length);
    ecfs_status_add_uuid (facts, "object", &object->uuid);
    json_object_set_int_member (facts, "object_offset", (int64_t) extent->object_offset);
    return facts;
}

/* Whether the content is one object from its first to its last byte, so that the object's digest is the file's. */
static bool is_one_object (EcfsContent *content, const GArray *extents)
{
    if (extents->len != 1)
        return false;
    const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, 0);
    const EcfsObjectRow *object = ecfs_content_object (content, 0);
    return extent->offset == 0 && extent->object_offset == 0 && extent->length == ecfs_content_size (content) &&
           extent->length == object->size;
}

typedef struct Listing {
    EcfsArchive *archive;
    JsonArray *objects, *stripes;
    GHashTable *seen; /* int64_t ids of objects */
    uint64_t bytes;
} Listing;

/* @used: bytes of it that the file has. */
static bool list_object (Listing *self, const EcfsObjectRow *object, uint64_t used, GError **error)
{
    if (!g_hash_table_add (self->seen, g_memdup2 (&object->id, sizeof object->id)))
        return true;
    const EcfsCodec *codec = ecfs_archive_codec (self->archive, object->code, error);
    g_autoptr (GArray) repairs =
        codec == NULL ? NULL : ecfs_catalog_repairs (ecfs_archive_catalog (self->archive), object->id, error);
    if (repairs == NULL)
        return false;
    json_array_add_object_element (self->objects, object_facts (object, codec));
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++)
        json_array_add_object_element (self->stripes, stripe_facts (self->archive, object, repairs, i));
    if (object->kind == ECFS_OBJECT_WHOLE)
        self->bytes += stored_bytes (object);
    else /* its share */
        self->bytes +=
            (uint64_t) ((double) stored_bytes (object) * ((double) used / (double) MAX (object->size, used)) + 0.5);
    return true;
}

static bool add_code_facts (JsonObject *info, EcfsArchive *archive, const char *code, GError **error)
{
    const EcfsCodec *codec = ecfs_archive_codec (archive, code, error);
    if (codec == NULL)
        return false;
    json_object_set_string_member (info, "code", ecfs_codec_code (codec));
    json_object_set_double_member (info, "f", ecfs_codec_overhead (codec));
    json_object_set_double_member (info, "overhead", (double) ecfs_codec_n (codec) / ecfs_codec_k (codec));
    return true;
}

static bool list_content (JsonObject *info, EcfsArchive *archive, EcfsContent *content, GError **error)
{
    g_autoptr (GHashTable) seen = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    Listing listing = {.archive = archive, .objects = json_array_new (), .stripes = json_array_new (), .seen = seen};
    JsonArray *extents = json_array_new ();
    json_object_set_array_member (info, "extents", extents);
    json_object_set_array_member (info, "objects", listing.objects);
    json_object_set_array_member (info, "stripes", listing.stripes);
    const GArray *rows = ecfs_content_extents (content);
    if (json_object_has_member (info, "former"))
        json_object_set_int_member (json_object_get_object_member (info, "former"), "size",
                                    (int64_t) ecfs_content_size (content));
    for (unsigned i = 0; i < rows->len; i++) {
        const EcfsExtent *extent = &g_array_index (rows, EcfsExtent, i);
        const EcfsObjectRow *object = ecfs_content_object (content, (size_t) extent->object);
        json_array_add_object_element (extents, extent_facts (extent, object));
        if (!list_object (&listing, object, extent->length, error))
            return false;
    }
    json_object_set_int_member (info, "stripe_bytes", (int64_t) listing.bytes);
    if (rows->len > 0 && !add_code_facts (info, archive, ecfs_content_object (content, 0)->code, error))
        return false;
    if (is_one_object (content, rows) && ecfs_content_object (content, 0)->seal.kind == ECFS_SEAL_NONE)
        add_digest (info, ecfs_content_object (content, 0)->digest);
    return true;
}

static bool add_content (JsonObject *info, EcfsArchive *archive, uint64_t ino, GError **error)
{
    EcfsContent *content = ecfs_content_open (archive, ino, error);
    if (content == NULL)
        return false;
    bool good = list_content (info, archive, content, error);
    ecfs_content_unref (content);
    return good;
}

/* Of newer content, which is in staging, only that is said; `former` is what is stored. */
static bool add_state (JsonObject *info, EcfsArchive *archive, uint64_t ino, GError **error)
{
    EcfsFileState state;
    if (!ecfs_archive_file_state (archive, ino, &state, error))
        return false;
    g_autofree char *stored = ecfs_file_state_text (&state);
    g_autoptr (GHashTable) staged = ecfs_staged_rows (ecfs_archive_catalog (archive), error);
    const int64_t row = (int64_t) ino;
    if (staged == NULL)
        return false;
    state.staged = g_hash_table_contains (staged, &row);
    g_autofree char *text = ecfs_file_state_text (&state);
    json_object_set_string_member (info, "state", text);
    json_object_set_boolean_member (info, "staged", state.staged);
    if (state.n_stripes == 0)
        return true;
    /* What is staged has no stripes yet, so nothing is promised of it. */
    JsonObject *of = state.staged ? json_object_new () : info;
    json_object_set_int_member (of, "tolerance", state.tolerance);
    json_object_set_int_member (of, "guarantee", state.guarantee);
    if (!state.staged)
        return true;
    json_object_set_string_member (of, "state", stored);
    json_object_set_object_member (info, "former", of);
    return true;
}

static bool add_code (JsonObject *info, EcfsArchive *archive, uint64_t ino, GError **error)
{
    g_autofree char *code = NULL;
    if (!ecfs_catalog_get_code (ecfs_archive_catalog (archive), ino, &code, error))
        return false;
    json_object_set_string_member (info, "code", code != NULL ? code : ecfs_archive_config (archive)->code);
    return true;
}

static unsigned count_forbidden (EcfsArchive *archive, const char *marks, const GArray *stripes)
{
    unsigned n_forbidden = 0;
    for (guint i = 0; i < stripes->len; i++)
        for (size_t j = 0; marks[j] != '\0'; j++)
            n_forbidden += marks[j] == ECFS_MARK_FORBIDDEN &&
                           ecfs_archive_endpoint (archive, j)->id == g_array_index (stripes, EcfsStripeRow, i).endpoint;
    return n_forbidden;
}

/* Stripes of a file that are where its rule forbids them. */
static bool add_misplaced (JsonObject *info, EcfsArchive *archive, uint64_t ino, const char *marks, GError **error)
{
    unsigned n_forbidden = 0;
    const EcfsObjectRow *object;
    g_autoptr (EcfsContent) content = ecfs_content_open (archive, ino, error);
    if (content == NULL)
        return false;
    for (size_t i = 0; (object = ecfs_content_object (content, i)) != NULL; i++)
        n_forbidden += count_forbidden (archive, marks, object->stripes);
    json_object_set_int_member (info, "misplaced_stripes", n_forbidden);
    return true;
}

static bool add_places (JsonObject *info, EcfsArchive *archive, const EcfsAttr *attr, GError **error)
{
    EcfsRuled ruled;
    GError *why = NULL;
    bool fine = true;
    if (!ecfs_archive_file_ruled (archive, attr->ino, &ruled, &why)) {
        fine = why->code == EINVAL; /* all else is to be seen */
        if (fine)
            ecfs_status_add_text (info, "places_error", why->message);
        else
            g_propagate_error (error, g_steal_pointer (&why));
        g_clear_error (&why);
        return fine;
    }
    if (ruled.marks != NULL) {
        ecfs_status_add_text (info, "places", ruled.text);
        fine = !S_ISREG (attr->mode) || add_misplaced (info, archive, attr->ino, ruled.marks, error);
    }
    ecfs_ruled_clear (&ruled);
    return fine;
}

JsonObject *ecfs_archive_info (EcfsArchive *self, const char *path, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self);
    g_autoptr (JsonObject) info = json_object_new ();
    EcfsAttr attr;
    if (!ecfs_catalog_resolve (catalog, path, &attr, error))
        return NULL;
    g_autofree char *full = ecfs_catalog_path (catalog, attr.ino);
    ecfs_status_add_text (info, "path", full);
    json_object_set_string_member (info, "type", type_word (attr.mode));
    json_object_set_int_member (info, "inode", (int64_t) attr.ino);
    json_object_set_int_member (info, "mode", attr.mode & 07777);
    json_object_set_int_member (info, "uid", attr.uid);
    json_object_set_int_member (info, "gid", attr.gid);
    json_object_set_int_member (info, "size", (int64_t) attr.size);
    json_object_set_int_member (info, "mtime_ns", attr.mtime_ns);
    if ((S_ISREG (attr.mode) || S_ISDIR (attr.mode)) &&
        (!add_code (info, self, attr.ino, error) || !add_places (info, self, &attr, error)))
        return NULL;
    if (S_ISREG (attr.mode) && (!add_state (info, self, attr.ino, error) || !add_content (info, self, attr.ino, error)))
        return NULL;
    return g_steal_pointer (&info);
}
