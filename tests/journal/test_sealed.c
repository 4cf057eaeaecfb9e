/* An archive with a key: what endpoints have of its journal tells no name, and nobody else makes any of it. */
#include "archive/archive_priv.h"
#include "archive/keys.h"
#include "catalog/journal_file.h"
#include "catalog/journal_rows.h"
#include "fixture.h"
#include "journal/journal_watch.h"
#include "program/program.h"
#include "recover/recover.h"

#include <glib/gstdio.h>
#include <sys/stat.h>
#include <zlib.h>

#define CODE        "rs:4+2"
#define SECRET      "a name that nobody is to learn"
#define N_FILES     20
#define PATIENCE_US (60 * G_USEC_PER_SEC)
#define LOOK_US     20000

static const char *const kinds[] = {ECFS_JOURNAL_DIRECTORY, ECFS_SNAPSHOT_DIRECTORY};

static void store_journal (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    g_assert_true (ecfs_archive_store_journal (fixture->archive, NULL, NULL, &error));
    g_assert_no_error (error);
}

static uint64_t place_of (Fixture *fixture, unsigned endpoint)
{
    g_autoptr (GArray) places = ecfs_catalog_journal_places (fixture->archive->catalog, NULL);
    for (guint i = 0; i < places->len; i++) {
        const EcfsJournalPlace *place = &g_array_index (places, EcfsJournalPlace, i);
        if (place->endpoint == ecfs_archive_endpoint (fixture->archive, endpoint)->id)
            return place->sequence;
    }
    return 0;
}

/* Until the endpoint has what happened up to now; false: it does not come to have it. */
static bool comes_to_have (Fixture *fixture, unsigned endpoint, int64_t patience_us)
{
    int64_t end_us = ecfs_now_us () + patience_us;
    uint64_t sequence = ecfs_catalog_sequence (fixture->archive->catalog);
    while (place_of (fixture, endpoint) < sequence && ecfs_now_us () < end_us) {
        ecfs_archive_revive_endpoints (fixture->archive);
        store_journal (fixture);
        g_usleep (LOOK_US);
    }
    return place_of (fixture, endpoint) >= sequence;
}

/* Files with names that are to be secret, at all endpoints. */
static void plant (Fixture *fixture)
{
    for (unsigned i = 0; i < N_FILES; i++) {
        g_autofree char *name = g_strdup_printf (SECRET " %u", i);
        (void) make_file (fixture, name);
    }
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        g_assert_true (comes_to_have (fixture, i, PATIENCE_US));
}

static unsigned count_planted (Fixture *fixture)
{
    unsigned n = 0;
    for (unsigned i = 0; i < N_FILES; i++) {
        EcfsAttr attr;
        g_autofree char *name = g_strdup_printf (SECRET " %u", i);
        n += ecfs_catalog_lookup (fixture->archive->catalog, ECFS_ROOT_INO, name, &attr, NULL);
    }
    return n;
}

/* Files of the endpoints */

typedef void (*OnFile) (void *user, unsigned endpoint, const char *path);

static void each_below (const char *path, unsigned endpoint, OnFile each, void *user)
{
    g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
    const char *name;
    if (dir == NULL && g_file_test (path, G_FILE_TEST_IS_REGULAR))
        each (user, endpoint, path);
    while (dir != NULL && (name = g_dir_read_name (dir)) != NULL) {
        g_autofree char *child = g_build_filename (path, name, NULL);
        each_below (child, endpoint, each, user);
    }
}

/* Of the journal, or of all. */
static void each_file (const Fixture *fixture, unsigned from, unsigned to, bool journal, OnFile each, void *user)
{
    for (unsigned i = from; i < to; i++) {
        g_autofree char *root = endpoint_path (fixture, i);
        for (size_t j = 0; journal && j < G_N_ELEMENTS (kinds); j++) {
            g_autofree char *path = g_build_filename (root, kinds[j], NULL);
            each_below (path, i, each, user);
        }
        if (!journal)
            each_below (root, i, each, user);
    }
}

static GBytes *bytes_of (const char *path)
{
    char *bytes;
    size_t size;
    g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
    return g_bytes_new_take (bytes, size);
}

