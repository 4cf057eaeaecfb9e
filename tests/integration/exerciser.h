/*
 * What the parts of the exerciser share: the file under test and the model of it.
 *
 * exerciser.c: options, the loop, failures; model.c: what the file must hold, and comparing; operations.c: what is done
 * to it. Whatever the file does not do as the model says ends the program, with the operations that led there.
 */
#ifndef ECFS_TESTS_EXERCISER_H
#define ECFS_TESTS_EXERCISER_H

#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define N_HANDLES 5

typedef struct Handle {
    int fd; /* -1: not open */
    int flags;
} Handle;

/* A range of the file. */
typedef struct Range {
    size_t offset;
    size_t size;
} Range;

typedef struct Exerciser {
    /* Options; immutable. */
    const char *directory;
    char *path[2]; /* the names that it has in turn */
    size_t largest;
    size_t segment; /* edges at its multiples are tried more often */
    size_t rewrite_max;
    bool direct; /* O_DIRECT works without alignment */
    bool forget;

    GRand *random;
    unsigned name;   /* the index of the present path */
    uint8_t *model;  /* largest bytes, zero behind size */
    uint8_t *buffer; /* as large and a page more */
    size_t size;
    Handle handles[N_HANDLES];
    uint8_t *mapping; /* of all that the file could be; NULL: none */
    bool mapping_writes;
    bool mapping_holds; /* the file open for writing, by the descriptor that it came from */
    uint64_t n_done;
    Range touched; /* by the operation */
    GString *what; /* the operation */
    GQueue *history;
} Exerciser;

/* exerciser.c */
G_NORETURN void fail (Exerciser *self, const char *format, ...) G_GNUC_PRINTF (2, 3);
/** Fails with the meaning of errno. */
G_NORETURN void fail_errno (Exerciser *self, const char *call);
/** Adds to the description of the operation. */
void say (Exerciser *self, const char *format, ...) G_GNUC_PRINTF (2, 3);
bool chance (Exerciser *self, unsigned one_in);
size_t below (Exerciser *self, size_t end); /* 0 to end - 1 */

/* model.c */
/** A range for reading (within size, if there is any) or for writing (within largest), near edges more often. */
Range pick_range (Exerciser *self, size_t end);
/** Fills the buffer with bytes that no other operation wrote, or with zeros. */
void fill (Exerciser *self, size_t size);
/** The buffer is now what the file holds there. */
void model_write (Exerciser *self, Range range);
void model_truncate (Exerciser *self, size_t size);
void model_zero (Exerciser *self, Range range);
/** @got are the bytes that the file is said to have at range. */
void compare (Exerciser *self, Range range, const uint8_t *got, const char *how);
/** Reads a range and compares. */
void check_range (Exerciser *self, int fd, Range range, const char *how);
void check_size (Exerciser *self);
void check_all (Exerciser *self);
/** That holes are where the file says it has some, and hold zeros. */
void check_holes (Exerciser *self, int fd);

/* operations.c */
void operate (Exerciser *self);
void close_all (Exerciser *self);

#endif
