/* What only the past has is an object still: it can be found, repaired and taken back, until it is doomed. */
#include "catalog/past.h"

#include "catalog/marks.h"
#include "fixture.h"

#define NEVER INT64_MAX

static GPtrArray *past_of (Fixture *f, int64_t until_ns)
{
    GPtrArray *past = ecfs_catalog_past (f->catalog, until_ns, 0, 100, NULL);
    g_assert_nonnull (past);
    return past;
}

/* The only one there is, to be freed. */
static EcfsObjectRow *one_past (Fixture *f)
{
    g_autoptr (GPtrArray) past = past_of (f, -1);
    g_assert_cmpuint (past->len, ==, 1);
    return ecfs_object_row_copy (g_ptr_array_index (past, 0));
}

static const EcfsStripeRow *stripe_of (const EcfsObjectRow *object, guint i)
{
    return &g_array_index (object->stripes, EcfsStripeRow, i);
}

/* What is queued at an endpoint as being of one kind. */
static guint n_queued (Fixture *f, size_t endpoint, EcfsDeletionKind kind)
{
    guint n = 0;
    const EcfsDeletionWaits all = {.marked = true};
    g_autoptr (GArray) due = ecfs_catalog_deletions (f->catalog, f->endpoints[endpoint], &all, NULL, 100, NULL);
    for (guint i = 0; i < due->len; i++)
        n += g_array_index (due, EcfsDeletion, i).kind == kind;
    return n;
}

static EcfsObjectRow *store (Fixture *f, uint64_t *ret_ino, unsigned n_stripes)
{
    *ret_ino = make_file (f, ECFS_ROOT_INO, "file");
    EcfsObjectRow *object = new_object (f, "rs:4+2", 1000, n_stripes);
    publish_one (f, *ret_ino, object);
    return object;
}

static void overwrite (Fixture *f, uint64_t ino)
{
    g_autoptr (EcfsObjectRow) object = new_object (f, "rs:4+2", 2000, 6);
    publish_one (f, ino, object);
}

/* Stores the stripe @index of an object once more; what the compare-and-set says. */
static int set_stripe (Fixture *f, const EcfsObjectRow *object, unsigned index, size_t endpoint, uint64_t old_instance)
{
    int64_t intent;
    EcfsStripeRow stripe = {
        .index = (uint16_t) index, .instance = 7777, .endpoint = f->endpoints[endpoint], .size = 350};
    memset (stripe.digest, 'a' + (int) index, sizeof stripe.digest);
    OK (e, ecfs_catalog_intent_more (f->catalog, object, &stripe, 1, &intent, &e));
    return CODE (e, ecfs_catalog_stripe_set (f->catalog, &object->uuid, &stripe, old_instance, 2, intent, &e));
}

static void test_describes (void)
{
    Fixture f;
    uint64_t ino;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    g_autoptr (EcfsObjectRow) object = store (&f, &ino, 6);
    g_autoptr (GPtrArray) none = past_of (&f, -1);
    g_assert_cmpuint (none->len, ==, 0);
    overwrite (&f, ino);
    fixture_reopen (&f);
    g_autoptr (EcfsObjectRow) past = one_past (&f);
    g_assert_true (ecfs_object_is_past (past->id));
    g_assert_true (ecfs_uuid_equal (&past->uuid, &object->uuid));
    g_assert_true (ecfs_object_same_stripes (past, object));
    g_assert_true (ecfs_object_same_content (past, object));
    assert_same_seal (past, object);
    for (guint i = 0; i < 6; i++) {
        g_assert_cmpmem (stripe_of (past, i)->digest, ECFS_DIGEST_SIZE, stripe_of (object, i)->digest,
                         ECFS_DIGEST_SIZE);
        g_assert_cmpuint (stripe_of (past, i)->size, ==, stripe_of (object, i)->size);
    }
    g_autoptr (EcfsObjectRow) again = ecfs_catalog_object (f.catalog, past->id, NULL);
    g_assert_true (ecfs_uuid_equal (&again->uuid, &object->uuid));
    g_autoptr (GPtrArray) by_uuid = ecfs_catalog_past_by_uuid (f.catalog, -1, &(EcfsUuid){.bytes = {0}}, 10, NULL);
    g_assert_cmpuint (by_uuid->len, ==, 1);
    g_autoptr (GPtrArray) behind = ecfs_catalog_past_by_uuid (f.catalog, -1, &object->uuid, 10, NULL);
    g_assert_cmpuint (behind->len, ==, 0);
    g_autoptr (GPtrArray) kept = past_of (&f, NEVER);
    g_assert_cmpuint (kept->len, ==, 0);
    g_assert_cmpuint (get_totals (&f).n_objects, ==, 1);
    fixture_clear (&f);
}

