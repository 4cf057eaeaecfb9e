#include "catalog/optimistic.h"

#include "catalog/age.h"
#include "catalog/content_priv.h"

#define RANGE      256 /* numbers that are taken at once */
#define LEAST      16  /* with fewer left the next are taken; no operation needs as many */
#define TURNS      16  /* that are waited for after others were in the way */
#define N_COUNTERS ECFS_N_COUNTERS

static bool is_valid (const EcfsCatalog *self)
{
    return self->ranges.connection == self->db->ops->n_connections (self->db);
}

static bool is_low (const EcfsCatalog *self)
{
    const Ranges *ranges = &self->ranges;
    return !is_valid (self) || ranges->end_ino - ranges->next_ino < LEAST ||
           ranges->end_position - ranges->next_position < LEAST || ranges->end_staging - ranges->next_staging < LEAST;
}

bool ecfs_optimistic_is_possible (const EcfsCatalog *self)
{
    return self->is_member && self->n_turns == 0 && !self->inherits && !self->is_restored && !is_low (self) &&
           !ecfs_age_is_due (self);
}

bool ecfs_optimistic_begin (EcfsCatalog *self, GError **error)
{
    if (!self->db->ops->control (self->db, STMT_BEGIN_OPTIMISTIC, "BEGIN", error))
        return false;
    self->counters.next_ino = self->ranges.next_ino;
    self->counters.next_position = self->ranges.next_position;
    self->guessed = self->counters;
    self->is_optimistic = true;
    self->is_settled = false;
    return true;
}

bool ecfs_optimistic_is_unsent (const EcfsCatalog *self)
{
    return self->in_txn && self->is_optimistic && self->db->ops->is_optimistic (self->db);
}

bool ecfs_optimistic_is_full (const EcfsCatalog *self)
{
    return self->is_optimistic && (is_low (self) || self->ranges.end_ino - self->counters.next_ino < LEAST ||
                                   self->ranges.end_position - self->counters.next_position < LEAST);
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
    if (is_answered)
        self->counters.sequence = (uint64_t) ecfs_inserted (self);
    else
        self->n_turns = 1; /* which says it */
    self->is_optimistic = false;
}

bool ecfs_ranges_fill (EcfsCatalog *self, GError **error)
{
    if (!self->is_member || self->is_restored || !is_low (self) ||
        self->counters.next_ino <= ECFS_ROOT_INO + 1) /* which tells that there was never a name */
        return true;
    self->filled = (Ranges){.connection = self->db->ops->n_connections (self->db),
                            .next_ino = self->counters.next_ino,
                            .next_position = self->counters.next_position};
    self->filled.end_ino = self->counters.next_ino += RANGE;
    self->filled.end_position = self->counters.next_position += RANGE;
    const Value values[] = {TEXT (ECFS_IDS_STAGING), INT (RANGE)};
    return self->db->ops->run (self->db, STMT_IDS_TAKE, values, G_N_ELEMENTS (values), error);
}

void ecfs_ranges_filled (EcfsCatalog *self, bool is_answered)
{
    if (self->filled.end_ino != 0 && is_answered) {
        self->filled.end_staging = (uint64_t) ecfs_inserted (self) + 1;
        self->filled.next_staging = self->filled.end_staging - RANGE;
        self->ranges = self->filled;
    }
    self->filled.end_ino = 0;
}

void ecfs_optimistic_failed (EcfsCatalog *self)
{
    self->n_turns = TURNS;
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
    for (int i = ECFS_COUNTER_SEQUENCE; i < N_COUNTERS; i++)
        *ecfs_counter (&self->settled, i) = *ecfs_counter (&now, i) - *ecfs_counter (&self->guessed, i);
    self->settled.next_ino = self->settled.next_position = 0;
    return true;
}

bool ecfs_sequence_next (EcfsCatalog *self, uint64_t *ret_sequence, GError **error)
{
    if (!ecfs_optimistic_settle (self, error))
        return false;
    *ret_sequence = self->counters.sequence + (self->in_txn && self->is_optimistic ? self->settled.sequence : 0) + 1;
    return true;
}

bool ecfs_ranges_has_staging (const EcfsCatalog *self)
{
    return self->is_member && is_valid (self) && self->ranges.next_staging < self->ranges.end_staging;
}

int64_t ecfs_ranges_staging (EcfsCatalog *self)
{
    return ecfs_ranges_has_staging (self) ? (int64_t) self->ranges.next_staging++ : 0;
}
