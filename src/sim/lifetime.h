/*
 * Failure and repair over years, on a simulated clock: endpoints die at random, alone or with much of their zone, and
 * what they held is repaired onto others, at the bandwidth that there is, objects with the fewest stripes to lose
 * first. Codecs tell what is decodable and what a repair reads, placement where a stripe goes.
 *
 * An endpoint that dies is noticed after a while, and replaced by an empty one later. Endpoints that are away for a
 * time are not modelled here: ecfs_survival_failure () tells what these do.
 */
#ifndef ECFS_SIM_LIFETIME_H
#define ECFS_SIM_LIFETIME_H

#include "codec/codec.h"

typedef struct EcfsLifetimeEndpoint {
    double mttf_years; /* 0: it never dies alone */
    unsigned zone;
} EcfsLifetimeEndpoint;

typedef struct EcfsLifetimeModel {
    const char *code; /* as for ecfs_codec_new_modelled () */
    double years;
    uint64_t n_objects;
    double object_bytes;
    double repair_bytes_per_s;                   /* that repair reads, of all endpoints together */
    double detect_hours;                         /* until a death is noticed */
    double replace_days;                         /* until an empty endpoint is in its place */
    double disaster_every_years, disaster_share; /* of each zone, on average (0: never); of its endpoints that die */
    size_t n_endpoints, n_zones;
    const EcfsLifetimeEndpoint *endpoints; /* borrowed */
    uint32_t seed;
} EcfsLifetimeModel;

typedef struct EcfsLifetime {
    uint64_t n_lost;   /* objects */
    uint64_t n_deaths; /* of endpoints */
    uint64_t n_disasters;
    uint64_t n_repairs;         /* of objects */
    double repair_bytes;        /* read */
    double longest_repair_days; /* from a stripe's loss until it was back */
    int least_guarantee;   /* of objects not lost: how many stripes more could have been, in the worst moment; a lower
                            * bound where not any k stripes do */
    uint64_t n_unrepaired; /* objects that lack stripes at the end */
} EcfsLifetime;

/** EINVAL for the model's code, or too few endpoints for it. */
bool ecfs_lifetime_run (const EcfsLifetimeModel *model, EcfsLifetime *ret_lifetime, GError **error);

#endif
