/*
 * The archive as it was at a moment: a directory for reading only, made of what the endpoints keep of the journal,
 * which every verb that reads takes for an archive's. It lies in the archive directory, past-PID-XXXXXX, and goes when
 * the process ends that made it, or with the next that is made.
 */
#include "verbs/past.h"

#include "archive/cached.h"
#include "archive/common.h"
#include "catalog/marks.h"
#include "ecfs/ecfs.h"
#include "recover/recover.h"
#include "util/error.h"
#include "util/units.h"
#include "wire/wire.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "past-"

bool ecfs_past_moment (const char *text, int64_t *ret_ns, GError **error)
{
    if (!ecfs_parse_moment (text, ret_ns))
        return ecfs_fail (error, EINVAL,
                          "%s: this is no moment: give a date (\"2026-11-25\", \"2026-11-25 14:30\") or how long ago "
                          "(\"90m\", \"2d\")",
                          text);
    return *ret_ns / 1000 <= g_get_real_time () + G_USEC_PER_SEC ||
           ecfs_fail (error, EINVAL, "%s: this has not come yet", text);
}

/* Also one that is dead, and that nobody has buried, is gone. */
static bool lives (int pid)
{
    g_autofree char *path = g_strdup_printf ("/proc/%d/stat", pid), *stat = NULL;
    if (kill (pid, 0) != 0 && errno == ESRCH)
        return false;
    const char *end = g_file_get_contents (path, &stat, NULL, NULL) ? strrchr (stat, ')') : NULL;
    return end == NULL || !g_str_has_prefix (end, ") Z");
}

/* What a process has left that ended before it could remove it. */
static void remove_left (const char *archive)
{
    const char *name;
    g_autoptr (GDir) entries = g_dir_open (archive, 0, NULL);
    while (entries != NULL && (name = g_dir_read_name (entries)) != NULL) {
        int pid;
        if (sscanf (name, PREFIX "%d-", &pid) != 1 || pid <= 0 || lives (pid))
            continue;
        g_autofree char *path = g_build_filename (archive, name, NULL);
        ecfs_archive_empty_directory (path, true);
    }
}

static char *make_directory (const char *archive, GError **error)
{
    g_autofree char *name = g_strdup_printf (PREFIX "%d-XXXXXX", (int) getpid ());
    char *path = g_build_filename (archive, name, NULL);
    if (g_mkdtemp_full (path, 0700) != NULL)
        return path;
    (void) !ecfs_fail (error, errno, "a directory for the past cannot be made in %s: %s", archive, g_strerror (errno));
    g_free (path);
    return NULL;
}

/* What happened a moment ago is to be told by the endpoints, too. */
static void store_journal (const char *archive)
{
    JsonObject *request = json_object_new ();
    json_object_set_string_member (request, "verb", "sync");
    json_object_set_boolean_member (request, "journal", TRUE);
    g_autoptr (JsonNode) question = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (question, request);
    g_autoptr (GError) why = NULL;
    g_autoptr (JsonNode) answer =
        ecfs_control_is_silent (archive, &why) ? NULL : ecfs_control_call (archive, question, &why);
    if (answer == NULL && ecfs_errno (why) != ENOTCONN)
        g_warning ("the last changes may be missing: %s", why->message);
}

/* What is no moment may be the name of a mark. */
static bool find_moment (EcfsArchive *archive, const char *text, int64_t *ret_ns, uint64_t *ret_sequence,
                         GError **error)
{
    EcfsMark mark;
    GError *why = NULL;
    *ret_sequence = 0;
    if (ecfs_parse_moment (text, ret_ns) || !ecfs_mark_check (text, NULL))
        return ecfs_past_moment (text, ret_ns, error);
    if (!ecfs_catalog_mark_find (ecfs_archive_catalog (archive), text, &mark, &why)) {
        bool unknown = ecfs_errno (why) == ENOENT;
        if (!unknown) {
            g_propagate_error (error, why);
            return false;
        }
        g_error_free (why);
        return ecfs_past_moment (text, ret_ns, error) || ecfs_prefix (error, "there is no mark of that name, and");
    }
    *ret_ns = mark.time_ns;
    *ret_sequence = mark.sequence;
    return true;
}

/* As that of the archive, whose cache it shares. */
static EcfsConfig *config_of_past (const EcfsArchive *archive, GError **error)
{
    g_autofree char *text = ecfs_config_format (ecfs_archive_config (archive));
    g_autofree char *place = ecfs_archive_cache_place (archive);
    EcfsConfig *config = ecfs_config_parse (text, ECFS_CONFIG_NAME, error);
    if (config == NULL || ecfs_config_set (config, "cache", place, error))
        return config;
    ecfs_config_free (config);
    return NULL;
}

static void warn_of_older (const char *archive_dir, const EcfsRecovered *recovered)
{
    g_autoptr (GDateTime) time = g_date_time_new_from_unix_local (recovered->time_ns / 1000000000);
    g_autofree char *when = time == NULL ? g_strdup ("some time before") : g_date_time_format (time, "at %F %T");
    g_warning ("%s: changes before that moment are missing at the endpoints: this is how it was %s", archive_dir, when);
}

