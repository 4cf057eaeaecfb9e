/*
 * How an archive and its endpoints begin, so that whatever is killed half-way can be done again. The order:
 * directories, catalog (which has the archive's identity), key, then for each endpoint its marker and its row in the
 * catalog, and ecfs.conf last. So a directory without ecfs.conf, whose catalog never had a file, is what an init has
 * left that did not end; a row that no section names is what an add has left. A marker of this archive that no row
 * names is what an add has left, or an endpoint that a recovery was not given and no journal told it of.
 */
#include "archive/catalog_place.h"
#include "archive/common.h"
#include "archive/init_key.h"
#include "archive/key_losses.h"
#include "archive/key_open.h"
#include "archive/keys.h"
#include "archive/marks.h"
#include "catalog/pg.h"
#include "catalog/sessions.h"
#include "salvage-resource.h"
#include "util/io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define NO_INO (ECFS_ROOT_INO + 1) /* the first that a file gets */

static const char *const directories[] = {"staging", "interrupted"};
static const char *const salvage_names[] = {"salvage/ecfs-salvage", "salvage/readme.txt"}; /* on each endpoint */

bool ecfs_archive_enough_endpoints (const EcfsCodec *codec, size_t n_endpoints, bool allow_double, GError **error)
{
    unsigned n = ecfs_codec_n (codec);
    if (n <= n_endpoints || (allow_double && n_endpoints > 0))
        return true;
    return ecfs_fail (error, EINVAL,
                      "%s makes %u stripes, each for an endpoint of its own, but there are %zu endpoints: add some, "
                      "choose a smaller code, or set allow_double = yes",
                      ecfs_codec_code (codec), n, n_endpoints);
}

/* Endpoints */

static EcfsEndpoint *open_any (const EcfsEndpointSpec *spec, GError **error)
{
    EcfsMarker any = {0}; /* lets the connection be made whatever marker there is */
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &any, error);
    if (endpoint != NULL)
        ecfs_endpoint_start (endpoint);
    return endpoint;
}

void ecfs_archive_remove_salvage (EcfsEndpoint *endpoint)
{
    for (size_t i = 0; i < G_N_ELEMENTS (salvage_names); i++)
        (void) ecfs_endpoint_remove_wait (endpoint, salvage_names[i], NULL); /* what stays does no harm */
    (void) !ecfs_endpoint_remove_directory_wait (endpoint, "salvage", NULL); /* likewise */
}

static bool is_same_endpoint (const EcfsMarker *there, const EcfsMarker *marker)
{
    return ecfs_uuid_equal (&there->archive, &marker->archive) && ecfs_uuid_equal (&there->endpoint, &marker->endpoint);
}

static bool check_marker (EcfsEndpoint *endpoint, const EcfsEndpointSpec *spec, const EcfsMarker *own, GError **error)
{
    EcfsMarker there;
    return ecfs_endpoint_examine_wait (endpoint, &there, error) &&
           (is_same_endpoint (&there, own) ||
            ecfs_fail (error, ENOTCONN, "the endpoint at %s is now another one than %s", spec->url, spec->name));
}

bool ecfs_archive_remove_marker (const EcfsEndpointSpec *spec, const EcfsMarker *own, GError **error)
{
    g_autoptr (EcfsEndpoint) endpoint = open_any (spec, error);
    return endpoint != NULL && (own == NULL || check_marker (endpoint, spec, own, error)) &&
           ecfs_endpoint_remove_wait (endpoint, ECFS_MARKER_NAME, error);
}

static void unmark_endpoint (const EcfsEndpointSpec *spec)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpoint) endpoint = open_any (spec, NULL);
    if (!ecfs_archive_remove_marker (spec, NULL, &error) && error->code != ENOENT)
        g_warning ("%s; remove the file %s there by hand before it is used again", error->message, ECFS_MARKER_NAME);
    if (endpoint == NULL)
        return;
    ecfs_archive_remove_salvage (endpoint);
    ecfs_key_shares_take_away (endpoint);
    (void) !ecfs_endpoint_remove_directory_wait (endpoint, "incoming", NULL); /* what is in use stays */
}

