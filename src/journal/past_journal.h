/*
 * What tells the past has to be at every endpoint, as what tells the present has: segments and snapshots from before
 * the newest one, as long as history or a mark wants them. An endpoint that was emptied, replaced, or away for long
 * lacks some. Others give them back; the catalog has these records no more.
 *
 * A file is copied as it is. With a key it has to be authentic, and no endpoint may have others of these records; where
 * that is not so, or without a key, as many endpoints have to say the same as have to have a snapshot: nobody's lie is
 * multiplied.
 */
#ifndef ECFS_JOURNAL_PAST_JOURNAL_H
#define ECFS_JOURNAL_PAST_JOURNAL_H

#include "archive/common.h"

typedef struct EcfsPastJournal EcfsPastJournal;

/** Lists what endpoints that answer have of it; nothing where nobody wants the past. Blocks. */
EcfsPastJournal *ecfs_past_journal_look (EcfsArchive *archive, GError **error);
void ecfs_past_journal_free (EcfsPastJournal *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsPastJournal, ecfs_past_journal_free)

/** How many files others would give to the endpoint at @position. */
unsigned ecfs_past_journal_lacks (EcfsPastJournal *self, size_t position);

/** Gives all endpoints what they lack, until @deadline_us (ecfs_now_us ()): the rest is for another time. What cannot
 * be had or stored, or is not to be believed, is warned of. ECANCELED: *@stop became true; NULL: it is never given up.
 * By who has the archive open for writing, with the snapshots' lock; blocks. */
bool ecfs_past_journal_give (EcfsPastJournal *self, const atomic_bool *stop, int64_t deadline_us, GError **error);

/** *ret_n: how many segments of the endpoint at @position no endpoint has that stays. False: that is not known, as it
 * could not be listed, and the others lack records of the past. */
bool ecfs_past_journal_left (EcfsPastJournal *self, size_t position, unsigned *ret_n);

#endif
