/*
 * The catalog is the database of the namespace (inodes, names, extended attributes, extents), of the objects and where
 * their stripes are, and of work that must survive a crash (intents, staging, deletions). This implementation is
 * SQLite: WAL, synchronous=FULL, foreign keys, STRICT tables, names as BLOBs, migrations by user_version.
 *
 * Durability: namespace operations are visible to every later call at once and share a transaction that is committed
 * at most ECFS_CATALOG_GROUP_MS later (group commit). Functions marked *durable* return when their change, and so all
 * changes before it, are on disk; ecfs_catalog_barrier () waits for that alone. A crash leaves a prefix of the
 * operations. When COMMIT fails the changes stay in memory and visible, it is retried each second, and until it
 * succeeds further changes get EROFS with the reason, or ENOSPC where that is a full disk. A durable call whose COMMIT
 * fails returns the same; its change is then among those kept, and may become durable later: what it announced or
 * published must not be undone behind its back. EIO means that even keeping them failed: a critical message said so,
 * and only reopening helps.
 *
 * Journal: every change of the namespace appends one record with the next sequence number to the journal table in the
 * same transaction (journal.h); its segments travel to the endpoints.
 *
 * Threads: all functions may be called from any thread; the catalog serialises them on its own lock, held over SQLite
 * only. Readers in other processes open the same file with ECFS_CATALOG_READONLY and see what is committed. A writer
 * has a thread: open it after fork (2).
 *
 * Errors: ENOENT, EEXIST, ENOTDIR, EISDIR, ENOTEMPTY, EMLINK, ENAMETOOLONG, ENODATA (no such xattr), EINVAL, EROFS as
 * POSIX has them; EBADMSG: the database is damaged (the text says what to do); ENOTSUP: it was made
 * by a later ecfs; ESTALE: a compare-and-set found another state. Bytes in rows are not trusted: sizes, codes and
 * digests are checked.
 */
#ifndef ECFS_CATALOG_CATALOG_H
#define ECFS_CATALOG_CATALOG_H

#include "util/error.h"
#include "util/sha256.h"
#include "util/uuid.h"

#include <stddef.h>
#include <stdint.h>

#define ECFS_CATALOG_GROUP_MS 20
#define ECFS_ROOT_INO         1
#define ECFS_NAME_MAX         255
#define ECFS_DIGEST_SIZE      16 /* XXH3-128, canonical (big-endian) bytes */

/* What to do about a catalog that is damaged: an older copy of it would be taken for what the archive is. */
#define ECFS_CATALOG_ADVICE                                                                                            \
    "'ecfs recover' makes a new one from the endpoints; a backup of it lacks all that was stored since"

typedef struct EcfsCatalog EcfsCatalog;

typedef enum EcfsCatalogFlags {
    ECFS_CATALOG_READONLY = 1 << 0,
} EcfsCatalogFlags;

/** Makes a new catalog file (EEXIST when there is one) with a root directory owned by the caller, mode 0755. */
bool ecfs_catalog_create (const char *path, const EcfsUuid *archive, GError **error);

/** Opens it, migrating older versions unless read-only. Refuses files on NFS (SQLite's WAL does not work there). */
EcfsCatalog *ecfs_catalog_open (const char *path, unsigned flags, GError **error);

/** From now on every change that would go into the journal fails with EROFS and @reason; the first call counts. */
void ecfs_catalog_refuse (EcfsCatalog *self, const char *reason);

/** Changes are taken again after ecfs_catalog_refuse (). */
void ecfs_catalog_allow (EcfsCatalog *self);

/** Commits and closes; false when the last COMMIT failed. NULL is accepted. */
bool ecfs_catalog_close (EcfsCatalog *self, GError **error);

/** Durable: everything before this call is on disk when it returns true. After a failed COMMIT it tries at once. */
bool ecfs_catalog_barrier (EcfsCatalog *self, GError **error);

const EcfsUuid *ecfs_catalog_archive (const EcfsCatalog *self);
uint32_t ecfs_catalog_epoch (const EcfsCatalog *self);
/** The last sequence number given out. */
uint64_t ecfs_catalog_sequence (EcfsCatalog *self);
/** The number that the next inode gets: all inodes that ever were have smaller ones. */
bool ecfs_catalog_next_ino (EcfsCatalog *self, uint64_t *ret_ino, GError **error);

/* Namespace */

