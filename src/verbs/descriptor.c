/* Descriptors as values, and our own form: a key file. */
#include "util/text.h"
#include "verbs/descriptor_priv.h"

#include <inttypes.h>
#include <string.h>

#define GROUP         "ecfs-descriptor"
#define FORMAT        1
#define FORMAT_SEALED 2 /* where an object is stored under a key */
#define FORMAT_FULL   3 /* which has content */
#define MAX_OBJECTS   4096
#define MAX_ENDPOINTS 4096

static void endpoint_free (gpointer data)
{
    EcfsDescriptorEndpoint *endpoint = data;
    g_free (endpoint->name);
    g_free (endpoint->url);
    g_free (endpoint);
}

static void object_free (gpointer data)
{
    EcfsDescriptorObject *object = data;
    ecfs_units_free (object->units);
    ecfs_key_forget (object->key, sizeof object->key);
    ecfs_object_row_free (object->row);
    ecfs_codec_free (object->codec);
    g_free (object);
}

static void bytes_clear (gpointer data)
{
    g_bytes_unref (((EcfsDescriptorBytes *) data)->bytes);
}

EcfsDescriptor *ecfs_descriptor_new (void)
{
    EcfsDescriptor *self = g_new0 (EcfsDescriptor, 1);
    self->contained = g_array_new (false, true, sizeof (EcfsDescriptorBytes));
    g_array_set_clear_func (self->contained, bytes_clear);
    self->endpoints = g_ptr_array_new_with_free_func (endpoint_free);
    self->objects = g_ptr_array_new_with_free_func (object_free);
    self->extents = g_array_new (false, true, sizeof (EcfsExtent));
    return self;
}

void ecfs_descriptor_free (EcfsDescriptor *self)
{
    if (self == NULL)
        return;
    g_free (self->path);
    g_ptr_array_unref (self->endpoints);
    g_ptr_array_unref (self->objects);
    g_array_unref (self->extents);
    g_array_unref (self->contained);
    g_free (self);
}

int64_t ecfs_descriptor_add_endpoint (EcfsDescriptor *self, const char *name, const char *url, const EcfsUuid *uuid)
{
    EcfsDescriptorEndpoint *endpoint = g_new0 (EcfsDescriptorEndpoint, 1);
    *endpoint = (EcfsDescriptorEndpoint){.name = g_strdup (name), .url = g_strdup (url), .uuid = *uuid};
    g_ptr_array_add (self->endpoints, endpoint);
    return self->endpoints->len - 1;
}

bool ecfs_descriptor_add_object (EcfsDescriptor *self, EcfsObjectRow *row, EcfsCodec *codec, GError **error)
{
    EcfsDescriptorObject *object = g_new0 (EcfsDescriptorObject, 1);
    *object = (EcfsDescriptorObject){.row = row, .codec = codec};
    object->layout = (EcfsLayout){.size = row->size,
                                  .segment_bytes = row->segment_bytes,
                                  .block_bytes = row->block_bytes,
                                  .header_bytes = row->header_bytes,
                                  .granule = (uint32_t) ecfs_codec_granule (codec),
                                  .k = (uint16_t) ecfs_codec_k (codec),
                                  .tag_bytes = ecfs_tag_bytes_under (&row->seal)};
    g_ptr_array_add (self->objects, object);
    return ecfs_layout_valid (&object->layout) || ecfs_fail (error, EBADMSG, "the sizes of an object make no sense");
}

static bool check_stripes (const EcfsDescriptor *self, const EcfsDescriptorObject *object, GError **error)
{
    bool seen[ECFS_CODEC_MAX_N] = {false};
    for (guint i = 0; i < object->row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->row->stripes, EcfsStripeRow, i);
        if (stripe->index >= ecfs_codec_n (object->codec) || seen[stripe->index] || stripe->endpoint < 0 ||
            stripe->endpoint >= self->endpoints->len)
            return ecfs_fail (error, EBADMSG, "stripe %u of an object makes no sense", stripe->index);
        seen[stripe->index] = true;
    }
    return true;
}

