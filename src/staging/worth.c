/*
 * When the content of a staged file is worth an upload.
 *
 * An upload sends all of a file, however little of it is new. So a flush commits only while what was uploaded of this
 * file, the commit in question included, is at most the bytes written and an eighth; and what the last writer leaves
 * rests for a while, since another may come to append to it. Content that is not worth an upload is durable here, and
 * waits for the last release and its rest. A file that is written in a thousand pieces, each by a process of its own,
 * costs about twice its bytes at most: these uploads, and the last one.
 */
#include "archive/common.h"
#include "staging/staged_priv.h"

#define OVERHEAD_SHARE 8 /* uploads before the last one are the bytes written and an eighth, at most */
#define REST_MIN_US    G_USEC_PER_SEC
#define REST_MAX_US    (60 * G_USEC_PER_SEC)

bool ecfs_staged_is_worth_locked (EcfsStagedTable *table, const EcfsStaged *self)
{
    uint64_t written = self->written_bytes;
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
