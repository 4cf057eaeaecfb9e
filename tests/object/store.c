#include "store.h"

#include "util/io.h"
#include "util/lock.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TEST_LIMIT_S 600

/* One that hangs does so until the test is over: who waits for it is found out without looking at the time. */
static EcfsEndpoint *new_endpoint (const Store *self, const char *scheme, unsigned i)
{
    static const EcfsMarker nothing;
    g_autoptr (GError) error = NULL;
    g_autofree char *text = g_strdup_printf ("e%u=%s://%s/e%u,stall_timeout=1h", i, scheme, self->base, i);
    g_autofree char *root = g_strdup_printf ("%s/e%u", self->base, i);
    g_assert_cmpint (g_mkdir_with_parents (root, 0700), ==, 0);
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &nothing, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

void store_init (Store *self, const char *scheme, const char *code, unsigned n_spares, uint64_t memory_bytes)
{
    static bool registered;
    if (!registered)
        faulty_register ();
    registered = true;
    alarm (TEST_LIMIT_S);
    g_autoptr (GError) error = NULL;
    *self = (Store){.archive = ecfs_uuid_new ()};
    self->base = g_dir_make_tmp ("ecfs-object-XXXXXX", &error);
    g_assert_no_error (error);
    self->codec = ecfs_codec_new (code, &error);
    g_assert_no_error (error);
    self->n = ecfs_codec_n (self->codec);
    self->n_endpoints = self->n + n_spares;
    g_assert_cmpuint (self->n_endpoints, <=, STORE_MAX_ENDPOINTS);
    self->transfer = ecfs_transfer_new (memory_bytes);
    self->log = ecfs_read_log_new ();
    ecfs_transfer_start (self->transfer);
    for (unsigned i = 0; i < self->n_endpoints; i++) {
        self->endpoints[i] = new_endpoint (self, scheme, i);
        self->faults[i] = faults_of (ecfs_endpoint_name (self->endpoints[i]));
        faults_reset (self->faults[i]);
    }
}

void store_clear (Store *self)
{
    for (unsigned i = 0; i < self->n_endpoints; i++)
        ecfs_endpoint_free (self->endpoints[i]);
    ecfs_transfer_free (self->transfer);
    ecfs_read_log_free (self->log);
    ecfs_codec_free (self->codec);
    const char *remove[] = {"rm", "-rf", self->base, NULL};
    g_assert_true (
        g_spawn_sync (NULL, (char **) remove, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL, NULL));
    g_free (self->base);
    alarm (0);
}

static bool replace (void *user, unsigned index, const GError *error, EcfsWriterTarget *target)
{
    Object *self = user;
    (void) error; /* NULL: the stripe is only late */
    unsigned spare = self->store->n + self->n_spares_used;
    if (self->no_spares || spare >= self->store->n_endpoints)
        return false;
    self->n_spares_used++;
    *target = (EcfsWriterTarget){.endpoint = self->store->endpoints[spare], .instance = 1000 + index};
    return true;
}

static bool possible (void *user, const bool *stripes)
{
    const Object *self = user;
    unsigned n_possible = 0;
    for (unsigned i = 0; i < self->store->n; i++)
        n_possible += stripes[i];
    return n_possible >= self->least;
}

static uint8_t *random_bytes (size_t size)
{
    uint8_t *bytes = g_malloc (size + 4);
    for (size_t at = 0; at < size; at += 4) {
        gint32 word = g_test_rand_int ();
        memcpy (bytes + at, &word, 4);
    }
    return bytes;
}

uint64_t store_bytes_read (const Store *self)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < self->n_endpoints; i++) {
        EcfsEndpointHealth health;
        ecfs_endpoint_health (self->endpoints[i], &health);
        total += health.read_bytes;
        ecfs_endpoint_health_clear (&health);
    }
    return total;
}

