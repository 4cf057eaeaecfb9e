/* Storing objects: the right bytes on every endpoint, and what happens when endpoints fail, stall or crawl. */
#include "object/writer_priv.h"
#include "program/program.h"
#include "store.h"
#include "stripe.h"
#include "util/io.h"
#include "util/lock.h"

#include <string.h>
#include <unistd.h>

#define KIB    ((uint64_t) 1024)
#define MIB    (1024 * KIB)
#define MEMORY (256 * MIB)

#define LATE_US (200 * 1000)

static void check_stripes (const Object *object)
{
    const EcfsStripeHeader *header = &object->job.header;
    for (unsigned i = 0; i < object->store->n; i++) {
        if (!object->result.stored[i])
            continue;
        g_autofree char *path = object_stripe_path (object, i);
        g_autofree char *bytes = NULL;
        size_t size;
        g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
        g_assert_cmpuint (size, ==, object->result.stripe_bytes[i]);
        StripeExpected expected = {.archive = header->archive.bytes,
                                   .object = header->object.bytes,
                                   .instance = object->targets[i].instance,
                                   .sequence = header->sequence,
                                   .epoch = header->epoch,
                                   .family = header->family,
                                   .k = header->k,
                                   .n = header->n_written,
                                   .index = i,
                                   .segment_bytes = header->segment_bytes,
                                   .block_bytes = header->block_bytes,
                                   .granule = header->granule,
                                   .content = object->content,
                                   .size = object->size};
        uint8_t digest[ECFS_STRIPE_DIGEST_BYTES];
        stripe_check ((const uint8_t *) bytes, size, &expected, digest);
        g_assert_cmpmem (digest, sizeof digest, object->result.stripe_digest[i], sizeof digest);
    }
}

/* Writes, checks every stripe, reads all back. */
static void write_and_check (Store *store, uint64_t size, uint32_t segment_bytes)
{
    Object object;
    g_autofree char *text = NULL;
    object_init (&object, store, size, segment_bytes);
    g_assert_cmpint (object_write (&object, &text), ==, 0);
    g_assert_cmpstr (text, ==, "");
    g_assert_cmpuint (object_n_stored (&object), ==, store->n);
    check_stripes (&object);
    EcfsReader *reader = object_reader (&object);
    g_assert_cmpint (object_read (&object, reader, 0, size, NULL), ==, 0);
    ecfs_reader_close (reader);
    object_clear (&object);
}

static void test_sizes (gconstpointer code)
{
    Store store;
    store_init (&store, "file", code, 0, MEMORY);
    uint64_t granule = ecfs_codec_granule (store.codec);
    uint32_t segment = ecfs_layout_segment_bytes (256 * KIB, ecfs_codec_k (store.codec), granule);
    uint64_t sizes[] = {1,           100,     granule,     granule + 1,     MAX (granule - 1, 1),
                        segment - 1, segment, segment + 1, 3 * segment + 7, 2 * segment - granule};
    for (size_t i = 0; i < G_N_ELEMENTS (sizes); i++)
        write_and_check (&store, sizes[i], segment);
    store_clear (&store);
}

static void test_many_segments (gconstpointer code)
{
    Store store;
    store_init (&store, "file", code, 0, MEMORY);
    write_and_check (
        &store, 10 * MIB + 12345,
        ecfs_layout_segment_bytes (512 * KIB, ecfs_codec_k (store.codec), ecfs_codec_granule (store.codec)));
    store_clear (&store);
}

/* The content lies in pieces at odd places of the file. */
static void test_ranges (void)
{
    Store store;
    Object object;
    store_init (&store, "file", "rs:4+2", 0, MEMORY);
    object_init (&object, &store, 900 * KIB + 3, 256 * KIB);
    const uint64_t lengths[] = {1, 70000, 256 * KIB, 5, 4096};
    GArray *ranges = g_array_new (FALSE, FALSE, sizeof (EcfsFileRange));
    uint64_t at = 0, file_at = 3 * MIB;
    for (size_t i = 0; at < object.size; i++) {
        EcfsFileRange range = {.file_offset = file_at,
                               .length = MIN (lengths[i % G_N_ELEMENTS (lengths)], object.size - at),
                               .object_offset = at};
        g_assert_cmpint (ecfs_pwrite_all (object.job.fd, object.content + at, range.length, file_at), ==, 0);
        g_array_append_val (ranges, range);
        at += range.length;
        file_at += range.length + 1 + 37 * i;
    }
    g_array_unref ((GArray *) object.job.ranges);
    object.job.ranges = ranges;
    g_assert_cmpint (object_write (&object, NULL), ==, 0);
    check_stripes (&object);
    object_clear (&object);
    store_clear (&store);
}