/* What one that was not marked got all the same. */
static void tidy_unmarked (const EcfsEndpointSpec *spec)
{
    EcfsMarker there;
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpoint) endpoint = open_any (spec, NULL);
    if (endpoint != NULL && !ecfs_endpoint_examine_wait (endpoint, &there, &error) && error->code == ENOENT)
        (void) !ecfs_endpoint_remove_directory_wait (endpoint, "incoming", NULL); /* what is in use stays */
}

/* The row with this name; @ret_row gets none. */
static bool find_row (EcfsCatalog *catalog, const char *name, EcfsEndpointRow *ret_row)
{
    g_autoptr (GPtrArray) rows = ecfs_catalog_endpoints (catalog, NULL); /* adding the row finds what is wrong */
    for (guint i = 0; rows != NULL && i < rows->len; i++) {
        const EcfsEndpointRow *row = g_ptr_array_index (rows, i);
        if (strcmp (row->name, name) == 0) {
            *ret_row = *row;
            ret_row->name = NULL;
            return true;
        }
    }
    return false;
}

/* What was taken out may have missed everything since. */
static bool check_never_removed (EcfsCatalog *catalog, const EcfsMarker *there, GError **error)
{
    g_autofree char *was = NULL;
    return ecfs_catalog_endpoint_removed (catalog, &there->endpoint, &was, error) &&
           (was == NULL || ecfs_fail (error, EEXIST,
                                      "it was an endpoint of this archive, %s, and nothing there is used any more: "
                                      "empty its directory, and add it again",
                                      was));
}

static bool check_no_row (EcfsCatalog *catalog, const EcfsMarker *there, GError **error)
{
    g_autoptr (GPtrArray) rows = ecfs_catalog_endpoints (catalog, error);
    for (guint i = 0; rows != NULL && i < rows->len; i++) {
        const EcfsEndpointRow *other = g_ptr_array_index (rows, i);
        if (ecfs_uuid_equal (&other->uuid, &there->endpoint))
            return ecfs_fail (error, EEXIST, "it is the same place as endpoint %s, by another URL", other->name);
    }
    return rows != NULL;
}

/* An endpoint whose marker is ahead of the catalog is used by another copy of it, as one that was recovered. */
static bool check_not_newer (EcfsCatalog *catalog, const EcfsMarker *there, GError **error)
{
    uint32_t epoch = ecfs_catalog_epoch (catalog);
    bool known = there->epoch < epoch || there->session_number == 0;
    if (there->claim.epoch > epoch)
        return ecfs_fail (
            error, EEXIST,
            "a recovery of this archive%s%s has claimed it: when that has ended, use the archive directory "
            "that it made; if it was interrupted, run 'ecfs recover' again and name all endpoints",
            *there->claim.host == '\0' ? "" : " on ", there->claim.host);
    if (!known && !ecfs_catalog_session_known (catalog, there->session_number, &there->session, &known, error))
        return false;
    return (known &&
            (there->epoch < epoch || (there->epoch == epoch && there->sequence <= ecfs_catalog_sequence (catalog)))) ||
           ecfs_fail (error, EEXIST,
                      "it is in use by another copy of this archive directory: its marker is of epoch %" PRIu32
                      ", change %" PRIu64 ", and this one ends at epoch %" PRIu32 ", change %" PRIu64
                      ": use the newer one, or make one with 'ecfs recover' and name all endpoints",
                      there->epoch, there->sequence, epoch, ecfs_catalog_sequence (catalog));
}

/* Whether the endpoint with this marker may be one of the archive again, as it is. */
static bool check_returns (EcfsCatalog *catalog, const EcfsKeyRing *keys, const EcfsMarker *there, GError **error)
{
    g_autofree char *fault = ecfs_marker_fault (there, ecfs_marker_judge (there, keys, NULL));
    if (!check_no_row (catalog, there, error))
        return false;
    if (fault != NULL)
        return ecfs_fail (
            error, EEXIST,
            "it says that it is an endpoint of this archive already, but %s: choose another directory, or "
            "empty this one if nothing there is needed",
            fault);
    return check_not_newer (catalog, there, error) && check_never_removed (catalog, there, error);
}

