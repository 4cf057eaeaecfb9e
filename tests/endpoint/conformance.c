#include "conformance_priv.h"
#include "transfer.h"

#include "program/program.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#define KIB ((size_t) 1024)
#define MIB (1024 * KIB)

static GPtrArray *rows; /* ConformanceRow, in the order of adding */

EcfsEndpointSpec *conformance_spec (const ConformanceRow *row, const char *leaf)
{
    g_autofree char *text = g_strdup_printf ("x=%s/%s%s%s", row->url, leaf, row->options != NULL ? "," : "",
                                             row->options != NULL ? row->options : "");
    g_autoptr (GError) error = NULL;
    EcfsEndpointSpec *spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    return spec;
}

EcfsEndpoint *conformance_start (const EcfsEndpointSpec *spec, const EcfsMarker *expected)
{
    g_autoptr (GError) error = NULL;
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, expected, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

static void set_up_bare (Fixture *self, gconstpointer row)
{
    static unsigned n_roots;
    self->row = row;
    self->leaf = g_strdup_printf ("root-%d-%u", (int) getpid (), n_roots++);
    self->spec = conformance_spec (row, self->leaf);
    self->path = self->row->path == NULL ? NULL : g_build_filename (self->row->path, self->leaf, NULL);
    self->marker = (EcfsMarker){.archive = ecfs_uuid_new (), .endpoint = ecfs_uuid_new (), .epoch = 3, .sequence = 99};
}

static void set_up_unconnected (Fixture *self, gconstpointer row)
{
    set_up_bare (self, row);
    static const EcfsMarker nothing;
    g_autoptr (EcfsEndpoint) maker = conformance_start (self->spec, &nothing);
    g_autoptr (GError) error = NULL;
    ecfs_endpoint_mark_wait (maker, &self->marker, true, &error);
    g_assert_no_error (error);
    self->endpoint = conformance_start (self->spec, &self->marker);
}

void conformance_set_up (Fixture *self, gconstpointer row)
{
    set_up_unconnected (self, row);
    if (self->row->proxy == NULL || self->row->only_logs)
        return;
    g_autoptr (GError) error = NULL;
    EcfsMarker found;
    ecfs_endpoint_examine_wait (self->endpoint, &found, &error);
    g_assert_no_error (error);
    lab_proxy_tell (self->row->proxy, "cut");
}

void conformance_tear_down (Fixture *self, gconstpointer row)
{
    (void) row;
    ecfs_endpoint_free (self->endpoint);
    ecfs_endpoint_spec_free (self->spec);
    g_free (self->path);
    g_free (self->leaf);
}

static void store (Fixture *self, const char *name, const void *bytes, size_t size)
{
    g_autoptr (GError) error = NULL;
    ecfs_endpoint_write_wait (self->endpoint, name, bytes, size, &error);
    g_assert_no_error (error);
}

static int code_of (bool ok, GError *error)
{
    g_assert_true (ok == (error == NULL));
    int code = ecfs_errno (error);
    g_clear_error (&error);
    return code;
}

static int try_store (Fixture *self, const char *name, const void *bytes, size_t size)
{
    GError *error = NULL;
    bool ok = ecfs_endpoint_write_wait (self->endpoint, name, bytes, size, &error);
    return code_of (ok, error);
}

static int try_read_from (EcfsEndpoint *endpoint, const char *name, uint64_t offset, void *to, size_t size)
{
    GError *error = NULL;
    EcfsRange range = {.offset = offset, .size = size, .to = to};
    bool ok = ecfs_endpoint_read_wait (endpoint, name, &range, 1, &error);
    return code_of (ok, error);
}

static int try_read (Fixture *self, const char *name, uint64_t offset, void *to, size_t size)
{
    return try_read_from (self->endpoint, name, offset, to, size);
}

static int try_size (Fixture *self, const char *name, uint64_t *ret_size)
{
    GError *error = NULL;
    bool ok = ecfs_endpoint_size_wait (self->endpoint, name, ret_size, &error);
    return code_of (ok, error);
}

void conformance_holds (Fixture *self, const char *name, const uint8_t *bytes, size_t size)
{
    uint64_t stored = G_MAXUINT64;
    g_assert_cmpint (try_size (self, name, &stored), ==, 0);
    g_assert_cmpuint (stored, ==, size);
    if (size == 0)
        return;
    g_autofree uint8_t *back = g_malloc (size);
    g_assert_cmpint (try_read (self, name, 0, back, size), ==, 0);
    g_assert_true (memcmp (back, bytes, size) == 0);
}

typedef struct Listing {
    EcfsMutex lock;
    EcfsCond cond;
    bool done;         /* guarded by lock */
    GHashTable *files; /* name → size */
} Listing;

static void on_listed (void *user, const EcfsListed *listed)
{
    Listing *self = user;
    ecfs_mutex_lock (&self->lock);
    g_assert_true (g_hash_table_insert (self->files, g_strdup (listed->name), GSIZE_TO_POINTER (listed->size)));
    g_assert_cmpint (listed->mtime_s, >, 0);
    ecfs_mutex_unlock (&self->lock);
}

static void on_list_done (void *user, uint64_t value, const GError *error)
{
    Listing *self = user;
    (void) value;
    g_assert_no_error (error);
    ecfs_mutex_lock (&self->lock);
    self->done = true;
    ecfs_cond_signal (&self->cond);
    ecfs_mutex_unlock (&self->lock);
}

/* Names and sizes of all files at or below @name. */
static GHashTable *list (Fixture *self, const char *name)
{
    Listing listing = {.files = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL)};
    ecfs_mutex_init (&listing.lock);
    ecfs_cond_init (&listing.cond);
    ecfs_endpoint_list (self->endpoint, name, on_listed, on_list_done, &listing);
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    ecfs_mutex_lock (&listing.lock);
    while (!listing.done)
        g_assert_true (ecfs_cond_wait_until (&listing.cond, &listing.lock, deadline_us));
    ecfs_mutex_unlock (&listing.lock);
    ecfs_cond_clear (&listing.cond);
    ecfs_mutex_clear (&listing.lock);
    return listing.files;
}

