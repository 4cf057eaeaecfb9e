/* The sftp:// driver: options and the event loop. */
#include "endpoint/sftp/sftp_priv.h"

#include <poll.h>
#include <string.h>

#define MAX_ACTIVE    32 /* requests of one connection, but for logs */
#define KEEP_ALIVE_US (15 * G_USEC_PER_SEC)
#define IDLE_CLOSE_US (300 * G_USEC_PER_SEC)
#define FINISH_US     G_USEC_PER_SEC /* for what is being committed when the connection must end */

/* Options */

static void shared_free (EcfsSftpShared *shared)
{
    g_hash_table_unref (shared->directories);
    for (size_t i = 0; i < G_N_ELEMENTS (shared->removed); i++)
        g_free (shared->removed[i]);
    ecfs_mutex_clear (&shared->lock);
    g_free (shared);
}

static void free_config (void *data)
{
    EcfsSftpConfig *config = data;
    g_free (config->host);
    g_free (config->user);
    g_free (config->identity_file);
    g_free (config->known_hosts);
    g_free (config->password_file);
    g_free (config->proxy_jump);
    g_free (config->ssh_config);
    g_free (config->root);
    shared_free (config->shared);
    g_free (config);
}

static bool parse_port (const char *text, unsigned *ret_port, GError **error)
{
    guint64 port;
    if (!g_ascii_string_to_unsigned (text, 10, 1, 65535, &port, NULL))
        return ecfs_fail (error, EINVAL, "\"%s\" is not a port", text);
    *ret_port = (unsigned) port;
    return true;
}

/* "[user@]host[:port]", the host possibly an IPv6 address in brackets. */
static bool parse_authority (EcfsSftpConfig *config, const char *text, GError **error)
{
    const char *at = strrchr (text, '@');
    if (at != NULL) {
        g_autofree char *user = g_strndup (text, (size_t) (at - text));
        if (strchr (user, ':') != NULL)
            return ecfs_fail (error, EINVAL, "a URL may hold no password: use the option password_file");
        config->user = g_uri_unescape_string (user, "/");
        if (config->user == NULL || config->user[0] == '\0')
            return ecfs_fail (error, EINVAL, "\"%s\" is not a user name", user);
        text = at + 1;
    }
    const char *end = text[0] == '[' ? strchr (text, ']') : text + strcspn (text, ":");
    if (end == NULL || (text[0] == '[' && end[1] != ':' && end[1] != '\0'))
        return ecfs_fail (error, EINVAL, "\"%s\" is not a host", text);
    config->host =
        text[0] == '[' ? g_strndup (text + 1, (size_t) (end - text - 1)) : g_strndup (text, (size_t) (end - text));
    const char *colon = strchr (end, ':');
    return colon == NULL || parse_port (colon + 1, &config->request.port, error);
}

static bool parse_carrier (EcfsSftpConfig *config, const char *text, GError **error)
{
    static const char *const names[] = {
        [ECFS_SFTP_OVER_EITHER] = "auto", [ECFS_SFTP_OVER_OPENSSH] = "openssh", [ECFS_SFTP_OVER_LIBSSH2] = "libssh2"};
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        if (text != NULL && strcmp (text, names[i]) != 0)
            continue;
        config->carrier = (EcfsSftpCarrier) i;
        return true;
    }
    return ecfs_fail (error, EINVAL, "transport is auto, openssh or libssh2, not \"%s\"", text);
}

/* The path for the server: "/~/x" is "x" in the login directory. */
static char *make_root (const char *path)
{
    const char *from = path;
    const char *otherwise = "/";
    if (strcmp (path, "/~") == 0 || g_str_has_prefix (path, "/~/")) {
        from += 2;
        from += strspn (from, "/");
        otherwise = ".";
    }
    size_t size = strlen (from);
    while (size > 0 && from[size - 1] == '/')
        size--;
    return size == 0 ? g_strdup (otherwise) : g_strndup (from, size);
}

static bool parse_spec (EcfsSftpConfig *config, const EcfsEndpointSpec *spec, GError **error)
{
    const char *authority = spec->url + strlen ("sftp://");
    g_autofree char *host = g_strndup (authority, strcspn (authority, "/"));
    g_autofree char *path = ecfs_url_path (spec->url, error);
    if (path == NULL || !parse_authority (config, host, error))
        return false;
    config->root = make_root (path);
    config->identity_file = ecfs_spec_file (spec, "identity_file");
    config->known_hosts = ecfs_spec_file (spec, "known_hosts");
    config->password_file = ecfs_spec_file (spec, "password_file");
    config->ssh_config = ecfs_spec_file (spec, "ssh_config");
    config->proxy_jump = g_strdup (ecfs_spec_option (spec, "proxy_jump"));
    config->request.host = config->host;
    config->request.user = config->user;
    config->request.identity_file = config->identity_file;
    config->request.known_hosts = config->known_hosts;
    config->request.password_file = config->password_file;
    config->request.config_file = config->ssh_config;
    config->request.proxy_jump = config->proxy_jump;
    if (!parse_carrier (config, ecfs_spec_option (spec, "transport"), error) ||
        !ecfs_spec_share (spec, &config->directory_mode, error))
        return false;
    if (config->carrier == ECFS_SFTP_OVER_OPENSSH && config->password_file != NULL)
        return ecfs_fail (error, EINVAL, "transport openssh takes no password_file: use a key, or libssh2");
    return ecfs_ssh_request_check (&config->request, error);
}

