/* A catalog as the records of a journal that would make it. */
#include "catalog/content_priv.h"

#include <inttypes.h>
#include <sys/stat.h>

#define RECORD_BYTES  65536 /* a record ends with the item that makes it this long */
#define SESSIONS_TOLD 100

typedef struct Dump {
    EcfsCatalog *catalog;
    bool (*take) (void *user, const GByteArray *record, GError **error);
    void *user;
    GByteArray *record; /* of the catalog, which is only read and so has none of its own */
    uint64_t n_objects; /* so far, as the next */
    uint64_t stripe_bytes;
    uint64_t n_inodes;
    uint64_t n_links; /* names that inodes should have */
    uint64_t n_names;
} Dump;

/* Hands the record on when it is long, or the @last of its kind. */
static bool hand_on (Dump *self, bool last, GError **error)
{
    if (self->record->len == 0 || (!last && self->record->len < RECORD_BYTES))
        return true;
    bool taken = self->take (self->user, self->record, error);
    g_byte_array_set_size (self->record, 0);
    return taken;
}

static bool dump_endpoints (Dump *self, GError **error)
{
    autoquery *query = ecfs_query (self->catalog, STMT_ENDPOINT_LIST_ALL, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self->catalog, query, error)) == 1) {
        EcfsUuid uuid;
        const char *name = ecfs_column_text (query, 2);
        if (name == NULL || !ecfs_column_bytes (query, 1, uuid.bytes, sizeof uuid.bytes))
            return ecfs_bad_row (error, "endpoints", ecfs_column_number (query, 0), "is impossible");
        EcfsEndpointState state = (EcfsEndpointState) ecfs_column_number (query, 3);
        if (state == ECFS_ENDPOINT_REMOVED)
            ecfs_journal_put_endpoint_removed (self->record, &uuid, name);
        else
            ecfs_journal_put_endpoint (self->record, &uuid, state, name);
    }
    return found == 0;
}

static bool dump_texts (Dump *self, GError **error)
{
    autoquery *settings = ecfs_query (self->catalog, STMT_SETTING_LIST, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self->catalog, settings, error)) == 1)
        ecfs_journal_put_setting (self->record, ecfs_column_text (settings, 0), ecfs_column_text (settings, 1));
    if (found < 0)
        return false;
    autoquery *codes = ecfs_query (self->catalog, STMT_CODE_LIST, NULL, 0, error);
    while ((found = ecfs_query_step (self->catalog, codes, error)) == 1)
        ecfs_journal_put_code (self->record, ecfs_column_text (codes, 0), ecfs_column_blob (codes, 1),
                               ecfs_column_size (codes, 1));
    return found == 0;
}

static bool dump_objects (Dump *self, GError **error)
{
    autoquery *query = QUERY (self->catalog, OBJECT_LIST, error, INT (0), INT (-1));
    int found;
    while ((found = ecfs_query_step (self->catalog, query, error)) == 1) {
        g_autoptr (EcfsObjectRow) object = ecfs_object_load (self->catalog, query, error);
        if (object == NULL || !ecfs_object_journal (self->catalog, object, error) || !hand_on (self, false, error))
            return false;
        self->n_objects++;
        for (guint i = 0; i < object->stripes->len; i++)
            self->stripe_bytes += g_array_index (object->stripes, EcfsStripeRow, i).size;
    }
    return found == 0;
}

/* Extents in the order of their inodes. */
typedef struct ExtentWalk {
    EcfsQuery *query;
    int found;
    ObjectName last;
    GArray *extents; /* of the inode that was asked for last */
} ExtentWalk;

/* Those of an inode behind the last that was asked for. */
static bool walk_to (Dump *self, ExtentWalk *walk, uint64_t ino, GError **error)
{
    uint64_t end = 0;
    g_array_set_size (walk->extents, 0);
    for (; walk->found == 1; walk->found = ecfs_query_step (self->catalog, walk->query, error)) {
        EcfsExtent extent;
        uint64_t of = (uint64_t) ecfs_column_number (walk->query, 6);
        if (of > ino)
            break;
        if (of < ino)
            continue;
        if (!ecfs_extent_read (walk->query, &extent) || extent.offset < end)
            return ecfs_bad_row (error, "extents", (int64_t) ino, "an extent is impossible");
        end = extent.offset + extent.length;
        g_array_append_val (walk->extents, extent);
    }
    return walk->found >= 0;
}

