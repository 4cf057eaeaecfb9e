#include "oracle.h"

#include <string.h>

/* Each part of a data packet is a bit of its own in all of its 64 bytes' columns: so parity shows what it is made of.
 */
static void learn_rows (Oracle *self, const EcfsCodec *codec)
{
    size_t granule = self->parts * 64u;
    g_autofree uint8_t *bytes = g_malloc0 (self->n * granule);
    uint8_t *packets[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < self->n; i++)
        packets[i] = bytes + i * granule;
    for (unsigned unit = 0; unit < self->k * self->parts; unit++)
        bytes[unit * 64 + unit / 8] |= (uint8_t) (1 << unit % 8);
    ecfs_codec_encode (codec, (const uint8_t *const *) packets, packets + self->k, granule);
    for (unsigned unit = 0; unit < self->n * self->parts; unit++)
        for (unsigned bit = 0; bit < 512; bit++)
            if (bytes[unit * 64 + bit / 8] >> bit % 8 & 1)
                self->rows[unit][bit / 64] |= UINT64_C (1) << bit % 64;
}

Oracle *oracle_new (const EcfsCodec *codec)
{
    EcfsCodeFamily family = ecfs_codec_family (codec);
    Oracle *self = g_new0 (Oracle, 1);
    self->k = ecfs_codec_k (codec);
    self->n = ecfs_codec_n (codec);
    if (family == ECFS_CODE_RS || family == ECFS_CODE_COPIES)
        return self;
    self->parts = (unsigned) ecfs_codec_granule (codec) / 64;
    g_assert_cmpuint (self->k * self->parts, <=, 64 * ORACLE_WORDS);
    self->rows = g_malloc0 (self->n * self->parts * sizeof *self->rows);
    learn_rows (self, codec);
    return self;
}

void oracle_free (Oracle *self)
{
    if (self == NULL)
        return;
    g_free (self->rows);
    g_free (self);
}

/* Adds a row to a basis by leading bit; false when it is a sum of those there. */
static bool add_row (uint64_t (*basis)[ORACLE_WORDS], bool *have, const uint64_t *given)
{
    uint64_t row[ORACLE_WORDS];
    memcpy (row, given, sizeof row);
    for (unsigned bit = 0; bit < 64 * ORACLE_WORDS; bit++) {
        if ((row[bit / 64] >> bit % 64 & 1) == 0)
            continue;
        if (!have[bit]) {
            memcpy (basis[bit], row, sizeof row);
            have[bit] = true;
            return true;
        }
        for (unsigned word = 0; word < ORACLE_WORDS; word++)
            row[word] ^= basis[bit][word];
    }
    return false;
}

bool oracle_decodable (const Oracle *self, const bool *present)
{
    uint64_t basis[64 * ORACLE_WORDS][ORACLE_WORDS];
    bool have[64 * ORACLE_WORDS] = {false};
    unsigned rank = 0, n_present = 0;
    for (unsigned i = 0; i < self->n; i++) {
        n_present += present[i];
        for (unsigned part = 0; part < self->parts && present[i]; part++)
            rank += add_row (basis, have, self->rows[i * self->parts + part]);
    }
    return self->parts == 0 ? n_present >= self->k : rank == self->k * self->parts;
}

int8_t *oracle_guarantees (const Oracle *self)
{
    g_assert_cmpuint (self->n, <=, 16);
    int8_t *guarantees = g_malloc ((gsize) 1 << self->n);
    for (uint32_t set = 0; set < 1u << self->n; set++) { /* subsets have smaller numbers */
        bool present[16];
        for (unsigned i = 0; i < self->n; i++)
            present[i] = set >> i & 1;
        guarantees[set] = oracle_decodable (self, present) ? INT8_MAX : -1;
        for (unsigned i = 0; i < self->n && guarantees[set] >= 0; i++)
            if (present[i])
                guarantees[set] = (int8_t) MIN (guarantees[set], guarantees[set & ~(1u << i)] + 1);
    }
    return guarantees;
}
