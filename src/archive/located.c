#include "archive/located.h"

#include "locate/published.h"
#include "peer/peer_text.h"
#include "util/bytes.h"
#include "util/io.h"
#include "util/lock.h"
#include "util/ticker.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TICK_US     G_USEC_PER_SEC
#define ANSWER_US   (5 * G_USEC_PER_SEC)   /* for one question */
#define RENEW_US    (300 * G_USEC_PER_SEC) /* what is announced, of the ten minutes that it is kept */
#define AGAIN_US    (2 * G_USEC_PER_SEC)   /* where nobody answered */
#define EARLY_US    (60 * G_USEC_PER_SEC)  /* from the start on others are looked for often */
#define LOOK_US     (30 * G_USEC_PER_SEC)
#define CATALOG_US  (3 * G_USEC_PER_SEC) /* between two looks into the catalog, which is at hand */
#define GOOD_BYE_US G_USEC_PER_SEC
#define AT_ONCE_US  (2 * G_USEC_PER_SEC)  /* of publishing, until peers are looked after again */
#define PUBLISH_US  (30 * G_USEC_PER_SEC) /* for all pieces of one name */

/* How peers find each other. */
typedef struct Way {
    /* Guarded by lock; what they point to lives until free (). */
    EcfsLocate *locate; /* NULL: not so */
    char *address;      /* as it was announced last; NULL: never */
    unsigned n_found;
    char *problem;
    /* Of the ticker's thread. */
    int64_t announce_us; /* when it is due */
    int64_t look_us;
    bool is_nowhere; /* nobody can be told where this machine is */
} Way;

struct EcfsLocated {
    EcfsMutex lock;
    EcfsLocatedParams params; /* immutable */
    Way by_dht, by_catalog;
    /* Guarded by lock; what they point to lives until free (). */
    EcfsDht *dht;
    EcfsTicker *ticker;
    bool stopping;
    bool is_behind; /* what somebody published could not be put */
    /* Of the ticker's thread. */
    int64_t begun_us;
    int64_t round_us;   /* when all that is published is due again */
    int64_t publish_us; /* not before, as nobody has answered */
    GPtrArray *names;   /* of what is published, that are due */
};

/* What belongs to an archive */

unsigned ecfs_located_ways (const EcfsConfig *config)
{
    unsigned ways = 0;
    if (config->peers != NULL)
        g_free (ecfs_locate_list_split (config->peers, &ways));
    return ways;
}

/* From whom the network learns who is in it; g_free (). NULL: from nobody. */
static char *bootstrap_of (const EcfsConfig *config)
{
    unsigned ways;
    if (config->dht_bootstrap != NULL || config->peers == NULL)
        return g_strdup (config->dht_bootstrap);
    g_autofree char *list = ecfs_locate_list_split (config->peers, &ways);
    g_auto (GStrv) parts = list == NULL || config->dht_port == 0 ? NULL : g_strsplit (list, ",", -1);
    GString *text = g_string_new (NULL);
    for (guint i = 0; parts != NULL && parts[i] != NULL; i++) {
        unsigned port;
        g_autofree char *host = NULL;
        if (!ecfs_peer_address_parse (g_strstrip (parts[i]), &host, &port))
            continue;
        bool is_ipv6 = strchr (host, ':') != NULL;
        g_string_append_printf (text, "%s%s%s%s:%u", text->len > 0 ? ", " : "", is_ipv6 ? "[" : "", host,
                                is_ipv6 ? "]" : "", (unsigned) config->dht_port);
    }
    bool any = text->len > 0;
    char *result = g_string_free (text, !any);
    return any ? result : NULL;
}

static bool key_of (const EcfsLocatedParams *params, uint8_t ret_key[ECFS_KEY_BYTES], GError **error)
{
    return params->keys == NULL ? ecfs_fail (error, ENOKEY, "peers need an archive with a key: see ecfs-key(1)")
                                : ecfs_key_ring_derive (params->keys, ecfs_key_ring_active (params->keys),
                                                        ECFS_KEY_USE_LOCATE, NULL, 0, ret_key, error);
}