static bool has_secret (const void *bytes, size_t size)
{
    return memmem (bytes, size, SECRET, strlen (SECRET)) != NULL;
}

static void assert_no_secret (void *user, unsigned endpoint, const char *path)
{
    g_autoptr (GBytes) bytes = bytes_of (path);
    g_assert_false (has_secret (g_bytes_get_data (bytes, NULL), g_bytes_get_size (bytes)));
}

typedef struct Counts {
    unsigned n_files[3]; /* by kind */
    unsigned n_legible;
} Counts;

/* What everybody makes of a journal file. */
static void read_as_stranger (void *user, unsigned endpoint, const char *path)
{
    Counts *counts = user;
    EcfsJournalFile file;
    g_autoptr (GError) error = NULL;
    g_autoptr (GBytes) whole = bytes_of (path);
    size_t size;
    const uint8_t *bytes = g_bytes_get_data (whole, &size);
    uint8_t to[4096];
    uLongf n_to = sizeof to;
    g_assert_true (ecfs_journal_file_head (bytes, size, &file, &error));
    counts->n_files[file.kind]++;
    int result = uncompress (to, &n_to, bytes + ECFS_JOURNAL_HEADER_BYTES, size - ECFS_JOURNAL_HEADER_BYTES);
    g_assert_true ((result == Z_OK || result == Z_BUF_ERROR) == !file.is_sealed);
    g_autoptr (GPtrArray) rows = ecfs_journal_file_parse (bytes, size, NULL, &file, &error);
    g_assert_true (rows != NULL || g_error_matches (error, ECFS_ERROR, ENOKEY));
    counts->n_legible += rows != NULL;
}

/* Makes a file of the same records. */
typedef struct Remake {
    const EcfsKeyRing *from; /* NULL: it is open, as the next */
    const EcfsKeyRing *to;
} Remake;

static void remake (void *user, unsigned endpoint, const char *path)
{
    const Remake *how = user;
    EcfsJournalFile file;
    g_autoptr (GError) error = NULL;
    g_autoptr (GByteArray) raw = g_byte_array_new ();
    g_autoptr (GBytes) whole = bytes_of (path);
    g_autoptr (GPtrArray) rows =
        ecfs_journal_file_parse (g_bytes_get_data (whole, NULL), g_bytes_get_size (whole), how->from, &file, &error);
    g_assert_no_error (error);
    for (guint i = 0; i < rows->len; i++) {
        const EcfsJournalRow *row = g_ptr_array_index (rows, i);
        ecfs_journal_file_put (raw, row->sequence, row->time_ns, row->record->data, row->record->len);
    }
    g_autoptr (GByteArray) made = ecfs_journal_file_format (&file, raw, how->to);
    g_assert_true (g_file_set_contents (path, (const char *) made->data, (gssize) made->len, NULL));
}

static void add_digest (void *user, unsigned endpoint, const char *path)
{
    g_autoptr (GBytes) bytes = bytes_of (path);
    g_autofree char *digest = g_compute_checksum_for_bytes (G_CHECKSUM_SHA256, bytes);
    g_ptr_array_add (user, g_strconcat (path, " ", digest, NULL));
}

static int by_text (const void *a, const void *b)
{
    return strcmp (*(const char *const *) a, *(const char *const *) b);
}

/* All that endpoints have, as a text; g_free (). */
static char *state_of (const Fixture *fixture)
{
    g_autoptr (GPtrArray) lines = g_ptr_array_new_with_free_func (g_free);
    each_file (fixture, 0, N_ENDPOINTS, false, add_digest, lines);
    g_ptr_array_sort (lines, by_text);
    g_ptr_array_add (lines, NULL);
    return g_strjoinv ("\n", (char **) lines->pdata);
}

/* Recovery */

static void tell (void *user, const char *text)
{
    g_test_message ("%s", text);
}

static bool tick (void *user, const char *phase, uint64_t n_done, uint64_t n_all)
{
    return true;
}

static EcfsKeyRing *keys_of (const Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *path = g_build_filename (fixture->directory, ECFS_KEYS_NAME, NULL);
    EcfsKeyRing *keys = ecfs_keys_read (path, &error);
    g_assert_no_error (error);
    return keys;
}

