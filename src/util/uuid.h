/* UUIDs as 16 bytes; libuuid prints and parses them. */
#ifndef ECFS_UTIL_UUID_H
#define ECFS_UTIL_UUID_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <uuid/uuid.h>

typedef struct EcfsUuid {
    uint8_t bytes[16];
} EcfsUuid;

#define ECFS_UUID_TEXT_SIZE 37 /* "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" and a NUL */
#define ECFS_UUID_HEX_SIZE  33 /* the same without dashes, as stripe names carry it */

/** Fills at most 256 bytes from the kernel's generator; aborts where there is none. */
static inline void ecfs_random (void *bytes, size_t size)
{
    if (getrandom (bytes, size, 0) != (ssize_t) size) /* so few are never given in part */
        abort ();
}

/** A random one, version 4. libuuid would mix in a second generator, which takes it ten times as long. */
static inline EcfsUuid ecfs_uuid_new (void)
{
    EcfsUuid uuid;
    ecfs_random (uuid.bytes, sizeof uuid.bytes);
    uuid.bytes[6] = (uint8_t) ((uuid.bytes[6] & 0x0f) | 0x40);
    uuid.bytes[8] = (uint8_t) ((uuid.bytes[8] & 0x3f) | 0x80);
    return uuid;
}

static inline bool ecfs_uuid_equal (const EcfsUuid *a, const EcfsUuid *b)
{
    return memcmp (a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static inline bool ecfs_uuid_is_nil (const EcfsUuid *uuid)
{
    return uuid_is_null (uuid->bytes) != 0;
}

static inline void ecfs_uuid_text (const EcfsUuid *uuid, char text[ECFS_UUID_TEXT_SIZE])
{
    uuid_unparse_lower (uuid->bytes, text);
}

/** False when @text is not a UUID with dashes; *ret_uuid is then untouched. */
static inline bool ecfs_uuid_parse (const char *text, EcfsUuid *ret_uuid)
{
    EcfsUuid uuid;
    if (uuid_parse (text, uuid.bytes) != 0)
        return false;
    *ret_uuid = uuid;
    return true;
}

#endif
