/*
 * Peers in a distributed hash table. The key at which they are is another one each day, so that who has once seen it
 * does not look on for ever. They are announced for the day that it is, around midnight for both, and looked for on the
 * days before and after, too: clocks may be wrong by a day.
 */
#include "locate/locate_priv.h"
#include "peer/peer_text.h"
#include "util/bytes.h"
#include "util/lock.h"

#include <inttypes.h>
#include <string.h>

#define FIRST      "ecfs peer 1"
#define DAY_S      86400
#define MIDNIGHT_S 600 /* before and after it: for so long who announces is not heard of again */
#define MOST_DAYS  3
#define MOST_TEXT  512
#define MOST_SEEN  1024

typedef struct ByDht {
    EcfsLocate base;
    EcfsDht *dht; /* borrowed */
    uint8_t secret[ECFS_KEY_BYTES];
    uint8_t seal[ECFS_KEY_BYTES];
    EcfsMutex lock;
    uint64_t counter; /* the last that was given; guarded by lock, as the next */
    GHashTable *seen; /* address → Seen: no older announcement counts again */
} ByDht;

typedef struct Seen {
    uint64_t counter;
    int64_t until_us; /* by our own clock, from when that counter was first seen */
} Seen;

char *ecfs_locate_announced_format (const EcfsLocateAnnounced *announced)
{
    return g_strdup_printf (FIRST "\n%" PRIu64 "\n%u\n%s\n", announced->counter, announced->ttl_s, announced->address);
}

bool ecfs_locate_announced_parse (const char *text, size_t size, EcfsLocateAnnounced *ret_announced)
{
    unsigned port;
    uint64_t counter, ttl_s;
    g_autofree char *host = NULL;
    if (size == 0 || size > MOST_TEXT || memchr (text, '\0', size) != NULL)
        return false;
    g_autofree char *all = g_strndup (text, size);
    g_auto (GStrv) lines = g_strsplit (all, "\n", 6);
    if (g_strv_length (lines) != 5 || strcmp (lines[0], FIRST) != 0 || lines[4][0] != '\0' ||
        !g_ascii_string_to_unsigned (lines[1], 10, 0, UINT64_MAX, &counter, NULL) ||
        !g_ascii_string_to_unsigned (lines[2], 10, 0, DAY_S, &ttl_s, NULL) ||
        !ecfs_peer_address_parse (lines[3], &host, &port))
        return false;
    *ret_announced =
        (EcfsLocateAnnounced){.counter = counter, .ttl_s = (unsigned) ttl_s, .address = g_strdup (lines[3])};
    return true;
}

/* The days from @around_s before now until after it. */
static unsigned days_of (int64_t around_s, int64_t days[MOST_DAYS])
{
    unsigned n = 0;
    int64_t now_s = g_get_real_time () / G_USEC_PER_SEC;
    for (int64_t day = (now_s - around_s) / DAY_S; day <= (now_s + around_s) / DAY_S && n < MOST_DAYS; day++)
        days[n++] = day;
    return n;
}

static void key_of (const ByDht *self, int64_t day, uint8_t ret_key[ECFS_LOCATE_KEY_BYTES])
{
    uint8_t salt[8];
    ecfs_put_le (salt, (uint64_t) day, sizeof salt);
    ecfs_dht_key (self->secret, sizeof self->secret, salt, sizeof salt, "ecfs locate peers", ret_key);
}

/* Counts if none that is newer was seen of that address; *announced is taken. */
static void take_locked (ByDht *self, EcfsLocateAnnounced *announced) ECFS_REQUIRES (self->lock)
{
    Seen *seen = g_hash_table_lookup (self->seen, announced->address);
    if (seen == NULL && g_hash_table_size (self->seen) < MOST_SEEN) {
        seen = g_new0 (Seen, 1);
        g_hash_table_insert (self->seen, g_strdup (announced->address), seen);
    }
    if (seen != NULL && announced->counter > seen->counter)
        *seen = (Seen){announced->counter, ecfs_now_us () + announced->ttl_s * (int64_t) G_USEC_PER_SEC};
    g_free (announced->address);
}

/* What was not sealed by one who has the key is passed over: anybody may put things there. */
static void take_all (ByDht *self, const uint8_t key[ECFS_LOCATE_KEY_BYTES], const GPtrArray *values)
{
    for (guint i = 0; i < values->len; i++) {
        size_t size;
        EcfsLocateAnnounced announced;
        const uint8_t *bytes = g_bytes_get_data (values->pdata[i], &size);
        GByteArray *text = ecfs_key_open (self->seal, key, ECFS_LOCATE_KEY_BYTES, bytes, size, NULL);
        if (text != NULL && ecfs_locate_announced_parse ((const char *) text->data, text->len, &announced)) {
            ecfs_mutex_lock (&self->lock);
            take_locked (self, &announced);
            ecfs_mutex_unlock (&self->lock);
        }
        g_clear_pointer (&text, g_byte_array_unref);
    }
}

