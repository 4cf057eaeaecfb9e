/* The codes that can be stored, and how a codec of one is made from a text or from what a descriptor says. */
#include "codec/codec_priv.h"

#include <string.h>

static const EcfsCodecOps *const families[] = {&ecfs_rs_ops, &ecfs_ldpc_ops, &ecfs_basic_ops, &ecfs_copies_ops};

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

/* NULL: no family reads @code. */
static const EcfsCodecOps *parse (const char *code, unsigned *ret_k, unsigned *ret_n)
{
    return ecfs_codec_find (families, G_N_ELEMENTS (families), code, ret_k, ret_n);
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
    g_autoptr (EcfsCodec) self = ops == NULL ? NULL : ecfs_codec_make (ops, k, n, NULL, 0, error);
    if (self == NULL || *hash == '\0' || strcmp (self->identity, text) == 0)
        return g_steal_pointer (&self);
    g_set_error (error, ECFS_ERROR, ESTALE, "%s: this ecfs makes %s another way, and must be told this one", text,
                 self->code);
    return NULL;
}

EcfsCodec *ecfs_codec_new_with (const char *identity, const uint8_t *parameters, size_t parameters_bytes,
                                GError **error)
{
    unsigned k, n;
    const char *hash;
    const EcfsCodecOps *ops = parse_identity (identity, &k, &n, &hash, error);
    g_autoptr (EcfsCodec) self = ops == NULL ? NULL : ecfs_codec_make (ops, k, n, parameters, parameters_bytes, error);
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
            return ecfs_codec_make (families[i], k, n, parameters == NULL ? none : parameters, parameters_bytes, error);
    g_set_error (error, ECFS_ERROR, EINVAL, "code family %u is not known here; a newer ecfs may know it",
                 (unsigned) family);
    return NULL;
}

char *ecfs_codec_small_code (const EcfsCodec *self)
{
    return ecfs_copies_ops.text (1, MIN (self->tolerance + 1, ECFS_COPIES_MAX));
}
