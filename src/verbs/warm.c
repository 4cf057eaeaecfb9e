/* Files into the cache of the archive before anybody reads them, and what there is. */
#include "archive/cached.h"
#include "archive/common.h"
#include "util/lock.h"
#include "verbs/status_priv.h"
#include "verbs/verbs.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define N_WORKERS     8
#define MAX_IN_FLIGHT 24
#define DIR_BATCH     256
#define TICK_US       200000
#define ATTEMPTS      10 /* at a file that is replaced all the time */

typedef struct Warm {
    EcfsArchive *archive;
    EcfsCatalog *catalog;
    EcfsTally tally; /* the caller's thread only, as the next four */
    EcfsWorkers *workers;
    unsigned n_in_flight;
    GArray *warmed;   /* uint64_t: the inodes that were fetched */
    uint64_t missing; /* bytes of these that are not in the cache, when all were fetched */
    atomic_bool cancelled;
    EcfsMutex lock;
    EcfsCond moved;
    GQueue ended; /* WarmFile, guarded by lock */
} Warm;

typedef struct WarmFile {
    Warm *warm;
    char *path; /* NULL: it was fetched, and is counted */
    bool is_named;
    EcfsAttr attr;
    uint64_t missing; /* result, as the next two */
    bool is_gone;
    GError *error;
} WarmFile;

static bool goes_on (void *user, uint64_t bytes)
{
    const Warm *self = user;
    (void) bytes;
    return !atomic_load (&self->cancelled);
}

static void end_file (WarmFile *file)
{
    Warm *self = file->warm;
    ecfs_mutex_lock (&self->lock);
    g_queue_push_tail (&self->ended, file);
    ecfs_cond_broadcast (&self->moved);
    ecfs_mutex_unlock (&self->lock);
}

/* Whether another file has its name now. What was found in a directory may be gone. */
static bool is_another (WarmFile *file)
{
    EcfsAttr attr;
    g_autoptr (GError) why = NULL;
    if (ecfs_errno (file->error) != ENOENT)
        return false;
    bool found = ecfs_catalog_resolve (file->warm->catalog, file->path, &attr, &why);
    file->is_gone = !found && ecfs_errno (why) == ENOENT && !file->is_named;
    bool another = found && attr.ino != file->attr.ino && S_ISREG (attr.mode);
    if (another || file->is_gone)
        g_clear_error (&file->error);
    if (another)
        file->attr = attr;
    return another;
}

static void warm_file (void *data)
{
    WarmFile *file = data;
    Warm *self = file->warm;
    const EcfsWarming warming = {.tick = goes_on, .user = self};
    for (unsigned attempt = 1;; attempt++) {
        uint64_t missing;
        bool good = ecfs_archive_warm (self->archive, file->attr.ino, &warming, &missing, &file->error);
        if (good || attempt == ATTEMPTS || !is_another (file))
            break;
    }
    end_file (file);
}

/* What was fetched first may have gone again for what came last, or for what others read. */
static void count_file (void *data)
{
    WarmFile *file = data;
    Warm *self = file->warm;
    uint64_t bytes, cached;
    g_autoptr (EcfsContent) content = ecfs_content_open (self->archive, file->attr.ino, &file->error);
    if (content != NULL && ecfs_archive_cached_bytes (self->archive, content, &bytes, &cached, &file->error))
        file->missing = bytes - MIN (cached, bytes);
    if (ecfs_errno (file->error) == ENOENT) /* it was removed since */
        g_clear_error (&file->error);
    end_file (file);
}

static void conclude (Warm *self, WarmFile *file)
{
    self->n_in_flight--;
    self->missing += file->missing;
    if (file->is_gone) {
        self->tally.progress.n_found--;
    } else if (file->error == NULL && file->path != NULL) {
        g_array_append_val (self->warmed, file->attr.ino);
        self->tally.progress.n_done++;
        self->tally.progress.bytes_done += file->attr.committed_size;
    } else if (file->error != NULL && !self->tally.cancelled) {
        g_autofree char *path = file->path != NULL ? NULL : ecfs_catalog_path (self->catalog, file->attr.ino);
        g_prefix_error (&file->error, "%s: ", file->path != NULL ? file->path : path);
        ecfs_tally_failed (&self->tally, g_steal_pointer (&file->error));
    }
    g_clear_error (&file->error);
    g_free (file->path);
    g_free (file);
}

