/* Several that have one catalog in PostgreSQL open for writing. */
#include "catalog/catalog.h"
#include "catalog/db.h"
#include "catalog/file_facts.h"
#include "catalog/journal_rows.h"
#include "catalog/locks.h"
#include "catalog/lost.h"
#include "catalog/marks.h"
#include "catalog/namespace_priv.h"
#include "catalog/optimistic.h"
#include "catalog/pg_priv.h"
#include "check_db.h"
#include "fixture.h"

#include <pthread.h>

#define N_MEMBERS 3

typedef struct Members {
    Fixture one; /* of the first, which makes it */
    char *locations[N_MEMBERS];
    EcfsCatalog *catalogs[N_MEMBERS];
} Members;

static EcfsCatalog *open_member (const char *location)
{
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_catalog_open (location, ECFS_CATALOG_MEMBER, &error);
    g_assert_no_error (error);
    g_assert_true (ecfs_catalog_is_shared (catalog));
    return catalog;
}

static void init_members (Members *m)
{
    fixture_init (&m->one);
    fixture_add_endpoints (&m->one);
    fixture_close (&m->one);
    for (unsigned i = 0; i < N_MEMBERS; i++) {
        EcfsUuid uuid = ecfs_uuid_new ();
        m->locations[i] = fixture_place_for (&m->one, &uuid);
        m->catalogs[i] = open_member (m->locations[i]);
    }
}

static Fixture *as (Members *m, unsigned i)
{
    m->one.catalog = m->catalogs[i];
    return &m->one;
}

static void clear_members (Members *m)
{
    for (unsigned i = 0; i < N_MEMBERS; i++) {
        EcfsCatalog *catalog = m->catalogs[i];
        OK (e, ecfs_catalog_close (catalog, &e));
        g_free (m->locations[i]);
    }
    m->one.catalog = NULL;
    fixture_clear (&m->one);
}

/* What one has made is there for the others as soon as it is made durable, whatever they looked at before. */
static void test_all_see_all (void)
{
    Members m;
    EcfsAttr attr;
    init_members (&m);
    for (unsigned i = 0; i < 30; i++) {
        g_autofree char *name = g_strdup_printf ("file%u", i);
        (void) make_file (as (&m, i % 3), ECFS_ROOT_INO, name);
        OK (e, ecfs_catalog_barrier (m.catalogs[i % 3], &e));
        for (unsigned j = 0; j < 3; j++)
            OK (e, ecfs_catalog_lookup (m.catalogs[j], ECFS_ROOT_INO, name, &attr, &e));
    }
    g_assert_cmpuint (get_totals (as (&m, 1)).n_inodes, ==, 31);
    clear_members (&m);
}

static void test_one_leads (void)
{
    Members m;
    init_members (&m);
    g_assert_true (ecfs_catalog_leads (m.catalogs[0]));
    g_assert_false (ecfs_catalog_leads (m.catalogs[1]));
    OK (e, ecfs_catalog_look_around (m.catalogs[1], &e));
    g_assert_false (ecfs_catalog_leads (m.catalogs[1]));
    OK (e, ecfs_catalog_close (g_steal_pointer (&m.catalogs[0]), &e));
    OK (e, ecfs_catalog_look_around (m.catalogs[2], &e));
    OK (e, ecfs_catalog_look_around (m.catalogs[1], &e));
    g_assert_true (ecfs_catalog_leads (m.catalogs[2]));
    g_assert_false (ecfs_catalog_leads (m.catalogs[1]));
    m.catalogs[0] = open_member (m.locations[0]);
    g_assert_false (ecfs_catalog_leads (m.catalogs[0]));
    clear_members (&m);
}

/* One that cannot do it leaves it to others, for a while. */
static void test_resigns (void)
{
    Members m;
    init_members (&m);
    OK (e, ecfs_catalog_resign (m.catalogs[0], &e));
    OK (e, ecfs_catalog_look_around (m.catalogs[0], &e));
    g_assert_false (ecfs_catalog_leads (m.catalogs[0]));
    OK (e, ecfs_catalog_look_around (m.catalogs[1], &e));
    g_assert_true (ecfs_catalog_leads (m.catalogs[1]));
    clear_members (&m);
}

/* Who wants it alone, and members, keep each other out. */
static void test_alone_or_not (void)
{
    Members m;
    init_members (&m);
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_catalog_open (m.one.path, 0, &error));
    g_assert_error (error, ECFS_ERROR, EBUSY);
    g_clear_error (&error);
    for (unsigned i = 0; i < N_MEMBERS; i++)
        OK (e, ecfs_catalog_close (g_steal_pointer (&m.catalogs[i]), &e));
    fixture_open (&m.one, 0);
    g_assert_null (ecfs_catalog_open (m.locations[0], ECFS_CATALOG_MEMBER, &error));
    g_assert_error (error, ECFS_ERROR, EBUSY);
    fixture_close (&m.one);
    for (unsigned i = 0; i < N_MEMBERS; i++)
        m.catalogs[i] = open_member (m.locations[i]);
    clear_members (&m);
}

/* Who opens it to lead comes in where nobody does, and finds out whether who does is alive. */
static void test_to_lead (void)
{
    Members m;
    const unsigned flags = ECFS_CATALOG_MEMBER | ECFS_CATALOG_LEADER;
    init_members (&m);
    g_autoptr (GError) error = NULL;
    OK (e, ecfs_catalog_close (g_steal_pointer (&m.catalogs[2]), &e));
    g_assert_null (ecfs_catalog_open (m.locations[2], flags, &error));
    g_assert_error (error, ECFS_ERROR, EBUSY);
    g_clear_error (&error);
    OK (e, ecfs_catalog_close (g_steal_pointer (&m.catalogs[0]), &e));
    m.catalogs[2] = ecfs_catalog_open (m.locations[2], flags, &error);
    g_assert_no_error (error);
    g_assert_true (ecfs_catalog_leads (m.catalogs[2]));
    OK (e, ecfs_catalog_close (g_steal_pointer (&m.catalogs[2]), &e));
    m.catalogs[0] = open_member (m.locations[0]);
    run_pg_sql (m.one.path, "UPDATE members SET session = 'killed' WHERE id = 4"); /* it leads, and gives no sign */
    run_pg_sql (m.one.path, "UPDATE holder SET session = 'killed'");
    ecfs_pg_dead_us = 2 * G_USEC_PER_SEC;
    m.catalogs[2] = ecfs_catalog_open (m.locations[2], flags, &error);
    ecfs_pg_dead_us = 20 * G_USEC_PER_SEC;
    g_assert_no_error (error);
    g_assert_true (ecfs_catalog_leads (m.catalogs[2]));
    clear_members (&m);
}

static char *peers_of (Members *m, unsigned i)
{
    g_autoptr (GError) error = NULL;
    GPtrArray *found = ecfs_catalog_peers (m->catalogs[i], &error);
    g_assert_no_error (error);
    g_ptr_array_add (found, NULL);
    char *text = g_strjoinv (" ", (char **) found->pdata);
    g_ptr_array_unref (found);
    return text;
}

