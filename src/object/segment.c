#include "object/segment.h"

#include "util/io.h"

#include <inttypes.h>

size_t ecfs_segment_bytes (const EcfsLayout *layout, unsigned n, uint64_t index)
{
    return (size_t) n * ecfs_layout_stored_bytes (layout, index);
}

EcfsSegment *ecfs_segment_new (EcfsTransferPool *transfer, const EcfsLayout *layout, unsigned n, uint64_t index)
{
    EcfsSegment *self = g_new (EcfsSegment, 1);
    *self = (EcfsSegment){.transfer = transfer,
                          .index = index,
                          .stored_bytes = ecfs_layout_stored_bytes (layout, index),
                          .n_blocks = ecfs_layout_n_blocks (layout, index),
                          .block_step = layout->block_bytes + layout->tag_bytes,
                          .size = ecfs_segment_bytes (layout, n, index)};
    atomic_init (&self->references, 1);
    self->bytes = ecfs_transfer_buffer_take (transfer, self->size);
    return self;
}

EcfsSegment *ecfs_segment_ref (EcfsSegment *self)
{
    atomic_fetch_add (&self->references, 1);
    return self;
}

void ecfs_segment_unref (EcfsSegment *self)
{
    if (self == NULL || atomic_fetch_sub (&self->references, 1) > 1)
        return;
    ecfs_transfer_buffer_give (self->transfer, self->bytes, self->size);
    ecfs_transfer_release (self->transfer, self->size);
    g_free (self);
}

/* The places where content bytes [0, content_bytes) of a segment go; what lies behind them in the packets is zeroed. */
static GArray *content_places (EcfsSegment *self, const EcfsLayout *layout)
{
    GArray *places = g_array_sized_new (FALSE, FALSE, sizeof (struct iovec), layout->k * self->n_blocks);
    uint32_t left = ecfs_layout_content_bytes (layout, self->index);
    for (unsigned packet = 0; packet < layout->k; packet++) {
        for (uint32_t block = 0; block < self->n_blocks; block++) {
            uint32_t bytes = ecfs_layout_block_bytes (layout, self->index, block);
            uint8_t *to = ecfs_segment_block (self, packet, block);
            uint32_t content = MIN (left, bytes);
            memset (to + content, 0, bytes - content);
            struct iovec place = {.iov_base = to, .iov_len = content};
            if (content > 0)
                g_array_append_val (places, place);
            left -= content;
        }
    }
    return places;
}

/* Cuts @bytes bytes off the front of *places, whose first *skip entries are used up, into @ret_part. */
static void cut_places (GArray *places, guint *skip, size_t bytes, GArray *ret_part)
{
    g_array_set_size (ret_part, 0);
    while (bytes > 0) {
        struct iovec *place = &g_array_index (places, struct iovec, *skip);
        struct iovec part = {.iov_base = place->iov_base, .iov_len = MIN (bytes, place->iov_len)};
        g_array_append_val (ret_part, part);
        place->iov_base = (uint8_t *) place->iov_base + part.iov_len;
        place->iov_len -= part.iov_len;
        bytes -= part.iov_len;
        if (place->iov_len == 0)
            (*skip)++;
    }
}

bool ecfs_segment_load (EcfsSegment *self, const EcfsLayout *layout, int fd, const GArray *ranges, GError **error)
{
    g_autoptr (GArray) places = content_places (self, layout);
    g_autoptr (GArray) part = g_array_new (FALSE, FALSE, sizeof (struct iovec));
    uint64_t start = self->index * layout->segment_bytes;
    uint64_t end = start + ecfs_layout_content_bytes (layout, self->index);
    guint skip = 0;
    for (guint i = 0; i < ranges->len && start < end; i++) {
        const EcfsFileRange *range = &g_array_index (ranges, EcfsFileRange, i);
        if (range->object_offset + range->length <= start)
            continue;
        uint64_t stop = MIN (end, range->object_offset + range->length);
        cut_places (places, &skip, stop - start, part);
        uint64_t offset = range->file_offset + (start - range->object_offset);
        ssize_t got = ecfs_preadv_all (fd, (struct iovec *) (void *) part->data, (int) part->len, offset);
        if (got < 0)
            return ecfs_fail_errno (error, (int) -got, "reading staged content");
        if ((uint64_t) got < stop - start)
            return ecfs_fail (error, EIO, "staged content ends at %" PRIu64 ", before its size",
                              offset + (uint64_t) got);
        start = stop;
    }
    return true;
}

