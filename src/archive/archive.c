#include "archive/archive.h"
#include "archive/catalog_place.h"

#include "archive/archive_priv.h"
#include "archive/cached.h"
#include "archive/exchange.h"
#include "archive/in_use.h"
#include "archive/key_losses.h"
#include "archive/keys.h"
#include "archive/marks.h"
#include "archive/peered.h"
#include "archive/shared_readers.h"
#include "archive/sightings.h"
#include "archive/zones.h"
#include "object/placement.h"
#include "util/io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMIT_THREADS  16
#define LINEAGE_US      (3 * G_USEC_PER_SEC) /* for endpoints to tell what they know, … */
#define LINEAGE_SURE_US 300000               /* … when enough have */

static char *path_in (const char *directory, const char *name)
{
    return g_build_filename (directory, name, NULL);
}

static bool open_endpoints (EcfsArchive *self, GError **error)
{
    g_autoptr (GPtrArray) rows = ecfs_catalog_endpoints (self->catalog, error);
    if (rows == NULL)
        return false;
    if (rows->len == 0 && self->config->endpoints->len > 0)
        return ecfs_fail (error, EBADMSG,
                          "%s: the catalog has no endpoints, as if its table of them had been emptied; the catalog is "
                          "damaged: " ECFS_CATALOG_ADVICE,
                          self->directory);
    self->endpoints = g_new0 (EcfsArchiveEndpoint, ECFS_ENDPOINTS_MAX);
    self->month = ecfs_month_book_new (self->directory, self->endpoints, &self->n_endpoints);
    for (guint i = 0; i < rows->len; i++) {
        const EcfsEndpointRow *row = g_ptr_array_index (rows, i);
        if (!ecfs_archive_open_endpoint (self, row, row->name, ecfs_config_endpoint (self->config, row->name), error))
            return false;
        self->n_endpoints++;
    }
    for (guint i = 0; i < self->config->endpoints->len; i++) {
        const EcfsConfigEndpoint *config = g_ptr_array_index (self->config->endpoints, i);
        bool known = false;
        for (size_t j = 0; j < self->n_endpoints; j++)
            known |= strcmp (self->endpoints[j].name, config->spec->name) == 0;
        if (!known)
            return ecfs_fail (error, EINVAL,
                              "%s/" ECFS_CONFIG_NAME
                              ": [endpoint %s] is not one of the archive's endpoints: take the section "
                              "out and add it with 'ecfs endpoint add'",
                              self->directory, config->spec->name);
    }
    return true;
}

/* Of the file that was opened: the name could be given to another meanwhile. */
static bool read_own (const char *path, char **ret_text, GError **error)
{
    struct stat status;
    ecfs_autofd fd = open (path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat (fd, &status) != 0)
        return ecfs_fail_errno (error, errno, "%s", path);
    g_autofree char *opened = g_strdup_printf ("/proc/self/fd/%d", fd);
    return ecfs_archive_check_owner (path, &status, error) &&
           (ecfs_read_file (opened, ECFS_CONFIG_MAX_SIZE, ret_text, NULL, error) || ecfs_prefix (error, "%s", path));
}

static bool open_config (EcfsArchive *self, GError **error)
{
    g_autofree char *path = path_in (self->directory, ECFS_CONFIG_NAME);
    g_autofree char *text = NULL;
    g_autoptr (GError) reason = NULL;
    if (!ecfs_archive_check_directory (self->directory, error))
        return false;
    if (!read_own (path, &text, &reason)) {
        if (reason->code == ENOENT)
            return ecfs_fail (error, ENOENT,
                              ecfs_catalog_place_is_there (self->directory)
                                  ? "%s has lost its " ECFS_CONFIG_NAME
                                    ": restore that file from a backup, or make the "
                                    "archive directory again with 'ecfs recover' in another place"
                                  : "%s is neither an archive directory (it has no " ECFS_CONFIG_NAME
                                    ") nor a mounted archive: ecfs init makes a new archive, ecfs "
                                    "recover brings a lost one back from its endpoints",
                              self->directory);
        g_propagate_error (error, g_steal_pointer (&reason));
        return false;
    }
    self->config = ecfs_config_parse (text, path, error);
    return self->config != NULL;
}

