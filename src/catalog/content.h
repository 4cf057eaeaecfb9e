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
} EcfsExtent;

/** The extents of a file in order, GArray of EcfsExtent; what they leave out below the file's size are holes. */
GArray *ecfs_catalog_extents (EcfsCatalog *self, uint64_t ino, GError **error);
/** The same, and the size of the committed content at the same moment: attributes show that of newer staged bytes. */
GArray *ecfs_catalog_content (EcfsCatalog *self, uint64_t ino, uint64_t *ret_size, GError **error);

/* Objects */

typedef struct EcfsStripeRow {
    uint16_t index;                   /* 0..n-1 */
    uint64_t instance;                /* random: a fresh one for every upload or rebuild */
    int64_t endpoint;                 /* row id */
    uint64_t size;                    /* bytes of the stripe file */
    uint8_t digest[ECFS_DIGEST_SIZE]; /* of its packet area */
} EcfsStripeRow;

/* A descriptor: what is needed to find and decode an object. */
typedef struct EcfsObjectRow {
    int64_t id; /* 0: not in the catalog yet */
    EcfsUuid uuid;
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

EcfsObjectRow *ecfs_object_row_new (void);
EcfsObjectRow *ecfs_object_row_copy (const EcfsObjectRow *row);
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
/** The same by UUID, which is the order in which endpoints have them. */
GPtrArray *ecfs_catalog_objects_by_uuid (EcfsCatalog *self, const EcfsUuid *after, size_t max, GError **error);
/** Gives an object that has none the SHA-256 of its content, which the caller has compared with its digest. Nothing
 * happens where the object is gone or has one. */
bool ecfs_catalog_object_set_sha256 (EcfsCatalog *self, const EcfsUuid *object, const uint8_t sha256[ECFS_SHA256_SIZE],
                                     GError **error);

/* How objects become content, and change */

typedef struct EcfsPublish {
    uint64_t ino;
    const int64_t *intents;              /* n_objects: the intent of each object */
    const EcfsObjectRow *const *objects; /* with the stripes that are stored; ids are ignored */
    size_t n_objects;
    const EcfsExtent *extents; /* their object field indexes @objects */
    size_t n_extents;
    uint64_t size;     /* of the file */
    int64_t mtime_ns;  /* and ctime becomes now */
    bool keep_mtime;   /* the inode's own stays: it was set behind mtime_ns */
    int64_t staging;   /* row that this commits; 0: none. Older rows of the inode go */
    bool full;         /* staging row goes away; otherwise its state becomes STORED */
    bool last_goes_on; /* stripes of the last object are on their way still: its intent stays for them */
} EcfsPublish;

/**
 * Durable: one transaction makes the objects the file's whole content, queues what they replace for deletion, ends the
 * intents (their stripes that are not in the objects go to the deletion queue, unless the intent is to stay). ESTALE
 * when the inode, an intent or the staging row is gone (nlink 0 is not gone); EINVAL when a stripe was not announced or
 * an extent is impossible. Then nothing has changed, and the intents are the caller's to abort.
 *
 * EROFS with *ret_kept (may be NULL): the COMMIT failed, and the publish is among the changes that are kept. It is the
 * file's content for everybody from now on, and durable when ecfs_catalog_barrier () returns true; a crash before that
 * brings back what was there before.
 */
bool ecfs_catalog_publish (EcfsCatalog *self, const EcfsPublish *publish, bool *ret_kept, GError **error);

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
 * the instance @old_instance, with the same digest → @stripe takes its place. ESTALE otherwise, or where something
 * knows it.
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
