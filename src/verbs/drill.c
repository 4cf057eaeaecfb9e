/*
 * A drill that reads: the archive without some endpoints.
 *
 * The sample is drawn without replacement while the objects go by in the order of the catalog (selection sampling,
 * Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S), so that memory does not grow with the archive. Each
 * batch of it is read twice, once without the endpoints and once with all, in turns one first and the other; both are
 * timed.
 *
 * What the sample would have noticed: of N objects n are drawn, so with D that cannot be read none of these comes up
 * with the hypergeometric probability C(N - D, n) / C(N, n), see sample.h.
 */
#include "archive/common.h"
#include "archive/content.h"
#include "archive/standing.h"
#include "check/check.h"
#include "util/sample.h"
#include "util/xxh3.h"
#include "verbs/drill_priv.h"
#include "verbs/price.h"

#include <inttypes.h>
#include <math.h>

#define TICK_OBJECTS 256 /* are considered between looks at who cancels */
#define READ_BATCH   64  /* objects that are read one way and then the other */
#define N_WORKERS    8
#define PIECE_BYTES  (1u << 20)
#define TICK_US      200000
#define MOST_TOLD    1000 /* failures in the report */

typedef struct Drill {
    EcfsArchive *archive;
    const EcfsDrill *what;
    EcfsTally tally;
    bool *without; /* by position of the endpoint */
    size_t n_endpoints;
    EcfsMonthUse *sent_before; /* n_endpoints */
    bool has_key;              /* it comes back */
    EcfsDrillSample sample;
    uint64_t n_doomed;  /* of all, that the catalog knows to be unreadable without the endpoints */
    uint64_t n_sampled; /* that are there still */
    uint64_t n_unreadable, n_broken;
    uint64_t bytes;
    int64_t took_us[2]; /* without, and with all */
    JsonArray *failures;
    EcfsKnownDamage damage; /* as it was known when the drill began */
    GPtrArray *batch;       /* of Item */
    unsigned n_batches;
    atomic_bool cancelled;
    EcfsWorkers *workers;
    EcfsPending answers;
} Drill;

/* An object of the sample. */
typedef struct Item {
    Drill *drill;
    int64_t object;
    uint64_t size;
    bool gone;        /* deleted meanwhile */
    GError *error[2]; /* without, and with all */
    bool all;         /* how it is being read */
} Item;

static void item_free (gpointer data)
{
    Item *item = data;
    g_clear_error (&item->error[0]);
    g_clear_error (&item->error[1]);
    g_free (item);
}

/* Reading, on a worker */

static bool read_all (const Drill *self, EcfsContent *content, XXH3_state_t *state, EcfsSha256 *sha256, GError **error)
{
    g_autofree void *piece = g_malloc (PIECE_BYTES);
    uint64_t size = ecfs_content_size (content);
    for (uint64_t offset = 0; offset < size;) {
        size_t got = 0;
        if (atomic_load (&self->cancelled))
            return ecfs_fail (error, ECANCELED, "cancelled");
        if (!ecfs_content_read_wait (content, offset, (size_t) MIN (size - offset, PIECE_BYTES), piece, &got, error))
            return false;
        if (got == 0)
            return ecfs_fail (error, EIO, "it ends before its size");
        ecfs_xxh3_128_update (state, piece, got);
        ecfs_sha256_update (sha256, piece, got);
        offset += got;
    }
    return true;
}