/* @moment NULL: all of the past; @watch NULL: none; @ret_recovered NULL: with a look at what is there of it */
static bool fill (const char *directory, const char *archive_dir, const char *moment, const EcfsRecoverWatch *watch,
                  EcfsRecovered *ret_recovered, GError **error)
{
    int64_t at_ns = 0;
    uint64_t at_sequence = 0;
    static const char *const nothing[] = {NULL};
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (archive_dir, ECFS_ARCHIVE_READONLY, error);
    if (archive == NULL || (moment != NULL && !find_moment (archive, moment, &at_ns, &at_sequence, error)))
        return false;
    g_autoptr (EcfsConfig) config = config_of_past (archive, error);
    if (config == NULL)
        return false;
    const EcfsRecover what = {.directory = directory,
                              .config = config,
                              .given = nothing,
                              .archive = ecfs_catalog_archive (ecfs_archive_catalog (archive)),
                              .keys = ecfs_archive_keys (archive),
                              .at_ns = at_ns,
                              .at_sequence = at_sequence,
                              .watch = watch,
                              .read_only = true,
                              .names_only = ret_recovered != NULL,
                              .without_silent = true};
    EcfsRecovered recovered;
    bool made = ecfs_archive_recover (&what, &recovered, error);
    if (made && recovered.is_older)
        warn_of_older (archive_dir, &recovered);
    if (made && ret_recovered != NULL)
        *ret_recovered = recovered;
    else
        ecfs_recovered_clear (&recovered);
    return made;
}

char *ecfs_past_open (const char *archive_dir, const char *moment, GError **error)
{
    int64_t at_ns;
    g_autofree char *archive = g_canonicalize_filename (archive_dir, NULL); /* who made it may go elsewhere */
    if (!ecfs_mark_check (moment, NULL) && !ecfs_past_moment (moment, &at_ns, error))
        return NULL;
    remove_left (archive);
    store_journal (archive);
    char *directory = make_directory (archive, error);
    if (directory == NULL || fill (directory, archive, moment, NULL, NULL, error))
        return directory;
    ecfs_past_close (directory);
    return NULL;
}

char *ecfs_past_replay (const char *archive_dir, const EcfsRecoverWatch *watch, EcfsRecovered *ret_recovered,
                        GError **error)
{
    g_autofree char *archive = g_canonicalize_filename (archive_dir, NULL);
    remove_left (archive);
    char *directory = make_directory (archive, error);
    if (directory == NULL || fill (directory, archive, NULL, watch, ret_recovered, error))
        return directory;
    ecfs_past_close (directory);
    return NULL;
}

void ecfs_past_close (char *directory)
{
    if (directory == NULL)
        return;
    ecfs_archive_empty_directory (directory, true);
    g_free (directory);
}

/* What a path led to, over time */

typedef struct Log {
    const char *path;
    JsonArray *entries; /* owned until it is handed over */
    bool is_there;
    EcfsAttr last; /* valid with is_there */
} Log;

static const char *change_of (const Log *self, const EcfsAttr *now)
{
    if (!self->is_there)
        return "appeared";
    if (now->ino != self->last.ino)
        return "replaced";
    return now->mtime_ns != self->last.mtime_ns || now->committed_size != self->last.committed_size ? "written"
                                                                                                    : "changed";
}

static void add_entry (Log *self, const char *change, int64_t time_ns, const EcfsAttr *attr)
{
    JsonObject *entry = json_object_new ();
    json_object_set_int_member (entry, "time_ns", time_ns);
    json_object_set_string_member (entry, "change", change);
    if (attr != NULL) {
        json_object_set_int_member (entry, "mode", attr->mode);
        json_object_set_int_member (entry, "uid", attr->uid);
        json_object_set_int_member (entry, "gid", attr->gid);
        json_object_set_int_member (entry, "size", (int64_t) attr->committed_size);
        json_object_set_int_member (entry, "mtime_ns", attr->mtime_ns);
    }
    json_array_add_object_element (self->entries, entry);
}

static bool is_other (const EcfsAttr *a, const EcfsAttr *b)
{
    return a->ino != b->ino || a->mode != b->mode || a->uid != b->uid || a->gid != b->gid ||
           a->committed_size != b->committed_size || a->mtime_ns != b->mtime_ns;
}

static bool note (void *user, EcfsCatalog *catalog, int64_t time_ns, GError **error)
{
    Log *self = user;
    EcfsAttr now;
    GError *why = NULL;
    bool is_there = ecfs_catalog_resolve (catalog, self->path, &now, &why);
    if (!is_there && ecfs_errno (why) != ENOENT && ecfs_errno (why) != ENOTDIR) {
        g_propagate_error (error, why);
        return false;
    }
    g_clear_error (&why);
    if (is_there && (!self->is_there || is_other (&now, &self->last)))
        add_entry (self, change_of (self, &now), time_ns, &now);
    else if (!is_there && self->is_there)
        add_entry (self, "went", time_ns, NULL);
    self->is_there = is_there;
    if (is_there)
        self->last = now;
    return true;
}

static void forget (void *user)
{
    Log *self = user;
    json_array_unref (self->entries);
    self->entries = json_array_new ();
    self->is_there = false;
}

JsonArray *ecfs_past_log (const char *archive_dir, const char *path, GError **error)
{
    Log log = {.path = path, .entries = json_array_new ()};
    const EcfsRecoverWatch watch = {.begin = forget, .applied = note, .user = &log};
    g_autofree char *archive = g_canonicalize_filename (archive_dir, NULL);
    remove_left (archive);
    store_journal (archive);
    char *directory = make_directory (archive, error);
    bool filled = directory != NULL && fill (directory, archive, NULL, &watch, NULL, error);
    ecfs_past_close (directory);
    if (filled)
        return log.entries;
    json_array_unref (log.entries);
    return NULL;
}

char *ecfs_log (const char *archive_dir, const char *path, GError **error)
{
    JsonArray *entries = ecfs_past_log (archive_dir, path, error);
    if (entries == NULL)
        return NULL;
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_ARRAY);
    json_node_take_array (node, entries);
    return json_to_string (node, TRUE);
}
