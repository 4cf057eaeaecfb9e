/* copies:N, the code of one data packet and N - 1 parity packets that equal it. */
#include "codec/codec_priv.h"

#include <string.h>

static bool parse (const char *numbers, unsigned *ret_k, unsigned *ret_n)
{
    unsigned n;
    if (!ecfs_codec_parse_number (&numbers, &n) || *numbers != '\0')
        return false;
    *ret_k = 1;
    *ret_n = n;
    return true;
}

static const char *refuse (unsigned k, unsigned n)
{
    if (k != 1)
        return "each copy is whole, so k is 1";
    if (n < 1 || n > ECFS_COPIES_MAX)
        return "choose from 1 to 32 copies";
    return NULL;
}

static char *text (unsigned k, unsigned n)
{
    return g_strdup_printf ("copies:%u", n);
}

static EcfsCodec *new (unsigned k, unsigned n, const uint8_t *parameters, size_t parameters_bytes, GError **error)
{
    if (!ecfs_codec_no_parameters (parameters_bytes, error))
        return NULL;
    EcfsCodec *self = g_new0 (EcfsCodec, 1);
    self->tolerance = n - 1;
    self->overhead = 1;
    self->granule = 1;
    return self;
}

static void encode (const EcfsCodec *self, const uint8_t *const *data, uint8_t *const *parity, size_t packet_bytes)
{
    for (unsigned i = 0; i + 1 < self->n; i++)
        if (parity[i] != NULL)
            memcpy (parity[i], data[0], packet_bytes);
}

static EcfsPlan *plan (const EcfsCodec *self, const bool *present, const bool *wanted, GError **error)
{
    g_autofree EcfsPlan *made = g_new0 (EcfsPlan, 1);
    if (!ecfs_mds_choose_sources (self, present, made->sources, error))
        return NULL;
    return g_steal_pointer (&made);
}

static void run (const EcfsPlan *made, uint8_t *const *packets, size_t packet_bytes)
{
    unsigned source = 0;
    while (!made->sources[source])
        source++;
    for (unsigned i = 0; i < made->codec->n; i++)
        if (made->wanted[i])
            memcpy (packets[i], packets[source], packet_bytes);
}

const EcfsCodecOps ecfs_copies_ops = {
    .family = ECFS_CODE_COPIES,
    .name = "copies",
    .form = "copies:N (N whole copies, at most 32)",
    .parse = parse,
    .refuse = refuse,
    .text = text,
    .extensible = true,
    .new = new,
    .encode = encode,
    .determines = ecfs_mds_determines,
    .guarantee = ecfs_mds_guarantee,
    .choose = ecfs_mds_choose,
    .plan = plan,
    .run = run,
};
