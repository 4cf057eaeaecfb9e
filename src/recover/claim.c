/*
 * Taking an archive over. Both sides write first and read then, so one of them sees the other: a recovery writes its
 * claim into the markers before it reads any journal, and a mount reads the markers after it has stored a segment and
 * before it says so. The claim leaves epoch, sequence and session of a marker as they are, so a recovery that comes to
 * nothing has made nobody's copy an old one. With a key, a marker that is not authentic is neither believed nor
 * written.
 *
 *     begin ()    others' claims are looked at, ours is written and read back, and a thread renews it
 *     stands ()   on enough of all endpoints
 *     finish ()   the new epoch in place of the claim
 *     give_up ()  markers that still have the claim, or the new epoch, become what they were
 */
#include "recover/recover_priv.h"

#include <inttypes.h>
#include <unistd.h>

_Atomic int64_t ecfs_recover_renew_us = 20 * G_USEC_PER_SEC;
_Atomic int64_t ecfs_recover_patience_us = 45 * G_USEC_PER_SEC;
_Atomic int64_t ecfs_recover_look_us = 2 * G_USEC_PER_SEC;

/* One endpoint's marker. */
typedef struct Stake {
    EcfsEndpoint *endpoint; /* borrowed until forget () */
    char *name;
    EcfsMarker before; /* as it was when it was claimed, without any claim */
    bool was_unsigned; /* before has no key */
    bool written;      /* something of ours may be there */
} Stake;

struct EcfsRecoverClaim {
    const EcfsRecovering *recovering; /* of which the thread uses the keys; immutable, as they are */
    EcfsMarkerClaim text;             /* its count is the thread's; immutable otherwise */
    pthread_t thread;
    EcfsMutex lock; /* also held while the endpoints of stakes are asked: nobody else waits for it but forget () */
    EcfsCond changed;
    GPtrArray *stakes; /* guarded by lock, as the next */
    bool stopping;
};

static void stake_free (gpointer data)
{
    Stake *self = data;
    g_free (self->name);
    g_free (self);
}

static bool is_ours (const EcfsRecoverClaim *self, const EcfsMarker *marker)
{
    return marker->claim.epoch != 0 && ecfs_uuid_equal (&marker->claim.session, &self->text.session);
}

/* Others */

static EcfsRecoverPlace *find_claimed (EcfsRecovering *self, size_t *ret_n_claimed)
{
    EcfsRecoverPlace *first = NULL;
    *ret_n_claimed = 0;
    for (size_t i = 0; i < self->n_places; i++) {
        EcfsRecoverPlace *place = &self->places[i];
        if (place->marker.claim.epoch == 0 || place->distrusted)
            continue;
        first = first == NULL ? place : first;
        ++*ret_n_claimed;
    }
    return first;
}

/* Reads the markers again; whether a claim has moved. */
static bool has_moved (EcfsRecovering *self)
{
    bool moved = false;
    for (size_t i = 0; i < self->n_places; i++) {
        EcfsRecoverPlace *place = &self->places[i];
        EcfsMarker now;
        if (place->distrusted ||
            !ecfs_recover_examine (self, place->endpoint, &place->marker.endpoint, &now, NULL)) /* tried again */
            continue;
        moved =
            moved || (now.claim.epoch != 0 && (now.claim.count != place->marker.claim.count ||
                                               !ecfs_uuid_equal (&now.claim.session, &place->marker.claim.session)));
        place->marker = now;
    }
    return moved;
}

/* Fails where another recovery is at work. One that is dead is taken over, and a single endpoint that only says so is
 * not believed. */
static bool await_others (EcfsRecovering *self, GError **error)
{
    size_t n_claimed;
    int64_t patience_us = ecfs_recover_patience_us;
    const EcfsRecoverPlace *claimed = find_claimed (self, &n_claimed);
    if (claimed == NULL)
        return true;
    ecfs_recover_tell (self, "endpoint %s reports another recovery, on %s: watching it for %d s", claimed->name,
                       *claimed->marker.claim.host == '\0' ? "an unknown machine" : claimed->marker.claim.host,
                       (int) (patience_us / G_USEC_PER_SEC));
    for (int64_t begun_us = ecfs_now_us (), now_us = begun_us; now_us - begun_us < patience_us;
         now_us = ecfs_now_us ()) {
        if (!ecfs_recover_tick (self, "watching another recovery", (uint64_t) ((now_us - begun_us) / G_USEC_PER_SEC),
                                (uint64_t) (patience_us / G_USEC_PER_SEC), error))
            return false;
        g_usleep ((gulong) ecfs_recover_look_us);
        bool moved = has_moved (self);
        claimed = find_claimed (self, &n_claimed);
        if (claimed == NULL)
            return true;
        if (!moved || n_claimed < ecfs_recover_least_words (self))
            continue;
        g_autoptr (GDateTime) since = g_date_time_new_from_unix_local (claimed->marker.claim.since_s);
        g_autofree char *text = since == NULL ? NULL : g_date_time_format (since, "%F %T");
        return ecfs_fail (error, EBUSY, "another recovery of this archive is under way on %s since %s",
                          *claimed->marker.claim.host == '\0' ? "an unknown machine" : claimed->marker.claim.host,
                          text == NULL ? "an unknown time" : text);
    }
    ecfs_recover_tell (self, "the other recovery makes no progress: its claim is taken over");
    return true;
}

