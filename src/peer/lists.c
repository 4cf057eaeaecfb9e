#include "peer/lists.h"

#include "peer/peer.h"

#include <string.h>

#define MOST_LISTS 4096
#define KEPT_US    (60 * G_USEC_PER_SEC) /* since it was asked for last */

typedef struct List {
    EcfsCacheCell cell; /* first: the key */
    GList link;         /* in used */
    int64_t used_us;
    bool has_source; /* the first has it, or was told to fetch it from endpoints */
    unsigned n;
    EcfsUuid ids[ECFS_PEERS_MAX];
} List;

struct EcfsPeerLists {
    GHashTable *lists; /* EcfsCacheCell → List, the same */
    GQueue used;       /* the same, that which was asked for last at the tail */
};

static guint cell_hash (gconstpointer key)
{
    guint hash;
    const EcfsCacheCell *cell = key;
    memcpy (&hash, cell->object.bytes + 8, sizeof hash);
    return hash ^ (guint) (cell->segment * 2654435761u);
}

static gboolean cell_equal (gconstpointer a, gconstpointer b)
{
    const EcfsCacheCell *x = a, *y = b;
    return x->segment == y->segment && ecfs_uuid_equal (&x->object, &y->object);
}

EcfsPeerLists *ecfs_peer_lists_new (void)
{
    EcfsPeerLists *self = g_new0 (EcfsPeerLists, 1);
    self->lists = g_hash_table_new_full (cell_hash, cell_equal, NULL, g_free);
    return self;
}

void ecfs_peer_lists_free (EcfsPeerLists *self)
{
    if (self == NULL)
        return;
    g_hash_table_unref (self->lists);
    g_free (self);
}

/* Where there are too many, the one that nobody has asked for for the longest goes. */
static List *list_of (EcfsPeerLists *self, const EcfsCacheCell *cell, int64_t now_us)
{
    int64_t before_us = now_us - KEPT_US;
    List *list = g_hash_table_lookup (self->lists, cell);
    if (list == NULL && g_hash_table_size (self->lists) >= MOST_LISTS) {
        const List *oldest = g_queue_pop_head_link (&self->used)->data;
        g_hash_table_remove (self->lists, &oldest->cell);
    }
    if (list == NULL) {
        list = g_new0 (List, 1);
        list->cell = *cell;
        list->link.data = list;
        g_hash_table_insert (self->lists, list, list);
    } else {
        g_queue_unlink (&self->used, &list->link);
        list->n = list->used_us < before_us ? 0 : list->n; /* who had it then may not any more */
    }
    list->has_source = list->has_source && list->n > 0;
    g_queue_push_tail_link (&self->used, &list->link);
    list->used_us = now_us;
    return list;
}

static int place_of (const List *list, const EcfsUuid *id)
{
    for (unsigned i = 0; i < list->n; i++)
        if (ecfs_uuid_equal (&list->ids[i], id))
            return (int) i;
    return -1;
}

static void strike (List *list, const EcfsUuid *id)
{
    int place = ecfs_uuid_is_nil (id) ? -1 : place_of (list, id);
    if (place < 0)
        return;
    list->n--;
    list->has_source = list->has_source && place > 0;
    memmove (list->ids + place, list->ids + place + 1, (list->n - (unsigned) place) * sizeof *list->ids);
}

/* It may be on the list already. */
static void make_source (List *list, const EcfsUuid *id)
{
    strike (list, id);
    list->n = MIN (list->n, ECFS_PEERS_MAX - 1);
    memmove (list->ids + 1, list->ids, list->n * sizeof *list->ids);
    list->ids[0] = *id;
    list->n++;
    list->has_source = true;
}

void ecfs_peer_lists_has (EcfsPeerLists *self, const EcfsCacheCell *cell, const EcfsUuid *id, int64_t now_us)
{
    List *list = list_of (self, cell, now_us);
    if (!list->has_source)
        make_source (list, id);
}

static bool ask (List *list, const EcfsUuid *asker, EcfsUuid *ret_from)
{
    bool is_listed = !ecfs_uuid_is_nil (asker);
    int place = is_listed ? place_of (list, asker) : (int) list->n;
    if (place < 0)
        place = (int) list->n;
    if (is_listed && place == (int) list->n && list->n < ECFS_PEERS_MAX)
        list->ids[list->n++] = *asker;
    if (place == 0) {
        list->has_source = list->n > 0;
        return false;
    }
    *ret_from = list->ids[(place - 1) / ECFS_PEER_FAN_OUT];
    return true;
}

bool ecfs_peer_lists_ask (EcfsPeerLists *self, const EcfsCacheCell *cell, const EcfsUuid *asker,
                          const EcfsUuid *without, int64_t now_us, EcfsUuid *ret_from)
{
    List *list = list_of (self, cell, now_us);
    strike (list, without);
    return ask (list, asker, ret_from);
}

bool ecfs_peer_lists_join (EcfsPeerLists *self, const EcfsCacheCell *cell, const EcfsUuid *asker,
                           const EcfsUuid *without, int64_t now_us, EcfsUuid *ret_from)
{
    List *list = list_of (self, cell, now_us);
    strike (list, without);
    if (list->n > 0 && ecfs_uuid_equal (&list->ids[0], asker))
        list->has_source = false; /* so it has it no more */
    if (list->has_source)
        return ask (list, asker, ret_from);
    strike (list, asker); /* who only hopes would be sent to others that do, and they to it */
    return false;
}

bool ecfs_peer_lists_claim (EcfsPeerLists *self, const EcfsCacheCell *cell, const EcfsUuid *asker, int64_t now_us,
                            EcfsUuid *ret_from)
{
    List *list = list_of (self, cell, now_us);
    if (!list->has_source)
        make_source (list, asker);
    *ret_from = list->ids[0];
    return ecfs_uuid_equal (ret_from, asker);
}

unsigned ecfs_peer_lists_n (const EcfsPeerLists *self)
{
    return g_hash_table_size (self->lists);
}
