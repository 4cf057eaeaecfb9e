/* Looking up, making, linking, removing and listing. Each operation checks first and writes then. */
#include "catalog/content_priv.h"

#include <sys/stat.h>

#define DEPTH_MAX  100000 /* of directories: deeper is a circle */
#define TARGET_MAX 4095   /* bytes of a symlink's target, as in Linux */

/* What most operations on a name ask first. */
static void ahead_of_entry (uint64_t parent, const char *name)
{
    AHEAD (INODE_GET, INT (parent));
    AHEAD (ENTRY_LOOKUP, INT (parent), NAME (name));
}

/* Attributes */

static bool lookup (EcfsCatalog *self, uint64_t parent, const char *name, EcfsAttr *ret_attr, GError **error)
{
    Inode inode;
    int found = ecfs_entry_find (self, parent, name, &inode, error);
    if (found == 1)
        return ecfs_attr_out (&inode, ret_attr);
    if (found < 0 || !ecfs_inode_get_dir (self, parent, &inode, error))
        return false;
    return ecfs_fail (error, ENOENT, "'%s' does not exist", name);
}

bool ecfs_catalog_lookup (EcfsCatalog *self, uint64_t parent, const char *name, EcfsAttr *ret_attr, GError **error)
{
    if (!ecfs_name_check (name, error))
        return false;
    ahead_of_entry (parent, name);
    return LOOK (self, lookup (self, parent, name, ret_attr, error));
}

bool ecfs_catalog_getattr (EcfsCatalog *self, uint64_t ino, EcfsAttr *ret_attr, GError **error)
{
    Inode inode;
    ecfs_mutex_lock (&self->lock);
    bool known = ecfs_inode_touched (self, ino, ret_attr);
    ecfs_mutex_unlock (&self->lock);
    return known || (LOOK (self, ecfs_inode_get (self, ino, &inode, error)) && ecfs_attr_out (&inode, ret_attr));
}

/* While bytes are in staging a new size is theirs; else it is the content's. */
static bool set_size (EcfsCatalog *self, Inode *inode, uint64_t size, GError **error)
{
    if (!S_ISREG (inode->attr.mode))
        return ecfs_fail (error, S_ISDIR (inode->attr.mode) ? EISDIR : EINVAL,
                          "inode %" PRIu64 " is not a regular file", inode->attr.ino);
    if (size > INT64_MAX)
        return ecfs_fail (error, EFBIG, "%" PRIu64 " bytes are more than a file can have", size);
    int staged = ecfs_staging_unstored (self, inode->attr.ino, error);
    if (staged < 0)
        return false;
    inode->attr.size = size;
    return staged == 1 || ecfs_content_truncate (self, inode, size, error);
}

/* The time of bytes that are flushed and not stored yet goes nowhere before they do. */
static bool set_mtime (EcfsCatalog *self, Inode *inode, int64_t mtime_ns, GError **error)
{
    int staged = S_ISREG (inode->attr.mode) ? ecfs_staging_queued (self, inode->attr.ino, error) : 0;
    if (staged < 0)
        return false;
    if (staged == 0)
        inode->mtime_is_staged = false;
    else
        ecfs_inode_keep_mtime (inode);
    inode->attr.mtime_ns = mtime_ns;
    return true;
}

static bool set_attr (EcfsCatalog *self, uint64_t ino, const EcfsAttr *attr, unsigned mask, EcfsAttr *ret_attr,
                      GError **error)
{
    Inode inode;
    if (!ecfs_inode_get (self, ino, &inode, error))
        return false;
    if ((mask & ECFS_ATTR_MODE) != 0)
        inode.attr.mode = (inode.attr.mode & S_IFMT) | (attr->mode & 07777);
    if ((mask & ECFS_ATTR_UID) != 0)
        inode.attr.uid = attr->uid;
    if ((mask & ECFS_ATTR_GID) != 0)
        inode.attr.gid = attr->gid;
    if ((mask & ECFS_ATTR_ATIME) != 0)
        inode.attr.atime_ns = attr->atime_ns;
    if ((mask & ECFS_ATTR_MTIME) != 0 && !set_mtime (self, &inode, attr->mtime_ns, error))
        return false;
    inode.attr.ctime_ns = (mask & ECFS_ATTR_CTIME) != 0 ? attr->ctime_ns : ecfs_real_ns ();
    if ((mask & ECFS_ATTR_SIZE) != 0 && !set_size (self, &inode, attr->size, error))
        return false;
    return ecfs_inode_update (self, &inode, error) && ecfs_attr_out (&inode, ret_attr);
}

