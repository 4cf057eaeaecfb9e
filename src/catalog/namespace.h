/*
 * The namespace: inodes, the names that lead to them, their attributes and extended attributes. What files consist of
 * is in content.h, which code they have in codes.h. Durability, threads and errors are as in catalog.h.
 */
#ifndef ECFS_CATALOG_NAMESPACE_H
#define ECFS_CATALOG_NAMESPACE_H

#include "util/error.h"

#include <stdint.h>

typedef struct EcfsCatalog EcfsCatalog;

#define ECFS_ROOT_INO 1
#define ECFS_NAME_MAX 255

/* Attributes */

typedef struct EcfsAttr {
    uint64_t ino;  /* never reused */
    uint32_t mode; /* type and permissions as in st_mode */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint64_t rdev;
    uint64_t size; /* bytes: of content (staged, if there is such) for files, of the target for symlinks, else 0 */
    uint64_t committed_size; /* of a file: what it has of @size without staged bytes */
    uint64_t data_bytes;     /* of committed content, without its holes */
    int64_t atime_ns;
    int64_t mtime_ns;
    int64_t ctime_ns;
    int64_t btime_ns;
    int64_t committed_mtime_ns; /* what @mtime_ns was before bytes were staged */
} EcfsAttr;

typedef enum EcfsAttrMask {
    ECFS_ATTR_MODE = 1 << 0, /* permission bits only: the type stays */
    ECFS_ATTR_UID = 1 << 1,
    ECFS_ATTR_GID = 1 << 2,
    ECFS_ATTR_SIZE = 1 << 3,
    ECFS_ATTR_ATIME = 1 << 4,
    ECFS_ATTR_MTIME = 1 << 5,
    ECFS_ATTR_CTIME = 1 << 6,
} EcfsAttrMask;

bool ecfs_catalog_getattr (EcfsCatalog *self, uint64_t ino, EcfsAttr *ret_attr, GError **error);

/**
 * Sets the fields in @mask (ECFS_ATTR_*) from @attr; ctime becomes now unless ECFS_ATTR_CTIME gives it. While the inode
 * has a staging row that is not STORED a size is that of the staged bytes; otherwise it truncates or extends the
 * committed content. EISDIR, EINVAL when that is asked of something else than a regular file.
 */
bool ecfs_catalog_setattr (EcfsCatalog *self, uint64_t ino, const EcfsAttr *attr, unsigned mask, EcfsAttr *ret_attr,
                           GError **error);

/** The number that the next inode gets: all inodes that ever were have smaller ones. */
bool ecfs_catalog_next_ino (EcfsCatalog *self, uint64_t *ret_ino, GError **error);

/* Names are byte strings of 1..255 bytes without '/' and NUL, given as C strings. */

bool ecfs_catalog_lookup (EcfsCatalog *self, uint64_t parent, const char *name, EcfsAttr *ret_attr, GError **error);

/* What a new inode starts with. Its times are now; a file's code is that of the nearest directory above. */
typedef struct EcfsNewInode {
    uint32_t mode; /* with type; set-group-id inheritance is done by the catalog as in a Linux directory */
    uint32_t uid;
    uint32_t gid;
    uint64_t rdev;
    const char *target; /* of a symlink; NULL otherwise */
    bool staged;        /* a regular file that gets a staging row in the same transaction, state OPEN, fresh */
} EcfsNewInode;

/**
 * Makes a file, directory, symlink, device, fifo or socket. EEXIST. @ret_staging (may be NULL): the staging row's id.
 * @name NULL, not for directories and what is staged: an inode with nlink 0 as if it were made in @parent, which gets
 * its name by ecfs_catalog_link_over () and is dropped by ecfs_catalog_drop () or at the next mount when it never does.
 */
bool ecfs_catalog_make (EcfsCatalog *self, uint64_t parent, const char *name, const EcfsNewInode *inode,
                        EcfsAttr *ret_attr, int64_t *ret_staging, GError **error);

bool ecfs_catalog_link (EcfsCatalog *self, uint64_t ino, uint64_t parent, const char *name, EcfsAttr *ret_attr,
                        GError **error);

/**
 * Gives an inode, which may have nlink 0, a name in place of what has this name; at once, so nobody finds the name
 * missing. *ret_replaced is what lost it, as of ecfs_catalog_rename (). EISDIR when that is a directory. Nothing
 * happens when the name is the inode's already.
 */
bool ecfs_catalog_link_over (EcfsCatalog *self, uint64_t ino, uint64_t parent, const char *name, EcfsAttr *ret_replaced,
                             GError **error);

/** Removes a name that is no directory. The inode stays with nlink 0 until ecfs_catalog_drop () when that was its last.
 */
bool ecfs_catalog_unlink (EcfsCatalog *self, uint64_t parent, const char *name, EcfsAttr *ret_attr, GError **error);
/** Removes an empty directory; its inode stays with nlink 0 until ecfs_catalog_drop (). */
bool ecfs_catalog_rmdir (EcfsCatalog *self, uint64_t parent, const char *name, EcfsAttr *ret_attr, GError **error);

