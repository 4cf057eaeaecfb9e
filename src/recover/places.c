/* The endpoints that a recovery reads, from the first word to the last. */
#include "archive/zones.h"
#include "recover/recover_priv.h"

#include <string.h>

bool ecfs_recover_open_place (EcfsRecovering *self, const EcfsConfigEndpoint *config, GError **error)
{
    static const EcfsMarker any; /* lets the connection be made whatever marker there is */
    EcfsRecoverPlace *place = &self->places[self->n_places];
    *place = (EcfsRecoverPlace){.name = config->spec->name,
                                .zone = config->zone,
                                .has_zone = config->has_zone,
                                .endpoint = ecfs_endpoint_new (config->spec, &any, error)};
    if (place->endpoint == NULL)
        return false;
    self->n_places++;
    ecfs_endpoint_start (place->endpoint);
    return true;
}

static bool is_foreign (EcfsRecovering *self, const EcfsRecoverPlace *place)
{
    char text[ECFS_UUID_TEXT_SIZE];
    if (place->unread != NULL || ecfs_uuid_equal (&place->marker.archive, &self->archive))
        return false;
    ecfs_uuid_text (&place->marker.archive, text);
    ecfs_recover_tell (self, "endpoint %s belongs to archive %s: it is left alone", place->name, text);
    return true;
}

/* Whose word counts alone, and whose does not at all. */
static bool mark_words (EcfsRecovering *self, const char *const *names, bool believed, GError **error)
{
    for (; names != NULL && *names != NULL; names++) {
        EcfsRecoverPlace *named = NULL;
        for (size_t i = 0; i < self->n_places; i++)
            if (g_str_equal (self->places[i].name, *names))
                named = &self->places[i];
        if (named == NULL)
            return ecfs_fail (error, EINVAL, "%s is not one of the given endpoints", *names);
        named->believed = believed && !named->distrusted;
        named->distrusted = !believed;
        named->is_named = true;
        self->has_believed = self->has_believed || named->believed;
        self->has_named = true;
    }
    return true;
}

void ecfs_recover_drop_place (EcfsRecovering *self, size_t position)
{
    EcfsRecoverPlace *place = &self->places[position];
    ecfs_recover_claim_forget (self, place->endpoint);
    ecfs_endpoint_free (place->endpoint);
    g_free (place->unread);
    memmove (place, place + 1, (self->n_places - position - 1) * sizeof *place);
    self->n_places--;
}

/* Where the archive turns out to have a key, no marker has to be there that can be read. */
static bool read_marker (EcfsRecoverPlace *place, GError **error)
{
    GError *why = NULL;
    if (ecfs_endpoint_examine_wait (place->endpoint, &place->marker, &why))
        return true;
    if (why->code == EPROTO || why->code == ENOTSUP || why->code == ENOENT) {
        place->unread = g_strdup (why->message);
        place->marker = (EcfsMarker){.epoch = 0};
        g_error_free (why);
        return true;
    }
    g_propagate_error (error, why);
    return ecfs_prefix (error, "leave out endpoints that cannot be asked now, or repair them first");
}

/* It stays in ecfs.conf. */
static void note_silent (EcfsRecovering *self, const char *name)
{
    if (self->silent == NULL)
        self->silent = g_ptr_array_new_with_free_func (g_free);
    g_ptr_array_add (self->silent, g_strdup (name));
}

bool ecfs_recover_open_places (EcfsRecovering *self, GError **error)
{
    const GPtrArray *endpoints = self->what->config->endpoints;
    g_autoptr (GError) why = NULL;
    self->places = g_new0 (EcfsRecoverPlace, endpoints->len + 1);
    for (guint i = 0; i < endpoints->len; i++)
        if (!ecfs_recover_open_place (self, g_ptr_array_index (endpoints, i), error))
            return false;
    for (size_t i = self->n_places; i-- > 0;)
        if (!read_marker (&self->places[i], &why)) {
            note_silent (self, self->places[i].name);
            if (!self->what->without_silent) {
                g_propagate_error (error, g_steal_pointer (&why));
                return false;
            }
            ecfs_recover_tell (self, "endpoint %s is left out: %s", self->places[i].name, why->message);
            g_clear_error (&why);
            ecfs_recover_drop_place (self, i);
        }
    if (self->n_places == 0)
        return ecfs_fail (error, ENOTCONN, "none of the endpoints can be asked now");
    if (!ecfs_recover_choose_archive (self, error))
        return false;
    for (size_t i = self->n_places; i-- > 0;)
        if (is_foreign (self, &self->places[i]))
            ecfs_recover_drop_place (self, i);
    if (self->n_places == 0)
        return ecfs_fail (error, ENOENT, "none of the endpoints belongs to the archive that is meant");
    return mark_words (self, self->what->believe, true, error) && mark_words (self, self->what->distrust, false, error);
}

