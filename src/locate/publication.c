/* What an archive publishes, as it is kept in its directory. */
#include "locate/published.h"

#include "util/io.h"
#include "util/uuid.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define DIRECTORY "published"
#define GROUP     "published"
#define FORMAT    1
#define MAX_BYTES (8u << 20) /* of a file */

static char *path_of (const char *directory, const char *name)
{
    return g_build_filename (directory, DIRECTORY, name, NULL);
}

static bool public_of (const uint8_t key[ECFS_KEY_BYTES], uint8_t ret_public[ECFS_KEY_BYTES])
{
    size_t size = ECFS_KEY_BYTES;
    EVP_PKEY *private_key = EVP_PKEY_new_raw_private_key (EVP_PKEY_ED25519, NULL, key, ECFS_KEY_BYTES);
    bool good = private_key != NULL && EVP_PKEY_get_raw_public_key (private_key, ret_public, &size) == 1;
    EVP_PKEY_free (private_key);
    return good && size == ECFS_KEY_BYTES;
}

bool ecfs_publication_new (const char *name, uint32_t network, const char *nodes, EcfsPublication *ret_publication,
                           GError **error)
{
    if (!ecfs_published_is_name (name))
        return ecfs_fail (error, EINVAL, "\"%s\" is no name for the hash table: up to %u letters, digits, -, _ and .",
                          name, ECFS_PUBLISHED_NAME_MAX);
    EcfsPublication self = {.name = {.name = g_strdup (name), .network = network, .nodes = g_strdup (nodes)}};
    ecfs_random (self.key, sizeof self.key);
    if (!public_of (self.key, self.name.public_key)) {
        ecfs_publication_clear (&self);
        return ecfs_fail (error, ENOTSUP, "OpenSSL has no Ed25519");
    }
    *ret_publication = self;
    return true;
}

void ecfs_publication_clear (EcfsPublication *self)
{
    ecfs_published_name_clear (&self->name);
    ecfs_key_forget (self->key, sizeof self->key);
    g_clear_pointer (&self->path, g_free);
    g_clear_pointer (&self->packed, g_bytes_unref);
}

/* Also where the file was lost or a clock went back, it is higher than before. */
static void count (EcfsPublication *self)
{
    self->counter = MAX (self->counter + 1, (uint64_t) g_get_real_time ());
}

bool ecfs_publication_set_text (EcfsPublication *self, const char *path, const char *text, GError **error)
{
    size_t size = strlen (text);
    uLongf packed_bytes = compressBound (size);
    g_autofree uint8_t *packed = g_malloc (packed_bytes);
    if (size > ECFS_PUBLISHED_TEXT_MAX || compress2 (packed, &packed_bytes, (const Bytef *) text, size, 9) != Z_OK ||
        packed_bytes > ECFS_PUBLISHED_PIECES_MAX * ECFS_PUBLISHED_PIECE)
        return ecfs_fail (error, EFBIG,
                          "%s: its descriptor is too large for the hash table, which takes %u KiB of it compressed: "
                          "export it to a file instead",
                          path, ECFS_PUBLISHED_PIECES_MAX * ECFS_PUBLISHED_PIECE >> 10);
    g_clear_pointer (&self->packed, g_bytes_unref);
    g_free (self->path);
    self->packed = g_bytes_new_take (g_steal_pointer (&packed), packed_bytes);
    self->path = g_strdup (path);
    self->text_bytes = (uint32_t) size;
    count (self);
    return true;
}

void ecfs_publication_withdraw (EcfsPublication *self)
{
    g_clear_pointer (&self->packed, g_bytes_unref);
    self->text_bytes = 0;
    count (self);
}

/* The file */

static void set_bytes (GKeyFile *file, const char *key, const uint8_t *bytes, size_t size)
{
    char *text = g_base64_encode (bytes, size);
    g_key_file_set_string (file, GROUP, key, text);
    ecfs_key_forget (text, strlen (text));
    g_free (text);
}

