/*
 * Bytes of objects on the local disk, so that what was read once need not be read from afar again. Whatever becomes of
 * the directory, nothing but speed is lost: it can be emptied at any time, several processes share it, and what it
 * gives counts only when whoever asked for it has found that it fits.
 *
 * The bytes of one segment of one object are a cell: a file with holes, in which each range lies where the caller puts
 * it. An object never changes, and its UUID is never used again, so what is in a cell stays right for ever. An index
 * (SQLite, of this directory alone) knows how large each cell is and when it was used last; what was not used for
 * longest goes first. Reading does not touch the index.
 *
 * Nobody waits for the disk of a cache: looks run on threads of their own and may be given up, what is to be filled in
 * is queued within a bound and dropped beyond it, and while the disk is full or hangs there is no cache.
 *
 * Life cycle: new → stop → free; threads come with the first use. Thread-safe but for these.
 */
#ifndef ECFS_CACHE_CACHE_H
#define ECFS_CACHE_CACHE_H

#include "util/error.h"
#include "util/uuid.h"

typedef struct EcfsCache EcfsCache;

typedef struct EcfsCacheParams {
    const char *directory;    /* made when it is absent, and its parent; all below it is the cache's; copied */
    uint64_t max_bytes;       /* of all cells */
    uint64_t keep_free_bytes; /* of its disk, for others: it shrinks rather than use them */
    uint64_t queue_bytes;     /* of memory that waits to be written */
} EcfsCacheParams;

typedef struct EcfsCacheCell {
    EcfsUuid object;
    uint64_t segment;
} EcfsCacheCell;

/* Bytes in a cell. */
typedef struct EcfsCacheRange {
    uint64_t offset;
    size_t size;
    uint8_t *bytes;
} EcfsCacheRange;

/* What becomes of a range that was read. */
typedef enum EcfsCacheVerdict {
    ECFS_CACHE_FITS,
    ECFS_CACHE_ABSENT, /* it was never filled in */
    ECFS_CACHE_WRONG,  /* it is not what was filled in: the cell goes */
} EcfsCacheVerdict;

/* A question for bytes. All functions are called on a thread of the cache, and may do work, but not block. */
typedef struct EcfsCacheLook {
    EcfsCacheCell cell;
    EcfsCacheRange *ranges; /* n_ranges, of the caller's; bytes are set by begin () */
    unsigned n_ranges;
    /* When it is its turn: false, nobody wants it any more. Else memory for all ranges, until done (). */
    bool (*begin) (struct EcfsCacheLook *self);
    /* Whether the bytes of a range are those that belong there. */
    EcfsCacheVerdict (*judge) (struct EcfsCacheLook *self, unsigned range);
    /* Once, and at last: whether all ranges are there and fit. */
    void (*done) (struct EcfsCacheLook *self, bool found);
} EcfsCacheLook;

/* What is to be filled in. */
typedef struct EcfsCacheFill {
    EcfsCacheCell cell;
    EcfsCacheRange *ranges; /* n_ranges, of the caller's */
    unsigned n_ranges;
    int64_t since_us; /* when whoever read it chose where from: what was forgotten since is not filled in */
    /* On the cache's thread, before it is written. May be NULL: nothing is to be done. */
    void (*prepare) (struct EcfsCacheFill *self);
    void (*free) (struct EcfsCacheFill *self); /* of it all, whatever became of it */
} EcfsCacheFill;

/** Touches nothing on disk. */
EcfsCache *ecfs_cache_new (const EcfsCacheParams *params);
/** Writes what is queued, and ends the threads. All looks are answered. Idempotent; NULL is accepted, also by the next.
 */
void ecfs_cache_stop (EcfsCache *self);
void ecfs_cache_free (EcfsCache *self);

/** Of all cells together, at most. */
uint64_t ecfs_cache_max_bytes (const EcfsCache *self);

/** Asks; @look stays the caller's. False: not now, and nothing of it is called: the disk hangs, or too many ask. */
bool ecfs_cache_look (EcfsCache *self, EcfsCacheLook *look);

/** Whether @bytes more would be queued now, so that whoever would copy them first need not. */
bool ecfs_cache_has_room (EcfsCache *self, size_t bytes);
/** Takes over @fill: it is written in the background, or dropped. */
void ecfs_cache_fill (EcfsCache *self, EcfsCacheFill *fill);
/** For whoever wants all of it filled in: waits until so much was written that @bytes more have room, or as much as it
 * ever takes at once. False: not until @deadline_us, or the cache takes nothing now. */
bool ecfs_cache_await_room (EcfsCache *self, size_t bytes, int64_t deadline_us);
/** Waits until all that is queued is written. Likewise. */
bool ecfs_cache_await_written (EcfsCache *self, int64_t deadline_us);

/** Bytes in [offset, offset + size) of a cell that are there, as far as the file system tells holes from data; holes
 * smaller than its blocks count as data. Blocks for as long as the disk does. */
uint64_t ecfs_cache_present (EcfsCache *self, const EcfsCacheCell *cell, uint64_t offset, uint64_t size);

/** A file descriptor of a cell of which all @bytes are there as far as the file system tells, for reading; -1: they are
 * not. Counts as a use of it. Blocks likewise. What is read may be wrong as ever. */
int ecfs_cache_open_cell (EcfsCache *self, const EcfsCacheCell *cell, uint64_t bytes);

/** Removes all that there is of an object, which is not to be believed any more, and takes no more of it from who began
 * before; NULL: of all objects. Blocks for as long as the disk does, as the next four. */
void ecfs_cache_forget (EcfsCache *self, const EcfsUuid *object);
/** All objects of which there is something, by the index; GArray of EcfsUuid. NULL: it cannot be read. */
GArray *ecfs_cache_objects (EcfsCache *self, GError **error);
/** Keeps a cell that is there from going, until ecfs_cache_unpin (). @stamp: of who pins, as all that is pinned now;
 * where it was pinned with a later one, that stays. */
void ecfs_cache_pin (EcfsCache *self, const EcfsCacheCell *cell, int64_t stamp);
/** Lets go of what was last pinned with a stamp below this one. */
void ecfs_cache_unpin (EcfsCache *self, int64_t stamp);

/** Somebody else needs @bytes of its disk: gives them at once, but for what is pinned, and takes none for some seconds.
 * Waits for a second at most. False: it could not give so much. */
bool ecfs_cache_give_way (EcfsCache *self, uint64_t bytes);

typedef struct EcfsCacheState {
    uint64_t bytes; /* that cells take on the disk */
    uint64_t pinned_bytes;
    uint64_t n_cells;
    uint64_t dropped_bytes; /* that were not filled in by this process since it started, for want of time or room */
    char *trouble;          /* why it took nothing when it was to, lately; NULL: it did; owned */
} EcfsCacheState;

/** By the index; false: it cannot be read. */
bool ecfs_cache_state (EcfsCache *self, EcfsCacheState *ret_state, GError **error);
void ecfs_cache_state_clear (EcfsCacheState *state);

/** Removes all cells but those that are filled in meanwhile. *ret_bytes: that they took. */
bool ecfs_cache_drop (EcfsCache *self, uint64_t *ret_bytes, GError **error);

#endif
