/*
 * Taking an archive over in its own directory, which is an old copy: restored, cloned, rewound, or of a machine that
 * another one has taken it over from. A new directory is made inside of it as any recovery makes one. Then content
 * that only this directory has is kept as plain files, and what was made takes the place of what was there.
 *
 * A crash leaves the old copy, or one that this is run on again: until the catalog is exchanged, markers say that it
 * is an old one, and what was kept stays kept.
 */
#include "archive/common.h"
#include "archive/exchange.h"
#include "archive/keys.h"
#include "archive/lineage.h"
#include "ecfs/ecfs.h"
#include "staging/directory.h"
#include "util/io.h"
#include "verbs/init.h"
#include "verbs/recovery.h"
#include "verbs/unstored_keep.h"
#include "verbs/verbs.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define FRESH_NAME "taking-over" /* in the archive directory, while it is made */
#define KEPT_NAME  "not-stored"
#define LOOK_US    (10 * G_USEC_PER_SEC)

typedef struct Takeover {
    const EcfsRecovery *what;
    char *directory;
    char *fresh;
    char *kept;           /* where content goes that only this directory has */
    Ecfs *reading;        /* the old copy as it is; with its endpoints */
    EcfsArchive *archive; /* the same, with its lock; none of it is started */
    GPtrArray *unstored;
    guint n_kept;
    guint n_failed; /* that could not be kept */
} Takeover;

static void tell (Takeover *self, const char *text)
{
    if (self->what->tell != NULL)
        self->what->tell (self->what->user, text);
}

static void warn (void *user, const char *text)
{
    tell (user, text);
}

/* Whoever has the newest copy, or does not know, has nothing to take over. */
static bool check_old (Takeover *self, GError **error)
{
    ecfs_archive_ask_lineage (self->reading->archive, ecfs_now_us () + LOOK_US);
    EcfsLineage *lineage = ecfs_archive_lineage (self->reading->archive);
    g_autofree char *trouble = ecfs_archive_trouble (self->reading->archive);
    if (lineage != NULL && ecfs_lineage_is_stale (lineage)) {
        tell (self, trouble);
        return true;
    }
    if (self->what->force)
        return true;
    if (trouble != NULL)
        return ecfs_fail (error, EAGAIN, "%s", trouble);
    return ecfs_fail (
        error, EEXIST,
        "%s is the newest copy of the archive as far as its endpoints say: there is nothing to take over; "
        "'ecfs mount' mounts it",
        self->directory);
}

static bool open_old (Takeover *self, GError **error)
{
    self->reading = ecfs_open (self->directory, 0, error);
    if (self->reading == NULL)
        return ecfs_prefix (error, "take the archive over into a new directory, with --endpoint for each endpoint");
    if (!ecfs_archive_check_writable (self->reading->archive, error)) /* it was never the archive's own */
        return false;
    if (!ecfs_archive_is_held (self->directory) && !check_old (self, error))
        return false;
    self->archive = ecfs_archive_open (self->directory, ECFS_ARCHIVE_TAKES_OVER, error); /* EBUSY where it is mounted */
    if (self->archive == NULL)
        return false;
    ecfs_autofd staging_fd = ecfs_staged_open_dir (self->archive, "staging", error);
    if (staging_fd < 0 || !ecfs_staged_check_identity (self->archive, staging_fd, error))
        return false;
    self->unstored = ecfs_archive_unstored (self->archive, error);
    return self->unstored != NULL;
}

/* Its own endpoints; those that are given with a name of theirs, in their place; and others that are given. */
static EcfsConfig *make_config (const Takeover *self, GError **error)
{
    g_autofree char *text = ecfs_config_format (ecfs_archive_config (self->archive));
    g_autoptr (EcfsConfig) config = ecfs_config_parse (text, ECFS_CONFIG_NAME, error);
    const char *const *given = self->what->endpoints;
    for (; config != NULL && given != NULL && *given != NULL; given++) {
        g_autoptr (EcfsConfig) alone = ecfs_config_new ();
        if (!ecfs_config_add_endpoint_text (alone, *given, error))
            return NULL;
        const EcfsConfigEndpoint *one = g_ptr_array_index (alone->endpoints, 0);
        for (guint i = config->endpoints->len; i-- > 0;) {
            const EcfsConfigEndpoint *own = g_ptr_array_index (config->endpoints, i);
            if (strcmp (own->spec->name, one->spec->name) == 0)
                g_ptr_array_remove_index (config->endpoints, i);
        }
        if (!ecfs_config_add_endpoint_text (config, *given, error))
            return NULL;
    }
    if (config != NULL) /* it is made in a file; where its own is in a database, it goes there when all is exchanged */
        g_clear_pointer (&config->catalog, g_free);
    return config != NULL && ecfs_config_check (config, error) ? g_steal_pointer (&config) : NULL;
}

/* What was made is to be where the old catalog is. */
static bool name_place (const Takeover *self, GError **error)
{
    char *place = ecfs_archive_config (self->archive)->catalog;
    const EcfsConfigChange change = {.section = (char *) "archive", .key = (char *) "catalog", .value = place};
    g_autofree char *previous = g_build_filename (self->fresh, ECFS_CONFIG_NAME ECFS_CONFIG_PREVIOUS, NULL);
    if (place == NULL)
        return true;
    if (!ecfs_config_rewrite (self->fresh, &change, 1, error))
        return false;
    (void) unlink (previous); /* nobody had it; what stays keeps the directory, which is told */
    return true;
}

