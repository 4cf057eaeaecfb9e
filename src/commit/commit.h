/*
 * Storing staged content: one attempt from intent to publish (the table of durable steps in doc/architecture.md), and
 * filling up what an attempt had to leave out. Attempts run on the archive's commit threads, several at a time.
 */
#ifndef ECFS_COMMIT_COMMIT_H
#define ECFS_COMMIT_COMMIT_H

#include "archive/archive.h"
#include "codec/codec.h"
#include "object/feed.h"
#include "object/repair.h"

#include <stdatomic.h>

/* What of an object is to be stored once more, and what became of it. */
typedef struct EcfsRepairOrder {
    uint64_t instance[ECFS_CODEC_MAX_N]; /* of each stripe that is damaged or gone; 0: it is neither */
    bool gone[ECFS_CODEC_MAX_N];         /* of these: nothing of it is there to read, or … */
    bool moved[ECFS_CODEC_MAX_N];        /* … nothing is wrong with it but its place */
    bool only_named;                     /* stripes that the object lacks are left to others */
    bool is_crowded;                     /* in place of all this: those that crowding.h finds now are moved, if any */
    const bool *towards;                 /* n_towards flags by position: endpoints that take what they can, … */
    size_t n_towards;                    /* … before others do; NULL: whichever. Lent as long as the order */
    unsigned n_stored;                   /* set by the attempt, with what follows, also where it fails */
    uint64_t read_bytes;
    uint64_t written_bytes;
} EcfsRepairOrder;

/* How an attempt ended. */
typedef struct EcfsOutcome {
    /* NULL: the file has this content, durably. Else it names file, endpoints and reasons; ENOSPC/EDQUOT when endpoints
     * are full, ECANCELED when content changed or the archive stops, EROFS when the catalog cannot be written, ESTALE
     * when the file was replaced or deleted, EIO otherwise; and nothing has changed unless `kept`. */
    const GError *error;
    bool opened; /* EcfsCommit.open () gave the content: the caller closes it */
    bool full;   /* all stripes are stored (with `kept`: when it becomes durable) */
    bool kept;   /* the content is published, but the catalog could not write it down yet: ecfs_catalog_publish () */
} EcfsOutcome;

typedef struct EcfsCommit EcfsCommit;
struct EcfsCommit {
    uint64_t ino;
    int64_t staging; /* catalog row that the publish settles; 0: none (content from elsewhere) */
    int fd;          /* the content, read with pread only; holes are found by SEEK_DATA. Lent until done */
    /* Asked for the content when the attempt begins, on its thread, in place of fd; lent until done. -1 with an error
     * ends the attempt. May be NULL: fd is open. */
    int (*open) (void *user, GError **error);
    /* The content is still being written: the attempt reads along behind, and ends once the feed is final; ECANCELED
     * when it is abandoned. Lent until done. NULL: size, mtime_ns and staging are known. */
    EcfsFeed *feed;
    void (*ended) (void *user, EcfsCommit *commit); /* the feed is final: sets these three */
    uint64_t size;                                  /* bytes */
    int64_t mtime_ns;
    bool patient; /* stripes whose endpoints are silent are waited for until these are down, as nobody would add them */
    bool retry; /* an attempt failed or left something out before: endpoints that are down are tried once more first */
    const char *code;           /* NULL: what the catalog says for the inode, else the archive's default */
    int64_t object;             /* of a recode or repair: the row of the object */
    EcfsRepairOrder *order;     /* of a repair; lent until done, as the next */
    const EcfsRepairPace *pace; /* NULL: as fast as it goes */
    const char *path;           /* for messages and as a hint in the stripes; NULL: what the catalog says */
    bool is_foreign; /* reading the content may take as long as it likes: on threads that no staged file needs */
    const atomic_bool *cancelled; /* ends the attempt with ECANCELED, as the end of the archive does. May be NULL */
    /* Asked after the last byte of fd was read and before it becomes the file's content, by a backfill for each object;
     * false ends the attempt with ECANCELED and what was stored is queued for deletion. May be NULL. Must not block. */
    bool (*unchanged) (void *user);
    const atomic_bool *time_told; /* looked at after that: the catalog has the file's time already. May be NULL: no */
    /* The content is the file's, durably, but not all stripes are there yet: those that are left are certain to be
     * late, or with at_quorum (close_at = quorum) in any case. Called from the attempt's thread, before done; whatever
     * `done` says then is about those. False: they are left out. May be NULL: all are waited for, and late ones are
     * left out. */
    bool (*published) (void *user);
    bool at_quorum;
    /* Called exactly once, from a commit thread. */
    void (*done) (void *user, const EcfsOutcome *outcome);
    void *user;
};

/** Queues one attempt; @commit is copied. Never blocks. */
void ecfs_archive_commit (EcfsArchive *self, const EcfsCommit *commit);

/**
 * Queues one attempt to store the missing stripes of a committed file from the same, unchanged content. Where some are
 * missing still, the error says why. A file that has been replaced meanwhile ends with ESTALE.
 */
void ecfs_archive_backfill (EcfsArchive *self, const EcfsCommit *commit);

/**
 * Queues one attempt to give the object commit->object of a file, whose bytes are all that the content holds, the code
 * commit->code, all stripes of it or none. Where the old and the new code share stripes these stay, and the missing
 * ones are added. ESTALE: the file has been replaced meanwhile.
 */
void ecfs_archive_recode (EcfsArchive *self, const EcfsCommit *commit);

/**
 * Queues one attempt to store the stripes of commit->object that it lacks, and those that commit->order names as long
 * as the object still has them, from its other stripes: where they were, else at an endpoint that has none. Each is
 * made known by compare-and-set, and the one in its place is queued for deletion. ESTALE: the file or object is another
 * meanwhile.
 */
void ecfs_archive_repair (EcfsArchive *self, const EcfsCommit *commit);

#endif
