#include "archive/cached.h"

#include "archive/common.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define PIECE_BYTES  (4u << 20)
#define WARM_PASSES  3 /* what is dropped for want of memory is read again */
#define WARM_WAIT_US (10 * G_USEC_PER_SEC)
#define SPARE_BYTES  (32u << 10)

char *ecfs_archive_cache_place (const EcfsArchive *self)
{
    return ecfs_cache_place (ecfs_archive_config (self), ecfs_archive_directory (self));
}

/* Calls @each for every packet of every segment that a content has something of, with the range of the cell in which
 * these bytes lie, and how many of the content they are. */
typedef void (*PartFunc) (void *user, const EcfsCacheCell *cell, uint64_t offset, uint64_t size, uint64_t bytes);

static void each_packet (const EcfsLayout *layout, const EcfsCacheCell *cell, uint32_t from, uint32_t to, PartFunc each,
                         void *user)
{
    uint32_t packet_bytes = ecfs_layout_packet_bytes (layout, cell->segment);
    uint64_t base = ecfs_layout_block_offset (layout, cell->segment, 0);
    while (from < to) {
        uint32_t packet = from / packet_bytes, start = packet * packet_bytes;
        uint32_t stop = MIN (to, start + packet_bytes);
        uint32_t lo = (from - start) / layout->block_bytes;
        uint32_t hi = (stop - start + layout->block_bytes - 1) / layout->block_bytes;
        uint64_t offset = ecfs_layout_block_offset (layout, cell->segment, lo) - base;
        uint64_t end = ecfs_layout_block_offset (layout, cell->segment, hi) - base;
        each (user, cell, (uint64_t) packet * ecfs_layout_stored_bytes (layout, cell->segment) + offset, end - offset,
              stop - from);
        from = stop;
    }
}

static void each_segment (const EcfsLayout *layout, const EcfsUuid *object, uint64_t from, uint64_t to, PartFunc each,
                          void *user)
{
    while (from < to) {
        uint64_t segment = from / layout->segment_bytes, start = segment * layout->segment_bytes;
        uint64_t stop = MIN (to, start + layout->segment_bytes);
        EcfsCacheCell cell = {.object = *object, .segment = segment};
        each_packet (layout, &cell, (uint32_t) (from - start), (uint32_t) (stop - start), each, user);
        from = stop;
    }
}

static bool each_part (EcfsArchive *self, EcfsContent *content, PartFunc each, void *user, GError **error)
{
    const GArray *extents = ecfs_content_extents (content);
    for (guint i = 0; i < extents->len; i++) {
        EcfsLayout layout;
        const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, i);
        const EcfsObjectRow *object = ecfs_content_object (content, (size_t) extent->object);
        if (!ecfs_archive_layout (self, object, &layout, error))
            return false;
        each_segment (&layout, &object->uuid, extent->object_offset, extent->object_offset + extent->length, each,
                      user);
    }
    return true;
}

typedef struct Count {
    EcfsCache *cache;
    uint64_t data, cached;
} Count;

static void count (void *user, const EcfsCacheCell *cell, uint64_t offset, uint64_t size, uint64_t bytes)
{
    Count *self = user;
    uint64_t present = ecfs_cache_present (self->cache, cell, offset, size);
    self->data += bytes;
    self->cached += present >= size ? bytes : (uint64_t) ((double) bytes * (double) present / (double) size);
}

bool ecfs_archive_cached_bytes (EcfsArchive *self, EcfsContent *content, uint64_t *ret_data, uint64_t *ret_cached,
                                GError **error)
{
    Count sum = {.cache = ecfs_archive_cache (self)};
    if (ecfs_archive_cache (self) == NULL)
        return ecfs_fail (error, ENOTSUP, "%s has no cache: set cache_size in ecfs.conf",
                          ecfs_archive_directory (self));
    if (!each_part (self, content, count, &sum, error))
        return false;
    *ret_data = sum.data;
    *ret_cached = sum.cached;
    return true;
}

