/*
 * How much of the past is kept: up to history_max, and no more of it than endpoints have room for. The oldest goes
 * first, by whole moments: a time is set up to which what was removed need not wait any more (catalog/retention.h), and
 * deletions.c does the rest. What is younger than history_min stays whatever room it takes.
 */
#include "upkeep/upkeep.h"

#include "archive/common.h"
#include "archive/past.h"
#include "catalog/retention.h"

#define BATCH      4096 /* stripes that are read at once */
#define FORGET_US  (600 * G_USEC_PER_SEC)
#define FORGET_NS  INT64_C (86400000000000) /* so old is what is not described any more, if nothing keeps it */
#define PAUSE_US   (2 * G_USEC_PER_SEC)
#define PAUSES     100        /* of the time that a look took, before there is another */
#define STEP_BYTES (4u << 20) /* that a full endpoint gets at once, … */
#define STEP_SHARE 16         /* … or what it has of the past, divided by this */

/* What the past takes. */
typedef struct Sums {
    uint64_t all;
    uint64_t at[ECFS_ENDPOINTS_MAX]; /* by position of the endpoint */
} Sums;

struct EcfsRetention {
    EcfsArchive *archive;
    int64_t next_us;
    int64_t forget_us;                            /* when what nothing keeps is forgotten next */
    int64_t held_from_ns;                         /* what was removed since stays */
    uint64_t counted_deletions, counted_sequence; /* when the past was within its limit */
    bool told_limit;
    bool told_room[ECFS_ENDPOINTS_MAX]; /* since the endpoint is full: that something was let go for it, … */
    bool told_kept[ECFS_ENDPOINTS_MAX]; /* … or that nothing more may be */
    Sums sums, wanted, found;           /* of the look that is under way */
};

/* Calls @each for what only the past has, the oldest first, until that returns false. */
static bool for_each (EcfsArchive *archive, bool (*each) (void *user, const EcfsRemovedStripe *stripe, size_t position),
                      void *user, GError **error)
{
    for (int64_t after = 0;;) {
        g_autoptr (GArray) some = ecfs_catalog_removed (ecfs_archive_catalog (archive), after, BATCH, error);
        if (some == NULL || some->len == 0)
            return some != NULL;
        for (guint i = 0; i < some->len; i++) {
            const EcfsRemovedStripe *stripe = &g_array_index (some, EcfsRemovedStripe, i);
            const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, stripe->endpoint);
            after = stripe->id;
            if (endpoint != NULL && !each (user, stripe, ecfs_archive_position (archive, endpoint)))
                return true;
        }
    }
}

static bool add_up (void *user, const EcfsRemovedStripe *stripe, size_t position)
{
    Sums *sums = user;
    sums->all += stripe->bytes;
    sums->at[position] += stripe->bytes;
    return true;
}

/* What is looked for: the first moment up to which there is enough. */
typedef struct Cut {
    EcfsRetention *self;
    size_t n_endpoints;
    int64_t youngest_age_ns; /* that may go */
    EcfsReleased seen;       /* the last that was looked at, … */
    EcfsReleased up_to;      /* … and that goes */
    uint64_t sequence;       /* of that: all of one change goes together */
    bool met;
} Cut;

static bool is_met (const Cut *cut)
{
    const EcfsRetention *self = cut->self;
    bool met = self->found.all >= self->wanted.all;
    for (size_t i = 0; i < cut->n_endpoints && met; i++)
        met = self->found.at[i] >= self->wanted.at[i];
    return met;
}

static bool find_cut (void *user, const EcfsRemovedStripe *stripe, size_t position)
{
    Cut *cut = user;
    const EcfsRetention *self = cut->self;
    bool together = cut->up_to.age_ns > 0 && stripe->sequence == cut->sequence;
    bool helps = self->found.all < self->wanted.all || self->found.at[position] < self->wanted.at[position];
    if ((cut->met && !together) || stripe->age_ns > cut->youngest_age_ns)
        return false;
    (void) add_up (&cut->self->found, stripe, position);
    cut->seen.age_ns = MAX (cut->seen.age_ns, stripe->age_ns);
    if (stripe->time_ns <= g_get_real_time () * 1000) /* the clock may have been wrong */
        cut->seen.time_ns = MAX (cut->seen.time_ns, stripe->time_ns);
    if (helps || together) {
        cut->up_to = cut->seen;
        cut->sequence = stripe->sequence;
    }
    cut->met = cut->met || is_met (cut);
    return true;
}

