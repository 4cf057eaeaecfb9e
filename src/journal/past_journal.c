#include "journal/past_journal.h"

#include "archive/lineage.h"
#include "catalog/brake.h"
#include "catalog/journal_file.h"
#include "catalog/journal_rows.h"
#include "catalog/marks.h"
#include "journal/journal_io.h"
#include "journal/journal_watch.h"
#include "journal/snapshot.h"
#include "journal/superfluous.h"

#define FILES_MAX 1000000 /* that an endpoint lists */

/* A file that an endpoint has. */
typedef struct Have {
    EcfsJournalFile file;
    uint64_t size;
    size_t position; /* of the endpoint */
} Have;

struct EcfsPastJournal {
    EcfsArchive *archive;
    GArray *rows;   /* of EcfsSnapshotRow, newest first */
    GArray **files; /* of Have, in order, by position; NULL: it was not asked */
    size_t n_endpoints;
    size_t n_asked;
    size_t asking; /* the position */
    bool ends;     /* what is before the oldest snapshot is wanted by nobody, and may be there still */
};

void ecfs_past_journal_free (EcfsPastJournal *self)
{
    if (self == NULL)
        return;
    for (size_t i = 0; i < self->n_endpoints; i++)
        g_clear_pointer (&self->files[i], g_array_unref);
    g_free (self->files);
    g_clear_pointer (&self->rows, g_array_unref);
    g_free (self);
}

static const Have *have_at (const GArray *files, guint i)
{
    return &g_array_index (files, Have, i);
}

static int compare (const void *a, const void *b)
{
    const EcfsJournalFile *left = &((const Have *) a)->file, *right = &((const Have *) b)->file;
    int order = ecfs_segment_compare (left, right);
    return order != 0 ? order : (left->part > right->part) - (left->part < right->part);
}

/* Looking */

/* What is from before the newest snapshot, and is not just being stored. */
static void on_listed (void *user, const EcfsListed *listed)
{
    EcfsPastJournal *self = user;
    GArray *files = self->files[self->asking];
    Have have = {.size = listed->size, .position = self->asking};
    const EcfsSnapshotRow *newest = &g_array_index (self->rows, EcfsSnapshotRow, 0);
    if (files->len >= FILES_MAX || listed->size < ECFS_JOURNAL_HEADER_BYTES ||
        !ecfs_journal_file_name_parse (listed->name, &have.file) ||
        ecfs_snapshot_compare (have.file.epoch, have.file.last, newest) >
            (have.file.kind == ECFS_JOURNAL_SEGMENT ? 0 : -1) ||
        (self->ends && ecfs_journal_is_superfluous (self->rows, &have.file)))
        return;
    g_array_append_val (files, have);
}

/* One that cannot be listed neither gives nor takes. */
static void list (EcfsPastJournal *self)
{
    for (size_t i = 0; i < self->n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        if (!ecfs_archive_reaches (endpoint)) /* also one that is being emptied */
            continue;
        self->asking = i;
        self->files[i] = g_array_new (FALSE, FALSE, sizeof (Have));
        g_autoptr (GError) error = NULL;
        if (!ecfs_endpoint_list_wait (endpoint->endpoint, ECFS_JOURNAL_DIRECTORY, on_listed, self, &error) ||
            !ecfs_endpoint_list_wait (endpoint->endpoint, ECFS_SNAPSHOT_DIRECTORY, on_listed, self, &error)) {
            g_info ("%s", error->message);
            g_clear_pointer (&self->files[i], g_array_unref);
            continue;
        }
        g_array_sort (self->files[i], compare);
        self->n_asked += ecfs_archive_has_journal (endpoint);
    }
}

static bool is_wanted (EcfsArchive *archive, bool *ret_wanted, GError **error)
{
    EcfsBrake brake;
    g_autoptr (GArray) marks = ecfs_catalog_marks (ecfs_archive_catalog (archive), error);
    if (marks == NULL || !ecfs_catalog_brake (ecfs_archive_catalog (archive), &brake, error))
        return false;
    *ret_wanted = ecfs_archive_config (archive)->history_us > 0 || marks->len > 0 || brake.until_age_ns > 0;
    return true;
}

EcfsPastJournal *ecfs_past_journal_look (EcfsArchive *archive, GError **error)
{
    bool wanted;
    g_autoptr (EcfsPastJournal) self = g_new0 (EcfsPastJournal, 1);
    self->archive = archive;
    self->n_endpoints = ecfs_archive_n_endpoints (archive);
    self->files = g_new0 (GArray *, self->n_endpoints + 1);
    self->rows = ecfs_catalog_snapshots (ecfs_archive_catalog (archive), error);
    if (self->rows == NULL || !is_wanted (archive, &wanted, error))
        return NULL;
    if (wanted && self->rows->len > 0) {
        self->ends = ecfs_snapshot_past_may_go (archive, self->rows);
        list (self);
    }
    return g_steal_pointer (&self);
}

