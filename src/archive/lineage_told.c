/* What others want to know: whether something may be stored or deleted, and why not. */
#include "archive/lineage_priv.h"

#include <string.h>

#define CONFIRM_US (10 * G_USEC_PER_SEC) /* for markers to be read */

bool ecfs_lineage_is_asking (EcfsLineage *self, size_t position)
{
    ecfs_mutex_lock (&self->lock);
    bool asking = self->witnesses[position].n_asked > 0;
    ecfs_mutex_unlock (&self->lock);
    return asking;
}

bool ecfs_lineage_may_write (EcfsLineage *self, size_t position)
{
    if (self == NULL)
        return false;
    ecfs_mutex_lock (&self->lock);
    bool may = ecfs_lineage_may_write_locked (self, position);
    ecfs_mutex_unlock (&self->lock);
    return may;
}

static bool is_any_ending_locked (EcfsLineage *self) ECFS_REQUIRES (self->lock)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++)
        if (self->witnesses[i].n_ending > 0)
            return true;
    return false;
}

/* Whether the session's marker is on its way there, or waits for what others answer. */
static bool is_being_told_locked (EcfsLineage *self, const EcfsWitness *witness) ECFS_REQUIRES (self->lock)
{
    if (witness->checked || witness->is_newer || self->is_stale || self->is_held || self->stopping)
        return false;
    return witness->n_asked > 0 || is_any_ending_locked (self) ||
           (!ecfs_lineage_is_sure_locked (self, 0) && ecfs_lineage_is_any_asked_locked (self));
}

void ecfs_lineage_await_told (EcfsLineage *self, size_t position, int64_t deadline_us)
{
    const EcfsArchiveEndpoint *endpoint = &self->archive->endpoints[position];
    ecfs_mutex_lock (&self->lock);
    while (is_being_told_locked (self, &self->witnesses[position]) && !ecfs_endpoint_is_down (endpoint->endpoint) &&
           ecfs_now_us () < deadline_us)
        (void) ecfs_cond_wait_until (&self->changed, &self->lock,
                                     MIN (ecfs_now_us () + G_USEC_PER_SEC / 2, deadline_us));
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_lineage_confirm (EcfsLineage *self, size_t position)
{
    EcfsWitness *witness = &self->witnesses[position];
    EcfsMarker marker;
    g_autoptr (GError) error = NULL;
    int64_t asked_us = ecfs_lineage_clock_us ();
    bool read = ecfs_endpoint_examine_wait (self->archive->endpoints[position].endpoint, &marker, &error);
    if (!read)
        ecfs_lineage_hear_broken (witness, error);
    if (!read || !ecfs_lineage_hear (witness, &marker, &error)) {
        g_info ("deletions have to wait: %s", error->message);
        return false;
    }
    uint64_t sequence;
    if (!ecfs_catalog_sequence_read (self->archive->catalog, &sequence, &error)) {
        g_info ("deletions have to wait: %s", error->message);
        return false;
    }
    ecfs_mutex_lock (&self->lock);
    ecfs_lineage_look_locked (self, witness, sequence);
    if (witness->answered)
        witness->known_us = MAX (asked_us, witness->known_us);
    ecfs_lineage_judge_locked (self);
    ecfs_mutex_unlock (&self->lock);
    return ecfs_lineage_may_delete (self, position);
}

bool ecfs_lineage_may_delete (EcfsLineage *self, size_t position)
{
    if (self == NULL)
        return false;
    int64_t since_us = ecfs_lineage_clock_us () - ECFS_LINEAGE_FRESH_US;
    ecfs_mutex_lock (&self->lock);
    bool may = ecfs_lineage_may_write_locked (self, position) && self->witnesses[position].known_us >= since_us &&
               ecfs_lineage_is_sure_locked (self, since_us) && ecfs_lineage_is_denied_locked (self, since_us);
    ecfs_mutex_unlock (&self->lock);
    return may;
}

/* Whether what is @stored is there to stay, by markers that were asked for at @since_us or later. *ret_pending: more of
 * them may come. *ret_n_good: how many have it; *ret_n_heard: how many have answered. */
static bool is_confirmed_locked (EcfsLineage *self, const bool *stored, size_t n_endpoints, int64_t since_us,
                                 bool *ret_pending, size_t *ret_n_good, size_t *ret_n_heard) ECFS_REQUIRES (self->lock)
{
    size_t n_copies = ecfs_archive_journal_copies (self->archive);
    EcfsWeights sum = ecfs_lineage_weigh_locked (self, since_us);
    *ret_n_good = *ret_n_heard = 0;
    *ret_pending = false;
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->archive->endpoints[i];
        const EcfsWitness *witness = &self->witnesses[i];
        if (!ecfs_lineage_is_asked (endpoint))
            continue;
        bool heard = ecfs_lineage_has_answered (witness, since_us);
        *ret_n_heard += heard;
        *ret_n_good += heard && stored[i] && !witness->is_newer &&
                       !ecfs_lineage_is_claimed_locked (self, witness, ecfs_lineage_clock_us ());
        *ret_pending = *ret_pending || (!heard && !ecfs_endpoint_is_down (endpoint->endpoint) &&
                                        (witness->n_asked > 0 || witness->asked_us < since_us));
    }
    return *ret_n_good >= n_copies && *ret_n_heard + n_copies > sum.n_all && !self->is_stale &&
           !ecfs_lineage_counts (self, sum.n_newer + sum.n_claimed, sum.n_silent);
}

