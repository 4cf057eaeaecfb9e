#include "peer/peer_priv.h"

#include <inttypes.h>
#include <string.h>

#define GREET_US     (2 * G_USEC_PER_SEC)
#define MOST_LOOKS   64
#define MOST_LOOKERS ECFS_PEER_LOOKERS
#define MOST_CALLERS 16
#define KNOWN_US     G_USEC_PER_SEC
#define SLOW_TIMES   4      /* the time that peers take for an answer, of late … */
#define ANSWER_US    500000 /* as long as none has answered: many begin at once */
#define ANSWERS      8      /* … which so many are */

/* A cell that somebody here fetches. */
typedef struct Fetching {
    EcfsCacheCell cell; /* first: the key */
    unsigned n;
    unsigned n_asked;  /* of these, that still may come from a peer */
    uint64_t progress; /* when something came of it from endpoints, here or at who gets it for us: ms since 1970 */
} Fetching;

static guint cell_hash (gconstpointer key)
{
    guint hash;
    const EcfsCacheCell *cell = key;
    memcpy (&hash, cell->object.bytes + 8, sizeof hash);
    return hash ^ (guint) (cell->segment * 2654435761u);
}

static gboolean cell_equal (gconstpointer a, gconstpointer b)
{
    const EcfsCacheCell *x = a, *y = b;
    return x->segment == y->segment && ecfs_uuid_equal (&x->object, &y->object);
}

/* The list */

