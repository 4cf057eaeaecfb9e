/*
 * What files consist of: extents, the objects that they name, and the stripes that objects have at endpoints. Stripes
 * are announced by an intent (work.h) before they are stored. Publishing makes their objects a file's content; later an
 * object's stripes change by compare-and-set. Durability, threads and errors are as in catalog.h.
 */
#ifndef ECFS_CATALOG_CONTENT_H
#define ECFS_CATALOG_CONTENT_H

#include "key/seal.h"
#include "util/error.h"
#include "util/sha256.h"
#include "util/uuid.h"

#include <stdint.h>

typedef struct EcfsCatalog EcfsCatalog;

#define ECFS_DIGEST_SIZE 16 /* XXH3-128, canonical (big-endian) bytes */

/* Extents */

typedef struct EcfsExtent {
    uint64_t offset; /* in the file */
    uint64_t length; /* > 0 */
    int64_t object;  /* row id */
    uint64_t object_offset;
    /* Of a file's part of an object that others share; else the object says it. */
    bool has_sha256;
    uint8_t sha256[ECFS_SHA256_SIZE]; /* of its bytes */
    uint64_t generation;              /* of the content: EcfsFileRecord's; 0: not told */
} EcfsExtent;

/** The extents of a file in order, GArray of EcfsExtent; what they leave out below the file's size are holes. */
GArray *ecfs_catalog_extents (EcfsCatalog *self, uint64_t ino, GError **error);
/** The same, and the size of the committed content at the same moment: attributes show that of newer staged bytes. */
GArray *ecfs_catalog_content (EcfsCatalog *self, uint64_t ino, uint64_t *ret_size, GError **error);

/* An extent of one of all files. */
typedef struct EcfsFileExtent {
    uint64_t ino;
    uint64_t offset;
    uint64_t length;
    int64_t object;
} EcfsFileExtent;

/** Up to @max extents behind that of @after_ino at @after_offset, by both: how walkers go over what all files have.
 * GArray of EcfsFileExtent. */
GArray *ecfs_catalog_file_extents (EcfsCatalog *self, uint64_t after_ino, uint64_t after_offset, size_t max,
                                   GError **error);

/* Objects */

typedef enum EcfsObjectKind {
    ECFS_OBJECT_WHOLE = 0, /* content of a file, all or a part of it */
    /* Records of small files (object/log.h). It grows while it is open: its size is up to where it is known which of
     * its records count. */
    ECFS_OBJECT_LOG = 1,
    ECFS_OBJECT_PACK = 2, /* contents of small files, one behind another */
} EcfsObjectKind;

typedef struct EcfsStripeRow {
    uint16_t index;    /* 0..n-1 */
    uint64_t instance; /* random: a fresh one for every upload or rebuild */
    int64_t endpoint;  /* row id */
    uint64_t size;     /* bytes of the stripe file; of a log 0, it has all, or how much of the log's content it has */
    uint8_t digest[ECFS_DIGEST_SIZE]; /* of its packet area */
} EcfsStripeRow;

/* A descriptor: what is needed to find and decode an object. */
typedef struct EcfsObjectRow {
    int64_t id; /* 0: not in the catalog yet */
    EcfsUuid uuid;
    EcfsObjectKind kind;
    uint32_t epoch;
    uint64_t sequence; /* of the intent */
    char *code;
    uint64_t size;                    /* bytes of content */
    uint32_t segment_bytes;           /* of content in each segment but the last */
    uint32_t block_bytes;             /* of a check block, without its tag */
    uint32_t header_bytes;            /* where the packets begin in each stripe */
    EcfsSeal seal;                    /* under which key it is stored; of kind NONE: without */
    uint8_t digest[ECFS_DIGEST_SIZE]; /* of the content; with a key as it is enciphered */
    bool has_sha256;                  /* not what an ecfs stored that had none, nor what only footers tell of */
    uint8_t sha256[ECFS_SHA256_SIZE]; /* of the content; zero without */
    GArray *stripes;                  /* of EcfsStripeRow, by index; missing ones are absent; owned */
} EcfsObjectRow;

/** Whether a copy of a log ends before @end of its content; no other stripe does. */
static inline bool ecfs_stripe_lacks (const EcfsObjectRow *object, const EcfsStripeRow *stripe, uint64_t end)
{
    return object->kind == ECFS_OBJECT_LOG && stripe->size > 0 && stripe->size < end;
}

