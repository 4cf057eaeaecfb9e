/* What the parts of `ecfs prune` share: removing, from a machine with other logins, what nobody needs any more at
 * accounts that only grow. */
#ifndef ECFS_VERBS_PRUNE_PRIV_H
#define ECFS_VERBS_PRUNE_PRIV_H

#include "catalog/deaths.h"
#include "catalog/journal.h"
#include "catalog/journal_file.h"
#include "journal/superfluous.h"
#include "recover/follow.h"
#include "recover/recover.h"
#include "verbs/verbs.h"

#define ECFS_PRUNE_NS_PER_S INT64_C (1000000000)
#define ECFS_PRUNE_DAY_NS   (INT64_C (24) * 3600 * ECFS_PRUNE_NS_PER_S)

/* prune_times.c: when endpoints got what they have of the journal. Whoever has the keys writes any time into a record;
 * but not into a server's listing. */

typedef struct EcfsPruneFile {
    EcfsJournalFile file;
    size_t position; /* of the place that has it */
    uint64_t size;
    int64_t mtime_s; /* 0: not told */
    GArray *has;     /* the records that are in it; NULL: they are not looked at now */
} EcfsPruneFile;

typedef struct EcfsPruneTimes {
    GArray *files; /* of EcfsPruneFile */
    size_t n_copies;
    int64_t now_ns;
    /* The records of a segment, for g_ptr_array_unref (); NULL: it cannot be read, or is not what its name says. */
    GPtrArray *(*read) (void *user, const EcfsPruneFile *file);
    void *user;
    /* While records are asked for in their order. */
    GArray *open; /* of guint: files that may have the record */
    guint next;   /* file that was not looked at */
    uint32_t at_epoch;
    uint64_t at;
    /* The last answer by names, which is that of all records of the epoch up to until. */
    uint32_t epoch;
    uint64_t from, until;
    int64_t time_ns;
} EcfsPruneTimes;

/**
 * When so many endpoints had this record that one of them tells the truth. Where too few have it: when the last of
 * these had it, and so many a later one; where nobody does, now. Reads segments.
 */
int64_t ecfs_prune_record_time (EcfsPruneTimes *self, uint32_t epoch, const EcfsJournalRow *row);
/** The later of the time that endpoints tell and a record's own; but what they had long before it was made says that
 * its own is wrong, *ret_is_future. */
int64_t ecfs_prune_later_time (int64_t told_ns, int64_t own_ns, bool *ret_is_future);
/** When the last endpoint that tells of it had a snapshot. */
int64_t ecfs_prune_snapshot_time (EcfsPruneTimes *self, const EcfsJournalFile *snapshot);
void ecfs_prune_times_clear (EcfsPruneTimes *self);

/* prune_losses.c */

/* What was there, and what had died before, at some moment. */
typedef struct EcfsPruneSample {
    int64_t time_ns;
    int64_t told_ns; /* by the writer's clock, as --at goes by */
    uint64_t n_files, bytes;
    uint64_t lost_files, lost_bytes; /* since the beginning */
    uint64_t lost_names;             /* likewise: content goes a little later than the name */
} EcfsPruneSample;

/* More was lost within a day than usual. */
typedef struct EcfsPruneLoss {
    int64_t from_ns, to_ns; /* of the day on which it was most; from: before it, by the writer's clock */
    int64_t last_ns;        /* the last moment of all such days */
    uint64_t n_files, of_files;
    uint64_t bytes, of_bytes;
} EcfsPruneLoss;

/** Whether on any day more than @max_share % of files or bytes were lost, but for what was before @accepted_ns. */
bool ecfs_prune_find_loss (const GArray *samples, int64_t accepted_ns, unsigned max_share, EcfsPruneLoss *ret_loss);

/* prune_past.c */

