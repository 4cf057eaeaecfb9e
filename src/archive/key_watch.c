#include "archive/key_watch.h"

#include "archive/key_losses.h"
#include "archive/key_slots.h"
#include "archive/lineage.h"
#include "catalog/journal_rows.h"
#include "util/ticker.h"

#include <string.h>

#define LOOK_US      (2 * G_USEC_PER_SEC)  /* between two looks at who came up */
#define RETRY_US     (10 * G_USEC_PER_SEC) /* until one that did not answer is asked again, … */
#define LOST_US      (60 * G_USEC_PER_SEC) /* … one that has lost its share, … */
#define RESTORE_US   (10 * G_USEC_PER_SEC) /* … and until a share is stored again that is lost again */
#define PATIENCE_US  (10 * G_USEC_PER_SEC)
#define TICK_US      500000
#define RENEW_US     (10 * G_USEC_PER_SEC) /* between two looks whether another machine has changed the slots */
#define OLDER_MOST   64                    /* files of one endpoint that are removed at a time */
#define LOST_SETTING "key_share_lost "     /* and the UUID of an endpoint: yes or no */

_Atomic int64_t ecfs_key_watch_again_us = 3600 * (int64_t) G_USEC_PER_SEC;

/* What is known of one endpoint. */
typedef struct Place {
    EcfsKeyWatch *watch; /* immutable, as the next */
    size_t position;
    EcfsKeySight sight; /* guarded by the watch's lock, as the rest up to the next comment */
    unsigned x;
    char *reason;                /* NULL: there is none; owned */
    bool damaged;                /* LOST: there is a file */
    bool busy;                   /* a request is under way */
    bool was_down;               /* since it was looked at, … */
    bool was_silent;             /* … or then it did not answer */
    bool keeps_lost;             /* the catalog says that it has lost its share */
    int64_t looked_us;           /* when it was asked last; 0: never */
    int64_t restored_us;         /* when its share was stored again last; 0: never */
    const EcfsKeyShares *seen;   /* by which it was judged last; borrowed from the archive; NULL: it was not */
    const EcfsKeyShares *tidied; /* of which it has no older files; likewise */
    /* Of the request under way. */
    const EcfsKeyShares *shares; /* whose file it is about; borrowed from the archive */
    GByteArray *bytes;           /* that are read or written; NULL: none */
    GPtrArray *older;            /* names of files that are to be removed; NULL: none */
    unsigned found_x;            /* the share that is there */
} Place;

struct EcfsKeyWatch {
    EcfsArchive *archive; /* immutable, as the next */
    Place *places;        /* ECFS_ENDPOINTS_MAX */
    EcfsTicker *ticker;
    EcfsMutex lock;
    EcfsCond changed;
    bool restores;      /* guarded by lock, as the next */
    int64_t renewed_us; /* when it was looked whether the slots are the newest; 0: never */
    bool is_outdated;   /* they are not, and that was told */
};

static void take_lost (void *user, const char *key, const char *value)
{
    EcfsKeyWatch *self = user;
    EcfsUuid uuid;
    if (!g_str_has_prefix (key, LOST_SETTING) || !ecfs_uuid_parse (key + strlen (LOST_SETTING), &uuid))
        return;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++)
        if (ecfs_uuid_equal (&ecfs_archive_endpoint (self->archive, i)->uuid, &uuid))
            self->places[i].keeps_lost = g_str_equal (value, "yes");
}

EcfsKeyWatch *ecfs_key_watch_new (EcfsArchive *archive)
{
    g_autoptr (GError) error = NULL;
    if (ecfs_archive_keys (archive) == NULL)
        return NULL;
    EcfsKeyWatch *self = g_new0 (EcfsKeyWatch, 1);
    self->archive = archive;
    self->places = g_new0 (Place, ECFS_ENDPOINTS_MAX);
    for (size_t i = 0; i < ECFS_ENDPOINTS_MAX; i++)
        self->places[i] = (Place){.watch = self, .position = i};
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->changed);
    if (!ecfs_catalog_settings (ecfs_archive_catalog (archive), take_lost, self, &error))
        g_warning ("%s", error->message);
    return self;
}

