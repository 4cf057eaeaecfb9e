/* Content that grows while it is stored: the same stripes come of it as of content that is all there. */
#include "program/program.h"
#include "store.h"
#include "util/lock.h"

#include <string.h>

#define KIB     ((uint64_t) 1024)
#define MIB     (1024 * KIB)
#define MEMORY  (256 * MIB)
#define SEGMENT (64 * KIB)
#define BASE    777 /* where the object begins in the content */

typedef struct Writing {
    EcfsFeed *feed;
    const uint64_t *steps; /* what is there then; 0 ends them */
    bool abandons;
    uint64_t n_ended;
    uint64_t ended_size;
} Writing;

static Writing *current; /* a test has one at a time */

static void ended (void *user, uint64_t size)
{
    (void) user;
    current->n_ended++;
    current->ended_size = size;
}

static void *grow (void *data)
{
    Writing *writing = data;
    uint64_t last = 0;
    for (const uint64_t *step = writing->steps; *step != 0; step++) {
        g_usleep (1000); /* lanes are to have asked in vain; right without that too */
        ecfs_feed_grow (writing->feed, BASE + *step);
        last = *step;
    }
    if (writing->abandons)
        ecfs_feed_abandon (writing->feed);
    else
        ecfs_feed_finish (writing->feed, BASE + last);
    return NULL;
}

/* Has the content arrive by @steps. */
static int write_growing (Object *object, const uint64_t *steps, bool abandons)
{
    Writing writing = {.feed = ecfs_feed_new (), .steps = steps, .abandons = abandons};
    pthread_t thread;
    GArray *ranges = (GArray *) object->job.ranges;
    /* The file has no bytes in front of the object; only the feed does. */
    g_array_index (ranges, EcfsFileRange, 0).length = ECFS_OBJECT_MAX_BYTES;
    current = &writing;
    object->job.feed = writing.feed;
    object->job.feed_offset = BASE;
    object->job.most = ECFS_OBJECT_MAX_BYTES;
    object->job.ended = ended;
    object->job.size = 0;
    g_assert_cmpint (pthread_create (&thread, NULL, grow, &writing), ==, 0);
    int result = object_write (object, NULL);
    g_assert_cmpint (pthread_join (thread, NULL), ==, 0);
    ecfs_feed_unref (writing.feed);
    g_assert_cmpuint (writing.n_ended, ==, abandons ? 0 : 1);
    if (!abandons)
        g_assert_cmpuint (writing.ended_size, ==, object->size);
    return result;
}

static void check_same_as_at_once (Object *object)
{
    EcfsWriterResult grown = object->result;
    EcfsReader *reader = object_reader (object);
    g_assert_cmpint (object_read (object, reader, 0, object->size, NULL), ==, 0);
    ecfs_reader_close (reader);
    object->job.feed = NULL;
    object->job.size = object->size;
    for (unsigned i = 0; i < object->store->n; i++)
        object->targets[i] = (EcfsWriterTarget){.endpoint = object->store->endpoints[i], .instance = 9000 + i};
    g_assert_cmpint (object_write (object, NULL), ==, 0);
    g_assert_cmpmem (grown.object_digest, sizeof grown.object_digest, object->result.object_digest,
                     sizeof grown.object_digest);
    for (unsigned i = 0; i < object->store->n; i++) {
        g_assert_true (grown.stored[i]);
        g_assert_cmpmem (grown.stripe_digest[i], sizeof grown.stripe_digest[i], object->result.stripe_digest[i],
                         sizeof grown.stripe_digest[i]);
        g_assert_cmpuint (grown.stripe_bytes[i], ==, object->result.stripe_bytes[i]);
    }
    g_string_free (grown.failures, TRUE);
}

static void check_growing (Store *store, uint64_t size, const uint64_t *steps)
{
    Object object;
    object_init (&object, store, size, SEGMENT);
    g_assert_cmpint (write_growing (&object, steps, false), ==, 0);
    check_same_as_at_once (&object);
    object_clear (&object);
}

static void test_sizes (gconstpointer memory)
{
    Store store;
    store_init (&store, "file", "rs:4+2", 1, GPOINTER_TO_SIZE (memory));
    const uint64_t steps[][8] = {
        {1},                                              /* less than a segment */
        {SEGMENT},                                        /* exactly one */
        {SEGMENT, SEGMENT + 1},                           /* and a byte */
        {100, 5 * SEGMENT, 5 * SEGMENT + 3, 6 * SEGMENT}, /* the end is found behind the last segment */
        {SEGMENT - 1, SEGMENT, 3 * SEGMENT + 100, 3 * SEGMENT + 101, 40 * SEGMENT + 77},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (steps); i++) {
        uint64_t size = 0;
        for (const uint64_t *step = steps[i]; *step != 0; step++)
            size = *step;
        check_growing (&store, size, steps[i]);
    }
    store_clear (&store);
}

/* A stripe that fails in the middle begins at the spare with the first segment. */
static void test_spare (void)
{
    Store store;
    Object object;
    store_init (&store, "faulty", "rs:4+2", 1, MEMORY);
    object_init (&object, &store, 30 * SEGMENT + 5, SEGMENT);
    atomic_store (&store.faults[2]->write_fail_after, (long long) (3 * SEGMENT / 4));
    atomic_store (&store.faults[2]->write_code, EIO);
    const uint64_t steps[] = {9 * SEGMENT + 3, 20 * SEGMENT, object.size, 0};
    g_assert_cmpint (write_growing (&object, steps, false), ==, 0);
    g_assert_cmpuint (object.n_spares_used, ==, 1);
    faults_reset (store.faults[2]);
    check_same_as_at_once (&object);
    object_clear (&object);
    store_clear (&store);
}

