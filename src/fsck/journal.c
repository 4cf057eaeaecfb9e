/* Markers, what endpoints have of the journal and of the key, and that the journal names what was repaired. */
#include "archive/key_losses.h"
#include "archive/key_watch.h"
#include "archive/lineage.h"
#include "archive/marks.h"
#include "fsck/fsck_priv.h"
#include "journal/journal_watch.h"
#include "journal/past_journal.h"
#include "wire/wire.h"

#define ANSWER_MS (15 * 60 * 1000) /* a snapshot of a large catalog takes minutes */

/* By the mount: the journal up to now, and with @renew a snapshot, too. */
static bool store_mounted (EcfsFsckRun *self, bool renew, GError **error)
{
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "verb", "journal");
    json_object_set_boolean_member (object, "renew", renew);
    g_autoptr (JsonNode) request = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (request, object);
    g_autoptr (JsonNode) answer = ecfs_control_ask (ecfs_archive_directory (self->archive), request, ANSWER_MS, error);
    return answer != NULL;
}

static bool goes_on (void *user)
{
    return ecfs_fsck_tick (user);
}

static bool store (EcfsFsckRun *self, bool renew, GError **error)
{
    if (!ecfs_fsck_open_writer (self, error))
        return false;
    if (self->writer->mounted)
        return store_mounted (self, renew, error);
    EcfsArchive *archive = self->writer->archive;
    return ecfs_archive_store_journal (archive, goes_on, self, error) &&
           (!renew || ecfs_journal_renew (archive, error));
}

/* What tells the past may be missing where all is that tells the present. */
static void look_at_past (EcfsFsckRun *self, char **ret_missing)
{
    g_autoptr (GError) why = NULL;
    g_autoptr (EcfsPastJournal) past = ecfs_past_journal_look (self->archive, &why);
    if (past == NULL)
        g_warning ("%s", why->message);
    for (size_t i = 0; past != NULL && i < self->n_endpoints; i++) {
        unsigned n_lacking = ecfs_past_journal_lacks (past, i);
        if (n_lacking > 0 && ret_missing[i] == NULL)
            ret_missing[i] = g_strdup_printf ("it lacks %u files of the journal that tell the past, which history or a "
                                              "mark keeps",
                                              n_lacking);
    }
}

/* What is missing at each endpoint, as sentences, NULL where nothing is. Returns how many endpoints lack something. */
static unsigned look_at_all (EcfsFsckRun *self, char **ret_missing)
{
    unsigned n_whole = 0, n_lacking = 0, n_seen = 0;
    bool is_deep = (self->what->flags & ECFS_FSCK_DEEP) != 0;
    g_autofree bool *lacks = g_new0 (bool, self->n_endpoints + 1);
    for (size_t i = 0; i < self->n_endpoints && ecfs_fsck_goes_on (self, NULL); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        EcfsJournalSight sight = {.missing = NULL};
        g_autoptr (GError) why = NULL;
        if (!ecfs_archive_has_journal (endpoint) || ecfs_endpoint_is_down (endpoint->endpoint))
            continue; /* that it is down is told where its stripes are */
        n_seen++;
        if (!ecfs_journal_look (self->archive, i, is_deep, &sight, &why)) {
            ret_missing[i] = g_strdup (why->message);
            continue;
        }
        n_whole += sight.has_snapshot;
        lacks[i] = !sight.has_snapshot;
        ret_missing[i] = sight.missing;
    }
    look_at_past (self, ret_missing);
    bool too_few = n_whole < MIN (n_seen, ecfs_snapshot_copies (self->archive));
    for (size_t i = 0; i < self->n_endpoints; i++) {
        if (too_few && lacks[i] && ret_missing[i] == NULL)
            ret_missing[i] = g_strdup ("it lacks parts of the newest snapshot of the catalog");
        n_lacking += ret_missing[i] != NULL;
    }
    return n_lacking;
}

