/* Which stripes endpoints have: by listing their directories, not by asking for each. */
#include "archive/fsck_priv.h"

#define LAST_DIRECTORY 0xfff

typedef struct Listed {
    EcfsUuid object;
    uint16_t index;
    uint64_t instance;
    uint64_t size;
    int64_t mtime_s;
    bool is_known;
} Listed;

typedef struct Presence Presence;

/* What one endpoint has of the batch. */
typedef struct Listing {
    Presence *presence;
    GArray *found; /* of Listed; guarded by the answers' lock, as the next */
    char *failure; /* the first; NULL: none */
} Listing;

struct Presence {
    EcfsCheckBatch *batch;
    EcfsAnswers answers;
    GHashTable *objects; /* EcfsUuid of those of the batch; immutable while requests are under way */
    Listing *listings;   /* n_endpoints */
    size_t n_endpoints;
    GPtrArray *rows;    /* of EcfsEndpointRow, as they are now, and … */
    EcfsConfig *config; /* … the configuration; NULL: they were not needed */
    GError *unread;     /* why they cannot be read */
};

static int compare_listed (const void *a, const void *b)
{
    const Listed *left = a, *right = b;
    int order = memcmp (left->object.bytes, right->object.bytes, sizeof left->object.bytes);
    if (order == 0)
        order = (left->index > right->index) - (left->index < right->index);
    return order != 0 ? order : (left->instance > right->instance) - (left->instance < right->instance);
}

/* Whether a stripe of this object is looked for, or would be a stranger. */
static bool is_looked_at (const Presence *self, const EcfsUuid *object)
{
    const EcfsCheckBatch *batch = self->batch;
    if (g_hash_table_contains (self->objects, object))
        return true;
    return batch->strangers != NULL && memcmp (object, &batch->after, sizeof *object) > 0 &&
           (batch->is_last || memcmp (object, &batch->last, sizeof *object) <= 0);
}

static void on_listed (void *user, const EcfsListed *file)
{
    Listing *self = user;
    Listed one = {.size = file->size, .mtime_s = file->mtime_s};
    if (!ecfs_stripe_name_parse (file->name, &one.object, &one.index, &one.instance) ||
        !is_looked_at (self->presence, &one.object))
        return;
    ecfs_mutex_lock (&self->presence->answers.lock);
    g_array_append_val (self->found, one);
    ecfs_mutex_unlock (&self->presence->answers.lock);
}

static void on_done (void *user, uint64_t value, const GError *error)
{
    Listing *self = user;
    (void) value;
    ecfs_mutex_lock (&self->presence->answers.lock);
    if (error != NULL && self->failure == NULL)
        self->failure = g_strdup (error->message);
    ecfs_answers_note_locked (&self->presence->answers);
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
    const EcfsArchiveEndpoint *endpoint = &self->batch->archive->endpoints[position];
    *listing = (Listing){.presence = self, .found = g_array_new (FALSE, FALSE, sizeof (Listed))};
    if (!ecfs_archive_endpoint_counts (endpoint))
        return;
    ecfs_answers_expect (&self->answers, names->len);
    for (guint i = 0; i < names->len; i++)
        ecfs_endpoint_list (endpoint->endpoint, g_ptr_array_index (names, i), on_listed, on_done, listing);
}

static Listed *find (const Presence *self, const EcfsCheckedStripe *checked)
{
    const GArray *found = self->listings[checked->position].found;
    Listed wanted = {.object = checked->object->uuid, .index = checked->stripe->index};
    wanted.instance = checked->stripe->instance;
    return found->len == 0 ? NULL : bsearch (&wanted, found->data, found->len, sizeof wanted, compare_listed);
}

void ecfs_checked_size (EcfsCheckedStripe *checked, uint64_t size)
{
    uint64_t expected = checked->stripe->size;
    g_free (checked->text);
    checked->fault = size == expected ? ECFS_STRIPE_FINE : ECFS_STRIPE_SIZE;
    checked->text =
        size == expected
            ? NULL
            : g_strdup_printf ("it has %" G_GUINT64_FORMAT " bytes in place of %" G_GUINT64_FORMAT, size, expected);
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
    g_autofree char *path = g_build_filename (archive->directory, ECFS_CONFIG_NAME, NULL);
    g_autofree char *text = NULL;
    if (self->config != NULL || self->unread != NULL)
        return self->config != NULL;
    self->rows = ecfs_catalog_endpoints (archive->catalog, &self->unread);
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

static void judge (Presence *self, EcfsCheckedStripe *checked)
{
    const EcfsArchiveEndpoint *endpoint =
        checked->position == SIZE_MAX ? NULL : &self->batch->archive->endpoints[checked->position];
    if (endpoint != NULL && endpoint->state >= ECFS_ENDPOINT_FAILED) {
        checked->fault = ECFS_STRIPE_GIVEN_UP;
        return;
    }
    if (endpoint == NULL || endpoint->endpoint == NULL) {
        judge_unknown_endpoint (self, checked);
        return;
    }
    const Listing *listing = &self->listings[checked->position];
    Listed *found = find (self, checked);
    if (found != NULL)
        found->is_known = true;
    if (listing->failure != NULL)
        ecfs_checked_unknown (checked, listing->failure);
    else if (found == NULL)
        checked->fault = ECFS_STRIPE_GONE;
    else
        ecfs_checked_size (checked, found->size);
}

static void note_strangers (const Presence *self, size_t position)
{
    const GArray *found = self->listings[position].found;
    for (guint i = 0; self->batch->strangers != NULL && i < found->len; i++) {
        const Listed *one = &g_array_index (found, Listed, i);
        EcfsStranger stranger = {.position = position,
                                 .object = one->object,
                                 .index = one->index,
                                 .instance = one->instance,
                                 .size = one->size,
                                 .mtime_s = one->mtime_s};
        if (!one->is_known)
            g_array_append_val (self->batch->strangers, stranger);
    }
}

static void presence_clear (Presence *self)
{
    for (size_t i = 0; i < self->n_endpoints; i++) {
        g_array_unref (self->listings[i].found);
        g_free (self->listings[i].failure);
    }
    g_free (self->listings);
    if (self->rows != NULL)
        g_ptr_array_unref (self->rows);
    ecfs_config_free (self->config);
    g_clear_error (&self->unread);
    g_hash_table_unref (self->objects);
    ecfs_answers_clear (&self->answers);
}

bool ecfs_check_presence (EcfsCheckBatch *batch)
{
    Presence self = {.batch = batch, .n_endpoints = ecfs_archive_n_endpoints (batch->archive)};
    g_autoptr (GPtrArray) names = directories (batch);
    ecfs_answers_init (&self.answers);
    self.objects = g_hash_table_new (ecfs_uuid_hash, ecfs_uuid_same);
    for (guint i = 0; i < batch->objects->len; i++)
        g_hash_table_add (self.objects, (gpointer) uuid_at (batch, i));
    self.listings = g_new0 (Listing, self.n_endpoints);
    for (size_t i = 0; i < self.n_endpoints; i++)
        ask (&self, i, names);
    bool go_on = ecfs_answers_await (&self.answers, batch);
    for (size_t i = 0; i < self.n_endpoints; i++)
        g_array_sort (self.listings[i].found, compare_listed);
    for (guint i = 0; i < batch->stripes->len; i++)
        judge (&self, &g_array_index (batch->stripes, EcfsCheckedStripe, i));
    for (size_t i = 0; i < self.n_endpoints; i++)
        note_strangers (&self, i);
    presence_clear (&self);
    return go_on;
}
