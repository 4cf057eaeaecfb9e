/*
 * How often files are opened for reading, which tells what is cold (archive/policy.h). Hints: kept in a small database
 * beside the catalog, at most so many files, and what is lost makes content cold sooner.
 */
#ifndef ECFS_CATALOG_READS_H
#define ECFS_CATALOG_READS_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define ECFS_READS_NAME "reads.sqlite" /* in the archive directory; may be deleted */

typedef struct EcfsReads EcfsReads;

/** What was noted below the archive directory; empty where nothing can be read. Thread-safe. */
EcfsReads *ecfs_reads_new (const char *directory);
void ecfs_reads_free (EcfsReads *self); /* NULL is accepted */

/** A file was opened for reading, now. */
void ecfs_reads_note (EcfsReads *self, uint64_t ino);
/** How often that was, and how long ago the last time; false: nothing is known of it. */
bool ecfs_reads_of (EcfsReads *self, uint64_t ino, unsigned *ret_n, int64_t *ret_since_us);
/** It is cold: reads count anew. */
void ecfs_reads_forget (EcfsReads *self, uint64_t ino);
/** Writes what is new. Errors are told in the log: these are hints. */
void ecfs_reads_keep (EcfsReads *self);

#endif
