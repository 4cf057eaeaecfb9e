/* What an archive does behind its users: deleting what is due, renewing locks, and keeping the figures of free space
 * and of speed. */
#include "upkeep/upkeep.h"

#include "archive/common.h"
#include "catalog/marks.h"
#include "catalog/reads.h"
#include "upkeep/renewals.h"

#define PAUSE_US        (2 * G_USEC_PER_SEC)
#define SPACE_PERIOD_US (15 * G_USEC_PER_SEC)
#define COUNT_PERIOD_US                                                                                                \
    (600 * G_USEC_PER_SEC)                    /* what endpoints with a capacity have; what is written counts at once   \
                                               */
#define COUNT_SOON_US  (20 * G_USEC_PER_SEC)  /* the same, where one is full: something may have been deleted */
#define KEEP_PERIOD_US (300 * G_USEC_PER_SEC) /* what a mount that dies forgets */

struct EcfsMaintenance {
    EcfsArchive *archive;
    EcfsDeletions *deletions;
    EcfsRetention *retention;
    EcfsBrakeWatch *brake;
    EcfsRenewals *renewals;
    bool settled;             /* what marks do not need any more; the thread's, as the next one */
    unsigned n_marks_removed; /* when that was done */
    pthread_t thread;
    EcfsMutex lock;
    EcfsCond wake;
    bool stopping;      /* guarded by lock, as the next three */
    bool space_known;   /* every endpoint has answered once, if only that it cannot */
    unsigned n_asked;   /* space requests under way */
    unsigned n_answers; /* wraps around */
    bool owed_nobody;   /* the thread's, as the next one: at the last look … */
    int64_t next_us;    /* … and when the next is, but for locks */
    int64_t asked_us;   /* the thread's, as the next ones; 0: never */
    int64_t counted_us;
    uint64_t space_state;
    int64_t kept_us;
    uint64_t kept_bytes; /* moved until then */
};

static void space_answered (void *user, uint64_t value, const GError *error)
{
    EcfsMaintenance *self = user;
    (void) value;
    (void) error; /* the endpoint's health tells both */
    ecfs_mutex_lock (&self->lock);
    self->n_asked--;
    self->n_answers++;
    ecfs_cond_broadcast (&self->wake);
    ecfs_mutex_unlock (&self->lock);
}

static void ask_space (EcfsMaintenance *self)
{
    EcfsArchive *archive = self->archive;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        if (ecfs_archive_endpoint (archive, i)->endpoint == NULL ||
            ecfs_archive_endpoint (archive, i)->state != ECFS_ENDPOINT_ACTIVE)
            continue;
        ecfs_mutex_lock (&self->lock);
        self->n_asked++;
        ecfs_mutex_unlock (&self->lock);
        ecfs_endpoint_space (ecfs_archive_endpoint (archive, i)->endpoint, space_answered, self);
    }
}

/* Whether some endpoint takes nothing before its space figure says that it can. */
static bool any_full (const EcfsArchive *archive, bool with_capacity)
{
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        EcfsEndpointHealth health = {0};
        EcfsEndpoint *endpoint = ecfs_archive_endpoint (archive, i)->endpoint;
        if (endpoint != NULL)
            ecfs_endpoint_health (endpoint, &health);
        bool full = health.full && (!with_capacity || ecfs_endpoint_capacity (endpoint) > 0);
        ecfs_endpoint_health_clear (&health);
        if (full)
            return true;
    }
    return false;
}

/* Before they are asked, which makes it count. */
static void count_used (EcfsMaintenance *self)
{
    g_autoptr (GError) error = NULL;
    int64_t now_us = ecfs_now_us ();
    bool soon = any_full (self->archive, true);
    bool is_due = self->counted_us == 0 || now_us - self->counted_us >= (soon ? COUNT_SOON_US : COUNT_PERIOD_US);
    if (!is_due || !ecfs_archive_has_capacities (self->archive))
        return;
    self->counted_us = now_us;
    if (!ecfs_archive_count_used (self->archive, &error) && error->code != ECANCELED)
        g_warning ("%s", error->message);
}

/* Asks when it is time, and counts anew when something moved. */
static void keep_space (EcfsMaintenance *self, bool nobody_owes)
{
    bool soon = any_full (self->archive, false) || ecfs_archive_space_is_owed (self->archive);
    int64_t period_us = soon ? PAUSE_US : SPACE_PERIOD_US;
    if (nobody_owes && (self->asked_us == 0 || ecfs_now_us () - self->asked_us >= period_us)) {
        self->asked_us = ecfs_now_us ();
        count_used (self);
        ask_space (self);
    }
    uint64_t state = ecfs_archive_space_state (self->archive);
    if (state != self->space_state)
        ecfs_archive_foretell (self->archive);
    self->space_state = state;
}

static uint64_t bytes_moved (const EcfsArchive *archive)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        EcfsEndpointHealth health = {0};
        if (ecfs_archive_endpoint (archive, i)->endpoint != NULL)
            ecfs_endpoint_health (ecfs_archive_endpoint (archive, i)->endpoint, &health);
        bytes += health.read_bytes + health.written_bytes;
        ecfs_endpoint_health_clear (&health);
    }
    return bytes;
}

