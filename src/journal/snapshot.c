#include "journal/snapshot.h"
#include "archive/catalog_place.h"

#include "archive/common.h"
#include "archive/gaps.h"
#include "archive/keys.h"
#include "catalog/brake.h"
#include "catalog/journal_file.h"
#include "catalog/marks.h"
#include "catalog/retention.h"
#include "journal/journal_open.h"
#include "journal/journal_watch.h"
#include "journal/merge.h"
#include "journal/past_journal.h"
#include "journal/superfluous.h"

#include <inttypes.h>

#define LEAST_BYTES    (4u << 20)            /* of records behind a snapshot, before there is another */
#define FILES_SHARE    2                     /* and at least the last one's size divided by this */
#define LEAST_SEGMENTS 1000                  /* behind one: each costs a recovery a round trip or two … */
#define SEGMENT_BYTES  (256u << 10)          /* … in which it would read so much of a snapshot */
#define RECORD_BYTES   1024                  /* few are longer: where so many are not enough they are not added up */
#define END_US         (10 * G_USEC_PER_SEC) /* for one that is due when the archive is closed … */
#define END_INODES     200000                /* which are read in about a second: with more it is left to a mount */
#define END_SILENT_US  G_USEC_PER_SEC        /* … of which so much needs no word */
#define PAST_LEAST_NS  INT64_C (60000000000) /* below that it is the present */
#define PAST_US        (60 * G_USEC_PER_SEC) /* for giving back what tells the past, at one time */
#define MERGE_US       (20 * G_USEC_PER_SEC) /* for one endpoint at one look */

_Atomic int64_t ecfs_snapshot_look_us = 60 * G_USEC_PER_SEC;
_Atomic int64_t ecfs_snapshot_retry_us = INT64_C (600) * G_USEC_PER_SEC;
_Atomic int64_t ecfs_snapshot_watch_us = INT64_C (3600) * G_USEC_PER_SEC;

/* When, and what it takes the place of */

struct EcfsSnapshots {
    EcfsArchive *archive; /* immutable, as the next */
    EcfsLineage *lineage;
    int64_t look_us;  /* when it is looked at next whether it is time */
    uint64_t counted; /* records when that was done last */
    pthread_t thread; /* takes one, or tidies up */
    bool running;     /* until it is joined */
    atomic_bool stop;
    bool tidied[ECFS_ENDPOINTS_MAX]; /* the thread's while it is running, as the next six */
    bool take;
    int64_t watch_us;    /* when to look next at what endpoints have; at once, at first */
    int64_t end_us;      /* when it is to be over; 0: whenever */
    bool failed;         /* when it ran last */
    uint64_t n_stored;   /* segments by this process, when it was looked at last, … */
    uint64_t n_before;   /* … and those of them that are counted in … */
    uint64_t n_behind;   /* … how many there were behind the last snapshot then; … */
    bool has_behind;     /* … else those of before are the lineage's to count */
    uint64_t n_unmerged; /* of which merging has not made larger ones, or has tried to */
    bool merging;        /* some endpoints are still to come: next_merged is the next, … */
    size_t next_merged;
    bool all_merged;      /* … none before it could not be */
    uint64_t most_behind; /* … and so many are at one of these behind the last snapshot */
    atomic_bool in_merge; /* nothing else is under way */
    EcfsMutex lock;
    EcfsCond over;
    bool ended; /* guarded by lock */
};

/* How long a snapshot that is far smaller than the last is told of. */
static int64_t alarm_since (EcfsArchive *archive)
{
    return g_get_real_time () * 1000 - ecfs_archive_config (archive)->history_min_us * 1000;
}

/* Since when the past is kept: not what was let go, and not from before the archive had a key, which endpoints can read
 * and nobody believes.
 * @next is the snapshot that comes; NULL: none does. */
