#include "recover/follow.h"

#include "archive/cached.h"
#include "catalog/journal.h"
#include "recover/recover_priv.h"

#include <unistd.h>

#define NEXT_NAME  "catalog-next.sqlite"
#define AGAIN_US   (5 * G_USEC_PER_SEC)  /* until a catalog is made anew that could not be made */
#define READMIT_US (20 * G_USEC_PER_SEC) /* between looks for endpoints that were left out */

struct EcfsFollow {
    EcfsArchive *archive; /* borrowed */
    char *path;           /* of its catalog, … */
    char *next_path;      /* … and of what takes its place */
    EcfsRecover what;
    EcfsRecovered sums;
    EcfsRecovering *reading; /* its catalog is the one at path; NULL: that is to be made anew */
    int64_t readmit_us;      /* when endpoints are looked for again */
    GError *failure;         /* why it could not be made anew; NULL: it could, … */
    int64_t again_us;        /* … and when that is tried again */
    EcfsFollowed state;
};

EcfsFollow *ecfs_follow_begin (EcfsArchive *archive, GError **error)
{
    static const char *const nothing[] = {NULL};
    const char *directory = ecfs_archive_directory (archive);
    if (ecfs_archive_check_writable (archive, NULL)) {
        (void) !ecfs_fail (error, EINVAL,
                           "%s is for writing, so its changes need not be followed: 'ecfs recover --read-only' makes a "
                           "directory, here or on another machine, that follows",
                           directory);
        return NULL;
    }
    if (!ecfs_archive_take_lock (archive, error))
        return NULL;
    EcfsFollow *self = g_new0 (EcfsFollow, 1);
    self->archive = archive;
    self->path = g_build_filename (directory, ECFS_CATALOG_NAME, NULL);
    self->next_path = g_build_filename (directory, NEXT_NAME, NULL);
    self->what = (EcfsRecover){.directory = directory,
                               .config = ecfs_archive_config (archive),
                               .given = nothing,
                               .archive = ecfs_catalog_archive (ecfs_archive_catalog (archive)),
                               .keys = ecfs_archive_keys (archive),
                               .read_only = true,
                               .names_only = true,
                               .without_silent = true};
    return self;
}

/* The catalog */

static void remove_next (const EcfsFollow *self)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < G_N_ELEMENTS (suffixes); i++) {
        g_autofree char *name = g_strconcat (self->next_path, suffixes[i], NULL);
        (void) unlink (name); /* what is there fails the next */
    }
}

static void end_reading (EcfsFollow *self, EcfsRecovering *reading)
{
    if (reading == NULL)
        return;
    ecfs_recover_close (reading);
    (void) ecfs_catalog_close (reading->catalog, NULL); /* it is read as it is, or made anew */
    g_clear_pointer (&reading->seeds, g_ptr_array_unref);
    g_clear_pointer (&reading->applied, g_ptr_array_unref);
    g_free (reading);
    ecfs_recovered_clear (&self->sums);
}

/* The names of the configuration, also of endpoints that were not there when the catalog was made. */
static bool name_endpoints (EcfsRecovering *reading, GError **error)
{
    if (!ecfs_recover_name_places (reading, error))
        return false;
    for (guint i = 0; i < reading->seeds->len; i++) {
        int64_t id;
        EcfsEndpointState state;
        const EcfsEndpointRow *row = g_ptr_array_index (reading->seeds, i);
        bool is_given = ecfs_config_endpoint (reading->what->config, row->name) != NULL;
        for (size_t j = 0; j < reading->n_places; j++)
            is_given = is_given && !ecfs_uuid_equal (&reading->places[j].marker.endpoint, &row->uuid);
        if (is_given && !ecfs_restore_endpoint (reading->restore, &row->uuid, row->name, &id, &state, error))
            return false;
    }
    return true;
}

/* Makes what was applied durable, and seen by who has the catalog open. */
static bool settle (EcfsRecovering *reading, GError **error)
{
    return ecfs_restore_forget_deletions (reading->restore, error) &&
           ecfs_restore_finish (reading->restore, reading->epoch, reading->sums->sequence, error) &&
           ecfs_catalog_barrier (reading->catalog, error);
}

