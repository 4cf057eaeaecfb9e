/*
 * Whether the endpoints know of anything newer than the catalog: a higher epoch, or in its epoch a higher sequence
 * number, in a marker or in the name of a journal file. Then the catalog is an old copy, and nothing that it says may
 * be deleted or written over.
 */
#include "archive/lineage.h"

#include "archive/archive_priv.h"
#include "catalog/journal_file.h"

#include <inttypes.h>
#include <time.h>

#define INCOMING  "incoming" /* where endpoints keep what is not finished */
#define QUESTIONS 4
#define AGAIN_US                                                                                                       \
    (20 * G_USEC_PER_SEC)              /* until the marker is read again: somebody may recover the archive elsewhere   \
                                        */
#define FRESH_US (60 * G_USEC_PER_SEC) /* older answers allow no deletion */

/* What one endpoint was asked and has told. */
typedef struct Witness {
    EcfsLineage *lineage;
    size_t position;
    unsigned n_asked; /* answers that are due; guarded by the lineage's lock, as all below */
    bool failed;      /* one of them was none */
    bool answered;    /* all of them were, once */
    int64_t asked_us; /* by clock_us (), when it was asked last */
    int64_t known_us; /* when what was answered last was asked */
    uint32_t epoch;
    uint64_t sequence; /* the highest of that epoch */
    uint64_t n_segments;
    GPtrArray *left; /* names of what uploads of journal files left that a crash ended; owned */
} Witness;

struct EcfsLineage {
    EcfsArchive *archive;     /* immutable, as the next three */
    uint64_t opened;          /* the catalog's sequence before this process changed anything, … */
    size_t n_opened;          /* … and its endpoints: later ones are of its making */
    EcfsSnapshotRow snapshot; /* … and the last snapshot; sequence 0: there was none */
    EcfsMutex lock;
    EcfsCond changed;
    Witness *witnesses; /* ECFS_ENDPOINTS_MAX; guarded by lock, as the rest */
    unsigned n_due;
    bool is_stale;
    char *reason;
    bool awaited; /* from here on nobody but the log is told */
};

/* It goes on while the machine is suspended. */
static int64_t clock_us (void)
{
    struct timespec now = {0};
    (void) clock_gettime (CLOCK_BOOTTIME, &now); /* it is there on every Linux */
    return (int64_t) now.tv_sec * G_USEC_PER_SEC + now.tv_nsec / 1000;
}

static void hear_locked (Witness *self, uint32_t epoch, uint64_t sequence) ECFS_REQUIRES (self->lineage->lock)
{
    if (epoch < self->epoch || (epoch == self->epoch && sequence <= self->sequence))
        return;
    self->epoch = epoch;
    self->sequence = sequence;
}

/* Nothing of this process is on an endpoint that was there before it and has not answered yet, so what it has changed
 * since makes an old copy no newer. */
static void judge_locked (EcfsLineage *self, const Witness *witness, uint64_t now) ECFS_REQUIRES (self->lock)
{
    uint64_t sequence = witness->answered || witness->position >= self->n_opened ? now : self->opened;
    uint32_t epoch = ecfs_catalog_epoch (self->archive->catalog);
    if (self->is_stale || witness->epoch < epoch || (witness->epoch == epoch && witness->sequence <= sequence))
        return;
    self->is_stale = true;
    self->reason = g_strdup_printf (
        "%s is an old copy: endpoint %s knows of epoch %" PRIu32 ", change %" PRIu64 ", and the catalog ends at epoch "
        "%" PRIu32 ", change %" PRIu64 "; make it new with 'ecfs recover', or mount this one for reading only (-o ro)",
        self->archive->directory, self->archive->endpoints[witness->position].name, witness->epoch, witness->sequence,
        epoch, sequence);
    if (!self->awaited)
        return;
    ecfs_catalog_refuse (self->archive->catalog, self->reason);
    g_critical ("%s; changes are refused from here on", self->reason);
}

