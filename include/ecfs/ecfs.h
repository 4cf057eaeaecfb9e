/*
 * libecfs: what programs build on. An archive directory is opened, files go in and out, facts come as JSON text.
 *
 * Errors are GErrors of the domain ECFS_ERROR whose code is an errno and whose text tells a user what failed and what
 * to do. Strings are UTF-8 or bytes as the file system has them; paths inside an archive are separated by "/" and begin
 * at its root whether or not they begin with "/".
 *
 * Threads: one Ecfs, with the files opened through it, is used by one thread at a time, except for ecfs_file_pread ();
 * several Ecfs by several. Callbacks come from inside the call, in the caller's thread.
 */
#ifndef ECFS_ECFS_H
#define ECFS_ECFS_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

G_BEGIN_DECLS
#pragma GCC visibility push(default) /* libecfs.so exports what is declared here, and nothing else */

#define ECFS_ERROR (ecfs_error_quark ())
GQuark ecfs_error_quark (void);

/* Without an archive. JSON is that of RFC 8259, and is freed with g_free (). */

#define ECFS_MAX_STRIPES 256 /* of any code */

/** What is in this library as a JSON object: `version`, `codes` (families), `rs_providers`, `schemes` of endpoints,
 * `schemes_left_out` when it was built, `libraries` with their versions. */
char *ecfs_features (void);

/**
 * What @code buys as a JSON object (ecfs-plan(1) lists the members): how often a file cannot be read, space, repair.
 *
 * @code:         also "mds:K+M", "peeling:K+M" and "sparse:K+M", which hold no data
 * @availability: how often each of @n_endpoints can be reached, from 0 to 1; with one figure, how often any
 *
 * EINVAL: there is no such code, or it needs more endpoints.
 */
char *ecfs_plan (const char *code, const double *availability, unsigned n_endpoints, GError **error);

/* What an account asks for, in millionths of a currency that nobody names. */
typedef struct EcfsPrices {
    uint64_t storage;  /* for 10^9 bytes and month */
    uint64_t requests; /* for 1000 of them */
    uint64_t egress;   /* for 10^9 bytes that are read */
} EcfsPrices;

/** Parses "STORAGE[/REQUESTS[/EGRESS]]", each as in ecfs.conf; what is left out is 0. False: not that. */
bool ecfs_parse_prices (const char *text, EcfsPrices *ret_prices);

typedef struct EcfsPlanned {
    const EcfsPrices *prices; /* of each endpoint, over which objects rotate; of one: of any */
    unsigned n_endpoints;
    uint64_t bytes, n_objects; /* that are stored; a file is one, unless it is small */
} EcfsPlanned;

/**
 * What so much costs in @code, as a JSON object (ecfs-plan(1) lists the members of "costs"): a month of storage, and to
 * store it, read it and rebuild an endpoint once. g_free (). EINVAL: there is no such code, or it needs more endpoints.
 */
char *ecfs_plan_cost (const char *code, const EcfsPlanned *what, GError **error);

/** @text as one line that changes nothing on a terminal: names of files come from accounts that may lie. g_free () */
char *ecfs_printable (const char *text);

/** Parses digits with an optional unit as coreutils take them: K or KiB, M, G, T are powers of 1024; kB (or KB), MB,
 * GB, TB are powers of 1000. False: not that. */
bool ecfs_parse_size (const char *text, uint64_t *ret_bytes);

/** Parses digits with "ms", "s" (default), "m", "h" or "d" to microseconds. False: not that. */
bool ecfs_parse_duration (const char *text, int64_t *ret_us);

/** The name that the endpoint "[NAME=]URL[,KEY=VALUE...]" has or gets, g_free (). EINVAL: it makes no sense. */
char *ecfs_parse_endpoint (const char *endpoint, GError **error);

/**
 * The path in its archive that @path in a mount stands for ("/" for the mountpoint), g_free (); *ret_directory gets the
 * archive's directory, g_free (). NULL: it is in no mount of an archive. This works for the mountpoint of a mount that
 * hangs, and for names directly in it.
 */
char *ecfs_mounted_path (const char *path, char **ret_directory);

/* By the directory of an archive alone: no endpoint is asked. */

/** The endpoints as a JSON array of objects with name, zone, uuid, state, and url where ecfs.conf has them. */
char *ecfs_list_endpoints (const char *directory, GError **error);

/** Whether there was an endpoint @name that was removed, and is none now. */
bool ecfs_endpoint_was_removed (const char *directory, const char *name, bool *ret_removed, GError **error);

/**
 * What becomes of a file that is stored now, where all endpoints that take stripes can be reached, as a JSON object:
 * `code`, `k`, `n`, `endpoints` that take stripes, their `zones`, and how many of them, whichever these are, may vanish
 * without any file becoming unreadable: `endpoints_may_vanish`, `zones_may_vanish`. `stripes_without_place`: there are
 * too few endpoints. `key_threshold`: of the zones, so many bring the key back that they share; absent: they share
 * none.
 */
char *ecfs_promise (const char *directory, GError **error);

/**
 * What is not on the endpoints yet as a JSON object: files `staged`, objects that are `not_full`, stripes that wait for
 * their `deletions`, and `changes_behind`: of names, that would be lost with this machine, or with the database. Where
 * others have it open for writing, the `leader` of these stores them.
 */
char *ecfs_backlog (const char *directory, GError **error);

/** What it means that an archive cannot be opened, as ecfs_open () says by @error: the members of ecfs_status () that
 * tell the verdict, and what to do. */
char *ecfs_diagnose (const char *directory, const GError *error);

typedef struct Ecfs Ecfs;

