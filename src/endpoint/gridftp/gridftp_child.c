/* The helper process of a connection, and the conversation with it. */
#include "endpoint/core/secret.h"
#include "endpoint/gridftp/gridftp_priv.h"
#include "endpoint/ssh/ssh_child.h"
#include "endpoint/ssh/ssh_transport.h"
#include "util/helper.h"
#include "util/io.h"

#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELPER       "ecfs-gridftp-helper"
#define ABORT_US     (G_USEC_PER_SEC / 2) /* for the helper, which has nobody else to ask */
#define MEMORY_BYTES ((size_t) ECFS_GRIDFTP_N_BLOCKS * ECFS_GRIDFTP_BLOCK_BYTES)

static void add_word (GPtrArray *words, const char *key, const char *value)
{
    if (value != NULL)
        g_ptr_array_add (words, g_strdup_printf ("--%s=%s", key, value));
}

static void add_number (GPtrArray *words, const char *key, guint64 number)
{
    g_ptr_array_add (words, g_strdup_printf ("--%s=%" G_GUINT64_FORMAT, key, number));
}

/* As Globus's own script does without server_program. */
#define SERVER_PROGRAM                                                                                                 \
    "for program in .globus/sshftp /etc/grid-security/sshftp; do test -x $program && exec $program; done; "            \
    "echo \"there is no program .globus/sshftp or /etc/grid-security/sshftp on the server: make it with "              \
    "globus-gridftp-server-enable-sshftp, or set server_program\" >&2"

static bool add_ssh (GPtrArray *words, const EcfsGridftpConfig *config, GError **error)
{
    g_autofree char *quoted = config->server_program != NULL ? g_shell_quote (config->server_program) : NULL;
    g_autofree char *script = quoted != NULL ? g_strconcat ("exec ", quoted, NULL) : g_strdup (SERVER_PROGRAM);
    g_autofree char *argument = g_shell_quote (script);
    g_autofree char *command = g_strconcat ("exec sh -c ", argument, NULL); /* whatever the user's shell */
    g_auto (GStrv) ssh = ecfs_ssh_openssh_words (&config->request, command, error);
    for (char **word = ssh; ssh != NULL && *word != NULL; word++)
        add_word (words, "ssh", *word);
    return ssh != NULL;
}

static GPtrArray *make_words (const EcfsGridftpConfig *config, const char *helper)
{
    GPtrArray *words = g_ptr_array_new_with_free_func (g_free);
    g_ptr_array_add (words, g_strdup (helper));
    if (config->gsi) {
        /* Not left to the library, which believes what the name service makes of the host. */
        g_autofree char *of_host = g_strdup_printf ("host@%s", config->host);
        g_ptr_array_add (words, g_strdup ("--gsi"));
        add_word (words, "subject", config->subject != NULL ? config->subject : of_host);
        add_word (words, "protection", config->protection);
        if (config->trusts_data)
            g_ptr_array_add (words, g_strdup ("--no-data-authentication"));
    }
    if (!config->ssh)
        add_word (words, "user", config->user);
    add_word (words, "password-file", config->password_file);
    if (config->extended)
        g_ptr_array_add (words, g_strdup ("--extended"));
    add_number (words, "streams", config->streams);
    add_number (words, "tcp-buffer", config->tcp_buffer);
    return words;
}

static char **set_variable (char **environment, const char *name, const char *value)
{
    return value == NULL ? environment : g_environ_setenv (environment, name, value, TRUE);
}

static char **make_environment (const EcfsGridftpConfig *config)
{
    char **environment = g_get_environ ();
    environment = set_variable (environment, "X509_USER_PROXY", config->user_proxy);
    environment = set_variable (environment, "X509_CERT_DIR", config->certificates);
    if (config->user_certificate != NULL) {
        environment = set_variable (environment, "X509_USER_CERT", config->user_certificate);
        environment = set_variable (environment, "X509_USER_KEY", config->user_key);
        if (config->user_proxy == NULL) /* a proxy that lies about would come first */
            environment = set_variable (environment, "X509_USER_PROXY", "/nonexistent");
    }
    /* The name in the certificate is compared with the one in the URL, and the name service has no say. */
    return g_environ_setenv (environment, "GLOBUS_GSSAPI_NAME_COMPATIBILITY", "STRICT_RFC2818", FALSE);
}