/**
 * rename(2) with renameat2's RENAME_NOREPLACE and RENAME_EXCHANGE in @flags. A directory is never moved below itself
 * (EINVAL). *ret_replaced is the inode that lost its name (nlink may be 0: drop it when nothing has it open), or has
 * ino 0. Renaming onto another name of the same inode does nothing.
 */
bool ecfs_catalog_rename (EcfsCatalog *self, uint64_t parent, const char *name, uint64_t new_parent,
                          const char *new_name, unsigned flags, EcfsAttr *ret_replaced, GError **error);

/** The target, g_free (). */
char *ecfs_catalog_readlink (EcfsCatalog *self, uint64_t ino, GError **error);

/**
 * Deletes an inode with nlink 0 with its extents, xattrs and staging rows; objects that nothing else names go to the
 * deletion queue. Not an error when nlink is above 0 or it is gone: nothing happens.
 */
bool ecfs_catalog_drop (EcfsCatalog *self, uint64_t ino, GError **error);

/** Drops every inode with nlink 0 that has changed last at @until_ns or before: what nothing has open. INT64_MAX: at
 * mount, when nothing is. */
bool ecfs_catalog_drop_orphans (EcfsCatalog *self, int64_t until_ns, GError **error);

/* Directories and paths */

typedef struct EcfsDirent {
    char *name;
    int64_t offset; /* give it as @after to continue after this entry; stable while entries come and go */
    EcfsAttr attr;
} EcfsDirent;

/**
 * Up to @max entries of a directory with offsets above @after (0: from the start), in offset order, without "." and
 * "..". Returns an array of EcfsDirent with free function, empty at the end.
 */
GPtrArray *ecfs_catalog_readdir (EcfsCatalog *self, uint64_t ino, int64_t after, size_t max, GError **error);

/** The highest offset that an entry of any directory has until now; what is made later has higher ones. */
int64_t ecfs_catalog_last_offset (EcfsCatalog *self);

/** The parent of a directory (the root's is the root). */
bool ecfs_catalog_parent (EcfsCatalog *self, uint64_t ino, uint64_t *ret_parent, GError **error);

/** One path of an inode below the root, for messages: "/a/b", or "inode 17 (no name)"; g_free (). Never NULL. */
char *ecfs_catalog_path (EcfsCatalog *self, uint64_t ino);

/** All paths of an inode that is no directory, each as above: GPtrArray of char * that it frees; NULL. */
GPtrArray *ecfs_catalog_paths (EcfsCatalog *self, uint64_t ino, GError **error);

/** Walks a path of names separated by '/' from the root, not following symlinks. */
bool ecfs_catalog_resolve (EcfsCatalog *self, const char *path, EcfsAttr *ret_attr, GError **error);

/* Extended attributes */

/** @flags: XATTR_CREATE, XATTR_REPLACE or 0. */
bool ecfs_catalog_setxattr (EcfsCatalog *self, uint64_t ino, const char *name, const void *value, size_t size,
                            int flags, GError **error);
/* A value that is a text. */
typedef struct EcfsXattrChange {
    uint64_t ino;
    char *value; /* owned by whoever has the array */
} EcfsXattrChange;

/** Sets one attribute of several inodes, of all or of none; waits until that is on disk. */
bool ecfs_catalog_setxattrs (EcfsCatalog *self, const char *name, const EcfsXattrChange *changes, size_t n,
                             GError **error);
/** ENODATA when there is none. The array is g_byte_array_unref ()ed by the caller. */
GByteArray *ecfs_catalog_getxattr (EcfsCatalog *self, uint64_t ino, const char *name, GError **error);
/** Names, each with its NUL, one after the other, as listxattr(2) gives them. */
GByteArray *ecfs_catalog_listxattr (EcfsCatalog *self, uint64_t ino, GError **error);
/** Whether any inode has one of this name. */
bool ecfs_catalog_knows_xattr (EcfsCatalog *self, const char *name, bool *ret_any, GError **error);
/** Up to @max inodes above @after that have the attribute, in order; GArray of uint64_t, empty at the end. */
GArray *ecfs_catalog_xattr_inodes (EcfsCatalog *self, const char *name, uint64_t after, unsigned max, GError **error);
/** What the nearest of a directory and those above it says that has the attribute; *ret_value is NULL where none has,
 * else for g_byte_array_unref (). */
bool ecfs_catalog_xattr_above (EcfsCatalog *self, uint64_t dir, const char *name, GByteArray **ret_value,
                               GError **error);
/** The directories in which an inode has a name: GArray of uint64_t, each once. */
GArray *ecfs_catalog_file_directories (EcfsCatalog *self, uint64_t ino, GError **error);
/** Those of all files that have something of an object. */
GArray *ecfs_catalog_object_directories (EcfsCatalog *self, int64_t object, GError **error);
bool ecfs_catalog_removexattr (EcfsCatalog *self, uint64_t ino, const char *name, GError **error);

#endif
