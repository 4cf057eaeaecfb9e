/*
 * Markers where nothing may be replaced. The root's marker says for ever which endpoint it is. What it would say now is
 * in a file "markers/NUMBER", one behind the other without a gap, each made once; the newest that is whole and
 * authentic counts. A number may have a file that is neither: an upload broke off, or somebody else made it.
 *
 * The root's counts all the same if somebody could replace it, and did so later.
 *
 * Looking goes through these states, and begins anew where the server has less than it had:
 *
 *   the root's marker → is there one more?, until there is none → size and text of the newest, of the one before it
 *   where that does not count, … → done; where the first is new, and they may be many, they are listed
 *
 * Adding is a write of the next number, of the one behind it where that is taken, and so on.
 */
#include "endpoint/core/core.h"

#include <inttypes.h>
#include <string.h>

#define WHOLE         "# whole\n" /* ends each file: a comment */
#define NUMBER_DIGITS 8
#define MOST          UINT64_C (0xffffffff)
#define LOOK_MOST     256  /* that do not count, before the one that does */
#define TAKEN_MOST    4096 /* numbers, before one that is free; and that are new to a look */
#define LISTED_MOST   1000000

/* One look, or one marker that is added. */
typedef struct Marks {
    EcfsEndpoint *endpoint; /* counted */
    EcfsMarker marker;      /* the root's; then the one that counts; or the one to be added */
    GHashTable *listed;     /* of numbers, while listing */
    uint64_t at;            /* the number that is looked at, or made */
    unsigned n_tries, n_steps;
    bool again; /* it was listed in this look */
    char name[sizeof ECFS_MARKER_DIRECTORY + 1 + NUMBER_DIGITS];
    char text[ECFS_MARKER_MAX_SIZE + sizeof WHOLE];
    size_t size;
    void (*examined) (void *user, const EcfsMarker *marker, const GError *error);
    EcfsEndpointDone added;
    void *user;
} Marks;

static Marks *marks_new (EcfsEndpoint *endpoint, void *user)
{
    Marks *self = g_new0 (Marks, 1);
    self->endpoint = ecfs_endpoint_ref (endpoint);
    self->user = user;
    return self;
}

static void marks_free (Marks *self)
{
    g_clear_pointer (&self->listed, g_hash_table_unref);
    ecfs_endpoint_unref (self->endpoint);
    g_free (self);
}

static void set_name (Marks *self)
{
    (void) g_snprintf (self->name, sizeof self->name, ECFS_MARKER_DIRECTORY "/%0*" PRIx64, NUMBER_DIGITS, self->at);
}

static bool parse_name (const char *name, uint64_t *ret_number)
{
    const char *digits = name + strlen (ECFS_MARKER_DIRECTORY "/");
    guint64 number;
    if (!g_str_has_prefix (name, ECFS_MARKER_DIRECTORY "/") || strlen (digits) != NUMBER_DIGITS ||
        !g_ascii_string_to_unsigned (digits, 16, 1, MOST, &number, NULL))
        return false;
    *ret_number = number;
    return true;
}

static uint64_t known (EcfsEndpoint *endpoint)
{
    ecfs_mutex_lock (&endpoint->lock);
    uint64_t n = endpoint->n_marks;
    ecfs_mutex_unlock (&endpoint->lock);
    return n;
}

static void note_known (EcfsEndpoint *endpoint, uint64_t n)
{
    ecfs_mutex_lock (&endpoint->lock);
    endpoint->n_marks = n;
    const EcfsUuid expected = endpoint->expected.archive;
    ecfs_mutex_unlock (&endpoint->lock);
    /* A recovery goes by what it finds. Who has the archive was told, and reads what others mark. */
    if (n > 0 && !endpoint->retain_told && ecfs_uuid_is_nil (&expected))
        atomic_store (&endpoint->retains, true);
}

/* Looking */

static void ask_size (Marks *self);
static void list (Marks *self);

static void look_end (Marks *self, const GError *error)
{
    self->examined (self->user, &self->marker, error);
    marks_free (self);
}

/* The one before it, or after too many the root's: then somebody means to hide what counts, and nothing does. */
static void look_before (Marks *self)
{
    g_autoptr (GError) error = NULL;
    if (++self->n_tries >= LOOK_MOST && self->at > 1)
        (void) !ecfs_fail (&error, EPROTO,
                           "endpoint %s: the newest %d files in " ECFS_MARKER_DIRECTORY " are no markers",
                           self->endpoint->name, LOOK_MOST);
    self->at--;
    if (error != NULL || self->at == 0)
        look_end (self, error);
    else
        ask_size (self);
}