static void test_mark_keeps (void)
{
    Fixture f;
    uint64_t ino;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    g_autoptr (EcfsObjectRow) object = store (&f, &ino, 6);
    OK (e, ecfs_catalog_mark_add (f.catalog, "then", &e));
    overwrite (&f, ino);
    overwrite (&f, ino);
    g_autoptr (GPtrArray) all = past_of (&f, -1), kept = past_of (&f, NEVER);
    g_assert_cmpuint (all->len, ==, 2);
    g_assert_cmpuint (kept->len, ==, 1);
    const EcfsObjectRow *past = g_ptr_array_index (kept, 0);
    g_assert_true (ecfs_uuid_equal (&past->uuid, &object->uuid));
    g_assert_cmpint (set_stripe (&f, past, 0, 1, 1000), ==, 0);
    g_assert_cmpuint (n_queued (&f, 1, ECFS_DELETION_MARKED), ==, 2); /* it waits for the mark, too */
    fixture_clear (&f);
}

static void test_stripes_move (void)
{
    Fixture f;
    uint64_t ino;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    ecfs_object_row_free (store (&f, &ino, 5));
    overwrite (&f, ino);
    const uint64_t n_deletions = get_totals (&f).n_deletions;
    g_autoptr (EcfsObjectRow) before = one_past (&f);
    g_assert_cmpuint (before->stripes->len, ==, 5);
    g_assert_cmpint (set_stripe (&f, before, 5, 5, 0), ==, 0); /* it lacked that */
    g_assert_cmpint (set_stripe (&f, before, 2, 3, 1002), ==, 0);
    g_assert_cmpint (set_stripe (&f, before, 2, 3, 1002), ==, ESTALE);
    fixture_reopen (&f);
    g_autoptr (EcfsObjectRow) after = one_past (&f);
    g_assert_cmpuint (after->stripes->len, ==, 6);
    g_assert_cmpuint (stripe_of (after, 2)->instance, ==, 7777);
    g_assert_cmpint (stripe_of (after, 2)->endpoint, ==, f.endpoints[3]);
    g_assert_cmpint (stripe_of (after, 5)->endpoint, ==, f.endpoints[5]);
    g_assert_cmpuint (n_queued (&f, 2, ECFS_DELETION_EXCHANGED), ==, 1);
    g_assert_cmpuint (n_queued (&f, 2, ECFS_DELETION_REMOVED), ==, 0);
    g_assert_cmpuint (n_queued (&f, 3, ECFS_DELETION_REMOVED), ==, 2);
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, n_deletions + 3); /* one that came, one left, one in vain */
    fixture_clear (&f);
}

static bool decodes (void *user, const EcfsObjectRow *object)
{
    (void) user;
    return object->stripes->len >= 4;
}

static int take_back (Fixture *f, uint64_t ino, const EcfsObjectRow *was)
{
    const EcfsObjectRow *objects[] = {was};
    const EcfsExtent extent = {.length = was->size};
    const EcfsTakeBack back = {.ino = ino,
                               .objects = objects,
                               .n_objects = 1,
                               .extents = &extent,
                               .n_extents = 1,
                               .size = was->size,
                               .decodes = decodes};
    return CODE (e, ecfs_catalog_take_back (f->catalog, &back, &e));
}

