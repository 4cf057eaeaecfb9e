/*
 * rs:K+M, Reed-Solomon over GF(2^8) with polynomial 0x11d: the code of liberasurecode's ISA-L Cauchy backend. The
 * generator matrix is the identity over data and, for a parity packet r and a data packet c, 1 / (r xor c). So a row
 * depends on k and its own index only, and parity can be added later without touching what is stored.
 *
 * The arithmetic is ISA-L's ec_encode_data on the caller's buffers. liberasurecode does the same arithmetic, but
 * allocates and copies every packet in each call; it is the other provider, rs_liberasurecode.c.
 */
#include "codec/rs.h"

#include "util/vector.h"

#include <isa-l.h>
#include <pthread.h>
#include <string.h>

#define RS_MAX_N  ECFS_RS_MAX_N
#define RS_MAX_KM (RS_MAX_N / 2 * RS_MAX_N / 2) /* the most that k * m can be; also k times the wanted packets */
#define RS_TABLES (32 * RS_MAX_KM)              /* bytes that ec_init_tables fills, at most */

typedef struct Rs {
    EcfsCodec base;
    EcfsRsKernel kernel;
    uint8_t generator[RS_MAX_N * RS_MAX_N]; /* n rows of k coefficients */
    uint8_t tables[RS_TABLES];              /* of all parity rows */
} Rs;

typedef struct RsPlan {
    EcfsPlan base;
    unsigned n_wanted;
    uint8_t sources[RS_MAX_N]; /* k indices, ascending */
    uint8_t wanted[RS_MAX_N];  /* n_wanted indices, ascending */
    uint8_t tables[RS_TABLES];
} RsPlan;

EcfsCodec *ecfs_rs_new_untested (unsigned k, unsigned n, EcfsRsKernel kernel)
{
    Rs *self = g_new0 (Rs, 1);
    self->base.ops = &ecfs_rs_ops;
    ecfs_rs_init_base (&self->base, k, n);
    self->kernel = kernel;
    gf_gen_cauchy1_matrix (self->generator, (int) n, (int) k);
    ec_init_tables ((int) k, (int) (n - k), self->generator + k * k, self->tables);
    return &self->base;
}

static EcfsCodec *new_untested (unsigned k, unsigned n)
{
    return ecfs_rs_new_untested (k, n, ec_encode_data);
}

static const char *library_fault; /* written once by test_library, before anyone reads it */

static void test_library (void)
{
    library_fault = ecfs_rs_self_test (new_untested);
}

static bool library_works (GError **error)
{
    static pthread_once_t tested = PTHREAD_ONCE_INIT;
    (void) pthread_once (&tested, test_library); /* fails for an invalid control only */
    return library_fault == NULL ||
           ecfs_fail (error, EIO, "the installed ISA-L (libisal) is broken here: %s; replace it", library_fault);
}

static EcfsCodec *new (unsigned k, unsigned n, const uint8_t *parameters, size_t parameters_bytes, GError **error)
{
    if (!ecfs_codec_no_parameters (parameters_bytes, error) || !library_works (error))
        return NULL;
    return new_untested (k, n);
}

static void run_kernel (const Rs *self, int packet_bytes, int n_sources, int n_rows, unsigned char *tables,
                        unsigned char **sources, unsigned char **outputs)
{
    self->kernel (packet_bytes, n_sources, n_rows, tables, sources, outputs);
    ecfs_vector_end ();
}

/* Some parities out of order: their tables are made for the call (about 6 ns per coefficient), on the stack. */
static void encode_rows (const Rs *self, const uint8_t *rows, int n_rows, const uint8_t *const *data, uint8_t **outputs,
                         size_t packet_bytes)
{
    unsigned k = self->base.k;
    uint8_t coefficients[RS_MAX_KM], tables[RS_TABLES];
    for (int i = 0; i < n_rows; i++)
        memcpy (coefficients + (unsigned) i * k, self->generator + rows[i] * k, k);
    ec_init_tables ((int) k, n_rows, coefficients, tables);
    run_kernel (self, (int) packet_bytes, (int) k, n_rows, tables, (unsigned char **) data, outputs);
}

