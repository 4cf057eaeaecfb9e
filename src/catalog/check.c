/* What cannot be in a whole catalog. */
#include "catalog/content_priv.h"
#include "catalog/content_sum.h"

#define MOST      "100" /* of one kind are told */
#define SUM_WORDS "its size or extents are not those that were stored"
#define SUMS_MOST 1000
#define BOTH(sql) sql, sql

/* Where both queued and in use. */
#define IN_USE(queued, hex)                                                                                            \
    "SELECT 0, 'stripe ' || CAST (s.idx AS TEXT) || ' of object ' || " hex " FROM " queued                             \
    " CROSS JOIN stripes s ON s.object = o.id AND s.idx = d.idx "                                                      \
    "WHERE s.instance = d.instance AND s.endpoint = d.endpoint LIMIT " MOST
#define QUEUED    "deletions d CROSS JOIN objects o ON o.uuid = d.object"
#define ANNOUNCED "intent_stripes d CROSS JOIN intents i ON i.id = d.intent CROSS JOIN objects o ON o.uuid = i.object"
#define HEX       "lower (hex (o.uuid))"
#define PG_HEX    "encode (o.uuid, 'hex')"

/* Each row that a query gives is a problem: an inode (0: none), then text that follows the first words. */
static const struct {
    const char *sql;   /* of SQLite; NULL: it cannot be found there, or is found otherwise */
    const char *other; /* of PostgreSQL */
    const char *words;
} checks[] = {
    {"SELECT 0, message FROM (SELECT integrity_check AS message FROM pragma_integrity_check (" MOST ")) "
     "WHERE message <> 'ok'",
     NULL, "SQLite finds: "},
    {"SELECT 0, printf ('table %s, row %s, about table %s', \"table\", ifnull (rowid, '?'), parent) "
     "FROM pragma_foreign_key_check LIMIT " MOST,
     NULL, "a row names another that is not there: "},
    {BOTH (
         "SELECT e.ino, CAST (e.start AS TEXT) FROM extents e JOIN objects o ON o.id = e.object "
         "WHERE e.start < 0 OR e.length <= 0 OR e.object_start < 0 OR e.object_start > o.size - e.length LIMIT " MOST),
     "an extent is not within its object: the one at byte "},
    {BOTH ("SELECT e.ino, CAST (e.start AS TEXT) FROM extents e JOIN inodes i ON i.ino = e.ino "
           "WHERE e.start > i.committed_size - e.length LIMIT " MOST),
     "an extent ends beyond the file: the one at byte "},
    {"SELECT i.ino, '' FROM inodes i LEFT JOIN extents e ON e.ino = i.ino GROUP BY i.ino HAVING i.content_sum <> "
     "ecfs_content_sum (i.ino, i.committed_size, i.data_bytes, e.start, e.length, e.object, e.object_start) "
     "LIMIT " MOST,
     NULL, SUM_WORDS},
    {BOTH ("SELECT ino, CAST (start AS TEXT) FROM (SELECT ino, start, length, "
           "lead (start) OVER (PARTITION BY ino ORDER BY start) AS next FROM extents) AS pairs "
           "WHERE next < start + length LIMIT " MOST),
     "two extents overlap: the one at byte "},
    {BOTH ("SELECT 0, 'row ' || CAST (id AS TEXT) FROM objects o "
           "WHERE kind = 0 AND NOT EXISTS (SELECT 1 FROM extents e WHERE e.object = o.id) LIMIT " MOST),
     "no file uses an object: "},
    {BOTH ("SELECT i.ino, CAST (i.nlink AS TEXT) || ', and there are ' || CAST (count (e.ino) AS TEXT) FROM inodes i "
           "LEFT JOIN entries e ON e.ino = i.ino WHERE i.mode & 61440 <> 16384 GROUP BY i.ino "
           "HAVING i.nlink <> count (e.ino) LIMIT " MOST),
     "the number of its names is wrong: "},
    {IN_USE (QUEUED, HEX), IN_USE (QUEUED, PG_HEX),
     "a stripe in use is queued for deletion, which will leave it alone: "},
    {IN_USE (ANNOUNCED, HEX), IN_USE (ANNOUNCED, PG_HEX),
     "a stripe in use is announced as if it were not stored yet: "},
    {BOTH ("SELECT 0, name || ', ' || CAST (kept AS TEXT) || ', and there are ' || CAST (found AS TEXT) FROM ("
           "SELECT 'inodes' AS name, n_inodes AS kept, (SELECT count (*) FROM inodes) AS found FROM counters "
           "UNION ALL SELECT 'objects', n_objects, (SELECT count (*) FROM objects) FROM counters "
           "UNION ALL SELECT 'staging', n_staged, (SELECT count (*) FROM staging) FROM counters "
           "UNION ALL SELECT 'deletions', n_deletions, (SELECT count (*) FROM deletions) FROM counters) AS counted "
           "WHERE kept <> found"),
     "a counter is wrong: "},
};

