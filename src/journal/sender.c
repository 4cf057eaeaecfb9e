#include "journal/sender.h"

#include "archive/common.h"
#include "archive/keys.h"
#include "catalog/journal_file.h"
#include "journal/elsewhere.h"
#include "journal/fork.h"
#include "journal/snapshot.h"

#include <inttypes.h>

#define TICKS          6 /* of a journal_interval; … */
#define GATHER_TICKS   2 /* … changes that are older travel at the next, and have the rest of them for it */
#define RETRY_US       (10 * G_USEC_PER_SEC)
#define RETAINED_US    (INT64_C (3600) * G_USEC_PER_SEC) /* between segments nobody waits for, where all stay */
#define STOP_US        (5 * G_USEC_PER_SEC)              /* for what is left at the end, … */
#define STOP_ENOUGH_US G_USEC_PER_SEC                    /* … when enough endpoints have it */
#define LOOK_AGAIN_US  500000
#define ASKED_US       20000      /* until what an endpoint is asked is looked at again */
#define SEGMENT_BYTES  (4u << 20) /* of records, about */
#define ROWS_AT_ONCE   512

/* An endpoint on its way to having everything. */
typedef struct Lane {
    EcfsJournalSender *sender;
    size_t position;
    uint64_t stored; /* the thread's, as the next two */
    GBytes *file;
    EcfsJournalPlace place;     /* what it has with that file */
    EcfsJournalPlace sure;      /* what it had when a marker that was asked for later told of nothing newer, … */
    EcfsJournalPlace next;      /* … what is the next to become that, at next_us; sequence 0: nothing is */
    int64_t next_us, stored_us; /* when that, and the last file, was stored; by the clock of lineage */
    int64_t stored_time_ns;     /* of the last record that it has */
    bool compared;              /* what was there before this session */
    /* Guarded by lock. */
    int64_t retry_us;
    int64_t sent_us; /* when the last upload began; 0: none did */
    bool busy;
    bool ended; /* the upload is over, and the thread has not seen it yet */
    GError *failure;
    EcfsStream *stream;
    unsigned failed_round; /* the last in which it failed */
    char *reason;          /* why */
    uint64_t seen;         /* stored, for others */
} Lane;

struct EcfsJournalSender {
    EcfsArchive *archive; /* immutable, as the next */
    EcfsLineage *lineage;
    pthread_t thread;
    EcfsSnapshots *snapshots; /* the thread's, as up to the next comment */
    uint64_t durable;         /* records up to this one may travel */
    uint64_t torn_last;       /* with which a segment ended whose name is taken by what is none; 0: there is none */
    int64_t pending_us;       /* since when there have been changes that nobody waits for; 0: there are none */
    GBytes *shared;           /* the last file that was made, … */
    uint64_t shared_after;    /* … behind this record … */
    EcfsJournalPlace shared_place;
    uint64_t n_made; /* files */
    size_t n_lanes;
    EcfsMutex lock;
    EcfsCond changed;
    Lane *lanes; /* ECFS_ENDPOINTS_MAX; guarded by lock, as the rest */
    uint64_t wanted;
    uint64_t awaited; /* by somebody */
    unsigned round;   /* of trying, begun by whoever waits */
    bool hurried;
    bool was_awaited; /* what is a good moment to look whether a snapshot is due */
    bool stopping;
};

/* Uploads */

static void on_stored (void *user, const GError *error)
{
    Lane *self = user;
    ecfs_mutex_lock (&self->sender->lock);
    self->failure = error == NULL ? NULL : g_error_copy (error);
    self->ended = true;
    ecfs_cond_broadcast (&self->sender->changed);
    ecfs_mutex_unlock (&self->sender->lock);
}

/* Records behind @after up to self->durable, as many as fit into a segment. It ends where records are missing: old ones
 * may be dropped meanwhile, and a segment has all from its first to its last. */
