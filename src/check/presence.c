/* Which stripes endpoints have: by listing their directories, not by asking for each. */
#include "check/check.h"
#include "object/log.h"

#define LAST_DIRECTORY 0xfff

/* A stripe of the batch. */
typedef struct Expected {
    EcfsCheckedStripe *checked;
    bool is_found; /* guarded by the answers' lock, as the next */
    uint64_t size;
} Expected;

typedef struct Presence Presence;

/* What one endpoint has of the batch. */
typedef struct Listing {
    Presence *presence;
    size_t position;
    char *failure; /* the first; NULL: none; guarded by the answers' lock */
} Listing;

struct Presence {
    EcfsCheckBatch *batch;
    EcfsPending answers;
    Expected
        *expected; /* n_expected: all of the batch, sorted; their order is immutable while requests are under way */
    size_t n_expected;
    GError *unspooled; /* why a stranger could not be noted; guarded by the answers' lock */
    Listing *listings; /* n_endpoints */
    size_t n_endpoints;
    GPtrArray *rows;    /* of EcfsEndpointRow, as they are now, and … */
    EcfsConfig *config; /* … the configuration; NULL: they were not needed */
    GError *unread;     /* why they cannot be read */
};

/* What is listed, or what is looked for. */
typedef struct Key {
    size_t position;
    EcfsUuid object;
    uint16_t index;
    uint64_t instance;
} Key;

static Key key_of (const Expected *expected)
{
    const EcfsCheckedStripe *checked = expected->checked;
    return (Key){.position = checked->position,
                 .object = checked->object->uuid,
                 .index = checked->stripe->index,
                 .instance = checked->stripe->instance};
}

static int compare_keys (const Key *left, const Key *right)
{
    int order = (left->position > right->position) - (left->position < right->position);
    if (order == 0)
        order = memcmp (left->object.bytes, right->object.bytes, sizeof left->object.bytes);
    if (order == 0)
        order = (left->index > right->index) - (left->index < right->index);
    return order != 0 ? order : (left->instance > right->instance) - (left->instance < right->instance);
}

static int compare_expected (const void *a, const void *b)
{
    Key left = key_of (a), right = key_of (b);
    return compare_keys (&left, &right);
}

static int compare_key (const void *key, const void *expected)
{
    Key other = key_of (expected);
    return compare_keys (key, &other);
}

/* Whether what the batch has no stripe of that name for would be a stranger. */
static bool is_in_range (const EcfsCheckBatch *batch, const EcfsUuid *object)
{
    return batch->strangers != NULL && memcmp (object, &batch->after, sizeof *object) > 0 &&
           (batch->is_last || memcmp (object, &batch->last, sizeof *object) <= 0);
}

static void note_stranger_locked (Presence *self, const Key *key, const EcfsListed *file)
    ECFS_REQUIRES (self->answers.lock)
{
    const EcfsSpoolOrphan stranger = {.kind = ECFS_SPOOL_STRANGER,
                                      .endpoint = (int64_t) key->position,
                                      .uuid = key->object,
                                      .index = key->index,
                                      .instance = key->instance,
                                      .size = file->size,
                                      .mtime_s = file->mtime_s};
    if (self->unspooled == NULL)
        (void) ecfs_spool_add_orphan (self->batch->strangers, &stranger, &self->unspooled); /* that tells */
}

static void on_listed (void *user, const EcfsListed *file)
{
    Listing *listing = user;
    Presence *self = listing->presence;
    Key key = {.position = listing->position};
    if (!ecfs_stripe_name_parse (file->name, &key.object, &key.index, &key.instance))
        return;
    Expected *expected =
        self->n_expected == 0 ? NULL : bsearch (&key, self->expected, self->n_expected, sizeof (Expected), compare_key);
    ecfs_mutex_lock (&self->answers.lock);
    if (expected != NULL) {
        expected->is_found = true;
        expected->size = file->size;
    } else if (is_in_range (self->batch, &key.object)) {
        note_stranger_locked (self, &key, file);
    }
    ecfs_mutex_unlock (&self->answers.lock);
}