EcfsKeyWatch *ecfs_archive_key_watch (const EcfsArchive *archive)
{
    return ecfs_archive_key_shares (archive) == NULL ? NULL : ecfs_archive_service (archive, ECFS_SERVICE_KEY);
}

void ecfs_key_watch_free (EcfsKeyWatch *self)
{
    if (self == NULL)
        return;
    ecfs_key_watch_end (self);
    for (size_t i = 0; i < ECFS_ENDPOINTS_MAX; i++)
        g_free (self->places[i].reason);
    g_free (self->places);
    ecfs_cond_clear (&self->changed);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

/* Looking: the size of the file, and then the file */

static const char *name_at (const Place *self)
{
    return ecfs_archive_endpoint (self->watch->archive, self->position)->name;
}

static EcfsEndpoint *endpoint_at (const Place *self)
{
    return ecfs_archive_endpoint (self->watch->archive, self->position)->endpoint;
}

static void tell (const Place *self, EcfsKeySight before)
{
    if (self->sight == ECFS_KEY_THERE && before == ECFS_KEY_LOST)
        g_message ("endpoint %s has its share of the archive's key again", name_at (self));
    else if (self->sight > ECFS_KEY_THERE && self->sight != before)
        g_warning ("endpoint %s: %s", name_at (self), self->reason);
}

/* Takes @reason. */
static void end_look (Place *self, EcfsKeySight sight, unsigned x, bool damaged, char *reason)
{
    EcfsKeyWatch *watch = self->watch;
    ecfs_mutex_lock (&watch->lock);
    EcfsKeySight before = self->sight;
    g_free (self->reason);
    self->reason = reason;
    self->sight = sight;
    self->x = x;
    self->damaged = damaged;
    self->seen = self->shares;
    self->busy = false;
    tell (self, before);
    ecfs_cond_broadcast (&watch->changed);
    ecfs_mutex_unlock (&watch->lock);
}

/* One that does not answer has what it had when it did. */
static void give_up (Place *self)
{
    ecfs_mutex_lock (&self->watch->lock);
    self->busy = false;
    self->was_silent = true;
    ecfs_cond_broadcast (&self->watch->changed);
    ecfs_mutex_unlock (&self->watch->lock);
}

static void end_with (Place *self, const GError *error)
{
    int code = error->code;
    if (self->shares != ecfs_archive_key_shares (self->watch->archive))
        give_up (self);
    else if (code == ENOTCONN || code == ETIMEDOUT || code == ECANCELED || ecfs_endpoint_is_down (endpoint_at (self)))
        give_up (self);
    else if (code == ENOENT)
        end_look (self, ECFS_KEY_LOST, 0, false, g_strdup ("its share of the archive's key is missing"));
    else
        end_look (self, ECFS_KEY_OTHER, 0, false,
                  g_strdup_printf ("its share of the archive's key cannot be read: %s", error->message));
}

/* Where no secret is shared every zone has all that there is. */
static unsigned zone_number (const EcfsKeyWatch *self, size_t position)
{
    size_t first = 0;
    while (strcmp (ecfs_archive_endpoint (self->archive, first)->zone,
                   ecfs_archive_endpoint (self->archive, position)->zone) != 0)
        first++;
    return (unsigned) MIN (first + 1, ECFS_SHARES_MAX);
}

/* Files of older revisions: who missed a change has them still, and they open with what was taken away since */

static bool may_have_older_locked (const EcfsKeyWatch *watch, const Place *self, const EcfsKeyShares *shares)
    ECFS_REQUIRES (watch->lock)
{
    return watch->restores && shares != NULL && ecfs_key_shares_may_have_older (shares) && self->tidied != shares;
}

static void end_there (Place *self)
{
    g_clear_pointer (&self->older, g_ptr_array_unref);
    end_look (self, ECFS_KEY_THERE, self->found_x, false, NULL);
}

static void remove_older (Place *self);

static void on_older_removed (void *user, uint64_t value, const GError *error)
{
    Place *self = user;
    (void) value;
    bool retained = ecfs_endpoint_retain_us (endpoint_at (self)) != ECFS_RETAIN_NOT;
    if (error == NULL || error->code == ENOENT || (error->code == EPERM && retained)) {
        remove_older (self);
        return;
    }
    g_warning ("endpoint %s: an older file with the archive's key cannot be removed: %s", name_at (self),
               error->message);
    end_there (self);
}

static void remove_older (Place *self)
{
    EcfsKeyWatch *watch = self->watch;
    if (self->older->len > 0 && !ecfs_archive_is_stopping (watch->archive)) {
        g_autofree char *name = g_ptr_array_steal_index_fast (self->older, self->older->len - 1);
        ecfs_endpoint_remove (endpoint_at (self), name, on_older_removed, self);
        return;
    }
    ecfs_mutex_lock (&watch->lock);
    self->tidied = self->older->len == 0 ? self->shares : NULL;
    ecfs_mutex_unlock (&watch->lock);
    end_there (self);
}

static void on_older (void *user, const EcfsListed *listed)
{
    Place *self = user;
    if (self->older->len < OLDER_MOST && ecfs_key_shares_is_older (self->shares, listed->name))
        g_ptr_array_add (self->older, g_strdup (listed->name));
}

static void on_older_listed (void *user, uint64_t value, const GError *error)
{
    Place *self = user;
    (void) value;
    if (error == NULL || error->code == ENOENT)
        remove_older (self);
    else
        end_there (self); /* it is asked again */
}

/* It has the newest. */
static void tidy (Place *self)
{
    EcfsKeyWatch *watch = self->watch;
    ecfs_mutex_lock (&watch->lock);
    bool tidies = may_have_older_locked (watch, self, self->shares);
    ecfs_mutex_unlock (&watch->lock);
    if (!tidies || ecfs_archive_is_stopping (watch->archive) ||
        !ecfs_lineage_may_write (ecfs_archive_lineage (watch->archive), self->position)) {
        end_there (self);
        return;
    }
    self->older = g_ptr_array_new_with_free_func (g_free);
    ecfs_endpoint_list (endpoint_at (self), ECFS_KEYS_DIRECTORY, on_older, on_older_listed, self);
}

static void judge (Place *self, const GByteArray *bytes)
{
    unsigned x;
    EcfsShareVerdict verdict = ecfs_key_shares_judge (self->shares, bytes, &x);
    if (self->shares != ecfs_archive_key_shares (self->watch->archive)) { /* ways to open the key were changed since */
        give_up (self);
        return;
    }
    if (verdict == ECFS_SHARE_OURS && x == 0)
        x = zone_number (self->watch, self->position);
    self->found_x = x;
    if (verdict == ECFS_SHARE_OURS)
        tidy (self);
    else if (verdict == ECFS_SHARE_DAMAGED)
        end_look (self, ECFS_KEY_LOST, 0, true, g_strdup ("its share of the archive's key is damaged"));
    else
        end_look (self, ECFS_KEY_OTHER, 0, true,
                  g_strdup ("what it has as its share of the archive's key is not what was stored there"));
}

static void on_read (void *user, const GError *error)
{
    Place *self = user;
    GByteArray *bytes = g_steal_pointer (&self->bytes);
    if (error != NULL)
        end_with (self, error);
    else
        judge (self, bytes);
    ecfs_key_forget_array (bytes);
}

static void on_size (void *user, uint64_t size, const GError *error)
{
    Place *self = user;
    if (error != NULL) {
        end_with (self, error);
        return;
    }
    if (ecfs_archive_is_stopping (self->watch->archive)) {
        give_up (self);
        return;
    }
    GByteArray *bytes = g_byte_array_new ();
    g_byte_array_set_size (bytes, (guint) MIN (size, ECFS_KEY_FILE_MAX_BYTES));
    if (size == 0 || size > ECFS_KEY_FILE_MAX_BYTES) { /* none of ours */
        g_byte_array_set_size (bytes, 0);
        judge (self, bytes);
        ecfs_key_forget_array (bytes);
        return;
    }
    self->bytes = bytes;
    const EcfsRange range = {.size = bytes->len, .to = bytes->data};
    const EcfsSink sink = {.done = on_read, .user = self};
    char name[ECFS_KEY_SHARE_NAME_SIZE];
    ecfs_key_shares_file_name (self->shares, name);
    ecfs_stream_unref (ecfs_endpoint_read (endpoint_at (self), name, &range, 1, 0, &sink));
}

/* Its flag `busy` is set. */
static void look (Place *self)
{
    char name[ECFS_KEY_SHARE_NAME_SIZE];
    self->shares = ecfs_archive_key_shares (self->watch->archive);
    ecfs_key_shares_file_name (self->shares, name);
    ecfs_endpoint_size (endpoint_at (self), name, on_size, self);
}

static bool counts (const EcfsKeyWatch *self, size_t position)
{
    return ecfs_archive_endpoint_counts (ecfs_archive_endpoint (self->archive, position));
}

/* Whether it is time to look again, and nobody does so yet. */
static bool is_due_locked (const EcfsKeyWatch *self, const Place *place, int64_t now_us) ECFS_REQUIRES (self->lock)
{
    const EcfsKeyShares *shares = ecfs_archive_key_shares (self->archive);
    bool is_fine = place->sight == ECFS_KEY_THERE && !may_have_older_locked (self, place, shares);
    int64_t seen_us = place->seen != shares ? 0 : is_fine ? ecfs_key_watch_again_us : LOST_US;
    int64_t period_us = place->was_down ? LOOK_US : place->was_silent ? RETRY_US : seen_us;
    return place->looked_us == 0 || now_us - place->looked_us >= period_us;
}

/* Which endpoints are asked. */
typedef enum Whom {
    DUE,
    DOUBTFUL, /* those that are not known to have theirs */
    EVERY_ONE,
} Whom;

static void look_at (EcfsKeyWatch *self, Whom whom)
{
    int64_t now_us = ecfs_now_us ();
    bool any = ecfs_archive_key_shares (self->archive) != NULL;
    for (size_t i = 0; any && i < ecfs_archive_n_endpoints (self->archive); i++) {
        Place *place = &self->places[i];
        if (!counts (self, i))
            continue;
        bool is_down = ecfs_endpoint_is_down (endpoint_at (place));
        ecfs_mutex_lock (&self->lock);
        place->was_down = place->was_down || is_down;
        bool begins = !is_down && !place->busy &&
                      (whom == EVERY_ONE || (whom == DOUBTFUL && place->sight != ECFS_KEY_THERE) ||
                       is_due_locked (self, place, now_us));
        if (begins) {
            place->busy = true;
            place->was_down = place->was_silent = false;
            place->looked_us = now_us;
        }
        ecfs_mutex_unlock (&self->lock);
        if (begins)
            look (place);
    }
}

void ecfs_key_watch_look (EcfsKeyWatch *self)
{
    if (self != NULL)
        look_at (self, EVERY_ONE);
}

static bool any_busy_locked (const EcfsKeyWatch *self) ECFS_REQUIRES (self->lock)
{
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++)
        if (self->places[i].busy)
            return true;
    return false;
}

