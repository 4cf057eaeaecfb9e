#include "cache/index.h"

#include "cache/cells.h"
#include "catalog/side.h"

#include <glib/gstdio.h>
#include <sys/stat.h>

#define INDEX_NAME "index.sqlite"
#define BOOT_ID    "/proc/sys/kernel/random/boot_id"

struct EcfsCacheIndex {
    EcfsSide side;
    char *boot; /* of the machine; "" where it is not told */
};

enum {
    SET,
    SET_AT_LEAST,
    TOUCH,
    PIN,
    UNPIN,
    REMOVE,
    HAS,
    OLDEST,
    OF_OBJECT,
    NEXT,
    TOTALS,
    SWEPT,
    SET_SWEPT,
    N_QUESTIONS
};

#define UPSERT                                                                                                         \
    "INSERT INTO cells (object, segment, bytes, used_us, pinned) VALUES (?, ?, ?, ?, 0) ON CONFLICT DO UPDATE SET "

static const char *const statements[N_QUESTIONS] = {
    [SET] = UPSERT "bytes = excluded.bytes, used_us = excluded.used_us",
    [SET_AT_LEAST] = UPSERT "bytes = max (bytes, excluded.bytes), used_us = excluded.used_us",
    [TOUCH] = "UPDATE cells SET used_us = ? WHERE object = ? AND segment = ?",
    [PIN] = "UPDATE cells SET pinned = max (pinned, ?) WHERE object = ? AND segment = ?",
    [UNPIN] = "UPDATE cells SET pinned = 0 WHERE pinned > 0 AND pinned < ?",
    [REMOVE] = "DELETE FROM cells WHERE object = ? AND segment = ?",
    [HAS] = "SELECT 1 FROM cells WHERE object = ? AND segment = ?",
    [OLDEST] = "SELECT object, segment, bytes FROM cells WHERE pinned = 0 ORDER BY used_us LIMIT ?",
    [OF_OBJECT] = "SELECT object, segment, bytes FROM cells WHERE object = ?",
    [NEXT] =
        "SELECT object, segment, bytes FROM cells WHERE (object, segment) > (?, ?) ORDER BY object, segment LIMIT ?",
    [TOTALS] = "SELECT bytes, pinned_bytes, n FROM totals",
    [SWEPT] = "SELECT swept_us, boot FROM totals",
    [SET_SWEPT] = "UPDATE totals SET swept_us = ?, boot = ?",
};

/* The sums are kept by triggers, so that none of them is ever forgotten. */
static const char setup[] =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -4096; PRAGMA wal_autocheckpoint = "
    "256;"
    "BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS cells (object BLOB NOT NULL, segment INTEGER NOT NULL, bytes INTEGER NOT NULL, "
    "  used_us INTEGER NOT NULL, pinned INTEGER NOT NULL, PRIMARY KEY (object, segment)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS cells_used ON cells (used_us) WHERE pinned = 0;"
    "CREATE INDEX IF NOT EXISTS cells_pinned ON cells (pinned) WHERE pinned > 0;"
    "CREATE TABLE IF NOT EXISTS totals (id INTEGER PRIMARY KEY CHECK (id = 1), bytes INTEGER NOT NULL, "
    "  pinned_bytes INTEGER NOT NULL, n INTEGER NOT NULL, swept_us INTEGER NOT NULL, boot TEXT NOT NULL) STRICT;"
    "INSERT INTO totals VALUES (1, 0, 0, 0, 0, '') ON CONFLICT DO NOTHING;"
    "CREATE TRIGGER IF NOT EXISTS cells_came AFTER INSERT ON cells BEGIN UPDATE totals SET n = n + 1, "
    "  bytes = bytes + new.bytes, pinned_bytes = pinned_bytes + iif (new.pinned > 0, new.bytes, 0); END;"
    "CREATE TRIGGER IF NOT EXISTS cells_went AFTER DELETE ON cells BEGIN UPDATE totals SET n = n - 1, "
    "  bytes = bytes - old.bytes, pinned_bytes = pinned_bytes - iif (old.pinned > 0, old.bytes, 0); END;"
    "CREATE TRIGGER IF NOT EXISTS cells_changed AFTER UPDATE OF bytes, pinned ON cells BEGIN UPDATE totals SET "
    "  bytes = bytes - old.bytes + new.bytes, pinned_bytes = pinned_bytes - iif (old.pinned > 0, old.bytes, 0) "
    "  + iif (new.pinned > 0, new.bytes, 0); END;"
    "COMMIT";

