/*
 * A real sshd for tests: unprivileged or root, on a port of 127.0.0.1 that the kernel picks, with keys made on the spot
 * and a directory of its own. Killed by its process id, with its sessions.
 */
#ifndef TESTS_ENDPOINT_SSHD_FIXTURE_H
#define TESTS_ENDPOINT_SSHD_FIXTURE_H

#include <glib.h>
#include <stdbool.h>

typedef struct Sshd {
    char *dir;         /* of everything below */
    char *root;        /* an empty directory for endpoints */
    char *key;         /* ed25519, authorized */
    char *known_hosts; /* knows the host's ed25519 key */
    char *host_public; /* "ssh-ed25519 AAAA..." */
    char *config;      /* sshd_config */
    char *log;         /* what sshd said */
    unsigned port;
    GPid pid; /* 0: not running */
} Sshd;

/** Starts one, or skips the running test loudly and returns NULL. @extra: lines for its configuration, may be NULL.
 * Where they do not name KexAlgorithms, it is a quick one. */
Sshd *sshd_new (const char *extra);
/** Ends server and sessions as if the machine lost its power. */
void sshd_kill (Sshd *self);
/** Starts it again on the same port. */
void sshd_restart (Sshd *self);
/** Kills it and removes its directory; NULL is accepted. */
void sshd_free (Sshd *self);

/** Makes a key pair with ssh-keygen: @path and @path.pub. */
void sshd_make_key (const char *path, const char *type);
/** The options an endpoint needs: "identity_file=...,known_hosts=...". g_free (). */
char *sshd_options (const Sshd *self);
/** The URL of @path on it. g_free (). */
char *sshd_url (const Sshd *self, const char *path);

#endif