static bool counts (const Marks *self, const EcfsMarker *marker)
{
    const EcfsEndpoint *endpoint = self->endpoint;
    return ecfs_uuid_equal (&marker->archive, &self->marker.archive) &&
           ecfs_uuid_equal (&marker->endpoint, &self->marker.endpoint) &&
           (endpoint->vouch == NULL || endpoint->vouch (endpoint->vouch_user, marker));
}

/* Who may replace it, with another login or now and then, wrote it last. */
static bool is_root_later (const Marks *self, const EcfsMarker *marker)
{
    const EcfsMarker *root = &self->marker;
    const uint64_t order[][2] = {{root->epoch, marker->epoch},
                                 {root->session_number, marker->session_number},
                                 {root->claim.epoch, marker->claim.epoch},
                                 {root->claim.count, marker->claim.count}};
    for (size_t i = 0; i < G_N_ELEMENTS (order); i++)
        if (order[i][0] != order[i][1])
            return order[i][0] > order[i][1] && counts (self, root);
    return false;
}

/* The file itself is at fault, and not that the endpoint cannot be asked. */
static bool is_of_file (const GError *error)
{
    return error->code == EBADMSG || error->code == ENOENT || error->code == EACCES || error->code == EPROTO;
}

static void on_text (void *user, const GError *error)
{
    Marks *self = user;
    EcfsMarker marker;
    size_t end = self->size - strlen (WHOLE);
    if (error != NULL && !is_of_file (error))
        look_end (self, error);
    else if (error == NULL && memcmp (self->text + end, WHOLE, strlen (WHOLE)) == 0 &&
             ecfs_marker_parse (self->text, end, &marker, NULL) && counts (self, &marker)) {
        if (!is_root_later (self, &marker))
            self->marker = marker;
        look_end (self, NULL);
    } else {
        look_before (self);
    }
}

static void on_size (void *user, uint64_t value, const GError *error)
{
    Marks *self = user;
    if (error != NULL && error->code == ENOENT && !self->again) { /* it was there */
        list (self);
    } else if (error != NULL && !is_of_file (error)) {
        look_end (self, error);
    } else if (error != NULL || value <= strlen (WHOLE) || value > sizeof self->text) {
        look_before (self);
    } else {
        self->size = (size_t) value;
        const EcfsRange range = {.size = self->size, .to = (uint8_t *) self->text};
        const EcfsSink sink = {.done = on_text, .user = self};
        ecfs_stream_unref (ecfs_endpoint_read (self->endpoint, self->name, &range, 1, 0, &sink));
    }
}

static void ask_size (Marks *self)
{
    set_name (self);
    ecfs_endpoint_size (self->endpoint, self->name, on_size, self);
}

static void on_next (void *user, uint64_t value, const GError *error)
{
    Marks *self = user;
    (void) value;
    if (error != NULL && error->code != ENOENT && error->code != EPROTO) {
        look_end (self, error);
        return;
    }
    if (error == NULL || error->code != ENOENT) {
        if (++self->n_steps > TAKEN_MOST) { /* the next look goes on, if they are there */
            g_autoptr (GError) why = NULL;
            (void) !ecfs_fail (&why, EPROTO, "endpoint %s: more than %d files in " ECFS_MARKER_DIRECTORY " are new",
                               self->endpoint->name, TAKEN_MOST);
            look_end (self, why);
            return;
        }
        if (self->at == 1 && !self->again) { /* there may be thousands */
            list (self);
            return;
        }
        note_known (self->endpoint, self->at++);
        set_name (self);
        ecfs_endpoint_size (self->endpoint, self->name, on_next, self);
        return;
    }
    if (--self->at == 0)
        look_end (self, NULL);
    else
        ask_size (self);
}

/* The names are hostile: what lies behind a gap is not ours. */
static uint64_t without_gap (GHashTable *listed)
{
    uint64_t n = 0;
    while (g_hash_table_contains (listed, GSIZE_TO_POINTER (n + 1)))
        n++;
    return n;
}

static void on_listed (void *user, const EcfsListed *file)
{
    Marks *self = user;
    uint64_t number;
    if (parse_name (file->name, &number) && g_hash_table_size (self->listed) < LISTED_MOST)
        (void) g_hash_table_add (self->listed, GSIZE_TO_POINTER (number)); /* a list may say it twice */
}

static void on_list (void *user, uint64_t value, const GError *error)
{
    Marks *self = user;
    (void) value;
    if (error != NULL) {
        look_end (self, error);
        return;
    }
    self->at = without_gap (self->listed);
    note_known (self->endpoint, self->at);
    if (self->at == 0)
        look_end (self, NULL);
    else
        ask_size (self);
}