typedef struct EcfsAttr {
    uint64_t ino;  /* never reused */
    uint32_t mode; /* type and permissions as in st_mode */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint64_t rdev;
    uint64_t size; /* bytes: of content (staged, if there is such) for files, of the target for symlinks, else 0 */
    uint64_t data_bytes; /* of committed content, without its holes */
    int64_t atime_ns;
    int64_t mtime_ns;
    int64_t ctime_ns;
    int64_t btime_ns;
} EcfsAttr;

typedef enum EcfsAttrMask {
    ECFS_ATTR_MODE = 1 << 0, /* permission bits only: the type stays */
    ECFS_ATTR_UID = 1 << 1,
    ECFS_ATTR_GID = 1 << 2,
    ECFS_ATTR_SIZE = 1 << 3,
    ECFS_ATTR_ATIME = 1 << 4,
    ECFS_ATTR_MTIME = 1 << 5,
    ECFS_ATTR_CTIME = 1 << 6,
} EcfsAttrMask;

/* Names are byte strings of 1..255 bytes without '/' and NUL, given as C strings. */

bool ecfs_catalog_lookup (EcfsCatalog *self, uint64_t parent, const char *name, EcfsAttr *ret_attr, GError **error);
bool ecfs_catalog_getattr (EcfsCatalog *self, uint64_t ino, EcfsAttr *ret_attr, GError **error);

/**
 * Sets the fields in @mask (ECFS_ATTR_*) from @attr; ctime becomes now unless ECFS_ATTR_CTIME gives it. While the inode
 * has a staging row that is not STORED a size is that of the staged bytes; otherwise it truncates or extends the
 * committed content. EISDIR, EINVAL when that is asked of something else than a regular file.
 */
bool ecfs_catalog_setattr (EcfsCatalog *self, uint64_t ino, const EcfsAttr *attr, unsigned mask, EcfsAttr *ret_attr,
                           GError **error);

/* What a new inode starts with. Its times are now; a file's code is that of the nearest directory above. */
typedef struct EcfsNewInode {
    uint32_t mode; /* with type; set-group-id inheritance is done by the catalog as in a Linux directory */
    uint32_t uid;
    uint32_t gid;
    uint64_t rdev;
    const char *target; /* of a symlink; NULL otherwise */
    bool staged;        /* a regular file that gets a staging row in the same transaction, state OPEN, fresh */
} EcfsNewInode;

/**
 * Makes a file, directory, symlink, device, fifo or socket. EEXIST. @ret_staging (may be NULL): the staging row's id.
 * @name NULL, not for directories and what is staged: an inode with nlink 0 as if it were made in @parent, which gets
 * its name by ecfs_catalog_link_over () and is dropped by ecfs_catalog_drop () or at the next mount when it never does.
 */
bool ecfs_catalog_make (EcfsCatalog *self, uint64_t parent, const char *name, const EcfsNewInode *inode,
                        EcfsAttr *ret_attr, int64_t *ret_staging, GError **error);

bool ecfs_catalog_link (EcfsCatalog *self, uint64_t ino, uint64_t parent, const char *name, EcfsAttr *ret_attr,
                        GError **error);

/**
 * Gives an inode, which may have nlink 0, a name in place of what has this name; at once, so nobody finds the name
 * missing. *ret_replaced is what lost it, as of ecfs_catalog_rename (). EISDIR when that is a directory. Nothing
 * happens when the name is the inode's already.
 */
bool ecfs_catalog_link_over (EcfsCatalog *self, uint64_t ino, uint64_t parent, const char *name, EcfsAttr *ret_replaced,
                             GError **error);

/** Removes a name that is no directory. The inode stays with nlink 0 until ecfs_catalog_drop () when that was its last.
 */
bool ecfs_catalog_unlink (EcfsCatalog *self, uint64_t parent, const char *name, EcfsAttr *ret_attr, GError **error);
/** Removes an empty directory; its inode stays with nlink 0 until ecfs_catalog_drop (). */
bool ecfs_catalog_rmdir (EcfsCatalog *self, uint64_t parent, const char *name, EcfsAttr *ret_attr, GError **error);

/**
 * rename(2) with renameat2's RENAME_NOREPLACE and RENAME_EXCHANGE in @flags. A directory is never moved below itself
 * (EINVAL). *ret_replaced is the inode that lost its name (nlink may be 0: drop it when nothing has it open), or has
 * ino 0. Renaming onto another name of the same inode does nothing.
 */
