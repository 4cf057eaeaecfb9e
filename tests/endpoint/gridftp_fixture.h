/*
 * A real globus-gridftp-server for tests: on a free port of 127.0.0.1, with a certificate authority and a proxy made on
 * the spot and a directory of its own. Who asks is whoever runs the tests, as anonymous or by the proxy.
 */
#ifndef TESTS_ENDPOINT_GRIDFTP_FIXTURE_H
#define TESTS_ENDPOINT_GRIDFTP_FIXTURE_H

#include "proxy_fixture.h"
#include "sshd_fixture.h"

typedef struct Gridftp {
    char *dir;  /* of everything below */
    char *root; /* an empty directory for endpoints */
    char *log;  /* what the server said */
    unsigned port;
    GPid pid; /* 0: not running */
} Gridftp;

/** Starts one; NULL when there is no server on this machine. */
Gridftp *gridftp_new (void);
/** Ends server and sessions as if the machine lost its power. */
void gridftp_kill (Gridftp *self);
/** Starts it again on the same port. */
void gridftp_restart (Gridftp *self);
/** Kills it and removes its directory; NULL is accepted. */
void gridftp_free (Gridftp *self);

/** Runs make-ca with @words (NULL-terminated, without its own name) in the fixture's directory. */
void gridftp_make_ca (const Gridftp *self, const char *const *words);

/** The URL of @path on it. g_free (). */
char *gridftp_url (const Gridftp *self, const char *scheme, const char *host, const char *path);
/** A bad network in front of it, data connections too: at its port of *ret_address, g_free (); @number is 1 or 2. */
LabProxy *gridftp_proxy (const Gridftp *self, unsigned number, char **ret_address);
/** Has an sshd run the server for who logs in; returns the options of sshftp endpoints. g_free (). */
char *gridftp_over_ssh (const Sshd *sshd);
/** The options that a gsiftp endpoint needs to log in. g_free (). */
char *gridftp_options (const Gridftp *self);

#endif
