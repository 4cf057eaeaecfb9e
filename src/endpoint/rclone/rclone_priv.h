/*
 * What the files of the rclone driver share. endpoint/web/http.h has calls and connections; doc/rclone.md has what
 * rclone's server was found to do, and why it is asked as it is.
 *
 *   rclone.c           the driver and its dialect
 *   rclone_config.c    URL and options; what connections of one endpoint know together
 *   rclone_child.c     processes: the one that serves, and their logs
 *   rclone_run.c       processes that do one thing: lists, directories, space
 *   rclone_failure.c   what answers mean
 *   rclone_connect.c   whether the remote is there
 *   rclone_write.c     uploads
 *   rclone_mark.c      the marker
 *   rclone_list.c rclone_ops.c   other requests of the core
 *   rclone_text.c      lines that rclone writes: pure functions
 *
 * A connection of the core's is one process `rclone serve restic --stdio` at the other end of a socket, which speaks
 * HTTP/2. It is asked for files: POST, HEAD, GET, DELETE. It ends when the socket is closed, by whatever ends us.
 */
#ifndef ECFS_ENDPOINT_RCLONE_RCLONE_PRIV_H
#define ECFS_ENDPOINT_RCLONE_RCLONE_PRIV_H

#include "endpoint/rclone/rclone_text.h"
#include "endpoint/web/http.h"

#include <sys/types.h>

#define ECFS_RCLONE_WHOLE "# whole\n" /* ends the marker: a comment */
#define ECFS_RCLONE_SPARE ECFS_INCOMING "/" ECFS_MARKER_NAME ".next"

/* What all connections of an endpoint know. */
typedef struct EcfsRcloneShared {
    EcfsMutex lock;

    /* guarded by lock */
    GHashTable
        *broken; /* name → size in bytes as text, or "": uploads whose end was not seen; what is there may be a part */
    GHashTable *emptied; /* directories whose files were removed here */
    int n_directories;   /* whether the remote has directories: 1, 0, or -1: not known yet */
    int tells_space;     /* likewise */
    uint64_t free_bytes; /* as told … */
    int64_t told_us;     /* … then; 0: not yet … */
    uint64_t written;    /* … and written since */
} EcfsRcloneShared;

typedef struct EcfsRcloneConfig {
    EcfsHttpConfig http;
    char *remote;  /* its name */
    char *place;   /* "REMOTE:path", as rclone takes it */
    char *program; /* as given, or "rclone" */
    char *file;    /* its configuration; NULL: as rclone finds it */
    EcfsRcloneShared *shared;
} EcfsRcloneConfig;

#define ECFS_RCLONE_N_NOTES 64

/* Something that went wrong, as the log tells it. */
typedef struct EcfsRcloneNote {
    char *object; /* NULL: of nothing in particular */
    char *message;
} EcfsRcloneNote;

/* A process. */
typedef struct EcfsRcloneChild {
    pid_t pid;                                 /* 0: none */
    int fd;                                    /* of its input and output; -1: somebody else has it */
    int errors;                                /* -1: it has closed its log */
    GString *rest;                             /* of its log: a line that has not ended */
    EcfsRcloneNote notes[ECFS_RCLONE_N_NOTES]; /* the newest … */
    unsigned n_notes;                          /* … of so many */
    char *last;                                /* what it said last that is no small talk; NULL: nothing */
} EcfsRcloneChild;

typedef struct EcfsRcloneRun EcfsRcloneRun;

/* Everything is of the slot's thread. */
typedef struct EcfsRclone {
    EcfsHttp http;
    const EcfsRcloneConfig *config;
    int listener; /* -1: it serves, or never will */
    EcfsRcloneChild child;
    GQueue runs; /* EcfsRcloneRun, which are ops */
    unsigned major, minor;
    unsigned n_mending; /* under way: what is left of uploads that broke off */
} EcfsRclone;

static inline EcfsRclone *ecfs_rclone (const EcfsHttp *http)
{
    return (EcfsRclone *) http;
}

extern const EcfsHttpDialect ecfs_rclone_dialect;

/* rclone_config.c */
void *ecfs_rclone_new_config (const EcfsEndpointSpec *spec, GError **error);
void ecfs_rclone_free_config (void *config);
/** An upload of @name breaks off; @size: of the whole, or -1: not known. */
void ecfs_rclone_note_broken (const EcfsRcloneConfig *config, const char *name, int64_t size);
/** Whether an upload of @name broke off here, and what is there under that name, of @size bytes, is not the whole of
 * it.
 */