static int64_t history_since (EcfsArchive *archive, const GArray *rows, const EcfsSnapshotRow *next)
{
    EcfsOpenEnd end;
    EcfsBrake brake;
    EcfsReleased released = {.time_ns = 0};
    int64_t since_ns = ecfs_config_history_since (ecfs_archive_config (archive)), sealed_ns = INT64_MIN;
    if (ecfs_catalog_released (ecfs_archive_catalog (archive), &released, NULL) && /* else more is kept */
        released.time_ns <= g_get_real_time () * 1000)                             /* the clock was set back since */
        since_ns = MAX (since_ns, released.time_ns);
    if (ecfs_catalog_brake (ecfs_archive_catalog (archive), &brake, NULL) && brake.until_age_ns > 0)
        since_ns = MIN (since_ns, brake.from.time_ns);
    const EcfsSnapshotRow *shrunk = ecfs_snapshots_shrunk (rows, alarm_since (archive));
    if (shrunk != NULL) /* what there was before is kept until somebody may have seen that */
        since_ns = MIN (since_ns, shrunk[1].time_ns);
    if (!ecfs_keys_end (ecfs_archive_catalog (archive), &end, NULL) || end.epoch == 0)
        return since_ns;
    if (next != NULL)
        sealed_ns = next->time_ns;
    for (guint i = 0; i < rows->len; i++) /* the newest come first */
        if (ecfs_snapshot_compare (end.epoch, end.sequence, &g_array_index (rows, EcfsSnapshotRow, i)) < 0)
            sealed_ns = g_array_index (rows, EcfsSnapshotRow, i).time_ns;
    return MAX (since_ns, sealed_ns);
}

/* The endpoints for a snapshot: those first that have most room. As many as it should have, at least as many as it
 * must; 0: there are fewer. */
static size_t choose (EcfsArchive *archive, const bool *failed, EcfsEndpoint **ret_endpoints, size_t *ret_positions)
{
    size_t n_chosen = 0, n_endpoints = ecfs_archive_n_endpoints (archive);
    unsigned n_copies = ecfs_archive_journal_copies (archive), n_wanted = ecfs_snapshot_copies (archive);
    g_autofree bool *taken = g_memdup2 (failed, n_endpoints * sizeof *failed + 1);
    while (n_chosen < n_wanted) {
        size_t best = SIZE_MAX;
        uint64_t most = 0;
        for (size_t i = 0; i < n_endpoints; i++) {
            EcfsEndpointHealth health;
            if (taken[i] || !ecfs_archive_has_journal (ecfs_archive_endpoint (archive, i)) ||
                !ecfs_lineage_may_write (ecfs_archive_lineage (archive), i))
                continue;
            ecfs_endpoint_health (ecfs_archive_endpoint (archive, i)->endpoint, &health);
            uint64_t room = health.space.told ? health.space.free_bytes : 1;
            bool usable = !health.down && !health.refuses;
            ecfs_endpoint_health_clear (&health);
            if (usable && (best == SIZE_MAX || room > most)) {
                best = i;
                most = room;
            }
        }
        if (best == SIZE_MAX)
            break;
        taken[best] = true;
        ret_endpoints[n_chosen] = ecfs_archive_endpoint (archive, best)->endpoint;
        ret_positions[n_chosen++] = best;
    }
    return n_chosen < n_copies ? 0 : n_chosen;
}

bool ecfs_snapshot_note (EcfsArchive *archive, const EcfsSnapshotRow *row, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (catalog, error);
    if (rows == NULL)
        return false;
    g_array_prepend_vals (rows, row, 1);
    if (ecfs_snapshots_shrunk (rows, row->time_ns - 1) == &g_array_index (rows, EcfsSnapshotRow, 0))
        g_warning ("%s: the snapshot of the catalog has %" PRIu64 " bytes, and the one before it had %" PRIu64
                   ": most names have gone since; 'ecfs status' says how to see what there was",
                   ecfs_archive_directory (archive), row->bytes, g_array_index (rows, EcfsSnapshotRow, 1).bytes);
    return ecfs_catalog_snapshot_add (catalog, row, ECFS_SNAPSHOT_GENERATIONS, history_since (archive, rows, row),
                                      error);
}

