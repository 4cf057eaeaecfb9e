/*
 * ARCHIVE/control.sock, the door to a running mount: one JSON object per line and connection, answered by one. Only the
 * user who runs the mount and root are let in.
 *
 * Requests                                                     Answers
 *   {"verb":"wait","paths":["/a",...],"quorum":false}          {"ok":true}
 *   {"verb":"status"}                                          {"ok":true,"pid":N,"mountpoint":"...","status":{...}}
 *   {"verb":"umount","mountpoint":"..."}                       {"ok":true}
 *       stores what is staged, then unmounts; ENOTCONN when the mountpoint is told and is another
 * and, when it failed, {"error":"text","errno":N}. A path of a directory, and no paths at all, stand for everything.
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

#endif
