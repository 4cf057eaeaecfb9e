#include "catalog/numbers.h"

#define RANGE 256 /* numbers that are taken at once */

static bool is_valid (const EcfsCatalog *self)
{
    return self->ranges.connection == self->db->ops->n_connections (self->db);
}

bool ecfs_numbers_are_low (const EcfsCatalog *self)
{
    const Ranges *ranges = &self->ranges;
    return !is_valid (self) || ranges->end_ino - ranges->next_ino < ECFS_NUMBERS_LEAST ||
           ranges->end_position - ranges->next_position < ECFS_NUMBERS_LEAST ||
           ranges->end_staging - ranges->next_staging < ECFS_NUMBERS_LEAST;
}

bool ecfs_numbers_take (EcfsCatalog *self, GError **error)
{
    if (!self->is_member || self->is_restored || !ecfs_numbers_are_low (self) ||
        self->counters.next_ino <= ECFS_ROOT_INO + 1) /* which tells that there was never a name */
        return true;
    self->filled = (Ranges){.connection = self->db->ops->n_connections (self->db),
                            .next_ino = self->counters.next_ino,
                            .next_position = self->counters.next_position};
    self->filled.end_ino = self->counters.next_ino += RANGE;
    self->filled.end_position = self->counters.next_position += RANGE;
    static const char table[] = ECFS_IDS_STAGING;
    const Value values[] = {{.type = VALUE_TEXT, .number = sizeof table - 1, .bytes = table}, INT (RANGE)};
    return self->db->ops->run (self->db, STMT_IDS_TAKE, values, G_N_ELEMENTS (values), error);
}

void ecfs_numbers_taken (EcfsCatalog *self, bool is_answered)
{
    if (self->filled.end_ino != 0 && is_answered) {
        self->filled.end_staging = (uint64_t) self->db->ops->inserted (self->db) + 1;
        self->filled.next_staging = self->filled.end_staging - RANGE;
        self->ranges = self->filled;
    }
    self->filled.end_ino = 0;
}

bool ecfs_numbers_have_staging (const EcfsCatalog *self)
{
    return self->is_member && is_valid (self) && self->ranges.next_staging < self->ranges.end_staging;
}

int64_t ecfs_numbers_staging (EcfsCatalog *self)
{
    return ecfs_numbers_have_staging (self) ? (int64_t) self->ranges.next_staging++ : 0;
}
