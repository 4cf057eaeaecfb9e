#include "catalog/reads.h"

#include "catalog/side.h"
#include "util/lock.h"

#include <inttypes.h>

#define MOST     (1u << 18)   /* files that are noted */
#define PERIOD_S (90 * 86400) /* reads that are further apart than this are no habit */

typedef struct Read {
    int64_t ino;
    uint32_t n;
    int64_t last_s; /* of the wall clock */
    bool is_new;    /* the database does not have it so */
} Read;

struct EcfsReads {
    char *path;
    EcfsMutex lock;
    GHashTable *reads; /* of Read, by ino; guarded by lock, as the next */
    bool is_changed;
};

enum {
    SELECT_ALL,
    REPLACE,
    DELETE,
    N_QUESTIONS,
};

static const char *const questions[N_QUESTIONS] = {
    [SELECT_ALL] = "SELECT ino, n, last_s FROM reads",
    [REPLACE] = "INSERT OR REPLACE INTO reads (ino, n, last_s) VALUES (?, ?, ?)",
    [DELETE] = "DELETE FROM reads WHERE ino = ?",
};

static const char setup[] = "PRAGMA synchronous = OFF; PRAGMA cache_size = -1024;"
                            "CREATE TABLE IF NOT EXISTS reads (ino INTEGER PRIMARY KEY, n INTEGER NOT NULL, "
                            "  last_s INTEGER NOT NULL) STRICT;";

static int64_t now_s (void)
{
    return g_get_real_time () / G_USEC_PER_SEC;
}

static bool open_side (const EcfsReads *self, EcfsSide *side, GError **error)
{
    *side = (EcfsSide){0};
    return ecfs_side_open (side, self->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, setup, questions, N_QUESTIONS,
                           error);
}

static bool load (EcfsReads *self, EcfsSide *side, GError **error)
{
    EcfsQuery *query = ecfs_side_query (side, SELECT_ALL, NULL, 0, error);
    int found = query == NULL ? -1 : 0;
    while (query != NULL && (found = ecfs_side_step (side, query, error)) == 1) {
        if (g_hash_table_size (self->reads) == MOST)
            continue;
        Read *read = g_new (Read, 1);
        *read = (Read){.ino = ecfs_column_number (query, 0),
                       .n = (uint32_t) CLAMP (ecfs_column_number (query, 1), 0, INT32_MAX),
                       .last_s = ecfs_column_number (query, 2)};
        g_hash_table_add (self->reads, read);
    }
    if (query != NULL)
        ecfs_query_end (&query);
    return found == 0;
}

EcfsReads *ecfs_reads_new (const char *directory)
{
    EcfsSide side;
    g_autoptr (GError) error = NULL;
    EcfsReads *self = g_new0 (EcfsReads, 1);
    self->path = g_build_filename (directory, ECFS_READS_NAME, NULL);
    ecfs_mutex_init (&self->lock);
    self->reads = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    if (g_file_test (self->path, G_FILE_TEST_EXISTS)) {
        if (!open_side (self, &side, &error) || !load (self, &side, &error))
            g_info ("how often files were read is forgotten: %s", error->message);
        ecfs_side_close (&side);
    }
    return self;
}

void ecfs_reads_free (EcfsReads *self)
{
    if (self == NULL)
        return;
    g_hash_table_unref (self->reads);
    ecfs_mutex_clear (&self->lock);
    g_free (self->path);
    g_free (self);
}

void ecfs_reads_note (EcfsReads *self, uint64_t ino)
{
    const int64_t key = (int64_t) ino, time_s = now_s ();
    ecfs_mutex_lock (&self->lock);
    Read *read = g_hash_table_lookup (self->reads, &key);
    if (read == NULL && g_hash_table_size (self->reads) < MOST) {
        read = g_new (Read, 1);
        *read = (Read){.ino = key, .last_s = time_s};
        g_hash_table_add (self->reads, read);
    }
    if (read != NULL) {
        read->n = time_s - read->last_s > PERIOD_S ? 1 : read->n + 1;
        read->last_s = time_s;
        read->is_new = self->is_changed = true;
    }
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_reads_of (EcfsReads *self, uint64_t ino, unsigned *ret_n, int64_t *ret_since_us)
{
    const int64_t key = (int64_t) ino;
    ecfs_mutex_lock (&self->lock);
    const Read *read = g_hash_table_lookup (self->reads, &key);
    if (read != NULL) {
        *ret_n = read->n;
        *ret_since_us = MAX (now_s () - read->last_s, 0) * G_USEC_PER_SEC;
    }
    ecfs_mutex_unlock (&self->lock);
    return read != NULL;
}

void ecfs_reads_forget (EcfsReads *self, uint64_t ino)
{
    const int64_t key = (int64_t) ino;
    ecfs_mutex_lock (&self->lock);
    Read *read = g_hash_table_lookup (self->reads, &key);
    if (read != NULL) {
        read->n = 0;
        read->is_new = self->is_changed = true;
    }
    ecfs_mutex_unlock (&self->lock);
}

/* What is to be written, a copy: the lock is not held over the database. */
static GArray *take_new (EcfsReads *self)
{
    GHashTableIter iter;
    gpointer key;
    GArray *found = g_array_new (FALSE, FALSE, sizeof (Read));
    ecfs_mutex_lock (&self->lock);
    g_hash_table_iter_init (&iter, self->reads);
    while (self->is_changed && g_hash_table_iter_next (&iter, &key, NULL)) {
        Read *read = key;
        if (read->is_new)
            g_array_append_val (found, *read);
        read->is_new = false;
        if (now_s () - read->last_s > 4 * PERIOD_S) {
            Read gone = {.ino = read->ino};
            g_array_append_val (found, gone);
            g_hash_table_iter_remove (&iter);
        }
    }
    self->is_changed = false;
    ecfs_mutex_unlock (&self->lock);
    return found;
}

static bool write_all (EcfsSide *side, const GArray *reads, GError **error)
{
    bool fine = ecfs_side_run (side, "BEGIN", error);
    for (guint i = 0; i < reads->len && fine; i++) {
        const Read *read = &g_array_index (reads, Read, i);
        const Value values[] = {INT (read->ino), INT (read->n), INT (read->last_s)};
        fine = read->last_s == 0 ? ecfs_side_exec (side, DELETE, values, 1, error)
                                 : ecfs_side_exec (side, REPLACE, values, G_N_ELEMENTS (values), error);
    }
    return ecfs_side_run (side, fine ? "COMMIT" : "ROLLBACK", fine ? error : NULL) && fine;
}

void ecfs_reads_keep (EcfsReads *self)
{
    EcfsSide side;
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) reads = take_new (self);
    if (reads->len == 0)
        return;
    if (!open_side (self, &side, &error) || !write_all (&side, reads, &error))
        g_info ("how often files were read is not noted: %s", error->message);
    ecfs_side_close (&side);
}