/* Ours */

/* @marker is of our making, or was authentic when it was read: nothing else gets a MAC. */
static bool write_marker (const EcfsRecoverClaim *self, const Stake *stake, const EcfsMarker *marker, GError **error)
{
    EcfsMarker signed_marker = *marker;
    if (marker != &stake->before || !stake->was_unsigned)
        ecfs_marker_sign (&signed_marker, self->recovering->keys);
    return ecfs_endpoint_mark_wait (stake->endpoint, &signed_marker, false, error);
}

static bool read_marker (const EcfsRecoverClaim *self, const Stake *stake, EcfsMarker *ret_marker, GError **error)
{
    return ecfs_recover_examine (self->recovering, stake->endpoint, &stake->before.endpoint, ret_marker, error);
}

static bool write_claim (EcfsRecoverClaim *self, const Stake *stake, const EcfsMarker *now, GError **error)
{
    EcfsMarker marker = *now;
    marker.claim = self->text;
    return write_marker (self, stake, &marker, error);
}

static void renew (EcfsRecoverClaim *self, const Stake *stake)
{
    EcfsMarker now;
    g_autoptr (GError) error = NULL;
    if (!stake->written || !read_marker (self, stake, &now, &error) || !is_ours (self, &now) ||
        !write_claim (self, stake, &now, &error))
        g_info ("%s: the claim is not renewed: %s", stake->name, error == NULL ? "it is gone" : error->message);
}

static void *run (void *data)
{
    EcfsRecoverClaim *self = data;
    ecfs_mutex_lock (&self->lock);
    while (!self->stopping) {
        int64_t until_us = ecfs_now_us () + ecfs_recover_renew_us;
        while (!self->stopping && ecfs_now_us () < until_us)
            (void) ecfs_cond_wait_until (&self->changed, &self->lock, until_us); /* the loop looks */
        self->text.count++;
        for (guint i = 0; i < self->stakes->len && !self->stopping; i++)
            renew (self, g_ptr_array_index (self->stakes, i));
    }
    ecfs_mutex_unlock (&self->lock);
    return NULL;
}

static void stop_thread (EcfsRecoverClaim *self)
{
    ecfs_mutex_lock (&self->lock);
    bool running = !self->stopping;
    self->stopping = true;
    ecfs_cond_signal (&self->changed);
    ecfs_mutex_unlock (&self->lock);
    if (running)
        (void) pthread_join (self->thread, NULL); /* joinable and ours: it cannot fail */
}

/* The last moment before the claim tells what the marker is: a mount may have written it since it was read first. */
static void put_stake (EcfsRecovering *self, EcfsRecoverPlace *place)
{
    EcfsRecoverClaim *claim = self->claim;
    g_autoptr (GError) error = NULL;
    if (place->doubtful)
        return;
    Stake *stake = g_new0 (Stake, 1);
    *stake = (Stake){.endpoint = place->endpoint, .name = g_strdup (place->name)};
    g_ptr_array_add (claim->stakes, stake);
    if (!ecfs_recover_examine (self, place->endpoint, &place->marker.endpoint, &stake->before, &error)) {
        ecfs_recover_tell (self, "%s; its marker stays as it was", error->message);
        return;
    }
    stake->before.claim = (EcfsMarkerClaim){.epoch = 0};
    place->marker = stake->before;
    stake->written = true; /* also by a try that failed */
    if (!write_claim (claim, stake, &stake->before, &error))
        ecfs_recover_tell (self, "%s; its marker stays as it was", error->message);
}

