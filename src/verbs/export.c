/* The verbs export and fetch: a file's descriptor, and what it describes. */
#include "archive/keys.h"
#include "util/io.h"
#include "verbs/descriptor.h"
#include "verbs/fetch.h"
#include "verbs/verbs.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool on_tick (void *user, uint64_t bytes)
{
    EcfsTally *tally = user;
    tally->progress.bytes_done += bytes;
    return ecfs_tally_tick (tally);
}

static bool check_staged (Ecfs *self, const char *path, EcfsTally *tally, GError **error)
{
    EcfsAttr attr;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    g_autoptr (GHashTable) staged = ecfs_staged_rows (catalog, error);
    return staged != NULL && ecfs_catalog_resolve (catalog, path, &attr, error) &&
           ecfs_tally_check_staged (tally, staged, attr.ino, path, error);
}

char *ecfs_export (Ecfs *self, const char *path, unsigned flags, const EcfsTransferOptions *transfer,
                   bool *ret_has_keys, GError **error)
{
    EcfsTally tally = {.transfer = transfer, .progress = {.n_found = 1}};
    const EcfsDescriptorExport how = {.clear_only = (flags & ECFS_EXPORT_FEC) != 0,
                                      .without_keys = (flags & ECFS_EXPORT_WITHOUT_KEYS) != 0,
                                      .tick = on_tick,
                                      .user = &tally};
    if (!check_staged (self, path, &tally, error))
        return NULL;
    g_autoptr (EcfsDescriptor) descriptor = ecfs_descriptor_export (self->archive, path, &how, error);
    if (descriptor == NULL)
        return NULL;
    char *text = (flags & ECFS_EXPORT_FEC) != 0 ? ecfs_descriptor_format_fec (descriptor, error)
                                                : ecfs_descriptor_format (descriptor);
    bool has_keys = ecfs_descriptor_has_keys (descriptor);
    if (text != NULL && strlen (text) > ECFS_DESCRIPTOR_MAX_BYTES) {
        (void) !ecfs_fail (error, EFBIG, "%s: its descriptor takes more than %u MiB, which no ecfs reads", path,
                           ECFS_DESCRIPTOR_MAX_BYTES >> 20);
        ecfs_key_forget (text, strlen (text));
        g_clear_pointer (&text, g_free);
    }
    if (text != NULL && ret_has_keys != NULL)
        *ret_has_keys = has_keys;
    return text;
}

/* Without a name, where the file system can: then nothing is left of it when this process is ended. */
static int open_unfinished (const char *path, const char *temporary, GError **error)
{
    struct stat st;
    g_autofree char *directory = g_path_get_dirname (path);
    if (lstat (path, &st) == 0 && S_ISDIR (st.st_mode))
        return ecfs_fail (error, EISDIR, "%s: it is a directory: name the file to write", path) - 1;
    int fd = open (directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR))
        fd = open (temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return fd >= 0 ? fd : ecfs_fail_errno (error, errno, "%s: cannot create a temporary file beside it", path) - 1;
}

static bool give_name (int fd, const char *temporary, const char *path, GError **error)
{
    struct stat st;
    g_autofree char *nameless = g_strdup_printf ("/proc/self/fd/%d", fd), *directory = g_path_get_dirname (path);
    if (fstat (fd, &st) != 0 ||
        (st.st_nlink == 0 && linkat (AT_FDCWD, nameless, AT_FDCWD, temporary, AT_SYMLINK_FOLLOW) != 0) ||
        rename (temporary, path) != 0)
        return ecfs_fail_errno (error, errno, "%s", path);
    int result = ecfs_fsync_dir (AT_FDCWD, directory);
    return result == 0 || ecfs_fail_errno (error, -result, "%s: cannot make it durable", path);
}

/* From a file that the caller named, and with the archive's keys where it has none. */
static EcfsDescriptor *load (const char *path, const char *keys_path, GError **error)
{
    g_autofree char *text = NULL;
    size_t size;
    g_autoptr (EcfsKeyRing) keys = keys_path == NULL ? NULL : ecfs_keys_read (keys_path, error);
    if ((keys_path != NULL && keys == NULL) || !ecfs_read_file (path, ECFS_DESCRIPTOR_MAX_BYTES, &text, &size, error))
        return NULL;
    g_autoptr (EcfsDescriptor) descriptor = ecfs_descriptor_parse (text, size, error);
    ecfs_key_forget (text, size);
    if (descriptor != NULL && ecfs_descriptor_open (descriptor, keys, error))
        return g_steal_pointer (&descriptor);
    (void) !ecfs_prefix (error, "%s", path);
    return NULL;
}

bool ecfs_fetch_described (const EcfsDescriptor *descriptor, const char *path, const char *const *endpoints,
                           GError **error)
{
    g_autofree char *temporary = g_strdup_printf ("%s.ecfs-fetch-%d", path, (int) getpid ());
    ecfs_autofd fd = open_unfinished (path, temporary, error);
    if (fd < 0)
        return false;
    bool fetched = ecfs_descriptor_fetch (descriptor, fd, endpoints, error);
    if (!fetched)
        (void) !ecfs_prefix (error, "%s", path);
    bool good = fetched && give_name (fd, temporary, path, error);
    if (!good)
        (void) unlink (temporary); /* the first error is told */
    return good;
}

bool ecfs_fetch (const char *descriptor_path, const char *path, const char *const *endpoints, const char *keys_path,
                 GError **error)
{
    g_autoptr (EcfsDescriptor) descriptor = load (descriptor_path, keys_path, error);
    return descriptor != NULL && ecfs_fetch_described (descriptor, path, endpoints, error);
}
