#include "object/liars.h"

#include "object/format.h"
#include "util/lock.h"
#include "util/xxh3.h"

#include <string.h>

#define PIECE_BYTES (1u << 20)
#define ATTEMPTS    256 /* sets of suspects: with many endpoints not all of two or three are tried */

static bool goes_on (const EcfsLiars *self, uint64_t bytes, GError **error)
{
    return self->tick == NULL || self->tick (self->user, bytes) || ecfs_fail (error, ECANCELED, "cancelled");
}

/* Reading and coding */

/* One segment that is waited for. */
typedef struct Awaited {
    EcfsMutex lock;
    EcfsCond cond;
    bool done; /* guarded by lock, as the others */
    uint8_t *to;
    size_t size;
    GError *error;
} Awaited;

static void on_read (void *user, const struct iovec *iov, int n_iov, const GError *error)
{
    Awaited *self = user;
    ecfs_mutex_lock (&self->lock);
    for (int i = 0; i < n_iov; i++) {
        memcpy (self->to + self->size, iov[i].iov_base, iov[i].iov_len);
        self->size += iov[i].iov_len;
    }
    self->error = error == NULL ? NULL : g_error_copy (error);
    self->done = true;
    ecfs_cond_signal (&self->cond);
    ecfs_mutex_unlock (&self->lock);
}

static bool read_wait (EcfsReader *reader, uint64_t offset, size_t size, uint8_t *to, GError **error)
{
    Awaited awaited = {.to = to};
    ecfs_mutex_init (&awaited.lock);
    ecfs_cond_init (&awaited.cond);
    ecfs_reader_read (reader, offset, size, on_read, &awaited);
    ecfs_mutex_lock (&awaited.lock);
    while (!awaited.done) /* endpoints keep the deadlines: every read ends by itself */
        (void) ecfs_cond_wait_until (&awaited.cond, &awaited.lock, ecfs_now_us () + G_USEC_PER_SEC);
    ecfs_mutex_unlock (&awaited.lock);
    ecfs_cond_clear (&awaited.cond);
    ecfs_mutex_clear (&awaited.lock);
    if (awaited.error == NULL)
        return awaited.size == size || ecfs_fail (error, EIO, "it ends before its size");
    g_propagate_error (error, awaited.error);
    return false;
}

/* What is made of the content: a segment at a time. */
typedef struct Coding {
    const EcfsReaderParams *params;
    uint8_t *packets; /* n in a row, without tags */
    EcfsSha256 *content;
    XXH3_state_t *digest;
    EcfsSha256 *stripes[ECFS_CODEC_MAX_N]; /* NULL: they are not asked for */
} Coding;

/* A packet as the stripe has it: each check block with its tag behind it. */
static void hash_packet (Coding *self, uint64_t segment, unsigned index, const uint8_t *packet)
{
    const EcfsLayout *layout = &self->params->layout;
    const EcfsTagger tagger = ecfs_reader_tagger (self->params);
    for (uint32_t block = 0; block < ecfs_layout_n_blocks (layout, segment); block++) {
        uint8_t tag[ECFS_TAG_MAX_BYTES];
        uint32_t bytes = ecfs_layout_block_bytes (layout, segment, block);
        uint64_t number = ecfs_layout_block_number (layout, segment, block);
        ecfs_tag_put (&tagger, index, number, packet, bytes, tag);
        ecfs_sha256_update (self->stripes[index], packet, bytes);
        ecfs_sha256_update (self->stripes[index], tag, layout->tag_bytes);
        packet += bytes;
    }
}

static void encipher (Coding *self, uint64_t segment, uint32_t content_bytes)
{
    if (self->params->keys == NULL)
        return;
    EcfsCipher *cipher = ecfs_cipher_new (self->params->keys->content, segment * self->params->layout.segment_bytes);
    ecfs_cipher_next (cipher, self->packets, content_bytes);
    ecfs_cipher_free (cipher);
}

