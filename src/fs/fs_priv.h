/*
 * What the parts of fs share. An operation is a function of (request, inode, ...) that answers its request exactly
 * once, at once or from a callback; none waits for an endpoint.
 *
 * inode.c: who keeps an inode alive. Each inode that the kernel knows (lookups) or has open (handles) has an EcfsInode;
 * an inode without names is dropped from the catalog when both counts are zero.
 * name.c: the namespace; dir.c: listing; file.c: content; xattr.c: attributes by name; locks.c: flock and fcntl.
 */
#ifndef ECFS_FS_FS_PRIV_H
#define ECFS_FS_FS_PRIV_H

#define FUSE_USE_VERSION FUSE_MAKE_VERSION (3, 12)

#include "fs/mount.h"
#include "staging/staged.h"
#include "util/lock.h"

#include <fuse_lowlevel.h>
#include <inttypes.h>
#include <stdatomic.h>

#define ECFS_FS_REQUEST_BYTES (1u << 20) /* st_blksize and what is read ahead */

typedef struct EcfsFs {
    EcfsArchive *archive; /* immutable, as all up to the lock */
    EcfsCatalog *catalog;
    bool readonly;
    bool shared; /* other mounts may change anything */
    struct fuse_session *session;
    double timeout_s; /* of names and attributes in the kernel */
    /* Called at the first lookup, when the kernel has set up the connection; may be NULL: nothing to do then. */
    void (*connected) (struct EcfsFs *self);
    atomic_flag was_connected;
    struct EcfsFsFollow *follow; /* NULL: this mount follows nobody */
    struct EcfsFsLocks *locks;   /* NULL: the kernel has them */

    EcfsMutex lock;
    GHashTable *inodes;  /* &ino → EcfsInode; guarded by lock */
    GHashTable *handles; /* set of EcfsHandle; guarded by lock */
    GHashTable *said;    /* message → when, as int64_t *; guarded by lock */
} EcfsFs;

typedef struct EcfsInode {
    uint64_t ino;
    /* Guarded by fs->lock. */
    uint64_t n_lookups;
    unsigned n_handles;
    bool unlinked;
    int64_t no_capability_us; /* it had no security.capability then (0: who knows); the kernel asks at every write */
    unsigned content_epoch;   /* moved whenever someone begins to write: older content is not kept */
    unsigned doubts;          /* ecfs_archive_doubts () when the kernel's pages of it were believed last */
    EcfsAttr seen;            /* of a shared archive: as it was when it was opened last */
    EcfsContent *content;     /* committed content that was opened for reading; NULL: not yet */
} EcfsInode;

/* An open file or directory. */
typedef struct EcfsHandle {
    EcfsInode *inode;            /* one of its n_handles */
    bool writes;                 /* open for writing; immutable */
    EcfsStaged *staged;          /* NULL: it does not write; of a shared archive: or not now, guarded by fs->lock */
    unsigned n_uses;             /* of that; guarded by fs->lock, as the next */
    int64_t rests_us;            /* since when it has it and has written nothing; 0: it has written */
    EcfsContent *followed;       /* as opened, of a mount for reading only; guarded by fs->lock, as the next */
    EcfsAttr opened;             /* as it was then; valid with followed */
    atomic_bool lost_lock;       /* it had one, and another may have it now: nothing is read or written */
    atomic_int_least64_t at_end; /* of a directory: what was made after its listing began is not in it */
} EcfsHandle;

static inline EcfsFs *ecfs_fs_of (fuse_req_t req)
{
    return fuse_req_userdata (req);
}

static inline EcfsHandle *ecfs_handle_of (const struct fuse_file_info *fi)
{
    return (EcfsHandle *) (uintptr_t) fi->fh;
}

/* inode.c */
void ecfs_fs_init (EcfsFs *self, EcfsArchive *archive, bool readonly);
/** Releases what is open still, as after a mount that ended with open files. */
void ecfs_fs_clear (EcfsFs *self);

/** Answers with the errno of @error, which is logged (once) when it is more than an ordinary answer. ESTALE where it is
 * ENOENT as another process has removed the inode: the kernel looks the name up again, which may be another's now. */
void ecfs_fs_reply_error (fuse_req_t req, uint64_t ino, const char *operation, const GError *error);
/** The same without an answer. */
int ecfs_fs_log_error (EcfsFs *self, uint64_t ino, const char *operation, const GError *error);