/* A number that others do not come to by chance; whatever the key is, as names are published for longer. */
static uint32_t network_of (const EcfsLocatedParams *params)
{
    uint8_t derived[ECFS_KEY_BYTES];
    ecfs_key_derive (params->archive->bytes, sizeof params->archive->bytes, "", 0, "ecfs locate network", derived);
    return (uint32_t) ecfs_get_le (derived, 4) | 1;
}

static EcfsDht *new_node (const EcfsLocatedParams *params, unsigned port, const char *nodes, GError **error)
{
    const EcfsDhtParams node = {.port = port, .network = network_of (params), .bootstrap = nodes};
    return ecfs_dht_new (&node, error);
}

static EcfsLocate *new_peers (const EcfsLocatedParams *params, EcfsDht *dht, GError **error)
{
    uint8_t key[ECFS_KEY_BYTES];
    if (!key_of (params, key, error))
        return NULL;
    EcfsLocate *peers = ecfs_locate_dht_new (dht, key);
    ecfs_key_forget (key, sizeof key);
    return peers;
}

/* Where others reach this machine */

/* By which address of ours packets go to that host; nothing is sent. NULL: none do. */
static char *address_towards (const char *host, const char *port)
{
    char text[NI_MAXHOST];
    struct sockaddr_storage ours;
    socklen_t size = sizeof ours;
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    if (getaddrinfo (host, port, &hints, &found) != 0)
        return NULL;
    ecfs_autofd fd = socket (found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && connect (fd, found->ai_addr, found->ai_addrlen) == 0 &&
                getsockname (fd, (struct sockaddr *) &ours, &size) == 0 &&
                getnameinfo ((struct sockaddr *) &ours, size, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0;
    freeaddrinfo (found);
    return good ? g_strdup (text) : NULL;
}

/* By which of our addresses one of the nodes is reached that are known from the start. NULL: by none. */
static char *host_towards_nodes (const EcfsConfig *config)
{
    unsigned port;
    char *ours = NULL;
    g_autofree char *bootstrap = bootstrap_of (config);
    g_auto (GStrv) nodes = bootstrap == NULL ? NULL : g_strsplit (bootstrap, ",", -1);
    for (guint i = 0; nodes != NULL && nodes[i] != NULL && ours == NULL; i++) {
        g_autofree char *node = NULL;
        if (!ecfs_peer_address_parse (g_strstrip (nodes[i]), &node, &port))
            continue;
        g_autofree char *service = g_strdup_printf ("%u", port);
        ours = address_towards (node, service);
    }
    return ours;
}

/* What others are told; NULL: nobody is served, or nothing is known of where. @catalog: by that they find it; NULL: by
 * the hash table. g_free () */
static char *address_to_announce (const EcfsConfig *config, EcfsCatalog *catalog)
{
    unsigned port;
    g_autofree char *host = NULL;
    if (config->peer_listen == NULL || !ecfs_peer_address_parse (config->peer_listen, &host, &port))
        return NULL;
    if (strcmp (host, "0.0.0.0") != 0 && strcmp (host, "::") != 0)
        return g_strdup (config->peer_listen);
    g_autofree char *ours = catalog != NULL ? ecfs_catalog_own_host (catalog) : host_towards_nodes (config);
    bool is_ipv6 = ours != NULL && strchr (ours, ':') != NULL;
    return ours == NULL || strchr (ours, '%') != NULL
               ? NULL
               : g_strdup_printf ("%s%s%s:%u", is_ipv6 ? "[" : "", ours, is_ipv6 ? "]" : "", port);
}

/* What is done now and then */

static bool is_stopping (EcfsLocated *self)
{
    ecfs_mutex_lock (&self->lock);
    bool stopping = self->stopping;
    ecfs_mutex_unlock (&self->lock);
    return stopping;
}

static void note_problem (EcfsLocated *self, Way *way, const char *problem)
{
    ecfs_mutex_lock (&self->lock);
    bool is_news = problem != NULL && g_strcmp0 (way->problem, problem) != 0;
    g_free (way->problem);
    way->problem = g_strdup (problem);
    ecfs_mutex_unlock (&self->lock);
    if (is_news)
        g_info ("peers in the %s: %s", way == &self->by_dht ? "hash table" : "catalog", problem);
}

/* If it is announced. */
static void withdraw (EcfsLocated *self, Way *way, int64_t deadline_us)
{
    ecfs_mutex_lock (&self->lock);
    g_autofree char *address = g_steal_pointer (&way->address);
    ecfs_mutex_unlock (&self->lock);
    if (address != NULL)
        (void) ecfs_locate_withdraw (way->locate, address, deadline_us, NULL); /* else it expires */
}

/* Twice while a value is kept. */
static void announce (EcfsLocated *self, Way *way, int64_t now_us)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *address =
        address_to_announce (self->params.config, way == &self->by_catalog ? self->params.catalog : NULL);
    way->announce_us = now_us + RENEW_US;
    way->is_nowhere = address == NULL;
    if (address == NULL) {
        note_problem (self, way, "peer_listen names no address that others know, and is not announced");
        return;
    }
    bool announced = ecfs_locate_announce (way->locate, address, ECFS_LOCATE_TTL_S, now_us + ANSWER_US, &error);
    way->is_nowhere = ecfs_errno (error) == EROFS;
    if (!way->is_nowhere) { /* else what failed may be there all the same */
        ecfs_mutex_lock (&self->lock);
        g_free (way->address);
        way->address = g_steal_pointer (&address);
        ecfs_mutex_unlock (&self->lock);
    }
    if (announced)
        return;
    note_problem (self, way, error->message);
    if (!way->is_nowhere)
        way->announce_us = now_us + AGAIN_US;
}

/* Who is not served, or not any more, is told nothing. */
static void tell_others (EcfsLocated *self, Way *way, int64_t now_us)
{
    if (!ecfs_peers_serves (self->params.peers)) {
        withdraw (self, way, now_us + ANSWER_US);
        way->announce_us = 0;
    } else if (now_us >= way->announce_us)
        announce (self, way, now_us);
}

static int64_t until_next_look (const EcfsLocated *self, const Way *way, int64_t now_us)
{
    return way == &self->by_catalog ? CATALOG_US : now_us - self->begun_us < EARLY_US ? AGAIN_US : LOOK_US;
}

static void look (EcfsLocated *self, Way *way, int64_t now_us)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) found = ecfs_locate_find (way->locate, ECFS_PEERS_MAX, now_us + ANSWER_US, &error);
    way->look_us = now_us + until_next_look (self, way, now_us);
    if (found == NULL) {
        note_problem (self, way, error->message);
        way->look_us = now_us + AGAIN_US;
        return;
    }
    if (!way->is_nowhere)
        note_problem (self, way, NULL);
    for (guint i = 0; i < found->len; i++)
        ecfs_peers_found (self->params.peers, found->pdata[i]);
    ecfs_mutex_lock (&self->lock);
    way->n_found = found->len;
    ecfs_mutex_unlock (&self->lock);
}

