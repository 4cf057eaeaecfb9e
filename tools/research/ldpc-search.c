/*
 * Searches graphs for ldpc codes, and recomputes what is known of the shipped ones (src/codec/graph_table.c). Not
 * installed.
 *
 *   ldpc-search [--seed N] [--seconds N] K+M    the best graph found, as a row of the table
 *   ldpc-search --shipped [--sums N]            the properties of all shipped graphs
 *
 * Better is, in this order: more losses survived for certain, a smaller average overhead f, fewer edges. Candidates are
 * rotations of few random patterns, which is where good codes are found without trying everything, and, for few
 * packets, columns chosen one by one; the best so far is changed a little again and again.
 */
#include "codec/graph.h"
#include "codec/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Properties {
    EcfsDistance distance;
    double overhead;
    unsigned n_edges;
} Properties;

static uint64_t random_state;

static unsigned below (unsigned limit)
{
    return (unsigned) (ecfs_random_next (&random_state) % limit);
}

/* Overhead */

#define SEARCH_ORDERS 20000 /* random orders while searching, and for what is printed */
#define FINAL_ORDERS  300000

#define EXACT_N        40
#define SETS_PER_ORDER 50 /* loss sets that are counted in the time that a random order takes, roughly */

/* Counts the loss sets of each size whose columns of the check matrix are independent: those that are survived. */
static void count_survived (const uint32_t *checks, unsigned n, unsigned first, const uint32_t *basis, unsigned n_lost,
                            double *survived)
{
    survived[n_lost]++;
    for (unsigned i = first; i < n; i++) {
        uint32_t column = checks[i], next[EXACT_N];
        for (unsigned j = 0; j < n_lost; j++)
            column = MIN (column, column ^ basis[j]);
        if (column == 0)
            continue;
        memcpy (next, basis, n_lost * sizeof *basis);
        next[n_lost] = column;
        count_survived (checks, n, i + 1, next, n_lost + 1, survived);
    }
}

static double exact_overhead (const EcfsGraph *graph)
{
    unsigned n = graph->k + graph->m;
    uint32_t checks[EXACT_N];
    double survived[EXACT_N + 1] = {0}, sets = 1, extra = 0;
    for (unsigned i = 0; i < n; i++)
        checks[i] = i < graph->k ? (uint32_t) graph->columns[i][0] : 1u << (i - graph->k);
    count_survived (checks, n, 0, checks, 0, survived);
    for (unsigned n_lost = 0; n_lost <= graph->m; n_lost++) {
        extra += 1 - survived[n_lost] / sets;
        sets = sets * (n - n_lost) / (n_lost + 1);
    }
    return 1 + extra / graph->k;
}

typedef unsigned __int128 Row;

/* Packets of a random order until their rows have rank k. */
static unsigned count_needed (const Row *rows, unsigned k, unsigned n)
{
    unsigned order[2 * ECFS_GRAPH_MAX], rank = 0;
    Row basis[ECFS_GRAPH_MAX] = {0}; /* by highest bit */
    for (unsigned i = 0; i < n; i++)
        order[i] = i;
    for (unsigned i = 0;; i++) {
        unsigned with = i + below (n - i), packet = order[with];
        order[with] = order[i];
        Row row = rows[packet];
        while (row != 0) {
            uint64_t high = (uint64_t) (row >> 64);
            unsigned top =
                high != 0 ? 127 - (unsigned) __builtin_clzll (high) : 63 - (unsigned) __builtin_clzll ((uint64_t) row);
            if (basis[top] == 0) {
                basis[top] = row;
                rank++;
                break;
            }
            row ^= basis[top];
        }
        if (rank == k)
            return i + 1;
    }
}

