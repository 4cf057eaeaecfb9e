/* What the catalog does in a second, and what a file costs in it: bench_catalog [FILES [DIRECTORY]]. */
#include "catalog/catalog.h"
#include "catalog/pg.h"
#include "util/lock.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PER_DIR   1000
#define N_STRIPES 6

typedef struct Bench {
    EcfsCatalog *catalog;
    unsigned n_files;
    int64_t endpoints[N_STRIPES];
    uint64_t *inos;
    int64_t started_us;
} Bench;

static void must (bool ok, GError *error)
{
    if (!ok) {
        fprintf (stderr, "bench_catalog: %s\n", error->message);
        exit (1);
    }
}

static void start (Bench *self)
{
    self->started_us = ecfs_now_us ();
}

static void report (const Bench *self, const char *what, unsigned n)
{
    double seconds = (double) (ecfs_now_us () - self->started_us) / 1e6;
    printf ("%-44s %10.0f /s %10.2f us each\n", what, n / seconds, seconds * 1e6 / n);
}

static char *file_name (unsigned i)
{
    return g_strdup_printf ("a-file-name-%08u", i);
}

static void make_files (Bench *self, uint64_t *dirs)
{
    g_autoptr (GError) error = NULL;
    EcfsAttr attr;
    start (self);
    for (unsigned i = 0; i < self->n_files; i++) {
        if (i % PER_DIR == 0) {
            g_autofree char *name = g_strdup_printf ("dir%u", i / PER_DIR);
            EcfsNewInode new = {.mode = S_IFDIR | 0755};
            must (ecfs_catalog_make (self->catalog, ECFS_ROOT_INO, name, &new, &attr, NULL, &error), error);
            dirs[i / PER_DIR] = attr.ino;
        }
        g_autofree char *name = file_name (i);
        EcfsNewInode new = {.mode = S_IFREG | 0644, .uid = 1000, .gid = 1000};
        must (ecfs_catalog_make (self->catalog, dirs[i / PER_DIR], name, &new, &attr, NULL, &error), error);
        self->inos[i] = attr.ino;
    }
    must (ecfs_catalog_barrier (self->catalog, &error), error);
    report (self, "make, in groups", self->n_files);
}

static void look_up (Bench *self, const uint64_t *dirs)
{
    g_autoptr (GError) error = NULL;
    EcfsAttr attr;
    start (self);
    for (unsigned i = 0; i < self->n_files; i++) {
        unsigned at = (unsigned) ((uint64_t) i * 7919 % self->n_files);
        g_autofree char *name = file_name (at);
        must (ecfs_catalog_lookup (self->catalog, dirs[at / PER_DIR], name, &attr, &error), error);
    }
    report (self, "lookup with attributes", self->n_files);
    start (self);
    for (unsigned i = 0; i < self->n_files; i++)
        must (ecfs_catalog_getattr (self->catalog, self->inos[(uint64_t) i * 7919 % self->n_files], &attr, &error),
              error);
    report (self, "getattr", self->n_files);
}

static EcfsObjectRow *new_object (const Bench *self)
{
    EcfsObjectRow *object = ecfs_object_row_new ();
    object->uuid = ecfs_uuid_new ();
    object->code = g_strdup ("rs:4+2");
    object->size = 100000;
    object->segment_bytes = 2 << 20;
    object->block_bytes = 32 << 10;
    object->header_bytes = 512;
    memcpy (object->digest, object->uuid.bytes, sizeof object->digest);
    for (unsigned i = 0; i < N_STRIPES; i++) {
        EcfsStripeRow stripe = {.index = (uint16_t) i, .endpoint = self->endpoints[i], .size = 26000};
        stripe.instance = ((uint64_t) g_random_int () << 31 | g_random_int ()) + 1;
        memcpy (stripe.digest, object->uuid.bytes, sizeof stripe.digest);
        g_array_append_val (object->stripes, stripe);
    }
    return object;
}

static void publish (Bench *self, unsigned i)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsObjectRow) object = new_object (self);
    int64_t intent;
    must (ecfs_catalog_intent_begin (self->catalog, object, self->inos[i], &intent, &error), error);
    const EcfsObjectRow *objects[] = {object};
    EcfsExtent extent = {.length = object->size};
    EcfsPublish all = {.ino = self->inos[i],
                       .intents = &intent,
                       .objects = objects,
                       .n_objects = 1,
                       .extents = &extent,
                       .n_extents = 1,
                       .size = object->size};
    must (ecfs_catalog_publish (self->catalog, &all, NULL, &error), error);
}