/* Writes *marker, or takes the one that is there into it where no row names that; *ret_returns: which it was.
 * @begun_only: takes only one that may be what this epoch has begun and not finished. */
static bool mark_endpoint (EcfsCatalog *catalog, const EcfsKeyRing *keys, EcfsEndpoint *endpoint, EcfsMarker *marker,
                           bool begun_only, bool *ret_returns, GError **error)
{
    g_autoptr (GError) reason = NULL;
    EcfsMarker there;
    ecfs_marker_sign (marker, keys);
    *ret_returns = false;
    if (ecfs_endpoint_mark_wait (endpoint, marker, true, &reason))
        return true;
    if (reason->code == EEXIST && ecfs_endpoint_examine_wait (endpoint, &there, NULL) &&
        ecfs_uuid_equal (&there.archive, &marker->archive) && (!begun_only || there.epoch == marker->epoch)) {
        if (!check_returns (catalog, keys, &there, error))
            return ecfs_prefix (error, "endpoint %s", ecfs_endpoint_name (endpoint));
        *marker = there;
        *ret_returns = true;
        return true;
    }
    g_propagate_error (error, g_steal_pointer (&reason));
    return false;
}

/* Whether the endpoint is the one of a row: its marker says so, or the archive is @new and it has none. */
static bool check_that_of_row (EcfsEndpoint *endpoint, const EcfsEndpointSpec *spec, const EcfsMarker *marker, bool new,
                               GError **error)
{
    GError *reason = NULL;
    EcfsMarker there;
    if (ecfs_endpoint_examine_wait (endpoint, &there, &reason))
        return is_same_endpoint (&there, marker) ||
               ecfs_fail (error, EEXIST,
                          "there is an endpoint %s already, and it is not the one at %s; give this one another name",
                          spec->name, spec->url);
    if (!new && reason->code == ENOENT) {
        g_error_free (reason);
        return ecfs_fail (error, ENOENT,
                          "there is an endpoint %s already, but %s has no %s: mount it, or if it was emptied, begin "
                          "anew there with 'ecfs endpoint replace' and its name alone",
                          spec->name, spec->url, ECFS_MARKER_NAME);
    }
    if (!new || reason->code != ENOENT) {
        g_propagate_error (error, reason);
        return false;
    }
    g_error_free (reason);
    return ecfs_endpoint_mark_wait (endpoint, marker, true, error);
}

/* What restores files for those who have nothing but endpoints. The archive works without it. */
static void leave_salvage (EcfsEndpoint *endpoint)
{
    for (size_t i = 0; i < G_N_ELEMENTS (salvage_names); i++) {
        g_autofree char *path = g_strconcat ("/", salvage_names[i], NULL);
        g_autoptr (GError) error = NULL;
        g_autoptr (GBytes) bytes = g_resource_lookup_data (ecfs_salvage_get_resource (), path, 0, &error);
        gsize size;
        const void *data = bytes == NULL ? NULL : g_bytes_get_data (bytes, &size);
        if ((data == NULL || !ecfs_endpoint_write_wait (endpoint, salvage_names[i], data, size, &error)) &&
            error->code != EEXIST)
            g_warning ("%s; the archive works without it", error->message);
    }
}

static void tell_nobody (void *user, const char *text)
{
    (void) user;
    (void) text;
}

/* The share of the key that an endpoint has kept stays that of its zone: with a second one fewer zones could read. */
static bool note_share (EcfsCatalog *catalog, const EcfsKeyShares *shares, EcfsEndpoint *endpoint,
                        const EcfsConfigEndpoint *config, GError **error)
{
    g_autoptr (GArray) all = ecfs_key_found_new ();
    const EcfsKeyFound where = {.endpoint = config->spec->name, .zone = config->zone};
    if (shares == NULL || ecfs_key_shares_threshold (shares) == 0)
        return true;
    ecfs_key_find (endpoint, ecfs_catalog_archive (catalog), &where, all, tell_nobody, NULL);
    for (guint i = 0; i < all->len; i++) {
        const EcfsKeyFile *file = &g_array_index (all, EcfsKeyFound, i).file;
        if (ecfs_key_shares_has (shares, file) &&
            !ecfs_key_shares_note_found (catalog, config->zone, file->share.x, error))
            return false;
    }
    return true;
}

