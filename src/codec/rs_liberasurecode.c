/*
 * rs:K+M by liberasurecode, whose code with ISA-L's Cauchy matrix it is: for who would rather have that library between
 * ecfs and the arithmetic. It costs more time, because each call allocates and copies.
 */
#include "codec/liberasurecode.h"
#include "codec/rs.h"

#include "util/vector.h"

#include <pthread.h>

typedef struct Rs {
    EcfsCodec base;
    EcfsLiberasurecode *library;
} Rs;

static EcfsCodec *new_untested (unsigned k, unsigned n, GError **error)
{
    EcfsLiberasurecode *library = ecfs_liberasurecode_new (ECFS_LIBERASURECODE_CAUCHY, k, n - k, n - k, error);
    if (library == NULL)
        return NULL;
    Rs *self = g_new0 (Rs, 1);
    self->base.ops = &ecfs_rs_liberasurecode_ops;
    ecfs_rs_init_base (&self->base, k, n);
    self->library = library;
    return &self->base;
}

static EcfsCodec *new_for_test (unsigned k, unsigned n)
{
    return new_untested (k, n, NULL);
}

static const char *library_fault; /* written once by test_library, before anyone reads it */

static void test_library (void)
{
    library_fault = ecfs_rs_self_test (new_for_test);
}

static EcfsCodec *new (unsigned k, unsigned n, const uint8_t *parameters, size_t parameters_bytes, GError **error)
{
    static pthread_once_t tested = PTHREAD_ONCE_INIT;
    g_autoptr (EcfsCodec) self = ecfs_codec_no_parameters (parameters_bytes, error) ? new_untested (k, n, error) : NULL;
    if (self == NULL)
        return NULL;
    (void) pthread_once (&tested, test_library); /* fails for an invalid control only */
    if (library_fault == NULL)
        return g_steal_pointer (&self);
    (void) !ecfs_fail (error, EIO,
                       "the installed liberasurecode is broken here: %s; replace it, or set rs_provider = isal",
                       library_fault);
    return NULL;
}

static void clear (EcfsCodec *self)
{
    ecfs_liberasurecode_free (((Rs *) self)->library);
}

static void encode (const EcfsCodec *self, const uint8_t *const *data, uint8_t *const *parity, size_t packet_bytes)
{
    ecfs_liberasurecode_encode (((const Rs *) self)->library, data, parity, packet_bytes);
    ecfs_vector_end ();
}

static EcfsPlan *plan (const EcfsCodec *self, const bool *present, const bool *wanted, GError **error)
{
    g_autofree EcfsPlan *made = g_new0 (EcfsPlan, 1);
    return ecfs_mds_choose_sources (self, present, made->sources, error) ? g_steal_pointer (&made) : NULL;
}

static void run (const EcfsPlan *made, uint8_t *const *packets, size_t packet_bytes)
{
    ecfs_liberasurecode_rebuild (((const Rs *) made->codec)->library, packets, made->sources, made->wanted,
                                 packet_bytes);
    ecfs_vector_end ();
}

const EcfsCodecOps ecfs_rs_liberasurecode_ops = {
    .family = ECFS_CODE_RS,
    .name = "rs",
    .form = ECFS_RS_FORM,
    .provider = "liberasurecode",
    .parse = ecfs_codec_parse_sum,
    .refuse = ecfs_rs_refuse,
    .text = ecfs_rs_text,
    .extensible = true,
    .new = new,
    .clear = clear,
    .encode = encode,
    .determines = ecfs_mds_determines,
    .guarantee = ecfs_mds_guarantee,
    .choose = ecfs_mds_choose,
    .plan = plan,
    .run = run,
};