static void on_done (void *user, uint64_t value, const GError *error)
{
    Listing *self = user;
    (void) value;
    ecfs_mutex_lock (&self->presence->answers.lock);
    if (error != NULL && self->failure == NULL)
        self->failure = g_strdup (error->message);
    ecfs_pending_note_locked (&self->presence->answers);
    ecfs_mutex_unlock (&self->presence->answers.lock);
}

/* The number of the directory that has an object's stripes; they are in the order of UUIDs. */
static unsigned directory_number (const EcfsUuid *object)
{
    return (unsigned) object->bytes[0] << 4 | object->bytes[1] >> 4;
}

static char *directory_name (unsigned number)
{
    EcfsUuid object = {.bytes = {(uint8_t) (number >> 4), (uint8_t) (number << 4)}};
    char name[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (&object, 0, 0, name);
    *strrchr (name, '/') = '\0';
    return g_strdup (name);
}

static const EcfsUuid *uuid_at (const EcfsCheckBatch *batch, guint i)
{
    return &((const EcfsObjectRow *) g_ptr_array_index (batch->objects, i))->uuid;
}

/* The directories that hold the stripes of the batch, and perhaps those between them. */
static GPtrArray *directories (const EcfsCheckBatch *batch)
{
    GPtrArray *names = g_ptr_array_new_with_free_func (g_free);
    bool all = batch->strangers != NULL;
    if (all && batch->is_first && batch->is_last) {
        char *any = directory_name (0);
        *strrchr (any, '/') = '\0';
        g_ptr_array_add (names, any);
        return names;
    }
    unsigned next = all && !batch->is_first ? directory_number (&batch->after) : 0;
    unsigned last = batch->is_last ? LAST_DIRECTORY : directory_number (&batch->last);
    for (; all && next <= last; next++)
        g_ptr_array_add (names, directory_name (next));
    for (guint i = 0; !all && i < batch->objects->len; i++)
        for (next = MAX (next, directory_number (uuid_at (batch, i))); next <= directory_number (uuid_at (batch, i));
             next++)
            g_ptr_array_add (names, directory_name (next));
    return names;
}

static void ask (Presence *self, size_t position, const GPtrArray *names)
{
    Listing *listing = &self->listings[position];
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->batch->archive, position);
    *listing = (Listing){.presence = self, .position = position};
    if (!ecfs_archive_endpoint_counts (endpoint))
        return;
    ecfs_pending_expect (&self->answers, names->len);
    for (guint i = 0; i < names->len; i++)
        ecfs_endpoint_list (endpoint->endpoint, g_ptr_array_index (names, i), on_listed, on_done, listing);
}

uint64_t ecfs_checked_bytes (const EcfsCheckedStripe *checked)
{
    const EcfsObjectRow *object = checked->object;
    uint64_t end = checked->stripe->size == 0 ? object->size : MIN (checked->stripe->size, object->size);
    return object->kind == ECFS_OBJECT_LOG ? ecfs_log_stripe_bytes (object->header_bytes, &object->seal,
                                                                    end / ECFS_LOG_BLOCK_BYTES * ECFS_LOG_BLOCK_BYTES)
                                           : checked->stripe->size;
}

void ecfs_checked_size (EcfsCheckedStripe *checked, uint64_t size)
{
    uint64_t expected = ecfs_checked_bytes (checked);
    bool fits = checked->object->kind == ECFS_OBJECT_LOG ? size >= expected : size == expected;
    g_free (checked->text);
    checked->fault = fits ? ECFS_STRIPE_FINE : ECFS_STRIPE_SIZE;
    checked->text =
        fits ? NULL
             : g_strdup_printf ("it has %" G_GUINT64_FORMAT " bytes in place of %" G_GUINT64_FORMAT, size, expected);
}

void ecfs_checked_forged (EcfsCheckedStripe *checked)
{
    checked->fault = ECFS_STRIPE_FORGED;
    g_free (checked->text);
    checked->text = g_strdup ("its checksums fit, and the SHA-256 of the content shows that these are not the bytes "
                              "that were stored there: this is not a disk fault, ask whoever runs the endpoint");
}