/* Before anybody reads */

typedef struct Pinning {
    EcfsCache *cache;
    int64_t stamp;
    EcfsCacheCell last;
} Pinning;

static void pin (void *user, const EcfsCacheCell *cell, uint64_t offset, uint64_t size, uint64_t bytes)
{
    Pinning *self = user;
    (void) offset, (void) size, (void) bytes;
    if (cell->segment != self->last.segment || !ecfs_uuid_equal (&cell->object, &self->last.object))
        ecfs_cache_pin (self->cache, cell, self->stamp); /* one call for all packets of a segment */
    self->last = *cell;
}

/* Reading one content in one pass. */
typedef struct Pass {
    EcfsArchive *archive;
    EcfsContent *content;
    const EcfsWarming *warming;
    uint64_t budget; /* bytes of the cache that may still be used */
    bool is_refused; /* there is no room for more: nothing more is read */
} Pass;

/* What the disk takes for them, with tags and what is left of blocks. */
static uint64_t disk_bytes (uint64_t bytes)
{
    return bytes + bytes / 16 + SPARE_BYTES;
}

/* Reads what is not in the cache. */
static bool read_piece (Pass *self, uint64_t offset, size_t size, uint64_t missing, GError **error)
{
    EcfsBorrowed piece;
    EcfsCache *cache = ecfs_archive_cache (self->archive);
    self->is_refused =
        disk_bytes (missing) > self->budget || !ecfs_cache_await_room (cache, size, ecfs_now_us () + WARM_WAIT_US);
    if (self->is_refused)
        return true;
    if (!ecfs_content_borrow (self->content, offset, size, &piece, error))
        return false;
    ecfs_content_give_back (&piece);
    self->budget -= disk_bytes (missing);
    return true;
}

static bool read_extent (Pass *self, const EcfsExtent *extent, GError **error)
{
    EcfsLayout layout;
    const EcfsObjectRow *object = ecfs_content_object (self->content, (size_t) extent->object);
    if (!ecfs_archive_layout (self->archive, object, &layout, error))
        return false;
    for (uint64_t done = 0; done < extent->length && !self->is_refused;) {
        size_t size = (size_t) MIN (extent->length - done, PIECE_BYTES);
        uint64_t from = extent->object_offset + done;
        Count sum = {.cache = ecfs_archive_cache (self->archive)};
        each_segment (&layout, &object->uuid, from, from + size, count, &sum);
        uint64_t missing = sum.data - MIN (sum.cached, sum.data);
        if (missing > 0 && !read_piece (self, extent->offset + done, size, missing, error))
            return false;
        done += size;
        if (self->warming->tick != NULL && !self->warming->tick (self->warming->user, missing))
            return ecfs_fail (error, ECANCELED, "cancelled");
    }
    return true;
}

static bool read_all (Pass *self, GError **error)
{
    const GArray *extents = ecfs_content_extents (self->content);
    bool good = true;
    for (guint i = 0; i < extents->len && good && !self->is_refused; i++)
        good = read_extent (self, &g_array_index (extents, EcfsExtent, i), error);
    (void) ecfs_cache_await_written (ecfs_archive_cache (self->archive),
                                     ecfs_now_us () + WARM_WAIT_US); /* else it is not there */
    return good;
}

/* Of what is to stay no more is fetched than can. */
static uint64_t budget_of (EcfsArchive *self, const EcfsWarming *warming)
{
    EcfsCacheState state;
    uint64_t max = ecfs_archive_config (self)->cache_size;
    if (!warming->pins || !ecfs_cache_state (ecfs_archive_cache (self), &state, NULL))
        return UINT64_MAX;
    ecfs_cache_state_clear (&state);
    return max - MIN (state.pinned_bytes, max);
}

