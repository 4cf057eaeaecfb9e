/*
 * An archive of very many small files, for measuring what its catalog costs: bench_size make FILES ARCHIVE fills the
 * catalog of a new archive of `ecfs init`, which has six directories for endpoints and the code rs:4+2, and puts files
 * of the right names and sizes, without content, where its stripes should be; bench_size alone FILES ARCHIVE likewise,
 * with an object for each file instead of packs; bench_size snapshot ARCHIVE stores a snapshot of it.
 */
#include "archive/archive.h"
#include "archive/common.h"
#include "catalog/endpoints.h"
#include "catalog/journal.h"
#include "catalog/journal_rows.h"
#include "catalog/restore.h"
#include "journal/journal_watch.h"
#include "object/layout.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define PER_DIR    1000
#define PER_PACK   4096
#define FILE_BYTES 4096
#define N_STRIPES  6
#define N_DATA     4
#define NS         1700000000000000000

typedef struct Bench {
    EcfsCatalog *catalog;
    EcfsRestore *restore;
    EcfsEndpointRow *endpoints[N_STRIPES];
    EcfsUuid uuids[N_STRIPES];
    char *roots[N_STRIPES];
    GPtrArray *rows;
    GByteArray *record;
    uint64_t sequence;
    uint64_t ino;
    uint64_t n_refused;
    uint64_t per_object; /* files */
} Bench;

static void must (bool ok, const GError *error)
{
    if (!ok) {
        fprintf (stderr, "bench_size: %s\n", error == NULL ? "failed" : error->message);
        exit (1);
    }
}

static void flush (Bench *self)
{
    g_autoptr (GError) error = NULL;
    must (ecfs_restore_records (self->restore, self->rows, &self->n_refused, &error), error);
    g_ptr_array_set_size (self->rows, 0);
}

static void end_record (Bench *self)
{
    EcfsJournalRow *row = g_new (EcfsJournalRow, 1);
    *row = (EcfsJournalRow){.sequence = ++self->sequence, .time_ns = NS, .record = self->record};
    self->record = g_byte_array_new ();
    g_ptr_array_add (self->rows, row);
    if (self->rows->len >= 1024)
        flush (self);
}

static EcfsAttr attr_of (uint64_t ino, uint32_t mode, uint64_t size)
{
    return (EcfsAttr){.ino = ino,
                      .mode = mode,
                      .nlink = S_ISDIR (mode) ? 2 : 1,
                      .uid = 1000,
                      .gid = 1000,
                      .size = size,
                      .atime_ns = NS,
                      .mtime_ns = NS,
                      .ctime_ns = NS,
                      .btime_ns = NS};
}

static uint64_t make_directory (Bench *self, unsigned number)
{
    g_autofree char *name = g_strdup_printf ("directory-%06u", number);
    const EcfsAttr attr = attr_of (++self->ino, S_IFDIR | 0755, 0);
    ecfs_journal_put_inode (self->record, &attr, NULL);
    ecfs_journal_put_name_added (self->record, ECFS_ROOT_INO, name, attr.ino);
    end_record (self);
    return attr.ino;
}

static void put_stripe_file (const Bench *self, const EcfsObjectRow *object, const EcfsStripeRow *stripe, size_t at)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (&object->uuid, stripe->index, stripe->instance, name);
    g_autofree char *path = g_build_filename (self->roots[at], name, NULL);
    g_autofree char *directory = g_path_get_dirname (path);
    (void) g_mkdir_with_parents (directory, 0755);
    int fd = open (path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate (fd, (off_t) stripe->size) != 0 || close (fd) != 0) {
        perror (path);
        exit (1);
    }
}

static EcfsUuid make_object (Bench *self, unsigned number, uint64_t n_files)
{
    g_autoptr (EcfsObjectRow) pack = ecfs_object_row_new ();
    pack->uuid = ecfs_object_uuid (number);
    pack->code = g_strdup ("rs:4+2");
    pack->size = n_files * FILE_BYTES;
    pack->segment_bytes = 2 << 20;
    pack->block_bytes = 32 << 10;
    pack->header_bytes = 512;
    pack->epoch = ecfs_catalog_epoch (self->catalog);
    pack->sequence = self->sequence + 1;
    for (unsigned i = 0; i < N_STRIPES; i++) {
        EcfsStripeRow stripe = {.index = (uint16_t) i, .instance = 1 + number, .size = pack->size / N_DATA + 8192};
        memcpy (stripe.digest, pack->uuid.bytes, sizeof stripe.digest);
        put_stripe_file (self, pack, &stripe, i);
        g_array_append_val (pack->stripes, stripe);
    }
    ecfs_journal_put_object (self->record, pack, self->uuids);
    if (self->per_object > 1)
        ecfs_journal_put_object_kind (self->record, &pack->uuid, ECFS_OBJECT_PACK);
    end_record (self);
    return pack->uuid;
}

