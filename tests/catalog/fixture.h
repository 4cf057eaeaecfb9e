/* An empty catalog in a directory of its own, and the calls that every test makes. */
#ifndef TESTS_CATALOG_FIXTURE_H
#define TESTS_CATALOG_FIXTURE_H

#include "catalog/catalog.h"
#include "catalog/pg.h"

#include <fcntl.h>
#include <glib/gstdio.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Fixture {
    char *dir;
    char *path;
    EcfsUuid archive;
    EcfsCatalog *catalog;
    int64_t endpoints[8];
    EcfsUuid endpoint_uuids[8];
} Fixture;

#define CODE(error, call)                                                                                              \
    ({                                                                                                                 \
        g_autoptr (GError) error = NULL;                                                                               \
        bool ok_ = (call);                                                                                             \
        g_assert_true (ok_ == (error == NULL));                                                                        \
        g_assert_true (error == NULL || error->domain == ECFS_ERROR);                                                  \
        ecfs_errno (error);                                                                                            \
    })
#define OK(error, call)                                                                                                \
    ({                                                                                                                 \
        g_autoptr (GError) error = NULL;                                                                               \
        bool ok_ = (call);                                                                                             \
        g_assert_no_error (error);                                                                                     \
        g_assert_true (ok_);                                                                                           \
    })

static inline void fixture_open (Fixture *f, unsigned flags)
{
    g_autoptr (GError) error = NULL;
    f->catalog = ecfs_catalog_open (f->path, flags, &error);
    g_assert_no_error (error);
    g_assert_nonnull (f->catalog);
}

static inline void fixture_close (Fixture *f)
{
    EcfsCatalog *catalog = g_steal_pointer (&f->catalog);
    OK (e, ecfs_catalog_close (catalog, &e));
}

static inline void fixture_reopen (Fixture *f)
{
    fixture_close (f);
    fixture_open (f, 0);
}

/* A file, or a schema of the database that ECFS_TEST_POSTGRESQL names, always opened by the same. */
static inline char *fixture_place (Fixture *f)
{
    const char *server = g_getenv ("ECFS_TEST_POSTGRESQL");
    char archive[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&f->archive, archive);
    return server == NULL ? g_build_filename (f->dir, "catalog.db", NULL)
                          : g_strdup_printf ("%s#%s:%s", server, archive, archive);
}

/* The same in a database, as opened by another. */
static inline char *fixture_place_for (const Fixture *f, const EcfsUuid *holder)
{
    char text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (holder, text);
    return g_strdup_printf ("%.*s:%s", (int) (strrchr (f->path, ':') - f->path), f->path, text);
}

/* For tests of what only SQLite has. */
static inline bool fixture_skips (const Fixture *f)
{
    if (!ecfs_pg_is_location (f->path))
        return false;
    g_test_skip ("of SQLite");
    return true;
}

static inline void fixture_init (Fixture *f)
{
    *f = (Fixture){.dir = g_dir_make_tmp ("ecfs-catalog-XXXXXX", NULL), .archive = ecfs_uuid_new ()};
    g_assert_nonnull (f->dir);
    f->path = fixture_place (f);
    OK (e, ecfs_catalog_create (f->path, &f->archive, &e));
    fixture_open (f, 0);
}

static inline void fixture_clear (Fixture *f)
{
    if (f->catalog != NULL)
        fixture_close (f);
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    if (ecfs_pg_is_location (f->path))
        OK (e, ecfs_pg_drop (f->path, true, &e));
    for (size_t i = 0; i < G_N_ELEMENTS (suffixes); i++) {
        g_autofree char *path = g_strconcat (f->path, suffixes[i], NULL);
        (void) unlink (path);
    }
    g_assert_cmpint (rmdir (f->dir), ==, 0); /* no other file was left */
    g_free (f->path);
    g_free (f->dir);
}

static inline void fixture_add_endpoints (Fixture *f)
{
    for (size_t i = 0; i < G_N_ELEMENTS (f->endpoints); i++) {
        g_autofree char *name = g_strdup_printf ("endpoint%zu", i);
        f->endpoint_uuids[i] = ecfs_uuid_new ();
        OK (e, ecfs_catalog_endpoint_add (f->catalog, &f->endpoint_uuids[i], name, &f->endpoints[i], &e));
    }
}

