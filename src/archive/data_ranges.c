/* What of a local file is content, and what holes. */
#include "archive/common.h"

#include "object/format.h"
#include "util/io.h"

#include <unistd.h>

#define HOLE_MIN_BYTES 65536 /* shorter holes are stored as zeros: an extent costs more */
#define EXTENTS_MAX    4096

static GArray *add_all (GArray *ranges, uint64_t size)
{
    EcfsFileRange all = {.length = size};
    if (size > 0)
        g_array_append_val (ranges, all);
    return ranges;
}

GArray *ecfs_data_ranges (int fd, uint64_t size)
{
    GArray *ranges = g_array_new (FALSE, FALSE, sizeof (EcfsFileRange));
    uint64_t at = 0;
    if (!ecfs_knows_holes (fd))
        return add_all (ranges, size);
    while (at < size) {
        off_t data = lseek (fd, (off_t) at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        off_t hole = data < 0 || ranges->len >= EXTENTS_MAX ? (off_t) size : lseek (fd, data, SEEK_HOLE);
        EcfsFileRange range = {.file_offset = data < 0 ? at : (uint64_t) data};
        uint64_t end = hole < 0 ? size : MIN ((uint64_t) hole, size);
        if (range.file_offset >= size)
            break;
        EcfsFileRange *last = ranges->len == 0 ? NULL : &g_array_index (ranges, EcfsFileRange, ranges->len - 1);
        if (last != NULL && range.file_offset - (last->file_offset + last->length) < HOLE_MIN_BYTES) {
            last->length = end - last->file_offset;
        } else {
            range.length = end - range.file_offset;
            g_array_append_val (ranges, range);
        }
        at = end;
    }
    return ranges;
}
