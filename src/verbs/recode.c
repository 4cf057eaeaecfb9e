/*
 * Files to another code, in the archive that this process has opened for writing. An object is read into a file without
 * a name in the staging area, stored from there, and put in the place of the old one by compare-and-set; where the
 * codes share stripes it only gets those that it lacks. Each object is one step: whatever ends this leaves every file
 * readable, and what is left to do is what the next run finds.
 */
#include "verbs/recode.h"
#include "archive/content_check.h"

#include "archive/common.h"
#include "archive/content.h"
#include "archive/ended.h"
#include "commit/commit.h"
#include "packing/packing.h"
#include "util/io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MAX_IN_FLIGHT  8
#define MAX_SPOOLED    (4ull << 30) /* bytes in the staging area, unless one object is larger */
#define PIECE_BYTES    (4u << 20)
#define TICK_US        200000
#define PACKED_AT_ONCE 4096
#define ATTEMPTS       5 /* at content of which endpoints return other bytes than they got */

typedef struct Recode {
    EcfsArchive *archive;
    const EcfsRecodeHere *what;
    EcfsTally tally;
    uint64_t wire_before;
    unsigned n_in_flight;
    uint64_t spooled;  /* bytes of what is in flight */
    GPtrArray *shared; /* files that are to be packed; held */
    atomic_bool cancelled;
    EcfsEnded ended; /* of Job */
} Recode;

/* A file whose objects are on their way; ends with the last. The caller's thread only. */
typedef struct File {
    uint64_t ino;
    char *path;
    char *code; /* that it is to have; NULL: it is sealed */
    uint64_t size;
    unsigned n_refs; /* jobs, and who begins them */
    GError *error;   /* the first */
} File;

typedef struct Job {
    Recode *recode;
    File *file; /* held */
    int64_t object;
    uint64_t size;
    bool reads;
    int fd;        /* spool; -1 before it is there */
    GError *error; /* of the attempt */
} Job;

/* The spool, on the thread of the attempt */

static bool copy_content (Job *job, EcfsContent *content, EcfsContentCheck *check, int fd, GError **error)
{
    for (uint64_t at = 0; at < job->size;) {
        EcfsBorrowed piece;
        if (atomic_load (&job->recode->cancelled))
            return ecfs_fail (error, ECANCELED, "cancelled");
        if (!ecfs_content_borrow (content, at, PIECE_BYTES, &piece, error))
            return false;
        bool right = ecfs_content_check_take (check, at, piece.iov, piece.n_iov, error);
        int result = right ? ecfs_pwritev_all (fd, piece.iov, piece.n_iov, at) : 0;
        at += piece.size;
        ecfs_content_give_back (&piece);
        if (!right)
            return false;
        if (result != 0)
            return ecfs_fail_errno (error, -result, "the staging area");
    }
    return ecfs_content_check_end (check, error);
}

static bool is_gone (const GError *error)
{
    return g_error_matches (error, ECFS_ERROR, ENOENT);
}

/* The catalog needs some of the disk, whatever the staging area would take. Asked with the space taken: of several at
 * once, each sees what the others have. */
static bool check_room (const Job *job, int fd, GError **error)
{
    struct statvfs disk;
    uint64_t reserve = ecfs_archive_config (job->recode->archive)->staging_reserve;
    if (fstatvfs (fd, &disk) != 0)
        return true; /* who cannot tell says so when it is full */
    uint64_t free_bytes = (uint64_t) disk.f_bavail * disk.f_frsize;
    return free_bytes >= reserve ||
           ecfs_fail (error, ENOSPC,
                      "this takes %" PRIu64 " bytes on the way, with which the disk of %s/staging would have %" PRIu64
                      " left, and staging_reserve is %" PRIu64 ": make room there",
                      job->size, ecfs_archive_directory (job->recode->archive), free_bytes, reserve);
}

