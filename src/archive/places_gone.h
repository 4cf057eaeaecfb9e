/*
 * Rules for places (places_rule.h) after an endpoint that they name is gone: it was replaced by one of another name, or
 * removed, or a zone has no endpoint any more.
 */
#ifndef ECFS_ARCHIVE_PLACES_GONE_H
#define ECFS_ARCHIVE_PLACES_GONE_H

#include "archive/archive.h"
#include "archive/places_rule.h"

/** What a rule of a directory names that is not there any more, and what to type, for the user; g_free (). NULL:
 * nothing, or it has none that makes sense. */
char *ecfs_archive_rule_gone (EcfsArchive *self, uint64_t dir);

/** The same of all rules, as far as a message goes, each with its path; g_free (). NULL without @error: nothing. */
char *ecfs_archive_rules_gone (EcfsArchive *self, GError **error);
/** The same of an archive that is not open, by its catalog and ecfs.conf. */
char *ecfs_directory_rules_gone (const char *directory, GError **error);

/** Has rules that name an endpoint name these instead, in one change; *ret_n rules were changed. Zones stay as they
 * are. */
bool ecfs_archive_replace_in_rules (EcfsArchive *self, const char *name, const char *const *by, uint64_t *ret_n,
                                    GError **error);

#endif
