/*
 * Names in a distributed hash table: whoever publishes has a key of his own for each, and gives the public half of it
 * away in a text, the capability. Who has that finds what is published under the name, and knows that it is from whom
 * he has the text; who has not finds nothing, as keys and seals in the table are derived from it. What was published
 * later has a higher counter, and takes the place of what was before.
 *
 *   dht:NAME/KEY/NETWORK/NODES
 *
 * KEY is 32 bytes in base64 as in URLs, NETWORK eight hexadecimal digits, NODES a list of HOST:PORT, which may be
 * empty. A name is 1 to 64 letters, digits, "-", "_" and ".", of which the last does not come first.
 *
 * What is published is a text, which is compressed and cut into pieces. The head tells of them, and has a signature:
 * other readers can seal pieces, but none that fit. That something is not found means nothing.
 */
#ifndef ECFS_LOCATE_PUBLISHED_H
#define ECFS_LOCATE_PUBLISHED_H

#include "key/key.h"
#include "locate/dht.h"
#include "util/sha256.h"

#define ECFS_PUBLISHED_NAME_MAX   64
#define ECFS_PUBLISHED_TEXT_MAX   (16u << 20) /* bytes */
#define ECFS_PUBLISHED_PIECE      8192        /* bytes, the last may have less */
#define ECFS_PUBLISHED_PIECES_MAX 256
#define ECFS_PUBLISHED_HASH_BYTES 16

typedef struct EcfsPublishedName {
    char *name;
    uint8_t public_key[ECFS_KEY_BYTES]; /* Ed25519 */
    uint32_t network;
    char *nodes; /* NULL: none */
} EcfsPublishedName;

bool ecfs_published_is_name (const char *name);
/** Of a capability, which may be from anybody. EINVAL. For ecfs_published_name_clear (). */
bool ecfs_published_name_parse (const char *text, EcfsPublishedName *ret_name, GError **error);
/** g_free () */
char *ecfs_published_name_format (const EcfsPublishedName *name);
void ecfs_published_name_clear (EcfsPublishedName *name);

/* Tells of the pieces of one version. */
typedef struct EcfsPublishedHead {
    uint64_t counter;
    uint32_t text_bytes;                                                  /* 0: it is withdrawn */
    uint32_t packed_bytes;                                                /* of all pieces */
    uint8_t hashes[ECFS_PUBLISHED_PIECES_MAX][ECFS_PUBLISHED_HASH_BYTES]; /* of each: SHA-256, cut off */
} EcfsPublishedHead;

unsigned ecfs_published_n_pieces (const EcfsPublishedHead *head);
/** As it is put into the table: signed with the private key, and sealed. */
GByteArray *ecfs_published_head_seal (const EcfsPublishedName *name, const uint8_t key[ECFS_KEY_BYTES],
                                      const EcfsPublishedHead *head);
/** False: it is none of that name. */
bool ecfs_published_head_open (const EcfsPublishedName *name, const uint8_t *bytes, size_t size,
                               EcfsPublishedHead *ret_head);

/* What an archive publishes: ARCHIVE/published/NAME, which only its owner can read. */
typedef struct EcfsPublication {
    EcfsPublishedName name;
    uint8_t key[ECFS_KEY_BYTES]; /* private */
    uint64_t counter;
    char *path;     /* in the archive; bytes */
    GBytes *packed; /* NULL: it is withdrawn */
    uint32_t text_bytes;
} EcfsPublication;

/** A new key. */
bool ecfs_publication_new (const char *name, uint32_t network, const char *nodes, EcfsPublication *ret_publication,
                           GError **error);
void ecfs_publication_clear (EcfsPublication *self);
/** Another version of it. EFBIG. */
bool ecfs_publication_set_text (EcfsPublication *self, const char *path, const char *text, GError **error);
void ecfs_publication_withdraw (EcfsPublication *self);

/** ENOENT: it was not published here. @directory: of the archive, as in the next three. */
bool ecfs_publication_load (const char *directory, const char *name, EcfsPublication *ret_publication, GError **error);
/** Durable when true. */
bool ecfs_publication_save (const EcfsPublication *self, const char *directory, GError **error);
bool ecfs_publication_remove (const char *directory, const char *name, GError **error);
/** Names, in order; empty where nothing is published. */
GPtrArray *ecfs_publications (const char *directory);

/** Puts it into the table; to be done again within ten minutes. ENOTCONN: nobody has answered. Blocks until
 * @deadline_us, as the next. */
bool ecfs_published_put (EcfsDht *dht, const EcfsPublication *publication, int64_t deadline_us, GError **error);
/** Forgets it, with its key, and puts into the table that it is withdrawn. The error says if only the latter failed. */
bool ecfs_published_withdraw (EcfsDht *dht, EcfsPublication *publication, const char *directory, int64_t deadline_us,
                              GError **error);

/** The text that was published last, as far as is known, for ecfs_key_forget () and g_free (). ENOENT: none was found,
 * or it was withdrawn; ENODATA: parts of it were not; ENOTCONN: nobody has answered. */
char *ecfs_published_find (EcfsDht *dht, const EcfsPublishedName *name, int64_t deadline_us, uint64_t *ret_counter,
                           GError **error);

#endif