static void assert_absent (Fixture *self, const char *name)
{
    uint64_t size;
    char byte;
    g_assert_cmpint (try_size (self, name, &size), ==, ENOENT);
    g_assert_cmpint (try_read (self, name, 0, &byte, 1), ==, ENOENT);
    g_autoptr (GHashTable) files = list (self, "");
    g_assert_false (g_hash_table_contains (files, name));
}

static void test_round_trip (Fixture *self, gconstpointer row)
{
    static const size_t sizes[] = {0, 1, 32 * KIB - 1, 32 * KIB, 32 * KIB + 1, 256 * KIB + 3, 5 * MIB + 7};
    for (size_t i = 0; i < G_N_ELEMENTS (sizes); i++) {
        g_autofree uint8_t *bytes = test_bytes (sizes[i], (unsigned) i);
        g_autofree char *name = g_strdup_printf ("ab/%02zx/stripe-%zu", i, sizes[i]);
        store (self, name, bytes, sizes[i]);
        conformance_holds (self, name, bytes, sizes[i]);
    }
}

static void test_ranges (Fixture *self, gconstpointer row)
{
    enum { SIZE = 3 * 1024 * 1024 };
    static const struct {
        uint64_t offset;
        size_t size;
    } wanted[] = {{0, 1}, {1, 1}, {4096, 32768}, {40000, 200000}, {240000, 1}, {1 << 20, 1 << 20}, {SIZE - 5, 5}};
    g_autofree uint8_t *bytes = test_bytes (SIZE, 1);
    g_autofree uint8_t *back = g_malloc0 (SIZE + 2);
    store (self, "ranges", bytes, SIZE);
    Transfer transfer;
    transfer_init (&transfer, self->endpoint);
    transfer.n_ranges = G_N_ELEMENTS (wanted);
    g_autofree uint8_t *expected = g_malloc0 (SIZE + 2);
    uint64_t total = 0;
    for (size_t i = 0; i < G_N_ELEMENTS (wanted); i++) {
        transfer.ranges[i] = (EcfsRange){wanted[i].offset, wanted[i].size, back + wanted[i].offset + 1};
        memcpy (expected + wanted[i].offset + 1, bytes + wanted[i].offset, wanted[i].size);
        total += wanted[i].size;
    }
    EcfsEndpointHealth health;
    ecfs_endpoint_health (self->endpoint, &health);
    uint64_t before = health.read_bytes;
    ecfs_endpoint_health_clear (&health);
    transfer_read (&transfer, "ranges", 0);
    g_assert_cmpint (transfer_finish (&transfer), ==, 0);
    g_assert_cmpuint (transfer.moved, ==, total);
    g_assert_true (memcmp (back, expected, SIZE + 2) == 0); /* and nothing beside the ranges */
    ecfs_endpoint_health (self->endpoint, &health);
    g_assert_cmpuint (health.read_bytes - before, ==, total);
    g_assert_cmpuint (health.queued_bytes, ==, 0);
    ecfs_endpoint_health_clear (&health);
}

/* Pieces that are compared as they come. */
typedef struct Pieces {
    const uint32_t *sizes;
    const uint8_t *expected;
    size_t n;
} Pieces;

static void on_piece (void *user, size_t index, const uint8_t *bytes)
{
    Pieces *self = user;
    g_assert_cmpuint (index, ==, self->n++);
    g_assert_cmpmem (bytes, self->sizes[index], self->expected, self->sizes[index]);
    self->expected += self->sizes[index];
}

static void test_pieces (Fixture *self, gconstpointer row)
{
    enum { SIZE = 3 * 1024 * 1024 };
    static const uint32_t sizes[] = {1, 32776, 200000, 7, 131104, 1 << 20, 65536, 2};
    g_autofree uint8_t *bytes = test_bytes (SIZE, 1);
    store (self, "pieces", bytes, SIZE);
    Pieces came = {.sizes = sizes, .expected = bytes + 5};
    EcfsPieces pieces = {.offset = 5, .sizes = sizes, .n = G_N_ELEMENTS (sizes), .piece = on_piece, .user = &came};
    g_autoptr (GError) error = NULL;
    g_assert_true (ecfs_endpoint_read_pieces_wait (self->endpoint, "pieces", &pieces, &error));
    g_assert_cmpuint (came.n, ==, G_N_ELEMENTS (sizes));
    came = (Pieces){.sizes = sizes, .expected = bytes + SIZE - 32777};
    pieces.offset = SIZE - 32777;
    pieces.n = 3; /* of which the third is not there */
    g_assert_false (ecfs_endpoint_read_pieces_wait (self->endpoint, "pieces", &pieces, &error));
    g_assert_cmpint (error->code, ==, EBADMSG);
    g_assert_cmpuint (came.n, <=, 2);
}

static void test_beyond_the_end (Fixture *self, gconstpointer row)
{
    g_autofree uint8_t *bytes = test_bytes (100000, 2);
    g_autofree uint8_t *back = g_malloc (200000);
    store (self, "short", bytes, 100000);
    store (self, "empty", bytes, 0);
    g_assert_cmpint (try_read (self, "short", 0, back, 100001), ==, EBADMSG);
    g_assert_cmpint (try_read (self, "short", 99999, back, 2), ==, EBADMSG);
    g_assert_cmpint (try_read (self, "short", 100000, back, 1), ==, EBADMSG);
    g_assert_cmpint (try_read (self, "short", UINT64_C (1) << 40, back, 70000), ==, EBADMSG);
    g_assert_cmpint (try_read (self, "empty", 0, back, 1), ==, EBADMSG);
    g_assert_cmpint (try_read (self, "short", 99999, back, 1), ==, 0);
}

