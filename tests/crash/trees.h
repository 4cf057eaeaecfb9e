/* What all have in common that let an archive crash again and again from one state. */
#ifndef ECFS_TESTS_CRASH_TREES_H
#define ECFS_TESTS_CRASH_TREES_H

#include "actor.h"
#include "steps.h"
#include "verdict.h"

/** Files and directories with times, but for what tells an archive directory from a copy; @to must be absent or hold
 * nothing of the same name. */
void copy_tree (const char *from, const char *to);

/** The archive in BASE/archive and its endpoints, as CrashPlan takes them; g_free (). */
char *watched_roots (const char *base);

/** Does a script's operations, and tells @progress of each when it begins and what came of it. */
void do_script (Actor *actor, const Script *script, unsigned from, unsigned to, Progress *progress);

/** Forks: 0 in the child, which is to die where @plan says (@plan->at 0: nowhere) and to end with _exit (0). */
pid_t begin_child (const CrashPlan *plan);

/** How it ended, as waitpid () has it. */
int end_child (pid_t child);

/** What is done once by the parent, instead of in every child that works with @code. */
void warm_up (const char *code);

#endif
