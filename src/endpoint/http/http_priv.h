/*
 * What the files of the WebDAV driver share. endpoint/web/http.h has calls and connections.
 *
 *   http.c           the drivers, and their dialect
 *   http_failure.c   what answers mean
 *   http_connect.c   whether the server is there and what it is
 *   http_write.c http_list.c http_ops.c   requests of the core, each made of calls
 */
#ifndef ECFS_ENDPOINT_HTTP_HTTP_PRIV_H
#define ECFS_ENDPOINT_HTTP_HTTP_PRIV_H

#include "endpoint/http/http_protocol.h"
#include "endpoint/web/http.h"

/* Everything is of the slot's thread. */
typedef struct EcfsDav {
    EcfsHttp http;
    bool dav;      /* it speaks WebDAV: writes, lists */
    bool incoming; /* the directory for temporary files is there */
    bool checking; /* whether we are still let in */
    bool tells_space;
} EcfsDav;

static inline EcfsDav *ecfs_dav (EcfsHttp *http)
{
    return (EcfsDav *) http;
}

extern const EcfsHttpDialect ecfs_dav_dialect;

/* http_failure.c */
GError *ecfs_dav_refusal (EcfsHttpOp *op, const char *name);
/** What the answer of the root means when connecting. */
GError *ecfs_dav_root_refusal (const EcfsHttp *self, const EcfsHttpCall *call);

/* http_connect.c */
extern const char ecfs_dav_ask_properties[];
void *ecfs_dav_connect (EcfsSlot *slot, bool make_root, GError **error);
void ecfs_dav_disconnect (void *connection);
/** Looks whether the root is still there for us; where it is not, the connection breaks. */
void ecfs_dav_check (EcfsHttp *self);

/* Requests */
void ecfs_dav_write_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_dav_mark_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_dav_list_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_dav_remove_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_dav_rmdir_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_dav_size_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_dav_space_begin (EcfsHttp *self, EcfsStream *request);
void ecfs_dav_examine_begin (EcfsHttp *self, EcfsStream *request);

/* Whether what was asked for is done: 202 says that it may be later, and 207 that it was not for all of it. */
static inline bool ecfs_dav_did (long status)
{
    return status == 200 || status == 201 || status == 204;
}

#endif
