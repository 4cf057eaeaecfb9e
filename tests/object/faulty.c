#include "faulty.h"

#include "endpoint/core/driver.h"
#include "util/io.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES 32768
#define LOOK_US     2000 /* how often a stalled request looks whether its fault was switched off */

/* A read or write under way. */
typedef struct Job {
    GByteArray *bytes;    /* written so far, or the content of the file that is read */
    const uint8_t *piece; /* pulled and not yet taken */
    size_t piece_bytes;
    size_t range_index, filled;
    long long delivered;
    int64_t next_us; /* not before */
} Job;

typedef struct Connection {
    EcfsSlot *slot;
    const char *root;
    Faults *faults;
    GQueue jobs; /* of EcfsStream with a Job */
} Connection;

Faults *faults_of (const char *name)
{
    static GMutex lock;
    static GHashTable *all;
    g_mutex_lock (&lock);
    if (all == NULL)
        all = g_hash_table_new (g_str_hash, g_str_equal);
    Faults *faults = g_hash_table_lookup (all, name);
    if (faults == NULL) {
        faults = g_new0 (Faults, 1);
        faults_reset (faults);
        g_hash_table_insert (all, g_strdup (name), faults);
    }
    g_mutex_unlock (&lock);
    return faults;
}

void faults_reset (Faults *self)
{
    atomic_store (&self->read_code, 0);
    atomic_store (&self->read_fail_after, 0);
    atomic_store (&self->read_stall_at, FAULTS_NEVER);
    atomic_store (&self->read_deaf, false);
    atomic_store (&self->write_code, 0);
    atomic_store (&self->write_fail_after, 0);
    atomic_store (&self->write_stall_at, FAULTS_NEVER);
    atomic_store (&self->commit_code, 0);
    atomic_store (&self->owes, false);
    atomic_store (&self->pace_us, 0);
    atomic_store (&self->n_reads, 0);
    atomic_store (&self->n_writes, 0);
}

static void *new_config (const EcfsEndpointSpec *spec, GError **error)
{
    return ecfs_url_path (spec->url, error);
}

static void *faulty_connect (EcfsSlot *slot, bool make_root, GError **error)
{
    (void) make_root;
    (void) error;
    Connection *self = g_new0 (Connection, 1);
    self->slot = slot;
    self->root = ecfs_slot_config (slot);
    self->faults = faults_of (ecfs_slot_endpoint_name (slot));
    g_queue_init (&self->jobs);
    ecfs_slot_capabilities (slot, ECFS_CAN_RENAME);
    return self;
}

static bool stalled (long long at, long long moved)
{
    return at != FAULTS_NEVER && moved >= at;
}

static void job_end (Connection *self, EcfsStream *request, int code)
{
    Job *job = g_steal_pointer (&request->driver_data);
    g_queue_remove (&self->jobs, request);
    g_byte_array_unref (job->bytes);
    g_free (job);
    if (code == 0)
        ecfs_request_finish (request, 0, NULL);
    else
        ecfs_request_fail (request, code, "%s: %s", request->name, g_strerror (code));
}

static void begin (Connection *self, EcfsStream *request)
{
    bool reading = request->kind == ECFS_REQUEST_READ;
    g_autofree char *path = g_build_filename (self->root, request->name, NULL);
    g_autofree char *content = NULL;
    size_t size = 0;
    if (reading && !g_file_get_contents (path, &content, &size, NULL)) {
        ecfs_request_fail (request, ENOENT, "%s: not there", request->name);
        return;
    }
    atomic_fetch_add (reading ? &self->faults->n_reads : &self->faults->n_writes, 1);
    Job *job = g_new0 (Job, 1);
    job->bytes = reading ? g_byte_array_new_take ((uint8_t *) g_steal_pointer (&content), size) : g_byte_array_new ();
    request->driver_data = job;
    g_queue_push_tail (&self->jobs, request);
}

/* Delivers one piece; false when nothing can be done now. */
static bool read_step (Connection *self, EcfsStream *request)
{
    Job *job = request->driver_data;
    const EcfsRange *range = &request->ranges[job->range_index];
    bool stalls = stalled (atomic_load (&self->faults->read_stall_at), job->delivered);
    if (ecfs_request_cancelled (request) && !(stalls && atomic_load (&self->faults->read_deaf))) {
        job_end (self, request, ECANCELED);
        return true;
    }
    int code = atomic_load (&self->faults->read_code);
    if (code != 0 && job->delivered >= atomic_load (&self->faults->read_fail_after)) {
        job_end (self, request, code);
        return true;
    }
    if (stalls)
        return false;
    size_t piece = MIN (range->size - job->filled, PIECE_BYTES);
    if (range->offset + job->filled + piece > job->bytes->len) {
        job_end (self, request, EBADMSG);
        return true;
    }
    memcpy (range->to + job->filled, job->bytes->data + range->offset + job->filled, piece);
    job->filled += piece;
    job->delivered += (long long) piece;
    ecfs_request_filled (request, job->range_index, job->filled);
    if (job->filled == range->size) {
        job->filled = 0;
        if (++job->range_index == request->n_ranges)
            job_end (self, request, 0);
    }
    return true;
}

