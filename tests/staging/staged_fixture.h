/* Staged files of a fixture's archive, for tests of src/staging. */
#ifndef ECFS_TESTS_STAGING_STAGED_FIXTURE_H
#define ECFS_TESTS_STAGING_STAGED_FIXTURE_H

#include "fixture.h"
#include "staging/staged.h"
#include "util/lock.h"

#define PATIENCE_US (120 * G_USEC_PER_SEC)
#define CODE        "rs:4+2"
#define LARGE       100000 /* bytes; with all six stripes, so that a hidden endpoint is missed */

/* An answer that comes from any thread. */
typedef struct Answer {
    EcfsMutex lock;
    EcfsCond cond;
    bool done;
    GError *error;
    EcfsStaged *staged;
} Answer;

Answer *answer_new (void);
/* Callbacks with an Answer as user. */
void opened (void *user, EcfsStaged *staged, const GError *error);
void done (void *user, const GError *error);
/* Waits and frees; the error, or its code, or NULL and 0. @ret_staged may be NULL. */
GError *error_of (Answer *answer, EcfsStaged **ret_staged);
int code_of (Answer *answer, EcfsStaged **ret_staged);
bool is_answered (Answer *answer);

/* Each waits for its answer and returns the code of the error, or 0. */
int flush (EcfsStaged *staged);
int sync_file (EcfsStaged *staged);
int wait_for_all (Fixture *fixture, bool full);
int open_file (Fixture *fixture, uint64_t ino, bool truncate, EcfsStaged **ret_staged);
void wait_until_stored (Fixture *fixture);

/* A new file in the root directory, with one writer. */
EcfsStaged *create (Fixture *fixture, const char *name, uint64_t *ret_ino);
void put (EcfsStaged *staged, const void *bytes, size_t size, uint64_t offset);
/* A new file with this content, closed. */
uint64_t store (Fixture *fixture, const char *name, const void *bytes, size_t size);

/* The only object of a file, with its stripes. */
EcfsObjectRow *object_of (Fixture *fixture, uint64_t ino);

/* Files in a directory of the archive. */
unsigned count_in (const Fixture *fixture, const char *directory);
void wait_until_staging_is_empty (const Fixture *fixture);
/* Of staging in the catalog. */
unsigned count_rows (Fixture *fixture);
EcfsStagingState only_state (Fixture *fixture);
bool exists (Fixture *fixture, const char *name, EcfsAttr *ret_attr);

void start (Fixture *fixture);
/* How many are left. */
unsigned stop (Fixture *fixture);
/* For g_test_add (): @adjust is a function on EcfsConfig, or NULL. */
void set_up_staged (Fixture *fixture, gconstpointer adjust);
void tear_down_staged (Fixture *fixture, gconstpointer adjust);
/* Lets a child that dies without a word work on the archive, and opens it again. */
/* Lets a child that is killed at the end of @work work on the archive, and opens it again. */
void crash (Fixture *fixture, void (*work) (Fixture *fixture));
/* The same, with something done while nobody has the archive open. */
void crash_and (Fixture *fixture, void (*work) (Fixture *fixture), void (*meanwhile) (Fixture *fixture));

void async (EcfsConfig *config);
/* Too many endpoints for any commit. */
void hide_three (Fixture *fixture, bool hide);

#endif
