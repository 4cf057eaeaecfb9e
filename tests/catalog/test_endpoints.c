/* How endpoints were the last time, what they hold, and what is left of them. */
#include "check_db.h"
#include "fixture.h"

#define N_UPLOADS 600

static void assert_estimate (Fixture *f, const EcfsEstimateRow *expected)
{
    EcfsEstimateRow row;
    OK (e, ecfs_catalog_estimate (f->catalog, expected->endpoint, &row, &e));
    g_assert_cmpmem (&row, sizeof row, expected, sizeof *expected);
}

static void test_kept (void)
{
    Fixture f;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    EcfsEstimateRow row = {.endpoint = f.endpoints[1],
                           .latency_us = {100, 200, 30000},
                           .read_bytes_per_s = {1000000, 2000000, INT64_MAX},
                           .write_bytes_per_s = {0, 0, 0}};
    assert_estimate (&f, &(EcfsEstimateRow){.endpoint = f.endpoints[1]});
    uint64_t sequence = ecfs_catalog_sequence (f.catalog);
    OK (e, ecfs_catalog_estimate_set (f.catalog, &row, &e));
    assert_estimate (&f, &row);
    row.write_bytes_per_s[1] = 77;
    OK (e, ecfs_catalog_estimate_set (f.catalog, &row, &e));
    fixture_reopen (&f);
    assert_estimate (&f, &row);
    assert_estimate (&f, &(EcfsEstimateRow){.endpoint = f.endpoints[0]});
    g_assert_cmpuint (ecfs_catalog_sequence (f.catalog), ==, sequence); /* nothing that a journal would have */
    check_integrity (f.path);
    fixture_clear (&f);
}

/* A row that no ecfs wrote keeps no catalog from being opened. */
static void test_hostile (void)
{
    Fixture f;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    fixture_close (&f);
    g_autofree char *sql = g_strdup_printf ("INSERT INTO estimates VALUES (%" PRId64
                                            ", -1, 5, -9223372036854775808, 9223372036854775807, 1, 0, 7, 8, -9)",
                                            f.endpoints[0]);
    run_sql (f.path, sql);
    fixture_open (&f, 0);
    assert_estimate (&f, &(EcfsEstimateRow){.endpoint = f.endpoints[0],
                                            .latency_us = {0, 5, 0},
                                            .read_bytes_per_s = {INT64_MAX, 1, 0},
                                            .write_bytes_per_s = {7, 8, 0}});
    fixture_clear (&f);
}

static guint held (Fixture *f, int64_t endpoint)
{
    int64_t after = 0;
    guint n_held = 0;
    g_autoptr (GError) error = NULL;
    for (bool more = true; more;) {
        g_autoptr (GArray) stripes = ecfs_catalog_stripes_at (f->catalog, endpoint, &after, &more, &error);
        g_assert_no_error (error);
        for (guint i = 0; i < stripes->len; i++)
            g_assert_cmpuint (g_array_index (stripes, EcfsStripeAt, i).instance, >=, 1000);
        n_held += stripes->len;
    }
    return n_held;
}

static void test_held (void)
{
    Fixture f;
    uint64_t n_announced;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    g_assert_cmpuint (held (&f, f.endpoints[0]), ==, 0);
    for (unsigned i = 0; i < 5; i++) {
        g_autofree char *name = g_strdup_printf ("file%u", i);
        g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 4000, i);
        publish_one (&f, make_file (&f, ECFS_ROOT_INO, name), object);
    }
    for (unsigned i = 0; i < 5; i++)
        g_assert_cmpuint (held (&f, f.endpoints[i]), ==, 4 - i);
    OK (e, ecfs_catalog_announced_at (f.catalog, f.endpoints[0], &n_announced, &e));
    g_assert_cmpuint (n_announced, ==, 0);
    fixture_clear (&f);
}

