/* Checking and repairing an archive through the library: what is told, in which order, and what is left alone. */
#include "archive/archive_priv.h"
#include "archive/sightings.h"
#include "ecfs/ecfs.h"
#include "fixture.h"
#include "program/program.h"
#include "util/error.h"
#include "verbs/verbs.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <json-glib/json-glib.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define N_FILES 12

/* What fails for files below stripes/ of the endpoint broken_path. */
enum {
    BROKEN_LISTINGS = 1 << 0, /* end early, and say nothing of it, as those of OpenSSH's server */
    BROKEN_SIZES = 1 << 1,
    BROKEN_READS = 1 << 2,
    BROKEN_FIRST_READ = 1 << 3, /* but for the first, all are fine */
    BROKEN_LARGE = 1 << 4,      /* reads at 1 MiB or behind */
};

static char broken_path[PATH_MAX];
static atomic_uint broken;

static bool is_broken (int fd, unsigned what)
{
    char path[PATH_MAX];
    g_autofree char *link = g_strdup_printf ("/proc/self/fd/%d", fd);
    ssize_t size = (atomic_load (&broken) & what) != 0 ? readlink (link, path, sizeof path - 1) : -1;
    path[MAX (size, 0)] = '\0';
    return size > 0 && g_str_has_prefix (path, broken_path);
}

/* In place of libc's, for the endpoints as well. */
struct dirent *readdir (DIR *dir)
{
    if (is_broken (dirfd (dir), BROKEN_LISTINGS))
        return NULL;
    struct dirent *(*real) (DIR *) = (struct dirent * (*) (DIR *) ) dlsym (RTLD_NEXT, "readdir");
    return real (dir);
}

int fstat (int fd, struct stat *status)
{
    if (is_broken (fd, BROKEN_SIZES)) {
        errno = EIO;
        return -1;
    }
    return fstatat (fd, "", status, AT_EMPTY_PATH);
}

static void (*_Atomic on_read) (void); /* called once, before a stripe is read */

ssize_t preadv (int fd, const struct iovec *iov, int n_iov, off_t offset)
{
    char path[PATH_MAX] = "";
    g_autofree char *link = g_strdup_printf ("/proc/self/fd/%d", fd);
    if (atomic_load (&on_read) != NULL && readlink (link, path, sizeof path - 1) > 0 && strstr (path, "/stripes/")) {
        void (*hook) (void) = atomic_exchange (&on_read, NULL);
        if (hook != NULL)
            hook ();
    }
    if (is_broken (fd, BROKEN_READS) || (is_broken (fd, BROKEN_LARGE) && offset >= 1 << 20) ||
        (is_broken (fd, BROKEN_FIRST_READ) && (atomic_fetch_and (&broken, ~BROKEN_FIRST_READ) & BROKEN_FIRST_READ))) {
        errno = EIO;
        return -1;
    }
    ssize_t (*real) (int, const struct iovec *, int, off_t) =
        (ssize_t (*) (int, const struct iovec *, int, off_t)) dlsym (RTLD_NEXT, "preadv");
    return real (fd, iov, n_iov, offset);
}

typedef struct Heard {
    GPtrArray *findings; /* of JsonObject */
    unsigned n_progress;
    unsigned cancel_at; /* which call of progress cancels; 0: none */
    unsigned n_asked;
    void (*then_on_read) (void); /* for on_read, once it is asked */
    bool answer;
} Heard;

typedef struct Checked {
    Fixture fixture;
    Ecfs *ecfs;
    const char *export_dir; /* NULL: nothing is exported */
    Heard heard;
} Checked;

static JsonObject *parse (const char *text)
{
    g_autoptr (JsonNode) node = json_from_string (text, NULL);
    g_assert_nonnull (node);
    return json_node_dup_object (node);
}

static bool on_progress (void *user, const EcfsFsckProgress *progress)
{
    Heard *self = user;
    g_assert_nonnull (progress->phase);
    return ++self->n_progress != self->cancel_at;
}

static bool on_confirm (void *user, uint64_t n_objects)
{
    Heard *self = user;
    g_assert_cmpuint (n_objects, >, 0);
    self->n_asked++;
    atomic_store (&on_read, self->then_on_read);
    return self->answer;
}

