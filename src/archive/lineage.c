/*
 * What endpoints are asked about the archive. What one goes through, once in a process, and what moves it on:
 *
 *   not answered   the first round: marker, journal, snapshots, what uploads left
 *   answered       enough others have answered, too, and nothing newer counts: our marker is written
 *   marked         the second round: marker and journal are read behind that, so of two copies that begin at once
 *                  one at least sees the other
 *   checked        journal may be stored there; its marker is read every 20 seconds
 */
#include "archive/lineage_priv.h"

#include "archive/in_use.h"
#include "catalog/journal_file.h"

#define INCOMING      "incoming"            /* where endpoints keep what is not finished */
#define MOST_LEFT     10000                 /* names of that; the next mount sees to the rest */
#define MARK_AGAIN_US (60 * G_USEC_PER_SEC) /* where it could not be written */

_Atomic int64_t ecfs_lineage_again_us = 20 * G_USEC_PER_SEC;
_Atomic int64_t ecfs_lineage_claim_us = 120 * G_USEC_PER_SEC;
_Atomic int64_t ecfs_lineage_told_us = 10 * G_USEC_PER_SEC;

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

static void end_round_locked (EcfsLineage *lineage, EcfsWitness *self, uint64_t sequence) ECFS_REQUIRES (lineage->lock)
{
    if (self->round == ROUND_MARK) {
        self->marked_us = ecfs_lineage_clock_us ();
        return;
    }
    if (self->failed) {
        if (ecfs_marker_is_doubtful (self->worth))
            ecfs_lineage_judge_locked (lineage);
        return;
    }
    self->known_us = self->asked_us;
    ecfs_lineage_look_locked (lineage, self, sequence);
    self->answered = true;
    self->checked = self->checked || self->round == ROUND_CHECK;
    ecfs_lineage_judge_locked (lineage);
}

static void settle (EcfsWitness *self, const GError *error)
{
    EcfsLineage *lineage = self->lineage;
    uint64_t sequence = 0;
    g_autoptr (GError) unread = NULL;
    bool read = ecfs_catalog_sequence_read (lineage->archive->catalog, &sequence, &unread);
    if (!read)
        g_info ("what endpoints know cannot be compared with the catalog: %s", unread->message);
    ecfs_mutex_lock (&lineage->lock);
    self->failed = self->failed || error != NULL || !read;
    bool ended = --self->n_asked == 0;
    if (ended)
        end_round_locked (lineage, self, sequence);
    self->n_ending += ended;
    ecfs_mutex_unlock (&lineage->lock);
    if (ended)
        advance (lineage);
    ecfs_mutex_lock (&lineage->lock);
    self->n_ending -= ended;
    lineage->n_due--; /* it may be freed from here on */
    ecfs_cond_broadcast (&lineage->changed);
    ecfs_mutex_unlock (&lineage->lock);
}

static void watch_claim_locked (EcfsLineage *lineage, EcfsWitness *self, const EcfsMarkerClaim *was)
    ECFS_REQUIRES (lineage->lock)
{
    const EcfsMarkerClaim *claim = &self->marker.claim;
    int64_t now_us = ecfs_lineage_clock_us ();
    if (claim->epoch <= ecfs_catalog_epoch (lineage->archive->catalog)) { /* it came to its end */
        self->claim_heard_us = 0;
        return;
    }
    lineage->claimant = claim->session;
    bool moved = self->claim_heard_us == 0 || claim->count != was->count || claim->epoch != was->epoch ||
                 !ecfs_uuid_equal (&claim->session, &was->session);
    if (moved || now_us - self->claim_heard_us > ECFS_LINEAGE_FRESH_US) /* what it did meanwhile nobody saw */
        self->claim_moved_us = now_us;
    self->claim_heard_us = now_us;
}

/* Whether ours was there, and @marker is from before that: nobody but the endpoint can have put it there. */
static bool is_set_back_locked (const EcfsLineage *lineage, const EcfsWitness *self, const EcfsMarker *marker,
                                EcfsMarkerWorth worth) ECFS_REQUIRES (lineage->lock)
{
    const EcfsMarker *own = &lineage->own;
    return worth == ECFS_MARKER_AUTHENTIC && own->session_number > 0 &&
           ecfs_uuid_equal (&self->marker.session, &own->session) && marker->session_number < own->session_number;
}

