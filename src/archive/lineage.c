/*
 * Whether the endpoints know of anything newer than the catalog: a higher epoch, or in its epoch a higher sequence
 * number, in a marker or in the name of a journal file. Then the catalog is an old copy, and nothing that it says may
 * be deleted or written over.
 */
#include "archive/lineage.h"

#include "archive/archive_priv.h"
#include "catalog/journal_file.h"

#include <inttypes.h>

#define INCOMING  "incoming" /* where endpoints keep what is not finished */
#define QUESTIONS 4

/* What one endpoint was asked and has told. */
typedef struct Witness {
    EcfsLineage *lineage;
    size_t position;
    unsigned n_asked; /* answers that are due; guarded by the lineage's lock, as all below */
    bool failed;      /* one of them was none */
    bool answered;    /* all of them were, once */
    uint32_t epoch;
    uint64_t sequence; /* the highest of that epoch */
    GPtrArray *left;   /* names of what uploads of journal files left that a crash ended; owned */
} Witness;

struct EcfsLineage {
    EcfsArchive *archive; /* immutable, as the next two */
    uint64_t opened;      /* the catalog's sequence before this process changed anything, … */
    size_t n_opened;      /* … and its endpoints: later ones are of its making */
    EcfsMutex lock;
    EcfsCond changed;
    Witness *witnesses; /* ECFS_ENDPOINTS_MAX; guarded by lock, as the rest */
    unsigned n_due;
    bool is_stale;
    char *reason;
};

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
    }
    ecfs_cond_broadcast (&lineage->changed);
    ecfs_mutex_unlock (&lineage->lock);
}

static void on_marker (void *user, const EcfsMarker *marker, const GError *error)
{
    Witness *self = user;
    const EcfsArchive *archive = self->lineage->archive;
    g_autoptr (GError) foreign = NULL;
    if (error == NULL && !ecfs_uuid_equal (&marker->archive, ecfs_catalog_archive (archive->catalog)))
        foreign = g_error_new_literal (ECFS_ERROR, ENOTCONN, "its marker is of another archive");
    if (error == NULL && foreign == NULL) {
        ecfs_mutex_lock (&self->lineage->lock);
        hear_locked (self, marker->epoch, marker->sequence);
        ecfs_mutex_unlock (&self->lineage->lock);
    }
    settle (self, error != NULL ? error : foreign);
}

static void on_listed (void *user, const EcfsListed *listed)
{
    Witness *self = user;
    EcfsJournalFile file;
    if (!ecfs_journal_file_name_parse (listed->name, &file))
        return;
    ecfs_mutex_lock (&self->lineage->lock);
    hear_locked (self, file.epoch, file.last);
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
    return endpoint->endpoint != NULL && endpoint->state != ECFS_ENDPOINT_FAILED;
}

/* Whether so many have answered that one of them knows what `ecfs wait` has promised. */
static bool is_sure_locked (EcfsLineage *self, size_t n_endpoints) ECFS_REQUIRES (self->lock)
{
    size_t n_asked = 0, n_answered = 0;
    for (size_t i = 0; i < n_endpoints; i++) {
        n_asked += is_asked (&self->archive->endpoints[i]);
        n_answered += self->witnesses[i].answered;
    }
    return n_answered > 0 && n_answered + ecfs_archive_journal_copies (self->archive) > n_asked;
}

static bool may_write_locked (EcfsLineage *self, size_t position) ECFS_REQUIRES (self->lock)
{
    return self->witnesses[position].answered && !self->is_stale &&
           is_sure_locked (self, ecfs_archive_n_endpoints (self->archive));
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

void ecfs_lineage_ask (EcfsLineage *self)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->archive->endpoints[i];
        Witness *witness = &self->witnesses[i];
        if (!is_asked (endpoint) || ecfs_endpoint_is_down (endpoint->endpoint))
            continue;
        ecfs_mutex_lock (&self->lock);
        bool ask = !witness->answered && witness->n_asked == 0;
        if (ask) {
            witness->failed = false;
            g_clear_pointer (&witness->left, g_ptr_array_unref);
            witness->n_asked = QUESTIONS;
            self->n_due += QUESTIONS;
        }
        ecfs_mutex_unlock (&self->lock);
        remove_left (self, witness);
        if (!ask)
            continue;
        ecfs_endpoint_examine (endpoint->endpoint, on_marker, witness);
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
        int64_t until_us = is_sure_locked (self, n_endpoints) ? sure_deadline_us : deadline_us;
        if (ecfs_now_us () >= until_us)
            break;
        (void) ecfs_cond_wait_until (&self->changed, &self->lock, until_us); /* the loop looks */
    }
    bool is_stale = self->is_stale;
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

bool ecfs_lineage_is_sure (EcfsLineage *self)
{
    ecfs_mutex_lock (&self->lock);
    bool sure = is_sure_locked (self, ecfs_archive_n_endpoints (self->archive));
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
