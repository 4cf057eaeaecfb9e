#include "object/chain.h"

#include <string.h>

#define PIECES       ECFS_SHA256_LANES /* of a whole segment, at most */
#define FEW_PIECES   4                 /* one after the other is as fast */
#define STEP_BYTES   ECFS_CHAIN_UNIT_BYTES
#define STEP_BLOCKS  (STEP_BYTES / ECFS_SHA256_BLOCK_BYTES)
#define COPIED_BYTES 8192

static uint64_t divide_up (uint64_t value, uint64_t by)
{
    return (value + by - 1) / by;
}

static uint32_t shortest_piece (uint32_t segment_bytes)
{
    return (uint32_t) divide_up (segment_bytes, PIECES * ECFS_CHAIN_UNIT_BYTES) * ECFS_CHAIN_UNIT_BYTES;
}

static uint64_t n_links (uint64_t size, uint32_t segment_bytes, uint32_t piece_bytes)
{
    uint64_t n_whole = (size - 1) / segment_bytes;
    return n_whole * divide_up (segment_bytes, piece_bytes) + divide_up (size - n_whole * segment_bytes, piece_bytes);
}

/* Making it */

struct EcfsChainMaker {
    EcfsSha256 *sha256;
    GByteArray *links; /* of the shortest pieces; not of the last one if that is no whole block */
    uint64_t taken;
    uint32_t segment_bytes, piece_bytes;
};

EcfsChainMaker *ecfs_chain_maker_new (uint32_t segment_bytes)
{
    EcfsChainMaker *self = g_new (EcfsChainMaker, 1);
    *self = (EcfsChainMaker){.sha256 = ecfs_sha256_new (),
                             .links = g_byte_array_new (),
                             .segment_bytes = segment_bytes,
                             .piece_bytes = shortest_piece (segment_bytes)};
    return self;
}

static void add_link (EcfsChainMaker *self)
{
    uint8_t state[ECFS_SHA256_SIZE];
    bool is_for_chain = self->taken <= (uint64_t) ECFS_CHAIN_SEGMENTS_MAX * self->segment_bytes;
    if (is_for_chain && ecfs_sha256_state (self->sha256, state))
        g_byte_array_append (self->links, state, sizeof state);
}

void ecfs_chain_maker_take (EcfsChainMaker *self, const uint8_t *bytes, size_t size)
{
    for (size_t n; size > 0; bytes += n, size -= n) {
        uint32_t within = (uint32_t) (self->taken % self->segment_bytes);
        uint32_t left = self->piece_bytes - within % self->piece_bytes;
        n = MIN (size, MIN (left, self->segment_bytes - within));
        ecfs_sha256_update (self->sha256, bytes, n);
        self->taken += n;
        if (n == left || self->taken % self->segment_bytes == 0)
            add_link (self);
    }
}

/* Only the links of pieces that are so many times as long. */
static void thin (EcfsChainMaker *self, uint32_t times)
{
    uint64_t n_each = divide_up (self->segment_bytes, self->piece_bytes), n = 0;
    uint64_t n_all = self->links->len / ECFS_CHAIN_LINK_BYTES;
    for (uint64_t i = 0; i < n_all; i++) {
        uint64_t number = i % n_each + 1;
        if (number % times != 0 && number != n_each && i + 1 < n_all)
            continue;
        memmove (self->links->data + n++ * ECFS_CHAIN_LINK_BYTES, self->links->data + i * ECFS_CHAIN_LINK_BYTES,
                 ECFS_CHAIN_LINK_BYTES);
    }
    g_byte_array_set_size (self->links, (guint) n * ECFS_CHAIN_LINK_BYTES);
}

GByteArray *ecfs_chain_maker_end (EcfsChainMaker *self, uint8_t ret_sha256[ECFS_SHA256_SIZE])
{
    uint32_t times = 1;
    uint64_t size = self->taken;
    ecfs_sha256_end (self->sha256, ret_sha256);
    if (size <= self->segment_bytes || size > (uint64_t) ECFS_CHAIN_SEGMENTS_MAX * self->segment_bytes ||
        self->segment_bytes % ECFS_SHA256_BLOCK_BYTES != 0)
        return NULL;
    guint before_last = (guint) n_links (size, self->segment_bytes, self->piece_bytes) - 1;
    g_byte_array_set_size (self->links, before_last * ECFS_CHAIN_LINK_BYTES);
    g_byte_array_append (self->links, ret_sha256, ECFS_SHA256_SIZE);
    while (n_links (size, self->segment_bytes, times * self->piece_bytes) > ECFS_CHAIN_LINKS_MAX)
        times *= 2;
    thin (self, times);
    return g_byte_array_ref (self->links);
}