static bool dump_content (Dump *self, ExtentWalk *walk, const Inode *inode, GError **error)
{
    return walk_to (self, walk, inode->attr.ino, error) &&
           ecfs_content_put (self->catalog, inode, walk->extents, &walk->last, error);
}

/* A file whose first content is not committed has no CONTENT: it does not come back as an empty one. */
static bool dump_inodes_with (Dump *self, ExtentWalk *walk, GError **error)
{
    autoquery *query = ecfs_query (self->catalog, STMT_INODE_LIST, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self->catalog, query, error)) == 1) {
        Inode inode;
        if (!ecfs_inode_from_row (query, 0, &inode, error))
            return false;
        bool fresh = ecfs_column_number (query, N_INODE_COLUMNS + 1) != 0 && inode.committed_size == 0;
        EcfsAttr attr = ecfs_inode_committed (&inode);
        ecfs_journal_put_inode (self->record, &attr, inode.has_code ? inode.code : NULL);
        g_autofree char *target =
            g_strndup (ecfs_column_blob (query, N_INODE_COLUMNS), ecfs_column_size (query, N_INODE_COLUMNS));
        if (S_ISLNK (attr.mode) && target != NULL)
            ecfs_journal_put_target (self->record, attr.ino, target);
        if (S_ISREG (attr.mode) && !fresh && !dump_content (self, walk, &inode, error))
            return false;
        self->n_inodes++;
        self->n_links += !S_ISDIR (attr.mode) ? attr.nlink : attr.ino != ECFS_ROOT_INO && attr.nlink > 0;
        if (!hand_on (self, false, error))
            return false;
    }
    return found == 0;
}

static bool dump_inodes (Dump *self, GError **error)
{
    autoquery *query = ecfs_query (self->catalog, STMT_EXTENT_LIST_ALL, NULL, 0, error);
    g_autoptr (GArray) extents = g_array_new (FALSE, TRUE, sizeof (EcfsExtent));
    ExtentWalk walk = {.query = query, .extents = extents};
    walk.found = ecfs_query_step (self->catalog, query, error);
    return walk.found >= 0 && dump_inodes_with (self, &walk, error);
}

static bool dump_xattrs (Dump *self, GError **error)
{
    autoquery *query = ecfs_query (self->catalog, STMT_XATTR_LIST_ALL, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self->catalog, query, error)) == 1) {
        g_autofree char *name = g_strndup (ecfs_column_blob (query, 1), ecfs_column_size (query, 1));
        ecfs_journal_put_xattr_set (self->record, (uint64_t) ecfs_column_number (query, 0), name,
                                    ecfs_column_blob (query, 2), ecfs_column_size (query, 2));
        if (!hand_on (self, false, error))
            return false;
    }
    return found == 0;
}

static bool dump_names (Dump *self, GError **error)
{
    autoquery *query = ecfs_query (self->catalog, STMT_ENTRY_LIST_ALL, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self->catalog, query, error)) == 1) {
        int64_t parent = ecfs_column_number (query, 0);
        g_autofree char *name = ecfs_column_name (query, 1, parent, error);
        if (name == NULL)
            return false;
        ecfs_journal_put_name_added (self->record, (uint64_t) parent, name, (uint64_t) ecfs_column_number (query, 2));
        self->n_names++;
        if (!hand_on (self, false, error))
            return false;
    }
    return found == 0;
}

static bool dump_deletions (Dump *self, GError **error)
{
    autoquery *query = ecfs_query (self->catalog, STMT_DELETION_LIST_ALL, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self->catalog, query, error)) == 1) {
        EcfsUuid object, endpoint;
        EcfsStripeRow stripe = {.index = (uint16_t) ecfs_column_number (query, 2),
                                .instance = (uint64_t) ecfs_column_number (query, 3)};
        if (!ecfs_column_bytes (query, 1, object.bytes, sizeof object.bytes))
            return ecfs_bad_row (error, "deletions", ecfs_column_number (query, 0), "its object is impossible");
        if (!ecfs_endpoint_uuid (self->catalog, ecfs_column_number (query, 4), &endpoint, error))
            return false;
        ecfs_journal_put_deleted (self->record, &object, &stripe, &endpoint);
        if (!hand_on (self, false, error))
            return false;
    }
    return found == 0;
}

static bool dump_intents (Dump *self, GError **error)
{
    autoquery *query = ecfs_query (self->catalog, STMT_INTENT_OPEN, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self->catalog, query, error)) == 1) {
        EcfsUuid object;
        if (!ecfs_column_bytes (query, 0, object.bytes, sizeof object.bytes))
            return ecfs_bad_row (error, "intents", 0, "an object is impossible");
        ecfs_journal_put_intent (self->record, &object, (uint64_t) ecfs_column_number (query, 1));
    }
    return found == 0;
}

