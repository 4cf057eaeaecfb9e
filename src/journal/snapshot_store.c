/* Taking a snapshot: the records go to a nameless file beside the catalog first, so that the catalog is read for as
 * long as that takes, and not for as long as the endpoints do. */
#include "archive/common.h"
#include "journal/journal_io.h"
#include "journal/snapshot.h"
#include "util/io.h"

#include <inttypes.h>
#include <sys/statvfs.h>

#define PART_BYTES (4u << 20) /* of records, about */

/* Writing the records down */

_Atomic uint64_t ecfs_snapshot_copy_bytes = UINT64_C (64) << 20; /* which are read in less than a second */

typedef struct Part {
    uint32_t n_records;
    uint32_t size;
} Part;

typedef struct Taking {
    const EcfsSnapshotOrder *order;
    char *directory;      /* of the catalog */
    int fd;               /* of the nameless file */
    GArray *parts;        /* of Part, as they follow each other there */
    uint64_t bytes;       /* of all of them */
    GByteArray *raw;      /* the part that is being filled or sent */
    EcfsJournalFile file; /* … and its header */
    size_t failed;        /* the endpoint that could not store a part; n_endpoints: none */
} Taking;

static bool has_room (const Taking *self, GError **error)
{
    struct statvfs disk;
    if (fstatvfs (self->fd, &disk) != 0)
        return ecfs_fail_errno (error, errno, "%s", self->directory);
    uint64_t free_bytes = (uint64_t) disk.f_bavail * disk.f_frsize;
    return free_bytes >= self->order->reserve_bytes + self->raw->len ||
           ecfs_fail (error, ENOSPC,
                      "%s: the disk has only %" PRIu64 " bytes left, of which a snapshot of the catalog leaves %" PRIu64
                      ": make room there",
                      self->directory, free_bytes, self->order->reserve_bytes);
}

static bool end_part (Taking *self, GError **error)
{
    const Part part = {.n_records = self->file.n_records, .size = self->raw->len};
    if (!has_room (self, error))
        return false;
    int result = ecfs_pwrite_all (self->fd, self->raw->data, self->raw->len, self->bytes);
    if (result != 0)
        return ecfs_fail_errno (error, -result, "%s: a snapshot of the catalog", self->directory);
    g_array_append_val (self->parts, part);
    self->bytes += part.size;
    self->file.n_records = 0;
    g_byte_array_set_size (self->raw, 0);
    return true;
}

static bool take_record (void *user, const GByteArray *record, GError **error)
{
    Taking *self = user;
    if (self->order->stop != NULL && atomic_load (self->order->stop))
        return ecfs_fail (error, ECANCELED, "the snapshot is given up");
    if (self->raw->len > 0 && self->raw->len + record->len > PART_BYTES && !end_part (self, error))
        return false;
    ecfs_journal_file_put (self->raw, self->file.last, self->file.time_ns, record->data, record->len);
    self->file.n_records++;
    return true;
}

/* Whether it is to be copied before it is read, and can be. */
static bool wants_copy (const Taking *self)
{
    struct stat file;
    struct statvfs disk;
    if (self->order->live == NULL || stat (self->order->catalog, &file) != 0 ||
        (uint64_t) file.st_size < atomic_load (&ecfs_snapshot_copy_bytes) || fstatvfs (self->fd, &disk) != 0)
        return false;
    return (uint64_t) disk.f_bavail * disk.f_frsize >= self->order->reserve_bytes + 2 * (uint64_t) file.st_size;
}

static bool write_down_from (Taking *self, const char *path, GError **error)
{
    EcfsCatalog *catalog = ecfs_catalog_open (path, ECFS_CATALOG_READONLY, error);
    if (catalog == NULL)
        return false;
    self->file = (EcfsJournalFile){.archive = *ecfs_catalog_archive (catalog),
                                   .kind = ECFS_JOURNAL_SNAPSHOT,
                                   .epoch = ecfs_catalog_epoch (catalog),
                                   .time_ns = g_get_real_time () * 1000};
    bool written = ecfs_catalog_dump (catalog, take_record, self, &self->file.last, error) && end_part (self, error);
    (void) ecfs_catalog_close (catalog, NULL); /* nothing was written there */
    return written;
}

