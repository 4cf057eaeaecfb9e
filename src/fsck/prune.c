/* Orphans: told, and removed where that is wanted and they are old. */
#include "upkeep/prune.h"
#include "fsck/fsck_priv.h"

#define ORPHANS_TOLD 100 /* of each endpoint */
#define OBJECTS_TOLD 100 /* that a recovery left alone */
#define NS_PER_S     G_GINT64_CONSTANT (1000000000)

/* It is needed for endpoints that tell no times alone: what these have counts as new then, and stays. */
static void stop_seeing (EcfsFsckRun *self, GError *why)
{
    g_warning ("%s; orphans on endpoints that list no times stay", why->message);
    g_error_free (why);
    g_clear_pointer (&self->seen, ecfs_scrub_close);
}

/* How long it has been there: by what its endpoint lists, or where that tells no times, since it was seen first. */
static int64_t age_of (EcfsFsckRun *self, const EcfsStranger *orphan)
{
    GError *why = NULL;
    int64_t first_ns = self->begun_ns;
    const EcfsScrubOrphan one = {.endpoint = ecfs_archive_endpoint (self->archive, orphan->position)->id,
                                 .object = orphan->object,
                                 .index = orphan->index,
                                 .instance = orphan->instance};
    if (orphan->mtime_s > 0)
        return self->begun_ns / NS_PER_S - orphan->mtime_s;
    if (self->seen != NULL && !ecfs_scrub_see_orphan (self->seen, &one, self->begun_ns, &first_ns, &why)) {
        stop_seeing (self, why);
        return 0;
    }
    return (self->begun_ns - first_ns) / NS_PER_S;
}

/* It may be good where that of its object is damaged. */
static bool note_spare (EcfsFsckRun *self, EcfsSpoolOrphan orphan, GError **error)
{
    bool known;
    orphan.kind = ECFS_SPOOL_SPARE;
    return (self->what->flags & ECFS_FSCK_REPAIR) == 0 ||
           (ecfs_catalog_object_known (ecfs_archive_catalog (self->archive), &orphan.uuid, &known, error) &&
            (!known || ecfs_spool_add_orphan (self->spool, &orphan, error)));
}

/* Where nothing is deleted, what nobody uses is no mistake. */
static bool is_retained (const EcfsFsckRun *self, const EcfsStranger *orphan)
{
    EcfsEndpoint *endpoint = ecfs_archive_endpoint (self->archive, orphan->position)->endpoint;
    return endpoint != NULL && ecfs_endpoint_retain_us (endpoint) != ECFS_RETAIN_NOT;
}

bool ecfs_fsck_note_orphans (EcfsFsckRun *self, const GArray *orphans, GError **error)
{
    for (guint i = 0; i < orphans->len; i++) {
        const EcfsStranger *orphan = &g_array_index (orphans, EcfsStranger, i);
        const EcfsSpoolOrphan spooled = {.kind = ECFS_SPOOL_ORPHAN,
                                         .endpoint = ecfs_archive_endpoint (self->archive, orphan->position)->id,
                                         .uuid = orphan->object,
                                         .index = orphan->index,
                                         .instance = orphan->instance,
                                         .size = orphan->size};
        if (is_retained (self, orphan)) {
            if (!note_spare (self, spooled, error))
                return false;
            continue;
        }
        EcfsFsckEndpoint *at = &self->endpoints[orphan->position];
        int64_t age_s = age_of (self, orphan);
        bool is_old = self->what->prune_age_us > 0 && age_s >= self->what->prune_age_us / G_USEC_PER_SEC;
        if (at->n_orphans++ < ORPHANS_TOLD)
            ecfs_fsck_tell (self, ecfs_fsck_tell_orphan (self->archive, orphan, age_s));
        at->orphan_bytes += orphan->size;
        self->sums.n_orphans++;
        self->sums.orphan_bytes += orphan->size;
        self->sums.n_old_orphans += is_old;
        self->sums.old_orphan_bytes += is_old ? orphan->size : 0;
        if ((is_old && !ecfs_spool_add_orphan (self->spool, &spooled, error)) || !note_spare (self, spooled, error))
            return false;
    }
    return true;
}

bool ecfs_fsck_begin_orphans (EcfsFsckRun *self, GError **error)
{
    bool dry = (self->what->flags & ECFS_FSCK_DRY) != 0;
    if (!(self->what->flags & ECFS_FSCK_PRUNE) || dry)
        return true;
    GError *why = NULL;
    self->seen = ecfs_scrub_open (ecfs_archive_directory (self->archive), true, &why);
    if (self->seen != NULL)
        return true;
    if (why->code == EALREADY) { /* two at a time would be a mistake */
        g_propagate_error (error, why);
        return false;
    }
    stop_seeing (self, why);
    return true;
}

void ecfs_fsck_end_orphans (EcfsFsckRun *self)
{
    GError *why = NULL;
    if (self->seen != NULL && ((!self->sums.is_cut && !ecfs_scrub_forget_orphans (self->seen, self->begun_ns, &why)) ||
                               !ecfs_scrub_keep (self->seen, &why)))
        stop_seeing (self, why);
    g_clear_pointer (&self->seen, ecfs_scrub_close);
}

