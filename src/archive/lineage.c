/*
 * What the endpoints tell of the archive, against what the catalog knows. An endpoint says something *newer* when its
 * marker or the name of a journal file there has a higher epoch, or in the catalog's epoch a higher sequence number or
 * a session that the catalog does not know; and it is *claimed* while its marker tells of a recovery under way. Who may
 * lie are fewer than `copies` (as may vanish, and one more), so a statement counts unless fewer than that could be
 * saying it: those who say it, and those who have not answered. What does not count is logged once and left alone.
 *
 * What an endpoint goes through, once in a process, and what moves it on:
 *
 *   not answered   the first round: marker, journal, snapshots, what uploads left
 *   answered       enough others have answered, too, and nothing newer counts: our marker is written
 *   marked         the second round: marker and journal are read behind that, so of two copies that begin at once
 *                  one at least sees the other
 *   checked        journal may be stored there; its marker is read every 20 seconds
 */
#include "archive/lineage.h"

#include "archive/archive_priv.h"
#include "catalog/journal_file.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define INCOMING      "incoming"            /* where endpoints keep what is not finished */
#define MOST_LEFT     10000                 /* names of that; the next mount sees to the rest */
#define FRESH_US      (60 * G_USEC_PER_SEC) /* older answers are none: they allow no deletion, and deny nothing */
#define MARK_AGAIN_US (60 * G_USEC_PER_SEC) /* where it could not be written */
#define CONFIRM_US    (10 * G_USEC_PER_SEC) /* for markers to be read */

_Atomic int64_t ecfs_lineage_again_us = 20 * G_USEC_PER_SEC;
_Atomic int64_t ecfs_lineage_claim_us = 120 * G_USEC_PER_SEC;

typedef enum Round {
    ROUND_FIRST, /* what there is to ask */
    ROUND_MARK,  /* our marker is written */
    ROUND_CHECK, /* what is there behind that */
    ROUND_AGAIN, /* the marker alone */
} Round;

/* What one endpoint was asked and has told. */
typedef struct Witness {
    EcfsLineage *lineage;
    size_t position;
    Round round;           /* under way or the last; guarded by the lineage's lock, as all below */
    unsigned n_asked;      /* answers of it that are due */
    bool failed;           /* one of them was none */
    bool answered;         /* the first round was, once */
    bool checked;          /* … and the second */
    bool ending;           /* they are here, and what follows from them is not begun yet */
    bool told;             /* that it disagrees is in the log */
    int64_t asked_us;      /* by clock_us (), when the round was begun */
    int64_t known_us;      /* when what was answered last was asked */
    int64_t marked_us;     /* when our marker was written, or could not be; 0: never */
    EcfsMarker marker;     /* as read last, … */
    bool is_foreign;       /* … and of a session that is not the catalog's */
    uint32_t listed_epoch; /* of the newest journal file of the last listing, … */
    uint64_t listed_sequence;
    bool is_newer;          /* it says something newer */
    int64_t claim_moved_us; /* when what it says of a claim was another last, … */
    int64_t claim_heard_us; /* … and when it was heard last; 0: there is none */
    uint64_t n_segments;
    GPtrArray *left; /* names of what uploads of journal files and markers left that a crash ended; owned */
} Witness;

struct EcfsLineage {
    EcfsArchive *archive;     /* immutable, as the next three */
    uint64_t opened;          /* the catalog's sequence before this process changed anything, … */
    size_t n_opened;          /* … and its endpoints: later ones are of its making */
    EcfsSnapshotRow snapshot; /* … and the last snapshot; sequence 0: there was none */
    atomic_bool announced;    /* the session is where it could be told */
    EcfsMutex lock;
    EcfsCond changed;
    Witness *witnesses; /* ECFS_ENDPOINTS_MAX; guarded by lock, as the rest */
    EcfsMarker own;     /* what markers are to say, but for the endpoint; session_number 0: not yet */
    unsigned n_due;
    bool is_stale;
    bool is_held;      /* something may be newer, and what would say so does not answer; or a recovery is under way */
    char *reason;      /* of is_stale; stays as it is until reconsidered, … */
    char *hold;        /* … and of is_held */
    bool awaited;      /* from here on nobody but the log is told */
    EcfsUuid claimant; /* the session of the recovery whose claim was heard last */
    bool stopping;
};

/* It goes on while the machine is suspended. */
static int64_t clock_us (void)
{
    struct timespec now = {0};
    (void) clock_gettime (CLOCK_BOOTTIME, &now); /* it is there on every Linux */
    return (int64_t) now.tv_sec * G_USEC_PER_SEC + now.tv_nsec / 1000;
}

