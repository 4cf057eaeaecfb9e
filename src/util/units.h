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

/**
 * A moment: how long ago ("90m", "2d"), or a date with or without a time as ISO 8601 writes it ("2026-11-25",
 * "2026-11-25 14:30", "2026-11-25T14:30:05+01:00"), local where it names no zone. A second that is named is meant with
 * its fractions. *ret_ns: since 1970. False: it is none of these, or before.
 */
bool ecfs_parse_moment (const char *text, int64_t *ret_ns);

#endif
