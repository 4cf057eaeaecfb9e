#include "trees.h"

#include "codec/codec.h"
#include "util/error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void copy_time (const char *from, const char *to)
{
    struct stat st;
    g_assert_cmpint (stat (from, &st), ==, 0);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    g_assert_cmpint (utimensat (AT_FDCWD, to, times, 0), ==, 0);
}

void copy_tree (const char *from, const char *to)
{
    g_autoptr (GDir) dir = g_dir_open (from, 0, NULL);
    const char *name;
    g_assert_cmpint (g_mkdir_with_parents (to, 0700), ==, 0);
    while (dir != NULL && (name = g_dir_read_name (dir)) != NULL) {
        g_autofree char *source = g_build_filename (from, name, NULL), *target = g_build_filename (to, name, NULL);
        g_autofree char *bytes = NULL;
        gsize size;
        if (g_str_equal (name, "in-use")) /* the copy stands for the same disk, and that would say otherwise */
            continue;
        if (g_file_test (source, G_FILE_TEST_IS_DIR)) {
            copy_tree (source, target);
            continue;
        }
        g_assert_true (g_file_get_contents (source, &bytes, &size, NULL));
        g_assert_true (g_file_set_contents_full (target, bytes, (gssize) size, G_FILE_SET_CONTENTS_NONE, 0600, NULL));
        copy_time (source, target);
    }
}

char *watched_roots (const char *base)
{
    GString *roots = g_string_new (NULL);
    g_string_append_printf (roots, "%s/archive", base);
    for (unsigned i = 0; i < N_PLACES; i++)
        g_string_append_printf (roots, ":%s/e%u", base, i);
    return g_string_free (roots, FALSE);
}

void do_script (Actor *actor, const Script *script, unsigned from, unsigned to, Progress *progress)
{
    for (unsigned i = from; i < to; i++) {
        progress->n_begun = i + 1;
        progress->codes[i] = actor_do (actor, script->pdata[i]);
        progress->hashes[i] = actor->hash;
        progress->n_done = i + 1;
    }
}

pid_t begin_child (const CrashPlan *plan)
{
    if (plan->loss != CRASH_LOSES_NOTHING) /* what a power cut took away was written to files by this boot */
        crash_reboot ();
    pid_t child = fork ();
    g_assert_cmpint (child, >=, 0);
    if (child == 0 && plan->at > 0)
        crash_arm (plan);
    return child;
}

int end_child (pid_t child)
{
    int status;
    g_assert_cmpint (waitpid (child, &status, 0), ==, child);
    return status;
}

void warm_up (const char *code)
{
    g_autoptr (GError) error = NULL;
    g_error_free (g_error_new (ECFS_ERROR, EIO, "none")); /* makes a lock of GLib's: TSan takes it for a race */
    EcfsCodec *codec = ecfs_codec_new (code, &error);
    g_assert_no_error (error);
    ecfs_codec_free (codec);
}
