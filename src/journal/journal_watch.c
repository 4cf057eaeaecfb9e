#include "journal/journal_watch.h"

#include "journal/journal_io.h"

#include <inttypes.h>

#define FILES_MAX 1000000 /* that an endpoint lists: many times what two snapshots leave */

unsigned ecfs_snapshot_copies (EcfsArchive *archive)
{
    unsigned n_active = 0;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++)
        n_active += ecfs_archive_has_journal (ecfs_archive_endpoint (archive, i));
    return MAX (ecfs_archive_journal_copies (archive), MIN (n_active, ECFS_SNAPSHOT_COPIES));
}

/* A file that counts. */
typedef struct Seen {
    EcfsJournalFile file;
    uint64_t size;
} Seen;

typedef struct Listing {
    uint32_t epoch;
    EcfsSnapshotRow newest; /* sequence 0: the catalog has none */
    GArray *segments;       /* of Seen */
    GArray *parts;          /* … of the newest snapshot */
    size_t n_listed;
} Listing;

static void on_listed (void *user, const EcfsListed *listed)
{
    Listing *self = user;
    EcfsJournalFile file;
    if (++self->n_listed > FILES_MAX || !ecfs_journal_file_name_parse (listed->name, &file) ||
        listed->size < ECFS_JOURNAL_HEADER_BYTES || file.epoch != self->epoch)
        return;
    const Seen seen = {.file = file, .size = listed->size};
    if (file.kind == ECFS_JOURNAL_SEGMENT && file.last > self->newest.sequence)
        g_array_append_val (self->segments, seen);
    else if (file.kind == ECFS_JOURNAL_SNAPSHOT && file.epoch == self->newest.epoch &&
             file.last == self->newest.sequence)
        g_array_append_val (self->parts, seen);
}

/* Whether the records are those that the catalog has still; of those that it has no more, nothing is said. */
static bool are_ours (EcfsArchive *archive, const EcfsJournalFile *file, const GPtrArray *rows)
{
    g_autoptr (GPtrArray) ours =
        rows->len == 0 ? NULL : ecfs_catalog_journal (ecfs_archive_catalog (archive), file->first - 1, rows->len, NULL);
    for (guint i = 0, j = 0; ours != NULL && i < rows->len && j < ours->len; i++) {
        const EcfsJournalRow *theirs = g_ptr_array_index (rows, i), *own = g_ptr_array_index (ours, j);
        if (theirs->sequence < own->sequence)
            continue;
        j++;
        if (theirs->sequence != own->sequence || theirs->time_ns != own->time_ns ||
            theirs->record->len != own->record->len ||
            memcmp (theirs->record->data, own->record->data, own->record->len) != 0)
            return false;
    }
    return true;
}

/* Whether a file is there as it was stored; a part of a snapshot of another taking is none of this. */
static bool is_whole (EcfsArchive *archive, size_t position, const EcfsSnapshotRow *newest, const Seen *seen)
{
    EcfsJournalFile file;
    char name[ECFS_JOURNAL_NAME_SIZE];
    EcfsEndpoint *endpoint = ecfs_archive_endpoint (archive, position)->endpoint;
    ecfs_journal_file_name (&seen->file, name);
    /* The caller says that it is not there. */
    g_autoptr (GPtrArray) rows =
        ecfs_journal_load (archive, endpoint, name, seen->size, ECFS_JOURNAL_FILE_MAX, &file, NULL, NULL);
    return rows != NULL &&
           (file.kind == ECFS_JOURNAL_SEGMENT ? are_ours (archive, &file, rows) : file.time_ns == newest->time_ns);
}

static void drop_damaged (EcfsArchive *archive, size_t position, const EcfsSnapshotRow *newest, GArray *files)
{
    for (guint i = files->len; i-- > 0;)
        if (!is_whole (archive, position, newest, &g_array_index (files, Seen, i)))
            g_array_remove_index (files, i);
}

static int by_part (const void *a, const void *b)
{
    const EcfsJournalFile *left = &((const Seen *) a)->file, *right = &((const Seen *) b)->file;
    return (left->part > right->part) - (left->part < right->part);
}

