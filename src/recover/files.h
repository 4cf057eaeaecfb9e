/* Journal files, as the parts of recover that read them share them. */
#ifndef ECFS_RECOVER_FILES_H
#define ECFS_RECOVER_FILES_H

#include "catalog/journal_file.h"
#include "recover/recover_priv.h"

/* A copy of a journal file. */
typedef struct EcfsRecoverCopy {
    size_t position; /* of the place that has it */
    uint64_t size;   /* there: one that was cut off says nothing about others */
    bool tried;      /* it was read, or could not be */
    char *digest;    /* SHA-256 of what it says, as text; NULL: it cannot be read, or is damaged */
    int64_t time_ns; /* of its header */
    GPtrArray *rows; /* until somebody has chosen */
} EcfsRecoverCopy;

/* A journal file, and who has it. */
typedef struct EcfsRecoverFound {
    char *name;
    EcfsJournalFile file;
    uint64_t end;   /* of a segment: its last record that counts, see ecfs_recover_end_epochs () */
    GArray *copies; /* of EcfsRecoverCopy */
    bool useless;   /* no copy of it can be read, or is believed */
    bool disputed;  /* some can be read, and they say different things */
} EcfsRecoverFound;

/* What an endpoint says where another has a record or a file. */
typedef enum EcfsRecoverSaid {
    ECFS_RECOVER_NOTHING,
    ECFS_RECOVER_SAME,
    ECFS_RECOVER_OTHER,
    ECFS_RECOVER_BROKEN, /* it cannot be read, and may have been the same */
} EcfsRecoverSaid;

void ecfs_recover_copy_clear (gpointer data);
void ecfs_recover_found_free (gpointer data);

/** Whether it counts what the endpoints have that say the same, of a file or of a segment from its first record on;
 * @said by place. */
bool ecfs_recover_is_enough (const EcfsRecovering *self, const EcfsJournalFile *file, const EcfsRecoverSaid *said);
/** Notes, and tells while they are few, that what an endpoint tells of is not believed. */
void ecfs_recover_doubt (EcfsRecovering *self, size_t position, const char *what);
/** The same of all that have a file, but for those with the digest @besides; NULL: of all. */
void ecfs_recover_doubt_all (EcfsRecovering *self, const EcfsRecoverFound *found, const char *besides);
/** Reads @n_wanted more copies, side by side. */
void ecfs_recover_read_copies (EcfsRecovering *self, EcfsRecoverFound *found, size_t n_wanted);
/** Whether copy @number is the file that its name says, sealed under a key of the archive, which has one. Tells where
 * it is not. */
bool ecfs_recover_is_authentic (EcfsRecovering *self, EcfsRecoverFound *found, guint number);
/** The copy of a file that is believed, with its rows, of @made_ns unless that is NULL. NULL: there is none. */
const EcfsRecoverCopy *ecfs_recover_choose_copy (EcfsRecovering *self, EcfsRecoverFound *found, const int64_t *made_ns);
/** They are read again when they are asked for. */
void ecfs_recover_forget_copies (EcfsRecoverFound *found);

/** Sets the ends of all segments: where a later epoch begins, what an older copy wrote from there on was in vain. */
void ecfs_recover_end_epochs (EcfsRecovering *self, const GPtrArray *segments);
/** Applies what segments tell behind where the catalog stands, of *epoch, which moves on. */
bool ecfs_recover_segments (EcfsRecovering *self, const GPtrArray *segments, uint32_t *epoch, GError **error);
/** Whether too few have a file, by its name, for it to count. */
bool ecfs_recover_is_rare (const EcfsRecovering *self, const EcfsRecoverFound *found);
/** The record of that number; NULL: it is not among them. @rows: in order; NULL: none. */
const EcfsJournalRow *ecfs_recover_row_at (const GPtrArray *rows, uint64_t sequence);
bool ecfs_recover_same_row (const EcfsJournalRow *a, const EcfsJournalRow *b);
EcfsJournalRow *ecfs_recover_row_copy (const EcfsJournalRow *row);

/* linked.c */

/**
 * Of segments of one epoch that have the record that is wanted next: those rows of one of them that continue what the
 * catalog is made of; NULL: none does. False: these segments are not linked, so they are to be weighed otherwise.
 */
bool ecfs_recover_choose_linked (EcfsRecovering *self, GPtrArray *candidates, GPtrArray **ret_rows);
/** Whether a copy of a snapshot is believed, by what contradicts it. False: that cannot be told, as it is not linked.
 */
bool ecfs_recover_snapshot_counts (const EcfsRecovering *self, const EcfsRecoverFound *found,
                                   const EcfsRecoverCopy *copy, bool *ret_counts);
/** Whether the records behind a snapshot that the catalog was made of are others' at as many endpoints as have it. */
bool ecfs_recover_is_refuted (EcfsRecovering *self, const GPtrArray *segments, const EcfsRecoverFound *snapshot);
/** Tells which endpoints show less of the journal than there is, or something false in its place. */
void ecfs_recover_tell_behind (EcfsRecovering *self, const GPtrArray *parts, const GPtrArray *segments);

/** Tells of segments that could not be used since others are missing before them. */
void ecfs_recover_tell_gap (EcfsRecovering *self, const GPtrArray *segments, uint32_t epoch);

#endif
