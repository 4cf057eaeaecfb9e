/* A catalog that is written as records and read back, from its journal and from a dump, whole and damaged. */
#include "catalog/deaths.h"
#include "catalog/journal.h"
#include "catalog/journal_file.h"
#include "catalog/marks.h"
#include "catalog/restore.h"
#include "check_db.h"
#include "fixture.h"

#include "util/bytes.h"

#include <xxhash.h>

#define N_STEPS 400

/* A history */

static bool is_known (Fixture *f, const EcfsUuid *object)
{
    bool known;
    OK (e, ecfs_catalog_object_known (f->catalog, object, &known, &e));
    return known;
}

static void publish (Fixture *f, uint64_t ino, unsigned n_stripes, uint64_t size)
{
    int64_t intent;
    g_autoptr (EcfsObjectRow) object = new_object (f, "rs:4+2", size, n_stripes);
    OK (e, ecfs_catalog_intent_begin (f->catalog, object, ino, &intent, &e));
    const EcfsObjectRow *objects[] = {object};
    EcfsExtent extent = {.length = size};
    EcfsPublish publish = {.ino = ino,
                           .intents = &intent,
                           .objects = objects,
                           .n_objects = 1,
                           .extents = &extent,
                           .n_extents = 1,
                           .size = size + 7,
                           .mtime_ns = 4711,
                           .full = true};
    OK (e, ecfs_catalog_publish (f->catalog, &publish, NULL, &e));
}

/* A record in the newest log, which ends now and then. */
static void publish_logged (Fixture *f, uint64_t ino)
{
    static EcfsUuid log;
    static uint64_t end;
    uint64_t size = (uint64_t) g_test_rand_int_range (1, 3000);
    if (end == 0 || g_test_rand_int_range (0, 10) == 0 || !is_known (f, &log)) {
        int64_t intent;
        g_autoptr (EcfsObjectRow) row = new_object (f, "copies:3", 0, 3);
        OK (e, ecfs_catalog_log_begin (f->catalog, row, &intent, &e));
        OK (e, ecfs_catalog_log_close (f->catalog, &row->uuid, &e));
        if (g_test_rand_bit ())
            OK (e, ecfs_catalog_log_stripe_ends (f->catalog, &row->uuid, 1, 0, &e));
        log = row->uuid;
        end = 0;
    }
    EcfsLogged logged = {.log = log,
                         .offset = end + 72,
                         .end = end + (size + 72 + 1023) / 1024 * 1024,
                         .generation = ecfs_catalog_sequence (f->catalog)};
    memset (logged.sha256, 'l', sizeof logged.sha256);
    EcfsPublish publish = {.ino = ino, .logged = &logged, .size = size, .mtime_ns = 4711, .full = true};
    OK (e, ecfs_catalog_publish (f->catalog, &publish, NULL, &e));
    end = logged.end;
}

/* All that another object, whichever it is, has of files goes into a pack, but for a few. */
static void pack (Fixture *f, uint64_t ino)
{
    uint64_t size;
    int64_t intent;
    bool gone;
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) extents = ecfs_catalog_content (f->catalog, ino, &size, &error);
    if (extents->len == 0)
        return;
    g_autoptr (EcfsObjectRow) from =
        ecfs_catalog_object (f->catalog, g_array_index (extents, EcfsExtent, 0).object, &error);
    g_autoptr (GArray) sharers = ecfs_catalog_sharers (f->catalog, from->id, 0, 100, &error);
    g_autoptr (EcfsObjectRow) to = new_object (f, "rs:4+2", 100000, 6);
    g_autoptr (GArray) moves = g_array_new (FALSE, FALSE, sizeof (EcfsPackMove));
    uint64_t at = 0;
    to->kind = ECFS_OBJECT_PACK;
    for (guint i = 0; i < sharers->len; i++) {
        const EcfsSharer *sharer = &g_array_index (sharers, EcfsSharer, i);
        EcfsPackMove move = {.ino = sharer->ino,
                             .length = sharer->extent.length,
                             .from = sharer->extent.object_offset,
                             .to = at,
                             .generation = sharer->extent.generation + 1,
                             .is_known = sharer->extent.has_sha256 && from->kind != ECFS_OBJECT_WHOLE};
        memcpy (move.sha256, sharer->extent.has_sha256 ? sharer->extent.sha256 : to->uuid.bytes, 16);
        memcpy (move.sha256 + 16, sharer->extent.has_sha256 ? sharer->extent.sha256 + 16 : to->uuid.bytes, 16);
        move.generation -= move.is_known;
        at += move.length;
        if (g_test_rand_int_range (0, 5) > 0)
            g_array_append_val (moves, move);
    }
    OK (e, ecfs_catalog_intent_begin (f->catalog, to, 0, &intent, &e));
    OK (e, ecfs_catalog_pack_begin (f->catalog, to, intent, &e));
    OK (e, ecfs_catalog_pack_move (f->catalog, &to->uuid, &from->uuid, (EcfsPackMove *) (void *) moves->data,
                                   moves->len, &e));
    OK (e, ecfs_catalog_pack_end (f->catalog, &to->uuid, intent, &e));
    OK (e, ecfs_catalog_drop_unused (f->catalog, &from->uuid, &gone, &e));
}

static void drop (Fixture *f, const EcfsAttr *attr)
{
    if (attr->ino != 0 && attr->nlink == 0)
        OK (e, ecfs_catalog_drop (f->catalog, attr->ino, &e));
}

