/* Memory grants, warm buffers and ticks that all transfers share. */
#include "object/transfer.h"

#include "util/lock.h"

#include <glib.h>
#include <stdatomic.h>
#include <stdlib.h>

#define DEADLINE_US (60 * G_USEC_PER_SEC)

static EcfsTransferPool *started (uint64_t memory_bytes)
{
    EcfsTransferPool *transfer = ecfs_transfer_new (memory_bytes);
    ecfs_transfer_start (transfer);
    return transfer;
}

static void wait_for (atomic_uint *counter, unsigned value)
{
    int64_t deadline_us = ecfs_now_us () + DEADLINE_US;
    while (atomic_load (counter) < value) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_thread_yield ();
    }
}

static atomic_uint n_begun, n_granted;
static unsigned order[16];

/* Two may be granted at once, on two workers: each has a place of its own, and counts when it is filled. */
static void granted (void *user)
{
    order[atomic_fetch_add (&n_begun, 1)] = GPOINTER_TO_UINT (user);
    atomic_fetch_add (&n_granted, 1);
}

/* Those who wait are served in the order in which they came: nobody small overtakes. */
static void test_order (void)
{
    EcfsTransferPool *transfer = started (100);
    atomic_store (&n_begun, 0);
    atomic_store (&n_granted, 0);
    g_assert_true (ecfs_transfer_acquire (transfer, 60, granted, NULL));
    g_assert_true (ecfs_transfer_acquire (transfer, 40, granted, NULL));
    for (unsigned i = 1; i <= 3; i++)
        g_assert_false (ecfs_transfer_acquire (transfer, i == 1 ? 90 : 8, granted, GUINT_TO_POINTER (i)));
    g_assert_false (ecfs_transfer_try_acquire (transfer, 1));
    ecfs_transfer_release (transfer, 40);
    g_assert_false (ecfs_transfer_try_acquire (transfer, 1));
    g_assert_cmpuint (atomic_load (&n_granted), ==, 0);
    ecfs_transfer_release (transfer, 60);
    wait_for (&n_granted, 2);
    g_assert_cmpuint (order[0] + order[1], ==, 1 + 2); /* both at once, on workers of their own */
    g_assert_cmpuint (atomic_load (&n_granted), ==, 2);
    ecfs_transfer_release (transfer, 90);
    wait_for (&n_granted, 3);
    g_assert_cmpuint (order[2], ==, 3);
    ecfs_transfer_release (transfer, 16);
    ecfs_transfer_free (transfer);
}

static void test_one_is_always_possible (void)
{
    EcfsTransferPool *transfer = started (100);
    atomic_store (&n_begun, 0);
    atomic_store (&n_granted, 0);
    g_assert_true (ecfs_transfer_acquire (transfer, 1000, granted, NULL));
    g_assert_false (ecfs_transfer_acquire (transfer, 1, granted, GUINT_TO_POINTER (1)));
    g_assert_false (ecfs_transfer_acquire (transfer, 2000, granted, GUINT_TO_POINTER (2)));
    ecfs_transfer_release (transfer, 1000);
    wait_for (&n_granted, 1);
    g_assert_cmpuint (order[0], ==, 1);
    ecfs_transfer_release (transfer, 1);
    wait_for (&n_granted, 2);
    g_assert_cmpuint (order[1], ==, 2);
    ecfs_transfer_release (transfer, 2000);
    g_assert_true (ecfs_transfer_try_acquire (transfer, 5000));
    g_assert_false (ecfs_transfer_try_acquire (transfer, 1));
    ecfs_transfer_release (transfer, 5000);
    ecfs_transfer_free (transfer);
}

typedef struct Client {
    EcfsTransferPool *transfer;
    atomic_uint *n_done;
    atomic_llong *in_use, *most;
    size_t bytes;
    unsigned n_left;
} Client;

static void client_next (void *user);

static void client_granted (void *user)
{
    Client *self = user;
    long long now = atomic_fetch_add (self->in_use, (long long) self->bytes) + (long long) self->bytes;
    long long most = atomic_load (self->most);
    while (now > most && !atomic_compare_exchange_weak (self->most, &most, now))
        continue;
    uint8_t *buffer = ecfs_transfer_buffer_take (self->transfer, self->bytes);
    buffer[0] = buffer[self->bytes - 1] = 1;
    ecfs_transfer_buffer_give (self->transfer, buffer, self->bytes);
    atomic_fetch_sub (self->in_use, (long long) self->bytes);
    ecfs_transfer_release (self->transfer, self->bytes);
    ecfs_transfer_run (self->transfer, client_next, self);
}

static void client_next (void *user)
{
    Client *self = user;
    if (self->n_left-- == 0)
        atomic_fetch_add (self->n_done, 1);
    else if (ecfs_transfer_acquire (self->transfer, self->bytes, client_granted, self))
        client_granted (self);
}