/* The past, as all that is kept of the journal tells it, one record after the other. */
typedef struct EcfsPrunePast {
    EcfsPruneTimes *times;
    int64_t then_ns;      /* what died before has been dead for long enough */
    int64_t accepted_ns;  /* what was lost up to then was meant to be; 0 */
    char *directory;      /* for ecfs_past_close () */
    EcfsArchive *archive; /* what the journal makes of it all */
    EcfsRecovered sums;
    bool is_then_over; /* while it is read: then is past */
    int64_t death;     /* the last one before then */
    uint32_t epoch;    /* of the last record before then, … */
    uint64_t sequence; /* … and its number */
    uint64_t begin;    /* behind this record nothing is missing */
    GArray *samples;   /* of EcfsPruneSample */
    GArray *kept;      /* EcfsUuid of objects that records from then on mention, sorted, … */
    GArray *known;     /* … and of those that were once, and that the catalog may have forgotten */
    const EcfsSnapshotRow
        *base; /* what the catalog is behind its last record is kept at base_path; NULL: none is wanted */
    const char *base_path;
    bool has_base;      /* it was, … */
    bool is_cut;        /* … and records are missing since */
    int64_t base_death; /* the last one until then */
    uint64_t n_future;  /* records whose own times do not count, … */
    uint64_t future;    /* … and the number of the last */
    /* While it is read. */
    uint32_t at_epoch; /* the last record, or snapshot, that was read */
    uint64_t at_sequence;
    int64_t time_ns, last_death;
    uint64_t lost_names;
    uint64_t last_lost;
    bool is_restarted;
    GArray *before; /* of Lived: what there was when records were missing */
    uint64_t before_files;
} EcfsPrunePast;

/** @self has times and then. Reads it, and opens the archive. */
bool ecfs_prune_past_read (EcfsPrunePast *self, const char *archive_dir, GError **error);
bool ecfs_prune_past_keeps (const EcfsPrunePast *self, const EcfsUuid *object);
/** Whether it once was one, or never became one, of which the catalog may know nothing any more. */
bool ecfs_prune_past_knew (const EcfsPrunePast *self, const EcfsUuid *object);
/** What records (EcfsJournalRow) mention that were made just now is kept as well. */
bool ecfs_prune_past_heed (EcfsPrunePast *self, const GPtrArray *rows, GError **error);
void ecfs_prune_past_clear (EcfsPrunePast *self);

/* prune_place.c */

/* A stripe that is to go. */
typedef struct EcfsPruneDead {
    EcfsUuid object;
    uint16_t index;
    uint64_t instance;
    uint64_t size;
    int64_t mtime_s;
    bool is_strange; /* it is not what its name says, or nobody shows that it is */
} EcfsPruneDead;

typedef struct EcfsPruneSum {
    uint64_t n, bytes;
} EcfsPruneSum;

/* Files that are no stripes. */
typedef enum EcfsPruneKind {
    ECFS_PRUNE_JOURNAL,
    ECFS_PRUNE_SNAPSHOTS,
    ECFS_PRUNE_MARKERS,
    ECFS_PRUNE_N_KINDS,
} EcfsPruneKind;

/* One that is to go. */
typedef struct EcfsPruneOld {
    EcfsPruneKind kind;
    char *name; /* owned */
    uint64_t size;
    int64_t mtime_s;
} EcfsPruneOld;

typedef struct EcfsPrunePlace {
    const char *name; /* borrowed of the configuration */
    EcfsUuid uuid;
    EcfsEndpoint *endpoint;
    int64_t now_s; /* by its own clock */
    GArray *dead;  /* of EcfsPruneDead; NULL: it was not looked at */
    GArray *left;  /* likewise: what is dead and stays */
    GArray *old;   /* of EcfsPruneOld, in the order in which they go */
    EcfsPruneSum found, strange, unknown, removed;
    EcfsPruneSum old_found[ECFS_PRUNE_N_KINDS], old_removed[ECFS_PRUNE_N_KINDS];
    EcfsPruneSum unreadable;    /* old files, as which they stay */
    int64_t oldest_s, newest_s; /* of what was found */
    bool has_note;              /* it may have one of this run */
    GError *error;              /* why nothing more is done there */
} EcfsPrunePlace;

/* What of the journal goes. */
typedef struct EcfsPruneJournal {
    GArray *snapshots; /* as ecfs_journal_is_superfluous () takes them; NULL: it stays */
    char *made, *seen; /* catalogs, of the last of these, and of the records up to it */
    char *stays;       /* why it does; NULL: it goes */
} EcfsPruneJournal;

