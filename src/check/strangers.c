/* Stripes that are at endpoints and not in the objects that were looked at: which of them does the catalog not know? */
#include "check/check.h"

#define DELETIONS_AT_ONCE 1000
#define ALL_NS            (-G_GINT64_CONSTANT (3600000000000)) /* whatever this process takes for now */
#define CONFIRMED         1000 /* so many of a batch are asked for once more; the rest was not just being deleted */
/* … and for so long in all: who makes names up, and takes its time to say that nothing is there, holds up nobody. */
#define ASKED_US (5 * G_USEC_PER_SEC)

static guint stranger_hash (gconstpointer key)
{
    const EcfsStranger *self = key;
    return ecfs_uuid_hash (&self->object) ^ (guint) self->instance;
}

static gboolean stranger_same (gconstpointer a, gconstpointer b)
{
    const EcfsStranger *left = a, *right = b;
    return left->position == right->position && left->index == right->index && left->instance == right->instance &&
           ecfs_uuid_equal (&left->object, &right->object);
}

/* Takes out what waits for deletion at one endpoint. */
static bool strike_deletions (const EcfsCheckBatch *batch, size_t position, GHashTable *strangers, GError **error)
{
    static const EcfsDeletionWaits all = {.removed_ns = ALL_NS, .exchanged_ns = ALL_NS, .marked = true};
    EcfsDeletion last;
    EcfsCatalog *catalog = ecfs_archive_catalog (batch->archive);
    int64_t endpoint = ecfs_archive_endpoint (batch->archive, position)->id;
    for (const EcfsDeletion *after = NULL; batch->tick (batch->user); after = &last) {
        g_autoptr (GArray) some = ecfs_catalog_deletions (catalog, endpoint, &all, after, DELETIONS_AT_ONCE, error);
        if (some == NULL || some->len == 0)
            return some != NULL;
        for (guint i = 0; i < some->len; i++) {
            last = g_array_index (some, EcfsDeletion, i);
            const EcfsStranger key = {.position = position,
                                      .object = last.object,
                                      .index = last.stripe.index,
                                      .instance = last.stripe.instance};
            (void) g_hash_table_remove (strangers, &key);
        }
    }
    return false;
}

static bool is_known (const EcfsCheckBatch *batch, const EcfsStranger *stranger, bool *ret_known, GError **error)
{
    int64_t endpoint = ecfs_archive_endpoint (batch->archive, stranger->position)->id;
    const EcfsStripeRow stripe = {.index = stranger->index, .instance = stranger->instance, .endpoint = endpoint};
    return ecfs_catalog_stripe_known (ecfs_archive_catalog (batch->archive), &stranger->object, &stripe, ret_known,
                                      error);
}

static bool is_there (EcfsCheckBatch *batch, const EcfsStranger *stranger)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    uint64_t size;
    int64_t begun_us = ecfs_now_us ();
    ecfs_stripe_name (&stranger->object, stranger->index, stranger->instance, name);
    bool there = ecfs_endpoint_size_wait (ecfs_archive_endpoint (batch->archive, stranger->position)->endpoint, name,
                                          &size, NULL);
    batch->asked_us += ecfs_now_us () - begun_us;
    return there;
}

/* A stripe is announced, then an object has it, then it waits for deletion, then it is gone: asked in this order. */
bool ecfs_check_strangers (EcfsCheckBatch *batch, GArray *strangers, GError **error)
{
    g_autoptr (GHashTable) left = g_hash_table_new (stranger_hash, stranger_same);
    g_autoptr (GArray) kept = g_array_new (FALSE, FALSE, sizeof (EcfsStranger));
    g_autofree bool *has_some = g_new0 (bool, ecfs_archive_n_endpoints (batch->archive) + 1);
    for (guint i = 0; i < strangers->len; i++) {
        EcfsStranger *stranger = &g_array_index (strangers, EcfsStranger, i);
        bool known;
        if (!batch->tick (batch->user) || !is_known (batch, stranger, &known, error))
            return false;
        if (!known)
            (void) g_hash_table_add (left, stranger);
        has_some[stranger->position] = has_some[stranger->position] || !known;
    }
    for (size_t i = 0; i < ecfs_archive_n_endpoints (batch->archive); i++)
        if (has_some[i] && !strike_deletions (batch, i, left, error))
            return false;
    for (guint i = 0; i < strangers->len; i++) {
        EcfsStranger *stranger = &g_array_index (strangers, EcfsStranger, i);
        if (!batch->tick (batch->user))
            return false;
        if (!g_hash_table_contains (left, stranger))
            continue;
        if (batch->n_confirmed >= CONFIRMED || batch->asked_us >= ASKED_US || is_there (batch, stranger)) {
            g_array_append_val (kept, *stranger);
            batch->n_confirmed++;
        }
    }
    g_array_set_size (strangers, 0);
    g_array_append_vals (strangers, kept->data, kept->len);
    return true;
}