static void on_removed (void *user, uint64_t value, const GError *error)
{
    EcfsLineage *self = user;
    (void) value;
    if (error != NULL && error->code != ENOENT)
        g_info ("what an unfinished upload left stays for now: %s", error->message);
    ecfs_mutex_lock (&self->lock);
    self->n_due--;
    ecfs_cond_broadcast (&self->changed);
    ecfs_mutex_unlock (&self->lock);
}

static void settle (Witness *self, const GError *error)
{
    EcfsLineage *lineage = self->lineage;
    uint64_t sequence = ecfs_catalog_sequence (lineage->archive->catalog);
    ecfs_mutex_lock (&lineage->lock);
    self->failed = self->failed || error != NULL;
    lineage->n_due--;
    if (--self->n_asked == 0 && !self->failed) {
        judge_locked (lineage, self, sequence);
        self->answered = true;
        self->known_us = self->asked_us;
    }
    ecfs_cond_broadcast (&lineage->changed);
    ecfs_mutex_unlock (&lineage->lock);
}

static bool hear_marker (Witness *self, const EcfsMarker *marker, GError **error)
{
    const EcfsArchive *archive = self->lineage->archive;
    if (!ecfs_uuid_equal (&marker->archive, ecfs_catalog_archive (archive->catalog)))
        return ecfs_fail (error, ENOTCONN, "its marker is of another archive");
    ecfs_mutex_lock (&self->lineage->lock);
    hear_locked (self, marker->epoch, marker->sequence);
    ecfs_mutex_unlock (&self->lineage->lock);
    return true;
}

static void on_marker (void *user, const EcfsMarker *marker, const GError *error)
{
    g_autoptr (GError) foreign = NULL;
    bool heard = error == NULL && hear_marker (user, marker, &foreign);
    settle (user, heard ? NULL : error != NULL ? error : foreign);
}

static void on_listed (void *user, const EcfsListed *listed)
{
    Witness *self = user;
    EcfsJournalFile file;
    if (!ecfs_journal_file_name_parse (listed->name, &file))
        return;
    const EcfsSnapshotRow *snapshot = &self->lineage->snapshot;
    bool behind = file.epoch > snapshot->epoch || (file.epoch == snapshot->epoch && file.last > snapshot->sequence);
    /* Only markers say that an epoch has begun: a recovery that was killed leaves the snapshot of one that never did.
     */
    if (file.epoch > ecfs_catalog_epoch (self->lineage->archive->catalog))
        return;
    ecfs_mutex_lock (&self->lineage->lock);
    hear_locked (self, file.epoch, file.last);
    self->n_segments += behind && file.kind == ECFS_JOURNAL_SEGMENT;
    ecfs_mutex_unlock (&self->lineage->lock);
}

static void on_unfinished (void *user, const EcfsListed *listed)
{
    Witness *self = user;
    if (!g_str_has_prefix (listed->name, INCOMING "/" ECFS_JOURNAL_DIRECTORY "-") &&
        !g_str_has_prefix (listed->name, INCOMING "/" ECFS_SNAPSHOT_DIRECTORY "-"))
        return;
    ecfs_mutex_lock (&self->lineage->lock);
    if (self->left == NULL)
        self->left = g_ptr_array_new_with_free_func (g_free);
    g_ptr_array_add (self->left, g_strdup (listed->name));
    ecfs_mutex_unlock (&self->lineage->lock);
}

static void on_done (void *user, uint64_t value, const GError *error)
{
    (void) value;
    settle (user, error);
}

EcfsLineage *ecfs_lineage_new (EcfsArchive *archive)
{
    EcfsLineage *self = g_new0 (EcfsLineage, 1);
    self->archive = archive;
    self->opened = ecfs_catalog_sequence (archive->catalog);
    self->n_opened = ecfs_archive_n_endpoints (archive);
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (archive->catalog, NULL); /* without them all segments count */
    if (rows != NULL && rows->len > 0)
        self->snapshot = g_array_index (rows, EcfsSnapshotRow, 0);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->changed);
    self->witnesses = g_new0 (Witness, ECFS_ENDPOINTS_MAX);
    for (size_t i = 0; i < ECFS_ENDPOINTS_MAX; i++)
        self->witnesses[i] = (Witness){.lineage = self, .position = i};
    return self;
}

