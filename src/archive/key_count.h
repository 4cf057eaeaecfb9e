/*
 * What the shares that zones have of an archive's key amount to. Zones may be merged in ecfs.conf, and then have
 * several shares, or split, and then have the same one: what counts is which different shares are left when zones are
 * lost, and how many zones have enough of them together. Pure functions.
 */
#ifndef ECFS_ARCHIVE_KEY_COUNT_H
#define ECFS_ARCHIVE_KEY_COUNT_H

#include <glib.h>
#include <stddef.h>

/* Which share of the archive's key an endpoint of a zone has; several of one zone, and of one share, are well. */
typedef struct EcfsZoneShare {
    const char *zone; /* borrowed */
    unsigned x;       /* 1 to ECFS_SHARES_MAX */
} EcfsZoneShare;

/* What files survive for certain (archive/key_losses.h). */
typedef struct EcfsKeyLosses {
    unsigned zones;     /* that may vanish; the smallest, where they are not alike */
    unsigned endpoints; /* that may vanish */
    unsigned stripes;   /* of an object that may be lost */
} EcfsKeyLosses;

typedef struct EcfsKeyCount {
    unsigned n_zones;           /* with shares; those with the same one count once */
    unsigned n_shares;          /* different ones */
    unsigned left_by_zones;     /* … that are left whichever zones are lost, at least, … */
    unsigned left_by_endpoints; /* … or whichever endpoints */
    unsigned n_readers;         /* as many zones at least have `threshold` of the shares together; 0: all have fewer */
} EcfsKeyCount;

/** @shares: one for each endpoint that has one. */
void ecfs_key_count (const EcfsZoneShare *shares, size_t n, unsigned threshold, const EcfsKeyLosses *losses,
                     EcfsKeyCount *ret_count);
/** How many of the shares are left at least, whatever may be lost is. */
unsigned ecfs_key_count_left (const EcfsKeyCount *count);

/** What may be lost that takes too many of the shares: "2 zones" or "1 endpoint"; g_free (). */
char *ecfs_key_describe_loss (const EcfsKeyCount *count, unsigned threshold, const EcfsKeyLosses *losses);

/** The names of zones that have several shares, borrowed from @shares; g_ptr_array_unref (). */
GPtrArray *ecfs_key_merged_zones (const EcfsZoneShare *shares, size_t n);
/** The names of zones that have a share which another zone has, too; borrowed from the shares; g_ptr_array_unref () */
GPtrArray *ecfs_key_twin_zones (const EcfsZoneShare *shares, size_t n);

#endif
