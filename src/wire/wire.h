/*
 * ARCHIVE/control.sock, the door to a running mount (of one that only follows ARCHIVE/reader.sock): one JSON object per
 * line and connection, answered by one. Only the user who runs the mount and root are let in.
 *
 * Requests                                                     Answers
 *   {"verb":"wait","paths":["/a",...],"quorum":false}          {"ok":true}
 *   {"verb":"status","survey":false}                           {"ok":true,"pid":N,"mountpoint":"...","status":{...}}
 *   {"verb":"live"}                                            {"ok":true,"live":{...}}
 *       what goes on at this moment; cheap enough to be asked every second
 *   {"verb":"ping"}                                            {"ok":true}     at once: somebody listens
 *   {"verb":"sync"}                                            {"ok":true}
 *   {"verb":"sync","journal":true}                             {"ok":true}     the journal is at the endpoints, too
 *       what the mount did until now can be seen by who reads the catalog
 *   {"verb":"umount","mountpoint":"..."}                       {"ok":true}
 *       stores what is staged, then unmounts; ENOTCONN when the mountpoint is told and is another
 *   {"verb":"endpoint-add","endpoint":"[NAME=]URL,..."}        {"ok":true}
 *   {"verb":"endpoint-state","endpoint":"NAME","state":"..."}  {"ok":true}
 *   {"verb":"endpoint-renew","endpoint":"NAME"}                {"ok":true,"old":"NAME (replaced, UUID)"}
 *   {"verb":"endpoint-remove","endpoint":"NAME"}               {"ok":true}, and "left":"text"
 *   {"verb":"key-file","file":"BASE64"}                        {"ok":true,"behind":["text",...],"safe":true}
 *       key slots came or went: the next revision of the file, signed by the archive's key
 *   {"verb":"drain","endpoint":"NAME","towards":["NAME",...]}  {"ok":true}, and lines before it (below)
 *   {"verb":"recode","path":"/a","code":"..."}                 {"ok":true}, and lines before it (below)
 *   {"verb":"recode","path":"/a","seal":true}                  the same
 *   {"verb":"undelete","paths":["/a"],"past":"/dir","at_ns":N,"keep":false} the same
 *   {"verb":"repair","objects":[{"object":N,"stripes":[N,...]},...]}  {"ok":true}, and lines before it (below)
 *   {"verb":"damaged","stripes":[{"object":"UUID","index":N,"instance":N,"gone":false,"reason":"..."},...]} {"ok":true}
 *       what a reader beside the mount met; it is queued for repair. With "lies":true its checksums fit
 *   {"verb":"sha256","objects":[{"object":"UUID","sha256":"BASE64"},...]}  {"ok":true}
 *       of objects that have no SHA-256, as a deep check beside the mount found it
 *   {"verb":"brake-end"}                                       {"ok":true}
 *       what a mass deletion took is not kept any longer
 *   {"verb":"mark","name":"...","remove":false}                {"ok":true}     the journal is at the endpoints, too
 *   {"verb":"publish","name":"...","withdraw":false}           {"ok":true}     it is in the hash table, or withdrawn
 *   {"verb":"swarm","action":"start|stop|drop","address":"HOST:PORT"}  {"ok":true}     the address only to drop it
 *   {"verb":"rm","path":"/a","recursive":false}                {"ok":true}
 *   {"verb":"mv","path":"/a","to":"/b","keep":false}           {"ok":true}
 *   {"verb":"mkdir","path":"/a","mode":493,"parents":false}    {"ok":true}
 *   {"verb":"put","code":"..."}                                {"ok":true}, and a conversation follows (below)
 * and, when it failed, {"error":"text","errno":N}. A path of a directory, and no paths at all, stand for everything;
 * paths are written as in URLs, since they need not be UTF-8.
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
 * Those of `recode`, `undelete` and `drain` (control/transfer.c has both sides) have lines from the mount only:
 * {"found":N,"done":N, "failed":N,"bytes":N,"wire":N} as files or objects are found and done,
 * {"problem":true,"error":"text","errno":N} for each that cannot be, with "warning":true where it counts as done, and
 * last the answer. Who hangs up cancels here, too.
 *
 * That of `repair` (control/repair.c) has a line from the mount for each object of the request, {"object":N,"stored":N,
 * "read":N,"written":N} and "error" and "errno" where it is not whole, and last the answer. The request names the
 * objects by their rows, and for each the stripes that are damaged or gone as a flat array: index, instance, 1 or 0
 * whether it is gone; where it has "crowded":true, its stripes are moved apart instead. Who hangs up cancels.
 */
#ifndef ECFS_WIRE_WIRE_H
#define ECFS_WIRE_WIRE_H

#include "archive/sightings.h"

#include <json-glib/json-glib.h>
#include <sys/stat.h>

#define ECFS_CONTROL_MAX_SIZE (1 << 20) /* bytes of a request */

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
/** A line within @timeout_ms from byte to byte (-1: whenever), g_free (). ETIMEDOUT. */
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
/** The same to a mount that only reads, and follows what another machine writes. It is asked for nothing but `live`,
 * `ping`, `publish` and `swarm`. */
int ecfs_control_connect_reader (const char *archive_dir, GError **error);
/** Makes the socket @name in the open archive directory. */
int ecfs_control_listen (int dir_fd, const char *name, int backlog, GError **error);

/**
 * Asks the mount of an archive. Returns its answer, which has "ok", as a reference; or NULL with the error that it
 * told, ENOTCONN when the archive is not mounted. Waits as long as it takes.
 */
JsonNode *ecfs_control_call (const char *archive_dir, JsonNode *request, GError **error);
/** The same, but ETIMEDOUT when the mount says nothing for so long; -1: for ever. */
JsonNode *ecfs_control_ask (const char *archive_dir, JsonNode *request, int timeout_ms, GError **error);
/** The same of a mount that only reads. */
JsonNode *ecfs_control_ask_reader (const char *archive_dir, JsonNode *request, int timeout_ms, GError **error);
/** Whether the mount's process lets whoever asks wait, as one that was stopped does: for 10 seconds. The error names
 * it, with ETIMEDOUT. False where there is none. */
bool ecfs_control_is_silent (const char *archive_dir, GError **error);

#define ECFS_FSTYPE "fuse.ecfs" /* of mounts, in the kernel's table */

/** @path as the kernel names it, g_free (). The last part is not touched: everything on a dead mount fails. */
char *ecfs_kernel_name (const char *path);

/** Has damaged stripes (of EcfsSighting) queued for repair, for an archive that is open for reading: by its mount, or
 * by opening it for writing for a moment. ETIMEDOUT when the mount says nothing for long. */
bool ecfs_sightings_hand_over (EcfsArchive *archive, const GArray *sightings, GError **error);

#endif