void ecfs_key_watch_await (EcfsKeyWatch *self, int64_t deadline_us)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    while (any_busy_locked (self) && ecfs_cond_wait_until (&self->changed, &self->lock, deadline_us))
        ;
    ecfs_mutex_unlock (&self->lock);
}

/* Zones that ecfs.conf has made of others */

/* The lowest share that an endpoint of the zone has; 0: none. *ret_unseen: one that has not said; NULL: all have. */
static unsigned share_in (EcfsKeyWatch *self, const char *zone, const EcfsArchiveEndpoint *except,
                          const char **ret_unseen)
{
    unsigned lowest = 0;
    *ret_unseen = NULL;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        if (endpoint == except || !counts (self, i) || strcmp (endpoint->zone, zone) != 0)
            continue;
        ecfs_mutex_lock (&self->lock);
        const Place *place = &self->places[i];
        if (place->sight == ECFS_KEY_UNSEEN)
            *ret_unseen = endpoint->name;
        if (place->x > 0 && (lowest == 0 || place->x < lowest))
            lowest = place->x;
        ecfs_mutex_unlock (&self->lock);
    }
    return lowest;
}

/* As ecfs_archive_settle_share (), from what is known. */
static bool settle (EcfsKeyWatch *self, const char *zone, const EcfsArchiveEndpoint *except, GError **error)
{
    unsigned x;
    const char *unseen;
    if (ecfs_key_shares_threshold (ecfs_archive_key_shares (self->archive)) == 0)
        return true;
    if (!ecfs_key_shares_of_zone (ecfs_archive_catalog (self->archive), zone, &x, error))
        return false;
    if (x > 0)
        return true;
    x = share_in (self, zone, except, &unseen);
    if (x > 0)
        return ecfs_key_shares_give_zone (ecfs_archive_catalog (self->archive), zone, x, error);
    return unseen == NULL ||
           ecfs_fail (error, ENOTCONN,
                      "endpoint %s does not tell which share of the archive's key zone %s has, and a second one would "
                      "let fewer zones read: bring it back first",
                      unseen, zone);
}

