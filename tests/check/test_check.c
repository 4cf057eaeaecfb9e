/* What a look at the stripes of one object finds: no mount, no fsck, and what is wrong was done to the files. */
#include "check/check.h"
#include "object/layout.h"
#include "program/program.h"
#include "staged_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define N_STRIPES 6
#define DAMAGED   1 /* index of the stripe that a test does something to */

/* A batch of one object. */
typedef struct Looked {
    GPtrArray *objects;
    EcfsCheckBatch batch;
} Looked;

static bool go_on (void *user)
{
    return true;
}

static void checked_clear (gpointer data)
{
    EcfsCheckedStripe *checked = data;
    g_free (checked->text);
    g_free (checked->digest);
}

static size_t position_of (Fixture *fixture, int64_t endpoint)
{
    for (size_t i = 0; i < ecfs_archive_n_endpoints (fixture->archive); i++)
        if (ecfs_archive_endpoint (fixture->archive, i)->id == endpoint)
            return i;
    g_assert_not_reached ();
}

static void begin (Looked *self, Fixture *fixture, uint64_t ino)
{
    EcfsObjectRow *object = object_of (fixture, ino);
    g_assert_cmpuint (object->stripes->len, ==, N_STRIPES);
    *self = (Looked){.objects = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_object_row_free)};
    g_ptr_array_add (self->objects, object);
    GArray *stripes = g_array_new (FALSE, TRUE, sizeof (EcfsCheckedStripe));
    g_array_set_clear_func (stripes, checked_clear);
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        EcfsCheckedStripe checked = {
            .object = object, .stripe = stripe, .position = position_of (fixture, stripe->endpoint)};
        g_array_append_val (stripes, checked);
    }
    self->batch = (EcfsCheckBatch){.archive = fixture->archive,
                                   .objects = self->objects,
                                   .stripes = stripes,
                                   .is_first = true,
                                   .is_last = true,
                                   .tick = go_on};
}

static void end (Looked *self)
{
    g_array_unref (self->batch.stripes);
    g_ptr_array_unref (self->objects);
}

static EcfsCheckedStripe *stripe_at (Looked *self, unsigned index)
{
    for (guint i = 0; i < self->batch.stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (self->batch.stripes, EcfsCheckedStripe, i);
        if (checked->stripe->index == index)
            return checked;
    }
    g_assert_not_reached ();
}

/* One stripe is @fault, and all others are fine. */
static void assert_faults (Looked *self, EcfsStripeFault fault)
{
    for (unsigned i = 0; i < N_STRIPES; i++)
        g_assert_cmpint (stripe_at (self, i)->fault, ==, i == DAMAGED ? fault : ECFS_STRIPE_FINE);
}

static void look (Looked *self)
{
    g_autoptr (GError) error = NULL;
    g_assert_true (ecfs_check_presence (&self->batch, &error));
    g_assert_no_error (error);
    g_assert_true (ecfs_check_gone (&self->batch));
}

static void read_all (Looked *self)
{
    EcfsReadPace pace = {.bytes_per_s = 0};
    ecfs_mutex_init (&pace.lock);
    g_assert_true (ecfs_check_packets (&self->batch, &pace));
    g_assert_cmpuint (pace.bytes, >=, LARGE / 4 * 5);
    ecfs_mutex_clear (&pace.lock);
}

