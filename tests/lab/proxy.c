/*
 * lab-proxy: a bad network between two programs, on command.
 *
 *     lab-proxy HOST PORT [LISTEN_PORT]
 *
 * Listens on 127.0.0.1 (without LISTEN_PORT the kernel picks one), prints "port N", forwards every connection to
 * HOST:PORT, and obeys lines on stdin, each answered by one line "ok ..." or "error ..." on stdout; it ends when stdin
 * does. `help` lists the commands.
 *
 * Each direction is one link that all connections share: bytes are serialised at the throttled rate, then travel for
 * the delay, so a window of data is in flight at once as on a real line. A link that already owes more than
 * BACKLOG_US takes no more: the sender feels the throttle through TCP. One thread; everything waits in one poll.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK_MAX  (64 << 10)
#define FLIGHT_MAX (64 << 20) /* bytes of one connection and direction under way */
#define BACKLOG_US 50000
#define MAX_DELAY  60000 /* ms */

/* One direction of the line. */
typedef struct Link {
    int64_t free_at_us;    /* when what was taken so far is serialised */
    uint64_t taken;        /* bytes since start */
    uint64_t corrupt_at;   /* the number of the byte that gets a bit flipped; UINT64_MAX: none */
    double corrupt_chance; /* of each byte */
} Link;

typedef struct Chunk {
    int64_t due_us;
    size_t size; /* 0: the sender has closed its side */
    size_t done;
    uint8_t bytes[];
} Chunk;

/* One direction of one connection. */
typedef struct Flow {
    Link *link;
    int from, to;
    GQueue chunks; /* of Chunk, in order of due_us */
    size_t queued;
    bool closed_in, closed_out;
} Flow;

typedef struct Connection {
    int client, server;
    bool connecting;
    Flow up, down;
} Connection;

/* Where connections come in that go to another port of the target. */
typedef struct Entrance {
    int listener;
    in_port_t port; /* in network order */
} Entrance;

typedef struct Proxy {
    struct sockaddr_storage target;
    socklen_t target_size;
    int listener;
    GArray *entrances; /* of Entrance, beside it */
    GPtrArray *connections;
    Link up, down;
    int64_t delay_us;
    int64_t gust_us;      /* nothing is forwarded for so long, then everything for as long, and so on; 0: no gusts */
    uint64_t bytes_per_s; /* 0: as fast as it goes */
    bool stalled, refusing, quit;
    GString *input; /* what of a command has arrived */
} Proxy;

static int64_t now_us (void)
{
    return g_get_monotonic_time ();
}

static bool becalmed (const Proxy *proxy)
{
    return proxy->stalled || (proxy->gust_us > 0 && now_us () / proxy->gust_us % 2 != 0);
}

static Chunk *first_chunk (const Flow *flow)
{
    return flow->chunks.head ? flow->chunks.head->data : NULL;
}

static void flow_clear (Flow *flow)
{
    g_queue_clear_full (&flow->chunks, g_free);
}

static void connection_free (void *data)
{
    Connection *connection = data;
    close (connection->client);
    close (connection->server);
    flow_clear (&connection->up);
    flow_clear (&connection->down);
    g_free (connection);
}

static void no_delay (int fd)
{
    /* Only a matter of speed: a failure changes nothing that a test asserts. */
    (void) setsockopt (fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof (int));
}