bool ecfs_archive_settle_share (EcfsArchive *self, const char *zone, const EcfsArchiveEndpoint *except, GError **error)
{
    EcfsKeyWatch *watch = ecfs_archive_key_watch (self);
    g_autoptr (GError) why = NULL;
    if (watch == NULL || settle (watch, zone, except, &why))
        return true;
    if (why->code != ENOTCONN) {
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    look_at (watch, DOUBTFUL);
    ecfs_key_watch_await (watch, ecfs_now_us () + PATIENCE_US);
    return settle (watch, zone, except, error);
}

bool ecfs_archive_settle_renewed (EcfsArchive *self, const char *name, GError **error)
{
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_named (self, name, NULL);
    return endpoint == NULL || ecfs_archive_settle_share (self, endpoint->zone, endpoint, error);
}

/* Storing again */

static void on_written (void *user, const GError *error)
{
    Place *self = user;
    ecfs_key_forget_array (g_steal_pointer (&self->bytes));
    if (error != NULL && error->code != EEXIST)
        g_warning ("endpoint %s: its share of the archive's key cannot be stored again: %s", name_at (self),
                   error->message);
    if (ecfs_archive_is_stopping (self->watch->archive))
        give_up (self);
    else
        look (self); /* what counts is what it has now */
}

static void write_share (Place *self)
{
    char name[ECFS_KEY_SHARE_NAME_SIZE];
    ecfs_key_shares_file_name (self->shares, name);
    ecfs_stream_unref (
        ecfs_endpoint_write_bytes (endpoint_at (self), name, self->bytes->data, self->bytes->len, on_written, self));
}

static void on_removed (void *user, uint64_t value, const GError *error)
{
    Place *self = user;
    (void) value;
    if (error != NULL && error->code != ENOENT)
        on_written (self, error);
    else
        write_share (self);
}

/* *ret_x is the share of an endpoint's zone; 0: it cannot be told before others have answered. */
static bool find_share (EcfsKeyWatch *self, size_t position, unsigned *ret_x, GError **error)
{
    g_autoptr (GError) why = NULL;
    const char *zone = ecfs_archive_endpoint (self->archive, position)->zone;
    *ret_x = 0;
    if (!settle (self, zone, ecfs_archive_endpoint (self->archive, position), &why)) {
        if (why->code == ENOTCONN)
            return true;
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    return ecfs_key_shares_choose (ecfs_archive_catalog (self->archive), zone, ret_x, error);
}

/* Whether nothing speaks against it; the endpoint is busy then. */
static bool takes_share (EcfsKeyWatch *self, Place *place)
{
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, place->position);
    int64_t now_us = ecfs_now_us ();
    if (!ecfs_archive_has_journal (endpoint) || ecfs_endpoint_is_down (endpoint->endpoint) ||
        !ecfs_lineage_may_write (ecfs_archive_lineage (self->archive), place->position))
        return false;
    ecfs_mutex_lock (&self->lock);
    bool takes = self->restores && place->sight == ECFS_KEY_LOST && !place->busy &&
                 (place->restored_us == 0 || now_us - place->restored_us >= RESTORE_US);
    if (takes) {
        place->busy = true;
        place->restored_us = now_us;
    }
    ecfs_mutex_unlock (&self->lock);
    return takes;
}

static void restore (EcfsKeyWatch *self, Place *place)
{
    unsigned x = 0;
    char name[ECFS_KEY_SHARE_NAME_SIZE];
    g_autoptr (GError) error = NULL;
    if (!takes_share (self, place))
        return;
    place->shares = ecfs_archive_key_shares (self->archive);
    bool shared = ecfs_key_shares_threshold (place->shares) > 0;
    if (shared && (!find_share (self, place->position, &x, &error) || x == 0)) {
        if (error != NULL)
            g_warning ("endpoint %s: its share of the archive's key cannot be stored again: %s", name_at (place),
                       error->message);
        give_up (place);
        return;
    }
    place->bytes = ecfs_key_shares_file_of (place->shares, x);
    ecfs_key_shares_file_name (place->shares, name);
    if (place->damaged)
        ecfs_endpoint_remove (endpoint_at (place), name, on_removed, place);
    else
        write_share (place);
}

/* For when it does not answer after the next mount. */
static void keep_lost (EcfsKeyWatch *self, Place *place)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    g_autoptr (GError) error = NULL;
    ecfs_mutex_lock (&self->lock);
    bool lost = place->sight > ECFS_KEY_THERE;
    bool changes = !place->busy && place->sight != ECFS_KEY_UNSEEN && lost != place->keeps_lost;
    place->keeps_lost = changes ? lost : place->keeps_lost;
    ecfs_mutex_unlock (&self->lock);
    if (!changes)
        return;
    ecfs_uuid_text (&ecfs_archive_endpoint (self->archive, place->position)->uuid, uuid);
    g_autofree char *key = g_strconcat (LOST_SETTING, uuid, NULL);
    if (!ecfs_catalog_keep_setting (ecfs_archive_catalog (self->archive), key, lost ? "yes" : "no", &error))
        g_warning ("%s", error->message);
}