/**
 * Makes an archive: the directory (created when absent, must be empty otherwise) with its ecfs.conf and its catalog,
 * and a marker at each endpoint. Nothing is left half-made.
 *
 * @code:      how files are made redundant, as "rs:4+2"; NULL: the default
 * @endpoints: "[NAME=]URL[,KEY=VALUE...]", NULL-terminated
 * @settings:  "KEY=VALUE" of the section [archive] of ecfs.conf(5), NULL-terminated; NULL: none
 * @key:       under which key it stores. "split" or NULL: one that the endpoints share; "file": one that is the file
 *             "key" in its directory alone; "none": none
 *
 * EINVAL: one of these makes no sense, or there are too few endpoints for the code. EDOM: the endpoints are in too few
 * zones to share a key that comes back without as many of them as may vanish, and that as many cannot read.
 */
bool ecfs_init (const char *directory, const char *code, const char *const *endpoints, const char *const *settings,
                const char *key, GError **error);

/* A way in which the keys of an archive are kept, beside its directory. */
typedef struct EcfsKeyWay {
    /* "none", "file" (of ecfs_init () alone); "split": endpoints share it; "passphrase": one, and what they share;
     * "alone": a passphrase alone; "code"; "recipient": who has the private half of a key. */
    const char *kind;
    /* The passphrase; the code, of ecfs_new_code (); a public X25519 key, as PEM or in base 64. NULL where there is
     * none. */
    const char *secret;
} EcfsKeyWay;

/** The same, where the key is kept in any of these ways. */
bool ecfs_init_with_key (const char *directory, const char *code, const char *const *endpoints,
                         const char *const *settings, const EcfsKeyWay *key, GError **error);

/** A new code as it is written down; to be overwritten and g_free ()d. */
char *ecfs_new_code (void);

typedef enum EcfsOpenFlags {
    /* Files may be put. Where the archive is mounted the mount stores them; else this takes the archive's lock, EBUSY
     * where another writer has it. Without this, it is opened for reading, also beside a mount. */
    ECFS_OPEN_WRITE = 1 << 0,
    /* With that: also what is done once for all machines that have the archive open (catalog_mounts = many), as
     * changing endpoints, codes and keys, bringing back and repairing. EBUSY where another leads them. */
    ECFS_OPEN_LEAD = 1 << 1,
} EcfsOpenFlags;

/** Opens the archive in @directory and starts its endpoints. For ecfs_close (). */
Ecfs *ecfs_open (const char *directory, unsigned flags, GError **error);

/**
 * Ends what is under way and closes. Damage that was read around is queued for repair. Before that, endpoints that were
 * found without a stripe are asked for it once more, which lasts until they answer or are given up. NULL is accepted.
 */
void ecfs_close (Ecfs *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Ecfs, ecfs_close)

typedef struct EcfsProgress {
    uint64_t n_found;    /* files met so far */
    uint64_t n_done;     /* of these, stored or fetched */
    uint64_t n_failed;   /* or not */
    uint64_t n_current;  /* of those that are done, files that were left as they are since nothing changed */
    uint64_t n_not_full; /* stored with fewer stripes than their code has, but with their quorum */
    uint64_t bytes_done; /* content of the files that are done */
    uint64_t wire_bytes; /* sent to or received from endpoints since ecfs_open () */
} EcfsProgress;

/* How files are transferred; all may be NULL. */
typedef struct EcfsTransferOptions {
    const char *code; /* for put: the code of these files; NULL: what directory and archive say */
    bool update;      /* for put and get: files that are there already with this size and time stay as they are */
    /* Called a few times a second; false ends the transfer with ECANCELED. */
    bool (*progress) (void *user, const EcfsProgress *progress);
    /* A file could not be transferred, or not entirely (a warning: it counts as done); others go on. */
    void (*problem) (void *user, const GError *error, bool warning);
    void *user;
} EcfsTransferOptions;

/**
 * Stores files and directories (with all below them) in an archive opened for writing: content, modes, times, symbolic
 * links, extended attributes of the user namespace, owners; hard links among @sources stay hard links. A file of the
 * same name is replaced when the new one is stored; its other hard links keep the old content.
 *
 * @sources: NULL-terminated; "-" is standard input. Symbolic links named here are followed, those found below are not
 * @path:    a directory to put them in when it is one or there are several sources, else the new name; directories
 *           on the way are made
 *
 * False when any file failed: with the first error, or with how many there were when @transfer has `problem`, which got
 * each of them.
 */
bool ecfs_put (Ecfs *self, const char *const *sources, const char *path, const EcfsTransferOptions *transfer,
               GError **error);

/**
 * Fetches files and directories (with all below them) into @directory, which is made when absent. If a single file is
 * fetched, and @directory is not one and does not end with "/", it is the file's new name. A file appears under its
 * name when it is complete, and replaces what has that name. Errors as ecfs_put ().
 */
bool ecfs_get (Ecfs *self, const char *const *paths, const char *directory, const EcfsTransferOptions *transfer,
               GError **error);

/**
 * Reads files, and directories with all below them, so that the archive's cache has them (cache_size in ecfs.conf).
 * ENOTSUP: there is none; ENOSPC: some of it found no room there. Else as ecfs_put ().
 */
bool ecfs_warm (Ecfs *self, const char *const *paths, const EcfsTransferOptions *transfer, GError **error);

/**
 * What the archive's cache has, as a JSON object: "directory", "max_bytes", "bytes", "pinned_bytes", "segments",
 * "freed_bytes", and "trouble" where nothing is added to it for now. @drop: removes all of it before. ENOTSUP: there is
 * none. g_free ()
 */
char *ecfs_cache (Ecfs *self, bool drop, GError **error);

/** Writes the content of one file to @fd from its position on, without seeking. */
bool ecfs_cat (Ecfs *self, const char *path, int fd, GError **error);

/*
 * Single files, read and written piece by piece without a mount; ecfs_get () and ecfs_put () are for many. All files of
 * an archive are closed before it is.
 */
typedef struct EcfsFile EcfsFile;

