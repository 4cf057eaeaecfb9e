/* scripted://: a driver that does what the test says. Requests succeed at once, but for files named "stuck" (until
 * released), "swallow" (the same, and takes what there is to write first) and "break". */
#ifndef ECFS_TESTS_SCRIPT_H
#define ECFS_TESTS_SCRIPT_H

#include "endpoint/core/core.h"

typedef struct Script {
    EcfsMutex lock;
    EcfsCond cond;
    /* guarded by lock */
    bool refuse;          /* connect fails */
    unsigned refuse_from; /* so does this connect and later ones; 0: none */
    bool released;        /* stuck ones go on */
    unsigned n_connects;
    unsigned n_stuck;
    int64_t connected_us[64];
    int write_code; /* writes fail with it; 0: they succeed */
    uint64_t free_bytes;
    bool hold_space;  /* space requests are stuck */
    bool hold_writes; /* and so are writes */
    bool hold_ends;   /* connections end only as far as … */
    unsigned n_ends;  /* … so many may */
} Script;

extern Script script;

/** Once, before the others. */
void script_register (void);

/** An endpoint whose name is x, with @options (",KEY=VALUE..."), and the script from the beginning. */
EcfsEndpoint *script_start (const char *options);
/** The same where connections are costly. */
EcfsEndpoint *script_start_costly (const char *options);

/** Sets @which, a member of script, and wakes who waits. */
void script_set (bool *which, bool value);
unsigned script_count (const unsigned *which);
void script_wait (const unsigned *which, unsigned least);

/** Asserts too that there is a reason where it is. */
bool script_is_down (EcfsEndpoint *endpoint);

#endif