static void reap (Warm *self)
{
    int64_t deadline_us = ecfs_now_us () + TICK_US;
    GQueue ended = G_QUEUE_INIT, empty = G_QUEUE_INIT;
    ecfs_mutex_lock (&self->lock);
    while (g_queue_is_empty (&self->ended) && ecfs_cond_wait_until (&self->moved, &self->lock, deadline_us))
        ;
    ended = self->ended;
    self->ended = empty;
    ecfs_mutex_unlock (&self->lock);
    WarmFile *file;
    while ((file = g_queue_pop_head (&ended)) != NULL)
        conclude (self, file);
    self->tally.wire_bytes = ecfs_archive_wire_bytes (self->archive);
    if (!ecfs_tally_tick (&self->tally))
        atomic_store (&self->cancelled, true);
}

static void begin (Warm *self, void (*work) (void *file), const WarmFile *wanted)
{
    while (self->n_in_flight >= MAX_IN_FLIGHT)
        reap (self);
    self->n_in_flight++;
    ecfs_workers_push (self->workers, work, g_memdup2 (wanted, sizeof *wanted));
}

static void begin_file (Warm *self, const char *path, bool is_named, const EcfsAttr *attr)
{
    const WarmFile file = {.warm = self, .path = g_strdup (path), .is_named = is_named, .attr = *attr};
    self->tally.progress.n_found++;
    begin (self, warm_file, &file);
}

static void warm_entry (Warm *self, const char *path, bool is_named, const EcfsAttr *attr)
{
    int64_t after = 0;
    if (S_ISREG (attr->mode))
        begin_file (self, path, is_named, attr);
    for (guint n = S_ISDIR (attr->mode); n > 0 && !self->tally.cancelled;) {
        GError *error = NULL;
        g_autoptr (GPtrArray) entries = ecfs_catalog_readdir (self->catalog, attr->ino, after, DIR_BATCH, &error);
        n = entries == NULL ? 0 : entries->len;
        for (guint i = 0; i < n && !self->tally.cancelled; i++) {
            const EcfsDirent *entry = g_ptr_array_index (entries, i);
            g_autofree char *below = g_build_filename (path, entry->name, NULL);
            after = entry->offset;
            warm_entry (self, below, false, &entry->attr);
        }
        if (error != NULL) {
            g_prefix_error (&error, "%s: ", path);
            ecfs_tally_failed (&self->tally, error);
        }
    }
}

static void warm_path (Warm *self, const char *path)
{
    EcfsAttr attr;
    GError *error = NULL;
    if (ecfs_catalog_resolve (self->catalog, path, &attr, &error))
        warm_entry (self, path, true, &attr);
    else
        ecfs_tally_failed (&self->tally, error);
}

static void await_all (Warm *self)
{
    while (self->n_in_flight > 0)
        reap (self);
}

static void count_missing (Warm *self)
{
    await_all (self);
    for (guint i = 0; i < self->warmed->len && !self->tally.cancelled; i++) {
        const WarmFile file = {.warm = self, .attr.ino = g_array_index (self->warmed, uint64_t, i)};
        begin (self, count_file, &file);
    }
    await_all (self);
}

static bool fail_missing (EcfsArchive *archive, uint64_t missing, GError **error)
{
    EcfsCacheState state = {.trouble = NULL};
    g_autoptr (GError) unread = NULL;
    bool is_known = ecfs_cache_state (ecfs_archive_cache (archive), &state, &unread);
    const char *why = !is_known               ? unread->message
                      : state.trouble != NULL ? state.trouble
                                              : "there is no room for them, by cache_size or on its disk";
    (void) !ecfs_fail (error, ENOSPC, "%" PRIu64 " bytes of these files are not in the cache: %s", missing, why);
    ecfs_cache_state_clear (&state);
    return false;
}