typedef enum EcfsFileFlags {
    /* New content, from its first byte on. It becomes the file's when it is closed; until then, and where that fails,
     * the file is what it was. The archive is open for writing (EROFS). Without this: for reading. */
    ECFS_FILE_WRITE = 1 << 0,
} EcfsFileFlags;

/* Of a file that is written. NULL in place of it is the same as all members 0 or NULL, which mean what they say. */
typedef struct EcfsFileOptions {
    const char *code; /* how it is made redundant; NULL: what directory and archive say */
    uint32_t mode;    /* permissions; 0: 0644 */
} EcfsFileOptions;

/**
 * Opens a file of the archive: for reading its content as it is now, whatever becomes of the file meanwhile; or for
 * writing. Never waits for an endpoint. For ecfs_file_close () or ecfs_file_discard ().
 *
 * ENOENT, EISDIR; EINVAL: it is neither file nor directory. EAGAIN: all of its content still waits in the staging area
 * of a mount (ecfs_wait ()). Symbolic links are not followed. Writing makes directories on the way when it is closed.
 */
EcfsFile *ecfs_file_open (Ecfs *self, const char *path, unsigned flags, const EcfsFileOptions *options, GError **error);

/**
 * Reads into @to, which the caller owns, from the byte @offset on. *ret_size is less than @size at the end of the file
 * only. Blocks until the bytes are there and verified. EIO, naming the endpoints that failed, when the bytes cannot be
 * had now; EBADF: the file is open for writing.
 *
 * Threads: unlike everything else, any number of threads may do this at once, in one file or several of an archive.
 */
bool ecfs_file_pread (EcfsFile *file, void *to, size_t size, uint64_t offset, size_t *ret_size, GError **error);

/**
 * Writes @size bytes behind those that were written before: to the local disk, where the archive's staging area is.
 * After an error, as ENOSPC, the file can only be discarded. EBADF: it is open for reading.
 */
bool ecfs_file_write (EcfsFile *file, const void *from, size_t size, GError **error);

/** Bytes: of the content that is read, or that were written so far. */
uint64_t ecfs_file_size (const EcfsFile *file);

/**
 * Closes the file, in any case. What was written is stored as by ecfs_put (). When this returns true, it is the file's
 * content, with the promise of close(2) on a mount: at least its quorum of stripes is on the endpoints, and the name is
 * durable on this machine. Where the archive is mounted, the mount does this, and its users see the file at once.
 * Blocks. False: the file is what it was, and what was written is gone; ENOSPC or EDQUOT when endpoints are full, EIO
 * when too few of them took their stripes, EISDIR when the name is that of a directory by now. Only if the mount ends,
 * or the local disk fails, in the very last step may the file have the new content although this is false.
 *
 * @ret_full: whether all stripes are stored; otherwise a mount adds what is missing, and so does ecfs_fsck () with
 *            ECFS_FSCK_REPAIR. May be NULL.
 */
bool ecfs_file_close (EcfsFile *file, bool *ret_full, GError **error);

/** Closes the file without storing what was written. NULL is accepted. */
void ecfs_file_discard (EcfsFile *file);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsFile, ecfs_file_discard)

/* Names. The archive is open for writing; where it is mounted, the mount does it, and programs that use the mount see
 * it at once. What is done is durable on this machine when these return true. */

/** Removes a file or a directory; one that is not empty only when @recursive, else ENOTEMPTY. */
bool ecfs_remove (Ecfs *self, const char *path, bool recursive, GError **error);

/**
 * Renames @from to @to, or, when that is a directory, moves it there under its own name. A file that has the new name
 * is replaced, as rename(2) does; with @keep nothing is: EEXIST.
 */
bool ecfs_move (Ecfs *self, const char *from, const char *to, bool keep, GError **error);

/** Makes a directory with the permissions @mode; with @parents those on the way too, and then it may be there. */
bool ecfs_make_directory (Ecfs *self, const char *path, uint32_t mode, bool parents, GError **error);

/**
 * Moves the stored file @path, or all files below a directory, to @code: content is read, stored anew and put in the
 * place of the old, object by object; where both codes share stripes these stay. A file that is replaced or written
 * meanwhile is left alone and reported. Can be repeated after whatever ended it. The archive is open for writing; where
 * it is mounted, the mount does it. Errors as ecfs_put (); EINVAL when @code is impossible here.
 */
bool ecfs_recode (Ecfs *self, const char *path, const char *code, const EcfsTransferOptions *transfer, GError **error);

/** What ecfs_recode () would read, write and free as a JSON object (ecfs-recode(1) lists the members), g_free (). */
char *ecfs_recode_cost (Ecfs *self, const char *path, const char *code, GError **error);

/**
 * Stores what is not stored under the archive's key anew under it, in the code that it has, as ecfs_recode () does.
 * EINVAL: the archive has no key.
 */
bool ecfs_recode_seal (Ecfs *self, const char *path, const EcfsTransferOptions *transfer, GError **error);

/** As ecfs_recode_cost (), of ecfs_recode_seal (). */
char *ecfs_recode_seal_cost (Ecfs *self, const char *path, GError **error);

/**
 * Moves what is cold at and below @path to the code that the policies of directories and archive name, and what is read
 * often back to that of its file, as ecfs_recode () does; files keep their own code for what is written into them.
 */
bool ecfs_apply_policy (Ecfs *self, const char *path, const EcfsTransferOptions *transfer, GError **error);

/** As ecfs_recode_cost (), of ecfs_apply_policy (). */
char *ecfs_policy_cost (Ecfs *self, const char *path, GError **error);

/**
 * Adds an endpoint, "[NAME=]URL[,KEY=VALUE...]", to the archive in @directory; where it is mounted, the mount does it.
 * Blocks until the endpoint has answered. Whoever has the archive open for reading sees it after opening it again.
 */
bool ecfs_add_endpoint (const char *directory, const char *endpoint, GError **error);

/**
 * Lets nothing count that an endpoint says, or with @undo lets it count again. Works also where ecfs_open () fails with
 * ESTALE because of what this endpoint says.
 */
