#include "archive/archive_priv.h"
#include "deaf_endpoint.h"
#include "object/format.h"
#include "program/program.h"

#include <unistd.h>

#define PATIENCE_US (60 * G_USEC_PER_SEC)

/* Stripe 0 of an object that is in no file, at an endpoint. */
typedef struct Stray {
    EcfsObjectRow *row;
    char name[ECFS_STRIPE_NAME_SIZE];
    int64_t intent;
} Stray;

static Stray stray_new (Fixture *fixture, uint64_t ino, unsigned endpoint)
{
    g_autoptr (GError) error = NULL;
    Stray self = {.row = ecfs_object_row_new ()};
    EcfsStripeRow stripe = {.instance = 1, .endpoint = fixture->archive->endpoints[endpoint].id};
    self.row->uuid = ecfs_uuid_new ();
    self.row->code = g_strdup ("copies:2");
    g_array_append_val (self.row->stripes, stripe);
    ecfs_stripe_name (&self.row->uuid, stripe.index, stripe.instance, self.name);
    ecfs_catalog_intent_begin (fixture->archive->catalog, self.row, ino, &self.intent, &error);
    g_assert_no_error (error);
    return self;
}

static char *stray_path (const Fixture *fixture, const Stray *self, unsigned endpoint)
{
    g_autofree char *root = endpoint_path (fixture, endpoint);
    return g_build_filename (root, self->name, NULL);
}

static void stray_store (Fixture *fixture, const Stray *self, unsigned endpoint)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *path = stray_path (fixture, self, endpoint);
    ecfs_endpoint_write_wait (fixture->archive->endpoints[endpoint].endpoint, self->name, "bytes", 5, &error);
    g_assert_no_error (error);
    g_assert_cmpint (access (path, F_OK), ==, 0);
}

/* Queues it for deletion. */
static void stray_abort (Fixture *fixture, const Stray *self)
{
    g_autoptr (GError) error = NULL;
    ecfs_catalog_intent_abort (fixture->archive->catalog, self->intent, &error);
    g_assert_no_error (error);
}

static uint64_t n_deletions (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    EcfsTotals totals;
    ecfs_catalog_totals (fixture->archive->catalog, &totals, &error);
    g_assert_no_error (error);
    return totals.n_deletions;
}

static void wait_for_deletions (Fixture *fixture, uint64_t n)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (n_deletions (fixture) != n && ecfs_now_us () < deadline_us)
        g_usleep (10000);
    g_assert_cmpuint (n_deletions (fixture), ==, n);
}

/* What cannot be removed is in the way of nothing else. */
static void test_failing (Fixture *fixture, gconstpointer code)
{
    uint64_t ino = make_file (fixture, "file");
    Stray bad = stray_new (fixture, ino, 0), good = stray_new (fixture, ino, 0);
    g_autofree char *bad_path = stray_path (fixture, &bad, 0), *good_path = stray_path (fixture, &good, 0);
    g_assert_cmpint (g_mkdir_with_parents (bad_path, 0700), ==, 0); /* a directory is not removed as a stripe */
    stray_store (fixture, &good, 0);
    stray_abort (fixture, &bad);
    stray_abort (fixture, &good);
    wait_for_deletions (fixture, 1);
    g_assert_cmpint (access (good_path, F_OK), !=, 0);
    g_assert_cmpint (rmdir (bad_path), ==, 0);
    wait_for_deletions (fixture, 0);
    ecfs_object_row_free (bad.row);
    ecfs_object_row_free (good.row);
}

static void test_hanging (Fixture *fixture, gconstpointer code)
{
    uint64_t ino = make_file (fixture, "file");
    Stray first = stray_new (fixture, ino, 0), second = stray_new (fixture, ino, 1);
    g_autofree char *path = stray_path (fixture, &second, 1);
    stray_store (fixture, &second, 1);
    stray_abort (fixture, &first);
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (atomic_load (&n_taken) < 2 && ecfs_now_us () < deadline_us) /* its space, and what is to be deleted */
        g_usleep (10000);
    g_assert_cmpuint (atomic_load (&n_taken), >=, 2);
    stray_abort (fixture, &second);
    wait_for_deletions (fixture, 1);
    g_assert_cmpint (access (path, F_OK), !=, 0);
    atomic_store (&may_answer, true);
    wait_for_deletions (fixture, 0);
    ecfs_object_row_free (first.row);
    ecfs_object_row_free (second.row);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_test_add ("/deletions/what-fails-is-in-the-way-of-nothing", Fixture, "copies:2", set_up, test_failing, tear_down);
    g_test_add ("/deletions/an-endpoint-that-hangs-holds-up-no-other", Fixture, "copies:2", set_up_deaf, test_hanging,
                tear_down);
    return g_test_run ();
}
