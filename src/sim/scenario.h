/*
 * A scenario: what is simulated, as a key file that a user writes.
 *
 * [scenario] says what kind it is, [objects] what is stored, [clients] who reads, [servers NAME] which servers there
 * are, [zones] what befalls all servers of a zone, [repair] how what is lost is made good, and [compare] with which
 * codes, policies and bandwidths of repair all that is run. Unknown sections and keys are errors.
 */
#ifndef ECFS_SIM_SCENARIO_H
#define ECFS_SIM_SCENARIO_H

#include "sim/lifetime.h"
#include "sim/sim.h"

/* Servers that are alike, but for chance. */
typedef struct EcfsScenarioServers {
    char *name;
    double count;
    double bandwidth, spread; /* bytes per second, the median; σ of its logarithm */
    double latency_ms, jitter_ms;
    double delayed, delay_ms;                      /* share of requests that come later */
    double change_at_s, change_until_s, change_to; /* another bandwidth; change_at_s < 0: never */
    double stall_every_s, stall_for_s;
    double zones;   /* that they are spread over; 0: each is one */
    double removed; /* 1: they hold nothing */
    double mttf_years;
} EcfsScenarioServers;

typedef struct EcfsScenario {
    bool is_lifetime;
    char *about;
    double seed, repeat, limit_s;
    double stand_for; /* objects that are simulated as one, at the same endpoints */
    double n_objects, object_bytes, packet_bytes, by_lot, spread;
    double n_clients, client_bandwidth, readahead, memory, decode, pace, known;
    double zone_stall_every_s, zone_stall_for_s, disaster_every_years, disaster_share;
    double years, detect_hours, replace_days;
    GPtrArray *servers;       /* of EcfsScenarioServers */
    char **codes;             /* NULL-terminated, as the two below */
    char **policies;          /* for reading */
    char **repair_bandwidths; /* for lifetimes: texts of sizes per second */
} EcfsScenario;

/** Reads the text of a scenario; @name is for messages. EINVAL with everything that is wrong about one key. */
EcfsScenario *ecfs_scenario_parse (const char *text, const char *name, GError **error);
EcfsScenario *ecfs_scenario_load (const char *path, GError **error);
void ecfs_scenario_free (EcfsScenario *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsScenario, ecfs_scenario_free)

/** One run of reading. EINVAL for a code or policy that is none. */
bool ecfs_scenario_read (const EcfsScenario *self, const char *code, const char *policy, uint32_t seed,
                         EcfsSimResult *ret_result, GError **error);

/** One run over the years. */
bool ecfs_scenario_live (const EcfsScenario *self, const char *code, const char *repair_bandwidth, uint32_t seed,
                         EcfsLifetime *ret_lifetime, GError **error);

/** The texts between semicolons instead of those in @list, without empty ones; EINVAL: @name has none. */
bool ecfs_scenario_list (const char *text, const char *name, char ***list, GError **error);

#endif
