/*
 * Following an archive that another machine writes: the catalog of a directory for reading only is made of the journal
 * as endpoints have it, and then kept up with what is stored there. Who has that catalog open for reading sees one
 * state after the other, each of which the writer's was: records are applied in their order, and a catalog that is made
 * anew takes the place of the old one in one transaction.
 *
 * It never goes back, but where another machine takes the archive over, and what the one before stored last does not
 * count; or where endpoints lost what the catalog was made of.
 *
 * Nothing is changed on any endpoint. One thread.
 */
#ifndef ECFS_RECOVER_FOLLOW_H
#define ECFS_RECOVER_FOLLOW_H

#include "archive/archive.h"

typedef struct EcfsFollow EcfsFollow;

/* How far the catalog is. */
typedef struct EcfsFollowed {
    uint32_t epoch;
    uint64_t sequence; /* of the last change */
    int64_t time_ns;   /* when that was made, by the writer's clock; 0: there is none */
    size_t n_asked;    /* endpoints that have answered, … */
    size_t n_known;    /* … of those that the archive has */
    size_t n_copies;   /* at how many of them is what `ecfs wait` waited for */
    bool is_sure;      /* so many did that nothing can be missing which is safe without the writer's machine */
} EcfsFollowed;

/**
 * For an archive directory that `recover` made for reading only, which is open READONLY; its lock is taken. EBUSY:
 * another process follows with this directory. EINVAL: it is not for reading only. Nothing is read yet.
 */
EcfsFollow *ecfs_follow_begin (EcfsArchive *archive, GError **error);

/**
 * Applies what endpoints have that was not there before; the first time, and where nothing continues what was applied,
 * the catalog is made anew. *ret_rows: the records (EcfsJournalRow), for g_ptr_array_unref (); NULL: it was made anew,
 * or they were too many, and anything may have changed. Blocks. ENOTCONN: no endpoint answers. After an error it may be
 * called again.
 */
bool ecfs_follow_step (EcfsFollow *self, GPtrArray **ret_rows, GError **error);

/** How far it is since the last step. Borrowed. */
const EcfsFollowed *ecfs_follow_state (const EcfsFollow *self);

/** NULL is accepted. */
void ecfs_follow_end (EcfsFollow *self);

#endif