/* Stores one, without the endpoints that fail as long as enough are left. */
static bool store_snapshot (EcfsArchive *archive, int64_t end_us, const atomic_bool *stop, GError **error)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (archive);
    g_autofree EcfsEndpoint **endpoints = g_new0 (EcfsEndpoint *, n_endpoints + 1);
    g_autofree size_t *positions = g_new0 (size_t, n_endpoints + 1);
    g_autofree bool *failed = g_new0 (bool, n_endpoints + 1);
    g_autofree char *path = ecfs_catalog_place (ecfs_archive_directory (archive), ecfs_archive_config (archive), error);
    EcfsSnapshotOrder order = {.catalog = path,
                               .directory = ecfs_archive_directory (archive),
                               .live = ecfs_archive_catalog (archive),
                               .keys = ecfs_archive_keys (archive),
                               .reserve_bytes = ecfs_archive_config (archive)->staging_reserve / 2,
                               .endpoints = endpoints,
                               .end_us = end_us,
                               .stop = stop};
    if (path == NULL || !ecfs_catalog_harden (ecfs_archive_catalog (archive), NULL, error))
        return false;
    for (;;) {
        EcfsSnapshotRow row;
        size_t bad;
        GError *why = NULL;
        order.n_endpoints = choose (archive, failed, endpoints, positions);
        if (order.n_endpoints == 0)
            return ecfs_fail (error, ENOTCONN, "too few endpoints are up");
        if (ecfs_snapshot_store (&order, &row, &bad, &why)) {
            for (size_t i = 0; i < order.n_endpoints; i++)
                ecfs_archive_note_journal (archive, positions[i], false);
            return ecfs_snapshot_note (archive, &row, error);
        }
        if (bad == order.n_endpoints || why->code == ECANCELED || order.n_endpoints == 1) {
            if (why->code == EPERM) /* what broke off keeps its name there: the next has another */
                (void) ecfs_catalog_advance (ecfs_archive_catalog (archive), NULL);
            g_propagate_error (error, why);
            return false;
        }
        g_message ("%s: a snapshot of the catalog is stored without this endpoint: %s",
                   ecfs_archive_directory (archive), why->message);
        failed[positions[bad]] = true;
        g_error_free (why);
    }
}

static void note_behind (EcfsSnapshots *self, uint64_t n_behind)
{
    self->has_behind = true;
    self->n_behind = n_behind;
    self->n_before = self->n_stored;
}

static bool take_snapshot (EcfsSnapshots *self, GError **error)
{
    if (!store_snapshot (self->archive, self->end_us, &self->stop, error))
        return false;
    for (size_t i = 0; i < ECFS_ENDPOINTS_MAX; i++)
        self->tidied[i] = false;
    note_behind (self, 0);
    self->n_unmerged = 0;
    self->merging = false;
    return true;
}

bool ecfs_snapshot_mark_moment (EcfsArchive *archive, GError **error)
{
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (ecfs_archive_catalog (archive), error);
    if (rows == NULL)
        return false;
    bool same =
        rows->len > 0 &&
        g_array_index (rows, EcfsSnapshotRow, 0).epoch == ecfs_catalog_epoch (ecfs_archive_catalog (archive)) &&
        g_array_index (rows, EcfsSnapshotRow, 0).sequence >= ecfs_catalog_sequence (ecfs_archive_catalog (archive));
    return !same || ecfs_catalog_advance (ecfs_archive_catalog (archive), error);
}

/* What tells the past, where an endpoint lacks it. */
static bool give_past (EcfsArchive *archive, const atomic_bool *stop, GError **error)
{
    g_autoptr (EcfsPastJournal) past = ecfs_past_journal_look (archive, error);
    return past != NULL && ecfs_past_journal_give (past, stop, ecfs_now_us () + PAST_US, error);
}

bool ecfs_journal_renew (EcfsArchive *archive, GError **error)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (archive);
    int64_t deadline_us = ecfs_now_us () + ecfs_lineage_told_us;
    for (size_t i = 0; i < n_endpoints; i++) /* else who is slow to take the session's marker is passed over */
        if (ecfs_archive_has_journal (ecfs_archive_endpoint (archive, i)))
            ecfs_lineage_await_told (ecfs_archive_lineage (archive), i, deadline_us);
    ecfs_mutex_lock (ecfs_archive_snapshot_lock (archive));
    bool renewed = ecfs_snapshot_mark_moment (archive, error) && store_snapshot (archive, 0, NULL, error) &&
                   give_past (archive, NULL, error);
    ecfs_mutex_unlock (ecfs_archive_snapshot_lock (archive));
    return renewed;
}

/* Who lost some of the journal may have lost stripes: a snapshot mends the one, and somebody has to know of the other.
 */
