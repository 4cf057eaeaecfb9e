/*
 * lab-fault, to be preloaded into an sftp-server: what it does to stripes goes wrong as the file named by
 * ECFS_LAB_FAULT says. The file holds a word, and a number where one is needed; it is read anew each time, empty or
 * absent is no fault.
 *
 *     fsync ERRNO    fsync and fdatasync fail with this error
 *     hold 0         they do not return, as long as this is so
 *     link ERRNO     giving a stripe its final name fails with this error
 *     exit-before    the server ends where it should give a stripe its final name
 *     exit-after     the same, after it did
 *     truncate       a stripe that has its final name loses its second half, and the server says that all is well
 *     corrupt        the same with a bit in the middle
 *     less N         files are said to be half as large as they are: with N = 1 open ones, 2 those without their final
 *                    name too, 3 all
 *     hide 0         logs are not to be seen by their names
 *     full N         N bytes more fit into logs; no space is left, then and before
 *     statvfs ERRNO  asking for the space fails with this error
 *     reopen ERRNO   opening a temporary file that is there already, for writing, fails with this error
 *     write ERRNO    writing to temporary files fails with this error
 *     rewrite ERRNO  the same, where they were there already
 *     reclose ERRNO  closing these fails with this error
 *     crawl N        reading stripes gives N bytes at a time
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

typedef struct Fault {
    char word[32];
    int number;
} Fault;

static Fault current_fault (void)
{
    Fault fault = {.word = ""};
    const char *path = getenv ("ECFS_LAB_FAULT");
    FILE *file = path != NULL ? fopen (path, "re") : NULL;
    if (file == NULL)
        return fault;
    if (fscanf (file, "%31s %d", fault.word, &fault.number) < 1)
        fault.word[0] = '\0';
    (void) fclose (file); /* only read */
    return fault;
}

static bool is (const Fault *fault, const char *word)
{
    return strcmp (fault->word, word) == 0;
}

static int sync_by (const char *name, int fd)
{
    Fault fault;
    while (fault = current_fault (), is (&fault, "hold"))
        (void) usleep (2000); /* whatever ends it, this looks again */
    if (is (&fault, "fsync")) {
        errno = fault.number;
        return -1;
    }
    int (*real) (int) = (int (*) (int)) dlsym (RTLD_NEXT, name);
    return real (fd);
}

int fsync (int fd)
{
    return sync_by ("fsync", fd);
}

int fdatasync (int fd)
{
    return sync_by ("fdatasync", fd);
}

/* What the tests look at is what follows: that the damage could be done is not checked here. */
static void spoil (const char *path, const Fault *fault)
{
    struct stat st;
    if (stat (path, &st) != 0)
        abort ();
    if (is (fault, "truncate") && truncate (path, st.st_size / 2) != 0)
        abort ();
    if (!is (fault, "corrupt"))
        return;
    unsigned char byte;
    int fd = open (path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || pread (fd, &byte, 1, st.st_size / 2) != 1)
        abort ();
    byte ^= 0x10;
    if (pwrite (fd, &byte, 1, st.st_size / 2) != 1 || close (fd) != 0)
        abort ();
}

int link (const char *from, const char *to)
{
    Fault fault = current_fault ();
    if (strstr (to, "/stripes/") == NULL)
        fault.word[0] = '\0';
    if (is (&fault, "link")) {
        errno = fault.number;
        return -1;
    }
    if (is (&fault, "exit-before"))
        _exit (1);
    int (*real) (const char *, const char *) = (int (*) (const char *, const char *)) dlsym (RTLD_NEXT, "link");
    int result = real (from, to);
    if (is (&fault, "exit-after"))
        _exit (1);
    if (result == 0)
        spoil (to, &fault);
    return result;
}

/* Under the names that the server calls, whatever size of numbers this here is compiled for. */
int told_fstat (int fd, struct stat *st) __asm__("fstat");
int told_stat (const char *path, struct stat *st) __asm__("stat");
int told_statvfs (const char *path, struct statvfs *st) __asm__("statvfs");

static int tell (int fd, const char *path, struct stat *st, int least)
{
    Fault fault = current_fault ();
    int result = fstatat (fd, path, st, fd >= 0 ? AT_EMPTY_PATH : 0);
    if (result == 0 && S_ISREG (st->st_mode) && is (&fault, "less") && fault.number >= least)
        st->st_size /= 2;
    return result;
}