static bool any_lost (EcfsKeyWatch *self)
{
    bool any = false;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++) {
        if (!counts (self, i))
            continue;
        ecfs_mutex_lock (&self->lock);
        any = any || self->places[i].sight > ECFS_KEY_THERE;
        ecfs_mutex_unlock (&self->lock);
    }
    return any;
}

/* Whether the slots are the newest by now; else what endpoints lack is not to be stored from here. */
static bool renew (EcfsKeyWatch *self)
{
    g_autoptr (GError) error = NULL;
    bool renewed = ecfs_archive_renew_key_slots (self->archive, &error);
    ecfs_mutex_lock (&self->lock);
    bool tells = !renewed && !self->is_outdated;
    self->is_outdated = !renewed;
    self->renewed_us = ecfs_now_us ();
    ecfs_mutex_unlock (&self->lock);
    if (tells)
        g_warning ("%s", error->message);
    return renewed;
}

/* Endpoints are to be judged by the newest slots. */
static void renew_when_due (EcfsKeyWatch *self)
{
    bool is_shared = ecfs_catalog_is_shared (ecfs_archive_catalog (self->archive));
    ecfs_mutex_lock (&self->lock);
    bool due = self->renewed_us == 0 || (is_shared && ecfs_now_us () - self->renewed_us >= RENEW_US);
    ecfs_mutex_unlock (&self->lock);
    if (due)
        (void) renew (self); /* it has told why not */
}

