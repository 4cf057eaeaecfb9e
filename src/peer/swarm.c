/* Who the others are, beyond what ecfs.conf lists: who was found, is not wanted any more, or takes what is served. */
#include "peer/peer_priv.h"

#include <string.h>

#define FORGET_US   (15 * 60 * G_USEC_PER_SEC) /* who was found is not away, but gone */
#define MOST_TAKERS 256

/* Found */

/* NULL: there is no room. Nobody asks one that has been away for so long, so that its words can go. */
static EcfsPeer *room_locked (EcfsPeers *self, int64_t now_us) ECFS_REQUIRES (self->lock)
{
    EcfsPeer *oldest = NULL;
    if (self->n < ECFS_PEERS_MAX)
        return &self->list[self->n++];
    for (unsigned i = 0; i < self->n; i++) {
        EcfsPeer *peer = &self->list[i];
        int64_t known_us = MAX (peer->found_us, peer->met_us);
        if (peer->found_us > 0 && ecfs_uuid_is_nil (&peer->id) && !peer->is_greeted && !peer->lies &&
            now_us - known_us > FORGET_US && (oldest == NULL || peer->found_us < oldest->found_us))
            oldest = peer;
    }
    if (oldest != NULL) {
        g_free (oldest->address);
        g_free (oldest->url);
        g_free (oldest->problem);
    }
    return oldest;
}

void ecfs_peers_found (EcfsPeers *self, const char *address)
{
    int64_t now_us = ecfs_now_us ();
    g_autofree char *url = ecfs_peers_url (address);
    ecfs_mutex_lock (&self->lock);
    EcfsPeer *known = NULL;
    for (unsigned i = 0; i < self->n; i++)
        known = strcmp (self->list[i].address, address) == 0 ? &self->list[i] : known;
    if (known != NULL && known->found_us > 0)
        known->found_us = now_us;
    EcfsPeer *peer = known == NULL && url != NULL && self->grows ? room_locked (self, now_us) : NULL;
    if (peer != NULL) {
        *peer = (EcfsPeer){.address = g_strdup (address), .url = g_steal_pointer (&url), .found_us = now_us};
        ecfs_ticker_nudge (self->greeter);
    }
    ecfs_mutex_unlock (&self->lock);
}

/* Who has content without having asked for it */

void ecfs_peers_seed (EcfsPeers *self)
{
    atomic_store (&self->seeds, true);
}

/* Not wanted */

bool ecfs_peers_drop (EcfsPeers *self, const char *address)
{
    void *value;
    GHashTableIter all;
    bool any = false;
    ecfs_mutex_lock (&self->lock);
    g_hash_table_iter_init (&all, self->takers);
    while (g_hash_table_iter_next (&all, NULL, &value)) {
        EcfsPeerTaker *taker = value;
        if (strcmp (taker->address, address) == 0)
            any = taker->is_dropped = true;
    }
    for (unsigned i = 0; i < self->n; i++) {
        EcfsPeer *peer = &self->list[i];
        if (strcmp (peer->address, address) != 0 || peer->is_self)
            continue;
        any = peer->is_dropped = true;
        peer->met_us = peer->rests_until_us = 0; /* it may be another process by now */
        ecfs_ticker_nudge (self->greeter);
        g_free (peer->problem);
        peer->problem = g_strdup ("it was dropped, and is neither asked nor given anything");
    }
    ecfs_mutex_unlock (&self->lock);
    return any;
}

/* By its id, which it has for as long as its process lives; it is greeted on, so that a new one is known, too. */
static bool is_dropped_locked (const EcfsPeers *self, const EcfsUuid *id) ECFS_REQUIRES (self->lock)
{
    const EcfsPeerTaker *taker = g_hash_table_lookup (self->takers, id);
    for (unsigned i = 0; i < self->n; i++)
        if (self->list[i].is_dropped && ecfs_uuid_equal (&self->list[i].id, id))
            return true;
    return taker != NULL && taker->is_dropped;
}

/* Takers */

guint ecfs_peer_id_hash (gconstpointer key)
{
    guint hash;
    memcpy (&hash, ((const EcfsUuid *) key)->bytes, sizeof hash);
    return hash;
}

gboolean ecfs_peer_id_equal (gconstpointer a, gconstpointer b)
{
    return ecfs_uuid_equal (a, b);
}

/* Those that have gone make room. */
static bool has_room_locked (EcfsPeers *self) ECFS_REQUIRES (self->lock)
{
    void *value;
    GHashTableIter all;
    if (g_hash_table_size (self->takers) < MOST_TAKERS)
        return true;
    g_hash_table_iter_init (&all, self->takers);
    while (g_hash_table_iter_next (&all, NULL, &value))
        if (((const EcfsPeerTaker *) value)->n_connections == 0 && !((const EcfsPeerTaker *) value)->is_dropped) {
            g_hash_table_iter_remove (&all);
            return true;
        }
    return false;
}