bool ecfs_descriptor_check (const EcfsDescriptor *self, GError **error)
{
    uint64_t end = 0;
    for (guint i = 0; i < self->objects->len; i++)
        if (!check_stripes (self, self->objects->pdata[i], error))
            return false;
    for (guint i = 0; i < self->extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (self->extents, EcfsExtent, i);
        const EcfsDescriptorObject *object =
            extent->object < 0 || extent->object >= self->objects->len ? NULL : self->objects->pdata[extent->object];
        if (object == NULL || extent->offset < end || extent->length == 0 || extent->length > object->row->size ||
            extent->object_offset > object->row->size - extent->length || extent->offset > self->size ||
            extent->length > self->size - extent->offset)
            return ecfs_fail (error, EBADMSG, "extent %u makes no sense", i);
        end = extent->offset + extent->length;
    }
    end = 0;
    for (guint i = 0; i < self->contained->len; i++) {
        const EcfsDescriptorBytes *one = &g_array_index (self->contained, EcfsDescriptorBytes, i);
        if (one->offset < end || one->offset > self->size || g_bytes_get_size (one->bytes) > self->size - one->offset)
            return ecfs_fail (error, EBADMSG, "content %u makes no sense", i);
        end = one->offset + g_bytes_get_size (one->bytes);
    }
    return true;
}

/* Values */

char *ecfs_descriptor_hex (const uint8_t *bytes, size_t size)
{
    GString *text = g_string_sized_new (2 * size + 1); /* it does not move: a key would be left where it was */
    for (size_t i = 0; i < size; i++)
        g_string_append_printf (text, "%02x", bytes[i]);
    return g_string_free (text, FALSE);
}

bool ecfs_descriptor_bytes (const char *text, uint8_t *ret_bytes, size_t size)
{
    if (text == NULL || strlen (text) != 2 * size)
        return false;
    for (size_t i = 0; i < 2 * size; i++)
        if (!g_ascii_isxdigit (text[i]))
            return false;
    for (size_t i = 0; i < size; i++)
        ret_bytes[i] = (uint8_t) (g_ascii_xdigit_value (text[2 * i]) << 4 | g_ascii_xdigit_value (text[2 * i + 1]));
    return true;
}

bool ecfs_descriptor_number (const char *text, uint64_t max, uint64_t *ret_number)
{
    guint64 number;
    if (text == NULL || !g_ascii_string_to_unsigned (text, 10, 0, max, &number, NULL))
        return false;
    *ret_number = number;
    return true;
}

static EcfsCodec *make_codec (const char *code, const char *parameters, GError **error)
{
    if (parameters == NULL)
        return ecfs_codec_new (code, error);
    uint8_t bytes[ECFS_CODEC_MAX_PARAMETERS];
    size_t size = strlen (parameters) / 2;
    if (size > sizeof bytes || !ecfs_descriptor_bytes (parameters, bytes, size)) {
        (void) !ecfs_fail (error, EBADMSG, "the parameters of a code make no sense");
        return NULL;
    }
    return ecfs_codec_new_with (code, bytes, size, error);
}

bool ecfs_descriptor_read_object (EcfsDescriptorLookup lookup, void *user, const EcfsDescriptorKeys *keys,
                                  EcfsObjectRow **ret_row, EcfsCodec **ret_codec, GError **error)
{
    g_autoptr (EcfsObjectRow) row = ecfs_object_row_new ();
    uint64_t numbers[4];
    const char *const number_keys[] = {keys->size, keys->segment_bytes, keys->block_bytes, keys->header_bytes};
    for (size_t i = 0; i < G_N_ELEMENTS (numbers); i++) {
        g_autofree char *text = lookup (user, number_keys[i]);
        if (!ecfs_descriptor_number (text, i == 0 ? ECFS_OBJECT_MAX_BYTES : G_MAXUINT32, &numbers[i]))
            return ecfs_fail (error, EBADMSG, "%s is missing or not a possible number", number_keys[i]);
    }
    row->size = numbers[0];
    row->segment_bytes = (uint32_t) numbers[1];
    row->block_bytes = (uint32_t) numbers[2];
    row->header_bytes = (uint32_t) numbers[3];
    g_autofree char *uuid = lookup (user, keys->uuid), *digest = lookup (user, keys->digest);
    g_autofree char *parameters = lookup (user, keys->parameters);
    row->code = lookup (user, keys->code);
    if (uuid == NULL || !ecfs_uuid_parse (uuid, &row->uuid))
        return ecfs_fail (error, EBADMSG, "%s is missing or not a UUID", keys->uuid);
    if (!ecfs_descriptor_bytes (digest, row->digest, sizeof row->digest))
        return ecfs_fail (error, EBADMSG, "%s is missing or not a digest", keys->digest);
    g_autofree char *sha256 = keys->sha256 == NULL ? NULL : lookup (user, keys->sha256);
    row->has_sha256 = sha256 != NULL;
    if (sha256 != NULL && !ecfs_descriptor_bytes (sha256, row->sha256, sizeof row->sha256))
        return ecfs_fail (error, EBADMSG, "%s is not a digest", keys->sha256);
    if (row->code == NULL)
        return ecfs_fail (error, EBADMSG, "%s is missing", keys->code);
    *ret_codec = make_codec (row->code, parameters, error);
    if (*ret_codec == NULL)
        return false;
    *ret_row = g_steal_pointer (&row);
    return true;
}