static void *new_config (const EcfsEndpointSpec *spec, GError **error)
{
    EcfsSftpConfig *config = g_new0 (EcfsSftpConfig, 1);
    config->shared = g_new0 (EcfsSftpShared, 1);
    ecfs_mutex_init (&config->shared->lock);
    g_queue_init (&config->shared->offers);
    config->shared->directories = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    if (parse_spec (config, spec, error))
        return config;
    free_config (config);
    return NULL;
}

/* Serving */

static void begin (EcfsSftp *self, EcfsStream *request)
{
    static void (*const begin_kind[]) (EcfsSftp *, EcfsStream *) = {
        [ECFS_REQUEST_READ] = ecfs_sftp_read_begin,   [ECFS_REQUEST_WRITE] = ecfs_sftp_write_begin,
        [ECFS_REQUEST_RMDIR] = ecfs_sftp_rmdir_begin, [ECFS_REQUEST_REMOVE] = ecfs_sftp_remove_begin,
        [ECFS_REQUEST_SIZE] = ecfs_sftp_size_begin,   [ECFS_REQUEST_SPACE] = ecfs_sftp_space_begin,
        [ECFS_REQUEST_LIST] = ecfs_sftp_list_begin,   [ECFS_REQUEST_EXAMINE] = ecfs_sftp_examine_begin,
        [ECFS_REQUEST_MARK] = ecfs_sftp_write_begin,  [ECFS_REQUEST_LOG] = ecfs_sftp_log_begin,
    };
    begin_kind[request->kind](self, request);
}

static void take_requests (EcfsSftp *self)
{
    EcfsStream *request;
    while (self->ops.length - self->logs.length < MAX_ACTIVE && (request = ecfs_slot_take (self->slot)) != NULL)
        begin (self, request);
}

static void cancel_requests (EcfsSftp *self)
{
    for (GList *at = self->ops.head, *next; at != NULL; at = next) {
        next = at->next;
        EcfsSftpOp *op = at->data;
        if (op->request == NULL || op->cancelled || !ecfs_request_cancelled (op->request))
            continue;
        op->cancelled = true;
        op->cancel (self, op);
        ecfs_sftp_op_settle (self, op);
    }
}

/* Sends and receives until neither goes on at once. */
static bool move (EcfsSftp *self, bool *ret_any)
{
    ecfs_sftp_read_issue (self);
    do {
        if (!ecfs_sftp_output (self))
            return false;
    } while (ecfs_sftp_log_issue (self) || ecfs_sftp_write_issue (self));
    ecfs_sftp_write_share (self);
    if (!ecfs_sftp_output (self) || !ecfs_sftp_input (self, ret_any))
        return false;
    int result = self->transport->ops->flush (self->transport);
    if (result != 0)
        ecfs_sftp_break (self, ENOTCONN, "%s", self->transport->ops->problem (self->transport));
    return result == 0;
}

/* The stall clock runs while the server owes something, and starts again when something came. */
static void set_clock (EcfsSftp *self)
{
    EcfsOwes owes = g_hash_table_size (self->pending) == 0 ? ECFS_OWES_NOTHING
                    : self->n_syncs > 0                    ? ECFS_OWES_SYNC
                                                           : ECFS_OWES_ANSWER;
    if (owes != self->owed || (owes != ECFS_OWES_NOTHING && self->arrived))
        ecfs_slot_owed (self->slot, owes);
    self->arrived = false;
    self->owed = owes;
}

static void wait_for_events (EcfsSftp *self, int64_t most_us)
{
    short events;
    int fd = self->transport->ops->poll (self->transport, &events);
    struct pollfd fds[] = {{.fd = fd, .events = events}, {.fd = ecfs_slot_fd (self->slot), .events = POLLIN}};
    int timeout_ms = events == 0 ? 0 : (int) (most_us / 1000);
    /* Whatever poll says, the loop looks at everything again. */
    if (self->transport->ops->only_writes)
        ecfs_slot_poll (self->slot, fds, G_N_ELEMENTS (fds), timeout_ms);
    else
        (void) poll (fds, G_N_ELEMENTS (fds), timeout_ms);
}

