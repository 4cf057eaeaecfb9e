/* Contents: extents, their objects with the stripes, the endpoints of these, and what is stored or deleted. */
#ifndef ECFS_CATALOG_CONTENT_PRIV_H
#define ECFS_CATALOG_CONTENT_PRIV_H

#include "catalog/namespace_priv.h"

/* Tables that number their rows, for ecfs_next_id (). */

/* content.c */

/** Removes extents (all, or what lies above @size) and queues objects that lose their last one. */
bool ecfs_content_remove (EcfsCatalog *self, uint64_t ino, GError **error);
/** Counts a file that loses content which it had. */
void ecfs_content_note_lost (EcfsCatalog *self, uint64_t ino);
/**
 * @inode takes the place of @replaced with content that is not stored yet: what @replaced has is its content until
 * then. Nothing happens where @inode has stored content of its own.
 */
bool ecfs_content_adopt (EcfsCatalog *self, Inode *inode, const Inode *replaced, GError **error);
bool ecfs_content_truncate (EcfsCatalog *self, Inode *inode, uint64_t size, GError **error);

/** Reads EXTENT_COLUMNS; false: they are impossible. */
bool ecfs_extent_read (EcfsQuery *query, EcfsExtent *ret_extent);
/** The extents of a file, whatever else is known of it. */
GArray *ecfs_extents_list (EcfsCatalog *self, uint64_t ino, GError **error);
/** Sets data_bytes and extents_sum of the inode from its extents: before it is stored, wherever these have changed. */
bool ecfs_content_count (EcfsCatalog *self, Inode *inode, GError **error);
/** The same, where @extents (of EcfsExtent) are known. */
void ecfs_content_sum (Inode *inode, const GArray *extents);
bool ecfs_content_journal (EcfsCatalog *self, const Inode *inode, GError **error);

/** The object that was named last: many files in a row have one. */
typedef struct ObjectName {
    int64_t id; /* 0: none was */
    EcfsUuid uuid;
} ObjectName;

/** The same, where @extents are known. */
bool ecfs_content_put (EcfsCatalog *self, const Inode *inode, const GArray *extents, ObjectName *last, GError **error);

/* objects.c */

/** Of the objects that @extents named, those that nothing names now are deleted, but for shared ones: of these it is
 * noted how much is nobody's any more. */
bool ecfs_objects_release (EcfsCatalog *self, const GArray *extents, GError **error);
EcfsObjectRow *ecfs_object_find (EcfsCatalog *self, const EcfsUuid *uuid, int *ret_found, GError **error);
/** The same without its stripes. */
EcfsObjectRow *ecfs_object_find_bare (EcfsCatalog *self, const EcfsUuid *uuid, int *ret_found, GError **error);
/** The object in the current row of a query for OBJECT_COLUMNS, with its stripes. */
EcfsObjectRow *ecfs_object_load (EcfsCatalog *self, EcfsQuery *query, GError **error);
/** Those of all rows that are left. GPtrArray with free function. */
GPtrArray *ecfs_objects_load (EcfsCatalog *self, EcfsQuery *query, GError **error);
bool ecfs_object_check (const EcfsObjectRow *object, GError **error);
/** Removes an object and queues its stripes for deletion. */
bool ecfs_object_delete (EcfsCatalog *self, int64_t object, GError **error);
/** The object becomes that of an intent, which stays with @goes_on, for stripes that are to come. */
bool ecfs_object_publish (EcfsCatalog *self, const EcfsObjectRow *object, int64_t intent, bool goes_on, int64_t *ret_id,
                          GError **error);
/** Counts @bytes in @total. EFBIG: the total would be impossible, as no record that is true makes it. */
bool ecfs_total_add (uint64_t *total, uint64_t bytes, GError **error);
bool ecfs_object_insert (EcfsCatalog *self, const EcfsObjectRow *object, int64_t *ret_id, GError **error);
bool ecfs_object_journal (EcfsCatalog *self, const EcfsObjectRow *object, GError **error);
/** Gives an object, whose stripes have been taken from it, the code and the stripes of @new. Its key stays. */
bool ecfs_object_renew (EcfsCatalog *self, const EcfsObjectRow *old, const EcfsObjectRow *new, GError **error);
/** Puts a stripe in the place of @old (NULL: there was none), which is queued for deletion. */
bool ecfs_stripe_swap (EcfsCatalog *self, const EcfsObjectRow *object, const EcfsStripeRow *stripe,
                       const EcfsStripeRow *old, GError **error);
/** The n of a code: the sum of the numbers behind the colon ("rs:4+2", "copies:3"); 0: the text has none. */
guint ecfs_code_n (const char *code);
const EcfsStripeRow *ecfs_stripe_at (const EcfsObjectRow *object, unsigned index);

/* shared.c */

