/* Authentication: agent and key files, then the password file. */
#include "endpoint/core/secret.h"
#include "endpoint/ssh/ssh_known_hosts.h"
#include "endpoint/ssh/ssh_priv.h"
#include "util/io.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_KEY_BYTES  (64 * 1024)
#define MAX_AGENT_KEYS 5 /* OpenSSH hangs up after six attempts */

/* What has been tried, for the message. */
typedef struct Attempts {
    GString *text;
    bool rsa; /* one of them was an RSA key */
} Attempts;

/* What came of one attempt. */
typedef enum Outcome {
    OUTCOME_IN,
    OUTCOME_REFUSED,
    OUTCOME_BROKEN, /* the error is set */
} Outcome;

static void note (Attempts *attempts, const char *format, ...) G_GNUC_PRINTF (2, 3);

static void note (Attempts *attempts, const char *format, ...)
{
    va_list args;
    va_start (args, format);
    if (attempts->text->len > 0)
        g_string_append (attempts->text, ", ");
    g_string_append_vprintf (attempts->text, format, args);
    va_end (args);
}

/* @waited: false when the wait during the call failed and set the error. */
static Outcome outcome (EcfsSsh *self, int result, bool waited, GError **error)
{
    if (!waited)
        return OUTCOME_BROKEN;
    if (result == 0)
        return OUTCOME_IN;
    if (result == LIBSSH2_ERROR_SOCKET_DISCONNECT || result == LIBSSH2_ERROR_SOCKET_RECV ||
        result == LIBSSH2_ERROR_SOCKET_SEND) {
        g_set_error (error, ECFS_ERROR, EACCES, "the server hung up during authentication (too many attempts?)");
        return OUTCOME_BROKEN;
    }
    return OUTCOME_REFUSED;
}

static bool holds_rsa (const char *text, size_t size)
{
    return memmem (text, size, "ssh-rsa", strlen ("ssh-rsa")) != NULL;
}

/* Whether a private key file is an RSA key: by its PEM header, or by the public part that OpenSSH's format begins with.
 */
static bool key_file_is_rsa (const char *path)
{
    static const char begin[] = "-----BEGIN OPENSSH PRIVATE KEY-----";
    g_autofree char *text = NULL;
    size_t size;
    if (!ecfs_read_file (path, MAX_KEY_BYTES, &text, &size, NULL))
        return false;
    if (strstr (text, "BEGIN RSA PRIVATE KEY") != NULL)
        return true;
    char *body = strstr (text, begin);
    if (body == NULL)
        return false;
    body += strlen (begin);
    char *end = strstr (body, "-----END");
    if (end != NULL)
        *end = '\0';
    gsize blob_bytes;
    g_autofree guchar *blob = g_base64_decode (body, &blob_bytes);
    return holds_rsa ((const char *) blob, MIN (blob_bytes, 256));
}

static Outcome try_key_file (EcfsSsh *self, const char *path, Attempts *attempts, GError **error)
{
    if (access (path, R_OK) != 0) {
        if (self->config->identity_first)
            note (attempts, "key %s (%s)", path, g_strerror (errno));
        return OUTCOME_REFUSED;
    }
    /* As ssh does: a key that others can read is no secret. */
    struct stat status;
    if (stat (path, &status) == 0 && status.st_uid == geteuid () && (status.st_mode & 077) != 0) {
        note (attempts, "key %s (can be read by others, mode %04o: chmod 600 it)", path, status.st_mode & 07777);
        return OUTCOME_REFUSED;
    }
    const char *user = self->config->user;
    int result;
    bool waited = true;
    while ((result = libssh2_userauth_publickey_fromfile_ex (self->session, user, (unsigned) strlen (user), NULL, path,
                                                             "")) == LIBSSH2_ERROR_EAGAIN)
        if (!(waited = ecfs_ssh_wait (self, error)))
            break;
    Outcome out = outcome (self, result, waited, error);
    if (out != OUTCOME_REFUSED)
        return out;
    bool rsa = key_file_is_rsa (path);
    attempts->rsa |= rsa;
    if (result == LIBSSH2_ERROR_FILE)
        note (attempts,
              "key %s (cannot be used: broken, of a kind that libssh2 lacks, or with a passphrase: use ssh-agent)",
              path);
    else
        note (attempts, "key %s (%srefused)", path, rsa ? "RSA, " : "");
    return out;
}

