/*
 * Ending an archive: what it has at its endpoints goes first, each marker last, then the archive directory. Whatever
 * ended half-way can be done again, as an endpoint without marker is one that is done with.
 */
#include "archive/cached.h"
#include "archive/catalog_place.h"
#include "archive/common.h"
#include "archive/events.h"
#include "archive/exchange.h"
#include "archive/in_use.h"
#include "archive/keys.h"
#include "archive/marks.h"
#include "archive/month.h"
#include "cache/index.h"
#include "catalog/journal_file.h"
#include "catalog/pg.h"
#include "catalog/reads.h"
#include "catalog/scrub.h"
#include "verbs/verbs.h"
#include "wire/wire.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AT_ONCE 64 /* removals under way at one endpoint */

typedef struct Destroying {
    const char *directory;
    EcfsTally tally;
} Destroying;

/* The names at one endpoint that are the archive's, and their removal. */
typedef struct Clearing {
    EcfsMutex lock;
    EcfsCond changed;
    GPtrArray *names;     /* owned; this thread's */
    unsigned n_under_way; /* guarded by lock, as the next */
    GError *error;        /* the first */
} Clearing;

static void on_listed (void *user, const EcfsListed *listed)
{
    Clearing *self = user;
    EcfsJournalFile file;
    EcfsUuid object;
    uint16_t index;
    uint64_t instance;
    if (ecfs_stripe_name_parse (listed->name, &object, &index, &instance) ||
        ecfs_journal_file_name_parse (listed->name, &file) || ecfs_key_shares_is_name (listed->name) ||
        g_str_has_prefix (listed->name, "incoming/") || g_str_has_prefix (listed->name, ECFS_SCRATCH_DIRECTORY "/") ||
        g_str_has_prefix (listed->name, ECFS_MARKER_DIRECTORY "/"))
        g_ptr_array_add (self->names, g_strdup (listed->name));
}

static void on_removed (void *user, uint64_t value, const GError *error)
{
    Clearing *self = user;
    (void) value;
    ecfs_mutex_lock (&self->lock);
    self->n_under_way--;
    if (error != NULL && error->code != ENOENT && self->error == NULL)
        self->error = g_error_copy (error);
    ecfs_cond_signal (&self->changed);
    ecfs_mutex_unlock (&self->lock);
}

static void await_fewer_than (Clearing *self, unsigned n)
{
    ecfs_mutex_lock (&self->lock);
    while (self->n_under_way >= n)
        (void) ecfs_cond_wait_until (&self->changed, &self->lock, ecfs_now_us () + G_USEC_PER_SEC);
    ecfs_mutex_unlock (&self->lock);
}

static void remove_names (Destroying *self, EcfsEndpoint *endpoint, Clearing *clearing)
{
    self->tally.progress.n_found += clearing->names->len;
    for (guint i = 0; i < clearing->names->len && ecfs_tally_tick (&self->tally); i++) {
        await_fewer_than (clearing, AT_ONCE);
        ecfs_mutex_lock (&clearing->lock);
        clearing->n_under_way++;
        bool failed = clearing->error != NULL;
        ecfs_mutex_unlock (&clearing->lock);
        if (failed) {
            on_removed (clearing, 0, NULL);
            break;
        }
        ecfs_endpoint_remove (endpoint, g_ptr_array_index (clearing->names, i), on_removed, clearing);
        self->tally.progress.n_done++;
    }
    await_fewer_than (clearing, 1);
}

static bool remove_all (Destroying *self, EcfsEndpoint *endpoint, GError **error)
{
    Clearing clearing = {.names = g_ptr_array_new_with_free_func (g_free)};
    ecfs_mutex_init (&clearing.lock);
    ecfs_cond_init (&clearing.changed);
    bool listed = ecfs_endpoint_list_wait (endpoint, "", on_listed, &clearing, error);
    if (listed)
        remove_names (self, endpoint, &clearing);
    g_ptr_array_unref (clearing.names);
    ecfs_cond_clear (&clearing.changed);
    ecfs_mutex_clear (&clearing.lock);
    if (!listed)
        return false;
    if (clearing.error != NULL)
        g_propagate_error (error, clearing.error);
    return clearing.error == NULL && (!self->tally.cancelled || ecfs_fail (error, ECANCELED, "cancelled"));
}

/* A place of the archive, as this opens it anew: without the marker the archive's own would be down. */
typedef struct Place {
    const EcfsEndpointSpec *spec; /* borrowed of the configuration */
    const EcfsKeyRing *keys;      /* of markers; borrowed of the archive; NULL: it has none … */
    bool lacks_keys;              /* … or they are lost */
    EcfsMarker own;
} Place;