void ecfs_lineage_free (EcfsLineage *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    while (self->n_due > 0) /* endpoints that were stopped have answered */
        (void) ecfs_cond_wait_until (&self->changed, &self->lock, ecfs_now_us () + G_USEC_PER_SEC);
    ecfs_mutex_unlock (&self->lock);
    ecfs_cond_clear (&self->changed);
    ecfs_mutex_clear (&self->lock);
    for (size_t i = 0; i < ECFS_ENDPOINTS_MAX; i++)
        g_clear_pointer (&self->witnesses[i].left, g_ptr_array_unref);
    g_free (self->witnesses);
    g_free (self->reason);
    g_free (self);
}

static bool is_asked (const EcfsArchiveEndpoint *endpoint)
{
    return ecfs_archive_endpoint_counts (endpoint);
}

/* Whether so many have answered what was asked at @since_us or later that one of them knows what `ecfs wait` has
 * promised. */
static bool is_sure_locked (EcfsLineage *self, size_t n_endpoints, int64_t since_us) ECFS_REQUIRES (self->lock)
{
    size_t n_asked = 0, n_answered = 0;
    for (size_t i = 0; i < n_endpoints; i++) {
        if (!is_asked (&self->archive->endpoints[i])) /* what one has said that was taken out since counts no more */
            continue;
        n_asked++;
        n_answered += self->witnesses[i].answered && self->witnesses[i].known_us >= since_us;
    }
    return n_answered > 0 && n_answered + ecfs_archive_journal_copies (self->archive) > n_asked;
}

static bool may_write_locked (EcfsLineage *self, size_t position) ECFS_REQUIRES (self->lock)
{
    return self->witnesses[position].answered && !self->is_stale &&
           is_sure_locked (self, ecfs_archive_n_endpoints (self->archive), 0);
}

/* Nothing of this process is among it: it was there before this process began to write journal. */
static void remove_left (EcfsLineage *self, Witness *witness)
{
    ecfs_mutex_lock (&self->lock);
    GPtrArray *left = may_write_locked (self, witness->position) ? g_steal_pointer (&witness->left) : NULL;
    self->n_due += left == NULL ? 0 : left->len;
    ecfs_mutex_unlock (&self->lock);
    for (guint i = 0; left != NULL && i < left->len; i++)
        ecfs_endpoint_remove (self->archive->endpoints[witness->position].endpoint, g_ptr_array_index (left, i),
                              on_removed, self);
    if (left != NULL)
        g_ptr_array_unref (left);
}

/* How many answers are to come now: all that there are to the first questions, and later the marker alone. */
static unsigned begin_questions (EcfsLineage *self, Witness *witness)
{
    int64_t now_us = clock_us ();
    ecfs_mutex_lock (&self->lock);
    unsigned n_questions = witness->answered ? 1 : QUESTIONS;
    if (witness->n_asked > 0 || self->is_stale || (witness->answered && now_us - witness->asked_us < AGAIN_US))
        n_questions = 0;
    if (n_questions > 0) {
        witness->failed = false;
        witness->asked_us = now_us;
        witness->n_asked = n_questions;
        self->n_due += n_questions;
    }
    if (n_questions == QUESTIONS) {
        g_clear_pointer (&witness->left, g_ptr_array_unref);
        witness->n_segments = 0;
    }
    ecfs_mutex_unlock (&self->lock);
    return n_questions;
}

void ecfs_lineage_ask (EcfsLineage *self)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->archive->endpoints[i];
        Witness *witness = &self->witnesses[i];
        if (!is_asked (endpoint) || ecfs_endpoint_is_down (endpoint->endpoint))
            continue;
        remove_left (self, witness);
        unsigned n_questions = begin_questions (self, witness);
        if (n_questions > 0)
            ecfs_endpoint_examine (endpoint->endpoint, on_marker, witness);
        if (n_questions < QUESTIONS)
            continue;
        ecfs_endpoint_list (endpoint->endpoint, INCOMING, on_unfinished, on_done, witness);
        ecfs_endpoint_list (endpoint->endpoint, ECFS_JOURNAL_DIRECTORY, on_listed, on_done, witness);
        ecfs_endpoint_list (endpoint->endpoint, ECFS_SNAPSHOT_DIRECTORY, on_listed, on_done, witness);
    }
}

