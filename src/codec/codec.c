#include "codec/codec_priv.h"

#include "util/xxh3.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

static const EcfsCodecOps *const families[] = {&ecfs_rs_ops, &ecfs_ldpc_ops, &ecfs_basic_ops, &ecfs_copies_ops};

static const EcfsCodecOps *const modelled[] = {&ecfs_mds_ops, &ecfs_peeling_ops, &ecfs_sparse_ops};

#define ID_DIGITS 16

static void set_unknown_code (const char *code, GError **error)
{
    g_autoptr (GString) forms = g_string_new (NULL);
    for (size_t i = 0; i < G_N_ELEMENTS (families); i++)
        g_string_append_printf (forms, "%s%s", i > 0 ? ", " : "", families[i]->form);
    /* The text may be anything: it comes from configuration files and extended attributes. */
    g_autofree char *start = g_strndup (code, 40);
    g_autofree char *shown = g_strescape (start, NULL);
    g_set_error (error, ECFS_ERROR, EINVAL, "\"%s\" is no code; known are: %s", shown, forms->str);
}

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

static EcfsCodec *codec_new (const EcfsCodecOps *ops, unsigned k, unsigned n, const uint8_t *parameters,
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

static const EcfsCodecOps *parse_as (const EcfsCodecOps *const *table, size_t n_table, const char *code,
                                     unsigned *ret_k, unsigned *ret_n)
{
    for (size_t i = 0; i < n_table; i++) {
        size_t name_size = strlen (table[i]->name);
        if (strncmp (code, table[i]->name, name_size) == 0 && code[name_size] == ':' &&
            table[i]->parse (code + name_size + 1, ret_k, ret_n))
            return table[i];
    }
    return NULL;
}

/* NULL: no family reads @code. */
static const EcfsCodecOps *parse (const char *code, unsigned *ret_k, unsigned *ret_n)
{
    return parse_as (families, G_N_ELEMENTS (families), code, ret_k, ret_n);
}

static bool is_id (const char *text)
{
    return strlen (text) == ID_DIGITS && strspn (text, "0123456789abcdef") == ID_DIGITS;
}

/* The family of a code's text or identity, and where its hash begins, or its end. */
static const EcfsCodecOps *parse_identity (const char *text, unsigned *ret_k, unsigned *ret_n, const char **ret_hash,
                                           GError **error)
{
    const char *slash = strchrnul (text, '/');
    g_autofree char *code = g_strndup (text, (gsize) (slash - text));
    const EcfsCodecOps *ops = parse (code, ret_k, ret_n);
    if (ops == NULL || (*slash == '/' && !is_id (slash + 1))) {
        set_unknown_code (text, error);
        return NULL;
    }
    *ret_hash = slash;
    return ops;
}

EcfsCodec *ecfs_codec_new (const char *text, GError **error)
{
    unsigned k, n;
    const char *hash;
    const EcfsCodecOps *ops = parse_identity (text, &k, &n, &hash, error);
    g_autoptr (EcfsCodec) self = ops == NULL ? NULL : codec_new (ops, k, n, NULL, 0, error);
    if (self == NULL || *hash == '\0' || strcmp (self->identity, text) == 0)
        return g_steal_pointer (&self);
    g_set_error (error, ECFS_ERROR, ESTALE, "%s: this ecfs makes %s another way, and must be told this one", text,
                 self->code);
    return NULL;
}

EcfsCodec *ecfs_codec_new_modelled (const char *text, GError **error)
{
    unsigned k, n;
    const EcfsCodecOps *ops = parse_as (modelled, G_N_ELEMENTS (modelled), text, &k, &n);
    return ops == NULL ? ecfs_codec_new (text, error) : codec_new (ops, k, n, NULL, 0, error);
}

EcfsCodec *ecfs_codec_new_with (const char *identity, const uint8_t *parameters, size_t parameters_bytes,
                                GError **error)
{
    unsigned k, n;
    const char *hash;
    const EcfsCodecOps *ops = parse_identity (identity, &k, &n, &hash, error);
    g_autoptr (EcfsCodec) self = ops == NULL ? NULL : codec_new (ops, k, n, parameters, parameters_bytes, error);
    if (self == NULL || strcmp (self->identity, identity) == 0)
        return g_steal_pointer (&self);
    g_set_error (error, ECFS_ERROR, EBADMSG, "%s: the parameters kept for it are those of %s", identity,
                 self->identity);
    return NULL;
}

EcfsCodec *ecfs_codec_new_for (EcfsCodeFamily family, unsigned k, unsigned n, const uint8_t *parameters,
                               size_t parameters_bytes, GError **error)
{
    static const uint8_t none[1];
    for (size_t i = 0; i < G_N_ELEMENTS (families); i++)
        if (families[i]->family == family)
            return codec_new (families[i], k, n, parameters == NULL ? none : parameters, parameters_bytes, error);
    g_set_error (error, ECFS_ERROR, EINVAL, "code family %u is not known here; a newer ecfs may know it",
                 (unsigned) family);
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

char *ecfs_codec_small_code (const EcfsCodec *self)
{
    return ecfs_copies_ops.text (1, MIN (self->tolerance + 1, ECFS_COPIES_MAX));
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
    bool extended = self->ops == other->ops && self->ops->extensible && self->k == other->k;
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

static unsigned count (const bool *flags, unsigned n)
{
    unsigned set = 0;
    for (unsigned i = 0; i < n; i++)
        set += flags[i];
    return set;
}

void ecfs_codec_set_undetermined (const EcfsCodec *self, const bool *present, GError **error)
{
    g_set_error (error, ECFS_ERROR, ENODATA, "the %u of %u stripes at hand do not determine those wanted of %s",
                 count (present, self->n), self->n, self->code);
}

bool ecfs_codec_no_parameters (size_t parameters_bytes, GError **error)
{
    return parameters_bytes == 0 ||
           ecfs_fail (error, EBADMSG, "the descriptor has parameters for a code that takes none");
}

bool ecfs_mds_determines (const EcfsCodec *self, const bool *present, const bool *wanted)
{
    unsigned i = 0;
    while (i < self->n && (present[i] || !wanted[i]))
        i++;
    return i == self->n || count (present, self->n) >= self->k;
}

int ecfs_mds_guarantee (const EcfsCodec *self, const bool *present)
{
    int spare = (int) count (present, self->n) - (int) self->k;
    return spare >= 0 ? spare : -1;
}

/* Any k serve; and the wanted ones themselves, where they are fewer and all there. */
bool ecfs_mds_choose (const EcfsCodec *self, const bool *wanted, const bool *available, const double *cost,
                      bool *sources)
{
    bool direct = true;
    double direct_cost = 0, sum = 0;
    for (unsigned i = 0; i < self->n; i++) {
        direct = direct && (available[i] || !wanted[i]);
        direct_cost += wanted[i] ? cost[i] : 0;
        sources[i] = false;
    }
    for (unsigned chosen = 0; chosen < self->k; chosen++) {
        unsigned best = self->n;
        for (unsigned i = 0; i < self->n; i++)
            if (available[i] && !sources[i] && (best == self->n || cost[i] < cost[best]))
                best = i;
        if (best == self->n)
            break;
        sources[best] = true;
        sum += cost[best];
    }
    if (direct && (direct_cost <= sum || count (sources, self->n) < self->k))
        memcpy (sources, wanted, self->n * sizeof *sources);
    return direct || count (sources, self->n) == self->k;
}

bool ecfs_mds_choose_sources (const EcfsCodec *self, const bool *present, bool *sources, GError **error)
{
    unsigned chosen = 0;
    for (unsigned i = 0; i < self->n && chosen < self->k; i++) {
        sources[i] = present[i];
        chosen += present[i];
    }
    if (chosen < self->k)
        ecfs_codec_set_undetermined (self, present, error);
    return chosen == self->k;
}
