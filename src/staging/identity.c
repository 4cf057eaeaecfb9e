/*
 * Whether the staging directory is the one that this archive used before: it may be a file system of its own, and an
 * empty directory is there where that is not mounted. What was staged would be taken for lost, and names with it. So
 * the archive directory and the staging directory both have a file with the same number in it.
 */
#include "archive/common.h"
#include "staging/directory.h"
#include "util/io.h"
#include "util/text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_BYTES_MAX 4096

typedef enum Found { FOUND_NONE, FOUND_EMPTY, FOUND_ID, FOUND_ERROR } Found;

/* An empty one is what somebody made who means it. */
static Found read_id (const char *path, EcfsUuid *ret_id, GError **error)
{
    g_autofree char *text = NULL;
    g_autoptr (GError) why = NULL;
    if (!ecfs_read_file (path, ID_BYTES_MAX, &text, NULL, &why)) {
        if (why->code == ENOENT)
            return FOUND_NONE;
        g_propagate_error (error, g_steal_pointer (&why));
        return FOUND_ERROR;
    }
    g_strstrip (text);
    if (*text == '\0')
        return FOUND_EMPTY;
    if (ecfs_uuid_parse (text, ret_id))
        return FOUND_ID;
    (void) !ecfs_fail (error, EBADMSG, "%s is damaged", path);
    return FOUND_ERROR;
}

static bool write_id (const char *path, const EcfsUuid *id, GError **error)
{
    char line[ECFS_UUID_TEXT_SIZE + 1];
    ecfs_uuid_text (id, line);
    strcat (line, "\n");
    return ecfs_replace_file (path, line, strlen (line), 0600, error);
}

/* Whether all that the catalog knows to be staged is there. */
static bool has_all (EcfsArchive *archive, int dir_fd, bool *ret_all, GError **error)
{
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (ecfs_archive_catalog (archive), error);
    *ret_all = true;
    for (guint i = 0; rows != NULL && i < rows->len; i++) {
        const EcfsStagingRow *row = g_ptr_array_index (rows, i);
        g_autofree char *name = ecfs_staged_row_name (row->id, row->ino);
        g_autofree char *aside = ecfs_staged_aside_name (name);
        if (row->state == ECFS_STAGING_QUEUED && faccessat (dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0 &&
            faccessat (dir_fd, aside, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
            *ret_all = false;
    }
    return rows != NULL;
}

static bool refuse (const char *directory, const char *path, const char *what, GError **error)
{
    g_autofree char *word = ecfs_shell_word (path);
    return ecfs_fail (error, ENOTCONN,
                      "%s/staging is not the staging directory of this archive: %s. If it is a file system of its own, "
                      "mount it there. If it is permanently lost, with what was staged there, run ': > %s' and "
                      "mount the archive again",
                      directory, what, word);
}

bool ecfs_staged_check_identity (EcfsArchive *archive, int dir_fd, GError **error)
{
    EcfsUuid own, there;
    bool all;
    g_autofree char *own_path = g_build_filename (ecfs_archive_directory (archive), ECFS_STAGED_ID_NAME, NULL);
    g_autofree char *path = g_build_filename (ecfs_archive_directory (archive), "staging", ECFS_STAGED_ID_FILE, NULL);
    Found expected = read_id (own_path, &own, error), found;
    if (expected == FOUND_ERROR || (found = read_id (path, &there, error)) == FOUND_ERROR ||
        !has_all (archive, dir_fd, &all, error))
        return false;
    if (expected == FOUND_ID && found == FOUND_ID)
        return ecfs_uuid_equal (&own, &there) ||
               refuse (ecfs_archive_directory (archive), path, "it is that of another one, or of an older copy", error);
    if (expected == FOUND_ID && found == FOUND_NONE)
        return refuse (ecfs_archive_directory (archive), path, "it lacks " ECFS_STAGED_ID_FILE, error);
    if (found == FOUND_NONE && !all)
        return refuse (ecfs_archive_directory (archive), path, "files that are staged are not there", error);
    if (found == FOUND_ID && expected != FOUND_ID)
        return (all || refuse (ecfs_archive_directory (archive), path, "files that are staged are not there", error)) &&
               write_id (own_path, &there, error);
    own = ecfs_uuid_new ();
    /* In this order: a crash between the two is taken for the case above. */
    return write_id (path, &own, error) && write_id (own_path, &own, error);
}
