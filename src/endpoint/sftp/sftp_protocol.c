#include "endpoint/sftp/sftp_protocol.h"

#include <errno.h>
#include <string.h>

#define VERSION 3

#define ATTR_SIZE        0x00000001u
#define ATTR_UIDGID      0x00000002u
#define ATTR_PERMISSIONS 0x00000004u
#define ATTR_TIMES       0x00000008u
#define ATTR_EXTENDED    0x80000000u

/* Building */

static void put_u8 (GByteArray *to, uint8_t value)
{
    g_byte_array_append (to, &value, 1);
}

static void put_u32 (GByteArray *to, uint32_t value)
{
    uint32_t big = GUINT32_TO_BE (value);
    g_byte_array_append (to, (const uint8_t *) &big, sizeof big);
}

static void put_u64 (GByteArray *to, uint64_t value)
{
    uint64_t big = GUINT64_TO_BE (value);
    g_byte_array_append (to, (const uint8_t *) &big, sizeof big);
}

static void put_bytes (GByteArray *to, const void *bytes, uint32_t size)
{
    put_u32 (to, size);
    g_byte_array_append (to, bytes, size);
}

static void put_text (GByteArray *to, const char *text)
{
    put_bytes (to, text, (uint32_t) strlen (text));
}

/* Begins a packet; the result is for end_packet (). */
static guint begin_packet (GByteArray *to, EcfsSftpType type, uint32_t id)
{
    guint start = to->len;
    put_u32 (to, 0);
    put_u8 (to, (uint8_t) type);
    put_u32 (to, id);
    return start;
}

/* Fills in the length of the packet that began at @start; @more bytes follow outside the buffer. */
static void end_packet (GByteArray *to, guint start, uint32_t more)
{
    uint32_t big = GUINT32_TO_BE (to->len - start - 4 + more);
    memcpy (to->data + start, &big, sizeof big);
}

void ecfs_sftp_put_init (GByteArray *to)
{
    put_u32 (to, 5);
    put_u8 (to, ECFS_SFTP_INIT);
    put_u32 (to, VERSION);
}

void ecfs_sftp_put_path (GByteArray *to, EcfsSftpType type, uint32_t id, const char *path)
{
    guint start = begin_packet (to, type, id);
    put_text (to, path);
    end_packet (to, start, 0);
}

static void put_mode (GByteArray *to, unsigned mode)
{
    put_u32 (to, ATTR_PERMISSIONS);
    put_u32 (to, mode);
}

void ecfs_sftp_put_mkdir (GByteArray *to, uint32_t id, const char *path, unsigned mode)
{
    guint start = begin_packet (to, ECFS_SFTP_MKDIR, id);
    put_text (to, path);
    put_mode (to, mode);
    end_packet (to, start, 0);
}

void ecfs_sftp_put_open (GByteArray *to, uint32_t id, const char *path, uint32_t flags)
{
    guint start = begin_packet (to, ECFS_SFTP_OPEN, id);
    put_text (to, path);
    put_u32 (to, flags);
    put_u32 (to, 0); /* no attributes */
    end_packet (to, start, 0);
}

void ecfs_sftp_put_create (GByteArray *to, uint32_t id, const char *path, uint32_t flags, unsigned mode)
{
    guint start = begin_packet (to, ECFS_SFTP_OPEN, id);
    put_text (to, path);
    put_u32 (to, flags);
    put_mode (to, mode);
    end_packet (to, start, 0);
}

void ecfs_sftp_put_handle (GByteArray *to, EcfsSftpType type, uint32_t id, const EcfsSftpHandle *handle)
{
    guint start = begin_packet (to, type, id);
    put_bytes (to, handle->bytes, handle->size);
    end_packet (to, start, 0);
}

void ecfs_sftp_put_read (GByteArray *to, uint32_t id, const EcfsSftpHandle *handle, uint64_t offset, uint32_t bytes)
{
    guint start = begin_packet (to, ECFS_SFTP_READ, id);
    put_bytes (to, handle->bytes, handle->size);
    put_u64 (to, offset);
    put_u32 (to, bytes);
    end_packet (to, start, 0);
}

