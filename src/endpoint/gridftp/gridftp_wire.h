/*
 * What the gridftp driver and its helper, ecfs-gridftp-helper, say to each other.
 *
 * A helper is one connection to one server, and does one operation at a time; the socket that is its standard input
 * carries messages both ways. File contents go through ECFS_GRIDFTP_N_BLOCKS blocks of memory that both have mapped
 * (descriptor ECFS_GRIDFTP_MEMORY_FD of the helper): who has been told of a block owns it until it tells the other.
 *
 * The driver asks:                                         The helper answers:
 *   GET    URL, offset, length (~0: to the end)              BLOCK (block, offset, length) ..., then DONE
 *   LIST   URL: of a directory, as of MLSD                   the same
 *   PUT    URL, offset: 0 makes the file anew                nothing yet
 *   BLOCK  block, offset, length; the last with END          RETURN (block) for each once it is sent; after END, DONE
 *   FACTS  URL: of one file, as of MLST                      DONE with them as its text
 *   REMOVE URL, MAKE URL (a directory), MOVE URL NUL URL     DONE
 *   RETURN block: of a GET or LIST, its bytes were taken     nothing
 *   ABORT  end what is under way                             the DONE that it owes, soon
 *
 * DONE comes exactly once per operation, when nothing of it is under way any more; its code says how it went.
 */
#ifndef ECFS_ENDPOINT_GRIDFTP_GRIDFTP_WIRE_H
#define ECFS_ENDPOINT_GRIDFTP_GRIDFTP_WIRE_H

#include <stdint.h>

#define ECFS_GRIDFTP_MEMORY_FD   3
#define ECFS_GRIDFTP_N_BLOCKS    8
#define ECFS_GRIDFTP_BLOCK_BYTES (256 * 1024)
#define ECFS_GRIDFTP_TEXT_MAX    (64 * 1024)
#define ECFS_GRIDFTP_TO_THE_END  UINT64_MAX

typedef enum EcfsGridftpType {
    ECFS_GRIDFTP_GET = 1,
    ECFS_GRIDFTP_LIST,
    ECFS_GRIDFTP_PUT,
    ECFS_GRIDFTP_FACTS,
    ECFS_GRIDFTP_REMOVE,
    ECFS_GRIDFTP_MAKE,
    ECFS_GRIDFTP_UNMAKE,
    ECFS_GRIDFTP_MOVE,
    ECFS_GRIDFTP_BLOCK,
    ECFS_GRIDFTP_RETURN,
    ECFS_GRIDFTP_ABORT,
    ECFS_GRIDFTP_DONE,
} EcfsGridftpType;

/* Codes of DONE; others are those of FTP's replies, 400 to 599. */
#define ECFS_GRIDFTP_OK    0
#define ECFS_GRIDFTP_LOST  1 /* no reply: the connection cannot be used any more */
#define ECFS_GRIDFTP_BELOW 2 /* the operation could not be begun, or was aborted; the connection can be used */

/* Both sides are of one build and one machine: the bytes of the struct are the message, then come text_bytes of text.
 */
typedef struct EcfsGridftpMessage {
    uint32_t type;
    uint32_t code;
    uint32_t block;
    uint32_t end; /* BLOCK to the helper: the last one */
    uint64_t offset;
    uint64_t length;
    uint32_t text_bytes; /* at most ECFS_GRIDFTP_TEXT_MAX, without a NUL at the end */
    uint32_t zero;
} EcfsGridftpMessage;

#endif
