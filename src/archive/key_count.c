#include "archive/key_count.h"

#include "key/shamir.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct Zone {
    const char *name; /* borrowed */
    unsigned n;       /* different shares that it has */
    unsigned first;   /* one of them */
    bool has[ECFS_SHARES_MAX + 1];
} Zone;

/* Zone by name, in the order of their first shares in *ret_order, borrowed. */
static GHashTable *sort_by_zone (const EcfsZoneShare *shares, size_t n, GPtrArray *ret_order)
{
    GHashTable *zones = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, g_free);
    for (size_t i = 0; i < n; i++) {
        Zone *zone = g_hash_table_lookup (zones, shares[i].zone);
        if (zone == NULL) {
            zone = g_new0 (Zone, 1);
            *zone = (Zone){.name = shares[i].zone, .first = shares[i].x};
            g_hash_table_insert (zones, (char *) zone->name, zone);
            g_ptr_array_add (ret_order, zone);
        }
        zone->n += !zone->has[shares[i].x];
        zone->has[shares[i].x] = true;
    }
    return zones;
}

static int largest_first (const void *a, const void *b)
{
    unsigned left = *(const unsigned *) a, right = *(const unsigned *) b;
    return (left < right) - (left > right);
}

static unsigned root_of (const unsigned *parents, unsigned x)
{
    while (parents[x] != x)
        x = parents[x];
    return x;
}

/* Shares that one zone has are lost together, and so are those that hang together by several zones, at most. Fills in
 * how many are in each such group, the largest first; returns how many groups there are. */
static unsigned group (const GPtrArray *zones, unsigned sizes[ECFS_SHARES_MAX + 1])
{
    unsigned parents[ECFS_SHARES_MAX + 1], n_groups = 0;
    bool is_there[ECFS_SHARES_MAX + 1] = {false};
    for (unsigned x = 0; x <= ECFS_SHARES_MAX; x++)
        parents[x] = x;
    for (guint i = 0; i < zones->len; i++) {
        const Zone *zone = g_ptr_array_index (zones, i);
        for (unsigned x = 1; x <= ECFS_SHARES_MAX; x++) {
            if (!zone->has[x])
                continue;
            is_there[x] = true;
            parents[root_of (parents, x)] = root_of (parents, zone->first);
        }
    }
    for (unsigned x = 0; x <= ECFS_SHARES_MAX; x++)
        sizes[x] = 0;
    for (unsigned x = 1; x <= ECFS_SHARES_MAX; x++) {
        unsigned root = root_of (parents, x);
        n_groups += is_there[x] && sizes[root] == 0;
        sizes[root] += is_there[x];
    }
    qsort (sizes, ECFS_SHARES_MAX + 1, sizeof *sizes, largest_first);
    return n_groups;
}

static int smallest_first (const void *a, const void *b)
{
    return -largest_first (a, b);
}

/* How many shares some endpoint still has when as many are lost as may be: those that the fewest have go first. */
static unsigned left_without (const EcfsZoneShare *shares, size_t n, unsigned n_lost)
{
    unsigned n_holders[ECFS_SHARES_MAX + 1] = {0}, n_left = 0;
    for (size_t i = 0; i < n; i++)
        n_holders[shares[i].x]++;
    qsort (n_holders, ECFS_SHARES_MAX + 1, sizeof *n_holders, smallest_first);
    for (unsigned x = 0; x <= ECFS_SHARES_MAX; x++) {
        bool is_lost = n_holders[x] <= n_lost;
        n_lost -= is_lost ? n_holders[x] : 0;
        n_left += !is_lost;
    }
    return n_left;
}

unsigned ecfs_key_count_left (const EcfsKeyCount *count)
{
    return MIN (count->left_by_zones, count->left_by_endpoints);
}

char *ecfs_key_describe_loss (const EcfsKeyCount *count, unsigned threshold, const EcfsKeyLosses *losses)
{
    bool by_zones = count->left_by_zones < threshold;
    unsigned n = by_zones ? losses->zones : losses->endpoints;
    return g_strdup_printf ("%u %s%s", n, by_zones ? "zone" : "endpoint", n == 1 ? "" : "s");
}

void ecfs_key_count (const EcfsZoneShare *shares, size_t n, unsigned threshold, const EcfsKeyLosses *losses,
                     EcfsKeyCount *ret_count)
{
    unsigned sizes[ECFS_SHARES_MAX + 1], together = 0;
    g_autoptr (GPtrArray) order = g_ptr_array_new ();
    GHashTable *zones = sort_by_zone (shares, n, order);
    g_autofree unsigned *each = g_new0 (unsigned, order->len + 1);
    EcfsKeyCount count = {.n_zones = group (order, sizes),
                          .left_by_endpoints = left_without (shares, n, losses->endpoints)};
    for (unsigned i = 0; i < count.n_zones; i++) {
        count.n_shares += sizes[i];
        count.left_by_zones += i < losses->zones ? 0 : sizes[i];
    }
    for (guint i = 0; i < order->len; i++)
        each[i] = ((const Zone *) g_ptr_array_index (order, i))->n;
    qsort (each, order->len, sizeof *each, largest_first);
    for (guint i = 0; i < order->len && together < threshold; i++) {
        together += each[i];
        count.n_readers++;
    }
    if (together < threshold)
        count.n_readers = 0;
    *ret_count = count;
    g_hash_table_unref (zones);
}

GPtrArray *ecfs_key_merged_zones (const EcfsZoneShare *shares, size_t n)
{
    g_autoptr (GPtrArray) order = g_ptr_array_new ();
    GHashTable *zones = sort_by_zone (shares, n, order);
    GPtrArray *merged = g_ptr_array_new ();
    for (guint i = 0; i < order->len; i++) {
        const Zone *zone = g_ptr_array_index (order, i);
        if (zone->n > 1)
            g_ptr_array_add (merged, (char *) zone->name);
    }
    g_hash_table_unref (zones);
    return merged;
}

GPtrArray *ecfs_key_twin_zones (const EcfsZoneShare *shares, size_t n)
{
    GPtrArray *twins = g_ptr_array_new ();
    for (size_t i = 0; i < n; i++) {
        bool is_twin = false;
        for (size_t j = 0; j < n && !is_twin; j++)
            is_twin = shares[j].x == shares[i].x && strcmp (shares[j].zone, shares[i].zone) != 0;
        if (is_twin && !g_ptr_array_find_with_equal_func (twins, shares[i].zone, g_str_equal, NULL))
            g_ptr_array_add (twins, (char *) shares[i].zone);
    }
    return twins;
}
