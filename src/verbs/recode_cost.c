/* What a change of code takes: object by object, and summed up for who asks before it is done. */
#include "verbs/recode.h"

#include "archive/common.h"
#include "archive/places_of.h"
#include "object/format.h"
#include "verbs/price.h"

#include <inttypes.h>
#include <json-glib/json-glib.h>
#include <sys/stat.h>

/* One object */

bool ecfs_recode_check_key (const EcfsArchive *archive, GError **error)
{
    const char *directory = ecfs_archive_directory (archive);
    return ecfs_archive_keys (archive) != NULL ||
           ecfs_fail (error, EINVAL, "%s has no key to seal with: 'ecfs key init %s' gives it one", directory,
                      directory);
}

/* Whether it is under the key that new objects get. */
static bool is_sealed (const EcfsArchive *archive, const EcfsObjectRow *object)
{
    const EcfsKeyRing *keys = ecfs_archive_keys (archive);
    return object->seal.kind != ECFS_SEAL_NONE && ecfs_uuid_equal (&object->seal.key, ecfs_key_ring_active (keys));
}

/* What is in a log comes to be in a pack anyway, but not at once, and has no more copies than its code asked for. */
static bool shared_step (EcfsArchive *archive, const EcfsObjectRow *object, const char *code, EcfsRecodeStep *ret_step,
                         GError **error)
{
    EcfsRecodeStep step = {.packs = true, .before = ecfs_archive_codec (archive, object->code, error)};
    step.codec = code == NULL || step.before == NULL ? step.before
                                                     : ecfs_archive_object_codec (archive, code, object->size, error);
    bool mixed = false;
    if (step.codec == NULL || !ecfs_archive_object_is_mixed (archive, object->id, &mixed, error))
        return false;
    step.stays = code == NULL
                     ? is_sealed (archive, object)
                     : object->kind == ECFS_OBJECT_PACK && strcmp (object->code, ecfs_codec_identity (step.codec)) == 0;
    step.stays = step.stays && !mixed; /* files of other rules go into packs of their own */
    step.n_stored = step.stays ? 0 : ecfs_codec_n (step.codec);
    *ret_step = step;
    return true;
}

bool ecfs_recode_step (EcfsArchive *archive, const EcfsObjectRow *object, const char *code, bool packs_small,
                       EcfsRecodeStep *ret_step, GError **error)
{
    if (object->kind != ECFS_OBJECT_WHOLE || (packs_small && object->size <= ecfs_archive_config (archive)->small_file))
        return shared_step (archive, object, code, ret_step, error);
    EcfsRecodeStep step = {.before = ecfs_archive_codec (archive, object->code, error)};
    if (code == NULL && step.before != NULL) {
        step.codec = step.before;
        step.stays = is_sealed (archive, object);
        step.n_stored = step.stays ? 0 : ecfs_codec_n (step.codec);
        step.spools = !step.stays;
        *ret_step = step;
        return true;
    }
    step.codec = step.before == NULL ? NULL : ecfs_archive_object_codec (archive, code, object->size, error);
    if (step.codec == NULL)
        return false;
    bool shares = ecfs_codec_shares_stripes (step.before, step.codec);
    step.n_stored = ecfs_codec_n (step.codec);
    for (guint i = 0; shares && i < object->stripes->len; i++) {
        unsigned index = g_array_index (object->stripes, EcfsStripeRow, i).index;
        if (index >= ecfs_codec_n (step.codec))
            continue;
        step.keeps[index] = true;
        step.n_stored--;
    }
    step.stays = step.n_stored == 0 && ecfs_codec_n (step.before) == ecfs_codec_n (step.codec);
    step.spools = step.n_stored > 0 && !(shares && object->seal.kind != ECFS_SEAL_NONE);
    *ret_step = step;
    return true;
}

static bool load_objects (EcfsCatalog *catalog, const GArray *extents, GPtrArray *objects, GError **error)
{
    int64_t last = 0;
    for (guint i = 0; i < extents->len; i++) {
        int64_t id = g_array_index (extents, EcfsExtent, i).object;
        if (id == last) /* an object's extents follow one another */
            continue;
        EcfsObjectRow *object = ecfs_catalog_object (catalog, id, error);
        if (object == NULL)
            return false;
        g_ptr_array_add (objects, object);
        last = id;
    }
    return true;
}

GPtrArray *ecfs_recode_objects (EcfsArchive *archive, uint64_t ino, GError **error)
{
    for (unsigned attempt = 1;; attempt++) {
        g_autoptr (GError) why = NULL;
        g_autoptr (GPtrArray) objects = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_object_row_free);
        g_autoptr (GArray) extents = ecfs_catalog_extents (ecfs_archive_catalog (archive), ino, error);
        if (extents == NULL)
            return NULL;
        if (load_objects (ecfs_archive_catalog (archive), extents, objects, &why))
            return g_steal_pointer (&objects);
        if (!g_error_matches (why, ECFS_ERROR, ENOENT) || attempt == ECFS_CONTENT_ATTEMPTS) {
            g_propagate_error (error, g_steal_pointer (&why));
            return NULL;
        }
    }
}

