#include "exerciser.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define SETTLE_S   120
#define PAGE_BYTES 4096

/* Handles */

static bool can_read (const Handle *handle)
{
    return (handle->flags & O_ACCMODE) != O_WRONLY;
}

static bool can_write (const Handle *handle)
{
    return (handle->flags & O_ACCMODE) != O_RDONLY;
}

static bool can_both (const Handle *handle)
{
    return can_read (handle) && can_write (handle);
}

static bool has_writer (const Exerciser *self)
{
    for (unsigned i = 0; i < N_HANDLES; i++) {
        if (self->handles[i].fd >= 0 && can_write (&self->handles[i]))
            return true;
    }
    return self->mapping_holds;
}

/* Stored files above a size are not changed in place; one that is open for writing, or was just now, is. */
static bool may_be_refused (const Exerciser *self, int error)
{
    return error == EFBIG && self->rewrite_max > 0 && self->size > self->rewrite_max && !has_writer (self);
}

static void close_handle (Exerciser *self, Handle *handle)
{
    if (close (handle->fd) != 0)
        fail_errno (self, "close");
    handle->fd = -1;
}

static bool open_handle (Exerciser *self, Handle *handle, int flags)
{
    int fd = open (self->path[self->name], flags | O_CLOEXEC);
    if (fd < 0 && (!may_be_refused (self, errno) || !(flags & O_ACCMODE) || flags & O_TRUNC))
        fail_errno (self, "open");
    if (fd < 0) {
        say (self, " (open %#x refused)", (unsigned) flags);
        return false;
    }
    say (self, " (open %#x as %d)", (unsigned) flags, fd);
    *handle = (Handle){.fd = fd, .flags = flags};
    if (flags & O_TRUNC)
        model_truncate (self, 0);
    return true;
}

/* A random one of those that fit, or a new one; NULL: the file may not be changed in place. */
static Handle *handle_that (Exerciser *self, bool (*fits) (const Handle *handle))
{
    Handle *slot = NULL;
    size_t first = below (self, N_HANDLES);
    for (unsigned i = 0; i < N_HANDLES; i++) {
        Handle *handle = &self->handles[(first + i) % N_HANDLES];
        if (handle->fd >= 0 && fits (handle))
            return handle;
        if (slot == NULL || handle->fd < 0)
            slot = handle;
    }
    if (slot->fd >= 0)
        close_handle (self, slot);
    return open_handle (self, slot, O_RDWR) ? slot : NULL;
}

static void do_open (Exerciser *self)
{
    static const int kinds[] = {O_RDONLY,
                                O_RDONLY,
                                O_RDWR,
                                O_RDWR,
                                O_RDWR | O_APPEND,
                                O_WRONLY,
                                O_WRONLY | O_APPEND,
                                O_RDWR | O_DSYNC,
                                O_RDWR | O_DIRECT,
                                O_RDONLY | O_DIRECT};
    int flags = kinds[below (self, G_N_ELEMENTS (kinds))];
    if (!self->direct)
        flags &= ~O_DIRECT;
    if (flags & O_ACCMODE && chance (self, 12))
        flags |= O_TRUNC;
    Handle *slot = &self->handles[below (self, N_HANDLES)];
    if (slot->fd >= 0)
        close_handle (self, slot);
    (void) open_handle (self, slot, flags); /* refused is fine */
}

static void do_close (Exerciser *self)
{
    Handle *handle = &self->handles[below (self, N_HANDLES)];
    if (handle->fd >= 0)
        close_handle (self, handle);
}

static void end_mapping (Exerciser *self)
{
    if (self->mapping != NULL && munmap (self->mapping, self->largest) != 0)
        fail_errno (self, "munmap");
    self->mapping = NULL;
    self->mapping_writes = self->mapping_holds = false;
}

static void close_those (Exerciser *self, bool (*fits) (const Handle *handle))
{
    for (unsigned i = 0; i < N_HANDLES; i++) {
        if (self->handles[i].fd >= 0 && fits (&self->handles[i]))
            close_handle (self, &self->handles[i]);
    }
}

void close_all (Exerciser *self)
{
    end_mapping (self);
    close_those (self, can_read);
    close_those (self, can_write);
}

/* Reading and writing */

