/*
 * basic:K+K, the Minimum Storage BASIC code of even K: each parity packet is the XOR of K/2 neighbouring data packets,
 * rotated within a ring of polynomials, so that any lost packet comes back from K/2 others.
 *
 * With p the smallest prime above K/2, parity packet i is the sum over l = 0..K/2-1 of z^(l·i mod p) times data packet
 * ((i + l - 1) mod K) + 1, counting both from 1, in GF(2)[z] / (1 + z + ... + z^(p-1)).
 *
 * The paper promises that any K of the 2K packets rebuild all. They do not: a data packet and the K/2 parity packets
 * that it is in are K/2 + 1 losses that nothing brings back. Up to K/2 losses are survived, whichever they are; that
 * was proved by search (tools/research/basic-proof) up to K = 26; for larger ones the table has what was proved within
 * minutes.
 */
#include "codec/binary.h"

#define MIN_K 4
#define MAX_K 32

typedef struct Proven {
    uint8_t tolerance; /* any that many losses are survived */
    double overhead;   /* from 3,000 random orders at least */
} Proven;

/* For K = 4, 6, ... */
static const Proven proven[(MAX_K - MIN_K) / 2 + 1] = {
    {2, 1.1033},  {3, 1.0674},  {4, 1.0376},  {5, 1.0433},  {6, 1.0323},  {7, 1.0085},  {8, 1.0047},  {9, 1.0027},
    {10, 1.0015}, {11, 1.0009}, {12, 1.0005}, {13, 1.0005}, {13, 1.0004}, {14, 1.0003}, {14, 1.0003},
};

static const char *refuse (unsigned k, unsigned n)
{
    if (k < MIN_K || k > MAX_K || k % 2 != 0)
        return "k is an even number from 4 to 32";
    if (n != 2 * k)
        return "there are as many parity stripes as data stripes";
    return NULL;
}

static char *text (unsigned k, unsigned n)
{
    return g_strdup_printf ("basic:%u+%u", k, n - k);
}

static unsigned prime_above (unsigned number)
{
    static const uint8_t primes[] = {3, 5, 7, 11, 13, 17};
    unsigned i = 0;
    while (primes[i] <= number)
        i++;
    return primes[i];
}

static EcfsCodec *new (unsigned k, unsigned n, const uint8_t *parameters, size_t parameters_bytes, GError **error)
{
    if (!ecfs_codec_no_parameters (parameters_bytes, error))
        return NULL;
    EcfsBinary *self = g_new0 (EcfsBinary, 1);
    unsigned p = prime_above (k / 2);
    self->base.k = k;
    self->base.n = n;
    self->base.tolerance = proven[(k - MIN_K) / 2].tolerance;
    self->base.overhead = proven[(k - MIN_K) / 2].overhead;
    self->parts = p - 1;
    for (unsigned parity = 0; parity < k; parity++) {
        for (unsigned i = 0; i < k; i++)
            self->rotation[parity][i] = -1;
        for (unsigned l = 0; l < k / 2; l++)
            self->rotation[parity][(parity + l) % k] = (int8_t) (l * (parity + 1) % p);
    }
    ecfs_binary_finish (self);
    return &self->base;
}

const EcfsCodecOps ecfs_basic_ops = {
    .family = ECFS_CODE_BASIC,
    .name = "basic",
    .form = "basic:K+K (as many parity as data stripes, K even and at most 32)",
    .parse = ecfs_codec_parse_sum,
    .refuse = refuse,
    .text = text,
    .new = new,
    .clear = ecfs_binary_clear,
    .encode = ecfs_binary_encode,
    .determines = ecfs_binary_determines,
    .guarantee = ecfs_binary_guarantee,
    .choose = ecfs_binary_choose,
    .plan = ecfs_binary_plan,
    .run = ecfs_binary_run,
    .plan_clear = ecfs_binary_plan_clear,
};
