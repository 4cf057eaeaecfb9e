/* The SSH transport on libssh2: session, host key, channel. */
#include "endpoint/ssh/ssh_child.h"
#include "endpoint/ssh/ssh_known_hosts.h"
#include "endpoint/ssh/ssh_priv.h"
#include "util/io.h"
#include "util/lock.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_BYTES             (128 * 1024)
#define IN_BUDGET            (64 * 1024)       /* decrypted at a time: is still in the cache when it is copied */
#define OUT_MARK             (256 * 1024)      /* write () takes no more above this */
#define WINDOW_BYTES         (9 * 1024 * 1024) /* above the largest window of requests */
#define MAX_KNOWN_HOSTS_SIZE (8 * 1024 * 1024)

/* AES with SHA-2: both have hardware behind them. */
#define CIPHERS "aes128-gcm@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr,aes256-gcm@openssh.com"
#define MACS    "hmac-sha2-256-etm@openssh.com,hmac-sha2-256,hmac-sha2-512-etm@openssh.com,hmac-sha2-512,hmac-sha1"

static int init_result;

static void init_library (void)
{
    init_result = libssh2_init (0);
}

const char *ecfs_ssh_last_error (const EcfsSsh *self)
{
    char *text = NULL;
    (void) libssh2_session_last_error (self->session, &text, NULL, 0);
    return text != NULL && text[0] != '\0' ? text : "SSH error";
}

bool ecfs_ssh_rsa_is_old (void)
{
    return libssh2_version (0x010b00) == NULL;
}

/* libssh2's way to the socket */

/* libssh2 talks to the agent through the same two functions, and expects them to block. */
static ssize_t receive_from_agent (EcfsSsh *self, int fd, void *to, size_t size, int flags)
{
    if (!ecfs_ssh_wait_fd (&self->wait, fd, POLLIN, NULL))
        return -ETIMEDOUT;
    ssize_t n = recv (fd, to, size, flags);
    return n < 0 ? -errno : n;
}

static ssize_t receive (libssh2_socket_t fd, void *to, size_t size, int flags, void **abstract)
{
    EcfsSsh *self = *abstract;
    if (fd != self->fd)
        return receive_from_agent (self, fd, to, size, flags);
    if (self->dead)
        return 0;
    if (self->in_budget == 0)
        return -EAGAIN;
    if (self->in_at == self->in_end) {
        ssize_t n = recv (fd, self->in, IN_BYTES, flags);
        if (n <= 0)
            return n == 0 ? 0 : -errno;
        self->in_at = 0;
        self->in_end = (size_t) n;
    }
    size_t n = MIN (MIN (size, self->in_end - self->in_at), self->in_budget);
    memcpy (to, self->in + self->in_at, n);
    self->in_at += n;
    self->in_budget -= n;
    return (ssize_t) n;
}

static ssize_t send_later (libssh2_socket_t fd, const void *from, size_t size, int flags, void **abstract)
{
    EcfsSsh *self = *abstract;
    if (fd != self->fd) {
        ssize_t n = send (fd, from, size, flags | MSG_NOSIGNAL);
        return n < 0 ? -errno : n;
    }
    if (self->dead)
        return -EPIPE;
    g_byte_array_append (self->out, from, (guint) size);
    return (ssize_t) size;
}

static int flush (EcfsSshTransport *base)
{
    EcfsSsh *self = (EcfsSsh *) base;
    while (self->out_at < self->out->len) {
        ssize_t n = send (self->fd, self->out->data + self->out_at, self->out->len - self->out_at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0) {
            int code = errno;
            g_free (self->problem);
            self->problem = g_strdup_printf ("connection lost: %s", g_strerror (code));
            return -code;
        }
        self->out_at += (size_t) n;
    }
    g_byte_array_set_size (self->out, 0);
    self->out_at = 0;
    return 0;
}

static int poll_for (EcfsSshTransport *base, short *ret_events)
{
    EcfsSsh *self = (EcfsSsh *) base;
    bool buffered = self->in_at < self->in_end || self->in_budget == 0;
    if (buffered || self->unread || self->unwritten)
        *ret_events = 0;
    else
        *ret_events = self->out_at < self->out->len ? POLLIN | POLLOUT : POLLIN;
    return self->fd;
}