bool ecfs_distrust_endpoint (const char *directory, const char *name, bool undo, GError **error);

/**
 * Sets the state of an endpoint: "active"; "readonly", which gives stripes and takes none; or "draining", which is to
 * be emptied. The archive is open for writing; where it is mounted, the mount does it, as it does what follows.
 */
bool ecfs_set_endpoint_state (Ecfs *self, const char *name, const char *state, GError **error);

/**
 * Moves all that an endpoint holds to others, and leaves it draining. A stripe is read from the endpoint where it is
 * healthy and rebuilt from the others where it is not; the most endangered objects come first. Can be repeated after
 * whatever ended it. The progress counts objects, and the bytes of moved stripes. Errors as ecfs_put ().
 *
 * @towards: names of endpoints that are to take what they can, NULL-terminated; NULL: any others
 */
bool ecfs_drain (Ecfs *self, const char *name, const char *const *towards, const EcfsTransferOptions *transfer,
                 GError **error);

/** What ecfs_drain () would move, where to and for how long as a JSON object (ecfs-endpoint(1) lists the members),
 * g_free (). Connects to endpoints. */
char *ecfs_drain_plan (Ecfs *self, const char *name, const char *const *towards, GError **error);

/**
 * Begins anew at an endpoint whose place was emptied, with a new marker and the same name and settings. *ret_old: what
 * the old one is called from then on, g_free (), to be drained and removed. EEXIST, ENOTEMPTY: it was not emptied. Can
 * be repeated until that is done, and then fails with EALREADY.
 */
bool ecfs_renew_endpoint (Ecfs *self, const char *name, char **ret_old, GError **error);

/**
 * Has rules user.ecfs.places that name an endpoint name others instead (NULL-terminated, which the archive has), all of
 * them in one change; *ret_n rules were changed. The archive is open for writing. ENOENT: it has no such endpoint.
 */
bool ecfs_replace_in_rules (Ecfs *self, const char *name, const char *const *by, uint64_t *ret_n, GError **error);

/**
 * Takes an endpoint that no longer holds anything out of the archive; EBUSY with what to do when something is only
 * there. Can be repeated after whatever ended it. *ret_left: what of it stays there all the same, for the user,
 * g_free (); NULL: nothing.
 */
bool ecfs_remove_endpoint (Ecfs *self, const char *name, char **ret_left, GError **error);

/* A name in the archive. Its strings are lent by the function that gives it. */
typedef struct EcfsEntry {
    const char *path;   /* from the root, "/a/b" */
    const char *name;   /* its last part */
    const char *target; /* of a symbolic link; NULL otherwise */
    uint64_t inode;
    uint32_t mode; /* as st_mode */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint64_t size; /* bytes */
    int64_t mtime_ns;
    bool staged; /* newer content waits in staging; size and time are those of what was flushed of it */
} EcfsEntry;

/**
 * Calls @each for every entry of the directory @path in order of names, and with @recursive for those below, each
 * directory before what is in it; for anything else once, for itself. Entries are lent for the call.
 */
bool ecfs_list (Ecfs *self, const char *path, bool recursive, void (*each) (void *user, const EcfsEntry *entry),
                void *user, GError **error);

/** The entry of @path itself, in *ret_entry; its texts are lent until the next call of this, or ecfs_close (). ENOENT.
 */
bool ecfs_stat (Ecfs *self, const char *path, EcfsEntry *ret_entry, GError **error);

/** What is stored of @path as a JSON object (ecfs-info(1) lists the members), g_free (). Connects to endpoints. */
char *ecfs_info (Ecfs *self, const char *path, GError **error);

/** Endpoints, objects by health, backlog as a JSON object (ecfs-status(1) lists the members), g_free (). */
char *ecfs_status (Ecfs *self, GError **error);
/** The same from the mount of the archive in @directory, without opening that: when its catalog's database is away, the
 * mount alone can tell. ENOTCONN: it is not mounted. */
char *ecfs_status_of_mount (const char *directory, GError **error);
/** The same with the member `survey`, for which all files are walked: how safe they are, what endpoints have, and which
 * of them may vanish. A mount of an earlier ecfs leaves it out. */
char *ecfs_survey (Ecfs *self, GError **error);

/** What goes on in the mount of an archive at this moment as a JSON object (ecfs-top(1) lists the members), g_free ().
 * Costs little; for who asks every second. ENOTCONN: it is not mounted for writing. */
char *ecfs_live (const char *directory, GError **error);

/**
 * Has the command `on_event` of ecfs.conf told what @status (of ecfs_status () or ecfs_survey ()) says is wrong, as far
 * as it was not told before; where the archive is mounted, its mount does that. @report: what is told as the event
 * "report", once until it is another; NULL: all is well. Waits for the command, two minutes at most. False: it failed.
 */
bool ecfs_tell_events (Ecfs *self, const char *status, const char *report, GError **error);

/* Checking and repairing. */

typedef enum EcfsFsckFlags {
    ECFS_FSCK_DEEP = 1 << 0, /* reads every stripe, not only its size */
    /* Rebuilds lost and damaged stripes, and moves the stripes of crowded objects apart. The archive is open for
     * writing. Not where SQLite finds that the catalog is damaged. */
    ECFS_FSCK_REPAIR = 1 << 1,
    /* Writes nothing at all, not even what was verified: a deep check then begins anew. Not with REPAIR. */
    ECFS_FSCK_DRY = 1 << 2,
    /* Removes orphans (stripes that no file uses) that are older than prune_age_us, if all files are checked. */
    ECFS_FSCK_PRUNE = 1 << 3,
    /* Where endpoints have a hash tool, a deep check of everything asks them for digests, and reads only stripes whose
     * digest is not what it was when all of their packets were verified. Needs what was verified: not with DRY. */
    ECFS_FSCK_REMOTE_HASH = 1 << 4,
    /* What is found and not repaired is queued, as what a reader meets: status counts it, and a mount repairs it. Not
     * with DRY. */
    ECFS_FSCK_QUEUE = 1 << 5,
} EcfsFsckFlags;