static EcfsEndpoint *open_place (const Place *place, GError **error)
{
    EcfsEndpoint *endpoint = ecfs_endpoint_new (place->spec, &place->own, error);
    if (endpoint != NULL)
        ecfs_endpoint_start (endpoint);
    return endpoint;
}

/* Without a marker nothing of this archive is there any more. */
static bool examine (EcfsEndpoint *endpoint, const Place *place, bool *ret_ours, GError **error)
{
    GError *reason = NULL;
    EcfsMarker there;
    *ret_ours = ecfs_endpoint_examine_wait (endpoint, &there, &reason);
    if (*ret_ours && (!ecfs_uuid_equal (&there.archive, &place->own.archive) ||
                      !ecfs_uuid_equal (&there.endpoint, &place->own.endpoint)))
        return ecfs_fail (error, ENOTCONN, "endpoint %s: what is at %s now is another endpoint, and is left alone",
                          place->spec->name, place->spec->url);
    EcfsMarkerWorth worth =
        *ret_ours && !place->lacks_keys ? ecfs_marker_judge (&there, place->keys, NULL) : ECFS_MARKER_AUTHENTIC;
    /* Few that say so do not make the archive an old copy. */
    if (*ret_ours &&
        (worth == ECFS_MARKER_UNKNOWN_KEY || (worth == ECFS_MARKER_AUTHENTIC && there.epoch > place->own.epoch)))
        return ecfs_fail (
            error, ESTALE,
            "endpoint %s reports a newer copy of the archive, which may own what is there: it is left alone",
            place->spec->name);
    if (*ret_ours)
        return true;
    if (reason->code != ENOENT) {
        g_propagate_error (error, reason);
        return false;
    }
    g_error_free (reason);
    return true;
}

static bool check_removes (EcfsEndpoint *endpoint, GError **error)
{
    return ecfs_endpoint_retain_us (endpoint) == ECFS_RETAIN_NOT ||
           ecfs_fail (
               error, EPERM,
               "endpoint %s: it retains what it has (delete in ecfs.conf): give it a login that may delete there "
               "and delete = yes; with --force only the archive directory goes, and what is there is for the "
               "server's owner to remove",
               ecfs_endpoint_name (endpoint));
}

static bool clear_place (Destroying *self, const Place *place, GError **error)
{
    bool is_ours;
    g_autoptr (EcfsEndpoint) endpoint = open_place (place, error);
    if (endpoint == NULL || !check_removes (endpoint, error) || !examine (endpoint, place, &is_ours, error))
        return false;
    if (!is_ours)
        return true;
    if (!remove_all (self, endpoint, error))
        return false;
    ecfs_archive_remove_salvage (endpoint);
    (void) !ecfs_endpoint_remove_directory_wait (endpoint, ECFS_MARKER_DIRECTORY, NULL);  /* mostly there is none … */
    (void) !ecfs_endpoint_remove_directory_wait (endpoint, ECFS_SCRATCH_DIRECTORY, NULL); /* … of either */
    return ecfs_archive_remove_marker (place->spec, &place->own, error);
}

/* All of them, before anything is removed. */
static bool reach_places (const GArray *places, GError **error)
{
    for (guint i = 0; i < places->len; i++) {
        bool is_ours;
        const Place *place = &g_array_index (places, Place, i);
        g_autoptr (EcfsEndpoint) endpoint = open_place (place, error);
        if (endpoint == NULL || !check_removes (endpoint, error) || !examine (endpoint, place, &is_ours, error))
            return ecfs_prefix (error, "nothing was removed, because what this endpoint has would stay");
    }
    return true;
}

static GArray *list_places (const EcfsArchive *archive)
{
    GArray *places = g_array_new (FALSE, FALSE, sizeof (Place));
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        const EcfsConfigEndpoint *config = ecfs_config_endpoint (ecfs_archive_config (archive), endpoint->name);
        const Place place = {.spec = config == NULL ? NULL : config->spec,
                             .keys = ecfs_archive_marker_keys (archive),
                             .lacks_keys = ecfs_archive_lacks_keys (archive),
                             .own = {.archive = *ecfs_catalog_archive (ecfs_archive_catalog (archive)),
                                     .endpoint = endpoint->uuid,
                                     .epoch = ecfs_catalog_epoch (ecfs_archive_catalog (archive))}};
        if (endpoint->state != ECFS_ENDPOINT_REMOVED && config != NULL)
            g_array_append_val (places, place);
    }
    return places;
}

static bool clear_places (Destroying *self, const GArray *places, bool force, GError **error)
{
    for (guint i = 0; i < places->len && !self->tally.cancelled; i++) {
        GError *reason = NULL;
        if (clear_place (self, &g_array_index (places, Place, i), &reason))
            continue;
        if (!force) {
            g_propagate_error (error, reason);
            return ecfs_prefix (error, "%s stays; destroy it again to remove the rest", self->directory);
        }
        ecfs_tally_warn (&self->tally, reason);
    }
    return !self->tally.cancelled || ecfs_fail (error, ECANCELED, "cancelled");
}

