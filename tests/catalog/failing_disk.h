/* A disk below SQLite whose writes and syncs fail when they are told to. */
#ifndef TESTS_CATALOG_FAILING_DISK_H
#define TESTS_CATALOG_FAILING_DISK_H

#include <stdbool.h>

/** For every catalog that is opened from now on in this program. */
void failing_disk_install (void);
/** The write or sync behind the next @n_good ones fails, with @stays every later one too. @code: what writes say. */
void failing_disk_break (int n_good, int code, bool stays);
void failing_disk_heal (void);
/** Failures so far. */
int failing_disk_count (void);

#endif