static void test_missing (Fixture *self, gconstpointer row)
{
    char byte;
    uint64_t size;
    g_autoptr (GError) error = NULL;
    g_assert_cmpint (try_read (self, "nothing", 0, &byte, 1), ==, ENOENT);
    g_assert_cmpint (try_read (self, "no/such/directory", 0, &byte, 1), ==, ENOENT);
    g_assert_cmpint (try_size (self, "no/such/directory", &size), ==, ENOENT);
    g_assert_false (ecfs_endpoint_remove_wait (self->endpoint, "no/such/file", &error));
    g_assert_error (error, ECFS_ERROR, ENOENT);
    g_assert_true (g_str_has_prefix (error->message, "endpoint x: "));
}

static void test_remove (Fixture *self, gconstpointer row)
{
    uint8_t byte = 7;
    store (self, "a/b/gone", &byte, 1);
    store (self, "a/b/stays", &byte, 1);
    conformance_holds (self, "a/b/gone", &byte, 1);
    g_autoptr (GError) error = NULL;
    ecfs_endpoint_remove_wait (self->endpoint, "a/b/gone", &error);
    g_assert_no_error (error);
    assert_absent (self, "a/b/gone");
    conformance_holds (self, "a/b/stays", &byte, 1);
    byte = 8;
    store (self, "a/b/gone", &byte, 1);
    conformance_holds (self, "a/b/gone", &byte, 1);
}

static void remove_empty (Fixture *self, const char *directory, const ConformanceRow *row)
{
    g_autoptr (GError) error = NULL;
    ecfs_endpoint_remove_directory_wait (self->endpoint, directory, &error);
    if (row->vanishes)
        g_assert_error (error, ECFS_ERROR, ENOENT);
    else
        g_assert_no_error (error);
}

static void test_remove_directory (Fixture *self, gconstpointer row)
{
    uint8_t byte = 7;
    g_autoptr (GError) error = NULL;
    store (self, "a/b/file", &byte, 1);
    g_assert_false (ecfs_endpoint_remove_directory_wait (self->endpoint, "a/b", &error));
    g_clear_error (&error);
    g_assert_false (ecfs_endpoint_remove_directory_wait (self->endpoint, "a", &error));
    g_clear_error (&error);
    conformance_holds (self, "a/b/file", &byte, 1);
    ecfs_endpoint_remove_wait (self->endpoint, "a/b/file", &error);
    g_assert_no_error (error);
    remove_empty (self, "a/b", row);
    g_assert_false (ecfs_endpoint_remove_directory_wait (self->endpoint, "a/b", &error));
    g_assert_error (error, ECFS_ERROR, ENOENT);
    g_clear_error (&error);
    remove_empty (self, "a", row);
    store (self, "a/b/file", &byte, 1);
    conformance_holds (self, "a/b/file", &byte, 1);
    g_assert_false (ecfs_endpoint_remove_directory_wait (self->endpoint, "a/b/file", &error));
    conformance_holds (self, "a/b/file", &byte, 1);
}

static void test_never_replaces (Fixture *self, gconstpointer row)
{
    g_autofree uint8_t *old = test_bytes (70000, 3), *new = test_bytes (90000, 4);
    store (self, "d/once", old, 70000);
    g_assert_cmpint (try_store (self, "d/once", new, 90000), ==, EEXIST);
    conformance_holds (self, "d/once", old, 70000);

    /* Two uploads at once, both begun before either is there: one of them wins whole. */
    Transfer first, second;
    transfer_init (&first, self->endpoint);
    transfer_init (&second, self->endpoint);
    first.hold = second.hold = true;
    transfer_write (&first, "d/race", old, 70000);
    transfer_write (&second, "d/race", new, 90000);
    transfer_wait_moved (&first, 50000);
    transfer_wait_moved (&second, 50000);
    transfer_let_go (&first);
    transfer_let_go (&second);
    int codes[] = {transfer_finish (&first), transfer_finish (&second)};
    g_assert_cmpint (codes[0] + codes[1], ==, EEXIST);
    if (codes[0] == 0)
        conformance_holds (self, "d/race", old, 70000);
    else
        conformance_holds (self, "d/race", new, 90000);
}

static void test_slow_source (Fixture *self, gconstpointer row)
{
    const size_t size = 4 * MIB + 1;
    g_autofree uint8_t *bytes = test_bytes (size, 5);
    EcfsWorkers *wakers = ecfs_workers_new ("wakers", 2);
    Transfer transfers[6];
    for (unsigned i = 0; i < G_N_ELEMENTS (transfers); i++) {
        transfer_init (&transfers[i], self->endpoint);
        transfers[i].wakers = wakers;
        transfers[i].chunk = 32 * KIB - 1 + i;
        g_autofree char *name = g_strdup_printf ("slow/%u", i);
        transfer_write (&transfers[i], name, bytes, size);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS (transfers); i++)
        g_assert_cmpint (transfer_finish (&transfers[i]), ==, 0);
    ecfs_workers_free (wakers);
    conformance_holds (self, "slow/0", bytes, size);
    conformance_holds (self, "slow/5", bytes, size);
}

/* More waiting sources than connections, and what they wait for comes last: nobody holds a connection while waiting. */
static void test_waiting_sources_block_nobody (Fixture *self, gconstpointer row)
{
    g_autofree uint8_t *bytes = test_bytes (100000, 6);
    Transfer held[24];
    for (unsigned i = 0; i < G_N_ELEMENTS (held); i++) {
        transfer_init (&held[i], self->endpoint);
        held[i].hold = true;
        g_autofree char *name = g_strdup_printf ("held/%u", i);
        transfer_write (&held[i], name, bytes, 100000);
    }
    store (self, "other", bytes, 1000);
    conformance_holds (self, "other", bytes, 1000);
    for (unsigned i = 0; i < G_N_ELEMENTS (held); i++)
        transfer_wait_moved (&held[i], 50000);
    for (unsigned i = 0; i < G_N_ELEMENTS (held); i++)
        transfer_let_go (&held[i]);
    for (unsigned i = 0; i < G_N_ELEMENTS (held); i++)
        g_assert_cmpint (transfer_finish (&held[i]), ==, 0);
    conformance_holds (self, "held/23", bytes, 100000);
}

