/*
 * The cheapest packets that determine those wanted. Finding the very cheapest set is as hard as decoding a general
 * linear code, so this looks where cheap ones are: at single equations, at sums of them (without rotations; of all
 * where these are few, else of two), and, where these do not serve or ask for dear packets, at the cheapest basis:
 * where all data is wanted, that is the cheapest set.
 */
#include "codec/solve.h"

#include <math.h>
#include <string.h>

#define ALL_SUMS_M 10 /* equations of which all sums are looked at */

typedef struct Choice {
    const EcfsBinary *code;
    const double *cost;
    EcfsPackets available;
    EcfsPackets readable; /* available and not wanted */
    EcfsPackets chosen;   /* to be read */
    EcfsPackets had;      /* chosen, or what comes of them */
    EcfsPackets left;     /* wanted and not had */
} Choice;

/* What reading the packets of an equation costs that are not had; infinite when it does not give exactly one of those
 * left. */
static double equation_cost (const Choice *self, const EcfsPackets *equation)
{
    EcfsPackets missing = ecfs_packets_minus (equation, &self->had);
    EcfsPackets unread = ecfs_packets_minus (&missing, &self->readable);
    if (ecfs_packets_count (&unread) != 1 || !ecfs_packets_has (&self->left, ecfs_packets_first (&unread)))
        return INFINITY;
    double sum = 0;
    EcfsPackets read = ecfs_packets_minus (&missing, &unread);
    for (unsigned i = 0; i < 4; i++)
        for (uint64_t word = read.words[i]; word != 0; word &= word - 1)
            sum += self->cost[i * 64 + (unsigned) __builtin_ctzll (word)];
    return sum;
}

static void take_equation (Choice *self, const EcfsPackets *equation)
{
    EcfsPackets missing = ecfs_packets_minus (equation, &self->had);
    EcfsPackets gives = ecfs_packets_minus (&missing, &self->readable);
    EcfsPackets read = ecfs_packets_minus (&missing, &gives);
    for (unsigned i = 0; i < 4; i++) {
        self->chosen.words[i] |= read.words[i];
        self->had.words[i] |= missing.words[i];
        self->left.words[i] &= ~gives.words[i];
    }
}

static void take_packet (Choice *self, unsigned packet)
{
    ecfs_packets_add (&self->chosen, packet);
    ecfs_packets_add (&self->had, packet);
    ecfs_packets_remove (&self->left, packet);
}

static void consider (const Choice *self, const EcfsPackets *equation, EcfsPackets *best, double *least)
{
    double cost = equation_cost (self, equation);
    if (cost < *least) {
        *least = cost;
        *best = *equation;
    }
}

static EcfsPackets sum_of (const EcfsPackets *a, const EcfsPackets *b)
{
    EcfsPackets sum;
    for (unsigned i = 0; i < 4; i++)
        sum.words[i] = a->words[i] ^ b->words[i];
    return sum;
}

/* Sums of equations are equations where packets are not rotated. */
static void consider_sums (const Choice *self, EcfsPackets *best, double *least)
{
    const EcfsPackets *equations = self->code->equations;
    unsigned m = self->code->base.n - self->code->base.k;
    EcfsPackets sum = {{0}};
    for (uint32_t i = 1; m <= ALL_SUMS_M && i < 1u << m; i++) { /* in Gray's order: one comes or goes at a time */
        sum = sum_of (&sum, &equations[__builtin_ctz (i)]);
        consider (self, &sum, best, least);
    }
    for (unsigned i = 0; i < m && m > ALL_SUMS_M; i++)
        for (unsigned j = 0; j < i; j++) {
            sum = sum_of (&equations[i], &equations[j]);
            consider (self, &sum, best, least);
        }
}

/* Takes one of those left in the cheapest way: as it is, or by an equation. False when there is none. */
static bool take_best (Choice *self)
{
    const EcfsBinary *code = self->code;
    unsigned n = code->base.n, direct = n;
    double least = INFINITY, least_direct = INFINITY;
    EcfsPackets best = {{0}};
    for (unsigned i = 0; i < n; i++)
        if (ecfs_packets_has (&self->left, i) && ecfs_packets_has (&self->available, i) &&
            self->cost[i] < least_direct) {
            least_direct = self->cost[i];
            direct = i;
        }
    for (unsigned i = 0; i < n - code->base.k; i++)
        consider (self, &code->equations[i], &best, &least);
    if (code->parts == 1 && direct == n)
        consider_sums (self, &best, &least);
    if (isinf (least) && direct == n)
        return false;
    if (least_direct <= least)
        take_packet (self, direct);
    else
        take_equation (self, &best);
    return true;
}

