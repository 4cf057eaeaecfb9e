#include "archive/common.h"
#include "archive/sightings.h"
#include "check/check.h"
#include "util/lock.h"
#include "verbs/names.h"
#include "verbs/verbs.h"
#include "wire/wire.h"

#include <inttypes.h>
#include <string.h>

#define DIR_BATCH   1024
#define PROGRESS_US 250000

/* Has the mount, if there is one, write down what it did, so that it is seen here. False: there is none to ask. */
static bool sync_mount (const char *directory)
{
    JsonObject *request = json_object_new ();
    json_object_set_string_member (request, "verb", "sync");
    g_autoptr (JsonNode) question = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (question, request);
    g_autoptr (GError) error = NULL;
    g_autoptr (JsonNode) answer = ecfs_control_call (directory, question, &error);
    if (answer == NULL && ecfs_errno (error) != ENOTCONN)
        g_info ("%s", error->message); /* what it has written down is told all the same */
    return answer != NULL || ecfs_errno (error) != ENOTCONN;
}

/* An archive that is mounted is written by its mount. */
static EcfsArchive *open_archive (const char *directory, unsigned flags, bool *ret_mounted, bool *ret_silent,
                                  GError **error)
{
    g_autoptr (GError) busy = NULL, silent = NULL;
    const bool writable = (flags & ECFS_OPEN_WRITE) != 0;
    const unsigned as = (flags & ECFS_OPEN_LEAD) != 0 ? ECFS_ARCHIVE_LEADER : ECFS_ARCHIVE_MEMBER;
    EcfsArchive *archive = writable ? ecfs_archive_open (directory, as, &busy) : NULL;
    *ret_mounted = *ret_silent = false;
    if (archive != NULL)
        return archive;
    bool ask = busy == NULL || ecfs_errno (busy) == EBUSY;
    *ret_silent = ask && ecfs_control_is_silent (directory, &silent);
    if (*ret_silent && writable) { /* nobody else can do it */
        g_propagate_error (error, g_steal_pointer (&silent));
        return NULL;
    }
    if (*ret_silent)
        g_warning ("%s; what it has not written down is not seen here", silent->message);
    *ret_mounted = ask && (*ret_silent || sync_mount (directory));
    if (busy == NULL || *ret_mounted)
        return ecfs_archive_open (directory, ECFS_ARCHIVE_READONLY, error);
    g_propagate_error (error, g_steal_pointer (&busy));
    return NULL;
}

Ecfs *ecfs_open (const char *directory, unsigned flags, GError **error)
{
    bool writable = (flags & ECFS_OPEN_WRITE) != 0, mounted, silent;
    g_autoptr (EcfsArchive) archive = open_archive (directory, flags, &mounted, &silent, error);
    if (archive == NULL || !ecfs_archive_start (archive, error))
        return NULL;
    Ecfs *self = g_new0 (Ecfs, 1);
    *self = (Ecfs){.archive = g_steal_pointer (&archive), .writable = writable, .mounted = mounted, .silent = silent};
    if (writable && !mounted) {
        ecfs_archive_lead_meanwhile (self->archive);
        self->sequence = ecfs_catalog_sequence (ecfs_archive_catalog (self->archive));
    }
    return self;
}

Ecfs *ecfs_open_at (const char *directory, const char *moment, GError **error)
{
    char *past = ecfs_past_open (directory, moment, error);
    Ecfs *self = past == NULL ? NULL : ecfs_open (past, 0, error);
    if (self != NULL)
        self->past = past;
    else
        ecfs_past_close (past);
    return self;
}

static bool always (void *user)
{
    (void) user;
    return true;
}

/* What was read around is not forgotten with this process. */
static void hand_over_damage (Ecfs *self)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) sightings = ecfs_sightings_take (ecfs_archive_sightings (self->archive));
    if (self->past != NULL || sightings->len == 0 || !ecfs_sightings_confirm (self->archive, sightings, always, NULL) ||
        sightings->len == 0)
        return;
    unsigned n_queued;
    bool writable = self->writable && !self->mounted;
    if (writable ? !ecfs_sightings_queue (ecfs_archive_catalog (self->archive), sightings, &n_queued, &error)
                 : !ecfs_sightings_hand_over (self->archive, sightings, &error))
        g_warning ("%u damaged stripes could not be queued for repair: %s; \"ecfs-fsck --deep -y\" finds and repairs "
                   "them",
                   sightings->len, error->message);
}

bool ecfs_check_leads (const Ecfs *self, GError **error)
{
    EcfsArchive *archive = self->archive;
    if (!self->writable)
        return ecfs_fail (error, EROFS, "%s is open for reading", ecfs_archive_directory (archive));
    if (self->mounted || ecfs_archive_leads (archive))
        return true;
    g_autofree char *leader = ecfs_catalog_leader (ecfs_archive_catalog (archive));
    return ecfs_fail (error, EBUSY, "%s: %s leads those that have the archive open, and this is done there",
                      ecfs_archive_directory (archive), leader == NULL ? "another process" : leader);
}

