/* An endpoint deaf:/// that tells who it is and takes other requests, but answers none of them until it may. */
#ifndef ECFS_TESTS_ARCHIVE_DEAF_ENDPOINT_H
#define ECFS_TESTS_ARCHIVE_DEAF_ENDPOINT_H

#include "fixture.h"

#include <stdatomic.h>

extern atomic_bool may_answer;
extern atomic_uint n_taken; /* requests that wait for it, or did */

/* set_up () with such an endpoint in the place of the first one. */
void set_up_deaf (Fixture *fixture, gconstpointer code);

#endif