static bool read_object (const Drill *self, EcfsContent *content, GError **error)
{
    XXH128_canonical_t digest;
    uint8_t found[ECFS_SHA256_SIZE];
    XXH3_state_t *state = XXH3_createState ();
    g_autoptr (EcfsSha256) sha256 = ecfs_sha256_new ();
    (void) XXH3_128bits_reset (state); /* fails for invalid arguments only */
    bool good = read_all (self, content, state, sha256, error);
    ecfs_sha256_end (sha256, found);
    XXH128_canonicalFromHash (&digest, XXH3_128bits_digest (state));
    (void) XXH3_freeState (state); /* likewise */
    const EcfsObjectRow *object = ecfs_content_object (content, 0);
    if (!good)
        return false;
    const bool has_digest = object->kind != ECFS_OBJECT_LOG && object->seal.kind == ECFS_SEAL_NONE;
    if (has_digest && memcmp (digest.digest, object->digest, ECFS_DIGEST_SIZE) != 0)
        return ecfs_fail (error, EBADMSG, "what was read is not what was stored: its digest differs");
    return !object->has_sha256 || memcmp (found, object->sha256, sizeof found) == 0 ||
           ecfs_fail (error, EBADMSG,
                      "its checksums fit, but its SHA-256 is not that of what was stored: an endpoint returns other "
                      "bytes than it got: ecfs-fsck --deep finds out which");
}

/* Whether the object is gone or has got other stripes since the content was opened, here or by somebody else. */
static bool has_changed (Drill *self, const EcfsContent *content, bool *ret_gone)
{
    g_autoptr (GError) error = NULL;
    const EcfsObjectRow *object = ecfs_content_object (content, 0);
    g_autoptr (EcfsObjectRow) now = ecfs_catalog_object (ecfs_archive_catalog (self->archive), object->id, &error);
    *ret_gone = now == NULL && error->code == ENOENT;
    for (guint i = 0; now != NULL && i < now->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (now->stripes, EcfsStripeRow, i);
        bool found = false;
        for (guint j = 0; j < object->stripes->len; j++)
            found |= g_array_index (object->stripes, EcfsStripeRow, j).instance == stripe->instance;
        if (!found)
            return true;
    }
    return *ret_gone;
}

/* Once, and once more where it was changed meanwhile. */
static void read_item (Item *item)
{
    Drill *self = item->drill;
    for (bool again = true; again;) {
        GError *error = NULL;
        EcfsContent *content = ecfs_content_open_object (self->archive, item->object, &error);
        if (content == NULL) {
            item->gone = error->code == ENOENT;
            item->error[item->all] = error;
            return;
        }
        if (!item->all)
            ecfs_content_leave_out (content, self->without);
        again = !read_object (self, content, &error) && error->code != ECANCELED &&
                has_changed (self, content, &item->gone) && !item->gone;
        ecfs_content_unref (content);
        if (again)
            g_clear_error (&error);
        item->error[item->all] = error;
    }
}

static void read_job (void *data)
{
    Item *item = data;
    Drill *self = item->drill;
    read_item (item);
    ecfs_mutex_lock (&self->answers.lock);
    ecfs_pending_note_locked (&self->answers);
    ecfs_mutex_unlock (&self->answers.lock);
}

/* The caller's thread */

static bool tick (void *user)
{
    Drill *self = user;
    self->tally.wire_bytes = ecfs_archive_wire_bytes (self->archive);
    if (!ecfs_tally_tick (&self->tally))
        atomic_store (&self->cancelled, true);
    return !atomic_load (&self->cancelled);
}

static void read_batch_one_way (Drill *self, bool all)
{
    const EcfsCheckBatch asking = {.archive = self->archive, .tick = tick, .user = self};
    int64_t began_us = ecfs_now_us ();
    ecfs_pending_expect (&self->answers, self->batch->len);
    for (guint i = 0; i < self->batch->len; i++) {
        Item *item = g_ptr_array_index (self->batch, i);
        item->all = all;
        ecfs_workers_push (self->workers, read_job, item);
    }
    (void) ecfs_pending_await (&self->answers, &asking); /* who cancels is remembered */
    self->took_us[all] += ecfs_now_us () - began_us;
}

