#include "archive/content.h"

#include "archive/archive_priv.h"
#include "archive/shared_readers.h"
#include "archive/sightings.h"
#include "object/liars.h"

#include <inttypes.h>
#include <string.h>

#define ZEROS_BYTES (1u << 20)

/* One object of the file, with its reader, made when it is first needed. */
typedef struct Part {
    EcfsObjectRow *object;
    EcfsReader *reader;       /* guarded by content's lock, as the next */
    EcfsSharedReader *shared; /* whose it is; NULL: our own */
} Part;

struct EcfsContent {
    atomic_uint references;
    EcfsArchive *archive;
    uint64_t ino;
    uint64_t size;
    GArray *extents;     /* of EcfsExtent whose `object` indexes the parts; immutable */
    GArray *parts;       /* of Part */
    const bool *without; /* endpoints by position that are left out; NULL: none; immutable from the first read on */
    bool expects_all;    /* it is read from its first to its last byte; immutable from the first read on, as the next */
    bool passes_over;    /* damage that is met */
    bool shares_nothing;
    EcfsCaching caching;
    atomic_uint seen; /* the archive's n_stripe_changes for which it is current */
    EcfsMutex lock;
};

static const uint8_t *zeros (void)
{
    static const uint8_t bytes[ZEROS_BYTES];
    return bytes;
}

/* The index of the part for an object row; loads it when it is new. */
static bool part_index (EcfsContent *self, int64_t object, int64_t *ret_index, GError **error)
{
    for (guint i = 0; i < self->parts->len; i++) {
        if (g_array_index (self->parts, Part, i).object->id == object) {
            *ret_index = i;
            return true;
        }
    }
    Part part = {.object = ecfs_catalog_object (self->archive->catalog, object, error)};
    if (part.object == NULL)
        return false;
    g_array_append_val (self->parts, part);
    ecfs_archive_pin (self->archive, &part.object->uuid);
    *ret_index = self->parts->len - 1;
    return true;
}

/* Extents come from the catalog, which is not trusted: they must be in order and within their objects. */
static bool check_extent (const EcfsContent *self, guint index, uint64_t *end, GError **error)
{
    const EcfsExtent *extent = &g_array_index (self->extents, EcfsExtent, index);
    const EcfsObjectRow *object = g_array_index (self->parts, Part, extent->object).object;
    if (extent->offset < *end || extent->length == 0 || extent->length > object->size ||
        extent->object_offset > object->size - extent->length || extent->offset > INT64_MAX - extent->length)
        return ecfs_fail (error, EBADMSG,
                          "the catalog's extents of inode %" PRIu64 " make no sense: " ECFS_CATALOG_ADVICE, self->ino);
    *end = extent->offset + extent->length;
    return true;
}

static bool load (EcfsContent *self, GError **error)
{
    self->extents = ecfs_catalog_content (self->archive->catalog, self->ino, &self->size, error);
    if (self->extents == NULL)
        return false;
    uint64_t end = 0;
    for (guint i = 0; i < self->extents->len; i++) {
        EcfsExtent *extent = &g_array_index (self->extents, EcfsExtent, i);
        if (!part_index (self, extent->object, &extent->object, error) || !check_extent (self, i, &end, error))
            return false;
    }
    return true;
}

