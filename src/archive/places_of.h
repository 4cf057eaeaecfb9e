/*
 * The rules for places (places_rule.h) that hold for what is in an archive. All that is known of one file: the rules of
 * all directories in which it has a name. What several files share keeps the rules of all of them.
 */
#ifndef ECFS_ARCHIVE_PLACES_OF_H
#define ECFS_ARCHIVE_PLACES_OF_H

#include "archive/archive.h"
#include "archive/places_rule.h"
#include "codec/codec.h"

/* What rules say of the archive's endpoints. Zeroed: there is no rule. */
typedef struct EcfsRuled {
    char *marks; /* of EcfsPlacesMark, one for each endpoint by position, NUL behind them; NULL: no rule */
    char *text;  /* the rules, for messages; NULL likewise */
} EcfsRuled;

void ecfs_ruled_clear (EcfsRuled *self);
/** "; user.ecfs.places (…) allows only …", for messages; empty where there is no rule; g_free (). */
char *ecfs_ruled_describe (const EcfsArchive *archive, const EcfsRuled *self);

/** What @marks (NULL: no rule) say of an endpoint. One that came after them is forbidden. */
EcfsPlacesMark ecfs_mark_at (const char *marks, size_t position);
bool ecfs_marks_prefer (const char *marks);

/** The rules of a file or directory; false where they cannot be read, or one makes no sense. *ret_ruled is for
 * ecfs_ruled_clear (). */
bool ecfs_archive_file_ruled (EcfsArchive *self, uint64_t ino, EcfsRuled *ret_ruled, GError **error);
/** Those of a file in all of these directories, of uint64_t. */
bool ecfs_archive_directories_ruled (EcfsArchive *self, const GArray *directories, EcfsRuled *ret_ruled,
                                     GError **error);
/** Those of all files that have something of an object, by its row; none of one that only the past has. */
bool ecfs_archive_object_ruled (EcfsArchive *self, int64_t object, EcfsRuled *ret_ruled, GError **error);

/** Whether files share an object of which rules say different things. */
bool ecfs_archive_object_is_mixed (EcfsArchive *self, int64_t object, bool *ret_mixed, GError **error);

/**
 * Whether a directory may have this rule: it names endpoints and zones that there are, and all stripes of an object in
 * the directory's code have a place, where as many endpoints may vanish as without the rule. EINVAL with what is wrong.
 */
bool ecfs_archive_check_rule (EcfsArchive *self, uint64_t dir, const char *value, size_t size, GError **error);
/** The same of a code (NULL: the archive's) that a directory is to have, and the rule that holds there. */
bool ecfs_archive_check_ruled_code (EcfsArchive *self, uint64_t dir, const char *code, GError **error);

/** Whether the rule of a directory leaves a place for all stripes of new files there; ENOTSUP with what is wrong. What
 * it costs in safety is not looked at. */
bool ecfs_archive_check_rules_of (EcfsArchive *self, uint64_t dir, GError **error);
/** The same of a file, by the rules of all its names and of a directory in which it is to get one more, from another
 * (0: none) where it loses one; EXDEV. Directories are fine. */
bool ecfs_archive_check_name (EcfsArchive *self, uint64_t ino, uint64_t dir, uint64_t from, GError **error);

#endif