bool ecfs_catalog_rename (EcfsCatalog *self, uint64_t parent, const char *name, uint64_t new_parent,
                          const char *new_name, unsigned flags, EcfsAttr *ret_replaced, GError **error);

/** The target, g_free (). */
char *ecfs_catalog_readlink (EcfsCatalog *self, uint64_t ino, GError **error);

/**
 * Deletes an inode with nlink 0 with its extents, xattrs and staging rows; objects that nothing else names go to the
 * deletion queue. Not an error when nlink is above 0 or it is gone: nothing happens.
 */
bool ecfs_catalog_drop (EcfsCatalog *self, uint64_t ino, GError **error);

/** Drops every inode with nlink 0: at mount, when nothing is open. */
bool ecfs_catalog_drop_orphans (EcfsCatalog *self, GError **error);

typedef struct EcfsDirent {
    char *name;
    int64_t offset; /* give it as @after to continue after this entry; stable while entries come and go */
    EcfsAttr attr;
} EcfsDirent;

/**
 * Up to @max entries of a directory with offsets above @after (0: from the start), in offset order, without "." and
 * "..". Returns an array of EcfsDirent with free function, empty at the end.
 */
GPtrArray *ecfs_catalog_readdir (EcfsCatalog *self, uint64_t ino, int64_t after, size_t max, GError **error);

/** The highest offset that an entry of any directory has until now; what is made later has higher ones. */
int64_t ecfs_catalog_last_offset (EcfsCatalog *self);

/** The parent of a directory (the root's is the root). */
bool ecfs_catalog_parent (EcfsCatalog *self, uint64_t ino, uint64_t *ret_parent, GError **error);

/** One path of an inode below the root, for messages: "/a/b", or "inode 17 (no name)"; g_free (). Never NULL. */
char *ecfs_catalog_path (EcfsCatalog *self, uint64_t ino);

/** Walks a path of names separated by '/' from the root, not following symlinks. */
bool ecfs_catalog_resolve (EcfsCatalog *self, const char *path, EcfsAttr *ret_attr, GError **error);

/** @flags: XATTR_CREATE, XATTR_REPLACE or 0. */
bool ecfs_catalog_setxattr (EcfsCatalog *self, uint64_t ino, const char *name, const void *value, size_t size,
                            int flags, GError **error);
/** ENODATA when there is none. The array is g_byte_array_unref ()ed by the caller. */
GByteArray *ecfs_catalog_getxattr (EcfsCatalog *self, uint64_t ino, const char *name, GError **error);
/** Names, each with its NUL, one after the other, as listxattr(2) gives them. */
GByteArray *ecfs_catalog_listxattr (EcfsCatalog *self, uint64_t ino, GError **error);
bool ecfs_catalog_removexattr (EcfsCatalog *self, uint64_t ino, const char *name, GError **error);

/**
 * The code chosen for an inode, NULL: the archive's default. A directory has its own or that of the nearest above it
 * that has one, now; a file the one that its directory had when it was made, unless it was set since.
 */
bool ecfs_catalog_get_code (EcfsCatalog *self, uint64_t ino, char **ret_code, GError **error);
/** @code NULL: a directory has none of its own any more; a file the archive's default. Checked by the caller. */
bool ecfs_catalog_set_code (EcfsCatalog *self, uint64_t ino, const char *code, GError **error);

/**
 * Keeps the parameters (1 to 16512 bytes) of a code that objects name, under the text by which they name it; nothing
 * happens when they are kept already. To be called before the first such object is published.
 */
bool ecfs_catalog_keep_code (EcfsCatalog *self, const char *code, const uint8_t *parameters, size_t size,
                             GError **error);

/** The parameters kept for a code; NULL and ENOENT when there are none. g_bytes_unref (). */
GBytes *ecfs_catalog_code (EcfsCatalog *self, const char *code, GError **error);

typedef struct EcfsTotals {
    uint64_t n_inodes;
    uint64_t n_files;
    uint64_t n_objects;
    uint64_t content_bytes; /* sum of object sizes */
    uint64_t stripe_bytes;  /* sum of stripe sizes */
    uint64_t n_staged;      /* staging rows */
    uint64_t n_not_full;    /* objects with fewer stripes than their code has */
    uint64_t n_deletions;   /* stripes waiting for deletion */
    uint64_t journal_records;
} EcfsTotals;

