#include "catalog/check.h"
#include "catalog/journal.h"
#include "check_db.h"
#include "fixture.h"
#include "util/lock.h"

static unsigned n_of (const char *code)
{
    unsigned k = 0, m = 0;
    g_assert_cmpint (sscanf (code, "%*[^:]:%u+%u", &k, &m), >=, 1);
    return k + m;
}

/* The numbers that the catalog keeps must be what counting gives. */
static void check_totals (Fixture *f)
{
    EcfsTotals totals = get_totals (f);
    uint64_t n_objects = 0, content = 0, stripes = 0, not_full = 0, deletions = 0;
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) objects = ecfs_catalog_objects (f->catalog, 0, 1000, &error);
    g_assert_no_error (error);
    for (guint i = 0; i < objects->len; i++) {
        const EcfsObjectRow *object = g_ptr_array_index (objects, i);
        n_objects++;
        content += object->size;
        not_full += object->stripes->len < n_of (object->code);
        for (guint s = 0; s < object->stripes->len; s++)
            stripes += g_array_index (object->stripes, EcfsStripeRow, s).size;
    }
    for (size_t i = 0; i < G_N_ELEMENTS (f->endpoints); i++) {
        g_autoptr (GArray) due =
            ecfs_catalog_deletions (f->catalog, f->endpoints[i], &(EcfsDeletionWaits){0}, NULL, 1000, &error);
        g_assert_no_error (error);
        deletions += due->len;
    }
    g_autoptr (GPtrArray) staged = ecfs_catalog_staging_list (f->catalog, &error);
    g_assert_cmpuint (totals.n_objects, ==, n_objects);
    g_assert_cmpuint (totals.content_bytes, ==, content);
    g_assert_cmpuint (totals.stripe_bytes, ==, stripes);
    g_assert_cmpuint (totals.n_not_full, ==, not_full);
    g_assert_cmpuint (totals.n_deletions, ==, deletions);
    g_assert_cmpuint (totals.n_staged, ==, staged->len);
}

static void init (Fixture *f)
{
    fixture_init (f);
    fixture_add_endpoints (f);
}

static GArray *due (Fixture *f, unsigned endpoint, int64_t grace_ns)
{
    g_autoptr (GError) error = NULL;
    GArray *deletions = ecfs_catalog_deletions (f->catalog, f->endpoints[endpoint],
                                                &(EcfsDeletionWaits){.removed_ns = grace_ns, .exchanged_ns = grace_ns},
                                                NULL, 100, &error);
    g_assert_no_error (error);
    return deletions;
}

static guint n_due (Fixture *f, unsigned endpoint, int64_t grace_ns)
{
    g_autoptr (GArray) deletions = due (f, endpoint, grace_ns);
    return deletions->len;
}

#define HOUR_NS INT64_C (3600000000000)

static void test_publish (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 1000, 6);
    publish_one (&f, ino, object);
    g_assert_cmpuint (object->epoch, ==, 1);
    g_assert_cmpuint (object->sequence, >, 0);
    fixture_reopen (&f);
    EcfsAttr attr = get_attr (&f, ino);
    g_assert_cmpuint (attr.size, ==, 1000);
    g_assert_cmpint (attr.mtime_ns, ==, 4711);
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) extents = ecfs_catalog_extents (f.catalog, ino, &error);
    g_assert_cmpuint (extents->len, ==, 1);
    const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, 0);
    g_assert_cmpuint (extent->length, ==, 1000);
    g_autoptr (EcfsObjectRow) got = ecfs_catalog_object (f.catalog, extent->object, &error);
    g_assert_no_error (error);
    g_assert_true (ecfs_uuid_equal (&got->uuid, &object->uuid));
    g_assert_cmpstr (got->code, ==, "rs:4+2");
    g_assert_cmpuint (got->sequence, ==, object->sequence);
    g_assert_cmpmem (got->digest, 16, object->digest, 16);
    g_assert_true (got->has_sha256);
    g_assert_cmpmem (got->sha256, 32, object->sha256, 32);
    g_assert_cmpint (got->seal.kind, ==, ECFS_SEAL_CTR_HMAC);
    assert_same_seal (got, object);
    g_assert_cmpuint (got->stripes->len, ==, 6);
    for (guint i = 0; i < 6; i++) {
        const EcfsStripeRow *a = &g_array_index (got->stripes, EcfsStripeRow, i);
        const EcfsStripeRow *b = &g_array_index (object->stripes, EcfsStripeRow, i);
        g_assert_true (a->index == b->index && a->instance == b->instance && a->endpoint == b->endpoint);
        g_assert_cmpuint (a->size, ==, b->size);
        g_assert_cmpmem (a->digest, 16, b->digest, 16);
    }
    check_totals (&f);
    fixture_clear (&f);
}

static bool enough_stripes (void *user, const EcfsObjectRow *object)
{
    return object->stripes->len >= GPOINTER_TO_UINT (user);
}

static bool is_there (void *user, const EcfsStripeRow *stripe)
{
    (void) user;
    return stripe->index != 5;
}

/* Stripes were looked for at @looked_us, and once more if @again. */
static int take_back_looked (Fixture *f, const EcfsObjectRow *object, guint n_needed, int64_t looked_us, bool again,
                             uint64_t *ret_ino)
{
    EcfsAttr attr;
    const EcfsNewInode new = {.mode = S_IFREG | 0644};
    const EcfsExtent extent = {.length = object->size};
    const EcfsObjectRow *objects[] = {object};
    OK (e, ecfs_catalog_make (f->catalog, ECFS_ROOT_INO, NULL, &new, &attr, NULL, &e));
    const EcfsTakeBack what = {.ino = attr.ino,
                               .objects = objects,
                               .n_objects = 1,
                               .extents = &extent,
                               .n_extents = 1,
                               .size = object->size,
                               .looked_us = looked_us,
                               .is_there = again ? is_there : NULL,
                               .decodes = enough_stripes,
                               .user = GUINT_TO_POINTER (n_needed)};
    *ret_ino = attr.ino;
    return CODE (e, ecfs_catalog_take_back (f->catalog, &what, &e));
}

/* What came back of the object: its size is what the stripes that are left make possible. */
static int take_back (Fixture *f, const EcfsObjectRow *object, guint n_needed, uint64_t *ret_ino)
{
    return take_back_looked (f, object, n_needed, 0, false, ret_ino);
}

static void end_deletions (Fixture *f, unsigned endpoint)
{
    g_autoptr (GArray) deletions = due (f, endpoint, 0);
    for (guint i = 0; i < deletions->len; i++) {
        int64_t id = g_array_index (deletions, EcfsDeletion, i).id;
        OK (e, ecfs_catalog_deletions_doom (f->catalog, &id, 1, &e));
        OK (e, ecfs_catalog_deletions_done (f->catalog, &id, 1, &e));
    }
}