void ecfs_segment_each_content (EcfsSegment *self, const EcfsLayout *layout,
                                void (*each) (void *user, uint8_t *bytes, size_t size), void *user)
{
    uint32_t left = ecfs_layout_content_bytes (layout, self->index);
    for (unsigned packet = 0; packet < layout->k && left > 0; packet++) {
        for (uint32_t block = 0; block < self->n_blocks && left > 0; block++) {
            uint32_t bytes = MIN (left, ecfs_layout_block_bytes (layout, self->index, block));
            each (user, ecfs_segment_block (self, packet, block), bytes);
            left -= bytes;
        }
    }
}

static void put_tag (EcfsSegment *self, const EcfsLayout *layout, const EcfsTagger *tagger, unsigned packet,
                     uint32_t block)
{
    uint32_t bytes = ecfs_layout_block_bytes (layout, self->index, block);
    uint64_t number = ecfs_layout_block_number (layout, self->index, block);
    uint8_t *at = ecfs_segment_block (self, packet, block);
    ecfs_tag_put (tagger, packet, number, at, bytes, at + bytes);
}

void ecfs_segment_put_packet (EcfsSegment *self, const EcfsLayout *layout, const EcfsTagger *tagger, unsigned packet,
                              const uint8_t *bytes)
{
    memcpy (ecfs_segment_packet (self, packet), bytes, self->stored_bytes);
    for (uint32_t block = 0; block < self->n_blocks; block++)
        put_tag (self, layout, tagger, packet, block);
}

/* One for each data packet, which goes on from block to block. */
static void begin_ciphers (const EcfsSegment *self, const EcfsLayout *layout, const EcfsSealKeys *keys,
                           EcfsCipher **ret_ciphers)
{
    const uint64_t start = self->index * layout->segment_bytes;
    for (unsigned i = 0; i < layout->k; i++)
        ret_ciphers[i] = ecfs_cipher_new (keys->content, start + i * ecfs_layout_packet_bytes (layout, self->index));
}

static void encipher (EcfsSegment *self, const EcfsLayout *layout, EcfsCipher *cipher, unsigned packet, uint32_t block)
{
    uint32_t content = ecfs_layout_content_bytes (layout, self->index);
    uint32_t at = packet * ecfs_layout_packet_bytes (layout, self->index) + block * layout->block_bytes;
    if (at < content)
        ecfs_cipher_next (cipher, ecfs_segment_block (self, packet, block),
                          MIN (content - at, ecfs_layout_block_bytes (layout, self->index, block)));
}

/* All that is done with a block is done while the cache has it. */
void ecfs_segment_encode (EcfsSegment *self, const EcfsLayout *layout, const EcfsCodec *codec, const EcfsTagger *tagger,
                          const EcfsSealKeys *keys)
{
    unsigned n = ecfs_codec_n (codec);
    const uint8_t *data[ECFS_CODEC_MAX_N];
    uint8_t *parity[ECFS_CODEC_MAX_N];
    EcfsCipher *ciphers[ECFS_CODEC_MAX_N] = {NULL};
    if (keys != NULL)
        begin_ciphers (self, layout, keys, ciphers);
    for (uint32_t block = 0; block < self->n_blocks; block++) {
        uint32_t bytes = ecfs_layout_block_bytes (layout, self->index, block);
        for (unsigned i = 0; i < layout->k; i++) {
            data[i] = ecfs_segment_block (self, i, block);
            if (keys != NULL)
                encipher (self, layout, ciphers[i], i, block);
        }
        for (unsigned i = layout->k; i < n; i++)
            parity[i - layout->k] = ecfs_segment_block (self, i, block);
        ecfs_codec_encode (codec, data, parity, bytes);
        for (unsigned i = 0; i < n; i++)
            put_tag (self, layout, tagger, i, block);
    }
    for (unsigned i = 0; i < layout->k; i++)
        ecfs_cipher_free (ciphers[i]);
}