static void take_segment (Coding *self, uint64_t segment)
{
    const EcfsLayout *layout = &self->params->layout;
    unsigned n = ecfs_codec_n (self->params->codec);
    size_t packet_bytes = ecfs_layout_packet_bytes (layout, segment);
    uint32_t content_bytes = ecfs_layout_content_bytes (layout, segment);
    uint8_t *at[ECFS_CODEC_MAX_N];
    ecfs_sha256_update (self->content, self->packets, content_bytes);
    encipher (self, segment, content_bytes);
    ecfs_xxh3_128_update (self->digest, self->packets, content_bytes);
    if (self->stripes[0] == NULL)
        return;
    memset (self->packets + content_bytes, 0, layout->k * packet_bytes - content_bytes);
    for (unsigned i = 0; i < n; i++)
        at[i] = self->packets + i * packet_bytes;
    ecfs_codec_encode (self->params->codec, (const uint8_t *const *) at, at + layout->k, packet_bytes);
    for (unsigned i = 0; i < n; i++)
        hash_packet (self, segment, i, at[i]);
}

static bool take_all (const EcfsLiars *self, Coding *coding, EcfsReader *reader, GError **error)
{
    const EcfsLayout *layout = &self->params->layout;
    for (uint64_t segment = 0; segment < ecfs_layout_n_segments (layout); segment++) {
        uint32_t bytes = ecfs_layout_content_bytes (layout, segment);
        if (!goes_on (self, bytes, error) ||
            !read_wait (reader, segment * layout->segment_bytes, bytes, coding->packets, error))
            return false;
        take_segment (coding, segment);
    }
    return true;
}

/* Ends the sums of the content; whether it is what is asked for. */
static bool is_true (const EcfsLiars *self, Coding *coding)
{
    uint8_t found[ECFS_SHA256_SIZE];
    XXH128_canonical_t digest;
    ecfs_sha256_end (coding->content, found);
    ecfs_sha256_free (coding->content);
    XXH128_canonicalFromHash (&digest, XXH3_128bits_digest (coding->digest));
    XXH3_freeState (coding->digest);
    bool same = self->sha256 != NULL ? memcmp (found, self->sha256, sizeof found) == 0
                                     : memcmp (digest.digest, self->digest, sizeof digest.digest) == 0;
    if (same && self->ret_sha256 != NULL)
        memcpy (self->ret_sha256, found, sizeof found);
    return same;
}

bool ecfs_true_stripes (const EcfsLiars *self, const bool *without, EcfsTrueStripes *ret_stripes, GError **error)
{
    EcfsReaderStripe stripes[ECFS_CODEC_MAX_N];
    EcfsReaderParams params = *self->params;
    unsigned n = ecfs_codec_n (params.codec);
    for (unsigned i = 0; i < n; i++)
        stripes[i] = without != NULL && without[i] ? (EcfsReaderStripe){.endpoint = NULL} : self->params->stripes[i];
    params.stripes = stripes;
    g_autofree uint8_t *packets = g_malloc ((size_t) n * ecfs_layout_packet_bytes (&params.layout, 0));
    Coding coding = {
        .params = &params, .packets = packets, .content = ecfs_sha256_new (), .digest = XXH3_createState ()};
    XXH3_128bits_reset (coding.digest);
    for (unsigned i = 0; i < n && ret_stripes != NULL; i++)
        coding.stripes[i] = ecfs_sha256_new ();
    EcfsReader *reader = ecfs_reader_new (&params);
    ecfs_reader_expect_all (reader);
    bool good = take_all (self, &coding, reader, error);
    ecfs_reader_close (reader);
    bool same = is_true (self, &coding);
    for (unsigned i = 0; i < n && ret_stripes != NULL; i++) {
        ecfs_sha256_end (coding.stripes[i], ret_stripes->sha256[i]);
        ecfs_sha256_free (coding.stripes[i]);
    }
    return good && (same || ecfs_fail (error, EBADMSG, "the SHA-256 of the content is not that of what was stored"));
}

/* Who it is */

/* Whether a stripe's bytes are those that it should have, as far as they can be read now. */
static bool differs (const EcfsLiars *self, unsigned index, const uint8_t *expected)
{
    const EcfsReaderStripe *stripe = &self->params->stripes[index];
    const EcfsLayout *layout = &self->params->layout;
    uint64_t offset = layout->header_bytes, end = offset + ecfs_layout_area_bytes (layout);
    char name[ECFS_STRIPE_NAME_SIZE];
    uint8_t found[ECFS_SHA256_SIZE];
    g_autofree uint8_t *bytes = g_malloc (PIECE_BYTES);
    g_autoptr (EcfsSha256) state = ecfs_sha256_new ();
    ecfs_stripe_name (&self->params->object, (uint16_t) index, stripe->instance, name);
    while (offset < end) {
        EcfsRange range = {.offset = offset, .size = (size_t) MIN (end - offset, PIECE_BYTES), .to = bytes};
        if (!goes_on (self, range.size, NULL) || !ecfs_endpoint_read_wait (stripe->endpoint, name, &range, 1, NULL))
            return false;
        ecfs_sha256_update (state, bytes, range.size);
        offset += range.size;
    }
    ecfs_sha256_end (state, found);
    return memcmp (found, expected, sizeof found) != 0;
}

