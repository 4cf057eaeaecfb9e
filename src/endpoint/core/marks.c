/*
 * Markers where nothing may be replaced. The root's marker says for ever which endpoint it is. What it would say now is
 * in a file "markers/NUMBER", one behind the other without a gap, each made once; the newest that is whole and
 * authentic counts. A number may have a file that is neither: an upload broke off, or somebody else made it.
 *
 * `ecfs prune` removes old ones, but never the first, by which one sees that there are others. So there are runs of
 * numbers without a gap, and of the newest in each that count the one that tells of the latest does: the numbers are
 * hostile, and a copy of an old marker under a high one is not later.
 *
 * The root's counts all the same if somebody could replace it, and did so later.
 *
 * Looking goes through these states, and begins anew where the server has less than it had:
 *
 *   the root's marker → is there one more?, until there is none → size and text of the newest, of the one before it
 *   where that does not count, … → done; where the first is new, and they may be many, they are listed, and each
 *   run is looked at
 *
 * Adding is a write of the next number, of the one behind it where that is taken, and so on.
 */
#include "endpoint/core/core.h"

#include <inttypes.h>
#include <string.h>

#define WHOLE         "# whole\n" /* ends each file: a comment */
#define NUMBER_DIGITS 8
#define MOST          UINT64_C (0xffffffff)
#define LOOK_MOST     256  /* that do not count, before the one that does; and runs */
#define TAKEN_MOST    4096 /* numbers, before one that is free; and that are new to a look */
#define LISTED_MOST   1000000

/* Numbers without a gap. */
typedef struct Run {
    uint64_t first, last;
} Run;

/* One look, or one marker that is added. */
typedef struct Marks {
    EcfsEndpoint *endpoint; /* counted */
    EcfsMarker marker;      /* the root's; then the one that counts; or the one to be added */
    GHashTable *listed;     /* of numbers, while listing */
    GArray *runs;           /* of Run, in order, once they were listed; NULL: there is one, up to what is known */
    guint run;              /* that is looked at */
    EcfsMarker best;        /* of those that were, the latest, … */
    uint64_t best_last;     /* … and the end of its run; 0: none counts yet */
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
    g_clear_pointer (&self->runs, g_array_unref);
    ecfs_endpoint_unref (self->endpoint);
    g_free (self);
}

static void set_name (Marks *self)
{
    (void) g_snprintf (self->name, sizeof self->name, ECFS_MARKER_DIRECTORY "/%0*" PRIx64, NUMBER_DIGITS, self->at);
}

bool ecfs_marker_file_number (const char *name, uint64_t *ret_number)
{
    const char *digits = name + strlen (ECFS_MARKER_DIRECTORY "/");
    guint64 number;
    if (!g_str_has_prefix (name, ECFS_MARKER_DIRECTORY "/") || strlen (digits) != NUMBER_DIGITS ||
        !g_ascii_string_to_unsigned (digits, 16, 1, MOST, &number, NULL))
        return false;
    *ret_number = number;
    return true;
}

bool ecfs_marker_file_parse (const char *text, size_t size, EcfsMarker *ret_marker, GError **error)
{
    const size_t end = size - MIN (strlen (WHOLE), size);
    if (size - end < strlen (WHOLE) || memcmp (text + end, WHOLE, strlen (WHOLE)) != 0)
        return ecfs_fail (error, EPROTO, "the marker is not whole");
    return ecfs_marker_parse (text, end, ret_marker, error);
}

