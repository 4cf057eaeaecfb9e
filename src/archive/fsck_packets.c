/*
 * Reading stripes whole: header, every check block against its tag, footer and tail.
 *
 * What cannot be read (EIO) is read once more when the others of the batch have been, together with the header of one
 * that was fine: it is damaged where its endpoint reads something then, and unknown where all that is asked for fails.
 * That is no bad disk, but a server without descriptors, or a network file system whose server does not answer.
 */
#include "archive/fsck_priv.h"
#include "object/format.h"
#include "util/bytes.h"

#define THREADS      4                               /* of each endpoint */
#define WINDOW_BYTES (ECFS_FOOTER_MAX_BYTES + 65536) /* of a stripe in memory, for each thread */
#define TICK_US      200000

typedef struct Check Check;

struct Check {
    EcfsCheckBatch *batch;
    EcfsPace *pace;
    EcfsMutex lock;
    EcfsCond ended;
    unsigned n_pending;    /* stripes; guarded by lock */
    GPtrArray *unreadable; /* of EcfsCheckedStripe; guarded by lock; those of the second round are DAMAGED */
    bool *reads;           /* n_endpoints: read something in the second round; guarded by lock */
    atomic_bool cancelled;
    atomic_bool is_late; /* no further stripe is begun */
    atomic_bool is_cut;  /* one was not, therefore */
};

typedef enum Round {
    ROUND_FIRST,
    ROUND_AGAIN,  /* of what could not be read */
    ROUND_HEADER, /* the same time, of a stripe that was fine */
} Round;

typedef struct Job {
    Check *check;
    EcfsCheckedStripe *checked;
    Round round;
} Job;

/* A part of a stripe's file in memory, which moves on. */
typedef struct Window {
    const Job *job;
    EcfsEndpoint *endpoint;
    char name[ECFS_STRIPE_NAME_SIZE];
    uint8_t *bytes;
    uint64_t offset;
    size_t filled;
} Window;

/* When these bytes may be read: as if all read before them had taken the time that they may. */
static int64_t turn_us (EcfsPace *pace, size_t bytes)
{
    int64_t now_us = ecfs_now_us ();
    ecfs_mutex_lock (&pace->lock);
    pace->bytes += bytes;
    int64_t at_us = MAX (pace->next_us, now_us);
    if (pace->bytes_per_s > 0)
        pace->next_us = at_us + (int64_t) ((double) bytes / (double) pace->bytes_per_s * 1e6);
    ecfs_mutex_unlock (&pace->lock);
    return at_us;
}

/* False: cancelled. */
static bool wait_turn (Check *self, size_t bytes)
{
    int64_t at_us = turn_us (self->pace, bytes);
    ecfs_mutex_lock (&self->lock);
    while (!atomic_load (&self->cancelled) && ecfs_now_us () < at_us)
        (void) ecfs_cond_wait_until (&self->ended, &self->lock, at_us);
    ecfs_mutex_unlock (&self->lock);
    return !atomic_load (&self->cancelled);
}

static void note_read (const Job *job)
{
    Check *self = job->check;
    if (job->round == ROUND_FIRST)
        return;
    ecfs_mutex_lock (&self->lock);
    self->reads[job->checked->position] = true;
    ecfs_mutex_unlock (&self->lock);
}

/* The bytes [offset, offset + size), at most a window; NULL with an error. Offsets ascend. */
static const uint8_t *bytes_at (Window *self, uint64_t offset, size_t size, GError **error)
{
    uint64_t file_size = self->job->checked->stripe->size;
    if (offset < self->offset || offset > file_size || size > file_size - offset || size > WINDOW_BYTES) {
        (void) !ecfs_fail (error, EBADMSG, "its parts do not fit into its size");
        return NULL;
    }
    size_t skipped = (size_t) MIN (offset - self->offset, self->filled);
    if (skipped + size > self->filled) {
        memmove (self->bytes, self->bytes + skipped, self->filled - skipped);
        self->offset += skipped;
        self->filled -= skipped;
        uint64_t end = self->offset + self->filled;
        EcfsRange range = {.offset = end,
                           .size = (size_t) MIN (WINDOW_BYTES - self->filled, file_size - end),
                           .to = self->bytes + self->filled};
        if (!wait_turn (self->job->check, range.size)) {
            (void) !ecfs_fail (error, ECANCELED, "cancelled");
            return NULL;
        }
        if (!ecfs_endpoint_read_wait (self->endpoint, self->name, &range, 1, error))
            return NULL;
        note_read (self->job);
        self->filled += range.size;
        skipped = 0;
    }
    return self->bytes + skipped;
}

