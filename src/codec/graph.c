#include "codec/graph.h"
#include "codec/random.h"

#include <assert.h>
#include <string.h>

unsigned ecfs_graph_n_edges (const EcfsGraph *self)
{
    unsigned n = 0;
    for (unsigned i = 0; i < self->k; i++)
        n += (unsigned) (__builtin_popcountll (self->columns[i][0]) + __builtin_popcountll (self->columns[i][1]));
    return n;
}

uint8_t *ecfs_graph_format (const EcfsGraph *self, size_t *ret_bytes)
{
    uint8_t *bytes = g_malloc (self->m + ecfs_graph_n_edges (self));
    size_t at = 0;
    for (unsigned parity = 0; parity < self->m; parity++) {
        size_t count = at++;
        for (unsigned i = 0; i < self->k; i++)
            if (ecfs_graph_has (self, parity, i))
                bytes[at++] = (uint8_t) i;
        bytes[count] = (uint8_t) (at - count - 1);
    }
    *ret_bytes = at;
    return bytes;
}

/* One parity packet's list, at *at; moves on behind it. */
static bool parse_members (const uint8_t *bytes, size_t size, size_t *at, unsigned parity, EcfsGraph *graph,
                           GError **error)
{
    size_t n_members = *at < size ? bytes[*at] : 0;
    if (n_members == 0 || n_members > graph->k || n_members > size - *at - 1)
        return ecfs_fail (error, EBADMSG, "the graph says that parity packet %u has %zu members", parity, n_members);
    const uint8_t *members = bytes + *at + 1;
    for (size_t i = 0; i < n_members; i++) {
        if (members[i] >= graph->k || (i > 0 && members[i] <= members[i - 1]))
            return ecfs_fail (error, EBADMSG, "the graph's members of parity packet %u make no sense", parity);
        graph->columns[members[i]][parity / 64] |= UINT64_C (1) << parity % 64;
    }
    *at += 1 + n_members;
    return true;
}

bool ecfs_graph_parse (const uint8_t *bytes, size_t size, unsigned k, unsigned m, EcfsGraph *ret_graph, GError **error)
{
    assert (k > 0 && k <= ECFS_GRAPH_MAX && m > 0 && m <= ECFS_GRAPH_MAX);
    EcfsGraph graph = {.k = k, .m = m};
    size_t at = 0;
    for (unsigned parity = 0; parity < m; parity++)
        if (!parse_members (bytes, size, &at, parity, &graph, error))
            return false;
    if (at != size)
        return ecfs_fail (error, EBADMSG, "the graph has %zu bytes after its end", size - at);
    for (unsigned i = 0; i < k; i++)
        if (graph.columns[i][0] == 0 && graph.columns[i][1] == 0)
            return ecfs_fail (error, EBADMSG, "the graph leaves data packet %u without parity", i);
    *ret_graph = graph;
    return true;
}

static void set_rotated (EcfsGraph *graph, unsigned column, const uint64_t pattern[2], unsigned by)
{
    uint64_t *bits = graph->columns[column];
    bits[0] = bits[1] = 0;
    for (unsigned i = 0; i < graph->m; i++)
        if (pattern[i / 64] >> i % 64 & 1) {
            unsigned to = (i + by) % graph->m;
            bits[to / 64] |= UINT64_C (1) << to % 64;
        }
}

/* Reads one hexadecimal number and the space behind it. */
static const char *read_pattern (const char *text, uint64_t ret_pattern[2])
{
    ret_pattern[0] = ret_pattern[1] = 0;
    for (; *text != ' ' && *text != '\0'; text++) {
        ret_pattern[1] = ret_pattern[1] << 4 | ret_pattern[0] >> 60;
        ret_pattern[0] = ret_pattern[0] << 4 | (uint64_t) g_ascii_xdigit_value (*text);
    }
    return *text == ' ' ? text + 1 : text;
}

void ecfs_graph_from_shipped (const EcfsShippedGraph *shipped, EcfsGraph *ret_graph)
{
    *ret_graph = (EcfsGraph){.k = shipped->k, .m = shipped->m};
    const char *text = shipped->texts;
    unsigned column = 0, n_texts = 1;
    for (const char *at = text; *at != '\0'; at++)
        n_texts += *at == ' ';
    while (column < shipped->k) {
        uint64_t pattern[2];
        text = read_pattern (text, pattern);
        for (unsigned by = 0; by < (n_texts == shipped->k ? 1u : shipped->m) && column < shipped->k; by++)
            set_rotated (ret_graph, column++, pattern, by);
    }
}