static void go (EcfsLocated *self, Way *way)
{
    if (way->locate == NULL || self->params.peers == NULL)
        return;
    if (!is_stopping (self))
        tell_others (self, way, ecfs_now_us ());
    if (!is_stopping (self) && ecfs_now_us () >= way->look_us)
        look (self, way, ecfs_now_us ());
}

static bool publish (EcfsLocated *self, const char *name, int64_t deadline_us, GError **error)
{
    EcfsPublication publication;
    if (!ecfs_located_start_node (self, error) ||
        !ecfs_publication_load (self->params.directory, name, &publication, error))
        return false;
    bool good = ecfs_published_put (self->dht, &publication, deadline_us, error);
    ecfs_publication_clear (&publication);
    return good;
}

bool ecfs_located_publish (EcfsLocated *self, const char *name, int64_t deadline_us, GError **error)
{
    bool good = publish (self, name, deadline_us, error);
    ecfs_mutex_lock (&self->lock);
    self->is_behind = self->is_behind || !good; /* it is tried again soon, not with the next round */
    ecfs_mutex_unlock (&self->lock);
    return good;
}

bool ecfs_located_withdraw (EcfsLocated *self, const char *name, int64_t deadline_us, GError **error)
{
    EcfsPublication publication;
    if (!ecfs_located_start_node (self, error) ||
        !ecfs_publication_load (self->params.directory, name, &publication, error))
        return false;
    bool good = ecfs_published_withdraw (self->dht, &publication, self->params.directory, deadline_us, error);
    ecfs_publication_clear (&publication);
    return good;
}

