#include "locate/locate.h"

#include "locate/locate_priv.h"

#include <string.h>

void ecfs_locate_free (EcfsLocate *self)
{
    if (self != NULL)
        self->ops->free (self);
}

bool ecfs_locate_announce (EcfsLocate *self, const char *address, unsigned ttl_s, int64_t deadline_us, GError **error)
{
    return self->ops->announce (self, address, ttl_s, deadline_us, error);
}

bool ecfs_locate_withdraw (EcfsLocate *self, const char *address, int64_t deadline_us, GError **error)
{
    return self->ops->announce (self, address, 0, deadline_us, error);
}

GPtrArray *ecfs_locate_find (EcfsLocate *self, unsigned most, int64_t deadline_us, GError **error)
{
    return self->ops->find (self, most, deadline_us, error);
}

/* The list */

typedef struct List {
    EcfsLocate base;
    char *text;
} List;

static bool list_announce (EcfsLocate *base, const char *address, unsigned ttl_s, int64_t deadline_us, GError **error)
{
    (void) base, (void) address, (void) ttl_s, (void) deadline_us, (void) error; /* who reads the list knows */
    return true;
}

static GPtrArray *list_find (EcfsLocate *base, unsigned most, int64_t deadline_us, GError **error)
{
    List *self = (List *) base;
    (void) deadline_us, (void) error;
    GPtrArray *found = g_ptr_array_new_with_free_func (g_free);
    g_auto (GStrv) parts = self->text == NULL ? NULL : g_strsplit (self->text, ",", -1);
    for (guint i = 0; parts != NULL && parts[i] != NULL && found->len < most; i++) {
        g_strstrip (parts[i]);
        if (parts[i][0] != '\0' && !g_ptr_array_find_with_equal_func (found, parts[i], g_str_equal, NULL))
            g_ptr_array_add (found, g_strdup (parts[i]));
    }
    return found;
}

static void list_free (EcfsLocate *base)
{
    List *self = (List *) base;
    g_free (self->text);
    g_free (self);
}

char *ecfs_locate_list_split (const char *list, unsigned *ret_ways)
{
    GString *left = g_string_new (NULL);
    g_auto (GStrv) parts = g_strsplit (list, ",", -1);
    *ret_ways = 0;
    for (guint i = 0; parts[i] != NULL; i++) {
        if (strcmp (g_strstrip (parts[i]), "dht") == 0)
            *ret_ways |= ECFS_LOCATE_BY_DHT;
        else if (strcmp (parts[i], "catalog") == 0)
            *ret_ways |= ECFS_LOCATE_BY_CATALOG;
        else
            g_string_append_printf (left, "%s%s", left->len > 0 ? ", " : "", parts[i]);
    }
    bool any = left->len > 0;
    char *text = g_string_free (left, !any);
    return any ? text : NULL;
}

EcfsLocate *ecfs_locate_list_new (const char *list)
{
    static const EcfsLocateOps ops = {list_announce, list_find, list_free};
    List *self = g_new0 (List, 1);
    self->base.ops = &ops;
    self->text = g_strdup (list);
    return &self->base;
}
