#include "verbs/prune_priv.h"

#include "archive/common.h"
#include "catalog/journal.h"
#include "verbs/past.h"

#include <glib/gstdio.h>
#include <inttypes.h>
#include <string.h>

#define BATCH     1000
#define SAMPLE_NS (INT64_C (300) * ECFS_PRUNE_NS_PER_S) /* what is closer together is one sample */

/* An object that there was when records were missing. */
typedef struct Lived {
    EcfsUuid object;
    uint64_t bytes;
} Lived;

static int compare_uuids (const void *a, const void *b)
{
    return memcmp (a, b, sizeof (EcfsUuid));
}

static bool has (const GArray *sorted, const EcfsUuid *object)
{
    return bsearch (object, sorted->data, sorted->len, sizeof *object, compare_uuids) != NULL;
}

static void forget (void *user)
{
    EcfsPrunePast *self = user;
    self->is_then_over = self->is_restarted = false;
    self->death = self->last_death = self->time_ns = 0;
    self->epoch = 0;
    self->sequence = self->begin = self->lost_names = self->last_lost = self->before_files = 0;
    self->n_future = 0;
    self->has_base = self->is_cut = false;
    self->at_epoch = 0;
    self->at_sequence = 0;
    g_array_set_size (self->samples, 0);
    g_array_set_size (self->kept, 0);
    g_array_set_size (self->known, 0);
    g_array_set_size (self->before, 0);
}

/* What is read from now on was not there then. */
static void pass_to (EcfsPrunePast *self, int64_t time_ns)
{
    self->time_ns = MAX (self->time_ns, time_ns);
    if (self->is_then_over || self->time_ns <= self->then_ns)
        return;
    self->is_then_over = true;
    self->death = self->last_death;
}

static void note_item (EcfsPrunePast *self, const EcfsJournalItem *item)
{
    GArray *to = self->is_then_over ? self->kept : self->known;
    switch (item->type) {
    case ECFS_JOURNAL_CONTENT:
        for (size_t i = 0; self->is_then_over && i < item->n_parts; i++) {
            const EcfsJournalExtent extent = ecfs_journal_extent (item, i);
            g_array_append_val (to, extent.object);
        }
        break;
    case ECFS_JOURNAL_NAME_REMOVED:
        self->lost_names++;
        break;
    case ECFS_JOURNAL_ABORT:
        g_array_append_val (to, item->uuid);
        break;
    case ECFS_JOURNAL_PACKED:
        if (self->is_then_over)
            g_array_append_val (to, item->other);
        G_GNUC_FALLTHROUGH;
    case ECFS_JOURNAL_OBJECT:
    case ECFS_JOURNAL_STRIPE:
    case ECFS_JOURNAL_DELETED:
    case ECFS_JOURNAL_LOG_END:
    case ECFS_JOURNAL_UNUSED:
    case ECFS_JOURNAL_INTENT:
        if (self->is_then_over)
            g_array_append_val (to, item->uuid);
        break;
    default:
        break;
    }
}

/* A file counts once a day, whatever is written to it; and what was accepted hides nothing that comes behind it. */
static void begin_day (EcfsPrunePast *self, EcfsCatalog *catalog, int64_t before_ns)
{
    if (before_ns / ECFS_PRUNE_DAY_NS != self->time_ns / ECFS_PRUNE_DAY_NS ||
        (before_ns <= self->accepted_ns && self->time_ns > self->accepted_ns))
        ecfs_catalog_lost_anew (catalog);
}

/* What a later ecfs wrote may keep what this one takes for dead. */
static bool note_row (EcfsPrunePast *self, const EcfsJournalRow *row, GError **error)
{
    EcfsCursor cursor;
    EcfsJournalItem item;
    int result = ecfs_journal_open (&cursor, row->record->data, row->record->len);
    while (result >= 0 && (result = ecfs_journal_next (&cursor, &item)) == 1)
        note_item (self, &item);
    return result >= 0 ||
           ecfs_fail (error, result == -ENOTSUP ? ENOTSUP : EBADMSG,
                      "change %" PRIu64 " of the journal %s: nothing is removed", row->sequence,
                      result == -ENOTSUP ? "was written by a later ecfs, which is needed here, too" : "is damaged");
}

/* What the catalog is, just where the snapshot was taken: before the first record behind it. */
static bool keep_base (EcfsPrunePast *self, EcfsCatalog *catalog, GError **error)
{
    if (self->base == NULL || self->has_base ||
        ecfs_snapshot_compare (self->at_epoch, self->at_sequence, self->base) != 0)
        return true;
    (void) g_unlink (self->base_path); /* what is there fails the next */
    self->has_base = ecfs_catalog_barrier (catalog, error) && ecfs_catalog_copy (catalog, self->base_path, NULL, error);
    self->base_death = self->last_death;
    return self->has_base;
}