static inline EcfsAttr make_as (Fixture *f, uint64_t parent, const char *name, uint32_t mode)
{
    EcfsNewInode new = {.mode = mode, .uid = 10, .gid = 20};
    EcfsAttr attr;
    OK (e, ecfs_catalog_make (f->catalog, parent, name, &new, &attr, NULL, &e));
    return attr;
}

static inline uint64_t make_file (Fixture *f, uint64_t parent, const char *name)
{
    return make_as (f, parent, name, S_IFREG | 0644).ino;
}

static inline uint64_t make_dir (Fixture *f, uint64_t parent, const char *name)
{
    return make_as (f, parent, name, S_IFDIR | 0755).ino;
}

static inline EcfsAttr get_attr (Fixture *f, uint64_t ino)
{
    EcfsAttr attr;
    OK (e, ecfs_catalog_getattr (f->catalog, ino, &attr, &e));
    return attr;
}

static inline EcfsTotals get_totals (Fixture *f)
{
    EcfsTotals totals;
    OK (e, ecfs_catalog_totals (f->catalog, &totals, &e));
    return totals;
}

/* An object of @size bytes with stripes 0..n_stripes-1, one on each endpoint. */
static inline EcfsObjectRow *new_object (Fixture *f, const char *code, uint64_t size, unsigned n_stripes)
{
    EcfsObjectRow *object = ecfs_object_row_new ();
    object->uuid = ecfs_uuid_new ();
    object->code = g_strdup (code);
    object->size = size;
    object->segment_bytes = 1 << 20;
    object->block_bytes = 32 << 10;
    object->header_bytes = 512;
    memcpy (object->digest, "0123456789abcdef", ECFS_DIGEST_SIZE);
    object->has_sha256 = size % 3 != 0; /* earlier versions stored none */
    if (object->has_sha256)
        memset (object->sha256, 1 + (int) (size % 200), sizeof object->sha256);
    if (size % 7 != 3) { /* others are stored without a key */
        object->seal.kind = ECFS_SEAL_CTR_HMAC;
        memset (object->seal.key.bytes, 'k', sizeof object->seal.key.bytes);
        memcpy (object->seal.nonce, object->uuid.bytes, sizeof object->seal.nonce);
    }
    for (unsigned i = 0; i < n_stripes; i++) {
        EcfsStripeRow stripe = {
            .index = (uint16_t) i, .instance = 1000 + i, .endpoint = f->endpoints[i], .size = size / 4 + 100};
        memset (stripe.digest, 'a' + (int) i, sizeof stripe.digest);
        g_array_append_val (object->stripes, stripe);
    }
    return object;
}

static inline void assert_same_seal (const EcfsObjectRow *a, const EcfsObjectRow *b)
{
    g_assert_cmpint (a->seal.kind, ==, b->seal.kind);
    g_assert_cmpmem (a->seal.key.bytes, 16, b->seal.key.bytes, 16);
    g_assert_cmpmem (a->seal.nonce, ECFS_SEAL_NONCE_BYTES, b->seal.nonce, ECFS_SEAL_NONCE_BYTES);
}

/* Stores @object as the whole content of @ino, which is staged in this row; 0: in none. */
static inline void publish_staged (Fixture *f, uint64_t ino, EcfsObjectRow *object, int64_t staging)
{
    int64_t intent;
    OK (e, ecfs_catalog_intent_begin (f->catalog, object, ino, &intent, &e));
    const EcfsObjectRow *objects[] = {object};
    EcfsExtent extent = {.length = object->size};
    EcfsPublish publish = {.ino = ino,
                           .intents = &intent,
                           .objects = objects,
                           .n_objects = 1,
                           .extents = &extent,
                           .n_extents = 1,
                           .size = object->size,
                           .mtime_ns = 4711,
                           .staging = staging,
                           .full = true};
    OK (e, ecfs_catalog_publish (f->catalog, &publish, NULL, &e));
}

static inline void publish_one (Fixture *f, uint64_t ino, EcfsObjectRow *object)
{
    publish_staged (f, ino, object, 0);
}

#endif
