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
#define GOOD_BYE_US G_USEC_PER_SEC
#define AT_ONCE_US  (2 * G_USEC_PER_SEC)  /* of publishing, until peers are looked after again */
#define PUBLISH_US  (30 * G_USEC_PER_SEC) /* for all pieces of one name */

struct EcfsLocated {
    EcfsMutex lock;
    EcfsLocatedParams params; /* immutable */
    /* Guarded by lock; what they point to lives until free (). */
    EcfsDht *dht;
    EcfsLocate *peers;
    EcfsTicker *ticker;
    bool stopping;
    bool is_behind; /* what somebody published could not be put */
    char *address;  /* as it was announced last; NULL: never */
    unsigned n_found;
    char *problem;
    /* Of the ticker's thread. */
    int64_t begun_us;
    int64_t announce_us; /* when it is due */
    int64_t look_us;
    int64_t round_us;   /* when all that is published is due again */
    int64_t publish_us; /* not before, as nobody has answered */
    GPtrArray *names;   /* of what is published, that are due */
    bool is_nowhere;    /* nobody can be told where this machine is */
};

/* What belongs to an archive */

bool ecfs_located_is_wanted (const EcfsConfig *config)
{
    bool uses_dht = false;
    if (config->peers != NULL)
        g_free (ecfs_locate_list_split (config->peers, &uses_dht));
    return uses_dht;
}

/* From whom the network learns who is in it; g_free (). NULL: from nobody. */
static char *bootstrap_of (const EcfsConfig *config)
{
    bool uses_dht;
    if (config->dht_bootstrap != NULL || config->peers == NULL)
        return g_strdup (config->dht_bootstrap);
    g_autofree char *list = ecfs_locate_list_split (config->peers, &uses_dht);
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

/* What others are told; NULL: nobody is served, or nothing is known of where. g_free () */
static char *address_to_announce (const EcfsConfig *config)
{
    unsigned port, node_port;
    g_autofree char *host = NULL, *bootstrap = bootstrap_of (config), *node = NULL, *ours = NULL;
    if (config->peer_listen == NULL || !ecfs_peer_address_parse (config->peer_listen, &host, &port))
        return NULL;
    if (strcmp (host, "0.0.0.0") != 0 && strcmp (host, "::") != 0)
        return g_strdup (config->peer_listen);
    g_auto (GStrv) nodes = bootstrap == NULL ? NULL : g_strsplit (bootstrap, ",", -1);
    for (guint i = 0; nodes != NULL && nodes[i] != NULL && ours == NULL; i++) {
        g_free (node);
        node = NULL;
        if (!ecfs_peer_address_parse (g_strstrip (nodes[i]), &node, &node_port))
            continue;
        g_autofree char *service = g_strdup_printf ("%u", node_port);
        ours = address_towards (node, service);
    }
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

static void note_problem (EcfsLocated *self, const char *problem)
{
    ecfs_mutex_lock (&self->lock);
    bool is_news = problem != NULL && g_strcmp0 (self->problem, problem) != 0;
    g_free (self->problem);
    self->problem = g_strdup (problem);
    ecfs_mutex_unlock (&self->lock);
    if (is_news)
        g_info ("peers in the hash table: %s", problem);
}

/* If it is announced. */
static void withdraw (EcfsLocated *self, int64_t deadline_us)
{
    ecfs_mutex_lock (&self->lock);
    g_autofree char *address = g_steal_pointer (&self->address);
    ecfs_mutex_unlock (&self->lock);
    if (address != NULL)
        (void) ecfs_locate_withdraw (self->peers, address, deadline_us, NULL); /* else it expires */
}

/* Twice while a value is kept. */
static void announce (EcfsLocated *self, int64_t now_us)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *address = address_to_announce (self->params.config);
    self->announce_us = now_us + RENEW_US;
    self->is_nowhere = address == NULL;
    if (address == NULL) {
        note_problem (self, "peer_listen names no address that others know, and is not announced");
        return;
    }
    ecfs_mutex_lock (&self->lock);
    g_free (self->address);
    self->address = g_strdup (address);
    ecfs_mutex_unlock (&self->lock);
    if (ecfs_locate_announce (self->peers, address, ECFS_LOCATE_TTL_S, now_us + ANSWER_US, &error))
        return;
    note_problem (self, error->message);
    self->announce_us = now_us + AGAIN_US;
}

/* Who is not served, or not any more, is told nothing. */
static void tell_others (EcfsLocated *self, int64_t now_us)
{
    if (!ecfs_peers_serves (self->params.peers)) {
        withdraw (self, now_us + ANSWER_US);
        self->announce_us = 0;
    } else if (now_us >= self->announce_us)
        announce (self, now_us);
}

static void look (EcfsLocated *self, int64_t now_us)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) found = ecfs_locate_find (self->peers, ECFS_PEERS_MAX, now_us + ANSWER_US, &error);
    self->look_us = now_us + (now_us - self->begun_us < EARLY_US ? AGAIN_US : LOOK_US);
    if (found == NULL) {
        note_problem (self, error->message);
        self->look_us = now_us + AGAIN_US;
        return;
    }
    if (!self->is_nowhere)
        note_problem (self, NULL);
    for (guint i = 0; i < found->len; i++)
        ecfs_peers_found (self->params.peers, found->pdata[i]);
    ecfs_mutex_lock (&self->lock);
    self->n_found = found->len;
    ecfs_mutex_unlock (&self->lock);
}