static void test_spare (gconstpointer where)
{
    Store store;
    Object object;
    g_autofree char *text = NULL;
    store_init (&store, "faulty", "rs:4+2", 2, MEMORY);
    for (unsigned i = 1; i <= 4; i += 3) {
        atomic_store (&store.faults[i]->write_fail_after, GPOINTER_TO_INT (where) * (long long) (i + 3) * 10000);
        atomic_store (&store.faults[i]->write_code, ENOSPC);
    }
    object_init (&object, &store, 20 * MIB + 1, 1 * MIB);
    g_assert_cmpint (object_write (&object, &text), ==, 0);
    g_assert_cmpuint (object_n_stored (&object), ==, 6);
    g_assert_cmpuint (object.n_spares_used, ==, 2);
    g_assert_nonnull (strstr (text, "endpoint e1: "));
    g_assert_nonnull (strstr (text, "endpoint e4: "));
    check_stripes (&object);
    object_clear (&object);
    store_clear (&store);
}

static void test_commit_fails (void)
{
    Store store;
    Object object;
    store_init (&store, "faulty", "rs:4+2", 1, MEMORY);
    atomic_store (&store.faults[5]->commit_code, EDQUOT);
    object_init (&object, &store, 5 * MIB, 1 * MIB);
    g_assert_cmpint (object_write (&object, NULL), ==, 0);
    g_assert_cmpuint (object_n_stored (&object), ==, 6);
    check_stripes (&object);
    object_clear (&object);
    store_clear (&store);
}

static bool (*replace_as_ever) (void *user, unsigned index, const GError *error, EcfsWriterTarget *target);

static bool change_and_replace (void *user, unsigned index, const GError *error, EcfsWriterTarget *target)
{
    Object *object = user;
    uint8_t byte = (uint8_t) ~object->content[3 * MIB];
    g_assert_cmpint (ecfs_pwrite_all (object->job.fd, &byte, 1, 3 * MIB), ==, 0);
    return replace_as_ever (user, index, error, target);
}

/* A stripe begins anew when the others are there, of content that is not what these were made of. */
static void test_content_changes (void)
{
    Store store;
    Object object;
    store_init (&store, "faulty", "rs:4+2", 1, MEMORY);
    atomic_store (&store.faults[5]->commit_code, EDQUOT);
    object_init (&object, &store, 40 * MIB, 1 * MIB);
    replace_as_ever = object.job.replace;
    object.job.replace = change_and_replace;
    g_assert_cmpint (object_write (&object, NULL), ==, ECANCELED);
    g_assert_cmpuint (object.n_spares_used, ==, 1);
    object_clear (&object);
    store_clear (&store);
}

static void test_no_spare (void)
{
    Store store;
    Object object;
    g_autofree char *text = NULL;
    store_init (&store, "faulty", "rs:4+2", 0, MEMORY);
    atomic_store (&store.faults[2]->write_fail_after, 300000);
    atomic_store (&store.faults[2]->write_code, ENOSPC);
    object_init (&object, &store, 10 * MIB, 1 * MIB);
    g_assert_cmpint (object_write (&object, &text), ==, 0);
    g_assert_cmpuint (object_n_stored (&object), ==, 5);
    g_assert_false (object.result.stored[2]);
    g_assert_nonnull (strstr (text, "endpoint e2: "));
    check_stripes (&object);
    EcfsReader *reader = object_reader (&object);
    g_assert_cmpint (object_read (&object, reader, 0, object.size, NULL), ==, 0);
    ecfs_reader_close (reader);
    object_clear (&object);
    store_clear (&store);
}