static void find_read_only (void *user, const char *key, const char *value)
{
    bool *found = user;
    (void) value;
    *found = *found || strcmp (key, ECFS_READ_ONLY_KEY) == 0;
}

bool ecfs_archive_check_writable (EcfsArchive *self, GError **error)
{
    bool found = false;
    return ecfs_catalog_settings (self->catalog, find_read_only, &found, error) &&
           (!found || ecfs_fail (error, EROFS,
                                 "%s was recovered for reading only: 'ecfs mount -o ro' mounts it; to write, take the "
                                 "archive over with 'ecfs recover' in another place",
                                 self->directory));
}

/* Who only reads needs none of them. */
static bool open_shares (EcfsArchive *self, GError **error)
{
    g_autoptr (GError) why = NULL;
    EcfsKeyShares *shares = NULL;
    if (ecfs_key_shares_load (self->directory, self->catalog, self->keys, &shares, &why)) {
        self->shares = shares;
        return true;
    }
    if (self->readonly) {
        g_log (G_LOG_DOMAIN, ecfs_archive_check_writable (self, NULL) ? G_LOG_LEVEL_WARNING : G_LOG_LEVEL_INFO, "%s",
               why->message);
        return true;
    }
    if (self->to_destroy)
        return true;
    g_propagate_error (error, g_steal_pointer (&why));
    return false;
}

static bool open_keys (EcfsArchive *self, EcfsKeysFor what, GError **error)
{
    g_autoptr (GError) why = NULL;
    if (ecfs_keys_load (self->directory, self->catalog, what, &self->keys, &why)) {
        EcfsKeysState state;
        if (!ecfs_keys_state (self->catalog, &state, error))
            return false;
        self->rotates = state == ECFS_KEYS_ROTATING;
        self->marker_keys = state == ECFS_KEYS_ACTIVE || state == ECFS_KEYS_ROTATING ? self->keys : NULL;
        return open_shares (self, error);
    }
    self->lacks_keys = true;
    if (self->to_destroy)
        return true;
    g_propagate_error (error, g_steal_pointer (&why));
    return false;
}

/* Half of it may be the old copy's, and half the archive's. */
static bool check_exchanged (const EcfsArchive *self, GError **error)
{
    g_autofree char *path = path_in (self->directory, ECFS_TAKEN_OVER_NAME);
    return access (path, F_OK) != 0 ||
           ecfs_fail (error, EAGAIN, "a takeover was interrupted in %s: run 'ecfs takeover' on it again",
                      self->directory);
}

static unsigned catalog_flags (const EcfsArchive *self, unsigned flags)
{
    if (self->readonly)
        return ECFS_CATALOG_READONLY;
    bool is_leader = (flags & ECFS_ARCHIVE_LEADER) != 0;
    bool is_member = self->config->catalog_many && (is_leader || (flags & ECFS_ARCHIVE_MEMBER) != 0);
    bool yields = !self->to_destroy && (flags & ECFS_ARCHIVE_TAKES_OVER) == 0 && ecfs_in_use_is_copy (self->directory);
    return (is_member ? ECFS_CATALOG_MEMBER : 0) | (is_member && is_leader ? ECFS_CATALOG_LEADER : 0) |
           (yields ? ECFS_CATALOG_COPY : 0);
}