static void test_counted (void)
{
    Fixture f;
    atomic_bool stop;
    uint64_t bytes[2];
    fixture_init (&f);
    fixture_add_endpoints (&f);
    atomic_init (&stop, false);
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 4000, 1);
    publish_one (&f, make_file (&f, ECFS_ROOT_INO, "file"), object);
    OK (e, ecfs_catalog_bytes_at (f.catalog, f.endpoints, 2, &stop, bytes, &e));
    g_assert_cmpuint (bytes[0], >, 0);
    g_assert_cmpuint (bytes[1], ==, 0);
    atomic_store (&stop, true);
    g_assert_cmpint (CODE (e, ecfs_catalog_bytes_at (f.catalog, f.endpoints, 2, &stop, bytes, &e)), ==, ECANCELED);
    OK (e, ecfs_catalog_bytes_at (f.catalog, f.endpoints, 2, NULL, bytes, &e));
    fixture_clear (&f);
}

/* What was placed there before and is announced after would be seen by nobody who looks whether it is empty. */
static void test_nothing_comes (void)
{
    Fixture f;
    int64_t intent = -1;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 4000, 3);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    const EcfsEndpointState states[] = {ECFS_ENDPOINT_READONLY, ECFS_ENDPOINT_DRAINING, ECFS_ENDPOINT_FAILED,
                                        ECFS_ENDPOINT_DISTRUSTED};
    for (size_t i = 0; i < G_N_ELEMENTS (states); i++) {
        OK (e, ecfs_catalog_endpoint_set_state (f.catalog, f.endpoints[1], states[i], &e));
        g_assert_cmpint (CODE (e, ecfs_catalog_intent_begin (f.catalog, object, ino, &intent, &e)), ==, EAGAIN);
        g_assert_cmpint (intent, ==, -1);
    }
    OK (e, ecfs_catalog_endpoint_set_state (f.catalog, f.endpoints[1], ECFS_ENDPOINT_ACTIVE, &e));
    OK (e, ecfs_catalog_intent_begin (f.catalog, object, ino, &intent, &e));
    OK (e, ecfs_catalog_endpoint_set_state (f.catalog, f.endpoints[5], ECFS_ENDPOINT_DRAINING, &e));
    const EcfsStripeRow spare = {.index = 3, .instance = 9, .endpoint = f.endpoints[5]};
    g_assert_cmpint (CODE (e, ecfs_catalog_intent_add (f.catalog, intent, &spare, &e)), ==, EAGAIN);
    fixture_clear (&f);
}

/* The queue of deletions is that of the others, the name is free, and nothing can come there any more. */
static void test_removed (void)
{
    Fixture f;
    int64_t intent, id;
    uint64_t n_stripes;
    g_autofree char *name = NULL, *none = NULL;
    bool was;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    g_autoptr (EcfsObjectRow) object = new_object (&f, "rs:4+2", 4000, 3);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    for (unsigned i = 0; i < N_UPLOADS; i++) { /* more than are forgotten at a time */
        OK (e, ecfs_catalog_intent_begin (f.catalog, object, ino, &intent, &e));
        if (i > 0)
            OK (e, ecfs_catalog_intent_abort (f.catalog, intent, &e));
        else
            id = intent;
    }
    g_assert_cmpint (CODE (e, ecfs_catalog_endpoint_remove (f.catalog, f.endpoints[1], &e)), ==, EBUSY);
    OK (e, ecfs_catalog_endpoint_set_state (f.catalog, f.endpoints[1], ECFS_ENDPOINT_DRAINING, &e));
    g_assert_cmpint (CODE (e, ecfs_catalog_endpoint_remove (f.catalog, f.endpoints[1], &e)), ==, EBUSY);
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, 3 * (N_UPLOADS - 1));
    OK (e, ecfs_catalog_intent_abort (f.catalog, id, &e));
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, 3 * N_UPLOADS);
    OK (e, ecfs_catalog_endpoint_remove (f.catalog, f.endpoints[1], &e));
    g_assert_cmpuint (get_totals (&f).n_deletions, ==, 2 * N_UPLOADS);
    OK (e, ecfs_catalog_deletions_at (f.catalog, f.endpoints[1], &n_stripes, &e));
    g_assert_cmpuint (n_stripes, ==, 0);
    g_assert_cmpint (CODE (e, ecfs_catalog_intent_begin (f.catalog, object, ino, &intent, &e)), ==, EAGAIN);
    fixture_reopen (&f);
    g_autoptr (GPtrArray) rows = ecfs_catalog_endpoints (f.catalog, NULL);
    g_assert_cmpuint (rows->len, ==, G_N_ELEMENTS (f.endpoints) - 1);
    OK (e, ecfs_catalog_endpoint_removed (f.catalog, &f.endpoint_uuids[1], &name, &e));
    g_assert_nonnull (strstr (name, "endpoint1"));
    OK (e, ecfs_catalog_endpoint_removed (f.catalog, &f.endpoint_uuids[2], &none, &e));
    OK (e, ecfs_catalog_endpoint_name_removed (f.catalog, "endpoint1", &was, &e));
    g_assert_true (was);
    OK (e, ecfs_catalog_endpoint_name_removed (f.catalog, "endpoint", &was, &e));
    g_assert_false (was);
    g_assert_null (none);
    EcfsUuid other = ecfs_uuid_new ();
    OK (e, ecfs_catalog_endpoint_add (f.catalog, &other, "endpoint1", &id, &e));
    g_assert_cmpint (CODE (e, ecfs_catalog_endpoint_add (f.catalog, &f.endpoint_uuids[1], "again", &id, &e)), ==,
                     EEXIST);
    fixture_clear (&f);
}