/* Our own form */

static void format_object (const EcfsDescriptor *self, const EcfsDescriptorObject *object, const char *group,
                           GKeyFile *file)
{
    const EcfsObjectRow *row = object->row;
    char uuid[ECFS_UUID_TEXT_SIZE];
    size_t n_parameters;
    const uint8_t *parameters = ecfs_codec_parameters (object->codec, &n_parameters);
    g_autofree char *digest = ecfs_descriptor_hex (row->digest, sizeof row->digest);
    ecfs_uuid_text (&row->uuid, uuid);
    g_key_file_set_string (file, group, "uuid", uuid);
    g_key_file_set_string (file, group, "code", row->code);
    if (n_parameters > 0) {
        g_autofree char *text = ecfs_descriptor_hex (parameters, n_parameters);
        g_key_file_set_string (file, group, "parameters", text);
    }
    g_key_file_set_uint64 (file, group, "size", row->size);
    g_key_file_set_uint64 (file, group, "segment_bytes", row->segment_bytes);
    g_key_file_set_uint64 (file, group, "block_bytes", row->block_bytes);
    g_key_file_set_uint64 (file, group, "header_bytes", row->header_bytes);
    g_key_file_set_string (file, group, "digest", digest);
    if (row->has_sha256) {
        g_autofree char *sha256 = ecfs_descriptor_hex (row->sha256, sizeof row->sha256);
        g_key_file_set_string (file, group, "sha256", sha256);
    }
    for (guint i = 0; i < row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (row->stripes, EcfsStripeRow, i);
        const EcfsDescriptorEndpoint *endpoint = self->endpoints->pdata[stripe->endpoint];
        g_autofree char *key = g_strdup_printf ("stripe-%u", stripe->index);
        g_autofree char *area = ecfs_descriptor_hex (stripe->digest, sizeof stripe->digest);
        g_autofree char *value =
            g_strdup_printf ("%s %016" PRIx64 " %" PRIu64 " %s", endpoint->name, stripe->instance, stripe->size, area);
        g_key_file_set_string (file, group, key, value);
    }
    if (object->units != NULL)
        ecfs_descriptor_format_seal (object, group, file);
}

static int format_of (const EcfsDescriptor *self)
{
    return self->contained->len > 0 ? FORMAT_FULL : ecfs_descriptor_is_sealed (self) ? FORMAT_SEALED : FORMAT;
}

char *ecfs_descriptor_format (const EcfsDescriptor *self)
{
    g_autoptr (GKeyFile) file = g_key_file_new ();
    char uuid[ECFS_UUID_TEXT_SIZE];
    g_autofree char *path = g_uri_escape_string (self->path, "/", FALSE);
    ecfs_uuid_text (&self->archive, uuid);
    g_key_file_set_integer (file, GROUP, "format", format_of (self));
    g_key_file_set_string (file, GROUP, "archive", uuid);
    g_key_file_set_string (file, GROUP, "path", path);
    g_key_file_set_uint64 (file, GROUP, "size", self->size);
    for (guint i = 0; i < self->extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (self->extents, EcfsExtent, i);
        g_autofree char *key = g_strdup_printf ("extent-%u", i);
        g_autofree char *value = g_strdup_printf ("%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRIu64, extent->offset,
                                                  extent->length, extent->object, extent->object_offset);
        g_key_file_set_string (file, GROUP, key, value);
    }
    for (guint i = 0; i < self->contained->len; i++) {
        const EcfsDescriptorBytes *one = &g_array_index (self->contained, EcfsDescriptorBytes, i);
        size_t size;
        const uint8_t *bytes = g_bytes_get_data (one->bytes, &size);
        g_autofree char *key = g_strdup_printf ("content-%u", i), *coded = g_base64_encode (bytes, size);
        g_autofree char *value = g_strdup_printf ("%" PRIu64 " %s", one->offset, coded);
        g_key_file_set_string (file, GROUP, key, value);
    }
    for (guint i = 0; i < self->endpoints->len; i++) {
        const EcfsDescriptorEndpoint *endpoint = self->endpoints->pdata[i];
        g_autofree char *group = g_strdup_printf ("endpoint %s", endpoint->name);
        ecfs_uuid_text (&endpoint->uuid, uuid);
        g_key_file_set_string (file, group, "url", endpoint->url);
        g_key_file_set_string (file, group, "uuid", uuid);
    }
    for (guint i = 0; i < self->objects->len; i++) {
        g_autofree char *group = g_strdup_printf ("object %u", i);
        format_object (self, self->objects->pdata[i], group, file);
    }
    char *text = g_key_file_to_data (file, NULL, NULL);
    if (format_of (self) == FORMAT)
        return text;
    char *ended = ecfs_descriptor_end (text);
    ecfs_key_forget (text, strlen (text));
    g_free (text);
    return ended;
}