static void on_found (void *user, const char *json)
{
    g_ptr_array_add (((Heard *) user)->findings, parse (json));
}

static void begin (Checked *self, const char *code)
{
    g_autoptr (GError) error = NULL;
    *self = (Checked){.ecfs = NULL};
    set_up (&self->fixture, code);
    g_clear_pointer (&self->fixture.archive, ecfs_archive_free);
    self->ecfs = ecfs_open (self->fixture.directory, ECFS_OPEN_WRITE, &error);
    g_assert_no_error (error);
    for (unsigned i = 0; i < N_FILES; i++) {
        g_autofree char *path = g_strdup_printf ("%s/file%u", self->fixture.base, i);
        size_t size = i == 0 ? 5 << 20 : 9000 * i;
        g_autofree uint8_t *bytes = random_bytes (size);
        g_assert_true (g_file_set_contents (path, (const char *) bytes, (gssize) size, NULL));
        const char *const sources[] = {path, NULL};
        ecfs_put (self->ecfs, sources, "/", NULL, &error);
        g_assert_no_error (error);
    }
    self->heard.findings = g_ptr_array_new_with_free_func ((GDestroyNotify) json_object_unref);
}

static void end (Checked *self)
{
    ecfs_close (self->ecfs);
    g_ptr_array_unref (self->heard.findings);
    tear_down (&self->fixture, NULL);
}

/* The summary; NULL: it failed with @ret_code. */
static JsonObject *check (Checked *self, unsigned flags, const char *const *paths, int *ret_code)
{
    g_autoptr (GError) error = NULL;
    EcfsFsck what = {.flags = flags,
                     .paths = paths,
                     .export_dir = self->export_dir,
                     .progress = on_progress,
                     .confirm = on_confirm,
                     .found = on_found,
                     .user = &self->heard};
    g_ptr_array_set_size (self->heard.findings, 0);
    self->heard.n_progress = 0;
    g_autofree char *text = ecfs_fsck (self->ecfs, &what, &error);
    g_assert_true ((text == NULL) == (error != NULL));
    if (ret_code != NULL)
        *ret_code = ecfs_errno (error);
    return text == NULL ? NULL : parse (text);
}

static int64_t number (JsonObject *object, const char *member)
{
    g_assert_true (json_object_has_member (object, member));
    return json_object_get_int_member (object, member);
}

static void assert_clean (Checked *self)
{
    /* all of it, wherever another may have stopped */
    g_autoptr (JsonObject) summary = check (self, ECFS_FSCK_DEEP | ECFS_FSCK_DRY, NULL, NULL);
    g_assert_cmpuint (self->heard.findings->len, ==, 0);
    g_assert_cmpint (number (summary, "objects"), ==, N_FILES);
    g_assert_cmpint (number (summary, "checked_bytes"), >, 5 << 20);
}

static void lose_stripes (const Checked *self, unsigned endpoint)
{
    g_autofree char *root = endpoint_path (&self->fixture, endpoint);
    g_autofree char *stripes = g_build_filename (root, "stripes", NULL);
    remove_tree (stripes);
}

/* Some stripe file of an endpoint; the largest, which is one of file0; g_free (). */
static char *largest_file (const char *directory, size_t *ret_size)
{
    char *largest = NULL;
    g_autoptr (GDir) dir = g_dir_open (directory, 0, NULL);
    const char *name;
    while ((name = g_dir_read_name (dir)) != NULL) {
        g_autofree char *path = g_build_filename (directory, name, NULL);
        size_t size = 0;
        g_autofree char *below = NULL;
        if (g_file_test (path, G_FILE_TEST_IS_DIR))
            below = largest_file (path, &size);
        else {
            g_autofree char *bytes = NULL;
            g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
            below = g_strdup (path);
        }
        if (below != NULL && size > *ret_size) {
            *ret_size = size;
            g_free (largest);
            largest = g_steal_pointer (&below);
        }
    }
    return largest;
}

static void flip_in_largest (const Checked *self, unsigned endpoint)
{
    g_autofree char *root = endpoint_path (&self->fixture, endpoint);
    size_t size = 0;
    g_autofree char *path = largest_file (root, &size);
    g_autofree char *bytes = NULL;
    g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
    bytes[size / 2] ^= 1;
    g_assert_true (g_file_set_contents (path, bytes, (gssize) size, NULL));
}