static void note_gap (const EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint, const char *missing)
{
    ecfs_gap_note (archive, &endpoint->uuid, missing);
    g_warning ("endpoint %s: %s: a snapshot of the catalog is stored there anew; stripes may be missing as well, which "
               "'ecfs fsck -y %s' finds and rebuilds",
               ecfs_endpoint_name (endpoint->endpoint), missing, ecfs_archive_directory (archive));
}

/* Whether endpoints lost what they had of the journal: then a new snapshot closes that. */
static bool is_damaged (EcfsSnapshots *self)
{
    EcfsArchive *archive = self->archive;
    unsigned n_whole = 0, n_seen = 0, n_lost = 0;
    size_t n_endpoints = ecfs_archive_n_endpoints (archive);
    g_autofree bool *lacks = g_new0 (bool, n_endpoints + 1);
    for (size_t i = 0; i < n_endpoints && !atomic_load (&self->stop); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        EcfsJournalSight sight;
        if (!ecfs_archive_has_journal (endpoint) || ecfs_endpoint_is_down (endpoint->endpoint) ||
            !ecfs_lineage_may_write (self->lineage, i) || !ecfs_journal_look (archive, i, false, &sight, NULL))
            continue;
        n_seen++;
        n_whole += sight.has_snapshot;
        n_lost += sight.missing != NULL;
        ecfs_archive_note_journal (archive, i, sight.missing != NULL);
        lacks[i] = !sight.has_snapshot;
        if (sight.missing != NULL)
            note_gap (archive, endpoint, sight.missing);
        g_free (sight.missing);
    }
    /* One that was away when it was stored has older ones, and what came since; but it must be somewhere. */
    for (size_t i = 0; i < n_endpoints && n_whole < ecfs_archive_journal_copies (archive); i++)
        if (lacks[i])
            ecfs_archive_note_journal (archive, i, true);
    return n_lost > 0 || n_whole < MIN (n_seen, ecfs_snapshot_copies (archive));
}

/* Whether nothing that is older is needed: the snapshot is on as many endpoints as codes of today ask for. */
static bool is_safe (EcfsSnapshots *self, const EcfsSnapshotRow *snapshot)
{
    return snapshot->n_copies >= ecfs_archive_journal_copies (self->archive);
}

/* Records that endpoints and a snapshot have. */
static bool drop_records (EcfsSnapshots *self, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    EcfsRecoveryPoint point;
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (catalog, error);
    if (rows == NULL || !ecfs_archive_recovery_point (self->archive, &point, error))
        return false;
    if (rows->len == 0 || g_array_index (rows, EcfsSnapshotRow, 0).epoch != ecfs_catalog_epoch (catalog) ||
        !is_safe (self, &g_array_index (rows, EcfsSnapshotRow, 0)))
        return true;
    uint64_t sequence = MIN (g_array_index (rows, EcfsSnapshotRow, 0).sequence, point.stored);
    for (bool more = true; more && !atomic_load (&self->stop);)
        if (!ecfs_catalog_journal_drop (catalog, sequence, &more, error))
            return false;
    return true;
}

typedef struct Tidying {
    const GArray *rows; /* of EcfsSnapshotRow: what stays, newest first */
    GPtrArray *names;   /* of what goes */
} Tidying;

static void on_listed (void *user, const EcfsListed *listed)
{
    Tidying *self = user;
    EcfsJournalFile file;
    if (!ecfs_journal_file_name_parse (listed->name, &file) || !ecfs_journal_is_superfluous (self->rows, &file))
        return;
    g_ptr_array_add (self->names, g_strdup (listed->name));
}

/* Removes what two newer snapshots have made superfluous at one endpoint. Returns whether that is done. */
static bool tidy_endpoint (EcfsSnapshots *self, EcfsEndpoint *endpoint, const GArray *rows)
{
    g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);
    Tidying tidying = {.rows = rows, .names = names};
    if (ecfs_endpoint_retain_us (endpoint) != ECFS_RETAIN_NOT)
        return true;
    bool tidied = ecfs_endpoint_list_wait (endpoint, ECFS_JOURNAL_DIRECTORY, on_listed, &tidying, NULL) &&
                  ecfs_endpoint_list_wait (endpoint, ECFS_SNAPSHOT_DIRECTORY, on_listed, &tidying, NULL);
    for (guint i = 0; i < names->len && tidied && !atomic_load (&self->stop); i++) {
        g_autoptr (GError) error = NULL;
        tidied = ecfs_endpoint_remove_wait (endpoint, g_ptr_array_index (names, i), &error) || error->code == ENOENT;
    }
    return tidied; /* tried again later: what stays costs room only */
}

