/* The drivers of gsiftp://, ftp:// and sshftp://: options and the event loop. */
#include "endpoint/gridftp/gridftp_priv.h"
#include "util/units.h"

#include <poll.h>
#include <string.h>

#define KEEP_ALIVE_US (30 * G_USEC_PER_SEC)
#define IDLE_CLOSE_US (60 * G_USEC_PER_SEC)
#define PARKED_US     (15 * G_USEC_PER_SEC) /* a PUT whose source has nothing for so long is ended */
#define LOOK_AGAIN_US (10 * 1000)           /* whether an open PUT gives way */
#define MAX_STREAMS   64
#define MAX_BUFFER    (G_GUINT64_CONSTANT (1) << 30)

/* Options */

static void free_config (void *data)
{
    EcfsGridftpConfig *config = data;
    g_free (config->host);
    g_free (config->user);
    g_free (config->base);
    g_free (config->protection);
    g_free (config->subject);
    g_free (config->password_file);
    g_free (config->user_proxy);
    g_free (config->user_certificate);
    g_free (config->user_key);
    g_free (config->certificates);
    g_free (config->identity_file);
    g_free (config->known_hosts);
    g_free (config->ssh_config);
    g_free (config->proxy_jump);
    g_free (config->server_program);
    ecfs_claims_free (config->shared->committing);
    g_free (config->shared);
    g_free (config);
}

/* "[user@]host[:port]", the host possibly an IPv6 address in brackets. */
static bool parse_authority (EcfsGridftpConfig *config, const char *text, GError **error)
{
    const char *at = strrchr (text, '@');
    const char *host = at == NULL ? text : at + 1;
    if (at != NULL) {
        g_autofree char *user = g_strndup (text, (size_t) (at - text));
        if (strchr (user, ':') != NULL)
            return ecfs_fail (error, EINVAL, "a URL may hold no password: use the option password_file");
        config->user = g_uri_unescape_string (user, "/");
        if (config->user == NULL || config->user[0] == '\0')
            return ecfs_fail (error, EINVAL, "\"%s\" is not a user name", user);
    }
    bool literal = host[0] == '[';
    const char *end = literal ? strchr (host, ']') : host + strcspn (host, ":");
    if (end == NULL || end == host + literal)
        return ecfs_fail (error, EINVAL, "\"%s\" is not a host", text);
    config->host = g_strndup (host + literal, (size_t) (end - host - literal));
    const char *port = end + literal;
    guint64 number = 0;
    if (port[0] != '\0' && (port[0] != ':' || !g_ascii_string_to_unsigned (port + 1, 10, 1, 65535, &number, NULL)))
        return ecfs_fail (error, EINVAL, "\"%s\" is not HOST or HOST:PORT", host);
    config->request.port = (unsigned) number;
    return true;
}

/* One of the words of @choices, of which the first is the default. */
static bool choose (const EcfsEndpointSpec *spec, const char *key, const char *const *choices, const char **ret_choice,
                    GError **error)
{
    const char *value = ecfs_spec_option (spec, key);
    *ret_choice = value == NULL ? choices[0] : value;
    if (g_strv_contains (choices, *ret_choice))
        return true;
    g_autofree char *known = g_strjoinv (", ", (char **) choices);
    return ecfs_fail (error, EINVAL, "%s is one of %s, not \"%s\"", key, known, value);
}

static bool parse_data_channel (EcfsGridftpConfig *config, const EcfsEndpointSpec *spec, GError **error)
{
    static const char *const levels[] = {"clear", "safe", "private", NULL};
    static const char *const answers[] = {"yes", "no", NULL};
    static const char *const ways[] = {"safe", "clear", NULL};
    const char *level, *authenticates, *way;
    if (!choose (spec, "auth", ways, &way, error))
        return false;
    if (config->password_file != NULL && !g_str_equal (way, "clear"))
        return ecfs_fail (error, EINVAL,
                          "ftp:// sends the password in clear, so that it could be read on the way: use sftp:// or "
                          "gsiftp://, or say auth=clear if that is acceptable");
    if (!choose (spec, "protection", levels, &level, error) ||
        !choose (spec, "data_authentication", answers, &authenticates, error))
        return false;
    config->protection = g_strdup (level);
    config->trusts_data = g_str_equal (authenticates, "no");
    bool listens = g_strcmp0 (ecfs_spec_option (spec, "mode"), "extended") == 0;
    if (!config->gsi && listens && !config->trusts_data)
        return ecfs_fail (error, EINVAL,
                          "with mode = extended anybody may connect to the port where data is awaited, and only "
                          "gsiftp:// authenticates that: say data_authentication=no if that is acceptable");
    if (config->trusts_data && !g_str_equal (level, "clear"))
        return ecfs_fail (error, EINVAL, "protection = %s needs data_authentication = yes", level);
    if ((config->user_certificate == NULL) != (config->user_key == NULL))
        return ecfs_fail (error, EINVAL, "user_certificate and user_key go together");
    return true;
}

