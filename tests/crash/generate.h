/*
 * What a round of the soak is made of, all from its seed: a code, a script of random operations, endpoints that are in
 * trouble meanwhile, the moment of a crash. The script grows from a small model of what is there; where a fault makes
 * an operation fail, later ones that build on it fail, too.
 */
#ifndef ECFS_TESTS_CRASH_GENERATE_H
#define ECFS_TESTS_CRASH_GENERATE_H

#include "fixture.h"
#include "steps.h"

/* What each archive holds before the operations of its round. */
#define SOAK_BEFORE                                                                                                    \
    "create old; write old 0 60000; close old; create small; write small 0 300; close small; mkdir d;"                 \
    "create d/x; write d/x 0 20000; close d/x; link d/x also; setxattr small kept; mtime small 1000;"                  \
    "wait; sync"

typedef struct Round {
    unsigned seed;
    unsigned code;            /* index */
    bool async;               /* commit = async */
    bool logless;             /* no endpoint keeps logs */
    bool small_objects;       /* files are several */
    bool beside;              /* the archive is recovered elsewhere meanwhile; a crash is of this machine alone */
    unsigned n_zones;         /* that endpoints share; 0: each has its own */
    bool keyed;               /* they share a key; with zones of their own, as merged ones are none that it needs */
    char *script;             /* behind what is there before */
    char *flaws[N_ENDPOINTS]; /* rules of tests/lab/flaws.h; NULL: the endpoint is fine */
    unsigned n_troubled;      /* endpoints that have rules or are hidden in the script */
    uint32_t at;              /* the step to crash at; 0: none */
    uint32_t recovery_at;     /* the step to crash at once more in the recovery behind that; 0: none */
    CrashMoment moment;
    CrashLoss loss;
    bool recover; /* in the end the archive directory is made anew from the endpoints */
} Round;

/** @tolerances: of each code there is. */
Round *round_new (unsigned seed, const unsigned *tolerances, unsigned n_codes);
void round_free (Round *round);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Round, round_free)

#endif