/* *ret_again: it came from endpoints that lie, which are in @without from now on. */
static bool fill_once (Job *job, bool *without, bool is_again, int fd, bool *ret_again, GError **error)
{
    GError *why = NULL;
    EcfsContent *content = ecfs_content_open_object (job->recode->archive, job->object, &why);
    *ret_again = false;
    if (content == NULL) {
        why->code = is_gone (why) ? ESTALE : why->code;
        g_propagate_error (error, why);
        return false;
    }
    if (is_again)
        ecfs_content_leave_out (content, without);
    g_autoptr (EcfsContentCheck) check = ecfs_content_check_new (content);
    bool good = copy_content (job, content, check, fd, &why);
    const EcfsObjectRow *bad = ecfs_content_check_bad (check);
    *ret_again = bad != NULL && ecfs_content_leave_out_liars (job->recode->archive, bad, without, NULL);
    if (*ret_again)
        g_clear_error (&why);
    ecfs_content_unref (content);
    if (why != NULL)
        g_propagate_error (error, why);
    return good;
}

static bool fill_spool (Job *job, int fd, GError **error)
{
    int result = posix_fallocate (fd, 0, (off_t) job->size); /* else it is full only when most was read */
    if (result != 0 && result != EOPNOTSUPP && result != EINVAL)
        return ecfs_fail_errno (error, result, "%" PRIu64 " bytes in the staging area", job->size);
    if (!check_room (job, fd, error))
        return false;
    bool again = true, good = false;
    g_autofree bool *without = g_new0 (bool, ECFS_ENDPOINTS_MAX); /* more may come meanwhile */
    for (unsigned attempt = 0; again && attempt < ATTEMPTS; attempt++)
        good = fill_once (job, without, attempt > 0, fd, &again, error);
    return again ? ecfs_fail (error, EIO, "endpoints return other bytes than they got, another one each time") : good;
}

static int open_spool (void *user, GError **error)
{
    Job *job = user;
    g_autofree char *staging = g_build_filename (ecfs_archive_directory (job->recode->archive), "staging", NULL);
    ecfs_autofd fd = ecfs_nameless_file (staging, error);
    if (fd < 0 || (job->reads && !fill_spool (job, fd, error)))
        return -1;
    return job->fd = ecfs_steal_fd (&fd);
}

static void on_done (void *user, const EcfsOutcome *outcome)
{
    Job *job = user;
    Recode *self = job->recode;
    job->error = outcome->error == NULL ? NULL : g_error_copy (outcome->error);
    if (job->fd >= 0)
        (void) close (job->fd); /* nothing of it is needed any more */
    ecfs_ended_push (&self->ended, job);
}

/* Files */

static bool has_code (const Recode *self, const char *code, const char *wanted)
{
    return g_strcmp0 (code != NULL ? code : ecfs_archive_config (self->archive)->code, wanted) == 0;
}

/* What is written into it from now on has the code, too. */
static bool set_code (Recode *self, const File *file, GError **error)
{
    g_autofree char *code = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    if (!ecfs_catalog_get_code (catalog, file->ino, &code, error))
        return false;
    if (has_code (self, code, file->code))
        return true;
    if (!ecfs_catalog_set_code (catalog, file->ino, file->code, error))
        return false;
    if (self->what->changed != NULL)
        self->what->changed (self->what->user, file->ino);
    return true;
}

static void file_unref (Recode *self, File *file)
{
    if (--file->n_refs > 0)
        return;
    GError *error = g_steal_pointer (&file->error);
    EcfsAttr attr;
    g_autoptr (GError) gone = NULL;
    bool deleted =
        !ecfs_catalog_getattr (ecfs_archive_catalog (self->archive), file->ino, &attr, &gone) && is_gone (gone);
    if (error == NULL && !deleted && file->code != NULL && self->what->choose == NULL)
        (void) set_code (self, file, &error); /* told below */
    if (error == NULL || deleted) {
        self->tally.progress.n_done++;
        self->tally.progress.bytes_done += file->size;
        g_clear_error (&error);
    } else if (self->tally.cancelled) {
        g_clear_error (&error);
    } else {
        if (!g_str_has_prefix (error->message, file->path))
            g_prefix_error (&error, "%s: ", file->path);
        ecfs_tally_failed (&self->tally, error);
    }
    g_free (file->path);
    g_free (file->code);
    g_free (file);
}

/* Jobs */