/* Two stripes of six are gone and five are asked for: the others, which hang, need not go on. */
static void test_impossible (void)
{
    Store store;
    Object object;
    g_autofree char *text = NULL;
    store_init (&store, "faulty", "rs:4+2", 0, MEMORY);
    for (unsigned i = 0; i < 6; i++)
        atomic_store (&store.faults[i]->write_stall_at, 400000);
    for (unsigned i = 1; i <= 2; i++) {
        atomic_store (&store.faults[i]->write_fail_after, 300000);
        atomic_store (&store.faults[i]->write_code, ENOSPC);
    }
    object_init (&object, &store, 10 * MIB, 1 * MIB);
    object.least = 5;
    g_assert_cmpint (object_write (&object, &text), ==, EIO);
    g_assert_nonnull (strstr (text, "endpoint e1: "));
    g_assert_nonnull (strstr (text, "endpoint e2: "));
    object_clear (&object);
    store_clear (&store);
}

/* All streams fail at the same byte; at the first, often before the writer looks at any. */
static void test_all_fail (gconstpointer no_spares)
{
    Store store;
    store_init (&store, "faulty", "rs:4+2", 6, MEMORY);
    for (unsigned round = 0; round < 20; round++) {
        Object object;
        for (unsigned i = 0; i < 12; i++) {
            atomic_store (&store.faults[i]->write_fail_after, round % 2 == 0 ? 0 : 500000);
            atomic_store (&store.faults[i]->write_code, ENOTCONN);
        }
        object_init (&object, &store, 4 * MIB, 1 * MIB);
        object.no_spares = GPOINTER_TO_INT (no_spares);
        g_assert_cmpint (object_write (&object, NULL), ==, EIO);
        object_clear (&object);
    }
    store_clear (&store);
}

static void test_shrinks (void)
{
    Store store;
    Object object;
    store_init (&store, "file", "rs:4+2", 0, MEMORY);
    object_init (&object, &store, 10 * MIB, 1 * MIB);
    g_assert_cmpint (ftruncate (object.job.fd, 10 * MIB - 1), ==, 0);
    g_assert_cmpint (object_write (&object, NULL), ==, EIO);
    for (unsigned i = 0; i < store.n; i++) {
        g_autofree char *path = object_stripe_path (&object, i);
        g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
    }
    object_clear (&object);
    store_clear (&store);
}

static void test_expected_digest (gconstpointer bytes)
{
    Store store;
    Object object;
    store_init (&store, "file", "rs:4+2", 0, MEMORY);
    object_init (&object, &store, GPOINTER_TO_SIZE (bytes), 256 * KIB);
    g_assert_cmpint (object_write (&object, NULL), ==, 0);
    uint8_t digest[ECFS_STRIPE_DIGEST_BYTES];
    memcpy (digest, object.result.object_digest, sizeof digest);
    g_string_free (g_steal_pointer (&object.result.failures), TRUE);
    object.job.expected_digest = digest;
    for (unsigned i = 0; i < store.n; i++)
        object.targets[i].instance += 10;
    g_assert_cmpint (object_write (&object, NULL), ==, 0);
    for (unsigned i = 0; i < store.n; i++)
        object.targets[i].instance += 10;
    g_string_free (g_steal_pointer (&object.result.failures), TRUE);
    digest[7] ^= 1;
    g_assert_cmpint (object_write (&object, NULL), ==, ESTALE);
    for (unsigned i = 0; i < store.n; i++) {
        g_autofree char *path = object_stripe_path (&object, i);
        g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
    }
    object_clear (&object);
    store_clear (&store);
}

static bool at_once (void *user)
{
    return true;
}

static void test_cancelled (void)
{
    Store store;
    Object object;
    store_init (&store, "faulty", "rs:4+2", 0, MEMORY);
    for (unsigned i = 0; i < 6; i++)
        atomic_store (&store.faults[i]->write_stall_at, 400000);
    object_init (&object, &store, 10 * MIB, 1 * MIB);
    object.job.cancelled = at_once;
    g_assert_cmpint (object_write (&object, NULL), ==, ECANCELED);
    object_clear (&object);
    store_clear (&store);
}

typedef struct Writing {
    Object object;
    pthread_t thread;
    int code;
    atomic_bool ended;
} Writing;

static void *run_writing (void *data)
{
    Writing *self = data;
    self->code = object_write (&self->object, NULL);
    atomic_store (&self->ended, true);
    return NULL;
}