static void make_file (Bench *self, uint64_t parent, const EcfsUuid *pack, uint64_t number)
{
    g_autofree char *name = g_strdup_printf ("a-file-name-%08" PRIu64, number);
    const uint8_t sha256[ECFS_SHA256_SIZE] = {(uint8_t) number, (uint8_t) (number >> 8), (uint8_t) (number >> 16)};
    const EcfsAttr attr = attr_of (++self->ino, S_IFREG | 0644, FILE_BYTES);
    const EcfsJournalExtent extent = {
        .length = FILE_BYTES, .object = *pack, .object_offset = number % self->per_object * FILE_BYTES};
    ecfs_journal_put_inode (self->record, &attr, NULL);
    ecfs_journal_put_content (self->record, &attr, &extent, 1);
    if (self->per_object > 1)
        ecfs_journal_put_content_sha256 (self->record, attr.ino, 1, sha256);
    ecfs_journal_put_name_added (self->record, parent, name, attr.ino);
    end_record (self);
}

static void load_endpoints (Bench *self, const EcfsConfig *config)
{
    g_autoptr (GError) error = NULL;
    GPtrArray *rows = ecfs_catalog_endpoints (self->catalog, &error);
    must (rows != NULL && rows->len == N_STRIPES, error);
    for (unsigned i = 0; i < N_STRIPES; i++) {
        self->endpoints[i] = g_ptr_array_index (rows, i);
        self->uuids[i] = self->endpoints[i]->uuid;
        self->roots[i] =
            g_filename_from_uri (ecfs_config_endpoint (config, self->endpoints[i]->name)->spec->url, NULL, NULL);
    }
}

static void make (Bench *self, uint64_t n_files)
{
    g_autoptr (GError) error = NULL;
    uint64_t parent = 0;
    EcfsUuid pack = {.bytes = {0}};
    self->sequence = ecfs_catalog_sequence (self->catalog);
    self->ino = ECFS_ROOT_INO;
    self->restore = ecfs_restore_new (self->catalog);
    self->rows = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_journal_row_free);
    self->record = g_byte_array_new ();
    for (uint64_t i = 0; i < n_files; i++) {
        if (i % PER_DIR == 0)
            parent = make_directory (self, (unsigned) (i / PER_DIR));
        if (i % self->per_object == 0)
            pack = make_object (self, (unsigned) (i / self->per_object), MIN (n_files - i, self->per_object));
        make_file (self, parent, &pack, i);
    }
    ecfs_journal_put_next_ino (self->record, self->ino + 1);
    end_record (self);
    flush (self);
    must (self->n_refused == 0, NULL);
    must (ecfs_restore_finish (self->restore, ecfs_catalog_epoch (self->catalog), self->sequence, &error), error);
    must (ecfs_catalog_barrier (self->catalog, &error), error);
}

static double cpu_seconds (void)
{
    struct rusage usage;
    (void) getrusage (RUSAGE_SELF, &usage);
    return (double) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

int main (int argc, char **argv)
{
    g_autoptr (GError) error = NULL;
    Bench self = {.n_refused = 0};
    bool alone = argc == 4 && g_str_equal (argv[1], "alone");
    bool makes = alone || (argc == 4 && g_str_equal (argv[1], "make"));
    if (!makes && !(argc == 3 && g_str_equal (argv[1], "snapshot"))) {
        fprintf (stderr, "usage: bench_size make|alone FILES ARCHIVE | snapshot ARCHIVE\n");
        return 2;
    }
    EcfsArchive *archive = ecfs_archive_open (argv[argc - 1], 0, &error);
    must (archive != NULL, error);
    self.catalog = ecfs_archive_catalog (archive);
    double cpu = cpu_seconds ();
    int64_t begun_us = ecfs_now_us ();
    if (makes) {
        self.per_object = alone ? 1 : PER_PACK;
        load_endpoints (&self, ecfs_archive_config (archive));
        make (&self, g_ascii_strtoull (argv[2], NULL, 10));
    } else {
        must (ecfs_archive_begin (archive, &error), error);
        ecfs_archive_await_session (archive);
        begun_us = ecfs_now_us ();
        must (ecfs_journal_renew (archive, &error), error);
    }
    printf ("%s: %.1f s, %.1f s of processor\n", argv[1], (double) (ecfs_now_us () - begun_us) / 1e6,
            cpu_seconds () - cpu);
    ecfs_archive_free (archive);
    return 0;
}
