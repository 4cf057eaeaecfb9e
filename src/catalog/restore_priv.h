/* What the parts of restoring a catalog share. */
#ifndef ECFS_CATALOG_RESTORE_PRIV_H
#define ECFS_CATALOG_RESTORE_PRIV_H

#include "catalog/content_priv.h"
#include "catalog/restore.h"

struct EcfsRestore {
    EcfsCatalog *catalog;
    GHashTable *fresh;         /* int64_t numbers of files that had no content yet */
    GArray *moved;             /* of uint64_t: those that joined or left it in the operation that runs, in order */
    GHashTable *emptied;       /* int64_t number of a file that lost all content → uint64_t number of the record */
    const EcfsJournalRow *row; /* that is restored now */
    uint64_t last_ino;         /* no inode that is there has a higher number */
    uint64_t directory;        /* where the last name was put: it is one; 0: who knows */
    EcfsObjectRow *named;      /* that the last extent was of, as it is in the catalog; NULL: who knows */
    bool exchanges_only;       /* of the records that are restored now */
    bool has_intents;          /* something may be on its way */
    bool lacks_indexes;        /* until the snapshot ends, … */
    bool wants_indexes;        /* … or a record cannot do without them */
    EcfsSeal seal;             /* of the object that the next item must be; kind NONE: it may be any */
    EcfsUuid sealed;           /* valid with seal */
    bool stands;               /* what the last record sums to is known, … */
    uint8_t sum[ECFS_JOURNAL_SUM_BYTES]; /* … and is this */
};

/* A record makes no sense. */
static inline bool ecfs_restore_refuse (GError **error, const char *what)
{
    return ecfs_fail (error, EBADMSG, "%s", what);
}

static inline char *ecfs_restore_text (EcfsJournalBytes bytes)
{
    return g_strndup ((const char *) bytes.bytes, bytes.size);
}

/* restore.c */

/** Whether a file is one that had no content yet; taken back with the operation that runs. */
void ecfs_restore_set_fresh (EcfsRestore *self, uint64_t ino, bool fresh);
/** The file has lost all content by the record that is restored. */
void ecfs_restore_note_emptied (EcfsRestore *self, uint64_t ino);
/** False: without indexes each look takes as long as there are rows. They are made, and the record comes once more. */
bool ecfs_restore_finds (EcfsRestore *self, GError **error);
/** What was read of the catalog may not be so any more. */
void ecfs_restore_forget_read (EcfsRestore *self);

/* restore_items.c */

bool ecfs_restore_item (EcfsRestore *self, const EcfsJournalItem *item, uint64_t sequence, GError **error);
/** A file that the catalog cannot have yet, with the CONTENT that follows it, and its CONTENT_SHA256; NULL: none does.
 */
bool ecfs_restore_file (EcfsRestore *self, const EcfsJournalItem *file, const EcfsJournalItem *content,
                        const EcfsJournalItem *digest, GError **error);

/* restore_endpoints.c */
bool ecfs_restore_endpoint_item (EcfsRestore *self, const EcfsJournalItem *item, GError **error);
bool ecfs_restore_removed_item (EcfsRestore *self, const EcfsJournalItem *item, GError **error);

#endif
