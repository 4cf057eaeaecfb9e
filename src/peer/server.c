/*
 * Serving. One thread that accepts, and one for each connection, which says nothing and reads no request before the
 * other end has shown a certificate. Our own rather than a library's server: those let a stranger's request in first,
 * and know how long a connection was silent, not how long it has taken.
 *
 * A stranger holds one of STRANGERS_MAX places until SHAKE_US at most, and the oldest of them goes when another comes.
 * Of those with a certificate there are max_connections. All that waits has a deadline.
 */
#include "peer/peer_priv.h"
#include "util/io.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STRANGERS_MAX 64
#define SHAKE_US      (5 * G_USEC_PER_SEC)
#define HEAD_US       (5 * G_USEC_PER_SEC)  /* from its first byte on */
#define IDLE_US       (90 * G_USEC_PER_SEC) /* between requests: who is greeted each half minute stays */
#define CHUNK_US      (10 * G_USEC_PER_SEC)
#define CHUNK_BYTES   65536
#define STACK_BYTES   (256u << 10)
#define BURST_US      100000 /* of the rate */

typedef struct Connection {
    EcfsPeerServer *server;
    GList link;     /* in connections; guarded by the server's lock, like the next three */
    bool is_known;  /* it has shown its certificate */
    bool is_closed; /* by who wants its place */
    int fd;
    EcfsUuid id; /* of who is known; of its thread, like all below */
    bool has_come;
    SSL *ssl;
    char head[ECFS_PEER_HEAD_MAX];
    size_t filled;
} Connection;

struct EcfsPeerServer {
    EcfsMutex lock;
    EcfsCond ended;
    GQueue connections; /* the oldest first */
    unsigned n_known;
    bool stopping;
    int64_t next_us; /* when the rate lets more bytes go */
    EcfsPeers *peers;
    SSL_CTX *context;
    int fd;
    int wake[2]; /* closing [1] ends the acceptor */
    pthread_t acceptor;
};

/* Input and output with deadlines */

static bool await_fd (int fd, short events, int64_t deadline_us)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    int64_t left_us = deadline_us - ecfs_now_us ();
    return left_us > 0 && poll (&poll_fd, 1, (int) MIN (left_us / 1000 + 1, 60000)) >= 0; /* time is looked at anew */
}

/* What OpenSSL waits for. False: it does not, or the deadline has passed. */
static bool await (const Connection *self, int result, int64_t deadline_us)
{
    int wants = SSL_get_error (self->ssl, result);
    if (wants != SSL_ERROR_WANT_READ && wants != SSL_ERROR_WANT_WRITE)
        return false;
    return await_fd (self->fd, wants == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline_us);
}

static bool shake (Connection *self, int64_t deadline_us)
{
    for (;;) {
        int result = SSL_accept (self->ssl);
        if (result == 1)
            return true;
        if (!await (self, result, deadline_us))
            return false;
    }
}

static bool send_all (const Connection *self, const void *bytes, size_t size)
{
    int64_t deadline_us = ecfs_now_us () + CHUNK_US;
    for (size_t done = 0; done < size;) {
        size_t wrote;
        int result = SSL_write_ex (self->ssl, (const char *) bytes + done, size - done, &wrote);
        if (result == 1)
            done += wrote;
        else if (!await (self, result, deadline_us))
            return false;
    }
    return true;
}

/* What is sent waits for more of it: a call for each record of 16 KiB would be a packet for each. */
static bool buffer_sending (const Connection *self)
{
    BIO *buffer = BIO_new (BIO_f_buffer ()), *below = SSL_get_wbio (self->ssl);
    if (buffer == NULL || BIO_set_write_buffer_size (buffer, CHUNK_BYTES) != 1 || BIO_up_ref (below) != 1) {
        BIO_free (buffer);
        return false;
    }
    SSL_set0_wbio (self->ssl, BIO_push (buffer, below));
    return true;
}

static bool send_waiting (const Connection *self)
{
    BIO *buffer = SSL_get_wbio (self->ssl);
    int64_t deadline_us = ecfs_now_us () + CHUNK_US;
    while (BIO_flush (buffer) != 1)
        if (!BIO_should_retry (buffer) || !await_fd (self->fd, POLLOUT, deadline_us))
            return false;
    return true;
}

