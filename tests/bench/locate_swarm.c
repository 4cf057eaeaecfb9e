/*
 * Lookups in a hash table of many real nodes in a few processes: locate_swarm [NODES [SECONDS [RATE...]]], by default
 * 1000 nodes, for 10 seconds each 10, 100 and 300 lookups a second. Each takes some 4 ms of a processor with 1000
 * nodes: what is more than there are of these makes a queue that grows.
 *
 * Values are put by some nodes and looked for by others: as all are there, right after a third of them has ended, which
 * nobody was told, and a minute later. "first" is until the first value has come, "end" until the question is answered.
 * "processor" is what one lookup takes of it, both ends of each datagram and what nodes do by themselves included; the
 * line "idle" tells the latter.
 *
 * OpenDHT takes 200 requests a second of one address, so each node has one of its own, in a network namespace, which
 * needs root. They are not of 127.0.0.0/8: what one node tells another of such an address is taken for the teller's.
 * It also waits by select (), so a process has room for 300 nodes at most. All processes do the same, each with its
 * part of the nodes and lookups, and wait for each other in between.
 * ECFS_SEED repeats the choice of nodes and keys, but not of times.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <glib.h>
#include <netinet/in.h>
#include <opendht/opendht_c.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define NETWORK    0xbe7c5
#define N_KEYS     200
#define N_WORKERS  8
#define MOST       2000
#define MOST_RATES 8
#define MOST_ASKED 200000   /* in one measurement */
#define AT_ONCE    20       /* nodes that begin, or values that are put */
#define WAIT_US    20000000 /* for an answer */
#define MINUTE_US  60000000

typedef struct Node {
    dht_runner *runner; /* NULL: it has ended */
    in_port_t port;
} Node;

/* One question; it lives on, as an answer may come late. */
typedef struct Question {
    int64_t begun_us;
    _Atomic int64_t first_us; /* 0: nothing has come, as in the next */
    _Atomic int64_t end_us;
    atomic_bool good;
} Question;

/* What all processes see; each writes what is its own, and reads what others wrote before they met. */
typedef struct Shared {
    pthread_barrier_t meet;
    Node nodes[MOST]; /* a runner is of one process */
    dht_infohash keys[N_KEYS];
    double first_ms[MOST_ASKED]; /* below 0: none has come */
    double end_ms[MOST_ASKED];
    double processor_s[N_WORKERS];
    double took_s[N_WORKERS];
} Shared;

static Shared *shared;
static unsigned me; /* of N_WORKERS */
static unsigned n_nodes = 1000;
static GRand *dice;

static _Atomic unsigned binding; /* index of the node that is started */

static void address_of (unsigned index, char address[INET_ADDRSTRLEN])
{
    (void) g_snprintf (address, INET_ADDRSTRLEN, "10.78.%u.%u", index / 250, index % 250 + 1);
}

/* OpenDHT's interface in C has no way to say at which address a node is: its library calls this one in place of libc's.
 */
int bind (int fd, const struct sockaddr *address, socklen_t size)
{
    char text[INET_ADDRSTRLEN];
    int (*next) (int, const struct sockaddr *, socklen_t) =
        (int (*) (int, const struct sockaddr *, socklen_t)) dlsym (RTLD_NEXT, "bind");
    if (address->sa_family != AF_INET) {
        errno = EAFNOSUPPORT;
        return -1;
    }
    struct sockaddr_in own = *(const struct sockaddr_in *) address;
    address_of (atomic_load (&binding), text);
    own.sin_addr.s_addr = inet_addr (text);
    return next (fd, (const struct sockaddr *) &own, size);
}

static void enter_network (void)
{
    g_autoptr (GError) error = NULL;
    if (unshare (CLONE_NEWNET) != 0)
        g_error ("no network namespace can be made: %s", g_strerror (errno));
    if (!g_spawn_command_line_sync ("ip link set lo up", NULL, NULL, NULL, &error) ||
        !g_spawn_command_line_sync ("ip route add local 10.78.0.0/16 dev lo", NULL, NULL, NULL, &error))
        g_error ("%s", error->message);
}

static bool on_value (const dht_value *value, void *user)
{
    int64_t none = 0;
    Question *question = user;
    (void) value;
    atomic_compare_exchange_strong (&question->first_us, &none, g_get_monotonic_time ());
    return true;
}

static void on_done (bool ok, void *user)
{
    Question *question = user;
    atomic_store (&question->good, ok);
    atomic_store (&question->end_us, g_get_monotonic_time ());
}

static Question *question_new (void)
{
    Question *question = g_new0 (Question, 1);
    question->begun_us = g_get_monotonic_time ();
    return question;
}

static bool await (Question *question)
{
    while (atomic_load (&question->end_us) == 0 && g_get_monotonic_time () < question->begun_us + WAIT_US)
        g_usleep (1000);
    return atomic_load (&question->good);
}