static bool is_asked (const EcfsArchiveEndpoint *endpoint)
{
    return ecfs_archive_endpoint_counts (endpoint);
}

/* Judging */

static bool is_claimed_locked (const EcfsLineage *lineage, const Witness *self, int64_t now_us)
    ECFS_REQUIRES (lineage->lock)
{
    return self->claim_heard_us > 0 && now_us - self->claim_moved_us < ecfs_lineage_claim_us;
}

/* "since 2026-01-31 12:00 on HOST", as far as it is told; g_free () */
static char *describe_origin (int64_t since_s, const char *host)
{
    g_autoptr (GDateTime) since = since_s > 0 ? g_date_time_new_from_unix_local (since_s) : NULL;
    g_autofree char *time = since == NULL ? NULL : g_date_time_format (since, "%Y-%m-%d %H:%M");
    return g_strdup_printf ("%s%s%s%s", time == NULL ? "" : " since ", time == NULL ? "" : time,
                            *host == '\0' ? "" : " on ", host);
}

/* What an endpoint says that is newer; g_free () */
static char *describe_locked (const EcfsLineage *lineage, const Witness *self) ECFS_REQUIRES (lineage->lock)
{
    const EcfsMarker *marker = &self->marker;
    const char *name = lineage->archive->endpoints[self->position].name;
    bool listed = self->listed_epoch > marker->epoch ||
                  (self->listed_epoch == marker->epoch && self->listed_sequence > marker->sequence);
    g_autofree char *origin = describe_origin (marker->since_s, marker->host);
    uint32_t epoch = ecfs_catalog_epoch (lineage->archive->catalog);
    if (self->is_foreign && marker->epoch == epoch && (!listed || self->listed_epoch <= epoch))
        return g_strdup_printf ("endpoint %s reports changes by another copy of it (session %" PRIu64 "%s)", name,
                                marker->session_number, origin);
    return g_strdup_printf ("endpoint %s knows of epoch %" PRIu32 ", change %" PRIu64 "%s", name,
                            listed ? self->listed_epoch : marker->epoch,
                            listed ? self->listed_sequence : marker->sequence, listed ? "" : origin);
}

/* The answers of all that count. */
typedef struct Weights {
    size_t n_all, n_silent, n_newer, n_claimed;
    const Witness *newer, *claimed; /* one of them */
} Weights;

static Weights weigh_locked (EcfsLineage *self, int64_t since_us) ECFS_REQUIRES (self->lock)
{
    Weights sum = {0};
    int64_t now_us = clock_us ();
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        const Witness *witness = &self->witnesses[i];
        if (!is_asked (&self->archive->endpoints[i])) /* what one has said that was taken out since counts no more */
            continue;
        sum.n_all++;
        if (witness->is_newer) {
            sum.n_newer++;
            sum.newer = witness;
        } else if (is_claimed_locked (self, witness, now_us)) {
            sum.n_claimed++;
            sum.claimed = witness;
        } else {
            sum.n_silent += !witness->answered || witness->known_us < since_us;
        }
    }
    return sum;
}

static bool counts (const EcfsLineage *self, size_t n_say, size_t n_silent)
{
    return n_say > 0 && n_say + n_silent >= ecfs_archive_journal_copies (self->archive);
}

static void become_stale_locked (EcfsLineage *self, const Witness *witness) ECFS_REQUIRES (self->lock)
{
    EcfsCatalog *catalog = self->archive->catalog;
    g_autofree char *said = describe_locked (self, witness);
    self->is_stale = true;
    self->reason = g_strdup_printf (
        "%s is an old copy: %s, and the catalog ends at epoch %" PRIu32 ", change %" PRIu64
        "; make a new one with 'ecfs recover', or mount this one for reading only with 'ecfs mount -o ro'",
        self->archive->directory, said, ecfs_catalog_epoch (catalog), ecfs_catalog_sequence (catalog));
    if (!self->awaited)
        return;
    ecfs_catalog_refuse (catalog, self->reason);
    g_critical ("%s; changes are refused from now on", self->reason);
}