void ecfs_recover_hear_markers (EcfsRecovering *self)
{
    size_t n_places = self->n_places;
    self->n_known = n_places;
    self->n_copies = n_places / 2 + 1;
    for (size_t i = 0; i < n_places; i++) {
        const EcfsMarker *one = &self->places[i].marker;
        size_t n_same = 0;
        for (size_t j = 0; j < n_places; j++)
            n_same +=
                self->places[j].marker.copies == one->copies && self->places[j].marker.endpoints == one->endpoints;
        if (n_same * 2 > n_places && one->copies > 0 && one->endpoints >= one->copies) {
            self->n_known = self->n_by_markers = one->endpoints;
            self->n_copies = one->copies;
        }
    }
}

bool ecfs_recover_claim_begin (EcfsRecovering *self, GError **error)
{
    if (!await_others (self, error))
        return false;
    EcfsRecoverClaim *claim = g_new0 (EcfsRecoverClaim, 1);
    uint32_t epoch = ecfs_recover_told_epoch (self);
    claim->text = (EcfsMarkerClaim){.epoch = epoch == UINT32_MAX ? epoch : epoch + 1,
                                    .session = ecfs_uuid_new (),
                                    .count = 1,
                                    .since_s = g_get_real_time () / G_USEC_PER_SEC};
    ecfs_marker_host (claim->text.host);
    ecfs_mutex_init (&claim->lock);
    ecfs_cond_init (&claim->changed);
    claim->stakes = g_ptr_array_new_with_free_func (stake_free);
    claim->stopping = true; /* there is no thread yet */
    claim->recovering = self;
    self->claim = claim;
    for (size_t i = 0; i < self->n_places; i++)
        put_stake (self, &self->places[i]);
    claim->stopping = false;
    if (pthread_create (&claim->thread, NULL, run, claim) != 0) {
        claim->stopping = true;
        return ecfs_fail (error, EAGAIN, "cannot start a thread");
    }
    return true;
}

/* Whether a stake before is of the same endpoint: two places may show one marker, and count as one. */
static bool is_counted (const EcfsRecoverClaim *self, guint number)
{
    const Stake *stake = g_ptr_array_index (self->stakes, number);
    for (guint i = 0; i < number; i++) {
        const Stake *other = g_ptr_array_index (self->stakes, i);
        if (other->written && ecfs_uuid_equal (&other->before.endpoint, &stake->before.endpoint))
            return true;
    }
    return false;
}

bool ecfs_recover_claim_stands (EcfsRecovering *self, GError **error)
{
    EcfsRecoverClaim *claim = self->claim;
    size_t n_stand = 0, n_known = self->n_known, n_copies = MIN (self->n_copies, n_known);
    size_t n_needed = MAX (n_known - n_copies + 1, n_copies);
    ecfs_mutex_lock (&claim->lock);
    for (guint i = 0; i < claim->stakes->len; i++) {
        EcfsMarker now;
        const Stake *stake = g_ptr_array_index (claim->stakes, i);
        n_stand += stake->written && !is_counted (claim, i) && read_marker (claim, stake, &now, NULL) &&
                   (is_ours (claim, &now) || ecfs_uuid_equal (&now.session, &claim->text.session));
    }
    ecfs_mutex_unlock (&claim->lock);
    if (n_stand >= n_needed)
        return true;
    g_autofree char *text = g_strdup_printf ("the claim to the archive stands on %zu endpoints; with fewer than %zu of "
                                             "%zu, another machine may still store changes that are lost then",
                                             n_stand, n_needed, n_known);
    if (!self->what->force || n_stand == 0) /* force does not help where there is nothing */
        return ecfs_fail (error, n_stand == 0 ? ENOTCONN : ENOTRECOVERABLE, "%s; give more of the endpoints", text);
    if (!self->has_warned)
        ecfs_recover_tell (self, "%s", text);
    self->has_warned = true;
    return true;
}

/* Writes the new epoch; whether it counts. */
static bool end_stake (EcfsRecovering *self, guint number, uint64_t session_number)
{
    g_autoptr (GError) reason = NULL;
    const EcfsRecoverClaim *claim = self->claim;
    const Stake *stake = g_ptr_array_index (claim->stakes, number);
    EcfsMarker there, marker = {.archive = stake->before.archive,
                                .endpoint = stake->before.endpoint,
                                .epoch = ecfs_catalog_epoch (self->catalog),
                                .sequence = ecfs_catalog_sequence (self->catalog),
                                .session_number = session_number,
                                .session = claim->text.session,
                                .since_s = g_get_real_time () / G_USEC_PER_SEC,
                                .copies = (uint32_t) self->n_copies,
                                .endpoints = (uint32_t) self->n_known};
    memcpy (marker.host, claim->text.host, sizeof marker.host);
    if (!stake->written)
        return false;
    if (write_marker (claim, stake, &marker, &reason) && read_marker (claim, stake, &there, &reason))
        return !is_counted (claim, number) && there.epoch == marker.epoch &&
               ecfs_uuid_equal (&there.session, &marker.session);
    ecfs_recover_tell (self, "%s; its marker stays as it was", reason->message);
    return false;
}

