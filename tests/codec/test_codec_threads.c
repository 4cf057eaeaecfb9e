/* Codecs and plans that threads share. */
#include "rows.h"
#include "segment.h"
#include "util/lock.h"

#include <string.h>

typedef struct Shared {
    const EcfsCodec *codec;
    const EcfsPlan *plan;
    const Segment *segment;
    bool lost[ECFS_CODEC_MAX_N];
} Shared;

static void use_shared (void *data)
{
    const Shared *shared = data;
    const Segment *segment = shared->segment;
    g_autofree uint8_t *bytes = g_malloc0 (segment->n * segment->packet_bytes);
    uint8_t *packets[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < segment->n; i++) {
        packets[i] = bytes + i * segment->packet_bytes;
        if (!shared->lost[i])
            memcpy (packets[i], segment->packets[i], segment->packet_bytes);
    }
    ecfs_plan_run (shared->plan, packets, segment->packet_bytes);
    for (unsigned i = 0; i < segment->n; i++)
        g_assert_true (memcmp (packets[i], segment->packets[i], segment->packet_bytes) == 0);
    for (unsigned i = segment->k; i < segment->n; i++)
        memset (packets[i], 0, segment->packet_bytes);
    ecfs_codec_encode (shared->codec, (const uint8_t *const *) packets, packets + segment->k, segment->packet_bytes);
    for (unsigned i = segment->k; i < segment->n; i++)
        g_assert_true (memcmp (packets[i], segment->packets[i], segment->packet_bytes) == 0);
}

static void test_threads (const void *data)
{
    const Row *row = data;
    g_autoptr (EcfsCodec) codec = segment_codec_by (row->code, row->provider);
    g_autoptr (Segment) segment = segment_new (codec, 16 * ecfs_codec_granule (codec), SEGMENT_AT_END, 0);
    Shared shared = {.codec = codec, .segment = segment};
    bool present[ECFS_CODEC_MAX_N] = {0};
    segment_random_loss (row->n, row->tolerance, shared.lost);
    for (unsigned i = 0; i < row->n; i++)
        present[i] = !shared.lost[i];
    g_autoptr (EcfsPlan) plan = ecfs_codec_plan (codec, present, shared.lost, NULL);
    shared.plan = plan;
    EcfsWorkers *workers = ecfs_workers_new ("codec", 4);
    for (unsigned i = 0; i < 40; i++)
        ecfs_workers_push (workers, use_shared, &shared);
    ecfs_workers_free (workers);
}

static void make_codec (void *data)
{
    g_autoptr (EcfsCodec) codec = segment_codec (data);
    g_assert_cmpuint (ecfs_codec_k (codec), ==, 4);
}

/* First in main, so that the self-test's once is among what they race for. */
static void test_threads_make_codecs (void)
{
    EcfsWorkers *workers = ecfs_workers_new ("codec-new", 4);
    for (unsigned i = 0; i < 16; i++)
        ecfs_workers_push (workers, make_codec, (void *) "rs:4+2");
    ecfs_workers_free (workers);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/codec/threads-may-make-codecs-at-once", test_threads_make_codecs);
    for (size_t i = 0; i < codec_n_rows; i++) {
        g_autofree char *path = codec_test_path (&codec_rows[i], "is-shared-by-threads");
        g_test_add_data_func (path, &codec_rows[i], test_threads);
    }
    return g_test_run ();
}
