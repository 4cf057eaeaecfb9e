/*
 * What a script may leave behind. The model is fed the operations one by one; model_match () then tells whether a tree
 * that was found is one that a crash at this point may leave, by the promises of doc/architecture.md: what was closed
 * is there byte for byte, what was not is as before, a file that never was flushed is not there at all.
 */
#ifndef ECFS_TESTS_CRASH_MODEL_H
#define ECFS_TESTS_CRASH_MODEL_H

#include "script.h"

#include <stdbool.h>

typedef struct Model Model;

Model *model_new (void);
void model_free (Model *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Model, model_free)

/** @failed: the operation was answered with an error. */
void model_apply (Model *self, const Op *op, bool failed);

/** The operation may have been begun: what it makes durable before it changes any name may be. */
void model_begin (Model *self, const Op *op);

/** Whether the operation, done now, makes all before it durable when it is answered. */
bool model_makes_durable (const Model *self, const Op *op);

/** What a reader of @path gets; NULL: it is no file. Borrowed. */
GBytes *model_content (const Model *self, const char *path);

/* What is at a path of a tree that was found. */
typedef struct Found {
    uint64_t ino;
    uint32_t mode;
    int64_t mtime_s;
    GBytes *content; /* of a file; the target of a symbolic link; NULL otherwise */
    char *note;      /* user.note, or NULL */
} Found;

void found_free (Found *found);

/**
 * NULL: @tree (path → Found) is possible; otherwise what is wrong with it, g_free (). @later: after all operations, as
 * what was written into a file that had been fsynced can be there before names that are older; may be @self.
 */
char *model_match (Model *self, const Model *later, GHashTable *tree);

/**
 * The same for what was recovered from endpoints: @models (of Model) are those after the operation that was answered
 * last with "stored", and after each of the later ones. The names are those of the model @at; what is behind that may
 * be there whole where it stood, or below /recovered, and parts of files only there.
 */
char *model_match_recovered (const GPtrArray *models, guint at, GHashTable *tree);

/**
 * Whether a file with these bytes may lie in interrupted/: as far as @self knows they were written and not flushed.
 * @next (may be NULL) is the model with the write that was under way.
 */
bool model_may_be_interrupted (const Model *self, const Model *next, GBytes *bytes);

/**
 * NULL, or what @contents (of GBytes) of interrupted/ lack, g_free (): all that was written and neither flushed nor
 * touched by @under_way (may be NULL) must be there, where a part of the file is durable at least what lies behind
 * that.
 */
char *model_match_interrupted (const Model *self, const Op *under_way, const GPtrArray *contents);

#endif