static void test_abort (Fixture *self, gconstpointer row)
{
    g_autofree uint8_t *bytes = test_bytes (MIB, 7);
    static const size_t sizes[] = {0, 1, MIB};
    for (size_t i = 0; i < G_N_ELEMENTS (sizes); i++) {
        Transfer transfer;
        transfer_init (&transfer, self->endpoint);
        transfer.abort = true;
        transfer_write (&transfer, "aborted/file", bytes, sizes[i]);
        g_assert_cmpint (transfer_finish (&transfer), ==, ECANCELED);
        assert_absent (self, "aborted/file");
    }
    g_autoptr (GHashTable) files = list (self, "");
    g_assert_cmpuint (g_hash_table_size (files), ==, 0);
}

static void test_cancel_write (Fixture *self, gconstpointer row)
{
    const size_t size = 8 * MIB;
    g_autofree uint8_t *bytes = test_bytes (size, 8);
    Transfer moving, waiting, queued;
    transfer_init (&moving, self->endpoint);
    moving.cancel_at_bytes = 300000;
    transfer_write (&moving, "c/moving", bytes, size);
    g_assert_cmpint (transfer_finish (&moving), ==, ECANCELED);
    g_assert_cmpuint (moving.moved, <, size);
    assert_absent (self, "c/moving");

    transfer_init (&waiting, self->endpoint);
    waiting.hold = true;
    transfer_write (&waiting, "c/waiting", bytes, size);
    transfer_wait_moved (&waiting, 50000);
    ecfs_stream_cancel (waiting.stream);
    ecfs_stream_cancel (waiting.stream);
    g_assert_cmpint (transfer_finish (&waiting), ==, ECANCELED);
    assert_absent (self, "c/waiting");

    transfer_init (&queued, self->endpoint);
    transfer_write (&queued, "c/queued", bytes, size);
    ecfs_stream_cancel (queued.stream);
    int code = transfer_finish (&queued);
    g_assert_true (code == ECANCELED || code == 0);
    if (code == ECANCELED)
        assert_absent (self, "c/queued");
}

static void test_cancel_read (Fixture *self, gconstpointer row)
{
    const size_t size = 8 * MIB;
    g_autofree uint8_t *bytes = test_bytes (size, 9);
    g_autofree uint8_t *back = g_malloc (size);
    store (self, "big", bytes, size);
    for (unsigned i = 0; i < 10; i++) {
        Transfer transfer;
        transfer_init (&transfer, self->endpoint);
        transfer.ranges[0] = (EcfsRange){0, size, back};
        transfer.n_ranges = 1;
        transfer.cancel_at_bytes = 1 + i * 100000;
        transfer_read (&transfer, "big", 0);
        g_assert_cmpint (transfer_finish (&transfer), ==, ECANCELED);
        g_assert_cmpuint (transfer.moved, <, size);
    }
    conformance_holds (self, "big", bytes, size); /* what was cancelled leaves the connection in order */
    EcfsEndpointHealth health;
    ecfs_endpoint_health (self->endpoint, &health);
    g_assert_cmpuint (health.queued_bytes, ==, 0);
    g_assert_false (health.down);
    ecfs_endpoint_health_clear (&health);
}

static void test_many_streams (Fixture *self, gconstpointer row)
{
    enum { N = 64 };
    const size_t size = 200000;
    static Transfer transfers[N];
    uint8_t *bytes[N], *back[N];
    for (unsigned i = 0; i < N; i++) {
        bytes[i] = test_bytes (size, 100 + i);
        back[i] = g_malloc (size);
        transfer_init (&transfers[i], self->endpoint);
        g_autofree char *name = g_strdup_printf ("many/%u/%u", i % 5, i);
        transfer_write (&transfers[i], name, bytes[i], size - i);
    }
    for (unsigned i = 0; i < N; i++)
        g_assert_cmpint (transfer_finish (&transfers[i]), ==, 0);
    for (unsigned i = 0; i < N; i++) {
        transfer_init (&transfers[i], self->endpoint);
        transfers[i].ranges[0] = (EcfsRange){10, size - 100, back[i]};
        transfers[i].n_ranges = 1;
        g_autofree char *name = g_strdup_printf ("many/%u/%u", i % 5, i);
        transfer_read (&transfers[i], name, 0);
    }
    for (unsigned i = 0; i < N; i++) {
        g_assert_cmpint (transfer_finish (&transfers[i]), ==, 0);
        g_assert_true (memcmp (back[i], bytes[i] + 10, size - 100) == 0);
        g_free (bytes[i]);
        g_free (back[i]);
    }
    g_autoptr (GHashTable) files = list (self, "many");
    g_assert_cmpuint (g_hash_table_size (files), ==, N);
}

static unsigned count_incoming (GHashTable *files)
{
    unsigned n_incoming = 0;
    GHashTableIter iter;
    gpointer name;
    g_hash_table_iter_init (&iter, files);
    while (g_hash_table_iter_next (&iter, &name, NULL))
        n_incoming += g_str_has_prefix (name, "incoming/") ? 1 : 0;
    return n_incoming;
}

/* The file of the next may be opened ahead: it gets the next one's bytes and name, and goes where none comes. */
static void test_small_in_a_row (Fixture *self, gconstpointer row)
{
    enum { N = 24, LARGE = 9 };
    g_autofree uint8_t *bytes = test_bytes (600000, 7);
    for (unsigned i = 0; i < N; i++) {
        g_autofree char *name = g_strdup_printf ("row/%u/%u", i / 8, i);
        store (self, name, bytes + i, i == LARGE ? 600000 - i : i * 977);
        if (i % 5 == 4)
            g_assert_cmpint (try_store (self, name, "other", 5), ==, EEXIST);
    }
    for (unsigned i = 0; i < N; i++) {
        g_autofree char *name = g_strdup_printf ("row/%u/%u", i / 8, i);
        conformance_holds (self, name, bytes + i, i == LARGE ? 600000 - i : i * 977);
    }
    ecfs_endpoint_free (self->endpoint);
    self->endpoint = conformance_start (self->spec, &self->marker);
    g_autoptr (GHashTable) files = list (self, "");
    g_assert_cmpuint (g_hash_table_size (files), ==, N);
}