/* Whether any stripe is not what coding the content gives. */
static bool flag_different (const EcfsLiars *self, const EcfsTrueStripes *truth, bool *ret_lies)
{
    bool any = false;
    for (unsigned i = 0; i < ecfs_codec_n (self->params->codec); i++) {
        ret_lies[i] = self->params->stripes[i].endpoint != NULL && differs (self, i, truth->sha256[i]);
        any = any || ret_lies[i];
    }
    return any;
}

/* An endpoint that says one thing now and another then is told by what reading without it gave. */
static void flag_liars (const EcfsLiars *self, const bool *without, const EcfsTrueStripes *truth, bool *ret_lies)
{
    if (!flag_different (self, truth, ret_lies))
        memcpy (ret_lies, without, ecfs_codec_n (self->params->codec) * sizeof *ret_lies);
}

bool ecfs_liars_compare (const EcfsLiars *self, bool *ret_lies, GError **error)
{
    EcfsTrueStripes truth;
    if (!ecfs_true_stripes (self, NULL, &truth, error))
        return false;
    (void) flag_different (self, &truth, ret_lies); /* the flags say it */
    return true;
}

/* The next set of @size of @n suspects in order; false: that was the last. */
static bool next_set (unsigned *set, unsigned size, unsigned n)
{
    for (unsigned i = size; i-- > 0;) {
        if (set[i] + (size - i) >= n)
            continue;
        set[i]++;
        for (unsigned j = i + 1; j < size; j++)
            set[j] = set[j - 1] + 1;
        return true;
    }
    return false;
}

/* The different endpoints of the stripes. */
static GPtrArray *list_suspects (const EcfsReaderParams *params)
{
    GPtrArray *suspects = g_ptr_array_new ();
    for (unsigned i = 0; i < ecfs_codec_n (params->codec); i++)
        if (params->stripes[i].endpoint != NULL && !g_ptr_array_find (suspects, params->stripes[i].endpoint, NULL))
            g_ptr_array_add (suspects, params->stripes[i].endpoint);
    return suspects;
}

/* Flags the stripes at the endpoints of a set. Returns whether the others determine the content. */
static bool leave_out (const EcfsReaderParams *params, const GPtrArray *suspects, const unsigned *set, unsigned size,
                       bool *ret_without)
{
    bool present[ECFS_CODEC_MAX_N] = {false};
    for (unsigned i = 0; i < ecfs_codec_n (params->codec); i++) {
        ret_without[i] = false;
        for (unsigned j = 0; j < size; j++)
            ret_without[i] = ret_without[i] || params->stripes[i].endpoint == g_ptr_array_index (suspects, set[j]);
        present[i] = params->stripes[i].endpoint != NULL && !ret_without[i];
    }
    return ecfs_codec_decodable (params->codec, present);
}

bool ecfs_liars_find (const EcfsLiars *self, unsigned most, bool *ret_lies, GError **error)
{
    g_autoptr (GPtrArray) suspects = list_suspects (self->params);
    unsigned set[ECFS_CODEC_MAX_N], attempts = 0;
    for (unsigned size = 1; size <= MIN (most, suspects->len); size++) {
        for (unsigned i = 0; i < size; i++)
            set[i] = i;
        do {
            bool without[ECFS_CODEC_MAX_N];
            EcfsTrueStripes truth;
            g_autoptr (GError) why = NULL;
            if (!leave_out (self->params, suspects, set, size, without))
                continue;
            if (ecfs_true_stripes (self, without, &truth, &why)) {
                flag_liars (self, without, &truth, ret_lies);
                return true;
            }
            if (why->code == ECANCELED)
                return ecfs_fail (error, ECANCELED, "cancelled");
        } while (++attempts < ATTEMPTS && next_set (set, size, suspects->len));
    }
    return ecfs_fail (error, EBADMSG,
                      "the SHA-256 of the content is not that of what was stored, whichever endpoints are left out");
}