/* @port: of the target, in network order; 0: the one that was given. */
static void accept_one (Proxy *proxy, int listener, in_port_t port)
{
    struct sockaddr_storage target = proxy->target;
    int client = accept4 (listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client < 0)
        return;
    if (proxy->refusing) {
        close (client);
        return;
    }
    if (port != 0) /* at the same place in an address of IPv6 */
        ((struct sockaddr_in *) &target)->sin_port = port;
    int server = socket (target.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (server < 0 || (connect (server, (struct sockaddr *) &target, proxy->target_size) < 0 && errno != EINPROGRESS)) {
        close (client);
        if (server >= 0)
            close (server);
        return;
    }
    no_delay (client);
    no_delay (server);
    Connection *connection = g_new0 (Connection, 1);
    connection->client = client;
    connection->server = server;
    connection->connecting = true;
    connection->up = (Flow){.link = &proxy->up, .from = client, .to = server, .chunks = G_QUEUE_INIT};
    connection->down = (Flow){.link = &proxy->down, .from = server, .to = client, .chunks = G_QUEUE_INIT};
    g_ptr_array_add (proxy->connections, connection);
}

/* Flips bits as ordered in the @size bytes that the link takes next. */
static void corrupt (Link *link, uint8_t *bytes, size_t size)
{
    if (link->corrupt_at >= link->taken && link->corrupt_at - link->taken < size) {
        bytes[link->corrupt_at - link->taken] ^= 0x10;
        link->corrupt_at = UINT64_MAX;
    }
    if (link->corrupt_chance > 0)
        for (size_t i = 0; i < size; i++)
            if (g_random_double () < link->corrupt_chance)
                bytes[i] ^= (uint8_t) (1 << g_random_int_range (0, 8));
}

/* Puts a chunk on the line: when it arrives follows from what the link owes already, the rate and the delay. */
static void send_off (const Proxy *proxy, Flow *flow, Chunk *chunk)
{
    Link *link = flow->link;
    int64_t start_us = MAX (now_us (), link->free_at_us);
    int64_t takes_us = proxy->bytes_per_s > 0 ? (int64_t) (chunk->size * G_USEC_PER_SEC / proxy->bytes_per_s) : 0;
    link->free_at_us = start_us + takes_us;
    chunk->due_us = link->free_at_us + proxy->delay_us;
    const Chunk *last = g_queue_peek_tail (&flow->chunks);
    if (last)
        chunk->due_us = MAX (chunk->due_us, last->due_us); /* the delay may have been shortened */
    link->taken += chunk->size;
    flow->queued += chunk->size;
    g_queue_push_tail (&flow->chunks, chunk);
}

/* 10 ms worth of bytes, so that a slow link trickles and does not lump. */
static size_t chunk_size (const Proxy *proxy)
{
    if (proxy->bytes_per_s == 0)
        return CHUNK_MAX;
    return CLAMP (proxy->bytes_per_s / 100, 64, CHUNK_MAX);
}

static bool may_take (const Proxy *proxy, const Flow *flow)
{
    return !becalmed (proxy) && !flow->closed_in && flow->queued < FLIGHT_MAX &&
           flow->link->free_at_us <= now_us () + BACKLOG_US;
}

/* Reads one chunk. Returns false when the connection is broken. */
static bool take (const Proxy *proxy, Flow *flow)
{
    size_t room = chunk_size (proxy);
    Chunk *chunk = g_malloc (sizeof (Chunk) + room);
    ssize_t got = recv (flow->from, chunk->bytes, room, 0);
    if (got < 0) {
        g_free (chunk);
        return errno == EAGAIN || errno == EINTR;
    }
    chunk->size = (size_t) got;
    chunk->done = 0;
    flow->closed_in = got == 0;
    corrupt (flow->link, chunk->bytes, chunk->size);
    send_off (proxy, flow, chunk);
    return true;
}

/* Writes what has arrived by now. Returns false when the connection is broken. */
static bool deliver (const Proxy *proxy, Flow *flow)
{
    Chunk *chunk;
    while (!becalmed (proxy) && (chunk = first_chunk (flow)) && chunk->due_us <= now_us ()) {
        if (chunk->size == 0) {
            flow->closed_out = true;
            (void) shutdown (flow->to, SHUT_WR); /* fails only when the peer is gone already */
        } else {
            ssize_t put = send (flow->to, chunk->bytes + chunk->done, chunk->size - chunk->done, MSG_NOSIGNAL);
            if (put < 0)
                return errno == EAGAIN || errno == EINTR;
            chunk->done += (size_t) put;
            flow->queued -= (size_t) put;
            if (chunk->done < chunk->size)
                return true;
        }
        g_free (g_queue_pop_head (&flow->chunks));
    }
    return true;
}

static bool due (const Flow *flow, int64_t at_us)
{
    const Chunk *chunk = first_chunk (flow);
    return chunk && chunk->due_us <= at_us;
}

/* Which events of @fd matter, when it is the source of @in and the destination of @out. */
static short events_for (const Proxy *proxy, const Flow *in, const Flow *out)
{
    if (becalmed (proxy))
        return 0;
    return (short) ((may_take (proxy, in) ? POLLIN : 0) | (due (out, now_us ()) ? POLLOUT : 0));
}

/* The moment something is to be done although no descriptor says so; INT64_MAX: never. */
static int64_t wake_up_us (const Proxy *proxy)
{
    int64_t wake_us = INT64_MAX, now = now_us ();
    if (proxy->stalled)
        return wake_us;
    if (proxy->gust_us > 0 && proxy->connections->len > 0)
        wake_us = (now / proxy->gust_us + 1) * proxy->gust_us;
    for (guint i = 0; i < proxy->connections->len; i++) {
        const Connection *connection = proxy->connections->pdata[i];
        const Flow *flows[] = {&connection->up, &connection->down};
        for (size_t f = 0; f < G_N_ELEMENTS (flows); f++) {
            const Chunk *chunk = first_chunk (flows[f]);
            if (chunk && chunk->due_us > now)
                wake_us = MIN (wake_us, chunk->due_us);
            if (flows[f]->link->free_at_us > now + BACKLOG_US)
                wake_us = MIN (wake_us, flows[f]->link->free_at_us - BACKLOG_US);
        }
    }
    return wake_us;
}

/* Returns false when the connection is over. */
static bool serve (const Proxy *proxy, Connection *connection, short client_events, short server_events)
{
    if (connection->connecting && (server_events & (POLLOUT | POLLERR | POLLHUP))) {
        int error = 0;
        if (getsockopt (connection->server, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}) < 0 || error)
            return false;
        connection->connecting = false;
    }
    if (connection->connecting)
        return true;
    if ((client_events & (POLLIN | POLLHUP)) && may_take (proxy, &connection->up) && !take (proxy, &connection->up))
        return false;
    if ((server_events & (POLLIN | POLLHUP)) && may_take (proxy, &connection->down) && !take (proxy, &connection->down))
        return false;
    if ((client_events | server_events) & POLLERR)
        return false;
    return deliver (proxy, &connection->up) && deliver (proxy, &connection->down) &&
           !(connection->up.closed_out && connection->down.closed_out);
}

