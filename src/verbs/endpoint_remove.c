/*
 * Taking an endpoint out of the archive. Each step leaves what the next call can go on from:
 *
 *   1 it is DRAINING, and empty         nothing comes there any more; else it is refused
 *   2 journal and snapshot elsewhere    what it has of them is not needed any more
 *   3 journal, snapshots, marker gone   from here on it is unavailable; where it does not answer this is left out
 *   4 its section of ecfs.conf gone     it is unavailable after the next open, too
 *   5 its row is REMOVED                its name is free, and its identity is known should it ever come back
 */
#include "archive/catalog_place.h"
#include "archive/common.h"
#include "archive/config.h"
#include "archive/key_watch.h"
#include "archive/lineage.h"
#include "archive/places_gone.h"
#include "catalog/journal_file.h"
#include "catalog/journal_rows.h"
#include "journal/journal_watch.h"
#include "journal/past_journal.h"
#include "journal/snapshot.h"
#include "verbs/drain.h"
#include "verbs/status.h"

#include <inttypes.h>

#define PATIENCE_US 5000000

/* *ret_n: those that are to be moved; *ret_n_lost: of the past, those that go with the endpoint. */
static bool count_objects (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint, uint64_t *ret_n,
                           uint64_t *ret_n_lost, GError **error)
{
    EcfsHolding holding;
    GError *why = NULL;
    *ret_n = 0;
    ecfs_holding_init (&holding, self, endpoint->id);
    for (;;) {
        g_autoptr (EcfsObjectRow) object = ecfs_holding_next (&holding, &why);
        if (object == NULL)
            break;
        (*ret_n)++;
    }
    *ret_n_lost = holding.n_lost;
    ecfs_holding_clear (&holding);
    if (why == NULL)
        return true;
    g_propagate_error (error, why);
    return false;
}

static bool check_empty (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    bool empty;
    uint64_t n_objects, n_lost;
    if (!ecfs_archive_reaches (endpoint)) /* for a moment, perhaps: what it alone has is not to be given up for that */
        ecfs_archive_probe (self, PATIENCE_US);
    if (!ecfs_endpoint_is_empty (self, endpoint, &empty, error))
        return false;
    if (!empty) /* it may be that what the past has goes with it, if it does not answer */
        ecfs_archive_probe (self, PATIENCE_US);
    if (!empty && (!ecfs_endpoint_is_empty (self, endpoint, &empty, error) ||
                   !count_objects (self, endpoint, &n_objects, &n_lost, error)))
        return false;
    return empty ||
           ecfs_fail (error, EBUSY,
                      "endpoint %s holds stripes of %" PRIu64 " objects, or gets some now: move them to others "
                      "with 'ecfs endpoint drain %s %s' first",
                      endpoint->name, n_objects, ecfs_archive_directory (self), endpoint->name);
}

static bool check_code (EcfsArchive *self, const char *code, GError **error)
{
    const EcfsCodec *codec = ecfs_archive_codec (self, code, error);
    size_t n_others = ecfs_archive_n_left (self) - 1;
    return codec != NULL &&
           ecfs_archive_enough_endpoints (codec, n_others, ecfs_archive_config (self)->allow_double, error);
}

static bool check_directory (EcfsArchive *self, uint64_t ino, GError **error)
{
    g_autofree char *code = NULL;
    if (!ecfs_catalog_get_code (ecfs_archive_catalog (self), ino, &code, error))
        return false;
    if (code == NULL || check_code (self, code, error)) /* NULL: it was taken back since it was listed */
        return true;
    g_autofree char *path = ecfs_catalog_path (ecfs_archive_catalog (self), ino);
    return ecfs_prefix (error, "user.ecfs.code of the directory %s", path);
}

/* The archive is to open without it, too, and what comes into its directories is to find places. */
static bool check_others (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    g_autoptr (GArray) directories = ecfs_catalog_directories_with_codes (ecfs_archive_catalog (self), error);
    bool enough = directories != NULL && check_code (self, ecfs_archive_config (self)->code, error);
    for (guint i = 0; enough && i < directories->len; i++)
        enough = check_directory (self, g_array_index (directories, uint64_t, i), error);
    return enough || ecfs_prefix (error, "without endpoint %s", endpoint->name);
}

