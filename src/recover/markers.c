/*
 * What markers are worth, before any of them counts. The archive is chosen first, since shares of its key have to be
 * told from those of others; that takes a majority, so that few can neither choose another nor keep this one from being
 * chosen. Then its keys are gathered, and tell which markers are authentic: the others say nothing.
 */
#include "recover/recover_priv.h"

#include <inttypes.h>

#define LOOKED_AT 64 /* stripes of a place */

/* Which archive */

static size_t count_of (const EcfsRecovering *self, const EcfsUuid *archive)
{
    size_t n = 0;
    for (size_t i = 0; i < self->n_places; i++)
        n += self->places[i].unread == NULL && ecfs_uuid_equal (&self->places[i].marker.archive, archive);
    return n;
}

bool ecfs_recover_choose_archive (EcfsRecovering *self, GError **error)
{
    if (ecfs_uuid_is_nil (&self->archive) && self->what->keys != NULL &&
        count_of (self, ecfs_key_ring_archive (self->what->keys)) > 0)
        self->archive = *ecfs_key_ring_archive (self->what->keys);
    for (size_t i = 0; i < self->n_places && ecfs_uuid_is_nil (&self->archive); i++)
        if (2 * count_of (self, &self->places[i].marker.archive) > self->n_places)
            self->archive = self->places[i].marker.archive;
    if (!ecfs_uuid_is_nil (&self->archive))
        return true;
    g_autoptr (GString) text = g_string_new (NULL);
    for (size_t i = 0; i < self->n_places; i++) {
        char uuid[ECFS_UUID_TEXT_SIZE];
        if (self->places[i].unread != NULL)
            return ecfs_fail (error, EPROTO, "leave out endpoints that cannot be asked now, or repair them first: %s",
                              self->places[i].unread);
        ecfs_uuid_text (&self->places[i].marker.archive, uuid);
        g_string_append_printf (text, "%s%s of %s", i > 0 ? ", " : "", self->places[i].name, uuid);
    }
    return ecfs_fail (error, ENOTUNIQ,
                      "the endpoints belong to several archives (%s): name the UUID of the one that is meant",
                      text->str);
}

/* What they are worth */

static EcfsMarkerWorth judge (const EcfsRecovering *self, const EcfsMarker *marker, const EcfsUuid *endpoint)
{
    EcfsMarkerWorth worth = ecfs_marker_judge (marker, self->keys, endpoint);
    return worth == ECFS_MARKER_UNSIGNED && self->takes_unsigned ? ECFS_MARKER_AUTHENTIC : worth;
}

bool ecfs_recover_examine (const EcfsRecovering *self, EcfsEndpoint *endpoint, const EcfsUuid *uuid,
                           EcfsMarker *ret_marker, GError **error)
{
    EcfsMarker marker;
    if (!ecfs_endpoint_examine_wait (endpoint, &marker, error))
        return false;
    g_autofree char *fault = self->keys == NULL ? NULL : ecfs_marker_fault (&marker, judge (self, &marker, uuid));
    if (fault != NULL)
        return ecfs_fail (error, EBADMSG, "endpoint %s: %s", ecfs_endpoint_name (endpoint), fault);
    *ret_marker = marker;
    return true;
}

static bool has_worth (const EcfsRecovering *self, const EcfsRecoverPlace *place, EcfsMarkerWorth worth)
{
    return place->unread == NULL && judge (self, &place->marker, NULL) == worth;
}

static size_t count_worth (const EcfsRecovering *self, EcfsMarkerWorth worth)
{
    size_t n = 0;
    for (size_t i = 0; i < self->n_places; i++)
        n += has_worth (self, &self->places[i], worth);
    return n;
}

/* Its stripes are read all the same: they prove themselves. */
static void doubt_place (EcfsRecovering *self, EcfsRecoverPlace *place, const char *fault)
{
    place->doubtful = true;
    place->distrusted = !place->believed;
    place->marker = (EcfsMarker){.archive = self->archive, .endpoint = place->marker.endpoint};
    ecfs_recover_tell (self,
                       "endpoint %s: %s: what it says does not count, and its marker stays as it is; 'ecfs fsck -y' "
                       "can write it anew later",
                       place->name, fault);
}

