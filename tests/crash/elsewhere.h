/*
 * Another machine, which recovers the archive from its endpoints beside the actor that goes on with it, in processes of
 * their own. A script says where a recovery stops, what goes on meanwhile, and what becomes of it:
 *
 *   BASE/other-1, …          what recoveries make, or leave
 *   BASE/other-flaws-0, …    what goes wrong for them at endpoint 0, … (see flaws.h), and for nobody else
 *
 * Life cycle: set_up () in whoever forks all others; for each round begin () → do () by the actor → end ().
 */
#ifndef ECFS_TESTS_CRASH_ELSEWHERE_H
#define ECFS_TESTS_CRASH_ELSEWHERE_H

#include "script.h"

#include <stdbool.h>

/* What became of the recoveries of a round. */
typedef struct ElsewhereSums {
    unsigned n_begun, n_recovered, n_failed, n_killed;
    unsigned last;   /* the number of the last that succeeded; 0: none did */
    bool has_marked; /* since then one has begun to write markers, and may have made it an old copy, or not */
} ElsewhereSums;

void elsewhere_set_up (void);
/** How fast claims live and die, for all processes of a round. @looks: markers are also read as often while nobody
 * waits for anything. */
void elsewhere_hurry (bool looks);
/** @base and @roots (as CrashPlan has them) are borrowed until end. */
void elsewhere_begin (const char *base, const char *roots);
/** 0 or an errno. */
int elsewhere_do (const char *base, const Op *op);
/** A recovery that is under way goes on to its end, or is killed. */
void elsewhere_end (bool go_on, ElsewhereSums *ret_sums);

/**
 * Puts the archive that there is now into BASE/archive, after it was made to: the last that was recovered, or, where
 * one was killed when that one was an old copy already, one that is recovered now. NULL, or what is wrong; g_free ().
 * In a process of its own. *ret_moved: it is another than before.
 */
char *elsewhere_settle (const char *base, const ElsewhereSums *sums, bool *ret_moved);

#endif