/* Where a snapshot may go: as many as should have it of those that are up; 0: fewer than need it. */
static size_t choose (EcfsArchive *self, EcfsEndpoint **ret_endpoints)
{
    size_t n_chosen = 0, n_endpoints = ecfs_archive_n_endpoints (self), n_copies = ecfs_archive_journal_copies (self);
    for (size_t i = 0; i < n_endpoints && n_chosen < ecfs_snapshot_copies (self); i++)
        if (ecfs_archive_has_journal (ecfs_archive_endpoint (self, i)) &&
            ecfs_archive_reaches (ecfs_archive_endpoint (self, i)) &&
            ecfs_lineage_may_write (ecfs_archive_lineage (self), i))
            ret_endpoints[n_chosen++] = ecfs_archive_endpoint (self, i)->endpoint;
    return n_chosen < n_copies ? 0 : n_chosen;
}

/* Those that there are may be there only. */
static bool take_snapshot (EcfsArchive *self, GError **error)
{
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (ecfs_archive_catalog (self), error);
    if (rows == NULL || rows->len == 0)
        return rows != NULL;
    EcfsSnapshotRow row;
    g_autofree EcfsEndpoint **endpoints = g_new0 (EcfsEndpoint *, ecfs_archive_n_endpoints (self) + 1);
    g_autofree char *path = ecfs_catalog_place (ecfs_archive_directory (self), ecfs_archive_config (self), error);
    if (path == NULL)
        return false;
    size_t n_chosen = choose (self, endpoints);
    const EcfsSnapshotOrder order = {.catalog = path,
                                     .directory = ecfs_archive_directory (self),
                                     .live = ecfs_archive_catalog (self),
                                     .keys = ecfs_archive_keys (self),
                                     .reserve_bytes = ecfs_archive_config (self)->staging_reserve / 2,
                                     .endpoints = endpoints,
                                     .n_endpoints = n_chosen,
                                     .stop = ecfs_archive_stop_flag (self)};
    if (n_chosen == 0)
        return ecfs_fail (error, ENOTCONN, "too few endpoints are up for a snapshot of the catalog");
    GError *why = NULL;
    if (!ecfs_snapshot_mark_moment (self, error) || !ecfs_catalog_barrier (ecfs_archive_catalog (self), error))
        return false;
    if (ecfs_snapshot_store (&order, &row, NULL, &why))
        return ecfs_snapshot_note (self, &row, error);
    if (why->code == EPERM) /* what broke off keeps its name there: the next call has another */
        (void) ecfs_catalog_advance (ecfs_archive_catalog (self), NULL);
    g_propagate_error (error, why);
    return false;
}

/* *ret_untold: what goes with the endpoint of the journal that tells the past, for the user; NULL: nothing; g_free ()
 */
static bool store_snapshot (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint, char **ret_untold, GError **error)
{
    ecfs_mutex_lock (ecfs_archive_snapshot_lock (self));
    g_autoptr (EcfsPastJournal) past = NULL;
    bool stored = take_snapshot (self, error) && (past = ecfs_past_journal_look (self, error)) != NULL &&
                  ecfs_past_journal_give (past, ecfs_archive_stop_flag (self), INT64_MAX, error);
    unsigned n = 0;
    if (stored && !ecfs_past_journal_left (past, ecfs_archive_position (self, endpoint), &n))
        *ret_untold =
            g_strdup ("history: it cannot be asked what it has of the journal, and the others do not have all "
                      "of it: moments that only it tells are lost");
    else if (n > 0)
        *ret_untold =
            g_strdup_printf ("history: %u files of the journal were there alone, and others could not take or "
                             "believe them: moments that only they tell are lost",
                             n);
    ecfs_mutex_unlock (ecfs_archive_snapshot_lock (self));
    return stored;
}

/* What is there beside stripes */

static void on_listed (void *user, const EcfsListed *listed)
{
    EcfsJournalFile file;
    if (ecfs_journal_file_name_parse (listed->name, &file))
        g_ptr_array_add (user, g_strdup (listed->name));
}

