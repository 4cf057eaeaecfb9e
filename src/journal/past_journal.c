#include "journal/past_journal.h"

#include "archive/lineage.h"
#include "catalog/journal_file.h"
#include "catalog/journal_rows.h"
#include "journal/journal_io.h"
#include "journal/journal_watch.h"
#include "journal/snapshot.h"
#include "journal/superfluous.h"

#define FILES_MAX          1000000 /* that an endpoint lists */
#define SNAPSHOT_PARTS_MAX 20000   /* of them */

/* At files of one endpoint for what it says of one that is to be given. */
#define LOOKS_MAX      1024
#define VAIN_LOOKS_MAX 64

#define PLANS_MAX 8 /* for one endpoint, each without what was found bad before */

/* A file that an endpoint has. */
typedef struct Have {
    EcfsJournalFile file;
    uint64_t size;
    size_t position; /* of the endpoint */
    bool is_bad;     /* it cannot be read */
    bool is_alone;   /* too few others say the same, while it may say so of theirs */
} Have;

/* Records of an epoch, without a gap. */
typedef struct Span {
    uint32_t epoch;
    uint64_t first, last;
} Span;

/* The file of an endpoint that was read last. */
typedef struct Loaded {
    Have have;
    EcfsJournalFile file;
    GPtrArray *rows; /* NULL: none was, or it cannot be read */
} Loaded;

struct EcfsPastJournal {
    EcfsArchive *archive;
    GArray *rows;   /* of EcfsSnapshotRow, newest first */
    GArray **files; /* of Have, in order, by position; NULL: it was not asked */
    bool *doubted;  /* by position: something that it has was not believed */
    Loaded *loaded; /* by position */
    size_t n_endpoints;
    size_t n_asked;
    size_t asking;  /* the position */
    guint n_parts;  /* of snapshots, that it listed */
    bool is_wanted; /* the past, by somebody: it was looked for */
    bool ends;      /* what is before the oldest snapshot is wanted by nobody, and may be there still */
};

void ecfs_past_journal_free (EcfsPastJournal *self)
{
    if (self == NULL)
        return;
    for (size_t i = 0; i < self->n_endpoints; i++) {
        g_clear_pointer (&self->files[i], g_array_unref);
        g_clear_pointer (&self->loaded[i].rows, g_ptr_array_unref);
    }
    g_free (self->files);
    g_free (self->doubted);
    g_free (self->loaded);
    g_clear_pointer (&self->rows, g_array_unref);
    g_free (self);
}

static const Have *have_at (const GArray *files, guint i)
{
    return &g_array_index (files, Have, i);
}

static bool is_believable (const Have *have)
{
    return !have->is_bad && !have->is_alone;
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
        (self->ends && ecfs_journal_is_superfluous (self->rows, &have.file)) ||
        (have.file.kind == ECFS_JOURNAL_SNAPSHOT && self->n_parts++ >= SNAPSHOT_PARTS_MAX))
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
        self->n_parts = 0;
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

EcfsPastJournal *ecfs_past_journal_look (EcfsArchive *archive, GError **error)
{
    g_autoptr (EcfsPastJournal) self = g_new0 (EcfsPastJournal, 1);
    self->archive = archive;
    self->n_endpoints = ecfs_archive_n_endpoints (archive);
    self->files = g_new0 (GArray *, self->n_endpoints + 1);
    self->doubted = g_new0 (bool, self->n_endpoints + 1);
    self->loaded = g_new0 (Loaded, self->n_endpoints + 1);
    self->rows = ecfs_catalog_snapshots (ecfs_archive_catalog (archive), error);
    if (self->rows == NULL)
        return NULL;
    self->is_wanted = self->rows->len > 0 && ecfs_snapshot_past_is_wanted (archive, self->rows);
    if (self->is_wanted) {
        self->ends = ecfs_snapshot_past_may_go (archive, self->rows);
        list (self);
    }
    return g_steal_pointer (&self);
}

/* What an endpoint lacks */

/* Spans lie in order, and apart from each other: hostile names may be a million. */
static int compare_spans (const void *a, const void *b, void *user)
{
    const Span *left = a, *right = b;
    (void) user;
    if (left->epoch != right->epoch)
        return left->epoch < right->epoch ? -1 : 1;
    return (left->first > right->first) - (left->first < right->first);
}

static GSequence *make_spans (void)
{
    return g_sequence_new (g_free);
}

static Span *span_of (GSequenceIter *iter)
{
    return g_sequence_iter_is_end (iter) ? NULL : g_sequence_get (iter);
}