static bool open_parts (EcfsArchive *self, unsigned flags, GError **error)
{
    bool for_init = (flags & ECFS_ARCHIVE_GETS_KEY) != 0 || self->to_destroy;
    EcfsKeysFor what = self->readonly ? ECFS_KEYS_FOR_READING : for_init ? ECFS_KEYS_FOR_INIT : ECFS_KEYS_FOR_WRITING;
    if (!check_exchanged (self, error) || !open_config (self, error) ||
        (!self->readonly && !ecfs_archive_take_lock (self, error)))
        return false;
    g_autofree char *place = ecfs_catalog_place (self->directory, self->config, error);
    if (place == NULL)
        return false;
    self->catalog = ecfs_catalog_open (place, catalog_flags (self, flags), error);
    atomic_store (&self->leads, self->catalog != NULL && !self->readonly && ecfs_catalog_leads (self->catalog));
    if (self->catalog != NULL)
        ecfs_catalog_set_timeout (self->catalog, self->config->catalog_timeout_us);
    if (self->catalog == NULL || (!self->readonly && !ecfs_archive_check_writable (self, error)) ||
        !open_keys (self, what, error) || !open_endpoints (self, error))
        return false;
    self->transfer = ecfs_transfer_new (self->config->transfer_memory);
    self->read_log = ecfs_read_log_new ();
    self->shared_readers = ecfs_shared_readers_new (self->transfer);
    self->cache = ecfs_cache_make (self->config, self->directory, ecfs_catalog_archive (self->catalog));
    self->peers = ecfs_peers_make (self->config, self->marker_keys, self->cache, &self->peers_trouble);
    const EcfsLocatedParams located = {.config = self->config,
                                       .keys = self->marker_keys,
                                       .archive = ecfs_catalog_archive (self->catalog),
                                       .catalog = self->catalog,
                                       .peers = self->peers,
                                       .directory = self->directory};
    self->located = ecfs_located_new (&located);
    return ecfs_archive_check_code (self, self->config->code, error) &&
           ecfs_archive_codec (self, self->config->code, error) != NULL;
}

guint ecfs_uuid_hash (gconstpointer key)
{
    const EcfsUuid *uuid = key;
    guint hash;
    memcpy (&hash, uuid->bytes, sizeof hash);
    return hash;
}

gboolean ecfs_uuid_same (gconstpointer a, gconstpointer b)
{
    return ecfs_uuid_equal (a, b);
}

EcfsArchive *ecfs_archive_open (const char *directory, unsigned flags, GError **error)
{
    EcfsArchive *self = g_new0 (EcfsArchive, 1);
    self->directory = g_canonicalize_filename (directory, NULL);
    self->readonly = (flags & ECFS_ARCHIVE_READONLY) != 0;
    self->to_destroy = (flags & ECFS_ARCHIVE_TO_DESTROY) != 0;
    self->lock_fd = -1;
    ecfs_mutex_init (&self->adding);
    ecfs_mutex_init (&self->snapshotting);
    ecfs_mutex_init (&self->lock);
    atomic_init (&self->n_endpoints, 0);
    unsigned any;
    ecfs_random (&any, sizeof any);
    atomic_init (&self->n_objects, any);
    atomic_init (&self->n_stripe_changes, 0);
    atomic_init (&self->n_doubts, 0);
    atomic_init (&self->read_us, INT64_MIN / 2);
    atomic_init (&self->n_storing, 0);
    self->asked_beside = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_lineage_free);
    self->sightings = ecfs_sightings_new ();
    self->former_shares = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_key_shares_free);
    atomic_init (&self->stopping, false);
    self->codecs = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, (GDestroyNotify) ecfs_codec_free);
    self->pins = g_hash_table_new_full (ecfs_uuid_hash, ecfs_uuid_same, g_free, NULL);
    if (open_parts (self, flags, error))
        return self;
    ecfs_archive_close (self);
    return NULL;
}

/* What a recovery needs beside the namespace. */
static bool keep_settings (EcfsArchive *self, GError **error)
{
    for (const EcfsConfigOption *option = ecfs_config_options; option->key != NULL; option++) {
        g_autofree char *value = ecfs_config_format_option (self->config, option);
        if (ecfs_config_travels (option->key) && !ecfs_catalog_keep_setting (self->catalog, option->key, value, error))
            return false;
    }
    for (size_t i = 0; i < self->n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->endpoints[i];
        if (endpoint->endpoint != NULL && endpoint->state != ECFS_ENDPOINT_REMOVED &&
            !ecfs_zone_keep (self->catalog, &endpoint->uuid, endpoint->name, endpoint->zone, error))
            return false;
    }
    return true;
}

