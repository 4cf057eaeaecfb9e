/*
 * An S3 server for tests, tests/lab/s3-server, which verifies each signature by botocore. It keeps objects as files
 * below its root, on a port of 127.0.0.1 that the kernel picks. Killed by its process id.
 */
#ifndef TESTS_ENDPOINT_S3_FIXTURE_H
#define TESTS_ENDPOINT_S3_FIXTURE_H

#include <glib.h>
#include <stdbool.h>

typedef struct S3 {
    char *features; /* of tests/lab/s3-server, with spaces between */
    char *dir;      /* of everything below */
    char *root;     /* buckets are the directories in it */
    char *log;
    char *ca; /* where it has tls: the authority's certificate */
    unsigned port;
    GPid pid;
} S3;

/** Starts one, or returns NULL where that cannot be; @why says why. */
S3 *s3_new (const char *features, const char **why);
/** The same of a server of somebody else's, versitygw over a file system: it knows no features and counts nothing. */
S3 *s3_new_gateway (const char **why);
/** Kills it and removes its directory; NULL is accepted. */
void s3_free (S3 *self);
/** The options of an endpoint that reaches it at @port; g_free (). */
char *s3_options (const S3 *self, unsigned port);
/** Switches a feature on or off. */
void s3_set (const S3 *self, const char *feature, bool on);
/** How many requests of @kind (put, part, head, ...; NULL: all) it has had. */
unsigned s3_count (const S3 *self, const char *kind);

#endif