static void restore_all (EcfsKeyWatch *self)
{
    ecfs_mutex_lock (&self->lock);
    bool restores = self->restores;
    ecfs_mutex_unlock (&self->lock);
    bool may_store = restores && (!any_lost (self) || renew (self));
    for (size_t i = 0; may_store && i < ecfs_archive_n_endpoints (self->archive); i++) {
        if (!counts (self, i))
            continue;
        restore (self, &self->places[i]);
        keep_lost (self, &self->places[i]);
    }
}

static void tick (void *user)
{
    EcfsKeyWatch *self = user;
    renew_when_due (self);
    look_at (self, DUE);
    restore_all (self);
}

void ecfs_key_watch_begin (EcfsKeyWatch *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->restores = true;
    ecfs_mutex_unlock (&self->lock);
    self->ticker = ecfs_ticker_start (LOOK_US, tick, self);
}

void ecfs_key_watch_end (EcfsKeyWatch *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->restores = false;
    ecfs_mutex_unlock (&self->lock);
    if (self->ticker == NULL)
        return;
    ecfs_ticker_stop (g_steal_pointer (&self->ticker));
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++)
        keep_lost (self, &self->places[i]);
}

/* Counting */

unsigned ecfs_key_needed (const EcfsArchive *archive)
{
    const EcfsKeyShares *shares = ecfs_archive_key_shares (archive);
    return ecfs_key_shares_are_needed (shares) ? ecfs_key_shares_threshold (shares) : 1;
}