bool ecfs_snapshot_past_is_wanted (EcfsArchive *archive, const GArray *rows)
{
    g_autoptr (GArray) marks = ecfs_catalog_marks (ecfs_archive_catalog (archive), NULL); /* NULL: who knows */
    return marks == NULL || marks->len > 0 ||
           history_since (archive, rows, NULL) < g_get_real_time () * 1000 - PAST_LEAST_NS;
}

bool ecfs_snapshot_past_may_go (EcfsArchive *archive, const GArray *rows)
{
    g_autoptr (GArray) marks = ecfs_catalog_marks (ecfs_archive_catalog (archive), NULL); /* the next look tells why */
    const EcfsJournalNeeds needs = {.n_copies = ecfs_archive_journal_copies (archive),
                                    .since_ns = history_since (archive, rows, NULL),
                                    .marks = marks};
    return ecfs_journal_may_go (rows, &needs);
}

static bool tidy (EcfsSnapshots *self, GError **error)
{
    EcfsArchive *archive = self->archive;
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (ecfs_archive_catalog (archive), error);
    if (rows == NULL)
        return false;
    size_t n_endpoints = ecfs_snapshot_past_may_go (archive, rows) ? ecfs_archive_n_endpoints (archive) : 0;
    for (size_t i = 0; i < n_endpoints && !atomic_load (&self->stop); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        if (!self->tidied[i] && ecfs_archive_endpoint_counts (endpoint) &&
            !ecfs_endpoint_is_down (endpoint->endpoint) && ecfs_lineage_confirm (self->lineage, i))
            self->tidied[i] =
                tidy_endpoint (self, endpoint->endpoint, rows) && ecfs_journal_note_open (archive, i, NULL);
    }
    return true;
}

bool ecfs_journal_tidy (EcfsArchive *archive, GError **error)
{
    EcfsSnapshots *all = ecfs_snapshots_new (archive, ecfs_archive_lineage (archive));
    ecfs_mutex_lock (ecfs_archive_snapshot_lock (archive));
    bool tidied = drop_records (all, error) && tidy (all, error);
    ecfs_mutex_unlock (ecfs_archive_snapshot_lock (archive));
    ecfs_snapshots_free (all);
    return tidied;
}

static uint64_t count_segments (EcfsSnapshots *self)
{
    return self->n_stored - self->n_before +
           (self->has_behind ? self->n_behind : ecfs_lineage_n_segments (self->lineage));
}

/* At one endpoint; false: that is not over. */
static bool merge_at (EcfsSnapshots *self, size_t position, const EcfsSnapshotRow *newest)
{
    EcfsMerged merged;
    g_autoptr (GError) why = NULL;
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, position);
    bool may = ecfs_endpoint_retain_us (endpoint->endpoint) == ECFS_RETAIN_NOT &&
               ecfs_lineage_confirm (self->lineage, position);
    self->all_merged = self->all_merged && may;
    if (!may)
        return true;
    bool good = ecfs_journal_merge (self->archive, endpoint->endpoint, newest, ecfs_now_us () + MERGE_US, &self->stop,
                                    &merged, &why);
    if (!good)
        g_info ("segments stay as they are for now: %s", why->message);
    self->all_merged = self->all_merged && good;
    self->most_behind = MAX (self->most_behind, merged.n_behind);
    return merged.is_done || !good;
}

/* One endpoint after the other, at each look one of them and not for long: others wait for the lock. Where nothing may
 * be removed, what is small stays, and a recovery has it all to read. */
static bool merge (EcfsSnapshots *self, GError **error)
{
    EcfsSnapshotRow newest = {.sequence = 0};
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (ecfs_archive_catalog (self->archive), error);
    if (rows == NULL)
        return false;
    if (!self->merging && count_segments (self) < self->n_unmerged + atomic_load (&ecfs_merge_least))
        return true;
    if (!self->merging) {
        self->merging = self->all_merged = true;
        self->most_behind = self->next_merged = 0;
    }
    if (rows->len > 0)
        newest = g_array_index (rows, EcfsSnapshotRow, 0);
    for (bool worked = false; self->next_merged < ecfs_archive_n_endpoints (self->archive) && !worked;) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, self->next_merged);
        worked = ecfs_archive_has_journal (endpoint) && !ecfs_endpoint_is_down (endpoint->endpoint);
        if (worked && (!merge_at (self, self->next_merged, &newest) || atomic_load (&self->stop)))
            return true;
        self->next_merged++;
    }
    self->merging = self->next_merged < ecfs_archive_n_endpoints (self->archive);
    if (!self->merging && self->all_merged)
        note_behind (self, self->most_behind);
    if (!self->merging)
        self->n_unmerged = count_segments (self);
    return true;
}

