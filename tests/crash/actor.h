/* Does a script's operations on an archive as src/fs does them for a kernel, but without one. */
#ifndef ECFS_TESTS_CRASH_ACTOR_H
#define ECFS_TESTS_CRASH_ACTOR_H

#include "script.h"
#include "staged_fixture.h"

#define N_PLACES (N_ENDPOINTS + 2) /* directories that are endpoints, or may come to be some */

typedef struct Actor {
    Fixture fixture;
    GHashTable *handles; /* path when it was opened → EcfsStaged */
    GHashTable *answers; /* the same → Answer, of a flush that was begun */
    uint64_t hash;       /* of what was read last, as script_hash () has it */
    int64_t patience_us; /* with what is not stored when a mount ends */
    uint64_t backed_up;  /* changes that were made until the archive directory was copied; 0: it was not */
    bool may_be_fenced;  /* the archive is recovered elsewhere: it may come to be an old copy, which takes no changes */
} Actor;

/** The archive in BASE/archive, over BASE/e0 and so on: opened and recovered. */
void actor_open (Actor *self, const char *base);
/** The same where others recover it, elsewhere. */
void actor_open_beside (Actor *self, const char *base);
/** Drains and closes it. */
void actor_close (Actor *self);

/** Closes the archive, as the end of a mount does where nothing is open, and opens it again. */
void actor_suspend (Actor *self);
void actor_resume (Actor *self);

/** As ecfs wait: all up to now is stored in full, and known to the endpoints. 0 or an errno. */
int actor_wait (Actor *self);

/** 0 or an errno. */
int actor_do (Actor *self, const Op *op);

/** All that is there: path → Found. */
GHashTable *actor_tree (Actor *self);

/** Brings back the endpoints that a script has hidden; needs no open archive. */
void actor_show_endpoints (const char *base);

#endif