bool ecfs_catalog_setattr (EcfsCatalog *self, uint64_t ino, const EcfsAttr *attr, unsigned mask, EcfsAttr *ret_attr,
                           GError **error)
{
    AHEAD (INODE_GET, INT (ino));
    AHEAD (STAGING_UNSTORED, INT (ino));
    return CHANGE_CHECKED (self, error, set_attr (self, ino, attr, mask, ret_attr, error));
}

/* Making names */

/* The directory is fit for a new entry of this name. */
static bool check_free (EcfsCatalog *self, uint64_t parent, const char *name, Inode *ret_dir, GError **error)
{
    if (!ecfs_name_check (name, error) || !ecfs_inode_get_dir (self, parent, ret_dir, error))
        return false;
    int64_t ino;
    int found = QUERY_NUMBER (self, ENTRY_GET, &ino, error, INT (parent), NAME (name));
    return found == 0 || (found == 1 && ecfs_fail (error, EEXIST, "'%s' exists", name));
}

static bool insert_entry (EcfsCatalog *self, uint64_t parent, const char *name, uint64_t ino, GError **error)
{
    ecfs_journal_put_name_added (self->record, parent, name, ino);
    return EXEC (self, ENTRY_INSERT, error, INT (parent), NAME (name), INT (self->counters.next_position++), INT (ino));
}

static bool check_new (const EcfsNewInode *new, GError **error)
{
    bool is_link = S_ISLNK (new->mode);
    mode_t type = new->mode &S_IFMT;
    if ((new->mode & ~(uint32_t) (S_IFMT | 07777)) != 0 || is_link != (new->target != NULL) ||
        (new->staged &&type != S_IFREG))
        return ecfs_fail (error, EINVAL, "mode %o does not fit the new inode", new->mode);
    if (type != S_IFREG && type != S_IFDIR && !is_link && type != S_IFCHR && type != S_IFBLK && type != S_IFIFO &&
        type != S_IFSOCK)
        return ecfs_fail (error, EINVAL, "mode %o has no type", new->mode);
    if (is_link && new->target[0] == '\0')
        return ecfs_fail (error, ENOENT, "a symlink needs a target");
    if (is_link && strlen (new->target) > TARGET_MAX)
        return ecfs_fail (error, ENAMETOOLONG, "a symlink's target has more than %d bytes", TARGET_MAX);
    return true;
}

bool ecfs_code_above (EcfsCatalog *self, const Inode *dir, Inode *ret_holder, GError **error)
{
    int64_t one;
    *ret_holder = *dir;
    int any = dir->has_code ? 0 : QUERY_NUMBER (self, INODE_ANY_CODED, &one, error);
    for (int depth = 0; any == 1 && !ret_holder->has_code && depth < DEPTH_MAX; depth++) {
        uint64_t parent;
        any = ret_holder->attr.ino == ECFS_ROOT_INO
                  ? 0
                  : ecfs_entry_of (self, ret_holder->attr.ino, &parent, NULL, error); /* 0: it was removed */
        if (any == 1 && !ecfs_inode_get_dir (self, parent, ret_holder, error))
            return false;
    }
    return any >= 0;
}

/* Only files: what a directory says is looked up when it is needed. */
static bool inherit_code (EcfsCatalog *self, const Inode *dir, Inode *inode, GError **error)
{
    Inode holder;
    if (!S_ISREG (inode->attr.mode))
        return true;
    if (!ecfs_code_above (self, dir, &holder, error))
        return false;
    inode->has_code = holder.has_code;
    memcpy (inode->code, holder.code, sizeof inode->code);
    return true;
}