static int make_memory (uint8_t **ret_memory, GError **error)
{
    ecfs_autofd fd = memfd_create ("ecfs-gridftp", MFD_CLOEXEC);
    if (fd < 0 || ftruncate (fd, (off_t) MEMORY_BYTES) != 0)
        return g_set_error (error, ECFS_ERROR, errno, "memory for a helper: %s", g_strerror (errno)), -1;
    void *memory = mmap (NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return g_set_error (error, ECFS_ERROR, errno, "memory for a helper: %s", g_strerror (errno)), -1;
    *ret_memory = memory;
    return ecfs_steal_fd (&fd);
}

/* Where Globus looks for a proxy; g_free (). */
static char *find_proxy (const EcfsGridftpConfig *config)
{
    const char *named = config->user_proxy != NULL ? config->user_proxy : g_getenv ("X509_USER_PROXY");
    return named != NULL ? g_strdup (named) : g_strdup_printf ("/tmp/x509up_u%d", (int) geteuid ());
}

/* Globus does not use keys that others may read, and says of them that there are none. One that is missing it
 * explains. */
static bool check_secrets (const EcfsGridftpConfig *config, GError **error)
{
    if (config->password_file != NULL && !ecfs_secret_is_private ("password_file", config->password_file, error))
        return false;
    if (!config->gsi)
        return true;
    bool by_key = config->user_key != NULL && config->user_proxy == NULL;
    g_autofree char *key = by_key ? g_strdup (config->user_key) : find_proxy (config);
    return !g_file_test (key, G_FILE_TEST_EXISTS) ||
           ecfs_secret_is_private (by_key ? "user_key" : "the proxy certificate", key, error);
}

bool ecfs_gridftp_spawn (EcfsGridftp *self, GError **error)
{
    const EcfsGridftpConfig *config = self->config;
    g_autofree char *helper = ecfs_helper_path (HELPER, "ECFS_GRIDFTP_HELPER");
    if (access (helper, X_OK) != 0)
        return ecfs_fail (error, ENOTSUP,
                          "there is no %s: install it (package ecfs-gridftp), or build ecfs with it "
                          "(meson setup -Dgridftp=enabled, with libglobus-ftp-client-dev)",
                          helper);
    if (!check_secrets (config, error))
        return false;
    ecfs_autofd memory_fd = make_memory (&self->memory, error);
    if (memory_fd < 0)
        return false;
    g_autoptr (GPtrArray) words = make_words (config, helper);
    if (config->ssh && !add_ssh (words, config, error))
        return false;
    g_ptr_array_add (words, NULL);
    g_auto (GStrv) environment = make_environment (config);
    self->text = g_malloc (ECFS_GRIDFTP_TEXT_MAX + 1);
    self->is_new = true;
    self->has_served = self->may_redo = false;
    self->fd = ecfs_ssh_child_spawn_with ((char *const *) words->pdata, environment, -1, memory_fd, &self->pid, error);
    return self->fd >= 0;
}

static void end_helper (EcfsGridftp *self)
{
    if (self->fd >= 0)
        close (self->fd);
    self->fd = -1;
    ecfs_ssh_child_end (self->pid);
    self->pid = 0;
    if (self->memory != NULL)
        munmap (self->memory, MEMORY_BYTES);
    self->memory = NULL;
    g_clear_pointer (&self->text, g_free);
    self->n_heard = 0;
}

void ecfs_gridftp_end (EcfsGridftp *self)
{
    end_helper (self);
    g_clear_error (&self->broken);
    g_free (self->pace.name);
    g_free (self->asked_text);
    g_free (self);
}

void ecfs_gridftp_break (EcfsGridftp *self, GError *error)
{
    if (self->broken == NULL)
        self->broken = error;
    else
        g_error_free (error);
}

static void break_literally (EcfsGridftp *self, int code, const char *text)
{
    ecfs_gridftp_break (self, g_error_new_literal (ECFS_ERROR, code, text));
}

static void say (EcfsGridftp *self, const EcfsGridftpMessage *message, const char *text)
{
    struct iovec parts[] = {{(void *) message, sizeof *message}, {(void *) text, message->text_bytes}};
    struct msghdr all = {.msg_iov = parts, .msg_iovlen = message->text_bytes > 0 ? 2 : 1};
    ssize_t size = (ssize_t) (sizeof *message + message->text_bytes);
    /* The few blocks there are bound what can be unread, which is far below the size of a socket's buffer. */
    if (sendmsg (self->fd, &all, MSG_NOSIGNAL) != size)
        break_literally (self, ENOTCONN, HELPER " has ended");
}

void ecfs_gridftp_say (EcfsGridftp *self, const EcfsGridftpMessage *message)
{
    if (message->type == ECFS_GRIDFTP_ABORT)
        self->may_redo = false;
    if (message->type == ECFS_GRIDFTP_BLOCK && self->may_redo)
        self->sent[self->n_sent++] = *message; /* of which none came back yet, so there is room */
    say (self, message, NULL);
}

static void append_url (const EcfsGridftp *self, GString *text, const char *name)
{
    g_string_append (text, self->config->base);
    if (name[0] != '\0')
        g_string_append_printf (text, "/%s", name);
    else if (g_str_has_suffix (self->config->base, "//"))
        g_string_append_c (text, '.');
}

void ecfs_gridftp_ask (EcfsGridftp *self, EcfsGridftpType type, const char *name, const char *other, uint64_t offset,
                       uint64_t length)
{
    g_autoptr (GString) text = g_string_new (NULL);
    append_url (self, text, name);
    if (other != NULL) {
        g_string_append_c (text, '\0');
        append_url (self, text, other);
    }
    EcfsGridftpMessage message = {.type = type, .offset = offset, .length = length, .text_bytes = (uint32_t) text->len};
    self->asked_us = ecfs_now_us ();
    self->asked = message;
    g_free (self->asked_text);
    self->asked_text = g_string_free (g_steal_pointer (&text), FALSE);
    self->n_sent = 0;
    self->may_redo = self->has_served && type != ECFS_GRIDFTP_MOVE; /* what else there is may be done twice */
    ecfs_slot_owed (self->slot, self->is_new ? ECFS_OWES_CONNECT : ECFS_OWES_ANSWER);
    say (self, &message, self->asked_text);
}

/* Asks once more on another connection where the one that served before was lost. False: that is not so. */
static bool redo (EcfsGridftp *self)
{
    bool lost = self->message.type == ECFS_GRIDFTP_DONE && self->message.code == ECFS_GRIDFTP_LOST;
    bool again = lost && self->may_redo;
    self->may_redo = false;
    if (lost)
        self->has_served = false;
    else if (self->message.type == ECFS_GRIDFTP_DONE)
        self->has_served = true;
    if (!again)
        return false;
    self->is_new = true;
    ecfs_slot_owed (self->slot, ECFS_OWES_CONNECT);
    say (self, &self->asked, self->asked_text);
    for (unsigned i = 0; i < self->n_sent; i++)
        ecfs_gridftp_say (self, &self->sent[i]);
    return true;
}

/* Reads more of the message. False: not all is there yet. */
static bool receive (EcfsGridftp *self)
{
    const size_t head = sizeof self->message;
    for (;;) {
        bool in_head = self->n_heard < head;
        size_t wanted = in_head ? head : head + self->message.text_bytes;
        if (!in_head && self->n_heard == wanted) {
            self->text[self->message.text_bytes] = '\0';
            self->n_heard = 0;
            return true;
        }
        char *to = in_head ? (char *) &self->message + self->n_heard : self->text + (self->n_heard - head);
        ssize_t n = recv (self->fd, to, wanted - self->n_heard, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        if (n <= 0) {
            break_literally (self, ENOTCONN, HELPER " has ended");
            return false;
        }
        self->n_heard += (size_t) n;
        if (self->n_heard == head &&
            (self->message.text_bytes > ECFS_GRIDFTP_TEXT_MAX || self->message.block >= ECFS_GRIDFTP_N_BLOCKS ||
             self->message.length > ECFS_GRIDFTP_BLOCK_BYTES)) {
            break_literally (self, EPROTO, HELPER " sends nonsense");
            return false;
        }
    }
}

static void note_heard (EcfsGridftp *self)
{
    bool done = self->message.type == ECFS_GRIDFTP_DONE;
    /* Data connections that are authenticated begin with a handshake, which takes what a login takes. */
    if (done)
        self->is_new = self->message.code == ECFS_GRIDFTP_LOST || (self->config->gsi && !self->config->trusts_data);
    ecfs_slot_owed (self->slot, done ? ECFS_OWES_NOTHING : ECFS_OWES_ANSWER);
}

EcfsGridftpHeard ecfs_gridftp_hear (EcfsGridftp *self, int64_t deadline_us)
{
    for (;;) {
        if (self->broken == NULL && receive (self)) {
            if (redo (self))
                continue;
            note_heard (self);
            return ECFS_GRIDFTP_HEARD;
        }
        if (self->broken != NULL)
            return ECFS_GRIDFTP_BROKEN;
        struct pollfd fds[] = {{.fd = self->fd, .events = POLLIN}, {.fd = ecfs_slot_fd (self->slot), .events = POLLIN}};
        int64_t left_us = deadline_us - ecfs_now_us ();
        if (left_us <= 0)
            return ECFS_GRIDFTP_TOO_LATE;
        (void) poll (fds, G_N_ELEMENTS (fds), (int) MIN (left_us / 1000 + 1, G_MAXINT));
        GError *end = NULL;
        if (fds[1].revents != 0 && !ecfs_slot_check (self->slot, &end)) {
            ecfs_gridftp_break (self, end);
            return ECFS_GRIDFTP_BROKEN;
        }
        if (fds[1].revents != 0 && fds[0].revents == 0)
            return ECFS_GRIDFTP_NEWS;
    }
}

static char *explain (const EcfsGridftp *self)
{
    const EcfsGridftpConfig *config = self->config;
    g_autofree char *proxy = find_proxy (config);
    const char *certificates = config->certificates != NULL ? config->certificates : g_getenv ("X509_CERT_DIR");
    EcfsGridftpNames names = {.host = config->host,
                              .port = config->request.port,
                              .known_hosts = config->known_hosts,
                              .user_proxy = proxy,
                              .certificates = certificates != NULL ? certificates : "/etc/grid-security/certificates"};
    return ecfs_gridftp_explain (self->text, &names);
}

bool ecfs_gridftp_outcome (EcfsGridftp *self, const char *name, GError **error)
{
    if (self->message.code == ECFS_GRIDFTP_OK)
        return true;
    int code = ecfs_gridftp_errno (self->message.code, self->text);
    g_autofree char *text = explain (self);
    if (code == ENOTCONN) {
        ecfs_gridftp_break (self, g_error_new_literal (ECFS_ERROR, code, text));
        return ecfs_fail (error, code, "%s", text);
    }
    if (code == ENOENT || code == EEXIST || code == EACCES || code == ENOSPC || code == EDQUOT)
        return ecfs_fail_errno (error, code, "%s", name[0] != '\0' ? name : self->config->base);
    return ecfs_fail (error, code, "%s: %s", name[0] != '\0' ? name : self->config->base, text);
}

bool ecfs_gridftp_await (EcfsGridftp *self, const char *name, int64_t deadline_us, GError **error)
{
    for (;;) {
        EcfsGridftpHeard heard = ecfs_gridftp_hear (self, deadline_us);
        if (heard == ECFS_GRIDFTP_TOO_LATE)
            ecfs_gridftp_break (self, g_error_new (ECFS_ERROR, ETIMEDOUT, "no answer from %s", self->config->host));
        if (self->broken != NULL)
            return ecfs_fail (error, self->broken->code, "%s", self->broken->message);
        if (heard == ECFS_GRIDFTP_HEARD && self->message.type == ECFS_GRIDFTP_DONE)
            return ecfs_gridftp_outcome (self, name, error);
    }
}

bool ecfs_gridftp_do (EcfsGridftp *self, EcfsGridftpType type, const char *name, const char *other, GError **error)
{
    ecfs_gridftp_ask (self, type, name, other, 0, 0);
    return ecfs_gridftp_await (self, name, G_MAXINT64, error);
}

/* Whether the helper ends what is under way soon. */
static bool ends_soon (EcfsGridftp *self)
{
    int64_t deadline_us = ecfs_now_us () + ABORT_US;
    ecfs_gridftp_say (self, &(EcfsGridftpMessage){.type = ECFS_GRIDFTP_ABORT});
    for (;;) {
        EcfsGridftpHeard heard = ecfs_gridftp_hear (self, deadline_us);
        if (heard == ECFS_GRIDFTP_BROKEN)
            return true; /* nothing of it goes on */
        if (heard == ECFS_GRIDFTP_TOO_LATE)
            return false;
        if (heard == ECFS_GRIDFTP_HEARD && self->message.type == ECFS_GRIDFTP_DONE)
            return true;
    }
}

void ecfs_gridftp_abort (EcfsGridftp *self)
{
    GError *error = NULL;
    /* With connections that are kept, what follows an abort may never end (Globus 9.8). */
    if (!self->config->extended && ends_soon (self)) {
        self->is_new = true;
        return;
    }
    ecfs_slot_owed (self->slot, ECFS_OWES_NOTHING);
    end_helper (self);
    if (!ecfs_gridftp_spawn (self, &error))
        ecfs_gridftp_break (self, error);
}

void ecfs_gridftp_finish (EcfsGridftp *self, EcfsStream *request, uint64_t value, GError *error)
{
    if (self->broken == NULL)
        ecfs_request_finish (request, value, error);
    else
        g_clear_error (&error);
}

bool ecfs_gridftp_facts (EcfsGridftp *self, const char *name, EcfsFacts *ret_facts, GError **error)
{
    if (!ecfs_gridftp_do (self, ECFS_GRIDFTP_FACTS, name, NULL, error))
        return false;
    if (!ecfs_facts_parse (self->text, strcspn (self->text, "\r\n"), ret_facts))
        return ecfs_fail (error, EPROTO, "%s: the server describes it in a way that is not understood (MLST)", name);
    if (ret_facts->type != ECFS_FACTS_FILE && name[0] != '\0')
        return ecfs_fail (error, EPROTO, "%s: is not a regular file", name);
    return true;
}