static void test_list (Fixture *self, gconstpointer row)
{
    static const uint8_t bytes[100];
    g_autoptr (GHashTable) none = list (self, "no/such");
    g_assert_cmpuint (g_hash_table_size (none), ==, 0);
    store (self, "top", bytes, 1);
    store (self, "a/b/c/deep", bytes, 2);
    store (self, "a/b-c", bytes, 3);
    store (self, "a.b/x", bytes, 0);
    g_autoptr (GHashTable) all = list (self, "");
    g_assert_cmpuint (g_hash_table_size (all) - count_incoming (all), ==, 4);
    g_assert_cmpuint (GPOINTER_TO_SIZE (g_hash_table_lookup (all, "a/b/c/deep")), ==, 2);
    g_assert_true (g_hash_table_contains (all, "a.b/x"));
    g_autoptr (GHashTable) some = list (self, "a/b");
    g_assert_cmpuint (g_hash_table_size (some), ==, 1);
    g_assert_true (g_hash_table_contains (some, "a/b/c/deep"));
}

/* As of a process that died: nobody takes them away. */
static void test_unfinished (Fixture *self, gconstpointer row)
{
    static const char *const left[] = {"a-file.0123456789abcdef",
                                       "a-file.fedcba9876543210",
                                       "a-file.of-another.0123456789abcdef",
                                       "other.0123456789abcdef",
                                       "ahead-0123456789abcdef.0123456789abcdef", /* a living process may have it */
                                       "ahead-0123456789abcdef.fedcba9876543210"};
    static const char *const names[] = {"a/file", "never/begun"};
    g_autofree char *incoming = g_build_filename (self->path, "incoming", NULL);
    g_autoptr (GError) error = NULL;
    ecfs_endpoint_remove_unfinished_wait (self->endpoint, names, G_N_ELEMENTS (names), &error);
    g_assert_no_error (error);
    store (self, "a/file", "x", 1);
    g_assert_cmpint (g_mkdir_with_parents (incoming, 0777), ==, 0);
    for (size_t i = 0; i < G_N_ELEMENTS (left); i++) {
        g_autofree char *path = g_build_filename (incoming, left[i], NULL);
        g_assert_true (g_file_set_contents (path, "half", 4, NULL));
        const struct utimbuf long_ago = {.actime = 1000000000, .modtime = 1000000000};
        if (i == G_N_ELEMENTS (left) - 1)
            g_assert_cmpint (utime (path, &long_ago), ==, 0);
    }
    ecfs_endpoint_remove_unfinished_wait (self->endpoint, names, G_N_ELEMENTS (names), &error);
    g_assert_no_error (error);
    g_autoptr (GHashTable) files = list (self, "");
    g_assert_cmpuint (g_hash_table_size (files), ==, 4);
    g_assert_true (g_hash_table_contains (files, "a/file"));
    g_assert_true (g_hash_table_contains (files, "incoming/ahead-0123456789abcdef.0123456789abcdef"));
    g_assert_true (g_hash_table_contains (files, "incoming/a-file.of-another.0123456789abcdef"));
    g_assert_true (g_hash_table_contains (files, "incoming/other.0123456789abcdef"));
}

static void test_names (Fixture *self, gconstpointer row)
{
    static const char *const bad[] = {
        "",  "/",   "/etc/passwd", "../up", "a/../../up", "a/..", ".",   "a//b", "a/", "./a",
        "A", "a b", "a\nb",        "a\\b",  "a\xc3\xa4",  "a%2e", "a:b", "a*",   "~",  ECFS_MARKER_NAME};
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        g_assert_cmpint (try_store (self, bad[i], "x", 1), ==, EINVAL);
    g_autofree char *longest = g_strnfill (200, 'n'), *longer = g_strnfill (201, 'n');
    char byte;
    uint64_t size;
    g_assert_cmpint (try_store (self, longer, "x", 1), ==, EINVAL);
    g_assert_cmpint (try_read (self, "../up", 0, &byte, 1), ==, EINVAL);
    g_assert_cmpint (try_size (self, "/etc/passwd", &size), ==, EINVAL);
    store (self, longest, "x", 1);
    conformance_holds (self, longest, (const uint8_t *) "x", 1);
    store (self, "..a/...b/-/_", "x", 1);
    conformance_holds (self, "..a/...b/-/_", (const uint8_t *) "x", 1);
}

