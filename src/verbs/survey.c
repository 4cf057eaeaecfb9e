#include "verbs/survey.h"

#define WALK_BATCH  4096    /* extents */
#define MOST_KINDS  20000   /* of objects that two more losses may take; more are not tried */
#define MOST_TRIALS 5000000 /* of a kind without a set */
#define MOST_TOLD   300     /* sets: all of 24 endpoints */

/* How safe an object or a file is. */
typedef struct Safety {
    int16_t guarantee;
    bool full;
} Safety;

typedef struct FileSum {
    Safety safety;
    uint64_t n_files;
    uint64_t bytes;
} FileSum;

/* What an endpoint has. */
typedef struct Share {
    uint64_t n_stripes;
    uint64_t n_damaged; /* of these, as far as that is known */
    uint64_t bytes;
    uint64_t n_by_index[ECFS_CODEC_MAX_N];
} Share;

/* One or two endpoints. */
typedef struct Loss {
    size_t set[2]; /* row ids */
    unsigned size;
    uint64_t n_objects; /* that cannot be read without them */
} Loss;

struct EcfsSurvey {
    EcfsArchive *archive;
    GArray *objects;    /* of int64_t: ids, ascending, … */
    GArray *safeties;   /* … and of Safety, in the same order */
    GHashTable *shares; /* of Share, by row id of the endpoint */
    GHashTable *kinds;  /* of what two more losses may take */
    unsigned n_indices; /* the most stripes of an object */
};

EcfsSurvey *ecfs_survey_new (EcfsArchive *archive)
{
    EcfsSurvey *self = g_new0 (EcfsSurvey, 1);
    self->archive = archive;
    self->objects = g_array_new (FALSE, FALSE, sizeof (int64_t));
    self->safeties = g_array_new (FALSE, FALSE, sizeof (Safety));
    self->shares = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, g_free);
    self->kinds = ecfs_kinds_new ();
    return self;
}

void ecfs_survey_free (EcfsSurvey *self)
{
    if (self == NULL)
        return;
    g_array_unref (self->objects);
    g_array_unref (self->safeties);
    g_hash_table_unref (self->shares);
    g_hash_table_unref (self->kinds);
    g_free (self);
}

static Share *share_of (EcfsSurvey *self, int64_t endpoint)
{
    Share *share = g_hash_table_lookup (self->shares, &endpoint);
    if (share == NULL) {
        share = g_new0 (Share, 1);
        g_hash_table_insert (self->shares, g_memdup2 (&endpoint, sizeof endpoint), share);
    }
    return share;
}

void ecfs_survey_add (EcfsSurvey *self, const EcfsObjectRow *object, const EcfsKind *kind, const bool *damaged,
                      bool full)
{
    if (self == NULL)
        return;
    const Safety safety = {.guarantee = (int16_t) kind->guarantee, .full = full};
    g_array_append_val (self->objects, object->id);
    g_array_append_val (self->safeties, safety);
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        Share *share = share_of (self, stripe->endpoint);
        if (stripe->index >= ECFS_CODEC_MAX_N)
            continue;
        share->n_stripes++;
        share->n_damaged += damaged[stripe->index];
        share->bytes += object->kind == ECFS_OBJECT_LOG && stripe->size == 0 ? object->size : stripe->size;
        share->n_by_index[stripe->index]++;
        self->n_indices = MAX (self->n_indices, stripe->index + 1U);
    }
    if (kind->guarantee >= 0 && kind->guarantee < 2 && g_hash_table_size (self->kinds) <= MOST_KINDS)
        ecfs_kinds_add (self->kinds, kind);
}

/* Files */

/* False: it was stored after the objects were looked at. */
static bool safety_of (const EcfsSurvey *self, int64_t object, Safety *ret_safety)
{
    guint low = 0, high = self->objects->len;
    while (low < high) {
        guint middle = low + (high - low) / 2;
        if (g_array_index (self->objects, int64_t, middle) < object)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == self->objects->len || g_array_index (self->objects, int64_t, low) != object)
        return false;
    *ret_safety = g_array_index (self->safeties, Safety, low);
    return true;
}