static bool gather (EcfsJournalSender *self, uint64_t after, EcfsJournalFile *file, GByteArray *raw, GError **error)
{
    for (uint64_t at = after; raw->len < SEGMENT_BYTES;) {
        g_autoptr (GPtrArray) rows =
            ecfs_catalog_journal (ecfs_archive_catalog (self->archive), at, ROWS_AT_ONCE, error);
        if (rows == NULL)
            return false;
        for (guint i = 0; i < rows->len && raw->len < SEGMENT_BYTES; i++) {
            const EcfsJournalRow *row = g_ptr_array_index (rows, i);
            if (row->sequence > self->durable ||
                (file->n_records > 0 && (row->sequence != file->last + 1 || row->sequence == self->torn_last)))
                return true;
            ecfs_journal_file_put (raw, row->sequence, row->time_ns, row->record->data, row->record->len);
            file->first = file->n_records == 0 ? row->sequence : file->first;
            file->last = at = row->sequence;
            file->time_ns = row->time_ns;
            file->n_records++;
        }
        if (rows->len < ROWS_AT_ONCE)
            break;
    }
    return true;
}

/* The file that an endpoint with the records up to @after needs next. */
static bool make_file (EcfsJournalSender *self, uint64_t after, GError **error)
{
    if (self->shared != NULL && self->shared_after == after)
        return true;
    EcfsJournalFile file = {.archive = *ecfs_catalog_archive (ecfs_archive_catalog (self->archive)),
                            .kind = ECFS_JOURNAL_SEGMENT,
                            .epoch = ecfs_catalog_epoch (ecfs_archive_catalog (self->archive))};
    g_autoptr (GByteArray) raw = g_byte_array_new ();
    if (!gather (self, after, &file, raw, error))
        return false;
    if (file.n_records == 0)
        return ecfs_fail (error, ENOENT, "the catalog has no record above %" PRIu64, after);
    g_clear_pointer (&self->shared, g_bytes_unref);
    self->shared =
        g_byte_array_free_to_bytes (ecfs_journal_file_format (&file, raw, ecfs_archive_keys (self->archive)));
    self->n_made++;
    self->shared_after = after;
    self->shared_place = (EcfsJournalPlace){.sequence = file.last, .time_ns = file.time_ns};
    return true;
}

/* The name is in the file's header. */
static bool file_name (const EcfsJournalSender *self, char name[ECFS_JOURNAL_NAME_SIZE])
{
    EcfsJournalFile file;
    gsize size;
    const uint8_t *bytes = g_bytes_get_data (self->shared, &size);
    if (!ecfs_journal_file_head (bytes, size, &file, NULL))
        return false; /* never: it was just made */
    ecfs_journal_file_name (&file, name);
    return true;
}

static void lane_begin (Lane *self)
{
    EcfsJournalSender *sender = self->sender;
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (sender->archive, self->position);
    char name[ECFS_JOURNAL_NAME_SIZE];
    g_autoptr (GError) error = NULL;
    if (!make_file (sender, self->stored, &error) || !file_name (sender, name)) {
        /* Of a catalog that has just been recovered it begins with the next change. */
        const GLogLevelFlags level = error->code == ENOENT ? G_LOG_LEVEL_INFO : G_LOG_LEVEL_WARNING;
        g_log (G_LOG_DOMAIN, level, "%s: the journal cannot be read: %s", ecfs_archive_directory (sender->archive),
               error->message);
        ecfs_mutex_lock (&sender->lock);
        self->retry_us = ecfs_now_us () + RETRY_US;
        ecfs_mutex_unlock (&sender->lock);
        return;
    }
    self->file = g_bytes_ref (sender->shared);
    self->place = sender->shared_place;
    self->place.endpoint = endpoint->id;
    ecfs_mutex_lock (&sender->lock);
    self->busy = true;
    self->sent_us = ecfs_now_us ();
    self->ended = false;
    ecfs_mutex_unlock (&sender->lock);
    gsize size;
    const void *bytes = g_bytes_get_data (self->file, &size);
    EcfsStream *stream = ecfs_endpoint_write_bytes (endpoint->endpoint, name, bytes, size, on_stored, self);
    ecfs_mutex_lock (&sender->lock);
    self->stream = stream;
    ecfs_mutex_unlock (&sender->lock);
}

/* Whether two files have the same records; compression or sealing may have made other bytes of them. EBADMSG, ENOKEY:
 * one is damaged, or none of ours. */
