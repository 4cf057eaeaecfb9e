/*
 * What the two sides of control.sock share: lines with descriptors (control_line.c), and the conversation of `put`
 * (control_put.c in the mount, put_mount.c in who asks).
 *
 * A conversation goes on after a request {"verb":"put"} and its answer, a line each way per step. Names and paths are
 * bytes and travel as ecfs_control_escape () writes them; attributes as members mode, uid, gid, size, atime_ns,
 * mtime_ns, rdev. (fd): a descriptor comes with the line.
 *
 *   Steps                                                            Answers
 *     {"step":"resolve","path":P,"directory":false}                  {"ok":true,"parent":N} and "name" when it is free
 *     {"step":"directory","parent":N,"name":S,ATTRIBUTES}            {"ok":true,"ino":N}
 *     {"step":"dress","ino":N,ATTRIBUTES} (fd)                       {"ok":true}
 *     {"step":"special","parent":N,"name":S,"target":S,ATTRIBUTES}   {"ok":true}
 *     {"step":"link","ino":N,"parent":N,"name":S}                    {"ok":true}
 *     {"step":"file","id":N,"parent":N,"name":S,ATTRIBUTES} (fd)     later {"file":N,"ino":N,"full":false}
 *     {"step":"fill","id":N,"ino":N,ATTRIBUTES} (fd)                 later {"file":N,"ino":N,"full":true}
 *     {"step":"cancel"}                                              none; files on their way fail soon
 *     {"step":"end"}                                                 {"ok":true} when all is durable
 *
 * Where a step failed, its answer has "error" and "errno"; that of a file may have "warning". {"wire":N} comes now and
 * then: bytes to and from endpoints. Who hangs up cancels.
 *
 * Those of `recode` and `drain` (control_transfer.c has both sides) have lines from the mount only:
 * {"found":N,"done":N, "failed":N,"bytes":N,"wire":N} as files or objects are found and done,
 * {"problem":true,"error":"text","errno":N} for each that cannot be, and last the answer. Who hangs up cancels here,
 * too.
 *
 * That of `repair` (control_repair.c) has a line from the mount for each object of the request, {"object":N,"stored":N,
 * "read":N,"written":N} and "error" and "errno" where it is not whole, and last the answer. The request names the
 * objects by their rows, and for each the stripes that are damaged or gone as a flat array: index, instance, 1 or 0
 * whether it is gone; where it has "crowded":true, its stripes are moved apart instead. Who hangs up cancels.
 */
#ifndef ECFS_ARCHIVE_CONTROL_PRIV_H
#define ECFS_ARCHIVE_CONTROL_PRIV_H

#include "control/control.h"
#include "ecfs/ecfs.h"

#include <sys/socket.h>
#include <sys/stat.h>

/* One end of a connection. */
typedef struct EcfsLines {
    int fd;
    GString *received; /* beyond the lines that were taken */
    GQueue fds;        /* that came with them, as pointers */
} EcfsLines;

/** Takes @fd. */
void ecfs_lines_init (EcfsLines *self, int fd);
void ecfs_lines_clear (EcfsLines *self);
/** A line, and a descriptor (-1: none) that is lent for the call. */
bool ecfs_lines_send (EcfsLines *self, const char *text, int fd, GError **error);
bool ecfs_lines_send_object (EcfsLines *self, JsonObject *object, int fd, GError **error);
/** Receives what is there, once. False: the other side hung up, or sent more than @max_size bytes without an end. */
bool ecfs_lines_receive (EcfsLines *self, size_t max_size, GError **error);
/** The next whole line that was received, g_free (); NULL: none. */
char *ecfs_lines_take (EcfsLines *self);
/** The next descriptor that was received; -1: none. */
int ecfs_lines_take_fd (EcfsLines *self);
/** A line within @timeout_ms from byte to byte (-1: whenever), g_free (). */
char *ecfs_lines_wait (EcfsLines *self, size_t max_size, int timeout_ms, GError **error);

/** Parses a line that is to be a JSON object, which may be from anybody. */
JsonNode *ecfs_control_parse (const char *text, GError **error);

/** The text of bytes, which may be no UTF-8; g_free (). */
char *ecfs_control_escape (const char *bytes);
/** The other way round; NULL: it is no such text. */
char *ecfs_control_unescape (const char *text);

/** A member of an object that may be from anybody; the default where there is no such member of this type. */
const char *ecfs_control_text (JsonObject *object, const char *member);
int64_t ecfs_control_number (JsonObject *object, const char *member);
bool ecfs_control_flag (JsonObject *object, const char *member);

void ecfs_control_put_error (JsonObject *reply, const GError *error);
/** "ok", or the error where there is one. */
void ecfs_control_put_end (JsonObject *reply, const GError *error);
/** The error that an answer tells; false when it does. */
bool ecfs_control_check (JsonObject *reply, GError **error);

void ecfs_control_put_attributes (JsonObject *object, const struct stat *st);
void ecfs_control_get_attributes (JsonObject *object, struct stat *ret_st);

/** A connection to the mount of an archive; -1: ENOTCONN when it is not mounted. */
int ecfs_control_connect (const char *archive_dir, GError **error);
/** Makes the socket in the open archive directory. */
int ecfs_control_listen (int dir_fd, int backlog, GError **error);

/* Who asks for a conversation. */
typedef struct EcfsControlPut {
    EcfsArchive *archive;
    const EcfsControlOps *ops;
    struct ucred peer;
    bool (*is_stopping) (void *user);
    void *user;
} EcfsControlPut;
/** Serve a conversation until it ends. */
void ecfs_control_put (const EcfsControlPut *self, EcfsLines *lines, JsonObject *request);
void ecfs_control_recode (const EcfsControlPut *self, EcfsLines *lines, JsonObject *request);
/** Queues what a request of `damaged` tells. */
bool ecfs_control_damaged (EcfsArchive *archive, JsonObject *request, GError **error);
/** Keeps what a request of `sha256` tells, of objects that have none. */
bool ecfs_control_sha256 (EcfsArchive *archive, JsonObject *request, GError **error);
/** Removes what a request of `prune` names, as far as nothing knows it; the reply tells which. */
bool ecfs_control_prune (EcfsArchive *archive, JsonObject *request, JsonObject *reply, GError **error);
/** Serves rm, mv and mkdir. */
bool ecfs_control_names (const EcfsControlPut *client, JsonObject *request, GError **error);
void ecfs_control_drain (const EcfsControlPut *self, EcfsLines *lines, JsonObject *request);
void ecfs_control_repair (const EcfsControlPut *self, EcfsLines *lines, JsonObject *request);

/* What the mount does in a conversation that tells how far it is. */
typedef bool (*EcfsControlWork) (const EcfsControlPut *client, JsonObject *request, const EcfsTransfer *transfer,
                                 GError **error);
void ecfs_control_serve_transfer (const EcfsControlPut *client, EcfsLines *lines, JsonObject *request,
                                  EcfsControlWork work);
/** Has the mount do it; takes @request. @failed: what did not become of files, for the message. */
bool ecfs_control_ask_transfer (const char *archive_dir, JsonObject *request, const EcfsTransfer *transfer,
                                const char *failed, GError **error);

/** "active", "readonly" or "draining"; EINVAL. */
bool ecfs_control_state_parse (const char *text, EcfsEndpointState *ret_state, GError **error);

#endif
