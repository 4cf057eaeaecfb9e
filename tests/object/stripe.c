#include "stripe.h"

#include <string.h>
#include <xxhash.h>

static uint64_t le (const uint8_t *at, int n_bytes)
{
    uint64_t value = 0;
    while (n_bytes-- > 0)
        value = value << 8 | at[n_bytes];
    return value;
}

static uint8_t gf_multiply (uint8_t a, uint8_t b)
{
    unsigned product = 0;
    for (int bit = 7; bit >= 0; bit--) {
        product <<= 1;
        if (product & 0x100)
            product ^= 0x11d;
        if (b >> bit & 1)
            product ^= a;
    }
    return (uint8_t) product;
}

static uint8_t gf_invert (uint8_t a)
{
    for (unsigned b = 1; b < 256; b++)
        if (gf_multiply (a, (uint8_t) b) == 1)
            return (uint8_t) b;
    g_assert_not_reached ();
}

/* Byte @at of data packet @column of a segment, zero behind the content's end. */
static uint8_t data_byte (const StripeExpected *e, uint64_t start, uint64_t content_bytes, uint64_t packet_bytes,
                          unsigned column, uint64_t at)
{
    uint64_t offset = column * packet_bytes + at;
    return offset < content_bytes ? e->content[start + offset] : 0;
}

/* A packet of a segment, byte by byte. */
typedef struct Packet {
    const StripeExpected *e;
    uint64_t start, content_bytes, packet_bytes;
    const uint8_t *graph; /* family 3: the section with it */
    uint8_t *bytes;
} Packet;

static uint8_t data_at (const Packet *self, unsigned column, uint64_t at)
{
    return data_byte (self->e, self->start, self->content_bytes, self->packet_bytes, column, at);
}

static void add_multiple (Packet *self, unsigned column, uint8_t factor)
{
    uint8_t by[256];
    for (unsigned v = 0; v < 256; v++)
        by[v] = gf_multiply (factor, (uint8_t) v);
    for (uint64_t at = 0; at < self->packet_bytes; at++)
        self->bytes[at] ^= by[data_at (self, column, at)];
}

static void add_members (Packet *self)
{
    const uint8_t *list = self->graph;
    for (unsigned parity = self->e->k; parity < self->e->index; parity++)
        list += 1 + list[0];
    for (unsigned i = 0; i < list[0]; i++)
        add_multiple (self, list[1 + i], 1);
}

/* basic: coefficient j of the packet gets coefficient (j - shift) mod p of each member; the last is the sum of the
 * others. */
static void add_rotated (Packet *self)
{
    static const unsigned primes[] = {3, 5, 7, 11, 13, 17};
    unsigned k = self->e->k, i = self->e->index - k + 1, p = 0;
    for (unsigned next = 0; p <= k / 2; next++)
        p = primes[next];
    for (unsigned l = 0; l < k / 2; l++) {
        unsigned column = (i + l - 1) % k, shift = l * i % p;
        for (uint64_t at = 0; at < self->packet_bytes; at++) {
            unsigned from = ((unsigned) (at / 64 % (p - 1)) + p - shift) % p;
            uint64_t base = at / (64 * (p - 1)) * (64 * (p - 1)) + at % 64;
            for (unsigned other = 0; other + 1 < p; other++)
                if (from == p - 1 || other == from)
                    self->bytes[at] ^= data_at (self, column, base + 64 * other);
        }
    }
}

static uint8_t *make_packet (const StripeExpected *e, const uint8_t *graph, uint64_t start, uint64_t content_bytes,
                             uint64_t packet_bytes)
{
    Packet packet = {.e = e,
                     .start = start,
                     .content_bytes = content_bytes,
                     .packet_bytes = packet_bytes,
                     .graph = graph,
                     .bytes = g_malloc0 (packet_bytes)};
    if (e->index < e->k)
        add_multiple (&packet, e->index, 1);
    else if (e->family == 1)
        add_multiple (&packet, 0, 1);
    else if (e->family == 2)
        for (unsigned c = 0; c < e->k; c++)
            add_multiple (&packet, c, gf_invert ((uint8_t) (e->index ^ c)));
    else if (e->family == 3)
        add_members (&packet);
    else
        add_rotated (&packet);
    return packet.bytes;
}

static uint64_t tag_of (const StripeExpected *e, uint64_t number, const uint8_t *block, size_t bytes)
{
    uint8_t position[32] = {0};
    memcpy (position, e->object, 16);
    position[16] = (uint8_t) e->index;
    for (int i = 0; i < 8; i++)
        position[24 + i] = (uint8_t) (number >> 8 * i);
    return XXH3_64bits_withSeed (block, bytes, XXH3_64bits (position, 32));
}

/* The payload of the section @type in [at, end); fails the test when a section is damaged or there is none. */
static const uint8_t *find_section (const uint8_t *at, const uint8_t *end, unsigned type)
{
    const uint8_t *found = NULL;
    while (at < end) {
        size_t length = le (at + 4, 4);
        g_assert_cmpuint (16 + length, <=, (size_t) (end - at));
        g_assert_cmpuint (le (at + 8 + length, 8), ==, XXH3_64bits (at, 8 + length));
        if (le (at, 2) == type)
            found = at + 8;
        at += 16 + length;
    }
    g_assert_nonnull (found);
    return found;
}