static EcfsObjectRow *object_of (Fixture *f, uint64_t ino)
{
    g_autoptr (GArray) extents = ecfs_catalog_extents (f->catalog, ino, NULL);
    return ecfs_catalog_object (f->catalog, g_array_index (extents, EcfsExtent, 0).object, NULL);
}

/* What was looked for, and found, comes back: also where it is being moved. What comes in its place goes. */
static void test_comes_back (void)
{
    Fixture f;
    uint64_t ino;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    g_autoptr (EcfsObjectRow) object = store (&f, &ino, 6);
    overwrite (&f, ino);
    g_autoptr (EcfsObjectRow) past = one_past (&f);
    g_assert_cmpint (set_stripe (&f, past, 2, 3, 1002), ==, 0);
    uint64_t again = make_file (&f, ECFS_ROOT_INO, "again");
    g_assert_cmpint (take_back (&f, again, object), ==, 0);
    g_autoptr (GPtrArray) none = past_of (&f, -1);
    g_assert_cmpuint (none->len, ==, 0);
    g_assert_cmpuint (n_queued (&f, 3, ECFS_DELETION_REMOVED), ==, 1);
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, 1);
    g_autoptr (EcfsObjectRow) now = object_of (&f, again);
    g_assert_true (ecfs_object_same_stripes (now, object));
    overwrite (&f, again);
    g_autoptr (EcfsObjectRow) twice = one_past (&f);
    g_assert_true (ecfs_object_same_stripes (twice, now));

    /* And after the move, what it led to. */
    g_autoptr (EcfsObjectRow) before = one_past (&f);
    g_assert_cmpint (set_stripe (&f, before, 4, 5, 1004), ==, 0);
    g_autoptr (EcfsObjectRow) moved = one_past (&f);
    uint64_t third = make_file (&f, ECFS_ROOT_INO, "third");
    g_assert_cmpint (take_back (&f, third, moved), ==, 0);
    g_autoptr (EcfsObjectRow) last = object_of (&f, third);
    g_assert_cmpint (stripe_of (last, 4)->endpoint, ==, f.endpoints[5]);
    fixture_clear (&f);
}

/* Another machine has removed some of it, of which the catalog knows nothing. */
static void test_what_is_gone_does_not_count (void)
{
    Fixture f;
    uint64_t ino;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    g_autoptr (EcfsObjectRow) object = store (&f, &ino, 6);
    overwrite (&f, ino);
    uint64_t again = make_file (&f, ECFS_ROOT_INO, "again");
    g_autoptr (EcfsObjectRow) few = ecfs_object_row_copy (object), enough = ecfs_object_row_copy (object);
    g_array_set_size (few->stripes, 3);
    g_array_set_size (enough->stripes, 4);
    g_assert_cmpint (take_back (&f, again, few), ==, EIO);
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, 6);
    g_assert_cmpint (take_back (&f, again, enough), ==, 0);
    g_autoptr (EcfsObjectRow) now = object_of (&f, again);
    g_assert_true (ecfs_object_same_stripes (now, enough));
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, 2);
    fixture_clear (&f);
}