static void step_on (Fixture *f, const char *name, const char *other, uint64_t dir)
{
    EcfsAttr attr = {.ino = 0}, found;
    EcfsCatalog *catalog = f->catalog;
    bool there = ecfs_catalog_lookup (catalog, dir, name, &found, NULL);
    EcfsNewInode link = {.mode = S_IFLNK | 0777, .target = "../there"};
    switch (g_test_rand_int_range (0, 12)) {
    case 0:
    case 1:
        if (!there)
            (void) make_file (f, dir, name);
        break;
    case 2:
        if (there && S_ISREG (found.mode))
            publish (f, found.ino, 5 + (unsigned) g_test_rand_int_range (0, 2), 1000);
        break;
    case 3:
        if (there && ecfs_catalog_unlink (catalog, dir, name, &attr, NULL))
            drop (f, &attr);
        break;
    case 4:
        if (there && ecfs_catalog_rename (catalog, dir, name, ECFS_ROOT_INO, other, 0, &attr, NULL))
            drop (f, &attr);
        break;
    case 8:
    case 9:
        if (there && S_ISREG (found.mode))
            publish_logged (f, found.ino);
        break;
    case 10:
        if (there && S_ISREG (found.mode))
            pack (f, found.ino);
        break;
    case 5:
        (void) ecfs_catalog_make (catalog, dir, name, &link, &attr, NULL, NULL); /* where it is free */
        break;
    case 6:
        if (there)
            OK (e, ecfs_catalog_setxattr (catalog, found.ino, "user.x", "a\0b", 3, 0, &e));
        break;
    default:
        if (there && !S_ISDIR (found.mode))
            (void) ecfs_catalog_link (catalog, found.ino, ECFS_ROOT_INO, other, &attr, NULL); /* where it is free */
    }
}

static void make_history (Fixture *f)
{
    fixture_init (f);
    fixture_add_endpoints (f);
    uint64_t dirs[3] = {ECFS_ROOT_INO, make_dir (f, ECFS_ROOT_INO, "directory"), 0};
    dirs[2] = make_dir (f, dirs[1], "below");
    OK (e, ecfs_catalog_keep_setting (f->catalog, "code", "rs:4+2", &e));
    OK (e, ecfs_catalog_keep_setting (f->catalog, "code", "rs:4+3", &e));
    OK (e, ecfs_catalog_keep_code (f->catalog, "ldpc:1+1/01", (const uint8_t *) "\1", 1, &e));
    for (int i = 0; i < N_STEPS; i++) {
        g_autofree char *name = g_strdup_printf ("name%d", g_test_rand_int_range (0, 9));
        g_autofree char *other = g_strdup_printf ("name%d", g_test_rand_int_range (0, 9));
        step_on (f, name, other, dirs[g_test_rand_int_range (0, 3)]);
        if (i == N_STEPS / 3) {
            OK (e, ecfs_catalog_mark_add (f->catalog, "kept", &e));
            OK (e, ecfs_catalog_mark_add (f->catalog, "removed", &e));
        } else if (i == N_STEPS / 2) {
            OK (e, ecfs_catalog_mark_remove (f->catalog, "removed", &e));
        }
    }
    OK (e, ecfs_catalog_endpoint_set_state (f->catalog, f->endpoints[6], ECFS_ENDPOINT_READONLY, &e));
    OK (e, ecfs_catalog_endpoint_set_state (f->catalog, f->endpoints[7], ECFS_ENDPOINT_DRAINING, &e));
    OK (e, ecfs_catalog_endpoint_remove (f->catalog, f->endpoints[7], &e));
}

/* What is in a catalog */

static int compare_items (const void *a, const void *b)
{
    return strcmp (*(char *const *) a, *(char *const *) b);
}

static bool add_items (void *user, const GByteArray *record, GError **error)
{
    GPtrArray *items = user;
    EcfsCursor cursor;
    EcfsJournalItem item;
    (void) error; /* it never fails */
    g_assert_cmpint (ecfs_journal_open (&cursor, record->data, record->len), ==, 0);
    for (const uint8_t *from = cursor.at; ecfs_journal_next (&cursor, &item) == 1; from = cursor.at) {
        GString *text = g_string_new (NULL);
        for (const uint8_t *at = from; at < cursor.at; at++)
            g_string_append_printf (text, "%02x", *at);
        /* No deletion is restored, and a catalog that was made again stands elsewhere. */
        if (item.type == ECFS_JOURNAL_DELETED || item.type == ECFS_JOURNAL_STANDS)
            g_string_free (text, TRUE);
        else
            g_ptr_array_add (items, g_string_free (text, FALSE));
    }
    return true;
}

/* Its items, but for deletions, in an order of their own; g_free () */
static char *dump (Fixture *f)
{
    uint64_t sequence;
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) items = g_ptr_array_new_with_free_func (g_free);
    OK (e, ecfs_catalog_barrier (f->catalog, &e));
    EcfsCatalog *reader = ecfs_catalog_open (f->path, ECFS_CATALOG_READONLY, &error);
    g_assert_no_error (error);
    OK (e, ecfs_catalog_dump (reader, add_items, items, &sequence, &e));
    g_assert_cmpuint (sequence, ==, ecfs_catalog_sequence (f->catalog));
    OK (e, ecfs_catalog_close (reader, &e));
    g_ptr_array_sort (items, compare_items);
    g_ptr_array_add (items, NULL);
    return g_strjoinv ("\n", (char **) items->pdata);
}

static void tell_problem (void *user, uint64_t ino, const char *text)
{
    (void) ino;
    g_test_message ("%s", text);
    ++*(unsigned *) user;
}

static unsigned count_problems (Fixture *f)
{
    bool sound;
    unsigned n_problems = 0;
    fixture_close (f);
    fixture_open (f, ECFS_CATALOG_READONLY);
    OK (e, ecfs_catalog_check (f->catalog, tell_problem, &n_problems, &sound, &e));
    g_assert_true (sound);
    return n_problems;
}

static GPtrArray *journal_of (Fixture *f)
{
    g_autoptr (GError) error = NULL;
    GPtrArray *rows = ecfs_catalog_journal (f->catalog, 0, 1000000, &error);
    g_assert_no_error (error);
    return rows;
}

static bool add_row (void *user, const GByteArray *record, GError **error)
{
    (void) error; /* it never fails */
    EcfsJournalRow *row = g_new (EcfsJournalRow, 1);
    *row = (EcfsJournalRow){.sequence = 1, .record = g_byte_array_new ()};
    g_byte_array_append (row->record, record->data, record->len);
    g_ptr_array_add (user, row);
    return true;
}