bool ecfs_catalog_totals (EcfsCatalog *self, EcfsTotals *ret_totals, GError **error);

/** Why changes are refused now: COMMIT fails, or changes were lost; NULL: they are not. g_free (). */
char *ecfs_catalog_trouble (EcfsCatalog *self);

/* One record of the journal, for journal.h. */
typedef struct EcfsJournalRow {
    uint64_t sequence;
    int64_t time_ns;
    GByteArray *record; /* owned */
} EcfsJournalRow;

void ecfs_journal_row_free (EcfsJournalRow *row);

/** Up to @max records with sequences above @after, in order; GPtrArray of EcfsJournalRow with free function. */
GPtrArray *ecfs_catalog_journal (EcfsCatalog *self, uint64_t after, size_t max, GError **error);

/** Bytes of the records above @after. */
bool ecfs_catalog_journal_bytes (EcfsCatalog *self, uint64_t after, uint64_t *ret_bytes, GError **error);
/**
 * Forgets records up to @sequence, which are on endpoints and in a snapshot; a few at a time: *ret_more. The newest
 * stays: an endpoint that comes back says with it that it is up to date.
 */
bool ecfs_catalog_journal_drop (EcfsCatalog *self, uint64_t sequence, bool *ret_more, GError **error);

/* How much of the journal an endpoint has: every record up to @sequence, or a snapshot that contains it. */
typedef struct EcfsJournalPlace {
    int64_t endpoint; /* row id */
    uint64_t sequence;
    int64_t time_ns; /* of that record */
} EcfsJournalPlace;

/** GArray of EcfsJournalPlace; endpoints that have nothing are absent. */
GArray *ecfs_catalog_journal_places (EcfsCatalog *self, GError **error);
/** Notes it; never back. */
bool ecfs_catalog_journal_stored (EcfsCatalog *self, const EcfsJournalPlace *place, GError **error);

/* A snapshot that endpoints have in full. */
typedef struct EcfsSnapshotRow {
    uint32_t epoch;
    uint64_t sequence; /* the last that it contains */
    int64_t time_ns;   /* when it was taken */
    uint64_t bytes;    /* of its records */
    uint32_t n_copies; /* endpoints that have it; 0: an earlier ecfs did not note that */
} EcfsSnapshotRow;

/** GArray of EcfsSnapshotRow, newest first. */
GArray *ecfs_catalog_snapshots (EcfsCatalog *self, GError **error);
/** Durable: one more; all but the @keep newest are forgotten. */
bool ecfs_catalog_snapshot_add (EcfsCatalog *self, const EcfsSnapshotRow *row, guint keep, GError **error);

/*
 * Sessions: each opening of the archive that changes something has a number, one higher than the last, and a random
 * UUID, which the markers of the endpoints tell. What they tell that the catalog does not know is of another copy of
 * it.
 */
/** Durable: a session begins. @number is higher than those before; at least the last 1,000 are kept. */
bool ecfs_catalog_session_begin (EcfsCatalog *self, uint64_t number, const EcfsUuid *uuid, GError **error);
/** The number of the last one; 0: there was none. */
bool ecfs_catalog_session_last (EcfsCatalog *self, uint64_t *ret_number, GError **error);
/** Whether a session was one of this catalog, or is older than all that it keeps. */
bool ecfs_catalog_session_known (EcfsCatalog *self, uint64_t number, const EcfsUuid *uuid, bool *ret_known,
                                 GError **error);

/**
 * What a catalog contains, as records of a journal that make it from nothing: given to @take one after the other, in an
 * order in which they can be applied. All of one moment, whose sequence is *ret_sequence before the first. Holds the
 * catalog for as long as it takes: it is to be one that was opened READONLY for this.
 */
bool ecfs_catalog_dump (EcfsCatalog *self, bool (*take) (void *user, const GByteArray *record, GError **error),
                        void *user, uint64_t *ret_sequence, GError **error);

/** Keeps a setting of the archive for whoever has only the journal; nothing happens when it is kept already. */
bool ecfs_catalog_keep_setting (EcfsCatalog *self, const char *key, const char *value, GError **error);
/** A record that changes nothing, so that what is stored from now on has a number of its own. */
bool ecfs_catalog_mark (EcfsCatalog *self, GError **error);
/** Calls @each with every setting that is kept. */
bool ecfs_catalog_settings (EcfsCatalog *self, void (*each) (void *user, const char *key, const char *value),
                            void *user, GError **error);