/* Where -EAGAIN is not the answer: what libssh2 says becomes the problem and an errno. */
static ssize_t broken (EcfsSsh *self, ssize_t result)
{
    g_free (self->problem);
    self->problem = g_strdup_printf ("connection lost: %s", ecfs_ssh_last_error (self));
    return result == LIBSSH2_ERROR_PROTO || result == LIBSSH2_ERROR_OUT_OF_BOUNDARY ? -EPROTO : -ENOTCONN;
}

static ssize_t channel_read (EcfsSshTransport *base, void *to, size_t size)
{
    EcfsSsh *self = (EcfsSsh *) base;
    /* First what has been decrypted: libssh2 would decrypt all that has come before it gives any of it. */
    self->in_budget = 0;
    ssize_t n = libssh2_channel_read (self->channel, to, size);
    if (n == LIBSSH2_ERROR_EAGAIN) {
        self->in_budget = IN_BUDGET;
        n = libssh2_channel_read (self->channel, to, size);
    }
    if (n > 0)
        return n;
    if (n < 0 && n != LIBSSH2_ERROR_EAGAIN)
        return broken (self, n);
    if (n == 0 && libssh2_channel_eof (self->channel) != 0)
        return 0;
    self->unread = false;
    self->unwritten = self->window_closed && self->in_budget != IN_BUDGET;
    return -EAGAIN;
}

static ssize_t channel_write (EcfsSshTransport *base, const void *from, size_t size)
{
    EcfsSsh *self = (EcfsSsh *) base;
    if (self->out->len - self->out_at >= OUT_MARK) {
        int result = flush (base);
        if (result != 0)
            return result;
        if (self->out->len - self->out_at >= OUT_MARK)
            return -EAGAIN;
    }
    self->in_budget = IN_BUDGET;
    ssize_t n = libssh2_channel_write (self->channel, from, size);
    self->unread |= self->in_budget != IN_BUDGET;
    self->unwritten = false;
    self->window_closed = n == LIBSSH2_ERROR_EAGAIN || n == 0;
    if (self->window_closed)
        return -EAGAIN;
    return n < 0 ? broken (self, n) : n;
}

static const char *problem (EcfsSshTransport *base)
{
    EcfsSsh *self = (EcfsSsh *) base;
    return self->problem != NULL ? self->problem : "connection closed by the server";
}

static void transport_free (EcfsSshTransport *base)
{
    EcfsSsh *self = (EcfsSsh *) base;
    if (self->session != NULL) {
        self->in_budget = IN_BUDGET;
        if (self->channel != NULL) {
            (void) libssh2_session_disconnect (self->session, "done"); /* a courtesy: sent when it goes at once */
            (void) flush (base);
        }
        /* A dead socket keeps libssh2 from waiting for the server's farewell. */
        self->dead = true;
        for (unsigned i = 0; i < 100 && libssh2_session_free (self->session) == LIBSSH2_ERROR_EAGAIN; i++)
            continue;
    }
    if (self->fd >= 0)
        (void) close (self->fd); /* nothing is lost that was not lost before */
    ecfs_ssh_child_end (self->proxy_pid);
    if (self->out != NULL)
        g_byte_array_unref (self->out);
    g_free (self->in);
    g_free (self->problem);
    g_free (self);
}

static const EcfsSshTransportOps ops = {
    .name = "libssh2",
    .read = channel_read,
    .write = channel_write,
    .flush = flush,
    .poll = poll_for,
    .problem = problem,
    .free = transport_free,
};

void ecfs_ssh_transport_free (EcfsSshTransport *self)
{
    if (self != NULL)
        self->ops->free (self);
}

/* Opening */

bool ecfs_ssh_wait (EcfsSsh *self, GError **error)
{
    short events;
    if (flush (&self->base) != 0)
        return ecfs_fail (error, ENOTCONN, "%s", self->problem);
    self->in_budget = SIZE_MAX;
    int fd = poll_for (&self->base, &events);
    return ecfs_ssh_wait_fd (&self->wait, fd, events, error);
}

static GPtrArray *load_known_keys (const EcfsSshConfig *config, GError **error)
{
    g_autoptr (GPtrArray) keys = ecfs_known_hosts_new ();
    bool aliased = config->host_key_alias != NULL;
    for (char **file = config->known_hosts; *file != NULL; file++) {
        g_autofree char *text = NULL;
        size_t size;
        if (access (*file, F_OK) != 0)
            continue;
        if (!ecfs_read_file (*file, MAX_KNOWN_HOSTS_SIZE, &text, &size, error))
            return g_prefix_error (error, "known_hosts: "), NULL;
        ecfs_known_hosts_find (text, *file, aliased ? config->host_key_alias : config->hostname,
                               aliased ? 22 : config->port, keys);
    }
    return g_steal_pointer (&keys);
}