static bool parse_transfer (EcfsGridftpConfig *config, const EcfsEndpointSpec *spec, GError **error)
{
    static const char *const modes[] = {"stream", "extended", NULL};
    const char *mode;
    const char *streams = ecfs_spec_option (spec, "streams");
    const char *buffer = ecfs_spec_option (spec, "tcp_buffer");
    config->streams = 1;
    if (streams != NULL && !g_ascii_string_to_unsigned (streams, 10, 1, MAX_STREAMS, &config->streams, NULL))
        return ecfs_fail (error, EINVAL, "streams is a number from 1 to %d, not \"%s\"", MAX_STREAMS, streams);
    if (buffer != NULL && (!ecfs_parse_size (buffer, &config->tcp_buffer) || config->tcp_buffer > MAX_BUFFER))
        return ecfs_fail (error, EINVAL, "tcp_buffer is a size such as 4M, at most 1G, not \"%s\"", buffer);
    if (!choose (spec, "mode", modes, &mode, error))
        return false;
    config->extended = g_str_equal (mode, "extended");
    if (config->streams > 1 && !config->extended)
        return ecfs_fail (error, EINVAL, "streams = %s needs mode = extended", streams);
    return true;
}

static bool parse_ssh (EcfsGridftpConfig *config, const EcfsEndpointSpec *spec, GError **error)
{
    config->identity_file = ecfs_spec_file (spec, "identity_file");
    config->known_hosts = ecfs_spec_file (spec, "known_hosts");
    config->ssh_config = ecfs_spec_file (spec, "ssh_config");
    config->proxy_jump = g_strdup (ecfs_spec_option (spec, "proxy_jump"));
    config->server_program = g_strdup (ecfs_spec_option (spec, "server_program"));
    config->request.host = config->host;
    config->request.user = config->user;
    config->request.identity_file = config->identity_file;
    config->request.known_hosts = config->known_hosts;
    config->request.config_file = config->ssh_config;
    config->request.proxy_jump = config->proxy_jump;
    return !config->ssh || ecfs_ssh_request_check (&config->request, error);
}

static bool parse_spec (EcfsGridftpConfig *config, const EcfsEndpointSpec *spec, GError **error)
{
    const char *authority = strstr (spec->url, "://") + 3;
    g_autofree char *host = g_strndup (authority, strcspn (authority, "/"));
    g_autofree char *path = ecfs_url_path (spec->url, error);
    if (path == NULL || !parse_authority (config, host, error))
        return false;
    const char *scheme = config->gsi ? "gsiftp" : config->ssh ? "sshftp" : "ftp";
    const char *server = strrchr (host, '@') == NULL ? host : strrchr (host, '@') + 1;
    size_t size = strlen (path);
    while (size > 0 && path[size - 1] == '/')
        size--;
    path[size] = '\0';
    g_autofree char *escaped = g_uri_escape_string (path, "/~", FALSE);
    config->base = g_strdup_printf ("%s://%s%s", scheme, server, escaped);
    config->subject = g_strdup (ecfs_spec_option (spec, "subject"));
    config->password_file = ecfs_spec_file (spec, "password_file");
    config->user_proxy = ecfs_spec_file (spec, "user_proxy");
    config->user_certificate = ecfs_spec_file (spec, "user_certificate");
    config->user_key = ecfs_spec_file (spec, "user_key");
    config->certificates = ecfs_spec_file (spec, "certificates");
    if (config->password_file != NULL && config->user == NULL)
        return ecfs_fail (error, EINVAL, "password_file needs a user: write ftp://USER@HOST/PATH");
    return parse_data_channel (config, spec, error) && parse_transfer (config, spec, error) &&
           parse_ssh (config, spec, error);
}

static void *new_config_of (bool gsi, bool ssh, const EcfsEndpointSpec *spec, GError **error)
{
    EcfsGridftpConfig *config = g_new0 (EcfsGridftpConfig, 1);
    config->gsi = gsi;
    config->ssh = ssh;
    config->shared = g_new0 (EcfsGridftpShared, 1);
    config->shared->committing = ecfs_claims_new ();
    if (parse_spec (config, spec, error))
        return config;
    free_config (config);
    return NULL;
}

static void *new_config_gsiftp (const EcfsEndpointSpec *spec, GError **error)
{
    return new_config_of (true, false, spec, error);
}

