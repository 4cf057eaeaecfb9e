/* What all have in common that let an archive crash again and again from one state. */
#ifndef ECFS_TESTS_CRASH_TREES_H
#define ECFS_TESTS_CRASH_TREES_H

/** Files and directories with times; @to must be absent or hold nothing of the same name. */
void copy_tree (const char *from, const char *to);

/** The archive in BASE/archive and its endpoints, as CrashPlan takes them; g_free (). */
char *watched_roots (const char *base);

/** What is done once by the parent, instead of in every child that works with @code. */
void warm_up (const char *code);

/** As many open files as this user may have. */
void allow_many_files (void);

#endif