/* What was deleted since it was looked for does not come back. */
static void test_deleted_meanwhile (void)
{
    Fixture f;
    init (&f);
    g_autoptr (GError) error = NULL;
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 1000, 6), other = new_object (&f, "rs:4+2", 10, 6);
    publish_one (&f, ino, object);
    publish_one (&f, ino, other);
    int64_t before_us = ecfs_now_us ();
    for (unsigned i = 3; i < 6; i++)
        end_deletions (&f, i);
    g_autoptr (GArray) unsure = ecfs_catalog_unsure (f.catalog, object, before_us, &error);
    g_assert_cmpuint (unsure->len, ==, 3);
    g_assert_cmpint (take_back_looked (&f, object, 4, before_us, false, &ino), ==, EIO);
    g_assert_cmpint (take_back_looked (&f, object, 6, before_us, true, &ino), ==, EIO);
    g_assert_cmpint (take_back_looked (&f, object, 5, before_us, true, &ino), ==, 0);
    OK (e, ecfs_catalog_drop (f.catalog, ino, &e));
    for (unsigned i = 3; i < 6; i++) /* of which one has none */
        end_deletions (&f, i);
    int64_t behind_us = ecfs_now_us () + 1;
    g_autoptr (GArray) sure = ecfs_catalog_unsure (f.catalog, object, behind_us, &error);
    g_assert_cmpuint (sure->len, ==, 0);
    g_assert_cmpint (take_back_looked (&f, object, 6, behind_us, false, &ino), ==,
                     0); /* found, and nobody deletes it */
    g_autoptr (GArray) here = ecfs_catalog_unsure (f.catalog, object, before_us, &error);
    g_assert_cmpuint (here->len, ==, 0);
    check_totals (&f);
    fixture_clear (&f);
}

/* What waits for its deletion comes back, but for what is doomed. */
static void test_take_back (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 1000, 6), other = new_object (&f, "rs:4+2", 10, 6);
    publish_one (&f, ino, object);
    publish_one (&f, ino, other);
    for (unsigned i = 0; i < 2; i++) {
        g_autoptr (GArray) deletions = due (&f, i, 0);
        int64_t ids[] = {g_array_index (deletions, EcfsDeletion, 0).id, 4711};
        OK (e, ecfs_catalog_deletions_doom (f.catalog, ids, G_N_ELEMENTS (ids), &e));
        g_assert_cmpint (ids[0], !=, 0);
        g_assert_cmpint (ids[1], ==, 0);
        g_assert_cmpuint (n_due (&f, i, HOUR_NS), ==, 1); /* it waits no longer */
    }
    fixture_reopen (&f);
    g_assert_cmpint (take_back (&f, object, 5, &ino), ==, EIO);
    check_totals (&f);
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, 6);
    g_assert_cmpint (take_back (&f, object, 4, &ino), ==, 0);
    check_totals (&f);
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, 2);
    g_assert_cmpuint (get_totals (&f).n_not_full, ==, 1);
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) extents = ecfs_catalog_extents (f.catalog, ino, &error);
    g_autoptr (EcfsObjectRow) got =
        ecfs_catalog_object (f.catalog, g_array_index (extents, EcfsExtent, 0).object, &error);
    g_assert_no_error (error);
    g_assert_true (ecfs_uuid_equal (&got->uuid, &object->uuid));
    g_assert_cmpuint (got->stripes->len, ==, 4);
    g_assert_cmpuint (g_array_index (got->stripes, EcfsStripeRow, 0).index, ==, 2);
    /* the same once more is the object that is there; it goes with the last */
    uint64_t second;
    g_assert_cmpint (take_back (&f, object, 6, &second), ==, 0);
    check_totals (&f);
    OK (e, ecfs_catalog_drop (f.catalog, ino, &e));
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, 2);
    OK (e, ecfs_catalog_drop (f.catalog, second, &e));
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, 6);
    check_totals (&f);
    /* an object of another key is none of this name */
    g_assert_cmpint (take_back (&f, object, 4, &ino), ==, 0);
    object->seal.nonce[0]++;
    g_assert_cmpint (take_back (&f, object, 4, &second), ==, ESTALE);
    fixture_clear (&f);
}

static void test_replace (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) first = new_object (&f, "rs:4+2", 1000, 6), second = new_object (&f, "rs:4+2", 10, 5);
    publish_one (&f, ino, first);
    publish_one (&f, ino, second);
    check_totals (&f);
    g_assert_cmpuint (get_totals (&f).n_objects, ==, 1);
    g_assert_cmpuint (get_totals (&f).n_not_full, ==, 1);
    g_assert_cmpuint (n_due (&f, 5, HOUR_NS), ==, 0); /* its time of grace runs */
    g_autoptr (GArray) deletions = due (&f, 5, 0);
    g_assert_cmpuint (deletions->len, ==, 1);
    const EcfsDeletion *deletion = &g_array_index (deletions, EcfsDeletion, 0);
    g_assert_true (ecfs_uuid_equal (&deletion->object, &first->uuid));
    g_assert_cmpuint (deletion->stripe.index, ==, 5);
    g_assert_cmpuint (deletion->stripe.instance, ==, 1005);
    g_assert_cmpint (deletion->kind, ==, ECFS_DELETION_REMOVED);
    const int64_t both[] = {deletion->id, deletion->id};
    OK (e, ecfs_catalog_deletions_done (f.catalog, both, G_N_ELEMENTS (both), &e));
    OK (e, ecfs_catalog_deletions_done (f.catalog, both, 1, &e));
    g_assert_cmpuint (n_due (&f, 5, 0), ==, 0);
    check_totals (&f);
    OK (e, ecfs_catalog_unlink (f.catalog, ECFS_ROOT_INO, "file", NULL, &e));
    g_assert_cmpuint (get_totals (&f).n_objects, ==, 1); /* someone may still read it */
    OK (e, ecfs_catalog_drop (f.catalog, ino, &e));
    g_assert_cmpuint (get_totals (&f).n_objects, ==, 0);
    check_totals (&f);
    fixture_clear (&f);
}

/* Each number of which a file's bytes depend: a change is noticed, and is not there when it is taken back. */
static void test_changed_numbers (void)
{
    static const char *const columns[][2] = {{"inodes", "committed_size"}, {"inodes", "data_bytes"},
                                             {"inodes", "content_sum"},    {"extents", "start"},
                                             {"extents", "length"},        {"extents", "object_start"}};
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file"), size;
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 100, 6);
    publish_one (&f, ino, object);
    for (size_t i = 0; i < G_N_ELEMENTS (columns); i++)
        for (unsigned whole = 0; whole < 2; whole++) {
            g_autofree char *sql = g_strdup_printf ("UPDATE %s SET %s = (%s | 4) - (%s & 4) WHERE ino = %" PRIu64,
                                                    columns[i][0], columns[i][1], columns[i][1], columns[i][1], ino);
            g_autoptr (GError) error = NULL;
            fixture_close (&f);
            run_sql (f.path, sql);
            fixture_open (&f, 0);
            g_autoptr (GArray) extents = ecfs_catalog_content (f.catalog, ino, &size, &error);
            g_autoptr (GArray) alone = ecfs_catalog_extents (f.catalog, ino, NULL);
            g_assert_cmpint (error == NULL && extents != NULL, ==, whole);
            g_assert_cmpint (alone != NULL, ==, whole);
            if (error != NULL)
                g_assert_cmpint (ecfs_errno (error), ==, EBADMSG);
        }
    fixture_clear (&f);
}