static void content_free (EcfsContent *self)
{
    for (guint i = 0; i < self->parts->len; i++) {
        Part *part = &g_array_index (self->parts, Part, i);
        if (part->shared == NULL)
            ecfs_reader_close (part->reader);
        ecfs_shared_reader_unref (part->shared);
        ecfs_archive_unpin (self->archive, &part->object->uuid);
        ecfs_object_row_free (part->object);
    }
    g_array_unref (self->parts);
    if (self->extents != NULL)
        g_array_unref (self->extents);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

static EcfsContent *content_new (EcfsArchive *archive, uint64_t ino)
{
    EcfsContent *self = g_new0 (EcfsContent, 1);
    atomic_init (&self->references, 1);
    ecfs_mutex_init (&self->lock);
    self->archive = archive;
    atomic_init (&self->seen, atomic_load (&archive->n_stripe_changes));
    self->ino = ino;
    self->parts = g_array_new (FALSE, FALSE, sizeof (Part));
    return self;
}

static EcfsContent *open_once (EcfsArchive *archive, uint64_t ino, GError **error)
{
    EcfsContent *self = content_new (archive, ino);
    if (load (self, error))
        return self;
    content_free (self);
    return NULL;
}

EcfsContent *ecfs_content_open (EcfsArchive *archive, uint64_t ino, GError **error)
{
    for (unsigned attempt = 1;; attempt++) {
        g_autoptr (GError) reason = NULL;
        EcfsContent *self = open_once (archive, ino, &reason);
        if (self != NULL)
            return self;
        if (!g_error_matches (reason, ECFS_ERROR, ENOENT) || attempt == ECFS_CONTENT_ATTEMPTS) {
            g_propagate_error (error, g_steal_pointer (&reason));
            return NULL;
        }
    }
}

EcfsContent *ecfs_content_open_object (EcfsArchive *archive, int64_t object, GError **error)
{
    EcfsContent *self = content_new (archive, 0);
    EcfsExtent all = {.object = 0};
    if (!part_index (self, object, &all.object, error)) {
        content_free (self);
        return NULL;
    }
    all.length = self->size = ecfs_content_object (self, 0)->size;
    self->extents = g_array_append_val (g_array_new (FALSE, FALSE, sizeof all), all);
    return self;
}

void ecfs_content_leave_out (EcfsContent *self, const bool *without)
{
    self->without = without;
}

void ecfs_content_expect_all (EcfsContent *self)
{
    self->expects_all = true;
}

void ecfs_content_set_caching (EcfsContent *self, EcfsCaching caching)
{
    self->caching = caching;
}

void ecfs_content_pass_over_damage (EcfsContent *self)
{
    self->passes_over = true;
}

void ecfs_content_share_nothing (EcfsContent *self)
{
    self->shares_nothing = true;
}

EcfsContent *ecfs_content_ref (EcfsContent *self)
{
    atomic_fetch_add (&self->references, 1);
    return self;
}

void ecfs_content_unref (EcfsContent *self)
{
    if (self != NULL && atomic_fetch_sub (&self->references, 1) == 1)
        content_free (self);
}

bool ecfs_content_is_current (EcfsContent *self)
{
    unsigned now = atomic_load (&self->archive->n_stripe_changes);
    if (atomic_load (&self->seen) == now)
        return true;
    for (guint i = 0; i < self->parts->len; i++) {
        const EcfsObjectRow *object = g_array_index (self->parts, Part, i).object;
        g_autoptr (EcfsObjectRow) row = ecfs_catalog_object (self->archive->catalog, object->id, NULL);
        /* What the catalog has not any more stays as it is, pinned. */
        if (row != NULL && !ecfs_object_same_stripes (object, row))
            return false;
    }
    atomic_store (&self->seen, now);
    return true;
}

uint64_t ecfs_content_size (const EcfsContent *self)
{
    return self->size;
}

const EcfsObjectRow *ecfs_content_object (const EcfsContent *self, size_t index)
{
    return index < self->parts->len ? g_array_index (self->parts, Part, index).object : NULL;
}

const GArray *ecfs_content_extents (const EcfsContent *self)
{
    return self->extents;
}

/* Who repairs knows what is wrong, and tells it himself; there may be more. */
static void note_trouble (void *user, const EcfsTrouble *trouble)
{
    const EcfsArchive *archive = user;
    if (trouble->damage)
        (void) ecfs_sightings_note (archive->sightings, trouble); /* whether it is news is for who tells it */
}

/* Lets the owner of the archive know; the bytes themselves came from other stripes. */
static void log_trouble (const EcfsTrouble *trouble, bool is_known)
{
    int code = trouble->error->code;
    bool down = code == ENOTCONN || code == ETIMEDOUT; /* told once when it went down */
    bool news = trouble->damage ? !is_known : !down;
    g_log (G_LOG_DOMAIN, news ? G_LOG_LEVEL_WARNING : G_LOG_LEVEL_INFO, "%s; stripe %u of a %s object is read around",
           trouble->error->message, trouble->stripe_index, ecfs_codec_code (trouble->codec));
}

static void tell_trouble (void *user, const EcfsTrouble *trouble)
{
    const EcfsArchive *archive = user;
    log_trouble (trouble, trouble->damage && !ecfs_sightings_note (archive->sightings, trouble));
}

static void only_tell_trouble (void *user, const EcfsTrouble *trouble)
{
    const EcfsArchive *archive = user;
    log_trouble (trouble, trouble->damage && !ecfs_sightings_pass_over (archive->sightings, trouble));
}

bool ecfs_archive_reader_params (EcfsArchive *archive, const EcfsObjectRow *object, const bool *left_out,
                                 EcfsReaderStripe *stripes, EcfsReaderParams *ret_params, GError **error)
{
    EcfsCodec *codec = ecfs_archive_codec (archive, object->code, error);
    *ret_params = (EcfsReaderParams){.transfer = archive->transfer,
                                     .codec = codec,
                                     .object = object->uuid,
                                     .policy = archive->config->read_policy,
                                     .log = archive->read_log,
                                     .stripes = stripes,
                                     .has_sha256 = object->has_sha256,
                                     .user = archive};
    memcpy (ret_params->sha256, object->sha256, sizeof ret_params->sha256);
    ret_params->policy.cheap = archive->config->read_cheap;
    EcfsSealKeys *keys;
    if (codec == NULL || !ecfs_archive_layout (archive, object, &ret_params->layout, error) ||
        !ecfs_archive_seal_keys (archive, object, &keys, error))
        return false;
    ret_params->keys = keys;
    memset (stripes, 0, ECFS_CODEC_MAX_N * sizeof *stripes);
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, stripe->endpoint);
        if (stripe->index >= ecfs_codec_n (codec) || endpoint == NULL || !ecfs_archive_endpoint_counts (endpoint) ||
            (left_out != NULL && left_out[stripe->index]))
            continue;
        stripes[stripe->index] =
            (EcfsReaderStripe){.endpoint = endpoint->endpoint, .instance = stripe->instance, .bytes = stripe->size};
    }
    return true;
}

