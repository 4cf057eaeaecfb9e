/* What is verified, as ranges of UUIDs. */
#include "catalog/db.h"
#include "catalog/scrub.h"

#define SPREAD_OBJECTS 1048576 /* as many fill all directories, whose order is that of UUIDs */
#define OVERHEAD_BYTES 512     /* of an object without content */

const EcfsUuid ecfs_uuid_last = {
    .bytes = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}};

static const EcfsScrubRange *range (const GArray *self, guint i)
{
    return &g_array_index (self, EcfsScrubRange, i);
}

static int compare (const EcfsUuid *a, const EcfsUuid *b)
{
    return memcmp (a->bytes, b->bytes, sizeof a->bytes);
}

GArray *ecfs_ranges_new (void)
{
    GArray *self = g_array_new (FALSE, TRUE, sizeof (EcfsScrubRange));
    return g_array_set_size (self, 1); /* behind nil, by no pass */
}

/* Ranges are few. */
static guint index_at (const GArray *self, const EcfsUuid *after)
{
    guint i = self->len - 1;
    while (i > 0 && compare (&range (self, i)->after, after) > 0)
        i--;
    return i;
}

const EcfsScrubRange *ecfs_ranges_at (const GArray *self, const EcfsUuid *after)
{
    return range (self, index_at (self, after));
}

EcfsUuid ecfs_ranges_end (const GArray *self, const EcfsUuid *after)
{
    guint next = index_at (self, after) + 1;
    return next < self->len ? range (self, next)->after : ecfs_uuid_last;
}

/* A range begins there; returns its index. */
static guint split (GArray *self, const EcfsUuid *after)
{
    guint i = index_at (self, after);
    EcfsScrubRange rest = *range (self, i);
    if (compare (&rest.after, after) == 0)
        return i;
    rest.after = *after;
    g_array_insert_val (self, i + 1, rest);
    return i + 1;
}

void ecfs_ranges_set (GArray *self, const EcfsUuid *after, const EcfsUuid *last, uint64_t pass, int64_t time_ns)
{
    if (compare (after, last) >= 0)
        return;
    guint first = split (self, after);
    guint end = compare (last, &ecfs_uuid_last) == 0 ? self->len : split (self, last);
    g_array_remove_range (self, first, end - first);
    bool goes_on = first > 0 && range (self, first - 1)->pass == pass;
    const EcfsScrubRange new = {.after = *after, .pass = pass, .time_ns = time_ns};
    if (!goes_on)
        g_array_insert_val (self, first, new);
}

const EcfsScrubRange *ecfs_ranges_oldest (const GArray *self, uint64_t pass)
{
    const EcfsScrubRange *oldest = NULL;
    for (guint i = 0; i < self->len; i++) {
        const EcfsScrubRange *one = range (self, i);
        bool older =
            oldest == NULL || one->pass < oldest->pass || (one->pass == oldest->pass && one->time_ns < oldest->time_ns);
        if (one->pass < pass && older)
            oldest = one;
    }
    return oldest;
}

static double place (const EcfsUuid *uuid)
{
    double place = 0;
    for (size_t i = 8; i-- > 0;)
        place = (place + uuid->bytes[i]) / 256;
    return place;
}

static double width (const EcfsUuid *after, const EcfsUuid *last)
{
    return (compare (last, &ecfs_uuid_last) == 0 ? 1 : place (last)) - place (after);
}

static bool find_bytes (EcfsCatalog *self, const EcfsUuid *after, const EcfsUuid *last, int64_t *ret_bytes,
                        GError **error)
{
    return QUERY_NUMBER (self, OBJECT_BYTES_BETWEEN, ret_bytes, error, UUID (after), UUID (last),
                         INT (OVERHEAD_BYTES)) == 1;
}

/* Of the objects behind @after up to @last; few at a time, so that others get at the catalog. */
static double bytes_between (EcfsCatalog *catalog, EcfsUuid after, const EcfsUuid *last)
{
    double sum = 0;
    for (bool more = true; more;) {
        EcfsUuid end = ecfs_uuid_last;
        int64_t bytes = 0;
        end.bytes[0] = after.bytes[0];
        if (compare (&after, &end) == 0 && end.bytes[0] < 255)
            end.bytes[0]++;
        more = compare (&end, last) < 0;
        if (READ (catalog, find_bytes (catalog, &after, more ? &end : last, &bytes, NULL))) /* else it is an estimate */
            sum += (double) bytes;
        after = end;
    }
    return sum;
}

static gint compare_bounds (gconstpointer a, gconstpointer b)
{
    return compare (a, b);
}

/* Where any of the ranges begins, and the last UUID. */
static GArray *bounds_of (GArray *const *ranges, size_t n)
{
    GArray *bounds = g_array_new (FALSE, FALSE, sizeof (EcfsUuid));
    g_array_append_val (bounds, ecfs_uuid_last);
    for (size_t i = 0; i < n; i++)
        for (guint j = 0; ranges[i] != NULL && j < ranges[i]->len; j++)
            g_array_append_val (bounds, range (ranges[i], j)->after);
    g_array_sort (bounds, compare_bounds);
    return bounds;
}

/* @all becomes what there is, *done what of it is verified. */
static void weigh (GArray *const *ranges, size_t n, uint64_t pass, EcfsCatalog *catalog, double *done, double *all)
{
    g_autoptr (GArray) bounds = bounds_of (ranges, n);
    *done = *all = 0;
    for (guint b = 0; b + 1 < bounds->len; b++) {
        const EcfsUuid *after = &g_array_index (bounds, EcfsUuid, b), *last = after + 1;
        if (compare (after, last) == 0)
            continue;
        double weight = catalog == NULL ? width (after, last) : bytes_between (catalog, *after, last);
        for (size_t i = 0; i < n; i++) {
            if (ranges[i] == NULL)
                continue;
            *all += weight;
            *done += ecfs_ranges_at (ranges[i], after)->pass >= pass ? weight : 0;
        }
    }
}

double ecfs_ranges_share (GArray *const *ranges, size_t n, uint64_t pass, EcfsCatalog *catalog)
{
    EcfsTotals totals = {0};
    double done = 0, all = 0;
    if (catalog != NULL && ecfs_catalog_totals (catalog, &totals, NULL) && totals.n_objects <= SPREAD_OBJECTS)
        weigh (ranges, n, pass, catalog, &done, &all);
    if (all <= 0)
        weigh (ranges, n, pass, NULL, &done, &all);
    return all <= 0 ? 1 : done / all;
}