static bool ask (ByDht *self, int64_t deadline_us, GError **error)
{
    int64_t days[MOST_DAYS];
    uint8_t keys[MOST_DAYS][ECFS_LOCATE_KEY_BYTES];
    EcfsDhtQuestion *questions[MOST_DAYS];
    bool good = false;
    unsigned n = days_of (DAY_S, days);
    for (unsigned i = 0; i < n; i++) {
        key_of (self, days[i], keys[i]);
        questions[i] = ecfs_dht_get (self->dht, keys[i], deadline_us);
    }
    for (unsigned i = 0; i < n; i++) {
        g_autoptr (GPtrArray) values = ecfs_dht_await (questions[i], deadline_us, good || i > 0 ? NULL : error);
        if (values == NULL)
            continue;
        take_all (self, keys[i], values);
        good = true;
    }
    if (good)
        g_clear_error (error);
    return good;
}

/* Announcing */

/* Above all that were given, also before this process began, and by a clock that was ahead then. */
static uint64_t next_counter (ByDht *self, const char *address)
{
    ecfs_mutex_lock (&self->lock);
    const Seen *seen = g_hash_table_lookup (self->seen, address);
    uint64_t before = MAX (self->counter, seen == NULL ? 0 : seen->counter);
    self->counter = MAX (before < UINT64_MAX ? before + 1 : before, (uint64_t) g_get_real_time ());
    uint64_t counter = self->counter;
    ecfs_mutex_unlock (&self->lock);
    return counter;
}

static bool by_dht_announce (EcfsLocate *base, const char *address, unsigned ttl_s, int64_t deadline_us, GError **error)
{
    ByDht *self = (ByDht *) base;
    int64_t days[MOST_DAYS], now_us = ecfs_now_us ();
    EcfsDhtQuestion *questions[MOST_DAYS];
    bool good = true;
    if (ttl_s > 0)
        (void) ask (self, now_us + (deadline_us - now_us) / 2, NULL); /* if nobody tells, our clock is all there is */
    const EcfsLocateAnnounced announced = {next_counter (self, address), ttl_s, (char *) address};
    g_autofree char *text = ecfs_locate_announced_format (&announced);
    unsigned n = days_of (MIDNIGHT_S, days);
    for (unsigned i = 0; i < n; i++) {
        uint8_t key[ECFS_LOCATE_KEY_BYTES];
        key_of (self, days[i], key);
        GByteArray *sealed = ecfs_key_seal (self->seal, key, sizeof key, text, strlen (text));
        questions[i] = ecfs_dht_put (self->dht, key, sealed->data, sealed->len, deadline_us);
        g_byte_array_unref (sealed);
    }
    for (unsigned i = 0; i < n; i++) {
        GPtrArray *none = ecfs_dht_await (questions[i], deadline_us, good ? error : NULL);
        good = good && none != NULL;
        g_clear_pointer (&none, g_ptr_array_unref);
    }
    return good;
}

/* Finding */

static GPtrArray *by_dht_find (EcfsLocate *base, unsigned most, int64_t deadline_us, GError **error)
{
    ByDht *self = (ByDht *) base;
    void *address, *value;
    GHashTableIter all;
    if (!ask (self, deadline_us, error))
        return NULL;
    int64_t now_us = ecfs_now_us ();
    GPtrArray *found = g_ptr_array_new_with_free_func (g_free);
    ecfs_mutex_lock (&self->lock);
    g_hash_table_iter_init (&all, self->seen);
    while (g_hash_table_iter_next (&all, &address, &value)) {
        const Seen *seen = value;
        if (seen->until_us > now_us && found->len < most)
            g_ptr_array_add (found, g_strdup (address));
        else if (seen->until_us + 2 * ECFS_LOCATE_TTL_S * G_USEC_PER_SEC < now_us)
            g_hash_table_iter_remove (&all); /* nodes have long forgotten it */
    }
    ecfs_mutex_unlock (&self->lock);
    return found;
}

static void by_dht_free (EcfsLocate *base)
{
    ByDht *self = (ByDht *) base;
    ecfs_key_forget (self->secret, sizeof self->secret);
    ecfs_key_forget (self->seal, sizeof self->seal);
    g_hash_table_unref (self->seen);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

EcfsLocate *ecfs_locate_dht_new (EcfsDht *dht, const uint8_t key[ECFS_KEY_BYTES])
{
    static const EcfsLocateOps ops = {by_dht_announce, by_dht_find, by_dht_free};
    ByDht *self = g_new0 (ByDht, 1);
    self->base.ops = &ops;
    self->dht = dht;
    memcpy (self->secret, key, sizeof self->secret);
    ecfs_key_derive (key, ECFS_KEY_BYTES, "", 0, "ecfs locate seal", self->seal);
    ecfs_mutex_init (&self->lock);
    self->seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
    return &self->base;
}