static void tell_failure (Drill *self, const Item *item)
{
    uint64_t ino, n_files = 1;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    const char *why = item->error[0] != NULL ? item->error[0]->message : item->error[1]->message;
    g_autofree char *path = ecfs_catalog_object_file (catalog, item->object, &ino, NULL)
                                ? ecfs_catalog_path (catalog, ino)
                                : g_strdup_printf ("object %" G_GINT64_FORMAT, item->object);
    (void) ecfs_catalog_object_files (catalog, item->object, &n_files, NULL); /* else one */
    g_autofree char *others =
        n_files > 1 ? g_strdup_printf (" and %" PRIu64 " more files", n_files - 1) : g_strdup ("");
    ecfs_tally_failed (&self->tally, g_error_new (ECFS_ERROR, EIO, "%s%s: %s", path, others, why));
    if (json_array_get_length (self->failures) >= MOST_TOLD)
        return;
    JsonObject *failure = json_object_new ();
    g_autofree char *utf8 = g_utf8_make_valid (path, -1), *text = g_utf8_make_valid (why, -1);
    json_object_set_string_member (failure, "path", utf8);
    json_object_set_int_member (failure, "files", (int64_t) n_files);
    json_object_set_int_member (failure, "object", item->object);
    json_object_set_int_member (failure, "size", (int64_t) item->size);
    json_object_set_string_member (failure, "error", text);
    json_object_set_boolean_member (failure, "readable_with_all", item->error[1] == NULL);
    json_array_add_object_element (self->failures, failure);
}

static void conclude (Drill *self, const Item *item)
{
    if (item->gone || atomic_load (&self->cancelled))
        return;
    self->n_sampled++;
    self->bytes += item->size;
    self->n_unreadable += item->error[0] != NULL;
    self->n_broken += item->error[1] != NULL;
    if (item->error[0] != NULL || item->error[1] != NULL) {
        tell_failure (self, item);
        return;
    }
    self->tally.progress.n_done++;
    self->tally.progress.bytes_done += item->size;
}

static void read_batch (Drill *self)
{
    bool all_first = self->n_batches++ % 2 != 0;
    read_batch_one_way (self, all_first);
    read_batch_one_way (self, !all_first);
    for (guint i = 0; i < self->batch->len; i++)
        conclude (self, g_ptr_array_index (self->batch, i));
    g_ptr_array_set_size (self->batch, 0);
}

/* Choosing */

void ecfs_drill_standing (EcfsArchive *archive, const EcfsObjectRow *object, const EcfsCodec *codec,
                          EcfsKnownDamage *damage, EcfsStanding *ret_standing)
{
    bool damaged[ECFS_CODEC_MAX_N];
    ecfs_damage_of (damage, object->id, damaged);
    ecfs_object_standing (archive, object, codec, object->size, damaged, ret_standing);
    for (unsigned i = 0; i < ret_standing->n; i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, (int64_t) ret_standing->holder[i]);
        ret_standing->held[i] = ret_standing->held[i] && ecfs_archive_endpoint_counts (endpoint);
        ret_standing->holder[i] = ret_standing->held[i] ? ecfs_archive_position (archive, endpoint) : 0;
    }
}

bool ecfs_drill_sample_begin (EcfsDrillSample *self, EcfsArchive *archive, const EcfsDrill *what, GError **error)
{
    EcfsTotals totals;
    const guint32 seeds[] = {(guint32) what->seed, (guint32) (what->seed >> 32)};
    if (!(what->percent > 0 && what->percent <= 100))
        return ecfs_fail (error, EINVAL, "a sample is more than 0%% and at most 100%% of the objects");
    if (!ecfs_catalog_totals (ecfs_archive_catalog (archive), &totals, error))
        return false;
    double wanted = ceil ((double) totals.n_objects * what->percent / 100);
    *self = (EcfsDrillSample){.random = g_rand_new_with_seed_array (seeds, G_N_ELEMENTS (seeds)),
                              .n_objects = totals.n_objects,
                              .n_wanted = MIN ((uint64_t) MAX (wanted, 1), totals.n_objects)};
    return true;
}

void ecfs_drill_sample_clear (EcfsDrillSample *self)
{
    g_clear_pointer (&self->random, g_rand_free);
}

bool ecfs_drill_sample_draws (EcfsDrillSample *self)
{
    uint64_t n_left = self->n_objects - MIN (self->n_seen, self->n_objects);
    self->n_seen++;
    bool draws =
        n_left > 0 && g_rand_double (self->random) * (double) n_left < (double) (self->n_wanted - self->n_drawn);
    self->n_drawn += draws;
    return draws;
}

