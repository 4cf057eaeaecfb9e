/*
 * What the answers amount to. An endpoint says something *newer* when its marker or the name of a journal file there
 * has a higher epoch, or in the catalog's epoch a higher sequence number or a session that the catalog does not know;
 * and it is *claimed* while its marker tells of a recovery under way. Who may lie are fewer than `copies` (as may
 * vanish, and one more), so a statement counts unless fewer than that could be saying it: those who say it, and those
 * who have not answered. What does not count is logged once and left alone.
 *
 * Where the archive has a key, a marker that is not authentic is no answer, whatever it says. One under a key that is
 * not here says that this copy is old.
 */
#include "archive/lineage_priv.h"

#include <inttypes.h>
#include <time.h>

#define SIGN_AGAIN_US (60 * G_USEC_PER_SEC) /* where it could not be written */

int64_t ecfs_lineage_clock_us (void)
{
    struct timespec now = {0};
    (void) clock_gettime (CLOCK_BOOTTIME, &now); /* it is there on every Linux */
    return (int64_t) now.tv_sec * G_USEC_PER_SEC + now.tv_nsec / 1000;
}

bool ecfs_lineage_is_claimed_locked (const EcfsLineage *lineage, const EcfsWitness *self, int64_t now_us)
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

char *ecfs_lineage_describe_locked (const EcfsLineage *lineage, const EcfsWitness *self)
{
    const EcfsMarker *marker = &self->marker;
    const char *name = lineage->archive->endpoints[self->position].name;
    bool listed = self->listed_epoch > marker->epoch ||
                  (self->listed_epoch == marker->epoch && self->listed_sequence > marker->sequence);
    g_autofree char *origin = describe_origin (marker->since_s, marker->host);
    uint32_t epoch = ecfs_catalog_epoch (lineage->archive->catalog);
    if (self->worth == ECFS_MARKER_UNKNOWN_KEY) {
        g_autofree char *fault = ecfs_marker_fault (marker, self->worth);
        return g_strdup_printf ("endpoint %s: %s", name, fault);
    }
    if ((self->is_foreign || self->is_forked) && marker->epoch == epoch && (!listed || self->listed_epoch <= epoch))
        return g_strdup_printf ("endpoint %s reports changes by another copy of it (session %" PRIu64 "%s)", name,
                                marker->session_number, origin);
    return g_strdup_printf ("endpoint %s knows of epoch %" PRIu32 ", change %" PRIu64 "%s", name,
                            listed ? self->listed_epoch : marker->epoch,
                            listed ? self->listed_sequence : marker->sequence, listed ? "" : origin);
}

EcfsWeights ecfs_lineage_weigh_locked (EcfsLineage *self, int64_t since_us)
{
    EcfsWeights sum = {0};
    int64_t now_us = ecfs_lineage_clock_us ();
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsWitness *witness = &self->witnesses[i];
        /* What one has said that was taken out since counts no more. */
        if (!ecfs_lineage_is_asked (&self->archive->endpoints[i]))
            continue;
        sum.n_all++;
        if (witness->is_newer) {
            sum.n_newer++;
            sum.newer = witness;
        } else if (ecfs_lineage_is_claimed_locked (self, witness, now_us)) {
            sum.n_claimed++;
            sum.claimed = witness;
        } else {
            sum.n_silent += !ecfs_lineage_has_answered (witness, since_us);
        }
    }
    return sum;
}

bool ecfs_lineage_counts (const EcfsLineage *self, size_t n_say, size_t n_silent)
{
    return n_say > 0 && n_say + n_silent >= ecfs_archive_journal_copies (self->archive);
}

static void become_stale_locked (EcfsLineage *self, const EcfsWitness *witness) ECFS_REQUIRES (self->lock)
{
    EcfsCatalog *catalog = self->archive->catalog;
    g_autofree char *said = ecfs_lineage_describe_locked (self, witness);
    bool recovered = MAX (witness->marker.epoch, witness->listed_epoch) > ecfs_catalog_epoch (catalog) &&
                     witness->worth != ECFS_MARKER_UNKNOWN_KEY;
    self->is_stale = true;
    self->reason = g_strdup_printf (
        "%s is an old copy: %s%s, and the catalog ends at epoch %" PRIu32 ", change %" PRIu64
        "; 'ecfs takeover' makes it the newest again and keeps what only it has, and 'ecfs mount -o ro' mounts it for "
        "reading only",
        self->archive->directory, recovered ? "the archive was recovered elsewhere, as " : "", said,
        ecfs_catalog_epoch (catalog), ecfs_catalog_sequence (catalog));
    if (!self->awaited)
        return;
    ecfs_catalog_refuse (catalog, self->reason);
    g_critical ("%s; changes are refused from now on", self->reason);
}

