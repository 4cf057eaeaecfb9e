/* Inode and entry rows: reading with checks, storing with their journal items. */
#include "catalog/content_sum.h"
#include "catalog/namespace_priv.h"

#include <sys/stat.h>

#define MODE_MAX  (S_IFMT | 07777)
#define LATELY_US 50000

static bool read_code (EcfsQuery *query, int column, Inode *inode)
{
    if (ecfs_column_is_null (query, column))
        return true;
    size_t size = ecfs_column_size (query, column);
    const char *code = ecfs_column_text (query, column);
    if (code == NULL || size == 0 || size > ECFS_CODE_MAX || memchr (code, 0, size) != NULL)
        return false;
    memcpy (inode->code, code, size);
    inode->has_code = true;
    return true;
}

static bool is_type (uint64_t mode)
{
    return S_ISREG (mode) || S_ISDIR (mode) || S_ISLNK (mode) || S_ISCHR (mode) || S_ISBLK (mode) || S_ISFIFO (mode) ||
           S_ISSOCK (mode);
}

static uint64_t sum_sizes (const Inode *inode)
{
    return ecfs_content_sum_sizes (inode->attr.ino, inode->committed_size, inode->attr.data_bytes);
}

bool ecfs_inode_from_row (EcfsQuery *query, int column, Inode *ret_inode, GError **error)
{
    Inode inode = {.has_code = false};
    EcfsAttr *attr = &inode.attr;
    uint64_t mode, nlink, uid, gid;
    int64_t row = ecfs_column_number (query, column);
    if (!ecfs_column_u64 (query, column, INT64_MAX, &attr->ino) || attr->ino == 0)
        return ecfs_bad_row (error, "inodes", row, "its number is impossible");
    if (!ecfs_column_u64 (query, column + 1, MODE_MAX, &mode) || !is_type (mode))
        return ecfs_bad_row (error, "inodes", row, "its mode is impossible");
    if (!ecfs_column_u64 (query, column + 2, UINT32_MAX, &nlink) ||
        !ecfs_column_u64 (query, column + 3, UINT32_MAX, &uid) ||
        !ecfs_column_u64 (query, column + 4, UINT32_MAX, &gid))
        return ecfs_bad_row (error, "inodes", row, "its links or owner are impossible");
    if (!ecfs_column_u64 (query, column + 6, INT64_MAX, &attr->size) ||
        !ecfs_column_u64 (query, column + 11, INT64_MAX, &inode.committed_size) ||
        !ecfs_column_u64 (query, column + 13, INT64_MAX, &attr->data_bytes))
        return ecfs_bad_row (error, "inodes", row, "its size is impossible");
    if (!read_code (query, column + 12, &inode))
        return ecfs_bad_row (error, "inodes", row, "its code is impossible");
    attr->mode = (uint32_t) mode;
    attr->nlink = (uint32_t) nlink;
    attr->uid = (uint32_t) uid;
    attr->gid = (uint32_t) gid;
    attr->rdev = (uint64_t) ecfs_column_number (query, column + 5);
    attr->atime_ns = ecfs_column_number (query, column + 7);
    attr->mtime_ns = ecfs_column_number (query, column + 8);
    attr->ctime_ns = ecfs_column_number (query, column + 9);
    attr->btime_ns = ecfs_column_number (query, column + 10);
    inode.extents_sum = (uint64_t) ecfs_column_number (query, column + 14) ^ sum_sizes (&inode);
    inode.mtime_is_staged = !ecfs_column_is_null (query, column + 15);
    inode.committed_mtime_ns = ecfs_column_number (query, column + 15);
    *ret_inode = inode;
    return true;
}

bool ecfs_inode_get (EcfsCatalog *self, uint64_t ino, Inode *ret_inode, GError **error)
{
    autoquery *query = QUERY (self, INODE_GET, error, INT (ino));
    int found = ecfs_query_step (self, query, error);
    if (found == 0)
        return ecfs_fail (error, ENOENT, "inode %" PRIu64 " does not exist", ino);
    return found == 1 && ecfs_inode_from_row (query, 0, ret_inode, error);
}

