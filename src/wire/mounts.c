/* Which archive a path in a mount belongs to, by the kernel's table of mounts. */
#include "ecfs/ecfs.h"
#include "wire/wire.h"

#include <gio/gunixmounts.h>
#include <stdlib.h>
#include <string.h>

char *ecfs_kernel_name (const char *path)
{
    g_autofree char *absolute = g_canonicalize_filename (path, NULL);
    g_autofree char *parent = g_path_get_dirname (absolute);
    g_autofree char *name = g_path_get_basename (absolute);
    char *real = realpath (parent, NULL);
    char *found = real == NULL ? g_strdup (absolute) : g_build_filename (real, name, NULL);
    free (real);
    return found;
}

/* What is left of @path below the directory @above, with its "/"; NULL: it is not below it. */
static const char *rest_of (const char *path, const char *above)
{
    size_t length = g_str_equal (above, "/") ? 0 : strlen (above);
    bool below = strncmp (path, above, length) == 0 && (path[length] == '/' || path[length] == '\0');
    return below ? path + length : NULL;
}

/* The mount that holds @path: of those at the longest target the last one, which is on top. Borrowed from @mounts. */
static GUnixMountEntry *mount_above (GList *mounts, const char *path)
{
    GUnixMountEntry *above = NULL;
    const char *least = path;
    for (; mounts != NULL; mounts = mounts->next) {
        const char *rest = rest_of (path, g_unix_mount_get_mount_path (mounts->data));
        if (rest != NULL && (above == NULL || rest >= least)) {
            above = mounts->data;
            least = rest;
        }
    }
    return above;
}

/* The path in the archive of the mount that holds @path, a name of the kernel; *ret_directory gets the archive. */
static char *look_inside (const char *path, char **ret_directory)
{
    GList *mounts = g_unix_mounts_get (NULL);
    GUnixMountEntry *mount = mount_above (mounts, path);
    char *inside = NULL;
    if (mount != NULL && g_str_equal (g_unix_mount_get_fs_type (mount), ECFS_FSTYPE)) {
        /* "/", or the directory of the mount that is bound there */
        const char *root = g_unix_mount_get_root_path (mount);
        const char *rest = rest_of (path, g_unix_mount_get_mount_path (mount));
        g_autofree char *whole = g_strconcat (root == NULL || g_str_equal (root, "/") ? "" : root, rest, NULL);
        inside = g_strdup (*whole == '\0' ? "/" : whole);
        *ret_directory = g_strdup (g_unix_mount_get_device_path (mount));
    }
    g_list_free_full (mounts, (GDestroyNotify) g_unix_mount_free);
    return inside;
}

char *ecfs_mounted_path (const char *path, char **ret_directory)
{
    g_autofree char *name = ecfs_kernel_name (path);
    char *inside = look_inside (name, ret_directory);
    if (inside != NULL || !g_file_test (name, G_FILE_TEST_IS_SYMLINK))
        return inside;
    char *real = realpath (name, NULL);
    inside = real == NULL ? NULL : look_inside (real, ret_directory);
    free (real);
    return inside;
}
