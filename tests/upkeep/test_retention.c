/* How much of the past is kept: the oldest goes first, by whole moments, and nothing that is too young. */
#include "archive/archive_priv.h"
#include "catalog/retention.h"
#include "staged_fixture.h"
#include "upkeep/upkeep.h"

#define N_FILES 4
#define DAY_US  (INT64_C (86400) * G_USEC_PER_SEC)
#define STRIPES 6 /* of a file */

static void keep (EcfsConfig *config)
{
    config->history_us = 30 * DAY_US;
    config->history_min_us = 0;
    config->small_file = 0;
}

static EcfsCatalog *catalog_of (Fixture *fixture)
{
    return ecfs_archive_catalog (fixture->archive);
}

static EcfsConfig *config_of (Fixture *fixture)
{
    return (EcfsConfig *) ecfs_archive_config (fixture->archive); /* which the archive takes for constant */
}

/* Removes N_FILES files one by one; the bytes that their stripes take. */
static uint64_t remove_files (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    uint64_t bytes = 0;
    uint8_t *content = random_bytes (LARGE);
    for (unsigned i = 0; i < N_FILES; i++) {
        g_autofree char *name = g_strdup_printf ("file %u", i);
        (void) store (fixture, name, content, LARGE);
    }
    wait_until_stored (fixture);
    g_free (content);
    for (unsigned i = 0; i < N_FILES; i++) {
        EcfsAttr attr;
        g_autofree char *name = g_strdup_printf ("file %u", i);
        g_assert_true (exists (fixture, name, &attr));
        ecfs_catalog_unlink (catalog_of (fixture), ECFS_ROOT_INO, name, &attr, &error);
        g_assert_no_error (error);
        ecfs_catalog_drop (catalog_of (fixture), attr.ino, &error);
        g_assert_no_error (error);
    }
    g_autoptr (GArray) removed = ecfs_catalog_removed (catalog_of (fixture), 0, 100, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (removed->len, ==, N_FILES * STRIPES);
    for (guint i = 0; i < removed->len; i++)
        bytes += g_array_index (removed, EcfsRemovedStripe, i).bytes;
    g_assert_cmpuint (bytes, >, N_FILES * LARGE);
    return bytes;
}

/* Of those that were removed up to then. */
static guint n_removed (Fixture *fixture, int64_t age_ns)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) removed = ecfs_catalog_removed (catalog_of (fixture), 0, 100, &error);
    guint n = 0;
    g_assert_no_error (error);
    for (guint i = 0; i < removed->len; i++)
        n += g_array_index (removed, EcfsRemovedStripe, i).age_ns <= age_ns;
    return n;
}

static void open_again (Fixture *fixture)
{
    g_assert_cmpuint (stop (fixture), ==, 0);
    reopen (fixture);
    start (fixture);
}

static EcfsReleased look (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    EcfsReleased released;
    EcfsRetention *retention = ecfs_retention_new (fixture->archive);
    ecfs_retention_look (retention, INT64_MAX);
    ecfs_retention_free (retention);
    ecfs_catalog_released (catalog_of (fixture), &released, &error);
    g_assert_no_error (error);
    return released;
}

static void test_limit (Fixture *fixture, gconstpointer adjust)
{
    (void) adjust; /* the fixture's */
    uint64_t bytes = remove_files (fixture);
    config_of (fixture)->history_max = bytes;
    g_assert_cmpint (look (fixture).reason, ==, ECFS_RELEASE_NONE);
    config_of (fixture)->history_max = bytes / N_FILES * 3 - 1; /* half of a file is too much: two files go */
    EcfsReleased released = look (fixture);
    g_assert_cmpint (released.reason, ==, ECFS_RELEASE_LIMIT);
    g_assert_cmpint (released.time_ns, >, (g_get_real_time () - 600 * G_USEC_PER_SEC) * 1000);
    g_assert_cmpuint (n_removed (fixture, released.age_ns), ==, 2 * STRIPES);
    g_assert_cmpint (look (fixture).age_ns, ==, released.age_ns);
    open_again (fixture);
    g_assert_cmpint (look (fixture).age_ns, ==, released.age_ns);
}

static void test_least (Fixture *fixture, gconstpointer adjust)
{
    (void) adjust; /* the fixture's */
    config_of (fixture)->history_min_us = DAY_US;
    config_of (fixture)->history_max = 1;
    (void) remove_files (fixture);
    g_assert_cmpint (look (fixture).reason, ==, ECFS_RELEASE_NONE);
    config_of (fixture)->history_min_us = 0;
    config_of (fixture)->deletion_grace_us = DAY_US; /* and nothing that waits for its grace */
    g_assert_cmpint (look (fixture).reason, ==, ECFS_RELEASE_NONE);
    config_of (fixture)->deletion_grace_us = 0;
    g_assert_cmpint (look (fixture).reason, ==, ECFS_RELEASE_LIMIT);
    g_assert_cmpint (ecfs_config_history_least_us (config_of (fixture)), ==, 0);
    config_of (fixture)->history_min_us = 60 * DAY_US;
    g_assert_cmpint (ecfs_config_history_least_us (config_of (fixture)), ==, 30 * DAY_US);
}

static void test_never_back (Fixture *fixture, gconstpointer adjust)
{
    (void) adjust; /* the fixture's */
    g_autoptr (GError) error = NULL;
    const EcfsReleased steps[] = {{10, 1000, ECFS_RELEASE_ROOM}, {5, 2000, ECFS_RELEASE_LIMIT}};
    EcfsReleased released;
    for (size_t i = 0; i < G_N_ELEMENTS (steps); i++) {
        ecfs_catalog_release (catalog_of (fixture), &steps[i], &error);
        g_assert_no_error (error);
    }
    open_again (fixture);
    ecfs_catalog_released (catalog_of (fixture), &released, &error);
    g_assert_no_error (error);
    g_assert_cmpint (released.age_ns, ==, 10);
    g_assert_cmpint (released.time_ns, ==, 1000);
    g_assert_cmpint (released.reason, ==, ECFS_RELEASE_ROOM);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL | G_LOG_LEVEL_WARNING);
    const gconstpointer adjust = (gconstpointer) keep;
    g_test_add ("/retention/the-oldest-goes-by-whole-moments", Fixture, adjust, set_up_staged, test_limit,
                tear_down_staged);
    g_test_add ("/retention/what-is-too-young-stays", Fixture, adjust, set_up_staged, test_least, tear_down_staged);
    g_test_add ("/retention/what-was-let-go-stays-so", Fixture, adjust, set_up_staged, test_never_back,
                tear_down_staged);
    return g_test_run ();
}