static void test_holes_and_several_objects (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) a = new_object (&f, "rs:4+2", 100, 6), b = new_object (&f, "copies:3", 50, 3);
    int64_t intents[2];
    OK (e, ecfs_catalog_intent_begin (f.catalog, a, ino, &intents[0], &e));
    OK (e, ecfs_catalog_intent_begin (f.catalog, b, ino, &intents[1], &e));
    const EcfsObjectRow *objects[] = {a, b};
    EcfsExtent extents[] = {{.offset = 10, .length = 40, .object = 0},
                            {.offset = 60, .length = 50, .object = 1},
                            {.offset = 500, .length = 60, .object = 0, .object_offset = 40}};
    EcfsPublish publish = {.ino = ino,
                           .intents = intents,
                           .objects = objects,
                           .n_objects = 2,
                           .extents = extents,
                           .n_extents = 3,
                           .size = 1000};
    OK (e, ecfs_catalog_publish (f.catalog, &publish, NULL, &e));
    g_assert_cmpuint (get_attr (&f, ino).data_bytes, ==, 150);
    /* Truncation cuts extents, and lets go of objects that lose their last. */
    EcfsAttr attr = {.size = 520};
    OK (e, ecfs_catalog_setattr (f.catalog, ino, &attr, ECFS_ATTR_SIZE, NULL, &e));
    g_assert_cmpuint (get_attr (&f, ino).data_bytes, ==, 110);
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) cut = ecfs_catalog_extents (f.catalog, ino, &error);
    g_assert_cmpuint (cut->len, ==, 3);
    g_assert_cmpuint (g_array_index (cut, EcfsExtent, 2).length, ==, 20);
    g_assert_cmpuint (g_array_index (cut, EcfsExtent, 2).object_offset, ==, 40);
    attr.size = 60;
    OK (e, ecfs_catalog_setattr (f.catalog, ino, &attr, ECFS_ATTR_SIZE, NULL, &e));
    g_assert_cmpuint (get_totals (&f).n_objects, ==, 1);
    g_assert_cmpuint (n_due (&f, 2, 0), ==, 1);
    attr.size = 0;
    OK (e, ecfs_catalog_setattr (f.catalog, ino, &attr, ECFS_ATTR_SIZE, NULL, &e));
    g_assert_cmpuint (get_totals (&f).n_objects, ==, 0);
    fixture_clear (&f);
}

static void test_codes (void)
{
    static const uint8_t graph[] = {1, 0}, other[] = {2, 0, 1};
    Fixture f;
    init (&f);
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_catalog_code (f.catalog, "ldpc:1+1/0", &error));
    g_assert_error (error, ECFS_ERROR, ENOENT);
    OK (e, ecfs_catalog_keep_code (f.catalog, "ldpc:1+1/0", graph, sizeof graph, &e));
    OK (e, ecfs_catalog_keep_code (f.catalog, "ldpc:1+1/0", graph, sizeof graph, &e));
    OK (e, ecfs_catalog_keep_code (f.catalog, "ldpc:2+1/1", other, sizeof other, &e));
    g_assert_cmpint (CODE (e, ecfs_catalog_keep_code (f.catalog, "", graph, sizeof graph, &e)), ==, EINVAL);
    g_assert_cmpint (CODE (e, ecfs_catalog_keep_code (f.catalog, "ldpc:1+1/2", graph, 0, &e)), ==, EINVAL);
    g_assert_cmpint (CODE (e, ecfs_catalog_keep_code (f.catalog, "ldpc:1+1/2", graph, 16513, &e)), ==, EINVAL);
    fixture_close (&f);
    fixture_open (&f, ECFS_CATALOG_READONLY);
    g_autoptr (GBytes) kept = ecfs_catalog_code (f.catalog, "ldpc:1+1/0", NULL);
    gsize size;
    const void *bytes = g_bytes_get_data (kept, &size);
    g_assert_cmpmem (bytes, (int) size, graph, (int) sizeof graph);
    fixture_clear (&f);
}

static void test_publish_errors (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 100, 6);
    int64_t intent;
    OK (e, ecfs_catalog_intent_begin (f.catalog, object, ino, &intent, &e));
    const EcfsObjectRow *objects[] = {object};
    EcfsExtent extent = {.length = 100};
    EcfsPublish good = {.ino = ino,
                        .intents = &intent,
                        .objects = objects,
                        .n_objects = 1,
                        .extents = &extent,
                        .n_extents = 1,
                        .size = 100};
#define PUBLISH(publish) CODE (e, ecfs_catalog_publish (f.catalog, &publish, NULL, &e))
    EcfsPublish bad = good;
    bad.size = 99;
    g_assert_cmpint (PUBLISH (bad), ==, EINVAL);
    extent.object_offset = 1;
    g_assert_cmpint (PUBLISH (good), ==, EINVAL);
    extent.object_offset = 0;
    extent.object = 1;
    g_assert_cmpint (PUBLISH (good), ==, EINVAL);
    extent.object = 0;
    bad = good;
    bad.ino = 999;
    g_assert_cmpint (PUBLISH (bad), ==, ESTALE);
    bad.ino = ECFS_ROOT_INO;
    g_assert_cmpint (PUBLISH (bad), ==, EINVAL);
    bad = good;
    bad.staging = 77;
    g_assert_cmpint (PUBLISH (bad), ==, ESTALE);
    g_array_index (object->stripes, EcfsStripeRow, 3).instance++; /* nobody announced this one */
    g_assert_cmpint (PUBLISH (good), ==, EINVAL);
    g_array_index (object->stripes, EcfsStripeRow, 3).instance--;
    check_totals (&f); /* all of these changed nothing */
    g_assert_cmpuint (get_totals (&f).n_objects, ==, 0);
    OK (e, ecfs_catalog_publish (f.catalog, &good, NULL, &e));
    g_assert_cmpint (PUBLISH (good), ==, ESTALE); /* its intent has ended */
    OK (e, ecfs_catalog_intent_begin (f.catalog, object, ino, &intent, &e));
    OK (e, ecfs_catalog_intent_abort (f.catalog, intent, &e));
    g_assert_cmpint (PUBLISH (good), ==, ESTALE);
#undef PUBLISH
    check_totals (&f);
    fixture_clear (&f);
}

static void test_intents (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 100, 6);
    int64_t intent;
    OK (e, ecfs_catalog_intent_begin (f.catalog, object, ino, &intent, &e));
    EcfsStripeRow spare = {.index = 2, .instance = 7, .endpoint = f.endpoints[7]};
    OK (e, ecfs_catalog_intent_add (f.catalog, intent, &spare, &e));
    spare.index = 300;
    g_assert_cmpint (CODE (e, ecfs_catalog_intent_add (f.catalog, intent, &spare, &e)), ==, EINVAL);
    spare = (EcfsStripeRow){.index = 3, .instance = 7, .endpoint = 999};
    g_assert_cmpint (CODE (e, ecfs_catalog_intent_add (f.catalog, intent, &spare, &e)), ==, ENOENT);
    /* What a crash leaves: at the next mount everything announced is deleted, at once. */
    fixture_reopen (&f);
    OK (e, ecfs_catalog_intents_abort_all (f.catalog, &e));
    g_assert_cmpuint (n_due (&f, 2, HOUR_NS), ==, 1);
    g_autoptr (GArray) deletions = due (&f, 7, HOUR_NS);
    g_assert_cmpuint (deletions->len, ==, 1);
    g_assert_cmpint (g_array_index (deletions, EcfsDeletion, 0).kind, ==, ECFS_DELETION_UNCOMMITTED);
    OK (e, ecfs_catalog_intent_abort (f.catalog, intent, &e)); /* again: nothing */
    g_assert_cmpint (CODE (e, ecfs_catalog_intent_add (f.catalog, intent, &spare, &e)), ==, ESTALE);
    check_totals (&f);
    fixture_clear (&f);
}

static void test_spare_in_publish (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 100, 6);
    int64_t intent;
    OK (e, ecfs_catalog_intent_begin (f.catalog, object, ino, &intent, &e));
    EcfsStripeRow *third = &g_array_index (object->stripes, EcfsStripeRow, 2);
    third->instance = 7;
    third->endpoint = f.endpoints[7];
    OK (e, ecfs_catalog_intent_add (f.catalog, intent, third, &e));
    g_array_remove_index (object->stripes, 5); /* did not arrive */
    const EcfsObjectRow *objects[] = {object};
    EcfsExtent extent = {.length = 100};
    EcfsPublish publish = {.ino = ino,
                           .intents = &intent,
                           .objects = objects,
                           .n_objects = 1,
                           .extents = &extent,
                           .n_extents = 1,
                           .size = 100};
    OK (e, ecfs_catalog_publish (f.catalog, &publish, NULL, &e));
    g_assert_cmpuint (n_due (&f, 2, HOUR_NS), ==, 1); /* the one that the spare replaced */
    g_assert_cmpuint (n_due (&f, 5, HOUR_NS), ==, 1);
    g_assert_cmpuint (n_due (&f, 7, HOUR_NS), ==, 0);
    check_totals (&f);
    fixture_clear (&f);
}