static void count_file (GArray *sums, const FileSum *file)
{
    for (guint i = 0; i < sums->len; i++) {
        FileSum *sum = &g_array_index (sums, FileSum, i);
        if (sum->safety.guarantee != file->safety.guarantee || sum->safety.full != file->safety.full)
            continue;
        sum->n_files++;
        sum->bytes += file->bytes;
        return;
    }
    g_array_append_vals (sums, file, 1);
}

/* A file is as safe as the least safe of what it consists of. */
static void take_extent (const EcfsSurvey *self, GArray *sums, FileSum *file, const EcfsFileExtent *extent, bool begins)
{
    Safety safety;
    if (begins && file->n_files > 0)
        count_file (sums, file);
    if (begins)
        *file = (FileSum){.safety = {.guarantee = INT16_MAX, .full = true}};
    if (!safety_of (self, extent->object, &safety))
        return;
    file->n_files = 1;
    file->bytes += extent->length;
    file->safety.guarantee = MIN (file->safety.guarantee, safety.guarantee);
    file->safety.full = file->safety.full && safety.full;
}

/* FileSum of all files that have stored content. */
static GArray *sum_files (EcfsSurvey *self, GError **error)
{
    uint64_t ino = 0, offset = 0;
    FileSum file = {.n_files = 0};
    g_autoptr (GArray) sums = g_array_new (FALSE, FALSE, sizeof (FileSum));
    for (bool more = true; more;) {
        g_autoptr (GArray) extents =
            ecfs_catalog_file_extents (ecfs_archive_catalog (self->archive), ino, offset, WALK_BATCH, error);
        if (extents == NULL)
            return NULL;
        for (guint i = 0; i < extents->len; i++) {
            const EcfsFileExtent *extent = &g_array_index (extents, EcfsFileExtent, i);
            take_extent (self, sums, &file, extent, extent->ino != ino);
            ino = extent->ino;
            offset = extent->offset;
        }
        more = extents->len == WALK_BATCH;
    }
    if (file.n_files > 0)
        count_file (sums, &file);
    return g_steal_pointer (&sums);
}

static int by_guarantee (gconstpointer a, gconstpointer b)
{
    const FileSum *x = a, *y = b;
    int order = x->safety.guarantee - y->safety.guarantee;
    return order != 0 ? order : x->safety.full - y->safety.full;
}

static bool add_files (EcfsSurvey *self, JsonObject *facts, GError **error)
{
    g_autoptr (GArray) sums = sum_files (self, error);
    if (sums == NULL)
        return false;
    g_array_sort (sums, by_guarantee);
    JsonArray *told = json_array_new ();
    for (guint i = 0; i < sums->len; i++) {
        const FileSum *sum = &g_array_index (sums, FileSum, i);
        JsonObject *row = json_object_new ();
        json_object_set_int_member (row, "guarantee", sum->safety.guarantee);
        json_object_set_string_member (row, "state",
                                       sum->safety.guarantee < 0 ? "unreadable"
                                       : sum->safety.full        ? "full"
                                                                 : "degraded");
        json_object_set_int_member (row, "files", (int64_t) sum->n_files);
        json_object_set_int_member (row, "bytes", (int64_t) sum->bytes);
        json_array_add_object_element (told, row);
    }
    json_object_set_array_member (facts, "files", told);
    return true;
}

/* Endpoints */

static void add_shares (EcfsSurvey *self, JsonObject *facts)
{
    JsonArray *told = json_array_new ();
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        const Share none = {.n_stripes = 0}, *share = g_hash_table_lookup (self->shares, &endpoint->id);
        if (endpoint->state == ECFS_ENDPOINT_REMOVED)
            continue;
        share = share == NULL ? &none : share;
        JsonObject *row = json_object_new ();
        JsonArray *indices = json_array_new ();
        json_object_set_string_member (row, "endpoint", endpoint->name);
        json_object_set_int_member (row, "stripes", (int64_t) share->n_stripes);
        json_object_set_int_member (row, "damaged", (int64_t) share->n_damaged);
        json_object_set_int_member (row, "bytes", (int64_t) share->bytes);
        for (unsigned index = 0; index < self->n_indices; index++)
            json_array_add_int_element (indices, (int64_t) share->n_by_index[index]);
        json_object_set_array_member (row, "by_index", indices);
        json_array_add_object_element (told, row);
    }
    json_object_set_array_member (facts, "endpoints", told);
}