static bool is_there (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    EcfsMarker marker;
    if (endpoint->endpoint == NULL)
        return ecfs_fail (
            error, ENOTCONN,
            "endpoint %s is not in ecfs.conf here: put its section back, or copy it from the machine that "
            "added the endpoint",
            endpoint->name);
    if (!ecfs_endpoint_examine_wait (endpoint->endpoint, &marker, error))
        return false;
    return (ecfs_uuid_equal (&marker.archive, ecfs_catalog_archive (ecfs_archive_catalog (self))) &&
            ecfs_uuid_equal (&marker.endpoint, &endpoint->uuid)) ||
           ecfs_fail (error, ENOTCONN, "endpoint %s has become another one", endpoint->name);
}

/* What it has of the journal may be newer than an old copy of the catalog. */
static bool may_clear (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    size_t position = ecfs_archive_position (self, endpoint);
    ecfs_lineage_await_told (ecfs_archive_lineage (self), position, ecfs_now_us () + ecfs_lineage_told_us);
    return ecfs_lineage_confirm (ecfs_archive_lineage (self), position) ||
           ecfs_fail (error, EAGAIN, "endpoint %s: too few endpoints confirm that %s is the newest there is",
                      endpoint->name, ecfs_archive_directory (self));
}

/* As ecfs.conf has it now: it may have been added since the archive was opened. */
static bool remove_marker (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    g_autofree char *path = g_build_filename (ecfs_archive_directory (self), ECFS_CONFIG_NAME, NULL);
    g_autofree char *text = NULL;
    if (!g_file_get_contents (path, &text, NULL, error))
        return false;
    const EcfsMarker own = {.archive = *ecfs_catalog_archive (ecfs_archive_catalog (self)), .endpoint = endpoint->uuid};
    g_autoptr (EcfsConfig) config = ecfs_config_parse (text, path, error);
    const EcfsConfigEndpoint *section = config == NULL ? NULL : ecfs_config_endpoint (config, endpoint->name);
    return config != NULL &&
           (section != NULL || ecfs_fail (error, ENOTCONN, "endpoint %s is not in %s", endpoint->name, path)) &&
           ecfs_archive_remove_marker (section->spec, &own, error);
}

static bool remove_files (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);
    (void) ecfs_endpoint_list_wait (endpoint->endpoint, ECFS_JOURNAL_DIRECTORY, on_listed, names, NULL);
    (void) ecfs_endpoint_list_wait (endpoint->endpoint, ECFS_SNAPSHOT_DIRECTORY, on_listed, names, NULL);
    for (guint i = 0; i < names->len; i++) /* without the marker nobody looks at what stays */
        (void) ecfs_endpoint_remove_wait (endpoint->endpoint, g_ptr_array_index (names, i), NULL);
    ecfs_archive_remove_salvage (endpoint->endpoint);
    ecfs_key_shares_take_away (endpoint->endpoint);
    return remove_marker (self, endpoint, error);
}

/* What of the past goes with it, for the user; NULL: nothing. Takes @words, of its journal. */
static char *lost_with (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint, char *words)
{
    uint64_t n, n_lost = 0;
    g_autofree char *untold = words;
    if (!count_objects (self, endpoint, &n, &n_lost, NULL) || n_lost == 0)
        return g_steal_pointer (&untold);
    return g_strdup_printf ("%s%shistory: %" PRIu64 " objects cannot be rebuilt without it, and what only the past has "
                            "in them is lost",
                            untold == NULL ? "" : untold, untold == NULL ? "" : "; ", n_lost);
}

/* What stays there, for the user; NULL: nothing. */
static char *clear_endpoint (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint)
{
    g_autoptr (GError) error = NULL;
    uint64_t n_stripes = 0;
    (void) ecfs_catalog_deletions_at (ecfs_archive_catalog (self), endpoint->id, &n_stripes,
                                      NULL); /* removing the row meets it */
    bool cleared = is_there (self, endpoint, &error) && may_clear (self, endpoint, &error) &&
                   remove_files (self, endpoint, &error);
    if (!cleared && ecfs_errno (error) == ENOENT) /* it was not it, or an earlier call came to its end */
        return NULL;
    if (!cleared)
        return g_strdup_printf (
            "it cannot be cleared (%s), so its marker and stripes stay there: ecfs does not use it again if it comes "
            "back",
            error->message);
    return n_stripes == 0
               ? NULL
               : g_strdup_printf ("%" PRIu64 " old stripes that were to be deleted there stay: empty its directory by "
                                  "hand",
                                  n_stripes);
}

