#include "archive/keys.h"

#include "archive/common.h"
#include "catalog/journal_rows.h"
#include "util/io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define OTHERS_MODE 077

static bool check_private (const char *path, int fd, GError **error)
{
    struct stat status;
    if (fstat (fd, &status) != 0)
        return ecfs_fail_errno (error, errno, "%s", path);
    return ecfs_archive_check_owner (path, &status, error) &&
           ((status.st_mode & OTHERS_MODE) == 0 ||
            ecfs_fail (error, EPERM, "%s has the archive's keys, and others may read it: chmod 600 %s", path, path));
}

EcfsKeyRing *ecfs_keys_read (const char *path, GError **error)
{
    uint8_t bytes[ECFS_KEY_RING_MAX_BYTES];
    ecfs_autofd fd = open (path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        (void) !ecfs_fail_errno (error, errno, "%s", path);
        return NULL;
    }
    if (!check_private (path, fd, error))
        return NULL;
    ssize_t size = ecfs_pread_all (fd, bytes, sizeof bytes, 0);
    if (size < 0) {
        ecfs_key_forget (bytes, sizeof bytes);
        (void) !ecfs_fail_errno (error, (int) -size, "%s", path);
        return NULL;
    }
    EcfsKeyRing *keys = ecfs_key_ring_parse (bytes, (size_t) size, error);
    ecfs_key_forget (bytes, sizeof bytes);
    if (keys == NULL)
        (void) !ecfs_prefix (error, "%s", path);
    return keys;
}

bool ecfs_keys_write (const char *directory, const EcfsKeyRing *keys, GError **error)
{
    g_autofree char *path = g_build_filename (directory, ECFS_KEYS_NAME, NULL);
    GByteArray *bytes = ecfs_key_ring_format (keys);
    bool written = ecfs_replace_file (path, bytes->data, bytes->len, 0600, error);
    ecfs_key_forget_array (bytes);
    return written;
}

bool ecfs_keys_keep_id (EcfsCatalog *catalog, const EcfsKeyRing *keys, GError **error)
{
    char text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (ecfs_key_ring_active (keys), text);
    return ecfs_catalog_keep_setting (catalog, ECFS_KEY_SETTING, text, error);
}

static void take_id (void *user, const char *key, const char *value)
{
    char **id = user;
    if (strcmp (key, ECFS_KEY_SETTING) != 0)
        return;
    g_free (*id);
    *id = g_strdup (value);
}

static bool check_keys (const char *path, EcfsCatalog *catalog, const char *id, const EcfsKeyRing *keys, GError **error)
{
    char text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (ecfs_key_ring_active (keys), text);
    if (!ecfs_uuid_equal (ecfs_key_ring_archive (keys), ecfs_catalog_archive (catalog)))
        return ecfs_fail (error, ENOKEY, "%s has the keys of another archive", path);
    return strcmp (text, id) == 0 ||
           ecfs_fail (error, ENOKEY, "%s has key %s, and the archive is under key %s: restore that file", path, text,
                      id);
}

bool ecfs_keys_load (const char *directory, EcfsCatalog *catalog, EcfsKeyRing **ret_keys, GError **error)
{
    g_autofree char *path = g_build_filename (directory, ECFS_KEYS_NAME, NULL);
    g_autofree char *id = NULL;
    g_autoptr (GError) reason = NULL;
    *ret_keys = NULL;
    if (!ecfs_catalog_settings (catalog, take_id, &id, error))
        return false;
    if (id == NULL)
        return true;
    g_autoptr (EcfsKeyRing) keys = ecfs_keys_read (path, &reason);
    if (keys == NULL && reason->code == ENOENT)
        return ecfs_fail (error, ENOKEY,
                          "%s is gone, and what this archive stores can be read with that file only: restore it from "
                          "a backup; where endpoints share the key, 'ecfs recover' in another place brings it back",
                          path);
    if (keys == NULL) {
        g_propagate_error (error, g_steal_pointer (&reason));
        return false;
    }
    if (!check_keys (path, catalog, id, keys, error))
        return false;
    *ret_keys = g_steal_pointer (&keys);
    return true;
}