/* Until somebody answers, or the recovery ends: nothing is stored or deleted that depends on being the newest. */
static void hold_locked (EcfsLineage *self, const Weights *sum) ECFS_REQUIRES (self->lock)
{
    bool held = counts (self, sum->n_newer + sum->n_claimed, sum->n_silent);
    if (!held && self->is_held)
        g_message ("%s is the newest copy: it resumes", self->archive->directory);
    if (held == self->is_held)
        return;
    self->is_held = held;
    g_clear_pointer (&self->hold, g_free);
    if (!held)
        return;
    if (sum->claimed != NULL) {
        const EcfsMarkerClaim *claim = &sum->claimed->marker.claim;
        g_autofree char *origin = describe_origin (claim->since_s, claim->host);
        self->hold = g_strdup_printf ("a recovery of this archive is under way%s: until it ends, nothing more becomes "
                                      "safe without this machine. If it succeeds, this archive directory becomes an "
                                      "old copy. If it is given up, this one resumes two minutes later",
                                      origin);
    } else {
        g_autofree char *said = describe_locked (self, sum->newer);
        self->hold = g_strdup_printf ("%s may be an old copy: %s, and %zu endpoints that could contradict do not "
                                      "answer; see ecfs status, and ecfs-endpoint(1) about 'ecfs endpoint distrust'",
                                      self->archive->directory, said, sum->n_silent);
    }
    g_warning ("%s", self->hold);
}

static bool is_any_asked_locked (EcfsLineage *self) ECFS_REQUIRES (self->lock)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++)
        if (self->witnesses[i].n_asked > 0)
            return true;
    return false;
}

static void tell_disagreeing_locked (EcfsLineage *self) ECFS_REQUIRES (self->lock)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        Witness *witness = &self->witnesses[i];
        if (!witness->is_newer || witness->told || !is_asked (&self->archive->endpoints[i]))
            continue;
        g_autofree char *said = describe_locked (self, witness);
        witness->told = true;
        g_warning (
            "%s, but too few others do for it to be believed: its journal and lineage do not count; if it lies, run "
            "'ecfs endpoint distrust %s %s'",
            said, self->archive->directory, self->archive->endpoints[i].name);
    }
}

/* What all that is known amounts to. */
static void judge_locked (EcfsLineage *self) ECFS_REQUIRES (self->lock)
{
    if (self->is_stale)
        return;
    Weights sum = weigh_locked (self, clock_us () - FRESH_US);
    if (sum.n_newer >= ecfs_archive_journal_copies (self->archive))
        become_stale_locked (self, sum.newer);
    if (!self->awaited || self->is_stale)
        return;
    hold_locked (self, &sum);
    if (!self->is_held && sum.n_newer > 0 && !is_any_asked_locked (self)) /* others may be about to say the same */
        tell_disagreeing_locked (self);
}

/* Nothing of this process is on an endpoint that was there before it and was not checked yet, so what it has changed
 * since makes an old copy no newer. */
static void look_locked (const EcfsLineage *lineage, Witness *self, uint64_t now) ECFS_REQUIRES (lineage->lock)
{
    const EcfsMarker *marker = &self->marker;
    uint64_t sequence = self->checked || self->position >= lineage->n_opened ? now : lineage->opened;
    uint32_t epoch = ecfs_catalog_epoch (lineage->archive->catalog);
    self->is_newer = marker->epoch > epoch || self->listed_epoch > epoch ||
                     (marker->epoch == epoch && (marker->sequence > sequence || self->is_foreign)) ||
                     (self->listed_epoch == epoch && self->listed_sequence > sequence);
    self->told = self->told && self->is_newer;
}

/* Whether so many have answered what was asked at @since_us or later that one of them knows what `ecfs wait` has
 * promised. */
static bool is_sure_locked (EcfsLineage *self, int64_t since_us) ECFS_REQUIRES (self->lock)
{
    size_t n_asked = 0, n_answered = 0, n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        if (!is_asked (&self->archive->endpoints[i]))
            continue;
        n_asked++;
        n_answered += self->witnesses[i].answered && self->witnesses[i].known_us >= since_us;
    }
    return n_answered > 0 && n_answered + ecfs_archive_journal_copies (self->archive) > n_asked;
}

static bool is_trusted_locked (EcfsLineage *self, size_t position) ECFS_REQUIRES (self->lock)
{
    const Witness *witness = &self->witnesses[position];
    return witness->answered && !witness->is_newer && !is_claimed_locked (self, witness, clock_us ()) &&
           !self->is_stale && !self->is_held && is_sure_locked (self, 0);
}

static bool may_write_locked (EcfsLineage *self, size_t position) ECFS_REQUIRES (self->lock)
{
    return self->witnesses[position].checked && is_trusted_locked (self, position);
}

/* Asking */

static void advance (EcfsLineage *self);

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

static void end_round_locked (EcfsLineage *lineage, Witness *self, uint64_t sequence) ECFS_REQUIRES (lineage->lock)
{
    if (self->round == ROUND_MARK) {
        self->marked_us = clock_us ();
        return;
    }
    if (self->failed)
        return;
    self->known_us = self->asked_us;
    look_locked (lineage, self, sequence);
    self->answered = true;
    self->checked = self->checked || self->round == ROUND_CHECK;
    judge_locked (lineage);
}