static bool is_same_segment (const EcfsKeyRing *keys, const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                             bool *ret_same, GError **error)
{
    EcfsJournalFile file_a, file_b;
    g_autoptr (GPtrArray) rows_a = ecfs_journal_file_parse (a, a_size, keys, &file_a, error);
    g_autoptr (GPtrArray) rows_b = rows_a == NULL ? NULL : ecfs_journal_file_parse (b, b_size, keys, &file_b, error);
    if (rows_b == NULL)
        return false;
    *ret_same = rows_a->len == rows_b->len && ecfs_uuid_equal (&file_a.archive, &file_b.archive);
    for (guint i = 0; *ret_same && i < rows_a->len; i++) {
        const EcfsJournalRow *x = g_ptr_array_index (rows_a, i), *y = g_ptr_array_index (rows_b, i);
        *ret_same = x->sequence == y->sequence && x->record->len == y->record->len &&
                    memcmp (x->record->data, y->record->data, x->record->len) == 0;
    }
    return true;
}

/* From before the archive had a key; anybody else may have made it, too. */
static bool lies_open (const EcfsArchive *archive, const uint8_t *bytes, size_t size)
{
    EcfsJournalFile file;
    EcfsOpenEnd end;
    return ecfs_journal_file_head (bytes, size, &file, NULL) && !file.is_sealed &&
           ecfs_keys_end (ecfs_archive_catalog (archive), &end, NULL) &&
           (file.epoch < end.epoch || (file.epoch == end.epoch && file.last <= end.sequence));
}

/* A segment that is there already: only one catalog has these numbers, so it is the same, or another copy of the
 * archive directory wrote it. True: the same. */
static bool compare_stored (Lane *self, GError **error)
{
    const EcfsArchive *archive = self->sender->archive;
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, self->position);
    char name[ECFS_JOURNAL_NAME_SIZE];
    gsize size;
    uint64_t there_size = 0;
    const uint8_t *bytes = g_bytes_get_data (self->file, &size);
    EcfsJournalFile file;
    bool same;
    if (!ecfs_journal_file_head (bytes, size, &file, error))
        return false; /* never: it was just made */
    ecfs_journal_file_name (&file, name);
    if (!ecfs_endpoint_size_wait (endpoint->endpoint, name, &there_size, error))
        return false;
    if (there_size == 0 || there_size > 2 * (uint64_t) ECFS_JOURNAL_FILE_MAX)
        return ecfs_fail (error, EBADMSG, "endpoint %s: %s is damaged", endpoint->name, name);
    g_autofree uint8_t *there = g_malloc (there_size);
    const EcfsRange range = {.size = there_size, .to = there};
    if (!ecfs_endpoint_read_wait (endpoint->endpoint, name, &range, 1, error))
        return false;
    if (lies_open (archive, there, there_size))
        return ecfs_endpoint_remove_wait (endpoint->endpoint, name, error) &&
               ecfs_fail (error, EAGAIN, "endpoint %s: %s lay open there, and is stored sealed now", endpoint->name,
                          name);
    if (!is_same_segment (ecfs_archive_keys (archive), bytes, size, there, there_size, &same, error))
        return ecfs_prefix (error, "endpoint %s: %s is there already", endpoint->name, name);
    if (same)
        return true;
    ecfs_lineage_foreign_segments (self->sender->lineage, &self->position, 1);
    return ecfs_fail (error, EEXIST,
                      "endpoint %s: %s is there with other changes: another copy of %s wrote it, or the endpoint lies",
                      endpoint->name, name, ecfs_archive_directory (archive));
}

/* What it has is told before it is sure, as deletions ask endpoints themselves. But if it comes too late, as somebody
 * else has taken the archive over in between, it is in nobody's archive, and is not to count as stored. */
static void settle_place (Lane *self)
{
    EcfsJournalSender *sender = self->sender;
    g_autoptr (GError) error = NULL;
    if (self->next.sequence == 0)
        return;
    if (ecfs_lineage_is_stale (sender->lineage)) {
        self->next.sequence = 0;
        self->sure.endpoint = self->place.endpoint;
        if (!ecfs_catalog_journal_set_back (ecfs_archive_catalog (sender->archive), &self->sure, &error))
            g_warning ("what was stored too late counts as stored: %s", error->message);
        return;
    }
    if (ecfs_lineage_denied_us (sender->lineage, self->position) < self->next_us)
        return;
    self->sure = self->next;
    self->next = (EcfsJournalPlace){.sequence = 0};
    if (self->stored > self->sure.sequence) {
        self->next = (EcfsJournalPlace){.sequence = self->stored, .time_ns = self->stored_time_ns};
        self->next_us = self->stored_us;
    }
}