static void tell (EcfsFsckRun *self, size_t position, const char *text, bool repaired)
{
    self->sums.n_journals_repaired += repaired;
    self->sums.n_journals_left += !repaired;
    ecfs_fsck_tell (self, ecfs_fsck_tell_journal (self->archive, position, text, repaired));
}

static bool check_endpoints (EcfsFsckRun *self, GError **error)
{
    g_autofree char **missing = g_new0 (char *, self->n_endpoints + 1);
    g_autoptr (GError) why = NULL;
    ecfs_fsck_enter (self, "journal", 0);
    bool repaired = look_at_all (self, missing) > 0 && ecfs_fsck_may_repair (self) && store (self, true, &why);
    g_autofree char **left = g_new0 (char *, self->n_endpoints + 1);
    if (repaired) /* it says which endpoints could not take it */
        (void) look_at_all (self, left);
    for (size_t i = 0; i < self->n_endpoints; i++) {
        g_autofree char *text = why == NULL || missing[i] == NULL
                                    ? g_strdup (missing[i])
                                    : g_strdup_printf ("%s; storing it anew failed: %s", missing[i], why->message);
        if (text != NULL)
            tell (self, i, text, repaired && left[i] == NULL);
        g_free (missing[i]);
        g_free (left[i]);
    }
    return ecfs_fsck_goes_on (self, error);
}

/* By who has the session that the marker is to name. */
static bool mend_marker (EcfsFsckRun *self, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    if (!ecfs_fsck_open_writer (self, error))
        return false;
    EcfsArchive *archive = self->writer->archive;
    if (!self->writer->mounted) {
        const EcfsArchiveEndpoint *own = ecfs_archive_endpoint_by_id (archive, endpoint->id);
        return own != NULL &&
               ecfs_lineage_mend (ecfs_archive_lineage (archive), ecfs_archive_position (archive, own), error);
    }
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "verb", "marker");
    json_object_set_string_member (object, "endpoint", endpoint->name);
    g_autoptr (JsonNode) request = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (request, object);
    g_autoptr (JsonNode) answer = ecfs_control_ask (ecfs_archive_directory (self->archive), request, ANSWER_MS, error);
    return answer != NULL;
}

/* What is wrong with a marker; NULL: nothing, or the endpoint cannot be asked, which is told elsewhere. */
static char *fault_of_marker (EcfsFsckRun *self, const EcfsArchiveEndpoint *endpoint)
{
    EcfsMarker marker;
    g_autoptr (GError) why = NULL;
    if (endpoint->endpoint == NULL || !ecfs_archive_endpoint_counts (endpoint))
        return NULL;
    if (ecfs_endpoint_examine_wait (endpoint->endpoint, &marker, &why))
        return ecfs_marker_fault (&marker,
                                  ecfs_marker_judge (&marker, ecfs_archive_keys (self->archive), &endpoint->uuid));
    return why->code == EPROTO || why->code == ENOTSUP ? ecfs_marker_fault (&marker, ECFS_MARKER_BROKEN) : NULL;
}

static bool check_markers (EcfsFsckRun *self, GError **error)
{
    for (size_t i = 0; i < self->n_endpoints && ecfs_fsck_goes_on (self, NULL); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        g_autofree char *fault = ecfs_archive_keys (self->archive) == NULL ? NULL : fault_of_marker (self, endpoint);
        g_autoptr (GError) failure = NULL;
        if (fault == NULL)
            continue;
        bool repaired = ecfs_fsck_may_repair (self) && mend_marker (self, endpoint, &failure);
        g_autofree char *text = failure == NULL
                                    ? g_strdup (fault)
                                    : g_strdup_printf ("%s; writing it anew failed: %s", fault, failure->message);
        tell (self, i, text, repaired);
    }
    return ecfs_fsck_goes_on (self, error);
}

/* As the archive directory has them now: a check takes long, and ways to open the key come and go meanwhile. One that
 * could not be read when the archive was opened was told of then. */
