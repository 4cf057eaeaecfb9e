/*
 * What is sent before the last writer has gone: whether an upload is worth it, and storing a file while it is being
 * written.
 *
 * An upload sends all of a file, however little of it is new. So a flush commits only while what was uploaded of this
 * file, the commit in question included, is at most the bytes written and an eighth; and what the last writer leaves
 * rests for a while, since another may come to append to it. Content that is not worth an upload is durable here, and
 * waits for the last release and its rest. A file that is written in a thousand pieces, each by a process of its own,
 * costs about twice its bytes at most: these uploads, and the last one.
 *
 * A file that is written from its beginning on, one byte after another, is read along behind its writer: an attempt of
 * the kind STREAM encodes and sends whole segments, so that close(2) costs little more than the last one. It becomes
 * the commit of whoever flushes or releases the file; until then nobody relies on it. Where bytes change that it was
 * given already, or the file is not one piece when it is to be committed, or its writer has paused for long, it is
 * abandoned, and the file is stored from staging like any other. So it is when an attempt that read along fails: that
 * is nobody's failure, another attempt follows.
 *
 * Attempts that read along have threads of their own, few of them: slow writers keep nobody from being stored. One that
 * is abandoned has sent bytes for nothing; the next one begins when there are twice as many.
 */
#include "archive/common.h"
#include "staging/staged_priv.h"

#define OVERHEAD_SHARE 8 /* uploads before the last one are the bytes written and an eighth, at most */
#define REST_MIN_US    G_USEC_PER_SEC
#define REST_MAX_US    (60 * G_USEC_PER_SEC)
#define MIN_SEGMENTS   4 /* a file has, before it is worth an attempt of its own */
#define PATIENCE_US    (30 * G_USEC_PER_SEC)

/* What an upload is worth */

bool ecfs_staged_is_worth_locked (EcfsStagedTable *table, const EcfsStaged *self)
{
    uint64_t written = self->written_bytes;
    if (ecfs_catalog_is_shared (ecfs_archive_catalog (table->archive))) /* others see what is stored */
        return true;
    return self->uploaded_bytes + self->charged_bytes <= written + written / OVERHEAD_SHARE;
}

void ecfs_staged_rest_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    bool due = table->stopping || table->paused.length > 0 || ecfs_staged_is_worth_locked (table, self);
    if (self->n_writers > 0 || self->unlinked || ecfs_staged_is_clean (self) || due)
        return;
    int64_t now_us = ecfs_now_us ();
    if (self->rests_since_us == 0)
        self->rests_since_us = now_us;
    /* As long as the last upload took, so that uploads over and over take half of the time at most. */
    int64_t rest_us = CLAMP (self->attempt_took_us, REST_MIN_US, REST_MAX_US);
    self->retry_us = MAX (self->retry_us, MIN (now_us + rest_us, self->rests_since_us + REST_MAX_US));
}

void ecfs_staged_upload_begins_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    self->attempt_bytes = self->charged_bytes;
    self->attempt_began_us = ecfs_now_us ();
    self->rests_since_us = 0;
}

void ecfs_staged_uploaded_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    self->uploaded_bytes += self->attempt_bytes;
    self->attempt_bytes = 0;
    self->attempt_took_us = ecfs_now_us () - self->attempt_began_us;
}

void ecfs_staged_copied_up_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    self->written_bytes = self->uploaded_bytes = self->charged_bytes;
    self->stream_from_bytes = self->size > 0 ? UINT64_MAX : 0; /* how much of it is overwritten nobody knows */
}

void ecfs_staged_emptied_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    self->written_bytes = self->uploaded_bytes = self->attempt_bytes = 0;
    self->stream_from_bytes = 0;
}

/* Reading along */

static uint64_t least_bytes (const EcfsConfig *config)
{
    return MAX (MIN_SEGMENTS * config->segment_size, config->small_file + config->segment_size);
}

void ecfs_staged_stream_init (EcfsStagedTable *table)
{
    g_queue_init (&table->streaming);
    table->stream_patience_us = PATIENCE_US;
}

static bool may_begin_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    bool idle = self->phase == ECFS_PHASE_IDLE && !self->kept && self->flushes.length == 0 && self->waits == NULL;
    bool wanted = self->n_writers > 0 && !self->unlinked && !table->stopping && !table->stopped;
    if (self->n_changing > 0) /* of bytes that it would be given, perhaps */
        return false;
    uint64_t least = MAX (least_bytes (ecfs_archive_config (table->archive)), self->stream_from_bytes);
    return idle && wanted && self->run_bytes >= least && table->streaming.length < ECFS_N_STREAMS &&
           ecfs_staged_is_worth_locked (table, self);
}