void object_init (Object *self, Store *store, uint64_t size, uint32_t segment_bytes)
{
    *self = (Object){.store = store, .size = size, .content = random_bytes (size)};
    self->least = ecfs_codec_k (store->codec);
    int fd = memfd_create ("content", MFD_CLOEXEC);
    g_assert_cmpint (ecfs_pwrite_all (fd, self->content, size, 0), ==, 0);
    GArray *ranges = g_array_new (FALSE, FALSE, sizeof (EcfsFileRange));
    EcfsFileRange all = {.length = size};
    g_array_append_val (ranges, all);
    for (unsigned i = 0; i < store->n; i++)
        self->targets[i] = (EcfsWriterTarget){.endpoint = store->endpoints[i], .instance = 500 + i};
    self->job = (EcfsWriterJob){
        .transfer = store->transfer,
        .codec = store->codec,
        .header = {.archive = store->archive,
                   .object = ecfs_uuid_new (),
                   .sequence = 77,
                   .epoch = 2,
                   .segment_bytes = segment_bytes,
                   .block_bytes = ecfs_layout_written_block_bytes (ecfs_codec_granule (store->codec))},
        .size = size,
        .fd = fd,
        .ranges = ranges,
        .records = g_ptr_array_new (),
        .targets = self->targets,
        .replace = replace,
        .possible = possible,
        .patient = true,
        .user = self,
    };
    ecfs_stripe_header_set_code (&self->job.header, store->codec);
}

void object_seal (Object *self, const EcfsKeyRing *ring, EcfsSealKind kind)
{
    EcfsSealKeys *keys;
    EcfsStripeHeader *header = &self->job.header;
    header->seal = ecfs_seal_new (ring);
    header->seal.kind = kind;
    g_assert_true (ecfs_seal_open (&header->seal, ring, &header->object, &keys, NULL));
    ecfs_seal_keys_unref (self->job.keys);
    self->job.keys = keys;
}

void object_clear (Object *self)
{
    ecfs_seal_keys_unref (self->job.keys);
    g_free (self->content);
    close (self->job.fd);
    g_array_unref ((GArray *) self->job.ranges);
    g_ptr_array_unref (self->job.records);
    if (self->result.failures != NULL)
        g_string_free (self->result.failures, TRUE);
}

int object_write (Object *self, char **ret_text)
{
    g_autoptr (GError) error = NULL;
    bool written = ecfs_writer_run (&self->job, &self->result, &error);
    g_assert_true (written == (error == NULL));
    if (ret_text != NULL)
        *ret_text = g_strdup (error != NULL ? error->message : self->result.failures->str);
    if (!written)
        return ecfs_errno (error);
    g_assert_true (ecfs_stripe_layout (&self->job.header, self->size, &self->layout, NULL));
    g_assert_cmpuint (self->layout.header_bytes, ==, self->result.header_bytes);
    return 0;
}

char *object_stripe_path (const Object *self, unsigned index)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    const EcfsWriterTarget *target = &self->targets[index];
    ecfs_stripe_name (&self->job.header.object, (uint16_t) index, target->instance, name);
    return g_build_filename (self->store->base, ecfs_endpoint_name (target->endpoint), name, NULL);
}

unsigned object_n_stored (const Object *self)
{
    unsigned n_stored = 0;
    for (unsigned i = 0; i < self->store->n; i++)
        n_stored += self->result.stored[i];
    return n_stored;
}

void object_reader_params (const Object *self, EcfsReaderStripe *ret_stripes, EcfsReaderParams *ret_params)
{
    for (unsigned i = 0; i < self->store->n; i++)
        ret_stripes[i] = (EcfsReaderStripe){.endpoint = self->result.stored[i] ? self->targets[i].endpoint : NULL,
                                            .instance = self->targets[i].instance,
                                            .bytes = self->result.stripe_bytes[i]};
    *ret_params = (EcfsReaderParams){.transfer = self->store->transfer,
                                     .codec = self->store->codec,
                                     .layout = self->layout,
                                     .object = self->job.header.object,
                                     .keys = self->job.keys,
                                     .stripes = ret_stripes,
                                     .log = self->store->log};
    ecfs_read_policy_init (&ret_params->policy);
}

