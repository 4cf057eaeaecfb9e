/*
 * What the attempts share that store objects: object.c (one object), store.c (new content of files), feed.c (content
 * that is still being written), backfill.c, recode.c and repair.c (objects as they are, with what they lack, for
 * another code, and whole again), pack.c (one object of many files), together.c (many attempts in one such) and
 * log_copy.c. commit.c runs them.
 */
#ifndef ECFS_COMMIT_COMMIT_PRIV_H
#define ECFS_COMMIT_COMMIT_PRIV_H

#include "archive/places.h"
#include "archive/places_of.h"
#include "catalog/file_facts.h"
#include "commit/commit.h"
#include "object/repair.h"
#include "object/writer.h"

/* One object of an attempt. */
typedef struct EcfsCommitObject {
    EcfsObjectRow *row;
    GArray *ranges; /* of EcfsFileRange */
    GArray *whole;  /* where the content has all of the object, in place of ranges; NULL: it is the file's */
    uint64_t feed_offset;
    uint32_t number; /* among the objects of its content, which has n_objects; 0: not known yet */
    uint32_t n_objects;
    int64_t stands_for; /* the row of the object whose content is stored anew in this one; 0: it is new */
    bool is_apart;      /* of an object that was there before: it is content of its own, … */
    GArray *elsewhere;  /* … and the file has these (of EcfsElsewhere) besides; NULL: nothing, or not known */
    int64_t intent;
    bool full;
} EcfsCommitObject;

/* One attempt, on a commit thread. */
typedef struct EcfsCommitAttempt {
    EcfsArchive *archive;
    EcfsCommit commit;
    char *path; /* for messages */
    EcfsAttr attr;
    EcfsFileFacts facts;   /* of the file when the attempt began; without a file there are none */
    GPtrArray *parts;      /* of EcfsCommitObject */
    EcfsFileRecord record; /* what the stripes of the object that is being stored tell of the file */
    EcfsOutcome outcome;
    /* Of the object that is being stored: */
    EcfsCommitObject *part;
    EcfsObjectPlaces places; /* with its codec */
    EcfsRuled ruled;         /* lent to places */
    EcfsWriterTarget *targets;
    GError *spare_error; /* the catalog refused the intent of a spare */
    /* Of STORE and STREAM: */
    EcfsUuid content;    /* of the objects that are new with the file's content */
    bool early;          /* it was published, or was to be, when its last object had its quorum */
    GError *early_error; /* why not */
    /* Of BACKFILL, RECODE and REPAIR, whose objects were there before: */
    GHashTable *uuids; /* of the file's objects, by row; NULL: none was needed */
    bool stored_before[ECFS_CODEC_MAX_N];
    GString *missing;  /* why stripes are left out; NULL: none are */
    bool comes_packed; /* of a BACKFILL: some are left to who packs */
    bool unreadable;   /* of a BACKFILL: too few stripes can be read to make others from, so a new object is stored */
    int guarantee;     /* that this must have, as what it takes the place of; 0: its quorum is enough */
    bool in_place;     /* of a RECODE: the stripes that both codes have stay */
    const char *own_code; /* of one that seals: what the object has; NULL: as the file is to have */
    struct {
        EcfsRepair *packets;                      /* NULL: stripes are made from content */
        EcfsStripeRow replaced[ECFS_CODEC_MAX_N]; /* stripes that are to be stored once more; instance 0: it is not */
        size_t to[ECFS_CODEC_MAX_N];              /* of a crowded object: where these go, and nowhere else */
    } repair;
} EcfsCommitAttempt;

/** For `parts`. */
GPtrArray *ecfs_attempt_parts (void);
/** A new object of the attempt, with a UUID of its own. */
EcfsCommitObject *ecfs_attempt_part (EcfsCommitAttempt *self);
/** The object that the attempt is about, with the ranges of the file that it holds; ESTALE: it is the file's no more.
 */
