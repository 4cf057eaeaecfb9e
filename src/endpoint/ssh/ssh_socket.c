/* The socket below an SSH session: TCP, or a socket pair to a proxy command. */
#include "endpoint/ssh/ssh_child.h"
#include "endpoint/ssh/ssh_priv.h"
#include "util/io.h"
#include "util/lock.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool ecfs_ssh_wait_fd (const EcfsSshWait *wait, int fd, short events, GError **error)
{
    while (events != 0) {
        int64_t left_us = wait->deadline_us - ecfs_now_us ();
        if (left_us <= 0)
            return ecfs_fail (error, ETIMEDOUT, "no answer in time; check that the server runs and is not overloaded");
        struct pollfd fds[] = {{.fd = fd, .events = events}, {.fd = wait->fd, .events = POLLIN}};
        int n = poll (fds, G_N_ELEMENTS (fds), (int) MIN (left_us / 1000 + 1, 60 * 1000));
        if (n < 0 && errno != EINTR)
            return ecfs_fail_errno (error, errno, "poll");
        if (n > 0 && fds[1].revents != 0 && !wait->check (wait->user, error))
            return false;
        if (n > 0 && fds[0].revents != 0)
            break;
    }
    return true;
}

static int connect_address (const struct addrinfo *address, const EcfsSshWait *wait, GError **error)
{
    ecfs_autofd fd = socket (address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return g_set_error (error, ECFS_ERROR, errno, "socket: %s", g_strerror (errno)), -1;
    int one = 1;
    (void) setsockopt (fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* only slower without */
    if (connect (fd, address->ai_addr, address->ai_addrlen) != 0) {
        if (errno != EINPROGRESS)
            return g_set_error (error, ECFS_ERROR, ENOTCONN, "%s", g_strerror (errno)), -1;
        if (!ecfs_ssh_wait_fd (wait, fd, POLLOUT, error))
            return -1;
        int problem = 0;
        socklen_t size = sizeof problem;
        if (getsockopt (fd, SOL_SOCKET, SO_ERROR, &problem, &size) != 0)
            problem = errno;
        if (problem != 0)
            return g_set_error (error, ECFS_ERROR, ENOTCONN, "%s", g_strerror (problem)), -1;
    }
    return ecfs_steal_fd (&fd);
}

static int connect_tcp (const EcfsSshConfig *config, const EcfsSshWait *wait, GError **error)
{
    g_autofree char *port = g_strdup_printf ("%u", config->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *addresses = NULL;
    int result = getaddrinfo (config->hostname, port, &hints, &addresses);
    if (result != 0)
        return g_set_error (error, ECFS_ERROR, ENOTCONN, "host %s: %s%s", config->hostname, gai_strerror (result),
                            config->without_ssh ? " (there is no ssh program, so aliases of ~/.ssh/config are unknown)"
                                                : "; check the name"),
               -1;
    int fd = -1;
    for (const struct addrinfo *at = addresses; at != NULL && fd < 0; at = at->ai_next) {
        g_clear_error (error);
        fd = connect_address (at, wait, error);
    }
    freeaddrinfo (addresses);
    if (fd < 0)
        g_prefix_error (error, "cannot connect to %s port %u (check that its server runs): ", config->hostname,
                        config->port);
    return fd;
}

/* The words of `ssh -W host:port ... jump`; the last jump host is the one that connects to the server. */
static char **jump_command (const EcfsSshConfig *config)
{
    g_auto (GStrv) hops = g_strsplit (config->proxy_jump, ",", -1);
    guint n_hops = g_strv_length (hops);
    g_autofree char *last = g_strdup (hops[n_hops - 1]);
    bool bracketed = strchr (config->hostname, ':') != NULL;
    g_autofree char *target = g_strdup_printf (bracketed ? "[%s]:%u" : "%s:%u", config->hostname, config->port);
    GPtrArray *argv = g_ptr_array_new ();
    g_ptr_array_add (argv, g_strdup ("ssh"));
    if (config->config_file != NULL) {
        g_ptr_array_add (argv, g_strdup ("-F"));
        g_ptr_array_add (argv, g_strdup (config->config_file));
    }
    g_ptr_array_add (argv, g_strdup ("-oBatchMode=yes"));
    if (n_hops > 1) {
        g_free (hops[n_hops - 1]);
        hops[n_hops - 1] = NULL;
        g_ptr_array_add (argv, g_strdup ("-J"));
        g_ptr_array_add (argv, g_strjoinv (",", hops));
    }
    /* user@host:port is not what ssh takes as its host, but ssh://user@host:port is. */
    g_ptr_array_add (argv, g_strdup ("-W"));
    g_ptr_array_add (argv, g_steal_pointer (&target));
    g_ptr_array_add (argv, g_strdup ("--"));
    g_ptr_array_add (argv, g_strconcat ("ssh://", last, NULL));
    g_ptr_array_add (argv, NULL);
    return (char **) g_ptr_array_free (argv, FALSE);
}

static char **proxy_words (const EcfsSshConfig *config)
{
    if (config->proxy_jump != NULL)
        return jump_command (config);
    char **words = g_new0 (char *, 4);
    words[0] = g_strdup ("/bin/sh");
    words[1] = g_strdup ("-c");
    words[2] = g_strconcat ("exec ", config->proxy_command, NULL);
    return words;
}

static int connect_proxy (const EcfsSshConfig *config, pid_t *ret_pid, GError **error)
{
    g_auto (GStrv) words = proxy_words (config);
    int fd = ecfs_ssh_child_spawn (words, -1, ret_pid, error);
    if (fd < 0)
        g_prefix_error (error, "proxy command: ");
    return fd;
}

int ecfs_ssh_socket_open (const EcfsSshConfig *config, const EcfsSshWait *wait, pid_t *ret_proxy, GError **error)
{
    *ret_proxy = 0;
    if (config->proxy_command != NULL || config->proxy_jump != NULL)
        return connect_proxy (config, ret_proxy, error);
    return connect_tcp (config, wait, error);
}
