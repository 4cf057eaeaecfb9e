#include "object/codeword.h"

#include "util/lock.h"

#include <string.h>

#define WINDOW_BYTES (2u << 20)          /* of each stripe; two segments where these are larger */
#define HASHED_BYTES ((size_t) 16 << 10) /* that are deciphered and hashed while the cache has them */
#define TICK_US      200000

struct EcfsCodeword {
    EcfsMutex lock;
    EcfsCond moved;
    const EcfsCodec *codec; /* immutable, as all up to the next comment */
    EcfsLayout layout;
    const EcfsSealKeys *keys; /* borrowed; may be NULL */
    unsigned n;
    uint64_t n_segments;
    uint32_t window;     /* segments */
    size_t packet_bytes; /* of the first segment: none has larger ones */
    uint8_t *packets;    /* window × n in a row */
    /* Guarded by lock. */
    bool reads[ECFS_CODEC_MAX_N];     /* more of the stripe comes */
    uint64_t taken[ECFS_CODEC_MAX_N]; /* segments of the stripe that are here, or were */
    uint64_t next;                    /* segment that is looked at next */
    bool busy;                        /* a thread looks at it */
    bool is_lost;                     /* what is there does not determine the content */
    /* Of the thread that is busy. */
    EcfsSha256 *content;
    bool present[ECFS_CODEC_MAX_N]; /* stripes for which the plan is, and … */
    EcfsPlan *plan;                 /* … which gives the other data packets; NULL: there are none */
    uint8_t *parity;                /* m packets */
    bool differs[ECFS_CODEC_MAX_N];
};

static uint32_t window_of (const EcfsLayout *layout)
{
    uint32_t packet_bytes = MAX (ecfs_layout_packet_bytes (layout, 0), 1);
    return (uint32_t) MIN (MAX (WINDOW_BYTES / packet_bytes, 2), MAX (ecfs_layout_n_segments (layout), 1));
}

size_t ecfs_codeword_bytes (const EcfsCodec *codec, const EcfsLayout *layout)
{
    size_t n_packets = (size_t) window_of (layout) * ecfs_codec_n (codec) + ecfs_codec_n (codec) - layout->k;
    return sizeof (EcfsCodeword) + n_packets * ecfs_layout_packet_bytes (layout, 0);
}

EcfsCodeword *ecfs_codeword_new (const EcfsCodec *codec, const EcfsLayout *layout, const EcfsSealKeys *keys,
                                 const bool *stripes)
{
    EcfsCodeword *self = g_new0 (EcfsCodeword, 1);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->moved);
    self->codec = codec;
    self->keys = keys;
    self->layout = *layout;
    self->n = ecfs_codec_n (codec);
    self->n_segments = ecfs_layout_n_segments (layout);
    self->window = window_of (layout);
    self->packet_bytes = ecfs_layout_packet_bytes (layout, 0);
    self->packets = g_malloc ((size_t) self->window * self->n * self->packet_bytes);
    self->parity = g_malloc (MAX ((self->n - layout->k) * self->packet_bytes, 1));
    self->content = ecfs_sha256_new ();
    memcpy (self->reads, stripes, self->n * sizeof *stripes);
    memset (self->present, true, sizeof self->present); /* of which no plan is needed */
    return self;
}

