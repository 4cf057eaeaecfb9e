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
#include "util/xxh3.h"

#define THREADS     4                 /* of each endpoint */
#define PIECE_BYTES (128 * 1024 + 64) /* less than a second-level cache holds; some whole check blocks */
#define MAX_PIECES  32                /* that are asked for at a time, where nothing keeps them, … */
#define KEPT_PIECES 8                 /* … and where the endpoint does, or they may not come fast */
#define TICK_US     200000

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

/* A part of a stripe that is verified as a whole: its header, a check block with its tag, or what is behind them. */
typedef struct Place {
    uint64_t offset;
    uint64_t segment; /* of the check block there; n_segments: there is the footer, and then it is the end */
    uint32_t block;
} Place;

/* A stripe that is being read. Its thread waits while the endpoint's has it. */
typedef struct Stripe {
    const Job *job;
    EcfsEndpoint *endpoint;
    char name[ECFS_STRIPE_NAME_SIZE];
    EcfsLayout layout;
    Place at;           /* what is verified next */
    XXH3_state_t *area; /* of the packet area, as far as it was read; NULL: not asked for */
    uint32_t sizes[MAX_PIECES];
    GError *error; /* what was wrong first; owned */
} Stripe;

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

/* Of the part that is there; 0: there is none. */
static uint64_t part_bytes (const Stripe *self, const Place *at)
{
    uint64_t file_size = self->job->checked->stripe->size;
    if (at->offset == 0)
        return self->layout.header_bytes;
    if (at->segment < ecfs_layout_n_segments (&self->layout))
        return ecfs_layout_block_bytes (&self->layout, at->segment, at->block) + ECFS_TAG_BYTES;
    return file_size - MIN (file_size, at->offset);
}

static void step (const Stripe *self, Place *at)
{
    bool is_header = at->offset == 0;
    at->offset += part_bytes (self, at);
    if (is_header)
        return;
    bool is_footer = at->segment == ecfs_layout_n_segments (&self->layout);
    if (is_footer || ++at->block == ecfs_layout_n_blocks (&self->layout, at->segment)) {
        at->block = 0;
        at->segment++;
    }
}

/* Bytes of the piece that begins there with whole parts, which it steps over; 0: none fits into the file. */
static uint32_t next_piece (const Stripe *self, Place *at)
{
    uint64_t file_size = self->job->checked->stripe->size, bytes = 0;
    for (;;) {
        uint64_t part = part_bytes (self, at);
        bool fits = at->offset <= file_size && part <= file_size - at->offset && part <= ECFS_PIECE_MAX_BYTES;
        if (part == 0 || !fits || (bytes > 0 && bytes + part > PIECE_BYTES))
            return (uint32_t) bytes;
        step (self, at);
        bytes += part;
    }
}

