#include "codec/liberasurecode.h"

#include "codec/codec.h"

#include <assert.h>
#include <liberasurecode/erasurecode.h>
#include <pthread.h>
#include <string.h>

/* Packets are worked on a strip at a time, so that copies stay in the cache. Strips have few sizes, each a power of
 * two, because a fragment's header tells its size: headers are made by the library itself, once for each size. */
#define MIN_STRIP ECFS_LIBERASURECODE_GRANULE
#define N_STRIPS  10
#define MAX_STRIP ((size_t) MIN_STRIP << (N_STRIPS - 1))

#define HEADER sizeof (fragment_header_t)

struct EcfsLiberasurecode {
    unsigned k, n;
    int instance;
    uint8_t (*headers)[HEADER]; /* of each size of strips, n */
};

/* The library's list of instances is searched without a lock in each of its calls: nothing may come or go meanwhile. */
static pthread_rwlock_t instances = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

static void lock_to_use (void)
{
    int failed = pthread_rwlock_rdlock (&instances);
    assert (failed == 0);
    (void) failed; /* read by the assertion only */
}

static void lock_to_change (void)
{
    int failed = pthread_rwlock_wrlock (&instances);
    assert (failed == 0);
    (void) failed;
}

static void unlock (void)
{
    (void) pthread_rwlock_unlock (&instances); /* this thread holds it */
}

static int create_instance (EcfsLiberasurecodeKind kind, unsigned k, unsigned m, unsigned distance)
{
    static const ec_backend_id_t backends[] = {[ECFS_LIBERASURECODE_CAUCHY] = EC_BACKEND_ISA_L_RS_CAUCHY,
                                               [ECFS_LIBERASURECODE_FLAT_XOR] = EC_BACKEND_FLAT_XOR_HD};
    struct ec_args args = {.k = (int) k, .m = (int) m, .w = 8, .hd = (int) distance, .ct = CHKSUM_NONE};
    lock_to_change ();
    int instance = liberasurecode_instance_create (backends[kind], &args);
    unlock ();
    return instance;
}

/* Fragments of k strips in a row; false: their size is none that this adapter knows. */
static bool encode_strip (const EcfsLiberasurecode *self, const uint8_t *strips, size_t strip, char ***ret_data,
                          char ***ret_parity)
{
    uint64_t fragment_bytes = 0;
    lock_to_use ();
    int failed = liberasurecode_encode (self->instance, (const char *) strips, self->k * strip, ret_data, ret_parity,
                                        &fragment_bytes);
    unlock ();
    if (failed != 0)
        g_error ("liberasurecode does not encode: error %d", failed); /* memory is at an end */
    return fragment_bytes == HEADER + strip;
}

static void free_fragments (const EcfsLiberasurecode *self, char **data, char **parity)
{
    lock_to_use ();
    (void) liberasurecode_encode_cleanup (self->instance, data, parity); /* fails for an unknown instance only */
    unlock ();
}

static bool make_headers (EcfsLiberasurecode *self)
{
    bool good = true;
    g_autofree uint8_t *zeros = g_malloc0 (self->k * MAX_STRIP);
    self->headers = g_malloc (N_STRIPS * self->n * HEADER);
    for (unsigned i = 0; i < N_STRIPS && good; i++) {
        char **data, **parity;
        good = encode_strip (self, zeros, (size_t) MIN_STRIP << i, &data, &parity);
        for (unsigned e = 0; e < self->n; e++)
            memcpy (self->headers[i * self->n + e], e < self->k ? data[e] : parity[e - self->k], HEADER);
        free_fragments (self, data, parity);
    }
    return good;
}

EcfsLiberasurecode *ecfs_liberasurecode_new (EcfsLiberasurecodeKind kind, unsigned k, unsigned m, unsigned distance,
                                             GError **error)
{
    int instance = create_instance (kind, k, m, distance);
    if (instance <= 0) {
        (void) !ecfs_fail (error, ENOTSUP, "liberasurecode has no such code here (error %d); is libisal installed?",
                           -instance);
        return NULL;
    }
    g_autoptr (EcfsLiberasurecode) self = g_new0 (EcfsLiberasurecode, 1);
    *self = (EcfsLiberasurecode){.k = k, .n = k + m, .instance = instance};
    if (make_headers (self))
        return g_steal_pointer (&self);
    (void) !ecfs_fail (error, ENOTSUP, "the installed liberasurecode has fragments of another form");
    return NULL;
}

