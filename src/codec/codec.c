/* The codes that can be stored, and how a codec of one is made from a text or from what a descriptor says. */
#include "codec/codec_priv.h"
#include "codec/liberasurecode.h"

#include <string.h>

/* Where several only differ in their provider, the first serves when nobody asks for another. */
static const EcfsCodecOps *const families[] = {
    &ecfs_rs_ops,
#ifdef ECFS_WITH_LIBERASURECODE
    &ecfs_rs_liberasurecode_ops,
#endif
    &ecfs_ldpc_ops,
    &ecfs_xor_ops,
    &ecfs_basic_ops,
    &ecfs_copies_ops,
};

/* Built in or not. */
static const char *const providers[] = {"isal", "liberasurecode", NULL};

const char *const *ecfs_codec_providers (void)
{
#ifdef ECFS_WITH_LIBERASURECODE
    return providers;
#else
    static const char *const built_in[] = {"isal", NULL};
    return built_in;
#endif
}

#define ID_DIGITS 16

/* Of several that only differ in their provider the first. */
static bool is_first_of_family (size_t i)
{
    return i == 0 || families[i]->family != families[i - 1]->family;
}

const char *const *ecfs_codec_names (void)
{
    static const char *names[G_N_ELEMENTS (families) + 1];
    static gsize made;
    if (g_once_init_enter (&made)) {
        size_t n = 0;
        for (size_t i = 0; i < G_N_ELEMENTS (families); i++)
            if (is_first_of_family (i))
                names[n++] = families[i]->name;
        g_once_init_leave (&made, 1);
    }
    return names;
}

const char *ecfs_codec_forms (void)
{
    static char *forms;
    static gsize made;
    if (g_once_init_enter (&made)) {
        g_autoptr (GString) text = g_string_new (NULL);
        for (size_t i = 0; i < G_N_ELEMENTS (families); i++) {
            const char *between = i == 0 ? "" : i < G_N_ELEMENTS (families) - 1 ? ", " : " or ";
            int form_bytes = (int) strcspn (families[i]->form, " ");
            if (is_first_of_family (i))
                g_string_append_printf (text, "%s%.*s", between, form_bytes, families[i]->form);
        }
        forms = g_string_free (g_steal_pointer (&text), FALSE);
        g_once_init_leave (&made, 1);
    }
    return forms;
}

static void set_unknown_code (const char *code, GError **error)
{
    g_autoptr (GString) forms = g_string_new (NULL);
    for (size_t i = 0; i < G_N_ELEMENTS (families); i++)
        if (is_first_of_family (i))
            g_string_append_printf (forms, "%s%s", i > 0 ? ", " : "", families[i]->form);
    /* The text may be anything: it comes from configuration files and extended attributes. */
    g_autofree char *start = g_strndup (code, 40);
    g_autofree char *shown = g_strescape (start, NULL);
    g_set_error (error, ECFS_ERROR, EINVAL, "\"%s\" is not a code; known codes: %s", shown, forms->str);
}

static bool is_id (const char *text)
{
    return strlen (text) == ID_DIGITS && strspn (text, "0123456789abcdef") == ID_DIGITS;
}

/* The family of a code's text or identity, and where its hash begins, or its end. */
static const EcfsCodecOps *parse_identity (const char *text, const char *provider, unsigned *ret_k, unsigned *ret_n,
                                           const char **ret_hash, GError **error)
{
    const char *slash = strchrnul (text, '/');
    g_autofree char *code = g_strndup (text, (gsize) (slash - text));
    const EcfsCodecOps *ops = ecfs_codec_find (families, G_N_ELEMENTS (families), code, provider, ret_k, ret_n);
    if (ops == NULL || (*slash == '/' && !is_id (slash + 1))) {
        set_unknown_code (text, error);
        return NULL;
    }
    *ret_hash = slash;
    return ops;
}

bool ecfs_codec_check_provider (const char *provider, GError **error)
{
    if (!g_strv_contains (providers, provider))
        return ecfs_fail (error, EINVAL, "\"%s\" provides no code; isal and liberasurecode do", provider);
    return g_strv_contains (ecfs_codec_providers (), provider) ||
           ecfs_fail (error, ENOTSUP, "this ecfs was built without %s; rs by isal gives the same bytes", provider);
}

EcfsCodec *ecfs_codec_new_by (const char *text, const char *provider, GError **error)
{
    unsigned k, n;
    const char *hash;
    if (provider != NULL && !ecfs_codec_check_provider (provider, error))
        return NULL;
    const EcfsCodecOps *ops = parse_identity (text, provider, &k, &n, &hash, error);
    if (ops == NULL)
        return NULL;
    g_autoptr (GError) reason = NULL;
    g_autoptr (EcfsCodec) self = ecfs_codec_make (ops, k, n, NULL, 0, &reason);
    bool has_other_parameters =
        *hash != '\0' && (self == NULL ? reason->code == ENOTSUP : strcmp (self->identity, text) != 0);
    if (has_other_parameters) {
        g_set_error (error, ECFS_ERROR, ESTALE,
                     "%s: this ecfs makes %s:%u+%u in another way, and needs the stored parameters", text, ops->name, k,
                     n - k);
        return NULL;
    }
    if (self == NULL)
        g_propagate_error (error, g_steal_pointer (&reason));
    return g_steal_pointer (&self);
}

EcfsCodec *ecfs_codec_new (const char *text, GError **error)
{
    return ecfs_codec_new_by (text, NULL, error);
}

EcfsCodec *ecfs_codec_new_with (const char *identity, const uint8_t *parameters, size_t parameters_bytes,
                                GError **error)
{
    unsigned k, n;
    const char *hash;
    const EcfsCodecOps *ops = parse_identity (identity, NULL, &k, &n, &hash, error);
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

const char *ecfs_codec_liberasurecode_version (void)
{
#ifdef ECFS_WITH_LIBERASURECODE
    return ecfs_liberasurecode_version ();
#else
    return NULL;
#endif
}

char *ecfs_codec_small_code (const EcfsCodec *self)
{
    return ecfs_copies_ops.text (1, MIN (self->tolerance + 1, ECFS_COPIES_MAX));
}