static void close_archive (Fixture *fixture)
{
    ecfs_archive_free (fixture->archive);
    fixture->archive = NULL;
}

/* The archive anew from all endpoints, in place of what the fixture has; the code of the error, or 0. */
static int recover (Fixture *fixture, const EcfsKeyRing *keys, EcfsRecovered *ret_sums)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *path = g_build_filename (fixture->directory, ECFS_CONFIG_NAME, NULL), *text = NULL;
    g_autofree char *again = g_strconcat (fixture->directory, "-again", NULL);
    EcfsRecovered sums;
    g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
    g_autoptr (EcfsConfig) config = ecfs_config_parse (text, path, &error);
    g_assert_no_error (error);
    const EcfsRecover what = {
        .directory = again, .config = config, .keys = keys, .force = true, .tell = tell, .tick = tick};
    bool recovered = ecfs_archive_recover (&what, &sums, &error);
    if (ret_sums != NULL)
        *ret_sums = sums;
    else
        ecfs_recovered_clear (&sums);
    g_assert_true (g_file_test (again, G_FILE_TEST_EXISTS) == recovered);
    if (!recovered) {
        g_test_message ("refused: %s", error->message);
        g_assert_true (error->code != ENOKEY || keys != NULL || strstr (error->message, "--key FILE") != NULL);
        return error->code;
    }
    g_free (fixture->directory);
    fixture->directory = g_steal_pointer (&again);
    return 0;
}

/* Tests */

static void test_no_name (Fixture *fixture, gconstpointer code)
{
    Counts counts = {.n_legible = 0};
    g_autoptr (GError) error = NULL;
    plant (fixture);
    g_assert_true (ecfs_journal_renew (fixture->archive, &error));
    each_file (fixture, 0, N_ENDPOINTS, true, read_as_stranger, &counts);
    g_assert_cmpuint (counts.n_files[ECFS_JOURNAL_SEGMENT], >=, N_ENDPOINTS);
    g_assert_cmpuint (counts.n_files[ECFS_JOURNAL_SNAPSHOT], >=, N_ENDPOINTS);
    g_assert_cmpuint (counts.n_legible, ==, 0);
    each_file (fixture, 0, N_ENDPOINTS, false, assert_no_secret, NULL);
}

/* What the test before this asks is not true of every archive. */
static void test_open (Fixture *fixture, gconstpointer code)
{
    Counts counts = {.n_legible = 0};
    plant (fixture);
    each_file (fixture, 0, N_ENDPOINTS, true, read_as_stranger, &counts);
    g_assert_cmpuint (counts.n_legible, ==,
                      counts.n_files[ECFS_JOURNAL_SEGMENT] + counts.n_files[ECFS_JOURNAL_SNAPSHOT]);
    g_assert_cmpuint (counts.n_legible, >=, N_ENDPOINTS);
}

static void test_recovered (Fixture *fixture, gconstpointer code)
{
    struct stat status;
    plant (fixture);
    close_archive (fixture);
    for (unsigned round = 0; round < 2; round++) { /* from what the mount stored, and from what recovery did */
        g_autoptr (EcfsKeyRing) keys = keys_of (fixture);
        g_assert_cmpint (recover (fixture, keys, NULL), ==, 0);
        g_autofree char *path = g_build_filename (fixture->directory, ECFS_KEYS_NAME, NULL);
        g_assert_cmpint (stat (path, &status), ==, 0);
        g_assert_cmpuint (status.st_mode & 0777, ==, 0600);
    }
    reopen (fixture);
    g_assert_nonnull (ecfs_archive_keys (fixture->archive));
    g_assert_cmpuint (count_planted (fixture), ==, N_FILES);
    Counts counts = {.n_legible = 0};
    (void) make_file (fixture, "another");
    store_journal (fixture);
    each_file (fixture, 0, N_ENDPOINTS, true, read_as_stranger, &counts);
    g_assert_cmpuint (counts.n_legible, ==, 0);
}