static bool dump_marks (Dump *self, GError **error)
{
    autoquery *query = ecfs_query (self->catalog, STMT_MARK_LIST, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self->catalog, query, error)) == 1) {
        const char *name = ecfs_column_text (query, 0);
        if (name == NULL)
            return ecfs_bad_row (error, "marks", ecfs_column_number (query, 2), "is impossible");
        ecfs_journal_put_mark (self->record, name, (uint32_t) ecfs_column_number (query, 1),
                               (uint64_t) ecfs_column_number (query, 2), ecfs_column_number (query, 3));
    }
    return found == 0;
}

/* Where the journal goes on, and who wrote it: so that whoever has this can tell what continues it. */
static bool dump_origin (Dump *self, uint64_t sequence, GError **error)
{
    uint8_t sum[ECFS_JOURNAL_SUM_BYTES];
    autoquery *query = QUERY (self->catalog, SESSION_LIST, error, INT (SESSIONS_TOLD));
    int found;
    while ((found = ecfs_query_step (self->catalog, query, error)) == 1) {
        EcfsUuid uuid;
        uint64_t number;
        if (!ecfs_column_u64 (query, 0, INT64_MAX, &number) ||
            !ecfs_column_bytes (query, 1, uuid.bytes, sizeof uuid.bytes))
            return ecfs_bad_row (error, "sessions", ecfs_column_number (query, 0), "is impossible");
        ecfs_journal_put_session (self->record, number, &uuid);
    }
    if (found < 0 || !ecfs_last_sum (self->catalog, sequence, sum, error))
        return false;
    ecfs_journal_put_sum (self->record, ECFS_JOURNAL_STANDS, sum);
    return hand_on (self, true, error);
}

/* A dump takes the place of the records before it: of a catalog that somebody took rows from it must not. */
static bool check_whole (const Dump *self, const EcfsTotals *totals, GError **error)
{
    const struct {
        const char *what;
        uint64_t found, counted;
    } all[] = {{"inodes", self->n_inodes, totals->n_inodes},
               {"names", self->n_names, self->n_links},
               {"objects", self->n_objects, totals->n_objects},
               {"bytes of stripes", self->stripe_bytes, totals->stripe_bytes}};
    for (size_t i = 0; i < G_N_ELEMENTS (all); i++)
        if (all[i].found != all[i].counted)
            return ecfs_fail (error, EBADMSG,
                              "catalog %s: it has %" PRIu64 " %s, and should have %" PRIu64
                              ": rows were changed by something else than ecfs; the catalog is "
                              "damaged: " ECFS_CATALOG_ADVICE,
                              self->catalog->path, all[i].found, all[i].what, all[i].counted);
    return true;
}

static bool dump_all (Dump *self, uint64_t *ret_sequence, GError **error)
{
    static bool (*const parts[]) (Dump *, GError **) = {dump_endpoints, dump_texts,   dump_objects,
                                                        dump_inodes,    dump_xattrs,  dump_deletions,
                                                        dump_names,     dump_intents, dump_marks};
    Counters counters;
    if (!ecfs_counters_read (self->catalog, &counters, error))
        return false;
    *ret_sequence = counters.sequence;
    ecfs_journal_put_epoch (self->record, self->catalog->epoch);
    ecfs_journal_put_next_ino (self->record, counters.next_ino);
    for (size_t i = 0; i < G_N_ELEMENTS (parts); i++)
        if (!parts[i](self, error) || !hand_on (self, true, error))
            return false;
    return check_whole (self, &counters.totals, error) && dump_origin (self, *ret_sequence, error);
}

static bool dump (Dump *self, uint64_t *ret_sequence, GError **error)
{
    const EcfsCatalog *catalog = self->catalog;
    if (!catalog->reading) /* what it told would be of several moments */
        return ecfs_fail (error, EIO, "catalog %s: it cannot be read as it is at one moment", catalog->path);
    bool ok = dump_all (self, ret_sequence, error);
    g_byte_array_set_size (self->record, 0);
    return ok;
}

bool ecfs_catalog_dump (EcfsCatalog *self, bool (*take) (void *user, const GByteArray *record, GError **error),
                        void *user, uint64_t *ret_sequence, GError **error)
{
    Dump state = {.catalog = self, .take = take, .user = user, .record = self->record};
    return READ (self, dump (&state, ret_sequence, error));
}