/** The inode, a new one if nobody knew it. */
EcfsInode *ecfs_fs_inode_locked (EcfsFs *self, uint64_t ino) ECFS_REQUIRES (self->lock);
/** Of an inode as the catalog has it: what this mount shows of its size and times, which is what can be read here: that
 * with staged bytes, or, if it is for reading only, what is stored. @moment as in ecfs_staged_overlay (). */
void ecfs_fs_overlay (const EcfsFs *self, unsigned moment, EcfsAttr *attr);
void ecfs_fs_stat (const EcfsAttr *attr, struct stat *ret_stat);
/** A program that runs as its owner or group, until somebody truncates it. */
bool ecfs_fs_is_set_id (uint32_t mode);
/** How long the kernel may keep attributes. */
double ecfs_fs_attr_timeout_s (const EcfsFs *self, const EcfsAttr *attr);
/** The kernel gets to know an inode: counts a lookup and fills what it is told. @attr was read after @moment
 * (staged.h).
 */
void ecfs_fs_entry (EcfsFs *self, unsigned moment, EcfsAttr *attr, struct fuse_entry_param *ret_entry);
/** Answers with an entry; an answer that could not be delivered gives its lookup back. */
void ecfs_fs_reply_entry (fuse_req_t req, unsigned moment, EcfsAttr *attr);
void ecfs_fs_forget (EcfsFs *self, uint64_t ino, uint64_t n_lookups);
/** The inode has lost a name; without any it goes when nobody has it open. */
void ecfs_fs_lost_name (EcfsFs *self, const EcfsAttr *attr);

EcfsHandle *ecfs_fs_handle_new (EcfsFs *self, uint64_t ino, EcfsStaged *staged);
void ecfs_fs_handle_free (EcfsFs *self, EcfsHandle *handle);
/** What is written to, for a moment; NULL: none now. */
EcfsStaged *ecfs_fs_staged_begin (EcfsFs *self, EcfsHandle *handle);
void ecfs_fs_staged_end (EcfsFs *self, EcfsHandle *handle);
/** The same for one that had none, of which @staged is taken, as ecfs_staged_open () gives it. */
EcfsStaged *ecfs_fs_staged_again (EcfsFs *self, EcfsHandle *handle, EcfsStaged *staged);
/** A reference; NULL: none now. */
EcfsStaged *ecfs_fs_staged_ref (EcfsFs *self, const EcfsHandle *handle);
/** Of a shared archive: others may write the file, unless there is something that is not stored. */
void ecfs_fs_leave (EcfsFs *self, EcfsHandle *handle);
/** Of one that has written nothing yet: from now on it rests. */
void ecfs_fs_rests (EcfsFs *self, EcfsHandle *handle);
/** The same for all that have rested for a while. *@ret_due_us: when the next will have, INT64_MAX: none. */
void ecfs_fs_leave_resting (EcfsFs *self, int64_t *ret_due_us);

/* The operations of each part. */
void ecfs_fs_name_ops (struct fuse_lowlevel_ops *ops);
void ecfs_fs_dir_ops (struct fuse_lowlevel_ops *ops);
void ecfs_fs_file_ops (struct fuse_lowlevel_ops *ops);
void ecfs_fs_xattr_ops (struct fuse_lowlevel_ops *ops);
/** Notes whether an inode that the kernel knows has a security.capability, as of a new one. */
void ecfs_fs_note_capability (EcfsFs *self, uint64_t ino, bool absent);

/* file.c */
/** truncate(2) of the file behind a setattr; @done once, NULL or an error. */
void ecfs_fs_truncate (EcfsFs *self, uint64_t ino, EcfsHandle *handle, uint64_t size,
                       void (*done) (void *user, const GError *error), void *user);
/** Where data or a hole (SEEK_DATA, SEEK_HOLE) begins at or after @offset; UINT64_MAX: nowhere. */
uint64_t ecfs_fs_seek (const GArray *extents, uint64_t size, uint64_t offset, int whence);
/** Has what was written of a file stored, as close(2) does, and calls @done once with an errno. @operation is for
 * messages. False: there is nothing to store, and nothing is called. */
bool ecfs_fs_store (fuse_req_t req, uint64_t ino, const char *operation, void (*done) (void *user, int code),
                    void *user);
/** Whether it is staged, and nothing is in it. */
bool ecfs_fs_is_empty (EcfsFs *self, uint64_t ino);
/** Of a shared archive: what is read from now on is what is stored now. May wait until reads have ended. */
void ecfs_fs_look_again (EcfsFs *self, uint64_t ino);

