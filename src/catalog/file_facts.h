/* What is to be known of a file before it is stored. */
#ifndef ECFS_CATALOG_FILE_FACTS_H
#define ECFS_CATALOG_FILE_FACTS_H

#include "catalog/namespace.h"

typedef struct EcfsFileFacts {
    EcfsAttr attr;
    char *code;          /* its own; NULL: it has none */
    char *path;          /* one of those that it has; what it is, where it has none */
    GArray *directories; /* where it has names, each once; of uint64_t */
    bool is_said;        /* one of the directories above it has the attribute that was asked for */
    uint64_t sequence; /* of the newest record of the journal: what the catalog changes later is newer than all this */
} EcfsFileFacts;

/** For ecfs_file_facts_clear (). Of one moment; a database is asked in one round trip. ENOENT: there is no such inode;
 * then *ret_facts is left alone, as after all errors. Thread-safe. */
bool ecfs_catalog_file_facts (EcfsCatalog *self, uint64_t ino, const char *attribute, EcfsFileFacts *ret_facts,
                              GError **error);
void ecfs_file_facts_clear (EcfsFileFacts *self);

#endif