static void test_abandoned (void)
{
    Store store;
    Object object;
    store_init (&store, "file", "rs:4+2", 0, MEMORY);
    object_init (&object, &store, 10 * SEGMENT, SEGMENT);
    const uint64_t steps[] = {3, 5 * SEGMENT, 0};
    g_assert_cmpint (write_growing (&object, steps, true), ==, ECANCELED);
    object_clear (&object);
    store_clear (&store);
}

static void *write_thread (void *object)
{
    g_assert_cmpint (object_write (object, NULL), ==, 0);
    return NULL;
}

/* Stripes that wait for their writer hold no memory that others need. */
static void test_waiting_holds_no_memory (void)
{
    Store store;
    Object object, other;
    store_init (&store, "file", "rs:4+2", 0, MIB);
    object_init (&object, &store, 12 * SEGMENT, SEGMENT);
    object_init (&other, &store, 40 * SEGMENT, SEGMENT);
    Writing writing = {.feed = ecfs_feed_new ()};
    current = &writing;
    g_array_index ((GArray *) object.job.ranges, EcfsFileRange, 0).length = ECFS_OBJECT_MAX_BYTES;
    object.job.feed = writing.feed;
    object.job.feed_offset = BASE;
    object.job.most = ECFS_OBJECT_MAX_BYTES;
    object.job.ended = ended;
    ecfs_feed_grow (writing.feed, BASE + 9 * SEGMENT + 5);
    pthread_t thread;
    g_assert_cmpint (pthread_create (&thread, NULL, write_thread, &object), ==, 0);
    for (unsigned i = 0; i < 5; i++) {
        for (unsigned j = 0; j < store.n; j++)
            other.targets[j].instance = 100 * i + j + 1;
        g_assert_cmpint (object_write (&other, NULL), ==, 0);
        g_string_free (g_steal_pointer (&other.result.failures), TRUE);
    }
    ecfs_feed_finish (writing.feed, BASE + object.size);
    g_assert_cmpint (pthread_join (thread, NULL), ==, 0);
    check_same_as_at_once (&object);
    ecfs_feed_unref (writing.feed);
    object_clear (&object);
    object_clear (&other);
    store_clear (&store);
}

/* The feed */

static void test_hold (void)
{
    EcfsFeed *feed = ecfs_feed_new ();
    EcfsFeedState state;
    ecfs_feed_grow (feed, 100);
    g_assert_true (ecfs_feed_take (feed, 50));
    g_assert_true (ecfs_feed_hold (feed, 60));
    g_assert_false (ecfs_feed_take (feed, 61));
    g_assert_true (ecfs_feed_take (feed, 60));
    ecfs_feed_grow (feed, 120);
    g_assert_true (ecfs_feed_take (feed, 120));
    g_assert_false (ecfs_feed_take (feed, 121));
    ecfs_feed_look (feed, &state);
    g_assert_false (state.abandoned || state.final);
    g_assert_false (ecfs_feed_hold (feed, 119));
    ecfs_feed_look (feed, &state);
    g_assert_true (state.abandoned);
    ecfs_feed_unref (feed);
    ecfs_feed_unref (NULL);
}

static void count (void *user)
{
    ++*(unsigned *) user;
}

/* Only what was asked for is told. */
static void test_watch (void)
{
    EcfsFeed *feed = ecfs_feed_new ();
    unsigned n_calls = 0;
    ecfs_feed_watch (feed, count, &n_calls);
    ecfs_feed_grow (feed, 10);
    g_assert_cmpuint (n_calls, ==, 0);
    g_assert_false (ecfs_feed_take (feed, 30));
    ecfs_feed_grow (feed, 29);
    g_assert_cmpuint (n_calls, ==, 0);
    ecfs_feed_grow (feed, 30);
    ecfs_feed_grow (feed, 31);
    g_assert_cmpuint (n_calls, ==, 1);
    ecfs_feed_finish (feed, 31);
    g_assert_cmpuint (n_calls, ==, 2);
    ecfs_feed_watch (feed, NULL, NULL);
    ecfs_feed_abandon (feed);
    g_assert_cmpuint (n_calls, ==, 2);
    ecfs_feed_wait (feed, 1000, INT64_MAX); /* it is final */
    ecfs_feed_unref (feed);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* notices are what these tests provoke */
    g_test_add_data_func ("/feed/makes-the-same-stripes", GSIZE_TO_POINTER (MEMORY), test_sizes);
    g_test_add_data_func ("/feed/makes-the-same-stripes-in-little-memory", GSIZE_TO_POINTER (SEGMENT), test_sizes);
    g_test_add_func ("/feed/a-spare-begins-anew", test_spare);
    g_test_add_func ("/feed/abandoned-ends-the-run", test_abandoned);
    g_test_add_func ("/feed/waiting-holds-no-memory", test_waiting_holds_no_memory);
    g_test_add_func ("/feed/what-changes-is-not-given-away", test_hold);
    g_test_add_func ("/feed/tells-what-was-asked-for", test_watch);
    return g_test_run ();
}