static guint n_repairs (Fixture *f, int64_t object)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) rows = ecfs_catalog_repairs (f->catalog, object, &error);
    g_assert_no_error (error);
    return rows->len;
}

static bool queue_repair (Fixture *f, const EcfsObjectRow *object, unsigned index, uint64_t instance, bool gone)
{
    bool queued = false;
    const EcfsRepairRow row = {
        .index = (uint16_t) index, .instance = instance, .gone = gone, .reason = (char *) "endpoint a: \xff"};
    OK (e, ecfs_catalog_repair_add (f->catalog, &object->uuid, &row, &queued, &e));
    return queued;
}

static void test_repairs (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 1000, 6);
    publish_one (&f, ino, object);
    const EcfsStripeRow *stripes = (const EcfsStripeRow *) (void *) object->stripes->data;
    uint64_t sequence = ecfs_catalog_sequence (f.catalog);
    g_assert_true (queue_repair (&f, object, 2, stripes[2].instance, true));
    g_assert_true (queue_repair (&f, object, 1, stripes[1].instance, false));
    g_assert_false (queue_repair (&f, object, 1, stripes[1].instance, true));
    g_assert_false (queue_repair (&f, object, 3, stripes[3].instance + 1, false)); /* another is in its place */
    g_assert_cmpuint (ecfs_catalog_sequence (f.catalog), ==, sequence); /* nothing that a journal would have */
    fixture_reopen (&f);
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) rows = ecfs_catalog_repairs (f.catalog, 0, &error);
    g_assert_cmpuint (rows->len, ==, 2);
    const EcfsRepairRow *first = &g_array_index (rows, EcfsRepairRow, 0);
    g_assert_true (first->index == 1 && first->instance == stripes[1].instance && !first->gone);
    g_assert_cmpint (first->endpoint, ==, stripes[1].endpoint);
    g_assert_true (g_str_has_prefix (first->reason, "endpoint a: ") && first->found_ns > 0);
    g_assert_cmpuint (n_repairs (&f, first->object), ==, 2);
    g_assert_cmpuint (n_repairs (&f, first->object + 1), ==, 0);
    int64_t intent;
    EcfsStripeRow again = {.index = 2, .instance = 77, .endpoint = f.endpoints[7], .size = stripes[2].size};
    OK (e, ecfs_catalog_intent_more (f.catalog, object, &again, 1, &intent, &e));
    OK (e, ecfs_catalog_stripe_set (f.catalog, &object->uuid, &again, stripes[2].instance, 1, intent, &e));
    g_assert_cmpuint (n_repairs (&f, 0), ==, 1);
    g_assert_true (queue_repair (&f, object, 2, 77, false));
    OK (e, ecfs_catalog_repair_drop (f.catalog, &object->uuid, 2, stripes[2].instance, &e)); /* not this one */
    g_assert_cmpuint (n_repairs (&f, 0), ==, 2);
    OK (e, ecfs_catalog_repair_drop (f.catalog, &object->uuid, 2, 77, &e));
    g_assert_cmpuint (n_repairs (&f, 0), ==, 1);
    OK (e, ecfs_catalog_unlink (f.catalog, ECFS_ROOT_INO, "file", NULL, &e));
    OK (e, ecfs_catalog_drop (f.catalog, ino, &e));
    g_assert_cmpuint (n_repairs (&f, 0), ==, 0);
    check_totals (&f);
    fixture_clear (&f);
}

static void test_repairs_by_kind (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 1000, 6);
    publish_one (&f, ino, object);
    for (unsigned i = 0; i < 3; i++) {
        bool queued;
        const EcfsRepairRow row = {.index = (uint16_t) i,
                                   .instance = g_array_index (object->stripes, EcfsStripeRow, i).instance,
                                   .gone = i > 0,
                                   .lies = i == 2,
                                   .reason = (char *) "reason"};
        OK (e, ecfs_catalog_repair_add (f.catalog, &object->uuid, &row, &queued, &e));
    }
    g_autoptr (GArray) rows = ecfs_catalog_repairs (f.catalog, 0, NULL);
    g_assert_cmpuint (rows->len, ==, 3);
    for (unsigned i = 0; i < 3; i++) {
        const EcfsRepairRow *row = &g_array_index (rows, EcfsRepairRow, i);
        g_assert_true (row->index == i && row->gone == (i > 0) && row->lies == (i == 2));
    }
    fixture_clear (&f);
}

static bool is_lacking (Fixture *f, const EcfsUuid *object, unsigned index)
{
    bool lacking = false;
    OK (e, ecfs_catalog_stripe_lacking (f->catalog, object, index, &lacking, &e));
    return lacking;
}

static void test_stripe_adopt (void)
{
    Fixture f;
    init (&f);
    EcfsUuid nobody = ecfs_uuid_new ();
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 100, 5);
    publish_one (&f, ino, object);
    const EcfsStripeRow *second = &g_array_index (object->stripes, EcfsStripeRow, 1);
    EcfsStripeRow found = {.index = 5, .instance = 95, .endpoint = f.endpoints[5], .size = 9, .digest = {5}};
    EcfsStripeRow beyond = {.index = 6, .instance = 96, .endpoint = f.endpoints[6], .size = 9};
    EcfsStripeRow other = {.index = 1, .instance = 91, .endpoint = f.endpoints[6], .size = 9, .digest = {99}};
    EcfsStripeRow same = *second;
    same.instance = 92;
    same.endpoint = f.endpoints[6];
    g_assert_true (is_lacking (&f, &object->uuid, 5));
    g_assert_false (is_lacking (&f, &object->uuid, 1) || is_lacking (&f, &object->uuid, 6) ||
                    is_lacking (&f, &nobody, 5));
#define ADOPT(object, stripe, old) CODE (e, ecfs_catalog_stripe_adopt (f.catalog, object, stripe, old, &e))
    g_assert_cmpint (ADOPT (&nobody, &found, 0), ==, ESTALE);
    g_assert_cmpint (ADOPT (&object->uuid, &beyond, 0), ==, ESTALE); /* its code makes six */
    g_assert_cmpint (ADOPT (&object->uuid, &found, 94), ==, ESTALE); /* that one it never had */
    g_assert_cmpint (ADOPT (&object->uuid, &found, 0), ==, 0);
    g_assert_false (is_lacking (&f, &object->uuid, 5));
    g_assert_cmpint (ADOPT (&object->uuid, &found, 0), ==, ESTALE); /* it has it */
    found.instance = 97;
    g_assert_cmpint (ADOPT (&object->uuid, &found, 0), ==, ESTALE);
    g_assert_cmpint (ADOPT (&object->uuid, &other, second->instance), ==, ESTALE); /* of another digest */
    g_assert_cmpint (ADOPT (&object->uuid, &same, second->instance), ==, 0);
#undef ADOPT
    check_totals (&f);
    fixture_clear (&f);
}

