#include "fs/mount.h"

#include "util/error.h"

#include <sys/mount.h>

static void assert_words (const char *list, const char *fuse_words)
{
    g_autoptr (GError) error = NULL;
    EcfsMountOptions options = {0};
    bool good = ecfs_mount_options_add (&options, list, false, &error);
    g_assert_no_error (error);
    g_assert_true (good);
    g_assert_cmpstr (options.fuse_words->str, ==, fuse_words);
    ecfs_mount_options_clear (&options);
    ecfs_mount_options_clear (&options);
}

static void test_handed_on (void)
{
    assert_words ("", "");
    assert_words ("nosuid,nodev,noexec,noatime", "nosuid,nodev,noexec,noatime");
    assert_words ("max_read=65536,sync", "max_read=65536,sync");
    assert_words ("nosuid,nodev,allow_dev,allow_suid", "nosuid,nodev,dev,suid");
    assert_words ("max_background=12,no_splice_read,clone_fd,max_threads=4", "max_background=12,no_splice_read");
    assert_words ("context=\"system_u:object_r:tmp_t:s0:c1,c2\"", "context=\"system_u:object_r:tmp_t:s0:c1\\,c2\"");
}

static void test_dropped (void)
{
    assert_words ("defaults,_netdev,nofail,noauto,auto,user,users,owner,group,user=joe,comment=mine", "");
    assert_words ("x-systemd.automount,x-systemd.requires-mounts-for=/srv,x-gvfs-show,X-mine=1", "");
    assert_words ("relatime,strictatime,lazytime,nodiratime,atime", "nodiratime");
    assert_words ("rw,user_id=0,group_id=0,default_permissions,allow_other", ""); /* what mountinfo tells */
    assert_words ("uhelper=ecfs,helper=ecfs", "");
}

static void test_ours (void)
{
    EcfsMountOptions options = {0};
    g_assert_true (ecfs_mount_options_add (&options, "ro,allow_other", false, NULL));
    g_assert_true (options.readonly && options.allow_other && !options.remount);
    g_assert_cmpuint (options.flags, ==, MS_RDONLY);
    g_assert_true (ecfs_mount_options_add (&options, "remount,noexec,rw", false, NULL)); /* the last word counts */
    g_assert_true (!options.readonly && options.allow_other && options.remount);
    g_assert_cmpuint (options.flags & ~(unsigned long) MS_REMOUNT, ==, MS_NOEXEC);
    ecfs_mount_options_clear (&options);
}

static void test_unknown (void)
{
    g_autoptr (GError) error = NULL;
    EcfsMountOptions options = {0};
    g_assert_false (ecfs_mount_options_add (&options, "ro,bogus,noexec,size=3,bind", false, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_assert_nonnull (strstr (error->message, "bogus, size=3, bind"));
    static const char *const bad[] = {"allow_othe",    "ro=1x",      "fsname=x",       "subtype=x",
                                      "nosymfollow",   "mand",       "x=\"y",          "max_threads=0",
                                      "max_threads=x", "max_read=1", "writeback_cache"};
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++) {
        g_autoptr (GError) again = NULL;
        g_assert_false (ecfs_mount_options_add (&options, bad[i], false, &again));
        g_assert_error (again, ECFS_ERROR, EINVAL);
    }
    g_assert_true (ecfs_mount_options_add (&options, "bogus,noexec", true, NULL));
    ecfs_mount_options_clear (&options);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/options/what-the-kernel-needs-is-handed-on", test_handed_on);
    g_test_add_func ("/options/what-is-for-others-is-dropped", test_dropped);
    g_test_add_func ("/options/what-is-ours-is-taken", test_ours);
    g_test_add_func ("/options/what-nobody-knows-is-refused", test_unknown);
    return g_test_run ();
}
