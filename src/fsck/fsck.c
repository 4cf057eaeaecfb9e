/* Checking an archive: its catalog, then its objects batch by batch. */
#include "archive/catalog_place.h"
#include "archive/gaps.h"
#include "archive/keys.h"
#include "archive/lineage.h"
#include "archive/places_gone.h"
#include "archive/places_of.h"
#include "fsck/fsck_priv.h"
#include "verbs/recode.h"
#include "verbs/status.h"

#define BATCH         8192 /* objects */
#define STRANGERS     8192 /* of them at a time */
#define RULES_AT_ONCE 1024

/* By a connection of its own: the check may take a while, and others work with the archive's. */
static bool check_catalog (EcfsFsckRun *self, GError **error)
{
    ecfs_fsck_enter (self, "catalog", 0);
    g_autofree char *place =
        ecfs_catalog_place (ecfs_archive_directory (self->archive), ecfs_archive_config (self->archive), error);
    EcfsCatalog *catalog = place == NULL ? NULL : ecfs_catalog_open (place, ECFS_CATALOG_READONLY, error);
    bool good = catalog != NULL && ecfs_catalog_check (catalog, ecfs_fsck_tell_problem, self, &self->is_sound, error);
    return ecfs_catalog_close (catalog, good ? error : NULL) && good;
}

/* Nothing can be stored or repaired until it has ended. */
static bool check_key (EcfsFsckRun *self, GError **error)
{
    EcfsKeysState state;
    if (!ecfs_keys_state (ecfs_archive_catalog (self->archive), &state, error))
        return false;
    if (state == ECFS_KEYS_BEGUN)
        ecfs_fsck_tell_problem (self, 0, "'ecfs key init' was interrupted, and nothing can be stored: run it again");
    if (state == ECFS_KEYS_ROTATING)
        ecfs_fsck_tell_problem (self, 0, "'ecfs key rotate' was interrupted, and nothing can be stored: run it again");
    return true;
}

/* Nothing can be stored below a directory whose rule makes no sense, or leaves too few endpoints. What it names may be
 * gone. */
static bool check_rules (EcfsFsckRun *self, GError **error)
{
    uint64_t after = 0;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    for (bool more = true; more;) {
        g_autoptr (GArray) inodes =
            ecfs_catalog_xattr_inodes (catalog, ECFS_PLACES_ATTRIBUTE, after, RULES_AT_ONCE, error);
        if (inodes == NULL)
            return false;
        for (guint i = 0; i < inodes->len; i++) {
            g_autoptr (GError) why = NULL;
            after = g_array_index (inodes, uint64_t, i);
            g_autofree char *gone = ecfs_archive_rule_gone (self->archive, after);
            bool serves = ecfs_archive_check_rules_of (self->archive, after, &why);
            g_autofree char *both = gone == NULL || serves ? NULL : g_strdup_printf ("%s; %s", why->message, gone);
            if (gone != NULL || !serves)
                ecfs_fsck_tell_problem (self, after, both != NULL ? both : gone != NULL ? gone : why->message);
        }
        more = inodes->len == RULES_AT_ONCE;
    }
    return true;
}

/* Objects that paths name */

typedef struct Collecting {
    EcfsFsckRun *run;
    GError *error;
} Collecting;

static void collect (void *user, const EcfsEntry *entry)
{
    Collecting *self = user;
    g_autoptr (GPtrArray) objects =
        self->error != NULL ? NULL : ecfs_recode_objects (self->run->archive, entry->inode, &self->error);
    for (guint i = 0; objects != NULL && i < objects->len && self->error == NULL; i++) {
        const EcfsObjectRow *object = g_ptr_array_index (objects, i);
        (void) ecfs_spool_name (self->run->spool, &object->uuid, object->id, &self->error); /* the error tells */
    }
    if (g_error_matches (self->error, ECFS_ERROR, ENOENT)) /* deleted meanwhile */
        g_clear_error (&self->error);
    if (g_error_matches (self->error, ECFS_ERROR, EBADMSG)) {
        ecfs_fsck_tell_problem (self->run, entry->inode, self->error->message);
        g_clear_error (&self->error);
    }
}

static bool collect_named (EcfsFsckRun *self, GError **error)
{
    Collecting collecting = {.run = self};
    bool good = true;
    self->is_named = true;
    for (const char *const *path = self->what->paths; good && *path != NULL; path++)
        good = ecfs_recode_walk (self->archive, *path, collect, &collecting, error);
    if (collecting.error == NULL)
        return good;
    if (good)
        g_propagate_error (error, collecting.error);
    else
        g_error_free (collecting.error);
    return false;
}