static void list (Marks *self)
{
    g_clear_pointer (&self->listed, g_hash_table_unref);
    self->listed = g_hash_table_new (NULL, NULL);
    self->again = true;
    ecfs_endpoint_list (self->endpoint, ECFS_MARKER_DIRECTORY, on_listed, on_list, self);
}

/* Then nothing else there may be asked for. */
static bool is_foreign (const Marks *self)
{
    ecfs_mutex_lock (&self->endpoint->lock);
    const EcfsMarker expected = self->endpoint->expected;
    ecfs_mutex_unlock (&self->endpoint->lock);
    return !ecfs_uuid_is_nil (&expected.archive) && (!ecfs_uuid_equal (&expected.archive, &self->marker.archive) ||
                                                     !ecfs_uuid_equal (&expected.endpoint, &self->marker.endpoint));
}

static void on_root (void *user, const EcfsMarker *marker, const GError *error)
{
    Marks *self = user;
    self->marker = *marker;
    if (error != NULL || is_foreign (self)) {
        look_end (self, error);
        return;
    }
    self->at = known (self->endpoint) + 1;
    if (self->at == 1 && atomic_load (&self->endpoint->retains)) {
        list (self);
        return;
    }
    set_name (self);
    ecfs_endpoint_size (self->endpoint, self->name, on_next, self);
}

/* Another machine may have been told what this one was not. */
bool ecfs_core_has_marks (EcfsEndpoint *self)
{
    return g_strv_contains (self->driver->option_keys, ECFS_RETAIN_OPTION_KEY);
}

void ecfs_marks_examine (EcfsEndpoint *endpoint,
                         void (*done) (void *user, const EcfsMarker *marker, const GError *error), void *user)
{
    Marks *self = marks_new (endpoint, user);
    self->examined = done;
    ecfs_request_examine (endpoint, on_root, self);
}

/* Adding */

static void add_end (Marks *self, const GError *error)
{
    EcfsEndpoint *endpoint = self->endpoint;
    if (error == NULL) {
        ecfs_mutex_lock (&endpoint->lock);
        endpoint->n_marks = MAX (endpoint->n_marks, self->at);
        endpoint->expected = self->marker;
        ecfs_mutex_unlock (&endpoint->lock);
    }
    if (self->added != NULL)
        self->added (self->user, 0, error);
    marks_free (self);
}

static void add (Marks *self);

static void on_added (void *user, const GError *error)
{
    Marks *self = user;
    if (error == NULL || error->code != EEXIST || ++self->n_tries >= TAKEN_MOST) {
        add_end (self, error);
        return;
    }
    self->at++;
    add (self);
}

static void add (Marks *self)
{
    set_name (self);
    ecfs_stream_unref (ecfs_endpoint_write_bytes (self->endpoint, self->name, self->text, self->size, on_added, self));
}

static void on_counted (void *user, uint64_t value, const GError *error)
{
    Marks *self = user;
    (void) value;
    if (error != NULL) {
        add_end (self, error);
        return;
    }
    self->at = without_gap (self->listed) + 1;
    add (self);
}

static void add_next (Marks *self)
{
    self->at = known (self->endpoint) + 1;
    if (self->at > 1) {
        add (self);
        return;
    }
    self->listed = g_hash_table_new (NULL, NULL);
    ecfs_endpoint_list (self->endpoint, ECFS_MARKER_DIRECTORY, on_listed, on_counted, self);
}

/* The root's is there. */
static void on_created (void *user, uint64_t value, const GError *error)
{
    Marks *self = user;
    (void) value;
    if (error != NULL)
        add_end (self, error);
    else
        add_next (self);
}

void ecfs_marks_add (EcfsEndpoint *endpoint, const EcfsMarker *marker, bool create, EcfsEndpointDone done, void *user)
{
    Marks *self = marks_new (endpoint, user);
    g_autofree char *text = ecfs_marker_format (marker);
    self->marker = *marker;
    self->added = done;
    self->size = g_strlcpy (self->text, text, sizeof self->text - strlen (WHOLE));
    self->size = MIN (self->size, sizeof self->text - sizeof WHOLE); /* never: a marker is shorter */
    memcpy (self->text + self->size, WHOLE, strlen (WHOLE));
    self->size += strlen (WHOLE);
    if (create)
        ecfs_request_mark (endpoint, marker, true, on_created, self);
    else
        add_next (self);
}