static bool remove_from_config (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    g_autofree char *section = g_strconcat ("endpoint ", endpoint->name, NULL);
    return ecfs_config_remove (ecfs_archive_directory (self), section, error);
}

/* Without it the key must still come back when as much is lost as may be, and any one zone. */
static bool check_key (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    EcfsKeyCount left;
    EcfsKeyLosses losses;
    const EcfsKeyShares *shares = ecfs_archive_key_shares (self);
    if (shares == NULL || ecfs_key_shares_threshold (shares) == 0) /* where all have the same any one suffices */
        return true;
    if (!ecfs_archive_load_codes (self, error))
        return false;
    unsigned threshold = ecfs_key_shares_threshold (shares);
    g_autoptr (GArray) found = g_array_new (FALSE, FALSE, sizeof (EcfsZoneShare));
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self); i++) {
        const EcfsArchiveEndpoint *other = ecfs_archive_endpoint (self, i);
        EcfsZoneShare one = {.zone = other->zone};
        if (other != endpoint && ecfs_archive_endpoint_counts (other) &&
            ecfs_key_shares_look (shares, other->endpoint, &one.x, NULL))
            g_array_append_val (found, one);
    }
    ecfs_key_losses (self, endpoint, &losses);
    losses.zones = MAX (losses.zones, 1);
    ecfs_key_count ((const EcfsZoneShare *) found->data, found->len, threshold, &losses, &left);
    return ecfs_key_count_left (&left) >= threshold ||
           ecfs_fail (error, EBUSY,
                      "the archive's key is shared by its zones, %u of which have to stay, and without %s there are %u "
                      "that have their shares now: add another endpoint first",
                      threshold + losses.zones, endpoint->name, left.n_zones);
}

static bool take_out (EcfsArchive *self, const char *name, char **ret_left, GError **error)
{
    g_autofree char *untold = NULL;
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_named (self, name, error);
    if (endpoint == NULL || !check_others (self, endpoint, error) || !check_key (self, endpoint, error) ||
        !check_empty (self, endpoint, error))
        return false;
    if (!ecfs_archive_put_state (self, endpoint, ECFS_ENDPOINT_DRAINING, error))
        return false;
    if (!check_empty (self, endpoint, error) || !ecfs_archive_store_journal (self, NULL, NULL, error) ||
        !store_snapshot (self, endpoint, &untold, error))
        return ecfs_prefix (error, "endpoint %s stays, and is draining", name);
    bool superseded = strchr (name, ' ') != NULL; /* what is at its place now is another, which has its section */
    g_autofree char *lost = lost_with (self, endpoint, g_steal_pointer (&untold));
    g_autofree char *left = superseded ? NULL : clear_endpoint (self, endpoint);
    g_autofree char *trouble = ecfs_archive_trouble (self);
    if (trouble != NULL)
        return ecfs_fail (error, EROFS, "endpoint %s stays: %s", name, trouble);
    if ((!superseded && !remove_from_config (self, endpoint, error)) ||
        !ecfs_catalog_endpoint_remove (ecfs_archive_catalog (self), endpoint->id, error))
        return ecfs_prefix (error, "endpoint %s is not completely taken out: run this again", name);
    ecfs_archive_endpoint_own (self, endpoint)->state = ECFS_ENDPOINT_REMOVED;
    if (endpoint->endpoint != NULL)
        ecfs_endpoint_retire (endpoint->endpoint, "was taken out of the archive");
    if (lost != NULL && left != NULL)
        *ret_left = g_strconcat (lost, "; ", left, NULL);
    else
        *ret_left = lost != NULL ? g_steal_pointer (&lost) : g_steal_pointer (&left);
    return true;
}

bool ecfs_archive_remove_endpoint (EcfsArchive *self, const char *name, char **ret_left, GError **error)
{
    ecfs_mutex_lock (ecfs_archive_adding_lock (self));
    bool removed = take_out (self, name, ret_left, error);
    ecfs_mutex_unlock (ecfs_archive_adding_lock (self));
    g_autofree char *rules = removed ? ecfs_archive_rules_gone (self, NULL) : NULL; /* else ecfs-fsck tells */
    if (rules != NULL) {
        g_autofree char *left = *ret_left;
        *ret_left = left == NULL ? g_steal_pointer (&rules) : g_strconcat (left, "; ", rules, NULL);
    }
    return removed;
}
