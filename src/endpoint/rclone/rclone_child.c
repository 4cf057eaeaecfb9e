/* Processes of rclone, and their logs. Each ends when our end of its socket is closed, whatever closes it. */
#include "endpoint/rclone/rclone_priv.h"
#include "endpoint/ssh/ssh_child.h"
#include "util/io.h"
#include "util/text.h"

#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_US (G_USEC_PER_SEC / 2) /* from the end of its output on */

/* What the user's environment may say of rclone, but not to one that works for us. */
static bool is_unwanted (const char *variable)
{
    static const char *const names[] = {
        "RCLONE_VERBOSE=", "RCLONE_QUIET=",       "RCLONE_LOG_",       "RCLONE_USE_JSON_LOG=", "RCLONE_SYSLOG",
        "RCLONE_PROGRESS", "RCLONE_STATS",        "RCLONE_DUMP",       "RCLONE_DRY_RUN=",      "RCLONE_INTERACTIVE=",
        "RCLONE_RC",       "RCLONE_APPEND_ONLY=", "RCLONE_PRIVATE_",   "RCLONE_BASEURL=",      "RCLONE_CACHE_OBJECTS=",
        "RCLONE_FILTER",   "RCLONE_INCLUDE",      "RCLONE_EXCLUDE",    "RCLONE_FILES_FROM",    "RCLONE_MIN_",
        "RCLONE_MAX_",     "RCLONE_HASH_FILTER=", "RCLONE_CPUPROFILE", "RCLONE_MEMPROFILE"};
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++)
        if (g_str_has_prefix (variable, names[i]))
            return true;
    return false;
}

static char **make_environment (void)
{
    g_auto (GStrv) all = g_get_environ ();
    g_autoptr (GPtrArray) kept = g_ptr_array_new ();
    for (size_t i = 0; all[i] != NULL; i++)
        if (!is_unwanted (all[i]))
            g_ptr_array_add (kept, g_strdup (all[i]));
    g_ptr_array_add (kept, NULL);
    char **environment = (char **) g_ptr_array_free (g_steal_pointer (&kept), FALSE);
    const char *file = g_environ_getenv (environment, "RCLONE_CONFIG");
    if (file == NULL || *file == '\0' || g_path_is_absolute (file))
        return environment;
    g_autofree char *absolute = g_canonicalize_filename (file, NULL);
    return g_environ_setenv (environment, "RCLONE_CONFIG", absolute, TRUE);
}

/* Paths of a remote that are relative to where rclone runs begin at the root, wherever we run. */
static GPtrArray *make_words (const EcfsRcloneConfig *config, const char *program, const char *const *words)
{
    const char *const first[] = {"env", "--chdir=/", program, "--ask-password=false", "--use-json-log", "--retries=1"};
    GPtrArray *all = g_ptr_array_new_with_free_func (g_free);
    for (size_t i = 0; i < G_N_ELEMENTS (first); i++)
        g_ptr_array_add (all, g_strdup (first[i]));
    if (config->file != NULL)
        g_ptr_array_add (all, g_strconcat ("--config=", config->file, NULL));
    for (size_t i = 0; words[i] != NULL; i++)
        g_ptr_array_add (all, g_strdup (words[i]));
    g_ptr_array_add (all, NULL);
    return all;
}

/* @its_end: for its input and output; -1: a new socket, whose other end is self->fd. */
static bool spawn (EcfsRcloneChild *self, const EcfsRcloneConfig *config, const char *const *words, int its_end,
                   GError **error)
{
    g_autofree char *program = g_find_program_in_path (config->program);
    if (program == NULL)
        return ecfs_fail (error, ENOTSUP, "there is no program %s: install rclone, or set rclone to where it is",
                          config->program);
    int pipes[2];
    if (pipe2 (pipes, O_CLOEXEC) != 0)
        return ecfs_fail (error, errno, "pipe: %s", g_strerror (errno));
    ecfs_autofd errors = pipes[0];
    ecfs_autofd its_errors = pipes[1];
    (void) fcntl (errors, F_SETFL, O_NONBLOCK); /* it waits for us to read, and we do not for it */
    g_autoptr (GPtrArray) all = make_words (config, program, words);
    g_auto (GStrv) environment = make_environment ();
    char *const *argv = (char *const *) all->pdata;
    if (its_end >= 0 && !ecfs_ssh_child_spawn_on (argv, environment, its_end, its_errors, &self->pid, error))
        return false;
    if (its_end < 0)
        self->fd = ecfs_ssh_child_spawn_with (argv, environment, its_errors, -1, &self->pid, error);
    if (its_end < 0 && self->fd < 0)
        return false;
    self->errors = ecfs_steal_fd (&errors);
    self->rest = g_string_new (NULL);
    return true;
}

