/* Codes: of inodes, their parameters, and which are in use. */
#include "catalog/namespace_priv.h"

#include <sys/stat.h>

static bool get_code (EcfsCatalog *self, uint64_t ino, Inode *ret_holder, GError **error)
{
    Inode inode;
    if (!ecfs_inode_get (self, ino, &inode, error))
        return false;
    if (S_ISDIR (inode.attr.mode))
        return ecfs_code_above (self, &inode, ret_holder, error);
    *ret_holder = inode;
    return true;
}

bool ecfs_catalog_get_code (EcfsCatalog *self, uint64_t ino, char **ret_code, GError **error)
{
    Inode inode;
    if (!READ (self, get_code (self, ino, &inode, error)))
        return false;
    *ret_code = inode.has_code ? g_strdup (inode.code) : NULL;
    return true;
}

static bool set_code (EcfsCatalog *self, uint64_t ino, const char *code, GError **error)
{
    Inode inode;
    size_t size = code == NULL ? 0 : strlen (code);
    if (code != NULL && (size == 0 || size > ECFS_CODE_MAX))
        return ecfs_fail (error, EINVAL, "a code has 1 to %d bytes, not %zu", ECFS_CODE_MAX, size);
    if (!ecfs_inode_get (self, ino, &inode, error))
        return false;
    inode.has_code = code != NULL;
    if (code != NULL)
        memcpy (inode.code, code, size + 1);
    inode.attr.ctime_ns = ecfs_real_ns ();
    return ecfs_inode_update (self, &inode, error);
}

bool ecfs_catalog_set_code (EcfsCatalog *self, uint64_t ino, const char *code, GError **error)
{
    return CHANGE (self, error, set_code (self, ino, code, error));
}

/* Parameters: what makes an object readable whatever a later ecfs would choose for its code. */

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
    return g_bytes_new (ecfs_column_blob (query, 0), ecfs_column_size (query, 0));
}

GBytes *ecfs_catalog_code (EcfsCatalog *self, const char *code, GError **error)
{
    return READ (self, get (self, code, error));
}

/* Codes in use */

static GPtrArray *list_codes (EcfsCatalog *self, GError **error)
{
    g_autoptr (GPtrArray) codes = g_ptr_array_new_with_free_func (g_free);
    autoquery *query = ecfs_query (self, STMT_CODES_IN_USE, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1)
        g_ptr_array_add (codes, g_strdup (ecfs_column_text (query, 0)));
    return found < 0 ? NULL : g_steal_pointer (&codes);
}

GPtrArray *ecfs_catalog_codes_in_use (EcfsCatalog *self, GError **error)
{
    return READ (self, list_codes (self, error));
}

static GArray *list_directories (EcfsCatalog *self, GError **error)
{
    g_autoptr (GArray) directories = g_array_new (FALSE, FALSE, sizeof (uint64_t));
    autoquery *query = ecfs_query (self, STMT_DIRECTORIES_WITH_CODES, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        uint64_t ino = (uint64_t) ecfs_column_number (query, 0);
        g_array_append_val (directories, ino);
    }
    return found < 0 ? NULL : g_steal_pointer (&directories);
}

GArray *ecfs_catalog_directories_with_codes (EcfsCatalog *self, GError **error)
{
    return READ (self, list_directories (self, error));
}