void ecfs_sftp_put_write (GByteArray *to, uint32_t id, const EcfsSftpHandle *handle, uint64_t offset, uint32_t bytes)
{
    guint start = begin_packet (to, ECFS_SFTP_WRITE, id);
    put_bytes (to, handle->bytes, handle->size);
    put_u64 (to, offset);
    put_u32 (to, bytes);
    end_packet (to, start, bytes);
}

void ecfs_sftp_put_rename (GByteArray *to, uint32_t id, const char *from, const char *name, bool replace)
{
    guint start = begin_packet (to, replace ? ECFS_SFTP_EXTENDED : ECFS_SFTP_RENAME, id);
    if (replace)
        put_text (to, "posix-rename@openssh.com");
    put_text (to, from);
    put_text (to, name);
    end_packet (to, start, 0);
}

void ecfs_sftp_put_fsync (GByteArray *to, uint32_t id, const EcfsSftpHandle *handle)
{
    guint start = begin_packet (to, ECFS_SFTP_EXTENDED, id);
    put_text (to, "fsync@openssh.com");
    put_bytes (to, handle->bytes, handle->size);
    end_packet (to, start, 0);
}

void ecfs_sftp_put_statvfs (GByteArray *to, uint32_t id, const char *path)
{
    guint start = begin_packet (to, ECFS_SFTP_EXTENDED, id);
    put_text (to, "statvfs@openssh.com");
    put_text (to, path);
    end_packet (to, start, 0);
}

void ecfs_sftp_put_limits (GByteArray *to, uint32_t id)
{
    guint start = begin_packet (to, ECFS_SFTP_EXTENDED, id);
    put_text (to, "limits@openssh.com");
    end_packet (to, start, 0);
}

/* Parsing */

/* Reads big-endian fields off the front of a packet; after a read past the end `bad` is set and all reads give 0. */
typedef struct Input {
    const uint8_t *at;
    size_t left;
    bool bad;
} Input;

static const uint8_t *take (Input *in, size_t n_bytes)
{
    if (in->bad || n_bytes > in->left) {
        in->bad = true;
        return NULL;
    }
    const uint8_t *bytes = in->at;
    in->at += n_bytes;
    in->left -= n_bytes;
    return bytes;
}

static uint64_t take_number (Input *in, unsigned n_bytes)
{
    const uint8_t *bytes = take (in, n_bytes);
    uint64_t value = 0;
    for (unsigned i = 0; bytes != NULL && i < n_bytes; i++)
        value = value << 8 | bytes[i];
    return value;
}

static uint32_t take_u32 (Input *in)
{
    return (uint32_t) take_number (in, 4);
}

/* A length-prefixed string; NULL and `bad` when it passes the end. */
static const uint8_t *take_string (Input *in, size_t *ret_bytes)
{
    size_t size = take_u32 (in);
    const uint8_t *bytes = take (in, size);
    *ret_bytes = bytes == NULL ? 0 : size;
    return bytes;
}

static bool string_is (const uint8_t *bytes, size_t size, const char *text)
{
    return size == strlen (text) && memcmp (bytes, text, size) == 0;
}

static EcfsSftpAttrs take_attrs (Input *in)
{
    EcfsSftpAttrs attrs = {0};
    uint32_t flags = take_u32 (in);
    attrs.has_size = (flags & ATTR_SIZE) != 0;
    attrs.has_mode = (flags & ATTR_PERMISSIONS) != 0;
    attrs.has_times = (flags & ATTR_TIMES) != 0;
    if (attrs.has_size)
        attrs.size = take_number (in, 8);
    if ((flags & ATTR_UIDGID) != 0)
        (void) take (in, 8);
    if (attrs.has_mode)
        attrs.mode = take_u32 (in);
    if (attrs.has_times) {
        (void) take_u32 (in);
        attrs.mtime_s = take_u32 (in);
    }
    if ((flags & ATTR_EXTENDED) != 0) {
        size_t size;
        /* Ends at the packet's end at the latest: a bad input gives no further strings. */
        for (uint32_t n = take_u32 (in); n > 0 && !in->bad; n--) {
            (void) take_string (in, &size);
            (void) take_string (in, &size);
        }
    }
    return attrs;
}