static GPtrArray *snapshot_of (Fixture *f)
{
    uint64_t sequence;
    g_autoptr (GError) error = NULL;
    GPtrArray *rows = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_journal_row_free);
    OK (e, ecfs_catalog_barrier (f->catalog, &e));
    EcfsCatalog *reader = ecfs_catalog_open (f->path, ECFS_CATALOG_READONLY, &error);
    g_assert_no_error (error);
    OK (e, ecfs_catalog_dump (reader, add_row, rows, &sequence, &e));
    OK (e, ecfs_catalog_close (reader, &e));
    return rows;
}

/* Not one is missing: what is looked for would be found all the same, row by row. */
static void check_indexes (Fixture *f)
{
    static const char sql[] = "SELECT count (*) FROM sqlite_schema WHERE type = 'index' AND "
                              "name IN ('entries_by_position', 'entries_by_ino', 'extents_by_object')";
    sqlite3 *db = NULL;
    sqlite3_stmt *query = NULL;
    if (ecfs_pg_is_location (f->path))
        return;
    g_assert_cmpint (sqlite3_open (f->path, &db), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_prepare_v2 (db, sql, -1, &query, NULL), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_step (query), ==, SQLITE_ROW);
    g_assert_cmpint (sqlite3_column_int (query, 0), ==, 3);
    sqlite3_finalize (query);
    g_assert_cmpint (sqlite3_close (db), ==, SQLITE_OK);
}

/* A catalog of these records. */
static uint64_t restore (Fixture *f, const GPtrArray *rows, uint32_t epoch, uint64_t sequence)
{
    uint64_t n_refused = 0, n_unfinished;
    fixture_init (f);
    g_autoptr (EcfsRestore) restore = ecfs_restore_new (f->catalog);
    OK (e, ecfs_restore_begin_snapshot (restore, &e)); /* or a journal, whose records find things */
    OK (e, ecfs_restore_records (restore, rows, &n_refused, &e));
    OK (e, ecfs_restore_end_snapshot (restore, &e));
    OK (e, ecfs_restore_finish (restore, epoch, sequence, &e));
    OK (e, ecfs_restore_end (restore, &n_unfinished, &e));
    check_indexes (f);
    return n_refused;
}

/* The catalog as it was behind @n of the records, with what the others say of where content is since. */
static void restore_past (Fixture *f, const GPtrArray *rows, guint n)
{
    uint64_t n_refused = 0, n_unfinished;
    g_autoptr (GPtrArray) then = g_ptr_array_new (), since = g_ptr_array_new ();
    for (guint i = 0; i < rows->len; i++)
        g_ptr_array_add (i < n ? then : since, g_ptr_array_index (rows, i));
    fixture_init (f);
    g_autoptr (EcfsRestore) restore = ecfs_restore_new (f->catalog);
    OK (e, ecfs_restore_records (restore, then, &n_refused, &e));
    OK (e, ecfs_restore_exchanges (restore, since, &n_refused, &e));
    OK (e, ecfs_restore_drop_unnamed (restore, &e));
    OK (e, ecfs_restore_finish (restore, 2, 5000, &e));
    OK (e, ecfs_restore_end (restore, &n_unfinished, &e));
}

/* Cases */

static void check_restored (Fixture *f, const GPtrArray *rows)
{
    Fixture again;
    g_autofree char *expected = dump (f);
    g_assert_cmpuint (restore (&again, rows, 1, 7777), ==, 0);
    g_assert_cmpuint (ecfs_catalog_sequence (again.catalog), ==, 7778);
    for (unsigned i = 0; i < G_N_ELEMENTS (again.endpoints); i++) {
        uint64_t n_deletions;
        OK (e, ecfs_catalog_deletions_at (again.catalog, i + 1, &n_deletions, &e));
        g_assert_cmpuint (n_deletions, ==, 0);
    }
    EcfsMark mark, there;
    OK (e, ecfs_catalog_mark_find (f->catalog, "kept", &mark, &e));
    OK (e, ecfs_catalog_mark_find (again.catalog, "kept", &there, &e)); /* which a dump might leave out of both */
    g_assert_cmpuint (there.sequence, ==, mark.sequence);
    g_assert_cmpint (there.time_ns, ==, mark.time_ns);
    g_assert_false (ecfs_catalog_mark_find (again.catalog, "removed", &there, NULL));
    g_autofree char *found = dump (&again);
    g_assert_cmpstr (found, ==, expected);
    g_assert_cmpuint (count_problems (&again), ==, 0);
    fixture_clear (&again);
}

/* Behind all records, with what died by them: nothing is settled as a recovery does. */
static EcfsCatalog *replay (Fixture *f, const GPtrArray *rows)
{
    uint64_t n_refused = 0;
    fixture_init (f);
    g_autoptr (EcfsRestore) restore = ecfs_restore_new (f->catalog);
    OK (e, ecfs_restore_records (restore, rows, &n_refused, &e));
    g_assert_cmpuint (n_refused, ==, 0);
    return f->catalog;
}

/* What was there at a mark, and was packed behind it, is in the pack: who prunes goes by this. */
static void test_mark_keeps_what_was_packed_since (void)
{
    Fixture f, again;
    uint64_t size;
    bool gone;
    EcfsDeath death;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    publish (&f, ino, 6, 1000);
    OK (e, ecfs_catalog_mark_add (f.catalog, "then", &e));
    for (guint i = 0; i < 2; i++) { /* of an object of its own, and of a pack */
        g_autoptr (GArray) extents = ecfs_catalog_content (f.catalog, ino, &size, NULL);
        g_autoptr (EcfsObjectRow) from =
            ecfs_catalog_object (f.catalog, g_array_index (extents, EcfsExtent, 0).object, NULL);
        int64_t intent;
        g_autoptr (EcfsObjectRow) to = new_object (&f, "rs:4+2", 5000, 6);
        EcfsPackMove move = {.ino = ino, .length = 1000, .generation = 10 + i};
        to->kind = ECFS_OBJECT_PACK;
        OK (e, ecfs_catalog_intent_begin (f.catalog, to, 0, &intent, &e));
        OK (e, ecfs_catalog_pack_begin (f.catalog, to, intent, &e));
        OK (e, ecfs_catalog_pack_move (f.catalog, &to->uuid, &from->uuid, &move, 1, &e));
        OK (e, ecfs_catalog_pack_end (f.catalog, &to->uuid, intent, &e));
        OK (e, ecfs_catalog_drop_unused (f.catalog, &from->uuid, &gone, &e));
    }
    g_autoptr (GArray) extents = ecfs_catalog_content (f.catalog, ino, &size, NULL);
    g_autoptr (EcfsObjectRow) last =
        ecfs_catalog_object (f.catalog, g_array_index (extents, EcfsExtent, 0).object, NULL);
    publish (&f, ino, 6, 2000);
    OK (e, ecfs_catalog_drop_unused (f.catalog, &last->uuid, &gone, &e));
    g_autoptr (GPtrArray) journal = journal_of (&f);
    OK (e, ecfs_catalog_object_death (replay (&again, journal), &last->uuid, &death, &e));
    g_assert_cmpint (death.number, >, 0);
    g_assert_true (death.is_marked);
    fixture_clear (&again);
    fixture_clear (&f);
}

