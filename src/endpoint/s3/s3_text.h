/* What S3 servers say: documents, and names in them. Pure functions on bytes that nobody vouches for. */
#ifndef ECFS_ENDPOINT_S3_S3_TEXT_H
#define ECFS_ENDPOINT_S3_S3_TEXT_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

/* What lists have: an object, or an upload in parts that has not ended. */
typedef struct EcfsS3Entry {
    const char *key;       /* decoded; borrowed for the call */
    const char *upload_id; /* NULL: it is an object */
    bool has_size;
    uint64_t size;
    int64_t mtime_s; /* 0: not told */
} EcfsS3Entry;

typedef void (*EcfsS3Each) (void *user, const EcfsS3Entry *entry);

/* Single values of a document, decoded; NULL where it has none. */
typedef struct EcfsS3Values {
    char *root;      /* the outermost element */
    char *code;      /* of an Error */
    char *message;   /* likewise, cleaned */
    char *region;    /* likewise */
    char *upload_id; /* of a new upload */
    char *next;      /* of a list that goes on: the token … */
    char *next_key;  /* … or the markers, of uploads */
    char *next_upload;
    bool goes_on;
} EcfsS3Values;

void ecfs_s3_values_clear (EcfsS3Values *values);

/* Reads a document as it arrives, in memory that does not grow with it. */
typedef struct EcfsS3Parser EcfsS3Parser;

#define ECFS_S3_OBJECTS "ListBucketResult"
#define ECFS_S3_UPLOADS "ListMultipartUploadsResult"

/** @root is the outermost element that is wanted; borrowed for as long as the parser lives. NULL: any will do.
 * @each (may be NULL) is called for each entry of a list. */
EcfsS3Parser *ecfs_s3_parser_new (const char *root, EcfsS3Each each, void *user);
/** The next bytes. EPROTO for what is no XML, has another root or a document type, or is deeper or longer than can be.
 */
bool ecfs_s3_parser_feed (EcfsS3Parser *self, const void *bytes, size_t size, GError **error);
/** There are no more. EPROTO when the document is not complete. */
bool ecfs_s3_parser_end (EcfsS3Parser *self, GError **error);
/** What it found; borrowed. */
const EcfsS3Values *ecfs_s3_parser_values (const EcfsS3Parser *self);
void ecfs_s3_parser_free (EcfsS3Parser *self); /* NULL is accepted */
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsS3Parser, ecfs_s3_parser_free)

/** The name that an upload of @name with @upload_id has in lists: as ecfs_incoming_name () gives, with a hash of the id
 * for its random digits; g_free (). */
char *ecfs_s3_unfinished_name (const char *name, const char *upload_id);

#endif
