/*
 * The catalog from a file to PostgreSQL and back. The steps, each of which may have been done by one that was killed:
 *
 *   to PostgreSQL                                       to a file
 *   1 rows are copied, to where nobody may open them    1 rows are copied to catalog.sqlite.arriving
 *   2 both are compared, and the copy is checked        2 both are compared, and the copy is checked
 *   3 ecfs.conf names the database                      3 the database says that it was left, and is opened no more
 *   4 the file is renamed                               4 the file gets its name
 *   5 the database may be opened                        5 ecfs.conf names the file; catalog-place goes
 *
 * So until step 3 the source is the catalog, and from there on it cannot be opened. Whoever opens the archive between 3
 * and 5 is told that the move is to be run again.
 */
#include "archive/catalog_place.h"
#include "archive/common.h"
#include "archive/config.h"
#include "catalog/move.h"
#include "ecfs/ecfs.h"
#include "util/io.h"

#include <fcntl.h>
#include <json-glib/json-glib.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_WORD "file"
#define MOST_KEPT 100 /* of one second */

typedef struct Moving {
    const EcfsMoving *how;
    char *directory;
    char *file;         /* its catalog as a file */
    char *location;     /* … and in PostgreSQL, as it is opened */
    char *where;        /* what the database says when it was left */
    char *kept;         /* what the file is called then; NULL: it was not renamed */
    EcfsConfig *config; /* as it is now */
    uint64_t n_rows;
} Moving;

static void moving_clear (Moving *self)
{
    g_free (self->directory);
    g_free (self->file);
    g_free (self->location);
    g_free (self->where);
    g_free (self->kept);
    ecfs_config_free (self->config);
}

static void tell (const Moving *self, const char *format, ...) G_GNUC_PRINTF (2, 3);

static void tell (const Moving *self, const char *format, ...)
{
    va_list arguments;
    va_start (arguments, format);
    g_autofree char *text = g_strdup_vprintf (format, arguments);
    va_end (arguments);
    if (self->how->tell != NULL)
        self->how->tell (self->how->user, text);
}

static EcfsCatalogMove move_of (const Moving *self)
{
    return (EcfsCatalogMove){.file = self->file,
                             .location = self->location,
                             .where = self->where,
                             .tick = self->how->progress,
                             .user = self->how->user};
}

static bool is_there (const char *path)
{
    return access (path, F_OK) == 0;
}

static bool sync_directory (const Moving *self, GError **error)
{
    int result = ecfs_fsync_dir (AT_FDCWD, self->directory);
    return result == 0 || ecfs_fail_errno (error, -result, "%s", self->directory);
}

static bool read_config (Moving *self, GError **error)
{
    g_autofree char *path = g_build_filename (self->directory, ECFS_CONFIG_NAME, NULL);
    g_autofree char *text = NULL;
    if (!ecfs_archive_check_directory (self->directory, error) || !ecfs_read_file (path, G_MAXINT, &text, NULL, error))
        return ecfs_prefix (error, "%s is not an archive directory", self->directory);
    self->config = ecfs_config_parse (text, path, error);
    return self->config != NULL;
}

static bool name_place (const Moving *self, const char *value, GError **error)
{
    const EcfsConfigChange change = {.section = (char *) "archive", .key = (char *) "catalog", .value = (char *) value};
    return ecfs_config_rewrite (self->directory, &change, 1, error);
}

/* To PostgreSQL */

/* The file with the UUIDs of the archive and of this directory, made where it is not there, or is of another one. */
static bool make_place (Moving *self, const char *to, GError **error)
{
    g_autofree char *path = g_build_filename (self->directory, ECFS_CATALOG_PLACE_NAME, NULL);
    EcfsCatalog *catalog = ecfs_catalog_open (self->file, ECFS_CATALOG_READONLY, error);
    if (catalog == NULL)
        return false;
    EcfsUuid archive = *ecfs_catalog_archive (catalog);
    char uuid[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&archive, uuid);
    (void) ecfs_catalog_close (catalog, NULL); /* it was only read */
    EcfsConfig then = *self->config;
    then.catalog = (char *) to;
    for (unsigned i = 0; i < 2; i++) {
        g_free (self->location);
        if (!ecfs_catalog_place_make (self->directory, &then, &archive, error) ||
            (self->location = ecfs_catalog_place (self->directory, &then, error)) == NULL)
            return false;
        if (g_str_has_prefix (strrchr (self->location, '#') + 1, uuid))
            return true;
        (void) unlink (path); /* what stays fails the next */
    }
    return ecfs_fail (error, EBADMSG, "%s is of another archive: remove it", path);
}

