/* What fixtures with real servers have in common: ports, processes that end with the test, programs that must succeed.
 */
#ifndef TESTS_ENDPOINT_SERVER_H
#define TESTS_ENDPOINT_SERVER_H

#include <glib.h>
#include <stdbool.h>

/** Runs a program, whose failure is the test's. */
void server_run (const char *const *argv);

/**
 * Starts a server and waits until @port answers. Its output is appended to @log; @environment (NULL: ours) is its own.
 * It ends with the test. 0: it has ended, most likely since somebody else has the port.
 */
GPid server_spawn (const char *const *argv, char **environment, const char *log, unsigned port);

/** Calls @start_on with @port, or where that is 0 with free ones, until it succeeds. False: it does not. */
bool server_start (bool (*start_on) (void *data, unsigned port), void *data, unsigned port);

/** Fails the test with what the log says. */
void server_fail_start (const char *program, const char *log);

/** Ends a process and all below it, which may have left its process group, as if the machine lost its power. */
void server_kill (GPid pid);

#endif