typedef struct EcfsFsckProgress {
    const char *phase;          /* "catalog", "objects", "deep", "repair", "move", "export", "prune" */
    uint64_t n_done;            /* objects of that phase */
    uint64_t n_all;             /* about; 0: not known */
    uint64_t bytes;             /* read from and written to endpoints by this process since ecfs_open () */
    uint64_t checked_bytes;     /* of stripes, by the phase "deep" */
    uint64_t checked_bytes_all; /* about; 0: not known */
} EcfsFsckProgress;

typedef struct EcfsFsck {
    unsigned flags;           /* EcfsFsckFlags */
    const char *const *paths; /* NULL-terminated: only what is at and below these; NULL: everything */
    uint64_t bytes_per_s;     /* that are read at most to check packets; 0: as fast as it goes */
    int64_t max_time_us;      /* after which no more is checked; repairs are not cut short; 0: no limit */
    double sample;            /* the part of all stripes that a deep check reads, by chance; 0: all */
    double share;             /* the part of all bytes after which a deep check of everything stops; 0: all */
    uint64_t seed;            /* of the sample */
    /* A directory to which files that cannot be read whole are written as far as they can be read, with holes
     * elsewhere, and the list unreadable.txt: path, offset and length, with tabs between. No file is overwritten.
     * NULL: none is written. */
    const char *export_dir;
    int64_t prune_age_us; /* how old what is removed must be; with PRUNE, above 0 */
    /* Stripes of objects that a recovery did not bring back stay, because they may be all that is left of a file. If
     * there are exactly this many of them, they are removed like others. 0: they stay. */
    uint64_t prune_unrecovered;
    /* Called a few times a second; false ends it with ECANCELED. May be NULL. */
    bool (*progress) (void *user, const EcfsFsckProgress *progress);
    /* Asked once before anything is repaired; false: nothing is. May be NULL: yes. */
    bool (*confirm) (void *user, uint64_t n_objects);
    /* The same before stripes of crowded objects are moved to other endpoints. */
    bool (*confirm_move) (void *user, uint64_t n_objects);
    /* The same before orphans are removed. */
    bool (*confirm_prune) (void *user, uint64_t n_stripes, uint64_t bytes);
    /* Something is not as it should be, or was not until it was repaired: a JSON object (ecfs-fsck(8) lists the
     * members), borrowed; the most endangered objects first. May be NULL. */
    void (*found) (void *user, const char *json);
    void *user;
} EcfsFsck;

/**
 * Checks catalog and stripes, and repairs what flags say. A deep check of everything begins with what was verified
 * longest ago, resumes one that was interrupted, and notes what it has verified. Returns a summary as a JSON object
 * (ecfs-fsck(8) lists the members), g_free (); NULL when it could not be done. Works beside a mount, which then does
 * the repairing. An archive that is open for reading is opened for writing only where something is to be repaired and
 * its catalog is sound.
 */
char *ecfs_fsck (Ecfs *self, const EcfsFsck *what, GError **error);

/**
 * What an archive stores and what its accounts ask for as a JSON object, g_free (): bytes, objects, endpoints
 * (name, storage, requests, egress in millionths; 0 where ecfs.conf has none), of those that take new stripes. ENOENT:
 * none has prices.
 */
char *ecfs_prices (Ecfs *self, GError **error);

/* Rehearsing a loss. */

typedef struct EcfsDrill {
    /* Names of endpoints (NULL-terminated) to do without. NULL: nothing is read; the catalog alone shows for each set
     * of endpoints that the codes promise to do without whether that is so. */
    const char *const *without;
    double percent; /* of all objects that are read, above 0 and up to 100; at least one is */
    uint64_t seed;  /* which are chosen follows from it, while the archive stays as it is */
    /* As for a transfer, where files are objects: what cannot be read is reported as a problem. */
    const EcfsTransferOptions *transfer;
} EcfsDrill;

/**
 * Reads a random sample of the objects from an archive as if some endpoints were gone, and once more with all, and
 * compares their digests; changes nothing, and works beside a mount. Returns a report as a JSON object (ecfs-drill(1)
 * lists the members), g_free (); *ret_good is whether all that was to be readable is. NULL: it could not be done.
 */
char *ecfs_drill (Ecfs *self, const EcfsDrill *what, bool *ret_good, GError **error);

/**
 * What ecfs_drill () will take with the same @what, which has endpoints to do without: bytes, requests and money, for
 * each endpoint, as a JSON object (ecfs-drill(1) lists the members); g_free (). Asks the catalog alone.
 */
char *ecfs_drill_cost (Ecfs *self, const EcfsDrill *what, GError **error);

typedef enum EcfsWaitFlags {
    ECFS_WAIT_QUORUM = 1 << 0, /* until it is committed, not until all stripes are stored */
    /* Without a mount: true when nothing is staged and the journal is stored. Else ENOTCONN, since what was written to
     * the mountpoint of an archive that is not mounted is not in the archive. */
    ECFS_WAIT_UNMOUNTED = 1 << 1,
} EcfsWaitFlags;

/**
 * Waits until everything staged below a mount of this archive, or the files @paths (NULL-terminated, may be NULL), is
 * stored in full. ENOTCONN without a mount for writing; @flags: EcfsWaitFlags.
 */
bool ecfs_wait (Ecfs *self, const char *const *paths, unsigned flags, GError **error);

/* How the archive's keys are kept. */

/**
 * The ways to open the archive's keys, and which endpoints have the file with them, as a JSON object (ecfs-key(1) lists
 * the members); g_free (). ENOKEY: it has no key.
 */
char *ecfs_key_list (Ecfs *self, GError **error);

