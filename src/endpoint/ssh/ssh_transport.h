/*
 * An SSH transport is a byte stream to a server's "sftp" subsystem: what comes from it are SFTP packets. Two
 * implementations live: libssh2 (ssh_libssh2.c) and the ssh program (ssh_openssh.c). It never blocks once it is open
 * and belongs to one thread at a time, but see only_writes.
 */
#ifndef ECFS_ENDPOINT_SSH_SSH_TRANSPORT_H
#define ECFS_ENDPOINT_SSH_SSH_TRANSPORT_H

#include "endpoint/ssh/ssh_config.h"
#include "util/error.h"

#include <sys/types.h>

typedef struct EcfsSshTransport EcfsSshTransport;

typedef struct EcfsSshTransportOps {
    const char *name; /* as in the option "transport" */
    /* write () leaves on poll ()'s descriptor whatever has come, so that another thread may call it while one waits
     * there. */
    bool only_writes;

    /* Up to @size bytes that have come. 0: the server closed the stream; -EAGAIN: nothing now; else -errno for good. */
    ssize_t (*read) (EcfsSshTransport *self, void *to, size_t size);

    /* Takes some of @size bytes, which are the caller's again after it returns. -EAGAIN: no room now; else -errno. */
    ssize_t (*write) (EcfsSshTransport *self, const void *from, size_t size);

    /* Hands what write () took to the kernel as far as it goes. Once per turn of the event loop, before poll ().
     * Returns 0 or -errno. */
    int (*flush) (EcfsSshTransport *self);

    /* The descriptor to wait for, with the events to wait for in *ret_events; events 0: do not wait, read () has more.
     */
    int (*poll) (EcfsSshTransport *self, short *ret_events);

    /* What the last -errno was about, a sentence part; valid until the next call on self. */
    const char *(*problem) (EcfsSshTransport *self);

    /* Ends the stream, releases all; does not wait for the server. */
    void (*free) (EcfsSshTransport *self);
} EcfsSshTransportOps;

/* Implementations begin with this. */
struct EcfsSshTransport {
    const EcfsSshTransportOps *ops;
};

/* How long opening may wait, and what may end it early. */
typedef struct EcfsSshWait {
    int64_t deadline_us;                        /* monotonic */
    int fd;                                     /* when it is readable, @check is asked; -1: never */
    bool (*check) (void *user, GError **error); /* false: give up with this error */
    void *user;
} EcfsSshWait;

/**
 * Connects, checks the host's key, authenticates and starts the subsystem; blocks until then. Gives up with ETIMEDOUT
 * at the deadline. Other codes: ENOTCONN unreachable, EACCES unknown or wrong host key or no way to authenticate,
 * EPROTO. The text says what to do.
 */
EcfsSshTransport *ecfs_ssh_libssh2_open (const EcfsSshConfig *config, const EcfsSshWait *wait, GError **error);

/** Connects and checks the host's key, no more: nothing of the user is shown. The same codes. */
bool ecfs_ssh_libssh2_look (const EcfsSshConfig *config, const EcfsSshWait *wait, GError **error);

/**
 * Starts the ssh program, which does all of that by itself, with no questions asked; it is found out by speaking SFTP
 * whether it succeeds. ENOTCONN when it cannot be run, EINVAL where a file name cannot be told to it.
 */
EcfsSshTransport *ecfs_ssh_openssh_open (const EcfsSshRequest *request, GError **error);

/** The same for a command line that the login shell of the other side runs, and its stdin and stdout. */
EcfsSshTransport *ecfs_ssh_openssh_run (const EcfsSshRequest *request, const char *remote, GError **error);

/** Waits for @events (0: returns at once) on @fd as long as @wait allows. */
bool ecfs_ssh_wait_fd (const EcfsSshWait *wait, int fd, short events, GError **error);

/** Ends it; NULL is accepted. */
void ecfs_ssh_transport_free (EcfsSshTransport *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsSshTransport, ecfs_ssh_transport_free)

/**
 * The words of the ssh program that runs @command at the server, or (NULL) the subsystem sftp; g_strfreev (). Nothing
 * is asked of the user, and only known hosts are talked to. EINVAL where ssh does not take a file name.
 */
char **ecfs_ssh_openssh_words (const EcfsSshRequest *request, const char *command, GError **error);

#endif
