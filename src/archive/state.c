#include "archive/archive_priv.h"
#include "archive/standing.h"
#include "object/placement.h"

#include <inttypes.h>

#define FILES_NAMED     10 /* that lack stripes, or have damaged ones */
#define OBJECTS_AT_ONCE 256

bool ecfs_archive_reaches (const EcfsArchiveEndpoint *endpoint)
{
    return endpoint != NULL && ecfs_archive_endpoint_counts (endpoint) && !ecfs_endpoint_is_down (endpoint->endpoint);
}

bool ecfs_archive_known_damage (EcfsArchive *self, int64_t object, bool *ret_damaged, GError **error)
{
    g_autoptr (GArray) rows = ecfs_catalog_repairs (self->catalog, object, error);
    for (guint i = 0; rows != NULL && i < rows->len; i++) {
        unsigned index = g_array_index (rows, EcfsRepairRow, i).index;
        if (index < ECFS_CODEC_MAX_N)
            ret_damaged[index] = true;
    }
    return rows != NULL;
}

/* Of the object's content up to @end. */
static bool find_standing (EcfsArchive *self, const EcfsObjectRow *object, uint64_t end, EcfsStanding *ret_standing,
                           GError **error)
{
    bool damaged[ECFS_CODEC_MAX_N] = {false};
    const EcfsCodec *codec = ecfs_archive_codec (self, object->code, error);
    if (codec == NULL || !ecfs_archive_known_damage (self, object->id, damaged, error))
        return false;
    ecfs_object_standing (self, object, codec, end, damaged, ret_standing);
    return true;
}

/* Whether an object tells more of what its file lacks than the one before: one that is lost does, then one that lacks
 * stripes, then one that is less safe. */
static bool tells_more (const EcfsFileState *before, bool lacks, int guarantee)
{
    bool lacked = before->n_stored < before->n_stripes;
    if ((guarantee < 0) != (before->guarantee < 0))
        return guarantee < 0;
    return lacks != lacked ? lacks : guarantee < before->guarantee;
}

/* Folds the object of an extent into the state of its file. */
static bool add_object (EcfsArchive *self, const EcfsExtent *extent, EcfsFileState *state, bool first, GError **error)
{
    g_autoptr (EcfsObjectRow) object = ecfs_catalog_object (self->catalog, extent->object, error);
    const EcfsCodec *codec = object == NULL ? NULL : ecfs_archive_codec (self, object->code, error);
    if (codec == NULL)
        return false;
    EcfsStanding standing;
    if (!find_standing (self, object, extent->object_offset + extent->length, &standing, error))
        return false;
    int guarantee = ecfs_holders_guarantee (codec, standing.reachable, standing.holder);
    if (first || tells_more (state, standing.n_stored < standing.n, guarantee)) {
        state->n_stripes = standing.n;
        state->n_stored = standing.n_stored;
        state->n_reachable = standing.n_reachable;
        state->tolerance = ecfs_codec_tolerance (codec);
    }
    state->lacks_stripes = state->lacks_stripes || standing.n_stored < standing.n;
    state->n_damaged += standing.n_damaged;
    state->n_given_up += standing.n_given_up;
    state->n_nowhere += standing.n_nowhere;
    state->guarantee = first ? guarantee : MIN (state->guarantee, guarantee);
    return true;
}

static bool read_state (EcfsArchive *self, uint64_t ino, EcfsFileState *ret_state, GError **error)
{
    g_autoptr (GArray) extents = ecfs_catalog_extents (self->catalog, ino, error);
    if (extents == NULL)
        return false;
    EcfsFileState state = {0};
    int64_t last = 0;
    for (guint i = 0; i < extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, i);
        if (extent->object != last && !add_object (self, extent, &state, last == 0, error))
            return false;
        last = extent->object;
    }
    *ret_state = state;
    return true;
}

bool ecfs_archive_file_state (EcfsArchive *self, uint64_t ino, EcfsFileState *ret_state, GError **error)
{
    g_autoptr (GError) reason = NULL;
    for (unsigned attempt = 0; attempt < ECFS_CONTENT_ATTEMPTS; attempt++) {
        g_clear_error (&reason);
        if (read_state (self, ino, ret_state, &reason))
            return true;
        if (!g_error_matches (reason, ECFS_ERROR, ENOENT))
            break;
    }
    g_propagate_error (error, g_steal_pointer (&reason));
    return false;
}

/* Nobody reads there any more. */
static bool is_given_up (const EcfsArchiveEndpoint *endpoint)
{
    return endpoint->state >= ECFS_ENDPOINT_FAILED && endpoint->state != ECFS_ENDPOINT_REMOVED;
}