static void *new_config_ftp (const EcfsEndpointSpec *spec, GError **error)
{
    return new_config_of (false, false, spec, error);
}

static void *new_config_sshftp (const EcfsEndpointSpec *spec, GError **error)
{
    return new_config_of (false, true, spec, error);
}

/* Connecting */

static void gridftp_disconnect (void *connection)
{
    ecfs_gridftp_end (connection);
}

/* As ecfs_gridftp_do () with the root, but until @deadline_us at most. */
static bool do_by (EcfsGridftp *self, EcfsGridftpType type, int64_t deadline_us, GError **error)
{
    ecfs_gridftp_ask (self, type, "", NULL, 0, 0);
    return ecfs_gridftp_await (self, "", deadline_us, error);
}

/* Servers say it in many words; the code alone is also that of other errors. */
static bool knows_no_mlst (const GError *problem)
{
    static const char *const phrases[] = {"unknown command", "not understood", "not implemented", "not recognized",
                                          "unrecognized"};
    for (size_t i = 0; i < G_N_ELEMENTS (phrases); i++)
        if (strcasestr (problem->message, phrases[i]) != NULL)
            return true;
    return false;
}

static bool look_around (EcfsGridftp *self, bool make_root, GError **error)
{
    int64_t deadline_us = ecfs_now_us () + ecfs_slot_connect_timeout_us (self->slot);
    g_autoptr (GError) refused = NULL;
    GError *problem = NULL;
    EcfsFacts facts;
    if (make_root && !do_by (self, ECFS_GRIDFTP_MAKE, deadline_us, &refused) && self->broken != NULL)
        return ecfs_fail (error, refused->code, "%s", refused->message);
    if (!do_by (self, ECFS_GRIDFTP_FACTS, deadline_us, &problem)) {
        bool absent = problem->code == ENOENT && self->broken == NULL;
        if (absent && refused != NULL && refused->code == EACCES)
            (void) !ecfs_fail (error, EACCES,
                               "%s: permission to make this directory is denied; make it on the server, or give the "
                               "user the right to",
                               self->config->base);
        else if (absent)
            (void) !ecfs_fail (error, ENOENT, "%s: no such directory on the server; make it, or correct the URL",
                               self->config->base);
        else if (self->broken == NULL && knows_no_mlst (problem))
            (void) !ecfs_fail (
                error, ENOTSUP,
                "%s: the server lacks MLST, so it cannot be an endpoint: ecfs learns names and sizes by MLST and MLSD "
                "(RFC 3659), which ProFTPD and GridFTP servers have, and vsftpd does not (%s)",
                self->config->base, problem->message);
        else
            g_propagate_error (error, g_steal_pointer (&problem));
        g_clear_error (&problem);
        return false;
    }
    if (!ecfs_facts_parse (self->text, strcspn (self->text, "\r\n"), &facts) || facts.type == ECFS_FACTS_FILE)
        return ecfs_fail (error, EPROTO, "%s: is not a directory, or the server cannot tell (MLST)",
                          self->config->base);
    return true;
}

static void *gridftp_connect (EcfsSlot *slot, bool make_root, GError **error)
{
    EcfsGridftp *self = g_new0 (EcfsGridftp, 1);
    self->slot = slot;
    self->config = ecfs_slot_config (slot);
    self->fd = -1;
    g_queue_init (&self->writes);
    if (!ecfs_gridftp_spawn (self, error) || !look_around (self, make_root, error)) {
        ecfs_gridftp_end (self);
        return NULL;
    }
    ecfs_slot_capabilities (slot, ECFS_CAN_POSITION | ECFS_CAN_RENAME | ECFS_CAN_LIST);
    return self;
}

/* Serving */

static void serve_space (EcfsGridftp *self, EcfsStream *request)
{
    ecfs_request_fail (request, ENOTSUP, "GridFTP servers do not report how much space there is");
}

static void begin (EcfsGridftp *self, EcfsStream *request)
{
    static void (*const begin_kind[]) (EcfsGridftp *, EcfsStream *) = {
        [ECFS_REQUEST_READ] = ecfs_gridftp_read,     [ECFS_REQUEST_WRITE] = ecfs_gridftp_write_begin,
        [ECFS_REQUEST_REMOVE] = ecfs_gridftp_remove, [ECFS_REQUEST_RMDIR] = ecfs_gridftp_rmdir,
        [ECFS_REQUEST_SIZE] = ecfs_gridftp_size,     [ECFS_REQUEST_SPACE] = serve_space,
        [ECFS_REQUEST_LIST] = ecfs_gridftp_list,     [ECFS_REQUEST_EXAMINE] = ecfs_gridftp_examine,
        [ECFS_REQUEST_MARK] = ecfs_gridftp_mark,
    };
    if (ecfs_request_cancelled (request)) {
        ecfs_request_fail (request, ECANCELED, "%s: cancelled", request->name);
        return;
    }
    if (request->kind != ECFS_REQUEST_WRITE && request->kind != ECFS_REQUEST_SPACE)
        ecfs_gridftp_write_suspend (self);
    if (self->broken == NULL)
        begin_kind[request->kind](self, request);
}