/* Sets that may vanish */

/* Those of one, then those of two, of endpoints that are there: what is away is counted as lost already. */
static GArray *losses (EcfsSurvey *self, const bool *there)
{
    size_t n = ecfs_archive_n_endpoints (self->archive);
    GArray *found = g_array_new (FALSE, TRUE, sizeof (Loss));
    for (unsigned size = 1; size <= 2; size++)
        for (size_t i = 0; i < n; i++)
            for (size_t j = size == 1 ? n - 1 : i + 1; j < n; j++) {
                const EcfsArchiveEndpoint *a = ecfs_archive_endpoint (self->archive, i),
                                          *b = ecfs_archive_endpoint (self->archive, j);
                const Loss loss = {.set = {(size_t) a->id, (size_t) b->id}, .size = size};
                if (there[i] && (size == 1 || there[j]))
                    g_array_append_val (found, loss);
            }
    return found;
}

static void try_all (EcfsSurvey *self, GArray *sets)
{
    GHashTableIter iter;
    const EcfsKind *kind;
    g_hash_table_iter_init (&iter, self->kinds);
    while (g_hash_table_iter_next (&iter, NULL, (void **) &kind))
        for (guint i = 0; i < sets->len; i++) {
            Loss *loss = &g_array_index (sets, Loss, i);
            if (kind->guarantee < (int) loss->size && !ecfs_kind_survives (kind, loss->set, loss->size))
                loss->n_objects += kind->n_objects;
        }
}

static JsonObject *loss_facts (EcfsSurvey *self, const Loss *loss)
{
    JsonObject *facts = json_object_new ();
    JsonArray *names = json_array_new ();
    for (unsigned i = 0; i < loss->size; i++)
        json_array_add_string_element (names,
                                       ecfs_archive_endpoint_by_id (self->archive, (int64_t) loss->set[i])->name);
    json_object_set_array_member (facts, "without", names);
    json_object_set_int_member (facts, "objects", (int64_t) loss->n_objects);
    return facts;
}

/* Nothing where there are too many to try. */
static void add_losses (EcfsSurvey *self, const bool *there, JsonObject *facts)
{
    g_autoptr (GArray) sets = losses (self, there);
    guint n_kinds = g_hash_table_size (self->kinds);
    if (n_kinds > MOST_KINDS || (uint64_t) n_kinds * sets->len > MOST_TRIALS)
        return;
    try_all (self, sets);
    int64_t n_unsafe[3] = {0}, n_tried[3] = {0};
    JsonArray *unsafe = json_array_new ();
    for (guint i = 0; i < sets->len; i++) {
        const Loss *loss = &g_array_index (sets, Loss, i);
        n_tried[loss->size]++;
        if (loss->n_objects == 0)
            continue;
        n_unsafe[loss->size]++;
        if (json_array_get_length (unsafe) < MOST_TOLD)
            json_array_add_object_element (unsafe, loss_facts (self, loss));
    }
    JsonObject *told = json_object_new ();
    json_object_set_int_member (told, "endpoints", n_tried[1]);
    json_object_set_int_member (told, "endpoints_unsafe", n_unsafe[1]);
    json_object_set_int_member (told, "pairs", n_tried[2]);
    json_object_set_int_member (told, "pairs_unsafe", n_unsafe[2]);
    json_object_set_array_member (told, "unsafe", unsafe);
    json_object_set_object_member (facts, "losses", told);
}

JsonObject *ecfs_survey_end (EcfsSurvey *self, const bool *there, GError **error)
{
    g_autoptr (JsonObject) facts = json_object_new ();
    if (!add_files (self, facts, error))
        return NULL;
    add_shares (self, facts);
    add_losses (self, there, facts);
    return g_steal_pointer (&facts);
}