static bool sftp_begin_read (void *connection, EcfsStream *request)
{
    EcfsSftp *self = connection;
    ecfs_sftp_read_begin (self, request);
    ecfs_sftp_read_issue (self);
    set_clock (self);
    self->busy_us = ecfs_now_us ();
    return ecfs_sftp_output_some (self);
}

/* A server that is never asked anything may drop the line, and a line that is gone should be found out before it is
 * needed. */
static void keep_alive (EcfsSftp *self, int64_t *last_us)
{
    if (ecfs_now_us () - *last_us < KEEP_ALIVE_US)
        return;
    *last_us = ecfs_now_us ();
    ecfs_sftp_put_path (ecfs_sftp_out (self), ECFS_SFTP_REALPATH, ecfs_sftp_expect (self, NULL, ecfs_sftp_ignore, NULL),
                        ".");
}

/* The core fails the requests. */
static void abandon (EcfsSftp *self)
{
    self->payload_op = NULL;
    g_queue_init (&self->reads);
    g_queue_init (&self->writes);
    g_queue_init (&self->logs);
    while (self->ops.head != NULL) {
        EcfsSftpOp *op = self->ops.head->data;
        g_queue_unlink (&self->ops, &op->link);
        if (op->request != NULL)
            op->request->driver_data = NULL;
        op->request = NULL;
        op->free (self, op);
    }
}

/*
 * Another connection found that this is not the endpoint any more. What is just being committed is taken back while the
 * server answers: where no marker is, nobody would look for it.
 */
static void finish_commits (EcfsSftp *self)
{
    int64_t deadline_us = ecfs_now_us () + FINISH_US;
    bool any;
    while ((ecfs_sftp_is_committing (self) || ecfs_sftp_is_making_log (self)) && ecfs_now_us () < deadline_us &&
           move (self, &any)) {
        if (!any)
            wait_for_events (self, FINISH_US);
        (void) ecfs_slot_check (self->slot, NULL); /* it failed; this resets what wakes the wait */
    }
}

static bool sftp_serve (EcfsSlot *slot, void *connection, GError **error)
{
    EcfsSftp *self = connection;
    bool idle = false;
    int64_t heard_us = ecfs_now_us ();
    GError *end = NULL;
    self->owed = ECFS_OWES_NOTHING;
    self->busy_us = heard_us;
    while (ecfs_slot_check (slot, &end)) {
        bool any;
        take_requests (self);
        cancel_requests (self);
        ecfs_sftp_help_turn (self);
        if (self->owed == ECFS_OWES_NOTHING) {
            ecfs_sftp_read_tidy (self);
            ecfs_sftp_ahead_tidy (self);
            keep_alive (self, &heard_us);
        }
        ecfs_sftp_check_overtaken (self);
        if (!move (self, &any)) {
            (void) !ecfs_fail (&end, self->broken->code, "%s", self->broken->message);
            break;
        }
        set_clock (self);
        if (any) {
            heard_us = ecfs_now_us ();
            continue;
        }
        if (self->ops.length > 0)
            self->busy_us = ecfs_now_us ();
        idle = self->owed == ECFS_OWES_NOTHING && self->ops.length == 0 &&
               ecfs_now_us () - self->busy_us > IDLE_CLOSE_US && !ecfs_slot_is_last (slot);
        if (idle)
            break;
        wait_for_events (self, self->owed == ECFS_OWES_NOTHING ? KEEP_ALIVE_US : ECFS_SFTP_LOOK_US);
    }
    if (self->broken == NULL && ecfs_errno (end) == ENOTCONN)
        finish_commits (self);
    ecfs_sftp_ahead_end (self);
    if (self->broken == NULL)
        ecfs_sftp_break (self, ENOTCONN, "closed");
    abandon (self);
    if (end != NULL)
        g_propagate_error (error, end);
    return idle;
}

static const char *const option_keys[] = {
    ECFS_COMMON_OPTION_KEYS,
    ECFS_RETAIN_OPTION_KEY,
    "identity_file",
    "known_hosts",
    "password_file",
    "proxy_jump",
    "share",
    "ssh_config",
    "transport",
    NULL,
};

const EcfsDriver ecfs_driver_sftp = {
    .scheme = "sftp",
    .option_keys = option_keys,
    .default_connections = 3,
    .n_pipelined = MAX_ACTIVE,
    .own_login = true,
    .logs = true,
    .new_config = new_config,
    .free_config = free_config,
    .connect = ecfs_sftp_connect,
    .serve = sftp_serve,
    .disconnect = ecfs_sftp_disconnect,
    .hasher = ecfs_sftp_hasher,
    .begin_read = sftp_begin_read,
};