/* An upload that broke off where nothing is removed has taken the name of the segment: the next ends elsewhere. */
static void rename_torn (Lane *self)
{
    EcfsJournalSender *sender = self->sender;
    EcfsEndpoint *endpoint = ecfs_archive_endpoint (sender->archive, self->position)->endpoint;
    g_autoptr (GError) error = NULL;
    if (ecfs_endpoint_retain_us (endpoint) == ECFS_RETAIN_NOT)
        return;
    sender->torn_last = self->place.sequence;
    g_clear_pointer (&sender->shared, g_bytes_unref);
    if (self->place.sequence >= sender->durable &&
        !ecfs_catalog_advance (ecfs_archive_catalog (sender->archive), &error))
        g_warning ("%s", error->message); /* it is tried again with the next change */
}

static void fail_locked (Lane *self, const GError *why) ECFS_REQUIRES (self->sender->lock)
{
    g_info ("a segment of the journal cannot be stored: %s", why->message);
    self->retry_us = ecfs_now_us () + RETRY_US;
    self->sent_us = 0; /* where it is rarely told, the next is soon all the same */
    self->failed_round = self->sender->round;
    g_free (self->reason);
    self->reason = g_strdup (why->message);
}

/* What became of an upload; by the thread. */
static void lane_end (Lane *self)
{
    EcfsJournalSender *sender = self->sender;
    g_autoptr (GError) error = NULL;
    ecfs_mutex_lock (&sender->lock);
    bool ended = self->busy && self->ended;
    g_autoptr (GError) failure = ended ? g_steal_pointer (&self->failure) : NULL;
    EcfsStream *stream = ended ? g_steal_pointer (&self->stream) : NULL;
    ecfs_mutex_unlock (&sender->lock);
    if (!ended)
        return;
    ecfs_stream_unref (stream);
    if (ecfs_errno (failure) == EEXIST) {
        g_clear_error (&failure);
        (void) compare_stored (self, &failure); /* the error says it */
        if (ecfs_errno (failure) == EBADMSG)
            rename_torn (self);
    }
    g_clear_pointer (&self->file, g_bytes_unref);
    if (failure == NULL) {
        self->stored = self->place.sequence;
        self->stored_time_ns = self->place.time_ns;
        self->stored_us = ecfs_lineage_now_us ();
        if (self->next.sequence == 0) {
            self->next = self->place;
            self->next_us = self->stored_us;
        }
        if (!ecfs_catalog_journal_stored (ecfs_archive_catalog (sender->archive), &self->place, &error))
            g_info ("%s", error->message); /* the segment is stored once more then */
    }
    ecfs_mutex_lock (&sender->lock);
    self->busy = false;
    self->seen = self->stored;
    if (failure != NULL) {
        ecfs_mutex_is_held (&self->sender->lock);
        fail_locked (self, failure);
    }
    ecfs_cond_broadcast (&sender->changed);
    ecfs_mutex_unlock (&sender->lock);
}

/* The thread */

static void load_lanes (EcfsJournalSender *self)
{
    g_autoptr (GError) error = NULL;
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    if (n_endpoints == self->n_lanes)
        return;
    g_autoptr (GArray) places = ecfs_catalog_journal_places (ecfs_archive_catalog (self->archive), &error);
    if (places == NULL) {
        g_warning ("%s", error->message);
        return;
    }
    ecfs_mutex_lock (&self->lock);
    for (size_t i = self->n_lanes; i < n_endpoints; i++) {
        Lane *lane = &self->lanes[i];
        *lane = (Lane){.sender = self, .position = i, .failed_round = UINT_MAX};
        for (guint j = 0; j < places->len; j++) {
            const EcfsJournalPlace *place = &g_array_index (places, EcfsJournalPlace, j);
            if (place->endpoint == ecfs_archive_endpoint (self->archive, i)->id)
                lane->sure = *place;
        }
        lane->seen = lane->stored = lane->sure.sequence;
    }
    self->n_lanes = n_endpoints;
    ecfs_mutex_unlock (&self->lock);
}

