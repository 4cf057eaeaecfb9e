/*
 * What `ecfs report` says of an archive: facts in, a judgement out. All facts are the library's: the status with its
 * survey, what a check and a drill found. A problem of the status is a finding, unless a limit excuses it; what exceeds
 * a limit is one, too. What is excused is a note, which the first line names as well.
 */
#ifndef ECFS_REPORT_H
#define ECFS_REPORT_H

#include "tool.h"

/* Beyond which something is a finding. */
typedef struct ReportLimits {
    int64_t damaged;    /* stripes that a check found damaged or gone, rebuilt or not */
    int64_t guarantee;  /* endpoints that may vanish without any file being lost; -1: as many as codes promise */
    int64_t point_s;    /* how old changes may be that only this machine has, and files that wait to be stored */
    int64_t away_s;     /* how long an endpoint may be away */
    int64_t verified_s; /* how long ago everything was verified */
    double full;        /* which part of an endpoint may be taken, 0 to 1 */
} ReportLimits;

typedef struct ReportFacts {
    JsonObject *status;        /* of ecfs_survey () */
    JsonObject *scrub;         /* of ecfs_fsck (); NULL: it was not done, or … */
    const char *scrub_error;   /* … it could not be; NULL: it was, or nobody wanted it */
    bool is_checked_elsewhere; /* another check is at work: this one would be a second */
    JsonObject *drill;         /* likewise, of ecfs_drill () */
    const char *drill_error;
    int64_t may_vanish; /* endpoints, as codes promise it for new files */
    int64_t now_s;      /* since 1970 */
} ReportFacts;

/**
 * The judgement: `headline`, one line of verdict, with the command to type where there is one; `check`: 0 all is well,
 * 1 something is to be done, 2 files are unreadable or at risk; `findings`, the worst first, with the members of a
 * problem of `ecfs status`; `notes`; and `done`, an array of `title` and `text`; `directory`, `time`.
 * json_object_unref ()
 */
JsonObject *report_judge (const ReportFacts *facts, const ReportLimits *limits);

/** The same of an archive that cannot be opened, as ecfs_diagnose () tells it. */
JsonObject *report_broken (JsonObject *diagnosis, int64_t now_s);

/** A text of lines short enough for a mail, but for commands; g_free (). */
char *report_text (JsonObject *report);

#endif