void ecfs_key_losses (EcfsArchive *archive, const EcfsArchiveEndpoint *without, EcfsKeyLosses *ret_losses)
{
    unsigned threshold = ecfs_key_shares_threshold (ecfs_archive_key_shares (archive));
    ecfs_archive_losses (archive, without, ret_losses);
    if (threshold > 0)
        ret_losses->zones = MIN (ret_losses->zones, threshold - 1);
}

/* Which share an endpoint has as far as is known; 0: none. One that does not answer has what its zone was given, unless
 * it was found to have lost it. */
static unsigned share_at (EcfsKeyWatch *self, size_t position, bool believes_all)
{
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, position);
    unsigned x = 0;
    if (!counts (self, position))
        return 0;
    bool is_down = ecfs_endpoint_is_down (endpoint->endpoint);
    ecfs_mutex_lock (&self->lock);
    const Place *place = &self->places[position];
    bool believed = place->sight == ECFS_KEY_UNSEEN && !place->keeps_lost && (is_down || believes_all);
    unsigned seen = place->x;
    ecfs_mutex_unlock (&self->lock);
    if (believed && ecfs_key_shares_threshold (ecfs_archive_key_shares (self->archive)) == 0)
        x = zone_number (self, position);
    else if (believed && !ecfs_key_shares_of_zone (ecfs_archive_catalog (self->archive), endpoint->zone, &x, NULL))
        x = 0; /* whoever writes to the catalog tells what is wrong with it */
    return believed ? x : seen;
}

EcfsKeySeen ecfs_key_watch_sight (EcfsKeyWatch *self, size_t position)
{
    EcfsKeySeen seen = {.sight = ECFS_KEY_UNSEEN};
    if (self == NULL)
        return seen;
    ecfs_mutex_lock (&self->lock);
    const Place *place = &self->places[position];
    seen = (EcfsKeySeen){.sight = place->sight, .reason = g_strdup (place->reason)};
    ecfs_mutex_unlock (&self->lock);
    seen.x = share_at (self, position, true);
    return seen;
}

/* Of EcfsZoneShare, for g_array_unref (). @believes_all: also those that have not answered yet. */
static GArray *all_shares (EcfsKeyWatch *self, bool believes_all)
{
    GArray *shares = g_array_new (FALSE, FALSE, sizeof (EcfsZoneShare));
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++) {
        const EcfsZoneShare one = {.zone = ecfs_archive_endpoint (self->archive, i)->zone,
                                   .x = share_at (self, i, believes_all)};
        if (one.x > 0)
            g_array_append_val (shares, one);
    }
    return shares;
}

static EcfsKeyCount count (EcfsKeyWatch *self, bool believes_all)
{
    EcfsKeyCount count;
    EcfsKeyLosses losses;
    g_autoptr (GArray) shares = all_shares (self, believes_all);
    ecfs_key_losses (self->archive, NULL, &losses);
    ecfs_key_count ((const EcfsZoneShare *) shares->data, shares->len, ecfs_key_needed (self->archive), &losses,
                    &count);
    return count;
}

