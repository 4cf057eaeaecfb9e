/* Reads and writes of tests: content, pace, and a record of every callback that checks the rules of the face. */
#ifndef TESTS_ENDPOINT_TRANSFER_H
#define TESTS_ENDPOINT_TRANSFER_H

#include "endpoint/endpoint.h"
#include "util/lock.h"

#define TRANSFER_TIMEOUT_US (60 * G_USEC_PER_SEC)

typedef struct Transfer {
    EcfsMutex lock; /* also held around the begin call, so that callbacks know the stream */
    EcfsCond cond;
    EcfsEndpoint *endpoint;
    EcfsStream *stream;

    /* set before begin */
    size_t chunk;           /* bytes per pull */
    EcfsWorkers *wakers;    /* every other pull answers LATER, and one of these wakes; NULL: never LATER */
    bool hold;              /* answers LATER from the second pull on, until transfer_let_go () */
    bool abort;             /* answers ABORT at the end */
    size_t cancel_at_bytes; /* cancels itself once so much was read or pulled; 0: never */

    /* guarded by lock */
    unsigned n_done;
    int code;                /* errno of the result */
    const char *broken_rule; /* of the face, by a callback; NULL: none */
    size_t moved;            /* bytes pulled or delivered */
    size_t released;
    uint64_t acknowledged;
    bool was_later;
    unsigned n_pulls;

    /* immutable while under way */
    const uint8_t *bytes;
    size_t size;
    EcfsRange ranges[16];
    size_t n_ranges;
    size_t range_index, filled; /* guarded by lock */
} Transfer;

void transfer_init (Transfer *self, EcfsEndpoint *endpoint);
/** Begins to write @bytes, which stay the caller's, as @name. */
void transfer_write (Transfer *self, const char *name, const uint8_t *bytes, size_t size);
/** Begins to read the ranges that were set. */
void transfer_read (Transfer *self, const char *name, unsigned flags);
void transfer_let_go (Transfer *self);
/** Waits until at least @n bytes have moved. */
void transfer_wait_moved (Transfer *self, size_t n);
/** Waits for done, checks the rules, returns the errno of the result; clears. */
int transfer_finish (Transfer *self);

/** @size bytes made from @seed, g_free (). */
uint8_t *test_bytes (size_t size, unsigned seed);

#endif