static void tell_failure (EcfsSnapshots *self, const GError *error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    if (error->code == ETIME)
        g_message ("%s: a snapshot of the catalog is due, and %s: leave the archive mounted for that long, or a "
                   "recovery will have more to read",
                   directory, error->message);
    else if (error->code != ECANCELED)
        g_warning ("%s: no snapshot of the catalog for now: %s", directory, error->message);
}

static void *run (void *data)
{
    EcfsSnapshots *self = data;
    g_autoptr (GError) error = NULL;
    ecfs_mutex_lock (ecfs_archive_snapshot_lock (self->archive));
    const bool watches = !self->take && ecfs_now_us () >= self->watch_us;
    if (watches) {
        self->watch_us = ecfs_now_us () + atomic_load (&ecfs_snapshot_watch_us);
        self->take = is_damaged (self);
    }
    bool done = (!self->take || (ecfs_snapshot_mark_moment (self->archive, &error) && take_snapshot (self, &error))) &&
                (!watches || give_past (self->archive, &self->stop, &error)) && drop_records (self, &error) &&
                tidy (self, &error);
    atomic_store (&self->in_merge, true);
    done = done && merge (self, &error);
    atomic_store (&self->in_merge, false);
    ecfs_mutex_unlock (ecfs_archive_snapshot_lock (self->archive));
    if (!done)
        tell_failure (self, error);
    self->look_us = ecfs_now_us () + atomic_load (done ? &ecfs_snapshot_look_us : &ecfs_snapshot_retry_us);
    self->counted = done ? self->counted : 0;
    self->failed = !done;
    ecfs_mutex_lock (&self->lock);
    self->ended = true;
    ecfs_cond_signal (&self->over);
    ecfs_mutex_unlock (&self->lock);
    return NULL;
}

bool ecfs_snapshot_due (uint64_t n_segments, uint64_t snapshot_bytes)
{
    return n_segments >= MAX (LEAST_SEGMENTS, snapshot_bytes / SEGMENT_BYTES);
}

/* Whether files of the journal lie open that two snapshots from after would take the place of. */
static bool lies_open (EcfsSnapshots *self, const GArray *rows)
{
    EcfsOpenEnd end;
    uint64_t n_files;
    unsigned n_unknown, n_later = 0;
    if (!ecfs_keys_end (ecfs_archive_catalog (self->archive), &end, NULL) || end.epoch == 0 ||
        !ecfs_journal_open_files (self->archive, &n_files, &n_unknown, NULL))
        return false; /* the next look tells what is wrong */
    for (guint i = 0; i < rows->len; i++)
        n_later += ecfs_snapshot_compare (end.epoch, end.sequence, &g_array_index (rows, EcfsSnapshotRow, i)) < 0;
    return n_files + n_unknown > 0 && n_later < ECFS_SNAPSHOT_GENERATIONS;
}

/* Whether a recovery would read much that is no snapshot, or endpoints what they should not. */
static bool is_time (EcfsSnapshots *self)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    EcfsSnapshotRow last = {.sequence = 0};
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (catalog, &error);
    uint64_t bytes = 0;
    if (rows != NULL && rows->len > 0)
        last = g_array_index (rows, EcfsSnapshotRow, 0);
    if (rows != NULL && rows->len > 0 && !is_safe (self, &last))
        return true;
    if (rows != NULL && lies_open (self, rows))
        return true;
    if (ecfs_snapshot_due (count_segments (self), last.bytes))
        return true;
    uint64_t least = MAX (LEAST_BYTES, last.bytes / FILES_SHARE);
    if (rows != NULL && (self->counted - MIN (last.sequence, self->counted)) * RECORD_BYTES < least)
        return false;
    if (rows == NULL || !ecfs_catalog_journal_bytes (catalog, last.sequence, &bytes, &error)) {
        g_warning ("%s", error->message);
        return false;
    }
    return bytes >= least;
}