/** The codes that objects and directories have, each once; it looks at all objects. */
GPtrArray *ecfs_catalog_codes_in_use (EcfsCatalog *self, GError **error);

/** For each code that directories have, one that has it: GArray of uint64_t, their inodes. */
GArray *ecfs_catalog_directories_with_codes (EcfsCatalog *self, GError **error);

/* Content */

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
    uint8_t digest[ECFS_DIGEST_SIZE]; /* of the content */
    bool has_sha256;                  /* not what an ecfs stored that had none, nor what only footers tell of */
    uint8_t sha256[ECFS_SHA256_SIZE]; /* of the content; zero without */
    GArray *stripes;                  /* of EcfsStripeRow, by index; missing ones are absent; owned */
} EcfsObjectRow;

EcfsObjectRow *ecfs_object_row_new (void);
EcfsObjectRow *ecfs_object_row_copy (const EcfsObjectRow *row);
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

/**
 * Durable: writes down which stripes are about to be stored, before their first byte leaves. Gives the object its epoch
 * and sequence (in @object). @object->stripes need index, instance and endpoint only. EAGAIN: one of the endpoints is
 * not active any more; so none has a stripe that was placed there before it was drained and announced after.
 */
bool ecfs_catalog_intent_begin (EcfsCatalog *self, EcfsObjectRow *object, uint64_t ino, int64_t *ret_intent,
                                GError **error);
/** Durable: one more stripe of an intent, for a spare endpoint. */
bool ecfs_catalog_intent_add (EcfsCatalog *self, int64_t intent, const EcfsStripeRow *stripe, GError **error);
/** Gives up: every stripe of the intent goes to the deletion queue, due at once. Nothing happens when it has ended. */
bool ecfs_catalog_intent_abort (EcfsCatalog *self, int64_t intent, GError **error);
/** Aborts all intents: at mount, when nothing is in flight. */
bool ecfs_catalog_intents_abort_all (EcfsCatalog *self, GError **error);

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

/** Durable intent to add stripes to an object that exists already. */
bool ecfs_catalog_intent_more (EcfsCatalog *self, const EcfsObjectRow *object, const EcfsStripeRow *stripes,
                               size_t n_stripes, int64_t *ret_intent, GError **error);

/* Staging */

typedef enum EcfsStagingState {
    ECFS_STAGING_OPEN = 0,   /* being written; not flushed since */
    ECFS_STAGING_QUEUED = 1, /* flushed: is to be committed */
    ECFS_STAGING_STORED = 2, /* committed, kept until its objects are full */
} EcfsStagingState;

typedef struct EcfsStagingRow {
    int64_t id; /* names the file in the staging area */
    uint64_t ino;
    EcfsStagingState state;
    bool fresh; /* the inode never had committed content */
    uint64_t size;
    int64_t since_ns; /* real time of the last change of state */
    char *error;      /* why the last commit failed, or NULL */
} EcfsStagingRow;

void ecfs_staging_row_free (EcfsStagingRow *row);

/** A staging row for an inode that has content already. */
bool ecfs_catalog_staging_add (EcfsCatalog *self, uint64_t ino, int64_t *ret_staging, GError **error);
/**
 * While the state is OPEN or QUEUED the inode shows @size, from QUEUED on also @mtime_ns. What is QUEUED takes the
 * place of older rows of the inode, which go. ENOENT when the row is gone.
 */
bool ecfs_catalog_staging_set (EcfsCatalog *self, int64_t staging, EcfsStagingState state, uint64_t size,
                               int64_t mtime_ns, const char *failure, GError **error);
/** The inode shows its committed size again, unless other bytes of it are staged. Nothing happens when it is gone. */
bool ecfs_catalog_staging_remove (EcfsCatalog *self, int64_t staging, GError **error);
/** All rows, oldest first; GPtrArray of EcfsStagingRow with free function. */
GPtrArray *ecfs_catalog_staging_list (EcfsCatalog *self, GError **error);
/** Whether content of the inode is staged that is not stored. */
bool ecfs_catalog_is_staged (EcfsCatalog *self, uint64_t ino, bool *ret_staged, GError **error);

/* Deletions */