/* Where a lookup looks. */
typedef struct Group {
    GKeyFile *file;
    const char *name;
    uint64_t format; /* of the descriptor */
} Group;

static char *lookup (void *user, const char *key)
{
    const Group *group = user;
    return g_key_file_get_string (group->file, group->name, key, NULL);
}

/* @positions: of endpoints, by name. */
static bool parse_stripe (GHashTable *positions, const char *text, EcfsStripeRow *stripe)
{
    gpointer position;
    g_auto (GStrv) words = g_strsplit (text, " ", 5);
    guint64 instance;
    if (g_strv_length (words) != 4 || !g_ascii_string_to_unsigned (words[1], 16, 0, G_MAXUINT64, &instance, NULL) ||
        !ecfs_descriptor_number (words[2], G_MAXINT64, &stripe->size) ||
        !ecfs_descriptor_bytes (words[3], stripe->digest, sizeof stripe->digest) ||
        !g_hash_table_lookup_extended (positions, words[0], NULL, &position))
        return false;
    stripe->instance = instance;
    stripe->endpoint = GPOINTER_TO_INT (position);
    return true;
}

static bool parse_object (EcfsDescriptor *self, GHashTable *positions, Group *group, GError **error)
{
    static const EcfsDescriptorKeys keys = {"uuid",        "code",         "parameters", "size",  "segment_bytes",
                                            "block_bytes", "header_bytes", "digest",     "sha256"};
    EcfsObjectRow *row = NULL;
    EcfsCodec *codec = NULL;
    if (!ecfs_descriptor_read_object (lookup, group, &keys, &row, &codec, error))
        return ecfs_prefix (error, "[%s]", group->name);
    bool sealed = group->format < FORMAT_SEALED || ecfs_descriptor_read_seal (lookup, group, row, error);
    bool added = ecfs_descriptor_add_object (self, row, codec, sealed ? error : NULL) && sealed;
    if (!added || !ecfs_descriptor_read_units (lookup, group, self->objects->pdata[self->objects->len - 1], error))
        return ecfs_prefix (error, "[%s]", group->name);
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++) {
        g_autofree char *key = g_strdup_printf ("stripe-%u", i);
        g_autofree char *text = lookup (group, key);
        EcfsStripeRow stripe = {.index = (uint16_t) i};
        if (text == NULL)
            continue;
        if (!parse_stripe (positions, text, &stripe))
            return ecfs_fail (error, EBADMSG, "[%s]: %s makes no sense", group->name, key);
        g_array_append_val (row->stripes, stripe);
    }
    return true;
}

static bool parse_extent (EcfsDescriptor *self, const char *text, GError **error)
{
    g_auto (GStrv) words = g_strsplit (text, " ", 5);
    uint64_t numbers[4];
    bool good = g_strv_length (words) == G_N_ELEMENTS (numbers);
    for (size_t i = 0; good && i < G_N_ELEMENTS (numbers); i++)
        good = ecfs_descriptor_number (words[i], G_MAXINT64, &numbers[i]);
    if (!good)
        return ecfs_fail (error, EBADMSG, "\"%s\" is not an extent", text);
    EcfsExtent extent = {
        .offset = numbers[0], .length = numbers[1], .object = (int64_t) numbers[2], .object_offset = numbers[3]};
    g_array_append_val (self->extents, extent);
    return true;
}

static bool parse_contained (EcfsDescriptor *self, const char *text, GError **error)
{
    g_auto (GStrv) words = g_strsplit (text, " ", 3);
    EcfsDescriptorBytes one = {.bytes = NULL};
    gsize size = 0;
    guchar *bytes = NULL;
    if (g_strv_length (words) == 2 && ecfs_descriptor_number (words[0], G_MAXINT64, &one.offset))
        bytes = g_base64_decode (words[1], &size);
    one.bytes = g_bytes_new_take (bytes, size);
    g_array_append_val (self->contained, one);
    return size > 0 || ecfs_fail (error, EBADMSG, "what it has of the content makes no sense");
}

