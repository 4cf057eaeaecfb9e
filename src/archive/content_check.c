#include "archive/content_check.h"

#include "archive/archive_priv.h"
#include "util/sha256.h"

#include <string.h>

struct EcfsContentCheck {
    EcfsContent *content;
    guint next;        /* the extent whose bytes come next */
    uint64_t done;     /* of it */
    uint64_t hashed;   /* bytes of its object, up to here */
    bool is_broken;    /* they are not the first so many of it */
    EcfsSha256 *state; /* of these */
    const EcfsObjectRow *bad;
};

EcfsContentCheck *ecfs_content_check_new (EcfsContent *content)
{
    EcfsContentCheck *self = g_new0 (EcfsContentCheck, 1);
    self->content = content;
    self->state = ecfs_sha256_new ();
    return self;
}

void ecfs_content_check_free (EcfsContentCheck *self)
{
    if (self == NULL)
        return;
    ecfs_sha256_free (self->state);
    g_free (self);
}

/* No more of the object follows. */
static bool end_object (EcfsContentCheck *self, int64_t index, GError **error)
{
    uint8_t found[ECFS_SHA256_SIZE];
    const EcfsObjectRow *object = ecfs_content_object (self->content, (size_t) index);
    bool is_whole = !self->is_broken && self->hashed == object->size;
    ecfs_sha256_end (self->state, found);
    self->hashed = 0;
    self->is_broken = false;
    if (!is_whole || !object->has_sha256 || memcmp (found, object->sha256, sizeof found) == 0)
        return true;
    self->bad = object;
    return ecfs_fail (error, EBADMSG,
                      "its checksums fit, but its SHA-256 is not that of what was stored: an endpoint returns other "
                      "bytes than it got");
}

/* Bytes of the extent that comes next; *from moves on. */
static bool take_some (EcfsContentCheck *self, const uint8_t **from, size_t *left, GError **error)
{
    const GArray *extents = ecfs_content_extents (self->content);
    const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, self->next);
    size_t size = (size_t) MIN (*left, extent->length - self->done);
    self->is_broken = self->is_broken || extent->object_offset + self->done != self->hashed;
    if (!self->is_broken)
        ecfs_sha256_update (self->state, *from, size);
    self->hashed += size;
    self->done += size;
    *from += size;
    *left -= size;
    if (self->done < extent->length)
        return true;
    self->next++;
    self->done = 0;
    bool goes_on =
        self->next < extents->len && g_array_index (extents, EcfsExtent, self->next).object == extent->object;
    return goes_on || end_object (self, extent->object, error);
}

bool ecfs_content_check_take (EcfsContentCheck *self, uint64_t offset, const struct iovec *iov, int n_iov,
                              GError **error)
{
    const GArray *extents = ecfs_content_extents (self->content);
    for (int i = 0; i < n_iov; i++) {
        const uint8_t *from = iov[i].iov_base;
        size_t left = iov[i].iov_len;
        while (left > 0 && self->next < extents->len) {
            uint64_t begin = g_array_index (extents, EcfsExtent, self->next).offset + self->done;
            size_t hole = (size_t) MIN (left, begin - MIN (begin, offset));
            from += hole;
            left -= hole;
            offset += hole;
            size_t before = left;
            if (left > 0 && !take_some (self, &from, &left, error))
                return false;
            offset += before - left;
        }
        offset += left;
    }
    return true;
}

bool ecfs_content_check_end (EcfsContentCheck *self, GError **error)
{
    const GArray *extents = ecfs_content_extents (self->content);
    if (self->bad == NULL && self->next < extents->len && self->hashed > 0) /* the file was cut off within it */
        return end_object (self, g_array_index (extents, EcfsExtent, self->next).object, error);
    return true;
}

const EcfsObjectRow *ecfs_content_check_bad (const EcfsContentCheck *self)
{
    return self->bad;
}

bool ecfs_content_leave_out_liars (EcfsArchive *archive, const EcfsObjectRow *object, bool *without, GError **error)
{
    bool lies[ECFS_CODEC_MAX_N] = {false};
    bool any = false, lied = false;
    if (!ecfs_archive_find_liars (archive, object, NULL, NULL, lies, error))
        return false;
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, stripe->endpoint);
        lied = lied || lies[stripe->index];
        if (endpoint == NULL || !lies[stripe->index] || without[endpoint - archive->endpoints])
            continue;
        any = without[endpoint - archive->endpoints] = true;
    }
    return any || !lied || ecfs_fail (error, EIO, "an endpoint returns other bytes each time");
}