bool ecfs_inode_get_dir (EcfsCatalog *self, uint64_t ino, Inode *ret_inode, GError **error)
{
    Inode inode;
    if (!ecfs_inode_get (self, ino, &inode, error))
        return false;
    if (!S_ISDIR (inode.attr.mode))
        return ecfs_fail (error, ENOTDIR, "inode %" PRIu64 " is not a directory", ino);
    if (inode.attr.nlink == 0)
        return ecfs_fail (error, ENOENT, "directory inode %" PRIu64 " was removed", ino);
    *ret_inode = inode;
    return true;
}

EcfsAttr ecfs_inode_committed (const Inode *inode)
{
    EcfsAttr attr = inode->attr;
    attr.size = inode->committed_size;
    if (inode->mtime_is_staged)
        attr.mtime_ns = inode->committed_mtime_ns;
    return attr;
}

void ecfs_inode_keep_mtime (Inode *inode)
{
    if (!inode->mtime_is_staged)
        inode->committed_mtime_ns = inode->attr.mtime_ns;
    inode->mtime_is_staged = true;
}

static Value staged_time (const Inode *inode)
{
    return inode->mtime_is_staged ? INT (inode->committed_mtime_ns) : (Value){.type = VALUE_NULL};
}

static void to_journal (EcfsCatalog *self, const Inode *inode)
{
    EcfsAttr attr = ecfs_inode_committed (inode);
    ecfs_journal_put_inode (self->record, &attr, inode->has_code ? inode->code : NULL);
}

bool ecfs_inode_insert (EcfsCatalog *self, const Inode *inode, const char *target, GError **error)
{
    const EcfsAttr *attr = &inode->attr;
    to_journal (self, inode);
    if (target != NULL)
        ecfs_journal_put_target (self->record, attr->ino, target);
    self->counters.next_ino = MAX (self->counters.next_ino, attr->ino + 1);
    self->counters.totals.n_inodes++;
    self->counters.totals.n_files += S_ISREG (attr->mode) ? 1 : 0;
    return EXEC (self, INODE_INSERT, error, INT (attr->ino), INT (attr->mode), INT (attr->nlink), INT (attr->uid),
                 INT (attr->gid), INT (attr->rdev), INT (attr->size), INT (attr->atime_ns), INT (attr->mtime_ns),
                 INT (attr->ctime_ns), INT (attr->btime_ns), INT (inode->committed_size),
                 TEXT (inode->has_code ? inode->code : NULL), INT (attr->data_bytes),
                 INT (inode->extents_sum ^ sum_sizes (inode)), staged_time (inode),
                 target == NULL ? (Value){.type = VALUE_NULL} : NAME (target));
}

static void forget_touched (EcfsCatalog *self, uint64_t ino)
{
    if (self->touched.ino == ino)
        self->touched_us = 0;
}

bool ecfs_inode_store (EcfsCatalog *self, const Inode *inode, GError **error)
{
    const EcfsAttr *attr = &inode->attr;
    forget_touched (self, attr->ino);
    return EXEC (self, INODE_UPDATE, error, INT (attr->ino), INT (attr->mode), INT (attr->uid), INT (attr->gid),
                 INT (attr->size), INT (attr->atime_ns), INT (attr->mtime_ns), INT (attr->ctime_ns),
                 INT (inode->committed_size), TEXT (inode->has_code ? inode->code : NULL), INT (attr->data_bytes),
                 INT (inode->extents_sum ^ sum_sizes (inode)), staged_time (inode));
}

bool ecfs_inode_fill (EcfsCatalog *self, const Inode *inode, GError **error)
{
    const EcfsAttr *attr = &inode->attr;
    return EXEC_NOW (self, INODE_FILL, error, INT (attr->ino), INT (attr->size), INT (attr->mtime_ns),
                     INT (attr->ctime_ns), INT (inode->committed_size), INT (attr->data_bytes),
                     INT (inode->extents_sum ^ sum_sizes (inode))) &&
           (ecfs_changes (self) == 1 ||
            ecfs_fail (error, EBADMSG, "inode %" PRIu64 " is no regular file that is there", attr->ino));
}

bool ecfs_inode_update (EcfsCatalog *self, const Inode *inode, GError **error)
{
    to_journal (self, inode);
    return ecfs_inode_store (self, inode, error);
}

