/* What answers of WebDAV servers mean, as an errno and a text that says what to do. */
#include "endpoint/http/http_priv.h"

#include <string.h>

/* Who we are is not, or not any more, what the server wants. */
static GError *identity_problem (const EcfsHttp *self, long status)
{
    const EcfsHttpConfig *config = self->config;
    const char *base = config->base;
    if (config->token_file != NULL)
        return ecfs_http_error (EACCES,
                                "%s refuses the token in %s (%ld): it has expired or was revoked, put a new one there",
                                base, config->token_file, status);
    if (config->password_file != NULL)
        return ecfs_http_error (EACCES, "%s refuses user %s with the password in %s (%ld)", base, config->user,
                                config->password_file, status);
    if (config->client_cert != NULL)
        return ecfs_http_error (EACCES,
                                "%s refuses the certificate in %s (%ld): renew it, or ask its operator for access",
                                base, config->client_cert, status);
    if (status == 401)
        return ecfs_http_error (EACCES,
                                "%s wants to know who you are (401): write USER@ before its host and set "
                                "password_file, or set token_file or client_cert",
                                base);
    return ecfs_http_error (EACCES, "%s refuses access (%ld): ask its operator", base, status);
}

static GError *status_error (const EcfsHttpCall *call, const char *name)
{
    const char *method = call->method;
    long status = call->status;
    switch (status) {
    case 401:
    case 403:
        if (strcmp (method, "MOVE") == 0)
            return ecfs_http_error (
                EACCES,
                "%s: the server took the upload, but does not give it its name (MOVE is answered by "
                "%ld): allow MOVE for this user. A server that first keeps uploads to itself, as rclone "
                "serve webdav does, answers like this too, and cannot be an endpoint",
                name, status);
        return ecfs_http_error (EACCES, "%s: %s is refused (%ld)", name, method, status);
    case 404:
    case 409: /* what is above is missing */
    case 410:
        return ecfs_http_error (ENOENT, "%s: %s", name, g_strerror (ENOENT));
    case 405:
    case 501:
        return ecfs_http_error (ENOTSUP, "%s: the server does not do %s (%ld): switch WebDAV on for this directory",
                                name, method, status);
    case 411:
        return ecfs_http_error (EPROTO, "%s: the server takes no upload whose size is not known in advance (411)",
                                name);
    case 412:
        return ecfs_http_error (EEXIST, "%s: %s", name, g_strerror (EEXIST));
    case 413:
        return ecfs_http_error (EFBIG,
                                "%s: the server takes no file of this size (413): raise its limit (nginx: "
                                "client_max_body_size 0; Apache: LimitRequestBody 0)",
                                name);
    case 416:
        return ecfs_http_error (EBADMSG, "%s: ends before the range that was asked for", name);
    case 423:
        return ecfs_http_error (EBUSY, "%s: is locked on the server (423)", name);
    case 507:
        return ecfs_http_error (ENOSPC, "%s: the server has no space left (507)", name);
    case 502:
        if (strcmp (method, "MOVE") == 0)
            return ecfs_http_error (
                EPROTO,
                "%s: the server mistakes the new name for one on another server (502): its name and "
                "scheme must be those of the URL",
                name);
        break;
    default:
        break;
    }
    if (status >= 300 && status < 400)
        return ecfs_http_error (
            EPROTO, "%s: the server redirects to %s (%ld), which ecfs does not follow: write that URL if it is right",
            name, call->location != NULL ? call->location : "another place", status);
    return ecfs_http_error (status >= 500 ? EIO : EPROTO, "%s: %s is answered by %ld%s", name, method, status,
                            status >= 500 ? ": the server's log tells why, perhaps its disk is full" : "");
}

/* Also has the root looked at where we seem to be locked out. */
GError *ecfs_dav_refusal (EcfsHttpOp *op, const char *name)
{
    const EcfsHttpCall *call = &op->call;
    if (call->status == 401)
        ecfs_http_break (op->http, identity_problem (op->http, call->status));
    else if (call->status == 403 || call->status >= 500) /* nginx: PUT to a directory that is gone */
        ecfs_dav_check (op->http);
    return status_error (call, name);
}

GError *ecfs_dav_root_refusal (const EcfsHttp *self, const EcfsHttpCall *call)
{
    const EcfsHttpConfig *config = self->config;
    g_autofree char *url = g_strconcat (config->base, config->root, "/", NULL);
    if (call->result != CURLE_OK)
        return ecfs_http_problem (self, call);
    switch (call->status) {
    case 400:
        /* nginx, where it wants a certificate */
        return config->tls && config->client_cert == NULL
                   ? ecfs_http_want_certificate (self)
                   : ecfs_http_error (EPROTO, "%s: the server understands no PROPFIND (400)", url);
    case 401:
    case 403:
        return identity_problem (self, call->status);
    case 404:
        return ecfs_http_error (ENOENT, "%s does not exist", url);
    case 405:
    case 501:
        return ecfs_http_error (
            EPROTO,
            "%s: the server does not speak WebDAV there (PROPFIND is answered by %ld): switch it on, "
            "or use http:// or https:// for a place that is only read",
            url, call->status);
    default:
        return status_error (call, url);
    }
}