/* Of one endpoint, as many as go at once; @after moves on. 0 at the end. */
static int next_some (EcfsFsckRun *self, EcfsSpoolOrphan *after, EcfsPruneStripe *stripes, int64_t *ret_endpoint,
                      GError **error)
{
    int n = 0, found = 1;
    while (n < ECFS_PRUNE_MOST) {
        EcfsSpoolOrphan next = *after;
        found = ecfs_spool_next_orphan (self->spool, &next, error);
        if (found != 1 || (n > 0 && next.endpoint != *ret_endpoint))
            break;
        *ret_endpoint = next.endpoint;
        stripes[n++] = (EcfsPruneStripe){
            .object = next.uuid, .index = (uint16_t) next.index, .instance = next.instance, .size = next.size};
        *after = next;
    }
    return found < 0 ? -1 : n;
}

/* What a recovery left alone is kept apart. */
static bool prune_some (EcfsFsckRun *self, const EcfsSpoolOrphan *like, EcfsPruneStripe *stripes, size_t n,
                        GError **error)
{
    g_autoptr (GError) why = NULL;
    bool unrecovered = like->kind == ECFS_SPOOL_UNRECOVERED;
    bool good =
        self->writer->mounted
            ? ecfs_prune_mounted (ecfs_archive_directory (self->archive), like->endpoint, stripes, n, unrecovered, &why)
            : ecfs_prune_here (self->writer->archive, like->endpoint, stripes, n, unrecovered, &why);
    if (!good)
        ecfs_fsck_tell (self, ecfs_fsck_tell_prune (why->message));
    for (size_t i = 0; i < n; i++) {
        const EcfsSpoolOrphan left = {.kind = ECFS_SPOOL_UNRECOVERED,
                                      .endpoint = like->endpoint,
                                      .uuid = stripes[i].object,
                                      .index = stripes[i].index,
                                      .instance = stripes[i].instance,
                                      .size = stripes[i].size};
        self->sums.n_pruned += stripes[i].removed;
        self->sums.pruned_bytes += stripes[i].removed ? stripes[i].size : 0;
        if (!stripes[i].is_unrecovered)
            continue;
        self->sums.n_unrecovered++;
        if (!ecfs_spool_add_orphan (self->spool, &left, error))
            return false;
    }
    return true;
}

static bool prune_kind (EcfsFsckRun *self, EcfsSpoolKind kind, GError **error)
{
    EcfsPruneStripe stripes[ECFS_PRUNE_MOST];
    EcfsSpoolOrphan after = {.kind = kind}, like = {.kind = kind};
    int n;
    while ((n = next_some (self, &after, stripes, &like.endpoint, error)) > 0) {
        if (!prune_some (self, &like, stripes, (size_t) n, error))
            return false;
        self->progress.n_done += (uint64_t) n;
        if (!ecfs_fsck_goes_on (self, error))
            return false;
    }
    return n == 0;
}

/* They may be all that there is of a file: they go only when so many were seen before, and looked at. */
static bool prune_unrecovered (EcfsFsckRun *self, GError **error)
{
    EcfsSpoolObject object = {.n_stripes = 0};
    uint64_t n_meant = self->what->prune_unrecovered;
    int found = 1;
    if (n_meant > 0 && n_meant == self->sums.n_unrecovered)
        return prune_kind (self, ECFS_SPOOL_UNRECOVERED, error);
    for (unsigned i = 0; i < OBJECTS_TOLD &&
                         (found = ecfs_spool_next_object (self->spool, ECFS_SPOOL_UNRECOVERED, &object, error)) == 1;
         i++)
        ecfs_fsck_tell (self, ecfs_fsck_tell_unrecovered (&object));
    if (n_meant > 0)
        ecfs_fsck_tell (
            self, ecfs_fsck_tell_prune (
                      "there are more or fewer unrecovered stripes than were to be removed: none of them is removed"));
    return found >= 0;
}

static bool is_wanted (EcfsFsckRun *self)
{
    if (!(self->what->flags & ECFS_FSCK_PRUNE) || (self->what->flags & ECFS_FSCK_DRY) || self->sums.n_old_orphans == 0)
        return false;
    if (self->sums.n_problems > 0 || !self->is_sound) { /* what its rows hide is no orphan */
        ecfs_fsck_tell (self, ecfs_fsck_tell_prune ("nothing is removed while the catalog has problems"));
        return false;
    }
    return self->what->confirm_prune == NULL ||
           self->what->confirm_prune (self->what->user, self->sums.n_old_orphans, self->sums.old_orphan_bytes);
}

bool ecfs_fsck_prune (EcfsFsckRun *self, GError **error)
{
    if (!is_wanted (self))
        return true;
    ecfs_fsck_enter (self, "prune", self->sums.n_old_orphans);
    if (!ecfs_fsck_open_writer (self, error))
        return false;
    return prune_kind (self, ECFS_SPOOL_ORPHAN, error) && prune_unrecovered (self, error);
}