#define RUN(self, statement, error, ...) ecfs_side_exec (&(self)->side, statement, VALUES (__VA_ARGS__), error)
#define ASK(self, statement, error, ...) ecfs_side_query (&(self)->side, statement, VALUES (__VA_ARGS__), error)

static char *boot_id (void)
{
    char *text = NULL;
    return g_file_get_contents (BOOT_ID, &text, NULL, NULL) ? g_strstrip (text) : g_strdup ("");
}

static EcfsCacheIndex *open_once (const char *path, GError **error)
{
    EcfsCacheIndex *self = g_new0 (EcfsCacheIndex, 1);
    self->boot = boot_id ();
    if (ecfs_side_open (&self->side, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, setup, statements, N_QUESTIONS,
                        error))
        return self;
    ecfs_cache_index_close (self);
    return NULL;
}

void ecfs_cache_index_discard (const char *directory)
{
    static const char *const names[] = {INDEX_NAME, INDEX_NAME "-wal", INDEX_NAME "-shm"};
    if (ecfs_cells_check (directory) == -EPERM) /* it is somebody else's */
        return;
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        g_autofree char *file = g_build_filename (directory, names[i], NULL);
        (void) g_unlink (file); /* what stays in the way is found when it is opened again */
    }
    ecfs_cells_remove_all (directory);
}

/* SQLite follows links, and makes tables where they lead. */
static bool check_file (const char *path, GError **error)
{
    struct stat status;
    return lstat (path, &status) != 0 || S_ISREG (status.st_mode) ||
           ecfs_fail (error, EPERM, "%s: it is no file", path);
}

EcfsCacheIndex *ecfs_cache_index_open (const char *directory, bool *ret_anew, GError **error)
{
    g_autofree char *path = g_build_filename (directory, INDEX_NAME, NULL);
    g_autoptr (GError) why = NULL;
    *ret_anew = false;
    if (!ecfs_cells_make (directory, error) || !check_file (path, error))
        return NULL;
    EcfsCacheIndex *self = open_once (path, &why);
    if (self != NULL)
        return self;
    if (why->code != EBADMSG) {
        g_propagate_error (error, g_steal_pointer (&why));
        return NULL;
    }
    ecfs_cache_index_discard (directory);
    *ret_anew = true;
    return ecfs_cells_make (directory, error) ? open_once (path, error) : NULL;
}

void ecfs_cache_index_close (EcfsCacheIndex *self)
{
    if (self == NULL)
        return;
    ecfs_side_close (&self->side);
    g_free (self->boot);
    g_free (self);
}

bool ecfs_cache_index_begin (EcfsCacheIndex *self, GError **error)
{
    return ecfs_side_run (&self->side, "BEGIN IMMEDIATE", error);
}

bool ecfs_cache_index_end (EcfsCacheIndex *self, bool good, GError **error)
{
    if (good && ecfs_side_run (&self->side, "COMMIT", error))
        return true;
    (void) ecfs_side_run (&self->side, "ROLLBACK", NULL); /* the first error is told */
    return false;
}

bool ecfs_cache_index_set (EcfsCacheIndex *self, const EcfsCacheCell *cell, uint64_t bytes, bool at_least,
                           int64_t used_us, GError **error)
{
    return RUN (self, at_least ? SET_AT_LEAST : SET, error, UUID (&cell->object), INT (cell->segment), INT (bytes),
                INT (used_us));
}

bool ecfs_cache_index_touch (EcfsCacheIndex *self, const EcfsCacheCell *cell, int64_t used_us, GError **error)
{
    return RUN (self, TOUCH, error, INT (used_us), UUID (&cell->object), INT (cell->segment));
}