/* Begins what was taken before, or can be taken now. */
static bool begin_next (EcfsGridftp *self)
{
    if (!ecfs_gridftp_write_gives_way (self))
        return false;
    EcfsStream *request = self->next != NULL ? g_steal_pointer (&self->next) : ecfs_slot_take (self->slot);
    if (request != NULL)
        begin (self, request);
    return request != NULL;
}

/* Ends a PUT that was open for long with nothing to send, and asks a server that was asked nothing for long. */
static void tidy (EcfsGridftp *self)
{
    int64_t now_us = ecfs_now_us ();
    if (self->storing != NULL && now_us - self->asked_us > PARKED_US) {
        ecfs_gridftp_write_suspend (self);
    } else if (self->storing == NULL && now_us - self->asked_us > KEEP_ALIVE_US) {
        g_autoptr (GError) error = NULL;
        (void) !ecfs_gridftp_do (self, ECFS_GRIDFTP_FACTS, "", NULL, &error); /* what counts is an answer */
    }
}

static void wait_for_events (EcfsGridftp *self)
{
    struct pollfd fds[] = {{.fd = self->fd, .events = POLLIN}, {.fd = ecfs_slot_fd (self->slot), .events = POLLIN}};
    int64_t most_us = ecfs_gridftp_write_gives_way (self) ? PARKED_US : LOOK_AGAIN_US;
    /* Whatever poll says, the loop looks at everything again. */
    (void) poll (fds, G_N_ELEMENTS (fds), (int) (most_us / 1000));
}

static bool gridftp_serve (EcfsSlot *slot, void *connection, GError **error)
{
    EcfsGridftp *self = connection;
    int64_t busy_us = ecfs_now_us ();
    bool idle = false;
    while (!idle && self->broken == NULL && ecfs_slot_check (slot, error)) {
        bool begun = begin_next (self);
        bool moved = self->broken == NULL && ecfs_gridftp_write_step (self);
        if (begun || moved || self->writes.length > 0)
            busy_us = ecfs_now_us ();
        if (begun || moved || self->broken != NULL)
            continue;
        tidy (self);
        idle = ecfs_now_us () - busy_us > IDLE_CLOSE_US && !ecfs_slot_is_last (slot);
        if (!idle && self->broken == NULL)
            wait_for_events (self);
    }
    if (self->broken != NULL)
        (void) !ecfs_fail (error, self->broken->code, "%s", self->broken->message);
    ecfs_gridftp_write_abandon (self);
    return idle && self->broken == NULL;
}

static const char *const option_keys_gsiftp[] = {
    ECFS_COMMON_OPTION_KEYS,
    "certificates",
    "data_authentication",
    "mode",
    "protection",
    "streams",
    "subject",
    "tcp_buffer",
    "user_certificate",
    "user_key",
    "user_proxy",
    NULL,
};

static const char *const option_keys_ftp[] = {
    ECFS_COMMON_OPTION_KEYS, "auth", "data_authentication", "mode", "password_file", "streams", "tcp_buffer", NULL,
};

static const char *const option_keys_sshftp[] = {
    ECFS_COMMON_OPTION_KEYS, "data_authentication", "identity_file", "known_hosts", "mode", "proxy_jump",
    "server_program",        "ssh_config",          "streams",       "tcp_buffer",  NULL,
};

#define GRIDFTP_DRIVER(NAME)                                                                                           \
    .scheme = #NAME, .option_keys = option_keys_##NAME, .new_config = new_config_##NAME, .free_config = free_config,   \
    .connect = gridftp_connect, .serve = gridftp_serve, .disconnect = gridftp_disconnect

/* A login with GSI costs the server a key, and each data connection a handshake; one over ssh, processes: few of both.
 */
const EcfsDriver ecfs_driver_gsiftp = {GRIDFTP_DRIVER (gsiftp), .default_connections = 2, .n_pipelined = 4,
                                       .own_login = true, .costly = true};
const EcfsDriver ecfs_driver_ftp = {GRIDFTP_DRIVER (ftp), .default_connections = 3, .n_pipelined = 1};
const EcfsDriver ecfs_driver_sshftp = {GRIDFTP_DRIVER (sshftp), .default_connections = 2, .n_pipelined = 4,
                                       .own_login = true, .costly = true};
