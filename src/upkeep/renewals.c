#include "upkeep/renewals.h"

#include "archive/common.h"
#include "archive/exchange.h"
#include "archive/past.h"
#include "journal/snapshot.h"
#include "journal/superfluous.h"
#include "util/io.h"

#include <string.h>

#define ROUNDS       12 /* within the time of a lock */
#define AT_ONCE      8  /* files that an endpoint is asked about at one look */
#define PAST_AT_ONCE 64
#define LISTED_MOST  100000 /* of a directory, at an endpoint: many times what two snapshots leave */

/* What is gone round, one after the other. */
typedef enum Phase {
    STRIPES,
    PAST, /* what history and marks keep */
    KEYS,
    JOURNAL,
    SNAPSHOTS,
    MARKER,
    MARKERS, /* where none is replaced */
    N_PHASES,
} Phase;

/* A round at one endpoint. */
typedef struct Round {
    EcfsRenewals *renewals;
    size_t position;
    EcfsRenewed facts;
    bool is_open;     /* it has begun */
    bool is_filled;   /* names are those of the phase, up to facts.after */
    bool has_more;    /* … and there are others */
    GPtrArray *names; /* to be asked about; appended to by the endpoint's thread while it lists, guarded by lock */
    guint next;
    guint begun;     /* the first that is under way */
    int64_t from;    /* facts.after, before these */
    GArray *rows;    /* while it lists the journal: of EcfsSnapshotRow, when what is before the last may go; NULL */
    unsigned n_open; /* requests; guarded by lock, as all below */
    bool is_broken;  /* one was not answered: they are asked again */
    uint64_t n_asked, n_renewed, n_refused;
    char *error;
} Round;

struct EcfsRenewals {
    EcfsArchive *archive;
    GPtrArray *rounds; /* of Round, by position of the endpoint */
    EcfsMutex lock;
    EcfsCond ended;
};

/* What is kept */

static char *file_path (const char *directory)
{
    return g_build_filename (directory, ECFS_RENEWED_NAME, NULL);
}

void ecfs_renewed_load (EcfsRenewed *self, const char *directory, const EcfsUuid *endpoint)
{
    char group[ECFS_UUID_TEXT_SIZE];
    g_autofree char *path = file_path (directory);
    g_autoptr (GKeyFile) file = g_key_file_new ();
    *self = (EcfsRenewed){.began_s = 0};
    ecfs_uuid_text (endpoint, group);
    if (!g_key_file_load_from_file (file, path, G_KEY_FILE_NONE, NULL) || !g_key_file_has_group (file, group))
        return; /* what cannot be read is told anew by the next round */
    *self = (EcfsRenewed){.began_s = g_key_file_get_int64 (file, group, "began", NULL),
                          .ended_s = g_key_file_get_int64 (file, group, "ended", NULL),
                          .n_asked = g_key_file_get_uint64 (file, group, "asked", NULL),
                          .n_renewed = g_key_file_get_uint64 (file, group, "renewed", NULL),
                          .n_refused = g_key_file_get_uint64 (file, group, "refused", NULL),
                          .error = g_key_file_get_string (file, group, "error", NULL),
                          .phase = (unsigned) g_key_file_get_uint64 (file, group, "phase", NULL),
                          .after = g_key_file_get_int64 (file, group, "after", NULL)};
}

void ecfs_renewed_clear (EcfsRenewed *self)
{
    g_clear_pointer (&self->error, g_free);
}

static void keep_round (GKeyFile *file, const char *group, const Round *round)
{
    const EcfsRenewed *facts = &round->facts;
    g_key_file_set_int64 (file, group, "began", facts->began_s);
    g_key_file_set_int64 (file, group, "ended", facts->ended_s);
    g_key_file_set_uint64 (file, group, "asked", facts->n_asked);
    g_key_file_set_uint64 (file, group, "renewed", facts->n_renewed);
    g_key_file_set_uint64 (file, group, "refused", facts->n_refused);
    if (facts->error != NULL)
        g_key_file_set_string (file, group, "error", facts->error);
    g_key_file_set_uint64 (file, group, "phase", facts->phase);
    g_key_file_set_int64 (file, group, "after", round->from);
}