static Inode first_state (EcfsCatalog *self, const Inode *dir, const EcfsNewInode *new, int64_t now_ns)
{
    bool is_dir = S_ISDIR (new->mode);
    bool inherits = (dir->attr.mode & S_ISGID) != 0;
    Inode inode = {.has_code = false};
    inode.attr = (EcfsAttr){.ino = self->counters.next_ino,
                            .mode = new->mode | (inherits && is_dir ? S_ISGID : 0),
                            .nlink = is_dir ? 2 : 1,
                            .uid = new->uid,
                            .gid = inherits ? dir->attr.gid : new->gid,
                            .rdev = S_ISCHR (new->mode) || S_ISBLK (new->mode) ? new->rdev : 0,
                            .size = new->target == NULL ? 0 : strlen (new->target),
                            .atime_ns = now_ns,
                            .mtime_ns = now_ns,
                            .ctime_ns = now_ns,
                            .btime_ns = now_ns};
    inode.committed_size = inode.attr.size;
    return inode;
}

static bool make_nameless (EcfsCatalog *self, uint64_t parent, const EcfsNewInode *new, EcfsAttr *ret_attr,
                           GError **error)
{
    Inode dir;
    if (!check_new (new, error) || !ecfs_inode_get_dir (self, parent, &dir, error))
        return false;
    if (S_ISDIR (new->mode) || new->staged)
        return ecfs_fail (error, EINVAL, "an inode of mode %o needs a name", new->mode);
    Inode inode = first_state (self, &dir, new, ecfs_real_ns ());
    inode.attr.nlink = 0;
    return inherit_code (self, &dir, &inode, error) && ecfs_inode_insert (self, &inode, new->target, error) &&
           ecfs_attr_out (&inode, ret_attr);
}

static bool make (EcfsCatalog *self, uint64_t parent, const char *name, const EcfsNewInode *new, EcfsAttr *ret_attr,
                  int64_t *ret_staging, GError **error)
{
    Inode dir;
    if (!check_new (new, error) || !check_free (self, parent, name, &dir, error))
        return false;
    bool is_dir = S_ISDIR (new->mode);
    if (is_dir && dir.attr.nlink == UINT32_MAX)
        return ecfs_fail (error, EMLINK, "the directory has too many subdirectories for '%s'", name);
    int64_t now_ns = ecfs_real_ns ();
    Inode inode = first_state (self, &dir, new, now_ns);
    return inherit_code (self, &dir, &inode, error) && ecfs_inode_insert (self, &inode, new->target, error) &&
           insert_entry (self, parent, name, inode.attr.ino, error) &&
           ecfs_inode_touch_dir (self, &dir, is_dir ? 1 : 0, now_ns, error) &&
           (new->staged || !S_ISREG (inode.attr.mode) || ecfs_content_journal (self, &inode, error)) &&
           (!new->staged || ecfs_staging_insert (self, inode.attr.ino, true, ret_staging, error)) &&
           ecfs_attr_out (&inode, ret_attr);
}

bool ecfs_catalog_make (EcfsCatalog *self, uint64_t parent, const char *name, const EcfsNewInode *inode,
                        EcfsAttr *ret_attr, int64_t *ret_staging, GError **error)
{
    AHEAD (INODE_GET, INT (parent));
    if (S_ISREG (inode->mode))
        ecfs_ahead (STMT_INODE_ANY_CODED, NULL, 0);
    if (name == NULL)
        return CHANGE_CHECKED (self, error, make_nameless (self, parent, inode, ret_attr, error));
    AHEAD (ENTRY_GET, INT (parent), NAME (name));
    if (inode->staged)
        AHEAD_ID (ECFS_IDS_STAGING);
    return CHANGE_CHECKED (self, error, make (self, parent, name, inode, ret_attr, ret_staging, error));
}