static bool is_full (const EcfsArchiveEndpoint *endpoint)
{
    if (endpoint->endpoint == NULL || endpoint->state != ECFS_ENDPOINT_ACTIVE)
        return false;
    EcfsEndpointHealth health = {0};
    ecfs_endpoint_health (endpoint->endpoint, &health);
    ecfs_endpoint_health_clear (&health);
    return health.full && !health.down;
}

/* Notes which endpoints are full, as @ret_full. Returns whether one is. */
static bool find_full (EcfsRetention *self, size_t n_endpoints, bool *ret_full)
{
    bool any = false;
    for (size_t i = 0; i < n_endpoints; i++) {
        ret_full[i] = is_full (ecfs_archive_endpoint (self->archive, i));
        self->told_room[i] = self->told_room[i] && ret_full[i];
        self->told_kept[i] = self->told_kept[i] && ret_full[i];
        any = any || ret_full[i];
    }
    return any;
}

static char *time_text (int64_t time_ns)
{
    g_autoptr (GDateTime) time = g_date_time_new_from_unix_local (time_ns / 1000000000);
    return time == NULL ? g_strdup ("?") : g_date_time_format (time, "%F %T");
}

static void tell_released (EcfsRetention *self, const EcfsReleased *up_to, size_t n_endpoints, const bool *full)
{
    const char *directory = ecfs_archive_directory (self->archive);
    g_autofree char *time = time_text (up_to->time_ns);
    if (up_to->reason == ECFS_RELEASE_LIMIT) {
        if (!self->told_limit)
            g_message ("%s: history takes more than history_max: what was removed until %s goes, and the oldest from "
                       "now on",
                       directory, time);
        self->told_limit = true;
        return;
    }
    for (size_t i = 0; i < n_endpoints; i++) {
        if (!full[i] || self->told_room[i] || self->wanted.at[i] == 0)
            continue;
        self->told_room[i] = true;
        g_message ("%s: endpoint %s is full: history gives room, the oldest first; what was removed until %s goes",
                   directory, ecfs_archive_endpoint (self->archive, i)->name, time);
    }
}

static void tell_kept (EcfsRetention *self, size_t n_endpoints, const bool *full)
{
    for (size_t i = 0; i < n_endpoints; i++) {
        if (!full[i] || self->told_kept[i] || self->found.at[i] >= self->wanted.at[i])
            continue;
        self->told_kept[i] = true;
        g_message (
            "%s: endpoint %s is full, and all history that may go has gone: what was removed within history_min, "
            "or in a mass deletion, stays; make room there or add an endpoint",
            ecfs_archive_directory (self->archive), ecfs_archive_endpoint (self->archive, i)->name);
    }
}

/* What is to go at least, all in all and at each endpoint: what was let go and has not gone yet counts. */
static bool find_wanted (EcfsRetention *self, size_t n_endpoints, const bool *full)
{
    const uint64_t limit = ecfs_archive_config (self->archive)->history_max;
    self->wanted = (Sums){.all = limit > 0 && self->sums.all > limit ? self->sums.all - limit : 0};
    bool any = self->wanted.all > 0;
    for (size_t i = 0; i < n_endpoints; i++) {
        if (full[i])
            self->wanted.at[i] = MIN (MAX (self->sums.at[i] / STEP_SHARE, STEP_BYTES), self->sums.at[i]);
        any = any || self->wanted.at[i] > 0;
    }
    return any;
}