static void settle (Witness *self, const GError *error)
{
    EcfsLineage *lineage = self->lineage;
    uint64_t sequence = ecfs_catalog_sequence (lineage->archive->catalog);
    ecfs_mutex_lock (&lineage->lock);
    self->failed = self->failed || error != NULL;
    bool ended = --self->n_asked == 0;
    if (ended)
        end_round_locked (lineage, self, sequence);
    self->ending = ended;
    ecfs_mutex_unlock (&lineage->lock);
    if (ended)
        advance (lineage);
    ecfs_mutex_lock (&lineage->lock);
    self->ending = false;
    lineage->n_due--; /* it may be freed from here on */
    ecfs_cond_broadcast (&lineage->changed);
    ecfs_mutex_unlock (&lineage->lock);
}

static void watch_claim_locked (EcfsLineage *lineage, Witness *self, const EcfsMarkerClaim *was)
    ECFS_REQUIRES (lineage->lock)
{
    const EcfsMarkerClaim *claim = &self->marker.claim;
    int64_t now_us = clock_us ();
    if (claim->epoch <= ecfs_catalog_epoch (lineage->archive->catalog)) { /* it came to its end */
        self->claim_heard_us = 0;
        return;
    }
    lineage->claimant = claim->session;
    bool moved = self->claim_heard_us == 0 || claim->count != was->count || claim->epoch != was->epoch ||
                 !ecfs_uuid_equal (&claim->session, &was->session);
    if (moved || now_us - self->claim_heard_us > FRESH_US) /* what it did meanwhile nobody saw */
        self->claim_moved_us = now_us;
    self->claim_heard_us = now_us;
}

static bool hear_marker (Witness *self, const EcfsMarker *marker, GError **error)
{
    EcfsLineage *lineage = self->lineage;
    const EcfsArchive *archive = lineage->archive;
    bool known = marker->session_number == 0;
    if (!ecfs_uuid_equal (&marker->archive, ecfs_catalog_archive (archive->catalog)))
        return ecfs_fail (error, ENOTCONN, "its marker is of another archive");
    if (!known &&
        !ecfs_catalog_session_known (archive->catalog, marker->session_number, &marker->session, &known, error))
        return false;
    ecfs_mutex_lock (&lineage->lock);
    const EcfsMarkerClaim was = self->marker.claim;
    self->marker = *marker;
    self->is_foreign = !known;
    watch_claim_locked (lineage, self, &was);
    ecfs_mutex_unlock (&lineage->lock);
    return true;
}

static void on_marker (void *user, const EcfsMarker *marker, const GError *error)
{
    g_autoptr (GError) foreign = NULL;
    bool heard = error == NULL && hear_marker (user, marker, &foreign);
    settle (user, heard ? NULL : error != NULL ? error : foreign);
}

static void on_marked (void *user, uint64_t value, const GError *error)
{
    (void) value;
    if (error != NULL)
        g_info ("an endpoint cannot note who uses the archive: %s", error->message);
    settle (user, error);
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
    if (file.epoch > self->listed_epoch || (file.epoch == self->listed_epoch && file.last > self->listed_sequence)) {
        self->listed_epoch = file.epoch;
        self->listed_sequence = file.last;
    }
    self->n_segments += self->round == ROUND_FIRST && behind && file.kind == ECFS_JOURNAL_SEGMENT;
    ecfs_mutex_unlock (&self->lineage->lock);
}