/* From then on nothing is stored for it, and what is on its way goes. */
static void test_is_doomed (void)
{
    Fixture f;
    uint64_t ino;
    int64_t intent;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    ecfs_object_row_free (store (&f, &ino, 6));
    overwrite (&f, ino);
    g_autoptr (EcfsObjectRow) past = one_past (&f);
    const EcfsStripeRow stripe = {.index = 2, .instance = 88, .endpoint = f.endpoints[3], .size = 350};
    OK (e, ecfs_catalog_intent_more (f.catalog, past, &stripe, 1, &intent, &e));
    g_autoptr (GArray) due =
        ecfs_catalog_deletions (f.catalog, f.endpoints[0], &(EcfsDeletionWaits){.removed_ns = 0}, NULL, 10, NULL);
    g_assert_cmpuint (due->len, ==, 1);
    OK (e, ecfs_catalog_deletions_doom (f.catalog, &g_array_index (due, EcfsDeletion, 0).id, 1, &e));
    g_autoptr (GPtrArray) none = past_of (&f, -1);
    g_assert_cmpuint (none->len, ==, 0);
    g_assert_cmpint (CODE (e, ecfs_catalog_stripe_set (f.catalog, &past->uuid, &stripe, 1002, 2, intent, &e)), ==,
                     ESTALE);
    g_assert_cmpuint (n_queued (&f, 3, ECFS_DELETION_UNCOMMITTED), ==, 1);
    g_assert_cmpint (CODE (e, ecfs_catalog_intent_more (f.catalog, past, &stripe, 1, &intent, &e)), ==, ESTALE);
    fixture_clear (&f);
}

/* An endpoint that is taken out takes its stripes along, and the last one the object. */
static void test_endpoints_go (void)
{
    Fixture f;
    uint64_t ino;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    ecfs_object_row_free (store (&f, &ino, 2));
    OK (e, ecfs_catalog_unlink (f.catalog, ECFS_ROOT_INO, "file", NULL, &e));
    OK (e, ecfs_catalog_drop (f.catalog, ino, &e));
    for (guint i = 0; i < 2; i++) {
        g_autoptr (EcfsObjectRow) past = one_past (&f);
        g_assert_cmpuint (past->stripes->len, ==, 2 - i);
        OK (e, ecfs_catalog_endpoint_set_state (f.catalog, f.endpoints[i], ECFS_ENDPOINT_DRAINING, &e));
        OK (e, ecfs_catalog_endpoint_remove (f.catalog, f.endpoints[i], &e));
    }
    g_autoptr (GPtrArray) none = past_of (&f, -1);
    g_assert_cmpuint (none->len, ==, 0);
    fixture_clear (&f);
}

/* But for what a mark needs. */
static void test_is_forgotten (void)
{
    Fixture f;
    uint64_t ino;
    int64_t after = 0;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    g_autoptr (EcfsObjectRow) object = store (&f, &ino, 6);
    OK (e, ecfs_catalog_mark_add (f.catalog, "then", &e));
    overwrite (&f, ino);
    overwrite (&f, ino);
    overwrite (&f, ino);
    for (bool more = true; more;)
        OK (e, ecfs_catalog_past_forget (f.catalog, -1, &after, &more, &e));
    g_autoptr (GPtrArray) all = past_of (&f, -1);
    g_assert_cmpuint (all->len, ==, 3);
    after = 0;
    for (bool more = true; more;)
        OK (e, ecfs_catalog_past_forget (f.catalog, NEVER, &after, &more, &e));
    g_autoptr (EcfsObjectRow) left = one_past (&f);
    g_assert_true (ecfs_uuid_equal (&left->uuid, &object->uuid));
    uint64_t again = make_file (&f, ECFS_ROOT_INO, "again");
    const EcfsObjectRow *forgotten = g_ptr_array_index (all, 1);
    g_assert_cmpint (take_back (&f, again, forgotten), ==, 0);
    fixture_clear (&f);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/past/is-described-as-it-was", test_describes);
    g_test_add_func ("/past/a-mark-keeps-it", test_mark_keeps);
    g_test_add_func ("/past/stripes-move", test_stripes_move);
    g_test_add_func ("/past/comes-back-from-where-it-is", test_comes_back);
    g_test_add_func ("/past/what-is-gone-does-not-count", test_what_is_gone_does_not_count);
    g_test_add_func ("/past/ends-when-it-is-doomed", test_is_doomed);
    g_test_add_func ("/past/goes-with-its-endpoints", test_endpoints_go);
    g_test_add_func ("/past/is-forgotten-when-nothing-keeps-it", test_is_forgotten);
    return g_test_run ();
}