/* Until the stripes that are watched are stored, and a moment longer, in which what should not happen would. */
static void wait_until_stored (const Object *object, const bool *watched)
{
    int64_t deadline_us = ecfs_now_us () + STORE_DEADLINE_US;
    for (unsigned i = 0; i < object->store->n; i++) {
        g_autofree char *path = object_stripe_path (object, i);
        while (watched[i] && !g_file_test (path, G_FILE_TEST_EXISTS)) {
            g_assert_cmpint (ecfs_now_us (), <, deadline_us);
            g_usleep (1000);
        }
    }
    g_usleep (LATE_US);
}

/* One endpoint stops early; the others take everything meanwhile. Then it goes on, and gets what it missed. */
static void test_slow_catches_up (gconstpointer memory)
{
    Store store;
    Writing writing = {0};
    store_init (&store, "faulty", "rs:4+2", 0, GPOINTER_TO_SIZE (memory));
    atomic_store (&store.faults[3]->write_stall_at, 100000);
    object_init (&writing.object, &store, 30 * MIB, 512 * KIB);
    g_assert_cmpint (pthread_create (&writing.thread, NULL, run_writing, &writing), ==, 0);
    const bool others[] = {true, true, true, false, true, true};
    wait_until_stored (&writing.object, others);
    g_assert_false (atomic_load (&writing.ended));
    atomic_store (&store.faults[3]->write_stall_at, FAULTS_NEVER);
    pthread_join (writing.thread, NULL);
    g_assert_cmpint (writing.code, ==, 0);
    g_assert_cmpuint (object_n_stored (&writing.object), ==, 6);
    check_stripes (&writing.object);
    object_clear (&writing.object);
    store_clear (&store);
}

/* Encoding for one that is behind may cost a twentieth of the time; the others wait for it as long as it would cost
 * more.
 */
static void test_keeping_up (void)
{
    EcfsWriter writer = {.began_us = 1000000, .n_encoded = 100, .encoding_us = 100 * 2000};
    EcfsUpload begun = {.segment = 7, .pulled_us = 5000000}, coming = {.segment = 0};
    const struct {
        int64_t usual_us, pause_us;
        bool waited_for;
    } cases[] = {{39000, 39000, true}, {41000, 41000, false}, {41000, 0, true},  {0, 0, true},
                 {0, 319000, true},    {0, 321000, false},    {900000, 0, false}};
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        begun.usual_us = cases[i].usual_us;
        g_assert_true (ecfs_writer_keeps_up (&writer, &begun, begun.pulled_us + cases[i].pause_us) ==
                       cases[i].waited_for);
    }
    g_assert_true (ecfs_writer_keeps_up (&writer, &coming, writer.began_us + 900000));
    g_assert_false (ecfs_writer_keeps_up (&writer, &coming, writer.began_us + 1100000));
}

/* Endpoints @from to @to - 1 hang, and show it. */
static void hang (Store *store, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        atomic_store (&store->faults[i]->owes, true);
        atomic_store (&store->faults[i]->write_stall_at, 0);
    }
}

static void write_and_read (Object *object)
{
    g_assert_cmpint (object_write (object, NULL), ==, 0);
    check_stripes (object);
    EcfsReader *reader = object_reader (object);
    g_assert_cmpint (object_read (object, reader, 0, object->size, NULL), ==, 0);
    ecfs_reader_close (reader);
}

/* Whether the object is written without lanes that hang, for good, and they do no harm to what follows. */
static void write_around (Object *object, unsigned n_stored)
{
    write_and_read (object);
    g_assert_cmpuint (object_n_stored (object), ==, n_stored);
}

static void test_late_is_left_out (gconstpointer bytes)
{
    Store store;
    Object object;
    store_init (&store, "faulty", "rs:4+2", 0, MEMORY);
    hang (&store, 2, 3);
    object_init (&object, &store, GPOINTER_TO_SIZE (bytes), 1 * MIB);
    object.least = 5;
    object.job.patient = false;
    write_around (&object, 5);
    g_assert_false (object.result.stored[2]);
    g_assert_cmpstr (object.result.failures->str, ==, "");
    object_clear (&object);
    store_clear (&store);
}

static void test_late_goes_to_a_spare (void)
{
    Store store;
    Object object;
    store_init (&store, "faulty", "rs:4+2", 8, MEMORY); /* also for others that are late on a busy machine */
    hang (&store, 1, 3);
    object_init (&object, &store, 1 * MIB, 256 * KIB);
    object.least = 6;
    object.job.patient = false;
    write_around (&object, 6);
    g_assert_cmpuint (object.n_spares_used, >=, 2);
    object_clear (&object);
    store_clear (&store);
}