/* With its own key; where that is not the archive's any more, with what endpoints share. */
static char *recover (Takeover *self, GError **error)
{
    static const char *const nothing[] = {NULL};
    g_autoptr (EcfsConfig) config = make_config (self, error);
    g_autoptr (EcfsKeyRing) given = NULL;
    GError *why = NULL;
    if (config == NULL ||
        (self->what->key_file != NULL && (given = ecfs_keys_read (self->what->key_file, error)) == NULL))
        return NULL;
    const EcfsKeyRing *own = ecfs_archive_keys (self->archive);
    EcfsRecover base = {.config = config,
                        .given = nothing,
                        .archive = ecfs_catalog_archive (ecfs_archive_catalog (self->archive)),
                        .keys = given != NULL ? given : own,
                        .shown = self->directory,
                        .without_silent = true};
    char *report = ecfs_recover_as (self->fresh, self->what, &base, &why);
    if (report == NULL && given == NULL && own != NULL && ecfs_errno (why) == ENOKEY) {
        g_clear_error (&why);
        base.keys = NULL;
        report = ecfs_recover_as (self->fresh, self->what, &base, &why);
    }
    if (why != NULL)
        g_propagate_error (error, why);
    return report;
}

static bool keep_stored (Takeover *self, GError **error)
{
    g_autofree char *path = g_build_filename (self->fresh, ECFS_CATALOG_NAME, NULL);
    EcfsCatalog *newer = ecfs_catalog_open (path, 0, error); /* closed again, it has no log beside it */
    const EcfsUnstoredSink to = {.directory = self->kept, .warn = warn, .user = self};
    bool good = newer != NULL && ecfs_unstored_keep_stored (self->reading, newer, self->unstored, &to, &self->n_kept,
                                                            &self->n_failed, error);
    return ecfs_catalog_close (newer, good ? error : NULL) && good;
}

/* The old catalog goes, and with it what says where content is that nobody else knows of. */
static bool check_kept (const Takeover *self, GError **error)
{
    ecfs_autofd fd = self->n_kept == 0 ? -1 : open (self->kept, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (self->n_kept > 0 && (fd < 0 || syncfs (fd) != 0))
        return ecfs_fail_errno (error, errno, "%s: cannot be made durable", self->kept);
    return self->n_failed == 0 || self->what->force ||
           ecfs_fail (
               error, EIO,
               "%u files that only %s has cannot be kept now: make room there, see that the endpoints answer, and "
               "run this again; with --force these files are lost",
               self->n_failed, self->directory);
}

/* All that this directory had alone, in words. */
static bool write_list (const Takeover *self, GError **error)
{
    g_autoptr (GString) text = g_string_new (NULL);
    g_autofree char *path = g_strconcat (self->kept, ".txt", NULL);
    g_autofree char *parent = g_path_get_dirname (path);
    if (self->unstored->len == 0)
        return true;
    for (guint i = 0; i < self->unstored->len; i++) {
        const EcfsUnstored *one = g_ptr_array_index (self->unstored, i);
        g_string_append_printf (text, "%s\t%" G_GUINT64_FORMAT "\t%s\n", ecfs_unstored_word (one->kind), one->size,
                                one->path);
    }
    if (g_mkdir_with_parents (parent, 0700) != 0)
        return ecfs_fail_errno (error, errno, "%s: cannot make it", parent);
    return ecfs_replace_file (path, text->str, text->len, 0600, error);
}

/* The report of the recovery, with what was kept. */
static char *add_kept (const Takeover *self, const char *report)
{
    g_autoptr (JsonNode) node = json_from_string (report, NULL);
    JsonObject *facts = json_node_get_object (node);
    json_object_set_object_member (facts, "unstored", ecfs_unstored_facts (self->unstored));
    if (self->n_kept > 0) {
        json_object_set_int_member (facts, "kept", self->n_kept);
        json_object_set_string_member (facts, "kept_in", self->kept);
    }
    return json_to_string (node, TRUE);
}

static bool take_over (Takeover *self, char **ret_report, GError **error)
{
    ecfs_archive_empty_directory (self->fresh, true); /* of one that was killed */
    g_autofree char *report = recover (self, error);
    if (report == NULL)
        return false;
    if (!self->what->dry_run) {
        bool kept = keep_stored (self, error) &&
                    ecfs_unstored_keep_staged (self->archive, self->unstored, self->kept, &self->n_kept, error) &&
                    write_list (self, error) && check_kept (self, error) && name_place (self, error);
        ecfs_close (g_steal_pointer (&self->reading));
        if (!kept || !ecfs_archive_exchange (g_steal_pointer (&self->archive), self->fresh, error))
            return ecfs_prefix (error,
                                "the archive is taken over, but %s is not made current yet: run 'ecfs takeover' again",
                                self->directory);
    }
    *ret_report = add_kept (self, report);
    return true;
}

char *ecfs_takeover (const char *directory, const EcfsRecovery *what, GError **error)
{
    if (!ecfs_archive_is_one (directory))
        return ecfs_recover (directory, what, error);
    char *report = NULL;
    g_autoptr (GDateTime) now = g_date_time_new_now_local ();
    g_autofree char *stamp = g_date_time_format (now, "%Y-%m-%d-%H%M%S");
    EcfsRecovery plain = *what;
    plain.at = NULL;
    plain.read_only = false;
    Takeover self = {.what = &plain, .directory = g_canonicalize_filename (directory, NULL)};
    self.fresh = g_build_filename (self.directory, FRESH_NAME, NULL);
    self.kept = g_build_filename (self.directory, KEPT_NAME, stamp, NULL);
    if (ecfs_archive_exchange_rest (self.directory, error) && open_old (&self, error))
        (void) !take_over (&self, &report, error);
    ecfs_close (self.reading);
    if (self.archive != NULL)
        ecfs_archive_close (self.archive);
    if (self.unstored != NULL)
        g_ptr_array_unref (self.unstored);
    g_free (self.directory);
    g_free (self.fresh);
    g_free (self.kept);
    return report;
}
