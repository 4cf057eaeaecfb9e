/* What a report says, as the beginning of a page. */
#ifndef ECFS_PAGE_REPORT_H
#define ECFS_PAGE_REPORT_H

#include "tool.h"

/** @report: of report_judge (); NULL: nothing is added. */
void page_add_report (GString *page, JsonObject *report);

#endif
