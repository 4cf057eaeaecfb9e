#include "codec/solve.h"

#include <string.h>

typedef uint64_t Bits[ECFS_SOLVE_MAX_ROWS / 64];

static bool has_bit (const uint64_t *bits, unsigned i)
{
    return bits[i / 64] >> i % 64 & 1;
}

static void flip_bit (uint64_t *bits, unsigned i)
{
    bits[i / 64] ^= UINT64_C (1) << i % 64;
}

static void add_bits (uint64_t *to, const uint64_t *from, unsigned n_words)
{
    for (unsigned i = 0; i < n_words; i++)
        to[i] ^= from[i];
}

static unsigned words_for (unsigned n_bits)
{
    return (n_bits + 63) / 64;
}

/* Members of the equation that are not known; the parity packet itself is. */
static EcfsPackets missing_members (const EcfsSolve *self, unsigned parity)
{
    EcfsPackets missing = ecfs_packets_minus (&self->code->equations[parity], &self->known);
    ecfs_packets_remove (&missing, self->code->base.k + parity);
    return missing;
}

/* The equation with one missing member and the fewest members; none is UINT_MAX. */
static unsigned best_to_peel (const EcfsSolve *self)
{
    const EcfsCodec *base = &self->code->base;
    unsigned best = G_MAXUINT, least = G_MAXUINT;
    for (unsigned parity = 0; parity < base->n - base->k; parity++) {
        unsigned n_members = ecfs_packets_count (&self->code->equations[parity]);
        EcfsPackets missing = missing_members (self, parity);
        if (n_members >= least || !ecfs_packets_has (&self->present, base->k + parity) ||
            ecfs_packets_count (&missing) != 1)
            continue;
        best = parity;
        least = n_members;
    }
    return best;
}

static void list_rest (EcfsSolve *self)
{
    const EcfsCodec *base = &self->code->base;
    self->n_unknown = self->n_equations = 0;
    for (unsigned i = 0; i < base->k; i++)
        if (!ecfs_packets_has (&self->known, i)) {
            self->column[i] = (uint8_t) self->n_unknown;
            self->unknown[self->n_unknown++] = (uint8_t) i;
        }
    for (unsigned parity = 0; parity < base->n - base->k; parity++) {
        EcfsPackets missing = missing_members (self, parity);
        if (ecfs_packets_has (&self->present, base->k + parity) && ecfs_packets_count (&missing) > 0)
            self->equations[self->n_equations++] = (uint8_t) parity;
    }
}

void ecfs_solve_peel (EcfsSolve *self, const EcfsBinary *code, const bool *present)
{
    self->code = code;
    self->present = ecfs_packets_of (present, code->base.n);
    self->known = ecfs_packets_of (present, code->base.k);
    self->n_peeled = 0;
    self->n_rows = 0;
    unsigned parity;
    while (ecfs_packets_count (&self->known) < code->base.k && (parity = best_to_peel (self)) != G_MAXUINT) {
        EcfsPackets missing = missing_members (self, parity);
        unsigned data = ecfs_packets_first (&missing);
        self->peeled[self->n_peeled].data = (uint8_t) data;
        self->peeled[self->n_peeled++].parity = (uint8_t) parity;
        ecfs_packets_add (&self->known, data);
    }
    list_rest (self);
}

/* Sets the bits of the parts of a data packet, the first of which is @first, that a part of a parity packet has. */
static void flip_member (const EcfsBinary *code, unsigned parity, unsigned part, unsigned data, unsigned first,
                         uint64_t *bits)
{
    int rotation = code->rotation[parity][data];
    if (rotation < 0)
        return;
    unsigned coefficient = ecfs_rotated (code, part, rotation);
    if (coefficient < code->parts)
        flip_bit (bits, first + coefficient);
    else
        for (unsigned other = 0; other < code->parts; other++)
            flip_bit (bits, first + other);
}

/* What a part of a parity packet has of unknown packets. */
static void unknowns_of (const EcfsSolve *self, unsigned parity, unsigned part, uint64_t *unknowns)
{
    unsigned parts = self->code->parts;
    memset (unknowns, 0, words_for (self->n_unknown * parts) * sizeof *unknowns);
    for (unsigned i = 0; i < self->n_unknown; i++)
        flip_member (self->code, parity, part, self->unknown[i], i * parts, unknowns);
}