/* What is stored goes to the others first. */
static void move_behind (EcfsRecovering *self)
{
    g_autofree EcfsRecoverPlace *all = g_memdup2 (self->places, (self->n_places + 1) * sizeof *all);
    size_t n = 0;
    for (unsigned doubtful = 0; doubtful < 2; doubtful++)
        for (size_t i = 0; i < self->n_places; i++)
            if (all[i].doubtful == doubtful)
                self->places[n++] = all[i];
}

static bool check_known (EcfsRecovering *self, GError **error)
{
    size_t n_unknown = count_worth (self, ECFS_MARKER_UNKNOWN_KEY);
    return n_unknown == 0 || n_unknown < count_worth (self, ECFS_MARKER_AUTHENTIC) ||
           ecfs_fail (error, ENOKEY,
                      "the markers of %zu endpoints are under a key that the given file does not have: give the newest "
                      "copy of it",
                      n_unknown);
}

static bool judge_all (EcfsRecovering *self, GError **error)
{
    self->takes_unsigned = 2 * count_worth (self, ECFS_MARKER_UNSIGNED) > self->n_places;
    if (!check_known (self, error))
        return false;
    for (size_t i = self->n_places; i-- > 0;) {
        EcfsRecoverPlace *place = &self->places[i];
        if (place->unread != NULL) {
            ecfs_recover_tell (self, "%s: it is left alone", place->unread);
            ecfs_recover_drop_place (self, i);
            continue;
        }
        g_autofree char *fault = ecfs_marker_fault (&place->marker, judge (self, &place->marker, NULL));
        if (fault == NULL)
            continue;
        place->is_unsigned = has_worth (self, place, ECFS_MARKER_UNSIGNED);
        place->before = place->marker;
        doubt_place (self, place, fault);
    }
    move_behind (self);
    return true;
}

static bool is_twin (const EcfsRecoverPlace *a, const EcfsRecoverPlace *b)
{
    return ecfs_uuid_equal (&a->marker.endpoint, &b->marker.endpoint);
}

/* Of two that have one marker, one that is doubtful or that the user distrusts is not the one. With a key, which of two
 * others it is shows when the catalog tells what they should have. */
static bool check_twins (EcfsRecovering *self, GError **error)
{
    for (size_t i = self->n_places; i-- > 0;)
        for (size_t j = 0; j < i; j++) {
            size_t left = self->places[i].distrusted ? i : j;
            if (!is_twin (&self->places[i], &self->places[j]))
                continue;
            if (self->keys == NULL)
                return ecfs_fail (error, ENOTUNIQ,
                                  "endpoints %s and %s have one marker: they are the same place, or one of them has "
                                  "copied it; leave that one out",
                                  self->places[j].name, self->places[i].name);
            if (!self->places[left].distrusted) {
                self->places[i].is_twin = self->places[j].is_twin = true;
                ecfs_recover_tell (self,
                                   "endpoints %s and %s have one marker: they are the same place, or one of them has "
                                   "copied it",
                                   self->places[j].name, self->places[i].name);
                continue;
            }
            ecfs_recover_tell (self, "endpoint %s has the marker of endpoint %s: it is left alone",
                               self->places[left].name, self->places[i + j - left].name);
            ecfs_recover_drop_place (self, left);
            break;
        }
    return true;
}

