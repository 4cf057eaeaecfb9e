/*
 * Files that came back of the past, and of which another machine may have removed stripes: endpoints are asked for all
 * of these.
 */
#ifndef ECFS_VERBS_DOUBTS_H
#define ECFS_VERBS_DOUBTS_H

#include "archive/archive.h"

typedef struct EcfsDoubt {
    uint64_t ino;
    bool stayed; /* it was there before this run */
    char *path;  /* owned */
} EcfsDoubt;

/** GArray of EcfsDoubt with clear function, empty. */
GArray *ecfs_doubts_new (void);
void ecfs_doubts_add (GArray *self, uint64_t ino, bool stayed, const char *path);

/**
 * Queues for repair what is proven to be gone, in the catalog of @archive, which is open for writing, and tells of each
 * file of which too little is left; @lost takes the error. Empties @self. Blocks.
 */
bool ecfs_doubts_settle (GArray *self, EcfsArchive *archive,
                         void (*lost) (void *user, const EcfsDoubt *doubt, GError *why), void *user, GError **error);

#endif