/* Nobody takes what is sealed for damaged, and makes an archive of the rest. */
static void test_without_key (Fixture *fixture, gconstpointer code)
{
    const EcfsUuid another = ecfs_uuid_new ();
    plant (fixture);
    close_archive (fixture);
    g_autoptr (EcfsKeyRing) keys = keys_of (fixture);
    g_autoptr (EcfsKeyRing) foreign = ecfs_key_ring_new (&another);
    g_autoptr (EcfsKeyRing) wrong = ecfs_key_ring_new (ecfs_key_ring_archive (keys));
    g_autofree char *before = state_of (fixture);
    g_assert_cmpint (recover (fixture, NULL, NULL), ==, ENOKEY);
    g_assert_cmpint (recover (fixture, foreign, NULL), ==, ENOKEY);
    g_assert_cmpint (recover (fixture, wrong, NULL), ==, ENOKEY);
    g_autofree char *after = state_of (fixture);
    g_assert_cmpstr (after, ==, before);
}

/* Nor where the newest file of each endpoint tells nothing. */
static void test_without_key_or_head (Fixture *fixture, gconstpointer code)
{
    static const char zeros[200];
    char name[ECFS_JOURNAL_NAME_SIZE];
    const EcfsJournalFile later = {.kind = ECFS_JOURNAL_SEGMENT, .epoch = 1, .first = 1 << 20, .last = 1 << 20};
    plant (fixture);
    close_archive (fixture);
    ecfs_journal_file_name (&later, name);
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        g_autofree char *root = endpoint_path (fixture, i), *path = g_build_filename (root, name, NULL);
        g_assert_true (g_file_set_contents (path, zeros, sizeof zeros, NULL));
    }
    g_autofree char *before = state_of (fixture);
    g_assert_cmpint (recover (fixture, NULL, NULL), ==, ENOKEY);
    g_autofree char *after = state_of (fixture);
    g_assert_cmpstr (after, ==, before);
}

/* Endpoints have the same where no byte of it is the same. */
static void test_sealed_apart (Fixture *fixture, gconstpointer code)
{
    EcfsRecovered sums;
    EcfsJournalSight sight;
    g_autoptr (EcfsKeyRing) keys = keys_of (fixture);
    Remake how = {.from = keys, .to = keys};
    g_assert_true (ecfs_journal_renew (fixture->archive, NULL));
    plant (fixture);
    each_file (fixture, 0, N_ENDPOINTS, true, remake, &how);
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        g_assert_true (ecfs_journal_look (fixture->archive, i, true, &sight, NULL));
        g_assert_null (sight.missing);
    }
    close_archive (fixture);
    g_assert_cmpint (recover (fixture, keys, &sums), ==, 0);
    g_assert_null (sums.doubted);
    g_assert_true (sums.has_snapshot);
    g_assert_cmpuint (sums.n_records, >=, N_FILES);
    ecfs_recovered_clear (&sums);
    reopen (fixture);
    g_assert_cmpuint (count_planted (fixture), ==, N_FILES);
}

/* What everybody can make counts nowhere. */
static void test_made_open (Fixture *fixture, gconstpointer code)
{
    EcfsRecovered sums;
    EcfsJournalSight sight;
    g_autoptr (EcfsKeyRing) keys = keys_of (fixture);
    Remake how = {.from = keys, .to = NULL};
    plant (fixture);
    each_file (fixture, 0, 1, true, remake, &how);
    for (unsigned i = 0; i < 2; i++) {
        g_assert_true (ecfs_journal_look (fixture->archive, i, true, &sight, NULL));
        g_assert_true ((sight.missing != NULL) == (i == 0));
        g_free (sight.missing);
    }
    close_archive (fixture);
    each_file (fixture, 1, N_ENDPOINTS, true, remake, &how);
    g_assert_cmpint (recover (fixture, keys, &sums), ==, 0); /* by force */
    g_assert_cmpuint (sums.n_records, ==, 0);
    ecfs_recovered_clear (&sums);
    reopen (fixture);
    g_assert_cmpuint (count_planted (fixture), ==, 0);
}