static void conclude (Recode *self, Job *job)
{
    File *file = job->file;
    self->n_in_flight--;
    self->spooled -= job->size;
    if (file->error == NULL && g_error_matches (job->error, ECFS_ERROR, ESTALE))
        file->error = g_error_new_literal (ECFS_ERROR, ESTALE, "it was replaced meanwhile; left alone");
    else if (file->error == NULL)
        file->error = g_steal_pointer (&job->error);
    g_clear_error (&job->error);
    g_free (job);
    file_unref (self, file);
}

static void tick (Recode *self)
{
    self->tally.wire_bytes = ecfs_archive_wire_bytes (self->archive) - self->wire_before;
    if (!ecfs_tally_tick (&self->tally))
        atomic_store (&self->cancelled, true);
}

/* Takes what has ended, waiting for something at most one tick. */
static void reap (Recode *self)
{
    GQueue ended = ecfs_ended_take (&self->ended, TICK_US);
    Job *job;
    while ((job = g_queue_pop_head (&ended)) != NULL)
        conclude (self, job);
    tick (self);
}

static void submit (Recode *self, File *file, const EcfsObjectRow *object, bool reads, const EcfsAttr *attr)
{
    Job *job = g_new (Job, 1);
    *job = (Job){.recode = self, .file = file, .object = object->id, .size = object->size, .reads = reads, .fd = -1};
    /* Those of a file one after the other: the stripes of each tell which others the file has then. */
    while (file->n_refs > 1 || self->n_in_flight >= MAX_IN_FLIGHT ||
           (self->n_in_flight > 0 && self->spooled + job->size > MAX_SPOOLED))
        reap (self);
    file->n_refs++;
    self->n_in_flight++;
    self->spooled += job->size;
    EcfsCommit commit = {.kind = ECFS_COMMIT_RECODE,
                         .ino = file->ino,
                         .fd = -1,
                         .open = open_spool,
                         .size = attr->size,
                         .mtime_ns = attr->mtime_ns,
                         .code = file->code,
                         .seals = file->code == NULL,
                         .object = object->id,
                         .path = file->path,
                         .patient = true,
                         .is_foreign = true,
                         .cancelled = &self->cancelled,
                         .done = on_done,
                         .user = job};
    ecfs_archive_commit (self->archive, &commit);
}

/* Packs files that share objects, which get one code, and ends them. */
static void pack_shared (Recode *self)
{
    g_autoptr (GError) error = NULL;
    if (self->shared->len == 0)
        return;
    const char *code = ((const File *) g_ptr_array_index (self->shared, 0))->code;
    g_autofree uint64_t *inos = g_new (uint64_t, self->shared->len + 1);
    for (guint i = 0; i < self->shared->len; i++)
        inos[i] = ((const File *) g_ptr_array_index (self->shared, i))->ino;
    EcfsPacking packing = {.archive = self->archive, .code = code, .cancelled = &self->cancelled};
    (void) ecfs_pack_files (&packing, inos, self->shared->len, &error); /* told with the files */
    if (error == NULL && packing.n_left > 0)
        ecfs_tally_failed (&self->tally,
                           g_error_new (ECFS_ERROR, EIO,
                                        "%" PRIu64 " small files cannot be read, and stay where they are: "
                                        "the log says which",
                                        packing.n_left));
    for (guint i = 0; i < self->shared->len; i++) {
        File *file = g_ptr_array_index (self->shared, i);
        if (error != NULL && file->error == NULL)
            file->error = g_error_copy (error);
        file_unref (self, file);
    }
    g_ptr_array_set_size (self->shared, 0);
    tick (self);
}

static bool begin_objects (Recode *self, File *file, GError **error)
{
    bool packs = false;
    EcfsAttr attr;
    g_autoptr (GPtrArray) objects = ecfs_recode_objects (self->archive, file->ino, error);
    if (objects == NULL || !ecfs_catalog_getattr (ecfs_archive_catalog (self->archive), file->ino, &attr, error))
        return false;
    for (guint i = 0; i < objects->len && !self->tally.cancelled; i++) {
        const EcfsObjectRow *object = g_ptr_array_index (objects, i);
        EcfsRecodeStep step;
        if (!ecfs_recode_step (self->archive, object, file->code,
                               self->what->choose != NULL && object->size == attr.committed_size, &step, error))
            return false;
        packs = packs || (step.packs && !step.stays);
        if (!step.packs && !step.stays)
            submit (self, file, object, step.spools, &attr);
    }
    if (packs) {
        if (self->shared->len > 0 &&
            g_strcmp0 (((const File *) g_ptr_array_index (self->shared, 0))->code, file->code) != 0)
            pack_shared (self);
        file->n_refs++;
        g_ptr_array_add (self->shared, file);
    }
    return true;
}