static EcfsReader *make_reader (EcfsArchive *archive, const EcfsObjectRow *object, const bool *left_out,
                                EcfsCaching caching, void (*trouble) (void *user, const EcfsTrouble *trouble),
                                GError **error)
{
    g_auto (EcfsReaderParams) params = {.keys = NULL};
    EcfsReaderStripe stripes[ECFS_CODEC_MAX_N];
    if (!ecfs_archive_reader_params (archive, object, left_out, stripes, &params, error))
        return NULL;
    params.trouble = trouble;
    params.cache = caching == ECFS_CACHING_NONE ? NULL : archive->cache;
    params.fills_cache = caching == ECFS_CACHING_FILLS;
    params.peers = params.fills_cache ? archive->peers : NULL;
    return ecfs_reader_new (&params);
}

EcfsReader *ecfs_archive_reader (EcfsArchive *archive, const EcfsObjectRow *object, const bool *left_out,
                                 GError **error)
{
    return make_reader (archive, object, left_out, ECFS_CACHING_NONE, left_out != NULL ? note_trouble : tell_trouble,
                        error);
}

/* A stripe that is not what was stored, to who reads the log, and to who repairs. */
static void tell_liar (EcfsArchive *archive, const EcfsReaderParams *params, unsigned index)
{
    const EcfsReaderStripe *stripe = &params->stripes[index];
    g_autoptr (GError) error = g_error_new (ECFS_ERROR, EBADMSG,
                                            "endpoint %s: its checksums fit, but these are not the bytes that were "
                                            "stored there: this is not a disk fault, ask whoever runs the endpoint",
                                            ecfs_endpoint_name (stripe->endpoint));
    const EcfsTrouble trouble = {.object = &params->object,
                                 .codec = params->codec,
                                 .endpoint = stripe->endpoint,
                                 .stripe_index = index,
                                 .instance = stripe->instance,
                                 .error = error,
                                 .damage = true,
                                 .lies = true};
    (void) ecfs_sightings_note (archive->sightings, &trouble); /* this is told each time */
    g_warning ("%s; stripe %u of a %s object is read around", error->message, index, ecfs_codec_code (params->codec));
}

