/* The page of `ecfs status --html`. */
#ifndef ECFS_PAGE_STATUS_H
#define ECFS_PAGE_STATUS_H

#include "tool.h"

/** Writes the page of @status, which ecfs_survey () made, to @file. Its size depends on the number of endpoints, not of
 * files. */
bool page_status (JsonObject *status, const char *file, GError **error);
/** The same of an archive that cannot be opened, of which ecfs_diagnose () says @facts. */
bool page_status_broken (JsonObject *facts, const char *file, GError **error);

#endif
