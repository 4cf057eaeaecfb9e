/* A real server of tests/lab/other-server, with a directory, a port and a root of its own. */
#ifndef TESTS_ENDPOINT_OTHER_FIXTURE_H
#define TESTS_ENDPOINT_OTHER_FIXTURE_H

#include <glib.h>

typedef struct Other {
    char *kind; /* as other-server has it */
    char *dir;  /* of everything below */
    char *root; /* what it serves */
    char *log;
    unsigned port;
    GPid pid;
} Other;

/** Starts one, or returns NULL where it is not installed; @ret_why (g_free ()) says what is missing. */
Other *other_new (const char *kind, char **ret_why);
/** Kills it and removes its directory; NULL is accepted. */
void other_free (Other *self);
/** The URL of its root and the options that go with it. g_free (). */
char *other_url (const Other *self);
char *other_options (const Other *self);

#endif
