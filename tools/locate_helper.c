/*
 * ecfs-locate: a node of a distributed hash table, for the ecfs that started it, which asks by lines on the standard
 * input and is answered on the standard output: locate_text.h says how.
 *
 * A program of its own because of its license, and because of what may come to its port: OpenDHT is under the GNU
 * General Public License, version 3 or later, and so is this program as a whole where it is distributed with that
 * library; its source alone is under the license of ecfs. It has no key of an archive, reads no file and writes none,
 * and gives up what it would need for that (locate_cage.h): what it carries was sealed before it came here.
 *
 * OpenDHT calls back on a thread of its own. Questions are known by their numbers, as nothing says that the last call
 * for one of them has been made.
 */
#include "locate/locate_text.h"
#include "locate_cage.h"

#include <errno.h>
#include <glib.h>
#include <netinet/in.h>
#include <opendht/opendht_c.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_VALUES    256        /* that a question is answered with, … */
#define MOST_BYTES     (4u << 20) /* … together */
#define MOST_QUESTIONS 4096       /* at once */

typedef struct Question {
    unsigned n_values;
    size_t bytes;
} Question;

static dht_runner *runner;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static GHashTable *questions; /* number → Question; guarded by lock, as what is written */

static void write_locked (const EcfsLocateLine *line)
{
    g_autofree char *text = ecfs_locate_line_format (line);
    size_t size = strlen (text);
    for (size_t done = 0; done < size;) {
        ssize_t wrote = write (STDOUT_FILENO, text + done, size - done);
        if (wrote < 0 && errno != EINTR)
            _exit (0); /* nobody listens any more */
        done += wrote > 0 ? (size_t) wrote : 0;
    }
}

static void fail (const char *text)
{
    (void) pthread_mutex_lock (&lock);
    write_locked (&(EcfsLocateLine){.word = ECFS_LOCATE_FAILED, .text = (char *) text});
    (void) pthread_mutex_unlock (&lock);
    _exit (1);
}

static bool on_value (const dht_value *value, void *user)
{
    dht_data_view data = dht_value_get_data (value);
    (void) pthread_mutex_lock (&lock);
    Question *question = g_hash_table_lookup (questions, user);
    bool goes_on = question != NULL && question->n_values < MOST_VALUES && question->bytes + data.size <= MOST_BYTES;
    if (goes_on && data.size > 0 && data.size <= ECFS_LOCATE_VALUE_MAX) {
        g_autoptr (GBytes) bytes = g_bytes_new (data.data, data.size);
        question->n_values++;
        question->bytes += data.size;
        write_locked (&(EcfsLocateLine){.word = ECFS_LOCATE_VALUE, .number = GPOINTER_TO_SIZE (user), .bytes = bytes});
    }
    (void) pthread_mutex_unlock (&lock);
    return goes_on;
}

static void on_done (bool ok, void *user)
{
    (void) pthread_mutex_lock (&lock);
    if (g_hash_table_remove (questions, user))
        write_locked (&(EcfsLocateLine){.word = ECFS_LOCATE_DONE, .number = GPOINTER_TO_SIZE (user), .good = ok});
    (void) pthread_mutex_unlock (&lock);
}

/* False: it was answered at once. */
static bool note_question (void *number)
{
    (void) pthread_mutex_lock (&lock);
    bool takes = g_hash_table_size (questions) < MOST_QUESTIONS;
    if (takes)
        g_hash_table_insert (questions, number, g_new0 (Question, 1));
    else
        write_locked (&(EcfsLocateLine){.word = ECFS_LOCATE_DONE, .number = GPOINTER_TO_SIZE (number)});
    (void) pthread_mutex_unlock (&lock);
    return takes;
}

static void put (const EcfsLocateLine *line, const dht_infohash *key, void *number)
{
    size_t size;
    const uint8_t *data = g_bytes_get_data (line->bytes, &size);
    dht_value *value = dht_value_new (data, size);
    dht_runner_put (runner, key, value, on_done, number, false);
    dht_value_unref (value);
}