/* The commit that the attempt has become, where the feed is final. */
static void ended (void *user, EcfsCommit *commit)
{
    EcfsStaged *self = user;
    ecfs_mutex_lock (&self->table->lock);
    commit->size = self->attempt_size;
    commit->mtime_ns = self->attempt_mtime_ns;
    commit->ctime_ns = self->attempt_ctime_ns;
    commit->publish.staging = self->row;
    ecfs_mutex_unlock (&self->table->lock);
}

static void begin_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    self->feed = ecfs_feed_new ();
    self->stream_link.data = self;
    g_queue_push_tail_link (&table->streaming, &self->stream_link);
    ecfs_feed_grow (self->feed, self->run_bytes);
    self->moved_us = ecfs_now_us ();
    self->phase = ECFS_PHASE_STREAMING;
    ecfs_staged_upload_begins_locked (table, self);
    EcfsCommit commit = {.kind = ECFS_COMMIT_STREAM, .stream = {.feed = self->feed, .ended = ended}};
    ecfs_staged_queue_commit_locked (table, self, &commit);
    ecfs_staged_schedule_locked (table, self->moved_us + table->stream_patience_us);
}

void ecfs_staged_stream_hold_locked (EcfsStagedTable *table, EcfsStaged *self, uint64_t offset)
{
    if (self->n_changing == 0)
        self->run_ceiling = UINT64_MAX;
    self->run_ceiling = MIN (self->run_ceiling, offset);
    if (self->feed != NULL)
        (void) ecfs_feed_hold (self->feed, offset); /* an attempt that ends says what became of it */
}

void ecfs_staged_stream_moved_locked (EcfsStagedTable *table, EcfsStaged *self, uint64_t n_new_bytes, uint64_t end)
{
    uint64_t run_before = self->run_bytes;
    if (n_new_bytes == 0)
        self->run_bytes = MIN (self->run_bytes, self->run_ceiling);
    else if (end - n_new_bytes <= self->run_bytes)
        self->run_bytes = MAX (self->run_bytes, end);
    if (self->run_bytes > run_before) /* who writes behind a gap keeps no place */
        self->moved_us = ecfs_now_us ();
    if (self->n_changing == 0)
        self->run_ceiling = UINT64_MAX;
    if (self->phase == ECFS_PHASE_STREAMING)
        ecfs_feed_grow (self->feed, MIN (self->run_bytes, self->run_ceiling));
    else if (may_begin_locked (table, self))
        begin_locked (table, self);
}

void ecfs_staged_stream_abandon_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    if (self->phase == ECFS_PHASE_STREAMING)
        ecfs_feed_abandon (self->feed);
}

void ecfs_staged_stream_finish_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    EcfsFeedState state;
    ecfs_feed_look (self->feed, &state);
    if (state.abandoned || self->run_bytes != self->size) {
        ecfs_feed_abandon (self->feed); /* its end comes back here */
        return;
    }
    self->phase = ECFS_PHASE_COMMITTING;
    self->attempt_generation = self->generation;
    self->attempt_mtime_ns = self->mtime_ns;
    self->attempt_ctime_ns = self->ctime_ns;
    self->attempt_size = self->size;
    self->attempt_bytes = self->charged_bytes;
    self->attempt_began_us = ecfs_now_us (); /* that its writer took long says nothing of uploads */
    ecfs_feed_finish (self->feed, self->size);
}

bool ecfs_staged_stream_ended_locked (EcfsStagedTable *table, EcfsStaged *self, const EcfsOutcome *outcome)
{
    bool moved = self->generation != self->attempt_generation || self->n_changing > 0;
    if (self->feed == NULL)
        return false;
    g_queue_unlink (&table->streaming, &self->stream_link);
    ecfs_feed_unref (g_steal_pointer (&self->feed));
    bool failed = ecfs_staged_is_committing (self) && outcome->error != NULL && !outcome->kept && !moved;
    if (self->phase != ECFS_PHASE_STREAMING && !failed)
        return false;
    self->stream_from_bytes = 2 * self->run_bytes;
    g_info ("%s; what was sent while it was being written cannot be used", outcome->error->message);
    return true;
}

int64_t ecfs_staged_stream_expire_locked (EcfsStagedTable *table, int64_t now_us)
{
    int64_t next_us = INT64_MAX;
    for (const GList *l = table->streaming.head; l != NULL; l = l->next) {
        EcfsStaged *self = l->data;
        int64_t until_us = self->moved_us + table->stream_patience_us;
        if (self->phase == ECFS_PHASE_STREAMING && until_us <= now_us)
            ecfs_feed_abandon (self->feed);
        else if (self->phase == ECFS_PHASE_STREAMING)
            next_us = MIN (next_us, until_us);
    }
    return next_us;
}
