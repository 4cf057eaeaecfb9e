/* An archive over directories, by the public header alone. */
#ifndef ECFS_TESTS_LIBRARY_FIXTURE_H
#define ECFS_TESTS_LIBRARY_FIXTURE_H

#include "ecfs/ecfs.h"

#define N_ENDPOINTS 6

typedef struct Fixture {
    char *base;
    char *directory; /* of the archive */
} Fixture;

/* "eN=file://BASE/eN" of each. */
GStrv endpoints_of (const Fixture *self);

void remove_tree (const char *path);

/* For g_test_add (), with the code as its data. */
void set_up (Fixture *self, gconstpointer code);
void tear_down (Fixture *self, gconstpointer code);

void hide_endpoint (const Fixture *self, unsigned i, bool hide);
Ecfs *open_archive (const Fixture *self, unsigned flags);

/* The code of the error, which is freed; 0: there is none. */
int code_of (GError *error);

#endif