static void on_unfinished (void *user, const EcfsListed *listed)
{
    Witness *self = user;
    if (!g_str_has_prefix (listed->name, INCOMING "/" ECFS_JOURNAL_DIRECTORY "-") &&
        !g_str_has_prefix (listed->name, INCOMING "/" ECFS_SNAPSHOT_DIRECTORY "-") &&
        !g_str_has_prefix (listed->name, INCOMING "/" ECFS_MARKER_NAME "."))
        return;
    ecfs_mutex_lock (&self->lineage->lock);
    if (self->left == NULL)
        self->left = g_ptr_array_new_with_free_func (g_free);
    if (self->left->len < MOST_LEFT)
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
    atomic_init (&self->announced, false);
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

void ecfs_lineage_end (EcfsLineage *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_mutex_unlock (&self->lock);
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
    g_free (self->hold);
    g_free (self);
}

/* Nothing of this process is among it: it was there before this process began to write journal. */
static void remove_left (EcfsLineage *self, Witness *witness)
{
    ecfs_mutex_lock (&self->lock);
    GPtrArray *left =
        may_write_locked (self, witness->position) && !self->stopping ? g_steal_pointer (&witness->left) : NULL;
    self->n_due += left == NULL ? 0 : left->len;
    ecfs_mutex_unlock (&self->lock);
    for (guint i = 0; left != NULL && i < left->len; i++)
        ecfs_endpoint_remove (self->archive->endpoints[witness->position].endpoint, g_ptr_array_index (left, i),
                              on_removed, self);
    if (left != NULL)
        g_ptr_array_unref (left);
}

static void begin_round_locked (EcfsLineage *lineage, Witness *self, Round round) ECFS_REQUIRES (lineage->lock)
{
    static const unsigned n_questions[] = {[ROUND_FIRST] = 4, [ROUND_MARK] = 1, [ROUND_CHECK] = 2, [ROUND_AGAIN] = 1};
    self->round = round;
    self->failed = false;
    if (round != ROUND_MARK)
        self->asked_us = clock_us ();
    self->n_asked = n_questions[round];
    lineage->n_due += n_questions[round];
    if (round == ROUND_FIRST || round == ROUND_CHECK) {
        self->listed_epoch = 0;
        self->listed_sequence = 0;
    }
    if (round == ROUND_FIRST) {
        g_clear_pointer (&self->left, g_ptr_array_unref);
        self->n_segments = 0;
    }
}

/* Sends what a round asks. */
static void send_round (EcfsLineage *self, Witness *witness, Round round, const EcfsMarker *marker)
{
    EcfsEndpoint *endpoint = self->archive->endpoints[witness->position].endpoint;
    if (round == ROUND_MARK) {
        ecfs_endpoint_mark (endpoint, marker, false, on_marked, witness);
        return;
    }
    if (round == ROUND_FIRST) {
        ecfs_endpoint_list (endpoint, INCOMING, on_unfinished, on_done, witness);
        ecfs_endpoint_list (endpoint, ECFS_SNAPSHOT_DIRECTORY, on_listed, on_done, witness);
    }
    if (round == ROUND_FIRST || round == ROUND_CHECK)
        ecfs_endpoint_list (endpoint, ECFS_JOURNAL_DIRECTORY, on_listed, on_done, witness);
    ecfs_endpoint_examine (endpoint, on_marker, witness);
}

/* Whether its marker is of a recovery that ended while it wrote markers, and came to nothing: what it claimed is dead,
 * and what it wrote does not count. */
static bool is_abandoned_locked (EcfsLineage *self, const Witness *witness) ECFS_REQUIRES (self->lock)
{
    const EcfsMarker *marker = &witness->marker;
    if (!witness->answered || !witness->is_newer || marker->epoch <= self->own.epoch ||
        ecfs_uuid_is_nil (&self->claimant) || !ecfs_uuid_equal (&marker->session, &self->claimant))
        return false;
    Weights sum = weigh_locked (self, clock_us () - FRESH_US);
    return sum.n_claimed == 0 && !self->is_stale && !self->is_held && is_sure_locked (self, 0);
}

/* Whether what its marker says is not what it should. What a recovery left that is dead is taken back so. */
static bool needs_mark_locked (EcfsLineage *self, const Witness *witness) ECFS_REQUIRES (self->lock)
{
    const EcfsMarker *marker = &witness->marker;
    if (self->own.session_number == 0 ||
        (!is_trusted_locked (self, witness->position) && !is_abandoned_locked (self, witness)))
        return false;
    if (witness->checked && clock_us () - witness->marked_us < MIN (MARK_AGAIN_US, ecfs_lineage_claim_us))
        return false;
    return !witness->checked || marker->epoch != self->own.epoch || marker->claim.epoch > 0 ||
           !ecfs_uuid_equal (&marker->session, &self->own.session);
}

/* Begins what follows from answers: our marker where it may be written, and the look behind it. */
static void advance (EcfsLineage *self)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        Witness *witness = &self->witnesses[i];
        ecfs_mutex_lock (&self->lock);
        bool idle = witness->n_asked == 0 && is_asked (&self->archive->endpoints[i]) && !self->stopping;
        bool check = idle && witness->round == ROUND_MARK;
        bool mark = idle && !check && needs_mark_locked (self, witness);
        Round round = check ? ROUND_CHECK : ROUND_MARK;
        EcfsMarker marker = self->own;
        marker.endpoint = self->archive->endpoints[i].uuid;
        if (check || mark)
            begin_round_locked (self, witness, round);
        ecfs_mutex_unlock (&self->lock);
        if (check || mark)
            send_round (self, witness, round, &marker);
        if (is_asked (&self->archive->endpoints[i]) && !check && !mark)
            remove_left (self, witness);
    }
}