static Outcome try_key_files (EcfsSsh *self, Attempts *attempts, GError **error)
{
    Outcome out = OUTCOME_REFUSED;
    for (char **path = self->config->identity_files; *path != NULL && out == OUTCOME_REFUSED; path++)
        out = try_key_file (self, *path, attempts, error);
    return out;
}

/* Whether a public key beside one of the identity files is that of the agent. */
static bool is_named (const EcfsSshConfig *config, const struct libssh2_agent_publickey *key)
{
    g_autofree char *blob = g_base64_encode (key->blob, key->blob_len);
    for (char **file = config->identity_files; *file != NULL; file++) {
        g_autofree char *path = g_strconcat (*file, ".pub", NULL), *text = NULL;
        size_t size;
        if (ecfs_read_file (path, MAX_KEY_BYTES, &text, &size, NULL) && strstr (text, blob) != NULL)
            return true;
    }
    return false;
}

static Outcome try_agent_keys (EcfsSsh *self, LIBSSH2_AGENT *agent, Attempts *attempts, GError **error)
{
    struct libssh2_agent_publickey *key = NULL;
    struct libssh2_agent_publickey *previous = NULL;
    unsigned n_keys = 0;
    while (n_keys < MAX_AGENT_KEYS && libssh2_agent_get_identity (agent, &key, previous) == 0) {
        int result;
        bool waited = true;
        previous = key;
        if (self->config->identities_only && !is_named (self->config, key))
            continue;
        n_keys++;
        while ((result = libssh2_agent_userauth (agent, self->config->user, key)) == LIBSSH2_ERROR_EAGAIN)
            if (!(waited = ecfs_ssh_wait (self, error)))
                break;
        Outcome out = outcome (self, result, waited, error);
        if (out != OUTCOME_REFUSED)
            return out;
        g_autofree char *type = ecfs_key_type (key->blob, key->blob_len);
        attempts->rsa |= g_strcmp0 (type, "ssh-rsa") == 0;
    }
    note (attempts, "agent %s (%u keys refused)", self->config->identity_agent, n_keys);
    return OUTCOME_REFUSED;
}

static Outcome try_agent (EcfsSsh *self, Attempts *attempts, GError **error)
{
    const char *path = self->config->identity_agent;
    if (path == NULL || path[0] == '\0')
        return OUTCOME_REFUSED;
    LIBSSH2_AGENT *agent = libssh2_agent_init (self->session);
    if (agent == NULL)
        return OUTCOME_REFUSED;
    libssh2_agent_set_identity_path (agent, path);
    Outcome out = OUTCOME_REFUSED;
    if (libssh2_agent_connect (agent) != 0 || libssh2_agent_list_identities (agent) != 0)
        note (attempts, "agent %s (does not answer)", path);
    else
        out = try_agent_keys (self, agent, attempts, error);
    (void) libssh2_agent_disconnect (agent); /* it is of no use any more either way */
    libssh2_agent_free (agent);
    return out;
}

static bool read_password (EcfsSsh *self, GError **error)
{
    self->password = ecfs_secret_read ("password_file", self->config->password_file, error);
    return self->password != NULL;
}

static void answer_prompts (const char *name, int name_len, const char *instruction, int instruction_len,
                            int num_prompts, const LIBSSH2_USERAUTH_KBDINT_PROMPT *prompts,
                            LIBSSH2_USERAUTH_KBDINT_RESPONSE *responses, void **abstract)
{
    EcfsSsh *self = *abstract;
    if (num_prompts != 1) /* a password has one prompt; anything else is not for us */
        return;
    responses[0].text = strdup (self->password); /* libssh2 frees it */
    responses[0].length = responses[0].text == NULL ? 0 : (unsigned) strlen (responses[0].text);
}

