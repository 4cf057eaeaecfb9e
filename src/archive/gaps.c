#include "archive/gaps.h"

#include "archive/common.h"
#include "util/io.h"

#include <string.h>
#include <unistd.h>

#define TEXTS "journal-gaps"
#define TIMES "since"

static char *path_of (const EcfsArchive *archive)
{
    return g_build_filename (ecfs_archive_directory (archive), ECFS_GAPS_NAME, NULL);
}

char *ecfs_gaps_all (const EcfsArchive *archive)
{
    g_autofree char *path = path_of (archive);
    char *bytes = NULL;
    return g_file_get_contents (path, &bytes, NULL, NULL) ? bytes : NULL;
}

/* A file that is absent or makes no sense says nothing. */
static GKeyFile *load (const EcfsArchive *archive)
{
    g_autofree char *bytes = ecfs_gaps_all (archive);
    GKeyFile *notes = g_key_file_new ();
    if (bytes != NULL)
        (void) g_key_file_load_from_data (notes, bytes, strlen (bytes), G_KEY_FILE_NONE, NULL);
    return notes;
}

void ecfs_gap_note (const EcfsArchive *archive, const EcfsUuid *endpoint, const char *text)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    gsize size = 0;
    g_autofree char *path = path_of (archive);
    g_autoptr (GKeyFile) notes = load (archive);
    g_autoptr (GError) error = NULL;
    ecfs_uuid_text (endpoint, uuid);
    if (g_key_file_has_key (notes, TEXTS, uuid, NULL))
        return;
    g_key_file_set_string (notes, TEXTS, uuid, text);
    g_key_file_set_int64 (notes, TIMES, uuid, g_get_real_time () / G_USEC_PER_SEC);
    g_autofree char *bytes = g_key_file_to_data (notes, &size, NULL);
    if (!ecfs_replace_file (path, bytes, size, 0600, &error))
        g_info ("%s", error->message); /* the log has it, ecfs status does not */
}

char *ecfs_gap_noted (const EcfsArchive *archive, const EcfsUuid *endpoint, int64_t *ret_since_s)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    g_autoptr (GKeyFile) notes = load (archive);
    ecfs_uuid_text (endpoint, uuid);
    *ret_since_s = MAX (g_key_file_get_int64 (notes, TIMES, uuid, NULL), 0);
    return g_key_file_get_string (notes, TEXTS, uuid, NULL);
}

void ecfs_gaps_forget (const EcfsArchive *archive, const char *all)
{
    g_autofree char *path = path_of (archive);
    g_autofree char *now = ecfs_gaps_all (archive);
    if (all != NULL && g_strcmp0 (all, now) == 0)
        (void) unlink (path); /* what stays is told again, and forgotten by the next check */
}
