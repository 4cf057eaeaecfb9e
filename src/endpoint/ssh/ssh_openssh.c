/*
 * The SSH transport on the ssh program: its ciphers, its configuration, its agent. Its AES-GCM takes half of the
 * processor time that libssh2's calls of libcrypto for 16 bytes at a time do, on both ends. What it cannot: widen its
 * window of 2 MiB for what it receives.
 */
#include "endpoint/ssh/ssh_child.h"
#include "endpoint/ssh/ssh_transport.h"
#include "util/io.h"
#include "util/lock.h"
#include "util/text.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define AHEAD_BYTES   4096 /* small reads are served from one of this size */
#define MAX_COMPLAINT 1024
#define LAST_WORDS_US (200 * 1000) /* for what ssh has to say when it closed the line */

typedef struct OpenSsh {
    EcfsSshTransport base;
    int fd;
    int errors; /* what ssh writes to stderr */
    pid_t pid;
    uint8_t ahead[AHEAD_BYTES];
    size_t ahead_at, ahead_end;
    bool blocked; /* the last write found no room */
    char *problem;
} OpenSsh;

static ssize_t receive (OpenSsh *self, void *to, size_t size)
{
    ssize_t n;
    do
        n = recv (self->fd, to, size, 0);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static ssize_t channel_read (EcfsSshTransport *base, void *to, size_t size)
{
    OpenSsh *self = (OpenSsh *) base;
    if (self->ahead_at == self->ahead_end) {
        if (size >= AHEAD_BYTES)
            return receive (self, to, size);
        ssize_t n = receive (self, self->ahead, AHEAD_BYTES);
        if (n <= 0)
            return n;
        self->ahead_at = 0;
        self->ahead_end = (size_t) n;
    }
    size_t n = MIN (size, self->ahead_end - self->ahead_at);
    memcpy (to, self->ahead + self->ahead_at, n);
    self->ahead_at += n;
    return (ssize_t) n;
}

static ssize_t channel_write (EcfsSshTransport *base, const void *from, size_t size)
{
    OpenSsh *self = (OpenSsh *) base;
    ssize_t n;
    do
        n = send (self->fd, from, size, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    self->blocked = n < 0 && errno == EAGAIN;
    return n < 0 ? -errno : n;
}

static int flush (EcfsSshTransport *base)
{
    return 0;
}

static int poll_for (EcfsSshTransport *base, short *ret_events)
{
    OpenSsh *self = (OpenSsh *) base;
    if (self->ahead_at < self->ahead_end)
        *ret_events = 0;
    else
        *ret_events = self->blocked ? POLLIN | POLLOUT : POLLIN;
    return self->fd;
}

/* What ssh said until it closed its stderr or went silent. g_free (). */
static char *last_words (OpenSsh *self)
{
    int64_t deadline_us = ecfs_now_us () + LAST_WORDS_US;
    g_autoptr (GString) text = g_string_new (NULL);
    while (text->len < MAX_COMPLAINT) {
        char bytes[MAX_COMPLAINT];
        ssize_t n = read (self->errors, bytes, sizeof bytes);
        if (n > 0)
            g_string_append_len (text, bytes, n);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || ecfs_now_us () > deadline_us)
            break;
        struct pollfd errors = {.fd = self->errors, .events = POLLIN};
        (void) poll (&errors, 1, (int) (LAST_WORDS_US / 1000));
    }
    g_auto (GStrv) lines = g_strsplit_set (text->str, "\r\n", -1);
    g_autoptr (GString) words = g_string_new (NULL);
    for (char **line = lines; *line != NULL; line++)
        if ((*line)[0] != '\0')
            g_string_append_printf (words, "%s%s", words->len > 0 ? "; " : "", *line);
    return ecfs_text_clean (words->len == 0 ? "connection closed by the server" : words->str, ECFS_WORDS_MAX);
}

static const char *problem (EcfsSshTransport *base)
{
    OpenSsh *self = (OpenSsh *) base;
    if (self->problem == NULL)
        self->problem = last_words (self);
    return self->problem;
}

static void transport_free (EcfsSshTransport *base)
{
    OpenSsh *self = (OpenSsh *) base;
    if (self->fd >= 0)
        (void) close (self->fd); /* nothing is lost that was not lost before */
    ecfs_ssh_child_end (self->pid);
    (void) close (self->errors);
    g_free (self->problem);
    g_free (self);
}

static const EcfsSshTransportOps ops = {
    .name = "openssh",
    .only_writes = true,
    .read = channel_read,
    .write = channel_write,
    .flush = flush,
    .poll = poll_for,
    .problem = problem,
    .free = transport_free,
};

/* A path as the value of an ssh option, where "%" begins a token. */
static void add_file (GPtrArray *words, const char *key, const char *file)
{
    g_auto (GStrv) parts = g_strsplit (file, "%", -1);
    g_autofree char *escaped = g_strjoinv ("%%", parts);
    g_ptr_array_add (words, g_strdup_printf ("-o%s=\"%s\"", key, escaped));
}

/* ssh takes neither in a file name. */
static bool check_name (const char *file, GError **error)
{
    return file == NULL || strpbrk (file, "\"\\") == NULL ||
           ecfs_fail (error, EINVAL, "ssh takes no file name with quotes or backslashes");
}

char **ecfs_ssh_openssh_words (const EcfsSshRequest *request, const char *command, GError **error)
{
    static const char *const fixed[] = {
        "-xaT",
        "-oBatchMode=yes",
        "-oStrictHostKeyChecking=yes",
        "-oUpdateHostKeys=no",
        "-oClearAllForwardings=yes",
        "-oPermitLocalCommand=no",
        "-oControlPath=none", /* a shared connection would share its bandwidth */
        "-oCompression=no",
        "-oLogLevel=ERROR",
        "-oServerAliveInterval=15", /* so that it ends by itself should we be killed while the line is dead */
        "-oCiphers=^aes128-gcm@openssh.com,aes256-gcm@openssh.com",
    };
    if (!check_name (request->identity_file, error) || !check_name (request->known_hosts, error))
        return NULL;
    GPtrArray *words = g_ptr_array_new ();
    g_ptr_array_add (words, g_strdup ("ssh"));
    if (command == NULL)
        g_ptr_array_add (words, g_strdup ("-s"));
    for (size_t i = 0; i < G_N_ELEMENTS (fixed); i++)
        g_ptr_array_add (words, g_strdup (fixed[i]));
    if (request->identity_file != NULL) {
        add_file (words, "IdentityFile", request->identity_file);
        g_ptr_array_add (words, g_strdup ("-oIdentitiesOnly=yes"));
    }
    if (request->known_hosts != NULL) {
        add_file (words, "UserKnownHostsFile", request->known_hosts);
        g_ptr_array_add (words, g_strdup ("-oGlobalKnownHostsFile=/dev/null"));
    }
    if (request->proxy_jump != NULL)
        g_ptr_array_add (words, g_strconcat ("-oProxyJump=", request->proxy_jump, NULL));
    ecfs_ssh_request_words (request, words);
    g_ptr_array_add (words, g_strdup (command != NULL ? command : "sftp"));
    g_ptr_array_add (words, NULL);
    return (char **) g_ptr_array_free (words, FALSE);
}

/* @remote NULL: SFTP. */
static EcfsSshTransport *run (const EcfsSshRequest *request, const char *remote, GError **error)
{
    g_auto (GStrv) words = ecfs_ssh_openssh_words (request, remote, error);
    if (words == NULL)
        return NULL;
    int pipes[2];
    if (pipe2 (pipes, O_CLOEXEC | O_NONBLOCK) != 0)
        return g_set_error (error, ECFS_ERROR, errno, "pipe: %s", g_strerror (errno)), NULL;
    ecfs_autofd errors = pipes[0];
    ecfs_autofd its_errors = pipes[1];
    pid_t pid = 0;
    int fd = ecfs_ssh_child_spawn (words, its_errors, &pid, error);
    if (fd < 0)
        return NULL;
    OpenSsh *self = g_new0 (OpenSsh, 1);
    self->base.ops = &ops;
    self->fd = fd;
    self->errors = ecfs_steal_fd (&errors);
    self->pid = pid;
    return &self->base;
}

EcfsSshTransport *ecfs_ssh_openssh_open (const EcfsSshRequest *request, GError **error)
{
    return run (request, NULL, error);
}

EcfsSshTransport *ecfs_ssh_openssh_run (const EcfsSshRequest *request, const char *remote, GError **error)
{
    return run (request, remote, error);
}