static bool check_header (Window *self, const EcfsLayout *layout, GError **error)
{
    EcfsStripeHeader header;
    const EcfsCheckedStripe *checked = self->job->checked;
    const EcfsCatalog *catalog = self->job->check->batch->archive->catalog;
    GError *reason = NULL;
    const uint8_t *bytes = bytes_at (self, 0, layout->header_bytes, error);
    if (bytes == NULL)
        return false;
    if (!ecfs_stripe_header_parse (bytes, layout->header_bytes, &header, &reason)) {
        reason->code = reason->code == EAGAIN ? EBADMSG : reason->code; /* it claims to be longer than it is */
        g_propagate_error (error, reason);
        return false;
    }
    bool same = ecfs_uuid_equal (&header.object, &checked->object->uuid) &&
                ecfs_uuid_equal (&header.archive, ecfs_catalog_archive (catalog)) &&
                header.index == checked->stripe->index && header.instance == checked->stripe->instance &&
                header.header_bytes == layout->header_bytes && header.k == layout->k &&
                header.segment_bytes == layout->segment_bytes && header.block_bytes == layout->block_bytes;
    return same || ecfs_fail (error, EBADMSG, "its header is that of another stripe");
}

static bool check_blocks (Window *self, const EcfsLayout *layout, GError **error)
{
    const EcfsCheckedStripe *checked = self->job->checked;
    for (uint64_t segment = 0; segment < ecfs_layout_n_segments (layout); segment++) {
        for (uint32_t block = 0; block < ecfs_layout_n_blocks (layout, segment); block++) {
            uint32_t size = ecfs_layout_block_bytes (layout, segment, block);
            uint64_t offset = ecfs_layout_block_offset (layout, segment, block);
            uint64_t number = ecfs_layout_block_number (layout, segment, block);
            const uint8_t *bytes = bytes_at (self, offset, size + ECFS_TAG_BYTES, error);
            if (bytes == NULL)
                return false;
            if (ecfs_tag (&checked->object->uuid, checked->stripe->index, number, bytes, size) !=
                ecfs_get_le (bytes + size, ECFS_TAG_BYTES))
                return ecfs_fail (error, EBADMSG, "the check block at byte %" G_GUINT64_FORMAT " fails its checksum",
                                  offset);
        }
    }
    return true;
}

static bool check_footer (Window *self, const EcfsLayout *layout, GError **error)
{
    const EcfsCheckedStripe *checked = self->job->checked;
    uint64_t file_size = checked->stripe->size, offset, hash;
    uint64_t end = layout->header_bytes + ecfs_layout_area_bytes (layout);
    uint32_t size;
    EcfsStripeFooter footer;
    const uint8_t *bytes = bytes_at (self, end, (size_t) (file_size - MIN (file_size, end)), error);
    if (bytes == NULL)
        return false;
    if (file_size - end < ECFS_STRIPE_TAIL_BYTES)
        return ecfs_fail (error, EBADMSG, "it has no tail");
    const uint8_t *tail = bytes + (file_size - end) - ECFS_STRIPE_TAIL_BYTES;
    if (!ecfs_stripe_tail_parse (tail, file_size, &offset, &size, &hash, error))
        return false;
    if (offset != end || size > file_size - end)
        return ecfs_fail (error, EBADMSG, "its footer is not behind its packets");
    if (!ecfs_stripe_footer_parse (bytes, size, hash, &footer, error))
        return false;
    bool same = footer.size == layout->size &&
                memcmp (footer.area_digest, checked->stripe->digest, sizeof footer.area_digest) == 0 &&
                memcmp (footer.object_digest, checked->object->digest, sizeof footer.object_digest) == 0;
    ecfs_stripe_footer_clear (&footer);
    return same || ecfs_fail (error, EBADMSG, "its footer is not what the catalog says");
}

static bool check_stripe (Window *window, GError **error)
{
    EcfsLayout layout;
    return ecfs_archive_layout (window->job->check->batch->archive, window->job->checked->object, &layout, error) &&
           check_header (window, &layout, error) && check_blocks (window, &layout, error) &&
           check_footer (window, &layout, error);
}

static EcfsStripeFault fault_of (const GError *error)
{
    switch (error->code) {
    case ENOENT:
        return ECFS_STRIPE_GONE;
    case EBADMSG:
    case ENOTSUP:
    case EIO:
        return ECFS_STRIPE_DAMAGED;
    default:
        return ECFS_STRIPE_UNKNOWN;
    }
}

/* What a stripe is found to be; NULL: fine. */
static void conclude (const Job *job, const GError *error)
{
    Check *self = job->check;
    EcfsCheckedStripe *checked = job->checked;
    g_clear_pointer (&checked->text, g_free);
    checked->fault = error == NULL ? ECFS_STRIPE_FINE : fault_of (error);
    checked->text = error == NULL ? NULL : g_strdup (error->message);
    if (error == NULL || error->code != EIO) {
        atomic_store (&checked->is_settled, checked->fault != ECFS_STRIPE_GONE); /* that is asked for once more */
        return;
    }
    ecfs_mutex_lock (&self->lock);
    g_ptr_array_add (self->unreadable, checked);
    ecfs_mutex_unlock (&self->lock);
}

