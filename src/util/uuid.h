/* UUIDs as 16 bytes; libuuid makes, prints and parses them. */
#ifndef ECFS_UTIL_UUID_H
#define ECFS_UTIL_UUID_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <uuid/uuid.h>

typedef struct EcfsUuid {
    uint8_t bytes[16];
} EcfsUuid;

#define ECFS_UUID_TEXT_SIZE 37 /* "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" and a NUL */
#define ECFS_UUID_HEX_SIZE  33 /* the same without dashes, as stripe names carry it */

static inline EcfsUuid ecfs_uuid_new (void)
{
    EcfsUuid uuid;
    uuid_generate_random (uuid.bytes);
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
