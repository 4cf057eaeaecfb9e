/* The verbs export and fetch: a file's descriptor, and what it describes. */
#include "archive/api_priv.h"
#include "archive/descriptor.h"
#include "util/io.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

char *ecfs_export (Ecfs *self, const char *path, bool fec, GError **error)
{
    g_autoptr (EcfsDescriptor) descriptor = ecfs_descriptor_export (self->archive, path, error);
    if (descriptor == NULL)
        return NULL;
    return fec ? ecfs_descriptor_format_fec (descriptor, error) : ecfs_descriptor_format (descriptor);
}

bool ecfs_fetch (const char *descriptor_path, const char *path, const char *const *endpoints, GError **error)
{
    g_autofree char *text = NULL;
    size_t size;
    if (!ecfs_read_file (descriptor_path, ECFS_DESCRIPTOR_MAX_BYTES, &text, &size, error))
        return false;
    g_autoptr (EcfsDescriptor) descriptor = ecfs_descriptor_parse (text, size, error);
    if (descriptor == NULL)
        return ecfs_prefix (error, "%s", descriptor_path);
    g_autofree char *temporary = g_strdup_printf ("%s.ecfs-fetch-%d", path, (int) getpid ());
    ecfs_autofd fd = open (temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return ecfs_fail_errno (error, errno, "%s", temporary);
    bool good = ecfs_descriptor_fetch (descriptor, fd, endpoints, error);
    if (!good)
        (void) !ecfs_prefix (error, "%s", path);
    else if (rename (temporary, path) != 0)
        good = ecfs_fail_errno (error, errno, "%s", path);
    if (!good)
        (void) unlink (temporary); /* the first error is told */
    return good;
}