static void test_repair (gconstpointer code)
{
    Checked self;
    begin (&self, code);
    assert_clean (&self);
    self.heard.answer = true;
    for (unsigned round = 0; round < 3; round++) {
        lose_stripes (&self, round);
        lose_stripes (&self, round + 3);
        g_autoptr (JsonObject) summary = check (&self, ECFS_FSCK_REPAIR, NULL, NULL);
        g_assert_cmpint (number (summary, "stripes_gone"), >, 0);
        g_assert_cmpint (number (summary, "stripes_rebuilt"), ==, number (summary, "stripes_gone"));
        g_assert_cmpint (number (summary, "objects_repaired"), ==, self.heard.findings->len);
        g_assert_cmpuint (self.heard.n_asked, ==, round + 1);
        assert_clean (&self);
    }
    end (&self);
}

static void test_order (void)
{
    Checked self;
    begin (&self, "rs:4+2");
    lose_stripes (&self, 4);
    flip_in_largest (&self, 1);
    g_autoptr (JsonObject) summary = check (&self, ECFS_FSCK_DEEP, NULL, NULL);
    g_assert_cmpint (number (summary, "stripes_damaged"), ==, 1);
    g_assert_cmpint (number (summary, "objects_found"), ==, self.heard.findings->len);
    JsonObject *first = g_ptr_array_index (self.heard.findings, 0);
    g_assert_cmpstr (json_object_get_string_member (first, "path"), ==, "/file0");
    int64_t guarantee = number (first, "guarantee");
    g_assert_cmpint (guarantee, ==, 0);
    for (guint i = 1; i < self.heard.findings->len; i++) {
        int64_t next = number (g_ptr_array_index (self.heard.findings, i), "guarantee");
        g_assert_cmpint (next, >=, guarantee);
        guarantee = next;
    }
    end (&self);
}

static guint count_noted (const Checked *self)
{
    g_autoptr (GArray) noted = ecfs_sightings_take (ecfs_archive_sightings (self->ecfs->archive));
    return noted->len;
}

/* What an export reads of damaged stripes changes nothing where nothing is to be changed; who reads them later, does.
 */
static void test_exported (void)
{
    Checked self;
    begin (&self, "rs:4+2");
    g_autofree char *out = g_build_filename (self.fixture.base, "out", NULL);
    static const unsigned flags[] = {ECFS_FSCK_DEEP | ECFS_FSCK_DRY, ECFS_FSCK_DEEP};
    const char *const sources[] = {"/file0", NULL};
    g_log_set_always_fatal (G_LOG_LEVEL_ERROR); /* each of them is told */
    for (unsigned i = 0; i < 3; i++)
        flip_in_largest (&self, i);
    self.export_dir = out;
    for (size_t i = 0; i < G_N_ELEMENTS (flags); i++) {
        g_autoptr (JsonObject) summary = check (&self, flags[i], NULL, NULL);
        g_autofree char *exported = g_build_filename (out, "file0", NULL);
        g_assert_cmpint (number (summary, "stripes_damaged"), ==, 3);
        g_assert_true (g_file_test (exported, G_FILE_TEST_EXISTS));
        g_assert_cmpuint (count_noted (&self), ==, 0);
        g_assert_false (ecfs_get (self.ecfs, sources, self.fixture.base, NULL, NULL));
        g_assert_cmpuint (count_noted (&self), >, 0);
        remove_tree (out);
    }
    end (&self);
}

/* Who says no, and who cancels, finds everything as it was. */
static void test_refused_and_cancelled (void)
{
    Checked self;
    int code;
    begin (&self, "rs:4+2");
    lose_stripes (&self, 2);
    g_autoptr (JsonObject) refused = check (&self, ECFS_FSCK_REPAIR, NULL, NULL);
    g_assert_cmpint (number (refused, "stripes_rebuilt"), ==, 0);
    g_assert_cmpint (number (refused, "objects_found"), ==, self.heard.findings->len);
    for (self.heard.cancel_at = 1; self.heard.cancel_at <= 3; self.heard.cancel_at++) {
        g_autoptr (JsonObject) none = check (&self, ECFS_FSCK_DEEP, NULL, &code);
        g_assert_null (none);
        g_assert_cmpint (code, ==, ECANCELED);
    }
    self.heard.cancel_at = 0;
    self.heard.answer = true;
    g_autoptr (JsonObject) repaired = check (&self, ECFS_FSCK_REPAIR, NULL, NULL);
    g_assert_cmpint (number (repaired, "stripes_rebuilt"), ==, number (refused, "stripes_gone"));
    assert_clean (&self);
    end (&self);
}