static bool add_endpoint (EcfsCatalog *catalog, const EcfsKeyRing *keys, const EcfsKeyShares *shares,
                          EcfsEndpoint *endpoint, const EcfsConfigEndpoint *config, bool new, EcfsEndpointRow *ret_row,
                          GError **error)
{
    bool returns;
    const EcfsEndpointSpec *spec = config->spec;
    EcfsMarker marker = {.archive = *ecfs_catalog_archive (catalog),
                         .endpoint = ecfs_uuid_new (),
                         .epoch = ecfs_catalog_epoch (catalog),
                         .sequence = ecfs_catalog_sequence (catalog)};
    /* A marker that knows more than the catalog after a crash would make that an old copy. */
    if (!ecfs_catalog_barrier (catalog, error))
        return false;
    if (find_row (catalog, spec->name, ret_row)) {
        marker.endpoint = ret_row->uuid;
        ecfs_marker_sign (&marker, keys);
        return check_that_of_row (endpoint, spec, &marker, new, error);
    }
    if (!mark_endpoint (catalog, keys, endpoint, &marker, false, &returns, error) ||
        (returns && !note_share (catalog, shares, endpoint, config, error)))
        return false;
    *ret_row = (EcfsEndpointRow){.uuid = marker.endpoint, .state = ECFS_ENDPOINT_ACTIVE};
    if (ecfs_catalog_endpoint_add (catalog, &marker.endpoint, spec->name, &ret_row->id, error))
        return true;
    if (!returns) /* what was there before stays as it was */
        unmark_endpoint (spec);
    return false;
}

static bool give_share (EcfsCatalog *catalog, const EcfsKeyShares *shares, EcfsEndpoint *endpoint, const char *zone,
                        GError **error)
{
    return shares == NULL || ecfs_key_shares_put (shares, catalog, endpoint, zone, error);
}

bool ecfs_archive_register (EcfsCatalog *catalog, const EcfsKeyRing *keys, const EcfsKeyShares *shares,
                            const EcfsConfigEndpoint *config, bool new, EcfsEndpointRow *ret_row, GError **error)
{
    g_autoptr (EcfsEndpoint) endpoint = open_any (config->spec, error);
    if (endpoint == NULL || !add_endpoint (catalog, keys, shares, endpoint, config, new, ret_row, error))
        return false;
    if (!give_share (catalog, shares, endpoint, config->zone, error)) {
        if (new)
            unmark_endpoint (config->spec);
        return new ? false
                   : ecfs_prefix (error, "endpoint %s has no share of the key yet, run this again", config->spec->name);
    }
    leave_salvage (endpoint);
    return true;
}

static void count_ours (void *user, const EcfsListed *listed)
{
    static const char *const ours[] = {"stripes/", "journal/", "snapshots/"};
    for (size_t i = 0; i < G_N_ELEMENTS (ours); i++)
        *(uint64_t *) user += g_str_has_prefix (listed->name, ours[i]);
}

/* Its place has its marker: what was asked for is done already, or it was not emptied. */
static bool refuse_marked (EcfsCatalog *catalog, const EcfsEndpointSpec *spec, const EcfsArchiveEndpoint *old,
                           GError **error)
{
    bool done;
    if (!ecfs_catalog_endpoint_was_superseded (catalog, old->name, &done, error))
        return false;
    return done ? ecfs_fail (error, EALREADY,
                             "endpoint %s was replaced already, and its new marker is at %s; to begin anew there once "
                             "more, empty it first",
                             old->name, spec->url)
                : ecfs_fail (error, EEXIST,
                             "endpoint %s was not emptied: its marker is at %s; 'ecfs fsck -y' rebuilds what it lacks",
                             old->name, spec->url);
}

