/*
 * Where stripes of files may be, as the attribute user.ecfs.places of the nearest directory above them says: words,
 * each of which names an endpoint, or a zone as zone=ZONE.
 *
 *   only:WHERE     nothing else is used; several such words name what is used together
 *   never:WHERE    it is not used
 *   prefer:WHERE   it is used first; where it takes no more, the others that may be used are
 *
 * "none" is a rule without words: it ends what directories above say. Pure functions.
 */
#ifndef ECFS_ARCHIVE_PLACES_RULE_H
#define ECFS_ARCHIVE_PLACES_RULE_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>

#define ECFS_PLACES_ATTRIBUTE "user.ecfs.places"
#define ECFS_PLACES_MAX_BYTES 4096

typedef enum EcfsPlacesVerb {
    ECFS_PLACES_ONLY,
    ECFS_PLACES_NEVER,
    ECFS_PLACES_PREFER,
} EcfsPlacesVerb;

typedef struct EcfsPlacesWord {
    EcfsPlacesVerb verb;
    bool is_zone;
    char *name; /* of the endpoint or zone; owned */
} EcfsPlacesWord;

typedef struct EcfsPlacesRule {
    GArray *words; /* of EcfsPlacesWord; empty: "none" */
} EcfsPlacesRule;

/* What a rule says of an endpoint. */
typedef enum EcfsPlacesMark {
    ECFS_MARK_ALLOWED = '.',
    ECFS_MARK_PREFERRED = '+',
    ECFS_MARK_FORBIDDEN = '-',
} EcfsPlacesMark;

/** Parses @size bytes, which may be anything; NULL with EINVAL. Whether there are such endpoints is not looked at. */
EcfsPlacesRule *ecfs_places_rule_parse (const char *bytes, size_t size, GError **error);
/** NULL is accepted. */
void ecfs_places_rule_free (EcfsPlacesRule *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsPlacesRule, ecfs_places_rule_free)

EcfsPlacesRule *ecfs_places_rule_copy (const EcfsPlacesRule *self);
/** The rule with these names (NULL-terminated) in the place of an endpoint's, each once; NULL: it does not name it. */
EcfsPlacesRule *ecfs_places_rule_replace (const EcfsPlacesRule *self, const char *name, const char *const *by);

/** The text that ecfs_places_rule_parse () reads back to the same, with one space between words; g_free (). */
char *ecfs_places_rule_format (const EcfsPlacesRule *self);
/** Whether a word names this endpoint or its zone. */
bool ecfs_places_word_names (const EcfsPlacesWord *self, const char *endpoint, const char *zone);
EcfsPlacesMark ecfs_places_rule_mark (const EcfsPlacesRule *self, const char *endpoint, const char *zone);

#endif