/* Takes the pivots of all rows out of @unknowns. */
static void reduce (const EcfsSolve *self, uint64_t *unknowns, uint64_t *sum)
{
    unsigned n_words = words_for (self->n_unknown * self->code->parts);
    unsigned n_sum_words = words_for (self->n_equations * self->code->parts);
    for (unsigned row = 0; row < self->n_rows; row++) {
        if (!has_bit (unknowns, self->pivot[row]))
            continue;
        add_bits (unknowns, self->unknowns[row], n_words);
        if (sum != NULL)
            add_bits (sum, self->sums[row], n_sum_words);
    }
}

/* The lowest bit; UINT_MAX: none. */
static unsigned first_bit (const uint64_t *bits, unsigned n_words)
{
    for (unsigned i = 0; i < n_words; i++)
        if (bits[i] != 0)
            return i * 64 + (unsigned) __builtin_ctzll (bits[i]);
    return G_MAXUINT;
}

static void add_row (EcfsSolve *self, const uint64_t *unknowns, const uint64_t *sum, unsigned pivot)
{
    unsigned n_words = words_for (self->n_unknown * self->code->parts);
    unsigned n_sum_words = words_for (self->n_equations * self->code->parts);
    for (unsigned row = 0; row < self->n_rows; row++)
        if (has_bit (self->unknowns[row], pivot)) {
            add_bits (self->unknowns[row], unknowns, n_words);
            add_bits (self->sums[row], sum, n_sum_words);
        }
    memcpy (self->unknowns[self->n_rows], unknowns, n_words * sizeof *unknowns);
    memcpy (self->sums[self->n_rows], sum, n_sum_words * sizeof *sum);
    self->pivot[self->n_rows++] = (uint16_t) pivot;
}

void ecfs_solve_eliminate (EcfsSolve *self)
{
    unsigned parts = self->code->parts, n_columns = self->n_unknown * parts;
    self->n_rows = 0;
    for (unsigned i = 0; i < self->n_equations * parts && self->n_rows < n_columns; i++) {
        Bits unknowns, sum = {0};
        unknowns_of (self, self->equations[i / parts], i % parts, unknowns);
        flip_bit (sum, i);
        reduce (self, unknowns, sum);
        unsigned pivot = first_bit (unknowns, words_for (n_columns));
        if (pivot != G_MAXUINT)
            add_row (self, unknowns, sum, pivot);
    }
}

bool ecfs_solve_target (const EcfsSolve *self, unsigned packet, unsigned part,
                        uint64_t ret_sum[ECFS_SOLVE_MAX_ROWS / 64])
{
    unsigned k = self->code->base.k, n_words = words_for (self->n_unknown * self->code->parts);
    Bits unknowns = {0};
    if (ret_sum != NULL)
        memset (ret_sum, 0, sizeof (Bits));
    if (packet >= k)
        unknowns_of (self, packet - k, part, unknowns);
    else if (!ecfs_packets_has (&self->known, packet))
        flip_bit (unknowns, self->column[packet] * self->code->parts + part);
    reduce (self, unknowns, ret_sum);
    return first_bit (unknowns, n_words) == G_MAXUINT;
}

void ecfs_basis_init (EcfsBasis *self)
{
    self->n_rows = 0;
    memset (self->have, 0, sizeof self->have);
}

static bool add_to_basis (EcfsBasis *self, uint64_t *row, unsigned n_words)
{
    unsigned bit;
    while ((bit = first_bit (row, n_words)) != G_MAXUINT && self->have[bit])
        add_bits (row, self->rows[bit], n_words);
    if (bit == G_MAXUINT)
        return false;
    memcpy (self->rows[bit], row, n_words * sizeof *row);
    self->have[bit] = true;
    self->n_rows++;
    return true;
}

bool ecfs_basis_add (EcfsBasis *self, const EcfsBinary *code, unsigned packet)
{
    unsigned k = code->base.k, n_words = words_for (k * code->parts);
    bool added = false;
    for (unsigned part = 0; part < code->parts; part++) {
        Bits row = {0};
        if (packet < k)
            flip_bit (row, packet * code->parts + part);
        for (unsigned i = 0; i < k && packet >= k; i++)
            flip_member (code, packet - k, part, i, i * code->parts, row);
        added |= add_to_basis (self, row, n_words);
    }
    return added;
}