/* Under a name that nobody opens, without a log beside it. */
static bool retire_file (Moving *self, GError **error)
{
    static const char *const beside[] = {"-wal", "-shm"};
    g_autoptr (GDateTime) now = g_date_time_new_now_local ();
    g_autofree char *stamp = g_date_time_format (now, "%Y-%m-%d-%H%M%S");
    struct stat status;
    g_autofree char *log = g_strconcat (self->file, "-wal", NULL);
    if (!is_there (self->file))
        return true;
    if (stat (log, &status) == 0 && status.st_size > 0)
        return ecfs_fail (error, EBUSY, "another program reads %s: end it, and run this again", self->file);
    for (size_t i = 0; i < G_N_ELEMENTS (beside); i++) {
        g_autofree char *path = g_strconcat (self->file, beside[i], NULL);
        if (unlink (path) != 0 && errno != ENOENT)
            return ecfs_fail_errno (error, errno, "%s cannot be removed", path);
    }
    self->kept = g_strconcat (self->file, ".moved-", stamp, NULL);
    for (unsigned i = 1; renameat2 (AT_FDCWD, self->file, AT_FDCWD, self->kept, RENAME_NOREPLACE) != 0; i++) {
        if (errno != EEXIST || i == MOST_KEPT)
            return ecfs_fail_errno (error, errno, "%s cannot be renamed to %s", self->file, self->kept);
        g_free (self->kept);
        self->kept = g_strdup_printf ("%s.moved-%s-%u", self->file, stamp, i);
    }
    return sync_directory (self, error);
}

/* Behind step 3. */
static bool arrive (Moving *self, GError **error)
{
    EcfsPgState state;
    g_autofree char *where = NULL;
    if (!ecfs_pg_state (self->location, &state, &where, error))
        return false;
    if (state == ECFS_PG_LEFT && g_strcmp0 (where, self->where) == 0)
        return ecfs_fail (error, ESTALE,
                          "a move of the catalog to the file %s is under way, and was interrupted: end it with 'ecfs "
                          "catalog move %s file' first",
                          self->file, self->directory);
    if (state != ECFS_PG_ARRIVING && state != ECFS_PG_USED)
        return ecfs_fail (error, state == ECFS_PG_LEFT ? ESTALE : ENOENT,
                          state == ECFS_PG_LEFT
                              ? "the catalog was moved to %s: use the archive there"
                              : "there is no catalog%s in the database: 'ecfs recover' makes one from the endpoints",
                          state != ECFS_PG_LEFT ? ""
                          : where == NULL       ? "a file"
                                                : where);
    ecfs_catalog_moving ("retiring the file");
    if (!retire_file (self, error))
        return false;
    ecfs_catalog_moving ("opening the database");
    return state == ECFS_PG_USED || ecfs_pg_arrived (self->location, error);
}

static bool move_in (Moving *self, const char *to, GError **error)
{
    if (!make_place (self, to, error))
        return false;
    const EcfsCatalogMove move = move_of (self);
    if (!ecfs_catalog_move_in (&move, &self->n_rows, error))
        return false;
    ecfs_catalog_moving ("naming the database");
    return name_place (self, to, error) && arrive (self, error);
}

/* To a file */

/* Step 4, where the file is not there under its name yet. */
static bool name_file (Moving *self, GError **error)
{
    const EcfsCatalogMove move = move_of (self);
    g_autofree char *arriving = ecfs_catalog_move_name (&move);
    if (is_there (self->file))
        return true;
    if (!is_there (arriving))
        return ecfs_fail (error, ESTALE,
                          "the catalog was moved to another archive directory, which the database names: use that one; "
                          "where it is gone, 'ecfs recover' makes a new one from the endpoints");
    if (!ecfs_catalog_move_is_whole (&move, &self->n_rows, error))
        return false;
    ecfs_catalog_moving ("naming the file");
    if (renameat2 (AT_FDCWD, arriving, AT_FDCWD, self->file, RENAME_NOREPLACE) != 0)
        return ecfs_fail_errno (error, errno, "%s cannot be renamed to %s", arriving, self->file);
    return sync_directory (self, error);
}

