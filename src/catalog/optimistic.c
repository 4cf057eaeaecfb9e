#include "catalog/optimistic.h"

#include "catalog/age.h"
#include "catalog/numbers.h"

#define SOMETHING  (UINT64_C (1) << 61) /* of which as much can be taken as added */
#define N_COUNTERS ECFS_N_COUNTERS

bool ecfs_optimistic_is_possible (const EcfsCatalog *self)
{
    return self->is_member && self->n_turns == 0 && !self->inherits && !self->is_restored &&
           !ecfs_numbers_are_low (self) && !ecfs_age_is_due (self);
}

bool ecfs_optimistic_begin (EcfsCatalog *self, GError **error)
{
    if (!self->db->ops->control (self->db, STMT_BEGIN_OPTIMISTIC, "BEGIN", error))
        return false;
    self->counters.next_ino = self->ranges.next_ino;
    self->counters.next_position = self->ranges.next_position;
    for (int i = ECFS_COUNTER_SEQUENCE + 1; i < N_COUNTERS; i++)
        *ecfs_counter (&self->counters, i) = SOMETHING;
    self->guessed = self->counters;
    self->is_optimistic = true;
    self->is_settled = self->has_read = false;
    return true;
}

bool ecfs_optimistic_is_unsent (const EcfsCatalog *self)
{
    return self->in_txn && self->is_optimistic && self->db->ops->is_optimistic (self->db);
}

bool ecfs_optimistic_is_full (const EcfsCatalog *self)
{
    return self->is_optimistic &&
           (ecfs_numbers_are_low (self) || self->ranges.end_ino - self->counters.next_ino < ECFS_NUMBERS_LEAST ||
            self->ranges.end_position - self->counters.next_position < ECFS_NUMBERS_LEAST);
}

/* Differences: what is less is as good as more. */
bool ecfs_optimistic_end (EcfsCatalog *self, GError **error)
{
    Value values[N_COUNTERS];
    for (int i = 0; i < N_COUNTERS; i++)
        values[i] = INT (*ecfs_counter (&self->counters, i) - *ecfs_counter (&self->guessed, i));
    return self->db->ops->run (self->db, STMT_COUNTERS_ADD, values + ECFS_COUNTER_SEQUENCE,
                               N_COUNTERS - ECFS_COUNTER_SEQUENCE, error);
}

void ecfs_optimistic_ended (EcfsCatalog *self, bool is_answered)
{
    self->ranges.next_ino = self->counters.next_ino;
    self->ranges.next_position = self->counters.next_position;
    self->counters.sequence = is_answered ? (uint64_t) ecfs_inserted (self) : self->guessed.sequence;
    self->is_optimistic = false;
}

bool ecfs_optimistic_append (EcfsCatalog *self, int64_t now_ns, GError **error)
{
    static const uint8_t none[ECFS_JOURNAL_SUM_BYTES];
    ecfs_journal_put_sum (self->record, ECFS_JOURNAL_PREVIOUS, none); /* the server has it, and puts it there */
    return EXEC (self, JOURNAL_ADD, error, INT (self->counters.sequence - self->guessed.sequence), INT (now_ns),
                 BLOB (self->record->data, self->record->len - ECFS_JOURNAL_SUM_BYTES),
                 BLOB (none, ECFS_JOURNAL_SUM_BYTES));
}

bool ecfs_optimistic_settle (EcfsCatalog *self, GError **error)
{
    Counters now;
    if (!self->in_txn || !self->is_optimistic || self->is_settled)
        return true;
    const DbOps *ops = self->db->ops;
    if (!ops->await (self->db, error) || !ecfs_counters_load (self, &now, error))
        return false;
    self->is_settled = true;
    self->base_sequence = now.sequence;
    for (int i = 0; i < N_COUNTERS; i++)
        *ecfs_counter (&self->settled, i) = *ecfs_counter (&now, i) - *ecfs_counter (&self->guessed, i);
    return true;
}

bool ecfs_sequence_next (EcfsCatalog *self, uint64_t *ret_sequence, GError **error)
{
    if (!ecfs_optimistic_settle (self, error))
        return false;
    *ret_sequence = self->counters.sequence + (self->in_txn && self->is_optimistic ? self->settled.sequence : 0) + 1;
    return true;
}
