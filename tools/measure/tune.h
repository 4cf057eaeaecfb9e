/* `ecfs tune`: what was measured of an archive's endpoints and this machine, and what follows for ecfs.conf. */
#ifndef ECFS_TOOL_TUNE_H
#define ECFS_TOOL_TUNE_H

#include "archive/archive.h"

#include <json-glib/json-glib.h>

#define TUNE_MAX_TRIALS   6
#define TUNE_N_SEGMENTS   5
#define TUNE_N_CIPHERS    2
#define TUNE_MIN_SEGMENTS 16 /* that transfer_memory has room for */

/* An endpoint with one setting. */
typedef struct TuneTrial {
    unsigned connections;
    const char *transport; /* "openssh", "libssh2"; NULL: the protocol has none, or it is left as it is */
    double read_bytes_per_s;
    double write_bytes_per_s;
    double cpu_s_per_gib; /* of this machine, programs that were started included; 0: not measured */
} TuneTrial;

typedef struct TuneEndpoint {
    const char *name; /* borrowed from the archive, as the next */
    const char *url;
    bool has_connections;  /* the protocol has some that can be measured */
    unsigned connections;  /* as configured */
    const char *transport; /* as configured; "auto" by default */
    double round_trip_s;
    TuneTrial trials[TUNE_MAX_TRIALS]; /* the first is as configured */
    unsigned n_trials;
    char *error; /* why nothing was measured; NULL otherwise */
} TuneEndpoint;

typedef struct TuneMachine {
    const char *code; /* borrowed from the archive */
    unsigned k, n;
    uint64_t memory_bytes;
    uint64_t segment_bytes[TUNE_N_SEGMENTS];
    double encode_bytes_per_s[TUNE_N_SEGMENTS]; /* of content, one core */
    double decode_bytes_per_s[TUNE_N_SEGMENTS];
    const char *ciphers[TUNE_N_CIPHERS];
    double cipher_bytes_per_s[TUNE_N_CIPHERS];
} TuneMachine;

typedef struct TuneFigures {
    TuneMachine machine;
    TuneEndpoint *endpoints;
    unsigned n_endpoints;
} TuneFigures;

#define TUNE_LOAD_MIN (UINT64_C (1) << 20)
#define TUNE_LOAD_MAX (UINT64_C (64) << 20)

/**
 * Measures, moving at most @max_load_bytes (TUNE_LOAD_MIN to TUNE_LOAD_MAX) at once; @progress is called with what is
 * done next. The archive need not be started.
 */
TuneFigures *tune_measure (const EcfsArchive *archive, size_t max_load_bytes,
                           void (*progress) (void *user, const char *what), void *user, GError **error);
void tune_figures_free (TuneFigures *figures);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (TuneFigures, tune_figures_free)

typedef struct TuneProposal {
    EcfsConfigChange change;
    char *now;
    char *reason;
} TuneProposal;

/** What should be otherwise in the configuration, by the figures: array of TuneProposal, which it owns. Pure. */
GPtrArray *tune_propose (const EcfsConfig *config, const TuneFigures *figures);

#endif
