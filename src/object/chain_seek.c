/* Finding the chain of an object: in the footer of whichever of its stripes gives one first. */
#include "object/chain.h"
#include "object/format.h"
#include "util/lock.h"

#include <string.h>

#define AT_ONCE 2 /* or an endpoint that hangs would keep all waiting */

typedef struct Seek Seek;

typedef struct Ask {
    Seek *seek;
    unsigned index; /* of the stripe */
    EcfsReaderStripe stripe;
    size_t size;
    uint8_t *bytes;     /* lent to the endpoint while it is asked */
    EcfsStream *stream; /* guarded by seek lock */
    bool runs;          /* the same */
} Ask;

struct Seek {
    EcfsMutex lock;
    EcfsReaderParams params; /* with a reference to keys; without stripes */
    Ask *asks;               /* n, in the order in which they are asked */
    unsigned n;
    unsigned next;       /* guarded by lock, like the next three */
    unsigned running;    /* asks */
    unsigned references; /* of each ask, until it is done with this, and of who begins */
    bool is_over;        /* it is found */
    void (*found) (void *user, GByteArray *chain);
    void *user;
};

/* Bytes from the footer to the end of the stripe; 0: it cannot have one. */
static size_t foot_bytes (const EcfsReaderParams *params, const EcfsReaderStripe *stripe)
{
    uint64_t offset = params->layout.header_bytes + ecfs_layout_area_bytes (&params->layout);
    uint64_t bytes = stripe->bytes - MIN (stripe->bytes, offset);
    bool is_whole = bytes > ECFS_STRIPE_TAIL_BYTES && bytes <= ECFS_FOOTER_MAX_BYTES + ECFS_STRIPE_TAIL_BYTES;
    return stripe->endpoint != NULL && is_whole ? (size_t) bytes : 0;
}

static bool belongs (const EcfsReaderParams *params, const GByteArray *chain)
{
    return chain != NULL && ecfs_chain_is_of (chain, &params->layout) &&
           (!params->has_sha256 ||
            memcmp (chain->data + chain->len - ECFS_CHAIN_LINK_BYTES, params->sha256, ECFS_SHA256_SIZE) == 0);
}

/* What the end of a stripe tells; NULL: none that is authentic and of this content. */
static GByteArray *parse (const EcfsReaderParams *params, unsigned index, const EcfsReaderStripe *stripe,
                          const uint8_t *bytes, size_t size)
{
    uint64_t offset, hash;
    uint32_t footer_bytes;
    EcfsStripeFooter footer;
    const EcfsStripeHeader header = {.object = params->object, .index = (uint16_t) index, .instance = stripe->instance};
    if (!ecfs_stripe_tail_parse (bytes + size - ECFS_STRIPE_TAIL_BYTES, stripe->bytes, &offset, &footer_bytes, &hash,
                                 NULL) ||
        footer_bytes + ECFS_STRIPE_TAIL_BYTES != size ||
        !ecfs_stripe_footer_parse (bytes, footer_bytes, hash, &header, params->keys, &footer, NULL))
        return NULL;
    GByteArray *chain = belongs (params, footer.chain) ? g_steal_pointer (&footer.chain) : NULL;
    ecfs_stripe_footer_clear (&footer);
    return chain;
}

static void seek_unref (Seek *self)
{
    ecfs_mutex_lock (&self->lock);
    bool is_last = --self->references == 0;
    ecfs_mutex_unlock (&self->lock);
    if (!is_last)
        return;
    for (unsigned i = 0; i < self->n; i++) {
        ecfs_stream_unref (self->asks[i].stream);
        g_free (self->asks[i].bytes);
    }
    ecfs_reader_params_clear (&self->params);
    ecfs_mutex_clear (&self->lock);
    g_free (self->asks);
    g_free (self);
}

static void answered (void *user, const GError *error);

