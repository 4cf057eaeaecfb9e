/* Fetching by a descriptor, without an archive: its endpoints, a reader for each extent, the digests. */
#include "object/liars.h"
#include "util/io.h"
#include "util/lock.h"
#include "util/sha256.h"
#include "util/xxh3.h"
#include "verbs/descriptor.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define MEMORY_BYTES (UINT64_C (128) << 20)
#define PIECE_BYTES  (4u << 20)

/* The object under a key that is read now, and the unit that was read of it last. */
typedef struct Opened {
    const EcfsDescriptorObject *object; /* NULL: none yet */
    bool lies[ECFS_CODEC_MAX_N];        /* stripes that were found to be other than what was stored */
    EcfsReader *reader;                 /* without these; NULL: to be made */
    uint64_t unit;
    uint8_t *bytes; /* its content; NULL: there is no unit yet */
} Opened;

typedef struct Fetch {
    const EcfsDescriptor *descriptor;
    EcfsEndpoint **endpoints; /* by position; NULL: it cannot be used here */
    EcfsTransferPool *transfer;
    int fd;
    Opened opened;
    atomic_uint n_gone; /* stripes that endpoints do not have any more */
} Fetch;

/* What was given for the endpoint by who fetches, else its URL alone. */
static EcfsEndpointSpec *spec_of (const EcfsDescriptorEndpoint *endpoint, const char *const *given, GError **error)
{
    for (size_t i = 0; given != NULL && given[i] != NULL; i++) {
        EcfsEndpointSpec *spec = ecfs_endpoint_spec_parse (given[i], error);
        if (spec == NULL || strcmp (spec->name, endpoint->name) == 0)
            return spec;
        ecfs_endpoint_spec_free (spec);
    }
    /* Whoever made the descriptor chose the servers: they learn nothing of the keys of who fetches. */
    if (ecfs_endpoint_has_own_login (endpoint->url)) {
        (void) !ecfs_fail (error, EACCES,
                           "endpoint %s is not used: %s wants a login, and your keys and certificates are only for "
                           "endpoints that you name: name it as %s=URL[,KEY=VALUE...] if you trust that server",
                           endpoint->name, endpoint->url, endpoint->name);
        return NULL;
    }
    return ecfs_endpoint_spec_new (endpoint->name, endpoint->url);
}

static const EcfsDescriptorEndpoint *find_named (const EcfsDescriptor *descriptor, const char *name)
{
    for (guint i = 0; i < descriptor->endpoints->len; i++) {
        const EcfsDescriptorEndpoint *endpoint = descriptor->endpoints->pdata[i];
        if (strcmp (endpoint->name, name) == 0)
            return endpoint;
    }
    return NULL;
}

/* All is looked at, whether or not it counts: a name that is mistyped would be passed over in silence. */
static bool check_given (const EcfsDescriptor *descriptor, const char *const *given, GError **error)
{
    for (size_t i = 0; given != NULL && given[i] != NULL; i++) {
        g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (given[i], error);
        if (spec == NULL)
            return false;
        if (find_named (descriptor, spec->name) == NULL)
            g_warning ("the descriptor names no endpoint %s: what was given for it is ignored", spec->name);
    }
    return true;
}

static void start_endpoints (Fetch *self, const char *const *given)
{
    for (guint i = 0; i < self->descriptor->endpoints->len; i++) {
        const EcfsDescriptorEndpoint *endpoint = self->descriptor->endpoints->pdata[i];
        EcfsMarker expected = {.archive = self->descriptor->archive, .endpoint = endpoint->uuid};
        g_autoptr (GError) problem = NULL;
        g_autoptr (EcfsEndpointSpec) spec = spec_of (endpoint, given, &problem);
        self->endpoints[i] = spec == NULL ? NULL : ecfs_endpoint_new (spec, &expected, &problem);
        if (self->endpoints[i] != NULL)
            ecfs_endpoint_start (self->endpoints[i]);
        else
            g_warning ("%s; continuing without it", problem->message);
    }
}

static void tell_trouble (void *user, const EcfsTrouble *trouble)
{
    Fetch *self = user;
    if (trouble->error->code == ENOENT)
        atomic_fetch_add (&self->n_gone, 1);
    g_warning ("%s; stripe %u is read around", trouble->error->message, trouble->stripe_index);
}