/** Within an operation: a log or pack goes where nothing names it. 1, 0, -1. */
int ecfs_shared_drop_unused (EcfsCatalog *self, const EcfsUuid *object, GError **error);
/** The log gets the end and the ends of copies that @told has. */
bool ecfs_log_extend (EcfsCatalog *self, const EcfsObjectRow *log, const EcfsObjectRow *told, GError **error);
/** What a record of PACKED tells. */
bool ecfs_shared_restore (EcfsCatalog *self, const EcfsJournalItem *item, GError **error);
/** So far it is known which records of a log count; never less than before. */
bool ecfs_log_set_end (EcfsCatalog *self, const EcfsObjectRow *log, uint64_t end, GError **error);
/** The content of an inode, which has none, becomes what a record of a log has: *ret_extent. */
bool ecfs_logged_insert (EcfsCatalog *self, uint64_t ino, uint64_t size, const EcfsLogged *logged,
                         EcfsExtent *ret_extent, GError **error);

/* past.c */

/** Keeps what an object is, whose stripes were queued as REMOVED and whose row goes. */
bool ecfs_past_keep (EcfsCatalog *self, const EcfsObjectRow *object, GError **error);
/** *ret_found: 1, 0, or -1 with @error. */
EcfsObjectRow *ecfs_past_find (EcfsCatalog *self, const EcfsUuid *uuid, int *ret_found, GError **error);
/** It is no object of the past any more; stripes that do not come back wait for their deletion all the same. */
bool ecfs_past_take (EcfsCatalog *self, const EcfsUuid *uuid, GError **error);
/** As ecfs_stripe_swap (): what comes waits for its deletion as @old did, or as its other stripes do. */
bool ecfs_past_stripe_swap (EcfsCatalog *self, const EcfsObjectRow *object, const EcfsStripeRow *stripe,
                            const EcfsStripeRow *old, GError **error);

/* pending.c */

/** Sets what a MARK tells, or takes away what a MARK_REMOVED does. */
bool ecfs_mark_restore (EcfsCatalog *self, const EcfsJournalItem *item, GError **error);

/** Queues one stripe for deletion. */
bool ecfs_deletion_queue (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe, EcfsDeletionKind kind,
                          GError **error);

typedef struct Intent {
    EcfsUuid object;
    uint32_t epoch;
    uint64_t sequence;
    GArray *stripes; /* of EcfsStripeRow; owned */
} Intent;

/** 1; 0: there is none; -1. To be cleared. */
int ecfs_intent_get (EcfsCatalog *self, int64_t id, Intent *ret_intent, GError **error);
/** A new one, without stripes; the journal does not tell of it. */
bool ecfs_intent_insert (EcfsCatalog *self, const EcfsUuid *object, uint64_t ino, int64_t *ret_intent, GError **error);
void ecfs_intent_clear (Intent *intent);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Intent, ecfs_intent_clear)
/** Ends an intent; its stripes that are not in @kept (of EcfsStripeRow, may be NULL) go to the deletion queue. */
bool ecfs_intent_end (EcfsCatalog *self, int64_t id, const Intent *intent, const GArray *kept, GError **error);
/** Whether @stripes has this index with this instance on this endpoint. */
bool ecfs_stripes_have (const GArray *stripes, const EcfsStripeRow *stripe);
/** EINVAL unless index, instance and endpoint are possible. */
bool ecfs_stripe_check (const EcfsStripeRow *stripe, GError **error);

/* endpoints.c */

/** The UUID of an endpoint; ENOENT. */
bool ecfs_endpoint_uuid (EcfsCatalog *self, int64_t endpoint, EcfsUuid *ret_uuid, GError **error);
/** That an endpoint is there and takes stripes; ENOENT, EAGAIN. */
bool ecfs_endpoint_check_active (EcfsCatalog *self, int64_t endpoint, GError **error);
/** Makes it one that was removed, under the name that it has from then on. */
bool ecfs_endpoint_row_retire (EcfsCatalog *self, int64_t id, const char *name, GError **error);

/* staging.c */

bool ecfs_staging_insert (EcfsCatalog *self, uint64_t ino, bool fresh, int64_t *ret_staging, GError **error);
/** Whether the inode has bytes in staging that were flushed and are not committed: 1, 0, -1. */
int ecfs_staging_queued (EcfsCatalog *self, uint64_t ino, GError **error);
/** Whether the inode has bytes in staging that are not committed: 1, 0, -1. */
int ecfs_staging_unstored (EcfsCatalog *self, uint64_t ino, GError **error);
/** After a publish: the row goes (@full) or becomes STORED. */
bool ecfs_staging_published (EcfsCatalog *self, int64_t staging, uint64_t ino, bool full, GError **error);

#define STAGING_ROWS ECFS_LEAVING_MAX /* as many can be asked for ahead */

/* Rows that are to go, and whether they are there. */
typedef struct StagingRows {
    EcfsStagingRow row[STAGING_ROWS];
    int found[STAGING_ROWS];
    size_t n;
} StagingRows;

/** In this order, the last two within an operation: what was asked for ahead is looked at before any row is changed. */
void ecfs_staging_ahead (const int64_t *ids, size_t n);
bool ecfs_staging_find_rows (EcfsCatalog *self, const int64_t *ids, size_t n, StagingRows *ret_rows, GError **error);
bool ecfs_staging_drop_rows (EcfsCatalog *self, const StagingRows *rows, GError **error);
bool ecfs_staging_drop_inode (EcfsCatalog *self, uint64_t ino, GError **error);

#endif