typedef struct Command {
    const char *name, *arguments, *help;
    /* Returns NULL, or what is wrong. */
    const char *(*run) (Proxy *proxy, const char *arguments);
} Command;

static const char *run_delay (Proxy *proxy, const char *arguments)
{
    char *end;
    double ms = g_ascii_strtod (arguments, &end);
    if (end == arguments || *end != '\0' || !(ms >= 0 && ms <= MAX_DELAY))
        return "a number of milliseconds is needed";
    proxy->delay_us = (int64_t) (ms * 1000);
    return NULL;
}

static const char *run_throttle (Proxy *proxy, const char *arguments)
{
    guint64 rate;
    if (!g_ascii_string_to_unsigned (arguments, 10, 0, UINT32_MAX, &rate, NULL))
        return "a number of bytes per second is needed";
    proxy->bytes_per_s = rate;
    return NULL;
}

static const char *run_gusts (Proxy *proxy, const char *arguments)
{
    guint64 ms;
    if (!g_ascii_string_to_unsigned (arguments, 10, 0, MAX_DELAY, &ms, NULL))
        return "a number of milliseconds is needed";
    proxy->gust_us = (int64_t) ms * 1000;
    return NULL;
}

static int listen_at (struct in_addr host, in_port_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = host, .sin_port = port};
    int fd = socket (AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof (int)) == 0 &&
        bind (fd, (struct sockaddr *) &address, sizeof address) == 0 && listen (fd, 64) == 0)
        return fd;
    if (fd >= 0)
        close (fd);
    return -1;
}

static const char *run_also (Proxy *proxy, const char *arguments)
{
    g_auto (GStrv) words = g_strsplit (arguments, " ", 3);
    struct in_addr host;
    guint64 first, last;
    if (g_strv_length (words) != 3 || inet_pton (AF_INET, words[0], &host) != 1 ||
        !g_ascii_string_to_unsigned (words[1], 10, 1, UINT16_MAX, &first, NULL) ||
        !g_ascii_string_to_unsigned (words[2], 10, first, UINT16_MAX, &last, NULL))
        return "an address and the first and last of its ports are needed";
    for (guint64 port = first; port <= last; port++) {
        Entrance entrance = {.port = htons ((uint16_t) port)};
        entrance.listener = listen_at (host, entrance.port);
        if (entrance.listener < 0)
            return "one of the ports is taken";
        g_array_append_val (proxy->entrances, entrance);
    }
    return NULL;
}

static const char *run_stall (Proxy *proxy, const char *arguments)
{
    proxy->stalled = true;
    return NULL;
}

static const char *run_resume (Proxy *proxy, const char *arguments)
{
    proxy->stalled = false;
    return NULL;
}

static const char *run_cut (Proxy *proxy, const char *arguments)
{
    g_ptr_array_set_size (proxy->connections, 0);
    return NULL;
}

static const char *run_refuse (Proxy *proxy, const char *arguments)
{
    proxy->refusing = true;
    return NULL;
}