bool ecfs_rclone_spawn (EcfsRcloneChild *self, const EcfsRcloneConfig *config, const char *const *words, GError **error)
{
    return spawn (self, config, words, -1, error);
}

/*
 * libcurl makes connections itself (7.88 does not take one that is made), so it is given the name of a socket that
 * listens until it has connected. The name is one that the kernel makes up, and nobody but ourselves is let in.
 */

int ecfs_rclone_listen (char **ret_name, GError **error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof address;
    ecfs_autofd fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind (fd, (struct sockaddr *) &address, sizeof address.sun_family) != 0 || listen (fd, 4) != 0 ||
        getsockname (fd, (struct sockaddr *) &address, &size) != 0)
        return g_set_error (error, ECFS_ERROR, errno, "a socket for rclone: %s", g_strerror (errno)), -1;
    size_t head = offsetof (struct sockaddr_un, sun_path) + 1; /* the name begins with a zero */
    *ret_name = g_strndup (address.sun_path + 1, size - head);
    return ecfs_steal_fd (&fd);
}

bool ecfs_rclone_serve_who_connects (EcfsRcloneChild *self, const EcfsRcloneConfig *config, const char *const *words,
                                     int listener, GError **error)
{
    for (;;) {
        ecfs_autofd fd = accept4 (listener, NULL, NULL, SOCK_CLOEXEC);
        struct ucred who;
        socklen_t size = sizeof who;
        if (fd < 0)
            return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED ||
                   ecfs_fail (error, errno, "a socket for rclone: %s", g_strerror (errno));
        if (getsockopt (fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.pid == getpid ())
            return spawn (self, config, words, fd, error);
    }
}

static void note (EcfsRcloneChild *self, EcfsRcloneLine *line)
{
    EcfsRcloneNote *to = &self->notes[self->n_notes++ % ECFS_RCLONE_N_NOTES];
    g_free (to->object);
    g_free (to->message);
    to->object = g_steal_pointer (&line->object);
    to->message = g_steal_pointer (&line->message);
}

/* A line of usage, or what Go tells of its insides. */
static bool is_small_talk (const EcfsRcloneLine *line)
{
    return *line->message == '\0' || g_strcmp0 (line->level, "debug") == 0 || g_strcmp0 (line->level, "info") == 0 ||
           (line->level == NULL &&
            (*line->message == ' ' || g_str_has_prefix (line->message, "Use \"") ||
             g_str_has_prefix (line->message, "Usage:") || g_str_has_suffix (line->message, ":")));
}

static void hear_line (EcfsRcloneChild *self, const char *text, size_t size)
{
    EcfsRcloneLine line;
    ecfs_rclone_line_parse (text, size, &line);
    if (!is_small_talk (&line) && (self->last == NULL || !g_str_has_prefix (self->last, "Error: unknown "))) {
        g_free (self->last);
        self->last = g_strdup (line.message);
    }
    if (line.object != NULL && strstr (line.message, "error") != NULL)
        note (self, &line);
    ecfs_rclone_line_clear (&line);
}

void ecfs_rclone_hear (EcfsRcloneChild *self)
{
    char bytes[16 * 1024];
    while (self->errors >= 0) {
        ssize_t n = read (self->errors, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            (void) close (self->errors);
            self->errors = -1;
            hear_line (self, self->rest->str, self->rest->len);
            return;
        }
        g_string_append_len (self->rest, bytes, n);
        for (const char *end; (end = memchr (self->rest->str, '\n', self->rest->len)) != NULL;) {
            size_t size = (size_t) (end - self->rest->str);
            hear_line (self, self->rest->str, size);
            g_string_erase (self->rest, 0, (gssize) size + 1);
        }
        if (self->rest->len > ECFS_RCLONE_LINE_MAX)
            g_string_truncate (self->rest, 0);
    }
}

static EcfsRcloneNote *find_note (EcfsRcloneChild *self, const char *object)
{
    unsigned n = MIN (self->n_notes, ECFS_RCLONE_N_NOTES);
    for (unsigned i = 1; i <= n; i++) {
        EcfsRcloneNote *at = &self->notes[(self->n_notes - i) % ECFS_RCLONE_N_NOTES];
        if (g_strcmp0 (at->object, object) == 0)
            return at;
    }
    return NULL;
}

const char *ecfs_rclone_told (EcfsRcloneChild *self, const char *object)
{
    ecfs_rclone_hear (self);
    const EcfsRcloneNote *found = find_note (self, object);
    if (found == NULL)
        return NULL;
    const char *words = strstr (found->message, "error: ");
    return words != NULL ? words + strlen ("error: ") : found->message;
}

void ecfs_rclone_forget_told (EcfsRcloneChild *self, const char *object)
{
    for (EcfsRcloneNote *found; (found = find_note (self, object)) != NULL;)
        g_clear_pointer (&found->object, g_free);
}

/* Its status, or -1: it does not end by itself. */
static int reap (pid_t pid, int64_t deadline_us)
{
    for (;;) {
        int status;
        pid_t result = waitpid (pid, &status, WNOHANG);
        if (result == pid)
            return WIFEXITED (status) ? WEXITSTATUS (status) : -1;
        if ((result < 0 && errno != EINTR) || ecfs_now_us () >= deadline_us)
            break;
        (void) poll (NULL, 0, 2);
    }
    ecfs_ssh_child_end (pid);
    return -1;
}

int ecfs_rclone_end (EcfsRcloneChild *self, bool at_once)
{
    int status = -1;
    if (self->pid > 0) {
        if (self->fd >= 0)
            (void) close (self->fd);
        status = reap (self->pid, at_once ? 0 : ecfs_now_us () + EXIT_US);
        ecfs_rclone_hear (self);
        if (self->errors >= 0)
            (void) close (self->errors);
        g_string_free (self->rest, TRUE);
    }
    for (size_t i = 0; i < ECFS_RCLONE_N_NOTES; i++) {
        g_free (self->notes[i].object);
        g_free (self->notes[i].message);
    }
    char *last = g_steal_pointer (&self->last);
    *self = (EcfsRcloneChild){.fd = -1, .errors = -1, .last = last};
    return status;
}

bool ecfs_rclone_has_ended (EcfsRcloneChild *self)
{
    for (int64_t deadline_us = ecfs_now_us () + EXIT_US; self->errors >= 0 && ecfs_now_us () < deadline_us;) {
        struct pollfd log = {.fd = self->errors, .events = POLLIN};
        (void) poll (&log, 1, (int) (EXIT_US / 1000));
        ecfs_rclone_hear (self);
    }
    return self->errors < 0;
}

GError *ecfs_rclone_ended (const EcfsRcloneConfig *config, EcfsRcloneChild *child)
{
    const char *last = child->last;
    if (last == NULL)
        return ecfs_http_error (ENOTCONN, "%s has ended", config->program);
    if (strstr (last, "find section in config file") != NULL)
        return ecfs_http_error (EACCES,
                                "rclone does not know the remote %s: make it with 'rclone config', or set config to "
                                "the file that has it (%s)",
                                config->remote, last);
    if (strstr (last, "decrypt config") != NULL)
        return ecfs_http_error (
            EACCES,
            "the configuration of rclone is encrypted: set RCLONE_CONFIG_PASS or "
            "RCLONE_PASSWORD_COMMAND where ecfs is started, or set config to a file that is not (%s)",
            last);
    if (g_str_has_prefix (last, "Error: unknown "))
        return ecfs_http_error (ENOTSUP, "%s is too old: 1.60 or later is needed (%s)", config->program, last);
    return ecfs_http_error (ENOTCONN, "%s has ended: %s", config->program, last);
}