void ecfs_archive_forget_cached (EcfsArchive *archive, const EcfsObjectRow *object)
{
    if (archive->cache != NULL)
        ecfs_cache_forget (archive->cache, &object->uuid); /* sealed, too: who has the key can forge */
    if (object->seal.kind == ECFS_SEAL_NONE)
        ecfs_archive_doubt (archive);
}

bool ecfs_archive_find_liars (EcfsArchive *archive, const EcfsObjectRow *object,
                              bool (*tick) (void *user, uint64_t bytes), void *user, bool *ret_lies, GError **error)
{
    ecfs_archive_forget_cached (archive, object);
    g_auto (EcfsReaderParams) params = {.keys = NULL};
    EcfsReaderStripe stripes[ECFS_CODEC_MAX_N];
    g_autoptr (GError) why = NULL;
    if (!ecfs_archive_reader_params (archive, object, NULL, stripes, &params, error))
        return false;
    const EcfsLiars liars = {.params = &params, .sha256 = object->sha256, .tick = tick, .user = user};
    params.trouble = note_trouble;
    /* Where all that endpoints have is right, leaving out the first of them would make a liar of it. */
    bool good = ecfs_liars_compare (&liars, ret_lies, &why);
    if (!good && why->code != ECANCELED)
        good = ecfs_liars_find (&liars, ecfs_codec_tolerance (params.codec), ret_lies, error);
    else if (!good)
        g_propagate_error (error, g_steal_pointer (&why));
    if (!good)
        return false;
    for (unsigned i = 0; i < ecfs_codec_n (params.codec); i++)
        if (ret_lies[i])
            tell_liar (archive, &params, i);
    return true;
}

/* The stripes of an object that are at endpoints which are left out. */
static void flag_left_out (const EcfsContent *self, const EcfsObjectRow *object, bool *ret_left_out)
{
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (self->archive, stripe->endpoint);
        if (stripe->index < ECFS_CODEC_MAX_N && endpoint != NULL)
            ret_left_out[stripe->index] = self->without[endpoint - self->archive->endpoints];
    }
}

/* Whether the content has all of the object: what was cut off is not worth reading ahead. */
static bool is_whole (const EcfsContent *self, guint index)
{
    uint64_t bytes = 0;
    for (guint i = 0; i < self->extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (self->extents, EcfsExtent, i);
        bytes += extent->object == index ? extent->length : 0;
    }
    return bytes == ecfs_content_object (self, index)->size;
}

/* Whether other files' readers do as well: what is read ahead may be of any file, and from any stripe. Who opened the
 * object itself reads it once. */
static bool may_share (const EcfsContent *self, const EcfsObjectRow *object)
{
    bool may = object->kind != ECFS_OBJECT_WHOLE && self->ino != 0 && self->without == NULL && !self->passes_over &&
               !self->shares_nothing && (self->archive->cache == NULL || self->caching == ECFS_CACHING_FILLS);
    for (guint i = 0; may && i < object->stripes->len; i++)
        may = !ecfs_stripe_lacks (object, &g_array_index (object->stripes, EcfsStripeRow, i), object->size);
    return may;
}

/* Copies of a log that end before what the content has of it. */
static void flag_cut (const EcfsContent *self, guint index, bool *ret_left_out)
{
    const EcfsObjectRow *object = ecfs_content_object (self, index);
    uint64_t end = 0;
    for (guint i = 0; i < self->extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (self->extents, EcfsExtent, i);
        end = extent->object == index ? MAX (end, extent->object_offset + extent->length) : end;
    }
    for (guint i = 0; object->kind == ECFS_OBJECT_LOG && i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->index < ECFS_CODEC_MAX_N && ecfs_stripe_lacks (object, stripe, end))
            ret_left_out[stripe->index] = true;
    }
}

static bool leaves_out (const EcfsContent *self)
{
    bool any = false;
    for (size_t i = 0; self->without != NULL && i < ecfs_archive_n_endpoints (self->archive); i++)
        any |= self->without[i];
    return any;
}

