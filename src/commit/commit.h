/*
 * One attempt to store stripes of a file: new content from intent to publish (the table of durable steps in
 * doc/architecture.md), or what objects lack that are there. Attempts run on the archive's commit threads, several at a
 * time.
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

/* A file whose content goes into a pack. */
typedef struct EcfsPackFile {
    uint64_t ino;
    uint64_t length;        /* > 0 */
    uint64_t offset;        /* in the pack */
    EcfsUuid object;        /* that has it now, all of it, … */
    uint64_t object_offset; /* … there */
    uint64_t generation;
    uint8_t sha256[ECFS_SHA256_SIZE];
    bool is_known;    /* the catalog has generation and digest */
    bool is_staged;   /* no object has it: it is new, and put_in () makes it the file's; … */
    int64_t mtime_ns; /* … with this time */
} EcfsPackFile;

typedef struct EcfsPackOrder {
    const EcfsPackFile *files; /* n_files, by offset; lent as long as the order */
    size_t n_files;
    size_t n_moved; /* set by the attempt, also where it fails */
    /* Makes the files' content what is in the pack, which is there, with all its stripes or not, and goes at the end
     * where nothing is in it. NULL: each file that has it in another object still has it in the pack from then on. */
    bool (*put_in) (void *user, const EcfsObjectRow *pack, bool full, GError **error);
    void *user;
} EcfsPackOrder;

/* How an attempt ended. */
typedef struct EcfsOutcome {
    /* NULL: the file has this content, durably. Else it names file, endpoints and reasons; ENOSPC/EDQUOT when endpoints
     * are full, ECANCELED when content changed or the archive stops, EROFS when the catalog cannot be written, ESTALE
     * when the file was replaced or deleted, EINPROGRESS when who packs brings what is missing, EIO otherwise; and
     * nothing has changed unless `kept`. */
    const GError *error;
    bool opened; /* EcfsCommit.open () gave the content: the caller closes it */
    bool full;   /* all stripes are stored (with `kept`: when it becomes durable) */
    bool kept;   /* the content is published, but the catalog could not write it down yet: ecfs_catalog_publish () */
} EcfsOutcome;

/* What an attempt does. Each kind names the fields of EcfsCommit that it has besides those of all kinds; others are 0.
 */
typedef enum EcfsCommitKind {
    /* The content becomes that of the file, with all its objects at once: content, code, `publish`. */
    ECFS_COMMIT_STORE = 1, /* 0 is none, so that a forgotten kind is noticed */
    /* The same with content that is still being written: the attempt reads along behind, and ends once the feed is
     * final; ECANCELED when it is abandoned. Content, code, `publish`, `stream`. */
    ECFS_COMMIT_STREAM,
    /* The missing stripes of a committed file are stored: from the same, unchanged content, or under a key from the
     * other stripes, and from the content as a new object, with another key, where too few of these can be read. Where
     * some are missing still, the error says why. ESTALE: the file has been replaced meanwhile. Content. */
    ECFS_COMMIT_BACKFILL,
    /* The object, whose bytes are all that the content holds, gets the code, all stripes of it or none. Where the old
     * and the new code share stripes these stay, and the missing ones are added. ESTALE: the file has been replaced
     * meanwhile. Content, code, object. With `seals` it is stored anew under the archive's key, in its own code. */
    ECFS_COMMIT_RECODE,
    /* The stripes that the object lacks are stored, and those that the order names as long as the object still has
     * them, from its other stripes: where they were, else at an endpoint that has none. Each is made known by
     * compare-and-set, and the one in its place is queued for deletion. ESTALE: the file or object is another
     * meanwhile. Object, `repair`; it needs no content. */
    ECFS_COMMIT_REPAIR,
    /* The content, of several files, becomes a pack, all stripes of it or none, and then these files' by
     * compare-and-set: those that have another by then keep that. Content, code, `pack`, marks; ino is 0. */
    ECFS_COMMIT_PACK,
} EcfsCommitKind;

typedef struct EcfsCommit EcfsCommit;
struct EcfsCommit {
    EcfsCommitKind kind;
    uint64_t ino;
    uint64_t size;              /* bytes; of a stream, as the next, when it has ended */
    int64_t mtime_ns, ctime_ns; /* ctime 0: when it is published */
    const char *path;           /* for messages and as a hint in the stripes; NULL: what the catalog says */
    bool patient; /* stripes whose endpoints are silent are waited for until these are down, as nobody would add them */
    bool has_failed; /* before: it is stored for itself, not together with others */
    bool retry; /* an attempt failed or left something out before: endpoints that are down are tried once more first */
    /* It waits for others, to be stored with them, and takes no thread meanwhile. Called from a commit thread, at most
     * once, and calls nothing of commits. May be NULL. */
    void (*joined) (void *user);
    bool is_foreign; /* reading the content may take as long as it likes: on threads that no staged file needs */
    const atomic_bool *cancelled; /* ends the attempt with ECANCELED, as the end of the archive does. May be NULL */
    /* Called exactly once, from a commit thread. */
    void (*done) (void *user, const EcfsOutcome *outcome);
    void *user; /* of all functions here */

    /* Content */
    int fd; /* read with pread only; holes are found by SEEK_DATA. Lent until done */
    /* Asked for the content when the attempt begins, on its thread, in place of fd; lent until done. -1 with an error
     * ends the attempt. May be NULL: fd is open. */
    int (*open) (void *user, GError **error);
    /* Asked after the last byte of fd was read and before it becomes the file's content, by a backfill for each object;
     * false ends the attempt with ECANCELED and what was stored is queued for deletion. May be NULL. Must not block. */
    bool (*unchanged) (void *user);

    const char *code; /* NULL: what the catalog says for the inode, else the archive's default */
    uint64_t parent;  /* where a file gets its name once it is stored: that directory's rules hold; 0: it has names */
    int64_t object;   /* the row of the object */
    bool seals;       /* of a RECODE */

    /* How the content becomes the file's. */
    struct {
        int64_t staging; /* catalog row that the publish settles; 0: none (content from elsewhere). Of a stream when it
                          * has ended */
        /* Looked at at the publish: the catalog has the file's time already. May be NULL: no. */
        const atomic_bool *time_told;
        /* The content is the file's, durably, but not all stripes are there yet: those that are left are certain to be
         * late, or with at_quorum (close_at = quorum) in any case. Called from the attempt's thread, before done;
         * whatever `done` says then is about those. False: they are left out. May be NULL: all are waited for, and late
         * ones are left out. */
        bool (*published) (void *user);
        bool at_quorum;
        /* Before it, from the attempt's thread: what else goes with it, catalog rows of other files that are stored and
         * leave staging, at most ECFS_LEAVING_MAX. NULL: nothing; else `left` takes what it gave, with whether they
         * are gone. Both may be NULL. */
        void *(*leave) (void *user, const int64_t **ret_rows, size_t *ret_n_rows);
        void (*left) (void *leavers, bool gone);
    } publish;

    struct {
        EcfsFeed *feed;                                 /* lent until done */
        void (*ended) (void *user, EcfsCommit *commit); /* the feed is final: sets size, times, publish.staging */
    } stream;

    EcfsPackOrder *pack; /* lent until done */
    const char *marks;   /* of a PACK: of EcfsRuled, the same for all its files; NULL: no rule holds for them */

    struct {
        EcfsRepairOrder *order;     /* lent until done, as the next */
        const EcfsRepairPace *pace; /* NULL: as fast as it goes */
    } repair;
};

/** Queues one attempt; @commit is copied. Never blocks. */
void ecfs_archive_commit (EcfsArchive *self, const EcfsCommit *commit);

#endif