/* Makes what has happened durable: what endpoints know and the catalog lost in a crash would make it an old copy. */
static bool want_all (EcfsJournalSender *self)
{
    g_autoptr (GError) error = NULL;
    uint64_t sequence;
    if (!ecfs_catalog_harden (ecfs_archive_catalog (self->archive), &sequence, &error)) {
        g_info ("the journal has to wait: %s", error->message);
        return false;
    }
    self->durable = sequence;
    self->pending_us = 0;
    ecfs_mutex_lock (&self->lock);
    self->wanted = MAX (self->wanted, sequence);
    self->hurried = false;
    ecfs_mutex_unlock (&self->lock);
    return true;
}

static int64_t tick_us (const EcfsJournalSender *self)
{
    return ecfs_archive_config (self->archive)->journal_interval_us / TICKS;
}

/* Decides whether changes that nobody waits for are to travel now. */
static void look_for_changes (EcfsJournalSender *self)
{
    int64_t now_us = ecfs_now_us ();
    uint64_t sequence = ecfs_catalog_sequence (ecfs_archive_catalog (self->archive));
    ecfs_mutex_lock (&self->lock);
    uint64_t wanted = self->wanted;
    bool now = self->hurried || self->stopping;
    ecfs_mutex_unlock (&self->lock);
    if (wanted > self->durable)
        now = true;
    if (sequence <= self->durable && !now)
        return;
    if (self->pending_us == 0)
        self->pending_us = now_us;
    if (now || now_us - self->pending_us >= GATHER_TICKS * tick_us (self))
        (void) want_all (self); /* else it is tried again */
}

static bool rests (Lane *self)
{
    ecfs_mutex_lock (&self->sender->lock);
    bool rests = ecfs_now_us () < self->retry_us;
    ecfs_mutex_unlock (&self->sender->lock);
    return rests;
}

/* Files of which none is ever removed are to be few. */
static bool is_rarely_told (Lane *self, const EcfsArchiveEndpoint *endpoint)
{
    EcfsJournalSender *sender = self->sender;
    if (ecfs_endpoint_retain_us (endpoint->endpoint) == ECFS_RETAIN_NOT)
        return false;
    ecfs_mutex_lock (&sender->lock);
    bool waits = !sender->stopping && self->stored >= sender->awaited && self->sent_us > 0 &&
                 ecfs_now_us () - self->sent_us < RETAINED_US;
    ecfs_mutex_unlock (&sender->lock);
    return waits;
}

/* Once, before anything of this session is stored there. */
static bool is_compared (Lane *self)
{
    EcfsJournalSender *sender = self->sender;
    g_autoptr (GError) error = NULL;
    if (self->compared)
        return true;
    int forked = ecfs_journal_is_forked (sender->archive, sender->lineage, self->position, self->stored, &error);
    self->compared = forked >= 0;
    if (forked > 0)
        ecfs_lineage_foreign_segments (sender->lineage, &self->position, 1);
    if (forked < 0) {
        ecfs_mutex_lock (&self->sender->lock);
        fail_locked (self, error);
        ecfs_mutex_unlock (&self->sender->lock);
    }
    return forked == 0;
}

static void begin_lanes (EcfsJournalSender *self)
{
    for (size_t i = 0; i < self->n_lanes; i++) {
        Lane *lane = &self->lanes[i];
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        lane_end (lane);
        settle_place (lane);
        if (lane->file == NULL && lane->stored < self->durable && ecfs_archive_has_journal (endpoint) &&
            !ecfs_endpoint_is_down (endpoint->endpoint) && ecfs_lineage_may_write (self->lineage, i) && !rests (lane) &&
            !is_rarely_told (lane, endpoint) && is_compared (lane))
            lane_begin (lane);
    }
}

/* Whether an endpoint is about to say what it knows, and needs something as soon as it has. */
static bool any_is_asked_locked (EcfsJournalSender *self) ECFS_REQUIRES (self->lock)
{
    for (size_t i = 0; i < self->n_lanes; i++)
        if (self->lanes[i].seen < self->wanted && ecfs_lineage_is_asking (self->lineage, i))
            return true;
    return false;
}