static void test_from_journal_and_snapshot (void)
{
    Fixture f;
    make_history (&f);
    g_autoptr (GPtrArray) journal = journal_of (&f), snapshot = snapshot_of (&f);
    check_restored (&f, journal);
    check_restored (&f, snapshot);
    fixture_clear (&f);
}

static bool forget_row (void *user, const GByteArray *record, GError **error)
{
    (void) user;
    (void) record;
    (void) error; /* it never fails */
    return true;
}

/* A snapshot takes the place of the journal before it: there is none of a catalog whose rows somebody took away. */
static void test_rows_taken_away (void)
{
    static const char *const taken[] = {"entries",
                                        "stripes",
                                        "extents",
                                        "objects",
                                        "inodes WHERE ino <> 1",
                                        "entries WHERE position = (SELECT max (position) FROM entries)",
                                        "stripes WHERE idx = 3"};
    Fixture f;
    uint64_t sequence;
    g_autoptr (GError) error = NULL;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    for (size_t i = 0; i < 5; i++) {
        g_autofree char *name = g_strdup_printf ("file%zu", i);
        publish (&f, make_file (&f, make_dir (&f, ECFS_ROOT_INO, taken[i]), name), 6, 1000);
    }
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    for (size_t i = 0; i < G_N_ELEMENTS (taken); i++) {
        g_autofree char *sql =
            g_strdup_printf ("%sDELETE FROM %s",
                             ecfs_pg_is_location (f.path) ? "SET session_replication_role TO replica; " : "", taken[i]);
        g_autofree char *table = g_strndup (taken[i], strcspn (taken[i], " "));
        g_autofree char *keep = g_strdup_printf ("CREATE TABLE kept AS SELECT * FROM %s", table);
        g_autofree char *give = g_strdup_printf (
            "%sDELETE FROM %s; INSERT INTO %s SELECT * FROM kept; DROP TABLE kept",
            ecfs_pg_is_location (f.path) ? "SET session_replication_role TO replica; " : "", table, table);
        run_sql (f.path, keep);
        run_sql (f.path, sql);
        EcfsCatalog *reader = ecfs_catalog_open (f.path, ECFS_CATALOG_READONLY, &error);
        g_assert_no_error (error);
        g_assert_cmpint (CODE (e, ecfs_catalog_dump (reader, forget_row, NULL, &sequence, &e)), ==, EBADMSG);
        run_sql (f.path, give);
        OK (e, ecfs_catalog_dump (reader, forget_row, NULL, &sequence, &e));
        OK (e, ecfs_catalog_close (reader, &e));
    }
    fixture_clear (&f);
}

/* One that is refused leaves no other out, not even one that has to find something before there are indexes. */
static void test_refused_among_others (void)
{
    Fixture f, again;
    make_history (&f);
    g_autofree char *expected = dump (&f);
    for (unsigned i = 0; i < 2; i++) {
        g_autoptr (GPtrArray) rows = i == 0 ? journal_of (&f) : snapshot_of (&f);
        EcfsJournalRow *row = g_new0 (EcfsJournalRow, 1);
        row->record = g_byte_array_append (g_byte_array_new (), (const uint8_t *) "\0", 1);
        g_ptr_array_insert (rows, 0, row);
        g_assert_cmpuint (restore (&again, rows, 1, 7777), ==, 1);
        g_autofree char *found = dump (&again);
        g_assert_cmpstr (found, ==, expected);
        fixture_clear (&again);
    }
    fixture_clear (&f);
}

static void sum_of (const EcfsJournalRow *row, uint8_t *ret_sum)
{
    ecfs_journal_sum (row->sequence, row->time_ns, row->record->data, row->record->len, ret_sum);
}

/* Whether the first record of a catalog that was restored goes on where @last stands. */
static void check_goes_on (const GPtrArray *rows, const EcfsJournalRow *last)
{
    Fixture again;
    uint8_t sum[ECFS_JOURNAL_SUM_BYTES], previous[ECFS_JOURNAL_SUM_BYTES];
    g_assert_cmpuint (restore (&again, rows, 2, 7777), ==, 0);
    g_autoptr (GPtrArray) begun = journal_of (&again);
    const EcfsJournalRow *first = g_ptr_array_index (begun, 0);
    sum_of (last, sum);
    g_assert_true (ecfs_journal_previous (first->record->data, first->record->len, previous));
    g_assert_cmpmem (previous, sizeof previous, sum, sizeof sum);
    fixture_clear (&again);
}