EcfsObjectRow *ecfs_object_row_new (void);
EcfsObjectRow *ecfs_object_row_copy (const EcfsObjectRow *row);
/** Whether they are the same stripes at the same endpoints, in the same code. */
bool ecfs_object_same_stripes (const EcfsObjectRow *a, const EcfsObjectRow *b);
/** Whether two objects have the same content, as far as their digests tell: what is enciphered is another each time. */
bool ecfs_object_same_content (const EcfsObjectRow *a, const EcfsObjectRow *b);
void ecfs_object_row_free (EcfsObjectRow *row);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsObjectRow, ecfs_object_row_free)

EcfsObjectRow *ecfs_catalog_object (EcfsCatalog *self, int64_t object, GError **error);

/** A file whose content is in an object, one of them; ENOENT. */
bool ecfs_catalog_object_file (EcfsCatalog *self, int64_t object, uint64_t *ret_ino, GError **error);
/** The path of that, g_free (); NULL: there is none, or none can be told. */
char *ecfs_catalog_object_path (EcfsCatalog *self, const EcfsUuid *object);

/** Up to @max objects with id above @after, by id: how walkers go over all. GPtrArray with free function. */
GPtrArray *ecfs_catalog_objects (EcfsCatalog *self, int64_t after, size_t max, GError **error);
/** Calls @each for all of them, by id, until it returns false with an error. In batches: what is added or deleted
 * meanwhile may be met or not. */
bool ecfs_catalog_each_object (EcfsCatalog *self,
                               bool (*each) (void *user, const EcfsObjectRow *object, GError **error), void *user,
                               GError **error);
/** As ecfs_catalog_objects () by UUID, which is the order in which endpoints have them. */
GPtrArray *ecfs_catalog_objects_by_uuid (EcfsCatalog *self, const EcfsUuid *after, size_t max, GError **error);
/** Gives an object that has none the SHA-256 of its content, which the caller has compared with its digest. Nothing
 * happens where the object is gone or has one. */
bool ecfs_catalog_object_set_sha256 (EcfsCatalog *self, const EcfsUuid *object, const uint8_t sha256[ECFS_SHA256_SIZE],
                                     GError **error);

/* How objects become content, and change */

/* Content that is in a record of a log, where no record before it comes to be anybody's content later; or in a pack
 * that was begun, and has not ended. */
typedef struct EcfsLogged {
    EcfsUuid log;        /* or pack */
    uint64_t offset;     /* of the content, all of which is data */
    uint64_t end;        /* of the record; of the content in a pack */
    uint64_t generation; /* its sequence */
    uint8_t sha256[ECFS_SHA256_SIZE];
    int64_t intent; /* that the log is open by; 0: a pack, or it is of no matter */
} EcfsLogged;

/* Content that the archive had, as a catalog of then tells it. */
typedef struct EcfsTakeBack {
    uint64_t ino;                        /* a regular file without content */
    const EcfsObjectRow *const *objects; /* with the stripes that are there; endpoints are rows of this catalog */
    size_t n_objects;
    const EcfsExtent *extents; /* their object field indexes @objects */
    size_t n_extents;
    uint64_t size; /* of the file */
    /* Since when (ecfs_now_us ()) their stripes were looked for. If deletions have ended since, a stripe without one
     * may be gone: it counts if it @is_there, which says whether it was looked for once more, and found, when it was
     * known to have none (ecfs_catalog_unsure ()). NULL: none was. Does no I/O, and asks no catalog. */
    int64_t looked_us;
    bool (*is_there) (void *user, const EcfsStripeRow *stripe);
    /* Whether content can be read from the stripes that an object has; does no I/O, and asks no catalog. */
    bool (*decodes) (void *user, const EcfsObjectRow *object);
    void *user;
} EcfsTakeBack;

/** Makes it the content of a file, and takes what waits for its deletion out of the queue. EIO: too much of it is gone;
 * ESTALE: an object of that name is another. */
bool ecfs_catalog_take_back (EcfsCatalog *self, const EcfsTakeBack *what, GError **error);

/** Stripes (EcfsStripeRow) of an object as it was that may have been deleted since @looked_us: no deletion is queued
 * for them, and some have ended since. None where the object is here. */
GArray *ecfs_catalog_unsure (EcfsCatalog *self, const EcfsObjectRow *was, int64_t looked_us, GError **error);

#define ECFS_LEAVING_MAX 8

