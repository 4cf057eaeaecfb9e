/* What the lock says of who holds it, at every moment. */
#include "archive/archive_priv.h"
#include "fixture.h"

#include <dlfcn.h>
#include <unistd.h>

#define LONG  "/a/mountpoint/whose/name/is/long"
#define SHORT "/short"

typedef struct Moments {
    const Fixture *fixture;
    char *lock;         /* path */
    const char *before; /* the mountpoints that may be told; NULL: none */
    const char *after;
    unsigned n_seen;
} Moments;

static Moments *moments; /* NULL: nobody looks */

static void look (void)
{
    EcfsHolder holder;
    g_assert_true (ecfs_archive_holder (moments->fixture->directory, &holder));
    g_assert_cmpint (holder.pid, ==, getpid ());
    g_assert_true (g_strcmp0 (holder.mountpoint, moments->before) == 0 ||
                   g_strcmp0 (holder.mountpoint, moments->after) == 0);
    ecfs_holder_clear (&holder);
    moments->n_seen++;
}

/* In place of libc's: who signs the lock is looked at before it and behind it. */
int ftruncate (int fd, off_t size)
{
    int (*real) (int, off_t) = (int (*) (int, off_t)) dlsym (RTLD_NEXT, "ftruncate");
    g_autofree char *link = g_strdup_printf ("/proc/self/fd/%d", fd);
    g_autofree char *path = moments == NULL ? NULL : g_file_read_link (link, NULL);
    bool watched = path != NULL && g_str_has_suffix (path, "/" ECFS_LOCK_NAME);
    if (watched)
        look ();
    int result = real (fd, size);
    if (watched)
        look ();
    return result;
}

/* Closes the archive, with its lock as a process left it that was killed while it was mounted. */
static void set_up_closed (Fixture *fixture, Moments *self)
{
    set_up (fixture, "copies:3");
    g_clear_pointer (&fixture->archive, ecfs_archive_free);
    *self = (Moments){.fixture = fixture, .lock = g_build_filename (fixture->directory, ECFS_LOCK_NAME, NULL)};
    g_assert_true (g_file_set_contents (self->lock, "4194303\n" LONG, -1, NULL));
}

static void end (Fixture *fixture, Moments *self)
{
    moments = NULL;
    g_free (self->lock);
    tear_down (fixture, NULL);
}

static void assert_text (const Moments *self, const char *mountpoint)
{
    g_autofree char *text = NULL, *expected = g_strdup_printf ("%ld\n%s", (long) getpid (), mountpoint);
    gsize size;
    g_assert_true (g_file_get_contents (self->lock, &text, &size, NULL));
    g_assert_cmpstr (text, ==, expected);
    g_assert_cmpuint (size, ==, strlen (expected));
}

/* Before it is started, and so before anything is read that could take long. */
static void test_opened (void)
{
    Fixture fixture = {.archive = NULL};
    Moments self;
    g_autoptr (GError) error = NULL;
    set_up_closed (&fixture, &self);
    moments = &self;
    fixture.archive = ecfs_archive_open (fixture.directory, 0, &error);
    g_assert_no_error (error);
    look ();
    g_assert_cmpuint (self.n_seen, >, 1);
    assert_text (&self, "");
    end (&fixture, &self);
}

static void test_mounted (void)
{
    static const char *const mountpoints[] = {LONG, SHORT, LONG};
    Fixture fixture = {.archive = NULL};
    Moments self;
    g_autoptr (GError) error = NULL;
    set_up_closed (&fixture, &self);
    fixture.archive = ecfs_archive_open (fixture.directory, 0, &error);
    g_assert_no_error (error);
    moments = &self;
    for (size_t i = 0; i < G_N_ELEMENTS (mountpoints); i++) {
        self.after = mountpoints[i];
        ecfs_archive_mounted_on (fixture.archive, mountpoints[i]);
        self.before = mountpoints[i];
        look ();
        g_assert_cmpuint (self.n_seen, ==, 3 * (i + 1));
        assert_text (&self, mountpoints[i]);
    }
    end (&fixture, &self);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/holder/who-opens-an-archive-is-named-at-once", test_opened);
    g_test_add_func ("/holder/the-lock-is-never-empty-nor-half-of-two", test_mounted);
    return g_test_run ();
}
