/*
 * Proves how many losses of a basic:K+K code are survived, whichever they are. Not installed.
 *
 *   basic-proof [--losses N] K      N losses; K/2 without it
 *
 * The ring of the code, GF(2)[z] / (1 + z + ... + z^(p-1)), is a product of fields, one for each class of powers of a
 * p-th root of unity. A codeword that is not zero is not zero in one of them, and has no more packets there: so it is
 * enough to show that over each field no codeword but zero has N packets or fewer that are not zero.
 *
 * Parity packet i sees the K/2 data packets from i on, cyclically: positions run round a circle, each with its data
 * packet and the parity packet that it completes. Of a codeword with at most N packets, at most N/2K per position on
 * average, some rotation has no beginning that has more than its share. So it suffices to search all rotations for
 * codewords no beginning of which has more: position by position, each packet is zero or not; a parity packet that is
 * zero is a linear equation for the data packets; and where those leave only zero for one that is not, nothing is to be
 * found.
 */
#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_K     32
#define MAX_DATA  18 /* packets that are not zero */
#define MAX_FIELD 4096

/* The field by powers of its generator. */
static unsigned order; /* elements that are not zero */
static uint16_t power[2 * MAX_FIELD], exponent[MAX_FIELD];

/* The search; row t and column c are counted from the rotation's first. */
static unsigned k, h, p, max_losses, rotation;
static uint16_t coefficients[MAX_K][MAX_K]; /* [parity][data] */
static uint64_t n_states;

/* Data packets that are not zero, and what is known of them: reduced equations, each with a pivot. */
typedef struct State {
    uint8_t n_data, n_equations;
    uint8_t data[MAX_DATA], pivot[MAX_DATA];
    uint16_t equations[MAX_DATA][MAX_DATA];
} State;

static uint16_t multiply (uint16_t a, uint16_t b)
{
    return a == 0 || b == 0 ? 0 : power[exponent[a] + exponent[b]];
}

static void make_field (unsigned degree)
{
    /* Primitive polynomials over GF(2), by degree. */
    static const uint16_t polynomials[] = {0, 0, 7, 0xb, 0x13, 0x25, 0x43, 0x89, 0x11d, 0x211, 0x409, 0x805, 0x1053};
    unsigned element = 1;
    order = (1u << degree) - 1;
    for (unsigned i = 0; i < order; i++) {
        power[i] = power[i + order] = (uint16_t) element;
        exponent[element] = (uint16_t) i;
        element <<= 1;
        if (element >> degree)
            element ^= polynomials[degree];
    }
}

/* Coefficients as the code's formula gives them, with @root in place of z. */
static void make_coefficients (uint16_t root)
{
    memset (coefficients, 0, sizeof coefficients);
    for (unsigned i = 0; i < k; i++)
        for (unsigned l = 0; l < h; l++) {
            uint16_t value = 1;
            for (unsigned n = l * (i + 1) % p; n > 0; n--)
                value = multiply (value, root);
            coefficients[i][(i + l) % k] = value;
        }
}

static unsigned share (unsigned n_positions)
{
    return n_positions >= k ? max_losses : n_positions * max_losses / k;
}

static uint16_t coefficient (unsigned row, unsigned column)
{
    return coefficients[(rotation + row) % k][(rotation + column) % k];
}

static unsigned reduce_by (uint16_t *row, const uint16_t *equation, uint16_t factor, unsigned n)
{
    unsigned n_left = 0;
    for (unsigned i = 0; i < n; i++) {
        row[i] ^= multiply (factor, equation[i]);
        n_left += row[i] != 0;
    }
    return n_left;
}

/* Adds "parity packet @row is zero". False when some data packet would have to be zero then. */
static bool add_equation (State *self, unsigned row)
{
    uint16_t equation[MAX_DATA];
    unsigned n = self->n_data, pivot = n, n_left = 0;
    for (unsigned i = 0; i < n; i++)
        equation[i] = coefficient (row, self->data[i]);
    for (unsigned e = 0; e < self->n_equations; e++)
        (void) reduce_by (equation, self->equations[e], equation[self->pivot[e]], n);
    for (unsigned i = n; i-- > 0;)
        if (equation[i] != 0) {
            pivot = i;
            n_left++;
        }
    if (n_left < 2)
        return n_left == 0;
    uint16_t inverse = power[order - exponent[equation[pivot]]];
    for (unsigned i = 0; i < n; i++)
        equation[i] = multiply (inverse, equation[i]);
    for (unsigned e = 0; e < self->n_equations; e++) {
        uint16_t factor = self->equations[e][pivot];
        if (factor != 0 && reduce_by (self->equations[e], equation, factor, n) < 2)
            return false;
    }
    memcpy (self->equations[self->n_equations], equation, sizeof equation);
    self->pivot[self->n_equations++] = (uint8_t) pivot;
    return self->n_equations < n;
}

