/* The drivers dav://, davs://, http:// and https://. http_priv.h tells what is where. */
#include "endpoint/http/http_priv.h"

static void begin (EcfsHttp *self, EcfsStream *request)
{
    static void (*const begin_kind[]) (EcfsHttp *, EcfsStream *) = {
        [ECFS_REQUEST_READ] = ecfs_http_read_begin,  [ECFS_REQUEST_WRITE] = ecfs_dav_write_begin,
        [ECFS_REQUEST_RMDIR] = ecfs_dav_rmdir_begin, [ECFS_REQUEST_REMOVE] = ecfs_dav_remove_begin,
        [ECFS_REQUEST_SIZE] = ecfs_dav_size_begin,   [ECFS_REQUEST_SPACE] = ecfs_dav_space_begin,
        [ECFS_REQUEST_LIST] = ecfs_dav_list_begin,   [ECFS_REQUEST_EXAMINE] = ecfs_dav_examine_begin,
        [ECFS_REQUEST_MARK] = ecfs_dav_mark_begin,
    };
    begin_kind[request->kind](self, request);
}

static struct curl_slist *make_headers (EcfsHttpOp *op, const EcfsHttpAsk *ask, GError **error)
{
    const EcfsHttp *self = op->http;
    (void) error;
    /* A cache on the way asks the server whether what it has is still so. */
    struct curl_slist *list = ecfs_http_add_header (NULL, "Cache-Control: no-cache");
    if (ask->depth != NULL)
        list = ecfs_http_add_header (list, "Depth: %s", ask->depth);
    if (ask->body != NULL)
        list = ecfs_http_add_header (list, "Content-Type: application/xml; charset=utf-8");
    if (ask->destination != NULL) {
        g_autofree char *url = ecfs_http_url (self, ask->destination, false);
        list = ecfs_http_add_header (list, "Destination: %s", url);
        list = ecfs_http_add_header (list, "Overwrite: %s", ask->replace ? "T" : "F");
    }
    if (ask->upload) {
        list = ecfs_http_add_header (list, "Content-Type: application/octet-stream");
        /* Only digest has a reason to wait until the server says that it will take the body: the round trip before. */
        list = ecfs_http_add_header (list, "Expect:%s", self->auth == CURLAUTH_DIGEST ? " 100-continue" : "");
        if (ask->upload_bytes < 0)
            list = ecfs_http_add_header (list, "Transfer-Encoding: chunked");
    }
    return list;
}

const EcfsHttpDialect ecfs_dav_dialect = {.begin = begin, .headers = make_headers, .refusal = ecfs_dav_refusal};

static bool check_together (const EcfsHttpConfig *config, GError **error)
{
    if (config->password_file != NULL && config->user == NULL)
        return ecfs_fail (error, EINVAL, "password_file needs a user: write SCHEME://USER@HOST/PATH");
    if (config->user != NULL && config->password_file == NULL)
        return ecfs_fail (error, EINVAL, "a user in the URL needs the option password_file");
    if (config->password_file != NULL && config->token_file != NULL)
        return ecfs_fail (error, EINVAL, "password_file and token_file exclude each other");
    if (config->client_key != NULL && config->client_cert == NULL)
        return ecfs_fail (error, EINVAL, "client_key needs client_cert");
    if (!config->tls && (config->ca_file != NULL || config->client_cert != NULL))
        return ecfs_fail (error, EINVAL, "certificates are for davs:// and https://");
    if (!config->tls && config->token_file != NULL && !config->basic)
        return ecfs_fail (
            error, EINVAL,
            "a token may be read on the way: use davs:// or https://, or say auth=clear if that is acceptable");
    return true;
}

static bool parse_spec (EcfsHttpConfig *config, const EcfsEndpointSpec *spec, GError **error)
{
    config->dav = g_str_has_prefix (spec->url, "dav");
    if (!ecfs_http_parse_url (config, spec->url, error) || !ecfs_http_parse_options (config, spec, error) ||
        !ecfs_http_parse_choice (spec, "auth", "safe", "clear", &config->basic, error))
        return false;
    config->password_file = ecfs_spec_file (spec, "password_file");
    config->token_file = ecfs_spec_file (spec, "token_file");
    config->client_cert = ecfs_spec_file (spec, "client_cert");
    config->client_key = ecfs_spec_file (spec, "client_key");
    return check_together (config, error);
}

static void free_config (void *config)
{
    ecfs_http_config_clear (config);
    g_free (config);
}

static void *new_config (const EcfsEndpointSpec *spec, GError **error)
{
    EcfsHttpConfig *config = g_new0 (EcfsHttpConfig, 1);
    if (parse_spec (config, spec, error))
        return config;
    free_config (config);
    return NULL;
}

static const char *const option_keys[] = {
    ECFS_COMMON_OPTION_KEYS, ECFS_HTTP_OPTION_KEYS, "auth", "client_cert", "client_key",
    "password_file",         "token_file",          NULL,
};

#define HTTP_DRIVER(NAME)                                                                                              \
    {                                                                                                                  \
        .scheme = NAME, .option_keys = option_keys, .default_connections = 2, .n_pipelined = ECFS_HTTP_MAX_ACTIVE,     \
        .counts_sent = true, .new_config = new_config, .free_config = free_config, .connect = ecfs_dav_connect,        \
        .serve = ecfs_http_serve, .disconnect = ecfs_dav_disconnect,                                                   \
    }

const EcfsDriver ecfs_driver_dav = HTTP_DRIVER ("dav");
const EcfsDriver ecfs_driver_davs = HTTP_DRIVER ("davs");
const EcfsDriver ecfs_driver_http = HTTP_DRIVER ("http");
const EcfsDriver ecfs_driver_https = HTTP_DRIVER ("https");