typedef struct EcfsPruning {
    const EcfsPrune *what;
    EcfsArchive *archive; /* followed */
    EcfsFollow *follow;
    EcfsPrunePlace *places;
    size_t n_places;
    EcfsPruneTimes times;
    EcfsPrunePast past;
    EcfsPruneJournal journal;
    int64_t keep_us;
    uint64_t begin_sequence; /* of what was followed, before the past was read */
    bool has_marks;
    bool is_lost; /* what the archive is now could not be found out */
} EcfsPruning;

/** Opens it, as one where something may be removed. */
bool ecfs_prune_place_open (EcfsPrunePlace *self, const EcfsPruning *pruning, const EcfsArchiveEndpoint *endpoint,
                            GError **error);
/** The records of a file of the journal that an endpoint has, and its header; NULL: it cannot be read, or is not what
 * its name says. Thread-safe. */
GPtrArray *ecfs_prune_place_load (const EcfsPruning *pruning, const EcfsPruneFile *file, EcfsJournalFile *ret_read);
/** The same, as EcfsPruneTimes reads them (of EcfsPruning). */
GPtrArray *ecfs_prune_place_read_journal (void *pruning, const EcfsPruneFile *file);
/** Lists what it has of the journal. */
bool ecfs_prune_place_list_journal (EcfsPrunePlace *self, EcfsPruning *pruning, GError **error);
/** Finds what is dead there, and looks whether it is what it seems. */
bool ecfs_prune_place_look (EcfsPrunePlace *self, EcfsPruning *pruning, GError **error);
/** Leaves the note, and reads the endpoint's clock by it. */
bool ecfs_prune_place_note (EcfsPrunePlace *self, GError **error);
/** Whether it tells that a file is older than what is kept; who tells no time has none. */
bool ecfs_prune_place_is_old (const EcfsPrunePlace *self, const EcfsPruning *pruning, int64_t mtime_s);
void ecfs_prune_place_add_old (EcfsPrunePlace *self, EcfsPruneKind kind, const char *name, uint64_t size,
                               int64_t mtime_s);
void ecfs_prune_add (EcfsPruneSum *sum, uint64_t bytes);
/** Removes the files that are no stripes; looks at the journal in between. */
bool ecfs_prune_place_remove_old (EcfsPrunePlace *self, EcfsPruning *pruning, GError **error);
/** Removes what is dead, and still is; likewise. */
bool ecfs_prune_place_remove (EcfsPrunePlace *self, EcfsPruning *pruning, GError **error);
/** Takes the note away again. */
bool ecfs_prune_place_end (EcfsPrunePlace *self, GError **error);
/** Likewise one of another run, if there is one. */
bool ecfs_prune_place_end_left (EcfsPrunePlace *self, GError **error);
void ecfs_prune_place_clear (EcfsPrunePlace *self);

/* prune_journal.c */
/** Before the past is read: looks for the newest snapshot that is old enough. */
bool ecfs_prune_journal_choose (EcfsPruning *self, GError **error);
/** When it was read, and all places were looked at: whether what is before it may go. */
bool ecfs_prune_journal_judge (EcfsPruning *self, GError **error);
/** Adds what of it is to go from a place. */
bool ecfs_prune_journal_find (EcfsPruning *self, EcfsPrunePlace *place, GError **error);
/** Zeroed memory is accepted. */
void ecfs_prune_journal_clear (EcfsPruneJournal *self);

/* prune_marks.c */
/** Adds the markers that are to go from a place. */
bool ecfs_prune_marks_find (EcfsPrunePlace *place, const EcfsPruning *pruning, GError **error);

/** Follows up to now. False: what is known does not hold any more, is_lost. */
bool ecfs_prune_go_on (EcfsPruning *self, GError **error);
/** Tells how far it is. ECANCELED. */
bool ecfs_prune_tick (const EcfsPruning *self, const char *phase, uint64_t n_done, uint64_t n_all, GError **error);

#endif