static void test_stripe_set (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 100, 4);
    publish_one (&f, ino, object);
    g_assert_cmpuint (get_totals (&f).n_not_full, ==, 1);
    EcfsStripeRow stripes[2] = {{.index = 4, .instance = 50, .endpoint = f.endpoints[4], .size = 9},
                                {.index = 5, .instance = 60, .endpoint = f.endpoints[5], .size = 9}};
    int64_t intent;
    OK (e, ecfs_catalog_intent_more (f.catalog, object, stripes, 2, &intent, &e));
#define SET(stripe, old, intent)                                                                                       \
    CODE (e, ecfs_catalog_stripe_set (f.catalog, &object->uuid, stripe, old, 1, intent, &e))
    g_assert_cmpint (SET (&stripes[0], 0, intent), ==, 0);
    g_assert_cmpuint (get_totals (&f).n_not_full, ==, 1);
    g_assert_cmpint (SET (&stripes[1], 0, intent), ==, 0);
    g_assert_cmpuint (get_totals (&f).n_not_full, ==, 0);
    g_assert_cmpint (SET (&stripes[1], 0, intent), ==, ESTALE); /* its intent has ended */
    check_totals (&f);
    /* Repair: the instance must be the one that was seen. */
    EcfsStripeRow rebuilt = {.index = 5, .instance = 61, .endpoint = f.endpoints[6], .size = 9};
    OK (e, ecfs_catalog_intent_more (f.catalog, object, &rebuilt, 1, &intent, &e));
    g_assert_cmpint (SET (&rebuilt, 59, intent), ==, ESTALE);
    g_assert_cmpuint (n_due (&f, 6, HOUR_NS), ==, 1);
    rebuilt.instance = 62;
    OK (e, ecfs_catalog_intent_more (f.catalog, object, &rebuilt, 1, &intent, &e));
    g_assert_cmpint (SET (&rebuilt, 60, intent), ==, 0);
    g_assert_cmpuint (n_due (&f, 5, 0), ==, 1);
    check_totals (&f);
    /* Another stripe of the object has come to the same endpoint meanwhile. */
    EcfsStripeRow second = {.index = 4, .instance = 51, .endpoint = f.endpoints[6], .size = 9};
    OK (e, ecfs_catalog_intent_more (f.catalog, object, &second, 1, &intent, &e));
    g_assert_cmpint (SET (&second, 50, intent), ==, ESTALE);
    g_assert_cmpuint (n_due (&f, 6, HOUR_NS), ==, 2);
    second.instance = 52;
    OK (e, ecfs_catalog_intent_more (f.catalog, object, &second, 1, &intent, &e));
    OK (e, ecfs_catalog_stripe_set (f.catalog, &object->uuid, &second, 50, 2, intent, &e));
    check_totals (&f);
    /* The object goes while its stripe is being rebuilt. */
    rebuilt.instance = 63;
    OK (e, ecfs_catalog_intent_more (f.catalog, object, &rebuilt, 1, &intent, &e));
    OK (e, ecfs_catalog_unlink (f.catalog, ECFS_ROOT_INO, "file", NULL, &e));
    OK (e, ecfs_catalog_drop (f.catalog, ino, &e));
    g_assert_cmpint (SET (&rebuilt, 62, intent), ==, ESTALE);
    g_assert_cmpuint (n_due (&f, 6, HOUR_NS), ==, 3);
    g_assert_cmpint (CODE (e, ecfs_catalog_intent_more (f.catalog, object, &rebuilt, 1, &intent, &e)), ==, ESTALE);
#undef SET
    check_totals (&f);
    fixture_clear (&f);
}

static EcfsObjectRow *object_of (Fixture *f, uint64_t ino)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) extents = ecfs_catalog_extents (f->catalog, ino, &error);
    g_assert_cmpuint (extents->len, ==, 1);
    EcfsObjectRow *row = ecfs_catalog_object (f->catalog, g_array_index (extents, EcfsExtent, 0).object, &error);
    g_assert_no_error (error);
    return row;
}

/* What the newest record of the journal, which the item points into, tells of a type. */
static EcfsJournalItem last_of (Fixture *f, EcfsJournalType type, GPtrArray **ret_rows)
{
    g_autoptr (GError) error = NULL;
    GPtrArray *rows = *ret_rows = ecfs_catalog_journal (f->catalog, ecfs_catalog_sequence (f->catalog) - 1, 1, &error);
    g_assert_cmpuint (rows->len, ==, 1);
    const EcfsJournalRow *row = g_ptr_array_index (rows, 0);
    EcfsCursor cursor;
    EcfsJournalItem item;
    g_assert_cmpint (ecfs_journal_open (&cursor, row->record->data, row->record->len), ==, 0);
    do
        g_assert_cmpint (ecfs_journal_next (&cursor, &item), ==, 1);
    while (item.type != type);
    return item;
}

static void test_exchange (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) old = new_object (&f, "rs:4+2", 1000, 5), new = new_object (&f, "copies:3", 1000, 3);
    old->seal = new->seal = (EcfsSeal){.kind = ECFS_SEAL_NONE}; /* what is enciphered is another each time */
    publish_one (&f, ino, old);
    EcfsAttr before = get_attr (&f, ino);
    int64_t intent;
#define EXCHANGE(new) CODE (e, ecfs_catalog_exchange (f.catalog, &old->uuid, new, intent, &e))
    OK (e, ecfs_catalog_intent_begin (f.catalog, new, ino, &intent, &e));
    g_assert_cmpint (EXCHANGE (new), ==, 0);
    fixture_reopen (&f);
    EcfsAttr after = get_attr (&f, ino);
    g_assert_cmpmem (&before, sizeof before, &after, sizeof after); /* nobody's times move */
    g_autoptr (EcfsObjectRow) got = object_of (&f, ino);
    g_assert_true (ecfs_uuid_equal (&got->uuid, &new->uuid));
    assert_same_seal (got, new);
    g_assert_cmpstr (got->code, ==, "copies:3");
    g_assert_cmpuint (got->stripes->len, ==, 3);
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, 5);
    g_assert_cmpuint (n_due (&f, 0, HOUR_NS), ==, 0); /* its time of grace runs */
    g_autoptr (GPtrArray) record = NULL;
    EcfsJournalItem told = last_of (&f, ECFS_JOURNAL_CONTENT, &record);
    g_assert_cmpuint (told.attr.ino, ==, ino);
    EcfsJournalExtent extent = ecfs_journal_extent (&told, 0);
    g_assert_true (ecfs_uuid_equal (&extent.object, &new->uuid));
    check_totals (&f);
    g_assert_cmpint (EXCHANGE (new), ==, ESTALE); /* the old object is gone */
    /* What was replaced meanwhile keeps what replaced it. */
    g_autoptr (EcfsObjectRow) newer = new_object (&f, "rs:4+2", 7, 6), late = new_object (&f, "rs:4+2", 1000, 6);
    OK (e, ecfs_catalog_intent_begin (f.catalog, late, ino, &intent, &e));
    publish_one (&f, ino, newer);
    g_assert_cmpint (CODE (e, ecfs_catalog_exchange (f.catalog, &new->uuid, late, intent, &e)), ==, ESTALE);
    OK (e, ecfs_catalog_intent_abort (f.catalog, intent, &e));
    g_autoptr (EcfsObjectRow) kept = object_of (&f, ino);
    g_assert_true (ecfs_uuid_equal (&kept->uuid, &newer->uuid));
#undef EXCHANGE
    check_totals (&f);
    fixture_clear (&f);
}