static bool is_enough (EcfsKeyWatch *self, bool believes_all)
{
    const EcfsKeyCount found = count (self, believes_all);
    return ecfs_key_count_left (&found) >= ecfs_key_needed (self->archive);
}

static bool fail_key (EcfsKeyWatch *self, GError **error)
{
    g_autoptr (GString) reasons = g_string_new (NULL);
    EcfsKeyLosses losses;
    ecfs_key_losses (self->archive, NULL, &losses);
    const EcfsKeyCount found = count (self, true);
    g_autofree char *lost = ecfs_key_describe_loss (&found, ecfs_key_needed (self->archive), &losses);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++) {
        EcfsKeySeen seen = ecfs_key_watch_sight (self, i);
        if (counts (self, i) && seen.reason != NULL)
            g_string_append_printf (reasons, "\nendpoint %s: %s", name_at (&self->places[i]), seen.reason);
        g_free (seen.reason);
    }
    g_autoptr (GArray) shares = all_shares (self, true);
    g_autoptr (GPtrArray) twins = ecfs_key_twin_zones ((const EcfsZoneShare *) shares->data, shares->len);
    for (guint i = 0; i < twins->len; i++)
        g_string_append_printf (reasons, "\nzone %s: another zone has the same share, see 'ecfs status %s'",
                                (const char *) g_ptr_array_index (twins, i), ecfs_archive_directory (self->archive));
    return ecfs_fail (error, EIO,
                      "%u zones of endpoints have their shares of the archive's key, and %u bring it back: it could be "
                      "lost with this machine and %s; 'ecfs fsck -y %s' stores shares again%s",
                      found.n_zones, ecfs_key_needed (self->archive), lost, ecfs_archive_directory (self->archive),
                      reasons->str);
}

/* The last slot is taken away only by who says so, but what endpoints have is worth nothing then. */
static bool fail_slots (const EcfsArchive *archive, GError **error)
{
    const char *directory = ecfs_archive_directory (archive);
    return ecfs_fail (error, EIO,
                      "no key slot is left, so nothing that endpoints have opens the archive's key: without the file "
                      "%s/key or a copy of it, nothing comes back; 'ecfs key add %s' makes a slot",
                      directory, directory);
}

/* Waits for answers and for what is stored again; returns whether that is enough. */
static bool await_enough (EcfsKeyWatch *self, int64_t deadline_us, bool (*goes_on) (void *user), void *user,
                          bool *ret_goes_on)
{
    bool busy = true, enough = false;
    *ret_goes_on = true;
    while (!(enough = is_enough (self, false)) && busy && *ret_goes_on && ecfs_now_us () < deadline_us) {
        restore_all (self);
        ecfs_mutex_lock (&self->lock);
        busy = any_busy_locked (self);
        if (busy)
            (void) ecfs_cond_wait_until (&self->changed, &self->lock,
                                         MIN (deadline_us, ecfs_now_us () + TICK_US)); /* the loop looks */
        ecfs_mutex_unlock (&self->lock);
        *ret_goes_on = goes_on == NULL || goes_on (user);
    }
    return enough;
}

bool ecfs_archive_confirm_key (EcfsArchive *self, bool (*goes_on) (void *user), void *user, GError **error)
{
    EcfsKeyWatch *watch = ecfs_archive_key_watch (self);
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    unsigned threshold;
    bool on = true;
    if (watch == NULL)
        return ecfs_key_shares_told (ecfs_archive_catalog (self), &threshold, error) &&
               (threshold == 0 ||
                ecfs_fail (error, ENOKEY, "%s/" ECFS_KEY_SLOTS_NAME " is gone or damaged: see ecfs status",
                           ecfs_archive_directory (self)));
    if (ecfs_key_shares_open_nothing (ecfs_archive_key_shares (self)))
        return fail_slots (self, error);
    if (!ecfs_archive_load_codes (self, error))
        return false;
    if (is_enough (watch, false))
        return true;
    look_at (watch, DOUBTFUL);
    if (await_enough (watch, deadline_us, goes_on, user, &on) || (on && is_enough (watch, true)))
        return true;
    return on ? fail_key (watch, error) : ecfs_fail (error, ECANCELED, "the mount ends");
}