static void keep (const EcfsRenewals *self)
{
    g_autofree char *path = file_path (ecfs_archive_directory (self->archive));
    g_autoptr (GKeyFile) file = g_key_file_new ();
    g_autoptr (GError) why = NULL;
    bool any = false;
    gsize size;
    for (guint i = 0; i < self->rounds->len; i++) {
        char group[ECFS_UUID_TEXT_SIZE];
        const Round *round = g_ptr_array_index (self->rounds, i);
        ecfs_uuid_text (&ecfs_archive_endpoint (self->archive, round->position)->uuid, group);
        if (round->facts.began_s > 0)
            keep_round (file, group, round);
        any = any || round->facts.began_s > 0;
    }
    if (!any)
        return;
    g_autofree char *text = g_key_file_to_data (file, &size, NULL);
    if (!ecfs_replace_file (path, text, size, 0600, &why))
        g_info ("%s", why->message); /* then the next mount goes round once more */
}

/* Names */

static bool add_stripes (Round *self, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->renewals->archive);
    g_autoptr (GArray) stripes =
        ecfs_catalog_stripes_at (catalog, endpoint->id, &self->facts.after, &self->has_more, error);
    for (guint i = 0; stripes != NULL && i < stripes->len; i++) {
        const EcfsStripeAt *stripe = &g_array_index (stripes, EcfsStripeAt, i);
        char name[ECFS_STRIPE_NAME_SIZE];
        g_autoptr (EcfsObjectRow) object = ecfs_catalog_object (catalog, stripe->object, NULL);
        if (object == NULL) /* it has gone since */
            continue;
        ecfs_stripe_name (&object->uuid, stripe->index, stripe->instance, name);
        g_ptr_array_add (self->names, g_strdup (name));
    }
    return stripes != NULL;
}

static bool add_past (Round *self, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    g_autoptr (GPtrArray) objects =
        ecfs_archive_past_objects (self->renewals->archive, self->facts.after, PAST_AT_ONCE, error);
    self->has_more = objects != NULL && objects->len == PAST_AT_ONCE;
    for (guint i = 0; objects != NULL && i < objects->len; i++) {
        const EcfsObjectRow *object = g_ptr_array_index (objects, i);
        self->facts.after = object->id;
        for (guint j = 0; j < object->stripes->len; j++) {
            const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, j);
            char name[ECFS_STRIPE_NAME_SIZE];
            ecfs_stripe_name (&object->uuid, stripe->index, stripe->instance, name);
            if (stripe->endpoint == endpoint->id)
                g_ptr_array_add (self->names, g_strdup (name));
        }
    }
    return objects != NULL;
}

static void on_listed (void *user, const EcfsListed *listed)
{
    Round *self = user;
    EcfsJournalFile file;
    if (self->rows != NULL && ecfs_journal_file_name_parse (listed->name, &file) &&
        ecfs_journal_is_superfluous (self->rows, &file))
        return;
    ecfs_mutex_lock (&self->renewals->lock);
    if (self->names->len < LISTED_MOST)
        g_ptr_array_add (self->names, g_strdup (listed->name));
    ecfs_mutex_unlock (&self->renewals->lock);
}

static void end_request (Round *self)
{
    ecfs_mutex_lock (&self->renewals->lock);
    self->n_open--;
    ecfs_cond_signal (&self->renewals->ended);
    ecfs_mutex_unlock (&self->renewals->lock);
}

static void note_failure (Round *self, const GError *error)
{
    const bool is_away = error->code == ENOTCONN || error->code == ETIMEDOUT || error->code == ECANCELED;
    ecfs_mutex_lock (&self->renewals->lock);
    self->is_broken = self->is_broken || is_away;
    if (!is_away) {
        self->n_refused++;
        g_free (self->error);
        self->error = g_strdup (error->message);
    }
    ecfs_mutex_unlock (&self->renewals->lock);
}

static void on_all_listed (void *user, uint64_t value, const GError *error)
{
    Round *self = user;
    (void) value;
    if (error != NULL)
        note_failure (self, error);
    end_request (self);
}

/* What is before the last of them may go, and is left to that. */
static GArray *kept_snapshots (EcfsArchive *archive)
{
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (ecfs_archive_catalog (archive), NULL); /* NULL: more is kept */
    return rows != NULL && ecfs_snapshot_past_may_go (archive, rows) ? g_steal_pointer (&rows) : NULL;
}