static bool add_link (EcfsCatalog *self, uint64_t ino, uint64_t parent, const char *name, EcfsAttr *ret_attr,
                      GError **error)
{
    Inode inode, dir;
    if (!ecfs_inode_get (self, ino, &inode, error) || !check_free (self, parent, name, &dir, error))
        return false;
    if (S_ISDIR (inode.attr.mode))
        return ecfs_fail (error, EPERM, "directories have one name only");
    if (inode.attr.nlink == 0)
        return ecfs_fail (error, ENOENT, "inode %" PRIu64 " was removed", ino);
    if (inode.attr.nlink == UINT32_MAX)
        return ecfs_fail (error, EMLINK, "inode %" PRIu64 " has too many names", ino);
    inode.attr.nlink++;
    inode.attr.ctime_ns = ecfs_real_ns ();
    return insert_entry (self, parent, name, ino, error) && ecfs_inode_touch (self, &inode, true, error) &&
           ecfs_inode_touch_dir (self, &dir, 0, inode.attr.ctime_ns, error) && ecfs_attr_out (&inode, ret_attr);
}

bool ecfs_catalog_link (EcfsCatalog *self, uint64_t ino, uint64_t parent, const char *name, EcfsAttr *ret_attr,
                        GError **error)
{
    AHEAD (INODE_GET, INT (ino));
    AHEAD (INODE_GET, INT (parent));
    AHEAD (ENTRY_GET, INT (parent), NAME (name));
    return CHANGE_CHECKED (self, error, add_link (self, ino, parent, name, ret_attr, error));
}

static bool lose_entry (EcfsCatalog *self, uint64_t parent, const char *name, Inode *old, int64_t now_ns,
                        GError **error)
{
    if (S_ISDIR (old->attr.mode))
        return ecfs_fail (error, EISDIR, "'%s' is a directory", name);
    return EXEC (self, ENTRY_DELETE, error, INT (parent), NAME (name)) &&
           ecfs_inode_lose_name (self, old, now_ns, error);
}

static bool link_over (EcfsCatalog *self, uint64_t ino, uint64_t parent, const char *name, EcfsAttr *ret_replaced,
                       GError **error)
{
    Inode inode, dir, old;
    *ret_replaced = (EcfsAttr){.ino = 0}; /* it may be done anew, and there was something then */
    if (!ecfs_name_check (name, error) || !ecfs_inode_get (self, ino, &inode, error) ||
        !ecfs_inode_get_dir (self, parent, &dir, error))
        return false;
    if (S_ISDIR (inode.attr.mode))
        return ecfs_fail (error, EPERM, "directories have one name only");
    if (inode.attr.nlink == UINT32_MAX)
        return ecfs_fail (error, EMLINK, "inode %" PRIu64 " has too many names", ino);
    int found = ecfs_entry_find (self, parent, name, &old, error);
    if (found < 0 || (found == 1 && old.attr.ino == ino))
        return found == 1;
    int64_t now_ns = ecfs_real_ns ();
    inode.attr.nlink++;
    inode.attr.ctime_ns = now_ns;
    return (found == 0 || lose_entry (self, parent, name, &old, now_ns, error)) &&
           insert_entry (self, parent, name, ino, error) && ecfs_inode_touch (self, &inode, true, error) &&
           ecfs_inode_touch_dir (self, &dir, 0, now_ns, error) && (found == 0 || ecfs_attr_out (&old, ret_replaced));
}

bool ecfs_catalog_link_over (EcfsCatalog *self, uint64_t ino, uint64_t parent, const char *name, EcfsAttr *ret_replaced,
                             GError **error)
{
    EcfsAttr replaced = {.ino = 0};
    if (!CHANGE_CHECKED (self, error, link_over (self, ino, parent, name, &replaced, error)))
        return false;
    *ret_replaced = replaced;
    return true;
}

/* Removing names */

int ecfs_dir_is_empty (EcfsCatalog *self, uint64_t ino, GError **error)
{
    int64_t one;
    int found = QUERY_NUMBER (self, ENTRY_ANY, &one, error, INT (ino));
    return found < 0 ? -1 : found == 0;
}

static bool check_removable (EcfsCatalog *self, const Inode *inode, const char *name, bool want_dir, GError **error)
{
    bool is_dir = S_ISDIR (inode->attr.mode);
    if (is_dir && !want_dir)
        return ecfs_fail (error, EISDIR, "'%s' is a directory", name);
    if (!is_dir && want_dir)
        return ecfs_fail (error, ENOTDIR, "'%s' is not a directory", name);
    int empty = is_dir ? ecfs_dir_is_empty (self, inode->attr.ino, error) : 1;
    return empty == 1 || (empty == 0 && ecfs_fail (error, ENOTEMPTY, "directory '%s' is not empty", name));
}

