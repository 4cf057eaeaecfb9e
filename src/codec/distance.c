/*
 * The least weight of a codeword, after Brouwer and Zimmermann. A generator matrix that is systematic on k packets has
 * codewords of weight w + 1 or more only, apart from sums of at most w of its rows. With a second matrix, systematic on
 * other packets, a codeword that is no such sum of either weighs 2w + 2. Where the second has no k independent packets
 * to be systematic on, what is missing is subtracted.
 */
#include "codec/graph.h"

#include <string.h>

#define WORDS 4 /* of a codeword */

typedef struct Matrix {
    unsigned k, n;
    unsigned n_missing; /* packets of k that it is not systematic on */
    bool rotates;       /* rotating data and parity packets alike takes each row to the next */
    uint64_t rows[ECFS_GRAPH_MAX][WORDS];

    /* What the search sums up: where it is systematic on k packets, these are left out, and each row counts for one. */
    unsigned n_words;
    uint64_t summed[ECFS_GRAPH_MAX][WORDS];
} Matrix;

typedef struct Search {
    const Matrix *matrix;
    unsigned least;
} Search;

static bool has (const uint64_t *row, unsigned packet)
{
    return row[packet / 64] >> packet % 64 & 1;
}

static void add (uint64_t *to, const uint64_t *row)
{
    for (unsigned i = 0; i < WORDS; i++)
        to[i] ^= row[i];
}

static bool is_rotation (const uint64_t *row, const uint64_t *next, unsigned k)
{
    for (unsigned i = 0; i < 2 * k; i++)
        if (has (row, i) != has (next, i / k * k + (i + 1) % k))
            return false;
    return true;
}

static bool rotates (const Matrix *self)
{
    bool all = self->n == 2 * self->k && self->n_missing == 0;
    for (unsigned i = 0; i < self->k && all; i++)
        all = is_rotation (self->rows[i], self->rows[(i + 1) % self->k], self->k);
    return all;
}

static void systematic_on_data (const EcfsGraph *graph, Matrix *ret_matrix)
{
    *ret_matrix = (Matrix){.k = graph->k, .n = graph->k + graph->m, .n_words = 2};
    for (unsigned i = 0; i < graph->k; i++) {
        uint64_t *row = ret_matrix->rows[i];
        row[i / 64] |= UINT64_C (1) << i % 64;
        for (unsigned j = 0; j < graph->m; j++)
            if (ecfs_graph_has (graph, j, i))
                row[(graph->k + j) / 64] |= UINT64_C (1) << (graph->k + j) % 64;
        memcpy (ret_matrix->summed[i], graph->columns[i], sizeof graph->columns[i]);
    }
    ret_matrix->rotates = rotates (ret_matrix);
}

static void swap_rows (Matrix *self, unsigned a, unsigned b)
{
    uint64_t row[WORDS];
    memcpy (row, self->rows[a], sizeof row);
    memcpy (self->rows[a], self->rows[b], sizeof row);
    memcpy (self->rows[b], row, sizeof row);
}

/* Makes the matrix systematic on as many parity packets as it goes, and flags them. */
static void eliminate (Matrix *self, bool *systematic)
{
    unsigned done = 0;
    for (unsigned packet = self->k; packet < self->n && done < self->k; packet++) {
        unsigned row = done;
        while (row < self->k && !has (self->rows[row], packet))
            row++;
        if (row == self->k)
            continue;
        swap_rows (self, row, done);
        for (unsigned other = 0; other < self->k; other++)
            if (other != done && has (self->rows[other], packet))
                add (self->rows[other], self->rows[done]);
        systematic[packet] = true;
        done++;
    }
    self->n_missing = self->k - done;
}

/* The same code by a matrix that is systematic on parity packets. */
static void systematic_on_parity (const Matrix *data, Matrix *ret_matrix)
{
    bool systematic[2 * ECFS_GRAPH_MAX] = {false};
    *ret_matrix = *data;
    eliminate (ret_matrix, systematic);
    ret_matrix->rotates = rotates (ret_matrix);
    memset (ret_matrix->summed, 0, sizeof ret_matrix->summed);
    unsigned n_summed = 0;
    for (unsigned packet = 0; packet < data->n; packet++) {
        if (systematic[packet] && ret_matrix->n_missing == 0)
            continue;
        for (unsigned row = 0; row < data->k; row++)
            if (has (ret_matrix->rows[row], packet))
                ret_matrix->summed[row][n_summed / 64] |= UINT64_C (1) << n_summed % 64;
        n_summed++;
    }
    ret_matrix->n_words = n_summed <= 128 ? 2 : WORDS;
}

