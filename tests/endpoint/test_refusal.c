/* Endpoints that take no writes: full, by quota, with a bad disk. */
#include "program/program.h"
#include "script.h"
#include "transfer.h"

static void set_store (int write_code, uint64_t free_bytes)
{
    ecfs_mutex_lock (&script.lock);
    script.write_code = write_code;
    script.free_bytes = free_bytes;
    ecfs_mutex_unlock (&script.lock);
}

static int try_write (EcfsEndpoint *endpoint, size_t size)
{
    static uint8_t bytes[1 << 20];
    g_autoptr (GError) error = NULL;
    g_assert_cmpuint (size, <=, sizeof bytes);
    (void) !ecfs_endpoint_write_wait (endpoint, "other", bytes, size, &error); /* error says it */
    return ecfs_errno (error);
}

static void ask_space (EcfsEndpoint *endpoint)
{
    uint64_t free_bytes;
    g_autoptr (GError) error = NULL;
    g_assert_true (ecfs_endpoint_space_wait (endpoint, &free_bytes, &error));
}

static void check_refusal (EcfsEndpoint *endpoint, bool refuses, bool full)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint, &health);
    g_assert_true (health.refuses == refuses);
    g_assert_true (health.full == full);
    g_assert_true ((health.reason != NULL) == (refuses || full));
    ecfs_endpoint_health_clear (&health);
}

static void test_full (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start ("");
    set_store (0, 10000000);
    g_assert_true (ecfs_endpoint_has_room (endpoint, 1000000000)); /* it has not said anything yet */
    ask_space (endpoint);
    g_assert_true (ecfs_endpoint_has_room (endpoint, 9000000));
    check_refusal (endpoint, false, false);
    g_assert_false (ecfs_endpoint_has_room (endpoint, 9900000));
    check_refusal (endpoint, false, true);
    g_assert_true (ecfs_endpoint_has_room (endpoint, 1000000)); /* a smaller one fits all the same */
    g_assert_cmpint (try_write (endpoint, 1000000), ==, 0);
    check_refusal (endpoint, false, true);
    g_assert_false (ecfs_endpoint_has_room (endpoint, 9000000)); /* less what was written */
    set_store (0, 20000000);
    ask_space (endpoint);
    check_refusal (endpoint, false, false);
}

static uint64_t free_of (EcfsEndpoint *endpoint)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint, &health);
    uint64_t bytes = health.space.told ? health.space.free_bytes : UINT64_MAX;
    ecfs_endpoint_health_clear (&health);
    return bytes;
}

/* Whatever the account says: what is left of the capacity counts, and what was written since the archive counted. */
static void test_capacity (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",capacity=20M");
    const uint64_t capacity = 20 << 20;
    uint64_t told;
    g_autoptr (GError) error = NULL;
    set_store (0, 1000000000);
    g_assert_cmpuint (ecfs_endpoint_capacity (endpoint), ==, capacity);
    ask_space (endpoint);
    g_assert_cmpuint (free_of (endpoint), ==, UINT64_MAX); /* what the archive has there is not known yet */
    ecfs_endpoint_note_used (endpoint, 5 << 20, 0);
    g_assert_true (ecfs_endpoint_space_wait (endpoint, &told, &error));
    g_assert_cmpuint (told, ==, 15 << 20);
    g_assert_cmpuint (free_of (endpoint), ==, 15 << 20);
    g_assert_cmpint (try_write (endpoint, 1 << 20), ==, 0);
    for (unsigned i = 0; i < 2; i++) { /* also where it was not counted anew */
        g_assert_cmpuint (free_of (endpoint), ==, 14 << 20);
        ask_space (endpoint);
    }
    g_assert_false (ecfs_endpoint_has_room (endpoint, 15 << 20));
    check_refusal (endpoint, false, true);
    ecfs_endpoint_note_used (endpoint, 100 << 20, 1 << 20);
    ask_space (endpoint);
    g_assert_cmpuint (free_of (endpoint), ==, 0);
    set_store (0, 3 << 20); /* the account has less */
    ecfs_endpoint_note_used (endpoint, 0, 1 << 20);
    ask_space (endpoint);
    g_assert_cmpuint (free_of (endpoint), ==, 3 << 20);
}

static void test_filled_by_others (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start ("");
    set_store (ENOSPC, 100000000);
    ask_space (endpoint);
    g_assert_cmpint (try_write (endpoint, 1000), ==, ENOSPC);
    check_refusal (endpoint, false, true);
    g_assert_false (ecfs_endpoint_has_room (endpoint, 1)); /* the figure was wrong */
    set_store (0, 100000000);
    ask_space (endpoint);
    check_refusal (endpoint, false, false);
    g_assert_true (ecfs_endpoint_has_room (endpoint, 1000));
}

static void be_full (EcfsEndpoint *endpoint, uint64_t says)
{
    set_store (ENOSPC, says);
    g_assert_cmpint (try_write (endpoint, 1000), ==, ENOSPC);
    check_refusal (endpoint, false, true);
}