/* The next one that the archive publishes. False: nobody answers now. */
static bool publish_next (EcfsLocated *self)
{
    g_autoptr (GError) error = NULL;
    const char *name = self->names->pdata[self->names->len - 1];
    bool good = publish (self, name, ecfs_now_us () + PUBLISH_US, &error);
    bool is_later = !good && (error->code == ENOTCONN || error->code == ETIMEDOUT);
    if (!good)
        g_info ("published name %s: %s", name, error->message);
    if (is_later)
        g_ptr_array_insert (self->names, 0, g_strdup (name)); /* others have their turn first */
    g_ptr_array_set_size (self->names, (int) self->names->len - 1);
    return !is_later;
}

/* As many as peers can wait for; the others with the next tick. */
static void publish_some (EcfsLocated *self)
{
    int64_t now_us = ecfs_now_us (), until_us = now_us + AT_ONCE_US;
    ecfs_mutex_lock (&self->lock);
    self->round_us = self->is_behind ? 0 : self->round_us;
    self->is_behind = false;
    ecfs_mutex_unlock (&self->lock);
    if (self->names->len == 0 && now_us >= self->round_us) {
        g_ptr_array_unref (self->names);
        self->names = ecfs_publications (self->params.directory);
        self->round_us = now_us + RENEW_US;
    }
    if (now_us < self->publish_us)
        return;
    while (self->names->len > 0 && ecfs_now_us () < until_us && !is_stopping (self))
        if (!publish_next (self)) {
            self->publish_us = ecfs_now_us () + AGAIN_US;
            return;
        }
}

static void on_tick (void *user)
{
    EcfsLocated *self = user;
    self->begun_us = self->begun_us == 0 ? ecfs_now_us () : self->begun_us;
    go (self, &self->by_catalog);
    ecfs_mutex_lock (&self->lock);
    bool has_node = self->dht != NULL;
    ecfs_mutex_unlock (&self->lock);
    if (has_node)
        go (self, &self->by_dht);
    if (has_node && !is_stopping (self))
        publish_some (self);
}

/* Life */

EcfsLocated *ecfs_located_new (const EcfsLocatedParams *params)
{
    EcfsLocated *self = g_new0 (EcfsLocated, 1);
    ecfs_mutex_init (&self->lock);
    self->params = *params;
    self->names = g_ptr_array_new ();
    return self;
}

static bool start_node_locked (EcfsLocated *self, GError **error) ECFS_REQUIRES (self->lock)
{
    if (self->dht != NULL)
        return true;
    g_autofree char *nodes = bootstrap_of (self->params.config);
    EcfsDht *dht = new_node (&self->params, (unsigned) self->params.config->dht_port, nodes, error);
    if (dht == NULL)
        return false;
    if ((ecfs_located_ways (self->params.config) & ECFS_LOCATE_BY_DHT) != 0)
        self->by_dht.locate = new_peers (&self->params, dht, NULL); /* without a key there are no peers */
    self->dht = dht;
    return true;
}

static bool start (EcfsLocated *self, unsigned ways, GError **error)
{
    ecfs_mutex_lock (&self->lock);
    bool good = !self->stopping || ecfs_fail (error, ECANCELED, "it ends");
    if (good && (ways & ECFS_LOCATE_BY_CATALOG) != 0 && self->by_catalog.locate == NULL)
        self->by_catalog.locate = ecfs_locate_catalog_new (self->params.catalog);
    bool has_node = good && ((ways & ECFS_LOCATE_BY_DHT) == 0 || start_node_locked (self, error));
    bool is_due = good && self->ticker == NULL && (self->dht != NULL || self->by_catalog.locate != NULL);
    if (is_due)
        self->ticker = ecfs_ticker_start (TICK_US, on_tick, self);
    ecfs_mutex_unlock (&self->lock);
    return has_node;
}

bool ecfs_located_start (EcfsLocated *self, GError **error)
{
    return start (self, ecfs_located_ways (self->params.config), error);
}

bool ecfs_located_start_node (EcfsLocated *self, GError **error)
{
    return start (self, ECFS_LOCATE_BY_DHT, error);
}