int told_fstat (int fd, struct stat *st)
{
    return tell (fd, "", st, 1);
}

int told_stat (const char *path, struct stat *st)
{
    Fault fault = current_fault ();
    if (is (&fault, "hide") && strstr (path, "/logs/") != NULL) {
        errno = ENOENT;
        return -1;
    }
    return tell (AT_FDCWD, path, st, strstr (path, "/incoming/") != NULL ? 2 : 3);
}

int told_statvfs (const char *path, struct statvfs *st)
{
    Fault fault = current_fault ();
    if (is (&fault, "statvfs")) {
        errno = fault.number;
        return -1;
    }
    int (*real) (const char *, struct statvfs *) =
        (int (*) (const char *, struct statvfs *)) dlsym (RTLD_NEXT, "statvfs");
    int result = real (path, st);
    if (result == 0 && is (&fault, "full"))
        st->f_bavail = 0;
    return result;
}

/* Of the files that are open, by descriptor: temporary ones and logs for writing, stripes for reading. */
#define N_FILES 256
static bool is_temporary[N_FILES], was_there[N_FILES], is_stripe[N_FILES], is_log[N_FILES];
static size_t n_logged; /* since logs are full */

int told_open (const char *path, int flags, ...) __asm__("open");

int told_open (const char *path, int flags, ...)
{
    va_list arguments;
    va_start (arguments, flags);
    int mode = (flags & O_CREAT) != 0 ? va_arg (arguments, int) : 0;
    va_end (arguments);
    bool temporary = strstr (path, "/incoming/") != NULL && (flags & O_ACCMODE) != O_RDONLY;
    bool there = (flags & O_CREAT) == 0;
    Fault fault = current_fault ();
    if (is (&fault, "reopen") && temporary && there) {
        errno = fault.number;
        return -1;
    }
    int fd = openat (AT_FDCWD, path, flags, mode);
    if (fd >= 0 && fd < N_FILES) {
        is_temporary[fd] = temporary;
        was_there[fd] = temporary && there;
        is_stripe[fd] = (flags & O_ACCMODE) == O_RDONLY && strstr (path, "/stripes/") != NULL;
        is_log[fd] = (flags & O_ACCMODE) != O_RDONLY && strstr (path, "/logs/") != NULL;
    }
    return fd;
}

ssize_t read (int fd, void *bytes, size_t size)
{
    ssize_t (*real) (int, void *, size_t) = (ssize_t (*) (int, void *, size_t)) dlsym (RTLD_NEXT, "read");
    if (fd < 0 || fd >= N_FILES || !is_stripe[fd])
        return real (fd, bytes, size);
    Fault fault = current_fault ();
    return real (fd, bytes, is (&fault, "crawl") && size > (size_t) fault.number ? (size_t) fault.number : size);
}

/* How much of @size bytes for a log may be written. */
static size_t fitting (const Fault *fault, size_t size)
{
    if (!is (fault, "full"))
        return size;
    size_t left = (size_t) fault->number > n_logged ? (size_t) fault->number - n_logged : 0;
    n_logged += size < left ? size : left;
    return size < left ? size : left;
}

ssize_t write (int fd, const void *bytes, size_t size)
{
    ssize_t (*real) (int, const void *, size_t) = (ssize_t (*) (int, const void *, size_t)) dlsym (RTLD_NEXT, "write");
    if (fd < 0 || fd >= N_FILES || (!is_temporary[fd] && !is_log[fd]))
        return real (fd, bytes, size);
    Fault fault = current_fault ();
    if (is_log[fd]) {
        size_t fits = fitting (&fault, size);
        errno = ENOSPC;
        return fits > 0 ? real (fd, bytes, fits) : -1;
    }
    if (is (&fault, "write") || (is (&fault, "rewrite") && was_there[fd])) {
        errno = fault.number;
        return -1;
    }
    return real (fd, bytes, size);
}

int close (int fd)
{
    int (*real) (int) = (int (*) (int)) dlsym (RTLD_NEXT, "close");
    int result = real (fd);
    if (fd < 0 || fd >= N_FILES || !is_temporary[fd])
        return result;
    Fault fault = current_fault ();
    bool fails = is (&fault, "reclose") && was_there[fd];
    is_temporary[fd] = was_there[fd] = false;
    if (!fails)
        return result;
    errno = fault.number;
    return -1;
}