static bool parse_numbered (EcfsDescriptor *self, Group *group, const char *word,
                            bool (*take) (EcfsDescriptor *self, const char *text, GError **error), GError **error)
{
    for (unsigned i = 0;; i++) {
        g_autofree char *key = g_strdup_printf ("%s-%u", word, i);
        g_autofree char *text = lookup (group, key);
        if (text == NULL)
            return true;
        if (!take (self, text, error))
            return false;
    }
}

static bool parse_head (EcfsDescriptor *self, GKeyFile *file, uint64_t *ret_format, GError **error)
{
    Group group = {.file = file, .name = GROUP};
    g_autofree char *format = lookup (&group, "format"), *archive = lookup (&group, "archive");
    g_autofree char *path = lookup (&group, "path"), *size = lookup (&group, "size");
    uint64_t number;
    if (!ecfs_descriptor_number (format, G_MAXUINT32, &number))
        return ecfs_fail (error, EBADMSG, "it has no format");
    *ret_format = number;
    if (number < FORMAT || number > FORMAT_FULL)
        return ecfs_fail (error, ENOTSUP, "it is of format %" PRIu64 ": use a later ecfs", number);
    self->path = path == NULL ? NULL : g_uri_unescape_string (path, NULL);
    if (archive == NULL || !ecfs_uuid_parse (archive, &self->archive) || self->path == NULL ||
        !ecfs_descriptor_number (size, G_MAXINT64, &self->size))
        return ecfs_fail (error, EBADMSG, "archive, path or size is missing or makes no sense");
    return parse_numbered (self, &group, "extent", parse_extent, error) &&
           (number < FORMAT_FULL || parse_numbered (self, &group, "content", parse_contained, error));
}

static bool parse_groups (EcfsDescriptor *self, GKeyFile *file, uint64_t format, GError **error)
{
    g_auto (GStrv) groups = g_key_file_get_groups (file, NULL);
    g_autoptr (GHashTable) positions = g_hash_table_new (g_str_hash, g_str_equal);
    for (size_t i = 0; groups[i] != NULL; i++) {
        Group group = {.file = file, .name = groups[i]};
        if (!g_str_has_prefix (groups[i], "endpoint ") || self->endpoints->len == MAX_ENDPOINTS)
            continue;
        EcfsUuid uuid;
        g_autofree char *url = lookup (&group, "url"), *id = lookup (&group, "uuid");
        if (url == NULL || id == NULL || !ecfs_uuid_parse (id, &uuid))
            return ecfs_fail (error, EBADMSG, "[%s]: url or uuid is missing or makes no sense", groups[i]);
        char *name = groups[i] + strlen ("endpoint ");
        (void) g_hash_table_insert (positions, name,
                                    GINT_TO_POINTER (ecfs_descriptor_add_endpoint (self, name, url, &uuid)));
    }
    for (unsigned i = 0; i < MAX_OBJECTS; i++) {
        g_autofree char *name = g_strdup_printf ("object %u", i);
        Group group = {.file = file, .name = name, .format = format};
        if (!g_key_file_has_group (file, name))
            break;
        if (!parse_object (self, positions, &group, error))
            return false;
    }
    return true;
}

/* @text ends with a NUL behind its @size. */
static EcfsDescriptor *parse (const char *text, size_t size, GError **error)
{
    g_autoptr (EcfsDescriptor) self = NULL;
    g_autoptr (GKeyFile) file = g_key_file_new ();
    if (size > ECFS_DESCRIPTOR_MAX_BYTES || strlen (text) != size) {
        (void) !ecfs_fail (error, EBADMSG, "it is not a descriptor");
        return NULL;
    }
    if (g_key_file_load_from_data (file, text, size, G_KEY_FILE_NONE, NULL) && g_key_file_has_group (file, GROUP)) {
        uint64_t format = FORMAT;
        self = ecfs_descriptor_new ();
        if (!parse_head (self, file, &format, error) ||
            (format >= FORMAT_SEALED && !ecfs_descriptor_check_end (text, error)) ||
            !parse_groups (self, file, format, error))
            return NULL;
    } else {
        self = ecfs_descriptor_parse_fec (text, error);
        if (self == NULL)
            return NULL;
    }
    return ecfs_descriptor_check (self, error) ? g_steal_pointer (&self) : NULL;
}

/* Descriptors come from strangers: what is wrong with one is told in its words. */
EcfsDescriptor *ecfs_descriptor_parse (const char *text, size_t size, GError **error)
{
    GError *problem = NULL;
    g_autofree char *copy = g_strndup (text, size);
    EcfsDescriptor *self = parse (copy, size, &problem);
    ecfs_key_forget (copy, strlen (copy));
    ecfs_text_clean_error (problem, ECFS_WORDS_MAX);
    if (problem != NULL)
        g_propagate_error (error, problem);
    return self;
}
