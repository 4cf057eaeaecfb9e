/* rename(2) with all its cases. */
#include "catalog/content_priv.h"

#include <stdio.h>
#include <sys/stat.h>

/* Both ends, as they were found. */
typedef struct Move {
    const char *name, *new_name;
    Inode dir, new_dir; /* the same directory twice where it is one: only dir is then stored */
    Inode inode, target;
    bool has_target;
    bool same_dir;
    int64_t now_ns;
} Move;

static bool find_both (EcfsCatalog *self, Move *move, uint64_t parent, uint64_t new_parent, GError **error)
{
    if (!ecfs_name_check (move->name, error) || !ecfs_name_check (move->new_name, error) ||
        !ecfs_inode_get_dir (self, parent, &move->dir, error) ||
        !ecfs_inode_get_dir (self, new_parent, &move->new_dir, error))
        return false;
    int found = ecfs_entry_find (self, parent, move->name, &move->inode, error);
    if (found == 0)
        return ecfs_fail (error, ENOENT, "'%s' does not exist", move->name);
    int target = found < 0 ? -1 : ecfs_entry_find (self, new_parent, move->new_name, &move->target, error);
    move->has_target = target == 1;
    move->same_dir = parent == new_parent;
    return target >= 0;
}

/* A directory must not get below itself. */
static bool check_circle (EcfsCatalog *self, const Inode *moved, const Inode *into, const char *name, GError **error)
{
    if (!S_ISDIR (moved->attr.mode))
        return true;
    int below = ecfs_dir_is_below (self, into->attr.ino, moved->attr.ino, error);
    return below == 0 || (below == 1 && ecfs_fail (error, EINVAL, "'%s' cannot be moved below itself", name));
}

static bool check_target (EcfsCatalog *self, const Move *move, GError **error)
{
    bool is_dir = S_ISDIR (move->inode.attr.mode), onto_dir = S_ISDIR (move->target.attr.mode);
    if (is_dir && !onto_dir)
        return ecfs_fail (error, ENOTDIR, "'%s' is not a directory, '%s' is one", move->new_name, move->name);
    if (!is_dir && onto_dir)
        return ecfs_fail (error, EISDIR, "'%s' is a directory, '%s' is not", move->new_name, move->name);
    int empty = onto_dir ? ecfs_dir_is_empty (self, move->target.attr.ino, error) : 1;
    return empty == 1 || (empty == 0 && ecfs_fail (error, ENOTEMPTY, "directory '%s' is not empty", move->new_name));
}

static bool touch_dirs (EcfsCatalog *self, Move *move, int links, int new_links, GError **error)
{
    if (move->same_dir)
        return ecfs_inode_touch_dir (self, &move->dir, links + new_links, move->now_ns, error);
    return ecfs_inode_touch_dir (self, &move->dir, links, move->now_ns, error) &&
           ecfs_inode_touch_dir (self, &move->new_dir, new_links, move->now_ns, error);
}

/* What has a name replaced by a file that is not stored yet goes on to exist under it as that file's content. Where it
 * has other names both have it until then. */
static bool keep_until_stored (EcfsCatalog *self, Move *move, GError **error)
{
    if (!S_ISREG (move->inode.attr.mode) || !S_ISREG (move->target.attr.mode))
        return true;
    int unstored = ecfs_staging_unstored (self, move->inode.attr.ino, error);
    return unstored == 0 || (unstored == 1 && ecfs_content_adopt (self, &move->inode, &move->target, error));
}