static void test_space (Fixture *self, gconstpointer row)
{
    g_autoptr (GError) error = NULL;
    uint64_t bytes = 0;
    (void) ecfs_endpoint_examine_wait (self->endpoint, &self->marker, NULL); /* capabilities are known when connected */
    if ((ecfs_endpoint_capabilities (self->endpoint) & ECFS_CAN_SPACE) == 0) {
        g_test_skip ("this endpoint does not tell its space");
        return;
    }
    ecfs_endpoint_space_wait (self->endpoint, &bytes, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (bytes, >, MIB);
    EcfsEndpointHealth health;
    ecfs_endpoint_health (self->endpoint, &health);
    g_assert_true (health.space.asked && health.space.told);
    g_assert_cmpuint (health.space.free_bytes, ==, bytes);
    ecfs_endpoint_health_clear (&health);
    g_autofree uint8_t *content = test_bytes (MIB, 11);
    store (self, "ab/space", content, MIB);
    ecfs_endpoint_health (self->endpoint, &health); /* what was written since is gone */
    g_assert_cmpuint (health.space.free_bytes, ==, bytes - MIB);
    ecfs_endpoint_health_clear (&health);
}

static void test_health (Fixture *self, gconstpointer row)
{
    const size_t size = 3 * MIB;
    g_autofree uint8_t *bytes = test_bytes (size, 10);
    EcfsEndpointHealth health;
    ecfs_endpoint_health (self->endpoint, &health);
    g_assert_true (!health.connected && !health.down && health.reason == NULL);
    store (self, "h", bytes, size);
    conformance_holds (self, "h", bytes, size);
    ecfs_endpoint_health (self->endpoint, &health);
    g_assert_true (health.connected && !health.down && health.reason == NULL);
    g_assert_cmpuint (health.written_bytes, ==, size);
    g_assert_cmpuint (health.read_bytes, ==, size);
    g_assert_cmpuint (health.queued_bytes, ==, 0);
    g_assert_cmpint (health.rtt_us, >, 0);
    g_assert_cmpfloat (health.estimates.read_bytes_per_s.p50, >, 0);
    g_assert_cmpfloat (health.estimates.write_bytes_per_s.p50, >, 0);
    ecfs_endpoint_health_clear (&health);
}

static void test_stop (Fixture *self, gconstpointer row)
{
    const size_t size = 2 * MIB;
    g_autofree uint8_t *bytes = test_bytes (size, 11);
    g_autofree uint8_t *back = g_malloc (8 * size);
    store (self, "stored", bytes, size);
    Transfer writes[8], reads[8];
    for (unsigned i = 0; i < 8; i++) {
        transfer_init (&writes[i], self->endpoint);
        transfer_init (&reads[i], self->endpoint);
        writes[i].hold = i % 2 == 0;
        g_autofree char *name = g_strdup_printf ("stopped/%u", i);
        transfer_write (&writes[i], name, bytes, size);
        reads[i].ranges[0] = (EcfsRange){0, size, back + i * size};
        reads[i].n_ranges = 1;
        transfer_read (&reads[i], "stored", 0);
    }
    ecfs_endpoint_stop (self->endpoint);
    for (unsigned i = 0; i < 8; i++) {
        g_assert_cmpuint (writes[i].n_done, ==, 1); /* stop waited for all callbacks */
        g_assert_cmpuint (reads[i].n_done, ==, 1);
        int write_code = transfer_finish (&writes[i]), read_code = transfer_finish (&reads[i]);
        g_assert_true (write_code == ECANCELED || (write_code == 0 && i % 2 != 0));
        g_assert_true (read_code == ECANCELED || read_code == 0);
    }
    ecfs_endpoint_stop (self->endpoint);
}

static void assert_same_marker (const EcfsMarker *a, const EcfsMarker *b)
{
    g_assert_true (ecfs_uuid_equal (&a->archive, &b->archive) && ecfs_uuid_equal (&a->endpoint, &b->endpoint));
    g_assert_cmpuint (a->epoch, ==, b->epoch);
    g_assert_cmpuint (a->sequence, ==, b->sequence);
}

static void test_markers (Fixture *self, gconstpointer row)
{
    static const EcfsMarker nothing;
    g_autoptr (GError) error = NULL;
    EcfsMarker found = {.epoch = 0};
    self->endpoint = conformance_start (self->spec, &nothing);
    g_assert_false (ecfs_endpoint_examine_wait (self->endpoint, &found, &error)); /* not even a root */
    g_assert_error (error, ECFS_ERROR, ENOTCONN);
    g_clear_error (&error);
    ecfs_endpoint_mark_wait (self->endpoint, &self->marker, true, &error);
    g_assert_no_error (error);
    ecfs_endpoint_examine_wait (self->endpoint, &found, &error);
    g_assert_no_error (error);
    assert_same_marker (&found, &self->marker);

    EcfsMarker other = {.archive = ecfs_uuid_new (), .endpoint = ecfs_uuid_new ()};
    char text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&self->marker.archive, text);
    g_assert_false (ecfs_endpoint_mark_wait (self->endpoint, &other, true, &error));
    g_assert_error (error, ECFS_ERROR, EEXIST);
    g_assert_nonnull (strstr (error->message, text));
    g_clear_error (&error);
    ecfs_endpoint_examine_wait (self->endpoint, &found, &error);
    g_assert_no_error (error);
    assert_same_marker (&found, &self->marker);

    self->marker.epoch++;
    self->marker.sequence += 1000;
    ecfs_endpoint_mark_wait (self->endpoint, &self->marker, false, &error);
    g_assert_no_error (error);
    ecfs_endpoint_examine_wait (self->endpoint, &found, &error);
    g_assert_no_error (error);
    assert_same_marker (&found, &self->marker);
    g_autoptr (GHashTable) files = list (self, "");
    g_assert_cmpuint (g_hash_table_size (files), ==, 0);
}

static void test_foreign (Fixture *self, gconstpointer row)
{
    store (self, "theirs", "x", 1);
    EcfsMarker wrong[] = {self->marker, self->marker};
    wrong[0].archive = ecfs_uuid_new ();
    wrong[1].endpoint = ecfs_uuid_new ();
    for (size_t i = 0; i < G_N_ELEMENTS (wrong); i++) {
        g_autoptr (EcfsEndpoint) endpoint = conformance_start (self->spec, &wrong[i]);
        char byte;
        g_assert_cmpint (try_read_from (endpoint, "theirs", 0, &byte, 1), ==, ENOTCONN);
        EcfsEndpointHealth health;
        ecfs_endpoint_health (endpoint, &health);
        g_assert_true (health.down && !health.connected && health.reason != NULL);
        ecfs_endpoint_health_clear (&health);
        EcfsMarker found;
        g_autoptr (GError) error = NULL;
        ecfs_endpoint_examine_wait (endpoint, &found, &error);
        g_assert_no_error (error);
        assert_same_marker (&found, &self->marker);
        /* To write another marker there is for those who expect this one, or nothing. */
        g_assert_false (ecfs_endpoint_mark_wait (endpoint, &wrong[i], false, &error));
        g_assert_error (error, ECFS_ERROR, ENOTCONN);
    }
    conformance_holds (self, "theirs", (const uint8_t *) "x", 1);
}

