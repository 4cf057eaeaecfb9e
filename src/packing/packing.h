/*
 * Makes packs: content of small files, out of logs, other packs and objects of their own, becomes objects that many
 * files share, in the files' codes. Files lie in the order of their paths, and none across packets where that can be
 * helped, so that a small one is a part of one stripe.
 */
#ifndef ECFS_PACKING_PACKING_H
#define ECFS_PACKING_PACKING_H

#include "archive/archive.h"

#include <stdatomic.h>

/* What packing is to do, and what came of it. */
typedef struct EcfsPacking {
    EcfsArchive *archive;         /* open for changes */
    const char *code;             /* that files get; NULL: each its own */
    const atomic_bool *cancelled; /* ends it with ECANCELED; may be NULL */
    uint64_t n_packed;            /* files that are in packs now */
    uint64_t n_left;              /* that stay where they are, since they cannot be read; the log says why */
    GArray *left;                 /* of int64_t: the objects that these are in; NULL: nobody asks */
    uint64_t bytes;               /* of what was packed */
} EcfsPacking;

/**
 * Packs what files have of these objects (catalog rows), of which those that are shared go then where nothing is left;
 * an open log ends, whoever has it open. One that is gone is well. Blocks; one at a time for each archive.
 */
bool ecfs_pack_objects (EcfsPacking *self, const int64_t *objects, size_t n_objects, GError **error);

/** Packs what these files have in objects that they share; of others, one that has all of a file. Likewise. */
bool ecfs_pack_files (EcfsPacking *self, const uint64_t *inos, size_t n_inos, GError **error);

#endif
