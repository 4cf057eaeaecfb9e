#include "codec/codec_priv.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

static const EcfsCodecOps *const families[] = {&ecfs_rs_ops, &ecfs_copies_ops};

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

static EcfsCodec *codec_new (const EcfsCodecOps *ops, unsigned k, unsigned n, GError **error)
{
    if (!is_possible (ops, k, n, error))
        return NULL;
    EcfsCodec *self = ops->new (k, n, error);
    if (self == NULL)
        return NULL;
    self->ops = ops;
    self->k = k;
    self->n = n;
    self->code = ops->text (k, n);
    assert (self->granule > 0 && self->granule <= 4096 && n <= ECFS_CODEC_MAX_N);
    return self;
}

/* NULL: no family reads @code. */
static const EcfsCodecOps *parse (const char *code, unsigned *ret_k, unsigned *ret_n)
{
    for (size_t i = 0; i < G_N_ELEMENTS (families); i++) {
        size_t name_size = strlen (families[i]->name);
        if (strncmp (code, families[i]->name, name_size) == 0 && code[name_size] == ':' &&
            families[i]->parse (code + name_size + 1, ret_k, ret_n))
            return families[i];
    }
    return NULL;
}

EcfsCodec *ecfs_codec_new (const char *code, GError **error)
{
    unsigned k, n;
    const EcfsCodecOps *ops = parse (code, &k, &n);
    if (ops != NULL)
        return codec_new (ops, k, n, error);
    set_unknown_code (code, error);
    return NULL;
}

EcfsCodec *ecfs_codec_new_for (EcfsCodeFamily family, unsigned k, unsigned n, GError **error)
{
    for (size_t i = 0; i < G_N_ELEMENTS (families); i++)
        if (families[i]->family == family)
            return codec_new (families[i], k, n, error);
    g_set_error (error, ECFS_ERROR, EINVAL, "code family %u is not known here; a newer ecfs may know it",
                 (unsigned) family);
    return NULL;
}

void ecfs_codec_free (EcfsCodec *self)
{
    if (self == NULL)
        return;
    g_free (self->code);
    g_free (self);
}

char *ecfs_codec_small_code (const EcfsCodec *self)
{
    return ecfs_copies_ops.text (1, self->tolerance + 1);
}

const char *ecfs_codec_code (const EcfsCodec *self)
{
    return self->code;
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

bool ecfs_codec_decodable (const EcfsCodec *self, const bool *present)
{
    return self->ops->decodable (self, present);
}

int ecfs_codec_guarantee (const EcfsCodec *self, const bool *present)
{
    return self->ops->guarantee (self, present);
}

EcfsPlan *ecfs_codec_plan (const EcfsCodec *self, const bool *present, const bool *wanted, GError **error)
{
    bool any_wanted = false;
    for (unsigned i = 0; i < self->n; i++) {
        assert (!(present[i] && wanted[i]));
        any_wanted |= wanted[i];
    }
    EcfsPlan *plan = any_wanted ? self->ops->plan (self, present, wanted, error) : g_new0 (EcfsPlan, 1);
    if (plan == NULL)
        return NULL;
    plan->codec = self;
    memcpy (plan->wanted, wanted, self->n * sizeof *wanted);
    return plan;
}

const bool *ecfs_plan_sources (const EcfsPlan *self)
{
    return self->sources;
}

void ecfs_plan_run (const EcfsPlan *self, uint8_t *const *packets, size_t packet_bytes)
{
    check_packet_bytes (self->codec, packet_bytes);
    if (memchr (self->wanted, true, self->codec->n) != NULL)
        self->codec->ops->run (self, packets, packet_bytes);
}

void ecfs_plan_free (EcfsPlan *self)
{
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

static unsigned count (const bool *flags, unsigned n)
{
    unsigned set = 0;
    for (unsigned i = 0; i < n; i++)
        set += flags[i];
    return set;
}

bool ecfs_mds_decodable (const EcfsCodec *self, const bool *present)
{
    return count (present, self->n) >= self->k;
}

int ecfs_mds_guarantee (const EcfsCodec *self, const bool *present)
{
    int spare = (int) count (present, self->n) - (int) self->k;
    return spare >= 0 ? spare : -1;
}

bool ecfs_mds_choose_sources (const EcfsCodec *self, const bool *present, bool *sources, GError **error)
{
    unsigned chosen = 0;
    for (unsigned i = 0; i < self->n && chosen < self->k; i++) {
        sources[i] = present[i];
        chosen += present[i];
    }
    if (chosen < self->k)
        return ecfs_fail (error, ENODATA, "%u of %u stripes are at hand, %s needs %u", chosen, self->n, self->code,
                          self->k);
    return true;
}