int ecfs_sftp_parse_header (const uint8_t *bytes, uint8_t *ret_type, uint32_t *ret_id, size_t *ret_bytes)
{
    Input in = {.at = bytes, .left = ECFS_SFTP_HEADER_BYTES};
    size_t size = (size_t) take_u32 (&in) + 4;
    if (size < ECFS_SFTP_HEADER_BYTES || size > ECFS_SFTP_MAX_PACKET)
        return -EPROTO;
    *ret_bytes = size;
    *ret_type = (uint8_t) take_number (&in, 1);
    *ret_id = take_u32 (&in);
    return 0;
}

int ecfs_sftp_parse_version (const uint8_t *packet, size_t packet_bytes, unsigned *ret_extensions)
{
    static const struct {
        const char *name;
        const char *version;
        EcfsSftpExtension flag;
    } known[] = {
        {"posix-rename@openssh.com", "1", ECFS_SFTP_HAS_POSIX_RENAME},
        {"fsync@openssh.com", "1", ECFS_SFTP_HAS_FSYNC},
        {"statvfs@openssh.com", "2", ECFS_SFTP_HAS_STATVFS},
        {"fstatvfs@openssh.com", "2", ECFS_SFTP_HAS_FSTATVFS},
        {"limits@openssh.com", "1", ECFS_SFTP_HAS_LIMITS},
    };
    Input in = {.at = packet, .left = packet_bytes};
    uint32_t size = take_u32 (&in);
    uint64_t type = take_number (&in, 1);
    uint32_t version = take_u32 (&in);
    if (in.bad || type != ECFS_SFTP_VERSION || version < VERSION || (size_t) size + 4 != packet_bytes)
        return -EPROTO;
    unsigned extensions = 0;
    while (in.left > 0 && !in.bad) {
        size_t name_bytes;
        size_t data_bytes;
        const uint8_t *name = take_string (&in, &name_bytes);
        const uint8_t *data = take_string (&in, &data_bytes);
        if (in.bad)
            return -EPROTO;
        for (size_t i = 0; i < G_N_ELEMENTS (known); i++)
            if (string_is (name, name_bytes, known[i].name) && string_is (data, data_bytes, known[i].version))
                extensions |= known[i].flag;
    }
    *ret_extensions = extensions;
    return 0;
}

static int take_handle (Input *in, EcfsSftpHandle *ret_handle)
{
    size_t size;
    const uint8_t *bytes = take_string (in, &size);
    if (bytes == NULL || size == 0 || size > ECFS_SFTP_MAX_HANDLE)
        return -EPROTO;
    ret_handle->size = (uint32_t) size;
    memcpy (ret_handle->bytes, bytes, size);
    return 0;
}

int ecfs_sftp_parse_reply (const uint8_t *packet, size_t packet_bytes, EcfsSftpReply *ret_reply)
{
    Input in = {.at = packet, .left = packet_bytes};
    EcfsSftpReply reply = {0};
    if ((size_t) take_u32 (&in) + 4 != packet_bytes || packet_bytes > ECFS_SFTP_MAX_PACKET)
        return -EPROTO;
    reply.type = (uint8_t) take_number (&in, 1);
    reply.id = take_u32 (&in);
    switch (reply.type) {
    case ECFS_SFTP_STATUS:
        reply.status = take_u32 (&in);
        if (reply.status == ECFS_SFTP_NO_SUCH_PATH || reply.status == ECFS_SFTP_NOT_A_DIRECTORY)
            reply.status = ECFS_SFTP_NO_SUCH_FILE; /* what version 3 says then */
        if (!in.bad && in.left > 0)                /* some old servers leave the text out */
            reply.text = (const char *) take_string (&in, &reply.text_bytes);
        break;
    case ECFS_SFTP_HANDLE:
        if (take_handle (&in, &reply.handle) != 0)
            return -EPROTO;
        break;
    case ECFS_SFTP_NAME:
        reply.n_names = take_u32 (&in);
        break;
    case ECFS_SFTP_ATTRS:
        reply.attrs = take_attrs (&in);
        break;
    case ECFS_SFTP_EXTENDED_REPLY:
        break;
    default:
        return -EPROTO;
    }
    if (in.bad)
        return -EPROTO;
    reply.rest = in.at;
    reply.rest_bytes = in.left;
    *ret_reply = reply;
    return 0;
}