typedef struct Problem {
    uint64_t ino;
    char *text;
} Problem;

static void problem_clear (gpointer data)
{
    g_free (((Problem *) data)->text);
}

static bool check_one (EcfsCatalog *self, const char *sql, const char *words, GArray *problems, GError **error)
{
    autoquery *query = self->db->ops->ask (self->db, sql, error);
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        Problem problem = {.ino = (uint64_t) ecfs_column_number (query, 0),
                           .text = g_strconcat (words, ecfs_column_text (query, 1), NULL)};
        g_array_append_val (problems, problem);
    }
    return found == 0;
}

/* Where the database does not know our sums: *sum is that of the inode *ino, which ends with the row before this. */
static void end_sum (uint64_t ino, uint64_t sum, uint64_t kept, GArray *problems)
{
    Problem problem = {.ino = ino, .text = g_strdup (SUM_WORDS)};
    if (ino != 0 && sum != kept && problems->len < SUMS_MOST)
        g_array_append_val (problems, problem);
    else
        g_free (problem.text);
}

static bool check_sums (EcfsCatalog *self, GArray *problems, GError **error)
{
    uint64_t ino = 0, sum = 0, kept = 0;
    int found;
    autoquery *query = ecfs_query (self, STMT_CONTENT_LIST, NULL, 0, error);
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        uint64_t of = (uint64_t) ecfs_column_number (query, 0);
        if (of != ino) {
            end_sum (ino, sum, kept, problems);
            ino = of;
            kept = (uint64_t) ecfs_column_number (query, 3);
            sum = ecfs_content_sum_sizes (ino, (uint64_t) ecfs_column_number (query, 1),
                                          (uint64_t) ecfs_column_number (query, 2));
        }
        EcfsExtent extent = {.offset = (uint64_t) ecfs_column_number (query, 4),
                             .length = (uint64_t) ecfs_column_number (query, 5),
                             .object = ecfs_column_number (query, 6),
                             .object_offset = (uint64_t) ecfs_column_number (query, 7)};
        if (!ecfs_column_is_null (query, 4))
            sum ^= ecfs_content_sum_extent (ino, &extent);
    }
    end_sum (ino, sum, kept, problems);
    return found == 0;
}

/* The first is SQLite's own check, before all that relies on it. */
static bool check_all (EcfsCatalog *self, GArray *problems, bool *ret_sound, GError **error)
{
    *ret_sound = true;
    for (size_t i = 0; i < G_N_ELEMENTS (checks); i++) {
        GError *why = NULL;
        const char *sql = self->db->ops->is_sqlite ? checks[i].sql : checks[i].other;
        bool read = sql != NULL ? check_one (self, sql, checks[i].words, problems, &why)
                                : strcmp (checks[i].words, SUM_WORDS) != 0 || check_sums (self, problems, &why);
        *ret_sound = *ret_sound && read && (i > 0 || problems->len == 0);
        if (read)
            continue;
        if (why->code != EBADMSG) {
            g_propagate_error (error, why);
            return false;
        }
        Problem problem = {.text = g_strdup (why->message)};
        g_array_append_val (problems, problem);
        g_error_free (why);
    }
    return true;
}

static void tell_all (const GArray *problems, EcfsCatalogProblem problem, void *user)
{
    for (guint i = 0; i < problems->len; i++) {
        const Problem *one = &g_array_index (problems, Problem, i);
        problem (user, one->ino, one->text);
    }
}

bool ecfs_catalog_check (EcfsCatalog *self, EcfsCatalogProblem problem, void *user, bool *ret_sound, GError **error)
{
    g_autoptr (GArray) problems = g_array_new (FALSE, FALSE, sizeof (Problem));
    g_array_set_clear_func (problems, problem_clear);
    bool read = READ (self, check_all (self, problems, ret_sound, error));
    tell_all (problems, problem, user);
    return read;
}

/* The UUID as far as the row has one: behind it the walk goes on. */
static void take_uuid (EcfsQuery *query, EcfsUuid *ret_uuid)
{
    size_t size = ecfs_column_size (query, 1);
    const void *bytes = ecfs_column_blob (query, 1);
    *ret_uuid = (EcfsUuid){.bytes = {0}};
    if (bytes != NULL)
        memcpy (ret_uuid->bytes, bytes, MIN (size, sizeof ret_uuid->bytes));
    for (size_t i = sizeof ret_uuid->bytes; size > sizeof ret_uuid->bytes && i-- > 0;)
        if (++ret_uuid->bytes[i] != 0) /* it is less than the next */
            break;
}

