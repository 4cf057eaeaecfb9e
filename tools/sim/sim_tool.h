/* What a simulation came to, and its drawings; for verb_sim.c. */
#ifndef ECFS_TOOLS_SIM_H
#define ECFS_TOOLS_SIM_H

#include "sim/scenario.h"

/* Runs with one code and policy, or bandwidth of repair, of all seeds. */
typedef struct SimRow {
    const char *code, *variant; /* of the scenario */
    unsigned k, n;
    bool modelled;
    unsigned n_runs, n_timed_out;
    double seconds, deviation; /* mean, and standard deviation */
    double bytes_per_s;        /* of content */
    double object_p50_s, object_p95_s, longest_wait_s;
    double received, extra; /* bytes for each of content: that came, and of them that were not needed */
    double hedges, failed, objects;
    EcfsLifetime lifetime; /* sums; of guarantee and days the worst */
} SimRow;

/** Runs all that is to be compared; @progress is told of every run, and may be NULL. */
GArray *sim_run_all (const EcfsScenario *scenario, void (*progress) (unsigned n_done, unsigned n_all), GError **error);

/** Lost objects for each million and year; with none seen what 95% of such runs are below, and false. */
bool sim_loss_rate (const EcfsScenario *scenario, const SimRow *row, double *ret_rate);

/** What gnuplot is told; g_free (). */
char *sim_plot (const EcfsScenario *scenario, const GArray *rows);

#endif
