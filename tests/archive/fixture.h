/* An archive over directories in a temporary place, opened and started, for tests of src/archive. */
#ifndef ECFS_TESTS_ARCHIVE_FIXTURE_H
#define ECFS_TESTS_ARCHIVE_FIXTURE_H

#include "archive/archive.h"

#define N_ENDPOINTS 6

typedef struct Fixture {
    char *base;
    char *directory;
    EcfsArchive *archive;
} Fixture;

/* For g_test_add (): @code is the archive's, a string. */
void set_up (Fixture *fixture, gconstpointer code);
void tear_down (Fixture *fixture, gconstpointer code);
/* The same, of an archive with a key. */
void set_up_keyed (Fixture *fixture, gconstpointer code);
/* The same, of which the endpoints share the key. */
void set_up_shared (Fixture *fixture, gconstpointer code);
/* The same with other settings; @adjust may be NULL. */
void set_up_adjusted (Fixture *fixture, const char *code, void (*adjust) (EcfsConfig *config));
/* Stops and frees the archive when it is open, and opens and starts it. */
void reopen (Fixture *fixture);

/* The settings that the archive is made with; makes the directories of its endpoints. */
EcfsConfig *make_config (const Fixture *fixture, const char *code);
char *endpoint_path (const Fixture *fixture, unsigned i);
void hide_endpoint (const Fixture *fixture, unsigned i, bool hide);

/* A file without content in the root directory; its inode. */
uint64_t make_file (Fixture *fixture, const char *name);
uint8_t *random_bytes (size_t size);
void assert_content (Fixture *fixture, uint64_t ino, const uint8_t *bytes, size_t size);
void remove_tree (const char *path);
/* At and below @path. */
unsigned count_files (const char *path);

#endif
