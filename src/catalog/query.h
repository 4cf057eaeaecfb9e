/*
 * Values that go into statements of a database, and rows that come out of them, whichever database it is.
 */
#ifndef ECFS_CATALOG_QUERY_H
#define ECFS_CATALOG_QUERY_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef enum ValueType { VALUE_NULL, VALUE_INT, VALUE_BLOB, VALUE_TEXT } ValueType;

typedef struct Value {
    ValueType type;
    int64_t number;    /* or the size of bytes */
    const void *bytes; /* borrowed */
} Value;

#define INT(x)        ((Value){.type = VALUE_INT, .number = (int64_t) (x)})
#define BLOB(b, size) ((Value){.type = VALUE_BLOB, .number = (int64_t) (size), .bytes = (b)})
#define NONE          ((Value){.type = VALUE_NULL})
#define UUID(uuid)    BLOB ((uuid)->bytes, sizeof (uuid)->bytes)
#define NAME(name)    BLOB (name, strlen (name))
#define TEXT(t)       ecfs_value_text (t) /* NULL is SQL's NULL */
#define VALUES(...)   (const Value[]){__VA_ARGS__}, G_N_ELEMENTS (((const Value[]){__VA_ARGS__}))

Value ecfs_value_text (const char *text);

/* A statement whose values are bound, and the row it is at. It belongs to its database. */
typedef struct EcfsQuery EcfsQuery;

typedef struct QueryOps {
    int (*step) (EcfsQuery *query, GError **error); /* 1: a row; 0: no more; -1: @error */
    void (*end) (EcfsQuery *query);
    /* Of the current row. What is NULL is 0, or has no bytes; numbers are no text and texts no numbers. */
    bool (*is_null) (EcfsQuery *query, int column);
    bool (*is_number) (EcfsQuery *query, int column, int64_t *ret_number); /* sets it where it is one */
    int64_t (*number) (EcfsQuery *query, int column);
    const void *(*bytes) (EcfsQuery *query, int column); /* of a blob or text; valid until the next step */
    size_t (*size) (EcfsQuery *query, int column);
    const char *(*text) (EcfsQuery *query, int column); /* with a NUL behind it; NULL is NULL */
} QueryOps;

struct EcfsQuery {
    const QueryOps *ops;
};

void ecfs_query_end (EcfsQuery **query);
#define autoquery __attribute__ ((cleanup (ecfs_query_end))) EcfsQuery

static inline int64_t ecfs_column_number (EcfsQuery *query, int column)
{
    return query->ops->number (query, column);
}

static inline bool ecfs_column_is_null (EcfsQuery *query, int column)
{
    return query->ops->is_null (query, column);
}

/** A blob's bytes, ecfs_column_size () many, valid until the next step; NULL: it is NULL or empty. */
static inline const void *ecfs_column_blob (EcfsQuery *query, int column)
{
    return query->ops->bytes (query, column);
}

static inline size_t ecfs_column_size (EcfsQuery *query, int column)
{
    return query->ops->size (query, column);
}

/** Valid until the next step. */
static inline const char *ecfs_column_text (EcfsQuery *query, int column)
{
    return query->ops->text (query, column);
}

/* False when the value is not of that kind. */
bool ecfs_column_u64 (EcfsQuery *query, int column, uint64_t max, uint64_t *ret_value);
bool ecfs_column_bytes (EcfsQuery *query, int column, void *to, size_t size); /* exactly size */

#endif
