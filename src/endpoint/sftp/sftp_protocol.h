/*
 * SFTP version 3 (draft-ietf-secsh-filexfer-02) as bytes: requests are appended to a buffer, replies are parsed from
 * one. Pure functions without I/O; the replies are hostile.
 *
 * A packet is a 32-bit length, a type byte, a 32-bit request id and what the type says; numbers are big-endian.
 */
#ifndef ECFS_ENDPOINT_SFTP_SFTP_PROTOCOL_H
#define ECFS_ENDPOINT_SFTP_SFTP_PROTOCOL_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECFS_SFTP_MAX_PACKET   (256 * 1024 + 4096) /* what we take from a server; OpenSSH sends at most 256 KiB */
#define ECFS_SFTP_MAX_HANDLE   256                 /* bytes, by the draft */
#define ECFS_SFTP_HEADER_BYTES 9                   /* length, type, id: in front of every reply */
#define ECFS_SFTP_DATA_BYTES   13                  /* the header and the data's length: all before the data of DATA */

typedef enum EcfsSftpType {
    ECFS_SFTP_INIT = 1,
    ECFS_SFTP_VERSION = 2,
    ECFS_SFTP_OPEN = 3,
    ECFS_SFTP_CLOSE = 4,
    ECFS_SFTP_READ = 5,
    ECFS_SFTP_WRITE = 6,
    ECFS_SFTP_OPENDIR = 11,
    ECFS_SFTP_READDIR = 12,
    ECFS_SFTP_REMOVE = 13,
    ECFS_SFTP_MKDIR = 14,
    ECFS_SFTP_RMDIR = 15,
    ECFS_SFTP_REALPATH = 16,
    ECFS_SFTP_STAT = 17,
    ECFS_SFTP_RENAME = 18,
    ECFS_SFTP_STATUS = 101,
    ECFS_SFTP_HANDLE = 102,
    ECFS_SFTP_DATA = 103,
    ECFS_SFTP_NAME = 104,
    ECFS_SFTP_ATTRS = 105,
    ECFS_SFTP_EXTENDED = 200,
    ECFS_SFTP_EXTENDED_REPLY = 201,
} EcfsSftpType;

typedef enum EcfsSftpStatus {
    ECFS_SFTP_OK = 0,
    ECFS_SFTP_EOF = 1,
    ECFS_SFTP_NO_SUCH_FILE = 2,
    ECFS_SFTP_PERMISSION_DENIED = 3,
    ECFS_SFTP_FAILURE = 4,
    ECFS_SFTP_BAD_MESSAGE = 5,
    ECFS_SFTP_NO_CONNECTION = 6,
    ECFS_SFTP_CONNECTION_LOST = 7,
    ECFS_SFTP_OP_UNSUPPORTED = 8,
    /* Of later versions; ProFTPD and others answer them in version 3 too. */
    ECFS_SFTP_NO_SUCH_PATH = 10,
    ECFS_SFTP_FILE_ALREADY_EXISTS = 11,
    ECFS_SFTP_WRITE_PROTECT = 12,
    ECFS_SFTP_NO_SPACE = 14,
    ECFS_SFTP_QUOTA_EXCEEDED = 15,
    ECFS_SFTP_NOT_A_DIRECTORY = 19,
} EcfsSftpStatus;

typedef enum EcfsSftpOpenFlags {
    ECFS_SFTP_OPEN_READ = 0x01,
    ECFS_SFTP_OPEN_WRITE = 0x02,
    ECFS_SFTP_OPEN_CREATE = 0x08,
    ECFS_SFTP_OPEN_TRUNCATE = 0x10,
    ECFS_SFTP_OPEN_EXCLUSIVE = 0x20,
} EcfsSftpOpenFlags;

/* OpenSSH's extensions, as the server's VERSION announces them. */
typedef enum EcfsSftpExtension {
    ECFS_SFTP_HAS_POSIX_RENAME = 1 << 0,
    ECFS_SFTP_HAS_FSYNC = 1 << 1,
    ECFS_SFTP_HAS_STATVFS = 1 << 2,
    ECFS_SFTP_HAS_LIMITS = 1 << 3,
    ECFS_SFTP_HAS_FSTATVFS = 1 << 4,
} EcfsSftpExtension;

/* What the server calls an open file. */
typedef struct EcfsSftpHandle {
    uint32_t size; /* bytes */
    uint8_t bytes[ECFS_SFTP_MAX_HANDLE];
} EcfsSftpHandle;

typedef struct EcfsSftpAttrs {
    bool has_size, has_mode, has_times;
    uint64_t size;
    uint32_t mode; /* as st_mode */
    uint32_t mtime_s;
} EcfsSftpAttrs;

/* A reply; what is set depends on its type. Pointers point into the packet. */
typedef struct EcfsSftpReply {
    uint8_t type;
    uint32_t id;
    uint32_t status;       /* STATUS */
    const char *text;      /* STATUS: the server's words, not terminated; may be NULL */
    size_t text_bytes;     /* STATUS */
    EcfsSftpHandle handle; /* HANDLE */
    EcfsSftpAttrs attrs;   /* ATTRS */
    uint32_t n_names;      /* NAME: not yet taken by ecfs_sftp_next_name () */
    const uint8_t *rest;   /* NAME, EXTENDED_REPLY */
    size_t rest_bytes;     /* NAME, EXTENDED_REPLY */
} EcfsSftpReply;