static EcfsReader *own_reader (const EcfsContent *self, guint index, EcfsCaching caching, GError **error)
{
    bool left_out[ECFS_CODEC_MAX_N] = {false};
    const EcfsObjectRow *object = ecfs_content_object (self, index);
    if (self->without != NULL)
        flag_left_out (self, object, left_out);
    flag_cut (self, index, left_out);
    EcfsReader *reader = make_reader (self->archive, object, left_out, leaves_out (self) ? ECFS_CACHING_NONE : caching,
                                      self->passes_over       ? only_tell_trouble
                                      : self->without != NULL ? note_trouble
                                                              : tell_trouble,
                                      error);
    if (reader != NULL && self->expects_all && is_whole (self, index))
        ecfs_reader_expect_all (reader);
    return reader;
}

static EcfsReader *make_shared (void *user, const EcfsObjectRow *object, GError **error)
{
    const EcfsArchive *archive = user; /* all that share it fill the cache, where there is one */
    return make_reader (user, object, NULL, archive->cache == NULL ? ECFS_CACHING_NONE : ECFS_CACHING_FILLS,
                        tell_trouble, error);
}

static void pin_shared (void *user, const EcfsUuid *object)
{
    ecfs_archive_pin (user, object);
}

static void unpin_shared (void *user, const EcfsUuid *object)
{
    ecfs_archive_unpin (user, object);
}

static EcfsReader *part_reader (EcfsContent *self, guint index, GError **error)
{
    ecfs_mutex_lock (&self->lock);
    Part *part = &g_array_index (self->parts, Part, index);
    bool is_first = part->reader == NULL;
    ecfs_mutex_unlock (&self->lock);
    /* What comes from stripes that were replaced since it was opened may be what they were replaced for. */
    bool is_stale = is_first && self->archive->cache != NULL && !ecfs_content_is_current (self);
    EcfsCaching caching = is_stale ? MIN (self->caching, ECFS_CACHING_READS) : self->caching;
    ecfs_mutex_lock (&self->lock);
    if (part->reader == NULL && !is_stale && may_share (self, part->object)) {
        const EcfsSharedReadersOps ops = {
            .make = make_shared, .pin = pin_shared, .unpin = unpin_shared, .user = self->archive};
        part->shared = ecfs_shared_readers_get (self->archive->shared_readers, &ops, part->object, error);
        part->reader = part->shared == NULL ? NULL : ecfs_shared_reader (part->shared);
    } else if (part->reader == NULL) {
        part->reader = own_reader (self, index, caching, error);
    }
    EcfsReader *reader = part->reader;
    ecfs_mutex_unlock (&self->lock);
    return reader;
}

/* A read of bytes in several extents, or of holes: gathered in one buffer. */
typedef struct Gather {
    EcfsContent *content; /* a reference */
    EcfsContentDone done;
    void *user;
    EcfsMutex lock;
    unsigned n_waiting; /* guarded by lock */
    GError *error;      /* first; guarded by lock */
    uint8_t *bytes;
    size_t size;
} Gather;

typedef struct GatherPart {
    Gather *gather;
    uint8_t *to;
} GatherPart;

/* Whether this was the last part; sums up the errors. */
static bool gather_settle (Gather *gather, const GError *error)
{
    ecfs_mutex_lock (&gather->lock);
    if (error != NULL && gather->error == NULL)
        gather->error = g_error_copy (error);
    bool last = --gather->n_waiting == 0;
    ecfs_mutex_unlock (&gather->lock);
    return last;
}

static void gather_finish (Gather *gather)
{
    struct iovec iov = {.iov_base = gather->bytes, .iov_len = gather->size};
    if (gather->error != NULL)
        gather->done (gather->user, NULL, 0, gather->error);
    else
        gather->done (gather->user, &iov, 1, NULL);
    g_clear_error (&gather->error);
    ecfs_mutex_clear (&gather->lock);
    ecfs_content_unref (gather->content);
    g_free (gather->bytes);
    g_free (gather);
}

static void gather_done (void *user, const struct iovec *iov, int n_iov, const GError *error)
{
    GatherPart *part = user;
    uint8_t *to = part->to;
    for (int i = 0; i < n_iov; i++) {
        memcpy (to, iov[i].iov_base, iov[i].iov_len);
        to += iov[i].iov_len;
    }
    if (gather_settle (part->gather, error))
        gather_finish (part->gather);
    g_free (part);
}

