/*
 * What every endpoint must do, whatever its protocol. A newcomer adds a row and passes unchanged.
 */
#ifndef TESTS_ENDPOINT_CONFORMANCE_H
#define TESTS_ENDPOINT_CONFORMANCE_H

#include "endpoint/endpoint.h"

typedef struct ConformanceRow {
    char *name;
    char *url;      /* of a directory in which each test has a root of its own */
    char *options;  /* NULL: none */
    char *path;     /* the same directory here, for the tests that damage things behind the endpoint's back */
    bool is_nested; /* there is an endpoint inside that asks for no marker: it may make directories anywhere */
    bool is_sure;   /* it finds out with each commit whether its root is there */
    bool brief;     /* another row has the same driver: only tests that see how this one transfers */
    void (*unsettle) (const struct ConformanceRow *row); /* called when a test's endpoint is connected; NULL: nothing */
    struct LabProxy *proxy;                              /* that the URL leads through; NULL: straight */
} ConformanceRow;

/** Adds all tests for @row, which is borrowed until the tests have run. */
void conformance_add (const ConformanceRow *row);
/**
 * Adds all tests for @row, whose URL leads through its proxy, on a line that comes and goes: bytes come in gusts, each
 * test finds its connections cut, and there are tests for lines that are cut and stand still amid transfers.
 */
void conformance_add_network (ConformanceRow *row);

#endif