static bool replace (EcfsCatalog *self, Move *move, EcfsAttr *ret_replaced, GError **error)
{
    bool is_dir = S_ISDIR (move->inode.attr.mode);
    uint64_t parent = move->dir.attr.ino, new_parent = move->new_dir.attr.ino;
    if (move->has_target &&
        !(check_target (self, move, error) &&
          EXEC (self, ENTRY_DELETE, error, INT (new_parent), NAME (move->new_name)) &&
          ecfs_inode_lose_name (self, &move->target, move->now_ns, error) && keep_until_stored (self, move, error)))
        return false;
    ecfs_journal_put_name_removed (self->record, parent, move->name);
    ecfs_journal_put_name_added (self->record, new_parent, move->new_name, move->inode.attr.ino);
    move->inode.attr.ctime_ns = move->now_ns;
    int gained = is_dir && !move->has_target ? 1 : 0; /* a directory replaces only a directory */
    return EXEC (self, ENTRY_MOVE, error, INT (parent), NAME (move->name), INT (new_parent), NAME (move->new_name)) &&
           ecfs_inode_touch (self, &move->inode, false, error) &&
           touch_dirs (self, move, is_dir ? -1 : 0, gained, error) &&
           (!move->has_target || ecfs_attr_out (&move->target, ret_replaced));
}

static bool exchange (EcfsCatalog *self, Move *move, GError **error)
{
    uint64_t parent = move->dir.attr.ino, new_parent = move->new_dir.attr.ino;
    if (!check_circle (self, &move->target, &move->dir, move->new_name, error))
        return false;
    int links = (S_ISDIR (move->target.attr.mode) ? 1 : 0) - (S_ISDIR (move->inode.attr.mode) ? 1 : 0);
    move->inode.attr.ctime_ns = move->target.attr.ctime_ns = move->now_ns;
    ecfs_journal_put_name_added (self->record, new_parent, move->new_name, move->inode.attr.ino);
    ecfs_journal_put_name_added (self->record, parent, move->name, move->target.attr.ino);
    return EXEC (self, ENTRY_SET_INO, error, INT (parent), NAME (move->name), INT (move->target.attr.ino)) &&
           EXEC (self, ENTRY_SET_INO, error, INT (new_parent), NAME (move->new_name), INT (move->inode.attr.ino)) &&
           ecfs_inode_touch (self, &move->inode, false, error) &&
           ecfs_inode_touch (self, &move->target, false, error) && touch_dirs (self, move, links, -links, error);
}

static bool rename_entry (EcfsCatalog *self, Move *move, uint64_t parent, uint64_t new_parent, unsigned flags,
                          EcfsAttr *ret_replaced, GError **error)
{
    if ((flags & ~(unsigned) (RENAME_NOREPLACE | RENAME_EXCHANGE)) != 0 ||
        flags == (RENAME_NOREPLACE | RENAME_EXCHANGE))
        return ecfs_fail (error, EINVAL, "rename knows no flags %x", flags);
    *ret_replaced = (EcfsAttr){.ino = 0}; /* it may be done anew, and there was something then */
    if (!find_both (self, move, parent, new_parent, error))
        return false;
    if (move->has_target && flags == RENAME_NOREPLACE)
        return ecfs_fail (error, EEXIST, "'%s' exists", move->new_name);
    if (!move->has_target && flags == RENAME_EXCHANGE)
        return ecfs_fail (error, ENOENT, "'%s' does not exist", move->new_name);
    if (move->has_target && move->target.attr.ino == move->inode.attr.ino)
        return true;
    if (!check_circle (self, &move->inode, &move->new_dir, move->name, error))
        return false;
    move->now_ns = ecfs_real_ns ();
    return flags == RENAME_EXCHANGE ? exchange (self, move, error) : replace (self, move, ret_replaced, error);
}

bool ecfs_catalog_rename (EcfsCatalog *self, uint64_t parent, const char *name, uint64_t new_parent,
                          const char *new_name, unsigned flags, EcfsAttr *ret_replaced, GError **error)
{
    Move move = {.name = name, .new_name = new_name};
    EcfsAttr replaced = {.ino = 0};
    AHEAD (INODE_GET, INT (parent));
    AHEAD (INODE_GET, INT (new_parent));
    AHEAD (ENTRY_LOOKUP, INT (parent), NAME (name));
    AHEAD (ENTRY_LOOKUP, INT (new_parent), NAME (new_name));
    if (!CHANGE_CHECKED (self, error, rename_entry (self, &move, parent, new_parent, flags, &replaced, error)))
        return false;
    if (ret_replaced != NULL)
        *ret_replaced = replaced;
    return true;
}
