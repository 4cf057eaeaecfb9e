/*
 * What scripts do with an archive as a whole, as the verbs of ecfs do it, and what happens to it from outside:
 * endpoints that are emptied, replaced, paused or damaged, the archive directory lost or replaced by an old copy of
 * itself.
 *
 * What moves directories is no step of the archive (steps.h), so a crash finds them before or after. What was under way
 * is then ended by verbs_settle (), as a user would:
 *
 *   BASE/archive.lost    the archive directory was lost; until BASE/archive is recovered, which is begun anew
 *   BASE/archive.newer   BASE/archive is an old copy of it, which was put in its place
 *   BASE/backup          such a copy
 *
 * So is what gives the archive a key or another one: nothing can be stored before.
 */
#ifndef ECFS_TESTS_CRASH_VERBS_H
#define ECFS_TESTS_CRASH_VERBS_H

#include "actor.h"

/** 0 or an errno: an operation that is about more than one file. */
int verbs_do (Actor *self, const Op *op);

/** What a crash left of directories that were being moved; in a process of its own. NULL, or why not; g_free (). */
char *verbs_settle (const char *base);

/**
 * The archive directory is lost, and made anew from all endpoints of its configuration but @n_away, chosen by @seed.
 * NULL: all was found; else what went wrong, g_free ().
 */
char *verbs_recover (const char *base, unsigned n_away, unsigned seed);

/** The same of an archive that is in the middle of something: whatever was not stored may be missing. */
char *verbs_lose (const char *base, unsigned n_away, unsigned seed);

/** Checks all with @flags of EcfsFsckFlags, while it is not open. NULL: no damage is left; else what it tells, or why
 * it could not; g_free (). */
char *verbs_check (const char *base, unsigned flags);

/** Most files of journal and snapshots at an endpoint are removed, cut off or changed, all alike, by @seed; near ones
 * do the same. */
void verbs_blot (const char *base, unsigned endpoint, unsigned seed);

/** Calls @each with the path of every file at BASE's endpoints, hidden ones too. */
void verbs_stored (const char *base, void (*each) (void *user, const char *path), void *user);

#endif
