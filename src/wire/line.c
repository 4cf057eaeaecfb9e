/* Lines of JSON on the control socket, and descriptors beside them. */
#include "wire/wire.h"

#include "archive/common.h"
#include "util/io.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_DEPTH 16 /* of nested JSON */
#define FDS_MAX   16 /* in one message */

#define CONNECT_TIMEOUT_S 10

/* Lines */

void ecfs_lines_init (EcfsLines *self, int fd)
{
    *self = (EcfsLines){.fd = fd, .received = g_string_new (NULL), .fds = G_QUEUE_INIT};
}

void ecfs_lines_clear (EcfsLines *self)
{
    int fd;
    while ((fd = ecfs_lines_take_fd (self)) >= 0)
        (void) close (fd);   /* never used */
    (void) close (self->fd); /* nothing unsent: a socket sends what it took */
    g_string_free (self->received, TRUE);
}

static ssize_t send_part (int fd, const char *bytes, size_t size, int passed)
{
    struct iovec part = {.iov_base = (char *) bytes, .iov_len = size};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE (sizeof passed)];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (passed >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        control.header =
            (struct cmsghdr){.cmsg_len = CMSG_LEN (sizeof passed), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy (CMSG_DATA (&control.header), &passed, sizeof passed);
    }
    return sendmsg (fd, &message, MSG_NOSIGNAL);
}

bool ecfs_lines_send (EcfsLines *self, const char *text, int fd, GError **error)
{
    g_autofree char *line = g_strconcat (text, "\n", NULL);
    size_t size = strlen (line);
    for (size_t sent = 0; sent < size;) {
        ssize_t put = send_part (self->fd, line + sent, size - sent, sent == 0 ? fd : -1);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return ecfs_fail_errno (error, errno, "control socket");
        sent += (size_t) put;
    }
    return true;
}

bool ecfs_lines_send_object (EcfsLines *self, JsonObject *object, int fd, GError **error)
{
    g_autoptr (JsonNode) node = json_node_init_object (json_node_alloc (), object);
    g_autofree char *text = json_to_string (node, FALSE);
    return ecfs_lines_send (self, text, fd, error);
}

static void take_fds (EcfsLines *self, struct msghdr *message)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR (message); header != NULL; header = CMSG_NXTHDR (message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n_fds = (header->cmsg_len - CMSG_LEN (0)) / sizeof (int);
        for (size_t i = 0; i < n_fds; i++) {
            int fd;
            memcpy (&fd, CMSG_DATA (header) + i * sizeof fd, sizeof fd);
            g_queue_push_tail (&self->fds, GINT_TO_POINTER (fd));
        }
    }
}