static void put_marker_file (const Fixture *self, const void *bytes, gssize size)
{
    g_autofree char *path = g_build_filename (self->path, ECFS_MARKER_NAME, NULL);
    g_autoptr (GError) error = NULL;
    g_file_set_contents (path, bytes, size, &error);
    g_assert_no_error (error);
}

static void test_damaged_markers (Fixture *self, gconstpointer row)
{
    static const char *const damaged[] = {"", "garbage", "[ecfs-endpoint]\nformat=1\n"};
    g_autofree char *huge = g_strnfill (3 * ECFS_MARKER_MAX_SIZE, '#');
    static const EcfsMarker nothing;
    for (size_t i = 0; i <= G_N_ELEMENTS (damaged); i++) {
        put_marker_file (self, i < G_N_ELEMENTS (damaged) ? damaged[i] : huge, -1);
        g_autoptr (EcfsEndpoint) any = conformance_start (self->spec, &nothing),
                                 strict = conformance_start (self->spec, &self->marker);
        EcfsMarker found;
        g_autoptr (GError) error = NULL;
        g_assert_false (ecfs_endpoint_examine_wait (any, &found, &error));
        g_assert_error (error, ECFS_ERROR, EPROTO);
        g_assert_cmpint (try_read_from (strict, "file", 0, &found, 1), ==, ENOTCONN);
    }
    g_autofree char *path = g_build_filename (self->path, ECFS_MARKER_NAME, NULL);
    g_assert_cmpint (unlink (path), ==, 0);
    g_autoptr (EcfsEndpoint) any = conformance_start (self->spec, &nothing),
                             strict = conformance_start (self->spec, &self->marker);
    EcfsMarker found;
    g_autoptr (GError) error = NULL;
    g_assert_false (ecfs_endpoint_examine_wait (any, &found, &error));
    g_assert_error (error, ECFS_ERROR, ENOENT);
    g_assert_cmpint (try_read_from (strict, "file", 0, &found, 1), ==, ENOTCONN);
}

void conformance_wait_readable (Fixture *self, const char *name)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    char byte;
    while (try_read (self, name, 0, &byte, 1) != 0) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (10000);
    }
}

static void test_root_missing (Fixture *self, gconstpointer row)
{
    g_autofree char *away = g_strconcat (self->path, "-away", NULL);
    store (self, "file", "x", 1);
    g_assert_cmpint (rename (self->path, away), ==, 0);
    ecfs_endpoint_free (self->endpoint);
    self->endpoint = conformance_start (self->spec, &self->marker);
    char byte;
    g_assert_cmpint (try_read (self, "file", 0, &byte, 1), ==, ENOTCONN);
    EcfsEndpointHealth health;
    ecfs_endpoint_health (self->endpoint, &health);
    g_assert_true (health.down && g_str_has_prefix (health.reason, "endpoint x: "));
    g_assert_cmpint (health.down_since_us, >, 0);
    g_test_message ("%s", health.reason);
    ecfs_endpoint_health_clear (&health);
    g_assert_cmpint (try_store (self, "other", "x", 1), ==, ENOTCONN);
    g_assert_false (g_file_test (self->path, G_FILE_TEST_EXISTS));

    g_assert_cmpint (rename (away, self->path), ==, 0);
    conformance_wait_readable (self, "file");
    ecfs_endpoint_health (self->endpoint, &health);
    g_assert_true (!health.down && health.connected && health.reason == NULL);
    ecfs_endpoint_health_clear (&health);
}

static void wait_down (Fixture *self, void (*ask) (Fixture *self))
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    EcfsEndpointHealth health = {.down = false};
    while (!health.down) {
        ask (self);
        ecfs_endpoint_health_clear (&health);
        ecfs_endpoint_health (self->endpoint, &health);
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (10000);
    }
    g_assert_nonnull (health.reason);
    ecfs_endpoint_health_clear (&health);
}

static void ask_space (Fixture *self)
{
    uint64_t bytes;
    (void) !ecfs_endpoint_space_wait (self->endpoint, &bytes, NULL); /* not every endpoint tells it */
}

static void ask_to_store (Fixture *self)
{
    g_assert_cmpint (try_store (self, "new", "x", 1), !=, 0);
}

/* A directory that is unmounted behind a live connection: there is an empty one in its place, or none. */
static void test_root_exchanged (Fixture *self, gconstpointer row)
{
    g_autofree char *away = g_strconcat (self->path, "-away", NULL);
    g_autofree char *incoming = g_build_filename (self->path, "incoming", NULL);
    g_autofree uint8_t *bytes = test_bytes (70000, 3);
    store (self, "file", "x", 1);
    for (unsigned i = 0; i < 2; i++) {
        Transfer held;
        transfer_init (&held, self->endpoint);
        held.hold = true;
        transfer_write (&held, "held", bytes, 70000);
        transfer_wait_moved (&held, 50000);
        g_assert_cmpint (rename (self->path, away), ==, 0);
        if (i == 0)
            g_assert_cmpint (mkdir (self->path, 0700), ==, 0);
        wait_down (self, i == 0 ? ask_space : ask_to_store);
        g_assert_cmpint (transfer_finish (&held), ==, ENOTCONN); /* its bytes went who knows where */
        g_assert_cmpint (try_store (self, "other", "x", 1), ==, ENOTCONN);
        if (i == 0 && ((const ConformanceRow *) row)->is_nested)
            (void) rmdir (incoming);
        if (i == 0)
            g_assert_cmpint (rmdir (self->path), ==, 0); /* nothing was put there */
        g_assert_cmpint (rename (away, self->path), ==, 0);
        conformance_wait_readable (self, "file");
    }
}

static unsigned count_files (const char *path)
{
    unsigned n_files = 0;
    const char *name;
    g_autoptr (GDir) directory = g_dir_open (path, 0, NULL);
    while (directory != NULL && (name = g_dir_read_name (directory)) != NULL) {
        g_autofree char *below = g_build_filename (path, name, NULL);
        n_files += g_file_test (below, G_FILE_TEST_IS_DIR) ? count_files (below) : 1;
    }
    return n_files;
}