/**
 * The SHA-256, in hexadecimal, of the program ecfs-salvage that this ecfs leaves at endpoints which are added; g_free
 * (). Whoever runs an endpoint could change it there, so that it gives away the keys that are given to it.
 */
char *ecfs_salvage_sha256 (void);

/* What opens an archive's keys where its endpoints alone do not; NULL: it is not given. */
typedef struct EcfsKeySecrets {
    const char *passphrase;
    const char *code;     /* as ecfs_new_code () gave it */
    const char *identity; /* a private X25519 key, the text of a PEM file */
    /* Asks for a "passphrase" or a "code" that was not given, where one is needed; the answer is overwritten and
     * g_free ()d. NULL, or NULL as an answer: there is nobody to be asked. */
    char *(*ask) (void *user, const char *what);
    void *user;
} EcfsKeySecrets;

/**
 * Whether the keys would come back from endpoints and @secrets (NULL: none) alone: a JSON object with `comes_back`;
 * where it does, the `kind` of the slot that opened, and its `id`; else `reason`. `endpoints_with_key_file`. g_free ().
 * ENOKEY: it has no key.
 */
char *ecfs_key_check (Ecfs *self, const EcfsKeySecrets *secrets, GError **error);

/**
 * Adds a way to open the keys, to the others; or takes one away, the last only with @force (EBUSY). A JSON object with
 * the `id` of the slot, endpoints that are `behind` (texts; ecfs_fsck () stores the new file there), and whether it
 * is `safe`: so many have it that it is there whatever the code survives the loss of. g_free (). The archive is to be
 * open for writing; where it is mounted, the mount does it. EINVAL; EDOM: too few zones; ENOENT; ENOKEY: it has no key.
 */
char *ecfs_key_add (Ecfs *self, const EcfsKeyWay *way, GError **error);
char *ecfs_key_remove (Ecfs *self, const char *slot, bool force, GError **error);

/**
 * Gives a key to an archive that was made without one, kept as @key says, as in ecfs_init_with_key (). What is
 * stored from then on is stored under it; ecfs_recode_seal () moves what was stored before. Whatever ends this, the
 * archive has its key afterwards or has none, and the same call again does the rest. EBUSY: it is mounted; EEXIST: it
 * has a key; EINVAL, EDOM: the key cannot be kept so; ENOTCONN: too few endpoints can be reached.
 *
 * @copy: where a copy of the key is, for one that is kept as a file; NULL: ENOKEY, and the file to copy is there
 */
bool ecfs_key_init (const char *directory, const EcfsKeyWay *key, const char *copy, GError **error);

/* How an archive gets another key. */
typedef struct EcfsKeyRotation {
    const EcfsKeyWay *way;      /* a way to open it that is made anew: code, passphrase, alone, recipient; NULL: none */
    const char *copy;           /* where a copy of the keys is written, durably; NULL: nowhere */
    int drop;                   /* ways that cannot be made anew without a secret do not open the new key: they go */
    void (*begun) (void *user); /* it was found that it can be done, and nothing depends on @way yet; NULL: none */
    void *user;
} EcfsKeyRotation;

/**
 * Gives another key to an archive that has one: what is stored from then on is stored under it. The key before is
 * retired: what was stored under it is read still, and ecfs_recode_seal () moves that. Endpoints get shares of the new
 * one, and recipients whose public keys are known open it, too. What can be found out without a change is, first.
 * Whatever ends this later, the same call again goes on with it, and until then nothing can be stored; where that fails
 * as endpoints are gone, all is taken back. At no moment is anything stored under a key that only this machine has.
 *
 * EBUSY: it is mounted; ENOKEY: it has no key, or nothing would bring the new one back; EPERM: ways to open the key
 * would be lost, which are named, and @how->drop is not set; EDOM; EINVAL; ENOTCONN: too few endpoints can be reached.
 */
bool ecfs_key_rotate (const char *directory, const EcfsKeyRotation *how, GError **error);

/**
 * Ends the archive in @directory: removes its stripes, journal, snapshots and marker at every endpoint, and then the
 * directory. Not while it is mounted (EBUSY), nor where the endpoints know a newer copy of it (ESTALE). Without @force
 * nothing is removed unless every endpoint can be reached; with it, what the others have stays there, and is reported
 * as a warning. Can be repeated after whatever ended it. The progress counts files at endpoints.
 */
bool ecfs_destroy (const char *directory, bool force, const EcfsTransferOptions *transfer, GError **error);

typedef struct EcfsMoving {
    bool dry_run; /* only finds out what would be done */
    /* One sentence that the user should know. May be NULL. */
    void (*tell) (void *user, const char *text);
    /* Called now and then; false ends it with ECANCELED. May be NULL. */
    bool (*progress) (void *user, const char *phase, uint64_t n_done, uint64_t n_all);
    void *user;
} EcfsMoving;

/**
 * Moves the catalog of the archive in @directory to @location: "postgresql://...", "service=..." or "file", which is in
 * the archive directory. What was moved is compared with what was there before that is retired. Can be repeated after
 * whatever ended it, and goes on then. Returns a report as a JSON object (ecfs-catalog(1) lists the members), g_free
 * (). EBUSY: it is mounted, or in use by another machine; EBADMSG: the catalog is damaged; EEXIST: there is another
 * one; ENOTSUP: built without PostgreSQL. Blocks.
 */
char *ecfs_move_catalog (const char *directory, const char *location, const EcfsMoving *how, GError **error);

/**
 * Makes of @directory, which has copies of ecfs.conf, catalog-place and the files of the key from another machine's
 * archive directory, and nothing else, one of its own, so that both can be mounted for writing at once. EEXIST: it was
 * mounted already; EINVAL: ecfs.conf does not say catalog_mounts = many, or the catalog is a file.
 */
bool ecfs_join_catalog (const char *directory, GError **error);

/* An archive without its directory. */

