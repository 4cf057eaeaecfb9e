/*
 * ARCHIVE/control.sock, the door to a running mount: one JSON object per line and connection, answered by one. Only the
 * user who runs the mount and root are let in.
 *
 * Requests                                                     Answers
 *   {"verb":"wait","paths":["/a",...],"quorum":false}          {"ok":true}
 *   {"verb":"status"}                                          {"ok":true,"pid":N,"mountpoint":"...","status":{...}}
 *   {"verb":"sync"}                                            {"ok":true}
 *       what the mount did until now can be seen by who reads the catalog
 *   {"verb":"umount","mountpoint":"..."}                       {"ok":true}
 *       stores what is staged, then unmounts; ENOTCONN when the mountpoint is told and is another
 *   {"verb":"endpoint-add","endpoint":"[NAME=]URL,..."}        {"ok":true}
 *   {"verb":"endpoint-state","endpoint":"NAME","state":"..."}  {"ok":true}
 *   {"verb":"endpoint-renew","endpoint":"NAME"}                {"ok":true,"old":"NAME (replaced, UUID)"}
 *   {"verb":"endpoint-remove","endpoint":"NAME"}               {"ok":true}, and "left":"text"
 *   {"verb":"drain","endpoint":"NAME","towards":["NAME",...]}  {"ok":true}, and lines before it (control_priv.h)
 *   {"verb":"recode","path":"/a","code":"..."}                 {"ok":true}, and lines before it (control_priv.h)
 *   {"verb":"repair","objects":[{"object":N,"stripes":[N,...]},...]}  {"ok":true}, and lines before it (control_priv.h)
 *   {"verb":"damaged","stripes":[{"object":"UUID","index":N,"instance":N,"gone":false,"reason":"..."},...]} {"ok":true}
 *       what a reader beside the mount met; it is queued for repair. With "lies":true its checksums fit
 *   {"verb":"sha256","objects":[{"object":"UUID","sha256":"BASE64"},...]}  {"ok":true}
 *       of objects that have no SHA-256, as a deep check beside the mount found it
 *   {"verb":"rm","path":"/a","recursive":false}                {"ok":true}
 *   {"verb":"mv","path":"/a","to":"/b","keep":false}           {"ok":true}
 *   {"verb":"mkdir","path":"/a","mode":493,"parents":false}    {"ok":true}
 *   {"verb":"put","code":"..."}                                {"ok":true}, and a conversation follows (control_priv.h)
 * and, when it failed, {"error":"text","errno":N}. A path of a directory, and no paths at all, stand for everything;
 * paths are written as in URLs, since they need not be UTF-8.
 */
#ifndef ECFS_ARCHIVE_CONTROL_H
#define ECFS_ARCHIVE_CONTROL_H

#include "archive/archive.h"

#include <json-glib/json-glib.h>

#define ECFS_CONTROL_SOCKET   "control.sock"
#define ECFS_CONTROL_MAX_SIZE (1 << 20) /* bytes of a request */

typedef struct EcfsControl EcfsControl;

typedef struct EcfsControlOps {
    const char *mountpoint; /* absolute; borrowed while the server runs */
    /* Unmounts; called from a server thread when everything is stored, or not possible to store. */
    bool (*umount) (void *user, GError **error);
    /* A verb has made a name, or put another inode in its place: @lost, which then may have no name left and is the
     * callee's to drop; its ino is 0 where the name is new. Called from a server thread without locks. May be NULL:
     * nobody but the server uses the archive. */
    void (*renamed) (void *user, uint64_t parent, const char *name, const EcfsAttr *lost);
    /* A verb has changed the attributes of an inode. Likewise. */
    void (*changed) (void *user, uint64_t ino);
    void *user;
} EcfsControlOps;

/** Begins to serve; an old socket of a dead mount is replaced, which the archive's lock makes safe. */
EcfsControl *ecfs_control_start (EcfsArchive *archive, const EcfsControlOps *ops, GError **error);
/** Hangs up on everybody, removes the socket. NULL is accepted. */
void ecfs_control_stop (EcfsControl *self);

/**
 * Asks the mount of an archive. Returns its answer, which has "ok", as a reference; or NULL with the error that it
 * told, ENOTCONN when the archive is not mounted. Waits as long as it takes.
 */
JsonNode *ecfs_control_call (const char *archive_dir, JsonNode *request, GError **error);
/** The same, but EPROTO when the mount says nothing for so long; -1: for ever. */
JsonNode *ecfs_control_ask (const char *archive_dir, JsonNode *request, int timeout_ms, GError **error);

/** Has the mount queue damaged stripes (of EcfsSighting) for repair. ENOTCONN when the archive is not mounted, EPROTO
 * when it says nothing for long. */
bool ecfs_control_tell_damage (const char *archive_dir, const GArray *sightings, GError **error);

/** Adds an endpoint as `ecfs init --endpoint` takes it, by the mount where the archive is mounted. */
bool ecfs_control_endpoint_add (const char *archive_dir, const char *endpoint, GError **error);
/** Has nothing believed that an endpoint says, or again; through the mount where there is one. */
bool ecfs_control_endpoint_distrust (const char *archive_dir, const char *name, bool undo, GError **error);

#endif