/* The next head, of which a part may be there already. */
static bool receive_head (Connection *self, EcfsPeerRequest *ret_request)
{
    int64_t deadline_us = ecfs_now_us () + (self->filled > 0 ? HEAD_US : IDLE_US);
    for (;;) {
        int used = self->filled == 0 ? 0 : ecfs_peer_request_parse (self->head, self->filled, ret_request);
        if (used < 0)
            return false;
        if (used > 0) {
            self->filled -= (size_t) used;
            memmove (self->head, self->head + used, self->filled);
            return true;
        }
        size_t got;
        int result = SSL_read_ex (self->ssl, self->head + self->filled, sizeof self->head - self->filled, &got);
        if (result == 1) {
            deadline_us = self->filled == 0 ? ecfs_now_us () + HEAD_US : deadline_us;
            self->filled += got;
        } else if (!await (self, result, deadline_us))
            return false;
    }
}

/* Answers */

static bool answer (const Connection *self, const char *status, const char *header, uint64_t bytes)
{
    char head[512];
    int size = g_snprintf (head, sizeof head, "HTTP/1.1 %s\r\n%sContent-Length: %" G_GUINT64_FORMAT "\r\n\r\n", status,
                           header, bytes);
    return send_all (self, head, (size_t) size);
}

static bool say_from (const Connection *self, const EcfsUuid *from)
{
    char text[ECFS_UUID_TEXT_SIZE], header[128];
    ecfs_uuid_text (from, text);
    (void) g_snprintf (header, sizeof header, "Ecfs-From: %s\r\n", text); /* it has room */
    return answer (self, "302 Found", header, 0);
}

/* Waits until the rate lets @bytes go; what goes already does not wait for that. */
static bool await_rate (const Connection *self, size_t bytes)
{
    EcfsPeerServer *server = self->server;
    uint64_t rate = server->peers->bytes_per_s;
    if (rate == 0)
        return true;
    if (!send_waiting (self))
        return false;
    ecfs_mutex_lock (&server->lock);
    int64_t now_us = ecfs_now_us ();
    int64_t from_us = MAX (server->next_us, now_us - BURST_US);
    server->next_us = from_us + (int64_t) ((double) bytes * G_USEC_PER_SEC / (double) rate);
    while (!server->stopping && ecfs_now_us () < from_us)
        (void) ecfs_cond_wait_until (&server->ended, &server->lock, from_us); /* time is looked at anew */
    bool goes_on = !server->stopping;
    ecfs_mutex_unlock (&server->lock);
    return goes_on;
}

static bool send_cell (const Connection *self, int fd, uint64_t bytes)
{
    EcfsPeers *peers = self->server->peers;
    g_autofree char *chunk = g_malloc (CHUNK_BYTES);
    if (!answer (self, "200 OK", "Content-Type: application/octet-stream\r\n", bytes))
        return false;
    for (uint64_t done = 0; done < bytes;) {
        size_t size = (size_t) MIN (bytes - done, CHUNK_BYTES);
        ssize_t got = await_rate (self, size) ? ecfs_pread_all (fd, chunk, size, done) : -1;
        if (got != (ssize_t) size || !send_all (self, chunk, size))
            return false;
        done += size;
        ecfs_peers_took (peers, &self->id, size);
    }
    return true;
}

static bool give (const Connection *self, const EcfsPeerRequest *request)
{
    char header[64];
    uint64_t progress = 0;
    EcfsPeers *peers = self->server->peers;
    bool is_fetching = true;
    for (bool waited = false;; waited = true) {
        ecfs_autofd fd = ecfs_cache_open_cell (peers->cache, &request->cell, request->bytes);
        if (fd >= 0)
            return send_cell (self, fd, request->bytes);
        if (waited)
            break;
        is_fetching = ecfs_peers_await (peers, &request->cell, request->wait_ms, &progress);
    }
    if (!is_fetching)
        return answer (self, "404 Not Found", "", 0);
    (void) g_snprintf (header, sizeof header, "Ecfs-Progress: %" G_GUINT64_FORMAT "\r\n", progress); /* it has room */
    return answer (self, "202 Accepted", header, 0);
}

static bool say_where (const Connection *self, const EcfsPeerRequest *request)
{
    EcfsUuid from;
    switch (ecfs_peers_where (self->server->peers, request, &from)) {
    case ECFS_PEER_ELSEWHERE:
        return say_from (self, &from);
    case ECFS_PEER_HERE:
        return say_from (self, &self->server->peers->id);
    case ECFS_PEER_NOWHERE:
    case ECFS_PEER_UNKNOWN:
        break;
    }
    return answer (self, "404 Not Found", "", 0);
}

static bool say_hello (const Connection *self)
{
    char text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&self->server->peers->id, text);
    ecfs_peers_greet_again (self->server->peers);
    bool seeds = atomic_load (&self->server->peers->seeds);
    return answer (self, "200 OK",
                   seeds ? "Content-Type: text/plain\r\nEcfs-Seeder: yes\r\n" : "Content-Type: text/plain\r\n",
                   strlen (text)) &&
           send_all (self, text, strlen (text));
}

