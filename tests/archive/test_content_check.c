/* What is read of a file against the SHA-256 of its objects. */
#include "archive/archive_priv.h"
#include "archive/content_check.h"
#include "commit/commit.h"
#include "fixture.h"
#include "util/io.h"
#include "util/lock.h"

#include <fcntl.h>
#include <unistd.h>

#define SIZE 700001

typedef struct Outcome {
    EcfsMutex lock;
    EcfsCond cond;
    bool done;
} Outcome;

static void committed (void *user, const EcfsOutcome *end)
{
    Outcome *outcome = user;
    g_assert_no_error (end->error);
    ecfs_mutex_lock (&outcome->lock);
    outcome->done = true;
    ecfs_cond_signal (&outcome->cond);
    ecfs_mutex_unlock (&outcome->lock);
}

/* Stores @bytes behind a hole of @hole bytes; its content. */
static EcfsContent *store (Fixture *fixture, uint64_t hole, const uint8_t *bytes, uint64_t *ret_ino)
{
    Outcome outcome = {.done = false};
    g_autoptr (GError) error = NULL;
    g_autofree char *path = g_build_filename (fixture->base, "source", NULL);
    ecfs_autofd fd = open (path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    g_assert_cmpint (ecfs_pwrite_all (fd, bytes, SIZE, hole), ==, 0);
    ecfs_mutex_init (&outcome.lock);
    ecfs_cond_init (&outcome.cond);
    *ret_ino = make_file (fixture, "file");
    const EcfsCommit commit = {.kind = ECFS_COMMIT_STORE,
                               .ino = *ret_ino,
                               .fd = fd,
                               .size = hole + SIZE,
                               .mtime_ns = 1,
                               .done = committed,
                               .patient = true,
                               .user = &outcome};
    ecfs_archive_commit (fixture->archive, &commit);
    ecfs_mutex_lock (&outcome.lock);
    int64_t deadline_us = ecfs_now_us () + 60 * G_USEC_PER_SEC;
    while (!outcome.done)
        g_assert_true (ecfs_cond_wait_until (&outcome.cond, &outcome.lock, deadline_us) || outcome.done);
    ecfs_mutex_unlock (&outcome.lock);
    ecfs_cond_clear (&outcome.cond);
    ecfs_mutex_clear (&outcome.lock);
    EcfsContent *content = ecfs_content_open (fixture->archive, *ret_ino, &error);
    g_assert_no_error (error);
    return content;
}

/* Gives it the file in pieces of 1 to @most bytes, from @offset on. Whether nothing was found, at the end at last. */
static bool check (EcfsContent *content, uint64_t offset, const uint8_t *bytes, size_t size, unsigned most)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsContentCheck) self = ecfs_content_check_new (content);
    bool good = true;
    for (size_t at = 0, piece; good && at < size; at += piece) {
        piece = MIN (size - at, (size_t) g_test_rand_int_range (1, (int) most));
        const struct iovec iov[] = {{.iov_base = (void *) (bytes + at), .iov_len = piece / 3},
                                    {.iov_base = (void *) (bytes + at + piece / 3), .iov_len = piece - piece / 3}};
        good = ecfs_content_check_take (self, offset + at, iov, 2, &error);
    }
    good = good && ecfs_content_check_end (self, &error);
    g_assert_true ((ecfs_content_check_bad (self) == NULL) == good);
    if (!good)
        g_assert_error (error, ECFS_ERROR, EBADMSG);
    return good;
}

static void test_whole (Fixture *fixture, gconstpointer code)
{
    uint64_t ino;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    EcfsContent *content = store (fixture, 0, bytes, &ino);
    g_assert_true (check (content, 0, bytes, SIZE, 100000));
    g_assert_true (check (content, 0, bytes, SIZE, SIZE + 1));
    for (unsigned i = 0; i < 20; i++) {
        size_t at = i == 0 ? 0 : i == 1 ? SIZE - 1 : (size_t) g_test_rand_int_range (0, SIZE);
        bytes[at] ^= 1;
        g_assert_false (check (content, 0, bytes, SIZE, 300000));
        bytes[at] ^= 1;
    }
    ecfs_content_unref (content);
}

/* Of several objects each is compared by itself. */
static void test_objects (Fixture *fixture, gconstpointer code)
{
    uint64_t ino;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    fixture->archive->config->object_max = 256 << 10;
    EcfsContent *content = store (fixture, 0, bytes, &ino);
    g_assert_cmpuint (ecfs_content_extents (content)->len, ==, 3);
    g_assert_true (check (content, 0, bytes, SIZE, 100000));
    for (unsigned i = 0; i < 3; i++) {
        size_t at = i * (256 << 10) + 17;
        bytes[at] ^= 1;
        g_assert_false (check (content, 0, bytes, SIZE, 100000));
        bytes[at] ^= 1;
    }
    ecfs_content_unref (content);
}

/* Zeros of holes may be given or left out: they are in no object. */
static void test_hole (Fixture *fixture, gconstpointer code)
{
    uint64_t ino;
    const uint64_t hole = 1 << 20;
    g_autofree uint8_t *bytes = random_bytes (SIZE), *all = g_malloc0 (hole + SIZE);
    memcpy (all + hole, bytes, SIZE);
    EcfsContent *content = store (fixture, hole, bytes, &ino);
    g_assert_cmpuint (g_array_index (ecfs_content_extents (content), EcfsExtent, 0).offset, ==, hole);
    g_assert_true (check (content, hole, bytes, SIZE, 100000));
    g_assert_true (check (content, 0, all, hole + SIZE, 100000));
    all[hole + 5] ^= 1;
    g_assert_false (check (content, 0, all, hole + SIZE, 100000));
    ecfs_content_unref (content);
}

/* Of an object that a file has a part of, nothing can be said. */
static void test_part (Fixture *fixture, gconstpointer code)
{
    uint64_t ino;
    EcfsAttr attr = {.size = SIZE - 1};
    g_autoptr (GError) error = NULL;
    g_autofree uint8_t *bytes = random_bytes (SIZE);
    ecfs_content_unref (store (fixture, 0, bytes, &ino));
    g_assert_true (ecfs_catalog_setattr (fixture->archive->catalog, ino, &attr, ECFS_ATTR_SIZE, &attr, &error));
    EcfsContent *content = ecfs_content_open (fixture->archive, ino, &error);
    g_assert_no_error (error);
    g_assert_true (check (content, 0, bytes, SIZE - 1, 100000));
    bytes[7] ^= 1;
    g_assert_true (check (content, 0, bytes, SIZE - 1, 100000));
    ecfs_content_unref (content);
}

int main (int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*test) (Fixture *fixture, gconstpointer code);
    } tests[] = {{"/content-check/a-whole-object-is-compared", test_whole},
                 {"/content-check/each-object-is-compared", test_objects},
                 {"/content-check/holes-are-of-no-object", test_hole},
                 {"/content-check/a-part-is-not-compared", test_part}};
    g_test_init (&argc, &argv, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS (tests); i++)
        g_test_add (tests[i].name, Fixture, "rs:4+2", set_up, tests[i].test, tear_down);
    ecfs_content_check_free (NULL);
    return g_test_run ();
}