bool ecfs_peers_comes (EcfsPeers *self, const EcfsUuid *id, const char *address)
{
    if (ecfs_uuid_equal (id, &self->id))
        return true; /* it is how we learn which of the list we are */
    ecfs_mutex_lock (&self->lock);
    bool is_welcome = !is_dropped_locked (self, id);
    EcfsPeerTaker *taker = is_welcome ? g_hash_table_lookup (self->takers, id) : NULL;
    if (is_welcome && taker == NULL && has_room_locked (self)) {
        taker = g_new0 (EcfsPeerTaker, 1);
        taker->id = *id;
        g_hash_table_insert (self->takers, &taker->id, taker);
    }
    if (taker != NULL) {
        g_strlcpy (taker->address, address, sizeof taker->address);
        taker->n_connections++;
    }
    ecfs_mutex_unlock (&self->lock);
    return is_welcome;
}

void ecfs_peers_goes (EcfsPeers *self, const EcfsUuid *id)
{
    ecfs_mutex_lock (&self->lock);
    EcfsPeerTaker *taker = g_hash_table_lookup (self->takers, id);
    if (taker != NULL && taker->n_connections > 0)
        taker->n_connections--;
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_peers_may_take (EcfsPeers *self, const EcfsUuid *id)
{
    ecfs_mutex_lock (&self->lock);
    bool may = !is_dropped_locked (self, id);
    ecfs_mutex_unlock (&self->lock);
    return may;
}

void ecfs_peers_took (EcfsPeers *self, const EcfsUuid *id, uint64_t bytes)
{
    atomic_fetch_add (&self->served_bytes, bytes);
    ecfs_mutex_lock (&self->lock);
    EcfsPeerTaker *taker = g_hash_table_lookup (self->takers, id);
    if (taker != NULL)
        taker->bytes += bytes;
    ecfs_mutex_unlock (&self->lock);
}

/* Telling */

static void state_free (void *data)
{
    EcfsPeerState *state = data;
    g_free (state->address);
    g_free (state->problem);
    g_free (state);
}

static void taker_state_free (void *data)
{
    EcfsPeerTakerState *state = data;
    g_free (state->address);
    g_free (state);
}

static void add_takers_locked (EcfsPeers *self, GPtrArray *takers) ECFS_REQUIRES (self->lock)
{
    void *value;
    GHashTableIter all;
    g_hash_table_iter_init (&all, self->takers);
    while (g_hash_table_iter_next (&all, NULL, &value)) {
        const EcfsPeerTaker *taker = value;
        const char *address = taker->address;
        for (unsigned i = 0; i < self->n; i++)
            address = ecfs_uuid_equal (&self->list[i].id, &taker->id) ? self->list[i].address : address;
        EcfsPeerTakerState *state = g_new (EcfsPeerTakerState, 1);
        *state = (EcfsPeerTakerState){g_strdup (address), taker->is_dropped, taker->n_connections, taker->bytes};
        g_ptr_array_add (takers, state);
    }
}

void ecfs_peers_state (EcfsPeers *self, EcfsPeersState *ret_state)
{
    *ret_state = (EcfsPeersState){.peers = g_ptr_array_new_with_free_func (state_free),
                                  .takers = g_ptr_array_new_with_free_func (taker_state_free)};
    ecfs_mutex_lock (&self->lock);
    for (unsigned i = 0; i < self->n; i++) {
        const EcfsPeer *peer = &self->list[i];
        ret_state->fetched_bytes += peer->fetched_bytes;
        bool is_forgotten = peer->found_us > 0 && ecfs_uuid_is_nil (&peer->id) && !peer->lies &&
                            ecfs_now_us () - MAX (peer->found_us, peer->met_us) > FORGET_US;
        if (peer->is_self || is_forgotten)
            continue;
        EcfsPeerState *state = g_new (EcfsPeerState, 1);
        *state = (EcfsPeerState){.address = g_strdup (peer->address),
                                 .is_up = !ecfs_uuid_is_nil (&peer->id) && !peer->lies,
                                 .lies = peer->lies,
                                 .is_dropped = peer->is_dropped,
                                 .is_seeder = peer->is_seeder,
                                 .problem = g_strdup (peer->problem),
                                 .fetched_bytes = peer->fetched_bytes};
        g_ptr_array_add (ret_state->peers, state);
    }
    add_takers_locked (self, ret_state->takers);
    if (self->server != NULL) {
        ret_state->listen = g_strdup (self->listen);
        ret_state->n_connections = ecfs_peer_server_n_connections (self->server);
    }
    ecfs_mutex_unlock (&self->lock);
    ret_state->served_bytes = atomic_load (&self->served_bytes);
}

void ecfs_peers_state_clear (EcfsPeersState *state)
{
    g_clear_pointer (&state->peers, g_ptr_array_unref);
    g_clear_pointer (&state->takers, g_ptr_array_unref);
    g_clear_pointer (&state->listen, g_free);
}
