/* What every codec does, whichever code it is of: it is made, asked and freed through its ops. Knows no code. */
#include "codec/codec_priv.h"

#include "util/xxh3.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

static bool is_possible (const EcfsCodecOps *ops, unsigned k, unsigned n, GError **error)
{
    const char *reason = ops->refuse (k, n);
    return reason == NULL ||
           ecfs_fail (error, EINVAL, "there is no code \"%s\" with k = %u and n = %u: %s", ops->name, k, n, reason);
}

static char *make_identity (const EcfsCodec *self)
{
    if (self->parameters == NULL)
        return g_strdup (self->code);
    return g_strdup_printf ("%s/%016" PRIx64, self->code, ecfs_xxh3_64 (self->parameters, self->parameters_bytes));
}

EcfsCodec *ecfs_codec_make (const EcfsCodecOps *ops, unsigned k, unsigned n, const uint8_t *parameters,
                            size_t parameters_bytes, GError **error)
{
    if (!is_possible (ops, k, n, error))
        return NULL;
    EcfsCodec *self = ops->new (k, n, parameters, parameters_bytes, error);
    if (self == NULL)
        return NULL;
    self->ops = ops;
    self->k = k;
    self->n = n;
    self->code = ops->text (k, n);
    self->identity = make_identity (self);
    assert (self->granule > 0 && self->granule <= 4096 && n <= ECFS_CODEC_MAX_N);
    assert (strlen (self->identity) <= ECFS_CODEC_MAX_IDENTITY && self->parameters_bytes <= ECFS_CODEC_MAX_PARAMETERS);
    return self;
}

const EcfsCodecOps *ecfs_codec_find (const EcfsCodecOps *const *table, size_t n_table, const char *code,
                                     const char *provider, unsigned *ret_k, unsigned *ret_n)
{
    for (size_t i = 0; i < n_table; i++) {
        size_t name_size = strlen (table[i]->name);
        bool provides = provider == NULL || table[i]->provider == NULL || strcmp (table[i]->provider, provider) == 0;
        if (provides && strncmp (code, table[i]->name, name_size) == 0 && code[name_size] == ':' &&
            table[i]->parse (code + name_size + 1, ret_k, ret_n))
            return table[i];
    }
    return NULL;
}

void ecfs_codec_free (EcfsCodec *self)
{
    if (self == NULL)
        return;
    if (self->ops->clear != NULL)
        self->ops->clear (self);
    g_free (self->code);
    g_free (self->identity);
    g_free (self->parameters);
    g_free (self);
}

const char *ecfs_codec_code (const EcfsCodec *self)
{
    return self->code;
}

const char *ecfs_codec_identity (const EcfsCodec *self)
{
    return self->identity;
}

const uint8_t *ecfs_codec_parameters (const EcfsCodec *self, size_t *ret_bytes)
{
    *ret_bytes = self->parameters_bytes;
    return self->parameters;
}

EcfsCodeFamily ecfs_codec_family (const EcfsCodec *self)
{
    return self->ops->family;
}

const char *ecfs_codec_provider (const EcfsCodec *self)
{
    return self->ops->provider;
}

unsigned ecfs_codec_k (const EcfsCodec *self)
{
    return self->k;
}

unsigned ecfs_codec_n (const EcfsCodec *self)
{
    return self->n;
}

bool ecfs_codec_shares_stripes (const EcfsCodec *self, const EcfsCodec *other)
{
    bool extended = self->ops->family == other->ops->family && self->ops->extensible && self->k == other->k;
    return extended || strcmp (self->identity, other->identity) == 0;
}

unsigned ecfs_codec_tolerance (const EcfsCodec *self)
{
    return self->tolerance;
}

size_t ecfs_codec_granule (const EcfsCodec *self)
{
    return self->granule;
}

static void check_packet_bytes (const EcfsCodec *self, size_t packet_bytes)
{
    assert (packet_bytes > 0 && packet_bytes <= INT_MAX && packet_bytes % self->granule == 0);
    (void) self; /* read by the assertion only */
    (void) packet_bytes;
}

void ecfs_codec_encode (const EcfsCodec *self, const uint8_t *const *data, uint8_t *const *parity, size_t packet_bytes)
{
    check_packet_bytes (self, packet_bytes);
    self->ops->encode (self, data, parity, packet_bytes);
}

bool ecfs_codec_determines (const EcfsCodec *self, const bool *present, const bool *wanted)
{
    return self->ops->determines (self, present, wanted);
}

bool ecfs_codec_decodable (const EcfsCodec *self, const bool *present)
{
    bool data[ECFS_CODEC_MAX_N] = {0};
    memset (data, true, self->k);
    return self->ops->determines (self, present, data);
}