void ecfs_chain_maker_free (EcfsChainMaker *self)
{
    if (self == NULL)
        return;
    ecfs_sha256_free (self->sha256);
    g_byte_array_unref (self->links);
    g_free (self);
}

/* Comparing with it */

/* 0: it is of another object. */
static uint32_t piece_bytes_of (const GByteArray *self, const EcfsLayout *layout)
{
    uint32_t piece = shortest_piece (layout->segment_bytes);
    for (unsigned times = 1; times <= PIECES; times *= 2, piece *= 2)
        if (self->len == n_links (layout->size, layout->segment_bytes, piece) * ECFS_CHAIN_LINK_BYTES)
            return piece;
    return 0;
}

bool ecfs_chain_is_of (const GByteArray *self, const EcfsLayout *layout)
{
    return piece_bytes_of (self, layout) > 0;
}

/* What is read of a segment, from its stored packets on. */
typedef struct Place {
    const EcfsLayout *layout;
    const uint8_t *const *packets;
    EcfsCipher *cipher;
    uint64_t segment;
    uint32_t at; /* in the segment's content */
} Place;

static Place place_new (const EcfsLayout *layout, const EcfsSealKeys *keys, uint64_t segment,
                        const uint8_t *const *packets, uint32_t at)
{
    return (Place){.layout = layout,
                   .packets = packets,
                   .cipher = ecfs_cipher_new (keys->content, segment * layout->segment_bytes + at),
                   .segment = segment,
                   .at = at};
}

static void copy (Place *self, uint8_t *to, uint32_t size)
{
    const EcfsLayout *layout = self->layout;
    uint32_t packet_bytes = ecfs_layout_packet_bytes (layout, self->segment);
    for (uint32_t done = 0, n; done < size; done += n) {
        uint32_t within = self->at % packet_bytes, block = within / layout->block_bytes;
        uint32_t in_block = within % layout->block_bytes;
        const uint8_t *from = self->packets[self->at / packet_bytes] +
                              (size_t) block * (layout->block_bytes + layout->tag_bytes) + in_block;
        n = MIN (size - done, ecfs_layout_block_bytes (layout, self->segment, block) - in_block);
        memcpy (to + done, from, n);
        self->at += n;
    }
    ecfs_cipher_next (self->cipher, to, size);
}

/* From the state @before on (NULL: from the beginning), to the next @size bytes' link. */
static bool leads (Place *self, const uint8_t *before, uint32_t size, const uint8_t *link)
{
    uint8_t bytes[COPIED_BYTES], found[ECFS_SHA256_SIZE];
    uint64_t offset = self->segment * self->layout->segment_bytes + self->at;
    bool is_last = offset + size == self->layout->size;
    g_autoptr (EcfsSha256) sha256 = ecfs_sha256_new ();
    if (before != NULL)
        ecfs_sha256_resume (sha256, before, offset);
    for (uint32_t n; size > 0; size -= n) {
        n = MIN (size, COPIED_BYTES);
        copy (self, bytes, n);
        ecfs_sha256_update (sha256, bytes, n);
    }
    bool is_whole = is_last || ecfs_sha256_state (sha256, found);
    if (is_last)
        ecfs_sha256_end (sha256, found);
    return is_whole && memcmp (found, link, sizeof found) == 0;
}

/* Pieces of a segment, each in its lane, behind the states of which they begin. */
typedef struct Lanes {
    unsigned n;
    Place places[PIECES];
    uint32_t left[PIECES]; /* bytes */
    uint32_t state[ECFS_SHA256_WORDS][ECFS_SHA256_LANES];
} Lanes;

static void set_state (Lanes *self, unsigned lane, const uint8_t link[ECFS_CHAIN_LINK_BYTES])
{
    for (unsigned i = 0; i < ECFS_SHA256_WORDS; i++) {
        uint32_t word;
        memcpy (&word, link + i * sizeof word, sizeof word);
        self->state[i][lane] = GUINT32_FROM_BE (word);
    }
}