/* With a key and without; what is enciphered has another digest each time, and the same SHA-256. */
static void test_exchange_other (void)
{
    static const uint64_t sizes[] = {10, 1000};
    for (size_t i = 0; i < G_N_ELEMENTS (sizes); i++) {
        Fixture f;
        int64_t intent;
        init (&f);
        uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
        g_autoptr (EcfsObjectRow) old = new_object (&f, "rs:4+2", sizes[i], 6);
        g_autoptr (EcfsObjectRow) new = new_object (&f, "copies:3", sizes[i], 3);
        g_assert_true (old->has_sha256 && (old->seal.kind == ECFS_SEAL_NONE) == (i == 0));
        publish_one (&f, ino, old);
        OK (e, ecfs_catalog_intent_begin (f.catalog, new, ino, &intent, &e));
        uint8_t *const digests[] = {new->sha256, i == 0 ? new->digest : new->sha256};
        for (size_t j = 0; j < G_N_ELEMENTS (digests); j++) {
            digests[j][0]++;
            g_assert_cmpint (CODE (e, ecfs_catalog_exchange (f.catalog, &old->uuid, new, intent, &e)), ==, EINVAL);
            digests[j][0]--;
        }
        g_assert_cmpuint (get_totals (&f).n_deletions, ==, 0);
        g_autoptr (EcfsObjectRow) kept = object_of (&f, ino);
        assert_same_seal (kept, old);
        fixture_clear (&f);
    }
}

static void test_set_object_code (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 100, 6);
    publish_one (&f, ino, object);
    EcfsStripeRow stripe = {.index = 6, .instance = 70, .endpoint = f.endpoints[6], .size = 9};
    g_autoptr (GArray) stripes = g_array_new (FALSE, TRUE, sizeof (EcfsStripeRow));
    int64_t intent;
#define SET(from, to, intent)                                                                                          \
    CODE (e, ecfs_catalog_set_object_code (f.catalog, &object->uuid, from, to, stripes, intent, &e))
    OK (e, ecfs_catalog_intent_more (f.catalog, object, &stripe, 1, &intent, &e));
    stripe.instance = 71;
    g_array_append_val (stripes, stripe);
    g_assert_cmpint (SET ("rs:4+2", "rs:4+3", intent), ==, EINVAL); /* not the one that was announced */
    g_array_index (stripes, EcfsStripeRow, 0).instance = 70;
    g_assert_cmpint (SET ("rs:4+1", "rs:4+3", intent), ==, ESTALE);
    g_assert_cmpint (SET ("rs:4+2", "rs:4+3", intent), ==, 0);
    g_assert_cmpint (SET ("rs:4+2", "rs:4+3", intent), ==, ESTALE);
    fixture_reopen (&f);
    g_autoptr (EcfsObjectRow) grown = object_of (&f, ino);
    g_assert_cmpstr (grown->code, ==, "rs:4+3");
    g_assert_cmpuint (grown->stripes->len, ==, 7);
    for (guint i = 0; i < 7; i++) {
        const EcfsStripeRow *now = &g_array_index (grown->stripes, EcfsStripeRow, i);
        const EcfsStripeRow *before = i < 6 ? &g_array_index (object->stripes, EcfsStripeRow, i) : &stripe;
        g_assert_cmpuint (now->index, ==, i);
        g_assert_cmpuint (now->instance, ==, i < 6 ? before->instance : 70);
        g_assert_cmpint (now->endpoint, ==, before->endpoint);
        g_assert_cmpuint (now->size, ==, before->size);
        g_assert_cmpmem (now->digest, sizeof now->digest, before->digest, sizeof before->digest);
    }
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, 0);
    g_autoptr (GPtrArray) record = NULL;
    EcfsJournalItem told = last_of (&f, ECFS_JOURNAL_OBJECT, &record);
    g_assert_cmpmem (told.code.bytes, (int) told.code.size, "rs:4+3", 6);
    g_assert_cmpuint (told.n_parts, ==, 7);
    assert_same_seal (grown, object);
    check_totals (&f);
    /* Someone who fills up the larger code comes too late. */
    EcfsStripeRow late = {.index = 6, .instance = 72, .endpoint = f.endpoints[7], .size = 9};
    OK (e, ecfs_catalog_intent_more (f.catalog, object, &late, 1, &intent, &e));
    g_assert_cmpint (SET ("rs:4+3", "rs:4+1", 0), ==, 0);
    g_assert_cmpint (CODE (e, ecfs_catalog_stripe_set (f.catalog, &object->uuid, &late, 0, 1, intent, &e)), ==, ESTALE);
    g_assert_cmpuint (n_due (&f, 7, HOUR_NS), ==, 1); /* at once */
    g_assert_cmpuint (n_due (&f, 6, HOUR_NS), ==, 0);
    g_assert_cmpuint (n_due (&f, 6, 0), ==, 1);
    g_assert_cmpuint (n_due (&f, 5, 0), ==, 1);
    g_assert_cmpuint (n_due (&f, 4, 0), ==, 0);
    g_autoptr (EcfsObjectRow) shrunk = object_of (&f, ino);
    g_assert_cmpuint (shrunk->stripes->len, ==, 5);
    /* Growing again with nothing new is an object that is not full. */
    g_assert_cmpint (SET ("rs:4+1", "rs:4+2", 0), ==, 0);
    g_assert_cmpuint (get_totals (&f).n_not_full, ==, 1);
#undef SET
    check_totals (&f);
    fixture_clear (&f);
}

/* What was stored without a SHA-256 gets one once, and the journal says so. */
static void test_sha256 (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    uint8_t first[ECFS_SHA256_SIZE], second[ECFS_SHA256_SIZE];
    memset (first, 1, sizeof first);
    memset (second, 2, sizeof second);
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 999, 6), absent = new_object (&f, "rs:4+2", 9, 6);
    g_assert_false (object->has_sha256);
    publish_one (&f, ino, object);
    g_autoptr (EcfsObjectRow) without = object_of (&f, ino);
    g_assert_false (without->has_sha256);
    OK (e, ecfs_catalog_object_set_sha256 (f.catalog, &object->uuid, first, &e));
    OK (e, ecfs_catalog_object_set_sha256 (f.catalog, &object->uuid, second, &e));
    OK (e, ecfs_catalog_object_set_sha256 (f.catalog, &absent->uuid, second, &e));
    fixture_reopen (&f);
    g_autoptr (EcfsObjectRow) with = object_of (&f, ino);
    g_assert_true (with->has_sha256);
    g_assert_cmpmem (with->sha256, sizeof with->sha256, first, sizeof first);
    g_autoptr (GPtrArray) record = NULL;
    EcfsJournalItem told = last_of (&f, ECFS_JOURNAL_OBJECT_SHA256, &record);
    g_assert_true (ecfs_uuid_equal (&told.uuid, &object->uuid));
    g_assert_cmpmem (told.sha256, sizeof told.sha256, first, sizeof first);
    check_totals (&f);
    fixture_clear (&f);
}

/* The types of the items of the newest record, each with spaces around it; g_free () */
static char *last_types (Fixture *f)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) rows = ecfs_catalog_journal (f->catalog, ecfs_catalog_sequence (f->catalog) - 1, 1, &error);
    g_assert_cmpuint (rows->len, ==, 1);
    const EcfsJournalRow *row = g_ptr_array_index (rows, 0);
    GString *types = g_string_new (" ");
    EcfsCursor cursor;
    EcfsJournalItem item;
    g_assert_cmpint (ecfs_journal_open (&cursor, row->record->data, row->record->len), ==, 0);
    while (ecfs_journal_next (&cursor, &item) == 1)
        g_string_append_printf (types, "%d ", item.type);
    return g_string_free (types, FALSE);
}

