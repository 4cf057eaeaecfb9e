/* Codes of which any k packets determine all. */
#include "codec/codec_priv.h"

#include <string.h>

bool ecfs_mds_determines (const EcfsCodec *self, const bool *present, const bool *wanted)
{
    unsigned i = 0;
    while (i < self->n && (present[i] || !wanted[i]))
        i++;
    return i == self->n || ecfs_codec_count (present, self->n) >= self->k;
}

int ecfs_mds_guarantee (const EcfsCodec *self, const bool *present)
{
    int spare = (int) ecfs_codec_count (present, self->n) - (int) self->k;
    return spare >= 0 ? spare : -1;
}

/* Any k serve; and the wanted ones themselves, where they are fewer and all there. */
bool ecfs_mds_choose (const EcfsCodec *self, const bool *wanted, const bool *available, const double *cost,
                      bool *sources)
{
    bool direct = true;
    double direct_cost = 0, sum = 0;
    for (unsigned i = 0; i < self->n; i++) {
        direct = direct && (available[i] || !wanted[i]);
        direct_cost += wanted[i] ? cost[i] : 0;
        sources[i] = false;
    }
    for (unsigned chosen = 0; chosen < self->k; chosen++) {
        unsigned best = self->n;
        for (unsigned i = 0; i < self->n; i++)
            if (available[i] && !sources[i] && (best == self->n || cost[i] < cost[best]))
                best = i;
        if (best == self->n)
            break;
        sources[best] = true;
        sum += cost[best];
    }
    if (direct && (direct_cost <= sum || ecfs_codec_count (sources, self->n) < self->k))
        memcpy (sources, wanted, self->n * sizeof *sources);
    return direct || ecfs_codec_count (sources, self->n) == self->k;
}

bool ecfs_mds_choose_sources (const EcfsCodec *self, const bool *present, bool *sources, GError **error)
{
    unsigned chosen = 0;
    for (unsigned i = 0; i < self->n && chosen < self->k; i++) {
        sources[i] = present[i];
        chosen += present[i];
    }
    if (chosen < self->k)
        ecfs_codec_set_undetermined (self, present, error);
    return chosen == self->k;
}