static void get_state (const Lanes *self, unsigned lane, uint8_t ret_link[ECFS_CHAIN_LINK_BYTES])
{
    for (unsigned i = 0; i < ECFS_SHA256_WORDS; i++) {
        uint32_t word = GUINT32_TO_BE (self->state[i][lane]);
        memcpy (ret_link + i * sizeof word, &word, sizeof word);
    }
}

/* As many whole steps as each piece has. */
static void run_lanes (Lanes *self, EcfsSha256Lanes run)
{
    g_autofree uint8_t *bytes = g_malloc0 (PIECES * STEP_BYTES);
    const uint8_t *pieces[ECFS_SHA256_LANES];
    uint32_t next[ECFS_SHA256_WORDS][ECFS_SHA256_LANES];
    for (unsigned i = 0; i < PIECES; i++)
        pieces[i] = bytes + i * STEP_BYTES;
    while (self->left[0] >= STEP_BYTES) { /* no other has more */
        bool goes_on[PIECES] = {false};
        for (unsigned i = 0; i < self->n; i++) {
            goes_on[i] = self->left[i] >= STEP_BYTES;
            self->left[i] -= goes_on[i] ? STEP_BYTES : 0;
            if (goes_on[i])
                copy (&self->places[i], bytes + i * STEP_BYTES, STEP_BYTES);
        }
        memcpy (next, self->state, sizeof next);
        run (next, pieces, STEP_BLOCKS);
        for (unsigned i = 0; i < self->n; i++)
            for (unsigned word = 0; word < ECFS_SHA256_WORDS && goes_on[i]; word++)
                self->state[word][i] = next[word][i];
    }
}

static bool all_lead (const EcfsLayout *layout, const EcfsSealKeys *keys, uint64_t segment,
                      const uint8_t *const *packets, uint32_t piece_bytes, const uint8_t *links, EcfsSha256Lanes run)
{
    bool good = true;
    uint8_t state[ECFS_SHA256_SIZE];
    uint32_t bytes = ecfs_layout_content_bytes (layout, segment);
    Lanes lanes = {.n = (unsigned) divide_up (bytes, piece_bytes)};
    g_autoptr (EcfsSha256) initial = ecfs_sha256_new ();
    (void) ecfs_sha256_state (initial, state); /* nothing is whole blocks */
    for (unsigned i = 0; i < lanes.n; i++) {
        lanes.places[i] = place_new (layout, keys, segment, packets, i * piece_bytes);
        lanes.left[i] = MIN (piece_bytes, bytes - i * piece_bytes);
        bool is_first = segment == 0 && i == 0;
        set_state (&lanes, i, is_first ? state : links + ((ptrdiff_t) i - 1) * ECFS_CHAIN_LINK_BYTES);
    }
    run_lanes (&lanes, run);
    for (unsigned i = 0; i < lanes.n; i++) {
        get_state (&lanes, i, state);
        good = good && leads (&lanes.places[i], state, lanes.left[i], links + (size_t) i * ECFS_CHAIN_LINK_BYTES);
        ecfs_cipher_free (lanes.places[i].cipher);
    }
    return good;
}

bool ecfs_chain_fits_by (const GByteArray *self, const EcfsLayout *layout, const EcfsSealKeys *keys, uint64_t segment,
                         const uint8_t *const *packets, EcfsSha256Lanes run)
{
    uint32_t piece_bytes = piece_bytes_of (self, layout);
    if (piece_bytes == 0)
        return false;
    uint32_t bytes = ecfs_layout_content_bytes (layout, segment);
    uint64_t n = divide_up (bytes, piece_bytes);
    const uint8_t *links =
        self->data + segment * divide_up (layout->segment_bytes, piece_bytes) * ECFS_CHAIN_LINK_BYTES;
    if (run != NULL && n >= FEW_PIECES)
        return all_lead (layout, keys, segment, packets, piece_bytes, links, run);
    Place place = place_new (layout, keys, segment, packets, 0);
    bool good = leads (&place, segment == 0 ? NULL : links - ECFS_CHAIN_LINK_BYTES, bytes,
                       links + (n - 1) * ECFS_CHAIN_LINK_BYTES);
    ecfs_cipher_free (place.cipher);
    return good;
}

bool ecfs_chain_fits (const GByteArray *self, const EcfsLayout *layout, const EcfsSealKeys *keys, uint64_t segment,
                      const uint8_t *const *packets)
{
    return ecfs_chain_fits_by (self, layout, keys, segment, packets, ecfs_sha256_lanes ());
}