/* The last that begins no later, in the same epoch; NULL: there is none. */
static Span *last_before (GSequence *spans, Span *span)
{
    GSequenceIter *after = g_sequence_search (spans, span, compare_spans, NULL);
    Span *before = g_sequence_iter_is_begin (after) ? NULL : g_sequence_get (g_sequence_iter_prev (after));
    return before != NULL && before->epoch == span->epoch ? before : NULL;
}

/* Whether all records of a segment are in them. */
static bool covers (GSequence *spans, const EcfsJournalFile *segment)
{
    Span span = {.epoch = segment->epoch, .first = segment->first, .last = segment->last};
    const Span *before = last_before (spans, &span);
    return before != NULL && before->last >= span.last;
}

/* Into the span that it continues, or in its place; those that it reaches become part of it. */
static void add_span (GSequence *spans, Span span)
{
    Span *whole = last_before (spans, &span);
    if (whole == NULL || (whole->last < span.first && span.first - whole->last > 1)) {
        whole = g_memdup2 (&span, sizeof span);
        (void) g_sequence_insert_sorted (spans, whole, compare_spans, NULL);
    }
    whole->last = MAX (whole->last, span.last);
    GSequenceIter *iter = g_sequence_search (spans, whole, compare_spans, NULL);
    for (const Span *next = span_of (iter);
         next != NULL && next->epoch == whole->epoch && (next->first <= whole->last || next->first - whole->last == 1);
         next = span_of (iter)) {
        GSequenceIter *reached = iter;
        whole->last = MAX (whole->last, next->last);
        iter = g_sequence_iter_next (iter);
        g_sequence_remove (reached);
    }
}

static void add_segment (GSequence *spans, const EcfsJournalFile *segment)
{
    add_span (spans, (Span){.epoch = segment->epoch, .first = segment->first, .last = segment->last});
}

/* What the segments of an endpoint have; g_sequence_free (). */
static GSequence *spans_of (const GArray *files)
{
    GSequence *spans = make_spans ();
    for (guint i = 0; i < files->len; i++)
        if (have_at (files, i)->file.kind == ECFS_JOURNAL_SEGMENT && is_believable (have_at (files, i)))
            add_segment (spans, &have_at (files, i)->file);
    return spans;
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
        n += is_of (&have_at (files, i)->file, last) && have_at (files, i)->file.part <= last->part &&
             is_believable (have_at (files, i));
    return n > last->part && has_part (files, last);
}