static void ask_more_locked (Seek *self) ECFS_REQUIRES (self->lock)
{
    while (self->running < AT_ONCE && self->next < self->n) {
        char name[ECFS_STRIPE_NAME_SIZE];
        Ask *ask = &self->asks[self->next++];
        ask->bytes = g_malloc (ask->size);
        ask->runs = true;
        self->running++;
        self->references++;
        ecfs_stripe_name (&self->params.object, (uint16_t) ask->index, ask->stripe.instance, name);
        const EcfsRange range = {.offset = ask->stripe.bytes - ask->size, .size = ask->size, .to = ask->bytes};
        const EcfsSink sink = {.done = answered, .user = ask};
        ask->stream = ecfs_endpoint_read (ask->stripe.endpoint, name, &range, 1, 0, &sink);
    }
}

static void answered (void *user, const GError *error)
{
    Ask *ask = user;
    Seek *self = ask->seek;
    GByteArray *chain = error != NULL ? NULL : parse (&self->params, ask->index, &ask->stripe, ask->bytes, ask->size);
    ecfs_mutex_lock (&self->lock);
    ask->runs = false;
    self->running--;
    bool is_first = !self->is_over && chain != NULL;
    self->is_over = self->is_over || is_first;
    for (unsigned i = 0; i < self->next && is_first; i++)
        if (self->asks[i].runs)
            ecfs_stream_cancel (self->asks[i].stream);
    if (!self->is_over)
        ask_more_locked (self);
    bool is_missing = self->running == 0 && !self->is_over;
    ecfs_mutex_unlock (&self->lock);
    if (is_first || is_missing)
        self->found (self->user, chain);
    else if (chain != NULL)
        g_byte_array_unref (chain);
    seek_unref (self);
}

/* In any order, but those of endpoints that are down at the end. */
static void add_asks (Seek *self, const EcfsReaderParams *params)
{
    const unsigned n = ecfs_codec_n (params->codec);
    const unsigned from = (unsigned) g_random_int_range (0, (gint32) n);
    bool down[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < n; i++)
        down[i] = params->stripes[i].endpoint != NULL && ecfs_endpoint_is_down (params->stripes[i].endpoint);
    for (unsigned i = 0; i < 2 * n; i++) {
        unsigned index = (from + i) % n;
        const EcfsReaderStripe *stripe = &params->stripes[index];
        size_t size = foot_bytes (params, stripe);
        if (size > 0 && down[index] == (i >= n))
            self->asks[self->n++] = (Ask){.seek = self, .index = index, .stripe = *stripe, .size = size};
    }
}

bool ecfs_chain_seek (const EcfsReaderParams *params, void (*found) (void *user, GByteArray *chain), void *user)
{
    Seek *self = g_new (Seek, 1);
    *self = (Seek){.params = *params,
                   .asks = g_new0 (Ask, ecfs_codec_n (params->codec)),
                   .references = 1,
                   .found = found,
                   .user = user};
    ecfs_mutex_init (&self->lock);
    self->params.keys = ecfs_seal_keys_ref (params->keys);
    self->params.stripes = NULL;
    add_asks (self, params);
    bool any = self->n > 0;
    ecfs_mutex_lock (&self->lock);
    ask_more_locked (self);
    ecfs_mutex_unlock (&self->lock);
    seek_unref (self);
    return any;
}

GByteArray *ecfs_chain_seek_wait (const EcfsReaderParams *params)
{
    GByteArray *chain = NULL;
    for (unsigned i = 0; i < ecfs_codec_n (params->codec) && chain == NULL; i++) {
        char name[ECFS_STRIPE_NAME_SIZE];
        const EcfsReaderStripe *stripe = &params->stripes[i];
        size_t size = foot_bytes (params, stripe);
        g_autofree uint8_t *bytes = g_malloc (size);
        const EcfsRange range = {.offset = stripe->bytes - size, .size = size, .to = bytes};
        ecfs_stripe_name (&params->object, (uint16_t) i, stripe->instance, name);
        if (size > 0 && ecfs_endpoint_read_wait (stripe->endpoint, name, &range, 1, NULL))
            chain = parse (params, i, stripe, bytes, size);
    }
    return chain;
}
