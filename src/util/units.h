/* Sizes and times as people write them: "2M", "16K", "10s", "500ms". */
#ifndef ECFS_UTIL_UNITS_H
#define ECFS_UTIL_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/** Parses digits with an optional unit as coreutils take them: K or KiB, M, G, T are powers of 1024; kB (or KB), MB,
 * GB, TB are powers of 1000. False: not that. */
bool ecfs_parse_size (const char *text, uint64_t *ret_bytes);

/** Parses digits with "ms", "s" (default), "m", "h" or "d". False: not that. */
bool ecfs_parse_duration (const char *text, int64_t *ret_us);

#endif