static bool is_any_asked_locked (EcfsLineage *self, size_t n_endpoints) ECFS_REQUIRES (self->lock)
{
    for (size_t i = 0; i < n_endpoints; i++)
        if (self->witnesses[i].n_asked > 0)
            return true;
    return false;
}

bool ecfs_lineage_await (EcfsLineage *self, int64_t deadline_us, int64_t sure_deadline_us, GError **error)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    ecfs_mutex_lock (&self->lock);
    while (is_any_asked_locked (self, n_endpoints) && !self->is_stale) {
        int64_t until_us = is_sure_locked (self, n_endpoints, 0) ? sure_deadline_us : deadline_us;
        if (ecfs_now_us () >= until_us)
            break;
        (void) ecfs_cond_wait_until (&self->changed, &self->lock, until_us); /* the loop looks */
    }
    bool is_stale = self->is_stale;
    self->awaited = true;
    ecfs_mutex_unlock (&self->lock);
    return !is_stale || ecfs_fail (error, ESTALE, "%s", self->reason); /* the reason stays as it is */
}

bool ecfs_lineage_is_asking (EcfsLineage *self, size_t position)
{
    ecfs_mutex_lock (&self->lock);
    bool asking = self->witnesses[position].n_asked > 0;
    ecfs_mutex_unlock (&self->lock);
    return asking;
}

bool ecfs_lineage_may_write (EcfsLineage *self, size_t position)
{
    ecfs_mutex_lock (&self->lock);
    bool may = may_write_locked (self, position);
    ecfs_mutex_unlock (&self->lock);
    return may;
}

bool ecfs_lineage_confirm (EcfsLineage *self, size_t position)
{
    Witness *witness = &self->witnesses[position];
    EcfsMarker marker;
    g_autoptr (GError) error = NULL;
    int64_t asked_us = clock_us ();
    if (!ecfs_endpoint_examine_wait (self->archive->endpoints[position].endpoint, &marker, &error) ||
        !hear_marker (witness, &marker, &error)) {
        g_info ("deletions have to wait: %s", error->message);
        return false;
    }
    uint64_t sequence = ecfs_catalog_sequence (self->archive->catalog);
    ecfs_mutex_lock (&self->lock);
    judge_locked (self, witness, sequence);
    if (witness->answered)
        witness->known_us = asked_us;
    ecfs_mutex_unlock (&self->lock);
    return ecfs_lineage_may_delete (self, position);
}

bool ecfs_lineage_may_delete (EcfsLineage *self, size_t position)
{
    int64_t since_us = clock_us () - FRESH_US;
    ecfs_mutex_lock (&self->lock);
    bool may = may_write_locked (self, position) && self->witnesses[position].known_us >= since_us &&
               is_sure_locked (self, ecfs_archive_n_endpoints (self->archive), since_us);
    ecfs_mutex_unlock (&self->lock);
    return may;
}

uint64_t ecfs_lineage_n_segments (EcfsLineage *self)
{
    uint64_t most = 0;
    ecfs_mutex_lock (&self->lock);
    for (size_t i = 0; i < ECFS_ENDPOINTS_MAX; i++)
        most = MAX (most, self->witnesses[i].n_segments);
    ecfs_mutex_unlock (&self->lock);
    return most;
}

bool ecfs_lineage_is_sure (EcfsLineage *self)
{
    ecfs_mutex_lock (&self->lock);
    bool sure = is_sure_locked (self, ecfs_archive_n_endpoints (self->archive), 0);
    ecfs_mutex_unlock (&self->lock);
    return sure;
}

char *ecfs_lineage_trouble (EcfsLineage *self)
{
    ecfs_mutex_lock (&self->lock);
    char *reason = g_strdup (self->reason);
    ecfs_mutex_unlock (&self->lock);
    return reason;
}