typedef struct EcfsDeletion {
    int64_t id;
    int64_t queued_age_ns;
    EcfsUuid object;
    EcfsStripeRow stripe; /* index, instance, endpoint */
    uint64_t sequence;    /* of the journal record that no longer names it */
    bool uncommitted;     /* announced by an intent, and never in an object: its upload may be half done */
} EcfsDeletion;

/**
 * Up to @max stripes of endpoint @endpoint (row id) that are due at once or were queued at least @grace_ns ago, in an
 * order that does not change; @after NULL: the first, else those after it, which may be gone itself. GArray of
 * EcfsDeletion. Changes of the time of day do not matter; time in which the machine was off may not count.
 */
GArray *ecfs_catalog_deletions (EcfsCatalog *self, int64_t endpoint, int64_t grace_ns, const EcfsDeletion *after,
                                size_t max, GError **error);
/** To be called now and then while deletions wait: the time that has passed outlives a crash of the machine. */
bool ecfs_catalog_note_age (EcfsCatalog *self, GError **error);
/** The stripe is gone (or never was): forget it. */
bool ecfs_catalog_deletion_done (EcfsCatalog *self, int64_t deletion, GError **error);

/* Repairs */

#define ECFS_REPAIRS_MAX 10000 /* stripes that are queued; what is found beyond that is for a scrub to find again */

/* A stripe that was met damaged. It leaves the queue with what takes its place, or with its object. */
typedef struct EcfsRepairRow {
    int64_t object; /* row id */
    uint16_t index;
    uint64_t instance;
    int64_t endpoint; /* row id */
    bool gone;        /* its endpoint has no such file; otherwise its bytes are wrong or too few */
    int64_t found_ns; /* real time */
    char *reason;     /* owned */
} EcfsRepairRow;

/**
 * Queues a stripe, once; of @row all but object, endpoint and time count. Nothing happens when the object does not have
 * this instance any more. *ret_queued: it was not there before. ENOSPC: the queue is full.
 */
bool ecfs_catalog_repair_add (EcfsCatalog *self, const EcfsUuid *object, const EcfsRepairRow *row, bool *ret_queued,
                              GError **error);
/** GArray of EcfsRepairRow by object and index, with clear function; of one @object, or with 0 of all. */
GArray *ecfs_catalog_repairs (EcfsCatalog *self, int64_t object, GError **error);

/* Check */

/* Something impossible; @ino is the inode that it is about, 0: none. */
typedef void (*EcfsCatalogProblem) (void *user, uint64_t ino, const char *text);

/**
 * Looks for what is impossible in a whole catalog: SQLite's own check, references to nothing, extents outside of their
 * object or file, objects that no file has, names and counters that are wrong. Reports of each kind the first hundred;
 * @ino is the inode that it is about, 0: none. Holds the catalog for as long as it takes: it is to be one that was
 * opened READONLY for this. *ret_sound: SQLite finds nothing, so it can be written. False when it could not be read.
 */
bool ecfs_catalog_check (EcfsCatalog *self, EcfsCatalogProblem problem, void *user, bool *ret_sound, GError **error);

/**
 * Up to @max objects by UUID after *after, which moves on. Impossible rows are reported and left out, so there may be
 * fewer although there are @ret_more. GPtrArray with free function; EBADMSG: the table itself cannot be read on.
 */
GPtrArray *ecfs_catalog_walk_objects (EcfsCatalog *self, EcfsUuid *after, size_t max, bool *ret_more,
                                      EcfsCatalogProblem problem, void *user, GError **error);

/**
 * Whether an object has the stripe (index, instance), or an intent announces it, at whatever endpoint: instances are
 * never used twice, so what is found elsewhere is the same stripe, of an endpoint that was copied or came back under
 * another row.
 */
bool ecfs_catalog_stripe_known (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe, bool *ret_known,
                                GError **error);

/** Whether there is such an object, with whatever stripes. */
bool ecfs_catalog_object_known (EcfsCatalog *self, const EcfsUuid *object, bool *ret_known, GError **error);

/** Whether the stripe (index, instance, endpoint) of an object waits to be deleted. */
bool ecfs_catalog_deletion_queued (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe,
                                   bool *ret_queued, GError **error);

/** Whether an object has the stripe (index, instance, endpoint). */
bool ecfs_catalog_stripe_current (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe,
                                  bool *ret_current, GError **error);

/* Endpoints */

