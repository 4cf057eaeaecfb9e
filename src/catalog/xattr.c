/* Extended attributes. */
#include "catalog/namespace_priv.h"

#include <sys/xattr.h>

#define DEPTH_MAX 100000 /* of directories: deeper is a circle */
#define VALUE_MAX 65536  /* bytes of a value, as XATTR_SIZE_MAX */

static bool check_name (const char *name, GError **error)
{
    size_t size = strlen (name);
    if (size == 0 || size > ECFS_NAME_MAX)
        return ecfs_fail (error, ERANGE, "the name of an attribute has 1 to %d bytes, not %zu", ECFS_NAME_MAX, size);
    return true;
}

static bool touch (EcfsCatalog *self, Inode *inode, GError **error)
{
    inode->attr.ctime_ns = ecfs_real_ns ();
    return ecfs_inode_touch (self, inode, false, error);
}

static int has_xattr (EcfsCatalog *self, uint64_t ino, const char *name, GError **error)
{
    autoquery *query = QUERY (self, XATTR_GET, error, INT (ino), NAME (name));
    return ecfs_query_step (self, query, error);
}

static bool no_data (GError **error, uint64_t ino, const char *name)
{
    return ecfs_fail (error, ENODATA, "inode %" PRIu64 " has no attribute '%s'", ino, name);
}

static bool set (EcfsCatalog *self, uint64_t ino, const char *name, const void *value, size_t size, int flags,
                 GError **error)
{
    Inode inode;
    if (!check_name (name, error) || !ecfs_inode_get (self, ino, &inode, error))
        return false;
    if (size > VALUE_MAX)
        return ecfs_fail (error, E2BIG, "attribute '%s' has %zu bytes, %d are possible", name, size, VALUE_MAX);
    int has = flags == 0 ? 0 : has_xattr (self, ino, name, error);
    if (has < 0)
        return false;
    if (has == 1 && flags == XATTR_CREATE)
        return ecfs_fail (error, EEXIST, "inode %" PRIu64 " has attribute '%s'", ino, name);
    if (has == 0 && flags == XATTR_REPLACE)
        return no_data (error, ino, name);
    if (flags != 0 && flags != XATTR_CREATE && flags != XATTR_REPLACE)
        return ecfs_fail (error, EINVAL, "setxattr knows no flags %x", (unsigned) flags);
    ecfs_journal_put_xattr_set (self->record, ino, name, value, size);
    return EXEC (self, XATTR_SET, error, INT (ino), NAME (name), BLOB (value, size)) && touch (self, &inode, error);
}

bool ecfs_catalog_setxattr (EcfsCatalog *self, uint64_t ino, const char *name, const void *value, size_t size,
                            int flags, GError **error)
{
    return CHANGE (self, error, set (self, ino, name, value, size, flags, error));
}

static bool set_all (EcfsCatalog *self, const char *name, const EcfsXattrChange *changes, size_t n, GError **error)
{
    for (size_t i = 0; i < n; i++)
        if (!set (self, changes[i].ino, name, changes[i].value, strlen (changes[i].value), 0, error))
            return false;
    return true;
}

bool ecfs_catalog_setxattrs (EcfsCatalog *self, const char *name, const EcfsXattrChange *changes, size_t n,
                             GError **error)
{
    return CHANGE_DURABLE (self, error, set_all (self, name, changes, n, error));
}

static GByteArray *get (EcfsCatalog *self, uint64_t ino, const char *name, GError **error)
{
    Inode inode;
    if (!ecfs_inode_get (self, ino, &inode, error))
        return NULL;
    autoquery *query = QUERY (self, XATTR_GET, error, INT (ino), NAME (name));
    int found = ecfs_query_step (self, query, error);
    if (found == 0)
        told (no_data (error, ino, name));
    if (found != 1)
        return NULL;
    const void *value = ecfs_column_blob (query, 0);
    size_t size = ecfs_column_size (query, 0);
    if (size > VALUE_MAX) {
        told (ecfs_bad_row (error, "xattrs", (int64_t) ino, "a value is too large"));
        return NULL;
    }
    return g_byte_array_append (g_byte_array_new (), value, (guint) size);
}

GByteArray *ecfs_catalog_getxattr (EcfsCatalog *self, uint64_t ino, const char *name, GError **error)
{
    if (!check_name (name, error))
        return NULL;
    AHEAD (INODE_GET, INT (ino));
    AHEAD (XATTR_GET, INT (ino), NAME (name));
    return READ (self, get (self, ino, name, error));
}