/* What has lost no more than its marker is to get it back, not to be thrown away. */
static bool check_emptied (EcfsCatalog *catalog, EcfsEndpoint *endpoint, const EcfsEndpointSpec *spec,
                           const EcfsArchiveEndpoint *old, GError **error)
{
    g_autoptr (GError) reason = NULL;
    EcfsMarker there;
    uint64_t n_files = 0;
    if (ecfs_endpoint_examine_wait (endpoint, &there, &reason))
        return !ecfs_uuid_equal (&there.endpoint, &old->uuid) || refuse_marked (catalog, spec, old, error);
    if (reason->code != ENOENT) {
        g_propagate_error (error, g_steal_pointer (&reason));
        return false;
    }
    if (!ecfs_endpoint_list_wait (endpoint, "", count_ours, &n_files, &reason) && reason->code != ENOENT) {
        g_propagate_error (error, g_steal_pointer (&reason));
        return false;
    }
    return n_files == 0 ||
           ecfs_fail (
               error, ENOTEMPTY,
               "endpoint %s: %s has no %s, but %" PRIu64
               " stripes and other files: restore that file if they belong to this endpoint, else empty the directory",
               old->name, spec->url, ECFS_MARKER_NAME, n_files);
}

bool ecfs_archive_register_anew (EcfsCatalog *catalog, const EcfsKeyRing *keys, const EcfsKeyShares *shares,
                                 const EcfsConfigEndpoint *config, const EcfsArchiveEndpoint *old,
                                 EcfsEndpointRow *ret_row, char **ret_old_name, GError **error)
{
    const EcfsEndpointSpec *spec = config->spec;
    bool returns;
    g_autoptr (EcfsEndpoint) endpoint = open_any (spec, error);
    EcfsMarker marker = {.archive = *ecfs_catalog_archive (catalog),
                         .endpoint = ecfs_uuid_new (),
                         .epoch = ecfs_catalog_epoch (catalog),
                         .sequence = ecfs_catalog_sequence (catalog)};
    if (endpoint == NULL || !check_emptied (catalog, endpoint, spec, old, error) ||
        !ecfs_catalog_barrier (catalog, error) ||
        !mark_endpoint (catalog, keys, endpoint, &marker, true, &returns, error))
        return false;
    *ret_row = (EcfsEndpointRow){.uuid = marker.endpoint, .state = ECFS_ENDPOINT_ACTIVE};
    if (!give_share (catalog, shares, endpoint, config->zone, error) ||
        !ecfs_catalog_endpoint_supersede (catalog, old->id, &marker.endpoint, &ret_row->id, ret_old_name, error)) {
        if (!returns)
            unmark_endpoint (spec);
        return false;
    }
    leave_salvage (endpoint);
    return true;
}

/* The archive directory */

/* Made to be renamed at once: what is left of it is of no use. */
static bool is_temporary (const char *name)
{
    return g_str_has_prefix (name, ECFS_CATALOG_NAME ".new-") || g_str_has_prefix (name, ECFS_CONFIG_NAME ".new-") ||
           g_str_has_prefix (name, ECFS_KEYS_NAME ".new-") || g_str_has_prefix (name, ECFS_KEY_SLOTS_NAME ".new-");
}

/* What init makes before ecfs.conf. */
static bool is_of_init (const char *name)
{
    static const char *const names[] = {ECFS_CATALOG_NAME,      ECFS_CATALOG_NAME "-wal", ECFS_CATALOG_NAME "-shm",
                                        ECFS_LOCK_NAME,         ECFS_KEYS_NAME,           ECFS_KEY_SLOTS_NAME,
                                        ECFS_CATALOG_PLACE_NAME};
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++)
        if (strcmp (name, names[i]) == 0)
            return true;
    for (size_t i = 0; i < G_N_ELEMENTS (directories); i++)
        if (strcmp (name, directories[i]) == 0)
            return true;
    return is_temporary (name);
}

/* Removes what init makes: all, or only what is temporary. */
static void remove_files (const char *directory, bool all)
{
    g_autoptr (GDir) listing = g_dir_open (directory, 0, NULL);
    const char *name;
    while (listing != NULL && (name = g_dir_read_name (listing)) != NULL) {
        g_autofree char *path = g_build_filename (directory, name, NULL);
        if (is_temporary (name) || (all && (is_of_init (name) || strcmp (name, ECFS_CONFIG_NAME) == 0 ||
                                            strcmp (name, ECFS_RECOVERING_NAME) == 0)))
            (void) remove (path); /* what stays does no harm, or the error is known already */
    }
}