/* Asks what was not asked since @since_us: all that there is to the first questions, and later the marker alone. */
static void ask_since (EcfsLineage *self, int64_t since_us)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->archive->endpoints[i];
        Witness *witness = &self->witnesses[i];
        if (!is_asked (endpoint) || ecfs_endpoint_is_down (endpoint->endpoint))
            continue;
        ecfs_mutex_lock (&self->lock);
        Round round = !witness->answered ? ROUND_FIRST : witness->checked ? ROUND_AGAIN : ROUND_CHECK;
        bool ask = witness->n_asked == 0 && !self->is_stale && !self->stopping &&
                   (!witness->answered || witness->asked_us < since_us);
        if (round == ROUND_CHECK && !(witness->marked_us > 0)) /* nothing was written that could be looked behind */
            round = ROUND_AGAIN;
        if (ask)
            begin_round_locked (self, witness, round);
        ecfs_mutex_unlock (&self->lock);
        if (ask)
            send_round (self, witness, round, NULL);
    }
}

void ecfs_lineage_ask (EcfsLineage *self)
{
    ask_since (self, clock_us () - ecfs_lineage_again_us + 1);
    advance (self);
}

/* The first answers are in: what may be newer is, unless enough deny it. */
static void judge_first_locked (EcfsLineage *self) ECFS_REQUIRES (self->lock)
{
    Weights sum = weigh_locked (self, 0);
    if (!self->is_stale && counts (self, sum.n_newer, sum.n_silent))
        become_stale_locked (self, sum.newer);
    self->awaited = true;
    judge_locked (self);
}

bool ecfs_lineage_await (EcfsLineage *self, int64_t deadline_us, int64_t sure_deadline_us, GError **error)
{
    ecfs_mutex_lock (&self->lock);
    while (is_any_asked_locked (self) && !self->is_stale) {
        bool doubtful = weigh_locked (self, 0).n_newer > 0; /* who is slow may deny it */
        int64_t until_us = is_sure_locked (self, 0) && !doubtful ? sure_deadline_us : deadline_us;
        if (ecfs_now_us () >= until_us)
            break;
        (void) ecfs_cond_wait_until (&self->changed, &self->lock, until_us); /* the loop looks */
    }
    judge_first_locked (self);
    bool is_stale = self->is_stale;
    ecfs_mutex_unlock (&self->lock);
    return !is_stale || ecfs_fail (error, ESTALE, "%s", self->reason); /* the reason stays as it is */
}

/* The session */

bool ecfs_lineage_begin_session (EcfsLineage *self, GError **error)
{
    EcfsCatalog *catalog = self->archive->catalog;
    uint64_t last;
    EcfsMarker own = {.archive = *ecfs_catalog_archive (catalog),
                      .epoch = ecfs_catalog_epoch (catalog),
                      .sequence = self->opened, /* which a crash does not take back */
                      .session = ecfs_uuid_new (),
                      .since_s = g_get_real_time () / G_USEC_PER_SEC,
                      .copies = ecfs_archive_journal_copies (self->archive),
                      .endpoints = (uint32_t) ecfs_archive_n_left (self->archive)};
    if (!ecfs_catalog_session_last (catalog, &last, error))
        return false;
    own.session_number = last + 1;
    ecfs_marker_host (own.host);
    if (!ecfs_catalog_session_begin (catalog, own.session_number, &own.session, error))
        return false;
    ecfs_mutex_lock (&self->lock);
    self->own = own;
    ecfs_mutex_unlock (&self->lock);
    advance (self);
    return true;
}

/* Whether one that may be told has not been. *ret_enough: so many have that whoever looks finds one of them. */
static bool is_untold_locked (EcfsLineage *self, bool *ret_enough) ECFS_REQUIRES (self->lock)
{
    bool untold = false;
    size_t n_all = 0, n_told = 0, n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->archive->endpoints[i];
        const Witness *witness = &self->witnesses[i];
        if (!is_asked (endpoint))
            continue;
        n_all++;
        n_told += witness->checked;
        bool busy = witness->n_asked > 0 || witness->ending;
        untold = untold || (!witness->checked && busy && !ecfs_endpoint_is_down (endpoint->endpoint));
    }
    *ret_enough = n_told > 0 && n_told + ecfs_archive_journal_copies (self->archive) > n_all;
    return untold && !self->is_stale && !self->is_held;
}