int ecfs_codec_guarantee (const EcfsCodec *self, const bool *present)
{
    return self->ops->guarantee (self, present);
}

bool ecfs_codec_choose (const EcfsCodec *self, const bool *wanted, const bool *available, const double *cost,
                        bool *sources)
{
    return self->ops->choose (self, wanted, available, cost, sources);
}

/* Whole packets: no family repairs from parts of them yet. */
static void list_reads (EcfsPlan *plan, const double *cost)
{
    for (unsigned i = 0; i < plan->codec->n; i++) {
        if (!plan->sources[i])
            continue;
        unsigned at = plan->n_reads++;
        for (; at > 0 && cost != NULL && cost[plan->reads[at - 1].stripe] > cost[i]; at--)
            plan->reads[at] = plan->reads[at - 1];
        plan->reads[at] = (EcfsPlanRead){.stripe = i, .offset = 0, .size = plan->codec->granule};
    }
}

static EcfsPlan *make_plan (const EcfsCodec *self, const bool *present, const bool *wanted, const double *cost,
                            GError **error)
{
    bool any_wanted = memchr (wanted, true, self->n) != NULL;
    EcfsPlan *plan = any_wanted ? self->ops->plan (self, present, wanted, error) : g_new0 (EcfsPlan, 1);
    if (plan == NULL)
        return NULL;
    plan->codec = self;
    memcpy (plan->wanted, wanted, self->n * sizeof *wanted);
    list_reads (plan, cost);
    return plan;
}

static void check_apart (const EcfsCodec *self, const bool *present, const bool *wanted)
{
    for (unsigned i = 0; i < self->n; i++)
        assert (!(present[i] && wanted[i]));
}

EcfsPlan *ecfs_codec_plan (const EcfsCodec *self, const bool *present, const bool *wanted, GError **error)
{
    check_apart (self, present, wanted);
    return make_plan (self, present, wanted, NULL, error);
}

EcfsPlan *ecfs_codec_plan_repair (const EcfsCodec *self, const bool *lost, const bool *available, const double *cost,
                                  GError **error)
{
    check_apart (self, available, lost);
    double same[ECFS_CODEC_MAX_N];
    bool sources[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < self->n; i++)
        same[i] = 1;
    if (ecfs_codec_choose (self, lost, available, cost == NULL ? same : cost, sources))
        return make_plan (self, sources, lost, cost, error);
    ecfs_codec_set_undetermined (self, available, error);
    return NULL;
}

const bool *ecfs_plan_sources (const EcfsPlan *self)
{
    return self->sources;
}

const EcfsPlanRead *ecfs_plan_reads (const EcfsPlan *self, size_t *ret_n_reads)
{
    *ret_n_reads = self->n_reads;
    return self->reads;
}

static bool is_empty (const EcfsPlan *self)
{
    return memchr (self->wanted, true, self->codec->n) == NULL;
}

void ecfs_plan_run (const EcfsPlan *self, uint8_t *const *packets, size_t packet_bytes)
{
    check_packet_bytes (self->codec, packet_bytes);
    if (!is_empty (self))
        self->codec->ops->run (self, packets, packet_bytes);
}

void ecfs_plan_free (EcfsPlan *self)
{
    if (self == NULL)
        return;
    if (!is_empty (self) && self->codec->ops->plan_clear != NULL)
        self->codec->ops->plan_clear (self);
    g_free (self);
}

bool ecfs_codec_parse_number (const char **at, unsigned *ret_number)
{
    const char *digits = *at;
    size_t n_digits = strspn (digits, "0123456789");
    if (n_digits == 0 || n_digits > 3 || (n_digits > 1 && digits[0] == '0'))
        return false;
    unsigned number = 0;
    for (size_t i = 0; i < n_digits; i++)
        number = number * 10 + (unsigned) (digits[i] - '0');
    *at += n_digits;
    *ret_number = number;
    return true;
}

bool ecfs_codec_parse_sum (const char *numbers, unsigned *ret_k, unsigned *ret_n)
{
    unsigned k, m;
    if (!ecfs_codec_parse_number (&numbers, &k) || *numbers++ != '+' || !ecfs_codec_parse_number (&numbers, &m) ||
        *numbers != '\0')
        return false;
    *ret_k = k;
    *ret_n = k + m;
    return true;
}

void ecfs_codec_set_undetermined (const EcfsCodec *self, const bool *present, GError **error)
{
    g_set_error (error, ECFS_ERROR, ENODATA, "the %u of %u stripes at hand do not determine those wanted of %s",
                 ecfs_codec_count (present, self->n), self->n, self->code);
}

bool ecfs_codec_no_parameters (size_t parameters_bytes, GError **error)
{
    return parameters_bytes == 0 ||
           ecfs_fail (error, EBADMSG, "the descriptor has parameters for a code that takes none");
}