/* Files */

typedef struct Walk {
    GHashTable *seen; /* inodes with several names */
    void (*each) (void *user, const EcfsEntry *entry);
    void *user;
} Walk;

static void meet (void *user, const EcfsEntry *entry)
{
    Walk *self = user;
    int64_t ino = (int64_t) entry->inode;
    if (S_ISREG (entry->mode) && (entry->nlink < 2 || g_hash_table_add (self->seen, g_memdup2 (&ino, sizeof ino))))
        self->each (self->user, entry);
}

bool ecfs_recode_walk (EcfsArchive *archive, const char *path, void (*each) (void *user, const EcfsEntry *entry),
                       void *user, GError **error)
{
    EcfsAttr attr;
    if (!ecfs_catalog_resolve (ecfs_archive_catalog (archive), path, &attr, error))
        return false;
    if (!S_ISREG (attr.mode) && !S_ISDIR (attr.mode))
        return ecfs_fail (error, EINVAL, "%s is neither a file nor a directory: it has no code", path);
    Ecfs listing = {.archive = archive};
    Walk walk = {.seen = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL), .each = each, .user = user};
    bool good = ecfs_list (&listing, path, true, meet, &walk, error);
    g_hash_table_unref (walk.seen);
    return good;
}

/* Costs */

typedef struct Cost {
    double read_bytes;
    double written_bytes;
    double freed_bytes;
    double requests; /* that read, store and delete */
} Cost;

typedef struct Sum {
    EcfsArchive *archive;
    const char *code; /* NULL: they are sealed */
    EcfsRecodeChoice *choose;
    void *chooser;
    uint64_t n_files, n_recoded, n_staged, n_objects, n_in_place, n_unreadable, content_bytes;
    size_t n_endpoints; /* at first: some may be added meanwhile */
    Cost *costs;        /* of each, by position */
    GError *error;
} Sum;

static Cost *cost_at (Sum *self, int64_t endpoint)
{
    for (size_t i = 0; i < self->n_endpoints; i++)
        if (ecfs_archive_endpoint (self->archive, i)->id == endpoint)
            return &self->costs[i];
    return NULL;
}

/* Bytes of a stripe in the new code; what surrounds the packets tells of the same files as in the old. */
static double new_stripe_bytes (const Sum *self, const EcfsObjectRow *object, const EcfsRecodeStep *step,
                                const EcfsLayout *before, GError **error)
{
    uint64_t size = g_array_index (object->stripes, EcfsStripeRow, 0).size;
    uint64_t around = size - MIN (size, before->header_bytes + ecfs_layout_area_bytes (before));
    size_t granule = ecfs_codec_granule (step->codec);
    EcfsStripeHeader header = {
        .segment_bytes = object->segment_bytes, .block_bytes = object->block_bytes, .seal = object->seal};
    EcfsLayout layout;
    ecfs_stripe_header_set_code (&header, step->codec);
    if (self->code == NULL || !ecfs_codec_shares_stripes (step->before, step->codec)) {
        header.segment_bytes = ecfs_layout_segment_bytes (ecfs_archive_config (self->archive)->segment_size,
                                                          ecfs_codec_k (step->codec), granule);
        header.block_bytes = ecfs_layout_written_block_bytes (granule);
        header.seal = ecfs_seal_new (ecfs_archive_keys (self->archive));
    }
    g_byte_array_unref (ecfs_stripe_header_format (&header, NULL)); /* for header_bytes */
    if (!ecfs_stripe_layout (&header, object->size, &layout, error))
        return -1;
    return (double) (around + header.header_bytes + ecfs_layout_area_bytes (&layout));
}

/* Data stripes, as far as they are there; each segment takes a request of its own. */
static bool add_reading (Sum *self, const EcfsObjectRow *object, const EcfsCodec *codec, const EcfsLayout *layout)
{
    bool wanted[ECFS_CODEC_MAX_N] = {0}, available[ECFS_CODEC_MAX_N] = {0}, sources[ECFS_CODEC_MAX_N];
    double costs[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++) {
        wanted[i] = i < ecfs_codec_k (codec);
        costs[i] = wanted[i] ? 1 : 1.001;
    }
    for (guint i = 0; i < object->stripes->len; i++)
        available[g_array_index (object->stripes, EcfsStripeRow, i).index] = true;
    if (!ecfs_codec_choose (codec, wanted, available, costs, sources))
        return false;
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        Cost *cost = cost_at (self, stripe->endpoint);
        if (cost == NULL || !sources[stripe->index])
            continue;
        cost->read_bytes += (double) ecfs_layout_area_bytes (layout);
        cost->requests += (double) ecfs_layout_n_segments (layout);
    }
    return true;
}