/* It cannot be asked from here. */
static bool is_nowhere (const EcfsArchiveEndpoint *endpoint)
{
    return endpoint->state < ECFS_ENDPOINT_FAILED && endpoint->endpoint == NULL;
}

/* "amber is distrusted, birch is failed"; NULL: there are none. g_free () */
static char *endpoints_that (const EcfsArchive *self, bool (*are) (const EcfsArchiveEndpoint *))
{
    size_t n_endpoints = self->n_endpoints;
    g_autoptr (GString) text = g_string_new (NULL);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->endpoints[i];
        if (are (endpoint))
            g_string_append_printf (text, "%s%s is %s", text->len == 0 ? "" : ", ", endpoint->name,
                                    is_nowhere (endpoint) ? "not in ecfs.conf"
                                                          : ecfs_endpoint_state_word (endpoint->state));
    }
    return text->len == 0 ? NULL : g_string_free (g_steal_pointer (&text), FALSE);
}

static bool fail_given_up (const EcfsArchive *self, const char *path, unsigned n, GError **error)
{
    g_autofree char *why = endpoints_that (self, is_given_up);
    return ecfs_fail (error, EIO,
                      "%s: %u of its stripes count as lost, as endpoint %s; 'ecfs fsck -y %s' rebuilds them elsewhere",
                      path, n, why == NULL ? "they are at was taken out" : why, self->directory);
}

/* As after a recovery without all endpoints; or another machine that writes has added it. */
static bool fail_nowhere (const EcfsArchive *self, const char *path, unsigned n, GError **error)
{
    g_autofree char *why = endpoints_that (self, is_nowhere);
    const char *advice = ecfs_catalog_is_shared (self->catalog)
                             ? "take its section over from a machine that has it, and mount again; after a recovery "
                               "'ecfs endpoint add' takes it in"
                             : "'ecfs endpoint add' takes it in again; if it is lost, 'ecfs endpoint replace' has its "
                               "stripes elsewhere";
    return ecfs_fail (error, EIO,
                      "%s: nobody can tell from here whether %u of its stripes are there, as endpoint %s; %s", path, n,
                      why == NULL ? "they are at was missing" : why, advice);
}

static bool is_file_full (EcfsArchive *self, uint64_t ino, GError **error)
{
    EcfsFileState state;
    if (!ecfs_archive_file_state (self, ino, &state, error))
        return false;
    g_autofree char *path = ecfs_catalog_path (self->catalog, ino);
    if (state.n_damaged > 0)
        return ecfs_fail (error, EIO,
                          "%s: %u of its stripes are damaged or gone%s; a mount rebuilds what it can in the background "
                          "(unless repair = off), 'ecfs fsck -y %s' does so now",
                          path, state.n_damaged,
                          state.guarantee < 0 ? ", and not all of it can be read from what is there" : "",
                          self->directory);
    if (state.n_given_up > 0)
        return fail_given_up (self, path, state.n_given_up, error);
    if (state.n_nowhere > 0)
        return fail_nowhere (self, path, state.n_nowhere, error);
    if (state.n_stored == state.n_stripes && !state.lacks_stripes)
        return true;
    g_autofree char *lack = state.n_stored == state.n_stripes /* of an object that is lost: another lacks some */
                                ? g_strdup ("it lacks stripes")
                                : g_strdup_printf ("it has %u of %u stripes", state.n_stored, state.n_stripes);
    return ecfs_fail (
        error, EIO,
        "%s: %s, and no upload of it is under way; a mount completes it in the background (unless repair = "
        "off), 'ecfs fsck -y %s' does so now",
        path, lack, self->directory);
}

static bool lacks_stripes (EcfsArchive *self, const EcfsObjectRow *object)
{
    const EcfsCodec *codec = ecfs_archive_codec (self, object->code, NULL);
    return codec == NULL || object->stripes->len < ecfs_codec_n (codec);
}

/* Of a file that may be gone meanwhile. */
static bool add_lacking (EcfsArchive *self, uint64_t ino, GHashTable *coming, GError **error)
{
    g_autoptr (GArray) extents = ecfs_catalog_extents (self->catalog, ino, error);
    for (guint i = 0; extents != NULL && i < extents->len; i++) {
        g_autoptr (GError) why = NULL;
        int64_t id = g_array_index (extents, EcfsExtent, i).object;
        g_autoptr (EcfsObjectRow) object =
            g_hash_table_contains (coming, &id) ? NULL : ecfs_catalog_object (self->catalog, id, &why);
        if (object != NULL && object->kind == ECFS_OBJECT_WHOLE && lacks_stripes (self, object))
            g_hash_table_add (coming, g_memdup2 (&id, sizeof id));
    }
    return extents != NULL;
}