static bool pin_all (EcfsArchive *self, EcfsContent *content, const EcfsWarming *warming, GError **error)
{
    Pinning pinning = {.cache = ecfs_archive_cache (self), .stamp = warming->stamp, .last.segment = UINT64_MAX};
    return !warming->pins || each_part (self, content, pin, &pinning, error);
}

/* Another pass reads with readers of its own: what others have in memory was offered to the cache, once. */
static bool warm_once (EcfsArchive *self, uint64_t ino, const EcfsWarming *warming, bool is_first, bool *ret_refused,
                       GError **error)
{
    g_autoptr (EcfsContent) content = ecfs_content_open (self, ino, error);
    if (content == NULL)
        return false;
    ecfs_content_set_caching (content, ECFS_CACHING_FILLS);
    ecfs_content_expect_all (content);
    if (!is_first)
        ecfs_content_share_nothing (content);
    Pass pass = {.archive = self, .content = content, .warming = warming, .budget = budget_of (self, warming)};
    bool good = read_all (&pass, error);
    *ret_refused = pass.is_refused;
    return good;
}

bool ecfs_archive_warm (EcfsArchive *self, uint64_t ino, const EcfsWarming *warming, uint64_t *ret_missing,
                        GError **error)
{
    uint64_t data = 0, cached = 0, before = 0;
    bool is_refused = false;
    g_autoptr (EcfsContent) content = ecfs_content_open (self, ino, error);
    if (content == NULL || !ecfs_archive_cached_bytes (self, content, &data, &cached, error) ||
        !pin_all (self, content, warming, error))
        return false;
    bool is_whole = cached >= data;
    for (unsigned pass = 0; pass < WARM_PASSES && cached < data && !is_refused; pass++) {
        if (pass > 1 && cached <= before)
            break; /* it brings nothing */
        before = cached;
        if (!warm_once (self, ino, warming, pass == 0, &is_refused, error) ||
            !ecfs_archive_cached_bytes (self, content, &data, &cached, error))
            return false;
    }
    *ret_missing = data - MIN (cached, data);
    return is_whole || pin_all (self, content, warming, error);
}

/* Pins */

bool ecfs_pin_parse (const char *value, size_t size, bool *ret_pins, GError **error)
{
    bool yes = size == 3 && memcmp (value, "yes", 3) == 0;
    if (!yes && (size != 2 || memcmp (value, "no", 2) != 0))
        return ecfs_fail (error, EINVAL, ECFS_PIN_ATTRIBUTE " is yes or no");
    *ret_pins = yes;
    return true;
}

/* *ret_has: whether it has the attribute. */
static bool own_pin (EcfsArchive *self, uint64_t ino, bool *ret_has, bool *ret_pinned, GError **error)
{
    g_autoptr (GError) why = NULL;
    g_autoptr (GByteArray) value = ecfs_catalog_getxattr (ecfs_archive_catalog (self), ino, ECFS_PIN_ATTRIBUTE, &why);
    *ret_has = value != NULL && ecfs_pin_parse ((const char *) value->data, value->len, ret_pinned, NULL);
    if (value != NULL || why->code == ENODATA)
        return true;
    g_propagate_error (error, g_steal_pointer (&why));
    return false;
}

bool ecfs_archive_is_pinned (EcfsArchive *self, uint64_t ino, bool *ret_pinned, GError **error)
{
    bool has;
    *ret_pinned = false;
    g_autofree char *path = ecfs_catalog_path (ecfs_archive_catalog (self), ino);
    for (;;) {
        EcfsAttr above;
        if (!own_pin (self, ino, &has, ret_pinned, error))
            return false;
        if (has || path[0] != '/' || path[1] == '\0')
            return true;
        char *slash = strrchr (path, '/');
        slash[slash == path] = '\0';
        if (!ecfs_catalog_resolve (ecfs_archive_catalog (self), path, &above, error))
            return false;
        ino = above.ino;
    }
}
