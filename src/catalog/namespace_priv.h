/* Inodes, and the names that lead to them. */
#ifndef ECFS_CATALOG_NAMESPACE_PRIV_H
#define ECFS_CATALOG_NAMESPACE_PRIV_H

#include "catalog/db.h"

typedef struct Inode {
    EcfsAttr attr;
    uint64_t committed_size; /* of the content that extents describe; attr.size may be that of staging */
    bool mtime_is_staged;    /* attr.mtime_ns is that of staged bytes, and the next that of the stored ones */
    int64_t committed_mtime_ns;
    uint64_t extents_sum; /* of all extents, as the row has it; see content_sum.c */
    bool has_code;
    char code[ECFS_CODE_MAX + 1];
} Inode;

/* inode.c */

/** Reads INODE_COLUMNS from @column on. */
bool ecfs_inode_from_row (EcfsQuery *query, int column, Inode *ret_inode, GError **error);
/** What may leave this machine: the size and the modification time of stored content, whatever staging has. */
EcfsAttr ecfs_inode_committed (const Inode *inode);
/** Before attr.mtime_ns becomes that of staged bytes. */
void ecfs_inode_keep_mtime (Inode *inode);
/** ENOENT when there is none. */
bool ecfs_inode_get (EcfsCatalog *self, uint64_t ino, Inode *ret_inode, GError **error);
/** The same for a directory that still has its name: ENOTDIR, ENOENT. */
bool ecfs_inode_get_dir (EcfsCatalog *self, uint64_t ino, Inode *ret_inode, GError **error);
/** Adds and journals a new inode; @target is that of a symlink, else NULL. */
bool ecfs_inode_insert (EcfsCatalog *self, const Inode *inode, const char *target, GError **error);
/** Stores all but nlink and rdev. */
bool ecfs_inode_store (EcfsCatalog *self, const Inode *inode, GError **error);
/** Stores sizes, times and sum of what a regular file consists of; EBADMSG: it is none. */
bool ecfs_inode_fill (EcfsCatalog *self, const Inode *inode, GError **error);
/** The same, and journals the inode. */
bool ecfs_inode_update (EcfsCatalog *self, const Inode *inode, GError **error);
/** Stores and journals times; the link count too when that @relinked. */
bool ecfs_inode_touch (EcfsCatalog *self, const Inode *inode, bool relinked, GError **error);
/** mtime and ctime of a directory become @now_ns, its link count changes by @links. */
bool ecfs_inode_touch_dir (EcfsCatalog *self, Inode *dir, int links, int64_t now_ns, GError **error);
/** Of a shared catalog: the attributes of a directory that this process has just changed, as the next that the kernel
 * asks for, without asking the database; what others have made of it since is younger than its timeouts by far. */
bool ecfs_inode_touched (const EcfsCatalog *self, uint64_t ino, EcfsAttr *ret_attr) ECFS_REQUIRES (self->lock);
/** 1..255 bytes, no '/', neither "." nor "..". */
bool ecfs_name_check (const char *name, GError **error);
/** 1: found, *ret_inode set; 0: no such name; -1: @error. */
int ecfs_entry_find (EcfsCatalog *self, uint64_t parent, const char *name, Inode *ret_inode, GError **error);
/** The parent and name (may be NULL; g_free) of one entry of an inode. 1, 0: has none, -1. */
int ecfs_entry_of (EcfsCatalog *self, uint64_t ino, uint64_t *ret_parent, char **ret_name, GError **error);
/** Copies @inode's attributes to @ret_attr where that is not NULL; always true. */
bool ecfs_attr_out (const Inode *inode, EcfsAttr *ret_attr);

/** A name from a row, g_free (); NULL and EBADMSG when it is none. @parent is for the message. */
char *ecfs_column_name (EcfsQuery *query, int column, int64_t parent, GError **error);

/* namespace.c */

/** The inode from which what is made in a directory has its code: itself, or the nearest above it that has one; else
 * with has_code false. */
bool ecfs_code_above (EcfsCatalog *self, const Inode *dir, Inode *ret_holder, GError **error);

/** What ecfs_catalog_path () does. */
char *ecfs_path_find (EcfsCatalog *self, uint64_t ino);
/** What ecfs_catalog_drop () does. */
bool ecfs_inode_drop (EcfsCatalog *self, uint64_t ino, GError **error);

/** 1, 0, -1. */
int ecfs_dir_is_empty (EcfsCatalog *self, uint64_t ino, GError **error);
/** Whether directory @ino is @above or somewhere in it: 1, 0, -1. */
int ecfs_dir_is_below (EcfsCatalog *self, uint64_t ino, uint64_t above, GError **error);
/** One link less (none for a directory), stored and journalled. */
bool ecfs_inode_lose_name (EcfsCatalog *self, Inode *inode, int64_t now_ns, GError **error);

/* xattr.c */

/** What ecfs_catalog_xattr_above () does; of a file, whichever of its directories it is. */
bool ecfs_xattr_above (EcfsCatalog *self, uint64_t dir, const char *name, GByteArray **ret_value, GError **error);
/** What ecfs_catalog_file_directories () does. */
GArray *ecfs_directories_of (EcfsCatalog *self, uint64_t ino, GError **error);

#endif