static void test_paths (void)
{
    Checked self;
    int code;
    begin (&self, "rs:4+2");
    lose_stripes (&self, 0);
    lose_stripes (&self, 5);
    self.heard.answer = true;
    const char *const some[] = {"/file0", "/file7", "/file0", NULL}, *const none[] = {"/none", NULL};
    g_autoptr (JsonObject) summary = check (&self, ECFS_FSCK_REPAIR, some, NULL);
    g_assert_cmpint (number (summary, "objects"), ==, 2);
    g_assert_cmpint (number (summary, "stripes_rebuilt"), ==, 4);
    g_assert_null (check (&self, 0, none, &code));
    g_assert_cmpint (code, ==, ENOENT);
    end (&self);
}

/* It is opened for writing only for repairs: nobody else has it open meanwhile. */
static void test_open_for_reading (void)
{
    Checked self;
    begin (&self, "rs:4+2");
    ecfs_close (self.ecfs);
    self.ecfs = ecfs_open (self.fixture.directory, 0, NULL);
    assert_clean (&self);
    lose_stripes (&self, 3);
    g_autoptr (Ecfs) writer = ecfs_open (self.fixture.directory, ECFS_OPEN_WRITE, NULL);
    g_assert_nonnull (writer);
    g_autoptr (JsonObject) found = check (&self, 0, NULL, NULL);
    g_assert_cmpint (number (found, "stripes_gone"), >, 0);
    int code;
    self.heard.answer = true;
    g_assert_null (check (&self, ECFS_FSCK_REPAIR, NULL, &code));
    g_assert_cmpint (code, ==, EBUSY);
    g_assert_cmpint (number (found, "objects_found"), ==, self.heard.findings->len);
    g_clear_pointer (&writer, ecfs_close);
    g_autoptr (JsonObject) repaired = check (&self, ECFS_FSCK_REPAIR, NULL, NULL);
    g_assert_cmpint (number (repaired, "stripes_rebuilt"), ==, number (found, "stripes_gone"));
    assert_clean (&self);
    end (&self);
}

static void break_endpoint (const Checked *self, unsigned endpoint, unsigned what)
{
    g_autofree char *root = endpoint_path (&self->fixture, endpoint);
    g_assert_cmpuint (g_snprintf (broken_path, sizeof broken_path, "%s/stripes/", root), <, sizeof broken_path);
    atomic_store (&broken, what);
}

/* What is neither listed nor told to be absent is unknown, and nothing is stored in its place. */
static void test_unlisted (void)
{
    Checked self;
    begin (&self, "rs:4+2");
    self.heard.answer = true;
    break_endpoint (&self, 3, BROKEN_LISTINGS);
    assert_clean (&self);
    break_endpoint (&self, 3, BROKEN_LISTINGS | BROKEN_SIZES);
    g_autoptr (JsonObject) summary = check (&self, ECFS_FSCK_REPAIR, NULL, NULL);
    break_endpoint (&self, 3, 0);
    g_assert_cmpint (number (summary, "stripes_unknown"), >, 0);
    g_assert_cmpint (number (summary, "stripes_gone"), ==, 0);
    g_assert_cmpint (number (summary, "stripes_rebuilt"), ==, 0);
    assert_clean (&self);
    end (&self);
}