static bool consider (void *user, const EcfsObjectRow *object, GError **error)
{
    Drill *self = user;
    EcfsStanding standing;
    const EcfsCodec *codec = ecfs_archive_codec (self->archive, object->code, error);
    if (codec == NULL)
        return false;
    ecfs_drill_standing (self->archive, object, codec, &self->damage, &standing);
    for (unsigned i = 0; i < standing.n; i++)
        standing.held[i] = standing.held[i] && !self->without[standing.holder[i]];
    self->n_doomed += !ecfs_codec_decodable (codec, standing.held);
    if (self->sample.n_seen % TICK_OBJECTS == 0 && !tick (self))
        return ecfs_fail (error, ECANCELED, "cancelled");
    if (!ecfs_drill_sample_draws (&self->sample))
        return true;
    Item *item = g_new0 (Item, 1);
    *item = (Item){.drill = self, .object = object->id, .size = object->size};
    self->tally.progress.n_found++;
    g_ptr_array_add (self->batch, item);
    if (self->batch->len == READ_BATCH)
        read_batch (self);
    return true;
}

static bool walk (Drill *self, GError **error)
{
    if (!ecfs_catalog_each_object (ecfs_archive_catalog (self->archive), consider, self, error))
        return false;
    read_batch (self);
    return tick (self) || ecfs_fail (error, ECANCELED, "cancelled");
}

/* Reporting */

static void note_sent (Drill *self)
{
    self->n_endpoints = ecfs_archive_n_endpoints (self->archive);
    self->sent_before = g_new0 (EcfsMonthUse, self->n_endpoints + 1);
    for (size_t i = 0; i < self->n_endpoints; i++)
        if (ecfs_archive_endpoint (self->archive, i)->endpoint != NULL)
            ecfs_endpoint_sent (ecfs_archive_endpoint (self->archive, i)->endpoint, &self->sent_before[i]);
}

/* What all that was asked since costs. */
static void add_cost (const Drill *self, JsonObject *report)
{
    EcfsPriceSum sum = {.is_known = false};
    for (size_t i = 0; i < self->n_endpoints; i++) {
        EcfsMonthUse sent;
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        if (endpoint->endpoint == NULL)
            continue;
        ecfs_endpoint_sent (endpoint->endpoint, &sent);
        ecfs_price_add (&sum, endpoint, (double) (sent.egress_bytes - self->sent_before[i].egress_bytes),
                        (double) (sent.requests - self->sent_before[i].requests));
    }
    ecfs_price_put (&sum, report);
}

/* What would have been noticed: a single object, and parts of all. */
static void add_notices (const Drill *self, JsonObject *report)
{
    static const double parts[] = {0, 0.001, 0.01, 0.1};
    JsonArray *notices = json_array_new ();
    uint64_t last = 0;
    for (size_t i = 0; i < G_N_ELEMENTS (parts); i++) {
        uint64_t n_bad = MAX ((uint64_t) ceil (parts[i] * (double) self->sample.n_objects), 1);
        if (n_bad == last || n_bad > self->sample.n_objects)
            continue;
        last = n_bad;
        JsonObject *notice = json_object_new ();
        json_object_set_int_member (notice, "objects", (int64_t) n_bad);
        json_object_set_double_member (notice, "probability",
                                       ecfs_sample_notices (self->sample.n_objects, self->n_sampled, n_bad));
        json_array_add_object_element (notices, notice);
    }
    json_object_set_array_member (report, "notices", notices);
    json_object_set_double_member (report, "confidence", ECFS_SAMPLE_CONFIDENCE);
    json_object_set_int_member (report, "unreadable_at_most",
                                (int64_t) ecfs_sample_most_bad (self->sample.n_objects, self->n_sampled,
                                                                self->n_unreadable, ECFS_SAMPLE_CONFIDENCE));
}