/* Before anything is changed here or deleted there. */
static bool check_lineage (EcfsArchive *self, GError **error)
{
    int64_t now_us = ecfs_now_us ();
    if (self->lineage == NULL)
        self->lineage = ecfs_lineage_new (self);
    ecfs_lineage_ask (self->lineage);
    return ecfs_lineage_await (self->lineage, now_us + LINEAGE_US, now_us + LINEAGE_SURE_US, error);
}

static void end_asking_beside (EcfsArchive *self)
{
    for (guint i = 0; i < self->asked_beside->len; i++)
        ecfs_lineage_end (g_ptr_array_index (self->asked_beside, i));
}

static void note_old_copy (EcfsArchive *self, EcfsLineage *beside)
{
    if (atomic_load (&self->old_copy) == NULL && ecfs_lineage_is_stale (beside))
        atomic_store (&self->old_copy, ecfs_lineage_trouble (beside));
}

bool ecfs_archive_check_beside (EcfsArchive *self, GError **error)
{
    int64_t now_us = ecfs_now_us ();
    EcfsLineage *beside = ecfs_lineage_new_beside (self);
    end_asking_beside (self);
    g_ptr_array_add (self->asked_beside, beside); /* freeing it waits for endpoints that are silent */
    ecfs_lineage_ask (beside);
    bool newest = ecfs_lineage_await (beside, now_us + LINEAGE_US, now_us + LINEAGE_SURE_US, error);
    note_old_copy (self, beside);
    return newest;
}

void ecfs_archive_ask_beside (EcfsArchive *self)
{
    if (self->asked_beside->len == 0)
        return;
    EcfsLineage *beside = g_ptr_array_index (self->asked_beside, self->asked_beside->len - 1);
    note_old_copy (self, beside); /* by what was answered since */
    ecfs_lineage_ask (beside);
}

const char *ecfs_archive_old_copy (const EcfsArchive *self)
{
    return atomic_load (&self->old_copy);
}

void ecfs_archive_await_session (EcfsArchive *self)
{
    int64_t now_us = ecfs_now_us ();
    if (self->lineage != NULL)
        ecfs_lineage_await_session (self->lineage, now_us + LINEAGE_US, now_us + LINEAGE_SURE_US);
}

static bool settle (EcfsArchive *self, GError **error)
{
    return keep_settings (self, error) && ecfs_archive_settle_codes (self, error);
}

bool ecfs_archive_check_newest (EcfsArchive *self, GError **error)
{
    return check_lineage (self, error) || ecfs_prefix (error, "%s", self->directory);
}

bool ecfs_archive_begin_leading (EcfsArchive *self, GError **error)
{
    return (ecfs_lineage_begin_session (self->lineage, error) && settle (self, error)) ||
           ecfs_prefix (error, "%s", self->directory);
}

void ecfs_archive_note_leads (EcfsArchive *self)
{
    atomic_store (&self->leads, true);
}

bool ecfs_archive_leads (const EcfsArchive *self)
{
    return atomic_load (&self->leads);
}