/* Who leads stores the journal; where that is this process, it does so when it stops. */
static void await_journal (Ecfs *self)
{
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    if (!self->writable || self->mounted || ecfs_archive_leads (self->archive) ||
        ecfs_catalog_sequence (catalog) == self->sequence)
        return;
    if (!ecfs_archive_store_journal (self->archive, NULL, NULL, &error))
        g_warning ("%s: the newest changes of names are in the catalog, and not yet safe without it: %s",
                   ecfs_archive_directory (self->archive), error->message);
}

void ecfs_close (Ecfs *self)
{
    if (self == NULL)
        return;
    hand_over_damage (self);
    await_journal (self);
    ecfs_archive_stop (self->archive);
    ecfs_archive_free (self->archive);
    ecfs_past_close (self->past);
    g_free (self->told[0]);
    g_free (self->told[1]);
    g_free (self);
}

/* Transfers */

uint64_t ecfs_archive_wire_bytes (EcfsArchive *archive)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        EcfsEndpoint *endpoint = ecfs_archive_endpoint (archive, i)->endpoint;
        if (endpoint == NULL)
            continue;
        EcfsEndpointHealth health;
        ecfs_endpoint_health (endpoint, &health);
        bytes += health.read_bytes + health.written_bytes;
        ecfs_endpoint_health_clear (&health);
    }
    return bytes;
}

bool ecfs_tally_tick (EcfsTally *self)
{
    if (self->cancelled)
        return false;
    int64_t now_us = ecfs_now_us ();
    if (self->transfer == NULL || self->transfer->progress == NULL || now_us < self->next_us)
        return true;
    self->next_us = now_us + PROGRESS_US;
    self->progress.wire_bytes = self->wire_bytes;
    self->cancelled = !self->transfer->progress (self->transfer->user, &self->progress);
    return !self->cancelled;
}

void ecfs_tally_failed (EcfsTally *self, GError *error)
{
    self->progress.n_failed++;
    if (self->transfer != NULL && self->transfer->problem != NULL)
        self->transfer->problem (self->transfer->user, error, false);
    if (self->first == NULL)
        self->first = error;
    else
        g_error_free (error);
}

void ecfs_tally_warn (EcfsTally *self, GError *error)
{
    if (self->transfer != NULL && self->transfer->problem != NULL)
        self->transfer->problem (self->transfer->user, error, true);
    g_error_free (error);
}

bool ecfs_tally_end (EcfsTally *self, const char *failed, GError **error)
{
    g_autoptr (GError) first = g_steal_pointer (&self->first);
    if (self->transfer != NULL && self->transfer->progress != NULL) {
        self->progress.wire_bytes = self->wire_bytes;
        (void) self->transfer->progress (self->transfer->user, &self->progress); /* it is over anyway */
    }
    if (self->cancelled)
        return ecfs_fail (error, ECANCELED, "cancelled");
    if (first == NULL)
        return true;
    if (self->transfer == NULL || self->transfer->problem == NULL) {
        g_propagate_error (error, g_steal_pointer (&first));
        return false;
    }
    return ecfs_fail (error, first->code, "%" PRIu64 " of %" PRIu64 " files %s", self->progress.n_failed,
                      MAX (self->progress.n_found, self->progress.n_failed), failed);
}

bool ecfs_xattr_travels (const char *name)
{
    return g_str_has_prefix (name, "user.") && !g_str_has_prefix (name, "user.ecfs.");
}

GHashTable *ecfs_staged_rows (EcfsCatalog *catalog, GError **error)
{
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (catalog, error);
    if (rows == NULL)
        return NULL;
    GHashTable *staged =
        g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, (GDestroyNotify) ecfs_staging_row_free);
    for (unsigned i = 0; i < rows->len; i++) {
        EcfsStagingRow *row = g_ptr_array_index (rows, i);
        if (row->state == ECFS_STAGING_STORED)
            continue;
        EcfsStagingRow *copy = g_new (EcfsStagingRow, 1);
        *copy = *row;
        copy->error = g_strdup (row->error);
        int64_t ino = (int64_t) row->ino;
        g_hash_table_replace (staged, g_memdup2 (&ino, sizeof ino), copy);
    }
    return staged;
}

/* What is newer in staging is not here to be fetched: fresh files have nothing else, others an older content. */
bool ecfs_tally_check_staged (EcfsTally *self, GHashTable *staged, uint64_t ino, const char *path, GError **error)
{
    const int64_t key = (int64_t) ino;
    const EcfsStagingRow *row = g_hash_table_lookup (staged, &key);
    if (row == NULL)
        return true;
    if (row->fresh)
        return ecfs_fail (error, EAGAIN,
                          "%s: it is in staging and not stored yet: run \"ecfs wait\", or read it in the mount", path);
    ecfs_tally_warn (self, g_error_new (ECFS_ERROR, EAGAIN,
                                        "%s: newer content is in staging; this is what was stored before", path));
    return true;
}

/* Names */

typedef struct Walk {
    EcfsCatalog *catalog;
    GHashTable *staged;
    bool recursive;
    void (*each) (void *user, const EcfsEntry *entry);
    void *user;
} Walk;