/* @stripes: ECFS_CODEC_MAX_N, which the parameters then name; without those flagged in @lies. */
static void reader_params (Fetch *self, const EcfsDescriptorObject *object, const bool *lies, EcfsReaderStripe *stripes,
                           EcfsReaderParams *ret_params)
{
    EcfsReaderParams params = {.transfer = self->transfer,
                               .codec = object->codec,
                               .layout = object->layout,
                               .object = object->row->uuid,
                               .unchecked = object->units != NULL,
                               .stripes = stripes,
                               .trouble = tell_trouble,
                               .user = self};
    ecfs_read_policy_init (&params.policy);
    memset (stripes, 0, ECFS_CODEC_MAX_N * sizeof *stripes);
    for (guint i = 0; i < object->row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->row->stripes, EcfsStripeRow, i);
        if (!lies[stripe->index])
            stripes[stripe->index] =
                (EcfsReaderStripe){.endpoint = self->endpoints[stripe->endpoint], .instance = stripe->instance};
    }
    *ret_params = params;
}

/* Who makes the content another than the descriptor says. */
static bool find_liars (Fetch *self, const EcfsDescriptorObject *object, bool *lies, GError **error)
{
    const bool nobody[ECFS_CODEC_MAX_N] = {false};
    EcfsReaderStripe stripes[ECFS_CODEC_MAX_N];
    EcfsReaderParams params;
    reader_params (self, object, nobody, stripes, &params);
    const EcfsLiars liars = {.params = &params, .sha256 = object->row->sha256};
    if (!ecfs_liars_find (&liars, ecfs_codec_tolerance (object->codec), lies, error))
        return false;
    for (unsigned i = 0; i < ecfs_codec_n (object->codec); i++)
        if (lies[i])
            g_warning ("endpoint %s: its checksums fit, but these are not the bytes that were stored there; stripe %u "
                       "is read around",
                       ecfs_endpoint_name (stripes[i].endpoint), i);
    return true;
}

/* One piece that is waited for. */
typedef struct Piece {
    EcfsMutex lock;
    EcfsCond cond;
    bool done;
    uint8_t *bytes;
    size_t size;
    GError *error;
} Piece;

static void piece_done (void *user, const struct iovec *iov, int n_iov, const GError *error)
{
    Piece *piece = user;
    ecfs_mutex_lock (&piece->lock);
    for (int i = 0; i < n_iov; i++) {
        memcpy (piece->bytes + piece->size, iov[i].iov_base, iov[i].iov_len);
        piece->size += iov[i].iov_len;
    }
    piece->error = error == NULL ? NULL : g_error_copy (error);
    piece->done = true;
    ecfs_cond_signal (&piece->cond);
    ecfs_mutex_unlock (&piece->lock);
}

static bool read_piece (EcfsReader *reader, uint64_t offset, size_t size, uint8_t *bytes, GError **error)
{
    Piece piece = {.bytes = bytes};
    ecfs_mutex_init (&piece.lock);
    ecfs_cond_init (&piece.cond);
    ecfs_reader_read (reader, offset, size, piece_done, &piece);
    ecfs_mutex_lock (&piece.lock);
    while (!piece.done) /* endpoints keep the deadlines: every read ends by itself */
        (void) ecfs_cond_wait_until (&piece.cond, &piece.lock, ecfs_now_us () + G_USEC_PER_SEC);
    ecfs_mutex_unlock (&piece.lock);
    ecfs_cond_clear (&piece.cond);
    ecfs_mutex_clear (&piece.lock);
    if (piece.error == NULL)
        return piece.size == size || ecfs_fail (error, EIO, "it ends before its size");
    g_propagate_error (error, piece.error);
    return false;
}

/* The digests cover a whole object; what is part of one has the tags of its check blocks only. */
static bool verify (const EcfsExtent *extent, const EcfsObjectRow *row, XXH3_state_t *hash, EcfsSha256 *sha256,
                    GError **error)
{
    XXH128_canonical_t found;
    uint8_t found_sha256[ECFS_SHA256_SIZE];
    XXH128_canonicalFromHash (&found, XXH3_128bits_digest (hash));
    ecfs_sha256_end (sha256, found_sha256);
    bool same = memcmp (found.digest, row->digest, sizeof row->digest) == 0 &&
                (!row->has_sha256 || memcmp (found_sha256, row->sha256, sizeof row->sha256) == 0);
    if (extent->length != row->size || same)
        return true;
    return ecfs_fail (error, EBADMSG, "the content is not what the descriptor says: its digest differs");
}

