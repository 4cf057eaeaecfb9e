/*
 * What `ecfs prune` leaves at endpoints for whoever brings something back of the past at the same time. Each of them
 * writes first, and then reads: one stores its journal and looks for the note, the other leaves the note and reads the
 * journal before it removes anything. So one of them sees the other.
 */
#ifndef ECFS_VERBS_PRUNE_NOTE_H
#define ECFS_VERBS_PRUNE_NOTE_H

#include "archive/archive.h"

#define ECFS_PRUNE_NOTE      ECFS_SCRATCH_DIRECTORY "/prune"  /* is there while something is removed */
#define ECFS_PRUNE_DONE_NOTE ECFS_SCRATCH_DIRECTORY "/pruned" /* is replaced behind that */

typedef struct EcfsPruneNotes {
    char *text;       /* a line for each note, and for each endpoint that does not answer; owned */
    char *running_at; /* the name of an endpoint where something is removed now; owned; NULL */
} EcfsPruneNotes;

/** What endpoints have of it, as far as they answer. Blocks. */
void ecfs_prune_notes_look (EcfsPruneNotes *self, EcfsArchive *archive);
/** Whether something was removed, or is being removed, that was not when there was the text @before. */
bool ecfs_prune_notes_are_new (const EcfsPruneNotes *self, const char *before);
/** When somebody last ended to remove something, or began to, in seconds since 1970 by the endpoint's clock; 0: nobody
 * did. @text as above; NULL: nobody looked. */
int64_t ecfs_prune_notes_last (const char *text);
void ecfs_prune_notes_clear (EcfsPruneNotes *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (EcfsPruneNotes, ecfs_prune_notes_clear)

#endif