static const char *run_accept (Proxy *proxy, const char *arguments)
{
    proxy->refusing = false;
    return NULL;
}

static const char *run_corrupt (Proxy *proxy, const char *arguments)
{
    g_auto (GStrv) words = g_strsplit (arguments, " ", 3);
    guint n = g_strv_length (words);
    Link *link = n >= 1 && strcmp (words[0], "up") == 0 ? &proxy->up : &proxy->down;
    guint64 number;
    double chance = n == 3 ? g_ascii_strtod (words[2], NULL) : 0;
    if (n == 2 && strcmp (words[1], "off") == 0) {
        link->corrupt_at = UINT64_MAX;
        link->corrupt_chance = 0;
    } else if (n == 3 && strcmp (words[1], "at") == 0 &&
               g_ascii_string_to_unsigned (words[2], 10, 0, INT64_MAX, &number, NULL)) {
        link->corrupt_at = link->taken + number;
    } else if (n == 3 && strcmp (words[1], "chance") == 0 && chance > 0 && chance <= 1) {
        link->corrupt_chance = chance;
    } else {
        return "up|down at N, up|down chance P or up|down off is needed";
    }
    return NULL;
}

static const char *run_quit (Proxy *proxy, const char *arguments)
{
    proxy->quit = true;
    return NULL;
}

static const char *run_status (Proxy *proxy, const char *arguments);
static const char *run_help (Proxy *proxy, const char *arguments);

static const Command commands[] = {
    {"delay", "MS", "every byte arrives MS later, in both directions", run_delay},
    {"throttle", "BYTES_PER_S", "of each direction, all connections together; 0: none", run_throttle},
    {"gusts", "MS", "forward nothing for MS, then everything for as long, and so on; 0: steadily", run_gusts},
    {"also", "ADDRESS FIRST LAST", "listen there too, each port for the same of the target", run_also},
    {"stall", "", "forward nothing, keep all connections, accept new ones", run_stall},
    {"resume", "", "forward again", run_resume},
    {"cut", "", "close all connections now", run_cut},
    {"refuse", "", "close new connections at once", run_refuse},
    {"accept", "", "take new connections again", run_accept},
    {"corrupt", "up|down at N", "flip a bit in the Nth byte from now (0: the next); up is to the server", run_corrupt},
    {"corrupt", "up|down chance P", "flip a bit in each byte with this probability", run_corrupt},
    {"corrupt", "up|down off", "stop that", run_corrupt},
    {"status", "", "connections, bytes taken from clients, bytes taken from the server", run_status},
    {"help", "", "this list", run_help},
    {"quit", "", "end", run_quit},
};

static const char *run_status (Proxy *proxy, const char *arguments)
{
    printf ("ok connections=%u up=%" PRIu64 " down=%" PRIu64 "\n", proxy->connections->len, proxy->up.taken,
            proxy->down.taken);
    return NULL;
}

static const char *run_help (Proxy *proxy, const char *arguments)
{
    for (size_t i = 0; i < G_N_ELEMENTS (commands); i++)
        printf ("%s %s: %s\n", commands[i].name, commands[i].arguments, commands[i].help);
    printf ("ok\n");
    return NULL;
}

static void obey (Proxy *proxy, const char *line)
{
    size_t length = strcspn (line, " ");
    const char *arguments = line[length] == ' ' ? line + length + 1 : "";
    for (size_t i = 0; i < G_N_ELEMENTS (commands); i++) {
        if (strlen (commands[i].name) != length || memcmp (commands[i].name, line, length) != 0)
            continue;
        const char *wrong = commands[i].run (proxy, arguments);
        if (wrong)
            printf ("error %s\n", wrong);
        else if (commands[i].run != run_status && commands[i].run != run_help)
            printf ("ok\n");
        fflush (stdout);
        return;
    }
    printf ("error no such command: %s\n", line);
    fflush (stdout);
}

static void read_commands (Proxy *proxy)
{
    char bytes[4096];
    ssize_t got = read (STDIN_FILENO, bytes, sizeof bytes);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
        proxy->quit = true;
    if (got > 0)
        g_string_append_len (proxy->input, bytes, got);
    char *end;
    while (!proxy->quit && (end = memchr (proxy->input->str, '\n', proxy->input->len))) {
        *end = '\0';
        obey (proxy, proxy->input->str);
        g_string_erase (proxy->input, 0, end + 1 - proxy->input->str);
    }
}