const EcfsShippedGraph *ecfs_graph_find_shipped (const EcfsGraph *self)
{
    for (size_t i = 0; i < ecfs_n_shipped_graphs; i++) {
        EcfsGraph graph;
        if (ecfs_shipped_graphs[i].k != self->k || ecfs_shipped_graphs[i].m != self->m)
            continue;
        ecfs_graph_from_shipped (&ecfs_shipped_graphs[i], &graph);
        if (memcmp (&graph, self, sizeof graph) == 0)
            return &ecfs_shipped_graphs[i];
    }
    return NULL;
}

/* Making one: columns are the rotations of few patterns, which spreads the edges evenly. Patterns of odd weight, all
 * different, survive any three losses; which survive most is tried. */

#define N_TRIES    8     /* per weight */
#define MAX_WEIGHT 13    /* of a column */
#define TRY_SUMS   20000 /* for judging one try: it takes less than 0.1 ms */

static void random_pattern (uint64_t *state, unsigned m, unsigned weight, uint64_t ret_pattern[2])
{
    ret_pattern[0] = ret_pattern[1] = 0;
    while (weight > 0) {
        unsigned bit = (unsigned) (ecfs_random_next (state) % m);
        weight -= (ret_pattern[bit / 64] >> bit % 64 & 1) == 0;
        ret_pattern[bit / 64] |= UINT64_C (1) << bit % 64;
    }
}

static bool is_column (const EcfsGraph *graph, unsigned n_columns, const uint64_t pattern[2])
{
    for (unsigned i = 0; i < n_columns; i++)
        if (graph->columns[i][0] == pattern[0] && graph->columns[i][1] == pattern[1])
            return true;
    return false;
}

static bool has_members (const EcfsGraph *graph, unsigned parity)
{
    bool any = false;
    for (unsigned i = 0; i < graph->k; i++)
        any |= ecfs_graph_has (graph, parity, i);
    return any;
}

/* Fills columns with rotations of patterns of @weight or, when these are used up, of more or of any. */
static void try_columns (EcfsGraph *graph, unsigned weight, uint64_t *state)
{
    unsigned column = 0;
    for (unsigned n_failed = 0; column < graph->k;) {
        uint64_t pattern[2];
        unsigned heavier = MIN (weight + n_failed / 32 * 2, graph->m);
        random_pattern (state, graph->m, n_failed < 256 ? heavier : 1 + n_failed % graph->m, pattern);
        if (is_column (graph, column, pattern) && n_failed++ < 512)
            continue;
        for (unsigned by = 0; by < graph->m && column < graph->k; by++, column++) {
            set_rotated (graph, column, pattern, by);
            if (by > 0 && graph->columns[column][0] == pattern[0] && graph->columns[column][1] == pattern[1])
                break;
        }
    }
    for (unsigned parity = 0; parity < graph->m; parity++)
        if (!has_members (graph, parity))
            graph->columns[parity % graph->k][parity / 64] |= UINT64_C (1) << parity % 64;
}

void ecfs_graph_make (unsigned k, unsigned m, EcfsGraph *ret_graph)
{
    for (size_t i = 0; i < ecfs_n_shipped_graphs; i++)
        if (ecfs_shipped_graphs[i].k == k && ecfs_shipped_graphs[i].m == m) {
            ecfs_graph_from_shipped (&ecfs_shipped_graphs[i], ret_graph);
            return;
        }
    uint64_t state = k * 256 + m;
    unsigned best = 0;
    for (unsigned weight = MIN (m, 3); weight <= MIN (m, MAX_WEIGHT); weight += 2)
        for (unsigned i = 0; i < N_TRIES; i++) {
            EcfsGraph graph = {.k = k, .m = m};
            try_columns (&graph, weight, &state);
            unsigned at_least = ecfs_graph_distance (&graph, TRY_SUMS).at_least;
            if (at_least <= best)
                continue;
            best = at_least;
            *ret_graph = graph;
        }
}
