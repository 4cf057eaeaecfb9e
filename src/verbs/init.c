#include "verbs/init.h"

#include "archive/archive.h"
#include "codec/codec.h"
#include "ecfs/ecfs.h"
#include "verbs/key.h"

#include <string.h>

bool ecfs_config_add_setting (EcfsConfig *config, const char *setting, GError **error)
{
    const char *equals = strchr (setting, '=');
    if (equals == NULL)
        return ecfs_fail (error, EINVAL, "\"%s\" is not KEY=VALUE", setting);
    g_autofree char *key = g_strndup (setting, (size_t) (equals - setting));
    return ecfs_config_set (config, key, equals + 1, error);
}

bool ecfs_config_add_endpoint_text (EcfsConfig *config, const char *text, GError **error)
{
    EcfsEndpointSpec *spec = ecfs_endpoint_spec_parse (text, error);
    EcfsConfigEndpoint *endpoint = spec == NULL ? NULL : ecfs_config_endpoint_new (spec, error);
    return endpoint != NULL && ecfs_config_add_endpoint (config, endpoint, error);
}

static bool check_count (const EcfsConfig *config, const EcfsCodec *codec, GError **error)
{
    unsigned n = ecfs_codec_n (codec), n_endpoints = config->endpoints->len;
    if (n_endpoints == 0)
        return ecfs_fail (error, EINVAL, "name the endpoints, each as NAME=URL");
    if (n_endpoints >= n || config->allow_double)
        return true;
    return ecfs_fail (error, EINVAL,
                      "%s needs %u endpoints and there are %u: name more, choose another code, or let endpoints hold "
                      "several stripes of a file with allow_double = yes, which protects against less",
                      ecfs_codec_code (codec), n, n_endpoints);
}

static EcfsConfig *config_of (const char *code, const char *const *endpoints, const char *const *settings,
                              GError **error)
{
    g_autoptr (EcfsConfig) config = ecfs_config_new ();
    if (code != NULL && !ecfs_config_set (config, "code", code, error))
        return NULL;
    for (; settings != NULL && *settings != NULL; settings++)
        if (!ecfs_config_add_setting (config, *settings, error))
            return NULL;
    for (; endpoints != NULL && *endpoints != NULL; endpoints++)
        if (!ecfs_config_add_endpoint_text (config, *endpoints, error))
            return NULL;
    if (!ecfs_config_check (config, error))
        return NULL;
    g_autoptr (EcfsCodec) codec = ecfs_codec_new (config->code, error);
    if (codec == NULL || !check_count (config, codec, error))
        return NULL;
    return g_steal_pointer (&config);
}

bool ecfs_init_with_key (const char *directory, const char *code, const char *const *endpoints,
                         const char *const *settings, const EcfsKeyWay *key, GError **error)
{
    EcfsKeepingRead keeping;
    if (!ecfs_keeping_read (key, &keeping, error))
        return false;
    g_autoptr (EcfsConfig) config = config_of (code, endpoints, settings, error);
    bool made = config != NULL && ecfs_archive_init (directory, config, keeping.how, &keeping.opener, error);
    ecfs_keeping_forget (&keeping);
    return made;
}

bool ecfs_init (const char *directory, const char *code, const char *const *endpoints, const char *const *settings,
                const char *key, GError **error)
{
    const EcfsKeyWay way = {.kind = key != NULL ? key : "split"};
    return ecfs_init_with_key (directory, code, endpoints, settings, &way, error);
}
