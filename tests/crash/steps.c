/*
 * The calls that count, in front of those of libc.
 *
 * By LD_PRELOAD the plan comes from the environment: ECFS_CRASH_ROOTS, ECFS_CRASH_GRAVE, ECFS_CRASH_AT,
 * ECFS_CRASH_MOMENT (before, after, halfway), ECFS_CRASH_LOSS (nothing, all, some), ECFS_CRASH_SEED,
 * ECFS_CRASH_EVERY_WRITE, and ECFS_CRASH_BOARD: a file of sizeof (CrashBoard) bytes.
 */
#undef _FILE_OFFSET_BITS /* both families of names are defined here; they are the same where off_t has 64 bits */

#include "steps.h"

#include "disk.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

_Static_assert(sizeof (off_t) == 8, "off_t has 64 bits");

#define PATH_BYTES 4096

static const CrashPlan *plan;     /* NULL: not armed */
static _Thread_local bool inside; /* calls that disk.c and this file make do not count */
static unsigned n_boots;          /* 0: the machine's own; changed where there is one thread */

/* One call that may count. */
typedef struct Step {
    bool watched;
    bool dies_after;
    char path[PATH_BYTES];
} Step;

/* The plan */

void crash_arm (const CrashPlan *new_plan)
{
    if (new_plan->loss != CRASH_LOSES_NOTHING)
        disk_init (new_plan->grave);
    plan = new_plan;
}

void crash_sync (void)
{
    if (plan == NULL || plan->loss == CRASH_LOSES_NOTHING)
        return;
    disk_lock ();
    disk_all_synced ();
    disk_unlock ();
}

void crash_reboot (void)
{
    n_boots++;
}

static unsigned word_index (const char *name, const char *const *words)
{
    const char *text = getenv (name);
    for (unsigned i = 0; text != NULL && words[i] != NULL; i++)
        if (strcmp (text, words[i]) == 0)
            return i;
    return 0;
}

static uint64_t number (const char *name)
{
    const char *text = getenv (name);
    return text == NULL ? 0 : strtoull (text, NULL, 10);
}