bool ecfs_archive_has_config (const char *directory)
{
    g_autofree char *path = g_build_filename (directory, ECFS_CONFIG_NAME, NULL);
    return access (path, F_OK) == 0;
}

/* Whether the directory is empty, or as an init left it that was killed, or a recovery where @recovers; with its lock
 * held. */
static bool examine_directory (const char *directory, bool recovers, bool *ret_begun, GError **error)
{
    *ret_begun = false;
    g_autoptr (GError) reason = NULL;
    g_autoptr (GDir) listing = g_dir_open (directory, 0, &reason);
    if (listing == NULL)
        return ecfs_fail (error, ENOTDIR, "%s: %s", directory, reason->message);
    const char *name;
    while ((name = g_dir_read_name (listing)) != NULL) {
        if (!is_of_init (name) && (!recovers || strcmp (name, ECFS_RECOVERING_NAME) != 0))
            return ecfs_archive_has_config (directory)
                       ? ecfs_fail (error, ENOTEMPTY, "%s is an archive already: 'ecfs status' shows its state",
                                    directory)
                       : ecfs_fail (error, ENOTEMPTY, "%s is not empty: make the archive in a new or empty directory",
                                    directory);
        *ret_begun = true;
    }
    return true;
}

bool ecfs_archive_make_directories (const char *directory, GError **error)
{
    for (size_t i = 0; i < G_N_ELEMENTS (directories); i++) {
        g_autofree char *path = g_build_filename (directory, directories[i], NULL);
        if (mkdir (path, 0700) != 0 && errno != EEXIST)
            return ecfs_fail_errno (error, errno, "%s: cannot make it", path);
    }
    return true;
}

/* Unless it is there. */
static bool make_catalog (const char *place, GError **error)
{
    EcfsUuid archive = ecfs_uuid_new ();
    g_autoptr (GError) why = NULL;
    if (ecfs_pg_is_location (place)) {
        g_autofree char *text = g_strndup (strrchr (place, '#') + 1, ECFS_UUID_TEXT_SIZE - 1);
        if (!ecfs_uuid_parse (text, &archive))
            return ecfs_fail (error, EBADMSG, "%s: '%s' is no UUID", ECFS_CATALOG_PLACE_NAME, text);
    }
    if (ecfs_catalog_create (place, &archive, &why) || why->code == EEXIST)
        return true;
    g_propagate_error (error, g_steal_pointer (&why));
    return false;
}

/* A new catalog, or the one that an init has begun, which must have nothing but endpoints that @config has too. */
static EcfsCatalog *open_new_catalog (const char *directory, const EcfsConfig *config, GError **error)
{
    EcfsUuid archive = ecfs_uuid_new ();
    if (!ecfs_catalog_place_make (directory, config, &archive, error))
        return NULL;
    g_autofree char *place = ecfs_catalog_place (directory, config, error);
    if (place == NULL || !make_catalog (place, error))
        return NULL;
    EcfsCatalog *catalog = ecfs_catalog_open (place, 0, error);
    uint64_t next_ino = 0;
    g_autoptr (GPtrArray) rows = catalog == NULL ? NULL : ecfs_catalog_endpoints (catalog, error);
    bool fine = rows != NULL && ecfs_catalog_next_ino (catalog, &next_ino, error);
    if (fine && next_ino != NO_INO)
        fine = ecfs_fail (error, ENOTEMPTY,
                          "%s holds the catalog of an archive that has lost its " ECFS_CONFIG_NAME
                          ": restore that file from a backup",
                          directory);
    for (guint i = 0; fine && i < rows->len; i++) {
        const EcfsEndpointRow *row = g_ptr_array_index (rows, i);
        if (ecfs_config_endpoint (config, row->name) == NULL)
            fine = ecfs_fail (error, ENOTEMPTY,
                              "%s: an interrupted 'ecfs init' had begun with an endpoint %s: run it again with the "
                              "same endpoints, or remove the directory, and the file " ECFS_MARKER_NAME
                              " at each of its endpoints",
                              directory, row->name);
    }
    if (fine)
        return catalog;
    (void) ecfs_catalog_close (catalog, NULL); /* the first error is the one to tell */
    return NULL;
}