bool ecfs_cache_index_pin (EcfsCacheIndex *self, const EcfsCacheCell *cell, int64_t stamp, GError **error)
{
    return RUN (self, PIN, error, INT (stamp), UUID (&cell->object), INT (cell->segment));
}

bool ecfs_cache_index_unpin (EcfsCacheIndex *self, int64_t stamp, GError **error)
{
    return RUN (self, UNPIN, error, INT (stamp));
}

bool ecfs_cache_index_remove (EcfsCacheIndex *self, const EcfsCacheCell *cell, GError **error)
{
    return RUN (self, REMOVE, error, UUID (&cell->object), INT (cell->segment));
}

bool ecfs_cache_index_has (EcfsCacheIndex *self, const EcfsCacheCell *cell, bool *ret_has, GError **error)
{
    autoquery *query = ASK (self, HAS, error, UUID (&cell->object), INT (cell->segment));
    int found = ecfs_side_step (&self->side, query, error);
    *ret_has = found == 1;
    return found >= 0;
}

static GArray *cells_of (EcfsCacheIndex *self, EcfsQuery *query, GError **error)
{
    g_autoptr (GArray) cells = g_array_new (FALSE, FALSE, sizeof (EcfsCacheRow));
    int found;
    while ((found = ecfs_side_step (&self->side, query, error)) == 1) {
        EcfsCacheRow row = {.cell.segment = (uint64_t) ecfs_column_number (query, 1),
                            .bytes = (uint64_t) MAX (ecfs_column_number (query, 2), 0)};
        if (!ecfs_column_bytes (query, 0, row.cell.object.bytes, sizeof row.cell.object.bytes)) {
            (void) !ecfs_fail (error, EBADMSG, "%s: the name of an object is none", self->side.name);
            return NULL;
        }
        g_array_append_val (cells, row);
    }
    return found < 0 ? NULL : g_steal_pointer (&cells);
}

GArray *ecfs_cache_index_oldest (EcfsCacheIndex *self, unsigned max, GError **error)
{
    autoquery *query = ASK (self, OLDEST, error, INT (max));
    return cells_of (self, query, error);
}

GArray *ecfs_cache_index_of_object (EcfsCacheIndex *self, const EcfsUuid *object, GError **error)
{
    autoquery *query = ASK (self, OF_OBJECT, error, UUID (object));
    return cells_of (self, query, error);
}

GArray *ecfs_cache_index_next (EcfsCacheIndex *self, const EcfsCacheCell *after, unsigned max, GError **error)
{
    autoquery *query = ASK (self, NEXT, error, UUID (&after->object), INT (after->segment), INT (max));
    return cells_of (self, query, error);
}

bool ecfs_cache_index_totals (EcfsCacheIndex *self, uint64_t *ret_bytes, uint64_t *ret_pinned, uint64_t *ret_n,
                              GError **error)
{
    autoquery *query = ecfs_side_query (&self->side, TOTALS, NULL, 0, error);
    if (ecfs_side_step (&self->side, query, error) != 1)
        return false;
    *ret_bytes = (uint64_t) MAX (ecfs_column_number (query, 0), 0);
    *ret_pinned = (uint64_t) MAX (ecfs_column_number (query, 1), 0);
    *ret_n = (uint64_t) MAX (ecfs_column_number (query, 2), 0);
    return true;
}

bool ecfs_cache_index_swept (EcfsCacheIndex *self, int64_t *ret_us, bool *ret_this_boot, GError **error)
{
    autoquery *query = ecfs_side_query (&self->side, SWEPT, NULL, 0, error);
    if (ecfs_side_step (&self->side, query, error) != 1)
        return false;
    *ret_us = ecfs_column_number (query, 0);
    *ret_this_boot = g_strcmp0 (ecfs_column_text (query, 1), self->boot) == 0;
    return true;
}

bool ecfs_cache_index_set_swept (EcfsCacheIndex *self, int64_t us, GError **error)
{
    return RUN (self, SET_SWEPT, error, INT (us), TEXT (self->boot));
}