/* The kinds of host key to ask for: those that known_hosts has, so that a check is possible. NULL: any. g_free (). */
static char *host_key_methods (const GPtrArray *keys)
{
    static const char *const types[] = {"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
                                        "ecdsa-sha2-nistp521", "ssh-rsa"};
    g_autoptr (GString) methods = g_string_new (NULL);
    for (size_t i = 0; i < G_N_ELEMENTS (types); i++) {
        bool known = false;
        for (guint j = 0; j < keys->len; j++) {
            const EcfsKnownKey *key = keys->pdata[j];
            known |= !key->revoked && strcmp (key->type, types[i]) == 0;
        }
        if (!known)
            continue;
        if (methods->len > 0)
            g_string_append_c (methods, ',');
        if (strcmp (types[i], "ssh-rsa") == 0)
            g_string_append (methods, "rsa-sha2-512,rsa-sha2-256,");
        g_string_append (methods, types[i]);
    }
    return methods->len == 0 ? NULL : g_string_free (g_steal_pointer (&methods), FALSE);
}

static bool is_listed (const char *list, const char *name)
{
    g_auto (GStrv) names = g_strsplit (list, ",", -1);
    return g_strv_contains ((const char *const *) names, name);
}

/* Sets the algorithms of @wanted (NULL: all) that libssh2 has and the user's configuration, @allowed (NULL: it says
 * nothing), lets ssh use. False: there is none. libssh2 1.10 would drop the others itself, but copies between
 * overlapping memory when it does. */
static bool prefer (EcfsSsh *self, int kind, const char *wanted, const char *allowed)
{
    const char **have = NULL;
    int n_have = libssh2_session_supported_algs (self->session, kind, &have);
    g_auto (GStrv) names = g_strsplit (wanted != NULL ? wanted : allowed, ",", -1);
    g_autoptr (GString) known = g_string_new (NULL);
    for (char **name = names; *name != NULL; name++)
        for (int i = 0; i < n_have; i++)
            if (strcmp (*name, have[i]) == 0 && (allowed == NULL || is_listed (allowed, *name)))
                g_string_append_printf (known, "%s%s", known->len > 0 ? "," : "", *name);
    if (n_have > 0)
        libssh2_free (self->session, have);
    return known->len > 0 && libssh2_session_method_pref (self->session, kind, known->str) == 0;
}

/* What may be used: ours that are fast, or whatever else the user's configuration allows. */
static bool choose (EcfsSsh *self, int kind, const char *ours, const char *allowed, const char *key, GError **error)
{
    if (prefer (self, kind, ours, allowed) || (allowed != NULL && prefer (self, kind, NULL, allowed)) ||
        allowed == NULL)
        return true;
    return ecfs_fail (error, EACCES,
                      "%s port %u: libssh2 has none of the algorithms that %s of your ssh configuration allows (%s): "
                      "set transport = openssh",
                      self->config->hostname, self->config->port, key, allowed);
}

/* ours, and no more than ssh would use */
static bool choose_all (EcfsSsh *self, GError **error)
{
    const EcfsSshConfig *config = self->config;
    return choose (self, LIBSSH2_METHOD_CRYPT_CS, CIPHERS, config->ciphers, "Ciphers", error) &&
           choose (self, LIBSSH2_METHOD_CRYPT_SC, CIPHERS, config->ciphers, "Ciphers", error) &&
           choose (self, LIBSSH2_METHOD_MAC_CS, MACS, config->macs, "MACs", error) &&
           choose (self, LIBSSH2_METHOD_MAC_SC, MACS, config->macs, "MACs", error) &&
           (config->key_exchanges == NULL ||
            choose (self, LIBSSH2_METHOD_KEX, NULL, config->key_exchanges, "KexAlgorithms", error));
}

