/*
 * Errors are GErrors of one domain whose code is an errno, so that the file system can answer with it and the text can
 * tell the user which file, which endpoint, what failed and what to do.
 *
 * One meaning per code: ENOENT absent, EBADMSG wrong bytes, ENODATA too few packets to decode, ETIMEDOUT deadline,
 * ECANCELED no longer needed, ENOTCONN endpoint down, EPROTO it talks nonsense, ENOSPC/EDQUOT full, EPERM write-once,
 * EINVAL a value the user gave is wrong, EBUSY someone else holds it, EROFS it may only be read now.
 */
#ifndef ECFS_UTIL_ERROR_H
#define ECFS_UTIL_ERROR_H

#include <errno.h>
#include <glib.h>
#include <stdbool.h>

#define ECFS_ERROR (ecfs_error_quark ())
GQuark ecfs_error_quark (void);

/** Sets @error (may be NULL) to @code, an errno, with a text; returns false, so that it can be returned. */
bool ecfs_fail (GError **error, int code, const char *format, ...) G_GNUC_PRINTF (3, 4)
    __attribute__ ((warn_unused_result));

/** Like ecfs_fail () with ": strerror (code)" appended to the text. */
bool ecfs_fail_errno (GError **error, int code, const char *format, ...) G_GNUC_PRINTF (3, 4)
    __attribute__ ((warn_unused_result));

/** Puts "text: " before the text of *error (error or *error may be NULL); returns false. */
bool ecfs_prefix (GError **error, const char *format, ...) G_GNUC_PRINTF (2, 3) __attribute__ ((warn_unused_result));

/** The errno that @error carries; EIO for a foreign domain, 0 for NULL. */
int ecfs_errno (const GError *error);

#endif
