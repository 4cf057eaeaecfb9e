/* Lines that are cut and that stand still, amid transfers: what was told stays true, and nothing is left half done. */
#include "conformance_priv.h"
#include "transfer.h"

#include <errno.h>
#include <string.h>

#define MIB  ((size_t) 1 << 20)
#define RATE "20000000" /* so that what is to be cut is most likely met under way; nothing depends on it */

static void tell (const Fixture *self, const char *command)
{
    lab_proxy_tell (self->row->proxy, command);
}

static void test_idle (Fixture *self, gconstpointer row)
{
    g_autofree uint8_t *bytes = test_bytes (100000, 1);
    for (unsigned i = 0; i < 5; i++) {
        g_autofree char *name = g_strdup_printf ("idle/%u", i);
        g_autoptr (GError) error = NULL;
        tell (self, "cut");
        ecfs_endpoint_write_wait (self->endpoint, name, bytes, 100000 - i, &error);
        g_assert_no_error (error);
        tell (self, "cut");
        conformance_holds (self, name, bytes, 100000 - i);
    }
}

/* Whether it is there and whole; fails where it is there and is not. */
static bool is_whole (Fixture *self, const char *name, const uint8_t *bytes, size_t size)
{
    g_autoptr (GError) error = NULL;
    uint64_t stored;
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (!ecfs_endpoint_size_wait (self->endpoint, name, &stored, &error)) {
        if (ecfs_errno (error) == ENOENT)
            return false;
        g_assert_cmpint (ecfs_now_us (), <, deadline_us); /* it comes back from being cut */
        g_clear_error (&error);
        g_usleep (10000);
    }
    conformance_holds (self, name, bytes, size);
    return true;
}

static void store_in_the_end (Fixture *self, const char *name, const uint8_t *bytes, size_t size)
{
    g_autoptr (GError) error = NULL;
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (!ecfs_endpoint_write_wait (self->endpoint, name, bytes, size, &error)) {
        g_assert_cmpint (ecfs_errno (error), !=, EEXIST);
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_clear_error (&error);
        g_usleep (10000);
    }
}

/* Each of them is stored whole or not at all, whatever its writer was told; one that was told so is. */
static void test_cut_writes (Fixture *self, gconstpointer row)
{
    enum { N = 4 };
    const size_t size = 2 * MIB;
    g_autofree uint8_t *bytes = test_bytes (size + N, 2);
    Transfer transfers[N];
    tell (self, "throttle " RATE);
    for (unsigned i = 0; i < N; i++) {
        transfer_init (&transfers[i], self->endpoint);
        transfers[i].hold = i == 0;
        g_autofree char *name = g_strdup_printf ("cut/%u", i);
        transfer_write (&transfers[i], name, bytes + i, size);
    }
    transfer_wait_moved (&transfers[0], 50000);
    transfer_wait_moved (&transfers[1], MIB / 2);
    tell (self, "cut");
    transfer_let_go (&transfers[0]);
    int codes[N];
    for (unsigned i = 0; i < N; i++)
        codes[i] = transfer_finish (&transfers[i]);
    tell (self, "throttle 0");
    for (unsigned i = 0; i < N; i++) {
        g_autofree char *name = g_strdup_printf ("cut/%u", i);
        bool whole = is_whole (self, name, bytes + i, size);
        g_assert_true (whole || codes[i] != 0);
        if (!whole)
            store_in_the_end (self, name, bytes + i, size);
        conformance_holds (self, name, bytes + i, size);
    }
}

static void test_cut_reads (Fixture *self, gconstpointer row)
{
    enum { N = 3 };
    const size_t size = 4 * MIB;
    g_autofree uint8_t *bytes = test_bytes (size, 3), *back = g_malloc0 (N * size);
    Transfer transfers[N];
    store_in_the_end (self, "read", bytes, size);
    tell (self, "throttle " RATE);
    for (unsigned i = 0; i < N; i++) {
        transfer_init (&transfers[i], self->endpoint);
        transfers[i].ranges[0] = (EcfsRange){0, size, back + i * size};
        transfers[i].n_ranges = 1;
        transfer_read (&transfers[i], "read", 0);
    }
    transfer_wait_moved (&transfers[0], MIB / 2);
    tell (self, "cut");
    for (unsigned i = 0; i < N; i++) {
        int code = transfer_finish (&transfers[i]);
        g_assert_true (code != 0 || transfers[i].moved == size);
        g_assert_true (memcmp (back + i * size, bytes, transfers[i].moved) == 0); /* what was told came true */
    }
    tell (self, "throttle 0");
    conformance_wait_readable (self, "read");
    conformance_holds (self, "read", bytes, size);
}

void conformance_become_impatient (Fixture *self, const char *options)
{
    const char *rest = self->row->options;
    g_autofree char *more = rest == NULL ? g_strdup (options) : g_strconcat (rest, ",", options, NULL);
    ConformanceRow row = *self->row;
    row.options = more;
    ecfs_endpoint_free (self->endpoint);
    ecfs_endpoint_spec_free (self->spec);
    self->spec = conformance_spec (&row, self->leaf);
    self->endpoint = conformance_start (self->spec, &self->marker);
}

static void test_stall (Fixture *self, gconstpointer row)
{
    g_autofree uint8_t *bytes = test_bytes (MIB, 4), *back = g_malloc (MIB);
    store_in_the_end (self, "stall", bytes, MIB);
    conformance_become_impatient (self, "stall_timeout=500ms");
    conformance_wait_readable (self, "stall");
    tell (self, "stall");
    Transfer transfer;
    transfer_init (&transfer, self->endpoint);
    transfer.ranges[0] = (EcfsRange){0, MIB, back};
    transfer.n_ranges = 1;
    transfer_read (&transfer, "stall", 0);
    int code = transfer_finish (&transfer);
    g_assert_true (code == ETIMEDOUT || code == ENOTCONN); /* the latter where it waited for a connection */
    EcfsEndpointHealth health;
    ecfs_endpoint_health (self->endpoint, &health);
    g_assert_true (health.down && health.reason != NULL);
    ecfs_endpoint_health_clear (&health);
    tell (self, "resume");
    conformance_wait_readable (self, "stall");
}

void conformance_add_network (const ConformanceRow *row)
{
    static const struct {
        const char *name;
        void (*test) (Fixture *, gconstpointer);
    } cases[] = {
        {"outlives-cuts-when-idle", test_idle},
        {"stores-whole-or-not-at-all-when-cut", test_cut_writes},
        {"tells-the-truth-when-cut", test_cut_reads},
        {"gives-up-a-line-that-stands-still", test_stall},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        g_autofree char *path = g_strdup_printf ("/conformance/%s/%s", row->name, cases[i].name);
        g_test_add (path, Fixture, row, conformance_set_up, cases[i].test, conformance_tear_down);
    }
}
