#include "codec/rs.h"

const char *ecfs_rs_refuse (unsigned k, unsigned n)
{
    if (k < 1)
        return "it needs at least one data stripe";
    if (n <= k)
        return "it needs at least one parity stripe";
    if (n > ECFS_RS_MAX_N)
        return "data and parity stripes are at most 32 together";
    return NULL;
}

char *ecfs_rs_text (unsigned k, unsigned n)
{
    return g_strdup_printf ("rs:%u+%u", k, n - k);
}

void ecfs_rs_init_base (EcfsCodec *base, unsigned k, unsigned n)
{
    base->k = k;
    base->n = n;
    base->tolerance = n - k;
    base->overhead = 1;
    base->granule = ECFS_RS_GRANULE;
}