EcfsCommitObject *ecfs_attempt_named_part (EcfsCommitAttempt *self, GError **error);
/** The codec for an object of the file of @bytes bytes. */
const EcfsCodec *ecfs_attempt_codec (EcfsCommitAttempt *self, uint64_t bytes, GError **error);

/** Whether a new object may be made known with these stripes, at endpoints by position; in the codec of `places`. */
bool ecfs_attempt_is_backed (const EcfsCommitAttempt *self, const bool *stripes, const size_t *holder);

/* Steps of storing an object; there are ECFS_CODEC_MAX_N targets. */

/** The rules that hold for the file, for ecfs_ruled_clear (). */
bool ecfs_attempt_file_rules (const EcfsCommitAttempt *self, EcfsRuled *ret_ruled, GError **error);
/** The object is the one that is being stored; none of its stripes has a place. False where it is not known which it
 * may have. */
bool ecfs_attempt_begin_object (EcfsCommitAttempt *self, EcfsCommitObject *part, const EcfsCodec *codec,
                                GError **error);
/** Finds endpoints for the wanted stripes, and gives each a fresh instance. Doubtful endpoints are used only where the
 * others do not suffice. */
void ecfs_attempt_place (EcfsCommitAttempt *self, const bool *wanted, bool doubtful_too, EcfsWriterTarget *targets);
/** A number for a stripe that is stored. */
uint64_t ecfs_attempt_instance (void);
/** What the header of an object's stripes says, but for instance and index. */
EcfsStripeHeader ecfs_attempt_header (EcfsArchive *archive, const EcfsObjectRow *row, const EcfsCodec *codec);
/** Stores whole copies of a log that has ended as these @stripes: those that were, GArray of EcfsStripeRow; why others
 * were not goes to @failures. NULL: its content cannot be read. */
GArray *ecfs_attempt_copy_log (EcfsCommitAttempt *self, const EcfsObjectRow *log, const GArray *stripes,
                               GString *failures, GError **error);
/** Rows of the stripes that have a target, for an intent. */
GArray *ecfs_attempt_intended_stripes (const EcfsCommitAttempt *self, const EcfsWriterTarget *targets);
/** Stores what has a target. @expected: whose content it is to be; NULL: new. The failures of *result are the caller's.
 */
bool ecfs_attempt_run_writer (EcfsCommitAttempt *self, EcfsWriterTarget *targets, const EcfsObjectRow *expected,
                              EcfsWriterResult *result, GError **error);
/** The row of a stripe that was stored. */
EcfsStripeRow ecfs_attempt_stored_stripe (const EcfsCommitAttempt *self, unsigned index,
                                          const EcfsWriterTarget *targets, const EcfsWriterResult *result);

/** The row of the object that is being stored gets what was stored. */
void ecfs_attempt_note_stored (EcfsCommitAttempt *self, const EcfsWriterResult *result);
/** Asked when nothing reads the content any more: what was read before is what it is to be. */
bool ecfs_attempt_check_unchanged (const EcfsCommitAttempt *self, GError **error);
/** Nobody has asked for another code since the objects began. */
bool ecfs_attempt_check_codes (EcfsCommitAttempt *self, GError **error);
/** EcfsWriterJob.enough (): publishes what is stored of the last object, and has the rest go on. */
EcfsRest ecfs_attempt_publish_early (void *attempt, const EcfsWriterResult *result);
/** After that, at the end: makes the rest known. False where the file is not stored in full. */
bool ecfs_attempt_add_rest (EcfsCommitAttempt *self, const EcfsWriterResult *result, GError **error);
/** What is stored tells of the file what is known of it now. */
void ecfs_attempt_describe (EcfsCommitAttempt *self);
/** Stores the objects of a STREAM (feed.c). */
bool ecfs_attempt_store_feed (EcfsCommitAttempt *self, GError **error);
/** The object that is being stored has all its content: EcfsWriterJob.ended (). */
void ecfs_attempt_content_ended (void *attempt, uint64_t bytes);
bool ecfs_attempt_is_cancelled (void *attempt);
/** Stores one new object of the file: intent, stripes, judgement. The row gets what was stored. */
bool ecfs_attempt_store_object (EcfsCommitAttempt *self, EcfsCommitObject *part, const EcfsCodec *codec,
                                GError **error);
