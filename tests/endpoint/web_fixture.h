/*
 * A real nginx or Apache httpd with WebDAV for tests, on a port of 127.0.0.1 that the kernel picks, with a root, and
 * where it is wanted a certificate of an authority, of its own. Killed by its process id.
 */
#ifndef TESTS_ENDPOINT_WEB_FIXTURE_H
#define TESTS_ENDPOINT_WEB_FIXTURE_H

#include <glib.h>
#include <stdbool.h>

typedef struct Web {
    char *kind;     /* nginx, apache */
    char *features; /* of tests/lab/web-server, with spaces between */
    char *dir;      /* of everything below */
    char *root;     /* what it serves */
    char *ca;       /* where it has tls: the authority's certificate */
    unsigned port;
    GPid pid; /* 0: not running */
} Web;

/** Starts one, or returns NULL where the server is not installed; @why says which. */
Web *web_new (const char *kind, const char *features, const char **why);
/** Ends the server as if the machine lost its power. */
void web_kill (Web *self);
/** Starts it again on the same port. */
void web_start (Web *self);
/** Kills it and removes its directory; NULL is accepted. */
void web_free (Web *self);
/** The URL of its root, "dav" or "davs". g_free (). */
char *web_url (const Web *self, unsigned port);

#endif