void ecfs_located_stop (EcfsLocated *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    bool is_first = !self->stopping;
    self->stopping = true;
    EcfsTicker *ticker = g_steal_pointer (&self->ticker);
    ecfs_mutex_unlock (&self->lock);
    if (is_first)
        withdraw (self, &self->by_dht, ecfs_now_us () + GOOD_BYE_US); /* who closes the catalog has left it */
    ecfs_dht_stop (self->dht);
    ecfs_ticker_stop (ticker);
}

static void way_clear (Way *way)
{
    ecfs_locate_free (way->locate);
    g_free (way->address);
    g_free (way->problem);
}

void ecfs_located_free (EcfsLocated *self)
{
    if (self == NULL)
        return;
    ecfs_located_stop (self);
    way_clear (&self->by_dht);
    way_clear (&self->by_catalog);
    ecfs_dht_free (self->dht);
    g_ptr_array_unref (self->names);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

/* For who has no mount */

EcfsDht *ecfs_located_new_node (EcfsLocated *self, GError **error)
{
    const EcfsConfig *config = self->params.config;
    g_autofree char *known = bootstrap_of (config);
    /* A mount on this machine may be one, too. */
    g_autofree char *nodes = config->dht_port == 0
                                 ? g_strdup (known)
                                 : g_strdup_printf ("127.0.0.1:%u%s%s", (unsigned) config->dht_port,
                                                    known == NULL ? "" : ", ", known == NULL ? "" : known);
    return new_node (&self->params, 0, nodes, error);
}

EcfsLocate *ecfs_located_new_peers (EcfsLocated *self, EcfsDht *dht, GError **error)
{
    return new_peers (&self->params, dht, error);
}

uint32_t ecfs_located_network (EcfsLocated *self)
{
    return network_of (&self->params);
}

char *ecfs_located_nodes (EcfsLocated *self)
{
    unsigned port;
    const EcfsConfig *config = self->params.config;
    g_autofree char *known = bootstrap_of (config), *host = NULL, *ours = address_to_announce (config, NULL);
    GString *list = g_string_new (NULL);
    if (ours != NULL && config->dht_port != 0 && ecfs_peer_address_parse (ours, &host, &port)) {
        bool is_ipv6 = strchr (host, ':') != NULL;
        g_string_append_printf (list, "%s%s%s:%u", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "",
                                (unsigned) config->dht_port);
    }
    g_auto (GStrv) parts = known == NULL ? NULL : g_strsplit (known, ",", -1);
    for (guint i = 0; parts != NULL && parts[i] != NULL; i++)
        if (strcmp (g_strstrip (parts[i]), list->str) != 0)
            g_string_append_printf (list, "%s%s", list->len > 0 ? "," : "", parts[i]);
    bool any = list->len > 0;
    char *text = g_string_free (list, !any);
    return any ? text : NULL;
}

/* Telling */

static EcfsLocatedWay way_state (const Way *way)
{
    return (EcfsLocatedWay){
        .address = g_strdup (way->address), .n_found = way->n_found, .problem = g_strdup (way->problem)};
}

void ecfs_located_state (EcfsLocated *self, EcfsLocatedState *ret_state)
{
    ecfs_mutex_lock (&self->lock);
    *ret_state = (EcfsLocatedState){.runs = self->dht != NULL,
                                    .by_dht = way_state (&self->by_dht),
                                    .uses_catalog = self->by_catalog.locate != NULL,
                                    .by_catalog = way_state (&self->by_catalog)};
    if (self->dht != NULL)
        ecfs_dht_state (self->dht, &ret_state->dht);
    ecfs_mutex_unlock (&self->lock);
    unsigned port = (unsigned) self->params.config->dht_port;
    if (ret_state->dht.is_up && port != 0 && port != ret_state->dht.port && ret_state->by_dht.problem == NULL)
        ret_state->by_dht.problem =
            g_strdup_printf ("somebody else has UDP port %u: others are to be told %u, or not to ask "
                             "this machine first",
                             port, ret_state->dht.port);
}

void ecfs_located_state_clear (EcfsLocatedState *state)
{
    ecfs_dht_state_clear (&state->dht);
    for (EcfsLocatedWay *way = &state->by_dht; way != NULL; way = way == &state->by_dht ? &state->by_catalog : NULL) {
        g_clear_pointer (&way->address, g_free);
        g_clear_pointer (&way->problem, g_free);
    }
}
