/*
 * How long the other side is usually silent while it owes something, and what follows for a silence that lasts.
 *
 * A sample is the longest silence of a busy moment (until nothing is owed any more, at most MOMENT_US): of every byte
 * that arrives would say what a stream does, and nothing about first bytes.
 */
#include "endpoint/core/estimate.h"

#define MOMENT_US        (100 * 1000)
#define N_OUTLIERS       3 /* of ECFS_N_SILENCES: the rest, some 19 of 20, are usual */
#define N_EXPERIENCE     4 /* fewer samples say little */
#define SUSPECT_TIMES    3
#define SUSPECT_MIN_US   (40 * 1000)
#define SUSPECT_FRESH_US (200 * 1000) /* without experience */
#define GONE_TIMES       20
#define GONE_MIN_SYNC_US (5 * G_USEC_PER_SEC) /* a disk may have much to write */

/* Puts @us where it belongs among the longest, which are in falling order; the last of them falls out. */
static void rank (int64_t longest[N_OUTLIERS + 1], int64_t us)
{
    for (unsigned i = 0; i <= N_OUTLIERS; i++) {
        int64_t other = longest[i];
        longest[i] = MAX (us, other);
        us = MIN (us, other);
    }
}

void ecfs_silences_note (Silences *self, int64_t silence_us)
{
    int64_t longest[N_OUTLIERS + 1] = {0};
    self->us[self->n_noted++ % ECFS_N_SILENCES] = silence_us;
    unsigned n = MIN (self->n_noted, ECFS_N_SILENCES);
    for (unsigned i = 0; i < n; i++)
        rank (longest, self->us[i]);
    self->longest_us = longest[0];
    self->usual_us = longest[n > 1 ? MAX (1, n * N_OUTLIERS / ECFS_N_SILENCES) : 0];
}

int64_t ecfs_silences_suspect_us (const Silences *self)
{
    int64_t least_us = self->n_noted < N_EXPERIENCE ? SUSPECT_FRESH_US : SUSPECT_MIN_US;
    return MAX (least_us, SUSPECT_TIMES * self->usual_us);
}

void ecfs_silences_gave_up (Silences *self, int64_t silence_us)
{
    self->patience_us = 2 * silence_us;
    self->n_patient = self->n_noted + ECFS_N_SILENCES;
}

int64_t ecfs_silences_gone_us (const Silences *self, EcfsOwes owes, int64_t stall_timeout_us)
{
    /* Who asks for more than the default knows of pauses that the last answers cannot tell of. */
    if (self->n_noted < N_EXPERIENCE || stall_timeout_us > ECFS_STALL_TIMEOUT_US)
        return stall_timeout_us;
    int64_t least_us = owes == ECFS_OWES_SYNC ? GONE_MIN_SYNC_US : ECFS_GONE_MIN_US;
    if (self->n_noted < self->n_patient)
        least_us = MAX (least_us, self->patience_us);
    return MIN (stall_timeout_us, MAX (least_us, GONE_TIMES * self->longest_us));
}

/* The stall clock of a slot */

/* The silence until now is over. Slot's thread. */
static void end_silence (StallClock *self, int64_t since_us, int64_t now_us)
{
    EcfsOwes owed = (EcfsOwes) atomic_load (&self->owes);
    self->longest_us[owed] = MAX (self->longest_us[owed], MAX (now_us - since_us, 1)); /* 0: there was none */
}

void ecfs_clock_restart (StallClock *self, int64_t now_us)
{
    int64_t since_us = atomic_load (&self->since_us);
    if (since_us == 0)
        return;
    end_silence (self, since_us, now_us);
    self->moved = 0;
    atomic_store (&self->since_us, now_us);
}

void ecfs_clock_moved (StallClock *self, uint64_t bytes, int64_t now_us)
{
    self->moved += bytes;
    if (self->moved >= ECFS_PROGRESS_BYTES)
        ecfs_clock_restart (self, now_us);
}

bool ecfs_clock_set (StallClock *self, EcfsOwes owes, int64_t now_us)
{
    int64_t since_us = atomic_load (&self->since_us);
    if (since_us != 0)
        end_silence (self, since_us, now_us);
    else
        self->moment_us = now_us;
    self->moved = 0;
    atomic_store (&self->owes, (int) owes);
    atomic_store (&self->since_us, owes == ECFS_OWES_NOTHING ? 0 : now_us);
    return since_us != 0 && (owes == ECFS_OWES_NOTHING || now_us - self->moment_us >= MOMENT_US);
}

void ecfs_clock_note (StallClock *self, Silences *silences, int64_t now_us)
{
    for (unsigned i = ECFS_OWES_ANSWER; i < ECFS_N_OWES; i++) {
        if (self->longest_us[i] > 0)
            ecfs_silences_note (&silences[i], self->longest_us[i]);
        self->longest_us[i] = 0;
    }
    self->moment_us = now_us;
}

void ecfs_clock_stop (StallClock *self)
{
    atomic_store (&self->since_us, 0);
    memset (self->longest_us, 0, sizeof self->longest_us);
}

int64_t ecfs_clock_silent_us (const StallClock *self, int64_t now_us, EcfsOwes *ret_owes)
{
    int64_t since_us = atomic_load (&self->since_us);
    *ret_owes = (EcfsOwes) atomic_load (&self->owes);
    return since_us == 0 ? 0 : MAX (now_us - since_us, 0);
}

void ecfs_clock_excuse (StallClock *self, int64_t now_us)
{
    long long since_us = atomic_load (&self->since_us);
    if (since_us != 0) /* where it moved meanwhile there is nothing to excuse */
        (void) atomic_compare_exchange_strong (&self->since_us, &since_us, now_us);
}