void ecfs_codeword_free (EcfsCodeword *self)
{
    if (self == NULL)
        return;
    ecfs_plan_free (self->plan);
    ecfs_sha256_free (self->content);
    g_free (self->packets);
    g_free (self->parity);
    ecfs_cond_clear (&self->moved);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

static uint8_t *packet_at (const EcfsCodeword *self, uint64_t segment, unsigned stripe)
{
    return self->packets + ((size_t) (segment % self->window) * self->n + stripe) * self->packet_bytes;
}

/* Looking at a segment: by the thread that is busy */

/* Data packets that are not there come from the others. False: these do not determine them. */
static bool fill_in (EcfsCodeword *self, const bool *present, uint8_t *const *packets, size_t packet_bytes)
{
    if (memcmp (self->present, present, self->n * sizeof *present) != 0) {
        bool wanted[ECFS_CODEC_MAX_N] = {false}, any = false;
        for (unsigned i = 0; i < self->layout.k; i++) {
            wanted[i] = !present[i];
            any = any || wanted[i];
        }
        g_clear_pointer (&self->plan, ecfs_plan_free);
        memcpy (self->present, present, self->n * sizeof *present);
        if (any && (self->plan = ecfs_codec_plan (self->codec, present, wanted, NULL)) == NULL)
            return false;
    }
    if (self->plan != NULL)
        ecfs_plan_run (self->plan, packets, packet_bytes);
    return true;
}

/* What is behind the end of the content is zero in what was stored. */
static void compare_ends (EcfsCodeword *self, uint8_t *const *packets, size_t packet_bytes)
{
    size_t left = ecfs_layout_content_bytes (&self->layout, self->next);
    for (unsigned i = 0; i < self->layout.k; i++) {
        size_t size = MIN (left, packet_bytes);
        left -= size;
        for (size_t at = size; at < packet_bytes; at++) {
            self->differs[i] = self->differs[i] || packets[i][at] != 0;
            packets[i][at] = 0;
        }
    }
}

/* Where there is a key, this deciphers the packets. */
static void hash_content (EcfsCodeword *self, uint8_t *const *packets, size_t packet_bytes)
{
    size_t left = ecfs_layout_content_bytes (&self->layout, self->next);
    EcfsCipher *cipher =
        self->keys == NULL ? NULL : ecfs_cipher_new (self->keys->content, self->next * self->layout.segment_bytes);
    for (unsigned i = 0; i < self->layout.k; i++) {
        size_t size = MIN (left, packet_bytes);
        left -= size;
        for (size_t at = 0; at < size; at += HASHED_BYTES) {
            size_t piece = MIN (HASHED_BYTES, size - at);
            if (cipher != NULL)
                ecfs_cipher_next (cipher, packets[i] + at, piece);
            ecfs_sha256_update (self->content, packets[i] + at, piece);
        }
    }
    ecfs_cipher_free (cipher);
}

static void compare_parity (EcfsCodeword *self, const bool *present, uint8_t *const *packets, size_t packet_bytes)
{
    uint8_t *parity[ECFS_CODEC_MAX_N] = {NULL};
    bool any = false;
    for (unsigned i = self->layout.k; i < self->n; i++) {
        parity[i - self->layout.k] = present[i] ? self->parity + (i - self->layout.k) * self->packet_bytes : NULL;
        any = any || present[i];
    }
    if (!any)
        return;
    ecfs_codec_encode (self->codec, (const uint8_t *const *) packets, parity, packet_bytes);
    for (unsigned i = self->layout.k; i < self->n; i++)
        self->differs[i] =
            self->differs[i] || (present[i] && memcmp (packets[i], parity[i - self->layout.k], packet_bytes) != 0);
}

static bool look_at_segment (EcfsCodeword *self, const bool *present)
{
    uint8_t *packets[ECFS_CODEC_MAX_N];
    size_t packet_bytes = ecfs_layout_packet_bytes (&self->layout, self->next);
    for (unsigned i = 0; i < self->n; i++)
        packets[i] = packet_at (self, self->next, i);
    if (!fill_in (self, present, packets, packet_bytes))
        return false;
    compare_ends (self, packets, packet_bytes);
    compare_parity (self, present, packets, packet_bytes);
    hash_content (self, packets, packet_bytes);
    return true;
}

/* Whether the next segment is here, as far as it comes, and nobody looks at it; @ret_present: of which stripes. */
static bool is_due_locked (const EcfsCodeword *self, bool *ret_present) ECFS_REQUIRES (self->lock)
{
    if (self->busy || self->is_lost || self->next == self->n_segments)
        return false;
    for (unsigned i = 0; i < self->n; i++) {
        ret_present[i] = self->taken[i] > self->next;
        if (self->reads[i] && !ret_present[i])
            return false;
    }
    return true;
}

static void advance_locked (EcfsCodeword *self) ECFS_REQUIRES (self->lock)
{
    bool present[ECFS_CODEC_MAX_N] = {false};
    while (is_due_locked (self, present)) {
        self->busy = true;
        ecfs_mutex_unlock (&self->lock);
        bool fine = look_at_segment (self, present);
        ecfs_mutex_lock (&self->lock);
        self->busy = false;
        self->is_lost = !fine;
        self->next += fine;
        ecfs_cond_broadcast (&self->moved);
    }
}

/* What the threads of the stripes call */

static uint64_t limit_locked (const EcfsCodeword *self) ECFS_REQUIRES (self->lock)
{
    return self->is_lost ? self->n_segments : MIN (self->next + self->window, self->n_segments);
}

uint64_t ecfs_codeword_await (EcfsCodeword *self, unsigned stripe, uint64_t segment, const atomic_bool *cancelled)
{
    (void) stripe; /* all have the same window */
    ecfs_mutex_lock (&self->lock);
    advance_locked (self);
    while (limit_locked (self) <= segment && segment < self->n_segments && !atomic_load (cancelled)) {
        (void) ecfs_cond_wait_until (&self->moved, &self->lock, ecfs_now_us () + TICK_US);
        advance_locked (self);
    }
    uint64_t limit = MAX (limit_locked (self), segment);
    ecfs_mutex_unlock (&self->lock);
    return limit;
}

void ecfs_codeword_take (EcfsCodeword *self, unsigned stripe, uint64_t segment, uint32_t block, const uint8_t *bytes)
{
    size_t at = (size_t) block * self->layout.block_bytes;
    ecfs_mutex_lock (&self->lock);
    bool is_lost = self->is_lost;
    ecfs_mutex_unlock (&self->lock);
    if (is_lost)
        return;
    memcpy (packet_at (self, segment, stripe) + at, bytes, ecfs_layout_block_bytes (&self->layout, segment, block));
    if (block + 1 < ecfs_layout_n_blocks (&self->layout, segment))
        return;
    ecfs_mutex_lock (&self->lock);
    self->taken[stripe] = segment + 1;
    ecfs_cond_broadcast (&self->moved);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_codeword_leave (EcfsCodeword *self, unsigned stripe)
{
    ecfs_mutex_lock (&self->lock);
    self->reads[stripe] = false;
    advance_locked (self);
    ecfs_cond_broadcast (&self->moved);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_codeword_end (EcfsCodeword *self, EcfsCodewordResult *ret_result)
{
    ecfs_mutex_lock (&self->lock);
    advance_locked (self); /* what the last of them left, while another was busy, was seen to by that one */
    ret_result->is_known = self->next == self->n_segments;
    ret_result->agrees = ret_result->is_known;
    for (unsigned i = 0; i < self->n; i++) {
        ret_result->differs[i] = self->differs[i];
        ret_result->agrees = ret_result->agrees && !self->differs[i] && self->taken[i] == self->n_segments;
    }
    ecfs_mutex_unlock (&self->lock);
    ecfs_sha256_end (self->content, ret_result->sha256);
}