/* NULL: the catalog says nonsense about it, which is told. */
static const EcfsCodec *codec_of (EcfsFsckRun *self, const EcfsObjectRow *object)
{
    g_autoptr (GError) error = NULL;
    const EcfsCodec *codec = ecfs_archive_codec (self->archive, object->code, &error);
    uint64_t ino;
    if (codec != NULL)
        return codec;
    g_autofree char *text = g_strdup_printf ("object %" G_GINT64_FORMAT ": %s", object->id, error->message);
    ecfs_fsck_tell_problem (
        self, ecfs_catalog_object_file (ecfs_archive_catalog (self->archive), object->id, &ino, NULL) ? ino : 0, text);
    return NULL;
}

/* Stripes that it should have and the catalog has none of. An object that makes no sense is told, and left as it is. */
static bool spool_absent (EcfsFsckRun *self, const EcfsObjectRow *object, GError **error)
{
    bool named[ECFS_CODEC_MAX_N] = {0};
    const EcfsCodec *codec = codec_of (self, object);
    for (guint i = 0; i < object->stripes->len; i++)
        named[g_array_index (object->stripes, EcfsStripeRow, i).index] = true;
    for (unsigned i = 0; codec != NULL && i < ecfs_codec_n (codec); i++) {
        const EcfsSpoolFault fault = {.index = i, .fault = ECFS_STRIPE_ABSENT};
        if (!named[i] && !ecfs_spool_add_fault (self->spool, &object->uuid, object->id, &fault, error))
            return false;
    }
    return true;
}

static void note_known (EcfsFsckRun *self, EcfsCheckedStripe *checked, const GArray *known)
{
    for (guint i = 0; i < known->len; i++) {
        const EcfsRepairRow *row = &g_array_index (known, EcfsRepairRow, i);
        if (checked->fault != ECFS_STRIPE_FINE || row->index != checked->stripe->index ||
            row->instance != checked->stripe->instance)
            continue;
        if (row->gone && !row->lies) {
            const EcfsSighting sighting = {.object = checked->object->uuid,
                                           .index = checked->stripe->index,
                                           .instance = checked->stripe->instance,
                                           .back = true};
            g_array_append_val (self->back, sighting);
            continue;
        }
        checked->fault = row->lies ? ECFS_STRIPE_FORGED : ECFS_STRIPE_DAMAGED; /* what is there and is not to be used */
        checked->text = g_strdup (row->reason);
    }
}

/* What readers met and queued for repair: where all seems to be there, its bytes are wrong, and not read for that. What
 * was gone and is there again is as good as any other. */
static bool note_queued (EcfsFsckRun *self, GArray *stripes, GError **error)
{
    const EcfsObjectRow *object = NULL;
    g_autoptr (GArray) known = NULL;
    for (guint i = 0; i < stripes->len; i++) {
        GError *why = NULL;
        EcfsCheckedStripe *checked = &g_array_index (stripes, EcfsCheckedStripe, i);
        if (object != checked->object) {
            object = checked->object;
            g_clear_pointer (&known, g_array_unref);
            known = ecfs_catalog_repairs (ecfs_archive_catalog (self->archive), object->id, &why);
        }
        if (why != NULL && !ecfs_fsck_survives (self, why, error))
            return false;
        if (known != NULL)
            note_known (self, checked, known);
    }
    return true;
}

static bool note_batch (EcfsFsckRun *self, const EcfsCheckBatch *batch, GError **error)
{
    for (guint i = 0; i < batch->stripes->len; i++) {
        size_t position = g_array_index (batch->stripes, EcfsCheckedStripe, i).position;
        self->endpoints[MIN (position, self->n_endpoints)].n_stripes++;
    }
    for (guint i = 0; i < batch->objects->len; i++)
        if (!spool_absent (self, g_ptr_array_index (batch->objects, i), error))
            return false;
    if (!ecfs_fsck_note_crowded (self, batch->objects, error))
        return false;
    for (guint i = 0; i < batch->objects->len; i++) {
        const EcfsObjectRow *object = g_ptr_array_index (batch->objects, i);
        const bool is_past = ecfs_object_is_past (object->id);
        *(is_past ? &self->sums.n_past_objects : &self->sums.n_objects) += 1;
        *(is_past ? &self->sums.n_past_stripes : &self->sums.n_stripes) += object->stripes->len;
        self->progress.n_done += !is_past;
    }
    return note_queued (self, batch->stripes, error) && ecfs_fsck_spool (self, batch->stripes, error);
}