bool ecfs_rclone_is_part (const EcfsRcloneConfig *config, const char *name, uint64_t size);
/** Whether that is still to be seen to. */
bool ecfs_rclone_is_broken (const EcfsRcloneConfig *config, const char *name);
void ecfs_rclone_forget_broken (const EcfsRcloneConfig *config, const char *name);
/** One of them; g_free (). NULL: there are none. */
char *ecfs_rclone_next_broken (const EcfsRcloneConfig *config);
/** Keeps what `rclone about --json` says. False: it does not tell what is free. */
bool ecfs_rclone_note_space (const EcfsRcloneConfig *config, const char *text, size_t size);
/** So much was written; or a write failed (0), so that the figure says nothing any more. */
void ecfs_rclone_note_written (const EcfsRcloneConfig *config, uint64_t bytes);

/* rclone_child.c */
/** Starts rclone with @words, NULL-terminated. */
bool ecfs_rclone_spawn (EcfsRcloneChild *self, const EcfsRcloneConfig *config, const char *const *words,
                        GError **error);
/** Listens for a connection of ours to the abstract socket *ret_name; g_free (). Returns a descriptor, or -1. */
int ecfs_rclone_listen (char **ret_name, GError **error);
/** Starts rclone on that connection, once it is there: self->pid is set then. */
bool ecfs_rclone_serve_who_connects (EcfsRcloneChild *self, const EcfsRcloneConfig *config, const char *const *words,
                                     int listener, GError **error);
/** Reads its log, as far as there is more. */
void ecfs_rclone_hear (EcfsRcloneChild *self);
/** What the log told last about @object; borrowed until the next call. NULL: nothing. */
const char *ecfs_rclone_told (EcfsRcloneChild *self, const char *object);
/** What the log told about @object is known, and is not to be taken for what comes next. */
void ecfs_rclone_forget_told (EcfsRcloneChild *self, const char *object);
/** Ends it, but for its last words; @at_once: it would go on. Returns its exit status, or -1: it was killed. */
int ecfs_rclone_end (EcfsRcloneChild *self, bool at_once);
/** Whether a process whose socket was closed has ended; waits a moment for that. */
bool ecfs_rclone_has_ended (EcfsRcloneChild *self);
/** Why a process has ended, by its last words. */
GError *ecfs_rclone_ended (const EcfsRcloneConfig *config, EcfsRcloneChild *child);

/* rclone_run.c */
/* A process that does one thing, as an op. */
struct EcfsRcloneRun {
    EcfsHttpOp op;
    EcfsRcloneChild child;
    GString *rest; /* of its output: a line that has not ended */
    size_t n_heard;
    int64_t heard_us;
    int64_t patience_us;                                              /* 0: as usual */
    bool full;                                                        /* line () has heard enough */
    bool any;                                                         /* items were told */
    bool bad;                                                         /* it is no list */
    bool (*line) (EcfsRcloneRun *run, const char *text, size_t size); /* false: that is enough */
    void (*ended) (EcfsRcloneRun *run, int status, GError *error);    /* @error: it did not end by itself; taken */
    void *user;
    GList run_link;
};
/** Adds a run for @request (NULL: ours), of a struct of @size bytes that begins with one. */
EcfsRcloneRun *ecfs_rclone_run_new (EcfsRclone *self, EcfsStream *request, size_t size);
/** Starts it. Later ended () is called, which ends the op or starts it again. */
void ecfs_rclone_run_start (EcfsRcloneRun *run, const char *const *words);
/** "REMOTE:path/NAME"; g_free (). */
char *ecfs_rclone_place (const EcfsRclone *self, const char *name);
/** Looks at all processes. */
void ecfs_rclone_look (EcfsHttp *http);
unsigned ecfs_rclone_watch (EcfsHttp *http, struct curl_waitfd *fds, unsigned n);
#define ECFS_RCLONE_ABSENT_STATUS 3 /* of a directory that is not there */

/* rclone_failure.c */
/** An error with what @message means; @name: of what. */
GError *ecfs_rclone_error (const EcfsRclone *self, const char *name, const char *message);
GError *ecfs_rclone_refusal (EcfsHttpOp *op, const char *name);
/** Whether the answer says that there is no such file, and its log says no other reason. */
bool ecfs_rclone_is_absent (EcfsHttpOp *op, const char *name);
int64_t ecfs_rclone_again_us (EcfsHttpOp *op);

/* rclone_connect.c */
/** Starts the server as soon as we have connected to it. */
void ecfs_rclone_serve (EcfsRclone *self);
void *ecfs_rclone_connect (EcfsSlot *slot, bool make_root, GError **error);
void ecfs_rclone_disconnect (void *connection);

/* Requests */
void ecfs_rclone_write_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_rclone_mark_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_rclone_examine_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_rclone_list_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_rclone_rmdir_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_rclone_space_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_rclone_remove_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_rclone_size_begin (EcfsHttp *self, EcfsStream *request);
/** Sees to what uploads left that broke off. */
void ecfs_rclone_mend (EcfsRclone *self);
/** Begins @request by @begin once it is known what an upload of its name left. */
void ecfs_rclone_begin_mended (EcfsHttp *self, EcfsStream *request, void (*begin) (EcfsHttp *, EcfsStream *));

#endif