/* What an endpoint lacks */

/* Whether segments have all records of another. */
static bool covers (const GArray *files, const EcfsJournalFile *segment)
{
    uint64_t next = segment->first;
    for (guint i = 0; i < files->len && next <= segment->last; i++) {
        const EcfsJournalFile *own = &have_at (files, i)->file;
        if (own->kind == ECFS_JOURNAL_SEGMENT && own->epoch == segment->epoch && own->first <= next &&
            own->last >= next)
            next = own->last + 1;
    }
    return next > segment->last;
}

static bool is_of (const EcfsJournalFile *part, const EcfsJournalFile *last)
{
    return part->kind == ECFS_JOURNAL_SNAPSHOT && part->epoch == last->epoch && part->last == last->last;
}

static bool has_part (const GArray *files, const EcfsJournalFile *part)
{
    for (guint i = 0; i < files->len; i++) {
        const EcfsJournalFile *own = &have_at (files, i)->file;
        if (is_of (own, part) && own->part == part->part && own->is_last == part->is_last)
            return true;
    }
    return false;
}

/* Whether all parts of a snapshot are there, of which this is the last. */
static bool is_whole (const GArray *files, const EcfsJournalFile *last)
{
    uint64_t n = 0;
    for (guint i = 0; i < files->len; i++)
        n += is_of (&have_at (files, i)->file, last) && have_at (files, i)->file.part <= last->part;
    return n > last->part && has_part (files, last);
}

static bool is_enough (const EcfsPastJournal *self, const EcfsJournalFile *last)
{
    size_t n_whole = 0;
    for (size_t i = 0; i < self->n_endpoints; i++)
        n_whole += self->files[i] != NULL && is_whole (self->files[i], last);
    return n_whole >= MIN (self->n_asked, ecfs_snapshot_copies (self->archive));
}

static void want_parts (const EcfsPastJournal *self, const GArray *from, const EcfsJournalFile *last, GArray *own,
                        GArray *wanted)
{
    if (is_whole (own, last) || !is_whole (from, last) || is_enough (self, last))
        return;
    for (guint i = 0; i < from->len; i++)
        if (is_of (&have_at (from, i)->file, last) && !has_part (own, &have_at (from, i)->file)) {
            g_array_append_vals (wanted, have_at (from, i), 1);
            g_array_append_vals (own, have_at (from, i), 1);
        }
}

/* Of Have at others; g_array_unref (). Parts of a snapshot come in order, the last one last. */
static GArray *list_wanted (const EcfsPastJournal *self, size_t position)
{
    GArray *wanted = g_array_new (FALSE, FALSE, sizeof (Have));
    if (self->files[position] == NULL || !ecfs_archive_has_journal (ecfs_archive_endpoint (self->archive, position)))
        return wanted;
    g_autoptr (GArray) own = g_array_copy (self->files[position]);
    for (size_t i = 0; i < self->n_endpoints; i++) {
        const GArray *from = i == position ? NULL : self->files[i];
        for (guint j = 0; from != NULL && j < from->len; j++) {
            const Have *have = have_at (from, j);
            if (have->file.kind == ECFS_JOURNAL_SNAPSHOT) {
                if (have->file.is_last)
                    want_parts (self, from, &have->file, own, wanted);
            } else if (!covers (own, &have->file)) {
                g_array_append_vals (wanted, have, 1);
                g_array_append_vals (own, have, 1);
                g_array_sort (own, compare);
            }
        }
    }
    return wanted;
}

unsigned ecfs_past_journal_lacks (EcfsPastJournal *self, size_t position)
{
    g_autoptr (GArray) wanted = list_wanted (self, position);
    return wanted->len;
}

/* Believing */

static GPtrArray *load (const EcfsPastJournal *self, const Have *have, EcfsJournalFile *ret_file,
                        GByteArray **ret_bytes, GError **error)
{
    char name[ECFS_JOURNAL_NAME_SIZE];
    ecfs_journal_file_name (&have->file, name);
    return ecfs_journal_load (self->archive, ecfs_archive_endpoint (self->archive, have->position)->endpoint, name,
                              have->size, ECFS_JOURNAL_FILE_MAX, ret_file, ret_bytes, error);
}

/* What another endpoint says of the same records. */
typedef enum Word {
    WORD_NONE, /* it has not all of them, and no others */
    WORD_SAME,
    WORD_OTHER,
} Word;

static bool is_same_row (const EcfsJournalRow *a, const EcfsJournalRow *b)
{
    return a->sequence == b->sequence && a->time_ns == b->time_ns && a->record->len == b->record->len &&
           memcmp (a->record->data, b->record->data, a->record->len) == 0;
}