typedef enum EcfsEndpointState {
    ECFS_ENDPOINT_ACTIVE = 0,
    ECFS_ENDPOINT_READONLY = 1,
    ECFS_ENDPOINT_DRAINING = 2,
    ECFS_ENDPOINT_FAILED = 3,
    ECFS_ENDPOINT_REMOVED = 4,    /* its row stays so that it is recognised; nothing else mentions it */
    ECFS_ENDPOINT_DISTRUSTED = 5, /* it is there, and nothing that it says is believed: as FAILED otherwise */
} EcfsEndpointState;

typedef struct EcfsEndpointRow {
    int64_t id;
    EcfsUuid uuid;
    char *name;
    EcfsEndpointState state;
} EcfsEndpointRow;

void ecfs_endpoint_row_free (EcfsEndpointRow *row);

/**
 * Durable: puts a new endpoint in the place of one whose place was emptied. The old row is DRAINING from then on, and
 * named *ret_old_name, "NAME (replaced, UUID)", g_free (); the new one, *ret_id, has its name. EBUSY while an intent
 * announces stripes there.
 */
bool ecfs_catalog_endpoint_supersede (EcfsCatalog *self, int64_t old, const EcfsUuid *uuid, int64_t *ret_id,
                                      char **ret_old_name, GError **error);

/** Durable. EEXIST when the name or UUID is known. */
bool ecfs_catalog_endpoint_add (EcfsCatalog *self, const EcfsUuid *uuid, const char *name, int64_t *ret_id,
                                GError **error);
/** Durable. Up to FAILED. */
bool ecfs_catalog_endpoint_set_state (EcfsCatalog *self, int64_t endpoint, EcfsEndpointState state, GError **error);
/** Of EcfsEndpointRow with free function, without those that were removed. */
GPtrArray *ecfs_catalog_endpoints (EcfsCatalog *self, GError **error);

/**
 * Durable: takes an endpoint out. Its name is free then, deletions that wait there are forgotten, some at a time, and
 * stripes can no more be announced there. EBUSY while it is ACTIVE, or an intent announces some; that no object has any
 * is for the caller to see, by ecfs_catalog_stripes_at (), once nothing is placed there any more.
 */
bool ecfs_catalog_endpoint_remove (EcfsCatalog *self, int64_t endpoint, GError **error);
/** Whether an endpoint with this UUID was removed; under which name, g_free (); NULL: it was not. */
bool ecfs_catalog_endpoint_removed (EcfsCatalog *self, const EcfsUuid *uuid, char **ret_name, GError **error);
/** Whether an endpoint of this name was taken out. */
bool ecfs_catalog_endpoint_name_removed (EcfsCatalog *self, const char *name, bool *ret_removed, GError **error);

/* A stripe of an object at a certain endpoint. */
typedef struct EcfsStripeAt {
    int64_t object; /* row id */
    uint16_t index;
    uint64_t instance;
    uint64_t size;
} EcfsStripeAt;

/**
 * The stripes at an endpoint (row id) of some objects with ids above *after, by object: of as many as can be looked at
 * quickly. *after becomes the last that was looked at; *ret_more: there are others after it. GArray of EcfsStripeAt.
 */
GArray *ecfs_catalog_stripes_at (EcfsCatalog *self, int64_t endpoint, int64_t *after, bool *ret_more, GError **error);
/** How many stripes are announced for an endpoint by intents: they may be on their way. */
bool ecfs_catalog_announced_at (EcfsCatalog *self, int64_t endpoint, uint64_t *ret_n_stripes, GError **error);
/** How many stripes wait for their deletion at an endpoint. */
bool ecfs_catalog_deletions_at (EcfsCatalog *self, int64_t endpoint, uint64_t *ret_n_stripes, GError **error);

/* What was last measured of an endpoint: p5, p50 and p95 of each; 0: not known. Of this machine, so no journal has it.
 */
typedef struct EcfsEstimateRow {
    int64_t endpoint; /* row id */
    uint64_t latency_us[3];
    uint64_t read_bytes_per_s[3];
    uint64_t write_bytes_per_s[3];
} EcfsEstimateRow;

bool ecfs_catalog_estimate_set (EcfsCatalog *self, const EcfsEstimateRow *row, GError **error);
/** Figures that are absent or negative are 0; whether the others are possible is for the caller to see. */
bool ecfs_catalog_estimate (EcfsCatalog *self, int64_t endpoint, EcfsEstimateRow *ret_row, GError **error);

#endif