static bool load_shares (EcfsFsckRun *self, EcfsKeyShares **shares, GError **error)
{
    const EcfsArchive *archive = self->archive;
    EcfsKeyShares *now = NULL;
    g_autoptr (GError) why = NULL;
    if (!ecfs_key_shares_load (ecfs_archive_directory (archive), ecfs_archive_catalog (archive),
                               ecfs_archive_keys (archive), &now, &why) &&
        ecfs_archive_key_shares (archive) != NULL) {
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    ecfs_key_shares_free (*shares);
    *shares = now;
    return true;
}

/* As long as there are any they are the same, so that a mount is in nobody's way; but it alone gives new zones theirs.
 * What it changes while one is stored is stored after it. */
static bool store_share (EcfsFsckRun *self, EcfsKeyShares **shares, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    if (!ecfs_fsck_open_writer (self, error))
        return false;
    EcfsArchive *archive = self->writer->mounted ? self->archive : self->writer->archive;
    if (!ecfs_archive_renew_key_slots (archive, error) ||
        !ecfs_archive_settle_share (archive, endpoint->zone, NULL, error) || !load_shares (self, shares, error) ||
        *shares == NULL)
        return false;
    for (;;) {
        uint64_t revision = ecfs_key_shares_file (*shares)->revision;
        if (!ecfs_key_shares_put (*shares, ecfs_archive_catalog (archive), endpoint->endpoint, endpoint->zone, error) ||
            !load_shares (self, shares, error))
            return false;
        if (*shares == NULL || ecfs_key_shares_file (*shares)->revision == revision)
            return true;
    }
}

/* Whether an endpoint has its key file, and none of those before: they may open with what was taken away since. */
static bool look_at_share (const EcfsKeyShares *shares, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    unsigned x;
    g_autoptr (GPtrArray) older = NULL;
    if (!ecfs_key_shares_look (shares, endpoint->endpoint, &x, error))
        return false;
    return ecfs_endpoint_retain_us (endpoint->endpoint) != ECFS_RETAIN_NOT || /* they stay there */
           (ecfs_key_shares_older (shares, endpoint->endpoint, &older, error) &&
            (older->len == 0 || ecfs_fail (error, ENOENT, "it still has an older file with the archive's key")));
}

static bool check_shares (EcfsFsckRun *self, GError **error)
{
    g_autoptr (EcfsKeyShares) shares = NULL;
    if (!load_shares (self, &shares, error))
        return false;
    for (size_t i = 0; shares != NULL && i < self->n_endpoints && ecfs_fsck_goes_on (self, NULL); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        g_autoptr (GError) why = NULL, failure = NULL;
        if (!ecfs_archive_has_journal (endpoint) || ecfs_endpoint_is_down (endpoint->endpoint) ||
            look_at_share (shares, endpoint, &why))
            continue;
        bool repairs = why->code == ENOENT && ecfs_fsck_may_repair (self);
        bool repaired = repairs && store_share (self, &shares, endpoint, &failure);
        g_autofree char *text =
            failure == NULL ? g_strdup (why->message)
                            : g_strdup_printf ("%s; storing it anew failed: %s", why->message, failure->message);
        tell (self, i, text, repaired);
    }
    return ecfs_fsck_goes_on (self, error);
}

bool ecfs_fsck_journal (EcfsFsckRun *self, GError **error)
{
    return self->is_named ||
           (check_markers (self, error) && check_endpoints (self, error) && check_shares (self, error));
}

void ecfs_fsck_store_repairs (EcfsFsckRun *self)
{
    g_autoptr (GError) why = NULL;
    if (self->sums.n_rebuilt == 0 || store (self, false, &why))
        return;
    g_autofree char *text = g_strdup_printf ("what was repaired is not in the journal yet (if this machine is lost "
                                             "now, 'ecfs recover' finds the damaged stripes); run 'ecfs wait': %s",
                                             why->message);
    tell (self, SIZE_MAX, text, false);
}