GHashTable *ecfs_archive_coming_objects (EcfsArchive *self, GError **error)
{
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (self->catalog, error);
    g_autoptr (GHashTable) coming = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    for (guint i = 0; rows != NULL && i < rows->len; i++) {
        GError *why = NULL;
        const EcfsStagingRow *row = rows->pdata[i];
        if (row->state != ECFS_STAGING_STORED || add_lacking (self, row->ino, coming, &why))
            continue;
        if (why->code != ENOENT) {
            g_propagate_error (error, why);
            return NULL;
        }
        g_error_free (why);
    }
    return rows == NULL ? NULL : g_steal_pointer (&coming);
}

/* Objects that lack stripes for good, or that have damaged ones, one after the other. */
typedef struct Naming {
    EcfsArchive *archive;
    GHashTable *coming;
    GHashTable *named; /* set of inodes as int64_t */
    GPtrArray *lines;  /* one for each of these */
    uint64_t n_objects;
    uint64_t n_told; /* of these: their files have lines, or are full by now */
} Naming;

/* Counts an object, and adds a line about its file, or one of its files. */
static void name_file (Naming *self, int64_t object)
{
    int64_t ino;
    g_autoptr (GError) why = NULL;
    if (!ecfs_catalog_object_file (self->archive->catalog, object, (uint64_t *) &ino, NULL))
        return;
    self->n_objects++;
    if (self->lines->len == FILES_NAMED)
        return;
    self->n_told++;
    if (g_hash_table_contains (self->named, &ino) || is_file_full (self->archive, (uint64_t) ino, &why))
        return;
    g_hash_table_add (self->named, g_memdup2 (&ino, sizeof ino));
    g_ptr_array_add (self->lines, g_strdup (why->message));
}

/* Those that nothing fills up. What is given up staging does not store again. */
static bool name_lacking (Naming *self, const EcfsObjectRow *object, GError **error)
{
    EcfsStanding standing;
    if (!find_standing (self->archive, object, object->size, &standing, error))
        return false;
    bool coming = standing.n_given_up == 0 && g_hash_table_contains (self->coming, &object->id);
    if (ecfs_standing_lacks (&standing) && !coming)
        name_file (self, object->id);
    return true;
}

/* All objects are looked at, and where not all are to be counted, until so many files are named. */
static bool name_files (Naming *self, bool all, GError **error)
{
    int64_t after = 0;
    for (bool more = true; more && (all || self->lines->len < FILES_NAMED);) {
        g_autoptr (GPtrArray) objects = ecfs_catalog_objects (self->archive->catalog, after, OBJECTS_AT_ONCE, error);
        if (objects == NULL)
            return false;
        for (guint i = 0; i < objects->len && (all || self->lines->len < FILES_NAMED); i++) {
            const EcfsObjectRow *object = objects->pdata[i];
            if (!name_lacking (self, object, error))
                return false;
            after = object->id;
        }
        more = objects->len == OBJECTS_AT_ONCE;
    }
    return true;
}

/* @n_objects are to be told, of which some have lines. */
static bool tell_named (Naming *self, uint64_t n_objects, GError **error)
{
    if (self->lines->len == 0)
        return true; /* filled up, repaired, replaced or deleted since */
    if (n_objects > self->n_told)
        g_ptr_array_add (self->lines,
                         g_strdup_printf ("and so with %" PRIu64 " more objects", n_objects - self->n_told));
    g_ptr_array_add (self->lines, NULL);
    g_autofree char *text = g_strjoinv ("\n", (char **) self->lines->pdata);
    return ecfs_fail (error, EIO, "%s", text);
}

/* @n_objects lack stripes for good, or did a moment ago; 0: nobody has counted them. */
static bool check_lacking (EcfsArchive *self, GHashTable *coming, uint64_t n_objects, GError **error)
{
    g_autoptr (GHashTable) named = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    g_autoptr (GPtrArray) lines = g_ptr_array_new_with_free_func (g_free);
    Naming naming = {.archive = self, .coming = coming, .named = named, .lines = lines};
    return name_files (&naming, n_objects == 0, error) &&
           tell_named (&naming, n_objects == 0 ? naming.n_objects : n_objects, error);
}

/* No object has stripes that are queued for repair. */
static bool check_damaged (EcfsArchive *self, GError **error)
{
    g_autoptr (GArray) rows = ecfs_catalog_repairs (self->catalog, 0, error);
    g_autoptr (GHashTable) named = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    g_autoptr (GPtrArray) lines = g_ptr_array_new_with_free_func (g_free);
    Naming naming = {.archive = self, .named = named, .lines = lines};
    int64_t last = 0;
    for (guint i = 0; rows != NULL && i < rows->len; i++) {
        int64_t object = g_array_index (rows, EcfsRepairRow, i).object;
        if (object != last)
            name_file (&naming, object);
        last = object;
    }
    return rows != NULL && tell_named (&naming, naming.n_objects, error);
}