static bool on_record (void *user, EcfsCatalog *catalog, uint32_t epoch, const EcfsJournalRow *row, GError **error)
{
    EcfsPrunePast *self = user;
    const int64_t before_ns = self->time_ns;
    bool is_future;
    if (!keep_base (self, catalog, error))
        return false;
    self->at_epoch = epoch;
    self->at_sequence = row->sequence;
    pass_to (self, ecfs_prune_later_time (ecfs_prune_record_time (self->times, epoch, row), row->time_ns, &is_future));
    if (is_future) {
        self->n_future++;
        self->future = row->sequence;
    }
    begin_day (self, catalog, before_ns);
    if (!self->is_then_over) {
        self->epoch = epoch;
        self->sequence = row->sequence;
    }
    return note_row (self, row, error);
}

/* Before a catalog goes, of which what follows tells nothing. */
static bool note_deaths (EcfsPrunePast *self, EcfsCatalog *catalog, GError **error)
{
    int64_t after = 0;
    bool more = true;
    while (more)
        if (!ecfs_catalog_deaths_objects (catalog, &after, BATCH, self->known, &more, error))
            return false;
    /* In which of them something died since then. */
    after = self->death;
    more = self->is_then_over;
    while (more)
        if (!ecfs_catalog_deaths_objects (catalog, &after, BATCH, self->kept, &more, error))
            return false;
    return true;
}

static bool note_lives (EcfsPrunePast *self, EcfsCatalog *catalog, GError **error)
{
    EcfsUuid after = {.bytes = {0}};
    for (guint n = BATCH; n == BATCH;) {
        g_autoptr (GPtrArray) objects = ecfs_catalog_objects_by_uuid (catalog, &after, BATCH, error);
        if (objects == NULL)
            return false;
        n = objects->len;
        for (guint i = 0; i < n; i++) {
            const EcfsObjectRow *object = g_ptr_array_index (objects, i);
            Lived lived = {.object = object->uuid};
            for (guint j = 0; j < object->stripes->len; j++)
                lived.bytes += g_array_index (object->stripes, EcfsStripeRow, j).size;
            after = object->uuid;
            g_array_append_val (self->before, lived);
            g_array_append_val (self->known, lived.object);
            if (self->is_then_over)
                g_array_append_val (self->kept, lived.object);
        }
    }
    return true;
}

static bool on_leaving (void *user, EcfsCatalog *catalog, const EcfsJournalFile *snapshot, GError **error)
{
    EcfsPrunePast *self = user;
    EcfsTotals totals;
    if (!keep_base (self, catalog, error))
        return false;
    self->is_cut = self->has_base;
    self->at_epoch = snapshot->epoch;
    self->at_sequence = snapshot->last;
    pass_to (self, ecfs_prune_snapshot_time (self->times, snapshot));
    if (!self->is_then_over) {
        self->epoch = snapshot->epoch;
        self->sequence = snapshot->last;
    }
    self->begin = snapshot->last;
    self->is_restarted = true;
    if (!ecfs_catalog_totals (catalog, &totals, error))
        return false;
    self->before_files = MAX (self->before_files, totals.n_files);
    return note_deaths (self, catalog, error) && note_lives (self, catalog, error);
}

/* What was there before records were missing, and is not behind them, is lost as well. */
static bool count_gone (EcfsPrunePast *self, EcfsCatalog *catalog, const EcfsTotals *now, EcfsPruneSample *sample,
                        GError **error)
{
    for (guint i = 0; i < self->before->len; i++) {
        const Lived *lived = &g_array_index (self->before, Lived, i);
        bool lives;
        if (!ecfs_catalog_object_known (catalog, &lived->object, &lives, error))
            return false;
        sample->lost_bytes += lives ? 0 : lived->bytes;
    }
    sample->lost_files += self->before_files - MIN (now->n_files, self->before_files);
    g_array_set_size (self->before, 0);
    self->before_files = 0;
    return true;
}

static bool is_quiet (const EcfsPruneSample *from, const EcfsPruneSample *to)
{
    return from->lost_files == to->lost_files && from->lost_bytes == to->lost_bytes &&
           from->lost_names == to->lost_names;
}

/* What is close together is one sample, but for what was just before something was lost, or accepted. */
static bool belongs (const EcfsPrunePast *self, const EcfsPruneSample *sample)
{
    const guint n = self->samples->len;
    if (n < 2)
        return false;
    const EcfsPruneSample *last = &g_array_index (self->samples, EcfsPruneSample, n - 1), *before = last - 1;
    const bool was_quiet = is_quiet (before, last), stays_quiet = is_quiet (last, sample);
    return sample->time_ns / SAMPLE_NS == last->time_ns / SAMPLE_NS && (stays_quiet || !was_quiet) &&
           (last->time_ns > self->accepted_ns || sample->time_ns <= self->accepted_ns);
}