/* An endpoint that says that there is a key keeps nobody from recovering the archive that has none. */
static void test_made_sealed (Fixture *fixture, gconstpointer code)
{
    g_autoptr (EcfsKeyRing) keys = ecfs_key_ring_new (ecfs_catalog_archive (fixture->archive->catalog));
    Remake how = {.from = NULL, .to = keys};
    plant (fixture);
    close_archive (fixture);
    each_file (fixture, 0, 2, true, remake, &how);
    g_assert_cmpint (recover (fixture, NULL, NULL), ==, 0);
    reopen (fixture);
    g_assert_null (ecfs_archive_keys (fixture->archive));
    g_assert_cmpuint (count_planted (fixture), ==, N_FILES);
}

typedef struct Copying {
    const char *root; /* to where */
    unsigned n_copied;
} Copying;

static void copy_missing (void *user, unsigned endpoint, const char *path)
{
    Copying *self = user;
    g_autofree char *name = g_path_get_basename (path);
    g_autofree char *to = g_build_filename (self->root, ECFS_JOURNAL_DIRECTORY, name, NULL);
    g_autoptr (GBytes) bytes = bytes_of (path);
    if (g_file_test (to, G_FILE_TEST_EXISTS) || strstr (path, ECFS_SNAPSHOT_DIRECTORY) != NULL)
        return;
    g_assert_true (g_file_set_contents (to, g_bytes_get_data (bytes, NULL), (gssize) g_bytes_get_size (bytes), NULL));
    self->n_copied++;
}

/* A segment that an upload left of which nobody heard. @how: what became of it since. */
static bool is_found_again (Fixture *fixture, Remake *how, int64_t patience_us)
{
    g_autofree char *root = endpoint_path (fixture, 0);
    Copying copying = {.root = root};
    plant (fixture);
    hide_endpoint (fixture, 0, true);
    (void) make_file (fixture, "while it is away");
    for (unsigned i = 1; i < N_ENDPOINTS; i++)
        g_assert_true (comes_to_have (fixture, i, PATIENCE_US));
    hide_endpoint (fixture, 0, false);
    each_file (fixture, 1, 2, true, copy_missing, &copying);
    g_assert_cmpuint (copying.n_copied, ==, 1);
    each_file (fixture, 0, 1, true, remake, how);
    return comes_to_have (fixture, 0, patience_us);
}

static void test_found_again (Fixture *fixture, gconstpointer code)
{
    g_autoptr (EcfsKeyRing) keys = keys_of (fixture);
    Remake how = {.from = keys, .to = keys};
    g_assert_true (is_found_again (fixture, &how, PATIENCE_US));
}

static void test_found_open (Fixture *fixture, gconstpointer code)
{
    g_autoptr (EcfsKeyRing) keys = keys_of (fixture);
    Remake how = {.from = keys, .to = NULL};
    g_assert_false (is_found_again (fixture, &how, 2 * G_USEC_PER_SEC));
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_test_add ("/sealed/no-endpoint-learns-a-name", Fixture, CODE, set_up_keyed, test_no_name, tear_down);
    g_test_add ("/sealed/without-a-key-it-is-open", Fixture, CODE, set_up, test_open, tear_down);
    g_test_add ("/sealed/an-archive-comes-back-with-its-key", Fixture, CODE, set_up_keyed, test_recovered, tear_down);
    g_test_add ("/sealed/without-its-key-it-does-not", Fixture, CODE, set_up_keyed, test_without_key, tear_down);
    g_test_add ("/sealed/nor-where-the-newest-files-are-damaged", Fixture, CODE, set_up_keyed, test_without_key_or_head,
                tear_down);
    g_test_add ("/sealed/records-are-compared-and-not-bytes", Fixture, CODE, set_up_keyed, test_sealed_apart,
                tear_down);
    g_test_add ("/sealed/an-open-file-counts-nowhere", Fixture, CODE, set_up_keyed, test_made_open, tear_down);
    g_test_add ("/sealed/one-that-feigns-a-key-is-outvoted", Fixture, CODE, set_up, test_made_sealed, tear_down);
    g_test_add ("/sealed/a-segment-that-is-there-already-is-known", Fixture, CODE, set_up_keyed, test_found_again,
                tear_down);
    g_test_add ("/sealed/an-open-segment-that-is-there-is-none", Fixture, CODE, set_up_keyed, test_found_open,
                tear_down);
    return g_test_run ();
}
