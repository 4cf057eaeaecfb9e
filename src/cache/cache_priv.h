/* What cache.c (questions, queue) and fill.c (what is written, and what goes) share. */
#ifndef ECFS_CACHE_CACHE_PRIV_H
#define ECFS_CACHE_CACHE_PRIV_H

#include "cache/index.h"
#include "util/lock.h"
#include "util/ticker.h"

#define ECFS_CACHE_LOOKERS 4

struct EcfsCache {
    EcfsMutex lock;  /* inner to all others but none is taken with it */
    EcfsCond moved;  /* something was written, or given */
    char *directory; /* immutable, as the next three */
    uint64_t max_bytes;
    uint64_t keep_free_bytes;
    uint64_t queue_bytes;
    EcfsWorkers *lookers; /* NULL: not yet, or not any more; guarded by lock, as all up to index_lock */
    EcfsTicker *filler;   /* likewise */
    bool stopped;
    unsigned n_looks;                       /* that are not answered */
    int64_t running_us[ECFS_CACHE_LOOKERS]; /* since when each looker reads; 0: it does not */
    int64_t looks_from_us;                  /* none before, as the disk was slow */
    GQueue fills;                           /* of EcfsCacheFill */
    uint64_t queued_bytes;                  /* of these, and of those that are being written */
    int64_t fills_from_us;                  /* none before, as the disk was full */
    GHashTable *forgotten;                  /* EcfsUuid → int64_t: when; of these, and … */
    int64_t all_forgotten_us; /* … of all objects at this time: nothing that is read since before then */
    GHashTable *touched;      /* of EcfsCacheCell: used, and the index does not know it */
    GArray *wrong;            /* of EcfsCacheCell: removed, and the index does not know it */
    uint64_t give_bytes;      /* that somebody waits for */
    bool gave_enough;         /* when that was last done */
    int64_t gives_from_us;    /* nothing is given before, as it took too long */
    uint64_t dropped_bytes;
    char *trouble;         /* why nothing is taken; NULL: it is */
    EcfsCacheState totals; /* when they were last read */
    bool knows_totals;
    EcfsMutex index_lock;  /* outer to lock; held while files are written, so that who has it knows that none is */
    EcfsCacheIndex *index; /* NULL: it is not open; guarded by index_lock, as the rest */
    int64_t index_from_us; /* it is not opened before, as … */
    char *index_trouble;   /* … this was in the way; NULL: nothing */
    int64_t touched_us;    /* when the index was told last */
    unsigned sweep_folder; /* the next to be compared with the index; ECFS_CACHE_FOLDERS: none */
};

/* The ticker's: writes what is queued, makes room, tells the index. */
void ecfs_cache_work (void *cache);

/* Opens the index where it is not open. @make: also where there is no cache yet. NULL without @error: there is none. */
EcfsCacheIndex *ecfs_cache_index_locked (EcfsCache *self, bool make, GError **error) ECFS_REQUIRES (self->index_lock);
/* Whatever is done with an index that turned out to be damaged: begins it anew. @error is looked at, may be NULL. */
void ecfs_cache_doubt_locked (EcfsCache *self, const GError *error) ECFS_REQUIRES (self->index_lock);

/* Why nothing is taken, in the log once for each reason. NULL: it is. */
void ecfs_cache_tell (EcfsCache *self, const char *trouble);
/* For who asks while the index is in use. */
void ecfs_cache_note_totals_locked (EcfsCache *self) ECFS_REQUIRES (self->index_lock);
/* A cell with its row, in a transaction. */
bool ecfs_cache_remove_locked (EcfsCache *self, const EcfsCacheRow *row, GError **error)
    ECFS_REQUIRES (self->index_lock);
uint64_t ecfs_cache_fill_bytes (const EcfsCacheFill *fill);

#endif