static void add_data (State *self, unsigned column)
{
    for (unsigned e = 0; e < self->n_equations; e++)
        self->equations[e][self->n_data] = 0;
    self->data[self->n_data++] = (uint8_t) column;
}

static bool search_row (const State *state, unsigned row, unsigned n_losses);

/* From the row on: first the data packet that it sees last, if that was not decided yet. */
static bool search_column (const State *state, unsigned row, unsigned n_losses)
{
    if (row == k)
        return state->n_data > 0;
    unsigned column = row + h - 1;
    if (row == 0 || column >= k)
        return search_row (state, row, n_losses);
    if (search_row (state, row, n_losses))
        return true;
    if (n_losses + 1 > share (column + 1))
        return false;
    State with = *state;
    add_data (&with, column);
    return search_row (&with, row, n_losses + 1);
}

/* Whether there is a codeword with this beginning. */
static bool search_row (const State *state, unsigned row, unsigned n_losses)
{
    bool sees = false;
    n_states++;
    for (unsigned i = 0; i < state->n_data && !sees; i++)
        sees = coefficient (row, state->data[i]) != 0;
    if (!sees)
        return search_column (state, row + 1, n_losses);
    if (n_losses + 1 <= share (row + h) && search_column (state, row + 1, n_losses + 1))
        return true;
    State zero = *state;
    return add_equation (&zero, row) && search_column (&zero, row + 1, n_losses);
}

/* All choices for the data packets that the first row sees. */
static bool search_rotation (void)
{
    for (uint32_t choice = 0; choice < 1u << h; choice++) {
        State state = {.n_data = 0};
        bool fits = true;
        for (unsigned i = 0; i < h && fits; i++) {
            if (choice >> i & 1)
                add_data (&state, i);
            fits = state.n_data <= share (i + 1);
        }
        if (fits && search_row (&state, 0, state.n_data))
            return true;
    }
    return false;
}

/* One field for each class of exponents that squaring leads to each other. */
static bool search_all (void)
{
    bool done[MAX_K] = {false};
    unsigned degree = 1;
    for (unsigned n = 2 % p; n != 1; n = n * 2 % p)
        degree++;
    make_field (degree);
    for (unsigned class = 1; class < p; class ++) {
        if (done[class])
            continue;
        for (unsigned n = class; !done[n]; n = n * 2 % p)
            done[n] = true;
        make_coefficients (power[order / p * class % order]);
        for (rotation = 0; rotation < k; rotation++)
            if (search_rotation ())
                return true;
    }
    return false;
}

int main (int argc, char **argv)
{
    static const unsigned primes[] = {3, 5, 7, 11, 13, 17};
    int losses = 0;
    const GOptionEntry entries[] = {{"losses", 0, 0, G_OPTION_ARG_INT, &losses, "to survive (K/2)", "N"},
                                    G_OPTION_ENTRY_NULL};
    g_autoptr (GOptionContext) context = g_option_context_new ("K");
    g_autoptr (GError) error = NULL;
    g_option_context_add_main_entries (context, entries, NULL);
    bool parsed = g_option_context_parse (context, &argc, &argv, &error);
    k = argc == 2 ? (unsigned) atoi (argv[1]) : 0;
    h = k / 2;
    if (!parsed || k < 4 || k > MAX_K || k % 2 != 0 || losses < 0 || losses > MAX_DATA) {
        fprintf (stderr, "basic-proof: %s\n", error != NULL ? error->message : "K is an even number from 4 to 32");
        return 2;
    }
    max_losses = losses == 0 ? h : (unsigned) losses;
    for (unsigned i = 0; p <= h; i++)
        p = primes[i];
    bool fatal = search_all ();
    printf ("basic:%u+%u: %s %u losses %s (%" G_GUINT64_FORMAT " states)\n", k, k, fatal ? "some" : "any", max_losses,
            fatal ? "are too many" : "are survived", n_states);
    return fatal;
}
