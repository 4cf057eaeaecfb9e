/*
 * How far a verb is, on standard error. A verb tells what is done and what there is to do, as often as it likes; this
 * decides when and how that is shown.
 *
 * On a terminal it is one line, which is rewritten a few times a second, fits the width, and is cleared at the end.
 * Elsewhere nothing is shown. The environment variable ECFS_PROGRESS asks for something else: ecfs(1) describes it.
 * What takes less than a second shows nothing, but for the last JSON object.
 *
 * Threads: a ToolProgress belongs to one at a time.
 */
#ifndef ECFS_PROGRESS_H
#define ECFS_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOOL_PROGRESS_SAMPLES 40 /* which the rates of the last ten seconds are computed from */

/* What a verb tells. */
typedef struct ToolStep {
    const char *phase;   /* what it does now, where it does several things one after the other; NULL: it does not */
    const char *things;  /* that are counted: "files"; NULL: they have no name */
    uint64_t n_done;     /* of these */
    uint64_t n_all;      /* 0: nobody knows */
    bool grows;          /* n_all is what was found so far, and says nothing of how long it takes */
    uint64_t bytes_done; /* of content */
    uint64_t bytes_all;  /* 0: nobody knows */
    uint64_t wire_bytes; /* sent and received; 0: that is not counted */
    double wire_factor;  /* bytes on the wire for one of content, about; 0: nobody knows */
} ToolStep;

typedef enum ToolProgressForm {
    TOOL_PROGRESS_NONE,
    TOOL_PROGRESS_LINE,  /* one that is rewritten */
    TOOL_PROGRESS_LINES, /* one below the other */
    TOOL_PROGRESS_JSON,  /* one object per line */
} ToolProgressForm;

typedef struct ToolSample {
    int64_t time_us;
    double done; /* bytes, or things where bytes_all is not known */
    double wire; /* bytes */
} ToolSample;

typedef struct ToolProgress {
    const char *verb; /* borrowed */
    ToolProgressForm form;
    int64_t interval_us;
    int64_t begin_us, phase_us, next_us;
    bool shown;   /* a line is there that is to be cleared before another */
    bool printed; /* lines were */
    bool told;    /* `last` is something */
    char phase[64];
    ToolStep last; /* its texts are not kept, but for `things`, which is static */
    ToolSample samples[TOOL_PROGRESS_SAMPLES];
    unsigned n_samples, newest; /* a ring */
} ToolProgress;

/** @quiet: nothing on a terminal, but what ECFS_PROGRESS asks for. @verb is borrowed until the end. */
void tool_progress_begin (ToolProgress *self, const char *verb, bool quiet);
/** Whether anything is ever shown: else what costs time to find out is not needed. */
bool tool_progress_is_shown (const ToolProgress *self);
/** @step is borrowed; its `things` is static. */
void tool_progress_tell (ToolProgress *self, const ToolStep *step);
/** Clears the line, so that something else can be written. It comes back with the next step. */
void tool_progress_clear (ToolProgress *self);
/** Clears the line, or prints the last one. May be called twice. */
void tool_progress_end (ToolProgress *self);

/* Pure, for the above and its tests. */

/** Bytes or things per second over the samples; 0: too early to tell. */
double tool_progress_rate (const ToolProgress *self);
/** Seconds that are left; below 0: nobody knows, or not yet. */
double tool_progress_left (const ToolProgress *self);
/** The line for people, in at most @columns columns; g_free (). */
char *tool_progress_text (const ToolProgress *self, unsigned columns);

#endif