/* Until somebody answers, or the recovery ends: nothing is stored or deleted that depends on being the newest. */
static void hold_locked (EcfsLineage *self, const EcfsWeights *sum) ECFS_REQUIRES (self->lock)
{
    bool held = ecfs_lineage_counts (self, sum->n_newer + sum->n_claimed, sum->n_silent);
    if (!held && self->is_held)
        g_message ("%s is the newest copy: it resumes", self->archive->directory);
    if (held == self->is_held && (sum->claimed != NULL) == self->is_hold_of_claim)
        return;
    self->is_held = held;
    self->is_hold_of_claim = held && sum->claimed != NULL;
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
        g_autofree char *said = ecfs_lineage_describe_locked (self, sum->newer);
        self->hold = g_strdup_printf ("%s may be an old copy: %s, and %zu endpoints that could contradict do not "
                                      "answer; see ecfs status, and ecfs-endpoint(1) about 'ecfs endpoint distrust'",
                                      self->archive->directory, said, sum->n_silent);
    }
    g_warning ("%s", self->hold);
}

bool ecfs_lineage_is_any_asked_locked (EcfsLineage *self)
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
        EcfsWitness *witness = &self->witnesses[i];
        if (!witness->is_newer || witness->told || !ecfs_lineage_is_asked (&self->archive->endpoints[i]))
            continue;
        g_autofree char *said = ecfs_lineage_describe_locked (self, witness);
        witness->told = true;
        g_warning (
            "%s, but too few others do for it to be believed: its journal and lineage do not count; if it lies, run "
            "'ecfs endpoint distrust %s %s'",
            said, self->archive->directory, self->archive->endpoints[i].name);
    }
}

char *ecfs_lineage_doubt_locked (const EcfsLineage *lineage, const EcfsWitness *self)
{
    g_autofree char *fault =
        ecfs_marker_is_doubtful (self->worth) ? ecfs_marker_fault (&self->marker, self->worth) : NULL;
    return fault == NULL ? NULL
                         : g_strdup_printf ("endpoint %s: %s", lineage->archive->endpoints[self->position].name, fault);
}

/* Markers that are not authentic: their endpoints count as if they did not answer, and are named. And how many have to
 * deny that there is anything newer before something is deleted: with a key an endpoint that lies can still show an
 * older marker, so a single honest one that answers is not enough, as it would be outvoted. */

static bool denies_locked (const EcfsLineage *self, const EcfsWitness *witness, int64_t since_us)
    ECFS_REQUIRES (self->lock)
{
    return ecfs_lineage_has_answered (witness, since_us) && !witness->is_newer &&
           !ecfs_lineage_is_claimed_locked (self, witness, ecfs_lineage_clock_us ());
}

/* A marker from before the archive's markers were authentic, that says nothing newer. */
static bool is_from_before_locked (const EcfsLineage *self, const EcfsWitness *witness) ECFS_REQUIRES (self->lock)
{
    const EcfsMarker *marker = &witness->marker;
    uint32_t epoch = ecfs_catalog_epoch (self->archive->catalog);
    return witness->worth == ECFS_MARKER_UNSIGNED && marker->claim.epoch == 0 && marker->epoch <= epoch &&
           (marker->epoch < epoch || (marker->sequence <= self->opened && !witness->is_foreign));
}

/* Whether at least so many deny that there is anything newer that they have more in common than may lie with any that
 * a recovery has claimed: it claims all but `copies` - 1, and at least `copies`. @before: those count that are
 * from_before (), too. */
static bool enough_deny_locked (EcfsLineage *self, int64_t since_us, bool before) ECFS_REQUIRES (self->lock)
{
    size_t n_all = 0, n_deny = 0, n_endpoints = ecfs_archive_n_endpoints (self->archive);
    size_t n_copies = ecfs_archive_journal_copies (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsWitness *witness = &self->witnesses[i];
        if (!ecfs_lineage_is_asked (&self->archive->endpoints[i]))
            continue;
        n_all++;
        n_deny += denies_locked (self, witness, since_us) || (before && is_from_before_locked (self, witness));
    }
    return n_deny > 0 && n_deny + n_copies > n_all && n_deny >= MIN (2 * n_copies - 1, n_all);
}

bool ecfs_lineage_is_denied_locked (EcfsLineage *self, int64_t since_us)
{
    return self->archive->marker_keys == NULL || enough_deny_locked (self, since_us, false);
}

/* A marker without a MAC is from before the archive got its key, or was away meanwhile; all are where an ecfs made it
 * that did not authenticate them. The session writes them anew, once enough deny that there is anything newer, with
 * those counted. That gives nobody anything: an authentic older marker says the same, and anybody could show one. */
bool ecfs_lineage_replaces_locked (EcfsLineage *self, const EcfsWitness *witness)
{
    int64_t now_us = ecfs_lineage_clock_us ();
    return is_from_before_locked (self, witness) && !self->is_stale && !self->is_held &&
           (witness->marked_us == 0 || now_us - witness->marked_us >= SIGN_AGAIN_US) &&
           enough_deny_locked (self, now_us - ECFS_LINEAGE_FRESH_US, true);
}