static GByteArray *list (EcfsCatalog *self, uint64_t ino, GError **error)
{
    Inode inode;
    if (!ecfs_inode_get (self, ino, &inode, error))
        return NULL;
    g_autoptr (GByteArray) names = g_byte_array_new ();
    autoquery *query = QUERY (self, XATTR_LIST, error, INT (ino));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        const char *name = ecfs_column_blob (query, 0);
        size_t size = ecfs_column_size (query, 0);
        if (size == 0 || size > ECFS_NAME_MAX || memchr (name, 0, size) != NULL) {
            told (ecfs_bad_row (error, "xattrs", (int64_t) ino, "a name is impossible"));
            return NULL;
        }
        g_byte_array_append (names, (const uint8_t *) name, (guint) size);
        g_byte_array_append (names, (const uint8_t *) "", 1);
    }
    return found < 0 ? NULL : g_steal_pointer (&names);
}

GByteArray *ecfs_catalog_listxattr (EcfsCatalog *self, uint64_t ino, GError **error)
{
    return READ (self, list (self, ino, error));
}

static bool remove_one (EcfsCatalog *self, uint64_t ino, const char *name, GError **error)
{
    Inode inode;
    if (!check_name (name, error) || !ecfs_inode_get (self, ino, &inode, error))
        return false;
    int has = has_xattr (self, ino, name, error);
    if (has == 0)
        return no_data (error, ino, name);
    ecfs_journal_put_xattr_removed (self->record, ino, name);
    return has == 1 && EXEC (self, XATTR_DELETE, error, INT (ino), NAME (name)) && touch (self, &inode, error);
}

bool ecfs_catalog_knows_xattr (EcfsCatalog *self, const char *name, bool *ret_any, GError **error)
{
    int64_t one;
    int found = READ (self, QUERY_NUMBER (self, XATTR_ANY, &one, error, NAME (name)));
    *ret_any = found == 1;
    return found >= 0;
}

static GArray *take_inodes (EcfsCatalog *self, EcfsQuery *query, GError **error)
{
    g_autoptr (GArray) inodes = g_array_new (FALSE, FALSE, sizeof (uint64_t));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        uint64_t ino = (uint64_t) ecfs_column_number (query, 0);
        g_array_append_val (inodes, ino);
    }
    return found < 0 ? NULL : g_steal_pointer (&inodes);
}

static GArray *inodes_with (EcfsCatalog *self, const char *name, uint64_t after, unsigned max, GError **error)
{
    autoquery *query = QUERY (self, XATTR_INODES, error, NAME (name), INT (after), INT (max));
    return take_inodes (self, query, error);
}

GArray *ecfs_catalog_xattr_inodes (EcfsCatalog *self, const char *name, uint64_t after, unsigned max, GError **error)
{
    return READ (self, inodes_with (self, name, after, max, error));
}

/* What directories say for what is below them */

bool ecfs_xattr_above (EcfsCatalog *self, uint64_t dir, const char *name, GByteArray **ret_value, GError **error)
{
    autoquery *query = QUERY (self, XATTR_ABOVE, error, INT (dir), NAME (name));
    int found = ecfs_query_step (self, query, error);
    if (found == 1 && ecfs_column_number (query, 1) >= DEPTH_MAX)
        return ecfs_bad_row (error, "entries", (int64_t) dir, "directories form a circle");
    if (found == 1)
        *ret_value =
            g_byte_array_append (g_byte_array_new (), ecfs_column_blob (query, 0), (guint) ecfs_column_size (query, 0));
    return found >= 0;
}

bool ecfs_catalog_xattr_above (EcfsCatalog *self, uint64_t dir, const char *name, GByteArray **ret_value,
                               GError **error)
{
    *ret_value = NULL;
    return READ (self, ecfs_xattr_above (self, dir, name, ret_value, error));
}

GArray *ecfs_directories_of (EcfsCatalog *self, uint64_t ino, GError **error)
{
    autoquery *query = QUERY (self, ENTRY_DIRECTORIES, error, INT (ino));
    return take_inodes (self, query, error);
}

GArray *ecfs_catalog_file_directories (EcfsCatalog *self, uint64_t ino, GError **error)
{
    return READ (self, ecfs_directories_of (self, ino, error));
}

static GArray *object_directories (EcfsCatalog *self, int64_t object, GError **error)
{
    autoquery *query = QUERY (self, EXTENT_DIRECTORIES, error, INT (object));
    return take_inodes (self, query, error);
}

GArray *ecfs_catalog_object_directories (EcfsCatalog *self, int64_t object, GError **error)
{
    return READ (self, object_directories (self, object, error));
}

bool ecfs_catalog_removexattr (EcfsCatalog *self, uint64_t ino, const char *name, GError **error)
{
    return CHANGE (self, error, remove_one (self, ino, name, error));
}