static double sampled_overhead (const EcfsGraph *graph, unsigned n_orders)
{
    Row rows[2 * ECFS_GRAPH_MAX] = {0};
    uint64_t sum = 0, state = random_state;
    for (unsigned i = 0; i < graph->k; i++) {
        rows[i] = (Row) 1 << i;
        for (unsigned parity = 0; parity < graph->m; parity++)
            if (ecfs_graph_has (graph, parity, i))
                rows[graph->k + parity] |= (Row) 1 << i;
    }
    random_state = 1; /* the same orders for all graphs, so that they can be compared */
    for (unsigned i = 0; i < n_orders; i++)
        sum += count_needed (rows, graph->k, graph->k + graph->m);
    random_state = state;
    return (double) sum / n_orders / graph->k;
}

/* Whether all loss sets can be counted in the time for @n_orders random orders. */
static bool is_countable (const EcfsGraph *graph, unsigned n_orders)
{
    unsigned n = graph->k + graph->m;
    double sets = 1, sum = 0;
    for (unsigned n_lost = 0; n_lost <= graph->m; n_lost++) {
        sum += sets;
        sets = sets * (n - n_lost) / (n_lost + 1);
    }
    return n <= EXACT_N && graph->m <= 32 && sum <= (double) SETS_PER_ORDER * n_orders;
}

static double overhead (const EcfsGraph *graph, unsigned n_orders)
{
    return is_countable (graph, n_orders) ? exact_overhead (graph) : sampled_overhead (graph, n_orders);
}

/* Search */

#define MAX_CHANGES 300 /* in a row that made nothing better: then all begins again */

typedef struct Candidate {
    EcfsGraph graph;
    uint64_t patterns[ECFS_GRAPH_MAX][2];
    unsigned n_patterns;
    bool rotated;        /* columns are rotations of few patterns */
    unsigned multiplier; /* patterns are the same when bit numbers are multiplied by it, modulo m */
    Properties properties;
} Candidate;

static void set_columns (Candidate *self)
{
    unsigned m = self->graph.m;
    for (unsigned i = 0; i < self->graph.k; i++) {
        const uint64_t *pattern = self->patterns[self->rotated ? i / m : i];
        unsigned by = self->rotated ? i % m : 0;
        self->graph.columns[i][0] = self->graph.columns[i][1] = 0;
        for (unsigned bit = 0; bit < m; bit++)
            if (pattern[bit / 64] >> bit % 64 & 1)
                self->graph.columns[i][(bit + by) % m / 64] |= UINT64_C (1) << (bit + by) % m % 64;
    }
}

static unsigned weight_of (const uint64_t *pattern)
{
    return (unsigned) (__builtin_popcountll (pattern[0]) + __builtin_popcountll (pattern[1]));
}

/* Flips a bit and all that multiplying its number gives. */
static void flip (const Candidate *self, uint64_t *pattern, unsigned bit)
{
    unsigned first = bit;
    do {
        pattern[bit / 64] ^= UINT64_C (1) << bit % 64;
        bit = bit * self->multiplier % self->graph.m;
    } while (bit != first);
}

static unsigned common_divisor (unsigned a, unsigned b)
{
    return b == 0 ? a : common_divisor (b, a % b);
}

static void begin (Candidate *self, unsigned k, unsigned m, unsigned min_weight, unsigned max_weight)
{
    *self = (Candidate){.graph = {.k = k, .m = m}, .rotated = k + m > 22 || below (2), .multiplier = 1};
    self->n_patterns = self->rotated ? (k + m - 1) / m : k;
    while (self->rotated && below (2) && common_divisor (self->multiplier = 1 + below (m), m) != 1)
        self->multiplier = 1;
    unsigned weight = min_weight + below (max_weight - min_weight + 1);
    for (unsigned i = 0; i < self->n_patterns; i++)
        for (unsigned tries = 0; weight_of (self->patterns[i]) != weight && tries < 100; tries++)
            flip (self, self->patterns[i], below (m));
    set_columns (self);
}

/* Moves an edge, adds one, or takes some away from a pattern. */
static void change (Candidate *self)
{
    uint64_t *pattern = self->patterns[below (self->n_patterns)];
    unsigned n_flips = 1 + below (3);
    for (unsigned i = 0; i < n_flips; i++)
        flip (self, pattern, below (self->graph.m));
    set_columns (self);
}

