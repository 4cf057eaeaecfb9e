/* When an object may be repaired again. */
#include "upkeep/retries.h"

#define FIRST_US (5 * G_USEC_PER_SEC)
#define MOST_US  (300 * G_USEC_PER_SEC)
#define SHARE    20                      /* a try that failed pauses for so many times as long as it took, at least */
#define FREE     2                       /* what is rebuilt so often is lost by chance, */
#define SOON_US  (2 * (int64_t) MOST_US) /* … or if it was not for so long */

typedef struct Retry {
    unsigned n;
    int64_t last_us, not_before_us;
} Retry;

struct EcfsRetries {
    GHashTable *failed; /* int64_t of an object → Retry */
    GHashTable *rebuilt;
};

static GHashTable *new_table (void)
{
    return g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, g_free);
}

EcfsRetries *ecfs_retries_new (void)
{
    EcfsRetries *self = g_new (EcfsRetries, 1);
    *self = (EcfsRetries){.failed = new_table (), .rebuilt = new_table ()};
    return self;
}

void ecfs_retries_free (EcfsRetries *self)
{
    if (self == NULL)
        return;
    g_hash_table_unref (self->failed);
    g_hash_table_unref (self->rebuilt);
    g_free (self);
}

static bool is_due (GHashTable *table, int64_t object, int64_t now_us)
{
    const Retry *retry = g_hash_table_lookup (table, &object);
    return retry == NULL || retry->not_before_us <= now_us;
}

bool ecfs_retries_is_due (const EcfsRetries *self, int64_t object, int64_t now_us)
{
    return is_due (self->failed, object, now_us) && is_due (self->rebuilt, object, now_us);
}

bool ecfs_retries_has_failed (const EcfsRetries *self, int64_t object)
{
    return g_hash_table_contains (self->failed, &object);
}

unsigned ecfs_retries_n_failing (const EcfsRetries *self)
{
    return g_hash_table_size (self->failed);
}

static Retry *get (GHashTable *table, int64_t object)
{
    Retry *retry = g_hash_table_lookup (table, &object);
    if (retry == NULL) {
        retry = g_new0 (Retry, 1);
        g_hash_table_insert (table, g_memdup2 (&object, sizeof object), retry);
    }
    return retry;
}

static int64_t pause_after (unsigned n)
{
    return MIN ((int64_t) FIRST_US << MIN (n, 10), (int64_t) MOST_US);
}

unsigned ecfs_retries_failed (EcfsRetries *self, int64_t object, int64_t began_us, int64_t now_us)
{
    Retry *retry = get (self->failed, object);
    retry->not_before_us = now_us + MAX (pause_after (retry->n), SHARE * (now_us - began_us));
    return ++retry->n;
}

static bool is_long_ago (const Retry *retry, int64_t now_us)
{
    return now_us - retry->last_us > SOON_US;
}

unsigned ecfs_retries_rebuilt (EcfsRetries *self, int64_t object, int64_t now_us)
{
    Retry *retry = get (self->rebuilt, object);
    if (is_long_ago (retry, now_us))
        retry->n = 0;
    retry->n++;
    retry->last_us = now_us;
    retry->not_before_us = now_us + (retry->n <= FREE ? 0 : pause_after (retry->n - FREE - 1));
    return retry->n;
}

void ecfs_retries_remove (EcfsRetries *self, int64_t object)
{
    g_hash_table_remove (self->failed, &object);
}

void ecfs_retries_reset (EcfsRetries *self)
{
    g_hash_table_remove_all (self->failed);
}

static gboolean is_forgotten (void *object, void *retry, void *now_us)
{
    (void) object;
    return is_long_ago (retry, *(const int64_t *) now_us);
}

void ecfs_retries_sweep (EcfsRetries *self, GHRFunc is_over, void *user, int64_t now_us)
{
    g_hash_table_foreach_remove (self->failed, is_over, user);
    g_hash_table_foreach_remove (self->rebuilt, is_forgotten, &now_us);
}
