/*
 * What a hash tool on the other side of a line of text says. Pure; what it says is hostile.
 *
 * The other side is /bin/sh with ecfs_hash_script. It reads the root and goes there, tells "ecfs-hash KIND", the marker
 * of the root and a line of its own that ends it; then it reads names of files, one a line, and answers each with one
 * line: its name, for no line of another may count for it, and the digest in hexadecimal digits, or "-" where it could
 * not be read.
 */
#ifndef ECFS_ENDPOINT_CORE_HASH_TEXT_H
#define ECFS_ENDPOINT_CORE_HASH_TEXT_H

#include "util/error.h"

#include <stddef.h>

#define ECFS_HASH_LINE_MAX   512 /* bytes of a line that the other side may send */
#define ECFS_HASH_MARKER_END "ecfs-hash marker ends"

/** One word for the other side's shell; it has no quote, and nothing that some shell takes for its own inside quotes.
 */
extern const char ecfs_hash_script[];

/** Whether a root can be told: it has no line break. */
bool ecfs_hash_root_valid (const char *root);

/** The kind ("xxh128", "b2", "sha256") of a greeting line without its end, static; NULL: that is none. */
const char *ecfs_hash_parse_greeting (const char *line, size_t size);

/** "KIND:HEX" of an answer line without its end, g_free (), or *ret_digest NULL: it could not be read. False: that is
 * no answer about @name. */
bool ecfs_hash_parse_answer (const char *kind, const char *name, const char *line, size_t size, char **ret_digest);

#endif
