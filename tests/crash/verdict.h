/*
 * Looks at what a crash has left of an archive, as the next mount finds it: whether the tree is one that the script may
 * leave, whether interrupted/ has what was not flushed and nothing else, and, when everything is stored and the
 * deletions are worked off, whether the endpoints hold exactly the stripes that the catalog names.
 */
#ifndef ECFS_TESTS_CRASH_VERDICT_H
#define ECFS_TESTS_CRASH_VERDICT_H

#include "script.h"

#include <stdbool.h>
#include <sys/types.h>

#define MAX_OPS 256

/* How far a script came: in memory that it shares with who judges. */
typedef struct Progress {
    unsigned n_begun;
    unsigned n_done;
    int codes[MAX_OPS];       /* of those that are done */
    uint64_t hashes[MAX_OPS]; /* of what was read */
    unsigned n_blots;         /* endpoints that lost of the journal when it was checked */
    char verdict[1024];       /* what is wrong; empty: nothing */
} Progress;

typedef struct Case {
    const char *base;
    const Script *script;
    unsigned n_before;     /* operations that were done before, and stored */
    bool power;            /* not only the process: bytes that were not flushed may be gone */
    bool may_lack_stripes; /* what fills them up may have been replaced before the crash */
    bool healed;           /* all that was damaged is repaired */
    bool may_not_read;     /* more endpoints than the code tolerates were in trouble */
} Case;

/** Opens the archive, judges, and leaves it closed; the verdict goes to @progress. In a process of its own. */
void verdict_find (const Case *self, Progress *progress);

/** The same where the archive was recovered elsewhere, in whose place it has come. */
void verdict_find_recovered (const Case *self, Progress *progress);

/** Whether two trees (path → Found) are the same; else @progress gets a verdict. */
bool verdict_same (GHashTable *before, GHashTable *after, const char *when, Progress *progress);

#endif