typedef struct Publisher {
    Bench *bench;
    unsigned from, to;
} Publisher;

static void publish_range (void *data)
{
    const Publisher *self = data;
    for (unsigned i = self->from; i < self->to; i++)
        publish (self->bench, i);
}

/* All files, by many threads: durable calls share their COMMITs. */
static void publish_all (Bench *self, unsigned n_alone, unsigned n_threads)
{
    g_autofree Publisher *publishers = g_new (Publisher, n_threads);
    unsigned n = self->n_files - n_alone;
    start (self);
    EcfsWorkers *workers = ecfs_workers_new ("publish", n_threads);
    for (unsigned i = 0; i < n_threads; i++) {
        publishers[i] = (Publisher){self, n_alone + (unsigned) ((uint64_t) n * i / n_threads),
                                    n_alone + (unsigned) ((uint64_t) n * (i + 1) / n_threads)};
        ecfs_workers_push (workers, publish_range, &publishers[i]);
    }
    ecfs_workers_free (workers);
    report (self, "intent + publish, both durable, 32 threads", n);
}

static int64_t number (sqlite3 *db, const char *sql)
{
    sqlite3_stmt *query = NULL;
    int64_t value = -1;
    if (sqlite3_prepare_v2 (db, sql, -1, &query, NULL) == SQLITE_OK && sqlite3_step (query) == SQLITE_ROW)
        value = sqlite3_column_int64 (query, 0);
    sqlite3_finalize (query);
    return value;
}

static void print_size (const char *path, unsigned n_files)
{
    sqlite3 *db = NULL;
    if (sqlite3_open (path, &db) != SQLITE_OK)
        exit (1);
    double bytes = (double) number (db, "SELECT sum (pgsize) FROM dbstat");
    double journal = (double) number (db, "SELECT sum (pgsize) FROM dbstat WHERE name = 'journal'");
    printf ("%-44s %10.0f bytes per file\n", "catalog with journal", bytes / n_files);
    printf ("%-44s %10.0f bytes per file\n", "catalog without journal", (bytes - journal) / n_files);
    sqlite3_close (db);
}

int main (int argc, char **argv)
{
    g_autoptr (GError) error = NULL;
    Bench self = {.n_files = argc > 1 ? (unsigned) atoi (argv[1]) : 20000};
    self.n_files = MAX (self.n_files, 2000);
    g_autofree char *dir = g_build_filename (argc > 2 ? argv[2] : g_get_tmp_dir (), "ecfs-bench-XXXXXX", NULL);
    if (mkdtemp (dir) == NULL)
        return 1;
    EcfsUuid archive = ecfs_uuid_new ();
    const char *server = g_getenv ("ECFS_TEST_POSTGRESQL"); /* measures a catalog there */
    char archive_text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&archive, archive_text);
    g_autofree char *path =
        server == NULL ? g_build_filename (dir, "catalog.db", NULL) : g_strdup_printf ("%s#%s", server, archive_text);
    must (ecfs_catalog_create (path, &archive, &error), error);
    self.catalog = ecfs_catalog_open (path, 0, &error);
    must (self.catalog != NULL, error);
    for (unsigned i = 0; i < N_STRIPES; i++) {
        EcfsUuid uuid = ecfs_uuid_new ();
        g_autofree char *name = g_strdup_printf ("endpoint%u", i);
        must (ecfs_catalog_endpoint_add (self.catalog, &uuid, name, &self.endpoints[i], &error), error);
    }
    self.inos = g_new (uint64_t, self.n_files);
    g_autofree uint64_t *dirs = g_new (uint64_t, self.n_files / PER_DIR + 1);
    make_files (&self, dirs);
    look_up (&self, dirs);
    start (&self);
    for (unsigned i = 0; i < 1000; i++)
        publish (&self, i);
    report (&self, "intent + publish, both durable, one thread", 1000);
    publish_all (&self, 1000, 32);
    must (ecfs_catalog_close (self.catalog, &error), error);
    if (server == NULL)
        print_size (path, self.n_files);
    else
        must (ecfs_pg_drop (path, false, &error), error);
    g_free (self.inos);
    return unlink (path) == 0 && rmdir (dir) == 0 ? 0 : 1;
}