bool ecfs_lineage_hear (EcfsWitness *self, const EcfsMarker *marker, GError **error)
{
    EcfsLineage *lineage = self->lineage;
    const EcfsArchive *archive = lineage->archive;
    const EcfsArchiveEndpoint *endpoint = &archive->endpoints[self->position];
    EcfsMarkerWorth worth = archive->lacks_keys /* nobody can tell, and it is to be destroyed */
                                ? ECFS_MARKER_AUTHENTIC
                                : ecfs_marker_judge (marker, archive->marker_keys, &endpoint->uuid);
    bool known = marker->session_number == 0;
    if (archive->marker_keys == NULL && !ecfs_uuid_equal (&marker->archive, ecfs_catalog_archive (archive->catalog)))
        return ecfs_fail (error, ENOTCONN, "its marker is of another archive");
    if (!known &&
        !ecfs_catalog_session_known (archive->catalog, marker->session_number, &marker->session, &known, error))
        return false;
    bool doubtful = ecfs_marker_is_doubtful (worth);
    ecfs_mutex_lock (&lineage->lock);
    const EcfsMarkerClaim was = self->marker.claim;
    bool tell_back = !self->told_back && is_set_back_locked (lineage, self, marker, worth);
    self->told_back = self->told_back || tell_back;
    self->marker = *marker;
    self->worth = worth;
    self->is_foreign = !known;
    self->is_newer = self->is_newer && !doubtful;
    if (worth == ECFS_MARKER_AUTHENTIC)
        watch_claim_locked (lineage, self, &was);
    else
        self->claim_heard_us = 0;
    ecfs_mutex_unlock (&lineage->lock);
    if (tell_back)
        g_warning ("endpoint %s: its marker is one from before this mount, which had written a newer one: what is "
                   "stored there was set back, or whoever runs it changes it",
                   endpoint->name);
    g_autofree char *fault = doubtful ? ecfs_marker_fault (marker, worth) : NULL;
    return fault == NULL || ecfs_fail (error, EBADMSG, "endpoint %s: %s", endpoint->name, fault);
}

void ecfs_lineage_hear_broken (EcfsWitness *self, const GError *error)
{
    EcfsLineage *lineage = self->lineage;
    if (lineage->archive->marker_keys == NULL || (error->code != EPROTO && error->code != ENOTSUP))
        return;
    ecfs_mutex_lock (&lineage->lock);
    self->worth = ECFS_MARKER_BROKEN;
    self->is_newer = false;
    self->claim_heard_us = 0;
    ecfs_mutex_unlock (&lineage->lock);
}

static void on_marker (void *user, const EcfsMarker *marker, const GError *error)
{
    g_autoptr (GError) foreign = NULL;
    if (error != NULL)
        ecfs_lineage_hear_broken (user, error);
    bool heard = error == NULL && ecfs_lineage_hear (user, marker, &foreign);
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
    EcfsWitness *self = user;
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
    EcfsWitness *self = user;
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
    self->witnesses = g_new0 (EcfsWitness, ECFS_ENDPOINTS_MAX);
    for (size_t i = 0; i < ECFS_ENDPOINTS_MAX; i++)
        self->witnesses[i] = (EcfsWitness){.lineage = self, .position = i};
    g_autoptr (GError) copied = NULL;
    if (!ecfs_in_use_check (archive->directory, archive->catalog, &copied) && copied->code == ESTALE) {
        self->is_stale = self->is_copy = true;
        self->reason = g_strdup (copied->message);
    }
    return self;
}

