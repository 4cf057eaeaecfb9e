/*
 * What the account of an endpoint allows in a calendar month, and what it asks for. Money has no currency: it is
 * counted in millionths of the unit in which prices are written.
 */
#ifndef ECFS_ENDPOINT_TARIFF_H
#define ECFS_ENDPOINT_TARIFF_H

#include "util/error.h"

#include <stdint.h>

#define ECFS_TARIFF_OPTION_KEYS                                                                                        \
    "requests_per_month", "egress_per_month", "price_storage", "price_requests", "price_egress"

typedef struct EcfsTariff {
    uint64_t requests_per_month; /* 0: any number, as the next */
    uint64_t egress_per_month;   /* bytes that leave it */
    bool has_prices;             /* any of the next is written, if only as 0 */
    uint64_t price_storage;      /* millionths, for 10^9 bytes and month */
    uint64_t price_requests;     /* the same for 1000 requests */
    uint64_t price_egress;       /* the same for 10^9 bytes */
} EcfsTariff;

/* What left it, and what was asked of it. */
typedef struct EcfsMonthUse {
    uint64_t requests;
    uint64_t egress_bytes;
} EcfsMonthUse;

/** Whether anything is to be counted. */
static inline bool ecfs_tariff_counts (const EcfsTariff *self)
{
    return self->requests_per_month > 0 || self->egress_per_month > 0 || self->has_prices;
}

/** Parses digits with at most six behind a point, up to a million. False: not that. */
bool ecfs_parse_money (const char *text, uint64_t *ret_millionths);

/** What so much costs; UINT64_MAX where that is more than fits. Of less than 1000 bytes nothing counts. */
uint64_t ecfs_price_of_bytes (uint64_t price, uint64_t bytes);
uint64_t ecfs_price_of_requests (uint64_t price, uint64_t requests);

/** Both, as far as it goes. */
static inline uint64_t ecfs_add_up (uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

#endif