static bool check_header (const Stripe *self, const uint8_t *bytes, GError **error)
{
    EcfsStripeHeader header;
    const EcfsLayout *layout = &self->layout;
    const EcfsCheckedStripe *checked = self->job->checked;
    const EcfsCatalog *catalog = self->job->check->batch->archive->catalog;
    GError *reason = NULL;
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

static bool check_block (const Stripe *self, const uint8_t *bytes, uint32_t size, GError **error)
{
    const EcfsCheckedStripe *checked = self->job->checked;
    uint64_t number = ecfs_layout_block_number (&self->layout, self->at.segment, self->at.block);
    uint64_t tag = ecfs_tag (&checked->object->uuid, checked->stripe->index, number, bytes, size);
    return tag == ecfs_get_le (bytes + size, ECFS_TAG_BYTES) ||
           ecfs_fail (error, EBADMSG, "the check block at byte %" G_GUINT64_FORMAT " fails its checksum",
                      self->at.offset);
}

static bool check_footer (const Stripe *self, const uint8_t *bytes, uint64_t left, GError **error)
{
    const EcfsCheckedStripe *checked = self->job->checked;
    uint64_t offset, hash;
    uint32_t size;
    EcfsStripeFooter footer;
    if (left < ECFS_STRIPE_TAIL_BYTES)
        return ecfs_fail (error, EBADMSG, "it has no tail");
    const uint8_t *tail = bytes + left - ECFS_STRIPE_TAIL_BYTES;
    if (!ecfs_stripe_tail_parse (tail, checked->stripe->size, &offset, &size, &hash, error))
        return false;
    if (offset != self->at.offset || size > left)
        return ecfs_fail (error, EBADMSG, "its footer is not behind its packets");
    if (!ecfs_stripe_footer_parse (bytes, size, hash, &footer, error))
        return false;
    bool same = footer.size == self->layout.size &&
                memcmp (footer.area_digest, checked->stripe->digest, sizeof footer.area_digest) == 0 &&
                memcmp (footer.object_digest, checked->object->digest, sizeof footer.object_digest) == 0;
    ecfs_stripe_footer_clear (&footer);
    return same || ecfs_fail (error, EBADMSG, "its footer is not what the catalog says");
}

/* The footer claims what it likes: what was read counts. */
static bool check_area (const Stripe *self, GError **error)
{
    XXH128_canonical_t found;
    if (self->area == NULL)
        return true;
    XXH128_canonicalFromHash (&found, XXH3_128bits_digest (self->area));
    return memcmp (found.digest, self->job->checked->stripe->digest, ECFS_DIGEST_SIZE) == 0 ||
           ecfs_fail (error, EBADMSG,
                      "each check block fits its checksum, and together they are not what was stored there: this is no "
                      "accident of a disk");
}

static bool check_part (const Stripe *self, const uint8_t *bytes, uint64_t size, GError **error)
{
    if (self->at.offset == 0)
        return check_header (self, bytes, error);
    if (self->at.segment < ecfs_layout_n_segments (&self->layout))
        return check_block (self, bytes, (uint32_t) size - ECFS_TAG_BYTES, error);
    return check_area (self, error) && check_footer (self, bytes, size, error);
}

static void check_piece (void *user, size_t index, const uint8_t *bytes)
{
    Stripe *self = user;
    for (uint64_t done = 0; done < self->sizes[index] && self->error == NULL;) {
        uint64_t size = part_bytes (self, &self->at);
        if (!check_part (self, bytes + done, size, &self->error))
            return;
        if (self->area != NULL && self->at.offset > 0 && self->at.segment < ecfs_layout_n_segments (&self->layout))
            ecfs_xxh3_128_update (self->area, bytes + done, size);
        step (self, &self->at);
        done += size;
    }
}

/* Reads on, and verifies what comes. */
static bool read_some (Stripe *self, GError **error)
{
    EcfsPieces pieces = {.offset = self->at.offset, .sizes = self->sizes, .piece = check_piece, .user = self};
    Place ahead = self->at;
    bool many = ecfs_endpoint_lends (self->endpoint) && self->job->check->pace->bytes_per_s == 0;
    while (pieces.n < (many ? MAX_PIECES : KEPT_PIECES) && (self->sizes[pieces.n] = next_piece (self, &ahead)) > 0)
        pieces.n++;
    if (pieces.n == 0)
        return ecfs_fail (error, EBADMSG, "its parts do not fit into its size");
    if (!wait_turn (self->job->check, (size_t) (ahead.offset - self->at.offset)))
        return ecfs_fail (error, ECANCELED, "cancelled");
    if (!ecfs_endpoint_read_pieces_wait (self->endpoint, self->name, &pieces, error))
        return false;
    note_read (self->job);
    if (self->error == NULL)
        return true;
    g_propagate_error (error, g_steal_pointer (&self->error));
    return false;
}

static bool check_stripe (Stripe *self, GError **error)
{
    while (self->at.segment <= ecfs_layout_n_segments (&self->layout))
        if (!read_some (self, error))
            return false;
    return true;
}

static bool check_whole (Stripe *self, GError **error)
{
    self->area = XXH3_createState ();
    XXH3_128bits_reset (self->area);
    return check_stripe (self, error);
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
    Stripe stripe = {.job = job, .endpoint = self->batch->archive->endpoints[checked->position].endpoint};
    ecfs_stripe_name (&checked->object->uuid, checked->stripe->index, checked->stripe->instance, stripe.name);
    if (atomic_load (&self->cancelled) || atomic_load (&self->is_late))
        atomic_store (&self->is_cut, true);
    else if (!ecfs_archive_layout (self->batch->archive, checked->object, &stripe.layout, &error))
        conclude (job, error);
    else if (job->round == ROUND_HEADER)
        (void) read_some (&stripe, NULL); /* what comes of it is noted */
    else if (check_whole (&stripe, &error) || error->code != ECANCELED)
        conclude (job, error);
    g_clear_error (&stripe.error);
    XXH3_freeState (stripe.area);
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
        if (checked->fault == ECFS_STRIPE_FINE && !checked->is_left_out && !checked->is_unchanged)
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