static void encode (const EcfsCodec *codec, const uint8_t *const *data, uint8_t *const *parity, size_t packet_bytes)
{
    const Rs *self = (const Rs *) codec;
    uint8_t rows[RS_MAX_N], *outputs[RS_MAX_N];
    int n_rows = 0;
    for (unsigned i = codec->k; i < codec->n; i++) {
        if (parity[i - codec->k] == NULL)
            continue;
        outputs[n_rows] = parity[i - codec->k];
        rows[n_rows++] = (uint8_t) i;
    }
    if (n_rows == 0)
        return;
    /* The first rows' tables lead the table of all, whatever size this ISA-L gives to one. */
    if (rows[n_rows - 1] == codec->k + (unsigned) n_rows - 1)
        run_kernel (self, (int) packet_bytes, (int) codec->k, n_rows, (unsigned char *) self->tables,
                    (unsigned char **) data, outputs);
    else
        encode_rows (self, rows, n_rows, data, outputs, packet_bytes);
}

static unsigned list_indices (const bool *flags, unsigned n, uint8_t *indices)
{
    unsigned found = 0;
    for (unsigned i = 0; i < n; i++)
        if (flags[i])
            indices[found++] = (uint8_t) i;
    return found;
}

/* @row gives the packet @wanted from the sources: its row of the generator times the inverse of theirs. */
static void combine (const Rs *self, const uint8_t *inverse, unsigned wanted, uint8_t *row)
{
    unsigned k = self->base.k;
    for (unsigned column = 0; column < k; column++) {
        row[column] = 0;
        for (unsigned i = 0; i < k; i++)
            row[column] ^= gf_mul (self->generator[wanted * k + i], inverse[i * k + column]);
    }
}

static bool make_tables (const Rs *self, RsPlan *plan, GError **error)
{
    unsigned k = self->base.k;
    uint8_t matrix[RS_MAX_N * RS_MAX_N], inverse[RS_MAX_N * RS_MAX_N], rows[RS_MAX_KM];
    for (unsigned i = 0; i < k; i++)
        memcpy (matrix + i * k, self->generator + plan->sources[i] * k, k);
    if (gf_invert_matrix (matrix, inverse, (int) k) != 0)
        return ecfs_fail (error, EIO, "the installed ISA-L (libisal) finds no inverse of a matrix that has one");
    for (unsigned i = 0; i < plan->n_wanted; i++)
        combine (self, inverse, plan->wanted[i], rows + i * k);
    ec_init_tables ((int) k, (int) plan->n_wanted, rows, plan->tables);
    return true;
}

static EcfsPlan *plan (const EcfsCodec *codec, const bool *present, const bool *wanted, GError **error)
{
    g_autofree RsPlan *made = g_new0 (RsPlan, 1);
    if (!ecfs_mds_choose_sources (codec, present, made->base.sources, error))
        return NULL;
    (void) list_indices (made->base.sources, codec->n, made->sources); /* k, as chosen */
    made->n_wanted = list_indices (wanted, codec->n, made->wanted);
    if (!make_tables ((const Rs *) codec, made, error))
        return NULL;
    return &g_steal_pointer (&made)->base;
}

static void run (const EcfsPlan *base, uint8_t *const *packets, size_t packet_bytes)
{
    const RsPlan *made = (const RsPlan *) base;
    const Rs *self = (const Rs *) base->codec;
    uint8_t *inputs[RS_MAX_N], *outputs[RS_MAX_N];
    for (unsigned i = 0; i < self->base.k; i++)
        inputs[i] = packets[made->sources[i]];
    for (unsigned i = 0; i < made->n_wanted; i++)
        outputs[i] = packets[made->wanted[i]];
    run_kernel (self, (int) packet_bytes, (int) self->base.k, (int) made->n_wanted, (unsigned char *) made->tables,
                inputs, outputs);
}

const EcfsCodecOps ecfs_rs_ops = {
    .family = ECFS_CODE_RS,
    .name = "rs",
    .form = ECFS_RS_FORM,
    .provider = "isal",
    .parse = ecfs_codec_parse_sum,
    .refuse = ecfs_rs_refuse,
    .text = ecfs_rs_text,
    .extensible = true,
    .new = new,
    .encode = encode,
    .determines = ecfs_mds_determines,
    .guarantee = ecfs_mds_guarantee,
    .choose = ecfs_mds_choose,
    .plan = plan,
    .run = run,
};