/* Nothing has asked since, and what is there now may have all directories: a commit is what finds out. */
static void exchange_unseen (Fixture *self, bool with_directories)
{
    g_autofree char *away = g_strconcat (self->path, "-away", NULL);
    g_autofree char *there = g_build_filename (self->path, "there", NULL);
    g_autofree char *incoming = g_build_filename (self->path, "incoming", NULL);
    uint8_t byte;
    store (self, "there/first", "x", 1);
    store (self, "there/second", "x", 1); /* a third is expected, and its temporary file may be open */
    g_assert_cmpint (rename (self->path, away), ==, 0);
    g_assert_cmpint (g_mkdir_with_parents (with_directories ? there : self->path, 0700), ==, 0);
    if (with_directories)
        g_assert_cmpint (g_mkdir_with_parents (incoming, 0700), ==, 0);
    g_assert_cmpint (try_store (self, "there/third", "x", 1), ==, ENOTCONN);
    g_assert_cmpint (try_store (self, "there/fourth", "x", 1), ==, ENOTCONN);
    /* Another connection may hold the directory that was there, and look for a second at most whether it still is. */
    int64_t deadline_us = ecfs_now_us () + 10 * G_USEC_PER_SEC;
    while (try_read (self, "there/first", 0, &byte, 1) == 0)
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
    g_assert_cmpuint (count_files (with_directories ? there : self->path), ==, 0);
}

static void test_exchanged_for_nothing (Fixture *self, gconstpointer row)
{
    exchange_unseen (self, false);
}

static void test_exchanged_for_directories (Fixture *self, gconstpointer row)
{
    exchange_unseen (self, true);
}

static void add (const ConformanceRow *row, const char *name, void (*up) (Fixture *, gconstpointer),
                 void (*test) (Fixture *, gconstpointer))
{
    g_autofree char *path = g_strdup_printf ("/conformance/%s/%s", row->name, name);
    g_test_add (path, Fixture, row, up, test, conformance_tear_down);
}

static void add_all (const ConformanceRow *row)
{
    add (row, "reads-back-what-was-written", conformance_set_up, test_round_trip);
    add (row, "says-that-a-file-is-missing", conformance_set_up, test_missing);
    add (row, "never-replaces", conformance_set_up, test_never_replaces);
    add (row, "cancels-writes", conformance_set_up, test_cancel_write);
    add (row, "lists", conformance_set_up, test_list);
    if (row->brief)
        return;
    add (row, "reads-many-ranges-and-nothing-else", conformance_set_up, test_ranges);
    add (row, "lends-pieces-in-order", conformance_set_up, test_pieces);
    add (row, "says-that-a-file-ends-too-early", conformance_set_up, test_beyond_the_end);
    add (row, "removes", conformance_set_up, test_remove);
    add (row, "removes-directories-that-are-empty", conformance_set_up, test_remove_directory);
    add (row, "takes-bytes-from-slow-sources", conformance_set_up, test_slow_source);
    add (row, "serves-others-while-sources-wait", conformance_set_up, test_waiting_sources_block_nobody);
    add (row, "leaves-nothing-of-an-aborted-write", conformance_set_up, test_abort);
    add (row, "cancels-reads", conformance_set_up, test_cancel_read);
    add (row, "serves-64-streams-at-once", conformance_set_up, test_many_streams);
    add (row, "small-files-in-a-row", conformance_set_up, test_small_in_a_row);
    add (row, "removes-what-unfinished-uploads-left", conformance_set_up, test_unfinished);
    add (row, "refuses-names-that-leave-the-root", conformance_set_up, test_names);
    add (row, "tells-its-space", conformance_set_up, test_space);
    add (row, "counts-and-estimates", set_up_unconnected, test_health);
    add (row, "stops-in-the-middle-of-transfers", conformance_set_up, test_stop);
    add (row, "makes-and-examines-markers", set_up_bare, test_markers);
    add (row, "serves-nothing-of-others", conformance_set_up, test_foreign);
    add (row, "is-unavailable-with-a-damaged-marker", conformance_set_up, test_damaged_markers);
    add (row, "is-down-without-its-root-and-comes-back", conformance_set_up, test_root_missing);
    add (row, "is-down-when-its-root-is-exchanged", conformance_set_up, test_root_exchanged);
    if (!row->is_sure)
        return;
    add (row, "takes-nothing-where-its-root-was", conformance_set_up, test_exchanged_for_nothing);
    add (row, "takes-nothing-where-there-is-no-marker", conformance_set_up, test_exchanged_for_directories);
}

static void row_free (void *data)
{
    ConformanceRow *row = data;
    lab_proxy_free (row->proxy);
    g_free (row->name);
    g_free (row->url);
    g_free (row->options);
    g_free (row->path);
    g_free (row);
}

void conformance_init (int *argc, char ***argv)
{
    g_test_init (argc, argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_unsetenv ("http_proxy");
    g_unsetenv ("https_proxy");
    g_unsetenv ("all_proxy");
    rows = g_ptr_array_new_with_free_func (row_free);
}

void conformance_add (ConformanceRow row)
{
    ConformanceRow *kept = g_memdup2 (&row, sizeof row);
    g_ptr_array_add (rows, kept);
    if (kept->proxy != NULL)
        lab_proxy_tell (kept->proxy, "gusts 2"); /* ms */
    if (!kept->only_logs)
        add_all (kept);
    conformance_add_log (kept);
    if (kept->proxy != NULL && !kept->only_logs)
        conformance_add_network (kept);
}

void conformance_lacks (const char *name, const char *why)
{
    g_print ("# SKIPPED %s: %s\n", name, why);
}

int conformance_run (const char *why)
{
    if (rows->len == 0)
        g_print ("1..0 # SKIP %s\n", why);
    int result = rows->len == 0 ? 0 : g_test_run ();
    g_ptr_array_unref (rows);
    return result;
}