/* Also over operations that failed and records that were dropped: the chain has no gap. */
static void test_links (void)
{
    static const uint8_t nothing[ECFS_JOURNAL_SUM_BYTES] = {0};
    Fixture f;
    uint8_t sum[ECFS_JOURNAL_SUM_BYTES], previous[ECFS_JOURNAL_SUM_BYTES];
    make_history (&f);
    fixture_close (&f);
    fixture_open (&f, 0);
    (void) make_dir (&f, ECFS_ROOT_INO, "after it was opened again");
    g_autoptr (GPtrArray) rows = journal_of (&f), snapshot = snapshot_of (&f);
    memcpy (sum, nothing, sizeof sum);
    for (guint i = 0; i < rows->len; i++) {
        const EcfsJournalRow *row = g_ptr_array_index (rows, i);
        g_assert_cmpuint (row->sequence, ==, i + 1);
        g_assert_true (ecfs_journal_previous (row->record->data, row->record->len, previous));
        g_assert_cmpmem (previous, sizeof previous, sum, sizeof sum);
        sum_of (row, sum);
    }
    const EcfsJournalRow *last = g_ptr_array_index (rows, rows->len - 1);
    check_goes_on (rows, last);
    check_goes_on (snapshot, last);
    bool more = true;
    while (more)
        OK (e, ecfs_catalog_journal_drop (f.catalog, UINT64_MAX, &more, &e));
    (void) make_dir (&f, ECFS_ROOT_INO, "after the others were dropped");
    g_autoptr (GPtrArray) left = journal_of (&f);
    const EcfsJournalRow *newest = g_ptr_array_index (left, left->len - 1);
    g_assert_true (ecfs_journal_previous (newest->record->data, newest->record->len, previous));
    g_assert_cmpmem (previous, sizeof previous, sum, sizeof sum);
    fixture_clear (&f);
}

/* A record that is refused leaves nothing behind, also of what is known about files without content. */
static void test_refused_content (void)
{
    Fixture f, again;
    EcfsNewInode new = {.mode = S_IFREG | 0644, .staged = true};
    EcfsAttr attr;
    int64_t staging;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    OK (e, ecfs_catalog_make (f.catalog, ECFS_ROOT_INO, "file", &new, &attr, &staging, &e));
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    guint first = (guint) ecfs_catalog_sequence (f.catalog);
    EcfsPublish empty = {.ino = attr.ino, .mtime_ns = 4711, .full = true};
    OK (e, ecfs_catalog_publish (f.catalog, &empty, NULL, &e));
    g_autoptr (GPtrArray) rows = journal_of (&f);
    g_assert_cmpuint (rows->len, ==, first + 1);
    EcfsJournalRow *row = g_ptr_array_index (rows, first);
    static const uint8_t unknown[] = {0x7f, 0, 0, 0, 0};
    g_byte_array_append (row->record, unknown, sizeof unknown);
    g_assert_cmpuint (restore (&again, rows, 2, 100), ==, 1);
    g_assert_cmpint (CODE (e, ecfs_catalog_lookup (again.catalog, ECFS_ROOT_INO, "file", &attr, &e)), ==, ENOENT);
    fixture_clear (&again);
    fixture_clear (&f);
}

static void add_staged (Fixture *f, uint64_t ino, int64_t mtime_ns)
{
    int64_t staging;
    OK (e, ecfs_catalog_staging_add (f->catalog, ino, &staging, &e));
    OK (e, ecfs_catalog_staging_set (f->catalog, staging, ECFS_STAGING_QUEUED, 99, mtime_ns, NULL, &e));
}

/* What was being written for the first time does not come back as a file that looks complete. */
static void test_unfinished (void)
{
    Fixture f, again;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    EcfsNewInode new = {.mode = S_IFREG | 0644, .staged = true};
    EcfsAttr attr;
    int64_t staging;
    (void) make_file (&f, ECFS_ROOT_INO, "empty");
    OK (e, ecfs_catalog_make (f.catalog, ECFS_ROOT_INO, "written", &new, &attr, &staging, &e));
    publish (&f, attr.ino, 6, 100);
    OK (e, ecfs_catalog_make (f.catalog, ECFS_ROOT_INO, "begun", &new, &attr, &staging, &e));
    add_staged (&f, attr.ino, 5); /* closed, and closed again: the newer bytes have a row of their own */
    for (unsigned i = 0; i < 2; i++) {
        g_autoptr (GPtrArray) rows = i == 0 ? journal_of (&f) : snapshot_of (&f);
        g_assert_cmpuint (restore (&again, rows, 2, 100), ==, 0);
        g_assert_cmpuint (ecfs_catalog_epoch (again.catalog), ==, 2);
        OK (e, ecfs_catalog_lookup (again.catalog, ECFS_ROOT_INO, "empty", &attr, &e));
        OK (e, ecfs_catalog_lookup (again.catalog, ECFS_ROOT_INO, "written", &attr, &e));
        g_assert_cmpuint (attr.size, ==, 107);
        g_assert_cmpint (CODE (e, ecfs_catalog_lookup (again.catalog, ECFS_ROOT_INO, "begun", &attr, &e)), ==, ENOENT);
        g_assert_cmpuint (count_problems (&again), ==, 0);
        fixture_clear (&again);
    }
    fixture_clear (&f);
}

static unsigned count_intents (Fixture *f)
{
    unsigned n = 0;
    g_autofree char *items = dump (f);
    g_auto (GStrv) lines = g_strsplit (items, "\n", -1);
    for (char **line = lines; *line != NULL; line++)
        n += g_str_has_prefix (*line, "0d");
    return n;
}

/* Of five that were begun one was given up, one was for a file that is gone, and one is older than what its file has.
 */
static void test_intents (void)
{
    Fixture f, again;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    static const char *const names[] = {"given up", "gone", "replaced", "open", "late"};
    int64_t intents[G_N_ELEMENTS (names)];
    uint64_t inos[G_N_ELEMENTS (names)];
    EcfsAttr attr;
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 100, 6);
        inos[i] = make_file (&f, ECFS_ROOT_INO, names[i]);
        OK (e, ecfs_catalog_intent_begin (f.catalog, object, inos[i], &intents[i], &e));
    }
    OK (e, ecfs_catalog_intent_abort (f.catalog, intents[0], &e));
    OK (e, ecfs_catalog_unlink (f.catalog, ECFS_ROOT_INO, names[1], &attr, &e));
    publish (&f, inos[2], 6, 100);
    g_autoptr (GPtrArray) rows = journal_of (&f);
    g_assert_cmpuint (restore (&again, rows, 2, 100), ==, 0);
    g_assert_cmpuint (count_intents (&again), ==, 2);
    fixture_clear (&again);
    fixture_clear (&f);
}