EcfsLineage *ecfs_lineage_new_beside (EcfsArchive *archive)
{
    EcfsLineage *self = ecfs_lineage_new (archive);
    self->n_opened = 0;
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
static void remove_left (EcfsLineage *self, EcfsWitness *witness)
{
    ecfs_mutex_lock (&self->lock);
    GPtrArray *left = ecfs_lineage_may_write_locked (self, witness->position) && !self->stopping
                          ? g_steal_pointer (&witness->left)
                          : NULL;
    self->n_due += left == NULL ? 0 : left->len;
    ecfs_mutex_unlock (&self->lock);
    for (guint i = 0; left != NULL && i < left->len; i++)
        ecfs_endpoint_remove (self->archive->endpoints[witness->position].endpoint, g_ptr_array_index (left, i),
                              on_removed, self);
    if (left != NULL)
        g_ptr_array_unref (left);
}

static void begin_round_locked (EcfsLineage *lineage, EcfsWitness *self, EcfsWitnessRound round)
    ECFS_REQUIRES (lineage->lock)
{
    static const unsigned n_questions[] = {[ROUND_FIRST] = 4, [ROUND_MARK] = 1, [ROUND_CHECK] = 2, [ROUND_AGAIN] = 1};
    self->round = round;
    self->failed = false;
    if (round != ROUND_MARK)
        self->asked_us = ecfs_lineage_clock_us ();
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
static void send_round (EcfsLineage *self, EcfsWitness *witness, EcfsWitnessRound round, const EcfsMarker *marker)
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
static bool is_abandoned_locked (EcfsLineage *self, const EcfsWitness *witness) ECFS_REQUIRES (self->lock)
{
    const EcfsMarker *marker = &witness->marker;
    if (!ecfs_lineage_has_answered (witness, 0) || !witness->is_newer || marker->epoch <= self->own.epoch ||
        ecfs_uuid_is_nil (&self->claimant) || !ecfs_uuid_equal (&marker->session, &self->claimant))
        return false;
    EcfsWeights sum = ecfs_lineage_weigh_locked (self, ecfs_lineage_clock_us () - ECFS_LINEAGE_FRESH_US);
    return sum.n_claimed == 0 && !self->is_stale && !self->is_held && ecfs_lineage_is_sure_locked (self, 0);
}

/* The number of the latest session that such a recovery has written, if ours is not later; 0: there is none. */
static uint64_t abandoned_session_locked (EcfsLineage *self) ECFS_REQUIRES (self->lock)
{
    uint64_t number = 0;
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints && self->own.session_number > 0; i++) {
        const EcfsWitness *witness = &self->witnesses[i];
        if (ecfs_lineage_is_asked (&self->archive->endpoints[i]) && is_abandoned_locked (self, witness) &&
            witness->marker.session_number >= self->own.session_number)
            number = MAX (number, witness->marker.session_number);
    }
    return number;
}

/* Whether what its marker says is not what it should. What a recovery left that is dead is taken back so. */
static bool needs_mark_locked (EcfsLineage *self, const EcfsWitness *witness) ECFS_REQUIRES (self->lock)
{
    const EcfsMarker *marker = &witness->marker;
    const EcfsKeyRing *keys = self->archive->marker_keys;
    if (self->own.session_number == 0)
        return false;
    if (ecfs_lineage_replaces_locked (self, witness))
        return true;
    if (!ecfs_lineage_is_trusted_locked (self, witness->position) &&
        (!is_abandoned_locked (self, witness) || abandoned_session_locked (self) > 0)) /* ask () sees to that first */
        return false;
    if (witness->checked && ecfs_lineage_clock_us () - witness->marked_us < MIN (MARK_AGAIN_US, ecfs_lineage_claim_us))
        return false;
    return !witness->checked || marker->epoch != self->own.epoch || marker->claim.epoch > 0 ||
           !ecfs_uuid_equal (&marker->session, &self->own.session) ||
           (keys != NULL && !ecfs_uuid_equal (&marker->key, ecfs_key_ring_active (keys)));
}

/* Begins what follows from answers: our marker where it may be written, and the look behind it. */
static void advance (EcfsLineage *self)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        EcfsWitness *witness = &self->witnesses[i];
        ecfs_mutex_lock (&self->lock);
        bool idle = witness->n_asked == 0 && ecfs_lineage_is_asked (&self->archive->endpoints[i]) && !self->stopping;
        bool check = idle && witness->round == ROUND_MARK;
        bool mark = idle && !check && needs_mark_locked (self, witness);
        EcfsWitnessRound round = check ? ROUND_CHECK : ROUND_MARK;
        EcfsMarker marker = self->own;
        marker.endpoint = self->archive->endpoints[i].uuid;
        if (mark)
            ecfs_marker_sign (&marker, self->archive->marker_keys);
        if (check || mark)
            begin_round_locked (self, witness, round);
        ecfs_mutex_unlock (&self->lock);
        if (check || mark)
            send_round (self, witness, round, &marker);
        if (ecfs_lineage_is_asked (&self->archive->endpoints[i]) && !check && !mark)
            remove_left (self, witness);
    }
}

