/* What is verified, as ranges of UUIDs. */
#include "catalog/scrub.h"

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

double ecfs_ranges_share (const GArray *self, uint64_t pass)
{
    double share = 0;
    for (guint i = 0; i < self->len; i++) {
        double end = i + 1 < self->len ? place (&range (self, i + 1)->after) : 1;
        if (range (self, i)->pass >= pass)
            share += end - place (&range (self, i)->after);
    }
    return MIN (share, 1);
}