bool ecfs_archive_begin (EcfsArchive *self, GError **error)
{
    ecfs_transfer_start (self->transfer);
    ecfs_archive_load_estimates (self);
    ecfs_month_book_begin (self->month);
    for (size_t i = 0; i < self->n_endpoints; i++)
        if (self->endpoints[i].endpoint != NULL)
            ecfs_endpoint_start (self->endpoints[i].endpoint);
    if (!self->readonly) {
        ecfs_archive_sign_lock (self, NULL); /* it may have been opened before a fork */
        if (atomic_load (&self->leads) ? !check_lineage (self, error) : !ecfs_archive_check_beside (self, error))
            return false;
        self->in_use = ecfs_in_use_begin (self->directory, error);
        if (self->in_use == NULL)
            return false;
        ecfs_catalog_watch_commits (self->catalog, ecfs_in_use_note, self->in_use);
        /* What would be stored is open to everybody, or under a key that ends. */
        if (self->lacks_keys || self->rotates)
            return true;
        if (!ecfs_archive_load_codes (self, error) ||
            (atomic_load (&self->leads) && !ecfs_lineage_begin_session (self->lineage, error)) ||
            !ecfs_catalog_intents_abort_all (self->catalog, error) ||
            (atomic_load (&self->leads) && !settle (self, error)))
            return ecfs_prefix (error, "%s", self->directory);
    }
    self->commits = ecfs_workers_new ("ecfs-commit", COMMIT_THREADS);
    if (!self->readonly) {
        self->streams = ecfs_workers_new ("ecfs-stream", ECFS_N_STREAMS);
        self->puts = ecfs_workers_new ("ecfs-put", COMMIT_THREADS);
    }
    return true;
}

void ecfs_archive_begin_stop (EcfsArchive *self)
{
    for (size_t i = 0; i < self->n_endpoints; i++)
        if (self->endpoints[i].endpoint != NULL)
            ecfs_endpoint_begin_stop (self->endpoints[i].endpoint);
}

/* Their jobs may push others until the end. */
static void end_workers (EcfsWorkers **workers)
{
    ecfs_workers_free (*workers);
    *workers = NULL;
}

void ecfs_archive_end_workers (EcfsArchive *self)
{
    end_workers (&self->streams);
    end_workers (&self->puts);
    end_workers (&self->commits);
}

void ecfs_archive_end (EcfsArchive *self)
{
    ecfs_lineage_end (self->lineage);
    end_asking_beside (self);
    ecfs_archive_begin_stop (self);
    ecfs_shared_readers_stop (self->shared_readers);
    for (size_t i = 0; i < self->n_endpoints; i++)
        if (self->endpoints[i].endpoint != NULL)
            ecfs_endpoint_stop (self->endpoints[i].endpoint);
    ecfs_lineage_free (atomic_exchange (&self->lineage, NULL));
    g_ptr_array_set_size (self->asked_beside, 0);
    ecfs_located_stop (self->located);
    ecfs_peers_stop (self->peers);
    ecfs_cache_stop (self->cache);
    if (self->transfer != NULL)
        ecfs_transfer_stop (self->transfer);
}

void ecfs_archive_close (EcfsArchive *self)
{
    if (self == NULL)
        return;
    ecfs_archive_set_stopping (self);
    ecfs_archive_end_workers (self);
    ecfs_archive_end (self);
    ecfs_month_book_free (self->month);
    for (size_t i = 0; i < self->n_endpoints; i++) {
        ecfs_endpoint_free (self->endpoints[i].endpoint);
        g_free ((char *) self->endpoints[i].name);
        g_free (self->endpoints[i].first_name);
        g_free ((char *) self->endpoints[i].zone);
        g_free (self->endpoints[i].first_zone);
    }
    g_free (self->endpoints);
    ecfs_transfer_free (self->transfer);
    ecfs_shared_readers_free (self->shared_readers);
    ecfs_sightings_free (self->sightings);
    ecfs_read_log_free (self->read_log);
    ecfs_cache_free (self->cache);
    ecfs_located_free (self->located);
    ecfs_peers_free (self->peers); /* fills of the cache settle with them */
    g_free (self->peers_trouble);
    g_autoptr (GError) error = NULL;
    bool behind = self->catalog != NULL && ecfs_catalog_behind (self->catalog) != NULL;
    /* What one of many has acknowledged is in the catalog that the others go on with. */
    bool is_refused = behind && ecfs_catalog_is_shared (self->catalog) && ecfs_catalog_is_taken_over (self->catalog);
    if (!ecfs_catalog_close (self->catalog, &error) && !is_refused)
        g_critical ("%s: the last changes of the namespace are lost: %s", self->directory, error->message);
    if (behind)
        ecfs_in_use_leave (self->in_use);
    else
        ecfs_in_use_end (self->in_use);
    ecfs_config_free (self->config);
    ecfs_key_shares_free (self->shares);
    g_ptr_array_unref (self->former_shares);
    ecfs_key_ring_unref (self->keys);
    g_hash_table_unref (self->codecs);
    g_hash_table_unref (self->pins);
    g_ptr_array_unref (self->asked_beside);
    g_free (atomic_load (&self->old_copy));
    if (self->lock_fd >= 0)
        (void) close (self->lock_fd); /* gives the lock back */
    ecfs_mutex_clear (&self->lock);
    ecfs_mutex_clear (&self->adding);
    ecfs_mutex_clear (&self->snapshotting);
    g_free (self->directory);
    g_free (self);
}