typedef struct EcfsPublish {
    uint64_t ino;
    const int64_t *intents;              /* n_objects: the intent of each object */
    const EcfsObjectRow *const *objects; /* with the stripes that are stored; ids are ignored */
    size_t n_objects;
    const EcfsExtent *extents; /* their object field indexes @objects */
    size_t n_extents;
    const EcfsLogged *logged; /* in place of objects and extents; NULL: it is in those */
    uint64_t size;            /* of the file */
    int64_t mtime_ns;
    int64_t ctime_ns;       /* 0: now */
    bool keep_mtime;        /* the inode's own stays: it was set behind mtime_ns */
    int64_t staging;        /* row that this commits; 0: none. Older rows of the inode go */
    bool full;              /* staging row goes away; otherwise its state becomes STORED */
    const int64_t *leaving; /* rows of other files that go with this, as ecfs_catalog_staging_remove_all () does it */
    size_t n_leaving;       /* at most ECFS_LEAVING_MAX */
    bool last_goes_on;      /* stripes of the last object are on their way still: its intent stays for them */
    /* Called once the change is made, and not durable yet: what is published from then on is behind it. It must not
     * block, nor call the catalog. May be NULL. */
    void (*made) (void *user);
    void *user;
} EcfsPublish;

/**
 * Durable: one transaction makes the objects the file's whole content, queues what they replace for deletion, ends the
 * intents (their stripes that are not in the objects go to the deletion queue, unless the intent is to stay). ESTALE
 * when the inode, an intent or the staging row is gone (nlink 0 is not gone); EAGAIN when the log or pack is, or
 * the log is closed; EINVAL when a stripe was not announced or an extent is impossible. Then nothing has changed, and
 * the intents are the caller's to abort.
 *
 * EROFS with *ret_kept (may be NULL): the COMMIT failed, and the publish is among the changes that are kept. It is the
 * file's content for everybody from now on, and durable when ecfs_catalog_barrier () returns true; a crash before that
 * brings back what was there before.
 */
bool ecfs_catalog_publish (EcfsCatalog *self, const EcfsPublish *publish, bool *ret_kept, GError **error);
/**
 * The same of the content of @n different files, with one wait for all. What cannot be published has its reason in
 * @ret_errors (n, NULL before), and is in no other's way. *ret_kept is of all others.
 */
bool ecfs_catalog_publish_some (EcfsCatalog *self, const EcfsPublish *publishes, size_t n, GError **ret_errors,
                                bool *ret_kept, GError **error);

/* Logs and packs: an object for many files */

/**
 * Durable: a new log, before its first byte is stored; its stripes need index, instance and endpoint, and get no size
 * before it is closed. Gives it epoch and sequence. EAGAIN: an endpoint is not active any more.
 *
 * An intent without stripes says that it is open, and whose it is: who else has the archive open leaves it where it is.
 * With its member that ends, too (ecfs_catalog_intents_abort_dead ()). *ret_intent is set where it succeeds.
 */
bool ecfs_catalog_log_begin (EcfsCatalog *self, EcfsObjectRow *log, int64_t *ret_intent, GError **error);
/** Nothing more comes into the log, whoever has it open: what that still publishes in it fails with EAGAIN. Not durable
 * by itself. Nothing happens where it is closed, or gone. */
bool ecfs_catalog_log_close (EcfsCatalog *self, const EcfsUuid *log, GError **error);
/** The stripe @index has only the first @bytes of the log. */
bool ecfs_catalog_log_stripe_ends (EcfsCatalog *self, const EcfsUuid *log, unsigned index, uint64_t bytes,
                                   GError **error);
/** Row ids of the objects of a kind above @after, in order, at most @max; with @ended those that have no intent:
 * nothing is on its way into them, whoever has the archive open. GArray of int64_t. */
GArray *ecfs_catalog_objects_of_kind (EcfsCatalog *self, EcfsObjectKind kind, bool ended, int64_t after, size_t max,
                                      GError **error);

/* A file that has content in a shared object, at its beginning. */
typedef struct EcfsSharer {
    uint64_t ino;
    EcfsExtent extent; /* at the beginning of the file */
} EcfsSharer;

/** The files that have a range of an object, above @after_ino, at most @max; GArray of EcfsSharer. */
GArray *ecfs_catalog_sharers (EcfsCatalog *self, int64_t object, uint64_t after_ino, size_t max, GError **error);

/** Durable: a pack, whose files are to come. Its intent stays until then. */
bool ecfs_catalog_pack_begin (EcfsCatalog *self, const EcfsObjectRow *pack, int64_t intent, GError **error);