/* An ecfs that knows no keys must refuse the record, and others have the key before the object is made. */
static void test_key_in_journal (void)
{
    Fixture f;
    init (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    g_autoptr (EcfsObjectRow) sealed = new_object (&f, "rs:4+2", 1000, 6), plain = new_object (&f, "rs:4+2", 10, 6);
    publish_one (&f, ino, plain);
    g_autoptr (EcfsObjectRow) without = object_of (&f, ino);
    g_assert_cmpint (without->seal.kind, ==, ECFS_SEAL_NONE);
    g_autofree char *types = last_types (&f);
    g_assert_nonnull (strstr (types, " 9 "));
    g_assert_null (strstr (types, " 16 "));
    publish_one (&f, ino, sealed);
    for (unsigned i = 0; i < 2; i++) {
        g_autofree char *now = last_types (&f);
        g_assert_nonnull (strstr (now, " 16 9 "));
        g_autoptr (GPtrArray) record = NULL;
        EcfsJournalItem told = last_of (&f, ECFS_JOURNAL_OBJECT_KEY, &record);
        EcfsSeal seal;
        g_assert_true (ecfs_uuid_equal (&told.uuid, &sealed->uuid));
        OK (e, ecfs_seal_parse (told.value.bytes, told.value.size, &seal, &e));
        g_assert_cmpmem (seal.nonce, sizeof seal.nonce, sealed->seal.nonce, sizeof sealed->seal.nonce);
        if (i == 0) /* another record of the same object */
            OK (e, ecfs_catalog_set_object_code (f.catalog, &sealed->uuid, "rs:4+2", "rs:4+1", NULL, 0, &e));
    }
    fixture_clear (&f);
}

static EcfsStagingRow get_staging (Fixture *f, guint i, guint n)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (f->catalog, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (rows->len, ==, n);
    EcfsStagingRow row = *(const EcfsStagingRow *) g_ptr_array_index (rows, i);
    row.error = row.error == NULL ? NULL : (char *) g_intern_string (row.error);
    return row;
}

/* A new file of 1234 bytes, flushed and not stored. */
static uint64_t make_queued (Fixture *f, const char *name)
{
    EcfsNewInode new = {.mode = S_IFREG | 0600, .staged = true};
    EcfsAttr attr;
    int64_t staging;
    OK (e, ecfs_catalog_make (f->catalog, ECFS_ROOT_INO, name, &new, &attr, &staging, &e));
    OK (e, ecfs_catalog_staging_set (f->catalog, staging, ECFS_STAGING_QUEUED, 1234, 4711, NULL, &e));
    return attr.ino;
}

static void replace_file (Fixture *f, const char *name)
{
    EcfsAttr replaced;
    OK (e, ecfs_catalog_rename (f->catalog, ECFS_ROOT_INO, name, ECFS_ROOT_INO, "file", 0, &replaced, &e));
    g_assert_cmpuint (replaced.nlink, ==, 0);
    OK (e, ecfs_catalog_drop (f->catalog, replaced.ino, &e));
    fixture_reopen (f);
    check_totals (f);
}

static void assert_content_is (Fixture *f, uint64_t ino, const EcfsObjectRow *object)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) extents = ecfs_catalog_extents (f->catalog, ino, &error);
    g_assert_cmpuint (extents->len, ==, 1);
    g_autoptr (EcfsObjectRow) got =
        ecfs_catalog_object (f->catalog, g_array_index (extents, EcfsExtent, 0).object, &error);
    g_assert_no_error (error);
    g_assert_true (ecfs_uuid_equal (&got->uuid, &object->uuid));
}

/* What is only staged may burn with the machine. */
static void test_replaced_by_staged (void)
{
    Fixture f;
    init (&f);
    g_autoptr (EcfsObjectRow) old = new_object (&f, "rs:4+2", 1000, 6), new = new_object (&f, "rs:4+2", 1234, 6);
    publish_one (&f, make_file (&f, ECFS_ROOT_INO, "file"), old);
    uint64_t ino = make_queued (&f, "first");
    replace_file (&f, "first");
    g_assert_cmpuint (n_due (&f, 5, 0), ==, 0);
    assert_content_is (&f, ino, old);
    g_assert_cmpuint (get_attr (&f, ino).size, ==, 1234);
    g_assert_false (get_staging (&f, 0, 1).fresh);
    ino = make_queued (&f, "second");
    replace_file (&f, "second");
    g_assert_cmpuint (n_due (&f, 5, 0), ==, 0);
    assert_content_is (&f, ino, old);
    OK (e, ecfs_catalog_staging_remove (f.catalog, get_staging (&f, 0, 1).id, &e));
    g_assert_cmpuint (get_attr (&f, ino).size, ==, 1000); /* without what was staged it is what it was */
    publish_one (&f, ino, new);
    g_assert_cmpuint (n_due (&f, 5, 0), ==, 1);
    assert_content_is (&f, ino, new);
    check_totals (&f);
    fixture_clear (&f);
}

/* The name that is taken over has its old content until the new one is stored, and the other names keep theirs. */
static void test_one_of_two_names_replaced (void)
{
    Fixture f;
    init (&f);
    EcfsAttr attr;
    g_autoptr (EcfsObjectRow) old = new_object (&f, "rs:4+2", 1000, 6), new = new_object (&f, "rs:4+2", 1234, 6);
    uint64_t other = make_file (&f, ECFS_ROOT_INO, "file"), ino = make_queued (&f, "new");
    publish_one (&f, other, old);
    OK (e, ecfs_catalog_link (f.catalog, other, ECFS_ROOT_INO, "other", &attr, &e));
    OK (e, ecfs_catalog_rename (f.catalog, ECFS_ROOT_INO, "new", ECFS_ROOT_INO, "file", 0, &attr, &e));
    g_assert_cmpuint (attr.nlink, ==, 1);
    assert_content_is (&f, ino, old);
    assert_content_is (&f, other, old);
    check_totals (&f);
    publish_one (&f, ino, new);
    assert_content_is (&f, ino, new);
    assert_content_is (&f, other, old);
    g_assert_cmpuint (n_due (&f, 5, 0), ==, 0);
    check_totals (&f);
    fixture_clear (&f);
}

/* A file that is being replaced when its first content comes to be stored has content, whatever comes of the newer. */
static void test_newer_row_of_what_is_published (void)
{
    Fixture f;
    init (&f);
    int64_t newer;
    uint64_t ino = make_queued (&f, "file");
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 1234, 6);
    OK (e, ecfs_catalog_staging_add (f.catalog, ino, &newer, &e));
    g_assert_true (get_staging (&f, 1, 2).fresh);
    publish_staged (&f, ino, object, get_staging (&f, 0, 2).id);
    EcfsStagingRow row = get_staging (&f, 0, 1);
    g_assert_true (row.id == newer && !row.fresh);
    check_totals (&f);
    fixture_clear (&f);
}