bool ecfs_publication_save (const EcfsPublication *self, const char *directory, GError **error)
{
    gsize size, n_bytes;
    g_autofree char *folder = g_build_filename (directory, DIRECTORY, NULL);
    g_autofree char *path = path_of (directory, self->name.name);
    g_autofree char *capability = ecfs_published_name_format (&self->name);
    g_autoptr (GKeyFile) file = g_key_file_new ();
    const uint8_t *packed = g_bytes_get_data (self->packed, &n_bytes);
    g_key_file_set_integer (file, GROUP, "format", FORMAT);
    g_key_file_set_string (file, GROUP, "capability", capability);
    g_key_file_set_uint64 (file, GROUP, "counter", self->counter);
    g_key_file_set_uint64 (file, GROUP, "size", self->text_bytes);
    set_bytes (file, "key", self->key, sizeof self->key);
    set_bytes (file, "path", (const uint8_t *) self->path, strlen (self->path));
    set_bytes (file, "descriptor", packed, n_bytes);
    if (mkdir (folder, 0700) != 0 && errno != EEXIST)
        return ecfs_fail_errno (error, errno, "%s", folder);
    char *text = g_key_file_to_data (file, &size, NULL);
    bool good = ecfs_replace_file (path, text, size, 0600, error);
    ecfs_key_forget (text, size);
    g_free (text);
    return good;
}

static bool get_bytes (GKeyFile *file, const char *key, uint8_t **ret_bytes, gsize *ret_size)
{
    g_autofree char *text = g_key_file_get_string (file, GROUP, key, NULL);
    *ret_bytes = text == NULL ? NULL : g_base64_decode (text, ret_size);
    return *ret_bytes != NULL;
}

/* What is there becomes part of *self even where something is missing. */
static bool parse (GKeyFile *file, EcfsPublication *self)
{
    gsize size = 0;
    g_autofree uint8_t *key = NULL, *path = NULL;
    uint8_t *packed = NULL;
    g_autofree char *capability = g_key_file_get_string (file, GROUP, "capability", NULL);
    self->counter = g_key_file_get_uint64 (file, GROUP, "counter", NULL);
    self->text_bytes = (uint32_t) g_key_file_get_uint64 (file, GROUP, "size", NULL);
    if (g_key_file_get_integer (file, GROUP, "format", NULL) != FORMAT || capability == NULL ||
        !ecfs_published_name_parse (capability, &self->name, NULL) || !get_bytes (file, "key", &key, &size) ||
        size != ECFS_KEY_BYTES)
        return false;
    memcpy (self->key, key, ECFS_KEY_BYTES);
    ecfs_key_forget (key, ECFS_KEY_BYTES);
    if (!get_bytes (file, "path", &path, &size))
        return false;
    self->path = g_strndup ((const char *) path, size);
    if (!get_bytes (file, "descriptor", &packed, &size))
        return false;
    self->packed = g_bytes_new_take (packed, size);
    return size > 0 && size <= ECFS_PUBLISHED_PIECES_MAX * ECFS_PUBLISHED_PIECE && self->text_bytes > 0 &&
           self->text_bytes <= ECFS_PUBLISHED_TEXT_MAX;
}

bool ecfs_publication_load (const char *directory, const char *name, EcfsPublication *ret_publication, GError **error)
{
    size_t size;
    g_autofree char *text = NULL, *path = path_of (directory, name);
    g_autoptr (GKeyFile) file = g_key_file_new ();
    EcfsPublication self = {.counter = 0};
    if (!ecfs_published_is_name (name))
        return ecfs_fail (error, EINVAL, "\"%s\" is no name for the hash table", name);
    if (!ecfs_read_file (path, MAX_BYTES, &text, &size, error))
        return false;
    bool good = g_key_file_load_from_data (file, text, size, G_KEY_FILE_NONE, NULL) && parse (file, &self) &&
                strcmp (self.name.name, name) == 0;
    ecfs_key_forget (text, size);
    if (good) {
        *ret_publication = self;
        return true;
    }
    ecfs_publication_clear (&self);
    return ecfs_fail (error, EBADMSG, "%s: it is damaged, or of a later ecfs", path);
}

bool ecfs_publication_remove (const char *directory, const char *name, GError **error)
{
    g_autofree char *path = path_of (directory, name), *folder = g_path_get_dirname (path);
    int result = unlink (path) != 0 ? errno : -ecfs_fsync_dir (AT_FDCWD, folder);
    return result == 0 || ecfs_fail_errno (error, result, "%s", path);
}

static int compare (gconstpointer a, gconstpointer b)
{
    return strcmp (*(char *const *) a, *(char *const *) b);
}

GPtrArray *ecfs_publications (const char *directory)
{
    const char *name;
    GPtrArray *names = g_ptr_array_new_with_free_func (g_free);
    g_autofree char *folder = g_build_filename (directory, DIRECTORY, NULL);
    g_autoptr (GDir) dir = g_dir_open (folder, 0, NULL);
    while (dir != NULL && (name = g_dir_read_name (dir)) != NULL)
        if (ecfs_published_is_name (name))
            g_ptr_array_add (names, g_strdup (name));
    g_ptr_array_sort (names, compare);
    return names;
}
