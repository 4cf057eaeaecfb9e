/*
 * Lookups in a hash table of many real nodes in one process: locate_swarm [NODES [RATE [SECONDS]]], by default 1000
 * nodes, 100 lookups a second, 10 seconds.
 *
 * Values are put by some nodes and looked for by others: as all are there, right after a third of them has ended, which
 * nobody was told, and a minute later. "first" is until the first value has come, "end" until the question is answered.
 *
 * All nodes have one address, of which OpenDHT takes 200 requests a second at each node. ECFS_SEED repeats the choice
 * of nodes and keys, but not of times.
 */
#include <glib.h>
#include <netinet/in.h>
#include <opendht/opendht_c.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NETWORK   0xbe7c5
#define N_KEYS    200
#define MOST      2000
#define AT_ONCE   20       /* nodes that begin, or values that are put */
#define WAIT_US   20000000 /* for an answer */
#define MINUTE_US 60000000

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

static Node nodes[MOST];
static unsigned n_nodes = 1000;
static dht_infohash keys[N_KEYS];
static GRand *dice;

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

static Node *any_node (void)
{
    for (;;) {
        Node *node = &nodes[g_rand_int_range (dice, 0, (gint32) n_nodes)];
        if (node->runner != NULL)
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
    Node *node = &nodes[index];
    node->runner = dht_runner_new ();
    if (dht_runner_run_config (node->runner, 0, &config) != 0)
        g_error ("no node can be started");
    node->port = dht_runner_get_bound_port (node->runner, AF_INET);
    if (index == 0)
        return;
    g_autofree char *port = g_strdup_printf ("%u", nodes[g_rand_int_range (dice, 0, (gint32) index)].port);
    dht_runner_bootstrap (node->runner, "127.0.0.1", port);
}

/* A node takes part when somebody has answered it. */
static void join (unsigned index)
{
    dht_infohash somewhere;
    for (bool good = false; !good;) {
        Question *question = question_new ();
        dht_infohash_random (&somewhere);
        dht_runner_get (nodes[index].runner, &somewhere, on_value, on_done, question);
        good = await (question);
        if (!good)
            g_usleep (50000);
    }
}

static void start_all (void)
{
    int64_t begun_us = g_get_monotonic_time ();
    for (unsigned i = 0; i < n_nodes; i++) {
        start_node (i);
        if (i > 0 && (i % AT_ONCE == 0 || i < AT_ONCE))
            join (i);
    }
    for (unsigned i = 1; i < n_nodes; i++)
        join (i);
    printf ("%u nodes have met in %.1f s\n", n_nodes, (double) (g_get_monotonic_time () - begun_us) / 1e6);
}

static void put_all (void)
{
    for (unsigned i = 0; i < N_KEYS; i++) {
        dht_infohash_random (&keys[i]);
        for (bool good = false; !good;) {
            Question *question = question_new ();
            dht_value *value = dht_value_new ((const uint8_t *) &i, sizeof i);
            dht_runner_put (any_node ()->runner, &keys[i], value, on_done, question, false);
            good = await (question);
            dht_value_unref (value);
        }
    }
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

static void measure (const char *title, unsigned rate, unsigned seconds)
{
    unsigned n = rate * seconds, n_found = 0;
    g_autoptr (GArray) firsts = g_array_new (FALSE, FALSE, sizeof (double));
    g_autoptr (GArray) ends = g_array_new (FALSE, FALSE, sizeof (double));
    g_autofree Question **asked = g_new (Question *, n);
    int64_t begun_us = g_get_monotonic_time ();
    for (unsigned i = 0; i < n; i++) {
        int64_t due_us = begun_us + (int64_t) i * 1000000 / rate, now_us = g_get_monotonic_time ();
        if (due_us > now_us)
            g_usleep ((gulong) (due_us - now_us));
        asked[i] = question_new ();
        dht_runner_get (any_node ()->runner, &keys[g_rand_int_range (dice, 0, N_KEYS)], on_value, on_done, asked[i]);
    }
    double took_s = (double) (g_get_monotonic_time () - begun_us) / 1e6;
    for (unsigned i = 0; i < n; i++) {
        (void) await (asked[i]); /* what counts is what came */
        int64_t first_us = atomic_load (&asked[i]->first_us), end_us = atomic_load (&asked[i]->end_us);
        double first_ms = (double) (first_us - asked[i]->begun_us) / 1e3;
        double end_ms = (double) ((end_us == 0 ? g_get_monotonic_time () : end_us) - asked[i]->begun_us) / 1e3;
        n_found += first_us != 0;
        if (first_us != 0)
            g_array_append_val (firsts, first_ms);
        g_array_append_val (ends, end_ms);
    }
    g_array_sort (firsts, compare);
    g_array_sort (ends, compare);
    printf (
        "%-24s %5.0f/s  found %5u of %5u  first: median %7.1f ms, 99%% %8.1f ms  end: median %7.1f ms, 99%% %8.1f ms\n",
        title, n / took_s, n_found, n, of (firsts, 0.5), of (firsts, 0.99), of (ends, 0.5), of (ends, 0.99));
    (void) fflush (stdout); /* a table for people */
}

int main (int argc, char **argv)
{
    n_nodes = argc > 1 ? (unsigned) atoi (argv[1]) : n_nodes;
    unsigned rate = argc > 2 ? (unsigned) atoi (argv[2]) : 100, seconds = argc > 3 ? (unsigned) atoi (argv[3]) : 10;
    if (n_nodes < 10 || n_nodes > MOST || rate == 0 || seconds == 0) {
        fprintf (stderr, "usage: locate_swarm [NODES [RATE [SECONDS]]], with 10 to %u nodes\n", MOST);
        return 2;
    }
    const char *seed = g_getenv ("ECFS_SEED");
    dice = g_rand_new_with_seed (seed == NULL ? 1 : (guint32) atoi (seed));
    start_all ();
    put_all ();
    measure ("all are there", rate, seconds);
    for (unsigned i = 0; i < n_nodes; i += 3) {
        dht_runner_delete (nodes[i].runner);
        nodes[i].runner = NULL;
    }
    measure ("a third has just ended", rate, seconds);
    g_usleep (MINUTE_US);
    measure ("a minute later", rate, seconds);
    (void) fflush (stdout);
    _Exit (0); /* a thousand good-byes take long */
}