static char *path_of (Fixture *fixture, Looked *self, unsigned index)
{
    const EcfsCheckedStripe *checked = stripe_at (self, index);
    char name[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (&checked->object->uuid, checked->stripe->index, checked->stripe->instance, name);
    g_autofree char *endpoint = endpoint_path (fixture, (unsigned) checked->position);
    return g_build_filename (endpoint, name, NULL);
}

static uint64_t store_large (Fixture *fixture)
{
    g_autofree uint8_t *bytes = random_bytes (LARGE);
    uint64_t ino = store (fixture, "file", bytes, LARGE);
    wait_until_stored (fixture);
    return ino;
}

static void test_fine (Fixture *fixture, gconstpointer data)
{
    Looked looked;
    begin (&looked, fixture, store_large (fixture));
    look (&looked);
    assert_faults (&looked, ECFS_STRIPE_FINE);
    read_all (&looked);
    assert_faults (&looked, ECFS_STRIPE_FINE);
    end (&looked);
}

static void test_gone (Fixture *fixture, gconstpointer data)
{
    Looked looked;
    begin (&looked, fixture, store_large (fixture));
    g_autofree char *path = path_of (fixture, &looked, DAMAGED);
    g_assert_cmpint (unlink (path), ==, 0);
    look (&looked);
    assert_faults (&looked, ECFS_STRIPE_GONE);
    end (&looked);
}

static void test_size (Fixture *fixture, gconstpointer data)
{
    Looked looked;
    begin (&looked, fixture, store_large (fixture));
    g_autofree char *path = path_of (fixture, &looked, DAMAGED);
    g_assert_cmpint (truncate (path, 100), ==, 0);
    look (&looked);
    assert_faults (&looked, ECFS_STRIPE_SIZE);
    end (&looked);
}

/* Only reading finds it. */
static void test_bytes (Fixture *fixture, gconstpointer data)
{
    Looked looked;
    begin (&looked, fixture, store_large (fixture));
    g_autofree char *path = path_of (fixture, &looked, DAMAGED);
    int fd = open (path, O_WRONLY | O_CLOEXEC);
    g_assert_cmpint (fd, >=, 0);
    g_assert_cmpint (pwrite (fd, "other bytes", 11, 10000), ==, 11);
    g_assert_cmpint (close (fd), ==, 0);
    look (&looked);
    assert_faults (&looked, ECFS_STRIPE_FINE);
    read_all (&looked);
    assert_faults (&looked, ECFS_STRIPE_DAMAGED);
    g_assert_nonnull (stripe_at (&looked, DAMAGED)->text);
    end (&looked);
}

/* Nothing there is no proof that something was lost: a disk that is not mounted looks the same. */
static void test_unmounted (Fixture *fixture, gconstpointer data)
{
    Looked looked;
    begin (&looked, fixture, store_large (fixture));
    g_autofree char *path = path_of (fixture, &looked, DAMAGED);
    g_autofree char *endpoint = endpoint_path (fixture, (unsigned) stripe_at (&looked, DAMAGED)->position);
    g_autofree char *marker = g_build_filename (endpoint, "ecfs-endpoint", NULL);
    g_assert_cmpint (unlink (path), ==, 0);
    g_assert_cmpint (unlink (marker), ==, 0);
    look (&looked);
    assert_faults (&looked, ECFS_STRIPE_UNKNOWN);
    end (&looked);
}

/* What a reader missed is asked for once more before it is believed to be gone. */
static void test_sightings (Fixture *fixture, gconstpointer data)
{
    Looked looked;
    begin (&looked, fixture, store_large (fixture));
    g_autoptr (GArray) sightings = g_array_new (FALSE, TRUE, sizeof (EcfsSighting));
    for (unsigned i = 0; i < 2; i++) {
        const EcfsCheckedStripe *checked = stripe_at (&looked, i);
        EcfsSighting sighting = {.object = checked->object->uuid,
                                 .index = checked->stripe->index,
                                 .instance = checked->stripe->instance,
                                 .endpoint = ecfs_archive_endpoint (fixture->archive, checked->position)->endpoint,
                                 .gone = true};
        g_array_append_val (sightings, sighting);
    }
    g_autofree char *path = path_of (fixture, &looked, DAMAGED);
    g_assert_cmpint (unlink (path), ==, 0);
    g_assert_true (ecfs_sightings_confirm (fixture->archive, sightings, go_on, NULL));
    g_assert_cmpuint (sightings->len, ==, 1);
    g_assert_cmpuint (g_array_index (sightings, EcfsSighting, 0).index, ==, DAMAGED);
    end (&looked);
}

#define ADD(name, function) g_test_add ("/check/" name, Fixture, NULL, set_up_staged, function, tear_down_staged)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    ADD ("what-is-there-is-fine", test_fine);
    ADD ("a-stripe-that-is-gone", test_gone);
    ADD ("a-stripe-of-another-size", test_size);
    ADD ("a-stripe-with-other-bytes", test_bytes);
    ADD ("an-endpoint-without-a-marker-lost-nothing", test_unmounted);
    ADD ("what-a-reader-missed-is-asked-for-once-more", test_sightings);
    return g_test_run ();
}