void ecfs_lineage_await_session (EcfsLineage *self, int64_t deadline_us, int64_t enough_deadline_us)
{
    bool enough;
    if (atomic_load (&self->announced))
        return;
    ecfs_mutex_lock (&self->lock);
    while (is_untold_locked (self, &enough)) {
        int64_t until_us = enough ? enough_deadline_us : deadline_us;
        if (ecfs_now_us () >= until_us)
            break;
        (void) ecfs_cond_wait_until (&self->changed, &self->lock, until_us); /* the loop looks */
    }
    ecfs_mutex_unlock (&self->lock);
    atomic_store (&self->announced, true);
}

/* What others ask */

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

static bool is_any_busy_locked (EcfsLineage *self) ECFS_REQUIRES (self->lock)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++)
        if (self->witnesses[i].n_asked > 0 || self->witnesses[i].ending)
            return true;
    return false;
}

/* The marker of a session that has just begun may be on its way there, or wait for what others answer. */
static void await_told (EcfsLineage *self, size_t position)
{
    const EcfsArchiveEndpoint *endpoint = &self->archive->endpoints[position];
    int64_t deadline_us = ecfs_now_us () + CONFIRM_US;
    ecfs_mutex_lock (&self->lock);
    while (!self->witnesses[position].checked && !self->is_stale && !self->is_held && !self->stopping &&
           is_any_busy_locked (self) && !ecfs_endpoint_is_down (endpoint->endpoint) && ecfs_now_us () < deadline_us)
        (void) ecfs_cond_wait_until (&self->changed, &self->lock, ecfs_now_us () + G_USEC_PER_SEC / 2);
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_lineage_confirm (EcfsLineage *self, size_t position)
{
    Witness *witness = &self->witnesses[position];
    EcfsMarker marker;
    g_autoptr (GError) error = NULL;
    await_told (self, position);
    int64_t asked_us = clock_us ();
    if (!ecfs_endpoint_examine_wait (self->archive->endpoints[position].endpoint, &marker, &error) ||
        !hear_marker (witness, &marker, &error)) {
        g_info ("deletions have to wait: %s", error->message);
        return false;
    }
    uint64_t sequence = ecfs_catalog_sequence (self->archive->catalog);
    ecfs_mutex_lock (&self->lock);
    look_locked (self, witness, sequence);
    if (witness->answered)
        witness->known_us = MAX (asked_us, witness->known_us);
    judge_locked (self);
    ecfs_mutex_unlock (&self->lock);
    return ecfs_lineage_may_delete (self, position);
}

bool ecfs_lineage_may_delete (EcfsLineage *self, size_t position)
{
    int64_t since_us = clock_us () - FRESH_US;
    ecfs_mutex_lock (&self->lock);
    bool may = may_write_locked (self, position) && self->witnesses[position].known_us >= since_us &&
               is_sure_locked (self, since_us);
    ecfs_mutex_unlock (&self->lock);
    return may;
}

/* Whether what is @stored is there to stay, by markers that were asked for at @since_us or later. *ret_pending: more of
 * them may come. *ret_n_good: how many have it. */
static bool is_confirmed_locked (EcfsLineage *self, const bool *stored, size_t n_endpoints, int64_t since_us,
                                 bool *ret_pending, size_t *ret_n_good) ECFS_REQUIRES (self->lock)
{
    size_t n_copies = ecfs_archive_journal_copies (self->archive), n_heard = 0;
    Weights sum = weigh_locked (self, since_us);
    *ret_n_good = 0;
    *ret_pending = false;
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->archive->endpoints[i];
        const Witness *witness = &self->witnesses[i];
        if (!is_asked (endpoint))
            continue;
        bool heard = witness->answered && witness->known_us >= since_us;
        n_heard += heard;
        *ret_n_good += heard && stored[i] && !witness->is_newer && !is_claimed_locked (self, witness, clock_us ());
        *ret_pending = *ret_pending || (!heard && !ecfs_endpoint_is_down (endpoint->endpoint) &&
                                        (witness->n_asked > 0 || witness->asked_us < since_us));
    }
    return *ret_n_good >= n_copies && n_heard + n_copies > sum.n_all && !self->is_stale &&
           !counts (self, sum.n_newer + sum.n_claimed, sum.n_silent);
}