static bool any_ended_locked (EcfsJournalSender *self) ECFS_REQUIRES (self->lock)
{
    for (size_t i = 0; i < self->n_lanes; i++)
        if (self->lanes[i].busy && self->lanes[i].ended)
            return true;
    return false;
}

/* How many endpoints have everything up to @sequence, as far as they count, and how many others may come to have it. */
static unsigned count_locked (EcfsJournalSender *self, uint64_t sequence, unsigned *ret_n_trying)
    ECFS_REQUIRES (self->lock)
{
    unsigned n_have = 0;
    *ret_n_trying = 0;
    for (size_t i = 0; i < self->n_lanes; i++) {
        const Lane *lane = &self->lanes[i];
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        if (!ecfs_archive_has_journal (endpoint))
            continue;
        n_have += lane->seen >= sequence && !ecfs_lineage_discounts (self->lineage, i);
        *ret_n_trying += lane->seen < sequence &&
                         (lane->busy || ecfs_lineage_is_asking (self->lineage, i) ||
                          (lane->failed_round != self->round && !ecfs_endpoint_is_down (endpoint->endpoint) &&
                           ecfs_lineage_may_write (self->lineage, i)));
    }
    return n_have;
}

static void look_at_snapshots (EcfsJournalSender *self)
{
    ecfs_mutex_lock (&self->lock);
    bool was_awaited = self->was_awaited;
    self->was_awaited = false;
    ecfs_mutex_unlock (&self->lock);
    if (was_awaited)
        ecfs_snapshots_hurry (self->snapshots);
    ecfs_snapshots_look (self->snapshots, self->n_made);
}

static void step (EcfsJournalSender *self)
{
    load_lanes (self);
    ecfs_lineage_ask (self->lineage);
    look_for_changes (self);
    begin_lanes (self);
    look_at_snapshots (self);
}

static void *run (void *data)
{
    EcfsJournalSender *self = data;
    ecfs_mutex_lock (&self->lock);
    while (!self->stopping) {
        uint64_t wanted = self->wanted;
        unsigned round = self->round;
        ecfs_mutex_unlock (&self->lock);
        step (self);
        ecfs_mutex_lock (&self->lock);
        bool idle = self->pending_us == 0 && self->wanted <= self->durable;
        int64_t idle_us = MIN (tick_us (self), ecfs_lineage_again_us);
        int64_t pause_us = any_is_asked_locked (self) ? ASKED_US : idle ? idle_us : idle_us / 5;
        int64_t until_us = ecfs_now_us () + pause_us;
        while (!self->stopping && !self->hurried && !self->was_awaited && self->wanted == MAX (wanted, self->durable) &&
               self->round == round && !any_ended_locked (self) && ecfs_now_us () < until_us)
            (void) ecfs_cond_wait_until (&self->changed, &self->lock, until_us); /* the loop looks */
    }
    ecfs_mutex_unlock (&self->lock);
    return NULL;
}

EcfsJournalSender *ecfs_journal_sender_start (EcfsArchive *archive, EcfsLineage *lineage)
{
    EcfsJournalSender *self = g_new0 (EcfsJournalSender, 1);
    self->archive = archive;
    self->lineage = lineage;
    self->lanes = g_new0 (Lane, ECFS_ENDPOINTS_MAX);
    self->snapshots = ecfs_snapshots_new (archive, lineage);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->changed);
    load_lanes (self);
    int result = pthread_create (&self->thread, NULL, run, self);
    if (result != 0)
        g_error ("cannot start the journal's thread: %s", g_strerror (result));
    return self;
}

