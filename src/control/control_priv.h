/* What the serving halves of conversations share. */
#ifndef ECFS_CONTROL_CONTROL_PRIV_H
#define ECFS_CONTROL_CONTROL_PRIV_H

#include "control/control.h"
#include "ecfs/ecfs.h"
#include "wire/wire.h"

#include <sys/socket.h>

/* Who asks for a conversation. */
typedef struct EcfsControlClient {
    EcfsArchive *archive;
    const EcfsControlOps *ops;
    struct ucred peer;
    bool (*is_stopping) (void *user);
    void *user;
} EcfsControlClient;
/** Serve a conversation until it ends. */
void ecfs_control_put (const EcfsControlClient *self, EcfsLines *lines, JsonObject *request);
void ecfs_control_recode (const EcfsControlClient *self, EcfsLines *lines, JsonObject *request);
/** Queues what a request of `damaged` tells. */
bool ecfs_control_damaged (EcfsArchive *archive, JsonObject *request, GError **error);
/** Keeps what a request of `sha256` tells, of objects that have none. */
bool ecfs_control_sha256 (EcfsArchive *archive, JsonObject *request, GError **error);
/** Removes what a request of `prune` names, as far as nothing knows it; the reply tells which. */
bool ecfs_control_prune (EcfsArchive *archive, JsonObject *request, JsonObject *reply, GError **error);
/** Serves rm, mv and mkdir. */
bool ecfs_control_names (const EcfsControlClient *client, JsonObject *request, GError **error);
void ecfs_control_drain (const EcfsControlClient *self, EcfsLines *lines, JsonObject *request);
void ecfs_control_undelete (const EcfsControlClient *self, EcfsLines *lines, JsonObject *request);
void ecfs_control_repair (const EcfsControlClient *self, EcfsLines *lines, JsonObject *request);

/* What the mount does in a conversation that tells how far it is. */
typedef bool (*EcfsControlWork) (const EcfsControlClient *client, JsonObject *request,
                                 const EcfsTransferOptions *transfer, GError **error);
void ecfs_control_serve_transfer (const EcfsControlClient *client, EcfsLines *lines, JsonObject *request,
                                  EcfsControlWork work);

#endif
