/* Endpoints in temporary directories, objects written to them, and blocking reads: what writer and reader tests share.
 */
#ifndef TESTS_OBJECT_STORE_H
#define TESTS_OBJECT_STORE_H

#include "faulty.h"
#include "object/reader.h"
#include "object/writer.h"

#define STORE_MAX_ENDPOINTS 32
#define STORE_DEADLINE_US   (60 * G_USEC_PER_SEC)

/* n endpoints for the stripes of a code, and spares behind them; endpoint i is named "ei". */
typedef struct Store {
    char *base;
    EcfsUuid archive;
    EcfsCodec *codec;
    EcfsTransferPool *transfer;
    EcfsReadLog *log; /* of all readers */
    EcfsCache *cache; /* that readers use; of the test; NULL: none */
    unsigned n;       /* stripes */
    unsigned n_endpoints;
    EcfsEndpoint *endpoints[STORE_MAX_ENDPOINTS];
    Faults *faults[STORE_MAX_ENDPOINTS];
} Store;

/* An object and the job that writes it. */
typedef struct Object {
    Store *store;
    uint8_t *content;
    uint64_t size;
    EcfsWriterJob job;
    EcfsWriterTarget targets[ECFS_CODEC_MAX_N];
    EcfsWriterResult result; /* valid after object_write () returned 0 */
    EcfsLayout layout;       /* the same */
    unsigned n_spares_used;
    bool no_spares;
    unsigned least; /* stripes that `possible` asks for */
} Object;

/** Starts everything; @scheme is "file" or "faulty". Aborts the test program when a test takes too long. */
void store_init (Store *self, const char *scheme, const char *code, unsigned n_spares, uint64_t memory_bytes);
void store_clear (Store *self);
/** Bytes that were read of stripes at all endpoints so far. */
uint64_t store_bytes_read (const Store *self);

/** @size random bytes, to be written in segments of @segment_bytes to endpoints 0 to n-1; spares replace. */
void object_init (Object *self, Store *store, uint64_t size, uint32_t segment_bytes);
void object_clear (Object *self);

/** Before it is written: it is stored under a key of @ring. */
void object_seal (Object *self, const EcfsKeyRing *ring, EcfsSealKind kind);
/** Writes it; 0 or the errno, with the text in @ret_text (may be NULL, g_free ()). */
int object_write (Object *self, char **ret_text);

/** The path of a stripe's file. */
char *object_stripe_path (const Object *self, unsigned index);
unsigned object_n_stored (const Object *self);

/** Of a reader of all its stripes; nothing is to be freed. @ret_stripes: ECFS_CODEC_MAX_N, which the params point to.
 */
void object_reader_params (const Object *self, EcfsReaderStripe *ret_stripes, EcfsReaderParams *ret_params);
EcfsReader *object_reader (const Object *self);

/** Reads and compares with the content; 0 or the errno. Fails the test at wrong bytes and after the deadline. */
int object_read (const Object *self, EcfsReader *reader, uint64_t offset, size_t size, char **ret_text);

/** A read under way. */
typedef struct Reading Reading;
Reading *reading_begin (const Object *object, EcfsReader *reader, uint64_t offset, size_t size);
/** The same; what is read stays borrowed until reading_finish (), which looks at it again. */
Reading *reading_borrow (const Object *object, EcfsReader *reader, uint64_t offset, size_t size);
/** Waits, checks, frees. */
int reading_finish (Reading *self, char **ret_text);

#endif