/* The disk goes while the connection to its endpoint stays: an empty directory is left. */
static void test_unmounted (void)
{
    Checked self;
    begin (&self, "rs:4+2");
    self.heard.answer = true;
    assert_clean (&self);
    g_autofree char *root = endpoint_path (&self.fixture, 3);
    g_autofree char *marker = g_build_filename (root, "ecfs-endpoint", NULL);
    g_assert_cmpint (unlink (marker), ==, 0);
    lose_stripes (&self, 3);
    lose_stripes (&self, 4);
    g_autoptr (JsonObject) summary = check (&self, 0, NULL, NULL);
    g_assert_cmpint (number (summary, "stripes_unknown"), >, 0);
    g_assert_cmpint (number (summary, "stripes_gone"), >, 0);
    for (guint i = 0; i < self.heard.findings->len; i++) {
        JsonObject *finding = g_ptr_array_index (self.heard.findings, i);
        if (g_str_equal (json_object_get_string_member (finding, "about"), "endpoint"))
            g_assert_cmpstr (json_object_get_string_member (finding, "name"), ==, "e3");
    }
    g_autoptr (JsonObject) only = check (&self, ECFS_FSCK_REPAIR, NULL, NULL);
    g_autofree char *stripes = g_build_filename (root, "stripes", NULL);
    g_assert_cmpint (number (only, "stripes_rebuilt"), ==, number (summary, "stripes_gone"));
    g_assert_false (g_file_test (stripes, G_FILE_TEST_EXISTS));
    end (&self);
}

static void expect_deep (Checked *self, unsigned what, int64_t n_damaged, bool some_unknown)
{
    break_endpoint (self, 3, what);
    g_autoptr (JsonObject) summary = check (self, ECFS_FSCK_DEEP, NULL, NULL);
    break_endpoint (self, 3, 0);
    g_assert_cmpint (number (summary, "stripes_damaged"), ==, n_damaged);
    g_assert_cmpint (number (summary, "stripes_unknown") > 0, ==, some_unknown);
}

/* Neither what fails once nor an endpoint that reads nothing at all is damage; a bad sector is. */
static void test_unreadable (void)
{
    Checked self;
    begin (&self, "rs:4+2");
    expect_deep (&self, BROKEN_FIRST_READ, 0, false);
    expect_deep (&self, BROKEN_READS, 0, true);
    expect_deep (&self, BROKEN_LARGE, 1, false);
    assert_clean (&self);
    end (&self);
}

/* It has what it has, and takes nothing more. */
static void refuse_writes (const Checked *self, unsigned endpoint)
{
    g_autofree char *root = endpoint_path (&self->fixture, endpoint);
    g_autofree char *incoming = g_build_filename (root, "incoming", NULL);
    remove_tree (incoming);
    g_assert_true (g_file_set_contents (incoming, "", 0, NULL));
}

/* What a spare took is stored, though its first place failed. */
static void test_spare (void)
{
    Checked self;
    begin (&self, "rs:2+2");
    self.heard.answer = true;
    lose_stripes (&self, 3);
    refuse_writes (&self, 3);
    g_autoptr (JsonObject) summary = check (&self, ECFS_FSCK_REPAIR, NULL, NULL);
    g_assert_cmpint (number (summary, "stripes_gone"), >, 0);
    g_assert_cmpint (number (summary, "stripes_rebuilt"), ==, number (summary, "stripes_gone"));
    g_assert_cmpint (number (summary, "objects_left"), ==, 0);
    g_assert_cmpint (number (summary, "objects_repaired"), ==, self.heard.findings->len);
    assert_clean (&self);
    end (&self);
}

static void test_spare_of_recode (void)
{
    Checked self;
    g_autoptr (GError) error = NULL;
    begin (&self, "rs:2+1");
    for (unsigned i = 0; i < 2; i++)
        refuse_writes (&self, i);
    ecfs_recode (self.ecfs, "/", "rs:2+2", NULL, &error);
    g_assert_no_error (error);
    assert_clean (&self);
    end (&self);
}

/* A stripe that somebody else stores once more while the object is being repaired. */
static struct {
    EcfsCatalog *catalog;
    EcfsObjectRow *row;
    char *path, *bytes;
    size_t size;
} other;

static char *path_of_stripe (const Checked *self, const EcfsObjectRow *row, const EcfsStripeRow *stripe)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    EcfsArchive *archive = self->ecfs->archive;
    ecfs_stripe_name (&row->uuid, stripe->index, stripe->instance, name);
    for (unsigned i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        g_autofree char *root = endpoint_path (&self->fixture, i);
        if (archive->endpoints[i].id == stripe->endpoint)
            return g_build_filename (root, name, NULL);
    }
    g_assert_not_reached ();
}