static void begin_file (void *user, const EcfsEntry *entry)
{
    Recode *self = user;
    if (!self->tally.cancelled)
        tick (self);
    const char *code = self->what->code;
    if (!self->tally.cancelled && self->what->choose != NULL)
        code = self->what->choose (self->what->chooser, entry);
    if (self->tally.cancelled || (self->what->choose != NULL && code == NULL))
        return;
    self->tally.progress.n_found++;
    File *file = g_new (File, 1);
    *file = (File){
        .n_refs = 1, .ino = entry->inode, .path = g_strdup (entry->path), .code = g_strdup (code), .size = entry->size};
    bool staged = true;
    if (!ecfs_catalog_is_staged (ecfs_archive_catalog (self->archive), entry->inode, &staged, &file->error))
        ; /* told with the file */
    else if (staged)
        file->error = g_error_new_literal (ECFS_ERROR, EBUSY, "what was written to it is not stored yet; left alone");
    else
        (void) begin_objects (self, file, &file->error); /* told with the file */
    file_unref (self, file);
    if (self->shared->len == PACKED_AT_ONCE)
        pack_shared (self);
}

static bool run (Recode *self, GError **error)
{
    bool walked = ecfs_recode_walk (self->archive, self->what->path, begin_file, self, error);
    while (self->n_in_flight > 0)
        reap (self);
    pack_shared (self);
    g_autoptr (GError) unkept = NULL;
    if (walked && !ecfs_catalog_barrier (ecfs_archive_catalog (self->archive), &unkept))
        ecfs_tally_failed (&self->tally, g_steal_pointer (&unkept));
    self->tally.wire_bytes = ecfs_archive_wire_bytes (self->archive) - self->wire_before;
    return ecfs_tally_end (&self->tally, "were not recoded", walked ? error : NULL) && walked;
}

static bool recode (EcfsArchive *archive, const EcfsRecodeHere *what, GError **error)
{
    Recode self = {.archive = archive,
                   .what = what,
                   .tally = {.transfer = what->transfer},
                   .wire_before = ecfs_archive_wire_bytes (archive)};
    atomic_init (&self.cancelled, false);
    ecfs_ended_init (&self.ended);
    self.shared = g_ptr_array_new ();
    bool good = run (&self, error);
    g_ptr_array_unref (self.shared);
    ecfs_ended_clear (&self.ended);
    return good;
}

bool ecfs_recode_here (EcfsArchive *archive, const EcfsRecodeHere *what, GError **error)
{
    if (what->choose != NULL)
        return recode (archive, what, error);
    if (what->code == NULL)
        return ecfs_recode_check_key (archive, error) && recode (archive, what, error);
    const EcfsCodec *codec =
        ecfs_archive_check_code (archive, what->code, error) ? ecfs_archive_codec (archive, what->code, error) : NULL;
    if (codec == NULL)
        return false;
    EcfsRecodeHere named = *what;
    named.code = ecfs_codec_code (codec);
    return recode (archive, &named, error);
}

/* @code NULL: it is sealed. */
static bool recode_either (Ecfs *self, const char *path, const char *code, const EcfsTransferOptions *transfer,
                           GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    const EcfsRecodeHere what = {.path = path, .code = code, .transfer = transfer};
    if (!ecfs_check_leads (self, error))
        return false;
    return self->mounted ? ecfs_recode_mounted (directory, path, code, transfer, error)
                         : ecfs_recode_here (self->archive, &what, error);
}

bool ecfs_recode (Ecfs *self, const char *path, const char *code, const EcfsTransferOptions *transfer, GError **error)
{
    return recode_either (self, path, code, transfer, error);
}

bool ecfs_recode_seal (Ecfs *self, const char *path, const EcfsTransferOptions *transfer, GError **error)
{
    return recode_either (self, path, NULL, transfer, error);
}