static bool fetch_extent_once (Fetch *self, const EcfsExtent *extent, const bool *lies, GError **error)
{
    const EcfsDescriptorObject *object = self->descriptor->objects->pdata[extent->object];
    EcfsReaderStripe stripes[ECFS_CODEC_MAX_N];
    EcfsReaderParams params;
    reader_params (self, object, lies, stripes, &params);
    EcfsReader *reader = ecfs_reader_new (&params);
    XXH3_state_t *hash = XXH3_createState ();
    (void) XXH3_128bits_reset (hash);
    g_autoptr (EcfsSha256) sha256 = ecfs_sha256_new ();
    g_autofree uint8_t *bytes = g_malloc (PIECE_BYTES);
    bool good = true;
    for (uint64_t at = 0; good && at < extent->length;) {
        size_t size = (size_t) MIN (extent->length - at, PIECE_BYTES);
        good = read_piece (reader, extent->object_offset + at, size, bytes, error);
        int result = good ? ecfs_pwrite_all (self->fd, bytes, size, extent->offset + at) : 0;
        if (result != 0)
            good = ecfs_fail_errno (error, -result, "writing");
        ecfs_xxh3_128_update (hash, bytes, size);
        ecfs_sha256_update (sha256, bytes, size);
        at += size;
    }
    good = good && verify (extent, object->row, hash, sha256, error);
    (void) XXH3_freeState (hash);
    ecfs_reader_close (reader);
    return good;
}

/* What is not the content is read once more, without those who made it another. */
static bool fetch_clear (Fetch *self, const EcfsExtent *extent, GError **error)
{
    bool lies[ECFS_CODEC_MAX_N] = {false};
    const EcfsDescriptorObject *object = self->descriptor->objects->pdata[extent->object];
    g_autoptr (GError) why = NULL;
    if (fetch_extent_once (self, extent, lies, &why))
        return true;
    if (why->code == EBADMSG && object->row->has_sha256 && find_liars (self, object, lies, NULL))
        return fetch_extent_once (self, extent, lies, error);
    g_propagate_error (error, g_steal_pointer (&why));
    return false;
}

/* Objects under a key */

static void opened_clear (Opened *self)
{
    ecfs_reader_close (self->reader);
    g_free (self->bytes);
    *self = (Opened){.object = NULL};
}

/* As fast as endpoints are, and compared as a whole. EBADMSG: somebody returns other bytes than were stored. */
static bool read_unit_fast (Fetch *self, uint64_t unit, GError **error)
{
    Opened *opened = &self->opened;
    const EcfsUnits *units = opened->object->units;
    uint64_t offset = ecfs_units_offset (units, unit);
    uint32_t bytes = ecfs_units_bytes (units, unit);
    if (opened->reader == NULL) {
        EcfsReaderStripe stripes[ECFS_CODEC_MAX_N];
        EcfsReaderParams params;
        reader_params (self, opened->object, opened->lies, stripes, &params);
        opened->reader = ecfs_reader_new (&params);
        if (offset == 0)
            ecfs_reader_expect_all (opened->reader);
    }
    for (uint32_t at = 0; at < bytes; at += PIECE_BYTES)
        if (!read_piece (opened->reader, offset + at, MIN (bytes - at, PIECE_BYTES), opened->bytes + at, error))
            return false;
    return ecfs_units_fits (units, unit, opened->bytes) ||
           ecfs_fail (error, EBADMSG, "the content is not what the descriptor says: its SHA-256 differs");
}

/* From stripes that are compared one by one. Those that are not what was stored are named, and not read fast again. */
static bool read_unit_compared (Fetch *self, uint64_t unit, GError **error)
{
    Opened *opened = &self->opened;
    const bool nobody[ECFS_CODEC_MAX_N] = {false};
    bool lies[ECFS_CODEC_MAX_N];
    EcfsReaderStripe stripes[ECFS_CODEC_MAX_N];
    EcfsReaderParams params;
    memcpy (lies, opened->lies, sizeof lies);
    reader_params (self, opened->object, nobody, stripes, &params);
    bool good = ecfs_units_read (opened->object->units, &params, unit, opened->bytes, lies, error);
    for (unsigned i = 0; i < ecfs_codec_n (opened->object->codec); i++) {
        if (!good || !lies[i] || opened->lies[i]) /* where it fails, the error says whose fault it may be */
            continue;
        g_warning ("endpoint %s: these are not the bytes that were stored there; stripe %u is read around",
                   ecfs_endpoint_name (stripes[i].endpoint), i);
        ecfs_reader_close (opened->reader);
        opened->reader = NULL;
    }
    if (good)
        memcpy (opened->lies, lies, sizeof lies);
    return good;
}