bool ecfs_inode_lose_name (EcfsCatalog *self, Inode *inode, int64_t now_ns, GError **error)
{
    if (inode->attr.nlink == 0)
        return ecfs_bad_row (error, "inodes", (int64_t) inode->attr.ino, "it has a name, but no links");
    inode->attr.nlink = S_ISDIR (inode->attr.mode) ? 0 : inode->attr.nlink - 1;
    inode->attr.ctime_ns = now_ns;
    return ecfs_inode_touch (self, inode, true, error);
}

static bool remove_name (EcfsCatalog *self, uint64_t parent, const char *name, bool want_dir, EcfsAttr *ret_attr,
                         GError **error)
{
    Inode dir, inode;
    if (!ecfs_name_check (name, error) || !ecfs_inode_get_dir (self, parent, &dir, error))
        return false;
    int found = ecfs_entry_find (self, parent, name, &inode, error);
    if (found == 0)
        return ecfs_fail (error, ENOENT, "'%s' does not exist", name);
    if (found < 0 || !check_removable (self, &inode, name, want_dir, error))
        return false;
    int64_t now_ns = ecfs_real_ns ();
    ecfs_journal_put_name_removed (self->record, parent, name);
    return EXEC (self, ENTRY_DELETE, error, INT (parent), NAME (name)) &&
           ecfs_inode_lose_name (self, &inode, now_ns, error) &&
           ecfs_inode_touch_dir (self, &dir, want_dir ? -1 : 0, now_ns, error) && ecfs_attr_out (&inode, ret_attr);
}

bool ecfs_catalog_unlink (EcfsCatalog *self, uint64_t parent, const char *name, EcfsAttr *ret_attr, GError **error)
{
    ahead_of_entry (parent, name);
    return CHANGE_CHECKED (self, error, remove_name (self, parent, name, false, ret_attr, error));
}

bool ecfs_catalog_rmdir (EcfsCatalog *self, uint64_t parent, const char *name, EcfsAttr *ret_attr, GError **error)
{
    ahead_of_entry (parent, name);
    return CHANGE_CHECKED (self, error, remove_name (self, parent, name, true, ret_attr, error));
}