/* 0: none has it. */
static uint64_t file_of (EcfsCatalog *self, int64_t object)
{
    int64_t ino = 0;
    return QUERY_NUMBER (self, EXTENT_OF_OBJECT, &ino, NULL, INT (object)) == 1 ? (uint64_t) ino : 0;
}

static GPtrArray *walk_objects (EcfsCatalog *self, EcfsUuid *after, size_t max, bool *ret_more, GArray *problems,
                                GError **error)
{
    const EcfsUuid behind = *after;
    size_t size = ecfs_uuid_is_nil (after) ? 0 : sizeof behind.bytes; /* what is too short may sort before nil */
    autoquery *query = QUERY (self, OBJECT_LIST_BY_UUID, error, BLOB (behind.bytes, size), INT (MIN (max, INT_MAX)));
    g_autoptr (GPtrArray) rows = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_object_row_free);
    int found;
    size_t n_rows = 0;
    for (; (found = ecfs_query_step (self, query, error)) == 1; n_rows++) {
        g_autoptr (GError) why = NULL;
        EcfsObjectRow *row = ecfs_object_load (self, query, &why);
        if (row == NULL) {
            Problem problem = {.ino = file_of (self, ecfs_column_number (query, 0)), .text = g_strdup (why->message)};
            g_array_append_val (problems, problem);
        } else {
            g_ptr_array_add (rows, row);
        }
        take_uuid (query, after);
    }
    *ret_more = n_rows == max;
    return found < 0 ? NULL : g_steal_pointer (&rows);
}

GPtrArray *ecfs_catalog_walk_objects (EcfsCatalog *self, EcfsUuid *after, size_t max, bool *ret_more,
                                      EcfsCatalogProblem problem, void *user, GError **error)
{
    g_autoptr (GArray) problems = g_array_new (FALSE, FALSE, sizeof (Problem));
    g_array_set_clear_func (problems, problem_clear);
    GPtrArray *rows = READ (self, walk_objects (self, after, max, ret_more, problems, error));
    tell_all (problems, problem, user);
    return rows;
}

static bool stripe_known (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe, bool *ret_known,
                          GError **error)
{
    int64_t known = 0;
    int found =
        QUERY_NUMBER (self, STRIPE_KNOWN, &known, error, UUID (object), INT (stripe->index), INT (stripe->instance));
    *ret_known = known != 0;
    return found >= 0;
}

bool ecfs_catalog_stripe_known (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe, bool *ret_known,
                                GError **error)
{
    return READ (self, stripe_known (self, object, stripe, ret_known, error));
}

static bool object_known (EcfsCatalog *self, const EcfsUuid *object, bool *ret_known, GError **error)
{
    int64_t id;
    int found = QUERY_NUMBER (self, OBJECT_BY_UUID, &id, error, UUID (object));
    *ret_known = found == 1;
    return found >= 0;
}

bool ecfs_catalog_object_known (EcfsCatalog *self, const EcfsUuid *object, bool *ret_known, GError **error)
{
    return READ (self, object_known (self, object, ret_known, error));
}

static bool stripe_lacking (EcfsCatalog *self, const EcfsUuid *uuid, unsigned index, bool *ret_lacking, GError **error)
{
    int found;
    g_autoptr (EcfsObjectRow) object = ecfs_object_find (self, uuid, &found, error);
    *ret_lacking = object != NULL && index < ecfs_code_n (object->code) && ecfs_stripe_at (object, index) == NULL;
    return found >= 0;
}

bool ecfs_catalog_stripe_lacking (EcfsCatalog *self, const EcfsUuid *object, unsigned index, bool *ret_lacking,
                                  GError **error)
{
    return READ (self, stripe_lacking (self, object, index, ret_lacking, error));
}

static bool deletion_queued (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe, bool *ret_queued,
                             GError **error)
{
    int64_t queued = 0;
    int found = QUERY_NUMBER (self, DELETION_QUEUED, &queued, error, UUID (object), INT (stripe->index),
                              INT (stripe->instance), INT (stripe->endpoint));
    *ret_queued = queued != 0;
    return found >= 0;
}

bool ecfs_catalog_deletion_queued (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe,
                                   bool *ret_queued, GError **error)
{
    return READ (self, deletion_queued (self, object, stripe, ret_queued, error));
}

static bool stripe_current (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe, bool *ret_current,
                            GError **error)
{
    int64_t current = 0;
    int found = QUERY_NUMBER (self, STRIPE_CURRENT, &current, error, UUID (object), INT (stripe->index),
                              INT (stripe->instance), INT (stripe->endpoint));
    *ret_current = current != 0;
    return found >= 0;
}

bool ecfs_catalog_stripe_current (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe,
                                  bool *ret_current, GError **error)
{
    return READ (self, stripe_current (self, object, stripe, ret_current, error));
}