/* An archive at rest writes nothing. */
static void keep_estimates (EcfsMaintenance *self)
{
    if (ecfs_now_us () - self->kept_us < KEEP_PERIOD_US)
        return;
    uint64_t bytes = bytes_moved (self->archive);
    if (bytes != self->kept_bytes)
        ecfs_archive_keep_estimates (self->archive);
    if (ecfs_archive_service (self->archive, ECFS_SERVICE_READS) != NULL)
        ecfs_reads_keep (ecfs_archive_service (self->archive, ECFS_SERVICE_READS));
    self->kept_bytes = bytes;
    self->kept_us = ecfs_now_us ();
}

/* What only marks needed that are gone waits as anything else. */
static void settle_marks (EcfsMaintenance *self)
{
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    const unsigned n_removed = ecfs_catalog_marks_removed (catalog);
    bool more = !self->settled || n_removed != self->n_marks_removed;
    int64_t after = 0;
    if (more)
        self->settled = false;
    while (more && !ecfs_archive_is_stopping (self->archive))
        if (!ecfs_catalog_marks_settle (catalog, &after, &more, &error)) {
            g_info ("%s", error->message); /* tried again; the catalog says what is wrong with it */
            return;
        }
    self->settled = self->settled || !more;
    self->n_marks_removed = n_removed;
}

/* Deletes what is due; each endpoint by itself. */
static void keep_deleting (EcfsMaintenance *self)
{
    g_autoptr (GError) error = NULL;
    EcfsArchive *archive = self->archive;
    EcfsTotals totals;
    int64_t held_from_ns;
    if (!ecfs_archive_leads (archive) || !ecfs_brake_watch_look (self->brake, &held_from_ns) ||
        !ecfs_catalog_totals (ecfs_archive_catalog (archive), &totals, NULL) || totals.n_deletions == 0)
        return;
    if (!ecfs_catalog_note_age (ecfs_archive_catalog (archive), &error)) {
        g_info ("%s", error->message); /* tried again; the catalog says what is wrong with it */
        return;
    }
    settle_marks (self);
    ecfs_retention_look (self->retention, held_from_ns);
    ecfs_deletions_begin (self->deletions, held_from_ns);
}

static void *run (void *data)
{
    EcfsMaintenance *self = data;
    ecfs_mutex_lock (&self->lock);
    while (!self->stopping) {
        unsigned n_answers = self->n_answers;
        bool nobody_owes = self->n_asked == 0;
        bool known = nobody_owes && self->asked_us != 0;
        ecfs_mutex_unlock (&self->lock);
        if (nobody_owes != self->owed_nobody || ecfs_now_us () >= self->next_us) {
            keep_space (self, nobody_owes);
            keep_deleting (self);
            keep_estimates (self);
            ecfs_read_log_tell (ecfs_archive_read_log (self->archive), false);
            self->owed_nobody = nobody_owes;
            self->next_us = ecfs_now_us () + PAUSE_US;
        }
        const bool is_renewing = ecfs_archive_leads (self->archive) && ecfs_renewals_look (self->renewals);
        const int64_t until_us =
            is_renewing ? MIN (self->next_us, ecfs_now_us () + ECFS_RENEWALS_PAUSE_US) : self->next_us;
        ecfs_mutex_lock (&self->lock);
        if (known && !self->space_known)
            ecfs_cond_broadcast (&self->wake);
        self->space_known = self->space_known || known;
        if (!self->stopping && self->n_answers == n_answers)
            (void) ecfs_cond_wait_until (&self->wake, &self->lock, until_us);
    }
    ecfs_mutex_unlock (&self->lock);
    return NULL;
}

EcfsMaintenance *ecfs_maintenance_start (EcfsArchive *archive)
{
    EcfsMaintenance *self = g_new0 (EcfsMaintenance, 1);
    self->archive = archive;
    self->kept_us = ecfs_now_us ();
    self->deletions = ecfs_deletions_new (archive);
    self->retention = ecfs_retention_new (archive);
    self->brake = ecfs_brake_watch_new (archive);
    self->renewals = ecfs_renewals_new (archive);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->wake);
    int result = pthread_create (&self->thread, NULL, run, self);
    if (result != 0)
        g_error ("cannot start the maintenance thread: %s", g_strerror (result));
    return self;
}

void ecfs_maintenance_await_space (EcfsMaintenance *self, int64_t deadline_us)
{
    ecfs_mutex_lock (&self->lock);
    while (!self->space_known && !self->stopping && ecfs_cond_wait_until (&self->wake, &self->lock, deadline_us))
        ;
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_maintenance_stop (EcfsMaintenance *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_cond_broadcast (&self->wake);
    ecfs_mutex_unlock (&self->lock);
    (void) pthread_join (self->thread, NULL); /* joinable and ours: it cannot fail */
    ecfs_read_log_tell (ecfs_archive_read_log (self->archive), true);
    ecfs_deletions_free (self->deletions);
    ecfs_retention_free (self->retention);
    ecfs_brake_watch_free (self->brake);
    ecfs_renewals_free (self->renewals);
    ecfs_mutex_lock (&self->lock);
    while (self->n_asked > 0)
        (void) ecfs_cond_wait_until (&self->wake, &self->lock, ecfs_now_us () + G_USEC_PER_SEC);
    ecfs_mutex_unlock (&self->lock);
    ecfs_cond_clear (&self->wake);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}
