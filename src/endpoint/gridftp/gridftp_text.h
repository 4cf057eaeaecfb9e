/* What GridFTP servers and the Globus libraries say, understood: listings, failures, and what a user can do. Pure. */
#ifndef ECFS_ENDPOINT_GRIDFTP_GRIDFTP_TEXT_H
#define ECFS_ENDPOINT_GRIDFTP_GRIDFTP_TEXT_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum EcfsFactsType {
    ECFS_FACTS_FILE,
    ECFS_FACTS_DIRECTORY,
    ECFS_FACTS_OTHER, /* links, devices, the directory listed itself and its parent */
} EcfsFactsType;

/* What a line of MLSD or MLST tells of a file. */
typedef struct EcfsFacts {
    EcfsFactsType type;
    uint64_t size;    /* bytes; of a file */
    int64_t mtime_s;  /* since 1970; 0: not told */
    const char *name; /* in the line, not terminated: name_bytes bytes without any '/' */
    size_t name_bytes;
} EcfsFacts;

/**
 * Parses one line (RFC 3659: "fact=value;...; name"), hostile, without the end of line. False: it tells of nothing that
 * could be a file of ours, such as a file without a size. Of a path only the last part is the name.
 */
bool ecfs_facts_parse (const char *line, size_t size, EcfsFacts *ret_facts);

/**
 * The errno for a failure: @code of gridftp_wire.h, @text as Globus puts it. ENOTCONN: the connection cannot be used
 * any more, or was not made.
 */
int ecfs_gridftp_errno (unsigned code, const char *text);

/* What the messages of ecfs_gridftp_explain () name. */
typedef struct EcfsGridftpNames {
    const char *host;
    unsigned port;            /* of sshftp; 0: as ssh has it */
    const char *known_hosts;  /* as configured; may be NULL */
    const char *user_proxy;   /* as configured or found; may be NULL */
    const char *certificates; /* the directory of trusted authorities */
} EcfsGridftpNames;

/** One line for a user from @text, saying what to do where that is known. g_free (). */
char *ecfs_gridftp_explain (const char *text, const EcfsGridftpNames *names);

#endif