/* Everything that journals an inode, done while bytes of it are flushed and not stored. */
static void change_staged (Fixture *f, uint64_t ino)
{
    EcfsAttr attr = {.mtime_ns = 8888, .mode = 0600};
    add_staged (f, ino, 9999);
    g_assert_cmpint (get_attr (f, ino).mtime_ns, ==, 9999);
    OK (e, ecfs_catalog_setattr (f->catalog, ino, &attr, ECFS_ATTR_MTIME, NULL, &e));
    OK (e, ecfs_catalog_setattr (f->catalog, ino, &attr, ECFS_ATTR_MODE, NULL, &e));
    OK (e, ecfs_catalog_setxattr (f->catalog, ino, "user.x", "y", 1, 0, &e));
    OK (e, ecfs_catalog_link (f->catalog, ino, ECFS_ROOT_INO, "other", &attr, &e));
    OK (e, ecfs_catalog_rename (f->catalog, ECFS_ROOT_INO, "file", ECFS_ROOT_INO, "new name", 0, &attr, &e));
    fixture_reopen (f);
    g_assert_cmpint (get_attr (f, ino).mtime_ns, ==, 8888);
}

static void check_times (Fixture *f)
{
    static const char *const names[] = {"new name", "other", "replaced"};
    EcfsAttr attr;
    for (unsigned i = 0; i < 2; i++) {
        Fixture again;
        g_autoptr (GPtrArray) rows = i == 0 ? journal_of (f) : snapshot_of (f);
        g_assert_cmpuint (restore (&again, rows, 2, 100), ==, 0);
        for (size_t j = 0; j < G_N_ELEMENTS (names); j++) {
            OK (e, ecfs_catalog_lookup (again.catalog, ECFS_ROOT_INO, names[j], &attr, &e));
            g_assert_cmpint (attr.mtime_ns, ==, 4711);
            g_assert_cmpuint (attr.size, ==, 107);
        }
        fixture_clear (&again);
    }
}

/* A file that comes back with its stored bytes has their time: who copies what is newer copies it again. */
static void test_staged_times (void)
{
    Fixture f;
    EcfsAttr attr;
    EcfsNewInode new = {.mode = S_IFREG | 0644, .staged = true};
    fixture_init (&f);
    fixture_add_endpoints (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file"), replaced = make_file (&f, ECFS_ROOT_INO, "replaced");
    publish (&f, ino, 6, 100);
    publish (&f, replaced, 6, 100);
    change_staged (&f, ino);
    OK (e, ecfs_catalog_make (f.catalog, ECFS_ROOT_INO, "unstored", &new, &attr, NULL, &e));
    add_staged (&f, attr.ino, 6666);
    OK (e, ecfs_catalog_rename (f.catalog, ECFS_ROOT_INO, "unstored", ECFS_ROOT_INO, "replaced", 0, &attr, &e));
    check_times (&f);
    publish (&f, ino, 6, 100); /* with its own time */
    check_times (&f);
    fixture_clear (&f);
}

/* Objects come back under the keys that they are stored under, and without where there are none. */
static void test_keys (void)
{
    Fixture f;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    publish (&f, make_file (&f, ECFS_ROOT_INO, "sealed"), 6, 100);
    publish (&f, make_file (&f, ECFS_ROOT_INO, "also"), 6, 102);
    publish (&f, make_file (&f, ECFS_ROOT_INO, "plain"), 6, 10);
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) expected = ecfs_catalog_objects (f.catalog, 0, 10, &error);
    g_assert_cmpuint (expected->len, ==, 3);
    for (unsigned i = 0; i < 2; i++) {
        Fixture again;
        g_autoptr (GPtrArray) rows = i == 0 ? journal_of (&f) : snapshot_of (&f);
        g_assert_cmpuint (restore (&again, rows, 2, 100), ==, 0);
        fixture_reopen (&again);
        g_autoptr (GPtrArray) found = ecfs_catalog_objects (again.catalog, 0, 10, &error);
        g_assert_cmpuint (found->len, ==, 3);
        for (guint j = 0; j < 3; j++) {
            const EcfsObjectRow *object = g_ptr_array_index (found, j);
            g_assert_cmpint (object->seal.kind, ==, j < 2 ? ECFS_SEAL_CTR_HMAC : ECFS_SEAL_NONE);
            assert_same_seal (object, g_ptr_array_index (expected, j));
        }
        fixture_clear (&again);
    }
    fixture_clear (&f);
}

/* Of one record, which is taken over. */
static bool is_refused (EcfsRestore *restore, GByteArray *record)
{
    uint64_t n_refused = 0;
    g_autoptr (GPtrArray) rows = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_journal_row_free);
    (void) add_row (rows, record, NULL);
    g_byte_array_unref (record);
    OK (e, ecfs_restore_records (restore, rows, &n_refused, &e));
    return n_refused > 0;
}

/* The key of @of, which may be NULL, then the object, which may be NULL. */
static GByteArray *key_and_object (const EcfsObjectRow *of, EcfsSeal seal, const EcfsObjectRow *object)
{
    GByteArray *record = g_byte_array_new ();
    if (of != NULL)
        ecfs_journal_put_object_key (record, &of->uuid, &seal);
    if (object != NULL)
        ecfs_journal_put_object (record, object, NULL);
    return record;
}