static bool write_config (const char *directory, const EcfsConfig *config, GError **error)
{
    g_autofree char *path = g_build_filename (directory, ECFS_CONFIG_NAME, NULL);
    g_autofree char *text = ecfs_config_format (config);
    return ecfs_replace_file (path, text, strlen (text), 0600, error);
}

/* How many of the zones bring a shared key back. */
static bool find_threshold (const EcfsConfig *config, const EcfsCodec *codec, unsigned *ret_threshold, GError **error)
{
    EcfsKeyLosses losses = {.zones = 0};
    g_autoptr (GHashTable) names = g_hash_table_new (g_str_hash, g_str_equal);
    g_autoptr (GPtrArray) zones = g_ptr_array_new ();
    for (guint i = 0; i < config->endpoints->len; i++) {
        g_ptr_array_add (zones, ((EcfsConfigEndpoint *) g_ptr_array_index (config->endpoints, i))->zone);
        g_hash_table_add (names, g_ptr_array_index (zones, i));
    }
    ecfs_key_losses_add (&losses, (const char *const *) zones->pdata, zones->len, config->allow_double, codec);
    return ecfs_key_threshold (g_hash_table_size (names), &losses, ret_threshold, error);
}

/* The key is on the disk before anything is stored under it, and its slots before any endpoint is used. */
static bool make_key (const char *directory, EcfsCatalog *catalog, const EcfsKeyKeeping *keeping,
                      EcfsKeyRing **ret_keys, EcfsKeyShares **ret_shares, GError **error)
{
    return ecfs_archive_make_key (directory, catalog, keeping, ret_keys, ret_shares, error) &&
           (*ret_keys == NULL || ecfs_keys_keep_id (catalog, *ret_keys, error)) &&
           (*ret_shares == NULL || ecfs_key_shares_tell (*ret_shares, catalog, error));
}

static bool fill_directory (const char *directory, const EcfsConfig *config, const EcfsKeyKeeping *keeping,
                            guint *n_marked, GError **error)
{
    if (!ecfs_archive_make_directories (directory, error))
        return false;
    EcfsCatalog *catalog = open_new_catalog (directory, config, error);
    if (catalog == NULL)
        return false;
    remove_files (directory, false);
    g_autoptr (EcfsKeyRing) keys = NULL;
    g_autoptr (EcfsKeyShares) shares = NULL;
    bool fine = make_key (directory, catalog, keeping, &keys, &shares, error);
    for (; fine && *n_marked < config->endpoints->len; *n_marked += fine) {
        const EcfsConfigEndpoint *endpoint = g_ptr_array_index (config->endpoints, *n_marked);
        EcfsEndpointRow row;
        fine = ecfs_archive_register (catalog, keys, shares, endpoint, true, &row, error);
    }
    fine = fine && write_config (directory, config, error);
    return ecfs_catalog_close (catalog, fine ? error : NULL) && fine;
}

static bool lock_directory (const char *directory, int *ret_fd, GError **error)
{
    *ret_fd = open (directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_fd >= 0 && flock (*ret_fd, LOCK_EX | LOCK_NB) == 0)
        return true;
    if (*ret_fd >= 0 && errno == EWOULDBLOCK)
        return ecfs_fail (error, EBUSY, "%s: another ecfs init is at work there", directory);
    return ecfs_fail_errno (error, errno, "%s: cannot lock it", directory);
}

/* With a name that a power failure leaves it: all that is promised later is in there. */
static bool make_directory (const char *directory, bool *ret_made, GError **error)
{
    g_autofree char *parent = g_path_get_dirname (directory);
    *ret_made = mkdir (directory, 0700) == 0;
    if (!*ret_made && errno != EEXIST)
        return ecfs_fail_errno (error, errno, "%s: cannot make the archive directory", directory);
    int result = *ret_made ? ecfs_fsync_dir (AT_FDCWD, parent) : 0;
    if (result == 0 || result == -EACCES) /* it may be one that we can only write to */
        return true;
    (void) rmdir (directory); /* the first error is the one to tell */
    return ecfs_fail_errno (error, -result, "%s: cannot make the archive directory durable", directory);
}

