#include "exerciser.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES 4096
#define READ_BYTES 262144 /* at a time, where all is compared */

static size_t near_edge (Exerciser *self, size_t edge, size_t end)
{
    size_t edges = end / edge + 1;
    size_t at = below (self, edges) * edge + below (self, 5);
    return at < 2 ? 0 : MIN (at - 2, end);
}

static size_t pick_offset (Exerciser *self, size_t end)
{
    switch (below (self, 6)) {
    case 0:
        return near_edge (self, self->segment, end);
    case 1:
        return near_edge (self, PAGE_BYTES, end);
    case 2:
        return MIN (self->size, end);
    default:
        return below (self, end + 1);
    }
}

/* Small ones as often as large ones. */
static size_t pick_size (Exerciser *self)
{
    size_t size = below (self, (size_t) 2 << below (self, 19)) + 1;
    return chance (self, 3) ? (size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES : size;
}

Range pick_range (Exerciser *self, size_t end)
{
    size_t offset = pick_offset (self, end);
    size_t size = pick_size (self);
    return (Range){.offset = offset, .size = MIN (size, end - offset)};
}

void fill (Exerciser *self, size_t size)
{
    if (chance (self, 8)) {
        memset (self->buffer, 0, size);
        return;
    }
    for (size_t i = 0; i < size; i += sizeof (uint64_t)) {
        uint64_t word = self->n_done << 24 ^ i ^ (uint64_t) 0xa5 << 56;
        memcpy (self->buffer + i, &word, MIN (sizeof word, size - i));
    }
}

void model_write (Exerciser *self, Range range)
{
    memcpy (self->model + range.offset, self->buffer, range.size);
    if (range.size > 0)
        self->size = MAX (self->size, range.offset + range.size);
    self->touched = range;
}

void model_truncate (Exerciser *self, size_t size)
{
    if (size < self->size)
        memset (self->model + size, 0, self->size - size);
    self->size = size;
    self->touched = (Range){.offset = size > PAGE_BYTES ? size - PAGE_BYTES : 0, .size = 2 * PAGE_BYTES};
}

void model_zero (Exerciser *self, Range range)
{
    memset (self->model + range.offset, 0, range.size);
    self->touched = range;
}

void compare (Exerciser *self, Range range, const uint8_t *got, const char *how)
{
    const uint8_t *wanted = self->model + range.offset;
    if (memcmp (wanted, got, range.size) == 0)
        return;
    size_t first = 0;
    size_t last = range.size - 1;
    while (wanted[first] == got[first])
        first++;
    while (wanted[last] == got[last])
        last--;
    GString *text = g_string_new (NULL);
    for (size_t i = first; i < MIN (first + 16, range.size); i++)
        g_string_append_printf (text, " %02x/%02x", got[i], wanted[i]);
    fail (self, "%s of %zu bytes at %zu: wrong from %zu to %zu (the file has %zu); found/wanted:%s", how, range.size,
          range.offset, range.offset + first, range.offset + last, self->size, text->str);
}

void check_range (Exerciser *self, int fd, Range range, const char *how)
{
    size_t wanted = range.offset >= self->size ? 0 : MIN (range.size, self->size - range.offset);
    size_t done = 0;
    uint8_t *got = self->buffer;
    while (done < range.size) {
        ssize_t part = pread (fd, got + done, range.size - done, (off_t) (range.offset + done));
        if (part < 0)
            fail_errno (self, how);
        if (part == 0)
            break;
        done += (size_t) part;
    }
    if (done != wanted)
        fail (self, "%s: %zu bytes at %zu instead of %zu", how, done, range.offset, wanted);
    compare (self, (Range){.offset = range.offset, .size = done}, got, how);
}

static void check_stat (Exerciser *self, const struct stat *st, const char *how)
{
    if ((size_t) st->st_size != self->size)
        fail (self, "%s tells a size of %jd instead of %zu", how, (intmax_t) st->st_size, self->size);
}

void check_size (Exerciser *self)
{
    struct stat st;
    if (stat (self->path[self->name], &st) != 0)
        fail_errno (self, "stat");
    check_stat (self, &st, "stat");
    for (unsigned i = 0; i < N_HANDLES; i++) {
        if (self->handles[i].fd < 0)
            continue;
        if (fstat (self->handles[i].fd, &st) != 0)
            fail_errno (self, "fstat");
        check_stat (self, &st, "fstat");
    }
}

void check_all (Exerciser *self)
{
    int fd = open (self->path[self->name], O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail_errno (self, "open to compare");
    for (size_t at = 0; at <= self->size; at += READ_BYTES)
        check_range (self, fd, (Range){.offset = at, .size = READ_BYTES}, "comparing all");
    if (close (fd) != 0)
        fail_errno (self, "close after comparing");
}

static void check_zero (Exerciser *self, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (self->model[i] != 0)
            fail (self, "a hole is told from %zu to %zu, but there is data at %zu", from, to, i);
    }
}

void check_holes (Exerciser *self, int fd)
{
    off_t at = 0;
    while ((size_t) at < self->size) {
        off_t data = lseek (fd, at, SEEK_DATA);
        if (data < 0 && errno != ENXIO)
            fail_errno (self, "SEEK_DATA");
        size_t end = data < 0 ? self->size : (size_t) data;
        if (end < (size_t) at || end > self->size)
            fail (self, "SEEK_DATA from %jd finds %zu in %zu bytes", (intmax_t) at, end, self->size);
        check_zero (self, (size_t) at, end);
        if (data < 0)
            break;
        at = lseek (fd, data, SEEK_HOLE);
        if (at < data || (size_t) at > self->size)
            fail (self, "SEEK_HOLE from %jd finds %jd in %zu bytes", (intmax_t) data, (intmax_t) at, self->size);
        if (at == data) /* zeros that were in memory a moment ago: a tmpfs forgets them with the caches */
            check_zero (self, (size_t) data, (size_t) ++at);
    }
    if (lseek (fd, (off_t) self->size, SEEK_DATA) >= 0 || errno != ENXIO)
        fail (self, "SEEK_DATA at the end of %zu bytes finds something", self->size);
}
