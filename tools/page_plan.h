/* The page of `ecfs plan --html`. */
#ifndef ECFS_PAGE_PLAN_H
#define ECFS_PAGE_PLAN_H

#include "plan.h"

/** Writes the page of @rows (PlanRow) to @file. */
bool page_plan (const GPtrArray *rows, const PlanEndpoints *endpoints, const char *file, GError **error);

#endif