static void meet (void)
{
    int result = pthread_barrier_wait (&shared->meet);
    if (result != 0 && result != PTHREAD_BARRIER_SERIAL_THREAD)
        g_error ("processes cannot wait for each other");
}

/* One of ours. */
static Node *any_node (void)
{
    for (;;) {
        Node *node = &shared->nodes[(guint) g_rand_int_range (dice, 0, (gint32) n_nodes)];
        if ((node - shared->nodes) % N_WORKERS == me && node->runner != NULL)
            return node;
    }
}

/* Each asks one that is there already who else is. */
static void start_node (unsigned index)
{
    dht_runner_config config;
    dht_runner_config_default (&config);
    config.dht_config.node_config.network = NETWORK;
    config.dht_config.node_config.maintain_storage = true;
    config.threaded = true;
    Node *node = &shared->nodes[index];
    atomic_store (&binding, index);
    node->runner = dht_runner_new ();
    if (dht_runner_run_config (node->runner, 0, &config) != 0)
        g_error ("no node can be started");
    node->port = dht_runner_get_bound_port (node->runner, AF_INET);
    if (index == 0)
        return;
    char address[INET_ADDRSTRLEN];
    unsigned n_there = index < AT_ONCE ? index : index - index % AT_ONCE; /* when all last met */
    unsigned known = (unsigned) g_rand_int_range (dice, 0, (gint32) n_there);
    g_autofree char *port = g_strdup_printf ("%u", shared->nodes[known].port);
    address_of (known, address);
    dht_runner_bootstrap (node->runner, address, port);
}

/* A node takes part when somebody has answered it. */
static void join (unsigned index)
{
    dht_infohash somewhere;
    for (bool good = false; !good;) {
        Question *question = question_new ();
        dht_infohash_random (&somewhere);
        dht_runner_get (shared->nodes[index].runner, &somewhere, on_value, on_done, question);
        good = await (question);
        if (!good)
            g_usleep (50000);
    }
}

static void start_all (void)
{
    int64_t begun_us = g_get_monotonic_time ();
    for (unsigned i = 0; i < n_nodes; i++) {
        if (i % N_WORKERS == me) {
            start_node (i);
            if (i > 0 && (i % AT_ONCE == 0 || i < AT_ONCE))
                join (i);
        }
        if (i % AT_ONCE == 0 || i < AT_ONCE)
            meet ();
    }
    meet ();
    for (unsigned i = 1; i < n_nodes; i++)
        if (i % N_WORKERS == me)
            join (i);
    meet ();
    if (me == 0)
        printf ("%u nodes have met in %.1f s\n", n_nodes, (double) (g_get_monotonic_time () - begun_us) / 1e6);
}

static void put_all (void)
{
    for (unsigned i = me; i < N_KEYS; i += N_WORKERS) {
        dht_infohash_random (&shared->keys[i]);
        for (bool good = false; !good;) {
            Question *question = question_new ();
            dht_value *value = dht_value_new ((const uint8_t *) &i, sizeof i);
            dht_runner_put (any_node ()->runner, &shared->keys[i], value, on_done, question, false);
            good = await (question);
            dht_value_unref (value);
        }
    }
    meet ();
}