static bool shake_hands (EcfsSsh *self, const char *host_keys, GError **error)
{
    if (!choose_all (self, error))
        return false;
    const char *allowed = self->config->host_key_algorithms;
    bool only_old_rsa = host_keys != NULL && g_str_has_prefix (host_keys, "rsa-") && ecfs_ssh_rsa_is_old ();
    if (host_keys != NULL && !prefer (self, LIBSSH2_METHOD_HOSTKEY, host_keys, allowed) && allowed != NULL &&
        !only_old_rsa)
        return ecfs_fail (error, EACCES,
                          "%s port %u: known_hosts has keys of the kinds %s, of which HostKeyAlgorithms of your ssh "
                          "configuration allows none that libssh2 knows: set transport = openssh",
                          self->config->hostname, self->config->port, host_keys);
    int result;
    while ((result = libssh2_session_handshake (self->session, self->fd)) == LIBSSH2_ERROR_EAGAIN)
        if (!ecfs_ssh_wait (self, error))
            return ecfs_prefix (error, "%s port %u: SSH handshake", self->config->hostname, self->config->port);
    if (result == 0)
        return true;
    if (result == LIBSSH2_ERROR_KEX_FAILURE && only_old_rsa)
        return ecfs_fail (
            error, EACCES,
            "known_hosts has only an RSA key for %s port %u, and libssh2 " LIBSSH2_VERSION
            " knows no RSA with SHA-2, which OpenSSH asks for since 8.8: add the server's ed25519 key with "
            "\"ssh-keyscan -t ed25519 -p %u %s >> %s\" and compare its fingerprint",
            self->config->hostname, self->config->port, self->config->port, self->config->hostname,
            self->config->known_hosts[0] != NULL ? self->config->known_hosts[0] : "~/.ssh/known_hosts");
    return ecfs_fail (error, result == LIBSSH2_ERROR_SOCKET_DISCONNECT ? ENOTCONN : EPROTO,
                      "%s port %u: SSH handshake: %s; is that an SSH server?", self->config->hostname,
                      self->config->port, ecfs_ssh_last_error (self));
}

/* As ssh does, which refuses every host where the list cannot be read. Lists that ssh-keygen makes of certificates and
 * ranges (KRL) are not understood here, so they refuse too. */
static bool check_revoked (EcfsSsh *self, const void *blob, size_t blob_bytes, GError **error)
{
    const char *path = self->config->revoked_host_keys;
    g_autofree char *text = NULL;
    size_t size;
    if (path == NULL)
        return true;
    if (!ecfs_read_file (path, MAX_KNOWN_HOSTS_SIZE, &text, &size, error))
        return ecfs_prefix (error, "RevokedHostKeys");
    if (strlen (text) != size)
        return ecfs_fail (error, EACCES,
                          "RevokedHostKeys %s is a binary list, which libssh2 cannot check: set transport = openssh",
                          path);
    g_autofree char *shown = g_base64_encode (blob, blob_bytes);
    if (strstr (text, shown) == NULL)
        return true;
    return ecfs_fail (error, EACCES, "the host key of %s port %u is revoked by RevokedHostKeys %s",
                      self->config->hostname, self->config->port, path);
}

static bool check_host_key (EcfsSsh *self, const GPtrArray *keys, GError **error)
{
    size_t blob_bytes = 0;
    int kind;
    const char *blob = libssh2_session_hostkey (self->session, &blob_bytes, &kind);
    g_autofree char *type = ecfs_key_type (blob, blob_bytes);
    if (type == NULL)
        return ecfs_fail (error, EPROTO, "%s port %u shows no host key", self->config->hostname, self->config->port);
    g_autofree char *fingerprint = ecfs_key_fingerprint (blob, blob_bytes);
    bool aliased = self->config->host_key_alias != NULL;
    g_autofree char *name = aliased ? g_strdup (self->config->host_key_alias)
                                    : ecfs_known_hosts_name (self->config->hostname, self->config->port);
    const EcfsKnownKey *key;
    switch (ecfs_known_hosts_judge (keys, blob, blob_bytes, &key)) {
    case ECFS_HOST_KNOWN:
        return check_revoked (self, blob, blob_bytes, error);
    case ECFS_HOST_UNKNOWN:
        return ecfs_fail (error, EACCES,
                          "host %s is not in known_hosts; it shows the %s key %s. To accept it, run this and compare "
                          "the fingerprint with "
                          "what the server's owner says: %s",
                          name, type, fingerprint, self->config->ask_command);
    case ECFS_HOST_REVOKED:
        return ecfs_fail (error, EACCES, "the %s key %s of host %s is revoked by %s line %u", type, fingerprint, name,
                          key->file, key->line);
    case ECFS_HOST_CHANGED:
        break;
    }
    return ecfs_fail (error, EACCES,
                      "host %s shows the %s key %s, but %s line %u has another: either someone is in between, or the "
                      "server was made anew. When its owner confirms the fingerprint, replace that line",
                      name, type, fingerprint, key->file, key->line);
}

