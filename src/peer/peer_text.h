/* What peers say to each other: heads of requests. Pure, on bytes that nobody vouches for. */
#ifndef ECFS_PEER_PEER_TEXT_H
#define ECFS_PEER_PEER_TEXT_H

#include "cache/cache.h"

#define ECFS_PEER_HEAD_MAX    2048
#define ECFS_PEER_WAIT_MAX_MS 1000
#define ECFS_PEER_CELL_MAX    (1u << 30)

typedef enum EcfsPeerVerb {
    ECFS_PEER_HELLO, /* GET /v1/hello */
    ECFS_PEER_GET,   /* GET /v1/get/OBJECT/SEGMENT/BYTES/WAIT: WAIT in ms, while it is being fetched */
    ECFS_PEER_WHERE, /* GET /v1/where/OBJECT/SEGMENT/BYTES/ASKER/WITHOUT: ids, nil where there is none */
    ECFS_PEER_CLAIM, /* GET /v1/claim/…, the same: who asks fetches it for all, if nobody does yet */
    ECFS_PEER_JOIN,  /* GET /v1/join/…, the same: who asks does not, whoever does */
} EcfsPeerVerb;

typedef struct EcfsPeerRequest {
    EcfsPeerVerb verb;
    EcfsCacheCell cell;
    uint64_t bytes;   /* of the cell: all that belongs there */
    unsigned wait_ms; /* who wants more, another version maybe, gets ECFS_PEER_WAIT_MAX_MS */
    EcfsUuid asker;   /* nil: it serves nobody */
    EcfsUuid without; /* of whom nothing came; nil: nobody */
    bool closes;      /* no more requests come on this connection */
} EcfsPeerRequest;

/**
 * Parses a head from its beginning on. Returns its bytes with the empty line at its end; 0: it goes on; -EPROTO: it is
 * none, or longer than ECFS_PEER_HEAD_MAX.
 */
int ecfs_peer_request_parse (const char *bytes, size_t size, EcfsPeerRequest *ret_request);

/** The path that says the same; g_free (). */
char *ecfs_peer_request_path (const EcfsPeerRequest *request);

/** "HOST:PORT" or "[HOST]:PORT"; both g_free (). False: it is neither. */
bool ecfs_peer_address_parse (const char *text, char **ret_host, unsigned *ret_port);

#endif
