/*
 * What WebDAV servers say, as far as libcurl leaves it to us: multistatus documents, and names in them.
 * Pure functions on bytes that nobody vouches for.
 */
#ifndef ECFS_ENDPOINT_HTTP_HTTP_PROTOCOL_H
#define ECFS_ENDPOINT_HTTP_HTTP_PROTOCOL_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

/* One response of a multistatus document. */
typedef struct EcfsDavEntry {
    const char *href; /* as the server wrote it; borrowed for the call */
    bool is_collection;
    bool has_size;
    uint64_t size;
    int64_t mtime_s;    /* 0: not told */
    bool has_available; /* the server tells how much may still be stored: … */
    uint64_t available_bytes;
} EcfsDavEntry;

typedef void (*EcfsDavEach) (void *user, const EcfsDavEntry *entry);

/* Reads a multistatus document as it arrives, in memory that does not grow with it. */
typedef struct EcfsDavParser EcfsDavParser;

EcfsDavParser *ecfs_dav_parser_new (EcfsDavEach each, void *user);
/** The next bytes. EPROTO for what is no multistatus, has a document type, or is deeper or longer than can be. */
bool ecfs_dav_parser_feed (EcfsDavParser *self, const void *bytes, size_t size, GError **error);
/** There are no more. EPROTO when the document is not complete. */
bool ecfs_dav_parser_end (EcfsDavParser *self, GError **error);
void ecfs_dav_parser_free (EcfsDavParser *self); /* NULL is accepted */

/** Whether @href, a path or a URL, is the directory of the decoded path @directory (no "/" at its end) itself. */
bool ecfs_dav_is_itself (const char *href, const char *directory);

/**
 * The name that @href, a path or a URL, has in the directory of the decoded path @directory (no "/" at its end): one
 * part, decoded, g_free (). NULL for the directory itself and for whatever does not lie directly in it.
 */
char *ecfs_dav_child (const char *href, const char *directory);

#endif
