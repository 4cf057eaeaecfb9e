/* Markers where nothing is replaced are files of their own, and the newest that is authentic counts: those that were
 * newer once go, but for the last few. */
#include "verbs/prune_priv.h"

#include "archive/common.h"
#include "archive/marks.h"

#include <string.h>

#define NEWEST  4 /* authentic ones that stay */
#define READERS 16

/* A file in "markers/". */
typedef struct Mark {
    const EcfsPruning *pruning;
    EcfsPrunePlace *place;
    uint64_t number;
    uint64_t size;
    int64_t mtime_s;
    bool is_authentic;
    EcfsMarker marker; /* valid then */
    char *name;        /* owned */
} Mark;

static void mark_clear (gpointer data)
{
    g_free (((Mark *) data)->name);
}

typedef struct Marks {
    const EcfsPruning *pruning;
    EcfsPrunePlace *place;
    GArray *found; /* of Mark */
} Marks;

static void on_listed (void *user, const EcfsListed *listed)
{
    Marks *self = user;
    Mark mark = {.pruning = self->pruning, .place = self->place, .size = listed->size, .mtime_s = listed->mtime_s};
    if (!ecfs_marker_file_number (listed->name, &mark.number))
        return;
    mark.name = g_strdup (listed->name);
    g_array_append_val (self->found, mark);
}

static void read_mark (void *data)
{
    Mark *self = data;
    const EcfsCatalog *catalog = ecfs_archive_catalog (self->pruning->archive);
    char text[ECFS_MARKER_FILE_MAX];
    const EcfsRange range = {.size = (size_t) MIN (self->size, sizeof text), .to = (uint8_t *) text};
    g_autoptr (GError) why = NULL;
    self->is_authentic = self->size > 0 && self->size <= sizeof text &&
                         ecfs_endpoint_read_wait (self->place->endpoint, self->name, &range, 1, &why) &&
                         ecfs_marker_file_parse (text, range.size, &self->marker, &why) &&
                         ecfs_uuid_equal (&self->marker.archive, ecfs_catalog_archive (catalog)) &&
                         ecfs_uuid_equal (&self->marker.endpoint, &self->place->uuid) &&
                         ecfs_marker_judge (&self->marker, ecfs_archive_keys (self->pruning->archive),
                                            &self->place->uuid) == ECFS_MARKER_AUTHENTIC;
    if (why != NULL)
        g_info ("endpoint %s: %s", self->place->name, why->message);
}

static int newest_first (const void *a, const void *b)
{
    const Mark *left = a, *right = b;
    return (left->number < right->number) - (left->number > right->number);
}

static Mark *mark_at (const Marks *self, guint i)
{
    return &g_array_index (self->found, Mark, i);
}

/* Whoever looks finds the newest by their numbers, and this goes by them, too. */
static bool check_order (const Marks *self, GError **error)
{
    const EcfsMarker *newest = NULL;
    for (guint i = 0; i < self->found->len; i++) {
        const Mark *mark = mark_at (self, i);
        if (!mark->is_authentic)
            continue;
        newest = newest == NULL ? &mark->marker : newest;
        if (ecfs_marker_order (&mark->marker, newest) > 0)
            return ecfs_fail (error, EBADMSG,
                              "endpoint %s: %s tells of something later than markers behind it: none is removed there",
                              self->place->name, mark->name);
    }
    return true;
}

/* The first stays for ever: where it is, there are others. */
static void choose (const Marks *self)
{
    unsigned n_newer = 0;
    for (guint i = 0; i < self->found->len; i++) {
        Mark *mark = mark_at (self, i);
        const bool stays = n_newer < NEWEST || mark->number == 1;
        n_newer += mark->is_authentic;
        if (!ecfs_prune_place_is_old (self->place, self->pruning, mark->mtime_s))
            continue;
        if (mark->is_authentic && !stays)
            ecfs_prune_place_add_old (self->place, ECFS_PRUNE_MARKERS, mark->name, mark->size, mark->mtime_s);
        else if (!mark->is_authentic)
            ecfs_prune_add (&self->place->unreadable, mark->size);
    }
}

bool ecfs_prune_marks_find (EcfsPrunePlace *place, const EcfsPruning *pruning, GError **error)
{
    g_autoptr (GArray) found = g_array_new (FALSE, FALSE, sizeof (Mark));
    Marks self = {.pruning = pruning, .place = place, .found = found};
    g_array_set_clear_func (found, mark_clear);
    if (!ecfs_endpoint_list_wait (place->endpoint, ECFS_MARKER_DIRECTORY, on_listed, &self, error))
        return false;
    EcfsWorkers *workers = ecfs_workers_new ("ecfs-prune", READERS);
    for (guint i = 0; i < found->len; i++)
        ecfs_workers_push (workers, read_mark, mark_at (&self, i));
    ecfs_workers_free (workers);
    g_array_sort (found, newest_first);
    if (!check_order (&self, error))
        return false;
    choose (&self);
    return true;
}