bool ecfs_warm (Ecfs *self, const char *const *paths, const EcfsTransferOptions *transfer, GError **error)
{
    if (ecfs_archive_cache (self->archive) == NULL)
        return ecfs_fail (error, ENOTSUP, "%s has no cache: set cache_size in ecfs.conf, as in \"cache_size = 20G\"",
                          ecfs_archive_directory (self->archive));
    Warm warm = {.archive = self->archive,
                 .catalog = ecfs_archive_catalog (self->archive),
                 .tally = {.transfer = transfer},
                 .warmed = g_array_new (FALSE, FALSE, sizeof (uint64_t)),
                 .ended = G_QUEUE_INIT};
    ecfs_mutex_init (&warm.lock);
    ecfs_cond_init (&warm.moved);
    warm.workers = ecfs_workers_new ("ecfs-warm", N_WORKERS);
    for (; *paths != NULL && !warm.tally.cancelled; paths++)
        warm_path (&warm, *paths);
    count_missing (&warm);
    ecfs_workers_free (warm.workers);
    g_array_unref (warm.warmed);
    bool good = ecfs_tally_end (&warm.tally, "were not fetched into the cache", error);
    ecfs_cond_clear (&warm.moved);
    ecfs_mutex_clear (&warm.lock);
    return good && (warm.missing == 0 || fail_missing (self->archive, warm.missing, error));
}

static JsonObject *describe (EcfsArchive *archive, EcfsCache *cache)
{
    EcfsCacheState state;
    g_autoptr (GError) error = NULL;
    JsonObject *facts = json_object_new ();
    g_autofree char *place = ecfs_archive_cache_place (archive);
    ecfs_status_add_text (facts, "directory", place);
    json_object_set_int_member (facts, "max_bytes", (int64_t) ecfs_archive_config (archive)->cache_size);
    if (ecfs_cache_state (cache, &state, &error)) {
        json_object_set_int_member (facts, "bytes", (int64_t) state.bytes);
        json_object_set_int_member (facts, "pinned_bytes", (int64_t) state.pinned_bytes);
        json_object_set_int_member (facts, "segments", (int64_t) state.n_cells);
        json_object_set_int_member (facts, "dropped_bytes", (int64_t) state.dropped_bytes);
        if (state.trouble != NULL)
            ecfs_status_add_text (facts, "trouble", state.trouble);
        ecfs_cache_state_clear (&state);
    } else
        ecfs_status_add_text (facts, "trouble", error->message);
    return facts;
}

bool ecfs_status_add_cache (JsonObject *status, EcfsArchive *archive)
{
    EcfsCache *cache = ecfs_archive_cache (archive);
    if (cache != NULL)
        json_object_set_object_member (status, "cache", describe (archive, cache));
    return cache != NULL;
}

char *ecfs_cache (Ecfs *self, bool drop, GError **error)
{
    uint64_t freed = 0;
    EcfsArchive *archive = self->archive;
    EcfsCache *cache = ecfs_archive_cache (archive);
    EcfsCache *former = cache != NULL || !drop
                            ? NULL
                            : ecfs_cache_make_former (ecfs_archive_config (archive), ecfs_archive_directory (archive),
                                                      ecfs_catalog_archive (ecfs_archive_catalog (archive)));
    cache = cache != NULL ? cache : former;
    if (cache == NULL) {
        (void) !ecfs_fail (error, ENOTSUP, "%s has no cache: set cache_size in ecfs.conf, as in \"cache_size = 20G\"",
                           ecfs_archive_directory (self->archive));
        return NULL;
    }
    bool good = !drop || ecfs_cache_drop (cache, &freed, error);
    g_autoptr (JsonObject) facts = good ? describe (archive, cache) : NULL;
    ecfs_cache_free (former);
    if (!good)
        return NULL;
    g_autoptr (JsonNode) node = json_node_alloc ();
    json_object_set_int_member (facts, "freed_bytes", (int64_t) freed);
    json_node_init_object (node, facts);
    return json_to_string (node, TRUE);
}