/* The archive was given its key just now, and the machine was lost before all markers had one: those that have none are
 * no more than half, and may as well be lies. Where the others are too few, they are written, too. */
static size_t end_unsigned (EcfsRecovering *self, size_t n_lacking, uint64_t session_number)
{
    size_t n_marked = 0;
    for (size_t i = 0; i < self->n_places && n_marked < n_lacking; i++) {
        const EcfsRecoverPlace *place = &self->places[i];
        if (!place->is_unsigned || !ecfs_uuid_equal (&place->before.archive, &self->archive))
            continue;
        Stake *stake = g_new0 (Stake, 1);
        *stake = (Stake){.endpoint = place->endpoint,
                         .name = g_strdup (place->name),
                         .before = place->before,
                         .was_unsigned = true,
                         .written = true};
        g_ptr_array_add (self->claim->stakes, stake);
        n_marked += end_stake (self, self->claim->stakes->len - 1, session_number);
    }
    return n_marked;
}

bool ecfs_recover_claim_finish (EcfsRecovering *self, uint64_t session_number, GError **error)
{
    size_t n_marked = 0, n_needed = MIN (self->n_copies, self->n_places);
    stop_thread (self->claim);
    for (guint i = 0, n_claimed = self->claim->stakes->len; i < n_claimed; i++)
        n_marked += end_stake (self, i, session_number);
    if (n_marked < n_needed)
        n_marked += end_unsigned (self, n_needed - n_marked, session_number);
    return n_marked >= n_needed ||
           ecfs_fail (error, EIO, "the markers of %zu endpoints can be written, and %zu are needed", n_marked,
                      n_needed);
}

/* Takes back what is ours in one marker. */
static bool take_back (EcfsRecoverClaim *self, const Stake *stake, GError **error)
{
    EcfsMarker now;
    if (!stake->written)
        return true;
    if (!read_marker (self, stake, &now, error))
        return false;
    bool ended = ecfs_uuid_equal (&now.session, &self->text.session);
    if (!ended && !is_ours (self, &now))
        return true;
    now.claim = (EcfsMarkerClaim){.epoch = 0};
    return write_marker (self, stake, ended ? &stake->before : &now, error);
}

void ecfs_recover_claim_forget (EcfsRecovering *self, const EcfsEndpoint *endpoint)
{
    EcfsRecoverClaim *claim = self->claim;
    if (claim == NULL)
        return;
    ecfs_mutex_lock (&claim->lock);
    for (guint i = claim->stakes->len; i-- > 0;) {
        const Stake *stake = g_ptr_array_index (claim->stakes, i);
        g_autoptr (GError) error = NULL;
        if (stake->endpoint != endpoint)
            continue;
        if (!take_back (claim, stake, &error))
            ecfs_recover_tell (self, "%s; the claim in its marker stays", error->message);
        g_ptr_array_remove_index (claim->stakes, i);
    }
    ecfs_mutex_unlock (&claim->lock);
}

void ecfs_recover_claim_give_up (EcfsRecovering *self)
{
    EcfsRecoverClaim *claim = self->claim;
    if (claim == NULL)
        return;
    stop_thread (claim);
    for (guint i = 0; i < claim->stakes->len; i++) {
        g_autoptr (GError) error = NULL;
        const Stake *stake = g_ptr_array_index (claim->stakes, i);
        if (!take_back (claim, stake, &error))
            ecfs_recover_tell (self,
                               "%s; its marker keeps what this recovery wrote there: alone it counts for nothing, and "
                               "a mount of the archive or the next recovery takes it back",
                               error->message);
    }
}

EcfsUuid ecfs_recover_claim_session (const EcfsRecovering *self)
{
    return self->claim->text.session;
}

void ecfs_recover_claim_free (EcfsRecovering *self)
{
    EcfsRecoverClaim *claim = g_steal_pointer (&self->claim);
    if (claim == NULL)
        return;
    stop_thread (claim);
    g_ptr_array_unref (claim->stakes);
    ecfs_cond_clear (&claim->changed);
    ecfs_mutex_clear (&claim->lock);
    g_free (claim);
}
