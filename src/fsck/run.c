/* What all parts of a check do: saying how far it is and what is found, walking over objects, opening what repairs. */
#include "fsck/fsck_priv.h"
#include "verbs/status.h"

#define TICK_US 250000

bool ecfs_fsck_tick (void *user)
{
    EcfsFsckRun *self = user;
    int64_t now_us = ecfs_now_us ();
    self->is_late = self->is_late || (self->deadline_us > 0 && now_us >= self->deadline_us);
    if (!self->cancelled && self->what->progress != NULL && now_us >= self->next_us) {
        self->next_us = now_us + TICK_US;
        self->progress.bytes = ecfs_archive_wire_bytes (self->archive);
        if (self->writer != NULL && self->writer != self->ecfs)
            self->progress.bytes += ecfs_archive_wire_bytes (self->writer->archive);
        self->cancelled = !self->what->progress (self->what->user, &self->progress);
    }
    return !self->cancelled && !(self->is_late && self->deadline_us > 0);
}

bool ecfs_fsck_goes_on (EcfsFsckRun *self, GError **error)
{
    (void) ecfs_fsck_tick (self); /* remembers */
    return !self->cancelled || ecfs_fail (error, ECANCELED, "cancelled");
}

void ecfs_fsck_enter (EcfsFsckRun *self, const char *phase, uint64_t n_all)
{
    self->progress = (EcfsFsckProgress){.phase = phase, .n_all = n_all};
    self->next_us = 0;
    (void) ecfs_fsck_tick (self); /* remembers */
}

void ecfs_fsck_tell (const EcfsFsckRun *self, char *json)
{
    if (self->what->found != NULL)
        self->what->found (self->what->user, json);
    g_free (json);
}

void ecfs_fsck_tell_problem (void *user, uint64_t ino, const char *text)
{
    EcfsFsckRun *self = user;
    g_autofree char *path = ino == 0 ? NULL : ecfs_catalog_path (ecfs_archive_catalog (self->archive), ino);
    self->sums.n_problems++;
    ecfs_fsck_tell (self, ecfs_fsck_tell_catalog (path, text));
}

bool ecfs_fsck_may_repair (const EcfsFsckRun *self)
{
    return (self->what->flags & ECFS_FSCK_REPAIR) != 0 && (self->what->flags & ECFS_FSCK_DRY) == 0 && self->is_sound &&
           self->what->confirm == NULL;
}

static bool open_writer (EcfsFsckRun *self, unsigned flags, GError **error)
{
    if (self->writer != NULL && self->writer != self->ecfs && (flags & ECFS_OPEN_LEAD) != 0 && !self->writer->mounted &&
        !ecfs_archive_leads (self->writer->archive))
        ecfs_close (g_steal_pointer (&self->writer));
    if (self->writer != NULL)
        return true;
    self->writer = self->ecfs->writable
                       ? self->ecfs
                       : ecfs_open (ecfs_archive_directory (self->archive), ECFS_OPEN_WRITE | flags, error);
    if (self->writer == NULL)
        return false;
    if (!self->writer->mounted)
        ecfs_archive_probe (self->writer->archive, ECFS_FSCK_PATIENCE_US);
    return true;
}

/* What is open for reading only is opened for writing not before this: that alone changes the archive. */
bool ecfs_fsck_open_writer (EcfsFsckRun *self, GError **error)
{
    return open_writer (self, ECFS_OPEN_LEAD, error) && ecfs_check_leads (self->writer, error);
}

bool ecfs_fsck_open_noter (EcfsFsckRun *self, GError **error)
{
    return open_writer (self, 0, error);
}

/* Objects */

/* Objects are gone over more than once. */
static void problem_of_walk (void *user, uint64_t ino, const char *text)
{
    if (!((EcfsFsckRun *) user)->is_walked)
        ecfs_fsck_tell_problem (user, ino, text);
}

/* What damaged pages hide is told; the rest is checked. */
bool ecfs_fsck_survives (EcfsFsckRun *self, GError *why, GError **error)
{
    if (why->code != EBADMSG) {
        g_propagate_error (error, why);
        return false;
    }
    problem_of_walk (self, 0, why->message);
    self->is_sound = false;
    g_error_free (why);
    return true;
}

static GPtrArray *named_objects (EcfsFsckRun *self, EcfsUuid *after, size_t max, bool *ret_more, GError **error)
{
    g_autoptr (GPtrArray) objects = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_object_row_free);
    g_autoptr (GArray) named = ecfs_spool_named (self->spool, after, max, error);
    for (guint i = 0; named != NULL && i < named->len; i++) {
        GError *why = NULL;
        EcfsObjectRow *object =
            ecfs_catalog_object (ecfs_archive_catalog (self->archive), g_array_index (named, int64_t, i), &why);
        if (object != NULL)
            g_ptr_array_add (objects, object);
        else if (why->code == ENOENT)
            g_error_free (why);
        else if (!ecfs_fsck_survives (self, why, error))
            return NULL;
    }
    *ret_more = named != NULL && named->len == max;
    return named == NULL ? NULL : g_steal_pointer (&objects);
}

