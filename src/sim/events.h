/* What is to happen on a simulated clock, the soonest first; of one moment, the first that was planned. */
#ifndef ECFS_SIM_EVENTS_H
#define ECFS_SIM_EVENTS_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct SimEvent {
    int64_t us;
    uint64_t number;
    unsigned kind;
    void *subject;
    uint64_t what;
} SimEvent;

typedef struct SimEvents {
    GArray *heap;      /* of SimEvent; NULL: none were ever */
    uint64_t n_events; /* in all */
} SimEvents;

void ecfs_sim_events_clear (SimEvents *self);
void ecfs_sim_events_add (SimEvents *self, int64_t us, unsigned kind, void *subject, uint64_t what);
/** How long @bytes take, rounded up; 10^18 at most, and so where the rate is 0. */
int64_t ecfs_sim_span_us (double bytes, double bytes_per_s);
/** False: there is none. */
bool ecfs_sim_events_take (SimEvents *self, SimEvent *ret_event);

#endif
