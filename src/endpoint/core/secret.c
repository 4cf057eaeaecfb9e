#include "endpoint/core/secret.h"

#include "util/io.h"

#include <string.h>
#include <sys/stat.h>

#define MAX_SECRET_BYTES 65536

bool ecfs_secret_is_private (const char *key, const char *path, GError **error)
{
    struct stat info;
    if (stat (path, &info) != 0)
        return ecfs_fail (error, EACCES, "%s %s: %s", key, path, g_strerror (errno));
    if ((info.st_mode & 077) != 0)
        return ecfs_fail (error, EACCES, "%s %s can be read by others (mode %04o): chmod 600 it", key, path,
                          info.st_mode & 07777);
    return true;
}

char *ecfs_secret_read (const char *key, const char *path, GError **error)
{
    char *secret = NULL;
    size_t size;
    if (!ecfs_secret_is_private (key, path, error))
        return NULL;
    if (!ecfs_read_file (path, MAX_SECRET_BYTES, &secret, &size, error)) {
        g_prefix_error (error, "%s: ", key);
        return NULL;
    }
    secret[strcspn (secret, "\r\n")] = '\0';
    if (*secret != '\0')
        return secret;
    g_free (secret);
    (void) !ecfs_fail (error, EACCES, "%s %s: its first line is empty", key, path);
    return NULL;
}
