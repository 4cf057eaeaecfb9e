/* The server behind control.sock, the door to a running mount; wire/wire.h describes what is said there. */
#ifndef ECFS_CONTROL_CONTROL_H
#define ECFS_CONTROL_CONTROL_H

#include "verbs/names.h"

typedef struct EcfsControl EcfsControl;

typedef struct EcfsControlOps {
    bool is_reader;         /* it only reads: it has a door of its own, where little can be asked for */
    const char *mountpoint; /* absolute; borrowed while the server runs */
    /* Unmounts; called from a server thread when everything is stored, or cannot be stored. */
    bool (*umount) (void *user, GError **error);
    void *user;
    EcfsNameWatch names; /* called from a server thread, without locks */
} EcfsControlOps;

/** Begins to serve; an old socket of a dead mount is replaced, which the archive's lock makes safe. */
EcfsControl *ecfs_control_start (EcfsArchive *archive, const EcfsControlOps *ops, GError **error);
/** Hangs up on everybody, removes the socket. NULL is accepted. */
void ecfs_control_stop (EcfsControl *self);

#endif
