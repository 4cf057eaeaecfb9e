#include "codec/binary.h"
#include "codec/solve.h"
#include "util/lock.h"

#include <assert.h>
#include <string.h>

/* Guarantees: what was found out is kept, since many objects lack the same stripes. */

#define MAX_TRIES 5000 /* loss sets; trying one takes about a microsecond for codes of up to SMALL_N stripes */
#define SMALL_N   20
#define FEW_TRIES 300 /* for others */
#define N_KEPT    64

struct EcfsGuarantees {
    EcfsMutex lock;
    unsigned n_kept; /* ever; guarded by lock */
    struct {
        EcfsPackets present;
        int guarantee;
    } kept[N_KEPT]; /* guarded by lock */
};

void ecfs_binary_finish (EcfsBinary *self)
{
    unsigned k = self->base.k, n = self->base.n;
    self->base.granule = (size_t) self->parts * ECFS_XOR_COLUMN;
    bool data[ECFS_CODEC_MAX_N] = {0}, parity[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < n; i++) {
        data[i] = i < k;
        parity[i] = i >= k;
    }
    for (unsigned i = 0; i < n - k; i++) {
        self->equations[i] = (EcfsPackets){{0}};
        ecfs_packets_add (&self->equations[i], k + i);
        for (unsigned j = 0; j < k; j++)
            if (self->rotation[i][j] >= 0)
                ecfs_packets_add (&self->equations[i], j);
    }
    self->encode = ecfs_binary_program (self, data, parity);
    assert (self->encode != NULL);
    self->guarantees = g_new0 (EcfsGuarantees, 1);
    ecfs_mutex_init (&self->guarantees->lock);
}

void ecfs_binary_clear (EcfsCodec *base)
{
    EcfsBinary *self = (EcfsBinary *) base;
    ecfs_program_free (self->encode);
    ecfs_mutex_clear (&self->guarantees->lock);
    g_free (self->guarantees);
}

void ecfs_binary_encode (const EcfsCodec *base, const uint8_t *const *data, uint8_t *const *parity, size_t packet_bytes)
{
    uint8_t *packets[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < base->n; i++)
        packets[i] = i < base->k ? (uint8_t *) data[i] : parity[i - base->k]; /* data is only read */
    ecfs_program_run (((const EcfsBinary *) base)->encode, packets, packet_bytes);
}

static bool determines_packet (const EcfsSolve *solve, unsigned packet)
{
    for (unsigned part = 0; part < solve->code->parts; part++)
        if (!ecfs_solve_target (solve, packet, part, NULL))
            return false;
    return true;
}

bool ecfs_binary_determines (const EcfsCodec *base, const bool *present, const bool *wanted)
{
    unsigned i = 0;
    while (i < base->n && (present[i] || !wanted[i]))
        i++;
    if (i == base->n)
        return true;
    EcfsSolve solve;
    ecfs_solve_peel (&solve, (const EcfsBinary *) base, present);
    if (solve.n_unknown > 0)
        ecfs_solve_eliminate (&solve);
    for (; i < base->n; i++)
        if (wanted[i] && !present[i] && !determines_packet (&solve, i))
            return false;
    return true;
}

static bool find_kept (EcfsGuarantees *self, const EcfsPackets *present, int *ret_guarantee)
{
    bool found = false;
    ecfs_mutex_lock (&self->lock);
    for (unsigned i = 0; i < MIN (self->n_kept, N_KEPT) && !found; i++) {
        found = memcmp (&self->kept[i].present, present, sizeof *present) == 0;
        *ret_guarantee = self->kept[i].guarantee;
    }
    ecfs_mutex_unlock (&self->lock);
    return found;
}

static void keep (EcfsGuarantees *self, const EcfsPackets *present, int guarantee)
{
    ecfs_mutex_lock (&self->lock);
    self->kept[self->n_kept % N_KEPT].present = *present;
    self->kept[self->n_kept++ % N_KEPT].guarantee = guarantee;
    ecfs_mutex_unlock (&self->lock);
}

/* The number of sets of @size packets among @n; more than MAX_TRIES is all the same. */
static unsigned count_sets (unsigned n, unsigned size)
{
    uint64_t sets = 1;
    for (unsigned i = 0; i < size && sets <= MAX_TRIES; i++)
        sets = sets * (n - i) / (i + 1);
    return (unsigned) MIN (sets, MAX_TRIES + 1);
}

/* Whether all data survives any loss of @n_lost more of those present from @first on. */
static bool survives_any (const EcfsCodec *self, bool *present, unsigned first, unsigned n_lost)
{
    if (n_lost == 0)
        return ecfs_codec_decodable (self, present);
    for (unsigned i = first; i < self->n; i++) {
        if (!present[i])
            continue;
        present[i] = false;
        bool survives = survives_any (self, present, i + 1, n_lost - 1);
        present[i] = true;
        if (!survives)
            return false;
    }
    return true;
}

/* What is lost may be no part of what would hurt most: then more can go than the code promises for any loss. */
static int find_guarantee (const EcfsCodec *self, bool *present, unsigned n_present)
{
    if (n_present < self->k || !ecfs_codec_decodable (self, present))
        return -1;
    unsigned n_lost = self->n - n_present;
    unsigned proven = self->tolerance > n_lost ? self->tolerance - n_lost : 0;
    unsigned max_tries = self->n <= SMALL_N ? MAX_TRIES : FEW_TRIES;
    while (n_lost > 0 && proven < n_present - self->k && count_sets (n_present, proven + 1) <= max_tries &&
           survives_any (self, present, 0, proven + 1))
        proven++;
    return (int) proven;
}

int ecfs_binary_guarantee (const EcfsCodec *base, const bool *given)
{
    EcfsGuarantees *kept = ((const EcfsBinary *) base)->guarantees;
    EcfsPackets set = ecfs_packets_of (given, base->n);
    int guarantee;
    if (find_kept (kept, &set, &guarantee))
        return guarantee;
    bool present[ECFS_CODEC_MAX_N];
    memcpy (present, given, base->n * sizeof *present);
    guarantee = find_guarantee (base, present, ecfs_packets_count (&set));
    keep (kept, &set, guarantee);
    return guarantee;
}
