/*
 * How much fits on a number of endpoints when every object has n stripes, as placement.h places them. Pure functions.
 */
#ifndef ECFS_OBJECT_CAPACITY_H
#define ECFS_OBJECT_CAPACITY_H

#include <stddef.h>
#include <stdint.h>

/* What an endpoint that takes stripes has left. Zones and devices are small numbers, below the number of rooms. */
typedef struct EcfsRoom {
    unsigned zone;
    unsigned device;     /* equal for endpoints that share one file system, whose bytes are there only once */
    uint64_t free_bytes; /* of the device; where its endpoints tell different figures, the least counts */
} EcfsRoom;

/**
 * The bytes that each of the n stripes of all further objects can have together, to within a percent or two: k times
 * that is the content. Found by placing objects until there is no place left. Where neither zones nor devices bind it
 * is the largest x with Σ min (free, x) ≥ n·x.
 *
 * @max_per_endpoint: stripes of one object that an endpoint may hold
 */
uint64_t ecfs_capacity (const EcfsRoom *rooms, size_t n_rooms, unsigned n, unsigned max_per_endpoint);

#endif