/* An empty directory that is ours but for others to write to becomes ours alone; another's is none to begin in. */
static bool own_directory (const char *directory, int fd, GError **error)
{
    struct stat status;
    if (fstat (fd, &status) != 0)
        return ecfs_fail_errno (error, errno, "%s", directory);
    if (status.st_uid == geteuid () && (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        status.st_mode &= ~(mode_t) (S_IWGRP | S_IWOTH);
        if (fchmod (fd, status.st_mode & 07777) != 0)
            return ecfs_fail_errno (error, errno, "%s: cannot keep others from writing to it", directory);
    }
    return ecfs_archive_check_owner (directory, &status, error);
}

bool ecfs_archive_begin_directory (const char *directory, int *ret_lock, bool *ret_made, GError **error)
{
    bool begun;
    if (!make_directory (directory, ret_made, error))
        return false;
    if (!lock_directory (directory, ret_lock, error) || !examine_directory (directory, true, &begun, error) ||
        !own_directory (directory, *ret_lock, error))
        return false;
    g_autofree char *mark = g_build_filename (directory, ECFS_RECOVERING_NAME, NULL);
    if (begun && !ecfs_archive_has_config (directory) && access (mark, F_OK) == 0)
        remove_files (directory, true); /* it was killed, and nothing of it is anybody's */
    else if (begun)
        return ecfs_fail (error, ENOTEMPTY, "%s is not empty: recover into a new or empty directory", directory);
    return ecfs_replace_file (mark, "", 0, 0600, error);
}

void ecfs_archive_end_directory (const char *directory)
{
    g_autofree char *mark = g_build_filename (directory, ECFS_RECOVERING_NAME, NULL);
    (void) unlink (mark); /* beside ecfs.conf it means nothing */
}

void ecfs_archive_empty_directory (const char *directory, bool made)
{
    remove_files (directory, true);
    if (made)
        (void) rmdir (directory); /* the error is known already */
}

/* Of a catalog in a database that was begun; a file goes with the directory. */
static void remove_rows (const char *directory, const EcfsConfig *config)
{
    g_autofree char *place = config->catalog == NULL ? NULL : ecfs_catalog_place (directory, config, NULL);
    if (place != NULL)
        (void) ecfs_pg_drop (place, false, NULL); /* the first error is the one to tell */
}

bool ecfs_archive_init (const char *directory, const EcfsConfig *config, EcfsKeeping how, const EcfsKeyOpener *opener,
                        GError **error)
{
    g_autoptr (EcfsCodec) codec = ecfs_codec_new (config->code, error);
    EcfsKeyKeeping keeping = {.how = how, .opener = opener};
    if (codec == NULL || !ecfs_archive_enough_endpoints (codec, config->endpoints->len, config->allow_double, error) ||
        (ecfs_keeping_is_shared (how) && !find_threshold (config, codec, &keeping.threshold, error)))
        return false;
    for (guint i = 0; i < config->endpoints->len; i++)
        if (!ecfs_archive_check_apart (directory, g_ptr_array_index (config->endpoints, i), error))
            return false;
    bool made, begun;
    if (!make_directory (directory, &made, error))
        return false;
    ecfs_autofd lock = -1;
    if (!lock_directory (directory, &lock, error) || !examine_directory (directory, false, &begun, error) ||
        !own_directory (directory, lock, error))
        return false;
    guint n_marked = 0;
    if (fill_directory (directory, config, &keeping, &n_marked, error))
        return true;
    if (begun) /* it may have marked more endpoints than this one came to: to be done again */
        return false;
    for (guint i = 0; i < n_marked; i++)
        unmark_endpoint (((EcfsConfigEndpoint *) g_ptr_array_index (config->endpoints, i))->spec);
    if (n_marked < config->endpoints->len)
        tidy_unmarked (((EcfsConfigEndpoint *) g_ptr_array_index (config->endpoints, n_marked))->spec);
    remove_rows (directory, config);
    ecfs_archive_empty_directory (directory, made);
    return false;
}