/* What an archive directory has is ours; what else somebody put there stays, and the directory with it. */
static bool remove_directory (const char *directory, GError **error)
{
    static const char *const folders[] = {"staging", "interrupted", "published"};
    static const char *const files[] = {ECFS_CONFIG_NAME,
                                        ECFS_CONFIG_NAME ECFS_CONFIG_PREVIOUS,
                                        ECFS_CATALOG_NAME "-wal",
                                        ECFS_CATALOG_NAME "-shm",
                                        ECFS_CATALOG_NAME,
                                        ECFS_SCRUB_NAME,
                                        ECFS_SCRUB_NAME "-wal",
                                        ECFS_SCRUB_NAME "-shm",
                                        ECFS_SCRUB_NAME ".lock",
                                        ECFS_READS_NAME,
                                        ECFS_READS_NAME "-journal",
                                        ECFS_DOWN_SINCE_NAME,
                                        ECFS_STAGED_ID_NAME,
                                        ECFS_IN_USE_NAME,
                                        ECFS_RENEWED_NAME,
                                        ECFS_CONTROL_SOCKET,
                                        ECFS_KEY_SLOTS_NAME,
                                        ECFS_KEYS_NEXT_NAME,
                                        ECFS_KEY_SLOTS_NEXT_NAME,
                                        ECFS_KEYS_NAME,
                                        ECFS_GAPS_NAME,
                                        ECFS_READER_SOCKET,
                                        ECFS_MONTH_NAME,
                                        ECFS_MONTH_LOCK_NAME,
                                        ECFS_MONTH_DAMAGED_NAME,
                                        ECFS_EVENTS_NAME,
                                        ECFS_FOLLOWED_NAME,
                                        ECFS_CATALOG_PLACE_NAME,
                                        ECFS_LOCK_NAME};
    for (size_t i = 0; i < G_N_ELEMENTS (folders); i++) {
        g_autofree char *path = g_build_filename (directory, folders[i], NULL);
        g_autoptr (GDir) listing = g_dir_open (path, 0, NULL);
        const char *name;
        while (listing != NULL && (name = g_dir_read_name (listing)) != NULL) {
            g_autofree char *file = g_build_filename (path, name, NULL);
            (void) unlink (file); /* what stays keeps the directory, which is told */
        }
        (void) rmdir (path); /* likewise */
    }
    for (size_t i = 0; i < G_N_ELEMENTS (files); i++) {
        g_autofree char *path = g_build_filename (directory, files[i], NULL);
        (void) unlink (path); /* likewise */
    }
    return rmdir (directory) == 0 ||
           ecfs_fail_errno (error, errno, "the archive is gone; its directory %s stays", directory);
}

/* Of a catalog that is in a database; a file goes with the directory. */
static bool remove_rows (const EcfsArchive *archive, GError **error)
{
    g_autofree char *place =
        ecfs_catalog_place (ecfs_archive_directory (archive), ecfs_archive_config (archive), error);
    return place != NULL &&
           (!ecfs_pg_is_location (place) ||
            (ecfs_catalog_barrier (ecfs_archive_catalog (archive), error) && ecfs_pg_drop (place, true, error)));
}

/* Also where it is kept elsewhere. What stays keeps the archive directory, which is told. */
static void remove_cache (const EcfsArchive *archive)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (ecfs_catalog_archive (ecfs_archive_catalog (archive)), uuid);
    g_autofree char *place = ecfs_archive_cache_place (archive), *cache = g_build_filename (place, uuid, NULL);
    g_autofree char *own = g_build_filename (ecfs_archive_directory (archive), ECFS_CACHE_NAME, NULL);
    ecfs_cache_index_discard (cache);
    (void) rmdir (cache);
    (void) rmdir (own);
}

bool ecfs_destroy (const char *directory, bool force, const EcfsTransferOptions *transfer, GError **error)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_TO_DESTROY, error);
    if (archive == NULL || !ecfs_archive_start (archive, error))
        return false;
    ecfs_archive_stop (archive); /* it was found to be the newest there is; its lock stays taken */
    Destroying self = {.directory = ecfs_archive_directory (archive), .tally = {.transfer = transfer}};
    g_autoptr (GArray) places = list_places (archive);
    if ((!force && !reach_places (places, error)) || !clear_places (&self, places, force, error))
        return false;
    g_autofree char *path = g_strdup (ecfs_archive_directory (archive));
    remove_cache (archive);
    return remove_rows (archive, error) && remove_directory (path, error);
}