void ecfs_archive_ask_lineage (EcfsArchive *self, int64_t deadline_us)
{
    g_autoptr (GError) stale = NULL;
    if (self->lineage != NULL || ecfs_archive_is_held (self->directory))
        return; /* whoever changes it may be ahead of what was read here */
    if (!ecfs_archive_check_writable (self, &stale))
        return; /* it is one of several copies by intention */
    self->lineage = ecfs_lineage_new (self);
    ecfs_lineage_ask (self->lineage);
    (void) !ecfs_lineage_await (self->lineage, deadline_us, deadline_us, &stale); /* it keeps the reason */
}

char *ecfs_archive_trouble (EcfsArchive *self)
{
    return self->lineage == NULL ? NULL : ecfs_lineage_trouble (self->lineage);
}

const EcfsKeyRing *ecfs_archive_keys (const EcfsArchive *self)
{
    return self->keys;
}

const EcfsKeyRing *ecfs_archive_marker_keys (const EcfsArchive *self)
{
    return self->marker_keys;
}

bool ecfs_archive_lacks_keys (const EcfsArchive *self)
{
    return self->lacks_keys;
}

bool ecfs_archive_is_readonly (const EcfsArchive *self)
{
    return self->readonly;
}

size_t ecfs_archive_position (const EcfsArchive *self, const EcfsArchiveEndpoint *endpoint)
{
    return (size_t) (endpoint - self->endpoints);
}

EcfsMutex *ecfs_archive_adding_lock (EcfsArchive *self)
{
    return &self->adding;
}

const atomic_bool *ecfs_archive_stop_flag (const EcfsArchive *self)
{
    return &self->stopping;
}

void *ecfs_archive_service (const EcfsArchive *self, EcfsService service)
{
    return self->services[service];
}

void ecfs_archive_set_service (EcfsArchive *self, EcfsService service, void *running)
{
    self->services[service] = running;
}

void ecfs_archive_set_stopping (EcfsArchive *self)
{
    atomic_store (&self->stopping, true);
}

bool ecfs_archive_is_stopping (const EcfsArchive *self)
{
    return atomic_load (&self->stopping);
}

EcfsWorkers *ecfs_archive_workers (const EcfsArchive *self, EcfsStoring what)
{
    return what == ECFS_STORES_STAGED ? self->commits : what == ECFS_STORES_STREAMED ? self->streams : self->puts;
}

EcfsTransferPool *ecfs_archive_transfer (const EcfsArchive *self)
{
    return self->transfer;
}

EcfsPeers *ecfs_archive_peers (const EcfsArchive *self)
{
    return self->peers;
}

EcfsLocated *ecfs_archive_located (const EcfsArchive *self)
{
    return self->located;
}

const char *ecfs_archive_peers_trouble (const EcfsArchive *self)
{
    return self->peers_trouble;
}

EcfsCache *ecfs_archive_cache (const EcfsArchive *self)
{
    return self->cache;
}

