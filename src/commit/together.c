#include "commit/together.h"

#include "archive/common.h"
#include "util/io.h"

#include <string.h>
#include <unistd.h>

#define MOST_FILES 256 /* each keeps its staged file open; small packs are made one later */
#define MOST_BYTES (16u << 20)
#define LINGER_US  100000               /* for one more, since the last came */
#define MOST_US    (2 * G_USEC_PER_SEC) /* in all */
#define LOOK_US    20000

/* An attempt of a batch, and what became of it. */
typedef struct Member {
    EcfsCommitAttempt *attempt;
    EcfsPackFile file;
    GError *error;
    bool is_in;     /* the pack has its content */
    bool is_stored; /* which is the file's */
} Member;

/* What attempts have in common that come into one batch. */
typedef struct Kind {
    char *code;
    EcfsRuled ruled;
    char *key; /* code and rules */
} Kind;

/* Attempts that wait for each other, lent by the first of them. */
typedef struct Batch {
    GArray *members; /* of Member; guarded by the lock until nobody comes in any more, as all below */
    uint64_t bytes;
    int64_t begun_us;
    int64_t last_us; /* when one came last */
} Batch;

struct EcfsTogether {
    EcfsMutex lock;
    EcfsCond filled;
    GHashTable *open; /* code and rules → Batch that others may come into; guarded by lock */
};

EcfsTogether *ecfs_together_new (void)
{
    EcfsTogether *self = g_new0 (EcfsTogether, 1);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->filled);
    self->open = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    return self;
}

