/*
 * Repair is a reader plugged into a writer: the packets of lost stripes, rebuilt from those that are there, as the
 * writer pulls them. What is read is what the code's plan for these stripes takes, segment by segment.
 */
#ifndef ECFS_OBJECT_REPAIR_H
#define ECFS_OBJECT_REPAIR_H

#include "object/reader.h"
#include "object/writer.h"

typedef struct EcfsRepair EcfsRepair;

/* How fast a repair may go on. Neither function may block. */
typedef struct EcfsRepairPace {
    bool (*held) (void *user);                  /* nothing more is to be read for now */
    void (*spent) (void *user, uint64_t bytes); /* so many are being read and stored */
    uint64_t most_bytes;                        /* of memory for one object; one segment is always possible */
    void *user;
} EcfsRepairPace;

/**
 * For the stripes @wanted (n flags; copied). @reader is taken: a wanted stripe that it has is damaged, and serves as
 * far as its check blocks are right; one that is gone it must not have. @pace is borrowed; NULL: as fast as it goes.
 */
EcfsRepair *ecfs_repair_new (EcfsReader *reader, const bool *wanted, const EcfsRepairPace *pace);
/** Only when no writer uses it any more. NULL is accepted. */
void ecfs_repair_free (EcfsRepair *self);

/** What a writer's job for these stripes takes; valid while self lives. */
const EcfsPacketSource *ecfs_repair_packets (const EcfsRepair *self);

/** The chain of the object as its stripes have it, for g_byte_array_unref (); NULL: none is found. Blocks. */
GByteArray *ecfs_repair_chain (const EcfsRepair *self);

/** Bytes of packets that were read for it until now. */
uint64_t ecfs_repair_read_bytes (const EcfsRepair *self);

#endif
