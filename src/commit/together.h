/*
 * Small files that are stored together: what is committed within a moment becomes one pack, made of the staged contents
 * themselves. For archives whose endpoints keep no logs, where nobody waits for each file (commit = async).
 *
 * The first attempt of a batch waits for others, stores the pack and publishes all of them; the others leave their
 * threads to those that come next.
 */
#ifndef ECFS_COMMIT_TOGETHER_H
#define ECFS_COMMIT_TOGETHER_H

#include "commit/commit_priv.h"

typedef struct EcfsTogether EcfsTogether;

EcfsTogether *ecfs_together_new (void);
/** When the commit threads have ended. NULL is accepted. */
void ecfs_together_free (EcfsTogether *self);

/**
 * Stores and publishes an attempt's content, all of which is data, with others that come meanwhile, or has it stored
 * for itself where none does or that fails. The attempt is taken, and ends. Blocks on a commit thread.
 */
void ecfs_together_take (EcfsTogether *self, EcfsCommitAttempt *attempt);

#endif
