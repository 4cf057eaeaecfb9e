/* What is to be known of a file before it is stored, of one moment, and asked at once of a database that is far away.
 */
#include "catalog/file_facts.h"

#include "catalog/namespace_priv.h"

void ecfs_file_facts_clear (EcfsFileFacts *self)
{
    g_clear_pointer (&self->code, g_free);
    g_clear_pointer (&self->path, g_free);
    g_clear_pointer (&self->directories, g_array_unref);
}

static bool get (EcfsCatalog *self, uint64_t ino, const char *attribute, EcfsFileFacts *facts, GError **error)
{
    Inode inode;
    g_autoptr (GByteArray) value = NULL;
    if (!ecfs_inode_get (self, ino, &inode, error) || !ecfs_sequence_get (self, &facts->sequence, error))
        return false;
    facts->attr = inode.attr;
    facts->code = inode.has_code ? g_strdup (inode.code) : NULL;
    facts->path = ecfs_path_find (self, ino);
    facts->directories = ecfs_directories_of (self, ino, error);
    if (facts->directories == NULL || !ecfs_xattr_above (self, ino, attribute, &value, error))
        return false;
    facts->is_said = value != NULL;
    return true;
}

bool ecfs_catalog_file_facts (EcfsCatalog *self, uint64_t ino, const char *attribute, EcfsFileFacts *ret_facts,
                              GError **error)
{
    EcfsFileFacts facts = {.path = NULL};
    AHEAD (INODE_GET, INT (ino));
    ecfs_ahead (STMT_COUNTERS_GET, NULL, 0);
    AHEAD (ENTRY_PATH, INT (ino));
    AHEAD (ENTRY_DIRECTORIES, INT (ino));
    AHEAD (XATTR_ABOVE, INT (ino), NAME (attribute));
    const bool good = READ (self, get (self, ino, attribute, &facts, error));
    if (good)
        *ret_facts = facts;
    else
        ecfs_file_facts_clear (&facts);
    return good;
}
