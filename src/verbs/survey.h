/*
 * What `ecfs status --survey` adds up over all objects and files: how safe files are, what is where, and which
 * endpoints may vanish beside those that are away already. Aggregates only, whose size does not depend on the number of
 * files.
 *
 * new → add () for every object, in the order of ids → end (). One thread.
 */
#ifndef ECFS_VERBS_SURVEY_H
#define ECFS_VERBS_SURVEY_H

#include "archive/common.h"
#include "verbs/kinds.h"

#include <json-glib/json-glib.h>

typedef struct EcfsSurvey EcfsSurvey;

EcfsSurvey *ecfs_survey_new (EcfsArchive *archive);
/** NULL is accepted. */
void ecfs_survey_free (EcfsSurvey *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsSurvey, ecfs_survey_free)

/** An object of @kind, whose holders are row ids of endpoints; @damaged: ECFS_CODEC_MAX_N flags; @full: all of its
 * stripes can be reached. @self may be NULL. */
void ecfs_survey_add (EcfsSurvey *self, const EcfsObjectRow *object, const EcfsKind *kind, const bool *damaged,
                      bool full);

/** Walks all files; the members are in ecfs-status(1). @there: by position, which endpoints can be reached. */
JsonObject *ecfs_survey_end (EcfsSurvey *self, const bool *there, GError **error);

#endif
