/*
 * The installed library chooses its kernels by the processor, so it is tried on the machine where it will run, before
 * anything is stored with it: against multiplication bit by bit, which shares nothing with it.
 */
#include "codec/rs.h"

#include <string.h>

#define MAX_N     ECFS_RS_MAX_N
#define MAX_BYTES 448

static const struct Shape {
    uint8_t k, m;
} shapes[] = {{1, 2}, {4, 2}, {5, 3}, {8, 3}, {8, 6}, {20, 12}};

typedef struct Trial {
    const EcfsCodec *codec;
    size_t packet_bytes;
    uint8_t packets[MAX_N][MAX_BYTES];
    uint8_t decoded[MAX_N][MAX_BYTES];
} Trial;

static uint8_t multiply (uint8_t a, uint8_t b)
{
    unsigned product = 0, factor = a;
    for (; b != 0; b >>= 1) {
        if (b & 1)
            product ^= factor;
        factor = factor << 1 ^ (factor & 0x80 ? 0x11d : 0);
    }
    return (uint8_t) product;
}

static uint8_t invert (uint8_t a)
{
    for (unsigned b = 1; b < 256; b++)
        if (multiply (a, (uint8_t) b) == 1)
            return (uint8_t) b;
    return 0;
}

static void fill_data (Trial *trial)
{
    uint32_t state = 2463534242u; /* xorshift32 */
    for (unsigned i = 0; i < trial->codec->k; i++)
        for (size_t at = 0; at < trial->packet_bytes; at++) {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            trial->packets[i][at] = (uint8_t) state;
        }
}

static bool parity_is_right (const Trial *trial, unsigned parity)
{
    uint8_t expected[MAX_BYTES] = {0};
    for (unsigned i = 0; i < trial->codec->k; i++) {
        uint8_t coefficient = invert ((uint8_t) (parity ^ i));
        for (size_t at = 0; at < trial->packet_bytes; at++)
            expected[at] ^= multiply (coefficient, trial->packets[i][at]);
    }
    return memcmp (expected, trial->packets[parity], trial->packet_bytes) == 0;
}

static bool encodes (Trial *trial)
{
    unsigned k = trial->codec->k, n = trial->codec->n;
    const uint8_t *data[MAX_N] = {0};
    uint8_t *parity[MAX_N] = {0};
    for (unsigned i = 0; i < k; i++)
        data[i] = trial->packets[i];
    for (unsigned i = k; i < n; i++)
        parity[i - k] = trial->packets[i];
    ecfs_codec_encode (trial->codec, data, parity, trial->packet_bytes);
    for (unsigned i = k; i < n; i++)
        if (!parity_is_right (trial, i))
            return false;
    return true;
}

/* Loses as many packets as the code bears, every other one from the first on, so data and parity among them. */
static bool decodes (Trial *trial)
{
    unsigned n = trial->codec->n, lost = 0;
    bool present[MAX_N] = {0}, wanted[MAX_N] = {0};
    uint8_t *packets[MAX_N] = {0};
    for (unsigned i = 0; i < n; i++) {
        wanted[i] = i % 2 == 0 && lost < trial->codec->tolerance;
        present[i] = !wanted[i];
        lost += wanted[i];
        packets[i] = wanted[i] ? trial->decoded[i] : trial->packets[i];
    }
    g_autoptr (EcfsPlan) plan = ecfs_codec_plan (trial->codec, present, wanted, NULL);
    if (plan == NULL)
        return false;
    ecfs_plan_run (plan, packets, trial->packet_bytes);
    for (unsigned i = 0; i < n; i++)
        if (memcmp (packets[i], trial->packets[i], trial->packet_bytes) != 0)
            return false;
    return true;
}

const char *ecfs_rs_self_test (EcfsCodec *(*make) (unsigned k, unsigned n))
{
    static const size_t lengths[] = {64, MAX_BYTES};
    const char *fault = NULL;
    g_autofree Trial *trial = g_new0 (Trial, 1);
    for (size_t i = 0; i < G_N_ELEMENTS (shapes) * G_N_ELEMENTS (lengths) && fault == NULL; i++) {
        const struct Shape *shape = &shapes[i / G_N_ELEMENTS (lengths)];
        g_autoptr (EcfsCodec) codec = make (shape->k, shape->k + shape->m);
        if (codec == NULL)
            return "it cannot be asked";
        *trial = (Trial){.codec = codec, .packet_bytes = lengths[i % G_N_ELEMENTS (lengths)]};
        fill_data (trial);
        if (!encodes (trial))
            fault = "its parity differs from plain arithmetic";
        else if (!decodes (trial))
            fault = "what it decodes differs from what was encoded";
    }
    return fault;
}