static unsigned list_by_cost (const Choice *self, unsigned order[ECFS_CODEC_MAX_N])
{
    unsigned n = 0;
    for (unsigned i = 0; i < self->code->base.n; i++) {
        if (!ecfs_packets_has (&self->available, i))
            continue;
        unsigned at = n++;
        for (; at > 0 && self->cost[order[at - 1]] > self->cost[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

/* Takes away each source that is not missed, the dearest first. As few as the wanted packets are never too many. */
static void drop_dearest (const Choice *self, const bool *wanted, bool *sources)
{
    const EcfsCodec *base = &self->code->base;
    EcfsPackets used = ecfs_packets_of (sources, base->n), all = ecfs_packets_of (wanted, base->n);
    if (ecfs_packets_count (&used) <= ecfs_packets_count (&all))
        return;
    unsigned order[ECFS_CODEC_MAX_N], n = list_by_cost (self, order);
    while (n-- > 0) {
        if (!sources[order[n]])
            continue;
        sources[order[n]] = false;
        sources[order[n]] = !ecfs_binary_determines (base, sources, wanted);
    }
}

/* Packets from the cheapest on, less those that add nothing to the ones before, until they determine what is wanted,
 * which all together do. */
static void take_basis (const Choice *self, const bool *wanted, bool *sources)
{
    unsigned order[ECFS_CODEC_MAX_N], n = list_by_cost (self, order),
                                      n_columns = self->code->base.k * self->code->parts;
    EcfsBasis basis;
    ecfs_basis_init (&basis);
    memset (sources, 0, self->code->base.n * sizeof *sources);
    for (unsigned i = 0; i < n && basis.n_rows < n_columns; i++)
        sources[order[i]] = ecfs_basis_add (&basis, self->code, order[i]);
    drop_dearest (self, wanted, sources);
}

static double sum_of_costs (const Choice *self, const bool *sources)
{
    double sum = 0;
    for (unsigned i = 0; i < self->code->base.n; i++)
        sum += sources[i] ? self->cost[i] : 0;
    return sum;
}

/* Whether packets that are all cheaper than the dearest source would do as well. */
static bool is_dearest_avoidable (const Choice *self, const bool *wanted, const bool *sources)
{
    double dearest = 0;
    bool cheaper[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < self->code->base.n; i++)
        dearest = sources[i] ? fmax (dearest, self->cost[i]) : dearest;
    for (unsigned i = 0; i < self->code->base.n; i++)
        cheaper[i] = ecfs_packets_has (&self->available, i) && self->cost[i] < dearest;
    return ecfs_binary_determines (&self->code->base, cheaper, wanted);
}

bool ecfs_binary_choose (const EcfsCodec *base, const bool *wanted, const bool *available, const double *cost,
                         bool *sources)
{
    unsigned n = base->n;
    if (!ecfs_binary_determines (base, available, wanted))
        return false;
    Choice self = {.code = (const EcfsBinary *) base, .cost = cost, .available = ecfs_packets_of (available, n)};
    self.left = ecfs_packets_of (wanted, n);
    self.readable = ecfs_packets_minus (&self.available, &self.left);
    for (unsigned i = 0; i < n; i++)
        if (available[i] && cost[i] <= 0)
            take_packet (&self, i);
    while (ecfs_packets_count (&self.left) > 0 && take_best (&self))
        ;
    bool by_equations = ecfs_packets_count (&self.left) == 0;
    if (!by_equations) {
        take_basis (&self, wanted, sources);
        return true;
    }
    for (unsigned i = 0; i < n; i++)
        sources[i] = ecfs_packets_has (&self.chosen, i);
    drop_dearest (&self, wanted, sources);
    if (!is_dearest_avoidable (&self, wanted, sources))
        return true;
    bool others[ECFS_CODEC_MAX_N];
    take_basis (&self, wanted, others);
    if (sum_of_costs (&self, others) < sum_of_costs (&self, sources))
        memcpy (sources, others, n * sizeof *sources);
    return true;
}