/* Checks the packets; returns the offset behind them. */
static size_t check_area (const uint8_t *stripe, size_t stripe_bytes, size_t at, const StripeExpected *e)
{
    const uint8_t *graph = e->family == 3 ? find_section (stripe + 16, stripe + at, 3) : NULL;
    uint64_t blocks_per_segment = (e->segment_bytes / e->k + e->block_bytes - 1) / e->block_bytes;
    for (uint64_t s = 0; s * e->segment_bytes < e->size; s++) {
        uint64_t start = s * e->segment_bytes;
        uint64_t content_bytes = MIN (e->size - start, e->segment_bytes);
        uint64_t share = (content_bytes + e->k - 1) / e->k;
        uint64_t packet_bytes = (share + e->granule - 1) / e->granule * e->granule;
        g_autofree uint8_t *packet = make_packet (e, graph, start, content_bytes, packet_bytes);
        uint64_t number = s * blocks_per_segment;
        for (uint64_t done = 0; done < packet_bytes; number++) {
            size_t bytes = MIN (packet_bytes - done, e->block_bytes);
            g_assert_cmpuint (at + bytes + 8, <=, stripe_bytes);
            g_assert_true (memcmp (stripe + at, packet + done, bytes) == 0);
            g_assert_cmpuint (le (stripe + at + bytes, 8), ==, tag_of (e, number, packet + done, bytes));
            at += bytes + 8;
            done += bytes;
        }
    }
    return at;
}

static size_t check_header (const uint8_t *stripe, size_t stripe_bytes, const StripeExpected *e)
{
    static const uint8_t magic[] = {0x89, 'E', 'C', 'F', 'S', '\r', '\n', 0x1a};
    g_assert_cmpuint (stripe_bytes, >, 64);
    g_assert_true (memcmp (stripe, magic, 8) == 0);
    g_assert_cmpuint (le (stripe + 8, 2), ==, 1);
    size_t header_bytes = le (stripe + 12, 4);
    g_assert_cmpuint (header_bytes, <, stripe_bytes);
    const uint8_t *at = find_section (stripe + 16, stripe + header_bytes, 1);
    g_assert_true (memcmp (at, e->archive, 16) == 0);
    g_assert_true (memcmp (at + 16, e->object, 16) == 0);
    g_assert_cmpuint (le (at + 32, 8), ==, e->instance);
    g_assert_cmpuint (le (at + 40, 8), ==, e->sequence);
    g_assert_cmpuint (le (at + 48, 4), ==, e->epoch);
    g_assert_cmpuint (le (at + 52, 2), ==, e->family);
    g_assert_cmpuint (le (at + 54, 2), ==, e->k);
    g_assert_cmpuint (le (at + 56, 2), ==, e->n);
    g_assert_cmpuint (le (at + 58, 2), ==, e->index);
    g_assert_cmpuint (le (at + 60, 4), ==, e->segment_bytes);
    g_assert_cmpuint (le (at + 64, 4), ==, e->block_bytes);
    g_assert_cmpuint (le (at + 68, 4), ==, e->granule);
    return header_bytes;
}

static void digest_of (const uint8_t *bytes, size_t size, uint8_t digest[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash (&canonical, XXH3_128bits (bytes, size));
    memcpy (digest, canonical.digest, 16);
}

void stripe_check (const uint8_t *stripe, size_t stripe_bytes, const StripeExpected *e, uint8_t *ret_digest)
{
    static const uint8_t magic[] = {0x89, 'e', 'c', 'f', 's', 'e', 'n', 'd'};
    size_t header_bytes = check_header (stripe, stripe_bytes, e);
    size_t area_end = check_area (stripe, stripe_bytes, header_bytes, e);
    const uint8_t *tail = stripe + stripe_bytes - 48;
    g_assert_true (memcmp (tail + 40, magic, 8) == 0);
    g_assert_cmpuint (le (tail + 32, 8), ==, XXH3_64bits (tail, 32));
    g_assert_cmpuint (le (tail, 8), ==, area_end);
    size_t footer_bytes = le (tail + 8, 4);
    g_assert_cmpuint (area_end + footer_bytes + 48, ==, stripe_bytes);
    g_assert_cmpuint (le (tail + 16, 8), ==, XXH3_64bits (stripe + area_end, footer_bytes));
    const uint8_t *sizes = find_section (stripe + area_end, stripe + area_end + footer_bytes, 16);
    uint8_t content_digest[16];
    digest_of (e->content, e->size, content_digest);
    digest_of (stripe + header_bytes, area_end - header_bytes, ret_digest);
    g_assert_cmpuint (le (sizes, 8), ==, e->size);
    g_assert_cmpuint (le (sizes + 8, 8), ==, e->size);
    g_assert_cmpuint (le (sizes + 16, 8), ==, area_end - header_bytes);
    g_assert_true (memcmp (sizes + 24, ret_digest, 16) == 0);
    g_assert_true (memcmp (sizes + 40, content_digest, 16) == 0);
}