static void list (Round *self, const EcfsArchiveEndpoint *endpoint, const char *directory)
{
    g_clear_pointer (&self->rows, g_array_unref);
    if (self->facts.phase == JOURNAL || self->facts.phase == SNAPSHOTS)
        self->rows = kept_snapshots (self->renewals->archive);
    ecfs_mutex_lock (&self->renewals->lock);
    self->n_open++;
    ecfs_mutex_unlock (&self->renewals->lock);
    ecfs_endpoint_list (endpoint->endpoint, directory, on_listed, on_all_listed, self);
}

/* The next names, of some objects or of a directory, which may take a while. */
static bool fill (Round *self, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    static const char *const directories[N_PHASES] = {[KEYS] = ECFS_KEYS_DIRECTORY,
                                                      [JOURNAL] = ECFS_JOURNAL_DIRECTORY,
                                                      [SNAPSHOTS] = ECFS_SNAPSHOT_DIRECTORY,
                                                      [MARKERS] = ECFS_MARKER_DIRECTORY};
    g_ptr_array_set_size (self->names, 0);
    self->next = 0;
    self->has_more = false;
    self->is_filled = true;
    self->from = self->facts.after;
    if (self->facts.phase == STRIPES)
        return add_stripes (self, endpoint, error);
    if (self->facts.phase == PAST)
        return add_past (self, endpoint, error);
    if (self->facts.phase == MARKER)
        g_ptr_array_add (self->names, g_strdup (ECFS_MARKER_NAME));
    else
        list (self, endpoint, directories[self->facts.phase]);
    return true;
}

/* Asking */

static void on_renewed (void *user, uint64_t value, const GError *error)
{
    Round *self = user;
    if (error != NULL && error->code != ENOENT) /* what is missing, others look for */
        note_failure (self, error);
    ecfs_mutex_lock (&self->renewals->lock);
    self->n_asked += error == NULL;
    self->n_renewed += error == NULL && value > 0;
    ecfs_mutex_unlock (&self->renewals->lock);
    end_request (self);
}

static void ask (Round *self, const EcfsArchiveEndpoint *endpoint)
{
    const guint end = MIN (self->names->len, self->next + AT_ONCE);
    self->begun = self->next;
    ecfs_mutex_lock (&self->renewals->lock);
    self->n_open += end - self->next;
    ecfs_mutex_unlock (&self->renewals->lock);
    for (; self->next < end; self->next++)
        ecfs_endpoint_renew (endpoint->endpoint, g_ptr_array_index (self->names, self->next), on_renewed, self);
}

/* Takes over what was answered. False: some is still to come. */
static bool settle (Round *self)
{
    ecfs_mutex_lock (&self->renewals->lock);
    const bool is_over = self->n_open == 0;
    const bool is_broken = is_over && self->is_broken, is_new = is_over && self->n_refused > 0;
    if (is_over) {
        self->facts.n_asked += self->n_asked;
        self->facts.n_renewed += self->n_renewed;
        self->facts.n_refused += self->n_refused;
        if (self->error != NULL) {
            g_free (self->facts.error);
            self->facts.error = g_steal_pointer (&self->error);
        }
        self->n_asked = self->n_renewed = self->n_refused = 0;
        self->is_broken = false;
    }
    ecfs_mutex_unlock (&self->renewals->lock);
    if (is_broken && self->next == 0)
        self->is_filled = false; /* it was listed */
    else if (is_broken)
        self->next = self->begun;
    if (is_new)
        keep (self->renewals);
    return is_over;
}

static void begin (Round *self)
{
    const int64_t ended_s = self->facts.ended_s;
    ecfs_renewed_clear (&self->facts);
    self->facts = (EcfsRenewed){.began_s = g_get_real_time () / G_USEC_PER_SEC, .ended_s = ended_s};
    self->is_open = true;
    self->is_filled = false;
}

static void end (Round *self, const EcfsArchiveEndpoint *endpoint)
{
    self->is_open = false;
    self->facts.phase = 0;
    self->facts.after = self->from = 0;
    self->facts.ended_s = g_get_real_time () / G_USEC_PER_SEC;
    if (self->facts.n_refused > 0)
        g_warning ("endpoint %s: the locks of %" G_GUINT64_FORMAT
                   " files could not be renewed, and end: %s; who may delete there can remove them then",
                   endpoint->name, self->facts.n_refused, self->facts.error);
    keep (self->renewals);
}