/* Without a key: no marker that has one is ever written over. */
static bool judge_open (EcfsRecovering *self, GError **error)
{
    size_t n_keyed = 0;
    for (size_t i = 0; i < self->n_places; i++) {
        const EcfsRecoverPlace *place = &self->places[i];
        if (place->unread != NULL)
            return ecfs_fail (error, EPROTO, "leave out endpoints that cannot be asked now, or repair them first: %s",
                              place->unread);
        n_keyed += has_worth (self, place, ECFS_MARKER_UNKNOWN_KEY);
    }
    if (2 * n_keyed > self->n_places)
        return ecfs_fail (error, ENOKEY,
                          "the markers of %zu endpoints are under a key, so this archive has a key: give it with --key "
                          "FILE, or what opens it with --passphrase-file, --code-file or --identity",
                          n_keyed);
    for (size_t i = 0; i < self->n_places; i++) {
        EcfsRecoverPlace *place = &self->places[i];
        g_autofree char *fault = ecfs_marker_fault (&place->marker, judge (self, &place->marker, NULL));
        if (fault != NULL)
            doubt_place (self, place, fault);
    }
    move_behind (self);
    return true;
}

bool ecfs_recover_judge_markers (EcfsRecovering *self, GError **error)
{
    return (self->keys == NULL ? judge_open (self, error) : judge_all (self, error)) && check_twins (self, error) &&
           (self->n_places > 0 || ecfs_fail (error, ENOENT, "none of the endpoints has a marker that can be read"));
}

/* How many of the first stripes that the catalog has at the endpoint are there. */
static bool count_stripes (EcfsRecovering *self, const EcfsRecoverPlace *place, unsigned *ret_n, GError **error)
{
    int64_t after = 0;
    bool more;
    g_autoptr (GArray) stripes = ecfs_catalog_stripes_at (self->catalog, place->id, &after, &more, error);
    *ret_n = 0;
    for (guint i = 0; stripes != NULL && i < MIN (stripes->len, LOOKED_AT); i++) {
        const EcfsStripeAt *one = &g_array_index (stripes, EcfsStripeAt, i);
        g_autoptr (EcfsObjectRow) object = ecfs_catalog_object (self->catalog, one->object, error);
        char name[ECFS_STRIPE_NAME_SIZE];
        uint64_t size;
        if (object == NULL)
            return false;
        ecfs_stripe_name (&object->uuid, one->index, one->instance, name);
        *ret_n += ecfs_endpoint_size_wait (place->endpoint, name, &size, NULL); /* what is not there is not counted */
    }
    return stripes != NULL;
}

/* Of places with one marker the one is kept that has most of the stripes that were stored there. */
static bool leave_twins (EcfsRecovering *self, GError **error)
{
    for (size_t i = self->n_places; i-- > 0;)
        for (size_t j = 0; j < i && self->places[i].is_twin; j++) {
            unsigned n_there, n_other;
            if (!self->places[j].is_twin || !is_twin (&self->places[i], &self->places[j]))
                continue;
            if (!count_stripes (self, &self->places[i], &n_there, error) ||
                !count_stripes (self, &self->places[j], &n_other, error))
                return false;
            size_t left = n_there > n_other ? j : i;
            ecfs_recover_tell (self,
                               "endpoint %s has the marker of endpoint %s, and not what was stored there: it is left "
                               "alone",
                               self->places[left].name, self->places[i + j - left].name);
            ecfs_recover_drop_place (self, left);
            break;
        }
    return true;
}

bool ecfs_recover_leave_unknown (EcfsRecovering *self, GError **error)
{
    if (!leave_twins (self, error))
        return false;
    g_autoptr (GPtrArray) rows = ecfs_catalog_endpoints (self->catalog, error);
    if (rows == NULL)
        return false;
    if (!self->sums->has_snapshot && self->sums->n_records == 0) /* which names none */
        return true;
    for (size_t i = self->n_places; i-- > 0;) {
        const EcfsRecoverPlace *place = &self->places[i];
        bool is_known = !place->doubtful;
        for (guint j = 0; j < rows->len && !is_known; j++)
            is_known =
                ecfs_uuid_equal (&((EcfsEndpointRow *) g_ptr_array_index (rows, j))->uuid, &place->marker.endpoint);
        if (is_known)
            continue;
        ecfs_recover_tell (self, "endpoint %s is none that the archive knows: it is left alone", place->name);
        ecfs_recover_drop_place (self, i);
    }
    return true;
}
