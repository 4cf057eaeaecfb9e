#include "commit/commit_priv.h"

#include "archive/common.h"
#include "catalog/past.h"
#include "commit/together.h"

#include <assert.h>

/* Stripes of an attempt that came to nothing, or that no stripe_set took, are queued for deletion. */
static void abort_intents (EcfsCommitAttempt *self)
{
    for (guint i = 0; i < self->parts->len; i++) {
        const EcfsCommitObject *part = g_ptr_array_index (self->parts, i);
        g_autoptr (GError) error = NULL;
        if (part->intent != 0 &&
            !ecfs_catalog_intent_abort (ecfs_archive_catalog (self->archive), part->intent, &error))
            g_warning ("%s: %s; the next mount cleans up", self->path, error->message);
    }
}

/* What is told to users: full and quota errors of endpoints keep their code, the rest is EIO but for what fs expects.
 */
static int outcome_code (const GError *error)
{
    switch (error->code) {
    case ENOSPC:
    case EDQUOT:
    case ECANCELED:
    case ESTALE:
    case EROFS:
    case EINPROGRESS:
        return error->code;
    default:
        return EIO;
    }
}

static bool open_content (EcfsCommitAttempt *self, GError **error)
{
    if (ecfs_attempt_is_cancelled (self))
        return ecfs_fail (error, ECANCELED, "cancelled");
    g_autofree char *old = ecfs_archive_trouble (self->archive);
    if (old != NULL)
        return ecfs_fail (error, EROFS, "%s", old);
    if (self->commit.open != NULL)
        self->commit.fd = self->commit.open (self->commit.user, error);
    self->outcome.opened = self->commit.open != NULL && self->commit.fd >= 0;
    return self->commit.fd >= 0 || self->commit.kind == ECFS_COMMIT_REPAIR;
}

static bool is_new (const EcfsCommit *commit)
{
    return commit->kind == ECFS_COMMIT_STORE || commit->kind == ECFS_COMMIT_STREAM;
}

/* Else it is about many, or about what no file has any more. */
static bool has_file (const EcfsCommit *commit)
{
    return commit->kind != ECFS_COMMIT_PACK && !ecfs_object_is_past (commit->object);
}

static bool is_counted (const EcfsCommitAttempt *self)
{
    return self->commit.kind != ECFS_COMMIT_BACKFILL && self->commit.kind != ECFS_COMMIT_REPAIR;
}

void ecfs_attempt_end (EcfsCommitAttempt *self, GError *error)
{
    if (is_counted (self))
        ecfs_archive_count_storing (self->archive, false);
    abort_intents (self);
    if (error != NULL) {
        error->code = outcome_code (error);
        g_prefix_error (&error, is_new (&self->commit) && !self->early ? "%s: cannot be stored: " : "%s: ", self->path);
    }
    self->outcome.error = error;
    self->commit.done (self->commit.user, &self->outcome);
    g_clear_error (&error);
    g_clear_error (&self->spare_error);
    g_clear_error (&self->early_error);
    if (self->missing != NULL)
        g_string_free (self->missing, TRUE);
    g_ptr_array_unref (self->parts);
    if (self->uuids != NULL)
        g_hash_table_unref (self->uuids);
    g_free (self->path);
    ecfs_file_facts_clear (&self->facts);
    g_free ((char *) self->commit.code);
    g_free ((char *) self->commit.path);
    g_free ((char *) self->commit.marks);
    ecfs_ruled_clear (&self->ruled);
    g_free (self);
}

static bool run_kind (EcfsCommitAttempt *self, bool *ret_together, GError **error)
{
    switch (self->commit.kind) {
    case ECFS_COMMIT_STORE:
    case ECFS_COMMIT_STREAM:
        return ecfs_attempt_store (self, ret_together, error);
    case ECFS_COMMIT_BACKFILL:
        return ecfs_attempt_backfill (self, error);
    case ECFS_COMMIT_RECODE:
        return ecfs_attempt_recode (self, error);
    case ECFS_COMMIT_REPAIR:
        return ecfs_attempt_repair (self, error);
    case ECFS_COMMIT_PACK:
        return ecfs_attempt_pack (self, error);
    }
    g_assert_not_reached ();
}

static bool find_facts (EcfsCommitAttempt *self, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    bool known = !has_file (&self->commit) ||
                 ecfs_catalog_file_facts (catalog, self->commit.ino, ECFS_PLACES_ATTRIBUTE, &self->facts, error);
    const char *path = self->commit.path != NULL ? self->commit.path : self->facts.path;
    self->attr = self->facts.attr;
    self->path = path != NULL ? g_strdup (path) : ecfs_catalog_path (catalog, self->commit.ino);
    return known;
}