static void store_other (void)
{
    int64_t intent;
    g_autoptr (GError) error = NULL;
    EcfsStripeRow stripe = g_array_index (other.row->stripes, EcfsStripeRow, 0);
    uint64_t old = stripe.instance++;
    g_assert_true (g_file_set_contents (other.path, other.bytes, (gssize) other.size, NULL));
    ecfs_catalog_intent_more (other.catalog, other.row, &stripe, 1, &intent, &error);
    g_assert_no_error (error);
    ecfs_catalog_stripe_set (other.catalog, &other.row->uuid, &stripe, old, 1, intent, &error);
    g_assert_no_error (error);
}

static void test_repaired_by_two (void)
{
    Checked self;
    g_autoptr (GError) error = NULL;
    begin (&self, "rs:4+2");
    other.catalog = self.ecfs->archive->catalog;
    other.row = ecfs_catalog_object (other.catalog, 1, &error);
    g_assert_no_error (error);
    EcfsStripeRow first = g_array_index (other.row->stripes, EcfsStripeRow, 0);
    EcfsStripeRow second = g_array_index (other.row->stripes, EcfsStripeRow, 1);
    g_autofree char *path = path_of_stripe (&self, other.row, &first);
    g_autofree char *second_path = path_of_stripe (&self, other.row, &second);
    g_assert_true (g_file_get_contents (path, &other.bytes, &other.size, NULL));
    g_assert_cmpint (unlink (path) | unlink (second_path), ==, 0);
    first.instance++;
    other.path = path_of_stripe (&self, other.row, &first);
    self.heard.answer = true;
    self.heard.then_on_read = store_other;
    g_autoptr (JsonObject) summary = check (&self, ECFS_FSCK_REPAIR, NULL, NULL);
    g_assert_true (atomic_load (&on_read) == NULL);
    g_assert_cmpint (number (summary, "stripes_gone"), ==, 2);
    g_assert_cmpint (number (summary, "stripes_rebuilt"), ==, 1);
    g_assert_cmpint (number (summary, "objects_repaired"), ==, 1);
    g_autoptr (JsonObject) after = check (&self, 0, NULL, NULL);
    g_assert_cmpint (number (after, "stripes_gone"), ==, 0);
    g_assert_cmpuint (self.heard.findings->len, ==, 0);
    ecfs_object_row_free (other.row);
    g_free (other.path);
    g_free (other.bytes);
    end (&self);
}

static void put_random (Ecfs *ecfs, const char *base, unsigned number)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *path = g_strdup_printf ("%s/added%u", base, number);
    g_autofree uint8_t *bytes = random_bytes (100000);
    g_assert_true (g_file_set_contents (path, (const char *) bytes, 100000, NULL));
    const char *const sources[] = {path, NULL};
    ecfs_put (ecfs, sources, "/", NULL, &error);
    g_assert_no_error (error);
}

/* What is at an endpoint that this process has not read of is neither lost nor given up. */
static void test_endpoint_added_meanwhile (void)
{
    Checked self;
    g_autoptr (GError) error = NULL;
    begin (&self, "rs:4+2");
    ecfs_close (self.ecfs);
    self.ecfs = ecfs_open (self.fixture.directory, 0, NULL);
    Ecfs *writer = ecfs_open (self.fixture.directory, ECFS_OPEN_WRITE, NULL);
    g_autofree char *url = g_strdup_printf ("file://%s/added", self.fixture.base);
    g_autoptr (EcfsConfigEndpoint) added = ecfs_config_endpoint_new (ecfs_endpoint_spec_new ("added", url), &error);
    g_assert_no_error (error);
    ecfs_archive_endpoint_add (writer->archive, added, &error);
    g_assert_no_error (error);
    for (unsigned i = 0; i < 2 * N_FILES; i++)
        put_random (writer, self.fixture.base, i);
    ecfs_close (writer);
    self.heard.answer = true;
    g_autoptr (JsonObject) summary = check (&self, ECFS_FSCK_REPAIR, NULL, NULL);
    g_assert_cmpint (number (summary, "objects"), ==, 3 * N_FILES);
    g_assert_cmpint (number (summary, "stripes_unknown"), >, 0);
    g_assert_cmpint (number (summary, "stripes_gone"), ==, 0);
    g_assert_cmpint (number (summary, "stripes_rebuilt"), ==, 0);
    g_assert_cmpuint (self.heard.findings->len, ==, 1);
    JsonObject *told = g_ptr_array_index (self.heard.findings, 0);
    g_assert_nonnull (strstr (json_object_get_string_member (told, "text"), "endpoint added was added meanwhile"));
    g_assert_cmpint (number (told, "unknown"), ==, number (summary, "stripes_unknown"));
    end (&self);
}

