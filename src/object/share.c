/*
 * What one of several readers of the same fetches for all, far ahead of where it is. As all read in the same order and
 * each segment is fetched by whoever asks for it first, one line after the other would be used; with a share each, all
 * of them are at once. Whose is which is claimed one by one, so a fast line gets more. Of use only while others read
 * the same, so until there is a sign of them nothing is fetched that nobody may read.
 */
#include "object/reader_priv.h"

#define AHEAD_BYTES (64u << 20)
#define AHEAD_TIMES 16 /* … and at most so many times what was read: who has just begun may soon stop */
#define SOON_US     G_USEC_PER_SEC
#define LATE_US     (2 * G_USEC_PER_SEC)
#define SIGN_US     (3 * G_USEC_PER_SEC)
/* From endpoints at once, as far as they come soon: a slow line takes few. As much is read ahead: more would be left to
 * the first that asks for it. */
#define MOST_BYTES (16u << 20)

/* Which are open to claims: [*ret_first, end). */
static uint64_t range_locked (const EcfsReader *self, uint64_t *ret_first) ECFS_REQUIRES (self->lock)
{
    const EcfsLayout *layout = &self->params.layout;
    uint64_t first = self->next_offset / layout->segment_bytes + ecfs_reader_window_locked (self) + 1;
    uint64_t bytes = MIN (AHEAD_BYTES, ecfs_cache_max_bytes (self->params.cache) / 4); /* they wait there */
    bytes = self->expects_all ? bytes : MIN (bytes, AHEAD_TIMES * self->run_bytes);
    *ret_first = first;
    return MIN (first + MIN (bytes / layout->segment_bytes, self->n_open), ecfs_layout_n_segments (layout));
}

static gboolean is_passed (gpointer key, gpointer value, gpointer first)
{
    (void) value;
    return *(const uint64_t *) key < *(const uint64_t *) first;
}

static bool is_open_locked (const EcfsReader *self, uint64_t segment) ECFS_REQUIRES (self->lock)
{
    uint32_t n_blocks = ecfs_layout_n_blocks (&self->params.layout, segment);
    return !g_hash_table_contains (self->claims, &segment) &&
           ecfs_reader_covering_locked (self, segment, -1, 0, n_blocks) == NULL;
}

void ecfs_reader_refused_locked (EcfsReader *self, EcfsPeerWish wish)
{
    (void) range_locked (self, &self->refused_at[wish]);
    self->refused_open = self->n_open;
}

bool ecfs_reader_is_refused_locked (const EcfsReader *self, EcfsPeerWish wish)
{
    uint64_t first;
    (void) range_locked (self, &first);
    return self->refused_at[wish] == first && (wish != ECFS_PEER_SHARE || self->n_open < 2 * self->refused_open);
}

/* One that costs nobody a question; else any, so that two readers seldom claim the same. False: there is none. */
static bool choose_locked (const EcfsReader *self, uint64_t *ret_segment) ECFS_REQUIRES (self->lock)
{
    uint64_t first, end = range_locked (self, &first);
    for (uint64_t segment = first; segment < end; segment++) {
        const EcfsCacheCell cell = {.object = self->params.object, .segment = segment};
        *ret_segment = segment;
        if (is_open_locked (self, segment) && ecfs_peers_keeps (self->params.peers, &cell))
            return true;
    }
    if (end <= first || ecfs_reader_is_refused_locked (self, ECFS_PEER_SHARE))
        return false;
    uint64_t n = end - first, from = (uint64_t) g_random_int_range (0, (gint32) n);
    for (uint64_t i = 0; i < n; i++) {
        *ret_segment = first + (from + i) % n;
        if (is_open_locked (self, *ret_segment))
            return true;
    }
    return false;
}

static bool begin_one_locked (EcfsReader *self, GPtrArray *finished) ECFS_REQUIRES (self->lock)
{
    uint64_t segment;
    const EcfsLayout *layout = &self->params.layout;
    if (!choose_locked (self, &segment))
        return false;
    uint32_t n_blocks = ecfs_layout_n_blocks (layout, segment);
    if (!ecfs_transfer_try_acquire (self->params.transfer, ecfs_fetch_bytes (self, segment, true, 0, n_blocks)))
        return false;
    g_hash_table_add (self->claims, g_memdup2 (&segment, sizeof segment));
    ecfs_reader_begin_locked (self, segment, ECFS_PEER_SHARE, finished);
    return true;
}

/* Whether it comes from endpoints, or is to. */
static bool is_coming (const EcfsFetch *fetch)
{
    return fetch->state == FETCH_RUNNING || (fetch->state == FETCH_LOOKING && fetch->wish == ECFS_PEER_SHARE);
}

void ecfs_reader_note_given_locked (EcfsReader *self, int64_t took_us)
{
    unsigned most = (unsigned) (MOST_BYTES / self->params.layout.segment_bytes);
    if (took_us < SOON_US && self->n_at_once < most)
        self->n_at_once++;
    else if (took_us > LATE_US && self->n_at_once > 1)
        self->n_at_once--;
}

void ecfs_reader_note_sign_locked (EcfsReader *self, int64_t now_us)
{
    if (!ecfs_reader_is_shared_locked (self, now_us))
        self->shared_us = now_us;
    self->sign_us = MAX (self->sign_us, now_us);
}

bool ecfs_reader_is_shared_locked (const EcfsReader *self, int64_t now_us)
{
    return self->sign_us != 0 && now_us - self->sign_us <= SIGN_US;
}

unsigned ecfs_reader_window_locked (const EcfsReader *self)
{
    return ecfs_reader_is_shared_locked (self, self->asked_us) ? MIN (self->window, self->n_at_once) : self->window;
}

void ecfs_reader_share_locked (EcfsReader *self, int64_t now_us, GPtrArray *finished)
{
    unsigned n = 0;
    uint64_t first;
    if (!ecfs_reader_has_peers (self) || self->closed || (self->window == 0 && self->run_from != 0))
        return;
    for (guint i = 0; i < self->fetches->len; i++) {
        const EcfsFetch *fetch = g_ptr_array_index (self->fetches, i);
        ecfs_mutex_is_held (&fetch->reader->lock);
        n += is_coming (fetch);
        if (ecfs_fetch_is_shared_locked (fetch))
            ecfs_reader_note_sign_locked (self, now_us);
    }
    if (!ecfs_reader_is_shared_locked (self, now_us))
        return;
    self->n_open = ecfs_open_window (now_us - self->shared_us, self->n_at_once, self->params.layout.segment_bytes);
    (void) range_locked (self, &first);
    g_hash_table_foreach_remove (self->claims, is_passed, &first); /* how many these were does not matter */
    while (n < self->n_at_once && begin_one_locked (self, finished))
        n++;
}
