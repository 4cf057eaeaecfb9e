/*
 * Moving stored files to another code, object by object: recode.c does it in the archive that this process has opened
 * for writing, recode_cost.c tells what it takes, control/recode.c lets the mount do it that has the archive open.
 */
#ifndef ECFS_VERBS_RECODE_H
#define ECFS_VERBS_RECODE_H

#include "codec/codec.h"
#include "verbs/verbs.h"

/* What giving an object another code takes. */
typedef struct EcfsRecodeStep {
    const EcfsCodec *before;
    const EcfsCodec *codec;
    bool stays;                   /* it has the code, and all of its stripes */
    bool keeps[ECFS_CODEC_MAX_N]; /* stripes that stay as they are */
    unsigned n_stored;            /* stripes that are to be stored; where there are none, nothing is read */
    bool spools;                  /* the content is, to make them from: under a key stripes come of those that stay */
    bool packs;                   /* others share it: what the file has of it goes into a pack */
} EcfsRecodeStep;

/** @code NULL: it is sealed, in the code that it has. @packs_small: it is all of a file, and goes into a pack if it is
 * small. */
bool ecfs_recode_step (EcfsArchive *archive, const EcfsObjectRow *object, const char *code, bool packs_small,
                       EcfsRecodeStep *ret_step, GError **error);

/** The objects of a file, each once: GPtrArray of EcfsObjectRow with free function. ESTALE: they change right now. */
GPtrArray *ecfs_recode_objects (EcfsArchive *archive, uint64_t ino, GError **error);

/**
 * Calls @each for every regular file at or below a path, once also where it has several names, and whether newer
 * content of it is staged. EINVAL when the path is that of something without content.
 */
bool ecfs_recode_walk (EcfsArchive *archive, const char *path, void (*each) (void *user, const EcfsEntry *entry),
                       void *user, GError **error);

/** The code that a file's content is to have, lent until the next call; NULL: it stays as it is. */
typedef const char *EcfsRecodeChoice (void *chooser, const EcfsEntry *entry);

/* For whom recode.c works, and who is to know. */
typedef struct EcfsRecodeHere {
    const char *path;
    const char *code;         /* NULL: what has none gets a key, in the code that it has */
    EcfsRecodeChoice *choose; /* in place of @code, file by file; NULL: none. Files keep their own code, … */
    void *chooser;            /* … and it is their objects that get another */
    const EcfsTransferOptions *transfer; /* may be NULL */
    /* As in EcfsControlOps; NULL: nobody is to know. */
    void (*changed) (void *user, uint64_t ino);
    void *user;
} EcfsRecodeHere;

bool ecfs_recode_here (EcfsArchive *archive, const EcfsRecodeHere *what, GError **error);
/** EINVAL: the archive has no key to seal with. */
bool ecfs_recode_check_key (const EcfsArchive *archive, GError **error);
/** As the policies of directories and archive say (policy.c): of @what code and chooser are not looked at. */
bool ecfs_policy_here (EcfsArchive *archive, const EcfsRecodeHere *what, GError **error);
bool ecfs_policy_mounted (const char *archive_dir, const char *path, const EcfsTransferOptions *transfer,
                          GError **error);
/** What that would take, as ecfs_recode_cost (). */
char *ecfs_recode_cost_chosen (EcfsArchive *archive, const char *path, EcfsRecodeChoice *choose, void *chooser,
                               GError **error);
/** How many files that would be, and the bytes that would be moved. */
bool ecfs_recode_count_chosen (EcfsArchive *archive, EcfsRecodeChoice *choose, void *chooser, uint64_t *ret_files,
                               uint64_t *ret_bytes, GError **error);
bool ecfs_recode_mounted (const char *archive_dir, const char *path, const char *code,
                          const EcfsTransferOptions *transfer, GError **error);

#endif