static bool known (Fixture *f, uint64_t number, const EcfsUuid *uuid)
{
    bool is_known;
    OK (e, ecfs_catalog_session_known (f->catalog, number, uuid, &is_known, &e));
    return is_known;
}

static void test_sessions (void)
{
    Fixture f;
    uint64_t last;
    EcfsUuid uuids[1100], other = ecfs_uuid_new ();
    fixture_init (&f);
    OK (e, ecfs_catalog_session_last (f.catalog, &last, &e));
    g_assert_cmpuint (last, ==, 0);
    g_assert_false (known (&f, 1, &other));
    g_assert_cmpint (CODE (e, ecfs_catalog_session_begin (f.catalog, 0, &other, &e)), ==, EOVERFLOW);
    g_assert_cmpint (CODE (e, ecfs_catalog_session_begin (f.catalog, UINT64_MAX, &other, &e)), ==, EOVERFLOW);
    for (size_t i = 0; i < G_N_ELEMENTS (uuids); i++) {
        uuids[i] = ecfs_uuid_new ();
        OK (e, ecfs_catalog_session_begin (f.catalog, i + 10, &uuids[i], &e));
    }
    g_assert_cmpint (CODE (e, ecfs_catalog_session_begin (f.catalog, 1109, &other, &e)), !=, 0);
    fixture_reopen (&f);
    OK (e, ecfs_catalog_session_last (f.catalog, &last, &e));
    g_assert_cmpuint (last, ==, 1109);
    for (size_t i = 0; i < G_N_ELEMENTS (uuids); i++)
        g_assert_true (known (&f, i + 10, &uuids[i]));
    g_assert_true (known (&f, 10, &other)); /* it keeps none so old */
    g_assert_false (known (&f, 1109, &other));
    g_assert_false (known (&f, 500, &other));
    g_assert_false (known (&f, 1110, &uuids[0]));
    g_assert_false (known (&f, UINT64_MAX, &uuids[0]));
    fixture_clear (&f);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/estimates/are-kept", test_kept);
    g_test_add_func ("/estimates/may-be-impossible", test_hostile);
    g_test_add_func ("/endpoints/tell-what-they-hold", test_held);
    g_test_add_func ("/endpoints/are-counted-until-that-is-given-up", test_counted);
    g_test_add_func ("/endpoints/nothing-comes-to-one-that-is-not-active", test_nothing_comes);
    g_test_add_func ("/endpoints/that-are-removed-stay-known", test_removed);
    g_test_add_func ("/sessions/are-known-for-long", test_sessions);
    return g_test_run ();
}