static void test_staging (void)
{
    Fixture f;
    init (&f);
    EcfsNewInode new = {.mode = S_IFREG | 0600, .staged = true};
    EcfsAttr attr;
    int64_t staging;
    OK (e, ecfs_catalog_make (f.catalog, ECFS_ROOT_INO, "file", &new, &attr, &staging, &e));
    OK (e, ecfs_catalog_staging_set (f.catalog, staging, ECFS_STAGING_QUEUED, 1234, 4711, "endpoint down", &e));
    g_assert_cmpuint (get_attr (&f, attr.ino).size, ==, 1234); /* what a reader will find there */
    g_assert_cmpint (get_attr (&f, attr.ino).mtime_ns, ==, 4711);
    fixture_reopen (&f);
    EcfsStagingRow row = get_staging (&f, 0, 1);
    g_assert_cmpint (row.id, ==, staging);
    g_assert_cmpuint (row.ino, ==, attr.ino);
    g_assert_cmpint (row.state, ==, ECFS_STAGING_QUEUED);
    g_assert_true (row.fresh);
    g_assert_cmpuint (row.size, ==, 1234);
    g_assert_cmpstr (row.error, ==, "endpoint down");
    /* Published, not yet full: the bytes stay. */
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 1234, 5);
    int64_t intent;
    OK (e, ecfs_catalog_intent_begin (f.catalog, object, attr.ino, &intent, &e));
    const EcfsObjectRow *objects[] = {object};
    EcfsExtent extent = {.length = 1234};
    EcfsPublish publish = {.ino = attr.ino,
                           .intents = &intent,
                           .objects = objects,
                           .n_objects = 1,
                           .extents = &extent,
                           .n_extents = 1,
                           .size = 1234,
                           .mtime_ns = 5,
                           .keep_mtime = true,
                           .staging = staging};
    EcfsAttr late = {.mtime_ns = 7}; /* set after close(2), as rsync does, while what was closed is on its way */
    OK (e, ecfs_catalog_setattr (f.catalog, attr.ino, &late, ECFS_ATTR_MTIME, NULL, &e));
    OK (e, ecfs_catalog_publish (f.catalog, &publish, NULL, &e));
    OK (e, ecfs_catalog_getattr (f.catalog, attr.ino, &late, &e));
    g_assert_cmpint (late.mtime_ns, ==, 7);
    row = get_staging (&f, 0, 1);
    g_assert_cmpint (row.state, ==, ECFS_STAGING_STORED);
    g_assert_null (row.error);
    /* A rewrite that is given up: the committed size shows again. */
    int64_t rewrite;
    OK (e, ecfs_catalog_staging_add (f.catalog, attr.ino, &rewrite, &e));
    g_assert_false (get_staging (&f, 1, 2).fresh);
    EcfsAttr size = {.size = 5};
    OK (e, ecfs_catalog_setattr (f.catalog, attr.ino, &size, ECFS_ATTR_SIZE, NULL, &e));
    g_assert_cmpuint (get_attr (&f, attr.ino).size, ==, 5);
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) extents = ecfs_catalog_extents (f.catalog, attr.ino, &error);
    g_assert_cmpuint (g_array_index (extents, EcfsExtent, 0).length, ==, 1234);
    OK (e, ecfs_catalog_staging_remove (f.catalog, rewrite, &e));
    g_assert_cmpuint (get_attr (&f, attr.ino).size, ==, 1234);
    OK (e, ecfs_catalog_staging_remove (f.catalog, staging, &e));
    OK (e, ecfs_catalog_staging_remove (f.catalog, staging, &e)); /* again: nothing */
    g_assert_cmpint (CODE (e, ecfs_catalog_staging_set (f.catalog, staging, 0, 0, 0, NULL, &e)), ==, ENOENT);
    g_assert_cmpint (CODE (e, ecfs_catalog_staging_add (f.catalog, ECFS_ROOT_INO, &staging, &e)), ==, EINVAL);
    check_totals (&f);
    fixture_clear (&f);
}

static void test_endpoints (void)
{
    Fixture f;
    init (&f);
    int64_t id;
    EcfsUuid uuid = ecfs_uuid_new ();
    g_assert_cmpint (CODE (e, ecfs_catalog_endpoint_add (f.catalog, &uuid, "endpoint0", &id, &e)), ==, EEXIST);
    g_assert_cmpint (CODE (e, ecfs_catalog_endpoint_add (f.catalog, &f.endpoint_uuids[3], "new", &id, &e)), ==, EEXIST);
    g_assert_cmpint (CODE (e, ecfs_catalog_endpoint_add (f.catalog, &uuid, "", &id, &e)), ==, EINVAL);
    OK (e, ecfs_catalog_endpoint_set_state (f.catalog, f.endpoints[2], ECFS_ENDPOINT_DRAINING, &e));
    g_assert_cmpint (CODE (e, ecfs_catalog_endpoint_set_state (f.catalog, 99, ECFS_ENDPOINT_FAILED, &e)), ==, ENOENT);
    fixture_reopen (&f);
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) rows = ecfs_catalog_endpoints (f.catalog, &error);
    g_assert_cmpuint (rows->len, ==, 8);
    const EcfsEndpointRow *row = g_ptr_array_index (rows, 2);
    g_assert_cmpint (row->id, ==, f.endpoints[2]);
    g_assert_cmpint (row->state, ==, ECFS_ENDPOINT_DRAINING);
    g_assert_cmpstr (row->name, ==, "endpoint2");
    g_assert_true (ecfs_uuid_equal (&row->uuid, &f.endpoint_uuids[2]));
    fixture_clear (&f);
}

static void test_free_nothing (void)
{
    ecfs_object_row_free (NULL);
    ecfs_staging_row_free (NULL);
    ecfs_endpoint_row_free (NULL);
    ecfs_journal_row_free (NULL);
    g_autoptr (EcfsObjectRow) empty = ecfs_object_row_new ();
    g_autoptr (EcfsObjectRow) copy = ecfs_object_row_copy (empty);
    g_assert_cmpuint (copy->stripes->len, ==, 0);
    g_assert_true (copy->stripes != empty->stripes);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/content/publish-makes-an-object-the-content", test_publish);
    g_test_add_func ("/content/what-is-replaced-waits-for-deletion", test_replace);
    g_test_add_func ("/content/what-is-replaced-stays-until-what-replaces-it-is-stored", test_replaced_by_staged);
    g_test_add_func ("/content/a-name-that-is-replaced-keeps-its-content-until-then", test_one_of_two_names_replaced);
    g_test_add_func ("/content/changed-numbers", test_changed_numbers);
    g_test_add_func ("/content/holes-several-objects-and-truncation", test_holes_and_several_objects);
    g_test_add_func ("/content/parameters-of-codes-are-kept", test_codes);
    g_test_add_func ("/content/a-failed-publish-changes-nothing", test_publish_errors);
    g_test_add_func ("/content/intents-left-by-a-crash-are-deleted-at-once", test_intents);
    g_test_add_func ("/content/publish-keeps-spares-and-deletes-what-it-leaves-out", test_spare_in_publish);
    g_test_add_func ("/content/a-stripe-is-adopted-where-it-fits", test_stripe_adopt);
    g_test_add_func ("/content/stripe-set-is-a-compare-and-set", test_stripe_set);
    g_test_add_func ("/content/exchange-changes-where-bytes-are-and-nothing-else", test_exchange);
    g_test_add_func ("/content/other-content-is-not-exchanged", test_exchange_other);
    g_test_add_func ("/content/an-object-gets-more-or-fewer-stripes", test_set_object_code);
    g_test_add_func ("/content/a-sha256-is-filled-in-once", test_sha256);
    g_test_add_func ("/content/a-key-is-journaled-before-its-object", test_key_in_journal);
    g_test_add_func ("/content/repairs-are-queued-once-and-end-with-their-stripe", test_repairs);
    g_test_add_func ("/content/a-repair-tells-gone-damaged-and-lying-stripes-apart", test_repairs_by_kind);
    g_test_add_func ("/content/staging-rows-follow-a-file-to-its-commit", test_staging);
    g_test_add_func ("/content/what-is-published-is-the-content-of-a-file-that-is-replaced",
                     test_newer_row_of_what_is_published);
    g_test_add_func ("/content/endpoints-have-one-name-and-one-identity", test_endpoints);
    g_test_add_func ("/content/what-waits-for-its-deletion-comes-back", test_take_back);
    g_test_add_func ("/content/what-was-deleted-meanwhile-does-not", test_deleted_meanwhile);
    g_test_add_func ("/content/free-accepts-nothing", test_free_nothing);
    return g_test_run ();
}