static bool publish (EcfsLocated *self, const char *name, int64_t deadline_us, GError **error)
{
    EcfsPublication publication;
    if (!ecfs_located_start (self, error) || !ecfs_publication_load (self->params.directory, name, &publication, error))
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
    if (!ecfs_located_start (self, error) || !ecfs_publication_load (self->params.directory, name, &publication, error))
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
    int64_t now_us = ecfs_now_us ();
    self->begun_us = self->begun_us == 0 ? now_us : self->begun_us;
    bool has_peers = self->peers != NULL && self->params.peers != NULL;
    if (has_peers && !is_stopping (self))
        tell_others (self, now_us);
    if (has_peers && !is_stopping (self) && now_us >= self->look_us)
        look (self, ecfs_now_us ());
    if (!is_stopping (self))
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

bool ecfs_located_start (EcfsLocated *self, GError **error)
{
    ecfs_mutex_lock (&self->lock);
    bool good = !self->stopping || ecfs_fail (error, ECANCELED, "it ends");
    if (good && self->dht == NULL) {
        g_autofree char *nodes = bootstrap_of (self->params.config);
        self->dht = new_node (&self->params, (unsigned) self->params.config->dht_port, nodes, error);
        if (self->dht != NULL && ecfs_located_is_wanted (self->params.config))
            self->peers = new_peers (&self->params, self->dht, NULL); /* without a key there are no peers */
        if (self->dht != NULL)
            self->ticker = ecfs_ticker_start (TICK_US, on_tick, self);
        good = self->dht != NULL;
    }
    ecfs_mutex_unlock (&self->lock);
    return good;
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
        withdraw (self, ecfs_now_us () + GOOD_BYE_US);
    ecfs_dht_stop (self->dht);
    ecfs_ticker_stop (ticker);
}

void ecfs_located_free (EcfsLocated *self)
{
    if (self == NULL)
        return;
    ecfs_located_stop (self);
    ecfs_locate_free (self->peers);
    ecfs_dht_free (self->dht);
    g_ptr_array_unref (self->names);
    g_free (self->address);
    g_free (self->problem);
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
    g_autofree char *known = bootstrap_of (config), *host = NULL, *ours = address_to_announce (config);
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

void ecfs_located_state (EcfsLocated *self, EcfsLocatedState *ret_state)
{
    ecfs_mutex_lock (&self->lock);
    *ret_state = (EcfsLocatedState){.runs = self->dht != NULL,
                                    .address = g_strdup (self->address),
                                    .n_found = self->n_found,
                                    .problem = g_strdup (self->problem)};
    if (self->dht != NULL)
        ecfs_dht_state (self->dht, &ret_state->dht);
    ecfs_mutex_unlock (&self->lock);
    unsigned port = (unsigned) self->params.config->dht_port;
    if (ret_state->dht.is_up && port != 0 && port != ret_state->dht.port && ret_state->problem == NULL)
        ret_state->problem = g_strdup_printf ("somebody else has UDP port %u: others are to be told %u, or not to ask "
                                              "this machine first",
                                              port, ret_state->dht.port);
}

void ecfs_located_state_clear (EcfsLocatedState *state)
{
    ecfs_dht_state_clear (&state->dht);
    g_clear_pointer (&state->address, g_free);
    g_clear_pointer (&state->problem, g_free);
}