/* Of one of @stripes that have @bytes together. */
static double store_requests (const Sum *self, size_t position, double bytes, double stripes)
{
    const EcfsEndpoint *endpoint = ecfs_archive_endpoint (self->archive, position)->endpoint;
    return stripes == 0 ? 0 : (double) ecfs_endpoint_store_requests (endpoint, (uint64_t) (bytes / stripes));
}

/* Which endpoints will take the new stripes is decided when they are stored: evenly those that have none that stays. */
static void add_writing (Sum *self, const EcfsObjectRow *object, const EcfsRecodeStep *step, double bytes,
                         double stripes)
{
    size_t n = self->n_endpoints, n_takers = 0;
    g_autofree bool *takes = g_new0 (bool, n + 1);
    for (size_t i = 0; i < n; i++)
        takes[i] = ecfs_archive_endpoint (self->archive, i)->endpoint != NULL &&
                   ecfs_archive_endpoint (self->archive, i)->state == ECFS_ENDPOINT_ACTIVE;
    for (guint i = 0; i < object->stripes->len && !ecfs_archive_config (self->archive)->allow_double; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        for (size_t j = 0; step->keeps[stripe->index] && j < n; j++)
            takes[j] = takes[j] && ecfs_archive_endpoint (self->archive, j)->id != stripe->endpoint;
    }
    for (size_t i = 0; i < n; i++)
        n_takers += takes[i];
    for (size_t i = 0; i < n; i++)
        if (takes[i]) {
            self->costs[i].written_bytes += bytes / (double) n_takers;
            self->costs[i].requests += stripes / (double) n_takers * store_requests (self, i, bytes, stripes);
        }
}

static void add_freeing (Sum *self, const EcfsObjectRow *object, const EcfsRecodeStep *step)
{
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        Cost *cost = cost_at (self, stripe->endpoint);
        if (cost == NULL || step->keeps[stripe->index])
            continue;
        cost->freed_bytes += (double) stripe->size;
        cost->requests++;
    }
}

/* A part of an object: only it is read, and what it had becomes free when the others have gone, too. */
static void add_part (Sum *self, const EcfsObjectRow *object, const EcfsRecodeStep *step, uint64_t size)
{
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        Cost *cost = stripe->index < ecfs_codec_k (step->before) ? cost_at (self, stripe->endpoint) : NULL;
        if (cost == NULL)
            continue;
        cost->read_bytes += (double) size / ecfs_codec_k (step->before);
        cost->requests++;
    }
    self->content_bytes += size;
    /* It shares its new stripes: their requests are as good as none. */
    add_writing (self, object, step, (double) size * ecfs_codec_n (step->codec) / ecfs_codec_k (step->codec), 0);
}

static bool add_object (Sum *self, const EcfsObjectRow *object, uint64_t file_size, bool *ret_changes, GError **error)
{
    EcfsRecodeStep step;
    EcfsLayout layout;
    if (!ecfs_recode_step (self->archive, object, self->code, self->choose != NULL && object->size == file_size, &step,
                           error))
        return false;
    if (step.stays)
        return true;
    *ret_changes = true;
    if (step.packs) {
        add_part (self, object, &step, MIN (file_size, object->size));
        return true;
    }
    self->n_objects++;
    bool anew = self->code == NULL || !ecfs_codec_shares_stripes (step.before, step.codec);
    self->n_in_place += !anew;
    self->content_bytes += object->size;
    add_freeing (self, object, &step);
    if (step.n_stored == 0)
        return true;
    if (!ecfs_archive_layout (self->archive, object, &layout, error))
        return false;
    if (!add_reading (self, object, step.before, &layout)) {
        self->n_unreadable++;
        return true;
    }
    double bytes = new_stripe_bytes (self, object, &step, &layout, error);
    add_writing (self, object, &step, bytes * step.n_stored, step.n_stored);
    return bytes >= 0;
}

static void add_file (void *user, const EcfsEntry *entry)
{
    Sum *self = user;
    bool changes = false;
    self->n_files++;
    self->n_staged += entry->staged;
    if (self->error != NULL || entry->staged)
        return;
    if (self->choose != NULL && (self->code = self->choose (self->chooser, entry)) == NULL)
        return;
    g_autoptr (GPtrArray) objects = ecfs_recode_objects (self->archive, entry->inode, &self->error);
    for (guint i = 0; objects != NULL && self->error == NULL && i < objects->len; i++)
        (void) add_object (self, g_ptr_array_index (objects, i), entry->size, &changes,
                           &self->error); /* told at the end */
    self->n_recoded += changes;
    if (g_error_matches (self->error, ECFS_ERROR, ENOENT)) /* deleted meanwhile */
        g_clear_error (&self->error);
}