bool ecfs_lineage_confirm_stored (EcfsLineage *self, const bool *stored, size_t n_endpoints,
                                  bool (*goes_on) (void *user), void *user, size_t *ret_n_good, GError **error)
{
    int64_t since_us = clock_us (), deadline_us = ecfs_now_us () + CONFIRM_US;
    bool pending = true, confirmed = false, on = true;
    *ret_n_good = 0;
    while (!confirmed && pending && on && ecfs_now_us () < deadline_us) {
        ask_since (self, since_us);
        ecfs_mutex_lock (&self->lock);
        confirmed = is_confirmed_locked (self, stored, n_endpoints, since_us, &pending, ret_n_good);
        if (!confirmed && pending && !self->is_stale)
            (void) ecfs_cond_wait_until (&self->changed, &self->lock, ecfs_now_us () + G_USEC_PER_SEC / 2);
        pending = pending && !self->is_stale;
        ecfs_mutex_unlock (&self->lock);
        on = goes_on == NULL || goes_on (user);
    }
    if (confirmed)
        return true;
    g_autofree char *trouble = ecfs_lineage_trouble (self);
    return trouble != NULL ? ecfs_fail (error, ESTALE, "%s", trouble)
                           : ecfs_fail (error, EAGAIN, "too few endpoints confirm it");
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
    bool sure = is_sure_locked (self, 0);
    ecfs_mutex_unlock (&self->lock);
    return sure;
}

char *ecfs_lineage_trouble (EcfsLineage *self)
{
    ecfs_mutex_lock (&self->lock);
    char *reason = g_strdup (self->is_stale ? self->reason : self->hold);
    ecfs_mutex_unlock (&self->lock);
    return reason;
}

bool ecfs_lineage_is_stale (EcfsLineage *self)
{
    ecfs_mutex_lock (&self->lock);
    bool stale = self->is_stale;
    ecfs_mutex_unlock (&self->lock);
    return stale;
}

char *ecfs_lineage_disagreement (EcfsLineage *self, size_t position)
{
    ecfs_mutex_lock (&self->lock);
    const Witness *witness = &self->witnesses[position];
    char *said = witness->is_newer ? describe_locked (self, witness) : NULL;
    ecfs_mutex_unlock (&self->lock);
    return said;
}

bool ecfs_lineage_successor (EcfsLineage *self, EcfsLineageOther *ret_other)
{
    EcfsLineageOther other = {.n_endpoints = 0};
    uint64_t sequence = 0;
    ecfs_mutex_lock (&self->lock);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++) {
        const Witness *witness = &self->witnesses[i];
        const EcfsMarker *marker = &witness->marker;
        if (!witness->is_newer || !is_asked (&self->archive->endpoints[i]))
            continue;
        other.n_endpoints++;
        if (marker->epoch < other.epoch || (marker->epoch == other.epoch && marker->sequence < sequence))
            continue;
        other.epoch = marker->epoch;
        other.since_s = marker->since_s;
        memcpy (other.host, marker->host, sizeof other.host);
        sequence = marker->sequence;
    }
    ecfs_mutex_unlock (&self->lock);
    if (other.n_endpoints > 0)
        *ret_other = other;
    return other.n_endpoints > 0;
}

bool ecfs_lineage_claim (EcfsLineage *self, EcfsLineageOther *ret_other)
{
    EcfsLineageOther other = {.n_endpoints = 0};
    ecfs_mutex_lock (&self->lock);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++) {
        const Witness *witness = &self->witnesses[i];
        const EcfsMarkerClaim *claim = &witness->marker.claim;
        if (!is_asked (&self->archive->endpoints[i]) || !is_claimed_locked (self, witness, clock_us ()))
            continue;
        other.n_endpoints++;
        if (claim->epoch < other.epoch)
            continue;
        other.epoch = claim->epoch;
        other.since_s = claim->since_s;
        memcpy (other.host, claim->host, sizeof other.host);
    }
    ecfs_mutex_unlock (&self->lock);
    if (other.n_endpoints > 0)
        *ret_other = other;
    return other.n_endpoints > 0;
}

void ecfs_lineage_foreign_segment (EcfsLineage *self, size_t position)
{
    ecfs_mutex_lock (&self->lock);
    Witness *witness = &self->witnesses[position];
    witness->is_foreign = true;
    witness->is_newer = true;
    judge_locked (self);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_lineage_reconsider (EcfsLineage *self)
{
    ecfs_mutex_lock (&self->lock);
    Weights sum = weigh_locked (self, 0);
    if (self->is_stale && !counts (self, sum.n_newer, sum.n_silent)) {
        self->is_stale = false;
        g_clear_pointer (&self->reason, g_free);
        ecfs_catalog_allow (self->archive->catalog);
        g_message ("%s takes changes again", self->archive->directory);
    } else if (self->is_stale) {
        ecfs_catalog_refuse (self->archive->catalog, self->reason);
    }
    judge_locked (self);
    ecfs_cond_broadcast (&self->changed);
    ecfs_mutex_unlock (&self->lock);
}