void ecfs_recover_close_places (EcfsRecovering *self)
{
    for (size_t i = 0; i < self->n_places; i++)
        ecfs_endpoint_begin_stop (self->places[i].endpoint);
    for (size_t i = 0; i < self->n_places; i++)
        ecfs_endpoint_stop (self->places[i].endpoint);
    if (self->transfer != NULL)
        ecfs_transfer_stop (self->transfer);
    for (size_t i = 0; i < self->n_places; i++) {
        ecfs_endpoint_free (self->places[i].endpoint);
        g_free (self->places[i].unread);
    }
    ecfs_transfer_free (self->transfer);
    if (self->codecs != NULL) /* readers that were closed had them */
        g_hash_table_unref (self->codecs);
    g_free (self->places);
    g_clear_pointer (&self->zone_shares, g_array_unref);
    g_clear_pointer (&self->former, g_array_unref);
    g_clear_pointer (&self->silent, g_ptr_array_unref);
    ecfs_key_shares_free (self->shares);
    ecfs_key_ring_unref (self->keys);
    ecfs_key_ring_unref (self->pending_keys);
}

/* Which zones they were in: as the journal tells, where none is given. */

const char *ecfs_recover_zone (const EcfsRecovering *self, const EcfsConfigEndpoint *config)
{
    for (size_t i = 0; i < self->n_places; i++)
        if (g_str_equal (self->places[i].name, config->spec->name))
            return self->places[i].zone;
    return config->zone;
}

/* The share of the key that it has is that zone's. */
static void move_share (EcfsRecovering *self, const char *from, const char *to)
{
    for (guint i = 0; self->zone_shares != NULL && i < self->zone_shares->len; i++) {
        EcfsZoneShare *one = &g_array_index (self->zone_shares, EcfsZoneShare, i);
        one->zone = strcmp (one->zone, from) == 0 ? to : one->zone;
    }
}

bool ecfs_recover_take_zones (EcfsRecovering *self, GError **error)
{
    g_autoptr (GString) taken = g_string_new (NULL);
    for (size_t i = 0; i < self->n_places; i++) {
        EcfsRecoverPlace *place = &self->places[i];
        g_autofree char *zone = NULL;
        if (place->has_zone)
            continue;
        if (!ecfs_zone_kept (self->catalog, &place->marker.endpoint, &zone, error))
            return false;
        if (zone == NULL || strcmp (zone, place->zone) == 0)
            continue;
        const char *before = place->zone;
        place->zone = g_intern_string (zone); /* what the key's shares are noted with borrows it, too */
        move_share (self, before, place->zone);
        g_string_append_printf (taken, "%s%s in %s", taken->len > 0 ? ", " : "", place->name, zone);
    }
    if (taken->len > 0)
        ecfs_recover_tell (self, "zones are as the journal tells them: %s. zone=ZONE with an endpoint sets another",
                           taken->str);
    return true;
}

void ecfs_recover_set_zones (const EcfsRecovering *self, EcfsConfig *config)
{
    for (guint i = 0; i < config->endpoints->len; i++) {
        EcfsConfigEndpoint *endpoint = g_ptr_array_index (config->endpoints, i);
        char *zone = g_strdup (ecfs_recover_zone (self, endpoint));
        g_free (endpoint->zone);
        endpoint->zone = zone;
    }
}

/* One of a place that is a zone of its own here, since nothing says otherwise. */
static bool is_guessed (const EcfsRecovering *self, const char *zone)
{
    for (size_t i = 0; i < self->n_places; i++)
        if (!self->places[i].has_zone && strcmp (self->places[i].zone, zone) == 0)
            return strcmp (self->places[i].name, zone) == 0;
    return false;
}

void ecfs_recover_tell_zones (EcfsRecovering *self)
{
    if (self->zone_shares == NULL || self->what->read_only)
        return;
    g_autoptr (GPtrArray) twins =
        ecfs_key_twin_zones ((const EcfsZoneShare *) self->zone_shares->data, self->zone_shares->len);
    g_autoptr (GString) names = g_string_new (NULL);
    for (guint i = 0; i < twins->len; i++)
        if (is_guessed (self, g_ptr_array_index (twins, i)))
            g_string_append_printf (names, "%s%s", names->len > 0 ? ", " : "",
                                    (const char *) g_ptr_array_index (twins, i));
    if (names->len > 0)
        ecfs_recover_tell (self,
                           "zones are not known: the journal tells none of %s, and each is a zone of its own now. They "
                           "share shares of the archive's key, so some of them were one zone: set zone = ZONE in their "
                           "sections of " ECFS_CONFIG_NAME " before anything is stored",
                           names->str);
}