EcfsReadLog *ecfs_archive_read_log (const EcfsArchive *self)
{
    return self->read_log;
}

EcfsLineage *ecfs_archive_lineage (const EcfsArchive *self)
{
    return self->lineage;
}

EcfsSightings *ecfs_archive_sightings (const EcfsArchive *self)
{
    return self->sightings;
}

EcfsMonthBook *ecfs_archive_month (const EcfsArchive *self)
{
    return self->month;
}

EcfsMutex *ecfs_archive_snapshot_lock (EcfsArchive *self)
{
    return &self->snapshotting;
}

EcfsUuid ecfs_archive_object_uuid (EcfsArchive *self)
{
    return ecfs_object_uuid (atomic_fetch_add (&self->n_objects, 1));
}

void ecfs_archive_note_journal (EcfsArchive *self, size_t position, bool lacks)
{
    atomic_store (&self->endpoints[position].lacks_journal, lacks);
}

void ecfs_archive_stripes_changed (EcfsArchive *self)
{
    atomic_fetch_add (&self->n_stripe_changes, 1);
}

void ecfs_archive_doubt (EcfsArchive *self)
{
    atomic_fetch_add (&self->n_doubts, 1);
}

unsigned ecfs_archive_doubts (const EcfsArchive *self)
{
    return atomic_load (&self->n_doubts);
}

void ecfs_archive_count_storing (EcfsArchive *self, bool begins)
{
    if (begins)
        atomic_fetch_add (&self->n_storing, 1);
    else
        atomic_fetch_sub (&self->n_storing, 1);
}

bool ecfs_archive_is_quiet (const EcfsArchive *self, int64_t for_us)
{
    return atomic_load (&self->n_storing) == 0 && ecfs_now_us () - atomic_load (&self->read_us) > for_us;
}

const char *ecfs_archive_directory (const EcfsArchive *self)
{
    return self->directory;
}

const EcfsConfig *ecfs_archive_config (const EcfsArchive *self)
{
    return self->config;
}

EcfsCatalog *ecfs_archive_catalog (const EcfsArchive *self)
{
    return self->catalog;
}

size_t ecfs_archive_n_endpoints (const EcfsArchive *self)
{
    return self->n_endpoints;
}

const EcfsArchiveEndpoint *ecfs_archive_endpoint (const EcfsArchive *self, size_t position)
{
    return &self->endpoints[position];
}

const EcfsArchiveEndpoint *ecfs_archive_endpoint_by_id (const EcfsArchive *self, int64_t id)
{
    for (size_t i = 0; i < self->n_endpoints; i++)
        if (self->endpoints[i].id == id)
            return &self->endpoints[i];
    return NULL;
}

/* The catalog has kept what makes a code that this ecfs would make another way. */
static EcfsCodec *make_codec (EcfsArchive *self, const char *code, GError **error)
{
    g_autoptr (GError) reason = NULL;
    EcfsCodec *codec = ecfs_codec_new_by (code, ecfs_config_rs_provider (self->config), &reason);
    if (codec != NULL)
        return codec;
    if (reason->code != ESTALE) {
        g_propagate_error (error, g_steal_pointer (&reason));
        return NULL;
    }
    g_autoptr (GBytes) parameters = ecfs_catalog_code (self->catalog, code, error);
    if (parameters == NULL)
        return NULL;
    gsize size;
    const uint8_t *bytes = g_bytes_get_data (parameters, &size);
    return ecfs_codec_new_with (code, bytes, size, error);
}

EcfsCodec *ecfs_archive_codec (EcfsArchive *self, const char *code, GError **error)
{
    ecfs_mutex_lock (&self->lock);
    EcfsCodec *codec = g_hash_table_lookup (self->codecs, code);
    ecfs_mutex_unlock (&self->lock);
    if (codec != NULL)
        return codec;
    EcfsCodec *made = make_codec (self, code, error);
    if (made == NULL)
        return NULL;
    ecfs_mutex_lock (&self->lock);
    codec = g_hash_table_lookup (self->codecs, code); /* another thread may have made it meanwhile */
    if (codec == NULL) {
        codec = g_steal_pointer (&made);
        g_hash_table_insert (self->codecs, g_strdup (code), codec);
    }
    ecfs_mutex_unlock (&self->lock);
    ecfs_codec_free (made);
    return codec;
}