static void do_read (Exerciser *self)
{
    Handle *handle = handle_that (self, can_read);
    if (handle == NULL)
        return;
    Range range = pick_range (self, self->largest);
    say (self, " %zu+%zu by %d", range.offset, range.size, handle->fd);
    check_range (self, handle->fd, range, "read");
}

static void write_all (Exerciser *self, const Handle *handle, Range range)
{
    size_t done = 0;
    while (done < range.size) {
        ssize_t part = pwrite (handle->fd, self->buffer + done, range.size - done, (off_t) (range.offset + done));
        if (part <= 0)
            fail_errno (self, "write");
        done += (size_t) part;
    }
}

static void do_write (Exerciser *self)
{
    Handle *handle = handle_that (self, can_write);
    if (handle == NULL)
        return;
    Range range = pick_range (self, self->largest);
    if (handle->flags & O_APPEND) {
        range.offset = self->size;
        range.size = MIN (range.size, self->largest - self->size);
    }
    say (self, " %zu+%zu by %d", range.offset, range.size, handle->fd);
    fill (self, range.size);
    write_all (self, handle, range);
    model_write (self, range);
}

static void do_truncate (Exerciser *self)
{
    size_t size = chance (self, 3) ? below (self, self->largest + 1) : pick_range (self, self->size).offset;
    Handle *handle = chance (self, 2) ? handle_that (self, can_write) : NULL;
    say (self, " to %zu by %d", size, handle == NULL ? -1 : handle->fd);
    int result =
        handle == NULL ? truncate (self->path[self->name], (off_t) size) : ftruncate (handle->fd, (off_t) size);
    if (result == 0)
        model_truncate (self, size);
    else if (size > 0 && may_be_refused (self, errno))
        say (self, " refused");
    else
        fail_errno (self, "truncate");
}

