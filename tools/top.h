/*
 * What `ecfs top` shows: two looks at a mount (ecfs_live ()), one after the other, made into lines of a terminal.
 */
#ifndef ECFS_TOP_H
#define ECFS_TOP_H

#include "tool.h"

typedef enum TopSort {
    TOP_BY_NAME,
    TOP_BY_READ,
    TOP_BY_WRITE,
    TOP_BY_LATENCY,
    TOP_BY_QUEUE,
    TOP_BY_ERASED,
    TOP_N_SORTS,
} TopSort;

typedef struct TopView {
    unsigned width, height; /* of the terminal; height 0: as many lines as it takes */
    TopSort sort;
    bool explain; /* the last erasures take the place of files under way */
    bool paused;
    bool colours;
    bool keys; /* the last line says which there are */
} TopView;

/** The lines of a frame, each ending with a line break, none wider than the terminal; g_free (). @before: an earlier
 * look, by which rates are told; NULL: there is none yet. */
char *top_frame (JsonObject *live, JsonObject *before, const TopView *view);

#endif