bool ecfs_lineage_confirm_stored (EcfsLineage *self, const bool *stored, size_t n_endpoints,
                                  bool (*goes_on) (void *user), void *user, GError **error)
{
    size_t n_good = 0, n_heard = 0;
    int64_t since_us = ecfs_lineage_clock_us (), deadline_us = ecfs_now_us () + CONFIRM_US;
    bool pending = true, confirmed = false, on = true;
    while (!confirmed && pending && on && ecfs_now_us () < deadline_us) {
        ecfs_lineage_ask_since (self, since_us);
        ecfs_mutex_lock (&self->lock);
        ecfs_lineage_look_at_catalog_locked (self);
        confirmed = is_confirmed_locked (self, stored, n_endpoints, since_us, &pending, &n_good, &n_heard);
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
                           : ecfs_fail (error, EAGAIN,
                                        "%zu endpoints have answered and %zu of them have the journal up to now; it "
                                        "takes %u that have it, and so many answers that no newer copy of the archive "
                                        "can hide behind the others",
                                        n_heard, n_good, ecfs_archive_journal_copies (self->archive));
}

/* Whether enough have answered since, or no more will. */
static bool is_told_locked (EcfsLineage *self, int64_t since_us) ECFS_REQUIRES (self->lock)
{
    return self->is_stale || ecfs_lineage_is_sure_locked (self, since_us) || !ecfs_lineage_is_any_asked_locked (self);
}

/* Has the markers read once more. @goes_on NULL: until the deadline. */
static void ask_anew (EcfsLineage *self, int64_t deadline_us, bool (*goes_on) (void *user), void *user)
{
    int64_t since_us = ecfs_lineage_clock_us ();
    bool told = false;
    while (!told && (goes_on == NULL || goes_on (user)) && ecfs_now_us () < deadline_us) {
        ecfs_lineage_ask_since (self, since_us);
        ecfs_mutex_lock (&self->lock);
        told = is_told_locked (self, since_us);
        if (!told)
            (void) ecfs_cond_wait_until (&self->changed, &self->lock, ecfs_now_us () + G_USEC_PER_SEC / 2);
        ecfs_mutex_unlock (&self->lock);
    }
}

void ecfs_lineage_look (EcfsLineage *self, int64_t deadline_us)
{
    ask_anew (self, deadline_us, NULL, NULL);
}

void ecfs_lineage_reconsider_hold (EcfsLineage *self, bool (*goes_on) (void *user), void *user)
{
    ecfs_mutex_lock (&self->lock);
    bool is_held = self->is_held && !self->is_stale;
    ecfs_mutex_unlock (&self->lock);
    if (is_held)
        ask_anew (self, ecfs_now_us () + CONFIRM_US, goes_on, user);
}

bool ecfs_lineage_confirm_newest (EcfsLineage *self, bool (*goes_on) (void *user), void *user, GError **error)
{
    ask_anew (self, ecfs_now_us () + CONFIRM_US, goes_on, user);
    ecfs_mutex_lock (&self->lock);
    bool stale = self->is_stale && ecfs_catalog_sequence (self->archive->catalog) > self->opened;
    ecfs_mutex_unlock (&self->lock);
    if (!stale)
        return true;
    g_autofree char *reason = ecfs_lineage_trouble (self);
    return ecfs_fail (error, ESTALE, "%s; what was changed here since is in this copy only, and 'ecfs status' names it",
                      reason);
}

bool ecfs_lineage_discounts (EcfsLineage *self, size_t position)
{
    ecfs_mutex_lock (&self->lock);
    const EcfsWitness *witness = &self->witnesses[position];
    bool discounts = witness->worth != ECFS_MARKER_AUTHENTIC || witness->is_newer ||
                     ecfs_lineage_is_claimed_locked (self, witness, ecfs_lineage_clock_us ());
    ecfs_mutex_unlock (&self->lock);
    return discounts;
}

int64_t ecfs_lineage_now_us (void)
{
    return ecfs_lineage_clock_us ();
}

int64_t ecfs_lineage_denied_us (EcfsLineage *self, size_t position)
{
    ecfs_mutex_lock (&self->lock);
    const EcfsWitness *witness = &self->witnesses[position];
    bool denies = ecfs_lineage_has_answered (witness, 0) && !witness->is_newer &&
                  !ecfs_lineage_is_claimed_locked (self, witness, ecfs_lineage_clock_us ());
    int64_t asked_us = denies ? witness->known_us : 0;
    ecfs_mutex_unlock (&self->lock);
    return asked_us;
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
    bool sure = ecfs_lineage_is_sure_locked (self, 0);
    ecfs_mutex_unlock (&self->lock);
    return sure;
}

char *ecfs_lineage_trouble (EcfsLineage *self)
{
    ecfs_mutex_lock (&self->lock);
    ecfs_lineage_look_at_catalog_locked (self);
    char *reason = g_strdup (self->is_stale ? self->reason : self->hold);
    ecfs_mutex_unlock (&self->lock);
    return reason;
}

bool ecfs_lineage_is_stale (EcfsLineage *self)
{
    ecfs_mutex_lock (&self->lock);
    ecfs_lineage_look_at_catalog_locked (self);
    bool stale = self->is_stale;
    ecfs_mutex_unlock (&self->lock);
    return stale;
}

char *ecfs_lineage_disagreement (EcfsLineage *self, size_t position)
{
    ecfs_mutex_lock (&self->lock);
    const EcfsWitness *witness = &self->witnesses[position];
    char *said = witness->is_newer ? ecfs_lineage_describe_locked (self, witness) : NULL;
    ecfs_mutex_unlock (&self->lock);
    return said;
}

char *ecfs_lineage_false_marker (EcfsLineage *self, size_t position)
{
    ecfs_mutex_lock (&self->lock);
    char *doubt = ecfs_lineage_doubt_locked (self, &self->witnesses[position]);
    ecfs_mutex_unlock (&self->lock);
    return doubt;
}

char *ecfs_lineage_deletions_wait (EcfsLineage *self)
{
    int64_t since_us = ecfs_lineage_clock_us () - ECFS_LINEAGE_FRESH_US;
    ecfs_mutex_lock (&self->lock);
    bool wait = !self->is_stale && !self->is_held && !ecfs_lineage_is_denied_locked (self, since_us);
    ecfs_mutex_unlock (&self->lock);
    return wait ? g_strdup ("too few endpoints confirm by authentic markers that this archive directory is the newest "
                            "copy: nothing is deleted until more do")
                : NULL;
}

bool ecfs_lineage_successor (EcfsLineage *self, EcfsLineageOther *ret_other)
{
    EcfsLineageOther other = {.n_endpoints = 0};
    uint64_t sequence = 0;
    ecfs_mutex_lock (&self->lock);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++) {
        const EcfsWitness *witness = &self->witnesses[i];
        const EcfsMarker *marker = &witness->marker;
        if (!witness->is_newer || !ecfs_lineage_is_asked (&self->archive->endpoints[i]))
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
        const EcfsWitness *witness = &self->witnesses[i];
        const EcfsMarkerClaim *claim = &witness->marker.claim;
        if (!ecfs_lineage_is_asked (&self->archive->endpoints[i]) ||
            !ecfs_lineage_is_claimed_locked (self, witness, ecfs_lineage_clock_us ()))
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

void ecfs_lineage_foreign_segments (EcfsLineage *self, const size_t *positions, size_t n)
{
    ecfs_mutex_lock (&self->lock);
    for (size_t i = 0; i < n; i++)
        self->witnesses[positions[i]].is_forked = self->witnesses[positions[i]].is_newer = true;
    ecfs_lineage_judge_locked (self);
    ecfs_mutex_unlock (&self->lock);
}

uint64_t ecfs_lineage_listed (EcfsLineage *self, size_t position)
{
    ecfs_mutex_lock (&self->lock);
    const EcfsWitness *witness = &self->witnesses[position];
    bool counts =
        ecfs_lineage_has_answered (witness, 0) && witness->listed_epoch == ecfs_catalog_epoch (self->archive->catalog);
    uint64_t sequence = counts ? witness->listed_sequence : 0;
    ecfs_mutex_unlock (&self->lock);
    return sequence;
}

void ecfs_lineage_reconsider (EcfsLineage *self)
{
    ecfs_mutex_lock (&self->lock);
    EcfsWeights sum = ecfs_lineage_weigh_locked (self, 0);
    if (self->is_stale && !self->is_copy && !ecfs_lineage_counts (self, sum.n_newer, sum.n_silent)) {
        self->is_stale = false;
        g_clear_pointer (&self->reason, g_free);
        ecfs_catalog_allow (self->archive->catalog);
        g_message ("%s takes changes again", self->archive->directory);
    } else if (self->is_stale) {
        ecfs_catalog_refuse (self->archive->catalog, self->reason);
    }
    ecfs_lineage_judge_locked (self);
    ecfs_cond_broadcast (&self->changed);
    ecfs_mutex_unlock (&self->lock);
}
