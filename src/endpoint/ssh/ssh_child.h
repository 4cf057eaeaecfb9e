/* Programs at the other end of a socket: a proxy command, ssh itself, or a helper. */
#ifndef ECFS_ENDPOINT_SSH_SSH_CHILD_H
#define ECFS_ENDPOINT_SSH_SSH_CHILD_H

#include <glib.h>
#include <stdbool.h>
#include <sys/types.h>

/**
 * Runs @words (found in PATH) with a socket for its input and output, and @errors for its stderr (-1: our log). Returns
 * our end of the socket, non-blocking, to be closed by the caller, with the process in *ret_pid for
 * ecfs_ssh_child_end (); or -1 and ENOTCONN.
 */
int ecfs_ssh_child_spawn (char *const *words, int errors, pid_t *ret_pid, GError **error);

#define ECFS_SSH_CHILD_MEMORY_FD 3

/** The same with an environment of its own and, as its descriptor ECFS_SSH_CHILD_MEMORY_FD, @memory (-1: none). */
int ecfs_ssh_child_spawn_with (char *const *words, char *const *environment, int errors, int memory, pid_t *ret_pid,
                               GError **error);

/** The same with @its_end, which stays the caller's, for its input and output. False and ENOTCONN. */
bool ecfs_ssh_child_spawn_on (char *const *words, char *const *environment, int its_end, int errors, pid_t *ret_pid,
                              GError **error);

/** Ends and reaps a program whose socket has been closed; a stubborn one is killed. 0 is accepted. */
void ecfs_ssh_child_end (pid_t pid);

#endif