/* Gives the file its name for good: never replaces. Returns 0 or an errno. */
static int commit (Connection *self, EcfsStream *request)
{
    const Job *job = request->driver_data;
    int code = atomic_load (&self->faults->commit_code);
    if (code != 0)
        return code;
    g_autofree char *path = g_build_filename (self->root, request->name, NULL);
    g_autofree char *directory = g_path_get_dirname (path);
    if (g_mkdir_with_parents (directory, 0700) != 0)
        return errno;
    ecfs_autofd fd = open (path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd < 0 ? errno : -ecfs_write_all (fd, job->bytes->data, job->bytes->len);
}

/* Takes one piece; false when nothing can be done now. */
static bool write_step (Connection *self, EcfsStream *request)
{
    Job *job = request->driver_data;
    int code = atomic_load (&self->faults->write_code);
    bool stalls = stalled (atomic_load (&self->faults->write_stall_at), job->bytes->len);
    if (stalls && atomic_load (&self->faults->owes))
        return false;
    if (ecfs_request_cancelled (request))
        code = ECANCELED;
    else if (job->bytes->len < atomic_load (&self->faults->write_fail_after))
        code = 0;
    if (code != 0) {
        job_end (self, request, code);
        return true;
    }
    if (stalls)
        return false;
    if (job->piece_bytes == 0) {
        EcfsPull answer = ecfs_request_pull (request, &job->piece, &job->piece_bytes);
        if (answer == ECFS_PULL_LATER)
            return false;
        if (answer != ECFS_PULL_BYTES) {
            job_end (self, request, answer == ECFS_PULL_END ? commit (self, request) : ECANCELED);
            return true;
        }
    }
    size_t piece = MIN (job->piece_bytes, PIECE_BYTES);
    g_byte_array_append (job->bytes, job->piece, (guint) piece);
    job->piece += piece;
    job->piece_bytes -= piece;
    ecfs_request_acknowledge (request, job->bytes->len);
    return true;
}

/* Moves every request on by a piece; whether any had something to do. */
static bool step_all (Connection *self)
{
    bool moved = false;
    int64_t now_us = ecfs_now_us ();
    int64_t pace_us = atomic_load (&self->faults->pace_us);
    for (GList *at = self->jobs.head, *next; at != NULL; at = next) {
        next = at->next;
        EcfsStream *request = at->data;
        Job *job = request->driver_data;
        if (now_us < job->next_us)
            continue;
        job->next_us = now_us + pace_us;
        moved |= request->kind == ECFS_REQUEST_READ ? read_step (self, request) : write_step (self, request);
    }
    return moved;
}

static bool faulty_serve (EcfsSlot *slot, void *connection, GError **error)
{
    Connection *self = connection;
    bool owed = false;
    while (ecfs_slot_check (slot, error)) {
        EcfsStream *request = ecfs_slot_take (slot);
        if (request != NULL && request->kind != ECFS_REQUEST_READ && request->kind != ECFS_REQUEST_WRITE)
            ecfs_request_fail (request, ENOTSUP, "only reads and writes");
        else if (request != NULL)
            begin (self, request);
        bool moved = step_all (self) || request != NULL;
        bool owes = atomic_load (&self->faults->owes) && !g_queue_is_empty (&self->jobs);
        if (owes != owed)
            ecfs_slot_owed (slot, owes ? ECFS_OWES_ANSWER : ECFS_OWES_NOTHING);
        owed = owes;
        if (!moved)
            (void) ecfs_slot_wait (slot, ecfs_now_us () + LOOK_US);
    }
    EcfsStream *request;
    while ((request = g_queue_pop_head (&self->jobs)) != NULL) {
        Job *job = g_steal_pointer (&request->driver_data);
        g_byte_array_unref (job->bytes);
        g_free (job);
    }
    return false;
}

void faulty_register (void)
{
    static const char *const keys[] = {ECFS_COMMON_OPTION_KEYS, NULL};
    static const EcfsDriver driver = {
        .scheme = "faulty",
        .option_keys = keys,
        .default_connections = 1,
        .new_config = new_config,
        .free_config = g_free,
        .connect = faulty_connect,
        .serve = faulty_serve,
        .disconnect = g_free,
    };
    ecfs_endpoint_register_for_tests (&driver);
}
