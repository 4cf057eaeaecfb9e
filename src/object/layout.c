#include "object/layout.h"

#include <glib.h>

#include <inttypes.h>
#include <stdio.h>

#define WRITTEN_BLOCK_BYTES  8192
#define OBJECTS_IN_DIRECTORY 256 /* in a row; over all 4096 directories they spread evenly */

static uint64_t divide_up (uint64_t value, uint64_t by)
{
    return (value + by - 1) / by;
}

uint32_t ecfs_layout_segment_bytes (uint64_t wanted, unsigned k, size_t granule)
{
    uint64_t unit = divide_up (4096, granule) * granule;
    uint64_t packet = divide_up (divide_up (wanted, k), unit) * unit;
    while (packet > unit && packet * k > ECFS_SEGMENT_MAX)
        packet -= unit;
    return (uint32_t) (packet * k);
}

uint32_t ecfs_layout_written_block_bytes (size_t granule)
{
    return (uint32_t) (WRITTEN_BLOCK_BYTES / granule * granule);
}

bool ecfs_layout_valid (const EcfsLayout *self)
{
    return self->k > 0 && self->granule > 0 && self->granule <= 4096 && self->block_bytes >= self->granule &&
           self->block_bytes <= ECFS_BLOCK_MAX_BYTES && self->block_bytes % self->granule == 0 &&
           self->segment_bytes > 0 && self->segment_bytes <= ECFS_SEGMENT_MAX &&
           self->segment_bytes % ((uint32_t) self->k * self->granule) == 0 && self->size > 0 &&
           self->size <= ECFS_OBJECT_MAX_BYTES && self->header_bytes > 0 && self->header_bytes <= 1 << 20 &&
           (self->tag_bytes == ECFS_TAG_CHECKSUM_BYTES || self->tag_bytes == ECFS_TAG_MAC_BYTES);
}

uint64_t ecfs_layout_n_segments (const EcfsLayout *self)
{
    return divide_up (self->size, self->segment_bytes);
}

uint32_t ecfs_layout_content_bytes (const EcfsLayout *self, uint64_t segment)
{
    uint64_t left = self->size - segment * self->segment_bytes;
    return (uint32_t) MIN (left, self->segment_bytes);
}

uint32_t ecfs_layout_packet_bytes (const EcfsLayout *self, uint64_t segment)
{
    uint64_t share = divide_up (ecfs_layout_content_bytes (self, segment), self->k);
    return (uint32_t) (divide_up (share, self->granule) * self->granule);
}

static uint32_t full_packet_bytes (const EcfsLayout *self)
{
    return self->segment_bytes / self->k;
}

uint32_t ecfs_layout_n_blocks (const EcfsLayout *self, uint64_t segment)
{
    return (uint32_t) divide_up (ecfs_layout_packet_bytes (self, segment), self->block_bytes);
}

uint32_t ecfs_layout_block_bytes (const EcfsLayout *self, uint64_t segment, uint32_t block)
{
    uint32_t left = ecfs_layout_packet_bytes (self, segment) - block * self->block_bytes;
    return MIN (left, self->block_bytes);
}

uint32_t ecfs_layout_stored_bytes (const EcfsLayout *self, uint64_t segment)
{
    return ecfs_layout_packet_bytes (self, segment) + ecfs_layout_n_blocks (self, segment) * self->tag_bytes;
}

uint64_t ecfs_layout_block_offset (const EcfsLayout *self, uint64_t segment, uint32_t block)
{
    uint64_t full = full_packet_bytes (self);
    uint64_t stored = full + divide_up (full, self->block_bytes) * self->tag_bytes;
    uint64_t start = self->header_bytes + segment * stored;
    if (block >= ecfs_layout_n_blocks (self, segment))
        return start + ecfs_layout_stored_bytes (self, segment);
    return start + (uint64_t) block * (self->block_bytes + self->tag_bytes);
}

uint64_t ecfs_layout_block_number (const EcfsLayout *self, uint64_t segment, uint32_t block)
{
    return segment * divide_up (full_packet_bytes (self), self->block_bytes) + block;
}

uint64_t ecfs_layout_area_bytes (const EcfsLayout *self)
{
    uint64_t last = ecfs_layout_n_segments (self) - 1;
    return ecfs_layout_block_offset (self, last, UINT32_MAX) - self->header_bytes;
}

EcfsUuid ecfs_object_uuid (unsigned number)
{
    EcfsUuid uuid = ecfs_uuid_new ();
    unsigned directory = number / OBJECTS_IN_DIRECTORY;
    uuid.bytes[0] = (uint8_t) (directory >> 4);
    uuid.bytes[1] = (uint8_t) (directory << 4 | (uuid.bytes[1] & 0x0f));
    return uuid;
}

void ecfs_stripe_name (const EcfsUuid *object, uint16_t index, uint64_t instance, char name[ECFS_STRIPE_NAME_SIZE])
{
    char hex[ECFS_UUID_HEX_SIZE] = {0};
    for (int i = 0; i < 16; i++) {
        hex[2 * i] = "0123456789abcdef"[object->bytes[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[object->bytes[i] & 0x0f];
    }
    snprintf (name, ECFS_STRIPE_NAME_SIZE, "stripes/%.3s/%s-%02x-%016" PRIx64, hex, hex, index, instance);
}

static bool parse_hex (const char **at, int n_digits, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (int i = 0; i < n_digits; i++, (*at)++) {
        int digit = g_ascii_xdigit_value (**at);
        if (digit < 0 || g_ascii_isupper (**at))
            return false;
        value = value << 4 | (uint64_t) digit;
    }
    *ret_value = value;
    return true;
}

bool ecfs_stripe_name_parse (const char *name, EcfsUuid *ret_object, uint16_t *ret_index, uint64_t *ret_instance)
{
    const char *at = strrchr (name, '/');
    at = at == NULL ? name : at + 1;
    EcfsUuid object;
    uint64_t byte, index, instance;
    for (int i = 0; i < 16; i++) {
        if (!parse_hex (&at, 2, &byte))
            return false;
        object.bytes[i] = (uint8_t) byte;
    }
    if (*at++ != '-' || !parse_hex (&at, 2, &index) || *at++ != '-' || !parse_hex (&at, 16, &instance) || *at != '\0')
        return false;
    char expected[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (&object, (uint16_t) index, instance, expected);
    if (strcmp (expected, name) != 0)
        return false;
    *ret_object = object;
    *ret_index = (uint16_t) index;
    *ret_instance = instance;
    return true;
}
