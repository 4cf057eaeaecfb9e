/* Repair: lost stripes stored again, byte for byte, from as few bytes of others as their code takes. */
#include "object/repair.h"
#include "program/program.h"
#include "store.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define KIB    ((uint64_t) 1024)
#define MIB    (1024 * KIB)
#define MEMORY (256 * MIB)
#define SIZE   (2 * MIB + 4321)
#define SPARES 8

typedef struct Fixture {
    Store store;
    Object object;
    bool lost[ECFS_CODEC_MAX_N];
    unsigned n_lost;
    unsigned n_repairs;
    const EcfsRepairPace *pace; /* of the next repair; NULL: none */
    uint64_t read_bytes;        /* of packets, as the last repair tells */
} Fixture;

static void begin_under (Fixture *self, EcfsSealKind kind, const char *scheme, const char *code, uint64_t memory)
{
    *self = (Fixture){.n_repairs = 0};
    store_init (&self->store, scheme, code, SPARES, memory);
    uint32_t segment =
        ecfs_layout_segment_bytes (512 * KIB, ecfs_codec_k (self->store.codec), ecfs_codec_granule (self->store.codec));
    object_init (&self->object, &self->store, SIZE, segment);
    if (kind != ECFS_SEAL_NONE) {
        const EcfsUuid archive = ecfs_uuid_new ();
        g_autoptr (EcfsKeyRing) ring = ecfs_key_ring_new (&archive);
        object_seal (&self->object, ring, kind);
    }
    g_assert_cmpint (object_write (&self->object, NULL), ==, 0);
}

static void begin_with (Fixture *self, const char *scheme, const char *code, uint64_t memory)
{
    begin_under (self, ECFS_SEAL_NONE, scheme, code, memory);
}

static void begin (Fixture *self, const char *code)
{
    begin_with (self, "file", code, MEMORY);
}

static void end (Fixture *self)
{
    object_clear (&self->object);
    store_clear (&self->store);
}

/* The packet area of a stripe; g_free (). */
static char *area (const Fixture *self, unsigned index)
{
    g_autofree char *path = object_stripe_path (&self->object, index);
    g_autofree char *bytes = NULL;
    size_t size, area_bytes = (size_t) ecfs_layout_area_bytes (&self->object.layout);
    g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
    g_assert_cmpuint (size, ==, self->object.result.stripe_bytes[index]);
    return g_memdup2 (bytes + self->object.layout.header_bytes, area_bytes);
}

static void lose (Fixture *self, unsigned index)
{
    g_autofree char *path = object_stripe_path (&self->object, index);
    g_assert_cmpint (remove (path), ==, 0);
    self->lost[index] = true;
    self->n_lost++;
}

/* Has the stripes @wanted stored at spares, from what is there but for those lost; 0 or the errno. */
static int repair (Fixture *self, const bool *wanted, EcfsWriterTarget *targets, EcfsWriterResult *ret_result)
{
    Object *object = &self->object;
    unsigned spare = self->store.n;
    for (unsigned i = 0; i < self->store.n; i++) {
        object->result.stored[i] = !self->lost[i];
        if (wanted[i])
            targets[i] =
                (EcfsWriterTarget){.endpoint = self->store.endpoints[spare++], .instance = 10000 + ++self->n_repairs};
    }
    EcfsRepair *repaired = ecfs_repair_new (object_reader (object), wanted, self->pace);
    EcfsWriterJob job = object->job;
    job.fd = -1;
    job.ranges = NULL;
    g_autoptr (GByteArray) chain = ecfs_repair_chain (repaired);
    job.packets = ecfs_repair_packets (repaired);
    job.chain = chain;
    job.expected_digest = object->result.object_digest;
    job.targets = targets;
    object->least = 0;
    object->no_spares = true;
    g_autoptr (GError) error = NULL;
    bool written = ecfs_writer_run (&job, ret_result, &error);
    self->read_bytes = ecfs_repair_read_bytes (repaired);
    ecfs_repair_free (repaired);
    g_assert_true (written == (error == NULL));
    return ecfs_errno (error);
}

/* Repairs what is lost, checks that it is what it was, and has the object use it. */
static void repair_and_check (Fixture *self, const bool *wanted, char *const *areas)
{
    Object *object = &self->object;
    EcfsWriterResult result;
    EcfsWriterTarget targets[ECFS_CODEC_MAX_N] = {0};
    g_assert_cmpint (repair (self, wanted, targets, &result), ==, 0);
    g_assert_cmpstr (result.failures->str, ==, "");
    g_string_free (result.failures, TRUE);
    for (unsigned i = 0; i < self->store.n; i++) {
        g_assert_true (result.stored[i] == wanted[i]);
        if (!wanted[i])
            continue;
        g_assert_cmpmem (result.stripe_digest[i], ECFS_STRIPE_DIGEST_BYTES, object->result.stripe_digest[i],
                         ECFS_STRIPE_DIGEST_BYTES);
        g_assert_cmpuint (result.stripe_bytes[i], ==, object->result.stripe_bytes[i]);
        object->targets[i] = targets[i];
        g_autofree char *now = area (self, i);
        g_assert_cmpint (memcmp (now, areas[i], ecfs_layout_area_bytes (&object->layout)), ==, 0);
        object->result.stored[i] = true;
    }
    memset (self->lost, 0, sizeof self->lost);
    self->n_lost = 0;
    EcfsReader *reader = object_reader (object);
    g_assert_cmpint (object_read (object, reader, 0, object->size, NULL), ==, 0);
    ecfs_reader_close (reader);
}