/* How old what may go is at least, by the catalog's age. */
static int64_t youngest (EcfsRetention *self)
{
    const EcfsConfig *config = ecfs_archive_config (self->archive);
    const int64_t least_us = MAX (ecfs_config_history_least_us (config), config->deletion_grace_us);
    return MIN (ecfs_catalog_age_ns (ecfs_archive_catalog (self->archive)) - least_us * 1000, self->held_from_ns - 1);
}

static bool let_go (EcfsRetention *self, size_t n_endpoints, const bool *full, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    EcfsReleased last;
    Cut cut = {.self = self, .n_endpoints = n_endpoints, .youngest_age_ns = youngest (self)};
    self->found = (Sums){.all = 0};
    if (!ecfs_catalog_released (catalog, &last, error) || !for_each (self->archive, find_cut, &cut, error))
        return false;
    tell_kept (self, n_endpoints, full);
    if (cut.up_to.age_ns <= last.age_ns)
        return true;
    cut.up_to.reason = self->wanted.all > 0 ? ECFS_RELEASE_LIMIT : ECFS_RELEASE_ROOM;
    if (!ecfs_catalog_release (catalog, &cut.up_to, error))
        return false;
    tell_released (self, &cut.up_to, n_endpoints, full);
    return true;
}

/* Whether nothing was removed since the past was within its limit. */
static bool is_counted (EcfsRetention *self)
{
    EcfsTotals totals = {0};
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    uint64_t sequence = ecfs_catalog_sequence (catalog);
    bool counted = ecfs_catalog_totals (catalog, &totals, NULL) && totals.n_deletions == self->counted_deletions &&
                   sequence == self->counted_sequence;
    self->counted_deletions = totals.n_deletions;
    self->counted_sequence = sequence;
    return counted;
}

static bool look (EcfsRetention *self, GError **error)
{
    const size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    const EcfsConfig *config = ecfs_archive_config (self->archive);
    bool full[ECFS_ENDPOINTS_MAX] = {false};
    bool any_full = find_full (self, n_endpoints, full);
    if (config->history_us == 0 || (!any_full && (config->history_max == 0 || is_counted (self))))
        return true;
    self->sums = (Sums){.all = 0};
    if (!for_each (self->archive, add_up, &self->sums, error))
        return false;
    if (!find_wanted (self, n_endpoints, full))
        return true;
    self->counted_sequence = UINT64_MAX; /* what is too young now is not in a while */
    return let_go (self, n_endpoints, full, error);
}

/* What endpoints retain may stay for ever, and would have to be passed over by all that look after the past. */
static bool forget (EcfsRetention *self, GError **error)
{
    int64_t until_ns, after = 0;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    if (!ecfs_archive_past_until (self->archive, &until_ns, error))
        return false;
    until_ns = MIN (until_ns, ecfs_catalog_age_ns (catalog) - FORGET_NS); /* a mass deletion may keep what is younger */
    for (bool more = true; more && !ecfs_archive_is_stopping (self->archive);)
        if (!ecfs_catalog_past_forget (catalog, until_ns, &after, &more, error))
            return false;
    return true;
}

EcfsRetention *ecfs_retention_new (EcfsArchive *archive)
{
    EcfsRetention *self = g_new0 (EcfsRetention, 1);
    self->archive = archive;
    self->counted_sequence = UINT64_MAX;
    return self;
}

void ecfs_retention_look (EcfsRetention *self, int64_t held_from_ns)
{
    g_autoptr (GError) error = NULL;
    const int64_t begun_us = ecfs_now_us ();
    if (begun_us < self->next_us)
        return;
    self->held_from_ns = held_from_ns;
    if (!look (self, &error))
        g_warning ("%s", error->message); /* tried again */
    if (begun_us >= self->forget_us) {
        g_clear_error (&error);
        if (!forget (self, &error))
            g_info ("%s", error->message); /* tried again */
        self->forget_us = begun_us + FORGET_US;
    }
    const int64_t now_us = ecfs_now_us ();
    self->next_us = now_us + MAX (PAUSE_US, PAUSES * (now_us - begun_us));
}

void ecfs_retention_free (EcfsRetention *self)
{
    g_free (self);
}
