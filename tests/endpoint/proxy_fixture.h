/* A bad network between an endpoint and its server, on command: tests/lab/proxy.c. It ends with the test. */
#ifndef TESTS_ENDPOINT_PROXY_FIXTURE_H
#define TESTS_ENDPOINT_PROXY_FIXTURE_H

#include <glib.h>
#include <stdio.h>

typedef struct LabProxy {
    GPid pid;
    FILE *to, *from;
    unsigned port; /* where it listens, on 127.0.0.1 */
} LabProxy;

/** Starts one in front of @port of 127.0.0.1. */
LabProxy *lab_proxy_new (unsigned port);
/** Has it do as @command says, which it understands. */
void lab_proxy_tell (LabProxy *self, const char *command);
/** Ends it; NULL is accepted. */
void lab_proxy_free (LabProxy *self);

#endif