/* A clock that was set back begins one more. */
static bool is_due (const Round *self, int64_t lock_us)
{
    const int64_t now_s = g_get_real_time () / G_USEC_PER_SEC, pause_s = MAX (lock_us / ROUNDS / G_USEC_PER_SEC, 1);
    return now_s < self->facts.ended_s || now_s - self->facts.ended_s >= pause_s;
}

static void go_on (Round *self, const EcfsArchiveEndpoint *endpoint)
{
    g_autoptr (GError) why = NULL;
    if (self->is_filled && self->next == self->names->len && !self->has_more) {
        self->is_filled = false;
        self->facts.after = self->from = 0;
        if (++self->facts.phase == N_PHASES) {
            end (self, endpoint);
            return;
        }
    }
    if (self->is_filled && self->next < self->names->len) {
        ask (self, endpoint);
    } else if (!fill (self, endpoint, &why)) {
        self->is_filled = false;
        g_info ("%s", why->message); /* tried again; the catalog says what is wrong with it */
    }                                /* what it lists is asked about at the next look, when all is there */
}

static bool look_at (Round *self)
{
    EcfsArchive *archive = self->renewals->archive;
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, self->position);
    const int64_t lock_us = endpoint->endpoint == NULL || !ecfs_archive_endpoint_counts (endpoint)
                                ? 0
                                : ecfs_endpoint_lock_us (endpoint->endpoint);
    if (lock_us == 0 || ecfs_endpoint_is_down (endpoint->endpoint))
        return false;
    if (!settle (self))
        return true;
    if (!self->is_open && is_due (self, lock_us))
        begin (self);
    if (self->is_open)
        go_on (self, endpoint);
    return self->is_open;
}

static void round_free (gpointer data)
{
    Round *self = data;
    ecfs_renewed_clear (&self->facts);
    g_clear_pointer (&self->rows, g_array_unref);
    g_ptr_array_unref (self->names);
    g_free (self->error);
    g_free (self);
}

static Round *round_new (EcfsRenewals *renewals, size_t position)
{
    Round *self = g_new0 (Round, 1);
    self->renewals = renewals;
    self->position = position;
    self->names = g_ptr_array_new_with_free_func (g_free);
    ecfs_renewed_load (&self->facts, ecfs_archive_directory (renewals->archive),
                       &ecfs_archive_endpoint (renewals->archive, position)->uuid);
    self->is_open = self->facts.began_s > self->facts.ended_s && self->facts.phase < N_PHASES;
    self->from = self->facts.after;
    return self;
}

EcfsRenewals *ecfs_renewals_new (EcfsArchive *archive)
{
    EcfsRenewals *self = g_new0 (EcfsRenewals, 1);
    self->archive = archive;
    self->rounds = g_ptr_array_new_with_free_func (round_free);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->ended);
    return self;
}

bool ecfs_renewals_look (EcfsRenewals *self)
{
    bool is_busy = false;
    if (ecfs_archive_is_readonly (self->archive))
        return false;
    while (self->rounds->len < ecfs_archive_n_endpoints (self->archive))
        g_ptr_array_add (self->rounds, round_new (self, self->rounds->len));
    for (guint i = 0; i < self->rounds->len; i++)
        is_busy = look_at (g_ptr_array_index (self->rounds, i)) || is_busy;
    return is_busy;
}

void ecfs_renewals_free (EcfsRenewals *self)
{
    if (self == NULL)
        return;
    for (guint i = 0; i < self->rounds->len; i++) {
        Round *round = g_ptr_array_index (self->rounds, i);
        ecfs_mutex_lock (&self->lock);
        while (round->n_open > 0)
            (void) ecfs_cond_wait_until (&self->ended, &self->lock, ecfs_now_us () + G_USEC_PER_SEC);
        ecfs_mutex_unlock (&self->lock);
        (void) settle (round);
    }
    if (self->rounds->len > 0)
        keep (self);
    g_ptr_array_unref (self->rounds);
    ecfs_cond_clear (&self->ended);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}