/* Makes the content of a unit be in opened->bytes, in the clear. */
static bool read_unit (Fetch *self, const EcfsDescriptorObject *object, uint64_t unit, GError **error)
{
    Opened *opened = &self->opened;
    g_autoptr (GError) why = NULL;
    if (opened->object == object && opened->bytes != NULL && opened->unit == unit)
        return true;
    if (opened->object != object) {
        opened_clear (opened);
        opened->object = object;
    }
    g_clear_pointer (&opened->bytes, g_free);
    opened->bytes = g_malloc (ecfs_units_bytes (object->units, unit));
    opened->unit = unit;
    bool any_lies = memchr (opened->lies, true, sizeof opened->lies) != NULL;
    bool good = read_unit_fast (self, unit, &why) ||
                ((why->code == EBADMSG || any_lies) && read_unit_compared (self, unit, error));
    if (!good) {
        if (error != NULL && *error == NULL)
            g_propagate_error (error, g_steal_pointer (&why));
        g_clear_pointer (&opened->bytes, g_free);
        return false;
    }
    EcfsCipher *cipher = ecfs_cipher_new (object->key, ecfs_units_offset (object->units, unit));
    ecfs_cipher_next (cipher, opened->bytes, ecfs_units_bytes (object->units, unit));
    ecfs_cipher_free (cipher);
    return true;
}

static bool fetch_sealed (Fetch *self, const EcfsExtent *extent, GError **error)
{
    const EcfsDescriptorObject *object = self->descriptor->objects->pdata[extent->object];
    uint8_t found[ECFS_SHA256_SIZE];
    g_autoptr (EcfsSha256) sha256 = ecfs_sha256_new ();
    for (uint64_t done = 0; done < extent->length;) {
        uint64_t at = extent->object_offset + done, unit = ecfs_units_at (object->units, at);
        if (!read_unit (self, object, unit, error))
            return false;
        uint64_t within = at - ecfs_units_offset (object->units, unit);
        size_t size = (size_t) MIN (extent->length - done, ecfs_units_bytes (object->units, unit) - within);
        int result = ecfs_pwrite_all (self->fd, self->opened.bytes + within, size, extent->offset + done);
        if (result != 0)
            return ecfs_fail_errno (error, -result, "writing");
        ecfs_sha256_update (sha256, self->opened.bytes + within, size);
        done += size;
    }
    ecfs_sha256_end (sha256, found);
    return extent->length != object->row->size || !object->row->has_sha256 ||
           memcmp (found, object->row->sha256, sizeof found) == 0 ||
           ecfs_fail (error, EBADMSG, "the content is not what the descriptor says: its SHA-256 differs");
}

static bool fetch_extent (Fetch *self, const EcfsExtent *extent, GError **error)
{
    const EcfsDescriptorObject *object = self->descriptor->objects->pdata[extent->object];
    return object->units != NULL ? fetch_sealed (self, extent, error) : fetch_clear (self, extent, error);
}

static bool fetch_all (Fetch *self, GError **error)
{
    if (ftruncate (self->fd, (off_t) self->descriptor->size) != 0)
        return ecfs_fail_errno (error, errno, "writing");
    for (guint i = 0; i < self->descriptor->extents->len; i++)
        if (!fetch_extent (self, &g_array_index (self->descriptor->extents, EcfsExtent, i), error))
            return false;
    for (guint i = 0; i < self->descriptor->contained->len; i++) {
        const EcfsDescriptorBytes *one = &g_array_index (self->descriptor->contained, EcfsDescriptorBytes, i);
        size_t size;
        const uint8_t *bytes = g_bytes_get_data (one->bytes, &size);
        int result = ecfs_pwrite_all (self->fd, bytes, size, one->offset);
        if (result != 0)
            return ecfs_fail_errno (error, -result, "writing");
    }
    return fsync (self->fd) == 0 || ecfs_fail_errno (error, errno, "writing");
}

bool ecfs_descriptor_fetch (const EcfsDescriptor *descriptor, int fd, const char *const *given, GError **error)
{
    Fetch self = {.descriptor = descriptor, .fd = fd, .transfer = ecfs_transfer_new (MEMORY_BYTES)};
    g_autofree EcfsEndpoint **endpoints = g_new0 (EcfsEndpoint *, descriptor->endpoints->len + 1);
    self.endpoints = endpoints;
    ecfs_transfer_start (self.transfer);
    bool good = check_given (descriptor, given, error);
    if (good)
        start_endpoints (&self, given);
    good = good && fetch_all (&self, error);
    if (!good && error != NULL && (*error)->code == EIO && atomic_load (&self.n_gone) > 0)
        (*error)->code = ENODATA;
    opened_clear (&self.opened);
    for (guint i = 0; i < descriptor->endpoints->len; i++)
        if (endpoints[i] != NULL)
            ecfs_endpoint_begin_stop (endpoints[i]);
    for (guint i = 0; i < descriptor->endpoints->len; i++)
        if (endpoints[i] != NULL)
            ecfs_endpoint_stop (endpoints[i]);
    ecfs_transfer_stop (self.transfer);
    for (guint i = 0; i < descriptor->endpoints->len; i++)
        ecfs_endpoint_free (endpoints[i]);
    ecfs_transfer_free (self.transfer);
    return good;
}