/* No record makes another key of an object's, or one of none, or none of one; and a key is of the next object alone. */
static void test_hostile_keys (void)
{
    Fixture f;
    fixture_init (&f);
    g_autoptr (EcfsRestore) restore = ecfs_restore_new (f.catalog);
    g_autoptr (EcfsObjectRow) a = new_object (&f, "rs:4+2", 100, 0), b = new_object (&f, "rs:4+2", 100, 0);
    EcfsSeal damaged = {.kind = ECFS_SEAL_NONE}, other = a->seal, later = b->seal;
    other.nonce[0]++;
    later.kind = (EcfsSealKind) 3;
    for (unsigned i = 0; i < 2; i++) /* once more does no harm */
        g_assert_false (is_refused (restore, key_and_object (a, a->seal, a)));
    g_assert_true (is_refused (restore, key_and_object (a, other, a)));
    g_assert_true (is_refused (restore, key_and_object (NULL, damaged, a)));
    g_assert_true (is_refused (restore, key_and_object (b, damaged, b)));
    g_assert_true (is_refused (restore, key_and_object (b, later, b)));
    g_assert_true (is_refused (restore, key_and_object (a, a->seal, b)));
    GByteArray *twice = key_and_object (b, b->seal, NULL), *apart = key_and_object (b, b->seal, NULL);
    ecfs_journal_put_object_key (twice, &b->uuid, &b->seal);
    ecfs_journal_put_object (twice, b, NULL);
    g_assert_true (is_refused (restore, twice));
    ecfs_journal_put_epoch (apart, 1);
    ecfs_journal_put_object (apart, b, NULL);
    g_assert_true (is_refused (restore, apart));
    bool known = true;
    OK (e, ecfs_catalog_object_known (f.catalog, &b->uuid, &known, &e));
    g_assert_false (known);
    g_assert_true (is_refused (restore, key_and_object (b, b->seal, NULL)));
    g_assert_false (is_refused (restore, key_and_object (NULL, damaged, b))); /* the key was of the record before */
    g_assert_true (is_refused (restore, key_and_object (b, b->seal, b)));
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) found = ecfs_catalog_objects (f.catalog, 0, 10, &error);
    g_assert_cmpuint (found->len, ==, 2);
    assert_same_seal (g_ptr_array_index (found, 0), a);
    g_assert_cmpint (((const EcfsObjectRow *) g_ptr_array_index (found, 1))->seal.kind, ==, ECFS_SEAL_NONE);
    fixture_clear (&f);
}

static GByteArray *inode_record (uint64_t ino, uint32_t mode)
{
    GByteArray *record = g_byte_array_new ();
    const EcfsAttr attr = {.ino = ino, .mode = mode, .nlink = 1};
    ecfs_journal_put_inode (record, &attr, NULL);
    return record;
}

/* Two extents of 40 bytes, the second from @second on, of @object. */
static GByteArray *content_record (uint64_t ino, const EcfsObjectRow *object, uint64_t second)
{
    GByteArray *record = g_byte_array_new ();
    const EcfsAttr attr = {.ino = ino, .size = 100};
    const EcfsJournalExtent extents[] = {{.length = 40, .object = object->uuid},
                                         {.offset = second, .length = 40, .object = object->uuid, .object_offset = 40}};
    ecfs_journal_put_content (record, &attr, extents, G_N_ELEMENTS (extents));
    return record;
}

static GByteArray *name_record (uint64_t parent, const char *name, uint64_t ino)
{
    GByteArray *record = g_byte_array_new ();
    ecfs_journal_put_name_added (record, parent, name, ino);
    return record;
}

/* What is not looked at again, since it was just written, is looked at where it may have changed. */
static void test_hostile_files (void)
{
    Fixture f;
    fixture_init (&f);
    g_autoptr (EcfsRestore) restore = ecfs_restore_new (f.catalog);
    g_autoptr (EcfsObjectRow) a = new_object (&f, "rs:4+2", 100, 0), b = new_object (&f, "rs:4+2", 60, 0);
    g_assert_false (is_refused (restore, key_and_object (a, a->seal, a)));
    g_assert_false (is_refused (restore, key_and_object (b, b->seal, b)));
    g_assert_false (is_refused (restore, inode_record (7, S_IFREG | 0644)));
    g_assert_false (is_refused (restore, inode_record (8, S_IFDIR | 0755)));
    g_assert_true (is_refused (restore, inode_record (7, S_IFDIR | 0755)));
    g_assert_true (is_refused (restore, content_record (7, a, 39)));
    g_assert_true (is_refused (restore, content_record (7, a, 0)));
    g_assert_true (is_refused (restore, content_record (7, b, 40)));
    g_assert_true (is_refused (restore, content_record (7, a, INT64_MAX - 10)));
    g_assert_true (is_refused (restore, content_record (8, a, 40)));
    g_assert_true (is_refused (restore, content_record (9, a, 40)));
    g_assert_true (is_refused (restore, content_record (UINT64_MAX, a, 40)));
    for (unsigned i = 0; i < 2; i++) /* for the first time, and in the place of what was */
        g_assert_false (is_refused (restore, content_record (7, a, 40 + i)));
    g_assert_true (is_refused (restore, content_record (7, a, 0)));
    g_assert_false (is_refused (restore, name_record (8, "file", 7)));
    g_assert_false (is_refused (restore, name_record (8, "file", 7)));
    g_assert_true (is_refused (restore, name_record (8, "none", 9)));
    g_assert_true (is_refused (restore, name_record (8, "root", ECFS_ROOT_INO)));
    g_assert_true (is_refused (restore, name_record (7, "below a file", 8)));
    g_assert_true (is_refused (restore, name_record (10, "nowhere", 7)));
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) extents = ecfs_catalog_extents (f.catalog, 7, &error);
    g_assert_cmpuint (extents->len, ==, 2);
    g_assert_cmpuint (g_array_index (extents, EcfsExtent, 1).offset, ==, 41);
    /* a directory without names takes no more */
    GByteArray *removed = g_byte_array_new ();
    ecfs_journal_put_touch (removed, &(EcfsAttr){.ino = 8, .nlink = 0});
    g_assert_false (is_refused (restore, name_record (8, "last", 7)));
    g_assert_false (is_refused (restore, removed));
    g_assert_true (is_refused (restore, name_record (8, "later", 7)));
    fixture_clear (&f);
}

/* Records that are damaged, or of nobody, never make a catalog that SQLite finds wrong. */
static void test_hostile (void)
{
    Fixture f, again;
    make_history (&f);
    for (int round = 0; round < 12; round++) {
        g_autoptr (GPtrArray) rows = round % 2 == 0 ? journal_of (&f) : snapshot_of (&f);
        for (guint i = 0; i < rows->len; i++) {
            EcfsJournalRow *row = g_ptr_array_index (rows, i);
            for (int n = g_test_rand_int_range (0, 3); n > 0; n--)
                row->record->data[g_test_rand_int_range (0, (gint32) row->record->len)] = (uint8_t) g_test_rand_int ();
        }
        (void) restore (&again, rows, 2, 5000); /* it may take all of them */
        (void) count_problems (&again);         /* any, but SQLite's */
        fixture_clear (&again);
        restore_past (&again, rows, (guint) g_test_rand_int_range (0, (gint32) rows->len + 1));
        (void) count_problems (&again);
        fixture_clear (&again);
    }
    fixture_clear (&f);
}