char *ecfs_peers_url (const char *address)
{
    unsigned port;
    g_autofree char *host = NULL;
    if (!ecfs_peer_address_parse (address, &host, &port))
        return NULL;
    bool is_ipv6 = strchr (host, ':') != NULL;
    return g_strdup_printf ("https://%s%s%s:%u", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", port);
}

/* NULL: it is none. */
static EcfsPeer *parse_list (const char *text, unsigned *ret_n)
{
    g_auto (GStrv) parts = g_strsplit (text, ",", ECFS_PEERS_MAX + 1);
    unsigned n = g_strv_length (parts);
    EcfsPeer *list = n == 0 || n > ECFS_PEERS_MAX ? NULL : g_new0 (EcfsPeer, n);
    bool good = list != NULL;
    for (unsigned i = 0; i < n && list != NULL; i++) {
        list[i].address = g_strdup (g_strstrip (parts[i]));
        list[i].url = ecfs_peers_url (list[i].address);
        good = good && list[i].url != NULL;
    }
    *ret_n = good ? n : 0;
    for (unsigned i = 0; i < n && list != NULL && !good; i++) {
        g_free (list[i].address);
        g_free (list[i].url);
    }
    if (!good)
        g_clear_pointer (&list, g_free);
    return list;
}

bool ecfs_peers_check (const char *text)
{
    unsigned n;
    EcfsPeer *list = parse_list (text, &n);
    for (unsigned i = 0; list != NULL && i < n; i++) {
        g_free (list[i].address);
        g_free (list[i].url);
    }
    bool good = list != NULL;
    g_free (list);
    return good;
}

/* Life */

EcfsPeers *ecfs_peers_new (const EcfsPeersParams *params, GError **error)
{
    EcfsPeers *self = g_new0 (EcfsPeers, 1);
    ecfs_mutex_init (&self->lock);
    ecfs_mutex_init (&self->starting);
    ecfs_cond_init (&self->moved);
    self->id = ecfs_uuid_new ();
    self->list = params->list == NULL ? NULL : parse_list (params->list, &self->n);
    self->list = g_renew (EcfsPeer, self->list, ECFS_PEERS_MAX);
    self->grows = params->grows;
    self->listen = g_strdup (params->listen);
    self->bytes_per_s = params->bytes_per_s;
    self->max_connections = params->max_connections;
    self->cache = params->cache;
    atomic_init (&self->answer_us, ANSWER_US);
    self->lists = ecfs_peer_lists_new ();
    self->takers = g_hash_table_new_full (ecfs_peer_id_hash, ecfs_peer_id_equal, NULL, g_free);
    self->fetching = g_hash_table_new_full (cell_hash, cell_equal, NULL, g_free);
    self->identity = ecfs_peer_identity_new (*params->key, &self->id);
    if (self->identity == NULL)
        (void) !ecfs_fail (error, ENOTSUP, "OpenSSL makes no certificates for peers");
    else
        self->client = ecfs_peer_client_new (self->identity, error);
    if (self->client != NULL)
        return self;
    ecfs_peers_free (self);
    return NULL;
}

/* False: all ends. */
static bool ensure_running_locked (EcfsPeers *self) ECFS_REQUIRES (self->lock)
{
    if (atomic_load (&self->stopped) || (self->n == 0 && !self->grows))
        return false;
    if (self->lookers == NULL) {
        self->lookers = ecfs_workers_new ("ecfs-peers", MOST_LOOKERS);
        self->callers =
            ecfs_workers_new ("ecfs-greet", self->grows ? MOST_CALLERS : (unsigned) MIN (self->n, MOST_CALLERS));
        self->known_us = ecfs_now_us () + KNOWN_US;
        self->greeter = ecfs_ticker_start (GREET_US, ecfs_peers_greet, self);
    }
    return true;
}

bool ecfs_peers_serve (EcfsPeers *self, GError **error)
{
    ecfs_mutex_lock (&self->starting);
    ecfs_mutex_lock (&self->lock);
    bool is_due = self->listen != NULL && self->server == NULL && !atomic_load (&self->stopped);
    ecfs_mutex_unlock (&self->lock);
    EcfsPeerServer *server = is_due ? ecfs_peer_server_new (self, error) : NULL;
    ecfs_mutex_lock (&self->lock);
    self->server = server != NULL ? server : self->server;
    atomic_store (&self->serves, self->server != NULL);
    (void) ensure_running_locked (self); /* there may be nobody to ask */
    ecfs_mutex_unlock (&self->lock);
    ecfs_mutex_unlock (&self->starting);
    return !is_due || server != NULL;
}

void ecfs_peers_end_serving (EcfsPeers *self)
{
    ecfs_mutex_lock (&self->starting);
    ecfs_mutex_lock (&self->lock);
    EcfsPeerServer *server = g_steal_pointer (&self->server);
    atomic_store (&self->serves, false);
    ecfs_mutex_unlock (&self->lock);
    ecfs_peer_server_free (server);
    ecfs_mutex_unlock (&self->starting);
}

bool ecfs_peers_serves (EcfsPeers *self)
{
    return atomic_load (&self->serves);
}

void ecfs_peers_stop (EcfsPeers *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    atomic_store (&self->stopped, true);
    EcfsWorkers *lookers = g_steal_pointer (&self->lookers);
    EcfsTicker *greeter = g_steal_pointer (&self->greeter);
    EcfsWorkers *callers = g_steal_pointer (&self->callers);
    EcfsPeerServer *server = g_steal_pointer (&self->server);
    ecfs_cond_broadcast (&self->moved);
    ecfs_mutex_unlock (&self->lock);
    ecfs_ticker_stop (greeter);
    ecfs_workers_free (callers);
    ecfs_workers_free (lookers);
    ecfs_peer_server_free (server);
}

void ecfs_peers_free (EcfsPeers *self)
{
    if (self == NULL)
        return;
    ecfs_peers_stop (self);
    for (unsigned i = 0; i < self->n; i++) {
        g_free (self->list[i].address);
        g_free (self->list[i].url);
        g_free (self->list[i].problem);
    }
    g_free (self->list);
    g_free (self->listen);
    ecfs_peer_client_free (self->client);
    ecfs_peer_identity_free (self->identity);
    ecfs_peer_lists_free (self->lists);
    g_hash_table_unref (self->fetching);
    g_hash_table_unref (self->takers);
    ecfs_cond_clear (&self->moved);
    ecfs_mutex_clear (&self->starting);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

/* What is being fetched */

static void begin_locked (EcfsPeers *self, const EcfsCacheCell *cell) ECFS_REQUIRES (self->lock)
{
    Fetching *fetching = g_hash_table_lookup (self->fetching, cell);
    if (fetching == NULL) {
        fetching = g_new0 (Fetching, 1);
        fetching->cell = *cell;
        g_hash_table_insert (self->fetching, fetching, fetching);
    }
    fetching->n++;
    fetching->n_asked++;
}

void ecfs_peers_progress (EcfsPeers *self, const EcfsUuid *object)
{
    void *value;
    GHashTableIter cells;
    uint64_t now_ms = (uint64_t) g_get_real_time () / 1000;
    ecfs_mutex_lock (&self->lock);
    g_hash_table_iter_init (&cells, self->fetching);
    while (g_hash_table_iter_next (&cells, NULL, &value)) {
        Fetching *fetching = value;
        if (fetching->n > fetching->n_asked && ecfs_uuid_equal (&fetching->cell.object, object))
            fetching->progress = MAX (fetching->progress, now_ms);
    }
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_peers_pass_on (EcfsPeers *self, const EcfsCacheCell *cell, uint64_t progress)
{
    ecfs_mutex_lock (&self->lock);
    Fetching *fetching = g_hash_table_lookup (self->fetching, cell);
    if (fetching != NULL)
        fetching->progress = MAX (fetching->progress, progress);
    ecfs_mutex_unlock (&self->lock);
}

int64_t ecfs_peers_silent_us (EcfsPeers *self, EcfsPeerLook *look)
{
    int64_t slow_us = SLOW_TIMES * atomic_load (&self->answer_us);
    return CLAMP (MAX (slow_us, atomic_load (&look->endpoints_us)), ECFS_PEER_SILENT_US, ECFS_PEER_SILENT_MOST_US);
}

void ecfs_peers_note_answer (EcfsPeers *self, int64_t elapsed_us)
{
    int64_t answer_us = atomic_load (&self->answer_us); /* that two do so at once does not matter */
    atomic_store (&self->answer_us, answer_us + (elapsed_us - answer_us) / ANSWERS);
}

void ecfs_peers_wait_on (EcfsPeers *self)
{
    int64_t now_us = ecfs_now_us ();
    ecfs_mutex_lock (&self->lock);
    for (GList *l = self->queued.head; l != NULL; l = l->next) {
        EcfsPeerLook *look = l->data;
        atomic_store (&look->due_us, now_us + ecfs_peers_silent_us (self, look));
    }
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_peers_begun_locked (EcfsPeers *self, EcfsPeerLook *look)
{
    (void) g_queue_remove (&self->queued, look); /* it is there */
    atomic_store (&look->due_us, ecfs_now_us () + ecfs_peers_silent_us (self, look));
}

void ecfs_peers_answered_locked (EcfsPeers *self, const EcfsCacheCell *cell)
{
    Fetching *fetching = g_hash_table_lookup (self->fetching, cell);
    if (fetching != NULL)
        fetching->n_asked--;
    self->n_looks--;
}

void ecfs_peers_settle (EcfsPeers *self, const EcfsCacheCell *cell)
{
    ecfs_mutex_lock (&self->lock);
    Fetching *fetching = g_hash_table_lookup (self->fetching, cell);
    if (fetching != NULL && --fetching->n == 0)
        g_hash_table_remove (self->fetching, cell);
    ecfs_cond_broadcast (&self->moved);
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_peers_await (EcfsPeers *self, const EcfsCacheCell *cell, unsigned wait_ms, uint64_t *ret_progress)
{
    int64_t deadline_us = ecfs_now_us () + wait_ms * (int64_t) 1000;
    ecfs_mutex_lock (&self->lock);
    const Fetching *fetching = g_hash_table_lookup (self->fetching, cell);
    *ret_progress = fetching == NULL ? 0 : fetching->progress;
    while (fetching != NULL && !atomic_load (&self->stopped)) {
        *ret_progress = fetching->progress;
        if (!ecfs_cond_wait_until (&self->moved, &self->lock, deadline_us))
            break;
        fetching = g_hash_table_lookup (self->fetching, cell);
    }
    bool is_fetching = fetching != NULL;
    ecfs_mutex_unlock (&self->lock);
    return is_fetching;
}

static bool is_known_locked (EcfsPeers *self, const EcfsPeerRequest *request, int64_t now_us, EcfsUuid *ret_from)
    ECFS_REQUIRES (self->lock)
{
    const EcfsUuid *asker = &request->asker, *without = &request->without;
    if (request->verb == ECFS_PEER_CLAIM)
        return !ecfs_peer_lists_claim (self->lists, &request->cell, asker, now_us, ret_from);
    if (request->verb == ECFS_PEER_JOIN)
        return ecfs_peer_lists_join (self->lists, &request->cell, asker, without, now_us, ret_from);
    return ecfs_peer_lists_ask (self->lists, &request->cell, asker, without, now_us, ret_from);
}

EcfsPeerWhere ecfs_peers_where (EcfsPeers *self, const EcfsPeerRequest *request, EcfsUuid *ret_from)
{
    int64_t now_us = ecfs_now_us ();
    ecfs_autofd fd = ecfs_cache_open_cell (self->cache, &request->cell, request->bytes);
    ecfs_mutex_lock (&self->lock);
    if (fd >= 0)
        ecfs_peer_lists_has (self->lists, &request->cell, &self->id, now_us);
    bool is_known = is_known_locked (self, request, now_us, ret_from);
    ecfs_mutex_unlock (&self->lock);
    if (!is_known || ecfs_uuid_equal (ret_from, &request->asker))
        return ECFS_PEER_NOWHERE;
    return ecfs_uuid_equal (ret_from, &self->id) ? ECFS_PEER_HERE : ECFS_PEER_ELSEWHERE;
}

void ecfs_peers_greet_again (EcfsPeers *self)
{
    bool any = false;
    ecfs_mutex_lock (&self->lock);
    for (unsigned i = 0; i < self->n; i++) {
        bool is_away = ecfs_uuid_is_nil (&self->list[i].id) && !self->list[i].lies;
        self->list[i].rests_until_us = is_away ? 0 : self->list[i].rests_until_us;
        any = any || is_away;
    }
    if (any)
        ecfs_ticker_nudge (self->greeter);
    ecfs_mutex_unlock (&self->lock);
}

/* Asking */

static bool is_hope_locked (const EcfsPeers *self) ECFS_REQUIRES (self->lock)
{
    bool any = !self->has_greeted && ecfs_now_us () < self->known_us;
    for (unsigned i = 0; i < self->n; i++)
        any = any || (!ecfs_uuid_is_nil (&self->list[i].id) && !self->list[i].is_self && !self->list[i].lies &&
                      !self->list[i].is_dropped);
    return any;
}

bool ecfs_peers_any (EcfsPeers *self)
{
    ecfs_mutex_lock (&self->lock);
    bool any = is_hope_locked (self);
    ecfs_mutex_unlock (&self->lock);
    return any;
}

bool ecfs_peers_look (EcfsPeers *self, EcfsPeerLook *look)
{
    ecfs_mutex_lock (&self->lock);
    bool takes = ensure_running_locked (self) && self->n_looks < MOST_LOOKS && is_hope_locked (self);
    if (takes) {
        EcfsPeerAsking *asking = g_new (EcfsPeerAsking, 1);
        *asking = (EcfsPeerAsking){.peers = self, .look = look};
        self->n_looks++;
        begin_locked (self, &look->look->cell);
        atomic_store (&look->due_us, ecfs_now_us () + ecfs_peers_silent_us (self, look));
        g_queue_push_tail (&self->queued, look);
        ecfs_workers_push (self->lookers, ecfs_peers_run_look, asking);
    }
    ecfs_mutex_unlock (&self->lock);
    return takes;
}