static CrashBoard *map_board (const char *path)
{
    int fd = open (path, O_RDWR | O_CLOEXEC);
    void *board = fd < 0 ? MAP_FAILED : mmap (NULL, sizeof (CrashBoard), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (board == MAP_FAILED) {
        perror (path);
        abort ();
    }
    (void) close (fd); /* the mapping stays */
    return board;
}

__attribute__ ((constructor)) static void arm_from_environment (void)
{
    static const char *const moments[] = {"before", "after", "halfway", NULL};
    static const char *const losses[] = {"nothing", "all", "some", NULL};
    static CrashPlan from_environment;
    const char *board = getenv ("ECFS_CRASH_BOARD");
    if (board == NULL)
        return;
    from_environment = (CrashPlan){.roots = getenv ("ECFS_CRASH_ROOTS"),
                                   .grave = getenv ("ECFS_CRASH_GRAVE"),
                                   .at = (uint32_t) number ("ECFS_CRASH_AT"),
                                   .moment = (CrashMoment) word_index ("ECFS_CRASH_MOMENT", moments),
                                   .loss = (CrashLoss) word_index ("ECFS_CRASH_LOSS", losses),
                                   .seed = number ("ECFS_CRASH_SEED"),
                                   .every_write = number ("ECFS_CRASH_EVERY_WRITE") != 0,
                                   .pauses = number ("ECFS_CRASH_PAUSES") != 0,
                                   .board = map_board (board)};
    crash_arm (&from_environment);
}

/* Paths */

static bool is_watched (const char *path)
{
    for (const char *root = plan->roots; root != NULL && *root != '\0';) {
        size_t size = strcspn (root, ":");
        if (strncmp (path, root, size) == 0 && (path[size] == '/' || path[size] == '\0'))
            return true;
        root += size + (root[size] == ':');
    }
    return false;
}

static bool ends_with (const char *path, const char *end)
{
    size_t size = strlen (path), end_size = strlen (end);
    return size >= end_size && strcmp (path + size - end_size, end) == 0;
}

static bool path_of_fd (int fd, char *path)
{
    char link[64];
    snprintf (link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink (link, path, PATH_BYTES - 1);
    if (size < 0)
        return false;
    path[size] = '\0';
    return true;
}

static bool path_at (int dir_fd, const char *name, char *path)
{
    if (name[0] == '/')
        return snprintf (path, PATH_BYTES, "%s", name) < PATH_BYTES;
    char dir[PATH_BYTES];
    if (dir_fd == AT_FDCWD ? getcwd (dir, sizeof dir) == NULL : !path_of_fd (dir_fd, dir))
        return false;
    return snprintf (path, PATH_BYTES, "%s/%s", dir, name) < PATH_BYTES;
}

/* Dying */

static void die (Step *step, const char *moment, uint32_t at, const char *call)
{
    CrashBoard *board = plan->board;
    if (plan->loss != CRASH_LOSES_NOTHING)
        disk_lose (plan->loss, plan->seed);
    snprintf (board->where, sizeof board->where, "%s %u %s %.200s", moment, at, call, step->path);
    board->died = 1;
    (void) kill (getpid (), SIGKILL);
    for (;;)
        (void) pause ();
}

/* By SIGSTOP, which comes to all threads a moment later; this one goes no further. */
static void stop_here (Step *step, uint32_t at, const char *call)
{
    volatile CrashBoard *board = plan->board;
    snprintf (plan->board->where, sizeof plan->board->where, "before %u %s %.200s", at, call, step->path);
    board->died = 1;
    (void) kill (getpid (), SIGSTOP);
    while (board->died != 0)
        (void) usleep (1000);
}

/* The write-ahead log and the database: SQLite's own, except that they become durable. */
static bool is_counted (const Step *step, bool is_write)
{
    return plan->every_write || !is_write || strstr (step->path, "/catalog.sqlite") == NULL;
}

/* Decides whether the call on step->path counts; may not return. True: only the first half is to be done. */
static bool step_begin (Step *step, const char *call, bool is_write)
{
    step->watched = is_watched (step->path) && !ends_with (step->path, "-shm") && !ends_with (step->path, " (deleted)");
    if (!step->watched)
        return false;
    inside = true;
    if (plan->loss != CRASH_LOSES_NOTHING)
        disk_lock ();
    if (!is_counted (step, is_write))
        return false;
    uint32_t number_of_this = atomic_fetch_add (&plan->board->n_steps, 1) + 1;
    if (plan->pauses && number_of_this == atomic_load (&plan->board->pause_at))
        stop_here (step, number_of_this, call);
    if (number_of_this != plan->at)
        return false;
    bool halfway = plan->moment == CRASH_HALFWAY && is_write;
    if (plan->moment != CRASH_AFTER && !halfway)
        die (step, "before", number_of_this, call);
    step->dies_after = true;
    return halfway;
}

static void step_end (Step *step, const char *call, bool happened)
{
    int saved = errno;
    if (!step->watched)
        return;
    if (plan->loss != CRASH_LOSES_NOTHING)
        disk_done (happened);
    if (step->dies_after)
        die (step, plan->moment == CRASH_HALFWAY ? "halfway" : "after", plan->at, call);
    if (plan->loss != CRASH_LOSES_NOTHING)
        disk_unlock ();
    inside = false;
    errno = saved;
}

/* Whether changes that the step makes are to be noted for a loss. */
static bool is_noted (const Step *step)
{
    return step->watched && plan->loss != CRASH_LOSES_NOTHING;
}

static bool counts_fd (Step *step, int fd)
{
    *step = (Step){.watched = false};
    return plan != NULL && !inside && path_of_fd (fd, step->path);
}

static bool counts_path (Step *step, int dir_fd, const char *name)
{
    *step = (Step){.watched = false};
    return plan != NULL && !inside && path_at (dir_fd, name, step->path);
}

/* The next definition of a function: libc's, or that of a sanitizer. */
#define NEXT(name) ((__typeof__ (&name)) next (#name))

static void *next (const char *name)
{
    void *found = dlsym (RTLD_NEXT, name);
    if (found == NULL)
        abort ();
    return found;
}

/* Bytes */

static ssize_t count_write (const char *call, ssize_t (*real) (int, const void *, size_t, off_t), int fd,
                            const void *bytes, size_t size, off_t offset)
{
    Step step;
    if (!counts_fd (&step, fd))
        return real (fd, bytes, size, offset);
    bool half = step_begin (&step, call, true);
    if (is_noted (&step))
        disk_note_bytes (fd, offset, (off_t) size);
    ssize_t result = real (fd, bytes, half ? size / 2 : size, offset);
    step_end (&step, call, result >= 0);
    return result;
}

ssize_t pwrite (int fd, const void *bytes, size_t size, off_t offset)
{
    return count_write ("pwrite", NEXT (pwrite), fd, bytes, size, offset);
}

ssize_t pwrite64 (int fd, const void *bytes, size_t size, off64_t offset)
{
    return count_write ("pwrite", NEXT (pwrite64), fd, bytes, size, offset);
}

static ssize_t write_at_position (int fd, const void *bytes, size_t size, off_t offset)
{
    (void) offset;
    return NEXT (write) (fd, bytes, size);
}

ssize_t write (int fd, const void *bytes, size_t size)
{
    if (plan == NULL || inside)
        return NEXT (write) (fd, bytes, size);
    return count_write ("write", write_at_position, fd, bytes, size, lseek (fd, 0, SEEK_CUR));
}

static size_t size_of_iov (const struct iovec *iov, int n_iov)
{
    size_t size = 0;
    for (int i = 0; i < n_iov; i++)
        size += iov[i].iov_len;
    return size;
}

/* The first half of it; a write may always be short. */
static ssize_t write_half (ssize_t (*real) (int, const struct iovec *, int, off_t), int fd, const struct iovec *iov,
                           int n_iov, off_t offset)
{
    size_t left = size_of_iov (iov, n_iov) / 2;
    int n = 0;
    struct iovec *half = malloc ((size_t) n_iov * sizeof *half);
    if (half == NULL)
        abort ();
    for (; n < n_iov && left > 0; n++) {
        half[n] = (struct iovec){iov[n].iov_base, iov[n].iov_len < left ? iov[n].iov_len : left};
        left -= half[n].iov_len;
    }
    ssize_t result = n == 0 ? 0 : real (fd, half, n, offset);
    free (half);
    return result;
}

static ssize_t count_writev (const char *call, ssize_t (*real) (int, const struct iovec *, int, off_t), int fd,
                             const struct iovec *iov, int n_iov, off_t offset)
{
    Step step;
    if (!counts_fd (&step, fd))
        return real (fd, iov, n_iov, offset);
    bool half = step_begin (&step, call, true);
    if (is_noted (&step))
        disk_note_bytes (fd, offset, (off_t) size_of_iov (iov, n_iov));
    ssize_t result = half ? write_half (real, fd, iov, n_iov, offset) : real (fd, iov, n_iov, offset);
    step_end (&step, call, result >= 0);
    return result;
}

ssize_t pwritev (int fd, const struct iovec *iov, int n_iov, off_t offset)
{
    return count_writev ("pwritev", NEXT (pwritev), fd, iov, n_iov, offset);
}

ssize_t pwritev64 (int fd, const struct iovec *iov, int n_iov, off64_t offset)
{
    return count_writev ("pwritev", NEXT (pwritev64), fd, iov, n_iov, offset);
}

static ssize_t writev_at_position (int fd, const struct iovec *iov, int n_iov, off_t offset)
{
    (void) offset;
    return NEXT (writev) (fd, iov, n_iov);
}

ssize_t writev (int fd, const struct iovec *iov, int n_iov)
{
    if (plan == NULL || inside)
        return NEXT (writev) (fd, iov, n_iov);
    return count_writev ("writev", writev_at_position, fd, iov, n_iov, lseek (fd, 0, SEEK_CUR));
}

ssize_t splice (int from, off64_t *from_offset, int to, off64_t *to_offset, size_t size, unsigned flags)
{
    Step step;
    if (!counts_fd (&step, to))
        return NEXT (splice) (from, from_offset, to, to_offset, size, flags);
    bool half = step_begin (&step, "splice", true);
    if (is_noted (&step))
        disk_note_bytes (to, to_offset != NULL ? *to_offset : lseek (to, 0, SEEK_CUR), (off_t) size);
    ssize_t result = NEXT (splice) (from, from_offset, to, to_offset, half ? size / 2 : size, flags);
    step_end (&step, "splice", result >= 0);
    return result;
}

ssize_t copy_file_range (int from, off64_t *from_offset, int to, off64_t *to_offset, size_t size, unsigned flags)
{
    Step step;
    if (!counts_fd (&step, to))
        return NEXT (copy_file_range) (from, from_offset, to, to_offset, size, flags);
    bool half = step_begin (&step, "copy_file_range", true);
    if (is_noted (&step))
        disk_note_bytes (to, to_offset != NULL ? *to_offset : lseek (to, 0, SEEK_CUR), (off_t) size);
    ssize_t result = NEXT (copy_file_range) (from, from_offset, to, to_offset, half ? size / 2 : size, flags);
    step_end (&step, "copy_file_range", result >= 0);
    return result;
}

static int count_truncate (int (*real) (int, off_t), int fd, off_t size)
{
    Step step;
    if (!counts_fd (&step, fd))
        return real (fd, size);
    (void) step_begin (&step, "ftruncate", true); /* has no half */
    if (is_noted (&step))
        disk_note_bytes (fd, size, INT64_MAX / 2);
    int result = real (fd, size);
    step_end (&step, "ftruncate", result == 0);
    return result;
}

int ftruncate (int fd, off_t size)
{
    return count_truncate (NEXT (ftruncate), fd, size);
}

int ftruncate64 (int fd, off64_t size)
{
    return count_truncate (NEXT (ftruncate64), fd, size);
}

static int count_fallocate (int (*real) (int, int, off_t, off_t), int fd, int mode, off_t offset, off_t size)
{
    Step step;
    if (!counts_fd (&step, fd))
        return real (fd, mode, offset, size);
    (void) step_begin (&step, "fallocate", true); /* has no half */
    if (is_noted (&step))
        disk_note_bytes (fd, offset, size);
    int result = real (fd, mode, offset, size);
    step_end (&step, "fallocate", result == 0);
    return result;
}

int fallocate (int fd, int mode, off_t offset, off_t size)
{
    return count_fallocate (NEXT (fallocate), fd, mode, offset, size);
}

int fallocate64 (int fd, int mode, off64_t offset, off64_t size)
{
    return count_fallocate (NEXT (fallocate64), fd, mode, offset, size);
}

int futimens (int fd, const struct timespec times[2])
{
    Step step;
    if (!counts_fd (&step, fd))
        return NEXT (futimens) (fd, times);
    (void) step_begin (&step, "futimens", false); /* has no half */
    if (is_noted (&step))
        disk_note_times (fd);
    int result = NEXT (futimens) (fd, times);
    step_end (&step, "futimens", result == 0);
    return result;
}

/* The directory that a watched one is in is no step, and yet may make its name durable. */
static void sync_above (int fd)
{
    if (plan->loss == CRASH_LOSES_NOTHING)
        return;
    disk_lock ();
    disk_synced (fd, false);
    disk_unlock ();
}

static int count_sync (const char *call, int (*real) (int), int fd, bool data_only)
{
    Step step;
    if (!counts_fd (&step, fd))
        return real (fd);
    (void) step_begin (&step, call, false); /* has no half */
    int result = real (fd);
    if (is_noted (&step) && result == 0)
        disk_synced (fd, data_only);
    step_end (&step, call, result == 0);
    if (!step.watched && result == 0)
        sync_above (fd);
    return result;
}

int fsync (int fd)
{
    return count_sync ("fsync", NEXT (fsync), fd, false);
}

int fdatasync (int fd)
{
    return count_sync ("fdatasync", NEXT (fdatasync), fd, true);
}

/* Names */

/* -1: it is the machine's own. */
static int open_boot (const char *path)
{
    if (n_boots == 0 || strcmp (path, "/proc/sys/kernel/random/boot_id") != 0)
        return -1;
    int fd = memfd_create ("boot_id", MFD_CLOEXEC);
    if (fd >= 0 && (dprintf (fd, "boot-%d-%u\n", (int) getpid (), n_boots) < 0 || lseek (fd, 0, SEEK_SET) != 0))
        abort ();
    return fd;
}

static int count_open (const char *name, int dir_fd, const char *path, int flags, mode_t mode)
{
    Step step;
    struct stat st;
    int (*real) (int, const char *, int, ...) = NEXT (openat);
    int boot = open_boot (path);
    if (boot >= 0)
        return boot;
    bool may_change = flags & (O_CREAT | O_TRUNC) && (flags & O_TMPFILE) != O_TMPFILE;
    if (!may_change || !counts_path (&step, dir_fd, path))
        return real (dir_fd, path, flags, mode);
    inside = true;
    bool exists = lstat (step.path, &st) == 0;
    inside = false;
    if (exists && (!(flags & O_TRUNC) || flags & O_EXCL))
        return real (dir_fd, path, flags, mode);
    (void) step_begin (&step, name, false); /* has no half */
    if (is_noted (&step) && exists) {
        int fd = real (AT_FDCWD, step.path, O_RDWR | O_CLOEXEC);
        disk_note_bytes (fd, 0, INT64_MAX / 2);
        (void) close (fd); /* disk.c has its own */
    } else if (is_noted (&step)) {
        disk_note_made (step.path);
    }
    int fd = real (dir_fd, path, flags, mode);
    step_end (&step, name, fd >= 0);
    return fd;
}

#define MODE_OF(flags)                                                                                                 \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                                             \
        va_list arguments;                                                                                             \
        va_start (arguments, flags);                                                                                   \
        mode = va_arg (arguments, mode_t);                                                                             \
        va_end (arguments);                                                                                            \
    }

int open (const char *path, int flags, ...)
{
    MODE_OF (flags)
    return count_open ("open", AT_FDCWD, path, flags, mode);
}

int open64 (const char *path, int flags, ...)
{
    MODE_OF (flags)
    return count_open ("open", AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int openat (int dir_fd, const char *path, int flags, ...)
{
    MODE_OF (flags)
    return count_open ("openat", dir_fd, path, flags, mode);
}

int openat64 (int dir_fd, const char *path, int flags, ...)
{
    MODE_OF (flags)
    return count_open ("openat", dir_fd, path, flags | O_LARGEFILE, mode);
}

int mkdirat (int dir_fd, const char *path, mode_t mode)
{
    Step step;
    if (!counts_path (&step, dir_fd, path))
        return NEXT (mkdirat) (dir_fd, path, mode);
    (void) step_begin (&step, "mkdir", false); /* has no half */
    if (is_noted (&step))
        disk_note_made (step.path);
    int result = NEXT (mkdirat) (dir_fd, path, mode);
    step_end (&step, "mkdir", result == 0);
    return result;
}

int mkdir (const char *path, mode_t mode)
{
    return mkdirat (AT_FDCWD, path, mode);
}

int unlinkat (int dir_fd, const char *path, int flags)
{
    Step step;
    if (!counts_path (&step, dir_fd, path))
        return NEXT (unlinkat) (dir_fd, path, flags);
    (void) step_begin (&step, "unlink", false); /* has no half */
    if (is_noted (&step))
        disk_note_removed (step.path);
    int result = NEXT (unlinkat) (dir_fd, path, flags);
    step_end (&step, "unlink", result == 0);
    return result;
}

int unlink (const char *path)
{
    return unlinkat (AT_FDCWD, path, 0);
}

int rmdir (const char *path)
{
    return unlinkat (AT_FDCWD, path, AT_REMOVEDIR);
}

int remove (const char *path)
{
    int result = unlink (path);
    return result != 0 && errno == EISDIR ? rmdir (path) : result;
}

int renameat2 (int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    Step step;
    char target[PATH_BYTES];
    if (!counts_path (&step, from_fd, from) || !path_at (to_fd, to, target))
        return NEXT (renameat2) (from_fd, from, to_fd, to, flags);
    (void) step_begin (&step, "rename", false); /* has no half */
    if (is_noted (&step))
        disk_note_moved (step.path, target);
    int result = NEXT (renameat2) (from_fd, from, to_fd, to, flags);
    step_end (&step, "rename", result == 0);
    return result;
}

int renameat (int from_fd, const char *from, int to_fd, const char *to)
{
    return renameat2 (from_fd, from, to_fd, to, 0);
}

int rename (const char *from, const char *to)
{
    return renameat2 (AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat (int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    Step step;
    if (!counts_path (&step, to_fd, to))
        return NEXT (linkat) (from_fd, from, to_fd, to, flags);
    (void) step_begin (&step, "link", false); /* has no half */
    if (is_noted (&step))
        disk_note_made (step.path);
    int result = NEXT (linkat) (from_fd, from, to_fd, to, flags);
    step_end (&step, "link", result == 0);
    return result;
}

int link (const char *from, const char *to)
{
    return linkat (AT_FDCWD, from, AT_FDCWD, to, 0);
}