/* @reading is of the catalog at next_path, which becomes the one at path. */
static bool take_place (EcfsFollow *self, EcfsRecovering *reading, GError **error)
{
    if (!ecfs_catalog_close (g_steal_pointer (&reading->catalog), error) ||
        !ecfs_catalog_replace (self->path, self->next_path, error))
        return false;
    reading->catalog = ecfs_catalog_open (self->path, 0, error);
    if (reading->catalog == NULL)
        return false;
    ecfs_restore_move (reading->restore, reading->catalog);
    return true;
}

static bool make_next (EcfsFollow *self, EcfsRecovering *reading, GError **error)
{
    ecfs_recover_hear_markers (reading);
    return ecfs_recover_make_catalog (reading, self->next_path, error) && name_endpoints (reading, error) &&
           ecfs_catalog_keep_setting (reading->catalog, ECFS_READ_ONLY_KEY, "yes", error) && settle (reading, error);
}

/* Numbers of endpoints stay what they are: who has the catalog open remembers them. */
static bool make_anew (EcfsFollow *self, GError **error)
{
    end_reading (self, g_steal_pointer (&self->reading));
    remove_next (self);
    self->sums = (EcfsRecovered){.sequence = 0};
    EcfsRecovering *reading = g_new0 (EcfsRecovering, 1);
    *reading = (EcfsRecovering){.what = &self->what,
                                .sums = &self->sums,
                                .directory = (char *) self->what.directory,
                                .archive = *self->what.archive};
    reading->seeds = ecfs_catalog_endpoints (ecfs_archive_catalog (self->archive), error);
    bool made = reading->seeds != NULL && ecfs_recover_begin (reading, error) && make_next (self, reading, error);
    g_autoptr (GArray) replaced = made ? ecfs_archive_cached_replaced (self->archive, reading->catalog) : NULL;
    made = made && take_place (self, reading, error);
    if (made) {
        ecfs_archive_heed_distrust (self->archive);
        ecfs_archive_forget_replaced (self->archive, replaced);
    }
    if (made && self->sums.sequence == 0)
        made = ecfs_fail (error, ENOENT, "none of the endpoints that answer has a journal");
    if (made) {
        self->reading = reading;
        self->readmit_us = ecfs_now_us () + READMIT_US;
    } else {
        end_reading (self, reading);
    }
    remove_next (self);
    return made;
}

/* With all connections made anew: not all the time. */
static bool make_again (EcfsFollow *self, GError **error)
{
    if (self->failure == NULL || ecfs_now_us () >= self->again_us) {
        g_clear_error (&self->failure);
        if (make_anew (self, &self->failure))
            return true;
        self->again_us = ecfs_now_us () + AGAIN_US;
    }
    g_propagate_error (error, g_error_copy (self->failure));
    return false;
}

/* Endpoints */

static bool has_place (const EcfsRecovering *reading, const char *name)
{
    for (size_t i = 0; i < reading->n_places; i++)
        if (g_str_equal (reading->places[i].name, name))
            return true;
    return false;
}

/* One that was left out answers, and is the archive's. */
static void readmit (EcfsRecovering *reading, const EcfsConfigEndpoint *config)
{
    g_autoptr (GError) why = NULL;
    if (!ecfs_recover_open_place (reading, config, &why)) {
        g_info ("%s", why->message);
        return;
    }
    const EcfsUuid *uuid = NULL;
    EcfsRecoverPlace *place = &reading->places[reading->n_places - 1];
    for (guint i = 0; i < reading->seeds->len; i++) {
        const EcfsEndpointRow *row = g_ptr_array_index (reading->seeds, i);
        if (g_str_equal (row->name, place->name)) {
            uuid = &row->uuid;
            place->id = row->id;
        }
    }
    if (uuid == NULL || !ecfs_recover_examine (reading, place->endpoint, uuid, &place->marker, &why) ||
        !ecfs_uuid_equal (&place->marker.archive, &reading->archive) ||
        !ecfs_uuid_equal (&place->marker.endpoint, uuid)) {
        g_info ("endpoint %s is left out: %s", place->name, why != NULL ? why->message : "it is another's");
        ecfs_recover_drop_place (reading, reading->n_places - 1);
    }
}

