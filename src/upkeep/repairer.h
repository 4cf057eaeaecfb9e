/*
 * Repairs behind a mount: what reading found damaged (the catalog's queue), and objects that lack stripes which no
 * staged file gives them. The most endangered objects come first: those that may lose the fewest endpoints.
 *
 * Foreground transfers have precedence, by this policy:
 *
 *   when                                       objects at a time   bytes per second, read and written
 *   nobody has read for 1 s or stores anything   4                 repair_rate
 *   otherwise                                  1                   1 MiB, or repair_rate where that is less
 *
 * So repairs never starve, and never take more than that trickle from who works. An object that no further loss would
 * leave readable does not wait for anybody: it goes at repair_rate in both cases. All repairs together take a quarter
 * of transfer_memory at most, but one segment is always possible. Between segments a repair that is held keeps what it
 * has stored, and its uploads wait.
 *
 * What fails is tried again after 5 s, then after twice as long each time, up to 5 min, but not before 20 times as long
 * as the try took, and gives way to others from then on; and at once when an endpoint comes back. Before that,
 * endpoints are asked for what they had lost: a stripe that is there again needs no repair. What readers meet while
 * repairs are under way takes its place among those that wait. What an endpoint must do has its deadlines and breakers:
 * repairs are ordinary readers and writers.
 *
 * What was rebuilt counts as repaired when the journal at the endpoints names it, which is not waited for.
 *
 * Where the archive is open for reading only nothing is repaired: what readers meet is handed over to who may write,
 * within a minute or at the end; and where nobody here may, told once.
 *
 * Life cycle: start () after staging → stop (), which cancels what is under way. A crash leaves intents, whose stripes
 * the next mount deletes, and the queue as it was.
 */
#ifndef ECFS_UPKEEP_REPAIRER_H
#define ECFS_UPKEEP_REPAIRER_H

#include "archive/archive.h"

typedef struct EcfsRepairer EcfsRepairer;

/* What it did since it was started. */
typedef struct EcfsRepairerFacts {
    uint64_t n_repaired; /* objects, and … */
    uint64_t n_rebuilt;  /* … stripes, which the journal at the endpoints names */
    uint64_t n_unstored; /* stripes that it does not name yet: without this machine they would be missed */
    uint64_t read_bytes;
    uint64_t written_bytes;
    uint64_t n_failing; /* objects that wait to be tried again */
    char *failure;      /* why the last of these failed; NULL: none did; owned */
} EcfsRepairerFacts;

EcfsRepairer *ecfs_repairer_start (EcfsArchive *archive);
/** NULL is accepted. */
void ecfs_repairer_stop (EcfsRepairer *self);

/** What is noted or queued is looked at soon. Any thread. */
void ecfs_repairer_hurry (EcfsRepairer *self);
/** Waits until what readers met up to now is in the queue, as far as it is proven; at once where they met nothing.
 * False: it is not at @deadline_us (ecfs_now_us ()), or could not be queued. Any thread, before stop (). */
bool ecfs_repairer_await_queued (EcfsRepairer *self, int64_t deadline_us);

/** To be cleared; thread-safe. */
void ecfs_repairer_facts (EcfsRepairer *self, EcfsRepairerFacts *ret_facts);
void ecfs_repairer_facts_clear (EcfsRepairerFacts *facts);

#endif
