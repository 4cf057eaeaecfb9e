/* Copies of a catalog that goes on. */
#include "catalog/catalog.h"
#include "fixture.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#define N_DIRECTORIES 40
#define N_FILES       3000
#define PAIRS_LEAST   50

typedef struct Writer {
    Fixture *fixture;
    atomic_bool stop;
    atomic_uint n_made;
} Writer;

/* Changes rows at the beginning and at the end of the file, as long as it is copied. */
static void *write_on (void *data)
{
    Writer *self = data;
    while (!atomic_load (&self->stop)) {
        g_autofree char *name = g_strdup_printf ("file %u", atomic_load (&self->n_made));
        uint64_t ino = make_file (self->fixture, ECFS_ROOT_INO, name);
        OK (e, ecfs_catalog_setxattr (self->fixture->catalog, ino, "user.name", name, strlen (name), 0, &e));
        atomic_fetch_add (&self->n_made, 1);
    }
    return NULL;
}

static void on_problem (void *user, uint64_t ino, const char *text)
{
    (void) user;
    g_error ("inode %" PRIu64 ": %s", ino, text);
}

static EcfsTotals totals_of (EcfsCatalog *catalog)
{
    EcfsTotals totals;
    OK (e, ecfs_catalog_totals (catalog, &totals, &e));
    return totals;
}

/* Whatever is written meanwhile: the copy is of one moment, and counts what it has. */
static void test_is_of_one_moment (void)
{
    Fixture f;
    Writer writer = {.fixture = &f};
    pthread_t thread;
    bool sound;
    fixture_init (&f);
    for (unsigned i = 0; i < N_DIRECTORIES; i++) {
        g_autofree char *name = g_strdup_printf ("directory %u", i);
        uint64_t parent = make_dir (&f, ECFS_ROOT_INO, name);
        for (unsigned j = 0; j < N_FILES / N_DIRECTORIES; j++) {
            g_autofree char *file = g_strdup_printf ("a file with a name %u", j);
            (void) make_file (&f, parent, file);
        }
    }
    g_autofree char *path = g_build_filename (f.dir, "copy", NULL);
    atomic_store (&ecfs_copy_step_pages, 16); /* so that much is written between the first step and the last */
    g_assert_cmpint (pthread_create (&thread, NULL, write_on, &writer), ==, 0);
    for (unsigned i = 0; i < 5; i++) {
        unsigned before = atomic_load (&writer.n_made);
        while (atomic_load (&writer.n_made) < before + PAIRS_LEAST)
            g_usleep (1000);
        uint64_t n_least = totals_of (f.catalog).n_inodes;
        unsigned n_made = atomic_load (&writer.n_made);
        OK (e, ecfs_catalog_copy (f.catalog, path, NULL, &e));
        uint64_t n_most = totals_of (f.catalog).n_inodes;
        g_assert_cmpuint (atomic_load (&writer.n_made), >, n_made + 10);
        g_autoptr (GError) error = NULL;
        EcfsCatalog *copy = ecfs_catalog_open (path, ECFS_CATALOG_READONLY, &error);
        g_assert_no_error (error);
        OK (e, ecfs_catalog_check (copy, on_problem, NULL, &sound, &e)); /* counters are as what they count */
        g_assert_true (sound);
        uint64_t n = totals_of (copy).n_inodes;
        g_assert_cmpuint (n, >=, n_least);
        g_assert_cmpuint (n, <=, n_most);
        OK (e, ecfs_catalog_close (copy, &e));
    }
    atomic_store (&writer.stop, true);
    g_assert_cmpint (pthread_join (thread, NULL), ==, 0);
    struct stat st;
    g_assert_cmpint (stat (path, &st), ==, 0);
    g_assert_cmpuint (st.st_mode & 0777, ==, 0600);
    g_assert_cmpint (unlink (path), ==, 0); /* a copy that is read has no other files beside it */
    fixture_clear (&f);
}

static void test_is_given_up (void)
{
    Fixture f;
    atomic_bool stop = true;
    fixture_init (&f);
    g_autofree char *path = g_build_filename (f.dir, "copy", NULL);
    g_assert_cmpint (CODE (e, ecfs_catalog_copy (f.catalog, path, &stop, &e)), ==, ECANCELED);
    g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
    fixture_clear (&f);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/backup/a-copy-is-of-one-moment", test_is_of_one_moment);
    g_test_add_func ("/backup/is-given-up", test_is_given_up);
    return g_test_run ();
}
