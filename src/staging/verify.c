/* Whether a file that an earlier mount left in the staging area still equals the committed content of its inode. */
#include "staging/directory.h"
#include "util/io.h"
#include "util/xxh3.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES (1u << 20)

typedef struct Check {
    EcfsCatalog *catalog;
    int fd;
    uint8_t *piece; /* PIECE_BYTES */
} Check;

static bool differs (GError **error)
{
    return ecfs_fail (error, ESTALE, "it differs from what is stored");
}

static bool read_piece (const Check *self, uint64_t offset, size_t size, GError **error)
{
    ssize_t got = ecfs_pread_all (self->fd, self->piece, size, offset);
    if (got < 0)
        return ecfs_fail_errno (error, (int) -got, "reading it");
    return (size_t) got == size || differs (error);
}

/* No bytes but zeros in [from, to), which is a hole of the committed content. */
static bool check_hole (const Check *self, uint64_t from, uint64_t to, GError **error)
{
    while (from < to) {
        off_t data = lseek (self->fd, (off_t) from, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            return true;
        from = data < 0 ? from : (uint64_t) data;
        if (from >= to)
            return true;
        size_t size = (size_t) MIN (to - from, PIECE_BYTES);
        if (!read_piece (self, from, size, error))
            return false;
        if (self->piece[0] != 0 || memcmp (self->piece, self->piece + 1, size - 1) != 0)
            return differs (error);
        from += size;
    }
    return true;
}

static bool hash_extent (const Check *self, XXH3_state_t *state, EcfsSha256 *sha256, const EcfsExtent *extent,
                         GError **error)
{
    for (uint64_t done = 0; done < extent->length;) {
        size_t size = (size_t) MIN (extent->length - done, PIECE_BYTES);
        if (!read_piece (self, extent->offset + done, size, error))
            return false;
        if (sha256 != NULL)
            ecfs_sha256_update (sha256, self->piece, size);
        else
            ecfs_xxh3_128_update (state, self->piece, size);
        done += size;
    }
    return true;
}

/* An object that other files share says nothing of this one, its extent does. */
static bool check_part (const Check *self, const EcfsExtent *extent, GError **error)
{
    g_autoptr (EcfsSha256) sha256 = ecfs_sha256_new ();
    uint8_t found[ECFS_SHA256_SIZE];
    if (!hash_extent (self, NULL, sha256, extent, error))
        return false;
    ecfs_sha256_end (sha256, found);
    return (extent->has_sha256 && memcmp (found, extent->sha256, sizeof found) == 0) || differs (error);
}

/* The extents of one object that is this file's alone, from *next on; moves that behind them. */
static bool check_object (const Check *self, const EcfsObjectRow *object, const GArray *extents, guint *next,
                          GError **error)
{
    XXH3_state_t *state = XXH3_createState ();
    XXH3_128bits_reset (state);
    /* What is stored under a key has the digest of what is enciphered. */
    g_autoptr (EcfsSha256) sha256 = object->seal.kind == ECFS_SEAL_NONE ? NULL : ecfs_sha256_new ();
    uint64_t hashed = 0;
    bool same = true;
    for (; same && *next < extents->len; (*next)++) {
        const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, *next);
        if (extent->object != object->id)
            break;
        same = (extent->object_offset == hashed || differs (error)) && hash_extent (self, state, sha256, extent, error);
        hashed += extent->length;
    }
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash (&digest, XXH3_128bits_digest (state));
    XXH3_freeState (state);
    if (!same)
        return false;
    uint8_t found[ECFS_SHA256_SIZE];
    if (sha256 != NULL)
        ecfs_sha256_end (sha256, found);
    same = sha256 == NULL ? memcmp (digest.digest, object->digest, ECFS_DIGEST_SIZE) == 0
                          : object->has_sha256 && memcmp (found, object->sha256, sizeof found) == 0;
    return (hashed == object->size && same) || differs (error);
}

static bool check_content (const Check *self, const GArray *extents, uint64_t size, GError **error)
{
    uint64_t end = 0;
    for (guint i = 0; i < extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, i);
        if (!check_hole (self, end, extent->offset, error))
            return false;
        end = extent->offset + extent->length;
    }
    if (!check_hole (self, end, size, error))
        return false;
    for (guint next = 0; next < extents->len;) {
        const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, next);
        g_autoptr (EcfsObjectRow) object = ecfs_catalog_object (self->catalog, extent->object, error);
        if (object == NULL)
            return false;
        bool shared = object->kind != ECFS_OBJECT_WHOLE;
        if (shared ? !check_part (self, extent, error) : !check_object (self, object, extents, &next, error))
            return false;
        next += shared ? 1 : 0;
    }
    return true;
}

bool ecfs_staged_verify (EcfsCatalog *catalog, uint64_t ino, int fd, GError **error)
{
    uint64_t size;
    g_autoptr (GArray) extents = ecfs_catalog_content (catalog, ino, &size, error);
    if (extents == NULL)
        return false;
    off_t staged_size = lseek (fd, 0, SEEK_END);
    if (staged_size < 0 || (uint64_t) staged_size != size)
        return differs (error);
    g_autofree uint8_t *piece = g_malloc (PIECE_BYTES);
    Check check = {.catalog = catalog, .fd = fd, .piece = piece};
    return check_content (&check, extents, size, error);
}
