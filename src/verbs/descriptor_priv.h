/* What both forms of descriptors share. */
#ifndef ECFS_VERBS_DESCRIPTOR_PRIV_H
#define ECFS_VERBS_DESCRIPTOR_PRIV_H

#include "verbs/descriptor.h"

/** Hexadecimal; g_free (). */
char *ecfs_descriptor_hex (const uint8_t *bytes, size_t size);
/** False unless @text, which may be NULL, is exactly @size bytes. */
bool ecfs_descriptor_bytes (const char *text, uint8_t *ret_bytes, size_t size);
/** False unless @text, which may be NULL, is a number up to @max. */
bool ecfs_descriptor_number (const char *text, uint64_t max, uint64_t *ret_number);

/* Looks a value up by key; NULL: there is none. g_free (). */
typedef char *(*EcfsDescriptorLookup) (void *user, const char *key);

/* Keys of an object in either form. */
typedef struct EcfsDescriptorKeys {
    const char *uuid, *code, *parameters, *size, *segment_bytes, *block_bytes, *header_bytes, *digest;
    const char *sha256; /* may be NULL: the form has none */
} EcfsDescriptorKeys;

/** Of an object that is stored under a key: what its section says of that. */
void ecfs_descriptor_format_seal (const EcfsDescriptorObject *object, const char *group, GKeyFile *file);
/** Reads that back into a row, before the object is added, ... */
bool ecfs_descriptor_read_seal (EcfsDescriptorLookup lookup, void *user, EcfsObjectRow *row, GError **error);
/** ... and into the object, where the row says that it is stored under a key. EBADMSG that names the key. */
bool ecfs_descriptor_read_units (EcfsDescriptorLookup lookup, void *user, EcfsDescriptorObject *object, GError **error);

/** The text with what tells that it is all there, and as it was written; g_free (). */
char *ecfs_descriptor_end (const char *text);
/** EBADMSG: the text does not end so. A key that was damaged, or a list that was cut off, would be believed. */
bool ecfs_descriptor_check_end (const char *text, GError **error);

/** An object's row without stripes, and its codec; false with EBADMSG that names the key. */
bool ecfs_descriptor_read_object (EcfsDescriptorLookup lookup, void *user, const EcfsDescriptorKeys *keys,
                                  EcfsObjectRow **ret_row, EcfsCodec **ret_codec, GError **error);

EcfsDescriptor *ecfs_descriptor_parse_fec (const char *text, GError **error);

#endif