void ecfs_journal_sender_hurry (EcfsJournalSender *self)
{
    ecfs_mutex_lock (&self->lock);
    self->hurried = true;
    ecfs_cond_broadcast (&self->changed);
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_journal_sender_has_stored (EcfsJournalSender *self, uint64_t sequence)
{
    unsigned n_trying, n_copies = ecfs_archive_journal_copies (self->archive);
    ecfs_mutex_lock (&self->lock);
    bool stored = count_locked (self, sequence, &n_trying) >= n_copies;
    ecfs_mutex_unlock (&self->lock);
    return stored;
}

/* Ending: the thread is gone, and its work is done here. */

static void cancel_uploads (EcfsJournalSender *self)
{
    ecfs_mutex_lock (&self->lock);
    for (size_t i = 0; i < self->n_lanes; i++)
        if (self->lanes[i].busy && !self->lanes[i].ended)
            ecfs_stream_cancel (self->lanes[i].stream);
    ecfs_mutex_unlock (&self->lock);
}

/* Whether an upload is under way; waits for the next that ends, until @until_us. */
static bool await_upload (EcfsJournalSender *self, int64_t until_us)
{
    bool busy = false;
    ecfs_mutex_lock (&self->lock);
    for (size_t i = 0; i < self->n_lanes; i++)
        busy = busy || self->lanes[i].busy;
    if (busy && !any_ended_locked (self))
        (void) ecfs_cond_wait_until (&self->changed, &self->lock, until_us); /* who calls looks */
    ecfs_mutex_unlock (&self->lock);
    return busy;
}

static bool has_enough (EcfsJournalSender *self)
{
    unsigned n_trying;
    ecfs_mutex_lock (&self->lock);
    bool enough = count_locked (self, self->durable, &n_trying) >= ecfs_archive_journal_copies (self->archive);
    ecfs_mutex_unlock (&self->lock);
    return enough;
}

static void store_rest (EcfsJournalSender *self)
{
    int64_t end_us = ecfs_now_us () + STOP_US, enough_us = ecfs_now_us () + STOP_ENOUGH_US;
    look_for_changes (self);
    do {
        begin_lanes (self);
    } while (await_upload (self, ecfs_now_us () + LOOK_AGAIN_US / 5) &&
             ecfs_now_us () < (has_enough (self) ? enough_us : end_us));
    cancel_uploads (self);
    while (await_upload (self, ecfs_now_us () + LOOK_AGAIN_US))
        for (size_t i = 0; i < self->n_lanes; i++)
            lane_end (&self->lanes[i]);
    if (!has_enough (self))
        g_warning ("%s: the newest changes of names are on too few endpoints to be safe without this machine: the next "
                   "mount stores them",
                   ecfs_archive_directory (self->archive));
}

void ecfs_journal_sender_stop (EcfsJournalSender *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_cond_broadcast (&self->changed);
    ecfs_mutex_unlock (&self->lock);
    (void) pthread_join (self->thread, NULL); /* joinable and ours: it cannot fail */
    store_rest (self);
    ecfs_snapshots_end (self->snapshots, self->n_made);
    ecfs_snapshots_free (self->snapshots);
    if (ecfs_catalog_sequence (ecfs_archive_catalog (self->archive)) > self->durable)
        store_rest (self); /* what was noted of them */
    for (size_t i = 0; i < self->n_lanes; i++) {
        settle_place (&self->lanes[i]);
        g_free (self->lanes[i].reason);
    }
    g_free (self->lanes);
    g_clear_pointer (&self->shared, g_bytes_unref);
    ecfs_cond_clear (&self->changed);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

/* Waiting */

/* One round of trying. *ret_goes_on: whether the caller still wants it. */
static bool await_stored (EcfsJournalSender *self, uint64_t sequence, bool (*goes_on) (void *user), void *user,
                          bool *ret_goes_on)
{
    unsigned n_trying, n_copies = ecfs_archive_journal_copies (self->archive);
    ecfs_mutex_lock (&self->lock);
    self->wanted = MAX (self->wanted, sequence);
    self->awaited = MAX (self->awaited, sequence);
    self->round++;
    for (size_t i = 0; i < self->n_lanes; i++)
        self->lanes[i].retry_us = 0;
    ecfs_cond_broadcast (&self->changed);
    bool stored;
    *ret_goes_on = true;
    while (!(stored = count_locked (self, sequence, &n_trying) >= n_copies) && n_trying > 0 && *ret_goes_on) {
        (void) ecfs_cond_wait_until (&self->changed, &self->lock, ecfs_now_us () + LOOK_AGAIN_US); /* the loop looks */
        ecfs_mutex_unlock (&self->lock);
        *ret_goes_on = goes_on == NULL || goes_on (user);
        ecfs_mutex_lock (&self->lock);
    }
    self->was_awaited = self->was_awaited || stored;
    ecfs_cond_broadcast (&self->changed);
    ecfs_mutex_unlock (&self->lock);
    return stored;
}

static bool fail_stored (EcfsJournalSender *self, uint64_t sequence, GError **error)
{
    unsigned n_trying;
    g_autofree char *trouble = ecfs_lineage_trouble (self->lineage);
    if (trouble != NULL)
        return ecfs_fail (error, ESTALE, "%s", trouble);
    g_autoptr (GString) reasons = g_string_new (NULL);
    ecfs_mutex_lock (&self->lock);
    unsigned n_have = count_locked (self, sequence, &n_trying);
    for (size_t i = 0; i < self->n_lanes; i++) {
        const Lane *lane = &self->lanes[i];
        if (lane->seen < sequence && lane->reason != NULL && lane->failed_round == self->round)
            g_string_append_printf (reasons, "\n%s", lane->reason);
    }
    ecfs_mutex_unlock (&self->lock);
    if (!ecfs_lineage_is_sure (self->lineage))
        g_string_append (reasons, "\nso few endpoints have answered that this archive directory may be an old copy: "
                                  "its journal is not stored until more do");
    return ecfs_fail (error, EIO,
                      "the journal up to now is on %u endpoints, and has to be on %u: without this machine the names "
                      "of the newest files would be lost; see ecfs status%s",
                      n_have, ecfs_archive_journal_copies (self->archive), reasons->str);
}

/* Whether what is stored is where it should be, and stays the archive's. */
static bool confirm (EcfsJournalSender *self, uint64_t sequence, bool (*goes_on) (void *user), void *user,
                     GError **error)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    g_autofree bool *stored = g_new0 (bool, n_endpoints + 1);
    ecfs_mutex_lock (&self->lock);
    for (size_t i = 0; i < MIN (n_endpoints, self->n_lanes); i++)
        stored[i] =
            ecfs_archive_has_journal (ecfs_archive_endpoint (self->archive, i)) && self->lanes[i].seen >= sequence;
    ecfs_mutex_unlock (&self->lock);
    if (ecfs_lineage_confirm_stored (self->lineage, stored, n_endpoints, goes_on, user, error))
        return true;
    return ecfs_prefix (error, "without this machine the names of the newest files could be lost");
}

/* One try. *ret_goes_on as await_stored () sets it; false without an error: it came to nothing. */
static bool try_to_store (EcfsJournalSender *self, uint64_t sequence, bool (*goes_on) (void *user), void *user,
                          bool *ret_goes_on, GError **error)
{
    return await_stored (self, sequence, goes_on, user, ret_goes_on) && confirm (self, sequence, goes_on, user, error);
}

bool ecfs_journal_sender_store (EcfsJournalSender *self, bool (*goes_on) (void *user), void *user, GError **error)
{
    uint64_t sequence;
    bool on = true;
    if (!ecfs_catalog_harden (ecfs_archive_catalog (self->archive), &sequence, error))
        return false;
    g_autoptr (GError) doubt = NULL;
    bool stored = try_to_store (self, sequence, goes_on, user, &on, &doubt);
    if (!stored && on && ecfs_errno (doubt) != ESTALE) {
        g_clear_error (&doubt);
        ecfs_archive_revive_endpoints (self->archive);
        stored = try_to_store (self, sequence, goes_on, user, &on, &doubt);
    }
    /* Who asks after a crash is to be told that it is there. */
    if (stored)
        return ecfs_catalog_barrier (ecfs_archive_catalog (self->archive), error);
    if (!on)
        return ecfs_fail (error, ECANCELED, "the mount ends");
    if (doubt == NULL)
        return fail_stored (self, sequence, error);
    g_propagate_error (error, g_steal_pointer (&doubt));
    return false;
}

bool ecfs_archive_store_journal (EcfsArchive *self, bool (*goes_on) (void *user), void *user, GError **error)
{
    EcfsJournalSender *sender = ecfs_archive_service (self, ECFS_SERVICE_JOURNAL);
    return sender != NULL ? ecfs_journal_sender_store (sender, goes_on, user, error)
                          : ecfs_journal_store_elsewhere (self, goes_on, user, error);
}