static bool write_down (Taking *self, GError **error)
{
    if (!wants_copy (self))
        return write_down_from (self, self->order->catalog, error);
    g_autofree char *path = g_build_filename (self->directory, ECFS_CATALOG_COPY_NAME, NULL);
    bool written =
        ecfs_catalog_copy (self->order->live, path, self->order->stop, error) && write_down_from (self, path, error);
    (void) unlink (path); /* what stays is replaced by the next */
    return written;
}

/* @done of @all have taken from @begun_us to now, and the rest takes as long in proportion. */
static bool is_in_time (const Taking *self, int64_t begun_us, uint64_t done, uint64_t all, GError **error)
{
    double now_us = (double) ecfs_now_us (), taken_us = now_us - (double) begun_us;
    double left_us = taken_us * (double) (all - done) / (double) MAX (done, 1);
    if (self->order->end_us == 0 || now_us + left_us <= (double) self->order->end_us)
        return true;
    return ecfs_fail (error, ETIME, "takes about %.0f s", (taken_us + left_us) / G_USEC_PER_SEC);
}

/* Storing them */

/* Another copy of a part is the same only where it was written by the same taking: an earlier one may have been of
 * the same moment, and have ended elsewhere. */
static bool store_part (Taking *self, GError **error)
{
    const EcfsSnapshotOrder *order = self->order;
    char name[ECFS_JOURNAL_NAME_SIZE];
    ecfs_journal_file_name (&self->file, name);
    g_autoptr (GByteArray) bytes = ecfs_journal_file_format (&self->file, self->raw, order->keys);
    for (size_t i = 0; i < order->n_endpoints; i++) {
        g_autoptr (GError) reason = NULL;
        if (ecfs_journal_store (order->endpoints[i], name, bytes, order->stop, &reason))
            continue;
        if (reason->code != EEXIST || (!ecfs_endpoint_remove_wait (order->endpoints[i], name, error) ||
                                       !ecfs_journal_store (order->endpoints[i], name, bytes, order->stop, error))) {
            if (reason->code != EEXIST)
                g_propagate_error (error, g_steal_pointer (&reason));
            self->failed = i;
            return false;
        }
    }
    return true;
}

static bool load_part (Taking *self, const Part *part, uint64_t offset, GError **error)
{
    g_byte_array_set_size (self->raw, part->size);
    ssize_t got = ecfs_pread_all (self->fd, self->raw->data, part->size, offset);
    if (got == (ssize_t) part->size)
        return true;
    return ecfs_fail_errno (error, got < 0 ? (int) -got : EIO, "%s: a snapshot of the catalog", self->directory);
}

static bool store_parts (Taking *self, GError **error)
{
    uint64_t offset = 0;
    int64_t begun_us = ecfs_now_us ();
    for (guint i = 0; i < self->parts->len; i++) {
        const Part *part = &g_array_index (self->parts, Part, i);
        self->file.part = i;
        self->file.n_records = part->n_records;
        self->file.is_last = i + 1 == self->parts->len;
        if (!load_part (self, part, offset, error) || !store_part (self, error))
            return false;
        offset += part->size;
        if (!is_in_time (self, begun_us, offset, self->bytes, error))
            return false;
    }
    return true;
}

static bool take (Taking *self, EcfsSnapshotRow *ret_row, GError **error)
{
    ecfs_autofd fd = ecfs_nameless_file (self->directory, error);
    self->fd = fd;
    if (fd < 0 || !write_down (self, error) || !store_parts (self, error))
        return false;
    *ret_row = (EcfsSnapshotRow){.epoch = self->file.epoch,
                                 .sequence = self->file.last,
                                 .time_ns = self->file.time_ns,
                                 .bytes = self->bytes,
                                 .n_copies = (uint32_t) self->order->n_endpoints};
    return true;
}

bool ecfs_snapshot_store (const EcfsSnapshotOrder *order, EcfsSnapshotRow *ret_row, size_t *ret_failed, GError **error)
{
    Taking taking = {.order = order, .failed = order->n_endpoints};
    taking.directory = order->directory != NULL ? g_strdup (order->directory) : g_path_get_dirname (order->catalog);
    taking.parts = g_array_new (FALSE, FALSE, sizeof (Part));
    taking.raw = g_byte_array_new ();
    bool stored = take (&taking, ret_row, error);
    if (ret_failed != NULL)
        *ret_failed = taking.failed;
    g_byte_array_unref (taking.raw);
    g_array_unref (taking.parts);
    g_free (taking.directory);
    return stored;
}
