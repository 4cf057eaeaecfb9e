#include "segment.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void fill_random (uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t) g_test_rand_int ();
}

static uint8_t *map_packet (Segment *self, void **ret_mapping, SegmentEdge edge, size_t shift)
{
    size_t page = (size_t) sysconf (_SC_PAGESIZE);
    size_t inner = (self->packet_bytes + shift + page - 1) / page * page;
    self->mapping_bytes = inner + 2 * page;
    uint8_t *mapping = mmap (NULL, self->mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    g_assert_true (mapping != MAP_FAILED);
    g_assert_cmpint (mprotect (mapping + page, inner, PROT_READ | PROT_WRITE), ==, 0);
    *ret_mapping = mapping;
    return edge == SEGMENT_AT_START ? mapping + page + shift : mapping + page + inner - self->packet_bytes - shift;
}

Segment *segment_new (const EcfsCodec *codec, size_t packet_bytes, SegmentEdge edge, size_t shift)
{
    Segment *self = g_new0 (Segment, 1);
    self->k = ecfs_codec_k (codec);
    self->n = ecfs_codec_n (codec);
    self->packet_bytes = packet_bytes;
    for (unsigned i = 0; i < self->n; i++) {
        self->packets[i] = map_packet (self, &self->mappings[2 * i], edge, shift);
        self->work[i] = map_packet (self, &self->mappings[2 * i + 1], edge, shift);
        fill_random (self->packets[i], packet_bytes);
        if (i < self->k)
            memcpy (self->work[i], self->packets[i], packet_bytes);
    }
    ecfs_codec_encode (codec, (const uint8_t *const *) self->packets, self->packets + self->k, packet_bytes);
    for (unsigned i = 0; i < self->k; i++)
        g_assert_true (memcmp (self->packets[i], self->work[i], packet_bytes) == 0); /* data is only read */
    return self;
}

void segment_free (Segment *self)
{
    if (self == NULL)
        return;
    for (unsigned i = 0; i < 2 * self->n; i++)
        g_assert_cmpint (munmap (self->mappings[i], self->mapping_bytes), ==, 0);
    g_free (self);
}

void segment_lose (Segment *self, const bool *lost)
{
    for (unsigned i = 0; i < self->n; i++)
        for (size_t at = 0; at < self->packet_bytes; at++)
            self->work[i][at] = lost[i] ? self->packets[i][at] ^ 0x5a : self->packets[i][at];
}

void segment_check (const Segment *self, const bool *lost)
{
    for (unsigned i = 0; i < self->n; i++)
        if (memcmp (self->work[i], self->packets[i], self->packet_bytes) != 0)
            g_error ("k=%u n=%u packet_bytes=%zu: packet %u (%s) is wrong", self->k, self->n, self->packet_bytes, i,
                     lost[i] ? "decoded" : "only read");
}

static EcfsPlan *plan_all (const EcfsCodec *codec, const bool *lost, GError **error)
{
    bool present[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++)
        present[i] = !lost[i];
    return ecfs_codec_plan (codec, present, lost, error);
}

void segment_survives (Segment *self, const EcfsCodec *codec, const bool *lost)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsPlan) plan = plan_all (codec, lost, &error);
    g_assert_no_error (error);
    segment_lose (self, lost);
    uint8_t *packets[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < self->n; i++)
        if (lost[i] || ecfs_plan_sources (plan)[i])
            packets[i] = self->work[i];
    ecfs_plan_run (plan, packets, self->packet_bytes);
    segment_check (self, lost);
}

void segment_cannot_survive (const EcfsCodec *codec, const bool *lost)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsPlan) plan = plan_all (codec, lost, &error);
    g_assert_null (plan);
    g_assert_error (error, ECFS_ERROR, ENODATA);
}

void segment_flags (uint32_t mask, unsigned n, bool *flags)
{
    for (unsigned i = 0; i < n; i++)
        flags[i] = mask >> i & 1;
}

void segment_random_loss (unsigned n, unsigned n_lost, bool *lost)
{
    memset (lost, 0, n * sizeof *lost);
    while (n_lost > 0) {
        unsigned i = (unsigned) g_test_rand_int_range (0, (gint32) n);
        n_lost -= !lost[i];
        lost[i] = true;
    }
}

EcfsCodec *segment_codec_by (const char *code, const char *provider)
{
    g_autoptr (GError) error = NULL;
    EcfsCodec *codec = ecfs_codec_new_by (code, provider, &error);
    g_assert_no_error (error);
    return codec;
}

EcfsCodec *segment_codec (const char *code)
{
    return segment_codec_by (code, NULL);
}
