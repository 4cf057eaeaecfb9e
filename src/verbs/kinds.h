/* Objects that are alike, which are looked at together: of the same code, with their stripes at the same endpoints. */
#ifndef ECFS_VERBS_KINDS_H
#define ECFS_VERBS_KINDS_H

#include "codec/codec.h"

#include <glib.h>

typedef struct EcfsKind {
    const EcfsCodec *codec; /* borrowed from the archive */
    int guarantee;          /* how many more endpoints may vanish for certain; -1: it cannot be read */
    uint64_t n_objects;
    bool present[ECFS_CODEC_MAX_N];
    size_t holder[ECFS_CODEC_MAX_N]; /* a number for the endpoint, where present */
} EcfsKind;

/** Of EcfsKind; g_hash_table_unref (). */
GHashTable *ecfs_kinds_new (void);
/** Counts the objects of @kind together with those that are alike. */
void ecfs_kinds_add (GHashTable *kinds, const EcfsKind *kind);

/** Whether its objects can be read without the @size holders in @set. */
bool ecfs_kind_survives (const EcfsKind *kind, const size_t *set, unsigned size);

#endif
