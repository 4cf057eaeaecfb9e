/*
 * Fixed-width little-endian fields in byte buffers: a writer that appends to a GByteArray, and a reader that never
 * leaves its buffer, for bytes that came from outside.
 */
#ifndef ECFS_UTIL_BYTES_H
#define ECFS_UTIL_BYTES_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline void ecfs_put_le (uint8_t *to, uint64_t value, unsigned n_bytes)
{
    for (unsigned i = 0; i < n_bytes; i++)
        to[i] = (uint8_t) (value >> (8 * i));
}

static inline uint64_t ecfs_get_le (const uint8_t *from, unsigned n_bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n_bytes; i++)
        value |= (uint64_t) from[i] << (8 * i);
    return value;
}

/** Appends the low @n_bytes (1 to 8) bytes of @value. */
static inline void ecfs_append_le (GByteArray *to, uint64_t value, unsigned n_bytes)
{
    uint8_t field[8];
    ecfs_put_le (field, value, n_bytes);
    g_byte_array_append (to, field, n_bytes);
}

/** Reads fields off the front of a buffer. Once a read would pass the end, `bad` is set and all reads give zeros. */
typedef struct EcfsCursor {
    const uint8_t *at; /* borrowed */
    size_t left;       /* bytes */
    bool bad;
} EcfsCursor;

/** @n_bytes bytes within the buffer, or NULL and `bad` when there are fewer. */
static inline const uint8_t *ecfs_cursor_bytes (EcfsCursor *self, size_t n_bytes)
{
    if (self->bad || n_bytes > self->left) {
        self->bad = true;
        return NULL;
    }
    const uint8_t *bytes = self->at;
    self->at += n_bytes;
    self->left -= n_bytes;
    return bytes;
}

static inline uint64_t ecfs_cursor_le (EcfsCursor *self, unsigned n_bytes)
{
    const uint8_t *bytes = ecfs_cursor_bytes (self, n_bytes);
    return bytes == NULL ? 0 : ecfs_get_le (bytes, n_bytes);
}

static inline void ecfs_cursor_copy (EcfsCursor *self, void *to, size_t n_bytes)
{
    const uint8_t *bytes = ecfs_cursor_bytes (self, n_bytes);
    if (bytes != NULL)
        memcpy (to, bytes, n_bytes);
    else
        memset (to, 0, n_bytes);
}

#endif
