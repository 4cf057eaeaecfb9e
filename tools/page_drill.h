/* The page of `ecfs drill --html`. */
#ifndef ECFS_PAGE_DRILL_H
#define ECFS_PAGE_DRILL_H

#include "tool.h"

/** Writes the page of @report, of a drill of @directory that was @good, to @file. */
bool page_drill (JsonObject *report, const char *directory, bool good, const char *file, GError **error);

#endif