/* The next strangers of a batch behind @after, which moves on. False: the spool. */
static bool next_strangers (EcfsFsckRun *self, EcfsSpoolOrphan *after, GArray *strangers, GError **error)
{
    int found = 1;
    g_array_set_size (strangers, 0);
    while (strangers->len < STRANGERS && (found = ecfs_spool_next_orphan (self->spool, after, error)) == 1) {
        const EcfsStranger stranger = {.position = (size_t) after->endpoint,
                                       .object = after->uuid,
                                       .index = (uint16_t) after->index,
                                       .instance = after->instance,
                                       .size = after->size,
                                       .mtime_s = after->mtime_s};
        g_array_append_val (strangers, stranger);
    }
    return found >= 0;
}

/* False without @error: as below. */
static bool note_strangers (EcfsFsckRun *self, EcfsCheckBatch *batch, GError **error)
{
    EcfsSpoolOrphan after = {.kind = ECFS_SPOOL_STRANGER, .endpoint = -1};
    g_autoptr (GArray) strangers = g_array_new (FALSE, FALSE, sizeof (EcfsStranger));
    for (bool more = true; more;) {
        if (!next_strangers (self, &after, strangers, error))
            return false;
        more = strangers->len == STRANGERS;
        if (!ecfs_check_strangers (batch, strangers, error) || !ecfs_fsck_note_orphans (self, strangers, error))
            return false;
    }
    return ecfs_spool_clear_orphans (self->spool, ECFS_SPOOL_STRANGER, error);
}

/* False without @error: it is to end, and this batch does not count. */
static bool check_batch (EcfsFsckRun *self, EcfsCheckBatch *batch, GError **error)
{
    return ecfs_check_presence (batch, error) && ecfs_check_gone (batch) && note_batch (self, batch, error) &&
           (batch->strangers == NULL || note_strangers (self, batch, error));
}

/* *after moves on; *ret_more: there may be others. */
static bool check_next (EcfsFsckRun *self, EcfsUuid *after, bool *ret_more, GError **error)
{
    EcfsCheckBatch batch = {.archive = self->archive, .after = *after, .tick = ecfs_fsck_tick, .user = self};
    g_autoptr (GPtrArray) objects = ecfs_fsck_objects (self, after, BATCH, ret_more, error);
    if (objects == NULL)
        return false;
    g_autoptr (GArray) stripes = ecfs_fsck_stripes (self, objects);
    batch.objects = objects;
    batch.stripes = stripes;
    /* Where the catalog cannot be read on, nothing is known to be unknown to it. */
    batch.strangers = self->is_named || !self->is_sound ? NULL : self->spool;
    batch.is_first = ecfs_uuid_is_nil (&batch.after);
    batch.is_last = !*ret_more;
    batch.last = *after;
    batch.asked_us = self->asked_us;
    bool checked = check_batch (self, &batch, error);
    self->asked_us = batch.asked_us;
    return checked;
}

static bool count_objects (EcfsFsckRun *self, uint64_t *ret_n, GError **error)
{
    EcfsTotals totals = {0};
    GError *why = NULL;
    if (self->what->paths != NULL)
        return collect_named (self, error) && ecfs_spool_count_named (self->spool, ret_n, error);
    if (!ecfs_catalog_totals (ecfs_archive_catalog (self->archive), &totals, &why) &&
        !ecfs_fsck_survives (self, why, error))
        return false;
    *ret_n = totals.n_objects;
    return true;
}

static bool check_objects (EcfsFsckRun *self, GError **error)
{
    uint64_t n_objects;
    EcfsUuid after = {.bytes = {0}};
    if (!ecfs_archive_past_until (self->archive, &self->past_until_ns, error) ||
        !count_objects (self, &n_objects, error))
        return false;
    ecfs_fsck_enter (self, "objects", n_objects);
    ecfs_archive_probe (self->archive, ECFS_FSCK_PATIENCE_US);
    for (bool more = true; more && !self->is_late;) {
        GError *why = NULL;
        if (!check_next (self, &after, &more, &why) && why != NULL) {
            g_propagate_error (error, why);
            return false;
        }
        if (!ecfs_fsck_goes_on (self, error))
            return false;
    }
    self->sums.is_cut = self->is_late;
    self->is_walked = true;
    return true;
}