/* It is not waited for that others are through: by the time the spare begins, one of them has come to a stop. */
static void test_silent_goes_to_a_spare (void)
{
    Store store;
    Writing writing = {0};
    store_init (&store, "faulty", "rs:4+2", 8, MEMORY); /* also for others that are silent on a busy machine */
    hang (&store, 1, 2);
    atomic_store (&store.faults[3]->write_stall_at, 100000);
    object_init (&writing.object, &store, 30 * MIB, 512 * KIB);
    writing.object.job.patient = false;
    g_assert_cmpint (pthread_create (&writing.thread, NULL, run_writing, &writing), ==, 0);
    int64_t deadline_us = ecfs_now_us () + STORE_DEADLINE_US;
    while (atomic_load (&store.faults[6]->n_writes) == 0) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (1000);
    }
    g_assert_false (atomic_load (&writing.ended));
    atomic_store (&store.faults[3]->write_stall_at, FAULTS_NEVER);
    pthread_join (writing.thread, NULL);
    g_assert_cmpint (writing.code, ==, 0);
    g_assert_cmpuint (object_n_stored (&writing.object), ==, 6);
    check_stripes (&writing.object);
    object_clear (&writing.object);
    store_clear (&store);
}

static EcfsRest leave_rest (void *user, const EcfsWriterResult *result)
{
    (void) user;
    (void) result;
    return ECFS_REST_LEFT;
}

/* What is stored suffices when one that hangs was looked at twice. While nothing is offered the writer asks for that
 * once in each of its looks, and from the second on, with lanes that are late only, twice. */
static bool suffices_late (void *user, const bool *stripes)
{
    const Object *object = user;
    static unsigned n_looks;
    EcfsEndpointHealth health;
    unsigned n_stripes = 0;
    for (unsigned i = 0; i < object->store->n; i++)
        n_stripes += stripes[i];
    ecfs_endpoint_health (object->store->endpoints[2], &health);
    bool suspect = health.suspect;
    ecfs_endpoint_health_clear (&health);
    if (n_stripes == object->store->n)
        return true;
    n_looks += suspect;
    return n_looks >= 4;
}

/* Lanes that are left when enough is stored are not looked at any more, also where they were late by then. */
static void test_late_ones_are_left_with_the_rest (void)
{
    Store store;
    Object object;
    store_init (&store, "faulty", "rs:4+2", 0, MEMORY);
    hang (&store, 2, 3);
    object_init (&object, &store, 100000, 1 * MIB);
    object.least = 5;
    object.job.patient = false;
    object.job.at_quorum = true;
    object.job.enough = leave_rest;
    object.job.possible = suffices_late;
    write_around (&object, 5);
    g_assert_false (object.result.stored[2]);
    object_clear (&object);
    store_clear (&store);
}

/* A large stripe is not sent again where it is not needed: that would keep the caller waiting. Only while the others
 * are under way anyway it begins at a spare. */
static void test_late_and_large_is_left_out (void)
{
    Store store;
    Object object;
    store_init (&store, "faulty", "rs:4+2", 2, MEMORY);
    hang (&store, 5, 6);
    object_init (&object, &store, 24 * MIB, 1 * MIB);
    object.least = 5;
    object.job.patient = false;
    write_and_read (&object);
    if (object.n_spares_used == 0)
        g_assert_cmpuint (object_n_stored (&object), ==, 5);
    object_clear (&object);
    store_clear (&store);
}

/* Two that hang are too many, so they are waited for; when one goes on, the other is not any more. */
static void test_late_but_needed (gconstpointer patient)
{
    Store store;
    Writing writing = {0};
    store_init (&store, "faulty", "rs:4+2", 0, MEMORY);
    hang (&store, 0, 2);
    object_init (&writing.object, &store, 3 * MIB, 512 * KIB);
    writing.object.least = 5;
    writing.object.job.patient = GPOINTER_TO_INT (patient);
    g_assert_cmpint (pthread_create (&writing.thread, NULL, run_writing, &writing), ==, 0);
    const bool others[] = {false, false, true, true, true, true};
    wait_until_stored (&writing.object, others);
    g_assert_false (atomic_load (&writing.ended));
    atomic_store (&store.faults[1]->write_stall_at, FAULTS_NEVER);
    if (GPOINTER_TO_INT (patient)) {
        const bool all_but_one[] = {false, true, true, true, true, true};
        wait_until_stored (&writing.object, all_but_one);
        g_assert_false (atomic_load (&writing.ended));
        atomic_store (&store.faults[0]->write_stall_at, FAULTS_NEVER);
    }
    pthread_join (writing.thread, NULL);
    g_assert_cmpint (writing.code, ==, 0);
    g_assert_cmpuint (object_n_stored (&writing.object), ==, GPOINTER_TO_INT (patient) ? 6 : 5);
    check_stripes (&writing.object);
    object_clear (&writing.object);
    store_clear (&store);
}

