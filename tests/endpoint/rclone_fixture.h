/*
 * Remotes of rclone for tests: "disk", a directory; "box", a real sshd; "bucket", tests/lab/s3-server; each where what
 * it needs is there, in a configuration file of its own.
 */
#ifndef TESTS_ENDPOINT_RCLONE_FIXTURE_H
#define TESTS_ENDPOINT_RCLONE_FIXTURE_H

#include "proxy_fixture.h"
#include "s3_fixture.h"
#include "sshd_fixture.h"

typedef struct Rclone {
    char *dir;    /* of everything below */
    char *config; /* of rclone */
    char *disk;   /* an empty directory */
    Sshd *sshd;   /* NULL: there is none */
    S3 *s3;       /* likewise */
} Rclone;

/** Makes them, or returns NULL where there is no rclone. */
Rclone *rclone_new (void);
/** Removes them; NULL is accepted. */
void rclone_free (Rclone *self);
/** Adds a remote @name that reaches the sshd at @port, which it is known for as well. */
void rclone_add_box (Rclone *self, const char *name, unsigned port);
/** Adds a remote @name that reaches the S3 server at @port. */
void rclone_add_bucket (Rclone *self, const char *name, unsigned port);
/** The options of an endpoint; g_free (). */
char *rclone_options (const Rclone *self);

#endif