int ecfs_sftp_next_name (EcfsSftpReply *reply, EcfsSftpName *ret_name)
{
    if (reply->n_names == 0)
        return -ENOENT;
    Input in = {.at = reply->rest, .left = reply->rest_bytes};
    EcfsSftpName name = {0};
    size_t long_bytes;
    name.name = (const char *) take_string (&in, &name.name_bytes);
    (void) take_string (&in, &long_bytes);
    name.attrs = take_attrs (&in);
    if (in.bad)
        return -EPROTO;
    reply->n_names--;
    reply->rest = in.at;
    reply->rest_bytes = in.left;
    *ret_name = name;
    return 0;
}

int ecfs_sftp_parse_limits (const EcfsSftpReply *reply, EcfsSftpLimits *ret_limits)
{
    Input in = {.at = reply->rest, .left = reply->rest_bytes};
    EcfsSftpLimits limits;
    limits.packet_bytes = take_number (&in, 8);
    limits.read_bytes = take_number (&in, 8);
    limits.write_bytes = take_number (&in, 8);
    limits.n_handles = take_number (&in, 8);
    if (in.bad || reply->type != ECFS_SFTP_EXTENDED_REPLY)
        return -EPROTO;
    *ret_limits = limits;
    return 0;
}

static uint64_t bytes_of (uint64_t n_fragments, uint64_t fragment_bytes)
{
    uint64_t bytes;
    return __builtin_mul_overflow (n_fragments, fragment_bytes, &bytes) ? UINT64_MAX : bytes;
}

int ecfs_sftp_parse_statvfs (const EcfsSftpReply *reply, EcfsSftpSpace *ret_space)
{
    Input in = {.at = reply->rest, .left = reply->rest_bytes};
    (void) take (&in, 8); /* f_bsize */
    uint64_t fragment_bytes = take_number (&in, 8);
    uint64_t n_blocks = take_number (&in, 8);
    (void) take (&in, 8); /* f_bfree */
    uint64_t n_available = take_number (&in, 8);
    (void) take (&in, 24); /* f_files, f_ffree, f_favail */
    uint64_t fsid = take_number (&in, 8);
    (void) take (&in, 16); /* f_flag, f_namemax */
    if (in.bad || reply->type != ECFS_SFTP_EXTENDED_REPLY)
        return -EPROTO;
    *ret_space = (EcfsSftpSpace){.free_bytes = bytes_of (n_available, fragment_bytes),
                                 .total_bytes = bytes_of (n_blocks, fragment_bytes),
                                 .fsid = fsid};
    return 0;
}

/* What a plain failure most likely means: OpenSSH uses it for all that the protocol has no code for. */
static int errno_of_failure (EcfsSftpOperation operation)
{
    switch (operation) {
    case ECFS_SFTP_ON_WRITE:
    case ECFS_SFTP_ON_COMMIT:
        return ENOSPC;
    case ECFS_SFTP_ON_RENAME:
        return EEXIST;
    case ECFS_SFTP_ON_READ:
    case ECFS_SFTP_ON_OPEN:
    case ECFS_SFTP_ON_OTHER:
        break;
    }
    return EIO;
}

int ecfs_sftp_errno (uint32_t status, EcfsSftpOperation operation)
{
    switch (status) {
    case ECFS_SFTP_OK:
        return 0;
    case ECFS_SFTP_EOF:
        return operation == ECFS_SFTP_ON_READ ? EBADMSG : EPROTO;
    case ECFS_SFTP_NO_SUCH_FILE:
        return ENOENT;
    case ECFS_SFTP_PERMISSION_DENIED:
        return EACCES;
    case ECFS_SFTP_FAILURE:
        return errno_of_failure (operation);
    case ECFS_SFTP_NO_CONNECTION:
    case ECFS_SFTP_CONNECTION_LOST:
        return ENOTCONN;
    case ECFS_SFTP_OP_UNSUPPORTED:
        return ENOTSUP;
    case ECFS_SFTP_FILE_ALREADY_EXISTS:
        return EEXIST;
    case ECFS_SFTP_WRITE_PROTECT:
        return EACCES;
    case ECFS_SFTP_NO_SPACE:
        return ENOSPC;
    case ECFS_SFTP_QUOTA_EXCEEDED:
        return EDQUOT;
    default:
        return EPROTO;
    }
}