/* Whether the graph survives as many losses as the best does; if so, fills properties. */
static bool judge (Candidate *self, unsigned at_least, uint64_t max_sums)
{
    for (unsigned i = 0; i < self->graph.k; i++)
        if (weight_of (self->graph.columns[i]) + 1 < MAX (at_least, 2))
            return false;
    for (uint64_t sums = 1000; sums < max_sums; sums *= 30) /* most fail soon */
        if (ecfs_graph_distance (&self->graph, sums).at_most < at_least)
            return false;
    self->properties.distance = ecfs_graph_distance (&self->graph, max_sums);
    if (self->properties.distance.at_least < at_least)
        return false;
    self->properties.n_edges = ecfs_graph_n_edges (&self->graph);
    self->properties.overhead = overhead (&self->graph, SEARCH_ORDERS);
    return true;
}

/* Overheads that differ by less than sampling can tell are the same. */
static bool is_better (const Properties *a, const Properties *b, double resolution)
{
    if (a->distance.at_least != b->distance.at_least)
        return a->distance.at_least > b->distance.at_least;
    if (fabs (a->overhead - b->overhead) > resolution)
        return a->overhead < b->overhead;
    return a->n_edges < b->n_edges;
}

static void print_row (const Candidate *self, gint64 seed)
{
    const Properties *properties = &self->properties;
    bool exact = properties->distance.at_least == properties->distance.at_most;
    printf ("    {%u, %u, %u, %s, %.4f, \"", self->graph.k, self->graph.m, properties->distance.at_least - 1,
            exact ? "true" : "false", overhead (&self->graph, FINAL_ORDERS));
    for (unsigned i = 0; i < self->n_patterns; i++) {
        printf (i > 0 ? " " : "");
        if (self->patterns[i][1] != 0)
            printf ("%" G_GINT64_MODIFIER "x%016" G_GINT64_MODIFIER "x", self->patterns[i][1], self->patterns[i][0]);
        else
            printf ("%" G_GINT64_MODIFIER "x", self->patterns[i][0]);
    }
    printf ("\"}, /* %u edges, seed %" G_GINT64_FORMAT " */\n", properties->n_edges, seed);
    fflush (stdout);
}

typedef struct Options {
    gint64 seed;
    int seconds;
    gint64 sums;
    int min_weight, max_weight, at_least;
    gboolean shipped;
} Options;

static void search (unsigned k, unsigned m, const Options *options)
{
    gint64 end_us = g_get_monotonic_time () + options->seconds * G_USEC_PER_SEC;
    unsigned max_weight = options->max_weight > 0 ? MIN ((unsigned) options->max_weight, m) : (m + 1) / 2 + 1;
    unsigned min_weight = MIN ((unsigned) options->min_weight, max_weight);
    double resolution = k + m <= 20 ? 1e-9 : 5e-4;
    Candidate best = {.properties = {.distance.at_least = (unsigned) options->at_least, .overhead = INFINITY}}, now,
              next;
    for (unsigned since = MAX_CHANGES; g_get_monotonic_time () < end_us; since++) {
        bool fresh = since >= MAX_CHANGES;
        if (fresh)
            begin (&next, k, m, min_weight, max_weight);
        else {
            next = now;
            change (&next);
        }
        unsigned at_least = fresh ? best.properties.distance.at_least : now.properties.distance.at_least;
        if (!judge (&next, at_least, (uint64_t) options->sums))
            continue;
        if (!fresh && !is_better (&next.properties, &now.properties, resolution))
            continue;
        now = next;
        since = 0;
        if (!is_better (&now.properties, &best.properties, resolution))
            continue;
        best = now;
        print_row (&best, options->seed);
    }
}

/* Shipped graphs */