/* Lanes that were left out let go of what they hold when their endpoint is stopped, long after their run. */
static void test_late_ones_outlive_their_run (void)
{
    Store store;
    store_init (&store, "faulty", "rs:4+2", 0, 8 * MIB);
    hang (&store, 4, 5);
    for (unsigned i = 0; i < 6; i++) {
        Object object;
        object_init (&object, &store, 4 * MIB, 512 * KIB);
        object.least = 5;
        object.job.patient = false;
        write_around (&object, 5);
        object_clear (&object);
    }
    store_clear (&store);
}

/* A spare begins from the start while the others wait far ahead, and memory holds two segments. */
static void test_late_spare_in_little_memory (void)
{
    Store store;
    Object object;
    EcfsLayout layout = {.size = 30 * MIB,
                         .segment_bytes = 512 * KIB,
                         .block_bytes = ECFS_BLOCK_MAX_BYTES,
                         .granule = 1,
                         .k = 4,
                         .tag_bytes = ECFS_TAG_CHECKSUM_BYTES};
    store_init (&store, "faulty", "rs:4+2", 2, 2 * ecfs_segment_bytes (&layout, 6, 0));
    for (unsigned i = 0; i < 2; i++) {
        atomic_store (&store.faults[i]->write_fail_after, 2000000 + 700000 * i);
        atomic_store (&store.faults[i]->write_code, ENOSPC);
        atomic_store (&store.faults[6 + i]->pace_us, 1000);
    }
    object_init (&object, &store, layout.size, layout.segment_bytes);
    g_assert_cmpint (object_write (&object, NULL), ==, 0);
    g_assert_cmpuint (object_n_stored (&object), ==, 6);
    check_stripes (&object);
    object_clear (&object);
    store_clear (&store);
}