static bool is_enough (const EcfsPastJournal *self, const EcfsJournalFile *last)
{
    size_t n_whole = 0;
    for (size_t i = 0; i < self->n_endpoints; i++)
        n_whole += self->files[i] != NULL && ecfs_archive_has_journal (ecfs_archive_endpoint (self->archive, i)) &&
                   is_whole (self->files[i], last);
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

/* Adds to *own, *spans and @wanted what @from has besides. */
static void want (const EcfsPastJournal *self, const GArray *from, GArray *own, GSequence *spans, GArray *wanted)
{
    for (guint i = 0; i < from->len; i++) {
        const Have *have = have_at (from, i);
        if (!is_believable (have))
            continue;
        if (have->file.kind == ECFS_JOURNAL_SNAPSHOT) {
            if (have->file.is_last)
                want_parts (self, from, &have->file, own, wanted);
        } else if (!covers (spans, &have->file)) {
            g_array_append_vals (wanted, have, 1);
            add_segment (spans, &have->file);
        }
    }
}

/*
 * Of Have at others; g_array_unref (). Parts of a snapshot come in order, the last one last. Who has told what was not
 * believed comes last, so that his names hide nobody's.
 */
static GArray *list_wanted (const EcfsPastJournal *self, size_t position)
{
    GArray *wanted = g_array_new (FALSE, FALSE, sizeof (Have));
    if (self->files[position] == NULL || !ecfs_archive_has_journal (ecfs_archive_endpoint (self->archive, position)))
        return wanted;
    g_autoptr (GArray) own = g_array_copy (self->files[position]);
    g_autoptr (GSequence) spans = spans_of (own);
    for (unsigned round = 0; round < 2; round++)
        for (size_t i = 0; i < self->n_endpoints; i++)
            if (i != position && self->files[i] != NULL && self->doubted[i] == (round == 1))
                want (self, self->files[i], own, spans, wanted);
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

/* The same, of which the last of each endpoint is remembered: borrowed until the next of it. */
static const GPtrArray *load_again (const EcfsPastJournal *self, const Have *have, const EcfsJournalFile **ret_file)
{
    Loaded *loaded = &self->loaded[have->position];
    *ret_file = &loaded->file;
    if (loaded->rows != NULL && compare (&loaded->have, have) == 0 && loaded->have.file.kind == have->file.kind)
        return loaded->rows;
    g_clear_pointer (&loaded->rows, g_ptr_array_unref);
    loaded->have = *have;
    loaded->rows = load (self, have, &loaded->file, NULL, NULL);
    return loaded->rows;
}

/* What another endpoint says of the same records. */
typedef enum Word {
    WORD_NONE, /* it has not all of them, and no others */
    WORD_SAME,
    WORD_OTHER,
} Word;

/* Of a segment: rows in order, each once. *n_same counts those of @rows that were met. False: there are others. */
static bool compare_segments (const GPtrArray *rows, const GPtrArray *theirs, guint *n_same)
{
    for (guint i = 0, j = 0; i < rows->len && j < theirs->len;) {
        const EcfsJournalRow *a = g_ptr_array_index (rows, i), *b = g_ptr_array_index (theirs, j);
        if (a->sequence == b->sequence && !ecfs_journal_row_equal (a, b))
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

static bool is_same_part (const EcfsJournalFile *file, const GPtrArray *rows, const EcfsJournalFile *their_file,
                          const GPtrArray *theirs)
{
    bool same = their_file->time_ns == file->time_ns && theirs->len == rows->len;
    for (guint i = 0; same && i < rows->len; i++)
        same = ecfs_journal_row_equal (g_ptr_array_index (rows, i), g_ptr_array_index (theirs, i));
    return same;
}

static Word word_of (const EcfsPastJournal *self, size_t position, const EcfsJournalFile *file, const GPtrArray *rows)
{
    guint n_same = 0, n_looks = 0, n_vain = 0;
    for (guint i = 0; i < self->files[position]->len && n_looks < LOOKS_MAX && n_vain < VAIN_LOOKS_MAX; i++) {
        const EcfsJournalFile *their_file;
        const Have *have = have_at (self->files[position], i);
        if (have->is_bad || !overlaps (&have->file, file))
            continue;
        const guint n_same_before = n_same;
        n_looks++;
        const GPtrArray *theirs = load_again (self, have, &their_file);
        if (theirs == NULL) { /* it says nothing that counts */
            n_vain++;
            continue;
        }
        if (file->kind == ECFS_JOURNAL_SNAPSHOT)
            return is_same_part (file, rows, their_file, theirs) ? WORD_SAME : WORD_OTHER;
        if (!compare_segments (rows, theirs, &n_same))
            return WORD_OTHER;
        n_vain += n_same == n_same_before;
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

static void disbelieve (EcfsPastJournal *self, const Have *told, bool is_read)
{
    GArray *files = self->files[told->position];
    for (guint i = 0; i < files->len; i++) {
        Have *have = &g_array_index (files, Have, i);
        if (have->file.kind != told->file.kind || compare (have, told) != 0)
            continue;
        have->is_bad = have->is_bad || !is_read;
        have->is_alone = have->is_alone || is_read;
    }
    self->doubted[told->position] = true;
}

/* Whether a file of that name is known not to be believed. */
static bool has_disbelieved (const GArray *files, const Have *other)
{
    for (guint i = 0; i < files->len; i++)
        if (!is_believable (have_at (files, i)) && have_at (files, i)->file.kind == other->file.kind &&
            compare (have_at (files, i), other) == 0)
            return true;
    return false;
}

typedef enum Given {
    GIVEN,
    GIVEN_NOT,     /* it is not believed */
    GIVEN_NOTHING, /* the endpoint takes no more now */
} Given;

static Given give (EcfsPastJournal *self, size_t position, const Have *have, const atomic_bool *stop)
{
    EcfsJournalFile file;
    char name[ECFS_JOURNAL_NAME_SIZE];
    g_autoptr (GByteArray) bytes = NULL;
    g_autoptr (GError) why = NULL;
    const EcfsArchiveEndpoint *to = ecfs_archive_endpoint (self->archive, position);
    ecfs_journal_file_name (&have->file, name);
    g_autoptr (GPtrArray) rows = load (self, have, &file, &bytes, &why);
    if (rows == NULL || !is_believed (self, have->position, &file, rows)) {
        g_warning ("endpoint %s lacks %s, which tells the past, and does not get it from endpoint %s: %s", to->name,
                   name, ecfs_archive_endpoint (self->archive, have->position)->name,
                   why != NULL ? why->message : "too few endpoints say the same of it");
        disbelieve (self, have, rows != NULL);
        return GIVEN_NOT;
    }
    const bool stored = ecfs_journal_store (to->endpoint, name, bytes, stop, &why);
    if (!stored && why->code == EEXIST)
        return has_disbelieved (self->files[position], have) ? GIVEN_NOT : GIVEN; /* another gave it meanwhile */
    if (!stored) {
        g_warning ("endpoint %s lacks files of the journal that tell the past: %s", to->name, why->message);
        return GIVEN_NOTHING;
    }
    Have own = *have;
    own.position = position;
    g_array_append_val (self->files[position], own);
    return GIVEN;
}

/* Whether that is all, or nothing more can be done; else something was bad, and others may have it. */
static bool give_planned (EcfsPastJournal *self, size_t position, const atomic_bool *stop, int64_t deadline_us)
{
    bool done = true;
    const EcfsJournalFile *torn = NULL; /* of a snapshot, the rest of which is of no use */
    g_autoptr (GArray) wanted = list_wanted (self, position);
    for (guint i = 0; i < wanted->len; i++) {
        const Have *have = have_at (wanted, i);
        if ((stop != NULL && atomic_load (stop)) || ecfs_now_us () >= deadline_us)
            return true;
        if (torn != NULL && is_of (&have->file, torn))
            continue;
        Given given = give (self, position, have, stop);
        if (given == GIVEN_NOTHING)
            return true;
        done = done && given == GIVEN;
        if (given == GIVEN_NOT && have->file.kind == ECFS_JOURNAL_SNAPSHOT)
            torn = &have->file;
    }
    return done;
}

bool ecfs_past_journal_give (EcfsPastJournal *self, const atomic_bool *stop, int64_t deadline_us, GError **error)
{
    for (size_t i = 0; i < self->n_endpoints; i++) {
        bool done = self->files[i] == NULL || !ecfs_lineage_may_write (ecfs_archive_lineage (self->archive), i);
        for (unsigned n = 0; !done && n < PLANS_MAX; n++) {
            done = give_planned (self, i, stop, deadline_us);
            g_array_sort (self->files[i], compare);
        }
        if (stop != NULL && atomic_load (stop))
            return ecfs_fail (error, ECANCELED, "giving back what tells the past is given up");
    }
    return true;
}

/* What the segments have of all that stay, without the endpoint at @position; g_sequence_free (). */
static GSequence *spans_without (const EcfsPastJournal *self, size_t position)
{
    GSequence *spans = make_spans ();
    for (size_t i = 0; i < self->n_endpoints; i++) {
        const bool stays = i != position && self->files[i] != NULL &&
                           ecfs_archive_has_journal (ecfs_archive_endpoint (self->archive, i));
        for (guint j = 0; stays && j < self->files[i]->len; j++)
            if (have_at (self->files[i], j)->file.kind == ECFS_JOURNAL_SEGMENT &&
                is_believable (have_at (self->files[i], j)))
                add_segment (spans, &have_at (self->files[i], j)->file);
    }
    return spans;
}

/* Whether they have all records of the past, whatever another has; over several epochs that is not known. */
static bool is_all (const EcfsPastJournal *self, GSequence *spans)
{
    const EcfsSnapshotRow *newest = &g_array_index (self->rows, EcfsSnapshotRow, 0);
    const EcfsSnapshotRow *oldest = &g_array_index (self->rows, EcfsSnapshotRow, self->rows->len - 1);
    const EcfsJournalFile whole = {
        .epoch = newest->epoch, .first = self->ends ? oldest->sequence + 1 : 1, .last = newest->sequence};
    return oldest->epoch == newest->epoch && (whole.first > whole.last || covers (spans, &whole));
}

bool ecfs_past_journal_left (EcfsPastJournal *self, size_t position, unsigned *ret_n)
{
    unsigned n = 0;
    g_autoptr (GSequence) spans = spans_without (self, position);
    const GArray *files = self->files[position];
    for (guint i = 0; files != NULL && i < files->len; i++) {
        const EcfsJournalFile *file = &have_at (files, i)->file;
        n += file->kind == ECFS_JOURNAL_SEGMENT && !covers (spans, file);
    }
    *ret_n = n;
    return files != NULL || !self->is_wanted || is_all (self, spans);
}