static GPtrArray *key_files_at (const Checked *self, unsigned endpoint)
{
    g_autofree char *root = endpoint_path (&self->fixture, endpoint);
    g_autofree char *keys = g_build_filename (root, "keys", NULL);
    g_autoptr (GDir) dir = g_dir_open (keys, 0, NULL);
    GPtrArray *names = g_ptr_array_new_with_free_func (g_free);
    for (const char *name; dir != NULL && (name = g_dir_read_name (dir)) != NULL;)
        g_ptr_array_add (names, g_strdup (name));
    return names;
}

/* A check takes long: what a slot opened that was taken away meanwhile it must not bring back. */
static void test_key_changed_meanwhile (void)
{
    Checked self = {.heard.answer = true};
    g_autoptr (GError) error = NULL;
    set_up_shared (&self.fixture, "rs:4+2");
    g_clear_pointer (&self.fixture.archive, ecfs_archive_free);
    self.heard.findings = g_ptr_array_new_with_free_func ((GDestroyNotify) json_object_unref);
    self.ecfs = ecfs_open (self.fixture.directory, 0, NULL);
    Ecfs *writer = ecfs_open (self.fixture.directory, ECFS_OPEN_WRITE, NULL);
    g_autofree char *code = ecfs_new_code ();
    const EcfsKeyWay way = {.kind = "code", .secret = code};
    g_autofree char *added = ecfs_key_add (writer, &way, &error);
    g_assert_no_error (error);
    g_assert_nonnull (added);
    ecfs_close (writer);
    g_autoptr (GPtrArray) before = key_files_at (&self, 0);
    g_assert_cmpuint (before->len, ==, 1);
    const EcfsFsck what = {.flags = ECFS_FSCK_REPAIR, .found = on_found, .user = &self.heard}; /* without a question */
    g_autofree char *summary = ecfs_fsck (self.ecfs, &what, &error);
    g_assert_no_error (error);
    g_assert_nonnull (summary);
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        g_autoptr (GPtrArray) names = key_files_at (&self, i);
        g_assert_cmpuint (names->len, ==, 1);
        g_assert_cmpstr (g_ptr_array_index (names, 0), ==, g_ptr_array_index (before, 0));
    }
    g_assert_cmpuint (self.heard.findings->len, ==, 0);
    end (&self);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* notices are what these tests provoke */
    g_test_add_data_func ("/fsck/rs/what-two-endpoints-lost-comes-back", "rs:4+2", test_repair);
    g_test_add_data_func ("/fsck/copies/what-two-endpoints-lost-comes-back", "copies:3", test_repair);
    g_test_add_func ("/fsck/the-most-endangered-come-first", test_order);
    g_test_add_func ("/fsck/who-refuses-or-cancels-finds-all-as-it-was", test_refused_and_cancelled);
    g_test_add_func ("/fsck/what-an-export-meets-is-not-queued", test_exported);
    g_test_add_func ("/fsck/only-what-is-named-is-looked-at", test_paths);
    g_test_add_func ("/fsck/an-archive-open-for-reading-is-opened-for-repairs", test_open_for_reading);
    g_test_add_func ("/fsck/what-a-listing-lacks-is-asked-for", test_unlisted);
    g_test_add_func ("/fsck/an-endpoint-that-lost-its-marker-does-not-answer", test_unmounted);
    g_test_add_func ("/fsck/an-endpoint-that-reads-nothing-is-not-damaged", test_unreadable);
    g_test_add_func ("/fsck/what-a-spare-took-is-repaired", test_spare);
    g_test_add_func ("/recode/what-a-spare-took-is-stored", test_spare_of_recode);
    g_test_add_func ("/fsck/what-two-repair-at-once-is-whole", test_repaired_by_two);
    g_test_add_func ("/fsck/an-endpoint-that-is-added-meanwhile-is-not-given-up", test_endpoint_added_meanwhile);
    g_test_add_func ("/fsck/a-key-that-is-changed-meanwhile-stays-changed", test_key_changed_meanwhile);
    return g_test_run ();
}