/* Many who ask again and again: all are served, the bound holds. */
static void test_many (void)
{
    EcfsTransferPool *transfer = started (1000000);
    atomic_uint n_done = 0;
    atomic_llong in_use = 0, most = 0;
    Client clients[12];
    for (unsigned i = 0; i < G_N_ELEMENTS (clients); i++) {
        clients[i] = (Client){.transfer = transfer,
                              .n_done = &n_done,
                              .in_use = &in_use,
                              .most = &most,
                              .bytes = 70000 * (i + 1),
                              .n_left = 300};
        ecfs_transfer_run (transfer, client_next, &clients[i]);
    }
    wait_for (&n_done, G_N_ELEMENTS (clients));
    g_assert_cmpint (atomic_load (&most), <=, 1000000);
    g_assert_cmpint (atomic_load (&in_use), ==, 0);
    ecfs_transfer_free (transfer);
}

static void test_warm (void)
{
    const size_t size = 1 << 20;
    EcfsTransferPool *transfer = started (3 * size);
    g_assert_true (ecfs_transfer_acquire (transfer, 2 * size, granted, NULL));
    uint8_t *a = ecfs_transfer_buffer_take (transfer, size), *b = ecfs_transfer_buffer_take (transfer, size);
    ecfs_transfer_release (transfer, 2 * size);
    ecfs_transfer_buffer_give (transfer, a, size);
    ecfs_transfer_buffer_give (transfer, b, size);
    ecfs_transfer_buffer_give (transfer, NULL, size);
    g_assert_true (ecfs_transfer_acquire (transfer, size, granted, NULL));
    uint8_t *c = ecfs_transfer_buffer_take (transfer, size);
    g_assert_true (c == b || c == a);
    uint8_t *d = ecfs_transfer_buffer_take (transfer, size + 1);
    g_assert_true (d != a && d != b);
    ecfs_transfer_buffer_give (transfer, c, size);
    ecfs_transfer_buffer_give (transfer, d, size + 1);
    ecfs_transfer_release (transfer, size);
    ecfs_transfer_free (transfer);
}

typedef struct Ticker {
    atomic_uint n_ticks, n_pressed;
    atomic_uint references;
} Ticker;

static void tick (void *user, int64_t now_us, bool pressure)
{
    Ticker *self = user;
    g_assert_cmpint (now_us, <=, ecfs_now_us ());
    atomic_fetch_add (pressure ? &self->n_pressed : &self->n_ticks, 1);
}

static bool try_ref (void *user)
{
    Ticker *self = user;
    if (atomic_load (&self->references) == 0)
        return false;
    atomic_fetch_add (&self->references, 1);
    return true;
}

static void unref (void *user)
{
    Ticker *self = user;
    atomic_fetch_sub (&self->references, 1);
}

static void test_ticking (void)
{
    EcfsTransferPool *transfer = started (100);
    Ticker one = {.references = 1}, two = {.references = 1}, gone = {.references = 0};
    Ticker *all[] = {&one, &two, &gone};
    for (unsigned i = 0; i < 3; i++) {
        EcfsTicking ticking = {.tick = tick, .try_ref = try_ref, .unref = unref, .user = all[i]};
        ecfs_transfer_add_ticking (transfer, &ticking);
    }
    wait_for (&one.n_ticks, 3);
    wait_for (&two.n_ticks, 3);
    atomic_store (&n_begun, 0);
    atomic_store (&n_granted, 0);
    g_assert_true (ecfs_transfer_acquire (transfer, 100, granted, NULL));
    g_assert_false (ecfs_transfer_acquire (transfer, 1, granted, GUINT_TO_POINTER (1)));
    wait_for (&one.n_pressed, 1);
    ecfs_transfer_release (transfer, 100);
    wait_for (&n_granted, 1);
    ecfs_transfer_release (transfer, 1);
    ecfs_transfer_remove_ticking (transfer, &one);
    ecfs_transfer_remove_ticking (transfer, &one);
    unsigned before = atomic_load (&two.n_ticks);
    wait_for (&two.n_ticks, before + 2);
    ecfs_transfer_stop (transfer);
    g_assert_cmpuint (atomic_load (&one.references), ==, 1);
    g_assert_cmpuint (atomic_load (&two.references), ==, 1);
    g_assert_cmpuint (atomic_load (&gone.n_ticks), ==, 0);
    ecfs_transfer_free (transfer);
}

static void test_life_cycle (void)
{
    ecfs_transfer_free (NULL);
    ecfs_transfer_free (ecfs_transfer_new (100));
    EcfsTransferPool *transfer = started (12345);
    g_assert_cmpuint (ecfs_transfer_memory (transfer), ==, 12345);
    ecfs_transfer_stop (transfer);
    ecfs_transfer_stop (transfer);
    ecfs_transfer_free (transfer);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/transfer/grants-come-in-order", test_order);
    g_test_add_func ("/transfer/one-grant-is-always-possible", test_one_is_always_possible);
    g_test_add_func ("/transfer/the-bound-holds-and-all-are-served", test_many);
    g_test_add_func ("/transfer/buffers-are-used-again", test_warm);
    g_test_add_func ("/transfer/ticks-those-that-live", test_ticking);
    g_test_add_func ("/transfer/stops-twice-and-frees-nothing", test_life_cycle);
    return g_test_run ();
}