/* They find each other's addresses as long as these are told, and the catalog is open. */
static void test_peers (void)
{
    Members m;
    init_members (&m);
    OK (e, ecfs_catalog_tell_peer (m.catalogs[0], "a:1", &e));
    OK (e, ecfs_catalog_tell_peer (m.catalogs[1], "[::1]:2", &e));
    g_autofree char *both = peers_of (&m, 2);
    g_assert_cmpstr (both, ==, "a:1 [::1]:2");
    OK (e, ecfs_catalog_tell_peer (m.catalogs[0], NULL, &e));
    g_autofree char *one = peers_of (&m, 2);
    g_assert_cmpstr (one, ==, "[::1]:2");
    OK (e, ecfs_catalog_close (g_steal_pointer (&m.catalogs[1]), &e));
    m.catalogs[1] = open_member (m.locations[1]);
    g_autofree char *none = peers_of (&m, 1);
    g_assert_cmpstr (none, ==, "");
    OK (e, ecfs_catalog_tell_peer (m.catalogs[1], "b:3", &e));
    g_autoptr (GError) error = NULL;
    EcfsCatalog *reader = ecfs_catalog_open (m.locations[2], ECFS_CATALOG_READONLY, &error);
    g_assert_no_error (error);
    g_assert_cmpint (CODE (e, ecfs_catalog_tell_peer (reader, "c:4", &e)), ==, EROFS);
    GPtrArray *found = ecfs_catalog_peers (reader, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (found->len, ==, 1);
    g_ptr_array_unref (found);
    OK (e, ecfs_catalog_close (reader, &e));
    clear_members (&m);
}

static guint n_ended_logs (EcfsCatalog *catalog)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) ended = ecfs_catalog_objects_of_kind (catalog, ECFS_OBJECT_LOG, true, 0, 10, &error);
    g_assert_no_error (error);
    return ended->len;
}

/* One that is silent for too long is dead: another leads, what it announced is given up, and when it wakes it can
 * change nothing. */
