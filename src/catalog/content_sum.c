/*
 * Sums of what files consist of. SQLite notices pages that make no sense, but not a number in one that has changed, and
 * a changed extent would give other bytes as the file's: no checksum of a stripe can know.
 *
 * A sum is the exclusive or of one XXH3-64 over the inode's number and sizes and one over each extent, so that either
 * part can change without a look at the other.
 */
#include "catalog/content_sum.h"
#include "util/bytes.h"
#include "util/xxh3.h"

#include <sqlite3.h>

#define MOST_VALUES 5

static uint64_t sum_values (const uint64_t *values, size_t n)
{
    uint8_t bytes[MOST_VALUES * 8];
    for (size_t i = 0; i < n; i++)
        ecfs_put_le (bytes + 8 * i, values[i], 8);
    return ecfs_xxh3_64 (bytes, 8 * n);
}

uint64_t ecfs_content_sum_sizes (uint64_t ino, uint64_t committed_size, uint64_t data_bytes)
{
    return sum_values ((const uint64_t[]){ino, committed_size, data_bytes}, 3);
}

uint64_t ecfs_content_sum_extent (uint64_t ino, const EcfsExtent *extent)
{
    return sum_values (
        (const uint64_t[]){ino, extent->offset, extent->length, (uint64_t) extent->object, extent->object_offset},
        MOST_VALUES);
}

/* In SQL: ecfs_content_sum (ino, committed_size, data_bytes, start, length, object, object_start), an aggregate over
 * the extents of an inode, or a row of NULLs for none. */

typedef struct Sum {
    bool begun;
    uint64_t value;
} Sum;

static uint64_t argument (sqlite3_value *value)
{
    return (uint64_t) sqlite3_value_int64 (value);
}

static void sum_step (sqlite3_context *context, int n, sqlite3_value **values)
{
    (void) n; /* as registered */
    Sum *sum = sqlite3_aggregate_context (context, sizeof *sum);
    if (sum == NULL) {
        sqlite3_result_error_nomem (context);
        return;
    }
    uint64_t ino = argument (values[0]);
    if (!sum->begun)
        sum->value = ecfs_content_sum_sizes (ino, argument (values[1]), argument (values[2]));
    sum->begun = true;
    if (sqlite3_value_type (values[3]) == SQLITE_NULL)
        return;
    EcfsExtent extent = {.offset = argument (values[3]),
                         .length = argument (values[4]),
                         .object = sqlite3_value_int64 (values[5]),
                         .object_offset = argument (values[6])};
    sum->value ^= ecfs_content_sum_extent (ino, &extent);
}

static void sum_final (sqlite3_context *context)
{
    const Sum *sum = sqlite3_aggregate_context (context, 0);
    sqlite3_result_int64 (context, sum == NULL ? 0 : (int64_t) sum->value);
}

int ecfs_content_sum_register (sqlite3 *db)
{
    return sqlite3_create_function_v2 (db, "ecfs_content_sum", 7, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, NULL,
                                       sum_step, sum_final, NULL);
}
