/*
 * Reading over SFTP: ranges become READs that fill the window, their data goes straight into the caller's memory. Files
 * stay open for a while, so that the next read of the same file takes one round trip.
 */
#include "endpoint/sftp/sftp_priv.h"

#include <string.h>

#define MAX_OPEN_FILES 16
#define FILE_IDLE_US   (10 * G_USEC_PER_SEC)
#define CRAWL_BYTES    512         /* an answer has at least, on the average, … */
#define CRAWL_ANSWERS  16          /* … but for so many: less would keep who waits busy for ever */
#define SHORT_BYTES    (64 * 1024) /* of a READ in a short range, so that the server reads while it sends */

/* A file that is open for reading, or being opened. */
typedef struct SftpFile {
    char *name;
    EcfsSftpHandle handle;
    bool opening;
    bool unwanted;    /* to be dropped once it is open */
    bool dropped;     /* not in files any more: closed when its last user goes */
    unsigned n_users; /* reads, and the opening */
    int64_t used_us;
    GList link;
} SftpFile;

typedef struct SftpRead {
    EcfsSftpOp op;
    SftpFile *file;
    size_t ask_range, ask_at; /* the next byte to ask for */
    GQueue parts;             /* of SftpPart, asked for and not completely told, in order */
    GList link;               /* in reads */
} SftpRead;

typedef struct SftpPart {
    EcfsSftpPart base;
    SftpRead *read;
    size_t range_index, offset_in_range;
    bool done;
    unsigned n_answers;
    GList link;
} SftpPart;

/* Files */

static void file_unuse (EcfsSftp *self, SftpFile *file)
{
    file->used_us = ecfs_now_us ();
    if (--file->n_users > 0 || !file->dropped)
        return;
    if (file->handle.size > 0 && self->broken == NULL) {
        uint32_t id = ecfs_sftp_expect (self, NULL, ecfs_sftp_ignore, NULL);
        ecfs_sftp_put_handle (ecfs_sftp_out (self), ECFS_SFTP_CLOSE, id, &file->handle);
    }
    g_free (file->name);
    g_free (file);
}

static void file_drop (EcfsSftp *self, SftpFile *file)
{
    if (file->dropped)
        return;
    if (file->opening) {
        file->unwanted = true;
        return;
    }
    g_queue_unlink (&self->files, &file->link);
    file->dropped = true;
    file->n_users++;
    file_unuse (self, file);
}

static SftpFile *find_file (EcfsSftp *self, const char *name)
{
    for (GList *at = self->files.head; at != NULL; at = at->next) {
        SftpFile *file = at->data;
        if (!file->unwanted && strcmp (file->name, name) == 0)
            return file;
    }
    return NULL;
}

static void limit_files (EcfsSftp *self)
{
    GList *at = self->files.tail;
    while (at != NULL && self->files.length > MAX_OPEN_FILES) {
        SftpFile *file = at->data;
        at = at->prev;
        if (file->n_users == 0)
            file_drop (self, file);
    }
}

void ecfs_sftp_note_removed (EcfsSftpShared *shared, const char *name)
{
    ecfs_mutex_lock (&shared->lock);
    char **slot = &shared->removed[shared->n_removed++ % ECFS_SFTP_N_REMOVED];
    g_free (*slot);
    *slot = g_strdup (name);
    ecfs_mutex_unlock (&shared->lock);
}

/* Drops what others have removed since the last look; everything when that was too long ago. */
static void drop_removed (EcfsSftp *self)
{
    EcfsSftpShared *shared = self->config->shared;
    GPtrArray *removed = NULL;
    ecfs_mutex_lock (&shared->lock);
    uint64_t n_new = shared->n_removed - self->n_removed_seen;
    if (n_new > 0)
        removed = g_ptr_array_new_with_free_func (g_free);
    for (uint64_t i = self->n_removed_seen; n_new <= ECFS_SFTP_N_REMOVED && i < shared->n_removed; i++)
        g_ptr_array_add (removed, g_strdup (shared->removed[i % ECFS_SFTP_N_REMOVED]));
    self->n_removed_seen = shared->n_removed;
    ecfs_mutex_unlock (&shared->lock);
    if (removed == NULL)
        return;
    for (GList *at = self->files.head, *next; at != NULL; at = next) {
        next = at->next;
        SftpFile *file = at->data;
        if (n_new > ECFS_SFTP_N_REMOVED || g_ptr_array_find_with_equal_func (removed, file->name, g_str_equal, NULL))
            file_drop (self, file);
    }
    g_ptr_array_unref (removed);
}