static bool resolve (Proxy *proxy, const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int wrong = getaddrinfo (host, port, &hints, &found);
    if (wrong) {
        fprintf (stderr, "lab-proxy: %s port %s: %s\n", host, port, gai_strerror (wrong));
        return false;
    }
    memcpy (&proxy->target, found->ai_addr, found->ai_addrlen);
    proxy->target_size = found->ai_addrlen;
    freeaddrinfo (found);
    return true;
}

static bool listen_on (Proxy *proxy, uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons (port)};
    address.sin_addr.s_addr = htonl (INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    proxy->listener = socket (AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (proxy->listener < 0 || setsockopt (proxy->listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof (int)) < 0 ||
        bind (proxy->listener, (struct sockaddr *) &address, size) < 0 || listen (proxy->listener, 64) < 0 ||
        getsockname (proxy->listener, (struct sockaddr *) &address, &size) < 0) {
        fprintf (stderr, "lab-proxy: port %u: %s\n", port, strerror (errno));
        return false;
    }
    printf ("port %u\n", ntohs (address.sin_port));
    fflush (stdout);
    return true;
}

static void run_once (Proxy *proxy)
{
    guint n = proxy->connections->len, n_entrances = proxy->entrances->len;
    /* Before the events: a chunk that becomes due in between is then in one of the two. */
    int64_t wake_us = wake_up_us (proxy);
    g_autofree struct pollfd *fds = g_new0 (struct pollfd, 2 + 2 * n + n_entrances);
    struct pollfd *entering = fds + 2 + 2 * n;
    fds[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
    for (guint i = 0; i < n; i++) {
        const Connection *c = proxy->connections->pdata[i];
        short client = c->connecting ? 0 : events_for (proxy, &c->up, &c->down);
        short server = c->connecting ? POLLOUT : events_for (proxy, &c->down, &c->up);
        /* A negative descriptor is ignored: a hang-up nobody may act on yet must not spin the loop. */
        fds[2 + 2 * i] = (struct pollfd){.fd = client ? c->client : -1, .events = client};
        fds[3 + 2 * i] = (struct pollfd){.fd = server ? c->server : -1, .events = server};
    }
    for (guint i = 0; i < n_entrances; i++)
        entering[i] = (struct pollfd){.fd = g_array_index (proxy->entrances, Entrance, i).listener, .events = POLLIN};
    int64_t wait_us = wake_us == INT64_MAX ? (int64_t) 3600 * G_USEC_PER_SEC : MAX (wake_us - now_us (), 0);
    struct timespec wait = {wait_us / G_USEC_PER_SEC, wait_us % G_USEC_PER_SEC * 1000};
    if (ppoll (fds, 2 + 2 * n + n_entrances, &wait, NULL) < 0)
        return;
    /* Backwards, so that one that ends does not move those still to be served. */
    for (guint i = n; i-- > 0;)
        if (!serve (proxy, proxy->connections->pdata[i], fds[2 + 2 * i].revents, fds[3 + 2 * i].revents))
            g_ptr_array_remove_index (proxy->connections, i);
    if (fds[1].revents)
        accept_one (proxy, proxy->listener, 0);
    for (guint i = 0; i < n_entrances; i++)
        if (entering[i].revents)
            accept_one (proxy, entering[i].fd, g_array_index (proxy->entrances, Entrance, i).port);
    if (fds[0].revents)
        read_commands (proxy);
}

int main (int argc, char **argv)
{
    guint64 port = 0;
    if (argc < 3 || argc > 4 || (argc == 4 && !g_ascii_string_to_unsigned (argv[3], 10, 0, 65535, &port, NULL))) {
        fprintf (stderr, "usage: lab-proxy HOST PORT [LISTEN_PORT]\n");
        return 2;
    }
    Proxy proxy = {.up = {.corrupt_at = UINT64_MAX}, .down = {.corrupt_at = UINT64_MAX}};
    if (!resolve (&proxy, argv[1], argv[2]) || !listen_on (&proxy, (uint16_t) port))
        return 1;
    proxy.connections = g_ptr_array_new_with_free_func (connection_free);
    proxy.input = g_string_new (NULL);
    proxy.entrances = g_array_new (FALSE, FALSE, sizeof (Entrance));
    while (!proxy.quit)
        run_once (&proxy);
    g_ptr_array_unref (proxy.connections);
    g_string_free (proxy.input, TRUE);
    close (proxy.listener);
    for (guint i = 0; i < proxy.entrances->len; i++)
        close (g_array_index (proxy.entrances, Entrance, i).listener);
    g_array_unref (proxy.entrances);
    return 0;
}