static int by_name (const void *a, const void *b)
{
    const EcfsDirent *const *left = a, *const *right = b;
    return strcmp ((*left)->name, (*right)->name);
}

static EcfsEntry entry_of (const EcfsAttr *attr)
{
    return (EcfsEntry){.inode = attr->ino,
                       .mode = attr->mode,
                       .nlink = attr->nlink,
                       .uid = attr->uid,
                       .gid = attr->gid,
                       .size = attr->size,
                       .mtime_ns = attr->mtime_ns};
}

static bool tell (Walk *walk, const char *path, const char *name, const EcfsAttr *attr, GError **error)
{
    g_autofree char *target = NULL;
    if (S_ISLNK (attr->mode) && (target = ecfs_catalog_readlink (walk->catalog, attr->ino, error)) == NULL)
        return false;
    int64_t ino = (int64_t) attr->ino;
    EcfsEntry entry = entry_of (attr);
    entry.path = path;
    entry.name = name;
    entry.target = target;
    entry.staged = g_hash_table_contains (walk->staged, &ino);
    walk->each (walk->user, &entry);
    return true;
}

/* All entries of a directory in order of names, borrowed from @batches. */
static GPtrArray *sorted_entries (EcfsCatalog *catalog, uint64_t ino, GPtrArray *batches, GError **error)
{
    g_autoptr (GPtrArray) entries = g_ptr_array_new ();
    int64_t after = 0;
    for (;;) {
        GPtrArray *batch = ecfs_catalog_readdir (catalog, ino, after, DIR_BATCH, error);
        if (batch == NULL)
            return NULL;
        g_ptr_array_add (batches, batch);
        if (batch->len == 0)
            break;
        after = ((const EcfsDirent *) g_ptr_array_index (batch, batch->len - 1))->offset;
        g_ptr_array_extend (entries, batch, NULL, NULL);
    }
    g_ptr_array_sort (entries, by_name);
    return g_steal_pointer (&entries);
}

static bool walk_directory (Walk *walk, const char *path, uint64_t ino, GError **error)
{
    g_autoptr (GPtrArray) batches = g_ptr_array_new_with_free_func ((GDestroyNotify) g_ptr_array_unref);
    g_autoptr (GPtrArray) entries = sorted_entries (walk->catalog, ino, batches, error);
    if (entries == NULL)
        return ecfs_prefix (error, "%s", path);
    for (unsigned i = 0; i < entries->len; i++) {
        const EcfsDirent *entry = g_ptr_array_index (entries, i);
        g_autofree char *below = g_build_filename (path, entry->name, NULL);
        GError *why = NULL;
        if (tell (walk, below, entry->name, &entry->attr, &why) &&
            (!walk->recursive || !S_ISDIR (entry->attr.mode) || walk_directory (walk, below, entry->attr.ino, &why)))
            continue;
        if (why->code != ENOENT) {
            g_propagate_error (error, why);
            return false;
        }
        g_error_free (why); /* removed since it was listed */
    }
    return true;
}

bool ecfs_list (Ecfs *self, const char *path, bool recursive, void (*each) (void *user, const EcfsEntry *entry),
                void *user, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    EcfsAttr attr;
    if (!ecfs_catalog_resolve (catalog, path, &attr, error))
        return false;
    g_autoptr (GHashTable) staged = ecfs_staged_rows (catalog, error);
    if (staged == NULL)
        return false;
    g_autofree char *full = ecfs_catalog_path (catalog, attr.ino);
    Walk walk = {.catalog = catalog, .staged = staged, .recursive = recursive, .each = each, .user = user};
    if (S_ISDIR (attr.mode))
        return walk_directory (&walk, full, attr.ino, error);
    g_autofree char *name = g_path_get_basename (full);
    return tell (&walk, full, name, &attr, error);
}

bool ecfs_stat (Ecfs *self, const char *path, EcfsEntry *ret_entry, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    EcfsAttr attr;
    g_auto (GStrv) names = ecfs_names_split (path, error);
    if (names == NULL || !ecfs_catalog_resolve (catalog, path, &attr, error))
        return false;
    g_autoptr (GHashTable) staged = ecfs_staged_rows (catalog, error);
    g_autofree char *target = NULL;
    if (staged == NULL || (S_ISLNK (attr.mode) && (target = ecfs_catalog_readlink (catalog, attr.ino, error)) == NULL))
        return false;
    int64_t ino = (int64_t) attr.ino;
    g_free (self->told[0]);
    g_free (self->told[1]);
    g_autofree char *joined = g_strjoinv ("/", names);
    self->told[0] = g_strconcat ("/", joined, NULL);
    self->told[1] = g_steal_pointer (&target);
    *ret_entry = entry_of (&attr);
    ret_entry->path = self->told[0];
    ret_entry->name = strrchr (self->told[0], '/') + 1;
    ret_entry->target = self->told[1];
    ret_entry->staged = g_hash_table_contains (staged, &ino);
    return true;
}