static int by_uuid (const void *a, const void *b)
{
    const EcfsObjectRow *const *left = a, *const *right = b;
    return memcmp (&(*left)->uuid, &(*right)->uuid, sizeof (EcfsUuid));
}

/* Adds what only the past has between @before and *after, or further where no others follow. Where there is too much of
 * it *after moves back, and what is behind that is left to the next batch. */
static bool add_past (EcfsFsckRun *self, GPtrArray *objects, const EcfsUuid *before, EcfsUuid *after, size_t max,
                      bool *ret_more, GError **error)
{
    GPtrArray *past =
        ecfs_catalog_past_by_uuid (ecfs_archive_catalog (self->archive), self->past_until_ns, before, max, error);
    if (past == NULL)
        return false;
    const bool is_cut = past->len == max, others_follow = *ret_more;
    const EcfsUuid last = past->len == 0 ? *after : ((EcfsObjectRow *) g_ptr_array_index (past, past->len - 1))->uuid;
    if (is_cut ? !others_follow || memcmp (&last, after, sizeof last) < 0
               : !others_follow && memcmp (&last, after, sizeof last) > 0)
        *after = last;
    *ret_more = others_follow || is_cut;
    g_ptr_array_extend_and_steal (objects, past);
    g_ptr_array_sort (objects, by_uuid);
    while (*ret_more && objects->len > 0 &&
           memcmp (&((EcfsObjectRow *) g_ptr_array_index (objects, objects->len - 1))->uuid, after, sizeof *after) > 0)
        g_ptr_array_set_size (objects, (gint) objects->len - 1);
    return true;
}

GPtrArray *ecfs_fsck_objects (EcfsFsckRun *self, EcfsUuid *after, size_t max, bool *ret_more, GError **error)
{
    if (self->is_named)
        return named_objects (self, after, max, ret_more, error);
    GError *why = NULL;
    const EcfsUuid before = *after;
    GPtrArray *objects = ecfs_catalog_walk_objects (ecfs_archive_catalog (self->archive), after, max, ret_more,
                                                    problem_of_walk, self, &why);
    if (objects != NULL && add_past (self, objects, &before, after, max, ret_more, &why))
        return objects;
    g_clear_pointer (&objects, g_ptr_array_unref);
    if (!ecfs_fsck_survives (self, why, error))
        return NULL;
    *ret_more = false;
    return g_ptr_array_new ();
}

size_t ecfs_fsck_position (const EcfsFsckRun *self, int64_t endpoint)
{
    for (size_t i = 0; i < self->n_endpoints; i++)
        if (ecfs_archive_endpoint (self->archive, i)->id == endpoint)
            return i;
    return SIZE_MAX;
}

static void checked_clear (gpointer data)
{
    g_free (((EcfsCheckedStripe *) data)->text);
    g_free (((EcfsCheckedStripe *) data)->digest);
}

GArray *ecfs_fsck_stripes (const EcfsFsckRun *self, const GPtrArray *objects)
{
    GArray *stripes = g_array_new (FALSE, TRUE, sizeof (EcfsCheckedStripe));
    g_array_set_clear_func (stripes, checked_clear);
    for (guint i = 0; i < objects->len; i++) {
        const EcfsObjectRow *object = g_ptr_array_index (objects, i);
        for (guint j = 0; j < object->stripes->len; j++) {
            EcfsCheckedStripe checked = {.object = object,
                                         .stripe = &g_array_index (object->stripes, EcfsStripeRow, j)};
            checked.position = ecfs_fsck_position (self, checked.stripe->endpoint);
            g_array_append_val (stripes, checked);
        }
    }
    return stripes;
}

/* What an endpoint says of all of its stripes is kept once. */
static const char *text_of (EcfsFsckRun *self, const EcfsCheckedStripe *checked)
{
    char **silence = &self->silences[MIN (checked->position, self->n_endpoints)];
    if (checked->fault != ECFS_STRIPE_UNKNOWN)
        return checked->text;
    if (*silence == NULL)
        *silence = g_strdup (checked->text);
    return g_strcmp0 (*silence, checked->text) == 0 ? NULL : checked->text;
}

bool ecfs_fsck_spool (EcfsFsckRun *self, const GArray *stripes, GError **error)
{
    for (guint i = 0; i < stripes->len; i++) {
        const EcfsCheckedStripe *checked = &g_array_index (stripes, EcfsCheckedStripe, i);
        if (checked->fault == ECFS_STRIPE_FINE || checked->is_left_out)
            continue;
        const EcfsSpoolFault fault = {.index = checked->stripe->index,
                                      .fault = (int) checked->fault,
                                      .instance = checked->stripe->instance,
                                      .endpoint = checked->stripe->endpoint,
                                      .text = (char *) text_of (self, checked)};
        if (!ecfs_spool_add_fault (self->spool, &checked->object->uuid, checked->object->id, &fault, error))
            return false;
    }
    return true;
}