typedef struct EcfsSftpName {
    const char *name; /* not terminated; any bytes */
    size_t name_bytes;
    EcfsSftpAttrs attrs;
} EcfsSftpName;

typedef struct EcfsSftpLimits {
    uint64_t packet_bytes, read_bytes, write_bytes, n_handles; /* 0: the server does not say */
} EcfsSftpLimits;

/* Requests: each appends one whole packet to @to (the WRITE header lacks only its data). */

/** INIT, the first packet of all; it has no id. */
void ecfs_sftp_put_init (GByteArray *to);
/** OPENDIR, REMOVE, REALPATH, STAT: a type with one path. */
void ecfs_sftp_put_path (GByteArray *to, EcfsSftpType type, uint32_t id, const char *path);
/** MKDIR with the server's default mode. */
void ecfs_sftp_put_mkdir (GByteArray *to, uint32_t id, const char *path, unsigned mode);
/** OPEN; @flags of EcfsSftpOpenFlags. */
void ecfs_sftp_put_open (GByteArray *to, uint32_t id, const char *path, uint32_t flags);
/** The same of a file that is made, with @mode. */
void ecfs_sftp_put_create (GByteArray *to, uint32_t id, const char *path, uint32_t flags, unsigned mode);
/** CLOSE, READDIR: a type with one handle. */
void ecfs_sftp_put_handle (GByteArray *to, EcfsSftpType type, uint32_t id, const EcfsSftpHandle *handle);
void ecfs_sftp_put_read (GByteArray *to, uint32_t id, const EcfsSftpHandle *handle, uint64_t offset, uint32_t bytes);
/** WRITE up to its data: the caller sends exactly @bytes bytes behind it. */
void ecfs_sftp_put_write (GByteArray *to, uint32_t id, const EcfsSftpHandle *handle, uint64_t offset, uint32_t bytes);
/** RENAME, or posix-rename@openssh.com when @replace. */
void ecfs_sftp_put_rename (GByteArray *to, uint32_t id, const char *from, const char *name, bool replace);
void ecfs_sftp_put_fsync (GByteArray *to, uint32_t id, const EcfsSftpHandle *handle);
void ecfs_sftp_put_statvfs (GByteArray *to, uint32_t id, const char *path);
void ecfs_sftp_put_limits (GByteArray *to, uint32_t id);

/* Replies. All return 0 or -EPROTO, and set their outputs only on 0. */

/**
 * The first ECFS_SFTP_HEADER_BYTES of a reply. @ret_bytes is the size of the whole packet with its length field, at
 * least ECFS_SFTP_HEADER_BYTES and at most ECFS_SFTP_MAX_PACKET.
 */
int ecfs_sftp_parse_header (const uint8_t *bytes, uint8_t *ret_type, uint32_t *ret_id, size_t *ret_bytes);
/** A whole VERSION packet: it must be version 3 or later (which we then speak as 3). @ret_extensions: flags. */
int ecfs_sftp_parse_version (const uint8_t *packet, size_t packet_bytes, unsigned *ret_extensions);
/** A whole packet of type STATUS, HANDLE, NAME, ATTRS or EXTENDED_REPLY. */
int ecfs_sftp_parse_reply (const uint8_t *packet, size_t packet_bytes, EcfsSftpReply *ret_reply);
/** The next entry of a NAME reply; -ENOENT after the last. */
int ecfs_sftp_next_name (EcfsSftpReply *reply, EcfsSftpName *ret_name);
/** The body of an EXTENDED_REPLY to limits@openssh.com. */
int ecfs_sftp_parse_limits (const EcfsSftpReply *reply, EcfsSftpLimits *ret_limits);
typedef struct EcfsSftpSpace {
    uint64_t free_bytes; /* that the account may still use */
    uint64_t total_bytes;
    uint64_t fsid; /* 0: the server's system has none */
} EcfsSftpSpace;

/** The body of an EXTENDED_REPLY to statvfs@openssh.com. */
int ecfs_sftp_parse_statvfs (const EcfsSftpReply *reply, EcfsSftpSpace *ret_space);

/* What was asked, for ecfs_sftp_errno (): OpenSSH answers most failures with a plain "failure". */
typedef enum EcfsSftpOperation {
    ECFS_SFTP_ON_READ,
    ECFS_SFTP_ON_OPEN,
    ECFS_SFTP_ON_WRITE,
    ECFS_SFTP_ON_COMMIT, /* fsync and close of a written file */
    ECFS_SFTP_ON_RENAME,
    ECFS_SFTP_ON_OTHER,
} EcfsSftpOperation;

/**
 * The errno of a status. EOF and plain failures depend on the operation: reading past the end is EBADMSG; a failed
 * write or commit is likely ENOSPC and a failed rename likely EEXIST, both for the caller to verify (EIO otherwise).
 */
int ecfs_sftp_errno (uint32_t status, EcfsSftpOperation operation);

#endif