static void add_sample (EcfsPrunePast *self, EcfsPruneSample sample)
{
    if (!belongs (self, &sample)) {
        g_array_append_val (self->samples, sample);
        return;
    }
    EcfsPruneSample *last = &g_array_index (self->samples, EcfsPruneSample, self->samples->len - 1);
    sample.n_files = MAX (sample.n_files, last->n_files);
    sample.bytes = MAX (sample.bytes, last->bytes);
    *last = sample;
}

static bool on_applied (void *user, EcfsCatalog *catalog, int64_t time_ns, GError **error)
{
    EcfsPrunePast *self = user;
    EcfsTotals now;
    uint64_t bytes = 0;
    EcfsPruneSample sample = {.time_ns = 0};
    if (self->samples->len > 0)
        sample = g_array_index (self->samples, EcfsPruneSample, self->samples->len - 1);
    if (!ecfs_catalog_totals (catalog, &now, error) ||
        !ecfs_catalog_deaths_since (catalog, self->is_restarted ? 0 : self->last_death, &self->last_death, &bytes,
                                    error))
        return false;
    if (self->is_restarted) {
        self->death = 0; /* numbers begin anew */
        if (!count_gone (self, catalog, &now, &sample, error))
            return false;
    } else {
        sample.lost_bytes += bytes;
        sample.lost_files += now.n_lost - MIN (self->last_lost, now.n_lost);
    }
    self->is_restarted = false;
    self->last_lost = now.n_lost;
    sample.time_ns = self->time_ns;
    sample.told_ns = time_ns;
    sample.lost_names = self->lost_names;
    sample.n_files = now.n_files;
    sample.bytes = now.stripe_bytes;
    add_sample (self, sample);
    return true;
}

/* Of those that are in it several times one stays. */
static void sort (GArray *objects)
{
    guint n = 0;
    g_array_sort (objects, compare_uuids);
    for (guint i = 0; i < objects->len; i++)
        if (n == 0 ||
            !ecfs_uuid_equal (&g_array_index (objects, EcfsUuid, n - 1), &g_array_index (objects, EcfsUuid, i)))
            g_array_index (objects, EcfsUuid, n++) = g_array_index (objects, EcfsUuid, i);
    g_array_set_size (objects, n);
}

bool ecfs_prune_past_read (EcfsPrunePast *self, const char *archive_dir, GError **error)
{
    const EcfsRecoverWatch watch = {
        .begin = forget, .applied = on_applied, .record = on_record, .leaving = on_leaving, .user = self};
    self->samples = g_array_new (FALSE, FALSE, sizeof (EcfsPruneSample));
    self->kept = g_array_new (FALSE, FALSE, sizeof (EcfsUuid));
    self->known = g_array_new (FALSE, FALSE, sizeof (EcfsUuid));
    self->before = g_array_new (FALSE, FALSE, sizeof (Lived));
    self->directory = ecfs_past_replay (archive_dir, &watch, &self->sums, error);
    if (self->directory == NULL)
        return false;
    if (!self->is_then_over)
        self->death = self->last_death;
    sort (self->kept);
    sort (self->known);
    self->archive = ecfs_archive_open (self->directory, ECFS_ARCHIVE_READONLY, error);
    return self->archive != NULL;
}

bool ecfs_prune_past_keeps (const EcfsPrunePast *self, const EcfsUuid *object)
{
    return has (self->kept, object);
}

bool ecfs_prune_past_knew (const EcfsPrunePast *self, const EcfsUuid *object)
{
    return has (self->known, object);
}

bool ecfs_prune_past_heed (EcfsPrunePast *self, const GPtrArray *rows, GError **error)
{
    self->is_then_over = true;
    for (guint i = 0; i < rows->len; i++)
        if (!note_row (self, g_ptr_array_index (rows, i), error))
            return false;
    if (rows->len > 0)
        sort (self->kept);
    return true;
}

void ecfs_prune_past_clear (EcfsPrunePast *self)
{
    GArray **arrays[] = {&self->samples, &self->kept, &self->known, &self->before};
    for (size_t i = 0; i < G_N_ELEMENTS (arrays); i++)
        g_clear_pointer (arrays[i], g_array_unref);
    g_clear_pointer (&self->archive, ecfs_archive_free);
    ecfs_past_close (g_steal_pointer (&self->directory));
    ecfs_recovered_clear (&self->sums);
}
