/*
 * Reading stripes whole: header, every check block against its tag, footer and tail. Those of one object are read side
 * by side, so that what they are together can be compared as it comes (content.c).
 *
 * What cannot be read (EIO) is read once more when the others of the batch have been, together with the header of one
 * that was fine: it is damaged where its endpoint reads something then, and unknown where all that is asked for fails.
 * That is no bad disk, but a server without descriptors, or a network file system whose server does not answer.
 */
#include "check/check.h"
#include "object/format.h"
#include "object/log.h"
#include "util/xxh3.h"

#define THREADS     4                 /* of each endpoint; as many as stripes of one object, where it has more */
#define PIECE_BYTES (128 * 1024 + 64) /* less than a second-level cache holds; some whole check blocks */
#define MAX_PIECES  32                /* that are asked for at a time, where nothing keeps them, … */
#define KEPT_PIECES 8                 /* … and where the endpoint does, or they may not come fast */
#define TICK_US     200000

#define MOST_BYTES (128u << 20) /* that comparing objects takes, at a time; one is always compared */

typedef struct Check Check;

struct Check {
    EcfsCheckBatch *batch;
    EcfsReadPace *pace;
    EcfsMutex lock;
    EcfsCond ended;
    unsigned n_pending;    /* stripes; guarded by lock */
    uint64_t held_bytes;   /* by objects that are compared; guarded by lock */
    GPtrArray *unreadable; /* of EcfsCheckedStripe; guarded by lock; those of the second round are DAMAGED */
    unsigned *n_threads;   /* n_endpoints */
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

/* The stripes of one object that are compared with each other. */
typedef struct Object {
    EcfsContentCheckup *checkup;
    guint first, n;  /* of the batch's stripes */
    unsigned n_left; /* that are not read yet; guarded by the check's lock */
    uint64_t bytes;
} Object;

typedef struct Job {
    Check *check;
    EcfsCheckedStripe *checked;
    Round round;
    Object *object; /* NULL: it is not compared */
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
    EcfsSealKeys *keys; /* of its object; NULL: it is stored without; owned */
    Place at;           /* what is verified next */
    uint64_t size;      /* bytes of it that are read */
    bool is_log;        /* it ends with its packets */
    XXH3_state_t *area; /* of the packet area, as far as it was read; fed without a key; NULL: not asked for */
    uint32_t sizes[MAX_PIECES];
    GError *error; /* what was wrong first; owned */
} Stripe;

/* When these bytes may be read: as if all read before them had taken the time that they may. */
static int64_t turn_us (EcfsReadPace *pace, uint64_t bytes)
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

bool ecfs_pace_wait (EcfsReadPace *self, uint64_t bytes, const atomic_bool *cancelled)
{
    int64_t at_us = turn_us (self, bytes), left_us;
    while (!atomic_load (cancelled) && (left_us = at_us - ecfs_now_us ()) > 0)
        g_usleep ((gulong) MIN (left_us, TICK_US));
    return !atomic_load (cancelled);
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
    if (at->offset == 0)
        return self->layout.header_bytes;
    if (at->segment < ecfs_layout_n_segments (&self->layout))
        return ecfs_layout_block_bytes (&self->layout, at->segment, at->block) + self->layout.tag_bytes;
    return self->size - MIN (self->size, at->offset);
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

/* Bytes of the piece that begins there with whole parts, which it steps over; 0: none fits into the file, or there is
 * none before segment @limit. */
static uint32_t next_piece (const Stripe *self, uint64_t limit, Place *at)
{
    uint64_t bytes = 0;
    for (;;) {
        uint64_t part = part_bytes (self, at);
        bool fits = at->offset <= self->size && part <= self->size - at->offset && part <= ECFS_PIECE_MAX_BYTES &&
                    (at->segment < limit || limit == ecfs_layout_n_segments (&self->layout));
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
    const EcfsCatalog *catalog = ecfs_archive_catalog (self->job->check->batch->archive);
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
    return (same || ecfs_fail (error, EBADMSG, "its header is that of another stripe")) &&
           ecfs_stripe_header_check (&header, bytes, self->keys, error);
}

static bool check_block (const Stripe *self, const uint8_t *bytes, uint32_t size, GError **error)
{
    const EcfsCheckedStripe *checked = self->job->checked;
    uint64_t number = ecfs_layout_block_number (&self->layout, self->at.segment, self->at.block);
    const EcfsTagger tagger = {.object = checked->object->uuid, .mac = ecfs_seal_tag_mac (self->keys)};
    return ecfs_tag_fits (&tagger, checked->stripe->index, number, bytes, size, bytes + size) ||
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
        return ecfs_fail (error, EBADMSG, "its footer does not follow its packets");
    const EcfsStripeHeader header = {
        .object = checked->object->uuid, .index = checked->stripe->index, .instance = checked->stripe->instance};
    if (!ecfs_stripe_footer_parse (bytes, size, hash, &header, self->keys, &footer, error))
        return false;
    bool same = footer.size == self->layout.size &&
                memcmp (footer.area_digest, checked->stripe->digest, sizeof footer.area_digest) == 0 &&
                memcmp (footer.object_digest, checked->object->digest, sizeof footer.object_digest) == 0;
    ecfs_stripe_footer_clear (&footer);
    return same || ecfs_fail (error, EBADMSG, "its footer is not what the catalog says");
}

/* The footer claims what it likes: what was read counts. With a key no other blocks have tags that fit. */
static bool check_area (const Stripe *self, GError **error)
{
    XXH128_canonical_t found;
    if (self->area == NULL || self->keys != NULL)
        return true;
    XXH128_canonicalFromHash (&found, XXH3_128bits_digest (self->area));
    return memcmp (found.digest, self->job->checked->stripe->digest, ECFS_DIGEST_SIZE) == 0 ||
           ecfs_fail (error, EBADMSG,
                      "each check block fits its checksum, but together they are not what was stored there: this is "
                      "not a disk fault");
}

static bool check_part (const Stripe *self, const uint8_t *bytes, uint64_t size, GError **error)
{
    if (self->at.offset == 0)
        return check_header (self, bytes, error);
    if (self->at.segment < ecfs_layout_n_segments (&self->layout))
        return check_block (self, bytes, (uint32_t) size - self->layout.tag_bytes, error);
    return check_area (self, error) && check_footer (self, bytes, size, error);
}

static void take_block (const Stripe *self, const uint8_t *bytes, uint64_t size)
{
    const Object *object = self->job->object;
    if (self->keys == NULL)
        ecfs_xxh3_128_update (self->area, bytes, size);
    if (object != NULL)
        ecfs_checkup_take (object->checkup, self->job->checked, self->at.segment, self->at.block, bytes,
                           (uint32_t) size);
}

static void check_piece (void *user, size_t index, const uint8_t *bytes)
{
    Stripe *self = user;
    for (uint64_t done = 0; done < self->sizes[index] && self->error == NULL;) {
        uint64_t size = part_bytes (self, &self->at);
        if (!check_part (self, bytes + done, size, &self->error))
            return;
        if (self->area != NULL && self->at.offset > 0 && self->at.segment < ecfs_layout_n_segments (&self->layout))
            take_block (self, bytes + done, size);
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
    const Object *object = self->job->object;
    uint64_t limit = object == NULL ? ecfs_layout_n_segments (&self->layout)
                                    : ecfs_checkup_await (object->checkup, self->job->checked, self->at.segment);
    if (atomic_load (&self->job->check->cancelled))
        return ecfs_fail (error, ECANCELED, "cancelled");
    while (pieces.n < (many ? MAX_PIECES : KEPT_PIECES) &&
           (self->sizes[pieces.n] = next_piece (self, limit, &ahead)) > 0)
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
    const uint64_t n_parts = ecfs_layout_n_segments (&self->layout) + !self->is_log;
    while (self->at.segment < n_parts)
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
        checked->is_concluded = checked->fault != ECFS_STRIPE_GONE; /* that is asked for once more */
        if (job->object == NULL)
            atomic_store (&checked->is_settled, checked->is_concluded);
        return;
    }
    ecfs_mutex_lock (&self->lock);
    g_ptr_array_add (self->unreadable, checked);
    ecfs_mutex_unlock (&self->lock);
}

/* The last of an object's stripes was read: what they are together is known. */
static void end_object (Check *self, Object *object)
{
    EcfsCheckedContent content;
    ecfs_checkup_end (object->checkup, &content);
    for (guint i = object->first; i < object->first + object->n; i++) {
        EcfsCheckedStripe *checked = &g_array_index (self->batch->stripes, EcfsCheckedStripe, i);
        if (checked->is_concluded)
            atomic_store (&checked->is_settled, true);
    }
    ecfs_mutex_lock (&self->lock);
    self->held_bytes -= object->bytes;
    if (content.is_new || content.problem != NULL || content.lies != NULL)
        g_array_append_val (self->batch->contents, content);
    ecfs_mutex_unlock (&self->lock);
    ecfs_checkup_free (object->checkup);
    g_free (object);
}

static void leave_object (const Job *job)
{
    Object *object = job->object;
    const EcfsCheckedStripe *checked = job->checked;
    if (object == NULL)
        return;
    ecfs_checkup_leave (object->checkup, checked, checked->is_concluded && checked->fault == ECFS_STRIPE_FINE);
    ecfs_mutex_lock (&job->check->lock);
    bool is_last = --object->n_left == 0;
    ecfs_mutex_unlock (&job->check->lock);
    if (is_last)
        end_object (job->check, object);
}

/* Of a log, what a copy has by the catalog is read; where that is nothing, its size is 0. */
static bool prepare (Stripe *self, GError **error)
{
    const EcfsCheckedStripe *checked = self->job->checked;
    const EcfsObjectRow *object = checked->object;
    self->is_log = object->kind == ECFS_OBJECT_LOG;
    self->size = ecfs_checked_bytes (checked);
    if (self->is_log && self->size == object->header_bytes) {
        self->size = 0;
        return true;
    }
    if (!ecfs_archive_layout (self->job->check->batch->archive, object, &self->layout, error))
        return false;
    if (self->is_log && checked->stripe->size > 0)
        self->layout.size = MIN (object->size, checked->stripe->size / ECFS_LOG_BLOCK_BYTES * ECFS_LOG_BLOCK_BYTES);
    return true;
}

static void run_job (void *data)
{
    Job *job = data;
    Check *self = job->check;
    EcfsCheckedStripe *checked = job->checked;
    g_autoptr (GError) error = NULL;
    Stripe stripe = {.job = job, .endpoint = ecfs_archive_endpoint (self->batch->archive, checked->position)->endpoint};
    ecfs_stripe_name (&checked->object->uuid, checked->stripe->index, checked->stripe->instance, stripe.name);
    if (atomic_load (&self->cancelled) || atomic_load (&self->is_late))
        atomic_store (&self->is_cut, true);
    else if (!prepare (&stripe, &error) ||
             !ecfs_archive_seal_keys (self->batch->archive, checked->object, &stripe.keys, &error))
        conclude (job, error);
    else if (stripe.size == 0)
        conclude (job, NULL);
    else if (job->round == ROUND_HEADER)
        (void) read_some (&stripe, NULL); /* what comes of it is noted */
    else if (check_whole (&stripe, &error) || error->code != ECANCELED)
        conclude (job, error);
    g_clear_error (&stripe.error);
    XXH3_freeState (stripe.area);
    ecfs_seal_keys_unref (stripe.keys);
    leave_object (job);
    g_free (job);
    ecfs_mutex_lock (&self->lock);
    self->n_pending--;
    ecfs_cond_broadcast (&self->ended);
    ecfs_mutex_unlock (&self->lock);
}

static void push (Check *self, EcfsWorkers **workers, EcfsCheckedStripe *checked, Round round, Object *object)
{
    Job *job = g_new (Job, 1);
    *job = (Job){.check = self, .checked = checked, .round = round, .object = object};
    if (workers[checked->position] == NULL)
        workers[checked->position] = ecfs_workers_new ("ecfs-check", self->n_threads[checked->position]);
    ecfs_mutex_lock (&self->lock);
    self->n_pending++;
    ecfs_mutex_unlock (&self->lock);
    ecfs_workers_push (workers[checked->position], run_job, job);
}

/* Until there is room for one more object, and with UINT64_MAX until nothing is being read. */
static void await (Check *self, uint64_t bytes)
{
    ecfs_mutex_lock (&self->lock);
    while (self->n_pending > 0 && bytes > MOST_BYTES - MIN (self->held_bytes, MOST_BYTES)) {
        int64_t tick_us = ecfs_now_us () + TICK_US;
        while (self->n_pending > 0 && bytes > MOST_BYTES - MIN (self->held_bytes, MOST_BYTES) &&
               ecfs_cond_wait_until (&self->ended, &self->lock, tick_us))
            ;
        ecfs_mutex_unlock (&self->lock);
        if (!self->batch->tick (self->batch->user))
            atomic_store (&self->cancelled, true);
        if (self->batch->is_late != NULL && *self->batch->is_late)
            atomic_store (&self->is_late, true);
        ecfs_mutex_lock (&self->lock);
    }
    ecfs_mutex_unlock (&self->lock);
}

static bool is_read (const EcfsCheckedStripe *checked)
{
    return checked->fault == ECFS_STRIPE_FINE && !checked->is_left_out && !checked->is_unchanged;
}

/* Of one object, whose stripes are these. All endpoints have the objects in the same order; so who waits for the other
 * stripes of one waits for threads that have begun it, or are at one before it. */
static void begin_object (Check *self, EcfsWorkers **workers, guint first, guint n)
{
    Object *object = NULL;
    const EcfsObjectRow *row = g_array_index (self->batch->stripes, EcfsCheckedStripe, first).object;
    EcfsContentCheckup *checkup = row->kind == ECFS_OBJECT_LOG /* which grows, and has no digest */
                                      ? NULL
                                      : ecfs_checkup_new (self->batch, first, n, self->pace, &self->cancelled);
    if (checkup != NULL) {
        object = g_new (Object, 1);
        *object = (Object){.checkup = checkup, .first = first, .n = n, .bytes = ecfs_checkup_bytes (checkup)};
        for (guint i = first; i < first + n; i++)
            object->n_left += is_read (&g_array_index (self->batch->stripes, EcfsCheckedStripe, i));
        await (self, object->bytes);
        ecfs_mutex_lock (&self->lock);
        self->held_bytes += object->bytes;
        ecfs_mutex_unlock (&self->lock);
    }
    /* Only what was to be read when they were counted: the first of them may be read by now. */
    g_autofree bool *wanted = g_new0 (bool, n);
    for (guint i = 0; i < n; i++)
        wanted[i] = is_read (&g_array_index (self->batch->stripes, EcfsCheckedStripe, first + i));
    for (guint i = 0; i < n; i++)
        if (wanted[i])
            push (self, workers, &g_array_index (self->batch->stripes, EcfsCheckedStripe, first + i), ROUND_FIRST,
                  object);
}

/* Those that are read side by side wait for each other. */
static void count_threads (Check *self)
{
    const EcfsObjectRow *object = NULL;
    size_t n_endpoints = ecfs_archive_n_endpoints (self->batch->archive);
    g_autofree unsigned *n_stripes = g_new0 (unsigned, n_endpoints + 1);
    for (size_t i = 0; i < n_endpoints; i++)
        self->n_threads[i] = THREADS;
    for (guint i = 0; i < self->batch->stripes->len; i++) {
        const EcfsCheckedStripe *checked = &g_array_index (self->batch->stripes, EcfsCheckedStripe, i);
        if (checked->object != object)
            memset (n_stripes, 0, n_endpoints * sizeof *n_stripes);
        object = checked->object;
        if (checked->position == SIZE_MAX)
            continue;
        n_stripes[checked->position]++;
        self->n_threads[checked->position] = MAX (self->n_threads[checked->position], n_stripes[checked->position]);
    }
}

static void begin (Check *self, EcfsWorkers **workers)
{
    const GArray *stripes = self->batch->stripes;
    for (guint first = 0, n; first < stripes->len; first += n) {
        const EcfsObjectRow *object = g_array_index (stripes, EcfsCheckedStripe, first).object;
        for (n = 1; first + n < stripes->len;)
            if (g_array_index (stripes, EcfsCheckedStripe, first + n).object == object)
                n++;
            else
                break;
        begin_object (self, workers, first, n);
    }
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
        push (self, workers, checked, ROUND_HEADER, NULL);
    }
}

static void read_again (Check *self, EcfsWorkers **workers)
{
    g_autoptr (GPtrArray) unreadable = self->unreadable; /* nothing runs */
    self->unreadable = g_ptr_array_new ();
    push_witnesses (self, workers, unreadable);
    for (guint i = 0; i < unreadable->len; i++)
        push (self, workers, g_ptr_array_index (unreadable, i), ROUND_AGAIN, NULL);
    await (self, UINT64_MAX);
    for (guint i = 0; i < self->unreadable->len; i++) {
        EcfsCheckedStripe *checked = g_ptr_array_index (self->unreadable, i);
        if (!self->reads[checked->position])
            checked->fault = ECFS_STRIPE_UNKNOWN;
        atomic_store (&checked->is_settled, !atomic_load (&self->cancelled) && !atomic_load (&self->is_cut));
    }
}

bool ecfs_check_packets (EcfsCheckBatch *batch, EcfsReadPace *pace)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (batch->archive);
    g_autofree EcfsWorkers **workers = g_new0 (EcfsWorkers *, n_endpoints + 1);
    g_autofree bool *reads = g_new0 (bool, n_endpoints + 1);
    g_autofree unsigned *n_threads = g_new0 (unsigned, n_endpoints + 1);
    Check self = {
        .batch = batch, .pace = pace, .unreadable = g_ptr_array_new (), .reads = reads, .n_threads = n_threads};
    ecfs_mutex_init (&self.lock);
    ecfs_cond_init (&self.ended);
    count_threads (&self);
    begin (&self, workers);
    await (&self, UINT64_MAX);
    read_again (&self, workers);
    for (size_t i = 0; i < n_endpoints; i++)
        ecfs_workers_free (workers[i]);
    g_ptr_array_unref (self.unreadable);
    ecfs_cond_clear (&self.ended);
    ecfs_mutex_clear (&self.lock);
    return !atomic_load (&self.cancelled) && !atomic_load (&self.is_cut);
}