bool ecfs_inode_touch (EcfsCatalog *self, const Inode *inode, bool relinked, GError **error)
{
    const EcfsAttr *attr = &inode->attr, committed = ecfs_inode_committed (inode);
    ecfs_journal_put_touch (self->record, &committed);
    forget_touched (self, attr->ino);
    if (relinked)
        return EXEC (self, INODE_RELINK, error, INT (attr->ino), INT (attr->nlink), INT (attr->mtime_ns),
                     INT (attr->ctime_ns));
    return EXEC (self, INODE_TOUCH, error, INT (attr->ino), INT (attr->mtime_ns), INT (attr->ctime_ns));
}

bool ecfs_inode_touch_dir (EcfsCatalog *self, Inode *dir, int links, int64_t now_ns, GError **error)
{
    dir->attr.mtime_ns = now_ns;
    dir->attr.ctime_ns = now_ns;
    dir->attr.nlink += (uint32_t) links;
    if (!ecfs_inode_touch (self, dir, links != 0, error))
        return false;
    self->touched_us = ecfs_now_us ();
    self->touched_txn = self->txn;
    return ecfs_attr_out (dir, &self->touched);
}

bool ecfs_inode_touched (const EcfsCatalog *self, uint64_t ino, EcfsAttr *ret_attr)
{
    bool known = self->is_member && self->touched_us != 0 && self->touched.ino == ino &&
                 self->durable_txn >= self->touched_txn && ecfs_now_us () - self->touched_us < LATELY_US;
    if (known)
        *ret_attr = self->touched;
    return known;
}

bool ecfs_attr_out (const Inode *inode, EcfsAttr *ret_attr)
{
    const EcfsAttr committed = ecfs_inode_committed (inode);
    if (ret_attr == NULL)
        return true;
    *ret_attr = inode->attr;
    ret_attr->committed_size = committed.size;
    ret_attr->committed_mtime_ns = committed.mtime_ns;
    return true;
}

static bool is_name (const char *name, size_t size)
{
    return size > 0 && size <= ECFS_NAME_MAX && memchr (name, '/', size) == NULL && memchr (name, 0, size) == NULL &&
           !(name[0] == '.' && (size == 1 || (size == 2 && name[1] == '.')));
}

bool ecfs_name_check (const char *name, GError **error)
{
    size_t size = strlen (name);
    if (size > ECFS_NAME_MAX)
        return ecfs_fail (error, ENAMETOOLONG, "a name has %zu bytes, %d are possible", size, ECFS_NAME_MAX);
    return is_name (name, size) || ecfs_fail (error, EINVAL, "'%s' cannot be a name", name);
}

int ecfs_entry_find (EcfsCatalog *self, uint64_t parent, const char *name, Inode *ret_inode, GError **error)
{
    autoquery *query = QUERY (self, ENTRY_LOOKUP, error, INT (parent), NAME (name));
    int found = ecfs_query_step (self, query, error);
    if (found != 1)
        return found;
    bool sound = ecfs_column_number (query, N_INODE_COLUMNS) != 0 ||
                 ecfs_bad_row (error, "entries", (int64_t) parent, "an entry that is looked up is not listed");
    return sound && ecfs_inode_from_row (query, 0, ret_inode, error) ? 1 : -1;
}

char *ecfs_column_name (EcfsQuery *query, int column, int64_t parent, GError **error)
{
    const char *name = ecfs_column_blob (query, column);
    size_t size = ecfs_column_size (query, column);
    if (name != NULL && is_name (name, size))
        return g_strndup (name, size);
    told (ecfs_bad_row (error, "entries", parent, "a name in this directory is impossible"));
    return NULL;
}

int ecfs_entry_of (EcfsCatalog *self, uint64_t ino, uint64_t *ret_parent, char **ret_name, GError **error)
{
    autoquery *query = QUERY (self, ENTRY_OF_INO, error, INT (ino));
    int found = ecfs_query_step (self, query, error);
    if (found != 1)
        return found;
    if (ret_name != NULL) {
        char *name = ecfs_column_name (query, 1, ecfs_column_number (query, 0), error);
        if (name == NULL)
            return -1;
        *ret_name = name;
    }
    *ret_parent = (uint64_t) ecfs_column_number (query, 0);
    return 1;
}