void ecfs_liberasurecode_free (EcfsLiberasurecode *self)
{
    if (self == NULL)
        return;
    lock_to_change ();
    (void) liberasurecode_instance_destroy (self->instance); /* fails for an unknown one only */
    unlock ();
    g_free (self->headers);
    g_free (self);
}

void ecfs_liberasurecode_encode (const EcfsLiberasurecode *self, const uint8_t *const *data, uint8_t *const *parity,
                                 size_t packet_bytes)
{
    size_t most = MIN (packet_bytes, MAX_STRIP);
    g_autofree uint8_t *strips = g_malloc (self->k * most);
    for (size_t at = 0; at < packet_bytes; at += most) {
        size_t strip = MIN (most, packet_bytes - at);
        char **data_fragments, **parity_fragments;
        for (unsigned i = 0; i < self->k; i++)
            memcpy (strips + i * strip, data[i] + at, strip);
        bool good = encode_strip (self, strips, strip, &data_fragments, &parity_fragments);
        assert (good); /* as when it was made */
        (void) good;
        for (unsigned i = 0; i < self->n - self->k; i++)
            if (parity[i] != NULL)
                memcpy (parity[i] + at, parity_fragments[i] + HEADER, strip);
        free_fragments (self, data_fragments, parity_fragments);
    }
}

/* What is less than a strip is filled up with zeros. */
static void fill_fragment (const EcfsLiberasurecode *self, unsigned size_index, unsigned packet, const uint8_t *from,
                           size_t bytes, char *fragment)
{
    size_t strip = (size_t) MIN_STRIP << size_index;
    memcpy (fragment, self->headers[size_index * self->n + packet], HEADER);
    memcpy (fragment + HEADER, from, bytes);
    memset (fragment + HEADER + bytes, 0, strip - bytes);
}

static void rebuild_fragment (const EcfsLiberasurecode *self, char **fragments, unsigned n_fragments, size_t strip,
                              unsigned wanted, char *fragment)
{
    lock_to_use ();
    int failed = liberasurecode_reconstruct_fragment (self->instance, fragments, (int) n_fragments, HEADER + strip,
                                                      (int) wanted, fragment);
    unlock ();
    if (failed != 0)
        g_error ("liberasurecode does not rebuild a packet: error %d", failed); /* memory is at an end */
}

static unsigned size_index_of (size_t bytes)
{
    unsigned i = 0;
    while (i < N_STRIPS - 1 && (size_t) MIN_STRIP << i < bytes)
        i++;
    return i;
}

void ecfs_liberasurecode_rebuild (const EcfsLiberasurecode *self, uint8_t *const *packets, const bool *sources,
                                  const bool *wanted, size_t packet_bytes)
{
    size_t most = HEADER + ((size_t) MIN_STRIP << size_index_of (packet_bytes));
    char *room = g_aligned_alloc (self->n + 1, most, 16), *rebuilt = room + self->n * most; /* else it copies them */
    for (size_t at = 0; at < packet_bytes; at += MAX_STRIP) {
        size_t bytes = MIN (MAX_STRIP, packet_bytes - at);
        unsigned size_index = size_index_of (bytes), n_fragments = 0;
        char *fragments[ECFS_CODEC_MAX_N];
        for (unsigned i = 0; i < self->n; i++) {
            if (!sources[i])
                continue;
            fragments[n_fragments] = room + n_fragments * most;
            fill_fragment (self, size_index, i, packets[i] + at, bytes, fragments[n_fragments++]);
        }
        for (unsigned i = 0; i < self->n; i++) {
            if (!wanted[i])
                continue;
            rebuild_fragment (self, fragments, n_fragments, (size_t) MIN_STRIP << size_index, i, rebuilt);
            memcpy (packets[i] + at, rebuilt + HEADER, bytes);
        }
    }
    g_aligned_free (room);
}

const char *ecfs_liberasurecode_version (void)
{
    static char text[32];
    static gsize made;
    if (g_once_init_enter (&made)) {
        unsigned version = liberasurecode_get_version ();
        g_snprintf (text, sizeof text, "%u.%u.%u", version >> 16, version >> 8 & 0xff, version & 0xff);
        g_once_init_leave (&made, 1);
    }
    return text;
}
