/*
 * What every endpoint must do, whatever its protocol. A newcomer adds a row and passes unchanged.
 */
#ifndef TESTS_ENDPOINT_CONFORMANCE_H
#define TESTS_ENDPOINT_CONFORMANCE_H

#include "endpoint/endpoint.h"
#include "proxy_fixture.h"

typedef struct ConformanceRow {
    char *name;
    char *url;       /* of a directory in which each test has a root of its own */
    char *options;   /* NULL: none */
    char *path;      /* the same directory here, for the tests that damage things behind the endpoint's back */
    bool is_nested;  /* there is an endpoint inside that asks for no marker: it may make directories anywhere */
    bool is_sure;    /* it finds out with each commit whether its root is there */
    bool vanishes;   /* a directory is there no longer than what is in it */
    bool logs;       /* it keeps logs */
    bool only_logs;  /* only tests of these; and on its line nothing is cut before they begin */
    bool brief;      /* another row has the same driver: only tests that see how this one transfers */
    LabProxy *proxy; /* that the URL leads through; NULL: straight */
} ConformanceRow;

/** Begins a program of these tests. */
void conformance_init (int *argc, char ***argv);
/**
 * Adds all tests for @row, and takes what it points to. With a proxy it is on a line that comes and goes: bytes come in
 * gusts, each test finds its connections cut, and there are tests for lines that are cut and stand still amid
 * transfers.
 */
void conformance_add (ConformanceRow row);
/** Says that there is no row @name here. */
void conformance_lacks (const char *name, const char *why);
/** Runs the tests of all rows, or skips the program and says @why it has none. Returns its exit status. */
int conformance_run (const char *why);

#endif