void ecfs_sftp_read_tidy (EcfsSftp *self)
{
    int64_t now_us = ecfs_now_us ();
    drop_removed (self);
    for (GList *at = self->files.tail, *previous; at != NULL; at = previous) {
        previous = at->prev;
        SftpFile *file = at->data;
        if (file->n_users == 0 && now_us - file->used_us > FILE_IDLE_US)
            file_drop (self, file);
    }
}

void ecfs_sftp_files_clear (EcfsSftp *self)
{
    while (self->files.head != NULL) {
        SftpFile *file = self->files.head->data;
        g_queue_unlink (&self->files, &file->link);
        g_free (file->name);
        g_free (file);
    }
}

/* Reads */

static void part_free (SftpRead *read, SftpPart *part)
{
    g_queue_unlink (&read->parts, &part->link);
    g_free (part);
}

static void read_free (EcfsSftp *self, EcfsSftpOp *op)
{
    SftpRead *read = (SftpRead *) op;
    while (read->parts.head != NULL)
        part_free (read, read->parts.head->data);
    file_unuse (self, read->file);
    g_free (read);
}

/* Ends the request; data still under way goes nowhere. */
static void read_finish (EcfsSftp *self, SftpRead *read, GError *error)
{
    if (read->op.request == NULL) {
        g_clear_error (&error);
        return;
    }
    for (GList *at = read->parts.head; at != NULL; at = at->next)
        ((SftpPart *) at->data)->base.to = NULL;
    g_queue_unlink (&self->reads, &read->link);
    ecfs_sftp_op_finish (self, &read->op, 0, error);
}

static void read_cancel (EcfsSftp *self, EcfsSftpOp *op)
{
    read_finish (self, (SftpRead *) op, g_error_new (ECFS_ERROR, ECANCELED, "%s: cancelled", op->request->name));
}

static bool all_asked (const SftpRead *read)
{
    return read->ask_range == read->op.request->n_ranges;
}

/* Some of a part came: the caller is told when nothing before it is missing. */
static void part_filled (EcfsSftp *self, EcfsSftpPart *base)
{
    SftpPart *part = (SftpPart *) base;
    SftpRead *read = part->read;
    if (read->op.request != NULL && read->parts.head == &part->link)
        ecfs_request_filled (read->op.request, part->range_index, part->offset_in_range + base->got);
}

/* Tells what has become contiguous after the first part was completed. */
static void tell_done (EcfsSftp *self, SftpRead *read)
{
    while (read->op.request != NULL && read->parts.head != NULL) {
        SftpPart *part = read->parts.head->data;
        if (!part->done) {
            if (part->base.got > 0)
                part_filled (self, &part->base);
            return;
        }
        part_free (read, part);
        part = read->parts.head != NULL ? read->parts.head->data : NULL;
        if (part != NULL && part->done)
            part_filled (self, &part->base);
    }
    if (read->op.request != NULL && all_asked (read))
        read_finish (self, read, NULL);
}

static void on_read (EcfsSftp *self, void *data, const EcfsSftpReply *reply);

static void ask_part (EcfsSftp *self, SftpRead *read, SftpPart *part)
{
    uint32_t id = ecfs_sftp_expect_data (self, &read->op, on_read, &part->base);
    const EcfsRange *range = &read->op.request->ranges[part->range_index];
    ecfs_sftp_put_read (ecfs_sftp_out (self), id, &read->file->handle,
                        range->offset + part->offset_in_range + part->base.got,
                        (uint32_t) (part->base.size - part->base.got));
}

