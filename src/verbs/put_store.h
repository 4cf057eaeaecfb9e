/*
 * What put.c walks is stored by one of two: put_here.c, in the archive that this process has opened for writing, and
 * put_mount.c, by the mount that has the archive open, over its control socket. Behind that is put_here.c again.
 *
 * A store is used by one thread; only cancel () may be called by another.
 */
#ifndef ECFS_VERBS_PUT_STORE_H
#define ECFS_VERBS_PUT_STORE_H

#include "archive/archive.h"
#include "ecfs/ecfs.h"

#include <sys/stat.h>

typedef struct EcfsPutStore EcfsPutStore;

/* A file on its way. */
typedef struct EcfsPutFile {
    int fd; /* the content; owned */
    /* Type, mode, owner and times that it is to have; size and mtime are those that fd had. */
    struct stat st;
    uint64_t parent;
    char *name;       /* owned */
    bool is_fixed;    /* nobody changes the content */
    bool fills;       /* it is stored as `ino`, and lacks stripes */
    void *user;       /* the caller's */
    uint64_t ino;     /* result */
    bool full;        /* result: all stripes are stored */
    GError *error;    /* result; owned */
    GError *warning;  /* result: something else than the content was not stored; owned */
    unsigned attempt; /* the store's */
} EcfsPutFile;

/** Takes @fd; @name is copied. */
EcfsPutFile *ecfs_put_file_new (int fd, const struct stat *st, uint64_t parent, const char *name);
/** NULL is accepted. */
void ecfs_put_file_free (EcfsPutFile *file);

/* Where to: an existing directory, or a new name in one. */
typedef struct EcfsPutPlace {
    uint64_t parent;
    char *name; /* NULL: sources keep their names in parent; owned */
} EcfsPutPlace;

typedef struct EcfsPutOps {
    /* Follows @path, making directories where there are none; @directory: all of it is one. */
    bool (*resolve) (EcfsPutStore *self, const char *path, bool directory, EcfsPutPlace *ret_place, GError **error);
    /* The directory of this name, made when there is none; its attributes come with dress (). */
    bool (*directory) (EcfsPutStore *self, uint64_t parent, const char *name, const struct stat *st, uint64_t *ret_ino,
                       GError **error);
    /* Attributes of the directory @ino, the extended ones from the open @fd, when all that is in it is there. */
    bool (*dress) (EcfsPutStore *self, uint64_t ino, int fd, const struct stat *st, GError **error);
    /* What is a name and nothing else; @target of a symbolic link, otherwise NULL. It replaces what has the name. */
    bool (*special) (EcfsPutStore *self, uint64_t parent, const char *name, const struct stat *st, const char *target,
                     GError **error);
    /* One more name of a file, in place of what has it. */
    bool (*link) (EcfsPutStore *self, uint64_t ino, uint64_t parent, const char *name, GError **error);
    /* Begins to store a file, which is lent until collect () gives it back. Its name appears, in place of what has it,
     * when it is stored. */
    void (*file) (EcfsPutStore *self, EcfsPutFile *file);
    /* Files that have ended; waits for one until @deadline_us when there are none. */
    void (*collect) (EcfsPutStore *self, int64_t deadline_us, GQueue *ret_files);
    /* Files that are on their way fail with ECANCELED, soon; so do later ones. */
    void (*cancel) (EcfsPutStore *self);
    /* All that was stored is durable when it returns true. */
    bool (*finish) (EcfsPutStore *self, GError **error);
    uint64_t (*wire_bytes) (EcfsPutStore *self); /* since it was made */
    void (*free) (EcfsPutStore *self);           /* nothing is on its way */
} EcfsPutOps;

struct EcfsPutStore {
    const EcfsPutOps *ops;
};

/* For whom put_here.c stores, and who is to know. */
typedef struct EcfsPutHere {
    const char *code; /* of all files; NULL: what directory and archive say */
    bool keeps_owners;
    uid_t uid; /* of all files otherwise */
    gid_t gid;
    /* As in EcfsControlOps; NULL: nobody is to know. */
    void (*renamed) (void *user, uint64_t parent, const char *name, const EcfsAttr *lost);
    void (*changed) (void *user, uint64_t ino);
    void *user;
    int wake_fd; /* an eventfd that is counted up when collect () has something; -1: none */
} EcfsPutHere;

/** Checks the code. Strings are copied. */
EcfsPutStore *ecfs_put_here_new (EcfsArchive *archive, const EcfsPutHere *options, GError **error);
/** ENOTCONN when the archive is not mounted. */
EcfsPutStore *ecfs_put_mount_new (const char *archive_dir, const char *code, GError **error);
/** Whichever of the two it takes. */
EcfsPutStore *ecfs_put_store_new (Ecfs *ecfs, const char *code, GError **error);

#endif