void ecfs_lineage_ask_since (EcfsLineage *self, int64_t since_us)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->archive->endpoints[i];
        EcfsWitness *witness = &self->witnesses[i];
        if (!ecfs_lineage_is_asked (endpoint) || ecfs_endpoint_is_down (endpoint->endpoint))
            continue;
        ecfs_mutex_lock (&self->lock);
        EcfsWitnessRound round = !witness->answered ? ROUND_FIRST : witness->checked ? ROUND_AGAIN : ROUND_CHECK;
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

/* A session that is later than all of this catalog, and than number @after: markers of it tell that this copy went on
 * behind a recovery that came to nothing. */
static bool begin_session (EcfsLineage *self, uint64_t after, GError **error)
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
    own.session_number = MAX (last, after) + 1;
    ecfs_marker_host (own.host);
    if (!ecfs_catalog_session_begin (catalog, own.session_number, &own.session, error))
        return false;
    ecfs_mutex_lock (&self->lock);
    self->own = own;
    for (size_t i = 0; i < ECFS_ENDPOINTS_MAX && after > 0; i++) /* all are to tell it, soon */
        self->witnesses[i].marked_us = 0;
    ecfs_mutex_unlock (&self->lock);
    advance (self);
    return true;
}

void ecfs_lineage_ask (EcfsLineage *self)
{
    ecfs_mutex_lock (&self->lock);
    uint64_t abandoned = abandoned_session_locked (self);
    ecfs_mutex_unlock (&self->lock);
    g_autoptr (GError) error = NULL;
    if (abandoned > 0 && !begin_session (self, abandoned, &error))
        g_warning ("%s", error->message); /* it is tried again */
    ecfs_lineage_ask_since (self, ecfs_lineage_clock_us () - ecfs_lineage_again_us + 1);
    advance (self);
}

bool ecfs_lineage_await (EcfsLineage *self, int64_t deadline_us, int64_t sure_deadline_us, GError **error)
{
    ecfs_mutex_lock (&self->lock);
    while (ecfs_lineage_is_any_asked_locked (self) && !self->is_stale) {
        bool doubtful = ecfs_lineage_weigh_locked (self, 0).n_newer > 0; /* who is slow may deny it */
        int64_t until_us = ecfs_lineage_is_sure_locked (self, 0) && !doubtful ? sure_deadline_us : deadline_us;
        if (ecfs_now_us () >= until_us)
            break;
        (void) ecfs_cond_wait_until (&self->changed, &self->lock, until_us); /* the loop looks */
    }
    ecfs_lineage_judge_first_locked (self);
    bool is_stale = self->is_stale;
    ecfs_mutex_unlock (&self->lock);
    return !is_stale || ecfs_fail (error, ESTALE, "%s", self->reason); /* the reason stays as it is */
}

/* The session */

bool ecfs_lineage_begin_session (EcfsLineage *self, GError **error)
{
    return begin_session (self, 0, error);
}

/* Whether one that may be told has not been. *ret_enough: so many have that whoever looks finds one of them. */
static bool is_untold_locked (EcfsLineage *self, bool *ret_enough) ECFS_REQUIRES (self->lock)
{
    bool untold = false;
    size_t n_all = 0, n_told = 0, n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->archive->endpoints[i];
        const EcfsWitness *witness = &self->witnesses[i];
        if (!ecfs_lineage_is_asked (endpoint))
            continue;
        n_all++;
        n_told += witness->checked;
        bool busy = witness->n_asked > 0 || witness->n_ending > 0;
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