static Outcome try_password (EcfsSsh *self, const char *methods, Attempts *attempts, GError **error)
{
    const char *user = self->config->user;
    int result = 0;
    bool waited = true;
    if (!read_password (self, error))
        return OUTCOME_BROKEN;
    if (strstr (methods, "password") != NULL) {
        while ((result = libssh2_userauth_password (self->session, user, self->password)) == LIBSSH2_ERROR_EAGAIN)
            if (!(waited = ecfs_ssh_wait (self, error)))
                break;
        Outcome out = outcome (self, result, waited, error);
        if (out != OUTCOME_REFUSED)
            return out;
        note (attempts, "password of %s", self->config->password_file);
    }
    if (strstr (methods, "keyboard-interactive") != NULL) {
        while ((result = libssh2_userauth_keyboard_interactive (self->session, user, answer_prompts)) ==
               LIBSSH2_ERROR_EAGAIN)
            if (!(waited = ecfs_ssh_wait (self, error)))
                break;
        Outcome out = outcome (self, result, waited, error);
        if (out != OUTCOME_REFUSED)
            return out;
        note (attempts, "keyboard-interactive with %s", self->config->password_file);
    }
    return OUTCOME_REFUSED;
}

/* NULL with *ret_in: no authentication was needed. NULL without: the error is set. Valid until the session ends. */
static const char *ask_methods (EcfsSsh *self, bool *ret_in, GError **error)
{
    const char *user = self->config->user;
    const char *methods;
    *ret_in = false;
    while ((methods = libssh2_userauth_list (self->session, user, (unsigned) strlen (user))) == NULL) {
        *ret_in = libssh2_userauth_authenticated (self->session) != 0;
        if (*ret_in)
            break;
        if (libssh2_session_last_errno (self->session) != LIBSSH2_ERROR_EAGAIN) {
            g_set_error (error, ECFS_ERROR, EACCES, "user %s: %s", user, ecfs_ssh_last_error (self));
            break;
        }
        if (!ecfs_ssh_wait (self, error))
            break;
    }
    return methods;
}

static Outcome try_all (EcfsSsh *self, const char *methods, Attempts *attempts, GError **error)
{
    Outcome out = OUTCOME_REFUSED;
    if (strstr (methods, "publickey") != NULL) {
        bool files_first = self->config->identity_first;
        out = files_first ? try_key_files (self, attempts, error) : try_agent (self, attempts, error);
        if (out == OUTCOME_REFUSED)
            out = files_first ? try_agent (self, attempts, error) : try_key_files (self, attempts, error);
    }
    if (out == OUTCOME_REFUSED && self->config->password_file != NULL)
        out = try_password (self, methods, attempts, error);
    return out;
}

bool ecfs_ssh_authenticate (EcfsSsh *self, GError **error)
{
    bool in;
    const char *listed = ask_methods (self, &in, error);
    if (in || listed == NULL)
        return in;
    g_autofree char *methods = g_strdup (listed);
    Attempts attempts = {.text = g_string_new (NULL)};
    Outcome out = try_all (self, methods, &attempts, error);
    if (out == OUTCOME_REFUSED)
        g_set_error (
            error, ECFS_ERROR, EACCES,
            "%s does not let user %s in; it takes %s; tried: %s; add one of the public keys to "
            "authorized_keys there, or set identity_file or password_file%s%s",
            self->config->hostname, self->config->user, methods,
            attempts.text->len > 0 ? attempts.text->str : "nothing, because there is no key",
            attempts.rsa && ecfs_ssh_rsa_is_old ()
                ? ". RSA keys do not work here: libssh2 " LIBSSH2_VERSION
                  " can only sign with SHA-1 (ssh-rsa), which OpenSSH refuses since 8.8. Make another key with "
                  "\"ssh-keygen -t ed25519\" and add its .pub to authorized_keys on the server"
                : "",
            self->config->without_ssh ? " (there is no ssh program, so ~/.ssh/config was not used)" : "");
    g_string_free (attempts.text, TRUE);
    return out == OUTCOME_IN;
}