void ecfs_together_free (EcfsTogether *self)
{
    if (self == NULL)
        return;
    g_hash_table_unref (self->open);
    ecfs_cond_clear (&self->filled);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

static void member_clear (gpointer data)
{
    g_clear_error (&((Member *) data)->error);
}

static EcfsCatalog *catalog_of (const EcfsCommitAttempt *attempt)
{
    return ecfs_archive_catalog (attempt->archive);
}

/* Coming together */

static void enter_locked (Batch *batch, EcfsCommitAttempt *attempt)
{
    const Member member = {.attempt = attempt};
    g_array_append_val (batch->members, member);
    batch->bytes += attempt->commit.size;
    batch->last_us = ecfs_now_us ();
}

static bool takes (const Batch *batch, uint64_t bytes)
{
    return batch->members->len < MOST_FILES && batch->bytes + bytes <= MOST_BYTES;
}

/* Whether it became one of a batch that waits; else it opens @batch. */
static bool join (EcfsTogether *self, const char *key, EcfsCommitAttempt *attempt, Batch *batch)
{
    ecfs_mutex_lock (&self->lock);
    Batch *other = g_hash_table_lookup (self->open, key);
    bool joins = other != NULL && takes (other, attempt->commit.size);
    if (joins) {
        if (attempt->commit.joined != NULL)
            attempt->commit.joined (attempt->commit.user);
        enter_locked (other, attempt);
    } else {
        *batch = (Batch){.members = g_array_new (FALSE, TRUE, sizeof (Member)), .begun_us = ecfs_now_us ()};
        g_array_set_clear_func (batch->members, member_clear);
        enter_locked (batch, attempt);
        g_hash_table_insert (self->open, g_strdup (key), batch); /* who waits with a full one sees that */
    }
    if (other != NULL && (!joins || !takes (other, 1)))
        ecfs_cond_broadcast (&self->filled);
    ecfs_mutex_unlock (&self->lock);
    return joins;
}

static bool waits (const Batch *batch, EcfsCommitAttempt *first)
{
    const int64_t now_us = ecfs_now_us ();
    return takes (batch, 1) && now_us - batch->last_us < LINGER_US && now_us - batch->begun_us < MOST_US &&
           !ecfs_attempt_is_cancelled (first);
}

/* Until nobody comes into the batch any more. */
static void await_others (EcfsTogether *self, const char *key, EcfsCommitAttempt *first, Batch *batch)
{
    ecfs_mutex_lock (&self->lock);
    while (g_hash_table_lookup (self->open, key) == batch && waits (batch, first))
        (void) ecfs_cond_wait_until (&self->filled, &self->lock, ecfs_now_us () + LOOK_US); /* either way it looks */
    if (g_hash_table_lookup (self->open, key) == batch)
        g_hash_table_remove (self->open, key);
    ecfs_mutex_unlock (&self->lock);
}

/* Their content */

static int by_path (gconstpointer a, gconstpointer b)
{
    return strcmp (((const Member *) a)->attempt->path, ((const Member *) b)->attempt->path);
}

static uint64_t packet_bytes (EcfsArchive *archive, const char *code)
{
    const EcfsCodec *codec = ecfs_archive_codec (archive, code, NULL);
    return codec == NULL ? MOST_BYTES
                         : ecfs_layout_segment_bytes (ecfs_archive_config (archive)->segment_size, ecfs_codec_k (codec),
                                                      ecfs_codec_granule (codec)) /
                               ecfs_codec_k (codec);
}

/* Writes contents one behind another, none across packets where that can be helped. What cannot be read fails alone.
 * Returns the bytes in all; 0: error, or there is nothing. */
static uint64_t lay_out (const Batch *batch, const char *code, int fd, GError **error)
{
    const EcfsCommitAttempt *first = g_array_index (batch->members, Member, 0).attempt;
    const uint64_t packet = packet_bytes (first->archive, code);
    uint64_t size = 0;
    for (guint i = 0; i < batch->members->len; i++) {
        Member *member = &g_array_index (batch->members, Member, i);
        const uint64_t length = member->attempt->commit.size, left = packet - size % packet;
        member->file = (EcfsPackFile){.ino = member->attempt->commit.ino,
                                      .length = length,
                                      .offset = length > left && length <= packet ? size + left : size,
                                      .mtime_ns = member->attempt->commit.mtime_ns,
                                      .is_staged = true,
                                      /* Taken before it is read: what the catalog changes from now on is newer. */
                                      .generation = ecfs_catalog_sequence (catalog_of (first))};
        g_autofree uint8_t *content = ecfs_attempt_read_all (member->attempt, member->file.sha256, &member->error);
        if (content == NULL)
            continue;
        int result = ecfs_pwrite_all (fd, content, length, member->file.offset);
        if (result < 0) {
            (void) !ecfs_fail_errno (error, -result, "%s", ecfs_archive_directory (first->archive));
            return 0;
        }
        size = member->file.offset + length;
        member->is_in = true;
    }
    return size;
}

/* Publishing */

static void end_published (Member *member, bool full, bool durable, bool kept, const GError *why)
{
    EcfsOutcome *outcome = &member->attempt->outcome;
    outcome->full = full;
    member->is_stored = member->error == NULL && durable;
    if (member->error == NULL && !durable) {
        member->error = g_error_copy (why);
        outcome->kept = kept;
    }
}

/* All that did not change meanwhile; EcfsPackOrder.put_in (). */
static bool publish_all (void *user, const EcfsObjectRow *pack, bool full, GError **error)
{
    Batch *batch = user;
    const guint n_members = batch->members->len;
    g_autofree EcfsPublish *publishes = g_new0 (EcfsPublish, n_members);
    g_autofree EcfsLogged *places = g_new0 (EcfsLogged, n_members);
    g_autofree GError **errors = g_new0 (GError *, n_members);
    g_autofree Member **published = g_new0 (Member *, n_members);
    g_autoptr (GError) why = NULL;
    bool kept = false;
    size_t n = 0;
    for (guint i = 0; i < n_members; i++) {
        Member *member = &g_array_index (batch->members, Member, i);
        const EcfsPackFile *file = &member->file;
        if (!member->is_in || !ecfs_attempt_may_publish (member->attempt, &member->error))
            continue;
        places[n] = (EcfsLogged){.log = pack->uuid,
                                 .offset = file->offset,
                                 .end = file->offset + file->length,
                                 .generation = file->generation};
        memcpy (places[n].sha256, file->sha256, ECFS_SHA256_SIZE);
        publishes[n] = ecfs_attempt_publish (member->attempt);
        publishes[n].logged = &places[n];
        publishes[n].full = full;
        published[n++] = member;
    }
    const EcfsCommitAttempt *first = g_array_index (batch->members, Member, 0).attempt;
    bool durable = ecfs_catalog_publish_some (catalog_of (first), publishes, n, errors, &kept, &why);
    for (size_t i = 0; i < n; i++) {
        published[i]->error = errors[i];
        end_published (published[i], full, durable, kept, why);
    }
    if (!durable)
        g_propagate_error (error, g_steal_pointer (&why));
    return durable;
}

static void note_end (void *user, const EcfsOutcome *outcome)
{
    GError **error = user;
    *error = outcome->error == NULL ? NULL : g_error_copy (outcome->error);
}

static bool store_pack (Batch *batch, const Kind *kind, GError **error)
{
    const EcfsCommitAttempt *first = g_array_index (batch->members, Member, 0).attempt;
    GError *why = NULL;
    ecfs_autofd fd = ecfs_nameless_file (ecfs_archive_directory (first->archive), error);
    uint64_t size = fd < 0 ? 0 : lay_out (batch, kind->code, fd, error);
    if (size == 0)
        return false;
    g_autoptr (GArray) files = g_array_new (FALSE, FALSE, sizeof (EcfsPackFile));
    for (guint i = 0; i < batch->members->len; i++)
        if (g_array_index (batch->members, Member, i).is_in)
            g_array_append_val (files, g_array_index (batch->members, Member, i).file);
    EcfsPackOrder order = {.files = (const EcfsPackFile *) (void *) files->data,
                           .n_files = files->len,
                           .put_in = publish_all,
                           .user = batch};
    g_autofree char *text = g_strdup_printf ("%s and other small files", first->path);
    ecfs_attempt_run_here (first->archive, &(EcfsCommit){.kind = ECFS_COMMIT_PACK,
                                                         .size = size,
                                                         .path = text,
                                                         .done = note_end,
                                                         .user = &why,
                                                         .fd = fd,
                                                         .code = kind->code,
                                                         .marks = kind->ruled.marks,
                                                         .pack = &order});
    if (why == NULL)
        return true;
    g_propagate_error (error, why);
    return false;
}

/* Whether each of them may be stored for itself where the pack was not. */
static bool may_go_apart (const GError *why)
{
    return why != NULL && why->code != ECANCELED && why->code != EROFS;
}

/* @why: what came to nothing with the pack; NULL: each has its own reason. */
static void end_all (Batch *batch, const GError *why)
{
    for (guint i = 0; i < batch->members->len; i++) {
        Member *member = &g_array_index (batch->members, Member, i);
        const bool is_left = member->error == NULL && !member->is_stored;
        if (is_left && may_go_apart (why))
            ecfs_attempt_queue_apart (member->attempt);
        else
            ecfs_attempt_end (member->attempt, is_left ? g_error_copy (why) : g_steal_pointer (&member->error));
    }
}

static void store_batch (Batch *batch, const Kind *kind)
{
    g_autoptr (GError) why = NULL;
    g_array_sort (batch->members, by_path);
    if (batch->members->len == 1)
        (void) !ecfs_fail (&why, ENOTSUP, "there is nothing to store it with");
    else if (!store_pack (batch, kind, &why) && why != NULL)
        g_info ("%u small files are not stored together: %s", batch->members->len, why->message);
    end_all (batch, why);
}

static bool find_kind (EcfsCommitAttempt *attempt, Kind *kind, GError **error)
{
    const EcfsCommit *commit = &attempt->commit;
    kind->code = g_strdup (commit->code);
    if ((kind->code == NULL && !ecfs_catalog_get_code (catalog_of (attempt), commit->ino, &kind->code, error)) ||
        !ecfs_attempt_file_rules (attempt, &kind->ruled, error))
        return false;
    if (kind->code == NULL)
        kind->code = g_strdup (ecfs_archive_config (attempt->archive)->code);
    kind->key = g_strconcat (kind->code, " ", kind->ruled.marks, NULL); /* NULL marks end it */
    return true;
}

static void kind_clear (Kind *kind)
{
    g_free (kind->code);
    g_free (kind->key);
    ecfs_ruled_clear (&kind->ruled);
}

void ecfs_together_take (EcfsTogether *self, EcfsCommitAttempt *attempt)
{
    Batch batch;
    GError *error = NULL;
    Kind kind = {.code = NULL};
    if (!find_kind (attempt, &kind, &error)) {
        ecfs_attempt_end (attempt, error);
    } else if (!join (self, kind.key, attempt, &batch)) {
        await_others (self, kind.key, attempt, &batch);
        store_batch (&batch, &kind);
        g_array_unref (batch.members);
    }
    kind_clear (&kind);
}