/* A disk that fills up right after there was room again is no quota. */
static void test_filled_again (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start ("");
    set_store (0, 100000000);
    ask_space (endpoint);
    be_full (endpoint, 100000000);
    ask_space (endpoint); /* as it says it has room, it is tried again at once */
    check_refusal (endpoint, false, false);
    be_full (endpoint, 0);
    ask_space (endpoint);
    check_refusal (endpoint, false, true);
    set_store (0, 100000000);
    ask_space (endpoint);
    check_refusal (endpoint, false, false);
}

static void note_done (void *user, uint64_t value, const GError *error)
{
    (void) value;
    g_assert_no_error (error);
    ecfs_mutex_lock (&script.lock);
    ++*(unsigned *) user;
    ecfs_cond_broadcast (&script.cond);
    ecfs_mutex_unlock (&script.lock);
}

/* What was asked for before it was full does not end that. */
static void test_old_figure (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",connections=2,stall_timeout=60s");
    unsigned n_done = 0;
    set_store (0, 100000000);
    ask_space (endpoint);
    script_set (&script.hold_space, true);
    ecfs_endpoint_space (endpoint, note_done, &n_done);
    script_wait (&script.n_stuck, 1);
    be_full (endpoint, 100000000);
    script_set (&script.hold_space, false);
    script_set (&script.released, true);
    script_wait (&n_done, 1);
    check_refusal (endpoint, false, true);
    g_assert_false (ecfs_endpoint_has_room (endpoint, 1));
    ask_space (endpoint);
    check_refusal (endpoint, false, false);
    g_assert_true (ecfs_endpoint_has_room (endpoint, 1));
}

/* Figures that say there is room say nothing then. */
static void test_quota (gconstpointer code)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start ("");
    set_store (GPOINTER_TO_INT (code), 100000000);
    ask_space (endpoint);
    for (unsigned i = 0; i < 2; i++) {
        g_assert_cmpint (try_write (endpoint, 1000), ==, GPOINTER_TO_INT (code));
        ask_space (endpoint);
    }
    check_refusal (endpoint, true, true);
    ask_space (endpoint);
    check_refusal (endpoint, true, true);
    set_store (0, 100000000);
    g_assert_cmpint (try_write (endpoint, 1000), ==, 0);
    check_refusal (endpoint, false, false);
}

static void test_bad_disk (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start ("");
    set_store (EIO, 100000000);
    g_assert_cmpint (try_write (endpoint, 1000), ==, EIO);
    check_refusal (endpoint, true, false);
    g_assert_false (script_is_down (endpoint));
    set_store (EEXIST, 100000000); /* says nothing about the endpoint */
    g_assert_cmpint (try_write (endpoint, 1000), ==, EEXIST);
    check_refusal (endpoint, true, false);
    set_store (0, 100000000);
    g_assert_cmpint (try_write (endpoint, 1000), ==, 0);
    check_refusal (endpoint, false, false);
}

/* It is not about space, whatever figures say meanwhile. */
static void test_bad_disk_with_figures (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start ("");
    set_store (EACCES, 10000000);
    ask_space (endpoint);
    g_assert_cmpint (try_write (endpoint, 1000000), ==, EACCES);
    g_assert_false (ecfs_endpoint_has_room (endpoint, 100000000));
    check_refusal (endpoint, true, false);
    set_store (0, 1000000000);
    ask_space (endpoint);
    check_refusal (endpoint, true, false);
    g_assert_cmpint (try_write (endpoint, 1), ==, 0); /* the smallest is enough */
    check_refusal (endpoint, false, false);
}

/* What this program or its machine lacks is not the endpoint's. */
static void test_own_limits (void)
{
    static const int codes[] = {EMFILE, ENFILE, ENOMEM};
    g_autoptr (EcfsEndpoint) endpoint = script_start ("");
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++) {
        set_store (codes[i], 100000000);
        g_assert_cmpint (try_write (endpoint, 1000), ==, codes[i]);
        check_refusal (endpoint, false, false);
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    script_register ();
    g_test_add_func ("/refusal/is-full-until-what-did-not-fit-would", test_full);
    g_test_add_func ("/refusal/has-no-more-than-its-capacity", test_capacity);
    g_test_add_func ("/refusal/is-full-whatever-it-said-before", test_filled_by_others);
    g_test_add_data_func ("/refusal/full-by-quota-is-tried-again-after-a-while", GINT_TO_POINTER (EDQUOT), test_quota);
    g_test_add_data_func ("/refusal/full-against-its-own-figures-is-as-with-a-quota", GINT_TO_POINTER (ENOSPC),
                          test_quota);
    g_test_add_func ("/refusal/full-again-after-there-was-room-is-no-quota", test_filled_again);
    g_test_add_func ("/refusal/is-full-whatever-it-was-asked-before", test_old_figure);
    g_test_add_func ("/refusal/a-bad-disk-refuses-until-a-write-succeeds", test_bad_disk);
    g_test_add_func ("/refusal/a-bad-disk-is-not-mended-by-figures-of-space", test_bad_disk_with_figures);
    g_test_add_func ("/refusal/own-limits-say-nothing-about-an-endpoint", test_own_limits);
    return g_test_run ();
}