/* The largest distance that sphere packing and Griesmer's bound leave possible. */
static unsigned possible_distance (unsigned n, unsigned k)
{
    unsigned distance = 1;
    for (unsigned d = 2; d <= n - k + 1; d++) {
        unsigned length = 0, radius = (d - 1) / 2, shorter = n - (d % 2 == 0);
        double balls = 0, sets = 1;
        for (unsigned i = 0; i < k; i++)
            length += i < 31 ? (d + (1u << i) - 1) >> i : 1;
        for (unsigned i = 0; i <= radius; i++) {
            balls += sets;
            sets = sets * (shorter - i) / (i + 1);
        }
        if (length > n || k + log2 (balls) > shorter + 1e-9)
            break;
        distance = d;
    }
    return distance;
}

static void print_shipped (const Options *options)
{
    printf ("code           edges  any   of at most  shown by sums of    f        table\n");
    for (size_t i = 0; i < ecfs_n_shipped_graphs; i++) {
        const EcfsShippedGraph *shipped = &ecfs_shipped_graphs[i];
        EcfsGraph graph;
        ecfs_graph_from_shipped (shipped, &graph);
        unsigned n = graph.k + graph.m;
        EcfsDistance distance = ecfs_graph_distance (&graph, (uint64_t) options->sums);
        g_autofree char *code = g_strdup_printf ("ldpc:%u+%u", graph.k, graph.m);
        printf ("%-14s %5u  %2u%s  %2u          %u rows             %.4f%s  %u, %.4f\n", code,
                ecfs_graph_n_edges (&graph), distance.at_least - 1, distance.at_least == distance.at_most ? " " : "+",
                possible_distance (n, graph.k) - 1, distance.depth, overhead (&graph, FINAL_ORDERS),
                is_countable (&graph, FINAL_ORDERS) ? " " : "~", shipped->tolerance, shipped->overhead);
        fflush (stdout);
    }
}

static bool read_code (const char *text, unsigned *ret_k, unsigned *ret_m)
{
    char end;
    return sscanf (text, "%3u+%3u%c", ret_k, ret_m, &end) == 2 && *ret_k >= 1 && *ret_k <= ECFS_GRAPH_MAX &&
           *ret_m >= 1 && *ret_m <= ECFS_GRAPH_MAX;
}

int main (int argc, char **argv)
{
    Options options = {.seed = 1, .seconds = 60, .sums = 100000000, .min_weight = 2};
    const GOptionEntry entries[] = {
        {"seed", 0, 0, G_OPTION_ARG_INT64, &options.seed, "of the random numbers (1)", "N"},
        {"seconds", 0, 0, G_OPTION_ARG_INT, &options.seconds, "to search (60)", "N"},
        {"sums", 0, 0, G_OPTION_ARG_INT64, &options.sums, "of rows to look at for a proof (10^8)", "N"},
        {"min-weight", 0, 0, G_OPTION_ARG_INT, &options.min_weight, "of a column to begin with (2)", "N"},
        {"max-weight", 0, 0, G_OPTION_ARG_INT, &options.max_weight, "of a column to begin with (half of M)", "N"},
        {"at-least", 0, 0, G_OPTION_ARG_INT, &options.at_least, "distance to begin with (0)", "N"},
        {"shipped", 0, 0, G_OPTION_ARG_NONE, &options.shipped, "recompute what is known of the shipped graphs", NULL},
        G_OPTION_ENTRY_NULL};
    g_autoptr (GOptionContext) context = g_option_context_new ("[K+M]");
    g_autoptr (GError) error = NULL;
    unsigned k = 0, m = 0;
    g_option_context_add_main_entries (context, entries, NULL);
    if (!g_option_context_parse (context, &argc, &argv, &error) ||
        (options.shipped ? argc != 1 : argc != 2 || !read_code (argv[1], &k, &m))) {
        fprintf (stderr, "ldpc-search: %s\n", error != NULL ? error->message : "give --shipped, or K+M up to 128+128");
        return 2;
    }
    random_state = (uint64_t) options.seed;
    if (options.shipped)
        print_shipped (&options);
    else
        search (k, m, &options);
    return 0;
}