/* `places` has room for all that are configured. */
static void readmit_all (EcfsFollow *self)
{
    const GPtrArray *endpoints = self->what.config->endpoints;
    if (ecfs_now_us () < self->readmit_us)
        return;
    for (guint i = 0; i < endpoints->len; i++) {
        const EcfsConfigEndpoint *config = g_ptr_array_index (endpoints, i);
        if (!has_place (self->reading, config->spec->name))
            readmit (self->reading, config);
    }
    self->readmit_us = ecfs_now_us () + READMIT_US;
}

static bool look_at_places (EcfsFollow *self, GError **error)
{
    EcfsRecovering *reading = self->reading;
    size_t n_asked = 0;
    readmit_all (self);
    for (size_t i = 0; i < reading->n_places; i++) {
        g_autoptr (GError) why = NULL;
        EcfsRecoverPlace *place = &reading->places[i];
        const EcfsUuid uuid = place->marker.endpoint;
        place->absent = !ecfs_recover_examine (reading, place->endpoint, &uuid, &place->marker, &why);
        if (place->absent)
            g_info ("%s", why->message);
        n_asked += !place->absent;
    }
    self->state.n_asked = n_asked;
    return n_asked > 0 || ecfs_fail (error, ENOTCONN, "none of the endpoints can be asked now");
}

/* Following */

static void note_state (EcfsFollow *self)
{
    const EcfsRecovering *reading = self->reading;
    size_t n_asked = 0;
    for (size_t i = 0; i < reading->n_places; i++)
        n_asked += !reading->places[i].absent && !reading->places[i].distrusted;
    self->state = (EcfsFollowed){.epoch = reading->journal_epoch,
                                 .sequence = self->sums.sequence,
                                 .time_ns = self->sums.time_ns,
                                 .n_asked = n_asked,
                                 .n_known = reading->n_known,
                                 .n_copies = reading->n_copies,
                                 .is_sure = n_asked + reading->n_copies > reading->n_known};
}

/* More was applied than is remembered. */
static bool is_full (const EcfsRecovering *reading)
{
    return reading->applied->len == ECFS_RECOVER_APPLIED_MOST;
}

static void find_endpoint (void *user, const EcfsJournalItem *item)
{
    bool *found = user;
    *found = *found || item->type == ECFS_JOURNAL_ENDPOINT || item->type == ECFS_JOURNAL_REMOVED;
}

/* *ret_lost: nothing continues what was applied. */
static bool go_on (EcfsFollow *self, bool *ret_lost, GError **error)
{
    EcfsRecovering *reading = self->reading;
    bool has_endpoints = false;
    reading->applied = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_journal_row_free);
    if (!look_at_places (self, error) || !ecfs_recover_go_on (reading, ret_lost, error))
        return false;
    ecfs_journal_each_item (reading->applied, find_endpoint, &has_endpoints);
    /* What the writer calls its endpoints is not what they are called here. */
    if ((has_endpoints || is_full (reading)) && !name_endpoints (reading, error))
        return false;
    return reading->applied->len == 0 || settle (reading, error);
}

bool ecfs_follow_step (EcfsFollow *self, GPtrArray **ret_rows, GError **error)
{
    bool lost = self->reading == NULL;
    *ret_rows = NULL;
    if (self->reading != NULL) {
        GError *why = NULL;
        bool went = go_on (self, &lost, &why), full = is_full (self->reading);
        g_autoptr (GPtrArray) rows = g_steal_pointer (&self->reading->applied);
        if (!went) {
            /* How much of it was applied is not known: what comes next does not continue it. */
            if (ecfs_errno (why) != ENOTCONN)
                end_reading (self, g_steal_pointer (&self->reading));
            g_propagate_error (error, why);
            return false;
        }
        if (rows->len > 0)
            ecfs_archive_heed_distrust (self->archive);
        if (full)
            ecfs_archive_forget_replaced (self->archive, NULL);
        else
            ecfs_archive_forget_followed (self->archive, rows);
        if (!lost && !full)
            *ret_rows = g_steal_pointer (&rows);
    }
    if (lost && !make_again (self, error))
        return false;
    note_state (self);
    return true;
}

const EcfsFollowed *ecfs_follow_state (const EcfsFollow *self)
{
    return &self->state;
}

void ecfs_follow_end (EcfsFollow *self)
{
    if (self == NULL)
        return;
    end_reading (self, self->reading);
    g_clear_error (&self->failure);
    g_free (self->path);
    g_free (self->next_path);
    g_free (self);
}
