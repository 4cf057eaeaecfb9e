/*
 * Who we are. What the options name is read when connecting, and a token again whenever its file has changed, so that
 * one that somebody renews beside us is taken up. Secrets go to libcurl and nowhere else.
 */
#include "endpoint/web/http.h"

#include "endpoint/core/secret.h"

#include <string.h>
#include <sys/stat.h>

#define NS_PER_S INT64_C (1000000000)

static void forget (char **secret)
{
    if (*secret != NULL)
        explicit_bzero (*secret, strlen (*secret));
    g_clear_pointer (secret, g_free);
}

void ecfs_http_auth_clear (EcfsHttp *self)
{
    forget (&self->password);
    forget (&self->token);
}

static bool load_token (EcfsHttp *self, GError **error)
{
    const char *path = self->config->token_file;
    struct stat info;
    if (stat (path, &info) != 0)
        return ecfs_fail (error, EACCES, "token_file %s: %s", path, g_strerror (errno));
    int64_t mtime_ns = info.st_mtim.tv_sec * NS_PER_S + info.st_mtim.tv_nsec;
    if (self->token != NULL && mtime_ns == self->token_mtime_ns && info.st_ino == self->token_inode)
        return true;
    char *token = ecfs_secret_read ("token_file", path, error);
    if (token == NULL)
        return false;
    forget (&self->token);
    self->token = token;
    self->token_mtime_ns = mtime_ns;
    self->token_inode = info.st_ino;
    return true;
}

/* libcurl says little about files that it cannot read. */
static bool check_certificates (const EcfsHttpConfig *config, GError **error)
{
    if (config->ca_file != NULL && !g_file_test (config->ca_file, G_FILE_TEST_EXISTS))
        return ecfs_fail (error, EACCES,
                          "ca_file %s is missing: name the certificate of the authority that signed the "
                          "server's",
                          config->ca_file);
    if (config->client_cert != NULL && !g_file_test (config->client_cert, G_FILE_TEST_EXISTS))
        return ecfs_fail (error, EACCES, "client_cert %s is missing", config->client_cert);
    if (config->client_cert == NULL)
        return true;
    return ecfs_secret_is_private (config->client_key != NULL ? "client_key" : "client_cert",
                                   config->client_key != NULL ? config->client_key : config->client_cert, error);
}

bool ecfs_http_auth_load (EcfsHttp *self, GError **error)
{
    const EcfsHttpConfig *config = self->config;
    if (!check_certificates (config, error))
        return false;
    if (config->token_file != NULL) {
        self->auth = CURLAUTH_BEARER;
        return load_token (self, error);
    }
    if (config->password_file == NULL)
        return true;
    self->auth = CURLAUTH_NONE; /* until the server has said what it takes */
    self->password = ecfs_secret_read ("password_file", config->password_file, error);
    return self->password != NULL;
}

bool ecfs_http_auth_choose (EcfsHttp *self, unsigned long offered, GError **error)
{
    if ((offered & CURLAUTH_DIGEST) != 0)
        self->auth = CURLAUTH_DIGEST;
    else if ((offered & CURLAUTH_BASIC) != 0 && (self->config->tls || self->config->basic))
        self->auth = CURLAUTH_BASIC;
    else if ((offered & CURLAUTH_BASIC) != 0)
        return ecfs_fail (error, EACCES,
                          "the server wants the password in clear, so that it could be read on the way: use davs://, "
                          "or say auth=clear");
    else
        return ecfs_fail (error, EACCES, "the server takes no password (neither digest nor basic)");
    return true;
}

bool ecfs_http_auth_apply (EcfsHttp *self, CURL *easy, GError **error)
{
    const EcfsHttpConfig *config = self->config;
    if (config->ca_file != NULL) { /* instead of the system's, which libcurl has as both */
        bool directory = g_file_test (config->ca_file, G_FILE_TEST_IS_DIR);
        (void) curl_easy_setopt (easy, CURLOPT_CAPATH, directory ? config->ca_file : NULL);
        (void) curl_easy_setopt (easy, CURLOPT_CAINFO, directory ? NULL : config->ca_file);
    }
    if (config->client_cert != NULL) {
        (void) curl_easy_setopt (easy, CURLOPT_SSLCERT, config->client_cert);
        (void) curl_easy_setopt (easy, CURLOPT_SSLKEY,
                                 config->client_key != NULL ? config->client_key : config->client_cert);
    }
    if (config->token_file != NULL) {
        if (!load_token (self, error))
            return false;
        (void) curl_easy_setopt (easy, CURLOPT_XOAUTH2_BEARER, self->token);
    }
    if (self->password != NULL && self->auth != CURLAUTH_NONE) {
        (void) curl_easy_setopt (easy, CURLOPT_USERNAME, config->user);
        (void) curl_easy_setopt (easy, CURLOPT_PASSWORD, self->password);
    }
    if (self->auth != CURLAUTH_NONE)
        (void) curl_easy_setopt (easy, CURLOPT_HTTPAUTH, (long) self->auth);
    return true;
}