/* Writers whose endpoints fail and readers of two segments at a time, in memory for two segments. */
static void test_little_memory (void)
{
    Store store;
    Object stored;
    Writing writings[3] = {0};
    store_init (&store, "faulty", "rs:4+2", 3, 2 * MIB);
    object_init (&stored, &store, 8 * MIB, 512 * KIB);
    g_assert_cmpint (object_write (&stored, NULL), ==, 0);
    atomic_store (&store.faults[0]->write_fail_after, 1000000);
    atomic_store (&store.faults[0]->write_code, ENOSPC);
    atomic_store (&store.faults[1]->pace_us, 500);
    for (unsigned w = 0; w < 3; w++) {
        object_init (&writings[w].object, &store, 10 * MIB, 512 * KIB);
        g_assert_cmpint (pthread_create (&writings[w].thread, NULL, run_writing, &writings[w]), ==, 0);
    }
    EcfsReader *readers[3];
    for (unsigned r = 0; r < 3; r++)
        readers[r] = object_reader (&stored);
    for (uint64_t at = 0; at + MIB <= stored.size; at += MIB) {
        Reading *readings[3];
        for (unsigned r = 0; r < 3; r++)
            readings[r] = reading_begin (&stored, readers[r], (at + r * 2 * MIB + 1000) % (7 * MIB), MIB);
        for (unsigned r = 0; r < 3; r++)
            g_assert_cmpint (reading_finish (readings[r], NULL), ==, 0);
    }
    for (unsigned r = 0; r < 3; r++)
        ecfs_reader_close (readers[r]);
    for (unsigned w = 0; w < 3; w++) {
        pthread_join (writings[w].thread, NULL);
        g_assert_cmpint (writings[w].code, ==, 0);
        g_assert_cmpuint (object_n_stored (&writings[w].object), ==, 6);
        check_stripes (&writings[w].object);
        object_clear (&writings[w].object);
    }
    object_clear (&stored);
    store_clear (&store);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* notices are what these tests provoke */
    static const char *const codes[] = {"copies:3", "rs:2+1", "rs:4+2", "rs:8+3"};
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++) {
        g_autofree char *sizes = g_strdup_printf ("/writer/%s/stores-every-size", codes[i]);
        g_autofree char *many = g_strdup_printf ("/writer/%s/stores-many-segments", codes[i]);
        g_test_add_data_func (sizes, codes[i], test_sizes);
        g_test_add_data_func (many, codes[i], test_many_segments);
    }
    static const char *const binary_codes[] = {"ldpc:5+3", "ldpc:8+6", "basic:4+4", "basic:8+8", "basic:14+14"};
    for (size_t i = 0; i < G_N_ELEMENTS (binary_codes); i++) {
        g_autofree char *sizes = g_strdup_printf ("/writer/%s/stores-every-size", binary_codes[i]);
        g_test_add_data_func (sizes, binary_codes[i], test_sizes);
    }
    g_test_add_func ("/writer/stores-content-that-lies-in-pieces", test_ranges);
    g_test_add_data_func ("/writer/failing-at-once-goes-to-a-spare", GINT_TO_POINTER (0), test_spare);
    g_test_add_data_func ("/writer/failing-midway-goes-to-a-spare", GINT_TO_POINTER (50), test_spare);
    g_test_add_func ("/writer/failing-at-the-commit-goes-to-a-spare", test_commit_fails);
    g_test_add_func ("/writer/content-that-is-not-the-same-when-read-again-fails-it", test_content_changes);
    g_test_add_func ("/writer/failing-without-a-spare-is-left-out", test_no_spare);
    g_test_add_func ("/writer/what-cannot-be-committed-ends-at-once", test_impossible);
    g_test_add_data_func ("/writer/all-fail-at-once-without-spares", GINT_TO_POINTER (1), test_all_fail);
    g_test_add_data_func ("/writer/all-fail-at-once-and-their-spares-too", GINT_TO_POINTER (0), test_all_fail);
    g_test_add_func ("/writer/content-that-shrinks-is-an-error", test_shrinks);
    g_test_add_data_func ("/writer/changed-content-is-stale", GSIZE_TO_POINTER (2 * MIB), test_expected_digest);
    g_test_add_data_func ("/writer/changed-small-content-is-stale", GSIZE_TO_POINTER (100), test_expected_digest);
    g_test_add_func ("/writer/can-be-cancelled", test_cancelled);
    g_test_add_data_func ("/writer/a-slow-endpoint-holds-up-nobody-and-catches-up", GSIZE_TO_POINTER (MEMORY),
                          test_slow_catches_up);
    g_test_add_data_func ("/writer/a-slow-endpoint-holds-up-nobody-in-little-memory", GSIZE_TO_POINTER (4 * MIB),
                          test_slow_catches_up);
    g_test_add_func ("/writer/others-wait-for-who-keeps-up", test_keeping_up);
    g_test_add_data_func ("/writer/late-is-left-out", GSIZE_TO_POINTER (2 * MIB), test_late_is_left_out);
    g_test_add_data_func ("/writer/late-and-small-is-left-out", GSIZE_TO_POINTER (1000), test_late_is_left_out);
    g_test_add_func ("/writer/late-ones-are-left-with-the-rest", test_late_ones_are_left_with_the_rest);
    g_test_add_func ("/writer/late-goes-to-a-spare", test_late_goes_to_a_spare);
    g_test_add_func ("/writer/silent-goes-to-a-spare-at-once", test_silent_goes_to_a_spare);
    g_test_add_func ("/writer/late-and-large-is-left-out", test_late_and_large_is_left_out);
    g_test_add_data_func ("/writer/late-but-needed-is-waited-for", GINT_TO_POINTER (0), test_late_but_needed);
    g_test_add_data_func ("/writer/late-is-waited-for-by-the-patient", GINT_TO_POINTER (1), test_late_but_needed);
    g_test_add_func ("/writer/late-ones-outlive-their-run", test_late_ones_outlive_their_run);
    g_test_add_func ("/writer/a-late-spare-needs-no-more-memory", test_late_spare_in_little_memory);
    g_test_add_func ("/writer/writers-and-readers-share-little-memory", test_little_memory);
    return g_test_run ();
}