static void on_read (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpPart *part = data;
    SftpRead *read = part->read;
    size_t missing = part->base.size - part->base.got;
    bool detached = read->op.request == NULL;
    bool is_short = reply->type == ECFS_SFTP_DATA && missing > 0;
    bool crawls = is_short && ++part->n_answers > CRAWL_ANSWERS + part->base.size / CRAWL_BYTES;
    if (is_short && !crawls && !detached) {
        ask_part (self, read, part); /* servers may give less than was asked for */
        return;
    }
    ecfs_sftp_window_take (&self->read_window, missing, 0, self->rtt_us);
    if (missing == 0 && !detached) {
        part->done = true;
        if (read->parts.head == &part->link)
            tell_done (self, read);
        return;
    }
    if (!detached) {
        GError *error = crawls
                            ? g_error_new (ECFS_ERROR, ETIMEDOUT,
                                           "%s: the server sends a few bytes at a time, of many that it is asked for",
                                           read->op.request->name)
                            : ecfs_sftp_error (reply, ECFS_SFTP_ON_READ, read->op.request->name);
        if (error->code != EBADMSG)
            file_drop (self, read->file);
        read_finish (self, read, error);
    }
    part_free (read, part);
}

static void issue_one (EcfsSftp *self, SftpRead *read)
{
    while (read->op.request != NULL && !all_asked (read)) {
        const EcfsRange *range = &read->op.request->ranges[read->ask_range];
        size_t most = range->size > self->read_bytes ? self->read_bytes : MIN (SHORT_BYTES, self->read_bytes);
        size_t size = MIN (range->size - read->ask_at, most);
        if (!ecfs_sftp_window_room (&self->read_window, size))
            return;
        SftpPart *part = g_new0 (SftpPart, 1);
        part->base = (EcfsSftpPart){.to = range->to + read->ask_at, .size = size, .filled = part_filled};
        part->read = read;
        part->range_index = read->ask_range;
        part->offset_in_range = read->ask_at;
        part->link.data = part;
        g_queue_push_tail_link (&read->parts, &part->link);
        ecfs_sftp_window_add (&self->read_window, size);
        ask_part (self, read, part);
        read->ask_at += size;
        if (read->ask_at == range->size) {
            read->ask_range++;
            read->ask_at = 0;
        }
    }
}

void ecfs_sftp_read_issue (EcfsSftp *self)
{
    for (GList *at = self->reads.head; at != NULL; at = at->next) {
        SftpRead *read = at->data;
        if (!read->file->opening)
            issue_one (self, read);
    }
}

/* All reads that wait for a file that cannot be opened. */
static void fail_readers (EcfsSftp *self, SftpFile *file, const EcfsSftpReply *reply)
{
    for (GList *at = self->reads.head, *next; at != NULL; at = next) {
        next = at->next;
        SftpRead *read = at->data;
        if (read->file != file)
            continue;
        read_finish (self, read, ecfs_sftp_error (reply, ECFS_SFTP_ON_OPEN, read->op.request->name));
        ecfs_sftp_op_settle (self, &read->op);
    }
}

static void on_open (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    SftpFile *file = data;
    file->opening = false;
    if (reply->type == ECFS_SFTP_HANDLE) {
        file->handle = reply->handle;
    } else {
        (void) ecfs_sftp_status (self, reply); /* anything but a status breaks the connection */
        fail_readers (self, file, reply);
        file->unwanted = true;
    }
    if (file->unwanted)
        file_drop (self, file);
    file_unuse (self, file);
    limit_files (self);
}

static SftpFile *file_open (EcfsSftp *self, const char *name)
{
    SftpFile *file = find_file (self, name);
    if (file != NULL) {
        g_queue_unlink (&self->files, &file->link);
        g_queue_push_head_link (&self->files, &file->link);
        return file;
    }
    file = g_new0 (SftpFile, 1);
    file->name = g_strdup (name);
    file->link.data = file;
    file->opening = true;
    file->n_users = 1;
    g_queue_push_head_link (&self->files, &file->link);
    g_autofree char *path = ecfs_sftp_path (self, name);
    ecfs_sftp_put_open (ecfs_sftp_out (self), ecfs_sftp_expect (self, NULL, on_open, file), path, ECFS_SFTP_OPEN_READ);
    return file;
}

void ecfs_sftp_read_begin (EcfsSftp *self, EcfsStream *request)
{
    drop_removed (self);
    SftpRead *read = g_new0 (SftpRead, 1);
    read->op.cancel = read_cancel;
    read->op.free = read_free;
    read->link.data = read;
    g_queue_init (&read->parts);
    read->file = file_open (self, request->name);
    read->file->n_users++;
    limit_files (self);
    ecfs_sftp_op_begin (self, &read->op, request);
    g_queue_push_tail_link (&self->reads, &read->link);
}
