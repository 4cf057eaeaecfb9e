/* What a file that is to be stored needs in the root: directories on the way, the marker, and room. */
#include "endpoint/sftp/sftp_priv.h"

#include <string.h>

#define FULL_BELOW (1024 * 1024) /* free bytes below which a plain failure of a write means: full */

/* Directories */

static bool is_known (EcfsSftpShared *shared, const char *directory)
{
    ecfs_mutex_lock (&shared->lock);
    bool known = g_hash_table_contains (shared->directories, directory);
    ecfs_mutex_unlock (&shared->lock);
    return known;
}

static void note (EcfsSftpShared *shared, const char *directory, bool exists)
{
    ecfs_mutex_lock (&shared->lock);
    if (!exists)
        g_hash_table_remove (shared->directories, directory);
    else if (g_hash_table_size (shared->directories) < ECFS_SFTP_MAX_REMEMBERED_DIRS)
        g_hash_table_add (shared->directories, g_strdup (directory));
    ecfs_mutex_unlock (&shared->lock);
}

/* A directory that cannot be made exists most often; if not, what needs it will say so. */
static void make (EcfsSftp *self, EcfsSftpOp *op, const char *directory)
{
    g_autofree char *path = ecfs_sftp_path (self, directory);
    ecfs_sftp_put_mkdir (ecfs_sftp_out (self), ecfs_sftp_expect (self, op, ecfs_sftp_ignore, NULL), path,
                         self->config->directory_mode);
}

/* The next of "a", "a/b" of "a/b/c"; *at begins as the name. NULL: there is none. g_free () */
static char *next_parent (const char *name, const char **at)
{
    const char *slash = strchr (*at, '/');
    if (slash == NULL)
        return NULL;
    *at = slash + 1;
    return g_strndup (name, (size_t) (slash - name));
}

void ecfs_sftp_make_parents (EcfsSftp *self, EcfsSftpOp *op, const char *name)
{
    char *directory;
    for (const char *at = name; (directory = next_parent (name, &at)) != NULL; g_free (directory))
        if (!is_known (self->config->shared, directory))
            make (self, op, directory);
}

void ecfs_sftp_note_parents (EcfsSftp *self, const char *name, bool exist)
{
    char *directory;
    for (const char *at = name; (directory = next_parent (name, &at)) != NULL; g_free (directory))
        note (self->config->shared, directory, exist);
}

/* The marker */

/* Servers that cannot rename over a file have none for a moment while it is replaced. */
static void on_look (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    EcfsSftpLook *look = data;
    if (reply->type != ECFS_SFTP_STATUS || reply->status != ECFS_SFTP_NO_SUCH_FILE)
        return;
    bool again = !look->absent && (self->extensions & ECFS_SFTP_HAS_POSIX_RENAME) == 0;
    look->absent = true;
    if (again && ecfs_sftp_look (self, look))
        return;
    g_clear_error (look->error); /* that says more than what followed from it */
    g_set_error_literal (look->error, ECFS_ERROR, ENOTCONN, "has no " ECFS_MARKER_NAME " file any more: not mounted?");
    ecfs_slot_doubt (self->slot);
}

bool ecfs_sftp_look (EcfsSftp *self, EcfsSftpLook *look)
{
    if (!ecfs_slot_has_marker (self->slot))
        return false;
    g_autofree char *path = ecfs_sftp_path (self, ECFS_MARKER_NAME);
    ecfs_sftp_put_path (ecfs_sftp_out (self), ECFS_SFTP_STAT, ecfs_sftp_expect (self, look->op, on_look, look), path);
    return true;
}

/* Room */

bool ecfs_sftp_ask_room (EcfsSftp *self, EcfsSftpOp *op, EcfsSftpReplyFunc func, void *data)
{
    if ((self->extensions & ECFS_SFTP_HAS_STATVFS) == 0)
        return false;
    ecfs_sftp_put_statvfs (ecfs_sftp_out (self), ecfs_sftp_expect (self, op, func, data), self->config->root);
    return true;
}

bool ecfs_sftp_says_full (const EcfsSftpReply *reply)
{
    EcfsSftpSpace space;
    return reply->type == ECFS_SFTP_EXTENDED_REPLY && ecfs_sftp_parse_statvfs (reply, &space) == 0 &&
           space.free_bytes < FULL_BELOW;
}