void ecfs_checked_unknown (EcfsCheckedStripe *checked, const char *why)
{
    checked->fault = ECFS_STRIPE_UNKNOWN;
    g_free (checked->text);
    checked->text = g_strdup (why);
}

static bool read_again (Presence *self)
{
    EcfsArchive *archive = self->batch->archive;
    g_autofree char *path = g_build_filename (ecfs_archive_directory (archive), ECFS_CONFIG_NAME, NULL);
    g_autofree char *text = NULL;
    if (self->config != NULL || self->unread != NULL)
        return self->config != NULL;
    self->rows = ecfs_catalog_endpoints (ecfs_archive_catalog (archive), &self->unread);
    if (self->rows != NULL && g_file_get_contents (path, &text, NULL, &self->unread))
        self->config = ecfs_config_parse (text, path, &self->unread);
    return self->config != NULL;
}

/* Of an endpoint that the archive did not have when it was opened: it may have been added since. */
static void judge_unknown_endpoint (Presence *self, EcfsCheckedStripe *checked)
{
    if (!read_again (self)) {
        ecfs_checked_unknown (checked, self->unread->message);
        return;
    }
    checked->fault = ECFS_STRIPE_GIVEN_UP;
    for (guint i = 0; i < self->rows->len; i++) {
        const EcfsEndpointRow *row = g_ptr_array_index (self->rows, i);
        if (row->id != checked->stripe->endpoint || ecfs_config_endpoint (self->config, row->name) == NULL)
            continue;
        g_autofree char *why = g_strdup_printf ("endpoint %s was added meanwhile: run this again", row->name);
        ecfs_checked_unknown (checked, why);
    }
}

static void judge (Presence *self, const Expected *expected)
{
    EcfsCheckedStripe *checked = expected->checked;
    const EcfsArchiveEndpoint *endpoint =
        checked->position == SIZE_MAX ? NULL : ecfs_archive_endpoint (self->batch->archive, checked->position);
    if (endpoint != NULL && endpoint->state >= ECFS_ENDPOINT_FAILED)
        checked->fault = ECFS_STRIPE_GIVEN_UP;
    else if (endpoint == NULL || endpoint->endpoint == NULL)
        judge_unknown_endpoint (self, checked);
    else if (self->listings[checked->position].failure != NULL)
        ecfs_checked_unknown (checked, self->listings[checked->position].failure);
    else if (!expected->is_found)
        checked->fault = ECFS_STRIPE_GONE;
    else
        ecfs_checked_size (checked, expected->size);
}

static void presence_init (Presence *self)
{
    GArray *stripes = self->batch->stripes;
    ecfs_pending_init (&self->answers);
    self->n_expected = stripes->len;
    self->expected = g_new0 (Expected, self->n_expected);
    for (guint i = 0; i < stripes->len; i++)
        self->expected[i].checked = &g_array_index (stripes, EcfsCheckedStripe, i);
    if (self->n_expected > 0)
        qsort (self->expected, self->n_expected, sizeof (Expected), compare_expected);
    self->listings = g_new0 (Listing, self->n_endpoints);
}

static void presence_clear (Presence *self)
{
    for (size_t i = 0; i < self->n_endpoints; i++)
        g_free (self->listings[i].failure);
    g_free (self->listings);
    g_free (self->expected);
    if (self->rows != NULL)
        g_ptr_array_unref (self->rows);
    ecfs_config_free (self->config);
    g_clear_error (&self->unread);
    ecfs_pending_clear (&self->answers);
}

bool ecfs_check_presence (EcfsCheckBatch *batch, GError **error)
{
    Presence self = {.batch = batch, .n_endpoints = ecfs_archive_n_endpoints (batch->archive)};
    g_autoptr (GPtrArray) names = directories (batch);
    presence_init (&self);
    for (size_t i = 0; i < self.n_endpoints; i++)
        ask (&self, i, names);
    bool go_on = ecfs_pending_await (&self.answers, batch);
    for (size_t i = 0; i < self.n_expected; i++)
        judge (&self, &self.expected[i]);
    if (self.unspooled != NULL) {
        g_propagate_error (error, g_steal_pointer (&self.unspooled));
        go_on = false;
    }
    presence_clear (&self);
    return go_on;
}