/* Begins the reads of every extent that overlaps [offset, offset + size); what none covers stays zero. */
static void gather_begin (Gather *gather, uint64_t offset)
{
    EcfsContent *self = gather->content;
    for (guint i = 0; i < self->extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (self->extents, EcfsExtent, i);
        uint64_t from = MAX (offset, extent->offset);
        uint64_t to = MIN (offset + gather->size, extent->offset + extent->length);
        if (from >= to)
            continue;
        g_autoptr (GError) error = NULL;
        EcfsReader *reader = part_reader (self, (guint) extent->object, &error);
        ecfs_mutex_lock (&gather->lock);
        gather->n_waiting++;
        ecfs_mutex_unlock (&gather->lock);
        GatherPart *part = g_new (GatherPart, 1);
        *part = (GatherPart){.gather = gather, .to = gather->bytes + (from - offset)};
        if (reader == NULL)
            gather_done (part, NULL, 0, error);
        else
            ecfs_reader_read (reader, extent->object_offset + (from - extent->offset), to - from, gather_done, part);
    }
    if (gather_settle (gather, NULL))
        gather_finish (gather);
}

/* A read within one extent: the reader's own memory goes to the caller. */
typedef struct Direct {
    EcfsContent *content; /* a reference: keeps the object pinned */
    EcfsContentDone done;
    void *user;
} Direct;

static void direct_done (void *user, const struct iovec *iov, int n_iov, const GError *error)
{
    Direct *direct = user;
    direct->done (direct->user, iov, n_iov, error);
    ecfs_content_unref (direct->content);
    g_free (direct);
}

/* The extent that covers all of a range, or NULL. */
static const EcfsExtent *covering (const EcfsContent *self, uint64_t offset, size_t size)
{
    for (guint i = 0; i < self->extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (self->extents, EcfsExtent, i);
        if (offset >= extent->offset && offset + size <= extent->offset + extent->length)
            return extent;
    }
    return NULL;
}

static bool overlaps_data (const EcfsContent *self, uint64_t offset, size_t size)
{
    for (guint i = 0; i < self->extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (self->extents, EcfsExtent, i);
        if (offset < extent->offset + extent->length && offset + size > extent->offset)
            return true;
    }
    return false;
}

static void read_direct (EcfsContent *self, const EcfsExtent *extent, uint64_t offset, size_t size,
                         EcfsContentDone done, void *user)
{
    g_autoptr (GError) error = NULL;
    EcfsReader *reader = part_reader (self, (guint) extent->object, &error);
    if (reader == NULL) {
        done (user, NULL, 0, error);
        return;
    }
    Direct *direct = g_new (Direct, 1);
    *direct = (Direct){.content = ecfs_content_ref (self), .done = done, .user = user};
    ecfs_reader_read (reader, extent->object_offset + (offset - extent->offset), size, direct_done, direct);
}

void ecfs_content_read (EcfsContent *self, uint64_t offset, size_t size, EcfsContentDone done, void *user)
{
    atomic_store (&self->archive->read_us, ecfs_now_us ());
    size = offset >= self->size ? 0 : (size_t) MIN (size, self->size - offset);
    const EcfsExtent *extent = size == 0 ? NULL : covering (self, offset, size);
    if (extent != NULL) {
        read_direct (self, extent, offset, size, done, user);
        return;
    }
    if (size <= ZEROS_BYTES && !overlaps_data (self, offset, size)) {
        struct iovec iov = {.iov_base = (uint8_t *) zeros (), .iov_len = size};
        done (user, &iov, size > 0, NULL);
        return;
    }
    Gather *gather = g_new0 (Gather, 1);
    ecfs_mutex_init (&gather->lock);
    gather->content = ecfs_content_ref (self);
    gather->done = done;
    gather->user = user;
    gather->n_waiting = 1;
    gather->size = size;
    gather->bytes = g_malloc0 (size);
    gather_begin (gather, offset);
}

