#include "catalog/age.h"
#include "check_db.h"
#include "fixture.h"

#include <time.h>

#define S_NS        INT64_C (1000000000)
#define HOUR_NS     (3600 * S_NS)
#define YEARS_10_NS (10 * INT64_C (31557600) * S_NS)

static void test_since (void)
{
    const EcfsUuid one = ecfs_uuid_new (), other = ecfs_uuid_new (), unknown = {{0}};
    const CatalogAge noted = {.boot = one, .boot_ns = HOUR_NS, .real_ns = 2 * YEARS_10_NS, .age_ns = 7 * S_NS};
    const struct {
        EcfsUuid boot;
        int64_t boot_ns, real_ns, age_ns;
    } cases[] = {
        {one, HOUR_NS, noted.real_ns, 7 * S_NS},
        {one, HOUR_NS + 5 * S_NS, noted.real_ns + 5 * S_NS, 12 * S_NS},
        {one, HOUR_NS + 5 * S_NS, noted.real_ns + YEARS_10_NS, 12 * S_NS},
        {one, HOUR_NS + 5 * S_NS, noted.real_ns - YEARS_10_NS, 12 * S_NS},
        {one, HOUR_NS - 5 * S_NS, noted.real_ns, 7 * S_NS}, /* of a machine that was set back as a whole */
        {other, 60 * S_NS, noted.real_ns + HOUR_NS, 67 * S_NS},
        {other, 60 * S_NS, noted.real_ns + 20 * S_NS, 27 * S_NS},
        {other, 60 * S_NS, noted.real_ns + YEARS_10_NS, 67 * S_NS},
        {other, 60 * S_NS, noted.real_ns - YEARS_10_NS, 7 * S_NS},
        {unknown, 2 * HOUR_NS, noted.real_ns + S_NS, 8 * S_NS},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        CatalogAge now = {.boot = cases[i].boot, .boot_ns = cases[i].boot_ns, .real_ns = cases[i].real_ns};
        g_assert_cmpint (ecfs_age_since (&noted, &now), ==, cases[i].age_ns);
    }
    CatalogAge nowhere = noted, now = {.boot_ns = 2 * HOUR_NS, .real_ns = noted.real_ns + S_NS};
    nowhere.boot = unknown;
    g_assert_cmpint (ecfs_age_since (&nowhere, &now), ==, 8 * S_NS);
}

/* A catalog with one deletion, which is closed. */
static void make_deletion (Fixture *f)
{
    fixture_init (f);
    fixture_add_endpoints (f);
    g_autoptr (EcfsObjectRow) first = new_object (f, "rs:4+2", 1000, 6), second = new_object (f, "rs:4+2", 10, 6);
    uint64_t ino = make_file (f, ECFS_ROOT_INO, "file");
    publish_one (f, ino, first);
    publish_one (f, ino, second);
    fixture_close (f);
}

/* How many stripes are due after the catalog, changed by @sql, was opened again. */
static guint n_due_after (Fixture *f, const char *sql, int64_t grace_ns)
{
    g_autoptr (GError) error = NULL;
    run_sql (f->path, sql);
    fixture_open (f, 0);
    g_autoptr (GArray) due = ecfs_catalog_deletions (
        f->catalog, f->endpoints[0], &(EcfsDeletionWaits){.removed_ns = grace_ns, .exchanged_ns = grace_ns}, NULL, 10,
        &error);
    g_assert_no_error (error);
    fixture_close (f);
    return due->len;
}

static int64_t boot_ns (void)
{
    struct timespec now;
    g_assert_cmpint (clock_gettime (CLOCK_BOOTTIME, &now), ==, 0);
    return (int64_t) now.tv_sec * S_NS + now.tv_nsec;
}

#define JUMPED_FORWARD "UPDATE age SET real_ns = real_ns - 315576000000000000"
#define JUMPED_BACK    "UPDATE age SET real_ns = real_ns + 315576000000000000"
#define REBOOTED       "UPDATE age SET boot = (SELECT uuid FROM endpoints WHERE id = 1)" /* that of no boot */

static void test_jumps (void)
{
    Fixture f;
    make_deletion (&f);
    g_assert_cmpuint (n_due_after (&f, JUMPED_FORWARD, HOUR_NS), ==, 0);
    g_assert_cmpuint (n_due_after (&f, JUMPED_BACK, HOUR_NS), ==, 0);
    g_assert_cmpuint (n_due_after (&f, JUMPED_BACK, 0), ==, 1);
    g_assert_cmpuint (n_due_after (&f, "UPDATE deletions SET queued_age_ns = queued_age_ns - 7200000000000", HOUR_NS),
                      ==, 1);
    fixture_clear (&f);
}

static void test_jumps_across_boots (void)
{
    Fixture f;
    make_deletion (&f);
    g_assert_cmpuint (n_due_after (&f, REBOOTED ";" JUMPED_FORWARD, boot_ns () + HOUR_NS), ==, 0);
    g_assert_cmpuint (n_due_after (&f, REBOOTED ";" JUMPED_FORWARD, boot_ns () - S_NS), ==,
                      1); /* what this boot lasted */
    fixture_clear (&f);
    make_deletion (&f);
    g_assert_cmpuint (n_due_after (&f, REBOOTED ";" JUMPED_BACK, S_NS), ==, 0);
    /* What had passed since it was noted last, a minute at most, is forgotten. */
    g_assert_cmpuint (n_due_after (&f, REBOOTED ";" JUMPED_BACK, -60 * S_NS), ==, 1);
    fixture_clear (&f);
}

static void test_note (void)
{
    Fixture f;
    make_deletion (&f);
    run_sql (f.path, REBOOTED ";" JUMPED_FORWARD);
    fixture_open (&f, 0);
    OK (e, ecfs_catalog_note_age (f.catalog, &e)); /* this boot now counts, also after the next */
    OK (e, ecfs_catalog_note_age (f.catalog, &e));
    fixture_close (&f);
    g_assert_cmpuint (n_due_after (&f, REBOOTED ";" JUMPED_BACK, boot_ns () - S_NS), ==, 1);
    fixture_clear (&f);
}

static void test_impossible (void)
{
    static const char *const cases[] = {"UPDATE age SET age_ns = -1", "UPDATE age SET boot = x'00'",
                                        "UPDATE age SET boot_ns = 9223372036854775807", "DELETE FROM age"};
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        Fixture f;
        make_deletion (&f);
        run_sql (f.path, cases[i]);
        g_autoptr (GError) error = NULL;
        g_assert_null (ecfs_catalog_open (f.path, 0, &error));
        g_assert_error (error, ECFS_ERROR, EBADMSG);
        fixture_clear (&f);
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/age/counts-time-that-has-passed-for-certain", test_since);
    g_test_add_func ("/age/jumps-of-the-time-of-day-do-not-matter", test_jumps);
    g_test_add_func ("/age/jumps-while-the-machine-was-off-do-not-matter", test_jumps_across_boots);
    g_test_add_func ("/age/what-has-passed-is-noted", test_note);
    g_test_add_func ("/age/impossible-rows-are-refused", test_impossible);
    return g_test_run ();
}
