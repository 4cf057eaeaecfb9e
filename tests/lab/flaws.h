/*
 * What goes wrong with operations, as a file of rules says, one per line; empty lines and lines that begin with # are
 * none. The file is read anew whenever it has changed, which begins the counting again; absent is no rule.
 *
 *     seed NUMBER                 of all that is left to chance; 0 without
 *     OPERATION WHEN WHAT         the first rule that meets an operation decides
 *
 *     OPERATION   read, write, remove, rmdir, size, space, list, mark, examine, log (its beginning), append (bytes that
 *                 the source of a log gives at a time), any
 *     WHEN        3: the third such operation; 3+: the third and all after it; 10%: each with this chance
 *     WHAT        fail ERRNO      it fails with this number
 *                 hang            it is never answered
 *                 delay MS        it begins so much later; others do not wait
 *                 truncate        a read ends half-way with EBADMSG; of a write half is stored, and success is told; of
 * an append half is stored, and it fails with EIO flip            a bit in the middle of what is read or stored is
 * wrong stale           what was true before the last change: the file is not there, the list is the last one
 *
 * With the same file and the same operations in the same order, the same goes wrong.
 */
#ifndef TESTS_LAB_FLAWS_H
#define TESTS_LAB_FLAWS_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct Flaws Flaws;

typedef enum FlawKind { FLAW_NONE, FLAW_FAIL, FLAW_HANG, FLAW_DELAY, FLAW_TRUNCATE, FLAW_FLIP, FLAW_STALE } FlawKind;

typedef struct Flaw {
    FlawKind kind;
    int64_t number; /* errno, milliseconds */
} Flaw;

/** @path: of the file of rules; NULL: none ever. */
Flaws *flaws_new (const char *path);
void flaws_free (Flaws *self);
/** What goes wrong with the next operation of this name, which counts it. Ends the program at rules that make no sense,
 * as tests are their only users. Thread-safe. */
Flaw flaws_next (Flaws *self, const char *operation);

#endif