bool ecfs_inode_drop (EcfsCatalog *self, uint64_t ino, GError **error)
{
    g_autoptr (GError) why = NULL;
    Inode inode;
    if (!ecfs_inode_get (self, ino, &inode, &why)) {
        if (ecfs_errno (why) == ENOENT)
            return true;
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    if (inode.attr.nlink > 0)
        return true;
    ecfs_journal_put_inode_dropped (self->record, ino);
    self->counters.totals.n_inodes--;
    self->counters.totals.n_files -= S_ISREG (inode.attr.mode) ? 1 : 0;
    return ecfs_content_remove (self, ino, error) && EXEC (self, XATTR_DELETE_ALL, error, INT (ino)) &&
           ecfs_staging_drop_inode (self, ino, error) && EXEC (self, INODE_DELETE, error, INT (ino));
}

bool ecfs_catalog_drop (EcfsCatalog *self, uint64_t ino, GError **error)
{
    AHEAD (INODE_GET, INT (ino));
    AHEAD (EXTENT_LIST, INT (ino));
    return CHANGE_CHECKED (self, error, ecfs_inode_drop (self, ino, error));
}

static int list_orphans (EcfsCatalog *self, int64_t until_ns, uint64_t *inos, int max, GError **error)
{
    autoquery *query = QUERY (self, INODE_ORPHANS, error, INT (until_ns), INT (max));
    int n = 0, found;
    while ((found = ecfs_query_step (self, query, error)) == 1)
        inos[n++] = (uint64_t) ecfs_column_number (query, 0);
    return found < 0 ? -1 : n;
}

bool ecfs_catalog_drop_orphans (EcfsCatalog *self, int64_t until_ns, GError **error)
{
    uint64_t inos[64];
    int n;
    while ((n = READ (self, list_orphans (self, until_ns, inos, G_N_ELEMENTS (inos), error))) > 0)
        for (int i = 0; i < n; i++)
            if (!ecfs_catalog_drop (self, inos[i], error))
                return false;
    return n == 0;
}

/* Finding and listing */

static char *read_target (EcfsCatalog *self, uint64_t ino, GError **error)
{
    Inode inode;
    if (!ecfs_inode_get (self, ino, &inode, error))
        return NULL;
    if (!S_ISLNK (inode.attr.mode)) {
        told (ecfs_fail (error, EINVAL, "inode %" PRIu64 " is not a symlink", ino));
        return NULL;
    }
    autoquery *query = QUERY (self, INODE_TARGET, error, INT (ino));
    int found = ecfs_query_step (self, query, error);
    const char *target = found == 1 ? ecfs_column_blob (query, 0) : NULL;
    size_t size = target == NULL ? 0 : ecfs_column_size (query, 0);
    if (found < 0)
        return NULL;
    if (size > 0 && size <= TARGET_MAX && memchr (target, 0, size) == NULL)
        return g_strndup (target, size);
    told (ecfs_bad_row (error, "inodes", (int64_t) ino, "its target is impossible"));
    return NULL;
}

char *ecfs_catalog_readlink (EcfsCatalog *self, uint64_t ino, GError **error)
{
    AHEAD (INODE_GET, INT (ino));
    AHEAD (INODE_TARGET, INT (ino));
    return READ (self, read_target (self, ino, error));
}

static void free_dirent (gpointer data)
{
    EcfsDirent *entry = data;
    g_free (entry->name);
    g_free (entry);
}

/* Moves *after on. A damaged index may have its entries in any order: who goes on behind the last one would go round
 * for ever. */
static bool add_dirent (GPtrArray *entries, EcfsQuery *query, uint64_t dir, int64_t *after, GError **error)
{
    Inode inode;
    int64_t position = ecfs_column_number (query, 0);
    if (position <= *after)
        return ecfs_bad_row (error, "entries", (int64_t) dir, "a position before the last one");
    *after = position;
    if (!ecfs_inode_from_row (query, 2, &inode, error))
        return false;
    if (ecfs_column_number (query, 2 + N_INODE_COLUMNS) == 0)
        return ecfs_bad_row (error, "entries", (int64_t) dir, "an entry that is listed cannot be looked up");
    char *name = ecfs_column_name (query, 1, (int64_t) dir, error);
    if (name == NULL)
        return false;
    EcfsDirent *entry = g_new (EcfsDirent, 1);
    *entry = (EcfsDirent){.name = name, .offset = position};
    (void) ecfs_attr_out (&inode, &entry->attr); /* it never fails */
    g_ptr_array_add (entries, entry);
    return true;
}

static GPtrArray *list (EcfsCatalog *self, uint64_t ino, int64_t after, size_t max, GError **error)
{
    Inode dir;
    if (!ecfs_inode_get (self, ino, &dir, error))
        return NULL;
    if (!S_ISDIR (dir.attr.mode)) {
        told (ecfs_fail (error, ENOTDIR, "inode %" PRIu64 " is not a directory", ino));
        return NULL;
    }
    g_autoptr (GPtrArray) entries = g_ptr_array_new_with_free_func (free_dirent);
    autoquery *query = QUERY (self, ENTRY_LIST, error, INT (ino), INT (after), INT (MIN (max, INT_MAX)));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1)
        if (!add_dirent (entries, query, ino, &after, error))
            return NULL;
    return found < 0 ? NULL : g_steal_pointer (&entries);
}

GPtrArray *ecfs_catalog_readdir (EcfsCatalog *self, uint64_t ino, int64_t after, size_t max, GError **error)
{
    AHEAD (INODE_GET, INT (ino));
    AHEAD (ENTRY_LIST, INT (ino), INT (after), INT (MIN (max, INT_MAX)));
    return READ (self, list (self, ino, after, max, error));
}

static bool get_parent (EcfsCatalog *self, uint64_t ino, uint64_t *ret_parent, GError **error)
{
    Inode dir;
    if (!ecfs_inode_get_dir (self, ino, &dir, error))
        return false;
    if (ino == ECFS_ROOT_INO) {
        *ret_parent = ino;
        return true;
    }
    int found = ecfs_entry_of (self, ino, ret_parent, NULL, error);
    return found == 1 || (found == 0 && ecfs_bad_row (error, "inodes", (int64_t) ino, "a directory without a name"));
}

