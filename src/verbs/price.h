/* What moving bytes costs, for whoever asks before it is done. */
#ifndef ECFS_VERBS_PRICE_H
#define ECFS_VERBS_PRICE_H

#include "archive/common.h"

#include <json-glib/json-glib.h>

/* A sum over endpoints. */
typedef struct EcfsPriceSum {
    uint64_t millionths;
    double requests; /* also at those without prices */
    bool is_known;   /* some of these endpoints have prices */
} EcfsPriceSum;

/** Adds what @egress_bytes and @requests cost there. */
void ecfs_price_add (EcfsPriceSum *self, const EcfsArchiveEndpoint *endpoint, double egress_bytes, double requests);
/** As "requests", and where there are prices, "cost_millionths". */
void ecfs_price_put (const EcfsPriceSum *self, JsonObject *to);

#endif