typedef struct EcfsRecovery {
    const char *const *endpoints; /* those that are there, "[NAME=]URL[,KEY=VALUE...]"; NULL-terminated */
    const char *code;             /* of new files, in place of what it was; NULL: as it was */
    const char *const *settings;  /* "KEY=VALUE" of [archive], in place of what they were; NULL-terminated, or NULL */
    const char *archive;          /* its UUID, where endpoints have several; or NULL */
    /* A copy of the file "key" of the lost directory; NULL: the archive has no key, or its endpoints have it. */
    const char *key_file;
    const struct EcfsKeySecrets *secrets; /* what opens it there; may be NULL */
    /* Names of endpoints whose word counts alone, or not at all; NULL-terminated, or NULL. */
    const char *const *believe;
    const char *const *distrust;
    const char *at;  /* the archive as it was then: a moment, or the name of a mark; NULL: as it is */
    bool dry_run;    /* only finds out what would be: nothing stays anywhere */
    bool read_only;  /* changes nothing on any endpoint, and the directory can only be read */
    bool names_only; /* with read_only: without a look at stripes, so of what the journal tells alone */
    bool force;      /* also with so few endpoints, or so soon after another machine, that it is refused otherwise */
    /* Whether to go on although @text, a sentence; NULL: no. */
    bool (*ask) (void *user, const char *text);
    /* One sentence that the user should know. May be NULL. */
    void (*tell) (void *user, const char *text);
    /* Called now and then; false ends it with ECANCELED. May be NULL. */
    bool (*progress) (void *user, const char *phase, uint64_t n_done, uint64_t n_all);
    void *user;
} EcfsRecovery;

/**
 * Makes the archive directory @directory, new or empty, from what endpoints have. Returns a report as a JSON object
 * (ecfs-recover(1) lists the members), g_free (); files may be lost all the same, which the report says. NULL: it could
 * not be done, and no endpoint has changed. EINVAL; ENOKEY without the archive's key; ENOTRECOVERABLE where it is
 * refused without `force`; ENOTUNIQ where endpoints have several archives, of which none is named. Blocks.
 */
char *ecfs_recover (const char *directory, const EcfsRecovery *what, GError **error);

/**
 * Takes the archive over from whoever has it. Where @directory is new or empty, as ecfs_recover (). Where it is an
 * archive directory that is an old copy (restored, cloned, or taken over elsewhere), it becomes the newest one: with
 * its own endpoints, those of `endpoints` in place of its own of that name or beside them, and of the settings only
 * what travels in the journal. Content that only it had is kept in plain files below `not-stored` in it; the report has
 * the members `unstored`, `kept` and `kept_in`. EBUSY: it is mounted; EEXIST: it is the newest copy already. The other
 * members that say what is recovered (`code`, `settings`, `archive`, `at`, `read_only`) do not count then. Blocks.
 */
char *ecfs_takeover (const char *directory, const EcfsRecovery *what, GError **error);

/* Accounts that only grow. */

typedef struct EcfsPrune {
    const char *const *endpoints; /* where the directory is not there yet; as of EcfsRecovery, as the next two */
    const char *key_file;
    const struct EcfsKeySecrets *secrets;
    const char *keep;   /* how long what died stays: "60d"; NULL: 30 days, or the archive's history if that is longer */
    unsigned max_share; /* % of files or bytes that may have been lost within a day; 0: 10 */
    const char *accept; /* what was lost up to this moment was meant to be; remembered; NULL: nothing more */
    const char *const *unproven; /* names of endpoints where what died goes also if it is not authentic; or NULL */
    bool dry_run;                /* only finds out what would go */
    /* Whether to remove, as @text, a sentence, tells; NULL: yes. */
    bool (*ask) (void *user, const char *text);
    /* As of EcfsRecovery. */
    void (*tell) (void *user, const char *text);
    bool (*progress) (void *user, const char *phase, uint64_t n_done, uint64_t n_all);
    void *user;
} EcfsPrune;

/**
 * Removes from the endpoints what nobody needs any more of an archive that another machine writes, with logins that may
 * delete. @directory is one for reading only, which is made where it is not there. Returns a report as a JSON object
 * (ecfs-prune(1) lists the members), g_free (), which says what remains to be done; and with `dry_run` why it would be
 * refused. NULL: nothing was removed, but with EAGAIN and ECANCELED, when something may have been. ENOTRECOVERABLE: too
 * much was lost within a day. Blocks.
 */
char *ecfs_prune (const char *directory, const EcfsPrune *what, GError **error);

/* The past. */

/**
 * The archive as it was at @moment, as far as its history goes (`history` in ecfs.conf): how long ago ("90m", "2d"), or
 * a date with or without a time ("2026-11-25", "2026-11-25 14:30"). Returns an archive directory that can be read only,
 * for ecfs_open () and all that takes one; it is to be given to ecfs_past_close () when everything from it is closed.
 * Endpoints are read for it, and nothing changes there. EINVAL: this is no moment; ENOENT: nothing is kept of it.
 * Blocks.
 */
char *ecfs_past_open (const char *archive_dir, const char *moment, GError **error);
/** Removes and frees it. NULL is accepted. */
void ecfs_past_close (char *directory);
/** ecfs_open () of such a directory, which goes with ecfs_close (). */
Ecfs *ecfs_open_at (const char *archive_dir, const char *moment, GError **error);

/**
 * What became of a path, as far as the archive's history goes: a JSON array of objects, the oldest first, g_free ().
 * Each has `time_ns` (since 1970; a moment from there on shows it), `change` ("appeared", "written", "changed",
 * "replaced" by another, "went") and, but for what went, `mode`, `uid`, `gid`, `size` and `mtime_ns`. Blocks.
 */
char *ecfs_log (const char *archive_dir, const char *path, GError **error);

