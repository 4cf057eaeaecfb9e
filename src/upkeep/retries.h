/* When an object may be repaired again. */
#ifndef ECFS_UPKEEP_RETRIES_H
#define ECFS_UPKEEP_RETRIES_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/** Of one thread. Two things wait: what could not be repaired, and what was repaired again and again, as where an
 * endpoint throws away what it says it has stored. Objects are rows of the catalog; times are ecfs_now_us (). */
typedef struct EcfsRetries EcfsRetries;

EcfsRetries *ecfs_retries_new (void);
void ecfs_retries_free (EcfsRetries *self);
bool ecfs_retries_is_due (const EcfsRetries *self, int64_t object, int64_t now_us);
/** Whether it could not be repaired when it was tried last. */
bool ecfs_retries_has_failed (const EcfsRetries *self, int64_t object);
unsigned ecfs_retries_n_failing (const EcfsRetries *self);
/** How often by now, in a row. */
unsigned ecfs_retries_failed (EcfsRetries *self, int64_t object, int64_t began_us, int64_t now_us);
/** Stripes were rebuilt. How often by now, each soon after the last. */
unsigned ecfs_retries_rebuilt (EcfsRetries *self, int64_t object, int64_t now_us);
/** It did not fail, or is gone. */
void ecfs_retries_remove (EcfsRetries *self, int64_t object);
/** All that failed may be tried at once. */
void ecfs_retries_reset (EcfsRetries *self);
/** Forgets failures of which @is_over (object, unused, @user), and what was rebuilt long ago. */
void ecfs_retries_sweep (EcfsRetries *self, GHRFunc is_over, void *user, int64_t now_us);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsRetries, ecfs_retries_free)

#endif
