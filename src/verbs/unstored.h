/*
 * What an archive directory has, and no endpoint is known to have for certain: content in staging, and changes behind
 * the part of the journal that is safe without this machine. Where another machine has taken the archive over, this is
 * what it lacks.
 *
 * Threads: any; the list is the caller's.
 */
#ifndef ECFS_VERBS_UNSTORED_H
#define ECFS_VERBS_UNSTORED_H

#include "archive/archive.h"
#include "catalog/journal_rows.h"

#include <json-glib/json-glib.h>

typedef enum EcfsUnstoredKind {
    ECFS_UNSTORED_REMOVED,    /* a name that is gone */
    ECFS_UNSTORED_CHANGED,    /* a name, attributes, or a directory or link that was made */
    ECFS_UNSTORED_CONTENT,    /* content that is stored, but no endpoint knows of which file */
    ECFS_UNSTORED_UNFINISHED, /* written to, and not closed since */
    ECFS_UNSTORED_STAGED,     /* closed, and in staging only */
} EcfsUnstoredKind;

typedef struct EcfsUnstored {
    EcfsUnstoredKind kind;
    char *path;
    uint64_t ino;  /* 0 of REMOVED */
    uint64_t size; /* bytes of content; 0 where it has none */
} EcfsUnstored;

const char *ecfs_unstored_word (EcfsUnstoredKind kind);
/** Whether it has content that would be lost with this directory. */
bool ecfs_unstored_has_content (const EcfsUnstored *self);

/** Up to which change the journal was stored, whatever endpoints say since: they may have a newer archive now. The
 * sequence is 0 where it never was. */
bool ecfs_archive_stored_once (EcfsArchive *archive, EcfsJournalPlace *ret_place, GError **error);

/** By path; GPtrArray of EcfsUnstored with free function. */
GPtrArray *ecfs_archive_unstored (EcfsArchive *archive, GError **error);

/** As the member `unstored` of a status has it: how many, and the first of them. The caller owns it. */
JsonObject *ecfs_unstored_facts (const GPtrArray *unstored);
/** "3 files with 1048576 bytes and 2 other changes are only here"; g_free (). NULL: there are none. */
char *ecfs_unstored_text (const GPtrArray *unstored);

#endif