/* How things are brought back. */
typedef enum EcfsUndeleteFlags {
    ECFS_UNDELETE_KEEP = 1 << 0,         /* what is there under the name of something of then stays as it is */
    ECFS_UNDELETE_BESIDE_PRUNE = 1 << 1, /* although an endpoint has a note that another machine prunes it (EBUSY) */
} EcfsUndeleteFlags;

/**
 * Makes what @paths (NULL-terminated) led to, with all below it, what it was at @moment (NULL, for one path: before it
 * went): what was deleted or moved comes back, and what was overwritten gets its content and attributes of then, but
 * for what is there under its name with ECFS_UNDELETE_KEEP of @flags. What came since stays. Nothing is read or stored
 * for it but the journal, as long as the archive's history goes so far. Durable when true; files that fail (EIO: too
 * little of one is left) do not keep others from it. Of n_done files n_current were as they had been. Blocks.
 */
bool ecfs_undelete (Ecfs *self, const char *const *paths, const char *moment, unsigned flags,
                    const EcfsTransferOptions *transfer, GError **error);

/**
 * After a mass deletion (`delete_brake` in ecfs.conf): it was meant, so what was deleted or overwritten is not kept for
 * it any longer. Nothing happens where there was none. Durable when true. Blocks.
 */
bool ecfs_release_brake (Ecfs *self, GError **error);

/**
 * Gives this moment a name, which stands for it wherever a moment is asked for: all that is stored now is kept until
 * the mark is removed, which @removes does. At the endpoints, too, when true. EINVAL: it is no name, or a moment;
 * EEXIST; ENOENT. Blocks.
 */
bool ecfs_mark (Ecfs *self, const char *name, bool removes, GError **error);
/** The marks, as a JSON array of objects with `name`, `time_ns` (since 1970) and `bytes`, which only the past has, the
 * oldest first; g_free (). */
char *ecfs_marks (Ecfs *self, GError **error);

/* Files without their archive. */

#define ECFS_EXPORT_FEC          (1 << 0) /* as properties instead of our own form; not of what is under a key */
#define ECFS_EXPORT_WITHOUT_KEYS (1 << 1) /* what is under a key is opened only by who has the archive's */

/**
 * The descriptor of a stored file (ecfs-descriptor(5)), with which ecfs_fetch () gets its content from the endpoints
 * alone. It ages: content that is stored anew has another one.
 *
 * Of what is stored under a key it has that content's key. Then *ret_has_keys (may be NULL) is true, and who has the
 * text can read the file: keep it as a secret, and overwrite it before g_free (). For its digests that content is read
 * once;
 * @transfer (may be NULL) is told how far it is, and may end it.
 */
char *ecfs_export (Ecfs *self, const char *path, unsigned flags, const EcfsTransferOptions *transfer,
                   bool *ret_has_keys, GError **error);

/**
 * Fetches and verifies what a descriptor file describes into the file @path, which appears when it is complete.
 * @endpoints: "NAME=URL[,KEY=VALUE...]" that are used instead of what the descriptor says; NULL-terminated, or NULL.
 * @keys_path: the file with the archive's keys, for a descriptor that has none and needs some; or NULL.
 */
bool ecfs_fetch (const char *descriptor_path, const char *path, const char *const *endpoints, const char *keys_path,
                 GError **error);

/* Names in a distributed hash table, ecfs-locate(1). */

/**
 * Publishes the descriptor of a stored file under @name, or in place of what was published under it before: the text
 * that others find it by, for ecfs_fetch_published (); g_free (). It has the same key as before, so that a text that
 * was given away goes on to be good. Whoever has it finds the descriptor, and if *ret_has_keys can read the file.
 *
 * @flags, @transfer, @ret_has_keys: as for ecfs_export (). *ret_descriptor (NULL: not wanted): the descriptor, as that
 * returns it. *ret_behind: why it is not in the table yet, g_free (); NULL: it is. It is there for ten minutes; a mount
 * of the archive renews it. EFBIG: the descriptor is too large for that. Blocks, for half a minute at most beyond that.
 */
char *ecfs_publish (Ecfs *self, const char *path, const char *name, unsigned flags, const EcfsTransferOptions *transfer,
                    bool *ret_has_keys, char **ret_descriptor, char **ret_behind, GError **error);
/** Takes it back, and forgets its key: published again, it has another one. ENOENT: it was not published here. */
bool ecfs_withdraw (Ecfs *self, const char *name, GError **error);

/**
 * As ecfs_fetch (), of what is published under the name that @capability tells. @nodes: "HOST:PORT,..." who take part
 * in the table, instead of those that it names; or NULL. ENOENT: nothing was found; ENOTCONN: nobody has answered;
 * ENOTSUP: there is no program ecfs-locate.
 */
bool ecfs_fetch_published (const char *capability, const char *nodes, const char *path, const char *const *endpoints,
                           const char *keys_path, GError **error);
/**
 * What is published under that name, without fetching it, as JSON (ecfs-locate(1)); g_free (). With
 * @peers_of_archive also the peers of that archive which announce themselves; NULL: without.
 */
char *ecfs_locate (const char *capability, const char *nodes, Ecfs *peers_of_archive, GError **error);

/* What is shared with other machines that read the archive, ecfs-swarm(1). */

/** The member `peers` of a status: of the mount, or where there is none of this process; g_free (). ENOTSUP: it has no
 * peers. */
char *ecfs_swarm (Ecfs *self, GError **error);
/**
 * Has the mount of the archive "start" or "stop" serving peers, or "drop" the one at @address ("HOST:PORT"; else NULL),
 * until it ends. ENOTCONN: there is no mount; ENOTSUP: it has no peers; ENOENT: no such peer.
 */
bool ecfs_swarm_change (Ecfs *self, const char *action, const char *address, GError **error);
/** Serves peers from here, until the archive is closed. EBUSY: it is mounted; EADDRINUSE; ENOTSUP: it has no peers. */
bool ecfs_swarm_serve (Ecfs *self, GError **error);

#pragma GCC visibility pop
G_END_DECLS

#endif
