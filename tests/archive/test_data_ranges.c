/* What of a file is content, on file systems that tell of a hole where bytes are not on the disk yet. */
#include "archive/archive_priv.h"
#include "object/format.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

static unsigned long fs_type;
static bool dirty, can_sync;

/* In the place of libc's. */
int fstatfs (int fd, struct statfs *ret_fs)
{
    long result = syscall (SYS_fstatfs, fd, ret_fs);
    ret_fs->f_type = (__fsword_t) fs_type;
    return (int) result;
}

int fdatasync (int fd)
{
    if (can_sync)
        dirty = false;
    errno = EIO;
    return can_sync && fd >= 0 ? 0 : -1;
}

off_t lseek (int fd, off_t offset, int whence)
{
    if (dirty && whence == SEEK_DATA) {
        errno = ENXIO;
        return -1;
    }
    return (off_t) syscall (SYS_lseek, fd, offset, whence);
}

static uint64_t data_bytes (unsigned long type, bool sync_works)
{
    FILE *file = tmpfile ();
    g_assert_nonnull (file);
    g_autofree char *bytes = g_strnfill (200000, 'x');
    g_assert_cmpint (write (fileno (file), bytes, 200000), ==, 200000);
    fs_type = type;
    dirty = type != EXT4_SUPER_MAGIC;
    can_sync = sync_works;
    g_autoptr (GArray) ranges = ecfs_data_ranges (fileno (file), 200000);
    dirty = false;
    uint64_t sum = 0;
    for (guint i = 0; i < ranges->len; i++)
        sum += g_array_index (ranges, EcfsFileRange, i).length;
    g_assert_cmpint (fclose (file), ==, 0);
    return sum;
}

static void test_dirty (void)
{
    g_assert_cmpuint (data_bytes (EXT4_SUPER_MAGIC, false), ==, 200000);
    g_assert_cmpuint (data_bytes (0x2fc12fc1, true), ==, 200000);  /* ZFS */
    g_assert_cmpuint (data_bytes (0x2fc12fc1, false), ==, 200000); /* what cannot be known is data */
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/data-ranges/bytes-that-are-not-on-the-disk-yet-are-no-hole", test_dirty);
    return g_test_run ();
}