bool ecfs_catalog_parent (EcfsCatalog *self, uint64_t ino, uint64_t *ret_parent, GError **error)
{
    AHEAD (INODE_GET, INT (ino));
    AHEAD (ENTRY_OF_INO, INT (ino));
    return READ (self, get_parent (self, ino, ret_parent, error));
}

int ecfs_dir_is_below (EcfsCatalog *self, uint64_t ino, uint64_t above, GError **error)
{
    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        if (ino == above)
            return 1;
        if (ino == ECFS_ROOT_INO)
            return 0;
        if (!get_parent (self, ino, &ino, error))
            return -1;
    }
    told (ecfs_bad_row (error, "entries", (int64_t) ino, "directories form a circle"));
    return -1;
}

char *ecfs_path_find (EcfsCatalog *self, uint64_t ino)
{
    if (ino == ECFS_ROOT_INO)
        return g_strdup ("/");
    g_autoptr (GString) path = g_string_new (NULL);
    autoquery *query = QUERY (self, ENTRY_PATH, NULL, INT (ino));
    uint64_t at = ino;
    while (at != ECFS_ROOT_INO && ecfs_query_step (self, query, NULL) == 1) {
        if ((uint64_t) ecfs_column_number (query, 0) != at) /* a directory has two names, and the first counts */
            continue;
        at = (uint64_t) ecfs_column_number (query, 1);
        g_autofree char *name = ecfs_column_name (query, 2, (int64_t) at, NULL);
        if (name == NULL)
            break;
        g_string_prepend (path, name);
        g_string_prepend_c (path, '/');
    }
    if (at == ECFS_ROOT_INO)
        return g_string_free (g_steal_pointer (&path), FALSE);
    return g_strdup_printf ("inode %" PRIu64 " (no name)", ino);
}

char *ecfs_catalog_path (EcfsCatalog *self, uint64_t ino)
{
    return READ (self, ecfs_path_find (self, ino));
}

static GPtrArray *find_paths (EcfsCatalog *self, uint64_t ino, GError **error)
{
    g_autoptr (GPtrArray) paths = g_ptr_array_new_with_free_func (g_free);
    autoquery *query = QUERY (self, ENTRY_LIST_INO, error, INT (ino));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        uint64_t parent = (uint64_t) ecfs_column_number (query, 0);
        g_autofree char *name = ecfs_column_name (query, 1, (int64_t) parent, error);
        g_autofree char *directory = parent == ECFS_ROOT_INO ? g_strdup ("") : ecfs_path_find (self, parent);
        if (name == NULL)
            return NULL;
        g_ptr_array_add (paths, g_strconcat (directory, "/", name, NULL));
    }
    return found < 0 ? NULL : g_steal_pointer (&paths);
}

GPtrArray *ecfs_catalog_paths (EcfsCatalog *self, uint64_t ino, GError **error)
{
    return READ (self, find_paths (self, ino, error));
}

static bool resolve (EcfsCatalog *self, const char *path, EcfsAttr *ret_attr, GError **error)
{
    Inode inode;
    if (!ecfs_inode_get_dir (self, ECFS_ROOT_INO, &inode, error))
        return false;
    EcfsAttr at = inode.attr;
    for (const char *name = path + strspn (path, "/"); *name != '\0'; name += strspn (name, "/")) {
        g_autofree char *part = g_strndup (name, strcspn (name, "/"));
        if (!ecfs_name_check (part, error) || !lookup (self, at.ino, part, &at, error))
            return ecfs_prefix (error, "path %s", path);
        name += strlen (part);
        if (*name == '/' && !S_ISDIR (at.mode))
            return ecfs_fail (error, ENOTDIR, "path %s: '%s' is not a directory", path, part);
    }
    *ret_attr = at;
    return true;
}

bool ecfs_catalog_resolve (EcfsCatalog *self, const char *path, EcfsAttr *ret_attr, GError **error)
{
    return READ (self, resolve (self, path, ret_attr, error));
}