/* follow.c: all but begin () accept NULL. */
typedef struct EcfsFsFollow EcfsFsFollow;
/** Takes the archive's lock and looks at the endpoints for the first time; where that fails, it is said, and what the
 * catalog has is shown until it succeeds. */
EcfsFsFollow *ecfs_fs_follow_begin (EcfsFs *fs, struct fuse_session *session, GError **error);
/** From now on looks at them every few seconds. */
void ecfs_fs_follow_start (EcfsFsFollow *self);
/** Calls @then once, from another thread, when what is newer was looked for. False: nobody looks any more. */
bool ecfs_fs_follow_then (EcfsFsFollow *self, void (*then) (void *user), void *user);
/** Opens a file for reading: what is read is what there is now, whatever another machine puts in its place. */
void ecfs_fs_open_followed (fuse_req_t req, uint64_t ino, struct fuse_file_info *fi);
/** What is to be read, where it is now; a reference. @anew: that could not be read, so it is looked for elsewhere.
 * ESTALE: it is nowhere, as something else has taken its place. */
EcfsContent *ecfs_fs_followed (EcfsFs *self, EcfsHandle *handle, bool anew, GError **error);
/** Of an inode that is gone, and open. */
bool ecfs_fs_followed_attr (EcfsFs *self, uint64_t ino, EcfsAttr *ret_attr);
/** Ends the looking; who waits is called. */
void ecfs_fs_follow_stop (EcfsFsFollow *self);
/** After stop (), when no operation is under way. */
void ecfs_fs_follow_free (EcfsFsFollow *self);

/* locks.c: all but the operations accept NULL, which start () returns where the kernel has the locks. */
typedef struct EcfsFsLocks EcfsFsLocks;
EcfsFsLocks *ecfs_fs_locks_start (EcfsFs *fs);
/** When the kernel asks no more: gives all back. */
void ecfs_fs_locks_stop (EcfsFsLocks *self);
/** When no operation is under way. */
void ecfs_fs_locks_free (EcfsFsLocks *self);
/** Answers a close of a descriptor with @code, when what @owner has locked with fcntl is free. */
void ecfs_fs_locks_close (fuse_req_t req, uint64_t ino, uint64_t owner, int code);
/** Ends an open file, and what was locked with it; answers. */
void ecfs_fs_locks_release (fuse_req_t req, EcfsHandle *handle);
/** Whether another mount has locked the file, or a part. */
bool ecfs_fs_locks_held_elsewhere (EcfsFsLocks *self, uint64_t ino);
/** A file rests that was opened for writing (ecfs_fs_leave_resting ()). */
void ecfs_fs_locks_opened (EcfsFsLocks *self);
/** Has the kernel forget, soon, what it has of a file; where mounts share locks. */
void ecfs_fs_locks_forget (EcfsFsLocks *self, uint64_t ino);
void ecfs_fs_lock_ops (struct fuse_lowlevel_ops *ops);

/* options.c */
/** Appends ",NAMEVALUE" to a list for libfuse, with commas of the value escaped. */
void ecfs_fs_add_option (GString *to, const char *name, const char *value);

/* report.c: all accept NULL, which start returns where there is no service manager. */
typedef struct EcfsReport EcfsReport;
EcfsReport *ecfs_report_start (EcfsArchive *archive, const char *mountpoint);
void ecfs_report_ready (EcfsReport *self);
void ecfs_report_stopping (EcfsReport *self);
void ecfs_report_stop (EcfsReport *self);

/* umount.c */
/** The device of our mount on @mountpoint, found without asking the mount itself; 0: there is none. */
dev_t ecfs_fs_device (const char *mountpoint);
/** Unmounts with umount2's @flags, with the help of fusermount3 where that takes more rights. EBUSY: it is in use. */
bool ecfs_fs_detach (const char *mountpoint, int flags, GError **error);
/** Takes away what a mount of the archive in @directory left on @mountpoint when its process died. */
void ecfs_fs_clear_dead (const char *directory, const char *mountpoint);
/** Changes the kernel's flags of a mount. EROFS: it was mounted for reading only. */
bool ecfs_fs_remount (const EcfsMountOptions *options, GError **error);

/* caller.c */
/** Whether the thread @pid has a pending SIGKILL or is dying of one. */
bool ecfs_fs_is_killed (pid_t pid);

#endif
