/* The header Content-Range. Pure, on bytes that nobody vouches for. */
#ifndef ECFS_ENDPOINT_WEB_HTTP_RANGE_H
#define ECFS_ENDPOINT_WEB_HTTP_RANGE_H

#include "util/error.h"

#include <stdint.h>

/* Which bytes, first and last included, of how many. */
typedef struct EcfsHttpRange {
    uint64_t first;
    uint64_t last;
    uint64_t total; /* UINT64_MAX: not told */
} EcfsHttpRange;

/** Parses "bytes FIRST-LAST/TOTAL"; false for anything else, and for ranges that cannot be. */
bool ecfs_http_parse_range (const char *text, EcfsHttpRange *ret_range);

#endif