/**
 * Stores the content of an object once more, as a new object that takes the place of the old one by compare-and-set.
 * @otherwise: what to say, with EBADMSG, where the content is another. Returns the new one, of the attempt; ESTALE: the
 * old one is no more in the catalog.
 */
EcfsCommitObject *ecfs_attempt_store_anew (EcfsCommitAttempt *self, const EcfsCommitObject *old, const EcfsCodec *codec,
                                           const char *otherwise, GError **error);
/** Stores the stripes that an object lacks in @codec, as far as there are places; a RECODE all or none. NULL on errors
 * only. */
GArray *ecfs_attempt_store_missing (EcfsCommitAttempt *self, EcfsCommitObject *part, const EcfsCodec *codec,
                                    GError **error);
/** Fills up an object, each stripe made known by compare-and-set. Returns false on errors only; EAGAIN: others changed
 * its stripes meanwhile, or an endpoint that it was placed at takes none any more. */
bool ecfs_attempt_fill_object (EcfsCommitAttempt *self, EcfsCommitObject *part, GError **error);
/** Makes stripes of an object known, each by compare-and-set; where one is refused, the others are made known all the
 * same. ESTALE: the object, or what a stripe was to replace, is another by now. */
bool ecfs_attempt_set_stripes (EcfsCommitAttempt *self, const EcfsCommitObject *part, const GArray *stripes,
                               GError **error);
/** Says what store_missing () noted. */
bool ecfs_attempt_fail_missing (const EcfsCommitAttempt *self, GError **error);

/** The content of a small file, g_free (), and its digest; NULL: it cannot be read. */
uint8_t *ecfs_attempt_read_all (const EcfsCommitAttempt *self, uint8_t ret_sha256[ECFS_SHA256_SIZE], GError **error);
/** Whether what was read of it may become the file's content. */
bool ecfs_attempt_may_publish (EcfsCommitAttempt *self, GError **error);
/** What the catalog is to be told of new content, but where it is. */
EcfsPublish ecfs_attempt_publish (const EcfsCommitAttempt *self);
/** Stores it for itself, on another commit thread, which ends it. */
void ecfs_attempt_queue_apart (EcfsCommitAttempt *self);
/** Tells whoever asked for the attempt, and frees it. @error (NULL: it is stored) is taken. On a commit thread. */
void ecfs_attempt_end (EcfsCommitAttempt *self, GError *error);
/** As ecfs_archive_commit (), on this thread: it has ended when this returns. */
void ecfs_attempt_run_here (EcfsArchive *archive, const EcfsCommit *commit);

/* What attempts run, by kind; STORE and STREAM the first. */
/** *ret_together, with false and no error: it is small, and to be stored together with others (together.h). */
bool ecfs_attempt_store (EcfsCommitAttempt *self, bool *ret_together, GError **error);
/** In objects of its own. */
bool ecfs_attempt_store_apart (EcfsCommitAttempt *self, GError **error);
bool ecfs_attempt_backfill (EcfsCommitAttempt *self, GError **error);
bool ecfs_attempt_recode (EcfsCommitAttempt *self, GError **error);
bool ecfs_attempt_repair (EcfsCommitAttempt *self, GError **error);
bool ecfs_attempt_pack (EcfsCommitAttempt *self, GError **error);
/** What stripes of a pack tell of its files: of EcfsFileRecord. */
GPtrArray *ecfs_attempt_pack_records (const EcfsCommitAttempt *self, GError **error);

#endif