static bool open_channel (EcfsSsh *self, GError **error)
{
    static const char kind[] = "session";
    while ((self->channel = libssh2_channel_open_ex (self->session, kind, sizeof kind - 1, WINDOW_BYTES,
                                                     LIBSSH2_CHANNEL_PACKET_DEFAULT, NULL, 0)) == NULL) {
        if (libssh2_session_last_errno (self->session) != LIBSSH2_ERROR_EAGAIN)
            return ecfs_fail (error, ENOTCONN, "the server opens no session: %s", ecfs_ssh_last_error (self));
        if (!ecfs_ssh_wait (self, error))
            return false;
    }
    int result;
    while ((result = libssh2_channel_subsystem (self->channel, "sftp")) == LIBSSH2_ERROR_EAGAIN)
        if (!ecfs_ssh_wait (self, error))
            return false;
    if (result != 0)
        return ecfs_fail (error, ENOTCONN, "the server offers no SFTP (Subsystem sftp in its sshd_config): %s",
                          ecfs_ssh_last_error (self));
    /* Words on stderr would fill the window. */
    (void) libssh2_channel_handle_extended_data2 (self->channel, LIBSSH2_CHANNEL_EXTENDED_DATA_IGNORE);
    return true;
}

static bool open_session (EcfsSsh *self, bool only_look, GError **error)
{
    g_autoptr (GPtrArray) keys = load_known_keys (self->config, error);
    if (keys == NULL)
        return false;
    self->fd = ecfs_ssh_socket_open (self->config, &self->wait, &self->proxy_pid, error);
    if (self->fd < 0)
        return false;
    self->session = libssh2_session_init_ex (NULL, NULL, NULL, self);
    if (self->session == NULL)
        return ecfs_fail (error, ENOMEM, "libssh2 has no memory");
    libssh2_session_set_blocking (self->session, 0);
    (void) libssh2_session_callback_set (self->session, LIBSSH2_CALLBACK_RECV, (void *) receive);
    (void) libssh2_session_callback_set (self->session, LIBSSH2_CALLBACK_SEND, (void *) send_later);
    self->in_budget = SIZE_MAX;
    g_autofree char *host_keys = host_key_methods (keys);
    return shake_hands (self, host_keys, error) && check_host_key (self, keys, error) &&
           (only_look || (ecfs_ssh_authenticate (self, error) && open_channel (self, error)));
}

/* A session, or what says why there is none; @only_look: of which nothing but the host key is known. */
static EcfsSsh *begin (const EcfsSshConfig *config, const EcfsSshWait *wait, bool only_look, GError **error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void) pthread_once (&once, init_library); /* cannot fail with these arguments */
    if (init_result != 0)
        return (void) !ecfs_fail (error, EIO, "libssh2 does not start: error %d", init_result), NULL;
    EcfsSsh *self = g_new0 (EcfsSsh, 1);
    self->base.ops = &ops;
    self->fd = -1;
    self->in = g_malloc (IN_BYTES);
    self->out = g_byte_array_sized_new (OUT_MARK + 64 * 1024);
    self->config = config;
    self->wait = *wait;
    if (config->connect_timeout_us > 0)
        self->wait.deadline_us = MIN (wait->deadline_us, ecfs_now_us () + config->connect_timeout_us);
    bool opened = open_session (self, only_look, error);
    if (self->password != NULL)
        explicit_bzero (self->password, strlen (self->password));
    g_clear_pointer (&self->password, g_free);
    self->config = NULL;
    if (!opened) {
        transport_free (&self->base);
        return NULL;
    }
    return self;
}

EcfsSshTransport *ecfs_ssh_libssh2_open (const EcfsSshConfig *config, const EcfsSshWait *wait, GError **error)
{
    EcfsSsh *self = begin (config, wait, false, error);
    return self == NULL ? NULL : &self->base;
}

bool ecfs_ssh_libssh2_look (const EcfsSshConfig *config, const EcfsSshWait *wait, GError **error)
{
    EcfsSsh *self = begin (config, wait, true, error);
    if (self != NULL)
        transport_free (&self->base);
    return self != NULL;
}