static void do_fallocate (Exerciser *self)
{
    static const int modes[] = {0,
                                FALLOC_FL_KEEP_SIZE,
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                FALLOC_FL_ZERO_RANGE,
                                FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
    int mode = modes[below (self, G_N_ELEMENTS (modes))];
    Handle *handle = handle_that (self, can_write);
    Range range = pick_range (self, self->largest);
    if (handle == NULL || range.size == 0)
        return;
    say (self, " mode %d %zu+%zu by %d", mode, range.offset, range.size, handle->fd);
    if (fallocate (handle->fd, mode, (off_t) range.offset, (off_t) range.size) != 0) {
        if (errno != EOPNOTSUPP) /* the file system of the staging area need not know all of them */
            fail_errno (self, "fallocate");
        return;
    }
    if (!(mode & FALLOC_FL_KEEP_SIZE))
        self->size = MAX (self->size, range.offset + range.size);
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
        model_zero (self, range);
    self->touched = range;
}

static void do_copy (Exerciser *self)
{
    Handle *from = handle_that (self, can_read);
    Handle *to = handle_that (self, can_write);
    Range range = pick_range (self, self->size);
    size_t target = pick_range (self, self->largest - range.size).offset;
    bool overlaps = target < range.offset + range.size && range.offset < target + range.size;
    /* Opening the second may have closed the first. */
    if (from == NULL || to == NULL || from->fd < 0 || !can_read (from) || to->flags & O_APPEND || overlaps)
        return;
    say (self, " %zu+%zu by %d to %zu by %d", range.offset, range.size, from->fd, target, to->fd);
    loff_t in = (loff_t) range.offset;
    loff_t out = (loff_t) target;
    for (size_t done = 0; done < range.size;) {
        ssize_t part = copy_file_range (from->fd, &in, to->fd, &out, range.size - done, 0);
        if (part <= 0)
            fail_errno (self, "copy_file_range");
        done += (size_t) part;
    }
    memcpy (self->buffer, self->model + range.offset, range.size);
    model_write (self, (Range){.offset = target, .size = range.size});
}

/* Mapping */

/* The bytes before a range in its first page, which has to be mapped and synced as a whole. */
static size_t before (Range range)
{
    return range.offset % PAGE_BYTES;
}

/* Where the range is mapped. */
static uint8_t *map (Exerciser *self, const Handle *handle, int protection, Range range)
{
    void *at = mmap (NULL, range.size + before (range), protection, MAP_SHARED, handle->fd,
                     (off_t) (range.offset - before (range)));
    if (at == MAP_FAILED)
        fail_errno (self, "mmap");
    say (self, " %zu+%zu by %d", range.offset, range.size, handle->fd);
    return (uint8_t *) at + before (range);
}

static void unmap (Exerciser *self, uint8_t *at, Range range)
{
    if (munmap (at - before (range), range.size + before (range)) != 0)
        fail_errno (self, "munmap");
}

static void sync_sometimes (Exerciser *self, uint8_t *at, Range range)
{
    static const int kinds[] = {0, 0, MS_SYNC, MS_ASYNC};
    int flags = kinds[below (self, G_N_ELEMENTS (kinds))];
    if (flags != 0 && msync (at - before (range), range.size + before (range), flags) != 0)
        fail_errno (self, "msync");
    say (self, " msync %d", flags);
}

static void do_map_read (Exerciser *self)
{
    Handle *handle = handle_that (self, can_read);
    Range range = pick_range (self, self->size);
    if (handle == NULL || range.size == 0)
        return;
    uint8_t *at = map (self, handle, PROT_READ, range);
    compare (self, range, at, "a mapping");
    unmap (self, at, range);
}

/* The descriptor may be closed before the first byte is written. */
static void do_map_write (Exerciser *self)
{
    Handle *handle = handle_that (self, can_both);
    Range range = pick_range (self, self->size);
    if (handle == NULL || range.size == 0)
        return;
    uint8_t *at = map (self, handle, PROT_READ | PROT_WRITE, range);
    if (chance (self, 2)) {
        say (self, ", closed before");
        close_handle (self, handle);
    }
    fill (self, range.size);
    memcpy (at, self->buffer, range.size);
    model_write (self, range);
    sync_sometimes (self, at, range);
    unmap (self, at, range);
}

/* One that stays while other things happen to the file. */
static void do_mapping (Exerciser *self)
{
    if (self->mapping != NULL && chance (self, 8)) {
        say (self, " ends");
        end_mapping (self);
    } else if (self->mapping == NULL) {
        bool writes = !chance (self, 4);
        Handle *handle = handle_that (self, writes ? can_both : can_read);
        if (handle == NULL)
            return;
        say (self, " begins, writing %d", writes);
        self->mapping = map (self, handle, writes ? PROT_READ | PROT_WRITE : PROT_READ, (Range){.size = self->largest});
        self->mapping_writes = writes;
        self->mapping_holds = can_write (handle);
    }
    Range range = pick_range (self, self->size);
    if (self->mapping == NULL || range.size == 0)
        return;
    say (self, " %zu+%zu", range.offset, range.size);
    compare (self, range, self->mapping + range.offset, "the mapping");
    if (!self->mapping_writes || chance (self, 3))
        return;
    say (self, " written");
    fill (self, range.size);
    memcpy (self->mapping + range.offset, self->buffer, range.size);
    model_write (self, range);
    sync_sometimes (self, self->mapping + range.offset, range);
}

/* Another process, which inherits all descriptors and mappings, writes and ends without closing anything. */

static int write_in_child (const Exerciser *self, Range range, bool maps)
{
    int fd = open (self->path[self->name], O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno;
    if (!maps)
        return pwrite (fd, self->buffer, range.size, (off_t) range.offset) == (ssize_t) range.size ? 0 : EIO;
    size_t skip = before (range);
    uint8_t *at = mmap (NULL, range.size + skip, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t) (range.offset - skip));
    if (at == MAP_FAILED || close (fd) != 0)
        return errno;
    memcpy (at + skip, self->buffer, range.size);
    return 0;
}

static void do_child (Exerciser *self)
{
    bool maps = chance (self, 2);
    Range range = pick_range (self, maps ? self->size : self->largest);
    if (range.size == 0)
        return;
    say (self, " %zu+%zu, mapped %d", range.offset, range.size, maps);
    fill (self, range.size);
    pid_t child = fork ();
    if (child < 0)
        fail_errno (self, "fork");
    if (child == 0)
        _exit (write_in_child (self, range, maps));
    int status = 0;
    if (waitpid (child, &status, 0) != child || !WIFEXITED (status))
        fail (self, "the child was killed: %#x", (unsigned) status);
    if (WEXITSTATUS (status) == 0)
        model_write (self, range);
    else if (may_be_refused (self, WEXITSTATUS (status)))
        say (self, " refused");
    else
        fail (self, "the child: %s", g_strerror (WEXITSTATUS (status)));
}

/* What does not change the content */

static void do_sync (Exerciser *self)
{
    Handle *handle = handle_that (self, can_write);
    if (handle == NULL)
        return;
    say (self, " by %d", handle->fd);
    if ((chance (self, 2) ? fsync (handle->fd) : fdatasync (handle->fd)) != 0)
        fail_errno (self, "fsync");
}

static void do_rename (Exerciser *self)
{
    if (rename (self->path[self->name], self->path[!self->name]) != 0)
        fail_errno (self, "rename");
    self->name = !self->name;
    say (self, " to %s", self->path[self->name]);
}

static void do_holes (Exerciser *self)
{
    Handle *handle = handle_that (self, can_read);
    if (handle != NULL)
        check_holes (self, handle->fd);
}

/* Mounted once more a file system gives up its names, and with them the pages of what nobody has open. */
static void forget_all (Exerciser *self)
{
    struct statvfs found;
    say (self, ", and all of the mount");
    if (statvfs (self->directory, &found) != 0)
        fail_errno (self, "statvfs");
    unsigned long flags = found.f_flag & (ST_RDONLY | ST_NOSUID | ST_NODEV | ST_NOEXEC | ST_NOATIME);
    if (mount ("none", self->directory, NULL, MS_REMOUNT | flags, NULL) != 0)
        fail_errno (self, "mount");
    for (size_t i = 0; i < N_HANDLES; i++) {
        if (self->handles[i].fd >= 0)
            (void) posix_fadvise (self->handles[i].fd, 0, 0, POSIX_FADV_DONTNEED);
    }
}

/* The kernel forgets what it has of the file and is not to be written. */
static void do_forget (Exerciser *self)
{
    Handle *handle = handle_that (self, can_read);
    if (handle != NULL && posix_fadvise (handle->fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        fail (self, "posix_fadvise");
    if (self->forget && chance (self, 30))
        forget_all (self);
}

static bool is_stored (Exerciser *self)
{
    char state[64] = "";
    ssize_t size = getxattr (self->path[self->name], "user.ecfs.state", state, sizeof state - 1);
    if (size < 0 && errno != ENODATA && errno != ENOTSUP) /* a plain file system, to try the exerciser */
        fail_errno (self, "getxattr");
    return !g_str_has_prefix (state, "staged");
}

/* Nobody writes, all is stored, forgotten and read again; some may have been reading all the time. */
static void do_settle (Exerciser *self)
{
    if (chance (self, 3))
        close_all (self);
    if (self->mapping_holds)
        end_mapping (self);
    close_those (self, can_write);
    gint64 deadline = g_get_monotonic_time () + SETTLE_S * G_USEC_PER_SEC;
    while (!is_stored (self)) {
        if (g_get_monotonic_time () > deadline)
            fail (self, "not stored within %d s", SETTLE_S);
        g_usleep (2000);
    }
    do_forget (self);
    check_all (self);
}

/* All of them */

static const struct {
    const char *name;
    unsigned weight;
    void (*run) (Exerciser *self);
} operations[] = {
    {"read", 14, do_read},      {"write", 16, do_write},          {"truncate", 4, do_truncate},
    {"open", 6, do_open},       {"close", 6, do_close},           {"fallocate", 5, do_fallocate},
    {"copy", 3, do_copy},       {"map and read", 4, do_map_read}, {"map and write", 5, do_map_write},
    {"mapping", 8, do_mapping}, {"child", 1, do_child},           {"sync", 2, do_sync},
    {"rename", 1, do_rename},   {"holes", 2, do_holes},           {"forget", 4, do_forget},
    {"settle", 1, do_settle},
};

void operate (Exerciser *self)
{
    unsigned weights = 0;
    for (size_t i = 0; i < G_N_ELEMENTS (operations); i++)
        weights += operations[i].weight;
    size_t at = below (self, weights);
    size_t i = 0;
    while (at >= operations[i].weight)
        at -= operations[i++].weight;
    say (self, "%s", operations[i].name);
    operations[i].run (self);
}