bool ecfs_lines_receive (EcfsLines *self, size_t max_size, GError **error)
{
    char part[4096];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE (FDS_MAX * sizeof (int))];
    } control;
    struct iovec to = {.iov_base = part, .iov_len = sizeof part};
    struct msghdr message = {
        .msg_iov = &to, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got;
    do
        got = recvmsg (self->fd, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return ecfs_fail (error, EPROTO, "control socket: the other side hung up");
    take_fds (self, &message);
    g_string_append_len (self->received, part, got);
    return self->received->len <= max_size || memchr (self->received->str, '\n', self->received->len) != NULL ||
           ecfs_fail (error, EPROTO, "control socket: a line of more than %zu bytes", max_size);
}

char *ecfs_lines_take (EcfsLines *self)
{
    const char *end = memchr (self->received->str, '\n', self->received->len);
    if (end == NULL)
        return NULL;
    size_t size = (size_t) (end - self->received->str);
    char *line = g_strndup (self->received->str, size);
    g_string_erase (self->received, 0, (gssize) size + 1);
    return line;
}

int ecfs_lines_take_fd (EcfsLines *self)
{
    return g_queue_is_empty (&self->fds) ? -1 : GPOINTER_TO_INT (g_queue_pop_head (&self->fds));
}

char *ecfs_lines_wait (EcfsLines *self, size_t max_size, int timeout_ms, GError **error)
{
    for (;;) {
        char *line = ecfs_lines_take (self);
        if (line != NULL)
            return line;
        struct pollfd wait = {.fd = self->fd, .events = POLLIN};
        int ready = poll (&wait, 1, timeout_ms);
        if (ready < 0 && errno == EINTR)
            continue;
        bool good = ready > 0 || ecfs_fail (error, ETIMEDOUT, "control socket: the other side says nothing");
        if (!good || !ecfs_lines_receive (self, max_size, error))
            return NULL;
    }
}

/* JSON */

/* The parser recurses. */
static bool is_shallow (const char *text)
{
    unsigned depth = 0;
    bool quoted = false;
    for (const char *c = text; *c != '\0'; c++) {
        if (quoted && *c == '\\' && c[1] != '\0')
            c++;
        else if (*c == '"')
            quoted = !quoted;
        else if (!quoted && (*c == '[' || *c == '{') && ++depth > MAX_DEPTH)
            return false;
        else if (!quoted && (*c == ']' || *c == '}') && depth > 0)
            depth--;
    }
    return true;
}

JsonNode *ecfs_control_parse (const char *text, GError **error)
{
    g_autoptr (JsonParser) parser = json_parser_new_immutable ();
    g_autoptr (GError) local = NULL;
    if (!is_shallow (text) || !json_parser_load_from_data (parser, text, -1, &local)) {
        g_set_error (error, ECFS_ERROR, EPROTO, "control socket: not JSON: %s",
                     local != NULL ? local->message : "nested too deeply");
        return NULL;
    }
    JsonNode *root = json_parser_get_root (parser);
    if (root == NULL || !JSON_NODE_HOLDS_OBJECT (root)) {
        g_set_error_literal (error, ECFS_ERROR, EPROTO, "control socket: not a JSON object");
        return NULL;
    }
    return json_node_ref (root);
}

char *ecfs_control_escape (const char *bytes)
{
    return g_uri_escape_string (bytes, "/", TRUE);
}

char *ecfs_control_unescape (const char *text)
{
    return g_uri_unescape_string (text, NULL);
}

static JsonNode *value_of (JsonObject *object, const char *member, GType type)
{
    JsonNode *node = json_object_get_member (object, member);
    return node != NULL && JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == type ? node : NULL;
}

const char *ecfs_control_text (JsonObject *object, const char *member)
{
    JsonNode *node = value_of (object, member, G_TYPE_STRING);
    return node == NULL ? NULL : json_node_get_string (node);
}

int64_t ecfs_control_number (JsonObject *object, const char *member)
{
    JsonNode *node = value_of (object, member, G_TYPE_INT64);
    return node == NULL ? 0 : json_node_get_int (node);
}

bool ecfs_control_flag (JsonObject *object, const char *member)
{
    JsonNode *node = value_of (object, member, G_TYPE_BOOLEAN);
    return node != NULL && json_node_get_boolean (node);
}

void ecfs_control_put_error (JsonObject *reply, const GError *error)
{
    g_autofree char *text = g_utf8_make_valid (error->message, -1);
    json_object_set_string_member (reply, "error", text);
    json_object_set_int_member (reply, "errno", ecfs_errno (error));
}

void ecfs_control_put_end (JsonObject *reply, const GError *error)
{
    if (error == NULL)
        json_object_set_boolean_member (reply, "ok", TRUE);
    else
        ecfs_control_put_error (reply, error);
}

bool ecfs_control_check (JsonObject *reply, GError **error)
{
    const char *text = ecfs_control_text (reply, "error");
    if (text == NULL && !json_object_has_member (reply, "errno"))
        return true;
    int64_t code = ecfs_control_number (reply, "errno");
    return ecfs_fail (error, code > 0 && code < 4096 ? (int) code : EIO, "%s",
                      text != NULL ? text : "the mount gave no reason");
}

/* Attributes */

static int64_t ns_of (struct timespec time)
{
    return (int64_t) time.tv_sec * 1000000000 + time.tv_nsec;
}

void ecfs_control_put_attributes (JsonObject *object, const struct stat *st)
{
    json_object_set_int_member (object, "mode", st->st_mode);
    json_object_set_int_member (object, "uid", st->st_uid);
    json_object_set_int_member (object, "gid", st->st_gid);
    json_object_set_int_member (object, "size", st->st_size);
    json_object_set_int_member (object, "rdev", (int64_t) st->st_rdev);
    json_object_set_int_member (object, "atime_ns", ns_of (st->st_atim));
    json_object_set_int_member (object, "mtime_ns", ns_of (st->st_mtim));
}

void ecfs_control_get_attributes (JsonObject *object, struct stat *ret_st)
{
    *ret_st = (struct stat){.st_mode = (mode_t) ecfs_control_number (object, "mode"),
                            .st_uid = (uid_t) ecfs_control_number (object, "uid"),
                            .st_gid = (gid_t) ecfs_control_number (object, "gid"),
                            .st_size = ecfs_control_number (object, "size"),
                            .st_rdev = (dev_t) ecfs_control_number (object, "rdev"),
                            .st_atim = ecfs_timespec (ecfs_control_number (object, "atime_ns")),
                            .st_mtim = ecfs_timespec (ecfs_control_number (object, "mtime_ns"))};
}

/* The socket */

/* Socket addresses hold 108 bytes; a directory's path may be longer. */
static struct sockaddr_un address_in (int dir_fd, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    g_snprintf (address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", dir_fd, name);
    return address;
}

int ecfs_control_listen (int dir_fd, const char *name, int backlog, GError **error)
{
    struct sockaddr_un address = address_in (dir_fd, name);
    (void) unlinkat (dir_fd, name, 0); /* of a dead mount, or none */
    ecfs_autofd fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && fchmod (fd, 0600) == 0 &&
                bind (fd, (const struct sockaddr *) &address, sizeof address) == 0 &&
                fchmodat (dir_fd, name, 0600, 0) == 0 && listen (fd, backlog) == 0;
    good = good || ecfs_fail_errno (error, errno, "%s: cannot listen on it", name);
    return good ? ecfs_steal_fd (&fd) : -1;
}

/* Root speaks to anybody's mount, as umount(8) does when the machine goes down: to its owner's, that is. */
static bool check_socket (int dir_fd, const char *archive_dir, const char *name, GError **error)
{
    struct stat socket_status, directory;
    if (fstatat (dir_fd, name, &socket_status, AT_SYMLINK_NOFOLLOW) != 0 || fstat (dir_fd, &directory) != 0)
        return true; /* connect () tells what it is that is not there */
    g_autofree char *path = g_build_filename (archive_dir, name, NULL);
    if (S_ISLNK (socket_status.st_mode) || geteuid () != 0 || socket_status.st_uid != directory.st_uid)
        return ecfs_archive_check_owner (path, &socket_status, error);
    return true;
}

/* Waits for a place among those that a mount is to let in, but not for ever. */
static bool join (int fd, const struct sockaddr_un *address)
{
    const struct timeval patience = {.tv_sec = CONNECT_TIMEOUT_S}, endless = {0};
    return setsockopt (fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
           connect (fd, (const struct sockaddr *) address, sizeof *address) == 0 &&
           setsockopt (fd, SOL_SOCKET, SO_SNDTIMEO, &endless, sizeof endless) == 0;
}

static int connect_to (const char *archive_dir, const char *name, GError **error)
{
    ecfs_autofd dir_fd = open (archive_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return ecfs_fail_errno (error, errno, "%s", archive_dir) - 1;
    if (!check_socket (dir_fd, archive_dir, name, error))
        return -1;
    struct sockaddr_un address = address_in (dir_fd, name);
    ecfs_autofd fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && join (fd, &address))
        return ecfs_steal_fd (&fd);
    int code = errno == EAGAIN ? ETIMEDOUT : errno;
    bool absent = code == ENOENT || code == ECONNREFUSED;
    return (absent ? ecfs_fail (error, ENOTCONN, "%s is not mounted", archive_dir)
                   : ecfs_fail_errno (error, code, "%s/%s", archive_dir, name)) -
           1;
}

int ecfs_control_connect (const char *archive_dir, GError **error)
{
    return connect_to (archive_dir, ECFS_CONTROL_SOCKET, error);
}

int ecfs_control_connect_reader (const char *archive_dir, GError **error)
{
    return connect_to (archive_dir, ECFS_READER_SOCKET, error);
}
