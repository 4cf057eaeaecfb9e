/*
 * The archive as it was at a moment: the newest snapshot and the records up to it, and of later ones what says where
 * content has gone since, as repairs, other codes and packs have moved it.
 */
#include "recover/files.h"

#include <inttypes.h>

bool ecfs_recover_is_then (EcfsRecovering *self, int64_t time_ns, uint64_t sequence)
{
    if (self->what->at_ns == 0 ||
        (self->what->at_sequence > 0 ? sequence <= self->what->at_sequence : time_ns <= self->what->at_ns))
        return true;
    self->earliest_ns = self->earliest_ns == 0 ? time_ns : MIN (self->earliest_ns, time_ns);
    return false;
}

/* Clocks may have been set back: what follows something later is later. */
static guint count_then (EcfsRecovering *self, const GPtrArray *rows)
{
    guint n = 0;
    while (!self->is_past && n < rows->len) {
        const EcfsJournalRow *row = g_ptr_array_index (rows, n);
        self->is_past = !ecfs_recover_is_then (self, row->time_ns, row->sequence);
        if (self->is_past)
            break;
        self->then = row->sequence;
        self->then_ns = MAX (self->then_ns, row->time_ns);
        n++;
    }
    return n;
}

/* Borrowed rows; g_ptr_array_unref (). */
static GPtrArray *part_of (const GPtrArray *rows, guint from, guint to)
{
    GPtrArray *part = g_ptr_array_new ();
    for (guint i = from; i < to; i++)
        g_ptr_array_add (part, g_ptr_array_index (rows, i));
    return part;
}

/* One by one, as somebody looks at the catalog behind each. */
static bool apply_watched (EcfsRecovering *self, const GPtrArray *rows, GError **error)
{
    const EcfsRecoverWatch *watch = self->what->watch;
    for (guint i = 0; i < rows->len; i++) {
        const EcfsJournalRow *row = g_ptr_array_index (rows, i);
        g_autoptr (GPtrArray) one = part_of (rows, i, i + 1);
        self->then_ns = MAX (self->then_ns, row->time_ns);
        if (watch->record != NULL && !watch->record (watch->user, self->catalog, self->journal_epoch, row, error))
            return false;
        if (!ecfs_restore_records (self->restore, one, &self->sums->n_refused, error) ||
            !watch->applied (watch->user, self->catalog, self->then_ns, error))
            return false;
    }
    self->sums->n_records += rows->len;
    return true;
}

bool ecfs_recover_apply (EcfsRecovering *self, const GPtrArray *rows, GError **error)
{
    uint64_t n_unfit = 0;
    for (guint i = 0; self->applied != NULL && self->applied->len < ECFS_RECOVER_APPLIED_MOST && i < rows->len; i++)
        g_ptr_array_add (self->applied, ecfs_recover_row_copy (g_ptr_array_index (rows, i)));
    if (self->what->watch != NULL)
        return apply_watched (self, rows, error);
    const EcfsJournalRow *first = rows->len == 0 ? NULL : g_ptr_array_index (rows, 0);
    if (self->is_gapped && first != NULL && first->time_ns <= self->what->at_ns) {
        ecfs_recover_tell (self, "the journal has a gap before that moment: names are as of change %" PRIu64,
                           self->then);
        self->sums->is_older = true;
        self->is_gapped = false;
    }
    guint n_then = count_then (self, rows);
    g_autoptr (GPtrArray) then = part_of (rows, 0, n_then), later = part_of (rows, n_then, rows->len);
    self->sums->n_records += n_then;
    if (then->len > 0 && !ecfs_restore_records (self->restore, then, &self->sums->n_refused, error))
        return false;
    /* Of later records those are left out that are about what was not there yet. */
    return later->len == 0 || ecfs_restore_exchanges (self->restore, later, &n_unfit, error);
}

bool ecfs_recover_reached (EcfsRecovering *self, GError **error)
{
    if (self->what->at_ns == 0)
        return true;
    if (self->then > 0)
        return ecfs_restore_drop_unnamed (self->restore, error);
    g_autoptr (GDateTime) first = g_date_time_new_from_unix_local (self->earliest_ns / 1000000000);
    g_autofree char *text = first == NULL || self->earliest_ns == 0 ? NULL : g_date_time_format (first, "%F %T");
    return ecfs_fail (error, ENOENT, "nothing is kept of how the archive was then%s%s%s",
                      text == NULL ? "" : ": what is known of it begins at ", text == NULL ? "" : text,
                      text == NULL ? "" : " (see history in ecfs.conf)");
}
