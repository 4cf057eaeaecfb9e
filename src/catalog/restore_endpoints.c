/* Endpoints, as a journal tells of them and as those who read it call them. */
#include "catalog/restore_priv.h"

/* A name that no other endpoint has. */
static char *free_name (EcfsCatalog *catalog, const char *wanted, int64_t id)
{
    int64_t other;
    g_autofree char *name = g_strdup (wanted);
    for (unsigned i = 2; QUERY_NUMBER (catalog, ENDPOINT_NAMED, &other, NULL, TEXT (name)) == 1 && other != id; i++) {
        g_free (name);
        name = g_strdup_printf ("%s-%u", wanted, i);
    }
    return g_steal_pointer (&name);
}

static bool put_endpoint (EcfsCatalog *catalog, const EcfsUuid *uuid, const char *name, EcfsEndpointState state,
                          int64_t *ret_id, GError **error)
{
    int found = QUERY_NUMBER (catalog, ENDPOINT_BY_UUID, ret_id, error, UUID (uuid));
    if (found < 0)
        return false;
    g_autofree char *own = free_name (catalog, name, found == 1 ? *ret_id : 0);
    ecfs_journal_put_endpoint (catalog->record, uuid, state, own);
    if (found == 0) {
        if (!EXEC_NOW (catalog, ENDPOINT_INSERT, error, UUID (uuid), TEXT (own), INT (state)))
            return false;
        *ret_id = ecfs_inserted (catalog);
        return true;
    }
    return EXEC (catalog, ENDPOINT_RENAME, error, INT (*ret_id), TEXT (own)) &&
           EXEC (catalog, ENDPOINT_SET_STATE, error, INT (*ret_id), INT (state));
}

bool ecfs_restore_endpoint_item (EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    int64_t id;
    g_autofree char *name = ecfs_restore_text (item->name);
    bool possible = item->state <= ECFS_ENDPOINT_FAILED || item->state == ECFS_ENDPOINT_DISTRUSTED;
    if (!possible || !g_utf8_validate (name, -1, NULL))
        return ecfs_restore_refuse (error, "an endpoint's name or state is impossible");
    return put_endpoint (self->catalog, &item->uuid, name, (EcfsEndpointState) item->state, &id, error);
}

bool ecfs_restore_removed_item (EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    int64_t id;
    g_autofree char *name = ecfs_restore_text (item->name);
    EcfsCatalog *catalog = self->catalog;
    if (!g_utf8_validate (name, -1, NULL))
        return ecfs_restore_refuse (error, "an endpoint's name is impossible");
    int found = QUERY_NUMBER (catalog, ENDPOINT_BY_UUID, &id, error, UUID (&item->uuid));
    if (found == 0 && EXEC_NOW (catalog, ENDPOINT_INSERT, error, UUID (&item->uuid), TEXT (name), INT (0))) {
        id = ecfs_inserted (catalog);
        found = 1;
    }
    if (found != 1)
        return false;
    g_autofree char *own = free_name (catalog, name, id);
    ecfs_journal_put_endpoint_removed (catalog->record, &item->uuid, own);
    return ecfs_endpoint_row_retire (catalog, id, own, error);
}

static bool put_named (EcfsCatalog *catalog, const EcfsUuid *uuid, const char *name, int64_t *ret_id,
                       EcfsEndpointState *ret_state, GError **error)
{
    int64_t other;
    int found = QUERY_NUMBER (catalog, ENDPOINT_NAMED, &other, error, TEXT (name));
    if (found < 0)
        return false;
    if (found == 1) {
        EcfsUuid theirs;
        g_autofree char *away = g_strconcat (name, "-before", NULL);
        g_autofree char *free = free_name (catalog, away, 0);
        if (!ecfs_endpoint_uuid (catalog, other, &theirs, error) ||
            (!ecfs_uuid_equal (&theirs, uuid) && !EXEC (catalog, ENDPOINT_RENAME, error, INT (other), TEXT (free))))
            return false;
    }
    int64_t id, state;
    found = QUERY_NUMBER (catalog, ENDPOINT_BY_UUID, &id, error, UUID (uuid));
    if (found < 0 || (found == 1 && QUERY_NUMBER (catalog, ENDPOINT_STATE, &state, error, INT (id)) != 1))
        return false;
    /* Somebody has decided these; one that is given again is neither given up nor in the middle of being emptied. */
    bool keeps = found == 1 && (state == ECFS_ENDPOINT_READONLY || state == ECFS_ENDPOINT_DISTRUSTED);
    *ret_state = keeps ? (EcfsEndpointState) state : ECFS_ENDPOINT_ACTIVE;
    return put_endpoint (catalog, uuid, name, *ret_state, ret_id, error);
}

bool ecfs_restore_endpoint (EcfsRestore *self, const EcfsUuid *uuid, const char *name, int64_t *ret_id,
                            EcfsEndpointState *ret_state, GError **error)
{
    return CHANGE (self->catalog, error, put_named (self->catalog, uuid, name, ret_id, ret_state, error));
}

bool ecfs_restore_seed (EcfsRestore *self, const EcfsEndpointRow *row, GError **error)
{
    return CHANGE (self->catalog, error,
                   EXEC (self->catalog, ENDPOINT_SEED, error, INT (row->id), UUID (&row->uuid), TEXT (row->name),
                         INT (row->state)));
}