static int compare (gconstpointer a, gconstpointer b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double of (GArray *sorted, double share)
{
    return sorted->len == 0 ? 0 : g_array_index (sorted, double, (guint) (share * (sorted->len - 1)));
}

static double processor_s (void)
{
    struct rusage usage;
    if (getrusage (RUSAGE_SELF, &usage) != 0)
        return 0;
    return (double) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Every N_WORKERS-th lookup is ours. */
static void ask_ours (unsigned rate, unsigned n)
{
    g_autofree Question **asked = g_new0 (Question *, n);
    double before_s = processor_s ();
    int64_t begun_us = g_get_monotonic_time ();
    for (unsigned i = me; i < n; i += N_WORKERS) {
        int64_t due_us = begun_us + (int64_t) i * 1000000 / rate, now_us = g_get_monotonic_time ();
        if (due_us > now_us)
            g_usleep ((gulong) (due_us - now_us));
        asked[i] = question_new ();
        const dht_infohash *key = &shared->keys[g_rand_int_range (dice, 0, N_KEYS)];
        dht_runner_get (any_node ()->runner, key, on_value, on_done, asked[i]);
    }
    shared->took_s[me] = (double) (g_get_monotonic_time () - begun_us) / 1e6;
    for (unsigned i = me; i < n; i += N_WORKERS) {
        (void) await (asked[i]); /* what counts is what came */
        int64_t first_us = atomic_load (&asked[i]->first_us), end_us = atomic_load (&asked[i]->end_us);
        end_us = end_us == 0 ? g_get_monotonic_time () : end_us;
        shared->first_ms[i] = first_us == 0 ? -1 : (double) (first_us - asked[i]->begun_us) / 1e3;
        shared->end_ms[i] = (double) (end_us - asked[i]->begun_us) / 1e3;
    }
    shared->processor_s[me] = processor_s () - before_s;
}

static void tell (const char *title, unsigned n)
{
    double load = 0, took_s = 0, used_s = 0;
    g_autoptr (GArray) firsts = g_array_new (FALSE, FALSE, sizeof (double));
    g_autoptr (GArray) ends = g_array_new (FALSE, FALSE, sizeof (double));
    g_array_append_vals (ends, shared->end_ms, n);
    for (unsigned i = 0; i < n; i++)
        if (shared->first_ms[i] >= 0)
            g_array_append_val (firsts, shared->first_ms[i]);
    for (unsigned i = 0; i < N_WORKERS; i++) {
        took_s = MAX (took_s, shared->took_s[i]);
        used_s += shared->processor_s[i];
    }
    g_array_sort (firsts, compare);
    g_array_sort (ends, compare);
    (void) getloadavg (&load, 1); /* it is for people, as the table is */
    printf (
        "%-23s %5.0f/s  found %5u of %5u  first: median %7.1f ms, 99%% %8.1f ms  end: median %7.1f ms, 99%% %8.1f ms"
        "  processor %6.2f ms  load %.1f\n",
        title, n / took_s, firsts->len, n, of (firsts, 0.5), of (firsts, 0.99), of (ends, 0.5), of (ends, 0.99),
        used_s / n * 1e3, load);
    (void) fflush (stdout);
}

static void measure_all (const char *title, unsigned seconds, const unsigned *rates, unsigned n_rates)
{
    for (unsigned i = 0; i < n_rates; i++) {
        unsigned n = MIN (rates[i] * seconds, MOST_ASKED);
        meet ();
        ask_ours (rates[i], n);
        meet ();
        if (me == 0)
            tell (title, n);
    }
}

static void measure_idle (unsigned seconds)
{
    double used_s = 0, before_s = processor_s ();
    g_usleep (seconds * 1000000ul);
    shared->processor_s[me] = processor_s () - before_s;
    meet ();
    for (unsigned i = 0; i < N_WORKERS; i++)
        used_s += shared->processor_s[i];
    if (me == 0)
        printf ("idle: %.2f processors\n", used_s / seconds);
}

static void run (unsigned seconds, const unsigned *rates, unsigned n_rates)
{
    start_all ();
    put_all ();
    measure_idle (seconds);
    measure_all ("all are there", seconds, rates, n_rates);
    meet ();
    for (unsigned i = 0; i < n_nodes; i += 3) {
        if (i % N_WORKERS == me)
            dht_runner_delete (shared->nodes[i].runner);
        shared->nodes[i].runner = NULL;
    }
    meet ();
    measure_all ("a third has just ended", seconds, rates, n_rates);
    g_usleep (MINUTE_US);
    measure_all ("a minute later", seconds, rates, n_rates);
    meet ();
}

static void share (void)
{
    pthread_barrierattr_t attributes;
    shared = mmap (NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pthread_barrierattr_init (&attributes) != 0 ||
        pthread_barrierattr_setpshared (&attributes, PTHREAD_PROCESS_SHARED) != 0 ||
        pthread_barrier_init (&shared->meet, &attributes, N_WORKERS) != 0)
        g_error ("processes cannot share memory");
}

int main (int argc, char **argv)
{
    unsigned rates[MOST_RATES] = {10, 100, 300}, n_rates = 3;
    n_nodes = argc > 1 ? (unsigned) atoi (argv[1]) : n_nodes;
    unsigned seconds = argc > 2 ? (unsigned) atoi (argv[2]) : 10;
    for (int i = 3; i < MIN (argc, 3 + MOST_RATES); i++) {
        n_rates = (unsigned) i - 2;
        rates[i - 3] = (unsigned) atoi (argv[i]);
    }
    if (n_nodes < 4 * N_WORKERS || n_nodes > MOST || seconds == 0 || rates[0] == 0) {
        fprintf (stderr, "usage: locate_swarm [NODES [SECONDS [RATE...]]], with %d to %u nodes\n", 4 * N_WORKERS, MOST);
        return 2;
    }
    enter_network ();
    share ();
    (void) setvbuf (stdout, NULL, _IOLBF, 0); /* before there are several */
    for (me = N_WORKERS - 1; me > 0 && fork () != 0; me--)
        ;
    (void) prctl (PR_SET_PDEATHSIG, me > 0 ? SIGKILL : 0);
    const char *seed = g_getenv ("ECFS_SEED");
    dice = g_rand_new_with_seed (me + (seed == NULL ? 1 : (guint32) atoi (seed)));
    run (seconds, rates, n_rates);
    (void) fflush (stdout);
    _Exit (0); /* a thousand good-byes take long */
}