static void serve (const EcfsLocateLine *line)
{
    dht_infohash key;
    G_STATIC_ASSERT (sizeof key.d == ECFS_LOCATE_KEY_BYTES);
    memcpy (key.d, line->key, sizeof key.d);
    void *number = GSIZE_TO_POINTER (line->number);
    if (line->word == ECFS_LOCATE_BOOTSTRAP) {
        g_autofree char *port = g_strdup_printf ("%u", line->port);
        dht_runner_bootstrap (runner, line->text, port);
    } else if (line->word == ECFS_LOCATE_PUT && note_question (number)) {
        put (line, &key, number);
    } else if (line->word == ECFS_LOCATE_GET && note_question (number)) {
        dht_runner_get (runner, &key, on_value, on_done, number);
    }
}

/* Serves the lines that are whole; returns what is left of them. */
static size_t take_lines (char *bytes, size_t size)
{
    char *at = bytes, *end;
    while ((end = memchr (at, '\n', size)) != NULL) {
        EcfsLocateLine line;
        if (!ecfs_locate_line_parse (at, (size_t) (end - at), &line))
            fail ("a line is none");
        serve (&line);
        ecfs_locate_line_clear (&line);
        size -= (size_t) (end + 1 - at);
        at = end + 1;
    }
    memmove (bytes, at, size);
    return size;
}

static bool is_taken (const struct sockaddr *address, socklen_t size)
{
    int only = 1, fd = socket (address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && address->sa_family == AF_INET6)
        (void) setsockopt (fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only); /* else it finds more taken */
    bool taken = fd >= 0 && bind (fd, address, size) != 0 && errno == EADDRINUSE;
    if (fd >= 0)
        (void) close (fd); /* nothing was sent */
    return taken;
}

/* OpenDHT is content with either, and then others do not find it at the address that they are told. */
static in_port_t free_for_both (in_port_t port)
{
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons (port)};
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons (port)};
    if (port == 0 || (!is_taken ((const struct sockaddr *) &four, sizeof four) &&
                      !is_taken ((const struct sockaddr *) &six, sizeof six)))
        return port;
    g_printerr ("UDP port %u is taken by another program: another one is used, where others do not look for it\n",
                port);
    return 0;
}

static void run (in_port_t port, uint32_t network)
{
    dht_runner_config config;
    dht_runner_config_default (&config);
    config.dht_config.node_config.network = network;
    config.dht_config.node_config.maintain_storage = true;
    config.threaded = true;
    runner = dht_runner_new ();
    int result = dht_runner_run_config (runner, port, &config);
    if (result != 0 && port != 0)
        result = dht_runner_run_config (runner, 0, &config); /* somebody else has it: a second mount, say */
    if (result != 0)
        fail ("no node can be started");
    in_port_t bound = dht_runner_get_bound_port (runner, AF_INET);
    bound = bound != 0 ? bound : dht_runner_get_bound_port (runner, AF_INET6);
    (void) pthread_mutex_lock (&lock);
    write_locked (&(EcfsLocateLine){.word = ECFS_LOCATE_READY, .port = bound});
    (void) pthread_mutex_unlock (&lock);
}

int main (int argc, char **argv)
{
    static char bytes[ECFS_LOCATE_LINE_MAX];
    uint64_t port, network;
    size_t filled = 0;
    if (argc != 3 || !g_ascii_string_to_unsigned (argv[1], 10, 0, 65535, &port, NULL) ||
        !g_ascii_string_to_unsigned (argv[2], 16, 0, UINT32_MAX, &network, NULL)) {
        g_printerr ("ecfs-locate: ecfs runs this: it takes a port, and the number of a network\n");
        return 2;
    }
    port = free_for_both ((in_port_t) port);
    (void) ecfs_cage_enter ();        /* what comes by the network may find a way in; each part of it only helps */
    (void) signal (SIGPIPE, SIG_IGN); /* told by errno */
    questions = g_hash_table_new_full (NULL, NULL, NULL, g_free);
    run ((in_port_t) port, (uint32_t) network);
    for (;;) {
        ssize_t got = read (STDIN_FILENO, bytes + filled, sizeof bytes - filled);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        filled = take_lines (bytes, filled + (size_t) got);
        if (filled == sizeof bytes)
            fail ("a line has no end");
    }
    _exit (0); /* others find by themselves that it is gone: a good-bye may take long */
}
