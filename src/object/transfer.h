/*
 * What all writers and readers of a process share: one bound on the memory for segments, warm buffers, worker threads
 * for coding, and a tick for deadlines.
 *
 * Memory is granted per whole segment in the order of asking; one grant is always possible, however large. Buffers that
 * are given back stay mapped within the bound, because fresh pages cost more than the coding that fills them.
 *
 * Life cycle: new → start (threads) → stop → free. All functions are thread-safe.
 */
#ifndef ECFS_OBJECT_TRANSFER_H
#define ECFS_OBJECT_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct EcfsTransferPool EcfsTransferPool;

EcfsTransferPool *ecfs_transfer_new (uint64_t memory_bytes);
void ecfs_transfer_start (EcfsTransferPool *self);
/** Ends the threads after the jobs that are queued. Writers and readers must be gone or idle. Idempotent. */
void ecfs_transfer_stop (EcfsTransferPool *self);
void ecfs_transfer_free (EcfsTransferPool *self);

/** Runs job (data) on a worker thread soon. */
void ecfs_transfer_run (EcfsTransferPool *self, void (*job) (void *data), void *data);

/**
 * Asks for @bytes of memory. True: granted. False: granted () is called later, once, from a worker thread. Give it back
 * with ecfs_transfer_release () either way.
 */
bool ecfs_transfer_acquire (EcfsTransferPool *self, size_t bytes, void (*granted) (void *user), void *user);
void ecfs_transfer_release (EcfsTransferPool *self, size_t bytes);

/** Takes @bytes only when they are free now and nobody waits: for what may as well not be done, such as readahead. */
bool ecfs_transfer_try_acquire (EcfsTransferPool *self, size_t bytes);

/** A buffer of @size bytes with any content, within a grant of the caller's. */
uint8_t *ecfs_transfer_buffer_take (EcfsTransferPool *self, size_t size);
/** Gives it back; NULL is accepted. */
void ecfs_transfer_buffer_give (EcfsTransferPool *self, uint8_t *buffer, size_t size);

uint64_t ecfs_transfer_memory (const EcfsTransferPool *self);

#define ECFS_TICK_US 20000

/* Something that wants a call every ECFS_TICK_US. */
typedef struct EcfsTicking {
    /* pressure: somebody waits for memory, so give back what is held in advance. Called without locks. */
    void (*tick) (void *user, int64_t now_us, bool pressure);
    /* Takes a reference unless the count is zero already; so a last unref elsewhere may race with a tick. */
    bool (*try_ref) (void *user);
    void (*unref) (void *user);
    void *user;
} EcfsTicking;

void ecfs_transfer_add_ticking (EcfsTransferPool *self, const EcfsTicking *ticking);
/** By its user pointer; afterwards try_ref is not called any more. */
void ecfs_transfer_remove_ticking (EcfsTransferPool *self, void *user);

#endif