static void run_job (void *data)
{
    Job *job = data;
    Check *self = job->check;
    EcfsCheckedStripe *checked = job->checked;
    g_autoptr (GError) error = NULL;
    Window window = {.job = job, .endpoint = self->batch->archive->endpoints[checked->position].endpoint};
    ecfs_stripe_name (&checked->object->uuid, checked->stripe->index, checked->stripe->instance, window.name);
    bool begins = !atomic_load (&self->cancelled) && !atomic_load (&self->is_late);
    window.bytes = begins ? g_malloc (MIN (WINDOW_BYTES, checked->stripe->size) + 1) : NULL;
    if (!begins)
        atomic_store (&self->is_cut, true);
    if (window.bytes != NULL && job->round == ROUND_HEADER)
        (void) bytes_at (&window, 0, (size_t) MIN (1, checked->stripe->size), NULL); /* what comes of it is noted */
    else if (window.bytes != NULL && (check_stripe (&window, &error) || error->code != ECANCELED))
        conclude (job, error);
    g_free (window.bytes);
    g_free (job);
    ecfs_mutex_lock (&self->lock);
    self->n_pending--;
    ecfs_cond_broadcast (&self->ended);
    ecfs_mutex_unlock (&self->lock);
}

static void push (Check *self, EcfsWorkers **workers, EcfsCheckedStripe *checked, Round round)
{
    Job *job = g_new (Job, 1);
    *job = (Job){.check = self, .checked = checked, .round = round};
    if (workers[checked->position] == NULL)
        workers[checked->position] = ecfs_workers_new ("ecfs-check", THREADS);
    ecfs_mutex_lock (&self->lock);
    self->n_pending++;
    ecfs_mutex_unlock (&self->lock);
    ecfs_workers_push (workers[checked->position], run_job, job);
}

static void begin (Check *self, EcfsWorkers **workers)
{
    for (guint i = 0; i < self->batch->stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (self->batch->stripes, EcfsCheckedStripe, i);
        if (checked->fault == ECFS_STRIPE_FINE && !checked->is_left_out)
            push (self, workers, checked, ROUND_FIRST);
    }
}

static void await (Check *self)
{
    ecfs_mutex_lock (&self->lock);
    while (self->n_pending > 0) {
        int64_t tick_us = ecfs_now_us () + TICK_US;
        while (self->n_pending > 0 && ecfs_cond_wait_until (&self->ended, &self->lock, tick_us))
            ;
        ecfs_mutex_unlock (&self->lock);
        if (!self->batch->tick (self->batch->user))
            atomic_store (&self->cancelled, true);
        if (*self->batch->is_late)
            atomic_store (&self->is_late, true);
        ecfs_mutex_lock (&self->lock);
    }
    ecfs_mutex_unlock (&self->lock);
}

/* A stripe that was fine, of each endpoint that had some that could not be read. */
static void push_witnesses (Check *self, EcfsWorkers **workers, const GPtrArray *unreadable)
{
    g_autofree bool *wanted = g_new0 (bool, ecfs_archive_n_endpoints (self->batch->archive) + 1);
    for (guint i = 0; i < unreadable->len; i++)
        wanted[((const EcfsCheckedStripe *) g_ptr_array_index (unreadable, i))->position] = true;
    for (guint i = 0; i < self->batch->stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (self->batch->stripes, EcfsCheckedStripe, i);
        if (checked->fault != ECFS_STRIPE_FINE || checked->is_left_out || !wanted[checked->position])
            continue;
        wanted[checked->position] = false;
        push (self, workers, checked, ROUND_HEADER);
    }
}

static void read_again (Check *self, EcfsWorkers **workers)
{
    g_autoptr (GPtrArray) unreadable = self->unreadable; /* nothing runs */
    self->unreadable = g_ptr_array_new ();
    push_witnesses (self, workers, unreadable);
    for (guint i = 0; i < unreadable->len; i++)
        push (self, workers, g_ptr_array_index (unreadable, i), ROUND_AGAIN);
    await (self);
    for (guint i = 0; i < self->unreadable->len; i++) {
        EcfsCheckedStripe *checked = g_ptr_array_index (self->unreadable, i);
        if (!self->reads[checked->position])
            checked->fault = ECFS_STRIPE_UNKNOWN;
        atomic_store (&checked->is_settled, !atomic_load (&self->cancelled) && !atomic_load (&self->is_cut));
    }
}

bool ecfs_check_packets (EcfsCheckBatch *batch, EcfsPace *pace)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (batch->archive);
    g_autofree EcfsWorkers **workers = g_new0 (EcfsWorkers *, n_endpoints + 1);
    g_autofree bool *reads = g_new0 (bool, n_endpoints + 1);
    Check self = {.batch = batch, .pace = pace, .unreadable = g_ptr_array_new (), .reads = reads};
    ecfs_mutex_init (&self.lock);
    ecfs_cond_init (&self.ended);
    begin (&self, workers);
    await (&self);
    read_again (&self, workers);
    for (size_t i = 0; i < n_endpoints; i++)
        ecfs_workers_free (workers[i]);
    g_ptr_array_unref (self.unreadable);
    ecfs_cond_clear (&self.ended);
    ecfs_mutex_clear (&self.lock);
    return !atomic_load (&self.cancelled) && !atomic_load (&self.is_cut);
}