static void run_attempt (void *data)
{
    EcfsCommitAttempt *self = data;
    GError *error = NULL;
    bool is_together = false;
    self->parts = ecfs_attempt_parts ();
    if (is_counted (self)) /* repairs wait for those */
        ecfs_archive_count_storing (self->archive, true);
    if (self->commit.retry)
        ecfs_archive_revive_endpoints (self->archive);
    if (!find_facts (self, &error))
        error->code = error->code == ENOENT && self->commit.kind == ECFS_COMMIT_REPAIR ? ESTALE : error->code;
    else if (open_content (self, &error))
        (void) run_kind (self, &is_together, &error); /* error says it */
    if (is_together)
        ecfs_together_take (ecfs_archive_service (self->archive, ECFS_SERVICE_TOGETHER), self);
    else
        ecfs_attempt_end (self, error);
}

static void run_apart (void *data)
{
    EcfsCommitAttempt *self = data;
    GError *error = NULL;
    (void) ecfs_attempt_store_apart (self, &error); /* error says it */
    ecfs_attempt_end (self, error);
}

void ecfs_attempt_queue_apart (EcfsCommitAttempt *self)
{
    ecfs_workers_push (ecfs_archive_workers (self->archive, ECFS_STORES_STAGED), run_apart, self);
}

/* In debug builds: what belongs to the kind is there, and nothing that belongs to others only. */
static void check_kind (const EcfsCommit *commit)
{
    EcfsCommitKind kind = commit->kind;
    assert (kind >= ECFS_COMMIT_STORE && kind <= ECFS_COMMIT_PACK);
    assert ((commit->ino != 0) == has_file (commit) && commit->done != NULL);
    assert (has_file (commit) || commit->path != NULL);
    assert ((commit->pack != NULL) == (kind == ECFS_COMMIT_PACK));
    assert (kind != ECFS_COMMIT_PACK || (commit->path != NULL && commit->code != NULL));
    assert (commit->open != NULL || commit->fd >= 0 || kind == ECFS_COMMIT_REPAIR);
    assert ((commit->object != 0) == (kind == ECFS_COMMIT_RECODE || kind == ECFS_COMMIT_REPAIR));
    assert (commit->code == NULL || is_new (commit) || kind == ECFS_COMMIT_RECODE || kind == ECFS_COMMIT_PACK);
    assert (is_new (commit) || (commit->publish.staging == 0 && commit->publish.time_told == NULL));
    assert (is_new (commit) || (commit->publish.published == NULL && !commit->publish.at_quorum));
    assert (!commit->seals || (kind == ECFS_COMMIT_RECODE && commit->code == NULL));
    assert ((commit->stream.feed != NULL) == (kind == ECFS_COMMIT_STREAM));
    assert ((commit->stream.ended != NULL) == (kind == ECFS_COMMIT_STREAM));
    assert ((commit->repair.order != NULL) == (kind == ECFS_COMMIT_REPAIR));
    assert (commit->repair.pace == NULL || kind == ECFS_COMMIT_REPAIR);
    (void) kind; /* read by the assertions only */
}

static EcfsCommitAttempt *attempt_new (EcfsArchive *archive, const EcfsCommit *commit)
{
    check_kind (commit);
    EcfsCommitAttempt *self = g_new0 (EcfsCommitAttempt, 1);
    self->archive = archive;
    self->commit = *commit;
    self->commit.code = g_strdup (commit->code);
    self->commit.path = g_strdup (commit->path);
    self->commit.marks = g_strdup (commit->marks);
    self->content = ecfs_uuid_new ();
    return self;
}

void ecfs_attempt_run_here (EcfsArchive *archive, const EcfsCommit *commit)
{
    run_attempt (attempt_new (archive, commit));
}

void ecfs_archive_commit (EcfsArchive *archive, const EcfsCommit *commit)
{
    EcfsStoring own = commit->kind == ECFS_COMMIT_STREAM ? ECFS_STORES_STREAMED : ECFS_STORES_STAGED;
    EcfsWorkers *workers = ecfs_archive_workers (archive, commit->is_foreign ? ECFS_STORES_PUT : own);
    ecfs_workers_push (workers, run_attempt, attempt_new (archive, commit));
}