#define ECFS_PACK_MOVES_MAX 512

/* Content that a pack has. */
typedef struct EcfsPackMove {
    uint64_t ino;
    uint64_t length;
    uint64_t from; /* where it is in the object that it was read from */
    uint64_t to;   /* … and in the pack */
    uint64_t generation;
    uint8_t sha256[ECFS_SHA256_SIZE];
    bool is_known; /* the file's extent has the two already */
    bool moved;    /* set: the file has it in the pack now; else it is another's, or other content, by now */
} EcfsPackMove;

/**
 * Compare-and-set for each of @moves, at most ECFS_PACK_MOVES_MAX: a file that still has its content in @object, there
 * and as long, has it in the pack from now on. Objects that nobody names then go, but for logs.
 */
bool ecfs_catalog_pack_move (EcfsCatalog *self, const EcfsUuid *pack, const EcfsUuid *object, EcfsPackMove *moves,
                             size_t n_moves, GError **error);
/** The last was moved: the intent ends, and with it the pack where nothing was. */
bool ecfs_catalog_pack_end (EcfsCatalog *self, const EcfsUuid *pack, int64_t intent, GError **error);
/** A log or pack goes where no file has anything of it, and no intent. *ret_gone: it was so. */
bool ecfs_catalog_drop_unused (EcfsCatalog *self, const EcfsUuid *object, bool *ret_gone, GError **error);
/** How many bytes of an object files have. */
bool ecfs_catalog_live_bytes (EcfsCatalog *self, int64_t object, uint64_t *ret_bytes, GError **error);
/** How many files have something of an object. */
bool ecfs_catalog_object_files (EcfsCatalog *self, int64_t object, uint64_t *ret_n_files, GError **error);
/** Packs with row ids above @after of which at least @percent may be nobody's any more, at most @max; GArray of
 * int64_t. What is noted of that may be too much: ecfs_catalog_live_bytes () tells. */
GArray *ecfs_catalog_dead_packs (EcfsCatalog *self, int64_t after, unsigned percent, size_t max, GError **error);
/** Likewise those of less than @bytes and @n_files. */
GArray *ecfs_catalog_small_packs (EcfsCatalog *self, int64_t after, uint64_t bytes, unsigned n_files, size_t max,
                                  GError **error);

/**
 * Durable compare-and-set for backfill and repair: the object is still there, has at this index the instance
 * @old_instance (0: none), and fewer than @max_per_endpoint others at the endpoint of @stripe → it gets @stripe, which
 * leaves the intent it was announced with; the intent ends with its last stripe. ESTALE otherwise: the intent's stripes
 * with this index (all, when the object is gone) go to the deletion queue.
 */
bool ecfs_catalog_stripe_set (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe,
                              uint64_t old_instance, unsigned max_per_endpoint, int64_t intent, GError **error);

/**
 * Durable compare-and-set for a stripe that is at its endpoint, and that nothing knows: the object has at this index
 * the instance @old_instance, with the same digest → @stripe takes its place; or @old_instance is 0, and the object
 * lacks it → it gets it. ESTALE otherwise, or where something knows it.
 */
bool ecfs_catalog_stripe_adopt (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe,
                                uint64_t old_instance, GError **error);

/**
 * Durable compare-and-set for another code: one transaction puts @object, which has the same bytes, in the place of the
 * object @old in every file that names it, and queues the stripes of @old for deletion; @intent ends as by
 * ecfs_catalog_publish (). Nothing of the files changes but where their bytes are. ESTALE when @old or the intent is
 * gone, EINVAL when the two differ or a stripe was not announced; then nothing has changed.
 */
bool ecfs_catalog_exchange (EcfsCatalog *self, const EcfsUuid *old, const EcfsObjectRow *object, int64_t intent,
                            GError **error);

/**
 * Durable compare-and-set for another code whose stripes are the same bytes as far as both codes have them: an object
 * that still has the code @old_code gets @code and, with the ending of @intent (0: there are none), the @stripes that
 * it announced; those that @code does not have go to the deletion queue. ESTALE when the object or the intent is gone,
 * the code is another or there is a stripe at an index of one of @stripes. Then nothing has changed.
 */
bool ecfs_catalog_set_object_code (EcfsCatalog *self, const EcfsUuid *object, const char *old_code, const char *code,
                                   const GArray *stripes, int64_t intent, GError **error);

#endif