static void test_dead_leader (void)
{
    Members m;
    int64_t intent;
    bool gone;
    g_autoptr (GError) error = NULL;
    init_members (&m);
    uint64_t ino = make_file (as (&m, 0), ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (as (&m, 0), "rs:4+2", 1000, 6);
    OK (e, ecfs_catalog_intent_begin (m.catalogs[0], object, ino, &intent, &e));
    g_autoptr (EcfsObjectRow) log = new_object (as (&m, 0), "copies:3", 0, 3);
    log->has_sha256 = false;
    OK (e, ecfs_catalog_log_begin (m.catalogs[0], log, &intent, &e));
    g_assert_cmpuint (n_ended_logs (m.catalogs[1]), ==, 0);
    OK (e, ecfs_catalog_drop_unused (m.catalogs[1], &log->uuid, &gone, &e));
    g_assert_false (gone);
    ecfs_pg_dead_us = 2 * G_USEC_PER_SEC;
    for (int64_t until_us = g_get_monotonic_time () + 30 * G_USEC_PER_SEC;
         !ecfs_catalog_leads (m.catalogs[1]) && g_get_monotonic_time () < until_us;) {
        run_pg_sql (m.one.path, "UPDATE members SET beat = 1, txn = 1 WHERE id = 2"); /* as if it were silent */
        g_usleep (G_USEC_PER_SEC / 10);
        OK (e, ecfs_catalog_look_around (m.catalogs[1], &e));
    }
    g_assert_true (ecfs_catalog_leads (m.catalogs[1]));
    ecfs_pg_dead_us = 20 * G_USEC_PER_SEC;
    uint64_t n_deletions = get_totals (as (&m, 1)).n_deletions;
    OK (e, ecfs_catalog_intents_abort_dead (m.catalogs[1], &e));
    g_assert_cmpuint (get_totals (as (&m, 1)).n_deletions, ==, n_deletions + 6);
    g_assert_cmpuint (n_ended_logs (m.catalogs[1]), ==, 1);
    OK (e, ecfs_catalog_drop_unused (m.catalogs[1], &log->uuid, &gone, &e));
    g_assert_true (gone);
    EcfsNewInode new = {.mode = S_IFREG | 0644};
    EcfsAttr attr;
    g_assert_false (ecfs_catalog_make (m.catalogs[0], ECFS_ROOT_INO, "after", &new, &attr, NULL, &error));
    g_assert_error (error, ECFS_ERROR, ESTALE);
    g_assert_cmpint (CODE (e, ecfs_catalog_look_around (m.catalogs[0], &e)), ==, ESTALE);
    g_assert_false (ecfs_catalog_leads (m.catalogs[0]));
    OK (e, ecfs_catalog_close (g_steal_pointer (&m.catalogs[0]), &e));
    m.catalogs[0] = open_member (m.locations[0]);
    clear_members (&m);
}

/* Locks */

/* One range of an owner, or none; whether it is granted. */
static bool lock_range (EcfsCatalog *catalog, uint64_t owner, int64_t first, int64_t last, EcfsLockType type)
{
    const EcfsLockOwner who = {.ino = ECFS_ROOT_INO, .owner = owner, .kind = ECFS_LOCK_FCNTL};
    g_autoptr (GArray) ranges = ecfs_lock_ranges_new ();
    bool granted = false;
    ecfs_lock_ranges_set (ranges, first, last, type);
    OK (e, ecfs_catalog_lock_set (catalog, &who, ranges, &granted, &e));
    return granted;
}

static bool lock_all (EcfsCatalog *catalog, EcfsLockType type)
{
    return lock_range (catalog, 1, 0, ECFS_LOCK_END, type);
}

static void test_locks (void)
{
    Members m;
    bool there;
    EcfsLockRange found;
    const EcfsLockOwner who = {.ino = ECFS_ROOT_INO, .owner = 1, .kind = ECFS_LOCK_FCNTL};
    init_members (&m);
    g_assert_true (lock_range (m.catalogs[0], 1, 10, 19, ECFS_LOCK_EXCLUSIVE));
    g_assert_true (lock_range (m.catalogs[1], 1, 20, ECFS_LOCK_END, ECFS_LOCK_EXCLUSIVE));
    g_assert_true (lock_range (m.catalogs[2], 1, 0, 9, ECFS_LOCK_SHARED));
    g_assert_false (lock_range (m.catalogs[2], 1, 0, 10, ECFS_LOCK_SHARED)); /* and it has what it had */
    g_assert_false (lock_range (m.catalogs[0], 1, 9, 19, ECFS_LOCK_EXCLUSIVE));
    g_assert_true (lock_range (m.catalogs[0], 1, 9, 19, ECFS_LOCK_SHARED));
    g_assert_false (lock_range (m.catalogs[0], 2, 9, 9, ECFS_LOCK_EXCLUSIVE)); /* of its own other owner, too */
    OK (e, ecfs_catalog_lock_find (m.catalogs[1], &who, &(EcfsLockRange){0, 30, true}, &there, &found, &e));
    g_assert_true (there && found.first == 0 && found.last == 9 && !found.exclusive);
    OK (e, ecfs_catalog_lock_find (m.catalogs[0], &who, &(EcfsLockRange){9, 19, false}, &there, &found, &e));
    g_assert_false (there);
    g_assert_true (lock_all (m.catalogs[0], ECFS_LOCK_NONE));
    g_assert_true (lock_all (m.catalogs[1], ECFS_LOCK_SHARED));
    g_assert_false (lock_all (m.catalogs[2], ECFS_LOCK_EXCLUSIVE));
    OK (e, ecfs_catalog_close (g_steal_pointer (&m.catalogs[1]), &e));
    g_assert_true (lock_all (m.catalogs[2], ECFS_LOCK_EXCLUSIVE));
    m.catalogs[1] = open_member (m.locations[1]);
    g_assert_false (lock_all (m.catalogs[1], ECFS_LOCK_SHARED));
    clear_members (&m);
}

/* Who is taken for dead has none any more, and is told so. */
static void test_locks_of_the_dead (void)
{
    Members m;
    bool granted;
    const EcfsLockOwner who = {.ino = ECFS_ROOT_INO, .owner = 1, .kind = ECFS_LOCK_FCNTL};
    g_autoptr (GArray) none = ecfs_lock_ranges_new ();
    init_members (&m);
    g_assert_true (lock_all (m.catalogs[2], ECFS_LOCK_EXCLUSIVE));
    g_assert_false (lock_all (m.catalogs[1], ECFS_LOCK_EXCLUSIVE));
    ecfs_pg_dead_us = 2 * G_USEC_PER_SEC;
    bool free = false;
    for (int64_t until_us = g_get_monotonic_time () + 30 * G_USEC_PER_SEC; !free && g_get_monotonic_time () < until_us;
         free = lock_all (m.catalogs[1], ECFS_LOCK_EXCLUSIVE)) {
        run_pg_sql (m.one.path, "UPDATE members SET beat = 1, txn = 1 WHERE id = 4"); /* as if it were silent */
        g_usleep (G_USEC_PER_SEC / 10);
        OK (e, ecfs_catalog_look_around (m.catalogs[1], &e));
    }
    g_assert_true (free);
    ecfs_pg_dead_us = 20 * G_USEC_PER_SEC;
    g_assert_cmpint (CODE (e, ecfs_catalog_lock_set (m.catalogs[2], &who, none, &granted, &e)), ==, ESTALE);
    g_assert_nonnull (ecfs_catalog_behind (m.catalogs[2]));
    OK (e, ecfs_catalog_close (g_steal_pointer (&m.catalogs[2]), &e));
    m.catalogs[2] = open_member (m.locations[2]);
    g_assert_false (lock_all (m.catalogs[2], ECFS_LOCK_EXCLUSIVE));
    clear_members (&m);
}

typedef struct Locker {
    EcfsCatalog *catalog;
    pthread_t thread;
} Locker;

static unsigned n_inside, n_counted;

static void *lock_and_count (void *data)
{
    const Locker *self = data;
    for (unsigned n = 0; n < 50;) {
        if (!lock_all (self->catalog, ECFS_LOCK_EXCLUSIVE))
            continue;
        g_assert_cmpuint (++n_inside, ==, 1); /* not atomic: nobody else is here */
        unsigned before = n_counted;
        g_usleep (100);
        n_counted = before + 1;
        n_inside--;
        g_assert_true (lock_all (self->catalog, ECFS_LOCK_NONE));
        n++;
    }
    return NULL;
}

static void test_lock_is_held_once (void)
{
    Members m;
    Locker lockers[N_MEMBERS];
    init_members (&m);
    n_counted = 0;
    for (unsigned i = 0; i < N_MEMBERS; i++) {
        lockers[i].catalog = m.catalogs[i];
        g_assert_cmpint (pthread_create (&lockers[i].thread, NULL, lock_and_count, &lockers[i]), ==, 0);
    }
    for (unsigned i = 0; i < N_MEMBERS; i++)
        g_assert_cmpint (pthread_join (lockers[i].thread, NULL), ==, 0);
    g_assert_cmpuint (n_counted, ==, N_MEMBERS * 50);
    clear_members (&m);
}

/* Content of a file is staged by one at a time, unless that is gone. */
static void test_one_stages (void)
{
    Members m;
    int64_t first, second;
    init_members (&m);
    uint64_t ino = make_file (as (&m, 0), ECFS_ROOT_INO, "file");
    OK (e, ecfs_catalog_staging_add (m.catalogs[0], ino, &first, &e));
    g_assert_cmpint (CODE (e, ecfs_catalog_staging_add (m.catalogs[1], ino, &second, &e)), ==, EBUSY);
    OK (e, ecfs_catalog_staging_remove (m.catalogs[0], first, &e));
    OK (e, ecfs_catalog_staging_add (m.catalogs[1], ino, &second, &e));
    g_assert_cmpint (CODE (e, ecfs_catalog_staging_add (m.catalogs[0], ino, &first, &e)), ==, EBUSY);
    OK (e, ecfs_catalog_close (g_steal_pointer (&m.catalogs[1]), &e));
    OK (e, ecfs_catalog_staging_add (m.catalogs[0], ino, &first, &e));
    m.catalogs[1] = open_member (m.locations[1]);
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (m.catalogs[1], NULL);
    g_assert_cmpuint (rows->len, ==, 0);
    g_assert_cmpuint (get_totals (as (&m, 1)).n_staged, ==, 1);
    clear_members (&m);
}

/* Makes COMMIT fail some times where there was such a change. */
static void refuse_commit (Members *m, const char *event, const char *when, unsigned n_times)
{
    g_autofree char *function = g_strdup_printf (
        "CREATE SEQUENCE tries; CREATE FUNCTION refuse () RETURNS trigger LANGUAGE plpgsql SET search_path FROM "
        "CURRENT "
        "AS $$ BEGIN IF nextval ('tries') <= %u THEN RAISE EXCEPTION 'refused'; END IF; RETURN NULL; END $$",
        n_times);
    g_autofree char *trigger =
        g_strdup_printf ("CREATE CONSTRAINT TRIGGER refuse AFTER %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN "
                         "(%s) EXECUTE FUNCTION refuse ()",
                         event, when);
    run_pg_sql (m->one.path, function);
    run_pg_sql (m->one.path, trigger);
}

/* Who could not tell the others that it leads does not. */
static void test_leads_when_committed (void)
{
    Members m;
    init_members (&m);
    refuse_commit (&m, "UPDATE ON holder", "NEW.session IS NOT NULL AND NEW.session IS DISTINCT FROM OLD.session", 4);
    OK (e, ecfs_catalog_close (g_steal_pointer (&m.catalogs[0]), &e));
    for (unsigned i = 0; i < 4; i++) {
        g_assert_cmpint (CODE (e, ecfs_catalog_look_around (m.catalogs[1 + i % 2], &e)), !=, 0);
        g_assert_false (ecfs_catalog_leads (m.catalogs[1]));
        g_assert_false (ecfs_catalog_leads (m.catalogs[2]));
    }
    OK (e, ecfs_catalog_look_around (m.catalogs[2], &e));
    OK (e, ecfs_catalog_look_around (m.catalogs[1], &e));
    g_assert_true (ecfs_catalog_leads (m.catalogs[2]));
    g_assert_false (ecfs_catalog_leads (m.catalogs[1]));
    m.catalogs[0] = open_member (m.locations[0]);
    clear_members (&m);
}

/* A file without a name that somebody is about to store is none to drop. */
static void test_orphans (void)
{
    Members m;
    int64_t row, intent;
    EcfsAttr attr;
    EcfsNewInode new = {.mode = S_IFREG | 0644};
    init_members (&m);
    uint64_t ino = make_file (as (&m, 0), ECFS_ROOT_INO, "file");
    OK (e, ecfs_catalog_staging_add (m.catalogs[0], ino, &row, &e));
    OK (e, ecfs_catalog_unlink (m.catalogs[1], ECFS_ROOT_INO, "file", &attr, &e));
    OK (e, ecfs_catalog_make (m.catalogs[2], ECFS_ROOT_INO, NULL, &new, &attr, NULL, &e));
    g_autoptr (EcfsObjectRow) object = new_object (as (&m, 2), "rs:4+2", 1000, 6);
    OK (e, ecfs_catalog_intent_begin (m.catalogs[2], object, attr.ino, &intent, &e));
    OK (e, ecfs_catalog_drop_orphans (m.catalogs[1], INT64_MAX, &e));
    g_assert_cmpuint (get_totals (as (&m, 1)).n_inodes, ==, 3);
    OK (e, ecfs_catalog_staging_remove (m.catalogs[0], row, &e));
    OK (e, ecfs_catalog_intent_abort (m.catalogs[2], intent, &e));
    OK (e, ecfs_catalog_drop_orphans (m.catalogs[1], INT64_MAX, &e));
    g_assert_cmpuint (get_totals (as (&m, 1)).n_inodes, ==, 1);
    clear_members (&m);
}

/* Who leads notices that another has removed a mark. */
static void test_marks (void)
{
    Members m;
    init_members (&m);
    OK (e, ecfs_catalog_mark_add (m.catalogs[1], "mark", &e));
    unsigned before = ecfs_catalog_marks_removed (m.catalogs[0]);
    OK (e, ecfs_catalog_mark_remove (m.catalogs[1], "mark", &e));
    g_assert_cmpuint (ecfs_catalog_marks_removed (m.catalogs[0]), !=, before);
    clear_members (&m);
}

static void *unlink_target (void *data)
{
    EcfsAttr attr;
    g_usleep (G_USEC_PER_SEC / 4); /* between two tries of what is done anew */
    OK (e, ecfs_catalog_unlink (data, ECFS_ROOT_INO, "new", &attr, &e));
    return NULL;
}

/* What is told of an operation that was done anew is of the last time. */
static void test_told_of_the_last_try (void)
{
    Members m;
    EcfsAttr replaced;
    pthread_t thread;
    init_members (&m);
    (void) make_file (as (&m, 0), ECFS_ROOT_INO, "old");
    (void) make_file (as (&m, 0), ECFS_ROOT_INO, "new");
    refuse_commit (&m, "UPDATE ON entries", "NEW.name IS DISTINCT FROM OLD.name", 4);
    g_assert_cmpint (pthread_create (&thread, NULL, unlink_target, m.catalogs[1]), ==, 0);
    OK (e, ecfs_catalog_rename (m.catalogs[0], ECFS_ROOT_INO, "old", ECFS_ROOT_INO, "new", 0, &replaced, &e));
    g_assert_cmpint (pthread_join (thread, NULL), ==, 0);
    g_assert_cmpuint (replaced.ino, ==, 0);
    clear_members (&m);
}

/* What was begun before the catalog came to the database stays whose it was, whoever is there first. */
static void test_copied (void)
{
    Members m;
    int64_t staging;
    init_members (&m);
    uint64_t ino = make_file (as (&m, 0), ECFS_ROOT_INO, "file");
    OK (e, ecfs_catalog_staging_add (m.catalogs[0], ino, &staging, &e));
    OK (e, ecfs_catalog_barrier (m.catalogs[0], &e));
    g_autofree char *file = g_build_filename (m.one.dir, "copy", NULL);
    OK (e, ecfs_catalog_copy (m.catalogs[0], file, NULL, &e));
    for (unsigned i = 0; i < N_MEMBERS; i++)
        OK (e, ecfs_catalog_close (g_steal_pointer (&m.catalogs[i]), &e));
    OK (e, ecfs_pg_drop (m.one.path, false, &e));
    OK (e, ecfs_pg_copy_from_file (m.locations[0], file, NULL, &e));
    g_assert_cmpint (unlink (file), ==, 0);
    for (unsigned i = N_MEMBERS; i-- > 0;) {
        m.catalogs[i] = open_member (m.locations[i]);
        g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (m.catalogs[i], NULL);
        g_assert_cmpuint (rows->len, ==, i == 0 ? 1 : 0);
    }
    clear_members (&m);
}

/* Who is to take the catalog elsewhere has what others have not stored. */
static void test_own (void)
{
    Members m;
    int64_t staging;
    init_members (&m);
    uint64_t ino = make_file (as (&m, 0), ECFS_ROOT_INO, "file");
    OK (e, ecfs_catalog_staging_add (m.catalogs[0], ino, &staging, &e));
    for (unsigned i = 0; i < N_MEMBERS; i++)
        OK (e, ecfs_catalog_close (g_steal_pointer (&m.catalogs[i]), &e));
    for (unsigned i = 0; i < 2; i++) {
        g_autoptr (GError) error = NULL;
        EcfsDb *db = ecfs_pg_open (m.locations[i], 0, &error);
        g_assert_no_error (error);
        g_assert_true (ecfs_pg_check_own (db, &error) == (i == 0));
        g_assert_cmpint (ecfs_errno (error), ==, i == 0 ? 0 : EBUSY);
        db->ops->close (db);
    }
    for (unsigned i = 0; i < N_MEMBERS; i++)
        m.catalogs[i] = open_member (m.locations[i]);
    clear_members (&m);
}

typedef struct Maker {
    EcfsCatalog *catalog;
    pthread_t thread;
    unsigned number;
    unsigned n_made; /* files that this one made */
} Maker;

#define N_NAMES 100

/* Makes names that others make, too, and moves directories that others move into each other. */
static void *make_and_move (void *data)
{
    Maker *self = data;
    for (unsigned i = 0; i < N_NAMES; i++) {
        EcfsNewInode new = {.mode = S_IFREG | 0644};
        EcfsAttr attr;
        g_autofree char *name = g_strdup_printf ("file%u", i);
        int code = CODE (e, ecfs_catalog_make (self->catalog, ECFS_ROOT_INO, name, &new, &attr, NULL, &e));
        g_assert_true (code == 0 || code == EEXIST);
        self->n_made += code == 0;
        g_autofree char *from = g_strdup_printf ("dir%u", (i + self->number) % N_MEMBERS);
        g_autofree char *to = g_strdup_printf ("dir%u", (i + self->number + 1) % N_MEMBERS);
        EcfsAttr above, replaced;
        if (!ecfs_catalog_lookup (self->catalog, ECFS_ROOT_INO, to, &above, NULL))
            continue;
        code = CODE (e, ecfs_catalog_rename (self->catalog, ECFS_ROOT_INO, from, above.ino, from, 0, &replaced, &e));
        g_assert_true (code == 0 || code == ENOENT || code == EINVAL || code == ENOTEMPTY);
        if (code == 0)
            (void) CODE (e,
                         ecfs_catalog_rename (self->catalog, above.ino, from, ECFS_ROOT_INO, from, 0, &replaced, &e));
    }
    return NULL;
}

static void tell (void *user, uint64_t ino, const char *text)
{
    (void) user;
    g_test_message ("inode %" PRIu64 ": %s", ino, text);
    g_test_fail ();
}

static void assert_sound (const char *path)
{
    bool sound = false;
    g_autoptr (GError) error = NULL;
    EcfsCatalog *reader = ecfs_catalog_open (path, ECFS_CATALOG_READONLY, &error);
    g_assert_no_error (error);
    OK (e, ecfs_catalog_check (reader, tell, NULL, &sound, &e));
    g_assert_true (sound);
    OK (e, ecfs_catalog_close (reader, &e));
}

static void *fail_to_make (void *data)
{
    EcfsNewInode new = {.mode = S_IFREG | 0644};
    EcfsAttr attr;
    for (unsigned i = 0; i < 8; i++)
        g_assert_cmpint (CODE (e, ecfs_catalog_make (data, ECFS_ROOT_INO, "none", &new, &attr, NULL, &e)), !=, 0);
    return NULL;
}

/* A number that may be another's record in the end is none to wait for. */
static void test_sequence_is_committed (void)
{
    Members m;
    pthread_t threads[4]; /* who is not alone waits a moment for the others before COMMIT */
    init_members (&m);
    (void) make_file (as (&m, 0), ECFS_ROOT_INO, "file");
    uint64_t sequence = ecfs_catalog_sequence (m.catalogs[1]);
    refuse_commit (&m, "INSERT ON entries", "NEW.ino > 0", 1000);
    for (unsigned i = 0; i < G_N_ELEMENTS (threads); i++)
        g_assert_cmpint (pthread_create (&threads[i], NULL, fail_to_make, m.catalogs[0]), ==, 0);
    for (unsigned i = 0; i < 20000; i++)
        g_assert_cmpuint (ecfs_catalog_sequence (m.catalogs[0]), ==, sequence);
    for (unsigned i = 0; i < G_N_ELEMENTS (threads); i++)
        g_assert_cmpint (pthread_join (threads[i], NULL), ==, 0);
    clear_members (&m);
}

/* Who waits for all that was done does not wait for what was given up. */
static void test_nothing_to_wait_for (void)
{
    Members m;
    init_members (&m);
    refuse_commit (&m, "INSERT ON entries", "NEW.ino > 0", 1000);
    (void) fail_to_make (m.catalogs[0]);
    OK (e, ecfs_catalog_barrier (m.catalogs[0], &e));
    clear_members (&m);
}

/* No name is made twice, no directory hangs in itself, no number of the journal is given twice or left out. */
static void test_all_at_once (void)
{
    Members m;
    Maker makers[N_MEMBERS];
    unsigned n_made = 0;
    init_members (&m);
    for (unsigned i = 0; i < N_MEMBERS; i++) {
        g_autofree char *name = g_strdup_printf ("dir%u", i);
        (void) make_dir (as (&m, 0), ECFS_ROOT_INO, name);
    }
    for (unsigned i = 0; i < N_MEMBERS; i++) {
        makers[i] = (Maker){.catalog = m.catalogs[i], .number = i};
        g_assert_cmpint (pthread_create (&makers[i].thread, NULL, make_and_move, &makers[i]), ==, 0);
    }
    for (unsigned i = 0; i < N_MEMBERS; i++) {
        g_assert_cmpint (pthread_join (makers[i].thread, NULL), ==, 0);
        n_made += makers[i].n_made;
    }
    g_assert_cmpuint (n_made, ==, N_NAMES);
    for (unsigned i = 0; i < N_MEMBERS; i++)
        OK (e, ecfs_catalog_barrier (m.catalogs[i], &e));
    g_autoptr (GPtrArray) rows = ecfs_catalog_journal (m.catalogs[2], 0, 100000, NULL);
    g_assert_cmpuint (rows->len, ==, ecfs_catalog_sequence (m.catalogs[0]));
    for (guint i = 0; i < rows->len; i++)
        g_assert_cmpuint (((EcfsJournalRow *) g_ptr_array_index (rows, i))->sequence, ==, i + 1);
    assert_sound (m.one.path);
    clear_members (&m);
}

/* Who waits for what was given up goes on. */
static void test_given_up (void)
{
    Members m;
    EcfsAttr attr;
    const EcfsNewInode new = {.mode = S_IFDIR | 0755};
    init_members (&m);
    EcfsCatalog *catalog = m.catalogs[1];
    run_pg_sql (m.one.path, "CREATE FUNCTION refuse () RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                            "RAISE EXCEPTION 'no room'; END $$");
    run_pg_sql (m.one.path, "CREATE TRIGGER refuse BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION refuse ()");
    g_assert_false (ecfs_catalog_make (catalog, ECFS_ROOT_INO, "none", &new, &attr, NULL, NULL));
    OK (e, ecfs_catalog_barrier (catalog, &e));
    run_pg_sql (m.one.path, "DROP TRIGGER refuse ON entries");
    OK (e, ecfs_catalog_make (catalog, ECFS_ROOT_INO, "some", &new, &attr, NULL, &e));
    clear_members (&m);
}

/* A server may be far away: how often an answer is waited for is what an operation takes, and all others wait for the
 * second. A sign of life may be one more, so the least of some counts. */
static void test_few_trips (void)
{
    Members m;
    EcfsAttr attr;
    unsigned least[] = {99, 99, 99, 99};
    static const char *const others[] = {"a", "b", "c", "d", "e"};
    const EcfsNewInode new = {.mode = S_IFDIR | 0755};
    init_members (&m);
    EcfsCatalog *catalog = m.catalogs[1];
    const atomic_uint *n_trips = &ecfs_pg_of (catalog->db)->n_trips;
    for (unsigned i = 0; i < G_N_ELEMENTS (others); i++) {
        unsigned before = atomic_load (n_trips);
        g_assert_false (ecfs_catalog_lookup (catalog, ECFS_ROOT_INO, "here", &attr, NULL));
        least[0] = MIN (least[0], atomic_load (n_trips) - before);
        (void) make_dir (as (&m, 2), ECFS_ROOT_INO, others[i]); /* the last record is another's, as a rule */
        before = atomic_load (n_trips);
        OK (e, ecfs_catalog_make (catalog, ECFS_ROOT_INO, "here", &new, &attr, NULL, &e));
        least[1] = MIN (least[1], atomic_load (n_trips) - before);
        before = atomic_load (n_trips);
        OK (e, ecfs_catalog_rename (catalog, ECFS_ROOT_INO, "here", ECFS_ROOT_INO, "there", 0, NULL, &e));
        least[2] = MIN (least[2], atomic_load (n_trips) - before);
        before = atomic_load (n_trips);
        OK (e, ecfs_catalog_rmdir (catalog, ECFS_ROOT_INO, "there", &attr, &e));
        least[3] = MIN (least[3], atomic_load (n_trips) - before);
    }
    g_assert_cmpuint (least[0], ==, 1);
    g_assert_cmpuint (least[1], ==, 2);
    g_assert_cmpuint (least[2], <=, 3); /* whether a directory gets below itself is asked then */
    g_assert_cmpuint (least[3], <=, 3); /* likewise whether it is empty */
    clear_members (&m);
}

static guint n_staged (Fixture *f)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (f->catalog, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (get_totals (f).n_staged, ==, rows->len);
    return rows->len;
}

/* The kernel asks for the attributes of a directory after each change in it: the server is not asked then. What others
 * change is there after a moment. */
static void test_just_changed (void)
{
    Members m;
    EcfsAttr attr;
    init_members (&m);
    EcfsCatalog *catalog = m.catalogs[1];
    const atomic_uint *n_trips = &ecfs_pg_of (catalog->db)->n_trips;
    unsigned least = 99;
    for (unsigned i = 0; i < 5; i++) {
        g_autofree char *own = g_strdup_printf ("own%u", i), *others = g_strdup_printf ("others%u", i);
        (void) make_dir (as (&m, 1), ECFS_ROOT_INO, own);
        unsigned before = atomic_load (n_trips);
        g_assert_cmpuint (get_attr (as (&m, 1), ECFS_ROOT_INO).nlink, ==, 3 + 2 * i);
        least = MIN (least, atomic_load (n_trips) - before);
        (void) make_dir (as (&m, 2), ECFS_ROOT_INO, others);
        g_usleep (60000);
        g_assert_cmpuint (get_attr (as (&m, 1), ECFS_ROOT_INO).nlink, ==, 4 + 2 * i);
    }
    g_assert_cmpuint (least, ==, 0);
    (void) make_dir (as (&m, 1), ECFS_ROOT_INO, "last");
    OK (e,
        ecfs_catalog_setattr (catalog, ECFS_ROOT_INO, &(EcfsAttr){.mode = S_IFDIR | 0700}, ECFS_ATTR_MODE, &attr, &e));
    g_assert_cmpuint (get_attr (as (&m, 1), ECFS_ROOT_INO).mode & 07777, ==, 0700);
    uint64_t ino = make_dir (as (&m, 1), ECFS_ROOT_INO, "to-go");
    (void) make_dir (as (&m, 1), ino, "within");
    OK (e, ecfs_catalog_rmdir (catalog, ino, "within", &attr, &e));
    OK (e, ecfs_catalog_rmdir (catalog, ECFS_ROOT_INO, "to-go", &attr, &e));
    g_assert_cmpuint (get_attr (as (&m, 1), ino).nlink, ==, 0);
    clear_members (&m);
}

/* What is waited for until a small file is stored, step by step: made, looked at, published in a log, off staging; and
 * of a larger one, announced and published. */
static void test_few_trips_of_a_file (void)
{
    enum { MADE, LOOKED_AT, LOGGED, LEFT, ANNOUNCED, PUBLISHED, N_STEPS };
    Members m;
    unsigned least[N_STEPS] = {99, 99, 99, 99, 99, 99};
    int64_t along[2] = {0, 4711}; /* the second is none */
    const EcfsNewInode new = {.mode = S_IFREG | 0644, .staged = true};
    init_members (&m);
    Fixture *f = as (&m, 1);
    const atomic_uint *n_trips = &ecfs_pg_of (f->catalog->db)->n_trips;
    g_autoptr (EcfsObjectRow) log = new_object (f, "copies:3", 0, 3);
    log->has_sha256 = false;
    int64_t open;
    OK (e, ecfs_catalog_log_begin (f->catalog, log, &open, &e));
#define STEP(step, call)                                                                                               \
    do {                                                                                                               \
        unsigned before = atomic_load (n_trips);                                                                       \
        OK (e, call);                                                                                                  \
        least[step] = MIN (least[step], atomic_load (n_trips) - before);                                               \
    } while (0)
    for (unsigned i = 0; i < 5; i++) {
        EcfsAttr attr;
        EcfsFileFacts facts;
        int64_t staging, more, intent;
        g_autofree char *name = g_strdup_printf ("file%u", i);
        g_autoptr (EcfsObjectRow) object = new_object (f, "rs:4+2", 1000 + i, 6);
        STEP (MADE, ecfs_catalog_make (f->catalog, ECFS_ROOT_INO, name, &new, &attr, &staging, &e));
        STEP (LOOKED_AT, ecfs_catalog_file_facts (f->catalog, attr.ino, "user.some", &facts, &e));
        g_assert_true (facts.attr.ino == attr.ino && !facts.is_said && facts.directories->len == 1);
        g_assert_cmpint (facts.path[0], ==, '/');
        g_assert_cmpstr (facts.path + 1, ==, name);
        ecfs_file_facts_clear (&facts);
        EcfsLogged logged = {.log = log->uuid, .offset = 1024 * i + 80, .end = 1024 * (i + 1)};
        EcfsPublish publish = {.ino = attr.ino,
                               .logged = &logged,
                               .size = 900,
                               .full = true,
                               .staging = staging,
                               .leaving = along,
                               .n_leaving = i == 0 ? 0 : 2,
                               .mtime_ns = 1};
        STEP (LOGGED, ecfs_catalog_publish (f->catalog, &publish, NULL, &e));
        g_assert_cmpuint (n_staged (f), ==, 1); /* what goes along is gone */
        OK (e, ecfs_catalog_staging_add (f->catalog, attr.ino, &more, &e));
        OK (e, ecfs_catalog_staging_set (f->catalog, more, ECFS_STAGING_STORED, 900, 1, NULL, &e));
        const int64_t both[] = {staging, more};
        STEP (LEFT, ecfs_catalog_staging_remove_all (f->catalog, both, 2, &e));
        g_assert_cmpuint (n_staged (f), ==, 0);
        OK (e, ecfs_catalog_staging_add (f->catalog, attr.ino, &along[0], &e));
        OK (e, ecfs_catalog_staging_set (f->catalog, along[0], ECFS_STAGING_STORED, 900, 1, NULL, &e));
        STEP (ANNOUNCED, ecfs_catalog_intent_begin (f->catalog, object, attr.ino, &intent, &e));
        const EcfsObjectRow *objects[] = {object};
        const EcfsExtent extent = {.length = object->size};
        EcfsPublish other = {.ino = attr.ino,
                             .size = object->size,
                             .objects = objects,
                             .intents = &intent,
                             .n_objects = 1,
                             .extents = &extent,
                             .n_extents = 1,
                             .full = true,
                             .mtime_ns = 2};
        STEP (PUBLISHED, ecfs_catalog_publish (f->catalog, &other, NULL, &e));
    }
#undef STEP
    g_assert_cmpuint (least[MADE], ==, 2);
    g_assert_cmpuint (least[LOOKED_AT], ==, 1);
    g_assert_cmpuint (least[LOGGED], ==, 2);
    g_assert_cmpuint (least[LEFT], ==, 2);
    g_assert_cmpuint (least[ANNOUNCED], ==, 2);
    g_assert_cmpuint (least[PUBLISHED], <=, 3); /* it takes the place of what is in the log */
    clear_members (&m);
}

/* Optimistic transactions: others have their turn while one looks at what is there, and it begins anew where that is
 * another then. */

/* So that it has numbers of its own, and nothing was in its way lately. */
static void make_some (Members *m, unsigned i)
{
    for (unsigned n = 0; n < 20; n++) {
        g_autofree char *name = g_strdup_printf ("of%u-%u", i, n);
        (void) make_dir (as (m, i), ECFS_ROOT_INO, name);
    }
}

/* The first half of what makes a directory younger. */
ECFS_TSA (no_thread_safety_analysis)
static void begin_to_touch (EcfsCatalog *catalog, uint64_t ino, Op *op, Inode *ret_dir)
{
    ecfs_op_enter (catalog, true);
    OK (e, ecfs_op_begin (catalog, op, &e));
    g_assert_true (ecfs_optimistic_is_unsent (catalog));
    OK (e, ecfs_inode_get_dir (catalog, ino, ret_dir, &e));
}

/* … and the second; whether it was committed. */
ECFS_TSA (no_thread_safety_analysis) static bool go_on_to_touch (EcfsCatalog *catalog, Op *op, Inode *dir)
{
    g_autoptr (GError) error = NULL;
    OK (e, ecfs_inode_touch_dir (catalog, dir, 0, 4711, &e));
    OK (e, ecfs_op_end_checked (catalog, op, true, &e));
    g_assert_true (ecfs_optimistic_is_unsent (catalog));
    bool committed = ecfs_op_wait (catalog, op, &error);
    g_assert_true (committed || op->is_lost);
    ecfs_mutex_unlock (&catalog->lock);
    return committed;
}

ECFS_TSA (no_thread_safety_analysis) static void test_validated (void)
{
    Members m;
    Op op;
    Inode dir;
    init_members (&m);
    EcfsCatalog *catalog = m.catalogs[1];
    make_some (&m, 1);
    make_some (&m, 2);
    uint64_t here = make_dir (as (&m, 1), ECFS_ROOT_INO, "here"), there = make_dir (as (&m, 1), ECFS_ROOT_INO, "there");
    begin_to_touch (catalog, here, &op, &dir);
    (void) make_dir (as (&m, 2), there, "of-another"); /* has its turn meanwhile */
    g_assert_true (go_on_to_touch (catalog, &op, &dir));
    g_assert_cmpint (get_attr (as (&m, 2), here).mtime_ns, ==, 4711);

    begin_to_touch (catalog, here, &op, &dir);
    (void) make_dir (as (&m, 2), here, "of-another");
    g_assert_false (go_on_to_touch (catalog, &op, &dir));
    g_assert_cmpint (get_attr (as (&m, 2), here).mtime_ns, !=, 4711);
    g_assert_cmpuint (get_attr (as (&m, 2), here).nlink, ==, 3);

    /* What is not there is read, too. */
    for (unsigned i = 0; i < 20; i++)
        (void) make_dir (as (&m, 1), there, (const char[]){(char) ('a' + (int) i), '\0'});
    Inode found;
    begin_to_touch (catalog, there, &op, &dir);
    g_assert_cmpint (ecfs_entry_find (catalog, here, "name", &found, NULL), ==, 0);
    (void) make_dir (as (&m, 2), here, "name");
    g_assert_false (go_on_to_touch (catalog, &op, &dir));
    clear_members (&m);
}

/* Whatever is decided by what was read beside it is decided once more in its turn: that may have been of two moments.
 */
ECFS_TSA (no_thread_safety_analysis) static void test_unproven (void)
{
    Members m;
    Op op;
    Inode dir;
    EcfsAttr attr;
    init_members (&m);
    EcfsCatalog *catalog = m.catalogs[1];
    make_some (&m, 1);
    g_autoptr (GError) error = NULL;
    begin_to_touch (catalog, ECFS_ROOT_INO, &op, &dir);
    g_assert_false (ecfs_op_end_checked (catalog, &op, ecfs_fail (&error, EEXIST, "it is there"), NULL));
    g_assert_true (op.is_lost);
    ecfs_mutex_unlock (&catalog->lock);
    const EcfsNewInode new = {.mode = S_IFDIR | 0755};
    for (unsigned i = 0; i < 3; i++)
        g_assert_cmpint (CODE (e, ecfs_catalog_make (catalog, ECFS_ROOT_INO, "of1-0", &new, &attr, NULL, &e)), ==,
                         EEXIST);
    clear_members (&m);
}

/* Within one, the counters are those of all, with what it adds; and of what is lost with it nothing is left. */
ECFS_TSA (no_thread_safety_analysis) static void test_counters_in_it (void)
{
    Members m;
    Op op;
    Inode dir;
    Counters now;
    init_members (&m);
    EcfsCatalog *catalog = m.catalogs[1];
    make_some (&m, 1);
    make_some (&m, 2); /* numbers behind those of the former */
    const EcfsTotals all = get_totals (as (&m, 2));
    const int64_t last = ecfs_catalog_last_offset (m.catalogs[2]);
    begin_to_touch (catalog, ECFS_ROOT_INO, &op, &dir);
    catalog->counters.totals.content_bytes -= all.content_bytes + 1000; /* what others added since it looked */
    catalog->counters.totals.content_bytes += all.content_bytes + 1000;
    catalog->counters.totals.n_files += 5;
    OK (e, ecfs_counters_read (catalog, &now, &e));
    g_assert_false (ecfs_optimistic_is_unsent (catalog));
    g_assert_cmpint ((int64_t) now.next_position - 1, >=, last);
    g_assert_cmpuint (now.totals.n_inodes, ==, all.n_inodes);
    g_assert_cmpuint (now.totals.n_files, ==, all.n_files + 5);
    g_assert_cmpuint (now.totals.content_bytes, ==, all.content_bytes);
    g_assert_true (ecfs_lost_add (catalog, 4711, 0));
    g_assert_false (ecfs_lost_add (catalog, 4711, 0));
    ecfs_give_up (catalog);
    g_assert_true (ecfs_lost_add (catalog, 4711, 0)); /* when it is made again */
    g_assert_false (ecfs_op_end_checked (catalog, &op, true, NULL));
    g_assert_true (op.is_lost);
    ecfs_mutex_unlock (&catalog->lock);
    (void) make_dir (as (&m, 1), ECFS_ROOT_INO, "dir");
    g_assert_cmpuint (get_totals (as (&m, 2)).n_files, ==, all.n_files);
    g_assert_cmpuint (get_totals (as (&m, 2)).n_inodes, ==, all.n_inodes + 1);
    clear_members (&m);
}

/* Numbers are given once, and the records are one chain, whoever wrote them and however. */
static void assert_chained (EcfsCatalog *catalog)
{
    uint8_t sum[ECFS_JOURNAL_SUM_BYTES], told[ECFS_JOURNAL_SUM_BYTES];
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) rows = ecfs_catalog_journal (catalog, 0, 100000, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (rows->len, >, 300);
    for (guint i = 0; i < rows->len; i++) {
        const EcfsJournalRow *row = g_ptr_array_index (rows, i);
        g_assert_true (ecfs_journal_previous (row->record->data, row->record->len, told));
        if (i > 0) {
            g_assert_cmpuint (row->sequence, ==, ((EcfsJournalRow *) g_ptr_array_index (rows, i - 1))->sequence + 1);
            g_assert_cmpmem (told, sizeof told, sum, sizeof sum);
        }
        ecfs_journal_sum (row->sequence, row->time_ns, row->record->data, row->record->len, sum);
    }
}

static void *make_many (void *data)
{
    Maker *self = data;
    for (unsigned i = 0; i < 150; i++) {
        EcfsNewInode new = {.mode = S_IFREG | 0644};
        EcfsAttr attr;
        g_autofree char *name = g_strdup_printf ("%u-%u", self->number, i);
        OK (e, ecfs_catalog_make (self->catalog, self->n_made, name, &new, &attr, NULL, &e));
    }
    return NULL;
}

static void test_one_chain (void)
{
    Members m;
    pthread_t threads[2 * N_MEMBERS];
    Maker makers[2 * N_MEMBERS];
    uint64_t dirs[N_MEMBERS];
    init_members (&m);
    for (unsigned i = 0; i < N_MEMBERS; i++)
        dirs[i] = make_dir (as (&m, i), ECFS_ROOT_INO, (const char[]){(char) ('a' + (int) i), '\0'});
    for (unsigned i = 0; i < 2 * N_MEMBERS; i++) {
        makers[i] =
            (Maker){.catalog = m.catalogs[i % N_MEMBERS], .number = i, .n_made = (unsigned) dirs[i % N_MEMBERS]};
        g_assert_cmpint (pthread_create (&threads[i], NULL, make_many, &makers[i]), ==, 0);
    }
    for (unsigned i = 0; i < 2 * N_MEMBERS; i++)
        g_assert_cmpint (pthread_join (threads[i], NULL), ==, 0);
    g_assert_cmpuint (get_totals (as (&m, 1)).n_inodes, ==, 1 + N_MEMBERS + 2 * N_MEMBERS * 150);
    assert_chained (m.catalogs[0]);
    assert_sound (m.one.path);
    clear_members (&m);
}

/* A server that says that it did what waits for the disk, and then that it came to nothing. */
static void test_flush_that_fails_late (void)
{
    Members m;
    EcfsAttr attr;
    init_members (&m);
    const Pg *pg = ecfs_pg_of (m.catalogs[1]->db);
    g_autofree char *refuse = g_strdup_printf (
        "CREATE SEQUENCE told; CREATE FUNCTION refuse () RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT "
        "AS $$ BEGIN IF NEW.txn = OLD.txn AND NEW.id = %d AND nextval ('told') = 1 THEN RAISE EXCEPTION 'no disk'; "
        "END IF; RETURN NULL; END $$",
        (int) pg->member);
    run_pg_sql (m.one.path, refuse);
    run_pg_sql (m.one.path, "CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON members DEFERRABLE INITIALLY DEFERRED "
                            "FOR EACH ROW EXECUTE FUNCTION refuse ()");
    const unsigned before = pg->n_made;
    (void) make_dir (as (&m, 1), ECFS_ROOT_INO, "dir");
    run_pg_sql (m.one.path, "SELECT 1 / (last_value > 1)::int FROM told"); /* it was asked again */
    g_assert_cmpuint (pg->n_made, ==, before + 1);
    OK (e, ecfs_catalog_lookup (m.catalogs[2], ECFS_ROOT_INO, "dir", &attr, &e));
    run_pg_sql (m.one.path, "DROP TRIGGER refuse ON members; DROP FUNCTION refuse; DROP SEQUENCE told");
    clear_members (&m);
}

/* What others have committed and no disk has yet can be read: whoever tells endpoints of it has it on the disk first.
 */
static void test_hardens_what_is_seen (void)
{
    Members m;
    uint64_t sequence = 0;
    init_members (&m);
    make_file (as (&m, 0), ECFS_ROOT_INO, "one");
    for (unsigned i = 0; i < 20; i++) {
        run_pg_sql (m.one.path, "CREATE TABLE IF NOT EXISTS seen (lsn pg_lsn); SET synchronous_commit = off; "
                                "INSERT INTO seen VALUES (NULL)");
        run_pg_sql (m.one.path, "SET synchronous_commit = off; UPDATE seen SET lsn = pg_current_wal_insert_lsn ()");
        OK (e, ecfs_catalog_harden (m.catalogs[1], &sequence, &e));
        run_pg_sql (m.one.path, "SELECT 1 / (pg_current_wal_flush_lsn () >= max (lsn))::int FROM seen");
    }
    g_assert_cmpuint (sequence, ==, ecfs_catalog_sequence (m.catalogs[2]));
    run_pg_sql (m.one.path, "DROP TABLE seen");
    clear_members (&m);
}

/* Whoever only looks, within a transaction of others that is lost with the connection, is answered by the next. */
ECFS_TSA (no_thread_safety_analysis) static void test_look_within_what_is_lost (void)
{
    Members m;
    Op op;
    Inode dir;
    EcfsAttr attr;
    init_members (&m);
    EcfsCatalog *catalog = m.catalogs[1];
    make_some (&m, 1);
    uint64_t here = make_dir (as (&m, 1), ECFS_ROOT_INO, "here");
    catalog->n_turns = 1; /* so that it begins at the server */
    ecfs_op_enter (catalog, true);
    OK (e, ecfs_op_begin (catalog, &op, &e));
    g_assert_false (ecfs_optimistic_is_unsent (catalog));
    OK (e, ecfs_inode_get_dir (catalog, here, &dir, &e));
    OK (e, ecfs_inode_touch_dir (catalog, &dir, 0, 4711, &e));
    OK (e, ecfs_op_end (catalog, &op, true, &e));
    g_assert_true (catalog->in_txn);
    ecfs_mutex_unlock (&catalog->lock);
    run_pg_sql (m.one.path, "SELECT pg_terminate_backend (pid) FROM pg_stat_activity "
                            "WHERE pid <> pg_backend_pid () AND application_name = 'ecfs'");
    OK (e, ecfs_catalog_lookup (catalog, ECFS_ROOT_INO, "here", &attr, &e));
    g_assert_cmpint (attr.mtime_ns, !=, 4711);
    g_assert_false (catalog->in_txn);
    (void) make_dir (as (&m, 1), here, "later");
    clear_members (&m);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    if (g_getenv ("ECFS_TEST_POSTGRESQL") == NULL)
        return 77; /* on_postgresql.py runs it with one */
    ecfs_pg_dead_us = 20 * G_USEC_PER_SEC;
    g_test_add_func ("/members/all-see-what-one-has-made", test_all_see_all);
    g_test_add_func ("/members/one-leads", test_one_leads);
    g_test_add_func ("/members/who-resigns-rests", test_resigns);
    g_test_add_func ("/members/alone-or-not", test_alone_or_not);
    g_test_add_func ("/members/who-opens-it-to-lead", test_to_lead);
    g_test_add_func ("/members/where-peers-are", test_peers);
    g_test_add_func ("/members/a-dead-leader", test_dead_leader);
    g_test_add_func ("/members/locks", test_locks);
    g_test_add_func ("/members/locks-of-the-dead", test_locks_of_the_dead);
    g_test_add_func ("/members/a-lock-is-held-once", test_lock_is_held_once);
    g_test_add_func ("/members/one-stages-a-file", test_one_stages);
    g_test_add_func ("/members/leads-when-committed", test_leads_when_committed);
    g_test_add_func ("/members/orphans", test_orphans);
    g_test_add_func ("/members/marks", test_marks);
    g_test_add_func ("/members/told-of-the-last-try", test_told_of_the_last_try);
    g_test_add_func ("/members/sequence-is-committed", test_sequence_is_committed);
    g_test_add_func ("/members/who-looks-within-what-is-lost", test_look_within_what_is_lost);
    g_test_add_func ("/members/nothing-to-wait-for", test_nothing_to_wait_for);
    g_test_add_func ("/members/what-was-begun-before-a-copy", test_copied);
    g_test_add_func ("/members/what-others-have-not-stored", test_own);
    g_test_add_func ("/members/what-is-given-up-is-not-waited-for", test_given_up);
    g_test_add_func ("/members/few-round-trips", test_few_trips);
    g_test_add_func ("/members/few-round-trips-of-a-file", test_few_trips_of_a_file);
    g_test_add_func ("/members/a-directory-just-changed", test_just_changed);
    g_test_add_func ("/members/what-was-read-is-validated", test_validated);
    g_test_add_func ("/members/what-nobody-validates-is-read-again", test_unproven);
    g_test_add_func ("/members/counters-are-those-of-all", test_counters_in_it);
    g_test_add_func ("/members/records-are-one-chain", test_one_chain);
    g_test_add_func ("/members/a-flush-that-fails-late", test_flush_that_fails_late);
    g_test_add_func ("/members/hardens-what-is-seen", test_hardens_what_is_seen);
    g_test_add_func ("/members/all-at-once", test_all_at_once);
    return g_test_run ();
}