static void report_reading (const Drill *self, JsonObject *report)
{
    JsonArray *without = json_array_new ();
    for (const char *const *name = self->what->without; *name != NULL; name++)
        json_array_add_string_element (without, *name);
    json_object_set_array_member (report, "without", without);
    json_object_set_int_member (report, "seed", (int64_t) self->what->seed);
    json_object_set_int_member (report, "objects", (int64_t) self->sample.n_objects);
    json_object_set_int_member (report, "unreadable_by_catalog", (int64_t) self->n_doomed);
    json_object_set_int_member (report, "sampled", (int64_t) self->n_sampled);
    json_object_set_int_member (report, "bytes", (int64_t) self->bytes);
    json_object_set_int_member (report, "unreadable", (int64_t) self->n_unreadable);
    json_object_set_int_member (report, "unreadable_with_all", (int64_t) self->n_broken);
    json_object_set_double_member (report, "seconds", (double) self->took_us[0] / G_USEC_PER_SEC);
    json_object_set_double_member (report, "seconds_with_all", (double) self->took_us[1] / G_USEC_PER_SEC);
    json_object_set_array_member (report, "failures", json_array_ref (self->failures));
    add_cost (self, report);
    add_notices (self, report);
}

/* The drill */

bool *ecfs_drill_without (EcfsArchive *archive, const char *const *names, GError **error)
{
    size_t n = ecfs_archive_n_endpoints (archive);
    bool *without = g_new0 (bool, ECFS_ENDPOINTS_MAX); /* there may be more of them meanwhile */
    for (const char *const *name = names; *name != NULL; name++) {
        size_t at = 0;
        while (at < n && strcmp (ecfs_archive_endpoint (archive, at)->name, *name) != 0)
            at++;
        if (at == n) {
            (void) !ecfs_fail (error, EINVAL, "there is no endpoint \"%s\": \"ecfs endpoint list\" shows their names",
                               *name); /* told by NULL */
            g_free (without);
            return NULL;
        }
        without[at] = true;
    }
    return without;
}

static bool run (Drill *self, JsonObject *report, GError **error)
{
    self->without = ecfs_drill_without (self->archive, self->what->without, error);
    if (self->without == NULL || !ecfs_damage_load (self->archive, &self->damage, error) ||
        !ecfs_drill_sample_begin (&self->sample, self->archive, self->what, error))
        return false;
    note_sent (self);
    self->batch = g_ptr_array_new_with_free_func (item_free);
    self->failures = json_array_new ();
    self->workers = ecfs_workers_new ("ecfs-drill", N_WORKERS);
    bool done = walk (self, error);
    ecfs_workers_free (self->workers);
    if (done)
        report_reading (self, report);
    done = done && ecfs_drill_key (self->archive, self->without, report, &self->has_key, error);
    g_ptr_array_unref (self->batch);
    json_array_unref (self->failures);
    return done;
}

static bool read_sample (EcfsArchive *archive, const EcfsDrill *what, JsonObject *report, bool *ret_good,
                         GError **error)
{
    Drill self = {.archive = archive, .what = what, .tally = {.transfer = what->transfer}};
    atomic_init (&self.cancelled, false);
    ecfs_pending_init (&self.answers);
    bool done = run (&self, report, error);
    g_autoptr (GError) first = NULL;
    (void) ecfs_tally_end (&self.tally, "could not be read", &first); /* the report tells */
    ecfs_pending_clear (&self.answers);
    ecfs_damage_clear (&self.damage);
    ecfs_drill_sample_clear (&self.sample);
    g_free (self.without);
    g_free (self.sent_before);
    *ret_good = self.n_unreadable == 0 && self.n_broken == 0 && self.has_key;
    return done;
}

char *ecfs_drill (Ecfs *self, const EcfsDrill *what, bool *ret_good, GError **error)
{
    g_autoptr (JsonObject) report = json_object_new ();
    bool done = what->without != NULL ? read_sample (self->archive, what, report, ret_good, error)
                                      : ecfs_drill_sets (self->archive, report, ret_good, error);
    if (!done)
        return NULL;
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_set_object (node, report);
    return json_to_string (node, TRUE);
}