static void put_cost (JsonObject *to, const Cost *cost)
{
    json_object_set_int_member (to, "read_bytes", (int64_t) (cost->read_bytes + 0.5));
    json_object_set_int_member (to, "written_bytes", (int64_t) (cost->written_bytes + 0.5));
    json_object_set_int_member (to, "freed_bytes", (int64_t) (cost->freed_bytes + 0.5));
}

static char *to_json (const Sum *self, const char *path)
{
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    JsonObject *object = json_object_new ();
    JsonArray *endpoints = json_array_new ();
    Cost all = {0};
    EcfsPriceSum price = {.is_known = false};
    json_node_take_object (node, object);
    g_autofree char *shown = g_utf8_make_valid (path, -1);
    json_object_set_string_member (object, "path", shown);
    if (self->choose == NULL && self->code != NULL)
        json_object_set_string_member (object, "code", self->code);
    json_object_set_boolean_member (object, "seal", self->choose == NULL && self->code == NULL);
    json_object_set_int_member (object, "files", (int64_t) self->n_files);
    json_object_set_int_member (object, "files_recoded", (int64_t) self->n_recoded);
    json_object_set_int_member (object, "files_staged", (int64_t) self->n_staged);
    json_object_set_int_member (object, "objects", (int64_t) self->n_objects);
    json_object_set_int_member (object, "objects_in_place", (int64_t) self->n_in_place);
    json_object_set_int_member (object, "objects_unreadable", (int64_t) self->n_unreadable);
    json_object_set_int_member (object, "content_bytes", (int64_t) self->content_bytes);
    for (size_t i = 0; i < self->n_endpoints; i++) {
        JsonObject *endpoint = json_object_new ();
        json_object_set_string_member (endpoint, "name", ecfs_archive_endpoint (self->archive, i)->name);
        put_cost (endpoint, &self->costs[i]);
        json_array_add_object_element (endpoints, endpoint);
        ecfs_price_add (&price, ecfs_archive_endpoint (self->archive, i), self->costs[i].read_bytes,
                        self->costs[i].requests);
        all.read_bytes += self->costs[i].read_bytes;
        all.written_bytes += self->costs[i].written_bytes;
        all.freed_bytes += self->costs[i].freed_bytes;
    }
    put_cost (object, &all);
    ecfs_price_put (&price, object);
    json_object_set_array_member (object, "endpoints", endpoints);
    return json_to_string (node, TRUE);
}

static void sum_clear (Sum *self)
{
    g_free (self->costs);
    g_clear_error (&self->error);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Sum, sum_clear)

/* Adds up what is at and below the path. */
static bool add_all (Sum *self, const char *path, GError **error)
{
    self->n_endpoints = ecfs_archive_n_endpoints (self->archive);
    self->costs = g_new0 (Cost, self->n_endpoints + 1);
    if (!ecfs_recode_walk (self->archive, path, add_file, self, error))
        return false;
    if (self->error == NULL)
        return true;
    g_propagate_error (error, g_steal_pointer (&self->error));
    return false;
}

static char *cost_of (EcfsArchive *archive, const char *path, const char *code, GError **error)
{
    g_auto (Sum) sum = {.archive = archive, .code = code};
    return add_all (&sum, path, error) ? to_json (&sum, path) : NULL;
}

char *ecfs_recode_cost_chosen (EcfsArchive *archive, const char *path, EcfsRecodeChoice *choose, void *chooser,
                               GError **error)
{
    g_auto (Sum) sum = {.archive = archive, .choose = choose, .chooser = chooser};
    return add_all (&sum, path, error) ? to_json (&sum, path) : NULL;
}

bool ecfs_recode_count_chosen (EcfsArchive *archive, EcfsRecodeChoice *choose, void *chooser, uint64_t *ret_files,
                               uint64_t *ret_bytes, GError **error)
{
    g_auto (Sum) sum = {.archive = archive, .choose = choose, .chooser = chooser};
    if (!add_all (&sum, "/", error))
        return false;
    *ret_files = sum.n_recoded;
    *ret_bytes = sum.content_bytes;
    return true;
}

char *ecfs_recode_cost (Ecfs *self, const char *path, const char *code, GError **error)
{
    EcfsArchive *archive = self->archive;
    const EcfsCodec *codec =
        ecfs_archive_check_code (archive, code, error) ? ecfs_archive_codec (archive, code, error) : NULL;
    return codec == NULL ? NULL : cost_of (archive, path, ecfs_codec_code (codec), error);
}

char *ecfs_recode_seal_cost (Ecfs *self, const char *path, GError **error)
{
    return ecfs_recode_check_key (self->archive, error) ? cost_of (self->archive, path, NULL, error) : NULL;
}