static bool forget_place (const Moving *self, GError **error)
{
    g_autofree char *path = g_build_filename (self->directory, ECFS_CATALOG_PLACE_NAME, NULL);
    return unlink (path) == 0 || errno == ENOENT || ecfs_fail_errno (error, errno, "%s cannot be removed", path);
}

static bool move_out (Moving *self, GError **error)
{
    const EcfsCatalogMove move = move_of (self);
    EcfsPgState state;
    g_autofree char *where = NULL;
    if (!ecfs_pg_state (self->location, &state, &where, error))
        return false;
    if (state != ECFS_PG_LEFT && is_there (self->file))
        return ecfs_fail (error, EEXIST, "there is a %s that is not used: move it away first", self->file);
    if (state != ECFS_PG_LEFT && !ecfs_catalog_move_out (&move, &self->n_rows, error))
        return false;
    if (state == ECFS_PG_LEFT && g_strcmp0 (where, self->where) != 0)
        return ecfs_fail (
            error, ESTALE,
            "the catalog was moved to %s: use the archive there; where that is gone, 'ecfs recover' makes "
            "a new one from the endpoints",
            where == NULL ? "a file" : where);
    if (!name_file (self, error))
        return false;
    ecfs_catalog_moving ("naming the file in ecfs.conf");
    if (!name_place (self, FILE_WORD, error))
        return false;
    ecfs_catalog_moving ("forgetting the database");
    return forget_place (self, error);
}

/* What there is to do */

/* "service=x" and "file" as they are, URIs without what is secret; g_free (). */
static char *display (const char *place)
{
    return place == NULL ? g_strdup (FILE_WORD) : ecfs_pg_display (place);
}

static char *report_of (const Moving *self, const char *from, const char *to)
{
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    JsonObject *report = json_object_new ();
    json_node_take_object (node, report);
    json_object_set_string_member (report, "from", from);
    json_object_set_string_member (report, "to", to);
    json_object_set_boolean_member (report, "dry_run", self->how->dry_run);
    json_object_set_int_member (report, "rows", (int64_t) self->n_rows);
    if (self->kept != NULL)
        json_object_set_string_member (report, "kept", self->kept);
    return json_to_string (node, TRUE);
}

static bool check_location (const char *location, const EcfsConfig *config, GError **error)
{
    g_autoptr (EcfsConfig) try = ecfs_config_new ();
    return ecfs_config_set (try, "catalog", location, error) &&
           (try->catalog == NULL || config->catalog == NULL || g_str_equal (try->catalog, config->catalog) ||
            ecfs_fail (error, EINVAL,
                       "the catalog is in a database: where that only has another address now, change catalog in "
                       "%s; else move it to 'file' first",
                       ECFS_CONFIG_NAME));
}

/* Of an archive directory whose lock is held. */
static bool move (Moving *self, const char *to, GError **error)
{
    bool goes_in = strcmp (to, FILE_WORD) != 0;
    if (self->config->catalog == NULL && !goes_in)
        return is_there (self->file) ? forget_place (self, error)
                                     : ecfs_fail (error, ENOENT, "%s: there is no catalog", self->file);
    if (self->config->catalog == NULL)
        return move_in (self, to, error);
    self->location = ecfs_catalog_place (self->directory, self->config, error);
    return self->location != NULL && (goes_in ? arrive (self, error) : move_out (self, error));
}

char *ecfs_move_catalog (const char *directory, const char *location, const EcfsMoving *how, GError **error)
{
    char *report = NULL;
    Moving self = {.how = how, .directory = g_canonicalize_filename (directory, NULL)};
    self.file = g_build_filename (self.directory, ECFS_CATALOG_NAME, NULL);
    self.where = g_strdup_printf ("a file in %s on %s", self.directory, g_get_host_name ());
    ecfs_autofd lock = -1;
    if (read_config (&self, error) && check_location (location, self.config, error) &&
        (lock = ecfs_archive_lock_directory (self.directory, error)) >= 0) {
        g_autofree char *from = display (self.config->catalog);
        g_autofree char *to = display (strcmp (location, FILE_WORD) == 0 ? NULL : location);
        if (strcmp (from, to) == 0)
            tell (&self, "%s names %s already: what a move has left undone is done now", ECFS_CONFIG_NAME, to);
        else
            tell (&self, "%s: the catalog %s from %s to %s", self.directory, how->dry_run ? "would go" : "goes", from,
                  to);
        if (how->dry_run || move (&self, location, error))
            report = report_of (&self, from, to);
    }
    moving_clear (&self);
    return report;
}