static void tell_doubtful_locked (EcfsLineage *self) ECFS_REQUIRES (self->lock)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    if (self->archive->marker_keys == NULL)
        return;
    for (size_t i = 0; i < n_endpoints; i++) {
        EcfsWitness *witness = &self->witnesses[i];
        g_autofree char *doubt = ecfs_lineage_doubt_locked (self, witness);
        if (doubt == NULL || witness->told || !ecfs_lineage_is_asked (&self->archive->endpoints[i]) ||
            ecfs_lineage_replaces_locked (self, witness))
            continue;
        witness->told = true;
        g_warning ("%s, so its journal and what it says of the archive do not count; 'ecfs fsck -y %s' writes a "
                   "damaged one anew, and if the endpoint lies, run 'ecfs endpoint distrust %s %s'",
                   doubt, self->archive->directory, self->archive->directory, self->archive->endpoints[i].name);
    }
}

/* What all amounts to */

void ecfs_lineage_judge_locked (EcfsLineage *self)
{
    ecfs_lineage_look_at_catalog_locked (self);
    if (self->is_stale)
        return;
    EcfsWeights sum = ecfs_lineage_weigh_locked (self, ecfs_lineage_clock_us () - ECFS_LINEAGE_FRESH_US);
    if (sum.n_newer >= ecfs_archive_journal_copies (self->archive))
        become_stale_locked (self, sum.newer);
    if (!self->awaited || self->is_stale)
        return;
    hold_locked (self, &sum);
    /* Others may be about to say the same. */
    if (!self->is_held && sum.n_newer > 0 && !ecfs_lineage_is_any_asked_locked (self))
        tell_disagreeing_locked (self);
    tell_doubtful_locked (self);
}

/* Nothing of this process is on an endpoint that was there before it and was not checked yet, so what it has changed
 * since makes an old copy no newer. Under a key that is no longer in use nobody writes anything newer: who has kept it
 * forges that. */
void ecfs_lineage_look_locked (const EcfsLineage *lineage, EcfsWitness *self, uint64_t now)
{
    const EcfsMarker *marker = &self->marker;
    const EcfsKeyRing *keys = lineage->archive->marker_keys;
    uint64_t sequence = self->checked || self->position >= lineage->n_opened ? now : lineage->opened;
    uint32_t epoch = ecfs_catalog_epoch (lineage->archive->catalog);
    bool newer = marker->epoch > epoch || (marker->epoch == epoch && (marker->sequence > sequence || self->is_foreign));
    if (self->worth == ECFS_MARKER_AUTHENTIC && keys != NULL && (newer || self->claim_heard_us > 0) &&
        !ecfs_uuid_equal (&marker->key, ecfs_key_ring_active (keys))) {
        self->worth = ECFS_MARKER_FORGED;
        self->claim_heard_us = 0;
    }
    bool listed = self->listed_epoch > epoch || (self->listed_epoch == epoch && self->listed_sequence > sequence);
    self->is_newer = !ecfs_marker_is_doubtful (self->worth) &&
                     (newer || listed || self->is_forked || self->worth == ECFS_MARKER_UNKNOWN_KEY);
    self->told = self->told && (self->is_newer || ecfs_marker_is_doubtful (self->worth));
}

bool ecfs_lineage_is_sure_locked (EcfsLineage *self, int64_t since_us)
{
    size_t n_asked = 0, n_answered = 0, n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        if (!ecfs_lineage_is_asked (&self->archive->endpoints[i]))
            continue;
        n_asked++;
        n_answered += ecfs_lineage_has_answered (&self->witnesses[i], since_us);
    }
    return n_answered > 0 && n_answered + ecfs_archive_journal_copies (self->archive) > n_asked;
}

bool ecfs_lineage_is_trusted_locked (EcfsLineage *self, size_t position)
{
    const EcfsWitness *witness = &self->witnesses[position];
    return ecfs_lineage_has_answered (witness, 0) && !witness->is_newer &&
           !ecfs_lineage_is_claimed_locked (self, witness, ecfs_lineage_clock_us ()) && !self->is_stale &&
           !self->is_held && ecfs_lineage_is_sure_locked (self, 0);
}

/* The catalog's database may have become an older one while it is in use. */
void ecfs_lineage_look_at_catalog_locked (EcfsLineage *self)
{
    EcfsCatalog *catalog = self->archive->catalog;
    const char *behind = ecfs_catalog_behind (catalog);
    if (behind == NULL || self->is_stale)
        return;
    self->is_stale = self->is_copy = true;
    self->reason = g_strdup_printf ("%s is an old copy: %s", self->archive->directory, behind);
    ecfs_catalog_refuse (catalog, self->reason);
}

bool ecfs_lineage_may_write_locked (EcfsLineage *self, size_t position)
{
    ecfs_lineage_look_at_catalog_locked (self);
    return self->witnesses[position].checked && ecfs_lineage_is_trusted_locked (self, position);
}

void ecfs_lineage_judge_first_locked (EcfsLineage *self)
{
    EcfsWeights sum = ecfs_lineage_weigh_locked (self, 0);
    if (!self->is_stale && ecfs_lineage_counts (self, sum.n_newer, sum.n_silent))
        become_stale_locked (self, sum.newer);
    self->awaited = true;
    ecfs_lineage_judge_locked (self);
}