static bool name_nowhere (Naming *self, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    int64_t after = 0, last = 0;
    for (bool more = true; more && self->lines->len < FILES_NAMED;) {
        g_autoptr (GArray) stripes =
            ecfs_catalog_stripes_at (self->archive->catalog, endpoint->id, &after, &more, error);
        if (stripes == NULL)
            return false;
        for (guint i = 0; i < stripes->len && self->lines->len < FILES_NAMED; i++) {
            int64_t object = g_array_index (stripes, EcfsStripeAt, i).object;
            if (object != last)
                name_file (self, object);
            last = object;
        }
    }
    return true;
}

/* No object has stripes at an endpoint that ecfs.conf does not have. */
static bool check_nowhere (EcfsArchive *self, GError **error)
{
    g_autoptr (GHashTable) named = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    g_autoptr (GPtrArray) lines = g_ptr_array_new_with_free_func (g_free);
    Naming naming = {.archive = self, .named = named, .lines = lines};
    size_t n_endpoints = self->n_endpoints;
    for (size_t i = 0; i < n_endpoints && lines->len < FILES_NAMED; i++)
        if (is_nowhere (&self->endpoints[i]) && !name_nowhere (&naming, &self->endpoints[i], error))
            return false;
    return tell_named (&naming, naming.n_objects, error);
}

bool ecfs_archive_check_full (EcfsArchive *self, uint64_t ino, GError **error)
{
    if (ino != 0)
        return is_file_full (self, ino, error);
    EcfsTotals totals;
    if (!check_damaged (self, error) || !check_nowhere (self, error) ||
        !ecfs_catalog_totals (self->catalog, &totals, error))
        return false;
    g_autofree char *gone = endpoints_that (self, is_given_up); /* what is there nobody has counted */
    if (totals.n_not_full == 0 && gone == NULL)
        return true;
    g_autoptr (GHashTable) coming = ecfs_archive_coming_objects (self, error);
    if (coming == NULL)
        return false;
    uint64_t n_coming = g_hash_table_size (coming);
    if (gone != NULL)
        return check_lacking (self, coming, 0, error);
    return totals.n_not_full <= n_coming || check_lacking (self, coming, totals.n_not_full - n_coming, error);
}

char *ecfs_file_state_text (const EcfsFileState *state)
{
    if (state->staged)
        return g_strdup ("staged");
    if (state->n_stripes == 0)
        return g_strdup ("empty");
    if (state->guarantee < 0)
        return g_strdup_printf ("lost %u/%u", state->n_reachable, state->n_stripes);
    const char *word = state->n_reachable == state->n_stripes                                        ? "full"
                       : state->n_stored < state->n_stripes && state->n_reachable == state->n_stored ? "quorum"
                                                                                                     : "degraded";
    return g_strdup_printf ("%s %u/%u, guarantee %d", word, state->n_reachable, state->n_stripes, state->guarantee);
}

char *ecfs_archive_brief (EcfsArchive *self)
{
    EcfsTotals totals = {0};
    unsigned n_down = 0;
    g_autoptr (GString) down = g_string_new (NULL);
    g_autoptr (GString) text = g_string_new (NULL);
    size_t n_endpoints = ecfs_archive_n_endpoints (self), n_left = ecfs_archive_n_left (self);
    for (size_t i = 0; i < n_endpoints; i++) {
        if (self->endpoints[i].state == ECFS_ENDPOINT_REMOVED || ecfs_archive_reaches (&self->endpoints[i]))
            continue;
        g_string_append_printf (down, "%s%s", n_down > 0 ? ", " : "", self->endpoints[i].name);
        n_down++;
    }
    if (n_down > 0)
        g_string_append_printf (text, "degraded: %u of %zu endpoints %s down: %s", n_down, n_left,
                                n_down == 1 ? "is" : "are", down->str);
    else
        g_string_append_printf (text, "all %zu endpoints are up", n_left);
    (void) ecfs_catalog_totals (self->catalog, &totals, NULL); /* zeros: whoever changes something is told the error */
    if (totals.n_staged > 0)
        g_string_append_printf (text, "; %" PRIu64 " %s staged", totals.n_staged,
                                totals.n_staged == 1 ? "file is" : "files are");
    if (totals.n_not_full > 0)
        g_string_append_printf (text, "; %" PRIu64 " %s stripes", totals.n_not_full,
                                totals.n_not_full == 1 ? "object lacks" : "objects lack");
    return g_string_free (g_steal_pointer (&text), FALSE);
}