/* All sums of @depth rows from @first on, and @sum. With n_words known to the compiler. */
static inline __attribute__ ((always_inline)) void sum_last (Search *self, const uint64_t *sum, unsigned first,
                                                             unsigned n_words)
{
    unsigned least = self->least;
    for (unsigned i = first; i < self->matrix->k; i++) {
        const uint64_t *row = self->matrix->summed[i];
        unsigned weight = 0;
        for (unsigned word = 0; word < n_words; word++)
            weight += (unsigned) __builtin_popcountll (sum[word] ^ row[word]);
        least = weight < least ? weight : least;
    }
    self->least = least;
}

#define DEFINE_SUMS(name, n_words, attributes)                                                                         \
    attributes static void name (Search *self, const uint64_t *sum, unsigned first, unsigned depth)                    \
    {                                                                                                                  \
        if (depth == 1) {                                                                                              \
            sum_last (self, sum, first, n_words);                                                                      \
            return;                                                                                                    \
        }                                                                                                              \
        for (unsigned i = first; i + depth <= self->matrix->k; i++) {                                                  \
            uint64_t next[WORDS];                                                                                      \
            memcpy (next, sum, sizeof next);                                                                           \
            add (next, self->matrix->summed[i]);                                                                       \
            name (self, next, i + 1, depth - 1);                                                                       \
        }                                                                                                              \
    }

DEFINE_SUMS (sums_2, 2, )
DEFINE_SUMS (sums_4, 4, )
#ifdef __x86_64__
DEFINE_SUMS (sums_2_popcnt, 2, __attribute__ ((target ("popcnt"))))
DEFINE_SUMS (sums_4_popcnt, 4, __attribute__ ((target ("popcnt"))))
#endif

/* Where rows are rotations, every sum has a rotation with the first row in it. */
static void sums (Search *self, unsigned depth)
{
    static const uint64_t zero[WORDS];
    bool narrow = self->matrix->n_words == 2, fixed = self->matrix->rotates && depth > 1;
    const uint64_t *sum = fixed ? self->matrix->summed[0] : zero;
    void (*run) (Search *, const uint64_t *, unsigned, unsigned) = narrow ? sums_2 : sums_4;
#ifdef __x86_64__
    if (__builtin_cpu_supports ("popcnt"))
        run = narrow ? sums_2_popcnt : sums_4_popcnt;
#endif
    run (self, sum, fixed, depth - fixed);
}

static uint64_t count_sums (const Matrix *matrix, unsigned depth)
{
    double sets = 1;
    for (unsigned i = 0; i < depth; i++)
        sets = sets * (matrix->k - i) / (i + 1);
    if (matrix->rotates)
        sets = sets * depth / matrix->k;
    return sets > 1e18 ? UINT64_MAX / 2 : (uint64_t) (sets + 0.5);
}

/* What a codeword weighs at least in the packets of @matrix when it is no sum of @depth or fewer of its rows. */
static unsigned share (const Matrix *matrix, unsigned depth)
{
    return depth + 1 > matrix->n_missing ? depth + 1 - matrix->n_missing : 0;
}

EcfsDistance ecfs_graph_distance (const EcfsGraph *self, uint64_t max_sums)
{
    Matrix matrices[2];
    systematic_on_data (self, &matrices[0]);
    systematic_on_parity (&matrices[0], &matrices[1]);
    EcfsDistance distance = {.at_least = 1, .at_most = UINT_MAX};
    uint64_t done = 0;
    for (unsigned depth = 1; depth <= self->k && distance.at_least < distance.at_most; depth++) {
        for (unsigned i = 0; i < 2 && distance.at_least < distance.at_most; i++) {
            done += count_sums (&matrices[i], depth);
            if (done > max_sums)
                return distance;
            Search search = {.matrix = &matrices[i], .least = UINT_MAX};
            sums (&search, depth);
            distance.at_most = MIN (distance.at_most, search.least + (matrices[i].n_missing == 0 ? depth : 0));
            distance.depth = depth;
            unsigned other = share (&matrices[1], i == 0 ? depth - 1 : depth);
            distance.at_least = MAX (distance.at_least, MIN (depth + 1 + other, distance.at_most));
        }
    }
    if (distance.depth == self->k)
        distance.at_least = distance.at_most;
    return distance;
}
