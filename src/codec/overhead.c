/* How many packets a download in random order takes. */
#include "codec/codec_priv.h"
#include "codec/random.h"

#include <string.h>

#define N_ORDERS 1000

static void shuffle (uint64_t *state, unsigned *order, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned with = (unsigned) (ecfs_random_next (state) % (i + 1));
        order[i] = order[with];
        order[with] = i;
    }
}

static bool are_first_enough (const EcfsCodec *self, const unsigned *order, unsigned n_first)
{
    bool present[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < n_first; i++)
        present[order[i]] = true;
    return ecfs_codec_decodable (self, present);
}

/* More packets never make less decodable, so the first number that is enough is found by halving. */
static unsigned count_needed (const EcfsCodec *self, const unsigned *order)
{
    unsigned low = self->k, high = self->k + 1, n = self->n;
    if (are_first_enough (self, order, low))
        return low;
    while (high < n && !are_first_enough (self, order, high)) {
        low = high;
        high = MIN (n, 2 * high - self->k);
    }
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (are_first_enough (self, order, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}

double ecfs_codec_measure_overhead (const EcfsCodec *self, unsigned n_orders)
{
    uint64_t state = self->k * 256 + self->n, sum = 0;
    unsigned order[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < n_orders; i++) {
        shuffle (&state, order, self->n);
        sum += count_needed (self, order);
    }
    return (double) sum / n_orders / self->k;
}

double ecfs_codec_overhead (const EcfsCodec *self)
{
    return self->overhead > 0 ? self->overhead : ecfs_codec_measure_overhead (self, N_ORDERS);
}
