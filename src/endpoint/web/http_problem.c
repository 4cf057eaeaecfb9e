/* What goes wrong with HTTP, as an errno and a text that says what to do. */
#include "endpoint/web/http.h"

#include <openssl/x509_vfy.h>
#include <string.h>

GError *ecfs_http_error (int code, const char *format, ...)
{
    va_list args;
    va_start (args, format);
    GError *error = g_error_new_valist (ECFS_ERROR, code, format, args);
    va_end (args);
    return error;
}

static GError *certificate_problem (const EcfsHttp *self, const EcfsHttpCall *call)
{
    const char *base = self->config->base;
    switch (call->verified) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return ecfs_http_error (EACCES, "the certificate of %s has expired: its operator has to renew it", base);
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return ecfs_http_error (EACCES, "the certificate of %s is not valid yet: check the clocks", base);
    case X509_V_ERR_CERT_REVOKED:
        return ecfs_http_error (EACCES, "the certificate of %s has been revoked", base);
    case X509_V_ERR_UNSPECIFIED: /* it is good, and the name was not asked for */
    case X509_V_OK:
        return ecfs_http_error (EACCES,
                                "the certificate of %s is for another host: write the name that it has in the URL (%s)",
                                base, call->problem);
    default:
        return ecfs_http_error (EACCES,
                                "the certificate of %s is signed by no authority that is trusted here: set ca_file to "
                                "the certificate of the one that signed it (%s)",
                                base, X509_verify_cert_error_string (call->verified));
    }
}

static bool wants_certificate (const char *problem)
{
    return strstr (problem, "certificate required") != NULL || strstr (problem, "handshake failure") != NULL ||
           strstr (problem, "alert bad certificate") != NULL;
}

GError *ecfs_http_want_certificate (const EcfsHttp *self)
{
    if (self->config->client_cert == NULL)
        return ecfs_http_error (EACCES, "%s wants a client certificate: set client_cert and client_key",
                                self->config->base);
    return ecfs_http_error (EACCES, "%s does not accept the certificate in %s: renew it, or ask its operator",
                            self->config->base, self->config->client_cert);
}

GError *ecfs_http_problem (const EcfsHttp *self, const EcfsHttpCall *call)
{
    const EcfsHttpConfig *config = self->config;
    const char *title = ecfs_http_title (config);
    GError *explained = self->dialect->explain == NULL ? NULL : self->dialect->explain (self, call);
    if (explained != NULL)
        return explained;
    const char *text = call->problem[0] != '\0' ? call->problem : curl_easy_strerror (call->result);
    if (wants_certificate (text))
        return ecfs_http_want_certificate (self);
    switch (call->result) {
    case CURLE_PEER_FAILED_VERIFICATION:
        return certificate_problem (self, call);
    case CURLE_SSL_CACERT_BADFILE:
        if (config->ca_file == NULL)
            return ecfs_http_error (
                EACCES,
                "the certificates of this system's trusted authorities cannot be read: %s: install the "
                "package ca-certificates, or set ca_file to the certificate of the authority that signed "
                "the one of %s",
                text, config->base);
        return ecfs_http_error (EACCES, "ca_file %s cannot be used: %s", config->ca_file, text);
    case CURLE_SSL_CERTPROBLEM:
        return ecfs_http_error (EACCES, "client_cert %s with its key cannot be used: %s", config->client_cert, text);
    case CURLE_COULDNT_RESOLVE_HOST:
        return ecfs_http_error (ENOTCONN, "the host of %s is not known: %s", config->base, text);
    case CURLE_COULDNT_CONNECT:
        return ecfs_http_error (ENOTCONN, "cannot connect to %s: %s", title, text);
    case CURLE_SSL_CONNECT_ERROR:
        return ecfs_http_error (ENOTCONN, "no TLS with %s: %s", title, text);
    case CURLE_SEND_FAIL_REWIND:
        if (call->status != 401)
            return ecfs_http_error (ENOTCONN, "%s has closed its connection in the middle of an upload", title);
        return ecfs_http_error (
            ENOTCONN,
            "%s asks for authentication in the middle of an upload, which ends the upload: make nonces of digest "
            "authentication last longer there (Apache: AuthDigestNonceLifetime)",
            title);
    case CURLE_OPERATION_TIMEDOUT:
        return ecfs_http_error (ETIMEDOUT, "%s does not answer: %s", title, text);
    default:
        return ecfs_http_error (ENOTCONN, "%s: %s", title, text);
    }
}

GError *ecfs_http_refusal (EcfsHttpOp *op, const char *name)
{
    if (op->call.result != CURLE_OK)
        return ecfs_http_problem (op->http, &op->call);
    return op->http->dialect->refusal (op, name);
}
