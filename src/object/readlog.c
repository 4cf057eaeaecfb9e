#include "object/readlog.h"

#include "util/lock.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

typedef struct Episode {
    EcfsErasure erasure;
    bool begin_told, end_told;
} Episode;

struct EcfsReadLog {
    EcfsMutex lock;
    GQueue episodes; /* of Episode, the oldest first; guarded by lock */
    atomic_ullong segments, decoded, degraded, received_bytes, hedged_bytes, cancelled, cached, cached_bytes, erasures;
};

const char *ecfs_erased_word (EcfsErasedWhy why)
{
    static const char *const words[] = {[ECFS_ERASED_NOT] = "not",
                                        [ECFS_ERASED_STALLED] = "stalled",
                                        [ECFS_ERASED_LATE] = "late",
                                        [ECFS_ERASED_DOWN] = "down",
                                        [ECFS_ERASED_DAMAGED] = "damaged"};
    return words[why];
}

static void episode_free (void *data)
{
    Episode *episode = data;
    g_free (episode->erasure.endpoint);
    g_free (episode);
}

static void erasure_free (void *data)
{
    EcfsErasure *erasure = data;
    g_free (erasure->endpoint);
    g_free (erasure);
}

EcfsReadLog *ecfs_read_log_new (void)
{
    EcfsReadLog *self = g_new0 (EcfsReadLog, 1);
    ecfs_mutex_init (&self->lock);
    g_queue_init (&self->episodes);
    return self;
}

void ecfs_read_log_free (EcfsReadLog *self)
{
    if (self == NULL)
        return;
    g_queue_clear_full (&self->episodes, episode_free);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

void ecfs_read_log_count (EcfsReadLog *self, const EcfsReadCounts *more)
{
    if (self == NULL)
        return;
    const struct {
        atomic_ullong *sum;
        uint64_t more;
    } counts[] = {
        {&self->segments, more->segments},
        {&self->decoded, more->decoded},
        {&self->degraded, more->degraded},
        {&self->received_bytes, more->received_bytes},
        {&self->hedged_bytes, more->hedged_bytes},
        {&self->cancelled, more->cancelled},
        {&self->cached, more->cached},
        {&self->cached_bytes, more->cached_bytes},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (counts); i++)
        if (counts[i].more > 0)
            atomic_fetch_add_explicit (counts[i].sum, counts[i].more, memory_order_relaxed);
}

static bool over (const Episode *episode, int64_t now_us)
{
    return now_us - episode->erasure.end_us > ECFS_ERASURE_QUIET_US;
}

/* The episode that a further segment belongs to, or NULL. */
static Episode *current_locked (EcfsReadLog *self, const char *endpoint, EcfsErasedWhy why, int64_t now_us)
    ECFS_REQUIRES (self->lock)
{
    for (GList *at = self->episodes.tail; at != NULL; at = at->prev) {
        Episode *episode = at->data;
        if (!over (episode, now_us) && !episode->end_told && episode->erasure.why == why &&
            strcmp (episode->erasure.endpoint, endpoint) == 0)
            return episode;
    }
    return NULL;
}

void ecfs_read_log_erased (EcfsReadLog *self, const char *endpoint, EcfsErasedWhy why, int64_t saved_us)
{
    if (self == NULL)
        return;
    int64_t now_us = g_get_real_time ();
    ecfs_mutex_lock (&self->lock);
    Episode *episode = current_locked (self, endpoint, why, now_us);
    if (episode == NULL) {
        episode = g_new0 (Episode, 1);
        episode->erasure = (EcfsErasure){.endpoint = g_strdup (endpoint), .why = why, .begin_us = now_us};
        g_queue_push_tail (&self->episodes, episode);
        atomic_fetch_add_explicit (&self->erasures, 1, memory_order_relaxed);
        if (self->episodes.length > ECFS_N_ERASURES)
            episode_free (g_queue_pop_head (&self->episodes));
    }
    episode->erasure.end_us = now_us;
    episode->erasure.n_segments++;
    episode->erasure.saved_us = MAX (episode->erasure.saved_us, saved_us);
    ecfs_mutex_unlock (&self->lock);
}

static char *begin_text (const EcfsErasure *erasure)
{
    return g_strdup_printf ("endpoint %s: treated as erased in reads: %s", erasure->endpoint,
                            ecfs_erased_word (erasure->why));
}

static char *end_text (const EcfsErasure *erasure)
{
    g_autofree char *saved = erasure->saved_us == 0 ? g_strdup ("")
                                                    : g_strdup_printf ("; one would have waited %.1f s more",
                                                                       (double) erasure->saved_us / 1e6);
    return g_strdup_printf ("endpoint %s: was treated as erased in reads for %.1f s: %s; segments=%" PRIu64 "%s",
                            erasure->endpoint, (double) (erasure->end_us - erasure->begin_us) / 1e6,
                            ecfs_erased_word (erasure->why), erasure->n_segments, saved);
}

void ecfs_read_log_tell (EcfsReadLog *self, bool all)
{
    g_autoptr (GPtrArray) texts = g_ptr_array_new_with_free_func (g_free);
    int64_t now_us = g_get_real_time ();
    ecfs_mutex_lock (&self->lock);
    for (GList *at = self->episodes.head; at != NULL; at = at->next) {
        Episode *episode = at->data;
        bool lasts = episode->erasure.why != ECFS_ERASED_LATE; /* these are many and short: told at the end only */
        if (!episode->begin_told && lasts)
            g_ptr_array_add (texts, begin_text (&episode->erasure));
        episode->begin_told = true;
        if (!episode->end_told && (all || over (episode, now_us))) {
            g_ptr_array_add (texts, end_text (&episode->erasure));
            episode->end_told = true;
        }
    }
    ecfs_mutex_unlock (&self->lock);
    for (guint i = 0; i < texts->len; i++)
        g_info ("%s", (const char *) g_ptr_array_index (texts, i));
}

void ecfs_read_log_counts (EcfsReadLog *self, EcfsReadCounts *ret_counts)
{
    *ret_counts = (EcfsReadCounts){.segments = atomic_load (&self->segments),
                                   .decoded = atomic_load (&self->decoded),
                                   .degraded = atomic_load (&self->degraded),
                                   .received_bytes = atomic_load (&self->received_bytes),
                                   .hedged_bytes = atomic_load (&self->hedged_bytes),
                                   .cancelled = atomic_load (&self->cancelled),
                                   .erasures = atomic_load (&self->erasures),
                                   .cached = atomic_load (&self->cached),
                                   .cached_bytes = atomic_load (&self->cached_bytes)};
}

GPtrArray *ecfs_read_log_erasures (EcfsReadLog *self)
{
    GPtrArray *copies = g_ptr_array_new_with_free_func (erasure_free);
    ecfs_mutex_lock (&self->lock);
    for (GList *at = self->episodes.head; at != NULL; at = at->next) {
        const Episode *episode = at->data;
        EcfsErasure *copy = g_memdup2 (&episode->erasure, sizeof episode->erasure);
        copy->endpoint = g_strdup (copy->endpoint);
        g_ptr_array_add (copies, copy);
    }
    ecfs_mutex_unlock (&self->lock);
    return copies;
}