EcfsSnapshots *ecfs_snapshots_new (EcfsArchive *archive, EcfsLineage *lineage)
{
    EcfsSnapshots *self = g_new0 (EcfsSnapshots, 1);
    self->archive = archive;
    self->lineage = lineage;
    self->look_us = ecfs_now_us () + atomic_load (&ecfs_snapshot_look_us);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->over);
    return self;
}

static void join (EcfsSnapshots *self)
{
    (void) pthread_join (self->thread, NULL); /* joinable and ours: it cannot fail */
    self->running = false;
}

/* Waits until the thread is over, or @until_us; 0: just looks. */
static bool is_over (EcfsSnapshots *self, int64_t until_us)
{
    ecfs_mutex_lock (&self->lock);
    while (!self->ended && ecfs_now_us () < until_us)
        (void) ecfs_cond_wait_until (&self->over, &self->lock, until_us); /* the loop looks */
    bool ended = self->ended;
    ecfs_mutex_unlock (&self->lock);
    return ended;
}

static void begin (EcfsSnapshots *self)
{
    self->ended = false;                                                  /* there is no other thread */
    self->running = pthread_create (&self->thread, NULL, run, self) == 0; /* else it is tried again */
}

void ecfs_snapshots_look (EcfsSnapshots *self, uint64_t n_stored)
{
    if (self->running && is_over (self, 0))
        join (self);
    if (self->running || ecfs_now_us () < self->look_us)
        return;
    uint64_t sequence = ecfs_catalog_sequence (ecfs_archive_catalog (self->archive));
    self->look_us = ecfs_now_us () + atomic_load (&ecfs_snapshot_look_us);
    if (sequence == self->counted && ecfs_now_us () < self->watch_us && !self->merging)
        return;
    self->counted = sequence;
    self->n_stored = n_stored;
    self->take = is_time (self);
    begin (self);
}

void ecfs_snapshots_hurry (EcfsSnapshots *self)
{
    if (!self->running && !self->failed)
        self->look_us = 0;
}

/* Whether one that is due can be taken while somebody waits for the archive to be closed. */
static bool is_small (EcfsSnapshots *self)
{
    EcfsTotals totals;
    if (!ecfs_catalog_totals (ecfs_archive_catalog (self->archive), &totals, NULL))
        return false; /* the catalog says what is wrong with it */
    if (totals.n_inodes > END_INODES)
        g_message ("%s: a snapshot of the catalog is due, which takes a while: leave the archive mounted for some "
                   "minutes, or a recovery will have more to read",
                   ecfs_archive_directory (self->archive));
    return totals.n_inodes <= END_INODES;
}

void ecfs_snapshots_end (EcfsSnapshots *self, uint64_t n_stored)
{
    if (self->running && atomic_load (&self->in_merge)) { /* which goes on with the next mount */
        atomic_store (&self->stop, true);
        join (self);
        atomic_store (&self->stop, false);
    }
    if (self->running && is_over (self, 0))
        join (self);
    int64_t now_us = ecfs_now_us ();
    g_autofree char *trouble = ecfs_lineage_trouble (self->lineage);
    if (!self->running && !self->failed && trouble == NULL) {
        self->counted = ecfs_catalog_sequence (ecfs_archive_catalog (self->archive));
        self->n_stored = n_stored;
        self->take = is_time (self) && is_small (self);
        self->end_us = now_us + END_US;
        if (self->take)
            begin (self);
    }
    if (!self->running || is_over (self, now_us + END_SILENT_US))
        return;
    g_message ("%s: storing a snapshot of the catalog, for %d s at most", ecfs_archive_directory (self->archive),
               (int) (END_US / G_USEC_PER_SEC));
    if (!is_over (self, now_us + END_US))
        g_message (
            "%s: it takes longer: leave the archive mounted for some minutes, or a recovery will have more to read",
            ecfs_archive_directory (self->archive));
}

void ecfs_snapshots_free (EcfsSnapshots *self)
{
    if (self == NULL)
        return;
    atomic_store (&self->stop, true);
    if (self->running)
        join (self);
    ecfs_cond_clear (&self->over);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}
