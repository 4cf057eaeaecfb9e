/* Logs of tests: content, pace, and a record of every callback that checks the rules of the face. */
#ifndef TESTS_ENDPOINT_APPENDER_H
#define TESTS_ENDPOINT_APPENDER_H

#include "endpoint/endpoint.h"
#include "util/lock.h"

typedef struct Appender {
    EcfsMutex lock; /* also held around the begin call, so that callbacks know the stream */
    EcfsCond cond;
    EcfsStream *stream;
    size_t chunk; /* of pulls, at most; set before begin */

    /* guarded by lock */
    uint64_t given; /* so much may be pulled, … */
    EcfsPull then;  /* … and then this is answered */
    uint64_t pulled, released, acknowledged;
    bool waits;       /* it answered LATER last */
    unsigned n_flows; /* acknowledgements */
    unsigned n_done;
    int code;                /* errno of the result */
    char *text;              /* of the error */
    const char *broken_rule; /* of the face, by a callback; NULL: none */
} Appender;

/** The byte of every log at @offset. */
uint8_t appender_byte (uint64_t offset);

void appender_init (Appender *self);
/** Begins a log with nothing in it. */
void appender_begin (Appender *self, EcfsEndpoint *endpoint, const char *name);
/** Gives @size bytes more, at once, and does not wait for them. */
void appender_give (Appender *self, uint64_t size);
/** The same, and then waits until all that was given is durable. False: the log has ended. */
bool appender_append (Appender *self, uint64_t size);
/** Waits until @n bytes are durable. False: the log has ended. */
bool appender_wait (Appender *self, uint64_t n);
/** Waits until its source was asked, and had nothing. False: the log has ended. */
bool appender_wait_begun (Appender *self);
uint64_t appender_durable (Appender *self);
bool appender_is_done (Appender *self);
/** What follows what was given: END or ABORT. */
void appender_end (Appender *self, EcfsPull then);
/** Waits for done, checks the rules, returns the errno of the result; clears. */
int appender_finish (Appender *self);

/** Fails unless the file at @path is a prefix of what was given, at least all that is durable; but behind that, where
 * it is @torn, there may be holes. Returns its size. */
uint64_t appender_check_file (Appender *self, const char *path, bool torn);

#endif