/* Files */

static GByteArray *some_file (EcfsJournalFile *file)
{
    g_autoptr (GByteArray) raw = g_byte_array_new ();
    *file = (EcfsJournalFile){.archive = ecfs_uuid_new (),
                              .kind = ECFS_JOURNAL_SEGMENT,
                              .epoch = 3,
                              .first = 10,
                              .last = 29,
                              .n_records = 20};
    for (uint64_t i = 10; i < 30; i++)
        ecfs_journal_file_put (raw, i, (int64_t) i * 100, (const uint8_t *) "record", i % 7);
    return ecfs_journal_file_format (file, raw, NULL);
}

static void test_file (void)
{
    EcfsJournalFile file, found;
    char name[ECFS_JOURNAL_NAME_SIZE];
    g_autoptr (GError) error = NULL;
    g_autoptr (GByteArray) bytes = some_file (&file);
    g_autoptr (GPtrArray) rows = ecfs_journal_file_parse (bytes->data, bytes->len, NULL, &found, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (rows->len, ==, 20);
    const EcfsJournalRow *row = g_ptr_array_index (rows, 3);
    g_assert_cmpuint (row->sequence, ==, 13);
    g_assert_cmpint (row->time_ns, ==, 1300);
    g_assert_cmpmem (row->record->data, (int) row->record->len, "record", 6);
    ecfs_journal_file_name (&found, name);
    g_assert_cmpstr (name, ==, "journal/00000003-000000000000000a-000000000000001d");
    g_assert_true (ecfs_journal_file_name_parse (name, &found));
    g_assert_true (found.epoch == 3 && found.first == 10 && found.last == 29);
    found = (EcfsJournalFile){.kind = ECFS_JOURNAL_SNAPSHOT, .epoch = 1, .last = 255, .part = 2, .is_last = true};
    ecfs_journal_file_name (&found, name);
    g_assert_cmpstr (name, ==, "snapshots/00000001-00000000000000ff-00000002-end");
    g_assert_true (ecfs_journal_file_name_parse (name, &found));
    g_assert_true (found.is_last && found.part == 2 && found.last == 255);
}

static void test_file_damage (void)
{
    static const char *const names[] = {"journal/",
                                        "journal/00000001-0000000000000002-0000000000000001",
                                        "journal/00000000-0000000000000001-0000000000000001",
                                        "snapshots/x",
                                        "journal/0000000A-0000000000000001-0000000000000001",
                                        "snapshots/00000001-0000000000000001-00000000-en",
                                        "stripes/00000001-0000000000000001-0000000000000001"};
    EcfsJournalFile file;
    g_autoptr (GByteArray) bytes = some_file (&file);
    for (guint i = 0; i < bytes->len; i++) {
        g_autoptr (GPtrArray) rows = NULL;
        g_autofree uint8_t *copy = g_memdup2 (bytes->data, bytes->len);
        copy[i] ^= 0x10;
        rows = ecfs_journal_file_parse (copy, bytes->len, NULL, &file, NULL);
        g_assert_null (rows);
        g_autofree uint8_t *shorter = g_memdup2 (bytes->data, i);
        g_assert_null (ecfs_journal_file_parse (shorter, i, NULL, &file, NULL));
    }
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++)
        g_assert_false (ecfs_journal_file_name_parse (names[i], &file));
}

/* A header that promises @raw_bytes, and is whole else. */
static bool may_be_so_long (uint64_t raw_bytes)
{
    EcfsJournalFile file;
    g_autoptr (GByteArray) bytes = some_file (&file);
    ecfs_put_le (bytes->data + 72, raw_bytes, 8);
    ecfs_put_le (bytes->data + 136, XXH3_64bits (bytes->data, 136), 8);
    return ecfs_journal_file_head (bytes->data, bytes->len, &file, NULL);
}

/* Whoever reads one has memory for so much, and a stranger's is not asked for more. */
static void test_file_bound (void)
{
    g_assert_true (may_be_so_long (64u << 20));
    g_assert_false (may_be_so_long ((64u << 20) + 1));
    g_assert_false (may_be_so_long (UINT64_MAX));
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/restore/a-catalog-comes-back-from-its-journal-and-from-a-snapshot",
                     test_from_journal_and_snapshot);
    g_test_add_func ("/restore/no-snapshot-lacks-rows-that-were-taken-away", test_rows_taken_away);
    g_test_add_func ("/restore/one-that-is-refused-leaves-no-other-out", test_refused_among_others);
    g_test_add_func ("/restore/a-mark-keeps-what-was-packed-since", test_mark_keeps_what_was_packed_since);
    g_test_add_func ("/restore/each-record-tells-of-the-one-before-it", test_links);
    g_test_add_func ("/restore/what-was-never-closed-is-left-out", test_unfinished);
    g_test_add_func ("/restore/what-came-to-nothing-is-not-awaited", test_intents);
    g_test_add_func ("/restore/times-of-staged-bytes-are-left-out", test_staged_times);
    g_test_add_func ("/restore/impossible-files-are-refused", test_hostile_files);
    g_test_add_func ("/restore/a-refused-record-leaves-nothing-behind", test_refused_content);
    g_test_add_func ("/restore/objects-keep-their-keys", test_keys);
    g_test_add_func ("/restore/no-record-changes-a-key", test_hostile_keys);
    g_test_add_func ("/restore/hostile-records-make-no-unsound-catalog", test_hostile);
    g_test_add_func ("/restore/a-file-is-read-as-it-was-written", test_file);
    g_test_add_func ("/restore/a-damaged-file-is-refused", test_file_damage);
    g_test_add_func ("/restore/a-file-has-at-most-64-mib-of-records", test_file_bound);
    return g_test_run ();
}
