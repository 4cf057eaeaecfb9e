/* What the files of the libssh2 transport share: ssh_libssh2.c (stream), ssh_auth.c, ssh_socket.c. */
#ifndef ECFS_ENDPOINT_SSH_SSH_PRIV_H
#define ECFS_ENDPOINT_SSH_SSH_PRIV_H

#include "endpoint/ssh/ssh_transport.h"

#include <libssh2.h>

/*
 * libssh2 must be called again with the very same bytes after a send that would block, and nothing else may be sent
 * between. It never gets there here: what it sends goes to @out, which always has room, and write () stops at a mark.
 * What it receives comes from @in, so that one system call serves many of its small reads.
 */
typedef struct EcfsSsh {
    EcfsSshTransport base;
    LIBSSH2_SESSION *session;
    LIBSSH2_CHANNEL *channel;
    int fd;
    pid_t proxy_pid; /* 0: none */

    uint8_t *in; /* received, not yet taken by libssh2 */
    size_t in_at, in_end;
    size_t in_budget; /* bytes that libssh2 may still take before it has to return */
    GByteArray *out;  /* sent by libssh2, not yet by the kernel */
    size_t out_at;
    /* Whatever libssh2 is called for, it takes everything that has come: */
    bool unread;        /* a write may have taken data */
    bool window_closed; /* the last write found no room in the channel's window */
    bool unwritten;     /* a read may have opened it */
    bool dead;          /* nothing is sent or received any more */
    char *problem;

    /* while it is being opened */
    const EcfsSshConfig *config;
    EcfsSshWait wait;
    char *password;
} EcfsSsh;

/** A connected, non-blocking socket to the server, through a proxy when the configuration says so; -1 on failure. */
int ecfs_ssh_socket_open (const EcfsSshConfig *config, const EcfsSshWait *wait, pid_t *ret_proxy, GError **error);

/** Sends what is in the way and waits until libssh2 can go on. For use after LIBSSH2_ERROR_EAGAIN while opening. */
bool ecfs_ssh_wait (EcfsSsh *self, GError **error);

/** The text of libssh2's last error; borrowed until the next call on the session. */
const char *ecfs_ssh_last_error (const EcfsSsh *self);

/** Whether this libssh2 can only sign with SHA-1 when the key is an RSA key (before 1.11). */
bool ecfs_ssh_rsa_is_old (void);

/** Authenticates with what the configuration offers; EACCES tells what was tried and what to do. */
bool ecfs_ssh_authenticate (EcfsSsh *self, GError **error);

#endif