static void keep_areas (const Fixture *self, char **areas)
{
    for (unsigned i = 0; i < self->store.n; i++)
        areas[i] = area (self, i);
}

static void free_areas (const Fixture *self, char **areas)
{
    for (unsigned i = 0; i < self->store.n; i++)
        g_free (areas[i]);
}

/* How many stripes' packets are read at the endpoints for one that is lost: at least and at most. */
static void count_for_one (const char *code, uint64_t *ret_least, uint64_t *ret_most)
{
    Fixture self;
    char *areas[ECFS_CODEC_MAX_N];
    begin (&self, code);
    keep_areas (&self, areas);
    *ret_least = UINT64_MAX;
    *ret_most = 0;
    uint64_t one = ecfs_layout_area_bytes (&self.object.layout);
    for (unsigned i = 0; i < self.store.n; i++) {
        EcfsWriterResult result;
        EcfsWriterTarget targets[ECFS_CODEC_MAX_N] = {0};
        lose (&self, i);
        uint64_t before = store_bytes_read (&self.store);
        g_assert_cmpint (repair (&self, self.lost, targets, &result), ==, 0);
        uint64_t read = store_bytes_read (&self.store) - before;
        g_string_free (result.failures, TRUE);
        g_assert_cmpuint (read, ==, self.read_bytes);
        g_assert_cmpuint (read % one, ==, 0);
        *ret_least = MIN (*ret_least, read / one);
        *ret_most = MAX (*ret_most, read / one);
        self.object.targets[i] = targets[i];
        g_autofree char *now = area (&self, i);
        g_assert_cmpint (memcmp (now, areas[i], one), ==, 0);
        self.lost[i] = false;
    }
    free_areas (&self, areas);
    end (&self);
}

static void test_cost (void)
{
    uint64_t least, most;
    count_for_one ("rs:8+8", &least, &most);
    g_assert_cmpuint (least, ==, 8);
    g_assert_cmpuint (most, ==, 8);
    count_for_one ("basic:8+8", &least, &most);
    g_assert_cmpuint (least, ==, 4);
    g_assert_cmpuint (most, ==, 4);
    count_for_one ("ldpc:8+6", &least, &most);
    g_assert_cmpuint (most, <=, 4);
    count_for_one ("copies:3", &least, &most);
    g_assert_cmpuint (most, ==, 1);
}

/* Several lost stripes of one object are one reading. */
static void test_sets (gconstpointer code)
{
    Fixture self;
    char *areas[ECFS_CODEC_MAX_N];
    begin (&self, code);
    keep_areas (&self, areas);
    unsigned tolerance = ecfs_codec_tolerance (self.store.codec);
    uint64_t most = (uint64_t) ecfs_codec_k (self.store.codec) * ecfs_layout_area_bytes (&self.object.layout);
    for (unsigned round = 0; round < 12; round++) {
        unsigned n_lost = 1 + round % MIN (tolerance, SPARES);
        while (self.n_lost < n_lost) {
            unsigned index = (unsigned) g_test_rand_int_range (0, (gint32) self.store.n);
            if (!self.lost[index])
                lose (&self, index);
        }
        repair_and_check (&self, self.lost, areas);
        g_assert_cmpuint (self.read_bytes, <=, most);
    }
    free_areas (&self, areas);
    end (&self);
}

static void flip (const Fixture *self, unsigned index, uint64_t at)
{
    g_autofree char *path = object_stripe_path (&self->object, index);
    FILE *file = fopen (path, "r+");
    g_assert_nonnull (file);
    g_assert_cmpint (fseek (file, (long) at, SEEK_SET), ==, 0);
    int byte = fgetc (file);
    g_assert_cmpint (fseek (file, (long) at, SEEK_SET), ==, 0);
    g_assert_cmpint (fputc (byte ^ 0x20, file), !=, EOF);
    g_assert_cmpint (fclose (file), ==, 0);
}

/* Every stripe is damaged, each in another segment: what is right of them is enough. */
static void test_damaged (gconstpointer kind)
{
    Fixture self;
    char *areas[ECFS_CODEC_MAX_N];
    bool wanted[ECFS_CODEC_MAX_N] = {false};
    begin_under (&self, (EcfsSealKind) GPOINTER_TO_INT (kind), "file", "rs:4+2", MEMORY);
    keep_areas (&self, areas);
    uint64_t area_bytes = ecfs_layout_area_bytes (&self.object.layout);
    for (unsigned i = 0; i < self.store.n; i++) {
        unsigned segment = i % 4;
        flip (&self, i, ecfs_layout_block_offset (&self.object.layout, segment, 0) + 100 + i);
        wanted[i] = true;
    }
    repair_and_check (&self, wanted, areas);
    g_assert_cmpuint (self.read_bytes, <=, 6 * area_bytes); /* what is right of a stripe is read from itself */
    free_areas (&self, areas);
    end (&self);
}

