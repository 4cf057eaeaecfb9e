#include "verbs/doubts.h"

#include "archive/sightings.h"
#include "check/check.h"

#define AT_ONCE 64 /* files whose stripes are asked for together */

static void doubt_clear (gpointer data)
{
    g_free (((EcfsDoubt *) data)->path);
}

GArray *ecfs_doubts_new (void)
{
    GArray *self = g_array_new (FALSE, FALSE, sizeof (EcfsDoubt));
    g_array_set_clear_func (self, doubt_clear);
    return self;
}

void ecfs_doubts_add (GArray *self, uint64_t ino, bool stayed, const char *path)
{
    const EcfsDoubt doubt = {.ino = ino, .stayed = stayed, .path = g_strdup (path)};
    g_array_append_val (self, doubt);
}

static bool always (void *user)
{
    (void) user;
    return true;
}

/* As if all of it were gone: what is not is taken out again. */
static void suspect (EcfsArchive *archive, const EcfsObjectRow *object, GArray *sightings)
{
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, stripe->endpoint);
        if (endpoint == NULL || endpoint->endpoint == NULL || !ecfs_archive_endpoint_counts (endpoint))
            continue;
        const EcfsSighting sighting = {.object = object->uuid,
                                       .index = stripe->index,
                                       .instance = stripe->instance,
                                       .endpoint = endpoint->endpoint,
                                       .gone = true,
                                       .reason = g_strdup_printf ("endpoint %s: it was removed there", endpoint->name)};
        g_array_append_val (sightings, sighting);
    }
}

/* Of a file that may be gone meanwhile. */
static bool suspect_file (EcfsArchive *archive, uint64_t ino, GHashTable *seen, GArray *sightings, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    g_autoptr (GArray) extents = ecfs_catalog_extents (catalog, ino, error);
    for (guint i = 0; extents != NULL && i < extents->len; i++) {
        int64_t id = g_array_index (extents, EcfsExtent, i).object;
        if (!g_hash_table_add (seen, g_memdup2 (&id, sizeof id)))
            continue;
        g_autoptr (EcfsObjectRow) object = ecfs_catalog_object (catalog, id, error);
        if (object == NULL)
            return false;
        suspect (archive, object, sightings);
    }
    return extents != NULL;
}

/* @seen: objects that were asked for, which many files may share. */
static bool queue_gone (EcfsArchive *archive, const EcfsDoubt *doubts, guint n, GHashTable *seen, GError **error)
{
    unsigned n_queued;
    g_autoptr (GArray) sightings = ecfs_sightings_array_new ();
    for (guint i = 0; i < n; i++) {
        GError *why = NULL;
        if (suspect_file (archive, doubts[i].ino, seen, sightings, &why))
            continue;
        if (why->code != ENOENT) {
            g_propagate_error (error, why);
            return false;
        }
        g_error_free (why); /* it was replaced or deleted meanwhile */
    }
    if (!ecfs_sightings_confirm (archive, sightings, always, NULL))
        ecfs_sightings_drop_gone (sightings); /* what nobody could ask for is not known to be gone */
    return ecfs_sightings_queue (ecfs_archive_catalog (archive), sightings, &n_queued, error);
}

/* Whether what is left of it does not suffice. */
static bool is_lost (EcfsArchive *archive, const EcfsDoubt *doubt)
{
    EcfsFileState state;
    return ecfs_archive_file_state (archive, doubt->ino, &state, NULL) && state.n_damaged > 0 && state.guarantee < 0;
}

bool ecfs_doubts_settle (GArray *self, EcfsArchive *archive,
                         void (*lost) (void *user, const EcfsDoubt *doubt, GError *why), void *user, GError **error)
{
    bool settled = true;
    g_autoptr (GHashTable) seen = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    for (guint at = 0; settled && at < self->len; at += AT_ONCE) {
        const EcfsDoubt *doubts = &g_array_index (self, EcfsDoubt, at);
        guint n = MIN (self->len - at, AT_ONCE);
        settled = queue_gone (archive, doubts, n, seen, error);
        for (guint i = 0; settled && i < n; i++)
            if (is_lost (archive, &doubts[i]))
                lost (user, &doubts[i],
                      g_error_new (ECFS_ERROR, EIO,
                                   "it had come back, and too few of its stripes are left: another machine removed "
                                   "them meanwhile ('ecfs prune'), or endpoints lost them"));
    }
    g_array_set_size (self, 0);
    return settled;
}