int ecfs_marker_order (const EcfsMarker *a, const EcfsMarker *b)
{
    const uint64_t order[][2] = {{a->epoch, b->epoch},
                                 {a->session_number, b->session_number},
                                 {a->claim.epoch, b->claim.epoch},
                                 {a->claim.count, b->claim.count}};
    for (size_t i = 0; i < G_N_ELEMENTS (order); i++)
        if (order[i][0] != order[i][1])
            return order[i][0] > order[i][1] ? 1 : -1;
    return 0;
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

static Run *run_at (const Marks *self, guint i)
{
    return &g_array_index (self->runs, Run, i);
}

static bool is_later (const EcfsMarker *marker, const EcfsMarker *than)
{
    const int order = ecfs_marker_order (marker, than);
    return order > 0 || (order == 0 && marker->sequence > than->sequence);
}

static void ask_size (Marks *self);
static void list (Marks *self);

static void look_end (Marks *self, const GError *error)
{
    self->examined (self->user, &self->marker, error);
    marks_free (self);
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
    return ecfs_marker_order (&self->marker, marker) > 0 && counts (self, &self->marker);
}

/* The newest of the next run; behind the last one it is known which is the latest. */
static void next_run (Marks *self)
{
    if (self->runs != NULL && ++self->run < self->runs->len) {
        self->at = run_at (self, self->run)->last;
        ask_size (self);
        return;
    }
    if (self->best_last > 0)
        note_known (self->endpoint, self->best_last);
    if (self->best_last > 0 && !is_root_later (self, &self->best))
        self->marker = self->best;
    look_end (self, NULL);
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
    if (error != NULL)
        look_end (self, error);
    else if (self->at == 0 || (self->runs != NULL && self->at < run_at (self, self->run)->first))
        next_run (self);
    else
        ask_size (self);
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
    if (error != NULL && !is_of_file (error)) {
        look_end (self, error);
    } else if (error == NULL && ecfs_marker_file_parse (self->text, self->size, &marker, NULL) &&
               counts (self, &marker)) {
        const uint64_t last = self->runs == NULL ? known (self->endpoint) : run_at (self, self->run)->last;
        if (self->best_last == 0 || is_later (&marker, &self->best)) {
            self->best = marker;
            self->best_last = last;
        }
        next_run (self);
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

static int compare_numbers (const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

/* Of what was listed. */
static void find_runs (Marks *self)
{
    GHashTableIter iter;
    gpointer key;
    g_autoptr (GArray) numbers = g_array_new (FALSE, FALSE, sizeof (uint64_t));
    g_hash_table_iter_init (&iter, self->listed);
    while (g_hash_table_iter_next (&iter, &key, NULL)) {
        const uint64_t number = GPOINTER_TO_SIZE (key);
        g_array_append_val (numbers, number);
    }
    g_array_sort (numbers, compare_numbers);
    g_clear_pointer (&self->runs, g_array_unref);
    self->runs = g_array_new (FALSE, FALSE, sizeof (Run));
    for (guint i = 0; i < numbers->len; i++) {
        const uint64_t number = g_array_index (numbers, uint64_t, i);
        Run *last = self->runs->len == 0 ? NULL : run_at (self, self->runs->len - 1);
        if (last != NULL && last->last + 1 == number) {
            last->last = number;
        } else {
            const Run run = {.first = number, .last = number};
            g_array_append_val (self->runs, run);
        }
    }
}

/* The end of the longest: what nobody has looked at is added to there. */
static uint64_t longest_end (const Marks *self)
{
    Run longest = {.first = 1, .last = 0};
    for (guint i = 0; i < self->runs->len; i++)
        if (run_at (self, i)->last - run_at (self, i)->first >= longest.last - MIN (longest.first, longest.last))
            longest = *run_at (self, i);
    return longest.last;
}

static void on_listed (void *user, const EcfsListed *file)
{
    Marks *self = user;
    uint64_t number;
    if (ecfs_marker_file_number (file->name, &number) && g_hash_table_size (self->listed) < LISTED_MOST)
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
    find_runs (self);
    note_known (self->endpoint, longest_end (self)); /* until it is known better */
    if (self->runs->len > LOOK_MOST) {
        g_autoptr (GError) why = NULL;
        (void) !ecfs_fail (&why, EPROTO, "endpoint %s: there are more than %d gaps in " ECFS_MARKER_DIRECTORY,
                           self->endpoint->name, LOOK_MOST);
        look_end (self, why);
    } else if (self->runs->len == 0) {
        look_end (self, NULL);
    } else {
        self->run = 0;
        self->best_last = 0;
        self->at = run_at (self, 0)->last;
        ask_size (self);
    }
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
    find_runs (self);
    self->at = longest_end (self) + 1;
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
