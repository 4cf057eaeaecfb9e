/*
 * An endpoint driver for tests whose faults are switched while it serves: faulty:///PATH keeps stored files in a
 * directory, in the shape of the file:// driver, and does to the requests of endpoint NAME what faults_of (NAME) says.
 */
#ifndef TESTS_OBJECT_FAULTY_H
#define TESTS_OBJECT_FAULTY_H

#include <stdatomic.h>

#define FAULTS_NEVER (-1LL)

/* All may be changed at any time by any thread. Errors are errnos; 0 and FAULTS_NEVER: no fault. */
typedef struct Faults {
    atomic_int read_code;         /* reads fail with it … */
    atomic_llong read_fail_after; /* … once they delivered so many bytes */
    atomic_llong read_stall_at;   /* reads stop there until this is changed */
    atomic_bool read_deaf;        /* a stalled read does not notice that it is cancelled */
    atomic_int write_code;        /* writes fail with it … */
    atomic_llong write_fail_after;
    atomic_llong write_stall_at; /* writes stop there until this is changed */
    atomic_int commit_code;      /* writes fail with it at their end */
    atomic_bool owes;            /* the stall clock runs while a request is there; a stalled write hears no cancel */
    atomic_llong pace_us;        /* pause between pieces of 32 KiB */
    atomic_uint n_reads;         /* begun so far */
    atomic_uint n_writes;
} Faults;

/** The faults of the endpoint @name, all off at first; lives for good. */
Faults *faults_of (const char *name);

void faults_reset (Faults *self);

/** Makes the scheme known; before any endpoint is made. */
void faulty_register (void);

#endif