static void test_too_many (void)
{
    Fixture self;
    EcfsWriterResult result;
    EcfsWriterTarget targets[ECFS_CODEC_MAX_N] = {0};
    begin (&self, "rs:4+2");
    for (unsigned i = 1; i < 4; i++)
        lose (&self, i);
    g_assert_cmpint (repair (&self, self.lost, targets, &result), ==, EIO);
    for (unsigned i = 1; i < 4; i++) {
        self.object.targets[i] = targets[i];
        g_autofree char *path = object_stripe_path (&self.object, i);
        g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
    }
    end (&self);
}

/* A stripe that ends, or an endpoint that fails in the middle: others serve. */
static void test_sources_fail (void)
{
    Fixture self;
    char *areas[ECFS_CODEC_MAX_N];
    begin_with (&self, "faulty", "rs:4+2", MEMORY);
    keep_areas (&self, areas);
    lose (&self, 1);
    atomic_store (&self.store.faults[0]->read_fail_after, 100000);
    atomic_store (&self.store.faults[0]->read_code, EIO);
    repair_and_check (&self, self.lost, areas);
    free_areas (&self, areas);
    end (&self);
}

static void test_little_memory (void)
{
    Fixture self;
    char *areas[ECFS_CODEC_MAX_N];
    begin_with (&self, "file", "rs:4+2", 1);
    keep_areas (&self, areas);
    lose (&self, 0);
    lose (&self, 5);
    repair_and_check (&self, self.lost, areas);
    free_areas (&self, areas);
    end (&self);
}

/* Lets a segment through at every second question, and counts. */
typedef struct Pace {
    atomic_uint n_asked;
    atomic_uint n_spent;
    _Atomic uint64_t spent_bytes;
} Pace;

static bool is_held (void *user)
{
    Pace *self = user;
    return atomic_fetch_add (&self->n_asked, 1) % 2 == 0;
}

static void spend (void *user, uint64_t bytes)
{
    Pace *self = user;
    atomic_fetch_add (&self->n_spent, 1);
    atomic_fetch_add (&self->spent_bytes, bytes);
}

/* It goes on segment by segment as it is let, with memory for one, and tells what it takes. */
static void test_paced (void)
{
    Fixture self;
    Pace counts = {0};
    const EcfsRepairPace pace = {.held = is_held, .spent = spend, .most_bytes = 1, .user = &counts};
    char *areas[ECFS_CODEC_MAX_N];
    begin (&self, "rs:4+2");
    keep_areas (&self, areas);
    bool wanted[ECFS_CODEC_MAX_N] = {false};
    lose (&self, 1);
    lose (&self, 4);
    wanted[1] = wanted[4] = true;
    self.pace = &pace;
    repair_and_check (&self, wanted, areas);
    uint64_t n_segments = ecfs_layout_n_segments (&self.object.layout);
    g_assert_cmpuint (atomic_load (&counts.n_asked), >=, 2 * n_segments);
    g_assert_cmpuint (atomic_load (&counts.n_spent), >=, n_segments);
    g_assert_cmpuint (atomic_load (&counts.spent_bytes), >=, SIZE / 4 * 6);
    free_areas (&self, areas);
    end (&self);
}

static void test_free_null (void)
{
    ecfs_repair_free (NULL);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* notices are what these tests provoke */
    static const char *const codes[] = {"copies:3", "rs:4+2", "rs:8+8", "ldpc:8+6", "basic:8+8"};
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++) {
        g_autofree char *sets = g_strdup_printf ("/repair/%s/lost-sets-are-stored-again-byte-for-byte", codes[i]);
        g_test_add_data_func (sets, codes[i], test_sets);
    }
    g_test_add_func ("/repair/one-lost-stripe-costs-what-its-code-takes", test_cost);
    g_test_add_data_func ("/repair/what-is-right-of-damaged-stripes-serves", GINT_TO_POINTER (ECFS_SEAL_NONE),
                          test_damaged);
    g_test_add_data_func ("/repair/under-a-key-tags-are-made-anew-and-the-same/hmac",
                          GINT_TO_POINTER (ECFS_SEAL_CTR_HMAC), test_damaged);
    g_test_add_data_func ("/repair/under-a-key-tags-are-made-anew-and-the-same/ghash",
                          GINT_TO_POINTER (ECFS_SEAL_CTR_GHASH), test_damaged);
    g_test_add_func ("/repair/too-many-lost-are-an-error-and-nothing-is-stored", test_too_many);
    g_test_add_func ("/repair/others-serve-where-a-source-fails", test_sources_fail);
    g_test_add_func ("/repair/memory-for-one-segment-is-enough", test_little_memory);
    g_test_add_func ("/repair/it-goes-on-as-it-is-let", test_paced);
    g_test_add_func ("/repair/freeing-nothing-is-fine", test_free_null);
    return g_test_run ();
}
