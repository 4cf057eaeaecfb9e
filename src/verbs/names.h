/*
 * Changes of names by verbs: removing, moving, making directories. By the process that has the archive open for
 * writing: the mount on behalf of who asks through control.sock, or a verb where nothing is mounted.
 */
#ifndef ECFS_VERBS_NAMES_H
#define ECFS_VERBS_NAMES_H

#include "archive/archive.h"

/* Who is to know what verbs change: a mount. */
typedef struct EcfsNameWatch {
    /* A verb has made a name, or put another inode in its place: @lost, which then may have no name left and is the
     * callee's to drop; its ino is 0 where the name is new. May be NULL: nobody but the verb uses the archive. */
    void (*renamed) (void *user, uint64_t parent, const char *name, const EcfsAttr *lost);
    /* A verb has changed the attributes of an inode. Likewise. */
    void (*changed) (void *user, uint64_t ino);
    void *user;
} EcfsNameWatch;

typedef struct EcfsNames {
    EcfsArchive *archive;       /* open for writing */
    const EcfsNameWatch *watch; /* who is to know; NULL: nobody else uses the archive */
    uid_t uid;                  /* of directories that are made */
    gid_t gid;
} EcfsNames;

/** Removes what @path names; a directory that is not empty only when @recursive (ENOTEMPTY). Durable when true. */
bool ecfs_names_remove (const EcfsNames *self, const char *path, bool recursive, GError **error);

/**
 * rename(2) of @from to @to; when @to is a directory, to its own name in there. What has the new name is replaced as
 * rename(2) does, with @keep never (EEXIST). Durable when true.
 */
bool ecfs_names_move (const EcfsNames *self, const char *from, const char *to, bool keep, GError **error);

/** Makes a directory with the permissions @mode; with @parents also those on the way, and it may be there already. */
bool ecfs_names_make_directory (const EcfsNames *self, const char *path, uint32_t mode, bool parents, GError **error);

/** A name is new (then the number of @lost is 0), or leads elsewhere, or nowhere; @lost may have lost its last. */
void ecfs_names_changed (const EcfsNames *self, uint64_t parent, const char *name, const EcfsAttr *lost);

/** Splits a path of the archive into its names, without empty ones and "."; EINVAL for "..". g_strfreev () */
char **ecfs_names_split (const char *path, GError **error);

#endif
