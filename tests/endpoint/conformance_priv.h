/* What the files of the conformance suite share. */
#ifndef TESTS_ENDPOINT_CONFORMANCE_PRIV_H
#define TESTS_ENDPOINT_CONFORMANCE_PRIV_H

#include "conformance.h"

/* A fresh root with a marker, and an endpoint that expects it. */
typedef struct Fixture {
    const ConformanceRow *row;
    EcfsEndpointSpec *spec;
    char *leaf; /* of the URL */
    char *path; /* of the root here, or NULL */
    EcfsMarker marker;
    EcfsEndpoint *endpoint;
} Fixture;

void conformance_set_up (Fixture *self, gconstpointer row);
void conformance_tear_down (Fixture *self, gconstpointer row);

/** Adds the tests of lines that come and go to those of @row, which has a proxy. */
void conformance_add_network (const ConformanceRow *row);
/** Adds the tests of logs. */
void conformance_add_log (const ConformanceRow *row);

/** What leads to the directory @leaf by the URL and options of @row. */
EcfsEndpointSpec *conformance_spec (const ConformanceRow *row, const char *leaf);
/** Starts an endpoint. */
EcfsEndpoint *conformance_start (const EcfsEndpointSpec *spec, const EcfsMarker *expected);
/** Has an endpoint with these @options too, which give it little patience, in the place of the one that there is. */
void conformance_become_impatient (Fixture *self, const char *options);
/** Fails unless @name is there and is these bytes. */
void conformance_holds (Fixture *self, const char *name, const uint8_t *bytes, size_t size);
/** Polls until @name can be read: nothing tells when an endpoint is up again. */
void conformance_wait_readable (Fixture *self, const char *name);

#endif