/* Whether all parts of the newest snapshot are there. */
static bool has_parts (const Listing *self)
{
    bool whole = self->parts->len > 0;
    g_array_sort (self->parts, by_part);
    for (guint i = 0; i < self->parts->len; i++) {
        const EcfsJournalFile *file = &g_array_index (self->parts, Seen, i).file;
        whole = whole && file->part == i && file->is_last == (i + 1 == self->parts->len);
    }
    return whole;
}

static int by_first (const void *a, const void *b)
{
    const EcfsJournalFile *left = &((const Seen *) a)->file, *right = &((const Seen *) b)->file;
    return (left->first > right->first) - (left->first < right->first);
}

/* The first record behind @after, up to @last, that no segment has; 0: they have all. */
static uint64_t first_gap (const Listing *self, uint64_t after, uint64_t last)
{
    uint64_t next = after + 1;
    g_array_sort (self->segments, by_first);
    for (guint i = 0; i < self->segments->len; i++) {
        const EcfsJournalFile *file = &g_array_index (self->segments, Seen, i).file;
        if (file->first <= next)
            next = MAX (next, file->last + 1);
    }
    return next > last ? 0 : next;
}

/* Up to which record the endpoint has the journal, as the catalog says. */
static bool read_place (EcfsArchive *archive, int64_t endpoint, uint64_t *ret_sequence, GError **error)
{
    g_autoptr (GArray) places = ecfs_catalog_journal_places (ecfs_archive_catalog (archive), error);
    *ret_sequence = 0;
    for (guint i = 0; places != NULL && i < places->len; i++)
        if (g_array_index (places, EcfsJournalPlace, i).endpoint == endpoint)
            *ret_sequence = g_array_index (places, EcfsJournalPlace, i).sequence;
    return places != NULL;
}

static bool read_newest (EcfsArchive *archive, EcfsSnapshotRow *ret_newest, GError **error)
{
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (ecfs_archive_catalog (archive), error);
    *ret_newest = (EcfsSnapshotRow){.sequence = 0};
    if (rows != NULL && rows->len > 0 &&
        g_array_index (rows, EcfsSnapshotRow, 0).epoch == ecfs_catalog_epoch (ecfs_archive_catalog (archive)))
        *ret_newest = g_array_index (rows, EcfsSnapshotRow, 0);
    return rows != NULL;
}

bool ecfs_journal_look (EcfsArchive *archive, size_t position, bool deep, EcfsJournalSight *ret_sight, GError **error)
{
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, position);
    Listing self = {.epoch = ecfs_catalog_epoch (ecfs_archive_catalog (archive))};
    uint64_t last;
    /* What the catalog believes comes first: more may be stored meanwhile, and nothing of it goes. */
    if (!read_place (archive, endpoint->id, &last, error) || !read_newest (archive, &self.newest, error))
        return false;
    g_autoptr (GArray) segments = g_array_new (FALSE, FALSE, sizeof (Seen));
    g_autoptr (GArray) parts = g_array_new (FALSE, FALSE, sizeof (Seen));
    self.segments = segments;
    self.parts = parts;
    if (!ecfs_endpoint_list_wait (endpoint->endpoint, ECFS_JOURNAL_DIRECTORY, on_listed, &self, error) ||
        !ecfs_endpoint_list_wait (endpoint->endpoint, ECFS_SNAPSHOT_DIRECTORY, on_listed, &self, error))
        return false;
    if (self.n_listed > FILES_MAX)
        return ecfs_fail (error, EPROTO, "endpoint %s: it lists more than %d files of the journal",
                          ecfs_endpoint_name (endpoint->endpoint), FILES_MAX);
    if (deep) {
        drop_damaged (archive, position, &self.newest, segments);
        drop_damaged (archive, position, &self.newest, parts);
    }
    uint64_t gap = last > self.newest.sequence ? first_gap (&self, self.newest.sequence, last) : 0;
    *ret_sight = (EcfsJournalSight){.has_snapshot = self.newest.sequence == 0 || has_parts (&self)};
    if (gap != 0)
        ret_sight->missing =
            g_strdup_printf ("its journal has a gap at change %" PRIu64 ", and it had all up to %" PRIu64, gap, last);
    return true;
}
