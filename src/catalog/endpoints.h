/*
 * Endpoints: their rows, by whose ids stripes name them, their states, the stripes that are there, and how fast they
 * were the last time. Durability, threads and errors are as in catalog.h.
 */
#ifndef ECFS_CATALOG_ENDPOINTS_H
#define ECFS_CATALOG_ENDPOINTS_H

#include "util/error.h"
#include "util/uuid.h"

#include <stdatomic.h>
#include <stdint.h>

typedef struct EcfsCatalog EcfsCatalog;

typedef enum EcfsEndpointState {
    ECFS_ENDPOINT_ACTIVE = 0,
    ECFS_ENDPOINT_READONLY = 1,
    ECFS_ENDPOINT_DRAINING = 2,
    ECFS_ENDPOINT_FAILED = 3,
    ECFS_ENDPOINT_REMOVED = 4,    /* its row stays so that it is recognised; nothing else mentions it */
    ECFS_ENDPOINT_DISTRUSTED = 5, /* it is there, and nothing that it says is believed: as FAILED otherwise */
} EcfsEndpointState;

typedef struct EcfsEndpointRow {
    int64_t id;
    EcfsUuid uuid;
    char *name;
    EcfsEndpointState state;
} EcfsEndpointRow;

void ecfs_endpoint_row_free (EcfsEndpointRow *row);

/**
 * Durable: puts a new endpoint in the place of one whose place was emptied. The old row is DRAINING from then on, and
 * named *ret_old_name, "NAME (replaced, UUID)", g_free (); the new one, *ret_id, has its name. EBUSY while an intent
 * announces stripes there.
 */
bool ecfs_catalog_endpoint_supersede (EcfsCatalog *self, int64_t old, const EcfsUuid *uuid, int64_t *ret_id,
                                      char **ret_old_name, GError **error);

/** Durable. EEXIST when the name or UUID is known. */
bool ecfs_catalog_endpoint_add (EcfsCatalog *self, const EcfsUuid *uuid, const char *name, int64_t *ret_id,
                                GError **error);
/** Durable. Up to FAILED. */
bool ecfs_catalog_endpoint_set_state (EcfsCatalog *self, int64_t endpoint, EcfsEndpointState state, GError **error);
/** Of EcfsEndpointRow with free function, without those that were removed. */
GPtrArray *ecfs_catalog_endpoints (EcfsCatalog *self, GError **error);

/**
 * Durable: takes an endpoint out. Its name is free then, deletions that wait there are forgotten, some at a time, and
 * stripes can no more be announced there. EBUSY while it is ACTIVE, or an intent announces some; that no object has any
 * is for the caller to see, by ecfs_catalog_stripes_at (), once nothing is placed there any more.
 */
bool ecfs_catalog_endpoint_remove (EcfsCatalog *self, int64_t endpoint, GError **error);
/** Whether an endpoint with this UUID was removed; under which name, g_free (); NULL: it was not. */
bool ecfs_catalog_endpoint_removed (EcfsCatalog *self, const EcfsUuid *uuid, char **ret_name, GError **error);
/** Whether an endpoint of this name was taken out. */
bool ecfs_catalog_endpoint_name_removed (EcfsCatalog *self, const char *name, bool *ret_removed, GError **error);
/** Whether the endpoint of this name took the place of another (ecfs_catalog_endpoint_supersede ()), which was removed
 * since. */
bool ecfs_catalog_endpoint_was_superseded (EcfsCatalog *self, const char *name, bool *ret_superseded, GError **error);

/* What is at them */

/* A stripe of an object at a certain endpoint. */
typedef struct EcfsStripeAt {
    int64_t object; /* row id */
    uint16_t index;
    uint64_t instance;
    uint64_t size;
} EcfsStripeAt;

/**
 * The stripes at an endpoint (row id) of some objects with ids above *after, by object: of as many as can be looked at
 * quickly. *after becomes the last that was looked at; *ret_more: there are others after it. GArray of EcfsStripeAt.
 */
GArray *ecfs_catalog_stripes_at (EcfsCatalog *self, int64_t endpoint, int64_t *after, bool *ret_more, GError **error);
/** How many stripes are announced for an endpoint by intents: they may be on their way. */
bool ecfs_catalog_announced_at (EcfsCatalog *self, int64_t endpoint, uint64_t *ret_n_stripes, GError **error);
/** How many stripes wait for their deletion at an endpoint. */
bool ecfs_catalog_deletions_at (EcfsCatalog *self, int64_t endpoint, uint64_t *ret_n_stripes, GError **error);

/* Estimates */

/* What was last measured of an endpoint: p5, p50 and p95 of each; 0: not known. Of this machine, so no journal has it.
 */
typedef struct EcfsEstimateRow {
    int64_t endpoint; /* row id */
    uint64_t latency_us[3];
    uint64_t read_bytes_per_s[3];
    uint64_t write_bytes_per_s[3];
} EcfsEstimateRow;

bool ecfs_catalog_estimate_set (EcfsCatalog *self, const EcfsEstimateRow *row, GError **error);
/** Figures that are absent or negative are 0; whether the others are possible is for the caller to see. */
bool ecfs_catalog_estimate (EcfsCatalog *self, int64_t endpoint, EcfsEstimateRow *ret_row, GError **error);

/** How many bytes of stripes each of @n endpoints (row ids) has, with those that wait for their deletion; some objects
 * at a time. ECANCELED: *@stop became true; NULL: it is never given up. */
bool ecfs_catalog_bytes_at (EcfsCatalog *self, const int64_t *endpoints, size_t n, const atomic_bool *stop,
                            uint64_t *ret_bytes, GError **error);

#endif