/* What an old copy lacks is not lost, and what it has too much may be in use: nothing can be repaired from there. */
static bool check_lineage (EcfsFsckRun *self, GError **error)
{
    bool changes =
        (self->what->flags & (ECFS_FSCK_REPAIR | ECFS_FSCK_PRUNE)) != 0 && (self->what->flags & ECFS_FSCK_DRY) == 0;
    if (changes && !ecfs_archive_check_writable (self->archive, error))
        return false;
    ecfs_archive_ask_lineage (self->archive, ecfs_now_us () + ECFS_FSCK_PATIENCE_US);
    if (ecfs_archive_lineage (self->archive) == NULL || !ecfs_lineage_is_stale (ecfs_archive_lineage (self->archive)))
        return true;
    g_autofree char *trouble = ecfs_archive_trouble (self->archive);
    if (changes)
        return ecfs_fail (error, ESTALE, "%s", trouble);
    g_warning ("%s", trouble);
    return true;
}

/* Whether all stripes were looked at, and each is there now. */
static bool is_whole (const EcfsFsckRun *self)
{
    const EcfsFsckSums *sums = &self->sums;
    return (self->what->flags & ECFS_FSCK_REPAIR) != 0 && (self->what->flags & ECFS_FSCK_DRY) == 0 && self->is_sound &&
           !self->is_named && !sums->is_cut && sums->n_unknown == 0 && sums->n_journals_left == 0 &&
           sums->results[ECFS_DAMAGE_FOUND] + sums->results[ECFS_DAMAGE_LEFT] + sums->results[ECFS_DAMAGE_UNKNOWN] == 0;
}

/* What a mount has noted since it began, by @gaps, is for the next check; what this process has itself is not. */
static void forget_gaps (const EcfsFsckRun *self, const char *gaps)
{
    bool alone = self->writer != NULL && !self->writer->mounted;
    g_autofree char *now = alone ? ecfs_gaps_all (self->archive) : g_strdup (gaps);
    ecfs_gaps_forget (self->archive, now);
}

static bool run (EcfsFsckRun *self, GError **error)
{
    bool deep = (self->what->flags & ECFS_FSCK_DEEP) != 0;
    g_autofree char *gaps = ecfs_gaps_all (self->archive);
    if (!check_catalog (self, error) || !check_key (self, error) || !check_rules (self, error) ||
        !check_lineage (self, error) || !ecfs_fsck_begin_orphans (self, error) || !check_objects (self, error))
        return false;
    ecfs_fsck_end_orphans (self);
    if (deep && !ecfs_fsck_deep (self, error))
        return false;
    self->deadline_us = 0; /* what was found is told, and repaired */
    if (!ecfs_fsck_repair (self, error) || !ecfs_fsck_move_apart (self, error) || !ecfs_fsck_journal (self, error))
        return false;
    ecfs_fsck_store_repairs (self);
    if (is_whole (self))
        forget_gaps (self, gaps);
    return ecfs_fsck_export (self, error) && ecfs_fsck_prune (self, error);
}

static void run_clear (EcfsFsckRun *self)
{
    for (size_t i = 0; i <= self->n_endpoints; i++)
        g_free (self->silences[i]);
    g_free (self->silences);
    g_free (self->endpoints);
    g_array_unref (self->back);
    g_array_unref (self->left);
    ecfs_spool_free (self->spool);
    ecfs_spool_free (self->crowded);
    ecfs_scrub_close (self->seen);
    ecfs_mutex_clear (&self->pace.lock);
    if (self->writer != self->ecfs)
        ecfs_close (self->writer);
}

char *ecfs_fsck (Ecfs *ecfs, const EcfsFsck *what, GError **error)
{
    EcfsFsckRun self = {.ecfs = ecfs, .archive = ecfs->archive, .what = what, .begun_ns = g_get_real_time () * 1000};
    self.pace = (EcfsReadPace){.bytes_per_s = what->bytes_per_s};
    if (what->max_time_us > 0)
        self.deadline_us = ecfs_now_us () + what->max_time_us;
    ecfs_mutex_init (&self.pace.lock);
    self.n_endpoints = ecfs_archive_n_endpoints (self.archive);
    self.endpoints = g_new0 (EcfsFsckEndpoint, self.n_endpoints + 1);
    self.silences = g_new0 (char *, self.n_endpoints + 1);
    self.back = ecfs_sightings_array_new ();
    self.left = ecfs_sightings_array_new ();
    self.spool = ecfs_spool_new (error);
    self.crowded = self.spool == NULL ? NULL : ecfs_spool_new (error);
    char *summary = NULL;
    if (self.crowded != NULL && run (&self, error)) {
        self.sums.checked_bytes = self.pace.bytes;
        summary = ecfs_fsck_tell_summary (&self);
    }
    run_clear (&self);
    return summary;
}