/* Of a segment: rows in order, each once. *n_same counts those of @rows that were met. False: there are others. */
static bool compare_segments (const GPtrArray *rows, const GPtrArray *theirs, guint *n_same)
{
    for (guint i = 0, j = 0; i < rows->len && j < theirs->len;) {
        const EcfsJournalRow *a = g_ptr_array_index (rows, i), *b = g_ptr_array_index (theirs, j);
        if (a->sequence == b->sequence && !is_same_row (a, b))
            return false;
        *n_same += a->sequence == b->sequence;
        i += a->sequence <= b->sequence;
        j += b->sequence <= a->sequence;
    }
    return true;
}

static bool overlaps (const EcfsJournalFile *a, const EcfsJournalFile *b)
{
    return a->kind == b->kind && a->epoch == b->epoch &&
           (a->kind == ECFS_JOURNAL_SEGMENT ? a->first <= b->last && b->first <= a->last
                                            : a->last == b->last && a->part == b->part);
}

static Word word_of (const EcfsPastJournal *self, size_t position, const EcfsJournalFile *file, const GPtrArray *rows)
{
    guint n_same = 0;
    for (guint i = 0; i < self->files[position]->len; i++) {
        const Have *have = have_at (self->files[position], i);
        EcfsJournalFile their_file;
        if (!overlaps (&have->file, file))
            continue;
        g_autoptr (GPtrArray) theirs = load (self, have, &their_file, NULL, NULL);
        if (theirs == NULL) /* it says nothing that counts */
            continue;
        if (file->kind == ECFS_JOURNAL_SNAPSHOT) {
            bool same = their_file.time_ns == file->time_ns && theirs->len == rows->len;
            for (guint j = 0; same && j < rows->len; j++)
                same = is_same_row (g_ptr_array_index (rows, j), g_ptr_array_index (theirs, j));
            return same ? WORD_SAME : WORD_OTHER;
        }
        if (!compare_segments (rows, theirs, &n_same))
            return WORD_OTHER;
    }
    return rows->len > 0 && n_same >= rows->len ? WORD_SAME : WORD_NONE;
}

static bool is_believed (const EcfsPastJournal *self, size_t source, const EcfsJournalFile *file, const GPtrArray *rows)
{
    size_t n_same = 1, n_other = 0, n_copies = ecfs_archive_journal_copies (self->archive);
    for (size_t i = 0; i < self->n_endpoints && (n_same < n_copies || n_same <= n_other); i++) {
        Word word = i == source || self->files[i] == NULL ? WORD_NONE : word_of (self, i, file, rows);
        n_same += word == WORD_SAME;
        n_other += word == WORD_OTHER;
    }
    return n_same >= n_copies ? n_same > n_other : ecfs_archive_keys (self->archive) != NULL && n_other == 0;
}

/* Giving */

/* False: it takes no more now. */
static bool give (EcfsPastJournal *self, size_t position, const Have *have, const atomic_bool *stop)
{
    EcfsJournalFile file;
    char name[ECFS_JOURNAL_NAME_SIZE];
    g_autoptr (GByteArray) bytes = NULL;
    g_autoptr (GError) why = NULL;
    const EcfsArchiveEndpoint *to = ecfs_archive_endpoint (self->archive, position);
    ecfs_journal_file_name (&have->file, name);
    g_autoptr (GPtrArray) rows = load (self, have, &file, &bytes, &why);
    if (rows == NULL || !is_believed (self, have->position, &file, rows)) {
        g_warning ("endpoint %s lacks %s, which tells the past, and does not get it: %s", to->name, name,
                   why != NULL ? why->message : "too few endpoints say the same of it");
        return true;
    }
    if (!ecfs_journal_store (to->endpoint, name, bytes, stop, &why) && why->code != EEXIST) {
        g_warning ("endpoint %s lacks files of the journal that tell the past: %s", to->name, why->message);
        return false;
    }
    g_array_append_vals (self->files[position], have, 1);
    g_array_sort (self->files[position], compare);
    return true;
}

bool ecfs_past_journal_give (EcfsPastJournal *self, const atomic_bool *stop, GError **error)
{
    for (size_t i = 0; i < self->n_endpoints; i++) {
        g_autoptr (GArray) wanted = list_wanted (self, i);
        if (wanted->len > 0 && !ecfs_lineage_may_write (ecfs_archive_lineage (self->archive), i))
            continue;
        for (guint j = 0; j < wanted->len; j++) {
            if (stop != NULL && atomic_load (stop))
                return ecfs_fail (error, ECANCELED, "giving back what tells the past is given up");
            if (!give (self, i, have_at (wanted, j), stop))
                break;
        }
    }
    return true;
}