EcfsReader *object_reader (const Object *self)
{
    EcfsReaderParams params;
    EcfsReaderStripe stripes[ECFS_CODEC_MAX_N];
    object_reader_params (self, stripes, &params);
    params.cache = self->store->cache;
    params.fills_cache = params.cache != NULL;
    return ecfs_reader_new (&params);
}

struct Reading {
    EcfsMutex lock;
    EcfsCond cond;
    const Object *object;
    uint64_t offset;
    size_t size;
    unsigned n_done; /* guarded by lock, as what follows */
    int code;
    char *text;
    bool wrong;
    EcfsLoan *loan; /* the borrower's thread only */
    const struct iovec *iov;
    int n_iov;
};

static bool is_content (const Reading *self, const struct iovec *iov, int n_iov)
{
    const uint8_t *expected = self->object->content + self->offset;
    size_t got = 0;
    for (int i = 0; i < n_iov; i++) {
        if (got + iov[i].iov_len > self->size || memcmp (iov[i].iov_base, expected + got, iov[i].iov_len) != 0)
            return false;
        got += iov[i].iov_len;
    }
    return got == self->size;
}

static void reading_done (void *user, const struct iovec *iov, int n_iov, const GError *error)
{
    Reading *self = user;
    bool wrong = error == NULL && !is_content (self, iov, n_iov);
    ecfs_mutex_lock (&self->lock);
    self->iov = iov;
    self->n_iov = n_iov;
    self->n_done++;
    self->code = ecfs_errno (error);
    self->text = error != NULL ? g_strdup (error->message) : NULL;
    self->wrong = wrong;
    ecfs_cond_signal (&self->cond);
    ecfs_mutex_unlock (&self->lock);
}

static Reading *reading_new (const Object *object, uint64_t offset, size_t size)
{
    Reading *self = g_new0 (Reading, 1);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->cond);
    self->object = object;
    self->offset = offset;
    self->size = size;
    return self;
}

Reading *reading_begin (const Object *object, EcfsReader *reader, uint64_t offset, size_t size)
{
    Reading *self = reading_new (object, offset, size);
    ecfs_reader_read (reader, offset, size, reading_done, self);
    return self;
}

Reading *reading_borrow (const Object *object, EcfsReader *reader, uint64_t offset, size_t size)
{
    Reading *self = reading_new (object, offset, size);
    self->loan = ecfs_reader_borrow (reader, offset, size, reading_done, self);
    return self;
}

int reading_finish (Reading *self, char **ret_text)
{
    int64_t deadline_us = ecfs_now_us () + STORE_DEADLINE_US;
    ecfs_mutex_lock (&self->lock);
    while (self->n_done == 0)
        if (!ecfs_cond_wait_until (&self->cond, &self->lock, deadline_us))
            g_error ("read of %zu bytes at %" G_GUINT64_FORMAT " is not answered", self->size, self->offset);
    g_assert_cmpuint (self->n_done, ==, 1);
    ecfs_mutex_unlock (&self->lock);
    if (self->loan != NULL && self->code == 0)
        self->wrong |= !is_content (self, self->iov, self->n_iov);
    ecfs_loan_return (self->loan);
    if (self->wrong)
        g_error ("read of %zu bytes at %" G_GUINT64_FORMAT ": wrong bytes", self->size, self->offset);
    int code = self->code;
    if (ret_text != NULL)
        *ret_text = g_steal_pointer (&self->text);
    g_free (self->text);
    ecfs_cond_clear (&self->cond);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
    return code;
}

int object_read (const Object *self, EcfsReader *reader, uint64_t offset, size_t size, char **ret_text)
{
    return reading_finish (reading_begin (self, reader, offset, size), ret_text);
}
