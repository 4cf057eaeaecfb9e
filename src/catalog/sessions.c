/* The times that the archive was opened to be changed: markers on the endpoints tell of them. */
#include "catalog/db.h"

#define KEPT 1000

static bool begin_session (EcfsCatalog *self, uint64_t number, const EcfsUuid *uuid, GError **error)
{
    return EXEC (self, SESSION_INSERT, error, INT (number), UUID (uuid)) &&
           EXEC (self, SESSION_FORGET, error, INT ((int64_t) number - KEPT));
}

bool ecfs_catalog_session_begin (EcfsCatalog *self, uint64_t number, const EcfsUuid *uuid, GError **error)
{
    if (number == 0 || number > INT64_MAX)
        return ecfs_fail (error, EOVERFLOW, "%" PRIu64 " is not the number of a session", number);
    return CHANGE_DURABLE (self, error, begin_session (self, number, uuid, error));
}

bool ecfs_catalog_session_last (EcfsCatalog *self, uint64_t *ret_number, GError **error)
{
    int64_t number = 0;
    if (READ (self, ecfs_query_number (self, STMT_SESSION_LAST, NULL, 0, &number, error)) < 0)
        return false;
    *ret_number = (uint64_t) number;
    return true;
}

static bool find_session (EcfsCatalog *self, uint64_t number, const EcfsUuid *uuid, bool *ret_known, GError **error)
{
    int64_t first = 0;
    autoquery *query = QUERY (self, SESSION_FIND, error, INT ((int64_t) number), UUID (uuid));
    int found = ecfs_query_step (self, query, error);
    if (found < 0 || ecfs_query_number (self, STMT_SESSION_FIRST, NULL, 0, &first, error) < 0)
        return false;
    *ret_known = found == 1 || (int64_t) number < first;
    return true;
}

bool ecfs_catalog_session_known (EcfsCatalog *self, uint64_t number, const EcfsUuid *uuid, bool *ret_known,
                                 GError **error)
{
    *ret_known = false;
    return number > INT64_MAX || READ (self, find_session (self, number, uuid, ret_known, error));
}
