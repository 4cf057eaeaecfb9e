/*
 * Descriptors as files: all that is needed to fetch and verify one file's content without its archive. Two forms say
 * the same, ecfs-descriptor(5) describes them: our own, and the property file of Pitkänen et al. for one object.
 *
 * A descriptor may come from anybody. It names URLs and nothing of the reader's machine: options such as the file of a
 * password are given by who fetches.
 *
 * Small files share objects, which a descriptor of one says nothing of: it has the content itself.
 *
 * Of an object that is stored under a key it has the key of this object's content alone, and digests in place of the
 * key of its tags: who has it can read the object, and can make nothing that passes for it.
 */
#ifndef ECFS_VERBS_DESCRIPTOR_H
#define ECFS_VERBS_DESCRIPTOR_H

#include "archive/archive.h"
#include "catalog/catalog.h"
#include "codec/codec.h"
#include "key/ring.h"
#include "object/units.h"

#define ECFS_DESCRIPTOR_MAX_BYTES (64u << 20)

typedef struct EcfsDescriptorEndpoint {
    char *name;
    char *url;
    EcfsUuid uuid;
} EcfsDescriptorEndpoint;

typedef struct EcfsDescriptorObject {
    EcfsObjectRow *row; /* `endpoint` of a stripe is a position in endpoints */
    EcfsCodec *codec;
    EcfsLayout layout;
    EcfsUnits *units;            /* NULL: it is stored without a key */
    bool has_key;                /* else who fetches needs the archive's */
    uint8_t key[ECFS_KEY_BYTES]; /* of its content */
} EcfsDescriptorObject;

/* Content of the file. */
typedef struct EcfsDescriptorBytes {
    uint64_t offset;
    GBytes *bytes;
} EcfsDescriptorBytes;

typedef struct EcfsDescriptor {
    EcfsUuid archive;
    char *path;           /* in the archive, bytes; what it was called; empty: that is not told */
    uint64_t size;        /* of the file */
    GPtrArray *endpoints; /* of EcfsDescriptorEndpoint */
    GPtrArray *objects;   /* of EcfsDescriptorObject */
    GArray *extents;      /* of EcfsExtent, in order; `object` is a position in objects */
    GArray *contained;    /* of EcfsDescriptorBytes, in order: not in extents */
} EcfsDescriptor;

EcfsDescriptor *ecfs_descriptor_new (void);
void ecfs_descriptor_free (EcfsDescriptor *self); /* NULL is accepted */
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsDescriptor, ecfs_descriptor_free)

/** Adds an object with the codec of @row->code (both taken, also on failure), without units or key; checks its numbers.
 */
bool ecfs_descriptor_add_object (EcfsDescriptor *self, EcfsObjectRow *row, EcfsCodec *codec, GError **error);

/** Adds an endpoint; returns its position. */
int64_t ecfs_descriptor_add_endpoint (EcfsDescriptor *self, const char *name, const char *url, const EcfsUuid *uuid);

/** Whether stripes, endpoints and extents fit together. EBADMSG with what does not. */
bool ecfs_descriptor_check (const EcfsDescriptor *self, GError **error);

/* How one is made. */
typedef struct EcfsDescriptorExport {
    bool clear_only;                           /* ENOTSUP where an object is stored under a key */
    bool without_keys;                         /* nor the name and digests of what can be read with them only;
                                                  ENOTSUP of a small file that shares an object */
    bool (*tick) (void *user, uint64_t bytes); /* so many more were read; false: it is to end. May be NULL */
    void *user;
} EcfsDescriptorExport;

/**
 * What an archive has of the stored content of the file @path. Reads objects that are stored under a key as a whole,
 * for their digests. EINVAL for what is no file; ECANCELED.
 */
EcfsDescriptor *ecfs_descriptor_export (EcfsArchive *archive, const char *path, const EcfsDescriptorExport *how,
                                        GError **error);

/** Whether an object of it is stored under a key. */
bool ecfs_descriptor_is_sealed (const EcfsDescriptor *self);
/** Whether it opens something, or has content, and is a secret. */
bool ecfs_descriptor_has_keys (const EcfsDescriptor *self);

/** Gives objects that have no key theirs, from those of their archive. ENOKEY. */
bool ecfs_descriptor_open (EcfsDescriptor *self, const EcfsKeyRing *keys, GError **error);

/** The text of our own form; g_free (), after ecfs_key_forget () where it has keys. */
char *ecfs_descriptor_format (const EcfsDescriptor *self);
/**
 * The text as properties; g_free (). NULL and ENOTSUP for what is more, or less, than one whole object, or stored under
 * a key.
 */
char *ecfs_descriptor_format_fec (const EcfsDescriptor *self, GError **error);

/** Reads either form, from anywhere. EBADMSG, ENOTSUP for a later one, EINVAL for a code that this ecfs lacks. */
EcfsDescriptor *ecfs_descriptor_parse (const char *text, size_t size, GError **error);

/**
 * Writes the content to @fd, an empty regular file, and verifies it. @given: "NAME=URL,KEY=VALUE..." that count instead
 * of the descriptor's URL of the endpoint of that name; NULL-terminated, may be NULL. Endpoints that fail are done
 * without. ENODATA: too few stripes are left, and some were deleted.
 */
bool ecfs_descriptor_fetch (const EcfsDescriptor *self, int fd, const char *const *given, GError **error);

#endif
