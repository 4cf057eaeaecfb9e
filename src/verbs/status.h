/*
 * Facts about an archive as JSON: what `ecfs status --json` and `ecfs info --json` print, and what a running mount
 * answers through its control socket, where health is live. The members are listed in ecfs-status(1) and ecfs-info(1);
 * members may be added, none changes its meaning.
 */
#ifndef ECFS_VERBS_STATUS_H
#define ECFS_VERBS_STATUS_H

#include "archive/archive.h"
#include "object/readlog.h"

#include <json-glib/json-glib.h>

/**
 * Endpoints, objects by health, staging backlog, space. Asks every endpoint for its free space first, which connects
 * to it, and waits for the answers at most @patience_us. Walks all objects, and with @with_survey all
 * files (survey.h). Blocks: not from callbacks.
 */
JsonObject *ecfs_archive_status (EcfsArchive *self, int64_t patience_us, bool with_survey, GError **error);

/**
 * Adds what a status amounts to, for people and scripts: `verdict`, `check` (0 fine, 1 degraded, 2 unreadable or at
 * risk), `since` where it is known, `reason`, `meaning`, `advice`, `action` (a command, where there is one to type),
 * and `problems`, each with the same members, of which the worst is the verdict. `kind` is a word for programs, and
 * `endpoint` is there where it is about one alone; ecfs-status(1) lists them. "mounted" must be there already.
 */
void ecfs_status_judge (JsonObject *status);

/** JSON is UTF-8; names and what errors say of them are bytes. */
void ecfs_status_add_text (JsonObject *object, const char *member, const char *text);

/** What reading has met, as the member `reads` of a status. */
JsonObject *ecfs_status_reads (EcfsReadLog *log);

/** When stripes were read and verified last, as far as that is kept beside the catalog. */
JsonObject *ecfs_archive_scrub_facts (EcfsArchive *archive);

/** What is stored of @path, stripe by stripe, with the state of endpoints as far as it is known now. */
JsonObject *ecfs_archive_info (EcfsArchive *self, const char *path, GError **error);

/** Connects to every endpoint that has not been connected to, for at most @patience_us, so that its state is known. */
void ecfs_archive_probe (EcfsArchive *self, int64_t patience_us);

/** What a mount that follows has noted of itself in @directory, which may be gone since. NULL: there was none. */
JsonObject *ecfs_status_followed (const char *directory);

/** What the archive's cache has, as a member "cache"; false: there is none. */
bool ecfs_status_add_cache (JsonObject *status, EcfsArchive *archive);
/** Who else reads it and helps, as a member "peers"; nothing where nobody is to. */
void ecfs_status_add_peers (JsonObject *status, EcfsArchive *archive);

#endif