typedef struct Waited {
    EcfsMutex lock;
    EcfsCond cond;
    bool done;
    uint8_t *to; /* gets the bytes; NULL: they are borrowed */
    struct iovec *iov;
    int n_iov;
    size_t size;
    GError *error;
} Waited;

static void wait_done (void *user, const struct iovec *iov, int n_iov, const GError *error)
{
    Waited *waited = user;
    ecfs_mutex_lock (&waited->lock);
    for (int i = 0; i < n_iov; i++) {
        if (waited->to != NULL)
            memcpy (waited->to + waited->size, iov[i].iov_base, iov[i].iov_len);
        waited->size += iov[i].iov_len;
    }
    waited->iov = (struct iovec *) iov;
    waited->n_iov = n_iov;
    waited->error = error == NULL ? NULL : g_error_copy (error);
    waited->done = true;
    ecfs_cond_signal (&waited->cond);
    ecfs_mutex_unlock (&waited->lock);
}

static void wait_begin (Waited *waited, uint8_t *to)
{
    *waited = (Waited){.to = to};
    ecfs_mutex_init (&waited->lock);
    ecfs_cond_init (&waited->cond);
}

static bool wait_end (Waited *waited, GError **error)
{
    ecfs_mutex_lock (&waited->lock);
    while (!waited->done) /* endpoints keep the deadlines: every read ends by itself */
        (void) ecfs_cond_wait_until (&waited->cond, &waited->lock, ecfs_now_us () + G_USEC_PER_SEC);
    ecfs_mutex_unlock (&waited->lock);
    ecfs_cond_clear (&waited->cond);
    ecfs_mutex_clear (&waited->lock);
    if (waited->error != NULL)
        g_propagate_error (error, waited->error);
    return waited->error == NULL;
}

bool ecfs_content_read_wait (EcfsContent *self, uint64_t offset, size_t size, void *to, size_t *ret_size,
                             GError **error)
{
    Waited waited;
    wait_begin (&waited, to);
    ecfs_content_read (self, offset, size, wait_done, &waited);
    if (!wait_end (&waited, error))
        return false;
    *ret_size = waited.size;
    return true;
}

static bool borrow_direct (EcfsContent *self, const EcfsExtent *extent, uint64_t offset, size_t size, EcfsBorrowed *ret,
                           GError **error)
{
    EcfsReader *reader = part_reader (self, (guint) extent->object, error);
    if (reader == NULL)
        return false;
    Waited waited;
    wait_begin (&waited, NULL);
    ret->loan =
        ecfs_reader_borrow (reader, extent->object_offset + (offset - extent->offset), size, wait_done, &waited);
    if (!wait_end (&waited, error)) {
        ecfs_loan_return (ret->loan);
        return false;
    }
    ret->iov = waited.iov;
    ret->n_iov = waited.n_iov;
    ret->size = waited.size;
    return true;
}

static bool borrow_gathered (EcfsContent *self, uint64_t offset, size_t size, EcfsBorrowed *ret, GError **error)
{
    g_autofree uint8_t *bytes = g_malloc (size);
    if (!ecfs_content_read_wait (self, offset, size, bytes, &ret->size, error))
        return false;
    ret->own = g_steal_pointer (&bytes);
    ret->own_iov = (struct iovec){.iov_base = ret->own, .iov_len = ret->size};
    ret->iov = &ret->own_iov;
    ret->n_iov = 1;
    return true;
}

bool ecfs_content_borrow (EcfsContent *self, uint64_t offset, size_t size, EcfsBorrowed *ret, GError **error)
{
    *ret = (EcfsBorrowed){0};
    size = offset >= self->size ? 0 : (size_t) MIN (size, self->size - offset);
    const EcfsExtent *extent = size == 0 ? NULL : covering (self, offset, size);
    if (extent == NULL)
        return borrow_gathered (self, offset, size, ret, error);
    atomic_store (&self->archive->read_us, ecfs_now_us ());
    return borrow_direct (self, extent, offset, size, ret, error);
}

void ecfs_content_give_back (EcfsBorrowed *borrowed)
{
    ecfs_loan_return (borrowed->loan);
    g_free (borrowed->own);
}