static bool serve (const Connection *self, const EcfsPeerRequest *request)
{
    bool good = false;
    switch (request->verb) {
    case ECFS_PEER_HELLO:
        good = say_hello (self);
        break;
    case ECFS_PEER_GET:
        good = give (self, request);
        break;
    case ECFS_PEER_WHERE:
    case ECFS_PEER_CLAIM:
    case ECFS_PEER_JOIN:
        good = say_where (self, request);
        break;
    }
    return good && send_waiting (self) && !request->closes;
}

/* Connections */

/* The process that its certificate names, which is one of the archive's. */
static bool read_id (Connection *self)
{
    char name[ECFS_UUID_TEXT_SIZE] = "";
    X509 *certificate = SSL_get0_peer_certificate (self->ssl);
    X509_NAME *subject = certificate == NULL ? NULL : X509_get_subject_name (certificate);
    return subject != NULL && X509_NAME_get_text_by_NID (subject, NID_commonName, name, sizeof name) > 0 &&
           ecfs_uuid_parse (name, &self->id);
}

static void address_of (int fd, char *ret_address, size_t size)
{
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
    struct sockaddr_storage other;
    socklen_t other_size = sizeof other;
    if (getpeername (fd, (struct sockaddr *) &other, &other_size) == 0)
        (void) getnameinfo ((struct sockaddr *) &other, other_size, host, sizeof host, port, sizeof port,
                            NI_NUMERICHOST | NI_NUMERICSERV); /* for people only */
    (void) g_snprintf (ret_address, size, strchr (host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
}

/* It has shown who it is: it takes another place, if there is one, and if it is welcome. */
static bool enter (Connection *self)
{
    char address[64];
    EcfsPeerServer *server = self->server;
    address_of (self->fd, address, sizeof address);
    if (!read_id (self) || !ecfs_peers_comes (server->peers, &self->id, address))
        return false;
    self->has_come = true;
    ecfs_mutex_lock (&server->lock);
    bool has_place = !server->stopping && !self->is_closed && server->n_known < server->peers->max_connections;
    self->is_known = has_place;
    server->n_known += has_place;
    ecfs_mutex_unlock (&server->lock);
    return has_place;
}

static void leave (Connection *self)
{
    EcfsPeerServer *server = self->server;
    if (self->has_come)
        SSL_set_shutdown (self->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN); /* or its session is forgotten */
    SSL_free (self->ssl);
    OPENSSL_thread_stop (); /* the process may end before this thread does */
    if (self->has_come)
        ecfs_peers_goes (server->peers, &self->id);
    ecfs_mutex_lock (&server->lock);
    g_queue_unlink (&server->connections, &self->link);
    server->n_known -= self->is_known;
    (void) close (self->fd); /* nothing of it is of use any more */
    ecfs_cond_broadcast (&server->ended);
    ecfs_mutex_unlock (&server->lock);
    g_free (self);
}

static void *run_connection (void *data)
{
    Connection *self = data;
    EcfsPeerRequest request;
    self->ssl = SSL_new (self->server->context);
    if (self->ssl != NULL && SSL_set_fd (self->ssl, self->fd) == 1 && shake (self, ecfs_now_us () + SHAKE_US) &&
        enter (self) && buffer_sending (self))
        while (receive_head (self, &request) && ecfs_peers_may_take (self->server->peers, &self->id) &&
               serve (self, &request))
            ;
    leave (self);
    return NULL;
}

/* SIGPIPE is of the thread that writes, and who hangs up is told by errno. */
static bool start_thread (pthread_t *thread, void *(*run) (void *), void *data, bool detached)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    (void) sigfillset (&all); /* these cannot fail on what they are given */
    (void) pthread_attr_init (&attributes);
    (void) pthread_attr_setstacksize (&attributes, STACK_BYTES);
    (void) pthread_attr_setdetachstate (&attributes, detached ? PTHREAD_CREATE_DETACHED : PTHREAD_CREATE_JOINABLE);
    (void) pthread_sigmask (SIG_SETMASK, &all, &before);
    int result = pthread_create (thread, &attributes, run, data);
    (void) pthread_sigmask (SIG_SETMASK, &before, NULL);
    (void) pthread_attr_destroy (&attributes);
    return result == 0;
}

/* The oldest stranger makes room. */
static void drop_stranger_locked (EcfsPeerServer *self) ECFS_REQUIRES (self->lock)
{
    for (GList *l = self->connections.head; l != NULL; l = l->next) {
        Connection *connection = l->data;
        if (connection->is_known || connection->is_closed)
            continue;
        connection->is_closed = true;
        (void) shutdown (connection->fd, SHUT_RDWR); /* or it has gone */
        return;
    }
}

static void welcome (EcfsPeerServer *self, int fd)
{
    pthread_t thread;
    Connection *connection = g_new0 (Connection, 1);
    connection->server = self;
    connection->fd = fd;
    connection->link.data = connection;
    ecfs_mutex_lock (&self->lock);
    unsigned n_strangers = self->connections.length - self->n_known;
    if (n_strangers >= STRANGERS_MAX)
        drop_stranger_locked (self);
    bool takes = n_strangers < 2 * STRANGERS_MAX; /* those that were dropped are going */
    if (takes)
        g_queue_push_tail_link (&self->connections, &connection->link);
    ecfs_mutex_unlock (&self->lock);
    if (takes && start_thread (&thread, run_connection, connection, true))
        return;
    if (takes) {
        leave (connection);
        return;
    }
    (void) close (fd); /* it is the other end's loss */
    g_free (connection);
}

static void *run_acceptor (void *data)
{
    EcfsPeerServer *self = data;
    struct pollfd fds[] = {{.fd = self->fd, .events = POLLIN}, {.fd = self->wake[0], .events = POLLIN}};
    for (;;) {
        (void) poll (fds, G_N_ELEMENTS (fds), -1); /* both are looked at */
        if (fds[1].revents != 0)
            return NULL;
        int fd = accept4 (self->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            welcome (self, fd);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
            (void) poll (fds + 1, 1, 100); /* rather than in a loop */
    }
}

/* The server */

static int listen_at (const char *address, GError **error)
{
    const int one = 1;
    unsigned port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found = NULL;
    g_autofree char *host = NULL;
    if (!ecfs_peer_address_parse (address, &host, &port)) {
        (void) !ecfs_fail (error, EINVAL, "%s is not ADDRESS:PORT", address);
        return -1;
    }
    g_autofree char *service = g_strdup_printf ("%u", port);
    int unknown = getaddrinfo (host, service, &hints, &found);
    if (unknown != 0) {
        (void) !ecfs_fail (error, EADDRNOTAVAIL, "%s: %s", address, gai_strerror (unknown));
        return -1;
    }
    int fd = socket (found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool good = fd >= 0 && setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
                bind (fd, found->ai_addr, found->ai_addrlen) == 0 && listen (fd, 128) == 0;
    if (!good) {
        (void) !ecfs_fail_errno (error, errno, "cannot listen at %s", address);
        if (fd >= 0)
            (void) close (fd); /* it was of no use */
        fd = -1;
    }
    freeaddrinfo (found);
    return fd;
}

EcfsPeerServer *ecfs_peer_server_new (EcfsPeers *peers, GError **error)
{
    EcfsPeerServer *self = g_new0 (EcfsPeerServer, 1);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->ended);
    self->peers = peers;
    self->wake[0] = self->wake[1] = -1;
    self->fd = listen_at (peers->listen, error);
    self->context = self->fd < 0 ? NULL : ecfs_peer_identity_serve (peers->identity);
    if (self->context != NULL && pipe2 (self->wake, O_CLOEXEC) == 0 &&
        start_thread (&self->acceptor, run_acceptor, self, false))
        return self;
    if (self->fd >= 0)
        (void) !ecfs_fail (error, ENOMEM, "%s: peers cannot be served", peers->listen);
    for (unsigned i = 0; i < 2; i++)
        if (self->wake[i] >= 0)
            (void) close (self->wake[i]); /* of no use, as the next */
    if (self->fd >= 0)
        (void) close (self->fd);
    SSL_CTX_free (self->context);
    ecfs_cond_clear (&self->ended);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
    return NULL;
}

void ecfs_peer_server_free (EcfsPeerServer *self)
{
    if (self == NULL)
        return;
    (void) close (self->wake[1]); /* pipes and sockets lose nothing */
    (void) pthread_join (self->acceptor, NULL);
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    for (GList *l = self->connections.head; l != NULL; l = l->next)
        (void) shutdown (((Connection *) l->data)->fd, SHUT_RDWR); /* or it has gone */
    ecfs_cond_broadcast (&self->ended);
    while (self->connections.length > 0)
        (void) ecfs_cond_wait_until (&self->ended, &self->lock, ecfs_now_us () + G_USEC_PER_SEC); /* they are counted */
    ecfs_mutex_unlock (&self->lock);
    (void) close (self->wake[0]);
    (void) close (self->fd);
    SSL_CTX_free (self->context);
    ecfs_cond_clear (&self->ended);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

unsigned ecfs_peer_server_n_connections (EcfsPeerServer *self)
{
    ecfs_mutex_lock (&self->lock);
    unsigned n = self->n_known;
    ecfs_mutex_unlock (&self->lock);
    return n;
}