const EcfsCodec *ecfs_archive_object_codec (EcfsArchive *self, const char *code, uint64_t bytes, GError **error)
{
    const EcfsCodec *codec = ecfs_archive_codec (self, code, error);
    if (codec == NULL || bytes > self->config->small_file)
        return codec;
    g_autofree char *small = ecfs_codec_small_code (codec);
    return ecfs_archive_codec (self, small, error);
}

static bool may_use (EcfsArchive *self, const EcfsCodec *codec, GError **error)
{
    return codec != NULL &&
           (self->readonly || ecfs_archive_allows (self, codec, error)) && /* who only reads stores nothing with it */
           ecfs_archive_enough_endpoints (codec, ecfs_archive_n_left (self), self->config->allow_double, error);
}

/* One that is refused is not among `codecs`, where it would count as one in use. */
bool ecfs_archive_check_code (EcfsArchive *self, const char *code, GError **error)
{
    ecfs_mutex_lock (&self->lock);
    const EcfsCodec *known = g_hash_table_lookup (self->codecs, code);
    ecfs_mutex_unlock (&self->lock);
    g_autoptr (EcfsCodec) made = known == NULL ? make_codec (self, code, error) : NULL;
    return may_use (self, known != NULL ? known : made, error);
}

void ecfs_archive_pin (EcfsArchive *self, const EcfsUuid *object)
{
    ecfs_mutex_lock (&self->lock);
    guint count = GPOINTER_TO_UINT (g_hash_table_lookup (self->pins, object));
    g_hash_table_insert (self->pins, g_memdup2 (object, sizeof *object), GUINT_TO_POINTER (count + 1));
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_archive_unpin (EcfsArchive *self, const EcfsUuid *object)
{
    ecfs_mutex_lock (&self->lock);
    guint count = GPOINTER_TO_UINT (g_hash_table_lookup (self->pins, object));
    if (count > 1)
        g_hash_table_insert (self->pins, g_memdup2 (object, sizeof *object), GUINT_TO_POINTER (count - 1));
    else
        g_hash_table_remove (self->pins, object);
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_archive_pinned (EcfsArchive *self, const EcfsUuid *object)
{
    ecfs_mutex_lock (&self->lock);
    bool pinned = g_hash_table_contains (self->pins, object);
    ecfs_mutex_unlock (&self->lock);
    return pinned;
}

bool ecfs_archive_seal_keys (const EcfsArchive *self, const EcfsObjectRow *object, EcfsSealKeys **ret_keys,
                             GError **error)
{
    return ecfs_seal_open (&object->seal, self->keys, &object->uuid, ret_keys, error);
}

bool ecfs_archive_layout (EcfsArchive *self, const EcfsObjectRow *object, EcfsLayout *ret_layout, GError **error)
{
    const EcfsCodec *codec = ecfs_archive_codec (self, object->code, error);
    if (codec == NULL)
        return false;
    EcfsLayout layout = {.size = object->size,
                         .segment_bytes = object->segment_bytes,
                         .block_bytes = object->block_bytes,
                         .header_bytes = object->header_bytes,
                         .granule = (uint32_t) ecfs_codec_granule (codec),
                         .k = (uint16_t) ecfs_codec_k (codec),
                         .tag_bytes = ecfs_tag_bytes_under (&object->seal)};
    if (!ecfs_layout_valid (&layout))
        return ecfs_fail (error, EBADMSG, "the catalog's row of object %" PRId64 " makes no sense: run 'ecfs recover'",
                          object->id);
    *ret_layout = layout;
    return true;
}
