/* Parameters of codes: what makes an object readable whatever a later ecfs would choose for its code. */
#include "catalog/db.h"

static int has_code (EcfsCatalog *self, const char *code, GError **error)
{
    autoquery *query = QUERY (self, CODE_GET, error, TEXT (code));
    return query == NULL ? -1 : ecfs_query_step (self, query, error);
}

static bool keep (EcfsCatalog *self, const char *code, const uint8_t *parameters, size_t size, GError **error)
{
    if (*code == '\0' || strlen (code) > ECFS_CODE_MAX || size == 0 || size > ECFS_PARAMETERS_MAX)
        return ecfs_fail (error, EINVAL, "a code's text or parameters are impossible");
    int has = has_code (self, code, error);
    if (has != 0)
        return has == 1;
    ecfs_journal_put_code (self->record, code, parameters, size);
    return EXEC (self, CODE_INSERT, error, TEXT (code), BLOB (parameters, size));
}

bool ecfs_catalog_keep_code (EcfsCatalog *self, const char *code, const uint8_t *parameters, size_t size,
                             GError **error)
{
    int has = READ (self, has_code (self, code, error));
    if (has != 0) /* nearly always */
        return has == 1;
    return CHANGE (self, error, keep (self, code, parameters, size, error));
}

static GBytes *get (EcfsCatalog *self, const char *code, GError **error)
{
    autoquery *query = QUERY (self, CODE_GET, error, TEXT (code));
    int found = ecfs_query_step (self, query, error);
    if (found == 0)
        told (ecfs_fail (error, ENOENT, "catalog %s: code %s is not in it", self->path, code));
    if (found != 1)
        return NULL;
    return g_bytes_new (sqlite3_column_blob (query, 0), (gsize) sqlite3_column_bytes (query, 0));
}

GBytes *ecfs_catalog_code (EcfsCatalog *self, const char *code, GError **error)
{
    return READ (self, get (self, code, error));
}
